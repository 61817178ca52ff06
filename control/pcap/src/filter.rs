//! A filter expression over all headers of a packet, outer and inner ones.
//!
//! The words are those of tcpdump. What differs: a word looks at every layer of a packet, so `host` finds an inner address, too,
//! and `sid` finds a carrier.

use std::net::IpAddr;

use etherparse::{IpNumber, Ipv6ExtensionSlice, LaxIpSlice};
use ipnet::IpNet;

/// Largest number of words of an expression.
const MOST_WORDS: usize = 256;
/// Largest number of parentheses and negations inside of each other.
const MOST_DEPTH: usize = 32;
/// Largest number of IP headers of a packet that are looked at.
const MOST_LAYERS: usize = 8;

const VLAN_TYPES: [u16; 2] = [0x8100, 0x88a8];
const IP_TYPES: [u16; 2] = [0x0800, 0x86dd];
/// Routing type of an SRH (RFC 8754).
const SRH: u8 = 4;

/// Why an expression is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A word is wrong or missing.
    #[error("in the filter, {expected} is expected{}", found.as_ref().map_or_else(|| " at the end".to_owned(), |word| format!(", not {word:?}")))]
    Expected {
        /// What was expected.
        expected: &'static str,
        /// The word in its place. `None`: the expression ends.
        found: Option<String>,
    },
    /// There are too many words or parentheses.
    #[error("the filter has more than {MOST_WORDS} words, or {MOST_DEPTH} parentheses inside of each other")]
    TooLong,
}

/// A filter expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Both.
    And(Box<Self>, Box<Self>),
    /// At least one.
    Or(Box<Self>, Box<Self>),
    /// Not.
    Not(Box<Self>),
    /// An address of a header is in a prefix.
    Address(End, IpNet),
    /// A destination, or a segment of an SRH, is in a prefix.
    Sid(IpNet),
    /// An upper-layer protocol, or a version of IP.
    Protocol(Protocol),
    /// A port of TCP or UDP.
    Port(End, u16),
    /// A VLAN tag. `None`: any.
    Vlan(Option<u16>),
}

/// End of a packet that a word looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The source.
    Source,
    /// The destination.
    Destination,
    /// Either.
    Any,
}

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Version 4 of IP.
    Ip4,
    /// Version 6 of IP.
    Ip6,
    /// A number of an upper layer.
    Upper(u8),
}

/// One IP header of a packet, with what stands behind it.
struct Layer {
    is_v6: bool,
    source: IpAddr,
    destination: IpAddr,
    segments: Vec<IpAddr>,
    protocol: u8,
    ports: Option<[u16; 2]>,
}

/// What is looked at of a packet.
struct Headers {
    vlans: Vec<u16>,
    layers: Vec<Layer>,
}

impl Filter {
    /// Parses an expression: `sid fcbb:0:1004::/48 and not (icmp6 or port 22)`.
    ///
    /// # Errors
    /// Returns [`FilterError`].
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('!', " ! ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        if words.len() > MOST_WORDS {
            return Err(FilterError::TooLong);
        }
        let mut words = Words { words: &words, depth: 0 };
        let filter = words.any_of()?;
        match words.next() {
            None => Ok(filter),
            found => Err(expected("`and`, `or` or the end", found)),
        }
    }

    /// Whether a frame fits.
    pub fn fits(&self, frame: &[u8]) -> bool {
        self.holds(&Headers::of(frame))
    }

    fn holds(&self, headers: &Headers) -> bool {
        let layers = headers.layers.iter();
        match self {
            Self::And(one, other) => one.holds(headers) && other.holds(headers),
            Self::Or(one, other) => one.holds(headers) || other.holds(headers),
            Self::Not(one) => !one.holds(headers),
            Self::Address(end, prefix) => layers
                .flat_map(|layer| end.of(layer.source, layer.destination))
                .any(|address| prefix.contains(&address)),
            Self::Sid(prefix) => {
                let mut sids = layers.flat_map(|layer| layer.segments.iter().chain([&layer.destination]));
                sids.any(|address| prefix.contains(address))
            }
            Self::Protocol(protocol) => headers.layers.iter().any(|layer| match protocol {
                Protocol::Ip4 => !layer.is_v6,
                Protocol::Ip6 => layer.is_v6,
                Protocol::Upper(number) => layer.protocol == *number,
            }),
            Self::Port(end, port) => {
                let mut ports = layers
                    .filter_map(|layer| layer.ports)
                    .flat_map(|[source, destination]| end.of(source, destination));
                ports.any(|found| found == *port)
            }
            Self::Vlan(None) => !headers.vlans.is_empty(),
            Self::Vlan(Some(vid)) => headers.vlans.contains(vid),
        }
    }
}

