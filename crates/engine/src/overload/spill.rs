//! Spill: what is no flow takes its second hash choice when the first is deep in backlog.
//!
//! The decision is core's ([`Aware::spill_above_packets`]); this is its switch. Of two CPUs chosen at
//! random the less loaded one: the longest queue then grows with the logarithm of a logarithm only
//! (Azar, Broder, Karlin and Upfal, "Balanced allocations", 1994; Mitzenmacher, 1996). Packets of flows
//! are never spilled, so no flow is reordered.

use rxsteer_core::steer::Aware;

/// Returns the settings of the policy with spilling as the switch says.
pub const fn switched(on: bool, aware: Aware) -> Aware {
    if on { aware } else { Aware { spill_above_packets: u32::MAX, ..aware } }
}

#[cfg(test)]
mod tests;
