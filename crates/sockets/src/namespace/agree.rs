//! The tables against the rules by linear scan, over generated histories.
//!
//! The world is small, so that sockets meet: two ports, few addresses, few remote ends. After each
//! operation its result, and for each packet all receivers, must be the same.

use std::collections::BTreeSet;
use std::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rxsteer_core::CpuId;

use crate::model::Model;
use crate::{
    Cast, Config, DeviceId, Explanation, Family, Faults, Found, Judged, KernelRelease, Namespace,
    Owner, Packet, Profile, Score, SocketError, SocketId, SocketOption, SourceFilter, Stage, Why,
};

const LOCAL4: [&str; 5] = ["0.0.0.0", "192.0.2.1", "192.0.2.2", "239.1.1.1", "127.0.0.6"];
const LOCAL6: [&str; 7] = [
    "::",
    "::ffff:0.0.0.0",
    "::ffff:192.0.2.1",
    "::ffff:192.0.2.2",
    "2001:db8::1",
    "2001:db8::2",
    "ff05::1",
];
const REMOTE: [&str; 5] =
    ["198.51.100.1", "198.51.100.2", "2001:db8:1::1", "2001:db8:1::2", "::ffff:198.51.100.1"];
const DESTINATION: [&str; 10] = [
    "192.0.2.1",
    "192.0.2.2",
    "192.0.2.3",
    "127.0.0.6",
    "192.0.2.255",
    "239.1.1.1",
    "2001:db8::1",
    "2001:db8::2",
    "2001:db8::3",
    "ff05::1",
];
const REMOTE_PORTS: [u16; 2] = [7000, 7001];

