//! Beside, not on: packets for a CPU that cannot carry its readers and their packets go to a CPU beside it.
//!
//! At each look, at least [`WINDOW`] apart, a CPU is *over* if it was busy for nearly all of the time
//! since the last one, took packets, and packets were refused or lost meanwhile. Two looks over in a row
//! send the packets of its flows and ports to the CPU with the most time free that shares a cache and
//! has [`ROOM`] percent free. They come home when the CPU would have most of its time free for many looks
//! and nothing was refused; and when the other CPU is overwhelmed in turn, after which it is not tried
//! again for a while.
//!
//! Always true: a CPU has at most one beside it, which takes packets; what is placed changes at most once
//! in two looks.
//! Elsewhere: the order of flows that go there and back (`rxsteer_core::steer`).

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use rxsteer_core::{CpuId, CpuSet};

/// Least time between two looks.
const WINDOW: Duration = Duration::from_millis(100);
/// Percent of its time that a CPU has free at most if it is over.
const BUSY: u64 = 5;
/// Percent that a CPU beside must have free.
const ROOM: u64 = 40;
/// Percent that a CPU must have free for its packets to come home.
const LIGHT: u64 = 60;
/// Looks over in a row before packets go, or come home from a CPU that is overwhelmed.
const OVER: u32 = 2;
/// Light looks in a row before packets come home.
const CALM: u32 = 5;
/// Looks after a failure before a CPU is tried for again.
const PAUSE: u32 = 30;

/// What a CPU did since start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Times {
    /// Time that nobody wanted, in ticks.
    pub(super) free: u64,
    /// All time, in ticks.
    pub(super) all: u64,
    /// Packets that it took.
    pub(super) taken: u64,
}

/// What one CPU is like, over several looks.
#[derive(Clone, Copy, Debug, Default)]
struct Home {
    to: Option<CpuId>,
    over: u32,
    calm: u32,
    pause: u32,
}

/// Who is beside whom.
#[derive(Debug, Default)]
pub(super) struct Beside {
    homes: BTreeMap<u16, Home>,
    last: Option<Look>,
}

#[derive(Debug)]
struct Look {
    at: Instant,
    cpus: BTreeMap<u16, Times>,
    refused: u64,
}

impl Beside {
    /// Looks at the CPUs that take packets; returns the changes: a CPU, and which is beside it now.
    ///
    /// `refused` counts the packets that were refused or lost since start.
    pub(super) fn look(
        &mut self,
        now: Instant,
        cpus: &BTreeMap<u16, Times>,
        refused: u64,
        shares: impl Fn(CpuId, CpuId) -> bool,
    ) -> Vec<(CpuId, Option<CpuId>)> {
        if self.last.as_ref().is_some_and(|last| now.duration_since(last.at) < WINDOW) {
            return Vec::new();
        }
        let look = Look { at: now, cpus: cpus.clone(), refused };
        let Some(last) = self.last.replace(look) else { return Vec::new() };
        let has_refused = refused > last.refused;
        let free: BTreeMap<u16, (u64, bool)> = cpus
            .iter()
            .filter_map(|(cpu, times)| {
                let was = last.cpus.get(cpu)?;
                let all = times.all.saturating_sub(was.all);
                let free = times.free.saturating_sub(was.free) * 100;
                Some((*cpu, (free.checked_div(all)?, times.taken > was.taken)))
            })
            .collect();
        let mut changes = Vec::new();
        self.homes.retain(|cpu, home| {
            let stays = free.contains_key(cpu);
            if !stays && home.to.is_some() {
                changes.push((CpuId(*cpu), None));
            }
            stays
        });
        for (&cpu, &(percent, took)) in &free {
            let home = self.homes.entry(cpu).or_default();
            home.pause = home.pause.saturating_sub(1);
            let before = home.to;
            match home.to.map(|to| free.get(&to.0)) {
                None => {
                    let over = percent <= BUSY && took && has_refused;
                    home.over = if over { home.over + 1 } else { 0 };
                    if home.over >= OVER && home.pause == 0 {
                        let others = free.iter().filter(|(other, (percent, _))| {
                            **other != cpu && *percent >= ROOM && shares(CpuId(cpu), CpuId(**other))
                        });
                        home.to =
                            others.max_by_key(|(_, (p, _))| *p).map(|(other, _)| CpuId(*other));
                    }
                }
                // It takes packets no more.
                Some(None) => home.to = None,
                Some(Some((other, _))) => {
                    home.calm = if percent >= LIGHT && !has_refused { home.calm + 1 } else { 0 };
                    let over = *other <= BUSY && percent >= ROOM && has_refused;
                    home.over = if over { home.over + 1 } else { 0 };
                    if home.calm >= CALM || home.over >= OVER {
                        home.pause = if home.over >= OVER { PAUSE } else { 0 };
                        home.to = None;
                    }
                }
            }
            if home.to != before {
                (home.over, home.calm) = (0, 0);
                changes.push((CpuId(cpu), home.to));
            }
        }
        changes
    }
}

