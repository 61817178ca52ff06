//! Tests that a plan which is amended for changed routes of the kernel is equal to a new plan, whatever the routes were
//! before.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;
use srv6d_config::Config;
use srv6d_kernel_routes::{Effect, Messages, RouteKey, Routes};
use srv6d_plan::{self as plan, Environment, KernelNeighbor, Plan, PlanInputs};
use srv6d_srv6::desired::{Desired, Mac, TableId};
use srv6d_srv6::{Slots, Tables};

use super::{config, environment};
use crate::netlink::{
    BLACKHOLE, NEW_NEXT_HOP, Route, attribute, group, leg, next_hop, number, octets, rule, seg6, seg6_local,
};

/// The state and the plan of a daemon, and the routes of the kernel.
struct Node {
    config: Config,
    environment: Environment,
    plan: Plan,
    there: BTreeMap<RouteKey, Route>,
    /// Device of the first next-hop object.
    device: u32,
    /// Whether there is a rule `lookup 100` before `lookup main`.
    rule: bool,
    /// Whether the last whole plan failed, so that an older plan is in force.
    is_old: bool,
}

impl Node {
    /// Starts with the routes of the fabric, as an underlay has them, and two next-hop objects with a group.
    fn start() -> Self {
        let connected =
            |prefix: &str, device| Route { protocol: 2, metric: 256, ..Route::to(prefix) }.with(&number(4, device));
        let underlay = [
            connected("2001:db8:a::/64", 2),
            connected("2001:db8:b::/64", 3),
            Route::to("fcbb:0:1::/48").via("2001:db8:a::2", 2),
            Route::to("fcbb:0:2::/48").via("2001:db8:b::2", 3),
        ];
        let there = underlay.into_iter().map(|route| (key(&route), route)).collect();
        let (config, environment) = (config(), environment());
        let plan = plan::plan(&config, &environment).unwrap();
        let mut node = Self { config, environment, plan, there, device: 2, rule: false, is_old: false };
        node.dump();
        node
    }

    /// Reads everything again, and makes a whole plan.
    fn dump(&mut self) {
        let rule = |table, priority| rule(10, table, 1, &number(6, priority));
        let mut bytes = if self.rule { rule(100, 50) } else { Vec::new() };
        bytes.extend([rule(254, 32766), object(1, self.device), object(2, 3)].concat());
        bytes.extend(next_hop(NEW_NEXT_HOP, 10, &group(&[(1, 1), (2, 2)])));
        bytes.extend(self.there.values().flat_map(|route| route.added(0)));
        let mut routes = Routes::default();
        Messages::new(&bytes).for_each(|message| routes.load(message));
        self.environment.routes = Arc::new(routes);
        self.plan_anew();
    }

    /// Makes a whole plan. It fails if a SID of the kernel makes a path of the file run into this node; then the plan
    /// in force stays.
    fn plan_anew(&mut self) {
        let planned = plan::plan(&self.config, &self.environment);
        self.is_old = planned.is_err();
        self.plan = planned.unwrap_or_else(|_| self.plan.clone());
    }

    /// Applies messages, and returns the prefixes that they change.
    fn hear(&mut self, bytes: &[u8]) -> BTreeSet<RouteKey> {
        let mut changed = BTreeSet::new();
        let routes = Arc::make_mut(&mut self.environment.routes);
        for message in Messages::new(bytes) {
            assert_eq!(routes.apply(message, &mut changed), Effect::Kept);
        }
        changed
    }

    /// Applies a step, and returns the changed prefixes. Returns `None` for a change without events.
    fn take(&mut self, step: &Operation) -> Option<BTreeSet<RouteKey>> {
        let told = match *step {
            Operation::Put(at, aside, does) => {
                let route = acting(place(at, aside), does);
                // An existing route is deleted first, because Linux has special rules for replacements between
                // multipath and other routes.
                let old = self.there.insert(key(&route), route.clone());
                [old.map(|old| old.deleted()).unwrap_or_default(), route.added(0)].concat()
            }
            Operation::Delete(at, aside) => {
                self.there.remove(&key(&place(at, aside))).map(|old| old.deleted()).unwrap_or_default()
            }
            Operation::Object(other) => {
                self.device = if other { 3 } else { 2 };
                object(1, self.device)
            }
            Operation::Rule(rule) => {
                self.rule = rule;
                return None;
            }
            Operation::Neighbor(device, resolved) => {
                let address: IpAddr = if device == 2 { "2001:db8:a::2" } else { "2001:db8:b::2" }.parse().unwrap();
                let neighbors = &mut self.environment.neighbors;
                neighbors.retain(|known| known.address != address);
                let mac = resolved.map(|last| Mac([2, 0, 0, 0, 0, last]));
                neighbors.extend(mac.map(|mac| KernelNeighbor { device: format!("eth{}", device - 1), address, mac }));
                Vec::new()
            }
        };
        Some(self.hear(&told))
    }

