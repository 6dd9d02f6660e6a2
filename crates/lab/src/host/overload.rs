//! The TOML form of the means of `flow-aware` against overload, each with its switch.

use rxsteer_engine::overload::Means;
use serde::Deserialize;
use toml::Spanned;

use crate::config::{ConfigError, Source};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct OverloadFile {
    shed: bool,
    fair: Option<Spanned<bool>>,
    in_flight: Option<Spanned<bool>>,
    beside: bool,
    spill: bool,
    govern: bool,
}

/// Makes the means of their plain form; refuses what says how to shed where nothing is shed.
pub(super) fn means(source: Source<'_>, file: &OverloadFile) -> Result<Means, ConfigError> {
    let of_shedding = |given: &Option<Spanned<bool>>| match given {
        Some(on) if *on.get_ref() && !file.shed => Err(source.refuse(on, "needs shed = true")),
        given => Ok(given.as_ref().is_some_and(|on| *on.get_ref())),
    };
    Ok(Means {
        shed: file.shed,
        fair: of_shedding(&file.fair)?,
        in_flight: of_shedding(&file.in_flight)?,
        beside: file.beside,
        spill: file.spill,
        govern: file.govern,
    })
}
