//! The set against `BTreeSet`, and the two notations: rows, refusals, round trips.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{CpuSet, CpuSetError, CpuSetReason, CpuStates};
use crate::CpuId;

fn set(list: &str) -> CpuSet {
    CpuSet::from_list(list).unwrap()
}

fn model(set: &CpuSet) -> BTreeSet<u16> {
    set.iter().map(|cpu| cpu.0).collect()
}

fn from_model(ids: &BTreeSet<u16>) -> CpuSet {
    ids.iter().map(|id| CpuId(*id)).collect()
}

fn ids() -> impl Strategy<Value = BTreeSet<u16>> {
    // Both thin sets over the whole range and dense ones within a few words.
    prop_oneof![
        prop::collection::btree_set(0..CpuId::LIMIT, 0..40),
        prop::collection::btree_set(0..200u16, 0..150),
    ]
}

proptest! {
    #[test]
    fn a_set_does_what_a_btree_set_does(a in ids(), b in ids(), ops in prop::collection::vec((any::<bool>(), 0..5000u16), 0..60)) {
        let (mut a, b_set) = (a, from_model(&b));
        let mut set = from_model(&a);
        for (add, id) in ops {
            if add {
                let fits = id < CpuId::LIMIT;
                prop_assert_eq!(set.insert(CpuId(id)), fits && a.insert(id));
            } else {
                prop_assert_eq!(set.remove(CpuId(id)), a.remove(&id));
            }
        }
        prop_assert_eq!(&model(&set), &a);
        prop_assert_eq!(set.count(), a.len());
        prop_assert_eq!(set.is_empty(), a.is_empty());
        prop_assert_eq!(set.first().map(|c| c.0), a.first().copied());
        prop_assert_eq!(set.last().map(|c| c.0), a.last().copied());
        for n in 0..=a.len() {
            prop_assert_eq!(set.nth(n).map(|c| c.0), a.iter().nth(n).copied());
        }
        prop_assert_eq!(model(&set.union(&b_set)), &a | &b);
        prop_assert_eq!(model(&set.intersection(&b_set)), &a & &b);
        prop_assert_eq!(model(&set.difference(&b_set)), &a - &b);
        prop_assert_eq!(set.is_subset(&b_set), a.is_subset(&b));
        prop_assert!(set.intersection(&b_set).is_subset(&b_set));
    }

    #[test]
    fn both_notations_give_the_set_back(ids in ids(), more in 0..400u32) {
        let set = from_model(&ids);
        prop_assert_eq!(CpuSet::from_list(&set.list().to_string()), Ok(set));
        let nr_cpu_ids = set.last().map_or(1, |c| u32::from(c.0) + 1) + more;
        let text = set.mask(nr_cpu_ids).to_string();
        prop_assert_eq!(CpuSet::from_mask(&text, nr_cpu_ids), Ok(set));
        prop_assert_eq!(CpuSet::from_mask(&format!(" {}\n", text.to_uppercase()), nr_cpu_ids), Ok(set));
        prop_assert_eq!(CpuSet::from_mask(&format!("00000000,{text}"), nr_cpu_ids), Ok(set));
        prop_assert_eq!(CpuSet::from_mask(text.trim_start_matches(['0', ',']), nr_cpu_ids).ok(),
            (!set.is_empty()).then_some(set));
    }

    #[test]
    fn the_mask_is_the_binary_number(ids in prop::collection::btree_set(0..128u16, 0..60)) {
        // A second way to the same text: one 128-bit number, cut in four.
        let number = ids.iter().fold(0u128, |n, id| n | 1 << id);
        let text = format!("{number:032x}");
        let groups = [&text[..8], &text[8..16], &text[16..24], &text[24..]].join(",");
        prop_assert_eq!(from_model(&ids).mask(128).to_string(), groups);
    }

    #[test]
    fn any_text_gets_an_answer_with_a_place_inside_it(text in "[ 0-9a-fA-F,:/x\\-\n]{0,40}", nr in 0..5000u32) {
        for result in [CpuSet::from_list(&text), CpuSet::from_mask(&text, nr)] {
            match result {
                Ok(set) => prop_assert!(set.last().is_none_or(|c| c.0 < CpuId::LIMIT)),
                Err(error) => {
                    prop_assert!(error.at as usize <= text.len());
                    let place = format!("(at byte {})", error.at);
                    prop_assert!(error.to_string().ends_with(&place));
                }
            }
        }
    }

    #[test]
    fn a_stride_is_that_many_of_each_group(first in 0..300u32, len in 0..300u32, used in 1..20u32, extra in 0..20u32) {
        let (last, group) = (first + len, used + extra);
        let want: CpuSet = (first..=last)
            .filter(|id| (id - first) % group < used)
            .map(|id| CpuId(id as u16))
            .collect();
        prop_assert_eq!(CpuSet::from_list(&format!("{first}-{last}:{used}/{group}")), Ok(want));
    }

    #[test]
    fn a_dropped_cpu_has_exactly_one_reason(w in ids(), p in ids(), o in ids(), i in ids()) {
        let states = CpuStates { possible: from_model(&p), online: from_model(&o), isolated: from_model(&i) };
        let usable = states.usable(&from_model(&w));
        for id in 0..CpuId::LIMIT {
            let cpu = CpuId(id);
            let d = &usable.dropped;
            let places = [&usable.cpus, &d.missing, &d.offline, &d.isolated];
            let held = places.iter().filter(|set| set.contains(cpu)).count();
            prop_assert_eq!(held, usize::from(w.contains(&id)));
            if w.contains(&id) {
                prop_assert_eq!(usable.cpus.contains(cpu), states.refusal(cpu).is_none());
                prop_assert_eq!(usable.cpus.contains(cpu), states.serving().contains(cpu));
            }
        }
        prop_assert_eq!(usable.refusal().is_some(), usable.cpus.is_empty());
    }
}

