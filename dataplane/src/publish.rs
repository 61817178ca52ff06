//! How tables come into force: whole generations, and few changes of the one that is.
//!
//! A worker takes the tables in force at the start of a round and keeps them until the next one, so it sees all of a
//! change or nothing of it ([`reader`](crate::reader)). What it had before is freed by the thread that publishes, never
//! by a worker: that thread holds on to it until it is the last one who does.
//!
//! Once there was an amendment there are two copies of the tables, of which workers read one: its cache lines are on
//! their cores, and those of the other one are not. So they are in the other one only while theirs is changed:
//!
//! ```text
//!                         workers read        nobody reads
//! before                  A                   B
//! the change is made      A                   B: changed
//! it is in force          B                   A
//! and taken over          B                   A: changed
//! back                    A                   B                workers have waited for it: a microsecond or two
//! ```
//!
//! A worker does not wait long, and goes on in B then. One that stays in A for long is not waited for; A takes the change
//! over before the next amendment then ([`Index`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use srv6d_srv6::index::Parts;
use srv6d_srv6::model::{Amendment, Desired};
use srv6d_srv6::{BuildError, Edits, Index, NotAmended, Slots, Tables, Tally};

use crate::reader::{InForce, Reader};
use crate::snapshot::{Snapshot, Wiring, in_huge_pages};

/// How long a publish waits for workers to leave what is to be changed or freed. A worker is there for the rest of a
/// round, and however long the system gives its core to others.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long workers are waited for that are to go back to the copy they know.
const SHORT_PATIENCE: Duration = Duration::from_millis(2);
/// How long the processor is kept meanwhile: a round takes less, a sleep more.
const SPIN: Duration = Duration::from_micros(50);

/// How tables have come into force so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// What it has to take over, if anything.
    missing: Option<Edits>,
    index: Index,
}

/// Tables in force, and what they were made from.
pub struct Publisher {
    in_force: Arc<InForce>,
    wake: Box<dyn Fn() + Send>,
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

impl Publisher {
    /// Empty tables for so many workers.
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
            published: Published::default(),
        }
    }

    /// For a worker.
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.in_force))
    }

    /// `wake` is called when other tables have come into force: workers that sleep are to look at them.
    pub fn on_change(&mut self, wake: impl Fn() + Send + 'static) {
        self.wake = Box::new(wake);
    }

    /// What is in force.
    pub fn current(&self) -> Arc<Snapshot> {
        self.in_force.newest()
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
        self.current().tallies.iter().chain(&self.old_tallies).cloned().collect()
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
        let (mut tables, parts) = Tables::build_with_parts(&desired, &mut slots)?;
        if self.is_amended {
            tables.make_room();
        }
        for port in desired.ports.iter().filter(|port| port.vlan.is_some()) {
            slots.vlans.slot(port.name.clone());
        }
        let current = self.current();
        let tallies = self.tallies(&current, &slots);
        let (generation, wiring) = (current.generation + 1, wiring(&desired, &slots));
        let next = Arc::new(Snapshot::new(generation, tables, wiring, tallies));
        (self.desired, self.slots) = (desired, slots);
        self.put_in_force(Arc::clone(&next));
        self.published.whole += 1;
        self.retired.extend(self.standby.take().map(|standby| standby.snapshot));
        wait_for_others(&current, PATIENCE);
        self.retired.push(current);
        self.free_retired();
        if self.is_amended {
            self.make_ready(&next, parts);
        }
        Ok(())
    }

    /// Has the tables twice, with room for what amendments add.
    fn make_ready(&mut self, next: &Snapshot, parts: Parts) {
        // If control keeps this state too, the first amendment makes a copy of it anyway.
        if let Some(desired) = Arc::get_mut(&mut self.desired) {
            desired.make_room();
        }
        let mut standby = next.clone();
        standby.tables.make_room();
        in_huge_pages(&standby.tables);
        self.standby = Index::new(&self.desired, &next.tables, parts).map(|index| Standby {
            snapshot: Arc::new(standby),
            missing: None,
            index,
        });
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
        let Standby { snapshot: mut next, missing, mut index } = standby;
        let current = self.current();
        let missing = if wait_for_others(&next, PATIENCE) {
            missing
        } else {
            self.retired.push(std::mem::replace(&mut next, Arc::new(Snapshot::clone(&current))));
            self.published.copied += 1;
            None
        };
        let desired = Arc::make_mut(&mut self.desired);
        // Nobody else has it: otherwise it would be a copy.
        let snapshot = Arc::make_mut(&mut next);
        if let Some(missing) = missing
            && let Err(why) = snapshot.tables.take_over(&missing, &index)
        {
            return Err(NotAmended::Whole(why.into(), desired.amend(amendment)));
        }
        let (edits, undo) = index.amend(desired, &mut self.slots, &mut snapshot.tables, amendment)?;
        if undo.is_empty() {
            self.standby = Some(Standby { snapshot: next, missing: None, index });
            return Ok(Amended::default());
        }
        (snapshot.generation, snapshot.is_passing) = (current.generation + 1, true);
        let slots = std::mem::take(&mut self.slots);
        snapshot.tallies = self.tallies(&current, &slots);
        self.slots = slots;
        // What will have to be changed is here then, while workers wait for it.
        current.tables.touch(&edits);
        self.put_in_force(next);
        self.published.in_place += 1;
        let changes_offload = edits.changes_offload();
        self.bring_back(Standby { snapshot: current, missing: Some(edits), index });
        Ok(Amended { undo, changes_offload })
    }

    /// Puts the copy that workers have just left in force again, with what it missed, if they leave it soon.
    fn bring_back(&mut self, mut known: Standby) {
        if wait_for_others(&known.snapshot, SHORT_PATIENCE)
            && let Some(missing) = known.missing.take()
        {
            let current = self.current();
            let snapshot = Arc::make_mut(&mut known.snapshot);
            if snapshot.tables.take_over(&missing, &known.index).is_err() {
                return; // of no use any more: the next amendment takes a whole build
            }
            (snapshot.generation, snapshot.tallies) = (current.generation, current.tallies.clone());
            snapshot.is_passing = false;
            self.put_in_force(std::mem::replace(&mut known.snapshot, current));
        }
        self.standby = Some(known);
    }

    fn put_in_force(&self, snapshot: Arc<Snapshot>) {
        self.in_force.put(snapshot);
        (self.wake)();
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

/// Whether nobody else has it any more, after a while at the latest.
fn wait_for_others(snapshot: &Arc<Snapshot>, patience: Duration) -> bool {
    let begin = Instant::now();
    while Arc::strong_count(snapshot) > 1 {
        match begin.elapsed() {
            spent if spent < SPIN => std::hint::spin_loop(),
            spent if spent < patience => std::thread::sleep(Duration::from_micros(20)),
            _ => return false,
        }
    }
    true
}
