//! Tests mistakes of real files: they are accepted as they were meant and reported once. In strict reading, what SONiC
//! refuses is an error.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use srv6d_sonic::{Finding, Reading, Severity, Switch, read};

/// Reads CONFIG_DB only.
fn config_db(text: &str) -> Reading {
    read(Some(text), None, None, false).unwrap_or_else(|findings| panic!("{text}\n{findings:?}"))
}

/// Reads the text and checks that it causes exactly one finding, which has these words.
fn one_finding(text: &str, severity: Severity, words: &[&str]) -> Switch {
    let reading = config_db(text);
    let Reading { switch, findings } = reading;
    let others: Vec<&Finding> =
        findings.iter().filter(|finding| !finding.what.contains("ports are the interfaces")).collect();
    assert_eq!(others.len(), 1, "{others:?}");
    let shown = others[0].to_string();
    assert_eq!(others[0].severity, severity, "{shown}");
    for word in words {
        assert!(shown.contains(word), "{word:?} is not in {shown:?}");
    }
    let strictly = read(Some(text), None, None, true);
    assert_eq!(strictly.is_err(), severity > Severity::Note, "{strictly:?}");
    switch
}

fn addresses(switch: &Switch, port: usize) -> Vec<String> {
    switch.ports[port].addresses.iter().map(ToString::to_string).collect()
}

#[test]
fn a_blank_at_the_end_of_a_key() {
    let text = r#"{"INTERFACE": {"Ethernet0": {}, "Ethernet0|192.0.2.29/24 ": {}}}"#;
    let switch = one_finding(text, Severity::Tolerated, &["INTERFACE|Ethernet0|192.0.2.29/24", "blanks in its key"]);
    assert_eq!(addresses(&switch, 0), ["192.0.2.29/24"]);
}

#[test]
fn a_blank_at_the_end_of_a_value() {
    let text = r#"{"DEVICE_METADATA": {"localhost": {"hostname": "leaf1 "}}}"#;
    let switch = one_finding(text, Severity::Tolerated, &["DEVICE_METADATA|localhost hostname", "blanks"]);
    assert_eq!(switch.device.hostname.as_deref(), Some("leaf1"));
}

#[test]
fn numbers_instead_of_texts() {
    let text = r#"{"DEVICE_METADATA": {"localhost": {"bgp_asn": 65100}}}"#;
    let switch = one_finding(text, Severity::Note, &["DEVICE_METADATA", "1 values without quotes"]);
    assert_eq!(switch.device.asn, Some(65100));
    // The finding is reported even for a table that nothing here reads.
    one_finding(
        r#"{"BGP_GLOBALS_AF": {"default|ipv6_unicast": {"max_ebgp_paths": 64}}}"#,
        Severity::Note,
        &["BGP_GLOBALS_AF"],
    );
}

