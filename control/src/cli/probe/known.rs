//! What a lab and the daemon of this node know of nodes and SIDs.

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use ipnet::Ipv6Net;
use srv6d_api::state::SidStatus;
use srv6d_api::{Request, Response, Topic, client};
use srv6d_lab::{Node, Topology};
use srv6d_probe::{Known, KnownNode, KnownSid};

/// Returns the nodes of a lab and its block. Nothing is known of a lab that is not up.
pub fn of_lab(name: Option<&str>) -> (Known, Option<Ipv6Net>) {
    let Some(topology) = name.and_then(|name| srv6d_lab::topology_of(name).ok()) else {
        return (Known::default(), None);
    };
    let nodes = topology.nodes().map(|node| of_node(&topology, node)).collect();
    (Known { nodes }, Some(topology.block))
}

fn of_node(topology: &Topology, node: &Node) -> KnownNode {
    let ports = topology.ports(&node.name);
    let addresses = node.addresses.iter().chain(ports.iter().flat_map(|port| &port.own.addresses));
    let addresses = addresses.filter_map(|address| match address.addr() {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    });
    let sids = node.sids.iter().map(|sid| known_sid(sid.prefix, sid.behavior.keyword()));
    KnownNode { name: node.name.clone(), addresses: addresses.chain(node.source).collect(), sids: sids.collect() }
}

/// Adds the SIDs of the daemon of this node, if one runs. Returns its block that has `address`.
pub fn of_daemon(socket: &Path, address: Ipv6Addr, source: Option<Ipv6Addr>, known: &mut Known) -> Option<Ipv6Net> {
    let Ok(Response::Sids(rows)) = client::ask(socket, &Request::Show { topic: Topic::Sids }) else { return None };
    let name = match client::ask(socket, &Request::Show { topic: Topic::Generation }) {
        Ok(Response::Generation(view)) => view.node,
        _ => "this node".to_owned(),
    };
    if !known.nodes.iter().any(|node| node.name == name) {
        let sids = rows.iter().filter_map(|row| Some(known_sid(row.sid.parse().ok()?, &row.behavior))).collect();
        known.nodes.push(KnownNode { name, addresses: source.into_iter().collect(), sids });
    }
    rows.iter().filter_map(block_of).find(|block| block.contains(&address))
}

fn block_of(row: &SidStatus) -> Option<Ipv6Net> {
    let [block, _] = row.csid?;
    let sid: Ipv6Net = row.sid.parse().ok()?;
    Ipv6Net::new(sid.addr(), block).ok().map(|block| block.trunc())
}

fn known_sid(prefix: Ipv6Net, behavior: &str) -> KnownSid {
    KnownSid { prefix, behavior: behavior.to_owned(), shifts: matches!(behavior, "uN" | "uA" | "End" | "End.X") }
}
