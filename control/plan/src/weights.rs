//! Weights of next hops and paths from the capacities of links, for groups whose policy is of mode "weighted".
//!
//! ```text
//! port: `emulate`, `speed` ────┬─► the narrower one: next hop ─┬─► in a group of next hops: its weight
//! next hop: `capacity` ────────┘                               └─► in a path: all of its next hops together ─┐
//! path: `capacity` ──────────────────────────────────────────────────► the narrower one: weight of the path ◄┘
//! ```
//!
//! If a next hop has `via_nodes` and no `capacity`, heartbeats give the capacities of the links behind it. With metric
//! "available", the load of a link is subtracted from its capacity.
//!
//! Weights that a route already has (from the kernel, FRR or controllers) stay as they are.

use std::collections::BTreeMap;
use std::mem::take;
use std::net::Ipv4Addr;
use std::ops::Range;

use ipnet::IpNet;
use srv6d_balance::{Link, Origin, believed, path_capacity, weights};
use srv6d_config::{self as config, BalanceMode, Findings, NextHop, Spanned};
use srv6d_srv6::desired::{
    Behavior, BitRate, Capacities, Desired, Hop, HopCapacity, HopsOf, LinkId, Metric, Path, PortId, RouteAction,
    TableId,
};

use super::balance::{key_of_route, key_of_sid, key_of_steer};
use super::steers::{path_names, steered_name};

type Key = (TableId, IpNet);

/// The source of the weights of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightsFrom {
    /// The weights follow from the capacities of links.
    Capacities,
    /// The route had weights already.
    Route,
    /// The weights are equal, because a capacity is not known.
    Nothing,
}

impl WeightsFrom {
    /// Returns the source of these weights, for members with these capacities.
    pub fn of(present: &[u16], capacities: &[Option<BitRate>]) -> Self {
        if weights(capacities).is_some_and(|made| made == present) {
            Self::Capacities
        } else if are_equal(present) {
            Self::Nothing
        } else {
            Self::Route
        }
    }
}

/// Returns the capacity of a next hop in bit/s, if something is known of its links.
pub fn capacity_of_hop(desired: &Desired, of: &HopsOf, hop: &Hop, metric: Metric) -> Option<BitRate> {
    let links = own_link(desired, hop.port).into_iter().chain(link_behind(desired, of, hop));
    path_capacity(links.map(|link| link.usable(metric)))
}

/// Returns the link of a port of this node.
fn own_link(desired: &Desired, port: PortId) -> Option<Link> {
    let capacity = desired.rate_of(port)?;
    let device = desired.ports.get(usize::from(desired.ports.get(usize::from(port.0))?.device))?;
    let known = desired.balance.links.get(&LinkId::Own(device.name.clone()));
    Some(Link { capacity, load: known.map_or(0, |link| link.load) })
}

/// Returns the link behind a next hop, with the configured capacity or else with the one from heartbeats.
fn link_behind(desired: &Desired, of: &HopsOf, hop: &Hop) -> Option<Link> {
    let written = desired.balance.capacities.behind(of, hop).map(|capacity| (Origin::File, capacity));
    let heard = heard_behind(desired, of, hop.port);
    let said: Vec<(Origin, BitRate)> =
        written.into_iter().chain(heard.map(|link| (Origin::Heartbeat, link.capacity))).collect();
    let (_, capacity) = believed(&said)?;
    Some(Link { capacity, load: heard.map_or(0, |link| link.load) })
}

/// Returns the mean of the links from the neighbour on a port to the nodes behind it, as far as heartbeats tell of
/// them.
fn heard_behind(desired: &Desired, of: &HopsOf, port: PortId) -> Option<Link> {
    let balance = &desired.balance;
    let device = PortId(desired.ports.get(usize::from(port.0))?.device);
    let neighbor = *balance.settings.neighbors.get(&device)?;
    let known = |node: &Ipv4Addr| balance.links.get(&LinkId::Behind(neighbor, *node)).copied();
    let links: Vec<Link> = balance.via_nodes.get(of)?.iter().filter_map(known).collect();
    let mean = |value: fn(&Link) -> BitRate| links.iter().map(value).sum::<BitRate>().checked_div(links.len() as u64);
    Some(Link { capacity: mean(|link| link.capacity)?, load: mean(|link| link.load)? })
}

/// Returns the capacity of a path of a steered prefix in bit/s, if something is known of its links.
pub fn capacity_of_path(desired: &Desired, path: &Path, metric: Metric) -> Option<BitRate> {
    let of = HopsOf::Path(path.name.clone());
    let all_hops = || path.via.iter().map(|hop| capacity_of_hop(desired, &of, hop, metric)).sum();
    let hops = if path.via.is_empty() { None } else { all_hops() };
    let path = desired.balance.capacities.paths.get(&path.name).copied();
    path_capacity(hops.into_iter().chain(path))
}

