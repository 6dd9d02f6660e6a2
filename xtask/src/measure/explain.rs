//! What is known about a case in which the lab is wrong: shown beside it if its error is above the bound.
//!
//! A rate is a number of steps times their prices. The numbers are counted on both sides, so it is known
//! whether they are the reason; which price is wrong is not.

use super::figures::{Named, Row};

/// Error from which a case is explained, as a share of what was measured.
pub(super) const BOUND: f64 = 0.25;

/// Difference of two counts for a packet below which they count as equal.
const LITTLE: f64 = 0.05;

/// Returns what the counts say of the error of a case.
pub(super) fn cause(row: &Row) -> String {
    let pairs: Vec<(&Named, &Named)> = row
        .lab
        .iter()
        .filter_map(|lab| Some((row.more.iter().find(|live| live.name == lab.name)?, lab)))
        .collect();
    let differs = |(live, lab): &&(&Named, &Named)| {
        let difference = (lab.median - live.median).abs();
        difference > LITTLE && difference > live.median * BOUND
    };
    let told = |pairs: &mut dyn Iterator<Item = &(&Named, &Named)>| {
        let one = |(live, lab): &(&Named, &Named)| {
            let Named { name, unit, median } = live;
            format!("{median:.2} {name} {unit} here, {:.2} in the lab", lab.median)
        };
        pairs.map(one).collect::<Vec<_>>().join("; ")
    };
    if pairs.iter().any(|pair| differs(&pair)) {
        return format!(
            "the two CPUs do not meet as often as in the lab: {}. Why is open.",
            told(&mut pairs.iter().filter(differs))
        );
    }
    if pairs.is_empty() {
        return "nothing was counted that tells the number of steps from their prices: open."
            .into();
    }
    format!(
        "the CPUs meet as often as in the lab ({}), so it is the prices of steps that are off. Which of them is \
         open.",
        told(&mut pairs.iter())
    )
}
