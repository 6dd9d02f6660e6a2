//! Governor: takes no more packets only to drop them while a reader could run.
//!
//! Shedding early makes a packet that is dropped cheap, not free: with enough of them the CPU does
//! nothing else, and its readers starve. A packet left on the ring costs nothing, for the device drops
//! what does not fit. So, while a reader of this CPU could run, or packets that were let in wait on
//! its backlog:
//!
//! * packet work for readers of this CPU gets at most
//!   [`packets_percent`](GovernorSettings::packets_percent) of the time, half by default;
//! * with work for other CPUs, whose readers wait for it, at most
//!   [`all_percent`](GovernorSettings::all_percent), seven eighths;
//! * *waste*, the taking of packets that are then shed and interrupts, which while a reader could run
//!   bring packets sooner than he gets to them, gets at most
//!   [`probe_per_1024`](GovernorSettings::probe_per_1024), a sixty-fourth: enough to notice that there is
//!   room again. Packets wait on the ring meanwhile, and come many at a time;
//! * but up to [`guard_percent`](GovernorSettings::guard_percent), half, as long as there is somebody to
//!   protect: a packet whose sender loses nothing was let in within the last
//!   [`guard_ns`](GovernorSettings::guard_ns). The ring is not fair, and who would look for such a packet
//!   in a flood must take the flood.
//!
//! While no reader could run there is no limit, so the CPU is never idle with packets on its ring.
//!
//! # What it guarantees
//!
//! One flood, whatever its rate: the reader takes what is let in, and packets are let in as it takes
//! them, so both together have all but a sixty-fourth of the CPU. What is delivered does not fall as the
//! load grows. With somebody to protect it falls to no less than half of what it is at its best, and he
//! keeps his packets as long as half of the CPU is enough to take everything off the ring.
//!
//! Three buckets of tokens (ns of work), filled by time; a bucket that is empty stops the poll until it
//! is half full again or no reader could run, so that the two do not alternate at each packet.
//!
//! Always true: with a reader that could run, over any time t packet work takes at most its part of t
//! and one bucket and one packet more.
//! Source: Mogul and Ramakrishnan, "Eliminating receive livelock in an interrupt-driven kernel", 1997:
//! feedback from a full queue (their 5.3) and a limit of cycles (their 6.6), here by what the
//! work was good for.

/// Settings of a [`Governor`]. Percents are 1 to 100.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GovernorSettings {
    /// Most of the time that packet work for readers of this CPU takes while a reader could run, in
    /// percent.
    pub packets_percent: u8,
    /// The same with packet work for other CPUs.
    pub all_percent: u8,
    /// Most of the time that waste takes while a reader could run and nobody is to be protected, in
    /// 1,024ths.
    pub probe_per_1024: u16,
    /// Most of the time that waste takes while somebody is to be protected, in percent.
    pub guard_percent: u8,
    /// How long somebody is to be protected after his last packet, in ns.
    pub guard_ns: u64,
    /// Work done at a stretch, in ns: what a full bucket holds.
    pub burst_ns: u32,
}

impl Default for GovernorSettings {
    /// Half for own packets, 7/8 for all, 1/64 for waste, half to protect, 10 ms, stretches of 20 µs.
    fn default() -> Self {
        Self {
            packets_percent: 50,
            all_percent: 87,
            probe_per_1024: 16,
            guard_percent: 50,
            guard_ns: 10_000_000,
            burst_ns: 20_000,
        }
    }
}

/// What the work on a packet was good for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Took {
    /// It was let in, to a socket whose reader is here, as far as is known.
    Useful {
        /// Its sender is one of those that lose nothing.
        protected: bool,
    },
    /// It was let in and is in another CPU's hands.
    Elsewhere {
        /// Its sender is one of those that lose nothing.
        protected: bool,
    },
    /// It was shed.
    Wasted,
}

/// What a CPU may do now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Gate {
    /// Take packets from rings and backlogs.
    Open,
    /// Take packets from backlogs only, until this time or until no reader could run.
    NoRing {
        /// When to ask again, in ns.
        until_ns: u64,
    },
    /// Take no packets, until this time or until no reader could run.
    Closed {
        /// When to ask again, in ns.
        until_ns: u64,
    },
}

/// The governor of one CPU.
#[derive(Clone, Debug)]
pub struct Governor {
    settings: GovernorSettings,
    work: Bucket,
    all: Bucket,
    waste: Bucket,
    last_ns: u64,
    readers: bool,
    /// The last packet that was let in went to another CPU.
    elsewhere: bool,
    guard_until_ns: u64,
}

/// Tokens in 1,024ths of a ns of work.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: i64,
    full: i64,
    stopped: bool,
}

