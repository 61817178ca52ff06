//! Tests of the whole lab with the program itself: up, traffic, status, faults, down.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use support::lab::{Lab, SRV6D, balanced, eventually, gone, srv6d, text};

/// Returns the shipped fabric in which some nodes are plain kernels. The kernel has no uDT4 without a VRF device, so
/// there is no IPv4 in that case.
fn fabric(kernel_nodes: &[&str]) -> String {
    // The paths are those of the file; a controller has separate tests.
    let mut topology = srv6d_lab::FABRIC.replace("[controller]\nprefix = \"2001:db8:ffff::/48\"\n", "");
    for node in kernel_nodes {
        let (before, after) = topology.split_once(&format!("name = \"{node}\"")).unwrap();
        topology = format!("{before}name = \"{node}\"{}", after.replacen("kind = \"srv6d\"", "kind = \"linux\"", 1));
    }
    if !kernel_nodes.is_empty() {
        let kept: Vec<&str> = topology.lines().filter(|line| !line.contains("uDT4") && !line.contains("-v4")).collect();
        topology = kept.join("\n");
    }
    topology
}

/// Two hosts at one leaf. The kernel of host01 forwards nothing.
const SMALL: &str = r#"
name = "small"
block = "fcbb::/32"
host_prefixes = ["fcbb:0:800::/48"]

[[node]]
name = "host00"
role = "host"

[[node]]
name = "host01"
role = "host"
kind = "linux"

[[node]]
name = "leaf00"
role = "leaf"
sids = [{ sid = "fcbb:0:1004::/48", behavior = "uN" }]

[[link]]
ends = [
    { node = "leaf00", port = "eth1", addresses = ["fcbb:0:800::1/64"] },
    { node = "host00", port = "eth1", addresses = ["fcbb:0:800::2/64"] },
]

[[link]]
ends = [
    { node = "leaf00", port = "eth2", addresses = ["fcbb:0:800:1::1/64"] },
    { node = "host01", port = "eth1", addresses = ["fcbb:0:800:1::2/64"] },
]
"#;

/// Returns the command `srv6d lab up` for a small lab with these arguments, and the lab, which may not exist yet.
fn small(test: &str, arguments: &[&str]) -> (Lab, Command) {
    let lab = Lab { name: format!("t{}-{test}", std::process::id()) };
    let file = lab.file();
    fs::write(&file, SMALL).unwrap();
    let mut up = Command::new(SRV6D);
    up.args(["lab", "up", "--name", &lab.name, "--topology", file.to_str().unwrap()]).args(arguments);
    (lab, up)
}

/// Sets whether the kernel of a node answers pings.
fn answer_pings(lab: &Lab, node: &str, answer: bool) -> bool {
    let command = format!("echo {} > /proc/sys/net/ipv6/icmp/echo_ignore_all", u8::from(!answer));
    let netns = format!("srv6d-{}-{node}", lab.name);
    Command::new("ip").args(["netns", "exec", &netns, "sh", "-c", &command]).output().unwrap().status.success()
}

#[test]
#[ignore = "needs root"]
fn a_link_that_answers_late_is_waited_for() {
    let (lab, mut up) = small("late", &[]);
    let mut up = up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("host01 is silent", || answer_pings(&lab, "host01", false));
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("srv6d ready: ")), "{}", text(&up.wait_with_output().unwrap().stderr));
    // This is longer than a single `ping` tries.
    thread::sleep(Duration::from_secs(7));
    assert!(answer_pings(&lab, "host01", true));
    let rest: Vec<String> = lines.collect();
    let output = up.wait_with_output().unwrap();
    fs::remove_file(lab.file()).unwrap();
    assert!(output.status.success(), "{rest:?}{}", text(&output.stderr));
    assert!(rest.contains(&"  2 links answer a ping".to_owned()), "{rest:?}");
}

