//! What a SID does: RFC 8986 section 4, with the NEXT-CSID flavour of RFC 9800 section 4.1.

use std::net::{IpAddr, Ipv6Addr};

use etherparse::IpNumber;
use srv6d_srv6::DropReason;
use srv6d_srv6::model::{Behavior, Csid, DscpMode, DtFamily, Flavors, Hop, LocalSid, TableId};

use crate::Counted;
use crate::forward::{End, Travel};
use crate::icmp::{self, Message};
use crate::lookup::{Ways, is_local_address, ways};
use crate::packet::{Chain, Ip, V6};

/// Outer packets that may come off one packet.
const MAX_LAYERS: usize = 2;
/// Routing Type of the SRH (RFC 8754 section 2).
const SRH: u8 = 4;
/// Fields of a routing header, from its start: Hdr Ext Len, Routing Type, Segments Left, Last Entry.
const EXT_LEN: usize = 1;
const ROUTING_TYPE: usize = 2;
const SEGMENTS_LEFT: usize = 3;
const LAST_ENTRY: usize = 4;
/// Segment List of an SRH.
const FIRST_SEGMENT: usize = 8;

/// Where a packet goes that a SID is done with.
#[derive(Clone, Debug)]
enum Next {
    /// Looked up, in this table.
    LookUp(TableId),
    /// To the adjacency set of the SID.
    Adjacency(Vec<Hop>),
}

impl Travel<'_> {
    /// `None`: the packet is to be looked up again.
    pub(crate) fn at_sid(&mut self, sid: &LocalSid) -> Result<Option<End>, End> {
        let Ip::V6(packet) = self.packet.clone() else { return Err(End::Drop(DropReason::Malformed)) };
        let domain = &self.desired.policy.domain_sources;
        if !domain.is_empty() && !domain.iter().any(|prefix| prefix.contains(&packet.header.source_addr())) {
            return Err(End::Drop(DropReason::AclSid));
        }
        hop_by_hop(&packet)?;
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
        }?;
        self.count(Counted::Sid(sid.prefix), self.received_len);
        Ok(end)
    }

    /// The backup takes over when every port of the set is down.
    fn adjacency_set(&self, via: &[Hop], backup: &[Hop]) -> Vec<Hop> {
        let nowhere = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let down = ways(self.desired, via, nowhere) == Ways::Down;
        if down && !backup.is_empty() { backup.to_vec() } else { via.to_vec() }
    }

    /// End and End.X (RFC 8986 sections 4.1 and 4.2), uN and uA (RFC 9800 sections 4.1.1 and 4.1.2).
    fn end(&mut self, sid: &LocalSid, mut packet: V6, csid: Option<Csid>, next: &Next) -> Result<Option<End>, End> {
        if let Some(shifted) = csid.and_then(|csid| shift(packet.destination(), csid)) {
            self.sid_takes_hop()?;
            return self.go_to(shifted, next);
        }
        let mut chain = packet.chain()?;
        if let Some(at) = process_up_to_srh(&chain)? {
            let Some(header) = chain.extensions.get(at) else { return Err(End::Drop(DropReason::Malformed)) };
            let left = byte(&header.bytes, SEGMENTS_LEFT);
            if left > 0 {
                self.sid_takes_hop()?;
                let segment = next_segment(&header.bytes, self.desired.policy.srh_lenient)
                    .ok_or(End::Tell(DropReason::SrhInvalid, Message::BadField(header.at + SEGMENTS_LEFT)))?;
                if let Some(field) = chain.extensions.get_mut(at).and_then(|header| header.bytes.get_mut(SEGMENTS_LEFT))
                {
                    *field = left - 1;
                }
                if left == 1 && sid.flavors.psp {
                    chain.extensions.remove(at);
                }
                packet.header.hop_limit = *self.packet.hop_limit();
                packet.set_chain(&chain);
                self.packet = Ip::V6(packet);
                return self.go_to(segment, next);
            }
        }
        self.upper_layer(sid, &packet, &chain, csid, next)
    }

    /// RFC 8986 section 4.1.1, and USD (section 4.16.3).
    fn upper_layer(
        &mut self,
        sid: &LocalSid,
        packet: &V6,
        chain: &Chain,
        csid: Option<Csid>,
        next: &Next,
    ) -> Result<Option<End>, End> {
        if chain.fragment {
            return Err(End::Drop(DropReason::FragOuter));
        }
        let Flavors { usd, .. } = sid.flavors;
        let is_ip = matches!(chain.upper, IpNumber::IPV6 | IpNumber::IPV4);
        if usd && is_ip {
            let dscp = match &sid.behavior {
                Behavior::End { dscp, .. } => *dscp,
                _ => DscpMode::Pipe(0),
            };
            return self.take_off(packet, chain, dscp, next);
        }
        if self.is_own_address(sid, packet) {
            return Ok(Some(End::Kernel(self.packet.clone())));
        }
        if let (Next::Adjacency(_), Some(csid), true) = (next, csid, self.desired.policy.ua_last_forward) {
            self.sid_takes_hop()?;
            return self.go_to(without_argument(packet.destination(), csid), next);
        }
        if let (Next::LookUp(_), Some(reply)) = (next, icmp::echo_reply(packet, chain)) {
            return Ok(Some(End::Echo(reply)));
        }
        Err(End::Tell(DropReason::UpperLayer, Message::BadUpperLayer(chain.upper_at)))
    }

    fn is_own_address(&self, sid: &LocalSid, packet: &V6) -> bool {
        is_local_address(self.desired, sid) && packet.destination() == sid.prefix.network()
    }

    /// End.DT and End.DX (RFC 8986 sections 4.4 to 4.8).
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
        let chain = packet.chain()?;
        if let Some(at) = process_up_to_srh(&chain)? {
            let at = chain.extensions.get(at).map_or(0, |header| header.at);
            return Err(End::Tell(DropReason::SrhInvalid, Message::BadField(at + SEGMENTS_LEFT)));
        }
        if chain.fragment {
            return Err(End::Drop(DropReason::FragOuter));
        }
        let accepted = match chain.upper {
            IpNumber::IPV6 => family != DtFamily::V4,
            IpNumber::IPV4 => family != DtFamily::V6,
            _ => false,
        };
        if accepted {
            return self.take_off(packet, &chain, dscp, next);
        }
        if self.is_own_address(sid, packet) {
            return Ok(Some(End::Kernel(self.packet.clone())));
        }
        Err(End::Tell(DropReason::UpperLayer, Message::BadUpperLayer(chain.upper_at)))
    }

    /// Takes the outer packet off; the inner one is checked like one that comes in.
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
            self.count(Counted::EcnUnused, self.received_len);
        }
        inner.set_traffic_class(dscp_from & 0xfc | ecn);
        (self.packet, self.received, self.hop_taken) = (inner, received, false);
        match next {
            Next::LookUp(table) => {
                self.table = *table;
                Ok(None)
            }
            Next::Adjacency(hops) => {
                self.take_hop()?;
                let destination = self.packet.destination();
                self.send(hops, destination).map(Some)
            }
        }
    }

    /// A new destination for the same packet.
    fn go_to(&mut self, destination: Ipv6Addr, next: &Next) -> Result<Option<End>, End> {
        if let Ip::V6(packet) = &mut self.packet {
            packet.header.destination = destination.octets();
        }
        match next {
            Next::LookUp(_) => Ok(None),
            Next::Adjacency(hops) => self.send(hops, IpAddr::V6(destination)).map(Some),
        }
    }
}

