//! What the kernel has to look like for a switch: names, not yet indexes.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use srv6d_sonic::{Action, Loopback, Neighbor, Port, RouteHop, Sid, StaticRoute, Switch, Target, Vlan, is_default_vrf};
use srv6d_srv6::model::{Mac, TableId};

use crate::plan::{Device, Environment};

/// The management interface is nobody's port.
pub const MANAGEMENT: &str = "eth0";

/// Everything of a switch that the kernel shows.
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

/// A port: a wire of the namespace that carries the switch's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedPort {
    /// `Ethernet0`.
    pub name: String,
    /// What it is called when it appears: `eth1`.
    pub wire: Option<String>,
    /// Administratively up.
    pub up: bool,
    /// Largest layer-3 packet, in bytes.
    pub mtu: u32,
    /// Ethernet address; `None`: the one it has.
    pub mac: Option<Mac>,
    /// Name of the VRF; `None`: default.
    pub vrf: Option<String>,
    /// Addresses with their prefix lengths.
    pub addresses: Vec<IpNet>,
}

/// A loopback interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedLoopback {
    /// `Loopback0`.
    pub name: String,
    /// Administratively up.
    pub up: bool,
    /// Name of the VRF; `None`: default.
    pub vrf: Option<String>,
    /// Addresses with their prefix lengths.
    pub addresses: Vec<IpNet>,
}

/// A permanent neighbour.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WantedNeighbor {
    /// Name of the port.
    pub port: String,
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: Mac,
}

/// A route of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedRoute {
    /// Table.
    pub table: TableId,
    /// Destinations, masked.
    pub prefix: IpNet,
    /// What it does.
    pub action: WantedAction,
}

/// What a route does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedAction {
    /// Drops in silence.
    Blackhole,
    /// Drops with Destination Unreachable.
    Unreachable,
    /// Over one of these, each flow its own.
    Via(Vec<WantedHop>),
    /// `encap seg6local`.
    Sid(WantedSid),
}

/// One next hop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedHop {
    /// Neighbour; `None`: on-link.
    pub via: Option<IpAddr>,
    /// Name of the port; `None`: the one with the neighbour's subnet.
    pub port: Option<String>,
    /// `encap seg6`.
    pub encap: Option<WantedEncap>,
}

/// `encap seg6 mode encap|encap.red segs ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedEncap {
    /// In the order they are visited.
    pub segments: Vec<Ipv6Addr>,
    /// `encap.red`.
    pub reduced: bool,
    /// Outer source.
    pub source: Option<Ipv6Addr>,
}

/// A SID as the kernel knows it: `action End|End.X flavors next-csid`, `action End.DT6 table N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedSid {
    /// uN.
    End {
        /// Bits of the locator block.
        block: u8,
        /// Bits a shift consumes.
        shift: u8,
    },
    /// uA.
    EndX {
        /// Bits of the locator block.
        block: u8,
        /// Bits a shift consumes.
        shift: u8,
        /// Neighbour.
        via: Ipv6Addr,
        /// Name of its port.
        port: String,
    },
    /// uDT6, and the IPv6 half of uDT46.
    EndDt6 {
        /// Table of the inner lookup.
        table: TableId,
    },
}

