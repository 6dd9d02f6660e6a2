use super::*;
use std::collections::VecDeque;

/// One CPU with a ring and a reader for each of its sockets, packet by packet. Packet work runs ahead
/// of the readers at each packet boundary, where the governor lets it.
struct Toy {
    governor: Option<Governor>,
    ring: VecDeque<usize>,
    queues: Vec<usize>,
    /// Packets per second for each socket.
    offered: Vec<f64>,
    due_ns: Vec<f64>,
    delivered: Vec<u64>,
    lost: Vec<u64>,
    start_ns: u64,
    now_ns: u64,
    turn: usize,
    idle_ns: u64,
}

const TOOK: [Took; 5] = [
    Took::Useful { protected: false },
    Took::Useful { protected: true },
    Took::Elsewhere { protected: false },
    Took::Elsewhere { protected: true },
    Took::Wasted,
];
const TAKE_NS: u32 = 160;
const PROTOCOL_NS: u32 = 540;
const READ_NS: u64 = 1_500;
const RING: usize = 1024;
const ROOM: usize = 256;
/// What one CPU carries: 1 / 2.2 µs.
const CAPACITY: f64 = 1e9 / 2_200.0;

impl Toy {
    fn new(governor: Option<GovernorSettings>, offered: &[f64]) -> Self {
        Self {
            governor: governor.map(Governor::new),
            ring: VecDeque::new(),
            queues: vec![0; offered.len()],
            offered: offered.to_vec(),
            due_ns: vec![0.0; offered.len()],
            delivered: vec![0; offered.len()],
            lost: vec![0; offered.len()],
            start_ns: 0,
            now_ns: 0,
            turn: 0,
            idle_ns: 0,
        }
    }

    fn run(mut self, until_ns: u64) -> Self {
        while self.now_ns < until_ns {
            self.arrive();
            let readers = self.queues.iter().any(|waiting| *waiting > 0);
            let gate = self.governor.as_mut().map(|g| g.ask(self.now_ns, readers));
            if matches!(gate, None | Some(Gate::Open))
                && let Some(socket) = self.ring.pop_front()
            {
                self.take(socket);
            } else if readers {
                let count = self.queues.len();
                let next = (0..count).map(|n| (self.turn + n) % count);
                let socket = next.into_iter().find(|n| self.queues[*n] > 0).unwrap();
                self.turn = socket + 1;
                self.queues[socket] -= 1;
                self.delivered[socket] += 1;
                self.now_ns += READ_NS;
            } else {
                self.idle_ns += 100;
                self.now_ns += 100;
                assert!(self.ring.is_empty(), "idle with packets on the ring");
            }
        }
        self
    }

    fn take(&mut self, socket: usize) {
        let full = self.queues[socket] >= ROOM;
        let (cost, took) = match (full, self.lost[socket] > 0) {
            (true, _) => (TAKE_NS, Took::Wasted),
            (false, true) => (TAKE_NS + PROTOCOL_NS, Took::Useful { protected: false }),
            (false, false) => (TAKE_NS + PROTOCOL_NS, Took::Useful { protected: true }),
        };
        self.now_ns += u64::from(cost);
        if let Some(governor) = &mut self.governor {
            governor.took(self.now_ns, cost, took);
        }
        self.lost[socket] += u64::from(full);
        self.queues[socket] += usize::from(!full);
    }

    /// Puts on the ring what has come; the device drops what does not fit.
    fn arrive(&mut self) {
        loop {
            let next =
                (0..self.due_ns.len()).min_by(|a, b| self.due_ns[*a].total_cmp(&self.due_ns[*b]));
            let socket = next.unwrap();
            if self.due_ns[socket] > self.now_ns as f64 {
                return;
            }
            self.due_ns[socket] += 1e9 / self.offered[socket];
            if self.ring.len() < RING {
                self.ring.push_back(socket);
            }
        }
    }

    fn rate(&self) -> f64 {
        self.delivered.iter().sum::<u64>() as f64 * 1e9 / (self.now_ns - self.start_ns) as f64
    }
}

const SECOND: u64 = 1_000_000_000;

/// Delivered packets/s, as part of what one CPU carries, at growing loads.
fn delivered(governor: Option<GovernorSettings>) -> Vec<f64> {
    let loads = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
    let run = |load: &f64| {
        // The first packets of a flood lose nothing, so it is protected until it does.
        let mut toy = Toy::new(governor, &[load * CAPACITY]).run(SECOND / 50);
        (toy.delivered[0], toy.start_ns) = (0, toy.now_ns);
        toy.run(SECOND / 10).rate() / CAPACITY
    };
    loads.iter().map(run).collect()
}

