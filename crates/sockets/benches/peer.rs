//! The whole receive of a packet as bytes, beside `smoltcp`: parsing with checksums, the socket among
//! N, its queue, and the read.
//!
//! ```text
//! cargo bench -p rxsteer-sockets --bench peer
//! ```
//! N sockets on as many ports, packets to random ones; `smoltcp` asks one after the other whether the
//! packet is its own. Both verify header and UDP checksum and copy the payload once. Nanoseconds of CPU
//! time a packet, medians of turns.
#![expect(clippy::print_stdout, reason = "a bench that prints what it measures")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rxsteer_core::CpuId;
use rxsteer_sockets::datagram::{Rules, check_packet};
use rxsteer_sockets::queue::{BufferPool, Datagram, Limits, QueueContext, ReceiveQueue};
use rxsteer_sockets::{Cast, Config, DeviceId, Family, Namespace, Owner, Packet};
use smoltcp::iface::{Interface, PollIngressSingleResult, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::udp;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const FIRST_PORT: u16 = 2000;

/// An IPv4 packet with a datagram of 22 bytes of payload, checksums right.
fn packet(port: u16) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0];
    bytes.extend(CLIENT.octets());
    bytes.extend(SERVER.octets());
    let header = checksum(&bytes, 0);
    bytes[10..12].copy_from_slice(&header.to_be_bytes());
    bytes.extend([0x1b, 0x58]);
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 30, 0, 0]);
    bytes.extend(*b"a datagram of 22 bytes");
    let pseudo =
        bytes[12..20].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum::<u32>();
    let udp = checksum(&bytes[20..], pseudo + 17 + 30);
    bytes[26..28].copy_from_slice(&udp.to_be_bytes());
    bytes
}

/// The checksum of RFC 1071 over an even number of bytes.
fn checksum(bytes: &[u8], start: u32) -> u16 {
    let mut sum =
        bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum::<u32>() + start;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !sum as u16
}

/// A device that has one packet to give.
#[derive(Default)]
struct Feed {
    packet: Vec<u8>,
    full: bool,
}

struct Rx<'a>(&'a [u8]);

impl RxToken for Rx<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

struct Nothing;

impl TxToken for Nothing {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        write(&mut vec![0; len])
    }
}

impl Device for Feed {
    type RxToken<'a> = Rx<'a>;
    type TxToken<'a> = Nothing;

    fn receive(&mut self, _: Instant) -> Option<(Rx<'_>, Nothing)> {
        std::mem::take(&mut self.full).then_some((Rx(&self.packet), Nothing))
    }

    fn transmit(&mut self, _: Instant) -> Option<Nothing> {
        None
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1500;
        capabilities
    }
}

fn ports(count: u16) -> impl FnMut() -> u16 {
    let mut state = 1_u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        FIRST_PORT + ((state >> 33) % u64::from(count)) as u16
    }
}

/// Returns the nanoseconds for which this thread had a CPU.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Runs both in turns and returns the medians.
fn medians(times: u32, cases: &mut [&mut dyn FnMut()]) -> Vec<f64> {
    let mut turns = vec![Vec::new(); cases.len()];
    for turn in 0..9 {
        for place in 0..cases.len() {
            let at = (place + turn) % cases.len();
            let begin = cpu_ns();
            (0..times).for_each(|_| cases[at]());
            turns[at].push((cpu_ns() - begin) as f64 / f64::from(times));
        }
    }
    turns.iter_mut().for_each(|values| values.sort_by(f64::total_cmp));
    turns.iter().map(|values| values[values.len() / 2]).collect()
}

fn main() {
    println!("sockets     rxsteer     smoltcp  times");
    for count in [1, 10, 100, 1000, 10_000_u16] {
        let packets: Vec<Vec<u8>> = (0..count).map(|n| packet(FIRST_PORT + n)).collect();
        let of = |port: u16| &packets[usize::from(port - FIRST_PORT)];

        let ns = Namespace::new(&Config::default());
        let context = Arc::new(QueueContext::default());
        let pool = BufferPool::new(1 << 20, 1 << 16);
        let queues: Vec<_> = (0..count)
            .map(|n| {
                let socket = ns.open(Family::V4, Owner(0)).expect("below the limit");
                ns.bind(socket, SERVER.into(), FIRST_PORT + n).expect("a free port");
                ReceiveQueue::new(&context, Limits::default())
            })
            .collect();
        let receive = |bytes: &[u8]| {
            let checked = check_packet(bytes, Rules::default()).expect("a right packet");
            let (src, dst) = (IpAddr::V4(CLIENT), IpAddr::V4(SERVER));
            let packet = Packet {
                src,
                src_port: checked.udp.src_port,
                dst,
                dst_port: checked.udp.dst_port,
                device: DeviceId(1),
                cpu: CpuId(0),
                cast: Cast::Unicast,
                from_this_host: false,
                payload: checked.udp.payload,
            };
            let found = ns.lookup(&packet).expect("a socket takes it");
            let queue = &queues[found.socket.index as usize];
            let peer = SocketAddr::new(src, packet.src_port);
            let payload = pool.copy(packet.payload).expect("room");
            queue.push(Datagram::new(peer, dst, payload)).expect("room");
            queue.try_recv().expect("one waits").payload.len()
        };
        let mut port = ports(count);
        let mut rxsteer = || assert_eq!(receive(black_box(of(port()))), 22);

        let mut feed = Feed::default();
        let config = smoltcp::iface::Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut feed, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            let own = IpCidr::new(IpAddress::Ipv4(SERVER), 24);
            addresses.push(own).expect("room for an address");
        });
        let mut sockets = SocketSet::new(Vec::new());
        let handles: Vec<_> = (0..count)
            .map(|n| {
                let buffer =
                    || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 2], vec![0; 64]);
                let mut socket = udp::Socket::new(buffer(), buffer());
                socket.bind(FIRST_PORT + n).expect("a port");
                sockets.add(socket)
            })
            .collect();
        let mut port = ports(count);
        let mut smoltcp = || {
            let port = port();
            feed.packet.clone_from(of(port));
            feed.full = true;
            let polled = interface.poll_ingress_single(Instant::ZERO, &mut feed, &mut sockets);
            assert!(matches!(polled, PollIngressSingleResult::SocketStateChanged));
            let handle = handles[usize::from(port - FIRST_PORT)];
            let (payload, _) =
                sockets.get_mut::<udp::Socket<'_>>(handle).recv().expect("one waits");
            assert_eq!(black_box(payload).len(), 22);
        };
        let times = if count > 1000 { 3_000 } else { 100_000 };
        let ns = medians(times, &mut [&mut rxsteer, &mut smoltcp]);
        println!("{count:7} {:11.1} {:11.1} {:6.2}", ns[0], ns[1], ns[1] / ns[0]);
    }
}
