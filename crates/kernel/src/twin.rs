//! The native twin of the programs: the same core over the same state, on the host's side.
//!
//! What it says of a frame, the program must say too, word by word.

use std::fs;
use std::sync::atomic::AtomicU64;

use rxsteer_core::dissect::{Dissected, Start, dissect};
use rxsteer_core::steer::{Class, Host, Packet, PortRule, Queue, choose_flow_aware};
use rxsteer_core::table::{Bucket, Epoch, FlowTable, OrderTable, TableSizeError, WAYS};
use rxsteer_core::{CpuId, FlowHash};
use rxsteer_ebpf::{Config, OPTIONS, ORDER_SLOTS, Seen};

use crate::Setup;

/// Tables and settings of the twin.
pub struct Twin {
    config: Config,
    cpus: Vec<CpuId>,
    tcp: FlowTable<Vec<Bucket>>,
    udp: FlowTable<Vec<Bucket>>,
    order: Vec<AtomicU64>,
    now: Epoch,
}

impl Twin {
    /// Makes a twin with empty tables, which spreads over `cpus`.
    ///
    /// # Errors
    /// If a table size of `config` is not a power of two.
    pub fn new(config: Config, cpus: Vec<CpuId>) -> Result<Self, TableSizeError> {
        let table =
            |buckets| FlowTable::new((0..buckets).map(|_| Bucket::empty()).collect::<Vec<_>>());
        Ok(Self {
            tcp: table(config.tcp_buckets)?,
            udp: table(config.udp_buckets)?,
            config,
            cpus,
            order: (0..ORDER_SLOTS).map(|_| AtomicU64::new(OrderTable::FREE)).collect(),
            now: Epoch::from_ns(ns_since_boot()),
        })
    }

    /// Records that the consumer of the frame's flow runs on `cpu`; nothing for what has no flow.
    pub fn record(&self, frame: &[u8], cpu: CpuId) {
        let (out, _, hash) = self.read(frame);
        self.table(class(&out)).record(hash, cpu, self.now);
    }

    /// Returns what the programs must be told to be in the state of this twin.
    pub fn setup(&self) -> Setup {
        Setup { config: self.config, cpus: self.cpus.clone(), flows: self.flows() }
    }

    /// Returns the buckets of the flow tables.
    pub fn flows(&self) -> Vec<[u64; WAYS]> {
        let buckets = self.tcp.buckets().iter().chain(self.udp.buckets());
        buckets.map(Bucket::to_words).collect()
    }

    /// Returns what core makes of a frame that came in by queue 0 of `arrived_on`.
    pub fn observe(&self, frame: &[u8], arrived_on: CpuId) -> Seen {
        let (out, stopped, hash) = self.read(frame);
        let class = class(&out);
        let packet = Packet { hash, class, rule: PortRule::default(), arrived_on, refused: false };
        let table = self.table(class);
        let decision = choose_flow_aware(
            &self.config.aware,
            &Queue { map: &self.cpus, slots: &self.order },
            &packet,
            self,
            self.now,
            |hash, now| table.lookup(hash, now),
            |place, seen, cpu, moving| table.place(place, seen, cpu, moving),
        );
        let mut seen = Seen::EMPTY;
        seen.write(&out, stopped, hash, &decision);
        seen
    }

    fn read(&self, frame: &[u8]) -> (Dissected, u32, FlowHash) {
        let mut out = Dissected::EMPTY;
        let stopped = Seen::stopped(dissect(frame, Start::Ethernet, &OPTIONS, &mut out));
        let hash = if out.has_key() {
            self.config.hasher.hash_symmetric(&out.key)
        } else {
            FlowHash::NONE
        };
        (out, stopped, hash)
    }

    fn table(&self, class: Class) -> &FlowTable<Vec<Bucket>> {
        if class.is_tcp() { &self.tcp } else { &self.udp }
    }
}

/// All CPUs of the mask are online and idle, as [`crate::TestBed`] tells the programs.
impl Host for Twin {
    fn is_online(&self, cpu: CpuId) -> bool {
        self.cpus.contains(&cpu)
    }

    fn head(&self, _: CpuId) -> u32 {
        0
    }

    fn tail(&self, _: CpuId) -> u32 {
        0
    }
}

fn class(out: &Dissected) -> Class {
    Class::new(out.key.protocol, out.tcp_flags, false)
}

/// Returns the clock that the programs read, but for the time that the machine slept; 0 without
/// `/proc`.
fn ns_since_boot() -> u64 {
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = uptime.split(' ').next().and_then(|word| word.parse::<f64>().ok());
    (seconds.unwrap_or(0.0) * 1e9) as u64
}
