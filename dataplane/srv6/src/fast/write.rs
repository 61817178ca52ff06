//! Writing plain packets. Each function checks everything before its first write.
//!
//! Outer headers go into the headroom in front of a packet, which stays where it is.

use srv6d_fib::{HopRow, PathKind, PathRow, SidKind};
use srv6d_wire::{Packet, eth, ipv4, ipv6, protocol};

use super::headers::{Behind, V4, V6, joined, spend_hop};
use super::look_ups::LookUpResult;
use super::{BY_FLOW, Decapsulate, FastTables, HEAD, SRH_UNIT, Shift, UNIFORM};
use crate::flow::{self, FlowHash};
use crate::tables::{MAIN, Tables, Target};
use crate::tally::{Count, Tally};

/// A packet that is ready to leave. Its next hop and its SID are counted by the caller, because consecutive packets
/// often share both.
#[derive(Clone, Copy)]
pub(super) struct Ready<'t> {
    pub(super) hop: &'t HopRow,
    /// Length of the IP packet as it leaves, in bytes.
    pub(super) len: usize,
}

/// Length of Ethernet, outer IPv6 and inner IPv6 header.
pub(super) const NESTED_V6: usize = HEAD + ipv6::LEN;
/// Length of Ethernet, outer IPv6 and inner IPv4 header. Of an inner packet of either family, no more is written.
pub(super) const NESTED_V4: usize = HEAD + ipv4::LEN;
/// Mask of the bits behind the block, in the upper half of a SID.
const BEHIND_BLOCK: u64 = 0xffff_ffff;

#[inline(always)]
pub(super) fn route_v6<'t>(tables: &'t Tables, packet: &mut Packet<'_>, group: u32) -> Option<Ready<'t>> {
    let header = V6::read(packet.head::<HEAD>()?, eth::LEN);
    let hop =
        tables.fast.hop(tables, group, header.len(), || transit_v6(packet.bytes(), eth::LEN, header.destination()))?;
    let (ethernet, ip) = split_headers::<{ ipv6::LEN }>(packet)?;
    spend_hop(&mut ip[ipv6::HOP_LIMIT]);
    Some(address_to(hop, ethernet, header.len()))
}

#[inline(always)]
pub(super) fn route_v4<'t>(tables: &'t Tables, packet: &mut Packet<'_>, group: u32) -> Option<Ready<'t>> {
    let header = V4::read(packet.head::<HEAD>()?, eth::LEN);
    let hop = tables.fast.hop(tables, group, header.len(), || flow_v4(tables, packet.bytes(), eth::LEN))?;
    let (ethernet, ip) = split_headers(packet)?;
    ipv4::spend_ttl(ip);
    Some(address_to(hop, ethernet, header.len()))
}

/// The tables that all encapsulated packets share. They are gathered here so that the loop has them at hand.
#[derive(Clone, Copy)]
pub(super) struct Encapsulation<'t> {
    tables: &'t Tables,
    counts: &'t [Count],
    path_by_steer: &'t [PathRow],
    hop_by_group: &'t [HopRow],
    with_qp: bool,
}

/// A packet to be encapsulated.
#[derive(Clone, Copy)]
struct Inner {
    protocol: u8,
    /// A word that has the traffic class at its place in the outer header. Its other bits have no meaning.
    class: u64,
    len: usize,
    flow: FlowHash,
}

impl<'t> Encapsulation<'t> {
    #[inline(always)]
    pub(super) fn new(tables: &'t Tables, tally: &'t Tally) -> Self {
        let FastTables { path_by_steer, hop_by_group, .. } = &tables.fast;
        Self { tables, counts: &tally.paths, path_by_steer, hop_by_group, with_qp: tables.fast.hashes_qp() }
    }

