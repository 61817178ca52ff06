//! Answers of this node: ICMP errors (RFC 4443, RFC 792) and echo replies. The packet itself becomes the answer, so
//! that every received frame still ends in exactly one place.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smoltcp::wire::{Icmpv4Message, Icmpv4Packet, Icmpv6Message, Icmpv6Packet, IpProtocol, Ipv4Packet, Ipv6Packet};
use srv6d_wire::{Packet, checksum, eth, ipv4, ipv6, protocol};

use crate::build::bits;
use crate::desired::{Mac, Role};
use crate::edit;
use crate::flow::FlowHash;
use crate::limiter::{ErrorKind, Limiter, Pace};
use crate::reason::DropReason;
use crate::slow::{Egress, FurtherSum, Layer, SlowPath, SrhEdit, ready_member};
use crate::tables::{Adjacency, AdjacencyState, PortEntry, Tables, Target, VrfIndex};

/// Hop limit of everything this node originates.
const HOP_LIMIT: u8 = 64;
/// Largest `ICMPv6` error (RFC 4443 section 2.4 c).
const MAX_V6_ERROR: usize = ipv6::MIN_MTU;
/// Largest `ICMPv4` error (RFC 1812 section 4.3.2.3).
const MAX_V4_ERROR: usize = 576;
/// Length of the `ICMP` or `ICMPv6` error header in front of the quoted packet.
const ERROR_HEADER: usize = 8;
/// Source of an `ICMPv4` error if the node has no IPv4 address (RFC 7600 section 4.8).
const IPV4_DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// The error that the sender is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    TimeExceeded,
    NoRoute,
    /// The neighbour does not answer (RFC 4861 section 7.2.2). In IPv4 this is host unreachable (RFC 1812 section
    /// 5.2.7.1).
    NoNeighbor,
    TooBig {
        mtu: u32,
    },
    ParameterProblem {
        code: u8,
        pointer: u32,
    },
}

/// A reply that can be sent: an ICMP error or an echo reply.
pub(crate) struct Reply<'t> {
    source: IpAddr,
    destination: IpAddr,
    notice: Option<Notice>,
    /// Offset of the part that is kept: the quoted packet, or the ICMP header of an echo request.
    keep_from: usize,
    keep_to: usize,
    way: ReplyEgress<'t>,
}

/// How a reply leaves.
enum ReplyEgress<'t> {
    Through(Egress<'t>),
    Kernel,
    /// It leaves through the port that the packet came from, to the station that sent it.
    Back {
        port: &'t PortEntry,
        to: Mac,
    },
}

/// Plans the ICMP error about the current layer of the slow path, and the way it takes. Returns `None` if no error may
/// be sent.
pub(crate) fn plan_error<'t>(
    slow: &SlowPath<'t, '_, '_>,
    notice: Notice,
    limiter: &mut Limiter,
    now: u64,
) -> Option<Reply<'t>> {
    let layer = &slow.progress.layer;
    if !may_be_answered(slow.frame, layer) {
        return None;
    }
    let source = error_source(slow, layer.is_v6)?;
    let destination = crate::slow::ip(layer.is_v6, layer.source);
    let way = way_to(slow, layer.vrf, destination);
    let answer = Reply { source, destination, notice: Some(notice), keep_from: layer.at, keep_to: layer.end, way };
    answer.check(slow).ok()?;
    let kind = if matches!(notice, Notice::TooBig { .. }) { ErrorKind::TooBig } else { ErrorKind::Other };
    let rate = slow.tables.policy.icmp_per_second;
    limiter.admits((slow.port.id, kind), destination, Pace { now, rate }).then_some(answer)
}

