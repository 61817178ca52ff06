//! Composes the carriers of a path (RFC 9800 section 4, format F3216): 32 bits of block, then six slots of 16 bits.
//!
//! ```text
//!  host -> leaf00 -> spine01 -> leaf02 -> host
//!          [1004]    [1001]     [1006 fe06]          uN, uN, uN with its decapsulating function
//!
//!  fcbb:0000 1004 1001 1006 fe06 0000 0000           one carrier, ended by the first zero slot
//! ```
//!
//! The text that a controller offers as a carrier is never used: it is only a concatenation of SIDs, and not always a
//! valid address.

use std::fmt;
use std::net::Ipv6Addr;

use crate::document::{Topology, Vertex};
use crate::sid::{Behavior, Block, Family, Sid, SidError, Usids};

/// Number of uSIDs in one carrier.
pub const USIDS_PER_CARRIER: usize = 6;

/// Settings for the carriers of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Flexible algorithm of the SIDs.
    pub algo: u8,
    /// Address family of the packets inside.
    pub family: Family,
    /// True if every link is pinned by its uA.
    pub strict: bool,
    /// Function of the last node, used if neither its own SIDs nor the destination provide one.
    pub function: Option<u16>,
}

/// uSIDs that must stay together in one carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A uN, or a local uSID (LIB) of the node that processes it.
    One(u16),
    /// A node and its uA or uDT. At the head of a carrier the second uSID alone would reach no node.
    Pair(u16, u16),
}

impl Item {
    fn usids(self) -> impl Iterator<Item = u16> {
        let (first, second) = match self {
            Self::One(usid) => (usid, None),
            Self::Pair(node, function) => (node, Some(function)),
        };
        std::iter::once(first).chain(second)
    }
}

/// Carriers of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composed {
    /// Carriers in the order in which they are visited.
    pub segments: Vec<Ipv6Addr>,
    /// The uSIDs that the carriers consist of.
    pub items: Vec<Item>,
    /// Names of the nodes the path visits.
    pub visits: Vec<String>,
    /// Observations for the user that are not errors.
    pub notes: Vec<String>,
}

/// Reason why no carrier can be composed for a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComposeError {
    /// The path consists of source and destination only.
    #[error("the path visits no node between source and destination")]
    NoNode,
    /// A node on the path has no usable SID.
    #[error("{node} has no uN SID of algorithm {algo}; give it one, or ask for another algorithm")]
    NoNodeSid {
        /// Name of the node.
        node: String,
        /// The requested algorithm.
        algo: u8,
    },
    /// A link has no adjacency SID.
    #[error("the link from {from} to {to} has no uA SID of algorithm {algo}; give it one, or set strict = false")]
    NoAdjacencySid {
        /// Name of the node where the link begins.
        from: String,
        /// Name of the node where the link ends.
        to: String,
        /// The requested algorithm.
        algo: u8,
    },
    /// No function is known by which the last node removes the outer header.
    #[error("{node} has no decapsulating SID for {family} (uDT); set function_v6 or function_v4, e.g. \"fe06\"")]
    NoFunction {
        /// Name of the last node.
        node: String,
        /// Address family of the packets inside.
        family: Family,
    },
    /// The path runs through a host, which does not forward.
    #[error("the path runs through {0}, which is not a node")]
    ThroughEndpoint(String),
    /// SIDs of several blocks cannot share a carrier.
    #[error("{node} has its SID in block {found}, the path began in {block}; use SIDs of one block")]
    MixedBlocks {
        /// Name of the node with the other block.
        node: String,
        /// Block of that node's SID.
        found: Block,
        /// The block of the first SID.
        block: Block,
    },
    /// A SID is not one of the F3216 format.
    #[error("{node}: {why}")]
    Malformed {
        /// Name of the vertex that has the SID.
        node: String,
        /// What is wrong with the SID.
        why: SidError,
    },
}

