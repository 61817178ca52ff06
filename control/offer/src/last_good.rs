//! Keeps the paths in force until the paths that are offered in their place can be in force.

use std::collections::{HashMap, HashSet};

use ipnet::IpNet;
use srv6d_addresses::TableId;

use super::{Offer, OfferOutcome, OfferedPath, OfferedSteer, OutcomeState};

/// Source and peer of a steered prefix, the prefix, and its table.
type Key<'o> = (&'o str, &'o str, IpNet, u32);

/// Returns the latest offers, each prefix with the paths that are in force for it. `before` are the offers of the
/// plan, and `outcomes` their outcomes.
pub fn with_last_good(latest: &[Offer], before: &[Offer], outcomes: &[OfferOutcome]) -> Vec<Offer> {
    let known = last_good(before, outcomes);
    let mut offers = latest.to_vec();
    for Offer { source, steers, gone } in &mut offers {
        let of_source = before.iter().filter(|offer| offer.source == *source);
        *gone = no_more(source, steers, of_source, &known);
        for steer in steers {
            let key = (source.as_str(), steer.peer.as_str(), steer.prefix, steer.table);
            let good = known.get(&key).copied().unwrap_or_default();
            steer.is_in_force = !good.is_empty();
            steer.last_good = if good == steer.paths { Vec::new() } else { good.to_vec() };
        }
    }
    offers
}

fn last_good<'o>(before: &'o [Offer], outcomes: &'o [OfferOutcome]) -> HashMap<Key<'o>, &'o [OfferedPath]> {
    let states: HashMap<Key<'_>, &OutcomeState> = outcomes
        .iter()
        .map(|OfferOutcome { source, peer, prefix, table: TableId(table), state }| {
            ((source.as_str(), peer.as_str(), *prefix, *table), state)
        })
        .collect();
    let mut known = HashMap::new();
    for Offer { source, steers, gone } in before {
        let key = |steer: &'o OfferedSteer| (source.as_str(), steer.peer.as_str(), steer.prefix, steer.table);
        for steer in gone.iter().filter(|steer| matches!(states.get(&key(steer)), Some(OutcomeState::Kept(_)))) {
            known.insert(key(steer), steer.last_good.as_slice());
        }
        for steer in steers {
            let good = match states.get(&key(steer)) {
                Some(OutcomeState::Programmed) => &steer.paths,
                _ => &steer.last_good,
            };
            known.insert(key(steer), good.as_slice());
        }
    }
    known
}

/// Returns the prefixes that were in force and are no longer offered, of peers that have another prefix now.
fn no_more<'o>(
    source: &str,
    steers: &[OfferedSteer],
    before: impl Iterator<Item = &'o Offer>,
    known: &HashMap<Key<'_>, &[OfferedPath]>,
) -> Vec<OfferedSteer> {
    let peers: HashSet<&str> = steers.iter().map(|steer| steer.peer.as_str()).collect();
    let offered: HashSet<_> = steers.iter().map(|steer| (steer.peer.as_str(), steer.prefix, steer.table)).collect();
    let earlier = before.flat_map(|offer| offer.steers.iter().chain(&offer.gone));
    let gone = earlier.filter(|steer| {
        peers.contains(steer.peer.as_str()) && !offered.contains(&(steer.peer.as_str(), steer.prefix, steer.table))
    });
    let in_force = gone.filter_map(|steer| {
        let good = known.get(&(source, steer.peer.as_str(), steer.prefix, steer.table))?.to_vec();
        let kept = OfferedSteer { paths: good.clone(), last_good: good, is_in_force: true, ..steer.clone() };
        (!kept.paths.is_empty()).then_some(kept)
    });
    in_force.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
    use super::*;

    fn path(segment: &str) -> OfferedPath {
        OfferedPath { name: "hosts/b".to_owned(), segments: vec![segment.parse().unwrap()], weight: 1 }
    }

    fn offer(segment: &str) -> Vec<Offer> {
        let steer = OfferedSteer {
            peer: "hosts/b".to_owned(),
            prefix: "2001:db8::/64".parse().unwrap(),
            table: 254,
            full_srh: false,
            source: None,
            via: None,
            port: None,
            paths: vec![path(segment)],
            last_good: Vec::new(),
            is_in_force: false,
        };
        vec![Offer { source: "jalapeno".to_owned(), steers: vec![steer], ..Offer::default() }]
    }

    fn outcome(state: OutcomeState) -> Vec<OfferOutcome> {
        let (source, peer) = ("jalapeno".to_owned(), "hosts/b".to_owned());
        vec![OfferOutcome { source, peer, prefix: "2001:db8::/64".parse().unwrap(), table: TableId(254), state }]
    }

    fn good(offers: &[Offer]) -> &[OfferedPath] {
        &offers[0].steers[0].last_good
    }

    #[test]
    fn what_was_in_force_stays_until_something_else_is() {
        let first = offer("fcbb:0:1:fe06::");
        let second = with_last_good(&offer("fd00:0:1:fe06::"), &first, &outcome(OutcomeState::Programmed));
        assert_eq!(good(&second), [path("fcbb:0:1:fe06::")]);
        let kept = outcome(OutcomeState::Kept("it waits".to_owned()));
        let third = with_last_good(&offer("fd00:0:2:fe06::"), &second, &kept);
        assert_eq!(good(&third), [path("fcbb:0:1:fe06::")], "the second was never in force");
        let again = with_last_good(&offer("fcbb:0:1:fe06::"), &third, &kept);
        assert!(good(&again).is_empty(), "what is offered is what is in force");
        let waits = outcome(OutcomeState::Pending("it waits".to_owned()));
        assert!(good(&with_last_good(&offer("fd00:0:3:fe06::"), &first, &waits)).is_empty(), "it never was in force");
        assert!(good(&with_last_good(&offer("fd00:0:3:fe06::"), &[], &[])).is_empty());
    }
}
