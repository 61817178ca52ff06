//! Tests of `[host] engine = "tc"`: what local applications send is encapsulated before it is cut into packets, and what
//! SIDs deliver to them is decapsulated before it is merged.
//!
//! ```text
//! router: applications ─► srv6d0: tc program, or worker ─► eth2 ── wire  b: End.DT6, End.DT4 of its kernel
//!         applications ◄─ srv6d0 ◄─ tc program ◄─ GRO ◄─ XDP program, or worker ◄─ eth2 ── wire  b: encap seg6
//! ```
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod arrivals;
mod counted;

use crate::daemon_path_mtu::{self, Far, learned};
use crate::support;

use std::net::UdpSocket;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{Ipv4Tos, Ipv6TClass};
use nix::unistd::Pid;
use srv6d_netns as netns;

use support::rig::{CONFIG, Rig, end, number, report, text, wait_for};
use support::wire::{Wire, mac};

/// Steers to `b` by one segment, by two and by three. Flows to `3fff::/20` take one of two paths.
const STEERED: &str = r#"
[[block]]
prefix = "fcbb::/32"
[[route]]
prefix = "fcbb::/32"
via = "2001:db8:b::2"
[[steer]]
prefix = "2001:db8:f::/64"
segments = ["fcbb:0:2:fe06::"]
[[steer]]
prefix = "10.9.0.0/16"
segments = ["fcbb:0:2:fe04::"]
[[steer]]
prefix = "2001:db8:1f::/64"
segments = ["fcbb:0:3::", "fcbb:0:2:fe06::"]
[[steer]]
prefix = "10.19.0.0/16"
segments = ["fcbb:0:4::", "fcbb:0:3::", "fcbb:0:2:fe04::"]
[[steer]]
prefix = "3fff::/20"
paths = [{ name = "one", segments = ["fcbb:0:3::"], weight = 3 }, { name = "two", segments = ["fcbb:0:4::"] }]
"#;

/// SIDs that decapsulate for the router's applications.
const SIDS: &str = r#"
[[sid]]
sid = "fcbb:0:1:fe06::/64"
behavior = "uDT6"
[[sid]]
sid = "fcbb:0:1:fe04::/64"
behavior = "uDT4"
"#;

const OWN_V6: &str = "2001:db8:e::1";
const OWN_V4: &str = "10.8.0.1";

fn config(engine: &str) -> String {
    format!("[host]\nengine = \"{engine}\"\n{CONFIG}{STEERED}")
}

/// Prepares the router's applications and `b`, before srv6d runs.
fn rig() -> Rig {
    let rig = Rig::new(1);
    rig.inside("router", &format!("ip addr add {OWN_V6}/128 dev lo"));
    rig.inside("router", &format!("ip addr add {OWN_V4}/32 dev lo"));
    rig.inside("b", "ip addr add 2001:db8:f::1/64 dev lo");
    rig.inside("b", "ip addr add 10.9.0.1/16 dev lo");
    rig.inside("b", "ip addr add 2001:db8:1f::1/64 dev lo");
    rig.inside("b", "ip addr add 10.19.0.1/16 dev lo");
    rig.inside("b", "sysctl -qw net.ipv6.conf.all.seg6_enabled=1 net.ipv6.conf.wire.seg6_enabled=1");
    rig.inside("b", "sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv4.ip_forward=1");
    rig.inside("b", "ip -6 route add fcbb:0:2:fe06::/64 encap seg6local action End.DT6 table local dev wire");
    rig.inside("b", "ip -6 route add fcbb:0:2:fe04::/64 encap seg6local action End.DX4 nh4 10.9.0.1 dev wire");
    for node in [3, 4] {
        rig.inside("b", &format!("ip -6 route add fcbb:0:{node}::/48 encap seg6local action End dev wire"));
    }
    rig.inside("b", &format!("ip -6 route add {OWN_V6}/128 via 2001:db8:b::1 dev wire"));
    rig.inside("b", &format!("ip route add {OWN_V4}/32 via inet6 2001:db8:b::1 dev wire"));
    rig
}

/// Returns the engine of each path, and why it is not tc.
fn engines(rig: &Rig) -> Vec<(String, String)> {
    let paths = rig.show("paths");
    let field = |row: &serde_json::Value, name: &str| row.get(name).unwrap().as_str().unwrap_or("-").to_owned();
    paths.as_array().unwrap().iter().map(|row| (field(row, "engine"), field(row, "engine_reason"))).collect()
}

