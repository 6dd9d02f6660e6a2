//! Trains in virtual time: what merging saves, when held packets go, and interrupts put off.

use super::*;
use crate::Segment;
use crate::gro::Checksum;

/// A script whose packets may be merged with those of their flow.
struct Merged {
    script: Script,
    trains: Vec<(usize, u64)>,
}

impl Merged {
    fn new(script: Script) -> Self {
        Self { script, trains: Vec::new() }
    }
}

impl Stages for Merged {
    type Packet = Parcel;
    type Flow = Parcel;

    fn flow(&self, packet: &Parcel) -> Parcel {
        *packet
    }

    fn hash(&self, packet: &Parcel) -> FlowHash {
        self.script.hash(packet)
    }

    fn class(&self, packet: &Parcel) -> Class {
        self.script.class(packet)
    }

    fn segment(&self, packet: &Parcel) -> Option<Segment> {
        Some(Segment {
            hash: self.hash(packet),
            flow: packet.flow.into(),
            header_word: 0,
            headers_len: 28,
            payload_len: 100,
            checksum: Checksum::Good,
            length_fits: true,
        })
    }

    fn choose<C: Cpus>(&mut self, packet: &mut Parcel, at: At, cpus: &C) -> Choice {
        self.script.choose(packet, at, cpus)
    }

    fn queued(&mut self, flow: Parcel, at: At, choice: &Choice, tail: u32) {
        self.script.queued(flow, at, choice, tail);
    }

    fn deliver(&mut self, train: Train<Parcel>, on: CpuId, now_ns: u64) -> Option<Reading> {
        self.trains.push((train.count(), now_ns));
        let mut reading = None;
        for packet in train {
            reading = self.script.deliver(Train::one(packet), on, now_ns).or(reading);
        }
        reading
    }

    fn read(&mut self, reader: ReaderId, on: CpuId, now_ns: u64, most: u32) -> Read {
        self.script.read(reader, on, now_ns, most)
    }

    fn dropped(&mut self, packet: Parcel, cause: Drop, now_ns: u64) {
        self.script.dropped(packet, cause, now_ns);
    }
}

#[test]
fn a_poll_merges_a_flow_and_pays_its_protocol_work_once_per_train() {
    let costs = Costs { gro: 3, ..costs() };
    for (gro, trains, protocol_ns) in
        [(true, vec![64, 36], 2 * 50), (false, vec![1; 100], 100 * 50)]
    {
        let mut host = host(&Settings { gro, ..Settings::default() }, &costs);
        let mut merged = Merged::new(Script::new());
        for n in 1..=100 {
            host.arrive(parcel(n), QueueId(0), 0, &mut merged);
        }
        host.drain(&mut merged);
        assert_eq!(merged.trains.iter().map(|t| t.0).collect::<Vec<_>>(), trains);
        let merging_ns = if gro { 3 * 100 } else { 0 };
        assert_eq!(load(&host, 0).busy_ns(), 100 + 100 * 10 + merging_ns + protocol_ns);
        assert!(merged.script.delivered[&0].is_sorted());
    }
}

#[test]
fn a_backlog_merges_what_another_cpu_put_there() {
    let mut host = host(&Settings::default(), &costs());
    let mut merged = Merged::new(Script::to(1));
    for n in 1..=40 {
        host.arrive(parcel(n), QueueId(0), 0, &mut merged);
    }
    host.drain(&mut merged);
    assert_eq!(merged.trains.len(), 1);
    assert_eq!((load(&host, 1).processed, load(&host, 1).busy_ns()), (40, 5 + 50));
    assert!(host.is_idle(), "the head has passed all: {:?}", host.cpus());
}

#[test]
fn with_a_flush_timeout_packets_wait_for_the_next_poll_and_no_longer() {
    let settings = Settings { gro_flush_ns: 10_000, ..Settings::default() };
    let mut host = host(&settings, &costs());
    let mut merged = Merged::new(Script::new());
    for n in 0..5 {
        host.arrive(parcel(n), QueueId(0), n * 1000, &mut merged);
    }
    assert_eq!(host.drain(&mut merged), 10_110 + 100 + 50, "held since its taking was over");
    assert_eq!(merged.trains, [(5, 10_110 + 100 + 50)]);
    assert!(host.is_idle());
}

#[test]
fn what_a_queue_holds_when_its_cpu_goes_offline_is_delivered() {
    let settings = Settings { gro_flush_ns: 1_000_000, ..Settings::default() };
    let mut host = host(&settings, &costs());
    let mut merged = Merged::new(Script::new());
    for n in 0..5 {
        host.arrive(parcel(n), QueueId(0), n * 1000, &mut merged);
    }
    host.advance(5000, &mut merged);
    assert_eq!(merged.trains, []);
    host.offline(CpuId(0), 5000, &mut merged);
    assert_eq!(merged.trains, [(5, 5000)]);
    host.drain(&mut merged);
    assert_eq!(merged.script.count("finished"), 5);
}

#[test]
fn a_device_puts_its_interrupt_off_for_a_time_or_a_number_of_packets() {
    let settings =
        Settings { interrupt_delay_ns: 20_000, interrupt_packets: 8, ..Settings::default() };
    let mut host = host(&settings, &costs());
    let mut script = Script::new();
    for n in 0..5 {
        host.arrive(parcel(n), QueueId(0), n * 1000, &mut script);
    }
    host.drain(&mut script);
    assert_eq!(script.times("processed")[0], 20_000 + 100 + 10 + 50);
    assert_eq!(load(&host, 0).busy_ns(), 100 + 5 * 60, "one interrupt for five");
    script.log.clear();
    for n in 5..13 {
        host.arrive(parcel(n), QueueId(0), 50_000 + n * 100, &mut script);
    }
    host.drain(&mut script);
    assert_eq!(script.times("processed")[0], 51_200 + 100 + 10 + 50, "with the eighth");
    assert!(host.is_idle());
}
