//! Comparing two objects by what the kernel will run.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind};

/// Returns one line for each section whose code, data or references differ.
///
/// Debug data, symbol tables and the order of sections do not count.
pub(super) fn code_differences(old: &[u8], new: &[u8]) -> Result<Vec<String>> {
    let old = sections(old).context("in the committed object")?;
    let new = sections(new).context("in the object just built")?;
    let mut differences = Vec::new();
    for (name, content) in &old {
        match new.get(name) {
            None => differences.push(format!("section {name} is gone")),
            Some(now) if now.bytes != content.bytes => differences
                .push(format!("section {name}: {}", first_difference(&content.bytes, &now.bytes))),
            Some(now) if now.references != content.references => {
                differences.push(format!("section {name}: refers to other maps or functions"));
            }
            Some(_) => {}
        }
    }
    let added = new.keys().filter(|name| !old.contains_key(*name));
    differences.extend(added.map(|name| format!("section {name} is new")));
    Ok(differences)
}

struct Content {
    bytes: Vec<u8>,
    /// Where the section refers to what.
    references: BTreeMap<u64, String>,
}

fn sections(bytes: &[u8]) -> Result<BTreeMap<String, Content>> {
    let file = object::File::parse(bytes)?;
    let mut sections = BTreeMap::new();
    for section in file.sections() {
        let name = section.name()?.to_owned();
        let counts = matches!(
            section.kind(),
            SectionKind::Text
                | SectionKind::Data
                | SectionKind::ReadOnlyData
                | SectionKind::ReadOnlyString
                | SectionKind::UninitializedData
        );
        if !counts || name.starts_with(".debug") || name.starts_with(".BTF") {
            continue;
        }
        let mut references = BTreeMap::new();
        for (offset, relocation) in section.relocations() {
            let target = match relocation.target() {
                RelocationTarget::Symbol(index) => {
                    let symbol = file.symbol_by_index(index)?;
                    // A section's own symbol has no name: its section has.
                    let place = symbol.section_index().map(|i| file.section_by_index(i));
                    let place = place.transpose()?.map(|s| s.name().map(str::to_owned));
                    let place = place.transpose()?.unwrap_or_default();
                    format!("{place}+{:#x}", symbol.address())
                }
                other => format!("{other:?}"),
            };
            references.insert(offset, format!("{target} {}", relocation.addend()));
        }
        sections.insert(name, Content { bytes: section.data()?.to_vec(), references });
    }
    Ok(sections)
}

fn first_difference(old: &[u8], new: &[u8]) -> String {
    let at = old.iter().zip(new).position(|(a, b)| a != b).unwrap_or(old.len().min(new.len()));
    format!("{} bytes became {}, first difference at byte {at:#x}", old.len(), new.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_object_equals_itself() {
        assert_eq!(
            code_differences(rxsteer_kernel::OBJECT, rxsteer_kernel::OBJECT).unwrap(),
            [""; 0]
        );
    }

    #[test]
    fn one_changed_instruction_is_found_in_its_section() {
        let file = object::File::parse(rxsteer_kernel::OBJECT).unwrap();
        let xdp = file.section_by_name("xdp").expect("the programs are in section xdp");
        let (start, _) = xdp.file_range().expect("the section has bytes");
        let mut changed = rxsteer_kernel::OBJECT.to_vec();
        changed[start as usize] ^= 1;
        let differences = code_differences(rxsteer_kernel::OBJECT, &changed).unwrap();
        assert_eq!(differences.len(), 1, "{differences:?}");
        assert!(differences[0].starts_with("section xdp:"), "{differences:?}");
        assert!(differences[0].ends_with("at byte 0x0"), "{differences:?}");
    }

    #[test]
    fn a_change_of_symbol_names_is_no_change_of_code() {
        let name = b"rxsteer_pass";
        let mut changed = rxsteer_kernel::OBJECT.to_vec();
        let at = changed.windows(name.len()).position(|w| w == name).expect("it is a symbol");
        changed[at] = b'X';
        assert_eq!(code_differences(rxsteer_kernel::OBJECT, &changed).unwrap(), [""; 0]);
    }

    #[test]
    fn what_is_no_object_is_an_error() {
        assert!(code_differences(b"no", rxsteer_kernel::OBJECT).is_err());
    }
}
