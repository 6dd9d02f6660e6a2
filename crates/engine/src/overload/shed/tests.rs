use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// A socket of 256 packets with a reader, behind a hook, in steps of one read.
///
/// Senders offer packets at a multiple of the reader's rate; each packet reaches the queue
/// `delay` reads after it was let in.
struct Bench {
    shedder: Shedder,
    queue: VecDeque<usize>,
    under_way: VecDeque<(u64, usize, Ticket)>,
    senders: Vec<Sender>,
    delay: u64,
    limit_bytes: u64,
    read: u64,
    refused_by_socket: u64,
    state: u64,
}

struct Sender {
    /// Packets per read.
    rate: f64,
    due: f64,
    source: Source,
    class: Class,
    known_flow: bool,
    true_size: u32,
    offered: u64,
    shed: u64,
    read: u64,
}

#[derive(Clone, Copy)]
enum Source {
    /// One flow of this prefix.
    Flow(u8, u32),
    /// Another flow each time, of this prefix.
    Prefix(u8),
    /// Each time another flow of the next of so many prefixes.
    Prefixes(u32),
    Random,
}

const LIMIT: u64 = 256;
const READ_NS: u64 = 2_000;
/// Reads under a flood: thirty times what the room holds.
const FLOODED: u64 = 8_000;

impl Bench {
    fn new(settings: ShedSettings) -> Self {
        Self {
            shedder: Shedder::new(settings, Key { k0: 7, k1: 8 }),
            queue: VecDeque::new(),
            under_way: VecDeque::new(),
            senders: Vec::new(),
            delay: 20,
            limit_bytes: u64::MAX,
            read: 0,
            refused_by_socket: 0,
            state: 1,
        }
    }

    fn add(&mut self, rate: f64, source: Source) -> usize {
        self.senders.push(Sender {
            rate,
            due: 0.0,
            source,
            class: Class::Udp,
            known_flow: false,
            true_size: 1,
            offered: 0,
            shed: 0,
            read: 0,
        });
        self.senders.len() - 1
    }

    fn random(&mut self) -> u32 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.state >> 33) as u32
    }

    /// 256 packets, unless bytes limit it.
    fn room(&self) -> Room {
        let used_packets = self.queue.len() as u64;
        let sizes = self.queue.iter().map(|n| u64::from(self.senders[*n].true_size));
        match self.limit_bytes {
            u64::MAX => Room::packets(used_packets, LIMIT),
            limit_bytes => Room {
                used_bytes: sizes.sum(),
                limit_bytes,
                ..Room::packets(used_packets, u64::MAX)
            },
        }
    }

    fn offer(&mut self, sender: usize, now_ns: u64, step: u64) {
        let any = self.random();
        let s = &mut self.senders[sender];
        s.offered += 1;
        let v4 = |n: u32| SourcePrefix::v4((n << 8).to_be_bytes());
        let (source, hash) = match s.source {
            Source::Flow(prefix, flow) => (v4(0x0a_0000 + u32::from(prefix)), flow),
            Source::Prefix(prefix) => (v4(0x0a_0000 + u32::from(prefix)), any | 1),
            Source::Prefixes(count) => (v4(0x0b_0000 + s.offered as u32 % count), any | 1),
            Source::Random => (v4(any >> 7), any | 1),
        };
        let offer = Offer {
            socket: 5,
            hash: FlowHash(hash),
            source,
            class: s.class,
            known_flow: s.known_flow,
            true_size: s.true_size,
        };
        let room = self.room();
        match self.shedder.judge(&offer, &room, now_ns) {
            Verdict::Admit { ticket, .. } => {
                self.under_way.push_back((step + self.delay, sender, ticket));
            }
            Verdict::Shed(_) => self.senders[sender].shed += 1,
        }
    }

    /// Runs for so many reads, after which all senders' counters start anew.
    fn run(&mut self, reads: u64) -> &mut Self {
        let start = self.read;
        for s in &mut self.senders {
            (s.offered, s.shed, s.read) = (0, 0, 0);
        }
        let mut order: Vec<usize> = Vec::new();
        for step in start..start + reads {
            for (n, s) in self.senders.iter_mut().enumerate() {
                s.due += s.rate;
                while s.due >= 1.0 {
                    s.due -= 1.0;
                    order.push(n);
                }
            }
            // In random order, or the first sender would always find the place that was freed.
            while !order.is_empty() {
                let at = self.random() as usize % order.len();
                let sender = order.swap_remove(at);
                self.offer(sender, step * READ_NS, step);
            }
            while self.under_way.front().is_some_and(|(until, ..)| *until <= step) {
                let (_, sender, ticket) = self.under_way.pop_front().unwrap();
                self.shedder.reached(ticket);
                if !self.room().takes(self.senders[sender].true_size) {
                    self.refused_by_socket += 1;
                } else {
                    self.queue.push_back(sender);
                }
            }
            if let Some(sender) = self.queue.pop_front() {
                self.senders[sender].read += 1;
            }
            self.read += 1;
        }
        let counts = self.shedder.counts();
        assert_eq!(counts.offered, counts.admitted + counts.shed_total());
        self
    }

    /// Read packets of all in the last run per read that was possible.
    fn use_of_reader(&self, reads: u64) -> f64 {
        self.senders.iter().map(|s| s.read).sum::<u64>() as f64 / reads as f64
    }
}

