//! What control asks the packet path to do: the input of [`Tables::build`](crate::tables::Tables::build).
//!
//! Everything here is resolved (port numbers, table ids, MAC addresses) and free of configuration text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv6Net};

use crate::carrier::SegmentList;

/// Index of a logical port: a network device, or one VLAN of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// Kernel routing table id, which is what names a VRF (`seg6local ... table N`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

impl TableId {
    /// The default VRF: `main`, 254 in `/etc/iproute2/rt_tables`.
    pub const MAIN: Self = Self(254);
}

/// Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The group bit is set: multicast or broadcast.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.map(|byte| format!("{byte:02x}"));
        f.write_str(&bytes.join(":"))
    }
}

/// The text is not six hexadecimal bytes with colons between them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a MAC address such as 02:00:00:00:00:01")]
pub struct MacParseError(String);

impl FromStr for Mac {
    type Err = MacParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut mac = [0u8; 6];
        let mut groups = text.split(':');
        for byte in &mut mac {
            *byte = groups
                .next()
                .filter(|group| group.len() == 2)
                .and_then(|group| u8::from_str_radix(group, 16).ok())
                .ok_or_else(|| MacParseError(text.to_owned()))?;
        }
        groups.next().is_none().then_some(Self(mac)).ok_or_else(|| MacParseError(text.to_owned()))
    }
}

/// The whole desired state. Order of the vectors is free; [`PortId`] is the index into `ports`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// Logical ports.
    pub ports: Vec<Port>,
    /// srv6d's own veth into the kernel's stack: local delivery, and what local applications send.
    pub host: Option<HostPort>,
    /// Outer header of every encapsulation, unless a port or a policy says otherwise.
    pub tunnel: Tunnel,
    /// Policy knobs of the whole node.
    pub policy: Policy,
    /// Locator blocks: an address inside one that matches nothing longer is an unknown SID.
    pub blocks: Vec<Block>,
    /// Subnets of hosts inside the blocks. They are no SIDs: edge and host ports may send there.
    pub host_prefixes: Vec<Ipv6Net>,
    /// SIDs of this node.
    pub sids: Vec<LocalSid>,
    /// Prefixes that are encapsulated towards SRv6 paths.
    pub steers: Vec<Steer>,
    /// Plain routes.
    pub routes: Vec<Route>,
    /// Addresses of the node itself: the kernel's, unless a SID with arguments says otherwise.
    pub local_addresses: Vec<(TableId, IpAddr)>,
    /// Neighbours the kernel (or the configuration) has resolved.
    pub neighbors: BTreeMap<(PortId, IpAddr), Mac>,
    /// Largest outer packet along these segments, where a router on the way has said one (RFC 8201). Egress MTUs hold
    /// too.
    pub path_mtus: BTreeMap<SegmentList, u32>,
    /// Ports whose plain shifts and encapsulations may be forwarded in front of the workers ([`Offload`](crate::offload::Offload)).
    pub offload: BTreeSet<PortId>,
}

/// A plain route that is another one from now on, is new, or is no more.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteChange {
    /// Table.
    pub table: TableId,
    /// Destinations.
    pub prefix: IpNet,
    /// What becomes of them; `None`: there is no such route.
    pub action: Option<RouteAction>,
}

/// A steered prefix that has other paths from now on, is new, or is no more.
#[derive(Clone, Debug, PartialEq)]
pub struct SteerChange {
    /// Table.
    pub table: TableId,
    /// Inner destinations.
    pub prefix: IpNet,
    /// Their paths; none: the prefix is not steered.
    pub paths: Vec<Path>,
}

/// A few changes of the desired state that come into force together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Amendment {
    /// Plain routes.
    pub routes: Vec<RouteChange>,
    /// Steered prefixes.
    pub steers: Vec<SteerChange>,
    /// SIDs.
    pub sids: Vec<SidChange>,
    /// Neighbours.
    pub neighbors: Vec<NeighborChange>,
}

/// A neighbour that has another MAC address from now on, is new, or is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborChange {
    /// The port it is on.
    pub port: PortId,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address; `None`: it is not resolved.
    pub mac: Option<Mac>,
}

/// A SID of this node that does something else from now on, is new, or is no more.
#[derive(Clone, Debug, PartialEq)]
pub struct SidChange {
    /// Matched prefix.
    pub prefix: Ipv6Net,
    /// What it does; `None`: there is no such SID.
    pub sid: Option<LocalSid>,
}

