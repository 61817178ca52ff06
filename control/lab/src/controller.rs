//! The lab's path controller: a `srv6d path-server` in a namespace of its own, with a link to every host outside of the
//! fabric. The lab itself is its topology.

use crate::namespaces;
use srv6d_netns as netns;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ipnet::Ipv6Net;
use serde_json::{Map, Value, json};

use super::error::LabError;
use super::topology::{Behavior, Forwarder, Node, Role, Sid, Topology};

/// Name of the controller's node.
pub const NODE: &str = "controller";
/// Device of a host towards the controller. srv6d does not use it.
pub const PORT: &str = "mgmt0";
/// TCP port of the controller's API, the same as Jalapeno's.
pub const API: u16 = 30800;

/// Both ends of the link between the controller and one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link<'t> {
    /// Name of the host.
    pub host: &'t str,
    /// Device in the controller's namespace; it has the host's name.
    pub port: &'t str,
    /// Address of the controller.
    pub own: Ipv6Net,
    /// Address of the host.
    pub peer: Ipv6Net,
}

/// Returns a link with a /64 of the management prefix for every host that asks the controller.
pub fn links(topology: &Topology) -> Vec<Link<'_>> {
    let Some(controller) = &topology.controller else { return Vec::new() };
    let hosts = topology.tier(Role::Host).filter(|host| asks(topology, host));
    hosts
        .zip(0u16..)
        .map(|(host, number)| {
            let address = |last: u16| {
                let [a, b, c, _, ..] = controller.prefix.addr().segments();
                Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, number, 0, 0, 0, last), 64)
            };
            Link { host: &host.name, port: &host.name, own: address(1), peer: address(2) }
        })
        .collect()
}

/// Whether the node's paths come from the controller.
pub fn asks(topology: &Topology, node: &Node) -> bool {
    topology.controller.is_some() && node.kind == Forwarder::Srv6d && node.role == Role::Host && !node.steer.is_empty()
}

/// Returns the URL of the API as one host reaches it.
pub fn endpoint(topology: &Topology, host: &str) -> Option<String> {
    let link = links(topology).into_iter().find(|link| link.host == host)?;
    Some(format!("http://[{}]:{API}", link.own.addr()))
}

/// Returns the vertex id of a node.
pub fn id(node: &Node) -> String {
    if node.role == Role::Host { format!("hosts/{}", node.name) } else { format!("fabric_node/{}", node.name) }
}

/// Returns the key of the edge from one node to another.
pub fn edge_key(from: &str, to: &str) -> String {
    format!("{from}_{to}")
}

/// Returns the lab as the controller's topology file.
pub fn graph(topology: &Topology) -> Value {
    let documents = |hosts: bool, document: fn(&Topology, &Node) -> Value| {
        topology
            .nodes()
            .filter(move |node| (node.role == Role::Host) == hosts)
            .map(|node| document(topology, node))
            .collect::<Vec<_>>()
    };
    let mut edges = Vec::new();
    for link in topology.links() {
        let [a, b] = &link.ends;
        for (from, to) in [(a, b), (b, a)] {
            edges.extend(edge(topology, &from.node, &to.node));
        }
    }
    json!({ "nodes": documents(false, node), "hosts": documents(true, host), "edges": edges })
}

fn node(_: &Topology, node: &Node) -> Value {
    let sid = |sid: &Sid| {
        let code = match sid.behavior {
            Behavior::Un => 48,
            Behavior::Ua => 57,
            Behavior::Udt6 => 62,
            Behavior::Udt4 => 63,
            Behavior::Udt46 => 64,
        };
        json!({
            "srv6_sid": sid.prefix.addr(),
            "srv6_endpoint_behavior": { "endpoint_behavior": code, "flag": 0, "algo": 0 },
        })
    };
    json!({ "_key": node.name, "router_id": node.name, "name": node.name, "sids": node.sids.iter().map(sid).collect::<Vec<_>>() })
}

