//! Tests of ports that are deleted and created again while the daemon runs.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use serde_json::Value;
use support::rig::{CONFIG, Rig, SRV6D, must, text, wait_for};

/// Returns the state of a port in `show ports`.
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
        // The link is deleted first from its own end, then from the far end. The kernel deletes both ends.
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

#[test]
#[ignore = "needs root"]
fn a_qdisc_on_a_port_is_told_of_because_packets_pass_by_it() {
    let rig = Rig::forwarding(1, CONFIG);
    rig.inside("router", "tc qdisc add dev eth2 root tbf rate 8bit burst 1540 latency 1s");
    let shown = text(&rig.ask("node", "show ports").stdout);
    assert_eq!(shown.matches("AF_XDP bypasses qdisc tbf").count(), 1, "{shown}");
    assert!(rig.pings(), "eight bits a second would stop it");
    let doctor = format!("{SRV6D} --socket {} doctor eth2", rig.socket_of("node").display());
    let said = text(&rig.output("router", &doctor).stdout);
    assert!(said.contains("eth2: qdisc: tbf: AF_XDP sends past it"), "{said}");
    rig.inside("router", "tc qdisc del dev eth2 root");
    assert!(!text(&rig.ask("node", "show ports").stdout).contains("qdisc"));
}

/// Steers packets of the router itself to a prefix.
const STEERED: &str = r#"
[[steer]]
prefix = "2001:db8:9::/48"
segments = ["2001:db8:b::2"]
via = "2001:db8:b::2"
port = "eth2"
"#;

/// Returns the packets that the kernel reports as dropped in front of srv6d, by the driver and by the queueing
/// discipline.
fn dropped_in_front(rig: &Rig) -> (u64, u64) {
    let number = |command: &str, pointer: &str| {
        let said: Value = serde_json::from_str(&rig.inside("router", command)).unwrap();
        said.pointer(pointer).and_then(Value::as_u64).unwrap()
    };
    (
        number("ip -s -j link show dev srv6d0", "/0/stats64/tx/dropped"),
        number("tc -s -j qdisc show dev srv6d0", "/0/drops"),
    )
}

/// Sends bursts while the receiver cannot run, because its NAPI runs in a thread on the core that the senders occupy
/// with real-time priority.
fn burst_without_a_receiver(rig: &Rig, core: usize) {
    let threads = "ps -eo pid,comm | awk '/napi.srv6d0-x/ {print $1}'";
    rig.inside("router", "sh -c 'echo 1 > /sys/class/net/srv6d0-x/threaded'");
    must(&format!("for thread in $({threads}); do taskset -pc {core} $thread; done"));
    // The process that ends a sender needs a higher priority than the senders.
    let send = format!("timeout -s KILL 1 chrt -f 50 {SRV6D} lab traffic udp-send [2001:db8:9::1]:9 1000000 1 100");
    let senders = format!("for i in 1 2 3 4; do {send} 2>/dev/null & done; wait");
    rig.inside("router", &format!("chrt -f 60 taskset -c {core} sh -c '{senders}'"));
}

#[test]
#[ignore = "needs root"]
fn what_the_kernel_drops_in_front_of_the_own_veth_is_shown() {
    // The tc program would have all of it.
    let rig = Rig::forwarding(1, &format!("[host]\nengine = \"worker\"\n{CONFIG}{STEERED}"));
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    let core = (0..nix::sched::CpuSet::count()).find(|core| allowed.is_set(*core).unwrap()).unwrap();
    assert_eq!(rig.counter("local_lost"), 0);
    if rig.inside("router", "tc qdisc show dev srv6d0").contains("pfifo") {
        burst_without_a_receiver(&rig, core);
        let (by_driver, by_queue) = dropped_in_front(&rig);
        assert_eq!((by_driver, rig.counter("local_lost")), (0, by_queue), "packets wait in the queue");
        rig.inside("router", "tc qdisc del dev srv6d0 root");
    }
    burst_without_a_receiver(&rig, core);
    let (by_driver, by_queue) = dropped_in_front(&rig);
    assert!(by_driver > 0, "the ring had room for all of it");
    assert_eq!((by_queue, rig.counter("local_lost")), (0, by_driver));
    let shown = text(&rig.ask("node", "show counters").stdout);
    assert!(shown.lines().any(|line| line.starts_with(&format!("local lost  {by_driver:>7} "))), "{shown}");
}

/// The veth has a queue if the kernel is recent enough to use it.
#[test]
#[ignore = "needs root"]
fn the_own_veth_has_a_queue_where_the_kernel_uses_it() {
    let rig = Rig::forwarding(1, CONFIG);
    let release = must("uname -r");
    let mut numbers =
        release.trim().split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    let expected = if (numbers.next().unwrap(), numbers.next().unwrap()) >= (6, 18) { "pfifo" } else { "noqueue" };
    let queue = rig.inside("router", "tc qdisc show dev srv6d0");
    assert!(queue.contains(expected), "{release}: {queue}");
}
