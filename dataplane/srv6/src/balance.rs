//! Chooses members of groups by state: by the member that a flow had last, and by how busy the ports are.
//!
//! A group names a policy by its number. Number 0 stands for the flow's hash, which needs no state.

use std::sync::Arc;

use srv6d_balance::{Band, BandScale, Choice, Chooser, FarPorts, Flows, Members, Policy, PortState, Profile, combined};
use srv6d_fib::{Groups, SLOT_BITS};

use crate::desired::Balancing;
use crate::flow::FlowHash;
use crate::tables::{Adjacency, PathEntry, Tables};

/// The state that a worker keeps for groups whose policies choose by state.
#[derive(Debug, Default)]
pub struct Balancer {
    chooser: Chooser,
    /// State of each port, by the number of its device.
    ports: Vec<PortState>,
    /// What is known of the ports behind neighbours, if somebody writes it.
    far: Option<Arc<FarPorts>>,
    /// Number of the neighbour at the other end of each port, by the number of its device.
    neighbors: Vec<Option<u8>>,
}

/// A choice that was made for a packet, with the counter slot of the chosen member.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Chosen {
    Hop(u32, Choice),
    Path(u32, Choice),
}

impl Balancer {
    /// Applies the settings of new tables. What is known of flows stays, unless the size of the flow table changes.
    pub fn follow(&mut self, tables: &Tables, seed: u64) {
        let flows = Flows::of(tables.balancing.flows);
        self.neighbors.clear();
        if tables.balancing.policies.is_empty() {
            (self.chooser, self.ports) = Default::default();
            return;
        }
        for (number, device) in tables.balancing.numbered_neighbors() {
            let device = usize::from(device.0);
            self.neighbors.resize(self.neighbors.len().max(device + 1), None);
            if let Some(place) = self.neighbors.get_mut(device) {
                *place = Some(number);
            }
        }
        if self.chooser.room() != flows.room() {
            self.chooser = Chooser::new(flows, seed);
        }
    }

    /// Sets the source of the states of ports behind neighbours.
    pub fn set_far(&mut self, far: Arc<FarPorts>) {
        self.far = Some(far);
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
        let ports = Ports {
            tables,
            own: &self.ports,
            far: self.far.as_deref(),
            neighbors: &self.neighbors,
            profile: policy.mode.profile(),
        };
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
        let ports = Ports {
            tables,
            own: &self.ports,
            far: self.far.as_deref(),
            neighbors: &self.neighbors,
            profile: policy.mode.profile(),
        };
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
        self.policies.iter().any(|policy| policy.mode.adaptive().is_some())
    }
}

/// The states of the ports that members lead to.
#[derive(Clone, Copy)]
struct Ports<'p> {
    tables: &'p Tables,
    own: &'p [PortState],
    far: Option<&'p FarPorts>,
    neighbors: &'p [Option<u8>],
    profile: Option<Profile>,
}

impl Ports<'_> {
    fn of_hop(&self, hop: u32) -> Member {
        let Some(hop) = self.tables.adjacencies.get(hop as usize) else { return Member::default() };
        let device = usize::from(hop.device);
        let neighbor = self.neighbors.get(device).copied().flatten();
        Member {
            own: self.own.get(device).copied().unwrap_or_default(),
            far: self.profile.zip(neighbor).and_then(|(profile, neighbor)| self.far?.get(neighbor, profile)),
        }
    }

    /// Returns the links of a path. If it has several next hops, each is judged by the busier one of its links, and the
    /// links of the least busy next hop are returned.
    fn of_path(&self, path: u32) -> Member {
        let group = self.tables.paths.get(path as usize).and_then(|path| path.group);
        let hops = group.and_then(|group| self.tables.groups.get(group)).unwrap_or_default();
        hops.iter().map(|&hop| self.of_hop(hop)).min_by_key(Member::busier).unwrap_or_default()
    }
}

/// The links of a member, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Member {
    /// The port of this node.
    pub own: PortState,
    /// The ports behind the next hop.
    pub far: Option<PortState>,
}

impl Member {
    fn busier(&self) -> u16 {
        self.far.map_or(self.own.score, |far| far.score.max(self.own.score))
    }
}

/// The members of one group, as a chooser sees them.
#[derive(Debug)]
pub struct Choosing<'g, L, N> {
    groups: &'g Groups,
    group: u32,
    members: &'g [u32],
    scale: Option<BandScale>,
    /// Highest rate of the members' own ports, and highest rate of the ports behind them.
    fastest: [u64; 2],
    links: L,
    number: N,
}

impl<'g, L: Fn(u32) -> Member, N: Fn(u32) -> Option<u32>> Choosing<'g, L, N> {
    /// Creates the view of a group with these members. `links` returns the links of a member, and `number` a number that
    /// stays with the member as long as it exists.
    pub fn new(groups: &'g Groups, group: u32, policy: &Policy, members: &'g [u32], links: L, number: N) -> Self {
        let scale = policy.mode.adaptive().map(|adaptive| adaptive.scale);
        let fastest = |rate: fn(Member) -> u64| {
            scale.and_then(|_| members.iter().map(|&member| rate(links(member))).max()).unwrap_or_default()
        };
        let fastest = [fastest(|member| member.own.rate), fastest(|member| member.far.map_or(0, |far| far.rate))];
        Self { groups, group, members, scale, fastest, links, number }
    }
}

impl<L: Fn(u32) -> Member, N: Fn(u32) -> Option<u32>> Members for Choosing<'_, L, N> {
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
        let (Some(scale), Some(&member)) = (self.scale, self.members.get(place)) else { return 0 };
        let (Member { own, far }, [fastest, fastest_far]) = ((self.links)(member), self.fastest);
        combined(own.band(scale, fastest), far.map(|far| far.band(scale, fastest_far)))
    }
}
