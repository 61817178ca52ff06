//! Tests of rules in plans: a table of srv6d that combines several tables of the kernel, tables of ports, and rules
//! that stay with the kernel.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};
use proptest::prelude::*;
use srv6d_kernel_routes::{Messages, Routes};
use srv6d_plan::{self as plan, Environment, Plan};
use srv6d_srv6::desired::{RouteAction, TableId};

use super::{config, environment};
use crate::netlink::{BLACKHOLE, Route, attribute, number, octets, rule};

fn planned(messages: &[Vec<u8>]) -> Plan {
    let mut routes = Routes::default();
    Messages::new(&messages.concat()).for_each(|message| routes.load(message));
    plan::plan(&config(), &Environment { routes: Arc::new(routes), ..environment() }).unwrap()
}

const V4: u8 = 2;
const V6: u8 = 10;

/// Returns a rule with `priority`, `lookup table`, and more attributes.
fn lookup(family: u8, priority: u32, table: u8, more: &[Vec<u8>]) -> Vec<u8> {
    rule(family, table, 1, &[number(6, priority), more.concat()].concat())
}

fn named(words: &str) -> Vec<u8> {
    attribute(3, &[words.as_bytes(), &[0]].concat())
}

fn to(prefix: Ipv4Net, mut rule: Vec<u8>) -> Vec<u8> {
    rule.extend(attribute(1, &prefix.addr().octets()));
    let length = u32::try_from(rule.len()).unwrap();
    rule[..4].copy_from_slice(&length.to_ne_bytes());
    rule[17] = prefix.prefix_len();
    rule
}

/// Returns the rules that every namespace has, with others between them, in the order of their priorities.
fn with_usual(others: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let both = |priority, table| [V4, V6].map(|family| lookup(family, priority, table, &[])).to_vec();
    [both(0, 255), others.to_vec(), both(32766, 254)].concat()
}

fn routes_of(plan: &Plan, table: u32) -> Vec<(String, bool)> {
    let of_table = plan.desired.routes.iter().filter(|route| route.table == TableId(table));
    let kernel = RouteAction::Kernel;
    let mut routes: Vec<_> = of_table.map(|route| (route.prefix.to_string(), route.action == kernel)).collect();
    routes.retain(|(prefix, _)| prefix.starts_with("10."));
    routes.sort();
    routes
}

fn in_table(table: u32, prefix: &str) -> Vec<u8> {
    Route { table, ..Route::to(prefix) }.via("10.1.0.2", 2).added(0)
}

#[test]
fn rules_of_every_namespace_change_nothing() {
    let route = in_table(254, "10.9.0.0/16");
    let with = planned(&[with_usual(&[]), vec![route.clone()]].concat());
    assert_eq!(with, planned(&[route]));
    assert_eq!(routes_of(&with, 254), [("10.9.0.0/16".to_owned(), false)]);
}

#[test]
fn a_rule_for_a_port_gives_it_its_table() {
    let rules = [lookup(V4, 10, 77, &[named("eth2")]), lookup(V6, 10, 77, &[named("eth2")])];
    let plan = planned(&[with_usual(&rules), vec![in_table(77, "10.9.0.0/16")]].concat());
    let tables: Vec<u32> = plan.desired.ports.iter().map(|port| port.table.0).collect();
    assert_eq!(tables, [254, 77]);
    assert_eq!(routes_of(&plan, 77), [("10.9.0.0/16".to_owned(), false)], "followed because the rule leads there");
    assert!(plan.unfollowed.is_empty(), "{:?}", plan.unfollowed);
}

#[test]
fn a_port_has_one_table_for_both_families() {
    let one = [lookup(V4, 10, 77, &[named("eth2")])];
    let plan = planned(&[with_usual(&one), vec![in_table(77, "10.9.0.0/16")]].concat());
    assert_eq!(plan.desired.ports[1].table, TableId(77));
    let [left] = plan.unfollowed.as_slice() else { unreachable!("{:?}", plan.unfollowed) };
    assert!(
        left.why.contains("iif eth2") && left.why.ends_with("IPv6 that comes in there stays with the kernel"),
        "{left:?}"
    );
    let two = [lookup(V4, 10, 77, &[named("eth2")]), lookup(V6, 10, 78, &[named("eth2")])];
    let plan = planned(&with_usual(&two));
    assert_eq!(plan.desired.ports[1].table, TableId(u32::MAX), "nobody's: all of it is the kernel's");
    assert_eq!(plan.unfollowed.len(), 2);
}

#[test]
fn what_depends_on_more_stays_with_the_kernel() {
    let marked = lookup(V4, 10, 60, &[number(10, 7)]);
    let plan =
        planned(&[with_usual(&[marked]), vec![in_table(60, "10.9.1.0/24"), in_table(254, "10.9.0.0/16")]].concat());
    let expected = [("10.9.0.0/16".to_owned(), false), ("10.9.1.0/24".to_owned(), true)];
    assert_eq!(routes_of(&plan, 254), expected, "whatever table 60 has a route for is the kernel's");
    let words: Vec<&str> = plan.unfollowed.iter().map(|left| left.why.as_str()).collect();
    assert_eq!(words, ["the rule \"10: from all fwmark 0x7 lookup 60\" chooses by more than port and destination"]);
    let own = lookup(V4, 10, 60, &[named("lo")]);
    let plan = planned(&[with_usual(&[own]), vec![in_table(60, "10.9.1.0/24"), in_table(254, "10.9.0.0/16")]].concat());
    assert_eq!(routes_of(&plan, 254), [("10.9.0.0/16".to_owned(), false)], "for this node's own packets");
}

