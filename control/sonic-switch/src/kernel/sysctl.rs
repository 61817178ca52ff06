//! Settings under /proc/sys/net that a switch needs and a host does not have.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use srv6d_config::is_interface_name;

/// Settings of every port of a switch: directory, name and value.
///
/// * `keep_addr_on_down`: a port whose link flaps keeps its IPv6 addresses, as on a switch.
/// * `accept_ra`: routers on the other side do not configure this node.
/// * `rp_filter`: with ECMP a reply may come in through another port.
/// * `seg6_enabled`: without srv6d the kernel forwards segment routing headers as well.
const OF_A_PORT: [(&str, &str, &str); 7] = [
    ("ipv6", "disable_ipv6", "0"),
    ("ipv6", "keep_addr_on_down", "1"),
    ("ipv6", "accept_ra", "0"),
    ("ipv6", "forwarding", "1"),
    ("ipv6", "seg6_enabled", "1"),
    ("ipv4", "rp_filter", "0"),
    ("ipv4", "forwarding", "1"),
];

/// Makes the settings of one port. Returns what could not be set.
pub fn of_port(port: &str) -> Vec<String> {
    OF_A_PORT.iter().filter_map(|(family, key, value)| set(family, port, key, value).err()).collect()
}

/// Switches IPv6 forwarding on for the whole namespace: otherwise the kernel does not forward. Interfaces named in
/// `others` keep their setting, because management does not belong to the switch. Returns what could not be set.
pub fn forward_ipv6(others: &[String]) -> Vec<String> {
    if value("ipv6", "all", "forwarding").as_deref() == Some("1") {
        return Vec::new();
    }
    let kept: Vec<(&String, Option<String>)> =
        others.iter().map(|name| (name, value("ipv6", name, "forwarding"))).collect();
    let mut trouble: Vec<String> = set("ipv6", "all", "forwarding", "1").err().into_iter().collect();
    for (name, before) in kept {
        if let Some(before) = before {
            trouble.extend(set("ipv6", name, "forwarding", &before).err());
        }
    }
    trouble.extend(set("ipv6", "all", "seg6_enabled", "1").err());
    // The larger of this value and the port's value applies.
    trouble.extend(set("ipv4", "all", "rp_filter", "0").err());
    trouble
}

fn path(family: &str, interface: &str, key: &str) -> PathBuf {
    // A dot in a name needs no replacement here: these are file names, not names of sysctl(8).
    PathBuf::from(format!("/proc/sys/net/{family}/conf/{interface}/{key}"))
}

fn value(family: &str, interface: &str, key: &str) -> Option<String> {
    fs::read_to_string(path(family, interface, key)).ok().map(|text| text.trim().to_owned())
}

/// Sets one value. It is not written if it is there already: in a container /proc/sys may be read-only and correct.
fn set(family: &str, interface: &str, key: &str, wanted: &str) -> Result<(), String> {
    if value(family, interface, key).as_deref() == Some(wanted) {
        return Ok(());
    }
    if !is_interface_name(interface) {
        return Err(format!("{interface:?} is no name of an interface: {key} is not set"));
    }
    let path = path(family, interface, key);
    match fs::write(&path, wanted) {
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(()), // this kernel does not have the setting
        Err(why) => Err(format!("cannot write {wanted} to {}: {why}", path.display())),
        Ok(()) => Ok(()),
    }
}
