//! Replay predicts live: the packets of a live run, replayed under the same settings, go to the CPUs to
//! which they went. Needs root and two CPUs; without them it says so and ends.
//!
//! | what | where it is from |
//! | --- | --- |
//! | the packets and their times | a packet socket at the sender's end, both directions |
//! | where each was processed | packet sockets at the receiver's end, one a CPU; `SO_INCOMING_CPU` |
//! | who read which flow, where and when | the readers themselves: `sched_getcpu` at each read and send |
//! | where each is predicted to be processed | [`Replay`] of those packets and readers |
//!
//! Only the key of the flow hash is given to both sides.
//!
//! Flows over sockets without a peer, on ports that are named on both sides, are among them. The model knows
//! no other ports of such sockets: live, their packets go to the CPU of their reader, in
//! the model they are spread by hash. They are few here, and have their own name in the differences.
//!
//! Not compared: what is no TCP or UDP. The model's packets all arrive on one CPU; live, on that of the
//! thread that sends. It matters to packets that stay where they arrive, of which there are none here.
#![expect(
    clippy::print_stderr,
    reason = "a skipped test says why, and the figures are of interest"
)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../common/mod.rs"]
mod common;
mod judge;
mod tap;
mod traffic;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use common::rig;
use judge::{Judged, Why};
use rxsteer_core::CpuId;
use rxsteer_core::dissect::VlanHash;
use rxsteer_core::steer::{PolicyKind, Reason};
use rxsteer_kernel::Settings;
use rxsteer_lab::capture::{CaptureOptions, Captures, LinkType, PcapWriter};
use rxsteer_lab::consumer::Scenario;
use rxsteer_lab::host::Host;
use rxsteer_lab::replay::{Chosen, LocalRule, Observer, Replay, ReplayOptions, hasher};
use rxsteer_testbed::Pair;
use tap::Seen;
use traffic::{Consumer, Group, Stay};

/// Seed of the flow hash of both sides.
const SEED: u64 = 20_101;

const ROUNDS: u64 = 600;

/// Runs of which one has to agree: where others take the CPUs, a flow that is to move waits for a thread
/// that does not get to rest, which no record of the run tells the model.
const TRIES: u32 = 3;

#[test]
fn a_replay_of_a_live_run_sends_the_packets_to_the_cpus_to_which_they_went() {
    let mut last = None;
    for _ in 0..TRIES {
        let Some(flow_aware) = predict() else { return };
        // Whatever others do, there is a reason for each packet, and few need one.
        assert!(!flow_aware.differ.contains_key(&Why::Unexplained), "{flow_aware}");
        assert!(flow_aware.agreement() >= 0.9, "{flow_aware}");
        if flow_aware.agreement() >= 0.99 {
            return;
        }
        last = Some(flow_aware);
    }
    panic!("never 99 %; in the end {}", last.unwrap());
}

/// Runs live, replays that, and compares; `None`, and says why, where that cannot be.
fn predict() -> Option<Judged> {
    let test = "a_replay_of_a_live_run_sends_the_packets_to_the_cpus_to_which_they_went";
    // A replay knows no ports.
    let told = |settings: &mut Settings| {
        (settings.hasher, settings.ports) = (Some(hasher(SEED)), false);
        settings.flow_ports = traffic::OPEN_PORTS.parse().unwrap();
    };
    let rig = rig(test, 2, told)?;
    let ids = rig.cpus.last().unwrap().index() + 1;
    if ids > tap::ByCpu::MOST {
        eprintln!("skipped {test}: more than {} CPUs cannot be told apart", tap::ByCpu::MOST);
        return None;
    }
    let on_link = tap::on_link(&rig.pair);
    let by_cpu = tap::ByCpu::open(&rig.pair, ids);
    let strangers = traffic::for_strangers(&rig.pair);
    let groups = vec![
        Group { flows: traffic::udp(&rig.pair, false, 8), stay: Stay::Moves(75) },
        Group { flows: traffic::udp(&rig.pair, true, 4), stay: Stay::On(1) },
        Group { flows: traffic::open(&rig.pair, 4), stay: Stay::Moves(90) },
        Group { flows: traffic::tcp(&rig.pair, 6), stay: Stay::Moves(120) },
        Group { flows: traffic::tcp(&rig.pair, 4), stay: Stay::Anywhere },
    ];
    let consumers = traffic::run(&rig.pair, groups, &rig.cpus, ROUNDS, &strangers);
    let settings = rig.attachment.settings().clone();
    let port = strangers.local_addr().unwrap().port();
    // The packets that end the connections are on their way to nobody.
    std::thread::sleep(std::time::Duration::from_millis(100));

    let mut packets = on_link.drain();
    packets.sort_by_key(|seen| seen.ns);
    let live = judge::live(&packets, by_cpu.drain());
    judge::check_with_sockets(&packets, &live, &consumers);

    let told = replay(&packets, &host(&settings), &scenario(&consumers, port, packets[0].ns));
    let flow_aware = judge::judge(&packets, &live, &told[&PolicyKind::FlowAware], port);
    let by_hash = judge::judge(&packets, &live, &told[&PolicyKind::Rps], port);
    let counters = rig.attachment.counters().unwrap();
    let reasons = Reason::ALL.map(|reason| (reason.name(), counters.reason(reason)));
    eprintln!("live: {reasons:?}");
    eprintln!("flow-aware: {flow_aware}");
    eprintln!("by hash alone, for comparison: {by_hash}");
    assert_fair(&flow_aware, &by_hash);
    Some(flow_aware)
}

