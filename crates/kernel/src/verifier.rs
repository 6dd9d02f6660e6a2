//! What the verifier of the running kernel says of each program.
//!
//! Loads each program twice: once with the verifier's log, which alone tells the depth of the
//! stack, and once through Aya, which tells the sizes. Nothing is attached, nothing stays loaded.
//!
//! Elsewhere: running a program over frames ([`crate::TestBed`]).
//! Source: bpf(2), `BPF_PROG_LOAD`; the kernel's Documentation/bpf/verifier.rst.

mod log;

use std::collections::HashSet;
use std::io;

use aya::programs::{ProgramError, ProgramInfo};

use crate::btf::BtfError;
use crate::load::{self, Sizes, raw_fd};

/// What the verifier said of an accepted program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ProgramReport {
    /// Name of the program.
    pub name: String,
    /// Instructions in the object, those of called functions included.
    pub instructions: u32,
    /// Instructions that the verifier walked; it gives up at 1,000,000.
    pub verified_instructions: u32,
    /// Deepest stack in bytes, of at most 512.
    pub stack_bytes: u32,
    /// Size after the kernel's own rewriting, in bytes.
    pub translated_bytes: u32,
    /// Size of the machine code, in bytes; 0 if the kernel interprets programs.
    pub jited_bytes: u32,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The object is no eBPF object, or a map cannot be created.
    #[error("cannot prepare the object: {0}")]
    Object(#[source] Box<aya::EbpfError>),
    /// The object cannot be parsed.
    #[error("cannot parse the object: {0}")]
    Parse(#[from] aya_obj::ParseError),
    /// A reference to a map or a function cannot be resolved.
    #[error("cannot link the object: {0}")]
    Relocation(#[from] aya_obj::relocation::EbpfRelocationError),
    /// A map is of a kind that this crate does not know.
    #[error("map {0} is of an unknown kind")]
    MapKind(String),
    /// The program is of a type that this crate does not know.
    #[error("program {0} is of an unknown kind")]
    ProgramKind(String),
    /// The kernel does not tell of its structures.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// The kernel does not tell of its tracepoints.
    #[error("the kernel's BTF: {0}")]
    KernelBtf(#[from] aya::BtfError),
    /// The verifier refuses the program.
    #[error("program {name} is refused ({cause}); the end of the verifier's log:\n{log}")]
    Refused {
        /// Name of the program.
        name: String,
        /// What the system call said.
        cause: io::Error,
        /// End of the log.
        log: String,
    },
    /// The log of an accepted program does not read as expected.
    #[error("program {name} is accepted, but its log tells no counts:\n{log}")]
    Log {
        /// Name of the program.
        name: String,
        /// The log.
        log: String,
    },
    /// The kernel does not tell about the loaded program.
    #[error("program {name}: no information from the kernel: {source}")]
    Info {
        /// Name of the program.
        name: String,
        /// What the system call said.
        source: Box<ProgramError>,
    },
}

/// Loads every program of the object through the verifier, in the order of their names.
///
/// Needs the rights of [`missing_capabilities`](crate::missing_capabilities).
///
/// # Errors
/// [`VerifyError::Refused`], with the end of the log, for the first program that the verifier
/// refuses; the other variants for an object that cannot be taken apart.
pub fn verify(object: &[u8]) -> Result<Vec<ProgramReport>, VerifyError> {
    let loaded = load::prepare(object, Sizes::DEFAULT, load::offsets()?, 0, [0; 2]);
    let mut ebpf = loaded.map_err(|error| VerifyError::Object(Box::new(error)))?;
    let btf = aya::Btf::from_sys_fs()?;
    let linked = link(object, &ebpf)?;

    let mut names: Vec<&String> = linked.programs.keys().collect();
    names.sort();
    names
        .into_iter()
        .map(|name| {
            let program = &linked.programs[name];
            let instructions = &linked.functions[&program.function_key()].instructions;
            let kind = log::Kind::of(name, &program.section, &btf)?;
            let log = log::with_log(name, kind, &program.license, instructions)?;
            let (Some(verified_instructions), Some(stack_bytes)) =
                (number_after(&log, "processed "), stack_depth(&log))
            else {
                return Err(VerifyError::Log { name: name.clone(), log });
            };
            let info = info(&mut ebpf, name, &btf)?;
            Ok(ProgramReport {
                name: name.clone(),
                instructions: instructions.len() as u32,
                verified_instructions,
                stack_bytes,
                translated_bytes: info.size_translated().unwrap_or(0),
                jited_bytes: info.size_jitted(),
            })
        })
        .collect()
}

/// Resolves the references of the object to the maps that Aya created for it.
fn link(object: &[u8], ebpf: &aya::Ebpf) -> Result<aya_obj::Object, VerifyError> {
    let mut parsed = aya_obj::Object::parse(object)?;
    let text_sections: HashSet<usize> =
        parsed.functions.keys().map(|(section, _)| *section).collect();
    let maps = std::mem::take(&mut parsed.maps);
    let resolved = maps.iter().map(|(name, map)| {
        let fd = ebpf.map(name).and_then(raw_fd);
        Ok((name.as_str(), fd.ok_or_else(|| VerifyError::MapKind(name.clone()))?, map))
    });
    let resolved = resolved.collect::<Result<Vec<_>, VerifyError>>()?;
    parsed.relocate_maps(resolved.into_iter(), &text_sections)?;
    parsed.relocate_calls(&text_sections)?;
    Ok(parsed)
}

fn info(ebpf: &mut aya::Ebpf, name: &str, btf: &aya::Btf) -> Result<ProgramInfo, VerifyError> {
    let Some(program) = ebpf.program_mut(name) else {
        return Err(VerifyError::ProgramKind(name.to_owned()));
    };
    let told = load::load(program, name, Some(btf)).and_then(|()| program.info());
    told.map_err(|source| VerifyError::Info { name: name.to_owned(), source: Box::new(source) })
}

/// Returns the sum over the chain of functions: the log has one line `stack depth A+B+…`.
fn stack_depth(log: &str) -> Option<u32> {
    let depths = log.lines().find_map(|line| line.strip_prefix("stack depth "))?;
    depths.trim().split('+').map(|depth| depth.parse::<u32>().ok()).sum()
}

fn number_after(log: &str, words: &str) -> Option<u32> {
    let line = log.lines().find_map(|line| line.strip_prefix(words))?;
    line.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "verification time 1234 usec\nstack depth 112+8\n\
        processed 23010 insns (limit 1000000) max_states_per_insn 4 total_states 9 peak_states 9\n";

    #[test]
    fn counts_are_read_from_the_log() {
        assert_eq!(number_after(LOG, "processed "), Some(23_010));
        assert_eq!(stack_depth(LOG), Some(120));
        assert_eq!(stack_depth("stack depth 0\n"), Some(0));
    }

    #[test]
    fn a_log_without_counts_is_no_zero() {
        assert_eq!(number_after("", "processed "), None);
        assert_eq!(stack_depth("stack depth x\n"), None);
    }

    #[test]
    fn what_is_no_object_is_an_error_and_no_panic() {
        assert!(matches!(verify(b"\x7fELF"), Err(VerifyError::Object(_))));
        assert!(matches!(verify(&[]), Err(VerifyError::Object(_))));
    }
}
