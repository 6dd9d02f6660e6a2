//! Beside, not on: an elephant's packets go to a CPU beside its consumer's when that cannot carry both.
//!
//! Following the consumer keeps data in its cache, and makes the CPU that reads a flow also the CPU
//! that processes it. For many small flows that is the cheapest; for one large flow two CPUs carry
//! more. So, at the end of each window of time:
//!
//! 1. A CPU that is overloaded ([`pressure`](super::pressure)) by consumers and packets together moves
//!    its largest flow, if that is an elephant: certain to be a quarter of its consumers' packet work
//!    ([`elephants`](super::elephants)). A CPU of small flows moves none.
//! 2. The flow goes to the least busy CPU that shares the cache, is online, and has half of its time
//!    free or room for the work of the flow. If there is none it stays.
//! 3. One move of a CPU's flows at a time; the next not before the last has had its effect.
//! 4. The flow comes home when its consumer's CPU would be at most 60 % busy with it for many
//!    windows, at once when the other CPU goes offline, and to a third CPU when the second is
//!    overwhelmed while another has half of its time free.
//!
//! Order is core's affair: [`Beside::for_flow`] gives a decision a [`Host`] that names the CPU
//! beside for this flow alone; the flow leaves its old CPU only when that has passed its last packet.
//!
//! Always true: at most [`PLACES`] flows of one consumer's CPU are away; a flow's CPU changes at most
//! once in `settle` windows.

use rxsteer_core::steer::Host;
use rxsteer_core::{CpuId, FlowHash};

use super::elephants::Elephants;
use super::pressure::{Pressure, PressureSettings, Window};
use crate::Cpus;

/// Flows of one consumer's CPU that may be away at one time.
pub const PLACES: usize = 4;

/// Settings of [`Beside`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BesideSettings {
    /// Length of a window in ns, at least 1.
    pub window_ns: u64,
    /// When a CPU is overloaded.
    pub pressure: PressureSettings,
    /// Part of the packet work for a CPU's consumers, in percent, that makes a flow an elephant.
    pub elephant_percent: u8,
    /// Windows between two moves of one CPU's flows.
    pub settle: u16,
}

impl Default for BesideSettings {
    /// Windows of 2 ms, elephants from 25 %, 8 windows between moves.
    fn default() -> Self {
        Self {
            window_ns: 2_000_000,
            pressure: PressureSettings::default(),
            elephant_percent: 25,
            settle: 8,
        }
    }
}

/// What a CPU has done since start, and what waits on it now.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sample {
    /// Packet work in ns since start.
    pub packets_ns: u64,
    /// Work of readers in ns since start.
    pub readers_ns: u64,
    /// Packets refused for its readers since start: shed, or dropped at their sockets.
    pub refused: u64,
    /// Packets on its backlog, and on rings that it polls.
    pub depth: u32,
}

/// How often flows were moved.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Moves {
    /// To a CPU beside the consumer's.
    pub placed: u64,
    /// From there to another.
    pub replaced: u64,
    /// Home again, or forgotten because the flow ended.
    pub returned: u64,
}

/// Which flows are beside their consumer, and where.
#[derive(Clone, Debug)]
pub struct Beside {
    settings: BesideSettings,
    homes: Vec<Home>,
    window_start_ns: u64,
    away: usize,
    moves: Moves,
}

/// A CPU as the home of consumers.
#[derive(Clone, Debug, Default)]
struct Home {
    pressure: Pressure,
    elephants: Elephants,
    last: Sample,
    busy_ns: u64,
    settling: u16,
    placed: [Option<Placed>; PLACES],
}

#[derive(Clone, Copy, Debug)]
struct Placed {
    hash: FlowHash,
    cpu: CpuId,
    light: u16,
}

/// A host that names the CPU beside for one flow.
#[derive(Debug)]
pub struct ForFlow<'a, H: ?Sized> {
    beside: &'a Beside,
    host: &'a H,
    hash: FlowHash,
}

