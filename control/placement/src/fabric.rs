//! The fabric: switches, hosts, and directed links between them.

use std::collections::{HashMap, VecDeque};

use crate::table::{LinkId, NodeId, PerLink, PerNode};

/// What a vertex is to placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sends and receives; forwards nothing.
    Host,
    /// Forwards.
    Switch,
}

/// A host or a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `collection/key`, as Jalapeno writes it.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// Whether it forwards.
    pub kind: Kind,
    /// Plane of a fabric made of several.
    pub plane: Option<String>,
    /// Group of hosts a collective runs within, such as a rail.
    pub group: Option<String>,
    /// It works.
    pub up: bool,
}

impl Node {
    /// A working node, whose name is the key of its id.
    pub fn new(id: impl Into<String>, kind: Kind) -> Self {
        let id = id.into();
        let name = id.split_once('/').map_or(id.as_str(), |(_, key)| key).to_owned();
        Self { id, name, kind, plane: None, group: None, up: true }
    }
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Key of its edge; parallel links differ in it.
    pub key: String,
    /// Its sending end.
    pub from: NodeId,
    /// Its receiving end.
    pub to: NodeId,
    /// In the unit of demands: a link of capacity 4 carries four times what one of capacity 1 does.
    pub capacity: u64,
    /// It works.
    pub up: bool,
    /// What Jalapeno's `/load` has booked on it; an edge without the attribute weighs 1 there, one with 0 nothing.
    pub load: Option<i64>,
}

/// Switches, hosts and links. Neighbours are kept in the order of their ids, so equal fabrics are placed equally.
#[derive(Clone, Debug, Default)]
pub struct Fabric {
    nodes: PerNode<Node>,
    links: PerLink<Link>,
    by_id: HashMap<String, NodeId>,
    out: PerNode<Vec<LinkId>>,
    into: PerNode<Vec<LinkId>>,
}

/// Where a host's flows enter and leave the part of the fabric that leaves a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Behind its only link.
    Leaf {
        /// The switch at its other end.
        leaf: NodeId,
        /// From the host.
        up: LinkId,
        /// To the host.
        down: LinkId,
    },
    /// The host itself: it has several links.
    Host(NodeId),
    /// The host has no working link.
    None,
}

impl Fabric {
    /// Adds a node. `None`: its id is taken.
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

    /// Adds both directions, of the same capacity; keys are made of the names of the ends.
    pub fn connect(&mut self, one: NodeId, other: NodeId, capacity: u64) -> [LinkId; 2] {
        [(one, other), (other, one)].map(|(from, to)| {
            let key = format!("{}_{}", self.nodes[from].name, self.nodes[to].name);
            let load = (self.nodes[from].kind == Kind::Switch && self.nodes[to].kind == Kind::Switch).then_some(0);
            self.add_link(Link { key, from, to, capacity, up: true, load })
        })
    }

    /// Every node.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter()
    }

    /// Every link.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, &Link)> {
        self.links.iter()
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// A link.
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id]
    }

    /// A node, to change it.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id]
    }

    /// A link, to change it.
    pub fn link_mut(&mut self, id: LinkId) -> &mut Link {
        &mut self.links[id]
    }

    /// Number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Number of directed links.
    pub fn link_count(&self) -> usize {
        self.links.len()
    }

    /// The node of exactly that id.
    pub(crate) fn find_id(&self, id: &str) -> Option<NodeId> {
        self.by_id.get(id).copied()
    }

    /// The node of that id, key or name; an id wins over a name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let key = |node: &Node| node.id.split_once('/').is_some_and(|(_, key)| key == name);
        let by_name = || self.nodes().find(|(_, node)| node.name == name || key(node)).map(|(id, _)| id);
        self.by_id.get(name).copied().or_else(by_name)
    }

    /// Hosts, in the order they were added.
    pub fn hosts(&self) -> impl Iterator<Item = NodeId> {
        self.nodes().filter(|(_, node)| node.kind == Kind::Host).map(|(id, _)| id)
    }

    /// Link and both its ends work, and it can carry something.
    pub fn works(&self, link: LinkId) -> bool {
        let Link { from, to, capacity, up, .. } = &self.links[link];
        *up && *capacity > 0 && self.nodes[*from].up && self.nodes[*to].up
    }

    /// Working links that leave a node, in the order of the ids of their other ends.
    pub fn out(&self, node: NodeId) -> impl DoubleEndedIterator<Item = LinkId> {
        self.out[node].iter().copied().filter(|link| self.works(*link))
    }

    /// Working links that reach a node.
    pub fn into(&self, node: NodeId) -> impl DoubleEndedIterator<Item = LinkId> {
        self.into[node].iter().copied().filter(|link| self.works(*link))
    }

    /// Where a host's flows enter and leave.
    pub fn door(&self, host: NodeId) -> Door {
        let (mut out, mut into) = (self.out(host), self.into(host));
        match (out.next(), out.next(), into.next(), into.next()) {
            (Some(up), None, Some(down), None) if self.links[up].to == self.links[down].from => {
                Door::Leaf { leaf: self.links[up].to, up, down }
            }
            (Some(_), _, Some(_), _) => Door::Host(host),
            _ => Door::None,
        }
    }

    /// Links that placement has a say in: all but the only link of a host, which carries what the host sends or
    /// receives, whatever the paths.
    pub fn judged(&self) -> PerLink<bool> {
        let mut single = PerNode::new(self.nodes.len(), false);
        for host in self.hosts() {
            single[host] = !matches!(self.door(host), Door::Host(_));
        }
        let mut judged = PerLink::new(self.links.len(), false);
        for (id, link) in self.links.iter() {
            judged[id] = !single[link.from] && !single[link.to];
        }
        judged
    }

    /// Hops from the nearest leaf: 0 for switches with hosts, 1 for spines, 2 for cores. `None`: hosts, and switches
    /// that no host reaches.
    pub fn tiers(&self) -> PerNode<Option<usize>> {
        let mut tiers = PerNode::new(self.nodes.len(), None);
        let mut queue = VecDeque::new();
        for host in self.hosts() {
            for link in &self.out[host] {
                let leaf = self.links[*link].to;
                if self.nodes[leaf].kind == Kind::Switch && tiers[leaf].is_none() {
                    tiers[leaf] = Some(0);
                    queue.push_back(leaf);
                }
            }
        }
        while let Some(node) = queue.pop_front() {
            for link in &self.out[node] {
                let next = self.links[*link].to;
                if self.nodes[next].kind == Kind::Switch && tiers[next].is_none() {
                    tiers[next] = tiers[node].map(|tier| tier + 1);
                    queue.push_back(next);
                }
            }
        }
        tiers
    }
}
