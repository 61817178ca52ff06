//! Places flows of several phases, which follow each other: what they carry never adds up, but a pair of hosts has the same path
//! in all of them.

use std::collections::BTreeMap;

use crate::again::{Again, place_again};
use crate::beside::{Carried, busiest_beside, place_beside};
use crate::constraints::{Constraints, PlaceError};
use crate::demand::{Demand, Flow};
use crate::fabric::Fabric;
use crate::placement::place;
use crate::ratio::Ratio;
use crate::table::{LinkId, NodeId, PerLink};

/// A placement of several phases.
#[derive(Clone, Debug)]
pub struct Phased {
    /// The pairs of hosts that send in any phase, in the order in which they first appear.
    pub pairs: Vec<(NodeId, NodeId)>,
    /// Links of each pair, from host to host.
    pub links: Vec<Vec<LinkId>>,
    /// What each phase carries.
    pub phases: Vec<PhaseLoads>,
    /// How it differs from an earlier placement, if there is one.
    pub changed: Option<Changed>,
}

/// What one phase carries.
#[derive(Clone, Debug)]
pub struct PhaseLoads {
    /// Load of each link.
    pub loads: PerLink<u64>,
    /// No placement of this phase alone has less on its busiest link.
    pub bound: Ratio,
    /// Ratio of the busiest link, with the load that is to be respected.
    pub busiest: Ratio,
}

/// How a placement differs from an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Number of pairs that take another path.
    pub moved: usize,
    /// Number of pairs whose earlier path may not be taken any more.
    pub lost: usize,
    /// Ratio of the busiest link of all phases if nothing were moved, without pairs that have lost their paths.
    pub before: Ratio,
}

/// Places phases, each a demand with at most one flow of a pair, so that the busiest link of each phase carries little. One
/// phase is placed after the other, beside the paths that its pairs have by then: the smallest first, and for comparison the largest
/// first. `earlier` has the links of pairs so far, from host to host: they stay as far as they can ([`place_again`]).
///
/// # Errors
/// [`PlaceError`]: a demand cannot be carried as asked.
pub fn place_phases(
    fabric: &Fabric,
    phases: &[Demand],
    constraints: &Constraints,
    carried: &Carried,
    earlier: Option<&BTreeMap<(NodeId, NodeId), Vec<LinkId>>>,
) -> Result<Phased, PlaceError> {
    let mut order: Vec<usize> = (0..phases.len()).collect();
    order.sort_by_key(|phase| phases.get(*phase).map_or(0, |demand| demand.flows.len()));
    let backwards: Vec<usize> = order.iter().rev().copied().collect();
    let one = in_order(fabric, phases, &order, constraints, carried, earlier)?;
    let other = in_order(fabric, phases, &backwards, constraints, carried, earlier)?;
    let best = if other.score() < one.score() { other } else { one };
    Ok(best.gather(fabric, phases, constraints))
}

/// Paths of pairs of hosts.
struct Known {
    links: BTreeMap<(NodeId, NodeId), Vec<LinkId>>,
    /// Loads of each phase, and the ratio of its busiest link.
    loads: Vec<(PerLink<u64>, Ratio)>,
    changed: Option<Changed>,
}

fn in_order(
    fabric: &Fabric,
    phases: &[Demand],
    order: &[usize],
    constraints: &Constraints,
    carried: &Carried,
    earlier: Option<&BTreeMap<(NodeId, NodeId), Vec<LinkId>>>,
) -> Result<Known, PlaceError> {
    let mut links: BTreeMap<(NodeId, NodeId), Vec<LinkId>> = BTreeMap::new();
    let mut changed = Changed { moved: 0, lost: 0, before: Ratio::ZERO };
    for demand in order.iter().filter_map(|phase| phases.get(*phase)) {
        let (fixed, fresh): (Vec<Flow>, Vec<Flow>) =
            demand.flows.iter().partition(|flow| links.contains_key(&ends(flow)));
        if fresh.is_empty() {
            continue;
        }
        let mut beside = carried.clone();
        for flow in &fixed {
            for link in links.get(&ends(flow)).into_iter().flatten() {
                beside.respected[*link] = beside.respected[*link].saturating_add(flow.demand);
            }
        }
        let fresh = Demand { flows: fresh };
        let paths = match earlier {
            None => place_beside(fabric, &fresh, constraints, &beside)?.paths,
            Some(earlier) => {
                let before: Vec<_> = fresh.flows.iter().map(|flow| earlier.get(&ends(flow)).cloned()).collect();
                let Again { placement, moved, lost, before } =
                    place_again(fabric, &fresh, constraints, &beside, &before)?;
                changed.moved += moved.len();
                changed.lost += lost;
                changed.before = changed.before.max(before);
                placement.paths
            }
        };
        for (position, flow) in fresh.flows.iter().enumerate() {
            links.insert(ends(flow), paths.links(fabric, &fresh, position));
        }
    }
    let loads = phases.iter().map(|demand| {
        let mut loads = PerLink::new(fabric.link_count(), 0_u64);
        for flow in &demand.flows {
            for link in links.get(&ends(flow)).into_iter().flatten() {
                loads[*link] = loads[*link].saturating_add(flow.demand);
            }
        }
        let busiest = busiest_beside(fabric, &loads, &carried.respected);
        (loads, busiest)
    });
    Ok(Known { loads: loads.collect(), links, changed: earlier.map(|_| changed) })
}

impl Known {
    /// Returns how good the paths are, the less the better: the ratios of all phases, the highest first, and the moves.
    fn score(&self) -> (Vec<Ratio>, usize) {
        let mut ratios: Vec<Ratio> = self.loads.iter().map(|(_, busiest)| *busiest).collect();
        ratios.sort_unstable_by(|one, other| other.cmp(one));
        (ratios, self.changed.map_or(0, |changed| changed.moved))
    }

    fn gather(mut self, fabric: &Fabric, phases: &[Demand], constraints: &Constraints) -> Phased {
        let loads = self.loads.into_iter().zip(phases).map(|((loads, busiest), demand)| {
            // Each demand could be placed a moment ago.
            let bound = place(fabric, demand, constraints).map_or(Ratio::ZERO, |alone| alone.bound);
            PhaseLoads { loads, bound, busiest }
        });
        let mut found = Phased { pairs: Vec::new(), links: Vec::new(), phases: loads.collect(), changed: self.changed };
        for flow in phases.iter().flat_map(|demand| &demand.flows) {
            if let Some(links) = self.links.remove(&ends(flow)) {
                found.pairs.push(ends(flow));
                found.links.push(links);
            }
        }
        found
    }
}

const fn ends(flow: &Flow) -> (NodeId, NodeId) {
    (flow.source, flow.destination)
}