    fn next_hops(&self) -> Vec<IpAddr> {
        let tables = Tables::build(&self.plan.desired, &mut Slots::default()).unwrap();
        tables.next_hops().map(|(_, address, _)| address).collect()
    }

    /// Applies the changes to the plan, and checks that it is equal to a whole plan. Returns `true` if it was amended.
    fn follow(&mut self, changed: &BTreeSet<RouteKey>) -> Result<bool, TestCaseError> {
        let inputs = PlanInputs { config: &self.config, offers: &[], environment: &self.environment };
        let amended = plan::plan_change(inputs, &self.plan, changed, &self.next_hops());
        let Some(amended) = amended.filter(|_| !self.is_old) else {
            self.plan_anew();
            return Ok(false);
        };
        let whole = plan::plan(&self.config, &self.environment).unwrap();
        let before = self.plan.desired.clone();
        let (diff, of_tables) = self.plan.amend(amended);
        prop_assert_eq!(diff, plan::diff(&before, &self.plan.desired));
        let mut told = before;
        told.amend(&of_tables);
        prop_assert_eq!(desired_sorted(told), desired_sorted(self.plan.desired.clone()));
        let before = self.plan.desired.clone();
        let of_neighbors = plan::neighbors(&self.config, &self.environment, &self.plan).unwrap();
        let (diff, _) = self.plan.resolve(of_neighbors);
        prop_assert_eq!(diff, plan::diff(&before, &self.plan.desired));
        prop_assert_eq!(sorted(self.plan.clone()), sorted(whole));
        Ok(true)
    }
}

fn key(route: &Route) -> RouteKey {
    RouteKey { table: TableId(route.table), prefix: route.prefix }
}

fn object(id: u32, device: u32) -> Vec<u8> {
    let address = if device == 2 { "2001:db8:a::2" } else { "2001:db8:b::2" };
    let gateway = attribute(6, &octets(address.parse().unwrap()));
    next_hop(NEW_NEXT_HOP, id, &[number(5, device), gateway].concat())
}

fn sorted(mut plan: Plan) -> Plan {
    plan.desired = desired_sorted(plan.desired);
    Arc::make_mut(&mut plan.unfollowed).sort_by_key(|route| (route.table, route.prefix));
    plan
}

fn desired_sorted(mut desired: Desired) -> Desired {
    desired.routes.sort_by_key(|route| (route.table, route.prefix));
    desired.steers.sort_by_key(|steer| (steer.table, steer.prefix));
    desired.sids.sort_by_key(|sid| sid.prefix);
    desired
}

/// There are few prefixes and tables, so that changes interact.
const PREFIXES: [&str; 14] = [
    "::/0",
    "2001:db8:100::/48",
    "2001:db8:100:1::/64",
    "2001:db8:200::/48",
    "2001:db8:200::5/128",
    "fcbb:0:1::/48",
    "fcbb:0:1:1::/64",
    "fcbb:0:3::/48",
    "fcbb:0:9::/48",
    "2001:db8:e::/48",
    "2001:db8:f::/48",
    "2001:db8:a::7/128",
    "10.9.0.0/16",
    "10.9.1.0/24",
];

fn via(address: &str) -> Vec<u8> {
    attribute(5, &octets(address.parse().unwrap()))
}

fn encap(mode: u32, segments: &[&str]) -> Vec<u8> {
    seg6((21, 22), mode, &segments.iter().map(|segment| segment.parse().unwrap()).collect::<Vec<_>>())
}

