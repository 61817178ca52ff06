//! The fast path: it forwards nearly every packet with a few compares at fixed offsets.
//!
//! ```text
//! LookUps                                            write_burst
//! frame ─► plain port, plain headers? ─► look up ─►  ┬─ SID: shift, look up again ────────┐
//!                                                    ├─ SID: decapsulate, look up again ──┼─► ready hop, fits? ─► write
//!                                                    ├─ steer: a path ────────────────────┤
//!                                                    └─ route ────────────────────────────┘
//!          any "no" on the way ─► None: untouched, the slow path decides
//! ```
//!
//! The fast path answers only where the slow path would answer [`Tx`](crate::Verdict::Tx), with the same bytes and
//! the same counters. Each test is either that of the slow path, or stricter and cheaper. The stricter ones: the
//! frame is untagged and exactly as long as its headers say, so nothing has to be cut off or padded; addresses that
//! are not of global scope and headers that have to be read further (`ICMPv6`, options) are left to the slow path. A
//! test compares both paths.
//!
//! The look-up is a separate step, so that a worker can do it for a whole burst first: the processor then fetches the
//! tables' cache lines for several packets at a time. The second look-up, of the inner packets of those that are
//! decapsulated, is also done together for consecutive packets with the same SID.

#![allow(clippy::cast_possible_truncation, reason = "taking fields out of words")]
#![allow(
    clippy::inline_always,
    reason = "a packet in a loop of its own needs no call, which would cost a tenth of its time"
)]

mod burst;
mod destination_cache;
mod headers;
mod inner;
mod look_ups;
mod write;

use std::collections::HashMap;

use srv6d_fib::{
    BY_FLOW, CHECKS_DOMAIN, CHECKS_SOURCES, DECAPSULATES_V4, DECAPSULATES_V6, DECREMENTS_LOCAL, GUARDS_SIDS, HASH_QP,
    HopRow, NodeRow, PathKind, PathRow, PortRow, SidKind, SidRow, UNIFORM,
};
use srv6d_wire::{Packet, eth, ipv6};

use crate::desired::{Csid, DscpMode, DtFamily, Role};
use crate::index::room_for_more;
use crate::prefix_set::{InRuns, PrefixSet, SourceSet};
use crate::tables::{Action, Adjacency, AdjacencyState, PathEntry, PortEntry, Sid, Tables, Target, VrfIndex};
use crate::tally::Tally;
pub use burst::{Frames, Leaving, write_burst};
pub use inner::InnerLookUps;
pub use look_ups::{LookUpResult, LookUps};
use write::Encapsulation;

/// Bit position of the traffic class in the first word of an IPv6 header.
const CLASS: u32 = 52;

/// Unit of the length of an SRH, in bytes (RFC 8200 section 4.4).
const SRH_UNIT: usize = 8;

/// Length of the Ethernet and the IPv6 header. It is less than [`eth::MIN_FRAME`], so an IPv4 frame has as many bytes, too.
const HEAD: usize = eth::LEN + ipv6::LEN;

/// Offset of the source address in an IPv6 frame.
const SOURCE: usize = eth::LEN + ipv6::SOURCE;

/// Extract of the tables for the fast path: the same rows that the XDP program of an offload has. An entry has the same
/// index here as in [`Tables`]. The methods that choose path, next hop and SRH are in `fast/write.rs`.
#[derive(Clone, Debug, Default)]
pub(crate) struct FastTables {
    pub(crate) node: NodeRow,
    pub(crate) ports: Vec<PortRow>,
    /// Sources that may send through each port. If there are none, all may.
    sources: Vec<[PrefixSet; 2]>,
    pub(crate) sids: Vec<SidRow>,
    /// By group: its next hop. Of several, a row with `BY_FLOW` and MTU 0, which no packet fits. Otherwise zeros.
    hop_by_group: Vec<HopRow>,
    pub(crate) hops: Vec<HopRow>,
    /// By steered prefix: its path, with the smaller MTU of path and next hop. Of several paths or next hops, a row of
    /// kind `ByFlow`. Otherwise zeros.
    path_by_steer: Vec<PathRow>,
    pub(crate) paths: Vec<PathRow>,
    srhs: Srhs,
    /// Sources that may use the SIDs of this node. If it is empty, all may.
    domain: SourceSet,
}

