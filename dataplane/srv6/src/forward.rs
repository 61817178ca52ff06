//! What becomes of a packet.
//!
//! `decide` only reads: it follows the packet from header to header and SID to SID, and each `?` is one
//! named, counted way out. [`edit`](crate::edit) then writes once. A refused packet is untouched.
//!
//! ```text
//! parse ─► look up ─► SID?   shift, next segment, decapsulate ─┐
//!             ▲       steer? encapsulate ─────────────► write ─► Tx
//!             │       route? ─────────────────────────► write ─► Tx
//!             └───────────── again ◄───────────────────────────┘
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use srv6d_wire::srh::{self, Routing};
use srv6d_wire::{Packet, checksum, eth, ipv4, ipv6, protocol};

use crate::edit;
use crate::flow::{self, FlowHash};
use crate::icmp::{self, Limiter, Notice};
use crate::model::{Csid, DscpMode, DtFamily, Mac, PortId, Role, UnknownSid};
use crate::reason::DropReason;
use crate::straight::{self, Found};
use crate::tables::{Action, Adjacency, CrossConnect, MAIN, PathEntry, PortEntry, Sid, Tables, Target, VrfIndex};
use crate::tally::Tally;

/// Own SIDs in one packet: six uSIDs of a carrier, and as many again for segment lists and inner packets.
const MAX_ROUNDS: usize = 16;
/// Encapsulations taken off one packet.
const MAX_NESTING: u8 = 2;

/// What was decided, and done to the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send through this device.
    Tx(u16),
    /// The packet has become an answer to its sender: an ICMP error for this reason. Send it through the device.
    Error(DropReason, u16),
    /// The packet has become an echo reply. Send it through the device.
    Echo(u16),
    /// For the kernel of this node: send through the device of the own veth.
    Kernel(u16),
    /// Gone. The bytes are untouched.
    Drop(DropReason),
    /// The next hop is not resolved: keep the packet, bytes untouched, and hand it in again when tables change.
    Hold(PortId, IpAddr),
}

/// Ways out of [`Walk::decide`] that are not forwarding.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Out {
    Drop(DropReason),
    /// Drop, and tell the sender where the rules allow it.
    Tell(DropReason, Notice),
    Hold(PortId, IpAddr),
    /// The kernel gets the current layer.
    Kernel,
    /// Answer the echo request whose ICMP header is at this offset.
    Echo(usize),
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Egress<'t> {
    Plain(&'t Adjacency),
    Encapsulated(&'t PathEntry, &'t Adjacency, FlowHash),
}

/// The IP header the walk has arrived at, with what is to be written to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    /// Offset in the frame.
    pub(crate) at: usize,
    /// Offset behind the packet, by its own length field.
    pub(crate) end: usize,
    pub(crate) is_v6: bool,
    pub(crate) vrf: VrfIndex,
    pub(crate) source: u128,
    pub(crate) destination: u128,
    pub(crate) hop_limit: u8,
    /// The hop limit has been decremented: forwarding does not do it again.
    pub(crate) hop_spent: bool,
    pub(crate) traffic_class: u8,
    /// Next header or protocol of the fixed header, as received.
    pub(crate) protocol: u8,
    pub(crate) srh: SrhEdit,
}

/// What is to be done to the SRH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SrhEdit {
    None,
    SegmentsLeft { at: usize, value: u8 },
    Remove { at: usize, len: usize, named_at: usize, next_header: u8 },
}

impl Layer {
    /// Length of the IP packet as it will leave.
    pub(crate) fn len(&self) -> usize {
        let removed = if let SrhEdit::Remove { len, .. } = self.srh { len } else { 0 };
        (self.end - self.at).saturating_sub(removed)
    }

    /// Reads the IP header at `at`; `limit` is the offset behind the last byte there is.
    fn parse(frame: &[u8], at: usize, limit: usize, is_v6: bool, vrf: VrfIndex) -> Result<Self, Out> {
        const MALFORMED: Out = Out::Drop(DropReason::Malformed);
        let bytes = frame.get(at..).ok_or(MALFORMED)?;
        let layer = if is_v6 {
            let header = ipv6::Header::parse(bytes).ok_or(MALFORMED)?;
            Self {
                at,
                end: at + ipv6::LEN + header.payload_len(),
                is_v6,
                vrf,
                source: header.source(),
                destination: header.destination(),
                hop_limit: header.hop_limit(),
                hop_spent: false,
                traffic_class: header.traffic_class(),
                protocol: header.next_header(),
                srh: SrhEdit::None,
            }
        } else {
            let header = ipv4::Header::parse(bytes).ok_or(MALFORMED)?;
            // RFC 1812 section 5.2.2: length, and checksum, before anything else is believed.
            let whole = bytes.get(..header.header_len()).ok_or(MALFORMED)?;
            if header.total_len() < header.header_len() || checksum::of(whole) != 0 {
                return Err(MALFORMED);
            }
            Self {
                at,
                end: at + header.total_len(),
                is_v6,
                vrf,
                source: u128::from(header.source()) << 96,
                destination: u128::from(header.destination()) << 96,
                hop_limit: header.ttl(),
                hop_spent: false,
                traffic_class: header.tos(),
                protocol: header.protocol(),
                srh: SrhEdit::None,
            }
        };
        if layer.end <= limit { Ok(layer) } else { Err(MALFORMED) }
    }

