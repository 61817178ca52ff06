//! What amendments have changed since tables were compiled: of everything else, what was found before them still holds.
//!
//! Only the last ones are kept. What was found before these is looked up again.

use crate::lpm::Key;
use crate::straight::halves;
use crate::tables::Edition;

/// Prefixes kept of each family: to compare an address with more takes longer than to look it up.
const MOST: usize = 16;

/// A prefix, and the first tables in which it is another one.
type Change = (Edition, Key);

/// The prefixes that were changed last, whichever VRF they are of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    since: Edition,
    before_last: Edition,
    v6: Family,
    v4: Family,
}

/// Those of one family.
#[derive(Clone, Debug, Default)]
struct Family {
    /// In their order.
    all: Vec<Change>,
    /// What the last amendment changed.
    last: Cover,
}

/// What is in doubt of one family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt<'c>(&'c Family);

/// A prefix that has some prefixes in it, as addresses are compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cover {
    mask: [u64; 2],
    network: [u64; 2],
}

impl Changes {
    /// None.
    pub(crate) fn new(since: Edition) -> Self {
        Self { since, before_last: since, ..Self::default() }
    }

    /// What was found in tables before these tells nothing of them.
    pub(crate) const fn since(&self) -> Edition {
        self.since
    }

    /// The tables before the last amendment. What was found in these is in doubt as far as that one goes.
    pub(crate) const fn before_last(&self) -> Edition {
        self.before_last
    }

    /// `before` has become `edition` by changing these prefixes, IPv6 or not.
    pub(crate) fn add(&mut self, before: Edition, edition: Edition, prefixes: &[(bool, Key)]) {
        for (family, is_v6) in [(&mut self.v6, true), (&mut self.v4, false)] {
            let keys = || prefixes.iter().filter(|(of_v6, _)| *of_v6 == is_v6).map(|&(_, key)| key);
            family.last = Cover::of(keys());
            family.all.extend(keys().map(|key| (edition, key)));
            let given_up = family.all.drain(..family.all.len().saturating_sub(MOST)).next_back();
            self.since = given_up.map_or(self.since, |(given_up, _)| given_up.max(self.since));
        }
        self.before_last = before.max(self.since);
    }

    pub(crate) fn of_v6(&self) -> Doubt<'_> {
        Doubt(&self.v6)
    }

    pub(crate) fn of_v4(&self) -> Doubt<'_> {
        Doubt(&self.v4)
    }
}

impl Cover {
    /// No address: its network has bits that its mask has not.
    const NOTHING: Self = Self { mask: [0; 2], network: [u64::MAX; 2] };

    fn of(keys: impl Iterator<Item = Key>) -> Self {
        let in_common = |one: Key, other: Key| {
            let same = (one.bits ^ other.bits).leading_zeros().min(one.len.min(other.len).into());
            Key::new(one.bits, u8::try_from(same).unwrap_or(u8::MAX))
        };
        keys.reduce(in_common).map_or(Self::NOTHING, |Key { bits, len }| Self {
            mask: halves(Key::new(u128::MAX, len).bits),
            network: halves(bits),
        })
    }

    #[inline]
    const fn has(&self, [high, low]: [u64; 2]) -> bool {
        (high & self.mask[0]) ^ self.network[0] | (low & self.mask[1]) ^ self.network[1] == 0
    }
}

impl Default for Cover {
    fn default() -> Self {
        Self::NOTHING
    }
}