#[test]
#[ignore = "needs root"]
fn a_lab_that_failed_is_left_to_be_looked_at_with_keep() {
    // The `ethtool` in PATH fails. It is called after the namespaces were made.
    let tools = std::env::temp_dir().join(format!("srv6d-tools-{}", std::process::id()));
    fs::create_dir_all(&tools).unwrap();
    std::os::unix::fs::symlink("/bin/false", tools.join("ethtool")).unwrap();
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    for (arguments, left) in [(&[][..], 0), (&["--keep"][..], 3)] {
        let (lab, mut up) = small("keep", arguments);
        let output = up.env("PATH", &path).output().unwrap();
        fs::remove_file(lab.file()).unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
        assert!(text(&output.stderr).contains("ethtool -K"), "{}", text(&output.stderr));
        assert_eq!(lab.namespaces().len(), left, "{arguments:?}");
        let says = text(&output.stdout).contains(&format!("end it with `srv6d lab down --name {}`", lab.name));
        assert_eq!(says, left > 0, "{}", text(&output.stdout));
        if left > 0 {
            let status = srv6d(&["lab", "status", "--name", &lab.name]);
            assert!(text(&status.stdout).contains("leaf00"), "{}", text(&status.stderr));
            assert!(srv6d(&["lab", "down", "--name", &lab.name]).status.success());
            assert!(lab.namespaces().is_empty());
        }
    }
    fs::remove_dir_all(&tools).unwrap();
}

/// Pings host00 from host01, across leaf00.
fn crosses(lab: &Lab) {
    lab.must("host01", &["ping", "-n", "-c", "1", "-w", "30", "fcbb:0:800::2"]);
}

