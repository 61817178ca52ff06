//! The same flows, placed, hashed, and handed out by Jalapeno's load book.

use crate::constraints::{Constraints, PlaceError};
use crate::demand::Demand;
use crate::ecmp;
use crate::fabric::Fabric;
use crate::load_order::load_order;
use crate::placement::{Paths, Placement, busiest, place};
use crate::ratio::Ratio;
use crate::table::{LinkId, PerLink};

/// One way of choosing paths, and what it makes of the links.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// By flow.
    pub paths: Paths,
    /// By link, hosts' links included.
    pub loads: PerLink<u64>,
    /// Of the links that paths are chosen between.
    pub busiest: Ratio,
}

/// Three ways.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// No placement has less on its busiest link.
    pub bound: Ratio,
    /// By [`place`].
    pub placed: Outcome,
    /// By [`crate::hash`].
    pub ecmp: Outcome,
    /// By [`load_order`].
    pub load: Outcome,
    /// The seed of the hashes.
    pub ecmp_seed: u64,
    /// Links that paths are chosen between, the busiest when placed first.
    pub links: Vec<LinkId>,
}

/// Tries all three.
///
/// # Errors
/// [`PlaceError`].
pub fn compare(
    fabric: &Fabric,
    demand: &Demand,
    constraints: &Constraints,
    ecmp_seed: u64,
) -> Result<Comparison, PlaceError> {
    let outcome = |paths: Paths| {
        let loads = paths.loads(fabric, demand);
        Outcome { busiest: busiest(fabric, &loads), loads, paths }
    };
    let Placement { paths, bound, .. } = place(fabric, demand, constraints)?;
    let placed = outcome(paths);
    let ecmp = outcome(ecmp::hash(fabric, demand, ecmp_seed)?);
    let load = outcome(load_order(fabric, demand)?);
    let judged = fabric.judged();
    let ratio = |link: LinkId, outcome: &Outcome| Ratio {
        load: outcome.loads[link],
        capacity: fabric.link(link).capacity.max(1),
    };
    let mut links: Vec<LinkId> =
        fabric.links().map(|(id, _)| id).filter(|id| judged[*id] && fabric.works(*id)).collect();
    links.sort_by_key(|link| std::cmp::Reverse([&placed, &ecmp, &load].map(|outcome| ratio(*link, outcome))));
    Ok(Comparison { bound, placed, ecmp, load, ecmp_seed, links })
}
