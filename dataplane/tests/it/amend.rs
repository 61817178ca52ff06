//! Compares amended tables with tables built from the amended state, by the same packets through the worker's step.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failed test may panic")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ipnet::IpNet;
use proptest::prelude::*;
use srv6d_dataplane::memory::{Memory, MemoryFrame};
use srv6d_dataplane::{Published, Publisher, Snapshot, Step, Totals, Wiring, WorkerCounters};
use srv6d_fib::{
    Forwarding, GroupRow, HopRow, PathKind, PathRow, PatternRow, Prefix, SidKind, SidRow, SrhRow, TARGET_INDEX_BITS,
    TARGET_NEIGHBOR, TARGET_ROUTE, TARGET_SID, TARGET_STEER,
};
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::desired::{
    Amendment, Behavior, Block, Csid, Desired, DscpMode, DtFamily, Flavors, Hop, LocalSid, Mac, NeighborChange, Path,
    Port, PortId, Route, RouteAction, RouteChange, Steer, SteerChange, TableId, Tunnel, UnknownSid,
};
use srv6d_srv6::offload::Offload;
use srv6d_srv6::tally::Count;
use srv6d_srv6::{Before, LOCATOR_BITS, Slots, Tables, Tally};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const VRF: TableId = TableId(7);
const PORTS: u16 = 4;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn neighbor(port: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, port, 0, 0, 0, 0, 2))
}

fn hop(port: u16) -> Hop {
    Hop { port: PortId(port), via: Some(neighbor(port)), weight: 1 }
}

/// Returns a port. Port 3 is in a VRF, and the neighbour on port 2 is unknown.
fn port(index: u16) -> Port {
    Port { table: if index == 3 { VRF } else { TableId::MAIN }, ..Port::fabric(format!("p{index}"), index, MAC, 1500) }
}

fn path(name: String, segments: &[&str], via: Vec<Hop>) -> Path {
    let segments = segments.iter().map(|text| text.parse().unwrap()).collect();
    let segments = SegmentList::new(segments, &[]).unwrap();
    Path { name, segments, full_srh: false, weight: 1, source: None, via }
}

fn route(table: TableId, prefix: &str, action: RouteAction) -> Route {
    Route { table, prefix: net(prefix), action }
}

fn via(ports: &[u16]) -> RouteAction {
    RouteAction::Via(ports.iter().copied().map(hop).collect())
}

/// Returns a state with prefixes of all the lengths that are used here, so that few changes add a length.
fn node() -> Desired {
    let csid = Some(Csid { lblen: 32, nflen: 16 });
    let sid =
        |prefix: &str, behavior| LocalSid { prefix: prefix.parse().unwrap(), behavior, flavors: Flavors::default() };
    let dt = |table| Behavior::EndDt { family: DtFamily::V46, table, dscp: DscpMode::Pipe(0) };
    let steer = |prefix: &str, paths| Steer { table: TableId::MAIN, prefix: net(prefix), paths };
    let lengths = ["9000::/16", "9000::/20", "9000::/32", "9000::/48", "9000::/64", "9000::/96", "9000::1/128"];
    let lengths_v4 = ["99.0.0.0/8", "99.0.0.0/16", "99.0.0.0/24", "99.0.0.1/32"];
    let always = |table| {
        let all =
            lengths.into_iter().chain(lengths_v4).chain(["fcbb:bbbb:8::/47", "fcbb:bbbb:9::/64", "fcbb:bbbb:9::1/128"]);
        all.map(move |prefix| route(table, prefix, via(&[1])))
    };
    let mut routes = vec![
        route(TableId::MAIN, "fcbb:bbbb:2::/48", via(&[1])),
        route(TableId::MAIN, "3000::/16", via(&[1])),
        route(TableId::MAIN, "10.0.0.0/8", via(&[1])),
        route(TableId::MAIN, "2001:db8:1::/64", RouteAction::Via(vec![Hop { via: None, ..hop(1) }])),
        route(VRF, "3000::/16", via(&[2])),
    ];
    routes.extend(always(TableId::MAIN).chain(always(VRF)));
    Desired {
        ports: (0..PORTS).map(port).collect(),
        tunnel: Tunnel { source: Some("2001:db8:cafe::1".parse().unwrap()), ..Tunnel::default() },
        blocks: vec![Block { prefix: "fcbb:bbbb::/32".parse().unwrap(), unknown: Some(UnknownSid::Drop) }],
        sids: vec![
            sid("fcbb:bbbb:1::/48", Behavior::End { csid, dscp: DscpMode::Pipe(0) }),
            sid("fcbb:bbbb:1:d6::/64", dt(TableId::MAIN)),
            sid("fcbb:bbbb:1:d7::/64", dt(VRF)),
            sid(
                "fcbb:bbbb:1:d8::/64",
                Behavior::EndDx { family: DtFamily::V6, via: vec![Hop { via: None, ..hop(1) }] },
            ),
        ],
        steers: vec![
            steer("4000::/16", vec![path("led".into(), &["fcbb:bbbb:2:3::"], vec![])]),
            steer(
                "4001::/16",
                vec![path("a".into(), &["fcbb:bbbb:2::"], vec![hop(1)]), path("b".into(), &["fcbb:bbbb:5::"], vec![])],
            ),
            steer("44.2.0.0/16", vec![path("long".into(), &["fcbb:bbbb:2:3::", "fcbb:bbbb:4::"], vec![hop(2)])]),
        ],
        routes,
        neighbors: [0, 1, 3]
            .map(|port| ((PortId(port), neighbor(port)), Mac([2, 0, 0, 0, 1, u8::try_from(port).unwrap()])))
            .into(),
        offload: [PortId(0), PortId(3)].into(),
        ..Desired::default()
    }
}

