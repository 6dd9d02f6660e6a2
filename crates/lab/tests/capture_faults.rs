//! Captures that are cut or malformed: LightPcapNg#5 and the reports related to it.
//!
//! Every capture here is read twice, at once and byte by byte, with the same outcome.

mod capture_support;

use std::fs;
use std::io::Write;

use capture_support::*;
use rxsteer_lab::capture::{CaptureFault, CaptureOptions, Captures, NoteKind, Truncation};

const STRICT: CaptureOptions = CaptureOptions { block_limit: 16 << 20, strict: true };

/// The blocks of a capture with five packets, of lengths that need every padding.
fn five_packets() -> Vec<Vec<u8>> {
    let mut blocks = vec![section(Little), interface(Little, 1, 0, &[])];
    for (index, length) in [60, 61, 62, 63, 0].into_iter().enumerate() {
        let data = vec![index as u8; length];
        let queue = option(Little, 6, &Little.b4(index as u32));
        blocks.push(packet(Little, 0, 1000 + index as u64, &data, &queue));
    }
    blocks
}

fn is_packet(block: &[u8]) -> bool {
    block[0] == 6
}

#[test]
fn lightpcapng_5_a_pcapng_cut_at_every_byte_gives_all_complete_packets_and_a_note() {
    let blocks = five_packets();
    let bytes = blocks.concat();
    for cut in 1..=bytes.len() {
        let (mut offset, mut packets) = (0, 0);
        let mut expected = None;
        for block in &blocks {
            let left = cut.saturating_sub(offset);
            if left >= block.len() {
                packets += u64::from(is_packet(block));
                offset += block.len();
                continue;
            }
            // A length can be told once it is there: of the first block with the byte order.
            let wants = match (offset, left) {
                (0, ..4) => 4,
                (_, ..8) => 12,
                (0, ..12) => 28,
                _ => block.len(),
            };
            let (offset, wants, left) = (offset as u64, wants as u64, left as u64);
            let cut = Truncation { offset, wants, left, packets, compressed: false };
            expected = (left > 0).then_some(cut);
            break;
        }
        let outcome = read_sound(&bytes[..cut]);
        assert_eq!(outcome.packets.len() as u64, packets, "cut at {cut}");
        for (index, packet) in outcome.packets.iter().enumerate() {
            assert_eq!(packet.ts_ns, (1000 + index as u64) * 1000);
            assert!(packet.data.iter().all(|byte| usize::from(*byte) == index));
        }
        let truncation = outcome.notes.iter().find_map(|note| match note.kind {
            NoteKind::Truncated(truncation) => Some(truncation),
            _ => None,
        });
        assert_eq!(truncation, expected, "cut at {cut}");
        let strict = read_with(&bytes[..cut], &STRICT);
        assert_eq!(strict.packets, outcome.packets);
        match expected {
            Some(expected) => assert_eq!(strict.error_text(), format!("x: {expected}")),
            None => assert_eq!(strict.error_text(), ""),
        }
    }
}

#[test]
fn lightpcapng_5_the_note_of_a_cut_capture_has_the_numbers() {
    let blocks = five_packets();
    let bytes = blocks.concat();
    let fourth = blocks[..5].concat().len();
    let outcome = read_sound(&bytes[..fourth + 20]);
    assert_eq!(
        outcome.note_texts(),
        [format!("x: truncated at byte {fourth}: block wants 104, 20 left; 3 packets read")]
    );
}

#[test]
fn a_pcap_cut_at_every_byte_gives_all_complete_packets_and_a_note() {
    let header = pcap_header(Big, 0xa1b2_c3d4, 65_535, 1);
    let records: Vec<_> =
        [60, 1, 0].iter().map(|length| record(Big, 1, 2, 60, &vec![7; *length])).collect();
    let bytes = [header.clone(), records.concat()].concat();
    for cut in 1..=bytes.len() {
        let (mut offset, mut packets) = (0, 0);
        let mut expected = None;
        for part in std::iter::once(&header).chain(&records) {
            let left = cut - offset;
            if left >= part.len() {
                packets += u64::from(offset > 0);
                offset += part.len();
                continue;
            }
            let wants = match (offset, left) {
                (0, ..4) => 4,
                (0, _) => 24,
                (_, ..16) => 16,
                _ => part.len(),
            };
            let (offset, wants, left) = (offset as u64, wants as u64, left as u64);
            let cut = Truncation { offset, wants, left, packets, compressed: false };
            expected = (left > 0).then_some(NoteKind::Truncated(cut));
            break;
        }
        let outcome = read_sound(&bytes[..cut]);
        assert_eq!(outcome.packets.len() as u64, packets, "cut at {cut}");
        let truncation = outcome
            .notes
            .iter()
            .map(|note| note.kind)
            .find(|kind| matches!(kind, NoteKind::Truncated(_)));
        assert_eq!(truncation, expected, "cut at {cut}");
    }
}