#[derive(Clone, Debug)]
enum Op {
    Open {
        v6: bool,
        owner: u32,
        options: Vec<SocketOption>,
        bind: Option<(usize, u16)>,
    },
    Connect {
        socket: usize,
        remote: usize,
        port: usize,
        source: usize,
    },
    Disconnect(usize),
    Close(usize),
    Set(usize, SocketOption),
    Packet {
        src: usize,
        src_port: usize,
        dst: usize,
        dst_port: u16,
        device: u32,
        cpu: u16,
        own: bool,
    },
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn device() -> impl Strategy<Value = Option<DeviceId>> {
    prop_oneof![4 => Just(None), 1 => (1..3_u32).prop_map(|device| Some(DeviceId(device)))]
}

fn cpu() -> impl Strategy<Value = Option<CpuId>> {
    prop_oneof![Just(None), (0..2_u16).prop_map(|cpu| Some(CpuId(cpu)))]
}

fn filter() -> impl Strategy<Value = SourceFilter> {
    let sources = vec(prop::sample::select(&REMOTE[..]).prop_map(address), 0..3);
    (any::<bool>(), sources).prop_map(|(only, sources)| {
        if only { SourceFilter::Only(sources) } else { SourceFilter::Except(sources) }
    })
}

fn option() -> impl Strategy<Value = SocketOption> {
    let group = prop::sample::select(&["239.1.1.1", "ff05::1"][..]).prop_map(address);
    prop_oneof![
        3 => device().prop_map(SocketOption::Device),
        3 => prop::bool::weighted(0.8).prop_map(SocketOption::ReuseAddr),
        5 => prop::bool::weighted(0.9).prop_map(SocketOption::ReusePort),
        2 => cpu().prop_map(SocketOption::IncomingCpu),
        1 => any::<bool>().prop_map(SocketOption::V6Only),
        1 => any::<bool>().prop_map(SocketOption::MulticastAll),
        1 => (group.clone(), 1..3_u32, filter())
            .prop_map(|(group, device, filter)| SocketOption::Join(group, DeviceId(device), filter)),
        1 => (group, 1..3_u32).prop_map(|(group, d)| SocketOption::Leave(group, DeviceId(d))),
        1 => any::<bool>().prop_map(SocketOption::Encapsulation),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let port = prop_oneof![4 => Just(5000_u16), 2 => Just(5001), 1 => Just(0)];
    let bind = prop::option::weighted(0.9, (0..64_usize, port));
    let owner = prop_oneof![5 => Just(0_u32), 1 => Just(1)];
    prop_oneof![
        6 => (any::<bool>(), owner, vec(option(), 0..4), bind)
            .prop_map(|(v6, owner, options, bind)| Op::Open { v6, owner, options, bind }),
        4 => (0..64_usize, 0..64_usize, 0..2_usize, 0..64_usize)
            .prop_map(|(socket, remote, port, source)| Op::Connect { socket, remote, port, source }),
        2 => (0..64_usize).prop_map(Op::Disconnect),
        2 => (0..64_usize).prop_map(Op::Close),
        3 => (0..64_usize, option()).prop_map(|(socket, option)| Op::Set(socket, option)),
        10 => (0..64_usize, 0..2_usize, 0..64_usize, 5000..5002_u16, 1..3_u32, 0..2_u16, any::<bool>())
            .prop_map(|(src, src_port, dst, dst_port, device, cpu, own)| {
                Op::Packet { src, src_port, dst, dst_port, device, cpu, own }
            }),
    ]
}

/// The tables and the model side by side; sockets are numbered as they were opened.
struct Pair {
    tables: Namespace,
    model: Model,
    ids: Vec<(SocketId, SocketId)>,
    seen: BTreeSet<Stage>,
}

impl Pair {
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Open { v6, owner, options, bind } => {
                let family = if *v6 { Family::V6 } else { Family::V4 };
                let ids = (
                    self.tables.open(family, Owner(*owner)).unwrap(),
                    self.model.open(family, Owner(*owner)).unwrap(),
                );
                self.ids.push(ids);
                // One automatic port, so that both take the same.
                let ports = SocketOption::PortRange(5001, 5001);
                for option in options.iter().chain([&ports]) {
                    self.set(ids, option);
                }
                if let Some((local, port)) = bind {
                    let all: &[&str] = if *v6 { &LOCAL6 } else { &LOCAL4 };
                    // A stranger to the family now and then.
                    let local = if *local == 63 { "2001:db8::1" } else { all[local % all.len()] };
                    let ours = self.tables.bind(ids.0, address(local), *port);
                    assert_eq!(ours, self.model.bind(ids.1, address(local), *port));
                }
                self.compare(ids);
            }
            Op::Connect { socket, remote, port, source } => {
                let Some(ids) = self.pick(*socket) else { return };
                let remote = address(REMOTE[remote % REMOTE.len()]);
                // Routing selects a source of the family of the remote address.
                let v4 = remote.to_canonical().is_ipv4();
                let sources = if v4 { &LOCAL4[1..3] } else { &LOCAL6[4..6] };
                let (source, port) = (address(sources[source % 2]), REMOTE_PORTS[*port]);
                let ours = self.tables.connect(ids.0, remote, port, source);
                assert_eq!(ours, self.model.connect(ids.1, remote, port, source));
                self.compare(ids);
            }
            Op::Disconnect(socket) => {
                let Some(ids) = self.pick(*socket) else { return };
                assert_eq!(self.tables.disconnect(ids.0), self.model.disconnect(ids.1));
                self.compare(ids);
            }
            Op::Close(socket) => {
                let Some(ids) = self.pick(*socket) else { return };
                assert_eq!(self.tables.close(ids.0), self.model.close(ids.1));
                assert_eq!(self.tables.close(ids.0), Err(SocketError::Closed));
                self.ids.retain(|other| *other != ids);
            }
            Op::Set(socket, option) => {
                let Some(ids) = self.pick(*socket) else { return };
                self.set(ids, option);
            }
            Op::Packet { src, src_port, dst, dst_port, device, cpu, own } => {
                let dst = address(DESTINATION[dst % DESTINATION.len()]);
                let family: &[&str] = if dst.is_ipv4() { &REMOTE[..2] } else { &REMOTE[2..4] };
                let cast = match dst {
                    dst if dst.is_multicast() => Cast::Multicast,
                    dst if dst == address("192.0.2.255") => Cast::Broadcast,
                    _ => Cast::Unicast,
                };
                self.packet(&Packet {
                    src: address(family[src % 2]),
                    src_port: REMOTE_PORTS[*src_port],
                    dst,
                    dst_port: *dst_port,
                    device: DeviceId(*device),
                    cpu: CpuId(*cpu),
                    cast,
                    from_this_host: *own,
                    payload: &[],
                });
            }
        }
    }

    fn set(&mut self, ids: (SocketId, SocketId), option: &SocketOption) {
        let ours = self.tables.set(ids.0, option.clone());
        assert_eq!(ours, self.model.set(ids.1, option.clone()));
    }

    fn pick(&self, socket: usize) -> Option<(SocketId, SocketId)> {
        self.ids.get(socket % self.ids.len().max(1)).copied()
    }

    fn compare(&self, ids: (SocketId, SocketId)) {
        assert_eq!(self.tables.local(ids.0), self.model.local(ids.1));
    }

    fn packet(&mut self, packet: &Packet<'_>) {
        let mut once = None;
        self.tables.lookup_burst(std::slice::from_ref(packet), std::slice::from_mut(&mut once));
        assert_eq!(self.tables.lookup(packet), once);
        let mut ours = Vec::new();
        let count = self.tables.deliver(packet, |found| ours.push(found));
        assert_eq!(count, ours.len());
        if packet.cast == Cast::Unicast {
            assert_eq!(once.as_slice(), ours);
        }
        let explained = self.tables.explain(packet);
        assert_eq!(explained.found.len(), count);
        consistent(&explained, packet);
        let mut theirs = Vec::new();
        self.model.deliver(packet, |found| theirs.push(found));
        self.seen.extend(ours.iter().map(|found| found.stage));
        let number = |found: &Found, model: bool| {
            let mut ids = self.ids.iter();
            let at = ids.position(|ids| found.socket == if model { ids.1 } else { ids.0 });
            (at.expect("an open socket"), found.stage, found.connected, found.encapsulation)
        };
        let mut ours: Vec<_> = ours.iter().map(|found| number(found, false)).collect();
        let mut theirs: Vec<_> = theirs.iter().map(|found| number(found, true)).collect();
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(ours, theirs, "{packet:?}");
    }
}

