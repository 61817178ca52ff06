//! What is written to a plain packet. Each way checks all there is to check before its first write.
//!
//! Outer headers go into the headroom in front of a packet, which stays where it is.

use srv6d_wire::{Packet, eth, ipv4, ipv6, protocol};

use super::headers::{Behind, V4, V6, joined, spend_hop};
use super::look_ups::Found;
use super::{Decapsulate, HEAD, OuterClass, PlainHop, PlainPath, Shift, Straight, Way};
use crate::flow::{self, FlowHash};
use crate::tables::{MAIN, Tables, Target};
use crate::tally::{Count, Tally};

/// A packet that is ready to leave. Next hop and SID have not counted it yet: packets one behind the other often share
/// both.
#[derive(Clone, Copy)]
pub(super) struct Ready<'t> {
    pub(super) hop: &'t PlainHop,
    /// Of the IP packet, as it leaves.
    pub(super) len: usize,
}

/// Ethernet, outer IPv6, and as much of the packet inside as is written.
const NESTED: usize = HEAD + ipv4::LEN;
/// Ethernet, outer IPv6, inner IPv6.
pub(super) const NESTED_V6: usize = HEAD + ipv6::LEN;
/// Ethernet, outer IPv6, inner IPv4.
pub(super) const NESTED_V4: usize = HEAD + ipv4::LEN;
/// What is not block, in the upper half of a SID.
const BEHIND_BLOCK: u64 = 0xffff_ffff;

#[inline(always)]
pub(super) fn route_v6<'t>(tables: &'t Tables, packet: &mut Packet<'_>, group: u32) -> Option<Ready<'t>> {
    let header = V6::read(packet.head::<HEAD>()?, eth::LEN);
    let hop =
        tables.straight.hop(tables, group, header.len(), || transit_v6(packet.bytes(), eth::LEN, header.address()))?;
    let (ethernet, ip) = headers::<{ ipv6::LEN }>(packet)?;
    spend_hop(&mut ip[ipv6::HOP_LIMIT]);
    Some(hop.ready(ethernet, header.len()))
}

#[inline(always)]
pub(super) fn route_v4<'t>(tables: &'t Tables, packet: &mut Packet<'_>, group: u32) -> Option<Ready<'t>> {
    let header = V4::read(packet.head::<HEAD>()?, eth::LEN);
    let hop = tables.straight.hop(tables, group, header.len(), || flow_v4(tables, packet.bytes(), eth::LEN))?;
    let (ethernet, ip) = headers(packet)?;
    ipv4::spend_ttl(ip);
    Some(hop.ready(ethernet, header.len()))
}

/// What all packets that are encapsulated share, taken together so that their loop has it at hand.
#[derive(Clone, Copy)]
pub(super) struct Encapsulation<'t> {
    tables: &'t Tables,
    counts: &'t [Count],
    steers: &'t [PlainPath],
    groups: &'t [PlainHop],
    class: OuterClass,
    with_qp: bool,
}

/// A packet to be encapsulated.
#[derive(Clone, Copy)]
struct Inner {
    protocol: u8,
    /// With other bits around it.
    class: u64,
    len: usize,
    flow: FlowHash,
}

impl<'t> Encapsulation<'t> {
    #[inline(always)]
    pub(super) fn new(tables: &'t Tables, tally: &'t Tally) -> Self {
        let Straight { steers, groups, class, .. } = &tables.straight;
        Self { tables, counts: &tally.paths, steers, groups, class: *class, with_qp: tables.tunnel.hash_qp }
    }

