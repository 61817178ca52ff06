//! Formats `show interfaces ...`, `portstat`, `show ip interfaces`, `show ipv6 interfaces`.

use srv6d_sonic::{Port, Switch};

use super::NOT_AVAILABLE;
use crate::numbers::{rate, speed, thousands, utilization};
use crate::{Align, Table, natural};

/// A port with its configuration and its state in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceStatus<'a> {
    /// The port as it is configured.
    pub port: &'a Port,
    /// True if the interface has a carrier.
    pub oper_up: bool,
}

const fn up_or_down(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}

/// Formats `show interfaces status`.
pub fn port_statuses(switch: &Switch, statuses: &[InterfaceStatus<'_>]) -> String {
    let headings = ["Interface", "Lanes", "Speed", "MTU", "FEC", "Alias", "Vlan", "Oper", "Admin", "Type", "Asym PFC"];
    let mut table = Table::new(&headings, Align::Right);
    for InterfaceStatus { port, oper_up } in statuses {
        let lanes: Vec<String> = port.lanes.iter().map(ToString::to_string).collect();
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| NOT_AVAILABLE.to_owned());
        let member = switch.vlans.iter().any(|vlan| vlan.members.iter().any(|member| member.port == port.name));
        table.row([
            port.name.clone(),
            if lanes.is_empty() { NOT_AVAILABLE.to_owned() } else { lanes.join(",") },
            speed(port.speed),
            port.mtu.to_string(),
            known(&port.fec),
            known(&port.alias),
            if member { "trunk" } else { "routed" }.to_owned(),
            up_or_down(*oper_up).to_owned(),
            up_or_down(port.admin_up).to_owned(),
            NOT_AVAILABLE.to_owned(),
            NOT_AVAILABLE.to_owned(),
        ]);
    }
    table.render()
}

/// Formats `show interfaces description`.
pub fn descriptions(statuses: &[InterfaceStatus<'_>]) -> String {
    let mut table = Table::new(&["Interface", "Oper", "Admin", "Alias", "Description"], Align::Right);
    for InterfaceStatus { port, oper_up } in statuses {
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| NOT_AVAILABLE.to_owned());
        table.row([
            port.name.clone(),
            up_or_down(*oper_up).to_owned(),
            up_or_down(port.admin_up).to_owned(),
            known(&port.alias),
            known(&port.description),
        ]);
    }
    table.render()
}

/// Returns the letter of a port's state: `U`, `D`, or `X` for a port that is administratively down.
pub const fn state_letter(admin_up: bool, oper_up: bool) -> &'static str {
    match (admin_up, oper_up) {
        (false, _) => "X",
        (true, true) => "U",
        (true, false) => "D",
    }
}

/// Counters of a port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortCounters {
    /// Name of the port, for example `Ethernet0`.
    pub name: String,
    /// Letter of its state: `U`, `D` or `X`.
    pub state: String,
    /// Speed in Mb/s.
    pub speed: u32,
    /// Number of packets received.
    pub rx_ok: u64,
    /// Bytes received per second.
    pub rx_rate: f64,
    /// Number of malformed packets received.
    pub rx_errors: u64,
    /// Number of received packets that were dropped.
    pub rx_drops: u64,
    /// Number of packets lost because there was no receive buffer.
    pub rx_overruns: u64,
    /// Number of packets sent.
    pub tx_ok: u64,
    /// Bytes sent per second.
    pub tx_rate: f64,
    /// Number of malformed packets that were to be sent.
    pub tx_errors: u64,
    /// Number of packets dropped before they were sent.
    pub tx_drops: u64,
    /// Number of packets lost because there was no transmit buffer.
    pub tx_overruns: u64,
}

/// Formats `show interfaces counters` and `portstat`.
pub fn counters(ports: &[PortCounters]) -> String {
    let headings = [
        "IFACE", "STATE", "RX_OK", "RX_BPS", "RX_UTIL", "RX_ERR", "RX_DRP", "RX_OVR", "TX_OK", "TX_BPS", "TX_UTIL",
        "TX_ERR", "TX_DRP", "TX_OVR",
    ];
    let mut table = Table::new(&headings, Align::Right);
    for port in ports {
        table.row([
            port.name.clone(),
            port.state.clone(),
            thousands(port.rx_ok),
            rate(port.rx_rate),
            utilization(port.rx_rate, port.speed),
            thousands(port.rx_errors),
            thousands(port.rx_drops),
            thousands(port.rx_overruns),
            thousands(port.tx_ok),
            rate(port.tx_rate),
            utilization(port.tx_rate, port.speed),
            thousands(port.tx_errors),
            thousands(port.tx_drops),
            thousands(port.tx_overruns),
        ]);
    }
    table.render()
}

/// Addresses and state of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Name, for example `Ethernet0`.
    pub name: String,
    /// Name of its VRF; empty for the default one.
    pub vrf: String,
    /// Addresses, for example `2001:db8::1/64` and `fe80::1%Ethernet0/64`.
    pub addresses: Vec<String>,
    /// True if the interface is administratively up.
    pub admin_up: bool,
    /// True if the interface has a carrier.
    pub oper_up: bool,
}

