//! Counters of SIDs, paths and adjacencies.
//!
//! One worker writes them and control reads them. The worker uses a relaxed load and store, never a locked
//! instruction.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use srv6d_balance::{Choice, Why};

use crate::balance::Chosen;
use crate::desired::Desired;
use crate::tables::Tables;

/// A counter of packets and bytes.
#[derive(Debug, Default)]
pub struct Count {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    /// Adds a number of packets, and the sum of their bytes. Only the owning worker calls this.
    #[inline]
    pub fn add(&self, packets: usize, bytes: usize) {
        self.packets.store(self.packets.load(Relaxed) + packets as u64, Relaxed);
        self.bytes.store(self.bytes.load(Relaxed) + bytes as u64, Relaxed);
    }

    /// Sets the counter to 0. Nobody may add at the same time.
    pub fn clear(&self) {
        self.packets.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
    }

    /// Returns packets and bytes so far.
    pub fn read(&self) -> (u64, u64) {
        (self.packets.load(Relaxed), self.bytes.load(Relaxed))
    }
}

/// Counters of how often policies have chosen one member for flows of its group.
#[derive(Debug, Default)]
pub struct ChoiceCount {
    flowlets: AtomicU64,
    moves: [AtomicU64; MOVES.len()],
}

/// Names of the reasons why a flow moved to another member, in the order of [`ChoiceCount::read`].
pub const MOVES: [&str; 3] = ["gap", "down", "reactive"];

impl ChoiceCount {
    /// Counts a choice. Only the owning worker calls this.
    fn add(&self, choice: Choice) {
        let count = |counter: &AtomicU64| counter.store(counter.load(Relaxed) + 1, Relaxed);
        if choice.why != Why::Kept {
            count(&self.flowlets);
        }
        let [gap, down, reactive] = &self.moves;
        match choice.why {
            Why::Gap if choice.is_move => count(gap),
            Why::Gone if choice.is_move => count(down),
            Why::Reactive => count(reactive),
            _ => {}
        }
    }

    fn clear(&self) {
        self.flowlets.store(0, Relaxed);
        self.moves.iter().for_each(|moves| moves.store(0, Relaxed));
    }

    /// Returns the flowlets that began on the member, and the flows that moved to it, by reason.
    pub fn read(&self) -> (u64, [u64; MOVES.len()]) {
        (self.flowlets.load(Relaxed), self.moves.each_ref().map(|moves| moves.load(Relaxed)))
    }
}

/// The counters of one worker, by slot.
#[derive(Debug, Default)]
pub struct Tally {
    /// Packets that matched a SID and went on, with their IPv6 length as received.
    pub sids: Box<[Count]>,
    /// Packets encapsulated to a path, with their outer length.
    pub paths: Box<[Count]>,
    /// Packets sent to an adjacency, with their layer-3 length.
    pub adjacencies: Box<[Count]>,
    /// Frames received by a tagged port, with their whole length.
    pub vlans_rx: Box<[Count]>,
    /// Frames sent by a tagged port, with their whole length.
    pub vlans_tx: Box<[Count]>,
    /// Choices of each adjacency by policies.
    pub hop_choices: Box<[ChoiceCount]>,
    /// Choices of each path by policies.
    pub path_choices: Box<[ChoiceCount]>,
    /// Flows that took the entry of a flow that was still sending.
    pub evicted: Count,
    /// Decapsulated packets whose outer header was ECT and inner header Not-ECT (RFC 6040 section 4.2, figure 4).
    pub ecn_unused: Count,
}

impl Tally {
    /// Creates counters for all slots that are assigned so far, and for some more.
    pub fn new(slots: &Slots) -> Self {
        let room = |len: usize| 0..len.next_power_of_two().max(16);
        let counts = |len: usize| room(len).map(|_| Count::default()).collect();
        let choices = |len: usize| room(len).map(|_| ChoiceCount::default()).collect();
        Self {
            sids: counts(slots.sids.places()),
            paths: counts(slots.paths.places()),
            adjacencies: counts(slots.adjacencies.places()),
            vlans_rx: counts(slots.vlans.places()),
            vlans_tx: counts(slots.vlans.places()),
            hop_choices: choices(slots.adjacencies.places()),
            path_choices: choices(slots.paths.places()),
            evicted: Count::default(),
            ecn_unused: Count::default(),
        }
    }

