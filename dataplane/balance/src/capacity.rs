//! Weights from the capacities of links: flows are shared out in the proportion of what the paths can carry (Fully Adaptive
//! Routing Ethernet, draft-xu-lsr-fare).
//!
//! ```text
//! heartbeats, own ports ──► Publishers ──► links by LinkId ─┐
//! configuration ───────────────────────────────────────────┴─► believed ──► path_capacity ──► weights
//! ```

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Bits per second.
pub type BitRate = u64;

/// Least share of a link's capacity that counts as available: a full link still gets a flow now and then, so its weight does
/// not become 0.
const FLOOR_PERCENT: u64 = 1;
const MEGABIT: u64 = 1_000_000;

/// The measure that counts as the capacity of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// The whole capacity of the link.
    #[default]
    Capacity,
    /// The part of the capacity that the average load leaves.
    Available,
}

/// A link in one direction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkId {
    /// A port of this node, by the name of its device.
    Own(String),
    /// A link from a neighbour to a node behind it, by their BGP identifiers.
    Behind(Ipv4Addr, Ipv4Addr),
}

/// Links of which something was heard or measured.
pub type Links = BTreeMap<LinkId, Link>;

/// What a link can carry, and what it carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// What the link can carry.
    pub capacity: BitRate,
    /// Average load of the link.
    pub load: BitRate,
}

impl Link {
    /// Returns what counts as the link's capacity.
    pub fn usable(self, metric: Metric) -> BitRate {
        match metric {
            Metric::Capacity => self.capacity,
            Metric::Available => self.capacity.saturating_sub(self.load).max(self.capacity / 100 * FLOOR_PERCENT),
        }
    }
}

/// The source of a statement about the capacity of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The configuration.
    File,
    /// The node at the link's other end.
    Heartbeat,
}

/// Returns which of several statements about the capacity of one link counts: the configuration's, or else a heartbeat's.
pub fn believed(said: &[(Origin, BitRate)]) -> Option<(Origin, BitRate)> {
    said.iter().copied().min_by_key(|(origin, _)| *origin)
}

/// Returns what a path can carry: as much as the narrowest of its links that are known.
pub fn path_capacity(links: impl IntoIterator<Item = BitRate>) -> Option<BitRate> {
    links.into_iter().min()
}

/// Returns the weights of members with these capacities. Returns `None` if one of the capacities is unknown: then all
/// members have equal weights.
///
/// A weight is in Mbit/s. If the largest weight does not fit, the unit is 10, 100, ... Mbit/s: the smallest one that
/// makes it fit.
pub fn weights(capacities: &[Option<BitRate>]) -> Option<Vec<u16>> {
    let known: Vec<BitRate> = capacities.iter().copied().collect::<Option<_>>()?;
    let largest = known.iter().copied().max().unwrap_or_default();
    let mut unit = MEGABIT;
    while largest / unit > u16::MAX.into() {
        unit = unit.saturating_mul(10);
    }
    Some(known.iter().map(|capacity| u16::try_from(capacity / unit).unwrap_or(u16::MAX).max(1)).collect())
}

/// A value that changes all the time, and its last published state.
///
/// A change is published if it is large and lasts for [`Self::HOLD`]. Publications are at least that far apart. A value
/// that only wavers is not published.
#[derive(Clone, Copy, Debug)]
struct Publisher {
    published: u64,
    published_at: u64,
    /// Time since when the value has differed from the published one.
    differs_since: Option<u64>,
}

impl Publisher {
    /// Smallest difference from the published value that counts, in percent of the published value.
    const THRESHOLD_PERCENT: u64 = 10;
    /// Time for which the value has to differ, and shortest time between two publications, in nanoseconds.
    const HOLD: u64 = 100_000_000;

    /// Creates the publisher of a value that is published at `now` (nanoseconds).
    const fn new(value: u64, now: u64) -> Self {
        Self { published: value, published_at: now, differs_since: None }
    }

