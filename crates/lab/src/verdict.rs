//! stub
use crate::host::Host;
use crate::report::{Report, Verdict, VerdictCode};

/// The verdict on no data.
pub fn nothing() -> Verdict {
    Verdict {
        code: VerdictCode::NoData,
        policy: "none".into(),
        summary: "no packet was received, so there is nothing to judge".into(),
        buys: Vec::new(),
        costs: Vec::new(),
        unless: Vec::new(),
        others: Vec::new(),
        settings: Vec::new(),
        evidence: Vec::new(),
    }
}

/// Judges.
pub fn judge(_host: &Host, _report: &Report) -> Verdict {
    nothing()
}
