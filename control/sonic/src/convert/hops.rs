//! Converts interfaces to ports, and next hops to a neighbour and its port.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;
use srv6d_addresses::prefix_map::PrefixMap;

use super::text::Toml;
use super::{is_link_local, is_unicast};
use crate::switch::{MAIN_TABLE, RouteHop, StaticRoute, Switch, Tables, Target, Vlan};

/// Number of static routes that may be followed one after the other to find a next hop.
const DEPTH: u8 = 4;

/// A next hop as `srv6d.toml` writes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hop {
    /// Address of the neighbour. `None`: the destination is on-link.
    pub(super) via: Option<IpAddr>,
    pub(super) port: String,
}

/// Values by prefix in each VRF; `None` is the default one.
type ByVrf<'a, T> = HashMap<Option<&'a str>, PrefixMap<T>>;

/// A VRF, an address, and how many static routes may still be followed to it.
type Behind<'a> = (Option<&'a str>, IpAddr, u8);

/// The next hops of packets to an address, or the reason why there are none.
type Resolved = Result<Vec<Hop>, String>;

/// Finds the neighbours and ports of next hops. Everything is found by its name or prefix: a file may have a hundred
/// thousand entries of a kind.
pub(super) struct Hops<'a> {
    tables: Tables<'a>,
    /// Ports of `srv6d.toml` by the name of their interface: a VLAN, or a port under one of its two names.
    ports: HashMap<&'a str, Vec<String>>,
    /// Routed VLANs by the names of the ports whose untagged frames are theirs.
    untagged: HashMap<&'a str, &'a Vlan>,
    loopbacks: HashSet<&'a str>,
    /// Interfaces by their subnets.
    subnets: ByVrf<'a, &'a str>,
    /// Static routes that forward.
    routes: ByVrf<'a, &'a StaticRoute>,
    /// Known results about next hops without an interface.
    behind: RefCell<HashMap<Behind<'a>, Resolved>>,
}

impl<'a> Hops<'a> {
    pub(super) fn new(switch: &'a Switch) -> Self {
        let untagged = untagged(switch);
        let routes = switch.routes.iter().filter(|route| matches!(route.target, Target::Hops(_)));
        Self {
            tables: switch.tables(),
            ports: ports(switch, &untagged),
            untagged,
            loopbacks: switch.loopbacks.iter().map(|loopback| loopback.name.as_str()).collect(),
            subnets: subnets(switch),
            routes: by_vrf(routes.map(|route| (route.vrf.as_deref(), route.prefix, route))),
            behind: RefCell::default(),
        }
    }

    /// Returns the ports of `srv6d.toml` that belong to an interface: one, or the members of a VLAN.
    pub(super) fn ports_of(&self, interface: &str) -> &[String] {
        self.ports.get(interface).map_or(&[], Vec::as_slice)
    }

