//! `cargo xtask verifier`: the programs against the running kernel.
//!
//! Three things: what the verifier says of each program, next to the ceiling that is recorded; the
//! answer of the program to every packet of a corpus, next to the native one; and the time of a
//! run, next to that of a program that does nothing.
//!
//! Elsewhere: building the programs ([`crate::ebpf`]).

mod ceilings;
mod compare;
mod timing;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use rxsteer_kernel::{OBJECT, missing_capabilities, verify};

use ceilings::Ceilings;

/// Flags of `cargo xtask verifier`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder with captures, at any depth, that both sides shall agree on; default:
    /// `$RXSTEER_SHARED/corpus/captures` if that variable is set
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Runs of a program over one frame for its time; 0: no times
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000)]
    repeat: u32,
}

/// Passed and failed checks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
}

impl Tally {
    fn count(&mut self, is_right: bool) {
        if is_right { self.passed += 1 } else { self.failed += 1 }
    }

    /// Prints how many there were, and returns whether all passed.
    pub(crate) fn print(self) -> ExitCode {
        println!("{} passed, {} failed", self.passed, self.failed);
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Fails if this process may not load programs, and says what it lacks.
pub(crate) fn require_rights() -> Result<()> {
    let missing = missing_capabilities();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
    bail!("the verifier needs root; missing: {}", names.join(", "))
}

/// Compares both sides over the packets of the captures below a folder.
pub(crate) fn compare_corpus(dir: &Path, tally: &mut Tally) -> Result<()> {
    compare::corpus(dir, tally)
}

/// Loads every program, compares and measures; fails if anything is not as it should be.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    require_rights()?;
    let mut tally = Tally::default();
    check_programs(&mut tally)?;
    compare::crafted(&mut tally)?;
    let corpus = args.corpus.clone().or_else(|| {
        std::env::var_os("RXSTEER_SHARED").map(|dir| PathBuf::from(dir).join("corpus/captures"))
    });
    match corpus {
        Some(corpus) => compare::corpus(&corpus, &mut tally)?,
        None => println!("no corpus: neither --corpus nor RXSTEER_SHARED is given"),
    }
    if args.repeat > 0 {
        timing::print(args.repeat)?;
    }
    Ok(tally.print())
}

fn check_programs(tally: &mut Tally) -> Result<()> {
    let ceilings = Ceilings::read(&crate::repository())?;
    println!(
        "{:<18} {:>12} {:>9} {:>9} {:>7} {:>11} {:>9}",
        "program", "instructions", "verified", "ceiling", "stack", "translated", "machine"
    );
    for report in verify(OBJECT)? {
        let ceiling = ceilings.of(&report.name);
        println!(
            "{:<18} {:>12} {:>9} {:>9} {:>5} B {:>9} B {:>7} B",
            report.name,
            report.instructions,
            report.verified_instructions,
            ceiling.map_or("none".to_owned(), |ceiling| ceiling.to_string()),
            report.stack_bytes,
            report.translated_bytes,
            report.jited_bytes
        );
        let is_below = ceiling.is_some_and(|ceiling| report.verified_instructions <= ceiling);
        if !is_below {
            println!("  above its ceiling in {}", ceilings::PATH);
        }
        tally.count(is_below);
    }
    Ok(())
}
