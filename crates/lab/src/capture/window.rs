//! The buffer between an input and a parser: bytes are read into it once and parsed in place.
//!
//! The parser asks for so many contiguous bytes from its place on; they are there, or the input
//! has ended. What the input gives at a time does not show.
//!
//! Always true: memory is at most the larger of the first size and twice the most that was asked
//! for; it grows only as bytes arrive, never for a length that a file merely states.

use std::io::{self, ErrorKind, Read};

/// First size of a buffer, in bytes.
pub(super) const FIRST_BYTES: usize = 64 << 10;

/// A stretch of the input that is in memory.
pub(super) struct Window {
    input: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// Unparsed bytes are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Offset in the input of `buffer[0]`.
    base: u64,
    ended: bool,
    /// The input ended with `UnexpectedEof`, as a decompressor does whose own input ends early.
    cut: bool,
}

impl Window {
    pub(super) fn new(input: Box<dyn Read + Send>, first_bytes: usize) -> Self {
        let buffer = vec![0; first_bytes];
        Self { input, buffer, start: 0, end: 0, base: 0, ended: false, cut: false }
    }

    /// Makes `count` bytes available, or returns `false` if the input ends before.
    ///
    /// After an error it can be called again: nothing is lost, and nothing is read twice.
    #[inline(always)]
    pub(super) fn ensure(&mut self, count: usize) -> io::Result<bool> {
        if self.end - self.start >= count { Ok(true) } else { self.fill(count) }
    }

    #[cold]
    #[inline(never)]
    fn fill(&mut self, count: usize) -> io::Result<bool> {
        while self.end - self.start < count {
            if self.ended {
                return Ok(false);
            }
            if self.start > 0 && self.start + count > self.buffer.len() {
                self.shift();
            }
            if self.end == self.buffer.len() {
                let bytes = count.min(self.buffer.len() * 2);
                self.buffer.resize(bytes, 0);
            }
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    (self.ended, self.cut) = (true, true);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn shift(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        self.base += self.start as u64;
        self.end -= self.start;
        self.start = 0;
    }

    /// Returns the unparsed bytes that are in memory: at least those that were ensured.
    #[inline(always)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Returns the bytes at a place that [`place`](Self::place) gave, if no more were ensured since.
    #[inline(always)]
    pub(super) fn at(&self, place: usize, len: usize) -> &[u8] {
        &self.buffer[place..place + len]
    }

    /// Returns the place in the buffer of the byte `ahead` of the first unparsed one.
    #[inline(always)]
    pub(super) fn place(&self, ahead: usize) -> usize {
        self.start + ahead
    }

    /// Takes `count` bytes, which must have been ensured, as parsed.
    #[inline(always)]
    pub(super) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start += count;
    }

    /// Returns the offset in the input of the first unparsed byte.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.base + self.start as u64
    }

    /// Returns how many unparsed bytes are left in memory; all that the input has, once it ended.
    pub(super) fn left(&self) -> usize {
        self.end - self.start
    }

    /// Returns whether the input ended as a cut stream does.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives the bytes 0, 1, 2 … (modulo 251) in pieces of the sizes listed, over and over.
    struct Pieces {
        at: usize,
        total: usize,
        sizes: Vec<usize>,
        calls: usize,
    }

    impl Read for Pieces {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.calls += 1;
            if self.calls.is_multiple_of(3) {
                return Err(ErrorKind::Interrupted.into());
            }
            let size = self.sizes[self.calls % self.sizes.len()];
            let count = size.min(out.len()).min(self.total - self.at);
            for byte in &mut out[..count] {
                *byte = (self.at % 251) as u8;
                self.at += 1;
            }
            Ok(count)
        }
    }

    #[test]
    fn bytes_come_in_order_whatever_the_pieces() {
        for sizes in [vec![1], vec![7, 1, 100], vec![4096]] {
            let input = Pieces { at: 0, total: 5000, sizes, calls: 0 };
            let mut window = Window::new(Box::new(input), 64);
            let mut taken = 0usize;
            for ask in (1..200).cycle() {
                if !window.ensure(ask).unwrap() {
                    break;
                }
                for (ahead, byte) in window.bytes()[..ask].iter().enumerate() {
                    assert_eq!(*byte, ((taken + ahead) % 251) as u8);
                }
                assert_eq!(window.offset(), taken as u64);
                window.consume(ask);
                taken += ask;
            }
            assert_eq!(taken + window.left(), 5000);
            assert!(!window.is_cut());
            assert!(window.buffer.len() <= 400);
        }
    }

    #[test]
    fn a_large_demand_costs_memory_only_as_bytes_arrive() {
        let input = Pieces { at: 0, total: 1000, sizes: vec![1000], calls: 0 };
        let mut window = Window::new(Box::new(input), 64);
        assert!(!window.ensure(1 << 40).unwrap());
        assert_eq!(window.left(), 1000);
        assert!(window.buffer.len() <= 2048, "{} bytes", window.buffer.len());
    }
}
