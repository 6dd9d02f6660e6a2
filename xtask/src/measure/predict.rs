//! The same cases in the lab.
//!
//! Always true: an experiment is made of what was asked of the source (rates, sizes, flows), of the CPUs,
//! and of the calibrated costs; nothing of what the reader got goes into it.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use anyhow::Context as _;
use rxsteer_bench::{CalibrateReport, SIGNALS, SLEEPS};
use rxsteer_lab::experiment::{Experiment, run};

use super::cases::{BYTES, LITTLE_WORK, PORT, WORK};
use super::figures::{Group, Named, Row};

/// Makes the experiment of a group, runs it, and puts down what it says of each row.
pub(super) fn predict(group: &mut Group, calibration: &CalibrateReport) -> anyhow::Result<()> {
    let is_rr = group.name.ends_with("-rr");
    group.experiment =
        if is_rr { round_trips(group, calibration) } else { stream(group, calibration) };
    let name = format!("{}.toml", group.name);
    let experiment = Experiment::from_toml(&name, &group.experiment, &[])
        .with_context(|| group.experiment.clone())?;
    let (report, _) = run(&experiment, 1, &mut |_| ControlFlow::Continue(()))?;
    for row in &mut group.rows {
        let case = report.cases.iter().find(|case| case.case == row.case);
        let policy = case.and_then(|case| case.policies.iter().find(|p| p.policy == row.policy));
        let measure = |name| policy.and_then(|policy| policy.measures.get(name).copied());
        // A transaction is a request and a response, and both are read.
        let packets = if is_rr { 2.0 } else { 1.0 };
        row.predicted = measure("read_per_s").map(|read| read / packets);
        let count = |name, of, unit| Some(Named { name, unit, median: measure(of)? * packets });
        row.lab = if is_rr {
            let signals = count(SIGNALS, "signals_per_packet", "each");
            signals.into_iter().chain(count(SLEEPS, "wakeups_per_packet", "each")).collect()
        } else {
            count(SIGNALS, "signals_per_packet", "per packet sent").into_iter().collect()
        };
    }
    Ok(())
}

/// Datagrams to one reader on CPU 1; the source and the queue's interrupts are on CPU 0.
fn stream(group: &Group, calibration: &CalibrateReport) -> String {
    let connected = group.name == "sockets";
    let work = if group.name == "reader" { WORK } else { LITTLE_WORK }.as_nanos();
    let mut text = head(group);
    text.push_str(
        "[host]\ncpus = 2\ncaches = [\"0-1\"]\n\n[[host.queue]]\nirq_cpu = 0\ncpus = \"1\"\n\n",
    );
    costs(&mut text, calibration, work);
    let _ = write!(
        text,
        "[[traffic]]\nkind = \"stream\"\nname = \"source\"\nflows = 1\nper_second = 1\nport = {PORT}\n\
         bytes = {BYTES}\n\n[[consumer]]\nprotocol = \"udp\"\nlocal = \":{PORT}\"\n\
         connected = {connected}\ncpus = \"1\"\n"
    );
    for Row { case, policy, offered, .. } in &group.rows {
        let rate = offered.round().max(1.0);
        let _ = write!(
            text,
            "\n[[case]]\nname = {case:?}\npolicies = [{policy:?}]\n\
             set = {{ \"traffic.source.per_second\" = {rate} }}\n"
        );
    }
    text
}

/// Requests and responses between a client on CPU 0 and a server on CPU 1. What one of them sends is taken
/// on its own CPU, so each CPU has a queue; RPS and RFS are set up for the one with the requests.
fn round_trips(group: &Group, calibration: &CalibrateReport) -> String {
    let (protocol, flows) = if group.name == "tcp-rr" { ("tcp", 500) } else { ("udp", 200) };
    let spent = |name: &str| {
        let found = calibration.application.iter().find(|cost| cost.name == name);
        found.map_or(0, |cost| u128::from(cost.ns))
    };
    // Both ends learn by epoll whose turn it is, and send; the client measures besides. It is the slower
    // end therefore, and the server sleeps now and then and has to be woken.
    let work = spent("ready") + spent(&format!("send_{protocol}"));
    let client_work = work + spent("client");
    let mut text = head(group);
    text.push_str(
        "[host]\ncpus = 2\ncaches = [\"0-1\"]\n\n[[host.queue]]\nirq_cpu = 0\ncpus = \"0-1\"\n\n\
         [[host.queue]]\nirq_cpu = 1\ncpus = \"none\"\nrps_flow_cnt = 0\n\n",
    );
    costs(&mut text, calibration, work);
    let _ = write!(
        text,
        "[[traffic]]\nkind = \"round-trips\"\nname = \"rr\"\nprotocol = \"{protocol}\"\nflows = {flows}\n\
         port = 5000\nbytes = 1\nclient_cpu = 0\nclient_work_ns = {}\n\n[[consumer]]\n\
         protocol = \"{protocol}\"\nlocal = \":5000\"\nconnected = true\ncpus = \"1\"\n",
        client_work.max(1)
    );
    for Row { case, policy, .. } in &group.rows {
        let _ = write!(text, "\n[[case]]\nname = {case:?}\npolicies = [{policy:?}]\n");
    }
    text
}

fn head(group: &Group) -> String {
    let Group { name, title, about, .. } = group;
    format!(
        "# Made by `cargo xtask measure`; the costs are those of this host.\nname = \"measured-{name}\"\n\
         title = {title:?}\nabout = {about:?}\nseed = 1\nduration = \"300ms\"\npolicies = [\"none\"]\n\
         show = [\"received_per_s\", \"read_per_s\", \"read_share\", \"busiest_cpu_share\"]\n\n"
    )
}

/// Writes the calibrated costs, and the work of the application.
fn costs(text: &mut String, calibration: &CalibrateReport, work: u128) {
    text.push_str("[host.costs]\n");
    for cost in &calibration.costs {
        let _ = writeln!(text, "{} = {}", cost.name, cost.ns);
    }
    let _ = writeln!(text, "work = {work}\n");
}
