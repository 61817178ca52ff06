//! Tests of emulated ports with real packets: the rate, marks that a receiver sees, order, faults, reloads.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::support;

use serde_json::Value;
use support::rig::{CONFIG, Rig, end, number, report, text, wait_for};

/// Returns the configuration in which what leaves for host b takes such a link.
fn linked(emulate: &str) -> String {
    format!("{CONFIG}emulate = {{ {emulate} }}\n")
}

/// Returns a value of the emulated port to host b.
fn of_link(rig: &Rig, pointer: &str) -> u64 {
    let ports = rig.show("ports");
    let row = ports.as_array().unwrap().iter().find(|row| row.get("name").unwrap() == "eth2").unwrap();
    row.get("emulated").unwrap().pointer(pointer).and_then(Value::as_u64).unwrap()
}

/// Checks that the receiver got every datagram of a stream once and in order, and that every packet is accounted for.
fn check_whole(rig: &Rig, receiver: Child) {
    let report = report(&receiver.wait_with_output().unwrap().stdout);
    let wrong = ["lost", "reordered", "duplicated"].map(|name| number(&report, name));
    assert_eq!(wrong, [0; 3], "{report}");
    rig.check_balance();
}

/// Returns a counter of `/proc/net/snmp6` on host b.
fn of_kernel(rig: &Rig, counter: &str) -> u64 {
    let all = rig.inside("b", "cat /proc/net/snmp6");
    let line = all.lines().find(|line| line.split_whitespace().next() == Some(counter)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Sends echo requests of 1,400 bytes from a to b, at least eight hundred a second, until this is dropped.
fn flood(rig: &Rig, traffic_class: u8) -> Flood {
    // A ping that sees no answers sends a hundred a second.
    let ping = format!("ping -6 -q -n -f -l 20 -s 1400 -Q {traffic_class} 2001:db8:b::2");
    let start = || {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &rig.ns("a")]).args(ping.split_whitespace());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    Flood((0..8).map(|_| start()).collect())
}

struct Flood(Vec<Child>);

impl Drop for Flood {
    fn drop(&mut self) {
        for ping in &mut self.0 {
            let _ = ping.kill();
            let _ = ping.wait();
        }
    }
}

#[test]
#[ignore = "needs root"]
fn a_veth_has_the_rate_that_it_is_given() {
    const RATE: u128 = 2_000_000;
    let mut rig = Rig::new(1);
    rig.ready(&linked("rate = \"2Mbit\", queue = 20000"));
    let begin = Instant::now();
    let flood = flood(&rig, 0);
    wait_for("a full link", || (of_link(&rig, "/load_permille") >= 990).then_some(()));
    wait_for("two megabits", || (rig.port_counter("eth2", "tx_bytes") > 250_000).then_some(()));
    wait_for("a full queue", || (rig.drops("queue_full") > 0).then_some(()));
    let (bytes, packets) = (rig.port_counter("eth2", "tx_bytes"), rig.port_counter("eth2", "tx_packets"));
    let most = begin.elapsed().as_nanos() * RATE / 8 / 1_000_000_000;
    assert!(u128::from(bytes + 24 * packets) <= most, "{bytes} bytes in {packets} packets, where {most} fit");
    let peak = of_link(&rig, "/peak_bytes");
    assert!(peak <= 20_000 && peak > 20_000 - 1478, "the queue was full: {peak}");
    drop(flood);
    rig.check_balance();
    assert_eq!(of_link(&rig, "/dropped/queue_full"), rig.drops("queue_full"));
    assert_eq!((of_link(&rig, "/packets"), of_link(&rig, "/queue_bytes")), (0, 0));
    let shown = text(&rig.ask("node", "show ports").stdout);
    assert!(shown.contains("  RATE ") && shown.contains(" 2.00 M "), "{shown}");
    wait_for("an idle link", || (of_link(&rig, "/load_permille") == 0).then_some(()));
    rig.wait_for_pings();
}

#[test]
#[ignore = "needs root"]
fn the_receiver_sees_the_marks_and_what_knows_no_ecn_is_dropped() {
    let mut rig = Rig::new(1);
    rig.ready(&linked("rate = \"2Mbit\", queue = 60000, ecn = { min = 3000, max = 9000 }"));
    rig.wait_for_pings();
    let ect0 = flood(&rig, 2);
    wait_for("marks", || (of_link(&rig, "/marked") > 100).then_some(()));
    drop(ect0);
    rig.check_balance();
    assert_eq!(rig.drops("wred"), 0);
    let marked = of_link(&rig, "/marked");
    // An echo reply of b is ECT(0), too, but leaves by the other port.
    wait_for("marks at the receiver", || (of_kernel(&rig, "Ip6InCEPkts") == marked).then_some(()));
    let not_ect = flood(&rig, 0);
    wait_for("drops", || (rig.drops("wred") > 100).then_some(()));
    drop(not_ect);
    rig.check_balance();
    assert_eq!((of_link(&rig, "/dropped/wred"), of_link(&rig, "/marked")), (rig.drops("wred"), marked));
    assert_eq!(of_kernel(&rig, "Ip6InCEPkts"), marked);
}

#[test]
#[ignore = "needs root"]
fn a_delay_delays_and_keeps_the_order() {
    let mut rig = Rig::new(1);
    rig.ready(&linked("rate = \"100Mbit\", delay = \"20ms\""));
    rig.wait_for_pings();
    let times = rig.inside("a", "ping -6 -q -c 5 -i 0.2 2001:db8:b::2");
    let least: f64 = times.split(" = ").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
    assert!(least >= 20.0, "{times}");
    let receiver = rig.receiver("b", "udp", "[2001:db8:b::2]:5000");
    let mut sender = rig.stream("a", "[2001:db8:b::2]:5000", 2000);
    wait_for("datagrams", || (rig.counter("rx") > 2000).then_some(()));
    end(&mut sender);
    check_whole(&rig, receiver);
}

#[test]
#[ignore = "needs root"]
fn a_reload_changes_the_link_under_a_stream_and_loses_nothing() {
    let mut rig = Rig::new(1);
    let slow = linked("rate = \"4Mbit\", packets = 1024");
    rig.ready(&slow);
    rig.wait_for_pings();
    let receiver = rig.receiver("b", "udp", "[2001:db8:b::2]:5000");
    let mut sender = rig.stream("a", "[2001:db8:b::2]:5000", 20_000);
    let others = [linked("rate = \"40Mbit\", delay = \"2ms\""), CONFIG.to_owned(), slow];
    for config in others.iter().cycle().take(15) {
        let before = rig.counter("rx");
        wait_for("more datagrams", || (rig.counter("rx") > before + 100).then_some(()));
        rig.reload(config);
    }
    assert!(of_link(&rig, "/rate") == 4_000_000);
    wait_for("a queue", || (of_link(&rig, "/packets") > 0).then_some(()));
    end(&mut sender);
    check_whole(&rig, receiver);
}

#[test]
#[ignore = "needs root"]
fn packets_in_a_port_that_goes_are_counted() {
    let mut rig = Rig::new(1);
    let daemon = rig.ready(&linked("rate = \"1Mbit\", delay = \"500ms\""));
    rig.wait_for_pings();
    let mut counted = 0;
    for is_deleted in [false, true, false, true] {
        let flow = flood(&rig, 0);
        wait_for("a queue", || (of_link(&rig, "/packets") > 20).then_some(()));
        let queued = if is_deleted { "ip link del wire" } else { "ip link set wire down" };
        rig.inside("b", queued);
        wait_for("drops", || (rig.drops("port_down") > counted + 20).then_some(()));
        drop(flow);
        rig.check_balance();
        counted = rig.drops("port_down");
        rig.check_lives(daemon);
        if is_deleted {
            rig.link("b", "eth2", 1);
        } else {
            rig.inside("b", "ip link set wire up");
            rig.inside("b", "ip -6 addr replace 2001:db8:b::2/64 dev wire nodad");
            rig.inside("b", "ip -6 route replace default via 2001:db8:b::1");
        }
        wait_for("ping through the port", || rig.pings().then_some(()));
    }
    // A daemon that ends gives its packets at most a moment to leave.
    let flow = flood(&rig, 0);
    wait_for("a queue", || (of_link(&rig, "/packets") > 20).then_some(()));
    assert_eq!(rig.stop(daemon, "TERM"), Some(0));
    drop(flow);
    assert!(rig.log("node").contains(": balanced"), "{}", rig.log("node"));
}