/// The row of a port, taken apart once for all packets of a burst. Its methods are in `fast/look_ups.rs`.
#[derive(Clone, Copy)]
struct PlainPort<'t> {
    /// MAC address, in the lower 48 bits.
    mac: u64,
    /// Longest frame in bytes.
    longest: usize,
    table: VrfIndex,
    guards_sids: bool,
    checks_sources: bool,
    /// IPv6 and IPv4 sources that may send through the port.
    sources: &'t [PrefixSet; 2],
}

/// A SID that shifts. Its method is in `fast/write.rs`.
#[derive(Clone, Copy)]
struct Shift<'t>(&'t SidRow);

/// A SID that decapsulates. Its methods are in `fast/inner.rs` (look up) and `fast/write.rs` (write).
#[derive(Clone, Copy)]
struct Decapsulate<'t>(&'t SidRow);

/// Sources that may use the SIDs of this node.
struct Domain<'t>(InRuns<'t>);

impl Domain<'_> {
    #[inline(always)]
    fn contains_source(&self, packet: &Packet<'_>) -> bool {
        let source = |head: &[u8; HEAD]| head.get(SOURCE..).and_then(|bytes| bytes.first_chunk()).copied();
        packet.head::<HEAD>().and_then(source).is_some_and(|source| self.0.contains(source))
    }
}

impl FastTables {
    pub(crate) fn build(tables: &Tables) -> Self {
        let mut srhs = Srhs::default();
        let domain = SourceSet::of_v6(&tables.policy.domain_sources);
        let hops: Vec<_> = tables.adjacencies.iter().map(hop_row).collect();
        let hop_by_group: Vec<_> =
            (0..).take(tables.groups.len()).map(|group| hop_of_group(tables, group, &hops)).collect();
        let paths: Vec<_> = tables.paths.iter().map(|path| path_row(tables, path, &mut srhs)).collect();
        Self {
            node: node_row(tables, &domain),
            ports: tables.ports.iter().map(port_row).collect(),
            sources: tables.ports.iter().map(|port| PrefixSet::both(&port.allowed_sources)).collect(),
            sids: tables.sids.iter().map(|sid| sid_row(tables, sid)).collect(),
            hops,
            path_by_steer: (0..)
                .take(tables.steers.len())
                .map(|steer| path_of_steer(tables, steer, &paths, &hop_by_group))
                .collect(),
            hop_by_group,
            paths,
            srhs,
            domain,
        }
    }

    /// Extends the extract by what was added to the tables, and updates the given next hops, groups, paths and
    /// steered prefixes.
    pub(crate) fn update(
        &mut self,
        tables: &Tables,
        renewed: impl Iterator<Item = u32>,
        regrouped: impl Iterator<Item = u32>,
        paths: impl Iterator<Item = u32>,
        steers: impl Iterator<Item = u32>,
    ) {
        let (groups, hops) = (self.hop_by_group.len(), self.hops.len());
        self.hops.extend(tables.adjacencies.iter().skip(hops).map(hop_row));
        for at in renewed.map(|hop| hop as usize) {
            let Some(adjacency) = tables.adjacencies.get(at) else { continue };
            put(&mut self.hops, at, hop_row(adjacency), HopRow::default());
        }
        let added = (0..).take(tables.groups.len()).skip(groups);
        self.hop_by_group.extend(added.map(|group| hop_of_group(tables, group, &self.hops)));
        for at in regrouped {
            put(&mut self.hop_by_group, at as usize, hop_of_group(tables, at, &self.hops), HopRow::default());
        }
        for at in paths.map(|path| path as usize) {
            let Some(path) = tables.paths.get(at) else { continue };
            let row = path_row(tables, path, &mut self.srhs);
            put(&mut self.paths, at, row, PathRow::default());
        }
        for at in steers {
            let row = path_of_steer(tables, at, &self.paths, &self.hop_by_group);
            put(&mut self.path_by_steer, at as usize, row, PathRow::default());
        }
    }

    /// Reserves memory for what amendments add.
    pub(crate) fn make_room(&mut self) {
        room_for_more(&mut self.hop_by_group);
        room_for_more(&mut self.hops);
        room_for_more(&mut self.path_by_steer);
        room_for_more(&mut self.paths);
    }

