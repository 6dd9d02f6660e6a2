//! Writing another source into a frame, with its checksums.
//!
//! Always true: a frame whose checksums were right has right ones afterwards.
//! Source: RFC 1624, equation 3, on updating a checksum for a changed field.

/// Returns a checksum after a 16-bit field changed.
fn updated(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Returns the checksum over several pieces, each of which but the last has an even length (RFC 1071).
pub(crate) fn checksum_over(pieces: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for piece in pieces {
        let (words, rest) = piece.as_chunks::<2>();
        sum += words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
        sum += rest.first().map_or(0, |byte| u64::from(*byte) << 8);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Where in a frame things are that a source changes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Places {
    /// Low four bytes of the source address: all of an IPv4 address, the end of an IPv6 one.
    pub(crate) address: usize,
    /// Checksum of the IPv4 header.
    pub(crate) ip_checksum: Option<usize>,
    /// Source port.
    pub(crate) port: Option<usize>,
    /// Checksum of UDP or TCP, which covers address and port.
    pub(crate) checksum: Option<Checksum>,
    /// Identification of an IPv4 packet, for fragments.
    pub(crate) id: Option<usize>,
}

/// A checksum of a transport header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Checksum {
    /// Where it is.
    pub(crate) at: usize,
    /// Whether 0 means that there is none, so that a sum of 0 is written as 0xffff (RFC 768).
    pub(crate) is_udp: bool,
}

impl Places {
    /// Writes the low bytes of a source address and a port into a frame.
    pub(crate) fn write(&self, frame: &mut [u8], address: [u8; 4], port: u16) {
        let [a, b, c, d] = address;
        for (place, word) in [(self.address, [a, b]), (self.address + 2, [c, d])] {
            let old = self.word(frame, place, u16::from_be_bytes(word));
            self.sum(frame, self.ip_checksum.map(plain), old, u16::from_be_bytes(word));
            self.sum(frame, self.checksum, old, u16::from_be_bytes(word));
        }
        if let Some(place) = self.port {
            let old = self.word(frame, place, port);
            self.sum(frame, self.checksum, old, port);
        }
    }

    /// Writes the identification of an IPv4 packet.
    pub(crate) fn write_id(&self, frame: &mut [u8], id: u16) {
        if let Some(place) = self.id {
            let old = self.word(frame, place, id);
            self.sum(frame, self.ip_checksum.map(plain), old, id);
        }
    }

    /// Exchanges a word.
    fn word(&self, frame: &mut [u8], at: usize, new: u16) -> u16 {
        let word = &mut frame[at..at + 2];
        let old = u16::from_be_bytes([word[0], word[1]]);
        word.copy_from_slice(&new.to_be_bytes());
        old
    }

    fn sum(&self, frame: &mut [u8], checksum: Option<Checksum>, old: u16, new: u16) {
        let Some(Checksum { at, is_udp }) = checksum else { return };
        let place = &mut frame[at..at + 2];
        let before = u16::from_be_bytes([place[0], place[1]]);
        let after = match updated(before, old, new) {
            0 if is_udp => 0xffff,
            after => after,
        };
        place.copy_from_slice(&after.to_be_bytes());
    }
}

const fn plain(at: usize) -> Checksum {
    Checksum { at, is_udp: false }
}
