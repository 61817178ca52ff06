//! Random frames on random states, with the XDP program of `offload = "xdp"` in front: what it forwards is, to the byte
//! and to the counter, what the packet path would have sent, and what it leaves to the packet path it has not touched.
//!
//! `PROPTEST_CASES=100000 cargo test -p srv6d-differential --test offload -- --ignored` looks where nobody has looked yet.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test may panic")]

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use srv6d_conformance::front::{Front, Interfaces};
use srv6d_differential::generate::frames::Arrival;
use srv6d_differential::generate::{frames, state};
use srv6d_differential::{describe, fast, random_tests};
use srv6d_model::{Counted, Counts};
use srv6d_srv6::model::{
    Behavior, Csid, Desired, DscpMode, Flavors, Hop, LocalSid, Mac, PortId, Role, Route, RouteAction, TableId,
};
use srv6d_srv6::{Slots, Tables, Verdict};
use srv6d_xsk::xdp_offload::PacketCount;

#[test]
#[ignore = "needs root"]
fn what_the_program_forwards_the_packet_path_would_have_sent() {
    let interfaces = Rc::new(Interfaces::of_this_thread().unwrap());
    let forwarded = Cell::new(0);
    let mut runner = TestRunner::new(random_tests(200));
    // One program for all states: each of them replaces the one before, as generations do.
    let front = RefCell::new(Front::load(interfaces).unwrap());
    let aimed = prop::option::weighted(0.8, (any::<Index>(), any::<u128>()));
    let inputs = (state::state(), any::<bool>(), prop::collection::vec((frames::arrival(), aimed), 100));
    let result = runner.run(&inputs, |(state, is_open, arrivals)| {
        let desired = offloading(&state.0, is_open);
        let mut slots = Slots::default();
        let Ok(tables) = Tables::build(&desired, &mut slots) else { return Ok(()) };
        let mut front = front.borrow_mut();
        front.publish(&tables).map_err(TestCaseError::fail)?;
        for (arrival, aimed) in &arrivals {
            let mut arrival = arrival.clone();
            if let Some((sid, argument)) = aimed {
                aim(&mut arrival.frame, &desired, *sid, *argument);
            }
            let arrival = &arrival;
            if usize::from(arrival.port) >= desired.ports.len() {
                continue;
            }
            let one = compare(&mut front, &desired, &slots, arrival).map_err(|why| {
                let input = describe::input(&desired, arrival.port, &arrival.frame);
                TestCaseError::fail(format!("\n{}{input}\n{why}", describe::state(&desired)))
            })?;
            forwarded.set(forwarded.get() + one);
        }
        Ok(())
    });
    result.unwrap_or_else(|why| panic!("{why}"));
    assert!(forwarded.get() > 500, "only {} of all frames were forwarded: nothing is proven", forwarded.get());
}

/// The same with the program asked for on every port, and less of what it leaves to the worker whatever the frame: half of
/// the states then are about what it forwards.
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

fn shifts(sid: &LocalSid) -> bool {
    matches!(sid.behavior, Behavior::End { csid: Some(_), .. } | Behavior::EndX { csid: Some(_), .. })
}

/// Sends an IPv6 packet to one of the node's SIDs: most random destinations are nothing that a program forwards.
fn aim(frame: &mut [u8], desired: &Desired, sid: Index, argument: u128) {
    let is_v6 = frame.get(12..14) == Some(&[0x86, 0xdd]);
    let shifts: Vec<&LocalSid> = desired.sids.iter().filter(|sid| shifts(sid)).collect();
    if let (true, false, Some(destination)) = (is_v6, shifts.is_empty(), frame.get_mut(38..54)) {
        let prefix = sid.get(&shifts).prefix;
        let address = prefix.network().to_bits() | argument & prefix.hostmask().to_bits();
        destination.copy_from_slice(&address.to_be_bytes());
    }
}

/// Returns the number of frames forwarded, 0 or 1.
fn compare(front: &mut Front, desired: &Desired, slots: &Slots, arrival: &Arrival) -> Result<u64, String> {
    let before = counts(front, slots);
    let Some((device, bytes)) = front.forward(arrival.port, &arrival.frame)? else { return Ok(0) };
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
    Ok(1)
}

fn counts(front: &Front, slots: &Slots) -> Counts {
    let pair = |PacketCount { packets, bytes }| (packets, bytes);
    let sids = slots.sids.iter().map(|(sid, slot)| (Counted::Sid(*sid), pair(front.sid(slot))));
    let paths = slots.paths.iter().map(|(path, slot)| (Counted::Path(path.clone()), pair(front.path(slot))));
    let hops = slots.adjacencies.iter();
    let hops = hops.map(|((port, to), slot)| (Counted::NextHop(port.clone(), *to), pair(front.hop(slot))));
    sids.chain(paths).chain(hops).collect()
}
