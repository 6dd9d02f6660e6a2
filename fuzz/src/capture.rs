//! Harness of the capture reader: any bytes at all.
//!
//! Read at once, and once more in pieces: the same packets, notes and errors, and of each what its
//! documentation promises. Every packet goes to the link layer and on to the dissector.

use std::io::{Cursor, Read};

use rxsteer_core::dissect::{Dissected, Options, Start, dissect};
use rxsteer_lab::capture::{
    CaptureError, CaptureFault, CaptureNote, CaptureOptions, Captures, NoteKind, Packet,
};

/// Packets after which a capture is long enough; compressed data may hold millions.
const PACKETS: usize = 5_000;
/// A limit that small inputs reach.
const BLOCK_LIMIT: u32 = 4_096;

/// Reads the bytes as a capture.
///
/// # Panics
/// If the reader breaks a promise.
pub fn check(data: &[u8]) {
    let options = CaptureOptions::default();
    let pieces = 1 + data.len() % 13;
    let whole = captures(data, usize::MAX, &options);
    let slow = captures(data, pieces, &options);
    both(whole, slow);
    // A lower limit refuses more, and gives the same until then.
    let small = CaptureOptions { block_limit: BLOCK_LIMIT, ..options.clone() };
    if let (Ok(mut whole), Ok(mut small)) =
        (captures(data, usize::MAX, &options), captures(data, usize::MAX, &small))
    {
        for _ in 0..PACKETS {
            match (whole.next_packet(), small.next_packet()) {
                (Ok(Some(whole)), Ok(Some(small))) => assert_eq!(whole, small),
                (_, Err(_)) | (Ok(None), Ok(None)) => break,
                (whole, small) => panic!("with a lower limit {small:?} instead of {whole:?}"),
            }
        }
    }
    // Whoever is strict gets an error instead of a note, after the same packets.
    let strict = CaptureOptions { strict: true, ..options };
    let (notes, packets) = drain(captures(data, usize::MAX, &strict));
    assert!(notes.iter().all(|note| !note.is_damage()) || packets.is_err());
}

fn captures(data: &[u8], piece: usize, options: &CaptureOptions) -> Result<Captures, CaptureError> {
    let reader = Pieces { data: Cursor::new(data.to_vec()), piece };
    Captures::from_reader("input", Box::new(reader), options)
}

/// Gives at most so many bytes at a time.
struct Pieces {
    data: Cursor<Vec<u8>>,
    piece: usize,
}

impl Read for Pieces {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let most = out.len().min(self.piece);
        self.data.read(&mut out[..most])
    }
}

fn both(whole: Result<Captures, CaptureError>, slow: Result<Captures, CaptureError>) {
    let (mut whole, mut slow) = match (whole, slow) {
        (Ok(whole), Ok(slow)) => (whole, slow),
        (Err(whole), Err(slow)) => return assert_eq!(text(&whole), text(&slow)),
        (whole, slow) => panic!("at once {:?}, in pieces {:?}", whole.err(), slow.err()),
    };
    for _ in 0..PACKETS {
        match (whole.next_packet(), slow.next_packet()) {
            (Ok(Some(packet)), Ok(Some(same))) => {
                assert_eq!(packet, same);
                packet_is_sound(&packet);
            }
            (Ok(None), Ok(None)) => {
                assert!(matches!(whole.next_packet(), Ok(None)), "after the end is the end");
                break;
            }
            (Err(error), Err(same)) => {
                assert_eq!(text(&error), text(&same));
                let again = whole.next_packet().expect_err("a fault stays");
                assert_eq!(text(&again), text(&error));
                break;
            }
            (whole, slow) => panic!("at once {whole:?}, in pieces {slow:?}"),
        }
    }
    let notes = whole.notes();
    assert_eq!(notes, slow.notes());
    for note in notes {
        assert!(!note.to_string().is_empty());
        if let NoteKind::Truncated(cut) = note.kind {
            assert!(cut.left < cut.wants || cut.compressed && cut.wants == 0, "{cut:?}");
        }
    }
}

/// Returns what an error says, after a look at what it must have.
fn text(error: &CaptureError) -> String {
    assert_eq!(error.file(), "input");
    let placeless = matches!(
        error.reason(),
        CaptureFault::Empty | CaptureFault::NotACapture(_) | CaptureFault::Read(_)
    );
    assert!(error.offset().is_some() || placeless, "{error:?}");
    error.to_string()
}

fn packet_is_sound(packet: &Packet<'_>) {
    assert_eq!(packet.data.len(), packet.cap_len as usize);
    assert!(packet.cap_len <= CaptureOptions::default().block_limit);
    let Ok((start, offset)) = packet.link.start(packet.data) else { return };
    assert!(offset <= packet.data.len());
    if let Start::Network { offset: same, .. } = start {
        assert_eq!(usize::from(same), offset);
    }
    let mut out = Dissected::EMPTY;
    for options in [Options::KERNEL, Options::INNER] {
        let _ = dissect(packet.data, start, &options, &mut out);
    }
}

fn drain(
    captures: Result<Captures, CaptureError>,
) -> (Vec<CaptureNote>, Result<usize, CaptureError>) {
    let mut captures = match captures {
        Ok(captures) => captures,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let mut packets = 0;
    let packets = loop {
        match captures.next_packet() {
            Ok(Some(_)) if packets < PACKETS => packets += 1,
            Ok(_) => break Ok(packets),
            Err(error) => break Err(error),
        }
    };
    (captures.notes(), packets)
}
