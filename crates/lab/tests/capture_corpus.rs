//! The capture reader against a corpus of captures with a table of what is in each.
//!
//! Reads the folder `corpus` below `RXSTEER_SHARED`: `captures.tsv` (one line a capture) and
//! `flows.tsv` (one line a packet, written by another program). Skips where that is not set.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Read};
use std::path::PathBuf;

use rxsteer_core::dissect::Start;
use rxsteer_lab::capture::{CaptureOptions, Captures, LinkType};

fn corpus() -> Option<PathBuf> {
    let Some(shared) = std::env::var_os("RXSTEER_SHARED") else {
        eprintln!("skipped: RXSTEER_SHARED does not say where the corpus is");
        return None;
    };
    Some(PathBuf::from(shared).join("corpus"))
}

/// Rows of a table, each as a map from column to value.
fn rows(text: &str) -> impl Iterator<Item = BTreeMap<&str, &str>> {
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().expect("a table has a first line").split('\t').collect();
    lines.map(move |line| columns.iter().copied().zip(line.split('\t')).collect())
}

/// A reader that gives one byte at a time, as a slow pipe may.
struct ByteByByte(Cursor<Vec<u8>>);

impl Read for ByteByByte {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let one = out.len().min(1);
        self.0.read(&mut out[..one])
    }
}

/// All that is known of every packet, and the notes.
fn everything(mut captures: Captures) -> (Vec<String>, Vec<String>) {
    let mut packets = Vec::new();
    while let Some(packet) = captures.next_packet().expect("the capture is sound") {
        packets.push(format!("{packet:?}"));
    }
    (packets, captures.notes().iter().map(ToString::to_string).collect())
}

#[test]
fn every_packet_of_the_corpus_has_the_lengths_and_link_type_of_the_table() {
    let Some(corpus) = corpus() else { return };
    let flows = fs::read_to_string(corpus.join("flows.tsv")).expect("flows.tsv");
    let mut expected: BTreeMap<&str, Vec<(u16, u32, u32, &str)>> = BTreeMap::new();
    for row in rows(&flows) {
        let number = |column: &str| row[column].parse().expect("a number");
        let packets = expected.entry(row["capture"]).or_default();
        packets.push((
            number("linktype") as u16,
            number("caplen"),
            number("wirelen"),
            row["handed"],
        ));
        assert_eq!(row["pkt"].parse(), Ok(packets.len()), "{row:?}");
    }
    let table = fs::read_to_string(corpus.join("captures.tsv")).expect("captures.tsv");
    let mut files = 0;
    for row in rows(&table) {
        let path = corpus.join(row["capture"]);
        let mut captures = Captures::open(&[&path], &CaptureOptions::default())
            .unwrap_or_else(|error| panic!("{error}"));
        let packets = expected.remove(row["capture"]).unwrap_or_default();
        assert_eq!(row["packets"].parse(), Ok(packets.len()), "{row:?}");
        for (index, (link, cap_len, orig_len, handed)) in packets.into_iter().enumerate() {
            let packet = captures
                .next_packet()
                .unwrap_or_else(|error| panic!("packet {}: {error}", index + 1))
                .unwrap_or_else(|| panic!("{}: only {index} packets", path.display()));
            let context = format!("{} packet {}", path.display(), index + 1);
            assert_eq!(
                (packet.link, packet.cap_len, packet.orig_len, packet.data.len()),
                (LinkType(link), cap_len, orig_len, cap_len as usize),
                "{context}"
            );
            let start = packet.link.start(packet.data).ok().map(|(start, at)| match start {
                Start::Ethernet => "asis".to_owned(),
                Start::Network { ethertype, offset } => {
                    assert_eq!(usize::from(offset), at, "{context}");
                    format!("eth:{ethertype:04x}+{offset}")
                }
            });
            assert_eq!(start.as_deref().unwrap_or("-"), handed, "{context}");
        }
        let rest = captures.next_packet().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(rest, None, "{}", path.display());
        assert!(captures.notes().iter().all(|note| !note.is_damage()), "{:?}", captures.notes());
        let bytes: u64 = row["bytes"].parse().expect("a size");
        assert_eq!((captures.bytes_read(), captures.total_bytes()), (bytes, Some(bytes)));
        files += 1;
    }
    assert!(files > 0, "the table of captures is empty");
    assert!(expected.is_empty(), "captures that the first table does not have: {expected:?}");
    eprintln!("{files} captures read");
}

#[test]
fn every_capture_of_the_corpus_reads_the_same_byte_by_byte() {
    let Some(corpus) = corpus() else { return };
    let table = fs::read_to_string(corpus.join("captures.tsv")).expect("captures.tsv");
    let options = CaptureOptions::default();
    for row in rows(&table) {
        let bytes = fs::read(corpus.join(row["capture"])).expect("the capture");
        let whole = Captures::from_reader("x", Box::new(Cursor::new(bytes.clone())), &options);
        let slow = Captures::from_reader("x", Box::new(ByteByByte(Cursor::new(bytes))), &options);
        let (whole, slow) = (whole.expect("readable"), slow.expect("readable"));
        assert_eq!(everything(whole), everything(slow), "{}", row["capture"]);
    }
}
