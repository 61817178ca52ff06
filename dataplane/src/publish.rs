//! How tables come into force: whole generations, and few changes of the one that is.
//!
//! A worker takes the tables in force at the start of a round and keeps them until the next one, so it sees all of a
//! change or nothing of it. What it had before is freed by the thread that publishes, never by a worker: that thread
//! holds on to it until it is the last one who does.
//!
//! Once there was an amendment there are two copies of the tables, of which workers have one. The next amendment is made
//! in the other one as soon as no worker is left there ([`Index`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Cache};
use serde::Serialize;
use srv6d_srv6::model::{Amendment, Desired};
use srv6d_srv6::{BuildError, Edits, Index, NotAmended, Slots, Tables, Tally};

use crate::snapshot::{Snapshot, Wiring};

/// How long an amendment waits for workers to leave the copy it is to be made in. A worker is there for the rest of a
/// round, and however long the system gives its core to others.
const PATIENCE: Duration = Duration::from_millis(20);

/// How tables have come into force so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Published {
    /// Whole generations, compiled from all there is.
    pub whole: u64,
    /// Of these: for an amendment that could not be made in place.
    pub whole_for_amendment: u64,
    /// Amendments made in place.
    pub in_place: u64,
    /// Of these: in a fresh copy of the tables, because a worker was still in the one behind.
    pub copied: u64,
}

/// What an amendment came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Amended {
    /// What undoes it. Empty: everything was like that already, and nothing was published.
    pub undo: Amendment,
    /// What is looked at beside the tables has changed, too.
    pub(crate) changes_offload: bool,
}

/// The copy of the tables that no worker is to be in, or will soon be.
struct Standby {
    snapshot: Arc<Snapshot>,
    missing: Edits,
    index: Index,
}

/// Tables in force, and what they were made from.
pub struct Publisher {
    snapshot: Arc<ArcSwap<Snapshot>>,
    workers: usize,
    desired: Arc<Desired>,
    slots: Slots,
    standby: Option<Standby>,
    /// There was an amendment: be ready for the next one.
    is_amended: bool,
    /// Old tables that a worker may still have.
    retired: Vec<Arc<Snapshot>>,
    old_tallies: Vec<Arc<Tally>>,
    published: Published,
}

/// The tables in force, as a worker reads them.
pub struct Reader(Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>);

impl Reader {
    /// What is in force now. The worker is in it until it calls this again.
    #[inline]
    pub fn current(&mut self) -> &Snapshot {
        self.0.load()
    }
}

impl Publisher {
    /// Empty tables for so many workers.
    pub fn new(workers: usize) -> Self {
        Self {
            snapshot: Arc::new(ArcSwap::from_pointee(Snapshot::default())),
            workers,
            desired: Arc::default(),
            slots: Slots::default(),
            standby: None,
            is_amended: false,
            retired: Vec::new(),
            old_tallies: Vec::new(),
            published: Published::default(),
        }
    }

    /// For a worker.
    pub fn reader(&self) -> Reader {
        Reader(Cache::new(Arc::clone(&self.snapshot)))
    }

