//! The straight way: what nearly every packet needs, done with a handful of compares on fixed offsets.
//!
//! ```text
//! frame ─► plain port, plain headers? ─► look up ─┬─ SID: shift, look up again ────────┐
//!                                                 ├─ SID: decapsulate, look up again ──┼─► one ready hop, fits? ─► write
//!                                                 ├─ steer: one path, one segment ─────┤
//!                                                 └─ route ────────────────────────────┘
//!          any "no" on the way ─► None: untouched, the walk of `forward` decides
//! ```
//!
//! It answers only where the walk would answer [`Tx`](crate::Verdict::Tx), with the same bytes and the same counters:
//! every test here is the walk's own test, or a stricter one that is cheaper. What is stricter: the frame is untagged
//! and exactly as long as its headers say (nothing to cut off, nothing to pad), addresses of special scope and headers
//! with more to look at (`ICMPv6`, options) are left to the walk. A test in this file runs both side by side.

#![allow(clippy::cast_possible_truncation)] // taking fields out of words

use srv6d_wire::{Packet, checksum, eth, ipv4, ipv6, protocol};

use crate::flow::{self, FlowHash};
use crate::model::{Csid, DscpMode, DtFamily, Role};
use crate::tables::{Action, Adjacency, AdjacencyState, MAIN, PortEntry, Sid, Tables, Target, VrfIndex};
use crate::tally::Tally;

/// Ethernet and IPv6. Shorter than [`eth::MIN_FRAME`], so an IPv4 frame has as many bytes.
const HEAD: usize = eth::LEN + ipv6::LEN;
/// Ethernet, outer IPv6, inner IPv6.
const NESTED_V6: usize = HEAD + ipv6::LEN;
/// Ethernet, outer IPv6, inner IPv4.
const NESTED_V4: usize = HEAD + ipv4::LEN;
/// What is not block, in the upper half of a SID.
const BEHIND_BLOCK: u64 = 0xffff_ffff;

/// Extract of the tables for the straight way. Its vectors run parallel to those of [`Tables`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Straight {
    ports: Vec<PlainPort>,
    sids: Vec<PlainSid>,
    groups: Vec<PlainHop>,
    steers: Vec<PlainPath>,
    class: OuterClass,
}

/// A port that asks nothing of a packet but its MAC address and its length.
#[derive(Clone, Copy, Debug)]
struct PlainPort {
    mac: [u8; 6],
    /// Destinations in a block are not for everyone (edge and host ports).
    guards_blocks: bool,
    vrf: VrfIndex,
    /// Longest frame. 0: not plain.
    longest: usize,
}

/// A next hop that packets can be sent to, untagged. A third of a cache line.
#[derive(Clone, Copy, Debug, Default)]
struct PlainHop {
    /// Destination and source.
    ethernet: [u8; 12],
    /// 0: not plain (several members, not ready, tagged), no packet is short enough.
    mtu: u32,
    slot: u32,
    device: u16,
}

/// One path of one segment, with its next hop: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct PlainPath {
    /// Source and destination of the outer header.
    addresses: [u8; 32],
    hop: PlainHop,
    slot: u32,
    hop_limit: u8,
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
    /// Bits of the SID that must be zero.
    argument: u128,
    v6: bool,
    v4: bool,
    vrf: VrfIndex,
    /// The DSCP is taken from the outer header.
    uniform: bool,
}

/// The outer traffic class: bits kept of the inner one, and bits set.
#[derive(Clone, Copy, Debug, Default)]
struct OuterClass {
    kept: u8,
    set: u8,
}

impl Straight {
    pub(crate) fn build(tables: &Tables) -> Self {
        let groups: Vec<PlainHop> = tables.groups.iter().map(|members| PlainHop::of(tables, members)).collect();
        let domain_is_open = tables.policy.domain_sources.is_empty();
        let sid = |sid| if domain_is_open { PlainSid::of(tables, sid) } else { PlainSid::Walk };
        Self {
            ports: tables.ports.iter().map(PlainPort::of).collect(),
            sids: tables.sids.iter().map(sid).collect(),
            steers: tables.steers.iter().map(|paths| PlainPath::of(tables, paths, &groups)).collect(),
            groups,
            class: OuterClass::of(tables),
        }
    }
}

