//! The straight way: what nearly every packet needs, done with a handful of compares on fixed offsets.
//!
//! ```text
//! LookUps                                            forward
//! frame ─► plain port, plain headers? ─► look up ─►  ┬─ SID: shift, look up again ────────┐
//!                                                    ├─ SID: decapsulate, look up again ──┼─► ready hop, fits? ─► write
//!                                                    ├─ steer: a path ────────────────────┤
//!                                                    └─ route ────────────────────────────┘
//!          any "no" on the way ─► None: untouched, the walk of `forward` decides
//! ```
//!
//! It answers only where the walk would answer [`Tx`](crate::Verdict::Tx), with the same bytes and the same counters:
//! every test here is the walk's own test, or a stricter one that is cheaper. What is stricter: the frame is untagged
//! and exactly as long as its headers say (nothing to cut off, nothing to pad), addresses of special scope and headers
//! with more to look at (`ICMPv6`, options) are left to the walk. A test runs both side by side.
//!
//! Looking up is a step of its own so that a worker can do it for a whole burst first: the processor then fetches the
//! tables' cache lines for several packets at a time instead of one after the other. So is the second look-up of packets
//! that are decapsulated, for those one behind the other that have the same SID.

#![allow(clippy::cast_possible_truncation, reason = "taking fields out of words")]
#![allow(
    clippy::inline_always,
    reason = "a packet in a loop of its own needs no call, which would cost a tenth of its time"
)]

mod burst;
mod destination_cache;
mod headers;
mod inside;
mod look_ups;
pub mod offload;
mod write;

use std::collections::HashMap;

use srv6d_wire::{Packet, eth, ipv6};

use crate::index::room_for_more;
use crate::model::{Csid, DscpMode, DtFamily, Role};
use crate::prefix_set::PrefixSet;
use crate::tables::{Action, Adjacency, AdjacencyState, PathEntry, PortEntry, Sid, Tables, Target, VrfIndex};
use crate::tally::Tally;
pub use burst::{Frames, Leaving, forward_all};
pub use inside::Inside;
pub use look_ups::{Found, LookUps};
use write::Encapsulation;

/// Where the traffic class stands in the first word of a header.
const CLASS: u32 = 52;

/// Ethernet and IPv6. Shorter than [`eth::MIN_FRAME`], so an IPv4 frame has as many bytes.
const HEAD: usize = eth::LEN + ipv6::LEN;

/// Extract of the tables for the straight way. Its vectors run parallel to those of [`Tables`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Straight {
    ports: Vec<PlainPort>,
    sids: Vec<PlainSid>,
    /// By group: the next hop, where it is the only one.
    groups: Vec<PlainHop>,
    hops: Vec<PlainHop>,
    /// By steered prefix: the path, where it is the only one.
    steers: Vec<PlainPath>,
    paths: Vec<PlainPath>,
    srhs: Srhs,
    class: OuterClass,
    /// Sources that may use the SIDs of this node; empty: all.
    domain: PrefixSet,
}

/// A port that asks nothing of a packet but its MAC address, its length, and where it comes from.
#[derive(Clone, Debug)]
struct PlainPort {
    /// In the lower 48 bits.
    mac: u64,
    /// SIDs are not for everyone (edge and host ports).
    guards_sids: bool,
    vrf: VrfIndex,
    /// Longest frame. 0: not plain.
    longest: usize,
    /// Sources are looked at.
    checks_sources: bool,
    /// Those that may send: IPv6 and IPv4.
    sources: [PrefixSet; 2],
}

/// A next hop that packets can be sent to, untagged.
#[derive(Clone, Copy, Debug, Default)]
struct PlainHop {
    /// Destination and source.
    ethernet: [u8; 12],
    /// One of several next hops of a group: the flow decides.
    by_flow: bool,
    device: u16,
    /// 0: not plain (not ready, tagged, one of several), no packet is short enough.
    mtu: u32,
    slot: u32,
}

/// A path: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct PlainPath {
    /// The outer header: source and destination behind a first word of hop limit, and zeros.
    addresses: [u8; 32],
    first: u64,
    slot: u32,
    group: u32,
    /// Where its SRH begins in [`Straight::srhs`], and its length; often 0.
    srh: u32,
    srh_len: u16,
    /// Largest outer packet that routers on the path carry; that of a prefix's only path, its only next hop, too.
    mtu: u16,
    way: Way,
}

/// Whether a path can be taken straight away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    WithoutSrh,
    WithSrh,
    /// One of several paths of a prefix or next hops of a path: the flow decides.
    ByFlow,
    /// Left to the walk.
    Walk,
}

