//! Problems that people reported in public, as replays. Each test is named for its thread.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod replay_common;

use std::net::{Ipv4Addr, Ipv6Addr};

use replay_common::*;
use rxsteer_core::dissect::Mode;
use rxsteer_core::steer::PolicyKind::{self, FlowAware, None as Off, Rfs, Rps};
use rxsteer_lab::consumer::Scenario as Consumers;
use rxsteer_lab::generate::{Layer, Scenario, Uniform, V4, V6, packet};
use rxsteer_lab::host::{Host, Mask};
use rxsteer_lab::replay::ReplayOptions;
use rxsteer_lab::report::{FindingCode, Report, Severity, VerdictCode};

/// 100 numbered datagrams of one flow, a microsecond apart.
fn hundred() -> Frames {
    (0..100u64)
        .map(|n| (n * 1000, udp_frame((CLIENT, 4000), (SERVER, 5000), &n.to_be_bytes())))
        .collect()
}

/// Four CPUs and a fifth that takes the packets; a packet takes 1.6 µs, so that about 20 of them
/// wait when number 50 arrives.
fn slow_host() -> Host {
    host(
        "cpus = 5\n[[queue]]\nirq_cpu = 4\ncpu_mask = \"3\"\n[costs]\ninterrupt = 0\ntake = 10\n\
         hash = 0\nchoose = 0\nprobe = 0\nbacklog = 0\nsignal_send = 0\nsignal_reach = 0\nsignal_take = 0\n\
         hop_near = 0\nprotocol_udp = 1600\nread = 10\nwork = 0\nswitch = 0\nwake_local = 0\n\
         wake_remote = 0\nread_near = 0\n",
    )
}

fn with_events(policies: &[PolicyKind], toml: &str, host: &Host) -> ReplayOptions {
    let scenario = Consumers::from_toml("events.toml", toml, host).unwrap();
    ReplayOptions { scenario, ..options(policies) }
}

const MASK_CHANGE: &str = "[[event]]\nat = \"49.5us\"\ncpus = \"2-3\"\n";

#[test]
fn tempesta_2683_a_mask_change_under_rps_reorders_and_the_packets_are_named() {
    let host = slow_host();
    let report = run(&hundred(), host.clone(), with_events(&[Rps], MASK_CHANGE, &host));
    let rps = policy(&report, "rps");
    assert!(rps.reordered > 0, "{rps:#?}");
    assert_eq!(rps.moved_packets, [51], "RPS alone moves at once");
    assert_eq!(rps.unsafe_packets, [51]);
    assert!(rps.reordered_packets.iter().all(|n| *n <= 50), "{:?}", rps.reordered_packets);
    let finding = finding(&report, FindingCode::Reordered).unwrap();
    assert!(finding.text.contains("overtaking from packet 51 on"), "{}", finding.text);
}

#[test]
fn tempesta_2683_with_drain_the_flow_moves_when_its_backlog_has_passed() {
    let host = slow_host();
    let options = ReplayOptions { drain: true, ..with_events(&[Rps], MASK_CHANGE, &host) };
    let report = run(&hundred(), host, options);
    let rps = policy(&report, "rps");
    assert_eq!((rps.reordered, rps.moves.unsafe_moves), (0, 0));
    let last_position = |held: u64| 51 + held;
    assert!(rps.moves.held > 0, "packets wait on the old CPU");
    // The held packets follow the flow into the old backlog, which at this rate never drains:
    // either the flow moved after the last held packet, or not at all.
    if let Some(moved) = rps.moved_packets.first() {
        assert_eq!(*moved, last_position(rps.moves.held));
    }
    assert!(finding(&report, FindingCode::Reordered).is_none());
}

