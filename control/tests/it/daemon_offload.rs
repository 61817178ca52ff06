//! Tests of `offload = "xdp"`: plain packets bypass the workers, are counted nevertheless, and follow
//! every change at once.
//!
//! ```text
//! a ── encapsulates to fcbb:0:1:2:: ──► eth1  router, uN 1: shifts, without workers  eth2 ──► b, SID 2: decapsulates
//! a ── 2001:db8:c::1, unchanged ──────► eth1  router: encapsulates to fcbb:0:2::     eth2 ──► b, SID 2: decapsulates
//! ```
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod captures;
mod edge;
mod emulated;
mod engines;
mod far_end;
mod memory;
use crate::support;

use std::fs;

use support::rig::{CONFIG, Rig, WINDOW, end, number, report, text, wait_for};

/// The SID of the router, without which nothing is offloaded.
const SID: &str = "[[sid]]\nsid = \"fcbb:0:1::/48\"\nbehavior = \"uN\"\n";

/// Number of reloads under traffic.
const RELOADS: usize = 60;

fn config() -> String {
    let config = CONFIG.replace("[[port]]\n", "[[port]]\noffload = \"xdp\"\n");
    format!(
        "{config}{SID}[[block]]\nprefix = \"fcbb::/32\"\n\
         [[route]]\nprefix = \"fcbb:0:2::/48\"\nvia = \"2001:db8:b::2\"\nport = \"eth2\"\n"
    )
}

/// Prepares hosts and router, before srv6d runs there.
fn rig() -> Rig {
    let rig = Rig::new(1);
    rig.inside(
        "a",
        "ip -6 route add 2001:db8:b::2 encap seg6 mode encap.red segs fcbb:0:1:2:: via 2001:db8:a::1 dev wire",
    );
    rig.inside("b", "sysctl -qw net.ipv6.conf.all.seg6_enabled=1 net.ipv6.conf.wire.seg6_enabled=1");
    rig.inside("b", "ip -6 route add fcbb:0:2::/48 encap seg6local action End.DT6 table local dev wire");
    napi(&rig, "b", "on");
    napi(&rig, "a", "on");
    rig
}

/// Sets whether a host accepts frames that the router's XDP programs redirect to it.
fn napi(rig: &Rig, host: &str, on: &str) {
    rig.inside(host, &format!("ethtool -K wire gro {on}"));
}

/// Returns the row of a port in `show ports`.
fn port(rig: &Rig, name: &str) -> serde_json::Value {
    let ports = rig.show("ports");
    ports.as_array().unwrap().iter().find(|row| row.get("name").unwrap() == name).unwrap().clone()
}

/// Returns whether the XDP program of a port forwards, and all reasons why it does not.
fn offload(rig: &Rig, name: &str) -> (bool, String) {
    let port = port(rig, name);
    let field = |name: &str| port.pointer(&format!("/offload/{name}")).unwrap().clone();
    (field("on").as_bool().unwrap(), field("reason").as_str().unwrap().to_owned())
}

/// Sends datagrams from `a` to `b`. Returns how many were sent, and how many were lost, duplicated or out of order.
fn send(rig: &Rig) -> (u64, u64) {
    send_to(rig, ("a", "b"), "2001:db8:b::2")
}

/// Like [`send`], but between any two nodes, to this address of the receiver.
fn send_to(rig: &Rig, (from, to): (&str, &str), host: &str) -> (u64, u64) {
    let receiver = rig.receiver(to, "udp", &format!("[{host}]:7080"));
    let sender = rig.traffic(from, &format!("udp-send [{host}]:7080 2000 1 200 --window {WINDOW}"));
    assert_eq!(sender.wait_with_output().unwrap().status.code(), Some(0));
    judge(&report(&receiver.wait_with_output().unwrap().stdout))
}

fn judge(report: &serde_json::Value) -> (u64, u64) {
    (number(report, "sent"), number(report, "lost") + number(report, "duplicated") + number(report, "reordered"))
}

/// Sends a few echo requests from `a`. Returns how many packets XDP programs forwarded, and whether all requests were
/// answered. The requests are sent together; after the last one ping waits for the interval, which is longer than any
/// answer takes.
fn offloaded_of_a_few(rig: &Rig) -> (u64, bool) {
    let before = rig.counter("offloaded");
    let said = text(&rig.output("a", "ping -6 -q -c 20 -l 20 -i 5 -W 5 2001:db8:b::2").stdout);
    (rig.counter("offloaded") - before, said.contains(" 0% packet loss"))
}

