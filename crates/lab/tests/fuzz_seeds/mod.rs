//! The inputs that fuzzing starts from, all of our own making: `fuzz/seeds/TARGET/NAME`.

use rxsteer_lab::capture::{Direction, LinkType, Packet, PcapWriter, PcapngWriter};
use rxsteer_lab::generate::{Layer, Tcp, TcpFlags, V4, V6, packet};

use crate::capture_support::{
    Big, Little, Order, block, interface, option, packet as enhanced, pcap_header, record, section,
};

/// A name and its bytes.
pub(crate) type Seed = (String, Vec<u8>);

/// Captures of every format, with every block and option that the reader looks into.
pub(crate) fn captures() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add = |name: &str, bytes: Vec<u8>| seeds.push((name.to_owned(), bytes));
    let frame = udp();
    for (order, end) in [(Little, "le"), (Big, "be")] {
        for (magic, unit) in [(0xa1b2_c3d4, "us"), (0xa1b2_3c4d, "ns")] {
            let records = [
                record(order, 1, 2, 60, &frame),
                record(order, 0, 3, 4, &[]),
                record(order, 2, 999, 1500, &frame[..20]),
            ];
            let header = pcap_header(order, magic, 65_535, 1);
            add(&format!("pcap-{unit}-{end}"), [header, records.concat()].concat());
        }
        let mut modified = pcap_header(order, 0xa1b2_cd34, 96, 1);
        let plain = record(order, 1, 2, 60, &[7; 5]);
        modified.extend([&plain[..16], &[0, 0, 0, 1, 8, 0, 4, 0], &plain[16..]].concat());
        add(&format!("pcap-modified-{end}"), modified);
        add(&format!("pcapng-{end}"), pcapng(order));
    }
    for minor in [2, 3] {
        let mut old = pcap_header(Little, 0xa1b2_c3d4, 96, 1);
        old[6] = minor;
        old.extend(record(Little, 1, 2, 4, &[1, 2, 3, 4]));
        add(&format!("pcap-2.{minor}"), old);
    }
    add("pcapng-sections", [pcapng(Big), pcapng(Little)].concat());
    for link in [0u32, 12, 101, 108, 113, 127, 228, 229, 276] {
        let mut bytes = pcap_header(Little, 0xa1b2_c3d4, 96, link);
        bytes.extend(record(Little, 1, 2, 40, &[0, 0, 0, 2, 0x45, 0, 0, 20]));
        bytes.extend(record(
            Little,
            1,
            3,
            40,
            &[[0, 4, 0, 1], [0; 4], [0; 4], [0, 0, 8, 0], [0x45; 4], [6; 4]].concat(),
        ));
        add(&format!("link-{link}"), bytes);
    }
    add("cut", pcapng(Little)[..200].to_vec());
    let plain = pcapng(Little);
    add("gzip", gzip(&plain));
    let (one, two) = plain.split_at(100);
    add("gzip-two-members", [gzip(one), gzip(two)].concat());
    add("gzip-cut", gzip(&plain)[..150].to_vec());
    add("zstd", zstd(&plain));
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9];
    add("zstd-two-frames", [&skippable[..], &zstd(one), &skippable, &zstd(two)].concat());
    seeds.extend(written());
    seeds
}