/// Lets a sender become familiar at a load that the reader can carry, then adds a flood of 20 times
/// what the reader can.
fn beside_a_flood(settings: ShedSettings, legit: (f64, Source), flood: &[Source]) -> Bench {
    let mut bench = Bench::new(settings);
    bench.add(legit.0, legit.1);
    bench.run(40_000);
    assert_eq!(bench.senders[0].shed, 0);
    for source in flood {
        bench.add(20.0 / flood.len() as f64, *source);
    }
    bench.run(FLOODED);
    bench
}

const LEGIT: (f64, Source) = (0.1, Source::Flow(1, 0x1234));

#[test]
fn legit_keeps_its_packets_beside_a_flood_of_one_prefix() {
    let bench = beside_a_flood(ShedSettings::default(), LEGIT, &[Source::Prefix(9)]);
    assert_eq!((bench.senders[0].shed, bench.refused_by_socket), (0, 0));
    assert!(bench.use_of_reader(FLOODED) > 0.99);
}

#[test]
fn legit_keeps_its_packets_beside_one_flow_that_floods() {
    let bench = beside_a_flood(ShedSettings::default(), LEGIT, &[Source::Flow(9, 77)]);
    assert_eq!((bench.senders[0].shed, bench.refused_by_socket), (0, 0));
    // Also where both are of one prefix, as behind one address translator.
    let bench = beside_a_flood(ShedSettings::default(), LEGIT, &[Source::Flow(1, 77)]);
    assert_eq!((bench.senders[0].shed, bench.refused_by_socket), (0, 0));
    assert!(bench.use_of_reader(FLOODED) > 0.99);
}

#[test]
fn legit_keeps_its_packets_beside_a_flood_from_random_prefixes() {
    for rate in [0.1, 0.3, 0.5] {
        let legit = (rate, LEGIT.1);
        let bench = beside_a_flood(ShedSettings::default(), legit, &[Source::Random]);
        assert_eq!((bench.senders[0].shed, bench.refused_by_socket), (0, 0), "{rate}");
        assert!(bench.use_of_reader(FLOODED) > 0.99);
    }
    // Requests, each of another flow, from a prefix that was here before.
    let legit = (0.45, Source::Prefix(1));
    let bench = beside_a_flood(ShedSettings::default(), legit, &[Source::Random]);
    assert_eq!((bench.senders[0].shed, bench.refused_by_socket), (0, 0));
}

#[test]
fn legit_keeps_its_packets_beside_forged_flows_of_its_own_prefix() {
    let bench = beside_a_flood(ShedSettings::default(), LEGIT, &[Source::Prefix(1)]);
    assert_eq!((bench.senders[0].shed, bench.refused_by_socket), (0, 0));
}

#[test]
fn legit_keeps_its_packets_beside_a_flood_of_another_class() {
    let mut bench = Bench::new(ShedSettings::default());
    // Connected: known from the first packet.
    let legit = bench.add(0.1, LEGIT.1);
    bench.senders[legit].known_flow = true;
    let flood = bench.add(20.0, Source::Prefixes(50));
    bench.senders[flood].class = Class::TcpSyn;
    bench.run(FLOODED);
    assert_eq!((bench.senders[legit].shed, bench.refused_by_socket), (0, 0));
    assert!(bench.use_of_reader(FLOODED) > 0.99);
}

