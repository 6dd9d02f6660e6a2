//! `cargo xtask oracle xdp DIR`: every packet of the captures in a folder through the XDP program, by
//! test run, and through native core.
//!
//! Elsewhere: the same and more, also of packets of our own ([`crate::verifier`]).

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::verifier::{self, Tally};

/// Flags of `cargo xtask oracle xdp`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder with captures, at any depth; of a corpus with more in it, its `captures`
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Compares, and tells how many answers were equal.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    verifier::require_rights()?;
    if !args.dir.is_dir() {
        bail!("{} is no folder", args.dir.display());
    }
    let mut tally = Tally::default();
    let captures = args.dir.join("captures");
    verifier::compare_corpus(if captures.is_dir() { &captures } else { &args.dir }, &mut tally)?;
    Ok(tally.print())
}
