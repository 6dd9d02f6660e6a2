//! The rules one by one, and generated bursts against a second way to say them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rxsteer_core::FlowHash;

use super::*;

const IPV4_UDP: u16 = 28;

fn of_flow(flow: u64, payload_len: u16) -> Segment {
    Segment {
        // Flows 0, 8, 16 .. share a list.
        hash: FlowHash(0x100 + flow as u32),
        flow,
        header_word: 64,
        headers_len: IPV4_UDP,
        payload_len,
        checksum: Checksum::Good,
        length_fits: true,
    }
}

/// Merges the packets of one poll; returns the trains as lists of places in the input.
fn merge(packets: &[Segment]) -> Vec<Vec<usize>> {
    let (mut gro, mut trains) = (Gro::new(), Vec::new());
    for (place, segment) in packets.iter().enumerate() {
        gro.push(place, Some(*segment), 0, |train| trains.push(train));
    }
    gro.flush(|train| trains.push(train));
    assert!(gro.is_empty());
    assert_eq!(trains.iter().map(Train::count).sum::<usize>(), packets.len());
    trains.into_iter().map(|train| train.into_iter().collect()).collect()
}

/// Merges packets of one flow; returns the number of packets in each train.
fn groups(packets: impl IntoIterator<Item = Segment>) -> Vec<usize> {
    let packets: Vec<_> = packets.into_iter().collect();
    let trains = merge(&packets);
    assert!(trains.iter().flatten().copied().eq(0..packets.len()), "out of order: {trains:?}");
    trains.iter().map(Vec::len).collect()
}

fn lengths(lengths: &[u16]) -> Vec<usize> {
    groups(lengths.iter().map(|len| of_flow(1, *len)))
}

#[test]
fn equal_lengths_merge_and_the_last_may_be_shorter_and_never_longer() {
    assert_eq!(lengths(&[1000]), [1]);
    assert_eq!(lengths(&[1000, 1000, 1000]), [3]);
    assert_eq!(lengths(&[1000, 1000, 500]), [3]);
    assert_eq!(lengths(&[500, 1000]), [1, 1]);
    assert_eq!(lengths(&[1000, 500, 500]), [2, 1]);
    assert_eq!(lengths(&[500, 1000, 1000, 1001, 1001, 1, 1]), [1, 2, 3, 1]);
}

#[test]
fn the_65th_packet_is_not_merged_with_the_64_before_it() {
    assert_eq!(lengths(&[100; 64]), [64]);
    assert_eq!(lengths(&[100; 65]), [64, 1]);
    assert_eq!(lengths(&[100; 200]), [64, 64, 64, 8]);
}

#[test]
fn a_train_has_room_in_one_ip_packet() {
    // 44 × 1,472 + 28 = 64,796; one more would make 66,268.
    assert_eq!(lengths(&[1472; 50]), [44, 6]);
    // Exactly 65,535 bytes with headers, and one more.
    let most = 65_535 - IPV4_UDP;
    assert_eq!(lengths(&[most]), [1]);
    assert_eq!(lengths(&[most - 1, 1]), [2]);
    assert_eq!(lengths(&[most - 1, 2]), [1, 1]);
    assert_eq!(lengths(&[30_000, 30_000, 5_507]), [3]);
    assert_eq!(lengths(&[30_000, 30_000, 5_508]), [2, 1]);
    // With longer headers there is less room.
    let of = |payload_len| Segment { headers_len: 48, ..of_flow(1, payload_len) };
    assert_eq!(groups([of(30_000), of(30_000), of(5_507)]), [2, 1]);
}

#[test]
fn a_packet_that_cannot_be_merged_goes_alone_behind_its_flows_train() {
    let good = of_flow(1, 1000);
    let odd = [
        Segment { checksum: Checksum::Absent, ..good },
        Segment { checksum: Checksum::Bad, ..good },
        Segment { payload_len: 0, ..good },
        Segment { length_fits: false, ..good },
    ];
    for odd in odd {
        assert_eq!(groups([good, good, odd, good, good]), [2, 1, 2], "{odd:?}");
        assert_eq!(groups([odd, odd]), [1, 1], "{odd:?}");
    }
}

#[test]
fn other_header_fields_end_a_train_and_begin_the_next() {
    let good = of_flow(1, 1000);
    let other_ttl = Segment { header_word: 63, ..good };
    assert_eq!(groups([good, good, other_ttl, other_ttl, good]), [2, 2, 1]);
    let options = Segment { headers_len: 32, ..good };
    assert_eq!(groups([good, options, options]), [1, 2]);
}

