//! What holds for the whole attachment at the moment: [`map::LIVE`](crate::map).
//!
//! Words of 64 bits that change seldom and are read for every UDP packet, so that what is not in use
//! costs one load.

/// Words of the map's one value.
pub const WORDS: usize = 8;

/// Place of the flags of what is there: [`WILD`], [`BOUND`], [`PRESSED`]. Set by the programs, taken
/// back by the loader when nothing of the kind is left.
pub const PRESENT: usize = 0;
/// Place of the switches, written by the loader: [`SHED`], [`PORTS`], [`FLOW_PORTS`].
pub const SWITCHES: usize = 1;

/// Ports of sockets that are bound to no address.
pub const WILD: u64 = 1;
/// Ports of sockets that are bound to an address.
pub const BOUND: u64 = 2;
/// Sockets that had no room a moment ago.
pub const PRESSED: u64 = 4;

/// What the sockets have no room for is dropped before any work.
pub const SHED: u64 = 1;
/// Sockets that are not connected are served by their ports.
pub const PORTS: u64 = 2;
/// Answers of sockets that are not connected are looked at: there are ports declared for flows.
pub const FLOW_PORTS: u64 = 4;