#[test]
fn null_scalars_and_empty_lists_where_a_table_belongs() {
    for (value, shown) in [("null", "null"), ("\"\"", "a text"), ("7", "a number"), ("[]", "a list")] {
        let text = format!(r#"{{"VRF": {value}, "INTERFACE": {{"Ethernet0": {{}}}}}}"#);
        let switch = one_finding(&text, Severity::Tolerated, &["config_db.json: VRF", shown]);
        assert!(switch.vrfs.is_empty() && switch.ports[0].routed);
    }
    one_finding(r#"{"NTP_SERVER": null}"#, Severity::Tolerated, &["NTP_SERVER"]);
    let switch =
        one_finding(r#"{"INTERFACE": {"Ethernet0": null}}"#, Severity::Tolerated, &["INTERFACE|Ethernet0", "null"]);
    assert!(switch.ports[0].routed);
    let text = r#"{"LOOPBACK_INTERFACE": {"Loopback0": {"vrf_name": null}}}"#;
    assert_eq!(one_finding(text, Severity::Tolerated, &["vrf_name", "null"]).loopbacks[0].vrf, None);
}

#[test]
fn a_locator_prefix_with_its_length() {
    let text = r#"{"SRV6_MY_LOCATORS": {"MAIN": {"prefix": "fd40:9:101::/48"}}}"#;
    let switch = one_finding(text, Severity::Tolerated, &["SRV6_MY_LOCATORS|MAIN prefix", "has a length"]);
    assert_eq!(switch.locators[0].prefix.to_string(), "fd40:9:101::/48");
    // `show srv6 locators` prints the text as it is written.
    assert_eq!(switch.locators[0].written, "fd40:9:101::/48");
}

#[test]
fn fields_that_nobody_knows() {
    let text = r#"{"SRV6_MY_LOCATORS": {"MAIN": {"prefix": "fd40:9:101::", "argu_len": "48"}}}"#;
    one_finding(text, Severity::Tolerated, &["argu_len", "no field of SRV6_MY_LOCATORS"]);
}

#[test]
fn addresses_in_upper_case_and_with_zeros_in_front() {
    let text = r#"{
        "SRV6_MY_LOCATORS": {"MAIN": {"prefix": "fd40:9:20::"}},
        "SRV6_MY_SIDS": {
            "MAIN|FD40:0009:20::/48": {"action": "uN", "decap_dscp_mode": "uniform"},
            "MAIN|FD40:9:20:0F1::/64": {"action": "uDT46"}
        }
    }"#;
    let switch = one_finding(text, Severity::Note, &["SRV6_MY_SIDS", "2 addresses"]);
    let sids: Vec<String> = switch.sids.iter().map(|sid| sid.prefix.to_string()).collect();
    assert_eq!(sids, ["fd40:9:20::/48", "fd40:9:20:f1::/64"]);
    // SONiC finds the DSCP mode by the text of the key, and would not find it here.
    assert_eq!(switch.sids[0].decap_dscp_mode.unwrap().keyword(), "uniform");
    assert_eq!(switch.sids[0].written, "FD40:0009:20::/48");
}

#[test]
fn loopback_rows_among_the_interfaces() {
    let text = r#"{"INTERFACE": {"Loopback0": {}, "Loopback0|fd40:9:1::1/128": {}},
                   "LOOPBACK_INTERFACE": {"Loopback0": {}, "Loopback0|203.0.113.9/32": {}}}"#;
    let switch = one_finding(text, Severity::Tolerated, &["INTERFACE|Loopback0", "LOOPBACK_INTERFACE"]);
    assert_eq!(switch.loopbacks.len(), 1);
    let addresses: Vec<String> = switch.loopbacks[0].addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["203.0.113.9/32", "fd40:9:1::1/128"]);
    assert_eq!(switch.encapsulation_source, Some("fd40:9:1::1".parse().unwrap()));
    assert!(switch.ports.is_empty());
}

#[test]
fn a_vrf_on_the_row_of_an_address() {
    let text = r#"{"VRF": {"Vrf1": {}},
                   "INTERFACE": {"Ethernet0": {"vrf_name": "Vrf1"}, "Ethernet0|192.0.2.1/24": {"vrf_name": "PUBLIC"}}}"#;
    let switch = one_finding(text, Severity::Tolerated, &["Ethernet0|192.0.2.1/24 vrf_name", "PUBLIC"]);
    assert_eq!(switch.ports[0].vrf.as_deref(), Some("Vrf1"));
    assert_eq!(switch.vrfs.len(), 1);
}

#[test]
fn a_table_of_vrfs_without_rows_and_a_switch_type() {
    let text = r#"{"VRF": {}, "PORT": {}, "DEVICE_METADATA": {"localhost": {"switch_type": "switch"}}}"#;
    assert_eq!(config_db(text).findings, []);
    assert!(read(Some(text), None, None, true).is_ok());
}

