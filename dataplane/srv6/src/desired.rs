//! The desired state that control asks the packet path for: the input of
//! [`Tables::build`](crate::tables::Tables::build).
//!
//! Everything here is resolved (port numbers, table ids, MAC addresses) and free of configuration text.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv6Net};
pub use srv6d_addresses::{Mac, MacParseError, TableId};

pub use srv6d_balance::{
    Adaptive, BandScale, BitRate, FarPorts, Flows, Link, LinkId, Links, Metric, Policy as BalancePolicy, PolicyMode,
    Profile, Reactive,
};
pub use srv6d_emulate::{Chance, Ecn, Emulation, NonEct};

use crate::carrier::SegmentList;

/// Index of a logical port: a network device, or one VLAN of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// The desired state of the whole node. The vectors are in no order, except that [`PortId`] is the index into `ports`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// Logical ports.
    pub ports: Vec<Port>,
    /// The veth of srv6d into the kernel's stack, for local delivery and for packets of local applications.
    pub host: Option<HostPort>,
    /// Defaults of the outer header. A port or a path may have other values.
    pub tunnel: Tunnel,
    /// Policy of the whole node.
    pub policy: NodePolicy,
    /// Locator blocks. An address inside one that matches no longer prefix is an unknown SID.
    pub blocks: Vec<Block>,
    /// Subnets of hosts inside the blocks. They are not SIDs: edge and host ports may send there.
    pub host_prefixes: Vec<Ipv6Net>,
    /// SIDs of this node.
    pub sids: Vec<LocalSid>,
    /// Prefixes whose packets are encapsulated to SRv6 paths.
    pub steers: Vec<Steer>,
    /// Plain routes.
    pub routes: Vec<Route>,
    /// Addresses of the node itself. The kernel gets their packets, unless a SID with arguments takes them.
    pub local_addresses: Vec<(TableId, IpAddr)>,
    /// Neighbours that the kernel (or the configuration) has resolved.
    pub neighbors: BTreeMap<(PortId, IpAddr), Mac>,
    /// Largest outer packet along these segments, if a router on the way has reported one (RFC 8201). The MTU of the
    /// egress port limits it too.
    pub path_mtus: BTreeMap<SegmentList, u32>,
    /// Ports on which the XDP program may forward plain packets, and the port of local applications if
    /// the tc program may ([`Offload`](crate::offload::Offload)).
    pub offload: BTreeSet<PortId>,
    /// Ports of `offload` on which srv6d may choose the workers instead (`offload = "auto"`). It chooses by what the
    /// device can do, which is not known here.
    pub auto_offload: BTreeSet<PortId>,
    /// Settings of emulated ports, by the port of the whole device.
    pub emulated: BTreeMap<PortId, Emulation>,
    /// How groups choose among their members, where the hash alone does not.
    pub balance: Balance,
}

impl Desired {
    /// Returns whether the tc engine encapsulates what local applications send, and decapsulates what SIDs deliver to
    /// this node.
    pub fn has_tc_engine(&self) -> bool {
        self.host.is_some_and(|host| self.offload.contains(&host.port))
    }
}

/// The policies, and which groups choose by which policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// The policies that choose by state, and the settings that they share.
    pub settings: Balancing,
    /// The policies that derive weights from the capacities of links.
    pub weighted: Vec<Weighted>,
    /// How groups choose that `of` and `of_paths` do not name.
    pub default: GroupPolicy,
    /// How the groups of routes, steered prefixes and SIDs choose, by table and prefix.
    pub of: BTreeMap<(TableId, IpNet), GroupPolicy>,
    /// How the next hops of paths of steered prefixes are chosen, by the name of the path.
    pub of_paths: BTreeMap<String, GroupPolicy>,
    /// Configured capacities of links other than those of this node's own ports.
    pub capacities: Capacities,
    /// Nodes behind next hops. The weights of the next hops follow from the links to these nodes.
    pub via_nodes: BTreeMap<HopsOf, BTreeSet<Ipv4Addr>>,
    /// Measurements of the links of this node's ports, and reports about the links behind neighbours.
    pub links: Arc<Links>,
}

/// A policy that derives weights from the capacities of links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weighted {
    /// Name, which is shown to people.
    pub name: String,
    /// The measure that counts as the capacity of a link.
    pub metric: Metric,
}

