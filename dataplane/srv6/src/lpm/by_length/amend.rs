//! Applies a changed prefix, in time that does not depend on the number of other prefixes.
//!
//! A changed prefix affects the following parts of the compiled form:
//!
//! ```text
//! the index in front   all places it covers, except where a longer one of the index covers them
//! its own entry        a prefix, a marker, or nothing
//! the markers          that lead to it: there, as long as anything is behind them
//! markers inside it    their best match, except where a longer one covers them
//! ```
//!
//! All of these are computed from the current prefixes, whatever they were before. A copy that missed some changes
//! may apply them later, in any order.

use super::{ByLength, Head, LONGER, Level, MISS, Tree};
use crate::lpm::prefixes::{TooMuch, View};
use crate::lpm::{Key, Value, mask};

/// A length that is visited on the way down the tree to another one.
#[derive(Clone, Copy, Debug)]
struct Visited {
    node: usize,
    len: u8,
    /// Entries of this length lead to longer prefixes up to this length, which is not included.
    below: u8,
}

/// The way down the tree to the entries of one length: the lengths of their markers, and that length itself.
#[derive(Clone, Debug, Default)]
struct Descent {
    markers: Vec<Visited>,
    own: Option<Visited>,
}

impl<K: Head, const N: usize> Tree<K, N> {
    fn descent(&self, len: u8) -> Descent {
        let (mut descent, mut node, mut below) = (Descent::default(), 0, u8::MAX);
        while let Some(level) = self.levels.get(node) {
            let here = level.length();
            // Levels that only fill up the tree stand behind all others.
            let is_filling = here == 0;
            let step = Visited { node, len: here, below };
            if here == len {
                descent.own = Some(step);
                return descent;
            }
            if is_filling || here > len {
                below = if is_filling { below } else { here };
                node = 2 * node + 1;
            } else {
                descent.markers.push(step);
                node = 2 * node + 2;
            }
        }
        descent
    }

    fn at(&self, node: usize, bits: u128) -> Value {
        self.levels.get(node).map_or(MISS, |level| level.find(K::of(bits)))
    }

    fn set(&mut self, node: usize, bits: u128, value: Value) -> Result<(), TooMuch> {
        let level = self.levels.get_mut(node).ok_or(TooMuch::NewLength)?;
        let key = K::of(bits) & level.mask;
        if value == MISS {
            level.remove(key);
            return Ok(());
        }
        level.set(key, value);
        Ok(())
    }
}

impl<K: Head, const N: usize> Level<K, N> {
    fn length(&self) -> u8 {
        self.mask.length()
    }

    fn set(&mut self, key: K, value: Value) {
        if self.replace(key, value) {
            return;
        }
        let places = self.buckets.len() * N;
        if self.used as usize + 1 > places - places / 4 {
            self.grow();
        }
        self.insert(key, value);
    }

    /// Doubles the table. That costs a fraction of building all tables anew, and is needed only when the number of
    /// entries has doubled.
    fn grow(&mut self) {
        let buckets = vec![super::Bucket::EMPTY; self.buckets.len() * 2];
        let smaller = std::mem::replace(&mut self.buckets, buckets);
        (self.shift, self.used) = (self.shift - 1, 0);
        for bucket in smaller {
            let entries = bucket.keys.into_iter().zip(bucket.values);
            entries.filter(|&(_, value)| value != MISS).for_each(|(key, value)| self.insert(key, value));
        }
    }

    /// Replaces the value of a key. Returns true if the key was there.
    fn replace(&mut self, key: K, value: Value) -> bool {
        let mut index = self.bucket_of(key);
        let last = self.buckets.len() - 1;
        while let Some(bucket) = self.buckets.get_mut(index) {
            for (known, slot) in bucket.keys.iter().zip(&mut bucket.values) {
                if *slot != MISS && *known == key {
                    *slot = value;
                    return true;
                }
            }
            if bucket.overflow == 0 {
                return false;
            }
            index = (index + 1) & last;
        }
        false
    }

    /// Removes a key. Keys that had moved to a later bucket move back, so that a search never meets a gap.
    fn remove(&mut self, key: K) {
        if !self.replace(key, MISS) {
            return;
        }
        self.used -= 1;
        let mut moved = Vec::new();
        let (mut index, last) = (self.bucket_of(key), self.buckets.len() - 1);
        let mut goes_on = true;
        while let Some(bucket) = self.buckets.get_mut(index).filter(|_| goes_on) {
            goes_on = bucket.overflow != 0;
            bucket.overflow = 0;
            moved.extend(bucket.take_all());
            index = (index + 1) & last;
        }
        self.used -= u32::try_from(moved.len()).unwrap_or(0);
        for (key, value) in moved {
            self.insert(key, value);
        }
    }
}

