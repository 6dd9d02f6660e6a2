//! Reads where the running kernel keeps fields of its structures, from its BTF.
//!
//! Aya reads BTF too, but keeps the members of structures to itself. Read here is only what a path
//! of member names needs.
//!
//! Always true: no byte outside the given data is read, and no walk through types goes on for ever.
//! Source: the kernel's Documentation/bpf/btf.rst.

use std::fs;
use std::io;

/// Where the running kernel offers its own BTF.
pub(crate) const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// Why a place in a structure is not known.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The kernel offers no BTF (it is built without `CONFIG_DEBUG_INFO_BTF`).
    #[error("cannot read {KERNEL_BTF}: {0} (a kernel with CONFIG_DEBUG_INFO_BTF has it)")]
    Read(#[source] io::Error),
    /// The data is no BTF, or of another byte order.
    #[error("this is no BTF of this machine, at byte {0}")]
    Malformed(usize),
    /// There is no such structure.
    #[error("the kernel's BTF has no structure {0}")]
    NoStruct(&'static str),
    /// The structure has no such member.
    #[error("the kernel's structure {structure} has no member {member}")]
    NoMember {
        /// Name of the structure at the start of the path.
        structure: &'static str,
        /// Name of the member that is missing.
        member: &'static str,
    },
}

const STRUCT: u32 = 4;
const UNION: u32 = 5;
/// Typedef, volatile, const, restrict, type tag: stand for another type.
const STAND_FOR: [u32; 5] = [8, 9, 10, 11, 18];
/// How deep structures without a name may be nested.
const DEEPEST: u32 = 16;

/// The types of a kernel.
pub(crate) struct Types {
    data: Vec<u8>,
    strings: usize,
    /// Where each type starts; type 0 is `void`.
    starts: Vec<usize>,
}

impl Types {
    /// Reads the types of the running kernel.
    pub(crate) fn of_kernel() -> Result<Self, BtfError> {
        Self::parse(fs::read(KERNEL_BTF).map_err(BtfError::Read)?)
    }

    /// Takes BTF apart.
    pub(crate) fn parse(data: Vec<u8>) -> Result<Self, BtfError> {
        const MAGIC: u32 = 0xeb9f;
        let mut this = Self { data, strings: 0, starts: vec![0] };
        if this.word(0)? & 0xffff != MAGIC {
            return Err(BtfError::Malformed(0));
        }
        let header = this.word(4)? as usize;
        let mut at = header + this.word(8)? as usize;
        let end = at + this.word(12)? as usize;
        this.strings = header + this.word(16)? as usize;
        while at < end {
            this.starts.push(at);
            let info = this.word(at + 4)?;
            let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            at += 12
                + match kind {
                    1 | 14 | 17 => 4,
                    3 => 12,
                    STRUCT | UNION | 15 | 19 => 12 * count,
                    6 | 13 => 8 * count,
                    2 | 7..=12 | 16 | 18 => 0,
                    _ => return Err(BtfError::Malformed(at)),
                };
        }
        Ok(this)
    }

    /// Returns the place in bytes of a member, by the way to it, from the start of a structure.
    pub(crate) fn offset(
        &self,
        structure: &'static str,
        path: &[&'static str],
    ) -> Result<u32, BtfError> {
        Ok(self.offset_bits(structure, path)? / 8)
    }

    /// Returns the place in bits of a member, as [`offset`](Self::offset) does.
    pub(crate) fn offset_bits(
        &self,
        structure: &'static str,
        path: &[&'static str],
    ) -> Result<u32, BtfError> {
        let found = (1..self.starts.len()).find(|id| {
            self.kind(*id) == Some(STRUCT) && self.name(*id) == Some(structure.as_bytes())
        });
        let mut id = found.ok_or(BtfError::NoStruct(structure))?;
        let mut bits = 0;
        for &member in path {
            let (more, next) = self
                .member(id, member.as_bytes(), DEEPEST)
                .ok_or(BtfError::NoMember { structure, member })?;
            bits += more;
            id = next;
        }
        Ok(bits)
    }

    /// Looks for a member of a structure, also inside members without a name.
    fn member(&self, id: usize, name: &[u8], depth: u32) -> Option<(u32, usize)> {
        let id = self.resolved(id)?;
        let start = *self.starts.get(id)?;
        let info = self.word(start + 4).ok()?;
        if !matches!(info >> 24 & 0x1f, STRUCT | UNION) {
            return None;
        }
        let is_bits = info >> 31 != 0;
        for index in 0..(info & 0xffff) as usize {
            let at = start + 12 + 12 * index;
            let this = self.string(self.word(at).ok()?)?;
            let (of, bits) = (self.word(at + 4).ok()? as usize, self.word(at + 8).ok()?);
            let bits = if is_bits { bits & 0x00ff_ffff } else { bits };
            if this == name {
                return Some((bits, of));
            }
            if this.is_empty()
                && depth > 0
                && let Some((more, found)) = self.member(of, name, depth - 1)
            {
                return Some((bits + more, found));
            }
        }
        None
    }

    /// Returns the type that a type stands for.
    fn resolved(&self, mut id: usize) -> Option<usize> {
        for _ in 0..DEEPEST {
            if !STAND_FOR.contains(&self.kind(id)?) {
                return Some(id);
            }
            id = self.word(*self.starts.get(id)? + 8).ok()? as usize;
        }
        None
    }

    fn kind(&self, id: usize) -> Option<u32> {
        let start = *self.starts.get(id)?;
        if id == 0 { Some(0) } else { Some(self.word(start + 4).ok()? >> 24 & 0x1f) }
    }

    fn name(&self, id: usize) -> Option<&[u8]> {
        self.string(self.word(*self.starts.get(id)?).ok()?)
    }

    fn string(&self, offset: u32) -> Option<&[u8]> {
        let from = self.data.get(self.strings + offset as usize..)?;
        let len = from.iter().position(|byte| *byte == 0)?;
        from.get(..len)
    }

    fn word(&self, at: usize) -> Result<u32, BtfError> {
        let bytes = self.data.get(at..).and_then(|rest| rest.first_chunk::<4>());
        bytes.map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(BtfError::Malformed(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `struct outer { u32 a; union { const struct { u32 b, c; } pair; struct { u32 d, e; }; } }`.
    fn sample() -> Vec<u8> {
        let strings = b"\0outer\0a\0pair\0b\0c\0d\0e\0";
        let name = |text: &str| {
            let text = format!("\0{text}\0");
            let found = strings.windows(text.len()).position(|at| at == text.as_bytes());
            found.map_or(0, |at| at as u32 + 1)
        };
        let structure = |kind: u32, count: u32| kind << 24 | count;
        let types: Vec<u32> = [
            vec![0, 1 << 24, 4, 32], // 1: an integer
            vec![0, structure(4, 2), 8, name("b"), 1, 0, name("c"), 1, 32], // 2
            vec![0, structure(4, 2), 8, name("d"), 1, 0, name("e"), 1, 32], // 3
            vec![0, 10 << 24, 2],    // 4: const 2
            vec![0, structure(5, 2), 8, name("pair"), 4, 0, 0, 3, 0], // 5
            vec![name("outer"), structure(4, 2), 12, name("a"), 1, 0, 0, 5, 32], // 6
        ]
        .concat();
        let mut data = vec![];
        let len = types.len() as u32 * 4;
        for word in [0x0001_eb9f, 24, 0, len, len, strings.len() as u32].iter().chain(&types) {
            data.extend(word.to_ne_bytes());
        }
        data.extend(strings);
        data
    }

    #[test]
    fn members_are_found_by_their_way_and_through_nameless_ones() {
        let types = Types::parse(sample()).unwrap();
        let at = |path: &[&'static str]| types.offset("outer", path).unwrap();
        assert_eq!((at(&["a"]), at(&["pair"]), at(&["pair", "c"])), (0, 4, 8));
        assert_eq!((at(&["d"]), at(&["e"])), (4, 8));
        let error = types.offset("outer", &["pair", "x"]).unwrap_err();
        assert_eq!(error.to_string(), "the kernel's structure outer has no member x");
        assert!(matches!(types.offset("inner", &[]), Err(BtfError::NoStruct("inner"))));
    }

    #[test]
    fn what_is_cut_or_turned_is_an_error_and_no_panic() {
        let whole = sample();
        for len in 0..whole.len() {
            // Without its end the strings are missing, and no name is found.
            let said =
                Types::parse(whole[..len].to_vec()).map(|types| types.offset("outer", &["e"]));
            assert!(!matches!(said, Ok(Ok(_))) || len + 1 >= whole.len(), "{len}");
        }
        for at in 0..whole.len() {
            let mut data = whole.clone();
            data[at] ^= 0xff;
            let _ = Types::parse(data).map(|types| types.offset("outer", &["e"]));
        }
        assert!(matches!(Types::parse(vec![0xeb, 0x9f, 0, 1]), Err(BtfError::Malformed(0))));
    }
}
