//! Random frames on random states, with the XDP program of `offload = "xdp"` and of `engine = "tc"` in front, and with the
//! tc program that encapsulates what applications send. Frames that a program forwards, or decapsulates for this node, have
//! the bytes and counters that the packet path would have produced, and frames that it leaves to the packet path are
//! unchanged.
//!
//! `PROPTEST_CASES=100000 cargo test -p srv6d-differential --test it offload:: -- --ignored` tries that many new random
//! inputs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test may panic")]
#![allow(clippy::cast_possible_truncation, reason = "any bits will do for a host")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

use ipnet::IpNet;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use srv6d_differential::compare::agree;
use srv6d_differential::engine::{Engine as _, Node, Treatment};
use srv6d_differential::engines::{TcProgram, Worker, XdpProgram};
use srv6d_differential::generate::frames::Arrival;
use srv6d_differential::generate::{frames, state};
use srv6d_differential::random_tests;
use srv6d_model::{Counted, Counts, Outcome};
use srv6d_runner::front::{Front, Interfaces};
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::desired::{
    Behavior, Csid, Desired, DscpMode, Flavors, Hop, LocalSid, Mac, Path, Port, PortId, Role, Route, RouteAction,
    Steer, TableId,
};
use srv6d_srv6::{DropReason, Verdict};
use srv6d_wire::checksum;

/// Numbers of the frames of each kind in this test so far.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Shifted by the program.
    shifted: u32,
    /// Forwarded by the program as they were: IPv6 frames, IPv4 frames.
    routed: [u32; 2],
    /// Decapsulated by the program for another port: IPv6 inside, IPv4 inside.
    unwrapped: [u32; 2],
    /// Encapsulated by the program: IPv6 frames, IPv4 frames.
    encapsulated: [u32; 2],
    /// Forwarded by the program, received on edge or host ports.
    from_outside: u32,
    /// Forwarded by the program, received on ports in a table other than the main one.
    of_vrfs: u32,
    /// Refused by the worker: received on edge or host ports and sent to a SID block.
    refused: u32,
    /// Forwarded by the program although sources are restricted.
    admitted: u32,
    /// Refused by the worker because of their source.
    not_admitted: u32,
    /// Forwarded by the worker at a SID that the host port may use.
    allowed_carriers: u32,
    /// Decapsulated by the program for this node: IPv6 and IPv4 inside.
    delivered: [u32; 2],
    /// Decapsulated by the worker for this node.
    delivered_by_worker: u32,
    /// Decapsulated by the program for another port, received on edge or host ports.
    unwrapped_from_outside: u32,
    /// Forwarded by the program: received with a VLAN tag, sent with one.
    tagged: [u32; 2],
}

#[test]
#[ignore = "needs root"]
fn what_the_program_forwards_the_packet_path_would_have_sent() {
    let interfaces = Rc::new(Interfaces::of_this_thread().unwrap());
    let seen = Cell::new(Seen::default());
    let mut runner = TestRunner::new(random_tests(300));
    // One program serves all states: each state replaces the one before, as generations do.
    let engines = RefCell::new((XdpProgram::new(Front::load(interfaces).unwrap()), Worker::default()));
    let aimed = prop::option::weighted(0.8, (any::<Index>(), any::<u128>()));
    let opened = prop::option::weighted(0.75, prop::collection::vec(role(), 8));
    let inputs = (state::state(), opened, prop::collection::vec((frames::arrival(), aimed), 100));
    let result = runner.run(&inputs, |(state, roles, arrivals)| {
        let desired = offloading(&state.0, roles.as_deref());
        let (program, worker) = &mut *engines.borrow_mut();
        for (arrival, aimed) in &arrivals {
            let mut arrival = arrival.clone();
            let tag = take_tag(&mut arrival.frame);
            let Some(port) = came_through(&desired, arrival.port, tag) else { continue };
            if let Some((prefix, argument)) = aimed
                && !aim_at_this_node(&mut arrival.frame, &desired, (*prefix, *argument))
            {
                aim(&mut arrival.frame, &desired, port.table, (*prefix, *argument));
            }
            let untagged = arrival.frame.clone();
            if let Some(tag) = tag {
                arrival.frame.splice(12..12, tag);
            }
            let counted = compare(program, worker, &desired, &arrival).map_err(TestCaseError::fail)?;
            let mut so_far = seen.get();
            so_far.add(&desired, port, (&arrival, &untagged), counted.as_ref(), worker);
            seen.set(so_far);
        }
        Ok(())
    });
    result.unwrap_or_else(|why| panic!("{why}"));
    let Seen {
        shifted,
        routed: [routed_v6, routed_v4],
        unwrapped: [unwrapped_v6, unwrapped_v4],
        encapsulated: [v6, v4],
        from_outside,
        of_vrfs,
        refused,
        admitted,
        not_admitted,
        allowed_carriers,
        delivered: [inner_v6, inner_v4],
        delivered_by_worker,
        unwrapped_from_outside,
        tagged: [came_tagged, left_tagged],
    } = seen.get();
    let is_proof = shifted > 150 && v6 > 150 && v4 > 25 && from_outside > 50 && of_vrfs > 25 && refused > 100;
    let is_proof = is_proof && admitted > 50 && not_admitted > 100 && allowed_carriers > 10;
    let is_proof = is_proof && inner_v6 > 15 && inner_v4 > 2 && delivered_by_worker > 100;
    let is_proof = is_proof && unwrapped_from_outside > 0 && came_tagged > 25 && left_tagged > 50;
    let is_proof = is_proof && routed_v6 > 100 && routed_v4 > 5 && unwrapped_v6 > 15 && unwrapped_v4 > 2;
    eprintln!("{:?}", seen.get());
    assert!(is_proof, "nothing is proven: {:?}", seen.get());
}