#[test]
fn what_is_delivered_never_falls_as_the_load_grows() {
    let delivered = delivered(Some(GovernorSettings::default()));
    let mut best = 0.0f64;
    for part in &delivered {
        assert!(*part >= best * 0.98, "{delivered:?}");
        best = best.max(*part);
    }
    assert!(best > 0.96 && *delivered.last().unwrap() > 0.96, "{delivered:?}");
}

#[test]
fn without_a_governor_a_reader_starves_though_all_is_shed_early() {
    let delivered = delivered(None);
    assert!(*delivered.last().unwrap() < 0.01, "{delivered:?}");
}

#[test]
fn a_socket_beside_the_flooded_one_keeps_its_packets_and_the_cpu_half_its_best() {
    // 5 % beside a flood of 3 times what the CPU carries, which it can take in half of its time.
    let offered = [3.0 * CAPACITY, 0.05 * CAPACITY];
    let toy = Toy::new(Some(GovernorSettings::default()), &offered).run(SECOND / 4);
    let kept = toy.delivered[1] as f64 / (0.05 * CAPACITY / 4.0);
    assert!(kept > 0.99, "{kept}");
    assert!(toy.rate() > 0.5 * CAPACITY, "{}", toy.rate() / CAPACITY);
    // Beyond, it loses at the ring, which drops without looking; the CPU still does half its best.
    let toy = Toy::new(Some(GovernorSettings::default()), &[64.0 * CAPACITY, 0.05 * CAPACITY]);
    assert!(toy.run(SECOND / 10).rate() > 0.5 * CAPACITY);
}

#[test]
fn while_no_reader_could_run_there_is_no_limit() {
    let mut governor = Governor::new(GovernorSettings::default());
    for n in 0..10_000u64 {
        assert_eq!(governor.ask(n * 1000, false), Gate::Open);
        governor.took(n * 1000, 1000, Took::Wasted);
    }
    // A reader wakes: its part of the time begins now.
    let gate = governor.ask(10_000_000, true);
    assert!(gate == Gate::Open || matches!(gate, Gate::NoRing { .. }), "{gate:?}");
}

#[test]
fn packet_work_gets_its_part_of_the_time_and_no_more() {
    let settings = GovernorSettings::default();
    for took in TOOK {
        let mut governor = Governor::new(settings);
        let (mut now, mut work) = (0u64, 0u64);
        governor.ask(0, true);
        while now < 100_000_000 {
            match governor.ask(now, true) {
                Gate::Open => {
                    now += 700;
                    work += 700;
                    governor.took(now, 700, took);
                }
                Gate::NoRing { until_ns } | Gate::Closed { until_ns } => {
                    assert!(until_ns > now);
                    now = until_ns;
                    // By then it is open, as promised.
                    assert_eq!(governor.ask(now, true), Gate::Open);
                }
            }
        }
        let most = match took {
            Took::Useful { .. } => now / 2,
            Took::Elsewhere { .. } => now * 87 / 100,
            Took::Wasted => now / 64,
        };
        let bound = most + u64::from(settings.burst_ns) + 700;
        assert!(work <= bound && work >= most * 9 / 10, "{took:?}: {work} of {most}");
    }
}

#[test]
fn an_interrupt_for_each_packet_is_held_back_while_a_reader_could_run() {
    let mut governor = Governor::new(GovernorSettings::default());
    let interrupts = |governor: &mut Governor, readers: bool| {
        let mut taken = 0u64;
        let mut now_ns = 0;
        while now_ns < 10_000_000 {
            match governor.ask(now_ns, readers) {
                Gate::Open => {
                    governor.interrupted(800);
                    governor.took(now_ns, 160, Took::Useful { protected: false });
                    (taken, now_ns) = (taken + 1, now_ns + 960);
                }
                _ => now_ns += 1_000,
            }
        }
        taken * 800
    };
    // A sixty-fourth of 10 ms, and what a full bucket holds.
    let held = interrupts(&mut governor, true);
    assert!((100_000..=10_000_000 / 64 + 20_000 + 800).contains(&held), "{held} ns");
    let mut governor = Governor::new(GovernorSettings::default());
    assert!(interrupts(&mut governor, false) > 8_000_000, "nobody waits: no limit");
}

#[test]
fn any_time_is_taken_without_panic() {
    let mut governor =
        Governor::new(GovernorSettings { burst_ns: 0, ..GovernorSettings::default() });
    for now in [0, u64::MAX, 5, u64::MAX / 2, u64::MAX] {
        governor.ask(now, true);
        for took in TOOK {
            governor.took(now, u32::MAX, took);
        }
    }
}
