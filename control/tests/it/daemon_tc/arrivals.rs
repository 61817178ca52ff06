//! Tests of a host with one port, whose SIDs decapsulate: its port has no XDP program, and tc programs claim and decapsulate.
//!
//! ```text
//! router: applications ─► srv6d0 ─► tc program ───────────────────────────► eth2 ── b ══ 1400 bytes ══ far: End.DT6
//!         applications ◄─ srv6d0 ◄─ for a SID ─┬─ tc programs at the ingress ◄── eth2 ── b
//!         the kernel   ◄───────── not claimed ─┤
//!         worker       ◄─ srv6d0 ◄─────claimed ┘ with a tag that names eth2
//! ```
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use super::{
    arrived, had, merged, receiving, receiving_rig, wait_until_delivered, wait_until_tc_serves,
    what_arrives_survives_a_kill,
};
use crate::daemon_path_mtu::{self, Far, learned};
use crate::support::rig::{CONFIG, Rig, end, number, report, text, wait_for};
use crate::support::wire::{Wire, ethernet, ipv6, mac};

/// Returns the configuration without its port `eth1`.
fn one_port(config: &str) -> String {
    let one_port = config.replace("[[port]]\nname = \"eth1\"\nrole = \"fabric\"\n", "");
    assert_ne!(one_port, config);
    one_port
}

/// Returns the configuration of a node with one port, with `further` entries.
fn config(further: &str) -> String {
    one_port(&format!("[host]\nengine = \"tc\"\n{CONFIG}{}{further}", daemon_path_mtu::STEERED))
}

/// A SID that does not decapsulate.
const SHIFT: &str = "[[sid]]\nsid = \"fcbb:0:1::/48\"\nbehavior = \"uN\"\n";

/// Returns how packets come in on the port: `tc`, or the mode of the XDP program.
fn mode(rig: &Rig) -> String {
    let ports = rig.show("ports");
    let port = ports.as_array().unwrap().iter().find(|row| row.get("name").unwrap() == "eth2").unwrap();
    port.get("mode").unwrap().as_str().unwrap_or("-").to_owned()
}

fn wait_for_mode(rig: &Rig, wanted: &str) {
    wait_for(wanted, || (mode(rig) == wanted && rig.is_kernels("eth2") == (wanted == "tc")).then_some(()));
}

#[test]
#[ignore = "needs root"]
fn a_host_without_sids_has_no_xdp_program_and_its_workers_get_what_is_claimed() {
    let mut rig = Rig::new(1);
    let _far = Far::behind_b(&rig);
    rig.ready(&config(""));
    wait_until_tc_serves(&rig);
    wait_for_mode(&rig, "tc");
    let shown = text(&rig.ask("node", "show ports").stdout);
    assert!(shown.contains("tc programs at its ingress, as what arrives on a host is for the host itself"), "{shown}");

    // What the kernel has of a stream of applications passes the worker both ways.
    let had_before = had(&rig);
    let (sent, received) = rig.tcp("router", "far", "[2001:db8:c::1]:7001");
    assert_eq!(sent, received);
    // The report about an outer packet came to the worker, through the own veth and counted at the port.
    assert_eq!(learned(&rig), Some(1400));
    let now = had(&rig);
    assert!(now[0] - had_before[0] > 2500 && now[1] - had_before[1] < 5, "{had_before:?}, {now:?}");
    let reports = rig.port_counter("eth2", "rx_packets");
    assert!((1..100).contains(&reports), "{reports}");

    // Claimed by a steered prefix: encapsulated by the worker, and sent back to where it came from.
    let before = rig.port_counter("eth2", "tx_packets");
    rig.inside("b", "ping -6 -c 3 -i 0.2 -w 10 2001:db8:c::1");
    assert_eq!(rig.port_counter("eth2", "rx_packets"), reports + 3);
    assert_eq!(rig.port_counter("eth2", "tx_packets"), before + 3);

    // Claimed by the block: refused, with the port in its place.
    rig.output("b", "ping -6 -c 2 -i 0.2 -W 1 fcbb:0:77::1");
    let shown = text(&rig.ask("node", "show drops").stdout);
    assert!(shown.contains("eth2"), "{shown}");
    assert_eq!(rig.port_counter("eth2", "rx_packets"), reports + 5);
    rig.check_balance();
    let log = rig.log("node");
    assert!(!log.contains("WARN"), "{log}");
}