/// How a group chooses among its members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupPolicy {
    /// The flow's hash chooses.
    #[default]
    Hash,
    /// The flow's hash chooses, with weights from the capacities of links. The number is the policy's index in
    /// [`Balance::weighted`].
    Weighted(usize),
    /// A policy chooses by state. Its number counts from 1.
    Stateful(u16),
}

/// Configured capacities in bit/s.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacities {
    /// Capacities of the links behind next hops.
    pub behind: BTreeMap<HopsOf, Vec<HopCapacity>>,
    /// Capacities of paths, by the name of the path.
    pub paths: BTreeMap<String, BitRate>,
}

/// The owner of a list of next hops.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HopsOf {
    /// A route or a SID.
    Prefix(TableId, IpNet),
    /// A path of a steered prefix, by its name.
    Path(String),
}

/// Capacity of the narrowest link behind a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopCapacity {
    /// Port of the next hop, if the configuration names it.
    pub port: Option<PortId>,
    /// Neighbour.
    pub via: Option<IpAddr>,
    /// Bits per second.
    pub capacity: BitRate,
}

impl Balance {
    /// Returns how the groups of a prefix choose.
    pub fn group_policy(&self, table: TableId, prefix: IpNet) -> GroupPolicy {
        self.of.get(&(table, prefix)).copied().unwrap_or(self.default)
    }

    /// Returns what counts as the capacity of a link for groups of a policy. `None`: its weights do not follow from that.
    pub fn metric(&self, policy: GroupPolicy) -> Option<Metric> {
        let GroupPolicy::Weighted(place) = policy else { return None };
        self.weighted.get(place).map(|weighted| weighted.metric)
    }

    /// Returns how the next hops of a path are chosen.
    pub fn path_policy(&self, name: &str) -> GroupPolicy {
        self.of_paths.get(name).copied().unwrap_or(self.default)
    }

    /// Returns the number of the policy that looks at state for a prefix, or 0 if the hash chooses.
    pub fn policy_of(&self, table: TableId, prefix: IpNet) -> u16 {
        self.group_policy(table, prefix).number()
    }

    /// Returns the number of the policy that looks at state for the next hops of a path, or 0 if the hash chooses.
    pub fn policy_of_path(&self, name: &str) -> u16 {
        self.path_policy(name).number()
    }
}

impl GroupPolicy {
    /// Returns the number of the policy that looks at state, or 0 if the hash chooses.
    pub const fn number(self) -> u16 {
        match self {
            Self::Stateful(number) => number,
            Self::Hash | Self::Weighted(_) => srv6d_fib::BY_HASH,
        }
    }
}

impl Capacities {
    /// Returns the configured capacity of the narrowest link behind a next hop.
    pub fn behind(&self, of: &HopsOf, hop: &Hop) -> Option<BitRate> {
        let is_it = |known: &&HopCapacity| known.via == hop.via && known.port.is_none_or(|port| port == hop.port);
        self.behind.get(of)?.iter().find(is_it).map(|known| known.capacity)
    }
}

impl Desired {
    /// Returns the rate of a port's link in bit/s, if it is known.
    pub fn rate_of(&self, port: PortId) -> Option<BitRate> {
        let device = PortId(self.ports.get(usize::from(port.0))?.device);
        let emulated = self.emulated.get(&device).map(|emulation| emulation.rate);
        emulated.or_else(|| self.balance.settings.rates.get(&device).copied())
    }
}

/// Policies that choose by state, and the settings that they share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balancing {
    /// The policies. Groups name them by number, from 1.
    pub policies: Vec<BalancePolicy>,
    /// Names of the policies, which are shown to people.
    pub names: Vec<String>,
    /// Number of flows that each worker remembers.
    pub flows: usize,
    /// Time between two samples of a port, in nanoseconds.
    pub sample: u64,
    /// Share of the load in a port's score, in percent. The rest is that of its queue.
    pub rate_weight: u8,
    /// Bits per second of the ports that are not emulated, as far as they are known.
    pub rates: BTreeMap<PortId, u64>,
    /// The nodes at the other ends of ports, by the port of the whole device.
    pub neighbors: BTreeMap<PortId, Ipv4Addr>,
    /// Profiles: sets of nodes behind neighbours. Policies of mode "global" look at the links from the neighbours to
    /// these nodes. There are at most [`FarPorts::MOST_PROFILES`].
    pub profiles: Vec<BTreeSet<Ipv4Addr>>,
}

