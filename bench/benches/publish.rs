//! Measures how a publication affects a worker: how many of its rounds are late while new tables come into force, and
//! how many otherwise.
//!
//! One thread runs rounds over ports in memory, as a worker does, and records the duration of each. Another thread
//! publishes nothing, amendments, or whole generations. Each thread has a core of its own. A round is late when it
//! takes more than [`LATE`] times the median.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a bench may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use srv6d_bench::Rig;
use srv6d_bench::frames::Class;
use srv6d_bench::tables::{desired, prefix, route_change};
use srv6d_dataplane::{BURST, Publisher, Reader, Wiring};

const LATE: f64 = 3.0;
/// Time for which a publication affects rounds, in seconds from the first round with the new tables.
const AFTER: f64 = 0.2e-3;
const PAUSE: Duration = Duration::from_millis(10);
/// Rounds whose durations are shown, counted from the first one with the new tables.
const COURSE: [usize; 6] = [0, 1, 4, 16, 56, 400];
const NAMES: [&str; 3] = ["nothing", "amendments", "generations"];

/// Extent of a measurement.
#[derive(Clone, Copy)]
pub struct Size {
    /// Number of prefixes in the tables.
    pub prefixes: u32,
    /// Maximum number of rounds that are recorded.
    pub rounds: usize,
    /// Length of each phase in which nothing is published.
    pub quiet: Duration,
    /// Number of amendments in each phase with amendments.
    pub amendments: u32,
    /// Number of generations in each phase with generations.
    pub generations: u32,
}

/// Start of a round and its duration, in seconds.
type Round = (f64, f64);

/// Observations of the worker's thread.
struct Seen {
    rounds: Vec<Round>,
    /// Numbers of the rounds that were the first ones with new tables.
    changes: Vec<usize>,
    /// Late rounds in which the system gave the core to another thread.
    interrupted: Vec<usize>,
    /// Number of bytes that the thread has freed, minus the bytes that it has allocated.
    freed: i64,
}

fn main() {
    if std::env::args().any(|argument| argument == "--test") {
        return; // `cargo test --benches`
    }
    let quiet = Duration::from_secs(4);
    run(Size { prefixes: 1_000_000, rounds: 16_000_000, quiet, amendments: 400, generations: 20 });
}

/// Measures, and prints the tables of results.
///
/// # Panics
/// A generation is refused.
pub fn run(size: Size) {
    let mut publisher = Publisher::new(1);
    publisher.expect_amendments();
    publisher.publish(Some(Arc::new(desired(size.prefixes, 1))), |_, _| Wiring::direct(2)).unwrap();
    let (reader, start) = (publisher.reader(), Instant::now());
    let stop = &AtomicBool::new(false);
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let (phases, seen) = std::thread::scope(|scope| {
        let (first, last) = (cores.first().copied(), cores.last().copied());
        let worker = scope.spawn(move || {
            last.map(core_affinity::set_for_current);
            work(reader, stop, start, size)
        });
        first.map(core_affinity::set_for_current);
        let phases = publish(&mut publisher, start, size);
        stop.store(true, Ordering::Relaxed);
        (phases, worker.join().unwrap())
    });
    report(&phases, &seen, size.prefixes);
    println!("\nmemory freed by the worker's thread: {} bytes", seen.freed);
    println!("{:?}", publisher.published());
}

/// Runs rounds until it is told to stop.
fn work(mut reader: Reader, stop: &AtomicBool, start: Instant, size: Size) -> Seen {
    let mut rig = Rig::new(Class::Transit, size.prefixes);
    // The memory is written once, so that none of its pages is new during the measurement.
    let mut rounds = vec![(1.0, 1.0); size.rounds];
    rounds.clear();
    let (mut changes, mut interrupted) = (Vec::with_capacity(1 << 16), Vec::with_capacity(1 << 20));
    let (mut generation, mut switches, mut late) = (reader.current().revision, 0, f64::MAX);
    let memory = allocation_counter::measure(|| {
        while !stop.load(Ordering::Relaxed) && rounds.len() < rounds.capacity() {
            let began = start.elapsed();
            let each = rig.time_ports(1, |rig| {
                let snapshot = reader.current();
                if snapshot.revision != generation {
                    generation = snapshot.revision;
                    changes.push(rounds.len());
                }
                rig.step(snapshot);
            });
            let spent = each * f64::from(u32::try_from(BURST).unwrap()) / 1e9;
            if spent > late {
                let before = std::mem::replace(&mut switches, involuntary_switches());
                interrupted.extend((switches != before).then_some(rounds.len()));
            }
            rounds.push((began.as_secs_f64(), spent));
            if rounds.len() == 100_000 {
                late = median(&rounds) * LATE;
            }
        }
    });
    Seen { rounds, changes, interrupted, freed: (-memory.bytes_current).max(0) }
}

