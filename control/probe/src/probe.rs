//! The bytes of a probe: IPv6, an SRH if there are several segments, an inner header if wanted, and an echo request or a
//! datagram.

use std::net::Ipv6Addr;

use etherparse::{IcmpEchoHeader, Icmpv6Header, Icmpv6Type, IpNumber, Ipv6FlowLabel, Ipv6Header, UdpHeader};

use crate::way::Way;

/// Length of the number by which probes of one run are recognized.
pub const TOKEN: usize = 8;
/// Shortest payload in bytes: the token, and the number of the probe.
const MIN_PAYLOAD: usize = TOKEN + 4;
/// Longest payload in bytes. With eight segments and an inner header the packet is shorter than the smallest MTU.
pub const MAX_PAYLOAD: usize = 1024;
/// Destination port of a datagram: that of traceroute, on which nobody listens.
pub const UDP_PORT: u16 = 33434;
/// Hop limit of the inner header.
const INNER_HOP_LIMIT: u8 = 64;
/// Length of the header of an echo request, and of a datagram.
const UPPER_HEADER: usize = 8;
/// Type of an echo request.
const ECHO_REQUEST: u8 = 128;
/// Type of a routing header that has segments (RFC 8754).
pub const SRH_TYPE: u8 = 4;

/// What stands behind the headers of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// An ICMPv6 echo request.
    #[default]
    Echo,
    /// A UDP datagram to a port on which nobody listens.
    Udp,
}

/// The probes of one run.
#[derive(Clone, Debug)]
pub struct Probe {
    /// SIDs of the probe.
    pub way: Way,
    /// Source address of all headers.
    pub source: Ipv6Addr,
    /// Destination of an inner header, which is in front of the payload.
    pub to: Option<Ipv6Addr>,
    /// Destinations with which the payload may arrive, which its checksum is made for. They are usually those of
    /// [`Way::ends`].
    pub ends: Vec<Ipv6Addr>,
    /// The payload.
    pub payload: Payload,
    /// Length of the payload in bytes, 12 to [`MAX_PAYLOAD`]; other lengths become these.
    pub length: usize,
    /// Flow label of the outer header.
    pub flow_label: u32,
    /// Random number in the payload of every probe.
    pub token: [u8; TOKEN],
}

impl Probe {
    /// Returns the packets of one probe: one for each destination with which it may arrive, or one for that of the inner
    /// header.
    pub fn packets(&self, number: u32, hop_limit: u8) -> impl Iterator<Item = Vec<u8>> {
        let ends = self.to.as_ref().map_or(self.ends.as_slice(), std::slice::from_ref);
        ends.iter().map(move |end| self.packet(number, hop_limit, *end))
    }

    /// Leaves out the other destinations if the payload is known to have arrived with this one.
    pub fn has_arrived_at(&mut self, end: Ipv6Addr) {
        if self.ends.contains(&end) {
            self.ends = vec![end];
        }
    }

    /// Returns the whole packet of one probe, with a checksum for a destination.
    fn packet(&self, number: u32, hop_limit: u8, destination: Ipv6Addr) -> Vec<u8> {
        let mut packet = self.upper(number, destination);
        let mut next_header = self.protocol();
        if let Some(inner) = self.to {
            packet = with_header(&self.header(inner, next_header, INNER_HOP_LIMIT), packet);
            next_header = IpNumber::IPV6;
        }
        if self.way.segments().len() > 1 {
            packet.splice(..0, srh(self.way.segments(), next_header));
            next_header = IpNumber::IPV6_ROUTE_HEADER;
        }
        let mut outer = self.header(self.way.first(), next_header, hop_limit);
        outer.flow_label = Ipv6FlowLabel::try_new(self.flow_label).unwrap_or_default();
        with_header(&outer, packet)
    }

