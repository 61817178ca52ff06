//! The tables in force, as a worker reads them.
//!
//! Tables that another core has just compiled are in no cache of the worker's core: going over to them at once would make
//! dozens of rounds late. So a worker that has packets stays in the tables it knows for some more rounds, and in each of
//! these looks packets up in the new ones too, for nothing but the cache lines, until they are known (`beside`). It is
//! bounded by rounds and by time, and a worker without packets goes over at once.
//!
//! Copies of tables it knows, with amendments or without, are taken at once. One that is in force only while the copy it
//! knows is changed is not read at all: the worker waits for that change to be made, which takes less than a round.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use crate::snapshot::Snapshot;

/// Longest time for one round beside the new tables, in nanoseconds: where rounds are longer, they are fewer.
const LONGEST_ROUND: u64 = 8_000;

/// How long a worker waits for the copy it knows: as long as its first round in the other one would take.
const ASIDE: Duration = Duration::from_micros(20);

/// What is in force, and how often that has changed.
#[derive(Debug, Default)]
pub(crate) struct InForce {
    snapshot: ArcSwap<Snapshot>,
    changes: AtomicU64,
}

impl InForce {
    pub(crate) fn newest(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    pub(crate) fn put(&self, snapshot: Arc<Snapshot>) {
        self.snapshot.store(snapshot);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Waits until there is something else than what was `seen`, for a moment.
    fn changes_soon(&self, seen: u64) -> bool {
        let begin = Instant::now();
        while self.changes.load(Ordering::Acquire) == seen {
            if begin.elapsed() > ASIDE {
                return false;
            }
            std::hint::spin_loop();
        }
        true
    }
}

/// The tables in force, for one worker.
#[derive(Debug)]
pub struct Reader {
    in_force: Arc<InForce>,
    seen: u64,
    current: Arc<Snapshot>,
    next: Option<Next>,
}

/// Tables in force that are not known yet.
#[derive(Debug)]
struct Next {
    snapshot: Arc<Snapshot>,
    rounds_left: u32,
    until: u64,
}

/// What a worker reads in one round.
#[derive(Clone, Copy, Debug)]
pub struct View<'r> {
    /// What its packets go through.
    pub current: &'r Snapshot,
    /// What they will go through soon.
    pub next: Option<&'r Snapshot>,
}

impl Reader {
    pub(crate) fn new(in_force: Arc<InForce>) -> Self {
        Self { seen: in_force.changes.load(Ordering::Acquire), current: in_force.newest(), in_force, next: None }
    }

    /// What is in force now. The worker is in it until it asks again.
    pub fn current(&mut self) -> &Snapshot {
        self.view(0, 0).current
    }

    /// What to read in a round that begins at `now` (nanoseconds); the round before had `received` packets.
    #[inline]
    pub fn view(&mut self, received: usize, now: u64) -> View<'_> {
        if self.in_force.changes.load(Ordering::Acquire) != self.seen {
            self.look(now);
        }
        if self.next.is_some() {
            self.go_on(received, now);
        }
        View { current: &self.current, next: self.next.as_ref().map(|next| &*next.snapshot) }
    }

    /// The tables to come are known: from now on packets go through them.
    pub fn go_over(&mut self) {
        if let Some(next) = self.next.take() {
            self.current = next.snapshot;
        }
    }

    #[cold]
    fn look(&mut self, now: u64) {
        self.seen = self.in_force.changes.load(Ordering::Acquire);
        let snapshot = self.in_force.newest();
        if snapshot.compiled == self.current.compiled {
            self.current = snapshot;
            if self.current.is_passing && self.in_force.changes_soon(self.seen) {
                self.look(now);
            }
            return;
        }
        // Tables that come while others are looked at do not make it any longer.
        let rounds = snapshot.rounds_beside;
        let until = now + u64::from(rounds) * LONGEST_ROUND;
        let (rounds_left, until) = self.next.as_ref().map_or((rounds, until), |next| (next.rounds_left, next.until));
        self.next = Some(Next { snapshot, rounds_left, until });
    }

    #[cold]
    fn go_on(&mut self, received: usize, now: u64) {
        match &mut self.next {
            Some(next) if received > 0 && next.rounds_left > 0 && now < next.until => next.rounds_left -= 1,
            _ => self.go_over(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(generation: u64, is_passing: bool) -> Arc<Snapshot> {
        Arc::new(Snapshot { generation, is_passing, ..Snapshot::default() })
    }

    #[test]
    fn a_worker_waits_for_the_copy_it_knows_but_not_for_ever() {
        let in_force = Arc::new(InForce::default());
        let mut reader = Reader::new(Arc::clone(&in_force));
        in_force.put(snapshot(1, true));
        assert_eq!(reader.current().generation, 1, "nothing follows");
        let (mut generation, mut was_waited_for) = (1, false);
        let deadline = Instant::now() + Duration::from_secs(20);
        while !was_waited_for && Instant::now() < deadline {
            let (passing, known) = (snapshot(generation + 1, true), snapshot(generation + 2, false));
            was_waited_for = std::thread::scope(|scope| {
                scope.spawn(|| {
                    in_force.put(Arc::clone(&passing));
                    while Arc::strong_count(&passing) < 3 {
                        std::hint::spin_loop(); // until the worker has left the copy before
                    }
                    in_force.put(known);
                });
                let taken = std::iter::repeat_with(|| reader.current().generation).find(|&taken| taken > generation);
                taken == Some(generation + 2)
            });
            generation += 2;
            assert_eq!(reader.current().generation, generation);
        }
        assert!(was_waited_for, "at least once in twenty seconds");
    }
}
