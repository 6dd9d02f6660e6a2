//! `cargo xtask oracle`: the project's answers against truths that others recorded.

mod flows;
mod udp_lookup;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Flags of `cargo xtask oracle`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    oracle: Oracle,
}

#[derive(Subcommand)]
enum Oracle {
    /// Compares the flows of the packets in a folder with what the Linux kernel and tshark say
    Flows(flows::Args),
    /// Replays recorded socket scenarios and compares each receiver with the Linux kernel's
    UdpLookup(udp_lookup::Args),
}

/// Runs one oracle.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.oracle {
        Oracle::Flows(args) => flows::run(args),
        Oracle::UdpLookup(args) => udp_lookup::run(args),
    }
}