    /// What is in force.
    pub fn current(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// What it was made from.
    pub fn desired(&self) -> &Arc<Desired> {
        &self.desired
    }

    /// Which counter is whose.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Where prefixes are, once there was an amendment.
    pub fn index(&self) -> Option<&Index> {
        self.standby.as_ref().map(|standby| &standby.index)
    }

    /// How tables have come into force so far.
    pub fn published(&self) -> Published {
        self.published
    }

    /// Counters in use, and those that are no longer.
    pub(crate) fn all_tallies(&self) -> Vec<Arc<Tally>> {
        self.snapshot.load().tallies.iter().chain(&self.old_tallies).cloned().collect()
    }

    /// Amendments are to be expected: from now on the tables are there twice, so that the first one takes no longer
    /// than others.
    pub fn expect_amendments(&mut self) {
        self.is_amended = true;
    }

    /// Compiles a whole generation, the desired state in force where none is given. `wiring` says where its ports are.
    ///
    /// # Errors
    /// [`BuildError`]: the old state stays in force.
    pub fn publish(
        &mut self,
        desired: Option<Arc<Desired>>,
        wiring: impl FnOnce(&Desired, &Slots) -> Wiring,
    ) -> Result<(), BuildError> {
        let desired = desired.unwrap_or_else(|| Arc::clone(&self.desired));
        let mut slots = self.slots.clone();
        let (tables, parts) = Tables::build_with_parts(&desired, &mut slots)?;
        for port in desired.ports.iter().filter(|port| port.vlan.is_some()) {
            slots.vlans.slot(port.name.clone());
        }
        let current = self.current();
        let tallies = self.tallies(&current, &slots);
        let (generation, wiring) = (current.generation + 1, wiring(&desired, &slots));
        let next = Arc::new(Snapshot::new(generation, tables, wiring, tallies));
        (self.desired, self.slots) = (desired, slots);
        self.snapshot.store(Arc::clone(&next));
        self.published.whole += 1;
        self.retired.extend(self.standby.take().map(|standby| standby.snapshot));
        self.retired.push(current);
        self.free_retired();
        if self.is_amended {
            self.standby = Index::new(&self.desired, &next.tables, parts).map(|index| Standby {
                snapshot: Arc::new(Snapshot::clone(&next)),
                missing: Edits::default(),
                index,
            });
        }
        Ok(())
    }

    /// Makes a few changes of what is in force. They are made in place where that is possible, and `wiring` is asked
    /// where it takes a whole generation.
    ///
    /// # Errors
    /// [`BuildError`]: the old state stays in force.
    pub fn amend(
        &mut self,
        amendment: &Amendment,
        wiring: impl FnOnce(&Desired, &Slots) -> Wiring,
    ) -> Result<Amended, BuildError> {
        self.is_amended = true;
        self.free_retired();
        let (undo, why) = match self.standby.take() {
            Some(standby) => match self.amend_in_place(standby, amendment) {
                Ok(amended) => return Ok(amended),
                Err(NotAmended::Whole(why, undo)) => (undo, Some(why)),
                Err(NotAmended::Refused(why, undo)) => {
                    Arc::make_mut(&mut self.desired).amend(&undo);
                    return Err(why);
                }
            },
            None => (Arc::make_mut(&mut self.desired).amend(amendment), None),
        };
        tracing::debug!("an amendment takes a whole build: {why:?}");
        if let Err(why) = self.publish(None, wiring) {
            Arc::make_mut(&mut self.desired).amend(&undo);
            return Err(why);
        }
        self.published.whole_for_amendment += 1;
        Ok(Amended { undo, changes_offload: true })
    }

    fn amend_in_place(&mut self, standby: Standby, amendment: &Amendment) -> Result<Amended, NotAmended> {
        let Standby { snapshot, missing, mut index } = standby;
        let current = self.current();
        let (mut next, missing) = match owned(snapshot, PATIENCE) {
            Ok(next) => (next, missing),
            Err(busy) => {
                self.retired.push(busy);
                self.published.copied += 1;
                (Arc::new(Snapshot::clone(&current)), Edits::default())
            }
        };
        let desired = Arc::make_mut(&mut self.desired);
        // Nobody else has it: otherwise it would be a copy.
        let snapshot = Arc::make_mut(&mut next);
        if let Err(why) = snapshot.tables.take_over(&missing, &index) {
            return Err(NotAmended::Whole(why.into(), desired.amend(amendment)));
        }
        let (edits, undo) = index.amend(desired, &mut self.slots, &mut snapshot.tables, amendment)?;
        if undo.is_empty() {
            self.standby = Some(Standby { snapshot: next, missing: edits, index });
            return Ok(Amended::default());
        }
        snapshot.generation = current.generation + 1;
        let slots = std::mem::take(&mut self.slots);
        snapshot.tallies = self.tallies(&current, &slots);
        self.slots = slots;
        self.snapshot.store(next);
        self.published.in_place += 1;
        let changes_offload = edits.changes_offload();
        self.standby = Some(Standby { snapshot: current, missing: edits, index });
        Ok(Amended { undo, changes_offload })
    }

    /// The counters in use, or larger ones where slots have been added; the old ones are still summed up.
    fn tallies(&mut self, current: &Snapshot, slots: &Slots) -> Vec<Arc<Tally>> {
        if current.tallies.len() == self.workers && current.tallies.iter().all(|tally| tally.covers(slots)) {
            return current.tallies.clone();
        }
        self.old_tallies.extend(current.tallies.iter().cloned());
        (0..self.workers).map(|_| Arc::new(Tally::new(slots))).collect()
    }

    /// Frees what no worker has any more.
    pub fn free_retired(&mut self) {
        self.retired.retain(|old| Arc::strong_count(old) > 1);
    }
}

/// A snapshot that nobody else has, or has after a while; the same one again if somebody still has it then.
fn owned(mut snapshot: Arc<Snapshot>, patience: Duration) -> Result<Arc<Snapshot>, Arc<Snapshot>> {
    let end = Instant::now() + patience;
    while Arc::get_mut(&mut snapshot).is_none() {
        if Instant::now() > end {
            return Err(snapshot);
        }
        std::thread::sleep(Duration::from_micros(20));
    }
    Ok(snapshot)
}