impl Balancing {
    /// Returns the ports with neighbours, each with the number of the neighbour in [`FarPorts`].
    pub fn numbered_neighbors(&self) -> impl Iterator<Item = (u8, PortId)> {
        (0..=u8::MAX).zip(self.neighbors.keys().copied())
    }
}

impl Default for Balancing {
    fn default() -> Self {
        Self {
            policies: Vec::new(),
            names: Vec::new(),
            flows: Flows::DEFAULT.room(),
            sample: 1_000_000,
            rate_weight: srv6d_balance::Sampler::RATE_WEIGHT,
            rates: BTreeMap::new(),
            neighbors: BTreeMap::new(),
            profiles: Vec::new(),
        }
    }
}

/// A plain route that is added, changed or removed.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteChange {
    /// Routing table of the prefix (VRF).
    pub table: TableId,
    /// Destination prefix.
    pub prefix: IpNet,
    /// The new action. `None` removes the route.
    pub action: Option<RouteAction>,
}

/// A steered prefix that is added, gets other paths or is removed.
#[derive(Clone, Debug, PartialEq)]
pub struct SteerChange {
    /// Routing table of the prefix (VRF).
    pub table: TableId,
    /// Prefix of inner destinations.
    pub prefix: IpNet,
    /// The new paths. Without paths the prefix is not steered.
    pub paths: Vec<Path>,
}

/// A few changes of the desired state that come into force together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Amendment {
    /// Changes of plain routes.
    pub routes: Vec<RouteChange>,
    /// Changes of steered prefixes.
    pub steers: Vec<SteerChange>,
    /// Changes of SIDs.
    pub sids: Vec<SidChange>,
    /// Changes of neighbours.
    pub neighbors: Vec<NeighborChange>,
}

/// A neighbour that is added, gets another MAC address or is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborChange {
    /// The port to whose link the neighbour is connected.
    pub port: PortId,
    /// The neighbour's IP address.
    pub address: IpAddr,
    /// The neighbour's MAC address. `None` means that it is not resolved.
    pub mac: Option<Mac>,
}

/// A SID of this node that is added, gets another behaviour or is removed.
#[derive(Clone, Debug, PartialEq)]
pub struct SidChange {
    /// Matched prefix.
    pub prefix: Ipv6Net,
    /// The new SID. `None` removes it.
    pub sid: Option<LocalSid>,
}

impl Amendment {
    /// Returns true if the amendment changes nothing.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.steers.is_empty() && self.sids.is_empty() && self.neighbors.is_empty()
    }
}

impl From<Vec<RouteChange>> for Amendment {
    fn from(routes: Vec<RouteChange>) -> Self {
        Self { routes, ..Self::default() }
    }
}

impl Desired {
    /// Applies an amendment. Returns the amendment that undoes it, which is empty if nothing changed.
    pub fn amend(&mut self, amendment: &Amendment) -> Amendment {
        let mut undo = Amendment::default();
        for RouteChange { table, prefix, action } in amendment.routes.iter().cloned() {
            let at = self.routes.iter().position(|route| route.prefix == prefix && route.table == table);
            let route = action.clone().map(|action| Route { table, prefix, action });
            let was = put(&mut self.routes, at, route).map(|route| route.action);
            if was != action {
                undo.routes.push(RouteChange { table, prefix, action: was });
            }
        }
        for SteerChange { table, prefix, paths } in amendment.steers.iter().cloned() {
            let at = self.steers.iter().position(|steer| steer.prefix == prefix && steer.table == table);
            let steer = Some(&paths).filter(|paths| !paths.is_empty());
            let steer = steer.map(|paths| Steer { table, prefix, paths: paths.clone() });
            let was = put(&mut self.steers, at, steer).map(|steer| steer.paths).unwrap_or_default();
            if was != paths {
                undo.steers.push(SteerChange { table, prefix, paths: was });
            }
        }
        for SidChange { prefix, sid } in amendment.sids.iter().cloned() {
            let at = self.sids.iter().position(|sid| sid.prefix == prefix);
            let was = put(&mut self.sids, at, sid.clone());
            if was != sid {
                undo.sids.push(SidChange { prefix, sid: was });
            }
        }
        for change in &amendment.neighbors {
            undo.neighbors.extend(self.change_neighbor(*change));
        }
        undo.sids.reverse();
        undo.routes.reverse();
        undo.steers.reverse();
        undo.neighbors.reverse();
        undo
    }

