//! The writers, read back by `pcap-parser`, which shares nothing with them, and by our reader.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::Cursor;

use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, LegacyPcapReader, Linktype, PcapBlockOwned, PcapError, PcapNGReader};
use proptest::prelude::*;
use rxsteer_core::QueueId;
use rxsteer_lab::capture::{
    CaptureOptions, Captures, Direction, LinkType, Packet, PcapWriter, PcapngWriter,
};

/// A packet that owns its bytes.
#[derive(Clone, Debug)]
struct Sample {
    ts_ns: u64,
    interface: u32,
    orig_len: u32,
    queue: Option<u16>,
    direction: Direction,
    hash: Option<u32>,
    lost: u64,
    data: Vec<u8>,
}

const LINKS: [LinkType; 3] = [LinkType::ETHERNET, LinkType::LINUX_SLL2, LinkType::RAW];
/// Times that a pcap file can hold: its seconds have 32 bits.
const PCAP_TIMES: std::ops::Range<u64> = 0..(1 << 32) * 1_000_000_000;

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let direction =
        prop_oneof![Just(Direction::Unknown), Just(Direction::Inbound), Just(Direction::Outbound)];
    let sample = (
        PCAP_TIMES,
        0..LINKS.len() as u32,
        any::<u32>(),
        any::<Option<u16>>(),
        direction,
        any::<Option<u32>>(),
        prop_oneof![Just(0), any::<u64>()],
        prop::collection::vec(any::<u8>(), 0..100),
    );
    let sample =
        sample.prop_map(|(ts_ns, interface, orig_len, queue, direction, hash, lost, data)| {
            Sample { ts_ns, interface, orig_len, queue, direction, hash, lost, data }
        });
    prop::collection::vec(sample, 0..20)
}

fn packet(sample: &Sample) -> Packet<'_> {
    let link = LINKS[sample.interface as usize];
    Packet {
        orig_len: sample.orig_len,
        interface: sample.interface,
        queue: sample.queue.map(QueueId),
        direction: sample.direction,
        recorded_hash: sample.hash,
        lost_before: sample.lost,
        ..Packet::new(sample.ts_ns, link, &sample.data)
    }
}

fn pcapng(samples: &[Sample]) -> Vec<u8> {
    let mut writer = PcapngWriter::new(Vec::new()).unwrap();
    for (index, link) in LINKS.into_iter().enumerate() {
        // Names of every length modulo 4.
        let name = &"eth0eth"[index..];
        assert_eq!(writer.add_interface(name, link).unwrap(), index as u32);
    }
    for sample in samples {
        writer.write(&packet(sample)).unwrap();
    }
    writer.finish().unwrap()
}

fn pcap(samples: &[Sample]) -> Vec<u8> {
    let mut writer = PcapWriter::new(Vec::new(), LinkType::LINUX_SLL2).unwrap();
    for sample in samples {
        writer.write(sample.ts_ns, sample.orig_len, &sample.data).unwrap();
    }
    writer.finish().unwrap()
}

/// Calls `each` with every block that `pcap-parser` finds.
fn blocks<'a>(mut reader: impl PcapReaderIterator + 'a, mut each: impl FnMut(PcapBlockOwned<'_>)) {
    loop {
        match reader.next() {
            Ok((offset, block)) => {
                each(block);
                reader.consume(offset);
            }
            Err(PcapError::Eof) => return,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error:?}"),
        }
    }
}

