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
