//! What the programs and the code that loads them must agree on: names and layouts of the maps.
//!
//! Always true: every type here is `repr(C)` of plain integers without padding, so that the bytes
//! of a map value are the value.
//! Elsewhere: the programs (`src/main.rs` of this crate, another target); loading them
//! (`rxsteer-kernel`).
#![no_std]
#![warn(missing_docs, unreachable_pub)]
#![forbid(unsafe_code)]

mod seen;

pub use seen::Seen;

/// Name of the array map whose one value is the [`Seen`] of the last frame.
pub const SEEN_MAP: &str = "SEEN";

/// Name of the array map whose one value is the key of the software hash, `[k0, k1]`.
pub const HASH_KEY_MAP: &str = "HASH_KEY";

/// Name of the program that records what it makes of each frame, as Linux reads it.
pub const OBSERVE_PROGRAM: &str = "rxsteer_observe";

/// Name of the program that records the innermost flow of each frame.
pub const OBSERVE_INNER_PROGRAM: &str = "rxsteer_observe_inner";

/// Name of the program that does nothing: the floor of every measurement.
pub const PASS_PROGRAM: &str = "rxsteer_pass";
