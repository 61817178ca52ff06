//! Tests of edge ports: packets of hosts outside of the domain are encapsulated without workers, but not those to SIDs.
//!
//! ```text
//! a ── to 2001:db8:c::1 ──► eth1, edge  router: encapsulates to fcbb:0:2:1::  eth2, edge ──► b: decapsulates
//! a: decapsulates ◄── eth1, edge  router: encapsulates to fcbb:0:3:1::  eth2, edge ◄── to 2001:db8:e::1 ── b
//! ```

use super::support::rig::{Rig, wait_for};
use super::{STEERED, config, offload, rig, send_to, steering};

/// Another host address of `a`.
const STEERED_BACK: &str = "2001:db8:e::1";

fn edge_config() -> String {
    let back = "[[route]]\nprefix = \"fcbb:0:3::/48\"\nvia = \"2001:db8:a::2\"\nport = \"eth1\"\n\
                [[steer]]\nprefix = \"2001:db8:e::/64\"\npaths = [{ name = \"back\", segments = [\"fcbb:0:3:1::\"] }]\n";
    steering("one").replace("role = \"fabric\"", "role = \"edge\"") + back
}

/// Prepares two hosts that each have an address behind their tunnel, and end the tunnel themselves.
fn two_hosts() -> Rig {
    let rig = rig();
    rig.inside("b", &format!("ip addr add {STEERED}/128 dev lo"));
    rig.inside("a", &format!("ip addr add {STEERED_BACK}/128 dev lo"));
    rig.inside("a", "sysctl -qw net.ipv6.conf.all.seg6_enabled=1 net.ipv6.conf.wire.seg6_enabled=1");
    rig.inside("a", "ip -6 route add fcbb:0:3::/48 encap seg6local action End.DT6 table local dev wire");
    rig
}

/// Makes the next hops of both directions known.
fn neighbors_are_known(rig: &Rig) {
    for host in ["2001:db8:a::2", "2001:db8:b::2"] {
        rig.inside("router", &format!("ping -6 -c 1 -w 20 {host}"));
    }
    let is_ready = |row: &serde_json::Value, host: &str| {
        row.get("address").is_some_and(|address| address == host) && row.get("state").is_some_and(|state| state == "up")
    };
    wait_for("next hops of the program", || {
        let rows = rig.show("neighbors");
        let known = |host| rows.as_array().unwrap().iter().any(|row| is_ready(row, host));
        (known("2001:db8:a::2") && known("2001:db8:b::2")).then_some(())
    });
}

#[test]
#[ignore = "needs root"]
fn two_hosts_on_edge_ports_are_encapsulated_past_the_workers() {
    let mut rig = two_hosts();
    // In this test, `a` sends packets without encapsulation.
    rig.inside("a", "ip -6 route del 2001:db8:b::2");
    rig.ready(&edge_config());
    neighbors_are_known(&rig);
    for (from, to, host, port) in [("a", "b", STEERED, "eth1"), ("b", "a", STEERED_BACK, "eth2")] {
        assert_eq!(offload(&rig, port), (true, String::new()));
        let counted = |rig: &Rig| [rig.counter("offloaded"), rig.port_counter(port, "offloaded")];
        let before = counted(&rig);
        let (sent, wrong) = send_to(&rig, (from, to), host);
        let grown: Vec<u64> = before.iter().zip(counted(&rig)).map(|(before, now)| now - before).collect();
        assert_eq!(wrong, 0, "{from} to {host}");
        assert!(grown.iter().all(|&packets| packets >= sent), "{sent} sent, {grown:?} offloaded");
    }
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_packet_to_a_sid_from_an_edge_port_is_refused_with_and_without_offload() {
    let mut rig = two_hosts();
    rig.ready(&edge_config());
    neighbors_are_known(&rig);
    let without = edge_config().replace("offload = \"xdp\"", "offload = \"off\"");
    for config in [edge_config(), without] {
        std::fs::write(rig.file("node.toml"), config).unwrap();
        assert!(rig.ask("node", "reload").status.success());
        let (offloaded, refused) = (rig.counter("offloaded"), rig.drops("acl_edge"));
        // The kernel of `a` encapsulates these packets to the router's own uN.
        assert!(!rig.output("a", "ping -6 -q -c 5 -i 0.01 -W 1 2001:db8:b::2").status.success());
        wait_for("refused packets", || (rig.drops("acl_edge") >= refused + 5).then_some(()));
        assert_eq!(rig.counter("offloaded"), offloaded, "nothing went past the workers");
    }
    // On a fabric port the same packets are forwarded.
    std::fs::write(rig.file("node.toml"), config()).unwrap();
    assert!(rig.ask("node", "reload").status.success());
    let refused = rig.drops("acl_edge");
    wait_for("answers", || super::offloaded_of_a_few(&rig).1.then_some(()));
    assert_eq!(rig.drops("acl_edge"), refused);
    rig.check_balance();
}

/// Returns whether packets of `a` to the router's SID are answered, how many of them bypassed the workers, and how many
/// were dropped for a reason.
fn shifted(rig: &Rig, reason: &str) -> (bool, u64, u64) {
    let before = rig.drops(reason);
    let (offloaded, answered) = super::offloaded_of_a_few(rig);
    (answered, offloaded, rig.drops(reason) - before)
}

#[test]
#[ignore = "needs root"]
fn who_may_use_sids_and_ports_is_looked_up_in_the_program() {
    let mut rig = two_hosts();
    rig.ready(&config());
    neighbors_are_known(&rig);
    let of_domain = |prefix: &str| config().replace("[node]\n", &format!("[node]\ndomain_sources = [\"{prefix}\"]\n"));
    let of_port = |prefix: &str| {
        config().replace("name = \"eth1\"\n", &format!("name = \"eth1\"\nallowed_sources = [\"{prefix}\"]\n"))
    };
    for (config, reason) in [(of_domain as fn(&str) -> String, "acl_sid"), (of_port, "acl_source")] {
        rig.reload(&config("2001:db8:a::/64"));
        for port in ["eth1", "eth2"] {
            assert_eq!(offload(&rig, port), (true, String::new()), "{reason}");
        }
        let (answered, offloaded, dropped) = wait_for("answers", || Some(shifted(&rig, reason)).filter(|it| it.0));
        assert!(answered && offloaded >= 20 && dropped == 0, "{reason}: {offloaded} offloaded, {dropped} dropped");
        for is_offloaded in ["xdp", "off"] {
            rig.reload(&config("2001:db8:f::/64").replace("\"xdp\"", &format!("\"{is_offloaded}\"")));
            let (answered, offloaded, dropped) = shifted(&rig, reason);
            assert!(!answered && dropped >= 20 && offloaded == 0, "{reason}: {offloaded} offloaded, {dropped} dropped");
        }
    }
    rig.check_balance();
}
