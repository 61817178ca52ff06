//! A SONiC switch in memory: its configuration, and what its kernel would show.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use srv6d_config::{self as config, Config};
use srv6d_plan::{self as plan, Device, Environment, KernelNeighbor, Plan};
use srv6d_sonic::{Switch, Usd};
use srv6d_srv6::desired::{Behavior, Desired, Hop, Mac, PortId, RouteAction};

/// Returns the configuration that results from a switch.
///
/// # Errors
/// If the configuration is refused: its text, and the reason.
pub fn configuration(switch: &Switch, usd: Usd) -> Result<Config, String> {
    let toml = switch.to_toml(usd).toml;
    config::parse(&toml, "srv6d.toml").map_err(|errors| format!("{toml}\n{errors}"))
}

/// Plans the switch in a state where every port is up and has its addresses, and every requested neighbour answers.
///
/// # Errors
/// If the configuration is refused.
pub fn plan(switch: &Switch, usd: Usd) -> Result<Plan, String> {
    let config = configuration(switch, usd)?;
    let mut here = environment(switch, &config);
    let plan = |here: &Environment| {
        plan::plan(&config, here).map_err(|errors| format!("{}\n{errors}", switch.to_toml(usd).toml))
    };
    let asked = neighbors(&plan(&here)?.desired);
    for ((port, address), mac) in asked {
        if let Some(device) = config.ports.get(usize::from(port.0)).map(|port| port.get_ref().name.get_ref().clone()) {
            here.neighbors.push(KernelNeighbor { device, address, mac });
        }
    }
    plan(&here)
}

/// Returns the environment that the switch expects. Behind each port there is a neighbour with a link-local address.
pub fn environment(switch: &Switch, config: &Config) -> Environment {
    let addresses = switch.loopbacks.iter().flat_map(|loopback| loopback.addresses.clone()).collect();
    let mut devices = vec![device(1, "lo", Mac::default(), addresses)];
    let mut neighbors = Vec::new();
    for (number, port) in (0u16..).zip(&config.ports) {
        let name = port.get_ref().name.get_ref();
        let vlan = switch.vlans.iter().find(|vlan| {
            vlan.members.iter().any(|member| *name == member.port || *name == format!("{}.{}", member.port, vlan.id))
        });
        let addresses = match (switch.port(name), vlan) {
            (_, Some(vlan)) => vlan.addresses.clone(),
            (Some(port), None) => port.addresses.clone(),
            (None, None) => Vec::new(),
        };
        devices.push(device(u32::from(number) + 2, name, own_mac(number), addresses));
        let address = IpAddr::V6(std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2));
        neighbors.push(KernelNeighbor { device: name.clone(), address, mac: peer_mac(number) });
    }
    Environment { devices, neighbors, ..Environment::default() }
}

fn device(ifindex: u32, name: &str, mac: Mac, addresses: Vec<IpNet>) -> Device {
    Device { name: name.to_owned(), ifindex, mac, mtu: 9100, up: true, addresses }
}

/// Returns the Ethernet address of a port.
pub fn own_mac(port: u16) -> Mac {
    let [high, low] = port.to_be_bytes();
    Mac([2, 0, 0, 0, high, low])
}

/// Returns the Ethernet address of the station behind a port.
pub fn peer_mac(port: u16) -> Mac {
    let [high, low] = port.to_be_bytes();
    Mac([2, 1, 0, 0, high, low])
}

/// Returns every next hop, with the Ethernet address of the station behind its port.
fn neighbors(desired: &Desired) -> BTreeMap<(PortId, IpAddr), Mac> {
    let of_sids = desired.sids.iter().flat_map(|sid| match &sid.behavior {
        Behavior::EndX { via, backup, .. } => [via.as_slice(), backup.as_slice()].concat(),
        _ => Vec::new(),
    });
    let of_routes = desired.routes.iter().flat_map(|route| match &route.action {
        RouteAction::Via(hops) => hops.clone(),
        _ => Vec::new(),
    });
    let station = |hop: Hop| Some(((hop.port, hop.via?), peer_mac(hop.port.0)));
    of_sids.chain(of_routes).filter_map(station).collect()
}
