//! Left-right publication: workers read one copy of the tables while the publishing thread changes the other one.
//!
//! The algorithm is left-right with an op log. Workers take the copy in force at the start of a round and keep it until the
//! next round, so a round sees all of a change or nothing of it. A change is applied to the copy that nobody reads, which
//! is then put in force. What was applied is kept as an op log ([`OpLog`]) and replayed in the other copy before the next
//! change:
//!
//! ```text
//!                         workers read      nobody reads                              op log
//! whole build             A                 B: a copy of A                            -
//! change 1 is applied     A                 B: change 1                               -
//! B is in force           B                 A                                         change 1
//! change 2 is applied     B                 A: change 1 replayed, change 2 applied    -
//! A is in force           A                 B                                         change 2
//! ```
//!
//! # Trade-offs
//!
//! * **Memory**: there is one copy until the first amendment, or until [`Publisher::expect_amendments`] was called. From
//!   then on there are two, with an [`Index`] of all prefixes beside them.
//! * **Work**: each change is made twice, once in each copy.
//! * **Workers never wait.** A worker reads one atomic counter per round (`Reader::current`), and counts references
//!   only when the tables have changed. After a publication it has a burst of cache misses: the other copy is not in
//!   the caches of its core, and its destination cache is keyed by the epoch.
//! * **The publishing thread waits for workers**: before it changes a copy, until no worker is left in that copy, and
//!   after it has put tables in force, so that claims follow the tables. Both waits are bounded. A copy that a worker
//!   does not leave in time is left to it, and the change is made in a fresh copy ([`Published::copied`]).
//! * **A whole build** takes place for a new desired state, for the first amendment, and for an amendment that the tables
//!   cannot apply ([`NeedsRebuild`]). A whole build takes time in proportion to all prefixes, an amendment does not.
//! * **Old tables are freed by the publishing thread**, never by a worker: the thread keeps its reference to them until
//!   it has the only one.

#[cfg(test)]
mod churn;
mod handover;
mod snapshot;

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use srv6d_srv6::desired::{Amendment, Desired};
use srv6d_srv6::index::Parts;
use srv6d_srv6::{Before, BuildError, Index, NeedsRebuild, OpLog, Released, Slots, Tables, Tally};

use handover::{InForce, alone, is_left};
use snapshot::in_huge_pages;
pub use snapshot::{EmulatedPort, Snapshot, Wiring};

/// The types that the hand-over is made of. Its test replaces them by those of `loom`.
mod sync {
    pub(super) use std::sync::Arc;
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};

    /// The place from which the copy in force is taken. Taking it and replacing it are atomic operations.
    pub(super) type Swap<T> = arc_swap::ArcSwap<T>;
}

/// A worker's access to the tables in force.
pub type Reader = handover::Reader<Snapshot>;

/// Time that a publication waits for workers to leave a copy that is to be changed or freed. A worker stays in a copy
/// for the rest of a round, and for as long as the system gives its core to others.
const PATIENCE: Duration = Duration::from_millis(20);
/// Time that an amendment waits for workers, so that claims follow the tables.
const SHORT_PATIENCE: Duration = Duration::from_millis(2);
/// Time that the publishing thread spins before it sleeps. A round takes less, a sleep more.
const SPIN: Duration = Duration::from_micros(50);

/// Number of changed steered prefixes and SIDs after which unused counters are released.
const CHANGES: usize = 512;

/// Counts of tables that have come into force, by the means used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Whole builds of the complete desired state.
    pub whole: u64,
    /// Whole builds for an amendment that could not be made in place.
    pub whole_for_amendment: u64,
    /// Amendments made in place.
    pub in_place: u64,
    /// Amendments made in a fresh copy of the tables, because a worker was still in the standby copy.
    pub copied: u64,
}

/// The result of an amendment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Amended {
    /// The amendment that undoes it. If it is empty, nothing changed and nothing was published.
    pub undo: Amendment,
    /// Whether the extract for the offload has changed, too.
    pub(crate) changes_offload: bool,
}

/// The copy of the tables that no worker reads, or that the last worker will soon leave.
struct Standby {
    snapshot: Arc<Snapshot>,
    /// Changes of the copy in force that this copy has to replay, if there are any.
    op_log: Option<OpLog>,
    index: Index,
}

