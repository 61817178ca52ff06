//! The prefixes of one table besides their compiled form, in an order that makes covering and covered prefixes easy
//! to find.
//!
//! Workers never read this. It tells which entries of the compiled form depend on a changed prefix.

use std::collections::BTreeMap;

use super::{Key, NONE, Value, mask};

/// The reason why a change cannot be made in place and the table must be built anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooMuch {
    /// Too many prefixes lie inside the changed one: each may have markers whose best match is the changed one. A
    /// default route is the best match of most markers and of most of the index in front. Keeping it separate would
    /// cost every packet one more compare.
    Inside,
    /// No prefix had this length when the table was compiled.
    NewLength,
}

/// Largest number of prefixes that are examined for one change.
const MOST: usize = 2048;

/// Place of a prefix in the order by network, then length: a prefix comes before those inside it. Two words are used
/// because they need half the alignment of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    high: u64,
    low: u64,
    len: u8,
}

impl Place {
    fn new(bits: u128, len: u8) -> Self {
        Self { high: (bits >> 64) as u64, low: bits as u64, len }
    }

    fn key(self) -> Key {
        Key { bits: u128::from(self.high) << 64 | u128::from(self.low), len: self.len }
    }
}

impl From<Key> for Place {
    fn from(key: Key) -> Self {
        Self::new(key.bits, key.len)
    }
}

/// One entry of a prefix: a SID, a steered prefix, a route and so on. A prefix may have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// Value that a look-up returns for this entry.
    pub value: Value,
    /// Rank of the entry. The entry with the lowest rank of a prefix is in force.
    pub rank: u8,
    /// Index of the caller's own entry.
    pub at: u32,
}

/// Prefixes sorted by network and length, each with its entry in force.
#[derive(Clone, Debug)]
struct Ordered {
    entries: BTreeMap<Place, Meaning>,
    /// Number of prefixes of each length.
    lengths: [u32; 129],
}

impl Default for Ordered {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), lengths: [0; 129] }
    }
}

impl FromIterator<(Key, Meaning)> for Ordered {
    fn from_iter<T: IntoIterator<Item = (Key, Meaning)>>(entries: T) -> Self {
        let entries: BTreeMap<_, _> = entries.into_iter().map(|(key, meaning)| (Place::from(key), meaning)).collect();
        let mut lengths = [0; 129];
        for place in entries.keys() {
            if let Some(count) = lengths.get_mut(usize::from(place.len)) {
                *count += 1;
            }
        }
        Self { entries, lengths }
    }
}

impl Ordered {
    fn get(&self, key: Key) -> Option<Meaning> {
        self.entries.get(&key.into()).copied()
    }

    fn set(&mut self, key: Key, meaning: Option<Meaning>) {
        let was = match meaning {
            Some(meaning) => self.entries.insert(key.into(), meaning),
            None => self.entries.remove(&key.into()),
        };
        if let Some(count) = self.lengths.get_mut(usize::from(key.len)) {
            *count = *count + u32::from(meaning.is_some()) - u32::from(was.is_some());
        }
    }

    fn has_length(&self, len: u8) -> bool {
        self.lengths.get(usize::from(len)).is_some_and(|&count| count > 0)
    }

    /// Returns all prefixes inside a prefix, itself included, outer ones before inner ones.
    fn inside(&self, key: Key) -> impl Iterator<Item = (Key, Value)> {
        let (first, last) = (Place::new(key.bits, key.len), Place::new(key.bits | !mask(key.len), 128));
        self.entries.range(first..=last).map(|(place, meaning)| (place.key(), meaning.value))
    }
}

/// The prefixes that one part of the compiled form holds.
#[derive(Clone, Copy)]
pub(super) struct View<'p> {
    ordered: &'p Ordered,
    /// Length of the shortest prefixes.
    from: u8,
}

impl<'p> View<'p> {
    pub(super) fn get(self, key: Key) -> Option<Value> {
        self.ordered.get(key).map(|meaning| meaning.value)
    }

    /// Returns the value of the longest prefix of less than `len` bits that covers an address, or [`NONE`].
    pub(super) fn covering(self, bits: u128, len: u8) -> Value {
        let lengths = (self.from..len).rev().filter(|&shorter| self.ordered.has_length(shorter));
        lengths.into_iter().find_map(|shorter| self.get(Key::new(bits, shorter))).unwrap_or(NONE)
    }

    /// Returns all prefixes inside a prefix, itself included, outer ones before inner ones.
    pub(super) fn inside(self, key: Key) -> impl Iterator<Item = (Key, Value)> + 'p {
        self.ordered.inside(key)
    }

    /// Returns all prefixes inside a prefix, if they are few.
    pub(super) fn few_inside(self, key: Key) -> Result<Vec<(Key, Value)>, TooMuch> {
        let few: Vec<_> = self.inside(key).take(MOST + 1).collect();
        if few.len() > MOST { Err(TooMuch::Inside) } else { Ok(few) }
    }

    /// Returns true if this prefix contains a longer one of less than `below` bits.
    pub(super) fn has_inside(self, key: Key, below: u8) -> Result<bool, TooMuch> {
        let last = Place::new(key.bits | !mask(key.len), 128);
        let mut first = Place::new(key.bits, key.len + 1);
        for _ in 0..MOST {
            let Some((place, _)) = (first <= last).then(|| self.ordered.entries.range(first..=last).next()).flatten()
            else {
                return Ok(false);
            };
            if place.len < below {
                return Ok(true);
            }
            // Behind a longer prefix, no shorter one begins before the next network of `below` bits.
            let Some(next) = (place.key().bits | !mask(below)).checked_add(1) else { return Ok(false) };
            first = Place::new(next, 0);
        }
        Err(TooMuch::Inside)
    }
}

