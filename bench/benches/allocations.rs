//! Counts heap allocations per packet in the worker's step. There must be none, or this program fails.
#![allow(clippy::unwrap_used, reason = "a bench may panic")]

use std::sync::Arc;

use srv6d_bench::{CASES, Case, FLOWS, frame, snapshot};
use srv6d_dataplane::memory::{Memory, MemoryFrame};
use srv6d_dataplane::{Snapshot, Step, WorkerCounters};

const PREFIXES: u32 = 10_000;

fn main() {
    run();
}

/// Counts the allocations of every case.
///
/// # Panics
/// If a case allocates, or if a packet is not sent.
pub fn run() {
    for case in &CASES {
        let [packets, allocations] = count(case, &snapshot(PREFIXES, case.node).unwrap());
        println!("{:<20} {packets} packets, {allocations} allocations", case.name);
        assert_eq!(allocations, 0, "{}", case.name);
    }
}

fn count(case: &Case, snapshot: &Snapshot) -> [u64; 2] {
    let mut io = Memory::new(2);
    let mut step = Step::new(0, Arc::new(WorkerCounters::default()), |_, _| {});
    fill(&mut io, case);
    while step.round(&mut io, snapshot, 0) > 0 {} // the step's own buffer grows once
    io.take_sent();
    fill(&mut io, case);
    let mut packets = 0;
    let measured = allocation_counter::measure(|| {
        while let received @ 1.. = step.round(&mut io, snapshot, 1) {
            packets += received;
        }
    });
    assert_eq!((packets, io.take_sent().len()), (FLOWS, FLOWS), "{}: every packet is sent", case.name);
    [packets as u64, measured.count_total]
}

fn fill(io: &mut Memory, case: &Case) {
    io.port(0).unwrap().rx.extend((0..FLOWS).map(|flow| MemoryFrame::new(&frame(case.class, PREFIXES, flow))));
    io.port(1).unwrap().tx.reserve(FLOWS);
}
