//! Tests of the polling modes and port modes: each forwards traffic, and is reported.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use serde_json::Value;
use support::rig::{self, CONFIG, Rig, SRV6D, text};

/// Returns a configuration in which `eth1` and `eth2` have one more key.
fn ports(key: &str) -> String {
    CONFIG
        .replace("name = \"eth1\"", &format!("name = \"eth1\"\n{key}"))
        .replace("name = \"eth2\"", &format!("name = \"eth2\"\n{key}"))
}

fn carries_traffic(rig: &mut Rig, config: &str) -> Value {
    rig.ready(config);
    rig.wait_for_pings();
    for (from, to, address) in [("a", "b", "[2001:db8:b::2]:7050"), ("b", "a", "[2001:db8:a::2]:7051")] {
        let (sent, received) = rig.tcp(from, to, address);
        assert_eq!(sent, received, "{from} to {address}");
    }
    rig.check_balance();
    rig.show("ports").as_array().unwrap().iter().find(|row| row.get("name").unwrap() == "eth1").unwrap().clone()
}

#[test]
#[ignore = "needs root"]
fn busy_polling() {
    let mut rig = Rig::new(1);
    let row = carries_traffic(&mut rig, &CONFIG.replace("[workers]", "[workers]\npolling = \"busy\""));
    assert_eq!(row.get("mode").unwrap(), "native");
    assert_eq!(rig.stop(0, "TERM"), Some(0), "{}", rig.log("node"));
}

/// A veth accepts the budget but does not use it: packets arrive as without, and the port reports it after the first
/// one.
#[test]
#[ignore = "needs root"]
fn busy_budget_on_a_veth() {
    let mut rig = Rig::new(1);
    let row = carries_traffic(&mut rig, &CONFIG.replace("[workers]", "[workers]\nbusy_budget = 64"));
    assert_eq!(row.pointer("/busy_polling/napi_ids").unwrap(), &serde_json::json!([]), "{row}");
    let reason = row.pointer("/busy_polling/reason").and_then(Value::as_str).unwrap();
    assert!(reason.contains("no NAPI"), "{reason}");
    let shown = text(&rig.ask("node", "show ports").stdout);
    assert!(shown.contains("eth1: busy polling: the socket has no NAPI"), "{shown}");
    assert_eq!(rig.stop(0, "TERM"), Some(0), "{}", rig.log("node"));
}

#[test]
#[ignore = "needs root"]
fn generic_mode() {
    let mut rig = Rig::new(1);
    let row = carries_traffic(&mut rig, &ports("mode = \"generic\""));
    assert_eq!(row.get("mode").unwrap(), "generic");
    assert!(row.get("reason").unwrap().as_str().unwrap().contains("generic"), "{row}");
    assert!(rig.inside("router", "ip link show eth1").contains("xdpgeneric"));
    assert_eq!(rig.stop(0, "TERM"), Some(0), "{}", rig.log("node"));
    assert!(rig.is_kernels("eth1"));
}

#[test]
#[ignore = "needs root"]
fn native_mode() {
    let mut rig = Rig::new(1);
    let row = carries_traffic(&mut rig, &ports("mode = \"native\""));
    assert_eq!(row.get("mode").unwrap(), "native");
}

/// Unless it is turned off, a veth passes on checksums that the sender's kernel has left for a NIC to complete.
#[test]
#[ignore = "needs root"]
fn unfinished_checksums_are_finished_where_the_port_says_so() {
    let mut rig = Rig::new(1);
    for host in ["a", "b"] {
        rig.inside(host, "ethtool -K wire tx on");
    }
    carries_traffic(&mut rig, &ports("checksum = \"fill\""));
    for host in ["a", "b"] {
        let wrong = rig.inside(host, "nstat -asz TcpInCsumErrors");
        assert!(wrong.lines().any(|line| line.contains("Csum") && line.contains(" 0 ")), "{wrong}");
    }
}

#[test]
#[ignore = "needs root"]
fn zero_copy_where_there_is_none_is_an_error_with_its_fix() {
    let mut rig = Rig::new(1);
    let daemon = rig.start("node", &ports("mode = \"zero-copy\""));
    assert_eq!(rig.ended(daemon), Some(1), "{}", rig.log("node"));
    let log = rig.log("node");
    assert!(log.contains("error: eth1") && log.contains("`auto`"), "{log}");
    assert!(rig.is_kernels("eth1") && !rig.exists("srv6d0"), "{log}");
}

#[test]
#[ignore = "needs root"]
fn too_few_queues_is_an_error_with_its_fix() {
    let mut rig = Rig::new(1);
    let daemon = rig.start("node", &rig::with_two_workers());
    assert_eq!(rig.ended(daemon), Some(1), "{}", rig.log("node"));
    let log = rig.log("node");
    assert!(log.contains("eth1 has 1 queue(s) for 2 workers") && log.contains("numrxqueues 2"), "{log}");
    assert!(rig.is_kernels("eth1") && !rig.exists("srv6d0"), "{log}");
}

#[test]
#[ignore = "needs root"]
fn the_doctor_sees_the_port_and_its_program() {
    let mut rig = Rig::new(1);
    rig.ready(CONFIG);
    for (socket, found) in [
        (rig.socket_of("node"), "of the srv6d that runs"),
        (rig.socket_of("another"), "(srv6d_claim) is attached, and not by a srv6d that answers"),
    ] {
        let seen = rig.output("router", &format!("{SRV6D} --socket {} doctor eth1", socket.display()));
        let said = text(&seen.stdout);
        assert!(said.contains("eth1: driver: veth") && said.contains(found), "{said}");
        assert_eq!(text(&seen.stderr), "", "no library talks in between");
    }
}
