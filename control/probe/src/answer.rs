//! Answers to probes: which probe it was, who answers, what with, and which destination the probe had when it got there.
//!
//! Anybody may send such messages. One that does not have the random number of this run is nobody's answer.

use std::net::Ipv6Addr;

use etherparse::icmpv6::{DestUnreachableCode, ParameterProblemCode};
use etherparse::{Icmpv6Slice, Icmpv6Type, IpNumber, Ipv6ExtensionSlice, LaxIpv6Slice};

use crate::probe::{Probe, SRH_TYPE};
use crate::way::State;

/// Length of the header of an ICMPv6 error in front of the quoted packet.
const ERROR_HEADER: usize = 8;
/// Code of a Parameter Problem: a SID takes no such upper-layer header (RFC 8986 section 4.1.1).
const UPPER_LAYER: u8 = 4;
/// Largest number of IPv6 headers inside of each other in a quoted packet: a node on the way may have encapsulated it.
const MAX_NESTING: usize = 4;

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The destination answers the echo request.
    EchoReply,
    /// The hop limit was used up on the way.
    TimeExceeded,
    /// Nobody takes the packet, for this reason; of no known reason, the number of its code.
    Unreachable(Result<DestUnreachableCode, u8>),
    /// The packet is longer than this MTU in bytes.
    TooBig(u32),
    /// A node cannot process a header; the number of the code says why.
    Problem(u8),
}

/// An answer to a probe of this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Number of the probe.
    pub number: u32,
    /// Who answers.
    pub from: Ipv6Addr,
    /// What it says.
    pub kind: Kind,
    /// Destination and segments left of the probe, as the answer quotes them.
    pub quoted: Option<State>,
}

impl Kind {
    /// Whether the probe went no further than this, whatever its hop limit.
    pub const fn is_end(self) -> bool {
        !matches!(self, Self::TimeExceeded)
    }

    /// Whether it says that the probe arrived where it was to go: a port is unreachable, and a SID refuses a payload, only there.
    pub const fn is_arrival(self) -> bool {
        matches!(self, Self::EchoReply | Self::Unreachable(Ok(DestUnreachableCode::Port)) | Self::Problem(UPPER_LAYER))
    }

    /// Describes it in a few words.
    pub fn text(self) -> String {
        match self {
            Self::EchoReply => "echo reply".to_owned(),
            Self::TimeExceeded => "time exceeded".to_owned(),
            Self::Unreachable(Ok(code)) => unreachable(code).to_owned(),
            Self::Unreachable(Err(code)) => format!("unreachable, code {code}"),
            Self::TooBig(mtu) => format!("too big for an MTU of {mtu}"),
            Self::Problem(code) => problem(code),
        }
    }
}

const fn unreachable(code: DestUnreachableCode) -> &'static str {
    match code {
        DestUnreachableCode::NoRoute => "no route",
        DestUnreachableCode::Prohibited => "prohibited",
        DestUnreachableCode::BeyondScope => "beyond the scope of the source",
        DestUnreachableCode::Address => "address unreachable",
        DestUnreachableCode::Port => "port unreachable",
        DestUnreachableCode::SourceAddressFailedPolicy => "source not allowed",
        DestUnreachableCode::RejectRoute => "rejected by a route",
    }
}

fn problem(code: u8) -> String {
    match ParameterProblemCode::from_u8(code) {
        Some(ParameterProblemCode::ErroneousHeaderField) => "erroneous header field".to_owned(),
        Some(ParameterProblemCode::UnrecognizedNextHeader) => "unrecognized next header".to_owned(),
        Some(ParameterProblemCode::SrUpperLayerHeaderError) => "the SID takes no such payload".to_owned(),
        _ => format!("parameter problem, code {code}"),
    }
}

