use super::*;

fn cpus(list: &str) -> CpuSet {
    CpuSet::from_list(list).unwrap()
}

#[test]
fn a_queue_without_a_mask_gets_the_cpus_of_its_irq_cpus_cache() {
    let host = Host::from_toml(
        "h",
        "cpus = 8\ncaches = [\"0-3\", \"4-7\"]\nisolated = \"7\"\nqueues = 2\n",
    )
    .unwrap();
    assert_eq!(host.queues[0].rps, cpus("0-3"));
    assert_eq!(host.queues[1].irq_cpu, CpuId(3)); // 7 of 8 serve: half of them are 0-2
    let host = Host::from_toml(
        "h",
        "cpus = 8\ncaches = [\"0-3\", \"4-7\"]\nisolated = \"7\"\n[[queue]]\nirq_cpu = 5\n",
    )
    .unwrap();
    assert_eq!(host.queues[0].rps, cpus("4-6"));
    assert!(host.queues[0].left_out.is_none());
}

#[test]
fn the_words_of_a_mask_mean_what_they_say() {
    let mut host = Host::simple(8, 1).unwrap();
    host.cpus.isolated = cpus("1-3");
    for (word, expected) in [("none", ""), ("all", "0,4-7"), ("housekeeping", "0,4-7"), ("6", "6")]
    {
        host.set_masks(&word.parse().unwrap()).unwrap();
        assert_eq!(host.queues[0].rps.list().to_string(), expected, "{word}");
    }
}

#[test]
fn isolated_and_missing_cpus_are_left_out_and_named() {
    let mut host = Host::simple(8, 1).unwrap();
    host.cpus.isolated = cpus("1-3");
    host.set_masks(&Mask::Set(Box::new(cpus("1,4,9")))).unwrap();
    assert_eq!(host.queues[0].rps, cpus("4"));
    let left_out = host.queues[0].left_out.unwrap().to_string();
    assert_eq!(left_out, "9 does not exist (possible 0-7), 1 is isolated");
    let error = host.set_masks(&Mask::Set(Box::new(cpus("1-3")))).unwrap_err();
    assert!(error.to_string().contains("no usable CPU left: 1-3 are isolated"), "{error}");
}

#[test]
fn an_empty_mask_is_taken_and_means_none() {
    let host = Host::from_toml("h", "cpus = 4\n[[queue]]\ncpu_mask = \"0\"\n").unwrap();
    assert_eq!((&host.queues[0].wanted, host.queues[0].rps), (&Mask::None, CpuSet::EMPTY));
}

#[test]
fn sizes_are_rounded_and_refused_as_the_kernel_does() {
    for (written, kept) in [(0, 0), (1, 1), (3, 4), (32_768, 32_768), (1 << 29, 1 << 29)] {
        assert_eq!(rps_sock_flow_entries(written), Ok(kept));
    }
    assert!(rps_sock_flow_entries((1 << 29) + 1).is_err());
    assert!(rps_sock_flow_entries(u64::MAX).is_err());
    for (written, kept) in [(0, 0), (1, 1), (2, 2), (3, 4), (1000, 1024), (1 << 27, 1 << 27)] {
        assert_eq!(rps_flow_cnt(written), Ok(kept));
    }
    assert!(rps_flow_cnt((1 << 27) + 1).is_err());
    assert!(rps_flow_cnt(1 << 32).is_err());
}

/// fastos/fastsocket#48: 32,768 entries over 6 queues are 5,461 each, which act as 8,192.
#[test]
fn each_queue_gets_its_share_of_the_entries_rounded_up() {
    let sizes = TableSizes::for_entries(32_768).unwrap();
    assert_eq!(sizes.flow_cnt_per_queue(6), 8192);
    assert_eq!(sizes.flow_cnt_per_queue(8), 4096);
    assert_eq!(TableSizes::for_entries(0).unwrap().flow_cnt_per_queue(6), 0);
    let host = Host::from_toml("h", "queues = 2\n[tables]\nrps_flow_cnt = 3000\n").unwrap();
    assert_eq!(host.queues[1].flow_cnt, 4096);
    assert_eq!(host.rounded, [Rounded { name: "rps_flow_cnt".into(), asked: 3000, kept: 4096 }]);
}