    /// Looks at the present value. Returns it if it is published now.
    fn look(&mut self, value: u64, now: u64) -> Option<u64> {
        let difference = u128::from(value.abs_diff(self.published));
        if difference * 100 <= u128::from(self.published) * u128::from(Self::THRESHOLD_PERCENT) {
            self.differs_since = None;
            return None;
        }
        // If the clock has jumped back, the time begins anew.
        let since = self.differs_since.map_or(now, |since| since.min(now));
        (self.differs_since, self.published_at) = (Some(since), self.published_at.min(now));
        let is_over = |begin: u64| now.saturating_sub(begin) >= Self::HOLD;
        (is_over(since) && is_over(self.published_at)).then(|| self.publish(value, now))
    }

    /// Publishes a value at once: the link went down, or has another capacity.
    fn publish(&mut self, value: u64, now: u64) -> u64 {
        *self = Self::new(value, now);
        value
    }
}

/// The last published state of several links.
#[derive(Clone, Debug, Default)]
pub struct Publishers {
    links: BTreeMap<LinkId, (Publisher, Link)>,
    told_at: Option<u64>,
    /// Whether a change has not been published yet.
    is_news: bool,
}

impl Publishers {
    /// Looks at the present links. If there is something to publish now, returns the state of all links. A load is
    /// published when it has differed by more than 10 % for 100 ms; another capacity, and a link that comes or goes,
    /// are published at once. There are at most ten publications per second.
    pub fn look(&mut self, links: &Links, now: u64) -> Option<Links> {
        let before = self.links.len();
        self.links.retain(|id, _| links.contains_key(id));
        self.is_news |= self.links.len() != before;
        for (id, &link) in links {
            self.is_news |= self.look_at(id, link, now);
        }
        let is_early = self.told_at.is_some_and(|told| told <= now && now - told < Publisher::HOLD);
        if !self.is_news || is_early {
            return None;
        }
        (self.is_news, self.told_at) = (false, Some(now));
        Some(self.links.iter().map(|(id, (_, link))| (id.clone(), *link)).collect())
    }