/// Numbers of the frames of applications in this test so far.
#[derive(Clone, Copy, Debug, Default)]
struct Encapsulated {
    /// Encapsulated by the program: IPv6 frames, IPv4 frames.
    families: [u32; 2],
    /// Encapsulated with an SRH: of one segment, of two.
    with_srh: [u32; 2],
    /// Encapsulated, of prefixes with several paths.
    chosen: u32,
    /// Encapsulated, of a table other than the main one.
    of_vrfs: u32,
    /// Encapsulated with a hop less.
    with_hop_less: u32,
    /// Encapsulated by the worker.
    by_worker: u32,
}

impl Encapsulated {
    /// Counts a frame, which the program has changed to `sent` if it was not the worker's.
    fn add(&mut self, desired: &Desired, frame: &[u8], sent: Option<&Outcome>, worker: Option<&Outcome>) {
        let is_path = |what: &Counted| matches!(what, Counted::Path(_));
        let Some(Outcome { frame: sent, counts, .. }) = sent else {
            self.by_worker += u32::from(worker.is_some_and(|outcome| outcome.counts.keys().any(is_path)));
            return;
        };
        let family = usize::from(frame.get(12..14) == Some(&[8, 0]));
        self.families[family] += 1;
        if sent.get(20) == Some(&43) {
            self.with_srh[usize::from(sent.get(55) == Some(&4))] += 1;
        }
        let name = counts.keys().find_map(|what| if let Counted::Path(name) = what { Some(name) } else { None });
        let mut steers = desired.steers.iter();
        let steer = steers.find(|steer| steer.paths.iter().any(|path| Some(&path.name) == name));
        self.chosen += u32::from(steer.is_some_and(|steer| steer.paths.len() > 1));
        self.of_vrfs += u32::from(steer.is_some_and(|steer| steer.table != TableId::MAIN));
        self.with_hop_less += u32::from(desired.tunnel.decrement_local);
    }
}

