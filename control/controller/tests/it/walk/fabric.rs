//! Random fabrics in the form of a controller's documents, each with a path through it.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

/// Function of the last node, if it is not in one of its own SIDs.
pub const FUNCTION: u16 = 0xfe06;
pub const SOURCE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub const DESTINATION_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

pub fn source_v6() -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 1)
}

pub fn destination_v6() -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xd, 0, 0, 0, 0, 1)
}

/// The SIDs by which the path is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// The uN of every node.
    Loose,
    /// The uA of every link, behind the uN of its node.
    Strict,
    /// uAs directly behind the block: no node has a uN.
    Planes,
}

/// The origin of the function that decapsulates at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// uDT4 and uDT6 of the last node, behind its uN.
    Own,
    /// One uDT46 of the last node.
    Both,
    /// A function directly behind the block (LIB).
    Alone,
    /// A function without a node in the destination's document.
    Host,
    /// The configuration.
    Configured,
}

impl Function {
    pub const ALL: [Self; 5] = [Self::Own, Self::Both, Self::Alone, Self::Host, Self::Configured];
}

#[derive(Clone, Debug)]
pub struct Fabric {
    /// uSIDs of the nodes.
    pub usids: Vec<u16>,
    /// Links by their two ends, the smaller one first.
    pub links: Vec<(usize, usize)>,
    pub style: Style,
    pub function: Function,
    /// Nodes of the path between the two hosts; a node may occur several times.
    pub walk: Vec<usize>,
}

/// Generates fabrics of up to nine nodes, with a tree and some more links, and a path of up to fifteen nodes that may
/// turn back.
pub fn any() -> impl Strategy<Value = Fabric> {
    let nodes =
        prop::collection::btree_set(1u16..0xd000, 2..=9).prop_map(|usids| usids.into_iter().collect::<Vec<_>>());
    let shuffled = nodes.prop_shuffle();
    let style = select(vec![Style::Loose, Style::Strict, Style::Planes]);
    let numbers = |len| prop::collection::vec(any_number(), len);
    (shuffled, style, select(Function::ALL.to_vec()), numbers(8..9), numbers(0..14), numbers(1..15)).prop_map(
        |(usids, style, function, parents, more, steps)| {
            let count = usids.len();
            // A tree connects all nodes.
            let mut links: Vec<(usize, usize)> = (1..count).map(|node| (parents[node - 1] % node, node)).collect();
            links.extend(more.chunks(2).filter(|pair| pair.len() == 2).map(|pair| {
                let (a, b) = (pair[0] % count, pair[1] % count);
                (a.min(b), a.max(b))
            }));
            links.retain(|(a, b)| a != b);
            links.sort_unstable();
            links.dedup();
            let function = if style == Style::Planes { Function::Alone } else { function };
            let mut fabric = Fabric { usids, links, style, function, walk: Vec::new() };
            fabric.walk = fabric.wander(&steps);
            fabric
        },
    )
}

fn any_number() -> impl Strategy<Value = usize> {
    0usize..1000
}

impl Fabric {
    /// Builds a fabric whose nodes form a line.
    pub fn line(style: Style, function: Function, len: usize) -> Self {
        let usids = (0..len).map(|node| 0x1000 + u16::try_from(node).unwrap()).collect();
        let links = (1..len).map(|node| (node - 1, node)).collect();
        let function = if style == Style::Planes { Function::Alone } else { function };
        Self { usids, links, style, function, walk: (0..len).collect() }
    }

    fn wander(&self, steps: &[usize]) -> Vec<usize> {
        let mut here = steps[0] % self.usids.len();
        let mut walk = vec![here];
        for step in &steps[1..] {
            let neighbors = self.neighbors(here);
            here = neighbors[step % neighbors.len()];
            walk.push(here);
        }
        walk
    }

    /// Returns the neighbours of a node: the n-th is the one behind port n.
    pub fn neighbors(&self, node: usize) -> Vec<usize> {
        let other = |&(a, b): &(usize, usize)| match node {
            _ if node == a => Some(b),
            _ if node == b => Some(a),
            _ => None,
        };
        self.links.iter().filter_map(other).collect()
    }

