//! Request and response: workloads whose next packet depends on when the last one was read.
//!
//! Each flow has one request under way, or as many as its window says. When its reader is through with it, the response leaves,
//! and the next request arrives a round trip later: the way through the network and the client,
//! which varies by a tenth. A request that is lost is sent again after [`RETRY_NS`]. Flows, hashes,
//! queues and sockets are those that the front of a replay finds for one frame of each flow.
//!
//! Always true: a flow has no more packets under way than its window; the same seed gives the same
//! run.
//! Elsewhere: what happens to a packet (`ledger` and the engine).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use rxsteer_core::steer::PolicyKind;
use rxsteer_engine::virtual_time::VirtualTime;

use super::front::Front;
use super::item::Item;
use super::job::Job;
use super::ledger::{Ended, Ledger};
use super::{ReplayError, ReplayOptions, check};
use crate::capture::{Direction, LinkType, Packet};
use crate::consumer::Opened;
use crate::generate::Rng;
use crate::host::{Host, Settings};
use crate::report::PolicyReport;

/// The least timeout of TCP in Linux (`TCP_RTO_MIN`).
const RETRY_NS: u64 = 200_000_000;

/// Packets between two looks at whether to stop.
const PROGRESS: u64 = 1 << 14;

/// A set of flows of requests and responses.
#[derive(Clone, Debug)]
pub(crate) struct RoundTrips {
    /// One frame of each flow, as it arrives.
    pub(crate) frames: Vec<Vec<u8>>,
    /// Time from the end of reading to the next request, in ns.
    pub(crate) round_trip_ns: u64,
    /// Requests of one flow that are under way at a time, as a window of TCP; at least 1.
    pub(crate) window: u32,
    /// Least time between two packets of the set on the link, in ns.
    pub(crate) link_gap_ns: u64,
}

/// What a flow sends, again and again.
#[derive(Clone, Copy, Debug)]
struct Flow {
    job: Job,
    round_trip_ns: u64,
    window: u32,
    set: usize,
    sent: u32,
}

