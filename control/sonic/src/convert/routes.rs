//! `[[route]]` and `[[steer]]`

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use srv6d_srv6::carrier::SegmentList;

use super::hops::{Hop, Hops};
use super::is_global_unicast;
use super::text::{Toml, quoted};
use crate::finding::Findings;
use crate::model::{Encap, Locator, RouteHop, StaticRoute, Switch, Target};

/// Plain routes first: where they lead decides whether a prefix may be steered.
pub(super) fn write(switch: &Switch, sids: &HashSet<Ipv6Net>, hops: &Hops<'_>, toml: &mut Toml, found: &mut Findings) {
    let mut underlay = Underlay { hops, routes: Vec::new(), steered: Vec::new() };
    let mut steered = Vec::new();
    for route in &switch.routes {
        let mut note = |what: String| found.note(place(route), what);
        if route.vrf.is_none() && matches!(route.prefix, IpNet::V6(prefix) if sids.contains(&prefix)) {
            note("is a SID of this switch: the SID counts".to_owned());
            continue;
        }
        let vias = match &route.target {
            Target::Blackhole | Target::Reject => {
                let kind = if route.target == Target::Reject { "unreachable" } else { "blackhole" };
                drop_route(switch, route, kind, toml);
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
                plain_route(switch, route, &plain, hops, toml, &mut note)
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

/// What the default VRF knows without encapsulation, and what is encapsulated in it.
struct Underlay<'a> {
    hops: &'a Hops<'a>,
    /// Written routes with the addresses of their next hops.
    routes: Vec<(Ipv6Net, Vec<IpAddr>)>,
    steered: Vec<Ipv6Net>,
}

impl Underlay<'_> {
    /// `vias`: `None` for a route that has not been written.
    fn add(&mut self, route: &StaticRoute, vias: Option<Vec<IpAddr>>) {
        if let (IpNet::V6(prefix), None, Some(vias)) = (route.prefix, &route.vrf, vias) {
            self.routes.push((prefix, vias));
        }
    }

    fn add_steered(&mut self, route: &StaticRoute) {
        if let (IpNet::V6(prefix), None) = (route.prefix, &route.vrf) {
            self.steered.push(prefix);
        }
    }

    /// The longest route around an address.
    fn route(&self, address: Ipv6Addr) -> Option<&(Ipv6Net, Vec<IpAddr>)> {
        self.routes.iter().filter(|(prefix, _)| prefix.contains(&address)).max_by_key(|(prefix, _)| prefix.prefix_len())
    }

    /// The longest steered prefix around an address, if nothing of `length` bits or more leads elsewhere.
    fn steered(&self, address: Ipv6Addr, length: Option<u8>) -> Option<Ipv6Net> {
        let around = self.steered.iter().filter(|prefix| prefix.contains(&address));
        let longest = around.max_by_key(|prefix| prefix.prefix_len()).copied();
        longest.filter(|prefix| length.is_none_or(|length| length < prefix.prefix_len()))
    }

    /// A path to `first` must not lead into an encapsulation, neither at once nor at its next hop.
    fn check(&self, first: Ipv6Addr) -> Result<(), String> {
        let route = self.route(first);
        if let Some(prefix) = self.steered(first, route.map(|(prefix, _)| prefix.prefix_len())) {
            return Err(format!(
                "the steered prefix {prefix} covers the first segment {first}, and nothing longer leads there"
            ));
        }
        for via in route.into_iter().flat_map(|(_, vias)| vias) {
            let IpAddr::V6(via) = *via else { continue };
            let length =
                self.route(via).map(|(prefix, _)| prefix.prefix_len()).max(self.hops.subnet_length(via.into()));
            if let Some(prefix) = self.steered(via, length).filter(|_| !via.is_unicast_link_local()) {
                return Err(format!(
                    "the steered prefix {prefix} covers {via}, the next hop to the first segment {first}"
                ));
            }
        }
        Ok(())
    }
}

fn header(switch: &Switch, route: &StaticRoute, kind: &str, toml: &mut Toml) {
    toml.table(kind);
    toml.text("prefix", &route.prefix.to_string());
    switch.table_key(route.vrf.as_deref(), toml);
}

fn drop_route(switch: &Switch, route: &StaticRoute, kind: &str, toml: &mut Toml) {
    header(switch, route, "[[route]]", toml);
    toml.text("type", kind);
}

/// The addresses of its next hops, if it could be written.
fn plain_route(
    switch: &Switch,
    route: &StaticRoute,
    legs: &[&RouteHop],
    hops: &Hops<'_>,
    toml: &mut Toml,
    note: &mut impl FnMut(String),
) -> Option<Vec<IpAddr>> {
    let mut resolved: Vec<Hop> = Vec::new();
    for leg in legs {
        match hops.resolve(route, leg) {
            Ok(found) => {
                let new: Vec<Hop> = found.into_iter().filter(|hop| !resolved.contains(hop)).collect();
                resolved.extend(new);
            }
            Err(why) => note(format!("{why}: the next hop is left out")),
        }
    }
    // Onto a link the destination is the neighbour; among several next hops that is no way to choose one.
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
            header(switch, route, "[[route]]", toml);
            toml.address("via", one.via);
            toml.text("port", &one.port);
        }
        several => {
            header(switch, route, "[[route]]", toml);
            let item = |hop: &Hop| {
                let via = hop.via.map(|via| format!("via = {}, ", quoted(&via.to_string()))).unwrap_or_default();
                format!("{via}port = {}", quoted(&hop.port))
            };
            toml.tables("nexthops", &several.iter().map(item).collect::<Vec<_>>());
        }
    }
    Some(resolved.iter().filter_map(|hop| hop.via).collect())
}