/// Reads a capture whose third block (after a section and an interface) is this one.
fn read_block(block: &[u8]) -> Outcome {
    let good = packet(Little, 0, 5, &[1; 14], &[]);
    let head = [section(Little), interface(Little, 1, 0, &[]), good].concat();
    assert_eq!(head.len(), 28 + 20 + 48);
    let outcome = read(&[&head, block, &packet(Little, 0, 6, &[2; 14], &[])].concat());
    assert!(!outcome.packets.is_empty(), "the packet before the fault is delivered");
    outcome
}

/// A block that states this length at both ends, whatever it has.
fn with_length(mut block: Vec<u8>, length: u32) -> Vec<u8> {
    let end = block.len() - 4;
    block[4..8].copy_from_slice(&Little.b4(length));
    block[end..].copy_from_slice(&Little.b4(length));
    block
}

#[test]
fn lightpcapng_5_a_block_length_that_cannot_be_is_an_error_with_place_and_reason() {
    let enhanced = packet(Little, 0, 6, &[3; 14], &[]);
    for (length, reason) in [
        (0, "block length 0 is below 32, the least for type 0x6"),
        (4, "block length 4 is below 32, the least for type 0x6"),
        (8, "block length 8 is below 32, the least for type 0x6"),
        (11, "block length 11 is below 32, the least for type 0x6"),
        (12, "block length 12 is below 32, the least for type 0x6"),
        (13, "block length 13 is below 32, the least for type 0x6"),
        (16, "block length 16 is below 32, the least for type 0x6"),
        (28, "block length 28 is below 32, the least for type 0x6"),
        (33, "block length 33 is no multiple of 4"),
        (49, "block length 49 is no multiple of 4"),
        (0xffff_fffc, "a block of 4294967292 bytes is over the block limit of 16777216"),
        (0x8000_0000, "a block of 2147483648 bytes is over the block limit of 16777216"),
        (0xffff_ffff, "block length 4294967295 is no multiple of 4"),
    ] {
        let outcome = read_block(&with_length(enhanced.clone(), length));
        assert_eq!(outcome.error_text(), format!("x: at byte 96: {reason}"));
        assert_eq!(outcome.error.and_then(|error| error.offset()), Some(96));
        assert_eq!(outcome.packets.len(), 1);
    }
}

#[test]
fn lightpcapng_5_a_block_of_unknown_type_needs_a_sound_length_too() {
    let unknown = block(Little, 0x1234, &[0; 8]);
    for (length, reason) in [
        (0, "block length 0 is below 12, the least for type 0x1234"),
        (11, "block length 11 is below 12, the least for type 0x1234"),
        (13, "block length 13 is no multiple of 4"),
        (0xffff_fffc, "a block of 4294967292 bytes is over the block limit of 16777216"),
    ] {
        let outcome = read_block(&with_length(unknown.clone(), length));
        assert_eq!(outcome.error_text(), format!("x: at byte 96: {reason}"));
    }
    let outcome = read_block(&with_length(unknown[..12].to_vec(), 12));
    assert_eq!((outcome.error_text().as_str(), outcome.packets.len()), ("", 2));
}

#[test]
fn lightpcapng_5_a_trailer_that_differs_is_an_error() {
    let mut enhanced = packet(Little, 0, 6, &[3; 14], &[]);
    let end = enhanced.len() - 4;
    enhanced[end..].copy_from_slice(&Little.b4(44));
    let outcome = read_block(&enhanced);
    assert_eq!(outcome.error_text(), "x: at byte 96: block length 48 at its start, 44 at its end");
}