/// Formats `show ip interfaces` and `show ipv6 interfaces`.
pub fn addresses(interfaces: &[Addresses], ipv6: bool) -> String {
    let address = if ipv6 { "IPv6 address/mask" } else { "IPv4 address/mask" };
    let headings = ["Interface", "Master", address, "Admin/Oper", "BGP Neighbor", "Neighbor IP"];
    let mut table = Table::new(&headings, Align::Left);
    let mut interfaces: Vec<&Addresses> = interfaces.iter().collect();
    interfaces.sort_by(|a, b| natural::compare(&a.name, &b.name));
    for interface in interfaces {
        let state = format!("{}/{}", up_or_down(interface.admin_up), up_or_down(interface.oper_up));
        let mut first = (interface.name.clone(), interface.vrf.clone(), state);
        for address in &interface.addresses {
            let (name, vrf, state) = std::mem::take(&mut first);
            table.row([name, vrf, address.clone(), state, NOT_AVAILABLE.to_owned(), NOT_AVAILABLE.to_owned()]);
        }
    }
    table.render()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn switch() -> Switch {
        let config_db = r#"{
            "PORT": {
                "Ethernet0": {"lanes": "25,26,27,28", "alias": "fortyGigE0/0", "speed": "40000", "admin_status": "up",
                    "description": "to spine"},
                "Ethernet16": {"lanes": "45,46,47,48", "alias": "fortyGigE0/16", "speed": "40000", "admin_status": "up"}
            },
            "VLAN": {"Vlan100": {"vlanid": "100"}},
            "VLAN_MEMBER": {"Vlan100|Ethernet16": {"tagging_mode": "untagged"}},
            "INTERFACE": {"Ethernet0": {}}
        }"#;
        srv6d_sonic::read(Some(config_db), None, None, false).unwrap().switch
    }

    fn statuses(switch: &Switch) -> Vec<InterfaceStatus<'_>> {
        switch.ports.iter().map(|port| InterfaceStatus { port, oper_up: port.name == "Ethernet0" }).collect()
    }

    #[test]
    fn the_status_of_ports_stands_right() {
        let switch = switch();
        let expected = "  Interface        Lanes    Speed    MTU    FEC          Alias    Vlan    Oper    Admin    Type    Asym PFC
-----------  -----------  -------  -----  -----  -------------  ------  ------  -------  ------  ----------
  Ethernet0  25,26,27,28      40G   9100    N/A   fortyGigE0/0  routed      up       up     N/A         N/A
 Ethernet16  45,46,47,48      40G   9100    N/A  fortyGigE0/16   trunk    down       up     N/A         N/A
";
        assert_eq!(port_statuses(&switch, &statuses(&switch)), expected);
        let expected = "  Interface    Oper    Admin          Alias    Description
-----------  ------  -------  -------------  -------------
  Ethernet0      up       up   fortyGigE0/0       to spine
 Ethernet16    down       up  fortyGigE0/16            N/A
";
        assert_eq!(descriptions(&statuses(&switch)), expected);
    }

    #[test]
    fn counters_have_commas_rates_and_shares() {
        let busy = PortCounters {
            name: "Ethernet0".to_owned(),
            state: state_letter(true, true).to_owned(),
            speed: 40_000,
            rx_ok: 1_234_567,
            rx_rate: 653_870_000.0,
            rx_drops: 100,
            tx_ok: 409_682,
            tx_rate: 11_250.0,
            ..PortCounters::default()
        };
        let idle = PortCounters {
            name: "Ethernet4".to_owned(),
            state: state_letter(true, false).to_owned(),
            speed: 40_000,
            ..PortCounters::default()
        };
        let expected = "    IFACE    STATE      RX_OK       RX_BPS    RX_UTIL    RX_ERR    RX_DRP    RX_OVR    TX_OK      TX_BPS    TX_UTIL    TX_ERR    TX_DRP    TX_OVR
---------  -------  ---------  -----------  ---------  --------  --------  --------  -------  ----------  ---------  --------  --------  --------
Ethernet0        U  1,234,567  653.87 MB/s     13.08%         0       100         0  409,682  11.25 KB/s      0.00%         0         0         0
Ethernet4        D          0     0.00 B/s      0.00%         0         0         0        0    0.00 B/s      0.00%         0         0         0
";
        assert_eq!(counters(&[busy, idle]), expected);
    }

    #[test]
    fn an_interface_is_named_once_in_front_of_its_addresses() {
        let interface = |name: &str, addresses: &[&str]| Addresses {
            name: name.to_owned(),
            vrf: String::new(),
            addresses: addresses.iter().map(|&address| address.to_owned()).collect(),
            admin_up: true,
            oper_up: true,
        };
        let all = [
            interface("Loopback0", &["fcbb:0:1004::1/128"]),
            interface("Ethernet16", &["fcbb:0:800::1/64", "fe80::203d:a9ff:fe5d:83c6%Ethernet16/64"]),
        ];
        let expected = "\
Interface    Master    IPv6 address/mask                        Admin/Oper    BGP Neighbor    Neighbor IP
-----------  --------  ---------------------------------------  ------------  --------------  -------------
Ethernet16             fcbb:0:800::1/64                         up/up         N/A             N/A
                       fe80::203d:a9ff:fe5d:83c6%Ethernet16/64                N/A             N/A
Loopback0              fcbb:0:1004::1/128                       up/up         N/A             N/A
";
        assert_eq!(addresses(&all, true), expected);
    }
}
