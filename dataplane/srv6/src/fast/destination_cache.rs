//! Cache of the last look-up results. Large flows send many packets to few destinations, so most searches are saved.
//!
//! Each worker has one. An entry is tagged with the epoch of the tables that gave the result, so a publication makes
//! all entries invalid at once and nothing has to be cleared: the first burst with the new tables misses, and its
//! results replace the old entries. The cache is two-way set associative: an address has two places, the entry that
//! its hash selects and the other entry of the same cache line.
//!
//! If every packet has a different destination, reading and filling the cache takes longer than the search. So a
//! cache that misses too often is bypassed for a while ([`Bypass`]).

use std::cell::Cell;
use std::ops::Range;

use super::halves;
use super::look_ups::LookUpResult;
use crate::tables::{Epoch, VrfIndex};

/// The cache has 2^16 entries: two megabytes for a worker, which is a huge page.
const ENTRY_BITS: u32 = 16;
const SIZE: usize = size_of::<Entry>() << ENTRY_BITS;
/// Odd factors whose bits have no order: 2^64 divided by the golden ratio, and by the square root of two.
const FACTORS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xb504_f333_f9de_6485];

/// The scope of a result: the epoch of the tables, a VRF and an address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(u64);

impl Tag {
    /// Number of bits of the VRF and the family, below the epoch.
    const VRF_AND_FAMILY_BITS: u32 = 17;

    #[inline]
    pub(super) const fn v6(epoch: Epoch, vrf: VrfIndex) -> Self {
        Self(epoch.number() << Self::VRF_AND_FAMILY_BITS | (vrf as u64) << 1)
    }

    #[inline]
    pub(super) const fn v4(epoch: Epoch, vrf: VrfIndex) -> Self {
        Self(Self::v6(epoch, vrf).0 | 1)
    }

    /// Returns the bit that marks results of this family ([`LookUpResult`]).
    #[inline]
    pub(super) const fn mark(self) -> u32 {
        (self.0 as u32 & 1) * LookUpResult::IS_V4
    }
}

/// Upper and lower half of an address, tag, and result. An entry of zeros is empty. The words are cells, because
/// entries are written while others are read.
type Entry = [Cell<u64>; 4];

/// The memory of one worker's cache.
#[derive(Debug, Default)]
pub(super) struct DestinationCache {
    /// Twice as many words as the entries need, so that the entries can begin at a huge page. Unused words take no
    /// memory. Without words nothing is cached.
    words: Vec<u64>,
    first: usize,
}

impl DestinationCache {
    pub(super) fn new() -> Self {
        let words = vec![0; 2 * SIZE / size_of::<u64>()];
        let first = words.as_ptr().align_offset(SIZE);
        let mut cache = Self { words, first };
        // Memory that was never written has no pages yet, and cannot be moved to a huge page.
        cache.words_of_entries().fill(0);
        cache
    }

    /// Returns the address range of the entries.
    pub(super) fn range(&self) -> Range<*const u8> {
        let words = self.words.get(self.first..).unwrap_or_default();
        let Range { start, end } = words.get(..SIZE / size_of::<u64>()).unwrap_or_default().as_ptr_range();
        start.cast()..end.cast()
    }

    /// Returns the entries, which can be read and written through several references.
    pub(super) fn entries(&mut self) -> Entries<'_> {
        Entries(Cell::from_mut(self.words_of_entries()).as_slice_of_cells().as_chunks().0)
    }

    fn words_of_entries(&mut self) -> &mut [u64] {
        let words = self.words.get_mut(self.first..).unwrap_or_default();
        words.get_mut(..SIZE / size_of::<u64>()).unwrap_or_default()
    }
}

/// The entries of a cache.
#[derive(Clone, Copy)]
pub(super) struct Entries<'c>(&'c [Entry]);

