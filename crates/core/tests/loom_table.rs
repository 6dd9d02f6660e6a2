//! Two threads on the flow table, in every order that their atomic operations can have.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p rxsteer-core --release --test loom_table`
//!
//! Loom runs each model once for each order, including what weak memory orders allow beyond
//! interleaving; it takes `SeqCst` operations as `AcqRel`. Of a word it remembers only the last
//! access, so it overlooks that a write of the second thread, which reads first, races with a read
//! of the first: each race is therefore run with either thread as the first one.
#![cfg(loom)]

use std::sync::atomic::{AtomicUsize, Ordering};

use loom::sync::Arc;
use loom::thread;
use rxsteer_core::table::{Bucket, Epoch, FlowTable, Geometry, Probe, Recorded};
use rxsteer_core::{CpuId, FlowHash};

const NOW: Epoch = Epoch(3);

type Table = FlowTable<Vec<Bucket>>;

/// Runs `left` and `right` at once on a table that `before` made ready, then `after` with their
/// answers.
fn race<L: Send + 'static, R: Send + 'static>(
    buckets: usize,
    before: fn(&Table),
    left: fn(&Table) -> L,
    right: fn(&Table) -> R,
    after: fn(&Table, L, R),
) {
    let orders: &'static AtomicUsize = Box::leak(Box::default());
    for left_is_first in [true, false] {
        let mut builder = loom::model::Builder::new();
        builder.max_branches = 20_000;
        // All orders of the small models; in the large one those with at most two preemptions.
        builder.preemption_bound = (buckets > 2).then_some(2);
        builder.check(move || {
            orders.fetch_add(1, Ordering::Relaxed);
            let buckets = (0..buckets).map(|_| Bucket::empty()).collect();
            let table = Arc::new(FlowTable::new(buckets).expect("a power of two"));
            before(&table);
            let other = Arc::clone(&table);
            let (l, r) = if left_is_first {
                let other = thread::spawn(move || right(&other));
                (left(&table), other.join().expect("no panic"))
            } else {
                let other = thread::spawn(move || left(&other));
                let r = right(&table);
                (other.join().expect("no panic"), r)
            };
            after(&table, l, r);
        });
    }
    let orders = orders.load(Ordering::Relaxed);
    assert!(orders > 4, "only {orders} orders: nothing was raced");
}

/// Returns the CPU that a probe finds, and checks that the entry is the flow's own.
fn wanted(table: &Table, hash: FlowHash) -> Option<CpuId> {
    table.lookup(hash, NOW).entry().map(|(entry, _)| {
        assert_eq!(entry.hash(), hash, "an entry of another flow answered");
        entry.wanted_cpu()
    })
}

/// The `n`th hash of class `class` whose home is bucket 0.
fn hash(class: u32, n: u32) -> FlowHash {
    FlowHash(class << 29 | (n + 1) << 16)
}

/// Makes the flow of hash (0, 0) known, on CPU 1.
fn known(table: &Table) {
    assert_eq!(table.record(hash(0, 0), CpuId(1), NOW), Recorded::Inserted);
}

/// Fills bucket 0 with eight flows of `class`, flow `n` on CPU `n`.
fn fill(table: &Table, class: u32) {
    for n in 0..8 {
        assert_eq!(table.record(hash(class, n), CpuId(n as u16), NOW), Recorded::Inserted);
    }
}

/// Returns the hash of a flow at home in bucket 0 of four whose second bucket is `second`.
fn hash_to(second: u32, n: u32) -> FlowHash {
    let geometry = Geometry::new(4).expect("a power of two");
    let mut hashes = (0..8).map(|class| hash(class, n));
    hashes.find(|hash| geometry.second(*hash) == second).expect("one of the classes goes there")
}

/// Fills buckets 0 and 1 of four, so that a further flow `hash_to(1, _)` of bucket 0 has room only
/// if one of the residents, which go to bucket 3, is moved there.
fn crowd(table: &Table) {
    for n in 0..8 {
        let at_home_in_1 = FlowHash(hash(0, n).0 | 1);
        assert_eq!(table.record(at_home_in_1, CpuId(100 + n as u16), NOW), Recorded::Inserted);
        assert_eq!(table.record(hash_to(3, n), CpuId(n as u16), NOW), Recorded::Inserted);
    }
}

/// Checks that the flows `hash_to(3, n)` are there with CPU `n`.
fn residents_are_there(table: &Table, mut flows: std::ops::Range<u32>) {
    assert!(flows.all(|n| wanted(table, hash_to(3, n)) == Some(CpuId(n as u16))));
}