/// Returns the answer to an echo request for a SID. It comes from the SID that was pinged (RFC 4443 section 4.2).
///
/// # Errors
/// A request with an incomplete header or a wrong checksum is malformed (RFC 4443 section 2.3). The reply may also be
/// too large for the MTU of its way.
pub(crate) fn plan_echo<'t>(
    slow: &SlowPath<'t, '_, '_>,
    at: usize,
    further: FurtherSum<'_>,
) -> Result<Reply<'t>, DropReason> {
    let layer = &slow.progress.layer;
    if layer.end.saturating_sub(at) < ERROR_HEADER || !is_checksum_right(slow.frame, layer, at, further) {
        return Err(DropReason::Malformed);
    }
    let destination = crate::slow::ip(true, layer.source);
    let answer = Reply {
        source: crate::slow::ip(true, layer.destination),
        destination,
        notice: None,
        keep_from: at,
        keep_to: layer.end,
        way: way_to(slow, layer.vrf, destination),
    };
    answer.check(slow)?;
    Ok(answer)
}

/// Returns true if the `ICMPv6` message from `at` to the end of the packet has a correct checksum (RFC 4443 section
/// 2.3). The pseudo-header has the addresses that the slow path has arrived at, because a carrier has been shifted by
/// then (RFC 9800 section 6.5).
fn is_checksum_right(frame: &[u8], layer: &Layer, at: usize, further: FurtherSum<'_>) -> bool {
    let in_first_buffer = frame.get(at..layer.end.min(frame.len())).unwrap_or_default();
    let behind = match layer.end.checked_sub(frame.len()) {
        None | Some(0) => 0,
        Some(len) => checksum::at_offset(further(len), in_first_buffer.len()),
    };
    let addresses = checksum::sum(&layer.source.to_be_bytes()) + checksum::sum(&layer.destination.to_be_bytes());
    let pseudo_header = addresses + (layer.end - at) as u64 + u64::from(protocol::ICMPV6);
    checksum::finish(pseudo_header + checksum::sum(in_first_buffer) + behind) == 0
}

impl Reply<'_> {
    /// Checks, before the packet is changed, that the answer can be sent.
    fn check(&self, slow: &SlowPath<'_, '_, '_>) -> Result<(), DropReason> {
        let mtu = match &self.way {
            ReplyEgress::Kernel => return slow.tables.host.map(|_| ()).ok_or(DropReason::NoHostPort),
            ReplyEgress::Through(Egress::Routed(adjacency)) => adjacency.mtu,
            ReplyEgress::Through(Egress::Encapsulated(path, adjacency, _)) => {
                adjacency.mtu.min(path.mtu_for(self.source.is_ipv6())).saturating_sub(path.header_len)
            }
            // RFC 1122 section 3.2.2: no answer is sent to a broadcast or multicast MAC address.
            ReplyEgress::Back { to, .. } if to.is_group() => return Err(DropReason::L2Multicast),
            ReplyEgress::Back { port, .. } => port.mtu,
        };
        let kept = self.keep_to.saturating_sub(self.keep_from);
        let len = match (self.notice, self.source) {
            (None, _) => ipv6::LEN + kept,
            (Some(_), IpAddr::V6(_)) => (ipv6::LEN + ERROR_HEADER + kept).min(MAX_V6_ERROR),
            (Some(_), IpAddr::V4(_)) => (ipv4::LEN + ERROR_HEADER + kept).min(MAX_V4_ERROR),
        };
        if len <= mtu { Ok(()) } else { Err(DropReason::PacketTooBig) }
    }
}

/// Returns true if an error may be sent about a packet (RFC 4443 section 2.4 e, RFC 1122 section 3.2.2).
fn may_be_answered(frame: &[u8], layer: &Layer) -> bool {
    let Some(packet) = frame.get(layer.at..layer.end.min(frame.len())) else { return false };
    match crate::slow::ip(layer.is_v6, layer.source) {
        IpAddr::V6(source) => {
            !source.is_multicast() && !source.is_unspecified() && !source.is_loopback() && !is_icmpv6_error(packet)
        }
        IpAddr::V4(source) => {
            let Some(header) = ipv4::Header::parse(packet) else { return false };
            let kind = packet.get(header.header_len()).copied();
            let is_error = header.protocol() == protocol::ICMP && !kind.is_some_and(is_icmp_query);
            !source.is_multicast()
                && !source.is_unspecified()
                && !source.is_loopback()
                && !source.is_broadcast()
                && !header.has_offset()
                && !is_error
        }
    }
}

