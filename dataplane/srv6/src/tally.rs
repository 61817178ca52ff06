//! Counters of SIDs, paths and adjacencies.
//!
//! Written by one worker, read by control: a relaxed load and store, never a locked instruction.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Packets and bytes.
#[derive(Debug, Default)]
pub struct Count {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    /// Adds so many packets of so many bytes together. Only the owning worker calls this.
    #[inline]
    pub fn add(&self, packets: usize, bytes: usize) {
        self.packets.store(self.packets.load(Relaxed) + packets as u64, Relaxed);
        self.bytes.store(self.bytes.load(Relaxed) + bytes as u64, Relaxed);
    }

    /// Packets and bytes so far.
    pub fn read(&self) -> (u64, u64) {
        (self.packets.load(Relaxed), self.bytes.load(Relaxed))
    }
}

/// The counters of one worker, by slot.
#[derive(Debug, Default)]
pub struct Tally {
    /// Per SID: packets that matched it and went on, with their IPv6 length as received.
    pub sids: Box<[Count]>,
    /// Per path: packets encapsulated, with their outer length.
    pub paths: Box<[Count]>,
    /// Per adjacency: packets sent, with their layer-3 length.
    pub adjacencies: Box<[Count]>,
    /// Per tagged port: frames received, with their whole length.
    pub vlans_rx: Box<[Count]>,
    /// Per tagged port: frames sent, with their whole length.
    pub vlans_tx: Box<[Count]>,
    /// Decapsulated packets whose outer header was ECT and inner header Not-ECT (RFC 6040 section 4.2, figure 4).
    pub ecn_unused: Count,
}

impl Tally {
    /// Counters for all slots given out so far, and some to come.
    pub fn new(slots: &Slots) -> Self {
        let counts = |len: usize| (0..len.next_power_of_two().max(16)).map(|_| Count::default()).collect();
        Self {
            sids: counts(slots.sids.len()),
            paths: counts(slots.paths.len()),
            adjacencies: counts(slots.adjacencies.len()),
            vlans_rx: counts(slots.vlans.len()),
            vlans_tx: counts(slots.vlans.len()),
            ecn_unused: Count::default(),
        }
    }

    /// Every slot has its counter here.
    pub fn covers(&self, slots: &Slots) -> bool {
        self.sids.len() >= slots.sids.len()
            && self.paths.len() >= slots.paths.len()
            && self.adjacencies.len() >= slots.adjacencies.len()
            && self.vlans_rx.len() >= slots.vlans.len()
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

    #[inline]
    pub(crate) fn adjacency(&self, slot: u32, packets: usize, bytes: usize) {
        if let Some(count) = self.adjacencies.get(slot as usize) {
            count.add(packets, bytes);
        }
    }
}

/// Which counter belongs to whom. A slot, once given, stays with its key, so counters survive new generations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// By prefix.
    pub sids: Names<ipnet::Ipv6Net>,
    /// By name.
    pub paths: Names<String>,
    /// By port name and address.
    pub adjacencies: Names<(String, std::net::IpAddr)>,
    /// By name of the tagged port.
    pub vlans: Names<String>,
}

/// Numbers given to keys, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names<K>(BTreeMap<K, u32>);

impl<K> Default for Names<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Names<K> {
    /// The slot of `key`, a new one if it has none.
    pub fn slot(&mut self, key: K) -> u32 {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        *self.0.entry(key).or_insert(next)
    }

    /// The slot of `key`, if it has one.
    pub fn find(&self, key: &K) -> Option<usize> {
        self.0.get(key).map(|&slot| slot as usize)
    }

    /// Keys with their slots.
    pub fn iter(&self) -> impl Iterator<Item = (&K, usize)> {
        self.0.iter().map(|(key, &slot)| (key, slot as usize))
    }

    /// Slots given out.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None given out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