impl End {
    fn of<T>(self, source: T, destination: T) -> impl Iterator<Item = T> {
        let is = |end| self == end || self == Self::Any;
        let (source, destination) = (is(Self::Source).then_some(source), is(Self::Destination).then_some(destination));
        source.into_iter().chain(destination)
    }
}

/// Words that are still to be parsed.
struct Words<'t> {
    words: &'t [&'t str],
    depth: usize,
}

impl<'t> Words<'t> {
    fn next(&mut self) -> Option<&'t str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn takes(&mut self, words: &[&str]) -> bool {
        let is_next = self.words.first().is_some_and(|word| words.contains(word));
        if is_next {
            self.next();
        }
        is_next
    }

    fn any_of(&mut self) -> Result<Filter, FilterError> {
        let mut filter = self.all_of()?;
        while self.takes(&["or", "||"]) {
            filter = Filter::Or(Box::new(filter), Box::new(self.all_of()?));
        }
        Ok(filter)
    }

    fn all_of(&mut self) -> Result<Filter, FilterError> {
        let mut filter = self.one()?;
        while self.takes(&["and", "&&"]) {
            filter = Filter::And(Box::new(filter), Box::new(self.one()?));
        }
        Ok(filter)
    }

    fn one(&mut self) -> Result<Filter, FilterError> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(FilterError::TooLong);
        }
        let filter = if self.takes(&["not", "!"]) {
            Filter::Not(Box::new(self.one()?))
        } else if self.takes(&["("]) {
            let inside = self.any_of()?;
            if !self.takes(&[")"]) {
                return Err(expected("`)`", self.next()));
            }
            inside
        } else {
            self.primitive()?
        };
        self.depth -= 1;
        Ok(filter)
    }

    fn primitive(&mut self) -> Result<Filter, FilterError> {
        let end = match self.words.first() {
            Some(&"src") => End::Source,
            Some(&"dst") => End::Destination,
            _ => End::Any,
        };
        if end != End::Any {
            self.next();
        }
        let word = self.next();
        match word {
            Some("host" | "net") => Ok(Filter::Address(end, self.prefix()?)),
            Some("port") => Ok(Filter::Port(end, self.number("a port")?)),
            Some(address) if end != End::Any => {
                prefix(address).map(|prefix| Filter::Address(end, prefix)).ok_or_else(|| expected("an address", word))
            }
            Some("sid") => Ok(Filter::Sid(self.prefix()?)),
            Some("ip") => Ok(Filter::Protocol(Protocol::Ip4)),
            Some("ip6") => Ok(Filter::Protocol(Protocol::Ip6)),
            Some("tcp") => Ok(upper(IpNumber::TCP)),
            Some("udp") => Ok(upper(IpNumber::UDP)),
            Some("icmp") => Ok(upper(IpNumber::ICMP)),
            Some("icmp6") => Ok(upper(IpNumber::IPV6_ICMP)),
            Some("proto") => Ok(Filter::Protocol(Protocol::Upper(self.number("a protocol number")?))),
            Some("vlan") => {
                let vid = self.words.first().and_then(|word| word.parse().ok());
                if vid.is_some() {
                    self.next();
                }
                Ok(Filter::Vlan(vid))
            }
            found => {
                Err(expected("host, net, sid, src, dst, port, ip, ip6, tcp, udp, icmp, icmp6, proto or vlan", found))
            }
        }
    }

    fn prefix(&mut self) -> Result<IpNet, FilterError> {
        let word = self.next();
        word.and_then(prefix).ok_or_else(|| expected("an address or a prefix", word))
    }

    fn number<T: std::str::FromStr>(&mut self, what: &'static str) -> Result<T, FilterError> {
        let word = self.next();
        word.and_then(|word| word.parse().ok()).ok_or_else(|| expected(what, word))
    }
}

