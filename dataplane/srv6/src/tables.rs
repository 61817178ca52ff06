//! What a worker reads: one compiled, immutable snapshot. Everything a packet would compute is computed here.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use ipnet::{IpNet, Ipv6Net};
use srv6d_wire::ipv6;

use crate::carrier::MAX_SEGMENTS;
use crate::changes::Changes;
use crate::flow::FlowHash;
use crate::lpm::{Lpm, Value};
use crate::model::{Csid, DscpMode, DtFamily, Flavors, HostPort, Mac, Policy, PortId, Role, Tunnel, UnknownSid};
use crate::sid_space::SidSpace;
use crate::straight::Straight;
use crate::straight::offload::Offload;

/// Longest outer header: IPv6, and an SRH that lists every segment.
pub const MAX_OUTER: usize = 40 + 8 + 16 * MAX_SEGMENTS;

/// Which tables these are. Copies have the same number, later ones a higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edition(u64);

impl Edition {
    /// One that was never there.
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
    pub(crate) edition: Edition,
    pub(crate) changes: Changes,
    pub(crate) ports: Vec<PortEntry>,
    pub(crate) host: Option<HostPort>,
    pub(crate) tunnel: Tunnel,
    pub(crate) policy: Policy,
    pub(crate) blocks: Vec<Ipv6Net>,
    pub(crate) sid_space: SidSpace,
    pub(crate) vrfs: Vec<Vrf>,
    pub(crate) sids: Vec<Sid>,
    pub(crate) steers: Vec<Vec<u32>>,
    pub(crate) paths: Vec<PathEntry>,
    pub(crate) groups: Vec<Vec<u32>>,
    pub(crate) adjacencies: Vec<Adjacency>,
    /// Resolved neighbours on the links that cross-connects lead onto, with their groups.
    pub(crate) cross_connected: HashMap<(PortId, IpAddr), u32>,
    pub(crate) straight: Straight,
    pub(crate) offload: Offload,
}

/// Index of a VRF inside one generation.
pub(crate) type VrfIndex = u16;

/// The main table.
pub(crate) const MAIN: VrfIndex = 0;

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
    /// Tagged logical ports on this device, when this is its untagged one: VID and index.
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

/// What a longest-prefix match leads to.
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

const INDEX_BITS: u32 = 28;

impl Target {
    pub(crate) fn encode(self) -> Value {
        let (tag, index) = match self {
            Self::Sid(index) => (0, index),
            Self::Steer(index) => (1, index),
            Self::Route(index) => (2, index),
            Self::OnLink(port) => (3, u32::from(port.0)),
            Self::Kernel => (4, 0),
            Self::Local => (4, 1),
            Self::Unknown(policy) => (5, policy as u32),
            Self::Blackhole => (6, 0),
            Self::Unreachable => (6, 1),
            Self::Neighbor(index) => (7, index),
        };
        tag << INDEX_BITS | index
    }

    /// The index in a value.
    #[inline]
    pub(crate) const fn index(value: Value) -> u32 {
        value & ((1 << INDEX_BITS) - 1)
    }

