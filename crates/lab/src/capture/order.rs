//! Byte order of a capture: that of the host that wrote it.

/// Byte order of the integers in a pcap file or a pcapng section.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// Reads the two bytes at `at`, which must be there.
    #[inline(always)]
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let raw = [bytes[at], bytes[at + 1]];
        match self {
            Self::Little => u16::from_le_bytes(raw),
            Self::Big => u16::from_be_bytes(raw),
        }
    }

    /// Reads the four bytes at `at`, which must be there.
    #[inline(always)]
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let raw = *bytes[at..].first_chunk().expect("the caller checked the length");
        match self {
            Self::Little => u32::from_le_bytes(raw),
            Self::Big => u32::from_be_bytes(raw),
        }
    }

    /// Reads the eight bytes at `at`, which must be there.
    #[inline(always)]
    pub(super) fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let raw = *bytes[at..].first_chunk().expect("the caller checked the length");
        match self {
            Self::Little => u64::from_le_bytes(raw),
            Self::Big => u64::from_be_bytes(raw),
        }
    }
}