impl PlainPort {
    fn of(port: &PortEntry) -> Self {
        let is_plain = port.vlan.is_none()
            && port.role != Role::Kernel
            && port.allowed_sources.is_empty()
            && !port.fill_checksum
            && !port.mac.is_group();
        Self {
            mac: port.mac.0,
            guards_blocks: port.role != Role::Fabric,
            vrf: port.vrf,
            longest: if is_plain { port.mtu + eth::LEN } else { 0 },
        }
    }
}

impl PlainHop {
    fn of(tables: &Tables, members: &[u32]) -> Self {
        let adjacency = match members {
            [only] => tables.adjacencies.get(*only as usize),
            _ => None,
        };
        match adjacency {
            Some(Adjacency { state: AdjacencyState::Ready, ethernet, ethernet_len: 12, mtu, slot, device, .. }) => {
                let [addresses @ .., _, _, _, _] = *ethernet;
                // The payload length of an outer header ends at 65,535 bytes too.
                let mtu = (*mtu).min(usize::from(u16::MAX)) as u32;
                Self { ethernet: addresses, mtu, slot: *slot, device: *device }
            }
            _ => Self::default(),
        }
    }
}

impl PlainPath {
    fn of(tables: &Tables, paths: &[u32], groups: &[PlainHop]) -> Self {
        let none = Self { addresses: [0; 32], hop: PlainHop::default(), slot: 0, hop_limit: 0 };
        let [only] = paths else { return none };
        let Some(path) = tables.paths.get(*only as usize).filter(|path| path.header_len == ipv6::LEN) else {
            return none;
        };
        let Some(group) = path.group else { return none };
        let (Some(hop), Some(adjacency)) = (groups.get(group as usize), tables.member(group, FlowHash::default)) else {
            return none;
        };
        let Some(mut addresses) = path.header.get(8..).and_then(|header| header.first_chunk::<32>()).copied() else {
            return none;
        };
        if let (false, Some(source)) = (path.own_source, adjacency.source)
            && let Some(slot) = addresses.first_chunk_mut()
        {
            *slot = source.octets();
        }
        let hop_limit = path.header.get(ipv6::HOP_LIMIT).copied().unwrap_or(0);
        let mtu = path.mtu.min(hop.mtu as usize) as u32;
        Self { addresses, hop: PlainHop { mtu, ..*hop }, slot: path.slot, hop_limit }
    }
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
                    argument: if tables.policy.dt_argument_accept { 0 } else { behind },
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
    fn of(tables: &Tables) -> Self {
        let ecn = if tables.tunnel.ecn_compat { 0 } else { 3 };
        match tables.tunnel.dscp {
            DscpMode::Uniform => Self { kept: !3 | ecn, set: 0 },
            DscpMode::Pipe(dscp) => Self { kept: ecn, set: dscp << 2 },
        }
    }
}

/// Takes the straight way, if the packet is plain from end to end. `None`: it is not, and nothing was written.
/// Otherwise it is ready to leave through the device.
#[inline]
pub(crate) fn forward(tables: &Tables, tally: &Tally, device: u16, packet: &mut Packet<'_>) -> Option<u16> {
    let port = tables.straight.ports.get(usize::from(device))?;
    let len = packet.total_len();
    let head: &[u8; HEAD] = packet.bytes().first_chunk()?;
    let [d0, d1, d2, d3, d4, d5, _, _, _, _, _, _, t0, t1, ..] = *head;
    if [d0, d1, d2, d3, d4, d5] != port.mac || len < eth::MIN_FRAME || len > port.longest {
        return None;
    }
    match u16::from_be_bytes([t0, t1]) {
        eth::IPV6 => {
            let header = V6::read(head, eth::LEN).filter(|header| header.len + eth::LEN == len)?;
            if port.guards_blocks && tables.in_block(header.destination) {
                return None;
            }
            v6(tables, tally, port.vrf, packet, header)
        }
        eth::IPV4 => {
            let header = V4::read(head, eth::LEN).filter(|header| header.len + eth::LEN == len)?;
            v4(tables, tally, port.vrf, packet, header)
        }
        _ => None,
    }
}

