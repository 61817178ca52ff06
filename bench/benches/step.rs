//! Measures the worker's step over ports in memory, in ns per packet, and its floor.
#![allow(missing_docs, clippy::unwrap_used, reason = "criterion's macros; a bench may panic")]

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use srv6d_bench::cases::SIZES;
use srv6d_bench::{CASES, Node, Rig, snapshot};
use srv6d_dataplane::BURST;

/// Measures the floors.
///
/// # Panics
/// If a packet is not sent.
pub fn floors(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("floor");
    group.throughput(Throughput::Elements(1));
    for case in &CASES {
        let mut rig = Rig::new(case.class, 1);
        group.bench_function(BenchmarkId::new("bare", case.name), |bencher| {
            bencher.iter_custom(|packets| over(packets, |bursts| rig.time_bare(bursts, case.bare)));
        });
        group.bench_function(BenchmarkId::new("ports", case.name), |bencher| {
            bencher.iter_custom(|packets| over(packets, |bursts| rig.time_ports(bursts, case.ports)));
        });
    }
    group.finish();
}

fn steps(criterion: &mut Criterion) {
    steps_of(criterion, &SIZES);
}

/// Measures the step with these numbers of prefixes.
///
/// # Panics
/// If a packet is not sent.
pub fn steps_of(criterion: &mut Criterion, sizes: &[u32]) {
    let mut group = criterion.benchmark_group("step");
    group.throughput(Throughput::Elements(1));
    for &prefixes in sizes {
        for node in Node::ALL {
            let snapshot = snapshot(prefixes, node).unwrap();
            for case in CASES.iter().filter(|case| case.node == node) {
                let mut rig = Rig::new(case.class, prefixes);
                group.bench_function(BenchmarkId::new(case.name, prefixes), |bencher| {
                    bencher.iter_custom(|packets| {
                        over(packets, |bursts| rig.time_ports(bursts, |rig| rig.step(&snapshot)))
                    });
                });
            }
        }
    }
    group.finish();
}

/// Returns the time for `packets` packets. `measure` returns nanoseconds per packet for the number of bursts that they
/// fill.
fn over(packets: u64, measure: impl FnOnce(usize) -> f64) -> Duration {
    let bursts = packets.div_ceil(BURST as u64);
    Duration::from_secs_f64(
        measure(usize::try_from(bursts).unwrap()) / 1e9 * f64::from(u32::try_from(packets).unwrap()),
    )
}

criterion_group!(
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = floors, steps
);
criterion_main!(benches);
