//! Which member of a group has which slot.
//!
//! Shares are rounded to slots by the largest remainder, and every member has a slot at least. When shares change, slots of
//! members with too many go to members with too few, in the order of the slots, and no others: flows that need not move
//! stay where they are.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{PatternRow, SLOT_BITS};

/// Number of slots of a group. A group with more members than that uses only the first ones.
pub const SLOTS: usize = 1 << SLOT_BITS;

/// Members of a group, and their slots if there are several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    members: Vec<u32>,
    pattern: Option<Arc<PatternRow>>,
    policy: u16,
}

/// Number that stands for no policy: the flow's hash chooses among the members.
pub const BY_HASH: u16 = 0;

impl Spread {
    pub(crate) fn of(members: Vec<u32>, pattern: Option<Arc<PatternRow>>, policy: u16) -> Self {
        Self { members, pattern, policy }
    }

    /// Returns the same spread with the policy of this number, which chooses among the members instead of the hash.
    #[must_use]
    pub fn chosen_by(self, policy: u16) -> Self {
        Self { policy, ..self }
    }

    /// Returns the number of the policy that chooses among the members, or [`BY_HASH`].
    pub fn policy(&self) -> u16 {
        self.policy
    }

    /// Returns the members.
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    pub(crate) fn pattern(&self) -> Option<&PatternRow> {
        self.pattern.as_deref()
    }

    /// Returns, for each slot, the member that has it. A group with fewer than two members has no slots.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        let places = self.pattern.iter().flat_map(|pattern| pattern.members.as_flattened());
        places.filter_map(|&place| self.members.get(usize::from(place)).copied())
    }

    /// Returns the same spread, with the present numbers of its members. `number` returns the number of a member, or
    /// `None` if the member is gone.
    #[must_use]
    pub fn renumbered(&self, number: impl Fn(u32) -> Option<u32>) -> Self {
        let members = self.members.iter().map(|&member| number(member).unwrap_or(NOBODY)).collect();
        Self { members, pattern: self.pattern.clone(), policy: self.policy }
    }
}

/// Stands for a member that is gone.
const NOBODY: u32 = u32::MAX;

/// Spreads members over slots. New groups with the same weights share a pattern, which is made once.
#[derive(Clone, Debug, Default)]
pub struct Spreader {
    fresh: HashMap<Box<[u32]>, Arc<PatternRow>>,
}

impl Spreader {
    /// Spreads members by their weights. If the group had slots before, members keep theirs as far as the weights allow.
    pub fn spread(&mut self, weights: &[(u32, u32)], before: Option<&Spread>) -> Spread {
        let (members, weights) = distinct(weights);
        if members.len() < 2 {
            return Spread { members, ..Spread::default() };
        }
        let before = before.filter(|before| members.iter().any(|member| before.members.contains(member)));
        let pattern = match before {
            Some(before) => Arc::new(packed(&moved(&places(&members, before), &shares(&weights)))),
            None => Arc::clone(self.fresh.entry(weights.into()).or_insert_with_key(|weights| Arc::new(fresh(weights)))),
        };
        Spread { members, pattern: Some(pattern), policy: BY_HASH }
    }
}

/// Returns the members, each once, and the sums of their weights, which are 1 at least.
fn distinct(weighted: &[(u32, u32)]) -> (Vec<u32>, Vec<u32>) {
    let (mut members, mut weights) = (Vec::with_capacity(weighted.len()), Vec::<u32>::with_capacity(weighted.len()));
    let mut known = HashMap::with_capacity(weighted.len());
    for &(member, weight) in weighted {
        let place = *known.entry(member).or_insert(members.len());
        match weights.get_mut(place) {
            Some(sum) => *sum = sum.saturating_add(weight.max(1)),
            None if members.len() < SLOTS => {
                members.push(member);
                weights.push(weight.max(1));
            }
            None => {}
        }
    }
    (members, weights)
}