    /// Returns the port of a node for hosts, which follows the ports of its links.
    pub fn host_port(&self, node: usize) -> u16 {
        u16::try_from(self.neighbors(node).len()).unwrap()
    }

    /// Returns the node and port at the other end of a link.
    pub fn other_end(&self, node: usize, port: u16) -> (usize, u16) {
        let other = self.neighbors(node)[usize::from(port)];
        let back = self.neighbors(other).iter().position(|neighbor| *neighbor == node).unwrap();
        (other, u16::try_from(back).unwrap())
    }

    pub fn last(&self) -> usize {
        *self.walk.last().unwrap()
    }

    pub fn is_strict(&self) -> bool {
        self.style != Style::Loose
    }

    pub fn walk_names(&self) -> Vec<String> {
        self.walk.iter().map(|node| format!("n{node}")).collect()
    }

    pub fn walk_ids(&self) -> Vec<String> {
        let nodes = self.walk.iter().map(|node| id(*node));
        ["hosts/x".to_owned()].into_iter().chain(nodes).chain(["hosts/y".to_owned()]).collect()
    }

    /// Returns the answer of `/topology` for this fabric.
    pub fn topology(&self) -> Value {
        let mut vertices = serde_json::Map::new();
        for (node, usid) in self.usids.iter().enumerate() {
            let mut sids =
                if self.style == Style::Planes { vec![] } else { vec![sid(&format!("fcbb:0:{usid:x}::"), 48)] };
            match self.function {
                Function::Own => {
                    sids.push(sid(&format!("fcbb:0:{usid:x}:fe04::"), 63));
                    sids.push(sid(&format!("fcbb:0:{usid:x}:fe06::"), 62));
                }
                Function::Both => sids.push(sid(&format!("fcbb:0:{usid:x}:fe46::"), 64)),
                Function::Alone => sids.push(sid("fcbb:0:d000::", 64)),
                Function::Host | Function::Configured => {}
            }
            vertices.insert(
                id(node),
                json!({"_id": id(node), "name": format!("n{node}"), "router_id": id(node), "sids": sids}),
            );
        }
        let bare = if self.function == Function::Host { vec![sid("fcbb:0:fe06::", 48)] } else { vec![] };
        vertices.insert("hosts/x".to_owned(), json!({"_id": "hosts/x", "prefix": "2001:db8:a::", "prefix_len": 64}));
        vertices.insert(
            "hosts/y".to_owned(),
            json!({"_id": "hosts/y", "prefix": "2001:db8:d::", "prefix_len": 64, "sids": bare}),
        );
        json!({ "vertices": vertices, "edges": self.edges() })
    }

    fn edges(&self) -> Vec<Value> {
        let mut edges = Vec::new();
        for node in 0..self.usids.len() {
            for (port, to) in self.neighbors(node).into_iter().enumerate() {
                let function = adjacency(u16::try_from(port).unwrap());
                let uas = match self.style {
                    Style::Loose => json!([]),
                    Style::Strict => {
                        let usid = self.usids[node];
                        // The protected adjacency is the first in the list.
                        json!([
                            ua(&format!("fcbb:0:{usid:x}:ffff::"), true),
                            ua(&format!("fcbb:0:{usid:x}:{function:x}::"), false)
                        ])
                    }
                    Style::Planes => json!([ua(&format!("fcbb:0:{function:x}::"), false)]),
                };
                edges.push(
                    json!({"_key": format!("{node}-{to}"), "_from": id(node), "_to": id(to), "srv6_endx_sid": uas}),
                );
            }
        }
        edges
    }
}

/// Returns the function of the adjacency behind a port.
pub fn adjacency(port: u16) -> u16 {
    0xe000 + port
}

fn id(node: usize) -> String {
    format!("igp_node/{node}")
}

fn sid(address: &str, behavior: u16) -> Value {
    json!({"srv6_sid": address, "srv6_endpoint_behavior": {"endpoint_behavior": behavior, "algo": 0}})
}

fn ua(address: &str, is_protected: bool) -> Value {
    json!({"sid": address, "endpoint_behavior": 57, "algorithm": 0, "flags": {"b_flag": is_protected}})
}
