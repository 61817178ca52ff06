//! The exact mode: real frames through the worker step of a srv6d in each node, over ports in memory.
//!
//! ```text
//! application ─► host: H.Encaps.Red ─► leaf: chooses an uplink ─► spine: uN ─► leaf: uN ─► host: uDT6 ─► application
//! ```
//!
//! Each node has a configuration, from which the tables are made as in a daemon, one worker, and the daemon's emulated
//! ports. Hosts encapsulate. Their carriers are loose, so that the leaf chooses; those of the rule `placed` name the
//! spine. Applications, links and time are those of the simulation.

mod addresses;
mod configuration;
mod frame;
mod network;
mod node;

use srv6d_emulate::Emulation;

use crate::agenda::Ps;
use crate::failure::RunError;
use crate::rows::Rows;
use crate::settings::{ChoiceRule, Fabric};
use crate::shape::{Place, Shape};
pub(crate) use configuration::Knowledge;
use node::Node;

/// Largest number of nodes, hosts included.
pub const MOST_NODES: u32 = 128;
/// Number of the port of a host that its applications are behind: it comes after the uplink.
const APPLICATIONS: usize = 1;
/// Reasons of drops that links cause. Drops for other reasons would be a fault of a node, and must not happen.
const OF_LINKS: [&str; 4] = ["queue_full", "wire_loss", "port_down", "adj_down"];

/// The present state of the port of a link.
#[derive(Clone, Copy)]
struct Link {
    emulation: Emulation,
    is_up: bool,
}

/// The kind of a node, with its number among the nodes of the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeKind {
    Leaf(u32),
    Spine(u32),
    Host(u32),
}

/// All nodes: leaves first, then spines, then hosts.
pub(crate) struct Exact {
    shape: Shape,
    rule: ChoiceRule,
    seed: u64,
    frame: u32,
    nodes: Rows<Node>,
    /// Links by the number that their port has in [`Shape`].
    links: Rows<Link>,
}

impl Exact {
    /// Makes all nodes.
    ///
    /// # Errors
    /// There are too many, or one of them refuses its configuration.
    pub fn new(fabric: &Fabric, rule: ChoiceRule, seed: u64, knowledge: &Knowledge<'_>) -> Result<Self, RunError> {
        let shape = fabric.shape();
        let count = shape.leaves + shape.spines + shape.host_count();
        if count > MOST_NODES {
            return Err(RunError::TooManyNodes { count });
        }
        let link = |port| Link { emulation: fabric.port_at(shape.place(port)), is_up: true };
        let links = Rows::of(shape.port_count(), link);
        let mut exact = Self { shape, rule, seed, frame: fabric.frame, nodes: Rows::default(), links };
        for number in 0..count {
            let made = exact.desired(number, knowledge).and_then(Node::new);
            exact.nodes.push(made.map_err(|why| exact.refused(number, why))?);
        }
        Ok(exact)
    }

    /// Configures a node by the present knowledge.
    ///
    /// # Errors
    /// The node refuses it.
    pub fn configure(&mut self, node: u32, knowledge: &Knowledge<'_>) -> Result<(), RunError> {
        let published = self.desired(node, knowledge).and_then(|desired| self.nodes[node].publish(desired));
        published.map_err(|why| self.refused(node, why))
    }

    /// Changes the port of a link. The node has to be configured afterwards.
    pub fn set_link(&mut self, port: u32, emulation: Emulation, is_up: bool) {
        self.links[port] = Link { emulation, is_up };
    }

    /// Notes that a node has to make a round at a time. Returns true if no earlier round is planned.
    pub fn is_earlier(&mut self, node: u32, at: Ps) -> bool {
        let due = &mut self.nodes[node].due;
        let is_earlier = due.is_none_or(|due| at < due);
        if is_earlier {
            *due = Some(at);
        }
        is_earlier
    }

    /// Returns the numbers of all nodes.
    pub fn numbers(&self) -> std::ops::Range<u32> {
        0..self.nodes.len()
    }

    /// Returns the number of a host among all nodes.
    pub const fn host(&self, host: u32) -> u32 {
        self.shape.leaves + self.shape.spines + host
    }

    /// Returns the number of the node that sends by a port.
    pub fn owner(&self, port: u32) -> u32 {
        self.sender(port).0
    }

