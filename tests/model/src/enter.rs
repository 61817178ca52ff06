//! Admission of received frames: Ethernet, the port of the frame, and packets that may not be forwarded.

use std::net::{IpAddr, Ipv6Addr};

use etherparse::{EtherType, Ethernet2Header, IpNumber, SingleVlanHeader};
use ipnet::IpNet;
use srv6d_srv6::desired::{Desired, Mac, Path, Port, PortId, Role, RouteAction, TableId};
use srv6d_srv6::{DropReason, Verdict};

use crate::forward::End;
use crate::lookup::{Match, in_block, is_local_address, look_up};
use crate::packet::{Ip, Malformed};
use crate::scope::{is_for_many, is_nobody, is_nowhere, is_on_link};

/// A received frame and the port it belongs to.
pub(crate) struct Entered<'d> {
    pub(crate) port: &'d Port,
    pub(crate) port_id: PortId,
    pub(crate) ethernet: Ethernet2Header,
    /// The IP packet; `None`: the frame contains neither IPv4 nor IPv6.
    pub(crate) packet: Option<Ip>,
}

/// Reads the Ethernet header and the VLAN tag, and finds the port.
pub(crate) fn enter<'d>(desired: &'d Desired, device: u16, frame: &[u8]) -> Result<Entered<'d>, Verdict> {
    let drop = Verdict::Drop;
    let (ethernet, rest) = Ethernet2Header::from_slice(frame).map_err(|_| drop(DropReason::Malformed))?;
    let (vid, ethertype, payload) = tag(ethernet.ether_type, rest).ok_or(drop(DropReason::Malformed))?;
    let mut ports = (0u16..).zip(&desired.ports);
    let found = ports.find(|(_, port)| port.device == device && port.vlan == vid);
    let (index, port) = found.ok_or(drop(DropReason::Vlan))?;
    let destination = Mac(ethernet.destination);
    // Only the kernel is at the other end of the own veth, so every frame from there is for srv6d.
    if !destination.is_group() && destination != port.mac && port.role != Role::Kernel {
        return Err(drop(DropReason::NotOurMac));
    }
    let is_v6 = match ethertype {
        EtherType::IPV6 => Some(true),
        EtherType::IPV4 => Some(false),
        _ if port.role == Role::Kernel => return Err(drop(DropReason::EtherType)),
        _ => None,
    };
    let parse = |is_v6| Ip::parse(is_v6, payload).map_err(|Malformed| drop(DropReason::Malformed));
    Ok(Entered { port, port_id: PortId(index), ethernet, packet: is_v6.map(parse).transpose()? })
}

/// Reads the VLAN tags. Returns the VLAN ID, and the type and bytes of what follows. A tag with VID 0 carries only a
/// priority (IEEE 802.1Q section 6.9); one or two of these may come first.
fn tag(mut ether_type: EtherType, mut rest: &[u8]) -> Option<(Option<u16>, EtherType, &[u8])> {
    for already in 0..3 {
        let is_tag = ether_type == EtherType::VLAN_TAGGED_FRAME || ether_type == EtherType::PROVIDER_BRIDGING;
        if !is_tag {
            break;
        }
        let (tag, behind) = SingleVlanHeader::from_slice(rest).ok()?;
        if tag.vlan_id.value() != 0 {
            let is_ours = ether_type == EtherType::VLAN_TAGGED_FRAME;
            return Some(if is_ours {
                (Some(tag.vlan_id.value()), tag.ether_type, behind)
            } else {
                (None, ether_type, rest)
            });
        }
        if already == 2 {
            break;
        }
        (ether_type, rest) = (tag.ether_type, behind);
    }
    Some((None, ether_type, rest))
}

