//! What becomes of one scenario: it passes, departs from Linux as documented, or fails.
//!
//! Under the profile `rxsteer` every outcome is compared with Linux's too. For each that differs the
//! scenario is played again with some of Linux's faults put back: the fewest with which the outcome
//! is Linux's are the reason. A difference that no faults explain fails, and so does one between
//! tables and linear scan.
//!
//! Always true: a scenario without a difference passes; one with a difference passes under no
//! profile.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use rxsteer_sockets::{Config, Faults, HASH4, Namespace, Profile, model::Model};

use super::replay::{self, Played};
use super::scenario::Scenario;

/// Keys of the group hash that a spread may need until all members were reached.
const KEYS: u64 = 16;

/// How a scenario is played.
#[derive(Clone, Debug)]
pub(super) struct How {
    pub(super) profile: Profile,
    /// By linear scan instead of by the tables.
    pub(super) model: bool,
    /// Traits whose packets are not compared.
    pub(super) excuse: Vec<String>,
}

/// What came of a scenario.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) compared: u64,
    pub(super) excused: u64,
    /// Differences without an excuse.
    pub(super) failures: Vec<String>,
    /// Differences, each with the faults of Linux that it comes from.
    pub(super) departures: Vec<(Faults, String)>,
}

/// Plays a scenario.
///
/// # Errors
/// The scenario contradicts itself.
pub(super) fn judge(scenario: &Scenario, how: &How) -> Result<Judged> {
    let played = play(scenario, how)?;
    let mut judged =
        Judged { compared: played.compared, excused: played.excused, ..Judged::default() };
    let mut open = BTreeMap::<Option<usize>, Vec<String>>::new();
    for (step, text) in &played.mismatches {
        open.entry(*step).or_default().push(text.clone());
    }
    if how.profile == Profile::Rxsteer {
        compare_with_scan(scenario, how, &played, &mut judged)?;
        for faults in fewest_first() {
            if open.is_empty() {
                break;
            }
            let again = play(scenario, &How { profile: Profile::Keeping(faults), ..how.clone() })?;
            let differs: BTreeSet<_> = again.mismatches.iter().map(|(step, _)| *step).collect();
            open.retain(|step, texts| {
                if differs.contains(step) {
                    return true;
                }
                let text = texts.join("; ");
                judged.departures.push((faults, format!("{}: {text}", place(*step))));
                false
            });
        }
    }
    for (step, texts) in open {
        judged.failures.extend(texts.iter().map(|text| format!("{}: {text}", place(step))));
    }
    Ok(judged)
}

fn place(step: Option<usize>) -> String {
    step.map_or("setup".into(), |step| format!("step {step}"))
}

/// All sets of faults but the empty one, small ones first.
fn fewest_first() -> Vec<Faults> {
    let bit = |set: u32, bit: u32| set >> bit & 1 != 0;
    let mut sets: Vec<u32> = (1..32).collect();
    sets.sort_by_key(|set| set.count_ones());
    let faults = |set| Faults {
        early_demux: bit(set, 0),
        stale_hash4: bit(set, 1),
        stale_remote6: bit(set, 2),
        placeholder4: bit(set, 3),
        left_group: bit(set, 4),
    };
    sets.into_iter().map(faults).collect()
}

/// Where Linux is no judge, the rules by linear scan are.
fn compare_with_scan(
    scenario: &Scenario,
    how: &How,
    played: &Played,
    judged: &mut Judged,
) -> Result<()> {
    let scan = play(scenario, &How { model: !how.model, ..how.clone() })?;
    for (step, got) in &played.received {
        let other = scan.received.get(step);
        if other != Some(got) {
            let text = format!("received by {got:?} in one way, {other:?} in the other");
            judged.failures.push(format!("step {step}: tables and linear scan differ: {text}"));
        }
    }
    Ok(())
}

/// Plays a scenario, with further keys until every spread reached every member.
fn play(scenario: &Scenario, how: &How) -> Result<Played> {
    let mut played = play_once(scenario, how, 0)?;
    let mut unreached = std::mem::take(&mut played.unreached);
    for key in 1..KEYS {
        if unreached.is_empty() || !played.mismatches.is_empty() {
            break;
        }
        let again = play_once(scenario, how, key)?;
        played.mismatches.extend(again.mismatches);
        unreached.retain(|step, missing| {
            let still = again.unreached.get(step).cloned().unwrap_or_else(BTreeSet::new);
            *missing = &*missing & &still;
            !missing.is_empty()
        });
    }
    for (step, missing) in unreached {
        let text = format!("never received by {missing:?}, kernel also by these");
        played.mismatches.push((Some(step), text));
    }
    Ok(played)
}

fn play_once(scenario: &Scenario, how: &How, key: u64) -> Result<Played> {
    let config = Config { profile: how.profile, key: (scenario.seed, key), ..Config::default() };
    let mut scan = Model::new(&config, HASH4);
    if how.model {
        return replay::play(scenario, &mut scan, &how.excuse);
    }
    let mut played = replay::play(scenario, &mut Namespace::new(&config), &how.excuse)?;
    if !HASH4 {
        // What depends on the missing table must follow the rules of the other two.
        let rules = replay::play(scenario, &mut scan, &how.excuse)?;
        for (step, got) in &played.received {
            if rules.received.get(step) != Some(got) {
                let text =
                    format!("received by {got:?}, two tables {:?}", rules.received.get(step));
                played.mismatches.push((Some(*step), text));
            }
        }
    }
    Ok(played)
}
