//! `srv6d capture` and `srv6d lab capture`: all ports in one file, each packet with its direction and what became of it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::fs::{self, File};
use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use srv6d_pcap::{Packet, read};

use crate::lab_explain::TOPOLOGY;
use crate::support::lab::{Lab, SRV6D};
use crate::support::rig::{CONFIG, Rig, run, text, wait_for};

fn capture(rig: &Rig, file: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(SRV6D);
    command.arg("--socket").arg(rig.socket_of("node")).arg("capture").args(arguments).arg("--write").arg(file);
    let child = command.spawn().unwrap();
    let is_captured = || rig.log("node").contains("packets are being captured");
    wait_for("start of the capture", || is_captured().then_some(()));
    child
}

fn end(mut capture: Child) {
    kill(Pid::from_raw(capture.id().cast_signed()), Signal::SIGINT).unwrap();
    assert!(capture.wait().unwrap().success());
}

fn packets(file: &Path) -> Vec<Packet> {
    let mut packets = Vec::new();
    let whole = read(BufReader::new(File::open(file).unwrap()), "", |packet| {
        packets.push(packet);
        ControlFlow::Continue(())
    });
    whole.unwrap();
    packets
}

/// Returns interface, direction and comment of a packet.
fn described(packet: &Packet) -> (&str, Option<bool>, Option<&str>) {
    (&packet.interface, packet.sent, packet.comment.as_deref())
}

#[test]
#[ignore = "needs root"]
fn every_port_is_seen_with_directions_and_what_became_of_each_packet() {
    let mut rig = Rig::new(1);
    rig.ready(&CONFIG.replace("role = \"fabric\"", "role = \"fabric\"\noffload = \"off\""));
    rig.wait_for_pings();
    let file = rig.file("all.pcapng");
    let all = capture(&rig, &file, &["--filter", "icmp6 and host 2001:db8:b::2"]);
    rig.inside("a", "ping -6 -q -c 3 -i 0.1 2001:db8:b::2");
    rig.output("a", "ping -6 -q -c 1 -t 1 -W 1 2001:db8:b::2");
    end(all);

    let found = packets(&file);
    assert!(found.is_sorted_by_key(|packet| packet.time), "{found:?}");
    let count = |expected| found.iter().filter(|packet| described(packet) == expected).count();
    assert_eq!(count(("eth1", Some(false), Some("sent by eth2"))), 3, "{found:?}");
    assert_eq!(count(("eth2", Some(true), None)), 3, "{found:?}");
    assert_eq!(count(("eth2", Some(false), Some("sent by eth1"))), 3, "{found:?}");
    let refused = "answered with an ICMP error: hop_limit";
    assert_eq!(count(("eth1", Some(false), Some(refused))), 1, "{found:?}");
    if srv6d_netns::has("tshark") {
        let fields = "-T fields -e frame.interface_name -e frame.packet_flags_direction -e frame.comment";
        let said = run(&format!("tshark -n -r {} {fields}", file.display()));
        let lines = text(&said.stdout);
        assert!(lines.lines().any(|line| line.starts_with("eth1") && line.ends_with(refused)), "{lines}");
    } else {
        println!("SKIPPED: tshark is missing");
    }
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_capture_ends_after_enough_packets_and_turns_over_its_files() {
    let mut rig = Rig::new(1);
    rig.ready(&CONFIG.replace("role = \"fabric\"", "role = \"fabric\"\noffload = \"off\""));
    rig.wait_for_pings();
    let file = rig.file("some.pcapng");
    let mut some = capture(&rig, &file, &["eth1", "--direction", "in", "-c", "5"]);
    rig.inside("a", "ping -6 -q -c 10 -i 0.05 2001:db8:b::2");
    assert!(some.wait().unwrap().success());
    let found = packets(&file);
    assert_eq!((found.len(), found.iter().all(|packet| packet.interface == "eth1")), (5, true), "{found:?}");

    let rotated = capture(&rig, &rig.file("ring.pcapng"), &["--file-size", "1", "--files", "2"]);
    wait_for("start of the second capture", || rig.file("ring_00001.pcapng").exists().then_some(()));
    rig.inside("a", "ping -6 -q -c 1200 -s 1400 -i 0.001 2001:db8:b::2");
    let is_turned = || !rig.file("ring_00001.pcapng").exists();
    wait_for("third file", || is_turned().then_some(()));
    end(rotated);
    let files = fs::read_dir(&rig.directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|file| file.to_string_lossy().contains("ring_")).collect();
    files.sort();
    let found: Vec<Packet> = files.iter().flat_map(|file| packets(file)).collect();
    assert!(files.len() == 2 && found.len() > 500 && found.is_sorted_by_key(|packet| packet.time), "{files:?}");

    let said = rig.ask("node", "capture eth1 --filter udpp");
    assert_eq!(said.status.code(), Some(2));
    assert!(text(&said.stderr).contains("not \"udpp\""), "{}", text(&said.stderr));
}

#[test]
#[ignore = "needs root"]
fn a_whole_lab_is_captured_into_one_file() {
    let lab = Lab::up("capture", TOPOLOGY);
    let file = std::env::temp_dir().join(format!("srv6d-{}.pcapng", lab.name));
    let mut child = Command::new(SRV6D)
        .args([
            "lab",
            "capture",
            "--name",
            &lab.name,
            "-c",
            "200",
            "--filter",
            "icmp6 and host fcbb:0:800:1::2",
            "--write",
        ])
        .arg(&file)
        .spawn()
        .unwrap();
    wait_for("packets in the file", || {
        lab.must("host00", &["ping", "-n", "-q", "-c", "3", "-i", "0.05", "fcbb:0:800:1::2"]);
        child.try_wait().unwrap()
    });
    let found = packets(&file);
    fs::remove_file(&file).unwrap();
    assert!(found.len() == 200 && found.is_sorted_by_key(|packet| packet.time), "{found:?}");
    let names: std::collections::BTreeSet<&str> = found.iter().map(|packet| packet.interface.as_str()).collect();
    for name in ["leaf00:eth4", "leaf00:eth2", "spine01:eth1", "spine01:eth2", "leaf01:eth2", "leaf01:eth4"] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
}
