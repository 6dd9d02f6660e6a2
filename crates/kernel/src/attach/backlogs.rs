//! The queues of the CPUs: entries of the CPUMAP, states, and the programs that hear what becomes of
//! packets there.
//!
//! They stay as they are when all else is replaced. Two of the programs that hear of losses would count
//! each twice; and an entry that is replaced is another queue, worked off by another thread, beside
//! the old one.
//!
//! Always true: a CPU is in one of three states: it takes packets, it is on its way out and works off
//! what waits, or it has no entry.
//! Elsewhere: what the words of a state are ([`rxsteer_ebpf::cpu_state`]).

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use aya::maps::{CpuMap, Map, MapData};
use rxsteer_core::{CpuId, CpuSet};
use rxsteer_ebpf::{cpu_state, map, program};

use super::AttachError;
use super::beside::{self, Beside, Work};
use super::cpus::make_even;
use super::generation::{MapFds, Programs};
use super::maps::in_map;
use super::memory::StateMemory;
use crate::link;

/// How long a change waits for a CPU to have nothing waiting. One that can carry its load rests many
/// times in that.
const PATIENCE: Duration = Duration::from_millis(300);

/// The queues of the CPUs.
pub(super) struct Backlogs {
    states: StateMemory,
    entries: CpuMap<MapData>,
    /// CPUs that take packets.
    pub(super) open: CpuSet,
    /// CPUs that work off what waits, and what was sent there when it was last seen to rest.
    leaving: Vec<(CpuId, Option<u64>)>,
    /// CPUs that were cut off, and what was found waiting there when they came back.
    gone: Vec<CpuId>,
    left_behind: u64,
    /// Links of the programs that hear of the queues.
    links: Vec<OwnedFd>,
    beside: Beside,
}

impl Backlogs {
    /// Takes over the queues in these maps; `links` are those of the programs that hear of them.
    pub(super) fn new(fds: &MapFds, links: Vec<OwnedFd>) -> Result<Self, AttachError> {
        let states = fds.open(map::CPU_STATES)?;
        let states = StateMemory::map(states.fd()).map_err(in_map(map::CPU_STATES))?;
        let entries = fds.open(map::CPUS)?;
        let id = entries.info().map_err(in_map(map::CPUS))?.id();
        fds.set(map::IDS, 0, id)?;
        let entries = CpuMap::try_from(Map::CpuMap(entries)).map_err(in_map(map::CPUS))?;
        let mut this = Self {
            states,
            entries,
            open: CpuSet::EMPTY,
            leaving: Vec::new(),
            gone: Vec::new(),
            left_behind: 0,
            links,
            beside: Beside::default(),
        };
        for cpu in (0..rxsteer_ebpf::MAX_CPUS as u16).map(CpuId) {
            // Whoever was beside another before is judged anew.
            this.set_beside(cpu, None);
            let state = this.word(cpu, cpu_state::ONLINE);
            if state & cpu_state::TAKES != 0 {
                this.open.insert(cpu);
            } else if state & cpu_state::LEAVES != 0 {
                this.leaving.push((cpu, None));
            }
        }
        Ok(this)
    }

    /// Returns whether it is time to look who is overloaded.
    pub(super) fn may_relieve(&self) -> bool {
        self.beside.is_due(Instant::now())
    }

    /// Sends the packets of CPUs that cannot carry them beside, and home again. `done` counts what sockets
    /// did since start, `shed` the packets that were dropped early.
    pub(super) fn relieve(&mut self, done: u64, shed: u64) {
        const LOST: [usize; 3] =
            [cpu_state::LOST_FULL, cpu_state::LOST_REFUSED, cpu_state::LOST_MEMORY];
        let all = (0..rxsteer_ebpf::MAX_CPUS as u16).map(CpuId);
        let lost: u64 =
            all.map(|cpu| LOST.map(|word| self.word(cpu, word)).iter().sum::<u64>()).sum();
        let work = Work { done, refused: shed + lost };
        let mut cpus = beside::times();
        cpus.retain(|cpu, _| self.open.contains(CpuId(*cpu)));
        for (cpu, times) in &mut cpus {
            times.taken = self.word(CpuId(*cpu), cpu_state::TAKEN);
        }
        let now = Instant::now();
        for (cpu, to) in self.beside.look(now, &cpus, work, beside::share_cache) {
            self.set_beside(cpu, to);
        }
    }

