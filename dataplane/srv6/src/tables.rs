//! The compiled, immutable snapshot that workers read. Everything that would be the same for every packet is computed
//! here.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use ipnet::{IpNet, Ipv6Net};
use srv6d_fib::{
    BY_HASH, Groups, IS_OWN_ADDRESS, SLOTS, TARGET_BLACKHOLE, TARGET_INDEX_BITS, TARGET_KERNEL, TARGET_NEIGHBOR,
    TARGET_ON_LINK, TARGET_ROUTE, TARGET_SID, TARGET_STEER, TARGET_UNKNOWN,
};
use srv6d_wire::ipv6;

use crate::carrier::MAX_SEGMENTS;
use crate::desired::{
    Balancing, Csid, DscpMode, DtFamily, Flavors, HostPort, Mac, NodePolicy, PortId, Role, TableId, Tunnel, UnknownSid,
};
use crate::fast::FastTables;
use crate::flow::{FlowHash, Seed};
use crate::lpm::{Lpm, Value};
use crate::offload::Offload;
use crate::own_sources::OwnSources;
use crate::sid_space::SidSpace;

/// Length of the longest outer header: IPv6, and an SRH that lists every segment.
pub const MAX_OUTER: usize = 40 + 8 + 16 * MAX_SEGMENTS;

/// Number of a state of the tables. Both copies of one state have the same number, and later states have higher numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Epoch(u64);

impl Epoch {
    /// Returns an epoch that was never used before.
    pub(crate) fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }

    #[inline]
    pub(crate) const fn number(self) -> u64 {
        self.0
    }
}

/// One generation of tables.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    pub(crate) epoch: Epoch,
    pub(crate) ports: Vec<PortEntry>,
    pub(crate) host: Option<HostPort>,
    pub(crate) tunnel: Tunnel,
    pub(crate) policy: NodePolicy,
    pub(crate) seed: Seed,
    pub(crate) balancing: Balancing,
    pub(crate) blocks: Vec<Ipv6Net>,
    pub(crate) sid_space: SidSpace,
    pub(crate) own_sources: OwnSources,
    pub(crate) vrfs: Vec<Vrf>,
    /// Table ids of the VRFs, in the order of `vrfs`.
    pub(crate) table_ids: Vec<TableId>,
    pub(crate) sids: Vec<Sid>,
    pub(crate) steers: Groups,
    pub(crate) paths: Vec<PathEntry>,
    pub(crate) groups: Groups,
    pub(crate) adjacencies: Vec<Adjacency>,
    /// Resolved neighbours on the links that cross-connects lead onto, with their groups.
    pub(crate) cross_connected: HashMap<(PortId, IpAddr), u32>,
    pub(crate) fast: FastTables,
    pub(crate) offload: Offload,
}

/// Index of a VRF inside one generation.
pub(crate) type VrfIndex = u16;

/// Index of the main table.
pub(crate) const MAIN: VrfIndex = srv6d_fib::MAIN_TABLE;

#[derive(Clone, Debug, Default)]
pub(crate) struct Vrf {
    pub(crate) v6: Lpm,
    pub(crate) v4: Lpm,
}

#[derive(Clone, Debug)]
pub(crate) struct PortEntry {
    pub(crate) id: PortId,
    pub(crate) device: u16,
    pub(crate) vlan: Option<u16>,
    /// Tagged logical ports on this device, if this is its untagged one: VID and index.
    pub(crate) tagged: Vec<(u16, PortId)>,
    pub(crate) mac: Mac,
    pub(crate) up: bool,
    pub(crate) mtu: usize,
    pub(crate) vrf: VrfIndex,
    pub(crate) role: Role,
    pub(crate) icmp_v6: Option<Ipv6Addr>,
    pub(crate) icmp_v4: Option<Ipv4Addr>,
    pub(crate) allowed_sources: Vec<IpNet>,
    pub(crate) allowed_carriers: Vec<Ipv6Net>,
    pub(crate) fill_checksum: bool,
}

/// The target of a longest-prefix match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Sid(u32),
    Steer(u32),
    Route(u32),
    /// A resolved neighbour behind an on-link route.
    Neighbor(u32),
    OnLink(PortId),
    /// An address of this node that is no SID.
    Local,
    /// A route that is left to the kernel.
    Kernel,
    Unknown(UnknownSid),
    Blackhole,
    Unreachable,
}

impl Target {
    pub(crate) fn encode(self) -> Value {
        let (tag, index) = match self {
            Self::Sid(index) => (TARGET_SID, index),
            Self::Steer(index) => (TARGET_STEER, index),
            Self::Route(index) => (TARGET_ROUTE, index),
            Self::OnLink(port) => (TARGET_ON_LINK, u32::from(port.0)),
            Self::Kernel => (TARGET_KERNEL, 0),
            Self::Local => (TARGET_KERNEL, IS_OWN_ADDRESS),
            Self::Unknown(policy) => (TARGET_UNKNOWN, policy as u32),
            Self::Blackhole => (TARGET_BLACKHOLE, 0),
            Self::Unreachable => (TARGET_BLACKHOLE, 1),
            Self::Neighbor(index) => (TARGET_NEIGHBOR, index),
        };
        tag << TARGET_INDEX_BITS | index
    }

