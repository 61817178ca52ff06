//! Routes kept up to date from events equal those of a new dump, and exactly the changed prefixes are reported. The
//! events come from a small model of the kernel that sends them as Linux does for IPv6.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::netlink;

use std::collections::{BTreeMap, BTreeSet};

use netlink::{
    APPEND, BLACKHOLE, DEL_NEXT_HOP, NEW_NEXT_HOP, REPLACE, Route, attribute, leg, next_hop, number, octets, seg6,
};
use proptest::prelude::*;
use srv6d_kernel_routes::{Effect, KernelRoute, Messages, RouteKey, Routes};

const PREFIXES: [&str; 3] = ["::/0", "2001:db8::/32", "2001:db8:1::/48"];

/// What a route does, as the test specifies it.
#[derive(Clone, Debug, PartialEq)]
enum Does {
    /// Devices, each at most once, with their weights.
    Legs(Vec<(u32, u8)>),
    Encap(u8),
    Blackhole,
    Object(u32),
}

#[derive(Clone, Debug)]
enum Operation {
    Put(usize, u32, Does),
    Delete(usize, u32),
    AddLeg(usize, u32, u32),
    DeleteLeg(usize, u32, usize),
    PutObject(u32, u32),
    DeleteObject(u32),
}

fn does() -> impl Strategy<Value = Does> {
    let legs = prop::collection::btree_map(1u32..5, 1u8..4, 1..4);
    prop_oneof![
        3 => legs.prop_map(|legs| {
            let alone = legs.len() == 1;
            Does::Legs(legs.into_iter().map(|(device, weight)| (device, if alone { 1 } else { weight })).collect())
        }),
        1 => (1u8..4).prop_map(Does::Encap),
        1 => Just(Does::Blackhole),
        2 => (1u32..4).prop_map(Does::Object),
    ]
}

fn step() -> impl Strategy<Value = Operation> {
    let place = || (0..PREFIXES.len(), prop::sample::select(&[5u32, 6][..]));
    prop_oneof![
        6 => (place(), does()).prop_map(|((at, metric), does)| Operation::Put(at, metric, does)),
        2 => place().prop_map(|(at, metric)| Operation::Delete(at, metric)),
        2 => (place(), 1u32..5).prop_map(|((at, metric), device)| Operation::AddLeg(at, metric, device)),
        2 => (place(), 0usize..4).prop_map(|((at, metric), leg)| Operation::DeleteLeg(at, metric, leg)),
        3 => (1u32..4, 1u32..5).prop_map(|(id, device)| Operation::PutObject(id, device)),
        1 => (1u32..4).prop_map(Operation::DeleteObject),
    ]
}

fn gateway(kind: u16, device: u32) -> Vec<u8> {
    let address = format!("fe80::{device}").parse().unwrap();
    attribute(kind, &octets(address))
}

#[derive(Default)]
struct Kernel {
    routes: BTreeMap<(usize, u32), Does>,
    objects: BTreeMap<u32, u32>,
}

impl Kernel {
    fn route(&self, (at, metric): (usize, u32), does: &Does) -> Route {
        let route = Route { metric, ..Route::to(PREFIXES[at]) };
        match does {
            Does::Legs(legs) => match legs.as_slice() {
                [(device, _)] => route.with(&gateway(5, *device)).with(&number(4, *device)),
                legs => {
                    let legs = legs.iter().map(|&(device, weight)| leg(0, weight, device, &gateway(5, device)));
                    route.legs(&legs.collect::<Vec<_>>())
                }
            },
            Does::Encap(last) => {
                let segment = format!("fcbb:0:{last}::").parse().unwrap();
                route.with(&number(4, 1)).with(&seg6((21, 22), 3, &[segment]))
            }
            Does::Blackhole => Route { kind: BLACKHOLE, ..route },
            Does::Object(id) => {
                let device = self.objects[id];
                route.object(*id).with(&gateway(5, device)).with(&number(4, device))
            }
        }
    }

    fn object(id: u32, device: u32) -> Vec<u8> {
        next_hop(NEW_NEXT_HOP, id, &[number(5, device), gateway(6, device)].concat())
    }

    fn dump(&self) -> Routes {
        let objects = self.objects.iter().map(|(&id, &device)| Self::object(id, device));
        let routes = self.routes.iter().map(|(&place, does)| self.route(place, does).added(0));
        let bytes: Vec<u8> = objects.chain(routes).flatten().collect();
        let mut dumped = Routes::default();
        Messages::new(&bytes).for_each(|message| dumped.load(message));
        dumped
    }

