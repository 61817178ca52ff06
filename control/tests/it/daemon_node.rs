//! Tests of the daemon on real AF_XDP sockets between two kernel hosts.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;

use support::rig::{self, CONFIG, Rig, SRV6D, must, text, wait_for};

#[test]
#[ignore = "needs root"]
fn forwards_and_leaves_the_rest_to_the_kernel() {
    let mut rig = Rig::new(1);
    assert!(!rig.pings(), "the kernel of the router does not forward");
    let daemon = rig.ready(CONFIG);
    rig.wait_for_pings();
    // Packets to the router's own address are for the kernel.
    rig.inside("a", "ping -6 -c 2 -i 0.2 -w 20 2001:db8:a::1");
    rig.check_balance();
    assert_eq!(rig.stop(daemon, "TERM"), Some(0), "{}", rig.log("node"));
    assert!(rig.log("node").contains(": balanced"), "{}", rig.log("node"));
    assert!(!rig.exists("srv6d0"), "the own veth is gone");
    assert!(rig.is_kernels("eth1"));
}

#[test]
#[ignore = "needs root"]
fn tcp_crosses_in_both_directions_and_reaches_the_router_itself() {
    let rig = Rig::forwarding(1, CONFIG);
    for (from, to, address) in [
        ("a", "b", "[2001:db8:b::2]:7001"),
        ("b", "a", "[2001:db8:a::2]:7002"),
        ("a", "router", "[2001:db8:a::1]:7003"),
    ] {
        let (sent, received) = rig.tcp(from, to, address);
        assert_eq!(sent, received, "{from} to {address}");
    }
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_killed_daemon_leaves_nothing_in_the_way() {
    let mut rig = Rig::new(1);
    let daemon = rig.ready(CONFIG);
    rig.wait_for_pings();
    rig.check_balance();
    rig.inside("router", "sysctl -qw net.ipv6.conf.all.forwarding=1");
    assert_eq!(rig.stop(daemon, "KILL"), None);
    wait_for("ping through the kernel", || rig.pings().then_some(()));
    wait_for("end of the own veth", || (!rig.exists("srv6d0")).then_some(()));
}

#[test]
#[ignore = "needs root"]
fn a_bad_configuration_changes_nothing() {
    let rig = Rig::forwarding(1, CONFIG);
    fs::write(rig.file("node.toml"), format!("{CONFIG}\n[[sid]]\nsid = \"fcbb::/48\"\nbehaviour = \"uN\"\n")).unwrap();
    let refused = rig.ask("node", "reload");
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("node.toml:18") && said.contains("behavior"), "line and fix: {said}");
    wait_for("ping through what was in force", || rig.pings().then_some(()));
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn another_xdp_program_is_named_and_left_alone() {
    let mut rig = Rig::forwarding(1, CONFIG);
    let second = rig.start("second", &CONFIG.replace("[node]", "[host]\ninterface = \"other0\"\n[node]"));
    wait_for("the reason in the log", || {
        let log = rig.log("second");
        let is_named = |port| log.contains(&format!("{port}: not attached: XDP program"));
        (is_named("eth1") && is_named("eth2") && log.contains("already attached")).then_some(())
    });
    wait_for("ping through the first one", || rig.pings().then_some(()));
    assert_eq!(rig.stop(second, "TERM"), Some(0), "{}", rig.log("second"));
    assert!(!rig.exists("other0"), "nothing of the second is left");
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_port_that_comes_back_is_taken_again() {
    let rig = Rig::forwarding(1, CONFIG);
    rig.inside("b", "ip link del wire");
    wait_for("pending port", || text(&rig.ask("node", "show ports").stdout).contains("pending").then_some(()));
    rig.link("b", "eth2", 1);
    wait_for("ping through the new port", || rig.pings().then_some(()));
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_neighbour_with_a_new_address_is_followed() {
    let rig = Rig::forwarding(1, CONFIG);
    rig.inside("b", "ip link set wire address 02:00:00:00:0b:0b");
    // The router's kernel learns the address from a packet of the neighbour, and srv6d from the kernel.
    rig.inside("b", "ping -6 -c 1 -w 20 2001:db8:b::1");
    wait_for("ping to the new address", || rig.pings().then_some(()));
    assert!(rig.show("neighbors").to_string().contains("02:00:00:00:0b:0b"));
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_neighbour_in_use_is_kept_fresh() {
    let mut rig = Rig::new(1);
    rig.inside(
        "router",
        "sysctl -qw net.ipv6.neigh.eth2.base_reachable_time_ms=1000 net.ipv6.neigh.eth2.delay_first_probe_time=1",
    );
    rig.ready(CONFIG);
    rig.wait_for_pings();
    let _flow = rig.flow("a");
    let is_reachable = || rig.inside("router", "ip neigh show 2001:db8:b::2 dev eth2").contains("REACHABLE");
    // Only a probe of the router's kernel makes the entry reachable, and only srv6d causes it to probe.
    for _ in 0..2 {
        wait_for("an entry that has grown old", || (!is_reachable()).then_some(()));
        wait_for("an entry that was probed", || is_reachable().then_some(()));
    }
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_permanent_neighbour_entry_stays_permanent() {
    let mut rig = Rig::new(1);
    let mac = rig.inside("b", "cat /sys/class/net/wire/address");
    rig.inside("router", &format!("ip neigh replace 2001:db8:b::2 lladdr {} dev eth2 nud permanent", mac.trim()));
    rig.ready(CONFIG);
    rig.wait_for_pings();
    // This takes longer than two rounds in which srv6d refreshes neighbours in use.
    rig.inside("a", "ping -6 -q -c 40 -i 0.2 2001:db8:b::2");
    let entry = rig.inside("router", "ip neigh show 2001:db8:b::2");
    assert!(entry.contains("PERMANENT"), "{entry}");
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_static_neighbour_is_never_asked_for() {
    let mut rig = Rig::new(1);
    let mac = |node: &str, device: &str| rig.inside(node, &format!("cat /sys/class/net/{device}/address"));
    let (host, router) = (mac("b", "wire"), mac("router", "eth2"));
    // The host also has a permanent entry; otherwise its solicitation would make the router's kernel ask back.
    rig.inside("b", &format!("ip neigh replace 2001:db8:b::1 lladdr {} dev wire nud permanent", router.trim()));
    let neighbor = format!("[[neighbor]]\naddress = \"2001:db8:b::2\"\nport = \"eth2\"\nmac = {:?}\n", host.trim());
    rig.ready(&format!("{CONFIG}{neighbor}"));
    rig.wait_for_pings();
    // This takes longer than two rounds in which srv6d refreshes neighbours in use.
    rig.inside("a", "ping -6 -q -c 40 -i 0.2 2001:db8:b::2");
    let counted = rig.inside("b", "cat /proc/net/dev_snmp6/wire");
    let solicitations = counted.lines().find_map(|line| line.strip_prefix("Icmp6InNeighborSolicits"));
    assert_eq!(solicitations.map(str::trim), Some("0"), "{counted}");
    assert!(rig.inside("router", "ip -6 neigh show dev eth2").is_empty());
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn two_workers_share_two_queues() {
    let mut rig = Rig::new(2);
    let config = rig::with_two_workers();
    rig.ready(&config);
    rig.wait_for_pings();
    assert_eq!(rig.port_counter("eth1", "queues"), 2);
    let before = rig.counter("tx");
    for address in 10..26 {
        rig.inside("a", &format!("ip addr add 2001:db8:a::{address}/64 dev wire nodad"));
        rig.inside("a", &format!("ping -6 -c 1 -w 30 -I 2001:db8:a::{address} 2001:db8:b::2"));
    }
    let after = rig.counter("tx");
    assert!(after - before >= 32, "16 requests and 16 replies: {before} to {after}");
    let queues = rig.redirected("eth1");
    assert!(queues.len() == 2 && queues.iter().all(|&count| count > 0), "both queues carry flows: {queues:?}");
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn without_privileges_the_error_names_them() {
    let rig = Rig::new(1);
    fs::write(rig.file("bare.toml"), CONFIG).unwrap();
    must(&format!("chmod 777 {}", rig.directory.display()));
    let bare = rig.output(
        "router",
        &format!(
            "setpriv --reuid 65534 --clear-groups env SRV6D_SOCKET={} {SRV6D} run --config {}",
            rig.file("bare.sock").display(),
            rig.file("bare.toml").display()
        ),
    );
    let said = text(&bare.stderr);
    assert_eq!(bare.status.code(), Some(1), "{said}");
    assert!(said.contains("CAP_NET_ADMIN"), "{said}");
}