#[test]
fn first_n_is_the_range_from_zero() {
    for n in [0, 1, 63, 64, 65, 128, 4095, 4096] {
        let want: CpuSet = (0..n).map(|id| CpuId(id as u16)).collect();
        assert_eq!(CpuSet::first_n(n), want, "{n}");
    }
    assert_eq!(CpuSet::first_n(u32::MAX), CpuSet::first_n(4096));
}

#[test]
fn lists_people_write_are_read() {
    let rows: &[(&str, &[u16])] = &[
        ("", &[]),
        ("\n", &[]),
        ("0", &[0]),
        (" 0-3\n", &[0, 1, 2, 3]),
        ("0,3-5", &[0, 3, 4, 5]),
        ("0-1,4-5", &[0, 1, 4, 5]),
        ("0,8,16-17", &[0, 8, 16, 17]),
        ("0-7:2/4", &[0, 1, 4, 5]),
        ("5-5", &[5]),
        ("3,1,2,2", &[1, 2, 3]),
        ("0 , 2", &[0, 2]),
        ("4095", &[4095]),
        ("007", &[7]),
        ("0-4:1/4294967295", &[0]),
    ];
    for (text, ids) in rows {
        let want: CpuSet = ids.iter().map(|id| CpuId(*id)).collect();
        assert_eq!(CpuSet::from_list(text), Ok(want), "{text:?}");
    }
}

#[test]
fn lists_are_refused_with_place_and_reason() {
    use CpuSetReason::*;
    let rows = [
        ("3-1", 0, Backwards { first: 3, last: 1 }),
        ("0,3-1", 2, Backwards { first: 3, last: 1 }),
        ("0-", 2, NoNumber),
        ("-3", 0, NoNumber),
        ("1,,2", 2, NoNumber),
        ("1,", 2, NoNumber),
        ("f", 0, NoNumber),
        ("0x3", 1, Unexpected(b'x')),
        ("1 2", 2, Unexpected(b'2')),
        ("1-2-3", 3, Unexpected(b'-')),
        ("3:1/2", 1, Unexpected(b':')),
        ("0-7:2", 5, NoNumber),
        ("0-7:2,1", 5, Unexpected(b',')),
        ("0-7:0/4", 4, BadStride { used: 0, group: 4 }),
        ("0-7:5/4", 4, BadStride { used: 5, group: 4 }),
        ("0-7:0/0", 4, BadStride { used: 0, group: 0 }),
        ("4096", 0, AboveLimit(4096)),
        ("0-9999", 2, AboveLimit(9999)),
        ("99999999999999999999", 0, AboveLimit(u32::MAX)),
        ("1\u{a0}", 1, Unexpected(0xc2)),
    ];
    for (text, at, reason) in rows {
        assert_eq!(CpuSet::from_list(text), Err(CpuSetError { at, reason }), "{text:?}");
    }
}

#[test]
fn masks_are_refused_with_place_and_reason() {
    use CpuSetReason::*;
    let rows = [
        ("", 64, 0, NoHexDigit),
        (" \n", 64, 2, NoHexDigit),
        (",1", 64, 0, NoHexDigit),
        ("1,,1", 96, 2, NoHexDigit),
        ("1,", 64, 2, NoHexDigit),
        ("0xf", 64, 1, Unexpected(b'x')),
        ("f g", 64, 1, Unexpected(b' ')),
        ("000000001", 64, 8, WordTooLong),
        ("fffffffff", 64, 8, WordTooLong),
        ("1,100000000", 96, 10, WordTooLong),
        ("10", 4, 0, Overflow { bit: 4, nr_cpu_ids: 4 }),
        ("1,00000000", 32, 0, Overflow { bit: 32, nr_cpu_ids: 32 }),
    ];
    for (text, nr, at, reason) in rows {
        assert_eq!(CpuSet::from_mask(text, nr), Err(CpuSetError { at, reason }), "{text:?}");
    }
    assert_eq!(CpuSet::from_mask("8,00000000", 36), Ok(set("35")));
}

#[test]
fn a_mask_that_exceeds_every_possible_size_is_refused_not_cut() {
    let wide = format!("1{}", ",00000000".repeat(128));
    let reason = CpuSetReason::Overflow { bit: 4096, nr_cpu_ids: 4096 };
    assert_eq!(CpuSet::from_mask(&wide, u32::MAX), Err(CpuSetError { at: 0, reason }));
    let zeros = format!("{}f", "00000000,".repeat(500));
    assert_eq!(CpuSet::from_mask(&zeros, 4), Ok(set("0-3")));
}

#[test]
fn a_mask_never_cuts_a_cpu_off() {
    assert_eq!(set("0,40").mask(4).to_string(), "100,00000001");
    assert_eq!(CpuSet::EMPTY.mask(0).to_string(), "0");
    assert_eq!(CpuSet::EMPTY.list().to_string(), "");
}

#[test]
fn texts_of_errors_say_what_to_do() {
    let text = |r: Result<CpuSet, CpuSetError>| r.unwrap_err().to_string();
    assert_eq!(
        text(CpuSet::from_list("5000")),
        "CPU 5000 is above the highest supported, 4095 (at byte 0)"
    );
    assert_eq!(text(CpuSet::from_mask("1f", 4)), "bit 4 is set, but CPU ids end at 3 (at byte 0)");
    assert_eq!(text(CpuSet::from_list("1;2")), "';' cannot stand here (at byte 1)");
    assert_eq!(
        text(CpuSet::from_list("0-7:5/4")),
        ":5/4 must take at least 1 and at most 4 of each 4 (at byte 4)"
    );
}