    /// Returns true if every slot has its counter here.
    pub fn covers(&self, slots: &Slots) -> bool {
        self.sids.len() >= slots.sids.places()
            && self.paths.len() >= slots.paths.places()
            && self.adjacencies.len() >= slots.adjacencies.places()
            && self.vlans_rx.len() >= slots.vlans.places()
    }

    /// Sets the counters of these slots to zero. No worker may have tables that lead to them.
    pub fn clear(&self, released: &Released) {
        let all =
            [(&self.sids, &released.sids), (&self.paths, &released.paths), (&self.adjacencies, &released.adjacencies)];
        for (counts, slots) in all {
            slots.iter().filter_map(|&slot| counts.get(slot as usize)).for_each(Count::clear);
        }
        let choices = [(&self.path_choices, &released.paths), (&self.hop_choices, &released.adjacencies)];
        for (counts, slots) in choices {
            slots.iter().filter_map(|&slot| counts.get(slot as usize)).for_each(ChoiceCount::clear);
        }
    }

    #[inline]
    pub(crate) fn sid(&self, slot: u32, packets: usize, bytes: usize) {
        if let Some(count) = self.sids.get(slot as usize) {
            count.add(packets, bytes);
        }
    }

    #[inline]
    pub(crate) fn path(&self, slot: u32, bytes: usize) {
        if let Some(count) = self.paths.get(slot as usize) {
            count.add(1, bytes);
        }
    }

    /// Counts a choice by a policy.
    pub(crate) fn chosen(&self, chosen: Chosen) {
        let (counts, slot, choice) = match chosen {
            Chosen::Hop(slot, choice) => (&self.hop_choices, slot, choice),
            Chosen::Path(slot, choice) => (&self.path_choices, slot, choice),
        };
        if let Some(count) = counts.get(slot as usize) {
            count.add(choice);
        }
        if choice.why == Why::Evicted {
            self.evicted.add(1, 0);
        }
    }

    #[inline]
    pub(crate) fn adjacency(&self, slot: u32, packets: usize, bytes: usize) {
        if let Some(count) = self.adjacencies.get(slot as usize) {
            count.add(packets, bytes);
        }
    }
}

/// Slots that no SID, path or next hop uses any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Slots of SIDs.
    pub sids: BTreeSet<u32>,
    /// Slots of paths.
    pub paths: BTreeSet<u32>,
    /// Slots of next hops.
    pub adjacencies: BTreeSet<u32>,
}

impl Released {
    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.sids.is_empty() && self.paths.is_empty() && self.adjacencies.is_empty()
    }

    /// Adds the slots of `more`.
    pub fn add(&mut self, more: Self) {
        self.sids.extend(more.sids);
        self.paths.extend(more.paths);
        self.adjacencies.extend(more.adjacencies);
    }
}

/// Assigns counter slots to keys. A slot stays with its key while the key is in use, so counters survive new
/// generations. It stays for a while afterwards, so a path that comes back soon continues to count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Slots of SIDs, by prefix.
    pub sids: Names<ipnet::Ipv6Net>,
    /// Slots of paths, by name.
    pub paths: Names<String>,
    /// Slots of next hops, by port name and address.
    pub adjacencies: Names<(String, std::net::IpAddr)>,
    /// Slots of tagged ports, by name.
    pub vlans: Names<String>,
}

impl Slots {
    /// Largest number of keys of each kind that keep their slot without being in use. Beyond it the least recently
    /// used keys lose their slots.
    pub const KEPT: usize = 512;