#[test]
fn many_prefixes_each_below_the_fair_share_lose_nothing() {
    let mut bench = Bench::new(ShedSettings::default());
    // 20 prefixes that take 40 % of the reader together, and one that floods.
    let clients: Vec<usize> = (0..20).map(|n| bench.add(0.02, Source::Prefix(100 + n))).collect();
    bench.run(60_000);
    bench.add(20.0, Source::Prefix(9));
    bench.run(FLOODED);
    let shed: u64 = clients.iter().map(|n| bench.senders[*n].shed).sum();
    assert_eq!((shed, bench.refused_by_socket), (0, 0));
    assert!(bench.use_of_reader(FLOODED) > 0.99);
}

/// The share that the module's documentation guarantees: of the class by the weights of those that
/// offer, of the prefix and the flow by their numbers.
fn guaranteed(weight: f64, weights: f64, prefixes: f64, flows: Option<f64>) -> f64 {
    let share = 7.0 / 8.0 * weight / weights * 7.0 / 8.0 / prefixes;
    flows.map_or(share, |flows| share * 7.0 / 8.0 / flows)
}

#[test]
fn whoever_keeps_nine_tenths_of_what_is_guaranteed_loses_nothing_in_any_mix_of_floods() {
    for mix in 1..32u32 {
        let floods = [
            (Source::Random, 1.0),       // strangers
            (Source::Prefixes(40), 2.0), // forty prefixes that come back
            (Source::Flow(9, 90), 4.0),  // a flow of another prefix
            (Source::Flow(1, 91), 4.0),  // a flow of the client's prefix
            (Source::Prefix(1), 2.0),    // forged flows of the client's prefix
        ];
        let on = |n: usize| mix >> n & 1 == 1;
        let offer = |weight: f64| (0..5).any(|n| on(n) && floods[n].1 == weight);
        let weights = 4.0 + if offer(2.0) { 2.0 } else { 0.0 } + if offer(1.0) { 1.0 } else { 0.0 };
        let (prefixes, flows) = (if on(2) { 2.0 } else { 1.0 }, if on(3) { 2.0 } else { 1.0 });
        let rate = 0.9 * guaranteed(4.0, weights, prefixes, Some(flows));
        let on: Vec<Source> = (0..5).filter(|n| on(*n)).map(|n| floods[n].0).collect();
        // Epochs of 500 reads, so that all soon are what they are.
        let familiar = FamiliarSettings { epoch_ns: 500 * READ_NS, ..Default::default() };
        let mut bench = Bench::new(ShedSettings { familiar, ..ShedSettings::default() });
        bench.add(rate, Source::Flow(1, 0x1234));
        bench.run(3_000);
        for source in &on {
            bench.add(6.0, *source);
        }
        bench.run(1_500);
        bench.run(2_000);
        let client = &bench.senders[0];
        assert_eq!(client.shed, 0, "mix {mix}: {rate} lost {} of {}", client.shed, client.offered);
        assert!(bench.use_of_reader(2_000) > 0.99);
    }
}

#[test]
fn a_room_of_bytes_is_shared_by_bytes() {
    // Two familiar floods of one load in packets, one of packets three times as large.
    let mut bench = Bench::new(ShedSettings::default());
    bench.limit_bytes = 212_992;
    let (small, large) = (bench.add(10.0, Source::Flow(1, 1)), bench.add(10.0, Source::Flow(2, 2)));
    bench.senders[small].true_size = 768;
    bench.senders[large].true_size = 2304;
    bench.run(40_000);
    bench.run(20_000);
    let [small, large] = [small, large].map(|n| bench.senders[n].read as f64);
    assert!((2.5..3.5).contains(&(small / large)), "{small} {large}");
    assert_eq!(bench.refused_by_socket, 0);
}

#[test]
fn equal_floods_get_equal_parts_of_the_reader() {
    let flood = [1, 2, 3, 4].map(Source::Prefix);
    let mut bench = beside_a_flood(ShedSettings::default(), LEGIT, &flood);
    let read: Vec<u64> = bench.run(20_000).senders.iter().map(|s| s.read).collect();
    let (least, most) = (read[1..].iter().min().unwrap(), read[1..].iter().max().unwrap());
    assert!(*most as f64 / (*least as f64) < 1.15, "{read:?}");
}

