//! What sound captures give: every format, byte order, unit of time and option; several files.

mod capture_support;

use std::io::{Cursor, Read, Write};

use capture_support::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use rxsteer_core::QueueId;
use rxsteer_lab::capture::{CaptureOptions, Captures, Direction, NoteKind};

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const MODIFIED: u32 = 0xa1b2_cd34;

#[test]
fn pcap_in_both_units_and_byte_orders() {
    for order in [Little, Big] {
        for (magic, ts_ns) in
            [(MICROSECONDS, 1_700_000_000_000_005_000), (NANOSECONDS, 1_700_000_000_000_000_005)]
        {
            // Bits above the link type say how long the frame check sequence is.
            let head = pcap_header(order, magic, 96, 0x5400_0001);
            let packet = record(order, 1_700_000_000, 5, 1500, &[9; 96]);
            let outcome = read_sound(&[head, packet].concat());
            let data = vec![9; 96];
            let expected = Seen { ts_ns, orig_len: 1500, link: 1, interface: 0, source: 0, data };
            assert_eq!(outcome.packets, [expected], "{order:?} {magic:#x}");
            assert!(outcome.notes.is_empty());
        }
    }
}

#[test]
fn the_latest_times_of_a_pcap_do_not_overflow() {
    let head = pcap_header(Little, MICROSECONDS, 96, 1);
    let outcome = read_sound(&[head, record(Little, u32::MAX, u32::MAX, 0, &[])].concat());
    assert_eq!(outcome.packets[0].ts_ns, 4_294_967_295_000_000_000 + 4_294_967_295_000);
}

#[test]
fn a_modified_pcap_has_interface_and_packet_type_in_longer_records() {
    for order in [Little, Big] {
        let mut bytes = pcap_header(order, MODIFIED, 65_535, 1);
        for (packet_type, length) in [(0u8, 3usize), (4, 5)] {
            let plain = record(order, 1, 2, 60, &vec![packet_type; length]);
            let more = [&order.b4(7)[..], &order.b2(8), &[packet_type, 0]].concat();
            bytes.extend([&plain[..16], &more, &plain[16..]].concat());
        }
        let mut captures =
            Captures::from_reader("x", Box::new(Cursor::new(bytes)), &CaptureOptions::default())
                .expect("sound");
        for (direction, data) in
            [(Direction::Inbound, &[0u8; 3][..]), (Direction::Outbound, &[4; 5])]
        {
            let packet = captures.next_packet().expect("sound").expect("a packet");
            assert_eq!((packet.interface, packet.direction), (7, direction));
            assert_eq!((packet.data, packet.ts_ns), (data, 1_000_002_000));
        }
        assert_eq!(captures.next_packet().expect("sound"), None);
    }
}

#[test]
fn lengths_before_version_2_4_are_the_other_way_round() {
    for (minor, first, second) in [(2u8, 60u32, 4u32), (3, 60, 4), (3, 4, 60), (4, 4, 60)] {
        let mut bytes = pcap_header(Little, MICROSECONDS, 96, 1);
        bytes[6] = minor;
        bytes.extend([1, 2, first, second].iter().flat_map(|word| Little.b4(*word)));
        bytes.extend([5; 4]);
        let outcome = read_sound(&bytes);
        assert_eq!((outcome.packets[0].orig_len, outcome.packets[0].data.len()), (60, 4));
    }
}

#[test]
fn every_interface_of_a_pcapng_has_its_own_link_type_and_unit_of_time() {
    for order in [Little, Big] {
        let bytes = [
            section(order),
            interface(order, 1, 0, &[]),
            interface(order, 113, 0, &[option(order, 2, b"eth0"), option(order, 9, &[9])].concat()),
            interface(order, 276, 0, &option(order, 9, &[0x80 | 20])),
            interface(
                order,
                101,
                0,
                &[
                    option(order, 9, &[3]),
                    option(order, 14, &order.b8(-5i64 as u64)),
                    option(order, 0, &[]),
                ]
                .concat(),
            ),
            packet(order, 0, 0x1_0000_0001, &[1], &[]),
            packet(order, 1, 5_000_000_000_000, &[2], &[]),
            packet(order, 2, 6000 << 20 | 1 << 19, &[3], &[]),
            packet(order, 3, 7_006_500, &[4], &[]),
        ]
        .concat();
        let outcome = read_sound(&bytes);
        let seen: Vec<_> =
            outcome.packets.iter().map(|packet| (packet.link, packet.ts_ns)).collect();
        assert_eq!(
            seen,
            [
                (1, 4_294_967_297_000),
                (113, 5_000_000_000_000),
                (276, 6_000_500_000_000),
                (101, 7_001_500_000_000),
            ]
        );
    }
}

