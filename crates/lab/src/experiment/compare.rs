//! Figures beside the published ones, and claims that hold or do not.
//!
//! A ratio agrees in direction with a published one if both are above 1, both below, or both within
//! [`SAME`] of it.

use toml::Spanned;

use super::file::{ClaimFile, FigureFile};
use super::measure;
use super::plan::Run;
use super::report::{ClaimReport, ExperimentReport, FigureReport, Verdict};
use crate::config::{ConfigError, Source};

/// A ratio this near to 1 is no change.
const SAME: f64 = 0.03;

/// Distance that agrees where a file says nothing.
const WITHIN: f64 = 0.25;

#[derive(Clone, Debug)]
pub(super) struct Figure {
    what: String,
    source: String,
    value: Value,
    published: f64,
    within: f64,
    why: String,
}

#[derive(Clone, Debug)]
pub(super) struct Claim {
    what: String,
    value: Value,
    at_least: Option<f64>,
    at_most: Option<f64>,
}

/// A measure of a case and policy, maybe over that of another.
#[derive(Clone, Debug)]
struct Value {
    measure: String,
    of: String,
    over: Option<String>,
}

/// Where the case and policy of a figure must be.
pub(super) struct Place<'a> {
    pub(super) source: Source<'a>,
    pub(super) runs: &'a [Run],
}

impl Place<'_> {
    pub(super) fn figure(&self, file: &FigureFile) -> Result<Figure, ConfigError> {
        let number = |given: &Spanned<f64>, least: f64| {
            let n = *given.get_ref();
            if n.is_finite() && n >= least {
                Ok(n)
            } else {
                Err(self.source.refuse(given, format!("{n}: allowed are numbers from {least} on")))
            }
        };
        Ok(Figure {
            what: self.source.one_line(&file.what)?.to_owned(),
            source: self.source.one_line(&file.source)?.to_owned(),
            value: self.value(&file.measure, &file.of, file.over.as_ref())?,
            published: number(&file.published, 0.0)?,
            within: file.within.as_ref().map_or(Ok(WITHIN), |given| number(given, 0.0))?,
            why: file.why.trim().to_owned(),
        })
    }

    pub(super) fn claim(&self, file: &ClaimFile) -> Result<Claim, ConfigError> {
        if file.at_least.is_none() && file.at_most.is_none() {
            return Err(self.source.refuse(&file.of, "a claim has at_least, at_most or both"));
        }
        let bound = |given: &Option<Spanned<f64>>| match given {
            Some(n) if !n.get_ref().is_finite() => {
                Err(self.source.refuse(n, format!("{}: allowed are numbers", n.get_ref())))
            }
            given => Ok(given.as_ref().map(|n| *n.get_ref())),
        };
        let (at_least, at_most) = (bound(&file.at_least)?, bound(&file.at_most)?);
        if let (Some(least), Some(most), Some(at)) = (at_least, at_most, &file.at_most)
            && least > most
        {
            let message = format!("nothing is at least {least} and at most {most}");
            return Err(self.source.refuse(at, message));
        }
        Ok(Claim {
            what: self.source.one_line(&file.what)?.to_owned(),
            value: self.value(&file.measure, &file.of, file.over.as_ref())?,
            at_least,
            at_most,
        })
    }

    fn value(
        &self,
        measure: &Spanned<String>,
        of: &Spanned<String>,
        over: Option<&Spanned<String>>,
    ) -> Result<Value, ConfigError> {
        measure::known(self.source, measure)?;
        self.known(of)?;
        over.map(|over| self.known(over)).transpose()?;
        Ok(Value {
            measure: measure.get_ref().clone(),
            of: of.get_ref().clone(),
            over: over.map(|over| over.get_ref().clone()),
        })
    }

    fn known(&self, name: &Spanned<String>) -> Result<(), ConfigError> {
        let Some((case, policy)) = name.get_ref().rsplit_once('/') else {
            return Err(self.source.refuse(name, "looks like CASE/POLICY"));
        };
        let Some(run) = self.runs.iter().find(|run| run.case == case) else {
            let cases: Vec<&str> = self.runs.iter().map(|run| run.case.as_str()).collect();
            let message = format!("there is no case `{case}`; there are: {}", cases.join("; "));
            return Err(self.source.refuse(name, message));
        };
        if !run.policies().contains(&policy) {
            let message = format!("case `{case}` does not run the policy `{policy}`");
            return Err(self.source.refuse(name, message));
        }
        Ok(())
    }
}