#[test]
#[ignore = "needs root"]
fn what_the_tc_program_encapsulates_the_packet_path_would_have_sent() {
    let interfaces = Rc::new(Interfaces::of_this_thread().unwrap());
    let seen = Cell::new(Encapsulated::default());
    let mut runner = TestRunner::new(random_tests(300));
    let engines = RefCell::new((TcProgram::new(Front::load(interfaces).unwrap()), Worker::default()));
    let aimed = prop::option::weighted(0.9, (any::<Index>(), any::<u128>()));
    let opened = prop::option::weighted(0.75, prop::collection::vec(role(), 8));
    let inputs = (state::state(), opened, prop::collection::vec((frames::arrival(), aimed), 100));
    let result = runner.run(&inputs, |(state, roles, arrivals)| {
        let mut desired = offloading(&state.0, roles.as_deref());
        let Some(host) = desired.host else { return Ok(()) };
        let largest = desired.ports.iter().map(|port| port.mtu).max().unwrap_or_default();
        let Some(port) = desired.ports.get_mut(usize::from(host.port.0)) else { return Ok(()) };
        // The own veth takes what any port does.
        port.mtu = largest;
        let table = port.table;
        if roles.is_some() {
            lengthen_paths(&mut desired);
        }
        let (program, worker) = &mut *engines.borrow_mut();
        for (Arrival { frame, .. }, aimed) in &arrivals {
            let mut arrival = Arrival { port: host.port.0, frame: frame.clone() };
            if let Some((prefix, argument)) = aimed {
                aim(&mut arrival.frame, &desired, table, (*prefix, *argument));
            }
            let answers = agree(&mut [program], worker, Node::from(&desired), arrival.port, &arrival.frame);
            let answers = answers.map_err(TestCaseError::fail)?;
            let sent = answers.iter().flatten().find_map(Treatment::outcome);
            let by_worker = if sent.is_none() { of_worker(worker, &desired, &arrival) } else { None };
            let mut so_far = seen.get();
            so_far.add(&desired, &arrival.frame, sent, by_worker.as_ref());
            seen.set(so_far);
        }
        Ok(())
    });
    result.unwrap_or_else(|why| panic!("{why}"));
    let Encapsulated { families: [v6, v4], with_srh: [one, two], chosen, of_vrfs, with_hop_less, by_worker } =
        seen.get();
    eprintln!("{:?}", seen.get());
    let is_proof = v6 > 500 && v4 > 100 && one > 50 && two > 10 && chosen > 100;
    let is_proof = is_proof && of_vrfs > 50 && with_hop_less > 100 && by_worker > 100;
    assert!(is_proof, "nothing is proven: {:?}", seen.get());
}

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![4 => Just(Role::Fabric), 3 => Just(Role::Edge), 1 => Just(Role::Host)]
}

impl Seen {
    /// Counts a frame. `counted` is what the program has counted if it forwarded the frame.
    fn add(
        &mut self,
        desired: &Desired,
        port: &Port,
        (arrival, untagged): (&Arrival, &[u8]),
        counted: Option<&Counts>,
        worker: &mut Worker,
    ) {
        let is_outside = matches!(port.role, Role::Edge | Role::Host);
        let Some(counted) = counted else {
            let outcome = of_worker(worker, desired, arrival);
            let reason = outcome.as_ref().and_then(refusal);
            let is_of_sid = |outcome: &Outcome| outcome.counts.keys().any(|what| matches!(what, Counted::Sid(_)));
            let is_allowed = port.role == Role::Host && outcome.as_ref().is_some_and(is_of_sid);
            self.allowed_carriers += u32::from(is_allowed);
            let is_to_block = matches!(reason, Some(DropReason::AclEdge | DropReason::AclPath));
            self.refused += u32::from(is_outside && is_to_block);
            let is_decapsulated =
                |outcome: &Outcome| matches!(outcome.verdict, Verdict::Kernel(_)) && is_of_sid(outcome);
            self.delivered_by_worker += u32::from(outcome.as_ref().is_some_and(is_decapsulated));
            self.not_admitted += u32::from(matches!(reason, Some(DropReason::AclSource | DropReason::AclSid)));
            return;
        };
        let checks_sources = !port.allowed_sources.is_empty() || !desired.policy.domain_sources.is_empty();
        self.admitted += u32::from(checks_sources);
        self.from_outside += u32::from(is_outside);
        self.of_vrfs += u32::from(port.table != TableId::MAIN);
        let [came, left] = &mut self.tagged;
        *came += u32::from(untagged.len() < arrival.frame.len());
        let is_of_vlan = |what: &Counted| matches!(what, Counted::NextHop(port, _) if port.contains('.'));
        *left += u32::from(counted.keys().any(is_of_vlan));
        if counted.keys().all(|what| matches!(what, Counted::Sid(_))) {
            let [inner_v6, inner_v4] = &mut self.delivered;
            *if untagged.get(20) == Some(&4) { inner_v4 } else { inner_v6 } += 1;
            return;
        }
        let family = untagged.get(12..14).map_or(0, |bytes| usize::from(bytes == [8, 0]));
        let is_path = |what: &Counted| matches!(what, Counted::Path(_));
        let is_of_sid = counted.keys().any(|what| matches!(what, Counted::Sid(_)));
        let count = match (counted.keys().any(is_path), is_of_sid) {
            (true, _) => self.encapsulated.get_mut(family),
            (false, true) if ends_here(desired, untagged) => {
                self.unwrapped_from_outside += u32::from(is_outside);
                self.unwrapped.get_mut(usize::from(untagged.get(20) == Some(&4)))
            }
            (false, true) => Some(&mut self.shifted),
            (false, false) => self.routed.get_mut(family),
        };
        if let Some(count) = count {
            *count += 1;
        }
    }
}