    /// Carries out a step and returns the event that the kernel would send. `None`: the step is not possible.
    fn take(&mut self, step: Operation) -> Option<Vec<u8>> {
        match step {
            Operation::Put(at, metric, does) => {
                if matches!(does, Does::Object(id) if !self.objects.contains_key(&id)) {
                    return None;
                }
                let flags = if self.routes.contains_key(&(at, metric)) { REPLACE } else { 0 };
                let told = self.route((at, metric), &does).added(flags);
                self.routes.insert((at, metric), does);
                Some(told)
            }
            Operation::Delete(at, metric) => {
                let does = self.routes.remove(&(at, metric))?;
                Some(self.route((at, metric), &does).deleted())
            }
            Operation::AddLeg(at, metric, device) => {
                let Does::Legs(legs) = self.routes.get_mut(&(at, metric))? else { return None };
                if legs.iter().any(|leg| leg.0 == device) {
                    return None;
                }
                legs.push((device, 1));
                let does = Does::Legs(legs.clone());
                Some(self.route((at, metric), &does).added(APPEND))
            }
            Operation::DeleteLeg(at, metric, leg) => {
                let Does::Legs(legs) = self.routes.get_mut(&(at, metric))? else { return None };
                let gone = (leg < legs.len() && legs.len() > 1).then(|| legs.remove(leg))?;
                if let [(_, weight)] = legs.as_mut_slice() {
                    *weight = 1;
                }
                Some(self.route((at, metric), &Does::Legs(vec![gone])).deleted())
            }
            Operation::PutObject(id, device) => {
                self.objects.insert(id, device);
                Some(Self::object(id, device))
            }
            Operation::DeleteObject(id) => {
                self.objects.remove(&id)?;
                // The kernel deletes these routes without an event.
                self.routes.retain(|_, does| *does != Does::Object(id));
                Some(next_hop(DEL_NEXT_HOP, id, &[]))
            }
        }
    }
}

fn shown(routes: &Routes) -> BTreeMap<RouteKey, KernelRoute> {
    let key = |route: &KernelRoute| RouteKey { table: route.table, prefix: route.prefix };
    routes.used().map(|route| (key(route), route.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn events_keep_what_a_dump_says(steps in prop::collection::vec(step(), 1..40)) {
        let (mut kernel, mut kept) = (Kernel::default(), Routes::default());
        for step in steps {
            let before = shown(&kept);
            let Some(told) = kernel.take(step.clone()) else { continue };
            let mut changed = BTreeSet::new();
            let mut suffices = true;
            for message in Messages::new(&told) {
                suffices &= kept.apply(message, &mut changed) == Effect::Kept;
            }
            let dumped = kernel.dump();
            if !suffices {
                kept = dumped;
                continue;
            }
            let (now, expected) = (shown(&kept), shown(&dumped));
            prop_assert_eq!(&now, &expected, "after {:?}", step);
            let differs = |key: &&RouteKey| before.get(key) != now.get(key);
            let differing: BTreeSet<RouteKey> = before.keys().chain(now.keys()).filter(differs).copied().collect();
            // A change of an object is reported for every route that uses it, even if the kernel uses another route for
            // the prefix.
            let suffices = if matches!(step, Operation::PutObject(..)) { differing.is_subset(&changed) } else { differing == changed };
            prop_assert!(suffices, "after {:?}: {:?} for {:?}", step, changed, differing);
            prop_assert_eq!(kept.differences(&dumped), Some(BTreeSet::new()));
        }
    }
}

/// Common changes do not need a new dump.
#[test]
fn what_suffices() {
    let (mut kernel, mut kept) = (Kernel::default(), Routes::default());
    let steps = [
        Operation::PutObject(1, 1),
        Operation::Put(0, 5, Does::Legs(vec![(1, 1), (2, 3)])),
        Operation::AddLeg(0, 5, 3),
        Operation::DeleteLeg(0, 5, 1),
        Operation::Put(1, 5, Does::Encap(1)),
        Operation::Put(1, 5, Does::Encap(2)),
        Operation::Put(2, 5, Does::Object(1)),
        Operation::PutObject(1, 2),
        Operation::Delete(1, 5),
    ];
    for step in steps {
        let told = kernel.take(step.clone()).unwrap();
        let mut changed = BTreeSet::new();
        for message in Messages::new(&told) {
            assert_eq!(kept.apply(message, &mut changed), Effect::Kept, "{step:?}");
        }
        assert_eq!(shown(&kept), shown(&kernel.dump()), "{step:?}");
    }
}

#[test]
fn what_is_asked_of_kept_routes() {
    let mut routes = Routes::default();
    let v6 = ["::/0", "2001:db8::/32", "2001:db8:1::/48", "2001:db8:1::1/128", "2001:db9::/32"];
    for (metric, prefix) in (1..).zip(v6) {
        let route = Route { metric, ..Route::to(prefix) }.via("fe80::1", 1).added(0);
        Messages::new(&route).for_each(|message| routes.load(message));
    }
    let elsewhere = Route { table: u32::MAX, ..Route::to("10.0.0.0/8") }.via("10.9.9.9", 1).added(0);
    Messages::new(&elsewhere).for_each(|message| routes.load(message));
    let main = srv6d_addresses::TableId::MAIN;
    assert_eq!(routes.tables(), [main, srv6d_addresses::TableId(u32::MAX)]);
    let around = routes.around(main, "2001:db8:1::9".parse().unwrap());
    assert_eq!(around.map(|route| route.metric).collect::<Vec<_>>(), [1, 2, 3]);
    let key = |prefix: &str| RouteKey { table: main, prefix: prefix.parse().unwrap() };
    let inside: Vec<String> = routes.inside(key("2001:db8::/32")).map(|key| key.prefix.to_string()).collect();
    assert_eq!(inside, ["2001:db8:1::/48", "2001:db8:1::1/128"]);
    let few = routes.only(&[key("2001:db8::/32"), key("2001:db8:2::/48")]);
    assert_eq!(few.used().collect::<Vec<_>>(), [routes.used_for(&key("2001:db8::/32")).unwrap()]);
}
