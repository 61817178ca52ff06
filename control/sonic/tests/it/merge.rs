//! Tests the merging of the two files: an entry in both counts once, and for a contradiction both places are named.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use srv6d_sonic::{DscpMode, Finding, Origin, Reading, Severity, Target, read};

const FRR: &str = "segment-routing\nsrv6\nlocators\nlocator MAIN\nprefix fd90:9:1::/48 block-len 32 node-len 16 func-bits 16\n\
                   static-sids\nsid fd90:9:1::/48 locator MAIN behavior uN\n\
                   sid fd90:9:fe04::/48 locator MAIN behavior uA interface Ethernet4\n\
                   sid fd90:9:d046::/48 locator MAIN behavior uDT46 vrf default\n";

fn config_db(sids: &str, rest: &str) -> String {
    format!(
        r#"{{"INTERFACE": {{"Ethernet0": {{}}, "Ethernet4": {{}}}}, "VRF": {{"Vrf1": {{}}, "Vrf2": {{}}}},
            "SRV6_MY_LOCATORS": {{"MAIN": {{"prefix": "fd90:9:1::"}}}}, "SRV6_MY_SIDS": {{{sids}}}{rest}}}"#
    )
}

fn both(sids: &str, rest: &str, frr: &str) -> Result<Reading, Vec<Finding>> {
    read(Some(&config_db(sids, rest)), Some(frr), None, false)
}

fn contradiction(sids: &str, words: &[&str]) {
    let findings = both(sids, "", FRR).unwrap_err();
    let errors: Vec<&Finding> = findings.iter().filter(|finding| finding.severity == Severity::Error).collect();
    assert_eq!(errors.len(), 1, "{findings:?}");
    let shown = errors[0].to_string();
    assert!(shown.contains("config_db.json: SRV6_MY_SIDS|MAIN|") && shown.contains("frr.conf:"), "{shown}");
    for word in words {
        assert!(shown.contains(word), "{word:?} is not in {shown}");
    }
}

#[test]
fn the_same_sid_of_both_is_one_with_what_config_db_adds() {
    let sids = r#""MAIN|FD90:9:1::/48": {"action": "uN", "decap_dscp_mode": "uniform"},
                  "MAIN|fd90:9:fe04::/48": {"action": "uA", "interface": "Ethernet4", "adj": "fe80::2"},
                  "MAIN|fd90:9:d046::/48": {"action": "uDT46"}, "MAIN|fd90:9:d047::/48": {"action": "uDT46", "decap_vrf": "Vrf1"}"#;
    let switch = both(sids, "", FRR).unwrap().switch;
    let origins: Vec<Origin> = switch.sids.iter().map(|sid| sid.origin).collect();
    assert_eq!(origins, [Origin::Both, Origin::Both, Origin::Both, Origin::ConfigDb]);
    assert_eq!(switch.sids[0].decap_dscp_mode, Some(DscpMode::Uniform));
    assert_eq!(switch.sids[1].adjacency, Some("fe80::2".parse().unwrap()));
    assert_eq!(switch.locators.len(), 1);
    assert_eq!(switch.locators[0].origin, Origin::Both);
}

#[test]
fn contradictions_name_both_places() {
    contradiction(
        r#""MAIN|fd90:9:1::/48": {"action": "uDT46"}"#,
        &["action uDT46 here, uN in frr.conf:7", "make them the same"],
    );
    contradiction(
        r#""MAIN|fd90:9:fe04::/48": {"action": "uA", "interface": "Ethernet0"}"#,
        &["port Ethernet0 here, Ethernet4 in frr.conf:8"],
    );
    contradiction(
        r#""MAIN|fd90:9:d046::/48": {"action": "uDT46", "decap_vrf": "Vrf1"}"#,
        &["VRF Vrf1 here, default in frr.conf:9"],
    );
}