/// What makes the comparison one: enough packets, on more than one CPU, that something else than their
/// hash decides on.
fn assert_fair(flow_aware: &Judged, by_hash: &Judged) {
    // Every round asks over 26 flows.
    assert!(flow_aware.compared() >= ROUNDS * 26, "{flow_aware}");
    assert_eq!(flow_aware.not_seen, 0, "{flow_aware}");
    let most = flow_aware.live_on.values().max().unwrap();
    assert!(*most < flow_aware.compared() * 9 / 10, "{flow_aware}");
    assert!(by_hash.agreement() < 0.9, "{by_hash}");
}

/// Describes the host of the live run.
fn host(settings: &Settings) -> Host {
    let cpus = settings.cpus.list();
    let first = settings.cpus.iter().next().unwrap();
    let text = format!(
        "cpus = \"{cpus}\"\n[tables]\nflow_entries = {}\n[[queue]]\nirq_cpu = {first}\ncpus = \
         \"{cpus}\"\n",
        settings.table_entries
    );
    Host::from_toml("host.toml", &text).unwrap()
}

/// Describes the readers of the live run, as they told it.
fn scenario(consumers: &[Consumer], strangers: u16, start_ns: u64) -> String {
    let mut text = String::new();
    for consumer in consumers {
        let mut at = consumer.words[0];
        let protocol = if consumer.tcp { "tcp" } else { "udp" };
        let connected = match consumer {
            Consumer { tcp: true, .. } => "",
            Consumer { connected: true, .. } => "connected = true\n",
            // That such a port carries flows is said as for the live run.
            Consumer { connected: false, .. } => "connected = false\n",
        };
        writeln!(
            text,
            "[[consumer]]\nprotocol = \"{protocol}\"\nlocal = \":{}\"\nremote = \":{}\"\n\
             {connected}cpus = \"{}\"",
            consumer.local, consumer.remote, at.cpu
        )
        .unwrap();
        for word in &consumer.words {
            if word.cpu != at.cpu {
                // It went some time after its last word on the old CPU.
                let ns = (at.ns + 1).saturating_sub(start_ns);
                writeln!(text, "[[consumer.migrate]]\nat = \"{ns}ns\"\ncpus = \"{}\"", word.cpu)
                    .unwrap();
            }
            at = *word;
        }
    }
    writeln!(
        text,
        "[[consumer]]\nprotocol = \"udp\"\nlocal = \":{strangers}\"\nconnected = false\nport = \
         \"requests\""
    )
    .unwrap();
    text
}

/// Replays the packets, and returns the decision on each that has one, by its number from 1.
fn replay(
    packets: &[Seen],
    host: &Host,
    scenario: &str,
) -> BTreeMap<PolicyKind, HashMap<u64, Chosen>> {
    let mut file = PcapWriter::new(Vec::new(), LinkType::ETHERNET).unwrap();
    for seen in packets {
        file.write(seen.ns, seen.frame.len() as u32, &seen.frame).unwrap();
    }
    let file = file.finish().unwrap();
    let told: Arc<Mutex<BTreeMap<PolicyKind, HashMap<u64, Chosen>>>> = Arc::default();
    let into = Arc::clone(&told);
    let observer = Observer::new(move |policy, chosen| {
        let mut told = into.lock().unwrap();
        let told = told.entry(policy).or_default();
        told.extend(chosen.iter().map(|one| (one.number, *one)));
    });
    let local = [Pair::SINK_V4.to_string(), Pair::SINK_V6.to_string()];
    let local = local.iter().map(|address| address.parse().unwrap()).collect();
    let options = ReplayOptions {
        policies: vec![PolicyKind::FlowAware, PolicyKind::Rps],
        seed: SEED,
        // As the program reads frames.
        vlan: VlanHash::Ignore,
        ignore_flow_label: true,
        local: LocalRule::Prefixes(local),
        flow_ports: traffic::OPEN_PORTS.parse().unwrap(),
        scenario: Scenario::from_toml("consumers.toml", scenario, host).unwrap(),
        observer: Some(observer),
        ..ReplayOptions::default()
    };
    let mut captures = Captures::from_reader(
        "live",
        Box::new(std::io::Cursor::new(file)),
        &CaptureOptions::default(),
    )
    .unwrap();
    let replay = Replay::new(host.clone(), options).unwrap();
    let go_on = &mut |_: &_| std::ops::ControlFlow::Continue(());
    let report = replay.run(&mut captures, &["live".into()], go_on).unwrap();
    assert!(report.input.notes.is_empty(), "{:?}", report.input.notes);
    assert_eq!(report.input.packets_read, packets.len() as u64);
    std::mem::take(&mut *told.lock().unwrap())
}

/// Returns the CPU and nothing else, for messages.
fn cpus_of(live: &[Option<CpuId>]) -> BTreeMap<u16, u64> {
    let mut cpus = BTreeMap::new();
    for cpu in live.iter().flatten() {
        *cpus.entry(cpu.0).or_default() += 1;
    }
    cpus
}
