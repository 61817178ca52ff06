//! Choosing the spine of a packet, with the groups, samplers and choosers of the daemon.

use std::collections::HashMap;

use srv6d_balance::{Chooser, Flows, Sample, Sampler};
use srv6d_fib::{Groups, SLOTS, Spread, Spreader};
use srv6d_placement::{self as placement, Constraints, Demand, Flow, Node, NodeId, NodeKind, PlaceError};
use srv6d_srv6::flow::FlowHash;
use srv6d_srv6::{Choosing, Member, PortState};

use crate::job::Job;
use crate::rows::Rows;
use crate::settings::{ChoiceRule, Fabric};
use crate::shape::Shape;

/// Unit of capacity, in bit/s.
const UNIT: u64 = 1_000_000;

/// What the routing knows of a link between a leaf and a spine.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Capacity from the leaf to the spine, and from the spine to the leaf.
    capacities: [u32; 2],
    is_up: bool,
}

/// What the routing knows of a link, in bit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Capacity from the spine to the leaf.
    pub down: u64,
    pub is_up: bool,
}

/// The leaves, which choose spines for packets.
pub(crate) struct Leaves {
    shape: Shape,
    rule: ChoiceRule,
    /// Links by the pair of leaf and spine.
    links: Rows<Link>,
    /// One group for each pair of leaves. A member is a spine.
    groups: Groups,
    spreader: Spreader,
    /// One chooser for each leaf, if leaves choose by state.
    choosers: Rows<Chooser>,
    /// One sampler for each pair of leaf and spine, if leaves choose by state.
    samplers: Rows<Sampler>,
}

impl Leaves {
    /// Creates leaves whose choices depend on `seed`.
    pub fn new(fabric: &Fabric, rule: ChoiceRule, seed: u64) -> Self {
        let shape = fabric.shape();
        let capacity = u32::try_from(fabric.link_rate / UNIT).unwrap_or(u32::MAX);
        let (choosers, samplers) = match rule {
            ChoiceRule::ByState { flows, rate_weight, .. } => (
                Rows::of(shape.leaves, |leaf| Chooser::new(Flows::of(flows), seed << 32 | u64::from(leaf))),
                Rows::of(shape.pairs(), |_| sampler(fabric, rate_weight)),
            ),
            _ => (Rows::default(), Rows::default()),
        };
        let links = Rows::of(shape.pairs(), |_| Link { capacities: [capacity; 2], is_up: true });
        let groups = Groups::default();
        let mut leaves = Self { shape, rule, links, groups, spreader: Spreader::default(), choosers, samplers };
        let equal = leaves.spread_of(0);
        for _ in 0..shape.leaves * shape.leaves {
            leaves.groups.push(&equal);
        }
        leaves
    }

    /// Returns the spine for a packet at a leaf that goes to another leaf. `flow` is the hash of its flow at that leaf,
    /// and `now` is in nanoseconds.
    pub fn spine(&mut self, [leaf, to]: [u32; 2], flow: FlowHash, now: u64) -> u32 {
        let group = leaf * self.shape.leaves + to;
        let by_hash = |groups: &Groups| groups.member(group, || flow.pick(SLOTS)).unwrap_or_default();
        let ChoiceRule::ByState { policy, .. } = &self.rule else { return by_hash(&self.groups) };
        let members = match self.groups.get(group).unwrap_or_default() {
            [only] => return *only,
            members => members,
        };
        let (shape, samplers) = (self.shape, &self.samplers);
        let links = |spine| Member { own: state(&samplers[shape.pair(leaf, spine)]), far: None };
        let choosing = Choosing::new(&self.groups, group, policy, members, links, Some);
        let choice = self.choosers[leaf].choose(policy, flow.number(), &choosing, now);
        members.get(choice.place).copied().unwrap_or_default()
    }

    /// Takes a sample of the port of each leaf to each spine. `shown` returns the counters of the port of a pair.
    pub fn sample(&mut self, now: u64, interval: u64, mut shown: impl FnMut(u32) -> Sample) {
        for (pair, sampler) in (0..).zip(self.samplers.iter_mut()) {
            sampler.sample(now, interval, shown(pair));
        }
    }

    /// Sets the rate of the port of a leaf to a spine. The leaf sees it at once.
    pub fn set_rate(&mut self, fabric: &Fabric, [leaf, spine]: [u32; 2], rate: u64) {
        if let ChoiceRule::ByState { rate_weight, .. } = self.rule {
            self.samplers[self.shape.pair(leaf, spine)].change(rate, fabric.link_port().full_queue(), rate_weight);
        }
    }

    /// Returns what the routing knows of a link.
    pub fn known(&self, leaf: u32, spine: u32) -> Known {
        let Link { capacities: [_, down], is_up } = self.links[self.shape.pair(leaf, spine)];
        Known { down: u64::from(down) * UNIT, is_up }
    }

