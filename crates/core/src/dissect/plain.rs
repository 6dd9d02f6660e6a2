//! The most frequent frames in one piece: Ethernet, IPv4 without options, TCP or UDP, no fragment.
//!
//! What the loop of [`super::walk`] says of such a frame in kernel mode, said without a loop: all
//! headers are taken by one comparison with the end of the frame. Whatever is not exactly that is
//! left to the loop, so this is never the judge of anything unusual.
//!
//! Always true: where this answers, the loop answers the same (checked over generated frames).

use super::number::{ETHERTYPE_IPV4, PROTO_TCP, PROTO_UDP};
use super::{AddrKind, Dissected, Mode, Options, Start};
use crate::Bytes;
use crate::bytes::View;

/// Reads a plain frame into `out`, which is empty; returns whether it was one.
#[inline(always)]
pub(super) fn read<B: Bytes + ?Sized>(
    frame: &B,
    start: Start,
    options: &Options,
    out: &mut Dissected,
) -> bool {
    if !matches!(start, Start::Ethernet) || !matches!(options.mode, Mode::Kernel) {
        return false;
    }
    // As far as the flags of TCP; UDP over Ethernet is padded to more.
    let Some(header) = frame.view::<48>(0) else { return false };
    let protocol = header.u8(23);
    let is_plain = header.u16(12) == ETHERTYPE_IPV4
        && header.u8(14) & 15 == 5
        && header.u16(20) & 0x3fff == 0
        && (protocol == PROTO_UDP || protocol == PROTO_TCP);
    if !is_plain {
        return false;
    }
    let ports = header.u32(34);
    let key = &mut out.key;
    [key.src[0], key.src[1], key.src[2], key.src[3]] = header.u32(26).to_be_bytes();
    [key.dst[0], key.dst[1], key.dst[2], key.dst[3]] = header.u32(30).to_be_bytes();
    key.src_port = (ports >> 16) as u16;
    key.dst_port = ports as u16;
    key.ethertype = ETHERTYPE_IPV4;
    key.protocol = protocol;
    key.addr_kind = AddrKind::V4;
    out.network_offset = 14;
    out.outer_offset = 14;
    out.transport_offset = 34;
    out.ip_headers = 1;
    out.flags = Dissected::HAS_KEY | Dissected::PORTS;
    if protocol == PROTO_UDP {
        out.payload_offset = 42;
    } else {
        let rest = header.u16(46);
        out.tcp_flags = rest as u8;
        out.payload_offset = 34 + (rest >> 12) * 4;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::{NoObserver, dissect_observed};
    use super::*;

    /// A frame that is plain or nearly so: `change` sets one byte of the headers to `value`.
    fn frame(length: usize, protocol: u8, seed: u32, change: Option<(usize, u8)>) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let mut frame: Vec<u8> = (0..64).map(|_| next()).collect();
        frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0]);
        frame[20..22].copy_from_slice(&[0x40, 0]);
        frame[23] = protocol;
        if let Some((at, value)) = change {
            frame[at] = value;
        }
        frame.truncate(length);
        frame
    }

    /// Returns whether the short way answers; if so the loop must say the same.
    fn agrees(frame: &[u8], start: Start, options: &Options) -> bool {
        let (mut short, mut long) = (Dissected::EMPTY, Dissected::EMPTY);
        let answered = read(frame, start, options, &mut short);
        let result = dissect_observed(frame, start, options, &mut long, &mut NoObserver);
        if answered {
            assert_eq!((result, short), (Ok(()), long), "{frame:02x?}");
        } else {
            assert_eq!(short, Dissected::EMPTY);
        }
        answered
    }

    #[test]
    fn the_short_way_says_what_the_loop_says() {
        let mut answered = 0;
        for protocol in 0..=255 {
            for seed in 0..16 {
                answered += usize::from(agrees(
                    &frame(64, protocol, seed, None),
                    Start::Ethernet,
                    &Options::KERNEL,
                ));
            }
        }
        assert_eq!(answered, 2 * 16);
        for protocol in [PROTO_TCP, PROTO_UDP] {
            for at in 12..48 {
                for value in 0..=255 {
                    let frame = frame(64, protocol, 7, Some((at, value)));
                    agrees(&frame, Start::Ethernet, &Options::KERNEL);
                }
            }
            for length in 0..64 {
                let frame = frame(length, protocol, 7, None);
                let answered = agrees(&frame, Start::Ethernet, &Options::KERNEL);
                assert_eq!(answered, length >= 48);
            }
        }
    }

    #[test]
    fn other_starts_and_modes_are_left_to_the_loop() {
        let frame = frame(64, PROTO_UDP, 1, None);
        let start = Start::Network { ethertype: ETHERTYPE_IPV4, offset: 14 };
        assert!(!agrees(&frame, start, &Options::KERNEL));
        assert!(!agrees(&frame, Start::Ethernet, &Options::INNER));
        let options = Options {
            ignore_flow_label: true,
            outer_only: true,
            walk_first_fragment: true,
            wireguard_index: true,
            vlan: super::super::VlanHash::Ignore,
            ..Options::KERNEL
        };
        assert!(agrees(&frame, Start::Ethernet, &options));
    }
}
