//! Formats `show srv6 locators|static-sids|stats`.

use srv6d_sonic::{Sid, Switch};

use super::NOT_AVAILABLE;
use crate::{Align, Table, natural};

/// Formats `show srv6 locators [NAME]`.
pub fn locators(switch: &Switch, name: Option<&str>) -> String {
    let mut table = Table::new(&["Locator", "Prefix", "Block Len", "Node Len", "Func Len"], Align::Auto);
    let mut locators: Vec<_> =
        switch.locators.iter().filter(|known| name.is_none_or(|name| known.name == name)).collect();
    locators.sort_by(|a, b| natural::compare(&a.name, &b.name));
    for locator in locators {
        let lengths = [locator.block_len, locator.node_len, locator.func_len].map(|bits| bits.to_string());
        table.row([locator.name.clone(), locator.written.clone()].into_iter().chain(lengths));
    }
    table.render()
}

/// Formats `show srv6 static-sids [PREFIX|LOCATOR]`. `offloaded` says whether the dataplane has a SID with exactly the
/// prefix that is written.
pub fn static_sids(switch: &Switch, asked: Option<&str>, offloaded: impl Fn(&Sid) -> bool) -> String {
    let headings = ["SID", "Locator", "Action", "Decap DSCP Mode", "Decap VRF", "Offloaded"];
    let mut table = Table::new(&headings, Align::Auto);
    let wanted = |sid: &&Sid| asked.is_none_or(|asked| sid.written == asked || sid.locator == asked);
    let mut sids: Vec<&Sid> = switch.sids.iter().filter(wanted).collect();
    sids.sort_by(|a, b| a.written.cmp(&b.written));
    for sid in sids {
        table.row([
            sid.written.as_str(),
            &sid.locator,
            sid.action.keyword(),
            sid.decap_dscp_mode.map_or(NOT_AVAILABLE, srv6d_sonic::DscpMode::keyword),
            sid.vrf.as_deref().unwrap_or(NOT_AVAILABLE),
            if offloaded(sid) { "True" } else { "False" },
        ]);
    }
    table.render()
}

/// Counters of one SID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidCount {
    /// The SID as it is written.
    pub sid: String,
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes: frames without FCS, and four more bytes for each frame.
    pub bytes: u64,
}

/// Formats `show srv6 stats`.
pub fn sid_counts(counts: &[SidCount]) -> String {
    let mut table = Table::new(&["MySID", "Packets", "Bytes"], Align::Auto);
    let mut counts: Vec<&SidCount> = counts.iter().collect();
    counts.sort_by(|a, b| a.sid.cmp(&b.sid));
    for count in counts {
        table.row([count.sid.clone(), count.packets.to_string(), count.bytes.to_string()]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const CONFIG_DB: &str = r#"{
        "VRF": {"Vrf1": {}},
        "INTERFACE": {"Ethernet0": {}},
        "SRV6_MY_LOCATORS": {"loc2": {"prefix": "FCBB:BBBB:2::", "func_len": "0"}, "loc1": {"prefix": "fcbb:bbbb:1::"}},
        "SRV6_MY_SIDS": {
            "loc1|fcbb:bbbb:fe28::/48": {"action": "uA", "interface": "Ethernet0"},
            "loc1|fcbb:bbbb:1:fe24::/64": {"action": "uA", "interface": "Ethernet0", "decap_dscp_mode": "pipe"},
            "loc1|fcbb:bbbb:1::/48": {"action": "uN", "decap_dscp_mode": "pipe"},
            "loc1|fcbb:bbbb:1:d046::/64": {"action": "uDT46", "decap_dscp_mode": "uniform", "decap_vrf": "Vrf1"}
        }
    }"#;

    fn switch() -> Switch {
        srv6d_sonic::read(Some(CONFIG_DB), None, None, false).unwrap().switch
    }

    #[test]
    fn locators_have_their_lengths_and_the_prefix_that_is_written() {
        let expected = "\
Locator    Prefix           Block Len    Node Len    Func Len
---------  -------------  -----------  ----------  ----------
loc1       fcbb:bbbb:1::           32          16          16
loc2       FCBB:BBBB:2::           32          16           0
";
        assert_eq!(locators(&switch(), None), expected);
        assert_eq!(locators(&switch(), Some("loc2")).lines().count(), 3);
    }

    #[test]
    fn sids_say_whether_the_dataplane_has_them() {
        let pending = |sid: &Sid| sid.written != "fcbb:bbbb:1:fe24::/64";
        let expected = "\
SID                    Locator    Action    Decap DSCP Mode    Decap VRF    Offloaded
---------------------  ---------  --------  -----------------  -----------  -----------
fcbb:bbbb:1::/48       loc1       uN        pipe               N/A          True
fcbb:bbbb:1:d046::/64  loc1       uDT46     uniform            Vrf1         True
fcbb:bbbb:1:fe24::/64  loc1       uA        pipe               N/A          False
fcbb:bbbb:fe28::/48    loc1       uA        N/A                N/A          True
";
        assert_eq!(static_sids(&switch(), None, pending), expected);
        assert_eq!(static_sids(&switch(), Some("loc1"), pending), expected);
        assert_eq!(static_sids(&switch(), Some("fcbb:bbbb:1::/48"), pending).lines().count(), 3);
    }

    #[test]
    fn a_name_that_does_not_exist_has_headings_and_no_rows() {
        let expected = "\
SID    Locator    Action    Decap DSCP Mode    Decap VRF    Offloaded
-----  ---------  --------  -----------------  -----------  -----------
";
        assert_eq!(static_sids(&switch(), Some("loc9"), |_| true), expected);
    }
}