impl ByLength {
    /// Updates everything that depends on a prefix.
    pub(in crate::lpm) fn amend(&mut self, prefixes: View<'_>, key: Key) -> Result<(), TooMuch> {
        let inside = prefixes.few_inside(key)?;
        let best = prefixes.get(key).unwrap_or_else(|| prefixes.covering(key.bits, key.len));
        let first_bits = self.first_bits();
        if key.len <= first_bits {
            self.cover(key, best);
            for &(inner, value) in inside.iter().filter(|(inner, _)| inner.len <= first_bits) {
                self.cover(inner, value);
            }
        } else {
            self.own_entries(prefixes, key)?;
        }
        self.markers_inside(key, best, &inside)
    }

    fn first_bits(&self) -> u8 {
        u8::try_from(64 - self.first_shift).unwrap_or(0)
    }

    fn cover(&mut self, key: Key, value: Value) {
        let (at, places) = ((u64::of(key.bits) >> self.first_shift) as usize, 1 << (self.first_bits() - key.len));
        if let Some(covered) = self.first.get_mut(at..at + places) {
            covered.fill(value);
        }
    }

    /// Updates the entry of a prefix, and the markers that lead to it.
    fn own_entries(&mut self, prefixes: View<'_>, key: Key) -> Result<(), TooMuch> {
        let is_there = prefixes.get(key).is_some();
        if key.len > 64 {
            let descent = self.long.descent(key.len);
            for step in descent.steps(is_there)? {
                let value = entry(prefixes, Key::new(key.bits, step.len), step.below)?;
                self.long.set(step.node, key.bits, value)?;
            }
        }
        let is_there = is_there || key.len > 64 && prefixes.has_inside(Key::new(key.bits, 64), u8::MAX)?;
        let descent = self.short.descent(key.len.min(64));
        for step in descent.steps(is_there)? {
            let of = Key::new(key.bits, step.len);
            let mut value = entry(prefixes, of, step.below)?;
            if step.len == 64 && prefixes.has_inside(of, u8::MAX)? {
                value |= LONGER;
            }
            self.short.set(step.node, key.bits, value)?;
        }
        Ok(())
    }

    /// Updates the best match of the markers inside a prefix. `best` is that of the prefix itself.
    fn markers_inside(&mut self, key: Key, best: Value, inside: &[(Key, Value)]) -> Result<(), TooMuch> {
        let mut covering = vec![(key, best)];
        let (mut len, mut descents) = (0, (Descent::default(), Descent::default()));
        for &(inner, value) in inside.iter().filter(|(inner, _)| inner.len > key.len) {
            while covering.last().is_some_and(|(outer, _)| inner.bits & mask(outer.len) != outer.bits) {
                covering.pop();
            }
            if inner.len != len {
                len = inner.len;
                descents = (
                    self.short.descent(len.min(64)),
                    if len > 64 { self.long.descent(len) } else { Descent::default() },
                );
            }
            // Markers longer than the outermost prefix in between have that prefix, or one inside it, as best match.
            let limit = covering.get(1).map_or(len, |(outer, _)| outer.len);
            let is_ours = |step: &&Visited| step.len > key.len && step.len < limit;
            let at_64 = descents.0.own.iter().filter(|_| len > 64);
            for step in descents.0.markers.iter().chain(at_64).filter(is_ours) {
                let longer = self.short.at(step.node, inner.bits);
                if longer != MISS {
                    self.short.set(step.node, inner.bits, best | longer & LONGER)?;
                }
            }
            for step in descents.1.markers.iter().filter(is_ours) {
                if self.long.at(step.node, inner.bits) != MISS {
                    self.long.set(step.node, inner.bits, best)?;
                }
            }
            covering.push((inner, value));
        }
        Ok(())
    }
}

impl Descent {
    /// Returns the lengths whose entries may have to change. A length without a table is an error only if the prefix
    /// exists.
    fn steps(self, is_there: bool) -> Result<impl Iterator<Item = Visited>, TooMuch> {
        if is_there && self.own.is_none() {
            return Err(TooMuch::NewLength);
        }
        Ok(self.markers.into_iter().chain(self.own))
    }
}

/// Returns the entry for a network at a length: its own value, the best match of shorter prefixes if it only leads to
/// longer ones, or [`MISS`].
fn entry(prefixes: View<'_>, key: Key, below: u8) -> Result<Value, TooMuch> {
    if let Some(value) = prefixes.get(key) {
        return Ok(value);
    }
    Ok(if prefixes.has_inside(key, below)? { prefixes.covering(key.bits, key.len) } else { MISS })
}
