//! Groups: which paths or next hops there are to choose from.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::slice;
use std::sync::Arc;

use zerocopy::IntoBytes as _;

use crate::{BY_HASH, GroupRow, PatternRow, Spread};

/// Groups by their index, the list of the members of groups with several members, and the patterns of these groups.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    rows: Vec<GroupRow>,
    /// Numbers of the policies by which groups choose, by index of the group. Groups beyond the end of this list choose
    /// by the hash.
    policies: Vec<u16>,
    members: Vec<u32>,
    patterns: Vec<PatternRow>,
    /// Positions in `members` at which known lists of members begin. Groups with the same members share them, and a
    /// group that gets its earlier members back takes no more room.
    known: HashMap<Box<[u32]>, u32>,
    /// Indexes of known patterns. Groups with the same pattern share it.
    known_patterns: HashMap<PatternRow, u32>,
}

#[allow(clippy::derived_hash_with_manual_eq, reason = "equal rows have equal bytes")]
impl Hash for PatternRow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.as_bytes());
    }
}

impl Groups {
    /// Number of groups.
    #[inline]
    pub const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there is no group.
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Length of the list of members, including members that no group has any more.
    pub const fn list_len(&self) -> usize {
        self.members.len()
    }

    /// Number of patterns, including patterns that no group has any more.
    pub const fn pattern_count(&self) -> usize {
        self.patterns.len()
    }

    /// Returns the row of a group.
    #[inline]
    pub fn row(&self, group: u32) -> Option<GroupRow> {
        self.rows.get(group as usize).copied()
    }

    /// Returns the pattern with this index.
    pub fn pattern(&self, pattern: u32) -> Option<&PatternRow> {
        self.patterns.get(pattern as usize)
    }

    /// Returns the members of a group.
    #[inline]
    pub fn get(&self, group: u32) -> Option<&[u32]> {
        match self.rows.get(group as usize)? {
            GroupRow { count: 1, at, .. } => Some(slice::from_ref(at)),
            &GroupRow { count, at, .. } => self.members.get(at as usize..)?.get(..count as usize),
        }
    }

    /// Returns the members of a group if the flow's hash chooses among them.
    pub fn by_hash(&self, group: u32) -> Option<&[u32]> {
        self.get(group).filter(|_| self.policy(group) == BY_HASH)
    }

    /// Returns the number of the policy by which a group chooses, or [`BY_HASH`]. There is nothing to choose in a group of
    /// one.
    #[inline]
    pub fn policy(&self, group: u32) -> u16 {
        let has_several = self.rows.get(group as usize).is_some_and(|row| row.count > 1);
        if has_several { self.given_policy(group) } else { BY_HASH }
    }

    fn given_policy(&self, group: u32) -> u16 {
        self.policies.get(group as usize).copied().unwrap_or(BY_HASH)
    }

    /// Returns the place, among the members of a group, of the member that has a slot.
    pub fn place_of_slot(&self, group: u32, slot: usize) -> Option<usize> {
        let &GroupRow { count, pattern, .. } = self.rows.get(group as usize)?;
        if count < 2 {
            return (count == 1).then_some(0);
        }
        let places = self.patterns.get(pattern as usize)?.members.as_flattened();
        places.get(slot).map(|&place| usize::from(place))
    }

    /// Returns the member of a group that has a slot. The slot is asked for only if there are several members.
    #[inline]
    pub fn member(&self, group: u32, slot: impl FnOnce() -> usize) -> Option<u32> {
        let &GroupRow { count, pattern, at } = self.rows.get(group as usize)?;
        match count {
            0 => None,
            1 => Some(at),
            _ => {
                let places = self.patterns.get(pattern as usize)?.members.as_flattened();
                self.members.get(at as usize + usize::from(*places.get(slot())?)).copied()
            }
        }
    }

    /// Returns the members of a group with their slots.
    pub fn spread(&self, group: u32) -> Option<Spread> {
        let (row, members) = self.row(group).zip(self.get(group))?;
        let pattern = self.patterns.get(row.pattern as usize).filter(|_| row.count > 1);
        Some(Spread::of(members.to_vec(), pattern.copied().map(Arc::new), self.given_policy(group)))
    }

    /// Returns the members of all groups, in the order of their indexes.
    pub fn iter(&self) -> impl Iterator<Item = &[u32]> {
        (0..).zip(&self.rows).map(|(group, _)| self.get(group).unwrap_or_default())
    }

    /// Adds a group. Returns its index.
    pub fn push(&mut self, spread: &Spread) -> u32 {
        let row = self.row_of(spread);
        self.rows.push(row);
        let group = u32::try_from(self.rows.len() - 1).unwrap_or(u32::MAX);
        self.set_policy(group, spread.policy());
        group
    }

