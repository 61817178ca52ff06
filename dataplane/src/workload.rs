//! How busy a worker is: rounds, the time that they take, sleep, and where the time of a packet goes.
//!
//! A worker that polls uses its core whole, whether or not there is anything to do. What tells a full worker from an idle one is
//! the share of its time that passes in rounds with packets. The worker reads the clock once at the beginning of each round
//! anyway. Only of every [`SAMPLE`]th round with packets are the stages timed, too.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::counters::add;

/// One of so many rounds with packets is timed stage by stage.
pub const SAMPLE: u32 = 1024;
/// A round that takes longer than this is late, in nanoseconds: a ring of 2,048 packets fills in this time at 2 million packets in
/// a second.
pub const LATE: u64 = 1_000_000;
/// Names of the stages of a round.
pub const STAGES: [&str; 4] = ["receive", "look_up", "write", "send"];

/// A stage of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// Packets are taken from the rings.
    Receive,
    /// Their destinations are looked up.
    LookUp,
    /// They are written as they will leave.
    Write,
    /// They are put into rings, and the kernel is told.
    Send,
}

/// Counters of one worker.
#[derive(Debug, Default)]
pub(crate) struct WorkloadCounters {
    rounds: AtomicU64,
    busy_rounds: AtomicU64,
    full_rounds: AtomicU64,
    late_rounds: AtomicU64,
    longest_round: AtomicU64,
    lived: AtomicU64,
    busy: AtomicU64,
    asleep: AtomicU64,
    timed_packets: AtomicU64,
    stages: [AtomicU64; STAGES.len()],
}

/// What a worker has done since it was started. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Packets received.
    pub packets: u64,
    /// Rounds.
    pub rounds: u64,
    /// Rounds with packets.
    pub busy_rounds: u64,
    /// Rounds in which a port had as many packets as a round takes: more may have waited.
    pub full_rounds: u64,
    /// Rounds that took longer than [`LATE`]: long work, or the kernel took the core away.
    pub late_rounds: u64,
    /// Time of the longest round.
    pub longest_round: u64,
    /// Time since the start.
    pub lived: u64,
    /// Time in rounds with packets.
    pub busy: u64,
    /// Time asleep.
    pub asleep: u64,
    /// Packets of the rounds that were timed stage by stage.
    pub timed_packets: u64,
    /// Time of each stage in these rounds, as in [`STAGES`].
    pub stages: [u64; STAGES.len()],
}

impl WorkloadCounters {
    /// Counts a round that has received packets, from one port as many as a round takes or not.
    #[inline]
    pub(crate) fn round(&self, is_full: bool) {
        add(&self.busy_rounds, 1);
        if is_full {
            add(&self.full_rounds, 1);
        }
    }

    /// Counts the times of a round.
    #[cold]
    fn timed(&self, packets: usize, spent: [u64; STAGES.len()]) {
        add(&self.timed_packets, packets as u64);
        for (sum, spent) in self.stages.iter().zip(spent) {
            add(sum, spent);
        }
    }

    pub(crate) fn read(&self, packets: u64) -> Workload {
        Workload {
            packets,
            rounds: self.rounds.load(Relaxed),
            busy_rounds: self.busy_rounds.load(Relaxed),
            full_rounds: self.full_rounds.load(Relaxed),
            late_rounds: self.late_rounds.load(Relaxed),
            longest_round: self.longest_round.load(Relaxed),
            lived: self.lived.load(Relaxed),
            busy: self.busy.load(Relaxed),
            asleep: self.asleep.load(Relaxed),
            timed_packets: self.timed_packets.load(Relaxed),
            stages: std::array::from_fn(|stage| self.stages.get(stage).map_or(0, |sum| sum.load(Relaxed))),
        }
    }
}

/// Adds up the time of a worker: each moment is busy, asleep, or neither.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// When the last round began, or the sleep behind it ended.
    since: u64,
    is_busy: bool,
}

impl Meter {
    /// Notes that a round begins at `now`, and adds up the one before.
    #[inline]
    pub(crate) fn round_begins(&mut self, now: u64, counters: &WorkloadCounters) {
        let passed = now.saturating_sub(self.since);
        self.since = now;
        add(&counters.rounds, 1);
        counters.lived.store(now, Relaxed);
        if self.is_busy {
            add(&counters.busy, passed);
        }
        if passed > LATE {
            Self::was_late(passed, counters);
        }
    }

