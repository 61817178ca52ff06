//! Formats `show version`, `show platform summary`, `show vrf`, `crm show resources`, `counterpoll show`.

use srv6d_sonic::{Device, SidCounters, Switch};

use super::NOT_AVAILABLE;
use crate::{Align, Table, natural};

/// Values that `show version` prints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Version of srv6d.
    pub srv6d: String,
    /// Distribution, for example `Debian 12`.
    pub distribution: String,
    /// Version of the kernel.
    pub kernel: String,
    /// Platform from `DEVICE_METADATA`. `None`: not set.
    pub platform: Option<String>,
    /// Hardware SKU from `DEVICE_METADATA`. `None`: not set.
    pub hwsku: Option<String>,
    /// Uptime, for example ` 14:40:15 up 3 min, ...`.
    pub uptime: String,
    /// Date, for example `Fri 22 May 2026 14:40:15`.
    pub date: String,
}

/// Formats `show version`. There are no docker images to list, so `--brief` prints the same.
pub fn version(version: &Version) -> String {
    let number: String = version.distribution.chars().filter(char::is_ascii_digit).take(2).collect();
    let lines = [
        ("SONiC Software Version", format!("SONiC.srv6d-{}", version.srv6d)),
        ("SONiC OS Version", if number.is_empty() { NOT_AVAILABLE.to_owned() } else { number }),
        ("Distribution", version.distribution.clone()),
        ("Kernel", version.kernel.clone()),
        ("Build commit", NOT_AVAILABLE.to_owned()),
        ("Build date", NOT_AVAILABLE.to_owned()),
        ("Built by", format!("srv6d {}", version.srv6d)),
        ("", String::new()),
    ];
    let lines = lines.into_iter().chain(hardware(version.platform.as_ref(), version.hwsku.as_ref()));
    let lines = lines.chain([("Uptime", version.uptime.clone()), ("Date", version.date.clone())]);
    let written = lines.map(|(name, value)| match name {
        "" => "\n".to_owned(),
        name => format!("{name}: {value}\n"),
    });
    std::iter::once("\n".to_owned()).chain(written).collect()
}

/// Formats `show platform summary`.
pub fn platform(device: &Device) -> String {
    let lines = hardware(device.platform.as_ref(), device.hwsku.as_ref());
    lines.into_iter().flat_map(|(name, value)| [name.to_owned(), ": ".to_owned(), value, "\n".to_owned()]).collect()
}

/// Returns the lines about the hardware, of which only two are known.
fn hardware(platform: Option<&String>, hwsku: Option<&String>) -> [(&'static str, String); 7] {
    let known = |text: Option<&String>| text.map_or(NOT_AVAILABLE, String::as_str).to_owned();
    [
        ("Platform", known(platform)),
        ("HwSKU", known(hwsku)),
        ("ASIC", "srv6d".to_owned()),
        ("ASIC Count", "1".to_owned()),
        ("Serial Number", NOT_AVAILABLE.to_owned()),
        ("Model Number", NOT_AVAILABLE.to_owned()),
        ("Hardware Revision", NOT_AVAILABLE.to_owned()),
    ]
}

/// Formats `show vrf [NAME]`: the interfaces of each VRF.
pub fn vrfs(switch: &Switch, name: Option<&str>) -> String {
    let mut table = Table::new(&["VRF", "Interfaces"], Align::Auto);
    let mut names: Vec<&str> = switch.vrfs.iter().map(|vrf| vrf.name.as_str()).collect();
    names.retain(|known| name.is_none_or(|name| name == *known));
    names.sort_by(|a, b| natural::compare(a, b));
    for vrf in names {
        let in_it = |of: &Option<String>| of.as_deref() == Some(vrf);
        let ports = switch.ports.iter().filter(|port| in_it(&port.vrf)).map(|port| &port.name);
        let vlans = switch.vlans.iter().filter(|vlan| in_it(&vlan.vrf)).map(|vlan| &vlan.name);
        let loopbacks = switch.loopbacks.iter().filter(|loopback| in_it(&loopback.vrf)).map(|loopback| &loopback.name);
        let mut interfaces: Vec<&str> = ports.chain(vlans).chain(loopbacks).map(String::as_str).collect();
        interfaces.sort_by(|a, b| natural::compare(a, b));
        table.row([vrf, interfaces.first().copied().unwrap_or_default()]);
        for interface in interfaces.iter().skip(1) {
            table.row(["", interface]);
        }
    }
    table.render()
}

/// Formats `counterpoll show`: one row per counter group that has a row in CONFIG_DB.
pub fn counterpoll(srv6: &SidCounters) -> String {
    let mut table = Table::new(&["Type", "Interval (in ms)", "Status"], Align::Auto);
    if srv6.written {
        let interval = srv6.interval.map_or_else(|| "default (10000)".to_owned(), |interval| interval.to_string());
        table.row(["SRV6_STAT", &interval, if srv6.enabled { "enable" } else { "disable" }]);
    }
    table.render()
}

/// Usage of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Name, for example `srv6_my_sid_entry`.
    pub name: &'static str,
    /// Number of entries in the dataplane.
    pub used: usize,
    /// Number of further entries that fit.
    pub available: usize,
}