    /// Returns the row of a port, taken apart for the first look-up.
    #[inline]
    fn port(&self, device: u16) -> Option<PlainPort<'_>> {
        let at = usize::from(device);
        let PortRow { mac, table, longest, flags } = *self.ports.get(at)?;
        let [m0, m1, m2, m3, m4, m5] = mac;
        Some(PlainPort {
            mac: u64::from_be_bytes([0, 0, m0, m1, m2, m3, m4, m5]),
            longest: longest as usize,
            table,
            guards_sids: flags & GUARDS_SIDS != 0,
            checks_sources: flags & CHECKS_SOURCES != 0,
            sources: self.sources.get(at)?,
        })
    }

    /// Returns true if the `RoCEv2` queue pair is part of a flow.
    #[inline]
    const fn hashes_qp(&self) -> bool {
        self.node.flags & HASH_QP != 0
    }

    /// Returns true if the source of a packet may use the SIDs of this node.
    #[inline(always)]
    fn accepts_source(&self, packet: &Packet<'_>) -> bool {
        self.is_for_all() || self.is_in_domain(packet)
    }

    /// Returns true if every source may use the SIDs of this node.
    #[inline]
    const fn is_for_all(&self) -> bool {
        self.node.flags & CHECKS_DOMAIN == 0
    }

    fn is_in_domain(&self, packet: &Packet<'_>) -> bool {
        Domain(self.domain.ask()).contains_source(packet)
    }

    /// Returns who may use the SIDs of this node, for many packets, or `None` if all may.
    fn domain(&self) -> Option<Domain<'_>> {
        (!self.is_for_all()).then(|| Domain(self.domain.ask()))
    }

    /// Number of bytes of all SRHs, including those that no path uses any more.
    pub(crate) fn srh_bytes(&self) -> usize {
        self.srhs.bytes.len()
    }
}

/// Puts an entry at an index. Missing entries before it are filled with `filling`.
pub(crate) fn put<T: Clone>(entries: &mut Vec<T>, at: usize, entry: T, filling: T) {
    if entries.len() <= at {
        entries.resize(at + 1, filling);
    }
    if let Some(place) = entries.get_mut(at) {
        *place = entry;
    }
}

fn node_row(tables: &Tables, domain: &SourceSet) -> NodeRow {
    let flag = |applies: bool, flag: u32| if applies { flag } else { 0 };
    NodeRow {
        flags: flag(tables.tunnel.hash_qp, HASH_QP)
            | flag(!domain.is_empty(), CHECKS_DOMAIN)
            | flag(tables.tunnel.decrement_local, DECREMENTS_LOCAL),
        seed_of_hops: tables.seed.hops,
        seed_of_paths: tables.seed.paths,
        ..NodeRow::default()
    }
}

pub(crate) fn port_row(port: &PortEntry) -> PortRow {
    let row = offload_port_row(port);
    // The frames of VLANs take the slow path.
    if port.vlan.is_some() { PortRow { longest: 0, ..row } } else { row }
}

/// Returns the row of a port for the XDP program, which removes the tags of a VLAN first.
pub(crate) fn offload_port_row(port: &PortEntry) -> PortRow {
    let is_plain = port.role != Role::Kernel && !port.fill_checksum && !port.mac.is_group();
    let flag = |applies: bool, flag: u32| if applies { flag } else { 0 };
    let longest = u32::try_from(port.mtu + eth::LEN).unwrap_or(u32::MAX);
    PortRow {
        mac: port.mac.0,
        table: port.vrf,
        longest: if is_plain { longest } else { 0 },
        flags: flag(port.role.is_outside(), GUARDS_SIDS) | flag(!port.allowed_sources.is_empty(), CHECKS_SOURCES),
    }
}

fn hop_row(adjacency: &Adjacency) -> HopRow {
    match *adjacency {
        Adjacency { state: AdjacencyState::Ready, ethernet_len: 12, device, .. } => ready_row(adjacency, device),
        _ => HopRow::default(),
    }
}

/// Returns the row of a next hop for the XDP program. A tagged one leads to its own port, and not to that of the device.
pub(crate) fn offload_hop_row(adjacency: &Adjacency) -> HopRow {
    match *adjacency {
        Adjacency { state: AdjacencyState::Ready, ethernet_len: 16, port, .. } => ready_row(adjacency, port.0),
        _ => hop_row(adjacency),
    }
}