impl Amendment {
    /// Nothing changes.
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
    /// Changes some entries. What undoes that is returned; empty: nothing changed.
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

    /// Changes one neighbour. What undoes that is returned; `None`: nothing changed.
    pub(crate) fn change_neighbor(&mut self, change: NeighborChange) -> Option<NeighborChange> {
        let at = (change.port, change.address);
        let was = match change.mac {
            Some(mac) => self.neighbors.insert(at, mac),
            None => self.neighbors.remove(&at),
        };
        (was != change.mac).then_some(NeighborChange { mac: was, ..change })
    }
}

/// Puts an entry in place of the one at a position, which is returned. `None`: no such entry.
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

/// srv6d's own veth. One end is a port of srv6d (role [`Role::Kernel`]), the other a device of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// The end that srv6d reads and writes.
    pub port: PortId,
    /// Address of the kernel's end: where packets for the kernel are sent.
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
    /// Address of the device.
    pub mac: Mac,
    /// Largest layer-3 packet, in bytes.
    pub mtu: u32,
    /// Carrier and administrative state.
    pub up: bool,
    /// VRF of what arrives.
    pub table: TableId,
    /// Who is on the other side.
    pub role: Role,
    /// Outer source of packets that leave here encapsulated (before [`Tunnel::source`], behind [`Path::source`]).
    pub source: Option<Ipv6Addr>,
    /// Source of ICMP errors about packets that arrived here: an address of the port.
    pub icmp_source_v6: Option<Ipv6Addr>,
    /// The same for `ICMPv4`.
    pub icmp_source_v4: Option<Ipv4Addr>,
    /// Source addresses accepted on the port (BCP 38); empty: all.
    pub allowed_sources: Vec<IpNet>,
    /// Carriers that may enter on an `Edge` or `Host` port; empty: none.
    pub allowed_carriers: Vec<Ipv6Net>,
    /// The sender leaves TCP and UDP checksums unfinished (veth with tx offload on): write them.
    pub fill_checksum: bool,
}

impl Port {
    /// An untagged port to a node of the SRv6 domain: up, in the main table, and nothing restricted.
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

/// Who is on the other side of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// A node of the SRv6 domain.
    #[default]
    Fabric,
    /// Outside the domain: nothing may be addressed to the SID block (RFC 8754 section 5.1).
    Edge,
    /// A host that may use the carriers it was given, and no others.
    Host,
    /// srv6d's own veth into the kernel of this node.
    Kernel,
}

impl Role {
    /// What comes in is from outside the SRv6 domain: SIDs are not for everyone there (RFC 8754 section 5.1).
    pub const fn is_outside(self) -> bool {
        matches!(self, Self::Edge | Self::Host)
    }
}

/// What the outer DSCP becomes at encapsulation, and the inner one at decapsulation (RFC 2983).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DscpMode {
    /// Copied.
    #[default]
    Uniform,
    /// Encapsulation: this value (0..=63). Decapsulation: the inner one stays.
    Pipe(u8),
}

/// Outer header defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Outer source address. `None`: a policy without one of its own is refused.
    pub source: Option<Ipv6Addr>,
    /// Outer hop limit.
    pub hop_limit: u8,
    /// Outer DSCP.
    pub dscp: DscpMode,
    /// RFC 6040 compatibility mode: the outer header is sent Not-ECT.
    pub ecn_compat: bool,
    /// The `RoCEv2` destination QP is part of the flow key.
    pub hash_qp: bool,
    /// Decrement the hop limit of packets that this node itself originates.
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
pub struct Policy {
    /// ICMP errors per second and worker (RFC 4443 section 2.4 f); 0: none.
    pub icmp_per_second: u32,
    /// Answer `no_route` with Destination Unreachable.
    pub icmp_unreachable: bool,
    /// Accept a Last Entry that does not fit (`srh_check = "lenient"`).
    pub srh_lenient: bool,
    /// A uA at the end of a carrier forwards what it cannot decapsulate (`ua_last = "forward"`).
    pub ua_last_forward: bool,
    /// Decapsulate although bits are left behind the function (`dt_argument = "accept"`).
    pub dt_argument_accept: bool,
    /// Ports of other tables than main reach the SIDs, too (`vrf_sids = true`). They lead into main.
    pub vrf_sids: bool,
    /// Sources a packet to one of our SIDs may have (RFC 8754 section 5.1); empty: all.
    pub domain_sources: Vec<Ipv6Net>,
    /// A Packet Too Big about an own outer packet that says less than this is not believed, in bytes.
    pub least_path_mtu: u32,
}

