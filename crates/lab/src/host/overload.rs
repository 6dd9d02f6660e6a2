//! The TOML form of the means of `flow-aware` against overload, each with its switch.

use rxsteer_engine::overload::Means;
use serde::Deserialize;

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct OverloadFile {
    shed: bool,
    fair: bool,
    in_flight: bool,
    beside: bool,
    spill: bool,
    govern: bool,
}

impl From<OverloadFile> for Means {
    fn from(file: OverloadFile) -> Self {
        let OverloadFile { shed, fair, in_flight, beside, spill, govern } = file;
        Self { shed, fair, in_flight, beside, spill, govern }
    }
}
