//! The dissector through its public interface, on frames that the tests build themselves.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod frames;
mod kernel;
mod properties;
mod reports;
mod tunnels;

use rxsteer_core::dissect::{DissectError, Dissected, FlowKey, Options, Start, dissect};

/// Dissects an Ethernet frame; the result may be an error.
fn read(frame: &[u8], options: &Options) -> (Dissected, Result<(), DissectError>) {
    let mut out = Dissected::EMPTY;
    let result = dissect(frame, Start::Ethernet, options, &mut out);
    (out, result)
}

/// Dissects an Ethernet frame that must be readable to its end.
fn good(frame: &[u8], options: &Options) -> Dissected {
    let (out, result) = read(frame, options);
    assert_eq!(result, Ok(()), "{out:?}");
    out
}

/// Returns the flow of a frame as Linux sees it.
fn kernel_flow(frame: &[u8]) -> FlowKey {
    read(frame, &Options::KERNEL).0.key.canonical()
}

/// Returns the ports of the key.
fn ports(found: &Dissected) -> (u16, u16) {
    (found.key.src_port, found.key.dst_port)
}
