//! Frames that the benches send through the tables.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use srv6d_wire::checksum;

use crate::tables::{PEER, PORT_MAC, STEERED_BELOW, is_steered, prefix};

/// Number of flows in each bench.
pub const FLOWS: usize = 1024;

/// Classes of packets in the benches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Packets that a uN shifts and forwards.
    Shift,
    /// IPv6 packets that get H.Encaps.Red.
    EncapV6,
    /// Like [`Self::EncapV6`], but every packet has its own destination, so that a cache cannot help.
    EncapV6Strangers,
    /// IPv4 packets that get H.Encaps.Red.
    EncapV4,
    /// Packets that a uDT6 decapsulates.
    Decap,
    /// IPv6 packets that are forwarded without SRv6.
    Transit,
}

impl Class {
    /// The classes, except [`Self::EncapV6Strangers`].
    pub const ALL: [Self; 5] = [Self::Shift, Self::EncapV6, Self::EncapV4, Self::Decap, Self::Transit];
}

/// Returns the frame of flow number `flow` of a class: 128 bytes without FCS, sent to one of `prefixes` prefixes.
pub fn frame(class: Class, prefixes: u32, flow: usize) -> Vec<u8> {
    const LEN: usize = 128;
    let number = u32::try_from(flow).unwrap_or(0).wrapping_mul(2_654_435_761);
    let mut bytes = Vec::with_capacity(LEN);
    bytes.extend(PORT_MAC.0);
    bytes.extend(PEER.0);
    let steered = prefixes.min(STEERED_BELOW);
    let source = Ipv6Addr::new(0x2001, 0xdb8, 0, 9, 0, 0, (number >> 16) as u16, (number & 0xffff) as u16);
    let carrier = |usids: [u16; 2]| Ipv6Addr::new(0xfcbb, 0xbbbb, usids[0], usids[1], 0x333, 0x444, 0, 0);
    match class {
        Class::Shift => ipv6(&mut bytes, source, carrier([1, 2]), 41, LEN),
        Class::EncapV6 => ipv6(&mut bytes, source, v6_towards(number, steered, is_steered), 17, LEN),
        Class::EncapV6Strangers => ipv6(&mut bytes, source, v6_towards(number, steered, is_steered_subnet), 17, LEN),
        Class::Transit => ipv6(&mut bytes, source, v6_towards(number, prefixes, |n| !is_steered(n)), 17, LEN),
        Class::Decap => {
            let sid = Ipv6Addr::new(0xfcbb, 0xbbbb, 1, 0xfe06, 0, 0, 0, 0);
            ipv6(&mut bytes, source, sid, 41, LEN);
            bytes.truncate(14 + 40);
            let mut inner = vec![0; 14];
            ipv6(&mut inner, source, Ipv6Addr::new(0x3000, 0, 0, 0, 0, 0, 0, 7), 17, LEN - 40);
            bytes.extend(inner.iter().skip(14));
        }
        Class::EncapV4 => {
            bytes.extend([0x08, 0x00]);
            let total = (LEN - 14) as u16;
            bytes.extend([0x45, 0]);
            bytes.extend(total.to_be_bytes());
            bytes.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, (number >> 8) as u8, number as u8]);
            bytes.extend(v4_towards(number, prefixes).octets());
            let [high, low] = checksum::of(&bytes[14..34]).to_be_bytes();
            (bytes[24], bytes[25]) = (high, low);
            bytes.resize(LEN, 0x41);
        }
    }
    bytes
}

/// Returns the address of one of the first `prefixes` prefixes that `wanted` accepts. The search begins at a prefix
/// that depends on `number`.
fn towards(number: u32, prefixes: u32, wanted: impl Fn(u32) -> bool) -> Option<IpAddr> {
    let start = number % prefixes;
    (start..prefixes).chain(0..start).find(|&n| wanted(n)).map(|n| prefix(n).network())
}

fn v6_towards(number: u32, prefixes: u32, wanted: impl Fn(u32) -> bool) -> Ipv6Addr {
    match towards(number, prefixes, |n| n % 4 != 3 && wanted(n)) {
        Some(IpAddr::V6(address)) => address,
        _ => Ipv6Addr::new(0x3000, 0, 0, 0, 0, 0, 0, 7),
    }
}

/// Returns whether prefix number `n` is steered and no longer than /64, so that many host addresses in it lead the same
/// way.
fn is_steered_subnet(n: u32) -> bool {
    is_steered(n) && prefix(n).prefix_len() <= 64
}

/// Changes the destination of a frame to another host in the same subnet.
pub(crate) fn estrange(frame: &mut [u8], host: u32) {
    if let Some(low) = frame.get_mut(14 + 36..).and_then(|bytes| bytes.first_chunk_mut()) {
        *low = host.to_be_bytes();
    }
}

fn v4_towards(number: u32, prefixes: u32) -> Ipv4Addr {
    match towards(number, prefixes.min(STEERED_BELOW), |n| n % 4 == 3 && is_steered(n)) {
        Some(IpAddr::V4(address)) => address,
        _ => Ipv4Addr::new(44, 2, 2, 2),
    }
}

fn ipv6(bytes: &mut Vec<u8>, source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, len: usize) {
    bytes.truncate(12);
    bytes.resize(12, 0);
    bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    bytes.extend(((len - 54) as u16).to_be_bytes());
    bytes.extend([next_header, 64]);
    bytes.extend(source.octets());
    bytes.extend(destination.octets());
    bytes.extend([0xc3, 0x50, 0x12, 0xb7]);
    bytes.resize(len, 0x41);
}
