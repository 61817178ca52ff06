//! Chooses the member for a packet.

use srv6d_random::SplitMix64;

use crate::bands::Band;
use crate::flows::{FlowTable, Flows, Known};
use crate::policy::{Adaptive, Policy, PolicyMode, Reactive};

/// The members of a group that packets can be sent to.
pub trait Members {
    /// Number of members. It is not 0.
    fn count(&self) -> usize;
    /// Number of the member at a place. It stays with the member as long as the member exists.
    fn number(&self, place: usize) -> u32;
    /// Place of the member that a hash of 32 bits, or a random number, picks in the proportion of the weights.
    fn picked(&self, hash: u32) -> usize;
    /// Quality of the member at a place.
    fn band(&self, place: usize) -> Band;
}

/// A member, and why a flow has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Place of the member in its group.
    pub place: usize,
    /// Why it was chosen.
    pub why: Why,
    /// Whether this is another member than that of the flow's last packet.
    pub is_move: bool,
}

/// Why a flow has its member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The flow had the member for its last packet.
    Kept,
    /// Nothing was known of the flow.
    New,
    /// Nothing was known of the flow, and it has taken the entry of a flow that was still sending.
    Evicted,
    /// The flow was idle for longer than the gap.
    Gap,
    /// The flow's earlier member does not exist any more.
    Gone,
    /// Another member is better by as many bands as the policy asks for (`reactive`).
    Reactive,
}

/// Chooses members for flows, and remembers their choices. One worker has one.
#[derive(Clone, Debug, Default)]
pub struct Chooser {
    flows: FlowTable,
    random: SplitMix64,
}

impl Chooser {
    /// Creates a chooser that remembers this number of flows. Its random numbers depend on `seed` only.
    pub fn new(flows: Flows, seed: u64) -> Self {
        Self { flows: FlowTable::new(flows), random: SplitMix64::new(seed) }
    }

    /// Number of flows that are remembered at most.
    pub fn room(&self) -> usize {
        self.flows.room()
    }

    /// Returns the member for a packet of a flow at `now` (nanoseconds). `flow` is a well-mixed hash of the flow, different
    /// in each kind of group that the packet passes. The choice is remembered.
    pub fn choose(&mut self, policy: &Policy, flow: u64, members: &impl Members, now: u64) -> Choice {
        let random = self.random.draw();
        let Some((known, entry)) = self.flows.find(flow, now, policy.gap) else {
            return Choice { place: members.picked(low(flow)), why: Why::New, is_move: false };
        };
        let choice = chosen(policy, flow, members, known, random);
        entry.note(members.number(choice.place));
        choice
    }
}

fn chosen(policy: &Policy, flow: u64, members: &impl Members, known: Known, random: u64) -> Choice {
    let (had, why) = match known {
        Known::Recent(member) => match place_of(members, member) {
            Some(place) => return kept(policy, members, (place, flow), random),
            None => (Some(member), Why::Gone),
        },
        Known::Idle(member) => (Some(member), Why::Gap),
        Known::New => (None, Why::New),
        Known::Evicts => (None, Why::Evicted),
    };
    let place = match policy.mode {
        PolicyMode::Flowlet => members.picked(low(random)),
        PolicyMode::Adaptive(_) | PolicyMode::Global(..) => best(members, flow).0,
    };
    Choice { place, why, is_move: had.is_some_and(|had| had != members.number(place)) }
}

/// Returns the choice for a flow whose last packet is not long ago.
fn kept(policy: &Policy, members: &impl Members, (place, flow): (usize, u64), random: u64) -> Choice {
    let stay = Choice { place, why: Why::Kept, is_move: false };
    let reactive = policy.mode.adaptive().and_then(|Adaptive { reactive, .. }| *reactive);
    let Some(Reactive { delta, chance }) = reactive else { return stay };
    if u64::from(low(random)) >= u64::from(chance) {
        return stay;
    }
    let (best, band) = best(members, flow);
    if best != place && band >= members.band(place).saturating_add(delta.max(1)) {
        return Choice { place: best, why: Why::Reactive, is_move: true };
    }
    stay
}

/// Returns the place of a member with the best band, and the band. If several have it, the member that the flow's hash
/// picks among all is preferred; otherwise the hash picks one of the best.
fn best(members: &impl Members, flow: u64) -> (usize, Band) {
    let places = 0..members.count();
    let best = places.clone().map(|place| members.band(place)).max().unwrap_or_default();
    let own = members.picked(low(flow));
    if members.band(own) == best {
        return (own, best);
    }
    let equal = || places.clone().filter(|&place| members.band(place) == best);
    let picked = (u64::from(low(flow)) * equal().count() as u64) >> 32;
    (equal().nth(usize::try_from(picked).unwrap_or_default()).unwrap_or(own), best)
}

fn place_of(members: &impl Members, number: u32) -> Option<usize> {
    (0..members.count()).find(|&place| members.number(place) == number)
}

