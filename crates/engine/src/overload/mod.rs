//! What is done when more comes than can be carried: shed early, place beside, spill, hold back.
//!
//! Each means has a switch of its own ([`Means`]), so that its effect can be measured alone;
//! [`Control`] has them all behind their switches.
//!
//! | means | what it does | where |
//! | --- | --- | --- |
//! | shed early | drops, before any work, what its socket has no room for; in fair shares | [`shed`] |
//! | in flight | counts what was let in and has not reached its socket yet; heals losses | [`in_flight`] |
//! | beside | moves an elephant to a CPU beside its consumer's when that one cannot carry both | [`beside`] |
//! | spill | sends what is no flow to its second choice when the first is deep in backlog | [`spill`] |
//! | govern | takes no more packets only to drop them while a reader could run | [`governor`] |
//!
//! Always true: memory is fixed when a value is made; no clock (time is an argument), no
//! allocation per packet, no panic on any input.
//! Elsewhere: the credit of a socket (`rxsteer_sockets`); the decision and the order of flows
//! (`rxsteer_core::steer`); who calls all this ([`crate::cpu`] and [`crate::Stages`]).
//! Source: Druschel and Banga, "Lazy receiver processing", OSDI 1996 (shed early); Mogul and
//! Ramakrishnan, "Eliminating receive livelock in an interrupt-driven kernel", 1997 (govern).

pub mod beside;
pub mod control;
pub mod elephants;
pub mod familiar;
pub mod governor;
pub mod in_flight;
pub mod pressure;
pub mod room;
pub mod shares;
pub mod shed;
pub mod source;
pub mod spill;

pub use beside::{Beside, BesideSettings, Sample};
pub use control::Control;
pub use governor::{Governor, GovernorSettings, Took};
pub use in_flight::Ticket;
pub use room::Room;
pub use shed::{Cause, Offer, ShedSettings, Shedder, Verdict};
pub use source::{Key, SourcePrefix};

/// The means against overload, each on or off.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Means {
    /// Drops at the hook what its socket has no room for.
    pub shed: bool,
    /// Gives each class and source its share of a socket's room; needs `shed`.
    pub fair: bool,
    /// Counts packets between hook and socket as using room; needs `shed`.
    pub in_flight: bool,
    /// Places elephants beside their consumer.
    pub beside: bool,
    /// Sends non-flows to their second choice.
    pub spill: bool,
    /// Holds back the poll of a ring while its packets would be dropped and readers could run.
    pub govern: bool,
}

impl Means {
    /// None: what Linux does.
    pub const NONE: Self = Self {
        shed: false,
        fair: false,
        in_flight: false,
        beside: false,
        spill: false,
        govern: false,
    };

    /// All of them.
    pub const ALL: Self =
        Self { shed: true, fair: true, in_flight: true, beside: true, spill: true, govern: true };
}

impl Default for Means {
    /// [`ALL`](Self::ALL).
    fn default() -> Self {
        Self::ALL
    }
}
