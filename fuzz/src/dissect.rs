//! Harness of the dissector: any frame, read with any options.
//!
//! The first [`HEADER_BYTES`] of the input choose start and options, the rest is the frame.

use std::hint::black_box;

use rxsteer_core::dissect::{
    Detail, Dissected, Layer, Observer, Options, PortRule, Start, UdpTunnel, VlanHash, dissect,
    dissect_observed,
};
use rxsteer_core::hash::{RssInput, SoftHasher, ToeplitzKey};

/// Bytes before the frame: start, options, and a number that is an ethertype or a port.
pub const HEADER_BYTES: usize = 4;

/// Dissects the frame.
///
/// # Panics
/// If the dissector breaks a promise.
pub fn check(data: &[u8]) {
    let Some((&[first, second, high, low], frame)) = data.split_first_chunk::<HEADER_BYTES>()
    else {
        return;
    };
    let number = u16::from_be_bytes([high, low]);
    let start = match first & 7 {
        0..=3 => Start::Ethernet,
        4 => Start::Network { ethertype: 0x0800, offset: 0 },
        5 => Start::Network { ethertype: 0x86dd, offset: 0 },
        6 => Start::Network { ethertype: number, offset: 16 },
        _ => Start::Network { ethertype: number, offset: u16::from(second) },
    };
    let options = Options {
        vlan: match first >> 3 & 3 {
            0 => VlanHash::TagUnlessPriority,
            1 => VlanHash::Ignore,
            _ => VlanHash::Tag,
        },
        ignore_flow_label: first & 0x40 != 0,
        outer_only: first & 0x80 != 0,
        walk_first_fragment: second & 1 != 0,
        wireguard_index: second & 2 != 0,
        ports: [PortRule { port: number, tunnel: tunnel(second >> 3) }; 4],
        ..if second & 4 != 0 { Options::KERNEL } else { Options::INNER }
    };
    for options in [options, Options::KERNEL, Options::INNER] {
        one(frame, start, &options);
    }
}

fn one(frame: &[u8], start: Start, options: &Options) {
    let mut out = Dissected::EMPTY;
    let result = dissect(frame, start, options, &mut out);
    // Whoever watches sees a bounded number of headers and changes nothing.
    let (mut watched, mut counter) = (Dissected::EMPTY, Counter(0));
    let same = dissect_observed(frame, start, options, &mut watched, &mut counter);
    assert_eq!((result, out), (same, watched), "{start:?} {options:?}");
    assert!(counter.0 <= 1024, "{} headers", counter.0);
    if let Err(error) = result {
        assert!(!error.to_string().is_empty());
    }
    assert_eq!(out.key.zero, [0; 2]);
    assert_eq!(out.outer().zero, [0; 2]);
    assert!(usize::from(out.network_offset) <= frame.len(), "{out:?}");
    assert!(usize::from(out.outer_offset) <= frame.len(), "{out:?}");
    let hasher = SoftHasher { k0: 1, k1: 2 };
    assert_ne!(hasher.hash_key(&out.key).0, 0);
    assert_ne!(hasher.hash_symmetric(&out.key).0, 0);
    for with_ports in [false, true] {
        if let Some(input) = RssInput::from_key(&out.key, with_ports) {
            black_box(ToeplitzKey::SYMMETRIC.hash(&input));
        }
    }
}

struct Counter(usize);

impl Observer for Counter {
    fn layer(&mut self, layer: Layer, offset: usize, detail: Detail) {
        black_box((layer, offset, detail));
        self.0 += 1;
    }
}

fn tunnel(number: u8) -> UdpTunnel {
    use UdpTunnel::*;
    let all = [
        None, Vxlan, VxlanGpe, Geneve, GtpU, L2tp, WireGuard, EspInUdp, GreInUdp, MplsInUdp, Fou,
        Gue, Teredo, Lisp, Capwap, Ayiya,
    ];
    all[usize::from(number) % all.len()]
}
