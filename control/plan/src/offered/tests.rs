//! Outcomes of offers, depending on what was in force before.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use srv6d_addresses::Mac;

use super::*;
use crate::{Device, Environment, Plan, plan_with};
use srv6d_config as config;
use srv6d_offer::with_last_good;

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
        is_in_force: false,
    };
    vec![Offer { source: "jalapeno".to_owned(), steers: carriers.iter().map(steer).collect(), ..Offer::default() }]
}

fn planned(config: &str, offers: &[Offer]) -> Plan {
    plan_with(&config::parse(config, "srv6d.toml").unwrap(), &Environment::default(), offers).unwrap()
}

/// Returns the carriers in force, by prefix.
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

    // As soon as a route exists, the new path takes its place.
    let both = format!("{config}{}", ROUTE.replace("1004", "2004"));
    let resolved = planned(&both, &second);
    let new = |prefix: &str| (prefix.to_owned(), NOWHERE.to_owned());
    assert_eq!(in_force(&resolved), [new(b), new(c)]);
    assert_eq!(*state(&resolved, "hosts/b"), OutcomeState::Programmed);
}

#[test]
fn what_is_the_nodes_own_is_not_steered_unless_a_list_says_so() {
    let config = format!(
        "{NODE}{}{ROUTE}[[sid]]\nsid = \"3fff:0:1::/48\"\nbehavior = \"uN\"\n",
        "[[block]]\nprefix = \"fcbb::/32\"\nhosts = [\"fcbb:0:800::/48\"]\n",
    );
    let address = |text: &str| text.parse().unwrap();
    let device = |name: &str, ifindex: u32, addresses: &[&str]| Device {
        name: name.to_owned(),
        ifindex,
        mac: Mac::default(),
        mtu: 1500,
        up: true,
        addresses: addresses.iter().map(|text| address(text)).collect(),
    };
    let devices = vec![
        device("lo", 1, &["2001:db8:1::1/128"]),
        device("eth1", 2, &["fcbb:0:800:1::2/64", "2001:db8:7::1/64", "10.7.0.1/24"]),
    ];
    let environment = Environment { devices, ..Environment::default() };
    let fix = "list it in `allowed_prefixes` if the controller may decide on it";
    let (connected, own) = ("which is connected to this node", "an address of this node, lies in it");
    let refused = [
        ("2001:db8:7::5/128", format!("it lies in 2001:db8:7::/64, {connected}; {fix}")),
        ("2001:db8:7::/64", format!("it lies in 2001:db8:7::/64, {connected}; {fix}")),
        ("10.7.0.0/25", format!("it lies in 10.7.0.0/24, {connected}; {fix}")),
        ("fcbb:0:800:1::/80", format!("it lies in fcbb:0:800:1::/64, {connected}; {fix}")),
        ("2001:db8:1::1/128", format!("2001:db8:1::1, {own}; {fix}")),
        ("2001:db8:7::/48", format!("2001:db8:7::1, {own}; {fix}")),
        ("3fff:0:1:7::/64", format!("it lies in 3fff:0:1::/48, a SID of this node; {fix}")),
        (
            "fcbb:0:1006::/48",
            format!(
                "it lies in the [[block]] fcbb::/32 and not in its `hosts`; add it to `hosts` if hosts are there, or {fix}"
            ),
        ),
    ];
    let run = |config: &str, offers: &[Offer]| {
        plan_with(&config::parse(config, "srv6d.toml").unwrap(), &environment, offers).unwrap()
    };
    for (prefix, why) in refused {
        let offers = offer(&[("hosts/b", prefix, GOOD), ("hosts/c", "fcbb:0:800:2::/64", GOOD)]);
        let plan = run(&config, &offers);
        assert_eq!(*state(&plan, "hosts/b"), OutcomeState::Refused(format!("{prefix} is not steered: {why}")));
        assert_eq!(in_force(&plan), [("fcbb:0:800:2::/64".to_owned(), GOOD.to_owned())], "{prefix}");
    }
    let anywhere = config.replace("hosts = [\"fcbb:0:800::/48\"]", "");
    let offers = offer(&[("hosts/b", "fcbb:0:1006::/48", GOOD), ("hosts/c", "fcbb:0:900:2::/64", GOOD)]);
    let plan = run(&anywhere, &offers);
    let OutcomeState::Refused(why) = state(&plan, "hosts/b") else { unreachable!("{:?}", plan.offered) };
    assert!(why.contains("which has no `hosts`, and is no longer than a locator; add it to `hosts`"), "{why}");
    assert_eq!(in_force(&plan), [("fcbb:0:900:2::/64".to_owned(), GOOD.to_owned())]);
    let listed = config.replace("peers =", "allowed_prefixes = [\"::/0\"]\npeers =");
    let offers = offer(&[("hosts/b", "2001:db8:7::5/128", GOOD), ("hosts/c", "fcbb:0:1006:7::/64", GOOD)]);
    assert_eq!(in_force(&run(&listed, &offers)).len(), 2);
}