fn wait_until_tc_serves(rig: &Rig) {
    wait_for("tc program in force", || {
        rig.inside("router", "ping -6 -c 1 -w 5 2001:db8:b::2");
        engines(rig).iter().all(|(engine, _)| engine == "tc").then_some(())
    });
}

/// Returns how many packets of local applications the tc program and the worker have had.
fn had(rig: &Rig) -> [u64; 2] {
    let [by_tc, all] = ["offloaded", "rx_packets"].map(|name| rig.port_counter("srv6d0-x", name));
    [by_tc, all - by_tc]
}

#[test]
#[ignore = "needs root"]
fn tcp_of_local_applications_passes_the_worker_and_arrives_whole() {
    let mut rig = rig();
    rig.ready(&config("tc"));
    wait_until_tc_serves(&rig);
    for gso in ["on", "off"] {
        for device in ["srv6d0", "eth2"] {
            rig.inside("router", &format!("ethtool -K {device} gso {gso}"));
        }
        for to in ["[2001:db8:f::1]:7090", "10.9.0.1:7090", "[2001:db8:1f::1]:7090", "10.19.0.1:7090"] {
            let before = had(&rig);
            let (sent, received) = rig.tcp("router", "b", to);
            assert_eq!(sent, received, "{to}, gso {gso}");
            let now = had(&rig);
            assert!(now[0] - before[0] > 2500, "{to}, gso {gso}: {before:?}, {now:?}");
            assert!(now[1] - before[1] < 5, "{to}, gso {gso}: {before:?}, {now:?}");
        }
    }
    let [by_tc, _] = had(&rig);
    assert_eq!([rig.counter("offloaded"), rig.port_counter("eth2", "tx_packets")], [by_tc; 2]);
    rig.check_balance();
    let log = rig.log("node");
    assert!(!log.contains("WARN"), "{log}");
}

/// Returns sockets of local applications, each of another flow: of IPv6 to two prefixes, and of IPv4.
fn sockets(rig: &Rig, flows: u16) -> Vec<(UdpSocket, &'static str)> {
    let namespace = rig.ns("router");
    let open = move |flow: u16| {
        let port = 20_000 + flow;
        let traffic_class = i32::from(flow * 37 % 256);
        let v6 = || {
            let socket = UdpSocket::bind((OWN_V6, port)).unwrap();
            setsockopt(&socket, Ipv6TClass, &traffic_class).unwrap();
            socket
        };
        let v4 = || {
            let socket = UdpSocket::bind((OWN_V4, port)).unwrap();
            setsockopt(&socket, Ipv4Tos, &traffic_class).unwrap();
            socket
        };
        match flow % 6 {
            0 => (v6(), "[2001:db8:f::1]:7"),
            1 | 4 => (v6(), "[3fff::1]:7"),
            2 => (v4(), "10.9.0.1:7"),
            3 => (v6(), "[2001:db8:1f::1]:7"),
            _ => (v4(), "10.19.0.1:7"),
        }
    };
    let open_all = move || {
        netns::move_thread(&namespace).unwrap();
        (0..flows).map(open).collect()
    };
    std::thread::spawn(open_all).join().unwrap()
}

