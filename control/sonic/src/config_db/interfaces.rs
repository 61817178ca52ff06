//! Reads the tables with addresses: `INTERFACE`, `LOOPBACK_INTERFACE`, `VLAN*`, `NEIGH`.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::row::{Db, Row};
use crate::finding::{Findings, Quirk};
use crate::lanes;
use crate::switch::{Loopback, Neighbor, Port, Switch, Vlan, VlanMember, is_default_vrf};
use crate::value;

/// The contents of a row with an interface's name and of the rows with an address behind that name.
#[derive(Default)]
struct Layer3 {
    name: String,
    vrf: Option<String>,
    addresses: Vec<IpNet>,
    link_local_only: bool,
    admin_up: Option<bool>,
    mac: Option<srv6d_addresses::Mac>,
}

/// Reads every table of addresses into the switch.
pub(super) fn read(db: &Db, switch: &mut Switch, found: &mut Findings) {
    let (misplaced, ports): (Vec<_>, Vec<_>) =
        layer3(db, "INTERFACE", found).into_iter().partition(|row| row.name.starts_with("Loopback"));
    let by_name: HashMap<String, usize> = (switch.ports.iter().map(|port| port.name.clone())).zip(0..).collect();
    for row in ports {
        let port = by_name.get(&row.name).and_then(|&at| switch.ports.get_mut(at));
        route_port(port, row, found);
    }
    for row in &misplaced {
        let place = format!("config_db.json: INTERFACE|{}", row.name);
        found.tolerated(place, "belongs into LOOPBACK_INTERFACE: taken as if it stood there");
    }
    switch.loopbacks = loopbacks(layer3(db, "LOOPBACK_INTERFACE", found).into_iter().chain(misplaced));
    let vlans;
    (switch.vlans, vlans) = read_vlans(db, &by_name, found);
    for row in layer3(db, "VLAN_INTERFACE", found) {
        match vlans.get(&row.name).and_then(|&at| switch.vlans.get_mut(at)) {
            Some(vlan) => {
                vlan.routed = true;
                (vlan.vrf, vlan.addresses) = (row.vrf, row.addresses);
            }
            None => found.ignored(format!("config_db.json: VLAN_INTERFACE|{}", row.name), "is not in VLAN: left out"),
        }
    }
    switch.neighbors = neighbors(db, found);
}

/// Collects the rows of one table; a row with an address is added to the interface that it belongs to.
fn layer3(db: &Db, table: &'static str, found: &mut Findings) -> Vec<Layer3> {
    let rows = db.rows(table, found);
    let mut interfaces: Vec<Layer3> = Vec::new();
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    let mut known: HashSet<(usize, IpNet)> = HashSet::new();
    let written: HashSet<&str> = rows.iter().map(|row| row.key.as_str()).collect();
    for row in &rows {
        let parts = row.parts();
        let Some(&name) = parts.first().filter(|_| parts.len() < 3) else {
            found.ignored(row.place(""), "is neither a name nor a name and an address: left out");
            continue;
        };
        let at = *by_name.entry(name).or_insert_with(|| {
            interfaces.push(Layer3 { name: name.to_owned(), ..Layer3::default() });
            interfaces.len() - 1
        });
        let Some(interface) = interfaces.get_mut(at) else { continue };
        let Some(address) = parts.get(1) else {
            own_fields(interface, row, found);
            continue;
        };
        if !written.contains(name) {
            found.tolerated(row.place(""), format!("stands without {table}|{name}: taken as if that stood there"));
        }
        let new = written_address(row, address, found).filter(|new| known.insert((at, *new)));
        interface.addresses.extend(new);
    }
    interfaces
}

fn own_fields(interface: &mut Layer3, row: &Row<'_>, found: &mut Findings) {
    interface.vrf = row.owned("vrf_name").filter(|vrf| !is_default_vrf(vrf));
    interface.link_local_only = row.truth("ipv6_use_link_local_only", found).unwrap_or(false);
    interface.admin_up = row.truth("admin_status", found);
    interface.mac = row.parsed("mac_addr", "the MAC address of one station", value::mac, found);
}

