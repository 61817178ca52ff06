//! Longest-prefix match.
//!
//! Prefixes of one length share a hash table; a lookup searches the lengths by halves. An entry that only says
//! "longer ones exist" (a marker) knows the best match so far, so the search never goes back (Waldvogel et al.,
//! "Scalable High Speed IP Routing Lookups", 1997). n lengths cost log2(n) probes: two or three in practice.
//!
//! In front of it stands an index for locator blocks: behind a /32 block the next 16 bits are the uSID, and one load
//! answers for every uSID that has nothing longer than /48. A few uSIDs that have (a node's own: its functions are /64)
//! get a second index over the 16 bits behind them.
//!
//! Addresses are big-endian `u128`, IPv4 addresses in the upper 32 bits.

#![allow(clippy::cast_possible_truncation)] // taking bits out of an address

/// What a lookup returns: an index the caller gave. `u32::MAX` is reserved.
pub type Value = u32;

const NONE: Value = Value::MAX;

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

#[inline]
fn hash(bits: u128) -> u64 {
    let (high, low) = ((bits >> 64) as u64, bits as u64);
    let product = u128::from(high ^ 0x9e37_79b9_7f4a_7c15) * u128::from(low ^ 0xd6e8_feb8_6659_fd93 | 1);
    (product >> 64) as u64 ^ product as u64
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    high: u64,
    low: u64,
    value: Value,
    state: u8,
}

const EMPTY: u8 = 0;
const LEAF: u8 = 1;
const LONGER: u8 = 2;

/// Prefixes of one length, and markers for longer ones: open addressing, at most half full.
#[derive(Clone, Debug)]
struct Level {
    len: u8,
    shift: u32,
    slots: Vec<Slot>,
}

impl Level {
    fn with_capacity(len: u8, entries: usize) -> Self {
        let size = (entries * 2).next_power_of_two().max(8);
        let slots = vec![Slot { high: 0, low: 0, value: NONE, state: EMPTY }; size];
        Self { len, shift: 64 - size.trailing_zeros(), slots }
    }

    #[inline]
    fn find(&self, bits: u128) -> Option<&Slot> {
        let (high, low) = ((bits >> 64) as u64, bits as u64);
        let mut index = (hash(bits) >> self.shift) as usize;
        loop {
            let slot = self.slots.get(index)?;
            if slot.state == EMPTY {
                return None;
            }
            if slot.high == high && slot.low == low {
                return Some(slot);
            }
            index = (index + 1) & (self.slots.len() - 1);
        }
    }

    fn entry(&mut self, bits: u128) -> Option<&mut Slot> {
        let (high, low) = ((bits >> 64) as u64, bits as u64);
        let mut index = (hash(bits) >> self.shift) as usize;
        while self.slots.get(index).is_some_and(|slot| slot.state != EMPTY && (slot.high, slot.low) != (high, low)) {
            index = (index + 1) & (self.slots.len() - 1);
        }
        let slot = self.slots.get_mut(index)?;
        if slot.state == EMPTY {
            *slot = Slot { high, low, value: NONE, state: LEAF };
        }
        Some(slot)
    }
}

/// Prefixes of any length.
#[derive(Clone, Debug, Default)]
struct ByLength {
    levels: Vec<Level>,
    default: Option<Value>,
}

impl ByLength {
    /// `entries` sorted by length, without duplicates.
    fn build(entries: &[(Key, Value)]) -> Self {
        let default = entries.iter().find(|(key, _)| key.len == 0).map(|&(_, value)| value);
        let mut counts = [0usize; 129];
        for (key, _) in entries {
            if let Some(count) = counts.get_mut(usize::from(key.len)) {
                *count += 1;
            }
        }
        let lengths: Vec<u8> =
            (1..=128).filter(|&len| counts.get(usize::from(len)).is_some_and(|&count| count > 0)).collect();
        let mut markers = vec![Vec::new(); lengths.len()];
        for (key, _) in entries.iter().filter(|(key, _)| key.len > 0) {
            for at in marker_levels(&lengths, key.len) {
                if let (Some(list), Some(&len)) = (markers.get_mut(at), lengths.get(at)) {
                    list.push(key.bits & mask(len));
                }
            }
        }
        let mut levels: Vec<Level> = Vec::with_capacity(lengths.len());
        let mut rest = entries.iter().skip_while(|(key, _)| key.len == 0).peekable();
        for (&len, mut marks) in lengths.iter().zip(markers) {
            marks.sort_unstable();
            marks.dedup();
            let own = counts.get(usize::from(len)).copied().unwrap_or(0);
            let mut level = Level::with_capacity(len, own + marks.len());
            while let Some((key, value)) = rest.next_if(|(key, _)| key.len == len) {
                if let Some(slot) = level.entry(key.bits) {
                    slot.value = *value;
                }
            }
            for bits in marks {
                let best = covering(&levels, bits);
                if let Some(slot) = level.entry(bits) {
                    slot.state = LONGER;
                    if slot.value == NONE {
                        slot.value = best;
                    }
                }
            }
            levels.push(level);
        }
        Self { levels, default }
    }

