//! Beside, not on: packets for a CPU that cannot carry its readers and their packets go to a CPU beside it,
//! if that has been tried and gets more done.
//!
//! Looks are at least [`WINDOW`] apart. A CPU is *over* if it was busy for nearly all of the time since the
//! last look and took packets, and packets were shed or lost meanwhile. Two looks over in a row begin a
//! trial: the packets of its flows and ports go to the CPU with the most time free that shares its last
//! cache. What sockets did altogether, their reads and sends, is counted before and after; if it has not
//! grown to [`GAIN`] percent, the packets come home, and the next trial for that CPU is later each time.
//! What is kept is questioned in turn: the packets come home for a trial, rarer each time, and stay there
//! if as much is done so. They also come home when the CPU has most of its time free for some looks.
//!
//! Always true: a CPU has at most one beside it, which takes packets and is not relieved itself; there is
//! one trial at a time.
//! Elsewhere: the order of flows that go there and back (`rxsteer_core::steer`).

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use rxsteer_core::{CpuId, CpuSet};

/// Least time between two looks.
const WINDOW: Duration = Duration::from_millis(50);
/// Percent of its time that a CPU has free at most if it is over.
const BUSY: u64 = 5;
/// Packets that a CPU takes at least between two looks if it is over.
const TAKES: u64 = 50;
/// Percent that a CPU must have free for its packets to come home.
const LIGHT: u64 = 60;
/// Looks over in a row before a trial.
const OVER: u32 = 2;
/// Light looks in a row before packets come home.
const CALM: u32 = 5;
/// Looks after a change in which flows move, and then those in which it shows what it is worth.
const SETTLES: u32 = 1;
const SHOWS: u32 = 2;
/// Percent of what was done before that must be done with packets beside.
const GAIN: u64 = 110;
/// Percent of what was done with packets beside that must be done with them at home again.
const LOSS: u64 = 95;
/// Looks between two trials for a CPU: first, and at most.
const PAUSE: u32 = 40;
const LONGEST_PAUSE: u32 = 1200;

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
#[derive(Clone, Copy, Debug)]
struct Home {
    to: Option<CpuId>,
    over: u32,
    calm: u32,
    /// Looks until the next trial, and how many they will be after it.
    pause: u32,
    next_pause: u32,
}

impl Default for Home {
    fn default() -> Self {
        Self { to: None, over: 0, calm: 0, pause: 0, next_pause: PAUSE }
    }
}

impl Home {
    /// Sets the time until the next trial; the one after it is later.
    fn wait(&mut self) {
        self.pause = self.next_pause;
        self.next_pause = (self.next_pause * 2).min(LONGEST_PAUSE);
    }
}

/// What came of packets since start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// What sockets did, their reads and sends.
    pub(super) done: u64,
    /// Packets that were shed, or lost on the way to a CPU.
    pub(super) refused: u64,
}

/// A change whose worth is looked at.
#[derive(Debug)]
struct Trial {
    cpu: u16,
    /// Where its packets went before.
    former: Option<CpuId>,
    /// What was done before, a second.
    before: u64,
    looks: u32,
    /// What was done in the looks that show.
    sum: u64,
}

/// Who is beside whom.
#[derive(Debug, Default)]
pub(super) struct Beside {
    homes: BTreeMap<u16, Home>,
    trial: Option<Trial>,
    /// What was done between the last looks, a second; the latest first.
    rates: [u64; OVER as usize],
    last: Option<Look>,
}

#[derive(Debug)]
struct Look {
    at: Instant,
    cpus: BTreeMap<u16, Times>,
    work: Work,
}

/// What a CPU did between two looks.
#[derive(Clone, Copy, Debug)]
struct Did {
    /// Percent of its time that nobody wanted.
    free: u64,
    /// Packets that it took.
    taken: u64,
}

