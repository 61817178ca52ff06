//! The fabric: switches, hosts, and directed links between them.

use std::collections::{HashMap, VecDeque};

use crate::table::{LinkId, NodeId, PerLink, PerNode};

/// Role of a node in placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A host: it sends and receives, but forwards nothing.
    Host,
    /// A switch: it forwards.
    Switch,
}

/// A host or a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `collection/key`, as Jalapeno writes it.
    pub id: String,
    /// Name of the node, as shown to users.
    pub name: String,
    /// Role of the node: host or switch.
    pub kind: NodeKind,
    /// Plane that the node belongs to, in a fabric made of several planes.
    pub plane: Option<String>,
    /// Group of hosts within which a collective runs, such as a rail.
    pub group: Option<String>,
    /// Whether the node works.
    pub up: bool,
}

impl Node {
    /// Creates a working node. Its name is the part of the id after the first `/`.
    pub fn new(id: impl Into<String>, kind: NodeKind) -> Self {
        let id = id.into();
        let name = id.split_once('/').map_or(id.as_str(), |(_, key)| key).to_owned();
        Self { id, name, kind, plane: None, group: None, up: true }
    }
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Key of its edge in the topology; parallel links have different keys.
    pub key: String,
    /// Sending end.
    pub from: NodeId,
    /// Receiving end.
    pub to: NodeId,
    /// Capacity in the unit of demands: a link of capacity 4 carries four times as much as one of capacity 1.
    pub capacity: u64,
    /// Whether the link works.
    pub up: bool,
    /// Load that Jalapeno's `/load` has booked on it. There, an edge without this attribute weighs 1, and one with 0
    /// weighs nothing.
    pub load: Option<i64>,
}

/// Switches, hosts and links. Neighbours are kept in the order of their ids, so that equal fabrics get equal
/// placements.
#[derive(Clone, Debug, Default)]
pub struct Fabric {
    nodes: PerNode<Node>,
    links: PerLink<Link>,
    by_id: HashMap<String, NodeId>,
    out: PerNode<Vec<LinkId>>,
    into: PerNode<Vec<LinkId>>,
}

/// The node at which the flows of a host enter and leave the part of the fabric with a choice of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// The host has one link only, so its flows enter and leave at the leaf behind it.
    Leaf {
        /// Leaf at the other end of the link.
        leaf: NodeId,
        /// Link from the host to the leaf.
        up: LinkId,
        /// Link from the leaf to the host.
        down: LinkId,
    },
    /// The host itself, because it has several links.
    Host(NodeId),
    /// The host has no working link.
    None,
}

impl Fabric {
    /// Adds a node. Returns `None` if its id is already in use.
    pub fn add_node(&mut self, node: Node) -> Option<NodeId> {
        if self.by_id.contains_key(&node.id) {
            return None;
        }
        let id = NodeId::at(self.nodes.len());
        self.by_id.insert(node.id.clone(), id);
        self.nodes.push(node);
        self.out.push(Vec::new());
        self.into.push(Vec::new());
        Some(id)
    }

    /// Adds one direction of a link.
    pub fn add_link(&mut self, link: Link) -> LinkId {
        let id = LinkId::at(self.links.len());
        let (from, to) = (link.from, link.to);
        self.links.push(link);
        let place = |links: &PerLink<Link>, nodes: &PerNode<Node>, list: &[LinkId], far: fn(&Link) -> NodeId| {
            let own = (&nodes[far(&links[id])].id, &links[id].key);
            list.partition_point(|other| (&nodes[far(&links[*other])].id, &links[*other].key) <= own)
        };
        let position = place(&self.links, &self.nodes, &self.out[from], |link| link.to);
        self.out[from].insert(position, id);
        let position = place(&self.links, &self.nodes, &self.into[to], |link| link.from);
        self.into[to].insert(position, id);
        id
    }

    /// Adds both directions of a link, with the same capacity; keys are made of the names of the two ends.
    pub fn connect(&mut self, one: NodeId, other: NodeId, capacity: u64) -> [LinkId; 2] {
        [(one, other), (other, one)].map(|(from, to)| {
            let key = format!("{}_{}", self.nodes[from].name, self.nodes[to].name);
            let load =
                (self.nodes[from].kind == NodeKind::Switch && self.nodes[to].kind == NodeKind::Switch).then_some(0);
            self.add_link(Link { key, from, to, capacity, up: true, load })
        })
    }

