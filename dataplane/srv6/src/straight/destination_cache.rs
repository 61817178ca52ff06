//! Where the last destinations led: large flows send many packets to few destinations, and most of a search is spared.
//!
//! An address has one place, and another one in the same cache line. What stands there may be another address, or be of
//! other tables, and counts for nothing then. Of amended tables it counts as far as the amendments have left it alone
//! ([`Valid`]), and is made of the newer ones where it is found: without a branch in the first bursts in them
//! ([`Places::renew`]), at some cost later, when it is rare. What tables to come will say is kept in the other place, so that
//! a worker knows it when it goes over to them, and all the while what those in force say.
//!
//! Where every packet has a destination of its own, to ask and to remember takes longer than the search. So a cache that
//! did not know enough of a burst is left alone for a while ([`Trust`]).

use std::cell::Cell;
use std::hint::select_unpredictable;
use std::ops::Range;

use super::halves;
use super::look_ups::Found;
use crate::changes::Doubt;
use crate::tables::{Edition, VrfIndex};

/// Bits of a place: two megabytes for a worker, which is a huge page.
const PLACES: u32 = 16;
const SIZE: usize = size_of::<Entry>() << PLACES;
/// Odd, and their bits in no order: 2^64 divided by the golden ratio, and by the square root of two.
const FACTORS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xb504_f333_f9de_6485];

/// Whose answers they are: of which tables, of which VRF, of which family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Of(u64);

/// Which answers count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Valid<'t> {
    pub(super) of: Of,
    /// And older ones that are not older than this, but for what is in doubt since.
    pub(super) since: Of,
    pub(super) doubt: Doubt<'t>,
    /// Of those since then nothing is in doubt but what the last amendment changed.
    pub(super) before_last: Of,
    /// Of tables to come: what those in force have remembered stays where it is.
    pub(super) is_aside: bool,
}

impl Of {
    /// Bits of the VRF and the family, behind the edition.
    const WHOSE_BITS: u32 = 17;
    const WHOSE: u64 = (1 << Self::WHOSE_BITS) - 1;

    #[inline]
    pub(super) const fn v6(edition: Edition, vrf: VrfIndex) -> Self {
        Self(edition.number() << Self::WHOSE_BITS | (vrf as u64) << 1)
    }

    #[inline]
    pub(super) const fn v4(edition: Edition, vrf: VrfIndex) -> Self {
        Self(Self::v6(edition, vrf).0 | 1)
    }

    /// Very many, if that is of another VRF or family, or of later tables.
    #[inline(always)]
    const fn editions_since(self, earlier: Self) -> u64 {
        self.0.wrapping_sub(earlier.0).rotate_right(Self::WHOSE_BITS)
    }

    /// What marks values of this family ([`Found`]).
    #[inline]
    pub(super) const fn mark(self) -> u32 {
        (self.0 as u32 & 1) * Found::IS_V4
    }
}

/// Upper and lower half of an address, whose answer it is, and the answer. Zeros: nothing. Cells, because it is written
/// while others are read.
type Entry = [Cell<u64>; 4];

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
        cache.places().fill(0);
        cache
    }

    /// Where it is.
    pub(super) fn range(&self) -> Range<*const u8> {
        let words = self.words.get(self.first..).unwrap_or_default();
        let Range { start, end } = words.get(..SIZE / size_of::<u64>()).unwrap_or_default().as_ptr_range();
        start.cast()..end.cast()
    }

    /// To look into it many times.
    pub(super) fn view(&mut self) -> Places<'_> {
        Places(Cell::from_mut(self.places()).as_slice_of_cells().as_chunks().0)
    }

    fn places(&mut self) -> &mut [u64] {
        let words = self.words.get_mut(self.first..).unwrap_or_default();
        words.get_mut(..SIZE / size_of::<u64>()).unwrap_or_default()
    }
}

/// What is in a cache.
#[derive(Clone, Copy)]
pub(super) struct Places<'c>(&'c [Entry]);