impl Beside {
    /// Returns whether the last look is long enough ago.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.last.as_ref().is_none_or(|last| now.duration_since(last.at) >= WINDOW)
    }

    /// Forgets all; returns the CPUs that had one beside them.
    pub(super) fn end(&mut self) -> Vec<CpuId> {
        let homes = std::mem::take(self).homes;
        homes.iter().filter(|(_, home)| home.to.is_some()).map(|(cpu, _)| CpuId(*cpu)).collect()
    }

    /// Looks at the CPUs that take packets; returns the changes: a CPU, and which is beside it now.
    pub(super) fn look(
        &mut self,
        now: Instant,
        cpus: &BTreeMap<u16, Times>,
        work: Work,
        shares: impl Fn(CpuId, CpuId) -> bool,
    ) -> Vec<(CpuId, Option<CpuId>)> {
        if !self.is_due(now) {
            return Vec::new();
        }
        let look = Look { at: now, cpus: cpus.clone(), work };
        let Some(last) = self.last.replace(look) else { return Vec::new() };
        let ms = now.duration_since(last.at).as_millis().max(1) as u64;
        let done = work.done.saturating_sub(last.work.done);
        self.rates.rotate_right(1);
        self.rates[0] = done.saturating_mul(1000) / ms;

        let mut changes = self.leave_those_that_are_gone(cpus);
        if let Some(trial) = self.trial.take() {
            changes.extend(self.judge(trial));
            return changes;
        }
        let did = did_since(&last.cpus, cpus);
        let has_refused = work.refused > last.work.refused;
        for &cpu in did.keys() {
            changes.extend(self.consider(cpu, &did, has_refused, &shares));
        }
        changes
    }

    /// Takes in what a CPU did while no trial went on; returns a change, which may begin one.
    fn consider(
        &mut self,
        cpu: u16,
        did: &BTreeMap<u16, Did>,
        has_refused: bool,
        shares: impl Fn(CpuId, CpuId) -> bool,
    ) -> Option<(CpuId, Option<CpuId>)> {
        let Did { free, taken } = *did.get(&cpu)?;
        let relieves = self.homes.values().any(|home| home.to == Some(CpuId(cpu)));
        let home = self.homes.entry(cpu).or_default();
        home.pause = home.pause.saturating_sub(1);
        let is_over = has_refused && free <= BUSY && taken >= TAKES && !relieves;
        home.over = if home.to.is_none() && is_over { home.over + 1 } else { 0 };
        home.calm = if home.to.is_some() && free >= LIGHT { home.calm + 1 } else { 0 };
        if home.calm >= CALM {
            *home = Home::default();
            return Some((CpuId(cpu), None));
        }
        let is_due = home.pause == 0 && (home.to.is_some() || home.over >= OVER);
        if !is_due || self.trial.is_some() {
            return None;
        }
        let former = home.to;
        let to = if former.is_none() { Some(self.target(cpu, did, shares)?) } else { None };
        let home = self.homes.entry(cpu).or_default();
        (home.to, home.over) = (to, 0);
        let before = self.rates.iter().sum::<u64>() / self.rates.len() as u64;
        self.trial = Some(Trial { cpu, former, before, looks: 0, sum: 0 });
        Some((CpuId(cpu), to))
    }

    /// Returns the CPU with the most time free of those that could be beside another.
    fn target(
        &self,
        cpu: u16,
        did: &BTreeMap<u16, Did>,
        shares: impl Fn(CpuId, CpuId) -> bool,
    ) -> Option<CpuId> {
        let is_in_use = |other: u16| {
            let mut homes = self.homes.iter();
            homes.any(|(home, at)| at.to == Some(CpuId(other)) || *home == other && at.to.is_some())
        };
        let others = did.iter().filter(|(other, _)| {
            **other != cpu && !is_in_use(**other) && shares(CpuId(cpu), CpuId(**other))
        });
        others.max_by_key(|(_, did)| did.free).map(|(other, _)| CpuId(*other))
    }

    /// Forgets CPUs that take packets no more, and brings home what went to them.
    fn leave_those_that_are_gone(
        &mut self,
        cpus: &BTreeMap<u16, Times>,
    ) -> Vec<(CpuId, Option<CpuId>)> {
        let mut changes = Vec::new();
        self.homes.retain(|cpu, home| {
            let stays = cpus.contains_key(cpu);
            if home.to.is_some_and(|to| !stays || !cpus.contains_key(&to.0)) {
                home.to = None;
                changes.push((CpuId(*cpu), None));
            }
            stays
        });
        let is_changed = |trial: &Trial| {
            let gone = |cpu: CpuId| !cpus.contains_key(&cpu.0);
            gone(CpuId(trial.cpu))
                || trial.former.is_some_and(gone)
                || changes.iter().any(|(cpu, _)| cpu.0 == trial.cpu)
        };
        if self.trial.as_ref().is_some_and(is_changed) {
            self.trial = None;
        }
        changes
    }

    /// Goes on with a trial; returns a change if it is over and not worth it.
    fn judge(&mut self, mut trial: Trial) -> Option<(CpuId, Option<CpuId>)> {
        trial.looks += 1;
        if trial.looks > SETTLES {
            trial.sum = trial.sum.saturating_add(self.rates[0]);
        }
        if trial.looks < SETTLES + SHOWS {
            self.trial = Some(trial);
            return None;
        }
        let wanted = if trial.former.is_none() { GAIN } else { LOSS };
        let after = trial.sum / u64::from(SHOWS);
        let is_worth_it = after.saturating_mul(100) >= trial.before.saturating_mul(wanted);
        let home = self.homes.entry(trial.cpu).or_default();
        if is_worth_it {
            // What was decided the other way so far begins anew.
            home.next_pause = PAUSE;
            home.wait();
            return None;
        }
        home.to = trial.former;
        home.wait();
        Some((CpuId(trial.cpu), trial.former))
    }
}