#[test]
fn without_shares_the_flood_takes_its_part_and_legit_loses() {
    // The other side of the tests above: what the switch changes.
    let settings = ShedSettings { fair: false, ..ShedSettings::default() };
    let bench = beside_a_flood(settings, LEGIT, &[Source::Random]);
    let legit = &bench.senders[0];
    assert!(legit.shed as f64 > 0.9 * legit.offered as f64, "{} of {}", legit.shed, legit.offered);
    assert_eq!(bench.refused_by_socket, 0);
}

#[test]
fn without_counting_what_is_on_its_way_the_socket_refuses() {
    let settings = ShedSettings { in_flight: false, ..ShedSettings::default() };
    let bench = beside_a_flood(settings, LEGIT, &[Source::Random]);
    assert!(bench.refused_by_socket > 0);
}

#[test]
fn a_newcomer_in_a_flood_of_strangers_becomes_familiar() {
    let mut bench = Bench::new(ShedSettings::default());
    bench.add(20.0, Source::Random);
    bench.run(1_000);
    let legit = bench.add(0.1, LEGIT.1);
    // 8 packets and a change of epoch: 16,000 reads of 2 µs.
    bench.run(20_000);
    assert!(bench.senders[legit].shed > 0);
    bench.run(20_000);
    assert_eq!(bench.senders[legit].shed, 0);
}

#[test]
fn a_quiet_flow_loses_nothing_where_ninety_thousand_meet_a_reader_of_sixty() {
    // vectordotdev/vector#5017: 90,000 packets/s, a reader of 60,000/s; and a flow of 10/s.
    let mut bench = Bench::new(ShedSettings::default());
    bench.add(1.5, Source::Flow(1, 1));
    let quiet = bench.add(10.0 / 60_000.0, Source::Flow(1, 2));
    bench.run(600_000);
    assert_eq!(bench.senders[quiet].shed, 0);
    let loud = &bench.senders[0];
    let lost = loud.shed as f64 / loud.offered as f64;
    assert!((0.32..0.35).contains(&lost), "{lost}");
}

#[test]
fn nothing_is_shed_while_half_of_the_room_is_free() {
    let mut shedder = Shedder::new(ShedSettings::default(), Key::default());
    let offer = Offer {
        socket: 1,
        hash: FlowHash(1),
        source: SourcePrefix::NONE,
        class: Class::TcpSyn,
        known_flow: false,
        true_size: 1,
    };
    for used in 0..LIMIT / 2 {
        match shedder.judge(&offer, &Room::packets(used, LIMIT), 0) {
            Verdict::Admit { ticket, .. } => shedder.reached(ticket),
            Verdict::Shed(cause) => panic!("{cause:?} with {used} of {LIMIT} in use"),
        }
    }
    assert_eq!(shedder.judge(&offer, &Room::packets(LIMIT, LIMIT), 0), Verdict::Shed(Cause::Full));
}

#[test]
fn a_socket_without_a_place_has_the_first_rule_and_is_counted() {
    let mut shedder =
        Shedder::new(ShedSettings { sockets: 1, ..ShedSettings::default() }, Key::default());
    let mut offer = Offer {
        socket: 1,
        hash: FlowHash(1),
        source: SourcePrefix::NONE,
        class: Class::Udp,
        known_flow: true,
        true_size: 1,
    };
    let room = Room::packets(200, LIMIT);
    shedder.judge(&offer, &room, 0);
    offer.socket = 2;
    assert!(matches!(shedder.judge(&offer, &room, 0), Verdict::Admit { .. }));
    assert_eq!(shedder.counts().unplaced, 1);
    // Later the first is no longer under pressure and gives up its place.
    shedder.judge(&offer, &room, 2 * KEEP_PRESSED_NS);
    assert_eq!(shedder.counts().unplaced, 1);
}