    /// Changes one neighbour. Returns the change that undoes it, or `None` if nothing changed.
    pub(crate) fn change_neighbor(&mut self, change: NeighborChange) -> Option<NeighborChange> {
        let at = (change.port, change.address);
        let was = match change.mac {
            Some(mac) => self.neighbors.insert(at, mac),
            None => self.neighbors.remove(&at),
        };
        (was != change.mac).then_some(NeighborChange { mac: was, ..change })
    }
}

/// Replaces the entry at a position and returns the old one. `None` as entry removes the old one.
fn put<T>(entries: &mut Vec<T>, at: Option<usize>, entry: Option<T>) -> Option<T> {
    match (at, entry) {
        (Some(at), Some(entry)) => entries.get_mut(at).map(|old| std::mem::replace(old, entry)),
        (Some(at), None) => Some(entries.swap_remove(at)),
        (None, Some(entry)) => {
            entries.push(entry);
            None
        }
        (None, None) => None,
    }
}

/// The veth of srv6d. One end is a port of srv6d (role [`Role::Kernel`]), the other a device of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// The end that srv6d reads and writes.
    pub port: PortId,
    /// MAC address of the kernel's end, to which packets for the kernel are sent.
    pub kernel_mac: Mac,
}

/// One logical port.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Name shown to people: the device, or `device.vid`.
    pub name: String,
    /// Index of the physical port (device) among all logical ports: the untagged port of the same device,
    /// or this one. Frames leave through the device of that port.
    pub device: u16,
    /// 802.1Q VID, for a tagged logical port.
    pub vlan: Option<u16>,
    /// MAC address of the device.
    pub mac: Mac,
    /// Largest layer-3 packet, in bytes.
    pub mtu: u32,
    /// Whether the device has carrier and is administratively up.
    pub up: bool,
    /// VRF in which received packets are looked up.
    pub table: TableId,
    /// The role of the node on the other side.
    pub role: Role,
    /// Outer source of encapsulated packets that leave here. It is used if [`Path::source`] is not set, and replaces
    /// [`Tunnel::source`].
    pub source: Option<Ipv6Addr>,
    /// Source of ICMPv6 errors about packets that arrived here, which is an address of the port.
    pub icmp_source_v6: Option<Ipv6Addr>,
    /// Source of `ICMPv4` errors about packets that arrived here.
    pub icmp_source_v4: Option<Ipv4Addr>,
    /// Source addresses accepted on the port (BCP 38). If it is empty, all are accepted.
    pub allowed_sources: Vec<IpNet>,
    /// Carriers that may enter on an `Edge` or `Host` port. If it is empty, none may.
    pub allowed_carriers: Vec<Ipv6Net>,
    /// Whether srv6d writes TCP and UDP checksums that the sender leaves unfinished (veth with tx offload on).
    pub fill_checksum: bool,
}

impl Port {
    /// Creates an untagged port to a node of the SRv6 domain. It is up, in the main table, and has no restrictions.
    pub fn fabric(name: impl Into<String>, device: u16, mac: Mac, mtu: u32) -> Self {
        Self {
            name: name.into(),
            device,
            vlan: None,
            mac,
            mtu,
            up: true,
            table: TableId::MAIN,
            role: Role::Fabric,
            source: None,
            icmp_source_v6: None,
            icmp_source_v4: None,
            allowed_sources: Vec::new(),
            allowed_carriers: Vec::new(),
            fill_checksum: false,
        }
    }
}

/// The role of the node on the other side of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// A node of the SRv6 domain.
    #[default]
    Fabric,
    /// A node outside the domain, which may not send to the SID block (RFC 8754 section 5.1).
    Edge,
    /// A host that may use only the carriers it was given.
    Host,
    /// The veth of srv6d into the kernel of this node.
    Kernel,
}

impl Role {
    /// Returns true if packets come from outside the SRv6 domain, where the use of SIDs is restricted (RFC 8754
    /// section 5.1).
    pub const fn is_outside(self) -> bool {
        matches!(self, Self::Edge | Self::Host)
    }
}

