//! Reads routes: `RTM_NEWROUTE` and `RTM_DELROUTE`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{RouteHeader, RouteType};
use srv6d_kernel_routes::rtnetlink::route::{
    DESTINATION, ENCAP, ENCAP_TYPE, GATEWAY, METRICS, MULTIPATH, NEXT_HOP_ID, OIF, PREFERRED_SOURCE, PRIORITY, SOURCE,
    TABLE, VIA,
};

use crate::attributes::{self, attributes};
use crate::event::{Decoded, Dialect, Event, Hop, Ignored, Malformed, Route, RouteKey, Target, Vrf};
use crate::seg6::{self, EncapBytes, some};

/// Length of `struct rtmsg` in bytes.
pub const HEADER: usize = 12;
/// Length of `struct rtnexthop` in bytes.
const HOP_HEADER: usize = 8;
/// Address that the stock dialect writes in place of the IPv6 neighbour of an IPv4 route. The neighbour itself is not
/// in the message.
const NEIGHBOUR_NOT_SAID: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 0, 1));

/// Attributes of a route or of one of its next hops.
#[derive(Default)]
struct Read<'a> {
    table: Option<u32>,
    destination: Option<IpAddr>,
    object: Option<u32>,
    multipath: Option<&'a [u8]>,
    hop: Hop,
    encap: EncapBytes<'a>,
    unknown: u32,
}

impl<'a> Read<'a> {
    fn all(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut read = Self::default();
        for attribute in attributes(bytes) {
            let (kind, value) = attribute?;
            read.take(kind, value)?;
        }
        Ok(read)
    }

    fn take(&mut self, kind: u16, value: &'a [u8]) -> Result<(), Malformed> {
        match kind {
            DESTINATION => self.destination = Some(attributes::address(value)?),
            OIF => self.hop.device = Some(attributes::u32(value)?).filter(|device| *device != 0),
            GATEWAY => self.hop.via = some(attributes::address(value)?),
            VIA => self.hop.via = some(attributes::via(value)?),
            MULTIPATH => self.multipath = Some(value),
            TABLE => self.table = Some(attributes::u32(value)?),
            ENCAP_TYPE => self.encap.kind = Some(attributes::u16(value)?),
            ENCAP => self.encap.bytes = value,
            NEXT_HOP_ID => self.object = Some(attributes::u32(value)?).filter(|id| *id != 0),
            SOURCE | PRIORITY | PREFERRED_SOURCE | METRICS => {}
            _ => self.unknown += 1,
        }
        Ok(())
    }
}

/// Reads the header, the key and the attributes of a route. The inner error says why a message is ignored.
fn read(body: &[u8]) -> Result<Result<(RouteHeader, RouteKey, Read<'_>), Ignored>, Malformed> {
    let header = RouteHeader::parse(body).map_err(|why| Malformed(format!("no route header: {why}")))?;
    let (default, bits) = match header.address_family {
        AddressFamily::Inet => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 32),
        AddressFamily::Inet6 => (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 128),
        AddressFamily::Mpls => return Ok(Err(Ignored::Mpls)),
        other => return Err(Malformed(format!("a route of family {other:?}"))),
    };
    if matches!(header.kind, RouteType::Local | RouteType::Broadcast | RouteType::Anycast | RouteType::Multicast) {
        return Ok(Err(Ignored::Local));
    }
    if header.source_prefix_length > 0 || header.tos > 0 {
        return Ok(Err(Ignored::Selective));
    }
    let read = Read::all(body.get(HEADER..).unwrap_or_default())?;
    let address = read.destination.unwrap_or(default);
    let length = header.destination_prefix_length;
    let fits = address.is_ipv4() == default.is_ipv4() && length <= bits;
    let prefix = IpNet::new(address, length).ok().filter(|_| fits);
    let prefix = prefix.ok_or_else(|| Malformed(format!("a route to {address}/{length}")))?.trunc();
    let vrf = match read.table.unwrap_or_else(|| u32::from(header.table)) {
        0 => Vrf::Default,
        number => Vrf::Number(number),
    };
    Ok(Ok((header, RouteKey { vrf, prefix }, read)))
}

