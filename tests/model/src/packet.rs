//! Packets as owned headers. Headers are parsed by etherparse; this module adds the order of extension headers (RFC
//! 8200 section 4.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{IpNumber, Ipv4Header, Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader};

/// Error: a header is cut short or contradicts the available bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// An IP packet without the bytes behind its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ip {
    V6(V6),
    V4(V4),
}

/// An IPv6 packet. Its extension headers are part of the payload until [`V6::chain`] splits them off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct V6 {
    pub(crate) header: Ipv6Header,
    pub(crate) payload: Vec<u8>,
}

/// An IPv4 packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct V4 {
    pub(crate) header: Ipv4Header,
    /// The flag bit that RFC 791 reserves; it is forwarded unchanged.
    pub(crate) reserved_flag: bool,
    pub(crate) payload: Vec<u8>,
}

/// The extension headers of an IPv6 packet, and the payload behind them.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) extensions: Vec<Extension>,
    /// Protocol number of the upper layer, from the Next Header field of the last extension header.
    pub(crate) upper: IpNumber,
    /// Offset of the upper layer from the start of the IPv6 header.
    pub(crate) upper_at: usize,
    pub(crate) payload: Vec<u8>,
    /// Whether the next header is cut short.
    pub(crate) broken: bool,
    /// Whether the packet is a fragment. Then nothing behind the Fragment header can be relied on.
    pub(crate) fragment: bool,
}

/// One extension header.
#[derive(Clone, Debug)]
pub(crate) struct Extension {
    pub(crate) number: IpNumber,
    /// Offset from the start of the IPv6 header.
    pub(crate) at: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Ip {
    /// Parses a packet of that family at the start of `bytes`.
    pub(crate) fn parse(is_v6: bool, bytes: &[u8]) -> Result<Self, Malformed> {
        if is_v6 { V6::parse(bytes).map(Self::V6) } else { V4::parse(bytes).map(Self::V4) }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::V6(packet) => packet.bytes(),
            Self::V4(packet) => packet.bytes(),
        }
    }

    pub(crate) fn source(&self) -> IpAddr {
        match self {
            Self::V6(packet) => packet.header.source_addr().into(),
            Self::V4(packet) => Ipv4Addr::from(packet.header.source).into(),
        }
    }

    pub(crate) fn destination(&self) -> IpAddr {
        match self {
            Self::V6(packet) => packet.header.destination_addr().into(),
            Self::V4(packet) => Ipv4Addr::from(packet.header.destination).into(),
        }
    }

    /// Returns whether an IPv4 packet carries a loose or strict source route (RFC 791 section 3.1).
    pub(crate) fn has_source_route(&self) -> bool {
        let Self::V4(packet) = self else { return false };
        let options = packet.header.options.as_slice();
        let mut at = 0;
        while let Some(kind) = options.get(at).filter(|kind| **kind != 0) {
            match (kind, options.get(at + 1)) {
                (131 | 137, _) => return true,
                (1, _) => at += 1,
                (_, Some(len)) if *len >= 2 => at += usize::from(*len),
                _ => return false,
            }
        }
        false
    }

    pub(crate) fn hop_limit(&mut self) -> &mut u8 {
        match self {
            Self::V6(packet) => &mut packet.header.hop_limit,
            Self::V4(packet) => &mut packet.header.time_to_live,
        }
    }

    /// Returns DSCP and ECN in one byte.
    pub(crate) fn traffic_class(&self) -> u8 {
        match self {
            Self::V6(packet) => packet.header.traffic_class,
            Self::V4(packet) => packet.header.dscp.value() << 2 | packet.header.ecn.value(),
        }
    }

    pub(crate) fn set_traffic_class(&mut self, class: u8) {
        match self {
            Self::V6(packet) => packet.header.traffic_class = class,
            Self::V4(packet) => {
                packet.header.dscp = (class >> 2).try_into().unwrap_or_default();
                packet.header.ecn = (class & 3).try_into().unwrap_or_default();
            }
        }
    }
}

