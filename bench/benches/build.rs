//! What tables cost: seconds and memory to compile a generation, and what a changed route costs at that size.
#![allow(clippy::unwrap_used, reason = "a bench may panic")]

use std::hint::black_box;
use std::time::Instant;

use srv6d_bench::tables::desired;
use srv6d_srv6::{Slots, Tables};

const SIZES: [u32; 3] = [10_000, 100_000, 1_000_000];
const ROUNDS: usize = 5;

fn main() {
    println!("compiling a generation; medians of {ROUNDS}\n");
    println!(
        "{:>10} {:>12} {:>14} {:>10} {:>18}",
        "prefixes", "seconds", "ns per prefix", "growth", "bytes per prefix"
    );
    let mut smallest = None;
    for size in SIZES {
        let desired = desired(size, 1);
        let mut seconds: Vec<f64> =
            (0..ROUNDS).map(|_| time(|| Tables::build(&desired, &mut Slots::default()).unwrap())).collect();
        seconds.sort_by(f64::total_cmp);
        let seconds = seconds.get(ROUNDS / 2).copied().unwrap();
        let each = seconds * 1e9 / f64::from(size);
        let kept = allocation_counter::measure(|| {
            std::mem::forget(black_box(Tables::build(&desired, &mut Slots::default()).unwrap()));
        });
        let first = *smallest.get_or_insert(each);
        println!(
            "{size:>10} {seconds:>12.3} {each:>14.0} {:>10.2} {:>18.0}",
            each / first,
            bytes(kept.bytes_current) / f64::from(size)
        );
    }
}

fn time<T>(work: impl FnOnce() -> T) -> f64 {
    let begin = Instant::now();
    let made = work();
    let spent = begin.elapsed().as_secs_f64();
    drop(black_box(made));
    spent
}

fn bytes(count: i64) -> f64 {
    // Tables of a million routes have some hundred megabytes: far below 2^52.
    #[expect(clippy::cast_precision_loss, reason = "see above")]
    let count = count as f64;
    count
}
