//! Request and response: workloads whose next packet depends on when the last one was read.
//!
//! Each flow has one request under way, or as many as its window says. When its reader is through with it, the response leaves,
//! and the next request arrives a round trip later: the way through the network and the client,
//! which varies by a tenth. A request that is lost is sent again after [`RETRY_NS`]. Flows, hashes,
//! queues and sockets are those that the front of a replay finds for one frame of each flow.
//!
//! The clients may also be on the host itself ([`Clients`]), as over a loopback or a veth device: a thread
//! on one of its CPUs reads the responses and asks again, and what is sent is taken on the CPU that sent
//! it, with no network between. Then the clients' work competes with that of the host.
//!
//! Always true: a flow has no more packets under way than its window; the same seed gives the same
//! run.
//! Elsewhere: what happens to a packet (`ledger` and the engine).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use rxsteer_core::steer::PolicyKind;
use rxsteer_core::{CpuId, FlowHash, QueueId};
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
    /// Who asks, if that is somebody on the host itself: then there is no round trip and no link.
    pub(crate) clients: Option<Clients>,
    /// Least time between two packets of the set on the link, in ns.
    pub(crate) link_gap_ns: u64,
}

/// Clients on the host itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Clients {
    /// CPU of their thread.
    pub(crate) cpu: CpuId,
    /// Their work on a response, the next request included, in ns.
    pub(crate) work_ns: u32,
}

/// What a flow sends, again and again.
#[derive(Clone, Copy, Debug)]
struct Flow {
    job: Job,
    round_trip_ns: u64,
    window: u32,
    set: usize,
    sent: u32,
    /// The flow that follows when a packet of this one was read, at once; `None`: this one itself, a round
    /// trip later.
    follows: Option<u32>,
    /// Whether it begins.
    begins: bool,
    /// Nothing that is read sooner than this before a packet of it brings that, in ns.
    ahead_ns: u64,
}

/// Time in which clients on the host ask for the first time, in ns.
const FIRST_NS: u64 = 100_000;

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
                flows.push(Flow {
                    job,
                    round_trip_ns,
                    window,
                    set: number,
                    sent: 0,
                    follows: None,
                    begins: true,
                    ahead_ns: (round_trip_ns - round_trip_ns / 10).max(1),
                });
            }
        }
    }
    answers(host, sets, &mut flows, &mut opened);
    (flows, opened)
}

/// Adds a flow of responses to each one of clients on the host, and the clients' sockets.
fn answers(host: &Host, sets: &[RoundTrips], flows: &mut Vec<Flow>, opened: &mut Vec<Opened>) {
    let queue_of = |cpu: CpuId| {
        let place = host.queues.iter().position(|queue| queue.irq_cpu == cpu).unwrap_or(0);
        QueueId(place as u16)
    };
    let mut place = flows.iter().map(|flow| flow.job.flow + 1).max().unwrap_or(0);
    let mut socket = opened.iter().map(|opened| opened.socket + 1).max().unwrap_or(0);
    for index in 0..flows.len() {
        let Some(clients) = sets[flows[index].set].clients else { continue };
        let asks = flows[index];
        let server = opened.iter().find(|opened| opened.socket == asks.job.socket).copied();
        let Some(server) = server else { continue };
        let answer = Flow {
            job: Job {
                hash: FlowHash(asks.job.hash.0.rotate_left(16) | 1),
                flow: place,
                socket,
                socket_use: server.socket_use,
                queue: queue_of(server.cpu),
                connected: true,
                wants_reader: true,
                ..asks.job
            },
            follows: Some(index as u32),
            begins: false,
            ahead_ns: u64::from(clients.work_ns).max(1),
            ..asks
        };
        opened.push(Opened {
            socket,
            cpu: clients.cpu,
            work_ns: clients.work_ns,
            connected: true,
            ..server
        });
        let next = flows.len() as u32;
        let asks = &mut flows[index];
        (asks.follows, asks.job.queue) = (Some(next), queue_of(clients.cpu));
        asks.round_trip_ns = FIRST_NS;
        asks.ahead_ns = u64::from(server.work_ns).max(1);
        flows.push(answer);
        place += 1;
        socket += 1;
    }
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
        for (index, flow) in self.flows.iter().enumerate().filter(|(_, flow)| flow.begins) {
            for _ in 0..flow.window {
                let first_ns = rng.below(flow.round_trip_ns.max(1));
                self.due.push(Reverse((first_ns, index as u32)));
            }
        }
        // Nothing that is read now brings a request sooner than this.
        let ahead_ns = self.flows.iter().map(|flow| flow.ahead_ns).min().unwrap_or(1);
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
            let Flow { round_trip_ns, follows, .. } = self.flows[index as usize];
            if let Some(next) = follows.filter(|_| ended.read) {
                self.due.push(Reverse((ended.ns, next)));
                continue;
            }
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
