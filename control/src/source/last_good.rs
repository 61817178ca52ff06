//! Paths that stay until the ones that are offered in their place can be in force.

use std::collections::HashMap;

use ipnet::IpNet;
use srv6d_srv6::model::TableId;

use super::{Offer, OfferedPath, Outcome, OutcomeState};

/// Of which source and peer a steered prefix is, and in which table.
type Key<'o> = (&'o str, &'o str, IpNet, u32);

/// What sources offer now, each prefix with the paths that are in force for it: `before` is what is planned, and
/// `outcomes` what became of it.
pub fn with_last_good(latest: &[Offer], before: &[Offer], outcomes: &[Outcome]) -> Vec<Offer> {
    let known = last_good(before, outcomes);
    let mut offers = latest.to_vec();
    for Offer { source, steers } in &mut offers {
        for steer in steers {
            let key = (source.as_str(), steer.peer.as_str(), steer.prefix, steer.table);
            let good = known.get(&key).copied().unwrap_or_default();
            steer.last_good = if good == steer.paths { Vec::new() } else { good.to_vec() };
        }
    }
    offers
}

fn last_good<'o>(before: &'o [Offer], outcomes: &'o [Outcome]) -> HashMap<Key<'o>, &'o [OfferedPath]> {
    let states: HashMap<Key<'_>, &OutcomeState> = outcomes
        .iter()
        .map(|Outcome { source, peer, prefix, table: TableId(table), state }| {
            ((source.as_str(), peer.as_str(), *prefix, *table), state)
        })
        .collect();
    let mut known = HashMap::new();
    for Offer { source, steers } in before {
        for steer in steers {
            let key = (source.as_str(), steer.peer.as_str(), steer.prefix, steer.table);
            let good = match states.get(&key) {
                Some(OutcomeState::Programmed) => &steer.paths,
                _ => &steer.last_good,
            };
            known.insert(key, good.as_slice());
        }
    }
    known
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
    use super::super::OfferedSteer;
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
        };
        vec![Offer { source: "jalapeno".to_owned(), steers: vec![steer] }]
    }

    fn outcome(state: OutcomeState) -> Vec<Outcome> {
        let (source, peer) = ("jalapeno".to_owned(), "hosts/b".to_owned());
        vec![Outcome { source, peer, prefix: "2001:db8::/64".parse().unwrap(), table: TableId(254), state }]
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
