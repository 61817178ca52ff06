//! Writes `[[route]]` and `[[steer]]`.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use srv6d_addresses::carrier::SegmentList;
use srv6d_addresses::prefix_map::PrefixMap;

use super::hops::{Hop, Hops};
use super::is_global_unicast;
use super::text::{Toml, quoted};
use crate::finding::Findings;
use crate::switch::{Encap, Locator, RouteHop, StaticRoute, Switch, Target};

/// Writes all routes. Plain routes come first, because their targets decide whether a prefix may be steered.
pub(super) fn write<'a>(
    switch: &'a Switch,
    sids: &PrefixMap<()>,
    hops: &Hops<'a>,
    toml: &mut Toml,
    found: &mut Findings,
) {
    let mut underlay = Underlay {
        hops,
        routes: PrefixMap::default(),
        steered: PrefixMap::default(),
        steered_vias: RefCell::default(),
        blocks: switch.locators.iter().map(Locator::block).filter(|block| block.prefix_len() == 32).collect(),
    };
    let mut steered = Vec::new();
    for route in &switch.routes {
        let mut note = |what: String| found.note(place(route), what);
        if route.vrf.is_none() && route.prefix.addr().is_ipv6() && sids.get(route.prefix).is_some() {
            note("is a SID of this switch: the SID counts".to_owned());
            continue;
        }
        let vias = match &route.target {
            Target::Blackhole | Target::Reject => {
                let kind = if route.target == Target::Reject { "unreachable" } else { "blackhole" };
                drop_route(hops, route, kind, toml);
                Some(Vec::new())
            }
            Target::Hops(legs) => {
                let (encaps, plain): (Vec<&RouteHop>, Vec<&RouteHop>) =
                    legs.iter().partition(|leg| leg.encap.is_some());
                if !encaps.is_empty() {
                    if !plain.is_empty() {
                        note("next hops with and without segments: those without are left out".to_owned());
                    }
                    underlay.add_steered(route);
                    steered.push((route, encaps));
                    continue;
                }
                plain_route(route, &plain, hops, toml, &mut note)
            }
        };
        underlay.add(route, vias);
    }
    for (route, encaps) in steered {
        let steering = Steering { switch, route, sids, hops, underlay: &underlay };
        steering.write(&encaps, toml, &mut |what| found.note(place(route), what));
    }
}

fn place(route: &StaticRoute) -> String {
    match &route.vrf {
        Some(vrf) => format!("route {} vrf {vrf}", route.prefix),
        None => format!("route {}", route.prefix),
    }
}

/// The routes of the default VRF without encapsulation, and the prefixes that are encapsulated in it.
struct Underlay<'h, 'a> {
    hops: &'h Hops<'a>,
    /// The routes written so far, with the addresses of their next hops.
    routes: PrefixMap<Vec<IpAddr>>,
    steered: PrefixMap<()>,
    /// Known results by route: a next hop that lies inside a steered prefix, and that prefix.
    steered_vias: RefCell<HashMap<IpNet, Option<(IpNet, Ipv6Addr)>>>,
    /// Blocks of 32 bits. A segment in one of them must be a carrier.
    blocks: HashSet<Ipv6Net>,
}

impl Underlay<'_, '_> {
    /// Records a plain route. `vias` are the addresses of its next hops; `None`: it has not been written.
    fn add(&mut self, route: &StaticRoute, vias: Option<Vec<IpAddr>>) {
        if let (IpNet::V6(prefix), None, Some(vias)) = (route.prefix, &route.vrf, vias) {
            self.routes.insert(prefix, vias);
        }
    }

    fn add_steered(&mut self, route: &StaticRoute) {
        if let (IpNet::V6(prefix), None) = (route.prefix, &route.vrf) {
            self.steered.insert(prefix, ());
        }
    }

    /// Returns the longest route that contains an address.
    fn route(&self, address: Ipv6Addr) -> Option<(IpNet, &Vec<IpAddr>)> {
        self.routes.around(IpAddr::V6(address)).next()
    }

    /// Returns the longest steered prefix that contains an address, unless a route of `length` bits is at least as
    /// long.
    fn steered(&self, address: Ipv6Addr, length: Option<u8>) -> Option<IpNet> {
        let longest = self.steered.around(IpAddr::V6(address)).next().map(|(prefix, ())| prefix);
        longest.filter(|prefix| length.is_none_or(|length| length < prefix.prefix_len()))
    }

    /// Returns the first next hop that lies in a steered prefix, and that prefix.
    fn steered_via(&self, vias: &[IpAddr]) -> Option<(IpNet, Ipv6Addr)> {
        vias.iter().find_map(|via| {
            let IpAddr::V6(via) = *via else { return None };
            let length =
                self.route(via).map(|(prefix, _)| prefix.prefix_len()).max(self.hops.subnet_length(via.into()));
            let prefix = self.steered(via, length).filter(|_| !via.is_unicast_link_local())?;
            Some((prefix, via))
        })
    }

    /// Returns the blocks of 32 bits that contain some of the segments.
    fn blocks(&self, segments: &[Ipv6Addr]) -> Vec<Ipv6Net> {
        let around = segments.iter().filter_map(|segment| Some(Ipv6Net::new(*segment, 32).ok()?.trunc()));
        around.filter(|block| self.blocks.contains(block)).collect()
    }