fn publisher(desired: Desired) -> Publisher {
    let mut publisher = Publisher::new(1);
    publisher.expect_amendments();
    publisher.publish(Some(Arc::new(desired)), |_, _| Wiring::direct(PORTS.into())).unwrap();
    publisher
}

fn amend(publisher: &mut Publisher, amendment: &Amendment) -> bool {
    publisher.amend(amendment, |_, _| Wiring::direct(PORTS.into())).is_ok()
}

/// Everything that can be observed of a snapshot.
#[derive(Debug, PartialEq)]
struct Observed {
    sent: Vec<(usize, Vec<u8>)>,
    totals: Totals,
    counts: Vec<Vec<(u64, u64)>>,
    wanted: Vec<(PortId, IpAddr)>,
    prefixes: usize,
}

/// Returns what a worker does with `frames` under `snapshot`, after it has forwarded the same frames under `before`.
/// Results that it cached then must have no effect.
fn observe(before: &Snapshot, snapshot: &Snapshot, slots: &Slots, frames: &[(usize, Vec<u8>)]) -> Observed {
    let counters = Arc::new(WorkerCounters::default());
    let wanted = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&wanted);
    let mut step = Step::new(0, Arc::clone(&counters), move |port, to| asked.lock().unwrap().push((port, to)));
    let mut io = Memory::new(PORTS.into());
    let tally = Arc::new(Tally::new(slots));
    let snapshot = Snapshot { tallies: vec![Arc::clone(&tally)], ..snapshot.clone() };
    let mut sent = Vec::new();
    for tables in [before, &snapshot] {
        sent.clear();
        for (socket, frame) in frames {
            io.port(*socket).unwrap().rx.push_back(MemoryFrame::new(frame));
            step.round(&mut io, tables, 1);
            sent.extend(io.take_sent().into_iter().map(|(socket, frame)| (socket, frame.bytes())));
        }
    }
    let mut totals = Totals::default();
    counters.add_to(&mut totals);
    let read = |counts: &[Count]| counts.iter().map(Count::read).collect();
    let counts = vec![read(&tally.sids), read(&tally.paths), read(&tally.adjacencies)];
    let wanted = wanted.lock().unwrap().clone();
    Observed { sent, totals, counts, wanted, prefixes: snapshot.tables.prefixes() }
}

/// Returns a copy of the tables in force. Because it is a copy, the publisher does not wait for its release.
fn tables_of(publisher: &Publisher) -> Snapshot {
    Snapshot::clone(&publisher.current())
}

/// Checks that the amended tables equal those built from the same desired state.
fn is_as_built(publisher: &Publisher, before: &Snapshot, frames: &[(usize, Vec<u8>)]) {
    let mut slots = publisher.slots().clone();
    let current = publisher.current();
    // Flows stay on the next hops and paths that they have.
    let in_force = Before { tables: &current.tables, index: publisher.index() };
    let (tables, _) = Tables::build_with_parts(publisher.desired(), &mut slots, Some(in_force)).unwrap();
    let built = Snapshot { revision: current.revision, ..Snapshot::direct(tables, Arc::default(), PORTS.into()) };
    assert_eq!(observe(before, &current, &slots, frames), observe(before, &built, &slots, frames));
    let (mut offload, expected) = (current.tables.offload().clone(), built.tables.offload());
    // A locator outside of every block stays closed until the tables are built anew.
    let sid_space = &mut offload.forwarding.sid_space;
    let left_over: Vec<_> = sid_space.difference(&expected.forwarding.sid_space).copied().collect();
    assert!(left_over.iter().all(|(_, length)| *length == LOCATOR_BITS), "{left_over:?}");
    sid_space.retain(|locator| !left_over.contains(locator));
    assert_eq!(led_to(&offload.forwarding), led_to(&expected.forwarding));
    assert_eq!(without_rows(&offload), without_rows(expected));
    let known: Vec<_> = current.tables.next_hops().collect();
    assert!(built.tables.next_hops().all(|next_hop| known.contains(&next_hop)));
}

/// A path with its SRH and its next hops.
type PathTo = (PathRow, Option<SrhRow>, Vec<Option<HopRow>>);

/// What prefixes lead to, with rows in place of their numbers: amended tables number their rows in another way than
/// tables that were built.
#[derive(Debug, PartialEq)]
enum LedTo {
    Sid(Option<SidRow>, Vec<Option<HopRow>>),
    Paths(Vec<Option<PathTo>>),
    Hops(Vec<Option<HopRow>>),
    Other(u32),
}

