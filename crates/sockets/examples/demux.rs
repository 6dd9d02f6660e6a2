//! Feeds a capture to a set of UDP sockets and prints who got what.
//!
//! ```text
//! cargo run -p rxsteer-sockets --example demux                     # a small capture made here
//! cargo run -p rxsteer-sockets --example demux -- [FLAG...] FILE [SOCKET...]  # classic pcap, Ethernet
//!
//! --explain                why, for each packet, with the score of every socket of its port
//! --kernel RELEASE         by the rules of that Linux, faults included [default: ours, without them]
//! --kernel-before RELEASE  by those of the last Linux before it: 5.2.17 ended delivery by group
//! ```
//! A SOCKET is `LOCAL:PORT`, `LOCAL:PORT>REMOTE:PORT` for a connected one, or either with `*N` for a
//! reuseport group of N: `0.0.0.0:53`, `[::]:4433*4`, `192.0.2.1:53>198.51.100.1:7000`. They have
//! `SO_REUSEPORT`, or with `+addr` at the end `SO_REUSEADDR` in its place.
#![expect(clippy::print_stdout, reason = "an example that prints")]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rxsteer_core::dissect::{AddrKind, Dissected, Options, Start, dissect};
use rxsteer_core::{CpuId, FlowKey};
use rxsteer_sockets::{
    Cast, Config, DeviceId, Family, KernelRelease, Namespace, Owner, Packet, Profile, SocketId,
    SocketOption,
};

/// Longest packet that is read from a capture, in bytes.
const MOST_BYTES: usize = 256 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut explain, mut profile) = (false, Profile::Rxsteer);
    let mut args = std::env::args().skip(1).peekable();
    while let Some(flag) = args.next_if(|arg| arg.starts_with("--")) {
        let mut release = || -> Result<KernelRelease, Box<dyn Error>> {
            let text = args.next().ok_or(format!("{flag}: which release?"))?;
            Ok(text.parse().map_err(|error| format!("{flag} {text}: {error}"))?)
        };
        match flag.as_str() {
            "--explain" => explain = true,
            "--kernel" => profile = Profile::LinuxOf(release()?),
            "--kernel-before" => profile = Profile::LinuxOf(release()?.before()),
            _ => return Err(format!("no such flag: {flag}").into()),
        }
    }
    let (frames, sockets) = match args.next() {
        Some(file) => (read_pcap(&std::fs::read(&file)?)?, args.collect()),
        None => (sample(), Vec::new()),
    };
    let sockets = if sockets.is_empty() {
        ["0.0.0.0:53*2", "192.0.2.1:53>198.51.100.1:7000", "[::]:4433"].map(String::from).into()
    } else {
        sockets
    };

    let namespace = Namespace::new(&Config { profile, key: (1, 2), ..Config::default() });
    let mut names = BTreeMap::new();
    for text in &sockets {
        for (id, name) in open(&namespace, text).map_err(|error| format!("{text}: {error}"))? {
            names.insert(id, name);
        }
    }

    let mut counts = BTreeMap::<String, usize>::new();
    for (number, frame) in frames.iter().enumerate() {
        let mut seen = Dissected::default();
        let readable = dissect(frame.as_slice(), Start::Ethernet, &Options::KERNEL, &mut seen);
        let Some(packet) = readable.ok().and_then(|()| packet(&seen.key)) else {
            *counts.entry("not UDP".into()).or_default() += 1;
            continue;
        };
        // Before the delivery, which may change whose CPU is noted.
        let explained = explain.then(|| namespace.explain(&packet));
        let mut receivers = Vec::new();
        namespace.deliver(&packet, |found| {
            receivers.push(format!("{} ({:?})", names[&found.socket], found.stage));
            *counts.entry(names[&found.socket].clone()).or_default() += 1;
        });
        if receivers.is_empty() {
            receivers.push("nobody".into());
            *counts.entry("nobody".into()).or_default() += 1;
        }
        let (src, dst) = (
            SocketAddr::new(packet.src, packet.src_port),
            SocketAddr::new(packet.dst, packet.dst_port),
        );
        if let Some(explained) = explained {
            println!("{number:5}  {}", explained.text(|socket| names[&socket].clone()));
        } else {
            println!("{number:5}  {src} > {dst}  {}", receivers.join(", "));
        }
    }
    for (name, count) in counts {
        println!("{count:8}  {name}");
    }
    Ok(())
}

