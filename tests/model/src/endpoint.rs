//! Processing at a SID: RFC 8986 section 4, with the NEXT-CSID flavour of RFC 9800 section 4.1.

use std::net::{IpAddr, Ipv6Addr};

use etherparse::{IpNumber, Ipv6Header};
use srv6d_srv6::DropReason;
use srv6d_srv6::desired::{Behavior, Csid, DscpMode, DtFamily, Hop, LocalSid, TableId};

use crate::Counted;
use crate::enter::admit_from_outside;
use crate::forward::{End, Travel};
use crate::icmp::{self, Message};
use crate::lookup::{UsableHops, is_local_address, usable_hops};
use crate::options::{process_options, process_options_in_front};
use crate::packet::{Chain, Extension, Ip, Malformed, V6};
use crate::scope::{is_nobody, is_on_link, is_routable};

/// Maximum number of SIDs of this node that one packet may visit.
const MAX_SIDS: usize = 16;
/// Maximum number of outer packets that may be removed from one packet.
const MAX_LAYERS: usize = 2;
/// Routing Type of the SRH (RFC 8754 section 2).
const SRH: u8 = 4;
/// Offsets of fields in a routing header: Hdr Ext Len, Routing Type, Segments Left, Last Entry.
const EXT_LEN: usize = 1;
const ROUTING_TYPE: usize = 2;
const SEGMENTS_LEFT: usize = 3;
const LAST_ENTRY: usize = 4;
/// Offset of the Segment List in an SRH.
const FIRST_SEGMENT: usize = 8;

/// Where a packet goes after a SID.
#[derive(Clone, Debug)]
enum Next {
    /// It is looked up in this table.
    LookUp(TableId),
    /// It is sent to the adjacency set of the SID.
    Adjacency(Vec<Hop>),
}