#[test]
fn tempesta_2683_with_drain_the_move_is_named_where_the_load_lets_it_happen() {
    // The same, but with a pause after number 60 in which the old CPU gets through.
    let mut frames = hundred();
    for frame in frames.iter_mut().skip(60) {
        frame.0 += 200_000;
    }
    let host = slow_host();
    let options = ReplayOptions { drain: true, ..with_events(&[Rps], MASK_CHANGE, &host) };
    let report = run(&frames, host, options);
    let rps = policy(&report, "rps");
    assert_eq!((rps.reordered, rps.moved_packets.as_slice()), (0, &[61][..]));
    assert_eq!(rps.moves.held, 10);
}

/// A connected socket whose reader moves from CPU 0 to CPU 2 while its flow's backlog is deep.
fn reader_moves(at: &str) -> String {
    format!(
        "[[consumer]]\nprotocol = \"udp\"\nlocal = \":5000\"\nconnected = true\ncpus = \"0\"\n\
         [[consumer.migrate]]\nat = \"{at}\"\ncpus = \"2\"\n"
    )
}

#[test]
fn tempesta_2683_rfs_moves_a_flow_only_after_its_old_cpu_has_passed_it() {
    let host = slow_host();
    let mut frames = hundred();
    // The first is read and recorded before the others come.
    for frame in frames.iter_mut().skip(1) {
        frame.0 += 100_000;
    }
    for frame in frames.iter_mut().skip(80) {
        frame.0 += 300_000;
    }
    let reader = reader_moves("140us");
    for kind in [Rfs, FlowAware] {
        let report = run(&frames, host.clone(), with_events(&[kind], &reader, &host));
        let policy = policy(&report, kind.name());
        assert_eq!((policy.reordered, policy.moves.unsafe_moves), (0, 0), "{kind}");
        let last = policy.moved_packets.last().copied();
        assert!(last.is_some_and(|n| n >= 81), "{kind}: {:?}", policy.moved_packets);
    }
}

/// Packet work keeps the reader on CPU 0 from recording its flow until it has moved: RFS takes the
/// flow for one that was never anywhere and moves it at once, past what waits where its hash had
/// sent it.
#[test]
fn tempesta_2683_a_flow_that_its_starved_reader_never_recorded_is_reordered_by_rfs_only() {
    let host = slow_host();
    for (kind, in_order) in [(Rfs, false), (FlowAware, true)] {
        let options = with_events(&[kind], &reader_moves("40us"), &host);
        let report = run(&hundred(), host.clone(), options);
        let policy = policy(&report, kind.name());
        assert_eq!(policy.reordered == 0, in_order, "{kind}: {}", policy.reordered);
        assert_eq!(policy.moves.unsafe_moves == 0, in_order, "{kind}");
    }
}

/// 1000 flows at a rate that needs several CPUs.
fn thousand_flows() -> Scenario {
    thousand_flows_every(500)
}

fn thousand_flows_every(gap_ns: u64) -> Scenario {
    let mut scenario = Scenario::new(11);
    scenario.add(Uniform { flows: 1000, packets_per_flow: 40, gap_ns, ..Uniform::default() });
    scenario
}

/// A port that eight threads read, so that no single reader is the limit.
fn eight_readers(policies: &[PolicyKind]) -> ReplayOptions {
    ReplayOptions { workers: 8, ..options(policies) }
}

#[test]
fn redpanda_27680_rps_on_top_of_one_queue_per_cpu_only_adds_hops() {
    let mut host = Host::simple(8, 8).unwrap();
    host.set_masks(&Mask::All).unwrap();
    let report = run_scenario(thousand_flows(), host, options(&[Off, Rps]));
    assert_eq!(policy(&report, "none").handoffs_per_packet, 0.0);
    let handoffs = policy(&report, "rps").handoffs_per_packet;
    assert!((handoffs - 0.875).abs() < 0.03, "{handoffs}");
    assert_eq!(report.verdict.code, VerdictCode::LeaveItOff, "{:#?}", report.verdict);
    assert!(report.verdict.summary.contains("RPS is not advised"), "{}", report.verdict.summary);
    assert!(report.verdict.summary.contains("RSS already reaches all 8 CPUs"));
    assert_eq!(setting(&report, "rps_cpus"), ["00"; 8]);
}