/// Opens what a text describes; returns the sockets and their names.
fn open(namespace: &Namespace, text: &str) -> Result<Vec<(SocketId, String)>, Box<dyn Error>> {
    let (text, share) = match text.strip_suffix("+addr") {
        Some(text) => (text, SocketOption::ReuseAddr(true)),
        None => (text, SocketOption::ReusePort(true)),
    };
    let (ends, count) = match text.split_once('*') {
        Some((ends, count)) => (ends, count.parse::<u32>()?),
        None => (text, 1),
    };
    let (local, remote) = match ends.split_once('>') {
        Some((local, remote)) => (local, Some(remote.parse::<SocketAddr>()?)),
        None => (ends, None),
    };
    let local: SocketAddr = local.parse()?;
    let family = if local.is_ipv4() { Family::V4 } else { Family::V6 };
    let mut sockets = Vec::new();
    for member in 0..count {
        let id = namespace.open(family, Owner(0))?;
        namespace.set(id, share.clone())?;
        namespace.bind(id, local.ip(), local.port())?;
        if let Some(remote) = remote {
            namespace.connect(id, remote.ip(), remote.port(), local.ip())?;
        }
        let name = if count > 1 { format!("{ends}#{member}") } else { ends.into() };
        sockets.push((id, name));
    }
    Ok(sockets)
}

/// Returns the packet of a UDP flow key.
fn packet(key: &FlowKey) -> Option<Packet<'static>> {
    let address = |bytes: [u8; 16]| match key.addr_kind {
        AddrKind::V4 => Some(IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]))),
        AddrKind::V6 => Some(IpAddr::V6(Ipv6Addr::from(bytes))),
        _ => None,
    };
    let (src, dst) = (address(key.src)?, address(key.dst)?);
    let cast = match dst {
        dst if dst.is_multicast() => Cast::Multicast,
        IpAddr::V4(Ipv4Addr::BROADCAST) => Cast::Broadcast,
        _ => Cast::Unicast,
    };
    (key.protocol == 17).then_some(Packet {
        src,
        src_port: key.src_port,
        dst,
        dst_port: key.dst_port,
        device: DeviceId(1),
        cpu: CpuId(0),
        cast,
        from_this_host: false,
        payload: &[],
    })
}

/// Reads the frames of a classic pcap file of Ethernet, of either byte order.
fn read_pcap(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let (head, mut rest) = bytes.split_first_chunk::<24>().ok_or("no pcap file: too short")?;
    let [a, b, c, d, ..] = *head;
    let number: fn([u8; 4]) -> u32 = match u32::from_le_bytes([a, b, c, d]) {
        0xa1b2_c3d4 | 0xa1b2_3c4d => u32::from_le_bytes,
        0xd4c3_b2a1 | 0x4d3c_b2a1 => u32::from_be_bytes,
        _ => return Err("no classic pcap file".into()),
    };
    let link = number([head[20], head[21], head[22], head[23]]) & 0xffff;
    if link != 1 {
        return Err(format!("link type {link} is not Ethernet").into());
    }
    let mut frames = Vec::new();
    while let Some((record, after)) = rest.split_first_chunk::<16>() {
        let len = number([record[8], record[9], record[10], record[11]]) as usize;
        let frame = after.get(..len.min(MOST_BYTES + 1)).filter(|frame| frame.len() <= MOST_BYTES);
        let Some(frame) = frame else {
            eprintln!("packet {}: {len} bytes are not there; stopped", frames.len());
            break;
        };
        frames.push(frame.to_vec());
        rest = &after[len..];
    }
    Ok(frames)
}

/// Makes a few frames: two clients, one of them connected, a stranger to the port, and ARP.
fn sample() -> Vec<Vec<u8>> {
    let udp = |src: [u8; 4], src_port: u16, dst_port: u16| {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend(src);
        frame.extend([192, 0, 2, 1]);
        frame.extend(src_port.to_be_bytes());
        frame.extend(dst_port.to_be_bytes());
        frame.extend([0, 8, 0, 0]);
        frame
    };
    let mut frames: Vec<_> = (0..4).map(|port| udp([198, 51, 100, 2], 9000 + port, 53)).collect();
    frames.extend([7000, 7001].map(|port| udp([198, 51, 100, 1], port, 53)));
    frames.extend([udp([198, 51, 100, 1], 7000, 4433), udp([198, 51, 100, 1], 7000, 5353)]);
    let mut arp = vec![0xff; 14];
    arp[12..].copy_from_slice(&[8, 6]);
    arp.extend([0; 28]);
    frames.push(arp);
    frames
}
