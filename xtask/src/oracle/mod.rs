//! `cargo xtask oracle`: the project's answers against truths that others recorded or
//! that come about another way.

mod flows;
mod udp_lookup;
mod xdp;

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
    /// Runs the XDP program over the packets in a folder, and compares key, class, hash and decision
    /// with the native ones (root)
    Xdp(xdp::Args),
}

/// Runs one oracle.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.oracle {
        Oracle::Flows(args) => flows::run(args),
        Oracle::UdpLookup(args) => udp_lookup::run(args),
        Oracle::Xdp(args) => xdp::run(args),
    }
}
