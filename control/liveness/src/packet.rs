//! The packet of a probe: the outer header that the path's packets have, an inner one to this node, UDP, and the payload.

use std::net::Ipv6Addr;

use etherparse::{IpNumber, Ipv6FlowLabel, Ipv6Header, UdpHeader};

/// Hop limit of both headers.
const HOP_LIMIT: u8 = 64;
/// Traffic class: DSCP 0, ECT(0), so that congested ports mark probes as they mark data (RFC 3168).
const ECT_0: u8 = 0x02;
/// Flow labels of probes begin with this bit, so that it is never 0.
const LABELS: u32 = 0x1_0000;

/// The addresses of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Outer source, that of the path's packets.
    pub source: Ipv6Addr,
    /// Carrier of the loop.
    pub carrier: Ipv6Addr,
    /// This node's address, to which the probe comes back.
    pub address: Ipv6Addr,
    /// UDP port, source and destination.
    pub port: u16,
}

impl Probe {
    /// Returns the whole packet, from the outer header on. The flow label follows from the number of the probe, so that
    /// nodes that choose among several next hops choose all of them in turn.
    pub fn packet(&self, number: u32, payload: &[u8]) -> Vec<u8> {
        let address = self.address.octets();
        let length = u16::try_from(payload.len() + UdpHeader::LEN).unwrap_or(u16::MAX);
        let mut udp = UdpHeader { source_port: self.port, destination_port: self.port, length, checksum: 0 };
        udp.checksum = udp.calc_checksum_ipv6_raw(address, address, payload).unwrap_or(0);
        let label = LABELS | (number & 0xffff);
        let inner = header(self.address, self.address, IpNumber::UDP, length, label);
        let inner_length = length.saturating_add(u16::try_from(Ipv6Header::LEN).unwrap_or(u16::MAX));
        let outer = header(self.source, self.carrier, IpNumber::IPV6, inner_length, label);
        [&outer.to_bytes()[..], &inner.to_bytes()[..], &udp.to_bytes()[..], payload].concat()
    }
}

fn header(source: Ipv6Addr, destination: Ipv6Addr, next_header: IpNumber, length: u16, label: u32) -> Ipv6Header {
    Ipv6Header {
        traffic_class: ECT_0,
        flow_label: Ipv6FlowLabel::try_new(label).unwrap_or_default(),
        payload_length: length,
        next_header,
        hop_limit: HOP_LIMIT,
        source: source.octets(),
        destination: destination.octets(),
    }
}