/// The tables in force, and their inputs.
pub struct Publisher {
    in_force: Arc<InForce<Snapshot>>,
    wake: Box<dyn Fn() + Send>,
    workers: usize,
    /// What the tables in force were compiled from. Whoever plans has a copy of its own, and amends it first with the
    /// same amendments.
    desired: Arc<Desired>,
    slots: Slots,
    standby: Option<Standby>,
    /// Whether there was an amendment before. If so, a whole build also prepares for the next one.
    is_amended: bool,
    /// Old tables that a worker may still have.
    retired: Vec<Arc<Snapshot>>,
    old_tallies: Vec<Arc<Tally>>,
    /// Counters of removed entries, to which a late worker may still write.
    released: Released,
    /// Number of changed steered prefixes and SIDs since counters were last released.
    changes: usize,
    releases: u64,
    published: Published,
}

impl Publisher {
    /// Creates empty tables for a number of workers.
    pub fn new(workers: usize) -> Self {
        Self {
            in_force: Arc::default(),
            wake: Box::new(|| {}),
            workers,
            desired: Arc::default(),
            slots: Slots::default(),
            standby: None,
            is_amended: false,
            retired: Vec::new(),
            old_tallies: Vec::new(),
            released: Released::default(),
            changes: 0,
            releases: 0,
            published: Published::default(),
        }
    }

