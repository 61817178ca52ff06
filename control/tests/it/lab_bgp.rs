//! Tests of the lab with the real FRR: every leaf and spine uses BGP unnumbered, and srv6d follows its routes in the
//! kernel.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use srv6d_lab::FABRIC_BGP;
use support::bgp::{frr_is_missing, lab_command, nearly_whole, sent, stream, undisturbed};
use support::lab::{Lab, PATIENCE, SRV6D, balanced, eventually, gone, srv6d, text};

fn reaches(lab: &Lab, from: &str, address: &str) {
    lab.must(from, &["ping", "-n", "-c", "3", "-i", "0.2", "-w", "30", address]);
}

#[test]
#[ignore = "needs root"]
fn routes_of_bgp_carry_carriers_and_plain_traffic() {
    if !frr_is_missing() {
        undisturbed(carriers_and_plain_traffic);
    }
}

fn carriers_and_plain_traffic() {
    // One spine is a plain kernel, on which FRR does the same.
    let topology = FABRIC_BGP.replacen(
        "name = \"spine02\"\nrole = \"spine\"\nkind = \"srv6d\"",
        "name = \"spine02\"\nrole = \"spine\"\nkind = \"linux\"",
        1,
    );
    assert_ne!(topology, FABRIC_BGP);
    let lab = Lab::up("bgp", &topology);

    let before = sent(&lab, "leaf00");
    for address in ["fcbb:0:800:2::2", "10.200.2.2"] {
        let report = stream(&lab, "host00", "host02", address, || ());
        nearly_whole(&lab, address, &report);
        assert_eq!(report["duplicated"], 0, "{report}");
    }
    let to_spines = |port: &str| ["eth1", "eth2", "eth3"].contains(&port);
    for ((port, before), (_, now)) in before.iter().zip(sent(&lab, "leaf00")).filter(|((port, _), _)| to_spines(port)) {
        assert!(now > before + 20, "{port}: flows are spread over all spines");
    }
    assert!(lab.sid_packets("leaf02", "fcbb:0:1006:fe04::/64") > 100, "inside SRv6");
    // Traffic without encapsulation uses IPv6 next hops: both families, a leaf behind any spine, and a spine itself.
    for address in ["2001:db8::1006", "10.255.6.1", "2001:db8::1001", "10.255.2.1"] {
        reaches(&lab, "host00", address);
    }
    balanced(&lab, &["host00", "leaf00", "spine00", "leaf02", "host02"]);

    let kernel = lab.must("leaf00", &["ip", "route", "show", "10.200.2.0/24"]);
    assert!(kernel.contains("proto bgp") && kernel.matches("via inet6 fe80:").count() == 3, "{kernel}");
    let written = lab.must("leaf00", &["sh", "-c", "ip route show proto static; ip -6 route show proto static; ip route show proto boot; ip -6 route show proto boot"]);
    assert_eq!(written, "", "nothing is written that BGP carries");
    let unfollowed = lab.must("leaf00", &[SRV6D, "show", "routes", "--unfollowed"]);
    assert!(!unfollowed.contains("10.200.2.0/24"), "{unfollowed}");

    let summary = lab.must("leaf00", &["vtysh", "-c", "show bgp ipv6 unicast summary"]);
    assert!(summary.contains("10.255.4.1") && summary.contains("spine02(eth3)"), "this node's own FRR: {summary}");
    let status = srv6d(&["lab", "status", "--name", &lab.name]);
    assert!(status.status.success(), "{}", text(&status.stdout));
    assert_eq!(text(&status.stdout).matches("Established").count(), 18, "{}", text(&status.stdout));

    a_lost_spine_is_gone_round_and_used_again(&lab);
    a_restarted_spine_has_its_srv6d_and_frr_again(&lab);
    frr_is_restarted_under_traffic(&lab);
    what_was_restarted_by_hand_is_shown_and_ended(&lab);
}