impl Travel<'_> {
    /// Processes the packet at a SID. Returns `None` if the packet is to be looked up again.
    pub(crate) fn at_sid(&mut self, sid: &LocalSid) -> Result<Option<End>, End> {
        let Ip::V6(packet) = self.packet.clone() else { return Err(End::Drop(DropReason::Malformed)) };
        let domain = &self.desired.policy.domain_sources;
        if !domain.is_empty() && !domain.iter().any(|prefix| prefix.contains(&packet.header.source_addr())) {
            return Err(End::Drop(DropReason::AclSid));
        }
        self.rounds += 1;
        if self.rounds > MAX_SIDS {
            return Err(End::Drop(DropReason::Rounds));
        }
        let removed = self.removed;
        self.table = TableId::MAIN;
        let end = match &sid.behavior {
            Behavior::End { csid, .. } => self.end(sid, packet, *csid, &Next::LookUp(self.table)),
            Behavior::EndX { csid, via, backup } => {
                let next = Next::Adjacency(self.adjacency_set(via, backup));
                self.end(sid, packet, *csid, &next)
            }
            Behavior::EndDt { family, table, dscp } => {
                self.decapsulating(sid, &packet, *family, *dscp, &Next::LookUp(*table))
            }
            Behavior::EndDx { family, via } => {
                self.decapsulating(sid, &packet, *family, DscpMode::Pipe(0), &Next::Adjacency(via.clone()))
            }
        }
        .map_err(|end| point_into_received(end, removed))?;
        self.count(Counted::Sid(sid.prefix), self.received_len);
        Ok(end)
    }

    /// Returns the next hops to use: the backup if every port of the set is down.
    fn adjacency_set(&self, via: &[Hop], backup: &[Hop]) -> Vec<Hop> {
        let nowhere = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let down = usable_hops(self.desired, via, nowhere) == UsableHops::Down;
        if down && !backup.is_empty() { backup.to_vec() } else { via.to_vec() }
    }

    /// Processes End and End.X (RFC 8986 sections 4.1 and 4.2), uN and uA (RFC 9800 sections 4.1.1 and 4.1.2).
    fn end(&mut self, sid: &LocalSid, packet: V6, csid: Option<Csid>, next: &Next) -> Result<Option<End>, End> {
        if let Some(shifted) = csid.and_then(|csid| shift(packet.destination(), csid)) {
            process_options_in_front(&self.chain(&packet))?;
            self.sid_takes_hop()?;
            return self.go_to(shifted, next);
        }
        let chain = self.chain(&packet);
        match self.process_up_to_srh(&chain, sid.flavors.usp)? {
            Some(at) => {
                let segment = self.next_segment(sid, packet, chain, at)?;
                self.go_to(segment, next)
            }
            None => self.upper_layer(sid, packet, chain, csid, next),
        }
    }

    fn chain(&self, packet: &V6) -> Chain {
        packet.chain(self.removed.is_none_or(|(at, _)| at > Ipv6Header::LEN))
    }

    /// Processes the headers in front of an SRH with segments left, and returns the index of that SRH. Options and
    /// finished routing headers are skipped.
    fn process_up_to_srh(&mut self, chain: &Chain, usp: bool) -> Result<Option<usize>, End> {
        for (index, header) in chain.extensions.iter().enumerate() {
            match header.number {
                IpNumber::IPV6_HEADER_HOP_BY_HOP | IpNumber::IPV6_DESTINATION_OPTIONS => {
                    process_options(&header.bytes, header.at)?;
                }
                IpNumber::IPV6_ROUTE_HEADER if byte(&header.bytes, SEGMENTS_LEFT) > 0 => {
                    if is_srh(header) {
                        return Ok(Some(index));
                    }
                    let message = Message::BadField(header.at + ROUTING_TYPE);
                    return Err(End::Tell(DropReason::SrhInvalid, message));
                }
                _ if usp && is_srh(header) => self.change_srh(chain, index)?,
                _ => {}
            }
        }
        if chain.broken { Err(Malformed.into()) } else { Ok(None) }
    }

    /// Processes a packet to an own address that is not a SID. An SRH with segments left is refused with a pointer to
    /// its type (RFC 8754 section 4.3.2). Everything else goes to the kernel, even if something in front of the SRH is
    /// wrong.
    pub(crate) fn at_own_address(&mut self) -> End {
        let kernel = End::Kernel(self.packet.clone());
        let Ip::V6(packet) = self.packet.clone() else { return kernel };
        let chain = self.chain(&packet);
        let Ok(Some(at)) = self.process_up_to_srh(&chain, false) else { return kernel };
        let at = chain.extensions.get(at).map_or(0, |header| header.at);
        point_into_received(End::Tell(DropReason::SrhInvalid, Message::BadField(at + ROUTING_TYPE)), self.removed)
    }

    /// Processes an SRH with segments left (RFC 8986 section 4.1 S02 to S15). With PSP, the SRH is removed at its last
    /// segment (section 4.16.1).
    fn next_segment(&mut self, sid: &LocalSid, mut packet: V6, mut chain: Chain, at: usize) -> Result<Ipv6Addr, End> {
        self.sid_takes_hop()?;
        let Some(header) = chain.extensions.get_mut(at) else { return Err(Malformed.into()) };
        let segment = segment_of(&header.bytes, self.desired.policy.srh_lenient)
            .ok_or(End::Tell(DropReason::SrhInvalid, Message::BadField(header.at + SEGMENTS_LEFT)))?;
        let left = byte(&header.bytes, SEGMENTS_LEFT) - 1;
        if let Some(field) = header.bytes.get_mut(SEGMENTS_LEFT) {
            *field = left;
        }
        self.change_srh(&chain, at)?;
        if left == 0 && sid.flavors.psp {
            self.remove(&mut chain, at);
        }
        packet.header.hop_limit = *self.packet.hop_limit();
        packet.set_chain(&chain);
        self.packet = Ip::V6(packet);
        Ok(segment)
    }

    /// Records a change of an SRH. Only one SRH of a packet may be changed here: RFC 8200 section 4.1 allows no second
    /// one.
    fn change_srh(&mut self, chain: &Chain, at: usize) -> Result<(), End> {
        let behind: usize = chain.extensions.iter().skip(at).map(|header| header.bytes.len()).sum();
        let from_end = behind + chain.payload.len();
        if self.changed_srh.is_some_and(|changed| changed != from_end) {
            return Err(End::Drop(DropReason::SrhInvalid));
        }
        self.changed_srh = Some(from_end);
        Ok(())
    }

    fn remove(&mut self, chain: &mut Chain, at: usize) {
        let removed = chain.extensions.remove(at);
        self.removed = Some((removed.at, removed.bytes.len()));
    }

    /// USP (RFC 8986 section 4.16.2): removes a finished SRH before the packet is processed further.
    fn remove_finished_srh(&mut self, packet: &mut V6, chain: &mut Chain) -> Result<(), End> {
        while let Some(at) = chain.extensions.iter().position(is_srh) {
            self.change_srh(chain, at)?;
            self.remove(chain, at);
        }
        packet.set_chain(chain);
        Ok(())
    }

    /// Processes the upper layer (RFC 8986 section 4.1.1), and USD (section 4.16.3).
    fn upper_layer(
        &mut self,
        sid: &LocalSid,
        mut packet: V6,
        mut chain: Chain,
        csid: Option<Csid>,
        next: &Next,
    ) -> Result<Option<End>, End> {
        let as_received = chain.clone();
        if sid.flavors.usp {
            self.remove_finished_srh(&mut packet, &mut chain)?;
        }
        if chain.fragment {
            return self.at_fragment(sid, &packet, &chain);
        }
        let is_ip = matches!(chain.upper, IpNumber::IPV6 | IpNumber::IPV4);
        if sid.flavors.usd && is_ip {
            let dscp = match &sid.behavior {
                Behavior::End { dscp, .. } => *dscp,
                _ => DscpMode::Pipe(0),
            };
            return self.take_off(&packet, &chain, dscp, next);
        }
        self.packet = Ip::V6(packet.clone());
        if let (Next::Adjacency(_), true) = (next, self.desired.policy.ua_last_forward)
            && !self.is_own_address(sid, &packet)
        {
            self.sid_takes_hop()?;
            let destination = packet.destination();
            return self.go_to(csid.map_or(destination, |csid| without_argument(destination, csid)), next);
        }
        self.refuse_upper_layer(sid, &packet, &as_received)
    }

    /// Processes a fragment. A SID does not reassemble (RFC 8200 section 4.5); the kernel does, if the packet is for an
    /// address of the node.
    fn at_fragment(&self, sid: &LocalSid, packet: &V6, chain: &Chain) -> Result<Option<End>, End> {
        let is_ip = matches!(chain.upper, IpNumber::IPV6 | IpNumber::IPV4);
        if self.is_own_address(sid, packet) && !is_ip {
            return Ok(Some(End::Kernel(Ip::V6(packet.clone()))));
        }
        Err(End::Drop(DropReason::FragOuter))
    }

    /// Processes an upper layer that the SID does not accept. It may be for the node, if the SID is also an address of
    /// it (RFC 8754 section 4.3), or a ping.
    fn refuse_upper_layer(&mut self, sid: &LocalSid, packet: &V6, chain: &Chain) -> Result<Option<End>, End> {
        if self.is_own_address(sid, packet) {
            return Ok(Some(End::Kernel(Ip::V6(packet.clone()))));
        }
        if icmp::is_echo_request(chain) {
            return Ok(Some(End::Echo(icmp::echo_reply(packet, chain)?)));
        }
        Err(End::Tell(DropReason::UpperLayer, Message::BadUpperLayer(chain.upper_at)))
    }

    fn is_own_address(&self, sid: &LocalSid, packet: &V6) -> bool {
        is_local_address(self.desired, sid) && packet.destination() == sid.prefix.network()
    }

    /// Processes End.DT and End.DX (RFC 8986 sections 4.4 to 4.8).
    fn decapsulating(
        &mut self,
        sid: &LocalSid,
        packet: &V6,
        family: DtFamily,
        dscp: DscpMode,
        next: &Next,
    ) -> Result<Option<End>, End> {
        let argument = packet.destination().to_bits().checked_shl(u32::from(sid.prefix.prefix_len())).unwrap_or(0);
        if argument != 0 && !self.desired.policy.dt_argument_accept {
            return Err(End::Drop(DropReason::DtArgument));
        }
        let chain = self.chain(packet);
        if let Some(at) = self.process_up_to_srh(&chain, false)? {
            let at = chain.extensions.get(at).map_or(0, |header| header.at);
            return Err(End::Tell(DropReason::SrhInvalid, Message::BadField(at + SEGMENTS_LEFT)));
        }
        if chain.fragment {
            return self.at_fragment(sid, packet, &chain);
        }
        let accepted = match chain.upper {
            IpNumber::IPV6 => family != DtFamily::V4,
            IpNumber::IPV4 => family != DtFamily::V6,
            _ => false,
        };
        if accepted {
            return self.take_off(packet, &chain, dscp, next);
        }
        self.refuse_upper_layer(sid, packet, &chain)
    }

    /// Removes the outer packet. The inner packet is checked like one that is received.
    fn take_off(&mut self, outer: &V6, chain: &Chain, dscp: DscpMode, next: &Next) -> Result<Option<End>, End> {
        self.layers_off += 1;
        if self.layers_off > MAX_LAYERS {
            return Err(End::Drop(DropReason::Nesting));
        }
        let mut inner = Ip::parse(chain.upper == IpNumber::IPV6, &chain.payload)?;
        let received = inner.clone();
        let class = inner.traffic_class();
        let outer_class = outer.header.traffic_class;
        let [inner_ecn, outer_ecn] = [class & 3, outer_class & 3];
        let ecn = decapsulated_ecn(inner_ecn, outer_ecn).ok_or(End::Drop(DropReason::Ecn))?;
        let dscp_from = if dscp == DscpMode::Uniform { outer_class } else { class };
        if inner_ecn == 0 && outer_ecn != 0 {
            self.counts.insert(Counted::EcnUnused, (1, self.received_len as u64));
        }
        inner.set_traffic_class(dscp_from & 0xfc | ecn);
        (self.packet, self.received, self.hop_taken, self.changed_srh) = (inner, received, false, None);
        self.removed = None;
        if is_nobody(self.packet.source()) {
            return Err(End::Drop(DropReason::BadSource));
        }
        if is_on_link(self.packet.source()) {
            return Err(End::Drop(DropReason::NoRoute));
        }
        if self.packet.has_source_route() {
            return Err(End::Drop(DropReason::SourceRoute));
        }
        if !is_routable(self.packet.destination()) {
            return Err(End::Drop(DropReason::NoRoute));
        }
        self.table = if let Next::LookUp(table) = next { *table } else { TableId::MAIN };
        if self.port.role.is_outside() {
            admit_from_outside(self.desired, self.port, self.table, &self.packet)?;
        }
        match next {
            Next::LookUp(_) => Ok(None),
            Next::Adjacency(hops) => {
                self.take_hop()?;
                let destination = self.packet.destination();
                self.send(hops, destination).map(Some)
            }
        }
    }

    /// Gives the packet a new destination and continues as `next` says.
    fn go_to(&mut self, destination: Ipv6Addr, next: &Next) -> Result<Option<End>, End> {
        if let Ip::V6(packet) = &mut self.packet {
            packet.header.destination = destination.octets();
        }
        if !is_routable(IpAddr::V6(destination)) {
            return Err(End::Drop(DropReason::NoRoute));
        }
        match next {
            Next::LookUp(_) => Ok(None),
            Next::Adjacency(hops) => self.send(hops, IpAddr::V6(destination)).map(Some),
        }
    }
}