/// A section with every kind of block.
fn pcapng(order: Order) -> Vec<u8> {
    let clock = [
        option(order, 2, b"eth0"),
        option(order, 9, &[9]),
        option(order, 14, &order.b8(100)),
        option(order, 0, &[]),
    ];
    let extras = [
        option(order, 2, &order.b4(1)),
        option(order, 3, &[5, 1, 2, 3, 4]),
        option(order, 4, &order.b8(2)),
        option(order, 6, &order.b4(7)),
        option(order, 0, &[]),
    ];
    let mut old = enhanced(order, 0, 9, &[1; 15], &[]);
    old[..4].copy_from_slice(&order.b4(2));
    old[8..12].copy_from_slice(&[order.b2(0), order.b2(1)].concat());
    [
        section(order),
        interface(order, 1, 0, &clock.concat()),
        interface(order, 113, 64, &option(order, 9, &[0x80 | 10])),
        enhanced(order, 0, 1 << 32, &udp(), &extras.concat()),
        block(order, 3, &[&order.b4(60)[..], &[3; 60]].concat()),
        block(order, 4, &[0; 4]),
        enhanced(order, 1, 77, &[0, 4, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0], &[]),
        old,
        block(order, 5, &[0; 12]),
        block(order, 0x0bad, &[0; 5]),
    ]
    .concat()
}

/// Captures by the project's writers.
fn written() -> Vec<Seed> {
    let mut pcap = PcapWriter::new(Vec::new(), LinkType::ETHERNET).expect("into memory");
    let mut pcapng = PcapngWriter::new(Vec::new()).expect("into memory");
    let eth0 = pcapng.add_interface("eth0", LinkType::ETHERNET).expect("into memory");
    for (index, (_, seed)) in frames().into_iter().take(12).enumerate() {
        let (time, frame) = (1_000_000_007 * index as u64, &seed[4..]);
        pcap.write(time, 1500, frame).expect("into memory");
        let packet = Packet::new(time, LinkType::ETHERNET, frame);
        let packet = Packet { interface: eth0, direction: Direction::Inbound, ..packet };
        pcapng.write(&packet).expect("into memory");
    }
    vec![
        ("written-pcap".into(), pcap.finish().expect("into memory")),
        ("written-pcapng".into(), pcapng.finish().expect("into memory")),
    ]
}

/// A gzip member of one stored block (RFC 1952; RFC 1951, section 3.2.4).
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("a short seed");
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    out.extend(length.to_le_bytes());
    out.extend((!length).to_le_bytes());
    out.extend(bytes);
    out.extend(crc.sum().to_le_bytes());
    out.extend(u32::from(length).to_le_bytes());
    out
}

/// A zstd frame of one raw block and no checksum (RFC 8878, section 3.1.1).
fn zstd(bytes: &[u8]) -> Vec<u8> {
    // A window of 2^17 bytes; the block header is the length above a type of 0 and the last flag.
    let block = (bytes.len() as u32) << 3 | 1;
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3];
    out.extend(&block.to_le_bytes()[..3]);
    out.extend(bytes);
    out
}

const ETHERNET: Layer = Layer::Ethernet { back: false };

fn v4() -> Layer {
    Layer::V4(V4::new([192, 0, 2, 1].into(), [198, 51, 100, 7].into()))
}

fn v6() -> Layer {
    let v6 = |last| std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
    Layer::V6(V6::new(v6(1), v6(2)))
}

fn to_port(dst: u16) -> Layer {
    Layer::Udp { src: 40_000, dst, checksum: true }
}

fn udp() -> Vec<u8> {
    packet(&[ETHERNET, v4(), to_port(53)], &[0; 18])
}

