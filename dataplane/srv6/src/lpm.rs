//! Longest-prefix match.
//!
//! Prefixes are searched by length (`by_length`). In front of that stands an index for locator blocks: behind a /32
//! block the next 16 bits are the uSID, and one load answers for every uSID that has nothing longer than /48. A few uSIDs
//! that have (a node's own: its functions are /64) get a second index over the 16 bits behind them.
//!
//! Addresses are big-endian `u128`, IPv4 addresses in the upper 32 bits.

#![allow(clippy::cast_possible_truncation, reason = "taking bits out of an address")]

mod by_length;

use by_length::ByLength;

/// What a lookup returns: an index the caller gave, below 2^31 - 2.
pub type Value = u32;

/// No value.
const NONE: Value = (1 << 31) - 2;

/// A prefix: network bits and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Length in bits, 0..=128.
    pub len: u8,
    /// Network, host bits zero.
    pub bits: u128,
}

impl Key {
    /// Masks `bits` to `len`.
    pub fn new(bits: u128, len: u8) -> Self {
        Self { len, bits: bits & mask(len) }
    }
}

#[inline]
fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

/// uSIDs of one /32 block: best match of every /48 inside it, and whether something longer exists there.
#[derive(Clone, Debug)]
struct UsidIndex {
    block: u32,
    entries: Box<[u32]>,
    /// The same for the 16 bits behind some uSIDs: best match of every /64, and whether something longer exists there.
    functions: Vec<(u16, Box<[u32]>)>,
}

/// uSIDs of one block that get a second index: 256 KiB each.
const MAX_FUNCTION_INDEXES: usize = 8;

const LONGER_INSIDE: u32 = 1 << 31;

/// One of several look-ups made together, with a number that is the caller's.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    address: u128,
    value: Value,
    node: u32,
    id: usize,
}

impl Search {
    /// The caller's.
    pub const fn id(&self) -> usize {
        self.id
    }

    /// Value of the longest prefix that covers the address, once it has been looked up.
    pub fn value(&self) -> Option<Value> {
        (self.value != NONE).then_some(self.value)
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
            .map(|&block| UsidIndex::build(block, general.lookup(u128::from(block) << 96), &indexed))
            .collect();
        let long: Vec<_> = indexed.into_iter().filter(|(key, _)| key.len > 48).collect();
        Self { blocks, inside: ByLength::build(&long), general, len }
    }

    /// Value of the longest prefix that covers `address`.
    #[inline]
    pub fn lookup(&self, address: u128) -> Option<Value> {
        let value = self.in_block(address).unwrap_or_else(|| self.general.lookup(address));
        (value != NONE).then_some(value)
    }

    /// Looks up at once what an index answers for; the others go to `searches`, for [`lookup_all`](Self::lookup_all).
    #[inline]
    pub fn lookup_or(&self, address: u128, id: usize, searches: &mut Vec<Search>) -> Option<Value> {
        let Some(value) = self.in_block(address) else {
            searches.push(Search { address, value: NONE, node: 0, id });
            return None;
        };
        (value != NONE).then_some(value)
    }

    /// Looks all these addresses up.
    pub fn lookup_all(&self, searches: &mut [Search]) {
        self.general.lookup_all(searches);
    }

    /// For an address in an indexed block: its value, or [`NONE`].
    #[inline]
    fn in_block(&self, address: u128) -> Option<Value> {
        let block = (address >> 96) as u32;
        self.blocks.iter().find(|index| index.block == block).map(|index| self.lookup_inside(index, address))
    }

    #[inline]
    fn lookup_inside(&self, index: &UsidIndex, address: u128) -> Value {
        let entry = index.entry(address);
        if entry & LONGER_INSIDE != 0 {
            let value = self.inside.lookup(address);
            if value != NONE {
                return value;
            }
        }
        entry & !LONGER_INSIDE
    }

    /// Prefixes in the table.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// No prefix at all.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes the table holds.
    pub fn memory(&self) -> usize {
        self.general.memory()
            + self.inside.memory()
            + self.blocks.iter().map(|index| (1 + index.functions.len()) << 18).sum::<usize>()
    }
}

impl UsidIndex {
    /// `indexed`: prefixes longer than /32, sorted by length, of this and other blocks.
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
        Self { block, entries, functions }
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

/// Best match for every value of the 16 bits that end at bit `end`. `prefixes` are longer than `end` - 16 bits, agree in
/// what is in front of these, and are sorted by length.
fn direct(covering: Value, prefixes: &[(Key, Value)], end: u8) -> Box<[u32]> {
    let mut entries = vec![covering; 1 << 16].into_boxed_slice();
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
    entries
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test may panic")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(entries: &[(Key, Value)], address: u128) -> Option<Value> {
        let mut best: Option<(u8, Value)> = None;
        for &(key, value) in entries {
            if address & mask(key.len) == key.bits && best.is_none_or(|(len, _)| len < key.len) {
                best = Some((key.len, value));
            }
        }
        best.map(|(_, value)| value)
    }

    #[test]
    fn empty_and_default() {
        assert_eq!(Lpm::build(vec![], &[0xfcbb_0000]).lookup(5), None);
        let lpm = Lpm::build(vec![(Key::new(0, 0), 7)], &[0xfcbb_0000]);
        assert_eq!((lpm.lookup(0), lpm.lookup(0xfcbb << 112), lpm.lookup(u128::MAX)), (Some(7), Some(7), Some(7)));
    }

    /// Few distinct bits, so that prefixes nest and addresses hit.
    fn address() -> impl Strategy<Value = u128> {
        let group = prop_oneof![Just(0u16), Just(1), Just(0xffff), Just(0x8000), 0u16..4];
        let head = prop_oneof![Just(0xfcbb_0000u32), Just(0xfcbb_0001), Just(0x2001_0db8)];
        (head, prop::collection::vec(group, 6)).prop_map(|(head, groups)| {
            groups.into_iter().fold(u128::from(head), |bits, group| bits << 16 | u128::from(group))
        })
    }

    fn length() -> impl Strategy<Value = u8> {
        prop_oneof![
            Just(0u8),
            Just(31),
            Just(32),
            Just(33),
            Just(47),
            Just(48),
            Just(49),
            Just(64),
            Just(128),
            0..=128u8
        ]
    }

    proptest! {
        #[test]
        fn equals_the_naive_search(
            prefixes in prop::collection::vec((address(), length()), 0..60),
            probes in prop::collection::vec(address(), 1..60),
            indexed in prop::sample::subsequence(vec![0xfcbb_0000u32, 0xfcbb_0001], 0..=2),
        ) {
            let mut entries: Vec<(Key, Value)> = Vec::new();
            for (index, (bits, len)) in prefixes.iter().enumerate() {
                let key = Key::new(*bits, *len);
                if !entries.iter().any(|(known, _)| *known == key) {
                    entries.push((key, Value::try_from(index).unwrap()));
                }
            }
            let lpm = Lpm::build(entries.clone(), &indexed);
            for address in probes.iter().copied().chain(entries.iter().map(|(key, _)| key.bits)) {
                prop_assert_eq!(lpm.lookup(address), naive(&entries, address), "address {:032x}", address);
            }
            let mut searches = Vec::new();
            let look_up = |(id, &address)| lpm.lookup_or(address, id, &mut searches);
            let mut found: Vec<_> = probes.iter().enumerate().map(look_up).collect();
            lpm.lookup_all(&mut searches);
            for search in &searches {
                found[search.id()] = search.value();
            }
            prop_assert_eq!(found, probes.iter().map(|&address| naive(&entries, address)).collect::<Vec<_>>());
        }
    }
}