/// Returns the slots of a new group. The slots are first given to the members in equal shares, one member after the
/// other, and then moved until each member has the share of its weight.
fn fresh(weights: &[u32]) -> PatternRow {
    let equal = shares(&vec![1; weights.len()]);
    let places = (0..).zip(&equal).flat_map(|(member, &share)| std::iter::repeat_n(Some(member), share));
    packed(&moved(&places.collect::<Vec<_>>(), &shares(weights)))
}

/// Returns, for each slot of the earlier group, the place of the slot's member in `members`. `None`: the member is not
/// in `members`.
fn places(members: &[u32], before: &Spread) -> Vec<Option<u16>> {
    let mut places: HashMap<u32, u16> = HashMap::with_capacity(members.len());
    for (place, &member) in (0..).zip(members) {
        places.insert(member, place);
    }
    match before.members.as_slice() {
        [only] => vec![places.get(only).copied(); SLOTS],
        _ => before.slots().map(|member| places.get(&member).copied()).collect(),
    }
}

/// Returns the number of slots of each member, by the largest remainder.
fn shares(weights: &[u32]) -> Vec<usize> {
    let total: u64 = weights.iter().copied().map(u64::from).sum();
    let exact = |weight: u32| u64::from(weight) * SLOTS as u64;
    let whole = |weight: u32| usize::try_from(exact(weight) / total.max(1)).unwrap_or(SLOTS);
    let mut shares: Vec<usize> = weights.iter().map(|&weight| whole(weight).max(1)).collect();
    // A member that was raised to its one slot has got more than its remainder.
    let remainder = |&place: &usize| {
        let weight = weights.get(place).copied().unwrap_or(0);
        if whole(weight) == 0 { 0 } else { exact(weight) % total.max(1) }
    };
    let mut by_remainder: Vec<usize> = (0..weights.len()).collect();
    by_remainder.sort_by_key(|place| std::cmp::Reverse(remainder(place)));
    let given: usize = shares.iter().sum();
    for place in by_remainder.into_iter().take(SLOTS.saturating_sub(given)) {
        shares.get_mut(place).into_iter().for_each(|share| *share += 1);
    }
    for _ in SLOTS..given {
        shares.iter_mut().max().into_iter().for_each(|share| *share -= 1);
    }
    shares
}

/// Moves slots until each member has its share. Slots without a member, and slots of members with too many, go to
/// members with too few.
fn moved(places: &[Option<u16>], shares: &[usize]) -> Vec<u16> {
    let mut left = shares.to_vec();
    let mut take = |place: u16| match left.get_mut(usize::from(place)) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    };
    let kept: Vec<Option<u16>> =
        (0..SLOTS).map(|slot| places.get(slot).copied().flatten().filter(|&place| take(place))).collect();
    let mut free = (0..).zip(left).flat_map(|(place, left): (u16, usize)| std::iter::repeat_n(place, left));
    kept.into_iter().map(|place| place.or_else(|| free.next()).unwrap_or(0)).collect()
}

fn packed(places: &[u16]) -> PatternRow {
    let mut pattern = PatternRow::default();
    pattern.members.as_flattened_mut().iter_mut().zip(places).for_each(|(slot, place)| *slot = *place);
    pattern
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a failed test may panic")]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shares are between 0 and 1000")]
mod tests {
    use super::*;

    fn weighted(weights: &[u32]) -> Vec<(u32, u32)> {
        (10..).zip(weights.iter().copied()).collect()
    }

    /// Returns the number of slots of each member.
    fn counts(spread: &Spread) -> Vec<usize> {
        spread.members().iter().map(|&member| spread.slots().filter(|&at| at == member).count()).collect()
    }

    fn moves(from: &Spread, to: &Spread) -> usize {
        from.slots().zip(to.slots()).filter(|(from, to)| from != to).count()
    }