fn ready_row(adjacency: &Adjacency, port: u16) -> HopRow {
    let [ethernet @ .., _, _, _, _] = adjacency.ethernet;
    // The payload length of an outer header is at most 65,535 bytes too.
    let mtu = adjacency.mtu.min(usize::from(u16::MAX)) as u32;
    HopRow { ethernet, mtu, slot: adjacency.slot, port, flags: 0 }
}

/// Returns the row that stands for all next hops of a group. Packets to a group that does not choose by the hash take
/// the slow path.
fn hop_of_group(tables: &Tables, group: u32, hops: &[HopRow]) -> HopRow {
    match tables.groups.by_hash(group) {
        Some([only]) => hops.get(*only as usize).copied().unwrap_or_default(),
        Some(_) => HopRow { flags: BY_FLOW, ..HopRow::default() },
        None => HopRow::default(),
    }
}

fn path_row(tables: &Tables, path: &PathEntry, srhs: &mut Srhs) -> PathRow {
    let (Some(group), Some((header, rest))) = (path.group, path.header.split_first_chunk::<{ ipv6::LEN }>()) else {
        return PathRow::default();
    };
    let [_, _, _, _, _, _, _, hop_limit, addresses @ ..] = *header;
    let Some(addresses) = with_source(tables, path, group, addresses) else { return PathRow::default() };
    let srh = rest.get(..path.header_len.saturating_sub(ipv6::LEN)).unwrap_or_default();
    let (class_kept, class_set) = outer_class(tables);
    PathRow {
        addresses,
        first: 6 << 60 | u64::from(class_set) << CLASS | u64::from(hop_limit),
        class_kept: u64::from(class_kept) << CLASS,
        slot: path.slot,
        group,
        srh: srhs.at(srh),
        mtu: path.mtu.min(usize::from(u16::MAX)) as u16,
        srh_units: (srh.len() / SRH_UNIT) as u8,
        kind: if srh.is_empty() { PathKind::WithoutSrh } else { PathKind::WithSrh },
    }
}

/// Returns the row that stands for all paths of a prefix. If there is only one, it is the path itself. Packets to a
/// prefix that does not choose by the hash take the slow path.
fn path_of_steer(tables: &Tables, steer: u32, paths: &[PathRow], hop_by_group: &[HopRow]) -> PathRow {
    let by_flow = PathRow { kind: PathKind::ByFlow, ..PathRow::default() };
    let Some(steer) = tables.steers.by_hash(steer) else { return PathRow::default() };
    let [only] = steer else { return by_flow };
    let path = paths.get(*only as usize).copied().unwrap_or_default();
    let hop = hop_by_group.get(path.group as usize).copied().unwrap_or_default();
    if hop.flags & BY_FLOW != 0 {
        return PathRow { kind: if path.kind == PathKind::Slow { PathKind::Slow } else { PathKind::ByFlow }, ..path };
    }
    PathRow { mtu: u32::from(path.mtu).min(hop.mtu) as u16, ..path }
}

/// All SRHs, one after the other. Paths with the same segments share theirs.
#[derive(Clone, Debug, Default)]
struct Srhs {
    bytes: Vec<u8>,
    known: HashMap<Vec<u8>, u32>,
}

impl Srhs {
    /// Returns where this SRH begins, and adds it if it is new.
    fn at(&mut self, srh: &[u8]) -> u32 {
        let next = self.bytes.len() as u32;
        let at = *self.known.entry(srh.to_vec()).or_insert(next);
        if at == next {
            self.bytes.extend_from_slice(srh);
        }
        at
    }
}

/// Returns source and destination. The source is that of the group's ports, unless the path has its own. Returns
/// `None` if the ports do not agree.
fn with_source(tables: &Tables, path: &PathEntry, group: u32, mut addresses: [u8; 32]) -> Option<[u8; 32]> {
    if path.own_source {
        return Some(addresses);
    }
    let members = tables.groups.get(group)?;
    let mut sources = members.iter().map(|&member| tables.adjacencies.get(member as usize)?.source);
    let first = sources.next()?;
    if let Some(source) = first {
        *addresses.first_chunk_mut()? = source.octets();
    }
    sources.all(|other| other == first).then_some(addresses)
}

