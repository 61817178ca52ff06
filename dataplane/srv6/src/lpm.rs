//! Longest-prefix match.
//!
//! Prefixes are searched by length (`by_length`). In front of that search stands an index for locator blocks. Behind
//! a /32 block the next 16 bits are the uSID, and one load answers for every uSID that has no prefix longer than /48.
//! A few uSIDs that have longer ones (those of the node itself: its functions are /64) get a second index over the
//! next 16 bits.
//!
//! Addresses are numbers (`u128`, converted from big-endian), IPv4 addresses in the upper 32 bits.

#![allow(clippy::cast_possible_truncation, reason = "taking bits out of an address; bursts are short")]
#![allow(clippy::inline_always, reason = "what an index answers is answered in a handful of instructions")]

mod amend;
mod by_length;
mod prefixes;

use std::ops::Range;

use by_length::ByLength;
pub use prefixes::{Meaning, Prefixes, TooMuch};

/// The result of a look-up: a number that the caller gave, below 2^31 - 2.
pub type Value = u32;

/// The value that stands for no result.
const NONE: Value = (1 << 31) - 2;

/// A prefix: network bits and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Length in bits, 0..=128.
    pub len: u8,
    /// Network bits. The host bits are zero.
    pub bits: u128,
}

impl Key {
    /// Creates a key. `bits` is masked to `len`.
    pub fn new(bits: u128, len: u8) -> Self {
        Self { len, bits: bits & mask(len) }
    }
}

#[inline]
fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

/// Index of the uSIDs of one /32 block: best match of every /48 inside it, and whether longer prefixes exist there.
#[derive(Clone, Debug)]
struct UsidIndex {
    block: u32,
    /// Best match of the block itself.
    covering: Value,
    entries: Box<[u32]>,
    /// Indexes of the 16 bits behind some uSIDs: best match of every /64, and whether longer prefixes exist there.
    functions: Vec<(u16, Box<[u32]>)>,
}

/// Largest number of uSIDs of one block that get a second index, of 256 KiB each.
const MAX_FUNCTION_INDEXES: usize = 8;

const LONGER_INSIDE: u32 = 1 << 31;

/// One of several look-ups that are made together. `id` is a number that the caller chose.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    address: u128,
    value: Value,
    node: u32,
    /// Bucket of the node that the search begins with.
    bucket: u32,
    id: u32,
}

impl Search {
    /// Creates a look-up of an address. `id` is a number that the caller chooses.
    #[inline]
    pub const fn new(address: u128, id: usize) -> Self {
        Self { address, value: NONE, node: 0, bucket: 0, id: id as u32 }
    }

    /// Returns the address that is looked up.
    #[inline]
    pub const fn address(&self) -> u128 {
        self.address
    }

    /// Returns the caller's number.
    #[inline]
    pub const fn id(&self) -> usize {
        self.id as usize
    }
}

/// A table of prefixes.
#[derive(Clone, Debug, Default)]
pub struct Lpm {
    blocks: Vec<UsidIndex>,
    inside: ByLength,
    general: ByLength,
    len: usize,
}

