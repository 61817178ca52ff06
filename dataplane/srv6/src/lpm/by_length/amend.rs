//! A changed prefix, in time that does not depend on how many others there are.
//!
//! What a prefix changes in the compiled form:
//!
//! ```text
//! the index in front   all places it covers, except where a longer one of the index covers them
//! its own entry        a prefix, a marker, or nothing
//! the markers          that lead to it: there, as long as anything is behind them
//! markers inside it    their best match, except where a longer one covers them
//! ```
//!
//! All of these are computed from the prefixes there are and set, whatever was there before: a copy that missed some
//! changes may take them all later, in any order.

use super::{ByLength, Head, LONGER, Level, MISS, Tree};
use crate::lpm::prefixes::{TooMuch, View};
use crate::lpm::{Key, Value, mask};

/// A length on the way down the tree to another one.
#[derive(Clone, Copy, Debug)]
struct Step {
    node: usize,
    len: u8,
    /// Entries lead to what is longer than they are, and shorter than this.
    below: u8,
}

/// The way to the entries of one length: the lengths of their markers, and their own.
#[derive(Clone, Debug, Default)]
struct Way {
    markers: Vec<Step>,
    own: Option<Step>,
}

impl<K: Head, const N: usize> Tree<K, N> {
    fn way(&self, len: u8) -> Way {
        let (mut way, mut node, mut below) = (Way::default(), 0, u8::MAX);
        while let Some(level) = self.levels.get(node) {
            let here = level.length();
            // Levels that only fill the tree up stand behind all others.
            let is_filling = here == 0;
            let step = Step { node, len: here, below };
            if here == len {
                way.own = Some(step);
                return way;
            }
            if is_filling || here > len {
                below = if is_filling { below } else { here };
                node = 2 * node + 1;
            } else {
                way.markers.push(step);
                node = 2 * node + 2;
            }
        }
        way
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
        if level.set(key, value) { Ok(()) } else { Err(TooMuch::Full) }
    }
}

impl<K: Head, const N: usize> Level<K, N> {
    fn length(&self) -> u8 {
        self.mask.length()
    }

    /// False: there is no room.
    fn set(&mut self, key: K, value: Value) -> bool {
        if self.replace(key, value) {
            return true;
        }
        let places = self.buckets.len() * N;
        let is_full = self.used as usize + 1 > places - places / 4;
        if !is_full {
            self.insert(key, value);
        }
        !is_full
    }

    /// True: the key was there.
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

    /// Keys that had to go to a later bucket move up, so that a search never meets a gap.
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
    /// Brings everything that depends on a prefix in line with `prefixes`.
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

    /// The entry of a prefix, and the markers that lead to it.
    fn own_entries(&mut self, prefixes: View<'_>, key: Key) -> Result<(), TooMuch> {
        let is_there = prefixes.get(key).is_some();
        if key.len > 64 {
            let way = self.long.way(key.len);
            for step in way.steps(is_there)? {
                let value = entry(prefixes, Key::new(key.bits, step.len), step.below)?;
                self.long.set(step.node, key.bits, value)?;
            }
        }
        let is_there = is_there || key.len > 64 && prefixes.has_inside(Key::new(key.bits, 64), u8::MAX)?;
        let way = self.short.way(key.len.min(64));
        for step in way.steps(is_there)? {
            let of = Key::new(key.bits, step.len);
            let mut value = entry(prefixes, of, step.below)?;
            if step.len == 64 && prefixes.has_inside(of, u8::MAX)? {
                value |= LONGER;
            }
            self.short.set(step.node, key.bits, value)?;
        }
        Ok(())
    }

    /// What markers inside a prefix know as their best match: `best` is that of the prefix itself.
    fn markers_inside(&mut self, key: Key, best: Value, inside: &[(Key, Value)]) -> Result<(), TooMuch> {
        let mut covering = vec![(key, best)];
        let (mut len, mut ways) = (0, (Way::default(), Way::default()));
        for &(inner, value) in inside.iter().filter(|(inner, _)| inner.len > key.len) {
            while covering.last().is_some_and(|(outer, _)| inner.bits & mask(outer.len) != outer.bits) {
                covering.pop();
            }
            if inner.len != len {
                len = inner.len;
                ways = (self.short.way(len.min(64)), if len > 64 { self.long.way(len) } else { Way::default() });
            }
            // Markers longer than the outermost prefix in between have that one, or one inside it.
            let limit = covering.get(1).map_or(len, |(outer, _)| outer.len);
            let is_ours = |step: &&Step| step.len > key.len && step.len < limit;
            let at_64 = ways.0.own.iter().filter(|_| len > 64);
            for step in ways.0.markers.iter().chain(at_64).filter(is_ours) {
                let longer = self.short.at(step.node, inner.bits);
                if longer != MISS {
                    self.short.set(step.node, inner.bits, best | longer & LONGER)?;
                }
            }
            for step in ways.1.markers.iter().filter(is_ours) {
                if self.long.at(step.node, inner.bits) != MISS {
                    self.long.set(step.node, inner.bits, best)?;
                }
            }
            covering.push((inner, value));
        }
        Ok(())
    }
}

impl Way {
    /// Lengths whose entries may have to change. Where nothing is to be led to, a length that is not there is none.
    fn steps(self, is_there: bool) -> Result<impl Iterator<Item = Step>, TooMuch> {
        if is_there && self.own.is_none() {
            return Err(TooMuch::NewLength);
        }
        Ok(self.markers.into_iter().chain(self.own))
    }
}

/// What stands for a network at a length: its own value, the best match before it if it only leads to longer ones, or
/// nothing.
fn entry(prefixes: View<'_>, key: Key, below: u8) -> Result<Value, TooMuch> {
    if let Some(value) = prefixes.get(key) {
        return Ok(value);
    }
    Ok(if prefixes.has_inside(key, below)? { prefixes.covering(key.bits, key.len) } else { MISS })
}
