//! Captures that are sent, counted and compared at the other end. Needs root; without it each test says
//! so and ends.
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::observer::Observer;
use common::{LONG, NOBODY, pair};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use rxsteer_bench::{
    BenchError, CapturePace, CaptureReport, CaptureSpec, Ended, Unsent, Until, Watch, send_capture,
};
use rxsteer_lab::capture::{LinkType, Packet, PcapWriter, PcapngWriter};
use rxsteer_lab::generate::{Layer, V4, packet};
use rxsteer_testbed::{Pair, PairSpec};

/// Time of the first packet of these captures, in ns.
const FIRST_NS: u64 = 1_600_000_000_123_456_789;

/// A file that is removed with the test.
struct Made(PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes a capture of packets at these times after the first.
fn capture(name: &str, packets: &[(u64, Vec<u8>)]) -> Made {
    let made = made(name);
    let mut writer = PcapWriter::new(File::create(&made.0).unwrap(), LinkType::ETHERNET).unwrap();
    for (after_ns, data) in packets {
        writer.write(FIRST_NS + after_ns, data.len() as u32, data).unwrap();
    }
    writer.finish().unwrap();
    made
}

fn made(name: &str) -> Made {
    let name = format!("rxs-capture-{}-{name}", std::process::id());
    Made(std::env::temp_dir().join(name))
}

/// A datagram from a source port, with the number of the packet in it.
fn datagram(number: u16) -> Vec<u8> {
    let from = Ipv4Addr::new(192, 0, 2, number as u8);
    let ip = Layer::V4(V4::new(from, Ipv4Addr::new(203, 0, 113, 9)));
    let udp = Layer::Udp { src: 20_000 + number, dst: 53, checksum: true };
    packet(&[Layer::Ethernet { back: false }, ip, udp], &number.to_be_bytes())
}

fn long(file: &Made) -> CaptureSpec {
    let until = Until { duration: LONG, ..Until::default() };
    CaptureSpec { until, ..CaptureSpec::new(&file.0) }
}

/// Sends, and returns the report and the frames that arrived, with their times.
fn send(pair: &Pair, spec: &CaptureSpec) -> (CaptureReport, Vec<(Duration, Vec<u8>)>) {
    let observer = Observer::new(pair);
    let report = send_capture(pair, spec, &NOBODY).unwrap();
    let frames = observer.frames();
    assert_eq!(report.read, report.source.sent + report.unsent.total(), "{report:?}");
    assert_eq!((report.arrived, report.dropped), (report.source.sent, 0), "{report:?}");
    assert_eq!(frames.len() as u64, report.source.sent, "{report:?}");
    (report, frames)
}

/// Returns the number in a frame, which came from where it was captured, to the receiver, unhurt.
fn number(frame: &[u8]) -> u16 {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(NetSlice::Ipv4(ip)) = sliced.net else { panic!("{frame:?}") };
    let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("{frame:?}") };
    let number = u16::from_be_bytes(udp.payload().try_into().unwrap());
    let header = ip.header().to_header();
    assert_eq!(header.destination, Pair::SINK_V4.octets());
    assert_eq!(header.source, [192, 0, 2, number as u8]);
    assert_eq!((udp.source_port(), udp.destination_port()), (20_000 + number, 53));
    assert_eq!(header.header_checksum, header.calc_header_checksum());
    let udp_header = udp.to_header();
    assert_eq!(udp.checksum(), udp_header.calc_checksum_ipv4(&header, udp.payload()).unwrap());
    number
}

fn numbers(frames: &[(Duration, Vec<u8>)]) -> Vec<u16> {
    frames.iter().map(|(_, frame)| number(frame)).collect()
}

/// No packet may come before its time; how late it comes is the scheduler's matter. The times are those
/// that the kernel wrote down at the other end.
#[test]
fn a_capture_arrives_in_order_and_no_packet_before_its_time() {
    let test = "a_capture_arrives_in_order_and_no_packet_before_its_time";
    let Some(pair) = pair(test, &PairSpec::default()) else { return };
    // Bursts of four, 4 ms apart, and one gap of 100 ms.
    let at = |number: u64| (number / 4) * 4_000_000 + if number >= 60 { 100_000_000 } else { 0 };
    let packets: Vec<_> = (0..100).map(|n| (at(u64::from(n)), datagram(n))).collect();
    let file = capture("order", &packets);
    for speed in [1.0, 4.0] {
        let spec = CaptureSpec { pace: CapturePace::Recorded(speed), ..long(&file) };
        let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let (report, frames) = send(&pair, &spec);
        assert_eq!((report.ended, report.rounds), (Ended::Complete, 1));
        assert_eq!(numbers(&frames), (0..100).collect::<Vec<_>>());
        assert_eq!((report.rewritten.ethernet, report.rewritten.destinations), (100, 100));
        assert_eq!(report.lateness.count, 100);
        for (number, (time, _)) in frames.iter().enumerate() {
            let due = Duration::from_nanos(at(number as u64)).div_f64(speed);
            // A nanosecond for what a fraction leaves.
            let early = (begin + due).saturating_sub(*time + Duration::from_nanos(1));
            assert!(early.is_zero(), "{number} at {speed}: {early:?} too early");
        }
    }
}