    #[inline(always)]
    pub(super) fn v6(&self, packet: &mut Packet<'_>, steer: u32) -> Option<Ready<'t>> {
        let head = packet.head::<{ eth::MIN_FRAME }>()?;
        let (header, (_, ip)) = (V6::read(head, eth::LEN), head.split_at(eth::LEN));
        let next_header = header.next_header();
        let upper = match header.behind() {
            Behind::Ports if self.with_qp => ports_and_queue_pair(next_header, packet.bytes(), HEAD),
            Behind::Ports => flow::ports(next_header, ip, ipv6::LEN, false),
            // The walk looks for its own outer header in these (RFC 2473 section 4.1.3).
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

    #[inline(always)]
    fn put(
        &self,
        packet: &mut Packet<'_>,
        steer: u32,
        inner: Inner,
        spend_hop: impl FnOnce(&mut [u8; ipv4::LEN]),
    ) -> Option<Ready<'t>> {
        let path = self.steers.get(steer as usize)?;
        if path.way == Way::WithoutSrh {
            return self.put_header(packet, path, self.groups.get(path.group as usize)?, inner, spend_hop);
        }
        let (path, hop) = if path.way == Way::WithSrh {
            (path, self.groups.get(path.group as usize)?)
        } else {
            self.tables.straight.by_flow(self.tables, steer, inner)?
        };
        match path.srh(&self.tables.straight)? {
            [] => self.put_header(packet, path, hop, inner, spend_hop),
            srh => self.put_header_and_srh(packet, (path, srh), hop, inner, spend_hop),
        }
    }

    /// H.Encaps.Red, and H.Encaps of one segment without an SRH (RFC 8986 section 5): what most packets get.
    #[inline(always)]
    fn put_header(
        &self,
        packet: &mut Packet<'_>,
        path: &PlainPath,
        hop: &'t PlainHop,
        inner: Inner,
        spend_hop: impl FnOnce(&mut [u8; ipv4::LEN]),
    ) -> Option<Ready<'t>> {
        let len = inner.len + ipv6::LEN;
        if len > usize::from(path.mtu) {
            return None;
        }
        let head = packet.replace_head::<{ eth::LEN }, HEAD, NESTED>()?;
        let (ethernet, bytes) = head.split_first_chunk_mut()?;
        let (header, behind) = bytes.split_first_chunk_mut()?;
        spend_hop(behind.first_chunk_mut()?);
        path.write(header, self.class, inner, inner.protocol, len - ipv6::LEN);
        Some(self.leave(path, hop, ethernet, len))
    }

    /// The same with an SRH behind the outer header.
    #[inline(always)]
    fn put_header_and_srh(
        &self,
        packet: &mut Packet<'_>,
        (path, srh): (&PlainPath, &[u8]),
        hop: &'t PlainHop,
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
        path.write(header, self.class, inner, protocol::ROUTING, len - ipv6::LEN);
        Some(self.leave(path, hop, ethernet, len))
    }

    #[inline(always)]
    fn leave(&self, path: &PlainPath, hop: &'t PlainHop, ethernet: &mut [u8; eth::LEN], len: usize) -> Ready<'t> {
        if let Some(count) = self.counts.get(path.slot as usize) {
            count.add(1, len);
        }
        put_type(ethernet, eth::IPV6);
        hop.ready(ethernet, len)
    }
}

impl Straight {
    /// The next hop of a flow, if an IP packet of so many bytes fits.
    #[inline(always)]
    fn hop<'t>(
        &'t self,
        tables: &Tables,
        group: u32,
        len: usize,
        flow: impl FnOnce() -> FlowHash,
    ) -> Option<&'t PlainHop> {
        let only = self.groups.get(group as usize)?;
        if len <= only.mtu as usize {
            return Some(only);
        }
        if only.by_flow { self.member(tables, group, len, flow()) } else { None }
    }

    /// One of several next hops. Not inlined, and neither is what follows: it would take the registers of a loop that
    /// mostly goes without.
    #[inline(never)]
    fn member(&self, tables: &Tables, group: u32, len: usize, flow: FlowHash) -> Option<&PlainHop> {
        let member = tables.member_index(group, || flow)?;
        self.hops.get(member as usize).filter(|hop| len <= hop.mtu as usize)
    }

    /// One of several paths of a prefix, and one of several next hops. `None`: left to the walk.
    #[inline(never)]
    fn by_flow(&self, tables: &Tables, steer: u32, inner: Inner) -> Option<(&PlainPath, &PlainHop)> {
        self.steers.get(steer as usize).filter(|path| path.way == Way::ByFlow)?;
        let path =
            self.paths.get(tables.path_index(steer, inner.flow)? as usize).filter(|path| path.way != Way::Walk)?;
        let len = inner.len + usize::from(path.srh_len) + ipv6::LEN;
        Some((path, self.hop(tables, path.group, len, || inner.flow)?))
    }
}

impl PlainPath {
    #[inline(always)]
    fn srh<'s>(&self, straight: &'s Straight) -> Option<&'s [u8]> {
        if self.srh_len == 0 {
            return Some(&[]);
        }
        straight.srhs.bytes.get(self.srh as usize..)?.get(..usize::from(self.srh_len))
    }

    /// | 6 | class 8 | flow label 20 | payload length 16 | next header 8 | hop limit 8 |, and the addresses.
    #[inline(always)]
    fn write(&self, header: &mut [u8; ipv6::LEN], class: OuterClass, inner: Inner, next_header: u8, payload: usize) {
        let first = inner.class & class.kept
            | class.set
            | u64::from(inner.flow.flow_label()) << 32
            | u64::from(payload as u16) << 16
            | u64::from(next_header) << 8
            | self.first;
        let (front, addresses) = header.split_at_mut(8);
        front.copy_from_slice(&first.to_be_bytes());
        addresses.copy_from_slice(&self.addresses);
    }
}

impl PlainHop {
    /// The type of the packet is in place.
    #[inline(always)]
    fn ready(&self, header: &mut [u8; eth::LEN], len: usize) -> Ready<'_> {
        let [addresses @ .., _, _] = header;
        *addresses = self.ethernet;
        Ready { hop: self, len }
    }
}