/// Checks who may send what to whom. `Err(End::Kernel)` stands for packets of link protocols, which are not forwarded.
pub(crate) fn admit(desired: &Desired, port: &Port, to: Mac, packet: &Ip) -> Result<(), End> {
    let (source, destination) = (packet.source(), packet.destination());
    // RFC 1122 section 3.3.6, RFC 4443 section 2.4 e.4.
    let is_subnet_broadcast = destination.is_ipv4() && is_own(desired, port.table, destination);
    if to.is_group() && port.role != Role::Kernel && !is_for_many(destination) && !is_subnet_broadcast {
        return Err(End::Drop(DropReason::L2Multicast));
    }
    if packet.bytes().len() > port.mtu as usize {
        return Err(End::Drop(DropReason::Oversize));
    }
    let to_link = is_for_many(destination) || is_on_link(destination);
    if to_link || is_on_link(source) || is_discovery(packet) {
        match port.role {
            Role::Fabric => return Err(End::Kernel(packet.clone())),
            // Such a packet comes from the kernel itself and would only return to it.
            Role::Kernel => return Err(End::Drop(DropReason::NoRoute)),
            Role::Edge | Role::Host if to_link || is_own(desired, port.table, destination) => {
                admit_source(desired, port, port.table, packet)?;
                admit_source_route(desired, port, packet)?;
                admit_segments(desired, port, port.table, packet)?;
                return Err(End::Kernel(packet.clone()));
            }
            Role::Edge | Role::Host if is_on_link(source) => return Err(End::Drop(DropReason::BadSource)),
            // Discovery that is addressed to another node is treated like any other packet.
            Role::Edge | Role::Host => {}
        }
    }
    if is_nobody(source) {
        return Err(End::Drop(DropReason::BadSource));
    }
    if is_nowhere(destination) {
        return Err(End::Drop(DropReason::NoRoute));
    }
    admit_from_outside(desired, port, port.table, packet)?;
    admit_source_route(desired, port, packet)
}

/// Refuses an IPv4 source route (RFC 7126 section 4.3), unless the kernel decides about the packet.
fn admit_source_route(desired: &Desired, port: &Port, packet: &Ip) -> Result<(), End> {
    let is_kernels = match port.role {
        Role::Kernel => true,
        Role::Edge | Role::Host => false,
        Role::Fabric => matches!(
            look_up(desired, port.table, packet.destination()),
            Some(Match::Local | Match::Route(RouteAction::Kernel))
        ),
    };
    if packet.has_source_route() && !is_kernels { Err(End::Drop(DropReason::SourceRoute)) } else { Ok(()) }
}

/// Checks a packet from outside, which comes by itself or inside of a packet for a SID, and is looked up in `table`.
pub(crate) fn admit_from_outside(desired: &Desired, port: &Port, table: TableId, packet: &Ip) -> Result<(), End> {
    if let (Some(reason), IpAddr::V6(address)) = (refusal(port), packet.destination()) {
        if !is_allowed(desired, port, table, address) {
            return Err(End::Drop(reason));
        }
        admit_segments(desired, port, table, packet)?;
    }
    admit_source(desired, port, table, packet)
}

/// Checks the source address (BCP 38). A source of this node is refused even if the port allows all sources. A host
/// without an address may ask for one (RFC 4862 section 5.4.2, RFC 2131 section 4.1).
fn admit_source(desired: &Desired, port: &Port, table: TableId, packet: &Ip) -> Result<(), End> {
    let (source, destination) = (packet.source(), packet.destination());
    if port.role.is_outside() && is_of_this_node(desired, table, source) {
        return Err(End::Drop(DropReason::BadSource));
    }
    let asks_for_one = source.is_unspecified() && (is_for_many(destination) || is_on_link(destination));
    let may_send = |prefix: &IpNet| prefix.contains(&source);
    let is_free = port.allowed_sources.is_empty() || is_on_link(source) || asks_for_one;
    if is_free || port.allowed_sources.iter().any(may_send) { Ok(()) } else { Err(End::Drop(DropReason::AclSource)) }
}

/// Returns whether a source is this node's: an own address of the table, inside an own SID, or inside a block but
/// neither a host's nor behind a port of the table.
fn is_of_this_node(desired: &Desired, table: TableId, source: IpAddr) -> bool {
    if desired.local_addresses.contains(&(table, source)) && !is_on_link(source) {
        return true;
    }
    let IpAddr::V6(source) = source else { return false };
    let is_behind_port = desired.routes.iter().any(|route| {
        let RouteAction::Via(hops) = &route.action else { return false };
        route.table == table && route.prefix.contains(&IpAddr::V6(source)) && hops.iter().any(|hop| hop.via.is_none())
    });
    let is_hosts = desired.host_prefixes.iter().any(|prefix| prefix.contains(&source));
    desired.sids.iter().any(|sid| sid.prefix.contains(&source))
        || in_block(desired, source) && !is_hosts && !is_behind_port
}

/// Returns whether the packet is neighbour discovery, router discovery or a redirect. With a hop limit other than 255
/// it is not (RFC 4861 section 7.1).
fn is_discovery(packet: &Ip) -> bool {
    let Ip::V6(packet) = packet else { return false };
    let kind = packet.payload.first().copied().unwrap_or_default();
    packet.header.next_header == IpNumber::IPV6_ICMP && packet.header.hop_limit == 255 && (133..=137).contains(&kind)
}