impl Default for Policy {
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
        }
    }
}

/// A locator block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The block, e.g. `fcbb::/32`.
    pub prefix: Ipv6Net,
    /// What becomes of an address in the block that nothing longer matches; `None`: shorter prefixes may match it.
    pub unknown: Option<UnknownSid>,
}

/// What becomes of a SID of the block that nobody owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownSid {
    /// Counted drop.
    #[default]
    Drop,
    /// Counted drop and Destination Unreachable (code 0).
    Icmp,
    /// To the kernel.
    Punt,
}

/// One SID of this node (RFC 8986, RFC 9800).
#[derive(Clone, Debug, PartialEq)]
pub struct LocalSid {
    /// Matched prefix: locator + function, e.g. /48 for a uN, /64 for a uN + uA pair.
    pub prefix: Ipv6Net,
    /// What it does.
    pub behavior: Behavior,
    /// PSP, USP, USD.
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
        /// NEXT-CSID lengths; `None`: the classic behaviour.
        csid: Option<Csid>,
        /// DSCP at decapsulation (USD).
        dscp: DscpMode,
    },
    /// End.X with NEXT-CSID (uA), or plain End.X.
    EndX {
        /// NEXT-CSID lengths; `None`: the classic behaviour.
        csid: Option<Csid>,
        /// The adjacency set J.
        via: Vec<Hop>,
        /// Used while the port of every member of `via` is down; empty: the packet is dropped.
        backup: Vec<Hop>,
    },
    /// End.DT6, End.DT4, End.DT46 (uDT6, uDT4, uDT46).
    EndDt {
        /// Inner families accepted.
        family: DtFamily,
        /// Table of the inner lookup.
        table: TableId,
        /// DSCP at decapsulation.
        dscp: DscpMode,
    },
    /// End.DX6, End.DX4.
    EndDx {
        /// Inner family accepted.
        family: DtFamily,
        /// Where the inner packet goes.
        via: Vec<Hop>,
    },
}

/// NEXT-CSID lengths in bits: how far a shift goes.
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
    /// Both.
    V46,
}

/// One next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hop {
    /// Where it leaves.
    pub port: PortId,
    /// Neighbour; `None`: the destination itself is the neighbour (on-link).
    pub via: Option<IpAddr>,
    /// Share of the flows, at least 1.
    pub weight: u16,
}

/// Encapsulate what goes to `prefix` (H.Encaps.Red, RFC 8986 section 5.2).
#[derive(Clone, Debug, PartialEq)]
pub struct Steer {
    /// Table the prefix lives in.
    pub table: TableId,
    /// Inner destinations.
    pub prefix: IpNet,
    /// Weighted paths; flows are hashed over them. Never empty.
    pub paths: Vec<Path>,
}

/// One SRv6 path.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Name shown to people and carried by its counters, unique.
    pub name: String,
    /// Carriers: one, or several with an SRH.
    pub segments: SegmentList,
    /// H.Encaps instead of H.Encaps.Red: the SRH lists every segment.
    pub full_srh: bool,
    /// Share of the flows, at least 1.
    pub weight: u16,
    /// Outer source; before the port's and the node's.
    pub source: Option<Ipv6Addr>,
    /// Next hops; empty: the route to the first segment in the main table.
    pub via: Vec<Hop>,
}

impl Path {
    /// Bytes that encapsulation puts in front of a packet: IPv6, and an SRH where there is something to list
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
    /// Table.
    pub table: TableId,
    /// Destinations.
    pub prefix: IpNet,
    /// What becomes of them.
    pub action: RouteAction,
}

/// What a plain route does.
#[derive(Clone, Debug, PartialEq)]
pub enum RouteAction {
    /// Forward to one of the next hops. Never empty.
    Via(Vec<Hop>),
    /// Drop in silence.
    Blackhole,
    /// Drop, and tell the sender (Destination Unreachable, no route).
    Unreachable,
    /// Leave it to the kernel.
    Kernel,
}