/// Handling of the DSCP at encapsulation and decapsulation (RFC 2983).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DscpMode {
    /// The DSCP is copied.
    #[default]
    Uniform,
    /// Encapsulation writes this value (0..=63). Decapsulation leaves the inner DSCP as it is.
    Pipe(u8),
}

/// Outer header defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Outer source address. Without it, a path without a source of its own is refused.
    pub source: Option<Ipv6Addr>,
    /// Outer hop limit.
    pub hop_limit: u8,
    /// Outer DSCP.
    pub dscp: DscpMode,
    /// Whether the outer header is sent Not-ECT (RFC 6040 compatibility mode).
    pub ecn_compat: bool,
    /// Whether the `RoCEv2` destination QP is part of the flow key.
    pub hash_qp: bool,
    /// Whether the hop limit of packets that this node itself originates is decremented.
    pub decrement_local: bool,
}

impl Default for Tunnel {
    fn default() -> Self {
        Self {
            source: None,
            hop_limit: 64,
            dscp: DscpMode::Uniform,
            ecn_compat: false,
            hash_qp: false,
            decrement_local: false,
        }
    }
}

/// Policy of the node.
#[allow(clippy::struct_excessive_bools)] // independent knobs
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePolicy {
    /// ICMP errors per second and worker (RFC 4443 section 2.4 f). 0 means none.
    pub icmp_per_second: u32,
    /// Whether Destination Unreachable is sent for `no_route`.
    pub icmp_unreachable: bool,
    /// Whether a Last Entry out of range is accepted (`srh_check = "lenient"`).
    pub srh_lenient: bool,
    /// Whether a uA at the end of a carrier forwards what it cannot decapsulate (`ua_last = "forward"`).
    pub ua_last_forward: bool,
    /// Whether packets are decapsulated although bits are set behind the function (`dt_argument = "accept"`).
    pub dt_argument_accept: bool,
    /// Whether ports of other tables than main reach the SIDs, too (`vrf_sids = true`). The SIDs lead into main.
    pub vrf_sids: bool,
    /// Sources that packets to a SID of this node may have (RFC 8754 section 5.1). If it is empty, all may.
    pub domain_sources: Vec<Ipv6Net>,
    /// Smallest path MTU that is believed from a Packet Too Big about an outer packet of this node, in bytes.
    pub least_path_mtu: u32,
    /// Number that makes the choices of this node independent of the choices of other nodes: see [`Seed`](crate::flow::Seed).
    pub hash_seed: u64,
}

impl Default for NodePolicy {
    fn default() -> Self {
        Self {
            icmp_per_second: 100,
            icmp_unreachable: false,
            srh_lenient: false,
            ua_last_forward: false,
            dt_argument_accept: false,
            vrf_sids: false,
            domain_sources: Vec::new(),
            least_path_mtu: 1280,
            hash_seed: 0,
        }
    }
}

/// A locator block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The block, e.g. `fcbb::/32`.
    pub prefix: Ipv6Net,
    /// Handling of an address in the block that no longer prefix matches. `None` means that shorter prefixes may
    /// match it.
    pub unknown: Option<UnknownSid>,
}

/// Handling of an address of the block that is no SID of any known node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownSid {
    /// The packet is dropped and counted.
    #[default]
    Drop,
    /// The packet is dropped and counted, and Destination Unreachable (code 0) is sent.
    Icmp,
    /// The packet is sent to the kernel.
    Punt,
}

/// One SID of this node (RFC 8986, RFC 9800).
#[derive(Clone, Debug, PartialEq)]
pub struct LocalSid {
    /// Matched prefix: locator + function, e.g. /48 for a uN, /64 for a uN + uA pair.
    pub prefix: Ipv6Net,
    /// The behaviour of the SID.
    pub behavior: Behavior,
    /// Flavours: PSP, USP, USD.
    pub flavors: Flavors,
}

/// PSP, USP and USD (RFC 8986 section 4.16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flavors {
    /// Penultimate segment pop of the SRH.
    pub psp: bool,
    /// Ultimate segment pop of the SRH.
    pub usp: bool,
    /// Ultimate segment decapsulation.
    pub usd: bool,
}