#[test]
fn two_records_of_one_flow_leave_one_of_the_two_cpus() {
    race(
        1,
        |_| (),
        |table| table.record(hash(0, 0), CpuId(1), NOW),
        |table| table.record(hash(0, 0), CpuId(2), NOW),
        |table, _, _| {
            let cpu = wanted(table, hash(0, 0));
            assert!(cpu == Some(CpuId(1)) || cpu == Some(CpuId(2)), "{cpu:?}");
            assert_eq!(table.count(), 1);
            assert!(table.withdraw(hash(0, 0)));
            assert_eq!((wanted(table, hash(0, 0)), table.count()), (None, 0));
        },
    );
}

#[test]
fn two_records_of_two_flows_leave_both() {
    race(
        1,
        |_| (),
        |table| table.record(hash(0, 0), CpuId(1), NOW),
        |table| table.record(hash(1, 1), CpuId(2), NOW),
        |table, left, right| {
            assert_eq!((left, right), (Recorded::Inserted, Recorded::Inserted));
            assert_eq!(wanted(table, hash(0, 0)), Some(CpuId(1)));
            assert_eq!(wanted(table, hash(1, 1)), Some(CpuId(2)));
        },
    );
}

#[test]
fn two_records_for_the_last_slot_leave_one_there_and_one_in_place_of_a_flow_they_name() {
    race(
        1,
        |table| {
            for n in 0..7 {
                table.record(hash(0, n), CpuId(n as u16), NOW);
            }
        },
        |table| table.record(hash(0, 8), CpuId(8), NOW),
        |table| table.record(hash(0, 9), CpuId(9), NOW),
        |table, left, right| {
            let gone = match (left, right) {
                (Recorded::Inserted, Recorded::Evicted(gone)) => gone,
                (Recorded::Evicted(gone), Recorded::Inserted) => gone,
                other => panic!("{other:?}"),
            };
            for n in (0..7).chain(8..10) {
                let found = wanted(table, hash(0, n));
                assert_eq!(found, (hash(0, n) != gone).then_some(CpuId(n as u16)), "{n}");
            }
            assert_eq!(table.count(), 8);
        },
    );
}

#[test]
fn a_record_and_a_withdrawal_of_one_flow_happen_in_some_order() {
    race(
        1,
        known,
        |table| table.withdraw(hash(0, 0)),
        |table| table.record(hash(0, 0), CpuId(2), NOW),
        |table, withdrawn, _| {
            assert!(withdrawn, "there was an entry all the time");
            let cpu = wanted(table, hash(0, 0));
            assert!(cpu.is_none() || cpu == Some(CpuId(2)), "{cpu:?}");
            assert_eq!(table.withdraw(hash(0, 0)), cpu.is_some());
            assert_eq!(table.count(), 0);
        },
    );
}

#[test]
fn a_withdrawal_takes_no_other_flow_that_came_into_the_slot() {
    race(
        1,
        known,
        |table| table.withdraw(hash(0, 0)),
        |table| {
            table.withdraw(hash(0, 0));
            table.record(hash(0, 1), CpuId(2), NOW);
        },
        |table, _, ()| {
            assert_eq!(wanted(table, hash(0, 1)), Some(CpuId(2)));
            assert_eq!(table.count(), 1);
        },
    );
}

#[test]
fn a_probe_sees_a_cpu_that_was_written_or_nothing() {
    race(
        1,
        known,
        |table| {
            table.record(hash(0, 0), CpuId(2), NOW);
            table.withdraw(hash(0, 0));
            // Another flow takes the slot.
            table.record(hash(0, 1), CpuId(3), NOW);
        },
        |table| [wanted(table, hash(0, 0)), wanted(table, hash(0, 1))],
        |table, (), [first, second]| {
            assert!([None, Some(CpuId(1)), Some(CpuId(2))].contains(&first), "{first:?}");
            assert!([None, Some(CpuId(3))].contains(&second), "{second:?}");
            assert_eq!(wanted(table, hash(0, 0)), None);
            assert_eq!(wanted(table, hash(0, 1)), Some(CpuId(3)));
        },
    );
}

#[test]
fn probes_see_own_cpus_while_a_flow_goes_to_its_second_bucket() {
    race(
        2,
        |table| fill(table, 0),
        |table| table.record(hash(0, 8), CpuId(8), NOW),
        |table| [wanted(table, hash(0, 8)), wanted(table, hash(0, 3))],
        |table, recorded, [new, resident]| {
            assert_eq!(recorded, Recorded::Inserted);
            assert!(new.is_none() || new == Some(CpuId(8)), "{new:?}");
            assert_eq!(resident, Some(CpuId(3)));
            for n in 0..9 {
                assert_eq!(wanted(table, hash(0, n)), Some(CpuId(n as u16)), "{n}");
            }
        },
    );
}

