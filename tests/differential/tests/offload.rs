//! Random frames on random states, with the XDP program of `offload = "xdp"` in front: what it forwards is, to the byte
//! and to the counter, what the packet path would have sent, and what it leaves to the packet path it has not touched.
//!
//! `PROPTEST_CASES=100000 cargo test -p srv6d-differential --test offload -- --ignored` looks where nobody has looked yet.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test may panic")]
#![allow(clippy::cast_possible_truncation, reason = "any bits will do for a host")]

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use ipnet::IpNet;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use srv6d_conformance::front::{Front, Interfaces};
use srv6d_differential::generate::frames::Arrival;
use srv6d_differential::generate::{frames, state};
use srv6d_differential::{describe, fast, random_tests};
use srv6d_model::{Counted, Counts};
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::model::{
    Behavior, Csid, Desired, DscpMode, Flavors, Hop, LocalSid, Mac, Path, PortId, Role, Route, RouteAction, Steer,
    TableId,
};
use srv6d_srv6::{Slots, Tables, Verdict};
use srv6d_wire::checksum;
use srv6d_xsk::xdp_offload::PacketCount;

#[test]
#[ignore = "needs root"]
fn what_the_program_forwards_the_packet_path_would_have_sent() {
    let interfaces = Rc::new(Interfaces::of_this_thread().unwrap());
    // Encapsulated: IPv6, IPv4.
    let (forwarded, encapsulated) = (Cell::new(0), Cell::new([0; 2]));
    let mut runner = TestRunner::new(random_tests(200));
    // One program for all states: each of them replaces the one before, as generations do.
    let front = RefCell::new(Front::load(interfaces).unwrap());
    let aimed = prop::option::weighted(0.8, (any::<Index>(), any::<u128>()));
    let inputs = (state::state(), prop::bool::weighted(0.75), prop::collection::vec((frames::arrival(), aimed), 100));
    let result = runner.run(&inputs, |(state, is_open, arrivals)| {
        let desired = offloading(&state.0, is_open);
        let mut slots = Slots::default();
        let Ok(tables) = Tables::build(&desired, &mut slots) else {
            return Ok(());
        };
        let mut front = front.borrow_mut();
        front.publish(&tables).map_err(TestCaseError::fail)?;
        for (arrival, aimed) in &arrivals {
            let mut arrival = arrival.clone();
            if let Some((prefix, argument)) = aimed {
                aim(&mut arrival.frame, &desired, *prefix, *argument);
            }
            let arrival = &arrival;
            if usize::from(arrival.port) >= desired.ports.len() {
                continue;
            }
            let counted = compare(&mut front, &desired, &slots, arrival).map_err(|why| {
                let input = describe::input(&desired, arrival.port, &arrival.frame);
                TestCaseError::fail(format!("\n{}{input}\n{why}", describe::state(&desired)))
            })?;
            forwarded.set(forwarded.get() + u32::from(counted.is_some()));
            let family = arrival.frame.get(12..14).map_or(0, |bytes| usize::from(bytes == [8, 0]));
            let is_path = |what: &Counted| matches!(what, Counted::Path(_));
            if counted.is_some_and(|counted| counted.keys().any(is_path)) {
                let mut so_far = encapsulated.get();
                if let Some(count) = so_far.get_mut(family) {
                    *count += 1;
                }
                encapsulated.set(so_far);
            }
        }
        Ok(())
    });
    result.unwrap_or_else(|why| panic!("{why}"));
    let (forwarded, [v6, v4]) = (forwarded.get(), encapsulated.get());
    assert!(
        forwarded - v6 - v4 > 250 && v6 > 150 && v4 > 25,
        "of all frames only {forwarded} were forwarded, {v6} and {v4} of them encapsulated: nothing is proven"
    );
}

/// The same with the program asked for on every port, and less of what it leaves to the worker whatever the frame: most
/// states then are about what it forwards.
fn offloading(desired: &Desired, is_open: bool) -> Desired {
    let mut desired = desired.clone();
    desired.offload = (0..).zip(&desired.ports).map(|(index, _)| PortId(index)).collect();
    if is_open {
        desired.policy.domain_sources.clear();
        for port in desired.ports.iter_mut().filter(|port| port.role != Role::Kernel) {
            (port.role, port.table, port.mtu) = (Role::Fabric, TableId::MAIN, 1500);
            port.allowed_sources.clear();
        }
        go_somewhere(&mut desired);
        steer_plainly(&mut desired);
    }
    desired
}