/// The prefixes of a table, divided as in its compiled form.
#[derive(Clone, Debug, Default)]
pub struct Prefixes {
    /// Upper 32 bits of the blocks that have an index.
    blocks: Vec<u32>,
    /// Prefixes longer than /32 inside one of these blocks.
    indexed: Ordered,
    outside: Ordered,
    /// Entries that are not in force, because the same prefix has an entry of a lower rank.
    behind: BTreeMap<(Place, u8), Meaning>,
}

impl Prefixes {
    /// Creates the prefixes of a table. `blocks` is as for [`Lpm::build`](super::Lpm::build). The entries of a prefix
    /// come in the order of their rank. Of entries with equal ranks the first is kept.
    pub fn new(mut entries: Vec<(Key, Meaning)>, blocks: &[u32]) -> Self {
        // Trees grow fastest from sorted entries.
        entries.sort_by_key(|&(key, _)| Place::from(key));
        let mut behind = BTreeMap::new();
        entries.dedup_by(|(next, meaning), (kept, counts)| {
            let is_same = next == kept;
            if is_same && meaning.rank != counts.rank {
                behind.entry((Place::from(*next), meaning.rank)).or_insert(*meaning);
            }
            is_same
        });
        let (indexed, outside): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(key, _)| is_in(blocks, *key));
        Self {
            blocks: blocks.to_vec(),
            indexed: indexed.into_iter().collect(),
            outside: outside.into_iter().collect(),
            behind,
        }
    }

    pub(super) fn is_indexed(&self, key: Key) -> bool {
        is_in(&self.blocks, key)
    }

    fn part(&self, key: Key) -> &Ordered {
        if self.is_indexed(key) { &self.indexed } else { &self.outside }
    }

    fn part_mut(&mut self, key: Key) -> &mut Ordered {
        if self.is_indexed(key) { &mut self.indexed } else { &mut self.outside }
    }

    /// Returns all prefixes outside of the blocks, and those that cover a block.
    pub(super) fn outside(&self) -> View<'_> {
        View { ordered: &self.outside, from: 0 }
    }

    /// Returns all prefixes inside the blocks that have at least this length.
    pub(super) fn indexed(&self, from: u8) -> View<'_> {
        View { ordered: &self.indexed, from }
    }

    /// Returns the entry in force of a prefix.
    pub fn get(&self, key: Key) -> Option<Meaning> {
        self.part(key).get(key)
    }

    /// Returns the entry of this rank, whether it is in force or not.
    pub fn of_rank(&self, key: Key, rank: u8) -> Option<Meaning> {
        self.get(key).filter(|meaning| meaning.rank == rank).or_else(|| self.behind.get(&(key.into(), rank)).copied())
    }

    /// Replaces the entry of this rank. `None` removes it.
    pub fn set(&mut self, key: Key, rank: u8, meaning: Option<Meaning>) {
        self.behind.remove(&(key.into(), rank));
        let counts = self.get(key).filter(|counts| counts.rank != rank);
        let other = (Place::from(key), 0)..=(Place::from(key), u8::MAX);
        let other = counts.or_else(|| self.behind.range(other).next().map(|(_, &meaning)| meaning));
        let (first, second) = match (meaning, other) {
            (Some(own), Some(other)) if own.rank < other.rank => (Some(own), Some(other)),
            (Some(own), Some(other)) => (Some(other), Some(own)),
            (own, other) => (own.or(other), None),
        };
        if let Some(first) = first {
            self.behind.remove(&(key.into(), first.rank));
        }
        if let Some(second) = second {
            self.behind.insert((key.into(), second.rank), second);
        }
        self.part_mut(key).set(key, first);
    }

    /// Returns all prefixes inside a prefix, itself included, and all that cover it.
    pub fn around(&self, key: Key) -> impl Iterator<Item = (Key, Value)> {
        let covering = (0..key.len).filter_map(move |len| {
            let shorter = Key::new(key.bits, len);
            self.get(shorter).map(|meaning| (shorter, meaning.value))
        });
        covering.chain(self.inside(key))
    }

    /// Returns all prefixes inside a prefix, itself included.
    pub fn inside(&self, key: Key) -> impl Iterator<Item = (Key, Value)> {
        self.outside.inside(key).chain(self.indexed.inside(key))
    }

    /// Returns the number of entries of this rank.
    pub fn count(&self, rank: u8) -> usize {
        let counting = self.iter().filter(|(_, meaning)| meaning.rank == rank).count();
        counting + self.behind.values().filter(|meaning| meaning.rank == rank).count()
    }

    /// Returns all prefixes with their entries in force, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, Meaning)> {
        let all = self.outside.entries.iter().chain(&self.indexed.entries);
        all.map(|(place, &meaning)| (place.key(), meaning))
    }

    /// Number of prefixes in the table.
    pub fn len(&self) -> usize {
        self.outside.entries.len() + self.indexed.entries.len()
    }

    /// Returns true if there is no prefix.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn is_in(blocks: &[u32], key: Key) -> bool {
    key.len > 32 && blocks.contains(&((key.bits >> 96) as u32))
}