#[test]
fn a_forgotten_socket_leaves_nothing_to_the_next_of_its_number() {
    let mut shedder = Shedder::new(ShedSettings::default(), Key::default());
    let offer = Offer {
        socket: 1,
        hash: FlowHash(1),
        source: SourcePrefix::NONE,
        class: Class::Udp,
        known_flow: true,
        true_size: 1,
    };
    let Verdict::Admit { ticket, .. } = shedder.judge(&offer, &Room::packets(200, LIMIT), 0) else {
        panic!("there is room");
    };
    assert_eq!(shedder.under_way(1), 1);
    shedder.forget(1, 5);
    shedder.reached(ticket);
    assert_eq!((shedder.under_way(1), shedder.counts().late), (0, 1));
}

#[derive(Clone, Debug)]
enum Op {
    Offer { socket: u32, source: u32, hash: u32, class: Class, known_flow: bool, size: u32 },
    Reach,
    LoseAloud,
    LoseSilently,
    Read(u32),
    Pass(u64),
    Forget(u32),
}

fn op() -> impl Strategy<Value = Op> {
    let class = prop::sample::select(Class::ALL.to_vec());
    let offer = (0..6u32, 0..4u32, 0..9u32, class, any::<bool>(), 1..9000u32);
    prop_oneof![
        8 => offer.prop_map(|(socket, source, hash, class, known_flow, size)| Op::Offer {
            socket, source, hash, class, known_flow, size
        }),
        4 => Just(Op::Reach),
        1 => Just(Op::LoseAloud),
        1 => Just(Op::LoseSilently),
        3 => (0..6u32).prop_map(Op::Read),
        2 => (0..100_000_000u64).prop_map(Op::Pass),
        1 => (0..6u32).prop_map(Op::Forget),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    /// Any history: each packet has one end, what is under way is what the model says, and after
    /// a while without packets nothing is counted that does not exist.
    #[test]
    fn every_packet_has_one_end_and_credits_come_back(ops in prop::collection::vec(op(), 0..500)) {
        const LIMIT_BYTES: u64 = 40_000;
        let settings = ShedSettings { sockets: 4, log_packets: 16, ..ShedSettings::default() };
        let mut shedder = Shedder::new(settings, Key { k0: 1, k1: 2 });
        let mut queues: [VecDeque<u32>; 6] = Default::default();
        let mut under_way: VecDeque<(u32, u32, Ticket)> = VecDeque::new();
        let (mut now, mut offered, mut admitted, mut shed) = (0u64, 0u64, 0u64, 0u64);
        for op in ops {
            match op {
                Op::Offer { socket, source, hash, class, known_flow, size } => {
                    let queue = &queues[socket as usize];
                    let room = Room {
                        used_bytes: queue.iter().map(|size| u64::from(*size)).sum(),
                        used_packets: queue.len() as u64,
                        limit_bytes: LIMIT_BYTES,
                        limit_packets: 12,
                    };
                    let source = SourcePrefix::v4(source.to_be_bytes());
                    let hash = FlowHash(hash);
                    let offer = Offer { socket, hash, source, class, known_flow, true_size: size };
                    offered += 1;
                    match shedder.judge(&offer, &room, now) {
                        Verdict::Admit { ticket, .. } => {
                            admitted += 1;
                            prop_assert!(room.takes(size));
                            under_way.push_back((socket, size, ticket));
                        }
                        Verdict::Shed(_) => shed += 1,
                    }
                }
                Op::Reach => if let Some((socket, size, ticket)) = under_way.pop_front() {
                    shedder.reached(ticket);
                    queues[socket as usize].push_back(size);
                },
                Op::LoseAloud => if let Some((.., ticket)) = under_way.pop_back() {
                    shedder.lost(ticket);
                },
                Op::LoseSilently => drop(under_way.pop_back()),
                Op::Read(socket) => drop(queues[socket as usize].pop_front()),
                Op::Pass(ns) => now += ns,
                Op::Forget(socket) => {
                    shedder.forget(socket, now);
                    queues[socket as usize].clear();
                }
            }
            let counts = shedder.counts();
            prop_assert_eq!((counts.offered, counts.admitted, counts.shed_total()), (offered, admitted, shed));
            let total: u64 = (0..6).map(|socket| shedder.under_way(socket)).sum();
            prop_assert!(counts.reached + counts.lost + counts.healed + counts.late + total <= admitted + counts.late);
        }
        shedder.audit(now + 300_000_000);
        for socket in 0..6 {
            prop_assert_eq!(shedder.under_way(socket), 0);
        }
    }
}
