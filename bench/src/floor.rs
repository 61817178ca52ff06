//! The floor: reads and writes the header bytes that a packet cannot do without, and does nothing else. It checks no
//! length, looks nothing up, computes no hash and counts nothing.

use std::hint::black_box;
use std::marker::PhantomData;

use srv6d_wire::{Packet, eth, ipv4, ipv6};

const HEAD: usize = eth::LEN + ipv6::LEN;
/// Length of an SRH with two segments.
const SRH: usize = 8 + 2 * 16;

/// Work on one packet. It is a type, so that the loop around it is compiled separately for each kind of work.
pub trait Floor {
    /// Whether there is no headroom, so that a header in front of the packet moves the whole packet.
    const MOVES: bool = false;

    /// Rewrites a packet. Returns `None` if the packet is shorter than packets of this class are.
    fn rewrite(packet: &mut Packet<'_>) -> Option<()>;
}

/// Floor of a shift: reads the destination, writes it shifted, and writes the hop limit and both MAC addresses.
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

/// Floor of encapsulating an IPv6 packet: reads the inputs of the flow label, copies outer header and MAC addresses,
/// and writes payload length, flow label and inner hop limit.
pub struct EncapV6;

impl Floor for EncapV6 {
    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        let key = sum(packet.bytes().get(eth::LEN + 8..)?.first_chunk::<36>()?);
        put_head::<HEAD>(packet, key)?;
        spend_hop(packet, HEAD)
    }
}

/// Like [`EncapV6`], but with two more segments and therefore an SRH.
pub struct EncapV6Srh;

impl Floor for EncapV6Srh {
    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        let key = sum(packet.bytes().get(eth::LEN + 8..)?.first_chunk::<36>()?);
        put_head::<{ HEAD + SRH }>(packet, key)?;
        spend_hop(packet, HEAD + SRH)
    }
}

/// Like [`EncapV6`], but around an IPv4 packet: writes TTL and checksum instead of the hop limit.
pub struct EncapV4;

impl Floor for EncapV4 {
    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        let key = sum(packet.bytes().get(eth::LEN + 12..)?.first_chunk::<12>()?);
        put_head::<HEAD>(packet, key)?;
        spend_ttl(packet, HEAD)
    }
}

/// Like [`EncapV4`], but with two more segments and therefore an SRH.
pub struct EncapV4Srh;

impl Floor for EncapV4Srh {
    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        let key = sum(packet.bytes().get(eth::LEN + 12..)?.first_chunk::<12>()?);
        put_head::<{ HEAD + SRH }>(packet, key)?;
        spend_ttl(packet, HEAD + SRH)
    }
}

/// Like another floor, but moves the whole packet to make room for the header.
pub struct Moved<F>(PhantomData<F>);

impl<F: Floor> Floor for Moved<F> {
    const MOVES: bool = true;

    #[inline]
    fn rewrite(packet: &mut Packet<'_>) -> Option<()> {
        F::rewrite(packet)
    }
}

/// Floor of decapsulation: removes the outer header, and writes inner hop limit, `EtherType` and both MAC addresses.
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

/// Floor of plain forwarding: reads the destination, and writes the hop limit and both MAC addresses.
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

/// Combines all bytes into one word, so that all of them are read.
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
