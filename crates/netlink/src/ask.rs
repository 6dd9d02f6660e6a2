//! Questions to the kernel over netlink, one at a time.
//!
//! A socket stays in the namespace in which it was opened, whoever uses it later; so nobody
//! need enter a namespace to ask about devices in it, or to change them.
//!
//! Always true: each question is answered, with what was asked for or with the kernel's error,
//! before the next is put.
//! Source: netlink(7), rtnetlink(7); Documentation/userspace-api/netlink/intro.rst.

use std::fmt::Debug;
use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NetlinkBuffer, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};

/// Which part of the kernel a socket talks to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// Devices, addresses, routes: rtnetlink(7).
    Route,
    /// The families of generic netlink.
    Generic,
}

/// A netlink socket and the number of its last question.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in the namespace of the calling thread.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn open(protocol: Protocol) -> io::Result<Self> {
        let mut socket = Socket::new(match protocol {
            Protocol::Route => NETLINK_ROUTE,
            Protocol::Generic => NETLINK_GENERIC,
        })?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Asks and returns the answers, which may be none, when the kernel has confirmed.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn ask<M>(&mut self, message: M, flags: u16) -> io::Result<Vec<M>>
    where
        M: NetlinkSerializable + NetlinkDeserializable + Debug,
    {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            if self.take(&datagram, &mut answers)? {
                return Ok(answers);
            }
        }
    }

    /// Takes the messages of a datagram; whether the last of the answer was among them.
    fn take<M>(&self, mut datagram: &[u8], answers: &mut Vec<M>) -> io::Result<bool>
    where
        M: NetlinkDeserializable + Debug,
    {
        while !datagram.is_empty() {
            let len = NetlinkBuffer::new_checked(datagram).map_err(bad)?.length() as usize;
            let (one, rest) = datagram.split_at(len.min(datagram.len()));
            let message = NetlinkMessage::<M>::deserialize(one).map_err(bad)?;
            datagram = rest.get(len.next_multiple_of(4) - len..).unwrap_or_default();
            if message.header.sequence_number != self.sequence {
                continue;
            }
            match message.payload {
                NetlinkPayload::Error(error) if error.code.is_none() => return Ok(true),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                _ => {}
            }
        }
        Ok(false)
    }
}

pub(crate) fn bad(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("netlink: {error}"))
}