    /// Multicast or broadcast.
    fn is_to_many(&self) -> bool {
        match ip(self.is_v6, self.destination) {
            IpAddr::V6(address) => address.is_multicast(),
            IpAddr::V4(address) => address.is_multicast() || address.is_broadcast(),
        }
    }

    fn source_ip(&self) -> IpAddr {
        ip(self.is_v6, self.source)
    }
}

pub(crate) fn ip(is_v6: bool, bits: u128) -> IpAddr {
    if is_v6 { Ipv6Addr::from_bits(bits).into() } else { Ipv4Addr::from_bits((bits >> 96) as u32).into() }
}

/// A place in a chain of IPv6 headers.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    next_header: u8,
    at: usize,
    /// Offset of the byte that names `next_header`.
    named_at: usize,
}

/// Where a walk over extension headers stops.
enum Stop<'f> {
    Routing(Cursor, Routing<'f>),
    Upper(u8, usize),
    /// A part of what is carried, with its protocol.
    Fragment(u8),
}

/// What a walk has found out so far.
pub(crate) struct Progress {
    pub(crate) layer: Layer,
    nesting: u8,
    hits: [u32; MAX_ROUNDS],
    hit_count: usize,
    ecn_unused: bool,
}

/// One packet on its way through the tables.
pub(crate) struct Walk<'t, 'f, 'p> {
    pub(crate) tables: &'t Tables,
    pub(crate) frame: &'f [u8],
    pub(crate) port: &'t PortEntry,
    pub(crate) source_mac: Mac,
    pub(crate) progress: &'p mut Progress,
}

/// Decides what becomes of a frame and writes it.
///
/// `device` is the untagged port the frame came in through, `now` nanoseconds of a clock that never goes back.
pub fn forward(
    tables: &Tables,
    tally: &Tally,
    limiter: &mut Limiter,
    now: u64,
    device: u16,
    packet: &mut Packet<'_>,
) -> Verdict {
    let found = Found::of(tables, device, packet);
    match straight::forward(tables, tally, packet, found) {
        Some(device) => Verdict::Tx(device),
        None => walk(tables, tally, limiter, now, device, packet),
    }
}

/// The way of any packet, as [`forward`] takes it where there is none straight through
/// ([`forward_straight`](crate::forward_straight)).
pub fn walk(
    tables: &Tables,
    tally: &Tally,
    limiter: &mut Limiter,
    now: u64,
    device: u16,
    packet: &mut Packet<'_>,
) -> Verdict {
    let frame = packet.bytes();
    let (header, port) = match enter(tables, device, frame) {
        Ok(entered) => entered,
        Err(reason) => return Verdict::Drop(reason),
    };
    if !matches!(header.ether_type, eth::IPV6 | eth::IPV4) {
        return not_ip(tables, port, packet);
    }
    let Ok(layer) = Layer::parse(frame, header.len, packet.total_len(), header.ether_type == eth::IPV6, port.vrf)
    else {
        return Verdict::Drop(DropReason::Malformed);
    };
    if Mac(header.destination).is_group() && port.role != Role::Kernel && !layer.is_to_many() {
        return Verdict::Drop(DropReason::L2Multicast);
    }
    let received = layer.len();
    let hop_spent = port.role == Role::Kernel && !tables.tunnel.decrement_local;
    let mut progress = Progress {
        layer: Layer { hop_spent, ..layer },
        nesting: 0,
        hits: [0; MAX_ROUNDS],
        hit_count: 0,
        ecn_unused: false,
    };
    let mut walk = Walk { tables, frame, port, source_mac: Mac(header.source), progress: &mut progress };
    let out = match walk.decide() {
        Ok(egress) => match edit::send(tables, packet, &progress.layer, egress, port.fill_checksum) {
            Ok(device) => {
                progress.count(tally, received);
                count_egress(tally, &progress.layer, egress);
                return Verdict::Tx(device);
            }
            Err(reason) => return Verdict::Drop(reason),
        },
        Err(out) => out,
    };
    let answer = match out {
        Out::Drop(reason) => return Verdict::Drop(reason),
        Out::Hold(port, neighbor) => return Verdict::Hold(port, neighbor),
        Out::Kernel => edit::to_kernel(tables, packet, &progress.layer).map(Verdict::Kernel),
        Out::Echo(at) => {
            icmp::plan_echo(&walk, at).and_then(|plan| icmp::write_echo(tables, packet, &plan)).map(Verdict::Echo)
        }
        Out::Tell(reason, notice) => {
            let Some(plan) = icmp::plan_error(&walk, notice, limiter, now) else { return Verdict::Drop(reason) };
            return match icmp::write_error(tables, packet, &plan) {
                Ok(device) => Verdict::Error(reason, device),
                Err(failed) => Verdict::Drop(failed),
            };
        }
    };
    answer.map_or_else(Verdict::Drop, |verdict| {
        progress.count(tally, received);
        verdict
    })
}