proptest! {
    #[test]
    fn another_reader_finds_in_a_pcapng_what_was_written(samples in samples()) {
        let bytes = pcapng(&samples);
        let (mut sections, mut links, mut index) = (0, Vec::new(), 0);
        blocks(PcapNGReader::new(1 << 16, Cursor::new(bytes)).unwrap(), |block| match block {
            PcapBlockOwned::NG(Block::SectionHeader(_)) => sections += 1,
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                assert_eq!(interface.if_name().unwrap().unwrap(), &"eth0eth"[links.len()..]);
                assert_eq!(interface.if_tsresol, 9);
                links.push(interface.linktype);
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(found)) => {
                let sample = &samples[index];
                assert_eq!(found.if_id, sample.interface);
                assert_eq!(u64::from(found.ts_high) << 32 | u64::from(found.ts_low), sample.ts_ns);
                assert_eq!((found.caplen as usize, found.origlen), (sample.data.len(), sample.orig_len));
                assert_eq!(&found.data[..sample.data.len()], &sample.data);
                let option = |code: u16| {
                    let option = found.options.iter().find(|option| option.code.0 == code)?;
                    Some(option.as_bytes().unwrap())
                };
                let queue = sample.queue.map(|queue| u32::from(queue).to_le_bytes().to_vec());
                assert_eq!(option(6).map(<[u8]>::to_vec), queue);
                let flags = match sample.direction {
                    Direction::Unknown => None,
                    Direction::Inbound => Some(&[1, 0, 0, 0][..]),
                    Direction::Outbound => Some(&[2, 0, 0, 0][..]),
                };
                assert_eq!(option(2), flags);
                let hash = sample.hash.map(|hash| [&[5], &hash.to_be_bytes()[..]].concat());
                assert_eq!(option(3).map(<[u8]>::to_vec), hash);
                let lost = (sample.lost > 0).then_some(sample.lost.to_le_bytes().to_vec());
                assert_eq!(option(4).map(<[u8]>::to_vec), lost);
                index += 1;
            }
            _ => panic!("a block that was not written"),
        });
        prop_assert_eq!((sections, index), (1, samples.len()));
        prop_assert_eq!(links, [Linktype(1), Linktype(276), Linktype(101)]);
    }

    #[test]
    fn another_reader_finds_in_a_pcap_what_was_written(samples in samples()) {
        let bytes = pcap(&samples);
        let mut index = 0;
        blocks(LegacyPcapReader::new(1 << 16, Cursor::new(bytes)).unwrap(), |block| match block {
            PcapBlockOwned::LegacyHeader(header) => {
                assert!(header.is_nanosecond_precision());
                assert_eq!((header.version_major, header.version_minor), (2, 4));
                assert_eq!(header.network, Linktype(276));
            }
            PcapBlockOwned::Legacy(found) => {
                let sample = &samples[index];
                let time = u64::from(found.ts_sec) * 1_000_000_000 + u64::from(found.ts_usec);
                assert_eq!((time, found.origlen), (sample.ts_ns, sample.orig_len));
                assert_eq!(found.data, sample.data);
                index += 1;
            }
            _ => panic!("a block that was not written"),
        });
        prop_assert_eq!(index, samples.len());
    }

    #[test]
    fn our_reader_gives_back_what_was_written(samples in samples()) {
        let options = CaptureOptions::default();
        let bytes = Box::new(Cursor::new(pcapng(&samples)));
        let mut captures = Captures::from_reader("x", bytes, &options).unwrap();
        for sample in &samples {
            let found = captures.next_packet().unwrap();
            // The cooked header tells the direction where the block does not.
            let mut expected = packet(sample);
            if let (Some(found), Direction::Unknown) = (found, expected.direction) {
                expected.direction = found.direction;
                prop_assert!(found.link == LinkType::LINUX_SLL2 || found.direction == Direction::Unknown);
            }
            prop_assert_eq!(found, Some(expected));
        }
        prop_assert_eq!(captures.next_packet().unwrap(), None);
        let bytes = Box::new(Cursor::new(pcap(&samples)));
        let mut captures = Captures::from_reader("x", bytes, &options).unwrap();
        for sample in &samples {
            let found = captures.next_packet().unwrap().unwrap();
            prop_assert_eq!((found.ts_ns, found.orig_len), (sample.ts_ns, sample.orig_len));
            prop_assert_eq!((found.data, found.link), (&sample.data[..], LinkType::LINUX_SLL2));
        }
        prop_assert_eq!(captures.next_packet().unwrap(), None);
    }
}

#[test]
fn what_a_format_cannot_hold_is_refused_and_nothing_of_it_is_written() {
    let mut writer = PcapWriter::new(Vec::new(), LinkType::RAW).unwrap();
    writer.write(PCAP_TIMES.end - 1, 1, &[1]).unwrap();
    writer.write(PCAP_TIMES.end, 1, &[2]).unwrap_err();
    writer.write(0, 300_000, &vec![0; 262_145]).unwrap_err();
    assert_eq!(writer.finish().unwrap().len(), 24 + 16 + 1);
    let mut writer = PcapngWriter::new(Vec::new()).unwrap();
    writer.write(&Packet::new(0, LinkType::RAW, &[1])).unwrap_err();
    writer.add_interface(&"x".repeat(65_536), LinkType::RAW).unwrap_err();
    let raw = writer.add_interface("raw", LinkType::RAW).unwrap();
    writer.write(&Packet::new(0, LinkType::ETHERNET, &[1])).unwrap_err();
    let large = vec![0; 262_145];
    writer.write(&Packet { interface: raw, ..Packet::new(0, LinkType::RAW, &large) }).unwrap_err();
    writer.write(&Packet { interface: raw, ..Packet::new(0, LinkType::RAW, &[7]) }).unwrap();
    let bytes = Box::new(Cursor::new(writer.finish().unwrap()));
    let mut captures = Captures::from_reader("x", bytes, &CaptureOptions::default()).unwrap();
    assert_eq!(captures.next_packet().unwrap().unwrap().data, [7]);
    assert_eq!(captures.next_packet().unwrap(), None);
}