/// One route with segments.
struct Steering<'a> {
    switch: &'a Switch,
    route: &'a StaticRoute,
    sids: &'a HashSet<Ipv6Net>,
    hops: &'a Hops<'a>,
    underlay: &'a Underlay<'a>,
}

impl Steering<'_> {
    /// Packets go where the route to their first segment leads: the port that a line names only has to exist.
    fn write(&self, legs: &[&RouteHop], toml: &mut Toml, note: &mut impl FnMut(String)) {
        let mut encaps: Vec<&Encap> = Vec::new();
        for leg in legs {
            let Some(encap) = &leg.encap else { continue };
            match self.check(leg, encap) {
                Ok(()) if encaps.iter().any(|known| known.segments == encap.segments) => {}
                Ok(()) => encaps.push(encap),
                Err(why) => note(format!("{why}: left out")),
            }
        }
        let Some(first) = encaps.first() else { return };
        if encaps.iter().any(|encap| (encap.reduced, encap.source) != (first.reduced, first.source)) {
            note("several encap-behavior or encap-source: those of the first line count".to_owned());
        }
        header(self.switch, self.route, "[[steer]]", toml);
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
            && !self.switch.loopbacks.iter().any(|loopback| loopback.name == *interface)
        {
            return Err(format!("{interface} is no routed port of this switch"));
        }
        let source = encap.source.or(self.switch.usable_source());
        if !source.is_some_and(|source| is_global_unicast(source.into())) {
            return Err("there is no source address to encapsulate with (source-address, or Loopback0)".to_owned());
        }
        let blocks: Vec<Ipv6Net> = self.switch.locators.iter().map(Locator::block).collect();
        let list = SegmentList::new(encap.segments.clone(), &blocks).map_err(|why| why.to_string())?;
        let first = list.first();
        if let Some(sid) = self.sids.iter().find(|sid| sid.contains(&first)) {
            return Err(format!("{first} begins with {sid}, a SID of this switch: packets would come back at once"));
        }
        self.underlay.check(first)
    }
}