impl Beside {
    /// Makes it for CPUs of ids below `cpus`.
    pub fn new(settings: BesideSettings, cpus: u32) -> Self {
        let settings = BesideSettings { window_ns: settings.window_ns.max(1), ..settings };
        let cpus = cpus.min(1 << 16) as usize;
        Self {
            settings,
            homes: vec![Home::default(); cpus],
            window_start_ns: 0,
            away: 0,
            moves: Moves::default(),
        }
    }

    /// Returns how often flows were moved.
    pub fn moves(&self) -> Moves {
        self.moves
    }

    /// Returns the CPU beside `home` that a flow's packets go to.
    #[inline]
    pub fn target(&self, home: CpuId, hash: FlowHash) -> Option<CpuId> {
        if self.away == 0 {
            return None;
        }
        let placed = &self.homes.get(home.index())?.placed;
        placed.iter().flatten().find(|placed| placed.hash == hash).map(|placed| placed.cpu)
    }

    /// Returns the host for the decision about a packet of this flow.
    #[inline]
    pub fn for_flow<'a, H: Host + ?Sized>(&'a self, host: &'a H, hash: FlowHash) -> ForFlow<'a, H> {
        ForFlow { beside: self, host, hash }
    }

    /// Hears of packet work, in ns, for a consumer on CPU `home`, wherever it was done.
    #[inline]
    pub fn worked(&mut self, home: CpuId, hash: FlowHash, work_ns: u32) {
        if let Some(home) = self.homes.get_mut(home.index()) {
            home.elephants.add(hash, work_ns);
        }
    }

    /// Returns when the window ends that is running.
    #[inline]
    pub fn due_ns(&self) -> u64 {
        self.window_start_ns.saturating_add(self.settings.window_ns)
    }

    /// Ends the window if it is over, and moves flows; `sample` tells of a CPU.
    pub fn window<C: Cpus + ?Sized>(
        &mut self,
        now_ns: u64,
        cpus: &C,
        sample: impl Fn(CpuId) -> Sample,
    ) {
        if now_ns < self.due_ns() {
            return;
        }
        let length_ns = now_ns - self.window_start_ns;
        self.window_start_ns = now_ns;
        for n in 0..self.homes.len() {
            self.end_window(n, length_ns, sample(CpuId(n as u16)));
        }
        for n in 0..self.homes.len() {
            self.bring_home(n, length_ns, cpus);
            self.place(n, length_ns, cpus);
            self.homes[n].elephants.halve();
        }
        let away = |home: &Home| home.placed.iter().flatten().count();
        self.away = self.homes.iter().map(away).sum();
    }

    fn end_window(&mut self, n: usize, length_ns: u64, now: Sample) {
        let home = &mut self.homes[n];
        let moved = home.placed.iter().flatten();
        let window = Window {
            length_ns,
            packets_ns: now.packets_ns.saturating_sub(home.last.packets_ns),
            readers_ns: now.readers_ns.saturating_sub(home.last.readers_ns),
            refused: now.refused.saturating_sub(home.last.refused),
            depth: now.depth,
            moved_ns: moved.map(|placed| home.work_ns(placed.hash)).sum(),
        };
        home.busy_ns = window.busy_ns();
        home.last = now;
        home.settling = home.settling.saturating_sub(1);
        home.pressure.window(&self.settings.pressure, &window);
    }