    /// Returns a reader for a worker.
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.in_force))
    }

    /// Sets the function that is called when other tables have come into force. It wakes workers that sleep.
    pub fn on_change(&mut self, wake: impl Fn() + Send + 'static) {
        self.wake = Box::new(wake);
    }

    /// Returns the snapshot in force.
    pub fn current(&self) -> Arc<Snapshot> {
        self.in_force.newest()
    }

    /// Returns the desired state that it was compiled from.
    pub fn desired(&self) -> &Arc<Desired> {
        &self.desired
    }

    /// Returns the slots of all counters.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Returns the index of prefixes. There is none before the first amendment.
    pub fn index(&self) -> Option<&Index> {
        self.standby.as_ref().map(|standby| &standby.index)
    }

    /// Returns how many tables have come into force so far, and by which means.
    pub fn published(&self) -> Published {
        self.published
    }

    /// Returns the counters in use, and those that were in use before.
    pub(crate) fn all_tallies(&self) -> Vec<Arc<Tally>> {
        self.current().tallies.iter().chain(&self.old_tallies).cloned().collect()
    }

    /// Prepares for amendments: from now on there are two copies of the tables, so that the first amendment takes no
    /// longer than others.
    pub fn expect_amendments(&mut self) {
        self.is_amended = true;
    }

    /// Compiles a whole generation, of the desired state in force if none is given. `wiring` returns the sockets of
    /// its ports.
    ///
    /// # Errors
    /// Returns [`BuildError`] if it cannot be compiled. The old state stays in force.
    pub fn publish(
        &mut self,
        desired: Option<Arc<Desired>>,
        wiring: impl FnOnce(&Desired, &Slots) -> Wiring,
    ) -> Result<(), BuildError> {
        let desired = desired.unwrap_or_else(|| Arc::clone(&self.desired));
        let mut slots = self.slots.clone();
        let current = self.current();
        let before = Before { tables: &current.tables, index: self.index() };
        let (mut tables, parts) = Tables::build_with_parts(&desired, &mut slots, Some(before))?;
        if self.is_amended {
            tables.make_room();
        }
        for port in desired.ports.iter().filter(|port| port.vlan.is_some()) {
            slots.vlans.slot(port.name.clone());
        }
        let tallies = self.tallies(&current, &slots);
        let (revision, wiring) = (current.revision + 1, wiring(&desired, &slots));
        let next = Arc::new(Snapshot::new(revision, tables, wiring, tallies));
        (self.desired, self.slots) = (desired, slots);
        self.put_in_force(Arc::clone(&next));
        self.published.whole += 1;
        self.release_slots(&next);
        self.retired.extend(self.standby.take().map(|standby| standby.snapshot));
        wait_for_others(&current, PATIENCE);
        self.retired.push(current);
        self.free_retired();
        if self.is_amended {
            self.make_ready(&next, parts);
        }
        Ok(())
    }

    /// Creates the second copy of the tables, with room for entries that amendments add.
    fn make_ready(&mut self, next: &Snapshot, parts: Parts) {
        // If control keeps a reference to this state too, the first amendment has to copy it anyway.
        if let Some(desired) = Arc::get_mut(&mut self.desired) {
            desired.make_room();
        }
        let mut standby = next.clone();
        standby.tables.make_room();
        in_huge_pages(&standby.tables);
        self.standby = Index::new(&self.desired, &next.tables, parts).map(|index| Standby {
            snapshot: Arc::new(standby),
            op_log: None,
            index,
        });
    }

    /// Makes a few changes of the state in force. They are made in place if that is possible. Otherwise a whole
    /// generation is compiled, for which `wiring` is called.
    ///
    /// # Errors
    /// Returns [`BuildError`] if it cannot be compiled. The old state stays in force.
    pub fn amend(
        &mut self,
        amendment: &Amendment,
        wiring: impl FnOnce(&Desired, &Slots) -> Wiring,
    ) -> Result<Amended, BuildError> {
        self.is_amended = true;
        self.free_retired();
        let NeedsRebuild { reason, undo } = match self.standby.take() {
            Some(standby) => match self.amend_in_place(standby, amendment) {
                Ok(amended) => return Ok(amended),
                Err(needs_rebuild) => needs_rebuild,
            },
            None => NeedsRebuild::first(Arc::make_mut(&mut self.desired), amendment),
        };
        tracing::debug!("an amendment takes a whole build: {reason:?}");
        if let Err(why) = self.publish(None, wiring) {
            Arc::make_mut(&mut self.desired).amend(&undo);
            return Err(why);
        }
        self.published.whole_for_amendment += 1;
        Ok(Amended { undo, changes_offload: true })
    }

    /// Applies an amendment to the copy that nobody reads, and puts that copy in force.
    fn amend_in_place(&mut self, standby: Standby, amendment: &Amendment) -> Result<Amended, NeedsRebuild> {
        let Standby { snapshot: mut next, op_log, mut index } = standby;
        let current = self.current();
        let op_log = if wait_for_others(&next, PATIENCE) && alone(&mut next).is_some() {
            op_log
        } else {
            self.retired.push(std::mem::replace(&mut next, Arc::new(Snapshot::clone(&current))));
            self.published.copied += 1;
            None
        };
        let desired = Arc::make_mut(&mut self.desired);
        // Nobody else has the snapshot. Otherwise this call would copy it.
        let snapshot = Arc::make_mut(&mut next);
        if let Some(op_log) = op_log
            && let Err(why) = snapshot.tables.replay(&op_log, &index)
        {
            return Err(NeedsRebuild { reason: why.into(), undo: desired.amend(amendment) });
        }
        let (op_log, undo) = index.apply(desired, &mut self.slots, &mut snapshot.tables, amendment)?;
        if undo.is_empty() {
            self.standby = Some(Standby { snapshot: next, op_log: None, index });
            return Ok(Amended::default());
        }
        snapshot.revision = current.revision + 1;
        let slots = std::mem::take(&mut self.slots);
        snapshot.tallies = self.tallies(&current, &slots);
        self.slots = slots;
        self.put_in_force(Arc::clone(&next));
        self.published.in_place += 1;
        self.changes += amendment.steers.len() + amendment.sids.len();
        if self.changes > CHANGES.max(self.slots.paths.places() / 8) {
            self.release_slots(&next);
        }
        drop(next);
        let changes_offload = op_log.changes_offload();
        wait_for_others(&current, SHORT_PATIENCE);
        self.standby = Some(Standby { snapshot: current, op_log: Some(op_log), index });
        Ok(Amended { undo, changes_offload })
    }

    fn put_in_force(&self, snapshot: Arc<Snapshot>) {
        self.in_force.put(snapshot);
        (self.wake)();
    }

    /// Returns the counters in use, or larger ones if slots have been added. The old ones still count in the sums.
    fn tallies(&mut self, current: &Snapshot, slots: &Slots) -> Vec<Arc<Tally>> {
        if current.tallies.len() == self.workers && current.tallies.iter().all(|tally| tally.covers(slots)) {
            return current.tallies.clone();
        }
        self.old_tallies.extend(current.tallies.iter().cloned());
        (0..self.workers).map(|_| Arc::new(Tally::new(slots))).collect()
    }

    /// Releases the counters of entries that the tables in force no longer have.
    fn release_slots(&mut self, in_force: &Snapshot) {
        (self.changes, self.releases) = (0, self.releases + 1);
        self.released.add(self.slots.release(&self.desired, &in_force.tables, self.releases));
    }

    /// Returns true if there are counters of removed entries.
    pub(crate) fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// Clears and returns the counters of removed entries, if no worker writes to them any more. They have to be
    /// returned with [`reuse_slots`](Self::reuse_slots).
    pub(crate) fn take_released(&mut self) -> Option<Released> {
        self.free_retired();
        // The standby copy is updated to the tables in force before a worker sees it again.
        let is_left = |standby: &Standby| is_left(&standby.snapshot);
        let is_settled = self.retired.is_empty() && self.standby.as_ref().is_none_or(is_left);
        if !is_settled {
            return None;
        }
        // Whatever workers wrote before they left old tables is visible here, before the counters are cleared.
        fence(Ordering::Acquire);
        let released = std::mem::take(&mut self.released);
        self.all_tallies().iter().for_each(|tally| tally.clear(&released));
        Some(released)
    }

    /// Makes released counters available to new entries.
    pub(crate) fn reuse_slots(&mut self, released: Released) {
        self.slots.reuse(released);
    }

    /// Frees the tables that no worker has any more.
    pub fn free_retired(&mut self) {
        self.retired.retain(|old| !is_left(old));
    }
}

