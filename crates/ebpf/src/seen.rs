//! What one side, native or eBPF, makes of a frame; equal on both sides for every frame.

use rxsteer_core::dissect::{DissectError, Dissected};
use rxsteer_core::steer::Decision;
use rxsteer_core::{CpuId, FlowHash};

/// All that core says of one frame, as words that cross the border to user space.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct Seen {
    /// See [`Seen::write`] for what stands where.
    pub words: [u32; Self::WORDS],
}

impl Seen {
    /// Number of words.
    pub const WORDS: usize = 38;

    /// Nothing seen yet.
    pub const EMPTY: Self = Self { words: [0; Self::WORDS] };

    /// Returns how core's reading ended, in a word: 0 at the end of the flow, else the variant of
    /// the error + 1 in the high half and its position in the low.
    #[inline(always)]
    pub fn stopped(result: Result<(), DissectError>) -> u32 {
        match result {
            Ok(()) => 0,
            Err(error) => (1 + error.index() as u32) << 16 | u32::from(error.position()),
        }
    }

    /// Writes down every field of what core said; `stopped` comes from [`Seen::stopped`].
    ///
    /// Two steps, so that an eBPF program can pass the first one's answer through
    /// [`Bytes::forget`](rxsteer_core::Bytes::forget): one way leads on instead of one an error.
    #[inline(always)]
    pub fn write(&mut self, out: &Dissected, stopped: u32, hash: FlowHash, decision: &Decision) {
        let key = &out.key;
        let outer = out.outer();
        let bytes = |a, b, c, d| u32::from_be_bytes([a, b, c, d]);
        let words = &mut self.words;
        address(words, 0, &key.src);
        address(words, 4, &key.dst);
        words[8] = pair(key.src_port, key.dst_port);
        words[9] = key.key_id;
        words[10] = key.flow_label;
        words[11] = pair(key.vlan_tci, key.vlan_tpid);
        words[12] = pair(key.vlan_inner_type, key.ethertype);
        words[13] = bytes(key.protocol, key.addr_kind as u8, key.zero[0], key.zero[1]);
        words[14] = key.residue;
        words[15] = key.zero_end;
        address(words, 16, &outer.src);
        address(words, 20, &outer.dst);
        words[24] = pair(outer.src_port, outer.dst_port);
        words[25] = bytes(outer.protocol, outer.addr_kind as u8, 0, 0);
        words[26] = out.fragment_id;
        words[27] = out.wireguard_index;
        words[28] = out.label;
        words[29] = pair(out.network_offset, out.transport_offset);
        words[30] = pair(out.payload_offset, out.outer_offset);
        words[31] = bytes(out.fragment as u8, out.tunnel as u8, out.control as u8, out.tcp_flags);
        words[32] = bytes(out.ip_headers, out.vlan_tags, out.wireguard_type, 0);
        words[33] = u32::from(out.has_key())
            | u32::from(out.is_random()) << 1
            | u32::from(out.has_ports()) << 2
            | u32::from(out.is_fragment()) << 3;
        words[34] = stopped;
        words[35] = hash.0;
        words[36] = pair(decision.cpu.0, decision.reason.index() as u16);
        let flags = u16::from(decision.second_line) | u16::from(decision.moved) << 1;
        words[37] = pair(decision.probe.index() as u16, flags);
    }

    /// Returns the CPU of the decision.
    pub const fn cpu(&self) -> CpuId {
        CpuId((self.words[36] >> 16) as u16)
    }

    /// Puts another CPU into the decision, for a comparison that leaves it out.
    pub const fn set_cpu(&mut self, cpu: CpuId) {
        self.words[36] = (cpu.0 as u32) << 16 | self.words[36] & 0xffff;
    }

    /// Returns [`Reason::index`](rxsteer_core::steer::Reason::index) of the decision.
    pub const fn reason_index(&self) -> usize {
        (self.words[36] & 0xffff) as usize
    }
}

#[inline(always)]
fn pair(high: u16, low: u16) -> u32 {
    u32::from(high) << 16 | u32::from(low)
}

#[inline(always)]
fn address(words: &mut [u32; Seen::WORDS], at: usize, bytes: &[u8; 16]) {
    let (quads, _) = bytes.as_chunks::<4>();
    words[at] = u32::from_be_bytes(quads[0]);
    words[at + 1] = u32::from_be_bytes(quads[1]);
    words[at + 2] = u32::from_be_bytes(quads[2]);
    words[at + 3] = u32::from_be_bytes(quads[3]);
}
