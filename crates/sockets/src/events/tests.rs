use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use rxsteer_core::CpuId;
use rxsteer_core::dissect::{Dissected, Options, Start, dissect};
use rxsteer_core::hash::SoftHasher;
use rxsteer_core::steer::{
    Aware, Class, KernelVersion, LinuxRules, PolicyKind, SocketFlow, Steering, Tables,
};
use rxsteer_core::table::{Bucket, Epoch, FlowTable, RepeatFilter};

use super::*;
use crate::{Config, Family, Namespace, Owner, SocketError};

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[derive(Debug, Default)]
struct Log(Mutex<Vec<(bool, SocketId, FlowKey)>>);

impl FlowEvents for Log {
    fn connected(&self, socket: SocketId, flow: &FlowKey) {
        self.0.lock().unwrap().push((true, socket, *flow));
    }

    fn withdrawn(&self, socket: SocketId, flow: &FlowKey) {
        self.0.lock().unwrap().push((false, socket, *flow));
    }
}

impl Log {
    fn ports(&self) -> Vec<(bool, u16)> {
        self.0.lock().unwrap().drain(..).map(|(made, _, flow)| (made, flow.src_port)).collect()
    }
}

fn namespace() -> (Arc<Log>, Namespace) {
    let log = Arc::new(Log::default());
    let events: Arc<dyn FlowEvents> = Arc::clone(&log) as _;
    (log, Namespace::new(&Config { events: Some(events), ..Config::default() }))
}

#[test]
fn connect_makes_a_flow_and_disconnect_withdraws_exactly_it() -> Result<(), SocketError> {
    let (log, ns) = namespace();
    let (remote, source) = (address("198.51.100.1"), address("192.0.2.1"));
    let socket = ns.open(Family::V4, Owner(0))?;
    ns.bind(socket, address("0.0.0.0"), 53)?;
    assert_eq!(log.ports(), []);
    ns.connect(socket, remote, 7000, source)?;
    assert_eq!(log.ports(), [(true, 7000)]);
    // Once more to the same end says nothing new; to another one replaces the flow.
    ns.connect(socket, remote, 7000, source)?;
    assert_eq!(log.ports(), []);
    ns.connect(socket, remote, 7001, source)?;
    assert_eq!(log.ports(), [(false, 7000), (true, 7001)]);
    ns.disconnect(socket)?;
    assert_eq!(log.ports(), [(false, 7001)]);
    ns.disconnect(socket)?;
    ns.close(socket)?;
    assert_eq!(log.ports(), []);

    let socket = ns.open(Family::V4, Owner(0))?;
    ns.connect(socket, remote, 7002, source)?;
    ns.close(socket)?;
    assert_eq!(log.ports(), [(true, 7002), (false, 7002)]);
    Ok(())
}

#[test]
fn the_flow_is_the_key_of_the_packets_that_the_socket_receives() -> Result<(), SocketError> {
    let (log, ns) = namespace();
    let v4 = ns.open(Family::V6, Owner(0))?;
    ns.bind(v4, address("::"), 4433)?;
    ns.connect(v4, address("::ffff:198.51.100.1"), 7000, address("192.0.2.1"))?;
    let v6 = ns.open(Family::V6, Owner(0))?;
    ns.bind(v6, address("2001:db8::1"), 4433)?;
    ns.connect(v6, address("2001:db8:1::2"), 7001, address("::"))?;

    let mut ip4 = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 198, 51, 100, 1, 192, 0, 2, 1];
    ip4.extend([0x1b, 0x58, 0x11, 0x51, 0, 8, 0, 0]);
    let mut ip6 = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
    ip6.extend("2001:db8:1::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
    ip6.extend("2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
    ip6.extend([0x1b, 0x59, 0x11, 0x51, 0, 8, 0, 0]);
    let told: Vec<FlowKey> = log.0.lock().unwrap().iter().map(|(.., flow)| *flow).collect();
    for (packet, (ethertype, told)) in [ip4, ip6].iter().zip([0x0800_u16, 0x86dd].iter().zip(told))
    {
        let mut frame = vec![0; 12];
        frame.extend(ethertype.to_be_bytes());
        frame.extend(packet);
        let mut seen = Dissected::default();
        dissect(frame.as_slice(), Start::Ethernet, &Options::KERNEL, &mut seen).unwrap();
        assert_eq!(seen.key, told);
    }
    Ok(())
}

/// The steering side as the documentation of [`FlowEvents`] proposes it.
#[derive(Debug)]
struct Steered {
    steering: Steering<Vec<Bucket>, Vec<std::sync::atomic::AtomicU32>>,
    hasher: SoftHasher,
    flows: Mutex<BTreeMap<SocketId, SocketFlow>>,
}

impl FlowEvents for Steered {
    fn connected(&self, socket: SocketId, flow: &FlowKey) {
        let hash = self.hasher.hash_symmetric(flow);
        let mut own = SocketFlow::new(hash, Class::Udp);
        self.steering.record(&mut own, hash, CpuId(3), Epoch(0));
        self.flows.lock().unwrap().insert(socket, own);
    }

    fn withdrawn(&self, socket: SocketId, _: &FlowKey) {
        let mut own = self.flows.lock().unwrap().remove(&socket).expect("it was told before");
        self.steering.disconnect(&mut own);
    }
}

#[test]
fn the_flow_table_holds_the_flows_of_connected_sockets_and_no_others() -> Result<(), SocketError> {
    let table = || FlowTable::new((0..16).map(|_| Bucket::empty()).collect::<Vec<_>>()).unwrap();
    let words = (0..64).map(|_| Default::default()).collect::<Vec<_>>();
    let tables = Tables::Flows(table(), table(), RepeatFilter::new(words).unwrap());
    let steered = Arc::new(Steered {
        steering: Steering::new(
            PolicyKind::FlowAware,
            LinuxRules::of(KernelVersion::NEWEST),
            Aware::default(),
            tables,
        ),
        hasher: SoftHasher { k0: 1, k1: 2 },
        flows: Mutex::default(),
    });
    let events: Arc<dyn FlowEvents> = Arc::clone(&steered) as _;
    let ns = Namespace::new(&Config { events: Some(events), ..Config::default() });
    let Tables::Flows(_, udp, _) = steered.steering.tables() else { panic!("tables of flows") };
    let wanted = |port: u16| {
        let key = flow_key(&Tuple {
            local: 0xffff_c000_0201,
            remote: 0xffff_c633_6401,
            local_port: 53,
            remote_port: port,
        });
        let entry = udp.lookup(steered.hasher.hash_symmetric(&key), Epoch(0)).entry();
        entry.map(|(entry, _)| entry.wanted_cpu())
    };

    let (remote, source) = (address("198.51.100.1"), address("192.0.2.1"));
    let mut sockets = Vec::new();
    for port in [7000, 7001] {
        let socket = ns.open(Family::V4, Owner(0))?;
        ns.set(socket, crate::SocketOption::ReusePort(true))?;
        ns.bind(socket, address("0.0.0.0"), 53)?;
        assert_eq!(wanted(port), None);
        ns.connect(socket, remote, port, source)?;
        assert_eq!(wanted(port), Some(CpuId(3)));
        sockets.push(socket);
    }
    ns.disconnect(sockets[0])?;
    assert_eq!((wanted(7000), wanted(7001)), (None, Some(CpuId(3))));
    ns.close(sockets[1])?;
    assert_eq!((wanted(7000), wanted(7001)), (None, None));
    Ok(())
}