#[test]
fn redpanda_27680_with_two_queues_each_gets_the_four_cpus_nearest_to_its_irq_cpu() {
    // More than the two CPUs that are interrupted can process.
    let host = host("cpus = 8\nqueues = 2\n[costs]\nwork = 100\n");
    let report = run_scenario(thousand_flows_every(250), host, eight_readers(&[Off, Rps]));
    assert_eq!(report.verdict.code, VerdictCode::UseRps, "{:#?}", report.verdict);
    assert_eq!(setting(&report, "rx-0/rps_cpus"), ["0f"]);
    assert_eq!(setting(&report, "rx-1/rps_cpus"), ["f0"]);
}

#[test]
fn openwrt_24774_one_queue_steered_to_its_own_irq_cpu() {
    let host = host("cpus = 4\n[[queue]]\nirq_cpu = 0\ncpu_mask = \"1\"\n");
    let report = run_scenario(thousand_flows(), host, options(&[Off, Rps]));
    let same = finding(&report, FindingCode::IrqCpuIsRpsCpu).unwrap();
    assert_eq!(same.severity, Severity::Problem);
    let all = finding(&report, FindingCode::OneCpuTakesAll).unwrap();
    assert!(all.text.contains("1 of 4 CPUs takes 100 %"), "{}", all.text);
    assert_eq!(evidence(all, "share"), 1.0);
    assert_eq!(used_cpus(policy(&report, "rps")), 1);

    // With a mask of all, RPS is what helps, and both masks are explained.
    let mut host = Host::simple(4, 1).unwrap();
    host.set_masks(&Mask::Local).unwrap();
    let report = run_scenario(thousand_flows(), host, eight_readers(&[Off, Rps]));
    let verdict = &report.verdict;
    assert_eq!(verdict.code, VerdictCode::UseRps, "{verdict:#?}");
    let mask = setting(&report, "rps_cpus");
    assert!(mask == ["e"] || mask == ["f"], "{mask:?}");
    let explained = verdict.unless.iter().find(|text| text.contains("keeps IRQ CPU 0"));
    let explained = explained.unwrap_or_else(|| panic!("{verdict:#?}"));
    assert!(explained.contains("rps_cpus e ") && explained.contains("f uses it"), "{explained}");
    assert!(verdict.settings[0].line.starts_with("echo "));
}

#[test]
fn openwrt_24774_on_one_cpu_there_is_no_effect() {
    let report = run(&hundred(), Host::simple(1, 1).unwrap(), options(&[Off, Rps]));
    assert_eq!(report.verdict.code, VerdictCode::LeaveItOff);
    assert!(finding(&report, FindingCode::OneCpu).unwrap().text.contains("no effect"));
}

#[test]
fn coreos_2135_all_interrupts_on_one_of_many_cpus() {
    let queues = "[[queue]]\nirq_cpu = 0\n".repeat(8);
    let host = host(&format!("cpus = 46\n{queues}"));
    let report = run_scenario(thousand_flows(), host, options(&[Off, Rps]));
    let irqs = finding(&report, FindingCode::AllIrqsOnOneCpu).unwrap();
    assert!(irqs.text.contains("All 8 queues interrupt CPU 0"), "{}", irqs.text);
    assert_eq!(report.verdict.code, VerdictCode::FixFirst);
    assert!(report.verdict.summary.contains("smp_affinity"), "IRQ placement comes before RPS");
    assert!(report.verdict.unless.iter().any(|t| t.contains("cannot be moved")));
    let order: Vec<FindingCode> = report.findings.iter().map(|f| f.code).collect();
    let place = |code| order.iter().position(|c| *c == code).unwrap();
    assert!(place(FindingCode::OneCpuTakesAll) < order.len());
    assert_eq!(report.findings[0].severity, Severity::Problem);
}