    /// Releases the slots of keys that `desired` and its `tables` do not have. They can be given to other keys with
    /// [`reuse`](Self::reuse), once nobody writes to their counters any more and the counters are zero. `now` counts
    /// the calls.
    pub fn release(&mut self, desired: &Desired, tables: &Tables, now: u64) -> Released {
        let sids: HashSet<ipnet::Ipv6Net> = desired.sids.iter().map(|sid| sid.prefix).collect();
        let paths = desired.steers.iter().flat_map(|steer| &steer.paths);
        let paths: HashSet<&str> = paths.map(|path| path.name.as_str()).collect();
        let adjacencies: HashSet<u32> = tables.adjacencies.iter().map(|adjacency| adjacency.slot).collect();
        Released {
            sids: self.sids.release(now, |prefix, _| sids.contains(prefix)),
            paths: self.paths.release(now, |name, _| paths.contains(name.as_str())),
            adjacencies: self.adjacencies.release(now, |_, slot| adjacencies.contains(&slot)),
        }
    }

    /// Makes released slots available to new keys.
    pub fn reuse(&mut self, released: Released) {
        self.sids.free.extend(released.sids);
        self.paths.free.extend(released.paths);
        self.adjacencies.free.extend(released.adjacencies);
    }
}

/// Numbers given to keys, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names<K> {
    given: BTreeMap<K, Given>,
    /// Numbers below `end` that no key has at present.
    free: BTreeSet<u32>,
    end: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Given {
    slot: u32,
    unused_since: Option<u64>,
}

impl<K> Default for Names<K> {
    fn default() -> Self {
        Self { given: BTreeMap::new(), free: BTreeSet::new(), end: 0 }
    }
}

impl<K: Clone + Ord> Names<K> {
    /// Returns the slot of `key`. A key without one gets the lowest free slot.
    pub fn slot(&mut self, key: K) -> u32 {
        let Self { given, free, end } = self;
        let given = given.entry(key).or_insert_with(|| {
            let slot = free.pop_first().unwrap_or_else(|| {
                *end += 1;
                *end - 1
            });
            Given { slot, unused_since: None }
        });
        given.unused_since = None;
        given.slot
    }

    /// Returns the slot of `key`, if it has one.
    pub fn find(&self, key: &K) -> Option<usize> {
        self.given.get(key).map(|given| given.slot as usize)
    }

    /// Returns the keys with their slots.
    pub fn iter(&self) -> impl Iterator<Item = (&K, usize)> {
        self.given.iter().map(|(key, given)| (key, given.slot as usize))
    }

    /// Returns one more than the highest slot ever given.
    pub fn places(&self) -> usize {
        self.end as usize
    }

    fn release(&mut self, now: u64, is_used: impl Fn(&K, u32) -> bool) -> BTreeSet<u32> {
        let mut unused = Vec::new();
        for (key, given) in &mut self.given {
            if is_used(key, given.slot) {
                given.unused_since = None;
            } else {
                unused.push((*given.unused_since.get_or_insert(now), key.clone()));
            }
        }
        unused.sort();
        let too_many = unused.len().saturating_sub(Slots::KEPT);
        let gone = unused.into_iter().take(too_many);
        gone.filter_map(|(_, key)| self.given.remove(&key)).map(|given| given.slot).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_keys_that_are_gone_are_given_out_again_the_lowest_first() {
        let mut names = Names::default();
        let most = u32::try_from(Slots::KEPT).unwrap_or(0);
        let all = most + 100;
        for number in 0..all {
            assert_eq!(names.slot(number), number);
        }
        assert!(names.release(1, |_, _| true).is_empty());
        // The keys below 50 were used least recently, so all of them except one lose their slots first.
        assert!(names.release(2, |&key, _| key >= 50).is_empty(), "so many are kept");
        assert_eq!(names.slot(7), 7, "it is back, and counts on");
        let released = names.release(3, |&key, _| key == 7 || key == all - 1);
        assert_eq!(released.len(), 98, "all but the kept and the two in use");
        let least_recent = (0..50).filter(|&slot| slot != 7);
        assert!(least_recent.clone().all(|slot| released.contains(&slot)), "{released:?}");
        assert_eq!(names.slot(5000), all, "nobody has said yet that the released ones can be used");
        names.free.extend(released);
        assert_eq!([names.slot(5001), names.slot(5002), names.slot(7)], [0, 1, 7]);
        assert_eq!(names.places(), all as usize + 1);
    }
}
