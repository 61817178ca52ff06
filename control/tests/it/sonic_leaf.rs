//! Tests of a SONiC leaf with `config_db.json` and `frr.conf` as in a container: links that come late, names, kernel,
//! packets; then again after the loss of a port, the process or a file.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;

use support::lab::{SRV6D, text};
use support::leaf::{CONFIG_DB, FRR, Leaf, wire_of};
use support::rig::wait_for;

/// Checks uN, uN and uA in one carrier, and the tenant's VPN in both directions.
fn check_forwarding(leaf: &Leaf) {
    leaf.wait_for_ping("a", "2001:db8:b::2");
    let packets = |sid: &str| leaf.sid_packets(sid);
    let (end, adjacency, decap) =
        (packets("fcbb:bbbb:1::/48"), packets("fcbb:bbbb:fe04::/48"), packets("fcbb:bbbb:1:d046::/64"));
    leaf.steer_a("fcbb:bbbb:1:2:d6::");
    leaf.wait_for_ping("a", "3fff:b::1");
    assert!(packets("fcbb:bbbb:1::/48") >= end + 2, "uN served them: {}", leaf.show("sids"));
    leaf.steer_a("fcbb:bbbb:1:fe04:2:d6::");
    leaf.wait_for_ping("a", "3fff:b::1");
    assert!(packets("fcbb:bbbb:fe04::/48") >= adjacency + 2, "uA served them: {}", leaf.show("sids"));
    leaf.wait_for_ping("a", "2001:db8:c::2");
    assert!(packets("fcbb:bbbb:1:d046::/64") >= decap + 2, "uDT46 served them: {}", leaf.show("sids"));
}

fn ip(leaf: &Leaf, question: &str) -> String {
    leaf.inside("leaf", &format!("ip {question}"))
}

#[test]
#[ignore = "needs root"]
fn a_leaf_whose_files_and_links_come_late() {
    let mut leaf = Leaf::new();
    // The management interface is not a port, and must not be changed.
    ip(&leaf, "link add eth0 type veth peer name far");
    ip(&leaf, "link set eth0 up");
    let forwarding = "sysctl -n net.ipv6.conf.eth0.forwarding";
    let before = (leaf.inside("leaf", forwarding), ip(&leaf, "-o addr show dev eth0"));
    leaf.start(3);
    wait_for("answer", || leaf.srv6d("show ports").status.success().then_some(()));
    assert!(!leaf.is_ready(), "no file is there");
    leaf.bring_files();
    wait_for("SIDs", || leaf.log().contains("0 of 3 interfaces (CLAB_INTFS) are there").then_some(()));
    assert!(!leaf.is_ready(), "no interface is there");
    // One link arrives under a name that is no port's, and gets its own one late.
    leaf.bring_link_as("h", "clab-0a1b2c");
    leaf.bring_link("a");
    leaf.bring_link("b");
    wait_for("the other ports", || leaf.log().contains("2 of 3 interfaces (CLAB_INTFS) are there").then_some(()));
    assert!(ip(&leaf, "link show").contains("clab-0a1b2c"), "it is nobody's port yet");
    ip(&leaf, &format!("link set clab-0a1b2c name {}", wire_of("h")));
    leaf.wait_until_ready();
    let ready = text(&leaf.srv6d("sonic ready --root ROOT").stdout);
    assert!(ready.contains("3 SIDs, 3 ports"), "{ready}");
    assert!(leaf.log().contains("CONFIG_DB: /etc/sonic/config_db.json"), "{}", leaf.log());

    let port = ip(&leaf, "-d addr show dev Ethernet0");
    for part in ["altname eth1", "mtu 9100", "2001:db8:a::1/64", "192.0.2.1/30"] {
        assert!(port.contains(part), "{part}: {port}");
    }
    assert!(ip(&leaf, "-6 addr show").contains("fcbb:bbbb:1::1/128"));
    assert!(leaf.inside("leaf", "ethtool -k eth1").contains("tx-checksumming: off"), "on both names");
    let routes = ip(&leaf, "-6 route show proto 200");
    let sids = routes.lines().filter(|line| line.contains("seg6local") || line.contains("fe04")).count();
    assert_eq!(sids, 3, "{routes}");
    assert!(routes.contains("blackhole fcbb:bbbb::/32"), "{routes}");
    assert_eq!(
        (leaf.inside("leaf", forwarding), ip(&leaf, "-o addr show dev eth0")),
        before,
        "management is untouched"
    );

    check_forwarding(&leaf);
    // IPv4 of the tenant is checked in one direction, because a kernel decapsulates it only into a VRF device.
    wait_for("echo request of IPv4", || {
        leaf.output("a", "ping -c 1 -W 1 198.51.100.2");
        let received = leaf.inside("h", "nstat -asz IcmpInEchos");
        received.lines().any(|line| line.starts_with("IcmpInEchos") && !line.contains(" 0 ")).then_some(())
    });
    // Packets to an unknown SID of the block are dropped without an answer.
    let lost = leaf.output("a", "ping -6 -c 1 -W 1 fcbb:bbbb:77::1");
    assert!(!text(&lost.stdout).contains("unreachable"), "{}", text(&lost.stdout));
    assert_eq!(leaf.end("TERM"), Some(0));
    assert!(!leaf.root.join("run/srv6d/ready").exists());
}