impl Entries<'_> {
    /// Returns the result for an address, if its first entry holds it.
    #[inline(always)]
    pub(super) fn get(self, tag: Tag, address: u128) -> Option<LookUpResult> {
        let address = halves(address);
        let entry = self.0.get(place(address))?;
        is_hit(entry, tag, address).then(|| result(entry))
    }

    /// Returns the result for an address, if its second entry holds it.
    #[allow(
        clippy::trivially_copy_pass_by_ref,
        reason = "by value it takes a register of a loop that rarely calls this"
    )]
    #[cold]
    #[inline(never)]
    pub(super) fn get_second(self, tag: &Tag, address: u128) -> Option<LookUpResult> {
        let address = halves(address);
        let entry = self.0.get(place(address) ^ 1)?;
        is_hit(entry, *tag, address).then(|| result(entry))
    }

    /// Stores a result. It goes to the second entry if the first one holds a valid result for another address.
    #[inline]
    pub(super) fn put(self, tag: Tag, address: u128, found: LookUpResult) {
        let address = halves(address);
        let place = place(address);
        let (Some(first), Some(second)) = (self.0.get(place), self.0.get(place ^ 1)) else { return };
        let is_taken = first[2].get() == tag.0 && !is_about(first, address);
        let [high, low, of, result] = if is_taken { second } else { first };
        high.set(address[0]);
        low.set(address[1]);
        of.set(tag.0);
        result.set(found.bits().into());
    }

    /// A cache without entries.
    pub(super) const fn none() -> Self {
        Entries(&[])
    }
}

#[inline(always)]
fn is_hit(entry: &Entry, tag: Tag, address: [u64; 2]) -> bool {
    is_about(entry, address) && entry[2].get() == tag.0
}

/// Compares word by word, because arrays would be compared through memory.
#[inline(always)]
fn is_about(entry: &Entry, [high, low]: [u64; 2]) -> bool {
    (entry[0].get() == high) & (entry[1].get() == low)
}

#[inline(always)]
const fn result(entry: &Entry) -> LookUpResult {
    LookUpResult::from_bits(entry[3].get() as u32)
}

/// Decides whether the cache is read for packets that a port received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bypass {
    epoch: Epoch,
    /// Number of bursts until the cache is read again.
    bursts_left: u16,
    /// Length of the last bypass, in bursts.
    length: u16,
    /// Number of consecutive bursts in which more than a quarter, but at most seven eighths, of the packets missed.
    learning: u16,
}

impl Bypass {
    /// Number of bursts after which a low hit rate is no longer accepted.
    const LEARNING: u16 = 64;
    /// Longest bypass, in bursts.
    const LONGEST: u16 = 1023;

    /// Returns true if the next burst is to read the cache. A new epoch ends a bypass.
    #[inline]
    pub(super) fn asks(&mut self, epoch: Epoch) -> bool {
        if self.epoch != epoch {
            *self = Self { epoch, ..Self::default() };
        }
        let asks = self.bursts_left == 0;
        self.bursts_left = self.bursts_left.saturating_sub(1);
        asks
    }

    /// Judges the cache by the number of packets that were looked up, and how many of them missed. Up to a quarter
    /// may miss, and up to seven eighths while the cache still fills. Otherwise it is bypassed, each consecutive time
    /// for twice as long.
    #[inline]
    pub(super) fn learn(&mut self, packets: usize, missed: usize) {
        if 4 * missed <= packets {
            (self.length, self.learning) = (0, 0);
        } else if 8 * missed <= 7 * packets && self.learning < Self::LEARNING {
            self.learning += 1;
        } else {
            self.length = (2 * self.length + 1).min(Self::LONGEST);
            (self.bursts_left, self.learning) = (self.length, 0);
        }
    }
}

