use super::*;
use rxsteer_core::CpuSet;

/// Four CPUs in two caches. Each window is worked out from shares of a CPU's time in percent.
struct Toy {
    online: CpuSet,
    samples: Vec<Sample>,
}

/// A flow: its consumer's CPU, packet work and reading, in percent of a CPU.
#[derive(Clone, Copy)]
struct Load {
    hash: u32,
    home: u16,
    packets: u64,
    reading: u64,
}

const WINDOW: u64 = 1_000_000;
const ELEPHANT: FlowHash = FlowHash(7);

impl Toy {
    fn new() -> Self {
        let online = (0..4).map(CpuId).collect();
        Self { online, samples: vec![Sample::default(); 4] }
    }

    /// Runs windows; a CPU that is asked for more than 100 % does so much and refuses the rest.
    fn run(&mut self, beside: &mut Beside, windows: u64, loads: &[Load]) {
        for _ in 0..windows {
            let mut packets = [0; 4];
            let mut reading = [0; 4];
            for load in loads {
                let home = CpuId(load.home);
                let on = beside.for_flow(&*self, FlowHash(load.hash)).beside(home).unwrap_or(home);
                packets[on.index()] += load.packets;
                reading[home.index()] += load.reading;
                beside.worked(home, FlowHash(load.hash), load.packets as u32 * 10_000);
            }
            for n in 0..4 {
                let sum = packets[n] + reading[n];
                let sample = &mut self.samples[n];
                let part = |work: u64| work * WINDOW / sum.max(100);
                sample.packets_ns += part(packets[n]);
                sample.readers_ns += part(reading[n]);
                sample.refused += u64::from(sum > 100);
            }
            beside.window(beside.due_ns(), self, |cpu| {
                self.samples.get(cpu.index()).copied().unwrap_or_default()
            });
        }
    }
}

impl Host for Toy {
    fn is_online(&self, cpu: CpuId) -> bool {
        self.online.contains(cpu)
    }
    fn head(&self, _: CpuId) -> u32 {
        0
    }
    fn tail(&self, _: CpuId) -> u32 {
        0
    }
}

impl Cpus for Toy {
    fn busy_ns(&self, _: CpuId) -> u64 {
        0
    }
    fn share_cache(&self, a: CpuId, b: CpuId) -> bool {
        a.0 / 2 == b.0 / 2
    }
}

fn beside() -> Beside {
    Beside::new(BesideSettings { window_ns: WINDOW, ..BesideSettings::default() }, 4)
}

const BIG: Load = Load { hash: ELEPHANT.0, home: 0, packets: 70, reading: 60 };

#[test]
fn one_elephant_goes_to_the_free_cpu_of_its_cache_and_stays() {
    let (mut toy, mut beside) = (Toy::new(), beside());
    let small = Load { hash: 8, home: 0, packets: 5, reading: 5 };
    toy.run(&mut beside, 3, &[BIG, small]);
    assert_eq!(beside.target(CpuId(0), ELEPHANT), Some(CpuId(1)));
    assert_eq!(beside.target(CpuId(0), FlowHash(8)), None);
    assert_eq!(beside.target(CpuId(2), ELEPHANT), None);
    toy.run(&mut beside, 1000, &[BIG, small]);
    assert_eq!(beside.moves(), Moves { placed: 1, replaced: 0, returned: 0 });
}

#[test]
fn many_small_flows_stay_where_they_are_read() {
    let (mut toy, mut beside) = (Toy::new(), beside());
    let small = |n: u32| Load { hash: 100 + n, home: 0, packets: 2, reading: 2 };
    let loads: Vec<Load> = (0..40).map(small).collect();
    toy.run(&mut beside, 1000, &loads);
    assert_eq!(beside.moves(), Moves::default());
}

#[test]
fn it_comes_home_when_its_home_can_carry_it() {
    let (mut toy, mut beside) = (Toy::new(), beside());
    toy.run(&mut beside, 20, &[BIG]);
    assert!(beside.target(CpuId(0), ELEPHANT).is_some());
    // 80 % at home: not yet.
    toy.run(&mut beside, 200, &[Load { packets: 40, reading: 40, ..BIG }]);
    assert!(beside.target(CpuId(0), ELEPHANT).is_some());
    toy.run(&mut beside, 60, &[Load { packets: 25, reading: 25, ..BIG }]);
    assert_eq!(beside.target(CpuId(0), ELEPHANT), None);
    assert_eq!(beside.moves(), Moves { placed: 1, replaced: 0, returned: 1 });
}

