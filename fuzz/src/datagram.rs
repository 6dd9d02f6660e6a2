//! Harness of the datagram checks: any packet under any rules, from its IP header on.
//!
//! The first byte of the input chooses the rules, the rest is the packet.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rxsteer_sockets::datagram::{
    Addresses, CheckedPacket, Checksum, Malformed, PacketFault, Rules, check_packet,
};
use rxsteer_sockets::queue::{Datagram, Limits, QueueContext, ReceiveQueue};
use rxsteer_sockets::{Event, IpVersion};

/// Checks a packet in every way that there is.
///
/// # Panics
/// If the checks break a promise.
pub fn check(data: &[u8]) {
    let Some((&first, packet)) = data.split_first() else { return };
    let rules = Rules { device_verified: first & 1 != 0, ipv6_zero_allowed: first & 2 != 0 };
    let result = check_packet(packet, rules);
    match result {
        Ok(checked) => accepted(packet, &checked, rules),
        Err(fault) => refused(packet, fault, rules),
    }
    // Padding that the lengths do not count changes nothing; a jumbogram has no length of its own.
    let padded = [packet, &[0xa5; 3]].concat();
    if let (Ok(short), Ok(long)) = (result, check_packet(&padded, rules)) {
        assert_eq!((short.udp.payload, short.checksum), (long.udp.payload, long.checksum));
    }
    // Whoever demands less accepts no less.
    if result.is_ok() {
        let lenient = Rules { device_verified: true, ipv6_zero_allowed: true };
        assert!(check_packet(packet, lenient).is_ok());
    }
}

fn accepted(packet: &[u8], checked: &CheckedPacket<'_>, rules: Rules) {
    let payload = checked.udp.payload;
    assert!(packet.as_ptr_range().contains(&payload.as_ptr()) || payload.is_empty());
    assert!(payload.len() + 8 <= packet.len());
    let right = is_right(packet, checked);
    match checked.checksum {
        Checksum::Verified => assert!(right || rules.device_verified),
        Checksum::Absent => {
            assert_eq!(checked.udp.checksum, 0);
            let v4 = checked.addresses.version() == IpVersion::V4;
            assert!(v4 || rules.ipv6_zero_allowed);
        }
        Checksum::Deferred(_) => panic!("a whole check leaves nothing for later"),
    }
    through_a_queue(checked, rules, right);
}

/// The same datagram with its checksum left for the read: it comes out of the queue, or is dropped and
/// counted there, as the whole check says.
fn through_a_queue(checked: &CheckedPacket<'_>, rules: Rules, right: bool) {
    let Ok(checksum) = checked.udp.defer(&checked.addresses, rules) else {
        panic!("what is right is not refused for now");
    };
    let (src, dst): (IpAddr, IpAddr) = match checked.addresses {
        Addresses::V4 { src, dst } => (src.into(), dst.into()),
        Addresses::V6 { src, dst } => (src.into(), dst.into()),
    };
    let queue = ReceiveQueue::new(&Arc::new(QueueContext::default()), Limits::default());
    let peer = SocketAddr::new(src, checked.udp.src_port);
    let mut datagram = Datagram::new(peer, dst, checked.udp.payload.to_vec());
    datagram.checksum = checksum;
    queue.push(datagram).expect("an empty queue takes one");
    let deferred = matches!(checksum, Checksum::Deferred(_));
    let read = queue.try_recv();
    assert_eq!(read.is_ok(), right || !deferred);
    let counters = queue.counters();
    assert_eq!(counters.in_datagrams + counters.in_errors, 1);
    assert_eq!(counters.in_csum_errors, u64::from(read.is_err()));
}

fn refused(packet: &[u8], fault: PacketFault, rules: Rules) {
    assert!(!fault.to_string().is_empty());
    assert!(Event::from(fault).index() < Event::COUNT);
    // A datagram that only its checksum condemns is one that another rule lets through.
    if matches!(fault, PacketFault::Udp(Malformed::BadChecksum | Malformed::NoChecksum)) {
        assert!(!(rules.device_verified && rules.ipv6_zero_allowed));
        let lenient = Rules { device_verified: true, ipv6_zero_allowed: true };
        let checked = check_packet(packet, lenient).expect("nothing else is wrong");
        assert!(!is_right(packet, &checked) || checked.udp.checksum == 0);
    }
}

/// RFC 1071 word by word, the carry taken in at each step, over the header as it is in the packet.
fn is_right(packet: &[u8], checked: &CheckedPacket<'_>) -> bool {
    let payload = checked.udp.payload;
    let at = payload.as_ptr().addr() - packet.as_ptr().addr();
    let mut bytes = match checked.addresses {
        Addresses::V4 { src, dst } => [src.octets(), dst.octets()].concat(),
        Addresses::V6 { src, dst } => [src.octets(), dst.octets()].concat(),
    };
    bytes.extend((payload.len() as u32 + 8).to_be_bytes());
    bytes.extend([0, 0, 0, 17]);
    bytes.extend(&packet[at - 8..at + payload.len()]);
    let mut sum = 0_u16;
    for word in bytes.chunks(2) {
        let word = u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]);
        let (next, carry) = sum.overflowing_add(word);
        sum = next + u16::from(carry);
    }
    sum == 0xffff
}