    /// Returns the index in a value.
    #[inline]
    pub(crate) const fn index(value: Value) -> u32 {
        value & ((1 << TARGET_INDEX_BITS) - 1)
    }

    /// Returns the group of next hops of a value whose target is only a group.
    #[inline]
    pub(crate) const fn group(value: Value) -> Option<u32> {
        match value >> TARGET_INDEX_BITS {
            TARGET_ROUTE | TARGET_NEIGHBOR => Some(Self::index(value)),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn decode(value: Value) -> Self {
        let index = Self::index(value);
        match value >> TARGET_INDEX_BITS {
            TARGET_SID => Self::Sid(index),
            TARGET_STEER => Self::Steer(index),
            TARGET_ROUTE => Self::Route(index),
            TARGET_ON_LINK => Self::OnLink(PortId((index & 0xffff) as u16)),
            TARGET_KERNEL if index == IS_OWN_ADDRESS => Self::Local,
            TARGET_KERNEL => Self::Kernel,
            TARGET_UNKNOWN if index == UnknownSid::Icmp as u32 => Self::Unknown(UnknownSid::Icmp),
            TARGET_UNKNOWN if index == UnknownSid::Punt as u32 => Self::Unknown(UnknownSid::Punt),
            TARGET_UNKNOWN => Self::Unknown(UnknownSid::Drop),
            TARGET_BLACKHOLE if index == 1 => Self::Unreachable,
            TARGET_NEIGHBOR => Self::Neighbor(index),
            _ => Self::Blackhole,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Sid {
    pub(crate) slot: u32,
    pub(crate) action: Action,
    pub(crate) flavors: Flavors,
    /// Whether the SID's own address is also an address of this node, so that upper layers are for the kernel.
    pub(crate) is_local_address: bool,
    /// Length of the matched prefix.
    pub(crate) len: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    End { csid: Option<Csid>, dscp: DscpMode },
    EndX { csid: Option<Csid>, group: u32 },
    EndDt { family: DtFamily, vrf: VrfIndex, dscp: DscpMode },
    EndDx { family: DtFamily, way: CrossConnect },
}

/// The target of a cross-connect.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CrossConnect {
    /// One of the members of a group.
    Group(u32),
    /// A link, on which the inner destination is the neighbour.
    OnLink(PortId),
}

#[derive(Clone, Debug)]
pub(crate) struct PathEntry {
    pub(crate) slot: u32,
    /// IPv6 header and SRH. Payload length, flow label, traffic class and next header are written per packet.
    pub(crate) header: [u8; MAX_OUTER],
    pub(crate) header_len: usize,
    /// Offset of the byte that names the inner protocol: the next header of IPv6, or that of the SRH.
    pub(crate) inner_at: usize,
    /// Whether the path has a source of its own, which the source of a port does not replace.
    pub(crate) own_source: bool,
    pub(crate) group: Option<u32>,
    /// Largest outer packet that routers on the path have reported to carry.
    pub(crate) mtu: usize,
}

impl PathEntry {
    /// An entry that no path uses. It fills a free place.
    pub(crate) const UNUSED: Self =
        Self { slot: 0, header: [0; MAX_OUTER], header_len: 0, inner_at: 0, own_source: false, group: None, mtu: 0 };

    /// Largest outer packet that routers on the path carry, as far as is known. An inner IPv6 sender may always send
    /// 1280 bytes (RFC 2473 section 7.1), and would ignore anything less.
    pub(crate) fn mtu_for(&self, inner_is_v6: bool) -> usize {
        let least = if inner_is_v6 { ipv6::MIN_MTU + self.header_len } else { 0 };
        self.mtu.max(least)
    }
}

impl PathEntry {
    /// Returns the outer source of packets that leave through `adjacency`: that of the path, or of the port, or of
    /// the node.
    pub(crate) fn source(&self, adjacency: &Adjacency) -> Ipv6Addr {
        let in_header = || self.header.get(8..24).and_then(|bytes| bytes.first_chunk::<16>()).copied();
        match adjacency.source {
            Some(of_port) if !self.own_source => of_port,
            _ => in_header().map_or(Ipv6Addr::UNSPECIFIED, Ipv6Addr::from),
        }
    }
}

/// The state of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdjacencyState {
    /// The MAC address is known, and the port is up.
    Ready,
    /// The MAC address is unknown.
    Unresolved,
    /// The port is down.
    Down,
}

#[derive(Clone, Debug)]
pub(crate) struct Adjacency {
    pub(crate) slot: u32,
    pub(crate) port: PortId,
    pub(crate) device: u16,
    pub(crate) neighbor: IpAddr,
    pub(crate) state: AdjacencyState,
    pub(crate) mtu: usize,
    /// Ethernet header without its type: destination, source and VLAN tag. The type is written per packet.
    pub(crate) ethernet: [u8; 16],
    /// Length of `ethernet` in use: 12, or 16 with a tag.
    pub(crate) ethernet_len: usize,
    pub(crate) source: Option<Ipv6Addr>,
    /// Whether nothing uses this next hop at present: it was a neighbour on a link and is no longer resolved.
    pub(crate) is_idle: bool,
}

impl Tables {
    pub(crate) fn look_up(&self, vrf: VrfIndex, is_v6: bool, destination: u128) -> Option<Target> {
        let value = if is_v6 { self.look_up_v6(vrf, destination) } else { self.look_up_v4(vrf, destination) };
        value.map(Target::decode)
    }

    /// Returns the value of a destination, which [`Target::decode`] takes.
    #[inline]
    pub(crate) fn look_up_v6(&self, vrf: VrfIndex, destination: u128) -> Option<Value> {
        self.vrfs.get(usize::from(vrf))?.v6.look_up(destination)
    }

    /// Returns the value of an IPv4 destination in the upper 32 bits.
    #[inline]
    pub(crate) fn look_up_v4(&self, vrf: VrfIndex, destination: u128) -> Option<Value> {
        self.vrfs.get(usize::from(vrf))?.v4.look_up(destination)
    }

    #[inline]
    pub(crate) fn port(&self, port: PortId) -> Option<&PortEntry> {
        self.ports.get(usize::from(port.0))
    }

    /// Returns the member of a group that a flow uses.
    #[inline]
    pub(crate) fn member(&self, group: u32, flow: impl FnOnce() -> FlowHash) -> Option<&Adjacency> {
        self.adjacencies.get(self.member_index(group, flow)? as usize)
    }

    #[inline]
    pub(crate) fn member_index(&self, group: u32, flow: impl FnOnce() -> FlowHash) -> Option<u32> {
        self.groups.member(group, || flow().for_hops(&self.seed).pick(SLOTS))
    }

    /// Returns the path of a steered prefix that a flow uses.
    pub(crate) fn path(&self, steer: u32, flow: FlowHash) -> Option<&PathEntry> {
        self.paths.get(self.path_index(steer, flow)? as usize)
    }

    #[inline]
    pub(crate) fn path_index(&self, steer: u32, flow: FlowHash) -> Option<u32> {
        self.steers.member(steer, || flow.for_paths(&self.seed).pick(SLOTS))
    }

    /// Returns the paths of a steered prefix that a flow may have: one, if the hash chooses.
    pub(crate) fn possible_paths(&self, steer: u32, flow: FlowHash) -> impl Iterator<Item = &PathEntry> {
        let by_hash = self.path_index(steer, flow).filter(|_| self.steers.policy(steer) == BY_HASH);
        let any = self.steers.get(steer).filter(|_| by_hash.is_none()).unwrap_or_default();
        by_hash.into_iter().chain(any.iter().copied()).filter_map(|path| self.paths.get(path as usize))
    }

    /// Returns the members of a group that a flow may have: one, if the hash chooses.
    pub(crate) fn possible_members(&self, group: u32, flow: FlowHash) -> impl Iterator<Item = &Adjacency> {
        let by_hash = self.member_index(group, || flow).filter(|_| self.groups.policy(group) == BY_HASH);
        let any = self.groups.get(group).filter(|_| by_hash.is_none()).unwrap_or_default();
        by_hash.into_iter().chain(any.iter().copied()).filter_map(|hop| self.adjacencies.get(hop as usize))
    }

    /// Returns the policies that choose by state, and the settings that they share.
    pub fn balancing(&self) -> &Balancing {
        &self.balancing
    }

    /// Returns the extract of the tables from which the XDP program forwards (offload).
    pub fn offload(&self) -> &Offload {
        &self.offload
    }

    /// Returns the next hops that a route, SID or path uses, with their state.
    pub fn next_hops(&self) -> impl Iterator<Item = (PortId, IpAddr, AdjacencyState)> {
        let needed = self.adjacencies.iter().filter(|adjacency| !adjacency.is_idle);
        needed.map(|adjacency| (adjacency.port, adjacency.neighbor, adjacency.state))
    }

    /// Returns the memory ranges of the hash tables of prefixes.
    pub fn ranges(&self) -> impl Iterator<Item = Range<*const u8>> {
        self.vrfs.iter().flat_map(|vrf| vrf.v6.ranges().chain(vrf.v4.ranges()))
    }

    /// Number of prefixes of all tables.
    pub fn prefixes(&self) -> usize {
        self.vrfs.iter().map(|vrf| vrf.v6.len() + vrf.v4.len()).sum()
    }
}
