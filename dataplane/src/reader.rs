//! The tables in force, as a worker reads them.
//!
//! Tables that another core has just compiled are in no cache of the worker's core: going over to them at once would make
//! dozens of rounds late. So a worker that has packets stays in the tables it knows for some more rounds, and in each of
//! these looks a few of its packets up in the new ones too, for nothing but the cache lines (`Step::round_beside`). It is
//! bounded by rounds and by time, and a worker without packets goes over at once.
//!
//! Copies of tables it knows, with amendments or without, are taken at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

use crate::snapshot::Snapshot;

/// Longest time for one round beside the new tables, in nanoseconds: where rounds are longer, they are fewer.
const LONGEST_ROUND: u64 = 8_000;

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
        let changes = self.in_force.changes.load(Ordering::Acquire);
        if changes != self.seen {
            self.seen = changes;
            self.look(now);
        }
        if self.next.is_some() {
            self.go_on(received, now);
        }
        View { current: &self.current, next: self.next.as_ref().map(|next| &*next.snapshot) }
    }

    #[cold]
    fn look(&mut self, now: u64) {
        let snapshot = self.in_force.newest();
        if snapshot.compiled == self.current.compiled {
            self.current = snapshot;
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
        let may_stay = |next: &mut Next| received > 0 && next.rounds_left > 0 && now < next.until;
        if let Some(next) = self.next.take_if(|next| !may_stay(next)) {
            self.current = next.snapshot;
        } else if let Some(next) = &mut self.next {
            next.rounds_left -= 1;
        }
    }
}
