//! Installs the switch's static routes and SIDs as kernel routes. So the node's own traffic takes the same ways, a user
//! sees them with `ip route`, and the kernel continues to forward when srv6d is killed.
//!
//! They have `proto 200` and a metric higher than that of any other route of the same prefix: a route of FRR or of a
//! user takes precedence, and `ip -6 route del PREFIX` removes that one.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::stream::TryStreamExt;
use ipnet::IpNet;
use nix::errno::Errno::{ENOENT, ESRCH};
use rtnetlink::packet_core::{DefaultNla, NLA_F_NESTED};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteLwEnCapType, RouteLwTunnelEncap, RouteMessage, RouteNextHop, RouteProtocol,
    RouteScope, RouteSeg6IpTunnel, RouteSeg6LocalTunnel, RouteType, RouteVia, Seg6Header, Seg6LocalAction, Seg6Mode,
};
use rtnetlink::{Handle, RouteMessageBuilder};
use srv6d_addresses::TableId;

use super::links::Link;
use crate::wanted::{WantedAction, WantedEncap, WantedHop, WantedRoute, WantedSid};
use srv6d_daemon::kernel::{KernelError, ROUTE_PROTOCOL, errno, netlink};

/// Metric of the routes. FRR reads the first byte of a foreign route's metric as its administrative distance: 201 comes
/// after BGP (20, 200) and FRR's own static routes (1).
pub const METRIC: u32 = 201 << 24;

/// `SEG6_IPTUN_MODE_ENCAP_RED`.
const ENCAP_RED: u32 = 3;
/// `SEG6_LOCAL_FLAVORS` and the attributes inside it: `SEG6_LOCAL_FLV_OPERATION`, `_LCBLOCK_BITS`, `_LCNODE_FN_BITS`.
const FLAVORS: u16 = 11;
const FLAVOR_OPERATION: u16 = 1;
const FLAVOR_BLOCK_BITS: u16 = 2;
const FLAVOR_NODE_FUNCTION_BITS: u16 = 3;
/// `1 << SEG6_LOCAL_FLV_OP_NEXT_CSID`.
const NEXT_CSID: u32 = 1 << 4;

/// The netlink message of a route with the present indexes of its interfaces. A message that equals the last one need
/// not be sent.
pub type Message = RouteMessage;

/// Makes the message of a route. `None`: none of its interfaces exists and is up.
pub fn message(route: &WantedRoute, links: &[Link], sid_device: Option<u32>) -> Option<Message> {
    let mut message = base(route.table, route.prefix);
    match &route.action {
        WantedAction::Blackhole => message.header.kind = RouteType::BlackHole,
        WantedAction::Unreachable => message.header.kind = RouteType::Unreachable,
        WantedAction::Via(hops) => via(&mut message, hops, links)?,
        WantedAction::Sid(sid) => {
            let (device, parts) = seg6local(sid, links, sid_device)?;
            message.attributes.push(RouteAttribute::EncapType(RouteLwEnCapType::Seg6Local));
            let parts = parts.into_iter().map(RouteLwTunnelEncap::Seg6Local).collect();
            message.attributes.push(RouteAttribute::Encap(parts));
            message.attributes.push(RouteAttribute::Oif(device));
        }
    }
    Some(message)
}

fn base(table: TableId, prefix: IpNet) -> Message {
    let builder = RouteMessageBuilder::<IpAddr>::new()
        .table_id(table.0)
        .protocol(RouteProtocol::from(ROUTE_PROTOCOL))
        .priority(METRIC);
    match builder.destination_prefix(prefix.network(), prefix.prefix_len()) {
        Ok(builder) => builder.build(),
        Err(_) => RouteMessage::default(), // an IpNet's length always fits its family
    }
}

/// Returns the index of an interface if it exists and is up.
fn up(links: &[Link], name: &str) -> Option<u32> {
    links.iter().find(|link| link.name == name && link.up).map(|link| link.index)
}

fn via(message: &mut Message, hops: &[WantedHop], links: &[Link]) -> Option<()> {
    let usable = |hop: &&WantedHop| hop.port.as_deref().is_none_or(|port| up(links, port).is_some());
    let hops: Vec<&WantedHop> = hops.iter().filter(usable).collect();
    let attributes = |hop: &WantedHop| {
        let mut attributes: Vec<RouteAttribute> = hop.encap.iter().flat_map(encap).collect();
        attributes.extend(hop.via.map(|via| gateway(via, message_is_v4(message))));
        attributes
    };
    match hops.as_slice() {
        [] => return None,
        [hop] => {
            let mut attributes = attributes(hop);
            if hop.via.is_none() && message_is_v4(message) {
                message.header.scope = RouteScope::Link;
            }
            attributes.extend(hop.port.as_deref().and_then(|port| up(links, port)).map(RouteAttribute::Oif));
            message.attributes.extend(attributes);
        }
        several => {
            let legs = several.iter().map(|hop| {
                let mut leg = RouteNextHop::default();
                leg.interface_index = hop.port.as_deref().and_then(|port| up(links, port)).unwrap_or_default();
                leg.attributes = attributes(hop);
                leg
            });
            let legs = legs.collect();
            message.attributes.push(RouteAttribute::MultiPath(legs));
        }
    }
    Some(())
}

fn message_is_v4(message: &Message) -> bool {
    message.header.address_family == rtnetlink::packet_route::AddressFamily::Inet
}