#[test]
fn fastsocket_48_rps_on_and_both_rfs_tables_at_zero() {
    let off = |toml: &str| {
        let host = host(&format!("cpus = 6\nqueues = 6\n[tables]\n{toml}"));
        let report = run(&hundred(), host, options(&[Rps, Rfs]));
        let rfs = policy(&report, "rfs").clone();
        (finding(&report, FindingCode::RfsOff).cloned(), rfs)
    };
    for (toml, reason) in [
        ("rps_sock_flow_entries = 0\n", "rps_sock_flow_entries is 0"),
        ("rps_sock_flow_entries = 0\nrps_flow_cnt = 4096\n", "rps_sock_flow_entries is 0"),
        ("rps_sock_flow_entries = 32768\nrps_flow_cnt = 0\n", "rx-0, rx-1, rx-2, rx-3, rx-4, rx-5"),
    ] {
        let (finding, rfs) = off(toml);
        assert!(finding.as_ref().unwrap().text.contains(reason), "{finding:?}");
        assert_eq!(rfs.reasons.hit.total(), 0);
    }
    assert!(off("rps_sock_flow_entries = 32768\nrps_flow_cnt = 4096\n").0.is_none());
    let host = host("cpus = 6\nqueues = 6\n[tables]\nrps_flow_cnt = 3000\n");
    let report = run(&hundred(), host, options(&[Rfs]));
    let rounded = finding(&report, FindingCode::SizeRounded).unwrap();
    assert!(rounded.text.contains("3000 will act as 4096"), "{}", rounded.text);
}

#[test]
fn cluster_node_tuning_518_a_flow_leaves_a_cpu_that_goes_offline_and_none_is_lost() {
    let host = host("cpus = 56\n[[queue]]\nirq_cpu = 0\ncpus = \"50-51\"\n");
    let events = "[[consumer]]\nlocal = \":5000\"\nconnected = true\ncpus = \"50\"\n\
                  [[event]]\nat = \"30us\"\noffline = 50\n[[event]]\nat = \"60us\"\nonline = 50\n";
    for kind in [Rps, Rfs, FlowAware] {
        let report = run(&hundred(), host.clone(), with_events(&[kind], events, &host));
        let p = policy(&report, kind.name());
        assert_eq!((p.drops.total(), p.read), (0, 100), "{kind}");
    }
}

fn fragmented(first: u64, id: u16) -> Frames {
    let datagram = |offset: u16, more: bool, payload: &[u8], with_udp: bool| {
        let v4 = V4 {
            id,
            fragment: Some((offset, more)),
            protocol: Some(17),
            ..V4::new(CLIENT, SERVER)
        };
        let mut layers = vec![Layer::Ethernet { back: false }, Layer::V4(v4)];
        if with_udp {
            layers.push(udp(4000, 5000));
        }
        packet(&layers, payload)
    };
    vec![
        (first, datagram(0, true, &[1; 1472], true)),
        (first + 1000, datagram(1480, true, &[2; 1480], false)),
        (first + 2000, datagram(2960, false, &[3; 48], false)),
    ]
}

fn with_small_ones() -> Frames {
    let small = |at| (at, udp_frame((CLIENT, 4000), (SERVER, 5000), b"small"));
    let mut frames = vec![small(0), small(10_000), small(20_000)];
    frames.extend(fragmented(30_000, 0x1234));
    frames.extend([small(40_000), small(50_000), small(60_000)]);
    frames
}

#[test]
fn f_stack_433_all_fragments_of_a_datagram_go_to_one_cpu_and_the_split_is_counted() {
    let report = run(&with_small_ones(), Host::simple(8, 1).unwrap(), options(&[Rps]));
    assert_eq!(report.input.fragments, 3);
    let split = finding(&report, FindingCode::SplitFlow).unwrap();
    assert!(split.text.contains("split flow: 1"), "{}", split.text);
    assert_eq!(evidence(split, "split_flows"), 1.0);
    assert!(used_cpus(policy(&report, "rps")) <= 2);
}