impl Value {
    fn of(&self, report: &ExperimentReport) -> Option<f64> {
        let value = report.value(&self.measure, &self.of)?;
        match &self.over {
            None => Some(value),
            Some(over) => {
                let base = report.value(&self.measure, over)?;
                // A ratio to nothing is none.
                (base != 0.0).then(|| value / base)
            }
        }
    }
}

impl Figure {
    pub(super) fn compare(&self, report: &ExperimentReport) -> FigureReport {
        let measured = self.value.of(report);
        FigureReport {
            what: self.what.clone(),
            source: self.source.clone(),
            measure: self.value.measure.clone(),
            of: self.value.of.clone(),
            over: self.value.over.clone(),
            published: self.published,
            measured,
            within: self.within,
            verdict: measured.map_or(Verdict::Missing, |measured| {
                judge(measured, self.published, self.within, self.value.over.is_some())
            }),
            why: self.why.clone(),
        }
    }
}

impl Claim {
    pub(super) fn check(&self, report: &ExperimentReport) -> ClaimReport {
        let measured = self.value.of(report);
        let holds = measured.is_some_and(|value| {
            self.at_least.is_none_or(|least| value >= least)
                && self.at_most.is_none_or(|most| value <= most)
        });
        ClaimReport {
            what: self.what.clone(),
            measure: self.value.measure.clone(),
            of: self.value.of.clone(),
            over: self.value.over.clone(),
            at_least: self.at_least,
            at_most: self.at_most,
            measured,
            holds,
        }
    }
}

fn judge(measured: f64, published: f64, within: f64, ratio: bool) -> Verdict {
    let scale = if published == 0.0 { 1.0 } else { published };
    let near = (measured - published).abs() <= within * scale;
    if !ratio {
        return if near { Verdict::Agrees } else { Verdict::Differs };
    }
    let direction = |ratio: f64| match ratio {
        r if (r - 1.0).abs() <= SAME => 0,
        r if r > 1.0 => 1,
        _ => -1,
    };
    match (direction(measured) == direction(published), near) {
        (true, true) => Verdict::Agrees,
        (true, false) => Verdict::Direction,
        (false, _) => Verdict::Differs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_judged_by_direction_first() {
        let judge = |measured, published| judge(measured, published, 0.25, true);
        assert_eq!(judge(2.9, 2.6), Verdict::Agrees);
        assert_eq!(judge(1.5, 2.6), Verdict::Direction);
        assert_eq!(judge(0.9, 2.6), Verdict::Differs);
        assert_eq!(judge(1.02, 1.0), Verdict::Agrees);
        // Near, but one of them says that something changed.
        assert_eq!(judge(1.1, 1.0), Verdict::Differs);
        assert_eq!(judge(0.7, 0.9), Verdict::Agrees);
    }

    #[test]
    fn a_value_is_judged_by_distance_and_nothing_by_itself() {
        let judge = |measured, published| judge(measured, published, 0.1, false);
        assert_eq!(judge(15.3, 16.0), Verdict::Agrees);
        assert_eq!(judge(12.0, 16.0), Verdict::Differs);
        assert_eq!(judge(0.0, 0.0), Verdict::Agrees);
        assert_eq!(judge(0.2, 0.0), Verdict::Differs);
    }
}
