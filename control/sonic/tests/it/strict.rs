//! Tests rows that SONiC's YANG models and its daemons accept or refuse. Strict reading decides in the same way;
//! tolerant reading is checked for what it makes of refused rows.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use srv6d_sonic::{Severity, Switch, read};

const LOCATOR: &str = r#""MAIN": {"prefix": "FD70:7:20::"}"#;
const PORT: &str = r#""Ethernet0": {"lanes": "65", "speed": "25000", "mtu": "9000", "admin_status": "up"}"#;

fn file(locators: &str, sids: &str) -> String {
    format!(
        r#"{{"PORT": {{{PORT}}}, "INTERFACE": {{"Ethernet0": {{}}}}, "VRF": {{"Vrf1": {{}}}},
            "SRV6_MY_LOCATORS": {{{locators}}}, "SRV6_MY_SIDS": {{{sids}}}}}"#
    )
}

/// Checks that strict reading accepts the rows, as SONiC does.
fn taken(locators: &str, sids: &str) -> Switch {
    let text = file(locators, sids);
    read(Some(&text), None, None, true).unwrap_or_else(|findings| panic!("{text}\n{findings:?}")).switch
}

/// Checks that strict reading refuses the rows, as SONiC does, with these words. Returns how many SIDs tolerant reading
/// keeps.
fn refused(locators: &str, sids: &str, words: &[&str]) -> usize {
    let text = file(locators, sids);
    let findings = read(Some(&text), None, None, true).unwrap_err();
    let errors: Vec<String> =
        findings.iter().filter(|finding| finding.severity == Severity::Error).map(ToString::to_string).collect();
    for word in words {
        assert!(errors.iter().any(|error| error.contains(word)), "{word:?} is not in {errors:?}");
    }
    read(Some(&text), None, None, false).unwrap().switch.sids.len()
}