/// Returns the reason with which a port outside the domain refuses SIDs (RFC 8754 section 5.1).
fn refusal(port: &Port) -> Option<DropReason> {
    match port.role {
        Role::Edge => Some(DropReason::AclEdge),
        Role::Host => Some(DropReason::AclPath),
        Role::Fabric | Role::Kernel => None,
    }
}

/// Returns whether a sender outside the domain may use this destination. Subnets and addresses of the node may lie in a
/// block.
fn is_allowed(desired: &Desired, port: &Port, table: TableId, address: Ipv6Addr) -> bool {
    let is_given = port.allowed_carriers.iter().any(|prefix| prefix.contains(&address));
    is_given
        || match look_up(desired, table, address.into()) {
            Some(Match::Sid(_)) => false,
            Some(Match::Local) => true,
            Some(Match::Route(RouteAction::Via(hops))) if hops.iter().any(|hop| hop.via.is_none()) => true,
            _ => !in_sid_space(desired, address),
        }
}

/// Returns whether the address is in SID space: in a block but not in a host prefix, or in a locator (the first 48
/// bits) of a path's segment.
fn in_sid_space(desired: &Desired, address: Ipv6Addr) -> bool {
    if in_block(desired, address) {
        return !desired.host_prefixes.iter().any(|prefix| prefix.contains(&address));
    }
    let listed = |path: &Path| path.segments.addresses().to_vec();
    let mut segments = desired.steers.iter().flat_map(|steer| &steer.paths).flat_map(listed);
    segments.any(|segment| {
        !segment.is_unspecified() && !in_block(desired, segment) && segment.segments()[..3] == address.segments()[..3]
    })
}

/// Checks the segments of an SRH, which later nodes use as destinations. Packets with headers that cannot be parsed are
/// refused.
fn admit_segments(desired: &Desired, port: &Port, table: TableId, packet: &Ip) -> Result<(), End> {
    let (Some(reason), Ip::V6(packet)) = (refusal(port), packet) else { return Ok(()) };
    let (mut next, mut rest) = (packet.header.next_header, packet.payload.as_slice());
    loop {
        match next {
            IpNumber::IPV6_HEADER_HOP_BY_HOP | IpNumber::IPV6_DESTINATION_OPTIONS | IpNumber::AUTHENTICATION_HEADER => {
            }
            IpNumber::IPV6_ROUTE_HEADER => {
                let len = 8 + 8 * usize::from(*rest.get(1).ok_or(Malformed)?);
                let header = rest.get(..len).ok_or(Malformed)?;
                let [_, _, kind, left, last, ..] = *header else { return Err(Malformed.into()) };
                let count = usize::from(left).max(usize::from(last.saturating_add(1)));
                let listed = header.get(8..).unwrap_or_default();
                let named: Vec<Ipv6Addr> = listed
                    .chunks_exact(16)
                    .take(count)
                    .filter_map(|b| <[u8; 16]>::try_from(b).ok())
                    .map(Into::into)
                    .collect();
                let is_fine = kind == 4
                    && named.len() == count
                    && named.iter().all(|segment| is_allowed(desired, port, table, *segment));
                if left > 0 && !is_fine {
                    return Err(End::Drop(reason));
                }
            }
            IpNumber::IPV6_FRAGMENTATION_HEADER => {
                let hides = matches!(*rest.first().ok_or(Malformed)?, 0 | 43 | 44 | 51 | 60);
                return if hides { Err(End::Drop(reason)) } else { Ok(()) };
            }
            _ => return Ok(()),
        }
        let [first, units, ..] = *rest else { return Err(Malformed.into()) };
        // RFC 4302 section 2.2 counts in words of 32 bits.
        let unit = if next == IpNumber::AUTHENTICATION_HEADER { 4 } else { 8 };
        next = IpNumber(first);
        rest = rest.get(8 + unit * usize::from(units)..).ok_or(Malformed)?;
    }
}

/// Returns whether the address belongs to the node itself.
fn is_own(desired: &Desired, table: TableId, address: IpAddr) -> bool {
    match look_up(desired, table, address) {
        Some(Match::Local) => true,
        Some(Match::Sid(sid)) => IpAddr::V6(sid.prefix.network()) == address && is_local_address(desired, sid),
        _ => false,
    }
}
