//! Heap allocations per packet of the worker's step: zero, or this program fails.
#![allow(missing_docs, clippy::unwrap_used)] // a bench may panic

use std::sync::Arc;

use srv6d_bench::{Class, FLOWS, frame, snapshot};
use srv6d_dataplane::memory::{Frame, Memory};
use srv6d_dataplane::{Step, WorkerCounters};

fn main() {
    let snapshot = snapshot(10_000, 3).unwrap();
    for class in [Class::Shift, Class::EncapV6, Class::EncapV4, Class::Decap, Class::Transit] {
        let mut io = Memory::new(2);
        let mut step = Step::new(0, Arc::new(WorkerCounters::default()), |_, _| {});
        let fill = |io: &mut Memory| {
            io.port(0).unwrap().rx.extend((0..FLOWS).map(|flow| Frame::new(&frame(class, 10_000, flow))));
            io.port(1).unwrap().tx.reserve(FLOWS);
        };
        fill(&mut io);
        while step.round(&mut io, &snapshot, 0) > 0 {} // the step's own buffer grows once
        io.take_sent();
        fill(&mut io);
        let mut packets = 0;
        let measured = allocation_counter::measure(|| {
            while let received @ 1.. = step.round(&mut io, &snapshot, 1) {
                packets += received;
            }
        });
        let allocations = measured.count_total;
        assert_eq!((packets, io.take_sent().len()), (FLOWS, FLOWS), "{class:?}: every packet is sent");
        println!("{class:?}: {packets} packets, {allocations} allocations");
        assert_eq!(allocations, 0, "{class:?}");
    }
}