/// Returns true for `ICMPv4` queries and their replies. Any other type is an error, or may be one (RFC 1122 section
/// 3.2.2).
const fn is_icmp_query(kind: u8) -> bool {
    matches!(kind, 0 | 8..=10 | 13..=18)
}

/// Returns true if the upper layer behind all extension headers is an `ICMPv6` error or a redirect.
fn is_icmpv6_error(packet: &[u8]) -> bool {
    const REDIRECT: u8 = 137;
    let Some(mut next_header) = packet.get(ipv6::NEXT_HEADER).copied() else { return false };
    let mut at = ipv6::LEN;
    loop {
        let Some(rest) = packet.get(at..) else { return false };
        let len = match (next_header, rest.first_chunk::<2>()) {
            (protocol::HOP_BY_HOP, Some(&[_, units])) if at == ipv6::LEN => 8 + usize::from(units) * 8,
            (protocol::DEST_OPTIONS | protocol::ROUTING, Some(&[_, units])) => 8 + usize::from(units) * 8,
            // The type is in the first fragment only, so any other fragment of an ICMPv6 message may belong to an
            // error.
            (protocol::FRAGMENT, Some(&[next, _])) if srv6d_wire::be16(rest, 2).unwrap_or(0) & 0xfff8 != 0 => {
                return next == protocol::ICMPV6;
            }
            (protocol::FRAGMENT, Some(_)) => 8,
            (protocol::ICMPV6, _) => return rest.first().is_none_or(|&kind| kind < 128 || kind == REDIRECT),
            _ => return false,
        };
        next_header = rest.first().copied().unwrap_or(protocol::NONE);
        at += len;
    }
}

/// Returns an address of the port, or else of the node.
fn error_source(slow: &SlowPath<'_, '_, '_>, is_v6: bool) -> Option<IpAddr> {
    if is_v6 {
        slow.port.icmp_v6.or(slow.tables.tunnel.source).map(IpAddr::V6)
    } else {
        // Linux accepts no IPv4 packet from one of its own addresses, so the kernel behind the own veth gets another
        // source.
        let own = slow.port.icmp_v4.filter(|_| slow.port.role != Role::Kernel);
        Some(IpAddr::V4(own.unwrap_or(IPV4_DUMMY)))
    }
}

/// Returns the route to the sender. If there is none, the answer goes back to the station that sent the packet.
fn way_to<'t>(slow: &SlowPath<'t, '_, '_>, vrf: VrfIndex, destination: IpAddr) -> ReplyEgress<'t> {
    let tables = slow.tables;
    let flow = FlowHash::default();
    let way = match tables.look_up(vrf, destination.is_ipv6(), bits(destination)) {
        Some(Target::Local | Target::Kernel) => Some(ReplyEgress::Kernel),
        Some(Target::Route(group) | Target::Neighbor(group)) => {
            ready_member(tables, group, || flow).ok().map(|member| ReplyEgress::Through(Egress::Routed(member)))
        }
        Some(Target::Steer(steer)) => tables.path(steer, flow).and_then(|path| {
            let adjacency = ready_member(tables, path.group?, || flow).ok()?;
            Some(ReplyEgress::Through(Egress::Encapsulated(path, adjacency, flow)))
        }),
        _ => None,
    };
    match way {
        Some(way) => way,
        None if slow.port.role == Role::Kernel => ReplyEgress::Kernel,
        None => ReplyEgress::Back { port: slow.port, to: slow.source_mac },
    }
}

