//! Changes that the commands `config` and `counterpoll` make.

use ipnet::IpNet;
use serde_json::Value;
use srv6d_sonic::Switch;

use super::{ConfigDb, Refused, same_key};

fn refused<T>(what: impl Into<String>) -> Result<T, Refused> {
    Err(Refused(what.into()))
}

/// Returns the table that holds the rows of an interface of this name.
fn interface_table(name: &str) -> Option<&'static str> {
    let tables = [("Ethernet", "INTERFACE"), ("Loopback", "LOOPBACK_INTERFACE"), ("Vlan", "VLAN_INTERFACE")];
    let number = |kind: &str| name.strip_prefix(kind).is_some_and(|rest| rest.parse::<u32>().is_ok());
    tables.into_iter().find(|(kind, _)| number(kind)).map(|(_, table)| table)
}

/// Carries out `config interface startup|shutdown NAME`. NAME may be several names separated by commas.
///
/// # Errors
/// There is no such port.
pub fn set_admin(db: &mut ConfigDb, switch: &Switch, names: &str, up: bool) -> Result<(), Refused> {
    db.write_ports(switch);
    let value = if up { "up" } else { "down" };
    for name in names.split(',') {
        let table = match interface_table(name) {
            Some("LOOPBACK_INTERFACE") if db.row("LOOPBACK_INTERFACE", name).is_some() => "LOOPBACK_INTERFACE",
            _ if db.row("PORT", name).is_some() => "PORT",
            _ => return refused(format!("{name}: no such port")),
        };
        db.set(table, name, [("admin_status", value.into())]);
    }
    Ok(())
}

/// A change of an interface's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressChange {
    /// The change of `config interface ip add`.
    Add,
    /// The change of `config interface ip remove`.
    Remove,
}

/// Carries out `config interface ip add|remove NAME ADDRESS/LENGTH`.
///
/// # Errors
/// There is no such interface, the text is no address, or the address to be removed does not exist.
pub fn change_address(
    db: &mut ConfigDb,
    switch: &Switch,
    name: &str,
    address: &str,
    change: AddressChange,
) -> Result<(), Refused> {
    let Some(table) = interface_table(name) else {
        return refused(format!("{name}: only EthernetN, LoopbackN and VlanN have addresses"));
    };
    if table == "INTERFACE" && switch.port(name).is_none() {
        return refused(format!("{name}: no such port"));
    }
    let Some(parsed) = parse(address) else { return refused(format!("{address} is no address with a prefix length")) };
    let written = db.table(table).into_iter().flatten().map(|(key, _)| key.clone());
    let known = written.into_iter().find(|key| {
        key.split_once('|').is_some_and(|(interface, text)| interface == name && parse(text) == Some(parsed))
    });
    match (change, known) {
        (AddressChange::Add, Some(_)) => {}
        (AddressChange::Add, None) => {
            db.set(table, name, []);
            db.set(table, &format!("{name}|{address}"), []);
        }
        (AddressChange::Remove, Some(key)) => {
            db.remove(table, &key);
            leave_layer_3(db, table, name);
        }
        (AddressChange::Remove, None) => return refused(format!("{name} has no address {address}")),
    }
    Ok(())
}

/// Parses an address in any notation: `FC00:0:1::1/128` is `fc00:0:1::1/128`.
fn parse(address: &str) -> Option<IpNet> {
    let address = address.trim();
    address.contains('/').then(|| address.parse().ok())?
}

/// Removes an interface's row if the interface has no address and the row has no field. The interface is then no longer
/// routed.
fn leave_layer_3(db: &mut ConfigDb, table: &str, name: &str) {
    let has_address = db
        .table(table)
        .is_some_and(|rows| rows.keys().any(|key| key.split_once('|').is_some_and(|(interface, _)| interface == name)));
    if !has_address && db.row(table, name).is_some_and(serde_json::Map::is_empty) {
        db.remove(table, name);
    }
}

/// Carries out `config hostname NAME`.
///
/// # Errors
/// It is not a host name.
pub fn set_hostname(db: &mut ConfigDb, name: &str) -> Result<(), Refused> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    if name.is_empty() || name.len() > 63 || name.starts_with('-') || !name.bytes().all(good) {
        return refused(format!("{name:?} is no host name"));
    }
    db.set("DEVICE_METADATA", "localhost", [("hostname", name.into())]);
    Ok(())
}