/// Endpoint behaviour.
#[derive(Clone, Debug, PartialEq)]
pub enum Behavior {
    /// End with NEXT-CSID (uN), or plain End when `csid` is `None`.
    End {
        /// NEXT-CSID lengths. `None` is the classic behaviour.
        csid: Option<Csid>,
        /// DSCP handling when USD decapsulates.
        dscp: DscpMode,
    },
    /// End.X with NEXT-CSID (uA), or plain End.X.
    EndX {
        /// NEXT-CSID lengths. `None` is the classic behaviour.
        csid: Option<Csid>,
        /// Next hops: the adjacency set J.
        via: Vec<Hop>,
        /// Next hops that are used while the port of every member of `via` is down. If it is empty, the packet is
        /// dropped.
        backup: Vec<Hop>,
    },
    /// End.DT6, End.DT4, End.DT46 (uDT6, uDT4, uDT46).
    EndDt {
        /// Inner families accepted.
        family: DtFamily,
        /// Table of the inner lookup.
        table: TableId,
        /// DSCP handling at decapsulation.
        dscp: DscpMode,
    },
    /// End.DX6, End.DX4.
    EndDx {
        /// Inner family accepted.
        family: DtFamily,
        /// Next hops of the inner packet.
        via: Vec<Hop>,
    },
}

/// NEXT-CSID lengths in bits, which define a shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Csid {
    /// Locator block length (iproute2 `lblen`).
    pub lblen: u8,
    /// Locator node + function length consumed by one shift (iproute2 `nflen`): 16 for a /48, 32 for a /64 pair.
    pub nflen: u8,
}

/// Inner families of a decapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DtFamily {
    /// Next header 41 only.
    V6,
    /// Next header 4 only.
    V4,
    /// Both next headers.
    V46,
}

/// One next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hop {
    /// Egress port.
    pub port: PortId,
    /// Neighbour. `None` means that the destination itself is the neighbour (on-link).
    pub via: Option<IpAddr>,
    /// Share of the flows, at least 1.
    pub weight: u16,
}

/// A prefix whose packets are encapsulated (H.Encaps.Red, RFC 8986 section 5.2).
#[derive(Clone, Debug, PartialEq)]
pub struct Steer {
    /// Table of the prefix.
    pub table: TableId,
    /// Prefix of inner destinations.
    pub prefix: IpNet,
    /// Weighted paths, over which flows are hashed. It is never empty.
    pub paths: Vec<Path>,
}

/// One SRv6 path.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Name shown to people and used by the counters. It is unique.
    pub name: String,
    /// Segments: one carrier, or several with an SRH.
    pub segments: SegmentList,
    /// Whether the SRH lists every segment: H.Encaps instead of H.Encaps.Red.
    pub full_srh: bool,
    /// Share of the flows, at least 1.
    pub weight: u16,
    /// Outer source. If it is set, it replaces those of the port and the node.
    pub source: Option<Ipv6Addr>,
    /// Next hops. If there are none, packets take the route to the first segment in the main table.
    pub via: Vec<Hop>,
}

impl Path {
    /// Number of bytes that encapsulation puts in front of a packet: IPv6, and an SRH if there are segments to list
    /// (RFC 8986 sections 5.1 and 5.2).
    pub fn overhead(&self) -> u32 {
        const IPV6: u32 = 40;
        const SRH: u32 = 8;
        const SEGMENT: u32 = 16;
        let segments = u32::try_from(self.segments.addresses().len()).unwrap_or(u32::MAX);
        let listed = if self.full_srh { segments } else { segments.saturating_sub(1) };
        if listed == 0 { IPV6 } else { IPV6 + SRH + SEGMENT * listed }
    }
}

/// A plain route.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Routing table of the prefix (VRF).
    pub table: TableId,
    /// Destination prefix.
    pub prefix: IpNet,
    /// The action for packets to the prefix.
    pub action: RouteAction,
}

/// The action of a plain route.
#[derive(Clone, Debug, PartialEq)]
pub enum RouteAction {
    /// Packets are forwarded to one of the next hops. The list is never empty.
    Via(Vec<Hop>),
    /// Packets are dropped silently.
    Blackhole,
    /// Packets are dropped, and the sender is told (Destination Unreachable, no route).
    Unreachable,
    /// Packets are left to the kernel.
    Kernel,
}
