//! Routes of the kernel, as far as srv6d can follow them: netlink messages to [`KernelRoute`].

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use rtnetlink::packet_core::{DecodeError, DefaultNla, Emitable, Nla, NlaBuffer, NlasIterator, ParseableParametrized};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteLwEnCapType, RouteLwTunnelEncap, RouteMessage, RouteNextHop, RouteNextHopFlags,
    RouteProtocol, RouteSeg6IpTunnel, RouteSeg6LocalTunnel, RouteType, RouteVia, Seg6LocalAction,
};
use srv6d_srv6::model::TableId;

use super::ROUTE_PROTOCOL;
use crate::plan::{KernelAction, KernelEncap, KernelHop, KernelRoute, KernelSid, KernelSidAction};

/// `SEG6_IPTUN_MODE_*` (`linux/seg6_iptunnel.h`).
const MODE_ENCAP: u32 = 1;
const MODE_ENCAP_RED: u32 = 3;
/// `SEG6_LOCAL_COUNTERS`, `SEG6_LOCAL_FLAVORS` (`linux/seg6_local.h`).
const COUNTERS: u16 = 10;
const FLAVORS: u16 = 11;
/// `NLA_F_NESTED`, which the kernel sets on some of them.
const NESTED: u16 = 1 << 15;
/// Inside of them: `SEG6_LOCAL_FLV_OPERATION`, `_LCBLOCK_BITS`, `_LCNODE_FN_BITS`.
const FLAVOR_OPERATION: u16 = 1;
const FLAVOR_BLOCK_BITS: u16 = 2;
const FLAVOR_NODE_FUNCTION_BITS: u16 = 3;
/// Bits of the operation: `1 << SEG6_LOCAL_FLV_OP_*`.
const PSP: u32 = 1 << 1;
const USP: u32 = 1 << 2;
const USD: u32 = 1 << 3;
const NEXT_CSID: u32 = 1 << 4;
/// What the kernel shifts by when a route does not say.
const DEFAULT_BLOCK_BITS: u8 = 32;
const DEFAULT_NODE_FUNCTION_BITS: u8 = 16;

/// A route of the kernel; `None` for what is no route to somewhere else: srv6d's own, local and multicast ones, and
/// copies of routes that the kernel keeps for itself.
pub fn decode(message: &RouteMessage) -> Option<KernelRoute> {
    let header = &message.header;
    let kind = header.kind;
    let own = header.protocol == RouteProtocol::from(ROUTE_PROTOCOL);
    if own || matches!(kind, RouteType::Local | RouteType::Broadcast | RouteType::Anycast | RouteType::Multicast) {
        return None;
    }
    let mut found = Found::default();
    message.attributes.iter().for_each(|attribute| found.take(attribute));
    let table = TableId(found.table.unwrap_or_else(|| u32::from(header.table)));
    let default = match header.address_family {
        AddressFamily::Inet => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let prefix = IpNet::new(found.destination.unwrap_or(default), header.destination_prefix_length).ok()?;
    if prefix.addr().is_multicast() {
        return None;
    }
    let action = if header.source_prefix_length > 0 {
        KernelAction::Other("it depends on the source address".to_owned())
    } else if header.tos > 0 {
        KernelAction::Other("it depends on the traffic class".to_owned())
    } else {
        action(kind, &found)
    };
    Some(KernelRoute {
        table,
        prefix,
        metric: found.priority.unwrap_or_default(),
        protocol: header.protocol.into(),
        action,
    })
}

/// Attributes of a route, or of one of its next hops.
#[derive(Default)]
struct Found<'a> {
    table: Option<u32>,
    destination: Option<IpAddr>,
    priority: Option<u32>,
    via: Option<IpAddr>,
    device: Option<u32>,
    next_hop_object: bool,
    encap_type: Option<RouteLwEnCapType>,
    encap: &'a [RouteLwTunnelEncap],
    hops: &'a [RouteNextHop],
}

