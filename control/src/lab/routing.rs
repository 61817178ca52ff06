//! Plain routes of every node: shortest paths over the links, every equal one used.
//!
//! What a routing protocol would announce is computed: each node's uN locators and loopback addresses, and the IPv6
//! prefixes of hosts' links. Addresses of fabric links and all of IPv4 stay where they are: IPv4 crosses the fabric
//! inside SRv6 only.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::Ipv6Addr;

use ipnet::{IpNet, Ipv6Net};

use super::topology::{Behavior, Role, Topology};

/// One route of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainRoute {
    /// Destinations.
    pub prefix: Ipv6Net,
    /// Neighbour and port of each equally short way.
    pub hops: Vec<(Ipv6Addr, String)>,
    /// Links to cross.
    pub distance: u32,
}

/// Routes of one node, by prefix.
pub fn routes(topology: &Topology, node: &str) -> Vec<PlainRoute> {
    let mut routes = Vec::new();
    for (prefix, owners) in announced(topology) {
        if owners.contains(node) {
            continue;
        }
        let distances = distances(topology, &owners);
        let Some(&distance) = distances.get(node) else { continue };
        let hops: Vec<(Ipv6Addr, String)> = topology
            .ports(node)
            .iter()
            .filter(|port| distances.get(port.peer.node.as_str()) == Some(&(distance - 1)))
            // A host that is not the destination itself was never passed on the way there.
            .filter(|port| owners.contains(port.peer.node.as_str()) || forwards(topology, &port.peer.node))
            .filter_map(|port| Some((port.neighbor_v6()?, port.own.port.clone())))
            .collect();
        if !hops.is_empty() {
            routes.push(PlainRoute { prefix, hops, distance });
        }
    }
    routes
}

/// Every announced prefix and the nodes that have it.
fn announced(topology: &Topology) -> BTreeMap<Ipv6Net, BTreeSet<&str>> {
    let mut prefixes: BTreeMap<Ipv6Net, BTreeSet<&str>> = BTreeMap::new();
    for node in topology.nodes() {
        let locators = node.sids.iter().filter(|sid| sid.behavior == Behavior::Un).map(|sid| sid.prefix);
        let loopbacks = node.addresses.iter().filter_map(v6);
        for prefix in locators.chain(loopbacks) {
            prefixes.entry(prefix).or_default().insert(&node.name);
        }
    }
    for link in topology.links() {
        let is_host = |name: &str| topology.node(name).is_some_and(|node| node.role == Role::Host);
        if !link.ends.iter().any(|end| is_host(&end.node)) {
            continue;
        }
        for end in &link.ends {
            for prefix in end.addresses.iter().filter_map(v6) {
                prefixes.entry(prefix).or_default().insert(&end.node);
            }
        }
    }
    prefixes
}

fn v6(net: &IpNet) -> Option<Ipv6Net> {
    match net {
        IpNet::V6(net) => Some(net.trunc()),
        IpNet::V4(_) => None,
    }
}

fn forwards(topology: &Topology, node: &str) -> bool {
    topology.node(node).is_some_and(|node| node.role != Role::Host)
}

/// Links from each node to the nearest of `owners`; nodes that cannot reach one are missing.
fn distances<'a>(topology: &'a Topology, owners: &BTreeSet<&'a str>) -> HashMap<&'a str, u32> {
    let mut distances: HashMap<&str, u32> = owners.iter().map(|owner| (*owner, 0)).collect();
    let mut queue: VecDeque<&str> = owners.iter().copied().collect();
    while let Some(node) = queue.pop_front() {
        let distance = distances.get(node).copied().unwrap_or_default();
        if distance > 0 && !forwards(topology, node) {
            continue;
        }
        for port in topology.ports(node) {
            let peer = port.peer.node.as_str();
            if !distances.contains_key(peer) {
                distances.insert(peer, distance + 1);
                queue.push_back(peer);
            }
        }
    }
    distances
}

/// The route that an address takes: the longest prefix that contains it.
pub fn longest_match(routes: &[PlainRoute], address: Ipv6Addr) -> Option<&PlainRoute> {
    routes.iter().filter(|route| route.prefix.contains(&address)).max_by_key(|route| route.prefix.prefix_len())
}
