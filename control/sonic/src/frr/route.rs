//! Reads `ip route` and `ipv6 route` lines.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

use super::{Line, Written};
use crate::finding::Findings;
use crate::routes::Leg;
use crate::switch::{self, Encap, Origin, RouteHop, Target};
use crate::value;

/// The parts of a line behind its prefix.
#[derive(Default)]
struct Route {
    via: Option<IpAddr>,
    interface: Option<String>,
    drops: Option<Target>,
    distance: Option<u8>,
    vrf: Option<String>,
    nexthop_vrf: Option<String>,
    table: Option<String>,
    segments: Vec<Ipv6Addr>,
    reduced: bool,
    source: Option<Ipv6Addr>,
}

/// Reads `ip|ipv6 route P [NH] [IF] [blackhole|Null0|reject] [DISTANCE] [keyword value]...` in the VRF of the node.
pub(super) fn read(vrf: Option<&str>, line: &Line<'_>, written: &mut Written, found: &mut Findings) {
    let read = leg(vrf, line);
    match read {
        Ok(leg) if line.no => written.legs.remove(&leg),
        Ok(leg) => written.legs.push(leg),
        Err(_) if line.no => {}
        Err(why) => found.ignored(line.place(), format!("{why}: left out")),
    }
}

fn leg(node: Option<&str>, line: &Line<'_>) -> Result<Leg, String> {
    let mut words = line.words.iter().skip(2).copied();
    let prefix = prefix(&mut words)?;
    if prefix.addr().is_ipv4() != (line.first() == "ip") {
        return Err(format!("{prefix} is of the other address family"));
    }
    let route = route(words)?;
    if let Some(table) = route.table {
        return Err(format!("table {table}: only routes of VRFs are taken"));
    }
    let not_default = |vrf: &String| !switch::is_default_vrf(vrf);
    let vrf = route.vrf.or_else(|| node.map(str::to_owned)).filter(not_default);
    let encap = (!route.segments.is_empty()).then_some(Encap {
        segments: route.segments,
        reduced: route.reduced,
        source: route.source,
    });
    let link_local = |via: IpAddr| matches!(via, IpAddr::V6(via) if via.is_unicast_link_local());
    let target = match (route.drops, route.via, route.interface) {
        (Some(drops), ..) => drops,
        (None, None, None) if line.no => Target::Hops(Vec::new()),
        (None, None, None) => return Err("a route needs a next hop, an interface or blackhole".to_owned()),
        (None, Some(via), None) if link_local(via) => {
            return Err(format!("{via} is on every link: it needs an interface"));
        }
        (None, via, interface) => {
            Target::Hops(vec![RouteHop { via, interface, vrf: route.nexthop_vrf.filter(not_default), encap }])
        }
    };
    let (distance, origin) = (route.distance.unwrap_or(1), Origin::Frr);
    Ok(Leg { vrf, prefix, target, distance, origin, place: line.place() })
}

/// Reads a prefix: `A/L`, or for IPv4 an address and a mask.
fn prefix<'w>(words: &mut impl Iterator<Item = &'w str>) -> Result<IpNet, String> {
    let text = words.next().unwrap_or_default();
    let written = if text.contains('/') {
        value::prefix(text)
    } else {
        let mask = words.next().unwrap_or_default();
        let with_mask = text.parse().ok().zip(mask.parse().ok());
        with_mask
            .and_then(|(address, mask)| Ipv4Net::with_netmask(address, mask).ok())
            .map(|net| IpNet::V4(net.trunc()))
    };
    written.ok_or_else(|| format!("{text:?} is no prefix"))
}

fn route<'w>(mut words: impl Iterator<Item = &'w str>) -> Result<Route, String> {
    let mut route = Route::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("nothing is behind {word}"));
        match word {
            "blackhole" | "Null0" | "null0" => route.drops = Some(Target::Blackhole),
            "reject" => route.drops = Some(Target::Reject),
            "vrf" => route.vrf = Some(value()?.to_owned()),
            "nexthop-vrf" => route.nexthop_vrf = Some(value()?.to_owned()),
            "table" => route.table = Some(value()?.to_owned()),
            "segments" => route.segments = segments(value()?)?,
            "encap-behavior" => route.reduced = is_reduced(value()?)?,
            "encap-source" => route.source = Some(source(value()?)?),
            "onlink" => {}
            "tag" | "label" | "color" | "metric" => drop(value()?),
            "bfd" => break,
            other => positional(&mut route, other)?,
        }
    }
    Ok(route)
}

fn positional(route: &mut Route, word: &str) -> Result<(), String> {
    if let Some(address) = value::address(word) {
        route.via = Some(address);
    } else if let Ok(distance) = word.parse::<u8>() {
        route.distance = Some(distance);
    } else if route.interface.is_none() && word.starts_with(|letter: char| letter.is_ascii_alphabetic()) {
        route.interface = Some(word.to_owned());
    } else {
        return Err(format!("{word:?} is not known in a route"));
    }
    Ok(())
}

fn segments(text: &str) -> Result<Vec<Ipv6Addr>, String> {
    let segment = |text: &str| value::address6(text).ok_or_else(|| format!("segment {text:?} is no IPv6 address"));
    text.split('/').map(segment).collect()
}

fn source(text: &str) -> Result<Ipv6Addr, String> {
    value::address6(text).ok_or_else(|| format!("{text:?} is no IPv6 address"))
}

fn is_reduced(word: &str) -> Result<bool, String> {
    match word {
        "H_Encaps" => Ok(false),
        "H_Encaps_Red" => Ok(true),
        other => Err(format!("encap-behavior {other:?} is not known; known: H_Encaps, H_Encaps_Red")),
    }
}