#[test]
fn f_stack_433_tracked_fragments_follow_the_ports_of_the_first() {
    let options = ReplayOptions { track_fragments: true, ..options(&[Rps]) };
    let report = run(&with_small_ones(), Host::simple(8, 1).unwrap(), options.clone());
    assert_eq!(used_cpus(policy(&report, "rps")), 1);
    assert!(finding(&report, FindingCode::SplitFlow).is_none());
    assert_eq!(report.input.fragments_without_first, 0);

    // The first fragment comes last: the two before it are hashed on addresses, and counted.
    let mut frames = fragmented(0, 7);
    frames.reverse();
    let frames = frames.into_iter().enumerate().map(|(n, (_, f))| (n as u64, f)).collect();
    let report = run(&frames, Host::simple(8, 1).unwrap(), options);
    assert_eq!(report.input.fragments_without_first, 2);
}

fn esp(packets: u32, spis: u32) -> Frames {
    (0..packets)
        .map(|n| {
            let layers = [
                Layer::Ethernet { back: false },
                v4(CLIENT, SERVER),
                Layer::Esp { spi: 0x100 + n % spis, seq: n },
            ];
            (u64::from(n) * 300, packet(&layers, &[0x5a; 1200]))
        })
        .collect()
}

#[test]
fn cilium_35661_one_spi_is_one_flow_that_cannot_be_split() {
    let report = run(&esp(1000, 1), Host::simple(4, 1).unwrap(), options(&[Off, Rps, FlowAware]));
    assert_eq!(used_cpus(policy(&report, "rps")), 1);
    let one = finding(&report, FindingCode::Unsplittable).unwrap();
    assert!(
        one.text.contains("1 flow carries 100 %, cannot be split without reordering"),
        "{}",
        one.text
    );
    assert!(one.text.contains("encrypted"), "{}", one.text);
    assert_eq!(report.verdict.code, VerdictCode::FixFirst);

    let report = run(&esp(1000, 4), Host::simple(4, 1).unwrap(), options(&[Rps]));
    let used = used_cpus(policy(&report, "rps"));
    assert!((2..=4).contains(&used), "{used}");
    assert!(finding(&report, FindingCode::Unsplittable).is_none());
}

#[test]
fn cilium_35661_spreading_one_spi_in_turn_reports_the_reordering_that_it_causes() {
    let options = ReplayOptions { spread_esp: true, ..options(&[Rps]) };
    let report = run(&esp(1000, 1), Host::simple(4, 1).unwrap(), options);
    let rps = policy(&report, "rps");
    assert_eq!(used_cpus(rps), 4);
    assert!(rps.reordered > 0, "{}", rps.reordered);
    assert!(rps.max_over_mean < 1.05, "{}", rps.max_over_mean);
}

fn labelled(flows: u16, label: impl Fn(u16, u64) -> u32, packets: u64) -> Frames {
    let (a, b) = (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), "2001:db8::2".parse().unwrap());
    let mut frames = Frames::new();
    for n in 0..packets {
        for flow in 0..flows {
            let v6 = V6 { flow_label: label(flow, n), ..V6::new(a, b) };
            let layers = [Layer::Ethernet { back: false }, Layer::V6(v6), udp(40_000 + flow, 5000)];
            frames.push((frames.len() as u64 * 1000, packet(&layers, b"0123456789")));
        }
    }
    frames
}

#[test]
fn cilium_21961_one_label_for_all_flows_hides_their_ports() {
    let frames = labelled(64, |_, _| 0xabcde, 4);
    let report = run(&frames, Host::simple(4, 1).unwrap(), options(&[Rps]));
    assert_eq!(used_cpus(policy(&report, "rps")), 1);
    let hidden = finding(&report, FindingCode::LabelHidesPorts).unwrap();
    assert!(hidden.text.contains("label hides ports"), "{}", hidden.text);
    assert_eq!((evidence(hidden, "flows"), evidence(hidden, "hashes")), (64.0, 1.0));

    let ignore = ReplayOptions { ignore_flow_label: true, ..options(&[Rps]) };
    let report = run(&frames, Host::simple(4, 1).unwrap(), ignore);
    assert_eq!(used_cpus(policy(&report, "rps")), 4);
    assert!(policy(&report, "rps").max_over_mean < 1.6);
    assert!(finding(&report, FindingCode::LabelHidesPorts).is_none());
}

