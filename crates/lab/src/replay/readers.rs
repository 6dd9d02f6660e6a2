//! What waits for the readers of a replay: one reading thread a CPU, for all sockets that are read
//! there, in the order in which their packets were delivered.
//!
//! Always true: at most [`Readers::MOST_MESSAGES`] messages wait in the whole model.
//! Elsewhere: room in the receive buffer of a socket (`ledger`).

use std::collections::VecDeque;

use rxsteer_core::CpuId;
use rxsteer_engine::{ReaderId, Train};

use super::job::Job;

/// A train on its way to a reader.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) train: Train<Job>,
    /// CPU that processed it.
    pub(super) on: CpuId,
    /// Work of the application on each packet, in ns.
    pub(super) work_ns: u32,
}

/// How far a packet is from its reader.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Distance {
    /// On the same CPU.
    Here,
    /// On a CPU of the same cache.
    Near,
    /// Anywhere else.
    Far,
}

/// The queues of all readers.
#[derive(Debug)]
pub(super) struct Readers {
    queues: Vec<VecDeque<Message>>,
    waiting: usize,
    /// Cache group of each CPU.
    cache: Vec<u32>,
}

impl Readers {
    /// Most messages that wait in the whole model: 2^20.
    pub(super) const MOST_MESSAGES: usize = 1 << 20;

    pub(super) fn new(cache: Vec<u32>) -> Self {
        let queues = cache.iter().map(|_| VecDeque::new()).collect();
        Self { queues, waiting: 0, cache }
    }

    /// Returns whether no more messages may wait.
    #[inline]
    pub(super) const fn is_full(&self) -> bool {
        self.waiting >= Self::MOST_MESSAGES
    }

    /// Puts a message up for the reader of a CPU.
    #[inline]
    pub(super) fn put(&mut self, cpu: CpuId, message: Message) {
        debug_assert!(!self.is_full());
        self.waiting += 1;
        self.queues[cpu.index()].push_back(message);
    }

    /// Takes the next message of a reader, if it is of this socket; `None`: of any.
    #[inline]
    pub(super) fn take(&mut self, reader: ReaderId, socket: Option<u32>) -> Option<Message> {
        let queue = self.queues.get_mut(reader.0 as usize)?;
        let next = queue.front()?.train.first().socket;
        if socket.is_some_and(|socket| socket != next) {
            return None;
        }
        self.waiting -= 1;
        queue.pop_front()
    }

    /// Moves what waits of a socket to the reader of another CPU, behind what waits there; returns
    /// the number of messages.
    pub(super) fn move_socket(&mut self, socket: u32, from: CpuId, to: CpuId) -> u32 {
        let queue = std::mem::take(&mut self.queues[from.index()]);
        let before = self.queues[to.index()].len();
        for message in queue {
            let its = message.train.first().socket == socket;
            self.queues[if its { to } else { from }.index()].push_back(message);
        }
        (self.queues[to.index()].len() - before) as u32
    }

    /// Returns whether a reader has something to read.
    #[inline]
    pub(super) fn has_more(&self, reader: ReaderId) -> bool {
        self.queues.get(reader.0 as usize).is_some_and(|queue| !queue.is_empty())
    }

    /// Returns how far two CPUs are from each other.
    #[inline]
    pub(super) fn distance(&self, a: CpuId, b: CpuId) -> Distance {
        if a == b {
            Distance::Here
        } else if self.cache.get(a.index()) == self.cache.get(b.index()) {
            Distance::Near
        } else {
            Distance::Far
        }
    }
}