#[test]
fn no_new_path_takes_a_prefix_away_that_is_in_force() {
    let config = format!("{NODE}{BLOCK}{DEFAULT}");
    let (b, c) = ("fcbb:0:800:2::/64", "2001:db8:c::/64");
    // The prefix in force decides where the packets to the new path's first segment go.
    let into_b = "fcbb:0:800:2:fe06::";
    let first = offer(&[("hosts/b", b, GOOD)]);
    let plan = planned(&config, &first);
    let second = with_last_good(&offer(&[("hosts/b", b, GOOD), ("hosts/c", c, into_b)]), &first, &plan.offered);
    let kept = planned(&config, &second);
    assert_eq!(in_force(&kept), [(b.to_owned(), GOOD.to_owned())]);
    let OutcomeState::Refused(why) = state(&kept, "hosts/c") else { unreachable!("{:?}", kept.offered) };
    assert!(why.contains("packets would be encapsulated in a circle"), "{why}");
    // The outcome stays the same when both are planned again.
    let third = with_last_good(&second, &second, &kept.offered);
    assert_eq!(in_force(&planned(&config, &third)), [(b.to_owned(), GOOD.to_owned())]);
    // A new path of the peer itself that leads there takes nothing away, either.
    let own = with_last_good(&offer(&[("hosts/b", b, into_b)]), &first, &plan.offered);
    let kept = planned(&config, &own);
    assert_eq!(in_force(&kept), [(b.to_owned(), GOOD.to_owned())]);
    assert!(matches!(state(&kept, "hosts/b"), OutcomeState::Kept(_)), "{:?}", kept.offered);
}

#[test]
fn a_peer_whose_new_prefix_is_refused_keeps_the_one_in_force() {
    let config = format!("{NODE}{BLOCK}{ROUTE}");
    let (b, c) = ("2001:db8:b::/64", "2001:db8:c::/64");
    let first = offer(&[("hosts/b", b, GOOD), ("hosts/c", c, GOOD)]);
    let plan = planned(&config, &first);
    let all = [(b.to_owned(), GOOD.to_owned()), (c.to_owned(), GOOD.to_owned())];
    let sorted = |plan: &Plan| {
        let mut steers = in_force(plan);
        steers.sort();
        steers
    };
    assert_eq!(sorted(&plan), all);
    // The new prefix is a locator of the block, and then the prefix of another peer.
    let (mut before, mut known) = (first, plan);
    for wrong in ["fcbb:0:1006::/48", c, c] {
        let next = offer(&[("hosts/c", c, GOOD), ("hosts/b", wrong, GOOD)]);
        before = with_last_good(&next, &before, &known.offered);
        assert_eq!(before, next, "what was in force makes no other offer of it");
        known = planned(&config, &before);
        assert_eq!(sorted(&known), all, "{wrong}");
        let states: Vec<_> = known.offered.iter().filter(|outcome| outcome.peer == "hosts/b").collect();
        assert!(matches!(states[0].state, OutcomeState::Refused(_)), "{states:?}");
        assert!(matches!(states[1].state, OutcomeState::Kept(_)) && states.len() == 2, "{states:?}");
    }
    // A prefix that is right takes its place, and the old one does not come back.
    for prefix in ["2001:db8:e::/64", "fcbb:0:1006::/48"] {
        before = with_last_good(&offer(&[("hosts/b", prefix, GOOD)]), &before, &known.offered);
        known = planned(&config, &before);
        assert_eq!(sorted(&known), [("2001:db8:e::/64".to_owned(), GOOD.to_owned())], "{prefix}");
    }
}

#[test]
fn nobody_takes_the_prefix_of_another_one() {
    let config = format!("{NODE}{BLOCK}{ROUTE}");
    let other = "fcbb:0:1004:1000:1007:fe06::";
    let c = "2001:db8:c::/64";
    // The other offer is of a peer whose name comes first, and then of another controller.
    let first = offer(&[("hosts/c", c, GOOD)]);
    let plan = planned(&config, &first);
    let both = offer(&[("hosts/b", c, other), ("hosts/c", c, GOOD)]);
    let kept = planned(&config, &with_last_good(&both, &first, &plan.offered));
    assert_eq!(in_force(&kept), [(c.to_owned(), GOOD.to_owned())]);
    assert!(matches!(state(&kept, "hosts/b"), OutcomeState::Refused(_)), "{:?}", kept.offered);

    let of = |source: &str, offers: Vec<Offer>| -> Vec<Offer> {
        offers.into_iter().map(|offer| Offer { source: source.to_owned(), ..offer }).collect()
    };
    let syd = || of("syd", offer(&[("c", c, GOOD)]));
    for (before, in_turn) in [(syd(), GOOD), (offer(&[("hosts/c", c, other)]), other), (Vec::new(), GOOD)] {
        let plan = planned(&config, &before);
        let both = [offer(&[("hosts/c", c, other)]), syd()].concat();
        let kept = planned(&config, &with_last_good(&both, &before, &plan.offered));
        assert_eq!(in_force(&kept), [(c.to_owned(), in_turn.to_owned())], "{before:?}");
    }
}

#[test]
fn no_prefix_takes_the_way_to_a_next_hop() {
    let route = ROUTE.replace("fe80::1", "2001:db8:9::1");
    let config = format!("{NODE}{BLOCK}{route}").replace("peers =", "allowed_prefixes = [\"::/0\"]\npeers =");
    let (b, c) = ("2001:db8:b::/64", "2001:db8:9::/64");
    let first = offer(&[("hosts/b", b, GOOD)]);
    let plan = planned(&config, &first);
    let both = with_last_good(&offer(&[("hosts/b", b, GOOD), ("hosts/c", c, GOOD)]), &first, &plan.offered);
    let plan = planned(&config, &both);
    assert_eq!(in_force(&plan), [(b.to_owned(), GOOD.to_owned())]);
    assert!(matches!(state(&plan, "hosts/c"), OutcomeState::Refused(_)), "{:?}", plan.offered);
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