/// Returns the configured capacities of next hops and paths.
pub(super) fn written(config: &config::Config, found: &mut Findings) -> Capacities {
    let mut capacities = Capacities::default();
    for route in config.routes.iter().map(Spanned::get_ref) {
        behind(config, &mut capacities, &hops_of(key_of_route(route)), &route.nexthops, found);
    }
    for sid in config.sids.iter().map(Spanned::get_ref) {
        for hops in [&sid.nexthops, &sid.backup] {
            behind(config, &mut capacities, &hops_of(key_of_sid(sid)), hops, found);
        }
    }
    for steer in config.steers.iter().map(Spanned::get_ref) {
        behind(config, &mut capacities, &HopsOf::Path(steered_name(steer)), &steer.path.nexthops, found);
        for (path, name) in steer.paths.iter().zip(path_names(steer)) {
            let path = path.get_ref();
            behind(config, &mut capacities, &HopsOf::Path(name.clone()), &path.path.nexthops, found);
            check(config, "[[steer]] paths", path.capacity.as_ref(), path.weight.is_some(), found);
            capacities.paths.extend(path.capacity.as_ref().map(|capacity| (name, capacity.get_ref().0)));
        }
    }
    capacities
}

fn behind(
    config: &config::Config,
    capacities: &mut Capacities,
    of: &HopsOf,
    hops: &[Spanned<NextHop>],
    found: &mut Findings,
) {
    for NextHop { hop, weight, capacity } in hops.iter().map(Spanned::get_ref) {
        check(config, "nexthops", capacity.as_ref(), weight.is_some(), found);
        let Some(capacity) = capacity else { continue };
        let port = hop.port.as_ref().and_then(|name| port_named(config, name.get_ref()));
        let via = hop.via.as_ref().map(|via| *via.get_ref());
        let known = HopCapacity { port, via, capacity: capacity.get_ref().0 };
        capacities.behind.entry(of.clone()).or_default().push(known);
    }
}

fn hops_of((table, prefix): Key) -> HopsOf {
    HopsOf::Prefix(table, prefix)
}

fn port_named(config: &config::Config, name: &str) -> Option<PortId> {
    let mut ports = (0..).map(PortId).zip(&config.ports);
    ports.find(|(_, port)| port.get_ref().name.get_ref() == name).map(|(port, _)| port)
}

/// Checks that a capacity is used.
fn check(
    config: &config::Config,
    entry: &str,
    capacity: Option<&Spanned<config::Rate>>,
    has_weight: bool,
    found: &mut Findings,
) {
    let Some(capacity) = capacity else { return };
    if has_weight {
        let fix = "remove `weight`, so that the weight follows from `capacity`, or remove `capacity`";
        found.error(capacity.span(), entry, "has both `weight` and `capacity`", fix);
    }
    if !config.balances.iter().any(|policy| *policy.get_ref().mode.get_ref() == BalanceMode::Weighted) {
        let fix = "add a [[balance]] with mode = \"weighted\", and its name as `balance` of the entry";
        found.warning(capacity.span(), entry, "`capacity` is not used: no policy is of mode \"weighted\"", fix);
    }
}

/// Gives members of weighted groups the weights that follow from their capacities.
pub(super) fn weigh(config: &config::Config, desired: &mut Desired, found: &mut Findings) {
    if desired.balance.weighted.is_empty() {
        return;
    }
    let mut unknown = weigh_routes(desired);
    unknown.extend(weigh_sids(desired));
    unknown.extend(weigh_steers(desired));
    let places = places(config);
    for (of, member) in unknown {
        // Nobody can configure a capacity for a member that is not in the file.
        if let Some((span, entry)) = places.get(&of) {
            let what = format!("nothing says what {member} can carry, so all members have equal weights");
            let fix = "add `capacity = \"100Gbit\"` to it, or `speed` to its [[port]]";
            found.warning(span.clone(), entry, what, fix);
        }
    }
}

/// Groups, each with a member whose capacity is not known.
type Unknown = Vec<(Key, String)>;

fn weigh_routes(desired: &mut Desired) -> Unknown {
    let mut unknown = Unknown::new();
    let mut routes = take(&mut desired.routes);
    for route in &mut routes {
        let of = (route.table, route.prefix);
        if let RouteAction::Via(hops) = &mut route.action
            && let Some(metric) = metric_of(desired, of)
        {
            unknown.extend(weigh_hops(desired, &hops_of(of), hops, metric).map(|member| (of, member)));
        }
    }
    desired.routes = routes;
    unknown
}