/// Turns the packet into the error. Returns the device it leaves through.
pub(crate) fn write_error(tables: &Tables, packet: &mut Packet<'_>, answer: &Reply<'_>) -> Result<u16, DropReason> {
    let (ip_len, max) = if answer.source.is_ipv6() { (ipv6::LEN, MAX_V6_ERROR) } else { (ipv4::LEN, MAX_V4_ERROR) };
    packet.truncate(answer.keep_to.min(packet.bytes().len()));
    packet.pull_front(answer.keep_from);
    packet.truncate(packet.bytes().len().min(max - ip_len - ERROR_HEADER));
    packet.push_front(ip_len + ERROR_HEADER).map_err(|_| DropReason::NoRoom)?;
    match (answer.source, answer.destination, answer.notice) {
        (IpAddr::V6(source), IpAddr::V6(destination), Some(notice)) => {
            put_v6_error(packet.bytes_mut(), source, destination, notice);
        }
        (IpAddr::V4(source), IpAddr::V4(destination), Some(notice)) => {
            put_v4_error(packet.bytes_mut(), source, destination, notice);
        }
        _ => return Err(DropReason::Malformed),
    }
    let len = packet.total_len();
    leave(tables, packet, answer, len)
}

fn put_v6_error(bytes: &mut [u8], source: Ipv6Addr, destination: Ipv6Addr, notice: Notice) {
    let payload_len = bytes.len().saturating_sub(ipv6::LEN);
    put_v6_header(bytes, source, destination, payload_len);
    let mut header = Ipv6Packet::new_unchecked(bytes);
    let (kind, code, word) = match notice {
        Notice::TimeExceeded => (Icmpv6Message::TimeExceeded, 0, 0),
        Notice::NoRoute => (Icmpv6Message::DstUnreachable, 0, 0),
        Notice::NoNeighbor => (Icmpv6Message::DstUnreachable, 3, 0),
        Notice::TooBig { mtu } => (Icmpv6Message::PktTooBig, 0, mtu),
        Notice::ParameterProblem { code, pointer } => (Icmpv6Message::ParamProblem, code, pointer),
    };
    let payload = header.payload_mut();
    put_word(payload, word);
    let mut icmp = Icmpv6Packet::new_unchecked(payload);
    icmp.set_msg_type(kind);
    icmp.set_msg_code(code);
    icmp.fill_checksum(&source, &destination);
}

/// Writes the 4 bytes behind type, code and checksum: unused, MTU, or pointer.
fn put_word(icmp: &mut [u8], word: u32) {
    if let Some(slot) = icmp.get_mut(4..ERROR_HEADER) {
        slot.copy_from_slice(&word.to_be_bytes());
    }
}

fn put_v6_header(bytes: &mut [u8], source: Ipv6Addr, destination: Ipv6Addr, payload_len: usize) {
    let mut header = Ipv6Packet::new_unchecked(bytes);
    header.set_version(6);
    header.set_traffic_class(0);
    header.set_flow_label(0);
    header.set_payload_len(u16::try_from(payload_len).unwrap_or(u16::MAX));
    header.set_next_header(IpProtocol::Icmpv6);
    header.set_hop_limit(HOP_LIMIT);
    header.set_src_addr(source);
    header.set_dst_addr(destination);
}

fn put_v4_error(bytes: &mut [u8], source: Ipv4Addr, destination: Ipv4Addr, notice: Notice) {
    let total = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    let mut header = Ipv4Packet::new_unchecked(bytes);
    header.set_version(4);
    header.set_header_len(20);
    header.set_dscp(0);
    header.set_ecn(0);
    header.set_total_len(total);
    header.set_ident(0);
    header.clear_flags();
    header.set_frag_offset(0);
    header.set_hop_limit(HOP_LIMIT);
    header.set_next_header(IpProtocol::Icmp);
    header.set_src_addr(source);
    header.set_dst_addr(destination);
    header.fill_checksum();
    let payload = header.payload_mut();
    let (kind, code, word) = match notice {
        Notice::TimeExceeded => (Icmpv4Message::TimeExceeded, 0, 0),
        Notice::NoRoute => (Icmpv4Message::DstUnreachable, 0, 0),
        Notice::NoNeighbor => (Icmpv4Message::DstUnreachable, 1, 0),
        Notice::TooBig { mtu } => (Icmpv4Message::DstUnreachable, 4, mtu & 0xffff),
        Notice::ParameterProblem { pointer, .. } => (Icmpv4Message::ParamProblem, 0, pointer << 24),
    };
    put_word(payload, word);
    let mut icmp = Icmpv4Packet::new_unchecked(payload);
    icmp.set_msg_type(kind);
    icmp.set_msg_code(code);
    icmp.fill_checksum();
}