fn sid_row(tables: &Tables, sid: &Sid) -> SidRow {
    let slow = SidRow { slot: sid.slot, ..SidRow::default() };
    match sid.action {
        Action::End { csid: Some(Csid { lblen: 32, nflen: by @ (16 | 32) }), .. } => {
            SidRow { kind: SidKind::Shift, by, ..slow }
        }
        Action::EndX { csid: Some(Csid { lblen: 32, nflen: by @ (16 | 32) }), group } => {
            SidRow { kind: SidKind::ShiftVia, by, group, ..slow }
        }
        Action::EndDt { family, vrf, dscp } => {
            let flag = |applies: bool, flag: u8| if applies { flag } else { 0 };
            let behind = u128::MAX.checked_shr(sid.len.into()).unwrap_or(0);
            SidRow {
                kind: SidKind::Decapsulate,
                flags: flag(family != DtFamily::V4, DECAPSULATES_V6)
                    | flag(family != DtFamily::V6, DECAPSULATES_V4)
                    | flag(dscp == DscpMode::Uniform, UNIFORM),
                table: vrf,
                argument: if tables.policy.dt_argument_accept { [0; 2] } else { halves(behind) },
                ..slow
            }
        }
        _ => slow,
    }
}

/// Returns the bits of the inner traffic class that the outer one keeps, and the bits that are set besides.
fn outer_class(tables: &Tables) -> (u8, u8) {
    let ecn: u8 = if tables.tunnel.ecn_compat { 0 } else { 3 };
    match tables.tunnel.dscp {
        DscpMode::Uniform => (!3 | ecn, 0),
        DscpMode::Pipe(dscp) => (ecn, dscp << 2),
    }
}

/// Returns the upper and the lower half of an address.
#[inline]
pub(crate) const fn halves(bits: u128) -> [u64; 2] {
    [(bits >> 64) as u64, bits as u64]
}

/// The treatment of a packet on the fast path.
#[derive(Clone, Copy)]
enum Kind<'t> {
    Shift(Shift<'t>),
    Decapsulate(Decapsulate<'t>),
    EncapsulateV6,
    EncapsulateV4,
    RouteV6,
    RouteV4,
}

impl<'t> Kind<'t> {
    #[inline]
    fn of(tables: &'t Tables, found: LookUpResult) -> Option<Self> {
        match (Target::decode(found.value()?), found.is_v6()) {
            (Target::Sid(sid), _) => {
                let sid = tables.fast.sids.get(sid as usize)?;
                match sid.kind {
                    SidKind::Shift | SidKind::ShiftVia => Some(Self::Shift(Shift(sid))),
                    SidKind::Decapsulate => Some(Self::Decapsulate(Decapsulate(sid))),
                    SidKind::Slow => None,
                }
            }
            (Target::Steer(_), true) => Some(Self::EncapsulateV6),
            (Target::Steer(_), false) => Some(Self::EncapsulateV4),
            (Target::Route(_) | Target::Neighbor(_), true) => Some(Self::RouteV6),
            (Target::Route(_) | Target::Neighbor(_), false) => Some(Self::RouteV4),
            _ => None,
        }
    }
}

/// Writes one packet as it will leave, and returns the device that it leaves through.
///
/// Returns `None` if the packet is not plain; nothing was written then. `found` is what [`LookUps`] returned for this
/// packet.
#[inline(never)]
pub fn write_one(tables: &Tables, tally: &Tally, packet: &mut Packet<'_>, found: LookUpResult) -> Option<u16> {
    let ready = match Kind::of(tables, found)? {
        Kind::Shift(_) | Kind::Decapsulate(_) if !tables.fast.accepts_source(packet) => return None,
        Kind::Shift(shift) => {
            let ready = shift.write(tables, packet)?;
            tally.sid(shift.0.slot, 1, ready.len);
            ready
        }
        Kind::Decapsulate(sid) => {
            let ready = sid.write_alone(tables, packet)?;
            tally.sid(sid.0.slot, 1, ready.len + ipv6::LEN);
            ready
        }
        Kind::EncapsulateV6 => Encapsulation::new(tables, tally).v6(packet, found.index())?,
        Kind::EncapsulateV4 => Encapsulation::new(tables, tally).v4(packet, found.index())?,
        Kind::RouteV6 => write::route_v6(tables, packet, found.index())?,
        Kind::RouteV4 => write::route_v4(tables, packet, found.index())?,
    };
    tally.adjacency(ready.hop.slot, 1, ready.len);
    Some(ready.hop.port)
}

#[cfg(test)]
mod tests;