fn led_to(rows: &Forwarding) -> Vec<(u16, usize, Prefix, LedTo)> {
    // Returns the member of each slot.
    let members = |group: GroupRow, list: &BTreeMap<u32, u32>, patterns: &BTreeMap<u32, PatternRow>| match group {
        GroupRow { count: 0, .. } => Vec::new(),
        GroupRow { count: 1, at, .. } => vec![at],
        GroupRow { at, pattern, .. } => {
            patterns[&pattern].members.as_flattened().iter().map(|&place| list[&(at + u32::from(place))]).collect()
        }
    };
    let hops = |group: u32| -> Vec<Option<HopRow>> {
        let hops = members(rows.groups[&group], &rows.group_members, &rows.group_patterns);
        hops.iter().map(|hop| rows.hops.get(hop).copied()).collect()
    };
    let path = |number: u32| {
        let path = *rows.paths.get(&number)?;
        let hops = if path.kind == PathKind::Slow { Vec::new() } else { hops(path.group) };
        Some((PathRow { group: 0, srh: 0, ..path }, rows.srhs.get(&number).copied(), hops))
    };
    let way = |target: u32| {
        let index = target & ((1 << TARGET_INDEX_BITS) - 1);
        match target >> TARGET_INDEX_BITS {
            TARGET_SID => {
                let sid = rows.sids.get(&index).copied();
                let via = sid.filter(|sid| sid.kind == SidKind::ShiftVia).map_or_else(Vec::new, |sid| hops(sid.group));
                LedTo::Sid(sid.map(|sid| SidRow { group: 0, ..sid }), via)
            }
            TARGET_STEER => {
                let paths = members(rows.steers[&index], &rows.steer_members, &rows.steer_patterns);
                LedTo::Paths(paths.into_iter().map(path).collect())
            }
            TARGET_ROUTE | TARGET_NEIGHBOR => LedTo::Hops(hops(index)),
            _ => LedTo::Other(target),
        }
    };
    let families =
        rows.tables.iter().flat_map(|(&table, of)| (0..).zip(of).map(move |(family, of)| (table, family, of)));
    let all = families.flat_map(|(table, family, of)| of.iter().map(move |(&prefix, &to)| (table, family, prefix, to)));
    all.map(|(table, family, prefix, to)| (table, family, prefix, way(to))).collect()
}

fn without_rows(offload: &Offload) -> Offload {
    let mut offload = offload.clone();
    let Forwarding { tables, sids, steers, steer_members, paths, groups, group_members, hops, .. } =
        &mut offload.forwarding;
    tables.clear();
    sids.clear();
    [steers, groups].into_iter().for_each(BTreeMap::clear);
    [steer_members, group_members].into_iter().for_each(BTreeMap::clear);
    paths.clear();
    hops.clear();
    offload.forwarding.srhs.clear();
    offload.forwarding.steer_patterns.clear();
    offload.forwarding.group_patterns.clear();
    offload
}

fn frame(destination: IpAddr, payload: &[u8]) -> Vec<u8> {
    let mut bytes = MAC.0.to_vec();
    bytes.extend([2, 0, 0, 0, 9, 9]);
    match destination {
        IpAddr::V6(destination) => {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
            bytes.extend([if payload.len() >= 40 { 41 } else { 17 }, 64]);
            bytes.extend("2001:db8:77::1".parse::<Ipv6Addr>().unwrap().octets());
            bytes.extend(destination.octets());
        }
        IpAddr::V4(destination) => {
            bytes.extend([0x08, 0]);
            let mut header = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 9, 9];
            header[3] = u8::try_from(20 + payload.len()).unwrap();
            header.extend(destination.octets());
            let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
            let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            bytes.extend(header);
        }
    }
    bytes.extend(payload);
    bytes
}

/// Returns frames to an address: plain ones, and encapsulated ones that a SID looks up in a VRF.
fn frames_to(destination: IpAddr) -> Vec<(usize, Vec<u8>)> {
    let plain = frame(destination, &[7; 26]);
    let mut frames = vec![(0, plain.clone()), (3, plain)];
    if destination.is_ipv6() {
        let inner = frame(destination, &[7; 8])[14..].to_vec();
        frames.push((0, frame("fcbb:bbbb:1:d7::".parse().unwrap(), &inner)));
        frames.push((0, frame("fcbb:bbbb:1:d8::".parse().unwrap(), &inner)));
    }
    frames
}

fn address() -> impl Strategy<Value = IpAddr> {
    let group = || prop_oneof![Just(0u16), Just(1), Just(2), Just(9)];
    let head = prop_oneof![
        2 => (Just(0xfcbbu16), Just(0xbbbbu16)),
        1 => (Just(0x2001u16), Just(0xdb8u16)),
        3 => (prop_oneof![Just(0x3000u16), Just(0x4000), Just(0x9000)], group()),
    ];
    let v6 = (head, group(), group(), group(), group())
        .prop_map(|((a, b), c, d, e, f)| IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, 0, 0, f)));
    let v4 = (prop_oneof![Just(10u8), Just(44), Just(99)], 0..3u8, 0..2u8, 0..2u8)
        .prop_map(|(a, b, c, d)| IpAddr::V4(Ipv4Addr::new(a, b, c, d)));
    prop_oneof![3 => v6, 1 => v4]
}

