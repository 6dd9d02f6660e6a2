//! The queue beside a plain model of its rules, over generated histories.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::{Event, IpVersion, UdpSnapshot};

#[derive(Clone, Copy, Debug)]
struct Offer {
    size: u32,
    v6: bool,
    /// `None`: verified; otherwise deferred, and whether it is bad.
    deferred: Option<bool>,
}

#[derive(Clone, Debug)]
enum Op {
    Push(Offer),
    Burst(Vec<Offer>),
    Recv,
    Batch(usize),
    Peek,
    Limit(Limits),
    Refuse,
    Purge,
    Close,
}

fn offers() -> impl Strategy<Value = Offer> {
    let sizes = prop_oneof![0u32..300, Just(100), Just(5000)];
    let deferred = prop_oneof![3 => Just(None), 1 => any::<bool>().prop_map(Some)];
    (sizes, any::<bool>(), deferred).prop_map(|(size, v6, deferred)| Offer { size, v6, deferred })
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => offers().prop_map(Op::Push),
        3 => prop::collection::vec(offers(), 0..50).prop_map(Op::Burst),
        6 => Just(Op::Recv),
        4 => (0usize..40).prop_map(Op::Batch),
        2 => Just(Op::Peek),
        1 => (prop_oneof![0u32..2000, Just(u32::MAX)], prop_oneof![0u32..20, Just(u32::MAX)])
            .prop_map(|(bytes, packets)| Op::Limit(Limits { bytes, packets })),
        1 => Just(Op::Refuse),
        1 => Just(Op::Purge),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    name: u64,
    offer: Offer,
    stamp: u32,
}

/// The rules as the spec words them, with nothing clever.
struct Model {
    arrived: VecDeque<Waiting>,
    taken_over: VecDeque<Waiting>,
    limits: Limits,
    release: Release,
    owed: (u64, u64),
    in_use: (u64, u64),
    drops: u32,
    pages: u64,
    page_limit: Option<u64>,
    closed: bool,
    counts: [UdpSnapshot; 2],
    discarded: u64,
    offered: u64,
}

impl Model {
    fn count(&mut self, v6: bool, event: Event) {
        self.counts[usize::from(v6)].add(event, 1);
    }

    fn push(&mut self, name: u64, offer: Offer) -> &'static str {
        if self.closed {
            return "closed";
        }
        self.offered += 1;
        let size = u64::from(offer.size.max(1));
        let (bytes, packets) = self.in_use;
        let limit = u64::from(self.limits.bytes);
        let bytes_full = bytes + size > limit && (bytes > 0 || limit > (1 << 30) - 1);
        if bytes_full || packets >= u64::from(self.limits.packets.max(1)) {
            self.drops += 1;
            self.count(offer.v6, Event::BufferFull);
            return "full";
        }
        if let Some(page_limit) = self.page_limit {
            let needed = (bytes + size).div_ceil(4096).max(self.pages);
            if needed > page_limit {
                self.drops += 1;
                self.count(offer.v6, Event::NoMemory);
                return "memory";
            }
            self.pages = needed;
        }
        self.in_use = (bytes + size, packets + 1);
        self.arrived.push_back(Waiting { name, offer, stamp: self.drops });
        "ok"
    }

    fn fill(&mut self) -> bool {
        if self.taken_over.is_empty() {
            self.taken_over = std::mem::take(&mut self.arrived);
        }
        !self.taken_over.is_empty()
    }

    fn gone(&mut self, gone: &[Waiting]) {
        for waiting in gone {
            self.owed.0 += u64::from(waiting.offer.size.max(1));
            self.owed.1 += 1;
        }
        let quarter = u64::from(self.limits.bytes) / 4;
        let empty = self.taken_over.is_empty();
        if self.release == Release::Exact || empty || self.owed.0 >= quarter {
            self.in_use.0 -= self.owed.0;
            self.in_use.1 -= self.owed.1;
            self.owed = (0, 0);
            if self.release == Release::Quarter {
                self.taken_over.append(&mut self.arrived);
            }
        }
        if empty && self.page_limit.is_some() {
            self.pages = self.pages.min(self.in_use.0.div_ceil(4096));
        }
    }

    fn empty(&self) -> RecvError {
        if self.closed { RecvError::Closed } else { RecvError::Empty }
    }

    fn batch(&mut self, max: usize) -> Result<Vec<(u64, u32)>, RecvError> {
        let mut good = Vec::new();
        while good.is_empty() && max > 0 {
            if !self.fill() {
                return Err(self.empty());
            }
            if self.taken_over.len() < max {
                self.taken_over.append(&mut self.arrived);
            }
            let n = max.min(self.taken_over.len());
            let taken: Vec<_> = self.taken_over.drain(..n).collect();
            self.gone(&taken);
            for waiting in taken {
                if waiting.offer.deferred == Some(true) {
                    self.drops += 1;
                    self.count(waiting.offer.v6, bad());
                } else {
                    self.count(waiting.offer.v6, Event::Delivered);
                    good.push((waiting.name, waiting.stamp));
                }
            }
        }
        Ok(good)
    }

    fn peek(&mut self) -> Result<u64, RecvError> {
        loop {
            if !self.fill() {
                return Err(self.empty());
            }
            let front = self.taken_over[0];
            if front.offer.deferred != Some(true) {
                return Ok(front.name);
            }
            self.taken_over.pop_front();
            self.gone(&[front]);
            self.drops += 1;
            self.count(front.offer.v6, bad());
        }
    }

    fn purge(&mut self) -> u64 {
        let mut all: Vec<_> = self.taken_over.drain(..).collect();
        all.extend(self.arrived.drain(..));
        self.gone(&all);
        self.discarded += all.len() as u64;
        all.len() as u64
    }
}

