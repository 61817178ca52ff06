//! Compares three ways of choosing paths for the same flows: placement, hashing, and Jalapeno's load book.

use crate::constraints::{Constraints, PlaceError};
use crate::demand::Demand;
use crate::ecmp;
use crate::fabric::Fabric;
use crate::load_order::load_order;
use crate::placement::{Paths, Placement, busiest, place};
use crate::ratio::Ratio;
use crate::table::{LinkId, PerLink};

/// Result of one way of choosing paths, with the load on the links.
#[derive(Clone, Debug)]
pub struct ChosenPaths {
    /// Path of each flow.
    pub paths: Paths,
    /// Load of each link, including the links of hosts.
    pub loads: PerLink<u64>,
    /// Ratio of the busiest link among those whose load depends on the paths.
    pub busiest: Ratio,
}

/// Results of the three ways.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Lower bound: no placement has a lower ratio on its busiest link.
    pub bound: Ratio,
    /// Result of [`place`].
    pub placed: ChosenPaths,
    /// Result of [`crate::hash`].
    pub ecmp: ChosenPaths,
    /// Result of [`load_order`].
    pub load: ChosenPaths,
    /// Seed of the hashes.
    pub ecmp_seed: u64,
    /// Links whose load depends on the paths, in descending order of their ratio in `placed`.
    pub links: Vec<LinkId>,
}

/// Runs all three ways on the same flows.
///
/// # Errors
/// [`PlaceError`], as [`place`], [`crate::hash`] and [`load_order`] return it.
pub fn compare(
    fabric: &Fabric,
    demand: &Demand,
    constraints: &Constraints,
    ecmp_seed: u64,
) -> Result<Comparison, PlaceError> {
    let outcome = |paths: Paths| {
        let loads = paths.loads(fabric, demand);
        ChosenPaths { busiest: busiest(fabric, &loads), loads, paths }
    };
    let Placement { paths, bound, .. } = place(fabric, demand, constraints)?;
    let placed = outcome(paths);
    let ecmp = outcome(ecmp::hash(fabric, demand, ecmp_seed)?);
    let load = outcome(load_order(fabric, demand)?);
    let judged = fabric.judged();
    let ratio = |link: LinkId, outcome: &ChosenPaths| Ratio {
        load: outcome.loads[link],
        capacity: fabric.link(link).capacity.max(1),
    };
    let mut links: Vec<LinkId> =
        fabric.links().map(|(id, _)| id).filter(|id| judged[*id] && fabric.works(*id)).collect();
    links.sort_by_key(|link| std::cmp::Reverse([&placed, &ecmp, &load].map(|outcome| ratio(*link, outcome))));
    Ok(Comparison { bound, placed, ecmp, load, ecmp_seed, links })
}