#[test]
fn lightpcapng_5_an_interface_must_be_declared_before_its_packet() {
    let outcome = read_block(&packet(Little, 1, 6, &[3; 14], &[]));
    let reason = "interface 1 is not declared (1 are, from 0)";
    assert_eq!(outcome.error_text(), format!("x: at byte 96: {reason}"));
    let outcome = read_block(&packet(Little, u32::MAX, 6, &[3; 14], &[]));
    let reason = "interface 4294967295 is not declared (1 are, from 0)";
    assert_eq!(outcome.error_text(), format!("x: at byte 96: {reason}"));
    for early in [packet(Little, 0, 6, &[3; 14], &[]), block(Little, 3, &[0; 8])] {
        let outcome = read(&[section(Little), early].concat());
        let reason = "a packet before any interface is declared";
        assert_eq!(outcome.error_text(), format!("x: at byte 28: {reason}"));
    }
}

#[test]
fn lightpcapng_5_a_captured_length_beyond_its_block_is_an_error() {
    for cap_len in [17, 0x7fff_ffff, u32::MAX] {
        let mut enhanced = packet(Little, 0, 6, &[3; 14], &[]);
        enhanced[20..24].copy_from_slice(&Little.b4(cap_len));
        let outcome = read_block(&enhanced);
        let reason = format!("captured length {cap_len} is over the 16 bytes of the block");
        assert_eq!(outcome.error_text(), format!("x: at byte 96: {reason}"));
    }
    // A simple packet of 100 bytes on the wire in a block with room for 8.
    let outcome = read_block(&block(Little, 3, &[&Little.b4(100)[..], &[0; 8]].concat()));
    let reason = "captured length 100 is over the 8 bytes of the block";
    assert_eq!(outcome.error_text(), format!("x: at byte 96: {reason}"));
}

#[test]
fn lightpcapng_5_an_option_beyond_its_block_is_an_error() {
    let bad = [&Little.b2(6)[..], &Little.b2(8), &[0; 4]].concat();
    let outcome = read_block(&packet(Little, 0, 6, &[3; 14], &bad));
    let reason = "option 6 of 8 bytes, 4 bytes are left in the block";
    assert_eq!(outcome.error_text(), format!("x: at byte 96: {reason}"));
    let outcome = read_block(&packet(Little, 0, 6, &[3; 14], &option(Little, 6, &[0; 2])));
    let reason = "option epb_queue has 2 bytes instead of 4";
    assert_eq!(outcome.error_text(), format!("x: at byte 96: {reason}"));
    let outcome = read_block(&interface(Little, 1, 0, &option(Little, 9, &[])));
    let reason = "option if_tsresol has 0 bytes instead of 1";
    assert_eq!(outcome.error_text(), format!("x: at byte 96: {reason}"));
}

#[test]
fn lightpcapng_5_a_second_section_may_have_the_other_byte_order() {
    let bytes = [
        section(Little),
        interface(Little, 1, 0, &[]),
        interface(Little, 113, 0, &[]),
        packet(Little, 1, 5, &[1; 16], &[]),
        section(Big),
        interface(Big, 101, 0, &[]),
        packet(Big, 0, 6, &[2; 5], &[]),
    ]
    .concat();
    let outcome = read_sound(&bytes);
    let seen: Vec<_> = outcome
        .packets
        .iter()
        .map(|packet| (packet.ts_ns, packet.link, packet.interface, packet.data.len()))
        .collect();
    // The interface of the second section is the third of the file.
    assert_eq!(seen, [(5000, 113, 1, 16), (6000, 101, 2, 5)]);
    // The interfaces of the first section are not those of the second.
    let bytes = [bytes, packet(Big, 1, 7, &[3; 5], &[])].concat();
    let reason = "interface 1 is not declared (1 are, from 0)";
    assert!(read(&bytes).error_text().ends_with(reason));
}

#[test]
fn lightpcapng_5_a_faulty_section_header_is_an_error() {
    for (at, with, reason) in [
        (8, [1, 2, 3, 4], "byte-order magic 0x04030201 of the section is neither"),
        (12, [2, 0, 0, 0], "pcapng version 2.0 is not read"),
        (12, [1, 0, 1, 0], "pcapng version 1.1 is not read"),
        (4, [12, 0, 0, 0], "block length 12 is below 28, the least for type 0xa0d0d0a"),
    ] {
        let mut bytes = section(Little);
        bytes[at..at + 4].copy_from_slice(&with);
        let error = read(&bytes).error_text();
        assert!(error.starts_with(&format!("x: at byte 0: {reason}")), "{error}");
    }
}