#[test]
fn ports_without_state_and_mtu() {
    let text = r#"{"PORT": {"Ethernet0": {"lanes": "25,26,27,28", "speed": "100000"}}}"#;
    let switch = one_finding(text, Severity::Note, &["PORT", "1 ports without admin_status", "down"]);
    let port = &switch.ports[0];
    assert_eq!((port.mtu, port.admin_up, port.speed), (9100, false, 100_000));
}

#[test]
fn more_ports_than_interfaces() {
    let row = |port: u32| {
        format!(r#""Ethernet{}": {{"lanes": "1,2,3,4", "speed": "40000", "admin_status": "up"}}"#, port * 4)
    };
    let rows: Vec<String> = (0..32).map(row).collect();
    let text = format!(r#"{{"PORT": {{{}}}}}"#, rows.join(","));
    let present = ["eth0", "eth1", "Ethernet4", "lo"].map(str::to_owned);
    let Reading { switch, findings } = read(Some(&text), None, Some(&present), false).unwrap();
    let there: Vec<&str> = switch.ports.iter().filter(|port| port.present).map(|port| port.name.as_str()).collect();
    assert_eq!(there, ["Ethernet0", "Ethernet4"], "by either name");
    assert_eq!(findings.len(), 1);
    assert!(findings[0].what.contains("30 of 32 ports have no interface"), "{}", findings[0]);
}

#[test]
fn a_missing_table_of_ports_is_the_interfaces_that_exist() {
    let text = r#"{"INTERFACE": {"Ethernet0": {"ipv6_use_link_local_only": "enable"}, "Ethernet8": {}}}"#;
    let present = ["eth2", "eth1", "eth0", "lo"].map(str::to_owned);
    let Reading { switch, findings } = read(Some(text), None, Some(&present), false).unwrap();
    let ports: Vec<(&str, bool, bool)> =
        switch.ports.iter().map(|port| (port.name.as_str(), port.routed, port.admin_up)).collect();
    assert_eq!(ports, [("Ethernet0", true, true), ("Ethernet4", false, true)]);
    assert!(switch.ports[0].link_local_only);
    assert_eq!(switch.ports[1].lanes, [29, 30, 31, 32]);
    assert!(findings.iter().any(|finding| finding.place.ends_with("INTERFACE|Ethernet8")), "{findings:?}");
    // The interfaces are unknown, so the ports are those that the file mentions.
    assert_eq!(config_db(text).switch.ports.len(), 2);
}

#[test]
fn wires_follow_the_lanes_of_a_port() {
    let text = r#"{"PORT": {"Ethernet0": {"lanes": "1,2,3,4,5,6,7,8", "speed": "400000", "admin_status": "up"},
                            "Ethernet8": {"lanes": "9,10,11,12,13,14,15,16", "speed": "400000", "admin_status": "up"}}}"#;
    assert_eq!(config_db(text).switch.ports[1].wire.as_deref(), Some("eth2"));
    let text = text.replace(",5,6,7,8", "");
    assert_eq!(config_db(&text).switch.ports[1].wire.as_deref(), Some("eth3"));
}

#[test]
fn what_is_no_json_is_an_error_with_its_place() {
    for (text, place) in [("", "config_db.json:1:0"), ("{\n\"PORT\": }", "config_db.json:2:"), ("[]", "config_db.json")]
    {
        let findings = read(Some(text), None, None, false).unwrap_err();
        assert_eq!(findings[0].severity, Severity::Error);
        assert!(findings[0].place.starts_with(place), "{}", findings[0]);
    }
    assert!(read(Some("\u{feff}{}"), None, None, false).is_ok(), "a byte order mark is no mistake");
}

#[test]
fn the_same_finding_is_said_once() {
    let text = r#"{"STATIC_ROUTE": {"a|b|c": {}}, "SRV6_MY_SIDS": {"MAIN|fd40:9::/48": {"action": "uN"}}}"#;
    let findings = config_db(text).findings;
    let mut unique = findings.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), findings.len(), "{findings:?}");
}