fn v6(tables: &Tables, tally: &Tally, vrf: VrfIndex, packet: &mut Packet<'_>, header: V6) -> Option<u16> {
    match tables.lookup(vrf, true, header.destination)? {
        Target::Sid(sid) => match tables.straight.sids.get(sid as usize)? {
            PlainSid::Shift(shift) => shift.forward(tables, tally, packet, header),
            PlainSid::Decapsulate(decapsulate) => decapsulate.forward(tables, tally, packet, header),
            PlainSid::Walk => None,
        },
        Target::Steer(steer) => {
            let path = tables.straight.steers.get(steer as usize)?;
            // The walk looks for its own outer header in these (RFC 2473 section 4.1.3).
            if matches!(header.next_header, protocol::IPV6 | protocol::IPV4 | protocol::ROUTING) {
                return None;
            }
            let bytes = packet.bytes().get(eth::LEN..)?;
            let flow = flow::inner_v6(bytes, ipv6::Header::parse(bytes)?, tables.tunnel.hash_qp);
            let inner = Inner { protocol: protocol::IPV6, class: header.class, len: header.len, flow };
            path.encapsulate(tables.straight.class, tally, packet, inner, spend_hop_v6)
        }
        Target::Route(group) | Target::Neighbor(group) => {
            let hop = tables.straight.groups.get(group as usize)?.fitting(header.len)?;
            spend_hop_v6(packet.bytes_mut().get_mut(eth::LEN..)?);
            hop.send(tally, packet, eth::IPV6, header.len)
        }
        _ => None,
    }
}

fn v4(tables: &Tables, tally: &Tally, vrf: VrfIndex, packet: &mut Packet<'_>, header: V4) -> Option<u16> {
    match tables.lookup(vrf, false, header.destination)? {
        Target::Steer(steer) => {
            let path = tables.straight.steers.get(steer as usize)?;
            let bytes = packet.bytes().get(eth::LEN..)?;
            let flow = flow::v4(bytes, ipv4::Header::parse(bytes)?, tables.tunnel.hash_qp);
            let inner = Inner { protocol: protocol::IPV4, class: header.class, len: header.len, flow };
            path.encapsulate(tables.straight.class, tally, packet, inner, spend_hop_v4)
        }
        Target::Route(group) | Target::Neighbor(group) => {
            let hop = tables.straight.groups.get(group as usize)?.fitting(header.len)?;
            spend_hop_v4(packet.bytes_mut().get_mut(eth::LEN..)?);
            hop.send(tally, packet, eth::IPV4, header.len)
        }
        _ => None,
    }
}

#[inline]
fn spend_hop_v6(packet: &mut [u8]) {
    if let Some(hop_limit) = packet.get_mut(ipv6::HOP_LIMIT) {
        *hop_limit = hop_limit.wrapping_sub(1);
    }
}

#[inline]
fn spend_hop_v4(packet: &mut [u8]) {
    if let Some(header) = packet.first_chunk_mut::<{ ipv4::LEN }>() {
        ipv4::set_tos_ttl(header, header[1], header[ipv4::TTL].wrapping_sub(1));
    }
}

/// What an IPv6 header says, where it is plain.
#[derive(Clone, Copy)]
struct V6 {
    destination: u128,
    len: usize,
    next_header: u8,
    class: u8,
}

