//! The demand: which host sends to which, and how much.

use std::collections::HashSet;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::commodity::Problem;
use crate::commodity_paths::CommodityPaths;
use crate::constraints::Constraints;
use crate::fabric::{Attachment, Fabric};
use crate::permits::Permits;
use crate::table::NodeId;

/// One flow; it takes one path as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Host that sends.
    pub source: NodeId,
    /// Host that receives.
    pub destination: NodeId,
    /// Amount of traffic, in the unit of capacities.
    pub demand: u64,
    /// Index of its tenant, if set explicitly; otherwise the flow belongs to the tenant that both hosts have in common.
    pub tenant: Option<usize>,
}

/// All flows, in the order in which they were requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// The flows.
    pub flows: Vec<Flow>,
}

/// Traffic pattern of a collective operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Each host sends to the next one.
    Ring,
    /// Each host sends to every other one.
    #[default]
    AllToAll,
    /// Each host sends to one other host and receives from one other host.
    Permutation,
    /// Only the listed pairs send.
    List,
}

impl Pattern {
    /// Returns the number of flows in a group of this many hosts.
    pub(crate) const fn flows(self, hosts: usize) -> usize {
        match self {
            _ if hosts < 2 => 0,
            Self::Ring | Self::Permutation => hosts,
            Self::AllToAll => hosts.saturating_mul(hosts - 1),
            Self::List => 0,
        }
    }
}

impl Demand {
    /// Makes the flows of a pattern within each of these groups of hosts. [`Pattern::List`] has no flows of its own.
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

impl Demand {
    /// Returns the flows that have a path, so that hosts that are cut off do not prevent the placement of all others.
    /// The flows returned belong to no tenant.
    #[must_use]
    pub fn connected(&self, fabric: &Fabric) -> Self {
        let attached = |host: NodeId| !matches!(fabric.attachment(host), Attachment::None);
        let attached = |flow: &&Flow| attached(flow.source) && attached(flow.destination);
        let flows = self.flows.iter().filter(attached).map(|flow| Flow { tenant: None, ..*flow }).collect();
        let (some, nobody) = (Self { flows }, Constraints::default());
        let Ok(problem) = Problem::new(fabric, &some, &nobody) else { return Self::default() };
        let permits = Permits::new(&problem);
        let paths = CommodityPaths::new(&problem, &permits);
        let lost = problem.commodities.iter().enumerate().filter(|(index, _)| paths.hops(*index).is_none());
        let lost: HashSet<u32> = lost.flat_map(|(_, commodity)| commodity.flows.iter().copied()).collect();
        let kept = (0_u32..).zip(&some.flows).filter(|(position, _)| !lost.contains(position));
        Self { flows: kept.map(|(_, flow)| *flow).collect() }
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

/// Shuffles the hosts until no host sends to itself, which holds for about one shuffle in e (2.718).
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