#[test]
fn a_locator_with_two_sids() {
    let switch =
        taken(LOCATOR, r#""MAIN|FD70:7:20::/48": {"action": "uN"}, "MAIN|FD70:7:20:F1::/64": {"action": "uDT46"}"#);
    assert_eq!(switch.sids.len(), 2);
    let locator = &switch.locators[0];
    assert_eq!((locator.block_len, locator.node_len, locator.func_len, locator.arg_len), (32, 16, 16, 0));
    assert_eq!(locator.prefix.to_string(), "fd70:7:20::/48");
}

#[test]
fn lengths_of_more_than_128_bits() {
    let locator = r#""MAIN": {"prefix": "fd70:7:20::", "func_len": "127"}"#;
    assert_eq!(refused(locator, r#""MAIN|fd70:7:20::/48": {"action": "uN"}"#, &["175 bits together"]), 1);
    let locator = r#""MAIN": {"prefix": "fd70:7:20::", "func_len": "129"}"#;
    assert_eq!(refused(locator, r#""MAIN|fd70:7:20::/48": {"action": "uN"}"#, &["no number from 0 to 128"]), 1);
    let locator = r#""MAIN": {"prefix": "fd70:7:20::", "block_len": "100", "node_len": "100"}"#;
    assert_eq!(refused(locator, r#""MAIN|fd70:7:20::/48": {"action": "uN"}"#, &["more than 128: left out"]), 0);
}

#[test]
fn a_locator_without_prefix() {
    assert_eq!(refused(r#""MAIN": {}"#, r#""MAIN|fd70:7:20::/48": {"action": "uN"}"#, &["a locator needs one"]), 0);
}

#[test]
fn vrfs_that_do_not_exist() {
    let locator = r#""MAIN": {"prefix": "fd70:7:20::", "vrf": "Vrf9"}"#;
    assert_eq!(refused(locator, r#""MAIN|fd70:7:20::/48": {"action": "uN"}"#, &["Vrf9 is no VRF"]), 1);
    let sid = r#""MAIN|fd70:7:20:f1::/64": {"action": "uDT46", "decap_vrf": "Vrf9"}"#;
    assert_eq!(refused(LOCATOR, sid, &["Vrf9 is missing"]), 1);
    taken(LOCATOR, r#""MAIN|fd70:7:20:f1::/64": {"action": "uDT46", "decap_vrf": "Vrf1"}"#);
    // SONiC's daemon cannot program this SID, but its models accept it.
    taken(LOCATOR, r#""MAIN|fd70:7:20:f1::/64": {"action": "uDT46", "decap_vrf": "default"}"#);
}

#[test]
fn a_locator_that_does_not_exist() {
    assert_eq!(refused(LOCATOR, r#""OTHER|fd70:7:20::/48": {"action": "uN"}"#, &["waits for the locator OTHER"]), 0);
}

#[test]
fn a_sid_without_length() {
    assert_eq!(refused(LOCATOR, r#""MAIN|fd70:7:20::": {"action": "uN"}"#, &["no IPv6 prefix with a length"]), 0);
}

#[test]
fn actions() {
    assert_eq!(refused(LOCATOR, r#""MAIN|fd70:7:20::/48": {}"#, &["action: is not written"]), 0);
    assert_eq!(refused(LOCATOR, r#""MAIN|fd70:7:20::/48": {"action": "End"}"#, &["\"End\" is not known"]), 0);
    assert_eq!(refused(LOCATOR, r#""MAIN|fd70:7:20::/48": {"action": "un"}"#, &["meant: uN"]), 0);
    assert_eq!(refused(LOCATOR, r#""MAIN|fd70:7:20:f1::/64": {"action": "uDT6"}"#, &["management framework"]), 1);
    assert_eq!(
        refused(
            LOCATOR,
            r#""MAIN|fd70:7:20::/48": {"action": "uN", "decap_dscp_mode": "short"}"#,
            &["pipe or uniform"]
        ),
        1
    );
}

#[test]
fn adjacencies() {
    let sid = |fields: &str| format!(r#""MAIN|FD70:7:FE00::/48": {{"action": "uA"{fields}}}"#);
    let switch = taken(LOCATOR, &sid(r#", "interface": "Ethernet0", "adj": "fe80::1""#));
    assert_eq!(switch.sids[0].adjacency, Some("fe80::1".parse().unwrap()));
    assert_eq!(taken(LOCATOR, &sid(r#", "interface": "Ethernet0""#)).sids[0].adjacency, None);
    assert_eq!(refused(LOCATOR, &sid(r#", "adj": "fe80::1""#), &["a uA needs a port"]), 0);
    assert_eq!(refused(LOCATOR, &sid(""), &["a uA needs a port"]), 0);
    assert_eq!(refused(LOCATOR, &sid(r#", "interface": "PortChannel1""#), &["PortChannel1 is no port"]), 1);
    assert_eq!(
        refused(LOCATOR, r#""MAIN|fd70:7:20::/48": {"action": "uN", "adj": "fe80::1"}"#, &["no meaning for uN"]),
        1
    );
}

#[test]
fn where_sids_may_lie() {
    // A uA and a uDT may lie in the block's local range, outside of the locator.
    taken(LOCATOR, r#""MAIN|fd70:7:fe00::/48": {"action": "uA", "interface": "Ethernet0"}"#);
    taken(LOCATOR, r#""MAIN|fd70:7:d046::/48": {"action": "uDT46"}"#);
    assert_eq!(
        refused(LOCATOR, r#""MAIN|fd70:7:21::/48": {"action": "uN"}"#, &["a uN lies in its locator fd70:7:20::/48"]),
        0
    );
    assert_eq!(refused(LOCATOR, r#""MAIN|fd70:8:20::/48": {"action": "uDT46"}"#, &["outside of fd70:7::/32"]), 0);
    assert_eq!(refused(LOCATOR, r#""MAIN|fd70:7::/32": {"action": "uDT46"}"#, &["outside of fd70:7::/32"]), 0);
}

#[test]
fn one_bad_row_does_not_take_the_others_with_it() {
    let sids = r#""MAIN|fd70:7:20::/48": {"action": "uN"}, "OTHER|fd70:7:20:1::/64": {"action": "uDT46"}"#;
    assert_eq!(refused(LOCATOR, sids, &["waits for the locator"]), 1);
}