impl Places<'_> {
    /// What is remembered of these very tables, at the address's own place.
    #[inline(always)]
    pub(super) fn get(self, of: Of, address: u128) -> Option<Found> {
        let address = halves(address);
        let entry = self.0.get(place(address))?;
        (is_about(entry, address) && entry[2].get() == of.0).then(|| answer(entry))
    }

    /// What is remembered otherwise and counts. It is found at once next time, unless there are others like it.
    #[cold]
    #[inline(never)]
    pub(super) fn recall(self, valid: &Valid<'_>, address: u128) -> Option<Found> {
        let [own, other] = self.both(halves(address))?;
        let entry = [own, other].into_iter().find(|entry| valid.covers(entry, address))?;
        let found = answer(entry);
        self.put(valid, address, found);
        Some(found)
    }

    /// The same in tables that are new, and whether it was not there yet: what the last amendment left alone, and what tables
    /// to come said that are in force now. It is found at once from then on. No branch depends on which it is: nobody could
    /// predict that as long as some of it is old and some new.
    #[inline(always)]
    pub(super) fn renew(self, valid: &Valid<'_>, address: u128) -> Option<(Found, bool)> {
        let address = halves(address);
        let [own, other] = self.both(address)?;
        let age = |entry: &Entry| valid.of.editions_since(Of(entry[2].get()));
        let oldest = valid.of.editions_since(valid.before_last);
        let oldest_here = select_unpredictable(valid.doubt.is_about_last(address), 0, oldest);
        let counts = |entry: &Entry| is_about(entry, address) & (age(entry) <= oldest_here);
        let (is_own, is_other, has_room) = (counts(own), counts(other), age(own) > oldest);
        let found = select_unpredictable(is_own, own, other)[3].get();
        let to_own = is_own || has_room;
        let to = select_unpredictable(to_own, own, other);
        (is_own | is_other).then(|| {
            let is_older = select_unpredictable(is_own, age(own), age(other)) > 0 || to_own && !is_own;
            write(to, [address[0], address[1], valid.of.0, found]);
            (Found::from_bits(found as u32), is_older)
        })
    }

    #[inline]
    pub(super) fn put(self, valid: &Valid<'_>, address: u128, found: Found) {
        let (of, address) = (valid.of.0, halves(address));
        let Some([own, other]) = self.both(address) else { return };
        let is_taken = own[2].get() == of && !is_about(own, address);
        let entry = if valid.is_aside || is_taken { other } else { own };
        write(entry, [address[0], address[1], of, found.bits().into()]);
    }

    /// An address's own place, and the other one in the same cache line.
    fn both(&self, address: [u64; 2]) -> Option<[&Entry; 2]> {
        let place = place(address);
        Some([self.0.get(place)?, self.0.get(place ^ 1)?])
    }

    /// Nothing is known here.
    pub(super) const fn none() -> Self {
        Places(&[])
    }
}

impl Valid<'_> {
    #[inline]
    fn covers(&self, entry: &Entry, address: u128) -> bool {
        let whose = entry[2].get();
        let is_whose = (whose ^ self.of.0) & Of::WHOSE == 0 && (self.since.0..=self.of.0).contains(&whose);
        is_whose && is_about(entry, halves(address)) && !self.doubt.is_about(address, whose >> Of::WHOSE_BITS)
    }
}

/// Word by word: arrays of them would be compared through memory.
#[inline(always)]
fn is_about(entry: &Entry, [high, low]: [u64; 2]) -> bool {
    (entry[0].get() == high) & (entry[1].get() == low)
}

#[inline(always)]
fn write([high, low, of, found]: &Entry, words: [u64; 4]) {
    high.set(words[0]);
    low.set(words[1]);
    of.set(words[2]);
    found.set(words[3]);
}