fn written_address(row: &Row<'_>, text: &str, found: &mut Findings) -> Option<IpNet> {
    let address = value::interface_address(text).filter(|_| text.contains('/'));
    if address.is_none() {
        found.ignored(row.place(""), format!("{text:?} is no address with a length: left out"));
    } else if value::is_long_form(text) {
        found.count(row.table(), Quirk::LongForm);
    }
    if let Some(vrf) = row.text("vrf_name") {
        let what = format!("{vrf:?} says nothing here: the VRF of an interface stands in the row without an address");
        found.tolerated(row.place("vrf_name"), what);
    }
    address
}

/// Makes a port a layer-3 port. `port` is the one with the name of the row.
fn route_port(port: Option<&mut Port>, row: Layer3, found: &mut Findings) {
    let place = format!("config_db.json: INTERFACE|{}", row.name);
    match port {
        Some(port) => {
            port.routed = true;
            (port.vrf, port.addresses) = (row.vrf, row.addresses);
            (port.link_local_only, port.mac) = (row.link_local_only, row.mac);
        }
        None if lanes::number_behind("Ethernet", &row.name).is_some() => {
            found.note(place, "is no port of this switch: left out");
        }
        None => found.ignored(place, "is neither a port nor a loopback: left out"),
    }
}

/// Makes one loopback per name. A second row with the name only adds addresses.
fn loopbacks(rows: impl Iterator<Item = Layer3>) -> Vec<Loopback> {
    let mut loopbacks: Vec<Loopback> = Vec::new();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    for row in rows {
        if let Some(loopback) = by_name.get(&row.name).and_then(|&at| loopbacks.get_mut(at)) {
            let known: HashSet<IpNet> = loopback.addresses.iter().copied().collect();
            loopback.addresses.extend(row.addresses.into_iter().filter(|new| !known.contains(new)));
        } else {
            by_name.insert(row.name.clone(), loopbacks.len());
            let admin_up = row.admin_up.unwrap_or(true);
            loopbacks.push(Loopback { name: row.name, admin_up, vrf: row.vrf, addresses: row.addresses });
        }
    }
    loopbacks
}

/// Reads the VLANs with their members. Returns them and their places in the list by name.
fn read_vlans(db: &Db, ports: &HashMap<String, usize>, found: &mut Findings) -> (Vec<Vlan>, HashMap<String, usize>) {
    let mut vlans: Vec<Vlan> = Vec::new();
    for row in &db.rows("VLAN", found) {
        let named = lanes::number_behind("Vlan", &row.key);
        let id = row.number("vlanid", 1, 4094, found).or(named).and_then(|id| u16::try_from(id).ok());
        match id.filter(|id| (1..=4094).contains(id) && named == Some(u32::from(*id))) {
            Some(id) => {
                let name = row.key.clone();
                vlans.push(Vlan { name, id, members: Vec::new(), vrf: None, routed: false, addresses: Vec::new() });
            }
            None => found.ignored(row.place(""), "is no VLAN with a number from 1 to 4094 in its name: left out"),
        }
    }
    // The name is the number, and no row occurs twice.
    let by_name: HashMap<String, usize> = (vlans.iter().map(|vlan| vlan.name.clone())).zip(0..).collect();
    for row in &db.rows("VLAN_MEMBER", found) {
        let key = row.parts();
        let [vlan, port] = key.as_slice() else {
            found.ignored(row.place(""), "is not Vlan and port: left out");
            continue;
        };
        let known = ports.contains_key(*port);
        match by_name.get(*vlan).and_then(|&at| vlans.get_mut(at)).filter(|_| known) {
            Some(known) => {
                let tagged = row.text("tagging_mode") == Some("tagged");
                known.members.push(VlanMember { port: (*port).to_owned(), tagged });
            }
            None => found.ignored(row.place(""), "names a VLAN or a port that is not there: left out"),
        }
    }
    (vlans, by_name)
}

fn neighbors(db: &Db, found: &mut Findings) -> Vec<Neighbor> {
    let mut neighbors = Vec::new();
    for row in &db.rows("NEIGH", found) {
        let parts = row.parts();
        let written = match parts.as_slice() {
            [interface, address] => value::address(address).map(|address: IpAddr| (*interface, address)),
            _ => None,
        };
        let mac = row.parsed("neigh", "the MAC address of one station", value::mac, found);
        match (written, mac) {
            (Some((interface, address)), Some(mac)) => {
                neighbors.push(Neighbor { interface: interface.to_owned(), address, mac });
            }
            _ => found.ignored(row.place(""), "is not a port and an address with the MAC address `neigh`: left out"),
        }
    }
    neighbors
}
