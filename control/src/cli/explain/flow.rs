//! Packets in words: `from 2001:db8::1 to fcbb:0:800:2::2 udp 1000 2000`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use etherparse::{
    IcmpEchoHeader, Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpNumber, Ipv4Header, Ipv6FlowLabel,
    Ipv6Header, TcpHeader, UdpHeader,
};

/// Largest number of IP headers, one inside the other.
const NESTING: usize = 4;
/// Protocol of a packet whose protocol is not given: for experiments (RFC 3692).
const EXPERIMENTAL: u8 = 253;

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    pub source: IpAddr,
    pub destination: IpAddr,
    payload: Payload,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Payload {
    Udp([u16; 2]),
    Tcp([u16; 2]),
    /// An echo request.
    Icmp,
    Protocol(u8),
    Carried(Box<Flow>),
}

/// Fields of a packet's outermost header.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    /// Length of the IP packet in bytes. `None`: as short as it can be.
    pub length: Option<usize>,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub flow_label: u32,
}

impl Flow {
    /// Reads the words. Returns an error that says what is wrong with them.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let words: Vec<&str> = words.iter().flat_map(|word| word.split_whitespace()).collect();
        Self::parse_nested(&words, NESTING)
    }

    fn parse_nested(words: &[&str], depth: usize) -> Result<Self, String> {
        let ["from", source, "to", destination, rest @ ..] = words else {
            return Err("a packet begins with `from SOURCE to DESTINATION`".to_owned());
        };
        let (source, destination): (IpAddr, IpAddr) =
            (read("source", source, "an IP address")?, read("destination", destination, "an IP address")?);
        if source.is_ipv6() != destination.is_ipv6() {
            return Err(format!("{source} and {destination} are of two families"));
        }
        let ports = |source: &str, destination: &str| {
            const WHAT: &str = "a number up to 65535";
            Ok::<_, String>([read("source port", source, WHAT)?, read("destination port", destination, WHAT)?])
        };
        let payload = match *rest {
            [] => Payload::Protocol(EXPERIMENTAL),
            ["udp", from, to] => Payload::Udp(ports(from, to)?),
            ["tcp", from, to] => Payload::Tcp(ports(from, to)?),
            ["icmp" | "icmp6"] => Payload::Icmp,
            ["proto", number] => Payload::Protocol(read("protocol", number, "a number up to 255")?),
            ["carrying", ..] if depth == 1 => return Err(format!("more than {NESTING} IP headers")),
            ["carrying", ref inner @ ..] => Payload::Carried(Box::new(Self::parse_nested(inner, depth - 1)?)),
            ["udp" | "tcp", ..] => return Err(format!("{} needs two ports: `{0} 1000 2000`", rest.join(" "))),
            _ => {
                let known = "udp, tcp, icmp, proto, carrying";
                return Err(format!("`{}` is no payload: one of {known}", rest.join(" ")));
            }
        };
        Ok(Self { source, destination, payload })
    }

    /// Makes the packet.
    pub fn packet(&self, fields: &Fields) -> Result<Vec<u8>, String> {
        let shortest = self.bytes(0, fields)?;
        let Some(padding) = fields.length.unwrap_or(shortest.len()).checked_sub(shortest.len()) else {
            return Err(format!("--length must be {} at least: so long are the headers", shortest.len()));
        };
        self.bytes(padding, fields)
    }

    /// Makes the packet with so many bytes of data in its innermost payload.
    fn bytes(&self, padding: usize, fields: &Fields) -> Result<Vec<u8>, String> {
        let data = vec![0; padding];
        match (self.source, self.destination) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => self.v6(source, destination, &data, fields),
            (IpAddr::V4(source), IpAddr::V4(destination)) => self.v4(source, destination, &data, fields),
            _ => Err("the addresses are of two families".to_owned()),
        }
    }

    fn v6(&self, source: Ipv6Addr, destination: Ipv6Addr, data: &[u8], fields: &Fields) -> Result<Vec<u8>, String> {
        let mut header = Ipv6Header {
            traffic_class: fields.traffic_class,
            flow_label: Ipv6FlowLabel::try_new(fields.flow_label).map_err(|why| why.to_string())?,
            hop_limit: fields.hop_limit,
            source: source.octets(),
            destination: destination.octets(),
            ..Ipv6Header::default()
        };
        let upper = match &self.payload {
            Payload::Udp([from, to]) => {
                let udp = UdpHeader::with_ipv6_checksum(*from, *to, &header, data).map_err(|why| why.to_string())?;
                (17, [&udp.to_bytes(), data].concat())
            }
            Payload::Tcp(ports) => {
                let mut tcp = syn(*ports);
                tcp.checksum = tcp.calc_checksum_ipv6(&header, data).map_err(|why| why.to_string())?;
                (6, [&tcp.to_bytes(), data].concat())
            }
            Payload::Icmp => {
                let echo = Icmpv6Type::EchoRequest(ECHO);
                let icmp = Icmpv6Header::with_checksum(echo, header.source, header.destination, data);
                (58, [&icmp.map_err(|why| why.to_string())?.to_bytes(), data].concat())
            }
            other => other.without_checksum(data, fields)?,
        };
        header.next_header = IpNumber(upper.0);
        header.payload_length = u16::try_from(upper.1.len()).map_err(|_| "the packet is too long".to_owned())?;
        Ok([&header.to_bytes(), upper.1.as_slice()].concat())
    }

    fn v4(&self, source: Ipv4Addr, destination: Ipv4Addr, data: &[u8], fields: &Fields) -> Result<Vec<u8>, String> {
        let mut header = Ipv4Header {
            time_to_live: fields.hop_limit,
            source: source.octets(),
            destination: destination.octets(),
            ..Ipv4Header::default()
        };
        let upper = match &self.payload {
            Payload::Udp([from, to]) => {
                let udp = UdpHeader::with_ipv4_checksum(*from, *to, &header, data).map_err(|why| why.to_string())?;
                (17, [&udp.to_bytes(), data].concat())
            }
            Payload::Tcp(ports) => {
                let mut tcp = syn(*ports);
                tcp.checksum = tcp.calc_checksum_ipv4(&header, data).map_err(|why| why.to_string())?;
                (6, [&tcp.to_bytes(), data].concat())
            }
            Payload::Icmp => {
                let icmp = Icmpv4Header::with_checksum(Icmpv4Type::EchoRequest(ECHO), data);
                (1, [&icmp.to_bytes(), data].concat())
            }
            other => other.without_checksum(data, fields)?,
        };
        header.protocol = IpNumber(upper.0);
        header.set_payload_len(upper.1.len()).map_err(|why| why.to_string())?;
        let mut bytes = header.to_bytes().to_vec();
        // The class has two parts in the header's type; on the wire it is one byte.
        if let Some(class) = bytes.get_mut(1) {
            *class = fields.traffic_class;
        }
        let sum = Ipv4Header::from_slice(&bytes).map_err(|why| why.to_string())?.0.calc_header_checksum();
        if let Some(slot) = bytes.get_mut(10..12) {
            slot.copy_from_slice(&sum.to_be_bytes());
        }
        Ok([bytes, upper.1].concat())
    }
}