#[inline(always)]
const fn answer(entry: &Entry) -> Found {
    Found::from_bits(entry[3].get() as u32)
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

    /// Not left alone now.
    pub(super) const fn is_asked(&self) -> bool {
        self.left_alone == 0
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
    use crate::changes::Changes;
    use crate::lpm::Key;

    fn found(number: u32) -> Found {
        Found::from_bits(number)
    }

    /// The place of an address is that of the others, too.
    fn of_one_place() -> impl Iterator<Item = u128> {
        (1..).map(|low: u128| 0x2001_0db8 << 96 | low).filter(|&address| place(halves(address)) == 7)
    }

    /// Tables that were never amended.
    fn fresh(of: Of) -> Valid<'static> {
        Valid { of, since: of, before_last: of, doubt: Doubt::none(), is_aside: false }
    }

    /// As a look-up asks.
    fn known(cache: &mut DestinationCache, valid: Valid<'_>, address: u128) -> Option<Found> {
        cache.view().get(valid.of, address).or_else(|| cache.view().recall(&valid, address))
    }

    #[test]
    fn what_is_remembered_is_that_of_the_same_tables_and_family() {
        let (mut cache, address) = (DestinationCache::new(), 44 << 120);
        let [first, second] = [Edition::next(), Edition::next()];
        assert_eq!(known(&mut cache, fresh(Of::v4(first, 0)), address), None);
        cache.view().put(&fresh(Of::v4(first, 0)), address, found(9));
        assert_eq!(cache.view().get(Of::v4(first, 0), address), Some(found(9)));
        for other in [Of::v6(first, 0), Of::v4(first, 1), Of::v4(second, 0)] {
            assert_eq!(known(&mut cache, fresh(other), address), None);
        }
        assert_eq!(known(&mut cache, fresh(Of::v4(first, 0)), address | 1), None);
    }

    #[test]
    fn two_addresses_of_one_place_are_both_remembered_and_old_tables_make_room() {
        let (mut cache, valid) = (DestinationCache::new(), fresh(Of::v6(Edition::next(), 0)));
        let addresses: Vec<_> = of_one_place().take(3).collect();
        for (number, &address) in (0..).zip(&addresses) {
            cache.view().put(&valid, address, found(number));
        }
        let all = |cache: &mut _, valid| addresses.iter().map(|&to| known(cache, valid, to)).collect::<Vec<_>>();
        assert_eq!(all(&mut cache, valid), [Some(found(0)), None, Some(found(2))]);
        cache.view().put(&valid, addresses[0], found(7));
        assert_eq!(
            all(&mut cache, valid),
            [Some(found(7)), None, Some(found(2))],
            "the same address has the same place"
        );
        let newer = fresh(Of::v6(Edition::next(), 0));
        for (number, &address) in (0..2).zip(&addresses) {
            cache.view().put(&newer, address, found(number));
        }
        assert_eq!(all(&mut cache, newer), [Some(found(0)), Some(found(1)), None]);
    }

    #[test]
    fn what_amendments_left_alone_is_made_of_the_amended_tables() {
        let (mut cache, editions) = (DestinationCache::new(), [(); 4].map(|()| Edition::next()));
        let [before, compiled, amended, later] = editions.map(|edition| Of::v6(edition, 3));
        let [touched, spared, elsewhere] = [0x2a00 << 112 | 1, 0x2a01 << 112 | 1, 0x2a02 << 112 | 1];
        for address in [touched, spared] {
            cache.view().put(&fresh(compiled), address, found(5));
        }
        let mut changes = Changes::new(editions[1]);
        changes.add(editions[1], editions[2], &[(true, Key::new(touched, 32))]);
        let valid = Valid { of: amended, since: compiled, doubt: changes.of_v6(), ..fresh(amended) };
        assert_eq!(known(&mut cache, valid, touched), None);
        assert_eq!(known(&mut cache, valid, spared), Some(found(5)));
        assert_eq!(cache.view().get(amended, spared), Some(found(5)), "at once");
        cache.view().put(&valid, touched, found(6));
        assert_eq!(cache.view().get(amended, touched), Some(found(6)), "nor is it in doubt for ever");
        assert_eq!(known(&mut cache, fresh(later), spared), None, "tables that were compiled since");
        let older = Valid { since: before, ..fresh(compiled) };
        assert_eq!(known(&mut cache, older, spared), None, "answers of newer tables");
        cache.view().put(&fresh(compiled), elsewhere, found(5));
        for bit in [1, 2] {
            let [of, since] = [amended, compiled].map(|of| Of(of.0 ^ bit));
            let another = Valid { since, ..fresh(of) };
            assert_eq!(known(&mut cache, another, elsewhere), None, "of another family or VRF");
        }
    }

    #[test]
    fn what_the_last_amendment_left_alone_is_renewed() {
        let (mut cache, editions) = (DestinationCache::new(), [(); 3].map(|()| Edition::next()));
        let [compiled, first, second] = editions.map(|edition| Of::v6(edition, 3));
        let [touched, old, recent] = [0x2a00 << 112 | 1, 0x2a01 << 112 | 1, 0x2a02 << 112 | 1];
        let mut changes = Changes::new(editions[0]);
        changes.add(editions[0], editions[1], &[(true, Key::new(0x2a03 << 112, 32))]);
        changes.add(editions[1], editions[2], &[(true, Key::new(touched, 32)), (false, Key::new(recent, 32))]);
        let valid = Valid { since: compiled, before_last: first, doubt: changes.of_v6(), ..fresh(second) };
        cache.view().put(&fresh(compiled), old, found(1));
        for address in [touched, recent] {
            cache.view().put(&fresh(first), address, found(2));
        }
        let renewed = |cache: &mut DestinationCache, valid: Valid<'_>, address| {
            let renewed = cache.view().renew(&valid, address).map(|(found, _)| found);
            assert_eq!(cache.view().get(valid.of, address), renewed, "found at once from then on");
            renewed
        };
        for bit in [1, 2] {
            let [of, before_last] = [second, first].map(|of| Of(of.0 ^ bit));
            let another = Valid { before_last, ..fresh(of) };
            assert_eq!(renewed(&mut cache, another, recent), None, "of another family or VRF");
        }
        assert_eq!(renewed(&mut cache, fresh(compiled), recent), None, "of later tables");
        assert_eq!(renewed(&mut cache, valid, touched), None);
        assert_eq!(renewed(&mut cache, valid, old), None, "not from before the last amendment but one");
        assert_eq!(cache.view().renew(&valid, recent), Some((found(2), true)));
        assert_eq!(cache.view().renew(&valid, recent), Some((found(2), false)));
        cache.view().put(&valid, touched, found(3));
        assert_eq!(renewed(&mut cache, valid, touched), Some(found(3)), "found since");
    }

    #[test]
    fn what_is_renewed_moves_to_its_own_place_unless_that_is_taken() {
        let (mut cache, [now, next]) = (DestinationCache::new(), [(); 2].map(|()| fresh(Of::v6(Edition::next(), 0))));
        let addresses: Vec<_> = of_one_place().take(2).collect();
        cache.view().put(&now, addresses[0], found(1));
        cache.view().put(&Valid { is_aside: true, ..next }, addresses[0], found(2));
        for is_older in [true, false] {
            assert_eq!(cache.view().renew(&next, addresses[0]), Some((found(2), is_older)));
        }
        assert_eq!(cache.view().get(next.of, addresses[0]), Some(found(2)));
        cache.view().put(&next, addresses[1], found(3));
        for (address, number) in [(addresses[1], 3), (addresses[0], 2), (addresses[1], 3)] {
            assert_eq!(cache.view().renew(&next, address), Some((found(number), false)));
        }
        assert_eq!(cache.view().get(next.of, addresses[0]), Some(found(2)), "nor does it drive out another one");
    }

    #[test]
    fn tables_to_come_are_remembered_beside_those_in_force() {
        let (mut cache, address) = (DestinationCache::new(), 0x2a00 << 112 | 1);
        let [now, next] = [(); 2].map(|()| fresh(Of::v6(Edition::next(), 0)));
        let aside = Valid { is_aside: true, ..next };
        cache.view().put(&now, address, found(1));
        cache.view().put(&aside, address, found(2));
        for _ in 0..2 {
            assert_eq!(cache.view().get(now.of, address), Some(found(1)), "where it was");
            assert_eq!(known(&mut cache, aside, address), Some(found(2)));
        }
        assert_eq!(known(&mut cache, next, address), Some(found(2)));
        assert_eq!(cache.view().get(next.of, address), Some(found(2)), "at once");
    }

    #[test]
    fn without_places_nothing_is_remembered() {
        let (mut cache, valid) = (DestinationCache::default(), fresh(Of::v6(Edition::next(), 0)));
        cache.view().put(&valid, 1 << 120, found(1));
        assert_eq!(known(&mut cache, valid, 1 << 120), None);
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