    #[inline(always)]
    pub(super) fn v6(&self, packet: &mut Packet<'_>, steer: u32) -> Option<Ready<'t>> {
        let head = packet.head::<{ eth::MIN_FRAME }>()?;
        let (header, (_, ip)) = (V6::read(head, eth::LEN), head.split_at(eth::LEN));
        let next_header = header.next_header();
        let upper = match header.behind() {
            Behind::Ports if self.with_qp => ports_and_queue_pair(next_header, packet.bytes(), HEAD),
            Behind::Ports => flow::ports(next_header, ip, ipv6::LEN, false),
            // The slow path searches these packets for an outer header of its own (RFC 2473 section 4.1.3).
            Behind::Tunnel => return None,
            _ => next_header.into(),
        };
        let flow = flow::inner_v6_with(ipv6::Header::known(ip.first_chunk()?), upper);
        let inner = Inner { protocol: protocol::IPV6, class: header.class_in_place(), len: header.len(), flow };
        self.put(packet, steer, inner, |ip| spend_hop(&mut ip[ipv6::HOP_LIMIT]))
    }

    #[inline(always)]
    pub(super) fn v4(&self, packet: &mut Packet<'_>, steer: u32) -> Option<Ready<'t>> {
        let head = packet.head::<{ eth::MIN_FRAME }>()?;
        let (header, (_, ip)) = (V4::read(head, eth::LEN), head.split_at(eth::LEN));
        let flow = if self.with_qp {
            flow_v4(self.tables, packet.bytes(), eth::LEN)
        } else {
            // Plain headers have no options.
            flow::v4_behind(ip, ipv4::Header::known(ip.first_chunk()?), ipv4::LEN, false)
        };
        let inner = Inner { protocol: protocol::IPV4, class: header.class_in_place(), len: header.len(), flow };
        self.put(packet, steer, inner, ipv4::spend_ttl)
    }

    /// Chooses path and next hop, and puts the headers in front of the packet. `spend_hop` decrements the hop limit or TTL in
    /// the first bytes of the inner header, which are as many for both families.
    #[inline(always)]
    fn put(
        &self,
        packet: &mut Packet<'_>,
        steer: u32,
        inner: Inner,
        spend_hop: impl FnOnce(&mut [u8; ipv4::LEN]),
    ) -> Option<Ready<'t>> {
        let path = self.path_by_steer.get(steer as usize)?;
        if path.kind == PathKind::WithoutSrh {
            return self.put_header(packet, path, self.hop_by_group.get(path.group as usize)?, inner, spend_hop);
        }
        let (path, hop) = if path.kind == PathKind::WithSrh {
            (path, self.hop_by_group.get(path.group as usize)?)
        } else {
            self.tables.fast.by_flow(self.tables, steer, inner)?
        };
        match self.tables.fast.srh(path)? {
            [] => self.put_header(packet, path, hop, inner, spend_hop),
            srh => self.put_header_and_srh(packet, (path, srh), hop, inner, spend_hop),
        }
    }

    /// Writes the outer header of H.Encaps.Red, or of H.Encaps of one segment without an SRH (RFC 8986 section 5).
    /// Most packets need no more.
    #[inline(always)]
    fn put_header(
        &self,
        packet: &mut Packet<'_>,
        path: &PathRow,
        hop: &'t HopRow,
        inner: Inner,
        spend_hop: impl FnOnce(&mut [u8; ipv4::LEN]),
    ) -> Option<Ready<'t>> {
        let len = inner.len + ipv6::LEN;
        if len > usize::from(path.mtu) {
            return None;
        }
        let head = packet.replace_head::<{ eth::LEN }, HEAD, NESTED_V4>()?;
        let (ethernet, bytes) = head.split_first_chunk_mut()?;
        let (header, behind) = bytes.split_first_chunk_mut()?;
        spend_hop(behind.first_chunk_mut()?);
        write_outer(path, header, inner, inner.protocol, len - ipv6::LEN);
        Some(self.finish(path, hop, ethernet, len))
    }

    /// Writes the outer header and the SRH behind it.
    #[inline(always)]
    fn put_header_and_srh(
        &self,
        packet: &mut Packet<'_>,
        (path, srh): (&PathRow, &[u8]),
        hop: &'t HopRow,
        inner: Inner,
        spend_hop: impl FnOnce(&mut [u8; ipv4::LEN]),
    ) -> Option<Ready<'t>> {
        let len = inner.len + srh.len() + ipv6::LEN;
        if len > usize::from(path.mtu) {
            return None;
        }
        let bytes = packet.replace_front(eth::LEN, HEAD + srh.len()).ok()?;
        let (ethernet, bytes) = bytes.split_first_chunk_mut()?;
        let (header, bytes) = bytes.split_first_chunk_mut()?;
        let (slot, behind) = bytes.split_at_mut_checked(srh.len())?;
        put_srh(slot, srh);
        *slot.first_mut()? = inner.protocol;
        spend_hop(behind.first_chunk_mut()?);
        write_outer(path, header, inner, protocol::ROUTING, len - ipv6::LEN);
        Some(self.finish(path, hop, ethernet, len))
    }

    #[inline(always)]
    fn finish(&self, path: &PathRow, hop: &'t HopRow, ethernet: &mut [u8; eth::LEN], len: usize) -> Ready<'t> {
        if let Some(count) = self.counts.get(path.slot as usize) {
            count.add(1, len);
        }
        put_type(ethernet, eth::IPV6);
        address_to(hop, ethernet, len)
    }
}