impl<'a> Found<'a> {
    fn take(&mut self, attribute: &'a RouteAttribute) {
        match attribute {
            RouteAttribute::Table(table) => self.table = Some(*table),
            RouteAttribute::Destination(to) => self.destination = address(to),
            RouteAttribute::Priority(metric) => self.priority = Some(*metric),
            RouteAttribute::Gateway(via) => self.via = address(via),
            RouteAttribute::Via(RouteVia::Inet6(via)) => self.via = Some(IpAddr::V6(*via)),
            RouteAttribute::Via(RouteVia::Inet(via)) => self.via = Some(IpAddr::V4(*via)),
            RouteAttribute::Oif(device) => self.device = Some(*device),
            RouteAttribute::NhId(_) => self.next_hop_object = true,
            RouteAttribute::EncapType(kind) => self.encap_type = Some(*kind),
            RouteAttribute::Encap(encap) => self.encap = encap,
            RouteAttribute::MultiPath(hops) => self.hops = hops,
            _ => {}
        }
    }
}

impl Found<'_> {
    /// The encapsulation; the library reads that of a next hop without looking at its type.
    fn encap(&self) -> Result<Vec<RouteLwTunnelEncap>, String> {
        let unreadable = |why: DecodeError| format!("an encapsulation that cannot be read: {why}");
        let typed = |part: &RouteLwTunnelEncap| {
            let (RouteLwTunnelEncap::Other(_), Some(kind)) = (part, self.encap_type) else { return Ok(part.clone()) };
            let mut bytes = vec![0; part.buffer_len()];
            part.emit(&mut bytes);
            let nla = NlaBuffer::new_checked(bytes.as_slice()).map_err(unreadable)?;
            RouteLwTunnelEncap::parse_with_param(&nla, kind).map_err(unreadable)
        };
        self.encap.iter().map(typed).collect()
    }
}

fn address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}

fn action(kind: RouteType, found: &Found<'_>) -> KernelAction {
    match kind {
        RouteType::BlackHole => return KernelAction::Blackhole,
        RouteType::Unreachable => return KernelAction::Unreachable,
        RouteType::Unicast => {}
        RouteType::Prohibit => return KernelAction::Other("a prohibit route: the kernel answers".to_owned()),
        other => return KernelAction::Other(format!("a route of type {other:?}")),
    }
    if found.encap_type == Some(RouteLwEnCapType::Seg6Local) {
        return found.encap().and_then(|encap| sid(&encap)).map_or_else(KernelAction::Other, KernelAction::Sid);
    }
    let hops: Result<Vec<KernelHop>, String> = if found.hops.is_empty() {
        hop(found, 1).map(|hop| vec![hop])
    } else {
        found.hops.iter().map(next_hop).collect()
    };
    hops.map_or_else(KernelAction::Other, KernelAction::Via)
}

fn next_hop(hop: &RouteNextHop) -> Result<KernelHop, String> {
    let mut found = Found { device: Some(hop.interface_index), ..Found::default() };
    hop.attributes.iter().for_each(|attribute| found.take(attribute));
    let hop_is_dead = hop.flags.intersects(RouteNextHopFlags::Dead | RouteNextHopFlags::Linkdown);
    // `rtnh_hops` is the weight less one.
    let weight = if hop_is_dead { 0 } else { u16::from(hop.hops) + 1 };
    self::hop(&found, weight)
}

fn hop(found: &Found<'_>, weight: u16) -> Result<KernelHop, String> {
    let device = found.device.ok_or(if found.next_hop_object {
        "its next hop is an object that the kernel does not spell out: set net.ipv4.nexthop_compat_mode=1"
    } else {
        "it names no device"
    })?;
    let encap = match found.encap_type {
        None | Some(RouteLwEnCapType::None) => None,
        Some(RouteLwEnCapType::Seg6) => Some(encap(&found.encap()?)?),
        Some(other) => return Err(format!("its encapsulation is {other}")),
    };
    Ok(KernelHop { device, via: found.via, weight, encap })
}

fn encap(encap: &[RouteLwTunnelEncap]) -> Result<KernelEncap, String> {
    let mut source = None;
    let mut header = None;
    for part in encap {
        match part {
            RouteLwTunnelEncap::Seg6(RouteSeg6IpTunnel::Seg6(seg6)) => header = Some(seg6),
            RouteLwTunnelEncap::Seg6(RouteSeg6IpTunnel::Src(address)) => source = Some(*address),
            _ => {}
        }
    }
    let header = header.ok_or("it has no segments")?;
    let reduced = match u32::from(header.mode) {
        MODE_ENCAP => false,
        MODE_ENCAP_RED => true,
        0 => return Err("seg6 mode inline".to_owned()),
        other => return Err(format!("seg6 mode {other}, a layer-2 or unknown one")),
    };
    if header.hmac.is_some() {
        return Err("its SRH has an HMAC".to_owned());
    }
    Ok(KernelEncap { reduced, segments: header.segments.clone(), source })
}