impl Wanted {
    /// What a switch wants. `switch_mac`: every port has the address of `DEVICE_METADATA`.
    pub fn of(switch: &Switch, switch_mac: bool) -> Self {
        let router = switch.device.mac.filter(|_| switch_mac);
        let vrf = |name: &Option<String>| name.clone().filter(|name| !is_default_vrf(name));
        let port = |port: &Port| WantedPort {
            name: port.name.clone(),
            wire: port.wire.clone(),
            up: port.admin_up,
            mtu: port.mtu,
            mac: port.mac.or(router),
            vrf: vrf(&port.vrf),
            addresses: addresses(switch, port),
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
        let on_link = switch.ports.iter().flat_map(|port| connected(switch, port));
        let written = switch.routes.iter().filter_map(|route| static_route(switch, route));
        let sids = switch.sids.iter().filter_map(|written| sid(switch, written));
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
    /// Names and addresses that the kernel is about to have, so that a plan need not wait for them.
    pub fn lay_over(&self, environment: &mut Environment) {
        for port in &self.ports {
            let by_wire = || port.wire.as_deref().filter(|wire| *wire != MANAGEMENT);
            let known = environment.device(&port.name).is_some();
            let now = if known { Some(port.name.as_str()) } else { by_wire() };
            let Some(now) = now.map(str::to_owned) else { continue };
            for neighbor in environment.neighbors.iter_mut().filter(|neighbor| neighbor.device == now) {
                neighbor.device.clone_from(&port.name);
            }
            if let Some(device) = environment.devices.iter_mut().find(|device| device.name == now) {
                device.name.clone_from(&port.name);
                add_missing(device, &port.addresses);
            }
        }
        for loopback in &self.loopbacks {
            let own = environment.devices.iter().position(|device| device.name == loopback.name);
            let place = own.or_else(|| environment.devices.iter().position(|device| device.name == "lo"));
            if let Some(device) = place.and_then(|place| environment.devices.get_mut(place)) {
                add_missing(device, &loopback.addresses);
            }
        }
    }
}

fn add_missing(device: &mut Device, addresses: &[IpNet]) {
    for address in addresses {
        if !device.addresses.contains(address) {
            device.addresses.push(*address);
        }
    }
}

/// A port's own, and those of the VLAN whose frames it carries untagged: each member is a link of its own here.
fn addresses(switch: &Switch, port: &Port) -> Vec<IpNet> {
    let untagged = |vlan: &&Vlan| vlan.members.iter().any(|member| member.port == port.name && !member.tagged);
    let of_vlans = switch.vlans.iter().filter(untagged).flat_map(|vlan| &vlan.addresses);
    port.addresses.iter().chain(of_vlans).copied().collect()
}

/// Prefixes of a port in a VRF: a VRF device would bring them into its table, and where there is none a SID that
/// decapsulates into that table has to find them.
fn connected(switch: &Switch, port: &Port) -> Vec<WantedRoute> {
    let table = switch.table(port.vrf.as_deref()).map(TableId).filter(|table| *table != TableId::MAIN);
    let on_link = WantedHop { via: None, port: Some(port.name.clone()), encap: None };
    let prefixes = port.addresses.iter().filter(|net| net.prefix_len() < net.max_prefix_len());
    let route = |net: &IpNet| {
        let action = WantedAction::Via(vec![on_link.clone()]);
        Some(WantedRoute { table: table?, prefix: net.trunc(), action })
    };
    prefixes.filter_map(route).collect()
}

/// `None`: into another VRF, which is srv6d's alone.
fn static_route(switch: &Switch, route: &StaticRoute) -> Option<WantedRoute> {
    let table = TableId(switch.table(route.vrf.as_deref())?);
    let action = match &route.target {
        Target::Blackhole => WantedAction::Blackhole,
        Target::Reject => WantedAction::Unreachable,
        Target::Hops(hops) => {
            let same_vrf = |hop: &&RouteHop| hop.vrf.is_none() || switch.table(hop.vrf.as_deref()) == Some(table.0);
            let hops: Vec<WantedHop> = hops.iter().filter(same_vrf).map(|written| hop(switch, written)).collect();
            if hops.is_empty() {
                return None;
            }
            WantedAction::Via(hops)
        }
    };
    Some(WantedRoute { table, prefix: route.prefix.trunc(), action })
}

fn hop(switch: &Switch, hop: &RouteHop) -> WantedHop {
    let around = |via: IpAddr| {
        let port = switch.ports.iter().find(|port| port.addresses.iter().any(|net| net.contains(&via)));
        port.map(|port| port.name.clone())
    };
    WantedHop {
        via: hop.via,
        // Known to the kernel as well, but only once the address is there.
        port: hop.interface.clone().or_else(|| around(hop.via?)),
        encap: hop.encap.as_ref().map(|encap| WantedEncap {
            segments: encap.segments.clone(),
            reduced: encap.reduced,
            source: encap.source,
        }),
    }
}

/// `None`: the kernel has nothing like it. It decapsulates IPv4 only into a VRF device.
fn sid(switch: &Switch, sid: &Sid) -> Option<WantedRoute> {
    let (block, shift) = (sid.block_len, sid.prefix.prefix_len().saturating_sub(sid.block_len));
    let table = TableId(switch.table(sid.vrf.as_deref())?);
    let action = match sid.action {
        Action::Un => WantedSid::End { block, shift },
        Action::Ua => WantedSid::EndX { block, shift, via: sid.adjacency?, port: sid.interface.clone()? },
        Action::Udt6 | Action::Udt46 => WantedSid::EndDt6 { table },
        Action::Udt4 => return None,
    };
    let prefix = IpNet::V6(sid.prefix.trunc());
    Some(WantedRoute { table: TableId::MAIN, prefix, action: WantedAction::Sid(action) })
}