/// Options and finished routing headers are passed. An SRH with segments left is returned by its place.
fn process_up_to_srh(chain: &Chain) -> Result<Option<usize>, End> {
    for (index, header) in chain.extensions.iter().enumerate() {
        match header.number {
            IpNumber::IPV6_DESTINATION_OPTIONS => options(&header.bytes, header.at)?,
            IpNumber::IPV6_ROUTE_HEADER if byte(&header.bytes, SEGMENTS_LEFT) > 0 => {
                if byte(&header.bytes, ROUTING_TYPE) == SRH {
                    return Ok(Some(index));
                }
                let message = Message::BadField(header.at + ROUTING_TYPE);
                return Err(End::Tell(DropReason::SrhInvalid, message));
            }
            _ => {}
        }
    }
    Ok(None)
}

/// The Argument moves up behind the block, if it is not zero.
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

/// RFC 8986 section 4.1 S08 to S14: the segment that Segments Left minus one points at.
fn next_segment(srh: &[u8], lenient: bool) -> Option<Ipv6Addr> {
    let in_header = usize::from(byte(srh, EXT_LEN)) / 2;
    let (left, last) = (usize::from(byte(srh, SEGMENTS_LEFT)), usize::from(byte(srh, LAST_ENTRY)));
    let fits = last < in_header && left <= last + 1;
    if !fits && !lenient || left > in_header {
        return None;
    }
    let segment = srh.get(FIRST_SEGMENT + 16 * (left - 1)..)?.first_chunk::<16>()?;
    Some(Ipv6Addr::from(*segment))
}

/// RFC 6040 section 4.2. `None`: the packet is dropped.
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

/// Hop-by-hop options come before everything else that a node does to a packet addressed to it (RFC 8200 section 4.3).
fn hop_by_hop(packet: &V6) -> Result<(), End> {
    if packet.header.next_header != IpNumber::IPV6_HEADER_HOP_BY_HOP {
        return Ok(());
    }
    let (header, _) =
        etherparse::Ipv6RawExtHeader::from_slice(&packet.payload).map_err(|_| End::Drop(DropReason::Malformed))?;
    options(&header.to_bytes(), etherparse::Ipv6Header::LEN)
}

/// RFC 8200 section 4.2. None but padding is known, so the two upper bits of every other type decide.
fn options(header: &[u8], at: usize) -> Result<(), End> {
    const PAD1: u8 = 0;
    const PADN: u8 = 1;
    let mut offset = 2;
    while let Some(&kind) = header.get(offset) {
        if kind == PAD1 {
            offset += 1;
            continue;
        }
        let len = header.get(offset + 1).copied().ok_or(End::Drop(DropReason::Malformed))?;
        let end = offset + 2 + usize::from(len);
        if end > header.len() {
            return Err(End::Drop(DropReason::Malformed));
        }
        match kind >> 6 {
            0b00 => {}
            _ if kind == PADN => {}
            0b01 => return Err(End::Drop(DropReason::OptionDiscard)),
            _ => return Err(End::Tell(DropReason::OptionUnknown, Message::UnknownOption(at + offset))),
        }
        offset = end;
    }
    Ok(())
}

fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or_default()
}