#[test]
fn options_of_a_packet_give_queue_direction_hash_and_losses() {
    for order in [Little, Big] {
        let options = [
            option(order, 1, b"a comment"),
            option(order, 6, &order.b4(11)),
            option(order, 2, &order.b4(0x0000_0002)),
            option(order, 3, &[5, 0x51, 0xcc, 0xc1, 0x78]),
            option(order, 4, &order.b8(3)),
            option(order, 0, &[]),
            // Behind the end mark nothing counts.
            option(order, 6, &order.b4(12)),
        ]
        .concat();
        let other = [
            option(order, 2, &order.b4(0x0000_0101)),
            option(order, 3, &[2, 0, 0, 0, 0]),
            option(order, 6, &order.b4(65_536)),
        ]
        .concat();
        let bytes = [
            section(order),
            interface(order, 1, 0, &[]),
            packet(order, 0, 1, &[0; 14], &options),
            packet(order, 0, 2, &[0; 15], &other),
            packet(order, 0, 3, &[0; 15], &[]),
        ]
        .concat();
        let mut captures =
            Captures::from_reader("x", Box::new(Cursor::new(bytes)), &CaptureOptions::default())
                .expect("sound");
        let expected = [
            (Some(QueueId(11)), Direction::Outbound, Some(0x51cc_c178), 3),
            (None, Direction::Inbound, None, 0),
            (None, Direction::Unknown, None, 0),
        ];
        for expected in expected {
            let packet = captures.next_packet().expect("sound").expect("a packet");
            let seen = (packet.queue, packet.direction, packet.recorded_hash, packet.lost_before);
            assert_eq!(seen, expected);
        }
        let notes: Vec<_> = captures.notes().iter().map(|note| note.kind).collect();
        assert_eq!(
            notes,
            [NoteKind::QueueOutOfRange { packets: 1 }, NoteKind::Lost { packets: 3 }]
        );
    }
}

#[test]
fn simple_packets_are_cut_by_the_snapshot_length_and_take_the_time_before() {
    let bytes = [
        section(Big),
        interface(Big, 1, 6, &[]),
        interface(Big, 1, 0, &[]),
        packet(Big, 1, 9, &[0; 14], &[]),
        block(Big, 3, &[&Big.b4(100)[..], &[1; 8]].concat()),
        block(Big, 3, &[&Big.b4(5)[..], &[2; 5]].concat()),
    ]
    .concat();
    let outcome = read_sound(&bytes);
    let seen: Vec<_> = outcome
        .packets
        .iter()
        .map(|packet| (packet.ts_ns, packet.orig_len, &packet.data[..], packet.interface))
        .collect();
    assert_eq!(seen, [(9000, 14, &[0; 14][..], 1), (9000, 100, &[1; 6], 0), (9000, 5, &[2; 5], 0)]);
    let notes = outcome.note_texts();
    assert_eq!(notes, ["x: packets without a time, given that of the packet before: 2"]);
}

#[test]
fn the_obsolete_packet_block_is_read() {
    for order in [Little, Big] {
        let mut old = packet(order, 0, 5, &[7; 9], &option(order, 2, &order.b4(1)));
        old[..4].copy_from_slice(&order.b4(2));
        old[8..10].copy_from_slice(&order.b2(1));
        old[10..12].copy_from_slice(&order.b2(4));
        let bytes = [
            section(order),
            interface(order, 1, 0, &[]),
            interface(order, 101, 0, &[]),
            old.clone(),
        ]
        .concat();
        let mut captures =
            Captures::from_reader("x", Box::new(Cursor::new(bytes)), &CaptureOptions::default())
                .expect("sound");
        let packet = captures.next_packet().expect("sound").expect("a packet");
        assert_eq!((packet.link.0, packet.interface, packet.lost_before), (101, 1, 4));
        assert_eq!((packet.data, packet.direction), (&[7; 9][..], Direction::Inbound));
    }
}