    /// Looks at one link. Returns true if its state is to be published.
    fn look_at(&mut self, id: &LinkId, link: Link, now: u64) -> bool {
        let left = link.usable(Metric::Available);
        let Some((publisher, told)) = self.links.get_mut(id) else {
            self.links.insert(id.clone(), (Publisher::new(left, now), link));
            return true;
        };
        let is_news = if link.capacity == told.capacity {
            publisher.look(left, now).is_some()
        } else {
            publisher.publish(left, now);
            true
        };
        if is_news {
            *told = link;
        }
        is_news
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIGABIT: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    #[test]
    fn a_path_is_as_wide_as_its_narrowest_link() {
        let link = |capacity, load| Link { capacity, load };
        let (up, down) = (link(100 * GIGABIT, 0), link(25 * GIGABIT, 10 * GIGABIT));
        let width = |metric| path_capacity([up, down].map(|link| link.usable(metric)));
        assert_eq!(width(Metric::Capacity), Some(25 * GIGABIT));
        assert_eq!(width(Metric::Available), Some(15 * GIGABIT));
        assert_eq!(path_capacity([]), None);
        let loads = [0, 60, 99, 100, 250].map(|load| link(100 * GIGABIT, load * GIGABIT).usable(Metric::Available));
        assert_eq!(loads, [100, 40, 1, 1, 1].map(|left| left * GIGABIT), "at least a hundredth is available");
    }

    #[test]
    fn the_configuration_is_believed_first() {
        use Origin::{File, Heartbeat};
        assert_eq!(believed(&[(Heartbeat, 2), (File, 3)]), Some((File, 3)));
        assert_eq!(believed(&[(Heartbeat, 2)]), Some((Heartbeat, 2)));
        assert_eq!(believed(&[]), None);
    }

    #[test]
    fn weights_are_in_the_proportion_of_capacities() {
        let of = |capacities: &[u64]| weights(&capacities.iter().copied().map(Some).collect::<Vec<_>>()).unwrap();
        assert_eq!(of(&[25 * GIGABIT, 100 * GIGABIT]), [2500, 10000]);
        assert_eq!(of(&[100 * MEGABIT, 97_000_003]), [100, 97]);
        assert_eq!(of(&[65_535 * MEGABIT, MEGABIT]), [65_535, 1]);
        assert_eq!(of(&[1_600 * GIGABIT, MEGABIT]), [16_000, 1], "a weight is not 0");
        assert_eq!(of(&[u64::MAX, u64::MAX / 2]).first(), Some(&18_446));
        assert_eq!(weights(&[Some(GIGABIT), None]), None, "one is unknown");
        assert_eq!(weights(&[]), Some(Vec::new()));
    }

    #[test]
    fn small_changes_are_not_published_and_large_ones_once() {
        let mut publisher = Publisher::new(100, 0);
        assert!((1..1000).all(|ms| publisher.look(91, ms * MS).is_none()), "9 %");
        assert!((1..1000).all(|ms| publisher.look(110, (1000 + ms) * MS).is_none()), "10 %");
        let told: Vec<u64> = (2000..3000).filter(|ms| publisher.look(89, ms * MS).is_some()).collect();
        assert_eq!((told, publisher.published), (vec![2100], 89), "11 %, after the hold time");
    }

    #[test]
    fn publications_are_no_more_than_ten_a_second() {
        let mut wavering = Publisher::new(100, 0);
        let told = (0..10_000).filter(|ms| wavering.look(if ms / 50 % 2 == 0 { 100 } else { 80 }, ms * MS).is_some());
        assert_eq!(told.count(), 0, "20 % for 50 ms");
        let mut falling = Publisher::new(1 << 40, 0);
        let told = (1..=1000u64).filter(|ms| falling.look((1 << 40) - (ms << 29), ms * MS).is_some());
        assert!(told.count() <= 10, "a value that changes all the time");
    }

    #[test]
    fn a_link_that_goes_down_is_published_at_once() {
        let mut publisher = Publisher::new(100, 0);
        assert_eq!(publisher.publish(0, MS), 0);
        assert_eq!((publisher.published, publisher.look(100, 2 * MS)), (0, None));
        assert_eq!(publisher.look(100, 102 * MS), Some(100));
        assert_eq!(publisher.look(50, MS), None, "the clock has jumped back");
        assert_eq!(publisher.look(50, 101 * MS), Some(50));
    }

    #[test]
    fn links_are_told_together_and_no_more_often_than_ten_times_a_second() {
        let behind = |node| LinkId::Behind(Ipv4Addr::from_bits(1), Ipv4Addr::from_bits(node));
        let links = |load: u64, more: &[u32]| -> Links {
            let first = Link { capacity: 100 * GIGABIT, load: load * GIGABIT };
            let more = more.iter().map(|node| (behind(*node), Link { capacity: 25 * GIGABIT, load: 0 }));
            [(LinkId::Own("eth1".to_owned()), first)].into_iter().chain(more).collect()
        };
        let mut publishers = Publishers::default();
        assert_eq!(publishers.look(&links(0, &[]), 0), Some(links(0, &[])), "the first time");
        assert!((1..1000).all(|ms| publishers.look(&links(9, &[]), ms * MS).is_none()), "9 %");
        let told: Vec<u64> = (1000..2000).filter(|ms| publishers.look(&links(20, &[]), ms * MS).is_some()).collect();
        assert_eq!(told, [1100], "after the hold time, once");
        assert_eq!(
            publishers.look(&links(20, &[2]), 2000 * MS),
            Some(links(20, &[2])),
            "a link that comes is told at once"
        );
        assert_eq!(publishers.look(&links(20, &[]), 2001 * MS), None, "too early");
        assert_eq!(publishers.look(&links(20, &[]), 2100 * MS), Some(links(20, &[])), "a link that goes is told then");
        assert_eq!(publishers.look(&links(25, &[]), 3000 * MS), None);
    }

    proptest! {
        #[test]
        fn a_wider_member_has_no_smaller_weight(capacities in prop::collection::vec(MEGABIT..2_000_000 * MEGABIT, 1..20)) {
            let all: Vec<Option<u64>> = capacities.iter().copied().map(Some).collect();
            let weights = weights(&all).unwrap();
            for (one, weight) in capacities.iter().zip(&weights) {
                for (other, other_weight) in capacities.iter().zip(&weights) {
                    prop_assert!(one < other || weight >= other_weight);
                }
            }
            prop_assert!(!weights.contains(&0));
        }
    }
}
