//! The state that the kernel must have for a switch. Interfaces are given by name, because their indexes are not known
//! yet.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use srv6d_addresses::prefix_map::PrefixMap;
use srv6d_addresses::{Mac, TableId};
use srv6d_sonic::{
    Action, Loopback, Neighbor, Port, RouteHop, Sid, StaticRoute, Switch, Tables, Target, Vlan, is_default_vrf,
};

use srv6d_plan::{Device, Environment};

/// Name of the management interface, which is never a port.
pub const MANAGEMENT: &str = "eth0";

/// Desired state of everything of a switch that the kernel has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Ports.
    pub ports: Vec<WantedPort>,
    /// Loopback interfaces.
    pub loopbacks: Vec<WantedLoopback>,
    /// VRFs other than the default one: name and table.
    pub vrfs: Vec<(String, TableId)>,
    /// Permanent neighbours.
    pub neighbors: Vec<WantedNeighbor>,
    /// Static routes and SIDs.
    pub routes: Vec<WantedRoute>,
}

/// A port: an interface (wire) of the namespace that gets the switch's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedPort {
    /// Name, for example `Ethernet0`.
    pub name: String,
    /// Name of its interface when it appears, for example `eth1`.
    pub wire: Option<String>,
    /// True if the interface is administratively up.
    pub up: bool,
    /// Largest layer-3 packet, in bytes.
    pub mtu: u32,
    /// Ethernet address. `None`: the one that it has.
    pub mac: Option<Mac>,
    /// Name of the VRF. `None`: the default one.
    pub vrf: Option<String>,
    /// Addresses with their prefix lengths.
    pub addresses: Vec<IpNet>,
}

/// A loopback interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedLoopback {
    /// Name, for example `Loopback0`.
    pub name: String,
    /// True if the interface is administratively up.
    pub up: bool,
    /// Name of the VRF. `None`: the default one.
    pub vrf: Option<String>,
    /// Addresses with their prefix lengths.
    pub addresses: Vec<IpNet>,
}

/// A permanent neighbour.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WantedNeighbor {
    /// Name of the port.
    pub port: String,
    /// The neighbour's address.
    pub address: IpAddr,
    /// The neighbour's Ethernet address.
    pub mac: Mac,
}

/// A kernel route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedRoute {
    /// Table.
    pub table: TableId,
    /// Destination prefix with host bits zero.
    pub prefix: IpNet,
    /// The action of the route.
    pub action: WantedAction,
}

/// The action of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedAction {
    /// Drops packets silently.
    Blackhole,
    /// Drops packets and answers with Destination Unreachable.
    Unreachable,
    /// Forwards over one of these next hops. Each flow keeps to one of them.
    Via(Vec<WantedHop>),
    /// Processes packets at a SID (`encap seg6local`).
    Sid(WantedSid),
}

/// One next hop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedHop {
    /// Address of the neighbour. `None`: the destination is on-link.
    pub via: Option<IpAddr>,
    /// Name of the port. `None`: the one with the neighbour's subnet.
    pub port: Option<String>,
    /// Encapsulation (`encap seg6`).
    pub encap: Option<WantedEncap>,
}

/// Encapsulation: `encap seg6 mode encap|encap.red segs ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedEncap {
    /// Segments in the order in which they are visited.
    pub segments: Vec<Ipv6Addr>,
    /// True if the mode is `encap.red`.
    pub reduced: bool,
    /// Outer source.
    pub source: Option<Ipv6Addr>,
}

/// A SID in the kernel's terms: `action End|End.X flavors next-csid`, `action End.DT6 table N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedSid {
    /// A uN.
    End {
        /// Length of the locator block in bits.
        block: u8,
        /// Number of bits that a shift consumes.
        shift: u8,
    },
    /// A uA.
    EndX {
        /// Length of the locator block in bits.
        block: u8,
        /// Number of bits that a shift consumes.
        shift: u8,
        /// Address of the neighbour.
        via: Ipv6Addr,
        /// Name of the neighbour's port.
        port: String,
    },
    /// A uDT6, or the IPv6 half of a uDT46.
    EndDt6 {
        /// Table of the inner lookup.
        table: TableId,
    },
}