/// A pcap of one packet a second, each holding its number.
fn numbered(order: Order, seconds: &[u32]) -> Vec<u8> {
    let mut bytes = pcap_header(order, MICROSECONDS, 65_535, 1);
    for (index, second) in seconds.iter().enumerate() {
        bytes.extend(record(order, *second, 0, 60, &[index as u8; 20]));
    }
    bytes
}

#[test]
fn several_captures_are_merged_by_time_and_then_by_their_order() {
    let files = [
        numbered(Little, &[1, 4, 4, 9]),
        numbered(Big, &[]),
        numbered(Big, &[2, 4, 10]),
        numbered(Little, &[1, 7, 3, 8]),
    ];
    let readers = files.into_iter().enumerate().map(|(index, bytes)| {
        let reader: Box<dyn Read + Send> = Box::new(ByteByByte(Cursor::new(bytes)));
        (format!("file{index}"), reader)
    });
    let outcome = drain(Captures::from_readers(readers.collect(), &CaptureOptions::default()));
    let seen: Vec<_> = outcome
        .packets
        .iter()
        .map(|packet| (packet.ts_ns / 1_000_000_000, packet.source, packet.data[0]))
        .collect();
    assert_eq!(
        seen,
        [
            (1, 0, 0),
            (1, 3, 0),
            (2, 2, 0),
            (4, 0, 1),
            (4, 0, 2),
            (4, 2, 1),
            (7, 3, 1),
            // Older than the packet before it in its file: at once, not later.
            (3, 3, 2),
            (8, 3, 3),
            (9, 0, 3),
            (10, 2, 2),
        ]
    );
    assert_eq!(
        outcome.note_texts(),
        [
            "file1: a capture without packets (0 packets)",
            "file3: packets older than the one before: 1, by at most 4.000000000 s",
        ]
    );
}

