//! Tests of ports in two packet memories, as zero-copy ports and other ports have them.
//!
//! The tests cover packets between the memories, and the removal of a memory. A driver with zero-copy is not needed for
//! that: `SRV6D_TEST_APART` puts a port into a separate memory.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;

use support::rig::{self, CONFIG, Rig, wait_for};

fn ready(rig: &mut Rig, config: &str, apart: &str) {
    let mut command = rig.daemon("node", config);
    command.env("SRV6D_TEST_APART", apart);
    rig.spawn(command);
    rig.wait_until_ready();
    rig.wait_for_pings();
}

/// Sends many times more packets than both memories have chunks, so that a lost chunk would be noticed.
fn everything_crosses(rig: &Rig) {
    for (from, to, address) in [
        ("a", "b", "[2001:db8:b::2]:7001"),
        ("b", "a", "[2001:db8:a::2]:7002"),
        ("a", "router", "[2001:db8:a::1]:7003"),
        ("b", "router", "[2001:db8:b::1]:7004"),
        ("router", "b", "[2001:db8:b::2]:7005"),
    ] {
        let (sent, received) = rig.tcp(from, to, address);
        assert_eq!(sent, received, "{from} to {address}");
    }
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn packets_cross_from_one_memory_to_the_other() {
    for apart in ["eth2", "eth1 eth2"] {
        let mut rig = Rig::new(1);
        ready(&mut rig, &CONFIG.replace("frames = 2048", "frames = 512").replace("ring = 512", "ring = 128"), apart);
        everything_crosses(&rig);
    }
}

#[test]
#[ignore = "needs root"]
fn packets_of_several_chunks_cross_too() {
    let mut rig = Rig::new(2);
    for (node, device) in [("a", "wire"), ("router", "eth1"), ("router", "eth2"), ("b", "wire")] {
        rig.inside(node, &format!("ip link set {device} mtu 9000"));
    }
    ready(&mut rig, &rig::with_two_workers(), "eth2");
    for size in [3000, 3500, 3600, 3700, 3800, 7600, 8900] {
        rig.inside("a", &format!("ping -6 -c 1 -w 20 -M do -s {size} 2001:db8:b::2"));
    }
    everything_crosses(&rig);
}

#[test]
#[ignore = "needs root"]
fn the_first_port_of_a_memory_takes_the_others_with_it_and_they_come_back() {
    let mut rig = Rig::new(1);
    ready(&mut rig, CONFIG, "eth1 eth2");
    let reaches_router = |rig: &Rig| rig.output("b", "ping -6 -c 1 -W 1 2001:db8:b::1").status.success();
    rig.inside("a", "ip link del wire");
    wait_for("the other port, attached again", || {
        let log = rig.log("node");
        (log.contains("eth2: detached") && log.matches("eth2: attached").count() == 2).then_some(())
    });
    wait_for("ping through the other port", || reaches_router(&rig).then_some(()));
    rig.link("a", "eth1", 1);
    wait_for("ping through both", || rig.pings().then_some(()));
    everything_crosses(&rig);

    // Now eth2 is the first port. A reload removes it, and its queue becomes free for the next one.
    let without = CONFIG.split("[[port]]\nname = \"eth2\"").next().unwrap().to_owned();
    for config in [without.as_str(), CONFIG] {
        fs::write(rig.file("node.toml"), config).unwrap();
        assert!(rig.ask("node", "reload").status.success(), "{}", rig.log("node"));
    }
    wait_for("ping after the reloads", || rig.pings().then_some(()));
    everything_crosses(&rig);
}
