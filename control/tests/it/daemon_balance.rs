//! Tests of groups that choose by a policy, with real packets.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use serde_json::Value;
use support::rig::{CONFIG, Rig, text, wait_for};

const BALANCE: &str = r#"
[[balance]]
name = "drawn"
mode = "flowlet"
[[route]]
prefix = "2001:db8:99::/48"
nexthops = [{ via = "2001:db8:b::2", port = "eth2" }, { via = "2001:db8:b::3", port = "eth2" }]
balance = "drawn"
"#;

/// Returns flowlets and moves of each member of the group.
fn members(rig: &Rig) -> Vec<(u64, u64)> {
    let rows = rig.show("balance");
    let number = |row: &Value, pointer: &str| row.pointer(pointer).and_then(Value::as_u64).unwrap();
    rows.as_array().unwrap().iter().map(|row| (number(row, "/flowlets"), number(row, "/moves/gap"))).collect()
}

#[test]
#[ignore = "needs root"]
fn a_flow_with_gaps_uses_both_next_hops() {
    const PINGS: u64 = 60;
    let mut rig = Rig::new(1);
    rig.inside("b", "ip addr add 2001:db8:b::3/64 dev wire nodad");
    rig.inside("b", "ip addr add 2001:db8:99::1/128 dev lo");
    rig.ready(&format!("{CONFIG}{BALANCE}"));
    // Both next hops have to be resolved: a packet waits for the first one that is not.
    wait_for("both next hops", || {
        rig.inside("a", "ping -6 -q -c 1 -W 1 2001:db8:b::3");
        let neighbors = rig.show("neighbors");
        let up = |row: &&Value| row.get("state").and_then(Value::as_str) == Some("up");
        (neighbors.as_array().unwrap().iter().filter(up).count() >= 3).then_some(())
    });
    let before: u64 = members(&rig).iter().map(|(flowlets, _)| flowlets).sum();
    let pinged = rig.inside("a", &format!("ping -6 -q -c {PINGS} -i 0.01 2001:db8:99::1"));
    assert!(pinged.contains(" 0% packet loss"), "{pinged}");
    let after = members(&rig);
    assert_eq!(after.iter().map(|(flowlets, _)| flowlets).sum::<u64>() - before, PINGS, "each ping is a flowlet");
    assert!(after.iter().all(|&(flowlets, moves)| flowlets > 0 && moves > 0), "{after:?}");
    let shown = text(&rig.ask("node", "show balance").stdout);
    assert!(shown.contains("route 2001:db8:99::/48") && shown.contains("flowlet"), "{shown}");
    rig.check_balance();
}

/// Returns weight, capacity and the origin of the weights of each member.
fn weights(rig: &Rig) -> Vec<(u64, Option<u64>, String)> {
    let rows = rig.show("balance");
    let of = |row: &Value| {
        let origin = row.get("weights_from").and_then(Value::as_str).unwrap().to_owned();
        (row.get("weight").and_then(Value::as_u64).unwrap(), row.get("capacity").and_then(Value::as_u64), origin)
    };
    rows.as_array().unwrap().iter().map(of).collect()
}

#[test]
#[ignore = "needs root"]
fn weights_follow_a_capacity_that_is_reloaded() {
    const GIGABIT: u64 = 1_000_000_000;
    let mut rig = Rig::new(1);
    rig.inside("b", "ip addr add 2001:db8:b::3/64 dev wire nodad");
    rig.inside("b", "ip addr add 2001:db8:99::1/128 dev lo");
    let config = |capacity: &str| {
        let balance = BALANCE.replace("flowlet", "weighted");
        let hops = [2, 3].map(|host| format!("via = \"2001:db8:b::{host}\", port = \"eth2\""));
        let balance = balance.replace(&hops[0], &format!("{}, capacity = \"{capacity}\"", hops[0]));
        let balance = balance.replace(&hops[1], &format!("{}, capacity = \"100Gbit\"", hops[1]));
        format!("{CONFIG}{balance}")
    };
    rig.ready(&config("25Gbit"));
    let of = |weight, gigabits: u64| (weight, Some(gigabits * GIGABIT), "capacities".to_owned());
    assert_eq!(weights(&rig), [of(2500, 25), of(10_000, 100)]);
    let shown = text(&rig.ask("node", "show balance").stdout);
    assert!(shown.contains("weighted") && shown.contains("25 Gbit"), "{shown}");
    let pinged = || rig.inside("a", "ping -6 -q -c 20 -i 0.01 2001:db8:99::1");
    wait_for("both next hops", || pinged().contains(" 0% packet loss").then_some(()));
    std::fs::write(rig.file("node.toml"), config("50Gbit")).unwrap();
    assert!(rig.ask("node", "reload").status.success(), "{}", rig.log("node"));
    assert_eq!(weights(&rig), [of(5000, 50), of(10_000, 100)]);
    assert!(pinged().contains(" 0% packet loss"));
    rig.check_balance();
}