/// Of the same length. Of a known one, that of one segment or two, it takes a few moves, and else a call.
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

impl Shift {
    /// RFC 9800 section 4.1.1, N01 to N08, and out: by a look-up of the new destination, or to a next hop of a uA.
    #[inline(always)]
    pub(super) fn forward<'t>(&self, tables: &'t Tables, packet: &mut Packet<'_>) -> Option<Ready<'t>> {
        let header = V6::read(packet.head::<HEAD>()?, eth::LEN);
        let [high, low] = header.destination;
        // | block 32 | active uSIDs | argument |  ->  | block 32 | argument | zero |
        let [block, usids] = [high & !BEHIND_BLOCK, high << self.by & BEHIND_BLOCK];
        if usids == 0 && low == 0 {
            return None;
        }
        let destination = joined([block | usids | low >> (64 - self.by), low << self.by]);
        let group = match self.group {
            None => Target::group(tables.find_v6(MAIN, destination)?)?,
            Some(group) => group,
        };
        let hop =
            tables.straight.hop(tables, group, header.len(), || transit_v6(packet.bytes(), eth::LEN, destination))?;
        let (ethernet, ip) = headers::<{ ipv6::LEN }>(packet)?;
        spend_hop(&mut ip[ipv6::HOP_LIMIT]);
        ipv6::set_destination(ip, destination);
        Some(hop.ready(ethernet, header.len()))
    }
}

impl Decapsulate {
    /// With a look-up of its own.
    #[inline(always)]
    pub(super) fn forward_alone<'t>(&self, tables: &'t Tables, packet: &mut Packet<'_>) -> Option<Ready<'t>> {
        self.forward(tables, packet, self.look_up(tables, packet)?)
    }

    /// RFC 8986 sections 4.6 to 4.8. The packet inside is plain where something was found for it.
    #[inline(always)]
    pub(super) fn forward<'t>(&self, tables: &'t Tables, packet: &mut Packet<'_>, inside: Found) -> Option<Ready<'t>> {
        let group = Target::group(inside.value()?)?;
        let outer = V6::read(packet.head::<HEAD>()?, eth::LEN);
        if inside.is_v6() {
            self.forward_v6(tables, packet, outer, group)
        } else {
            self.forward_v4(tables, packet, outer, group)
        }
    }

    #[inline(always)]
    fn forward_v6<'t>(&self, tables: &'t Tables, packet: &mut Packet<'_>, outer: V6, group: u32) -> Option<Ready<'t>> {
        let inner = V6::read(packet.head::<NESTED_V6>()?, HEAD);
        let len = inner.len();
        let flow = || transit_v6(packet.bytes(), HEAD, inner.address());
        let hop = tables.straight.hop(tables, group, len, flow)?;
        packet.pull_front(ipv6::LEN);
        let (ethernet, ip) = headers::<{ ipv6::LEN }>(packet)?;
        spend_hop(&mut ip[ipv6::HOP_LIMIT]);
        if self.uniform {
            ipv6::set_traffic_class(ip, uniform(outer, inner.class()));
        }
        put_type(ethernet, eth::IPV6);
        Some(hop.ready(ethernet, len))
    }

    #[inline(always)]
    fn forward_v4<'t>(&self, tables: &'t Tables, packet: &mut Packet<'_>, outer: V6, group: u32) -> Option<Ready<'t>> {
        let inner = V4::read(packet.head::<NESTED_V4>()?, HEAD);
        let len = inner.len();
        let hop = tables.straight.hop(tables, group, len, || flow_v4(tables, packet.bytes(), HEAD))?;
        packet.pull_front(ipv6::LEN);
        let (ethernet, ip) = headers(packet)?;
        if self.uniform {
            ipv4::set_tos_ttl(ip, uniform(outer, inner.class()), ip[ipv4::TTL].wrapping_sub(1));
        } else {
            ipv4::spend_ttl(ip);
        }
        put_type(ethernet, eth::IPV4);
        Some(hop.ready(ethernet, len))
    }
}

/// The outer DSCP with the inner ECN.
#[inline(always)]
fn uniform(outer: V6, inner: u8) -> u8 {
    outer.class() & !3 | inner & 3
}

/// Ethernet and IP header, to be written.
#[inline(always)]
fn headers<'p, const N: usize>(packet: &'p mut Packet<'_>) -> Option<(&'p mut [u8; eth::LEN], &'p mut [u8; N])> {
    let (ethernet, behind) = packet.bytes_mut().split_first_chunk_mut()?;
    Some((ethernet, behind.first_chunk_mut()?))
}

/// Of the packet at an offset. Neither this nor the next ones are inlined: they would take the registers of a loop that mostly
/// goes without.
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
    ipv4::Header::parse(bytes).map(|header| flow::v4(bytes, header, tables.tunnel.hash_qp)).unwrap_or_default()
}
