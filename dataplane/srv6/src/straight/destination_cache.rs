//! Where the last destinations led: large flows send many packets to few destinations, and most of a search is spared.
//!
//! An address has one place, and another one in the same cache line. What stands there may be another address, or be of
//! other tables, and counts for nothing then.
//!
//! Where every packet has a destination of its own, to ask and to remember takes longer than the search. So a cache that
//! did not know enough of a burst is left alone for a while ([`Trust`]).

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

    /// What marks values of this family ([`Found`]).
    #[inline]
    pub(super) const fn mark(self) -> u32 {
        (self.0 as u32 & 1) * Found::IS_V4
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
        let is_another = |&[high, low, whose, _]: &Entry| whose == of.0 && [high, low] != address;
        let is_taken = entries.get(place).is_some_and(is_another);
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
        let entry = self.0.get(place)?;
        if let Some(found) = told(entry, of, address) {
            return Some(found);
        }
        self.beside(place, of, address)
    }

    /// In the same cache line.
    #[cold]
    #[inline(never)]
    fn beside(self, place: usize, of: Of, address: u128) -> Option<Found> {
        told(self.0.get(place ^ 1)?, of, address)
    }

    /// Nothing is known here.
    pub(super) const fn none() -> Self {
        Places(&[])
    }
}

/// Word by word: arrays of them would be compared through memory.
#[inline(always)]
fn told(&[high, low, whose, found]: &Entry, of: Of, address: u128) -> Option<Found> {
    let is_known = (high, low) == ((address >> 64) as u64, address as u64) && whose == of.0;
    is_known.then_some(Found::from_bits(found as u32))
}

/// Whether to ask the cache about what comes in through a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trust {
    edition: Edition,
    /// Bursts until it is asked again.
    left_alone: u16,
    /// How many these were last time.
    times: u16,
    /// Bursts in a row of which it knew something, but not enough.
    learning: u16,
}

impl Trust {
    /// Bursts in which what is remembered becomes enough, if it ever does.
    const LEARNING: u16 = 64;
    /// Most bursts that it is left alone for.
    const ALONE: u16 = 1023;

    /// For the next burst. Other tables are worth a new try.
    #[inline]
    pub(super) fn asks(&mut self, edition: Edition) -> bool {
        if self.edition != edition {
            *self = Self { edition, ..Self::default() };
        }
        let asks = self.left_alone == 0;
        self.left_alone = self.left_alone.saturating_sub(1);
        asks
    }

    /// It was asked, and of so many packets these were searched for. A quarter of them may be; up to seven eighths for as
    /// long as it takes to learn. Otherwise it is left alone, each time in a row for twice as long.
    #[inline]
    pub(super) fn learn(&mut self, packets: usize, searched: usize) {
        if 4 * searched <= packets {
            (self.times, self.learning) = (0, 0);
        } else if 8 * searched <= 7 * packets && self.learning < Self::LEARNING {
            self.learning += 1;
        } else {
            self.times = (2 * self.times + 1).min(Self::ALONE);
            (self.left_alone, self.learning) = (self.times, 0);
        }
    }
}

#[inline(always)]
const fn place([high, low]: [u64; 2]) -> usize {
    (high.wrapping_mul(FACTORS[0]).wrapping_add(low.wrapping_mul(FACTORS[1])) >> (64 - PLACES)) as usize
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a failed test may panic")]
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
        cache.put(of, addresses[0], found(7));
        assert_eq!(known(&cache, of), [Some(found(7)), None, Some(found(2))], "the same address has the same place");
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
    fn a_cache_that_knows_little_is_left_alone_for_longer_and_longer() {
        let (mut trust, edition) = (Trust::default(), Edition::next());
        let mut asked = |searched, bursts, edition| {
            let asks = |_: &u32| {
                let asks = trust.asks(edition);
                if asks {
                    trust.learn(64, searched);
                }
                asks
            };
            (0..bursts).filter(asks).count()
        };
        assert_eq!(asked(64, 200, edition), 7, "bursts 0, 2, 6, 14, 30, 62, 126");
        assert_eq!(asked(64, 1 << 16, edition), 3 + 63, "then 254, 510, 1022, and every 1024th");
        assert!(asked(16, 1024, edition) >= 1);
        assert_eq!(asked(16, 200, edition), 200, "it knows enough");
        assert_eq!(asked(40, 66, edition), 65, "it learns, and is left alone for a burst");
        assert_eq!((asked(40, 1 << 16, edition) * 100) >> 16, 6, "of a hundred: it never learns enough");
        assert_eq!(asked(16, 200, Edition::next()), 200, "other tables");
    }

    #[test]
    fn places_fill_a_huge_page() {
        let range = DestinationCache::new().range();
        assert_eq!((range.start as usize % SIZE, range.end as usize - range.start as usize), (0, SIZE));
    }
}