    /// Brings home all that is beside.
    pub(super) fn come_home(&mut self) {
        for cpu in self.beside.end() {
            self.set_beside(cpu, None);
        }
    }

    fn set_beside(&self, cpu: CpuId, to: Option<CpuId>) {
        let word = to.map_or(0, |to| u64::from(to.0) + 1);
        self.states.word(cpu, cpu_state::BESIDE).store(word, Ordering::SeqCst);
    }

    /// Returns the links of the programs that hear of the queues.
    pub(super) fn links(&self) -> &[OwnedFd] {
        &self.links
    }

    /// Returns the same, to take them to another account of the same queues.
    pub(super) fn links_mut(&mut self) -> &mut Vec<OwnedFd> {
        &mut self.links
    }

    /// Hears what becomes of packets, if that is not heard already.
    pub(super) fn hear(&mut self, programs: &mut Programs) -> Result<(), AttachError> {
        if !self.links.is_empty() {
            return Ok(());
        }
        let links = program::EVENTS[..program::BACKLOG_EVENTS].iter().map(|(name, event)| {
            let failed = |source| AttachError::Event {
                name,
                place: format!("the tracepoint {event}"),
                source,
            };
            let program = programs.fd(name).map_err(|error| failed(Box::new(error)))?;
            link::attach_tracepoint(&program).map_err(|error| failed(Box::new(error)))
        });
        self.links = links.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Lets CPUs take packets. One that was on its way out keeps its queue.
    pub(super) fn let_in(
        &mut self,
        programs: &mut Programs,
        cpus: &CpuSet,
        queue_packets: u32,
    ) -> Result<(), AttachError> {
        for cpu in cpus.iter() {
            let is_leaving = self.leaving.iter().position(|(this, _)| *this == cpu);
            match is_leaving {
                Some(place) => drop(self.leaving.swap_remove(place)),
                None => self.make(programs, cpu, queue_packets)?,
            }
            if let Some(place) = self.gone.iter().position(|this| *this == cpu) {
                // What was left there is taken elsewhere, and must not be waited for.
                self.gone.swap_remove(place);
                let left = self.not_taken(cpu);
                self.left_behind += left;
                self.states.word(cpu, cpu_state::TAIL).fetch_sub(left, Ordering::SeqCst);
            }
            self.set(cpu, cpu_state::TAKES);
            self.open.insert(cpu);
        }
        Ok(())
    }

    fn make(
        &mut self,
        programs: &mut Programs,
        cpu: CpuId,
        queue_packets: u32,
    ) -> Result<(), AttachError> {
        let taken = programs.fd(program::TAKEN).map_err(in_map(map::CPUS))?;
        let made = self.entries.set(u32::from(cpu.0), queue_packets, Some(&taken), 0);
        made.map_err(in_map(map::CPUS))
    }

    /// Gives a CPU a queue of another length, and returns how many packets the new one may overtake.
    ///
    /// Waits for a moment in which nothing waits in the old one, for a while.
    pub(super) fn resize(
        &mut self,
        programs: &mut Programs,
        cpu: CpuId,
        queue_packets: u32,
    ) -> Result<u64, AttachError> {
        self.rest(|this| this.rests(cpu));
        self.make(programs, cpu, queue_packets)?;
        Ok(self.waiting(cpu))
    }

    /// Takes a CPU out of use once it has worked off what waits, which [`settle`](Self::settle) sees.
    pub(super) fn let_out(&mut self, cpu: CpuId) {
        if self.open.remove(cpu) {
            self.set(cpu, cpu_state::LEAVES);
            self.leaving.push((cpu, None));
        }
    }

    /// Takes a CPU out of use at once: it does not run, so there is nobody who works anything off.
    pub(super) fn cut_off(&mut self, cpu: CpuId) {
        self.open.remove(cpu);
        self.leaving.retain(|(this, _)| *this != cpu);
        self.close(cpu);
        self.gone.push(cpu);
    }

    /// Takes those CPUs out of use that have worked off what waited. To be called again after a while:
    /// a CPU must be seen at rest twice, with nothing sent there in between.
    pub(super) fn settle(&mut self) {
        let leaving = std::mem::take(&mut self.leaving);
        for (cpu, seen) in leaving {
            let sent = self.rests(cpu).then(|| self.word(cpu, cpu_state::TAIL));
            if sent.is_some() && sent == seen {
                self.close(cpu);
            } else {
                self.leaving.push((cpu, sent));
            }
        }
        self.make_even();
    }

    /// The thread of a CPU that went offline takes the rest of its queue on another CPU, which counts as
    /// taken there: count that as sent there too, or positions there were wrong for good.
    fn make_even(&mut self) {
        if self.gone.is_empty() && self.left_behind == 0 {
            return;
        }
        let others: Vec<CpuId> = self.open.iter().collect();
        // What was taken first, so that what comes in between is not an excess.
        let excess = |cpu: &CpuId| {
            let taken = self.word(*cpu, cpu_state::TAKEN);
            taken.saturating_sub(self.word(*cpu, cpu_state::TAIL))
        };
        let excess: Vec<u64> = others.iter().map(excess).collect();
        let mut waiting = vec![self.left_behind];
        waiting.extend(self.gone.iter().map(|cpu| self.not_taken(*cpu)));
        let (less, more) = make_even(&waiting, &excess);
        self.left_behind -= less[0];
        for (cpu, count) in self.gone.iter().zip(&less[1..]) {
            self.states.word(*cpu, cpu_state::TAIL).fetch_sub(*count, Ordering::SeqCst);
        }
        for (cpu, count) in others.iter().zip(more) {
            self.states.word(*cpu, cpu_state::TAIL).fetch_add(count, Ordering::SeqCst);
        }
    }

    /// Returns the packets sent to a CPU that it has not taken.
    fn not_taken(&self, cpu: CpuId) -> u64 {
        let taken = self.word(cpu, cpu_state::TAKEN);
        self.word(cpu, cpu_state::TAIL).saturating_sub(taken)
    }

    /// The queue is worked off before it goes, whatever is still in it.
    fn close(&mut self, cpu: CpuId) {
        self.set(cpu, 0);
        // An entry that is not there is as good as one that is taken out.
        let _ = self.entries.set(u32::from(cpu.0), 0, None, 0);
    }

    /// Lets no flow move from CPU to CPU, or lets them move again.
    pub(super) fn hold(&self, hold: bool) {
        let leaving = self.leaving.iter().map(|(cpu, _)| *cpu);
        for cpu in self.open.iter().chain(leaving) {
            let word = self.states.word(cpu, cpu_state::ONLINE);
            if hold {
                word.fetch_or(cpu_state::HOLDS, Ordering::SeqCst);
            } else {
                word.fetch_and(!cpu_state::HOLDS, Ordering::SeqCst);
            }
        }
        if hold {
            // A packet that was decided on before is through long before this ends.
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns the packets sent to a CPU that are not known to be done.
    pub(super) fn waiting(&self, cpu: CpuId) -> u64 {
        // The tail last, so that what comes in between counts as waiting.
        let head = self.word(cpu, cpu_state::HEAD);
        self.word(cpu, cpu_state::TAIL).saturating_sub(head)
    }

    /// Returns whether nothing waits for a CPU.
    pub(super) fn rests(&self, cpu: CpuId) -> bool {
        self.waiting(cpu) == 0
    }

    /// Waits until something is so, but not for long.
    pub(super) fn rest(&self, is_so: impl Fn(&Self) -> bool) -> bool {
        let end = Instant::now() + PATIENCE;
        loop {
            if is_so(self) {
                return true;
            }
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn word(&self, cpu: CpuId, word: usize) -> u64 {
        self.states.word(cpu, word).load(Ordering::SeqCst)
    }

    fn set(&self, cpu: CpuId, state: u64) {
        self.states.word(cpu, cpu_state::ONLINE).store(state, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
