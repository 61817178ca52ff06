//! The writes of the slow path. Everything has been decided and checked. Only a buffer without room can still refuse
//! a packet, before any write.

use srv6d_wire::{Packet, checksum, eth, ipv4, ipv6, protocol};

use crate::desired::DscpMode;
use crate::reason::DropReason;
use crate::slow::{Egress, Layer, SrhEdit};
use crate::tables::{Adjacency, MAX_OUTER, PathEntry, Tables};

/// Length of the type field of an Ethernet header, which follows the header's template.
const TYPE_LEN: usize = 2;

/// Writes the packet for `egress`. Returns the device it leaves through.
pub(crate) fn send(
    tables: &Tables,
    packet: &mut Packet<'_>,
    layer: &Layer,
    egress: Egress<'_>,
    fill_checksum: bool,
) -> Result<u16, DropReason> {
    let (adjacency, outer_len) = match egress {
        Egress::Routed(adjacency) => (adjacency, 0),
        Egress::Encapsulated(path, adjacency, _) => (adjacency, path.header_len),
    };
    if !packet.fits(layer.at, outer_len + adjacency.ethernet_len + TYPE_LEN) {
        return Err(DropReason::NoRoom);
    }
    strip_to(packet, layer);
    if fill_checksum {
        fill_transport_checksum(packet);
    }
    let is_v6 = match egress {
        Egress::Routed(_) => layer.is_v6,
        Egress::Encapsulated(path, _, flow) => {
            let inner_len = packet.total_len().min(layer.len());
            put_outer(tables, packet, layer, path, adjacency, inner_len, flow.flow_label())?;
            true
        }
    };
    put_ethernet(packet, adjacency, is_v6)?;
    packet.pad_to(eth::MIN_FRAME);
    Ok(adjacency.device)
}

/// Writes the packet for the kernel's end of the own veth. Returns the device of the veth's packet end.
pub(crate) fn to_kernel(tables: &Tables, packet: &mut Packet<'_>, layer: &Layer) -> Result<u16, DropReason> {
    let host = tables.host.ok_or(DropReason::NoHostPort)?;
    let port = tables.port(host.port).ok_or(DropReason::NoHostPort)?;
    if !packet.fits(layer.at, eth::LEN) {
        return Err(DropReason::NoRoom);
    }
    strip_to(packet, layer);
    packet.push_front(eth::LEN).map_err(|_| DropReason::NoRoom)?;
    let [t0, t1] = if layer.is_v6 { eth::IPV6 } else { eth::IPV4 }.to_be_bytes();
    let header = host.kernel_mac.0.into_iter().chain(port.mac.0).chain([t0, t1]);
    for (slot, byte) in packet.bytes_mut().iter_mut().zip(header) {
        *slot = byte;
    }
    packet.pad_to(eth::MIN_FRAME);
    Ok(port.device)
}

/// Sends a frame that is not IP to the kernel. Only the MAC addresses of the frame are rewritten.
pub(crate) fn to_kernel_as_it_is(tables: &Tables, packet: &mut Packet<'_>) -> Result<u16, DropReason> {
    let host = tables.host.ok_or(DropReason::NoHostPort)?;
    let port = tables.port(host.port).ok_or(DropReason::NoHostPort)?;
    for (slot, byte) in packet.bytes_mut().iter_mut().zip(host.kernel_mac.0.into_iter().chain(port.mac.0)) {
        *slot = byte;
    }
    packet.pad_to(eth::MIN_FRAME);
    Ok(port.device)
}

/// Writes the hop limit and traffic class that the slow path determined for the layer, and removes all headers in front
/// of the layer.
fn strip_to(packet: &mut Packet<'_>, layer: &Layer) {
    packet.truncate(layer.end);
    packet.pull_front(layer.at);
    if layer.is_v6 { write_v6(packet, layer) } else { write_v4(packet, layer) }
}

#[inline]
fn write_v6(packet: &mut Packet<'_>, layer: &Layer) {
    if let Some(header) = packet.bytes_mut().first_chunk_mut::<{ ipv6::LEN }>() {
        header[ipv6::HOP_LIMIT] = layer.hop_limit;
        ipv6::set_traffic_class(header, layer.traffic_class);
        ipv6::set_destination(header, layer.destination);
    }
    match layer.srh {
        SrhEdit::None => {}
        SrhEdit::SegmentsLeft { at, value } => {
            put_byte(packet, at - layer.at + srv6d_wire::srh::SEGMENTS_LEFT, value);
        }
        SrhEdit::Remove { at, len, named_at, next_header } => {
            put_byte(packet, named_at - layer.at, next_header);
            if let Some(header) = packet.bytes_mut().first_chunk_mut::<{ ipv6::LEN }>() {
                let shorter = layer.len().saturating_sub(ipv6::LEN);
                ipv6::set_payload_len(header, u16::try_from(shorter).unwrap_or(u16::MAX));
            }
            packet.cut(at - layer.at, len);
        }
    }
}

fn put_byte(packet: &mut Packet<'_>, offset: usize, value: u8) {
    if let Some(byte) = packet.bytes_mut().get_mut(offset) {
        *byte = value;
    }
}