/// Ethernet and VLAN: the logical port the frame belongs to.
#[inline]
fn enter<'t>(tables: &'t Tables, device: u16, frame: &[u8]) -> Result<(eth::Header, &'t PortEntry), DropReason> {
    let header = eth::parse(frame).ok_or(DropReason::Malformed)?;
    let device = tables.port(PortId(device)).ok_or(DropReason::Vlan)?;
    let port = match header.vlan {
        None if device.vlan.is_none() => device,
        None => return Err(DropReason::Vlan),
        Some(vid) => {
            let tagged = device.tagged.iter().find(|(tag, _)| *tag == vid).ok_or(DropReason::Vlan)?;
            tables.port(tagged.1).ok_or(DropReason::Vlan)?
        }
    };
    let destination = Mac(header.destination);
    if destination == port.mac || destination.is_group() || port.role == Role::Kernel {
        Ok((header, port))
    } else {
        Err(DropReason::NotOurMac)
    }
}

/// ARP, LLDP and all else is the kernel's. What the kernel itself sends so does not go back to it.
fn not_ip(tables: &Tables, port: &PortEntry, packet: &mut Packet<'_>) -> Verdict {
    if port.role == Role::Kernel {
        return Verdict::Drop(DropReason::EtherType);
    }
    edit::to_kernel_as_it_is(tables, packet).map_or_else(Verdict::Drop, Verdict::Kernel)
}

impl Progress {
    #[inline]
    fn count(&self, tally: &Tally, bytes: usize) {
        for &slot in self.hits.iter().take(self.hit_count) {
            tally.sid(slot, bytes);
        }
        if self.ecn_unused {
            tally.ecn_unused.add(bytes);
        }
    }
}

#[inline]
fn count_egress(tally: &Tally, layer: &Layer, egress: Egress<'_>) {
    match egress {
        Egress::Plain(adjacency) => tally.adjacency(adjacency.slot, layer.len()),
        Egress::Encapsulated(path, adjacency, _) => {
            tally.path(path.slot, layer.len() + path.header_len);
            tally.adjacency(adjacency.slot, layer.len() + path.header_len);
        }
    }
}