/// Frames with every kind of header, each behind the bytes that choose start and options.
pub(crate) fn frames() -> Vec<Seed> {
    let flags = TcpFlags { ack: true, ..TcpFlags::default() };
    let tcp = Layer::Tcp(Tcp { src: 40_000, dst: 443, seq: 1, ack: 2, flags });
    let vlan = |vid| Layer::Vlan { tpid: 0x8100, vid };
    let fragment = |offset, more| {
        let v4 = V4::new([192, 0, 2, 1].into(), [198, 51, 100, 7].into());
        Layer::V4(V4 { fragment: Some((offset, more)), protocol: Some(17), ..v4 })
    };
    let fragment6 = |offset, more| Layer::Fragment6 { offset, more, id: 7, protocol: 17 };
    let stacks: Vec<(&str, Vec<Layer>)> = vec![
        ("udp4", vec![ETHERNET, v4(), to_port(53)]),
        ("tcp4", vec![ETHERNET, v4(), tcp]),
        ("udp6", vec![ETHERNET, v6(), to_port(53)]),
        ("tcp6", vec![ETHERNET, v6(), tcp]),
        ("extensions", vec![ETHERNET, v6(), Layer::HopByHop, Layer::DestinationOptions, tcp]),
        ("vlans", vec![ETHERNET, vlan(1), vlan(2), vlan(3), vlan(4), v4(), to_port(53)]),
        ("pppoe", vec![ETHERNET, Layer::Pppoe { session: 1 }, v4(), to_port(53)]),
        ("mpls", vec![ETHERNET, Layer::Mpls { label: 16 }, Layer::Mpls { label: 17 }, v4(), tcp]),
        ("first4", vec![ETHERNET, fragment(0, true), to_port(53)]),
        ("later4", vec![ETHERNET, fragment(1480, false)]),
        ("first6", vec![ETHERNET, v6(), fragment6(0, true), to_port(53)]),
        ("later6", vec![ETHERNET, v6(), fragment6(1480, false)]),
        ("gre", vec![ETHERNET, v4(), Layer::Gre { key: Some(7) }, v4(), tcp]),
        ("gre-ethernet", vec![ETHERNET, v6(), Layer::Gre { key: None }, ETHERNET, v4(), tcp]),
        ("4in4", vec![ETHERNET, v4(), v4(), tcp]),
        ("6in4", vec![ETHERNET, v4(), v6(), tcp]),
        ("4in6", vec![ETHERNET, v6(), v4(), tcp]),
        (
            "vxlan",
            vec![ETHERNET, v4(), to_port(4789), Layer::Vxlan { vni: 7 }, ETHERNET, v4(), tcp],
        ),
        (
            "geneve",
            vec![ETHERNET, v4(), to_port(6081), Layer::Geneve { vni: 7 }, ETHERNET, v6(), tcp],
        ),
        ("gtp", vec![ETHERNET, v4(), to_port(2152), Layer::Gtp { teid: 7 }, v4(), tcp]),
        ("esp", vec![ETHERNET, v4(), Layer::Esp { spi: 7, seq: 1 }]),
        ("ah", vec![ETHERNET, v4(), Layer::Ah { spi: 7, seq: 1 }, tcp]),
        ("icmp", vec![ETHERNET, v4(), Layer::Echo { id: 7, seq: 1 }]),
        ("icmp6", vec![ETHERNET, v6(), Layer::Echo6 { id: 7, seq: 1 }]),
        (
            "wireguard",
            vec![ETHERNET, v4(), to_port(51_820), Layer::WireGuard { receiver: 7, counter: 1 }],
        ),
    ];
    let mut seeds: Vec<Seed> = stacks
        .into_iter()
        .map(|(name, layers)| (name.to_owned(), [&[0; 4], &packet(&layers, &[0; 24])[..]].concat()))
        .collect();
    // Datagrams to a port of the operator's choice, each kind of tunnel.
    for tunnel in 1..16u8 {
        let frame = packet(&[ETHERNET, v4(), to_port(9999)], &[tunnel; 40]);
        let choice = [&[0, tunnel << 3][..], &9999u16.to_be_bytes()].concat();
        seeds.push((format!("port-rule-{tunnel}"), [choice, frame].concat()));
    }
    let [raw4, raw6] =
        [v4(), v6()].map(|ip| packet(&[ETHERNET, ip, to_port(53)], &[])[14..].to_vec());
    seeds.push(("raw4".into(), [&[4, 0, 0, 0], &raw4[..]].concat()));
    seeds.push(("raw6".into(), [&[5, 0, 0, 0], &raw6[..]].concat()));
    seeds.push(("cooked".into(), [&[6, 0, 8, 0], &[0; 16][..], &raw4].concat()));
    seeds
}