/// Returns the place of an address, which is a hash of it.
#[inline(always)]
const fn place([high, low]: [u64; 2]) -> usize {
    (high.wrapping_mul(FACTORS[0]).wrapping_add(low.wrapping_mul(FACTORS[1])) >> (64 - ENTRY_BITS)) as usize
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a failed test may panic")]
mod tests {
    use super::*;

    fn found(number: u32) -> LookUpResult {
        LookUpResult::from_bits(number)
    }

    /// Returns addresses that have the same place.
    fn of_one_place() -> impl Iterator<Item = u128> {
        (1..).map(|low: u128| 0x2001_0db8 << 96 | low).filter(|&address| place(halves(address)) == 7)
    }

    fn known(cache: &mut DestinationCache, tag: Tag, address: u128) -> Option<LookUpResult> {
        cache.entries().get(tag, address).or_else(|| cache.entries().get_second(&tag, address))
    }

    #[test]
    fn what_is_remembered_is_that_of_the_same_tables_and_family() {
        let (mut cache, address) = (DestinationCache::new(), 44 << 120);
        let [first, second] = [Epoch::next(), Epoch::next()];
        assert_eq!(known(&mut cache, Tag::v4(first, 0), address), None);
        cache.entries().put(Tag::v4(first, 0), address, found(9));
        assert_eq!(cache.entries().get(Tag::v4(first, 0), address), Some(found(9)));
        for other in [Tag::v6(first, 0), Tag::v4(first, 1), Tag::v4(second, 0)] {
            assert_eq!(known(&mut cache, other, address), None);
        }
        assert_eq!(known(&mut cache, Tag::v4(first, 0), address | 1), None);
    }

    #[test]
    fn two_addresses_of_one_place_are_both_remembered_and_old_tables_make_room() {
        let (mut cache, tag) = (DestinationCache::new(), Tag::v6(Epoch::next(), 0));
        let addresses: Vec<_> = of_one_place().take(3).collect();
        for (number, &address) in (0..).zip(&addresses) {
            cache.entries().put(tag, address, found(number));
        }
        let all = |cache: &mut _, tag| addresses.iter().map(|&to| known(cache, tag, to)).collect::<Vec<_>>();
        assert_eq!(all(&mut cache, tag), [Some(found(0)), None, Some(found(2))]);
        cache.entries().put(tag, addresses[0], found(7));
        assert_eq!(all(&mut cache, tag), [Some(found(7)), None, Some(found(2))], "the same address has the same place");
        let newer = Tag::v6(Epoch::next(), 0);
        for (number, &address) in (0..2).zip(&addresses) {
            cache.entries().put(newer, address, found(number));
        }
        assert_eq!(all(&mut cache, newer), [Some(found(0)), Some(found(1)), None]);
    }

    #[test]
    fn without_places_nothing_is_remembered() {
        let (mut cache, tag) = (DestinationCache::default(), Tag::v6(Epoch::next(), 0));
        cache.entries().put(tag, 1 << 120, found(1));
        assert_eq!(known(&mut cache, tag, 1 << 120), None);
        assert!(cache.range().is_empty());
    }

    #[test]
    fn a_cache_that_knows_little_is_left_alone_for_longer_and_longer() {
        let (mut bypass, epoch) = (Bypass::default(), Epoch::next());
        let mut asked = |searched, bursts, epoch| {
            let asks = |_: &u32| {
                let asks = bypass.asks(epoch);
                if asks {
                    bypass.learn(64, searched);
                }
                asks
            };
            (0..bursts).filter(asks).count()
        };
        assert_eq!(asked(64, 200, epoch), 7, "bursts 0, 2, 6, 14, 30, 62, 126");
        assert_eq!(asked(64, 1 << 16, epoch), 3 + 63, "then 254, 510, 1022, and every 1024th");
        assert!(asked(16, 1024, epoch) >= 1);
        assert_eq!(asked(16, 200, epoch), 200, "it knows enough");
        assert_eq!(asked(40, 66, epoch), 65, "it learns, and is left alone for a burst");
        assert_eq!((asked(40, 1 << 16, epoch) * 100) >> 16, 6, "of a hundred: it never learns enough");
        assert_eq!(asked(16, 200, Epoch::next()), 200, "other tables");
    }

    #[test]
    fn places_fill_a_huge_page() {
        let range = DestinationCache::new().range();
        assert_eq!((range.start as usize % SIZE, range.end as usize - range.start as usize), (0, SIZE));
    }
}
