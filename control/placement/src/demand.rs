//! Who sends to whom, and how much.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::table::NodeId;

/// One flow: it takes one path, whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Host that sends.
    pub source: NodeId,
    /// Host that receives.
    pub destination: NodeId,
    /// How much, in the unit of capacities.
    pub demand: u64,
    /// Index of its tenant, where one is named; otherwise it is the tenant of both hosts.
    pub tenant: Option<usize>,
}

/// Every flow, in the order they were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Flows.
    pub flows: Vec<Flow>,
}

/// What a collective sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Each host to the next one.
    Ring,
    /// Each host to every other one.
    #[default]
    AllToAll,
    /// Each host to one other, and from one other.
    Permutation,
    /// As listed.
    List,
}

impl Demand {
    /// A pattern within each of these groups of hosts. [`Pattern::List`] has no flows of its own.
    pub fn of_pattern(pattern: Pattern, groups: &[Vec<NodeId>], demand: u64, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let flow = |(source, destination)| Flow { source, destination, demand, tenant: None };
        let mut flows = Vec::new();
        for hosts in groups.iter().filter(|hosts| hosts.len() > 1) {
            match pattern {
                Pattern::Ring => flows.extend(onto(hosts, &shifted(hosts)).map(flow)),
                Pattern::Permutation => flows.extend(onto(hosts, &permuted(hosts, &mut random)).map(flow)),
                Pattern::AllToAll => flows.extend(all_pairs(hosts).map(flow)),
                Pattern::List => {}
            }
        }
        Self { flows }
    }
}

fn onto(sources: &[NodeId], destinations: &[NodeId]) -> impl Iterator<Item = (NodeId, NodeId)> {
    sources.iter().copied().zip(destinations.iter().copied())
}

fn shifted(hosts: &[NodeId]) -> Vec<NodeId> {
    let mut next = hosts.to_vec();
    next.rotate_left(1);
    next
}

/// Shuffled until nobody sends to itself; one shuffle in e does.
fn permuted(hosts: &[NodeId], random: &mut Rng) -> Vec<NodeId> {
    let mut shuffled = hosts.to_vec();
    loop {
        random.shuffle(&mut shuffled);
        if onto(hosts, &shuffled).all(|(source, destination)| source != destination) {
            return shuffled;
        }
    }
}

fn all_pairs(hosts: &[NodeId]) -> impl Iterator<Item = (NodeId, NodeId)> {
    hosts
        .iter()
        .flat_map(|source| hosts.iter().map(|destination| (*source, *destination)))
        .filter(|(one, other)| one != other)
}