#[test]
#[ignore = "needs root"]
fn a_port_that_is_created_anew_is_the_same_port() {
    let leaf = Leaf::running();
    check_forwarding(&leaf);
    leaf.inside("b", "ip link del wire");
    wait_for("port without its interface", || (leaf.port_state("Ethernet4").as_deref() != Some("up")).then_some(()));
    leaf.wait_for_ping("a", "2001:db8:c::2");
    leaf.bring_link("b");
    wait_for("port", || (leaf.port_state("Ethernet4").as_deref() == Some("up")).then_some(()));
    check_forwarding(&leaf);
    let port = ip(&leaf, "addr show dev Ethernet4");
    assert!(port.contains("altname eth2") && port.contains("2001:db8:b::1/64") && port.contains("mtu 9100"), "{port}");
    assert!(ip(&leaf, "-6 route show proto 200").contains("fcbb:bbbb:2::/48 via 2001:db8:b::2 dev Ethernet4"));
    // A link that a user sets down stays down.
    ip(&leaf, "link set eth2 down");
    wait_for("port that is down", || (leaf.port_state("Ethernet4").as_deref() == Some("down")).then_some(()));
    leaf.wait_for_ping("a", "2001:db8:c::2");
    assert_eq!(leaf.port_state("Ethernet4").as_deref(), Some("down"));
    ip(&leaf, "link set eth2 up");
    check_forwarding(&leaf);
}

#[test]
#[ignore = "needs root"]
fn a_changed_configuration_changes_the_kernel_and_a_broken_one_nothing() {
    let leaf = Leaf::running();
    let running = leaf.root.join("run/srv6d/sonic/config_db.json");
    ip(&leaf, "-6 addr add 2001:db8:dead::1/64 dev Ethernet0 nodad");
    ip(&leaf, "-6 route add 2001:db8:beef::/48 via 2001:db8:b::2");
    let changed = CONFIG_DB
        .replace("\"Ethernet0|192.0.2.1/30\": {},", "\"Ethernet0|203.0.113.1/24\": {},")
        .replace(
            "\"admin_status\": \"up\", \"mtu\": \"9100\"},\n    \"Ethernet4\"",
            "\"admin_status\": \"up\", \"mtu\": \"4000\"},\n    \"Ethernet4\"",
        )
        .replace("fcbb:bbbb:1:d046::/64", "fcbb:bbbb:1:d047::/64");
    fs::write(&running, changed).unwrap();
    let reloaded = leaf.reload();
    assert!(reloaded.status.success(), "{}", text(&reloaded.stderr));
    let port = ip(&leaf, "addr show dev Ethernet0");
    for (part, there) in
        [("192.0.2.1", false), ("203.0.113.1/24", true), ("2001:db8:dead::1", true), ("mtu 4000", true)]
    {
        assert_eq!(port.contains(part), there, "{part}: {port}");
    }
    let routes = ip(&leaf, "-6 route show");
    assert!(routes.contains("fcbb:bbbb:1:d047::/64") && !routes.contains("fcbb:bbbb:1:d046::/64"), "{routes}");
    assert!(routes.contains("2001:db8:beef::/48"), "a route of a user: {routes}");

    // After a file that is broken, missing or contradictory, the previous state stays in force.
    leaf.steer_a("fcbb:bbbb:1:2:d6::");
    leaf.wait_for_ping("a", "3fff:b::1");
    for broken in [Some("{\"PORT\": "), None] {
        match broken {
            Some(text) => fs::write(&running, text).unwrap(),
            None => fs::remove_file(&running).unwrap(),
        }
        let refused = leaf.reload();
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stdout));
        let why = text(&refused.stderr);
        assert!(why.contains("srv6d.toml:") && why.contains("config_db.json"), "{why}");
        leaf.wait_for_ping("a", "3fff:b::1");
    }
    assert!(leaf.show("sids").to_string().contains("fcbb:bbbb:1:d047::/64"));
    fs::write(&running, CONFIG_DB).unwrap();
    assert!(leaf.reload().status.success());
    check_forwarding(&leaf);
}