#[test]
fn two_locators_of_one_name_must_be_the_same() {
    let findings = both("", "", &FRR.replace("fd90:9:1::/48 block", "fd90:9:2::/48 block")).unwrap_err();
    let shown: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(
        shown.iter().any(|line| line.contains("SRV6_MY_LOCATORS|MAIN") && line.contains("frr.conf:5")),
        "{shown:?}"
    );
}

#[test]
fn a_sid_may_stand_under_a_locator_of_the_other_file() {
    let config_db = r#"{"SRV6_MY_SIDS": {"MAIN|fd90:9:1:7::/64": {"action": "uDT46"}}}"#;
    let switch = read(Some(config_db), Some(FRR), None, false).unwrap().switch;
    assert!(switch.sids.iter().any(|sid| sid.prefix.to_string() == "fd90:9:1:7::/64"));
}

#[test]
fn next_hops_of_both_files_are_legs_of_one_route() {
    let rest = r#", "STATIC_ROUTE": {"default|fd90:9:5::/48": {"nexthop": "fe80::1,fe80::2", "ifname": "Ethernet0,Ethernet4"}}"#;
    let frr = "ipv6 route fd90:9:5::/48 fe80::2 Ethernet4\nipv6 route fd90:9:5::/48 fe80::3 Ethernet4\n";
    let switch = both("", rest, frr).unwrap().switch;
    let Target::Hops(hops) = &switch.routes[0].target else { panic!("{:?}", switch.routes) };
    assert_eq!((hops.len(), switch.routes.len(), switch.routes[0].origin), (3, 1, Origin::Both));
}

#[test]
fn lists_of_a_static_route() {
    let rest = r#", "STATIC_ROUTE": {
        "fd90:9:a::/48": {"nexthop": "::,fe80::2", "ifname": "Ethernet0,Ethernet4", "distance": "0,0"},
        "Vrf1|0.0.0.0/0": {"nexthop": "192.0.2.1", "nexthop-vrf": "default"},
        "default|fd90:9::/32": {"blackhole": "true", "nexthop": "fe80::1", "ifname": "Ethernet0"},
        "default|fd90:9:b::/48": {"nexthop": "fe80::1,fe80::2", "ifname": "Ethernet0"},
        "default|fd90:9:c::/48": {"nexthop": "fe80::1,fe80::2", "ifname": "Ethernet0,Ethernet4", "distance": "10,20"},
        "default|nonsense": {"nexthop": "fe80::1"}, "default|fd90:9:d::/48": {}}"#;
    let Reading { switch, findings } = both("", rest, "").unwrap();
    let hops = |n: usize| match &switch.routes[n].target {
        Target::Hops(hops) => hops.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!((hops(0)[0].via, hops(0)[0].interface.as_deref()), (None, Some("Ethernet0")));
    assert_eq!(switch.routes[1].vrf.as_deref(), Some("Vrf1"));
    assert_eq!(hops(1)[0].vrf, None, "the next hop's VRF is the default one");
    assert_eq!(switch.routes[2].target, Target::Blackhole);
    assert_eq!(hops(3).len(), 2);
    assert_eq!((hops(4).len(), switch.routes[4].distance), (1, 10));
    assert_eq!(switch.routes.len(), 5);
    let whats: Vec<&str> = findings.iter().map(|finding| finding.what.as_str()).collect();
    for words in
        ["lists of different lengths", "no prefix", "neither nexthop nor ifname", "distance 20 is behind one of 10"]
    {
        assert!(whats.iter().any(|what| what.contains(words)), "{words:?} is not in {whats:?}");
    }
}

