//! Many messages with one system call.
//!
//! Always true: the kernel gets pointers into the buffers of the [`Batch`] alone, made anew for each
//! call, with the lengths of those buffers.
//! Source: sendmmsg(2), recvmmsg(2), cmsg(3); udp(7) for `UDP_GRO`; socket(7) for `SO_RXQ_OVFL`.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr;

use nix::errno::Errno;

/// Room for the control messages of one datagram: `SO_RXQ_OVFL` and `UDP_GRO`, 24 bytes each.
pub(super) const CONTROL_LEN: usize = 64;

/// A buffer for control messages, aligned as their headers are.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

/// Buffers for messages, and what the kernel is told of them.
pub(crate) struct Batch {
    slots: Vec<u8>,
    slot_len: usize,
    lens: Vec<usize>,
    controls: Vec<Control>,
    control_lens: Vec<usize>,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers in `vectors` and `headers` are set before each call and not used after it; all
// else may be sent.
unsafe impl Send for Batch {}

impl Batch {
    /// Makes buffers for `count` messages of at most `slot_len` bytes.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(count: usize, slot_len: usize) -> io::Result<Self> {
        let mut slots = Vec::new();
        slots.try_reserve_exact(count * slot_len).map_err(|_| Errno::ENOMEM)?;
        slots.resize(count * slot_len, 0);
        let vector = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let header = libc::mmsghdr {
            msg_hdr: libc::msghdr {
                msg_name: ptr::null_mut(),
                msg_namelen: 0,
                msg_iov: ptr::null_mut(),
                msg_iovlen: 0,
                msg_control: ptr::null_mut(),
                msg_controllen: 0,
                msg_flags: 0,
            },
            msg_len: 0,
        };
        Ok(Self {
            slots,
            slot_len,
            lens: vec![0; count],
            controls: vec![Control([0; CONTROL_LEN]); count],
            control_lens: vec![0; count],
            vectors: vec![vector; count],
            headers: vec![header; count],
        })
    }

    /// Returns how many messages it holds at most.
    pub(crate) fn count(&self) -> usize {
        self.lens.len()
    }

    /// Writes a message: `write` gets the whole buffer and returns how much of it to send.
    pub(crate) fn fill(&mut self, index: usize, write: impl FnOnce(&mut [u8]) -> usize) {
        let start = index * self.slot_len;
        if let Some(slot) = self.slots.get_mut(start..start + self.slot_len) {
            self.lens[index] = write(slot).min(self.slot_len);
        }
    }

    /// Sends the messages `from..to` and returns how many the kernel took, at least one.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        from: usize,
        to: usize,
    ) -> io::Result<usize> {
        for index in from..to {
            self.point(index, self.lens[index], false);
        }
        let headers = &mut self.headers[from..to];
        // SAFETY: the headers point into `slots` and `vectors` with the lengths of the slots (`point`),
        // and none of these moves or is used otherwise during the call; the kernel reads them.
        let sent = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), headers.len() as u32, 0)
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Receives up to `most` messages, waits for the first of them unless `flags` say otherwise, and
    /// returns how many came.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        most: usize,
        flags: i32,
    ) -> io::Result<usize> {
        let most = most.min(self.count());
        for index in 0..most {
            self.point(index, self.slot_len, true);
        }
        let headers = &mut self.headers[..most];
        // SAFETY: the headers point into `slots`, `controls` and `vectors` with their lengths (`point`),
        // and none of these moves or is used otherwise during the call, in which the kernel writes to
        // them. There is no time-out.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as u32,
                flags,
                ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        for index in 0..received {
            self.lens[index] = self.headers[index].msg_len as usize;
            self.control_lens[index] = self.headers[index].msg_hdr.msg_controllen;
        }
        Ok(received)
    }

    /// Receives one message with `recvmsg(2)`, waiting for it.
    pub(crate) fn receive_one(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.point(0, self.slot_len, true);
        let header = &mut self.headers[0].msg_hdr;
        // SAFETY: as in `receive`, for one header.
        let len = unsafe { libc::recvmsg(socket.as_raw_fd(), header, 0) };
        self.lens[0] = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
        self.control_lens[0] = header.msg_controllen;
        Ok(())
    }

    /// Returns the bytes of a message that was received.
    #[cfg(test)]
    pub(crate) fn message(&self, index: usize) -> &[u8] {
        let start = index * self.slot_len;
        &self.slots[start..start + self.lens[index]]
    }

    /// Returns the length of a message in bytes.
    pub(crate) fn len(&self, index: usize) -> usize {
        self.lens[index]
    }

    /// Returns the bytes of each datagram in a message that the kernel merged; `None` if it is one.
    pub(crate) fn segment_len(&self, index: usize) -> Option<usize> {
        self.control(index, libc::SOL_UDP, libc::UDP_GRO).and_then(|len| len.try_into().ok())
    }

    /// Returns how many datagrams the socket has dropped before this one; `None` if none.
    pub(crate) fn overflow(&self, index: usize) -> Option<u32> {
        self.control(index, libc::SOL_SOCKET, libc::SO_RXQ_OVFL).map(|drops| drops as u32)
    }

    fn control(&self, index: usize, level: i32, kind: i32) -> Option<i32> {
        let bytes = self.controls[index].0.get(..self.control_lens[index])?;
        control_value(bytes, level, kind)
    }

    /// Lets the header of a slot point to its buffers.
    fn point(&mut self, index: usize, len: usize, controlled: bool) {
        let start = index * self.slot_len;
        let slot = &mut self.slots[start..start + self.slot_len];
        debug_assert!(len <= slot.len());
        self.vectors[index] = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: len };
        let header = &mut self.headers[index].msg_hdr;
        header.msg_iov = &raw mut self.vectors[index];
        header.msg_iovlen = 1;
        header.msg_flags = 0;
        if controlled {
            header.msg_control = self.controls[index].0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_LEN;
        } else {
            header.msg_control = ptr::null_mut();
            header.msg_controllen = 0;
        }
    }
}