const fn upper(number: IpNumber) -> Filter {
    Filter::Protocol(Protocol::Upper(number.0))
}

fn expected(expected: &'static str, found: Option<&str>) -> FilterError {
    FilterError::Expected { expected, found: found.map(str::to_owned) }
}

fn prefix(word: &str) -> Option<IpNet> {
    word.parse().ok().or_else(|| word.parse::<IpAddr>().ok().map(IpNet::from))
}

impl Headers {
    fn of(frame: &[u8]) -> Self {
        let mut headers = Self { vlans: Vec::new(), layers: Vec::new() };
        let Some((_, mut rest)) = frame.split_at_checked(12) else { return headers };
        let mut ether_type = 0;
        while let Some(([high, low], behind)) = rest.split_first_chunk() {
            ether_type = u16::from_be_bytes([*high, *low]);
            rest = behind;
            let Some(([high, low], behind)) = rest.split_first_chunk().filter(|_| VLAN_TYPES.contains(&ether_type))
            else {
                break;
            };
            headers.vlans.push(u16::from_be_bytes([*high, *low]) & 0x0fff);
            rest = behind;
        }
        if IP_TYPES.contains(&ether_type) {
            headers.layers(rest);
        }
        headers
    }

    fn layers(&mut self, packet: &[u8]) {
        let mut packet = packet;
        while self.layers.len() < MOST_LAYERS {
            let Ok((ip, _)) = LaxIpSlice::from_slice(packet) else { return };
            let payload = ip.payload();
            let (source, destination, segments) = match &ip {
                LaxIpSlice::Ipv4(ip) => {
                    (ip.header().source_addr().into(), ip.header().destination_addr().into(), Vec::new())
                }
                LaxIpSlice::Ipv6(ip) => {
                    let routing = ip.extensions().clone().into_iter().find_map(|extension| match extension {
                        Ipv6ExtensionSlice::Routing(routing) => Some(segments(routing.slice())),
                        _ => None,
                    });
                    (
                        ip.header().source_addr().into(),
                        ip.header().destination_addr().into(),
                        routing.unwrap_or_default(),
                    )
                }
            };
            let protocol = payload.ip_number;
            self.layers.push(Layer {
                is_v6: matches!(ip, LaxIpSlice::Ipv6(_)),
                source,
                destination,
                segments,
                protocol: protocol.0,
                ports: ports(protocol, payload.payload).filter(|_| !payload.fragmented),
            });
            if protocol != IpNumber::IPV4 && protocol != IpNumber::IPV6 {
                return;
            }
            packet = payload.payload;
        }
    }
}

fn ports(protocol: IpNumber, payload: &[u8]) -> Option<[u16; 2]> {
    match payload {
        [a, b, c, d, ..] if matches!(protocol, IpNumber::TCP | IpNumber::UDP) => {
            Some([u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])])
        }
        _ => None,
    }
}

