//! What becomes of an offer, next to what was in force before it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use super::*;
use crate::config;
use crate::plan::{Environment, Plan, plan_with};
use crate::source::last_good::with_last_good;

const NODE: &str = r#"
[node]
source = "fcbb:0:800::2"
[[port]]
name = "eth1"
[jalapeno]
endpoint = "http://[::1]:30800"
source = "hosts/a"
peers = ["hosts/b", "hosts/c"]
"#;
const BLOCK: &str = "[[block]]\nprefix = \"fcbb::/32\"\n";
const ROUTE: &str = "[[route]]\nprefix = \"fcbb:0:1004::/48\"\nvia = \"fe80::1\"\nport = \"eth1\"\n";
const DEFAULT: &str = "[[route]]\nprefix = \"::/0\"\nvia = \"fe80::1\"\nport = \"eth1\"\n";

const GOOD: &str = "fcbb:0:1004:1000:1006:fe06::";
const NOWHERE: &str = "fcbb:0:2004:1000:1006:fe06::";

fn offer(carriers: &[(&str, &str, &str)]) -> Vec<Offer> {
    let steer = |(peer, prefix, carrier): &(&str, &str, &str)| OfferedSteer {
        peer: (*peer).to_owned(),
        prefix: prefix.parse().unwrap(),
        table: TableId::MAIN.0,
        full_srh: false,
        source: None,
        via: None,
        port: None,
        paths: vec![OfferedPath { name: (*peer).to_owned(), segments: vec![carrier.parse().unwrap()], weight: 1 }],
        last_good: Vec::new(),
    };
    vec![Offer { source: "jalapeno".to_owned(), steers: carriers.iter().map(steer).collect() }]
}

fn planned(config: &str, offers: &[Offer]) -> Plan {
    plan_with(&config::parse(config, "srv6d.toml").unwrap(), &Environment::default(), offers).unwrap()
}

/// Carriers in force, by prefix.
fn in_force(plan: &Plan) -> Vec<(String, String)> {
    let steers = plan.desired.steers.iter();
    let carrier = |steer: &Steer| steer.paths.first().unwrap().segments.first().to_string();
    steers.map(|steer| (steer.prefix.to_string(), carrier(steer))).collect()
}

fn state<'p>(plan: &'p Plan, peer: &str) -> &'p OutcomeState {
    &plan.offered.iter().find(|outcome| outcome.peer == peer).unwrap().state
}

#[test]
fn a_path_that_does_not_resolve_leaves_the_last_good_one_in_force() {
    let config = format!("{NODE}{BLOCK}{ROUTE}");
    let (b, c) = ("2001:db8:b::/64", "2001:db8:c::/64");
    let first = offer(&[("hosts/b", b, GOOD)]);
    let plan = planned(&config, &first);
    assert_eq!(in_force(&plan), [(b.to_owned(), GOOD.to_owned())]);

    let second = offer(&[("hosts/b", b, NOWHERE), ("hosts/c", c, NOWHERE)]);
    let second = with_last_good(&second, &first, &plan.offered);
    let kept = planned(&config, &second);
    assert_eq!(in_force(&kept), [(b.to_owned(), GOOD.to_owned())]);
    let waits = format!("waits for a route to the first segment {NOWHERE}");
    assert_eq!(*state(&kept, "hosts/b"), OutcomeState::Kept(waits.clone()));
    assert_eq!(*state(&kept, "hosts/c"), OutcomeState::Pending(waits));

    // As soon as there is a route, the new one takes its place.
    let both = format!("{config}{}", ROUTE.replace("1004", "2004"));
    let resolved = planned(&both, &second);
    let new = |prefix: &str| (prefix.to_owned(), NOWHERE.to_owned());
    assert_eq!(in_force(&resolved), [new(b), new(c)]);
    assert_eq!(*state(&resolved, "hosts/b"), OutcomeState::Programmed);
}

#[test]
fn names_of_paths_that_are_not_in_force_are_free() {
    let config = format!("{NODE}{BLOCK}{ROUTE}");
    let b = "2001:db8:b::/64";
    let first = offer(&[("hosts/b", b, GOOD)]);
    let plan = planned(&config, &first);
    let second = with_last_good(&offer(&[("hosts/b", b, NOWHERE)]), &first, &plan.offered);
    let kept = planned(&config, &second);
    assert_eq!(kept.desired.steers.first().unwrap().paths.first().unwrap().name, "hosts/b");
}

#[test]
fn without_a_block_a_default_route_leads_no_carrier() {
    let b = "2001:db8:b::/64";
    let offers = offer(&[("hosts/b", b, GOOD)]);
    let refused = planned(&format!("{NODE}{DEFAULT}"), &offers);
    assert_eq!(in_force(&refused), []);
    let OutcomeState::Refused(why) = state(&refused, "hosts/b") else { unreachable!("{:?}", refused.offered) };
    assert_eq!(why, &format!("only the default route leads to the first segment {GOOD}, and there is no [[block]]"));
    for config in [format!("{NODE}{BLOCK}{DEFAULT}"), format!("{NODE}{DEFAULT}{ROUTE}")] {
        assert_eq!(in_force(&planned(&config, &offers)).len(), 1, "{config}");
    }
}