impl FastTables {
    /// Returns the next hop of a flow, if an IP packet of this length fits its MTU.
    #[inline(always)]
    fn hop<'t>(
        &'t self,
        tables: &Tables,
        group: u32,
        len: usize,
        flow: impl FnOnce() -> FlowHash,
    ) -> Option<&'t HopRow> {
        let only = self.hop_by_group.get(group as usize)?;
        if len <= only.mtu as usize {
            return Some(only);
        }
        if only.flags & BY_FLOW != 0 { self.member(tables, group, len, flow()) } else { None }
    }

    /// Chooses among several next hops. Neither this function nor the next one is inlined, because they would take
    /// registers of a loop that mostly does not call them.
    #[inline(never)]
    fn member(&self, tables: &Tables, group: u32, len: usize, flow: FlowHash) -> Option<&HopRow> {
        let member = tables.member_index(group, || flow)?;
        self.hops.get(member as usize).filter(|hop| len <= hop.mtu as usize)
    }

    /// Chooses among several paths of a prefix, and among several next hops. Returns `None` if the slow path has to
    /// do it.
    #[inline(never)]
    fn by_flow(&self, tables: &Tables, steer: u32, inner: Inner) -> Option<(&PathRow, &HopRow)> {
        self.path_by_steer.get(steer as usize).filter(|path| path.kind == PathKind::ByFlow)?;
        let path = self
            .paths
            .get(tables.path_index(steer, inner.flow)? as usize)
            .filter(|path| path.kind != PathKind::Slow)?;
        let len = inner.len + usize::from(path.srh_units) * SRH_UNIT + ipv6::LEN;
        Some((path, self.hop(tables, path.group, len, || inner.flow)?))
    }

    /// Returns the SRH of a path, empty if it has none.
    #[inline(always)]
    pub(crate) fn srh(&self, path: &PathRow) -> Option<&[u8]> {
        if path.srh_units == 0 {
            return Some(&[]);
        }
        self.srhs.bytes.get(path.srh as usize..)?.get(..usize::from(path.srh_units) * SRH_UNIT)
    }
}

/// Writes | 6 | class 8 | flow label 20 | payload length 16 | next header 8 | hop limit 8 |, and the addresses.
#[inline(always)]
fn write_outer(path: &PathRow, header: &mut [u8; ipv6::LEN], inner: Inner, next_header: u8, payload: usize) {
    let first = inner.class & path.class_kept
        | u64::from(inner.flow.flow_label()) << 32
        | u64::from(payload as u16) << 16
        | u64::from(next_header) << 8
        | path.first;
    let (front, addresses) = header.split_at_mut(8);
    front.copy_from_slice(&first.to_be_bytes());
    addresses.copy_from_slice(&path.addresses);
}

/// Writes the MAC addresses. The Ethernet type is in place already.
#[inline(always)]
fn address_to<'t>(hop: &'t HopRow, header: &mut [u8; eth::LEN], len: usize) -> Ready<'t> {
    let [addresses @ .., _, _] = header;
    *addresses = hop.ethernet;
    Ready { hop, len }
}

/// Copies an SRH to a slot of the same length. The known lengths, of one and of two segments, take a few moves; any
/// other takes a call.
#[inline(always)]
fn put_srh(slot: &mut [u8], srh: &[u8]) {
    if let (Ok(slot), Ok(srh)) = (<&mut [u8; 24]>::try_from(&mut *slot), <&[u8; 24]>::try_from(srh)) {
        *slot = *srh;
    } else if let (Ok(slot), Ok(srh)) = (<&mut [u8; 40]>::try_from(&mut *slot), <&[u8; 40]>::try_from(srh)) {
        *slot = *srh;
    } else {
        put_long_srh(slot, srh);
    }
}

#[inline(never)]
fn put_long_srh(slot: &mut [u8], srh: &[u8]) {
    slot.copy_from_slice(srh);
}

#[inline(always)]
fn put_type(header: &mut [u8; eth::LEN], ether_type: u16) {
    let [.., high, low] = header;
    [*high, *low] = ether_type.to_be_bytes();
}

impl<'t> Shift<'t> {
    /// Shifts the carrier (RFC 9800 section 4.1.1, N01 to N08) and finds the next hop: by a look-up of the new
    /// destination, or the next hop of the uA.
    #[inline(always)]
    pub(super) fn write(self, tables: &'t Tables, packet: &mut Packet<'_>) -> Option<Ready<'t>> {
        let sid = self.0;
        let header = V6::read(packet.head::<HEAD>()?, eth::LEN);
        let [high, low] = header.destination;
        // | block 32 | active uSIDs | argument |  ->  | block 32 | argument | zero |
        let [block, usids] = [high & !BEHIND_BLOCK, high << sid.by & BEHIND_BLOCK];
        if usids == 0 && low == 0 {
            return None;
        }
        let destination = joined([block | usids | low >> (64 - sid.by), low << sid.by]);
        let group = if sid.kind == SidKind::ShiftVia {
            sid.group
        } else {
            Target::group(tables.look_up_v6(MAIN, destination)?)?
        };
        let hop = tables.fast.hop(tables, group, header.len(), || transit_v6(packet.bytes(), eth::LEN, destination))?;
        let (ethernet, ip) = split_headers::<{ ipv6::LEN }>(packet)?;
        spend_hop(&mut ip[ipv6::HOP_LIMIT]);
        ipv6::set_destination(ip, destination);
        Some(address_to(hop, ethernet, header.len()))
    }
}