/// Reads an ICMPv6 message. Returns `None` if it is no answer to a probe of this run.
pub fn read(probe: &Probe, from: Ipv6Addr, message: &[u8]) -> Option<Answer> {
    let header = Icmpv6Slice::from_slice(message).ok()?;
    let kind = match header.icmp_type() {
        Icmpv6Type::EchoReply(_) => {
            let number = probe.replied(header.payload())?;
            return Some(Answer { number, from, kind: Kind::EchoReply, quoted: None });
        }
        Icmpv6Type::TimeExceeded(_) => Kind::TimeExceeded,
        Icmpv6Type::DestinationUnreachable(code) => Kind::Unreachable(Ok(code)),
        Icmpv6Type::PacketTooBig { mtu } => Kind::TooBig(mtu),
        Icmpv6Type::ParameterProblem(problem) => Kind::Problem(problem.code.code_u8()),
        Icmpv6Type::Unknown { type_u8: 1, code_u8, .. } => Kind::Unreachable(Err(code_u8)),
        Icmpv6Type::Unknown { type_u8: 4, code_u8, .. } => Kind::Problem(code_u8),
        _ => return None,
    };
    let (number, state) = quoted(probe, message.get(ERROR_HEADER..)?)?;
    Some(Answer { number, from, kind, quoted: Some(state) })
}

/// Finds the probe in a quoted packet, and the state of the header that has its SIDs: the innermost one in front of the
/// payload, or of the inner header that the probe was sent with.
fn quoted(probe: &Probe, packet: &[u8]) -> Option<(u32, State)> {
    let (mut packet, mut states) = (packet, Vec::new());
    while states.len() < MAX_NESTING {
        let (ip, _) = LaxIpv6Slice::from_slice(packet).ok()?;
        let header = ip.header();
        let segments_left = ip.extensions().clone().into_iter().find_map(|extension| match extension {
            Ipv6ExtensionSlice::Routing(routing) => segments_left(routing.slice()),
            _ => None,
        });
        states.push((
            header.source_addr(),
            State { destination: header.destination_addr(), segments_left: segments_left.unwrap_or(0) },
        ));
        if ip.payload().ip_number != IpNumber::IPV6 {
            let number = probe.number_of(ip.payload().ip_number, ip.payload().payload)?;
            // The header of the payload is not that of the SIDs if the probe has an inner one, unless that is all that is left.
            let behind = usize::from(probe.to.is_some()).min(states.len() - 1);
            let own = states.iter().rev().nth(behind).filter(|(source, _)| *source == probe.source);
            return own.map(|(_, state)| (number, *state));
        }
        packet = ip.payload().payload;
    }
    None
}