    /// Records what the routing has learnt of a link. Groups of paths over it get other slots.
    pub fn learn(&mut self, [leaf, spine]: [u32; 2], rates: [u64; 2], is_up: bool) {
        let capacities = rates.map(|rate| u32::try_from(rate / UNIT).unwrap_or(u32::MAX));
        self.links[self.shape.pair(leaf, spine)] = Link { capacities, is_up };
        let leaves = self.shape.leaves;
        for other in 0..leaves {
            self.spread(leaf * leaves + other);
            self.spread(other * leaves + leaf);
        }
    }

    fn spread(&mut self, group: u32) {
        let spread = self.spread_of(group);
        self.groups.set(group, &spread);
    }

    /// Returns the members of a group, with the slots of their weights.
    fn spread_of(&mut self, group: u32) -> Spread {
        let [from, to] = [group / self.shape.leaves, group % self.shape.leaves];
        let link = |leaf, spine| self.links[self.shape.pair(leaf, spine)];
        let weight = |spine| match self.rule {
            ChoiceRule::Weighted => {
                let ([up, _], [_, down]) = (link(from, spine).capacities, link(to, spine).capacities);
                up.min(down)
            }
            _ => 1,
        };
        let is_up = |spine: &u32| link(from, *spine).is_up && link(to, *spine).is_up;
        let spines = 0..self.shape.spines;
        let mut members: Vec<(u32, u32)> = spines.clone().filter(is_up).map(|spine| (spine, weight(spine))).collect();
        if members.is_empty() {
            members = spines.map(|spine| (spine, 1)).collect();
        }
        self.spreader.spread(&members, self.groups.spread(group).as_ref())
    }

    /// Returns the spine that the placement planner gives each job.
    ///
    /// # Errors
    /// There is no placement, for example because a leaf is cut off.
    pub fn placed(&self, jobs: &[Job], host_rate: u64) -> Result<Vec<u32>, PlaceError> {
        let demand = (host_rate / UNIT).max(1);
        let plan = self.plan();
        let flow = |job: &Job| {
            Some(Flow {
                source: plan.host(job.source)?,
                destination: plan.host(job.destination)?,
                demand,
                tenant: None,
            })
        };
        let demand = Demand { flows: jobs.iter().filter_map(flow).collect() };
        let placed = placement::place(&plan.fabric, &demand, &Constraints::default())?;
        let spine = |flow| {
            let first = placed.paths.route(flow).first()?;
            plan.spines.get(&plan.fabric.link(*first).to).copied()
        };
        Ok((0..demand.flows.len()).map(|flow| spine(flow).unwrap_or_default()).collect())
    }

    /// Returns the fabric as the planner sees it.
    fn plan(&self) -> Plan {
        let mut fabric = placement::Fabric::default();
        let mut nodes = |name: &str, kind, count| -> Vec<NodeId> {
            (0..count).filter_map(|number| fabric.add_node(Node::new(format!("{name}{number:05}"), kind))).collect()
        };
        let spines = nodes("spine", NodeKind::Switch, self.shape.spines);
        let leaves = nodes("leaf", NodeKind::Switch, self.shape.leaves);
        let hosts = nodes("host", NodeKind::Host, self.shape.host_count());
        for ((leaf, spine), link) in pairs(&leaves, &spines).zip(self.links.as_slice()) {
            for (id, capacity) in fabric.connect(leaf, spine, 1).into_iter().zip(link.capacities) {
                let direction = fabric.link_mut(id);
                (direction.capacity, direction.up) = (capacity.into(), link.is_up);
            }
        }
        for (hosts, leaf) in hosts.chunks(self.shape.hosts as usize).zip(&leaves) {
            for host in hosts {
                fabric.connect(*host, *leaf, u64::from(u32::MAX));
            }
        }
        Plan { fabric, hosts, spines: spines.into_iter().zip(0..).collect() }
    }
}

/// The fabric as the planner sees it.
struct Plan {
    fabric: placement::Fabric,
    hosts: Vec<NodeId>,
    spines: HashMap<NodeId, u32>,
}

impl Plan {
    fn host(&self, host: u32) -> Option<NodeId> {
        self.hosts.get(host as usize).copied()
    }
}

fn pairs(leaves: &[NodeId], spines: &[NodeId]) -> impl Iterator<Item = (NodeId, NodeId)> {
    leaves.iter().flat_map(|leaf| spines.iter().map(|spine| (*leaf, *spine)))
}

fn state(sampler: &Sampler) -> PortState {
    PortState { score: sampler.score(), rate: sampler.rate() }
}

fn sampler(fabric: &Fabric, rate_weight: u8) -> Sampler {
    Sampler::new(fabric.link_rate, fabric.link_port().full_queue(), rate_weight, 0, 0)
}