/// microsoft/msquic#2988: CPU ids with gaps.
#[test]
fn cpu_ids_may_have_gaps() {
    let host = Host::from_toml("h", "cpus = \"0-5\"\nonline = \"0,3-5\"\nqueues = 4\n").unwrap();
    let irqs: Vec<u16> = host.queues.iter().map(|q| q.irq_cpu.0).collect();
    assert_eq!(irqs, [0, 3, 4, 5]);
    assert_eq!(host.queues[0].rps, cpus("0,3-5"));
    assert_eq!(host.cache_numbers().len(), 6);
}

#[test]
fn a_refused_file_names_line_key_and_what_is_allowed() {
    let cases = [
        ("cpus = 0\n", "h:1:8: cpus: 0 CPUs: allowed are 1 to 4096"),
        (
            "cpus = \"16\"\n",
            "h:1:8: cpus: the text \"16\" could be how many or which CPU: write 16, without quotes, for 16 \
             CPUs, \"16-16\" for CPU 16 alone",
        ),
        ("cpus = 4\nonline = \"2-9\"\n", "h:2:10: online: 4-9 are not among"),
        ("cpus = 4\nisolated = \"0-3\"\n", "h:2:12: isolated: no CPU is left"),
        ("cpus = 4\ncaches = [\"0-1\", \"1-2\"]\n", "1 are in an earlier group"),
        ("queues = 0\n", "h:1:10: queues: 0 queues: allowed are 1 to 1024"),
        ("queues = 3\n[[queue]]\n", "1 [[queue]] tables follow"),
        ("cpus = 2\n[[queue]]\nirq_cpu = 2\n", "h:3:11: queue.irq_cpu: CPU 2 does not exist"),
        ("cpus = 2\n[[queue]]\ncpus = \"2-1\"\n", "allowed are none, local, all"),
        ("cpus = 2\n[[queue]]\ncpu_mask = \"fg\"\n", "h:3:12: queue.cpu_mask: "),
        ("[tables]\nrps_sock_flow_entries = 536870913\n", "the kernel refuses more than 536870912"),
        ("[tables]\nrps_entries = 1\n", "h:2:1: tables.rps_entries: unknown field"),
        ("[limits]\nring = 0\n", "h:2:8: limits.ring: allowed are 1 to"),
        ("[costs]\ntake = -1\n", "h:2:8: costs.take: "),
        ("[costs]\ntake = 2000000000\n", "allowed are 0 to 1000000000"),
        ("[rss]\nspreading = \"xor\"\n", "allowed are toeplitz, recorded"),
        ("[rss]\nkey = \"6d:5a\"\n", "the key has 2 bytes"),
        ("[rss]\ntable = [0, 1]\n", "names queue 1, but the host has 1"),
    ];
    for (text, expected) in cases {
        let error = Host::from_toml("h", text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn numbers_that_are_no_host_are_refused() {
    assert_eq!(Host::simple(0, 1).unwrap_err(), HostError::CpuCount(0));
    assert_eq!(Host::simple(4097, 1).unwrap_err(), HostError::CpuCount(4097));
    assert_eq!(Host::simple(1, 0).unwrap_err(), HostError::QueueCount(0));
    assert!(Host::simple(4096, 1024).is_ok());
}

#[test]
fn who_runs_when_is_said_in_the_file_and_nonsense_is_refused_with_its_place() {
    let text = "[engine]\nmode = \"threaded\"\nread_batch = 64\nrx_usecs = 20\nrx_frames = 32\n\
                flow_limit_table_len = 4096\nnetdev_budget_usecs = 8000\nslice_us = 750\n\
                govern = true\n[limits]\nnetdev_budget = 600\nring = 7\n";
    let settings = Host::from_toml("h", text).unwrap().settings();
    assert_eq!((settings.mode, settings.read_batch), (Mode::Threaded, 64));
    assert_eq!((settings.interrupt_delay_ns, settings.interrupt_packets), (20_000, 32));
    assert_eq!((settings.limits.budget_ns, settings.slice_ns), (8_000_000, 750_000));
    assert_eq!((settings.limits.budget, settings.limits.ring), (600, 7));
    assert_eq!(settings.flow_limit_buckets, 4096);
    assert!(settings.govern.is_some());
    for (line, part) in [
        ("mode = \"fast\"", "allowed are inline, ksoftirqd, threaded"),
        ("read_batch = 0", "allowed are 1 to 65536"),
        ("flow_limit_table_len = 100", "powers of two"),
        ("slice_us = 0", "allowed are 1 to 1000000"),
        ("colour = 1", "unknown field"),
    ] {
        let error = Host::from_toml("h", &format!("[engine]\n{line}\n")).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("h:2"), "{error}");
    }
}