/// Returns what each CPU did between two looks; nothing of those for which no tick was counted.
fn did_since(last: &BTreeMap<u16, Times>, now: &BTreeMap<u16, Times>) -> BTreeMap<u16, Did> {
    let each = now.iter().filter_map(|(cpu, times)| {
        let was = last.get(cpu)?;
        let free = times.free.saturating_sub(was.free) * 100;
        let free = free.checked_div(times.all.saturating_sub(was.all))?;
        Some((*cpu, Did { free, taken: times.taken.saturating_sub(was.taken) }))
    });
    each.collect()
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

    /// Two CPUs over looks of 100 ticks, of which CPU 0 takes the packets: percent free of each, and what
    /// sockets do in a look with packets at home and beside.
    struct Rig {
        beside: Beside,
        cpus: BTreeMap<u16, Times>,
        now: Instant,
        work: Work,
        /// Packets refused in each look.
        refuses: u64,
        to: Option<u16>,
    }

    impl Rig {
        fn new() -> Self {
            let cpus = BTreeMap::from([(0, Times::default()), (1, Times::default())]);
            let mut beside = Beside::default();
            let now = Instant::now();
            beside.look(now, &cpus, Work::default(), |_, _| true);
            Self { beside, cpus, now, work: Work::default(), refuses: 1, to: None }
        }

        /// Returns which CPU is beside CPU 0 after each of some looks.
        fn looks(&mut self, count: usize, free: [u64; 2], done: [u64; 2]) -> Vec<Option<u16>> {
            let look = |_| {
                self.now += WINDOW;
                for (cpu, percent) in (0..).zip(free) {
                    let times: &mut Times = self.cpus.entry(cpu).or_default();
                    times.free += percent;
                    times.all += 100;
                    times.taken += if cpu == 0 { TAKES } else { 0 };
                }
                self.work.done += done[usize::from(self.to.is_some())];
                self.work.refused += self.refuses;
                for (cpu, to) in self.beside.look(self.now, &self.cpus, self.work, |_, _| true) {
                    assert_eq!(cpu, CpuId(0));
                    self.to = to.map(|cpu| cpu.0);
                }
                self.to
            };
            (0..count).map(look).collect()
        }
    }

    #[test]
    fn packets_stay_beside_while_more_is_done_so_and_come_home_when_it_is_calm() {
        let mut rig = Rig::new();
        let told = rig.looks(30, [0, 0], [1000, 1500]);
        assert_eq!(told[0], None);
        assert_eq!(told[1..], [Some(1); 29]);
        let told = rig.looks(6, [80, 60], [100, 100]);
        assert_eq!(told[3..], [Some(1), None, None]);
    }

    #[test]
    fn what_does_not_get_more_done_is_taken_back_and_tried_again_later_each_time() {
        let mut rig = Rig::new();
        // 9 % more is too little.
        let told = rig.looks(600, [0, 50], [1000, 1090]);
        let begins: Vec<usize> =
            (1..told.len()).filter(|at| told[*at].is_some() && told[at - 1].is_none()).collect();
        assert!(begins.len() >= 3, "{begins:?}");
        assert_eq!(begins[0], 1);
        let waits: Vec<usize> = begins.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(waits.is_sorted_by(|a, b| b - a >= 40), "{waits:?}");
        let beside = told.iter().filter(|to| to.is_some()).count();
        assert_eq!(beside, begins.len() * (SETTLES + SHOWS) as usize);
    }

    #[test]
    fn what_is_kept_is_questioned() {
        let mut rig = Rig::new();
        rig.looks(20, [0, 0], [1000, 1500]);
        assert_eq!(rig.to, Some(1));
        // It came to be of no use: as much would be done at home.
        let told = rig.looks(100, [0, 0], [1000, 1000]);
        let home = told.iter().position(Option::is_none).expect("it is tried at home");
        assert!(told[home..home + PAUSE as usize].iter().all(Option::is_none), "{told:?}");

        let mut rig = Rig::new();
        rig.looks(20, [0, 0], [1000, 1500]);
        let told = rig.looks(200, [0, 0], [1000, 1500]);
        let at_home = told.iter().filter(|to| to.is_none()).count();
        assert!((1..=9).contains(&at_home), "{told:?}");
    }

    #[test]
    fn only_a_busy_cpu_that_takes_packets_and_does_not_get_through_is_relieved() {
        let mut rig = Rig::new();
        assert_eq!(rig.looks(20, [BUSY + 1, 90], [1000, 9000]), [None; 20]);
        rig.refuses = 0;
        assert_eq!(rig.looks(20, [0, 90], [1000, 9000]), [None; 20]);
        let mut beside = Beside::default();
        let (mut now, mut cpus) = (Instant::now(), BTreeMap::new());
        for look in 0..20 {
            for cpu in 0..2 {
                cpus.insert(cpu, Times { free: 0, all: look * 100, taken: look * (TAKES - 1) });
            }
            let work = Work { done: look * 1000, refused: look };
            assert!(beside.look(now, &cpus, work, |_, _| true).is_empty());
            now += WINDOW;
        }
    }

    #[test]
    fn a_cpu_that_takes_no_more_packets_is_left() {
        let mut rig = Rig::new();
        rig.looks(20, [0, 0], [1000, 1500]);
        assert_eq!(rig.to, Some(1));
        rig.cpus.remove(&1);
        let only = BTreeMap::from([(0, rig.cpus[&0])]);
        let changes = rig.beside.look(rig.now + WINDOW, &only, rig.work, |_, _| true);
        assert_eq!(changes, [(CpuId(0), None)]);
    }

    #[test]
    fn times_are_read_as_the_kernel_writes_them() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu3 1 2 3 40 5 6 7 8 1 1\nintr 5\n";
        let expected = Times { free: 45, all: 72, taken: 0 };
        assert_eq!(times_in(text), BTreeMap::from([(3, expected)]));
        assert!(!times().is_empty() || !std::path::Path::new("/proc/stat").exists());
    }
}
