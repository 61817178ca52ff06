//! The trail of a packet through the slow path: what was looked up, and what was chosen.
//!
//! [`explain`](crate::explain()) runs the slow path as a worker does, and keeps its trail. A worker keeps none, which costs
//! one comparison per step.

use std::cell::RefCell;
use std::net::IpAddr;

use srv6d_fib::{Groups, SLOTS};
use srv6d_wire::Packet;

use crate::desired::{Mac, PortId, TableId, UnknownSid};
use crate::fast::{self, LookUpResult};
use crate::flow::FlowHash;
use crate::slow::{self, FurtherSum, Out, SlowState, Verdict};
use crate::tables::{Adjacency, AdjacencyState, Tables, Target, VrfIndex};
use crate::tally::{Slots, Tally};

/// An event in the slow path of a packet. It names entries by their indexes in the tables.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Arrived(PortId),
    LookedUp {
        vrf: VrfIndex,
        destination: IpAddr,
        target: Option<Target>,
    },
    Shifted,
    NextSegment,
    Decapsulated {
        vrf: VrfIndex,
        source: IpAddr,
        destination: IpAddr,
    },
    /// A path was chosen. `by_policy` is the counter slot of the path that a policy chose. `None`: the hash chose.
    Path {
        steer: u32,
        flow: FlowHash,
        by_policy: Option<u32>,
    },
    Group {
        group: u32,
        flow: FlowHash,
        by_policy: Option<u32>,
    },
    Size {
        length: usize,
        mtu: usize,
    },
}

/// The events of one packet, in their order.
#[derive(Debug, Default)]
pub(crate) struct Trail(RefCell<Vec<Event>>);

impl Trail {
    pub(crate) fn note(&self, event: Event) {
        self.0.borrow_mut().push(event);
    }
}

/// One step of a packet through the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrailStep {
    /// The frame belongs to this logical port.
    Arrived(PortId),
    /// The destination was looked up.
    LookedUp {
        /// The table (VRF).
        table: TableId,
        /// The destination at that time.
        destination: IpAddr,
        /// What the longest match leads to. `None`: nothing matches.
        found: Option<MatchKind>,
    },
    /// The carrier was shifted to its next uSID.
    Shifted,
    /// The next segment of the SRH became the destination.
    NextSegment,
    /// The outer headers are removed. The inner packet goes on.
    Decapsulated {
        /// The table that its destination is looked up in.
        table: TableId,
        /// Its source.
        source: IpAddr,
        /// Its destination.
        destination: IpAddr,
    },
    /// A path was chosen for a steered prefix.
    Path(Selection<String>),
    /// A next hop was chosen.
    NextHop(Selection<NextHop>),
    /// The packet as it leaves was compared with the MTU. Both are layer-3 lengths in bytes.
    Size {
        /// Length of the packet, with the headers that encapsulation adds.
        length: usize,
        /// MTU of the next hop, or of the path if that is smaller.
        mtu: usize,
    },
}

/// What a longest match leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchKind {
    /// A SID of this node.
    Sid,
    /// A steered prefix.
    Steer,
    /// A route with next hops.
    Route,
    /// A resolved neighbour on a link.
    Neighbor,
    /// A link on which the destination itself is the neighbour, which is not resolved.
    OnLink(PortId),
    /// An address of this node.
    Local,
    /// A route that is left to the kernel.
    Kernel,
    /// A block of SIDs, none of which matches.
    Unknown(UnknownSid),
    /// A blackhole route.
    Blackhole,
    /// An unreachable route.
    Unreachable,
}

/// The choice of one member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection<T> {
    /// The slot that the hash picks. `None`: there is at most one member, or a policy chooses.
    pub slot: Option<usize>,
    /// All members.
    pub members: Vec<Member<T>>,
}

/// One member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<T> {
    /// The path, by its name, or the next hop.
    pub of: T,
    /// Number of the group's slots that lead to it.
    pub slots: usize,
    /// Whether it was chosen.
    pub chosen: bool,
}

/// A next hop as the tables have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The port by which packets leave.
    pub port: PortId,
    /// The neighbour.
    pub neighbor: IpAddr,
    /// Whether packets can be sent to it.
    pub state: AdjacencyState,
    /// MAC address of the neighbour, if it is resolved.
    pub mac: Option<Mac>,
    /// Largest layer-3 packet in bytes.
    pub mtu: usize,
}

/// What the tables do with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The steps up to the verdict.
    pub steps: Vec<TrailStep>,
    /// The verdict. The bytes of the packet have been changed accordingly.
    pub verdict: Verdict,
}

/// Runs the slow path on a packet, and returns its steps. Nothing is counted. ICMP errors are never limited.
pub fn explain(
    tables: &Tables,
    slots: &Slots,
    device: u16,
    packet: &mut Packet<'_>,
    further: FurtherSum<'_>,
) -> Explanation {
    let (trail, tally, mut state) = (Trail::default(), Tally::default(), SlowState::default());
    state.balancer.follow(tables, 0);
    let received = (packet, further);
    let verdict = slow::slow_path_to(tables, &tally, (&mut state, 0), device, received, Some(&trail), Out::Hold);
    let steps = trail.0.into_inner().into_iter().map(|event| Resolver { tables, slots }.step(event)).collect();
    Explanation { steps, verdict }
}

