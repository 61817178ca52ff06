//! Layers of a frame.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Next header and protocol numbers (IANA).
pub(crate) mod protocol {
    pub(crate) const HOP_BY_HOP: u8 = 0;
    pub(crate) const ICMP: u8 = 1;
    pub(crate) const IPV4: u8 = 4;
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const IPV6: u8 = 41;
    pub(crate) const ROUTING: u8 = 43;
    pub(crate) const FRAGMENT: u8 = 44;
    pub(crate) const ICMPV6: u8 = 58;
    pub(crate) const NO_NEXT_HEADER: u8 = 59;
    pub(crate) const DESTINATION_OPTIONS: u8 = 60;
}

/// Size of the largest ICMPv6 error in bytes (RFC 4443 section 2.4 c).
pub(crate) const ICMPV6_ERROR_MAX: usize = 1280;
/// Size of the largest ICMPv4 error in bytes (RFC 1812 section 4.3.2.3).
pub(crate) const ICMPV4_ERROR_MAX: usize = 576;

/// Value of a header field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Field<T> {
    /// Computed from the surrounding layers.
    #[default]
    Auto,
    /// Given explicitly.
    Is(T),
    /// Any value; the field is not compared.
    Any,
    /// Any value except zero; the field is not compared otherwise.
    NonZero,
}

/// One layer, as written in a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    Eth {
        destination: [u8; 6],
        source: [u8; 6],
        ethertype: Field<u16>,
    },
    Vlan {
        vid: u16,
        pcp: u8,
        ethertype: Field<u16>,
    },
    Ip6(Ip6),
    Ip4(Ip4),
    Options {
        protocol: u8,
        data: Vec<u8>,
        next: Field<u8>,
        len: Field<u8>,
    },
    Routing(Routing),
    Fragment {
        offset: u16,
        more: bool,
        id: u32,
        next: Field<u8>,
    },
    Udp {
        source: u16,
        destination: u16,
        len: Field<u16>,
        checksum: Field<u16>,
        to: Option<Ipv6Addr>,
    },
    Tcp(Tcp),
    Icmp6 {
        kind: u8,
        code: u8,
        rest: [u8; 4],
        checksum: Field<u16>,
        to: Option<Ipv6Addr>,
    },
    Icmp4 {
        kind: u8,
        code: u8,
        rest: [u8; 4],
        checksum: Field<u16>,
    },
    Raw(Vec<u8>),
    /// The part of the input frame, from this layer on, that fits into an ICMP error.
    Quote(usize),
    /// The bytes of the input frame from this layer on.
    Rest(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ip6 {
    /// Source addresses; if there are several, the frame may have any of them.
    pub(crate) sources: Vec<Ipv6Addr>,
    pub(crate) destination: Ipv6Addr,
    pub(crate) version: u8,
    pub(crate) traffic_class: Field<u8>,
    pub(crate) flow_label: Field<u32>,
    pub(crate) payload_len: Field<u16>,
    pub(crate) next: Field<u8>,
    pub(crate) hop_limit: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ip4 {
    pub(crate) sources: Vec<Ipv4Addr>,
    pub(crate) destination: Ipv4Addr,
    pub(crate) version: u8,
    pub(crate) ihl: Field<u8>,
    pub(crate) tos: Field<u8>,
    pub(crate) total_len: Field<u16>,
    pub(crate) id: Field<u16>,
    /// The three bits before the fragment offset: reserved, DF, MF.
    pub(crate) flags: Field<u8>,
    pub(crate) offset: u16,
    pub(crate) ttl: u8,
    pub(crate) protocol: Field<u8>,
    pub(crate) checksum: Field<u16>,
    pub(crate) options: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Routing {
    pub(crate) kind: u8,
    pub(crate) segments_left: u8,
    pub(crate) next: Field<u8>,
    pub(crate) len: Field<u8>,
    pub(crate) last_entry: Field<u8>,
    pub(crate) flags: u8,
    pub(crate) tag: u16,
    pub(crate) segments: Vec<Ipv6Addr>,
    pub(crate) tlv: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tcp {
    pub(crate) source: u16,
    pub(crate) destination: u16,
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) checksum: Field<u16>,
    pub(crate) to: Option<Ipv6Addr>,
}

/// Change to the end of a frame, behind the last layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Adds zeros until the whole frame has this length.
    Pad(usize),
    /// Adds bytes that belong to no packet.
    Trailer(Vec<u8>),
    /// Cuts the frame to this many bytes.
    Truncate(usize),
}

/// A frame, as written in a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layers {
    pub(crate) layers: Vec<Layer>,
    pub(crate) tails: Vec<Tail>,
}

impl Layer {
    /// Returns the protocol number that the layer before uses for this one.
    pub(crate) fn protocol(&self) -> u8 {
        match self {
            Self::Ip6(_) => protocol::IPV6,
            Self::Ip4(_) => protocol::IPV4,
            Self::Options { protocol, .. } => *protocol,
            Self::Routing(_) => protocol::ROUTING,
            Self::Fragment { .. } => protocol::FRAGMENT,
            Self::Udp { .. } => protocol::UDP,
            Self::Tcp(_) => protocol::TCP,
            Self::Icmp6 { .. } => protocol::ICMPV6,
            Self::Icmp4 { .. } => protocol::ICMP,
            Self::Eth { .. } | Self::Vlan { .. } | Self::Raw(_) | Self::Quote(_) | Self::Rest(_) => {
                protocol::NO_NEXT_HEADER
            }
        }
    }

    pub(crate) fn is_l2(&self) -> bool {
        matches!(self, Self::Eth { .. } | Self::Vlan { .. })
    }
}
