//! What amendments may have changed since tables were compiled: of everything else, what was found once still holds.
//! What was found since the last amendment holds whatever that has changed.
//!
//! A few thousand bits, each for some prefixes: one that stands for a changed prefix tells nothing of the others it stands
//! for, and what may have changed is looked up again.

#![allow(clippy::cast_possible_truncation, reason = "a number of twelve bits")]

use crate::lpm::Key;
use crate::tables::Edition;

/// Prefixes are told apart by so many of their first bits, IPv6 and IPv4: by the most that a changed one has.
const BITS: [[u8; 3]; 2] = [[32, 48, 64], [16, 24, 32]];
const WORDS: usize = 64;
/// Changes after which more would be in doubt than it is worth: what was found before them is given up.
const MOST: usize = 64;

/// The prefixes of one family that may have changed.
#[derive(Clone, Debug)]
struct Family {
    /// Of [`BITS`], and which of these are of use.
    bits: [(u8, bool); 3],
    marked: [u64; WORDS],
}

/// The prefixes that may have changed, whichever VRF they are of.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    since: Edition,
    v6: Family,
    v4: Family,
    count: usize,
}

/// Changes of one family, if there are any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt<'c>(Option<&'c Family>);

impl Default for Changes {
    fn default() -> Self {
        Self::new(Edition::default())
    }
}

impl Changes {
    /// None.
    pub(crate) fn new(since: Edition) -> Self {
        let [v6, v4] = BITS.map(|bits| Family { bits: bits.map(|bits| (bits, false)), marked: [0; WORDS] });
        Self { since, v6, v4, count: 0 }
    }

    /// What was found in tables before these tells nothing of them.
    pub(crate) const fn since(&self) -> Edition {
        self.since
    }

    /// `before` became other tables, by changing these prefixes.
    pub(crate) fn add(
        &mut self,
        before: Edition,
        after: Edition,
        prefixes: impl ExactSizeIterator<Item = (bool, Key)>,
    ) {
        if self.count + prefixes.len() > MOST {
            *self = Self::new(before);
        }
        self.count += prefixes.len();
        let mut is_known = self.count <= MOST;
        for (is_v6, key) in prefixes {
            let family = if is_v6 { &mut self.v6 } else { &mut self.v4 };
            is_known &= family.mark(key);
        }
        if !is_known {
            *self = Self::new(after);
        }
    }

    pub(crate) fn of_v6(&self) -> Doubt<'_> {
        self.v6.doubt()
    }

    pub(crate) fn of_v4(&self) -> Doubt<'_> {
        self.v4.doubt()
    }
}

impl Family {
    /// False: it is too short.
    fn mark(&mut self, key: Key) -> bool {
        let Some((bits, used)) = self.bits.iter_mut().rfind(|(bits, _)| *bits <= key.len) else { return false };
        *used = true;
        let number = number(key.bits, *bits);
        if let Some(word) = self.marked.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
        true
    }

    fn doubt(&self) -> Doubt<'_> {
        Doubt(self.bits.iter().any(|&(_, used)| used).then_some(self))
    }

    fn is_marked(&self, address: u128) -> bool {
        self.bits.into_iter().any(|(bits, used)| {
            let number = number(address, bits);
            used && self.marked.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 != 0)
        })
    }
}

impl Doubt<'_> {
    /// About nothing.
    #[cfg(test)]
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// Whether this address may lead elsewhere than before.
    #[inline]
    pub(crate) fn is_about(self, address: u128) -> bool {
        self.0.is_some_and(|family| family.is_marked(address))
    }
}

/// Which bit stands for the first `bits` bits of an address.
#[inline]
const fn number(address: u128, bits: u8) -> usize {
    let first = (address >> 64) as u64 >> (64 - bits);
    // 2^64 divided by the golden ratio, and odd.
    (first.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - (WORDS * 64).trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bits: u128, len: u8) -> Key {
        Key::new(bits, len)
    }

    #[test]
    fn all_of_a_changed_prefix_is_in_doubt_and_little_else() {
        let [compiled, amended] = [(); 2].map(|()| Edition::next());
        let mut changes = Changes::new(compiled);
        let net = 0x2a00_0001_0002_0003 << 64;
        assert!(!changes.of_v6().is_about(net));
        let v6 = [(true, key(net, 128)), (true, key(net, 50)), (true, key(net, 33))];
        changes.add(compiled, amended, v6.into_iter());
        for inside in [net, net | 1, net | 9 << 64, net | 9 << 80] {
            assert!(changes.of_v6().is_about(inside), "{inside:032x}");
        }
        let others = (0..1000).filter(|&other: &u128| changes.of_v6().is_about((0x2b00_0000 + other) << 96)).count();
        assert!(others < 10, "{others} of 1000");
        assert!(!changes.of_v4().is_about(net), "another family");
        changes.add(amended, Edition::next(), [(false, key(44 << 120, 16))].into_iter());
        assert!(changes.of_v4().is_about(44 << 120 | 7 << 96) && !changes.of_v4().is_about(45 << 120));
        assert_eq!(changes.since(), compiled);
    }

    #[test]
    fn what_is_short_leaves_all_in_doubt_and_what_is_too_much_all_before_it() {
        let [compiled, before, after] = [(); 3].map(|()| Edition::next());
        let one = |len| (true, key(0x2a00 << 112, len));
        let since = |prefixes: Vec<(bool, Key)>| {
            let mut changes = Changes::new(compiled);
            changes.add(before, after, prefixes.into_iter());
            changes.since()
        };
        assert_eq!(since(vec![one(32)]), compiled);
        assert_eq!(since(vec![one(32), one(31)]), after);
        assert_eq!(since(vec![(false, key(10 << 120, 15))]), after);
        assert_eq!(since(vec![one(64); MOST]), compiled);
        assert_eq!(since(vec![one(64); MOST + 1]), after);
        let mut changes = Changes::new(compiled);
        changes.add(compiled, before, vec![one(64); MOST].into_iter());
        changes.add(before, after, [(true, key(0x2b00 << 112, 64))].into_iter());
        assert_eq!(changes.since(), before, "what was found before the last amendment still holds");
        assert!(changes.of_v6().is_about(0x2b00 << 112) && !changes.of_v6().is_about(0x2a00 << 112));
    }
}