    /// Brings home whom his CPU can carry again, and moves on whose second CPU is overwhelmed.
    fn bring_home<C: Cpus + ?Sized>(&mut self, n: usize, length_ns: u64, cpus: &C) {
        let overloaded = self.homes[n].pressure.is_overloaded();
        for place in 0..PLACES {
            let home = &self.homes[n];
            let Some(placed) = home.placed[place] else { continue };
            if !overloaded || !cpus.is_online(placed.cpu) {
                self.homes[n].placed[place] = None;
                self.moves.returned += 1;
                continue;
            }
            // Gone: nothing of it for many windows, though its home is as busy as ever.
            let silent = home.work_ns(placed.hash) == 0;
            let light = if silent { placed.light.saturating_add(1) } else { 0 };
            if light > self.settings.pressure.leave {
                self.homes[n].placed[place] = None;
                self.moves.returned += 1;
                continue;
            }
            let mut next = Placed { light, ..placed };
            let busy = self.homes.get(placed.cpu.index()).map_or(0, |cpu| cpu.busy_ns);
            let full = u128::from(length_ns) * u128::from(self.settings.pressure.busy_percent);
            if home.settling == 0 && u128::from(busy) * 100 >= full {
                let better = self.least_busy(CpuId(n as u16), cpus);
                if let Some((cpu, _)) = better.filter(|(_, busy)| *busy <= length_ns / 2) {
                    next.cpu = cpu;
                    self.moves.replaced += 1;
                    self.homes[n].settling = self.settings.settle;
                    // So that the next home sees the CPU as taken.
                    self.homes[cpu.index()].busy_ns = length_ns;
                }
            }
            self.homes[n].placed[place] = Some(next);
        }
    }

    fn place<C: Cpus + ?Sized>(&mut self, n: usize, length_ns: u64, cpus: &C) {
        let home = &self.homes[n];
        // After a move the CPU counts as overloaded until it is light; another flow moves only if
        // the first was not enough.
        if !home.pressure.is_overloaded() || !home.pressure.was_over() || home.settling > 0 {
            return;
        }
        let Some(place) = home.placed.iter().position(Option::is_none) else { return };
        let is_away = |hash| home.placed.iter().flatten().any(|placed| placed.hash == hash);
        let here = home.elephants.iter().filter(|heavy| !is_away(heavy.hash));
        let Some(largest) = here.max_by_key(|heavy| (heavy.at_least, heavy.hash)) else { return };
        let enough =
            u128::from(home.elephants.total()) * u128::from(self.settings.elephant_percent);
        if largest.at_least == 0 || u128::from(largest.at_least) * 100 < enough {
            return;
        }
        let work_ns = home.work_ns(largest.hash);
        let Some((cpu, busy)) = self.least_busy(CpuId(n as u16), cpus) else { return };
        let fits = busy <= length_ns / 2 || busy.saturating_add(work_ns) <= length_ns / 10 * 9;
        if !fits {
            return;
        }
        self.homes[cpu.index()].busy_ns = busy.saturating_add(work_ns);
        self.homes[n].placed[place] = Some(Placed { hash: largest.hash, cpu, light: 0 });
        self.homes[n].settling = self.settings.settle;
        self.moves.placed += 1;
    }

    /// Returns the least busy other CPU online that shares the cache, with its busy time.
    fn least_busy<C: Cpus + ?Sized>(&self, home: CpuId, cpus: &C) -> Option<(CpuId, u64)> {
        let all = self.homes.iter().enumerate().map(|(n, cpu)| (CpuId(n as u16), cpu.busy_ns));
        let near = all.filter(|(cpu, _)| {
            *cpu != home && cpus.is_online(*cpu) && cpus.share_cache(home, *cpu)
        });
        near.min_by_key(|(cpu, busy)| (*busy, *cpu))
    }
}

impl Home {
    /// The packet work of a flow in the window that ends, in ns: half of its halved sum.
    fn work_ns(&self, hash: FlowHash) -> u64 {
        self.elephants.of(hash).map_or(0, |heavy| heavy.at_least / 2)
    }
}

impl<H: Host + ?Sized> Host for ForFlow<'_, H> {
    #[inline]
    fn is_online(&self, cpu: CpuId) -> bool {
        self.host.is_online(cpu)
    }

    #[inline]
    fn head(&self, cpu: CpuId) -> u32 {
        self.host.head(cpu)
    }

    #[inline]
    fn tail(&self, cpu: CpuId) -> u32 {
        self.host.tail(cpu)
    }

    #[inline]
    fn beside(&self, cpu: CpuId) -> Option<CpuId> {
        self.beside.target(cpu, self.hash).filter(|target| self.host.is_online(*target))
    }
}

#[cfg(test)]
mod tests;