impl<'t> Decapsulate<'t> {
    /// Decapsulates a packet with a look-up of its own.
    #[inline(always)]
    pub(super) fn write_alone(self, tables: &'t Tables, packet: &mut Packet<'_>) -> Option<Ready<'t>> {
        self.write(tables, packet, self.look_up_one(tables, packet)?)
    }

    /// Decapsulates a packet (RFC 8986 sections 4.6 to 4.8). The inner packet is plain if its look-up has a result.
    #[inline(always)]
    pub(super) fn write(self, tables: &'t Tables, packet: &mut Packet<'_>, inside: LookUpResult) -> Option<Ready<'t>> {
        let group = Target::group(inside.value()?)?;
        let outer = V6::read(packet.head::<HEAD>()?, eth::LEN);
        if inside.is_v6() {
            self.write_v6(tables, packet, outer, group)
        } else {
            self.write_v4(tables, packet, outer, group)
        }
    }

    #[inline(always)]
    fn write_v6(self, tables: &'t Tables, packet: &mut Packet<'_>, outer: V6, group: u32) -> Option<Ready<'t>> {
        let inner = V6::read(packet.head::<NESTED_V6>()?, HEAD);
        let len = inner.len();
        let flow = || transit_v6(packet.bytes(), HEAD, inner.destination());
        let hop = tables.fast.hop(tables, group, len, flow)?;
        packet.pull_front(ipv6::LEN);
        let (ethernet, ip) = split_headers::<{ ipv6::LEN }>(packet)?;
        spend_hop(&mut ip[ipv6::HOP_LIMIT]);
        if self.0.flags & UNIFORM != 0 {
            ipv6::set_traffic_class(ip, uniform(outer, inner.class()));
        }
        put_type(ethernet, eth::IPV6);
        Some(address_to(hop, ethernet, len))
    }

    #[inline(always)]
    fn write_v4(self, tables: &'t Tables, packet: &mut Packet<'_>, outer: V6, group: u32) -> Option<Ready<'t>> {
        let inner = V4::read(packet.head::<NESTED_V4>()?, HEAD);
        let len = inner.len();
        let hop = tables.fast.hop(tables, group, len, || flow_v4(tables, packet.bytes(), HEAD))?;
        packet.pull_front(ipv6::LEN);
        let (ethernet, ip) = split_headers(packet)?;
        if self.0.flags & UNIFORM != 0 {
            ipv4::set_tos_ttl(ip, uniform(outer, inner.class()), ip[ipv4::TTL].wrapping_sub(1));
        } else {
            ipv4::spend_ttl(ip);
        }
        put_type(ethernet, eth::IPV4);
        Some(address_to(hop, ethernet, len))
    }
}

/// Returns the outer DSCP with the inner ECN.
#[inline(always)]
fn uniform(outer: V6, inner: u8) -> u8 {
    outer.class() & !3 | inner & 3
}

/// Returns the Ethernet and the IP header, to be written.
#[inline(always)]
fn split_headers<'p, const N: usize>(packet: &'p mut Packet<'_>) -> Option<(&'p mut [u8; eth::LEN], &'p mut [u8; N])> {
    let (ethernet, behind) = packet.bytes_mut().split_first_chunk_mut()?;
    Some((ethernet, behind.first_chunk_mut()?))
}

/// Returns the flow hash of the packet at an offset. Neither this function nor the next ones are inlined, because
/// they would take registers of a loop that mostly does not call them.
#[inline(never)]
fn transit_v6(frame: &[u8], at: usize, destination: u128) -> FlowHash {
    let bytes = frame.get(at..).unwrap_or_default();
    ipv6::Header::parse(bytes).map(|header| flow::transit(bytes, header, destination)).unwrap_or_default()
}

#[inline(never)]
fn ports_and_queue_pair(protocol: u8, frame: &[u8], at: usize) -> u64 {
    flow::ports(protocol, frame, at, true)
}

#[inline(never)]
fn flow_v4(tables: &Tables, frame: &[u8], at: usize) -> FlowHash {
    let bytes = frame.get(at..).unwrap_or_default();
    ipv4::Header::parse(bytes).map(|header| flow::v4(bytes, header, tables.fast.hashes_qp())).unwrap_or_default()
}