/// What an explanation says must bear out what the look-up did.
fn consistent(explained: &Explanation, packet: &Packet<'_>) {
    let of = |socket: SocketId| {
        explained.sockets.iter().find(|judged| judged.socket == socket).expect("on the port")
    };
    let sum = |judged: &Judged| judged.score.ok().map(Score::total);
    if packet.cast != Cast::Unicast {
        return;
    }
    match (explained.found.first(), &explained.why) {
        (None, why) => assert_eq!(*why, Why::Nobody),
        (Some(found), Why::FourTuple { .. }) => {
            let judged = of(found.socket);
            let exactly = packet.src.is_ipv4() || judged.remote.is_some();
            assert!(judged.filed && exactly && judged.score.is_ok(), "{explained}");
        }
        (Some(found), Why::Score { ties }) => {
            // Nobody else of its list that is not left out by a group scores higher.
            let (own, place) = (sum(of(found.socket)), of(found.socket).place);
            assert!(own.is_some(), "{explained}");
            assert!(ties.iter().all(|tie| sum(of(*tie)) == own), "{explained}");
            let mut others = explained
                .sockets
                .iter()
                .filter(|judged| judged.place == place && judged.group.is_none() && !judged.filed);
            assert!(others.all(|other| sum(other) <= own), "{explained}");
        }
        (Some(found), Why::Group { members, .. }) => {
            let group = of(found.socket).group;
            assert!(group.is_some(), "{explained}");
            let in_group = explained.sockets.iter().filter(|judged| judged.group == group);
            assert_eq!(in_group.count(), *members, "{explained}");
        }
        (Some(found), Why::EarlyDemux) => assert!(of(found.socket).score.is_ok(), "{explained}"),
        (Some(_), why) => panic!("{why:?} of a packet that was received: {explained}"),
    }
}

/// Plays a history and returns the stages that found a socket.
fn agree(profile: Profile, key: u64, ops: &[Op]) -> BTreeSet<Stage> {
    let config = Config { profile, key: (key, 1), connected_capacity: 1, ..Config::default() };
    let mut pair = Pair {
        tables: Namespace::new(&config),
        model: Model::new(&config, cfg!(feature = "hash4")),
        ids: Vec::new(),
        seen: BTreeSet::new(),
    };
    for op in ops {
        pair.apply(op);
    }
    pair.seen
}

proptest! {
    #[test]
    fn tables_and_linear_scan_agree_under_the_rules_of_linux(
        key: u64,
        ops in vec(op(), 1..80),
    ) {
        agree(Profile::Linux, key, &ops);
    }

    #[test]
    fn tables_and_linear_scan_agree_under_our_rules(key: u64, ops in vec(op(), 1..80)) {
        agree(Profile::Rxsteer, key, &ops);
    }

    #[test]
    fn tables_and_linear_scan_agree_under_the_rules_of_older_kernels(
        release in prop::sample::select(&[(5, 2, 16), (6, 1, 0), (6, 12, 0)][..]),
        key: u64,
        ops in vec(op(), 1..80),
    ) {
        let release = KernelRelease(release.0, release.1, release.2);
        agree(Profile::LinuxOf(release), key, &ops);
    }

    #[test]
    fn tables_and_linear_scan_agree_with_any_of_the_faults(
        faults in any::<[bool; 5]>(),
        key: u64,
        ops in vec(op(), 1..80),
    ) {
        let [early_demux, stale_hash4, stale_remote6, placeholder4, left_group] = faults;
        let faults = Faults { early_demux, stale_hash4, stale_remote6, placeholder4, left_group };
        agree(Profile::Keeping(faults), key, &ops);
    }
}

#[test]
fn generated_histories_reach_every_stage() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for key in 0..300 {
        let ops = vec(op(), 80).new_tree(&mut runner).unwrap().current();
        seen.extend(agree(Profile::Linux, key, &ops));
    }
    let mut all = BTreeSet::from([
        Stage::EarlyDemux,
        Stage::Address,
        Stage::Wildcard,
        Stage::Port,
        Stage::Flood,
    ]);
    if cfg!(feature = "hash4") {
        all.insert(Stage::FourTuple);
    }
    assert_eq!(seen, all);
}