    #[test]
    fn shares_are_rounded_by_the_largest_remainder() {
        let spread = |weights: &[u32]| counts(&Spreader::default().spread(&weighted(weights), None));
        assert_eq!(spread(&[1, 1, 1, 1]), [256; 4]);
        assert_eq!(spread(&[1, 2, 2, 2]), [146, 293, 293, 292]);
        assert_eq!(spread(&[25, 100, 100, 100]), [79, 315, 315, 315]);
        assert_eq!(spread(&[2500, 10_000, 10_000, 10_000]), [79, 315, 315, 315]);
        assert_eq!(spread(&[1, 1, 1]), [342, 341, 341]);
        assert_eq!(spread(&[1, 60_000]), [1, 1023], "a member has a slot at least");
        assert_eq!(spread(&[1, 1, 1, u32::MAX]), [1, 1, 1, 1021]);
        let many = spread(&[1; 2000]);
        assert_eq!((many.len(), many.iter().max()), (SLOTS, Some(&1)));
        assert!(spread(&[7]).iter().all(|&slots| slots == 0), "of one member there are no slots");
    }

    /// Returns the share of the traffic that arrives if these links get it in the proportion of their slots, in permille.
    fn goodput(links: &[u32], weights: &[u32], offered: u32) -> u32 {
        let slots = counts(&Spreader::default().spread(&weighted(weights), None));
        let get = |slots: usize| f64::from(offered) * f64::from(u32::try_from(slots).unwrap_or(u32::MAX)) / 1024.0;
        let carried: f64 = links.iter().zip(slots).map(|(&link, slots)| get(slots).min(f64::from(link))).sum();
        (carried * 1000.0 / f64::from(offered)).round() as u32
    }

    #[test]
    fn weights_by_capacity_fill_unequal_links() {
        let links = [25, 100, 100, 100];
        assert_eq!(goodput(&links, &links, 320), 1000);
        assert_eq!(goodput(&links, &[1; 4], 320), 828, "equal shares");
    }

    #[test]
    fn no_more_flows_move_than_must() {
        let mut spreader = Spreader::default();
        for (members, halved) in [(4, 110), (8, 60), (16, 31)] {
            let mut weights = vec![2; members];
            let equal = spreader.spread(&weighted(&weights), None);
            *weights.last_mut().into_iter().next().unwrap_or(&mut 0) = 1;
            let after = spreader.spread(&weighted(&weights), Some(&equal));
            assert_eq!(moves(&equal, &after), halved, "one of {members} halves");
        }
        let all = weighted(&[1, 1, 1, 1]);
        let four = spreader.spread(&all, None);
        let mut now = four.clone();
        // Each of them goes down and comes back.
        for gone in 0..4 {
            let mut rest = all.clone();
            rest.remove(gone);
            let three = spreader.spread(&rest, Some(&now));
            assert_eq!((moves(&now, &three), counts(&three)), (256, vec![342, 341, 341]));
            now = spreader.spread(&all, Some(&three));
            assert_eq!((moves(&three, &now), counts(&now)), (256, vec![256; 4]));
        }
        let one = spreader.spread(&all[..1], Some(&four));
        assert_eq!(
            moves(&four, &spreader.spread(&all, Some(&one))),
            0,
            "the first slots are those of the first member"
        );
    }

    #[test]
    fn members_that_have_other_numbers_now_keep_their_slots() {
        let mut spreader = Spreader::default();
        let four = spreader.spread(&weighted(&[1; 4]), None);
        let renumbered = four.renumbered(|member| (member != 11).then_some(member + 100));
        let three = spreader.spread(&[(113, 1), (110, 1), (112, 1)], Some(&renumbered));
        let stayed = four.slots().zip(three.slots()).filter(|(from, to)| from + 100 == *to).count();
        assert_eq!((stayed, three.slots().count()), (768, SLOTS));
        let others = spreader.spread(&[(1, 1), (2, 1)], Some(&four));
        assert_eq!(others, spreader.spread(&[(1, 1), (2, 1)], None), "nobody is left who could keep a slot");
    }

    #[test]
    fn a_member_that_is_named_twice_has_both_shares() {
        let spread = Spreader::default().spread(&[(1, 1), (2, 1), (1, 2)], None);
        assert_eq!((spread.members(), counts(&spread)), (&[1, 2][..], vec![768, 256]));
    }
}
