//! ICMP errors, pings and transport checksums: RFC 4443, RFC 792, RFC 1812.

use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::checksum::Sum16BitWords;
use etherparse::{IpNumber, Ipv4Header, Ipv6Header};

use srv6d_srv6::desired::Role;

use crate::forward::Travel;
use crate::packet::{Chain, Ip, Malformed, V4, V6};
use crate::scope::is_nobody;

/// Hop limit of packets that this node sends itself.
const HOP_LIMIT: u8 = 64;
/// Largest ICMPv6 error in bytes, IPv6 header included (RFC 4443 section 2.4 c).
const MAX_V6: usize = 1280;
/// Largest ICMP error in bytes, IPv4 header included (RFC 1812 section 4.3.2.3).
const MAX_V4: usize = 576;
/// Length of the ICMP header in bytes.
const ICMP: usize = 8;
/// Source of an ICMP error if the node has no IPv4 address (RFC 7600 section 4.8).
const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// Contents of an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// No route to the destination.
    Unreachable,
    /// Hop limit exceeded in transit.
    TimeExceeded,
    /// Packet too big, with the size that would fit.
    TooBig(usize),
    /// Erroneous header field, at this offset.
    BadField(usize),
    /// Unrecognized IPv6 option, at this offset.
    UnknownOption(usize),
    /// SR upper-layer header error (RFC 8986 section 10.3), at this offset.
    BadUpperLayer(usize),
}

impl Message {
    /// Returns the message with `place` applied to the offset that it points at, if it has one.
    pub(crate) fn moved(self, place: impl Fn(usize) -> usize) -> Self {
        match self {
            Self::BadField(at) => Self::BadField(place(at)),
            Self::UnknownOption(at) => Self::UnknownOption(place(at)),
            Self::BadUpperLayer(at) => Self::BadUpperLayer(place(at)),
            other => other,
        }
    }

    /// Returns type, code, and the 32 bits behind the checksum.
    fn v6(self) -> (u8, u8, u32) {
        let word = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        match self {
            Self::Unreachable => (1, 0, 0),
            Self::TooBig(mtu) => (2, 0, word(mtu)),
            Self::TimeExceeded => (3, 0, 0),
            Self::BadField(at) => (4, 0, word(at)),
            Self::UnknownOption(at) => (4, 2, word(at)),
            Self::BadUpperLayer(at) => (4, 4, word(at)),
        }
    }

    fn v4(self) -> Option<(u8, u8, u32)> {
        match self {
            Self::Unreachable => Some((3, 0, 0)),
            Self::TooBig(mtu) => Some((3, 4, u32::try_from(mtu).unwrap_or(u32::MAX) & 0xffff)),
            Self::TimeExceeded => Some((11, 0, 0)),
            Self::BadField(_) | Self::UnknownOption(_) | Self::BadUpperLayer(_) => None,
        }
    }
}

/// Makes the error about the packet of `travel`, unless the rules forbid an answer.
pub(crate) fn error(travel: &Travel<'_>, message: Message) -> Option<Ip> {
    if travel.desired.policy.icmp_per_second == 0 || is_nobody(travel.received.source()) {
        return None;
    }
    match &travel.received {
        Ip::V6(packet) if !is_v6_error(packet) => {
            let source = travel.port.icmp_source_v6.or(travel.desired.tunnel.source)?;
            Some(v6(source, packet.header.source_addr(), message.v6(), &travel.received.bytes()))
        }
        Ip::V4(packet) if !is_v4_error(packet) && packet.header.fragment_offset.value() == 0 => {
            // Linux accepts no packet whose source is its own address, so an error to the kernel behind the own veth
            // needs another source.
            let own = travel.port.icmp_source_v4.filter(|_| travel.port.role != Role::Kernel);
            let source = own.unwrap_or(DUMMY);
            Some(v4(source, packet.header.source.into(), message.v4()?, &travel.received.bytes()))
        }
        _ => None,
    }
}

/// Returns whether the packet is an `ICMPv6` error (of any type) or a redirect (RFC 4443 section 2.4 e.1 and e.2). A
/// packet cut before the type may be one, so it counts.
fn is_v6_error(packet: &V6) -> bool {
    let chain = packet.chain(true);
    if chain.fragment && chain.upper != IpNumber::IPV6_ICMP {
        return chain.is_first_fragment()
            && chain.upper != IpNumber::IPV6_HEADER_HOP_BY_HOP
            && is_v6_error(&chain.rest(packet));
    }
    let kind = chain.payload.first().copied().filter(|_| chain.is_first_fragment());
    chain.upper == IpNumber::IPV6_ICMP && kind.is_none_or(|kind| kind < 128 || kind == 137)
}

/// Returns whether the packet is ICMP other than a query or its answer (RFC 1812 section 4.3.2.7). An unknown type may
/// be an error, so it counts.
fn is_v4_error(packet: &V4) -> bool {
    let is_query = |kind: u8| matches!(kind, 0 | 8..=10 | 13..=18);
    packet.header.protocol == IpNumber::ICMP && !packet.payload.first().copied().is_some_and(is_query)
}