/// Turns an echo request into its reply. Returns the device it leaves through.
///
/// Only the first buffer is written. The checksum, which was found to be correct, changes with the type alone (RFC
/// 1624), because the addresses of the pseudo-header are only swapped.
pub(crate) fn write_echo(tables: &Tables, packet: &mut Packet<'_>, answer: &Reply<'_>) -> Result<u16, DropReason> {
    let (IpAddr::V6(source), IpAddr::V6(destination)) = (answer.source, answer.destination) else {
        return Err(DropReason::Malformed);
    };
    let payload_len = answer.keep_to.saturating_sub(answer.keep_from);
    packet.truncate(answer.keep_to);
    packet.pull_front(answer.keep_from);
    packet.push_front(ipv6::LEN).map_err(|_| DropReason::NoRoom)?;
    put_v6_header(packet.bytes_mut(), source, destination, payload_len);
    let message = packet.bytes_mut().get_mut(ipv6::LEN..).and_then(<[u8]>::first_chunk_mut);
    let Some([kind, code, high, low]) = message else { return Err(DropReason::Malformed) };
    let asked = u16::from_be_bytes([*kind, *code]);
    *kind = Icmpv6Message::EchoReply.into();
    let answered = u16::from_be_bytes([*kind, *code]);
    [*high, *low] = checksum::replace(u16::from_be_bytes([*high, *low]), asked, answered).to_be_bytes();
    leave(tables, packet, answer, ipv6::LEN + payload_len)
}

/// Sends the answer. The packet now holds it, an IP packet of `len` bytes.
fn leave(tables: &Tables, packet: &mut Packet<'_>, answer: &Reply<'_>, len: usize) -> Result<u16, DropReason> {
    let is_v6 = answer.source.is_ipv6();
    let layer = Layer {
        at: 0,
        end: len,
        is_v6,
        vrf: 0,
        source: bits(answer.source),
        destination: bits(answer.destination),
        hop_limit: HOP_LIMIT,
        hop_spent: true,
        traffic_class: 0,
        protocol: if is_v6 { protocol::ICMPV6 } else { protocol::ICMP },
        srh: SrhEdit::None,
    };
    match &answer.way {
        ReplyEgress::Through(egress) => edit::send(tables, packet, &layer, *egress, false),
        ReplyEgress::Kernel => edit::to_kernel(tables, packet, &layer),
        ReplyEgress::Back { port, to } => {
            let adjacency = reflection(port, *to);
            edit::send(tables, packet, &layer, Egress::Routed(&adjacency), false)
        }
    }
}

fn reflection(port: &PortEntry, to: Mac) -> Adjacency {
    let mut ethernet = [0u8; 16];
    let tag = port.vlan.map(|vid| (eth::VLAN, vid)).unwrap_or_default();
    let header = to.0.into_iter().chain(port.mac.0).chain(tag.0.to_be_bytes()).chain(tag.1.to_be_bytes());
    for (slot, byte) in ethernet.iter_mut().zip(header) {
        *slot = byte;
    }
    Adjacency {
        slot: u32::MAX,
        port: crate::desired::PortId(port.device),
        device: port.device,
        neighbor: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        state: AdjacencyState::Ready,
        mtu: port.mtu,
        ethernet,
        ethernet_len: if port.vlan.is_some() { 16 } else { 12 },
        source: None,
        is_idle: false,
    }
}