/// Returns the time of each CPU, free and all, in ticks; none without `/proc`.
pub(super) fn times() -> BTreeMap<u16, Times> {
    times_in(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

fn times_in(text: &str) -> BTreeMap<u16, Times> {
    let lines = text.lines().filter_map(|line| {
        // The sum of all CPUs has no number.
        let rest = line.strip_prefix("cpu").filter(|rest| !rest.starts_with(' '))?;
        let mut words = rest.split_ascii_whitespace();
        let cpu = words.next()?.parse().ok()?;
        // user, nice, system, idle, iowait, irq, softirq, steal; what follows is in these.
        let times: Vec<u64> = words.take(8).filter_map(|word| word.parse().ok()).collect();
        let free = times.get(3)? + times.get(4)?;
        Some((cpu, Times { free, all: times.iter().sum(), taken: 0 }))
    });
    lines.collect()
}

/// Returns whether two CPUs share their last cache, as far as the kernel says.
pub(super) fn share_cache(one: CpuId, other: CpuId) -> bool {
    let shared = (0..8).rev().find_map(|index| {
        let path =
            format!("/sys/devices/system/cpu/cpu{}/cache/index{index}/shared_cpu_list", one.0);
        CpuSet::from_list(fs::read_to_string(path).ok()?.trim()).ok()
    });
    shared.is_none_or(|set| set.contains(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two CPUs over looks of 100 ticks: percent free of each, and whether packets were refused.
    fn run(looks: &[(u64, u64, bool)]) -> Vec<Option<u16>> {
        let mut beside = Beside::default();
        let mut cpus = BTreeMap::from([(0, Times::default()), (1, Times::default())]);
        let (mut now, mut refused, mut to) = (Instant::now(), 0, None);
        beside.look(now, &cpus, 0, |_, _| true);
        let step = |&(free, other, refuses): &(u64, u64, bool)| {
            now += WINDOW;
            for (cpu, percent) in [(0, free), (1, other)] {
                let times: &mut Times = cpus.entry(cpu).or_default();
                times.free += percent;
                times.all += 100;
                times.taken += u64::from(cpu == 0);
            }
            refused += u64::from(refuses);
            for (cpu, beside) in beside.look(now, &cpus, refused, |_, _| true) {
                assert_eq!(cpu, CpuId(0));
                to = beside.map(|cpu| cpu.0);
            }
            to
        };
        looks.iter().map(step).collect()
    }

    #[test]
    fn two_looks_over_send_packets_beside_and_calm_brings_them_home() {
        let mut looks = vec![(0, 90, true), (0, 90, true), (10, 30, false)];
        looks.extend([(80, 60, false); 5]);
        let told = run(&looks);
        assert_eq!(told, [None, Some(1), Some(1), Some(1), Some(1), Some(1), Some(1), None]);
    }

    #[test]
    fn a_busy_cpu_that_refuses_nothing_and_one_without_room_beside_it_keep_their_packets() {
        assert_eq!(run(&[(0, 90, false); 5]), [None; 5]);
        assert_eq!(run(&[(0, 39, true); 5]), [None; 5]);
        assert_eq!(run(&[(0, 90, true), (50, 90, true), (0, 90, true)]), [None; 3]);
    }

    #[test]
    fn a_cpu_that_is_overwhelmed_gives_back_and_is_not_tried_at_once() {
        let mut looks = vec![(0, 90, true), (0, 90, true), (50, 0, true), (50, 0, true)];
        looks.extend([(0, 90, true); 29]);
        let told = run(&looks);
        assert_eq!(told[1..4], [Some(1), Some(1), None]);
        assert_eq!(told[4..], [None; 29]);
    }

    #[test]
    fn times_are_read_as_the_kernel_writes_them() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu3 1 2 3 40 5 6 7 8 1 1\nintr 5\n";
        let expected = Times { free: 45, all: 72, taken: 0 };
        assert_eq!(times_in(text), BTreeMap::from([(3, expected)]));
        assert!(!times().is_empty() || !std::path::Path::new("/proc/stat").exists());
    }
}