fn is_srh(header: &Extension) -> bool {
    header.number == IpNumber::IPV6_ROUTE_HEADER && byte(&header.bytes, ROUTING_TYPE) == SRH
}

/// Corrects the offset in an error: the error quotes the packet as received, including the header that has been removed
/// since.
fn point_into_received(end: End, removed: Option<(usize, usize)>) -> End {
    match (end, removed) {
        (End::Tell(reason, message), Some((from, len))) => {
            End::Tell(reason, message.moved(|at| if at >= from { at + len } else { at }))
        }
        (end, _) => end,
    }
}

/// Shifts the Argument to the position behind the block. Returns `None` if the Argument is zero.
fn shift(destination: Ipv6Addr, csid: Csid) -> Option<Ipv6Addr> {
    let consumed = u32::from(csid.lblen) + u32::from(csid.nflen);
    let argument = destination.to_bits().checked_shl(consumed).unwrap_or(0);
    (argument != 0).then(|| with_argument(destination, csid, argument))
}

fn without_argument(destination: Ipv6Addr, csid: Csid) -> Ipv6Addr {
    with_argument(destination, csid, 0)
}

fn with_argument(destination: Ipv6Addr, csid: Csid, argument: u128) -> Ipv6Addr {
    let lblen = u32::from(csid.lblen);
    let block = destination.to_bits() & !u128::MAX.checked_shr(lblen).unwrap_or(0);
    Ipv6Addr::from_bits(block | argument.checked_shr(lblen).unwrap_or(0))
}

