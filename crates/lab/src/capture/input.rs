//! Inputs: files, the standard input and other readers; decompression by magic.
//!
//! Always true: compressed bytes are handed to the decompressor in full pieces of the same size,
//! whatever the input gives at a time, so that a fault in them shows at the same packet from a
//! file and from a pipe. Of what a decompressor wrote in the call that meets a fault nothing can be
//! told, so up to one buffer of packets before a fault in compressed data is lost with it; data
//! that just end early lose nothing.
//!
//! Memory: gzip keeps a window of 32 KiB, zstd one of at most 2^27 bytes (what `zstd --long`
//! writes); a frame that asks for more is refused.

use std::fs::File;
use std::io::{self, BufReader, Chain, Cursor, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

use super::error::CaptureFault;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// First frame of a zstd file that begins with a skippable frame: 0x184d2a50 to 0x184d2a5f.
const ZSTD_SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Compressed bytes that a decompressor is given at a time.
const PIECE_BYTES: usize = 64 << 10;

/// An input that is open: its bytes after decompression, and how far it was read before that.
pub(super) struct Input {
    pub(super) bytes: Box<dyn Read + Send>,
    pub(super) progress: Arc<AtomicU64>,
    /// Bytes on disk, if it is a regular file.
    pub(super) total: Option<u64>,
}

/// Opens a file, or the standard input for `-`.
pub(super) fn open(path: &Path) -> Result<Input, CaptureFault> {
    if path.as_os_str() == "-" {
        return from_reader(Box::new(io::stdin()));
    }
    let metadata = std::fs::metadata(path).map_err(CaptureFault::Open)?;
    if metadata.is_dir() {
        return Err(CaptureFault::Directory);
    }
    let file = File::open(path).map_err(CaptureFault::Open)?;
    let input = from_reader(Box::new(file))?;
    Ok(Input { total: metadata.is_file().then_some(metadata.len()), ..input })
}

/// Looks at the first bytes of a reader and puts the decompressor before it that they ask for.
pub(super) fn from_reader(reader: Box<dyn Read + Send>) -> Result<Input, CaptureFault> {
    let progress = Arc::new(AtomicU64::new(0));
    let mut reader = Counted { reader, read: Arc::clone(&progress) };
    let mut first = [0; 4];
    let count = read_full(&mut reader, &mut first).map_err(CaptureFault::Read)?;
    let first = first[..count].to_vec();
    let is_gzip = first.starts_with(&GZIP_MAGIC);
    let is_zstd = first == ZSTD_MAGIC
        || (count == 4 && first[1..] == ZSTD_SKIPPABLE && (0x50..=0x5f).contains(&first[0]));
    let raw = Cursor::new(first).chain(reader);
    let bytes: Box<dyn Read + Send> = if is_gzip {
        Box::new(Sound { decoder: MultiGzDecoder::new(pieces(raw)), fault: None })
    } else if is_zstd {
        let mut decoder = zstd::Decoder::with_buffer(pieces(raw)).map_err(CaptureFault::Read)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(CaptureFault::Read)?;
        Box::new(Sound { decoder, fault: None })
    } else {
        Box::new(raw)
    };
    Ok(Input { bytes, progress, total: None })
}

type Raw = Chain<Cursor<Vec<u8>>, Counted>;

fn pieces(raw: Raw) -> BufReader<Full> {
    BufReader::with_capacity(PIECE_BYTES, Full(raw))
}

/// A decompressor whose faults stay: asked again after one, it would go on or claim to have ended.
struct Sound<D> {
    decoder: D,
    fault: Option<(ErrorKind, String)>,
}

impl<D: Read> Read for Sound<D> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Some((kind, text)) = &self.fault {
            return Err(io::Error::new(*kind, text.clone()));
        }
        self.decoder.read(out).inspect_err(|error| match error.kind() {
            ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
            kind => self.fault = Some((kind, error.to_string())),
        })
    }
}

/// Counts the bytes that go through.
struct Counted {
    reader: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(out)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Gives less than was asked for only at the end of the input.
struct Full(Raw);

impl Read for Full {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        read_full(&mut self.0, out)
    }
}

fn read_full<R: Read>(reader: &mut R, out: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < out.len() {
        match reader.read(&mut out[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // What came before the fault is given first; the fault comes again with the next call.
            Err(_) if filled > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