    /// Gives a group other members or slots. Groups before it that are not there yet get none.
    pub fn set(&mut self, group: u32, spread: &Spread) {
        let (at, row) = (group as usize, self.row_of(spread));
        if self.rows.len() <= at {
            self.rows.resize(at + 1, GroupRow::default());
        }
        if let Some(place) = self.rows.get_mut(at) {
            *place = row;
        }
        self.set_policy(group, spread.policy());
    }

    fn set_policy(&mut self, group: u32, policy: u16) {
        let at = group as usize;
        if policy != BY_HASH && self.policies.len() <= at {
            self.policies.resize(at + 1, BY_HASH);
        }
        if let Some(place) = self.policies.get_mut(at) {
            *place = policy;
        }
    }

    /// Makes room for some more groups, so that adding one does not copy all.
    pub fn make_room(&mut self, more: usize) {
        self.rows.reserve_exact(more);
    }

    fn row_of(&mut self, spread: &Spread) -> GroupRow {
        let members = spread.members();
        let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
        match (members, spread.pattern()) {
            ([only], _) => GroupRow { count, at: *only, pattern: 0 },
            (_, Some(pattern)) => GroupRow { count, at: self.place(members), pattern: self.pattern_of(pattern) },
            _ => GroupRow::default(),
        }
    }

    /// Returns the position in the list at which these members begin.
    fn place(&mut self, members: &[u32]) -> u32 {
        if let Some(&known) = self.known.get(members) {
            return known;
        }
        let at = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        self.members.extend_from_slice(members);
        self.known.insert(members.into(), at);
        at
    }

    fn pattern_of(&mut self, pattern: &PatternRow) -> u32 {
        if let Some(&known) = self.known_patterns.get(pattern) {
            return known;
        }
        let at = u32::try_from(self.patterns.len()).unwrap_or(u32::MAX);
        self.patterns.push(*pattern);
        self.known_patterns.insert(*pattern, at);
        at
    }
}

#[cfg(test)]
#[allow(clippy::panic, reason = "a failed test may panic")]
mod tests {
    use super::*;
    use crate::Spreader;

    #[test]
    fn groups_change_in_place_and_share_their_members_and_patterns() {
        let mut spreader = Spreader::default();
        let mut spread = |weights: &[(u32, u32)]| spreader.spread(weights, None);
        let [one, two, other, none] =
            [spread(&[(7, 1)]), spread(&[(1, 1), (2, 2)]), spread(&[(3, 1), (4, 2)]), spread(&[])];
        let mut groups = Groups::default();
        assert_eq!([groups.push(&one), groups.push(&two), groups.push(&none)], [0, 1, 2]);
        for _ in 0..9 {
            groups.set(4, &two);
            groups.set(1, &one);
            groups.set(1, &other);
            groups.set(1, &two);
        }
        let all: Vec<&[u32]> = groups.iter().collect();
        assert_eq!(all, [&[7][..], &[1, 2], &[], &[], &[1, 2]]);
        assert_eq!((groups.len(), groups.list_len(), groups.pattern_count()), (5, 4, 1));
        assert_eq!((groups.get(5), groups.row(1)), (None, groups.row(4)));
        assert_eq!(groups.row(0), Some(GroupRow { count: 1, pattern: 0, at: 7 }));
        assert_eq!((groups.spread(0), groups.spread(4), groups.spread(5)), (Some(one), Some(two), None));
        let taken = |slot| groups.member(4, || slot);
        assert_eq!([taken(0), taken(341), taken(1023), taken(1024)], [Some(1), Some(2), Some(2), None]);
        assert_eq!((groups.member(0, || panic!("of one")), groups.member(2, || 0)), (Some(7), None));
    }

    #[test]
    fn a_policy_belongs_to_a_group_of_several() {
        let mut spreader = Spreader::default();
        let mut spread = |weights: &[(u32, u32)]| spreader.spread(weights, None);
        let [one, two] = [spread(&[(7, 1)]).chosen_by(3), spread(&[(1, 1), (2, 3)]).chosen_by(3)];
        let mut groups = Groups::default();
        groups.push(&two.clone().chosen_by(BY_HASH));
        groups.push(&one);
        groups.push(&two);
        assert_eq!([0, 1, 2, 9].map(|group| groups.policy(group)), [BY_HASH, BY_HASH, 3, BY_HASH]);
        assert_eq!([0, 1, 2].map(|group| groups.by_hash(group)), [Some(&[1, 2][..]), Some(&[7]), None]);
        assert_eq!(groups.spread(2), Some(two.clone()));
        assert_eq!([0, 1023, 1024].map(|slot| groups.place_of_slot(2, slot)), [Some(0), Some(1), None]);
        assert_eq!([groups.place_of_slot(1, 77), groups.place_of_slot(9, 0)], [Some(0), None]);
        groups.set(2, &one);
        groups.set(0, &two);
        assert_eq!([0, 1, 2].map(|group| groups.policy(group)), [3, BY_HASH, BY_HASH]);
        let of_one = groups.spread(2).map(|spread| spread.policy());
        assert_eq!(of_one, Some(3), "the group has its policy again when it has several members again");
    }
}
