//! What the last amendments have changed: an answer from before them is right still for any other address.

use crate::lpm::Key;
use crate::tables::{Edition, VrfIndex};

/// Most prefixes that are kept: each answer from before is held against all that came after it.
const MOST: usize = 32;

/// A prefix of a VRF, and whether it is one of IPv6.
pub(crate) type Changed = (VrfIndex, bool, Key);

/// Prefixes that amendments have changed, oldest first, each with the edition before its amendment.
///
/// An amendment in place changes where the addresses of its prefixes lead, and of no others. A number that an answer
/// names means something else only after its prefix was changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(Vec<(Edition, Changed)>);

impl Changes {
    /// Tables of the edition `before` were amended. Of an amendment all prefixes are kept, or none.
    pub(crate) fn note(&mut self, before: Edition, prefixes: &[Changed]) {
        self.0.extend(prefixes.iter().map(|&prefix| (before, prefix)));
        let dropped = self.0.len().checked_sub(MOST + 1).and_then(|last| self.0.get(last));
        if let Some(&(dropped, _)) = dropped {
            self.0.retain(|(before, _)| before.number() > dropped.number());
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What was the answer for an address in tables of the edition `of` is so still.
    pub(crate) fn spare(&self, of: Edition, (vrf, is_v6): (VrfIndex, bool), address: u128) -> bool {
        let mut is_before = false;
        // Most answers are from before the very last one.
        for &(before, (of_vrf, of_v6, key)) in self.0.iter().rev() {
            if before.number() < of.number() {
                break;
            }
            if (of_vrf, of_v6) == (vrf, is_v6) && Key::new(address, key.len) == key {
                return false;
            }
            is_before |= before == of;
        }
        is_before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSIDE: u128 = 0x3000_0001 << 96;
    const ELSEWHERE: u128 = 0x3000_0002 << 96;

    #[test]
    fn answers_from_before_are_right_where_nothing_was_changed_since() {
        let [first, second, third, other] = [(); 4].map(|()| Edition::next());
        let mut changes = Changes::default();
        assert!(!changes.spare(first, (0, true), ELSEWHERE), "who knows what came since");
        changes.note(first, &[(0, true, Key::new(INSIDE, 32))]);
        changes.note(second, &[(0, true, Key::new(ELSEWHERE, 64)), (0, false, Key::new(INSIDE, 32))]);
        for (of, address, is_right) in [
            (first, INSIDE | 1, false),
            (second, INSIDE | 1, true),
            (first, ELSEWHERE | 1, false),
            (second, ELSEWHERE | 1, false),
            (first, ELSEWHERE | 1 << 64, true),
            (third, INSIDE, false),
            (other, ELSEWHERE | 1 << 64, false),
        ] {
            assert_eq!(changes.spare(of, (0, true), address), is_right, "{of:?} {address:x}");
        }
        assert!(changes.spare(first, (1, true), INSIDE), "another VRF");
        assert!(!changes.spare(second, (0, false), INSIDE), "the same bits as an IPv4 address");
    }

    #[test]
    fn of_an_amendment_all_prefixes_are_kept_or_none() {
        let [first, second, third] = [(); 3].map(|()| Edition::next());
        let mut changes = Changes::default();
        let prefix = |number: u128| (0, true, Key::new(number << 96, 32));
        changes.note(first, &[prefix(1), prefix(2)]);
        changes.note(second, &(10..10 + MOST as u128 - 1).map(prefix).collect::<Vec<_>>());
        assert!(!changes.spare(first, (0, true), ELSEWHERE), "its first prefix had no room");
        assert!(changes.spare(second, (0, true), ELSEWHERE));
        changes.note(third, &(100..101 + MOST as u128).map(prefix).collect::<Vec<_>>());
        assert!(changes.is_empty());
    }
}