/// Takes a VLAN tag out of a frame. Returns its type and contents.
fn take_tag(frame: &mut Vec<u8>) -> Option<[u8; 4]> {
    let tag = *frame.get(12..)?.first_chunk::<4>().filter(|tag| tag.starts_with(&[0x81, 0]))?;
    frame.drain(12..16);
    Some(tag)
}

/// Returns the port that a frame with this tag comes in through: that of the VLAN, or the device.
fn came_through(desired: &Desired, device: u16, tag: Option<[u8; 4]>) -> Option<&Port> {
    let vid = tag.map(|[_, _, high, low]| u16::from_be_bytes([high, low]) & 0xfff);
    let of_vlan = desired.ports.iter().find(|port| vid.is_some() && port.device == device && port.vlan == vid);
    of_vlan.or_else(|| desired.ports.get(usize::from(device)))
}

/// Returns whether the longest SID that the frame is addressed to decapsulates.
fn ends_here(desired: &Desired, untagged: &[u8]) -> bool {
    let to = untagged.get(38..).and_then(|bytes| bytes.first_chunk::<16>()).map(|bytes| Ipv6Addr::from(*bytes));
    let sids = desired.sids.iter().filter(|sid| to.is_some_and(|to| sid.prefix.contains(&to)));
    let longest = sids.max_by_key(|sid| sid.prefix.prefix_len());
    longest.is_some_and(|sid| matches!(sid.behavior, Behavior::EndDt { .. }))
}

fn of_worker(worker: &mut Worker, desired: &Desired, arrival: &Arrival) -> Option<Outcome> {
    worker.go_over(Node::from(desired)).ok().filter(|can_be| *can_be)?;
    worker.forward(arrival.port, &arrival.frame).ok()?.outcome().cloned()
}

fn refusal(outcome: &Outcome) -> Option<DropReason> {
    match outcome.verdict {
        Verdict::Drop(reason) => Some(reason),
        _ => None,
    }
}

/// Restricts sources on a third of the ports, and who may use SIDs on half of the nodes. Host ports may use every second SID.
fn admit_some(desired: &mut Desired) {
    let carriers: Vec<_> = desired.sids.iter().step_by(2).map(|sid| sid.prefix).collect();
    for (number, port) in desired.ports.iter_mut().enumerate() {
        if port.role == Role::Host {
            port.allowed_carriers.clone_from(&carriers);
        }
        let prefixes: &[&str] = if number % 3 == 0 { &["2000::/3", "10.0.0.0/9", "10.128.0.0/16"] } else { &[] };
        port.allowed_sources = prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect();
    }
    let domain: &[&str] = if desired.routes.len().is_multiple_of(2) { &["2000::/4", "3000::/4"] } else { &[] };
    desired.policy.domain_sources = domain.iter().map(|prefix| prefix.parse().unwrap()).collect();
}

/// Returns the state with the program requested on every port. With `roles`, states contain less that makes the program
/// leave every frame to the worker, so that most states test what the program forwards.
fn offloading(desired: &Desired, roles: Option<&[Role]>) -> Desired {
    let mut desired = desired.clone();
    desired.offload = (0..).zip(&desired.ports).map(|(index, _)| PortId(index)).collect();
    if let Some(roles) = roles {
        let ports = desired.ports.iter_mut().zip(roles);
        for (port, &role) in ports.filter(|(port, _)| port.role != Role::Kernel) {
            (port.role, port.mtu) = (role, 1500);
        }
        go_somewhere(&mut desired);
        steer_plainly(&mut desired);
        live_behind_sids(&mut desired);
        admit_some(&mut desired);
    }
    desired
}