/// Composes the carriers of a path. The first vertex is the sender, whose own SIDs are never used. The last vertex is
/// the destination: a host behind the last node, or that node itself.
///
/// # Errors
/// [`ComposeError`].
pub fn compose(walk: &[&Vertex], topology: &Topology, options: &Options) -> Result<Composed, ComposeError> {
    let behind_source = walk.get(1..).unwrap_or_default();
    let nodes = transit(behind_source)?;
    let (&egress, before) = nodes.split_last().ok_or(ComposeError::NoNode)?;
    let destination = walk.last().copied().unwrap_or(egress);
    let mut composer = Composer { options, block: None, items: Vec::new(), notes: Vec::new() };
    for (index, &node) in before.iter().enumerate() {
        let next = nodes.get(index + 1).copied().unwrap_or(egress);
        composer.visit(node, next, topology)?;
    }
    composer.leave(egress, destination)?;
    let Composer { block, items, notes, .. } = composer;
    let block = block.ok_or(ComposeError::NoNode)?;
    let visits = nodes.iter().map(|node| node.name.clone()).collect();
    Ok(Composed { segments: fill(block, &items), items, visits, notes })
}

/// Returns the nodes of a path that carriers visit. Hosts and prefixes without SIDs are skipped, because the path only
/// names them. A host in the middle with SIDs is an error: it would have to forward.
fn transit<'v>(behind_source: &[&'v Vertex]) -> Result<Vec<&'v Vertex>, ComposeError> {
    let last = behind_source.len().saturating_sub(1);
    let mut nodes = Vec::new();
    for (index, vertex) in behind_source.iter().enumerate() {
        if vertex.is_node {
            nodes.push(*vertex);
        } else if index != last && !vertex.sids.is_empty() {
            return Err(ComposeError::ThroughEndpoint(vertex.name.clone()));
        }
    }
    Ok(nodes)
}

struct Composer<'o> {
    options: &'o Options,
    block: Option<Block>,
    items: Vec<Item>,
    notes: Vec<String>,
}

impl Composer<'_> {
    /// Adds the step from a node to the next one: the uN of the node, or the uA of the link if every link is pinned.
    fn visit(&mut self, node: &Vertex, next: &Vertex, topology: &Topology) -> Result<(), ComposeError> {
        let algo = self.options.algo;
        if self.options.strict {
            let sids = topology.adjacency_sids(&node.id, &next.id);
            let missing = || ComposeError::NoAdjacencySid { from: node.name.clone(), to: next.name.clone(), algo };
            let sid = adjacency(&sids, algo).ok_or_else(missing)?;
            let item = self.item(node, sid)?;
            self.items.push(item);
            return Ok(());
        }
        let sid = self.node_sid(node)?.ok_or_else(|| ComposeError::NoNodeSid { node: node.name.clone(), algo })?;
        self.items.push(Item::One(sid));
        Ok(())
    }

    /// Adds the last node together with its decapsulating function.
    fn leave(&mut self, egress: &Vertex, destination: &Vertex) -> Result<(), ComposeError> {
        let Options { family, algo, .. } = *self.options;
        let own = egress.sids.iter().find(|sid| sid.algo == algo && sid.behavior.decapsulates(family)).cloned();
        let bare = self.bare_function(destination)?;
        let item = if let Some(sid) = own {
            let item = self.item(egress, &sid)?;
            self.compare(egress, item, bare);
            match item {
                Item::One(function) => self.behind_node(egress, function)?,
                pair @ Item::Pair(..) => pair,
            }
        } else {
            let missing = || ComposeError::NoFunction { node: egress.name.clone(), family };
            let function = bare.or(self.options.function).ok_or_else(missing)?;
            let missing = || ComposeError::NoNodeSid { node: egress.name.clone(), algo };
            Item::Pair(self.node_sid(egress)?.ok_or_else(missing)?, function)
        };
        self.items.push(item);
        Ok(())
    }

    /// Completes a function that stands directly behind the block (LIB). It reaches its node behind the node's uN or,
    /// in a fabric without uNs, behind the uA that leads to the node.
    fn behind_node(&mut self, egress: &Vertex, function: u16) -> Result<Item, ComposeError> {
        Ok(match self.node_sid(egress)? {
            Some(node) if !self.options.strict => Item::Pair(node, function),
            _ => Item::One(function),
        })
    }

    /// Returns the uN of a node for the requested algorithm, if it has one.
    fn node_sid(&mut self, node: &Vertex) -> Result<Option<u16>, ComposeError> {
        let algo = self.options.algo;
        let labelled = |sid: &&Sid| sid.algo == algo && sid.behavior == Behavior::Un;
        // Older databases do not store the behaviour.
        let unlabelled = |sid: &&Sid| sid.algo == algo && sid.behavior == Behavior::Unknown;
        let Some(sid) = node.sids.iter().find(labelled).or_else(|| node.sids.iter().find(unlabelled)) else {
            return Ok(None);
        };
        match self.item(node, sid)? {
            Item::One(usid) => Ok(Some(usid)),
            Item::Pair(..) => Ok(None),
        }
    }

    /// Returns the function of the leaf that a host's document may contain without a node: `fcbb:0:fe06::`. Its
    /// behaviour label is not reliable, so any behaviour other than a uDT is taken as it is meant in these fabrics:
    /// IPv6.
    fn bare_function(&mut self, destination: &Vertex) -> Result<Option<u16>, ComposeError> {
        if destination.is_node {
            return Ok(None);
        }
        let family = self.options.family;
        let means_family = |behavior: Behavior| match behavior {
            Behavior::Udt4 | Behavior::Udt6 | Behavior::Udt46 => behavior.decapsulates(family),
            _ => family == Family::V6,
        };
        let wanted = |sid: &&Sid| sid.algo == self.options.algo && means_family(sid.behavior);
        let Some(sid) = destination.sids.iter().find(wanted).cloned() else { return Ok(None) };
        Ok(match self.item(destination, &sid)? {
            Item::One(function) | Item::Pair(_, function) => Some(function),
        })
    }

    /// Adds a note if another source names a different function than the last node's own SID, which has precedence.
    fn compare(&mut self, egress: &Vertex, own: Item, bare: Option<u16>) {
        let (Item::One(function) | Item::Pair(_, function)) = own;
        if let Some(other) = bare.or(self.options.function).filter(|other| *other != function) {
            let name = &egress.name;
            self.notes.push(format!("{name} decapsulates at {function:x}; {other:x}, said elsewhere, is not used"));
        }
    }

    fn item(&mut self, node: &Vertex, sid: &Sid) -> Result<Item, ComposeError> {
        let malformed = |why| ComposeError::Malformed { node: node.name.clone(), why };
        let (found, usids) = sid.split().map_err(malformed)?;
        let block = *self.block.get_or_insert(found);
        if block != found {
            return Err(ComposeError::MixedBlocks { node: node.name.clone(), found, block });
        }
        Ok(match usids {
            Usids::One(usid) => Item::One(usid),
            Usids::Two(node, function) => Item::Pair(node, function),
        })
    }
}