    /// Returns the drops of all links by reason: queue full, lost on the wire, port down. The number of marks comes last.
    pub fn drops(&self) -> [u64; 4] {
        let mut sums = [0; 4];
        for node in self.numbers() {
            for at in 0..self.ports(node).count() {
                let queue = self.nodes[node].queue(at);
                let counts = [queue.queue_full, queue.wire_loss, queue.port_down, queue.ce_marked];
                sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
            let unlinked = self.nodes[node].drops().get("adj_down").copied().unwrap_or_default();
            let [_, _, port_down, _] = &mut sums;
            *port_down += unlinked;
        }
        sums
    }

    /// Returns the bytes that a port has sent, and its rate.
    pub fn load(&self, port: u32) -> (u64, u64) {
        let emulation = self.links[port].emulation;
        let (node, at) = self.sender(port);
        let (packets, bytes) = self.nodes[node].sent(at);
        (bytes + packets * u64::from(emulation.overhead), emulation.rate)
    }

    /// Returns how many packets a link has lost in this direction. Packets that found its queue full do not count.
    pub fn lost_by(&self, port: u32) -> u64 {
        let (node, at) = self.sender(port);
        let queue = self.nodes[node].queue(at);
        queue.wire_loss + queue.port_down
    }

    /// Checks that no node has dropped, held or answered a packet. Packets that links have lost do not count.
    ///
    /// # Errors
    /// The first node that has done so.
    pub fn check(&self) -> Result<(), RunError> {
        for node in self.numbers() {
            let drops = self.nodes[node].drops();
            if let Some((reason, count)) = drops.into_iter().find(|(reason, _)| !OF_LINKS.contains(reason)) {
                return Err(RunError::Dropped { node: self.name(node), reason: reason.to_owned(), count });
            }
        }
        Ok(())
    }

    /// Returns the ports of a node in their order, as [`Shape`] numbers them.
    fn ports(&self, node: u32) -> impl Iterator<Item = u32> {
        (0..).map_while(move |at| self.port(node, at))
    }

    /// Returns the number in [`Shape`] of the port that is number `at` of a node. `None`: the port leads to applications.
    fn port(&self, node: u32, at: u32) -> Option<u32> {
        let Shape { leaves, spines, hosts } = self.shape;
        let place = match self.kind(node) {
            NodeKind::Leaf(leaf) if at < spines => Place::LeafUp { leaf, spine: at },
            NodeKind::Leaf(leaf) if at < spines + hosts => Place::HostDown { host: leaf * hosts + at - spines },
            NodeKind::Spine(spine) if at < leaves => Place::SpineDown { spine, leaf: at },
            NodeKind::Host(host) if at == 0 => Place::HostUp { host },
            _ => return None,
        };
        Some(self.shape.port(place))
    }

    /// Returns the node that sends by a port, and the number of the port there.
    fn sender(&self, port: u32) -> (u32, usize) {
        self.receiver(self.shape.other_end(port))
    }

    /// Returns the node at the other end of a port, and the number of the port there.
    fn receiver(&self, port: u32) -> (u32, usize) {
        let shape = self.shape;
        match shape.place(port) {
            Place::LeafUp { leaf, spine } => (shape.leaves + spine, leaf as usize),
            Place::SpineDown { spine, leaf } => (leaf, spine as usize),
            Place::HostUp { host } => (shape.leaf_of(host), (shape.spines + host % shape.hosts) as usize),
            Place::HostDown { host } => (self.host(host), 0),
        }
    }

    const fn kind(&self, node: u32) -> NodeKind {
        let Shape { leaves, spines, .. } = self.shape;
        if node < leaves {
            NodeKind::Leaf(node)
        } else if node < leaves + spines {
            NodeKind::Spine(node - leaves)
        } else {
            NodeKind::Host(node - leaves - spines)
        }
    }

    fn name(&self, node: u32) -> String {
        match self.kind(node) {
            NodeKind::Leaf(leaf) => format!("leaf{leaf}"),
            NodeKind::Spine(spine) => format!("spine{spine}"),
            NodeKind::Host(host) => format!("host{host}"),
        }
    }

    fn refused(&self, node: u32, why: String) -> RunError {
        RunError::Refused { node: self.name(node), why }
    }
}