/// What a SID does, where it is plain.
#[derive(Clone, Copy, Debug)]
enum PlainSid {
    Shift(Shift),
    Decapsulate(Decapsulate),
    /// Left to the walk.
    Walk,
}

/// NEXT-CSID (uN and uA) behind a 32-bit block.
#[derive(Clone, Copy, Debug)]
struct Shift {
    slot: u32,
    /// Bits: 16 or 32.
    by: u32,
    /// uA: the way out.
    group: Option<u32>,
}

/// End.DT6, End.DT4, End.DT46.
#[derive(Clone, Copy, Debug)]
struct Decapsulate {
    slot: u32,
    /// Bits of the SID that must be zero: of its upper and its lower half.
    argument: [u64; 2],
    v6: bool,
    v4: bool,
    vrf: VrfIndex,
    /// The DSCP is taken from the outer header.
    uniform: bool,
}

/// The outer traffic class where it stands in the first word of a header: bits kept of the inner one, and bits set, with
/// the version.
#[derive(Clone, Copy, Debug, Default)]
struct OuterClass {
    kept: u64,
    set: u64,
}

impl Straight {
    pub(crate) fn build(tables: &Tables) -> Self {
        let mut srhs = Srhs::default();
        let hops: Vec<_> = tables.adjacencies.iter().map(PlainHop::of).collect();
        let groups: Vec<_> = tables.groups.iter().map(|members| PlainHop::only(members, &hops)).collect();
        let paths: Vec<_> = tables.paths.iter().map(|path| PlainPath::of(tables, path, &mut srhs)).collect();
        Self {
            ports: tables.ports.iter().map(PlainPort::of).collect(),
            sids: tables.sids.iter().map(|sid| PlainSid::of(tables, sid)).collect(),
            hops,
            steers: tables.steers.iter().map(|steer| PlainPath::first(steer, &paths, &groups)).collect(),
            groups,
            paths,
            srhs,
            class: OuterClass::of(tables),
            domain: PrefixSet::of_v6(&tables.policy.domain_sources),
        }
    }

    /// Brings what has been added to the tables, and these next hops, groups, paths and steered prefixes, in line with them.
    pub(crate) fn follow(
        &mut self,
        tables: &Tables,
        renewed: impl Iterator<Item = u32>,
        regrouped: impl Iterator<Item = u32>,
        paths: impl Iterator<Item = u32>,
        steers: impl Iterator<Item = u32>,
    ) {
        let (groups, hops) = (self.groups.len(), self.hops.len());
        self.hops.extend(tables.adjacencies.iter().skip(hops).map(PlainHop::of));
        for at in renewed.map(|hop| hop as usize) {
            let Some(adjacency) = tables.adjacencies.get(at) else { continue };
            put(&mut self.hops, at, PlainHop::of(adjacency), PlainHop::default());
        }
        self.groups.extend(tables.groups.iter().skip(groups).map(|members| PlainHop::only(members, &self.hops)));
        for at in regrouped.map(|group| group as usize) {
            let Some(members) = tables.groups.get(at) else { continue };
            put(&mut self.groups, at, PlainHop::only(members, &self.hops), PlainHop::default());
        }
        for at in paths.map(|path| path as usize) {
            let Some(path) = tables.paths.get(at) else { continue };
            let plain = PlainPath::of(tables, path, &mut self.srhs);
            put(&mut self.paths, at, plain, PlainPath::WALK);
        }
        for at in steers.map(|steer| steer as usize) {
            let Some(steer) = tables.steers.get(at) else { continue };
            let plain = PlainPath::first(steer, &self.paths, &self.groups);
            put(&mut self.steers, at, plain, PlainPath::WALK);
        }
    }

    /// Makes room for what amendments add.
    pub(crate) fn make_room(&mut self) {
        room_for_more(&mut self.groups);
        room_for_more(&mut self.hops);
        room_for_more(&mut self.steers);
        room_for_more(&mut self.paths);
    }

    /// Returns true if the source of a packet may use the SIDs of this node.
    #[inline(always)]
    fn accepts_source(&self, packet: &Packet<'_>) -> bool {
        self.domain.is_empty() || self.is_in_domain(packet)
    }

    #[inline(always)]
    fn is_in_domain(&self, packet: &Packet<'_>) -> bool {
        packet.head::<HEAD>().is_some_and(|head| self.domain.contains(headers::source_v6(head, eth::LEN)))
    }

    /// Bytes of the SRHs, those that no path has any more included.
    pub(crate) fn srh_bytes(&self) -> usize {
        self.srhs.bytes.len()
    }
}