#[test]
fn a_packet_of_another_flow_in_between_does_not_end_a_train() {
    let (a, b) = (of_flow(1, 1000), of_flow(2, 1000));
    assert_eq!(merge(&[a, b, a, b, b]), [vec![0, 2], vec![1, 3, 4]]);
    // Nor does one that cannot be merged, of another flow in the same list.
    let c = Segment { checksum: Checksum::Bad, ..of_flow(9, 1000) };
    assert_eq!(merge(&[a, c, a]), [vec![1], vec![0, 2]]);
    // One 32-bit hash, two flows.
    let d = Segment { flow: 77, ..a };
    assert_eq!(merge(&[a, d, a, d]), [vec![0, 2], vec![1, 3]]);
}

#[test]
fn a_ninth_flow_in_a_list_sends_the_oldest_away() {
    let flows = |n: u64| of_flow(8 * n, 1000);
    let mut packets: Vec<_> = (0..8).map(flows).collect();
    packets.extend((0..8).map(flows)); // all eight are held: each joins
    packets.push(flows(8)); // flow 0 goes
    packets.push(flows(0)); // flow 1 goes
    packets.push(of_flow(1, 1000)); // of another list: nobody goes
    let trains = merge(&packets);
    assert_eq!(trains[..2], [vec![0, 8], vec![1, 9]]);
    assert_eq!(trains[2..8], [2, 3, 4, 5, 6, 7].map(|n| vec![n, n + 8]));
    assert_eq!(trains[8..], [vec![16], vec![17], vec![18]]);
}

#[test]
fn with_a_timeout_only_what_is_old_goes_at_the_end_of_a_poll() {
    let mut gro = Gro::new();
    let mut trains = Vec::new();
    gro.push("a", Some(of_flow(1, 100)), 10, |train| trains.push(train));
    gro.push("b", Some(of_flow(2, 100)), 20, |train| trains.push(train));
    gro.push("c", Some(of_flow(1, 100)), 30, |train| trains.push(train));
    assert_eq!(gro.oldest_ns(), Some(10));
    gro.flush_older(10, |train| trains.push(train));
    assert!(trains.is_empty());
    // By its first packet: "c" does not make the train younger.
    gro.flush_older(20, |train| trains.push(train));
    assert_eq!(trains.len(), 1);
    assert!(trains[0].packets().eq(&["a", "c"]));
    assert_eq!(gro.oldest_ns(), Some(20));
    gro.push("d", None, 40, |train| trains.push(train));
    assert_eq!(trains.len(), 2);
    gro.flush_older(u64::MAX, |train| trains.push(train));
    assert_eq!((trains.len(), gro.oldest_ns()), (3, None));
}

#[test]
fn a_packet_without_a_segment_goes_at_once() {
    let mut gro = Gro::new();
    let mut trains = Vec::new();
    gro.push(1, None, 0, |train| trains.push(train));
    assert_eq!(trains, [Train::one(1)]);
    assert!(gro.is_empty());
}

#[test]
fn the_train_of_a_flow_can_be_taken_out_and_no_other() {
    let mut gro = Gro::new();
    for (name, flow) in [("a", 1), ("b", 9), ("c", 1)] {
        gro.push(name, Some(of_flow(flow, 100)), 0, |_| panic!("both are held"));
    }
    assert!(gro.take(&of_flow(17, 100)).is_none());
    assert!(gro.take(&of_flow(1, 50)).unwrap().packets().eq(&["a", "c"]));
    assert!(gro.take(&of_flow(1, 100)).is_none());
    let mut left = Vec::new();
    gro.flush(|train| left.push(train));
    assert!(left.len() == 1 && left[0].packets().eq(&["b"]));
}

/// A datagram as the generator makes it: who, what, and the bytes.
#[derive(Clone, Debug)]
struct Datagram {
    segment: Segment,
    payload: Vec<u8>,
}