impl Governor {
    /// Makes a governor with full buckets.
    pub fn new(settings: GovernorSettings) -> Self {
        let full = i64::from(settings.burst_ns.max(1)) << 10;
        let bucket = Bucket { tokens: full, full, stopped: false };
        Self {
            settings,
            work: bucket,
            all: bucket,
            waste: bucket,
            last_ns: 0,
            readers: false,
            elsewhere: false,
            guard_until_ns: 0,
        }
    }

    /// Says what the CPU may do; `readers` is whether a reader of this CPU could run, or
    /// its backlog has packets for one.
    ///
    /// To be asked at packet boundaries, and when a reader wakes or sleeps. Time that goes back is
    /// taken as standing still.
    #[inline]
    pub fn ask(&mut self, now_ns: u64, readers: bool) -> Gate {
        let work_rate = percent(self.settings.packets_percent);
        let waste_rate = self.waste_rate(now_ns);
        let passed = now_ns.saturating_sub(self.last_ns).min(1 << 40) as i64;
        self.last_ns = self.last_ns.max(now_ns);
        let all_rate = percent(self.settings.all_percent);
        let rate = |rate: i64| if self.readers { rate } else { 1024 };
        self.work.fill(passed * rate(work_rate));
        self.all.fill(passed * rate(all_rate));
        self.waste.fill(passed * rate(waste_rate));
        self.readers = readers;
        if !readers {
            for bucket in [&mut self.work, &mut self.all, &mut self.waste] {
                bucket.stopped = false;
            }
            return Gate::Open;
        }
        let waits = [self.work.wait_ns(work_rate), self.all.wait_ns(all_rate)];
        if let Some(wait_ns) = waits.into_iter().flatten().max() {
            return Gate::Closed { until_ns: now_ns.saturating_add(wait_ns) };
        }
        if let Some(wait_ns) = self.waste.wait_ns(waste_rate) {
            return Gate::NoRing { until_ns: now_ns.saturating_add(wait_ns) };
        }
        Gate::Open
    }

    /// Hears what the work on a packet took and was good for.
    #[inline]
    pub fn took(&mut self, now_ns: u64, cost_ns: u32, took: Took) {
        self.all.take(cost_ns);
        match took {
            Took::Useful { .. } => self.elsewhere = false,
            Took::Elsewhere { .. } => self.elsewhere = true,
            Took::Wasted => self.waste.take(cost_ns),
        }
        if !self.elsewhere {
            self.work.take(cost_ns);
        }
        if let Took::Useful { protected: true } | Took::Elsewhere { protected: true } = took {
            self.guard_until_ns = now_ns.saturating_add(self.settings.guard_ns);
        }
    }

    /// Hears of protocol work, for the readers of this CPU as far as is known.
    #[inline]
    pub fn spent(&mut self, cost_ns: u32) {
        self.all.take(cost_ns);
        self.work.take(cost_ns);
    }

    /// Hears of interrupts and signals: waste, for whom the last packet was that was let in.
    #[inline]
    pub fn interrupted(&mut self, cost_ns: u32) {
        self.all.take(cost_ns);
        self.waste.take(cost_ns);
        if !self.elsewhere {
            self.work.take(cost_ns);
        }
    }

    /// Returns whether somebody is to be protected.
    pub const fn is_guarding(&self, now_ns: u64) -> bool {
        now_ns < self.guard_until_ns
    }

    #[inline]
    fn waste_rate(&self, now_ns: u64) -> i64 {
        match self.is_guarding(now_ns) {
            true => percent(self.settings.guard_percent),
            false => i64::from(self.settings.probe_per_1024.clamp(1, 1024)),
        }
    }
}

impl Bucket {
    #[inline]
    fn fill(&mut self, tokens: i64) {
        self.tokens = self.tokens.saturating_add(tokens).min(self.full);
    }

    #[inline]
    fn take(&mut self, cost_ns: u32) {
        self.tokens = self.tokens.saturating_sub(i64::from(cost_ns) << 10);
    }

    /// Returns for how long the bucket stops the poll; `rate` is at least 1.
    #[inline]
    fn wait_ns(&mut self, rate: i64) -> Option<u64> {
        let enough = if self.stopped { self.full / 2 } else { 1 };
        self.stopped = self.tokens < enough;
        let missing = self.full / 2 - self.tokens;
        self.stopped.then(|| (missing.max(1) as u64).div_ceil(rate.max(1) as u64))
    }
}

fn percent(part: u8) -> i64 {
    (i64::from(part.clamp(1, 100)) << 10) / 100
}

#[cfg(test)]
mod tests;
