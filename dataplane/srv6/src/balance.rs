//! Chooses members of groups by state: by the member that a flow had last, and by how busy the ports are.
//!
//! A group names a policy by its number. Number 0 is the hash, and needs none of this.

use srv6d_balance::{Band, BandScale, Choice, Chooser, Flows, Members, Policy, PolicyMode};
use srv6d_fib::{Groups, SLOT_BITS};

use crate::desired::Balancing;
use crate::flow::FlowHash;
use crate::tables::{Adjacency, PathEntry, Tables};

/// What a worker keeps for groups that choose by state.
#[derive(Debug, Default)]
pub struct Balancer {
    chooser: Chooser,
    /// State of each port, by the number of its device.
    ports: Vec<PortState>,
}

/// Load and rate of a port at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortState {
    /// How busy it is: 0 is idle, 1000 is full.
    pub score: u16,
    /// Bits per second. 0: unknown, which counts as the fastest.
    pub rate: u64,
}

/// A choice that was made for a packet, by the counter slot of the member.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Chosen {
    Hop(u32, Choice),
    Path(u32, Choice),
}

impl Balancer {
    /// Applies the settings of new tables. What is known of flows stays, unless the size of the flow table changes.
    pub fn follow(&mut self, tables: &Tables, seed: u64) {
        let flows = Flows::of(tables.balancing.flows);
        if tables.balancing.policies.is_empty() {
            *self = Self::default();
        } else if self.chooser.room() != flows.room() {
            self.chooser = Chooser::new(flows, seed);
        }
    }

    /// Sets the state of the port of a device.
    pub fn set_port(&mut self, device: u16, state: PortState) {
        let at = usize::from(device);
        if self.ports.len() <= at {
            self.ports.resize(at + 1, PortState::default());
        }
        if let Some(place) = self.ports.get_mut(at) {
            *place = state;
        }
    }

    /// Returns the next hop for a packet, of a group with a policy.
    pub(crate) fn hop<'t>(
        &mut self,
        tables: &'t Tables,
        group: u32,
        flow: FlowHash,
        now: u64,
    ) -> Option<(&'t Adjacency, Chosen)> {
        let policy = tables.balancing.policy(tables.groups.policy(group))?;
        let members = tables.groups.get(group)?;
        let ports = Ports { tables, ports: &self.ports };
        let choosing = Choosing::new(
            &tables.groups,
            group,
            policy,
            members,
            |hop| ports.of_hop(hop),
            |hop| tables.adjacencies.get(hop as usize).map(|hop| hop.slot),
        );
        let choice = self.chooser.choose(policy, flow.for_hops(&tables.seed).number(), &choosing, now);
        let hop = tables.adjacencies.get(*members.get(choice.place)? as usize)?;
        Some((hop, Chosen::Hop(hop.slot, choice)))
    }

    /// Returns the path for a packet, of a steered prefix with a policy.
    pub(crate) fn path<'t>(
        &mut self,
        tables: &'t Tables,
        steer: u32,
        flow: FlowHash,
        now: u64,
    ) -> Option<(&'t PathEntry, Chosen)> {
        let policy = tables.balancing.policy(tables.steers.policy(steer))?;
        let members = tables.steers.get(steer)?;
        let ports = Ports { tables, ports: &self.ports };
        let choosing = Choosing::new(
            &tables.steers,
            steer,
            policy,
            members,
            |path| ports.of_path(path),
            |path| tables.paths.get(path as usize).map(|path| path.slot),
        );
        let choice = self.chooser.choose(policy, flow.for_paths(&tables.seed).number(), &choosing, now);
        let path = tables.paths.get(*members.get(choice.place)? as usize)?;
        Some((path, Chosen::Path(path.slot, choice)))
    }
}

impl Balancing {
    /// Returns the policy with this number.
    pub(crate) fn policy(&self, number: u16) -> Option<&Policy> {
        self.policies.get(usize::from(number).checked_sub(1)?)
    }

    /// Returns true if a policy asks how busy the ports are.
    pub fn needs_samples(&self) -> bool {
        self.policies.iter().any(|policy| matches!(policy.mode, PolicyMode::Adaptive(_)))
    }
}

/// The states of the ports that members lead to.
#[derive(Clone, Copy)]
struct Ports<'p> {
    tables: &'p Tables,
    ports: &'p [PortState],
}

impl Ports<'_> {
    fn of_hop(&self, hop: u32) -> PortState {
        let device = self.tables.adjacencies.get(hop as usize).map(|hop| usize::from(hop.device));
        device.and_then(|device| self.ports.get(device)).copied().unwrap_or_default()
    }

    /// Returns the state of a path's port. Among several next hops, the least busy port counts.
    fn of_path(&self, path: u32) -> PortState {
        let group = self.tables.paths.get(path as usize).and_then(|path| path.group);
        let hops = group.and_then(|group| self.tables.groups.get(group)).unwrap_or_default();
        hops.iter().map(|&hop| self.of_hop(hop)).min_by_key(|state| state.score).unwrap_or_default()
    }
}

/// The members of one group, as a chooser sees them.
#[derive(Debug)]
pub struct Choosing<'g, P, N> {
    groups: &'g Groups,
    group: u32,
    members: &'g [u32],
    scale: Option<BandScale>,
    /// Highest rate of a member.
    fastest: u64,
    port: P,
    number: N,
}

impl<'g, P: Fn(u32) -> PortState, N: Fn(u32) -> Option<u32>> Choosing<'g, P, N> {
    /// Creates the view of a group with these members. `port` returns the state of the port of a member, and `number` a number
    /// that stays with the member as long as it exists.
    pub fn new(groups: &'g Groups, group: u32, policy: &Policy, members: &'g [u32], port: P, number: N) -> Self {
        let scale = if let PolicyMode::Adaptive(adaptive) = policy.mode { Some(adaptive.scale) } else { None };
        let fastest = scale.and_then(|_| members.iter().map(|&member| port(member).rate).max()).unwrap_or_default();
        Self { groups, group, members, scale, fastest, port, number }
    }
}

impl<P: Fn(u32) -> PortState, N: Fn(u32) -> Option<u32>> Members for Choosing<'_, P, N> {
    fn count(&self) -> usize {
        self.members.len()
    }

    fn number(&self, place: usize) -> u32 {
        self.members.get(place).and_then(|&member| (self.number)(member)).unwrap_or(u32::MAX)
    }

    fn picked(&self, hash: u32) -> usize {
        let slot = hash >> (u32::BITS - SLOT_BITS);
        self.groups.place_of_slot(self.group, slot as usize).unwrap_or_default()
    }

    fn band(&self, place: usize) -> Band {
        const ALL: u64 = 1000;
        let (Some(scale), Some(&member)) = (self.scale, self.members.get(place)) else { return 0 };
        let PortState { score, rate } = (self.port)(member);
        let capacity = match rate {
            0 => ALL,
            rate => (rate.min(self.fastest) * ALL).checked_div(self.fastest).unwrap_or(ALL),
        };
        scale.band(score, u16::try_from(capacity).unwrap_or(u16::MAX))
    }
}