fn message(kind: u8, code: u8, word: u32, quote: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, code, 0, 0];
    bytes.extend(word.to_be_bytes());
    bytes.extend(quote);
    bytes
}

/// Writes the checksum over `bytes` and the pseudo-header at offset `at`.
fn set_checksum(bytes: &mut [u8], at: usize, pseudo: Sum16BitWords) {
    for slot in bytes.iter_mut().skip(at).take(2) {
        *slot = 0;
    }
    let sum = pseudo.add_slice(bytes).ones_complement();
    for (slot, byte) in bytes.iter_mut().skip(at).zip(sum.to_ne_bytes()) {
        *slot = byte;
    }
}

fn pseudo_v6(source: Ipv6Addr, destination: Ipv6Addr, number: IpNumber, len: usize) -> Sum16BitWords {
    Sum16BitWords::new()
        .add_16bytes(source.octets())
        .add_16bytes(destination.octets())
        .add_4bytes(u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes())
        .add_2bytes([0, number.0])
}

fn v6_packet(source: Ipv6Addr, destination: Ipv6Addr, mut payload: Vec<u8>) -> Ip {
    let pseudo = pseudo_v6(source, destination, IpNumber::IPV6_ICMP, payload.len());
    set_checksum(&mut payload, 2, pseudo);
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: etherparse::Ipv6FlowLabel::ZERO,
        payload_length: 0,
        next_header: IpNumber::IPV6_ICMP,
        hop_limit: HOP_LIMIT,
        source: source.octets(),
        destination: destination.octets(),
    };
    Ip::V6(V6 { header, payload })
}

fn v6(source: Ipv6Addr, destination: Ipv6Addr, (kind, code, word): (u8, u8, u32), about: &[u8]) -> Ip {
    let quote = about.get(..MAX_V6 - Ipv6Header::LEN - ICMP).unwrap_or(about);
    v6_packet(source, destination, message(kind, code, word, quote))
}

fn v4(source: Ipv4Addr, destination: Ipv4Addr, (kind, code, word): (u8, u8, u32), about: &[u8]) -> Ip {
    let quote = about.get(..MAX_V4 - Ipv4Header::MIN_LEN - ICMP).unwrap_or(about);
    let mut payload = message(kind, code, word, quote);
    set_checksum(&mut payload, 2, Sum16BitWords::new());
    let header = Ipv4Header {
        time_to_live: HOP_LIMIT,
        protocol: IpNumber::ICMP,
        dont_fragment: false,
        source: source.octets(),
        destination: destination.octets(),
        ..Ipv4Header::default()
    };
    Ip::V4(V4 { header, reserved_flag: false, payload })
}

/// Returns whether the packet is an echo request, complete or not.
pub(crate) fn is_echo_request(chain: &Chain) -> bool {
    chain.upper == IpNumber::IPV6_ICMP && chain.payload.first() == Some(&128)
}

/// Makes the answer to a ping: its source is the address that was pinged, and it has no extension headers. A request
/// without a complete header or with a wrong checksum (RFC 4443 section 2.3) is malformed.
pub(crate) fn echo_reply(packet: &V6, chain: &Chain) -> Result<Ip, Malformed> {
    let len = chain.payload.len();
    let pseudo = pseudo_v6(packet.header.source_addr(), packet.destination(), IpNumber::IPV6_ICMP, len);
    if len < ICMP || pseudo.add_slice(&chain.payload).ones_complement() != 0 {
        return Err(Malformed);
    }
    let mut reply = chain.payload.clone();
    if let Some(kind) = reply.first_mut() {
        *kind = 129;
    }
    Ok(v6_packet(packet.destination(), packet.header.source_addr(), reply))
}

/// Fills in the checksum of a complete TCP segment or UDP datagram.
pub(crate) fn fill_transport_checksum(packet: &mut Ip) {
    let (number, len, pseudo) = match packet {
        Ip::V6(inner) => {
            let (number, len) = (inner.header.next_header, inner.payload.len());
            (number, len, pseudo_v6(inner.header.source_addr(), inner.destination(), number, len))
        }
        Ip::V4(inner) if !inner.is_fragment() => {
            let (number, len) = (inner.header.protocol, inner.payload.len());
            let pseudo = Sum16BitWords::new().add_4bytes(inner.header.source).add_4bytes(inner.header.destination);
            let len_bytes = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
            (number, len, pseudo.add_2bytes([0, number.0]).add_2bytes(len_bytes))
        }
        Ip::V4(_) => return,
    };
    let at = match number {
        IpNumber::UDP => 6,
        IpNumber::TCP => 16,
        _ => return,
    };
    if len < at + 2 {
        return;
    }
    let payload = match packet {
        Ip::V6(inner) => &mut inner.payload,
        Ip::V4(inner) => &mut inner.payload,
    };
    set_checksum(payload, at, pseudo);
    // Zero would mean that there is no checksum (RFC 768).
    if let (IpNumber::UDP, Some([high @ 0, low @ 0])) = (number, payload.get_mut(at..at + 2)) {
        (*high, *low) = (0xff, 0xff);
    }
}