const ECHO: IcmpEchoHeader = IcmpEchoHeader { id: 1, seq: 1 };

impl Payload {
    /// Returns protocol number and bytes of a payload that has no checksum over the addresses.
    fn without_checksum(&self, data: &[u8], fields: &Fields) -> Result<(u8, Vec<u8>), String> {
        match self {
            Self::Carried(inner) => {
                let fields = Fields { length: None, hop_limit: 64, flow_label: 0, ..*fields };
                let number = if inner.source.is_ipv6() { 41 } else { 4 };
                Ok((number, inner.bytes(data.len(), &fields)?))
            }
            Self::Protocol(number) => Ok((*number, data.to_vec())),
            Self::Udp(_) | Self::Tcp(_) | Self::Icmp => Err("the payload has a checksum".to_owned()),
        }
    }
}

fn syn([from, to]: [u16; 2]) -> TcpHeader {
    let mut header = TcpHeader::new(from, to, 1, 65_535);
    header.syn = true;
    header
}

fn read<T: FromStr>(name: &str, word: &str, what: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{name} {word:?} is not {what}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test may panic")]
    use super::*;

    const PLAIN: Fields = Fields { length: None, hop_limit: 64, traffic_class: 0, flow_label: 0 };

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn summary(text: &str, fields: Fields) -> String {
        let flow = Flow::parse(&words(text)).unwrap();
        let mut frame = vec![2; 12];
        frame.extend(if flow.source.is_ipv6() { [0x86, 0xdd] } else { [8, 0] });
        frame.extend(flow.packet(&fields).unwrap());
        srv6d_show::packet::summary(&frame)
    }

    #[test]
    fn words_become_the_packet() {
        let long = Fields { length: Some(1500), hop_limit: 7, ..PLAIN };
        assert_eq!(
            summary("from 2001:db8::1 to fcbb:0:800:2::2 udp 1000 2000", long),
            "2001:db8::1 > fcbb:0:800:2::2 hlim 7, UDP 1000 > 2000, 1514 bytes"
        );
        assert_eq!(
            summary("from 10.0.0.1 to 10.0.0.2 tcp 1 2", PLAIN),
            "10.0.0.1 > 10.0.0.2 ttl 64, TCP 1 > 2, 54 bytes"
        );
        assert_eq!(
            summary("from ::1:1 to ::1:2 carrying from 10.0.0.1 to 10.0.0.2 icmp", PLAIN),
            "::1:1 > ::1:2 hlim 64, [10.0.0.1 > 10.0.0.2 ttl 64, ICMP type 8 code 0], 82 bytes"
        );
        let classed = Flow::parse(&words("from 10.0.0.1 to 10.0.0.2 proto 89")).unwrap();
        let bytes = classed.packet(&Fields { traffic_class: 0xb9, ..PLAIN }).unwrap();
        let (header, _) = Ipv4Header::from_slice(&bytes).unwrap();
        assert_eq!((bytes.get(1), header.calc_header_checksum()), (Some(&0xb9), header.header_checksum));
    }

    #[test]
    fn what_is_wrong_with_the_words_is_said() {
        let wrong = |text: &str| Flow::parse(&words(text)).unwrap_err();
        assert!(wrong("2001:db8::1 to ::2").contains("begins with `from"));
        assert!(wrong("from 2001:db8::1 to 10.0.0.1").contains("two families"));
        assert!(wrong("from x to ::2").contains("source \"x\" is not an IP address"));
        assert!(wrong("from ::1 to ::2 udp 70000 1").contains("up to 65535"));
        assert!(wrong("from ::1 to ::2 udp 7").contains("two ports"));
        assert!(wrong("from ::1 to ::2 sctp").contains("one of udp"));
        let deep = ["from ::1 to ::2"; 5].join(" carrying ");
        assert!(wrong(&deep).contains("more than 4 IP headers"));
        let short = Flow::parse(&words("from ::1 to ::2 udp 1 2")).unwrap();
        assert!(short.packet(&Fields { length: Some(40), ..PLAIN }).unwrap_err().contains("48 at least"));
    }
}
