//! What a worker feels of tables that come into force beside it: how long its rounds take then, and otherwise.
//!
//! One thread does round after round over ports in memory, as a worker does, and notes how long each one takes. Another
//! one publishes: nothing, amendments, whole generations. A round is late when it takes more than [`LATE`] times the median.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a bench may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use srv6d_bench::Rig;
use srv6d_bench::frames::Class;
use srv6d_bench::tables::{desired, prefix, route_change};
use srv6d_dataplane::publish::Reader;
use srv6d_dataplane::{BURST, Publisher, Wiring};

const PREFIXES: u32 = 1_000_000;
const LATE: f64 = 3.0;
/// How long a publish can be felt: what is in it, and so many seconds after.
const AFTER: f64 = 1e-3;
const QUIET: Duration = Duration::from_secs(3);
const AMENDMENTS: u32 = 300;
const GENERATIONS: u32 = 6;
const PAUSE: Duration = Duration::from_millis(10);

/// When a round began, and how many seconds it took.
type Round = (f64, f64);

fn main() {
    if std::env::args().any(|argument| argument == "--test") {
        return; // `cargo test --benches`
    }
    let mut publisher = Publisher::new(1);
    publisher.expect_amendments();
    publisher.publish(Some(Arc::new(desired(PREFIXES, 1))), |_, _| Wiring::direct(2)).unwrap();
    let (reader, stop, start) = (publisher.reader(), AtomicBool::new(false), Instant::now());
    let (phases, (rounds, freed)) = std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(reader, &stop, start));
        let phases = publish(&mut publisher, start);
        stop.store(true, Ordering::Relaxed);
        (phases, worker.join().unwrap())
    });
    report(&phases, &rounds);
    println!("\nmemory freed by the worker's thread: {freed} bytes");
    println!("{:?}", publisher.published());
}

/// Rounds until told to stop, and the bytes that this thread has freed beyond what it allocated.
fn work(mut reader: Reader, stop: &AtomicBool, start: Instant) -> (Vec<Round>, i64) {
    let mut rig = Rig::new(Class::Transit, PREFIXES);
    let mut rounds = Vec::with_capacity(8_000_000);
    let burst = f64::from(u32::try_from(BURST).unwrap());
    let memory = allocation_counter::measure(|| {
        while !stop.load(Ordering::Relaxed) && rounds.len() < rounds.capacity() {
            let began = start.elapsed().as_secs_f64();
            let each = rig.time_ports(1, |rig| rig.step(reader.current()));
            rounds.push((began, each * burst / 1e9));
        }
    });
    (rounds, (-memory.bytes_current).max(0))
}

/// A stretch of time, and from when to when something was published in it.
struct Phase {
    name: &'static str,
    began: f64,
    ended: f64,
    events: Vec<(f64, f64)>,
}

fn publish(publisher: &mut Publisher, start: Instant) -> Vec<Phase> {
    let now = || start.elapsed().as_secs_f64();
    let mut phases = Vec::new();
    let mut phase = |name, work: &mut dyn FnMut() -> Vec<(f64, f64)>| {
        let began = now();
        let events = work();
        phases.push(Phase { name, began, ended: now(), events });
    };
    for _ in 0..2 {
        phase("nothing", &mut || {
            std::thread::sleep(QUIET);
            Vec::new()
        });
        phase("amendments", &mut || {
            let one = |n: u32| {
                std::thread::sleep(PAUSE);
                let began = now();
                let amendment = route_change(prefix(n / 2 * 7919 % PREFIXES), n % 2 == 1);
                publisher.amend(&amendment, |_, _| Wiring::direct(2)).unwrap();
                (began, now())
            };
            (0..AMENDMENTS).map(one).collect()
        });
        phase("generations", &mut || {
            let one = |_| {
                std::thread::sleep(PAUSE);
                let began = now();
                publisher.publish(None, |_, _| Wiring::direct(2)).unwrap();
                (began, now())
            };
            (0..GENERATIONS).map(one).collect()
        });
    }
    phases
}

fn report(phases: &[Phase], rounds: &[Round]) {
    let names = ["nothing", "amendments", "generations"];
    let of = |name: &str| phases.iter().filter(move |phase| phase.name == name).collect::<Vec<_>>();
    let within = |began: f64, ended: f64| {
        let first = rounds.partition_point(|&(at, _)| at < began);
        &rounds[first..rounds.partition_point(|&(at, _)| at < ended).max(first)]
    };
    let durations = |name: &str| {
        let rounds = of(name).into_iter().flat_map(|phase| within(phase.began, phase.ended));
        let mut sorted: Vec<f64> = rounds.map(|&(_, spent)| spent).collect();
        sorted.sort_by(f64::total_cmp);
        sorted
    };
    let quiet = durations("nothing");
    let late = quiet[quiet.len() / 2] * LATE;
    println!("rounds of {BURST} packets at {PREFIXES} prefixes, in microseconds; late: more than {:.1}\n", late * 1e6);
    println!(
        "{:<14}{:>9}{:>10}{:>10}{:>10}{:>14}  longest",
        "published", "rounds", "median", "99.9 %", "late", "late per s"
    );
    for name in names {
        let sorted = durations(name);
        let share =
            |part: usize| sorted[(sorted.len() - 1) / 1000 * part + (sorted.len() - 1) % 1000 * part / 1000] * 1e6;
        let lates = sorted.iter().filter(|&&spent| spent > late).count();
        let seconds: f64 = of(name).iter().map(|phase| phase.ended - phase.began).sum();
        let longest: Vec<String> = sorted.iter().rev().take(6).map(|spent| format!("{:.0}", spent * 1e6)).collect();
        println!(
            "{name:<14}{:>9}{:>10.1}{:>10.1}{lates:>10}{:>14.1}  {}",
            sorted.len(),
            share(500),
            share(999),
            f64::from(u32::try_from(lates).unwrap()) / seconds,
            longest.join(" ")
        );
    }
    println!("\nlate rounds around a publish, until {} ms after it: how many had so many\n", AFTER * 1e3);
    println!("{:<14}{:>10}{:>8}{:>8}{:>8}{:>8}{:>16}", "published", "publishes", "0", "1", "2", "more", "longest, us");
    for name in names {
        let all = of(name).into_iter().flat_map(|phase| match name {
            // As many stretches as long as an amendment's, for comparison.
            "nothing" => {
                (0..AMENDMENTS).map(|n| phase.began + PAUSE.as_secs_f64() * f64::from(n)).map(|at| (at, at)).collect()
            }
            _ => phase.events.clone(),
        });
        let (mut counts, mut longest, mut number) = ([0u32; 4], 0f64, 0);
        for (began, ended) in all {
            let around = within(began, ended + AFTER);
            counts[around.iter().filter(|&&(_, spent)| spent > late).count().min(3)] += 1;
            longest = around.iter().map(|&(_, spent)| spent).fold(longest, f64::max);
            number += 1;
        }
        let [none, one, two, more] = counts;
        println!("{name:<14}{number:>10}{none:>8}{one:>8}{two:>8}{more:>8}{:>16.0}", longest * 1e6);
    }
}