fn sid(encap: &[RouteLwTunnelEncap]) -> Result<KernelSid, String> {
    let mut read = ReadSid::default();
    for part in encap {
        if let RouteLwTunnelEncap::Seg6Local(part) = part {
            read.take(part)?;
        }
    }
    read.finish()
}

#[derive(Default)]
struct ReadSid {
    action: Option<Seg6LocalAction>,
    table: Option<u32>,
    via: Option<IpAddr>,
    device: Option<u32>,
    operation: u32,
    block_bits: Option<u8>,
    node_function_bits: Option<u8>,
}

impl ReadSid {
    fn take(&mut self, part: &RouteSeg6LocalTunnel) -> Result<(), String> {
        match part {
            RouteSeg6LocalTunnel::Action(action) => self.action = Some(*action),
            RouteSeg6LocalTunnel::Table(table) | RouteSeg6LocalTunnel::VrfTable(table) => self.table = Some(*table),
            RouteSeg6LocalTunnel::Nh4(via) => self.via = Some(IpAddr::V4(*via)),
            RouteSeg6LocalTunnel::Nh6(via) => self.via = Some(IpAddr::V6(*via)),
            RouteSeg6LocalTunnel::Oif(device) => self.device = Some(*device),
            RouteSeg6LocalTunnel::Other(other) => match other.kind() & !NESTED {
                COUNTERS => {}
                FLAVORS => self.flavors(other)?,
                kind => return Err(format!("seg6local with attribute {kind}")),
            },
            other => return Err(format!("seg6local {other}")),
        }
        Ok(())
    }

    fn flavors(&mut self, nested: &DefaultNla) -> Result<(), String> {
        let mut bytes = vec![0; nested.value_len()];
        nested.emit_value(&mut bytes);
        for nla in NlasIterator::new(bytes.as_slice()) {
            let nla = nla.map_err(|why| format!("flavors that cannot be read: {why}"))?;
            match (nla.kind(), nla.value()) {
                (FLAVOR_OPERATION, &[a, b, c, d]) => self.operation = u32::from_ne_bytes([a, b, c, d]),
                (FLAVOR_BLOCK_BITS, &[bits]) => self.block_bits = Some(bits),
                (FLAVOR_NODE_FUNCTION_BITS, &[bits]) => self.node_function_bits = Some(bits),
                (other, _) => return Err(format!("an unknown flavor attribute {other}")),
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<KernelSid, String> {
        use Seg6LocalAction as A;
        let table = TableId(self.table.unwrap_or(TableId::MAIN.0));
        let action = match self.action {
            Some(A::End) => KernelSidAction::End,
            Some(A::EndX) => KernelSidAction::EndX,
            Some(A::EndDx6) => KernelSidAction::EndDx6,
            Some(A::EndDx4) => KernelSidAction::EndDx4,
            Some(A::EndDt6) => KernelSidAction::EndDt6(table),
            Some(A::EndDt4) => KernelSidAction::EndDt4(table),
            Some(A::EndDt46) => KernelSidAction::EndDt46(table),
            Some(other) => return Err(format!("seg6local action {other}")),
            None => return Err("seg6local without an action".to_owned()),
        };
        let known = PSP | USP | USD | NEXT_CSID;
        if self.operation & !known != 0 {
            return Err(format!("flavors {:#x}", self.operation & !known));
        }
        let csid = (self.operation & NEXT_CSID != 0).then(|| {
            let block = self.block_bits.unwrap_or(DEFAULT_BLOCK_BITS);
            (block, self.node_function_bits.unwrap_or(DEFAULT_NODE_FUNCTION_BITS))
        });
        let has = |bit| self.operation & bit != 0;
        Ok(KernelSid { action, via: self.via, device: self.device, csid, psp: has(PSP), usp: has(USP), usd: has(USD) })
    }
}