fn prefix() -> impl Strategy<Value = IpNet> {
    let v6 = prop_oneof![1 => Just(0u8), 1 => Just(16), 1 => Just(20), 2 => Just(32), 1 => Just(47), 4 => Just(48), 4 => Just(64), 1 => Just(96), 2 => Just(128), 1 => 0..=128u8];
    (address(), v6, prop_oneof![Just(0u8), Just(8), Just(16), Just(24), Just(32)]).prop_map(|(address, v6, v4)| {
        let len = if address.is_ipv6() { v6 } else { v4 };
        IpNet::new(address, len).unwrap().trunc()
    })
}

fn action() -> impl Strategy<Value = Option<RouteAction>> {
    prop_oneof![
        4 => Just(None),
        3 => prop::sample::subsequence(vec![0u16, 1, 2], 1..=3).prop_map(|ports| Some(via(&ports))),
        1 => (1..4u16).prop_map(|weight| Some(RouteAction::Via(vec![hop(0), Hop { weight, ..hop(1) }]))),
        1 => Just(Some(RouteAction::Blackhole)),
        1 => Just(Some(RouteAction::Unreachable)),
        1 => Just(Some(RouteAction::Kernel)),
    ]
}

fn steer_change() -> impl Strategy<Value = SteerChange> {
    let segments = prop::sample::select(vec![
        vec!["fcbb:bbbb:2:3::"],
        vec!["fcbb:bbbb:5::"],
        vec!["9000:2::9", "fcbb:bbbb:4::"],
        vec!["fcbb:bbbb:9:1::", "fcbb:bbbb:4::", "fcbb:bbbb:6::"],
    ]);
    let paths = prop::collection::vec((segments, prop::option::of(0..3u16)), 0..3);
    let table = prop_oneof![3 => Just(TableId::MAIN), 1 => Just(VRF)];
    (table, prefix(), paths).prop_map(|(table, prefix, paths)| {
        let named = |(number, (segments, to)): (usize, (Vec<&str>, Option<u16>))| {
            path(format!("{}-{prefix}-{number}", table.0), &segments, to.map(hop).into_iter().collect())
        };
        let paths = paths.into_iter().enumerate().map(named).collect();
        SteerChange { table, prefix, paths }
    })
}

/// Generates changes of neighbours: next hops of routes and paths, hosts on the link of port 1, and a neighbour on port
/// 2 that nothing uses.
fn neighbor_change() -> impl Strategy<Value = NeighborChange> {
    let next_hop = (0..PORTS).prop_map(|port| (port, neighbor(port)));
    let on_link = (1..3u16, 3..6u16).prop_map(|(port, host)| (port, on_link(host)));
    let mac = prop::option::of((1..3u8).prop_map(|last| Mac([2, 0, 0, 0, 2, last])));
    (prop_oneof![next_hop, on_link], mac).prop_map(|((port, address), mac)| NeighborChange {
        port: PortId(port),
        address,
        mac,
    })
}

/// Returns the address of a host on the link of port 1.
fn on_link(host: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, host))
}

fn amendment() -> impl Strategy<Value = Amendment> {
    let table = prop_oneof![4 => Just(TableId::MAIN), 1 => Just(VRF)];
    let route = (table, prefix(), action()).prop_map(|(table, prefix, action)| RouteChange { table, prefix, action });
    let neighbors = prop::collection::vec(neighbor_change(), 0..3);
    (prop::collection::vec(route, 0..4), prop::collection::vec(steer_change(), 0..2), neighbors)
        .prop_map(|(routes, steers, neighbors)| Amendment { routes, steers, neighbors, ..Amendment::default() })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn amended_is_as_built(
        amendments in prop::collection::vec(amendment(), 1..24),
        probes in prop::collection::vec(address(), 4..12),
    ) {
        let mut publisher = publisher(node());
        let frames: Vec<_> = probes.into_iter().flat_map(frames_to).collect();
        for amendment in &amendments {
            let (before, tables) = (Desired::clone(publisher.desired()), tables_of(&publisher));
            let is_done = amend(&mut publisher, amendment);
            let mut expected = before.clone();
            if is_done {
                expected.amend(amendment);
            }
            let sorted = |desired: &Desired| {
                let mut routes: Vec<_> = desired.routes.iter().map(|r| format!("{r:?}")).collect();
                let mut steers: Vec<_> = desired.steers.iter().map(|s| format!("{s:?}")).collect();
                routes.sort();
                steers.sort();
                (routes, steers, desired.neighbors.clone())
            };
            prop_assert_eq!(sorted(publisher.desired()), sorted(&expected));
            let changed = amendment.routes.iter().map(|change| change.prefix);
            let changed = changed.chain(amendment.steers.iter().map(|change| change.prefix));
            let mut frames = frames.clone();
            frames.extend(amendment.neighbors.iter().flat_map(|change| frames_to(change.address)));
            frames.extend(changed.flat_map(|prefix| [prefix.network(), prefix.broadcast()]).flat_map(frames_to));
            is_as_built(&publisher, &tables, &frames);
        }
    }
}