#[test]
fn a_mark_survives_a_guest_that_leaves_while_another_comes() {
    race(
        2,
        |table| {
            fill(table, 0);
            table.record(hash(0, 8), CpuId(8), NOW);
        },
        // The last guest of the class goes and takes the mark back, another guest comes.
        |table| table.withdraw(hash(0, 8)),
        |table| table.record(hash(0, 9), CpuId(9), NOW),
        |table, withdrawn, _| {
            assert!(withdrawn);
            assert_eq!(wanted(table, hash(0, 9)), Some(CpuId(9)));
            assert_eq!(wanted(table, hash(0, 8)), None);
            assert_eq!(table.count(), 9);
        },
    );
}

#[test]
fn a_withdrawn_flow_does_not_come_back_by_being_moved() {
    // Resident 3 is the one that the table moves for this newcomer.
    fn run<const RESIDENT: u32>() {
        race(
            4,
            crowd,
            |table| table.withdraw(hash_to(3, RESIDENT)),
            |table| table.record(hash_to(1, 8), CpuId(50), NOW),
            |table, withdrawn, recorded| {
                assert!(withdrawn);
                assert_eq!(recorded, Recorded::Inserted);
                assert_eq!(wanted(table, hash_to(3, RESIDENT)), None);
                assert_eq!(wanted(table, hash_to(1, 8)), Some(CpuId(50)));
                residents_are_there(table, 0..RESIDENT);
                residents_are_there(table, RESIDENT + 1..8);
                assert_eq!(table.count(), 8 + 7 + 1);
            },
        );
    }
    run::<0>();
    run::<3>();
    run::<5>();
}

#[test]
fn a_flow_that_is_recorded_while_it_is_moved_keeps_the_new_cpu() {
    fn run<const RESIDENT: u32>() {
        race(
            4,
            crowd,
            |table| table.record(hash_to(3, RESIDENT), CpuId(70), NOW),
            |table| table.record(hash_to(1, 8), CpuId(50), NOW),
            |table, moved, recorded| {
                assert_eq!((moved, recorded), (Recorded::Moved, Recorded::Inserted));
                assert_eq!(wanted(table, hash_to(3, RESIDENT)), Some(CpuId(70)));
                assert_eq!(wanted(table, hash_to(1, 8)), Some(CpuId(50)));
                residents_are_there(table, 0..RESIDENT);
                residents_are_there(table, RESIDENT + 1..8);
                assert_eq!(table.count(), 8 + 8 + 1);
            },
        );
    }
    run::<0>();
    run::<3>();
    run::<5>();
}

#[test]
fn two_flows_that_need_room_at_once_both_get_it() {
    race(
        4,
        crowd,
        |table| table.record(hash_to(1, 8), CpuId(50), NOW),
        |table| table.record(hash_to(1, 9), CpuId(60), NOW),
        |table, left, right| {
            assert_eq!((left, right), (Recorded::Inserted, Recorded::Inserted));
            assert_eq!(wanted(table, hash_to(1, 8)), Some(CpuId(50)));
            assert_eq!(wanted(table, hash_to(1, 9)), Some(CpuId(60)));
            residents_are_there(table, 0..8);
        },
    );
}

#[test]
fn a_placement_and_a_record_do_not_undo_each_other() {
    race(
        1,
        known,
        |table| table.record(hash(0, 0), CpuId(2), NOW),
        |table| {
            let (entry, place) = table.lookup(hash(0, 0), NOW).entry().expect("recorded before");
            table.place(place, entry, CpuId(7), true)
        },
        |table, recorded, placed| {
            assert_eq!(recorded, Recorded::Moved);
            let (entry, _) = table.lookup(hash(0, 0), NOW).entry().expect("nobody withdraws");
            assert_eq!(entry.wanted_cpu(), CpuId(2));
            assert_eq!(entry.current_cpu(), placed.then_some(CpuId(7)));
            assert_eq!(entry.is_moving(), placed);
        },
    );
}

#[test]
fn a_sweep_takes_no_entry_that_is_confirmed_meanwhile() {
    race(
        1,
        known,
        |table| table.sweep(0, 1, Epoch(NOW.0 + 8)),
        |table| table.record(hash(0, 0), CpuId(1), Epoch(NOW.0 + 8)),
        |table, removed, recorded| {
            assert!(recorded.wrote());
            assert_eq!(recorded == Recorded::Inserted, removed == 1);
            assert_eq!(table.lookup(hash(0, 0), Epoch(NOW.0 + 8)).probe, Probe::Hit);
            assert_eq!(table.count(), 1);
        },
    );
}
