//! Tests groups that choose by policies in the worker's step, on ports in memory and in virtual time.
#![allow(clippy::cast_possible_truncation)] // a failed test may panic

use srv6d_dataplane::EmulatedPort;
use srv6d_dataplane::memory::MemoryFrame;
use srv6d_srv6::desired::{
    Adaptive, Balance, BalancePolicy, BandScale, Desired, Emulation, GroupPolicy, PolicyMode, RouteAction,
};

use super::step::{Rig, hop, in_frame, node, v6};

const MS: u64 = 1_000_000;
const GAP: u64 = BalancePolicy::GAP;

/// Returns a node whose route to `3000::/16` leads over ports 1 and 2 and chooses by this policy.
fn balanced(mode: PolicyMode) -> Desired {
    let mut desired = node();
    for route in desired.routes.iter_mut().filter(|route| route.prefix.to_string() == "3000::/16") {
        route.action = RouteAction::Via(vec![hop(1), hop(2)]);
    }
    let mut balance = Balance { default: GroupPolicy::Stateful(1), ..Balance::default() };
    balance.settings.policies.push(BalancePolicy { gap: GAP, mode });
    Desired { balance, ..desired }
}

const ADAPTIVE: PolicyMode = PolicyMode::Adaptive(Adaptive { scale: BandScale::Available, reactive: None });

/// Sends a packet of a flow through the node. Returns the port that it leaves by.
fn port_of(rig: &mut Rig, flow: u8, now: u64) -> usize {
    let packet = v6(&format!("2000::{flow:x}"), "3000::9", 17, 64, &[flow; 47]);
    rig.io.port(0).unwrap().rx.push_back(MemoryFrame::new(&in_frame(&packet)));
    let mut sent = rig.run(now);
    if sent.is_empty() {
        sent = rig.run(now + 2 * MS);
    }
    sent.first().unwrap().0
}

#[test]
fn a_flow_stays_within_the_gap_and_is_drawn_again_after_it() {
    let mut rig = Rig::new(&balanced(PolicyMode::Flowlet));
    let mut moves = 0;
    for flow in 0..200 {
        let begin = u64::from(flow) * 10 * MS;
        let first = port_of(&mut rig, flow, begin);
        assert!((1..=8).all(|packet| port_of(&mut rig, flow, begin + packet * GAP) == first), "flow {flow} moved");
        moves += u32::from(port_of(&mut rig, flow, begin + 8 * GAP + GAP + 2048) != first);
    }
    // A hundred are expected. The standard deviation is 7.1.
    assert!((70..=130).contains(&moves), "{moves} of 200 flowlets moved");
}

#[test]
fn flows_stay_over_new_tables_and_leave_a_port_that_goes_down() {
    let mut desired = balanced(PolicyMode::Flowlet);
    let mut rig = Rig::new(&desired);
    let ports: Vec<usize> = (0..100).map(|flow| port_of(&mut rig, flow, 0)).collect();
    desired.routes.reverse();
    rig.publish(&desired);
    let after: Vec<usize> = (0..100).map(|flow| port_of(&mut rig, flow, GAP)).collect();
    assert_eq!(ports, after, "the tables are others, the next hops are the same");
    assert!(ports.contains(&1) && ports.contains(&2), "{ports:?}");
    desired.ports[2].up = false;
    rig.publish(&desired);
    assert!((0..100).all(|flow| port_of(&mut rig, flow, 2 * GAP) == 1), "port 2 is down");
}

#[test]
fn new_flowlets_avoid_a_busy_port() {
    let desired = balanced(ADAPTIVE);
    let mut rig = Rig::new(&desired);
    rig.snapshot.emulated.resize(3, None);
    for (port, rate) in [(1, 1_000_000), (2, 8_000_000)] {
        let emulation = Emulation::of_rate(rate);
        rig.snapshot.emulated[port] = Some(EmulatedPort { device: format!("p{port}"), emulation, is_up: true });
    }
    rig.snapshot.generation += 1;
    rig.run(0);
    rig.run(5 * MS);
    // Each packet is away before the next one comes.
    let ports: Vec<usize> = (0..50).map(|flow| port_of(&mut rig, flow, (10 + 4 * u64::from(flow)) * MS)).collect();
    assert_eq!(ports, [2; 50], "an idle slow link has less capacity left than an idle fast one");
}