#[test]
#[ignore = "needs root"]
fn the_xdp_program_comes_with_a_sid_that_shifts_and_goes_with_it_under_traffic() {
    let mut rig = Rig::new(1);
    let _far = Far::behind_b(&rig);
    rig.inside("b", "ip -6 route add fcbb:0:1::/48 via 2001:db8:b::1");
    rig.ready(&config(""));
    wait_until_tc_serves(&rig);
    let receiver = rig.receiver("router", "udp", "[2001:db8:b::1]:7092");
    let mut sender = rig.stream("b", "[2001:db8:b::1]:7092", 2000);
    for (further, wanted) in [(SHIFT, "native"), ("", "tc"), (SHIFT, "native"), ("", "tc")] {
        rig.reload(&config(further));
        wait_for_mode(&rig, wanted);
        let (sent, arrived) = rig.tcp("router", "far", "[2001:db8:c::1]:7003");
        assert_eq!(sent, arrived, "{wanted}");
    }
    end(&mut sender);
    let report = report(&receiver.wait_with_output().unwrap().stdout);
    assert_eq!([number(&report, "lost"), number(&report, "duplicated")], [0; 2], "of {}", number(&report, "sent"));
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn what_sids_deliver_is_decapsulated_as_merged_and_counted_as_sent() {
    let mut rig = receiving_rig();
    rig.ready(&one_port(&receiving("tc")));
    wait_for_mode(&rig, "tc");
    wait_until_delivered(&rig);
    // Without checksums of its own, b cuts the streams, and GRO of the port merges them. With them, they come whole.
    for (gro, tx) in [("on", "off"), ("on", "on"), ("off", "on")] {
        rig.inside("router", &format!("ethtool -K eth2 gro {gro}"));
        rig.inside("b", &format!("ethtool -K wire tx {tx}"));
        for to in ["[2001:db8:e::1]:7090", "10.8.0.1:7090"] {
            let (before, seen) = (arrived(&rig), merged(&rig));
            let (sent, received) = rig.tcp("b", "router", to);
            assert_eq!(sent, received, "{to}, gro {gro}, tx {tx}");
            let (now, seen) = (arrived(&rig), merged(&rig) - seen);
            let by_tc = now[0] - before[0];
            assert!(by_tc > 2500 && now[1] - before[1] < 5, "{to}, gro {gro}, tx {tx}: {before:?}, {now:?}");
            let is_v6 = to.starts_with('[');
            assert!(!is_v6 || seen > 50 && seen < by_tc / 2, "{to}, gro {gro}, tx {tx}: {seen} of {by_tc}");
        }
    }
    rig.check_balance();
    let log = rig.log("node");
    assert!(!log.contains("WARN"), "{log}");
}

#[test]
#[ignore = "needs root"]
fn a_stream_survives_a_killed_srv6d_by_the_kernels_route() {
    what_arrives_survives_a_kill(&one_port(&receiving("tc")), |rig| wait_for_mode(rig, "tc"));
}

/// Somebody on the wire who knows how tags name ports between the tc program and the workers.
#[test]
#[ignore = "needs root"]
fn a_tag_on_the_wire_names_no_port() {
    let mut rig = Rig::new(1);
    rig.ready(&config(""));
    wait_for_mode(&rig, "tc");
    let (to, from) = (mac(&rig, "router", "eth2"), mac(&rig, "b", "wire"));
    let packet = ipv6("2001:db8:b::2", "fcbb:0:77::1", 59, 64, &[]);
    let received = || ["eth2", "srv6d0-x"].map(|port| rig.port_counter(port, "rx_packets"));
    let before = received();
    let mut wire = Wire::open(&rig, "b", &[]);
    // A tag with VID 0 only carries a priority.
    for vid in [Some(1), Some(2), Some(3), Some(0xe000), None] {
        wire.send(&ethernet(to, from, vid, 0x86dd, &packet));
    }
    wait_for("frames without a VLAN", || (received()[0] >= before[0] + 2).then_some(()));
    assert_eq!(received(), [before[0] + 2, before[1]]);
    rig.check_balance();
}
