//! Tests of the lab with the real FRR, whose zebras announce BGP's routes to srv6d over FPM. No srv6d follows its
//! kernel.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;
use std::path::Path;

use serde_json::Value;
use support::bgp::{fpm_is_missing, lab_command, lost_in_rings, nearly_whole, sent, stream, undisturbed, whole};
use support::lab::{Lab, SRV6D, balanced, eventually};

const TOPOLOGY: &str = include_str!("lab_fpm.toml");
const ROUTERS: [&str; 4] = ["leaf00", "leaf01", "spine00", "spine01"];
/// The address of host01, which is reached through SRv6, and a leaf's loopback, which is reached without.
const IN_SRV6: (&str, &str) = ("host01", "fcbb:0:800:1::2");
const PLAIN: (&str, &str) = ("leaf01", "10.255.5.1");

fn show(lab: &Lab, node: &str, topic: &str) -> Vec<Value> {
    serde_json::from_str(&lab.must(node, &[SRV6D, "show", topic, "--json"])).unwrap()
}

/// Returns the state of FPM in a node.
fn fpm(lab: &Lab, node: &str) -> Value {
    show(lab, node, "source").into_iter().find(|row| row["source"] == "fpm").unwrap()
}

/// Returns the ports of a route's next hops that are up.
fn ways(lab: &Lab, node: &str, prefix: &str) -> Vec<String> {
    let row = show(lab, node, "routes").into_iter().find(|row| row["prefix"] == prefix);
    let hops = row.map(|row| row["next_hops"].as_array().unwrap().clone()).unwrap_or_default();
    let mut ports: Vec<String> =
        hops.iter().filter(|hop| hop["state"] == "up").map(|hop| hop["port"].as_str().unwrap().to_owned()).collect();
    ports.sort();
    ports
}

fn leaves_by(lab: &Lab, node: &str, ports: &[&str], prefixes: &[&str]) {
    for prefix in prefixes {
        eventually(&format!("{node} reaches {prefix} by {ports:?}"), || ways(lab, node, prefix) == ports);
    }
}

/// Waits until zebra has announced everything after this many connections, and checks that all of it was understood.
fn announced(lab: &Lab, node: &str, connections: u64) {
    eventually(&format!("{node}'s zebra has announced everything"), || {
        let source = fpm(lab, node);
        let fpm = &source["fpm"];
        source["state"] == "connected" && fpm["connections"] == connections && fpm["stale"] == 0 && fpm["waiting"] == 0
    });
    let fpm = &fpm(lab, node)["fpm"];
    assert_eq!((&fpm["dialect"], &fpm["malformed"]), (&"frr".into(), &0.into()), "{node}: {fpm}");
}

/// Checks that every datagram arrives, and that leaf00 sent each of them once, through these ports to spines.
fn every_datagram_is_counted(lab: &Lab, (to, address): (&str, &str), uplinks: &[&str]) {
    let before = sent(lab, "leaf00");
    let report = stream(lab, "host00", to, address, || ());
    let number = |key: &str| report[key].as_u64().unwrap();
    whole(lab, address, &report);
    assert_eq!(number("duplicated"), 0, "{address}: {report}");
    let through = || -> Vec<(String, u64)> {
        let now = sent(lab, "leaf00").into_iter().zip(&before).map(|((port, now), (_, before))| (port, now - before));
        now.filter(|(port, packets)| *packets > 0 && port != "eth3").collect()
    };
    eventually(&format!("{:?} are the {report} to {address}", through()), || {
        let packets: u64 = through().iter().map(|(_, packets)| packets).sum();
        let all = number("sent") + number("closing");
        packets == all || packets < all && packets + lost_in_rings(lab) >= all
    });
    let used: Vec<String> = through().into_iter().map(|(port, _)| port).collect();
    assert_eq!(used, uplinks, "{address}: flows are spread over the spines that are there");
}

#[test]
#[ignore = "needs root"]
fn routes_of_bgp_come_over_fpm() {
    if !fpm_is_missing() {
        undisturbed(routes_over_fpm);
    }
}

fn routes_over_fpm() {
    let lab = Lab::up("fpm", TOPOLOGY);
    for node in ROUTERS {
        announced(&lab, node, 1);
        let config = fs::read_to_string(Path::new("/run/srv6d-lab").join(&lab.name).join(node).join("srv6d.toml"));
        assert!(!config.unwrap().contains("[kernel]"), "what {node} has, it has from zebra");
    }
    let (inside, before) = ("fcbb:0:1005:fe06::/64", lab.sid_packets("leaf01", "fcbb:0:1005:fe06::/64"));
    every_datagram_is_counted(&lab, IN_SRV6, &["eth1", "eth2"]);
    assert!(lab.sid_packets("leaf01", inside) > before + 100, "inside SRv6");
    a_lost_link_is_withdrawn(&lab);
    a_killed_spine_is_gone_round_and_used_again(&lab);
    frr_is_restarted_under_traffic(&lab);
    balanced(&lab, &ROUTERS);
}

/// Both ends detect the loss of the link. The far leaf learns withdrawn routes by BGP, and its srv6d by FPM.
fn a_lost_link_is_withdrawn(lab: &Lab) {
    let of_leaf00 = ["fcbb:0:1004::/48", "fcbb:0:800::/64", "10.200.0.0/24", "10.255.4.1/32"];
    leaves_by(lab, "leaf01", &["eth1", "eth2"], &of_leaf00);
    lab.must("leaf00", &["ip", "link", "set", "eth2", "down"]);
    leaves_by(lab, "leaf00", &["eth1"], &["fcbb:0:1005::/48", "10.255.5.1/32"]);
    leaves_by(lab, "leaf01", &["eth1"], &of_leaf00);
    every_datagram_is_counted(lab, IN_SRV6, &["eth1"]);
}

/// The spine behind the lost link is lost as well; then both return.
fn a_killed_spine_is_gone_round_and_used_again(lab: &Lab) {
    print!("{}", lab_command(lab, &["fail", "spine01", "--how", "kill"]));
    every_datagram_is_counted(lab, PLAIN, &["eth1"]);
    lab.must("leaf00", &["ip", "link", "set", "eth2", "up"]);
    let (to, address) = IN_SRV6;
    let report = stream(lab, "host00", to, address, || print!("{}", lab_command(lab, &["repair", "spine01"])));
    nearly_whole(lab, "the return of a spine costs nothing", &report);
    announced(lab, "spine01", 1);
    every_datagram_is_counted(lab, PLAIN, &["eth1", "eth2"]);
}

/// FRR is killed and started again. What it had announced stays in force, and is announced again.
fn frr_is_restarted_under_traffic(lab: &Lab) {
    let (to, address) = IN_SRV6;
    let report = stream(lab, "host00", to, address, || {
        lab_command(lab, &["fail", "leaf00", "--how", "frr"]);
        eventually("everything is stale", || {
            let source = fpm(lab, "leaf00");
            source["state"] == "disconnected" && source["fpm"]["stale"] == source["fpm"]["routes"]
        });
        assert_eq!(ways(lab, "leaf00", "fcbb:0:1005::/48"), ["eth1", "eth2"], "and in force");
        lab_command(lab, &["repair", "leaf00"]);
        announced(lab, "leaf00", 2);
    });
    println!("FRR killed and started again: {} datagrams lost of {}", report["lost"], report["sent"]);
    whole(lab, "FRR's restart costs nothing", &report);
}
