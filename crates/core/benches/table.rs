//! The measured table of `docs/benchmarks.md`: `cargo bench -p rxsteer-core --bench table`.
//!
//! For each case the best and the median of many short runs, in ns per operation. The best is what
//! the code costs when nobody disturbs it, and is steady on a machine that is shared; the median
//! says how much it was disturbed. An argument, if given, selects cases by a part of their name.
#![allow(clippy::print_stdout, reason = "the table is the result")]

mod cases;

use std::hint::black_box;
use std::time::{Duration, Instant};

use cases::Case;

/// Time given to a case.
const BUDGET: Duration = Duration::from_millis(400);

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or_default();
    println!("{}\n", host());
    println!("| case | what | best ns | median ns | best M/s |");
    println!("| --- | --- | ---: | ---: | ---: |");
    // A table's cases are made only when it is their turn: the largest takes 0.5 GB.
    let groups: [fn() -> Vec<Case>; 3] =
        [cases::hashes::all, cases::packets::in_cache, cases::packets::beyond_cache];
    let names = ["hash/", "packet/", "packet/ipv4_udp/64B/16M entries"];
    for (cases, name) in groups.into_iter().zip(names) {
        if name.contains(&filter) || filter.contains(name) || filter.is_empty() {
            cases().into_iter().for_each(|case| measure(case, &filter));
        }
    }
    for (name, entries) in cases::probes::SIZES {
        if filter.is_empty() || format!("probe/{name}").contains(&filter) {
            cases::probes::all(name, entries).into_iter().for_each(|case| measure(case, &filter));
        }
    }
}

fn measure(mut case: Case, filter: &str) {
    if !format!("{}/{}", case.group, case.name).contains(filter) {
        return;
    }
    let mut runs = Vec::new();
    let start = Instant::now();
    while start.elapsed() < BUDGET || runs.len() < 20 {
        let run = Instant::now();
        black_box((case.run)());
        runs.push(run.elapsed().as_nanos() as f64 / case.ops as f64);
    }
    runs.sort_by(f64::total_cmp);
    let (best, median) = (runs[0], runs[runs.len() / 2]);
    let rate = 1000.0 / best;
    println!("| {} | {} | {best:.2} | {median:.2} | {rate:.1} |", case.group, case.name);
}

/// Returns the facts of the host that a reader needs to place the numbers.
fn host() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(": ").nth(1)).unwrap_or("unknown").to_owned()
    };
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "{cpus} CPUs, {} ({} MHz), cache {}, Linux {}, load {}",
        field("model name"),
        field("cpu MHz"),
        field("cache size"),
        kernel.trim(),
        load.split(' ').next().unwrap_or("unknown"),
    )
}