impl Lpm {
    /// Builds the table. Of two equal prefixes the first one wins. Values stay below 2^31 - 2.
    /// `blocks` are the upper 32 bits of the locator blocks that get an index of their own.
    pub fn build(mut entries: Vec<(Key, Value)>, blocks: &[u32]) -> Self {
        entries.sort_by_key(|&(key, _)| key);
        entries.dedup_by_key(|&mut (key, _)| key);
        let len = entries.len();
        let in_block = |key: &Key| key.len > 32 && blocks.contains(&((key.bits >> 96) as u32));
        let (indexed, outside): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(key, _)| in_block(key));
        let general = ByLength::build(&outside);
        let blocks = blocks
            .iter()
            .map(|&block| UsidIndex::build(block, general.look_up(u128::from(block) << 96), &indexed))
            .collect();
        let long: Vec<_> = indexed.into_iter().filter(|(key, _)| key.len > 48).collect();
        Self { blocks, inside: ByLength::build(&long), general, len }
    }

    /// Returns the value of the longest prefix that covers `address`.
    #[inline]
    pub fn look_up(&self, address: u128) -> Option<Value> {
        let value = self.in_block(address).unwrap_or_else(|| self.general.look_up(address));
        (value != NONE).then_some(value)
    }

    /// Returns the upper 32 bits of the first block that has an index. [`look_up`](Self::lookup) is fast there.
    #[inline]
    pub fn first_block(&self) -> Option<u32> {
        self.blocks.first().map(|index| index.block)
    }

    /// Returns the value of the longest prefix that covers `address`, which must lie in the [first
    /// block](Self::first_block).
    #[inline(always)]
    pub(crate) fn look_up_in_first_block(&self, address: u128) -> Option<Value> {
        let value = self.look_up_inside(self.blocks.first()?, address);
        (value != NONE).then_some(value)
    }

    /// Looks up all these addresses and passes the result of each to `led_to`. This is fastest for addresses that no
    /// index answers for.
    #[inline]
    pub fn look_up_all(&self, searches: &mut Vec<Search>, mut led_to: impl FnMut(Search, Option<Value>)) {
        self.general.look_up_all(searches);
        for search in searches.drain(..) {
            let value = self.in_block(search.address).unwrap_or_else(|| self.general.value(&search));
            led_to(search, (value != NONE).then_some(value));
        }
    }

    /// Returns the value of an address in an indexed block, which is [`NONE`] if no prefix covers it. Returns `None`
    /// for an address outside of the blocks.
    #[inline(always)]
    fn in_block(&self, address: u128) -> Option<Value> {
        let block = (address >> 96) as u32;
        let first = self.blocks.first()?;
        if first.block == block {
            return Some(self.look_up_inside(first, address));
        }
        if self.blocks.len() > 1 { self.in_another_block(block, address) } else { None }
    }

    /// Searches the other blocks. It is not inlined, because most nodes have one block.
    #[inline(never)]
    fn in_another_block(&self, block: u32, address: u128) -> Option<Value> {
        let index = self.blocks.iter().find(|index| index.block == block)?;
        Some(self.look_up_inside(index, address))
    }

    #[inline]
    fn look_up_inside(&self, index: &UsidIndex, address: u128) -> Value {
        let entry = index.entry(address);
        if entry & LONGER_INSIDE != 0 {
            let value = self.inside.look_up(address);
            if value != NONE {
                return value;
            }
        }
        entry & !LONGER_INSIDE
    }

    /// Number of prefixes in the table.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the table has no prefix.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the memory ranges of its hash tables, which are read at random places.
    pub fn ranges(&self) -> impl Iterator<Item = Range<*const u8>> {
        self.general.ranges().chain(self.inside.ranges())
    }
}

impl UsidIndex {
    /// Builds the index of one block. `indexed` are prefixes longer than /32, sorted by length, of this and other
    /// blocks.
    fn build(block: u32, covering: Value, indexed: &[(Key, Value)]) -> Self {
        let inside: Vec<_> = indexed.iter().copied().filter(|(key, _)| (key.bits >> 96) as u32 == block).collect();
        let entries = direct(covering, &inside, 48);
        let mut functions: Vec<(u16, Box<[u32]>)> = Vec::new();
        for &(key, _) in inside.iter().filter(|(key, _)| key.len > 48) {
            let usid = (key.bits >> 80) as u16;
            if functions.len() < MAX_FUNCTION_INDEXES && !functions.iter().any(|(known, _)| *known == usid) {
                let behind: Vec<_> =
                    inside.iter().copied().filter(|(key, _)| key.len > 48 && (key.bits >> 80) as u16 == usid).collect();
                let covering = at(&entries, usid) & !LONGER_INSIDE;
                functions.push((usid, direct(covering, &behind, 64)));
            }
        }
        Self { block, covering, entries, functions }
    }

    #[inline]
    fn entry(&self, address: u128) -> u32 {
        let usid = (address >> 80) as u16;
        let entry = at(&self.entries, usid);
        if entry & LONGER_INSIDE == 0 {
            return entry;
        }
        let functions = self.functions.iter().find(|(known, _)| *known == usid);
        functions.map_or(entry, |(_, functions)| at(functions, (address >> 64) as u16))
    }
}

#[inline]
fn at(table: &[u32], index: u16) -> u32 {
    table.get(usize::from(index)).copied().unwrap_or(NONE)
}

/// Returns the best match for every value of the 16 bits that end at bit `end`. `prefixes` are longer than `end` - 16
/// bits, have the same bits in front of these 16, and are sorted by length.
fn direct(covering: Value, prefixes: &[(Key, Value)], end: u8) -> Box<[u32]> {
    let mut entries = vec![covering; 1 << 16].into_boxed_slice();
    lay_over(&mut entries, prefixes, end);
    entries
}

/// Writes prefixes over existing entries. A prefix inside another one comes after it.
fn lay_over(entries: &mut [u32], prefixes: &[(Key, Value)], end: u8) {
    for (key, value) in prefixes {
        let first = usize::from((key.bits >> (128 - end)) as u16);
        let span = if key.len > end { 0 } else { 1usize << (end - key.len) };
        if let Some(range) = entries.get_mut(first..first + span) {
            range.fill(*value);
        }
        if let (0, Some(entry)) = (span, entries.get_mut(first)) {
            *entry |= LONGER_INSIDE;
        }
    }
}

#[cfg(test)]
mod tests;
