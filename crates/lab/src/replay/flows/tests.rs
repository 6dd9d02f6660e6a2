use super::*;

fn ident(n: u32) -> Ident {
    let mut src = [0; 16];
    src[..4].copy_from_slice(&n.to_be_bytes());
    Ident { src, kind: 4, protocol: 17, ..Ident::default() }
}

#[test]
fn working_sets_count_each_flow_once_in_a_window() {
    let mut flows = Flows::new(100);
    for second in 0..30u64 {
        for n in 0..5 + u32::from(second == 12) * 20 {
            for repeat in 0..3 {
                let place = flows.place(&ident(n));
                flows.at(place).connected = n < 2;
                flows.count(place, second * 1_000_000_000 + repeat);
            }
        }
    }
    let [one, ten] = flows.working_sets();
    assert_eq!((one.windows, one.max_flows, one.max_connected), (30, 25, 2));
    assert!((one.mean_flows - (29.0 * 5.0 + 25.0) / 30.0).abs() < 1e-9);
    assert_eq!((ten.windows, ten.max_flows, ten.max_connected), (3, 25, 2));
    assert!(one.exact && ten.exact);
    assert_eq!(flows.seen, 25);
}

#[test]
fn at_the_limit_flows_are_forgotten_and_the_counts_say_so() {
    let mut flows = Flows::new(10);
    for n in 0..1000u32 {
        let place = flows.place(&ident(n));
        flows.count(place, u64::from(n));
    }
    assert_eq!((flows.seen, flows.forgotten), (1000, 990));
    assert_eq!((flows.all().len(), flows.index.len()), (10, 10));
    let [one, _] = flows.working_sets();
    assert_eq!((one.max_flows, one.exact), (1000, false));
}

#[test]
fn a_busy_flow_outlives_a_flood_of_strangers() {
    let mut flows = Flows::new(50);
    let busy = ident(u32::MAX);
    let first = flows.place(&busy);
    for n in 0..10_000u32 {
        let stranger = flows.place(&ident(n));
        flows.count(stranger, 0);
        let place = flows.place(&busy);
        assert_eq!((place, flows.at(place).flow_use), (first, 1));
        flows.count(place, 0);
    }
    assert_eq!(flows.largest(), Some((10_000, busy)));
}

#[test]
fn the_largest_flow_is_known_after_it_was_forgotten() {
    let mut flows = Flows::new(4);
    for _ in 0..9 {
        let place = flows.place(&ident(7));
        flows.count(place, 0);
    }
    for n in 100..200 {
        let place = flows.place(&ident(n));
        flows.count(place, 0);
    }
    assert_eq!(flows.largest(), Some((9, ident(7))));
}
