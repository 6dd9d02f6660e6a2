//! Man pages, made from the description of the arguments.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;

/// What `man` is told.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory they go to [default: target/man of this repository].
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Writes one page for the command and one for each verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let out = args.out.clone().unwrap_or_else(|| crate::repository().join("target/man"));
    std::fs::create_dir_all(&out).with_context(|| format!("making {}", out.display()))?;
    clap_mangen::generate_to(rxsteer::args::Cli::command(), &out)
        .with_context(|| format!("writing to {}", out.display()))?;
    let mut pages = std::fs::read_dir(&out)?
        .map(|entry| Ok(entry?.path().display().to_string()))
        .collect::<std::io::Result<Vec<_>>>()?;
    pages.sort();
    for page in pages {
        println!("{page}");
    }
    Ok(ExitCode::SUCCESS)
}