#[test]
fn a_capture_is_sent_as_often_as_asked_and_no_more_than_the_count() {
    let test = "a_capture_is_sent_as_often_as_asked_and_no_more_than_the_count";
    let Some(pair) = pair(test, &PairSpec::default()) else { return };
    let packets: Vec<_> = (0..50).map(|n| (u64::from(n) * 1000, datagram(n))).collect();
    let file = capture("rounds", &packets);
    let (report, frames) = send(&pair, &CaptureSpec { rounds: 3, ..long(&file) });
    assert_eq!((report.ended, report.rounds, report.source.sent), (Ended::Complete, 3, 150));
    assert_eq!(numbers(&frames), (0..50).chain(0..50).chain(0..50).collect::<Vec<_>>());
    // Without end, as fast as possible, and more than a ring holds.
    let until = Until { count: 12_345, duration: LONG };
    let pace = CapturePace::Fastest;
    let spec = CaptureSpec { rounds: 0, until, pace, batch: 100, ..long(&file) };
    let (report, frames) = send(&pair, &spec);
    assert_eq!((report.ended, report.source.sent), (Ended::Count, 12_345));
    assert_eq!((report.unsent, report.lateness.count), (Unsent::default(), 0));
    let expected: Vec<u16> = (0..12_345).map(|n| n % 50).collect();
    assert_eq!(numbers(&frames), expected);
    // A count that falls on the end of a round has the whole of it.
    for (count, rounds) in [(149, 2), (150, 3), (151, 3)] {
        let until = Until { count, duration: LONG };
        let (report, _) = send(&pair, &CaptureSpec { rounds: 0, until, pace, ..long(&file) });
        assert_eq!(
            (report.ended, report.source.sent, report.rounds),
            (Ended::Count, count, rounds)
        );
    }
    // A rate holds whatever the capture says: packet k not before k / rate.
    let pace = CapturePace::Rate(1000);
    let (report, _) = send(&pair, &CaptureSpec { pace, rounds: 2, ..long(&file) });
    assert_eq!(report.source.sent, 100);
    assert!(report.source.elapsed >= Duration::from_millis(99), "{report:?}");
}

#[test]
fn time_and_the_watcher_end_a_capture_that_takes_long() {
    let test = "time_and_the_watcher_end_a_capture_that_takes_long";
    let Some(pair) = pair(test, &PairSpec::default()) else { return };
    let hour = 3_600_000_000_000;
    let file = capture("hour", &[(0, datagram(0)), (hour, datagram(1)), (hour, datagram(2))]);
    let until = Until { duration: Duration::from_millis(200), ..Until::default() };
    let (report, frames) = send(&pair, &CaptureSpec { until, ..long(&file) });
    assert_eq!((report.ended, numbers(&frames)), (Ended::Duration, vec![0]));
    // The second was read and is told of; the third was not looked at.
    assert_eq!((report.read, report.unsent.left), (2, 1));
    assert!(report.source.elapsed < LONG);
    let stop = AtomicBool::new(false);
    let on_second = |_: &rxsteer_bench::Second| stop.store(true, Ordering::Relaxed);
    let watch = Watch { stop: &stop, on_second: &on_second };
    let report = send_capture(&pair, &long(&file), &watch).unwrap();
    assert_eq!((report.ended, report.source.sent), (Ended::Stopped, 1));
    assert!(report.source.elapsed < LONG);
}