fn a_lost_spine_is_gone_round_and_used_again(lab: &Lab) {
    lab_command(lab, &["fail", "spine01", "--how", "links"]);
    let lost = sent(lab, "spine01");
    let report = stream(lab, "host00", "host02", "fcbb:0:800:2::2", || ());
    nearly_whole(lab, "the others carry everything", &report);
    assert_eq!(sent(lab, "spine01"), lost);
    let report = stream(lab, "host00", "host02", "10.200.2.2", || drop(lab_command(lab, &["repair", "spine01"])));
    nearly_whole(lab, "its return costs nothing", &report);
    assert_ne!(sent(lab, "spine01"), lost, "it is used again");
}

/// After a restart, a killed node has srv6d, zebra and bgpd again. A node with a plain kernel has its SIDs again, which
/// were removed with its links.
fn a_restarted_spine_has_its_srv6d_and_frr_again(lab: &Lab) {
    lab_command(lab, &["fail", "spine01", "--how", "kill"]);
    lab_command(lab, &["restart", "spine01"]);
    lab_command(lab, &["fail", "spine02", "--how", "links"]);
    lab_command(lab, &["repair", "spine02"]);
    let sids = lab.must("spine02", &["ip", "-6", "route", "show", "fcbb:0:1002::/48"]);
    assert!(sids.contains("seg6local"), "{sids}");
    assert!(srv6d(&["lab", "status", "--name", &lab.name]).status.success());
}

/// Both daemons are killed and started again. Their routes stay in the kernel, so srv6d continues. Neighbours keep
/// their routes towards a leaf (RFC 4724), and avoid a spine.
fn frr_is_restarted_under_traffic(lab: &Lab) {
    for (node, from, to, address) in
        [("leaf00", "host02", "host00", "fcbb:0:800::2"), ("spine00", "host00", "host02", "10.200.2.2")]
    {
        let report = stream(lab, from, to, address, || {
            lab_command(lab, &["fail", node, "--how", "frr"]);
            thread::sleep(Duration::from_millis(500));
            let routes = lab.must(node, &["ip", "-6", "route", "show", "proto", "bgp"]);
            assert!(routes.contains("fcbb:0:1006::/48"), "{node}: nothing but the routes is left: {routes}");
            lab_command(lab, &["repair", node]);
        });
        println!("{node}: FRR killed and started again, {} datagrams lost of {}", report["lost"], report["sent"]);
        nearly_whole(lab, node, &report);
    }
}

fn what_was_restarted_by_hand_is_shown_and_ended(lab: &Lab) {
    let old = lab.process_of("spine00");
    assert!(Command::new("kill").args(["-9", &old.to_string()]).status().unwrap().success());
    let node = Path::new("/run/srv6d-lab").join(&lab.name).join("spine00");
    // The old process has its ports until its last thread has ended.
    let is_kernels = || !lab.must("spine00", &["ip", "link", "show"]).contains("xdp");
    eventually("nobody answers any more", || {
        UnixStream::connect(node.join("srv6d.sock")).is_err() && gone(old) && is_kernels()
    });
    let config = node.join("srv6d.toml").display().to_string();
    let mut by_hand = Command::new(SRV6D)
        .args(["lab", "exec", "--name", &lab.name, "spine00", "--", SRV6D, "run", "--config", &config])
        .stdout(Stdio::null())
        .stderr(fs::File::create(node.join("by-hand.log")).unwrap())
        .spawn()
        .unwrap();
    let row = format!("spine00     srv6d{:>10}  up", by_hand.id());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown = text(&srv6d(&["lab", "status", "--name", &lab.name]).stdout);
        if shown.contains(&row) {
            break;
        }
        let log = fs::read_to_string(node.join("by-hand.log")).unwrap();
        assert!(Instant::now() < deadline, "{row:?} is not in:\n{shown}{log}");
    }

    let pids = lab.processes();
    assert_eq!(pids.len(), 8 + 2 * 6, "srv6d of all but one node, and two of FRR in six");
    let down = srv6d(&["lab", "down", "--name", &lab.name]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    assert!(by_hand.try_wait().unwrap().is_some(), "a process that the lab did not start is ended too");
    assert!(pids.iter().all(|pid| gone(*pid)));
    assert!(lab.namespaces().is_empty() && !Path::new("/run/srv6d-lab").join(&lab.name).exists());
}

