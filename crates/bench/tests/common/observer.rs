//! A packet socket at the receiver's end, which sees what arrives, and when.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeSpec, TimeVal, TimeValLike as _};
use rxsteer_testbed::Pair;

/// Sees every frame that reaches the other end.
pub(crate) struct Observer {
    socket: OwnedFd,
    /// The receiver's own frames are not counted.
    sink: [u8; 6],
}

impl Observer {
    pub(crate) fn new(pair: &Pair) -> Self {
        let open = || {
            let all = SockProtocol::EthAll;
            let fd = socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), all).unwrap();
            setsockopt(&fd, sockopt::RcvBufForce, &(256 << 20)).unwrap();
            setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::milliseconds(200)).unwrap();
            setsockopt(&fd, sockopt::ReceiveTimestampns, &true).unwrap();
            fd
        };
        Self { socket: pair.sink.run(open).unwrap(), sink: pair.sink_device.mac }
    }

    /// Returns the frames that came, each with the time since 1970 that the kernel wrote down.
    pub(crate) fn frames(&self) -> Vec<(Duration, Vec<u8>)> {
        let mut frames = Vec::new();
        let mut bytes = vec![0; 70_000];
        let mut control = nix::cmsg_space!(TimeSpec);
        loop {
            let mut room = [IoSliceMut::new(&mut bytes)];
            let fd = self.socket.as_raw_fd();
            let came = recvmsg::<()>(fd, &mut room, Some(&mut control), MsgFlags::empty());
            let Ok(message) = came else { return frames };
            let time = message.cmsgs().unwrap().find_map(|message| match message {
                ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
                _ => None,
            });
            let len = message.bytes;
            if bytes[6..12] != self.sink {
                frames.push((time.unwrap(), bytes[..len].to_vec()));
            }
        }
    }
}
