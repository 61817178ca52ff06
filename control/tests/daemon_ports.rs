//! Ports that are deleted and created again while the daemon runs.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use support::rig::{CONFIG, Rig, text, wait_for};

/// The state of a port in `show ports`.
fn state(rig: &Rig, port: &str) -> String {
    let ports = rig.show("ports");
    let row = ports.as_array().unwrap().iter().find(|row| row.get("name").unwrap() == port).unwrap();
    row.get("state").unwrap().as_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs root"]
fn either_port_comes_and_goes_under_traffic() {
    let mut rig = Rig::new(1);
    let daemon = rig.ready(CONFIG);
    rig.wait_for_pings();
    let mut received = 0;
    for (host, port) in [("b", "eth2"), ("a", "eth1"), ("b", "eth2"), ("a", "eth1")] {
        let flow = rig.flow(if host == "a" { "b" } else { "a" });
        let before = rig.counter("rx");
        wait_for("running stream", || (rig.counter("rx") > before + 100).then_some(()));
        // From its own end, then from the far one: the kernel deletes both.
        let end = if received == 0 { ("router", port) } else { (host, "wire") };
        rig.inside(end.0, &format!("ip link del {}", end.1));
        wait_for("pending port", || (state(&rig, port) == "pending").then_some(()));
        rig.check_lives(daemon);
        rig.link(host, port, 1);
        wait_for("port", || (state(&rig, port) == "up").then_some(()));
        wait_for("ping through the new port", || rig.pings().then_some(()));
        drop(flow);
        rig.check_balance();
        let counted = rig.counter("rx");
        assert!(counted > received, "counters go on: {received}, {counted}");
        received = counted;
    }
    let log = rig.log("node");
    assert_eq!(log.matches("eth1: attached").count(), 3, "{log}");
    assert_eq!(log.matches("eth2: attached").count(), 3, "{log}");
    for port in ["eth1", "eth2"] {
        let told = log.matches(&format!("[[port]] device: waits for network device {port}")).count();
        assert!(told >= 2, "the log says each time what is missing: {log}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_port_that_is_replaced_between_two_looks_is_noticed() {
    let rig = Rig::forwarding(1, CONFIG);
    for _ in 0..5 {
        rig.inside("b", "ip link del wire");
        rig.link("b", "eth2", 1);
    }
    wait_for("ping through the newest port", || rig.pings().then_some(()));
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_port_that_was_never_there_is_taken_when_it_appears() {
    let mut rig = Rig::new(1);
    rig.inside("b", "ip link del wire");
    rig.ready(CONFIG);
    assert_eq!((state(&rig, "eth1"), state(&rig, "eth2")), ("up".to_owned(), "pending".to_owned()));
    let shown = text(&rig.ask("node", "show ports").stdout);
    assert!(shown.contains("eth2: waits for network device eth2"), "{shown}");
    rig.link("b", "eth2", 1);
    rig.wait_for_pings();
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_port_that_goes_down_and_up_carries_packets_again() {
    let rig = Rig::forwarding(1, CONFIG);
    for _ in 0..3 {
        rig.inside("b", "ip link set wire down");
        wait_for("port without carrier", || (state(&rig, "eth2") == "down").then_some(()));
        rig.inside("b", "ip link set wire up");
        rig.inside("b", "ip -6 addr replace 2001:db8:b::2/64 dev wire nodad");
        rig.inside("b", "ip -6 route replace default via 2001:db8:b::1");
        rig.wait_for_pings();
    }
    rig.check_balance();
}
