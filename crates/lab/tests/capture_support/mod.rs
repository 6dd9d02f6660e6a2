//! Captures byte by byte, made without the project's writer, and ways to read them.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{Cursor, Read};

use rxsteer_lab::capture::{CaptureError, CaptureNote, CaptureOptions, Captures};

/// Byte order of what is built.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Order {
    Little,
    Big,
}

pub(crate) use Order::{Big, Little};

impl Order {
    pub(crate) fn b2(self, value: u16) -> [u8; 2] {
        match self {
            Little => value.to_le_bytes(),
            Big => value.to_be_bytes(),
        }
    }

    pub(crate) fn b4(self, value: u32) -> [u8; 4] {
        match self {
            Little => value.to_le_bytes(),
            Big => value.to_be_bytes(),
        }
    }

    pub(crate) fn b8(self, value: u64) -> [u8; 8] {
        match self {
            Little => value.to_le_bytes(),
            Big => value.to_be_bytes(),
        }
    }
}

/// A pcapng block of any type; the body is padded to a multiple of 4.
pub(crate) fn block(order: Order, kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let length = order.b4(padded as u32 + 12);
    let mut out = [order.b4(kind), length].concat();
    out.extend(body);
    out.resize(8 + padded, 0);
    out.extend(length);
    out
}

/// A section header.
pub(crate) fn section(order: Order) -> Vec<u8> {
    let body = [&order.b4(0x1a2b_3c4d)[..], &order.b2(1), &order.b2(0), &[0xff; 8]].concat();
    block(order, 0x0a0d_0d0a, &body)
}

/// An option of a block.
pub(crate) fn option(order: Order, code: u16, value: &[u8]) -> Vec<u8> {
    let mut out = [order.b2(code), order.b2(value.len() as u16)].concat();
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// An interface description.
pub(crate) fn interface(order: Order, link: u16, snaplen: u32, options: &[u8]) -> Vec<u8> {
    let fixed = [&order.b2(link)[..], &order.b2(0), &order.b4(snaplen)].concat();
    block(order, 1, &[&fixed, options].concat())
}

/// An enhanced packet of which all bytes are captured.
pub(crate) fn packet(
    order: Order,
    interface: u32,
    time: u64,
    data: &[u8],
    options: &[u8],
) -> Vec<u8> {
    let length = data.len() as u32;
    let fixed = [interface, (time >> 32) as u32, time as u32, length, length];
    let mut body: Vec<u8> = fixed.iter().flat_map(|word| order.b4(*word)).collect();
    body.extend(data);
    body.resize(body.len().next_multiple_of(4), 0);
    body.extend(options);
    block(order, 6, &body)
}

/// A pcap file header.
pub(crate) fn pcap_header(order: Order, magic: u32, snaplen: u32, link: u32) -> Vec<u8> {
    let mut out = [&order.b4(magic)[..], &order.b2(2), &order.b2(4), &[0; 8]].concat();
    out.extend(order.b4(snaplen));
    out.extend(order.b4(link));
    out
}

/// A pcap record.
pub(crate) fn record(
    order: Order,
    seconds: u32,
    fraction: u32,
    orig_len: u32,
    data: &[u8],
) -> Vec<u8> {
    let words = [seconds, fraction, data.len() as u32, orig_len];
    words.iter().flat_map(|word| order.b4(*word)).chain(data.iter().copied()).collect()
}

/// Gives one byte at a time, as a slow pipe may.
pub(crate) struct ByteByByte(pub(crate) Cursor<Vec<u8>>);

impl Read for ByteByByte {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let one = out.len().min(1);
        self.0.read(&mut out[..one])
    }
}

/// A packet without what borrows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Seen {
    pub(crate) ts_ns: u64,
    pub(crate) orig_len: u32,
    pub(crate) link: u16,
    pub(crate) interface: u32,
    pub(crate) source: u16,
    pub(crate) data: Vec<u8>,
}

/// All that a reader gives of a capture.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) packets: Vec<Seen>,
    pub(crate) notes: Vec<CaptureNote>,
    pub(crate) error: Option<CaptureError>,
}

impl Outcome {
    /// The error in words, or `""`.
    pub(crate) fn error_text(&self) -> String {
        self.error.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    pub(crate) fn note_texts(&self) -> Vec<String> {
        self.notes.iter().map(ToString::to_string).collect()
    }
}

/// Reads to the end or to the first error, which must then come again.
pub(crate) fn drain(opened: Result<Captures, CaptureError>) -> Outcome {
    let mut captures = match opened {
        Ok(captures) => captures,
        Err(error) => return Outcome { packets: vec![], notes: vec![], error: Some(error) },
    };
    let mut packets = Vec::new();
    let error = loop {
        match captures.next_packet() {
            Ok(Some(packet)) => {
                assert_eq!(packet.data.len(), packet.cap_len as usize);
                packets.push(Seen {
                    ts_ns: packet.ts_ns,
                    orig_len: packet.orig_len,
                    link: packet.link.0,
                    interface: packet.interface,
                    source: packet.source,
                    data: packet.data.to_vec(),
                });
            }
            Ok(None) => {
                assert!(matches!(captures.next_packet(), Ok(None)), "after the end is the end");
                break None;
            }
            Err(error) => {
                let again = captures.next_packet().expect_err("a fault stays");
                assert_eq!(again.to_string(), error.to_string());
                break Some(error);
            }
        }
    };
    Outcome { packets, notes: captures.notes(), error }
}

/// Reads a capture named `x` at once and byte by byte, and checks that both give the same.
pub(crate) fn read_with(bytes: &[u8], options: &CaptureOptions) -> Outcome {
    let whole = Cursor::new(bytes.to_vec());
    let slow = ByteByByte(whole.clone());
    let whole = drain(Captures::from_reader("x", Box::new(whole), options));
    let slow = drain(Captures::from_reader("x", Box::new(slow), options));
    assert_eq!(whole.packets, slow.packets);
    assert_eq!(whole.notes, slow.notes);
    assert_eq!(whole.error_text(), slow.error_text());
    whole
}

/// Reads a capture with the default options.
pub(crate) fn read(bytes: &[u8]) -> Outcome {
    read_with(bytes, &CaptureOptions::default())
}

/// Reads a capture that must be sound.
pub(crate) fn read_sound(bytes: &[u8]) -> Outcome {
    let outcome = read(bytes);
    assert_eq!(outcome.error_text(), "");
    outcome
}
