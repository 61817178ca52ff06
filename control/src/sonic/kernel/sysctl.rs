//! Settings under /proc/sys/net that a switch needs and a host does not have.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use crate::config::is_interface_name;

/// What every port of a switch has.
///
/// * `keep_addr_on_down`: a link that flaps keeps its IPv6 addresses, as a switch's port does.
/// * `accept_ra`: routers on the other side configure nothing here.
/// * `rp_filter`: with ECMP an answer may come in elsewhere.
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

/// Settings of one port; what could not be set.
pub fn of_port(port: &str) -> Vec<String> {
    OF_A_PORT.iter().filter_map(|(family, key, value)| set(family, port, key, value).err()).collect()
}

/// The kernel forwards IPv6 only where all of it does. Interfaces named in `others` stay as they are: management is no
/// business of the switch.
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
    // The larger of this one and the port's is what counts.
    trouble.extend(set("ipv4", "all", "rp_filter", "0").err());
    trouble
}

fn path(family: &str, interface: &str, key: &str) -> PathBuf {
    // A dot in a name is a dot here: these are files, not names of sysctl(8).
    PathBuf::from(format!("/proc/sys/net/{family}/conf/{interface}/{key}"))
}

fn value(family: &str, interface: &str, key: &str) -> Option<String> {
    fs::read_to_string(path(family, interface, key)).ok().map(|text| text.trim().to_owned())
}

/// Nothing is written where the value is there already: in a container /proc/sys may be read-only, and right.
fn set(family: &str, interface: &str, key: &str, wanted: &str) -> Result<(), String> {
    if value(family, interface, key).as_deref() == Some(wanted) {
        return Ok(());
    }
    if !is_interface_name(interface) {
        return Err(format!("{interface:?} is no name of an interface: {key} is not set"));
    }
    let path = path(family, interface, key);
    match fs::write(&path, wanted) {
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(()), // not in this kernel
        Err(why) => Err(format!("cannot write {wanted} to {}: {why}", path.display())),
        Ok(()) => Ok(()),
    }
}
