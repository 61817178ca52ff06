//! The worker's step over packets in memory, in ns per packet, beside a floor that reads and rewrites the same header
//! bytes and does nothing else.
#![allow(missing_docs, clippy::unwrap_used)] // criterion's macros; a bench may panic

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use srv6d_bench::{Class, FLOWS, frame, snapshot};
use srv6d_dataplane::Snapshot;
use srv6d_dataplane::io::Io;
use srv6d_dataplane::memory::{Frame, Memory};
use srv6d_srv6::{Limiter, Verdict, forward};
use srv6d_wire::{Packet, ipv6};

struct Bench {
    snapshot: Snapshot,
    io: Memory,
    frames: Vec<Frame>,
    originals: Vec<Vec<u8>>,
    limiter: Limiter,
}

impl Bench {
    fn new(class: Class, prefixes: u32, segments: u16) -> Self {
        let originals: Vec<_> = (0..FLOWS).map(|flow| frame(class, prefixes, flow)).collect();
        let frames = originals.iter().map(|bytes| Frame::new(bytes)).collect();
        let snapshot = snapshot(prefixes, segments).unwrap();
        Self { snapshot, io: Memory::new(2), frames, originals, limiter: Limiter::default() }
    }

    /// One packet through `act`, written back as received first.
    fn run(&mut self, flow: usize, act: impl FnOnce(&Snapshot, &mut Limiter, &mut Packet<'_>)) {
        let (Some(frame), Some(original)) = (self.frames.get_mut(flow), self.originals.get(flow)) else { return };
        frame.refill(original);
        let mut packet = self.io.packet(frame);
        act(&self.snapshot, &mut self.limiter, &mut packet);
        black_box(packet.settle());
    }
}

fn step(snapshot: &Snapshot, limiter: &mut Limiter, packet: &mut Packet<'_>) {
    let verdict = forward(&snapshot.tables, snapshot.tallies.first().unwrap(), limiter, 0, 0, packet);
    assert!(matches!(verdict, Verdict::Tx(1)), "{verdict:?}");
}

/// What a shift cannot do without: read the destination, write it shifted, hop limit, both MAC addresses.
fn shift_floor(_: &Snapshot, _: &mut Limiter, packet: &mut Packet<'_>) {
    if let Some(header) = packet.bytes_mut().get_mut(14..).and_then(|bytes| bytes.first_chunk_mut::<40>()) {
        let destination = ipv6::Header::parse(header).unwrap().destination();
        let block = destination & (u128::MAX << 96);
        ipv6::set_destination(header, block | (destination << 48) >> 32);
        header[7] -= 1;
    }
    packet.pull_front(14);
    packet.push_front(14).unwrap();
    packet.bytes_mut().first_chunk_mut::<12>().unwrap().copy_from_slice(black_box(&[2; 12]));
}

/// What an encapsulation cannot do without: make room, copy the outer header and the MAC addresses, payload length.
fn encap_floor(_: &Snapshot, _: &mut Limiter, packet: &mut Packet<'_>) {
    packet.bytes_mut().get_mut(14 + 7).map(|hop_limit| *hop_limit -= 1).unwrap();
    packet.pull_front(14);
    let len = u16::try_from(packet.total_len()).unwrap();
    packet.push_front(54).unwrap();
    let head = packet.bytes_mut().first_chunk_mut::<54>().unwrap();
    *head = *black_box(&[0x60; 54]);
    [head[18], head[19]] = len.to_be_bytes();
}

fn group(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("step");
    group.throughput(Throughput::Elements(1));
    let mut bench =
        |name: &str, prefixes: u32, class: Class, segments: u16, act: fn(&Snapshot, &mut Limiter, &mut Packet<'_>)| {
            let mut bench = Bench::new(class, prefixes, segments);
            let mut flow = 0;
            group.bench_function(BenchmarkId::new(name, prefixes), |bencher| {
                bencher.iter(|| {
                    flow = (flow + 97) % FLOWS;
                    bench.run(flow, act);
                });
            });
        };
    bench("nothing", 1, Class::Shift, 1, |_, _, _| {});
    bench("floor-shift", 1, Class::Shift, 1, shift_floor);
    bench("floor-encap", 1, Class::EncapV6, 1, encap_floor);
    for prefixes in [1, 10_000, 1_000_000] {
        bench("shift", prefixes, Class::Shift, 1, step);
        bench("encap-v6", prefixes, Class::EncapV6, 1, step);
        bench("encap-v4", prefixes, Class::EncapV4, 1, step);
        bench("decap", prefixes, Class::Decap, 1, step);
        bench("transit", prefixes.max(2), Class::Transit, 1, step);
    }
    bench("encap-v6-3-segments", 10_000, Class::EncapV6, 3, step);
    bench("encap-v4-3-segments", 10_000, Class::EncapV4, 3, step);
    group.finish();
}

criterion_group!(benches, group);
criterion_main!(benches);
