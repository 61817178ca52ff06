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
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use srv6d_srv6::index::Parts;
use srv6d_srv6::model::{Amendment, Desired};
use srv6d_srv6::{BuildError, Edits, Index, NotAmended, Released, Slots, Tables, Tally};

use crate::reader::{InForce, Reader};
use crate::snapshot::{Snapshot, Wiring, in_huge_pages};

/// How long a publish waits for workers to leave what is to be changed or freed. A worker is there for the rest of a
/// round, and however long the system gives its core to others.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long workers are waited for that are to go back to the copy they know.
const SHORT_PATIENCE: Duration = Duration::from_millis(2);
/// How long the processor is kept meanwhile: a round takes less, a sleep more.
const SPIN: Duration = Duration::from_micros(50);

/// Least changes of steered prefixes and SIDs after which it is asked whose counters are no longer in use.
const CHANGES: usize = 512;

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
    /// Counters of what is gone, to which a worker that is late may still write.
    released: Released,
    /// Changed steered prefixes and SIDs since counters were last released.
    changes: usize,
    releases: u64,
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
            released: Released::default(),
            changes: 0,
            releases: 0,
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
                    return Err(*why);
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
        self.put_in_force(Arc::clone(&next));
        self.published.in_place += 1;
        self.changes += amendment.steers.len() + amendment.sids.len();
        if self.changes > CHANGES.max(self.slots.paths.places() / 8) {
            self.release_slots(&next);
        }
        drop(next);
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

    /// Takes the counters of what is gone from these tables, which are in force.
    fn release_slots(&mut self, in_force: &Snapshot) {
        (self.changes, self.releases) = (0, self.releases + 1);
        self.released.add(self.slots.release(&self.desired, &in_force.tables, self.releases));
    }

    /// There are counters of what is gone.
    pub(crate) fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// Counters of what is gone, which are zero now: no worker writes to them any more. They are to be handed back to
    /// [`reuse_slots`](Self::reuse_slots).
    pub(crate) fn take_released(&mut self) -> Option<Released> {
        self.free_retired();
        // What stands by is brought in line with the tables in force before a worker sees it again.
        let is_left = |standby: &Standby| Arc::strong_count(&standby.snapshot) == 1;
        let is_settled = self.retired.is_empty() && self.standby.as_ref().is_none_or(is_left);
        if !is_settled {
            return None;
        }
        // What workers wrote before they let go of old tables is written before it is cleared.
        fence(Ordering::Acquire);
        let released = std::mem::take(&mut self.released);
        self.all_tallies().iter().for_each(|tally| tally.clear(&released));
        Some(released)
    }

    /// Gives these counters to what comes next.
    pub(crate) fn reuse_slots(&mut self, released: Released) {
        self.slots.reuse(released);
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use srv6d_srv6::carrier::SegmentList;
    use srv6d_srv6::model::{Hop, Mac, Path, Port, PortId, Steer, TableId, Tunnel};

    use super::*;

    /// More than the XDP program has counters for.
    const MANY: u32 = 4500;

    /// Steered prefixes with these numbers, each with a path of its own.
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
        // A worker that is late: it has the tables with all of the paths.
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