/// Returns a route with one of the actions, by number.
fn acting(route: Route, does: u8) -> Route {
    let a = || via("2001:db8:a::2");
    let route = Route { kind: if does == 0 { BLACKHOLE } else { route.kind }, ..route };
    match does {
        0 => route,
        1 => route.via("2001:db8:a::2", 2),
        2 => route.via("2001:db8:b::2", 3),
        3 => route.via("2001:db8:c::2", 4),
        4 => route.legs(&[leg(0, 1, 2, &a()), leg(0, 3, 3, &via("2001:db8:b::2"))]),
        5 => route.with(&number(4, 2)).with(&encap(3, &["fcbb:0:1:1::"])),
        6 => route.with(&number(4, 2)).with(&encap(1, &["fcbb:0:2::", "fcbb:0:1:7::"])),
        7 => route.with(&number(4, 2)).with(&encap(3, &["fcbb:0:3:5::"])),
        8 => route.with(&number(4, 2)).with(&encap(3, &["2001:db8:200::5"])),
        9 => route.legs(&[
            leg(0, 1, 2, &encap(3, &["fcbb:0:1:5::"])),
            leg(0, 2, 3, &[encap(3, &["fcbb:0:2:6::"]), via("2001:db8:b::2")].concat()),
        ]),
        10 => route.legs(&[leg(0, 1, 2, &a()), leg(0, 1, 3, &encap(3, &["fcbb:0:1:5::"]))]),
        11 => route.object(1),
        12 => route.object(10),
        13 => route.with(&number(4, 1)).with(&seg6_local(&[number(1, 1), attribute(11, &number(1, 1 << 4))])),
        14 => route.with(&number(4, 1)).with(&seg6_local(&[number(1, 7), number(3, 254)])),
        15 => route.with(&number(4, 2)).with(&encap(3, &["fcbb:0:9:1::"])),
        _ => route.with(&number(4, 1)).with(&seg6_local(&[
            number(1, 2),
            attribute(5, &octets("2001:db8:b::2".parse().unwrap())),
            number(7, 3),
        ])),
    }
}

const ACTIONS: u8 = 17;

#[derive(Clone, Debug)]
enum Operation {
    /// A route is added: prefix, whether in table 100, action.
    Put(usize, bool, u8),
    Delete(usize, bool),
    /// Object 1 gets another next hop.
    Object(bool),
    /// `ip rule add lookup 100` or its deletion, after which everything is read again.
    Rule(bool),
    /// The neighbour on that device gets another MAC address, or is removed.
    Neighbor(u32, Option<u8>),
}

fn step() -> impl Strategy<Value = Operation> {
    let place = || (0..PREFIXES.len(), prop::bool::weighted(0.15));
    prop_oneof![
        12 => (place(), 0..ACTIONS).prop_map(|((at, aside), does)| Operation::Put(at, aside, does)),
        5 => place().prop_map(|(at, aside)| Operation::Delete(at, aside)),
        1 => any::<bool>().prop_map(Operation::Object),
        1 => prop::bool::weighted(0.2).prop_map(Operation::Rule),
        2 => (2..4_u32, prop::option::of(2..4_u8)).prop_map(|(device, mac)| Operation::Neighbor(device, mac)),
    ]
}

fn place(at: usize, aside: bool) -> Route {
    let route = Route::to(PREFIXES[at]);
    Route { table: if aside { 100 } else { 254 }, ..route }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn an_amended_plan_is_a_whole_one(steps in prop::collection::vec(prop::collection::vec(step(), 1..3), 1..25)) {
        let mut node = Node::start();
        for together in steps {
            let told: Vec<_> = together.iter().map(|step| node.take(step)).collect();
            match told.into_iter().collect::<Option<Vec<_>>>() {
                Some(changed) => drop(node.follow(&changed.into_iter().flatten().collect())?),
                None => node.dump(),
            }
        }
    }
}

/// Each change is made and reversed, and none of them needs a whole plan.
#[test]
fn what_is_amended() {
    let mut node = Node::start();
    let plain = [0, 1, 2, 3, 4, 11, 12];
    let encapsulating = [5, 6, 9, 10];
    let sids = [13, 14, 16];
    for (prefix, does) in
        [(1, &plain[..]), (1, &encapsulating[..]), (2, &encapsulating[..]), (7, &sids[..]), (12, &plain[1..5])]
    {
        for &does in does {
            let aside = does == 5;
            for step in [
                Operation::Put(prefix, aside, 1),
                Operation::Put(prefix, aside, does),
                Operation::Delete(prefix, aside),
            ] {
                let changed = node.take(&step).unwrap();
                assert!(node.follow(&changed).unwrap(), "{step:?} took a whole plan");
            }
        }
    }
}

/// A change of a route that others follow needs a whole plan, and so does any change while a route waits.
#[test]
fn what_is_not_amended() {
    let mut node = Node::start();
    let follow = |node: &mut Node, step: &Operation| {
        let changed = node.take(step).unwrap();
        node.follow(&changed).unwrap()
    };
    assert!(follow(&mut node, &Operation::Put(1, false, 5)), "its first segment is in fcbb:0:1::/48");
    assert!(!follow(&mut node, &Operation::Put(6, false, 2)), "a longer route to the first segment of another");
    assert!(!follow(&mut node, &Operation::Put(0, false, 1)), "everything is inside of the default route");
    assert!(follow(&mut node, &Operation::Put(2, false, 7)), "its first segment follows the default route");
    assert!(!follow(&mut node, &Operation::Put(3, false, 15)), "it begins with an own SID, and is refused");
    assert!(!follow(&mut node, &Operation::Put(4, false, 1)), "what is refused may be so because of this");
}
