//! Packets a second out of captures, beside a plain loop over the same bytes as the floor and
//! another reader as a peer.
//!
//! `cargo bench -p rxsteer-lab --bench capture`. Each case is named by format and packet size; the
//! captures are in memory, but for `file`, which is read from the page cache.

use std::hint::black_box;
use std::io::{Cursor, Read, Write};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, PcapBlockOwned, PcapError, PcapNGReader};
use rxsteer_core::QueueId;
use rxsteer_lab::capture::{CaptureOptions, Captures, LinkType, Packet, PcapWriter, PcapngWriter};

const PACKETS: u64 = 200_000;
const FRAME_BYTES: [usize; 2] = [64, 1500];

/// A frame that compresses about as traffic does: half of it is the same in all.
fn frame(index: u64, bytes: usize) -> Vec<u8> {
    let mut state = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|at| if at % 2 == 0 { at as u8 } else { next() }).collect()
}

fn pcap(bytes: usize) -> Vec<u8> {
    let mut writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET).expect("into memory");
    for index in 0..PACKETS {
        writer.write(index * 1000, bytes as u32, &frame(index, bytes)).expect("into memory");
    }
    writer.finish().expect("into memory")
}

fn pcapng(bytes: usize, queue: Option<QueueId>) -> Vec<u8> {
    let mut writer = PcapngWriter::new(Vec::new()).expect("into memory");
    writer.add_interface("eth0", LinkType::ETHERNET).expect("into memory");
    for index in 0..PACKETS {
        let frame = frame(index, bytes);
        let packet = Packet { queue, ..Packet::new(index * 1000, LinkType::ETHERNET, &frame) };
        writer.write(&packet).expect("into memory");
    }
    writer.finish().expect("into memory")
}

/// Reads every packet; touches what a user of the reader looks at first.
fn read_all(mut captures: Captures) -> u64 {
    let (mut packets, mut sum) = (0, 0);
    while let Some(packet) = captures.next_packet().expect("sound") {
        sum += u64::from(packet.data[packet.data.len() / 2]) + packet.ts_ns;
        packets += 1;
    }
    black_box(sum);
    packets
}

/// The least that anyone can do to find the packets of a pcap in memory.
fn floor(bytes: &[u8]) -> u64 {
    let (mut at, mut packets, mut sum) = (24, 0, 0);
    while let Some(record) = bytes.get(at..at + 16) {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| record[at + byte]));
        let length = word(8) as usize;
        sum += u64::from(bytes[at + 16 + length / 2]);
        sum += u64::from(word(0)) * 1_000_000_000 + u64::from(word(4));
        at += 16 + length;
        packets += 1;
    }
    black_box(sum);
    packets
}

/// The same work with `pcap-parser`, as a peer.
fn peer(bytes: &[u8]) -> u64 {
    let (mut packets, mut sum) = (0, 0);
    let mut reader = PcapNGReader::new(64 << 10, bytes).expect("sound");
    loop {
        match reader.next() {
            Ok((length, block)) => {
                if let PcapBlockOwned::NG(Block::EnhancedPacket(packet)) = block {
                    sum += u64::from(packet.data[packet.caplen as usize / 2]);
                    sum += u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                    packets += 1;
                }
                reader.consume_noshift(length);
            }
            Err(PcapError::Incomplete(_)) => reader.refill().expect("in memory"),
            Err(PcapError::Eof) => break,
            Err(_) => panic!("the capture is sound"),
        }
    }
    black_box(sum);
    packets
}

fn case(group: &mut BenchmarkGroup<'_, WallTime>, name: String, bytes: Vec<u8>) {
    let bytes: &'static [u8] = bytes.leak();
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            let reader: Box<dyn Read + Send> = Box::new(Cursor::new(bytes));
            let captures = Captures::from_reader("memory", reader, &CaptureOptions::default());
            assert_eq!(read_all(captures.expect("sound")), PACKETS);
        });
    });
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("capture");
    group.throughput(Throughput::Elements(PACKETS)).sample_size(20);
    for size in FRAME_BYTES {
        let plain = pcap(size);
        group.bench_function(format!("floor/{size}B"), |bencher| {
            bencher.iter(|| assert_eq!(floor(black_box(&plain)), PACKETS));
        });
        let path = format!("{}/bench-{size}.pcap", env!("CARGO_TARGET_TMPDIR"));
        std::fs::write(&path, &plain).expect("the target folder can be written");
        group.bench_function(format!("file/{size}B"), |bencher| {
            bencher.iter(|| {
                let captures = Captures::open(&[&path], &CaptureOptions::default());
                assert_eq!(read_all(captures.expect("sound")), PACKETS);
            });
        });
        std::fs::remove_file(&path).expect("the file was written");
        case(&mut group, format!("pcap/{size}B"), plain);
        let blocks = pcapng(size, None);
        group.bench_function(format!("pcapng_by_pcap_parser/{size}B"), |bencher| {
            bencher.iter(|| assert_eq!(peer(black_box(&blocks)), PACKETS));
        });
        case(&mut group, format!("pcapng/{size}B"), blocks);
        case(&mut group, format!("pcapng_queue/{size}B"), pcapng(size, Some(QueueId(3))));
    }
    let plain = pcap(64);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&plain).expect("into memory");
    case(&mut group, "gzip/64B".into(), gzip.finish().expect("into memory"));
    case(&mut group, "zstd/64B".into(), zstd::encode_all(&plain[..], 3).expect("into memory"));
    // Two captures of half the packets each, merged.
    let half = |from: u64| {
        let mut writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET).expect("into memory");
        for index in (from..PACKETS).step_by(2) {
            writer.write(index * 1000, 64, &frame(index, 64)).expect("into memory");
        }
        &*writer.finish().expect("into memory").leak()
    };
    let halves = [half(0), half(1)];
    group.bench_function("merge_2/64B", |bencher| {
        bencher.iter(|| {
            let reader = |bytes: &'static [u8]| -> (String, Box<dyn Read + Send>) {
                ("memory".into(), Box::new(Cursor::new(bytes)))
            };
            let options = CaptureOptions::default();
            let captures = Captures::from_readers(halves.map(reader).into(), &options);
            assert_eq!(read_all(captures.expect("sound")), PACKETS);
        });
    });
    group.finish();
}

criterion_group!(capture, benches);
criterion_main!(capture);
