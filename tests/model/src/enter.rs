//! Who may come in: Ethernet, the port that is meant, and what is nobody's business to forward.

use std::net::IpAddr;

use etherparse::{EtherType, Ethernet2Header, IpNumber, SingleVlanHeader};
use ipnet::IpNet;
use srv6d_srv6::model::{Desired, Mac, Port, PortId, Role, RouteAction, TableId};
use srv6d_srv6::{DropReason, Verdict};

use crate::forward::End;
use crate::lookup::{Match, in_block, look_up};
use crate::packet::{Ip, Malformed};
use crate::scope::{is_for_many, is_nobody, is_nowhere, is_on_link};

/// A frame that belongs to a port.
pub(crate) struct Entered<'d> {
    pub(crate) port: &'d Port,
    pub(crate) port_id: PortId,
    pub(crate) ethernet: Ethernet2Header,
    /// `None`: neither IPv4 nor IPv6.
    pub(crate) packet: Option<Ip>,
}

/// Ethernet, VLAN tag, and the port that is meant.
pub(crate) fn enter<'d>(desired: &'d Desired, device: u16, frame: &[u8]) -> Result<Entered<'d>, Verdict> {
    let drop = Verdict::Drop;
    let (ethernet, rest) = Ethernet2Header::from_slice(frame).map_err(|_| drop(DropReason::Malformed))?;
    let (vid, ethertype, payload) = if ethernet.ether_type == EtherType::VLAN_TAGGED_FRAME {
        let (tag, rest) = SingleVlanHeader::from_slice(rest).map_err(|_| drop(DropReason::Malformed))?;
        (Some(tag.vlan_id.value()), tag.ether_type, rest)
    } else {
        (None, ethernet.ether_type, rest)
    };
    let mut ports = (0u16..).zip(&desired.ports);
    let found = ports.find(|(_, port)| port.device == device && port.vlan == vid);
    let (index, port) = found.ok_or(drop(DropReason::Vlan))?;
    let destination = Mac(ethernet.destination);
    // Nobody but the kernel is at the other end of the own veth: all it sends is for srv6d.
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

/// Who may send what to whom. `Err(End::Kernel)`: what keeps the link alive is not forwarded.
pub(crate) fn admit(desired: &Desired, port: &Port, to: Mac, packet: &Ip) -> Result<(), End> {
    let (source, destination) = (packet.source(), packet.destination());
    // RFC 1122 section 3.3.6, RFC 4443 section 2.4 e.4.
    if to.is_group() && port.role != Role::Kernel && !is_for_many(destination) {
        return Err(End::Drop(DropReason::L2Multicast));
    }
    if packet.bytes().len() > port.mtu as usize {
        return Err(End::Drop(DropReason::Oversize));
    }
    if is_for_many(destination) || is_on_link(destination) || is_on_link(source) || is_discovery(packet) {
        // What the kernel itself sends so would only come back to it.
        let from_kernel = port.role == Role::Kernel;
        return Err(if from_kernel { End::Drop(DropReason::NoRoute) } else { End::Kernel(packet.clone()) });
    }
    if is_nobody(source) {
        return Err(End::Drop(DropReason::BadSource));
    }
    if is_nowhere(destination) {
        return Err(End::Drop(DropReason::NoRoute));
    }
    admit_to_sids(desired, port, destination)?;
    let may_send = |prefix: &IpNet| prefix.contains(&source);
    if !port.allowed_sources.is_empty() && !port.allowed_sources.iter().any(may_send) {
        return Err(End::Drop(DropReason::AclSource));
    }
    Ok(())
}

/// Neighbour and router discovery, and redirects. With another hop limit it is none of these (RFC 4861 section 7.1).
fn is_discovery(packet: &Ip) -> bool {
    let Ip::V6(packet) = packet else { return false };
    let kind = packet.payload.first().copied().unwrap_or_default();
    packet.header.next_header == IpNumber::IPV6_ICMP && packet.header.hop_limit == 255 && (133..=137).contains(&kind)
}

/// RFC 8754 section 5.1: SIDs are not for everyone. Subnets and addresses of the node may lie in the block too.
fn admit_to_sids(desired: &Desired, port: &Port, destination: IpAddr) -> Result<(), End> {
    let reason = match port.role {
        Role::Edge => DropReason::AclEdge,
        Role::Host => DropReason::AclPath,
        Role::Fabric | Role::Kernel => return Ok(()),
    };
    let IpAddr::V6(address) = destination else { return Ok(()) };
    let allowed = port.allowed_carriers.iter().any(|prefix| prefix.contains(&address));
    if !in_block(desired, address) || allowed || is_ours(desired, port.table, destination) {
        return Ok(());
    }
    Err(End::Drop(reason))
}

/// An address of the node itself, or behind one of its links.
fn is_ours(desired: &Desired, table: TableId, address: IpAddr) -> bool {
    match look_up(desired, table, address) {
        Some(Match::Local | Match::Route(RouteAction::Kernel)) => true,
        Some(Match::Route(RouteAction::Via(hops))) => hops.iter().any(|hop| hop.via.is_none()),
        _ => false,
    }
}