fn change(prefix: &str, action: Option<RouteAction>) -> Amendment {
    Amendment {
        routes: vec![RouteChange { table: TableId::MAIN, prefix: net(prefix), action }],
        ..Amendment::default()
    }
}

fn steered(prefix: &str, paths: Vec<Path>) -> Amendment {
    Amendment { steers: vec![SteerChange { table: TableId::MAIN, prefix: net(prefix), paths }], ..Amendment::default() }
}

fn resolved(port: u16, address: IpAddr, mac: Option<u8>) -> Amendment {
    let mac = mac.map(|last| Mac([2, 0, 0, 0, 2, last]));
    Amendment { neighbors: vec![NeighborChange { port: PortId(port), address, mac }], ..Amendment::default() }
}

#[test]
fn neighbours_come_change_and_go_in_place() {
    let mut node = node();
    let ecmp = (0..3000).map(|number| route(TableId::MAIN, &format!("3000:{number:x}::/32"), via(&[1, 2])));
    node.routes.extend(ecmp);
    let mut publisher = publisher(node);
    let frames: Vec<_> = ["3000:1::1", "3000:2::2", "4000::1", "4001::1", "44.2.0.1", "2001:db8:1::2", "2001:db8:1::3"]
        .into_iter()
        .flat_map(|to| frames_to(to.parse().unwrap()))
        .collect();
    let amendments = [
        resolved(1, on_link(3), Some(1)),
        resolved(1, on_link(3), Some(2)),
        resolved(1, on_link(3), None),
        resolved(1, on_link(3), Some(3)),
        resolved(2, neighbor(2), Some(1)),
        resolved(1, neighbor(1), None),
        resolved(2, neighbor(2), None),
        resolved(1, neighbor(1), Some(9)),
        resolved(0, on_link(4), Some(1)),
    ];
    for (number, amendment) in (1..).zip(&amendments) {
        let before = tables_of(&publisher);
        assert!(amend(&mut publisher, amendment));
        let counts = publisher.published();
        assert_eq!((counts.whole, counts.in_place), (1, number), "{amendment:?}");
        is_as_built(&publisher, &before, &frames);
    }
    assert!(amend(&mut publisher, &resolved(1, neighbor(1), Some(9))), "nothing changes");
    assert_eq!(publisher.published().in_place, amendments.len() as u64);
}

#[test]
fn a_neighbour_that_is_gone_is_no_next_hop_until_somebody_needs_it() {
    let mut publisher = publisher(node());
    let is_next_hop =
        |publisher: &Publisher| publisher.current().tables.next_hops().any(|(_, address, _)| address == on_link(3));
    assert!(amend(&mut publisher, &resolved(1, on_link(3), Some(1))));
    assert!(is_next_hop(&publisher));
    assert!(amend(&mut publisher, &resolved(1, on_link(3), None)));
    assert!(!is_next_hop(&publisher), "nobody is to ask for it");
    let hop = Hop { via: Some(on_link(3)), ..hop(1) };
    assert!(amend(&mut publisher, &change("9000:1::/32", Some(RouteAction::Via(vec![hop])))));
    assert!(is_next_hop(&publisher));
    assert_eq!(publisher.published().whole, 1);
}

#[test]
fn what_is_usual_is_made_in_place() {
    let mut publisher = publisher(node());
    let frames: Vec<_> =
        ["3000:1::1", "fcbb:bbbb:3::1", "4000::1", "4005::1", "10.1.2.3", "fcbb:bbbb:1:2:3::", "9000::7"]
            .into_iter()
            .flat_map(|to| frames_to(to.parse().unwrap()))
            .collect();
    let amendments = [
        change("3000:1::/48", Some(via(&[0, 1]))),
        change("3000:1::/48", Some(RouteAction::Blackhole)),
        change("3000:1::/48", None),
        change("10.1.2.0/24", Some(RouteAction::Kernel)),
        change("::/0", Some(via(&[2]))),
        change("0.0.0.0/0", Some(via(&[1]))),
        change("fcbb:bbbb:3::/48", Some(via(&[0]))),
        // The path that follows this route changes with it, and with the route that covers it.
        change("fcbb:bbbb:2::/48", Some(via(&[0]))),
        change("fcbb:bbbb:2::/48", None),
        steered("4005::/16", vec![path("new".into(), &["fcbb:bbbb:5::", "fcbb:bbbb:6::"], vec![hop(1)])]),
        steered("4005::/16", vec![path("led".into(), &["fcbb:bbbb:2:3::"], vec![hop(1)])]),
        steered("4005::/16", vec![]),
        steered("3000::/16", vec![path("over".into(), &["fcbb:bbbb:5::"], vec![hop(0)])]),
        change("3000::/16", None),
        steered("3000::/16", vec![]),
    ];
    for (number, amendment) in (1..).zip(&amendments) {
        let before = tables_of(&publisher);
        assert!(amend(&mut publisher, amendment));
        is_as_built(&publisher, &before, &frames);
        let Published { whole, in_place, .. } = publisher.published();
        assert_eq!((whole, in_place), (1, number), "{amendment:?}");
    }
    assert!(amend(&mut publisher, amendments.last().unwrap()));
    assert_eq!(publisher.published().in_place, 15, "nothing has changed, nothing is published");
}