#[test]
fn the_source_of_encapsulations() {
    let loopback =
        r#", "LOOPBACK_INTERFACE": {"Loopback0": {}, "Loopback0|203.0.113.1/32": {}, "Loopback0|fd90:9:1::1/128": {}}"#;
    let source = |rest: &str, frr: &str| both("", rest, frr).unwrap().switch.encapsulation_source.unwrap().to_string();
    assert_eq!(source(loopback, ""), "fd90:9:1::1");
    let written = format!(r#"{loopback}, "SRV6_MY_SOURCE": {{"tunnel-source": {{"source-address": "FD90:9:1::2"}}}}"#);
    assert_eq!(source(&written, ""), "fd90:9:1::2");
    let frr = "segment-routing\nsrv6\nencapsulation\nsource-address fd90:9:1::3\n";
    assert_eq!(source(&written, frr), "fd90:9:1::3");
    let findings = both("", &written, frr).unwrap().findings;
    assert!(findings.iter().any(|finding| finding.what.contains("fd90:9:1::2 here and fd90:9:1::3")), "{findings:?}");
}

#[test]
fn vrfs_have_tables_in_the_order_of_the_file_and_unwritten_ones_behind() {
    let frr = "vrf Vrf7\n ipv6 route fd90:9:5::/48 fe80::2 Ethernet4\n";
    let Reading { switch, findings } = both("", "", frr).unwrap();
    let vrfs: Vec<(&str, u32, bool)> =
        switch.vrfs.iter().map(|vrf| (vrf.name.as_str(), vrf.table, vrf.in_config_db)).collect();
    assert_eq!(vrfs, [("Vrf1", 1001, true), ("Vrf2", 1002, true), ("Vrf7", 1003, false)]);
    assert!(findings.iter().any(|finding| finding.what.contains("Vrf7 is missing")), "{findings:?}");
    assert_eq!(
        (switch.table(Some("Vrf7")), switch.table(None), switch.table(Some("vrfdefault"))),
        (Some(1003), Some(254), Some(254))
    );
}

#[test]
fn vlans_neighbours_and_counters() {
    let text = r#"{
        "INTERFACE": {"Ethernet0": {}},
        "PORT": {"Ethernet0": {"lanes": "1", "speed": "40000", "admin_status": "up"}, "Ethernet1": {"lanes": "2", "speed": "40000", "admin_status": "up"}},
        "VLAN": {"Vlan60": {"vlanid": "60"}, "Vlan61": {}, "Vlan62": {"vlanid": "7"}},
        "VLAN_MEMBER": {"Vlan60|Ethernet1": {"tagging_mode": "untagged"}, "Vlan61|Ethernet1": {"tagging_mode": "tagged"}, "Vlan60|Ethernet9": {}},
        "VLAN_INTERFACE": {"Vlan60": {"vrf_name": "default"}, "Vlan60|2001:db8:60::1/64": {}},
        "NEIGH": {"Ethernet0|2001:db8::2": {"neigh": "02:00:00:00:00:02"}, "Ethernet0|2001:db8::3": {"neigh": "ff:ff:ff:ff:ff:ff"}},
        "FLEX_COUNTER_TABLE": {"SRV6": {"FLEX_COUNTER_STATUS": "enable", "POLL_INTERVAL": "1000"}}
    }"#;
    let Reading { switch, findings } = read(Some(text), None, None, false).unwrap();
    let vlans: Vec<(u16, usize, bool)> =
        switch.vlans.iter().map(|vlan| (vlan.id, vlan.members.len(), vlan.routed)).collect();
    assert_eq!(vlans, [(60, 1, true), (61, 1, false)]);
    assert!(switch.vlans[1].members[0].tagged);
    assert_eq!(switch.neighbors.len(), 1);
    assert!(switch.sid_counters.enabled);
    assert_eq!(switch.sid_counters.interval, Some(1000));
    // Vlan62 does not have the ID 7, Ethernet9 is no port, and a broadcast address belongs to no station (two findings:
    // the value, and the row).
    assert_eq!(findings.iter().filter(|finding| finding.severity > Severity::Note).count(), 4, "{findings:?}");
    // With one lane per port, the second port is the second wire.
    assert_eq!(switch.port("eth2").unwrap().name, "Ethernet1");
}