impl Doubt<'_> {
    /// About nothing.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        static NOTHING: Family = Family { all: Vec::new(), last: Cover::NOTHING };
        Self(&NOTHING)
    }

    /// Whether this address may lead elsewhere than before the last amendment. No branch depends on it.
    #[inline]
    pub(crate) const fn is_about_last(self, address: [u64; 2]) -> bool {
        self.0.last.has(address)
    }

    /// Whether this address may lead elsewhere than in the tables of that number.
    #[inline]
    pub(crate) fn is_about(self, address: u128, edition: u64) -> bool {
        let mut newer = self.0.all.iter().rev().take_while(|(changed, _)| changed.number() > edition);
        newer.any(|(_, key)| Key::new(address, key.len) == *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bits: u128, len: u8) -> Key {
        Key::new(bits, len)
    }

    #[test]
    fn what_is_in_a_prefix_is_in_doubt_if_it_was_found_before_that_changed() {
        let [compiled, amended, again] = [(); 3].map(|()| Edition::next());
        let (net, other) = (0x2a00_0001_0002_0003 << 64, 0x2b00 << 112);
        let mut changes = Changes::new(compiled);
        changes.add(compiled, amended, &[(true, key(net, 50)), (false, key(44 << 120, 9))]);
        changes.add(amended, again, &[(true, key(other, 0)), (true, key(other, 16))]);
        for (address, found_in) in [(net, compiled), (net | 1 << 77, compiled), (other | 1, amended), (net, amended)] {
            assert!(changes.of_v6().is_about(address, found_in.number()), "{address:032x}");
        }
        assert!(!changes.of_v6().is_about(other, again.number()), "found since");
        assert!(changes.of_v4().is_about(44 << 120 | 7 << 96, compiled.number()));
        assert!(!changes.of_v4().is_about(45 << 120, compiled.number()), "beside it");
        assert!(!changes.of_v4().is_about(44 << 120, amended.number()));
        assert_eq!(changes.since(), compiled);
    }

    #[test]
    fn what_was_found_before_more_changes_than_are_kept_is_given_up() {
        let [compiled, first] = [(); 2].map(|()| Edition::next());
        let one = |number: usize| (true, key((number as u128) << 96, 32));
        let mut changes = Changes::new(compiled);
        changes.add(compiled, first, &[one(1)]);
        for number in 2..=MOST {
            changes.add(first, Edition::next(), &[one(number)]);
        }
        assert_eq!(changes.since(), compiled);
        changes.add(first, Edition::next(), &[one(MOST + 1)]);
        assert_eq!(changes.since(), first, "the first change is forgotten");
        assert!(!changes.of_v6().is_about(1 << 96, 0) && changes.of_v6().is_about(2 << 96, 0));
        let many = Edition::next();
        changes.add(first, many, &(0..=MOST).map(one).collect::<Vec<_>>());
        assert_eq!(changes.since(), many, "more at once than are kept");
        assert_eq!(changes.before_last(), many, "so that nothing before them counts");
    }

    #[test]
    fn the_last_amendment_is_about_what_its_prefixes_have_in_common() {
        let [compiled, first, second] = [(); 3].map(|()| Edition::next());
        let is_about = |changes: &Changes, bits| changes.of_v6().is_about_last(halves(bits));
        let mut changes = Changes::new(compiled);
        assert_eq!(changes.before_last(), compiled);
        assert!(!is_about(&changes, u128::MAX) && !is_about(&changes, 0));
        changes.add(compiled, first, &[(true, key(0x2a00 << 112, 16)), (true, key(0x2a03 << 112 | 1, 128))]);
        assert_eq!(changes.before_last(), compiled);
        for (address, is_in) in [(0x2a00 << 112, true), (0x2a02 << 112, true), (0x2a04 << 112, false), (0, false)] {
            assert_eq!(is_about(&changes, address), is_in, "{address:032x}: 2a00::/14");
        }
        assert!(!changes.of_v4().is_about_last(halves(0x2a00 << 112)), "not of IPv4");
        changes.add(first, second, &[(false, key(0, 0)), (true, key(9, 127))]);
        assert_eq!(changes.before_last(), first);
        assert!(is_about(&changes, 8) && !is_about(&changes, 10) && !is_about(&changes, 1 << 100 | 8));
        assert!(changes.of_v4().is_about_last(halves(u128::MAX)), "a default route");
        changes.add(second, Edition::next(), &[(true, key(0x2a00 << 112, 32)), (true, key(0x2a00 << 112, 8))]);
        assert!(is_about(&changes, 0x2aff << 112) && !is_about(&changes, 0x2b00 << 112), "one lies inside the other");
    }
}