fn weigh_sids(desired: &mut Desired) -> Unknown {
    let mut unknown = Unknown::new();
    let mut sids = take(&mut desired.sids);
    for sid in &mut sids {
        let of = (TableId::MAIN, sid.prefix.into());
        let Some(metric) = metric_of(desired, of) else { continue };
        match &mut sid.behavior {
            Behavior::EndX { via, backup, .. } => {
                unknown.extend(weigh_hops(desired, &hops_of(of), via, metric).map(|member| (of, member)));
                unknown.extend(weigh_hops(desired, &hops_of(of), backup, metric).map(|member| (of, member)));
            }
            Behavior::EndDx { via, .. } => {
                unknown.extend(weigh_hops(desired, &hops_of(of), via, metric).map(|member| (of, member)));
            }
            _ => {}
        }
    }
    desired.sids = sids;
    unknown
}

fn weigh_steers(desired: &mut Desired) -> Unknown {
    let mut unknown = Unknown::new();
    let mut steers = take(&mut desired.steers);
    let metric_of_hops = desired.balance.metric(desired.balance.default);
    for steer in &mut steers {
        let of = (steer.table, steer.prefix);
        for (path, metric) in steer.paths.iter_mut().filter_map(|path| Some((path, metric_of_hops?))) {
            let hops = HopsOf::Path(path.name.clone());
            unknown.extend(weigh_hops(desired, &hops, &mut path.via, metric).map(|member| (of, member)));
        }
        if let Some(metric) = metric_of(desired, of) {
            unknown.extend(weigh_paths(desired, &mut steer.paths, metric).map(|member| (of, member)));
        }
    }
    desired.steers = steers;
    unknown
}

/// Returns the measure of capacity for the groups of a prefix, if their weights follow from capacities.
fn metric_of(desired: &Desired, (table, prefix): Key) -> Option<Metric> {
    desired.balance.metric(desired.balance.group_policy(table, prefix))
}

/// Weighs the next hops of a group. Returns the first one whose capacity is not known.
fn weigh_hops(desired: &Desired, of: &HopsOf, hops: &mut [Hop], metric: Metric) -> Option<String> {
    let capacities: Vec<Option<BitRate>> = hops.iter().map(|hop| capacity_of_hop(desired, of, hop, metric)).collect();
    let unknown = set(hops.iter_mut().map(|hop| &mut hop.weight).collect(), &capacities)?;
    let hop = hops.get(unknown)?;
    let port = desired.ports.get(usize::from(hop.port.0)).map_or("", |port| port.name.as_str());
    let via = hop.via.map(|via| format!("{via} on ")).unwrap_or_default();
    Some(format!("next hop {via}{port}"))
}

/// Weighs the paths of a steered prefix. Returns the first one whose capacity is not known.
fn weigh_paths(desired: &Desired, paths: &mut [Path], metric: Metric) -> Option<String> {
    let capacities: Vec<Option<BitRate>> = paths.iter().map(|path| capacity_of_path(desired, path, metric)).collect();
    let unknown = set(paths.iter_mut().map(|path| &mut path.weight).collect(), &capacities)?;
    paths.get(unknown).map(|path| format!("path {:?}", path.name))
}

/// Sets the weights of a group from the capacities of its members. Weights that differ already, and the weight of an
/// only member, stay. If a capacity is missing, sets nothing and returns the place of the first member without one.
fn set(present: Vec<&mut u16>, capacities: &[Option<BitRate>]) -> Option<usize> {
    if present.len() < 2 || !are_equal(&present.iter().map(|weight| **weight).collect::<Vec<_>>()) {
        return None;
    }
    match weights(capacities) {
        Some(made) => present.into_iter().zip(made).for_each(|(weight, made)| *weight = made),
        None => return capacities.iter().position(Option::is_none),
    }
    None
}

fn are_equal(weights: &[u16]) -> bool {
    weights.windows(2).all(|pair| matches!(pair, [one, other] if one == other))
}

/// Returns the places of the entries in the file.
fn places(config: &config::Config) -> BTreeMap<Key, (Range<usize>, &'static str)> {
    let routes = config.routes.iter().map(|entry| (key_of_route(entry.get_ref()), (entry.span(), "[[route]]")));
    let sids = config.sids.iter().map(|entry| (key_of_sid(entry.get_ref()), (entry.span(), "[[sid]]")));
    let steers = config.steers.iter().map(|entry| (key_of_steer(entry.get_ref()), (entry.span(), "[[steer]]")));
    routes.chain(sids).chain(steers).collect()
}
