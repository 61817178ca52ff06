//! The floor: the header bytes a packet cannot do without reading and writing, and nothing else. No length is checked,
//! nothing is looked up, nothing is hashed, nothing is counted.

use std::hint::black_box;
use std::marker::PhantomData;

use srv6d_wire::{Packet, eth, ipv4, ipv6};

const HEAD: usize = eth::LEN + ipv6::LEN;
/// An SRH of two segments.
const SRH: usize = 8 + 2 * 16;

/// Work on one packet. A type, so that the loop around it is compiled for it.
pub trait Floor {
    /// There is no headroom: what is put in front of a packet moves it.
    const MOVES: bool = false;

    /// `None`: the packet is shorter than these packets are.
    fn rewrite(packet: &mut Packet<'_>) -> Option<()>;
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
        spend_hop(packet, eth::LEN)?;
        addresses(packet)
    }
}

/// Read what the flow label comes from, copy outer header and MAC addresses, payload
/// length, flow label, inner hop limit.
pub struct EncapV6;

impl Floor for EncapV6 {
    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        let key = sum(packet.bytes().get(eth::LEN + 8..)?.first_chunk::<36>()?);
        put_head::<HEAD>(packet, key)?;
        spend_hop(packet, HEAD)
    }
}

/// The same with two more segments, so an SRH of two.
pub struct EncapV6Srh;

impl Floor for EncapV6Srh {
    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        let key = sum(packet.bytes().get(eth::LEN + 8..)?.first_chunk::<36>()?);
        put_head::<{ HEAD + SRH }>(packet, key)?;
        spend_hop(packet, HEAD + SRH)
    }
}

/// The same around an IPv4 packet: TTL and checksum instead of the hop limit.
pub struct EncapV4;

impl Floor for EncapV4 {
    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        let key = sum(packet.bytes().get(eth::LEN + 12..)?.first_chunk::<12>()?);
        put_head::<HEAD>(packet, key)?;
        spend_ttl(packet, HEAD)
    }
}

/// The same with two more segments.
pub struct EncapV4Srh;

impl Floor for EncapV4Srh {
    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        let key = sum(packet.bytes().get(eth::LEN + 12..)?.first_chunk::<12>()?);
        put_head::<{ HEAD + SRH }>(packet, key)?;
        spend_ttl(packet, HEAD + SRH)
    }
}

/// Another floor, and the packet moves to make room, as it did when the floor was first measured.
pub struct Moved<F>(PhantomData<F>);

impl<F: Floor> Floor for Moved<F> {
    const MOVES: bool = true;

    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        F::rewrite(packet)
    }
}

/// Drop the outer header, inner hop limit, type and both MAC addresses.
pub struct Decap;

impl Floor for Decap {
    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        packet.pull_front(ipv6::LEN);
        transit(packet)?;
        *packet.bytes_mut().get_mut(12..)?.first_chunk_mut()? = black_box([0x86, 0xdd]);
        Some(())
    }
}

/// Read the destination; hop limit, both MAC addresses.
pub struct Transit;

impl Floor for Transit {
    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        transit(packet)
    }
}

fn transit(packet: &mut Packet<'_>) -> Option<()> {
    black_box(ipv6::Header::parse(packet.bytes().get(eth::LEN..)?)?.destination());
    spend_hop(packet, eth::LEN)?;
    addresses(packet)
}

/// Reads all of it.
fn sum<const N: usize>(bytes: &[u8; N]) -> u32 {
    let words = bytes.chunks_exact(4).filter_map(<[u8]>::first_chunk);
    words.fold(0, |sum, word| sum ^ u32::from_be_bytes(*word))
}

fn put_head<const LEN: usize>(packet: &mut Packet<'_>, key: u32) -> Option<()> {
    packet.pull_front(eth::LEN);
    let len = u16::try_from(packet.total_len()).ok()?;
    packet.push_front(LEN).ok()?;
    let head: &mut [u8; LEN] = packet.bytes_mut().first_chunk_mut()?;
    *head = *black_box(&[0x60; LEN]);
    [head[14], head[15], head[16], head[17]] = (0x6000_0000 | key >> 12).to_be_bytes();
    [head[18], head[19]] = len.to_be_bytes();
    Some(())
}

fn spend_hop(packet: &mut Packet<'_>, at: usize) -> Option<()> {
    let hop_limit = packet.bytes_mut().get_mut(at + ipv6::HOP_LIMIT)?;
    *hop_limit = hop_limit.wrapping_sub(1);
    Some(())
}

fn spend_ttl(packet: &mut Packet<'_>, at: usize) -> Option<()> {
    let header: &mut [u8; ipv4::LEN] = packet.bytes_mut().get_mut(at..)?.first_chunk_mut()?;
    ipv4::spend_ttl(header);
    Some(())
}

fn addresses(packet: &mut Packet<'_>) -> Option<()> {
    *packet.bytes_mut().first_chunk_mut()? = *black_box(&[2; 12]);
    Some(())
}