#[test]
fn cilium_21961_a_label_that_changes_moves_the_flow() {
    let frames = labelled(1, |_, n| if n < 5 { 0x11111 } else { 0x22222 }, 10);
    let report = run(&frames, Host::simple(4, 1).unwrap(), options(&[Rps]));
    let moved = finding(&report, FindingCode::FlowMoved).unwrap();
    assert!(moved.text.contains("1 flow moved, 1 reorder risk"), "{}", moved.text);
    let ignore = ReplayOptions { ignore_flow_label: true, ..options(&[Rps]) };
    let report = run(&frames, Host::simple(4, 1).unwrap(), ignore);
    assert!(finding(&report, FindingCode::FlowMoved).is_none());
    assert_eq!(policy(&report, "rps").moves.moved, 0);
}

/// 64 inner flows of four packets each, behind the layers that `outer` returns.
fn inside(outer: impl Fn(u16) -> Vec<Layer>) -> Frames {
    let mut frames = Frames::new();
    for n in 0..256u16 {
        let flow = n % 64;
        let inner = (Ipv4Addr::new(203, 0, 113, flow as u8 + 1), Ipv4Addr::new(203, 0, 113, 200));
        let mut layers = outer(flow);
        layers.extend([v4(inner.0, inner.1), udp(40_000 + flow, 443)]);
        frames.push((u64::from(n) * 1000, packet(&layers, b"inner payload")));
    }
    frames
}

#[test]
fn contrail_vrouter_100_inner_flows_of_gre_are_spread_and_the_outer_is_one() {
    let gre = |key| {
        move |_| vec![Layer::Ethernet { back: false }, v4(CLIENT, SERVER), Layer::Gre { key }]
    };
    let ip_in_ip = |_| vec![Layer::Ethernet { back: false }, v4(CLIENT, SERVER)];
    for frames in [inside(gre(None)), inside(gre(Some(7))), inside(ip_in_ip)] {
        let report = run(&frames, Host::simple(4, 1).unwrap(), options(&[Rps]));
        let rps = policy(&report, "rps");
        assert!(rps.max_over_mean < 1.6, "{}", rps.max_over_mean);
        assert_eq!(used_cpus(rps), 4);
        let outer = ReplayOptions { outer_only: true, ..options(&[Rps]) };
        let report = run(&frames, Host::simple(4, 1).unwrap(), outer);
        assert_eq!(used_cpus(policy(&report, "rps")), 1);
    }
}

#[test]
fn vxlan_is_spread_by_its_source_port_and_in_inner_mode_by_the_inner_flow() {
    let vxlan = |entropy: bool| {
        move |flow| {
            let src = if entropy { 50_000 + flow } else { 50_000 };
            let outer = [v4(CLIENT, SERVER), udp(src, 4789), Layer::Vxlan { vni: 42 }];
            let ethernet = Layer::Ethernet { back: false };
            let mut layers = vec![ethernet];
            layers.extend(outer);
            layers.push(ethernet);
            layers
        }
    };
    let used = |entropy, mode| {
        let options = ReplayOptions { mode, ..options(&[Rps]) };
        let report = run(&inside(vxlan(entropy)), Host::simple(4, 1).unwrap(), options);
        used_cpus(policy(&report, "rps"))
    };
    assert_eq!(used(true, Mode::Kernel), 4);
    assert_eq!(used(false, Mode::Kernel), 1);
    assert_eq!(used(false, Mode::Inner), 4);
}