/// Carries out `config vrf add NAME`.
///
/// # Errors
/// SONiC accepts names of up to 15 characters that begin with `Vrf`, and each name only once.
pub fn add_vrf(db: &mut ConfigDb, name: &str) -> Result<(), Refused> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !name.starts_with("Vrf") || name.len() > 15 || !name.bytes().all(good) {
        return refused(format!(
            "{name}: the name of a VRF begins with Vrf and has at most 15 letters, digits, - and _"
        ));
    }
    if db.row("VRF", name).is_some() {
        return refused(format!("VRF {name} exists already"));
    }
    db.set("VRF", name, []);
    Ok(())
}

/// Carries out `config vrf del NAME`. The VRF's interfaces lose their addresses, as in SONiC.
///
/// # Errors
/// There is no such VRF.
pub fn delete_vrf(db: &mut ConfigDb, name: &str) -> Result<(), Refused> {
    if !db.remove("VRF", name) {
        return refused(format!("VRF {name} does not exist"));
    }
    for table in ["INTERFACE", "LOOPBACK_INTERFACE", "VLAN_INTERFACE"] {
        for interface in bound(db, table, name) {
            clear_interface(db, table, &interface);
        }
    }
    Ok(())
}

fn bound(db: &ConfigDb, table: &str, vrf: &str) -> Vec<String> {
    let rows = db.table(table).into_iter().flatten();
    let in_it = |row: &Value| row.get("vrf_name").and_then(Value::as_str).is_some_and(|name| name.trim() == vrf);
    rows.filter(|(key, row)| !key.contains('|') && in_it(row)).map(|(key, _)| key.clone()).collect()
}

fn clear_interface(db: &mut ConfigDb, table: &str, name: &str) {
    let of_it = |key: &str| same_key(key, name) || key.split_once('|').is_some_and(|(interface, _)| interface == name);
    let keys: Vec<String> =
        db.table(table).into_iter().flatten().map(|(key, _)| key.clone()).filter(|key| of_it(key)).collect();
    for key in keys {
        db.remove(table, &key);
    }
}

/// Carries out `config interface vrf bind NAME VRF`. The interface loses its addresses, as in SONiC.
///
/// # Errors
/// There is no such interface or VRF.
pub fn bind_vrf(db: &mut ConfigDb, switch: &Switch, name: &str, vrf: &str) -> Result<(), Refused> {
    if db.row("VRF", vrf).is_none() {
        return refused(format!("VRF {vrf} does not exist: `config vrf add {vrf}` first"));
    }
    unbind_vrf(db, switch, name)?;
    if let Some(table) = interface_table(name) {
        db.set(table, name, [("vrf_name", vrf.into())]);
    }
    Ok(())
}

/// Carries out `config interface vrf unbind NAME`.
///
/// # Errors
/// There is no such interface.
pub fn unbind_vrf(db: &mut ConfigDb, switch: &Switch, name: &str) -> Result<(), Refused> {
    match interface_table(name) {
        Some(table) if table != "INTERFACE" || switch.port(name).is_some() => {
            clear_interface(db, table, name);
            Ok(())
        }
        _ => refused(format!("{name}: no such interface")),
    }
}

/// Carries out `counterpoll srv6 enable|disable`.
pub fn set_srv6_polling(db: &mut ConfigDb, on: bool) {
    let status = if on { "enable" } else { "disable" };
    db.set("FLEX_COUNTER_TABLE", "SRV6", [("FLEX_COUNTER_STATUS", status.into())]);
}