/// A lab whose own process was killed can still be taken down.
#[test]
#[ignore = "needs root"]
fn a_lab_whose_process_was_killed_can_be_taken_down() {
    if !frr_is_missing() {
        undisturbed(process_is_killed);
    }
}

fn process_is_killed() {
    let lab = Lab { name: format!("t{}-bgpkill", std::process::id()) };
    let mut up = Command::new(SRV6D)
        .args(["lab", "up", "--routing", "bgp", "--name", &lab.name])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The line is not complete while BGP converges, so it cannot be read as a line.
    let mut seen = String::new();
    let mut out = BufReader::new(up.stdout.take().unwrap());
    while !seen.contains("converged on:") {
        let mut byte = [0];
        std::io::Read::read_exact(&mut out, &mut byte).unwrap();
        seen.push(byte[0].into());
    }
    up.kill().unwrap();
    up.wait().unwrap();
    let pids = lab.processes();
    assert_eq!(pids.len(), 9 + 2 * 6);
    let down = srv6d(&["lab", "down", "--name", &lab.name]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    assert!(pids.iter().all(|pid| gone(*pid)));
    assert!(lab.namespaces().is_empty());
}

/// A spine is lost in three ways, with times and losses, and everything is removed afterwards.
#[test]
#[ignore = "needs root"]
fn the_demonstration_prints_time_and_loss_of_a_lost_spine() {
    if !frr_is_missing() {
        undisturbed(demonstration);
    }
}

fn demonstration() {
    let lab = Lab { name: format!("t{}-bgpdemo", std::process::id()) };
    let output = srv6d(&["lab", "demo", "--routing", "bgp", "--name", &lab.name]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}{}", text(&output.stderr));
    for part in ["BGP has converged on:", "via inet6 fe80:", "links down; the others go round it after"] {
        assert!(shown.contains(part), "{part:?} is not in:\n{shown}");
    }
    let table: Vec<Vec<&str>> = shown
        .lines()
        .skip_while(|line| !line.starts_with("WHAT HAPPENS"))
        .take_while(|line| !line.is_empty())
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    assert_eq!(table.len(), 1 + 2 * 3, "{shown}");
    assert_eq!(table[0][3..7], ["IPv6 IN SRV6", "IPv4 IN SRV6", "IPv6 PLAIN", "IPv4 PLAIN"]);
    let lost = |row: &[&str]| -> u64 { row[3..7].iter().map(|cell| cell.parse::<u64>().unwrap()).sum() };
    let sent = |row: &[&str]| -> u64 { row[2].parse().unwrap() };
    let rings = |row: &[&str]| -> u64 { row[8].parse().unwrap() };
    for pair in table[1..].chunks(2) {
        assert_eq!(pair[1][0], "returns", "{shown}");
        // A busy machine loses little, apart from packets that its workers had no time for. A spine that attracts
        // traffic without forwarding it would cost a third.
        let counted = lost(&pair[1]).saturating_sub(rings(&pair[1]));
        assert!(counted * 5 <= sent(&pair[1]), "the return of a spine costs nothing: {shown}");
    }
    // Nothing reports that a frozen spine is gone until the hold time is over. Its XDP programs forward meanwhile; workers
    // would lose a quarter of all packets.
    let frozen = &table[5];
    assert!(lost(frozen) * 10 <= sent(frozen), "the programs of a frozen spine forward: {shown}");
    assert!(lab.namespaces().is_empty());
}
