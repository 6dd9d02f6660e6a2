//! Dissector: from the bytes of a frame to the key of its flow.
//!
//! One code for the host and for eBPF. Two modes: [`Mode::Kernel`] reads what Linux 6.18 reads for
//! its software hash, with all that this leaves out; [`Mode::Inner`] reads the innermost flow that
//! can be read. Both stop at what they cannot read and leave in the result what they could.
//!
//! Always true: no panic, no allocation, at most [`MAX_STEPS`] headers, no byte read outside the
//! frame; every refusal is a [`DissectError`] with its place.
//! Elsewhere: loads ([`crate::bytes`]); hash functions ([`crate::hash`]).
//! Source: for kernel mode the behaviour of Linux 6.18, checked against the running kernel packet
//! by packet (`cargo xtask oracle flows`); for the headers the RFCs named beside them.
//!
//! # Examples
//! ```
//! use rxsteer_core::dissect::{Dissected, Options, Start, dissect};
//! let mut frame = [0; 42]; // Ethernet, IPv4, UDP
//! frame[12] = 0x08;
//! frame[14] = 0x45;
//! frame[23] = 17;
//! frame[34..38].copy_from_slice(&[0, 53, 0x13, 0x88]);
//! let mut out = Dissected::EMPTY;
//! dissect(&frame[..], Start::Ethernet, &Options::KERNEL, &mut out).unwrap();
//! assert_eq!((out.key.src_port, out.key.dst_port), (53, 5000));
//! ```

mod dissected;
mod error;
mod ip;
mod key;
mod link;
mod number;
mod observe;
mod options;
mod plain;
mod transport;
mod tunnel;
mod udp;
mod walk;

pub use dissected::{Control, Dissected, Endpoints, Fragment, Tunnel};
pub use error::DissectError;
pub use key::{AddrKind, FlowKey, KERNEL_BYTES};
pub use observe::{Detail, IpDetail, Layer, LayerList, NoObserver, Observer};
pub use options::{Mode, Options, PortRule, UdpTunnel, VlanHash};
pub use walk::{MAX_STEPS, MAX_TAGS};

use crate::Bytes;

/// Where the first header of the captured bytes is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Start {
    /// An Ethernet header at offset 0.
    Ethernet,
    /// The network header of this ethertype at this offset (no Ethernet header).
    Network {
        /// Ethertype of the header, such as 0x0800.
        ethertype: u16,
        /// Where it starts.
        offset: u16,
    },
}

/// Reads the flow of a frame into `out`.
///
/// # Errors
/// The reason and position of the stop; what was read before it stays in `out`, as in Linux.
#[inline(always)]
pub fn dissect<B: Bytes + ?Sized>(
    frame: &B,
    start: Start,
    options: &Options,
    out: &mut Dissected,
) -> Result<(), DissectError> {
    *out = Dissected::EMPTY;
    if plain::read(frame, start, options, out) {
        return Ok(());
    }
    walk::walk(frame, start, options, out, &mut NoObserver)
}

/// Reads the flow of a frame into `out` and tells `observer` of each header.
///
/// # Errors
/// As for [`dissect`].
#[inline(always)]
pub fn dissect_observed<B: Bytes + ?Sized, O: Observer>(
    frame: &B,
    start: Start,
    options: &Options,
    out: &mut Dissected,
    observer: &mut O,
) -> Result<(), DissectError> {
    *out = Dissected::EMPTY;
    walk::walk(frame, start, options, out, observer)
}