/// Carries out `counterpoll srv6 interval MILLISECONDS`.
///
/// # Errors
/// SONiC accepts 1000 to 30000.
pub fn set_srv6_interval(db: &mut ConfigDb, interval: &str) -> Result<(), Refused> {
    match interval.parse::<u32>() {
        Ok(1000..=30_000) => {
            db.set("FLEX_COUNTER_TABLE", "SRV6", [("POLL_INTERVAL", interval.into())]);
            Ok(())
        }
        _ => refused(format!("{interval} is not in the valid range of 1000 to 30000")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const FILE: &str = r#"{"PORT": {"Ethernet0": {}, "Ethernet4": {}}, "VRF": {"Vrf1": {}},
        "INTERFACE": {"Ethernet0": {}, "Ethernet0|FC00:0:1::1/64 ": {}, "Ethernet4": {"vrf_name": "Vrf1"},
            "Ethernet4|10.0.0.1/24": {}}}"#;

    fn both() -> (ConfigDb, Switch) {
        (ConfigDb::parse(FILE).unwrap(), srv6d_sonic::read(Some(FILE), None, None, false).unwrap().switch)
    }

    #[test]
    fn ports_go_up_and_down() {
        let (mut db, switch) = both();
        set_admin(&mut db, &switch, "Ethernet0,Ethernet4", true).unwrap();
        set_admin(&mut db, &switch, "Ethernet0", false).unwrap();
        assert_eq!(db.field("PORT", "Ethernet0", "admin_status").unwrap(), "down");
        assert_eq!(db.field("PORT", "Ethernet4", "admin_status").unwrap(), "up");
        let why = set_admin(&mut db, &switch, "Ethernet12", true).unwrap_err();
        assert_eq!(why.to_string(), "Ethernet12: no such port");
    }

    #[test]
    fn addresses_come_and_go_however_they_are_written() {
        let (mut db, switch) = both();
        let mut change = |name: &str, address: &str, change| change_address(&mut db, &switch, name, address, change);
        change("Loopback0", "fc00:0:1::9/128", AddressChange::Add).unwrap();
        change("Ethernet0", "fc00:0:1::1/64", AddressChange::Add).unwrap();
        change("Ethernet0", "fc00:0:1::1/64", AddressChange::Remove).unwrap();
        assert!(change("Ethernet0", "fc00:0:1::1/64", AddressChange::Remove).is_err());
        assert!(change("Ethernet8", "fc00::1/64", AddressChange::Add).is_err());
        assert!(change("Ethernet0", "fc00::1", AddressChange::Add).is_err());
        assert!(change("docker0", "fc00::1/64", AddressChange::Add).is_err());
        assert!(db.row("INTERFACE", "Ethernet0").is_none(), "no longer routed");
        assert!(db.row("LOOPBACK_INTERFACE", "Loopback0|fc00:0:1::9/128").is_some());
    }

    #[test]
    fn a_vrf_takes_its_interfaces_along() {
        let (mut db, switch) = both();
        add_vrf(&mut db, "Vrf-green").unwrap();
        assert!(add_vrf(&mut db, "Vrf-green").is_err() && add_vrf(&mut db, "green").is_err());
        bind_vrf(&mut db, &switch, "Ethernet0", "Vrf-green").unwrap();
        assert!(db.row("INTERFACE", "Ethernet0|FC00:0:1::1/64").is_none());
        assert_eq!(db.field("INTERFACE", "Ethernet0", "vrf_name").unwrap(), "Vrf-green");
        delete_vrf(&mut db, "Vrf1").unwrap();
        assert!(db.row("INTERFACE", "Ethernet4").is_none() && db.row("INTERFACE", "Ethernet4|10.0.0.1/24").is_none());
        assert!(delete_vrf(&mut db, "Vrf1").is_err() && bind_vrf(&mut db, &switch, "Ethernet0", "Vrf1").is_err());
    }

    #[test]
    fn counters_are_polled_within_limits() {
        let mut db = ConfigDb::default();
        set_srv6_polling(&mut db, true);
        set_srv6_interval(&mut db, "1000").unwrap();
        assert!(set_srv6_interval(&mut db, "999").is_err() && set_srv6_interval(&mut db, "often").is_err());
        assert_eq!(db.field("FLEX_COUNTER_TABLE", "SRV6", "FLEX_COUNTER_STATUS").unwrap(), "enable");
        assert_eq!(db.field("FLEX_COUNTER_TABLE", "SRV6", "POLL_INTERVAL").unwrap(), "1000");
        assert!(set_hostname(&mut db, "leaf_0").is_err() && set_hostname(&mut db, "leaf-0").is_ok());
    }
}
