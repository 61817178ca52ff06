//! Reads `PORT` and finds out which of its ports exist.

use std::collections::HashSet;

use super::row::{Db, Row};
use crate::finding::{Findings, Quirk};
use crate::lanes;
use crate::switch::Port;
use crate::value;

/// Largest layer-3 packet of a port whose row has no MTU.
const MTU: u32 = 9100;

/// Returns every port, in natural order. `present` are the names of the interfaces that exist, ports or wires; `None`:
/// unknown.
pub(super) fn ports(db: &Db, present: Option<&[String]>, found: &mut Findings) -> Vec<Port> {
    let mut ports = if db.has("PORT") {
        let rows = db.rows("PORT", found);
        let step = step(&rows);
        rows.iter().filter_map(|row| port(row, step, found)).collect()
    } else {
        without_rows(db, present, found)
    };
    ports.sort_by_key(|port| value::natural(&port.name));
    if let Some(present) = present {
        mark_present(&mut ports, present, found);
    }
    ports
}

/// Returns the difference between the numbers of two neighbouring ports, which is their number of lanes. If rows
/// disagree, it is four.
fn step(rows: &[Row<'_>]) -> u32 {
    let lanes = |row: &Row<'_>| row.text("lanes").map_or(0, |lanes| lanes.split(',').count());
    let number = |row: &Row<'_>| lanes::number_behind("Ethernet", &row.key).unwrap_or(1);
    let first = rows.first().map_or(0, lanes);
    let step = u32::try_from(first).unwrap_or(0);
    let fits = step != 0 && rows.iter().all(|row| lanes(row) == first && number(row).is_multiple_of(step));
    if fits { step } else { lanes::LANES }
}

fn port(row: &Row<'_>, step: u32, found: &mut Findings) -> Option<Port> {
    if lanes::number_behind("Ethernet", &row.key).is_none() {
        found.ignored(
            row.place(""),
            "is no name of a port (Ethernet0, Ethernet4, ...; 15 characters at most): left out",
        );
        return None;
    }
    let admin_up = row.truth("admin_status", found);
    if admin_up.is_none() {
        found.count(row.table(), Quirk::NoAdminStatus);
    }
    let mut lanes: Vec<u32> = Vec::new();
    if let Some(written) = row.text("lanes") {
        lanes.extend(written.split(',').filter_map(|lane| lane.trim().parse::<u32>().ok()));
    } else {
        found.tolerated(row.place("lanes"), "is not written: those of the default SKU");
        lanes = lanes::lanes_of_port(&row.key);
    }
    let speed = row.number("speed", 1, 1_600_000, found);
    if row.text("speed").is_none() {
        found.tolerated(row.place("speed"), format!("is not written: {} Mb/s", lanes::SPEED));
    }
    Some(Port {
        lanes,
        speed: speed.unwrap_or(lanes::SPEED),
        alias: row.owned("alias"),
        index: row.number("index", 0, u32::MAX, found),
        mtu: row.number("mtu", 68, 9216, found).unwrap_or(MTU),
        admin_up: admin_up.unwrap_or(false),
        fec: row.owned("fec"),
        autoneg: row.truth("autoneg", found),
        description: row.owned("description"),
        ..unwritten(&row.key, lanes::wire(&row.key, step))
    })
}

/// Returns the ports if the table is missing: the file was made to be merged into a running database that has the
/// table. The ports are the wires that exist or, if the existing wires are unknown, the ports with an address.
fn without_rows(db: &Db, present: Option<&[String]>, found: &mut Findings) -> Vec<Port> {
    found.note("config_db.json: PORT", "is not written: the ports are the interfaces ethN, administratively up");
    if let Some(present) = present {
        return by_name(present);
    }
    let rows = db.rows("INTERFACE", found);
    by_name(&rows.iter().filter_map(|row| row.parts().first().map(|&name| name.to_owned())).collect::<Vec<_>>())
}

/// Makes ports that are only known by their name or by the name of their wire. Other names are skipped.
pub(crate) fn by_name(names: &[String]) -> Vec<Port> {
    let mut ports: Vec<Port> = Vec::new();
    let mut known = HashSet::new();
    for name in names.iter().filter_map(|name| port_name(name)) {
        if known.insert(name.clone()) {
            let wire = lanes::wire_of_port(&name);
            let lanes = lanes::lanes_of_port(&name);
            ports.push(Port { lanes, admin_up: true, ..unwritten(&name, wire) });
        }
    }
    ports.sort_by_key(|port| value::natural(&port.name));
    ports
}

/// Returns a port's name, given one of its two names.
fn port_name(name: &str) -> Option<String> {
    lanes::port_of_wire(name).or_else(|| lanes::number_behind("Ethernet", name).map(|_| name.to_owned()))
}

fn unwritten(name: &str, wire: Option<String>) -> Port {
    let number = lanes::number_behind("Ethernet", name);
    Port {
        name: name.to_owned(),
        wire,
        present: true,
        lanes: Vec::new(),
        speed: lanes::SPEED,
        alias: number.map(|number| format!("fortyGigE0/{number}")),
        index: number.map(|number| number / lanes::LANES),
        mtu: MTU,
        admin_up: false,
        fec: None,
        autoneg: None,
        description: None,
        mac: None,
        routed: false,
        link_local_only: false,
        vrf: None,
        addresses: Vec::new(),
    }
}

fn mark_present(ports: &mut [Port], present: &[String], found: &mut Findings) {
    let present: HashSet<&str> = present.iter().map(String::as_str).collect();
    for port in ports.iter_mut() {
        port.present =
            [Some(&port.name), port.wire.as_ref()].into_iter().flatten().any(|name| present.contains(&**name));
    }
    let absent = ports.iter().filter(|port| !port.present).count();
    if absent > 0 {
        let what = format!("{absent} of {} ports have no interface here: they stay down until it appears", ports.len());
        found.note("config_db.json: PORT", what);
    }
}