/// Returns a state with default routes and more prefixes inside of them than are examined for one change.
fn with_defaults() -> Desired {
    let mut desired = node();
    let inside = (0..3000u16).flat_map(|n| {
        let v4 = IpNet::new(Ipv4Addr::from(0x6400_0000 + (u32::from(n) << 8)).into(), 24);
        [IpNet::new(Ipv6Addr::new(0x6000, n, 0, 0, 0, 0, 0, 0).into(), 32), v4].map(Result::unwrap)
    });
    let action = via(&[1]);
    desired.routes.extend(inside.map(|prefix| Route { table: TableId::MAIN, prefix, action: action.clone() }));
    for table in [TableId::MAIN, VRF] {
        desired.routes.extend(["::/0", "0.0.0.0/0"].map(|prefix| route(table, prefix, via(&[0]))));
    }
    let steer = |prefix: &str, paths| Steer { table: TableId::MAIN, prefix: net(prefix), paths };
    desired.steers.push(steer("4002::/16", vec![path("by default".into(), &["7000::1"], vec![])]));
    let one_of = |name: &str, first| path(name.into(), &[first, "fcbb:bbbb:4::"], vec![]);
    desired.steers.push(steer("4003::/16", vec![one_of("c", "7000::2"), one_of("d", "fcbb:bbbb:2::")]));
    desired
}

#[test]
fn a_default_route_has_other_next_hops_in_place_whatever_lies_inside() {
    let mut publisher = publisher(with_defaults());
    let frames: Vec<_> =
        ["7000::9", "8.8.8.8", "6000:7::1", "100.0.7.1", "fcbb:bbbb:7::", "4000::1", "4002::1", "4003::1"]
            .into_iter()
            .flat_map(|to| frames_to(to.parse().unwrap()))
            .collect();
    let weighted = RouteAction::Via(vec![hop(0), Hop { weight: 3, ..hop(1) }]);
    let actions = [via(&[1]), via(&[2]), via(&[0, 1]), weighted, via(&[3]), via(&[1])];
    let mut changes = 0;
    for (table, prefix) in [TableId::MAIN, VRF].into_iter().flat_map(|table| [(table, "::/0"), (table, "0.0.0.0/0")]) {
        for action in &actions {
            let before = tables_of(&publisher);
            let action = Some(action.clone());
            let routes = vec![RouteChange { table, prefix: net(prefix), action }];
            assert!(amend(&mut publisher, &Amendment { routes, ..Amendment::default() }));
            is_as_built(&publisher, &before, &frames);
            changes += 1;
            let Published { whole, in_place, .. } = publisher.published();
            assert_eq!((whole, in_place), (1, changes), "{prefix} of {table:?}");
        }
    }
}

/// When the route comes back, the group of the removed one may still exist.
#[test]
fn a_default_route_comes_back_with_other_next_hops() {
    let mut publisher = publisher(node());
    let frames: Vec<_> = ["7000::9", "8.8.8.8"].into_iter().flat_map(|to| frames_to(to.parse().unwrap())).collect();
    let actions = [via(&[1]), via(&[0]), RouteAction::Kernel, via(&[0, 1])];
    let actions: Vec<_> = actions.into_iter().flat_map(|action| [Some(action), None]).collect();
    for action in actions.iter().chain(actions.iter().rev()) {
        for prefix in ["::/0", "0.0.0.0/0"] {
            let before = tables_of(&publisher);
            assert!(amend(&mut publisher, &change(prefix, action.clone())));
            is_as_built(&publisher, &before, &frames);
            assert_eq!(publisher.published().whole, 1, "{action:?}");
        }
    }
}

/// The value of a default route is in most entries of the tables, so the change would touch most of them.
#[test]
fn a_default_route_that_comes_or_goes_takes_a_whole_build() {
    let mut publisher = publisher(with_defaults());
    let frames = frames_to("7000::9".parse().unwrap());
    for (action, whole) in [(None, 2), (Some(via(&[1])), 3), (Some(RouteAction::Blackhole), 4), (Some(via(&[0])), 5)] {
        let before = tables_of(&publisher);
        assert!(amend(&mut publisher, &change("::/0", action)));
        assert_eq!(publisher.published().whole, whole);
        is_as_built(&publisher, &before, &frames);
    }
    assert!(amend(&mut publisher, &change("::/0", Some(via(&[1])))));
    assert_eq!(publisher.published().in_place, 1);
}

