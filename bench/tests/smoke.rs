//! Runs every bench of the packet path once over small tables, to check that it compiles and works. Times are ignored.
#![allow(dead_code, reason = "a bench has a `main` of its own, and its own sizes")]

use std::time::Duration;

use criterion::Criterion;

#[path = "../benches/allocations.rs"]
mod allocations;
#[path = "../benches/build.rs"]
mod build;
#[path = "../benches/instructions.rs"]
mod instructions;
#[path = "../benches/publish.rs"]
mod publish;
#[path = "../benches/ratio.rs"]
mod ratio;
#[path = "../benches/step.rs"]
mod step;
#[path = "../benches/wire.rs"]
mod wire;

const SMALL: [u32; 3] = [1, 50, 200];

/// Returns settings with the shortest possible times, and without output files.
fn criterion() -> Criterion {
    let moment = Duration::from_millis(1);
    Criterion::default().warm_up_time(moment).measurement_time(moment).sample_size(10).nresamples(100).without_plots()
}

#[test]
fn no_packet_allocates() {
    allocations::run();
}

#[test]
fn tables_are_built_and_their_memory_is_counted() {
    build::run([300, 400, 500], 1, 20);
}

#[test]
fn late_rounds_are_counted() {
    let quiet = Duration::from_millis(20);
    publish::run(publish::Size { prefixes: 500, rounds: 200_000, quiet, amendments: 4, generations: 2 });
}

#[test]
fn every_row_of_the_instructions_runs_and_is_recorded() {
    instructions::run_once();
}

#[test]
fn ratios_are_taken_of_every_row() {
    ratio::run(SMALL, 1, |_| true);
}

#[test]
fn steps_and_floors_are_timed() {
    step::floors(&mut criterion());
    step::steps_of(&mut criterion(), &SMALL);
}

#[test]
fn headers_are_parsed() {
    wire::parse(&mut criterion());
}