/// Runs round trips under every policy of the options; `None` if it was stopped.
pub(crate) fn round_trips(
    host: &Host,
    options: &ReplayOptions,
    sets: &[RoundTrips],
    duration_ns: u64,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Option<Vec<PolicyReport>>, ReplayError> {
    check(host, options)?;
    let (flows, opened) = flows(host, options, sets);
    let mut reports = Vec::new();
    for policy in &options.policies {
        let link = |set: &RoundTrips| Link { gap_ns: set.link_gap_ns, ..Link::default() };
        let links = sets.iter().map(link).collect();
        let run = Run::new(*policy, host, options, &flows, &opened, links);
        match run.run(options.seed, duration_ns, progress) {
            Some(report) => reports.push(report),
            None => return Ok(None),
        }
    }
    Ok(Some(reports))
}

/// Lets the front of a replay look at the frames; returns the flows and their sockets.
fn flows(host: &Host, options: &ReplayOptions, sets: &[RoundTrips]) -> (Vec<Flow>, Vec<Opened>) {
    let mut front = Front::new(host, options, Arc::from([]));
    let mut flows = Vec::new();
    let mut opened = Vec::new();
    for (number, set) in sets.iter().enumerate() {
        for frame in &set.frames {
            // A TCP connection that is met in its middle is one from its second segment on.
            let direction = Direction::Inbound;
            for _ in 0..2 {
                front.packet(&Packet { direction, ..Packet::new(0, LinkType::ETHERNET, frame) });
            }
            front.decide_local();
            let mut last = None;
            for timed in front.take_items() {
                match timed.item {
                    Item::Packet(job) => last = Some(job),
                    Item::Open(socket) => opened.push(socket),
                    _ => {}
                }
            }
            if let Some(job) = last {
                let (round_trip_ns, window) = (set.round_trip_ns, set.window);
                flows.push(Flow { job, round_trip_ns, window, set: number, sent: 0 });
            }
        }
    }
    (flows, opened)
}

struct Run {
    ledger: Ledger,
    executor: VirtualTime<Job>,
    flows: Vec<Flow>,
    /// Requests to come: when, of which flow.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    ended: Vec<Ended>,
    /// Index of a flow by the place of its state.
    by_place: Vec<u32>,
    links: Vec<Link>,
}

/// The link of a set.
#[derive(Default)]
struct Link {
    gap_ns: u64,
    busy: bool,
    /// Flows whose requests wait for it.
    waiting: VecDeque<u32>,
}

impl Run {
    fn new(
        policy: PolicyKind,
        host: &Host,
        options: &ReplayOptions,
        flows: &[Flow],
        opened: &[Opened],
        links: Vec<Link>,
    ) -> Self {
        let mut ledger = Ledger::new(policy, host, options.kernel, options.drain);
        ledger.keep_ends();
        opened.iter().for_each(|socket| ledger.opened(socket));
        let settings = host.settings();
        let settings = Settings { govern: ledger.govern().or(settings.govern), ..settings };
        let executor = VirtualTime::new(&host.topology(), &settings, &host.costs);
        let mut by_place = Vec::new();
        for (index, flow) in flows.iter().enumerate() {
            let place = flow.job.flow as usize;
            if place >= by_place.len() {
                by_place.resize(place + 1, 0);
            }
            by_place[place] = index as u32;
        }
        let flows = flows.to_vec();
        let (due, ended) = (BinaryHeap::new(), Vec::new());
        Self { ledger, executor, flows, due, ended, by_place, links }
    }

    fn run(
        mut self,
        seed: u64,
        duration_ns: u64,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Option<PolicyReport> {
        self.ledger.ends_at(duration_ns);
        let mut rng = Rng::new(seed, 0x726f_756e);
        for (index, flow) in self.flows.iter().enumerate() {
            for _ in 0..flow.window {
                let first_ns = rng.below(flow.round_trip_ns.max(1));
                self.due.push(Reverse((first_ns, index as u32)));
            }
        }
        // Nothing that is read now brings a request sooner than this.
        let ahead_ns = self.flows.iter().map(|flow| flow.round_trip_ns).min().unwrap_or(1);
        let ahead_ns = (ahead_ns - ahead_ns / 10).max(1);
        let (mut now_ns, mut sent) = (0, 0u64);
        while now_ns < duration_ns {
            let next_ns = self.due.peek().map_or(u64::MAX, |Reverse((ns, _))| *ns);
            let until_ns = next_ns.min(now_ns + ahead_ns).min(duration_ns);
            self.executor.advance(until_ns, &mut self.ledger);
            now_ns = until_ns;
            self.hear(&mut rng);
            while let Some(Reverse((ns, index))) = self.due.peek().copied()
                && ns <= now_ns
                && ns < duration_ns
            {
                self.due.pop();
                let Some(index) = self.through_link(index, now_ns) else { continue };
                sent += 1;
                self.send(index, now_ns, sent);
            }
            if sent.is_multiple_of(PROGRESS) && progress(sent).is_break() {
                return None;
            }
        }
        let end_ns = self.executor.drain(&mut self.ledger).max(duration_ns);
        let loads: Vec<_> = self.executor.loads().collect();
        Some(self.ledger.report(&loads, end_ns))
    }

    /// Plans what follows from the packets that ended.
    fn hear(&mut self, rng: &mut Rng) {
        self.ledger.take_ends(&mut self.ended);
        for ended in self.ended.drain(..) {
            let Some(&index) = self.by_place.get(ended.flow as usize) else { continue };
            let round_trip_ns = self.flows[index as usize].round_trip_ns;
            let tenth = round_trip_ns / 10;
            let after_ns = if ended.read {
                round_trip_ns - tenth + rng.below(2 * tenth + 1)
            } else {
                RETRY_NS
            };
            self.due.push(Reverse((ended.ns + after_ns, index)));
        }
    }

    /// Returns the flow whose request is on the link now, when that of `index` is due; an index from
    /// the end on stands for a link that is free again.
    fn through_link(&mut self, index: u32, now_ns: u64) -> Option<u32> {
        let set = match self.flows.get(index as usize) {
            Some(flow) if self.links[flow.set].gap_ns == 0 => return Some(index),
            Some(flow) => {
                self.links[flow.set].waiting.push_back(index);
                flow.set
            }
            None => {
                let set = (u32::MAX - index) as usize;
                self.links[set].busy = false;
                set
            }
        };
        let link = &mut self.links[set];
        if link.busy {
            return None;
        }
        let next = link.waiting.pop_front()?;
        link.busy = true;
        self.due.push(Reverse((now_ns + link.gap_ns, u32::MAX - set as u32)));
        Some(next)
    }

    fn send(&mut self, index: u32, now_ns: u64, number: u64) {
        let flow = &mut self.flows[index as usize];
        flow.sent += 1;
        let job = Job { arrived_ns: now_ns, number, seq: flow.sent, ..flow.job };
        self.ledger.arrived(now_ns);
        let queue = job.queue;
        self.executor.arrive(job, queue, now_ns, &mut self.ledger);
    }
}