/// Selects the adjacency SID for strict pinning. A SID without a backup is preferred, because its traffic stays on the
/// link.
fn adjacency(sids: &[Sid], algo: u8) -> Option<&Sid> {
    let ours =
        || sids.iter().filter(|sid| sid.algo == algo && matches!(sid.behavior, Behavior::Ua | Behavior::Unknown));
    ours().find(|sid| !sid.backup).or_else(|| ours().next())
}

/// Packs items into carriers greedily, without splitting a pair. A full carrier needs no zero slot at its end.
pub fn fill(block: Block, items: &[Item]) -> Vec<Ipv6Addr> {
    let mut carriers: Vec<Vec<u16>> = Vec::new();
    for item in items {
        let usids: Vec<u16> = item.usids().collect();
        match carriers.last_mut() {
            Some(carrier) if carrier.len() + usids.len() <= USIDS_PER_CARRIER => carrier.extend(usids),
            _ => carriers.push(usids),
        }
    }
    carriers.iter().map(|usids| carrier(block, usids)).collect()
}

fn carrier(Block([high, low]): Block, usids: &[u16]) -> Ipv6Addr {
    let slot = |index: usize| usids.get(index).copied().unwrap_or(0);
    Ipv6Addr::new(high, low, slot(0), slot(1), slot(2), slot(3), slot(4), slot(5))
}

/// Reads the uSIDs of a controller's own carrier text, for comparison only, because the text need not be an address
/// (`...:5:fe06::` with eight groups). Returns `None` if the text is not hexadecimal.
pub fn usids_of_text(text: &str) -> Option<Vec<u16>> {
    let groups = text.split(':').skip(2).filter(|group| !group.is_empty());
    groups.map(|group| u16::from_str_radix(group, 16).ok()).collect()
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(usid) => write!(f, "{usid:x}"),
            Self::Pair(node, function) => write!(f, "{node:x} {function:x}"),
        }
    }
}

impl Composed {
    /// Returns whether the text contains these uSIDs, with or without the sender's own uSID before them.
    pub fn agrees_with(&self, text: &str) -> bool {
        let own: Vec<u16> = self.items.iter().flat_map(|item| item.usids()).collect();
        usids_of_text(text).is_some_and(|theirs| theirs == own || theirs.get(1..) == Some(own.as_slice()))
    }
}