#[test]
fn lightpcapng_5_unknown_blocks_are_skipped_and_counted() {
    let bytes = [
        section(Big),
        block(Big, 4, &[0; 12]),
        interface(Big, 1, 0, &[]),
        block(Big, 0x8000_0001, &[1; 9]),
        packet(Big, 0, 5, &[1; 14], &[]),
        block(Big, 0x0bad, &[2; 40]),
        block(Big, 0x0bad, &[]),
        block(Big, 5, &[0; 12]),
    ]
    .concat();
    let outcome = read_sound(&bytes);
    assert_eq!(outcome.packets.len(), 1);
    assert_eq!(
        outcome.note_texts(),
        [
            "x: blocks of type 0x4 (name resolution) skipped: 1",
            "x: blocks of type 0x80000001 (local use) skipped: 1",
            "x: blocks of type 0xbad (custom) skipped: 2",
            "x: blocks of type 0x5 (interface statistics) skipped: 1",
        ]
    );
    // However many types there are, the notes stay few.
    let many = (0x100..0x200).flat_map(|kind| block(Big, kind, &[])).collect::<Vec<_>>();
    let outcome = read_sound(&[section(Big), many].concat());
    assert_eq!(outcome.notes.len(), 1 + 16 + 1);
    assert_eq!(outcome.note_texts()[17], "x: blocks of other types skipped: 240");
}

#[test]
fn the_block_limit_is_stated_and_bounds_what_is_kept() {
    let options = CaptureOptions { block_limit: 64, strict: false };
    let head = [section(Little), interface(Little, 1, 0, &[])].concat();
    let fits = [head.clone(), packet(Little, 0, 5, &[0; 32], &[])].concat();
    assert_eq!(read_with(&fits, &options).packets.len(), 1);
    let over = [head, packet(Little, 0, 5, &[0; 33], &[])].concat();
    assert_eq!(
        read_with(&over, &options).error_text(),
        "x: at byte 48: a block of 68 bytes is over the block limit of 64"
    );
    let head = pcap_header(Little, 0xa1b2_c3d4, 0, 1);
    let fits = [head.clone(), record(Little, 0, 0, 64, &[0; 64])].concat();
    assert_eq!(read_with(&fits, &options).packets.len(), 1);
    let over = [head, record(Little, 0, 0, 65, &[0; 65])].concat();
    assert_eq!(
        read_with(&over, &options).error_text(),
        "x: at byte 24: captured length 65 is over the 64 bytes of the block limit"
    );
}

#[test]
fn a_snapshot_length_costs_nothing_and_is_no_bound_below_what_writers_use() {
    for snaplen in [0, 1, 65_535, 0x7fff_ffff, u32::MAX] {
        let head = pcap_header(Little, 0xa1b2_c3d4, snaplen, 1);
        let outcome = read_sound(&[head, record(Little, 0, 0, 70_000, &[0; 70_000])].concat());
        assert_eq!(outcome.packets.len(), 1, "snapshot length {snaplen}");
        let blocks = [section(Little), interface(Little, 1, snaplen, &[])].concat();
        let outcome = read_sound(&[blocks, packet(Little, 0, 0, &[0; 70_000], &[])].concat());
        assert_eq!(outcome.packets.len(), 1, "snapshot length {snaplen}");
    }
    // A length that no writer with this snapshot length has is a fault, not a packet to wait for.
    let mut bytes = pcap_header(Little, 0xa1b2_c3d4, 65_535, 1);
    bytes.extend(record(Little, 0, 0, 0, &[]));
    bytes[32..36].copy_from_slice(&Little.b4(262_145));
    assert_eq!(
        read(&bytes).error_text(),
        "x: at byte 24: captured length 262145 is over the 262144 bytes of the snapshot length"
    );
}

