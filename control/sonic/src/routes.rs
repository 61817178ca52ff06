//! Groups single next hops into routes: all next hops of one prefix in one VRF, from both files.

use std::collections::{HashMap, HashSet};

use ipnet::IpNet;

use crate::finding::Findings;
use crate::switch::{Origin, RouteHop, StaticRoute, Target};

/// One next hop of a route, from one line of frr.conf or one element of a row's lists.
#[derive(Clone, Debug)]
pub(crate) struct Leg {
    pub(crate) vrf: Option<String>,
    pub(crate) prefix: IpNet,
    /// Target with at most one next hop.
    pub(crate) target: Target,
    pub(crate) distance: u8,
    pub(crate) origin: Origin,
    pub(crate) place: String,
}

/// Groups next hops into routes, in the order in which the prefixes first occur.
pub(crate) fn group(legs: Vec<Leg>, found: &mut Findings) -> Vec<StaticRoute> {
    let mut groups: Vec<Vec<Leg>> = Vec::new();
    let mut index = HashMap::new();
    for leg in legs {
        let at = *index.entry((leg.vrf.clone(), leg.prefix)).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(at) {
            group.push(leg);
        }
    }
    groups.into_iter().filter_map(|legs| route(&legs, found)).collect()
}

/// Makes one route. Of next hops with different distances only those with the smallest count, as in FRR.
fn route(legs: &[Leg], found: &mut Findings) -> Option<StaticRoute> {
    let distance = legs.iter().map(|leg| leg.distance).min()?;
    let (legs, farther): (Vec<&Leg>, Vec<&Leg>) = legs.iter().partition(|leg| leg.distance == distance);
    if let Some(leg) = farther.first() {
        let what = format!("distance {} is behind one of {distance} for the same prefix: not used", leg.distance);
        found.note(&leg.place, what);
    }
    let first = legs.first()?;
    let mut origin = first.origin;
    let mut hops: Vec<RouteHop> = Vec::new();
    let mut known: HashSet<&RouteHop> = HashSet::new();
    let mut dropped = None;
    for leg in &legs {
        if leg.origin != origin {
            origin = Origin::Both;
        }
        match &leg.target {
            Target::Hops(new) => hops.extend(new.iter().filter(|hop| known.insert(hop)).cloned()),
            other => dropped = dropped.or(Some((other, leg))),
        }
    }
    let target = match dropped {
        Some((target, leg)) => {
            if !hops.is_empty() {
                found.tolerated(&leg.place, "drops what other lines for the same prefix forward: it is dropped");
            }
            target.clone()
        }
        None if hops.is_empty() => return None,
        None => Target::Hops(hops),
    };
    Some(StaticRoute { vrf: first.vrf.clone(), prefix: first.prefix, target, distance, origin })
}