/// Finds a control message and reads the integer in it.
///
/// A header is its length (as `usize`, itself included), level and kind; the next one follows at a
/// multiple of the size of the length.
pub(super) fn control_value(mut bytes: &[u8], level: i32, kind: i32) -> Option<i32> {
    const WORD: usize = size_of::<usize>();
    let int = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(i32::from_ne_bytes)
    };
    loop {
        let len = usize::from_ne_bytes(bytes.get(..WORD)?.try_into().ok()?);
        if len < WORD + 8 || len > bytes.len() {
            return None;
        }
        if (int(bytes, WORD)?, int(bytes, WORD + 4)?) == (level, kind) {
            return int(bytes.get(..len)?, (WORD + 8).next_multiple_of(WORD));
        }
        bytes = bytes.get(len.next_multiple_of(WORD)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd as _;

    #[test]
    fn messages_arrive_with_their_bytes() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let mut out = Batch::new(8, 16).unwrap();
        for index in 0..8 {
            out.fill(index, |slot| {
                slot[..index].fill(index as u8);
                index
            });
        }
        assert_eq!(out.send(sender.as_fd(), 0, 3).unwrap(), 3);
        assert_eq!(out.send(sender.as_fd(), 3, 8).unwrap(), 5);
        let mut back = Batch::new(16, 4).unwrap();
        let mut seen = Vec::new();
        back.receive_one(receiver.as_fd()).unwrap();
        seen.push(back.message(0).to_vec());
        while seen.len() < 8 {
            let count = back.receive(receiver.as_fd(), 5, libc::MSG_WAITFORONE).unwrap();
            assert!((1..=5).contains(&count));
            seen.extend((0..count).map(|index| back.message(index).to_vec()));
        }
        // A longer one is cut to the slot.
        let expected: Vec<Vec<u8>> = (0..8u8).map(|n| vec![n; usize::from(n).min(4)]).collect();
        assert_eq!(seen, expected);
        let error = back.receive(receiver.as_fd(), 5, libc::MSG_DONTWAIT).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    /// The count in the control message against the socket's own, in `/proc/net/udp`, after more
    /// calls than one: the room for control messages must be there each time.
    #[test]
    fn drops_are_told_with_every_message() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_small(&receiver);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        for _ in 0..500 {
            sender.send(&[7; 100]).unwrap();
        }
        let port = format!(":{:04X}", receiver.local_addr().unwrap().port());
        let table = std::fs::read_to_string("/proc/net/udp").unwrap();
        let line =
            table.lines().find(|l| l.split_whitespace().nth(1).is_some_and(|a| a.ends_with(&port)));
        let drops: u32 = line.unwrap().split_whitespace().last().unwrap().parse().unwrap();
        assert!(drops > 0);
        let mut batch = Batch::new(4, 200).unwrap();
        let mut seen = Vec::new();
        while let Ok(count) = batch.receive(receiver.as_fd(), 4, libc::MSG_DONTWAIT) {
            seen.extend((0..count).map(|index| batch.overflow(index)));
        }
        assert_eq!(seen.len() as u32 + drops, 500);
        // Those that were queued before the first drop know of none yet.
        sender.send(&[7; 100]).unwrap();
        batch.receive_one(receiver.as_fd()).unwrap();
        assert_eq!(batch.overflow(0), Some(drops));
        assert_eq!(batch.segment_len(0), None);
    }

    fn set_small(socket: &UdpSocket) {
        super::super::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1).unwrap();
        super::super::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 4096).unwrap();
    }

    #[test]
    fn damaged_control_messages_are_none() {
        let mut message = 20usize.to_ne_bytes().to_vec();
        message.extend(1i32.to_ne_bytes());
        message.extend(2i32.to_ne_bytes());
        message.extend(7i32.to_ne_bytes());
        message.extend([0; 4]);
        assert_eq!(control_value(&message, 1, 2), Some(7));
        let twice = [message.clone(), message.clone()].concat();
        assert_eq!(control_value(&twice, 1, 3), None);
        for cut in 0..20 {
            assert_eq!(control_value(&message[..cut], 1, 2), None, "{cut}");
        }
        for len in [0usize, 15, 21, usize::MAX] {
            message[..8].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(control_value(&message[..20], 1, 2), None, "{len}");
        }
        let mut second = twice;
        second[24 + 12..24 + 16].copy_from_slice(&9i32.to_ne_bytes());
        assert_eq!(control_value(&second, 1, 9), Some(7));
    }
}
