//! Lengths and checksums (NLnetLabs/nsd#465).

use rxsteer_core::dissect::{Dissected, Options, Start, Transport, VerifyError, dissect, verify};

use crate::frames::*;

fn check(frame: &[u8]) -> Result<(Transport, u16), VerifyError> {
    let mut out = Dissected::EMPTY;
    let _ = dissect(frame, Start::Ethernet, &Options::INNER, &mut out);
    verify(frame, &out).map(|found| (found.transport, found.payload_len))
}

fn datagram(payload: &[u8]) -> Vec<u8> {
    udp_sum(&[A, B].concat(), udp(4000, 53, payload))
}

fn packet(datagram: &[u8]) -> Vec<u8> {
    eth(0x0800, &v4(A, B, 17, datagram))
}

#[test]
fn nsd_465_each_frame_of_the_report_has_its_verdict() {
    let good = datagram(b"query");
    assert_eq!(check(&packet(&good)), Ok((Transport::Good, 5)), "good, of odd length");

    let mut frame = packet(&good);
    frame[14 + 10] ^= 1;
    assert_eq!(check(&frame), Err(VerifyError::BadIpChecksum), "bad IP checksum");

    let mut frame = packet(&good);
    *frame.last_mut().unwrap() ^= 1;
    assert_eq!(check(&frame), Err(VerifyError::BadUdpChecksum), "bad UDP checksum");

    let none = udp(4000, 53, b"query");
    assert_eq!(check(&packet(&none)), Ok((Transport::Absent, 5)), "0 over IPv4");
    let frame = eth(0x86dd, &v6(A6, B6, 17, 0, &none));
    assert_eq!(check(&frame), Err(VerifyError::NoUdpChecksum), "0 over IPv6");

    for (length, verdict) in [
        (7, Err(VerifyError::BadUdpLength)),
        (0, Err(VerifyError::BadUdpLength)),
        (14, Err(VerifyError::BadUdpLength)),
    ] {
        let mut wrong = good.clone();
        wrong[4..6].copy_from_slice(&u16::to_be_bytes(length));
        assert_eq!(check(&packet(&wrong)), verdict, "UDP length {length} of 13");
    }

    let mut trailing = good.clone();
    trailing.extend(b"behind the datagram");
    assert_eq!(check(&packet(&trailing)), Ok((Transport::Good, 5)), "UDP length below IP's");
}

#[test]
fn nsd_465_a_computed_sum_of_zero_is_sent_as_ffff_and_taken() {
    // Find a payload whose sum is 0: the checksum field then says 0xffff.
    let found = (0..=u16::MAX)
        .map(|word| datagram(&word.to_be_bytes()))
        .find(|datagram| datagram[6..8] == [0xff, 0xff]);
    assert_eq!(check(&packet(&found.unwrap())), Ok((Transport::Good, 2)));
}

#[test]
fn a_datagram_over_ipv6_is_checked_with_its_own_pseudo_header() {
    let datagram = udp_sum(&[A6, B6].concat(), udp(4000, 53, b"query"));
    let frame = eth(0x86dd, &v6(A6, B6, 60, 0, &extension(17, 0, &datagram)));
    assert_eq!(check(&frame), Ok((Transport::Good, 5)));
    let other = eth(0x86dd, &v6(B6, B6, 60, 0, &extension(17, 0, &datagram)));
    assert_eq!(check(&other), Err(VerifyError::BadUdpChecksum));
}

#[test]
fn a_datagram_with_segments_left_is_not_checked() {
    let datagram = udp_sum(&[A6, A6].concat(), udp(4000, 53, b"query"));
    let mut routing = extension(17, 2, &datagram);
    routing[3] = 1;
    let frame = eth(0x86dd, &v6(A6, B6, 43, 0, &routing));
    assert_eq!(check(&frame), Ok((Transport::Unchecked, 13)));
}

#[test]
fn a_fragment_is_not_checked_and_a_cut_datagram_is_not_taken() {
    let frame = eth(0x0800, &v4_frag(A, B, 17, 7, 0x2000, &datagram(b"half")));
    assert_eq!(check(&frame), Ok((Transport::Unchecked, 12)));
    let whole = packet(&datagram(b"query"));
    assert_eq!(check(&whole[..whole.len() - 1]), Err(VerifyError::Truncated));
    assert_eq!(check(&eth(0x0806, &[0; 28])), Err(VerifyError::NoIp));
}

#[test]
fn a_segment_is_checked_as_a_datagram_is() {
    let mut segment = tcp(4000, 80, 0x18, b"GET /");
    let length = segment.len() as u16;
    let pseudo = [&A[..], &B, &[0, 6], &length.to_be_bytes(), &segment].concat();
    segment[16..18].copy_from_slice(&(!sum(&pseudo)).to_be_bytes());
    assert_eq!(check(&eth(0x0800, &v4(A, B, 6, &segment))), Ok((Transport::Good, 25)));
    segment[20] ^= 0x40;
    let frame = eth(0x0800, &v4(A, B, 6, &segment));
    assert_eq!(check(&frame), Err(VerifyError::BadTcpChecksum));
}