#[test]
#[ignore = "needs root"]
fn a_killed_switch_leaves_a_kernel_that_forwards_and_nothing_in_the_way() {
    let mut leaf = Leaf::running();
    check_forwarding(&leaf);
    leaf.end("KILL");
    leaf.steer_a("fcbb:bbbb:1:2:d6::");
    leaf.wait_for_ping("a", "3fff:b::1");
    leaf.wait_for_ping("a", "2001:db8:c::2");
    assert!(!leaf.is_ready(), "nobody answers");
    // Entries that were removed from the files meanwhile are removed from the kernel.
    leaf.write("/etc/sonic/config_db.json", &CONFIG_DB.replace(", \"Ethernet0|192.0.2.1/30\": {}", ""));
    leaf.write("/etc/sonic/frr/frr.conf", &FRR.replace("ipv6 route fcbb:bbbb:a::/48 2001:db8:a::2 Ethernet0\n", ""));
    leaf.start(3);
    leaf.wait_until_ready();
    assert!(!ip(&leaf, "addr show dev Ethernet0").contains("192.0.2.1"));
    assert!(!ip(&leaf, "-6 route show").contains("fcbb:bbbb:a::/48"));
    leaf.wait_for_ping("a", "3fff:b::1");
    assert_eq!(leaf.end("TERM"), Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_switch_with_a_broken_file_runs_and_takes_the_corrected_one() {
    let mut leaf = Leaf::new();
    leaf.bring_links();
    leaf.write("/etc/sonic/config_db.json", "{ \"PORT\": ");
    leaf.write("/etc/frr/frr.conf", FRR);
    // With 0, the switch takes the interfaces that exist.
    leaf.start(0);
    wait_for("answer", || leaf.srv6d("show ports").status.success().then_some(()));
    wait_for("refusal in the log", || leaf.log().contains("config_db.json").then_some(()));
    assert!(!leaf.is_ready());
    let log = leaf.log();
    assert_eq!(log.matches("no JSON").count(), 1, "said once: {log}");
    assert!(log.contains("CONFIG_DB: /etc/sonic/config_db.json is refused"), "{log}");
    leaf.write("/etc/sonic/config_db.json", CONFIG_DB);
    leaf.wait_until_ready();
    check_forwarding(&leaf);
}

#[test]
#[ignore = "needs root"]
fn a_restart_that_has_lost_its_interfaces_goes_on_without() {
    let mut leaf = Leaf::running();
    check_forwarding(&leaf);
    leaf.end("KILL");
    for node in ["a", "b", "h"] {
        leaf.inside(node, "ip link del wire");
    }
    leaf.start_and_wait(3, 1);
    leaf.wait_until_ready();
    assert!(leaf.log().contains("0 of 3 interfaces (CLAB_INTFS) have appeared within 1 s"), "{}", leaf.log());
    leaf.bring_links();
    check_forwarding(&leaf);
}

#[test]
#[ignore = "needs root"]
fn an_adjacency_without_an_address_is_the_one_on_its_port() {
    let mut leaf = Leaf::new();
    leaf.bring_files();
    // Only the SID leads to b, and b does not send first.
    let silent = FRR.replace(" nexthop 2001:db8:b::2", "");
    let silent: Vec<&str> = silent.lines().filter(|line| !line.contains("2001:db8:b::2")).collect();
    leaf.write("/etc/sonic/frr/frr.conf", &silent.join("\n"));
    leaf.bring_links();
    leaf.start(3);
    leaf.wait_until_ready();
    let adjacency = "fcbb:bbbb:fe04::/48";
    wait_for("adjacency", || leaf.show("sids").to_string().contains(adjacency).then_some(()));
    leaf.inside("b", "ip -6 route add 2001:db8:a::/64 via 2001:db8:b::1");
    leaf.steer_a("fcbb:bbbb:1:fe04:2:d6::");
    leaf.wait_for_ping("a", "3fff:b::1");
    assert!(leaf.sid_packets(adjacency) >= 2, "{}", leaf.show("sids"));
}

/// Captures on the leaf's fabric port while `a` sends echo requests through it. Returns the output of tcpdump.
fn captured(leaf: &Leaf, command: &str) -> String {
    let socket = leaf.root.join("run/srv6d/srv6d.sock");
    let full = command.replace("SRV6D", &format!("{SRV6D} --socket {}", socket.display()));
    let child = std::process::Command::new("ip")
        .args(["netns", "exec", &leaf.ns("leaf"), "timeout", "40", "sh", "-c", &full])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    // Packets before the start of the capture are missing, so echo requests are sent until it has seen enough.
    let running =
        || std::path::Path::new(&format!("/proc/{pid}/stat")).exists() && !support::lab::gone(pid.cast_signed());
    wait_for("end of the capture", || {
        // The leaf's kernel gets a solicitation again.
        leaf.output("a", "ip -6 neigh flush dev wire");
        leaf.output("a", "ping -6 -c 3 -i 0.1 -W 1 3fff:b::1");
        (!running()).then_some(())
    });
    let output = child.wait_with_output().unwrap();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
#[ignore = "needs root"]
fn transit_packets_are_seen_by_who_looks() {
    if !support::rig::run("tcpdump --version").status.success() {
        eprintln!("SKIPPED: tcpdump is not installed");
        return;
    }
    let leaf = Leaf::running();
    leaf.steer_a("fcbb:bbbb:1:2:d6::");
    leaf.wait_for_ping("a", "3fff:b::1");
    // The carrier is received with two uSIDs and sent with one. Both names refer to the port.
    for (port, direction, carrier) in [("Ethernet0", "in", "fcbb:bbbb:1:2:d6::"), ("eth2", "out", "fcbb:bbbb:2:d6::")] {
        let seen = captured(
            &leaf,
            &format!("SRV6D capture {port} --direction {direction} | tcpdump -c 3 -n -r - 'ip6 dst {carrier}'"),
        );
        assert_eq!(seen.matches(&format!("> {carrier}:")).count(), 3, "{port}: {seen}");
    }
    // A capture of the kernel alone does not contain these packets; the operator's command shows both kinds.
    let seen = captured(&leaf, "SRV6D sonic tcpdump -ni Ethernet0 -c 4 'ip6 dst fcbb:bbbb:1:2:d6::'");
    assert_eq!(seen.matches("> fcbb:bbbb:1:2:d6::").count(), 4, "{seen}");
    let seen = captured(&leaf, "SRV6D sonic tcpdump -ni Ethernet0 -c 1 'icmp6 and ip6[40] == 136'");
    assert!(seen.contains("neighbor advertisement"), "what is the kernel's: {seen}");
    // A script ends the capture with a signal, and then reads the file. On a busy machine the first three seconds may
    // be over before a packet is seen.
    let file = leaf.root.join("transit.pcap");
    let seen = captured(
        &leaf,
        &format!(
            "for seconds in 3 6 12; do timeout $seconds SRV6D sonic tcpdump -i Ethernet0 -w {0}; \
             tcpdump -nr {0} | grep d6:: && break; done",
            file.display()
        ),
    );
    assert!(seen.contains("> fcbb:bbbb:1:2:d6::"), "{seen}");
    let refused = leaf.srv6d("capture Ethernet99");
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("Ethernet99 is no port: name one of Ethernet0"),
        "{}",
        text(&refused.stderr)
    );
    wait_for("end of all captures", || {
        let log = leaf.log();
        (log.matches("packets are being captured").count() == log.matches("end of the capture").count()).then_some(())
    });
}
