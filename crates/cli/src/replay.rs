//! The verb `replay`.

use rxsteer_core::hash::SoftHasher;

use crate::Exit;
use crate::args::checked::Replay;
use crate::terminal::Terminal;

/// Returns the hash function of a seed.
pub fn hasher(seed: u64) -> SoftHasher {
    SoftHasher { k0: seed, k1: !seed }
}

/// Replays, compares, recommends.
///
/// # Errors
/// A file that cannot be read, and the output.
pub fn run(asked: &Replay, _terminal: &Terminal) -> anyhow::Result<Exit> {
    anyhow::bail!("not yet: {asked:?}")
}