/// Waits until nobody else has the snapshot. Returns false if that takes too long.
fn wait_for_others(snapshot: &Arc<Snapshot>, patience: Duration) -> bool {
    let begin = Instant::now();
    while !is_left(snapshot) {
        match begin.elapsed() {
            spent if spent < SPIN => std::hint::spin_loop(),
            spent if spent < patience => std::thread::sleep(Duration::from_micros(20)),
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use srv6d_srv6::carrier::SegmentList;
    use srv6d_srv6::desired::{Hop, Mac, Path, Port, PortId, Steer, TableId, Tunnel};

    use super::*;

    /// More prefixes than the XDP program has counters for.
    const MANY: u32 = 4500;

    /// Returns a state of steered prefixes with these numbers, each with a path of its own.
    fn desired(numbers: impl Iterator<Item = u32>) -> Arc<Desired> {
        let path = |number: u32| Path {
            name: format!("path-{number}"),
            segments: SegmentList::new(vec!["fcbb:0:9:1::".parse().unwrap()], &[]).unwrap(),
            full_srh: false,
            weight: 1,
            source: None,
            via: vec![Hop { port: PortId(0), via: Some("2001:db8::2".parse().unwrap()), weight: 1 }],
        };
        let steer = |number: u32| Steer {
            table: TableId::MAIN,
            prefix: format!("2a00:{:x}:{:x}::/48", number >> 16, number & 0xffff).parse().unwrap(),
            paths: vec![path(number)],
        };
        Arc::new(Desired {
            ports: vec![Port::fabric("a", 0, Mac([2, 0, 0, 0, 0, 1]), 1500)],
            tunnel: Tunnel { source: "2001:db8::1".parse().ok(), ..Tunnel::default() },
            steers: numbers.map(steer).collect(),
            ..Desired::default()
        })
    }

    fn publish(publisher: &mut Publisher, numbers: impl Iterator<Item = u32>) {
        publisher.publish(Some(desired(numbers)), |_, _| Wiring::direct(1)).unwrap();
    }

    fn slots(publisher: &Publisher, numbers: impl Iterator<Item = u32>) -> Vec<usize> {
        numbers.map(|number| publisher.slots().paths.find(&format!("path-{number}")).unwrap()).collect()
    }

    #[test]
    fn counters_of_paths_that_are_gone_are_those_of_others_once_no_worker_writes_to_them() {
        let mut publisher = Publisher::new(1);
        let mut reader = publisher.reader();
        publish(&mut publisher, 0..MANY);
        // A late worker still has the tables with all of the paths.
        let first = reader.current();
        first.tallies.first().unwrap().paths.first().unwrap().add(1, 100);
        publish(&mut publisher, 0..0);
        assert!(publisher.has_released());
        assert_eq!(publisher.take_released(), None, "it may still count");

        reader.current();
        let released = publisher.take_released().unwrap();
        assert_eq!(released.paths.len(), MANY as usize - Slots::KEPT);
        publisher.reuse_slots(released);
        assert!(!publisher.has_released());
        let counts = publisher.all_tallies();
        let count = |slot: usize| counts.iter().map(|tally| tally.paths.get(slot).unwrap().read().0).sum::<u64>();
        publish(&mut publisher, MANY..MANY + 20);
        let new = slots(&publisher, MANY..MANY + 20);
        assert!(new.iter().all(|&slot| slot < MANY as usize && count(slot) == 0), "{new:?}");
        assert_eq!(publisher.slots().paths.iter().count(), Slots::KEPT + 20);

        for round in 0..10 {
            publish(&mut publisher, (0..1000).map(|number| 10_000 + 1000 * round + number));
            reader.current();
            if let Some(released) = publisher.take_released() {
                publisher.reuse_slots(released);
            }
        }
        assert_eq!(publisher.slots().paths.places(), MANY as usize, "there are no more counters than ever were needed");
    }
}