#[test]
fn libreqos_790_subscribers_in_pppoe_use_all_cpus() {
    for tags in 0..3u16 {
        let frames = inside(|_| {
            let mut layers = vec![Layer::Ethernet { back: false }];
            layers.extend((0..tags).map(|n| Layer::Vlan { tpid: 0x8100, vid: 10 + n }));
            layers.push(Layer::Pppoe { session: 5 });
            layers
        });
        let report = run(&frames, Host::simple(4, 1).unwrap(), options(&[Rps]));
        let rps = policy(&report, "rps");
        assert_eq!(used_cpus(rps), 4, "{tags} tags");
        assert!(rps.max_over_mean < 1.6, "{tags} tags: {}", rps.max_over_mean);
    }
}

#[test]
fn calico_9223_peers_of_wireguard_behind_one_address_are_split_by_receiver_index() {
    let frames: Frames = (0..256u64)
        .map(|n| {
            let layers = [
                Layer::Ethernet { back: false },
                v4(CLIENT, SERVER),
                udp(51_820, 51_820),
                Layer::WireGuard { receiver: 1 + n as u32 % 64, counter: n },
            ];
            (n * 1000, packet(&layers, &[0x5a; 64]))
        })
        .collect();
    let report = run(&frames, Host::simple(4, 1).unwrap(), options(&[Rps]));
    assert_eq!(used_cpus(policy(&report, "rps")), 1);
    let split = ReplayOptions { mode: Mode::Inner, wireguard_index: true, ..options(&[Rps]) };
    let report = run(&frames, Host::simple(4, 1).unwrap(), split);
    assert_eq!(used_cpus(policy(&report, "rps")), 4);
}

fn queries(count: u32, source: impl Fn(u32) -> (Ipv4Addr, u16)) -> Frames {
    let query = |n| udp_frame(source(n), (SERVER, 53), b"a query of some bytes");
    (0..count).map(|n| (u64::from(n) * 2000, query(n))).collect()
}

fn eight_workers(frames: &Frames) -> Report {
    let options = ReplayOptions { workers: 8, ..options(&[Off, Rps]) };
    run(frames, Host::simple(8, 1).unwrap(), options)
}

#[test]
fn pdns_13399_all_queries_of_one_forwarder_reach_one_worker() {
    let report = eight_workers(&queries(1000, |_| (CLIENT, 5353)));
    let largest = &report.consumers.workers[0];
    assert_eq!((largest.port, largest.by_hash, largest.share), (53, 1000, 1.0));
    let even = |share: f64| (share - 0.125).abs() < 0.03;
    assert!(report.consumers.workers.iter().all(|w| even(w.round_robin) && even(w.random)));
    let one = finding(&report, FindingCode::OneSourceTuple).unwrap();
    assert!(one.text.contains("1 source tuple: hash cannot spread"), "{}", one.text);
    assert_eq!(evidence(one, "largest_share"), 1.0);
    assert_eq!(report.verdict.code, VerdictCode::FixFirst);
    assert!(report.verdict.summary.contains("1 source tuple"));
}

#[test]
fn pdns_13399_a_thousand_clients_are_spread() {
    let clients = |n: u32| {
        (
            Ipv4Addr::new(198, 51, (n / 250) as u8, (n % 250 + 1) as u8),
            1024 + (n * 7 % 60_000) as u16,
        )
    };
    let report = eight_workers(&queries(1000, clients));
    assert_eq!(report.consumers.workers.len(), 8);
    assert!(report.consumers.workers[0].share < 0.2, "{:?}", report.consumers.workers[0]);
    assert!(finding(&report, FindingCode::OneSourceTuple).is_none());
    let total: u64 = report.consumers.workers.iter().map(|w| w.by_hash).sum();
    assert_eq!(total, 1000);
}

#[test]
fn pdns_13399_four_ports_of_one_address_reach_at_most_four_workers() {
    let report = eight_workers(&queries(1000, |n| (CLIENT, 5000 + (n % 4) as u16)));
    let used = report.consumers.workers.iter().filter(|w| w.by_hash > 0).count();
    assert!((1..=4).contains(&used), "{used}");
}