fn write_v4(packet: &mut Packet<'_>, layer: &Layer) {
    if let Some(header) = packet.bytes_mut().first_chunk_mut::<{ ipv4::LEN }>() {
        ipv4::set_tos_ttl(header, layer.traffic_class, layer.hop_limit);
    }
}

/// Writes the outer header from its template, with the fields that differ from packet to packet.
#[inline]
fn put_outer(
    tables: &Tables,
    packet: &mut Packet<'_>,
    layer: &Layer,
    path: &PathEntry,
    adjacency: &Adjacency,
    inner_len: usize,
    flow_label: u32,
) -> Result<(), DropReason> {
    packet.push_front(path.header_len).map_err(|_| DropReason::NoRoom)?;
    let bytes = packet.bytes_mut();
    if path.header_len == ipv6::LEN {
        if let (Some(slot), Some(template)) = (bytes.first_chunk_mut::<40>(), path.header.first_chunk::<40>()) {
            *slot = *template;
        }
    } else if let (Some(slot), Some(template)) =
        (bytes.get_mut(..path.header_len), path.header.get(..path.header_len.min(MAX_OUTER)))
    {
        slot.copy_from_slice(template);
    }
    if let Some(inner) = bytes.get_mut(path.inner_at) {
        *inner = if layer.is_v6 { protocol::IPV6 } else { protocol::IPV4 };
    }
    if let Some(header) = bytes.first_chunk_mut::<{ ipv6::LEN }>() {
        ipv6::set_first_word(header, outer_class(tables, layer.traffic_class), flow_label);
        let payload = inner_len + path.header_len - ipv6::LEN;
        ipv6::set_payload_len(header, u16::try_from(payload).unwrap_or(u16::MAX));
        if let (false, Some(source)) = (path.own_source, adjacency.source) {
            for (slot, byte) in header.iter_mut().skip(8).zip(source.octets()) {
                *slot = byte;
            }
        }
    }
    Ok(())
}

/// Returns the outer traffic class: DSCP by mode (RFC 2983), ECN copied or, in compatibility mode, Not-ECT (RFC 6040
/// section 4.1).
#[inline]
fn outer_class(tables: &Tables, inner: u8) -> u8 {
    let dscp = match tables.tunnel.dscp {
        DscpMode::Uniform => inner & !3,
        DscpMode::Pipe(dscp) => dscp << 2,
    };
    if tables.tunnel.ecn_compat { dscp } else { dscp | inner & 3 }
}

#[inline]
pub(crate) fn put_ethernet(packet: &mut Packet<'_>, adjacency: &Adjacency, is_v6: bool) -> Result<(), DropReason> {
    let len = adjacency.ethernet_len;
    packet.push_front(len + TYPE_LEN).map_err(|_| DropReason::NoRoom)?;
    let ether_type = if is_v6 { eth::IPV6 } else { eth::IPV4 }.to_be_bytes();
    let bytes = packet.bytes_mut();
    let behind = if let (true, Some((slot, behind))) = (len == 12, bytes.split_first_chunk_mut::<12>()) {
        let [addresses @ .., _, _, _, _] = adjacency.ethernet;
        *slot = addresses;
        behind
    } else if let Some((slot, behind)) = bytes.split_first_chunk_mut::<16>() {
        *slot = adjacency.ethernet;
        behind
    } else {
        return Err(DropReason::NoRoom);
    };
    if let Some(slot) = behind.first_chunk_mut() {
        *slot = ether_type;
    }
    Ok(())
}

/// Writes the TCP or UDP checksum that a sender on this machine left to its network card.
/// Fragments and packets in several buffers stay as they are.
fn fill_transport_checksum(packet: &mut Packet<'_>) {
    if packet.tail_len() > 0 {
        return;
    }
    let bytes = packet.bytes();
    let Some((offset, protocol, pseudo)) = transport(bytes) else { return };
    let at = offset + if protocol == protocol::TCP { 16 } else { 6 };
    let Some(segment) = bytes.get(offset..) else { return };
    let Some(&[old_high, old_low]) = bytes.get(at..).and_then(<[u8]>::first_chunk) else { return };
    let sum = pseudo + segment.len() as u64 + u64::from(protocol) + checksum::sum(segment);
    let sum = sum + u64::from(!u16::from_be_bytes([old_high, old_low]));
    let value = match checksum::finish(sum) {
        0 if protocol == protocol::UDP => 0xffff,
        value => value,
    };
    if let Some(slot) = packet.bytes_mut().get_mut(at..at + 2) {
        slot.copy_from_slice(&value.to_be_bytes());
    }
}

/// Returns offset and protocol of the transport header, and the sum of the addresses.
fn transport(bytes: &[u8]) -> Option<(usize, u8, u64)> {
    let (offset, protocol, addresses) = if let Some(header) = ipv6::Header::parse(bytes) {
        (ipv6::LEN, header.next_header(), bytes.get(8..40)?)
    } else {
        let header = ipv4::Header::parse(bytes).filter(|header| !header.is_fragment())?;
        (header.header_len(), header.protocol(), bytes.get(12..20)?)
    };
    matches!(protocol, protocol::TCP | protocol::UDP).then(|| (offset, protocol, checksum::sum(addresses)))
}
