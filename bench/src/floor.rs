//! The floor: the header bytes a packet cannot do without reading and writing, and nothing else. No length is checked,
//! nothing is looked up, nothing is counted.

use std::hint::black_box;

use srv6d_wire::{Packet, eth, ipv4, ipv6};

const HEAD: usize = eth::LEN + ipv6::LEN;
/// An SRH of two segments.
const SRH: usize = 8 + 2 * 16;

/// Work on one packet. A type, so that the loop around it is compiled for it.
pub trait Floor {
    /// `None`: the packet is shorter than these packets are.
    fn rewrite(packet: &mut Packet<'_>) -> Option<()>;
}

/// Nothing at all: what the rig costs.
pub struct Nothing;

impl Floor for Nothing {
    #[inline]
    fn rewrite(_: &mut Packet<'_>) -> Option<()> {
        Some(())
    }
}

/// Read the destination, write it shifted, hop limit, both MAC addresses.
pub struct Shift;

impl Floor for Shift {
    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        let header = packet.bytes_mut().get_mut(eth::LEN..)?.first_chunk_mut()?;
        let destination = ipv6::Header::parse(header)?.destination();
        let block = destination & (u128::MAX << 96);
        ipv6::set_destination(header, block | (destination << 48) >> 32);
        spend_hop(packet)?;
        addresses(packet)
    }
}

/// Make room, copy outer header and MAC addresses, payload length, inner hop limit.
pub struct EncapV6;

impl Floor for EncapV6 {
    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        spend_hop(packet)?;
        put_head::<HEAD>(packet)
    }
}

/// The same with two more segments, so an SRH of two.
pub struct EncapV6Srh;

impl Floor for EncapV6Srh {
    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        spend_hop(packet)?;
        put_head::<{ HEAD + SRH }>(packet)
    }
}

/// The same around an IPv4 packet: TTL and checksum instead of the hop limit.
pub struct EncapV4;

impl Floor for EncapV4 {
    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        spend_ttl(packet)?;
        put_head::<HEAD>(packet)
    }
}

/// The same with two more segments.
pub struct EncapV4Srh;

impl Floor for EncapV4Srh {
    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        spend_ttl(packet)?;
        put_head::<{ HEAD + SRH }>(packet)
    }
}

fn put_head<const LEN: usize>(packet: &mut Packet<'_>) -> Option<()> {
    packet.pull_front(eth::LEN);
    let len = u16::try_from(packet.total_len()).ok()?;
    packet.push_front(LEN).ok()?;
    let head: &mut [u8; LEN] = packet.bytes_mut().first_chunk_mut()?;
    *head = *black_box(&[0x60; LEN]);
    [head[18], head[19]] = len.to_be_bytes();
    Some(())
}

fn spend_ttl(packet: &mut Packet<'_>) -> Option<()> {
    let header: &mut [u8; ipv4::LEN] = packet.bytes_mut().get_mut(eth::LEN..)?.first_chunk_mut()?;
    ipv4::set_tos_ttl(header, header[1], header[ipv4::TTL].wrapping_sub(1));
    Some(())
}

/// Drop the outer header, inner hop limit, both MAC addresses.
pub struct Decap;

impl Floor for Decap {
    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        packet.pull_front(ipv6::LEN);
        spend_hop(packet)?;
        addresses(packet)?;
        *packet.bytes_mut().get_mut(12..)?.first_chunk_mut()? = black_box([0x86, 0xdd]);
        Some(())
    }
}

/// Hop limit, both MAC addresses.
pub struct Transit;

impl Floor for Transit {
    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        spend_hop(packet)?;
        addresses(packet)
    }
}

fn spend_hop(packet: &mut Packet<'_>) -> Option<()> {
    let hop_limit = packet.bytes_mut().get_mut(eth::LEN + ipv6::HOP_LIMIT)?;
    *hop_limit = hop_limit.wrapping_sub(1);
    Some(())
}

fn addresses(packet: &mut Packet<'_>) -> Option<()> {
    *packet.bytes_mut().first_chunk_mut()? = *black_box(&[2; 12]);
    Some(())
}
