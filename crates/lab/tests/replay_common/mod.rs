//! Runs generated packets through a replay.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rxsteer_core::steer::PolicyKind;
use rxsteer_lab::capture::{LinkType, Packet};
use rxsteer_lab::generate::{Layer, Scenario, V4, packet};
use rxsteer_lab::host::Host;
use rxsteer_lab::replay::{Replay, ReplayOptions};
use rxsteer_lab::report::{Finding, FindingCode, PolicyReport, Report};

pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

/// Frames with their times in ns.
pub(crate) type Frames = Vec<(u64, Vec<u8>)>;

pub(crate) fn run(frames: &Frames, host: Host, options: ReplayOptions) -> Report {
    let mut replay = Replay::new(host, options).unwrap();
    for (ts_ns, bytes) in frames {
        replay.packet(&captured(*ts_ns, bytes, bytes.len() as u32));
    }
    checked(replay.finish(&[], Vec::new()))
}

pub(crate) fn run_scenario(scenario: Scenario, host: Host, options: ReplayOptions) -> Report {
    let mut replay = Replay::new(host, options).unwrap();
    let mut frames = scenario.frames();
    while let Some(frame) = frames.next_frame() {
        replay.packet(&captured(frame.time_ns, &frame.bytes, frame.orig_len));
    }
    checked(replay.finish(&[], Vec::new()))
}

fn captured(ts_ns: u64, data: &[u8], orig_len: u32) -> Packet<'_> {
    Packet { orig_len, ..Packet::new(ts_ns, LinkType::ETHERNET, data) }
}

/// Checks what must hold of every report.
pub(crate) fn checked(report: Report) -> Report {
    let input = &report.input;
    assert_eq!(input.packets_read, input.received + input.sent + input.skipped.total());
    assert_eq!(input.received, input.classes.total());
    for policy in &report.policies {
        assert_eq!(policy.received, input.received, "{}", policy.policy);
        assert!(policy.adds_up(), "{policy:#?}");
        assert_eq!(policy.probes.total(), policy.reasons.total(), "{}", policy.policy);
        let points = || policy.series.points.iter();
        assert_eq!(points().map(|p| p.packets).sum::<u64>(), input.received, "{}", policy.policy);
        assert_eq!(points().map(|p| p.dropped).sum::<u64>(), policy.drops.total());
    }
    report
}

pub(crate) fn options(policies: &[PolicyKind]) -> ReplayOptions {
    ReplayOptions { policies: policies.to_vec(), ..ReplayOptions::default() }
}

pub(crate) fn host(toml: &str) -> Host {
    Host::from_toml("host.toml", toml).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn policy<'a>(report: &'a Report, name: &str) -> &'a PolicyReport {
    report.policies.iter().find(|p| p.policy == name).unwrap_or_else(|| panic!("no {name}"))
}

pub(crate) fn finding(report: &Report, code: FindingCode) -> Option<&Finding> {
    report.findings.iter().find(|f| f.code == code)
}

pub(crate) fn evidence(finding: &Finding, name: &str) -> f64 {
    let of_name = finding.evidence.iter().find(|e| e.name == name);
    of_name.unwrap_or_else(|| panic!("no {name} in {finding:?}")).value
}

pub(crate) fn setting<'a>(report: &'a Report, ending: &str) -> Vec<&'a str> {
    let all = report.verdict.settings.iter();
    all.filter(|s| s.path.ends_with(ending)).map(|s| s.value.as_str()).collect()
}

/// Largest over mean packets of the CPUs in use.
pub(crate) fn used_cpus(policy: &PolicyReport) -> usize {
    policy.cpus.iter().filter(|c| c.processed > 0).count()
}

pub(crate) fn v4(src: Ipv4Addr, dst: Ipv4Addr) -> Layer {
    Layer::V4(V4::new(src, dst))
}

pub(crate) fn udp(src: u16, dst: u16) -> Layer {
    Layer::Udp { src, dst, checksum: true }
}

pub(crate) fn udp_frame(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Vec<u8> {
    let layers = [Layer::Ethernet { back: false }, v4(from.0, to.0), udp(from.1, to.1)];
    packet(&layers, payload)
}

pub(crate) fn address(ip: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(ip), port)
}
