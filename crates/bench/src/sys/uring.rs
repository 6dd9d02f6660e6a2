//! Receiving by io_uring: one request for each socket that goes on for ever, into buffers that the
//! kernel takes one by one.
//!
//! Always true: the kernel writes only into buffers that it was handed, and the memory of buffers is
//! given back only when no request is under way any more; what is handed back is read no more.
//! Source: io_uring_setup(2), io_uring_register_buf_ring(3), io_uring_prep_recvmsg_multishot(3);
//! Linux 6.0 is the first that has all of it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use io_uring::types::{BufRingEntry, CancelBuilder, Fd, RecvMsgOut, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use nix::errno::Errno;

use super::batch::{CONTROL_LEN, control_value};

/// Requests that are handed over with one system call.
const REQUESTS: u32 = 64;
/// Name of the buffers among those of a ring.
const GROUP: u16 = 0;
/// What the kernel writes before the control messages: four lengths and flags of 32 bits.
const PREFIX_LEN: usize = 16;
/// Alignment that the kernel asks of the ring of buffers: a page, of which this is the largest.
const PAGE: usize = 1 << 16;

/// A message that was received.
pub(crate) struct Message {
    /// Index of its socket.
    pub(crate) socket: usize,
    /// Bytes.
    pub(crate) len: usize,
    /// Bytes of each datagram, if the kernel merged several.
    pub(crate) segment_len: Option<usize>,
    /// How many datagrams the socket has dropped before this one; `None` if none.
    pub(crate) overflow: Option<u32>,
}

/// A ring that receives from sockets.
pub(crate) struct Uring<'s> {
    ring: IoUring,
    sockets: Vec<BorrowedFd<'s>>,
    /// Sockets without a request.
    idle: Vec<usize>,
    /// Tells the kernel how much room there is for control messages.
    header: Box<libc::msghdr>,
    buffers: Buffers,
    /// Completions that were taken off the ring: socket, result, flags.
    came: Vec<(usize, i32, u32)>,
}