/// Returns true if the fast path takes the packet, which is changed then.
pub fn is_plain(tables: &Tables, device: u16, packet: &mut Packet<'_>) -> bool {
    let found = LookUpResult::of(tables, device, packet);
    fast::write_one(tables, &Tally::default(), packet, found).is_some()
}

/// Turns events into steps: it reads the entries that the indexes stand for.
struct Resolver<'t> {
    tables: &'t Tables,
    slots: &'t Slots,
}

impl Resolver<'_> {
    fn step(&self, event: Event) -> TrailStep {
        match event {
            Event::Arrived(port) => TrailStep::Arrived(port),
            Event::LookedUp { vrf, destination, target } => {
                TrailStep::LookedUp { table: self.table(vrf), destination, found: target.map(MatchKind::from) }
            }
            Event::Shifted => TrailStep::Shifted,
            Event::NextSegment => TrailStep::NextSegment,
            Event::Decapsulated { vrf, source, destination } => {
                TrailStep::Decapsulated { table: self.table(vrf), source, destination }
            }
            Event::Path { steer, flow, by_policy } => {
                let tables = self.tables;
                let counter_of = |path: u32| tables.paths.get(path as usize).map(|path| path.slot);
                let chosen = match by_policy {
                    Some(counter) => member_with(&tables.steers, steer, counter, counter_of),
                    None => tables.path_index(steer, flow),
                };
                let slot = by_policy.is_none().then(|| flow.for_paths(&tables.seed).pick(SLOTS));
                TrailStep::Path(selection(&tables.steers, steer, slot, chosen, |path| self.path(path)))
            }
            Event::Group { group, flow, by_policy } => {
                let tables = self.tables;
                let counter_of = |hop: u32| tables.adjacencies.get(hop as usize).map(|hop| hop.slot);
                let chosen = match by_policy {
                    Some(counter) => member_with(&tables.groups, group, counter, counter_of),
                    None => tables.member_index(group, || flow),
                };
                let slot = by_policy.is_none().then(|| flow.for_hops(&tables.seed).pick(SLOTS));
                TrailStep::NextHop(selection(&tables.groups, group, slot, chosen, |member| self.next_hop(member)))
            }
            Event::Size { length, mtu } => TrailStep::Size { length, mtu },
        }
    }

    fn table(&self, vrf: VrfIndex) -> TableId {
        self.tables.table_ids.get(usize::from(vrf)).copied().unwrap_or(TableId::MAIN)
    }

    fn path(&self, path: u32) -> Option<String> {
        let slot = self.tables.paths.get(path as usize)?.slot as usize;
        self.slots.paths.iter().find(|(_, known)| *known == slot).map(|(name, _)| name.clone())
    }

    fn next_hop(&self, member: u32) -> Option<NextHop> {
        let &Adjacency { port, neighbor, state, mtu, ref ethernet, .. } =
            self.tables.adjacencies.get(member as usize)?;
        let mac = ethernet.first_chunk().copied().map(Mac).filter(|_| state != AdjacencyState::Unresolved);
        Some(NextHop { port, neighbor, state, mac, mtu })
    }
}

/// Returns the member of a group that has this counter.
fn member_with(groups: &Groups, group: u32, counter: u32, counter_of: impl Fn(u32) -> Option<u32>) -> Option<u32> {
    groups.get(group)?.iter().copied().find(|&member| counter_of(member) == Some(counter))
}

/// Returns the members of a group with their slots.
fn selection<T>(
    groups: &Groups,
    group: u32,
    slot: Option<usize>,
    chosen: Option<u32>,
    of: impl Fn(u32) -> Option<T>,
) -> Selection<T> {
    let spread = groups.spread(group).unwrap_or_default();
    let is_one = spread.members().len() < 2;
    let slots = |member: u32| if is_one { SLOTS } else { spread.slots().filter(|has| *has == member).count() };
    let member = |&member: &u32| Some(Member { of: of(member)?, slots: slots(member), chosen: chosen == Some(member) });
    Selection { slot: slot.filter(|_| !is_one), members: spread.members().iter().filter_map(member).collect() }
}

impl From<Target> for MatchKind {
    fn from(target: Target) -> Self {
        match target {
            Target::Sid(_) => Self::Sid,
            Target::Steer(_) => Self::Steer,
            Target::Route(_) => Self::Route,
            Target::Neighbor(_) => Self::Neighbor,
            Target::OnLink(port) => Self::OnLink(port),
            Target::Local => Self::Local,
            Target::Kernel => Self::Kernel,
            Target::Unknown(unknown) => Self::Unknown(unknown),
            Target::Blackhole => Self::Blackhole,
            Target::Unreachable => Self::Unreachable,
        }
    }
}

impl Tables {
    /// Returns what the longest match of an address leads to, or `None` if nothing matches or there is no such table.
    pub fn longest_match(&self, table: TableId, address: IpAddr) -> Option<MatchKind> {
        let vrf = self.table_ids.iter().position(|known| *known == table)?;
        let target = self.look_up(VrfIndex::try_from(vrf).ok()?, address.is_ipv6(), crate::build::bits(address))?;
        Some(target.into())
    }

    /// Returns the tables that packets are looked up in.
    pub fn table_ids(&self) -> &[TableId] {
        &self.table_ids
    }
}