/// Gives the result of every shift a route with several next hops of unequal weights.
fn go_somewhere(desired: &mut Desired) {
    let hop = |port: u16, weight| Hop {
        port: PortId(port),
        via: Some(IpAddr::V6([0xfd00, 0, 0, 0, 0, 0, 0, port].into())),
        weight,
    };
    let hops = vec![hop(0, 2), hop(1, 3), hop(2, 1), hop(3, 1)];
    let mac = |port: PortId| Mac([2, 0, 0, 0, 0xcc, u8::try_from(port.0).unwrap()]);
    desired.neighbors.extend(hops.iter().map(|hop| ((hop.port, hop.via.unwrap()), mac(hop.port))));
    let everywhere = "::/0".parse().unwrap();
    desired.routes.retain(|route| route.prefix != everywhere);
    desired.steers.retain(|steer| steer.prefix != everywhere);
    desired.routes.push(Route { table: TableId::MAIN, prefix: everywhere, action: RouteAction::Via(hops) });
    // Packets to unknown SIDs take this route, too.
    desired.blocks.iter_mut().for_each(|block| block.unknown = None);
    if !desired.sids.iter().any(shifts) {
        desired.sids.push(LocalSid {
            prefix: "fcbb:bbbb:1::/48".parse().unwrap(),
            behavior: Behavior::End { csid: Some(Csid { lblen: 32, nflen: 16 }), dscp: DscpMode::Pipe(0) },
            flavors: Flavors::default(),
        });
    }
}

/// Gives two thirds of the paths a single segment, and steers prefixes of both families; sometimes also a prefix around
/// the block.
fn steer_plainly(desired: &mut Desired) {
    let steered = [("2001:db8:7::/48", "plain"), ("10.7.0.0/16", "plain of IPv4"), ("fcbb:bb00::/24", "all around")];
    let is_all_around = desired.steers.len() % 3 == 1;
    for (prefix, name) in steered.into_iter().take(if is_all_around { 3 } else { 2 }) {
        let segments = SegmentList::new(vec!["fcbc:0:9::".parse().unwrap()], &[]).unwrap();
        let path = Path { name: name.to_owned(), segments, full_srh: false, weight: 1, source: None, via: Vec::new() };
        // In another table, the same prefix leads to another path.
        let other = Path { name: format!("{name}, in a VRF"), source: "2001:db8:cafe::2".parse().ok(), ..path.clone() };
        for (table, path) in [(TableId::MAIN, path), (TableId(100), other)] {
            desired.steers.push(Steer { table, prefix: prefix.parse().unwrap(), paths: vec![path] });
        }
    }
    for (number, path) in desired.steers.iter_mut().flat_map(|steer| &mut steer.paths).enumerate() {
        if number % 3 != 2 {
            path.segments = SegmentList::new(vec![path.segments.first()], &[]).unwrap();
            path.full_srh = false;
        }
        if number % 3 == 0 {
            path.via.clear();
        }
    }
}

/// Gives a third of the paths two segments, and a third three.
fn lengthen_paths(desired: &mut Desired) {
    let more: [Ipv6Addr; 2] = ["fcbc:0:8::", "fcbc:0:7::"].map(|segment| segment.parse().unwrap());
    for (number, path) in desired.steers.iter_mut().flat_map(|steer| &mut steer.paths).enumerate() {
        let segments = more.into_iter().take(number % 3).chain([path.segments.first()]);
        path.segments = SegmentList::new(segments.collect(), &[]).unwrap();
    }
}

/// Gives this node an address of each family, and next hops to the subnets around them, in every table that a SID
/// decapsulates into.
fn live_behind_sids(desired: &mut Desired) {
    let table = |sid: &LocalSid| match sid.behavior {
        Behavior::EndDt { table, .. } => Some(table),
        _ => None,
    };
    let tables: BTreeSet<TableId> = desired.sids.iter().filter_map(table).collect();
    let own: [IpAddr; 2] = ["2001:db8:e::1", "10.8.0.1"].map(|own| own.parse().unwrap());
    let all = tables.iter().flat_map(|&table| own.map(|own| (table, own)));
    desired.local_addresses.splice(..0, all);
    desired.local_addresses.dedup();
    let around: [IpNet; 2] = ["2001:db8:e::/48", "10.8.0.0/16"].map(|prefix| prefix.parse().unwrap());
    let via = |number: u16| Some(IpAddr::V6([0xfd00, 0, 0, 0, 0, 0, 0, number].into()));
    let hops: Vec<Hop> = (0..2).map(|number| Hop { port: PortId(number), via: via(number), weight: 1 }).collect();
    desired.routes.retain(|route| !around.contains(&route.prefix));
    desired.steers.retain(|steer| !around.contains(&steer.prefix));
    let routes = tables
        .iter()
        .flat_map(|&table| around.map(|prefix| Route { table, prefix, action: RouteAction::Via(hops.clone()) }));
    desired.routes.extend(routes);
}

fn shifts(sid: &LocalSid) -> bool {
    matches!(sid.behavior, Behavior::End { csid: Some(_), .. } | Behavior::EndX { csid: Some(_), .. })
}