    /// Returns the number of a probe whose upper-layer header and payload these are, if it is one of this run.
    pub fn number_of(&self, protocol: IpNumber, upper: &[u8]) -> Option<u32> {
        let (header, payload) = upper.split_at_checked(UPPER_HEADER)?;
        let is_own = protocol == self.protocol() && self.is_header(header);
        self.numbered(payload).filter(|_| is_own)
    }

    /// Returns the number in the payload of an echo reply, if it is one of this run.
    pub fn replied(&self, reply: &[u8]) -> Option<u32> {
        self.numbered(reply).filter(|_| self.payload == Payload::Echo)
    }

    /// Returns the number in a payload that begins as those of this run.
    fn numbered(&self, payload: &[u8]) -> Option<u32> {
        let (number, _) = payload.strip_prefix(&self.token)?.split_first_chunk()?;
        Some(u32::from_be_bytes(*number))
    }

    fn protocol(&self) -> IpNumber {
        match self.payload {
            Payload::Echo => IpNumber::IPV6_ICMP,
            Payload::Udp => IpNumber::UDP,
        }
    }

    /// Returns identifier or source port: the flow, which is the same for all probes.
    fn flow(&self) -> u16 {
        let [.., high, low] = self.token;
        u16::from_be_bytes([high, low]) | 0xc000
    }

    fn header(&self, destination: Ipv6Addr, next_header: IpNumber, hop_limit: u8) -> Ipv6Header {
        let (source, destination) = (self.source.octets(), destination.octets());
        Ipv6Header { source, destination, next_header, hop_limit, ..Ipv6Header::default() }
    }

    /// Whether an upper-layer header begins as those of this run do.
    fn is_header(&self, header: &[u8]) -> bool {
        match self.payload {
            Payload::Echo => header.starts_with(&[ECHO_REQUEST, 0]),
            Payload::Udp => header.starts_with(&[self.flow().to_be_bytes(), UDP_PORT.to_be_bytes()].concat()),
        }
    }

    fn upper(&self, number: u32, destination: Ipv6Addr) -> Vec<u8> {
        let mut payload = self.token.to_vec();
        payload.extend(number.to_be_bytes());
        payload.resize(self.length.clamp(MIN_PAYLOAD, MAX_PAYLOAD), 0);
        let (source, destination) = (self.source.octets(), destination.octets());
        let mut upper = match self.payload {
            Payload::Echo => {
                let [_, _, high, low] = number.to_be_bytes();
                let echo = IcmpEchoHeader { id: self.flow(), seq: u16::from_be_bytes([high, low]) };
                let header = Icmpv6Header::with_checksum(Icmpv6Type::EchoRequest(echo), source, destination, &payload);
                header.map_or_else(|_| Vec::new(), |header| header.to_bytes().to_vec())
            }
            Payload::Udp => {
                let length = u16::try_from(payload.len() + UdpHeader::LEN).unwrap_or(u16::MAX);
                let mut header =
                    UdpHeader { source_port: self.flow(), destination_port: UDP_PORT, length, checksum: 0 };
                header.checksum = header.calc_checksum_ipv6_raw(source, destination, &payload).unwrap_or(0);
                header.to_bytes().to_vec()
            }
        };
        upper.extend(payload);
        upper
    }
}

/// Puts an IPv6 header in front of a payload.
fn with_header(header: &Ipv6Header, payload: Vec<u8>) -> Vec<u8> {
    let payload_length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    let mut packet = Ipv6Header { payload_length, ..header.clone() }.to_bytes().to_vec();
    packet.extend(payload);
    packet
}

/// Returns an SRH without TLVs that has all segments (RFC 8754 section 2).
fn srh(segments: &[Ipv6Addr], next_header: IpNumber) -> Vec<u8> {
    let last = u8::try_from(segments.len().saturating_sub(1)).unwrap_or(u8::MAX);
    let length = 2 * (last + 1);
    let mut header = vec![next_header.0, length, SRH_TYPE, last, last, 0, 0, 0];
    header.extend(segments.iter().rev().flat_map(Ipv6Addr::octets));
    header
}