    /// Returns every node with its id.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter()
    }

    /// Returns every link with its id.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, &Link)> {
        self.links.iter()
    }

    /// Returns the node of this id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// Returns the link of this id.
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id]
    }

    /// Returns the node of this id for modification.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id]
    }

    /// Returns the link of this id for modification.
    pub fn link_mut(&mut self, id: LinkId) -> &mut Link {
        &mut self.links[id]
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the number of directed links.
    pub fn link_count(&self) -> usize {
        self.links.len()
    }

    /// Returns the node whose id is exactly this text.
    pub(crate) fn find_id(&self, id: &str) -> Option<NodeId> {
        self.by_id.get(id).copied()
    }

    /// Returns the node of this id, name or key (the id's part after `/`); an id wins over a name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let key = |node: &Node| node.id.split_once('/').is_some_and(|(_, key)| key == name);
        let by_name = || self.nodes().find(|(_, node)| node.name == name || key(node)).map(|(id, _)| id);
        self.by_id.get(name).copied().or_else(by_name)
    }

    /// Returns the hosts in the order they were added.
    pub fn hosts(&self) -> impl Iterator<Item = NodeId> {
        self.nodes().filter(|(_, node)| node.kind == NodeKind::Host).map(|(id, _)| id)
    }

    /// Returns whether the link and both its ends work and its capacity is above 0.
    pub fn works(&self, link: LinkId) -> bool {
        let Link { from, to, capacity, up, .. } = &self.links[link];
        *up && *capacity > 0 && self.nodes[*from].up && self.nodes[*to].up
    }

    /// Returns the working links that leave a node, in the order of the ids of their other ends.
    pub fn out(&self, node: NodeId) -> impl DoubleEndedIterator<Item = LinkId> {
        self.out[node].iter().copied().filter(|link| self.works(*link))
    }

    /// Returns the working links that reach a node, in the order of the ids of their other ends.
    pub fn into(&self, node: NodeId) -> impl DoubleEndedIterator<Item = LinkId> {
        self.into[node].iter().copied().filter(|link| self.works(*link))
    }

    /// Returns where the flows of a host enter and leave.
    pub fn attachment(&self, host: NodeId) -> Attachment {
        let (mut out, mut into) = (self.out(host), self.into(host));
        match (out.next(), out.next(), into.next(), into.next()) {
            (Some(up), None, Some(down), None) if self.links[up].to == self.links[down].from => {
                Attachment::Leaf { leaf: self.links[up].to, up, down }
            }
            (Some(_), _, Some(_), _) => Attachment::Host(host),
            _ => Attachment::None,
        }
    }

    /// Returns for each link whether its load depends on the choice of paths. This is so for all links except the only
    /// link of a host, which is on every path of that host.
    pub fn judged(&self) -> PerLink<bool> {
        let mut single = PerNode::new(self.nodes.len(), false);
        for host in self.hosts() {
            single[host] = !matches!(self.attachment(host), Attachment::Host(_));
        }
        let mut judged = PerLink::new(self.links.len(), false);
        for (id, link) in self.links.iter() {
            judged[id] = !single[link.from] && !single[link.to];
        }
        judged
    }

    /// Returns the tier of every switch, which is its number of hops from the nearest leaf: 0 for switches with hosts,
    /// 1 for spines, 2 for cores. `None` for hosts and for switches that no host reaches.
    pub fn tiers(&self) -> PerNode<Option<usize>> {
        let mut tiers = PerNode::new(self.nodes.len(), None);
        let mut queue = VecDeque::new();
        for host in self.hosts() {
            for link in &self.out[host] {
                let leaf = self.links[*link].to;
                if self.nodes[leaf].kind == NodeKind::Switch && tiers[leaf].is_none() {
                    tiers[leaf] = Some(0);
                    queue.push_back(leaf);
                }
            }
        }
        while let Some(node) = queue.pop_front() {
            for link in &self.out[node] {
                let next = self.links[*link].to;
                if self.nodes[next].kind == NodeKind::Switch && tiers[next].is_none() {
                    tiers[next] = tiers[node].map(|tier| tier + 1);
                    queue.push_back(next);
                }
            }
        }
        tiers
    }
}