impl Wanted {
    /// Computes the desired state for a switch. `switch_mac`: every port has the address of `DEVICE_METADATA`.
    pub fn of(switch: &Switch, switch_mac: bool) -> Self {
        let router = switch.device.mac.filter(|_| switch_mac);
        let vrf = |name: &Option<String>| name.clone().filter(|name| !is_default_vrf(name));
        let known = Known::of(switch);
        let port = |port: &Port| WantedPort {
            name: port.name.clone(),
            wire: port.wire.clone(),
            up: port.admin_up,
            mtu: port.mtu,
            mac: port.mac.or(router),
            vrf: vrf(&port.vrf),
            addresses: known.addresses(port),
        };
        let loopback = |loopback: &Loopback| WantedLoopback {
            name: loopback.name.clone(),
            up: loopback.admin_up,
            vrf: vrf(&loopback.vrf),
            addresses: loopback.addresses.clone(),
        };
        let neighbor = |neighbor: &Neighbor| WantedNeighbor {
            port: neighbor.interface.clone(),
            address: neighbor.address,
            mac: neighbor.mac,
        };
        let on_link = switch.ports.iter().flat_map(|port| known.connected(port));
        let written = switch.routes.iter().filter_map(|route| known.static_route(route));
        let sids = switch.sids.iter().filter_map(|written| known.sid(written));
        Self {
            ports: switch.ports.iter().map(port).collect(),
            loopbacks: switch.loopbacks.iter().map(loopback).collect(),
            vrfs: switch.vrfs.iter().map(|vrf| (vrf.name.clone(), TableId(vrf.table))).collect(),
            neighbors: switch.neighbors.iter().map(neighbor).collect(),
            routes: on_link.chain(written).chain(sids).collect(),
        }
    }
}

impl Wanted {
    /// Adds names and addresses that the kernel is about to have to an environment, so that a plan need not wait for
    /// them.
    pub fn lay_over(&self, environment: &mut Environment) {
        let mut devices: HashMap<String, usize> = HashMap::new();
        for (at, device) in environment.devices.iter().enumerate() {
            devices.entry(device.name.clone()).or_insert(at);
        }
        let mut renamed: HashMap<String, &str> = HashMap::new();
        for port in &self.ports {
            let by_wire = || port.wire.as_deref().filter(|wire| *wire != MANAGEMENT);
            let now = if devices.contains_key(&port.name) { Some(port.name.as_str()) } else { by_wire() };
            let Some((now, at)) = now.and_then(|now| devices.remove_entry(now)) else { continue };
            if let Some(device) = environment.devices.get_mut(at) {
                device.name.clone_from(&port.name);
                add_missing(device, &port.addresses);
            }
            devices.insert(port.name.clone(), at);
            renamed.insert(now, &port.name);
        }
        for neighbor in &mut environment.neighbors {
            if let Some(name) = renamed.get(&neighbor.device) {
                neighbor.device = (*name).to_owned();
            }
        }
        for loopback in &self.loopbacks {
            let place = devices.get(&loopback.name).or_else(|| devices.get("lo"));
            if let Some(device) = place.and_then(|place| environment.devices.get_mut(*place)) {
                add_missing(device, &loopback.addresses);
            }
        }
    }
}

fn add_missing(device: &mut Device, addresses: &[IpNet]) {
    let mut known: HashSet<IpNet> = device.addresses.iter().copied().collect();
    device.addresses.extend(addresses.iter().filter(|address| known.insert(**address)));
}

/// Known wishes of a switch's entries, by name or prefix.
struct Known<'a> {
    switch: &'a Switch,
    tables: Tables<'a>,
    /// VLANs by the names of the ports that carry their frames untagged.
    untagged: HashMap<&'a str, Vec<&'a Vlan>>,
    /// Numbers of the ports by their subnets.
    subnets: PrefixMap<usize>,
}

