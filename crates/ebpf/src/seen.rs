//! What one side, native or eBPF, makes of a frame; equal on both sides for every frame.

use rxsteer_core::FlowKey;
use rxsteer_core::dissect::{DissectError, Dissected};

/// The answer of core to one frame, in plain words that cross the border to user space.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct Seen {
    /// The key, field after field.
    pub key: [u32; Self::KEY_WORDS],
    /// 0 if the frame was read to its end, else 1 + the position of the error.
    pub stopped: u32,
    /// Hash of the key.
    pub hash: u32,
}

impl Seen {
    /// Number of words of a key.
    pub const KEY_WORDS: usize = 14;
    /// Number of words of the whole.
    pub const WORDS: usize = Self::KEY_WORDS + 2;

    /// Returns the value that a map holds as these words.
    pub const fn from_words(words: [u32; Self::WORDS]) -> Self {
        let [key @ .., stopped, hash] = words;
        Self { key, stopped, hash }
    }

    /// Writes down what core said of a frame.
    #[inline(always)]
    pub fn write(&mut self, out: &Dissected, result: Result<(), DissectError>, hash: u32) {
        self.key = words(&out.key);
        self.stopped = match result {
            Ok(()) => 0,
            Err(error) => 1 + u32::from(error.position()),
        };
        self.hash = hash;
    }
}

/// Returns every field of the key once, two 16-bit fields to a word.
#[inline(always)]
fn words(key: &FlowKey) -> [u32; Seen::KEY_WORDS] {
    let word = |bytes: &[u8; 16], at: usize| {
        u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let pair = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
    [
        word(&key.src, 0),
        word(&key.src, 4),
        word(&key.src, 8),
        word(&key.src, 12),
        word(&key.dst, 0),
        word(&key.dst, 4),
        word(&key.dst, 8),
        word(&key.dst, 12),
        pair(key.src_port, key.dst_port),
        key.key_id,
        key.flow_label,
        pair(key.vlan_tci, key.vlan_tpid),
        pair(key.vlan_inner_type, key.ethertype),
        pair(u16::from(key.protocol), key.addr_kind as u16),
    ]
}

const _: () = assert!(size_of::<Seen>() == 4 * Seen::WORDS);