impl<'s> Uring<'s> {
    /// Makes a ring for the calling thread, with `count` buffers (a power of two) for messages of up to
    /// `slot_len` bytes.
    pub(crate) fn open(
        sockets: Vec<BorrowedFd<'s>>,
        count: u16,
        slot_len: usize,
    ) -> io::Result<Self> {
        let completions = u32::from(count) * 2 + REQUESTS;
        // All is done in the calls of this thread (Linux 6.1); else whenever it comes.
        let ring = IoUring::builder()
            .setup_cqsize(completions)
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(REQUESTS)
            .or_else(|error| match error.raw_os_error() {
                Some(libc::EINVAL) => IoUring::builder().setup_cqsize(completions).build(REQUESTS),
                _ => Err(error),
            })?;
        // There is nothing to cancel; a kernel that knows how to knows requests that go on, too.
        match ring.submitter().register_sync_cancel(None, CancelBuilder::any()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let buffers = Buffers::new(count, PREFIX_LEN + CONTROL_LEN + slot_len)?;
        let address = buffers.entries.as_ptr() as u64;
        // SAFETY: the entries are `count` of 16 bytes, aligned to a page, and live until no request is
        // under way any more (`drop`), after which the kernel does not look at them.
        unsafe { ring.submitter().register_buf_ring_with_flags(address, count, GROUP, 0)? };
        let header = libc::msghdr {
            msg_name: std::ptr::null_mut(),
            msg_namelen: 0,
            msg_iov: std::ptr::null_mut(),
            msg_iovlen: 0,
            msg_control: std::ptr::null_mut(),
            msg_controllen: CONTROL_LEN as _,
            msg_flags: 0,
        };
        let idle = (0..sockets.len()).collect();
        Ok(Self { ring, sockets, idle, header: Box::new(header), buffers, came: Vec::new() })
    }

    /// Waits for messages, hands each to `take`, and returns how many there were; `None` if nothing
    /// happened for as long as the patience.
    pub(crate) fn receive(
        &mut self,
        patience: Duration,
        mut take: impl FnMut(Message),
    ) -> io::Result<Option<usize>> {
        self.arm()?;
        if !self.wait(patience)? {
            return Ok(None);
        }
        let (mut messages, mut failure) = (0, None);
        for (socket, result, flags) in self.came.drain(..) {
            if !cqueue::more(flags) {
                self.idle.push(socket);
            }
            if let (0.., Some(buffer)) = (result, cqueue::buffer_select(flags)) {
                let bytes = self.buffers.bytes(buffer, result as usize);
                if let Ok(message) = RecvMsgOut::parse(bytes, &self.header) {
                    let control = |level, kind| control_value(message.control_data(), level, kind);
                    let segment = control(libc::SOL_UDP, libc::UDP_GRO);
                    let overflow = control(libc::SOL_SOCKET, libc::SO_RXQ_OVFL);
                    take(Message {
                        socket,
                        len: message.payload_data().len(),
                        segment_len: segment.and_then(|len| len.try_into().ok()),
                        overflow: overflow.map(|drops| drops as u32),
                    });
                    messages += 1;
                }
                self.buffers.hand_over(buffer);
            }
            match -result {
                // All buffers were full, which they are no more; or the error of another datagram (ICMP).
                libc::ENOBUFS | libc::ECONNREFUSED | libc::EAGAIN | libc::EINTR => {}
                error @ 1.. => failure = Some(io::Error::from_raw_os_error(error)),
                _ => {}
            }
        }
        failure.map_or(Ok(Some(messages)), Err)
    }

    /// Asks for messages of all sockets for which that is not under way.
    fn arm(&mut self) -> io::Result<()> {
        while let Some(socket) = self.idle.last().copied() {
            let fd = Fd(self.sockets[socket].as_raw_fd());
            let request = opcode::RecvMsgMulti::new(fd, &raw const *self.header, GROUP)
                .build()
                .user_data(socket as u64);
            // SAFETY: the header lives in its box as long as `self`, and the request is over before that
            // (`drop`); the buffers are those of the group.
            match unsafe { self.ring.submission().push(&request) } {
                Ok(()) => {
                    self.idle.pop();
                }
                // No room: hand those over that are there.
                Err(_) => {
                    self.ring.submit()?;
                }
            }
        }
        Ok(())
    }

    /// Hands requests over and waits for something to take; returns whether there is.
    fn wait(&mut self, patience: Duration) -> io::Result<bool> {
        let time = Timespec::from(patience);
        let args = SubmitArgs::new().timespec(&time);
        if let Err(error) = self.ring.submitter().submit_with_args(1, &args) {
            match error.raw_os_error() {
                // Of these the second says that what came must be taken first.
                Some(libc::ETIME | libc::EBUSY | libc::EINTR) => {}
                _ => return Err(error),
            }
        }
        let completions = self.ring.completion();
        self.came.extend(completions.map(|c| (c.user_data() as usize, c.result(), c.flags())));
        Ok(!self.came.is_empty())
    }

    /// Ends all requests; returns whether none is under way any more.
    fn end(&mut self) -> bool {
        let time = Timespec::from(Duration::from_secs(1));
        let _ = self.ring.submitter().register_sync_cancel(Some(time), CancelBuilder::any());
        for _ in 0..16 {
            if self.idle.len() == self.sockets.len() {
                return true;
            }
            if self.wait(Duration::from_millis(100)).is_err() {
                return false;
            }
            let ended = self.came.drain(..).filter(|(.., flags)| !cqueue::more(*flags));
            self.idle.extend(ended.map(|(socket, ..)| socket));
        }
        self.idle.len() == self.sockets.len()
    }
}

impl Drop for Uring<'_> {
    fn drop(&mut self) {
        let is_over = self.end() && self.ring.submitter().unregister_buf_ring(GROUP).is_ok();
        // Better lost than written to by the kernel when somebody else has it.
        self.buffers.is_lost = !is_over;
        if !is_over {
            let header = libc::msghdr { ..*self.header };
            std::mem::forget(std::mem::replace(&mut self.header, Box::new(header)));
        }
    }
}

/// Buffers, and the ring by which they are handed to the kernel.
struct Buffers {
    entries: NonNull<BufRingEntry>,
    slots: NonNull<u8>,
    slot_len: usize,
    count: u16,
    /// Buffers handed over since the start, wrapping.
    tail: u16,
    /// Whether the memory may not be given back.
    is_lost: bool,
}

impl Buffers {
    fn new(count: u16, slot_len: usize) -> io::Result<Self> {
        debug_assert!(count.is_power_of_two());
        let (entries, slots) = Self::layouts(count, slot_len);
        let first = allocate(entries)?;
        let slots = allocate(slots).inspect_err(|_| {
            // SAFETY: it was allocated with this layout, and nobody else knows of it.
            unsafe { dealloc(first.as_ptr(), entries) }
        })?;
        let mut buffers =
            Self { entries: first.cast(), slots, slot_len, count, tail: 0, is_lost: false };
        (0..count).for_each(|buffer| buffers.hand_over(buffer));
        Ok(buffers)
    }

    fn layouts(count: u16, slot_len: usize) -> (Layout, Layout) {
        let layout =
            |len| Layout::from_size_align(len, PAGE).expect("some megabytes are not too much");
        let count = usize::from(count);
        (layout(count * size_of::<BufRingEntry>()), layout(count * slot_len))
    }

    /// Returns the first bytes of a buffer that the kernel has filled and not been handed since.
    fn bytes(&self, buffer: u16, len: usize) -> &[u8] {
        let buffer = usize::from(buffer % self.count);
        // SAFETY: the slot is inside the allocation of `count * slot_len` bytes, which began as zeroes; the
        // kernel gave it back with the completion and writes to it only when it is handed over again,
        // which needs `&mut self`.
        unsafe {
            let slot = self.slots.add(buffer * self.slot_len);
            std::slice::from_raw_parts(slot.as_ptr(), len.min(self.slot_len))
        }
    }