impl V6 {
    /// The header at `at`; the hop limit allows one more hop.
    #[inline]
    fn read<const N: usize>(head: &[u8; N], at: usize) -> Option<Self> {
        /// Next headers with more to look at: options (RFC 8200 section 4.2), `ICMPv6` (neighbour discovery).
        const LOOK_INTO: u64 = 1 << protocol::HOP_BY_HOP | 1 << protocol::ICMPV6 | 1 << protocol::DEST_OPTIONS;
        let (first, source) = (word(head, at), word(head, at + 8));
        let (next_header, hop_limit) = ((first >> 8) as u8, first as u8);
        let header = Self {
            destination: u128::from(word(head, at + 24)) << 64 | u128::from(word(head, at + 32)),
            len: ipv6::LEN + usize::from((first >> 16) as u16),
            next_header,
            class: (first >> 52) as u8,
        };
        let is_plain = first >> 60 == 6
            && hop_limit > 1
            && (next_header >= 64 || LOOK_INTO >> next_header & 1 == 0)
            // Not in ::/64 (unspecified, loopback).
            && source != 0
            // Below fe00::, so neither link-local nor multicast.
            && source >> 56 < 0xfe
            && header.destination >> 120 < 0xfe
            && header.destination >> 64 != 0;
        is_plain.then_some(header)
    }
}

/// What an IPv4 header says, where it is plain.
#[derive(Clone, Copy)]
struct V4 {
    /// In the upper 32 bits.
    destination: u128,
    len: usize,
    class: u8,
}

impl V4 {
    /// The header at `at`: without options, the checksum right; the TTL allows one more hop.
    #[inline]
    fn read<const N: usize>(head: &[u8; N], at: usize) -> Option<Self> {
        const NOT_PLAIN: [u32; 2] = [0, 127];
        let (first, second) = (word(head, at), word(head, at + 8));
        let last = word(head, at + 12) as u32;
        let (source, destination) = (second as u32, last);
        let header = Self {
            destination: u128::from(destination) << 96,
            len: usize::from((first >> 32) as u16),
            class: (first >> 48) as u8,
        };
        let halves = |word: u64| (word >> 32) + (word & 0xffff_ffff);
        let sum = halves(first) + halves(second) + u64::from(last);
        let is_plain = first >> 56 == 0x45
            && (second >> 56) > 1
            // Neither 0.0.0.0/8, nor 127.0.0.0/8, nor from 224.0.0.0 on.
            && !NOT_PLAIN.contains(&(source >> 24))
            && !NOT_PLAIN.contains(&(destination >> 24))
            // Neither 169.254.0.0/16 (link-local), nor multicast, nor broadcast.
            && source >> 24 < 224
            && source >> 16 != 0xa9fe
            && destination >> 16 != 0xa9fe
            && destination >> 24 < 224
            && checksum::finish(sum) == 0;
        is_plain.then_some(header)
    }
}

