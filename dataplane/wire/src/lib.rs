//! Conversion between bytes and headers: Ethernet, VLAN, IPv4, IPv6, segment routing header.
//!
//! A header view exists only if all of its bytes are there, so accessors cannot panic.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod ecn;
pub mod eth;
pub mod ipv4;
pub mod ipv6;
pub mod packet;
pub mod srh;

pub use packet::{Extent, Packet};

/// Protocol and next-header numbers (IANA).
pub mod protocol {
    /// IPv6 Hop-by-Hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// `ICMPv4`.
    pub const ICMP: u8 = 1;
    /// IPv4 encapsulation.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 encapsulation.
    pub const IPV6: u8 = 41;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// IPv6 authentication header.
    pub const AUTHENTICATION: u8 = 51;
    /// `ICMPv6`.
    pub const ICMPV6: u8 = 58;
    /// No next header.
    pub const NONE: u8 = 59;
    /// IPv6 destination options.
    pub const DEST_OPTIONS: u8 = 60;
    /// SCTP.
    pub const SCTP: u8 = 132;
}

/// Reads a big-endian u16 at `offset`. Returns `None` if `bytes` ends before it does.
pub fn be16(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..)?.first_chunk().map(|pair| u16::from_be_bytes(*pair))
}

/// Reads a big-endian u32 at `offset`. Returns `None` if `bytes` ends before it does.
pub fn be32(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|quad| u32::from_be_bytes(*quad))
}
