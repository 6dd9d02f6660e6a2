//! An ELF object around a few instructions, as a loader wants it.

use object::elf::R_BPF_64_64;
use object::write::{Object, Relocation, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope,
};

use super::program::{Code, NAME};

/// Returns the object: a section with the program, one with its licence, and a counter if it has one.
pub(super) fn wrap(code: &Code) -> Result<Vec<u8>, object::write::Error> {
    let order = if cfg!(target_endian = "little") { Endianness::Little } else { Endianness::Big };
    let mut file = Object::new(BinaryFormat::Elf, Architecture::Bpf, order);
    let licence = file.add_section(Vec::new(), b"license".to_vec(), SectionKind::Data);
    file.append_section_data(licence, b"Dual MIT/GPL\0", 1);
    let text = file.add_section(Vec::new(), b"xdp".to_vec(), SectionKind::Text);
    file.append_section_data(text, &code.bytes, 8);
    file.add_symbol(symbol(NAME, SymbolKind::Text, code.bytes.len() as u64, text));
    if let Some(offset) = code.counter {
        let section =
            file.add_section(Vec::new(), b".bss".to_vec(), SectionKind::UninitializedData);
        file.append_section_bss(section, 8, 8);
        let counter = file.add_symbol(symbol("counter", SymbolKind::Data, 8, section));
        // The address of the counter, in the two instructions that load it.
        let flags = RelocationFlags::Elf { r_type: R_BPF_64_64 };
        file.add_relocation(text, Relocation { offset, symbol: counter, addend: 0, flags })?;
    }
    file.write()
}

fn symbol(name: &str, kind: SymbolKind, size: u64, section: object::write::SectionId) -> Symbol {
    Symbol {
        name: name.as_bytes().to_vec(),
        value: 0,
        size,
        kind,
        scope: SymbolScope::Dynamic,
        weak: false,
        section: SymbolSection::Section(section),
        flags: SymbolFlags::None,
    }
}