    #[inline]
    fn lookup(&self, address: u128) -> Option<Value> {
        let mut best = NONE;
        let (mut low, mut high) = (0, self.levels.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let level = self.levels.get(middle)?;
            match level.find(address & mask(level.len)) {
                Some(slot) => {
                    if slot.value != NONE {
                        best = slot.value;
                    }
                    if slot.state == LEAF {
                        break;
                    }
                    low = middle + 1;
                }
                None => high = middle,
            }
        }
        if best == NONE { self.default } else { Some(best) }
    }

    fn memory(&self) -> usize {
        self.levels.iter().map(|level| level.slots.len() * size_of::<Slot>()).sum()
    }
}

/// Levels that a search for `len` passes on its way down to longer prefixes.
fn marker_levels(lengths: &[u8], len: u8) -> Vec<usize> {
    let mut passed = Vec::new();
    let (mut low, mut high) = (0, lengths.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        match lengths.get(middle) {
            Some(&at) if at < len => {
                passed.push(middle);
                low = middle + 1;
            }
            Some(&at) if at > len => high = middle,
            _ => break,
        }
    }
    passed
}

/// Value of the longest prefix in `levels` (shortest first) that covers `bits`; a marker there knows its own best.
fn covering(levels: &[Level], bits: u128) -> Value {
    levels
        .iter()
        .rev()
        .filter_map(|level| level.find(bits & mask(level.len)))
        .map(|slot| slot.value)
        .find(|&value| value != NONE)
        .unwrap_or(NONE)
}

/// uSIDs of one /32 block: best match of every /48 inside it, and whether something longer exists there.
#[derive(Clone, Debug)]
struct UsidIndex {
    block: u32,
    entries: Vec<u32>,
    /// The same for the 16 bits behind some uSIDs: best match of every /64, and whether something longer exists there.
    functions: Vec<(u16, Vec<u32>)>,
}

/// uSIDs of one block that get a second index: 256 KiB each.
const MAX_FUNCTION_INDEXES: usize = 8;

const LONGER_INSIDE: u32 = 1 << 31;

/// A table of prefixes.
#[derive(Clone, Debug, Default)]
pub struct Lpm {
    blocks: Vec<UsidIndex>,
    inside: ByLength,
    general: ByLength,
    len: usize,
}

impl Lpm {
    /// Builds the table. Of two equal prefixes the first one wins. Values stay below 2^31 - 1.
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
        let block = (address >> 96) as u32;
        for index in &self.blocks {
            if index.block == block {
                return self.lookup_inside(index, address);
            }
        }
        self.general.lookup(address)
    }

    #[inline]
    fn lookup_inside(&self, index: &UsidIndex, address: u128) -> Option<Value> {
        let entry = index.entry(address)?;
        if entry & LONGER_INSIDE != 0
            && let Some(value) = self.inside.lookup(address)
        {
            return Some(value);
        }
        let value = entry & !LONGER_INSIDE;
        (value != NONE & !LONGER_INSIDE).then_some(value)
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
    fn build(block: u32, covering: Option<Value>, indexed: &[(Key, Value)]) -> Self {
        let inside: Vec<_> = indexed.iter().copied().filter(|(key, _)| (key.bits >> 96) as u32 == block).collect();
        let entries = direct(covering.unwrap_or(NONE), &inside, 48);
        let mut functions: Vec<(u16, Vec<u32>)> = Vec::new();
        for &(key, _) in inside.iter().filter(|(key, _)| key.len > 48) {
            let usid = (key.bits >> 80) as u16;
            if functions.len() < MAX_FUNCTION_INDEXES && !functions.iter().any(|(known, _)| *known == usid) {
                let behind: Vec<_> =
                    inside.iter().copied().filter(|(key, _)| key.len > 48 && (key.bits >> 80) as u16 == usid).collect();
                let covering = entries.get(usize::from(usid)).map_or(NONE, |entry| entry & !LONGER_INSIDE);
                functions.push((usid, direct(covering, &behind, 64)));
            }
        }
        Self { block, entries, functions }
    }

    #[inline]
    fn entry(&self, address: u128) -> Option<u32> {
        let usid = (address >> 80) as u16;
        let entry = self.entries.get(usize::from(usid)).copied()?;
        if entry & LONGER_INSIDE != 0 {
            for (known, functions) in &self.functions {
                if *known == usid {
                    return functions.get(usize::from((address >> 64) as u16)).copied();
                }
            }
        }
        Some(entry)
    }
}

/// Best match for every value of the 16 bits that end at bit `end`. `prefixes` are longer than `end` - 16 bits, agree in
/// what is in front of these, and are sorted by length.
fn direct(covering: Value, prefixes: &[(Key, Value)], end: u8) -> Vec<u32> {
    let mut entries = vec![covering & !LONGER_INSIDE; 1 << 16];
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
#[allow(clippy::unwrap_used)] // a failed test may panic
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
            for address in probes.into_iter().chain(entries.iter().map(|(key, _)| key.bits)) {
                prop_assert_eq!(lpm.lookup(address), naive(&entries, address), "address {:032x}", address);
            }
        }
    }
}
