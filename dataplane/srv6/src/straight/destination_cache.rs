//! Where the last destinations led: large flows send many packets to few destinations, and most of a search is spared.
//!
//! An address has one place. What stands there may be another one, or be of other tables, and counts for nothing then.

use std::ops::Range;

use super::halves;
use super::look_ups::Found;
use crate::tables::{Edition, VrfIndex};

/// Bits of a place: two megabytes for a worker, which is a huge page.
const PLACES: u32 = 16;
const SIZE: usize = size_of::<Entry>() << PLACES;
/// Odd, and their bits in no order: 2^64 divided by the golden ratio, and by the square root of two.
const FACTORS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xb504_f333_f9de_6485];

/// Whose answers they are: of which tables, of which VRF, of which family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Of(u64);

impl Of {
    #[inline]
    pub(super) const fn v6(edition: Edition, vrf: VrfIndex) -> Self {
        Self(edition.number() << 17 | (vrf as u64) << 1)
    }

    #[inline]
    pub(super) const fn v4(edition: Edition, vrf: VrfIndex) -> Self {
        Self(Self::v6(edition, vrf).0 | 1)
    }
}

/// Upper and lower half of an address, whose answer it is, and the answer. Zeros: nothing.
type Entry = [u64; 4];

/// One worker's.
#[derive(Debug, Default)]
pub(super) struct DestinationCache {
    /// Twice as much as all places take: they begin with a huge page. What is not used is no memory.
    /// None at all: nothing is kept.
    words: Vec<u64>,
    first: usize,
}

impl DestinationCache {
    pub(super) fn new() -> Self {
        let words = vec![0; 2 * SIZE / size_of::<u64>()];
        let first = words.as_ptr().align_offset(SIZE);
        let mut cache = Self { words, first };
        // Memory that was never written is in no page yet, and cannot be moved to a huge one.
        cache.places().fill([0; 4]);
        cache
    }

    /// Where it is.
    pub(super) fn range(&self) -> Range<*const u8> {
        let Range { start, end } = self.view().0.as_ptr_range();
        start.cast()..end.cast()
    }

    /// To look into it many times.
    pub(super) fn view(&self) -> Places<'_> {
        let (entries, _) = self.words.get(self.first..).unwrap_or_default().as_chunks();
        Places(entries.get(..1 << PLACES).unwrap_or_default())
    }

    fn places(&mut self) -> &mut [Entry] {
        let (entries, _) = self.words.get_mut(self.first..).unwrap_or_default().as_chunks_mut();
        entries.get_mut(..1 << PLACES).unwrap_or_default()
    }

    #[inline]
    pub(super) fn put(&mut self, of: Of, address: u128, found: Found) {
        let address = halves(address);
        let place = place(address);
        let entries = self.places();
        let is_taken = entries.get(place).is_some_and(|&[_, _, whose, _]| whose == of.0);
        if let Some(entry) = entries.get_mut(if is_taken { place ^ 1 } else { place }) {
            *entry = [address[0], address[1], of.0, u64::from(found.bits())];
        }
    }
}

/// What is in a cache.
#[derive(Clone, Copy)]
pub(super) struct Places<'c>(&'c [Entry]);

impl Places<'_> {
    #[inline(always)]
    pub(super) fn get(self, of: Of, address: u128) -> Option<Found> {
        let place = place(halves(address));
        if let Some(found) = self.at(place, of, address) {
            return Some(found);
        }
        self.beside(place, of, address)
    }

    /// In the same cache line.
    #[cold]
    #[inline(never)]
    fn beside(self, place: usize, of: Of, address: u128) -> Option<Found> {
        self.at(place ^ 1, of, address)
    }

    #[inline(always)]
    fn at(self, place: usize, of: Of, address: u128) -> Option<Found> {
        let &[high, low, whose, found] = self.0.get(place)?;
        let is_known = (high, low) == ((address >> 64) as u64, address as u64) && whose == of.0;
        is_known.then_some(Found::from_bits(found as u32))
    }
}

#[inline(always)]
const fn place([high, low]: [u64; 2]) -> usize {
    (high.wrapping_mul(FACTORS[0]).wrapping_add(low.wrapping_mul(FACTORS[1])) >> (64 - PLACES)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(number: u32) -> Found {
        Found::from_bits(number)
    }

    /// The place of an address is that of the others, too.
    fn of_one_place() -> impl Iterator<Item = u128> {
        (1..).map(|low: u128| 0x2001_0db8 << 96 | low).filter(|&address| place(halves(address)) == 7)
    }

    #[test]
    fn what_is_remembered_is_that_of_the_same_tables_and_family() {
        let (mut cache, address) = (DestinationCache::new(), 44 << 120);
        let [first, second] = [Edition::next(), Edition::next()];
        assert_eq!(cache.view().get(Of::v4(first, 0), address), None);
        cache.put(Of::v4(first, 0), address, found(9));
        assert_eq!(cache.view().get(Of::v4(first, 0), address), Some(found(9)));
        for other in [Of::v6(first, 0), Of::v4(first, 1), Of::v4(second, 0)] {
            assert_eq!(cache.view().get(other, address), None);
        }
        assert_eq!(cache.view().get(Of::v4(first, 0), address | 1), None);
    }

    #[test]
    fn two_addresses_of_one_place_are_both_remembered_and_old_tables_make_room() {
        let (mut cache, of) = (DestinationCache::new(), Of::v6(Edition::next(), 0));
        let addresses: Vec<_> = of_one_place().take(3).collect();
        for (number, &address) in (0..).zip(&addresses) {
            cache.put(of, address, found(number));
        }
        let known =
            |cache: &DestinationCache, of| addresses.iter().map(|&to| cache.view().get(of, to)).collect::<Vec<_>>();
        assert_eq!(known(&cache, of), [Some(found(0)), None, Some(found(2))]);
        let newer = Of::v6(Edition::next(), 0);
        for (number, &address) in (0..2).zip(&addresses) {
            cache.put(newer, address, found(number));
        }
        assert_eq!(known(&cache, newer), [Some(found(0)), Some(found(1)), None]);
    }

    #[test]
    fn without_places_nothing_is_remembered() {
        let mut cache = DestinationCache::default();
        let of = Of::v6(Edition::next(), 0);
        cache.put(of, 1 << 120, found(1));
        assert_eq!(cache.view().get(of, 1 << 120), None);
        assert!(cache.range().is_empty());
    }

    #[test]
    fn places_fill_a_huge_page() {
        let range = DestinationCache::new().range();
        assert_eq!((range.start as usize % SIZE, range.end as usize - range.start as usize), (0, SIZE));
    }
}