/// Puts an entry at its place, with others before it if there are none yet.
pub(crate) fn put<T: Clone>(entries: &mut Vec<T>, at: usize, entry: T, filling: T) {
    if entries.len() <= at {
        entries.resize(at + 1, filling);
    }
    if let Some(place) = entries.get_mut(at) {
        *place = entry;
    }
}

impl PlainPort {
    fn of(port: &PortEntry) -> Self {
        let is_plain = port.vlan.is_none() && port.role != Role::Kernel && !port.fill_checksum && !port.mac.is_group();
        Self {
            mac: port.mac.0.iter().fold(0, |mac, &byte| mac << 8 | u64::from(byte)),
            guards_sids: port.role.is_outside(),
            vrf: port.vrf,
            longest: if is_plain { port.mtu + eth::LEN } else { 0 },
            checks_sources: !port.allowed_sources.is_empty(),
            sources: PrefixSet::both(&port.allowed_sources),
        }
    }
}

impl PlainHop {
    fn of(adjacency: &Adjacency) -> Self {
        match *adjacency {
            Adjacency { state: AdjacencyState::Ready, ethernet, ethernet_len: 12, mtu, slot, device, .. } => {
                let [addresses @ .., _, _, _, _] = ethernet;
                // The payload length of an outer header ends at 65,535 bytes too.
                let mtu = mtu.min(usize::from(u16::MAX)) as u32;
                Self { ethernet: addresses, by_flow: false, device, mtu, slot }
            }
            _ => Self::default(),
        }
    }

    /// What stands for all members of a group.
    fn only(members: &[u32], hops: &[Self]) -> Self {
        match members {
            [only] => hops.get(*only as usize).copied().unwrap_or_default(),
            _ => Self { by_flow: true, ..Self::default() },
        }
    }
}

impl PlainPath {
    const WALK: Self =
        Self { addresses: [0; 32], first: 0, slot: 0, group: 0, srh: 0, srh_len: 0, mtu: 0, way: Way::Walk };

    fn of(tables: &Tables, path: &PathEntry, srhs: &mut Srhs) -> Self {
        let (Some(group), Some((header, rest))) = (path.group, path.header.split_first_chunk::<{ ipv6::LEN }>()) else {
            return Self::WALK;
        };
        let [_, _, _, _, _, _, _, hop_limit, addresses @ ..] = *header;
        let Some(addresses) = with_source(tables, path, group, addresses) else { return Self::WALK };
        let srh = rest.get(..path.header_len.saturating_sub(ipv6::LEN)).unwrap_or_default();
        let (srh_len, mtu) = (srh.len() as u16, path.mtu.min(usize::from(u16::MAX)) as u16);
        let way = if srh.is_empty() { Way::WithoutSrh } else { Way::WithSrh };
        let (first, srh) = (u64::from(hop_limit), srhs.at(srh));
        Self { addresses, first, slot: path.slot, group, srh, srh_len, mtu, way }
    }

    /// What stands for all paths of a prefix.
    fn first(steer: &[u32], paths: &[Self], groups: &[PlainHop]) -> Self {
        let by_flow = Self { way: Way::ByFlow, ..Self::WALK };
        let [only] = steer else { return by_flow };
        let path = paths.get(*only as usize).copied().unwrap_or(Self::WALK);
        let hop = groups.get(path.group as usize).copied().unwrap_or_default();
        if hop.by_flow {
            return Self { way: if path.way == Way::Walk { Way::Walk } else { Way::ByFlow }, ..path };
        }
        Self { mtu: u32::from(path.mtu).min(hop.mtu) as u16, ..path }
    }
}

/// SRHs one behind the other. Paths with the same segments share theirs.
#[derive(Clone, Debug, Default)]
struct Srhs {
    bytes: Vec<u8>,
    known: HashMap<Vec<u8>, u32>,
}

impl Srhs {
    /// Where this one begins.
    fn at(&mut self, srh: &[u8]) -> u32 {
        let next = self.bytes.len() as u32;
        let at = *self.known.entry(srh.to_vec()).or_insert(next);
        if at == next {
            self.bytes.extend_from_slice(srh);
        }
        at
    }
}

/// Source and destination, with the source that the ports of a group put in place of the path's own. `None`: they do
/// not agree.
fn with_source(tables: &Tables, path: &PathEntry, group: u32, mut addresses: [u8; 32]) -> Option<[u8; 32]> {
    if path.own_source {
        return Some(addresses);
    }
    let members = tables.groups.get(group as usize)?;
    let mut sources = members.iter().map(|&member| tables.adjacencies.get(member as usize)?.source);
    let first = sources.next()?;
    if let Some(source) = first {
        *addresses.first_chunk_mut()? = source.octets();
    }
    sources.all(|other| other == first).then_some(addresses)
}