#[test]
fn what_means_more_takes_a_whole_build() {
    let onto_link = RouteAction::Via(vec![Hop { via: None, ..hop(0) }]);
    for amendment in [
        change("2001:db8:1::2/128", Some(via(&[0]))),
        change("2001:db8:0::/64", Some(onto_link)),
        change("2001:db8:1::/64", None),
        change("3000::/61", Some(via(&[0]))),
    ] {
        let mut publisher = publisher(node());
        let before = tables_of(&publisher);
        assert!(amend(&mut publisher, &amendment));
        let Published { whole, whole_for_amendment, in_place, .. } = publisher.published();
        assert_eq!((whole, whole_for_amendment, in_place), (2, 1, 0), "{amendment:?}");
        is_as_built(&publisher, &before, &frames_to("2001:db8:1::2".parse().unwrap()));
    }
}

/// When the change that cannot be applied is found, earlier changes of the same amendment have been applied.
#[test]
fn what_cannot_be_applied_in_the_middle_of_an_amendment_takes_all_of_it_to_a_whole_build() {
    let onto_link = change("2001:db8:0::/64", Some(RouteAction::Via(vec![Hop { via: None, ..hop(0) }])));
    let plain = change("3000:1::/48", Some(via(&[0])));
    let loops = vec![path("loops".into(), &["fcbb:bbbb:1:2::"], vec![])];
    let mut publisher = publisher(node());
    let mut amendment = Amendment {
        routes: [plain.routes, onto_link.routes].concat(),
        steers: steered("4000::/16", loops).steers,
        neighbors: [resolved(1, on_link(3), Some(1)), resolved(1, neighbor(1), None)].map(|one| one.neighbors).concat(),
        ..Amendment::default()
    };
    for is_refused in [true, false] {
        let (mut expected, before) = (Desired::clone(publisher.desired()), tables_of(&publisher));
        if is_refused {
            assert!(!amend(&mut publisher, &amendment));
            assert_eq!(*publisher.desired(), Arc::new(expected));
            amendment.steers.clear();
            continue;
        }
        assert!(amend(&mut publisher, &amendment));
        assert!(!expected.amend(&amendment).is_empty());
        assert_eq!(*publisher.desired(), Arc::new(expected));
        assert_eq!(publisher.published().whole_for_amendment, 1);
        let frames = ["3000:1::1", "2001:db8:1::3", "4000::1"].map(|to| frames_to(to.parse().unwrap())).concat();
        is_as_built(&publisher, &before, &frames);
    }
    // The same holds if only the neighbours and the path are wrong.
    let before = publisher.desired().clone();
    amendment =
        Amendment { neighbors: resolved(1, on_link(3), None).neighbors, ..change("3000:1::/48", Some(via(&[1]))) };
    amendment.steers = steered("4000::/16", vec![path("loops".into(), &["fcbb:bbbb:1:2::"], vec![])]).steers;
    assert!(!amend(&mut publisher, &amendment));
    assert_eq!(*publisher.desired(), before);
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut publisher = publisher(node());
    let nowhere = RouteAction::Via(vec![Hop { port: PortId(99), ..hop(0) }]);
    let loops = path("loops".into(), &["fcbb:bbbb:1:2::"], vec![]);
    for refused in [change("3000::/16", Some(nowhere)), steered("4000::/16", vec![loops])] {
        let both =
            Amendment { routes: [change("3000:1::/48", Some(via(&[0]))).routes, refused.routes].concat(), ..refused };
        let (before, tables) = (publisher.desired().clone(), tables_of(&publisher));
        assert!(!amend(&mut publisher, &both));
        assert_eq!(*publisher.desired(), before);
        is_as_built(&publisher, &tables, &frames_to("3000:1::1".parse().unwrap()));
        assert!(amend(&mut publisher, &change("3000:2::/48", Some(via(&[0])))));
        assert!(amend(&mut publisher, &change("3000:2::/48", None)));
    }
}

#[test]
fn a_worker_that_stays_in_old_tables_is_left_there() {
    let mut publisher = publisher(node());
    let mut late = publisher.reader();
    let generation = late.current().revision;
    for number in 0..3 {
        let before = tables_of(&publisher);
        assert!(amend(&mut publisher, &change("3000:1::/48", (number % 2 == 0).then(|| via(&[0])))));
        is_as_built(&publisher, &before, &frames_to("3000:1::1".parse().unwrap()));
    }
    assert_eq!(publisher.published().copied, 1, "the copy that the worker is in is left to it");
    assert_eq!(late.current().revision, generation + 3);
}

