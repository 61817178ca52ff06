//! Interfaces to ports, and next hops to a neighbour and its port.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{is_link_local, is_unicast};
use crate::model::{RouteHop, StaticRoute, Switch, Target};

/// How far a static route may lean on others.
const DEPTH: u8 = 4;

/// A next hop as `srv6d.toml` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hop {
    /// `None`: on-link.
    pub(super) via: Option<IpAddr>,
    pub(super) port: String,
}

/// A subnet of the switch.
struct Subnet<'a> {
    vrf: Option<&'a str>,
    prefix: IpNet,
    interface: &'a str,
}

/// Where neighbours are.
pub(super) struct Hops<'a> {
    switch: &'a Switch,
    subnets: Vec<Subnet<'a>>,
}

impl<'a> Hops<'a> {
    pub(super) fn new(switch: &'a Switch) -> Self {
        let ports = switch.ports.iter().filter(|port| port.routed).map(|port| (&port.vrf, &port.name, &port.addresses));
        let vlans = switch.vlans.iter().map(|vlan| (&vlan.vrf, &vlan.name, &vlan.addresses));
        let subnets = ports.chain(vlans).flat_map(|(vrf, interface, addresses)| {
            let subnet = move |address: &IpNet| Subnet { vrf: vrf.as_deref(), prefix: address.trunc(), interface };
            addresses.iter().filter(|address| address.prefix_len() < address.max_prefix_len()).map(subnet)
        });
        Self { switch, subnets: subnets.collect() }
    }

    /// The ports of `srv6d.toml` behind an interface: one, or the members of a VLAN.
    pub(super) fn ports_of(&self, interface: &str) -> Vec<String> {
        if let Some(vlan) = self.switch.vlans.iter().find(|vlan| vlan.name == interface && vlan.routed) {
            let name = |tagged: bool, port: &str| {
                if tagged { format!("{port}.{}", vlan.id) } else { port.to_owned() }
            };
            let members = vlan.members.iter();
            return members
                .filter(|member| member.tagged || self.switch.untagged_vlan(&member.port) == Some(vlan))
                .map(|member| name(member.tagged, &member.port))
                .collect();
        }
        self.switch.port(interface).filter(|port| port.routed).map(|port| port.name.clone()).into_iter().collect()
    }

    /// Where packets to a next hop go. Behind a VLAN with several members each of them is asked for the neighbour,
    /// and only one that answers is used.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn resolve(&self, route: &StaticRoute, hop: &RouteHop) -> Result<Vec<Hop>, String> {
        let vrf = hop.vrf.as_deref().or(route.vrf.as_deref());
        self.resolve_in(vrf, route, hop, DEPTH)
    }

    fn resolve_in(
        &self,
        vrf: Option<&str>,
        route: &StaticRoute,
        hop: &RouteHop,
        depth: u8,
    ) -> Result<Vec<Hop>, String> {
        if let Some(via) = hop.via {
            if !is_unicast(via) {
                return Err(format!("{via} is no unicast address"));
            }
            if route.prefix.addr().is_ipv6() && via.is_ipv4() {
                return Err(format!("{via} cannot be the next hop of an IPv6 route"));
            }
        }
        match (&hop.interface, hop.via) {
            (Some(interface), via) => {
                let ports = self.ports_of(interface);
                if ports.is_empty() {
                    return Err(format!("{interface} is no routed port of this switch"));
                }
                Ok(ports.into_iter().map(|port| Hop { via, port }).collect())
            }
            (None, Some(via)) if is_link_local(via) => Err(format!("{via} is on every link: it needs a port")),
            (None, Some(via)) => self.behind(vrf, via, depth),
            (None, None) => Err("neither a next hop nor an interface".to_owned()),
        }
    }

    /// The longest of the switch's subnets and static routes around an address.
    fn behind(&self, vrf: Option<&str>, via: IpAddr, depth: u8) -> Result<Vec<Hop>, String> {
        let subnet = self.subnets.iter().filter(|subnet| subnet.vrf == vrf && subnet.prefix.contains(&via));
        let subnet = subnet.max_by_key(|subnet| subnet.prefix.prefix_len());
        let around = |route: &&StaticRoute| {
            route.vrf.as_deref() == vrf && route.prefix.contains(&via) && matches!(route.target, Target::Hops(_))
        };
        let route = self.switch.routes.iter().filter(around).max_by_key(|route| route.prefix.prefix_len());
        let length = subnet.map(|subnet| subnet.prefix.prefix_len());
        match (subnet, route) {
            (Some(subnet), route) if route.is_none_or(|route| Some(route.prefix.prefix_len()) <= length) => {
                let ports = self.ports_of(subnet.interface);
                Ok(ports.into_iter().map(|port| Hop { via: Some(via), port }).collect())
            }
            (_, Some(route)) if depth > 0 => self.through(route, via, depth - 1),
            _ => Err(format!("no port has an address in the subnet of {via}")),
        }
    }

    /// A next hop that another static route leads to.
    fn through(&self, route: &StaticRoute, via: IpAddr, depth: u8) -> Result<Vec<Hop>, String> {
        let Target::Hops(hops) = &route.target else { return Ok(Vec::new()) };
        let mut resolved = Vec::new();
        for hop in hops.iter().filter(|hop| hop.encap.is_none()) {
            let vrf = hop.vrf.as_deref().or(route.vrf.as_deref());
            let found = self.resolve_in(vrf, route, hop, depth).unwrap_or_default();
            // On-link: the address itself is the neighbour.
            resolved.extend(found.into_iter().map(|found| Hop { via: found.via.or(Some(via)), ..found }));
        }
        if resolved.is_empty() {
            Err(format!("the route {} to {via} leads nowhere", route.prefix))
        } else {
            Ok(resolved)
        }
    }

    /// Length of the longest subnet of the default VRF around an address.
    pub(super) fn subnet_length(&self, address: IpAddr) -> Option<u8> {
        let around = self.subnets.iter().filter(|subnet| subnet.vrf.is_none() && subnet.prefix.contains(&address));
        around.map(|subnet| subnet.prefix.prefix_len()).max()
    }
}
