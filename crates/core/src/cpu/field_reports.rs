//! Public problem reports about CPU sets, each as a test with its inputs and the right answers.

use super::{CpuSet, CpuSetReason, CpuStates};
use crate::CpuId;

fn set(list: &str) -> CpuSet {
    CpuSet::from_list(list).unwrap()
}

/// scylladb/scylladb#406: with more than 32 CPUs the mask was one long number, which is refused.
#[test]
fn scylladb_406_a_mask_above_32_bits_is_written_in_groups() {
    assert_eq!(set("1-17").mask(40).to_string(), "00,0003fffe");
    assert_eq!(set("18-35").mask(40).to_string(), "0f,fffc0000");
    // vyos/vyos-1x#4215 answered by a cap at 32 bits: no CPU may get lost.
    assert_eq!(set("0-39").mask(40).to_string(), "ff,ffffffff");
    // coolsnowwolf/lede#14105: 4 CPUs are the mask f, not 4.
    assert_eq!(CpuSet::first_n(4).mask(4).to_string(), "f");
}

/// redhat-performance/tuned#99: a read-back compare failed on a newline and on leading zeros.
#[test]
fn scylladb_406_masks_are_compared_as_sets() {
    let written = set("1-17");
    for read_back in ["3fffe", "00000000,0003fffe", "00,0003fffe\n", "3FFFE\n", "0003fffe"] {
        assert_eq!(CpuSet::from_mask(read_back, 40), Ok(written), "{read_back:?}");
    }
}

#[test]
fn scylladb_406_every_size_of_host_has_its_text() {
    let rows = [
        (1, "0", "1"),
        (4, "0-3", "f"),
        (4, "2", "4"),
        (31, "30", "40000000"),
        (31, "0-30", "7fffffff"),
        (32, "31", "80000000"),
        (33, "32", "1,00000000"),
        (33, "0", "0,00000001"),
        (64, "0,63", "80000000,00000001"),
        (65, "64", "1,00000000,00000000"),
        (72, "1-71", "ff,ffffffff,fffffffe"),
        (128, "96-127", "ffffffff,00000000,00000000,00000000"),
        (
            384,
            "0,383",
            "80000000,00000000,00000000,00000000,00000000,00000000,00000000,00000000,00000000,\
             00000000,00000000,00000001",
        ),
    ];
    for (nr_cpu_ids, list, text) in rows {
        assert_eq!(set(list).mask(nr_cpu_ids).to_string(), text, "{nr_cpu_ids} {list}");
        assert_eq!(CpuSet::from_mask(text, nr_cpu_ids), Ok(set(list)), "{nr_cpu_ids} {text}");
    }
}

/// vyos/vyos-1x#725: "everything but CPU 0" as a fixed mask of 128 bits, on hosts of 1, 2, 4 CPUs.
#[test]
fn vyos_725_all_but_cpu_0_is_cut_down_to_the_host() {
    let mask = "ffffffff,ffffffff,ffffffff,fffffffe";
    let wanted = CpuSet::from_mask(mask, 128).unwrap();
    let cut = |n| CpuStates::all(n).usable(&wanted);
    assert_eq!(cut(4).cpus, set("1-3"));
    assert_eq!(cut(2).cpus, set("1"));
    assert_eq!(
        cut(1).refusal().map(|r| r.to_string()).as_deref(),
        Some("no usable CPU left: 1-127 do not exist (possible 0)")
    );
}

#[test]
fn vyos_725_a_kernel_refuses_bits_above_its_cpus() {
    for n in [1, 2, 4] {
        let error = CpuSet::from_mask("ffffffff,ffffffff,ffffffff,fffffffe", n).unwrap_err();
        assert_eq!(error.reason, CpuSetReason::Overflow { bit: 127, nr_cpu_ids: n });
    }
    assert_eq!(CpuSet::from_mask("e", 4), Ok(set("1-3")));
}

#[test]
fn vyos_725_a_wish_of_isolated_cpus_only_is_refused_in_words() {
    let mut host = CpuStates::all(4);
    host.isolated = set("1-3");
    let usable = host.usable(&set("1-3"));
    assert_eq!(
        usable.refusal().map(|r| r.to_string()).as_deref(),
        Some("no usable CPU left: 1-3 are isolated")
    );
    let mixed = host.usable(&set("0-3"));
    assert_eq!((mixed.cpus, mixed.refusal().is_some()), (set("0"), false));
    assert_eq!(host.usable(&set("2")).dropped.to_string(), "2 is isolated");
}

/// openshift/cluster-node-tuning-operator#518: possible 0-103, online 0-51, mask 48-55.
#[test]
fn openshift_518_offline_cpus_are_dropped_and_named() {
    let host = CpuStates { possible: set("0-103"), online: set("0-51"), isolated: CpuSet::EMPTY };
    let usable = host.usable(&set("48-55"));
    assert_eq!(usable.cpus, set("48-51"));
    assert_eq!(usable.dropped.offline, set("52-55"));
    assert_eq!(usable.dropped.to_string(), "52-55 are offline");
    assert!(usable.refusal().is_none());
    // The CPUs of a host are not 0..count: the mask keeps the width of the possible ids.
    assert_eq!(host.nr_cpu_ids(), 104);
    assert_eq!(usable.cpus.mask(host.nr_cpu_ids()).to_string(), "00,00000000,000f0000,00000000");
    // 50 goes offline: it is no longer served, and is again once it is back.
    let mut later = host;
    later.online.remove(CpuId(50));
    assert_eq!(later.usable(&set("48-55")).cpus, set("48-49,51"));
}

/// microsoft/msquic#2988: CPUs 0 and 3-5 of 0-5 are online; ids are not 0..count.
#[test]
fn msquic_2988_ids_with_gaps_are_used_as_they_are() {
    let host = CpuStates { possible: set("0-5"), online: set("0,3-5"), isolated: CpuSet::EMPTY };
    let workers: Vec<u16> = host.serving().iter().map(|cpu| cpu.0).collect();
    assert_eq!(workers, [0, 3, 4, 5]);
    assert_eq!(host.nr_cpu_ids(), 6);
    let refusal = |id| host.refusal(CpuId(id)).map(|r| r.to_string());
    assert_eq!(refusal(1).as_deref(), Some("CPU 1 is offline"));
    assert_eq!(refusal(6).as_deref(), Some("CPU 6 does not exist (possible 0-5)"));
    assert_eq!(refusal(3), None);
}

/// iovisor/bcc#2462: an id was compared with the count of CPUs, wrong for 0-1,4-5.
#[test]
fn msquic_2988_the_nth_cpu_is_not_the_cpu_n() {
    let cpus = set("0-1,4-5");
    let picked: Vec<_> = (0..5).map(|n| cpus.nth(n).map(|cpu| cpu.0)).collect();
    assert_eq!(picked, [Some(0), Some(1), Some(4), Some(5), None]);
    assert!(cpus.contains(CpuId(4)) && cpus.count() == 4);
}
