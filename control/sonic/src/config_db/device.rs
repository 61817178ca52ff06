//! Reads `DEVICE_METADATA`, `FLEX_COUNTER_TABLE|SRV6`, and the encapsulation source of CONFIG_DB.

use std::net::Ipv6Addr;

use super::row::Db;
use crate::finding::Findings;
use crate::switch::{Device, RoutingMode, SidCounters};
use crate::value;

pub(super) fn device(db: &Db, found: &mut Findings) -> Device {
    let rows = db.rows("DEVICE_METADATA", found);
    let Some(row) = rows.iter().find(|row| row.key == "localhost") else { return Device::default() };
    let routing_mode = match row.text("docker_routing_config_mode") {
        None | Some("separated") => RoutingMode::Separated,
        Some("unified") => RoutingMode::Unified,
        Some("split") => RoutingMode::Split,
        Some("split-unified") => RoutingMode::SplitUnified,
        Some(other) => {
            let known = "separated, unified, split, split-unified";
            found.tolerated(row.place("docker_routing_config_mode"), format!("{other:?} is not known: {known}"));
            RoutingMode::Separated
        }
    };
    Device {
        hostname: row.owned("hostname"),
        mac: row.parsed("mac", "the MAC address of one station", value::mac, found),
        hwsku: row.owned("hwsku"),
        platform: row.owned("platform"),
        role: row.owned("type"),
        asn: row.number("bgp_asn", 0, u32::MAX, found),
        routing_mode,
    }
}

pub(super) fn sid_counters(db: &Db, found: &mut Findings) -> SidCounters {
    let rows = db.rows("FLEX_COUNTER_TABLE", found);
    let Some(row) = rows.iter().find(|row| row.key == "SRV6") else { return SidCounters::default() };
    SidCounters {
        written: true,
        enabled: row.truth("FLEX_COUNTER_STATUS", found).unwrap_or(false),
        interval: row.number("POLL_INTERVAL", 1000, 30_000, found),
    }
}

/// Returns the source of encapsulations with its place. FRR's management framework has a table for it, and a different
/// table has been proposed.
pub(super) fn encapsulation_source(db: &Db, found: &mut Findings) -> Option<(Ipv6Addr, String)> {
    let places = [("SRV6_MY_SOURCE", "tunnel-source", "source-address"), ("SRV6_GLOBAL", "default", "encap_src_addr")];
    places.into_iter().find_map(|(table, key, field)| {
        let rows = db.rows(table, found);
        let row = rows.iter().find(|row| row.key == key)?;
        let source = row.parsed(field, "an IPv6 address", value::address6, found)?;
        Some((source, row.place(field)))
    })
}
