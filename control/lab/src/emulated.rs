//! The emulated ports of a running lab, as the nodes' files have them.

use serde::Serialize;
use srv6d_show::Table;

use super::emulate::Emulate;
use super::fabric::Lab;
use super::impair;
use super::topology::{Forwarder, NodePort};

/// One direction of a link: packets that leave a node through an emulated port.
#[derive(Clone, Debug, Serialize)]
pub struct Direction {
    /// Name of the node.
    pub node: String,
    /// Port by which packets leave it.
    pub port: String,
    /// Node at the other end.
    pub peer: String,
    /// Settings of the port. `None`: it is not emulated, although the topology says so.
    pub emulate: Option<Emulate>,
    /// Whether the settings differ from those of the topology.
    pub impaired: bool,
}

/// Returns the ports that are emulated, or should be by the topology. A file that cannot be read has none.
pub fn directions(lab: &Lab) -> Vec<Direction> {
    let ports = lab.topology.nodes().filter(|node| node.kind == Forwarder::Srv6d);
    let ports = ports.flat_map(|node| lab.topology.ports(&node.name));
    ports.filter_map(|port| direction(&port, impair::in_file(lab, &port.own.node, &port.own.port).ok()?)).collect()
}

fn direction(port: &NodePort<'_>, emulate: Option<Emulate>) -> Option<Direction> {
    let impaired = emulate.as_ref() != port.emulate;
    (impaired || emulate.is_some()).then(|| Direction {
        node: port.own.node.clone(),
        port: port.own.port.clone(),
        peer: port.peer.node.clone(),
        emulate,
        impaired,
    })
}

/// Returns the table of emulated ports. Empty: there are none.
pub fn table(directions: &[Direction]) -> String {
    if directions.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["EMULATED", "TO", ">RATE", ">QUEUE", ">DELAY", ">LOSS", "ECN", "SET BY"]);
    for Direction { node, port, peer, emulate, impaired } in directions {
        let shown = |key| emulate.as_ref().and_then(|emulate| emulate.shown(key)).unwrap_or_else(|| "-".to_owned());
        let set_by = if *impaired { "impair" } else { "topology" };
        let cells = ["rate", "queue", "delay", "loss", "ecn"].map(shown);
        table.row([format!("{node}:{port}"), peer.clone()].into_iter().chain(cells).chain([set_by.to_owned()]));
    }
    table.finish("")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::{FABRIC, Topology};

    #[test]
    fn what_differs_from_the_topology_is_impaired() {
        let slow = FABRIC.replace(
            "[[link]]\nends = [\n    { node = \"host00\"",
            "[[link]]\nemulate = { rate = \"10Mbit\" }\nends = [\n    { node = \"host00\"",
        );
        let topology = Topology::parse(&slow, "fabric").unwrap();
        let [port] = topology.ports("host00").try_into().unwrap();
        let of_topology = port.emulate.cloned();
        let is_impaired = |emulate| direction(&port, emulate).map(|direction| direction.impaired);
        assert_eq!(is_impaired(of_topology.clone()), Some(false));
        assert_eq!(is_impaired(None), Some(true));
        let plain = NodePort { emulate: None, ..port };
        assert!(direction(&plain, None).is_none());
        assert!(direction(&plain, of_topology.clone()).unwrap().impaired);
        let rows = [direction(&port, of_topology).unwrap(), direction(&port, None).unwrap()];
        let shown = table(&rows);
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.get(1).unwrap(), &["host00:eth1", "leaf00", "10Mbit", "-", "-", "-", "-", "topology"]);
        assert_eq!(lines.get(2).unwrap(), &["host00:eth1", "leaf00", "-", "-", "-", "-", "-", "impair"]);
        assert_eq!(table(&[]), "");
    }
}