/// The action of a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Look(u8),
    /// Lookup of marked packets only.
    LookMarked(u8),
    Blackhole,
}

const PREFIXES: [&str; 6] = ["0.0.0.0/0", "10.8.0.0/16", "10.9.0.0/16", "10.9.1.0/24", "10.9.1.128/25", "10.9.2.0/24"];
const TO: [&str; 4] = ["0.0.0.0/0", "10.9.0.0/16", "10.9.1.0/24", "10.9.1.64/26"];
/// One address in each part into which these prefixes divide the address space.
const ADDRESSES: [&str; 8] =
    ["10.7.0.1", "10.8.0.1", "10.9.0.1", "10.9.1.1", "10.9.1.65", "10.9.1.129", "10.9.2.1", "11.0.0.1"];
const TABLES: [u8; 3] = [50, 60, 254];

type Said = Vec<(Ipv4Net, Does)>;
type Known = Vec<(u8, Ipv4Net, bool)>;

fn rules() -> impl Strategy<Value = Said> {
    let table = || prop::sample::select(&TABLES[..]);
    let does = prop_oneof![
        5 => table().prop_map(Does::Look),
        1 => table().prop_map(Does::LookMarked),
        1 => Just(Does::Blackhole),
    ];
    let to = prop::sample::select(&TO[..]).prop_map(|to| to.parse().unwrap());
    prop::collection::vec((to, does), 0..5)
}

fn routes() -> impl Strategy<Value = Known> {
    let prefix = prop::sample::select(&PREFIXES[..]).prop_map(|prefix| prefix.parse().unwrap());
    prop::collection::vec((prop::sample::select(&TABLES[..]), prefix, prop::bool::weighted(0.2)), 0..10)
}

/// Returns a next hop that identifies the route.
fn mark(table: u8, prefix: Ipv4Net) -> Ipv4Addr {
    let number = PREFIXES.iter().position(|known| **known == prefix.to_string()).unwrap();
    Ipv4Addr::new(10, 1, table, u8::try_from(number + 2).unwrap())
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Via(Ipv4Addr),
    Blackhole,
    Kernel,
}

/// Evaluates one rule after the other, as the kernel does.
fn by_the_rules(rules: &Said, routes: &Known, address: Ipv4Addr) -> Option<Answer> {
    let look = |table| {
        let around = routes.iter().filter(|(of, prefix, _)| *of == table && prefix.contains(&address));
        let (table, prefix, is_blackhole) = around.max_by_key(|(_, prefix, _)| prefix.prefix_len())?;
        Some(if *is_blackhole { Answer::Blackhole } else { Answer::Via(mark(*table, *prefix)) })
    };
    rules.iter().filter(|(to, _)| to.contains(&address)).find_map(|(_, does)| match does {
        Does::Look(table) => look(*table),
        Does::LookMarked(table) => look(*table).map(|_| Answer::Kernel),
        Does::Blackhole => Some(Answer::Blackhole),
    })
}

fn by_the_plan(plan: &Plan, address: Ipv4Addr) -> Option<Answer> {
    let address = IpAddr::V4(address);
    let is_around = |prefix: &IpNet| prefix.addr().is_ipv4() && prefix.contains(&address);
    let of_main = plan.desired.routes.iter().filter(|route| route.table == TableId::MAIN && is_around(&route.prefix));
    let longest = of_main.max_by_key(|route| route.prefix.prefix_len())?;
    Some(match &longest.action {
        RouteAction::Via(hops) => match hops.first().and_then(|hop| hop.via) {
            Some(IpAddr::V4(via)) => Answer::Via(via),
            _ => return None,
        },
        RouteAction::Blackhole => Answer::Blackhole,
        _ => Answer::Kernel,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn one_table_answers_as_all_that_are_asked(rules in rules(), known in routes()) {
        let mut routes: Known = Vec::new();
        for route in known {
            if !routes.iter().any(|(table, prefix, _)| (*table, *prefix) == (route.0, route.1)) {
                routes.push(route);
            }
        }
        let mut messages = vec![lookup(V4, 0, 255, &[])];
        for (priority, (prefix, does)) in (1..).zip(&rules) {
            messages.push(to(*prefix, match does {
                Does::Look(table) => lookup(V4, priority, *table, &[]),
                Does::LookMarked(table) => lookup(V4, priority, *table, &[number(10, 7)]),
                Does::Blackhole => rule(V4, 0, 6, &number(6, priority)),
            }));
        }
        messages.extend([lookup(V4, 32766, 254, &[]), lookup(V6, 32766, 254, &[])]);
        for &(table, prefix, is_blackhole) in &routes {
            let route = Route { table: u32::from(table), ..Route::to(&prefix.to_string()) };
            let via = attribute(5, &octets(IpAddr::V4(mark(table, prefix))));
            let acting = if is_blackhole {
                Route { kind: BLACKHOLE, ..route }
            } else {
                route.with(&via).with(&number(4, 2))
            };
            messages.push(acting.added(0));
        }
        let plan = planned(&messages);
        let all: Said = rules.iter().copied().chain([("0.0.0.0/0".parse().unwrap(), Does::Look(254))]).collect();
        for address in ADDRESSES {
            let address: Ipv4Addr = address.parse().unwrap();
            prop_assert_eq!(by_the_plan(&plan, address), by_the_rules(&all, &routes, address), "{}", address);
        }
    }
}
