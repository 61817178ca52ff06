//! Tests groups that choose by policies in the worker's step, on ports in memory and in virtual time.
#![allow(clippy::cast_possible_truncation)] // a failed test may panic

use std::sync::Arc;

use srv6d_dataplane::memory::MemoryFrame;
use srv6d_dataplane::{EmulatedPort, Step};
use srv6d_srv6::PortState;
use srv6d_srv6::desired::{
    Adaptive, Balance, BalancePolicy, BandScale, Desired, Emulation, FarPorts, GroupPolicy, PolicyMode, PortId,
    RouteAction,
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
    rig.snapshot.wiring.emulated.resize(3, None);
    for (port, rate) in [(1, 1_000_000), (2, 8_000_000)] {
        let emulation = Emulation::of_rate(rate);
        rig.snapshot.wiring.emulated[port] = Some(EmulatedPort { device: format!("p{port}"), emulation, is_up: true });
    }
    rig.snapshot.revision += 1;
    rig.run(0);
    rig.run(5 * MS);
    // Each packet is away before the next one comes.
    let ports: Vec<usize> = (0..50).map(|flow| port_of(&mut rig, flow, (10 + 4 * u64::from(flow)) * MS)).collect();
    assert_eq!(ports, [2; 50], "an idle slow link has less capacity left than an idle fast one");
}

#[test]
fn new_flowlets_avoid_a_busy_port_behind_the_next_hop() {
    const GIGABIT: u64 = 1_000_000_000;
    let mut desired = balanced(PolicyMode::Global(Adaptive { scale: BandScale::Available, reactive: None }, Some(1)));
    desired.balance.settings.neighbors =
        [(PortId(1), "10.0.0.11".parse().unwrap()), (PortId(2), "10.0.0.12".parse().unwrap())].into();
    let far = Arc::new(FarPorts::default());
    let mut rig = Rig::new(&desired);
    rig.step = Step::new(0, Arc::clone(&rig.counters), |_, _| {}).seeing_far(Arc::clone(&far));
    let mut now = 0;
    let mut next = |rig: &mut Rig| {
        now += 100 * MS;
        (0..40).map(|flow| port_of(rig, flow, now)).collect::<Vec<_>>()
    };
    let by_hash = next(&mut rig);
    assert!(by_hash.contains(&1) && by_hash.contains(&2), "nothing is known of the far ports: {by_hash:?}");
    let set = |ports: &[(u8, u8, u16, u64)]| {
        for &(number, profile, score, rate) in ports {
            far.set(number, profile, Some(PortState { score, rate }));
        }
    };
    set(&[(0, 1, 0, GIGABIT), (1, 1, 900, GIGABIT), (0, 0, 1000, GIGABIT)]);
    assert_eq!(next(&mut rig), [1; 40], "the port behind 10.0.0.12 is busy; those of another profile do not matter");
    far.set(1, 1, None);
    assert_eq!(next(&mut rig), by_hash, "silence takes no path away: its own port decides");
    set(&[(0, 1, 500, GIGABIT), (1, 1, 0, GIGABIT)]);
    assert_eq!(next(&mut rig), [2; 40]);
    set(&[(0, 1, 0, GIGABIT / 4), (1, 1, 600, GIGABIT)]);
    assert_eq!(next(&mut rig), [2; 40], "an idle slow port has less left than a busy fast one");
}