    /// Gives a buffer to the kernel.
    fn hand_over(&mut self, buffer: u16) {
        let place = usize::from(self.tail % self.count);
        let buffer = buffer % self.count;
        // SAFETY: the entry and the slot are inside their allocations. The kernel reads entries before the
        // tail only, and writes none; the tail is in the unused word of the first entry, which no setter
        // touches, and is written last.
        unsafe {
            let slot = self.slots.add(usize::from(buffer) * self.slot_len);
            let entry = &mut *self.entries.as_ptr().add(place);
            entry.set_addr(slot.as_ptr() as u64);
            entry.set_len(self.slot_len as u32);
            entry.set_bid(buffer);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(self.entries.as_ptr()).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if self.is_lost {
            return;
        }
        let (entries, slots) = Self::layouts(self.count, self.slot_len);
        // SAFETY: both were allocated with these layouts, and no request writes to them any more.
        unsafe {
            dealloc(self.entries.as_ptr().cast(), entries);
            dealloc(self.slots.as_ptr(), slots);
        }
    }
}

fn allocate(layout: Layout) -> io::Result<NonNull<u8>> {
    // SAFETY: the layout is not empty, since there is at least one buffer with a prefix.
    let memory = unsafe { alloc_zeroed(layout) };
    NonNull::new(memory).ok_or_else(|| Errno::ENOMEM.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd as _;

    const SOON: Duration = Duration::from_secs(20);

    fn pair() -> (UdpSocket, UdpSocket) {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        (receiver, sender)
    }

    /// Returns a ring; `None`, and says why, where this process may not have one.
    fn ring<'s>(test: &str, sockets: Vec<BorrowedFd<'s>>) -> Option<Uring<'s>> {
        match Uring::open(sockets, 4, 100) {
            Ok(ring) => Some(ring),
            Err(error) => {
                eprintln!("skipped {test}: io_uring: {error}");
                None
            }
        }
    }

    /// More messages than buffers, so that the request ends and is made again.
    #[test]
    fn messages_of_several_sockets_arrive_once_each() {
        let (first, to_first) = pair();
        let (second, to_second) = pair();
        let sockets = vec![first.as_fd(), second.as_fd()];
        let test = "messages_of_several_sockets_arrive_once_each";
        let Some(mut ring) = ring(test, sockets) else { return };
        for round in 0..3 {
            for len in 0..20 {
                to_first.send(&[7; 100][..len]).unwrap();
                to_second.send(&[7; 200][..2 * len + round]).unwrap();
            }
            let mut seen = [Vec::new(), Vec::new()];
            while seen[0].len() + seen[1].len() < 40 {
                let take = |message: Message| {
                    assert!(message.segment_len.is_none());
                    seen[message.socket].push(message.len);
                };
                assert!(ring.receive(SOON, take).unwrap().is_some());
            }
            assert_eq!(seen[0], (0..20).collect::<Vec<_>>());
            assert_eq!(seen[1], (0..20).map(|len| 2 * len + round).collect::<Vec<_>>());
        }
        let nothing = ring.receive(Duration::from_millis(1), |_| panic!("nothing was sent"));
        assert_eq!(nothing.unwrap(), None);
        // One that is too long is cut to the slot.
        to_first.send(&[7; 150]).unwrap();
        let mut lens = Vec::new();
        while lens.is_empty() {
            ring.receive(SOON, |message| lens.push(message.len)).unwrap();
        }
        assert_eq!(lens, [100]);
        // Nothing is under way afterwards, so the memory can be given back.
        assert!(ring.end());
    }

    /// The same count as recvmmsg gives.
    #[test]
    fn drops_are_told_with_the_messages() {
        let (receiver, sender) = pair();
        let level = libc::SOL_SOCKET;
        super::super::set_option(receiver.as_fd(), level, libc::SO_RXQ_OVFL, 1).unwrap();
        super::super::set_option(receiver.as_fd(), level, libc::SO_RCVBUF, 4096).unwrap();
        for _ in 0..100 {
            sender.send(&[7; 100]).unwrap();
        }
        let Some(mut ring) = ring("drops_are_told_with_the_messages", vec![receiver.as_fd()])
        else {
            return;
        };
        let mut queued = 0;
        while ring.receive(Duration::from_millis(50), |_| queued += 1).unwrap().is_some() {}
        assert!(0 < queued && queued < 100, "{queued}");
        sender.send(&[7; 100]).unwrap();
        let mut told = None;
        while told.is_none() {
            ring.receive(SOON, |message| told = message.overflow).unwrap();
        }
        assert_eq!(told, Some(100 - queued));
    }
}
