//! `cargo xtask ebpf`: from `crates/ebpf` to the object that `crates/kernel` embeds.
//!
//! Always true: the object that is committed has the hash that is recorded beside it, together
//! with the tools that made it; no path of the machine that built it is inside.
//! Elsewhere: loading the object ([`crate::verifier`], `rxsteer-kernel`).

mod compare;
mod record;
mod stats;
mod toolchain;
mod wrapper;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use rxsteer_kernel::missing_capabilities;

use record::Record;
use toolchain::Toolchain;
pub(crate) use wrapper::run_if_called;

/// Where the object lives, from the root of the repository.
const OBJECT: &str = "crates/kernel/object/rxsteer.bpf.o";
/// Where its record lives.
const RECORD: &str = "crates/kernel/object/rxsteer.bpf.toml";

/// Flags of `cargo xtask ebpf`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write nothing; fail if the code differs from what is committed
    #[arg(long)]
    check: bool,
    /// Also load the object through the running kernel's verifier (root): print instructions and stack
    /// of each program, and write or compare the file that records them; without --check always done
    /// where there are the rights
    #[arg(long)]
    stats: bool,
}

/// Builds core for the BPF target and the object; writes it or compares it.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let root = crate::repository();
    let toolchain = Toolchain::find()?;
    println!("compiler: {}\nlinker: {}", toolchain.rustc_version, toolchain.linker_version);
    toolchain.build_core(&root)?;
    println!("rxsteer-core builds for {}", toolchain::TARGET);
    let built = toolchain.build_object(&root)?;
    let record = Record::new(&built, &toolchain);
    println!("object: {} bytes, sha256 {}", built.len(), record.sha256);
    let code =
        if args.check { check(&root, &built, &record) } else { write(&root, &built, &record) }?;
    let may_write = !args.check && missing_capabilities().is_empty();
    if (args.stats || may_write) && code == ExitCode::SUCCESS {
        return stats::run(&root, &built, args.check);
    }
    Ok(code)
}

fn write(root: &Path, built: &[u8], record: &Record) -> Result<ExitCode> {
    let object = root.join(OBJECT);
    fs::write(&object, built).with_context(|| format!("writing {}", object.display()))?;
    record.write(&root.join(RECORD))?;
    println!("wrote {OBJECT} and {RECORD}");
    Ok(ExitCode::SUCCESS)
}

fn check(root: &Path, built: &[u8], record: &Record) -> Result<ExitCode> {
    let committed = fs::read(root.join(OBJECT)).with_context(|| format!("reading {OBJECT}"))?;
    let recorded = Record::read(&root.join(RECORD))?;
    if recorded.sha256 != record::sha256(&committed) {
        println!("{OBJECT} is not the object whose hash {RECORD} records");
        return Ok(ExitCode::FAILURE);
    }
    if built == committed {
        println!("the committed object is what these sources build, byte for byte");
        return Ok(ExitCode::SUCCESS);
    }
    let differences = compare::code_differences(&committed, built)?;
    if differences.is_empty() {
        println!("the committed object has the same code; only names or debug data differ");
        return Ok(ExitCode::SUCCESS);
    }
    println!("the committed object is not what these sources build:");
    for difference in &differences {
        println!("  {difference}");
    }
    if (&recorded.rustc, &recorded.linker) != (&record.rustc, &record.linker) {
        println!(
            "it was built by other tools ({}; {}), which may be all there is to it",
            recorded.rustc, recorded.linker
        );
    }
    println!("to bring it up to date: cargo xtask ebpf, then commit {OBJECT} and {RECORD}");
    Ok(ExitCode::FAILURE)
}