impl<'t, 'f> Walk<'t, 'f, '_> {
    fn decide(&mut self) -> Result<Egress<'t>, Out> {
        self.admit()?;
        loop {
            match self.target()? {
                Target::Sid(index) => {
                    if let Some(egress) = self.endpoint(index)? {
                        return Ok(egress);
                    }
                }
                Target::Steer(index) => return self.encapsulate(index),
                Target::Route(group) | Target::Neighbor(group) => return self.route(group),
                Target::OnLink(port) => {
                    self.spend_hop()?;
                    return Err(self.unresolved(port));
                }
                Target::Unknown(UnknownSid::Drop) => return Err(Out::Drop(DropReason::UnknownSid)),
                Target::Unknown(UnknownSid::Icmp) => return Err(tell(DropReason::UnknownSid, Notice::NoRoute)),
                Target::Kernel | Target::Unknown(UnknownSid::Punt) => return Err(Out::Kernel),
                Target::Blackhole => return Err(Out::Drop(DropReason::Blackhole)),
                Target::Unreachable => return Err(tell(DropReason::Unreachable, Notice::NoRoute)),
            }
        }
    }

    /// What the port lets in.
    fn admit(&self) -> Result<(), Out> {
        if self.progress.layer.end - self.progress.layer.at > self.port.mtu {
            return Err(Out::Drop(DropReason::Oversize));
        }
        if self.progress.layer.is_v6 {
            self.admit_v6()?;
        } else {
            self.admit_v4()?;
        }
        let allowed = &self.port.allowed_sources;
        if !allowed.is_empty() && !allowed.iter().any(|prefix| prefix.contains(&self.progress.layer.source_ip())) {
            return Err(Out::Drop(DropReason::AclSource));
        }
        Ok(())
    }

    fn admit_v6(&self) -> Result<(), Out> {
        let Layer { source, destination, .. } = self.progress.layer;
        let is_local = ipv6::is_link_local(destination) || ipv6::is_link_local(source);
        if ipv6::is_multicast(destination) || is_local || self.is_neighbor_discovery() {
            return Err(self.kernel_or_drop());
        }
        if ipv6::is_multicast(source) || is_inside_a_node_v6(source) {
            return Err(Out::Drop(DropReason::BadSource));
        }
        if is_inside_a_node_v6(destination) {
            return Err(Out::Drop(DropReason::NoRoute));
        }
        let reason = match self.port.role {
            Role::Fabric | Role::Kernel => return Ok(()),
            Role::Edge => DropReason::AclEdge,
            Role::Host => DropReason::AclPath,
        };
        let carrier = Ipv6Addr::from_bits(destination);
        let allowed = self.port.allowed_carriers.iter().any(|prefix| prefix.contains(&carrier));
        if allowed || !self.is_sid_space(destination) { Ok(()) } else { Err(Out::Drop(reason)) }
    }

    fn admit_v4(&self) -> Result<(), Out> {
        let IpAddr::V4(source) = self.progress.layer.source_ip() else { return Ok(()) };
        let IpAddr::V4(destination) = ip(false, self.progress.layer.destination) else { return Ok(()) };
        let is_local = destination.is_link_local() || source.is_link_local();
        if destination.is_multicast() || destination.is_broadcast() || is_local {
            return Err(self.kernel_or_drop());
        }
        if source.is_multicast() || source.is_broadcast() || is_inside_a_node_v4(source) {
            return Err(Out::Drop(DropReason::BadSource));
        }
        if is_inside_a_node_v4(destination) {
            return Err(Out::Drop(DropReason::NoRoute));
        }
        Ok(())
    }

    /// The kernel's own multicast comes through the own veth too: it must not go back.
    fn kernel_or_drop(&self) -> Out {
        if self.port.role == Role::Kernel { Out::Drop(DropReason::NoRoute) } else { Out::Kernel }
    }

    /// Router and neighbour discovery, and redirects (RFC 4861): ICMPv6 types 133 to 137, from the link itself.
    fn is_neighbor_discovery(&self) -> bool {
        self.progress.layer.protocol == protocol::ICMPV6
            && self.progress.layer.hop_limit == 255
            && self.byte(self.progress.layer.at + ipv6::LEN).is_some_and(|kind| (133..=137).contains(&kind))
    }

    /// In a block, and neither an address of this node nor a subnet behind one of its ports.
    fn is_sid_space(&self, destination: u128) -> bool {
        self.tables.in_block(destination)
            && !matches!(
                self.tables.lookup(self.progress.layer.vrf, true, destination),
                Some(Target::Kernel | Target::OnLink(_) | Target::Neighbor(_))
            )
    }

    fn target(&self) -> Result<Target, Out> {
        let Layer { vrf, is_v6, destination, .. } = self.progress.layer;
        match self.tables.lookup(vrf, is_v6, destination) {
            Some(target) => Ok(target),
            None if self.tables.policy.icmp_unreachable => Err(tell(DropReason::NoRoute, Notice::NoRoute)),
            None => Err(Out::Drop(DropReason::NoRoute)),
        }
    }

    // ---- SIDs ---------------------------------------------------------------------------------------------------

    /// One round of a local SID. `None`: look up again.
    fn endpoint(&mut self, index: u32) -> Result<Option<Egress<'t>>, Out> {
        let sid = self.tables.sids.get(index as usize).ok_or(Out::Drop(DropReason::UnknownSid))?;
        self.accept_source()?;
        *self.progress.hits.get_mut(self.progress.hit_count).ok_or(Out::Drop(DropReason::Rounds))? = sid.slot;
        self.progress.hit_count += 1;
        if let Action::End { csid: Some(csid), .. } | Action::EndX { csid: Some(csid), .. } = sid.action
            && self.shift(csid)?
        {
            return match sid.action {
                Action::EndX { group, .. } => self.leave(group).map(Some),
                _ => Ok(None),
            };
        }
        match sid.action {
            Action::End { dscp, .. } => self.end(sid, None, dscp),
            Action::EndX { group, .. } => self.end(sid, Some(group), DscpMode::Pipe(0)),
            Action::EndDt { family, vrf, dscp } => {
                self.check_leftover(sid)?;
                let (next_header, at) = self.upper_of_last_segment(sid)?;
                self.check_inner(family, next_header, at, sid)?;
                self.decapsulate(next_header, at, vrf, dscp)?;
                Ok(None)
            }
            Action::EndDx { family, way } => {
                self.check_leftover(sid)?;
                let (next_header, at) = self.upper_of_last_segment(sid)?;
                self.check_inner(family, next_header, at, sid)?;
                self.decapsulate(next_header, at, MAIN, DscpMode::Pipe(0))?;
                self.spend_hop()?;
                self.cross_connect(way).map(Some)
            }
        }
    }

    fn accept_source(&self) -> Result<(), Out> {
        let domain = &self.tables.policy.domain_sources;
        let source = Ipv6Addr::from_bits(self.progress.layer.source);
        if domain.is_empty() || domain.iter().any(|prefix| prefix.contains(&source)) {
            return Ok(());
        }
        Err(Out::Drop(DropReason::AclSid))
    }

    /// RFC 9800 section 4.1.1, N01 to N08. False: the argument, every bit behind locator and function, is used up.
    #[inline]
    fn shift(&mut self, csid: Csid) -> Result<bool, Out> {
        let (lblen, nflen) = (u32::from(csid.lblen), u32::from(csid.nflen));
        let argument = self.progress.layer.destination.checked_shl(lblen + nflen).unwrap_or(0);
        if argument == 0 {
            return Ok(false);
        }
        let has_options = matches!(self.progress.layer.protocol, protocol::HOP_BY_HOP | protocol::DEST_OPTIONS);
        if has_options || self.progress.layer.srh != SrhEdit::None {
            self.options_in_front()?;
        }
        self.spend_round()?;
        let block = u128::MAX.checked_shl(128 - lblen).unwrap_or(0);
        self.progress.layer.destination = self.progress.layer.destination & block | argument >> lblen;
        self.check_next_destination().map(|()| true)
    }

    /// End and End.X whose argument is used up (RFC 8986 sections 4.1 and 4.2). `adjacency`: End.X.
    fn end(&mut self, sid: &'t Sid, adjacency: Option<u32>, dscp: DscpMode) -> Result<Option<Egress<'t>>, Out> {
        let mut cursor = self.first_header();
        loop {
            match self.next_stop(cursor)? {
                Stop::Routing(at, routing) => {
                    if self.segments_left(at, routing) > 0 {
                        self.next_segment(at, routing, sid.flavors.psp)?;
                        return adjacency.map(|group| self.leave(group)).transpose();
                    }
                    if sid.flavors.usp && routing.routing_type() == srh::TYPE {
                        self.edit_srh(removed(at, routing))?;
                    }
                    cursor = Cursor { next_header: routing.next_header(), at: at.at + routing.len(), named_at: at.at };
                }
                Stop::Upper(next_header, at) => return self.end_upper(sid, adjacency, dscp, next_header, at),
                Stop::Fragment(protocol) => return Err(self.refuse_fragment(sid, protocol)),
            }
        }
    }

    /// The upper-layer header at a SID (RFC 8986 sections 4.1.1 and 4.16.3).
    fn end_upper(
        &mut self,
        sid: &Sid,
        adjacency: Option<u32>,
        dscp: DscpMode,
        next_header: u8,
        at: usize,
    ) -> Result<Option<Egress<'t>>, Out> {
        if matches!(next_header, protocol::IPV6 | protocol::IPV4) && sid.flavors.usd {
            self.decapsulate(next_header, at, MAIN, dscp)?;
            return match adjacency {
                None => Ok(None),
                Some(group) => {
                    self.spend_hop()?;
                    self.leave(group).map(Some)
                }
            };
        }
        if let (Some(group), true) = (adjacency, self.tables.policy.ua_last_forward && !self.is_own_address(sid)) {
            self.spend_round()?;
            if let Action::EndX { csid: Some(csid), .. } = sid.action {
                let block = u128::MAX.checked_shl(128 - u32::from(csid.lblen)).unwrap_or(0);
                self.progress.layer.destination &= block;
            }
            return self.leave(group).map(Some);
        }
        Err(self.refuse_upper(sid, next_header, at))
    }

    /// What a SID does with an upper layer that it does not forward: the kernel's, an echo reply, or a refusal.
    fn refuse_upper(&self, sid: &Sid, next_header: u8, at: usize) -> Out {
        if self.is_own_address(sid) {
            return Out::Kernel;
        }
        if next_header == protocol::ICMPV6 && self.byte(at) == Some(128) {
            return Out::Echo(at);
        }
        tell(DropReason::UpperLayer, Notice::ParameterProblem { code: 4, pointer: self.pointer(at) })
    }

    /// Bits of the destination behind the SID.
    fn leftover(&self, sid: &Sid) -> u128 {
        self.progress.layer.destination.checked_shl(u32::from(sid.len)).unwrap_or(0)
    }

    /// The SID with nothing behind it, and an address of this node.
    fn is_own_address(&self, sid: &Sid) -> bool {
        sid.is_local_address && self.leftover(sid) == 0
    }

    /// Nothing that has to be reassembled first comes out here. What is for an address of the node the kernel reassembles.
    fn refuse_fragment(&self, sid: &Sid, protocol: u8) -> Out {
        let is_carried = matches!(protocol, protocol::IPV6 | protocol::IPV4);
        if self.is_own_address(sid) && !is_carried { Out::Kernel } else { Out::Drop(DropReason::FragOuter) }
    }

    fn check_leftover(&self, sid: &Sid) -> Result<(), Out> {
        if self.leftover(sid) == 0 || self.tables.policy.dt_argument_accept {
            return Ok(());
        }
        Err(Out::Drop(DropReason::DtArgument))
    }

    fn check_inner(&self, family: DtFamily, next_header: u8, at: usize, sid: &Sid) -> Result<(), Out> {
        match (family, next_header) {
            (DtFamily::V6 | DtFamily::V46, protocol::IPV6) | (DtFamily::V4 | DtFamily::V46, protocol::IPV4) => Ok(()),
            _ => Err(self.refuse_upper(sid, next_header, at)),
        }
    }

    /// RFC 8986 sections 4.4 to 4.8: a segment left is a Parameter Problem.
    fn upper_of_last_segment(&self, sid: &Sid) -> Result<(u8, usize), Out> {
        let mut cursor = self.first_header();
        loop {
            match self.next_stop(cursor)? {
                Stop::Routing(at, routing) => {
                    if self.segments_left(at, routing) > 0 {
                        // RFC 8200 section 4.4: a type that nobody knows is what is wrong, not its segments.
                        let is_srh = routing.routing_type() == srh::TYPE;
                        return Err(self.bad_srh(at.at + if is_srh { srh::SEGMENTS_LEFT } else { ROUTING_TYPE }));
                    }
                    cursor = Cursor { next_header: routing.next_header(), at: at.at + routing.len(), named_at: at.at };
                }
                Stop::Upper(next_header, at) => return Ok((next_header, at)),
                Stop::Fragment(protocol) => return Err(self.refuse_fragment(sid, protocol)),
            }
        }
    }

    fn segments_left(&self, cursor: Cursor, routing: Routing<'_>) -> u8 {
        match self.progress.layer.srh {
            SrhEdit::SegmentsLeft { at, value } if at == cursor.at => value,
            _ => routing.segments_left(),
        }
    }

    /// RFC 8986 section 4.1, S05 to S15.
    fn next_segment(&mut self, cursor: Cursor, routing: Routing<'_>, psp: bool) -> Result<(), Out> {
        if routing.routing_type() != srh::TYPE {
            return Err(self.bad_srh(cursor.at + ROUTING_TYPE));
        }
        if self.progress.layer.hop_limit <= 1 {
            return Err(hop_limit());
        }
        let left = self.segments_left(cursor, routing);
        let entries = routing.ext_len() / 2;
        let fits = if self.tables.policy.srh_lenient {
            left <= entries
        } else {
            routing.last_entry() < entries && left <= routing.last_entry() + 1
        };
        let segment = if fits { routing.segment(left - 1) } else { None };
        let Some(segment) = segment else {
            return Err(self.bad_srh(cursor.at + srh::SEGMENTS_LEFT));
        };
        self.spend_round()?;
        self.progress.layer.destination = segment;
        self.edit_srh(if psp && left == 1 {
            removed(cursor, routing)
        } else {
            SrhEdit::SegmentsLeft { at: cursor.at, value: left - 1 }
        })?;
        self.check_next_destination()
    }

    /// One SRH of a packet is edited. RFC 8200 section 4.1 knows no second one.
    fn edit_srh(&mut self, edit: SrhEdit) -> Result<(), Out> {
        match (self.progress.layer.srh, edit) {
            (SrhEdit::None, _) => {}
            (
                SrhEdit::SegmentsLeft { at: known, .. } | SrhEdit::Remove { at: known, .. },
                SrhEdit::SegmentsLeft { at, .. } | SrhEdit::Remove { at, .. },
            ) if known == at => {}
            _ => return Err(Out::Drop(DropReason::SrhInvalid)),
        }
        self.progress.layer.srh = edit;
        Ok(())
    }

    fn bad_srh(&self, at: usize) -> Out {
        tell(DropReason::SrhInvalid, Notice::ParameterProblem { code: 0, pointer: self.pointer(at) })
    }

    fn pointer(&self, at: usize) -> u32 {
        u32::try_from(at - self.progress.layer.at).unwrap_or(u32::MAX)
    }

    /// No carrier, segment list or outer packet may lead to an address that is never forwarded to.
    fn check_next_destination(&self) -> Result<(), Out> {
        let is_routable = match ip(self.progress.layer.is_v6, self.progress.layer.destination) {
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                !ipv6::is_multicast(bits) && !ipv6::is_link_local(bits) && !is_inside_a_node_v6(bits)
            }
            IpAddr::V4(address) => {
                let is_for_many = address.is_multicast() || address.is_broadcast();
                !is_for_many && !address.is_link_local() && !is_inside_a_node_v4(address)
            }
        };
        if is_routable { Ok(()) } else { Err(Out::Drop(DropReason::NoRoute)) }
    }

    // ---- IPv6 extension headers ---------------------------------------------------------------------------------

    fn first_header(&self) -> Cursor {
        Cursor {
            next_header: self.progress.layer.protocol,
            at: self.progress.layer.at + ipv6::LEN,
            named_at: self.progress.layer.at + ipv6::NEXT_HEADER,
        }
    }

    /// Bytes of the packet from `at` on, as far as its own length and the first buffer go.
    fn rest(&self, at: usize) -> Result<&'f [u8], Out> {
        let end = self.progress.layer.end.min(self.frame.len());
        self.frame.get(at..end).ok_or(Out::Drop(DropReason::Malformed))
    }

    /// A byte of the packet.
    fn byte(&self, at: usize) -> Option<u8> {
        self.rest(at).ok()?.first().copied()
    }

    /// Processes options up to the next routing or upper-layer header (RFC 8200 section 4).
    fn next_stop(&self, mut cursor: Cursor) -> Result<Stop<'f>, Out> {
        loop {
            let bytes = self.rest(cursor.at)?;
            let len = match cursor.next_header {
                protocol::DEST_OPTIONS => self.options(cursor.at)?,
                protocol::HOP_BY_HOP if self.is_first(cursor) => self.options(cursor.at)?,
                protocol::ROUTING => {
                    let routing = Routing::parse(bytes).ok_or(Out::Drop(DropReason::Malformed))?;
                    match self.progress.layer.srh {
                        SrhEdit::Remove { at, len, .. } if at == cursor.at => len,
                        _ => return Ok(Stop::Routing(cursor, routing)),
                    }
                }
                protocol::FRAGMENT => {
                    let [next, _, offset, flags, ..] =
                        *bytes.first_chunk::<8>().ok_or(Out::Drop(DropReason::Malformed))?;
                    if u16::from_be_bytes([offset, flags]) & 0xfff9 != 0 {
                        return Ok(Stop::Fragment(next));
                    }
                    8
                }
                upper => return Ok(Stop::Upper(upper, cursor.at)),
            };
            let next_header = bytes.first().copied().ok_or(Out::Drop(DropReason::Malformed))?;
            cursor = Cursor { next_header, at: cursor.at + len, named_at: cursor.at };
        }
    }

    /// Options in front of a carrier that is shifted: all a shift looks at behind the fixed header.
    fn options_in_front(&self) -> Result<(), Out> {
        let mut cursor = self.first_header();
        loop {
            let len = match (cursor.next_header, self.progress.layer.srh) {
                (protocol::DEST_OPTIONS, _) => self.options(cursor.at)?,
                (protocol::HOP_BY_HOP, _) if self.is_first(cursor) => self.options(cursor.at)?,
                (protocol::ROUTING, SrhEdit::Remove { at, len, .. }) if at == cursor.at => len,
                _ => return Ok(()),
            };
            let next_header = self.rest(cursor.at)?.first().copied().ok_or(Out::Drop(DropReason::Malformed))?;
            cursor = Cursor { next_header, at: cursor.at + len, named_at: cursor.at };
        }
    }

    /// Directly behind the IPv6 header, as received: the only place of hop-by-hop options (RFC 8200 section 4.1).
    fn is_first(&self, cursor: Cursor) -> bool {
        cursor.at == self.progress.layer.at + ipv6::LEN
    }

    /// Length of the options header at `at`, once every option in it allows to go on (RFC 8200 section 4.2).
    fn options(&self, at: usize) -> Result<usize, Out> {
        let bytes = self.rest(at)?;
        let len = bytes.get(1).map(|&units| 8 + usize::from(units) * 8).ok_or(Out::Drop(DropReason::Malformed))?;
        let options = bytes.get(2..len).ok_or(Out::Drop(DropReason::Malformed))?;
        let mut offset = 0;
        while let Some(&kind) = options.get(offset) {
            if kind == PAD1 {
                offset += 1;
                continue;
            }
            let data = options.get(offset + 1).copied().ok_or(Out::Drop(DropReason::Malformed))?;
            let next = offset + 2 + usize::from(data);
            if next > options.len() {
                return Err(Out::Drop(DropReason::Malformed));
            }
            if kind != PADN {
                self.unknown_option(kind, at + 2 + offset)?;
            }
            offset = next;
        }
        Ok(len)
    }

    fn unknown_option(&self, kind: u8, at: usize) -> Result<(), Out> {
        let report = tell(DropReason::OptionUnknown, Notice::ParameterProblem { code: 2, pointer: self.pointer(at) });
        match kind >> 6 {
            0 => Ok(()),
            1 => Err(Out::Drop(DropReason::OptionDiscard)),
            2 => Err(report),
            _ if ipv6::is_multicast(self.progress.layer.destination) => Err(Out::Drop(DropReason::OptionUnknown)),
            _ => Err(report),
        }
    }

    // ---- Decapsulation ------------------------------------------------------------------------------------------

    /// Goes on with the inner packet at `at`.
    fn decapsulate(&mut self, next_header: u8, at: usize, vrf: VrfIndex, dscp: DscpMode) -> Result<(), Out> {
        if self.progress.nesting == MAX_NESTING {
            return Err(Out::Drop(DropReason::Nesting));
        }
        self.progress.nesting += 1;
        let outer = self.progress.layer.traffic_class;
        let inner = Layer::parse(self.frame, at, self.progress.layer.end, next_header == protocol::IPV6, vrf)?;
        let ecn = decapsulated_ecn(inner.traffic_class & 3, outer & 3).ok_or(Out::Drop(DropReason::Ecn))?;
        self.progress.ecn_unused |= inner.traffic_class & 3 == NOT_ECT && outer & 3 != NOT_ECT;
        let inner_dscp = if dscp == DscpMode::Uniform { outer } else { inner.traffic_class } & !3;
        self.progress.layer = Layer { traffic_class: inner_dscp | ecn, ..inner };
        self.check_inner_source()?;
        self.check_next_destination()
    }

    /// An inner packet may come from where any other may (RFC 4291 section 2, RFC 1812 section 5.3.7).
    fn check_inner_source(&self) -> Result<(), Out> {
        let (is_nobody, is_link_local) = match self.progress.layer.source_ip() {
            IpAddr::V6(source) => {
                (source.is_multicast() || is_inside_a_node_v6(source.to_bits()), source.is_unicast_link_local())
            }
            IpAddr::V4(source) => {
                let is_for_many = source.is_multicast() || source.is_broadcast();
                (is_for_many || is_inside_a_node_v4(source), source.is_link_local())
            }
        };
        match (is_nobody, is_link_local) {
            (true, _) => Err(Out::Drop(DropReason::BadSource)),
            (_, true) => Err(Out::Drop(DropReason::NoRoute)),
            _ => Ok(()),
        }
    }

    // ---- Ways out -----------------------------------------------------------------------------------------------

    fn spend_round(&mut self) -> Result<(), Out> {
        if self.progress.layer.hop_limit <= 1 {
            return Err(hop_limit());
        }
        self.progress.layer.hop_limit -= 1;
        self.progress.layer.hop_spent = true;
        Ok(())
    }

    fn spend_hop(&mut self) -> Result<(), Out> {
        if self.progress.layer.hop_spent { Ok(()) } else { self.spend_round() }
    }

    fn route(&mut self, group: u32) -> Result<Egress<'t>, Out> {
        self.spend_hop()?;
        self.leave(group)
    }

    /// The destination is a neighbour that is not resolved.
    fn unresolved(&self, port: PortId) -> Out {
        if self.tables.port(port).is_some_and(|port| port.up) {
            Out::Hold(port, ip(self.progress.layer.is_v6, self.progress.layer.destination))
        } else {
            Out::Drop(DropReason::AdjDown)
        }
    }

    /// End.DX4 and End.DX6 (RFC 8986 sections 4.4 and 4.5).
    fn cross_connect(&self, way: CrossConnect) -> Result<Egress<'t>, Out> {
        match way {
            CrossConnect::Group(group) => self.leave(group),
            CrossConnect::OnLink(port) => {
                let neighbor = ip(self.progress.layer.is_v6, self.progress.layer.destination);
                let group = self.tables.cross_connected.get(&(port, neighbor));
                group.map_or_else(|| Err(self.unresolved(port)), |&group| self.leave(group))
            }
        }
    }

    /// Out through a member of a group, if the packet fits.
    fn leave(&self, group: u32) -> Result<Egress<'t>, Out> {
        let adjacency = ready(self.tables, group, || self.transit_flow())?;
        if self.progress.layer.len() > adjacency.mtu {
            return Err(self.too_big(adjacency.mtu));
        }
        Ok(Egress::Plain(adjacency))
    }

    fn transit_flow(&self) -> FlowHash {
        let bytes = self.rest(self.progress.layer.at).unwrap_or_default();
        if self.progress.layer.is_v6 {
            ipv6::Header::parse(bytes).map(|header| flow::transit(bytes, header, self.progress.layer.destination))
        } else {
            ipv4::Header::parse(bytes).map(|header| flow::v4(bytes, header, self.tables.tunnel.hash_qp))
        }
        .unwrap_or_default()
    }

    fn inner_flow(&self) -> FlowHash {
        let bytes = self.rest(self.progress.layer.at).unwrap_or_default();
        let with_qp = self.tables.tunnel.hash_qp;
        if self.progress.layer.is_v6 {
            ipv6::Header::parse(bytes).map(|header| flow::inner_v6(bytes, header, with_qp))
        } else {
            ipv4::Header::parse(bytes).map(|header| flow::v4(bytes, header, with_qp))
        }
        .unwrap_or_default()
    }

    fn too_big(&self, mtu: usize) -> Out {
        let can_fragment = !self.progress.layer.is_v6
            && self
                .frame
                .get(self.progress.layer.at..)
                .and_then(ipv4::Header::parse)
                .is_some_and(|header| !header.dont_fragment());
        if can_fragment {
            return Out::Drop(DropReason::PacketTooBig);
        }
        let mtu = if self.progress.layer.is_v6 { mtu.max(ipv6::MIN_MTU) } else { mtu };
        tell(DropReason::PacketTooBig, Notice::TooBig { mtu: u32::try_from(mtu).unwrap_or(u32::MAX) })
    }

    /// H.Encaps.Red (RFC 8986 section 5.2).
    fn encapsulate(&mut self, steer: u32) -> Result<Egress<'t>, Out> {
        self.spend_hop()?;
        let flow = self.inner_flow();
        let path = self.tables.path(steer, flow).ok_or(Out::Drop(DropReason::NoRoute))?;
        let group = path.group.ok_or(Out::Drop(DropReason::NoRoute))?;
        let adjacency = ready(self.tables, group, || flow)?;
        if self.is_encapsulated_by(path.source(adjacency)) {
            return Err(Out::Drop(DropReason::EncapLoop));
        }
        let mtu = adjacency.mtu.min(path.mtu_for(self.progress.layer.is_v6));
        if self.progress.layer.len() + path.header_len > mtu {
            return Err(self.too_big(mtu.saturating_sub(path.header_len)));
        }
        Ok(Egress::Encapsulated(path, adjacency, flow))
    }

    /// RFC 2473 section 4.1.3: the packet carries our own outer header already.
    fn is_encapsulated_by(&self, source: Ipv6Addr) -> bool {
        self.progress.layer.is_v6
            && matches!(self.progress.layer.protocol, protocol::IPV6 | protocol::IPV4 | protocol::ROUTING)
            && source.to_bits() == self.progress.layer.source
    }
}