#[test]
fn a_load_that_hovers_at_the_limit_does_not_move_it_to_and_fro() {
    let (mut toy, mut beside) = (Toy::new(), beside());
    for n in 0..2_000 {
        // From 60 to 130 % and back, in 20 windows.
        let part = [0, 2, 4, 6, 8, 10, 8, 6, 4, 2][n / 2 % 10];
        toy.run(&mut beside, 1, &[Load { packets: 30 + 4 * part, reading: 30 + 3 * part, ..BIG }]);
    }
    assert_eq!(beside.moves(), Moves { placed: 1, replaced: 0, returned: 0 });
}

#[test]
fn nowhere_to_go_means_it_stays() {
    let (mut toy, mut beside) = (Toy::new(), beside());
    let neighbour = Load { hash: 9, home: 1, packets: 40, reading: 50 };
    toy.run(&mut beside, 100, &[BIG, neighbour]);
    assert_eq!(beside.moves(), Moves::default());
    // Nor to a CPU of another cache, though it is idle.
    let (mut toy, mut beside) = (Toy::new(), self::beside());
    toy.online.remove(CpuId(1));
    toy.run(&mut beside, 100, &[BIG]);
    assert_eq!(beside.moves(), Moves::default());
}

#[test]
fn an_offline_cpu_is_left_at_once() {
    let (mut toy, mut beside) = (Toy::new(), beside());
    toy.run(&mut beside, 20, &[BIG]);
    toy.online.remove(CpuId(1));
    // The decision sees it before the window ends.
    assert_eq!(beside.for_flow(&toy, ELEPHANT).beside(CpuId(0)), None);
    toy.run(&mut beside, 1, &[BIG]);
    assert_eq!((beside.target(CpuId(0), ELEPHANT), beside.moves().returned), (None, 1));
}

#[test]
fn two_elephants_move_one_after_the_other_if_one_was_not_enough() {
    // Four CPUs of one cache.
    struct One(Toy);
    impl Host for One {
        fn is_online(&self, _: CpuId) -> bool {
            true
        }
        fn head(&self, _: CpuId) -> u32 {
            0
        }
        fn tail(&self, _: CpuId) -> u32 {
            0
        }
    }
    impl Cpus for One {
        fn busy_ns(&self, _: CpuId) -> u64 {
            0
        }
        fn share_cache(&self, _: CpuId, _: CpuId) -> bool {
            true
        }
    }
    let mut beside = beside();
    let mut one = One(Toy::new());
    let loads = [(7, 80u64), (8, 60)];
    let mut first = None;
    for window in 0..60 {
        let mut packets = [0u64; 4];
        for (hash, work) in loads {
            let on = beside.target(CpuId(0), FlowHash(hash)).unwrap_or(CpuId(0));
            packets[on.index()] += work;
            beside.worked(CpuId(0), FlowHash(hash), work as u32 * 10_000);
        }
        for (sample, packets) in one.0.samples.iter_mut().zip(packets) {
            let reading = if sample.readers_ns > 0 || packets == 140 { 60 } else { 0 };
            let sum = packets + reading;
            sample.packets_ns += packets * WINDOW / sum.max(100);
            sample.readers_ns += reading * WINDOW / sum.max(100);
            sample.refused += u64::from(sum > 100);
        }
        beside.window(beside.due_ns(), &one, |cpu| {
            one.0.samples.get(cpu.index()).copied().unwrap_or_default()
        });
        if beside.moves().placed == 1 {
            first.get_or_insert(window);
        }
    }
    assert_eq!(beside.moves().placed, 2);
    assert_eq!(first, Some(2));
    let both = [7, 8].map(|hash| beside.target(CpuId(0), FlowHash(hash)));
    assert!(both[0].is_some() && both[1].is_some() && both[0] != both[1], "{both:?}");
}

#[test]
fn a_flow_that_ended_gives_up_its_place() {
    let (mut toy, mut beside) = (Toy::new(), beside());
    toy.run(&mut beside, 20, &[BIG]);
    // Its home stays busy with small flows.
    let small = |n: u32| Load { hash: 100 + n, home: 0, packets: 2, reading: 2 };
    let loads: Vec<Load> = (0..40).map(small).collect();
    toy.run(&mut beside, 200, &loads);
    assert_eq!(beside.moves(), Moves { placed: 1, replaced: 0, returned: 1 });
}
