//! Generated fabrics: two tiers, three tiers, and several of them side by side.

use std::str::FromStr;

use crate::fabric::{Fabric, Node, NodeKind};
use crate::table::NodeId;

/// Dimensions of a Clos fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clos {
    /// Number of separate copies (rails), each with its own hosts.
    pub rails: usize,
    /// Pods of each copy; 1 for two tiers.
    pub pods: usize,
    /// Leaves of each pod.
    pub leaves: usize,
    /// Spines of each pod; every leaf has a link to every spine of its pod.
    pub spines: usize,
    /// Cores of each copy; 0 for two tiers. The cores are divided into equal shares, one per spine number: the n-th
    /// spine of every pod has a link to every core of the n-th share.
    pub cores: usize,
    /// Hosts at each leaf.
    pub hosts: usize,
    /// Capacity of every link.
    pub capacity: u64,
}

/// Error: a text that does not describe a fabric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClosError {
    /// The text has the wrong number of parts, or a part is not a number.
    #[error(
        "{0:?} is no fabric; write LEAVESxSPINESxHOSTS (hosts at each leaf), e.g. 32x32x32, or PODSxLEAVESxSPINESxCORESxHOSTS, e.g. 4x4x4x16x4"
    )]
    Shape(String),
    /// A number is zero.
    #[error("{0:?}: every number must be at least 1")]
    Zero(String),
    /// The cores cannot be divided equally between the spines of a pod.
    #[error("{cores} cores cannot be shared by {spines} spines; make the cores a multiple of the spines of a pod")]
    Cores {
        /// Number of cores as given.
        cores: usize,
        /// Number of spines as given.
        spines: usize,
    },
    /// The fabric would have more than `MOST_HOSTS` hosts.
    #[error("{0:?}: {1} hosts are more than the {MOST_HOSTS} a fabric may have here")]
    Large(String, usize),
    /// The fabric would have more than `MOST_LINKS` links between its switches.
    #[error("{0:?}: {1} links between its switches are more than the {MOST_LINKS} a fabric may have here")]
    Dense(String, usize),
}

/// Limit that keeps a typing error from filling the memory.
const MOST_HOSTS: usize = 1 << 20;
/// Limit on links between switches: as many as between 1024 leaves and 1024 spines, in each of four pods.
const MOST_LINKS: usize = 1 << 22;

impl Clos {
    /// Describes a fabric of two tiers with links of capacity 1.
    pub const fn two_tier(leaves: usize, spines: usize, hosts: usize) -> Self {
        Self { rails: 1, pods: 1, leaves, spines, cores: 0, hosts, capacity: 1 }
    }

    /// Describes a fabric of three tiers with links of capacity 1. `leaves` and `spines` count per pod, `hosts` per
    /// leaf.
    pub const fn three_tier(pods: usize, leaves: usize, spines: usize, cores: usize, hosts: usize) -> Self {
        Self { rails: 1, pods, leaves, spines, cores, hosts, capacity: 1 }
    }

    /// Builds the fabric. Nodes are named `host0000`, `leaf000`, `spine000`, `core000`; with several rails, a prefix
    /// such as `r1-` names the rail.
    pub fn build(&self) -> Fabric {
        let mut fabric = Fabric::default();
        for rail in 0..self.rails {
            self.build_rail(&mut fabric, rail);
        }
        fabric
    }

    fn build_rail(&self, fabric: &mut Fabric, rail: usize) {
        let before = if self.rails == 1 { String::new() } else { format!("r{rail}-") };
        let add = |fabric: &mut Fabric, name: String, kind: NodeKind| {
            let collection = if kind == NodeKind::Host { "hosts" } else { "fabric_node" };
            let mut node = Node::new(format!("{collection}/{before}{name}"), kind);
            node.plane = (self.rails > 1 && kind == NodeKind::Switch).then(|| rail.to_string());
            node.group = (self.rails > 1 && kind == NodeKind::Host).then(|| rail.to_string());
            fabric.add_node(node)
        };
        let switches = |fabric: &mut Fabric, name: &str, count: usize| -> Vec<NodeId> {
            (0..count).filter_map(|number| add(fabric, format!("{name}{number:03}"), NodeKind::Switch)).collect()
        };
        let cores = switches(fabric, "core", self.cores);
        let spines = switches(fabric, "spine", self.pods * self.spines);
        let leaves = switches(fabric, "leaf", self.pods * self.leaves);
        for (leaves, spines) in leaves.chunks(self.leaves).zip(spines.chunks(self.spines)) {
            for leaf in leaves {
                for spine in spines {
                    fabric.connect(*leaf, *spine, self.capacity);
                }
            }
            for (spine, share) in spines.iter().zip(cores.chunks((self.cores / self.spines).max(1))) {
                for core in share {
                    fabric.connect(*spine, *core, self.capacity);
                }
            }
        }
        for (number, leaf) in leaves.iter().flat_map(|leaf| std::iter::repeat_n(leaf, self.hosts)).enumerate() {
            if let Some(host) = add(fabric, format!("host{number:04}"), NodeKind::Host) {
                fabric.connect(host, *leaf, self.capacity);
            }
        }
    }
}

impl FromStr for Clos {
    type Err = ClosError;

    fn from_str(text: &str) -> Result<Self, ClosError> {
        let shape = || ClosError::Shape(text.to_owned());
        let numbers: Vec<usize> =
            text.split('x').map(|number| number.trim().parse().map_err(|_| shape())).collect::<Result<_, _>>()?;
        if numbers.contains(&0) {
            return Err(ClosError::Zero(text.to_owned()));
        }
        let clos = match *numbers.as_slice() {
            [leaves, spines, hosts] => Self::two_tier(leaves, spines, hosts),
            [pods, leaves, spines, cores, hosts] => Self::three_tier(pods, leaves, spines, cores, hosts),
            _ => return Err(shape()),
        };
        let hosts = clos.pods.saturating_mul(clos.leaves).saturating_mul(clos.hosts);
        if hosts > MOST_HOSTS || numbers.iter().any(|number| *number > MOST_HOSTS) {
            return Err(ClosError::Large(text.to_owned(), hosts));
        }
        let links = clos.pods.saturating_mul(clos.leaves.saturating_mul(clos.spines).saturating_add(clos.cores));
        if links > MOST_LINKS {
            return Err(ClosError::Dense(text.to_owned(), links));
        }
        if !clos.cores.is_multiple_of(clos.spines) {
            return Err(ClosError::Cores { cores: clos.cores, spines: clos.spines });
        }
        Ok(clos)
    }
}