/// Changes the destination to one of the node's SIDs, blocks, or steered prefixes of the table. Without that, the
/// program would not forward most random packets.
fn aim(frame: &mut [u8], desired: &Desired, table: TableId, (prefix, argument): (Index, u128)) {
    let is_v6 = frame.get(12..14) == Some(&[0x86, 0xdd]);
    let sids = desired.sids.iter().filter(|sid| shifts(sid)).map(|sid| sid.prefix);
    let sids = sids.chain(desired.blocks.iter().map(|block| block.prefix)).filter(|_| is_v6).map(IpNet::V6);
    let steered = desired.steers.iter().filter(|steer| steer.table == table).map(|steer| steer.prefix);
    let steered = steered.filter(|prefix| prefix.addr().is_ipv6() == is_v6);
    let [sids, steered]: [Vec<IpNet>; 2] = [sids.collect(), steered.collect()];
    let to_sid = steered.is_empty() || argument.count_ones().is_multiple_of(2);
    let among = if to_sid && !sids.is_empty() { sids } else { steered };
    if among.is_empty() {
        return;
    }
    // Most random packets contain another packet or an extension header.
    let carried = [17, 6, 132, 44, 59].get((argument >> 64) as usize % 8);
    if let (false, Some(&carried)) = (to_sid, carried) {
        write(frame, if is_v6 { 20 } else { 23 }, &[carried]);
    }
    match prefix.get(&among) {
        IpNet::V6(prefix) => {
            let address = prefix.network().to_bits() | argument & prefix.hostmask().to_bits();
            write(frame, 38, &address.to_be_bytes());
        }
        IpNet::V4(prefix) => {
            let address = prefix.network().to_bits() | argument as u32 & prefix.hostmask().to_bits();
            write(frame, 30, &address.to_be_bytes());
            write(frame, 24, &[0; 2]);
            let sum = frame.get(14..34).map(checksum::of).unwrap_or_default();
            write(frame, 24, &sum.to_be_bytes());
        }
    }
}

/// Changes the destination of half of the frames that carry another packet to a SID that decapsulates, and the one inside
/// to an address of this node or to the one behind it. Returns false for all other frames.
fn aim_at_this_node(frame: &mut [u8], desired: &Desired, (sid, argument): (Index, u128)) -> bool {
    let is_v6 = match frame.get(20) {
        Some(41) => true,
        Some(4) => false,
        _ => return false,
    };
    let own =
        |table: TableId| desired.local_addresses.iter().filter(move |own| own.0 == table && own.1.is_ipv6() == is_v6);
    let leads_to = |sid: &LocalSid| match sid.behavior {
        Behavior::EndDt { table, .. } => Some((sid.prefix.network(), own(table).next()?.1)),
        _ => None,
    };
    let ways: Vec<_> = desired.sids.iter().filter_map(leads_to).collect();
    if ways.is_empty() || argument & 1 == 0 {
        return false;
    }
    let (sid, inside) = *sid.get(&ways);
    write(frame, 38, &sid.octets());
    // Most random packets contain another one or an extension header, or differ in their ECN fields.
    if argument & 6 != 0 {
        write(frame, if is_v6 { 60 } else { 63 }, &[17]);
        frame.get_mut(15).into_iter().for_each(|class| *class &= 0xcf);
    }
    let behind = u8::from(argument & 8 != 0);
    match inside {
        IpAddr::V6(own) => write(frame, 78, &(own.to_bits() + u128::from(behind)).to_be_bytes()),
        IpAddr::V4(own) => {
            write(frame, 70, &(own.to_bits() + u32::from(behind)).to_be_bytes());
            write(frame, 64, &[0; 2]);
            let sum = frame.get(54..74).map(checksum::of).unwrap_or_default();
            write(frame, 64, &sum.to_be_bytes());
        }
    }
    true
}

fn write(frame: &mut [u8], at: usize, bytes: &[u8]) {
    frame.get_mut(at..at + bytes.len()).into_iter().for_each(|place| place.copy_from_slice(bytes));
}

/// Compares both results, and returns what the program has counted if it forwarded the frame.
fn compare(
    program: &mut XdpProgram,
    worker: &mut Worker,
    desired: &Desired,
    arrival: &Arrival,
) -> Result<Option<Counts>, String> {
    let answers = agree(&mut [program], worker, Node::from(desired), arrival.port, &arrival.frame)?;
    let forwarded = answers.into_iter().flatten().next();
    Ok(forwarded.as_ref().and_then(Treatment::outcome).map(|outcome| outcome.counts.clone()))
}