    /// The group of next hops, of a value that leads to nothing but one.
    #[inline]
    pub(crate) const fn group(value: Value) -> Option<u32> {
        match value >> INDEX_BITS {
            2 | 7 => Some(value & ((1 << INDEX_BITS) - 1)),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn decode(value: Value) -> Self {
        let index = value & ((1 << INDEX_BITS) - 1);
        match value >> INDEX_BITS {
            0 => Self::Sid(index),
            1 => Self::Steer(index),
            2 => Self::Route(index),
            3 => Self::OnLink(PortId((index & 0xffff) as u16)),
            4 if index == 1 => Self::Local,
            4 => Self::Kernel,
            5 if index == UnknownSid::Icmp as u32 => Self::Unknown(UnknownSid::Icmp),
            5 if index == UnknownSid::Punt as u32 => Self::Unknown(UnknownSid::Punt),
            5 => Self::Unknown(UnknownSid::Drop),
            6 if index == 1 => Self::Unreachable,
            7 => Self::Neighbor(index),
            _ => Self::Blackhole,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Sid {
    pub(crate) slot: u32,
    pub(crate) action: Action,
    pub(crate) flavors: Flavors,
    /// The SID's own address is also an address of this node: its upper layers are the kernel's.
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

/// Where a cross-connect leads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CrossConnect {
    /// To one of the members.
    Group(u32),
    /// Onto a link: the inner destination is the neighbour.
    OnLink(PortId),
}

#[derive(Clone, Debug)]
pub(crate) struct PathEntry {
    pub(crate) slot: u32,
    /// IPv6 header and SRH; payload length, flow label, traffic class and next header are written per packet.
    pub(crate) header: [u8; MAX_OUTER],
    pub(crate) header_len: usize,
    /// Offset of the byte that says what is inside: the IPv6 next header, or the SRH's.
    pub(crate) inner_at: usize,
    /// A source of its own: a port's does not replace it.
    pub(crate) own_source: bool,
    pub(crate) group: Option<u32>,
    /// Largest outer packet that routers on the path have said they carry.
    pub(crate) mtu: usize,
}

impl PathEntry {
    /// In a place that is free.
    pub(crate) const UNUSED: Self =
        Self { slot: 0, header: [0; MAX_OUTER], header_len: 0, inner_at: 0, own_source: false, group: None, mtu: 0 };

    /// Largest outer packet that routers on the path are known to carry. An inner IPv6 sender may always send 1280
    /// bytes (RFC 2473 section 7.1), and would not heed anything less.
    pub(crate) fn mtu_for(&self, inner_is_v6: bool) -> usize {
        let least = if inner_is_v6 { ipv6::MIN_MTU + self.header_len } else { 0 };
        self.mtu.max(least)
    }
}

impl PathEntry {
    /// Outer source of packets that leave through `adjacency`: the path's own, else the port's, else the node's.
    pub(crate) fn source(&self, adjacency: &Adjacency) -> Ipv6Addr {
        let in_header = || self.header.get(8..24).and_then(|bytes| bytes.first_chunk::<16>()).copied();
        match adjacency.source {
            Some(of_port) if !self.own_source => of_port,
            _ => in_header().map_or(Ipv6Addr::UNSPECIFIED, Ipv6Addr::from),
        }
    }
}

/// How a next hop stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdjacencyState {
    /// MAC address known, port up.
    Ready,
    /// MAC address unknown.
    Unresolved,
    /// Port down.
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
    /// Destination, source and tag; the type behind them is written per packet.
    pub(crate) ethernet: [u8; 16],
    /// 12, or 16 with a tag.
    pub(crate) ethernet_len: usize,
    pub(crate) source: Option<Ipv6Addr>,
    /// Nothing needs this next hop now: it was a neighbour on a link, and is not resolved any more.
    pub(crate) is_idle: bool,
}

impl Tables {
    pub(crate) fn lookup(&self, vrf: VrfIndex, is_v6: bool, destination: u128) -> Option<Target> {
        let value = if is_v6 { self.find_v6(vrf, destination) } else { self.find_v4(vrf, destination) };
        value.map(Target::decode)
    }

    /// What [`Target::decode`] takes.
    #[inline]
    pub(crate) fn find_v6(&self, vrf: VrfIndex, destination: u128) -> Option<Value> {
        self.vrfs.get(usize::from(vrf))?.v6.lookup(destination)
    }

    /// The same for an IPv4 address in the upper 32 bits.
    #[inline]
    pub(crate) fn find_v4(&self, vrf: VrfIndex, destination: u128) -> Option<Value> {
        self.vrfs.get(usize::from(vrf))?.v4.lookup(destination)
    }

    #[inline]
    pub(crate) fn port(&self, port: PortId) -> Option<&PortEntry> {
        self.ports.get(usize::from(port.0))
    }

    /// The member of a group that a flow uses.
    #[inline]
    pub(crate) fn member(&self, group: u32, flow: impl FnOnce() -> FlowHash) -> Option<&Adjacency> {
        self.adjacencies.get(self.member_index(group, flow)? as usize)
    }

    #[inline]
    pub(crate) fn member_index(&self, group: u32, flow: impl FnOnce() -> FlowHash) -> Option<u32> {
        match self.groups.get(group as usize)?.as_slice() {
            [only] => Some(*only),
            members => members.get(flow().pick(members.len())).copied(),
        }
    }

    /// The path of a steered prefix that a flow uses.
    pub(crate) fn path(&self, steer: u32, flow: FlowHash) -> Option<&PathEntry> {
        self.paths.get(self.path_index(steer, flow)? as usize)
    }

    #[inline]
    pub(crate) fn path_index(&self, steer: u32, flow: FlowHash) -> Option<u32> {
        match self.steers.get(steer as usize)?.as_slice() {
            [only] => Some(*only),
            paths => paths.get(flow.again().pick(paths.len())).copied(),
        }
    }

    /// What may be forwarded in front of the workers.
    pub fn offload(&self) -> &Offload {
        &self.offload
    }

    /// Next hops in use by any route, SID or path, and how they stand.
    pub fn next_hops(&self) -> impl Iterator<Item = (PortId, IpAddr, AdjacencyState)> {
        let needed = self.adjacencies.iter().filter(|adjacency| !adjacency.is_idle);
        needed.map(|adjacency| (adjacency.port, adjacency.neighbor, adjacency.state))
    }

    /// Where the hash tables of prefixes are.
    pub fn ranges(&self) -> impl Iterator<Item = Range<*const u8>> {
        self.vrfs.iter().flat_map(|vrf| vrf.v6.ranges().chain(vrf.v4.ranges()))
    }

    /// Bytes held by the prefix tables.
    pub fn memory(&self) -> usize {
        self.vrfs.iter().map(|vrf| vrf.v6.memory() + vrf.v4.memory()).sum()
    }

    /// Prefixes of all tables.
    pub fn prefixes(&self) -> usize {
        self.vrfs.iter().map(|vrf| vrf.v6.len() + vrf.v4.len()).sum()
    }
}