/// Returns the segment at index Segments Left minus one (RFC 8986 section 4.1 S08 to S14).
fn segment_of(srh: &[u8], lenient: bool) -> Option<Ipv6Addr> {
    let in_header = usize::from(byte(srh, EXT_LEN)) / 2;
    let (left, last) = (usize::from(byte(srh, SEGMENTS_LEFT)), usize::from(byte(srh, LAST_ENTRY)));
    let fits = last < in_header && left <= last + 1;
    if !fits && !lenient || left > in_header {
        return None;
    }
    let segment = srh.get(FIRST_SEGMENT + 16 * (left - 1)..)?.first_chunk::<16>()?;
    Some(Ipv6Addr::from(*segment))
}

/// Returns the ECN field of the inner packet after decapsulation (RFC 6040 section 4.2). `None`: the packet is dropped.
fn decapsulated_ecn(inner: u8, outer: u8) -> Option<u8> {
    const NOT_ECT: u8 = 0b00;
    const ECT_1: u8 = 0b01;
    const ECT_0: u8 = 0b10;
    const CE: u8 = 0b11;
    match (inner, outer) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (CE, _) | (_, CE) => Some(CE),
        (ECT_0, ECT_1) => Some(ECT_1),
        (inner, _) => Some(inner),
    }
}

fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or_default()
}