#[test]
fn what_cannot_be_sent_is_counted_and_a_round_of_nothing_is_the_last() {
    let test = "what_cannot_be_sent_is_counted_and_a_round_of_nothing_is_the_last";
    let Some(pair) = pair(test, &PairSpec::default()) else { return };
    let file = made("reasons.pcapng");
    let mut writer = PcapngWriter::new(File::create(&file.0).unwrap()).unwrap();
    let ethernet = writer.add_interface("eth", LinkType::ETHERNET).unwrap();
    let wireless = writer.add_interface("wlan", LinkType(105)).unwrap();
    let long_one = [datagram(0), vec![0; 1500]].concat();
    let good = datagram(7);
    for (interface, link, data, orig_len) in [
        (ethernet, LinkType::ETHERNET, &good, None),
        (wireless, LinkType(105), &good, None),
        (ethernet, LinkType::ETHERNET, &long_one, None),
        (ethernet, LinkType::ETHERNET, &good, Some(1514)),
        (ethernet, LinkType::ETHERNET, &good[..9].to_vec(), None),
    ] {
        let packet = Packet { interface, ..Packet::new(FIRST_NS, link, data) };
        let orig_len = orig_len.unwrap_or(packet.orig_len);
        writer.write(&Packet { orig_len, ..packet }).unwrap();
    }
    writer.finish().unwrap();
    let (report, frames) = send(&pair, &CaptureSpec { rounds: 2, ..long(&file) });
    assert_eq!(numbers(&frames), [7, 7]);
    let each = Unsent { truncated: 2, too_long: 2, too_short: 2, no_ethertype: 2, left: 0 };
    assert_eq!((report.unsent, report.read), (each, 10));

    let nothing = capture("nothing", &[(0, long_one)]);
    let (report, _) = send(&pair, &CaptureSpec { rounds: 0, ..long(&nothing) });
    assert_eq!((report.ended, report.rounds, report.unsent.too_long), (Ended::Complete, 1, 1));
    // A link that takes longer ones.
    let Some(wide) = self::pair(test, &PairSpec { mtu: 9000, ..PairSpec::default() }) else {
        return;
    };
    assert_eq!(send(&wide, &long(&nothing)).0.source.sent, 1);
}

#[test]
fn a_damaged_capture_is_sent_up_to_the_damage_which_is_told() {
    let test = "a_damaged_capture_is_sent_up_to_the_damage_which_is_told";
    let Some(pair) = pair(test, &PairSpec::default()) else { return };
    let packets: Vec<_> = (0..10).map(|n| (0, datagram(n))).collect();
    let file = capture("damaged", &packets);
    let mut bytes = std::fs::read(&file.0).unwrap();
    // The captured length of the seventh packet is beyond all limits.
    let record = 16 + datagram(0).len();
    let at = 24 + 6 * record + 8;
    bytes[at..at + 4].fill(0xff);
    std::fs::write(&file.0, &bytes).unwrap();
    let (report, frames) = send(&pair, &long(&file));
    assert_eq!((report.ended, numbers(&frames)), (Ended::Fault, (0..6).collect()));
    assert!(report.fault.unwrap().to_string().contains("damaged"));
    // One that ends early has all of its complete packets.
    std::fs::write(&file.0, &bytes[..24 + 5 * record + 20]).unwrap();
    let (report, frames) = send(&pair, &long(&file));
    assert_eq!((report.ended, frames.len()), (Ended::Truncated, 5));
    assert!(report.notes.iter().any(|note| note.is_damage()), "{report:?}");
}

#[test]
fn what_is_no_file_is_refused() {
    let Some(pair) = pair("what_is_no_file_is_refused", &PairSpec::default()) else { return };
    let spec = CaptureSpec::new("/nowhere/to/be.found");
    let refused = send_capture(&pair, &spec, &NOBODY).unwrap_err();
    assert!(matches!(refused, BenchError::Capture(_)), "{refused}");
    assert!(refused.to_string().contains("/nowhere/to/be.found"), "{refused}");
    let pipe = made("pipe");
    nix::unistd::mkfifo(&pipe.0, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for path in [PathBuf::from("-"), PathBuf::from("/dev/zero"), pipe.0.clone()] {
        let refused = send_capture(&pair, &CaptureSpec::new(path), &NOBODY).unwrap_err();
        assert!(refused.to_string().ends_with("from a file, not from a pipe"), "{refused}");
    }
    let file = capture("options", &[(0, datagram(0))]);
    for pace in [0.0, -1.0, f64::NAN, f64::INFINITY].map(CapturePace::Recorded) {
        let refused = send_capture(&pair, &CaptureSpec { pace, ..long(&file) }, &NOBODY);
        assert!(matches!(refused.unwrap_err(), BenchError::Options(_)), "{pace:?}");
    }
}
