//! A scenario: who sends, from which seed, merged into one stream of frames in order of time.
//!
//! Always true: the same scenario gives the same frames on every machine; times never go back; one
//! frame a sender is held, so memory grows with the senders and not with the length.
//! Elsewhere: the bytes of a frame ([`super::packet`]); what each kind of sender does
//! ([`super::tcp`], [`super::udp`], [`super::crowd`], [`super::uniform`]).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Rng;

/// A generated frame.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Frame {
    /// Time since the epoch, in nanoseconds.
    pub time_ns: u64,
    /// Bytes on the wire.
    pub orig_len: u32,
    /// From the client to the server, which is the host where the capture is taken.
    pub inbound: bool,
    /// Bytes captured, at most the scenario's snap length.
    pub bytes: Vec<u8>,
}

/// Something that sends frames, one after another.
pub trait Sender {
    /// Returns the time of the next frame in nanoseconds, or `None` when it is done. Never less
    /// than that of the frame before.
    fn next_ns(&self) -> Option<u64>;

    /// Writes the next frame's direction and bytes. Called only while there is a next frame.
    fn emit(&mut self, out: &mut Frame);
}

/// The description of a sender, made into one with its own stream of random numbers.
pub trait Workload {
    /// Returns the sender.
    fn sender(self, rng: Rng) -> Box<dyn Sender>;
}

/// A set of senders and a seed.
///
/// # Examples
/// ```
/// use rxsteer_lab::generate::{Scenario, Uniform};
/// let mut scenario = Scenario::new(7);
/// scenario.add(Uniform { flows: 10, packets_per_flow: 3, ..Uniform::default() });
/// assert_eq!(scenario.frames().count(), 30);
/// ```
pub struct Scenario {
    seed: u64,
    snap_len: usize,
    senders: Vec<Box<dyn Sender>>,
}

impl Scenario {
    /// A scenario without senders; frames are captured whole.
    pub fn new(seed: u64) -> Self {
        Self { seed, snap_len: usize::MAX, senders: Vec::new() }
    }

    /// Cuts each captured frame to this many bytes.
    pub fn snap_len(mut self, bytes: usize) -> Self {
        self.snap_len = bytes;
        self
    }

    /// Adds a sender. The order of the calls counts: it gives each sender its random numbers.
    pub fn add(&mut self, workload: impl Workload) -> &mut Self {
        let rng = Rng::new(self.seed, self.senders.len() as u64);
        self.senders.push(workload.sender(rng));
        self
    }

    /// Returns the merged stream of frames.
    pub fn frames(self) -> Frames {
        let due = self
            .senders
            .iter()
            .enumerate()
            .filter_map(|(index, sender)| Some(Reverse((sender.next_ns()?, index))))
            .collect();
        Frames { due, senders: self.senders, snap_len: self.snap_len, frame: Frame::default() }
    }
}

/// The frames of a scenario in order of time; at the same time, in order of the senders.
pub struct Frames {
    due: BinaryHeap<Reverse<(u64, usize)>>,
    senders: Vec<Box<dyn Sender>>,
    snap_len: usize,
    frame: Frame,
}

impl Frames {
    /// Returns the next frame in a buffer that is used again, or `None` at the end.
    pub fn next_frame(&mut self) -> Option<&Frame> {
        let mut top = self.due.peek_mut()?;
        let Reverse((time_ns, index)) = *top;
        let sender = self.senders.get_mut(index)?;
        self.frame.time_ns = time_ns;
        sender.emit(&mut self.frame);
        self.frame.orig_len = self.frame.bytes.len() as u32;
        self.frame.bytes.truncate(self.snap_len);
        match sender.next_ns() {
            // `max` keeps the order even if a sender broke its promise.
            Some(next_ns) => *top = Reverse((next_ns.max(time_ns), index)),
            None => {
                std::collections::binary_heap::PeekMut::pop(top);
            }
        }
        Some(&self.frame)
    }
}

impl Iterator for Frames {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        self.next_frame().cloned()
    }
}
