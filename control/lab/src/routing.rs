//! Computes plain routes of every node: the shortest paths over the links. If several are equally short, all are used.
//!
//! The announcements of a routing protocol are computed: each node's uN locators and loopback addresses, and the IPv6
//! prefixes of hosts' links. Addresses of fabric links and all IPv4 prefixes are not announced: IPv4 crosses the fabric
//! only inside SRv6.
//!
//! With `routing = "bgp"` only hosts get routes from here, namely default routes. The routes that BGP should find are
//! computed as well, and the lab waits for them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::topology::{Behavior, Node, NodePort, Role, Routing, Topology};

/// One route of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainRoute {
    /// Destination prefix.
    pub prefix: IpNet,
    /// Neighbour and port of each of the equally short ways.
    pub hops: Vec<(IpAddr, String)>,
    /// Number of links to the destination.
    pub distance: u32,
    /// Nodes behind the neighbours on these ways, with `glb` only.
    pub behind: BTreeSet<String>,
}

/// Returns the routes that are written into one node, by prefix.
pub fn routes(topology: &Topology, node: &str) -> Vec<PlainRoute> {
    match (topology.routing, topology.node(node)) {
        (Routing::Static, _) => computed(topology, node),
        (Routing::Bgp, Some(node)) if node.role == Role::Host => default_routes(topology, node),
        (Routing::Bgp, _) => Vec::new(),
    }
}

fn computed(topology: &Topology, node: &str) -> Vec<PlainRoute> {
    let mut routes = Vec::new();
    for Shortest { prefix, distance, ports, behind } in shortest(topology, node) {
        let neighbors = ports.iter().filter_map(|port| Some((port.neighbor_v6()?.into(), port.own.port.clone())));
        let hops: Vec<(IpAddr, String)> = neighbors.collect();
        if !hops.is_empty() {
            routes.push(PlainRoute { prefix, hops, distance, behind });
        }
    }
    routes
}

/// Returns the default routes of a host. A host with several leaves uses all of them. A carrier does not follow a
/// default route out of its domain, so there is a separate route for the block.
fn default_routes(topology: &Topology, host: &Node) -> Vec<PlainRoute> {
    let ports = topology.ports(&host.name);
    let hops = |neighbor: fn(&NodePort<'_>) -> Option<IpAddr>| -> Vec<(IpAddr, String)> {
        ports.iter().filter_map(|port| Some((neighbor(port)?, port.own.port.clone()))).collect()
    };
    let over_v6 = hops(|port| port.neighbor_v6().map(IpAddr::V6));
    let all = [
        (IpNet::V6(topology.block), over_v6.clone()),
        (IpNet::V6(Ipv6Net::default()), over_v6),
        (IpNet::V4(Ipv4Net::default()), hops(|port| port.neighbor_v4().map(IpAddr::V4))),
    ];
    let routes = all.into_iter().filter(|(_, hops)| !hops.is_empty());
    routes.map(|(prefix, hops)| PlainRoute { prefix, hops, distance: 1, behind: BTreeSet::new() }).collect()
}

/// Returns what BGP should bring to a router: each prefix, and the ports of all shortest paths.
pub fn learned(topology: &Topology, router: &str) -> Vec<(IpNet, BTreeSet<String>)> {
    let names = |ports: Vec<NodePort<'_>>| ports.iter().map(|port| port.own.port.clone()).collect();
    shortest(topology, router).into_iter().map(|way| (way.prefix, names(way.ports))).collect()
}

/// The shortest ways to a prefix.
struct Shortest<'t> {
    prefix: IpNet,
    distance: u32,
    /// Ports to leave by.
    ports: Vec<NodePort<'t>>,
    /// Nodes behind the neighbours on these ports, with `glb` only.
    behind: BTreeSet<String>,
}

/// Returns the shortest ways to every announced prefix that is not the node's own.
fn shortest<'t>(topology: &'t Topology, node: &str) -> Vec<Shortest<'t>> {
    let mut found = Vec::new();
    for (prefix, owners) in announced(topology) {
        if owners.contains(node) {
            continue;
        }
        let distances = distances(topology, &owners);
        let Some(&distance) = distances.get(node) else { continue };
        let ports: Vec<NodePort<'_>> = topology
            .ports(node)
            .into_iter()
            .filter(|port| distances.get(port.peer.node.as_str()) == Some(&(distance - 1)))
            // Hosts do not forward: a neighbour that is a host counts only if it is the destination itself.
            .filter(|port| owners.contains(port.peer.node.as_str()) || forwards(topology, &port.peer.node))
            .collect();
        if !ports.is_empty() {
            let behind = if topology.glb { behind(topology, &ports, &distances) } else { BTreeSet::new() };
            found.push(Shortest { prefix, distance, ports, behind });
        }
    }
    found
}

/// Returns the nodes that are one link nearer than the neighbours on these ports.
fn behind(topology: &Topology, ports: &[NodePort<'_>], distances: &HashMap<&str, u32>) -> BTreeSet<String> {
    let of = |node: &str| distances.get(node).copied();
    let is_nearer = |port: &NodePort<'_>| of(&port.peer.node).is_some_and(|next| of(&port.own.node) == Some(next + 1));
    let of_neighbors = ports.iter().flat_map(|port| topology.ports(&port.peer.node));
    of_neighbors.filter(is_nearer).map(|port| port.peer.node.clone()).filter(|node| forwards(topology, node)).collect()
}

/// Returns every announced prefix with the nodes that have it. Hosts do not speak BGP, so with BGP their own prefixes
/// are not announced.
fn announced(topology: &Topology) -> BTreeMap<IpNet, BTreeSet<&str>> {
    let mut prefixes: BTreeMap<IpNet, BTreeSet<&str>> = BTreeMap::new();
    let by_bgp = topology.routing == Routing::Bgp;
    let carried = |net: &IpNet| by_bgp || net.addr().is_ipv6();
    for node in topology.nodes().filter(|node| !by_bgp || node.role != Role::Host) {
        let loopbacks = node.addresses.iter().filter(|net| carried(net)).map(IpNet::trunc);
        for prefix in locators(node).map(IpNet::V6).chain(loopbacks) {
            prefixes.entry(prefix).or_default().insert(&node.name);
        }
    }
    for link in topology.links() {
        let is_host = |name: &str| topology.node(name).is_some_and(|node| node.role == Role::Host);
        if !link.ends.iter().any(|end| is_host(&end.node)) {
            continue;
        }
        for end in &link.ends {
            for prefix in end.addresses.iter().filter(|net| carried(net)).map(IpNet::trunc) {
                prefixes.entry(prefix).or_default().insert(&end.node);
            }
        }
    }
    prefixes
}

/// Returns the prefixes of a node's uNs.
pub fn locators(node: &Node) -> impl Iterator<Item = Ipv6Net> {
    node.sids.iter().filter(|sid| sid.behavior == Behavior::Un).map(|sid| sid.prefix)
}

fn forwards(topology: &Topology, node: &str) -> bool {
    topology.node(node).is_some_and(|node| node.role != Role::Host)
}

/// Returns the number of links from each node to the nearest of `owners`. Nodes that cannot reach one are missing.
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

/// Returns the route that an address takes: the one with the longest prefix that contains it.
pub fn longest_match(routes: &[PlainRoute], address: Ipv6Addr) -> Option<&PlainRoute> {
    routes
        .iter()
        .filter(|route| route.prefix.contains(&IpAddr::V6(address)))
        .max_by_key(|route| route.prefix.prefix_len())
}
