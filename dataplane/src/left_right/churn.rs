//! Tables that change for a long time keep their places in the maps of the XDP program.
#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use srv6d_fib::{COUNTED_HOPS, COUNTED_PATHS, Forwarding, GROUPS, MEMBERS, PATTERNS, STEERS};
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::desired::{
    Amendment, Desired, Hop, Mac, NeighborChange, Path, Port, PortId, Route, RouteAction, RouteChange, Steer,
    SteerChange, TableId, Tunnel,
};

use srv6d_srv6::offload::MOST_WHOLE;

use super::{Publisher, Wiring};

/// Number of steered prefixes, all of which change in each amendment.
const STEERED: u16 = 50;
const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

fn hop(neighbor: u16) -> Hop {
    Hop { port: PortId(0), via: Some(address(neighbor)), weight: 1 }
}

fn address(neighbor: u16) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 1, neighbor).into()
}

/// Returns three of forty neighbours, others for each number below 9880.
fn three(number: usize) -> Vec<Hop> {
    let all = (0..40u16).flat_map(|a| (0..a).flat_map(move |b| (0..b).map(move |c| [a, b, c])));
    all.skip(number).take(1).flatten().map(hop).collect()
}

fn prefix(number: u16) -> IpNet {
    format!("2a00:{number:x}::/32").parse().unwrap()
}

fn steer(number: u16, name: String, via: Vec<Hop>) -> SteerChange {
    let segments = SegmentList::new(vec!["fcbb:0:9:1::".parse().unwrap()], &[]).unwrap();
    let path = Path { name, segments, full_srh: false, weight: 1, source: None, via };
    SteerChange { table: TableId::MAIN, prefix: prefix(number), paths: vec![path] }
}

/// Returns a publisher with [`STEERED`] steered prefixes and these routes. Neighbours below `neighbors` are resolved.
fn publisher(neighbors: u16, routes: impl Iterator<Item = Vec<Hop>>) -> Publisher {
    let route = |(number, hops): (usize, Vec<Hop>)| Route {
        table: TableId::MAIN,
        prefix: format!("3000:{number:x}::/32").parse().unwrap(),
        action: RouteAction::Via(hops),
    };
    let steered = (0..STEERED).map(|number| steer(number, format!("first-{number}"), vec![hop(0)]));
    let desired = Desired {
        ports: vec![Port::fabric("a", 0, MAC, 1500)],
        tunnel: Tunnel { source: "2001:db8::1".parse().ok(), ..Tunnel::default() },
        steers: steered.map(|SteerChange { table, prefix, paths }| Steer { table, prefix, paths }).collect(),
        routes: routes.enumerate().map(route).collect(),
        neighbors: (0..neighbors).map(|neighbor| ((PortId(0), address(neighbor)), MAC)).collect(),
        offload: [PortId(0)].into(),
        ..Desired::default()
    };
    let mut publisher = Publisher::new(1);
    publisher.expect_amendments();
    publisher.publish(Some(Arc::new(desired)), |_, _| Wiring::direct(1)).unwrap();
    publisher
}

/// Applies an amendment as the dataplane does, and reuses the counters of entries that are gone.
fn amend(publisher: &mut Publisher, amendment: &Amendment) {
    publisher.amend(amendment, |_, _| Wiring::direct(1)).unwrap();
    if let Some(released) = publisher.take_released() {
        publisher.reuse_slots(released);
    }
}

/// Checks that every steered prefix leads to paths and next hops that have their places in the maps.
fn has_a_place_for_all(rows: &Forwarding) {
    let is_spread = |at: u32, count: u32, pattern: u32| count == 1 || at + count <= MEMBERS && pattern < PATTERNS;
    assert_eq!(rows.steers.len(), usize::from(STEERED));
    for (&index, row) in &rows.steers {
        assert!(index < STEERS && is_spread(row.at, row.count, row.pattern), "{index} {row:?}");
    }
    for (index, path) in &rows.paths {
        let group = rows.groups.get(&path.group).unwrap();
        let is_placed = path.group < GROUPS && is_spread(group.at, group.count, group.pattern);
        assert!(path.slot < COUNTED_PATHS && is_placed, "{index} {path:?} {group:?}");
    }
    assert!(!rows.hops.is_empty());
    assert!(
        rows.hops.values().all(|hop| hop.slot < COUNTED_HOPS),
        "{:?}",
        rows.hops.values().max_by_key(|hop| hop.slot)
    );
}