/// Returns the segments of a routing header, if it is an SRH.
fn segments(routing: &[u8]) -> Vec<IpAddr> {
    let [_, _, SRH, _, last_entry, _, _, _, list @ ..] = routing else { return Vec::new() };
    let segments = list.chunks_exact(16).take(usize::from(*last_entry) + 1);
    segments.filter_map(|segment| Some(IpAddr::from(<[u8; 16]>::try_from(segment).ok()?))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use etherparse::{Ipv6Header, PacketBuilder};
    use std::net::Ipv6Addr;

    fn octets(address: &str) -> [u8; 16] {
        address.parse::<Ipv6Addr>().unwrap().octets()
    }

    /// Returns a datagram inside of SRv6, in a tagged frame.
    fn frame() -> Vec<u8> {
        let inner = PacketBuilder::ipv6(octets("2001:db8::1"), octets("2001:db8::2"), 64).udp(1000, 4791);
        let mut datagram = Vec::new();
        inner.write(&mut datagram, b"payload").unwrap();
        let outer = Ipv6Header {
            source: octets("fcbb:0:1::1"),
            destination: octets("fcbb:0:1004:1001::"),
            next_header: IpNumber::IPV6,
            payload_length: u16::try_from(datagram.len()).unwrap(),
            hop_limit: 64,
            ..Ipv6Header::default()
        };
        [&[2; 12][..], &[0x81, 0, 0, 100, 0x86, 0xdd], &outer.to_bytes(), &datagram].concat()
    }

    #[test]
    fn a_word_looks_at_every_layer() {
        for text in [
            "host 2001:db8::1",
            "src 2001:db8::1 and dst host 2001:db8::2",
            "sid fcbb:0:1004::/48",
            "dst net fcbb::/32",
            "udp and dst port 4791 and not src port 4791",
            "vlan and vlan 100 and ip6",
            "tcp or (udp and not icmp6)",
            "proto 17 && !ip",
        ] {
            assert!(Filter::parse(text).unwrap().fits(&frame()), "{text}");
        }
        for text in ["sid fcbb:0:1::/48", "src net 2001:db8::2", "port 1", "vlan 7", "not udp", "ip or tcp", "proto 6"]
        {
            assert!(!Filter::parse(text).unwrap().fits(&frame()), "{text}");
        }
    }

    #[test]
    fn a_segment_of_an_srh_is_found() {
        let srh = [&[59, 4, SRH, 1, 1, 0, 0, 0][..], &octets("fcbb:0:9::"), &octets("fcbb:0:8::")].concat();
        let outer = Ipv6Header {
            destination: octets("fcbb:0:8::"),
            next_header: IpNumber::IPV6_ROUTE_HEADER,
            payload_length: 40,
            ..Ipv6Header::default()
        };
        let frame = [&[2; 12][..], &[0x86, 0xdd], &outer.to_bytes(), &srh].concat();
        assert!(Filter::parse("sid fcbb:0:9::").unwrap().fits(&frame));
        assert!(!Filter::parse("host fcbb:0:9::").unwrap().fits(&frame));
    }

    #[test]
    fn no_frame_is_too_strange() {
        let filter = Filter::parse("not (sid fcbb::/32 or port 7 or vlan 5)").unwrap();
        let whole = frame();
        for length in 0..whole.len() {
            filter.fits(whole.get(..length).unwrap());
        }
        for place in 0..whole.len() {
            for value in [0, 1, 4, 41, 43, 0x60, 0xff] {
                let mut strange = whole.clone();
                *strange.get_mut(place).unwrap() = value;
                filter.fits(&strange);
            }
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("", "host, net, sid"),
            ("host", "an address or a prefix is expected at the end"),
            ("host leaf00", "an address or a prefix is expected, not \"leaf00\""),
            ("udp port 7", "`and`, `or` or the end is expected, not \"port\""),
            ("(udp", "`)` is expected at the end"),
            ("port 70000", "a port is expected"),
            ("src udp", "an address is expected, not \"udp\""),
        ] {
            let why = Filter::parse(text).unwrap_err().to_string();
            assert!(why.contains(words), "{text}: {why}");
        }
        assert_eq!(Filter::parse(&"(".repeat(100)), Err(FilterError::TooLong));
        assert_eq!(Filter::parse(&"udp and ".repeat(1000)), Err(FilterError::TooLong));
    }
}
