//! Measures parsing alone, in ns per header.
#![allow(missing_docs, clippy::unwrap_used, reason = "criterion's macros; a bench may panic")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use srv6d_bench::{Class, frame};
use srv6d_wire::{eth, ipv4, ipv6};

/// Measures all parsers.
///
/// # Panics
/// If a parser refuses its header.
pub fn parse(criterion: &mut Criterion) {
    let (v6, v4) = (frame(Class::Shift, 1, 1), frame(Class::EncapV4, 1, 1));
    criterion.bench_function("wire/ethernet", |bencher| bencher.iter(|| eth::parse(black_box(&v6)).unwrap()));
    criterion.bench_function("wire/ipv6", |bencher| {
        bencher.iter(|| ipv6::Header::parse(black_box(v6.get(14..).unwrap())).unwrap().destination());
    });
    criterion.bench_function("wire/ipv4", |bencher| {
        bencher.iter(|| ipv4::Header::parse(black_box(v4.get(14..).unwrap())).unwrap().destination());
    });
}

criterion_group!(benches, parse);
criterion_main!(benches);