#[allow(clippy::cast_possible_truncation, reason = "the lower half of a hash")]
const fn low(hash: u64) -> u32 {
    hash as u32
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a failed test may panic")]
mod tests {
    use super::*;
    use crate::bands::BandScale;

    struct Equal<'b> {
        first: u32,
        bands: &'b [Band],
    }

    impl Members for Equal<'_> {
        fn count(&self) -> usize {
            self.bands.len()
        }
        fn number(&self, place: usize) -> u32 {
            self.first + u32::try_from(place).unwrap_or(0)
        }
        fn picked(&self, hash: u32) -> usize {
            usize::try_from((u64::from(hash) * self.bands.len() as u64) >> 32).unwrap_or(0)
        }
        fn band(&self, place: usize) -> Band {
            self.bands[place]
        }
    }

    const FOUR: Equal<'_> = Equal { first: 10, bands: &[7, 7, 7, 7] };
    const FLOWLET: Policy = Policy { gap: Policy::GAP, mode: PolicyMode::Flowlet };

    const fn adaptive(reactive: Option<Reactive>) -> Policy {
        Policy { gap: Policy::GAP, mode: PolicyMode::Adaptive(Adaptive { scale: BandScale::Available, reactive }) }
    }

    fn flow(number: u64) -> u64 {
        SplitMix64::new(number).draw()
    }

    #[test]
    fn within_the_gap_a_flow_stays_and_after_it_a_member_is_drawn() {
        let mut chooser = Chooser::new(Flows::DEFAULT, 1);
        let mut moved = 0;
        for number in 0..2000 {
            let now = number * 1_000_000;
            let first = chooser.choose(&FLOWLET, flow(number), &FOUR, now);
            assert_eq!((first.why, first.is_move), (Why::New, false));
            let second = chooser.choose(&FLOWLET, flow(number), &FOUR, now + Policy::GAP);
            assert_eq!((second.place, second.why), (first.place, Why::Kept));
            let third = chooser.choose(&FLOWLET, flow(number), &FOUR, now + 2 * Policy::GAP + 1025);
            assert_eq!(third.why, Why::Gap);
            assert_eq!(third.is_move, third.place != first.place);
            moved += u32::from(third.is_move);
        }
        // 1500 are expected. The standard deviation is 19.4.
        assert!((1422..=1578).contains(&moved), "{moved} of 2000 flowlets moved");
    }

    #[test]
    fn a_flow_whose_member_is_gone_gets_another_one_at_once() {
        let mut chooser = Chooser::new(Flows::DEFAULT, 1);
        let first = chooser.choose(&FLOWLET, flow(1), &FOUR, 0);
        let others = Equal { first: 20, bands: &[7, 7] };
        let second = chooser.choose(&FLOWLET, flow(1), &others, 1);
        assert_eq!((second.why, second.is_move), (Why::Gone, true));
        assert_eq!(chooser.choose(&FLOWLET, flow(1), &others, 2).place, second.place);
        assert!(first.place < 4);
    }

    #[test]
    fn a_member_keeps_its_flows_when_it_gets_another_place() {
        let mut chooser = Chooser::new(Flows::DEFAULT, 1);
        let before = Equal { first: 10, bands: &[0, 7] };
        assert_eq!(chooser.choose(&adaptive(None), flow(1), &before, 0).place, 1);
        let after = Equal { first: 11, bands: &[0, 7, 7] };
        let kept = chooser.choose(&adaptive(None), flow(1), &after, 1);
        assert_eq!((kept.place, kept.why), (0, Why::Kept), "number 11 is at place 0 now");
    }

    #[test]
    fn equal_bands_spread_as_the_hash_does_and_a_better_one_takes_new_flowlets() {
        let mut chooser = Chooser::new(Flows::of(1 << 16), 1);
        for number in 0..1000 {
            let by_hash = FOUR.picked(low(flow(number)));
            assert_eq!(chooser.choose(&adaptive(None), flow(number), &FOUR, 0).place, by_hash);
            let second_is_best = Equal { first: 10, bands: &[6, 7, 5, 0] };
            assert_eq!(chooser.choose(&adaptive(None), flow(number), &second_is_best, 1).place, by_hash, "kept");
            assert_eq!(chooser.choose(&adaptive(None), flow(number), &second_is_best, Policy::GAP * 2).place, 1);
        }
        let mut seen = [0; 4];
        let two_are_best = Equal { first: 10, bands: &[7, 1, 7, 1] };
        for number in 0..4000 {
            seen[chooser.choose(&adaptive(None), flow(number), &two_are_best, 10 * Policy::GAP).place] += 1;
        }
        assert_eq!((seen[1], seen[3]), (0, 0));
        // Half of the packets are expected on each member. The standard deviation is 31.6.
        assert!((1874..=2126).contains(&seen[0]), "{seen:?}");
    }

    #[test]
    fn a_flow_moves_within_a_flowlet_only_if_asked_and_only_to_a_much_better_member() {
        let always = Some(Reactive { delta: 2, chance: u32::MAX });
        let good = Equal { first: 10, bands: &[7, 5] };
        let on_the_first = |policy: &Policy, bands: &[Band]| {
            let mut chooser = Chooser::new(Flows::DEFAULT, 1);
            let only_first = Equal { first: 10, bands: &[7, 0] };
            assert_eq!(chooser.choose(policy, flow(1), &only_first, 0).place, 0);
            chooser.choose(policy, flow(1), &Equal { first: 10, bands }, 1)
        };
        assert_eq!(on_the_first(&adaptive(always), good.bands).why, Why::Kept);
        assert_eq!(on_the_first(&adaptive(always), &[5, 6]).why, Why::Kept, "one band is not enough");
        let moved = on_the_first(&adaptive(always), &[5, 7]);
        assert_eq!((moved.place, moved.why, moved.is_move), (1, Why::Reactive, true));
        assert_eq!(on_the_first(&adaptive(None), &[0, 7]).why, Why::Kept, "not asked");
        let never = Some(Reactive { delta: 2, chance: 0 });
        assert_eq!(on_the_first(&adaptive(never), &[0, 7]).why, Why::Kept);
    }

    #[test]
    fn the_same_seed_makes_the_same_choices() {
        let run = |seed| {
            let mut chooser = Chooser::new(Flows::DEFAULT, seed);
            let packets = (0..5000).map(|packet| (flow(packet % 300), packet * 3000));
            packets.map(|(flow, now)| chooser.choose(&FLOWLET, flow, &FOUR, now).place).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }
}
