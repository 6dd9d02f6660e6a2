//! The set-up in which `rxsteer` steers the receiving end, for the time of one run.
//!
//! Always true: what is attached is held by links of this process, so nothing of it outlives the run,
//! nor the process however it ends.
//! Elsewhere: what is attached (`rxsteer-kernel`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rxsteer_core::CpuSet;
use rxsteer_core::steer::{Class, Reason};
use rxsteer_kernel::{Attachment, Counters, Settings};
use rxsteer_testbed::Pair;
use serde::Serialize;

use crate::BenchError;
use crate::threads::{End, join, spawn};

/// How the receiving end was steered, and what was counted there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attached {
    /// Where the program ran: native or skb.
    pub mode: String,
    /// What decided.
    pub policy: &'static str,
    /// CPUs that could take packets, as a list.
    pub cpus: String,
    /// Flows that each of the two tables could hold.
    pub table_entries: u32,
    /// Packets that could wait for one CPU.
    pub queue_packets: u32,
    /// Whether closed UDP sockets were heard.
    pub hears_close: bool,
    /// In what this is not like the other set-ups, besides who decides.
    pub unequal: Vec<String>,
    /// What was counted, run by run.
    pub runs: Vec<AttachedRun>,
}

/// What was counted in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AttachedRun {
    /// Packets that came in.
    pub seen: u64,
    /// The same, each under one reason; reasons of no packet are left out.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Share of TCP packets of known flows among those that the table was asked for.
    pub tcp_hit_rate: Option<f64>,
    /// The same of UDP.
    pub udp_hit_rate: Option<f64>,
    /// Flows in the tables at the end, of TCP and of UDP.
    pub flows: [usize; 2],
    /// Packets lost because the queue of their CPU was full.
    pub lost_full: u64,
    /// Packets lost otherwise between the decision and the CPU.
    pub lost_otherwise: u64,
    /// Packets that each CPU took from its queue.
    pub taken: BTreeMap<u16, u64>,
}

impl Attached {
    fn new(attachment: &Attachment) -> Self {
        let settings = attachment.settings();
        let mode = attachment.mode().to_string();
        Self {
            policy: settings.policy.name(),
            cpus: settings.cpus.list().to_string(),
            table_entries: settings.table_entries,
            queue_packets: settings.queue_packets,
            hears_close: attachment.hears_close(),
            unequal: unequal(&mode, settings),
            runs: Vec::new(),
            mode,
        }
    }

    /// Takes in a run of the same set-up.
    pub(super) fn join(&mut self, other: Self) {
        self.runs.extend(other.runs);
    }
}

/// Says in what a steered end is not like the others, so that a difference is not put down to who
/// decides alone.
fn unequal(mode: &str, settings: &Settings) -> Vec<String> {
    let mut unequal = vec![
        format!(
            "{} packets may wait for a CPU, and a thread of that CPU takes them; elsewhere \
             net.core.netdev_max_backlog, and a softirq",
            settings.queue_packets
        ),
        format!(
            "tables of {} flows for TCP and as many for UDP; RFS has one of {}",
            settings.table_entries,
            super::setup::FLOW_ENTRIES
        ),
        "merging (GRO) happens in the thread of the target CPU, on kernels before 6.15 not at all; \
         elsewhere in the poll of the device"
            .into(),
        "a datagram that was sent to another CPU takes more of its socket's buffer, a small one on a \
         veth pair about 1,080 bytes for 832, so fewer fit"
            .into(),
    ];
    if mode == "native" {
        unequal.push(
            "a veth device copies every packet that came from a socket before an XDP program sees \
             it; network cards do not"
                .into(),
        );
    }
    unequal
}

impl AttachedRun {
    fn new(counters: &Counters, flows: [usize; 2]) -> Self {
        let reasons =
            Reason::ALL.into_iter().map(|reason| (reason.name(), counters.reason(reason)));
        Self {
            seen: counters.seen(),
            reasons: reasons.filter(|(_, count)| *count > 0).collect(),
            tcp_hit_rate: hit_rate(counters, &[Class::Tcp]),
            udp_hit_rate: hit_rate(counters, &[Class::Udp, Class::Tunnel]),
            flows,
            lost_full: counters.cpus.iter().map(|(_, cpu)| cpu.lost_full).sum(),
            lost_otherwise: counters
                .cpus
                .iter()
                .map(|(_, cpu)| cpu.lost_refused + cpu.lost_memory)
                .sum(),
            taken: counters.cpus.iter().map(|(id, cpu)| (id.0, cpu.taken)).collect(),
        }
    }
}

fn hit_rate(counters: &Counters, classes: &[Class]) -> Option<f64> {
    let of = |reason: Reason| -> u64 {
        classes.iter().map(|class| counters.packets[class.index()][reason.index()]).sum()
    };
    let known = of(Reason::Hit) + of(Reason::Held) + of(Reason::Beside);
    let asked = known + of(Reason::Miss);
    (asked > 0).then(|| known as f64 / asked as f64)
}

/// How often the tables are looked after.
const UPKEEP: Duration = Duration::from_secs(1);

/// How soon the end of the run is seen.
const LOOK: Duration = Duration::from_millis(20);

/// Runs something while the receiving end of a pair is steered over `cpus`.
pub(super) fn while_attached<T>(
    pair: &Pair,
    cpus: &CpuSet,
    work: impl FnOnce() -> Result<T, BenchError>,
) -> Result<(T, Attached), BenchError> {
    let settings = Settings::new(Pair::SINK_DEVICE, *cpus);
    let attachment = pair.sink.run(|| Attachment::new(settings))??;
    let mut attached = Attached::new(&attachment);
    let over = AtomicBool::new(false);
    let (made, attachment) = std::thread::scope(|scope| {
        let upkeep = spawn(scope, 1, || look_after(attachment, &over))?;
        let made = {
            let _end = End(&over);
            work()
        };
        Ok::<_, BenchError>((made, join(upkeep)))
    })?;
    let made = made?;
    attached.runs.push(AttachedRun::new(&attachment.counters()?, attachment.flows()));
    Ok((made, attached))
}

/// Does what an attachment needs from time to time, and gives it back at the end.
fn look_after(mut attachment: Attachment, over: &AtomicBool) -> Attachment {
    let mut last = Instant::now();
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        attachment.relieve();
        if last.elapsed() >= UPKEEP {
            attachment.maintain();
            last = Instant::now();
        }
    }
    attachment
}
