//! H.Encaps and H.Encaps.Red: RFC 8986 sections 5.1 and 5.2, RFC 8754 section 2, RFC 2473, RFC 6040 section 4.1.

use std::net::{IpAddr, Ipv6Addr};

use etherparse::{IpNumber, Ipv6Header};
use srv6d_srv6::model::{DscpMode, Hop, Path, PortId, RouteAction, Steer, TableId};
use srv6d_srv6::{DropReason, flow};

use crate::Counted;
use crate::forward::{End, Travel};
use crate::lookup::{Match, look_up};
use crate::packet::{Ip, V6};

impl Travel<'_> {
    pub(crate) fn encapsulate(&mut self, steer: &Steer) -> Result<End, End> {
        let path = self.choices.pick(&steer.paths).ok_or(End::Drop(DropReason::NoRoute))?;
        let first = path.segments.first();
        let hops = self.first_hops(&path)?;
        self.take_hop()?;
        let next_hop = self.next_hop(&hops, IpAddr::V6(first))?;
        let source = self.outer_source(&path, next_hop.port).ok_or(End::Drop(DropReason::NoRoute))?;
        self.not_twice(source)?;
        let srh = segment_routing_header(&path);
        self.fits(next_hop.port, Ipv6Header::LEN + srh.len())?;
        self.fill_checksum();
        let outer = self.outer(source, &path, &srh);
        self.count(Counted::Path(path.name), outer.bytes().len());
        Ok(self.leave(next_hop, Ip::V6(outer)))
    }

    /// The path's own next hops, or those of the route to its first segment.
    fn first_hops(&self, path: &Path) -> Result<Vec<Hop>, End> {
        if !path.via.is_empty() {
            return Ok(path.via.clone());
        }
        match look_up(self.desired, TableId::MAIN, IpAddr::V6(path.segments.first())) {
            Some(Match::Route(RouteAction::Via(hops))) => Ok(hops.clone()),
            _ => Err(End::Drop(DropReason::NoRoute)),
        }
    }

    fn outer_source(&self, path: &Path, port: PortId) -> Option<Ipv6Addr> {
        let of_port = self.desired.ports.get(usize::from(port.0)).and_then(|port| port.source);
        path.source.or(of_port).or(self.desired.tunnel.source)
    }

    /// RFC 2473 section 4.1.3: what already has our outer source has been here before.
    fn not_twice(&self, source: Ipv6Addr) -> Result<(), End> {
        let Ip::V6(packet) = &self.packet else { return Ok(()) };
        let tunnelled =
            matches!(packet.header.next_header, IpNumber::IPV6 | IpNumber::IPV4 | IpNumber::IPV6_ROUTE_HEADER);
        if tunnelled && packet.header.source_addr() == source {
            return Err(End::Drop(DropReason::EncapLoop));
        }
        Ok(())
    }

    fn outer(&self, source: Ipv6Addr, path: &Path, srh: &[u8]) -> V6 {
        let tunnel = &self.desired.tunnel;
        let inner = self.packet.bytes();
        let number = if matches!(self.packet, Ip::V6(_)) { IpNumber::IPV6 } else { IpNumber::IPV4 };
        let class = self.packet.traffic_class();
        let dscp = match tunnel.dscp {
            DscpMode::Uniform => class & 0xfc,
            DscpMode::Pipe(dscp) => dscp << 2,
        };
        let ecn = if tunnel.ecn_compat { 0 } else { class & 3 };
        let mut payload = srh.to_vec();
        if let Some(next_header) = payload.first_mut() {
            *next_header = number.0;
        }
        payload.extend(&inner);
        let header = Ipv6Header {
            traffic_class: dscp | ecn,
            flow_label: self.flow_label(&inner).try_into().unwrap_or_default(),
            payload_length: 0,
            next_header: if srh.is_empty() { number } else { IpNumber::IPV6_ROUTE_HEADER },
            hop_limit: tunnel.hop_limit,
            source: source.octets(),
            destination: path.segments.first().octets(),
        };
        V6 { header, payload }
    }

    /// Any hash of the flow would do (RFC 6438 section 3); this is the one the outer header is compared with.
    fn flow_label(&self, inner: &[u8]) -> u32 {
        let with_qp = self.desired.tunnel.hash_qp;
        let v6 = || srv6d_wire::ipv6::Header::parse(inner).map(|header| flow::inner_v6(inner, header, with_qp));
        let v4 = || srv6d_wire::ipv4::Header::parse(inner).map(|header| flow::v4(inner, header, with_qp));
        let hash = if matches!(self.packet, Ip::V6(_)) { v6() } else { v4() };
        hash.map_or(0, flow::FlowHash::flow_label)
    }
}

/// The SRH of a path, Next Header still zero; empty when the destination address says it all.
///
/// ```text
/// | next header | hdr ext len | 4 | segments left | last entry | flags | tag | segment list, last one first |
/// ```
fn segment_routing_header(path: &Path) -> Vec<u8> {
    let all = path.segments.addresses();
    let listed: Vec<&Ipv6Addr> = all.iter().skip(usize::from(!path.full_srh)).collect();
    if listed.is_empty() {
        return Vec::new();
    }
    let small = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    let mut srh = vec![0, small(listed.len() * 2), 4, small(all.len() - 1), small(listed.len() - 1), 0, 0, 0];
    srh.extend(listed.iter().rev().flat_map(|segment| segment.octets()));
    srh
}