#[test]
fn a_fault_in_one_of_several_captures_names_its_file() {
    let mut bad = numbered(Little, &[2, 5]);
    bad[24 + 36 + 8..][..4].copy_from_slice(&Little.b4(u32::MAX));
    let readers: Vec<(String, Box<dyn Read + Send>)> = vec![
        ("good".into(), Box::new(Cursor::new(numbered(Little, &[1, 3])))),
        ("bad".into(), Box::new(Cursor::new(bad))),
    ];
    let outcome = drain(Captures::from_readers(readers, &CaptureOptions::default()));
    assert_eq!(outcome.packets.len(), 2);
    assert!(outcome.error_text().starts_with("bad: at byte 60: captured length 4294967295"));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("into memory");
    encoder.finish().expect("into memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("a level");
    encoder.include_checksum(true).expect("a flag");
    encoder.write_all(bytes).expect("into memory");
    encoder.finish().expect("into memory")
}

#[test]
fn compressed_captures_are_read_in_one_piece_and_in_several() {
    let bytes = numbered(Little, &[1, 2, 3, 4]);
    let plain = read_sound(&bytes);
    let (one, two) = bytes.split_at(70);
    let skippable = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    for compressed in [
        gzip(&bytes),
        [gzip(one), gzip(two)].concat(),
        zstd(&bytes),
        [zstd(one), zstd(two)].concat(),
        [skippable.clone(), zstd(one), skippable, zstd(two)].concat(),
    ] {
        let outcome = read_sound(&compressed);
        assert_eq!(outcome.packets, plain.packets);
        assert_eq!(outcome.notes, []);
    }
}

#[test]
fn a_compressed_capture_cut_at_every_byte_is_truncated_and_never_at_fault() {
    let seconds: Vec<u32> = (0..200).map(|index| index * index % 977).collect();
    let plain = read_sound(&numbered(Little, &seconds)).packets;
    for compressed in [gzip(&numbered(Little, &seconds)), zstd(&numbered(Little, &seconds))] {
        for cut in 4..compressed.len() {
            let outcome = read_sound(&compressed[..cut]);
            let packets = outcome.packets.len();
            assert_eq!(outcome.packets, plain[..packets], "cut at {cut}");
            let truncated = outcome.notes.iter().find_map(|note| match note.kind {
                NoteKind::Truncated(truncated) => Some(truncated),
                _ => None,
            });
            let truncated = truncated.unwrap_or_else(|| panic!("no note, cut at {cut}"));
            assert!(truncated.compressed);
            assert_eq!(truncated.packets as usize, packets);
        }
    }
}

#[test]
fn a_checksum_that_differs_is_an_error() {
    let bytes = numbered(Little, &[1, 2, 3]);
    let mut gzip = gzip(&bytes);
    let at = gzip.len() - 8;
    gzip[at] ^= 1;
    let mut zstd = zstd(&bytes);
    let at = zstd.len() - 1;
    zstd[at] ^= 1;
    for (bytes, offset, packets) in [(gzip, 132, 3), (zstd, 0, 0)] {
        let outcome = read(&bytes);
        let error = outcome.error_text();
        assert!(error.starts_with(&format!("x: at byte {offset}: cannot read: ")), "{error:?}");
        assert_eq!(outcome.packets.len(), packets);
    }
}

#[test]
fn a_zstd_window_over_the_limit_is_refused() {
    // Frame header: magic, a window descriptor of 2^28 bytes, then one empty last raw block.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, (28 - 10) << 3, 1, 0, 0];
    let error = read(&frame).error_text();
    assert!(error.contains("cannot read"), "{error:?}");
}

#[test]
fn other_link_types_are_delivered_and_counted() {
    let head = pcap_header(Little, MICROSECONDS, 65_535, 127);
    let bytes = [head, record(Little, 1, 0, 3, &[1, 2, 3])].concat();
    let outcome = read_sound(&bytes);
    assert_eq!(outcome.packets.len(), 1);
    let notes = outcome.note_texts();
    assert_eq!(notes, ["x: packets of link type 127, which is not read: 1"]);
}

#[test]
fn odd_times_and_lengths_are_counted() {
    let head = [section(Little), interface(Little, 1, 0, &option(Little, 9, &[0]))].concat();
    let mut longer = packet(Little, 0, 1, &[0; 8], &[]);
    longer[24..28].copy_from_slice(&Little.b4(7));
    let bytes = [head, packet(Little, 0, u64::MAX, &[], &[]), longer].concat();
    let outcome = read_sound(&bytes);
    assert_eq!(outcome.packets[0].ts_ns, u64::MAX);
    let kinds: Vec<_> = outcome.notes.iter().map(|note| note.kind).collect();
    let most_ns = u64::MAX - 1_000_000_000;
    assert_eq!(
        kinds,
        [
            NoteKind::TimeBackwards { packets: 1, most_ns },
            NoteKind::TimeOutOfRange { packets: 1 },
            NoteKind::LongerThanWire { packets: 1 },
        ]
    );
}

#[test]
fn a_read_that_fails_can_be_tried_again() {
    /// Fails before every piece once.
    struct Stuttering(Cursor<Vec<u8>>, bool);
    impl Read for Stuttering {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            self.1 = !self.1;
            if self.1 && self.0.position() > 100 {
                return Err(std::io::ErrorKind::WouldBlock.into());
            }
            let most = out.len().min(7);
            self.0.read(&mut out[..most])
        }
    }
    let bytes = numbered(Little, &[1, 2, 3, 4, 5, 6]);
    let expected = read_sound(&bytes).packets.len();
    let reader = Stuttering(Cursor::new(bytes), false);
    let options = CaptureOptions::default();
    let mut captures = Captures::from_reader("x", Box::new(reader), &options).expect("sound");
    let (mut packets, mut failures) = (0, 0);
    loop {
        match captures.next_packet() {
            Ok(Some(packet)) => {
                assert_eq!(packet.data, [packets as u8; 20]);
                packets += 1;
            }
            Ok(None) => break,
            Err(error) => {
                assert!(error.to_string().contains("cannot read"), "{error}");
                failures += 1;
            }
        }
    }
    assert_eq!(packets, expected);
    assert!(failures > 10, "{failures} failures");
}