fn involuntary_switches() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).unwrap().involuntary_context_switches()
}

/// Returns the durations of rounds, the shortest first.
fn sorted<'r>(rounds: impl IntoIterator<Item = &'r Round>) -> Vec<f64> {
    let mut sorted: Vec<f64> = rounds.into_iter().map(|&(_, spent)| spent).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn median(rounds: &[Round]) -> f64 {
    let sorted = sorted(rounds);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A phase, in which one kind of publication is repeated.
struct Phase {
    name: &'static str,
    began: f64,
    ended: f64,
}

fn publish(publisher: &mut Publisher, start: Instant, size: Size) -> Vec<Phase> {
    let now = || start.elapsed().as_secs_f64();
    let mut phases = Vec::new();
    let mut phase = |name, work: &mut dyn FnMut()| {
        let began = now();
        work();
        phases.push(Phase { name, began, ended: now() });
    };
    std::thread::sleep(size.quiet);
    for _ in 0..2 {
        phase(NAMES[0], &mut || std::thread::sleep(size.quiet));
        phase(NAMES[1], &mut || {
            for n in 0..size.amendments {
                std::thread::sleep(PAUSE);
                let amendment = route_change(prefix(n / 2 * 7919 % size.prefixes), n % 2 == 1);
                publisher.amend(&amendment, |_, _| Wiring::direct(2)).unwrap();
            }
        });
        phase(NAMES[2], &mut || {
            for _ in 0..size.generations {
                std::thread::sleep(PAUSE);
                publisher.publish(None, |_, _| Wiring::direct(2)).unwrap();
            }
        });
    }
    phases
}

impl Phase {
    fn has(&self, seen: &Seen, round: usize) -> bool {
        (self.began..self.ended).contains(&seen.rounds[round].0)
    }
}

fn report(phases: &[Phase], seen: &Seen, prefixes: u32) {
    let quiet: Vec<Round> =
        phases.iter().filter(|phase| phase.name == NAMES[0]).flat_map(|p| within(p, seen)).collect();
    let late = median(&quiet) * LATE;
    println!("rounds of {BURST} packets at {prefixes} prefixes, in microseconds; late: more than {:.1}\n", late * 1e6);
    println!(
        "{:<14}{:>9}{:>10}{:>10}{:>14}{:>14}  longest",
        "published", "rounds", "median", "99.9 %", "late per s", "interrupted"
    );
    for name in NAMES {
        all_rounds(name, phases, seen, late);
    }
    println!("\nlate rounds in the first {} ms after a publish, and after as many moments without one\n", AFTER * 1e3);
    println!(
        "{:<14}{:>10}{:>9}{:>9}{:>9}{:>9}{:>12}{:>8}{:>12}",
        "published", "publishes", "0 late", "1", "2", "more", "at most 1", "mean", "longest, us"
    );
    for name in &NAMES[1..] {
        let publishes: Vec<_> = seen.changes.iter().copied().filter(|&at| of(name, phases, seen, at)).collect();
        around(name, &publishes, seen, late);
        let quiet = phases.iter().filter(|phase| phase.name == NAMES[0]);
        let moments: Vec<_> = quiet.flat_map(|phase| moments(phase, &publishes, seen)).collect();
        around("  nothing", &moments, seen, late);
    }
    println!("\nrounds from the first one in it on, in microseconds: median, and 95 of 100 took less\n");
    println!("{:<14}{}", "published", COURSE.map(|round| format!("{:>14}", format!("+{round}"))).concat());
    for name in &NAMES[1..] {
        let taken: Vec<_> = seen.changes.iter().copied().filter(|&at| of(name, phases, seen, at)).collect();
        println!("{name:<14}{}", COURSE.map(|round| course(&taken, round, seen)).concat());
    }
}

/// Returns how long the rounds take that come `round` rounds after new tables: median and 95th percentile, in
/// microseconds.
fn course(taken: &[usize], round: usize, seen: &Seen) -> String {
    let sorted = sorted(taken.iter().filter_map(|&first| seen.rounds.get(first + round)));
    let at = |percent: usize| sorted.get(sorted.len() * percent / 100).map_or(f64::NAN, |spent| spent * 1e6);
    format!("{:>14}", format!("{:.1} {:>5.1}", at(50), at(95)))
}

fn of(name: &str, phases: &[Phase], seen: &Seen, round: usize) -> bool {
    phases.iter().any(|phase| phase.name == name && phase.has(seen, round))
}

fn within(phase: &Phase, seen: &Seen) -> Vec<Round> {
    let first = seen.rounds.partition_point(|&(at, _)| at < phase.began);
    let end = seen.rounds.partition_point(|&(at, _)| at < phase.ended);
    seen.rounds[first..end].to_vec()
}

fn all_rounds(name: &str, phases: &[Phase], seen: &Seen, late: f64) {
    let of_name = || phases.iter().filter(|phase| phase.name == name);
    let sorted = sorted(&of_name().flat_map(|phase| within(phase, seen)).collect::<Vec<_>>());
    let last = sorted.len().saturating_sub(1);
    let at = |place: usize| sorted.get(place).map_or(f64::NAN, |spent| spent * 1e6);
    let lates = sorted.iter().filter(|&&spent| spent > late).count();
    let interrupted = seen.interrupted.iter().filter(|&&round| of(name, phases, seen, round)).count();
    let seconds: f64 = of_name().map(|phase| phase.ended - phase.began).sum();
    let longest: Vec<String> = sorted.iter().rev().take(6).map(|spent| format!("{:.0}", spent * 1e6)).collect();
    println!(
        "{name:<14}{:>9}{:>10.1}{:>10.1}{:>14.1}{interrupted:>14}  {}",
        sorted.len(),
        at(last / 2),
        at(last - last / 1000),
        f64::from(u32::try_from(lates).unwrap()) / seconds,
        longest.join(" ")
    );
}

/// Returns rounds spread evenly over a quiet phase, for comparison; there are half as many as `publishes`.
fn moments(phase: &Phase, publishes: &[usize], seen: &Seen) -> Vec<usize> {
    let first = seen.rounds.partition_point(|&(at, _)| at < phase.began);
    let end = seen.rounds.partition_point(|&(at, _)| at < phase.ended - 10.0 * AFTER);
    let every = (end - first) / (publishes.len() / 2).max(1);
    (first..end).step_by(every.max(1)).take(publishes.len()).collect()
}

fn around(name: &str, publishes: &[usize], seen: &Seen, late: f64) {
    let (mut counts, mut all, mut longest) = ([0usize; 4], 0, 0f64);
    for &taken in publishes {
        let until = seen.rounds[taken].0 + AFTER;
        let after = seen.rounds[taken..].iter().take_while(|&&(at, _)| at < until);
        let late_after = after.clone().filter(|&&(_, spent)| spent > late).count();
        counts[late_after.min(3)] += 1;
        all += late_after;
        longest = after.map(|&(_, spent)| spent).fold(longest, f64::max);
    }
    let [none, one, two, more] = counts;
    println!(
        "{name:<14}{:>10}{none:>9}{one:>9}{two:>9}{more:>9}{:>10.1} %{:>8.2}{:>12.0}",
        publishes.len(),
        percent(none + one, publishes.len()),
        percent(all, publishes.len()) / 100.0,
        longest * 1e6,
    );
}

fn percent(part: usize, of: usize) -> f64 {
    f64::from(u32::try_from(part * 10_000 / of.max(1)).unwrap()) / 100.0
}