impl<'a> Known<'a> {
    fn of(switch: &'a Switch) -> Self {
        let mut untagged: HashMap<&str, Vec<&Vlan>> = HashMap::new();
        for vlan in &switch.vlans {
            for member in vlan.members.iter().filter(|member| !member.tagged) {
                untagged.entry(&member.port).or_default().push(vlan);
            }
        }
        let mut subnets = PrefixMap::default();
        for (number, port) in switch.ports.iter().enumerate() {
            port.addresses.iter().for_each(|net| subnets.insert_first(*net, number));
        }
        Self { switch, tables: switch.tables(), untagged, subnets }
    }

    /// Returns the port's own addresses and those of the VLAN whose frames it carries untagged. Each member of a VLAN is
    /// a link of its own here.
    fn addresses(&self, port: &Port) -> Vec<IpNet> {
        let of_vlans = self.untagged.get(port.name.as_str()).into_iter().flatten().flat_map(|vlan| &vlan.addresses);
        port.addresses.iter().chain(of_vlans).copied().collect()
    }

    /// Returns routes for the prefixes of a port in a VRF. A VRF device would add them to its table. If there is none, a
    /// SID that decapsulates into that table needs these routes.
    fn connected(&self, port: &Port) -> Vec<WantedRoute> {
        let table = self.tables.of(port.vrf.as_deref()).map(TableId).filter(|table| *table != TableId::MAIN);
        let on_link = WantedHop { via: None, port: Some(port.name.clone()), encap: None };
        let prefixes = port.addresses.iter().filter(|net| net.prefix_len() < net.max_prefix_len());
        let route = |net: &IpNet| {
            let action = WantedAction::Via(vec![on_link.clone()]);
            Some(WantedRoute { table: table?, prefix: net.trunc(), action })
        };
        prefixes.filter_map(route).collect()
    }

    /// Converts a static route. `None`: it leads into another VRF, so only srv6d's own tables have it.
    fn static_route(&self, route: &StaticRoute) -> Option<WantedRoute> {
        let table = TableId(self.tables.of(route.vrf.as_deref())?);
        let action = match &route.target {
            Target::Blackhole => WantedAction::Blackhole,
            Target::Reject => WantedAction::Unreachable,
            Target::Hops(hops) => {
                let same_vrf =
                    |hop: &&RouteHop| hop.vrf.is_none() || self.tables.of(hop.vrf.as_deref()) == Some(table.0);
                let hops: Vec<WantedHop> = hops.iter().filter(same_vrf).map(|written| self.hop(written)).collect();
                if hops.is_empty() {
                    return None;
                }
                WantedAction::Via(hops)
            }
        };
        Some(WantedRoute { table, prefix: route.prefix.trunc(), action })
    }

    fn hop(&self, hop: &RouteHop) -> WantedHop {
        // Returns the first port if several have a subnet around the address.
        let around = |via: IpAddr| {
            let port = self.subnets.around(via).map(|(_, number)| *number).min()?;
            self.switch.ports.get(port).map(|port| port.name.clone())
        };
        WantedHop {
            via: hop.via,
            // The kernel could find the port, too, but only once the address is configured.
            port: hop.interface.clone().or_else(|| around(hop.via?)),
            encap: hop.encap.as_ref().map(|encap| WantedEncap {
                segments: encap.segments.clone(),
                reduced: encap.reduced,
                source: encap.source,
            }),
        }
    }

    /// Converts a SID. `None`: the kernel has no such SID. It decapsulates IPv4 only into a VRF device.
    fn sid(&self, sid: &Sid) -> Option<WantedRoute> {
        let (block, shift) = (sid.block_len, sid.prefix.prefix_len().saturating_sub(sid.block_len));
        let table = TableId(self.tables.of(sid.vrf.as_deref())?);
        let action = match sid.action {
            Action::Un => WantedSid::End { block, shift },
            Action::Ua => WantedSid::EndX { block, shift, via: sid.adjacency?, port: sid.interface.clone()? },
            Action::Udt6 | Action::Udt46 => WantedSid::EndDt6 { table },
            Action::Udt4 => return None,
        };
        let prefix = IpNet::V6(sid.prefix.trunc());
        Some(WantedRoute { table: TableId::MAIN, prefix, action: WantedAction::Sid(action) })
    }
}