/// Eight bytes at a fixed offset.
#[inline]
fn word<const N: usize>(head: &[u8; N], at: usize) -> u64 {
    head.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

impl Shift {
    /// RFC 9800 section 4.1.1, N01 to N08, and out: by a look-up of the new destination, or to the next hop of a uA.
    #[inline]
    fn forward(&self, tables: &Tables, tally: &Tally, packet: &mut Packet<'_>, header: V6) -> Option<u16> {
        let [high, low] = [(header.destination >> 64) as u64, header.destination as u64];
        // | block 32 | active uSIDs | argument |  ->  | block 32 | argument | zero |
        let [block, usids] = [high & !BEHIND_BLOCK, high << self.by & BEHIND_BLOCK];
        if usids == 0 && low == 0 {
            return None;
        }
        let destination = u128::from(block | usids | low >> (64 - self.by)) << 64 | u128::from(low << self.by);
        let group = match self.group {
            None => match tables.lookup(MAIN, true, destination)? {
                Target::Route(group) | Target::Neighbor(group) => group,
                _ => return None,
            },
            Some(group) => group,
        };
        let hop = tables.straight.groups.get(group as usize)?.fitting(header.len)?;
        let bytes = packet.bytes_mut().get_mut(eth::LEN..)?;
        spend_hop_v6(bytes);
        ipv6::set_destination(bytes.first_chunk_mut()?, destination);
        tally.sid(self.slot, header.len);
        hop.send(tally, packet, eth::IPV6, header.len)
    }
}

impl Decapsulate {
    /// RFC 8986 sections 4.6 to 4.8, where the inner packet is all the outer one carries.
    #[inline]
    fn forward(&self, tables: &Tables, tally: &Tally, packet: &mut Packet<'_>, outer: V6) -> Option<u16> {
        if outer.destination & self.argument != 0 {
            return None;
        }
        let (is_v6, destination, class, len) = match outer.next_header {
            protocol::IPV6 if self.v6 => {
                let inner = V6::read(packet.bytes().first_chunk::<NESTED_V6>()?, HEAD)?;
                (true, inner.destination, inner.class, inner.len)
            }
            protocol::IPV4 if self.v4 => {
                let inner = V4::read(packet.bytes().first_chunk::<NESTED_V4>()?, HEAD)?;
                (false, inner.destination, inner.class, inner.len)
            }
            _ => return None,
        };
        // An outer ECN of Not-ECT, or the inner one: the inner one stays (RFC 6040 section 4.2).
        let [outer_ecn, inner_ecn] = [outer.class & 3, class & 3];
        let ecn_stays = outer_ecn == 0 || outer_ecn == inner_ecn;
        if len + ipv6::LEN != outer.len || len + eth::LEN < eth::MIN_FRAME || !ecn_stays {
            return None;
        }
        let (Target::Route(group) | Target::Neighbor(group)) = tables.lookup(self.vrf, is_v6, destination)? else {
            return None;
        };
        let hop = tables.straight.groups.get(group as usize)?.fitting(len)?;
        let class = if self.uniform { outer.class & !3 | inner_ecn } else { class };
        packet.pull_front(ipv6::LEN);
        let bytes = packet.bytes_mut().get_mut(eth::LEN..)?;
        if is_v6 {
            spend_hop_v6(bytes);
            ipv6::set_traffic_class(bytes.first_chunk_mut()?, class);
        } else {
            let header = bytes.first_chunk_mut()?;
            ipv4::set_tos_ttl(header, class, header[ipv4::TTL].wrapping_sub(1));
        }
        tally.sid(self.slot, outer.len);
        hop.send(tally, packet, if is_v6 { eth::IPV6 } else { eth::IPV4 }, len)
    }
}

/// A packet to be encapsulated.
#[derive(Clone, Copy)]
struct Inner {
    protocol: u8,
    class: u8,
    len: usize,
    flow: FlowHash,
}

impl PlainPath {
    /// H.Encaps.Red with one segment (RFC 8986 section 5.2).
    #[inline]
    fn encapsulate(
        &self,
        class: OuterClass,
        tally: &Tally,
        packet: &mut Packet<'_>,
        inner: Inner,
        spend_hop: impl FnOnce(&mut [u8]),
    ) -> Option<u16> {
        let len = inner.len + ipv6::LEN;
        let hop = self.hop.fitting(len)?;
        if !packet.fits(eth::LEN, HEAD) {
            return None;
        }
        packet.pull_front(eth::LEN);
        spend_hop(packet.bytes_mut());
        packet.push_front(HEAD).ok()?;
        let header: &mut [u8; ipv6::LEN] = packet.bytes_mut().get_mut(eth::LEN..)?.first_chunk_mut()?;
        ipv6::set_first_word(header, inner.class & class.kept | class.set, inner.flow.flow_label());
        ipv6::set_payload_len(header, inner.len as u16);
        header[ipv6::NEXT_HEADER] = inner.protocol;
        header[ipv6::HOP_LIMIT] = self.hop_limit;
        *header.last_chunk_mut()? = self.addresses;
        tally.path(self.slot, len);
        hop.send(tally, packet, eth::IPV6, len)
    }
}

impl PlainHop {
    /// This hop, if an IP packet of so many bytes fits.
    #[inline]
    fn fitting(&self, len: usize) -> Option<&Self> {
        (len <= self.mtu as usize).then_some(self)
    }

    /// Writes the Ethernet header over the first bytes; an IP packet of `len` bytes is behind it.
    #[inline]
    fn send(&self, tally: &Tally, packet: &mut Packet<'_>, ether_type: u16, len: usize) -> Option<u16> {
        let (addresses, behind) = packet.bytes_mut().split_first_chunk_mut::<12>()?;
        *addresses = self.ethernet;
        *behind.first_chunk_mut()? = ether_type.to_be_bytes();
        tally.adjacency(self.slot, len);
        Some(self.device)
    }
}

#[cfg(test)]
mod tests;