fn datagrams(flows: u64) -> impl Strategy<Value = Vec<Datagram>> {
    let length = prop_oneof![
        6 => Just(100u16), 3 => Just(1472), 2 => Just(50), 2 => Just(9000),
        1 => 0u16..2000,
    ];
    let checksum = prop_oneof![
        20 => Just(Checksum::Good), 1 => Just(Checksum::Absent), 1 => Just(Checksum::Bad),
    ];
    let header_word = prop_oneof![15 => Just(64u64), 1 => Just(63)];
    let one = (0..flows, length, checksum, header_word, 0..40u8);
    prop::collection::vec(one, 0..200).prop_map(|all| {
        let made = all.into_iter().enumerate();
        made.map(|(n, (flow, payload_len, checksum, header_word, odd))| {
            let length_fits = odd != 0;
            let segment =
                Segment { checksum, header_word, length_fits, ..of_flow(flow, payload_len) };
            // Each payload differs from every other of its length.
            let bytes = (n as u32).to_be_bytes().into_iter().cycle();
            Datagram { segment, payload: bytes.take(payload_len.into()).collect() }
        })
        .collect()
    })
}

/// Says how one flow's packets group if no other flow is in the way: the rules as a reader of the
/// specification would do them by hand, over the whole list instead of packet by packet.
fn by_hand(flow: &[Datagram]) -> Vec<usize> {
    let mut groups = Vec::new();
    let mut at = 0;
    while at < flow.len() {
        let first = &flow[at].segment;
        let alone =
            |s: &Segment| s.checksum != Checksum::Good || !s.length_fits || s.payload_len == 0;
        let mut count = 1;
        let mut bytes = usize::from(first.payload_len);
        while !alone(first) && count < 64 && at + count < flow.len() {
            let (previous, next) = (&flow[at + count - 1].segment, &flow[at + count].segment);
            let ended = previous.payload_len < first.payload_len;
            bytes += usize::from(next.payload_len);
            if ended
                || alone(next)
                || next.payload_len > first.payload_len
                || next.header_word != first.header_word
                || bytes > 65_535 - usize::from(IPV4_UDP)
            {
                break;
            }
            count += 1;
        }
        groups.push(count);
        at += count;
    }
    groups
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Cutting the trains gives the input again, in order per flow; each train keeps every rule.
    #[test]
    fn trains_cut_again_are_the_input(
        datagrams in prop_oneof![Just(1), Just(9), Just(100)].prop_flat_map(datagrams),
        ends in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let ends: Vec<_> = ends.iter().map(|at| at.index(datagrams.len() + 1)).collect();
        let (mut gro, mut trains) = (Gro::new(), Vec::new());
        for (n, datagram) in datagrams.iter().enumerate() {
            let before = trains.len();
            gro.push(datagram.clone(), Some(datagram.segment), n as u64, |t| trains.push(t));
            prop_assert!(trains.len() - before <= 2);
            if ends.contains(&n) {
                gro.flush_older(n as u64 / 2, |t| trains.push(t));
            }
        }
        gro.flush(|t| trains.push(t));
        prop_assert!(gro.is_empty());

        let mut expected: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
        for datagram in &datagrams {
            expected.entry(datagram.segment.flow).or_default().push(&datagram.payload);
        }
        let mut found: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
        for train in &trains {
            let first = &train.first().segment;
            prop_assert!(train.count() <= 64);
            let message: Vec<u8> = train.packets().flat_map(|d| d.payload.clone()).collect();
            prop_assert_eq!(message.len(), train.payload_len() as usize);
            prop_assert!(message.len() + usize::from(first.headers_len) <= 65_535 || train.count() == 1);
            for datagram in train.packets() {
                let segment = &datagram.segment;
                prop_assert_eq!((segment.flow, segment.header_word), (first.flow, first.header_word));
                prop_assert!(train.count() == 1 || segment.may_merge());
            }
            // As a reader does it who knows nothing but the segment length.
            let pieces = found.entry(first.flow).or_default();
            if message.is_empty() {
                pieces.push(Vec::new());
            } else {
                pieces.extend(message.chunks(train.segment_len().into()).map(<[u8]>::to_vec));
            }
        }
        prop_assert_eq!(found.len(), expected.len());
        for (flow, pieces) in &found {
            prop_assert!(pieces.iter().eq(&expected[flow]), "flow {}", flow);
        }
    }

    /// While no list is full, a flow's trains do not depend on the others, and are as long as the
    /// rules let them be.
    #[test]
    fn a_flow_merges_as_by_hand_whatever_comes_in_between(datagrams in datagrams(64)) {
        let segments: Vec<_> = datagrams.iter().map(|d| d.segment).collect();
        let mut found: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for train in merge(&segments) {
            found.entry(segments[train[0]].flow).or_default().push(train.len());
        }
        for (flow, groups) in found {
            let own: Vec<_> =
                datagrams.iter().filter(|d| d.segment.flow == flow).cloned().collect();
            prop_assert_eq!(groups, by_hand(&own), "flow {}", flow);
        }
    }
}