impl PlainSid {
    fn of(tables: &Tables, sid: &Sid) -> Self {
        let slot = sid.slot;
        match sid.action {
            Action::End { csid: Some(Csid { lblen: 32, nflen: by @ (16 | 32) }), .. } => {
                Self::Shift(Shift { slot, by: by.into(), group: None })
            }
            Action::EndX { csid: Some(Csid { lblen: 32, nflen: by @ (16 | 32) }), group } => {
                Self::Shift(Shift { slot, by: by.into(), group: Some(group) })
            }
            Action::EndDt { family, vrf, dscp } => {
                let behind = u128::MAX.checked_shr(sid.len.into()).unwrap_or(0);
                Self::Decapsulate(Decapsulate {
                    slot,
                    argument: if tables.policy.dt_argument_accept { [0; 2] } else { halves(behind) },
                    v6: family != DtFamily::V4,
                    v4: family != DtFamily::V6,
                    vrf,
                    uniform: dscp == DscpMode::Uniform,
                })
            }
            _ => Self::Walk,
        }
    }
}

impl OuterClass {
    /// The bits kept, and those set.
    fn bits(self) -> (u8, u8) {
        ((self.kept >> CLASS) as u8, (self.set >> CLASS) as u8)
    }

    fn of(tables: &Tables) -> Self {
        let ecn: u8 = if tables.tunnel.ecn_compat { 0 } else { 3 };
        let (kept, set) = match tables.tunnel.dscp {
            DscpMode::Uniform => (!3 | ecn, 0),
            DscpMode::Pipe(dscp) => (ecn, dscp << 2),
        };
        Self { kept: u64::from(kept) << CLASS, set: 6 << 60 | u64::from(set) << CLASS }
    }
}

/// The upper and the lower half.
#[inline]
pub(crate) const fn halves(bits: u128) -> [u64; 2] {
    [(bits >> 64) as u64, bits as u64]
}

/// What is done to a packet.
#[derive(Clone, Copy)]
enum Kind<'t> {
    Shift(&'t Shift),
    Decapsulate(&'t Decapsulate),
    EncapsulateV6,
    EncapsulateV4,
    RouteV6,
    RouteV4,
}

impl<'t> Kind<'t> {
    #[inline]
    fn of(tables: &'t Tables, found: Found) -> Option<Self> {
        match (Target::decode(found.value()?), found.is_v6()) {
            (Target::Sid(sid), _) => match tables.straight.sids.get(sid as usize)? {
                PlainSid::Shift(shift) => Some(Self::Shift(shift)),
                PlainSid::Decapsulate(decapsulate) => Some(Self::Decapsulate(decapsulate)),
                PlainSid::Walk => None,
            },
            (Target::Steer(_), true) => Some(Self::EncapsulateV6),
            (Target::Steer(_), false) => Some(Self::EncapsulateV4),
            (Target::Route(_) | Target::Neighbor(_), true) => Some(Self::RouteV6),
            (Target::Route(_) | Target::Neighbor(_), false) => Some(Self::RouteV4),
            _ => None,
        }
    }
}

/// Takes the straight way, if the packet is plain from end to end. `None`: it is not, and nothing was written.
/// Otherwise it is ready to leave through the device. `found` is what [`LookUps`] found for this very packet.
#[inline(never)]
pub fn forward(tables: &Tables, tally: &Tally, packet: &mut Packet<'_>, found: Found) -> Option<u16> {
    let ready = match Kind::of(tables, found)? {
        Kind::Shift(_) | Kind::Decapsulate(_) if !tables.straight.accepts_source(packet) => return None,
        Kind::Shift(shift) => {
            let ready = shift.forward(tables, packet)?;
            tally.sid(shift.slot, 1, ready.len);
            ready
        }
        Kind::Decapsulate(sid) => {
            let ready = sid.forward_alone(tables, packet)?;
            tally.sid(sid.slot, 1, ready.len + ipv6::LEN);
            ready
        }
        Kind::EncapsulateV6 => Encapsulation::new(tables, tally).v6(packet, found.index())?,
        Kind::EncapsulateV4 => Encapsulation::new(tables, tally).v4(packet, found.index())?,
        Kind::RouteV6 => write::route_v6(tables, packet, found.index())?,
        Kind::RouteV4 => write::route_v4(tables, packet, found.index())?,
    };
    tally.adjacency(ready.hop.slot, 1, ready.len);
    Some(ready.hop.device)
}

#[cfg(test)]
mod tests;
