//! Reads a SONiC switch from its two files: `config_db.json`, and the `frr.conf` in which most labs keep locators, SIDs
//! and static routes.
//!
//! Real files violate SONiC's own models, so reading is tolerant: entries are accepted as they were meant, and
//! everything that SONiC would refuse or ignore is listed once as a [`Finding`]. In strict reading the same findings
//! are errors.
//!
//! ```
//! let config_db = r#"{
//!     "INTERFACE": {"Ethernet0": {}, "Ethernet0|2001:db8:a::1/64": {}},
//!     "SRV6_MY_LOCATORS": {"MAIN": {"prefix": "fcbb:bbbb:1::"}},
//!     "SRV6_MY_SIDS": {"MAIN|fcbb:bbbb:1::/48": {"action": "uN", "decap_dscp_mode": "pipe"}}
//! }"#;
//! let reading = srv6d_sonic::read(Some(config_db), None, None, false).unwrap();
//! assert_eq!(reading.switch.ports[0].wire.as_deref(), Some("eth1"));
//! assert_eq!(reading.switch.sids[0].action.keyword(), "uN");
//! ```

#![forbid(unsafe_code)]

mod config_db;
mod convert;
mod finding;
mod frr;
mod lanes;
mod merge;
mod routes;
mod srv6;
mod switch;
mod value;

pub use convert::{Conversion, Usd};
pub use finding::{Finding, Severity};
pub use lanes::{lanes_of_port, port_of_wire, wire_of_port};
pub use switch::{
    Action, Device, DscpMode, Encap, Locator, Loopback, MAIN_TABLE, Neighbor, Origin, Port, RouteHop, RoutingMode, Sid,
    SidCounters, StaticRoute, Switch, Tables, Target, Vlan, VlanMember, Vrf, is_default_vrf,
};

use finding::Findings;

/// A switch, and the findings about its files.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Reading {
    /// The switch.
    pub switch: Switch,
    /// The findings, each listed once. None of them is an error.
    pub findings: Vec<Finding>,
}

/// Reads a switch from the texts of `config_db.json` and `frr.conf`, either of which may be missing.
///
/// `present` are the names of the interfaces that exist, ports (`Ethernet0`) or wires (`eth1`). If it is `None`, they
/// are unknown, and all ports that are written count as existing. If `strict`, what SONiC's YANG models and its daemons
/// refuse is an error.
///
/// # Errors
/// All findings, if one of them is an error: a text that cannot be read, two files that contradict each other, and, if
/// `strict`, everything that was [tolerated](Severity::Tolerated) or [ignored](Severity::Ignored).
pub fn read(
    config_db: Option<&str>,
    frr: Option<&str>,
    present: Option<&[String]>,
    strict: bool,
) -> Result<Reading, Vec<Finding>> {
    let mut found = Findings::default();
    let db = config_db.map(|text| config_db::read(text, present, &mut found)).unwrap_or_default();
    let frr = frr.map(|text| frr::read(text, &mut found)).unwrap_or_default();
    let mut switch = merge::merge(db, frr, &mut found);
    if config_db.is_none() {
        merge::ports_without_config_db(&mut switch, present);
    }
    let findings = found.finish(strict)?;
    Ok(Reading { switch, findings })
}