    /// Returns the routed VLAN of which a port is an untagged member.
    pub(super) fn untagged_vlan(&self, port: &str) -> Option<&'a Vlan> {
        self.untagged.get(port).copied()
    }

    pub(super) fn is_loopback(&self, interface: &str) -> bool {
        self.loopbacks.contains(interface)
    }

    /// Writes the key that names a VRF, unless it is the default one.
    pub(super) fn table_key(&self, vrf: Option<&str>, toml: &mut Toml) {
        match self.tables.of(vrf) {
            None | Some(MAIN_TABLE) => {}
            Some(table) => toml.number("table", table),
        }
    }

    /// Finds out where packets to a next hop are sent. If the next hop is behind a VLAN with several members, the
    /// neighbour is looked for on each of them, and only one on which it answers is used.
    ///
    /// # Errors
    /// The reason why there is no such place.
    pub(super) fn resolve(&self, route: &'a StaticRoute, hop: &'a RouteHop) -> Resolved {
        let vrf = hop.vrf.as_deref().or(route.vrf.as_deref());
        self.resolve_in(vrf, route, hop, DEPTH)
    }

    fn resolve_in(&self, vrf: Option<&'a str>, route: &'a StaticRoute, hop: &'a RouteHop, depth: u8) -> Resolved {
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
                Ok(ports.iter().map(|port| Hop { via, port: port.clone() }).collect())
            }
            (None, Some(via)) if is_link_local(via) => Err(format!("{via} is on every link: it needs a port")),
            (None, Some(via)) => self.behind(vrf, via, depth),
            (None, None) => Err("neither a next hop nor an interface".to_owned()),
        }
    }

    /// Looks for the longest of the switch's subnets and static routes that contains an address.
    fn behind(&self, vrf: Option<&'a str>, via: IpAddr, depth: u8) -> Resolved {
        // Routes that follow each other ask for the same few addresses again and again.
        let key = (vrf, via, depth);
        if let Some(known) = self.behind.borrow().get(&key) {
            return known.clone();
        }
        let found = self.look_behind(vrf, via, depth);
        self.behind.borrow_mut().insert(key, found.clone());
        found
    }

    fn look_behind(&self, vrf: Option<&'a str>, via: IpAddr, depth: u8) -> Resolved {
        let subnet = self.subnets.get(&vrf).and_then(|subnets| subnets.around(via).next());
        let route = self.routes.get(&vrf).and_then(|routes| routes.around(via).next());
        let length = subnet.map(|(prefix, _)| prefix.prefix_len());
        match (subnet, route) {
            (Some((_, interface)), route) if route.is_none_or(|(prefix, _)| Some(prefix.prefix_len()) <= length) => {
                let ports = self.ports_of(interface);
                Ok(ports.iter().map(|port| Hop { via: Some(via), port: port.clone() }).collect())
            }
            (_, Some((_, route))) if depth > 0 => self.through(route, via, depth - 1),
            _ => Err(format!("no port has an address in the subnet of {via}")),
        }
    }

    /// Finds the place of a next hop to which another static route leads.
    fn through(&self, route: &'a StaticRoute, via: IpAddr, depth: u8) -> Resolved {
        let Target::Hops(hops) = &route.target else { return Ok(Vec::new()) };
        let mut resolved = Vec::new();
        let mut known = HashSet::new();
        for hop in hops.iter().filter(|hop| hop.encap.is_none()) {
            let vrf = hop.vrf.as_deref().or(route.vrf.as_deref());
            let found = self.resolve_in(vrf, route, hop, depth).unwrap_or_default();
            // If that route is on-link, the address itself is the neighbour.
            let found = found.into_iter().map(|found| Hop { via: found.via.or(Some(via)), ..found });
            resolved.extend(found.filter(|found| known.insert(found.clone())));
        }
        if resolved.is_empty() {
            Err(format!("the route {} to {via} leads nowhere", route.prefix))
        } else {
            Ok(resolved)
        }
    }

    /// Returns the length of the longest subnet of the default VRF that contains an address.
    pub(super) fn subnet_length(&self, address: IpAddr) -> Option<u8> {
        self.subnets.get(&None)?.around(address).next().map(|(prefix, _)| prefix.prefix_len())
    }
}

/// Returns the first routed VLAN of each port that is an untagged member.
fn untagged(switch: &Switch) -> HashMap<&str, &Vlan> {
    let mut untagged = HashMap::new();
    for vlan in switch.vlans.iter().filter(|vlan| vlan.routed) {
        for member in vlan.members.iter().filter(|member| !member.tagged) {
            untagged.entry(member.port.as_str()).or_insert(vlan);
        }
    }
    untagged
}

/// Returns the ports of `srv6d.toml` by the names of interfaces. A VLAN goes before a port of the same name, and an
/// earlier port before a later one.
fn ports<'a>(switch: &'a Switch, untagged: &HashMap<&'a str, &'a Vlan>) -> HashMap<&'a str, Vec<String>> {
    let mut ports: HashMap<&str, Vec<String>> = HashMap::new();
    for vlan in switch.vlans.iter().filter(|vlan| vlan.routed) {
        let of_vlan = vlan.members.iter().filter_map(|member| {
            let is_its = |own: &&Vlan| own.id == vlan.id;
            if member.tagged {
                return Some(format!("{}.{}", member.port, vlan.id));
            }
            untagged.get(member.port.as_str()).filter(|own| is_its(own)).map(|_| member.port.clone())
        });
        ports.insert(&vlan.name, of_vlan.collect());
    }
    for port in &switch.ports {
        let own = port.routed.then(|| port.name.clone());
        for name in [Some(&port.name), port.wire.as_ref()].into_iter().flatten() {
            ports.entry(name).or_insert_with(|| own.clone().into_iter().collect());
        }
    }
    ports
}

/// Returns the interfaces by their subnets. If several have the same one, the last of them counts.
fn subnets(switch: &Switch) -> ByVrf<'_, &str> {
    let ports = switch.ports.iter().filter(|port| port.routed).map(|port| (&port.vrf, &port.name, &port.addresses));
    let vlans = switch.vlans.iter().map(|vlan| (&vlan.vrf, &vlan.name, &vlan.addresses));
    by_vrf(ports.chain(vlans).flat_map(|(vrf, interface, addresses)| {
        let subnets = addresses.iter().filter(|address| address.prefix_len() < address.max_prefix_len());
        subnets.map(move |address| (vrf.as_deref(), *address, interface.as_str()))
    }))
}

fn by_vrf<'a, T>(entries: impl Iterator<Item = (Option<&'a str>, IpNet, T)>) -> ByVrf<'a, T> {
    let mut by_vrf = ByVrf::new();
    for (vrf, prefix, value) in entries {
        by_vrf.entry(vrf).or_default().insert(prefix, value);
    }
    by_vrf
}
