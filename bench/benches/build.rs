//! Cost of tables: time and memory to compile a generation, and time to change one route in tables of that size.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a bench may panic")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use ipnet::IpNet;
use srv6d_bench::tables::{desired, prefix, route_change};
use srv6d_dataplane::{Publisher, Wiring};
use srv6d_srv6::desired::{Amendment, Desired};
use srv6d_srv6::{Index, Slots, Tables};

const SIZES: [u32; 3] = [10_000, 100_000, 1_000_000];
const ROUNDS: usize = 5;

/// Number of changes of each kind that are timed.
const CHANGES: u32 = 300;
/// Limit on the time that a changed route may take.
const MOST_SECONDS: f64 = 1e-3;

fn main() {
    run(SIZES, ROUNDS, CHANGES);
}

/// Measures all sizes and prints the results.
///
/// # Panics
/// If a generation is refused.
pub fn run(sizes: [u32; 3], rounds: usize, changes: u32) {
    let generations = sizes.map(|size| desired(size, 1));
    let whole = compile(sizes, &generations, rounds);
    amend(sizes, &generations, whole, changes);
}

/// Compiles a generation of each size and returns the seconds that it takes.
fn compile(sizes: [u32; 3], generations: &[Desired; 3], rounds: usize) -> [f64; 3] {
    println!("compiling a generation; medians of {rounds}\n");
    println!(
        "{:>10} {:>12} {:>14} {:>10} {:>18} {:>24}",
        "prefixes", "seconds", "ns per prefix", "growth", "bytes per prefix", "and ready for amendments"
    );
    let mut smallest = None;
    [0, 1, 2].map(|at| {
        let (size, desired) = (sizes[at], &generations[at]);
        let build = || Tables::build_with_parts(desired, &mut Slots::default(), None).unwrap();
        let seconds =
            median((0..rounds).map(|_| time(|| Tables::build(desired, &mut Slots::default()).unwrap())).collect());
        let each = seconds * 1e9 / f64::from(size);
        let kept = allocation_counter::measure(|| std::mem::forget(black_box(build().0)));
        // Tables that are ready for amendments have a second copy, and an index of the positions of all entries.
        let ready = allocation_counter::measure(|| {
            let (tables, parts) = build();
            let index = Index::new(desired, &tables, parts);
            std::mem::forget(black_box((tables.clone(), tables, index)));
        });
        let first = *smallest.get_or_insert(each);
        let per_prefix = |count: i64| bytes(count) / f64::from(size);
        println!(
            "{size:>10} {seconds:>12.3} {each:>14.0} {:>10.2} {:>18.0} {:>24.0}",
            each / first,
            per_prefix(kept.bytes_current),
            per_prefix(ready.bytes_current),
        );
        seconds
    })
}

/// Measures the time from a changed route until it is in force.
fn amend(sizes: [u32; 3], generations: &[Desired; 3], whole: [f64; 3], changes: u32) {
    println!(
        "\none route changed, until it is in force; of {changes} changes the median, the 99th of 100, the longest\n"
    );
    println!(
        "{:>10} {:>10} {:>12} {:>12} {:>12} {:>16}",
        "prefixes", "change", "median us", "99 % us", "longest us", "whole / median"
    );
    let mut nearly_longest = 0f64;
    for ((size, desired), whole) in sizes.into_iter().zip(generations).zip(whole) {
        let mut publisher = Publisher::new(1);
        publisher.expect_amendments();
        publisher.publish(Some(Arc::new(desired.clone())), |_, _| Wiring::direct(2)).unwrap();
        let existing = |n: u32| prefix(n.wrapping_mul(7919) % size);
        let kinds: [(&str, &dyn Fn(u32) -> Amendment); 4] = [
            ("added", &|n| route_change(new_prefix(n), true)),
            ("deleted", &|n| route_change(new_prefix(n), false)),
            ("deleted", &|n| route_change(existing(n), false)),
            ("added", &|n| route_change(existing(n), true)),
        ];
        for (kind, amendment) in kinds {
            let mut seconds: Vec<f64> = (0..changes)
                .map(|n| {
                    let amendment = amendment(n);
                    time(|| publisher.amend(&amendment, |_, _| Wiring::direct(2)).unwrap())
                })
                .collect();
            seconds.sort_by(f64::total_cmp);
            let [middle, nearly, last] = [500, 990, 1000].map(|part| seconds[(seconds.len() - 1) * part / 1000]);
            nearly_longest = nearly_longest.max(nearly);
            println!(
                "{size:>10} {kind:>10} {:>12.1} {:>12.1} {:>12.1} {:>16.0}",
                middle * 1e6,
                nearly * 1e6,
                last * 1e6,
                whole / middle
            );
        }
        let counted = publisher.published();
        println!("{:>10} {} in place, {} by a whole build", "", counted.in_place, counted.whole_for_amendment);
    }
    let side = if nearly_longest < MOST_SECONDS { "under" } else { "over" };
    println!("\n99 of 100 changes took {side} 1 ms at every size (times are this machine's)");
}

/// Returns prefixes that no table contains: a /64 and a /24 in turn.
fn new_prefix(n: u32) -> IpNet {
    let address = if n.is_multiple_of(2) {
        IpAddr::V6(Ipv6Addr::from_bits(0x2c00_0000 << 96 | u128::from(n) << 64))
    } else {
        IpAddr::V4((0xc600_0000 | n << 8).into())
    };
    IpNet::new(address, if address.is_ipv6() { 64 } else { 24 }).unwrap()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn time<T>(work: impl FnOnce() -> T) -> f64 {
    let begin = Instant::now();
    let made = work();
    let spent = begin.elapsed().as_secs_f64();
    drop(black_box(made));
    spent
}

fn bytes(count: i64) -> f64 {
    // Tables of a million routes occupy some hundred megabytes, which is far below 2^52.
    #[expect(clippy::cast_precision_loss, reason = "see above")]
    let count = count as f64;
    count
}
