//! When a CPU cannot carry its consumers and their packets together, and when it could again.
//!
//! Judged over windows of time. A window is *over* if the CPU was busy for nearly all of it, a fair part
//! of that with packet work, and it left something undone: packets wait on its backlog, or were refused
//! for its readers. It is *light* if the CPU could take back the work that was moved away and still
//! be far from busy. Several windows over in a row make a CPU overloaded; many light ones in a row
//! end it; everything between changes nothing. So a load that hovers at a limit does not make a flow
//! move to and fro.
//!
//! Always true: the state changes at most once in `enter` windows into overload and in `leave` windows out
//! of it.

/// When a CPU counts as overloaded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PressureSettings {
    /// Busy part of a window, in percent, from which on it is over.
    pub busy_percent: u8,
    /// Part of a window, in percent, that packet work takes at least in one that is over.
    pub packets_percent: u8,
    /// Packets on the backlog at the end of a window that count as work undone.
    pub deep_packets: u32,
    /// Part of a window, in percent, that the CPU would be busy for with all its work in a light one.
    pub light_percent: u8,
    /// Windows over in a row that make it overloaded, at least 1.
    pub enter: u16,
    /// Light windows in a row that end it, at least 1.
    pub leave: u16,
}

impl Default for PressureSettings {
    /// Over from 95 % busy, 10 % of it packets, 64 waiting or any refused; light to 60 %; 3 windows
    /// to enter, 50 to leave.
    fn default() -> Self {
        Self {
            busy_percent: 95,
            packets_percent: 10,
            deep_packets: 64,
            light_percent: 60,
            enter: 3,
            leave: 50,
        }
    }
}

/// What one CPU did in one window.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Window {
    /// Its length in ns.
    pub length_ns: u64,
    /// Packet work in ns.
    pub packets_ns: u64,
    /// Work of readers in ns.
    pub readers_ns: u64,
    /// Packets on its backlog at the end.
    pub depth: u32,
    /// Packets refused for its readers: shed, or dropped at their sockets.
    pub refused: u64,
    /// Packet work that other CPUs did for its consumers because it was moved there, in ns.
    pub moved_ns: u64,
}

impl Window {
    /// Returns the time that the CPU was busy, in ns.
    pub fn busy_ns(&self) -> u64 {
        self.packets_ns.saturating_add(self.readers_ns)
    }

    fn reaches(&self, ns: u64, percent: u8) -> bool {
        u128::from(ns) * 100 >= u128::from(self.length_ns) * u128::from(percent)
    }
}

/// The state of one CPU.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Pressure {
    overloaded: bool,
    over: bool,
    /// Windows in a row that speak for the other state.
    run: u16,
}

impl Pressure {
    /// Returns whether the CPU is overloaded.
    pub const fn is_overloaded(&self) -> bool {
        self.overloaded
    }

    /// Returns whether the last window was over.
    pub const fn was_over(&self) -> bool {
        self.over
    }

    /// Hears what the CPU did in a window; returns whether it is overloaded now.
    pub fn window(&mut self, settings: &PressureSettings, window: &Window) -> bool {
        self.over = window.reaches(window.busy_ns(), settings.busy_percent)
            && window.reaches(window.packets_ns, settings.packets_percent)
            && (window.depth >= settings.deep_packets || window.refused > 0);
        let with_moved_ns = window.busy_ns().saturating_add(window.moved_ns);
        let light = !window.reaches(with_moved_ns, settings.light_percent.saturating_add(1));
        let speaks_for_change = if self.overloaded { light } else { self.over };
        self.run = if speaks_for_change { self.run.saturating_add(1) } else { 0 };
        let needed = if self.overloaded { settings.leave } else { settings.enter };
        if self.run >= needed.max(1) {
            (self.overloaded, self.run) = (!self.overloaded, 0);
        }
        self.overloaded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: PressureSettings = PressureSettings {
        busy_percent: 95,
        packets_percent: 10,
        deep_packets: 64,
        light_percent: 60,
        enter: 3,
        leave: 5,
    };
    const OVER: Window = Window {
        length_ns: 100,
        packets_ns: 50,
        readers_ns: 48,
        depth: 100,
        refused: 0,
        moved_ns: 0,
    };

    fn overloaded() -> Pressure {
        let mut cpu = Pressure::default();
        for _ in 0..3 {
            cpu.window(&S, &OVER);
        }
        assert!(cpu.is_overloaded());
        cpu
    }

    #[test]
    fn three_windows_in_a_row_and_not_two() {
        let mut cpu = Pressure::default();
        let idle = Window { packets_ns: 10, ..OVER };
        for window in [OVER, OVER, idle, OVER, OVER] {
            assert!(!cpu.window(&S, &window));
        }
        assert!(cpu.window(&S, &OVER));
    }

    #[test]
    fn a_busy_cpu_that_leaves_nothing_undone_is_not_overloaded() {
        let fine = Window { depth: 3, ..OVER };
        let readers_alone = Window { packets_ns: 2, readers_ns: 98, ..OVER };
        let mut cpu = Pressure::default();
        for _ in 0..10 {
            assert!(!cpu.window(&S, &fine));
            assert!(!cpu.window(&S, &readers_alone));
        }
        for _ in 0..3 {
            cpu.window(&S, &Window { refused: 1, ..fine });
        }
        assert!(cpu.is_overloaded());
    }

    #[test]
    fn it_ends_only_when_the_moved_work_would_fit_again() {
        let mut cpu = overloaded();
        let relieved = Window { packets_ns: 0, readers_ns: 48, depth: 0, moved_ns: 50, ..OVER };
        (0..100).for_each(|_| assert!(cpu.window(&S, &relieved)));
        let light = Window { moved_ns: 12, ..relieved };
        (0..4).for_each(|_| assert!(cpu.window(&S, &light)));
        assert!(!cpu.window(&S, &light));
    }

    #[test]
    fn a_load_that_hovers_does_not_flap() {
        let mut cpu = Pressure::default();
        let mut changes = 0;
        for n in 0..10_000 {
            let before = cpu.is_overloaded();
            // Over, light and neither in turn.
            let packets_ns = [50, 5, 30, 50, 50, 5, 50][n % 7];
            let window = Window { packets_ns, ..OVER };
            changes += u32::from(cpu.window(&S, &window) != before);
        }
        assert_eq!(changes, 0);
    }
}