#[test]
fn what_is_no_capture_is_named_by_its_first_bytes() {
    for (bytes, text) in [
        (&b""[..], "x: is empty (0 bytes), not a capture"),
        (b"#", "x: neither pcap nor pcapng: starts with 23"),
        (b"#!/bin/sh\n", "x: neither pcap nor pcapng: starts with 23 21 2f 62 69 6e 2f 73"),
        (
            b"\x7fELF\x02\x01\x01\x00",
            "x: neither pcap nor pcapng: starts with 7f 45 4c 46 02 01 01 00 (an ELF program)",
        ),
        (
            b"BZh91AY&SY",
            "x: neither pcap nor pcapng: starts with 42 5a 68 39 31 41 59 26 (bzip2: decompress it first)",
        ),
        (
            b"\xd4\xc3\xb2\xa1\x03\0\x04\0................",
            "x: at byte 0: pcap version 3.4 is not read",
        ),
    ] {
        assert_eq!(read(bytes).error_text(), text);
    }
}

#[test]
fn a_capture_without_packets_says_so() {
    let empty_pcap = pcap_header(Little, 0xa1b2_c3d4, 65_535, 1);
    let empty_pcapng = [section(Big), interface(Big, 1, 0, &[])].concat();
    for bytes in [empty_pcap, empty_pcapng, section(Little)] {
        let outcome = read_sound(&bytes);
        assert_eq!(outcome.note_texts(), ["x: a capture without packets (0 packets)"]);
    }
}

#[test]
fn more_interfaces_than_are_kept_are_an_error() {
    let one = interface(Little, 1, 0, &[]);
    let bytes = [section(Little), one.repeat(65_537)].concat();
    let mut captures = Captures::from_reader(
        "x",
        Box::new(std::io::Cursor::new(bytes)),
        &CaptureOptions::default(),
    )
    .expect("the header is sound");
    let error = captures.next_packet().expect_err("too many");
    assert!(matches!(error.reason(), CaptureFault::TooManyInterfaces(65_536)));
    assert_eq!(error.offset(), Some(28 + 65_536 * 20));
}

#[test]
fn paths_that_cannot_be_read_are_named() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let options = CaptureOptions::default();
    let error = Captures::open(&[folder], &options).expect_err("a directory");
    assert_eq!(error.to_string(), format!("{folder}: is a directory, not a capture"));
    let missing = format!("{folder}/no-such-capture.pcap");
    let error = Captures::open(&[&missing], &options).expect_err("a missing file");
    assert!(error.to_string().starts_with(&format!("{missing}: cannot open: No such file")));
}

#[test]
fn lightpcapng_5_a_file_and_a_pipe_give_the_same() {
    let bytes = five_packets().concat();
    let path = format!("{}/five-packets.pcapng", env!("CARGO_TARGET_TMPDIR"));
    for cut in [bytes.len(), 300, 150, 50, 7] {
        let bytes = bytes[..cut].to_vec();
        fs::write(&path, &bytes).expect("the file is written");
        let options = CaptureOptions::default();
        let file = drain(Captures::open(&[&path], &options));
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let feeder = std::thread::spawn(move || {
            for piece in bytes.chunks(5) {
                writer.write_all(piece).expect("the reader is there");
            }
        });
        let pipe = drain(Captures::from_reader(&path, Box::new(reader), &options));
        feeder.join().expect("the feeder ends");
        assert_eq!(file.packets, pipe.packets);
        assert_eq!(file.notes, pipe.notes);
        assert_eq!(file.error_text(), pipe.error_text());
    }
}

/// Found by the fuzzer: what is odd about a packet was counted before its fault was, and so again
/// whenever the fault was met again.
#[test]
fn a_packet_with_a_fault_is_not_counted_as_odd() {
    let options = [option(Little, 6, &Little.b4(65_536)), option(Little, 6, &[0; 3])].concat();
    let bytes = [
        section(Little),
        interface(Little, 1, 0, &option(Little, 14, &Little.b8(i64::MIN as u64))),
        packet(Little, 0, 1, &[0; 14], &[]),
        packet(Little, 0, 2, &[0; 14], &options),
    ]
    .concat();
    let reader = Box::new(std::io::Cursor::new(bytes));
    let mut captures =
        Captures::from_reader("x", reader, &CaptureOptions::default()).expect("sound");
    captures.next_packet().expect("sound").expect("a packet");
    for _ in 0..3 {
        let error = captures.next_packet().expect_err("an option of the wrong length");
        assert!(error.to_string().contains("epb_queue has 3 bytes"), "{error}");
        let kinds: Vec<_> = captures.notes().iter().map(|note| note.kind).collect();
        assert_eq!(kinds, [NoteKind::TimeOutOfRange { packets: 1 }]);
    }
}