fn host(topology: &Topology, host: &Node) -> Value {
    let ports = topology.ports(&host.name);
    let mut document = Map::from_iter([("_key".to_owned(), json!(host.name)), ("name".to_owned(), json!(host.name))]);
    for address in ports.iter().flat_map(|port| &port.own.addresses) {
        let (prefix, length, own) = match address.addr() {
            IpAddr::V6(_) => ("prefix", "prefix_len", "ipv6_address"),
            IpAddr::V4(_) => ("ipv4_prefix", "ipv4_prefix_len", "ipv4_address"),
        };
        document.entry(prefix).or_insert_with(|| json!(address.network()));
        document.entry(length).or_insert_with(|| json!(address.prefix_len()));
        document.entry(own).or_insert_with(|| json!(address.addr()));
    }
    Value::Object(document)
}

/// Returns the document of an edge. Links of hosts carry no weights, as in Jalapeno's lab.
fn edge(topology: &Topology, from: &str, to: &str) -> Option<Value> {
    let (from, to) = (topology.node(from)?, topology.node(to)?);
    let mut edge = json!({ "_key": edge_key(&from.name, &to.name), "_from": id(from), "_to": id(to) });
    if from.role != Role::Host && to.role != Role::Host {
        let keys = edge.as_object_mut()?;
        keys.extend([("latency".to_owned(), json!(1)), ("percent_util_out".to_owned(), json!(0.0))]);
        keys.extend([("load".to_owned(), json!(0))]);
    }
    Some(edge)
}

/// Returns the command that makes the veth pair to a host. It is run in the controller's namespace.
pub fn link_command(lab: &str, link: &Link<'_>) -> String {
    let peer = namespaces::name(lab, link.host);
    format!("link add {} type veth peer name {PORT} netns {peer}", link.port)
}

/// Returns the commands that give either end its address.
pub fn address_commands(device: &str, address: Ipv6Net) -> [String; 2] {
    [format!("addr add {address} dev {device} nodad"), format!("link set {device} up")]
}

/// Tells the controller that the link between two nodes is down in both directions. Only the controller is told: the
/// link itself stays up, so that packets on their way arrive.
///
/// # Errors
/// The controller does not answer, or has no such link.
pub fn switch_off(netns: &str, a: &str, b: &str) -> Result<(), LabError> {
    let failed = |why: String| LabError::Failed(format!("the path controller did not take the change: {why}"));
    netns::enter(netns, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|why| failed(why.to_string()))?.block_on(async {
            let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build();
            let client = client.map_err(|why| failed(why.to_string()))?;
            for key in [edge_key(a, b), edge_key(b, a)] {
                let url = format!("http://[::1]:{API}/api/v1/graphs/fabric_graph/edges/{key}");
                let sent = client.patch(url).json(&json!({ "up": false })).send().await;
                sent.and_then(reqwest::Response::error_for_status).map_err(|why| failed(why.to_string()))?;
            }
            Ok(())
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::FABRIC;

    #[test]
    fn the_lab_is_a_topology_of_the_path_server() {
        let topology = Topology::parse(FABRIC, "fabric").unwrap();
        let store = srv6d_path_server::Store::parse(&graph(&topology).to_string()).unwrap();
        assert_eq!(store.edges("fabric_graph").unwrap().len(), 24);
        assert_eq!(store.vertices("fabric_graph").unwrap().len(), 9);
        let host = store.vertex("hosts/host02").unwrap();
        assert_eq!(host.get("prefix").unwrap(), "fcbb:0:800:2::");
        assert_eq!(host.get("ipv4_prefix_len").unwrap(), 24);
    }

    #[test]
    fn every_host_has_a_link_of_its_own() {
        let topology = Topology::parse(FABRIC, "fabric").unwrap();
        let links = links(&topology);
        assert_eq!(links.len(), 3);
        assert_eq!(endpoint(&topology, "host01").unwrap(), "http://[2001:db8:ffff:1::1]:30800");
        assert_eq!(
            links.iter().map(|link| link.peer.to_string()).collect::<Vec<_>>(),
            ["2001:db8:ffff::2/64", "2001:db8:ffff:1::2/64", "2001:db8:ffff:2::2/64"]
        );
    }
}