impl V6 {
    fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (header, rest) = Ipv6Header::from_slice(bytes).map_err(|_| Malformed)?;
        let payload = rest.get(..usize::from(header.payload_length)).ok_or(Malformed)?.to_vec();
        Ok(Self { header, payload })
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut header = self.header.clone();
        header.payload_length = u16::try_from(self.payload.len()).unwrap_or(u16::MAX);
        [header.to_bytes().to_vec(), self.payload.clone()].concat()
    }

    pub(crate) fn destination(&self) -> Ipv6Addr {
        self.header.destination_addr()
    }

    /// Splits the payload into extension headers. Hop-by-hop options are recognised only directly behind the IPv6
    /// header as received, and not if a header in front of them has been removed.
    pub(crate) fn chain(&self, first_is_as_received: bool) -> Chain {
        let mut chain = Chain {
            extensions: Vec::new(),
            upper: self.header.next_header,
            upper_at: Ipv6Header::LEN,
            payload: self.payload.clone(),
            broken: false,
            fragment: false,
        };
        while !chain.broken && !chain.fragment {
            let len = match chain.upper {
                IpNumber::IPV6_HEADER_HOP_BY_HOP if !first_is_as_received || !chain.extensions.is_empty() => {
                    return chain;
                }
                IpNumber::IPV6_HEADER_HOP_BY_HOP | IpNumber::IPV6_DESTINATION_OPTIONS | IpNumber::IPV6_ROUTE_HEADER => {
                    Ipv6RawExtHeader::from_slice(&chain.payload).ok().map(|(header, _)| header.header_len())
                }
                IpNumber::IPV6_FRAGMENTATION_HEADER => {
                    Ipv6FragmentHeader::from_slice(&chain.payload).ok().map(|(fragment, _)| {
                        chain.fragment = fragment.is_fragmenting_payload();
                        fragment.header_len()
                    })
                }
                _ => return chain,
            };
            match len {
                Some(len) => chain.take_extension(len),
                None => chain.broken = true,
            }
        }
        chain
    }

    /// Puts extension headers and payload together again; each header names the one behind it.
    pub(crate) fn set_chain(&mut self, chain: &Chain) {
        let numbers: Vec<IpNumber> = chain.extensions.iter().map(|extension| extension.number).collect();
        let next = numbers.iter().skip(1).copied().chain([chain.upper]);
        self.header.next_header = numbers.first().copied().unwrap_or(chain.upper);
        self.payload = Vec::new();
        for (extension, next) in chain.extensions.iter().zip(next) {
            self.payload.push(next.0);
            self.payload.extend(extension.bytes.iter().skip(1));
        }
        self.payload.extend(&chain.payload);
    }
}

impl Chain {
    /// Returns whether the packet is a first fragment or not a fragment at all.
    pub(crate) fn is_first_fragment(&self) -> bool {
        let fragment = self.extensions.iter().find(|header| header.number == IpNumber::IPV6_FRAGMENTATION_HEADER);
        let parsed = fragment.and_then(|header| Ipv6FragmentHeader::from_slice(&header.bytes).ok());
        parsed.is_none_or(|(fragment, _)| fragment.fragment_offset.value() == 0)
    }

    /// Returns a packet in which the payload follows directly behind the IPv6 header.
    pub(crate) fn rest(&self, packet: &V6) -> V6 {
        V6 { header: Ipv6Header { next_header: self.upper, ..packet.header.clone() }, payload: self.payload.clone() }
    }

    fn take_extension(&mut self, len: usize) {
        let rest = self.payload.split_off(len);
        let bytes = std::mem::replace(&mut self.payload, rest);
        let next = IpNumber(bytes.first().copied().unwrap_or_default());
        self.extensions.push(Extension { number: self.upper, at: self.upper_at, bytes });
        self.upper = next;
        self.upper_at += len;
    }
}

impl V4 {
    /// Parses an IPv4 packet. A header with a wrong checksum is refused (RFC 1812 section 5.2.2).
    fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (header, rest) = Ipv4Header::from_slice(bytes).map_err(|_| Malformed)?;
        let raw = bytes.get(..header.header_len()).ok_or(Malformed)?;
        let reserved_flag = raw.get(6).is_some_and(|byte| byte & 0x80 != 0);
        let sum = etherparse::checksum::Sum16BitWords::new().add_slice(raw).ones_complement();
        let payload_len = usize::from(header.total_len).checked_sub(header.header_len()).ok_or(Malformed)?;
        let payload = rest.get(..payload_len).ok_or(Malformed)?.to_vec();
        if sum == 0 { Ok(Self { header, reserved_flag, payload }) } else { Err(Malformed) }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut header = self.header.clone();
        header.total_len = u16::try_from(header.header_len() + self.payload.len()).unwrap_or(u16::MAX);
        header.header_checksum = 0;
        let mut raw = header.to_bytes().to_vec();
        if let (true, Some(byte)) = (self.reserved_flag, raw.get_mut(6)) {
            *byte |= 0x80;
        }
        let sum = etherparse::checksum::Sum16BitWords::new().add_slice(&raw).ones_complement();
        for (slot, byte) in raw.iter_mut().skip(10).zip(sum.to_ne_bytes()) {
            *slot = byte;
        }
        raw.extend(&self.payload);
        raw
    }

    pub(crate) fn is_fragment(&self) -> bool {
        self.header.is_fragmenting_payload()
    }
}