/// Sends a datagram of each socket, and returns the frames that arrive at `b`.
fn at_the_far_end(wire: &mut Wire, sockets: &[(UdpSocket, &'static str)]) -> Vec<Vec<u8>> {
    let is_encapsulated =
        |frame: &Vec<u8>| frame.get(38..40) == Some(&[0xfc, 0xbb]) && matches!(frame[20], 4 | 41 | 43);
    let frames = sockets.iter().enumerate().map(|(at, (socket, to))| {
        socket.send_to(&vec![7; 1 + at * 29], to).unwrap();
        wait_for("datagram at the far end", || wire.poll().filter(is_encapsulated))
    });
    frames.map(without_id).collect()
}

/// Overwrites the identification of an inner IPv4 header, which the kernel counts up, and the header's checksum, which
/// must be correct.
fn without_id(mut frame: Vec<u8>) -> Vec<u8> {
    let behind_srh = if frame[20] == 43 { 8 + 8 * usize::from(frame[55]) } else { 0 };
    let ip = 54 + behind_srh;
    if frame[ip] == 0x45 {
        let words = frame[ip..ip + 20].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        assert_eq!(words.sum::<u32>() % 0xffff, 0, "inner checksum");
        frame[ip + 4..ip + 6].fill(0);
        frame[ip + 10..ip + 12].fill(0);
    }
    frame
}

#[test]
#[ignore = "needs root"]
fn the_far_end_cannot_tell_which_engine_has_encapsulated() {
    let mut rig = rig();
    let b_mac = mac(&rig, "b", "wire").map(|byte| format!("{byte:02x}")).join(":");
    let neighbor = format!("[[neighbor]]\naddress = \"2001:db8:b::2\"\nport = \"eth2\"\nmac = \"{b_mac}\"\n");
    let of = |engine: &str, keys: &str| config(engine).replace("[node]", &format!("[node]\n{keys}")) + &neighbor;
    rig.ready(&of("worker", ""));
    let sockets = sockets(&rig, 48);
    let mut wire = Wire::open(&rig, "b", &[]);
    for keys in ["", "dscp = 46", "ecn = \"compat\"\ndecrement_local = true\nhop_limit = 9", "hash_seed = 5"] {
        rig.reload(&of("worker", keys));
        let before = had(&rig);
        let by_worker = at_the_far_end(&mut wire, &sockets);
        let between = had(&rig);
        assert_eq!(between, [before[0], before[1] + 48], "{keys}: all by the worker");
        rig.reload(&of("tc", keys));
        let by_tc = at_the_far_end(&mut wire, &sockets);
        assert_eq!(had(&rig), [between[0] + 48, between[1]], "{keys}: all by tc");
        for (at, (worker, tc)) in by_worker.iter().zip(&by_tc).enumerate() {
            assert!(worker == tc, "{keys}, flow {at}\nworker {worker:02x?}\ntc     {tc:02x?}");
        }
        let second = |frames: &[Vec<u8>]| frames.iter().filter(|frame| frame[43] == 4).count();
        assert!((1..12).contains(&second(&by_tc)), "both paths are in use, {}", second(&by_tc));
    }
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_smaller_mtu_on_the_way_is_learned_and_tcp_goes_on_by_tc() {
    let mut rig = Rig::new(1);
    let _far = Far::behind_b(&rig);
    rig.ready(&format!("[host]\nengine = \"tc\"\n{CONFIG}{}", daemon_path_mtu::STEERED));
    wait_until_tc_serves(&rig);
    let (sent, received) = rig.tcp("router", "far", "[2001:db8:c::1]:7001");
    assert_eq!(sent, received);
    assert_eq!(learned(&rig), Some(1400));
    let route = rig.inside("router", "ip -6 route show table 8986");
    assert!(route.contains("2001:db8:c::/48 dev srv6d0") && route.contains("mtu 1360"), "{route}");
    let before = had(&rig);
    let (sent, received) = rig.tcp("router", "far", "[2001:db8:c::1]:7002");
    assert_eq!(sent, received);
    let now = had(&rig);
    assert!(now[0] - before[0] > 2500 && now[1] - before[1] < 5, "{before:?}, {now:?}");
    rig.check_balance();
}

/// Kills the daemon under a TCP stream, and checks that the stream arrives whole by the kernel's own routes.
fn survives_a_killed_daemon(rig: &mut Rig, daemon: usize, mut sender: Child, receiver: Child) {
    assert!(sender.try_wait().unwrap().is_none(), "the stream goes on");
    assert_eq!(rig.stop(daemon, "KILL"), None);
    wait_for("end of the veth", || (!rig.exists("srv6d0")).then_some(()));
    let hash = |child: Child| report(&child.wait_with_output().unwrap().stdout)["sha256"].clone();
    assert_eq!(hash(sender), hash(receiver));
    assert!(rig.is_kernels("eth2"));
}

#[test]
#[ignore = "needs root"]
fn tcp_survives_a_killed_srv6d_by_the_kernels_route() {
    let mut rig = rig();
    rig.inside("router", "ip -6 route add fcbb::/32 via 2001:db8:b::2 dev eth2");
    rig.inside(
        "router",
        "ip -6 route add 2001:db8:f::/64 encap seg6 mode encap.red segs fcbb:0:2:fe06:: via 2001:db8:b::2 dev eth2",
    );
    let daemon = rig.ready(&config("tc"));
    wait_until_tc_serves(&rig);
    let receiver = rig.receiver("b", "tcp", "[2001:db8:f::1]:7091");
    let sender = rig.traffic("router", "tcp-send [2001:db8:f::1]:7091 400000000 7");
    wait_for("stream by tc", || (had(&rig)[0] > 5000).then_some(()));
    survives_a_killed_daemon(&mut rig, daemon, sender, receiver);
}

#[test]
#[ignore = "needs root"]
fn engines_take_over_from_each_other_under_traffic_and_say_who_serves() {
    let mut rig = rig();
    rig.ready(&config("worker"));
    assert!(engines(&rig).iter().all(|(engine, _)| engine == "-"), "tc is not asked for");
    rig.reload(&config("tc"));
    wait_until_tc_serves(&rig);
    let receiver = rig.receiver("b", "udp", "[2001:db8:f::1]:7092");
    let mut sender = rig.stream("router", "[2001:db8:f::1]:7092", 2000);
    let mut before = had(&rig);
    for round in 0..10 {
        let engine = usize::from(round % 2 == 0);
        rig.reload(&config(["tc", "worker"][engine]));
        let grown = |now: [u64; 2]| now[engine] > before[engine] + 100;
        before = wait_for("packets by the other engine", || Some(had(&rig)).filter(|now| grown(*now)));
    }
    end(&mut sender);
    let report = report(&receiver.wait_with_output().unwrap().stdout);
    assert_eq!([number(&report, "lost"), number(&report, "duplicated")], [0; 2], "of {}", number(&report, "sent"));

    // A capture sees what local applications send, and while it is open the worker has it.
    rig.reload(&config("tc"));
    let [by_tc, by_worker] = had(&rig);
    let mut command = Command::new(support::rig::SRV6D);
    command.arg("--socket").arg(rig.socket_of("node")).args(["capture", "srv6d0-x", "--write"]);
    let mut capture = command.arg(rig.file("capture.pcap")).spawn().unwrap();
    let rests = |row: &serde_json::Value| {
        row.pointer("/offload/reason").is_some_and(|why| why.as_str().unwrap().contains("a capture is open"))
    };
    wait_for("capture", || rig.show("ports").as_array().unwrap().iter().any(rests).then_some(()));
    rig.inside("router", "bash -c 'for i in 1 2 3; do echo > /dev/udp/2001:db8:f::1/9; done'");
    wait_for("packets by the worker", || (had(&rig)[1] >= by_worker + 3).then_some(()));
    kill(Pid::from_raw(capture.id().cast_signed()), Signal::SIGTERM).unwrap();
    capture.wait().unwrap();
    assert_eq!(had(&rig)[0], by_tc);

    // Each path says why tc cannot serve it.
    let four = "[\"fcbb:0:3::\", \"fcbb:0:5::\", \"fcbb:0:6::\", \"fcbb:0:7::\"]";
    let said = rig.reload(&config("tc").replace("[\"fcbb:0:3::\"]", four));
    assert!(said.contains('~'), "{said}");
    wait_until_said(&rig);
    let shown = text(&rig.ask("node", "show paths").stdout);
    assert!(shown.contains("tc encapsulates what local applications send by 5 of 6 paths"), "{shown}");
    assert!(shown.contains("one: worker: its SRH has more than two segments"), "{shown}");
    rig.check_balance();
}

fn wait_until_said(rig: &Rig) {
    wait_for("engines", || {
        engines(rig).iter().any(|(_, why)| why == "its SRH has more than two segments").then_some(())
    });
}

/// Returns the configuration with SIDs for the router's applications.
fn receiving(engine: &str) -> String {
    config(engine) + SIDS
}

/// Like [`rig`], but `b` encapsulates what it sends to the router's applications.
fn receiving_rig() -> Rig {
    let rig = rig();
    for (of, segment) in [("-6 route replace 2001:db8:e::1/128", "fe06"), ("route replace 10.8.0.1/32", "fe04")] {
        rig.inside("b", &format!("ip {of} encap seg6 mode encap.red segs fcbb:0:1:{segment}:: dev wire"));
    }
    rig
}

/// Returns how many packets the programs of a port and the worker have had.
fn arrived(rig: &Rig) -> [u64; 2] {
    let [by_tc, all] = ["offloaded", "rx_packets"].map(|name| rig.port_counter("eth2", name));
    [by_tc, all - by_tc]
}

/// Returns how many IPv6 packets, merged ones as one, have come into the kernel through `srv6d0`.
fn merged(rig: &Rig) -> u64 {
    let counters = rig.inside("router", "cat /proc/net/dev_snmp6/srv6d0");
    let received = counters.lines().find_map(|line| line.strip_prefix("Ip6InReceives"));
    received.and_then(|count| count.trim().parse().ok()).unwrap()
}

fn wait_until_delivered(rig: &Rig) {
    wait_for("delivery by tc", || {
        let before = arrived(rig)[0];
        rig.inside("b", "bash -c 'echo > /dev/udp/2001:db8:e::1/9'");
        (arrived(rig)[0] > before).then_some(())
    });
    let shown = text(&rig.ask("node", "show ports").stdout);
    assert!(shown.contains("eth2: delivery: tc"), "{shown}");
}

#[test]
#[ignore = "needs root"]
fn what_sids_deliver_passes_the_worker_and_comes_into_the_kernel_merged() {
    let mut rig = receiving_rig();
    rig.ready(&receiving("tc"));
    wait_until_delivered(&rig);
    for (gro, gso) in [("on", "on"), ("on", "off"), ("off", "on")] {
        rig.inside("router", &format!("ethtool -K eth2 gro {gro}"));
        rig.inside("b", &format!("ethtool -K wire gso {gso}"));
        for to in ["[2001:db8:e::1]:7090", "10.8.0.1:7090"] {
            let (before, seen) = (arrived(&rig), merged(&rig));
            let (sent, received) = rig.tcp("b", "router", to);
            assert_eq!(sent, received, "{to}, gro {gro}, gso {gso}");
            let (now, seen) = (arrived(&rig), merged(&rig) - seen);
            let by_tc = now[0] - before[0];
            assert!(by_tc > 2500, "{to}, gro {gro}, gso {gso}: {before:?}, {now:?}");
            assert!(now[1] - before[1] < 50, "{to}, gro {gro}, gso {gso}: {before:?}, {now:?}");
            let is_merged = gro == "off" || seen < by_tc / 2;
            let is_v6 = to.starts_with('[');
            assert!(!is_v6 || is_merged && seen > 50, "{to}, gro {gro}: {seen} of {by_tc} through srv6d0");
        }
    }
    let [by_tc, _] = arrived(&rig);
    let sids = rig.show("sids");
    let at_sids: u64 = sids.as_array().unwrap().iter().map(|row| number(row, "packets")).sum();
    assert!(at_sids >= by_tc, "{at_sids}, {by_tc}");
    assert!(rig.counter("kernel") >= by_tc);
    rig.check_balance();
    let log = rig.log("node");
    assert!(!log.contains("WARN"), "{log}");
}

#[test]
#[ignore = "needs root"]
fn what_arrives_survives_a_killed_srv6d_by_the_kernels_route() {
    what_arrives_survives_a_kill(&receiving("tc"), |_| {});
}

/// Kills a daemon with this configuration under a stream that arrives for a SID, once `is_ready` has returned.
fn what_arrives_survives_a_kill(config: &str, is_ready: impl FnOnce(&Rig)) {
    let mut rig = receiving_rig();
    rig.inside("router", "sysctl -qw net.ipv6.conf.all.seg6_enabled=1 net.ipv6.conf.eth2.seg6_enabled=1");
    rig.inside("router", "sysctl -qw net.ipv6.conf.all.forwarding=1");
    rig.inside("router", "ip -6 route add fcbb:0:1:fe06::/64 encap seg6local action End.DT6 table local dev eth2");
    let daemon = rig.ready(config);
    is_ready(&rig);
    wait_until_delivered(&rig);
    let before = arrived(&rig)[0];
    let receiver = rig.receiver("router", "tcp", "[2001:db8:e::1]:7091");
    let sender = rig.traffic("b", "tcp-send [2001:db8:e::1]:7091 400000000 7");
    wait_for("stream by tc", || (arrived(&rig)[0] > before + 5000).then_some(()));
    survives_a_killed_daemon(&mut rig, daemon, sender, receiver);
}

#[test]
#[ignore = "needs root"]
fn engines_take_over_what_arrives_from_each_other_and_lose_nothing() {
    let mut rig = receiving_rig();
    rig.ready(&receiving("tc"));
    wait_until_delivered(&rig);
    let receiver = rig.receiver("router", "udp", "[2001:db8:e::1]:7092");
    let mut sender = rig.stream("b", "[2001:db8:e::1]:7092", 2000);
    let mut before = arrived(&rig);
    for round in 0..10 {
        let engine = usize::from(round % 2 == 0);
        rig.reload(&receiving(["tc", "worker"][engine]));
        let grown = |now: [u64; 2]| now[engine] > before[engine] + 100;
        before = wait_for("packets by the other engine", || Some(arrived(&rig)).filter(|now| grown(*now)));
    }
    end(&mut sender);
    let report = report(&receiver.wait_with_output().unwrap().stdout);
    assert_eq!([number(&report, "lost"), number(&report, "duplicated")], [0; 2], "of {}", number(&report, "sent"));
    rig.check_balance();
}

/// Starts a daemon that behaves as on a kernel without tcx, with a SID for its applications.
fn ready_without_tcx(rig: &mut Rig) -> usize {
    let mut command = rig.daemon("node", &receiving("tc"));
    command.env("SRV6D_TEST_NO_TCX", "1");
    let daemon = rig.spawn(command);
    rig.wait_until_ready();
    wait_until_tc_serves(rig);
    wait_until_delivered(rig);
    daemon
}

#[test]
#[ignore = "needs root"]
fn without_tcx_the_programs_are_filters_of_clsact_and_harmless_when_srv6d_is_gone() {
    let mut rig = receiving_rig();
    rig.inside("router", "tc qdisc add dev eth2 clsact");
    let filters = |rig: &Rig| rig.inside("router", "tc filter show dev eth2 ingress");
    for _ in 0..2 {
        let daemon = ready_without_tcx(&mut rig);
        let shown = text(&rig.ask("node", "show ports").stdout);
        assert!(shown.contains("as the last filter of clsact: the kernel has no tcx"), "{shown}");
        let at_port = filters(&rig);
        assert_eq!(at_port.matches("handle 0x53527636").count(), 1, "the one before it is replaced: {at_port}");
        assert!(
            rig.inside("router", "tc filter show dev srv6d0 egress")
                .contains("pref 65535 bpf chain 0 handle 0x53527636")
        );
        let (sent_by_tc, arrived_by_tc) = (had(&rig)[0], arrived(&rig)[0]);
        for (from, to, address) in [("router", "b", "[2001:db8:1f::1]:7095"), ("b", "router", "[2001:db8:e::1]:7096")] {
            let (sent, received) = rig.tcp(from, to, address);
            assert_eq!(sent, received, "{address}");
        }
        assert!(had(&rig)[0] > sent_by_tc + 2500 && arrived(&rig)[0] > arrived_by_tc + 2500);
        rig.check_balance();
        assert_eq!(rig.stop(daemon, "KILL"), None);
        rig.inside("router", "ping -6 -c 1 -w 10 2001:db8:b::2");
    }
    let daemon = ready_without_tcx(&mut rig);
    assert_eq!(rig.stop(daemon, "TERM"), Some(0));
    assert_eq!(filters(&rig).trim(), "", "who ends in order takes its filters along");
}

#[test]
#[ignore = "needs root"]
fn srv6d_chooses_tc_unless_a_veth_would_leave_checksums_unfinished() {
    let mut rig = rig();
    rig.inside("router", "ethtool -K eth2 tx on");
    rig.ready(&format!("{CONFIG}{STEERED}"));
    let is_worker = |(engine, why): &(String, String)| engine == "worker" && why.contains("checksums unfinished");
    wait_for("all by the worker", || {
        rig.inside("router", "ping -6 -c 1 -w 5 2001:db8:b::2");
        engines(&rig).iter().all(is_worker).then_some(())
    });
    let [by_tc, by_worker] = had(&rig);
    let (sent, received) = rig.tcp("router", "b", "[2001:db8:f::1]:7097");
    assert_eq!(sent, received);
    assert!(had(&rig)[0] == by_tc && had(&rig)[1] > by_worker + 2500);
    rig.inside("router", "ethtool -K eth2 tx off");
    wait_until_tc_serves(&rig);
    let shown = text(&rig.ask("node", "show ports").stdout);
    assert!(shown.contains("tc program at the egress of srv6d0 (tcx), behind all others"), "{shown}");
    let log = rig.log("node");
    assert!(!log.contains("WARN"), "{log}");
}
