//! What amendments have changed since tables were compiled: of everything else, what was found before them still holds.
//!
//! Only the last ones are kept. What was found before these is looked up again.

use crate::lpm::Key;
use crate::tables::Edition;

/// Prefixes kept of each family: to compare an address with more takes longer than to look it up.
const MOST: usize = 16;

/// A prefix, and the first tables in which it is another one.
type Change = (Edition, Key);

/// The prefixes that were changed last, whichever VRF they are of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    since: Edition,
    v6: Vec<Change>,
    v4: Vec<Change>,
}

/// Changes of one family, in their order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt<'c>(&'c [Change]);

impl Changes {
    /// None.
    pub(crate) fn new(since: Edition) -> Self {
        Self { since, ..Self::default() }
    }

    /// What was found in tables before these tells nothing of them.
    pub(crate) const fn since(&self) -> Edition {
        self.since
    }

    /// Tables have become `edition` by changing these prefixes, IPv6 or not.
    pub(crate) fn add(&mut self, edition: Edition, prefixes: impl Iterator<Item = (bool, Key)>) {
        for (is_v6, key) in prefixes {
            let changes = if is_v6 { &mut self.v6 } else { &mut self.v4 };
            if changes.len() == MOST {
                let (given_up, _) = changes.remove(0);
                self.since = self.since.max(given_up);
            }
            changes.push((edition, key));
        }
    }

    pub(crate) fn of_v6(&self) -> Doubt<'_> {
        Doubt(&self.v6)
    }

    pub(crate) fn of_v4(&self) -> Doubt<'_> {
        Doubt(&self.v4)
    }
}

impl Doubt<'_> {
    /// About nothing.
    #[cfg(test)]
    pub(crate) const fn none() -> Self {
        Self(&[])
    }

    /// Whether this address may lead elsewhere than in the tables of that number.
    #[inline]
    pub(crate) fn is_about(self, address: u128, edition: u64) -> bool {
        let mut newer = self.0.iter().rev().take_while(|(changed, _)| changed.number() > edition);
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
        changes.add(amended, [(true, key(net, 50)), (false, key(44 << 120, 9))].into_iter());
        changes.add(again, [(true, key(other, 0)), (true, key(other, 16))].into_iter());
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
        changes.add(first, [one(1)].into_iter());
        for number in 2..=MOST {
            changes.add(Edition::next(), [one(number)].into_iter());
        }
        assert_eq!(changes.since(), compiled);
        changes.add(Edition::next(), [one(MOST + 1)].into_iter());
        assert_eq!(changes.since(), first, "the first change is forgotten");
        assert!(!changes.of_v6().is_about(1 << 96, 0) && changes.of_v6().is_about(2 << 96, 0));
        let many = Edition::next();
        changes.add(many, (0..=MOST).map(one));
        assert_eq!(changes.since(), many, "more at once than are kept");
    }
}