#[test]
#[ignore = "needs root"]
fn a_killed_node_is_restarted_and_a_lost_one_repaired() {
    let (lab, mut up) = small("again", &[]);
    let output = up.output().unwrap();
    fs::remove_file(lab.file()).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run = |words: &[&str]| srv6d(&[&["lab", words[0], "--name", &lab.name], &words[1..]].concat());
    let works = |words: &[&str]| {
        let output = run(words);
        assert!(output.status.success(), "{words:?}: {}{}", text(&output.stdout), text(&output.stderr));
        assert!(run(&["status"]).status.success(), "{words:?}");
        crosses(&lab);
    };
    let kill = |node: &str| {
        assert!(Command::new("kill").args(["-9", &lab.process_of(node).to_string()]).status().unwrap().success());
        eventually("it is gone", || gone(lab.process_of(node)));
        assert_eq!(run(&["status"]).status.code(), Some(1));
    };

    kill("leaf00");
    works(&["restart", "leaf00"]);
    // A running node is restarted, too.
    let running = lab.process_of("leaf00");
    works(&["restart", "leaf00"]);
    assert!(gone(running));

    // The kernel removes routes together with the links.
    let routes = || lab.must("host00", &["ip", "-6", "route", "show", "metric", "4096"]);
    let before = routes();
    assert!(before.contains("fcbb:0:1004::/48"), "{before}");
    lab.must("host00", &["ip", "link", "set", "eth1", "down"]);
    kill("host00");
    works(&["repair", "host00"]);
    assert_eq!(routes(), before);
    works(&["repair", "host01"]);

    let refused = run(&["restart", "host01"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("srv6d lab repair host01"), "{}", text(&refused.stderr));
    let refused = run(&["repair", "host02"]);
    assert!(text(&refused.stderr).contains("use one of host00, host01, leaf00"), "{}", text(&refused.stderr));
}

fn both_ways(lab: &Lab, first: (&str, &str), last: (&str, &str)) {
    for ((from, _), (to, address)) in [(first, last), (last, first)] {
        lab.must(from, &["ping", "-n", "-c", "3", "-i", "0.2", "-w", "30", address]);
        let (sent, received) = lab.tcp(from, to, address);
        assert_eq!(sent.get("sha256"), received.get("sha256"), "{from} -> {to}");
        assert_eq!(received.get("bytes").unwrap(), 2_000_000);
    }
    for host in [first.0, last.0] {
        let counters = lab.must(host, &["nstat", "-asz", "TcpInCsumErrors", "UdpInCsumErrors"]);
        assert!(counters.lines().filter(|line| line.contains("Csum")).all(|line| line.contains(" 0 ")), "{counters}");
    }
}

#[test]
#[ignore = "needs root"]
fn fabric_carries_both_families_over_the_named_spines_and_leaves_nothing_behind() {
    let lab = Lab::up("all", &fabric(&[]));
    assert_eq!(lab.namespaces().len(), 9);
    let pids = lab.processes();
    assert_eq!(pids.len(), 9);

    both_ways(&lab, ("host00", "fcbb:0:800::2"), ("host02", "fcbb:0:800:2::2"));
    both_ways(&lab, ("host00", "10.200.0.2"), ("host02", "10.200.2.2"));
    // 2 MB are more than 1300 packets. The carriers use spine01 for IPv6, and spine00 for IPv4.
    assert!(lab.sid_packets("spine01", "fcbb:0:1001::/48") > 1300);
    assert!(lab.sid_packets("spine00", "fcbb:0:1000::/48") > 1300);
    assert!(lab.sid_packets("leaf02", "fcbb:0:1006:fe06::/64") > 1300);
    assert!(lab.sid_packets("leaf02", "fcbb:0:1006:fe04::/64") > 1300);
    balanced(&lab, &["host00", "host02", "leaf00", "leaf02", "spine00", "spine01", "spine02"]);

    let status = srv6d(&["lab", "status", "--name", &lab.name]);
    assert!(status.status.success(), "{}", text(&status.stdout));
    assert_eq!(text(&status.stdout).matches(" up ").count(), 9);

    let again = srv6d(&["lab", "up", "--name", &lab.name]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("is up already") && text(&again.stderr).contains("srv6d lab down"));
    assert_eq!(lab.namespaces().len(), 9, "the refused lab harmed nothing");

    let down = srv6d(&["lab", "down", "--name", &lab.name]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    assert!(lab.namespaces().is_empty());
    assert!(pids.iter().all(|pid| gone(*pid)));
    assert!(!Path::new("/run/srv6d-lab").join(&lab.name).exists());
}

/// Returns how many packets XDP programs have forwarded on a node, and how many it has had.
fn offloaded(lab: &Lab, node: &str) -> [u64; 2] {
    let counters: serde_json::Value =
        serde_json::from_str(&lab.must(node, &[SRV6D, "show", "counters", "--json"])).unwrap();
    ["offloaded", "rx"].map(|name| counters[name].as_u64().unwrap())
}

#[test]
#[ignore = "needs root"]
fn the_first_leaf_and_all_other_switches_forward_what_hosts_send_in_their_xdp_programs() {
    const SWITCHES: [&str; 3] = ["leaf00", "spine01", "leaf02"];
    let lab = Lab::up("xdp", &fabric(&[]));
    // Until the next hops are known, workers forward.
    eventually("everything by the XDP programs", || {
        let before = SWITCHES.map(|node| offloaded(&lab, node));
        let report = lab.udp("host00", "host02", "fcbb:0:800:2::2");
        let sent = report["sent"].as_u64().unwrap();
        assert!(sent > 0 && report["lost"].as_u64() == Some(0), "{report}");
        SWITCHES.iter().zip(before).all(|(node, before)| {
            let now = offloaded(&lab, node);
            let [by_program, all] = [now[0] - before[0], now[1] - before[1]];
            println!("{node}: {by_program} of {all} packets in the XDP program, {sent} were sent");
            by_program >= sent
        })
    });
    balanced(&lab, &SWITCHES);
}

#[test]
#[ignore = "needs root"]
fn jumbo_frames_and_datagrams_cross_whole() {
    let lab = Lab::up("mtu", &fabric(&[]).replace("\nmtu = 1500", "\nmtu = 9500"));
    for address in ["fcbb:0:800:2::2", "10.200.2.2"] {
        lab.must("host00", &["ping", "-n", "-c", "3", "-i", "0.2", "-w", "30", "-M", "do", "-s", "9400", address]);
    }
    both_ways(&lab, ("host00", "fcbb:0:800::2"), ("host02", "fcbb:0:800:2::2"));
    both_ways(&lab, ("host00", "10.200.0.2"), ("host02", "10.200.2.2"));
    for address in ["fcbb:0:800:2::2", "10.200.2.2"] {
        let report = lab.udp("host00", "host02", address);
        assert_eq!(report.get("lost").unwrap(), 0, "{report}\n{}", lab.losses());
        assert_eq!(report.get("duplicated").unwrap(), 0, "{report}");
        assert!(report.get("received").unwrap().as_u64().unwrap() > 100, "{report}");
    }
    balanced(&lab, &["host00", "leaf00", "spine01", "leaf02", "host02"]);
}

#[test]
#[ignore = "needs root"]
fn too_big_for_the_encapsulation_is_told_to_the_application() {
    let lab = Lab::up("pmtu", &fabric(&[]));
    // 1500 - 40 of the outer header = 1460 = 20 + 8 + 1432 (IPv4) = 40 + 8 + 1412 (IPv6).
    for (address, fits) in [("10.200.2.2", 1432), ("fcbb:0:800:2::2", 1412)] {
        let size = |size: u32| size.to_string();
        let ping = |size: &str| {
            lab.exec("host00", &["ping", "-n", "-c", "2", "-i", "0.2", "-w", "5", "-M", "do", "-s", size, address])
        };
        assert!(ping(&size(fits)).status.success(), "{fits} bytes to {address}");
        let refused = ping(&size(fits + 1));
        let said = text(&refused.stdout) + &text(&refused.stderr);
        assert!(!refused.status.success() && said.contains("1460"), "{said}");
    }
    balanced(&lab, &["host00", "leaf00", "spine00", "spine01", "leaf02", "host02"]);
}

/// The kernel fragments a datagram so that the fragments fit with the outer header, although it has not learned the
/// path MTU before.
#[test]
#[ignore = "needs root"]
fn a_datagram_that_the_kernel_fragments_arrives() {
    let lab = Lab::up("frag", &fabric(&[]));
    lab.must("host00", &["ping", "-n", "-c", "2", "-i", "0.2", "-w", "30", "10.200.2.2"]);
    let report = lab.udp_of("3000", "host00", "host02", "10.200.2.2");
    let number = |key: &str| report.get(key).and_then(serde_json::Value::as_u64);
    assert_eq!((number("lost"), number("received")), (Some(0), number("sent")), "{report}\n{}", lab.losses());
    balanced(&lab, &["host00", "leaf00", "leaf02", "host02"]);
}

#[test]
#[ignore = "needs root"]
fn kernel_can_be_the_sender() {
    let lab = Lab::up("ks", &fabric(&["host00"]));
    both_ways(&lab, ("host00", "fcbb:0:800::2"), ("host02", "fcbb:0:800:2::2"));
    balanced(&lab, &["leaf00", "spine01", "leaf02", "host02"]);
}

#[test]
#[ignore = "needs root"]
fn kernel_can_be_the_middle() {
    let lab = Lab::up("km", &fabric(&["spine00", "spine01", "spine02"]));
    both_ways(&lab, ("host00", "fcbb:0:800::2"), ("host02", "fcbb:0:800:2::2"));
    let routes = lab.must("spine01", &["ip", "-6", "-s", "route", "show", "fcbb:0:1001::/48"]);
    assert!(!routes.contains("packets 0 "), "{routes}");
    balanced(&lab, &["host00", "leaf00", "leaf02", "host02"]);
}

#[test]
#[ignore = "needs root"]
fn kernel_can_be_the_receiver() {
    let lab = Lab::up("kr", &fabric(&["leaf02", "host02"]));
    both_ways(&lab, ("host00", "fcbb:0:800::2"), ("host02", "fcbb:0:800:2::2"));
    balanced(&lab, &["host00", "leaf00", "spine01", "spine02"]);
}

/// The control experiment: if it fails, the other combinations prove nothing about srv6d.
#[test]
#[ignore = "needs root"]
fn kernel_can_be_everything() {
    let nodes = ["host00", "host01", "host02", "leaf00", "leaf01", "leaf02", "spine00", "spine01", "spine02"];
    let lab = Lab::up("kk", &fabric(&nodes));
    assert!(nodes.iter().all(|node| !lab.must(node, &["ip", "link"]).contains("srv6d0")), "no srv6d runs");
    both_ways(&lab, ("host00", "fcbb:0:800::2"), ("host02", "fcbb:0:800:2::2"));
    let routes = lab.must("spine01", &["ip", "-6", "-s", "route", "show", "fcbb:0:1001::/48"]);
    assert!(!routes.contains("packets 0 "), "by the spine that the carrier names: {routes}");
}

#[test]
#[ignore = "needs root"]
fn traffic_goes_on_through_the_kernel_when_the_senders_srv6d_is_killed() {
    let lab = Lab::up("kill", &fabric(&[]));
    let ping = ["ping", "-n", "-c", "1", "-w", "2", "fcbb:0:800:2::2"];
    lab.must("host00", &ping);
    let pid = *lab.processes().first().unwrap();
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    eventually("host00 is reached without its srv6d", || lab.exec("host00", &ping).status.success());
    let spine = lab.sid_packets("spine01", "fcbb:0:1001::/48");
    lab.must("host00", &ping);
    assert!(lab.sid_packets("spine01", "fcbb:0:1001::/48") > spine, "inside SRv6, by the kernel's own route");
    balanced(&lab, &["leaf00", "spine01", "leaf02", "host02"]);
    let status = srv6d(&["lab", "status", "--name", &lab.name]);
    assert_eq!(status.status.code(), Some(1));
    assert!(text(&status.stdout).contains("down"), "{}", text(&status.stdout));
}

#[test]
#[ignore = "needs root"]
fn interrupted_demo_leaves_nothing_behind() {
    let lab = Lab { name: format!("t{}-int", std::process::id()) };
    let mut demo = Command::new(SRV6D)
        .args(["lab", "demo", "--name", &lab.name])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = String::new();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    while !seen.contains("3. TCP") {
        seen += &(lines.next().unwrap_or_else(|| panic!("the demonstration ended: {seen}")).unwrap() + "\n");
    }
    assert_eq!(lab.namespaces().len(), 10, "nine nodes and the controller");
    let pids = lab.processes();
    assert!(Command::new("kill").args(["-INT", &demo.id().to_string()]).status().unwrap().success());
    for _ in lines {}
    let output = demo.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("interrupted"), "{}", text(&output.stderr));
    assert!(lab.namespaces().is_empty());
    assert!(pids.iter().all(|pid| gone(*pid)));
    assert!(!Path::new("/run/srv6d-lab").join(&lab.name).exists());
}

#[test]
#[ignore = "needs root"]
fn demonstration_shows_every_part() {
    let name = format!("t{}-demo", std::process::id());
    let lab = Lab { name };
    let output = srv6d(&["lab", "demo", "--name", &lab.name]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}{}", text(&output.stderr));
    for part in
        ["IPv6 pings from host00", "IPv4 pings from host00", "every byte right", "lost 0, duplicated 0", "none lost"]
    {
        assert!(shown.contains(part), "{part:?} is not in:\n{shown}");
    }
    // On a machine that is too busy the runs of the job have no result, and the demonstration goes on.
    let is_valid = shown.contains("  * the same all-reduce over links of 5Mbit/s: hashed ");
    assert!(is_valid || shown.contains("this machine was too busy, so this is no result"), "{shown}");
    assert!(shown.contains("  hashed ................ ") && shown.contains("  placed ................ "), "{shown}");
    assert!(!shown.contains('\x1b'), "no colours without a terminal");
    assert!(lab.namespaces().is_empty());
}

#[test]
#[ignore = "needs root"]
fn refused_topology_and_failed_start_leave_nothing_behind() {
    let lab = Lab { name: format!("t{}-bad", std::process::id()) };
    // No link leads to the first segment.
    let file = lab.file();
    fs::write(&file, fabric(&[]).replace("\"fcbb:0:1004:1001:1006:fe06::\"", "\"fcbb:0:9999::\"")).unwrap();
    let output = srv6d(&["lab", "up", "--topology", file.to_str().unwrap(), "--name", &lab.name]);
    fs::remove_file(&file).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no link leads to its first segment fcbb:0:9999::"));
    assert!(lab.namespaces().is_empty());

    // A foreign namespace has the name of a node. Namespaces that were made before it are deleted, but it stays.
    let foreign = format!("srv6d-{}-spine02", lab.name);
    assert!(Command::new("ip").args(["netns", "add", &foreign]).status().unwrap().success());
    let output = srv6d(&["lab", "up", "--name", &lab.name]);
    let left = lab.namespaces();
    assert!(Command::new("ip").args(["netns", "del", &foreign]).status().unwrap().success());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(&foreign), "{}", text(&output.stderr));
    assert_eq!(left.len(), 1, "{left:?}");
}
