//! Places a job beside others whose paths stay where they are.

use std::collections::HashMap;

use crate::commodity::Problem;
use crate::constraints::{Constraints, PlaceError};
use crate::demand::Demand;
use crate::fabric::{Attachment, Fabric};
use crate::placement::{Paths, Placement, solve};
use crate::ratio::Ratio;
use crate::table::{LinkId, PerLink};

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
    let together = solve(&Problem::beside(fabric, demand, constraints, carried.respected.clone())?)?;
    if taken().next().is_none() {
        return Ok(together);
    }
    let mut free = fabric.clone();
    for link in taken() {
        free.link_mut(link).up = false;
    }
    let beside = Problem::beside(&free, demand, constraints, carried.respected.clone());
    let apart = beside.and_then(|problem| solve(&problem)).ok().and_then(|apart| {
        let paths = on_whole_fabric(fabric, demand, &free, &apart.paths);
        let busiest = busiest_beside(fabric, &paths.loads(fabric, demand), &carried.respected);
        let is_as_short = |flow| paths.route(flow).len() <= together.paths.route(flow).len();
        let is_as_good = busiest <= together.busiest && (0..demand.flows.len()).all(is_as_short);
        is_as_good.then_some(Placement { paths, bound: together.bound, busiest })
    });
    Ok(apart.unwrap_or(together))
}

/// Returns paths on a part of a fabric as paths on the whole fabric. A host with several links may have only one of them
/// in the part, where that one is no choice and is not in the routes.
fn on_whole_fabric(fabric: &Fabric, demand: &Demand, part: &Fabric, found: &Paths) -> Paths {
    let mut paths = Paths::new(demand.flows.len());
    let mut numbers: HashMap<Vec<LinkId>, u32> = HashMap::new();
    for (position, flow) in demand.flows.iter().enumerate() {
        let mut links = found.links(part, demand, position);
        if matches!(fabric.attachment(flow.destination), Attachment::Leaf { .. }) {
            links.pop();
        }
        if matches!(fabric.attachment(flow.source), Attachment::Leaf { .. }) && !links.is_empty() {
            links.remove(0);
        }
        let number = match numbers.get(&links) {
            Some(number) => *number,
            None => paths.add_route(links.clone()),
        };
        numbers.entry(links).or_insert(number);
        paths.set(position, number);
    }
    paths
}

/// Returns the ratio of the busiest link that a placement takes, with what the link carries besides.
pub fn busiest_beside(fabric: &Fabric, own: &PerLink<u64>, carried: &PerLink<u64>) -> Ratio {
    let judged = fabric.judged();
    let used = own.iter().filter(|(link, load)| judged[*link] && **load > 0);
    let ratio = |(link, load): (_, &u64)| Ratio { load: load + carried[link], capacity: fabric.link(link).capacity };
    used.map(ratio).max().unwrap_or(Ratio::ZERO)
}
