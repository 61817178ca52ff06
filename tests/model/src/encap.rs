//! H.Encaps and H.Encaps.Red: RFC 8986 sections 5.1 and 5.2, RFC 8754 section 2, RFC 2473, RFC 6040 section 4.1.

use std::net::{IpAddr, Ipv6Addr};

use etherparse::{IpNumber, Ipv6Header};
use srv6d_srv6::desired::{DscpMode, Hop, Path, PortId, Role, RouteAction, Steer, TableId};
use srv6d_srv6::{DropReason, flow};

use crate::Counted;
use crate::forward::{End, Travel};
use crate::leave::NextHop;
use crate::lookup::{Match, look_up};
use crate::packet::{Ip, V6};

impl Travel<'_> {
    pub(crate) fn encapsulate(&mut self, steer: &Steer) -> Result<End, End> {
        self.take_hop()?;
        let path = self.choices.pick(&steer.paths).ok_or(End::Drop(DropReason::NoRoute))?;
        let (next_hop, source) = self.way_of(&path)?;
        self.not_twice(source)?;
        let srh = segment_routing_header(&path);
        let overhead = Ipv6Header::LEN + srh.len();
        self.fits(self.path_mtu(&path, next_hop.port, overhead, &self.packet), overhead)?;
        self.fill_checksum();
        let outer = self.outer(source, &path, srh, &self.packet, self.flow_label());
        self.count(Counted::Path(path.name), outer.bytes().len());
        Ok(self.leave(next_hop, Ip::V6(outer)))
    }

    /// Encapsulates a packet of this node itself, if a path to its destination is ready. Also returns the size of the
    /// largest packet that the path carries. All packets of the node are one flow.
    pub(crate) fn encapsulated_answer(&mut self, steer: &Steer, answer: &Ip) -> Option<(NextHop, Ip, usize)> {
        let path = self.choices.pick(&steer.paths)?;
        let (next_hop, source) = self.way_of(&path).ok()?;
        let srh = segment_routing_header(&path);
        let label = flow::FlowHash::default().flow_label();
        let mtu = self.path_mtu(&path, next_hop.port, Ipv6Header::LEN + srh.len(), answer);
        Some((next_hop, Ip::V6(self.outer(source, &path, srh, answer, label)), mtu))
    }

    /// Returns the size of the largest outer packet: limited by the port, and by what routers on the way have reported
    /// (RFC 8201). A sender of IPv6 may not be asked for packets smaller than 1280 bytes (RFC 2473 section 7.1).
    fn path_mtu(&self, path: &Path, port: PortId, overhead: usize, inner: &Ip) -> usize {
        let least = if matches!(inner, Ip::V6(_)) { 1280 + overhead } else { 0 };
        let said = self.desired.path_mtus.get(&path.segments).map(|&mtu| least.max(mtu as usize));
        said.map_or(self.mtu(port), |said| said.min(self.mtu(port)))
    }

    /// Returns the next hop of a path, and the source address of the outer header.
    fn way_of(&mut self, path: &Path) -> Result<(NextHop, Ipv6Addr), End> {
        let hops = self.first_hops(path)?;
        let next_hop = self.next_hop(&hops, IpAddr::V6(path.segments.first()))?;
        let source = self.outer_source(path, next_hop.port).ok_or(End::Drop(DropReason::NoRoute))?;
        Ok((next_hop, source))
    }

    /// Returns the path's own next hops or, if it has none, those of the route to its first segment.
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

    /// Refuses a packet that already has our outer source: it has been encapsulated here before (RFC 2473 section
    /// 4.1.3).
    fn not_twice(&self, source: Ipv6Addr) -> Result<(), End> {
        let Ip::V6(packet) = &self.packet else { return Ok(()) };
        let tunnelled =
            matches!(packet.header.next_header, IpNumber::IPV6 | IpNumber::IPV4 | IpNumber::IPV6_ROUTE_HEADER);
        // Applications on this node may send any packet through a tunnel.
        if tunnelled && self.port.role != Role::Kernel && packet.header.source_addr() == source {
            return Err(End::Drop(DropReason::EncapLoop));
        }
        Ok(())
    }

    fn outer(&self, source: Ipv6Addr, path: &Path, mut srh: Vec<u8>, inner: &Ip, flow_label: u32) -> V6 {
        let tunnel = &self.desired.tunnel;
        let number = if matches!(inner, Ip::V6(_)) { IpNumber::IPV6 } else { IpNumber::IPV4 };
        let class = inner.traffic_class();
        let dscp = match tunnel.dscp {
            DscpMode::Uniform => class & 0xfc,
            DscpMode::Pipe(dscp) => dscp << 2,
        };
        let ecn = if tunnel.ecn_compat { 0 } else { class & 3 };
        if let Some(next_header) = srh.first_mut() {
            *next_header = number.0;
        }
        let header = Ipv6Header {
            traffic_class: dscp | ecn,
            flow_label: flow_label.try_into().unwrap_or_default(),
            payload_length: 0,
            next_header: if srh.is_empty() { number } else { IpNumber::IPV6_ROUTE_HEADER },
            hop_limit: tunnel.hop_limit,
            source: source.octets(),
            destination: path.segments.first().octets(),
        };
        V6 { header, payload: [srh, inner.bytes()].concat() }
    }

    /// Returns the flow label. Any hash of the flow would be valid (RFC 6438 section 3); this one is used so that outer
    /// headers can be compared. It covers the flow as received, whatever SIDs have changed in the packet since then.
    fn flow_label(&self) -> u32 {
        let inner = &self.received.bytes();
        let with_qp = self.desired.tunnel.hash_qp;
        let v6 = || srv6d_wire::ipv6::Header::parse(inner).map(|header| flow::inner_v6(inner, header, with_qp));
        let v4 = || srv6d_wire::ipv4::Header::parse(inner).map(|header| flow::v4(inner, header, with_qp));
        let hash = if matches!(self.packet, Ip::V6(_)) { v6() } else { v4() };
        hash.map_or(0, flow::FlowHash::flow_label)
    }
}

/// Makes the SRH of a path with Next Header still zero. The result is empty if the destination address contains all
/// segments.
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