fn segments_left(routing: &[u8]) -> Option<u8> {
    match routing {
        [_, _, SRH_TYPE, left, ..] => Some(*left),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::probe::{MAX_PAYLOAD, Payload};
    use crate::way::Way;

    const ROUTER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
    /// Offset of the destination in an IPv6 header.
    const DESTINATION: usize = 24;

    fn probe(segments: &[&str], payload: Payload, to: Option<&str>) -> Probe {
        let segments = segments.iter().map(|segment| segment.parse().unwrap()).collect();
        let way = Way::new(segments, "fcbb::/32".parse().unwrap(), 16).unwrap();
        let (source, to) = ("2001:db8::1".parse().unwrap(), to.map(|to| to.parse().unwrap()));
        Probe { ends: way.ends(), way, source, to, payload, length: 56, flow_label: 7, token: *b"\x01random\x02" }
    }

    fn packet(probe: &Probe, number: u32, hop_limit: u8) -> Vec<u8> {
        probe.packets(number, hop_limit).next().unwrap()
    }

    /// Returns an ICMPv6 error about a packet that has been shifted.
    fn error(kind: u8, code: u8, packet: &[u8], destination: &str) -> Vec<u8> {
        let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
        message.extend(packet);
        let destination = destination.parse::<Ipv6Addr>().unwrap().octets();
        message[ERROR_HEADER + DESTINATION..][..16].copy_from_slice(&destination);
        message
    }

    #[test]
    fn a_shifted_destination_does_not_hide_an_answer() {
        for payload in [Payload::Echo, Payload::Udp] {
            for to in [None, Some("2001:db8:9::9")] {
                let probe = probe(&["fcbb:0:1:2:3::"], payload, to);
                let message = error(3, 0, &packet(&probe, 70_000, 2), "fcbb:0:2:3::");
                let answer = read(&probe, ROUTER, &message).unwrap();
                assert_eq!((answer.number, answer.from, answer.kind), (70_000, ROUTER, Kind::TimeExceeded));
                assert_eq!(probe.way.used(answer.quoted.unwrap(), 0), Some(1), "{payload:?} {to:?}");
            }
        }
    }

    #[test]
    fn segments_left_of_a_quoted_srh_say_which_segment_it_was() {
        let probe = probe(&["fcbb:0:1:2::", "fcbb:0:1:2::"], Payload::Echo, None);
        let mut packet = packet(&probe, 1, 9);
        packet[40 + 3] = 0;
        let answer = read(&probe, ROUTER, &error(3, 0, &packet, "fcbb:0:2::")).unwrap();
        assert_eq!(probe.way.used(answer.quoted.unwrap(), 0), Some(3));
    }

    #[test]
    fn ends_are_told_by_their_reason() {
        let probe = probe(&["fcbb:0:1::"], Payload::Udp, None);
        let packet = packet(&probe, 1, 9);
        for (kind, code, text) in [
            (1, 0, "no route"),
            (1, 4, "port unreachable"),
            (1, 99, "unreachable, code 99"),
            (4, 4, "the SID takes no such payload"),
            (4, 200, "parameter problem, code 200"),
        ] {
            let answer = read(&probe, ROUTER, &error(kind, code, &packet, "fcbb:0:1::")).unwrap();
            assert_eq!((answer.kind.text().as_str(), answer.kind.is_end()), (text, true));
        }
    }

    #[test]
    fn a_packet_that_was_encapsulated_on_the_way_is_found_inside() {
        let probe = probe(&["fcbb:0:1:2::"], Payload::Echo, None);
        let mut outer = packet(&probe, 1, 9);
        outer.truncate(40);
        outer[6] = 41;
        outer[8..DESTINATION].copy_from_slice(&ROUTER.octets());
        let mut inner = packet(&probe, 1, 9);
        inner[DESTINATION..40].copy_from_slice(&"fcbb:0:2::".parse::<Ipv6Addr>().unwrap().octets());
        outer.extend(inner);
        let answer = read(&probe, ROUTER, &error(3, 0, &outer, "2001:db8:7::")).unwrap();
        assert_eq!(probe.way.used(answer.quoted.unwrap(), 0), Some(1));
    }

    #[test]
    fn what_others_were_sent_is_no_answer() {
        let probe = probe(&["fcbb:0:1:2::"], Payload::Echo, None);
        let other = Probe { token: *b"\x01random\x03", ..probe.clone() };
        let datagram = Probe { payload: Payload::Udp, ..probe.clone() };
        let elsewhere = Probe { source: ROUTER, ..probe.clone() };
        for sent in [other, datagram, elsewhere] {
            let message = error(3, 0, &packet(&sent, 1, 9), "fcbb:0:2::");
            assert!(read(&sent, ROUTER, &message).is_some());
            assert_eq!(read(&probe, ROUTER, &message), None);
        }
    }

    #[test]
    fn no_length_and_no_byte_is_too_strange() {
        for to in [None, Some("2001:db8:9::9")] {
            let probe = probe(&["fcbb:0:1:2::", "fcbb:0:3::"], Payload::Echo, to);
            let message = error(3, 0, &packet(&probe, 1, 9), "fcbb:0:2::");
            let whole = message.len();
            let first = (0..=whole).find(|length| read(&probe, ROUTER, &message[..*length]).is_some()).unwrap();
            assert_eq!(
                first,
                whole - (56 - 12),
                "the random number and the number of the probe are enough, and needed"
            );
            for place in 0..whole {
                for value in 0..=u8::MAX {
                    let mut strange = message.clone();
                    strange[place] = value;
                    read(&probe, ROUTER, &strange);
                }
            }
        }
    }

    #[test]
    fn lengths_are_bounded() {
        let longest = Probe { length: usize::MAX, ..probe(&["fcbb:0:1::"; 8], Payload::Echo, Some("::1:1")) };
        assert!(packet(&longest, 0, 1).len() <= 1280, "{}", packet(&longest, 0, 1).len());
        let empty = Probe { length: 0, ..probe(&["fcbb:0:1::"], Payload::Udp, None) };
        assert_eq!(packet(&empty, 0, 1).len(), 40 + 8 + 12);
        const { assert!(MAX_PAYLOAD >= 1000) };
    }
}
