//! GRO: merging consecutive packets of a flow, so that one look-up and one wake-up serve many.
//!
//! A packet that may be merged is held until the poll is over, and packets of the same flow that come
//! meanwhile join it: a [`Train`]. All packets of a train have the same length but the last, which
//! may be shorter; so the train can be cut into the same packets again by one length.
//!
//! | the next packet of the flow | what happens |
//! | --- | --- |
//! | as long as the first of the train | joins |
//! | shorter | joins, and the train goes |
//! | longer; other header fields; no room below 65,536 bytes | the train goes, the packet starts the next |
//! | no checksum, a wrong one, no payload, a length field that does not fit | the train goes, then the packet alone |
//!
//! A train of 64 packets goes at once. There are 8 lists by flow hash with at most 8 trains each; the
//! oldest of a list goes when a ninth comes.
//!
//! Always true: packets of a flow come out in the order in which they went in; what is held comes
//! out by [`Gro::flush`]; the packets of a train have one flow, one header word and fit together
//! into one IP packet.
//! Elsewhere: when a poll is over ([`crate::softirq`]); what the fields of a real frame are
//! ([`crate::threads`]).
//! Source: spec of the receive path, "UDP GRO". One departure: a packet that cannot be merged sends its
//! flow's train ahead of itself always, so that it cannot overtake it.

mod held;
mod segment;
mod train;

#[cfg(all(test, not(loom)))]
mod tests;

pub use held::Gro;
pub use segment::{Checksum, Segment};
pub use train::Train;