/// Whatever a shift leads to has a way out, through several next hops with unequal shares.
fn go_somewhere(desired: &mut Desired) {
    let hop = |port: u16, weight| Hop {
        port: PortId(port),
        via: Some(IpAddr::V6([0xfd00, 0, 0, 0, 0, 0, 0, port].into())),
        weight,
    };
    let hops = vec![hop(0, 2), hop(1, 3), hop(2, 1)];
    let mac = |port: PortId| Mac([2, 0, 0, 0, 0xcc, u8::try_from(port.0).unwrap()]);
    desired.neighbors.extend(hops.iter().map(|hop| ((hop.port, hop.via.unwrap()), mac(hop.port))));
    let everywhere = "::/0".parse().unwrap();
    desired.routes.retain(|route| route.prefix != everywhere);
    desired.steers.retain(|steer| steer.prefix != everywhere);
    desired.routes.push(Route { table: TableId::MAIN, prefix: everywhere, action: RouteAction::Via(hops) });
    desired.blocks.clear();
    if !desired.sids.iter().any(shifts) {
        desired.sids.push(LocalSid {
            prefix: "fcbb:bbbb:1::/48".parse().unwrap(),
            behavior: Behavior::End { csid: Some(Csid { lblen: 32, nflen: 16 }), dscp: DscpMode::Pipe(0) },
            flavors: Flavors::default(),
        });
    }
}

/// Two thirds of the paths have one segment, and both families are steered.
fn steer_plainly(desired: &mut Desired) {
    for (prefix, name) in [("2001:db8:7::/48", "plain"), ("10.7.0.0/16", "plain of IPv4")] {
        let segments = SegmentList::new(vec!["fcbb:bbbb:9::".parse().unwrap()], &[]).unwrap();
        let path = Path { name: name.to_owned(), segments, full_srh: false, weight: 1, source: None, via: Vec::new() };
        desired.steers.push(Steer { table: TableId::MAIN, prefix: prefix.parse().unwrap(), paths: vec![path] });
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

fn shifts(sid: &LocalSid) -> bool {
    matches!(sid.behavior, Behavior::End { csid: Some(_), .. } | Behavior::EndX { csid: Some(_), .. })
}

/// Sends a packet to one of the node's SIDs or steered prefixes: most random destinations are nothing that a program
/// forwards.
fn aim(frame: &mut [u8], desired: &Desired, prefix: Index, argument: u128) {
    let is_v6 = frame.get(12..14) == Some(&[0x86, 0xdd]);
    let sids = desired.sids.iter().filter(|sid| is_v6 && shifts(sid)).map(|sid| IpNet::V6(sid.prefix));
    let steered = desired.steers.iter().filter(|steer| steer.table == TableId::MAIN).map(|steer| steer.prefix);
    let steered = steered.filter(|prefix| prefix.addr().is_ipv6() == is_v6);
    let [sids, steered]: [Vec<IpNet>; 2] = [sids.collect(), steered.collect()];
    let to_sid = steered.is_empty() || argument.count_ones().is_multiple_of(2);
    let among = if to_sid && !sids.is_empty() { sids } else { steered };
    if among.is_empty() {
        return;
    }
    // Most random packets carry another one, or an extension header.
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

fn write(frame: &mut [u8], at: usize, bytes: &[u8]) {
    frame.get_mut(at..at + bytes.len()).into_iter().for_each(|place| place.copy_from_slice(bytes));
}

/// Returns what a frame that was forwarded has been counted as.
fn compare(front: &mut Front, desired: &Desired, slots: &Slots, arrival: &Arrival) -> Result<Option<Counts>, String> {
    let before = counts(front, slots);
    let Some((device, bytes)) = front.forward(arrival.port, &arrival.frame)? else { return Ok(None) };
    let right = fast::outcome(desired, arrival.port, &arrival.frame).map_err(|why| why.to_string())?;
    if right.verdict != Verdict::Tx(device) || right.frame != bytes {
        return Err(format!("program: out of {device}: {bytes:02x?}\npacket path: {right:02x?}"));
    }
    let counted: Counts = counts(front, slots)
        .into_iter()
        .map(|(what, now)| {
            let was = before.get(&what).copied().unwrap_or_default();
            (what, (now.0 - was.0, now.1 - was.1))
        })
        .filter(|&(_, grown)| grown != (0, 0))
        .collect();
    if counted != right.counts {
        return Err(format!("program: {counted:?}\npacket path: {:?}", right.counts));
    }
    Ok(Some(counted))
}

fn counts(front: &Front, slots: &Slots) -> Counts {
    let pair = |PacketCount { packets, bytes }| (packets, bytes);
    let sids = slots.sids.iter().map(|(sid, slot)| (Counted::Sid(*sid), pair(front.sid(slot))));
    let paths = slots.paths.iter().map(|(path, slot)| (Counted::Path(path.clone()), pair(front.path(slot))));
    let hops = slots.adjacencies.iter();
    let hops = hops.map(|((port, to), slot)| (Counted::NextHop(port.clone(), *to), pair(front.hop(slot))));
    sids.chain(paths).chain(hops).collect()
}