/// Formats `crm show resources ...`, with an empty line before and after the table.
pub fn resources(resources: &[Resource]) -> String {
    let mut table = Table::new(&["Resource Name", "Used Count", "Available Count"], Align::Auto);
    for resource in resources {
        table.row([resource.name.to_owned(), resource.used.to_string(), resource.available.to_string()]);
    }
    format!("\n{}\n", table.render())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_group_of_counters_shows_its_interval() {
        let set = SidCounters { written: true, enabled: true, interval: Some(10_000) };
        let expected = "\
Type         Interval (in ms)  Status
---------  ------------------  --------
SRV6_STAT               10000  enable
";
        assert_eq!(counterpoll(&set), expected);
        let never_set = counterpoll(&SidCounters { interval: None, enabled: false, written: true });
        assert_eq!(never_set.lines().last(), Some("SRV6_STAT  default (10000)     disable"));
        assert_eq!(counterpoll(&SidCounters::default()).lines().count(), 2);
    }

    #[test]
    fn resources_stand_between_empty_lines() {
        let expected = "
Resource Name        Used Count    Available Count
-----------------  ------------  -----------------
srv6_my_sid_entry             2               1022

";
        assert_eq!(resources(&[Resource { name: "srv6_my_sid_entry", used: 2, available: 1022 }]), expected);
    }

    #[test]
    fn a_vrf_lists_its_interfaces_below_each_other() {
        let config_db = r#"{"VRF": {"Vrf-b": {}, "Vrf-a": {}}, "PORT": {"Ethernet0": {}, "Ethernet16": {}, "Ethernet4": {}},
            "INTERFACE": {"Ethernet0": {}, "Ethernet4": {"vrf_name": "Vrf-b"}, "Ethernet16": {"vrf_name": "Vrf-b"}}}"#;
        let switch = srv6d_sonic::read(Some(config_db), None, None, false).unwrap().switch;
        let expected = "\
VRF    Interfaces
-----  ------------
Vrf-a
Vrf-b  Ethernet4
       Ethernet16
";
        assert_eq!(vrfs(&switch, None), expected);
    }

    #[test]
    fn the_platform_is_that_of_the_device() {
        let device = Device { platform: Some("x86_64-kvm_x86_64-r0".to_owned()), ..Device::default() };
        let expected = "\
Platform: x86_64-kvm_x86_64-r0
HwSKU: N/A
ASIC: srv6d
ASIC Count: 1
Serial Number: N/A
Model Number: N/A
Hardware Revision: N/A
";
        assert_eq!(platform(&device), expected);
    }

    #[test]
    fn the_version_says_what_scripts_look_for() {
        let said = version(&Version {
            srv6d: "0.1.0".to_owned(),
            distribution: "Debian 12.11".to_owned(),
            kernel: "6.1.0".to_owned(),
            hwsku: Some("Force10-S6000".to_owned()),
            uptime: " 14:40:15 up 3 min".to_owned(),
            ..Version::default()
        });
        assert!(said.starts_with("\nSONiC Software Version: SONiC.srv6d-0.1.0\nSONiC OS Version: 12\n"), "{said}");
        assert!(said.contains("\n\nPlatform: N/A\nHwSKU: Force10-S6000\nASIC: srv6d\nASIC Count: 1\n"), "{said}");
    }
}