    /// Notes whether the round has received packets.
    #[inline]
    pub(crate) const fn round_ends(&mut self, is_busy: bool) {
        self.is_busy = is_busy;
    }

    /// Notes a sleep that ended at `now`. The round in front of it had no packets.
    pub(crate) fn slept(&mut self, asleep: u64, now: u64, counters: &WorkloadCounters) {
        self.since = now;
        counters.lived.store(now, Relaxed);
        add(&counters.asleep, asleep);
    }

    #[cold]
    fn was_late(passed: u64, counters: &WorkloadCounters) {
        add(&counters.late_rounds, 1);
        counters.longest_round.fetch_max(passed, Relaxed);
    }
}

/// The stopwatch of a step. It runs in one round with packets of [`SAMPLE`].
#[derive(Debug)]
pub(crate) struct Stopwatch {
    /// Rounds with packets until the next one that is timed.
    left: u32,
    running: Option<Lap>,
}

#[derive(Debug)]
struct Lap {
    last: Instant,
    spent: [u64; STAGES.len()],
}

impl Default for Stopwatch {
    fn default() -> Self {
        Self { left: SAMPLE, running: None }
    }
}

impl Stopwatch {
    /// Starts it if this round is to be timed.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if self.left == 0 {
            self.running = Some(Lap { last: Instant::now(), spent: [0; STAGES.len()] });
        }
    }

    /// Assigns the time since the last mark to a stage.
    #[inline]
    pub(crate) fn mark(&mut self, stage: Stage) {
        if let Some(lap) = &mut self.running {
            lap.mark(stage);
        }
    }

    /// Ends a round with this number of packets. If there were none, the next round is timed.
    #[inline]
    pub(crate) fn end(&mut self, packets: usize, counters: &WorkloadCounters) {
        if let Some(lap) = self.running.take()
            && packets > 0
        {
            counters.timed(packets, lap.spent);
            self.left = SAMPLE;
        }
        if packets > 0 {
            self.left = self.left.saturating_sub(1);
        }
    }
}

impl Lap {
    #[cold]
    fn mark(&mut self, stage: Stage) {
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.last).as_nanos();
        self.last = now;
        if let Some(spent) = self.spent.get_mut(stage as usize) {
            *spent += u64::try_from(passed).unwrap_or(u64::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn each_moment_is_busy_asleep_or_neither() {
        let (mut meter, counters) = (Meter::default(), WorkloadCounters::default());
        for (now, is_busy) in [(1, true), (3, true), (6, false), (10, true)] {
            meter.round_begins(now, &counters);
            meter.round_ends(is_busy);
        }
        meter.round_begins(15, &counters);
        meter.round_ends(false);
        meter.slept(70, 100, &counters);
        meter.round_begins(101, &counters);
        let read = counters.read(9);
        assert_eq!((read.lived, read.busy, read.asleep), (101, 2 + 3 + 5, 70));
        assert_eq!((read.packets, read.rounds, read.late_rounds), (9, 6, 0));
    }

    #[test]
    fn a_long_round_is_late_and_a_long_sleep_is_not() {
        let (mut meter, counters) = (Meter::default(), WorkloadCounters::default());
        meter.round_begins(1, &counters);
        meter.slept(90 * MILLISECOND, 90 * MILLISECOND, &counters);
        meter.round_begins(91 * MILLISECOND, &counters);
        meter.round_begins(94 * MILLISECOND, &counters);
        meter.round_begins(96 * MILLISECOND, &counters);
        let read = counters.read(0);
        assert_eq!((read.late_rounds, read.longest_round), (2, 3 * MILLISECOND));
    }

    #[test]
    fn one_round_with_packets_of_many_is_timed() {
        let (mut stopwatch, counters) = (Stopwatch::default(), WorkloadCounters::default());
        let mut round = |packets| {
            stopwatch.begin();
            let is_timed = stopwatch.running.is_some();
            stopwatch.mark(Stage::Receive);
            stopwatch.mark(Stage::Send);
            stopwatch.end(packets, &counters);
            is_timed
        };
        let timed = (0..2 * SAMPLE).filter(|_| round(64)).count();
        assert_eq!((timed, counters.read(0).timed_packets), (1, 64));
        // The next one is due, and rounds without packets do not count.
        assert!((0..100).all(|_| round(0)) && round(3) && !round(3));
        assert_eq!(counters.read(0).timed_packets, 67);
    }
}
