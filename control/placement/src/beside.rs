//! Places a job beside others whose paths stay where they are.

use crate::commodity::Problem;
use crate::constraints::{Constraints, PlaceError};
use crate::demand::Demand;
use crate::fabric::Fabric;
use crate::placement::{Paths, Placement, place, solve};
use crate::ratio::Ratio;
use crate::table::PerLink;

/// Load of other jobs on the links of a fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Load of all other jobs. Links without it are free.
    pub all: PerLink<u64>,
    /// Load of those jobs that the new one must respect where it has to share links with them.
    pub respected: PerLink<u64>,
}

impl Carried {
    /// Creates the loads of a fabric that carries nothing.
    pub fn nothing(fabric: &Fabric) -> Self {
        let nothing = PerLink::new(fabric.link_count(), 0);
        Self { all: nothing.clone(), respected: nothing }
    }
}

/// Places every flow so that the busiest link that the job takes carries as little as possible, together with what it
/// carries already. If that is possible on free links alone, without longer paths, the job takes only free links.
///
/// The bound of the result is that of the job alone on the fabric. `busiest` is the busiest link of the job, with the
/// load in `respected`.
///
/// # Errors
/// [`PlaceError`]: the demand cannot be carried as asked.
pub fn place_beside(
    fabric: &Fabric,
    demand: &Demand,
    constraints: &Constraints,
    carried: &Carried,
) -> Result<Placement, PlaceError> {
    let judged = fabric.judged();
    let taken = || carried.all.iter().filter(|(link, load)| judged[*link] && **load > 0).map(|(link, _)| link);
    if taken().next().is_none() {
        return place(fabric, demand, constraints);
    }
    let together = solve(&Problem::beside(fabric, demand, constraints, carried.respected.clone())?)?;
    let mut free = fabric.clone();
    for link in taken() {
        free.link_mut(link).up = false;
    }
    // A host with several links may have lost all but one of them; then that link is no longer a choice, and free links
    // are not compared with others.
    let apart = place(&free, demand, constraints).ok().filter(|apart| {
        let length = |paths: &Paths, flow| paths.route(flow).len();
        let is_as_short = |flow| length(&apart.paths, flow) <= length(&together.paths, flow);
        free.judged() == judged && apart.busiest <= together.busiest && (0..demand.flows.len()).all(is_as_short)
    });
    Ok(match apart {
        Some(apart) => Placement { bound: together.bound, ..apart },
        None => together,
    })
}

/// Returns the ratio of the busiest link that a placement takes, with what the link carries besides.
pub fn busiest_beside(fabric: &Fabric, own: &PerLink<u64>, carried: &PerLink<u64>) -> Ratio {
    let judged = fabric.judged();
    let used = own.iter().filter(|(link, load)| judged[*link] && **load > 0);
    let ratio = |(link, load): (_, &u64)| Ratio { load: load + carried[link], capacity: fabric.link(link).capacity };
    used.map(ratio).max().unwrap_or(Ratio::ZERO)
}