/// Makes the neighbours known first, because only a few packets to an unknown neighbour are kept.
fn hosts_are_known(rig: &Rig) {
    rig.inside("router", "ping -6 -c 1 -w 20 2001:db8:b::2");
    rig.inside("a", "ping -6 -c 1 -w 20 2001:db8:b::2");
}

fn neighbor_is_known(rig: &Rig) {
    hosts_are_known(rig);
    wait_for("next hop of the program", || (offloaded_of_a_few(rig).0 > 0).then_some(()));
}

#[test]
#[ignore = "needs root"]
fn shifts_pass_the_workers_and_every_counter_knows_of_them() {
    let mut rig = rig();
    rig.ready(&config());
    neighbor_is_known(&rig);
    let packets = |rig: &Rig| {
        let sids = rig.show("sids");
        let sid =
            sids.as_array().unwrap().iter().find(|row| row.get("sid").unwrap() == "fcbb:0:1::/48").unwrap().clone();
        sid.get("packets").and_then(serde_json::Value::as_u64).unwrap()
    };
    let counted = |rig: &Rig| {
        let port = |name: &str, counter: &str| rig.port_counter(name, counter);
        [
            packets(rig),
            rig.counter("offloaded"),
            port("eth1", "offloaded"),
            port("eth1", "rx_packets"),
            port("eth2", "tx_packets"),
        ]
    };
    let before = counted(&rig);
    let (sent, wrong) = send(&rig);
    assert_eq!(wrong, 0);
    let grown: Vec<u64> = before.iter().zip(counted(&rig)).map(|(before, now)| now - before).collect();
    assert!(grown.iter().all(|&packets| packets >= sent), "{sent} sent, and {grown:?} counted");
    rig.check_balance();
    assert_eq!(offload(&rig, "eth1"), (true, String::new()));
    let shown = text(&rig.ask("node", "show counters").stdout);
    assert!(shown.lines().any(|line| line.starts_with("offloaded ") && line.contains("past the workers")), "{shown}");
    // Packets that are not shifted still pass through the worker.
    let workers = rig.counter("rx") - rig.counter("offloaded");
    rig.inside("b", "ping -6 -c 3 -i 0.1 -w 20 2001:db8:a::2");
    assert!(rig.counter("rx") - rig.counter("offloaded") >= workers + 3);
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn transit_and_what_a_sid_decapsulates_pass_the_workers_too() {
    const PLAIN: [&str; 2] = ["2001:db8:b::3", "192.0.2.2"];
    const INSIDE: &str = "2001:db8:b::4";
    let mut rig = rig();
    for (node, address) in [("a", "198.51.100.2/24"), ("b", "192.0.2.2/24")] {
        rig.inside(node, &format!("ip addr add {address} dev wire"));
    }
    for (device, address) in [("eth1", "198.51.100.1/24"), ("eth2", "192.0.2.1/24")] {
        rig.inside("router", &format!("ip addr add {address} dev {device}"));
    }
    rig.inside("a", "ip route add 192.0.2.0/24 via 198.51.100.1");
    rig.inside("b", "ip route add 198.51.100.0/24 via 192.0.2.1");
    for address in [PLAIN[0], INSIDE] {
        rig.inside("b", &format!("ip addr add {address}/64 dev wire nodad"));
    }
    rig.inside(
        "a",
        &format!("ip -6 route add {INSIDE} encap seg6 mode encap.red segs fcbb:0:d6:: via 2001:db8:a::1 dev wire"),
    );
    rig.ready(&(config() + "[[sid]]\nsid = \"fcbb:0:d6::/48\"\nbehavior = \"uDT6\"\n"));
    for address in [PLAIN[0], PLAIN[1], INSIDE] {
        rig.inside("a", &format!("ping -c 1 -w 20 {address}"));
    }
    for address in [PLAIN[0], PLAIN[1], INSIDE] {
        let counted = |rig: &Rig| [rig.counter("offloaded"), rig.port_counter("eth2", "tx_packets")];
        let before = counted(&rig);
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let receiver = rig.receiver("b", "udp", &format!("{host}:7088"));
        let sender = rig.traffic("a", &format!("udp-send {host}:7088 2000 1 200 --window {WINDOW}"));
        assert_eq!(sender.wait_with_output().unwrap().status.code(), Some(0));
        let (sent, wrong) = judge(&report(&receiver.wait_with_output().unwrap().stdout));
        let grown: Vec<u64> = before.iter().zip(counted(&rig)).map(|(before, now)| now - before).collect();
        assert!(wrong == 0 && grown.iter().all(|&packets| packets >= sent), "{address}: {wrong} of {sent}, {grown:?}");
        rig.check_balance();
    }
}

#[test]
#[ignore = "needs root"]
fn reloads_under_traffic_lose_nothing() {
    let mut rig = rig();
    rig.ready(&config());
    neighbor_is_known(&rig);
    let before = rig.counter("offloaded");
    let receiver = rig.receiver("b", "udp", "[2001:db8:b::2]:7081");
    let mut sender = rig.stream("a", "[2001:db8:b::2]:7081", 4000);
    for reloads in 0..RELOADS {
        // The tables get other SIDs and routes, and a next hop that comes and goes.
        let more = format!(
            "[[sid]]\nsid = \"fcbb:0:{0:x}::/48\"\nbehavior = \"uA\"\nvia = \"2001:db8:a::2\"\n\
             [[route]]\nprefix = \"fcbb:0:{0:x}:1::/64\"\nvia = \"2001:db8:b::2\"\n",
            0x100 + reloads
        );
        fs::write(rig.file("node.toml"), config() + if reloads % 3 == 0 { "" } else { &more }).unwrap();
        let taken = rig.ask("node", "reload");
        assert!(taken.status.success(), "{}", text(&taken.stderr));
    }
    end(&mut sender);
    let (sent, wrong) = judge(&report(&receiver.wait_with_output().unwrap().stdout));
    assert!(sent > 100, "{sent}");
    assert_eq!(wrong, 0, "of {sent}");
    assert!(rig.counter("offloaded") - before >= sent, "all of it was the program's");
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn nothing_stale_is_forwarded() {
    let mut rig = rig();
    rig.ready(&config());
    neighbor_is_known(&rig);

    // The next hop gets another MAC address. Packets to the old one would not arrive.
    rig.inside("b", "ip link set wire address 02:00:00:00:0b:0b");
    rig.inside("router", "ip -6 neigh replace 2001:db8:b::2 lladdr 02:00:00:00:0b:0b dev eth2 nud permanent");
    let moved =
        || port(&rig, "eth1").get("name").is_some() && rig.show("neighbors").to_string().contains("02:00:00:00:0b:0b");
    wait_for("new address of the neighbour", || moved().then_some(()));
    let (offloaded, all_arrived) = offloaded_of_a_few(&rig);
    assert!(offloaded > 0 && all_arrived, "{offloaded}");

    // The SID is removed, and is unknown from the reload on.
    fs::write(rig.file("node.toml"), config().replace(SID, "")).unwrap();
    assert!(rig.ask("node", "reload").status.success());
    let unknown = rig.drops("unknown_sid");
    assert_eq!(offloaded_of_a_few(&rig), (0, false));
    assert!(rig.drops("unknown_sid") > unknown);
    fs::write(rig.file("node.toml"), config()).unwrap();
    assert!(rig.ask("node", "reload").status.success());
    assert!(offloaded_of_a_few(&rig).0 > 0);

    // The outgoing port goes down.
    rig.inside("router", "ip link set eth2 down");
    wait_for("port that is down", || (port(&rig, "eth2").get("state").unwrap() == "down").then_some(()));
    let down = rig.drops("adj_down") + rig.drops("no_route");
    assert_eq!(offloaded_of_a_few(&rig), (0, false));
    assert!(rig.drops("adj_down") + rig.drops("no_route") > down, "{}", rig.show("counters"));
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn what_a_port_would_lose_goes_by_the_worker_and_comes_back() {
    let mut rig = rig();
    rig.ready(&config());
    neighbor_is_known(&rig);
    napi(&rig, "b", "off");
    wait_for("reason", || {
        offload(&rig, "eth1").1.contains("what leaves through eth2 goes through the worker").then_some(())
    });
    assert_eq!(offloaded_of_a_few(&rig), (0, true));
    let doctor = format!("{} doctor --config {}", support::rig::SRV6D, rig.file("node.toml").display());
    let said = text(&rig.output("router", &doctor).stdout);
    assert!(said.contains("eth2") && said.contains("sends nothing that XDP programs redirect"), "{said}");
    napi(&rig, "b", "on");
    wait_for("end of the reason", || offload(&rig, "eth1").1.is_empty().then_some(()));
    let (offloaded, all_arrived) = offloaded_of_a_few(&rig);
    assert!(offloaded > 0 && all_arrived);
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_killed_srv6d_gives_its_ports_back_and_one_switched_off_forwards_on() {
    let mut rig = rig();
    let daemon = rig.ready(&config());
    neighbor_is_known(&rig);
    let program = port(&rig, "eth1").get("xdp_program").unwrap().clone();
    // The offload is switched off and on again, and the port always has a program.
    fs::write(rig.file("node.toml"), config().replace("offload = \"xdp\"", "offload = \"off\"")).unwrap();
    assert!(rig.ask("node", "reload").status.success());
    assert_eq!(offloaded_of_a_few(&rig), (0, true));
    // If the kernel reports VLAN tags beside frames, the program that requests these tags stays in front.
    assert!(!rig.is_kernels("eth1"));
    assert!(port(&rig, "eth1").get("offload").unwrap().is_null());
    fs::write(rig.file("node.toml"), config()).unwrap();
    assert!(rig.ask("node", "reload").status.success());
    assert!(offloaded_of_a_few(&rig).0 > 0);
    assert_eq!(port(&rig, "eth1").get("xdp_program").unwrap(), &program);
    assert_eq!(rig.stop(daemon, "KILL"), None);
    assert!(rig.is_kernels("eth1") && rig.is_kernels("eth2"), "at once");
}

#[test]
#[ignore = "needs root"]
fn a_kernel_that_refuses_the_program_has_the_workers_forward() {
    let mut rig = rig();
    let mut command = rig.daemon("node", &config());
    command.env("SRV6D_TEST_NO_OFFLOAD", "1");
    rig.spawn(command);
    rig.wait_until_ready();
    hosts_are_known(&rig);
    wait_for("answers", || (offloaded_of_a_few(&rig) == (0, true)).then_some(()));
    assert_eq!(offload(&rig, "eth1"), (false, "refused by a test".to_owned()));
}

/// Another host address of `b`.
const STEERED: &str = "2001:db8:c::1";

/// Returns a configuration that steers [`STEERED`] over the path of this name, and another prefix over the other path.
/// Both carriers end at `b`.
fn steering(path: &str) -> String {
    let other = if path == "one" { "two" } else { "one" };
    let steer = |prefix: &str, name: &str| {
        let last = if name == "one" { 1 } else { 2 };
        format!(
            "[[steer]]\nprefix = \"{prefix}\"\npaths = [{{ name = \"{name}\", segments = [\"fcbb:0:2:{last}::\"] }}]\n"
        )
    };
    config() + &steer("2001:db8:c::/64", path) + &steer("2001:db8:d::/64", other)
}

/// After more paths have come and gone than the program has counters for, new paths are still forwarded by the program.
#[test]
#[ignore = "needs root"]
fn counters_of_paths_that_are_gone_are_used_again() {
    let mut rig = rig();
    rig.inside("b", &format!("ip addr add {STEERED}/128 dev lo"));
    let gone = |number: u16| {
        format!(
            "[[steer]]\nprefix = \"2a00:{number:x}::/32\"\n\
             paths = [{{ name = \"gone-{number}\", segments = [\"fcbb:0:2:1::\"] }}]\n"
        )
    };
    let many: Vec<String> = (0..4500).map(gone).collect();
    rig.ready(&(config() + &many.concat()));
    hosts_are_known(&rig);
    let (is_on, reason) = offload(&rig, "eth1");
    assert!(is_on && reason.contains("paths, as the program has room for 4096"), "{reason}");
    for config in [config(), steering("one")] {
        fs::write(rig.file("node.toml"), config).unwrap();
        assert!(rig.ask("node", "reload").status.success());
    }
    assert_eq!(offload(&rig, "eth1"), (true, String::new()));
    // Answers come in through the other port.
    let before = rig.port_counter("eth1", "offloaded");
    let (sent, wrong) = send_to(&rig, ("a", "b"), STEERED);
    let offloaded = rig.port_counter("eth1", "offloaded") - before;
    assert!(wrong == 0 && offloaded >= sent, "{wrong} of {sent} lost, {offloaded} offloaded");
    let packets = |row: &serde_json::Value| row.get("packets").and_then(serde_json::Value::as_u64).unwrap();
    let paths = rig.show("paths");
    let counted: u64 = paths.as_array().unwrap().iter().map(packets).sum();
    assert_eq!(counted, offloaded, "nothing is left of what others had counted");
    rig.check_balance();
}

fn steer(rig: &Rig, path: &str) {
    rig.reload(&steering(path));
}

/// Returns the packets of the paths "one" and "two".
fn by_path(rig: &Rig) -> [u64; 2] {
    let paths = rig.show("paths");
    let packets = |name: &str| {
        let row = paths.as_array().unwrap().iter().find(|row| row.get("path").unwrap() == name).unwrap();
        row.get("packets").and_then(serde_json::Value::as_u64).unwrap()
    };
    ["one", "two"].map(packets)
}

#[test]
#[ignore = "needs root"]
fn encapsulations_pass_the_workers_too_and_follow_each_reload() {
    let mut rig = rig();
    rig.inside("b", &format!("ip addr add {STEERED}/128 dev lo"));
    rig.ready(&steering("one"));
    neighbor_is_known(&rig);
    for (path, at) in [("one", 0), ("two", 1), ("one", 0)] {
        steer(&rig, path);
        let (offloaded, before) = (rig.counter("offloaded"), by_path(&rig));
        let (sent, wrong) = send_to(&rig, ("a", "b"), STEERED);
        let offloaded = rig.counter("offloaded") - offloaded;
        assert!(wrong == 0 && offloaded >= sent, "{path}: {wrong} of {sent} lost, {offloaded} offloaded");
        let mut grown = by_path(&rig);
        grown.iter_mut().zip(before).for_each(|(now, was)| *now -= was);
        assert_eq!(grown.get(1 - at), Some(&0), "{path}: {grown:?}");
        assert!(grown.get(at) >= Some(&sent), "{path}: {grown:?} of {sent}");
    }
    let (before, paths) = (rig.counter("offloaded"), by_path(&rig));
    let receiver = rig.receiver("b", "udp", &format!("[{STEERED}]:7083"));
    let mut sender = rig.stream("a", &format!("[{STEERED}]:7083"), 4000);
    for reloads in 0..RELOADS / 3 {
        steer(&rig, if reloads % 2 == 0 { "two" } else { "one" });
    }
    end(&mut sender);
    let (sent, wrong) = judge(&report(&receiver.wait_with_output().unwrap().stdout));
    assert!(sent > 100 && wrong == 0, "{wrong} of {sent}");
    assert!(rig.counter("offloaded") - before >= sent, "all of it was the program's");
    let now = by_path(&rig);
    let grown: u64 = now.iter().zip(paths).map(|(now, was)| now - was).sum();
    assert!(grown >= sent, "{sent} sent, and {grown} counted");
    rig.check_balance();
}

/// Frames of 9000 bytes have several buffers. If the outgoing port does not accept these, the worker sends them.
#[test]
#[ignore = "needs root"]
fn frames_in_several_buffers_are_shifted_too() {
    let mut rig = rig();
    for (node, device) in [("a", "wire"), ("b", "wire"), ("router", "eth1"), ("router", "eth2")] {
        rig.inside(node, &format!("ip link set {device} mtu 9000"));
    }
    rig.ready(&config());
    neighbor_is_known(&rig);
    let jumbo = || {
        let (rx, offloaded) = (rig.port_counter("eth1", "rx_bytes"), rig.counter("offloaded"));
        let receiver = rig.receiver("b", "udp", "[2001:db8:b::2]:7082");
        // Each frame needs several descriptors of a ring.
        let window = WINDOW / 8;
        let sender = rig.traffic("a", &format!("udp-send [2001:db8:b::2]:7082 500 1 8500 --window {window}"));
        assert_eq!(sender.wait_with_output().unwrap().status.code(), Some(0));
        let (sent, wrong) = judge(&report(&receiver.wait_with_output().unwrap().stdout));
        assert_eq!(wrong, 0);
        assert!(rig.port_counter("eth1", "rx_bytes") - rx > sent * 8500);
        (sent, rig.counter("offloaded") - offloaded)
    };
    let (sent, offloaded) = jumbo();
    let (_, reason) = offload(&rig, "eth1");
    if reason.is_empty() {
        assert!(offloaded >= sent, "{offloaded} of {sent} were the program's");
    } else {
        // If the peer does not accept several buffers, this is reported, and no packet is lost.
        assert!(reason.contains("packets of more than 1500 bytes") && offloaded < sent, "{reason} {offloaded}");
    }
    rig.check_balance();
}