    /// Checks that a path to `first` does not lead into an encapsulation, neither directly nor at its next hop.
    fn check(&self, first: Ipv6Addr) -> Result<(), String> {
        let route = self.route(first);
        if let Some(prefix) = self.steered(first, route.map(|(prefix, _)| prefix.prefix_len())) {
            return Err(format!(
                "the steered prefix {prefix} covers the first segment {first}, and nothing longer leads there"
            ));
        }
        let Some((prefix, vias)) = route else { return Ok(()) };
        let mut known = self.steered_vias.borrow_mut();
        match known.entry(prefix).or_insert_with(|| self.steered_via(vias)) {
            Some((prefix, via)) => {
                Err(format!("the steered prefix {prefix} covers {via}, the next hop to the first segment {first}"))
            }
            None => Ok(()),
        }
    }
}

fn header(hops: &Hops<'_>, route: &StaticRoute, kind: &str, toml: &mut Toml) {
    toml.table(kind);
    toml.text("prefix", &route.prefix.to_string());
    hops.table_key(route.vrf.as_deref(), toml);
}

fn drop_route(hops: &Hops<'_>, route: &StaticRoute, kind: &str, toml: &mut Toml) {
    header(hops, route, "[[route]]", toml);
    toml.text("type", kind);
}

/// Writes a route without segments. Returns the addresses of its next hops, or `None` if it could not be written.
fn plain_route<'a>(
    route: &'a StaticRoute,
    legs: &[&'a RouteHop],
    hops: &Hops<'a>,
    toml: &mut Toml,
    note: &mut impl FnMut(String),
) -> Option<Vec<IpAddr>> {
    let mut resolved: Vec<Hop> = Vec::new();
    let mut known = HashSet::new();
    for leg in legs {
        match hops.resolve(route, leg) {
            Ok(found) => resolved.extend(found.into_iter().filter(|hop| known.insert(hop.clone()))),
            Err(why) => note(format!("{why}: the next hop is left out")),
        }
    }
    // On-link the destination itself is the neighbour, so such a next hop cannot be one of several.
    if resolved.len() > 1 && resolved.iter().any(|hop| hop.via.is_none()) {
        note("several next hops, one without an address: only those with one are taken".to_owned());
        if resolved.iter().all(|hop| hop.via.is_none()) {
            resolved.truncate(1);
        } else {
            resolved.retain(|hop| hop.via.is_some());
        }
    }
    match resolved.as_slice() {
        [] => return None,
        [one] => {
            header(hops, route, "[[route]]", toml);
            toml.address("via", one.via);
            toml.text("port", &one.port);
        }
        several => {
            header(hops, route, "[[route]]", toml);
            let item = |hop: &Hop| {
                let via = hop.via.map(|via| format!("via = {}, ", quoted(&via.to_string()))).unwrap_or_default();
                format!("{via}port = {}", quoted(&hop.port))
            };
            toml.tables("nexthops", &several.iter().map(item).collect::<Vec<_>>());
        }
    }
    Some(resolved.iter().filter_map(|hop| hop.via).collect())
}

/// Conversion of one route with segments.
struct Steering<'h, 'a> {
    switch: &'a Switch,
    route: &'a StaticRoute,
    sids: &'h PrefixMap<()>,
    hops: &'h Hops<'a>,
    underlay: &'h Underlay<'h, 'a>,
}

impl Steering<'_, '_> {
    /// Writes the route. Packets take the route to their first segment, so the port that a line names only has to
    /// exist.
    fn write(&self, legs: &[&RouteHop], toml: &mut Toml, note: &mut impl FnMut(String)) {
        let mut encaps: Vec<&Encap> = Vec::new();
        let mut known: HashSet<&[Ipv6Addr]> = HashSet::new();
        for leg in legs {
            let Some(encap) = &leg.encap else { continue };
            match self.check(leg, encap) {
                Ok(()) => encaps.extend(known.insert(&encap.segments).then_some(encap)),
                Err(why) => note(format!("{why}: left out")),
            }
        }
        let Some(first) = encaps.first() else { return };
        if encaps.iter().any(|encap| (encap.reduced, encap.source) != (first.reduced, first.source)) {
            note("several encap-behavior or encap-source: those of the first line count".to_owned());
        }
        header(self.hops, self.route, "[[steer]]", toml);
        toml.text("mode", if first.reduced { "encap.red" } else { "encap" });
        toml.address("source", first.source);
        let texts = |encap: &Encap| encap.segments.iter().map(Ipv6Addr::to_string).collect::<Vec<_>>();
        match encaps.as_slice() {
            [one] => toml.texts("segments", texts(one)),
            several => {
                let path = |encap: &&Encap| {
                    let segments: Vec<String> = texts(encap).iter().map(|segment| quoted(segment)).collect();
                    format!("segments = [{}]", segments.join(", "))
                };
                toml.tables("paths", &several.iter().map(path).collect::<Vec<_>>());
            }
        }
    }

    fn check(&self, leg: &RouteHop, encap: &Encap) -> Result<(), String> {
        let prefix = self.route.prefix.addr();
        if !is_global_unicast(prefix) && self.route.prefix.prefix_len() > 0 {
            return Err("link-local and multicast are never encapsulated".to_owned());
        }
        if let Some(interface) = &leg.interface
            && self.hops.ports_of(interface).is_empty()
            && !self.hops.is_loopback(interface)
        {
            return Err(format!("{interface} is no routed port of this switch"));
        }
        let source = encap.source.or(self.switch.usable_source());
        if !source.is_some_and(|source| is_global_unicast(source.into())) {
            return Err("there is no source address to encapsulate with (source-address, or Loopback0)".to_owned());
        }
        let blocks = self.underlay.blocks(&encap.segments);
        let list = SegmentList::new(encap.segments.clone(), &blocks).map_err(|why| why.to_string())?;
        let first = list.first();
        if let Some((sid, ())) = self.sids.around(IpAddr::V6(first)).next() {
            return Err(format!("{first} begins with {sid}, a SID of this switch: packets would come back at once"));
        }
        self.underlay.check(first)
    }
}
