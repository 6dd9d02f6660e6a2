use super::*;
use crate::capture::LinkType;
use crate::generate::{Scenario, sample};

fn replay(scenario: Scenario, host: Host, options: ReplayOptions) -> Report {
    let mut replay = Replay::new(host, options).unwrap();
    let mut frames = scenario.frames();
    while let Some(frame) = frames.next_frame() {
        replay.packet(&Packet {
            orig_len: frame.orig_len,
            ..Packet::new(frame.time_ns, LinkType::ETHERNET, &frame.bytes)
        });
    }
    replay.finish(&["sample".into()], Vec::new())
}

fn sample_report(options: ReplayOptions) -> Report {
    replay(sample(), Host::simple(8, 2).unwrap(), options)
}

fn check(report: &Report) {
    let input = &report.input;
    assert_eq!(input.packets_read, input.received + input.sent + input.skipped.total());
    assert_eq!(input.received, input.classes.total());
    let consumers = &report.consumers;
    assert_eq!(
        input.received,
        consumers.to_connected + consumers.to_unconnected + consumers.to_nobody
    );
    for policy in &report.policies {
        assert_eq!(policy.received, input.received, "{}", policy.policy);
        assert!(policy.adds_up(), "{policy:#?}");
        assert_eq!(policy.probes.total(), policy.reasons.total(), "{}", policy.policy);
        let points = policy.series.points.iter();
        assert_eq!(points.map(|p| p.packets).sum::<u64>(), input.received, "{}", policy.policy);
        let processed: u64 = policy.cpus.iter().map(|c| c.processed).sum();
        let d = &policy.distances;
        assert_eq!(processed, d.same_cpu + d.same_cache + d.elsewhere + d.no_consumer);
        assert_eq!(policy.cpus.iter().map(|c| c.read).sum::<u64>(), policy.read);
        assert_eq!(policy.cpus.iter().map(|c| c.hits).sum::<u64>(), policy.probes.hit);
        assert_eq!(policy.cpus.iter().map(|c| c.misses).sum::<u64>(), policy.probes.misses());
    }
}

#[test]
fn the_books_of_the_sample_balance_under_every_policy() {
    let report = sample_report(ReplayOptions::default());
    check(&report);
    assert!(report.input.received > 1000);
    assert!(report.consumers.tcp_connections > 400);
}

#[test]
fn every_decision_is_told_once_and_their_sums_are_those_of_the_report() {
    use std::collections::BTreeMap;
    use std::sync::Mutex;
    type Told = BTreeMap<PolicyKind, Vec<Chosen>>;
    for threads in [0, 2] {
        let told: Arc<Mutex<Told>> = Arc::default();
        let into = Arc::clone(&told);
        let observer = Observer::new(move |policy, chosen| {
            into.lock().unwrap().entry(policy).or_default().extend_from_slice(chosen);
        });
        let options = ReplayOptions {
            threads,
            sweep_table_entries: vec![64],
            observer: Some(observer),
            ..ReplayOptions::default()
        };
        let report = sample_report(options);
        let told = told.lock().unwrap();
        assert_eq!(told.len(), PolicyKind::ALL.len());
        for policy in &report.policies {
            let chosen = &told[&policy.policy.parse().unwrap()];
            let mut by = crate::report::ByReason::default();
            let mut to = BTreeMap::<u16, u64>::new();
            for one in chosen {
                by.of(one.reason).other += u64::from(!one.again);
                *to.entry(one.cpu.0).or_default() += 1;
            }
            let reasons = policy.reasons;
            assert_eq!(by.total(), reasons.total(), "{}", policy.policy);
            for reason in rxsteer_core::steer::Reason::ALL {
                let (mut said, mut summed) = (reasons, by);
                let (said, summed) = (said.of(reason).total(), summed.of(reason).total());
                assert_eq!(said, summed, "{} {reason:?}", policy.policy);
            }
            // No packet is lost on the way in the sample, so each was processed where it was sent.
            for cpu in &policy.cpus {
                let to = to.get(&cpu.cpu).copied().unwrap_or(0);
                assert_eq!(cpu.processed, to, "{} {}", policy.policy, cpu.cpu);
            }
            let numbers: std::collections::BTreeSet<u64> =
                chosen.iter().map(|one| one.number).collect();
            assert_eq!(numbers.len(), chosen.len(), "{}", policy.policy);
        }
    }
}

#[test]
fn the_same_input_gives_the_same_bytes_with_any_number_of_threads() {
    let json = |threads| {
        let sweep_table_entries = vec![64, 1024];
        let options = ReplayOptions { threads, sweep_table_entries, ..ReplayOptions::default() };
        serde_json::to_string(&sample_report(options)).unwrap()
    };
    let first = json(0);
    assert_eq!(first, json(0));
    assert_eq!(first, json(1));
    assert_eq!(first, json(3));
}