/// Makes the attribute of a next hop. For an IPv4 route over an IPv6 next hop it has another type.
fn gateway(via: IpAddr, route_is_v4: bool) -> RouteAttribute {
    match via {
        IpAddr::V4(v4) => RouteAttribute::Gateway(RouteAddress::Inet(v4)),
        IpAddr::V6(v6) if route_is_v4 => RouteAttribute::Via(RouteVia::Inet6(v6)),
        IpAddr::V6(v6) => RouteAttribute::Gateway(RouteAddress::Inet6(v6)),
    }
}

fn encap(encap: &WantedEncap) -> [RouteAttribute; 2] {
    let mut header = Seg6Header::default();
    header.mode = if encap.reduced { Seg6Mode::Other(ENCAP_RED) } else { Seg6Mode::Encap };
    header.segments.clone_from(&encap.segments);
    let mut parts = vec![RouteSeg6IpTunnel::Seg6(header)];
    parts.extend(encap.source.map(RouteSeg6IpTunnel::Src));
    let parts = parts.into_iter().map(RouteLwTunnelEncap::Seg6).collect();
    [RouteAttribute::EncapType(RouteLwEnCapType::Seg6), RouteAttribute::Encap(parts)]
}

fn seg6local(sid: &WantedSid, links: &[Link], sid_device: Option<u32>) -> Option<(u32, Vec<RouteSeg6LocalTunnel>)> {
    use RouteSeg6LocalTunnel as Part;
    Some(match sid {
        WantedSid::End { block, shift } => {
            (sid_device?, vec![Part::Action(Seg6LocalAction::End), next_csid(*block, *shift)])
        }
        WantedSid::EndX { block, shift, via, port } => {
            let parts = vec![Part::Action(Seg6LocalAction::EndX), Part::Nh6(*via), next_csid(*block, *shift)];
            (up(links, port)?, parts)
        }
        WantedSid::EndDt6 { table } => (sid_device?, vec![Part::Action(Seg6LocalAction::EndDt6), Part::Table(table.0)]),
    })
}

/// Encodes the flavors of a NEXT-CSID SID:
///
/// ```text
/// | length | FLAVORS | length 8 | OPERATION | u32 | length 5 | BLOCK | u8 000 | length 5 | NODE_FUNCTION | u8 000 |
/// ```
fn next_csid(block: u8, shift: u8) -> RouteSeg6LocalTunnel {
    let mut value = Vec::new();
    let mut attribute = |kind: u16, bytes: &[u8], padding: usize| {
        let length = u16::try_from(4 + bytes.len()).unwrap_or_default();
        value.extend(length.to_ne_bytes());
        value.extend(kind.to_ne_bytes());
        value.extend(bytes);
        value.extend(std::iter::repeat_n(0, padding));
    };
    attribute(FLAVOR_OPERATION, &NEXT_CSID.to_ne_bytes(), 0);
    attribute(FLAVOR_BLOCK_BITS, &[block], 3);
    attribute(FLAVOR_NODE_FUNCTION_BITS, &[shift], 3);
    RouteSeg6LocalTunnel::Other(DefaultNla::new(FLAVORS | NLA_F_NESTED, value))
}

/// Adds a route, or replaces srv6d's own route of the same prefix.
///
/// # Errors
/// The kernel refuses.
pub async fn add(handle: &Handle, prefix: IpNet, message: Message) -> Result<(), KernelError> {
    handle.route().add(message).replace().execute().await.map_err(netlink(format!("add the route {prefix}")))
}

/// Removes srv6d's route. It is no error if it is gone already.
///
/// # Errors
/// The kernel refuses.
pub async fn remove(handle: &Handle, table: TableId, prefix: IpNet) -> Result<(), KernelError> {
    let mut message = base(table, prefix);
    // The type is left open: a blackhole route of the same metric is srv6d's as well.
    message.header.kind = RouteType::Unspec;
    message.header.scope = RouteScope::NoWhere;
    match handle.route().del(message).execute().await {
        Err(why) if [ENOENT, ESRCH].iter().any(|gone| errno(&why) == Some(*gone as i32)) => Ok(()),
        result => result.map_err(netlink(format!("remove the route {prefix}"))),
    }
}

/// Returns the routes that an earlier srv6d added, by table and prefix.
///
/// # Errors
/// The kernel refuses the dump.
pub async fn own(handle: &Handle) -> Result<BTreeSet<(TableId, IpNet)>, KernelError> {
    let mut found = BTreeSet::new();
    for asked in [RouteMessageBuilder::<Ipv4Addr>::new().build(), RouteMessageBuilder::<Ipv6Addr>::new().build()] {
        let mut dump = std::pin::pin!(handle.route().get(asked).execute());
        while let Some(message) = dump.try_next().await.map_err(netlink("list the routes"))? {
            let own = message.header.protocol == RouteProtocol::from(ROUTE_PROTOCOL)
                && message.attributes.contains(&RouteAttribute::Priority(METRIC));
            if let Some(place) = place(&message).filter(|_| own) {
                found.insert(place);
            }
        }
    }
    Ok(found)
}

fn place(message: &RouteMessage) -> Option<(TableId, IpNet)> {
    let mut table = u32::from(message.header.table);
    let mut to =
        if message_is_v4(message) { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Destination(RouteAddress::Inet(v4)) => to = IpAddr::V4(*v4),
            RouteAttribute::Destination(RouteAddress::Inet6(v6)) => to = IpAddr::V6(*v6),
            _ => {}
        }
    }
    Some((TableId(table), IpNet::new(to, message.header.destination_prefix_length).ok()?))
}
