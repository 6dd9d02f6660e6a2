//! Criterion's view of the core: `cargo bench -p rxsteer-core --bench core -- FILTER`.
//!
//! The same cases as `--bench table`, which prints them as one table.

mod cases;

use std::time::Duration;

use cases::Case;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn run(c: &mut Criterion, cases: Vec<Case>) {
    for mut case in cases {
        let mut group = c.benchmark_group(&case.group);
        group.throughput(Throughput::Elements(case.ops));
        group.bench_function(case.name, |b| b.iter(&mut case.run));
        group.finish();
    }
}

fn hash(c: &mut Criterion) {
    run(c, cases::hashes::all());
}

fn packet(c: &mut Criterion) {
    run(c, cases::packets::in_cache());
    run(c, cases::packets::beyond_cache());
}

fn probe(c: &mut Criterion) {
    for (name, entries) in cases::probes::SIZES {
        run(c, cases::probes::all(name, entries));
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = hash, packet, probe
}
criterion_main!(benches);