/// Unspecified and loopback (RFC 4291 sections 2.5.2 and 2.5.3).
fn is_inside_a_node_v6(address: u128) -> bool {
    address <= 1
}

/// Networks 0 and 127 (RFC 1812 section 5.3.7).
fn is_inside_a_node_v4(address: Ipv4Addr) -> bool {
    matches!(address.octets(), [0 | 127, ..])
}

/// The SRH is taken out.
fn removed(cursor: Cursor, routing: Routing<'_>) -> SrhEdit {
    SrhEdit::Remove { at: cursor.at, len: routing.len(), named_at: cursor.named_at, next_header: routing.next_header() }
}

/// Offset of Routing Type in any routing header.
const ROUTING_TYPE: usize = 2;
const PAD1: u8 = 0;
const PADN: u8 = 1;

fn tell(reason: DropReason, notice: Notice) -> Out {
    Out::Tell(reason, notice)
}

fn hop_limit() -> Out {
    tell(DropReason::HopLimit, Notice::TimeExceeded)
}

/// The group's member for a flow, if packets can be sent to it.
pub(crate) fn ready(tables: &Tables, group: u32, flow: impl FnOnce() -> FlowHash) -> Result<&Adjacency, Out> {
    use crate::tables::AdjacencyState::{Down, Ready, Unresolved};
    let adjacency = tables.member(group, flow).ok_or(Out::Drop(DropReason::AdjDown))?;
    match adjacency.state {
        Ready => Ok(adjacency),
        Unresolved => Err(Out::Hold(adjacency.port, adjacency.neighbor)),
        Down => Err(Out::Drop(DropReason::AdjDown)),
    }
}

const NOT_ECT: u8 = 0;
const ECT_1: u8 = 1;
const ECT_0: u8 = 2;
const CE: u8 = 3;

/// ECN of a decapsulated packet (RFC 6040 section 4.2, figure 4). `None`: drop.
const fn decapsulated_ecn(inner: u8, outer: u8) -> Option<u8> {
    match (inner, outer) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (CE, _) | (ECT_0 | ECT_1, CE) => Some(CE),
        (ECT_1, _) | (ECT_0, ECT_1) => Some(ECT_1),
        (_, _) => Some(ECT_0),
    }
}