/// In either copy of the tables, a worker sees exactly the changes of its generation.
#[test]
fn a_round_sees_all_of_an_amendment_or_nothing_and_never_an_older_state_again() {
    let mut publisher = publisher(node());
    let mut reader = publisher.reader();
    let both = |port| Amendment {
        routes: ["3000:1::/48", "10.1.0.0/16"]
            .iter()
            .flat_map(|prefix| change(prefix, Some(via(&[port]))).routes)
            .collect(),
        ..Amendment::default()
    };
    assert!(amend(&mut publisher, &both(0)));
    let first = publisher.current().revision;
    let is_over = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut step = Step::new(0, Arc::default(), |_, _| {});
            let mut io = Memory::new(PORTS.into());
            let (mut newest, mut rounds) = (first, 0u64);
            while !is_over.load(Ordering::Relaxed) || rounds == 0 {
                for to in ["3000:1::1", "10.1.0.1"] {
                    io.port(0).unwrap().rx.push_back(MemoryFrame::new(&frame(to.parse().unwrap(), &[7; 26])));
                }
                let snapshot = reader.current();
                assert!(snapshot.revision >= newest, "{} after {newest}", snapshot.revision);
                newest = snapshot.revision;
                step.round(&mut io, snapshot, 1);
                let sent: Vec<usize> = io.take_sent().into_iter().map(|(socket, _)| socket).collect();
                let port = usize::try_from((newest - first) % 2).unwrap();
                assert_eq!(sent, [port, port], "{} amendments later", newest - first);
                rounds += 1;
            }
            rounds
        });
        for number in 1..=200 {
            assert!(amend(&mut publisher, &both(number % 2)));
        }
        is_over.store(true, Ordering::Relaxed);
        worker.join().unwrap()
    });
    assert!(rounds > 0);
    assert_eq!((publisher.published().in_place, publisher.current().revision), (201, first + 200));
}

#[test]
fn workers_read_two_copies_in_turn() {
    let mut publisher = publisher(node());
    let mut reader = publisher.reader();
    let mut copies = Vec::new();
    for number in 0..6 {
        let before = tables_of(&publisher);
        assert!(amend(&mut publisher, &change("3000:1::/48", (number % 2 == 0).then(|| via(&[0])))));
        copies.push(std::ptr::from_ref(reader.current()));
        is_as_built(&publisher, &before, &frames_to("3000:1::1".parse().unwrap()));
    }
    assert!(copies[0] != copies[1] && copies.chunks(2).all(|both| *both == copies[..2]), "{copies:?}");
    let Published { in_place, copied, .. } = publisher.published();
    assert_eq!((in_place, copied), (6, 0));
}

/// Four bursts use one worker's cache, with other tables between them. Results from earlier tables must not be used.
#[test]
fn cached_destinations_go_with_the_tables_they_were_found_in() {
    let mut publisher = publisher(node());
    let frames: Vec<_> = ["3000:1::1", "3000:2::1", "4000::1", "44.2.0.1", "10.1.2.3", "9000::1", "fcbb:bbbb:1:2:3::"]
        .map(|to| frame(to.parse().unwrap(), &[7; 26]))
        .into();
    let [old, amended, compiled] = [None, Some("3000::/16"), Some("10.0.0.0/8")].map(|prefix| {
        if let Some(prefix) = prefix {
            assert!(amend(&mut publisher, &change(prefix, Some(via(&[0])))));
            assert!(amend(&mut publisher, &change("9000::1/128", Some(RouteAction::Blackhole))));
        }
        if prefix == Some("10.0.0.0/8") {
            publisher.publish(None, |_, _| Wiring::direct(PORTS.into())).unwrap();
        }
        tables_of(&publisher)
    });
    let mut io = Memory::new(PORTS.into());
    let mut round = |step: &mut Step<Memory>, tables| {
        io.port(0).unwrap().rx.extend(frames.iter().map(|frame| MemoryFrame::new(frame)));
        step.round(&mut io, tables, 1);
        io.take_sent().into_iter().map(|(socket, frame)| (socket, frame.bytes())).collect::<Vec<_>>()
    };
    let worker = || Step::new(0, Arc::default(), |_, _| {});
    let expected = [&old, &amended, &compiled].map(|tables| (tables, round(&mut worker(), tables)));
    assert!(expected[0].1 != expected[1].1 && expected[1].1 != expected[2].1);
    let mut step = worker();
    for (tables, sent) in expected.iter().chain(expected.iter().rev()) {
        for _ in 0..4 {
            assert_eq!(round(&mut step, tables), *sent);
        }
    }
}

#[test]
fn lists_have_room_for_what_is_added() {
    let mut desired = node();
    desired.routes.shrink_to_fit();
    let mut publisher = publisher(desired);
    let room = publisher.desired().routes.capacity();
    for number in 0..6 {
        assert!(amend(&mut publisher, &change(&format!("3000:{number:x}::/48"), Some(via(&[0])))));
    }
    assert_eq!(publisher.published().whole, 1);
    assert_eq!(publisher.desired().routes.capacity(), room, "one more route does not copy all of them");
}

#[test]
fn old_tables_are_freed_by_who_publishes() {
    let mut publisher = publisher(node());
    let mut reader = publisher.reader();
    reader.current();
    let old = Arc::downgrade(&publisher.current());
    publisher.publish(None, |_, _| Wiring::direct(PORTS.into())).unwrap();
    publisher.free_retired();
    assert!(old.upgrade().is_some(), "the worker has not begun another round");
    reader.current();
    assert!(old.upgrade().is_some(), "the worker that leaves them last does not free them");
    publisher.free_retired();
    assert!(old.upgrade().is_none());
}
