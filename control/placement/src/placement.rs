//! Places a demand on a fabric.

use std::collections::HashMap;

use crate::commodity::{Problem, Route, Spread};
use crate::commodity_paths::CommodityPaths;
use crate::constraints::{Constraints, PlaceError};
use crate::demand::Demand;
use crate::fabric::{Attachment, Fabric};
use crate::part::{self, Part};
use crate::permits::Permits;
use crate::ratio::Ratio;
use crate::search::Assignment;
use crate::symmetric::{self, Even};
use crate::table::{LinkId, PerLink};
use crate::{bound, division, fraction, relief};

/// A path for every flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// Distinct routes in use. The only link of a host is not part of a route, because it is on every path of that
    /// host.
    routes: Vec<Route>,
    /// Index in `routes` of each flow, in the order of the demand.
    route_of: Vec<u32>,
}

impl Paths {
    /// Creates a table for this number of flows.
    pub(crate) fn new(flows: usize) -> Self {
        Self { routes: Vec::new(), route_of: vec![0; flows] }
    }

    pub(crate) fn add_route(&mut self, route: Route) -> u32 {
        self.routes.push(route);
        u32::try_from(self.routes.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn set(&mut self, flow: usize, route: u32) {
        if let Some(place) = self.route_of.get_mut(flow) {
            *place = route;
        }
    }

    /// Returns the links of a flow that were chosen: all except the only link of a host. Empty if both hosts are at one
    /// leaf.
    pub fn route(&self, flow: usize) -> &[LinkId] {
        let route = self.route_of.get(flow).and_then(|route| self.routes.get(*route as usize));
        route.map_or(&[], Vec::as_slice)
    }

    /// Returns all links of a flow, from host to host.
    pub fn links(&self, fabric: &Fabric, demand: &Demand, flow: usize) -> Vec<LinkId> {
        let Some(ends) = demand.flows.get(flow) else { return Vec::new() };
        let first = if let Attachment::Leaf { up, .. } = fabric.attachment(ends.source) { Some(up) } else { None };
        let last =
            if let Attachment::Leaf { down, .. } = fabric.attachment(ends.destination) { Some(down) } else { None };
        first.into_iter().chain(self.route(flow).iter().copied()).chain(last).collect()
    }

    /// Returns the load of every link, including the links of hosts.
    pub fn loads(&self, fabric: &Fabric, demand: &Demand) -> PerLink<u64> {
        let mut by_route = vec![0; self.routes.len()];
        let mut loads = PerLink::new(fabric.link_count(), 0);
        for (flow, route) in demand.flows.iter().zip(&self.route_of) {
            if let Some(load) = by_route.get_mut(*route as usize) {
                *load += flow.demand;
            }
            if let Attachment::Leaf { up, .. } = fabric.attachment(flow.source) {
                loads[up] += flow.demand;
            }
            if let Attachment::Leaf { down, .. } = fabric.attachment(flow.destination) {
                loads[down] += flow.demand;
            }
        }
        for (route, load) in self.routes.iter().zip(by_route) {
            for link in route {
                loads[*link] += load;
            }
        }
        loads
    }
}

/// Returns the ratio of the busiest link among those whose load depends on the paths ([`Fabric::judged`]).
pub fn busiest(fabric: &Fabric, loads: &PerLink<u64>) -> Ratio {
    let judged = fabric.judged();
    let busy = loads.iter().filter(|(link, load)| judged[*link] && **load > 0);
    busy.map(|(link, load)| Ratio { load: *load, capacity: fabric.link(link).capacity }).max().unwrap_or(Ratio::ZERO)
}

/// Result of placing a demand.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Path of every flow.
    pub paths: Paths,
    /// Lower bound: on the permitted paths, no placement has a busiest link with a lower ratio.
    pub bound: Ratio,
    /// Ratio of the busiest link in this placement.
    pub busiest: Ratio,
}

/// Places every flow so that the busiest link carries as little as possible. On two- and three-tier Clos fabrics whose
/// links are all alike the result is the optimum; elsewhere it is the best that a search finds.
///
/// # Errors
/// [`PlaceError`]: the demand cannot be carried as asked.
pub fn place(fabric: &Fabric, demand: &Demand, constraints: &Constraints) -> Result<Placement, PlaceError> {
    solve(&Problem::new(fabric, demand, constraints)?)
}

/// Places the flows of a problem, beside the load that the links carry already.
pub(crate) fn solve(problem: &Problem) -> Result<Placement, PlaceError> {
    let constraints = problem.constraints;
    let permits = Permits::new(problem);
    let undivided = CommodityPaths::new(problem, &permits);
    undivided.check_paths()?;
    let divided = division::divide(problem, &permits)?;
    let paths = CommodityPaths::new(problem, &divided);
    let mut spreads: Vec<Spread> = vec![vec![(Route::new(), 0)]; problem.commodities.len()];
    let mut bounds = Ratio::ZERO;
    let mut reached = Ratio::ZERO;
    for part in part::divide(&paths) {
        let placed = place_part(&paths, &part);
        bounds = bounds.max(placed.bound);
        reached = reached.max(placed.busiest);
        for (commodity, spread) in part.commodities.iter().zip(placed.spreads) {
            if let Some(place) = spreads.get_mut(*commodity) {
                *place = spread;
            }
        }
    }
    // The division of the switches may be a bad one, so the bound is that of the undivided fabric.
    if !constraints.disjoint.is_empty() {
        let parts = part::divide(&undivided);
        let loads = loads(problem, &spreads);
        bounds = parts.iter().map(|part| lower_bound(&undivided, part, &loads)).max().unwrap_or(Ratio::ZERO);
    }
    check_disjoint(problem, &spreads)?;
    Ok(Placement { paths: deal(problem, &spreads), bound: bounds, busiest: reached })
}

struct Placed {
    spreads: Vec<Spread>,
    bound: Ratio,
    busiest: Ratio,
}

fn place_part(paths: &CommodityPaths, part: &Part) -> Placed {
    let cuts = bound::of_cuts(paths, part);
    let mut best: Option<Assignment> = None;
    for even in [Even::Pods, Even::Leaves] {
        if best.as_ref().is_none_or(|best| best.busiest() > cuts)
            && let Some(spreads) = symmetric::place(paths, part, even)
        {
            best = Some(better(best, Assignment::new(paths, part, spreads)));
        }
    }
    if best.as_ref().is_none_or(|best| best.busiest() > cuts) {
        let mut other = Assignment::new(paths, part, vec![Spread::new(); part.commodities.len()]);
        other.reroute(cuts);
        best = Some(better(best, other));
    }
    let Some(mut best) = best else { return Placed { spreads: Vec::new(), bound: cuts, busiest: Ratio::ZERO } };
    let mut bound = cuts;
    if best.busiest() > bound {
        relief::relieve(&mut best, bound);
    }
    if best.busiest() > bound {
        bound = bound.max(fraction::lower_bound(paths, part, &best.loads));
    }
    Placed { bound, busiest: best.busiest(), spreads: best.spreads }
}

fn better<'m, 'p>(one: Option<Assignment<'m, 'p>>, other: Assignment<'m, 'p>) -> Assignment<'m, 'p> {
    match one {
        Some(one) if one.busiest() <= other.busiest() => one,
        _ => other,
    }
}

fn lower_bound(paths: &CommodityPaths, part: &Part, loads: &PerLink<u64>) -> Ratio {
    bound::of_cuts(paths, part).max(fraction::lower_bound(paths, part, loads))
}

fn loads(problem: &Problem, spreads: &[Spread]) -> PerLink<u64> {
    let mut loads = PerLink::new(problem.fabric.link_count(), 0);
    for (commodity, spread) in problem.commodities.iter().zip(spreads) {
        for (route, count) in spread {
            for link in route {
                loads[*link] += count * commodity.demand;
            }
        }
    }
    loads
}

/// Checks that disjoint tenants share no link. The division should guarantee that; this check makes sure of it.
fn check_disjoint(problem: &Problem, spreads: &[Spread]) -> Result<(), PlaceError> {
    let mut users: PerLink<Vec<usize>> = PerLink::new(problem.fabric.link_count(), Vec::new());
    for (commodity, spread) in problem.commodities.iter().zip(spreads) {
        let Some(tenant) = commodity.tenant else { continue };
        for link in spread.iter().flat_map(|(route, _)| route) {
            let other = users[*link].iter().find(|other| problem.constraints.are_disjoint(Some(tenant), Some(**other)));
            if let Some(other) = other {
                return Err(division::shared(problem, *other, tenant, *link));
            }
            if !users[*link].contains(&tenant) {
                users[*link].push(tenant);
            }
        }
    }
    Ok(())
}

/// Gives every flow one of the routes of its commodity, in turn, so that the flows of one host do not all take the same
/// route.
fn deal(problem: &Problem, spreads: &[Spread]) -> Paths {
    let mut paths = Paths::new(problem.demand.flows.len());
    let mut numbers: HashMap<Route, u32> = HashMap::new();
    for (commodity, spread) in problem.commodities.iter().zip(spreads) {
        let mut left: Vec<(u32, u64)> = Vec::new();
        for (route, count) in spread {
            let number = match numbers.get(route) {
                Some(number) => *number,
                None => paths.add_route(route.clone()),
            };
            numbers.entry(route.clone()).or_insert(number);
            left.push((number, *count));
        }
        let mut turn = 0;
        for flow in &commodity.flows {
            let count = left.len().max(1);
            let next = (0..count).map(|step| (turn + step) % count);
            let next = next.into_iter().find(|route| left.get(*route).is_some_and(|(_, left)| *left > 0)).unwrap_or(0);
            if let Some((number, left)) = left.get_mut(next) {
                paths.set(*flow as usize, *number);
                *left = left.saturating_sub(1);
            }
            turn = next + 1;
        }
    }
    paths
}