/// Reads `RTM_NEWROUTE`.
pub fn announced(body: &[u8]) -> Result<Decoded, Malformed> {
    let (header, key, read) = match read(body)? {
        Ok(read) => read,
        Err(ignored) => return Ok(decoded(Event::Ignored(ignored), None, 0)),
    };
    let mut unknown = read.unknown;
    let mut sonic = key.vrf == Vrf::Default || read.encap.is_sonic();
    let target = match header.kind {
        RouteType::BlackHole => Target::Blackhole,
        RouteType::Unreachable => Target::Unreachable,
        RouteType::Unicast => target(&read, &mut sonic, &mut unknown)?,
        other => Target::Unusable(format!("a route of type {other:?}")),
    };
    let route = Route { protocol: header.protocol.into(), target };
    Ok(decoded(Event::Route(key, route), sonic.then_some(Dialect::Sonic), unknown))
}

/// Reads `RTM_DELROUTE`. It removes the route of the prefix, whatever next hops the message names.
pub fn withdrawn(body: &[u8]) -> Result<Decoded, Malformed> {
    Ok(match read(body)? {
        Ok((_, key, read)) => {
            let sonic = key.vrf == Vrf::Default || read.encap.is_sonic();
            decoded(Event::RouteGone(key), sonic.then_some(Dialect::Sonic), read.unknown)
        }
        Err(ignored) => decoded(Event::Ignored(ignored), None, 0),
    })
}

fn decoded(event: Event, dialect: Option<Dialect>, unknown_attributes: u32) -> Decoded {
    Decoded { event, dialect, unknown_attributes }
}

fn target(read: &Read<'_>, sonic: &mut bool, unknown: &mut u32) -> Result<Target, Malformed> {
    if let Some(id) = read.object {
        return Ok(Target::Object(id));
    }
    if let Some(bytes) = read.multipath {
        let mut hops = Vec::new();
        for hop in multipath(bytes) {
            let (weight, read) = hop?;
            *sonic |= read.encap.is_sonic();
            *unknown += read.unknown;
            match single(&read, weight)? {
                Target::Hops(mut one) => hops.append(&mut one),
                Target::Unusable(why) => return Ok(Target::Unusable(why)),
                _ => return Ok(Target::Unusable("a SID among several next hops".to_owned())),
            }
        }
        return Ok(Target::Hops(hops));
    }
    single(read, 1)
}

fn single(read: &Read<'_>, weight: u16) -> Result<Target, Malformed> {
    match read.encap.read()? {
        seg6::Read::Local(sid) => Ok(Target::Sid(sid)),
        seg6::Read::Other(kind) => Ok(Target::Unusable(format!("its encapsulation is of type {kind}"))),
        seg6::Read::None if read.hop.via == Some(NEIGHBOUR_NOT_SAID) => {
            let why = "FRR hides its IPv6 next hop behind 169.254.0.1: write `fpm use-next-hop-groups` in frr.conf";
            Ok(Target::Unusable(why.to_owned()))
        }
        seg6::Read::None => Ok(Target::Hops(vec![Hop { weight, ..read.hop.clone() }])),
        seg6::Read::Encap(encap) => Ok(Target::Hops(vec![Hop { weight, encap: Some(encap), ..read.hop.clone() }])),
    }
}

/// Reads the next hops of a multipath route.
///
/// ```text
/// 0         2       3           4            8
/// | length  | flags | weight - 1| ifindex    | attributes ... | next hop ...      length counts the attributes, too
/// ```
fn multipath(mut bytes: &[u8]) -> impl Iterator<Item = Result<(u16, Read<'_>), Malformed>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let hop = one_hop(bytes);
        bytes = hop.as_ref().ok().and_then(|(length, ..)| bytes.get(length.next_multiple_of(4)..)).unwrap_or_default();
        Some(hop.map(|(_, weight, read)| (weight, read)))
    })
}

fn one_hop(bytes: &[u8]) -> Result<(usize, u16, Read<'_>), Malformed> {
    let cut = || Malformed("a next hop that is cut".to_owned());
    let Some(&[low, high, _flags, weight, a, b, c, d]) = bytes.get(..HOP_HEADER) else { return Err(cut()) };
    let length = usize::from(u16::from_ne_bytes([low, high]));
    let mut read = Read::all(bytes.get(HOP_HEADER..length).ok_or_else(cut)?)?;
    let device = u32::from_ne_bytes([a, b, c, d]);
    read.hop.device = Some(device).filter(|device| *device != 0);
    Ok((length, u16::from(weight) + 1, read))
}
