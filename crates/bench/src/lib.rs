//! Real packets through the running kernel, and what they cost.
//!
//! [`generate`] sends packets, [`send_capture`] those of a capture, [`receive`] reads them and accounts
//! for each. They run in a testbed of their own, or on a network that its owner named.
//!
//! Always true: a run is bounded in time and in packets; nothing is sent to an address outside the
//! own testbed unless it was named ([`Permit`]).
//! Elsewhere: namespaces, devices and settings (`rxsteer-testbed`); packet bytes
//! (`rxsteer-lab`); how it is asked for and shown (`rxsteer`).

mod calibrate;
mod compare;
mod error;
mod facts;
mod mixed;
mod permit;
mod rate;
mod rr;
mod sink;
mod source;
mod sys;
mod threads;
mod traffic;
mod watch;
mod words;

pub use calibrate::{CalibrateReport, Cost, Kept, Wake, calibrate};
pub use compare::{
    Attached, AttachedRun, CompareReport, CompareSpec, Load, Metric, OverloadSpec, Ratio, SIGNALS,
    SLEEPS, Setup, SetupReport, Spread, Workload, compare,
};
pub use error::BenchError;
pub use facts::HostFacts;
pub use mixed::{MixedReport, MixedSpec, mix_in};
pub use permit::Permit;
pub use rate::Bucket;
pub use rr::{
    Delay, Latency, Pace, Protocol, Quantiles, RrPairReport, RrReport, RrSpec, ServerReport, ask,
    ask_in, serve,
};
pub use sink::{
    Account, Call, CpuUse, Finding, PairReport, Reader, SinkReport, SinkSpec, receive, receive_in,
};
pub use source::{
    CapturePace, CaptureReport, CaptureSpec, Ended, GenPairReport, GenReport, GenSpec, Means,
    Rewritten, Road, Unsent, generate, generate_in, send_capture,
};
pub use traffic::{Kind, Pattern, Sizes, Traffic};
pub use watch::{Second, Until, Watch};
pub use words::UnknownWord;