fn bad() -> Event {
    Event::Malformed(crate::datagram::Malformed::BadChecksum)
}

fn datagram(name: u64, offer: Offer) -> Datagram<Simulated> {
    let mut datagram = sized(name, offer.size);
    if offer.v6 {
        datagram = over_ipv6(datagram);
    }
    match offer.deferred {
        Some(bad) => deferred(datagram, bad),
        None => datagram,
    }
}

fn outcome(result: Result<(), PushError<Simulated>>) -> &'static str {
    match result {
        Ok(()) => "ok",
        Err(PushError::BufferFull) => "full",
        Err(PushError::NoMemory) => "memory",
        Err(PushError::Closed(_)) => "closed",
    }
}

fn stamped(datagram: Datagram<Simulated>) -> (u64, u32) {
    (datagram.timestamp_ns, datagram.drops_before())
}

proptest! {
    #[test]
    fn queue_and_model_never_disagree(
        history in prop::collection::vec(ops(), 1..120),
        close in any::<bool>(),
        release in prop_oneof![Just(Release::Exact), Just(Release::Quarter)],
        page_limit in prop_oneof![Just(None), (0u64..4).prop_map(Some)],
        limit in 0u32..3000,
    ) {
        let context = QueueContext::default();
        let account = Arc::new(MemoryAccount::with_limit(page_limit.unwrap_or(0)));
        let context = Arc::new(match page_limit {
            Some(_) => context.with_memory(Arc::clone(&account)),
            None => context,
        });
        let queue = ReceiveQueue::with_release(&context, Limits::bytes(limit), release);
        let mut model = Model {
            arrived: VecDeque::new(), taken_over: VecDeque::new(), limits: Limits::bytes(limit),
            release, owed: (0, 0), in_use: (0, 0), drops: 0, pages: 0, page_limit, closed: false,
            counts: [UdpSnapshot::default(); 2], discarded: 0, offered: 0,
        };
        let mut next = 0;
        let mut history = history;
        if close {
            history.insert(history.len() / 2, Op::Close);
        }
        for op in history {
            match op.clone() {
                Op::Push(offer) => {
                    next += 1;
                    let room = queue.credit().has_room(offer.size);
                    let result = outcome(queue.push(datagram(next, offer)));
                    prop_assert_eq!(result, model.push(next, offer));
                    if result != "closed" {
                        prop_assert_eq!(room, result != "full");
                    }
                }
                Op::Burst(offers) => {
                    let mut burst: Vec<_> = offers.iter().enumerate()
                        .map(|(at, offer)| datagram(next + 1 + at as u64, *offer)).collect();
                    let result = queue.push_burst(&mut burst);
                    let mut expected = Burst { closed: model.closed, ..Burst::default() };
                    for offer in &offers {
                        next += 1;
                        match model.push(next, *offer) {
                            "ok" => expected.admitted += 1,
                            "full" => expected.buffer_full += 1,
                            "memory" => expected.no_memory += 1,
                            _ => {}
                        }
                    }
                    prop_assert_eq!(result, expected);
                    prop_assert_eq!(burst.len(), if model.closed { offers.len() } else { 0 });
                }
                Op::Recv => {
                    let expected = model.batch(1).map(|one| one[0]);
                    prop_assert_eq!(queue.try_recv().map(stamped), expected);
                }
                Op::Batch(max) => {
                    let read = queue.try_recv_batch(max)
                        .map(|batch| batch.map(stamped).collect::<Vec<_>>());
                    prop_assert_eq!(read, model.batch(max));
                }
                Op::Peek => {
                    let expected = model.peek();
                    prop_assert_eq!(queue.is_readable(), expected.is_ok());
                    prop_assert_eq!(queue.peek(|front| front.timestamp_ns), expected);
                }
                Op::Limit(limits) => {
                    queue.set_limits(limits);
                    model.limits = limits;
                }
                Op::Refuse => {
                    queue.count_refused(IpVersion::V6);
                    model.offered += 1;
                    model.drops += 1;
                    model.count(true, Event::Refused);
                }
                Op::Purge => prop_assert_eq!(queue.purge(), model.purge()),
                Op::Close => {
                    queue.close();
                    model.closed = true;
                }
            }
            let in_use = queue.credit().in_use();
            prop_assert_eq!((in_use.bytes, in_use.packets), model.in_use, "{:?}", op);
            prop_assert_eq!(queue.credit().drops(), u64::from(model.drops));
            prop_assert_eq!(account.drawn(), model.pages);
            for version in IpVersion::ALL {
                let expected = model.counts[usize::from(version == IpVersion::V6)];
                prop_assert_eq!(context.counters().snapshot(version), expected);
            }
            let sum = |part: fn(&UdpSnapshot) -> u64| model.counts.iter().map(part).sum::<u64>();
            let ended = sum(|udp| udp.in_datagrams) + sum(|udp| udp.in_errors);
            let waiting = (model.arrived.len() + model.taken_over.len()) as u64;
            prop_assert_eq!(model.offered, ended + waiting + model.discarded, "all adds up");
            let socket = queue.counters();
            prop_assert_eq!(socket.in_datagrams + socket.in_errors, ended);
        }
        drop(queue);
        prop_assert_eq!(account.drawn(), 0);
    }
}