#[test]
fn groups_of_next_hops_that_come_and_go_have_places_in_the_maps() {
    const ROUTES: usize = 4000;
    let mut publisher = publisher(40, (0..ROUTES).map(three));
    for round in 0..90 {
        let steers = (0..STEERED).map(|number| {
            let group = ROUTES + round * usize::from(STEERED) + usize::from(number);
            steer(number, format!("path-{number}"), three(group))
        });
        amend(&mut publisher, &Amendment { steers: steers.collect(), ..Amendment::default() });
        has_a_place_for_all(&publisher.current().tables.offload().forwarding);
    }
    let counts = publisher.published();
    assert!(counts.whole_for_amendment < 5 && counts.in_place > 80, "{counts:?}");
}

#[test]
fn next_hops_and_paths_that_come_and_go_have_counters() {
    const ROUTES: u16 = 2500;
    let mut publisher = publisher(ROUTES, (0..ROUTES).map(|neighbor| vec![hop(neighbor)]));
    for round in 0..60 {
        let new = |number: u16| ROUTES + round * STEERED + number;
        let steers = (0..STEERED).map(|number| steer(number, format!("path-{}", new(number)), vec![hop(new(number))]));
        let known = |neighbor: u16, mac| NeighborChange { port: PortId(0), address: address(neighbor), mac };
        let neighbors = (0..STEERED).map(|number| known(new(number), Some(MAC)));
        let gone = (0..STEERED).filter(|_| round > 0).map(|number| known(new(number) - STEERED, None));
        let neighbors = neighbors.chain(gone).collect();
        amend(&mut publisher, &Amendment { steers: steers.collect(), neighbors, ..Amendment::default() });
        has_a_place_for_all(&publisher.current().tables.offload().forwarding);
    }
    let counts = publisher.published();
    assert!(counts.whole_for_amendment < 10 && counts.in_place > 50, "{counts:?}");
}

/// The XDP program has all prefixes of a small table, but of a large table only those inside steered prefixes: packets
/// to a prefix that it did not know would be forwarded by the shorter prefix around it.
#[test]
fn a_table_that_grows_too_large_and_shrinks_again_is_given_as_a_build_gives_it() {
    let fits = MOST_WHOLE - usize::from(STEERED);
    let hops = |number: usize| vec![hop(u16::from(number.is_multiple_of(2)))];
    let mut amended = publisher(2, (0..fits - 2).map(hops));
    let change = |number: usize, action: Option<RouteAction>| {
        let prefix = format!("3000:{number:x}::/32").parse().unwrap();
        Amendment { routes: vec![RouteChange { table: TableId::MAIN, prefix, action }], ..Amendment::default() }
    };
    let check = |amended: &Publisher, routes: usize| {
        let built = publisher(2, (0..routes).map(hops));
        let of = |publisher: &Publisher| {
            let snapshot = publisher.current();
            let offload = snapshot.tables.offload();
            let [v6, _] = offload.forwarding.tables.get(&0).unwrap();
            (offload.whole.clone(), v6.keys().copied().collect::<Vec<_>>())
        };
        assert!(of(amended) == of(&built), "{routes} routes: {} prefixes", of(amended).1.len());
        assert_eq!(of(amended).0.is_empty(), routes > fits);
    };
    for routes in fits - 1..fits + 3 {
        amend(&mut amended, &change(routes - 1, Some(RouteAction::Via(hops(routes - 1)))));
        check(&amended, routes);
    }
    for routes in (fits - 2..fits + 2).rev() {
        amend(&mut amended, &change(routes, None));
        check(&amended, routes);
    }
}
