//! Lower bounds: what the busiest link carries at least, however the flows are placed.
//!
//! There are three kinds of lower bound, and the highest one counts:
//!
//! * a flow takes one path as a whole, so its whole demand lies on one link of each cut;
//! * everything that leaves a leaf, or a pod, shares the links that lead out of it, in whole flows;
//! * linear programming duality: for any lengths of links, demand times distance is at most capacity times length times
//!   the busiest ratio. The lengths come from flows that may be split at will ([`crate::fraction`]).

use std::collections::{BTreeSet, HashMap};

use crate::commodity_paths::CommodityPaths;
use crate::fabric::{Fabric, NodeKind};
use crate::part::Part;
use crate::ratio::Ratio;
use crate::table::{LinkId, NodeId, PerNode};

/// Traffic that has to leave (or reach) one place, and the links it can use to do so.
#[derive(Default)]
struct Cut {
    volume: u64,
    links: BTreeSet<LinkId>,
}

/// The traffic that a cut separates: out of or into a node (of all flows or of one tenant), or out of or into an area.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Side {
    Out(NodeId, Option<usize>),
    Into(NodeId, Option<usize>),
    /// Out of an area, given by its index in the result of [`areas`] and its number there.
    OutOf(usize, usize),
    IntoOf(usize, usize),
}

/// Returns the lower bound that cuts prove: the first two kinds of the module comment.
pub(crate) fn of_cuts(paths: &CommodityPaths, part: &Part) -> Ratio {
    let step = part.step(paths);
    let mut best = Ratio::ZERO;
    for commodity in &part.commodities {
        let demand = paths.commodity(*commodity).demand;
        let doors = door_links(paths, *commodity);
        for links in [doors.first, doors.last] {
            best = best.max(spread(demand, demand, links.iter().copied(), paths.problem.fabric));
        }
    }
    for cut in cuts(paths, part).values() {
        best = best.max(spread(cut.volume, step, cut.links.iter().copied(), paths.problem.fabric));
    }
    best
}

/// Returns the lowest possible ratio of the busiest of these links when they share a volume that comes in whole steps.
fn spread(volume: u64, step: u64, links: impl Iterator<Item = LinkId>, fabric: &Fabric) -> Ratio {
    let mut capacities: HashMap<u64, u64> = HashMap::new();
    for link in links {
        *capacities.entry(fabric.link(link).capacity).or_default() += 1;
    }
    let steps = volume.div_ceil(step);
    let holds = |most: Ratio| {
        // floor(most * capacity / step), for each link.
        let each = |capacity: u64| {
            u128::from(most.load) * u128::from(capacity) / (u128::from(most.capacity) * u128::from(step))
        };
        let total: u128 = capacities.iter().map(|(capacity, count)| each(*capacity) * u128::from(*count)).sum();
        total >= u128::from(steps)
    };
    // In the best division the busiest link has one of these capacities and carries a whole number of steps.
    let least = |capacity: u64| {
        let (mut low, mut high) = (0, steps);
        while low < high {
            let middle = low + (high - low) / 2;
            if holds(Ratio { load: middle * step, capacity }) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ratio { load: low * step, capacity }
    };
    capacities.keys().map(|capacity| least(*capacity)).filter(|most| holds(*most)).min().unwrap_or(Ratio::ZERO)
}

/// Rounds a ratio that divisible flows could reach up to the lowest one that whole steps can reach.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "demands and capacities are far below 2^53, and the ratio is not negative"
)]
pub(crate) fn round_up(ratio: f64, paths: &CommodityPaths, part: &Part) -> Ratio {
    /// Margin for the rounding errors of long sums, which are smaller than this.
    const ROUNDING: f64 = 1e-6;
    let step = part.step(paths);
    let capacities: BTreeSet<u64> = part.links.iter().map(|link| paths.problem.fabric.link(*link).capacity).collect();
    let least = |capacity: u64| {
        let steps = (ratio * capacity as f64 / step as f64 - ROUNDING).ceil().max(0.0);
        Ratio { load: steps as u64 * step, capacity }
    };
    capacities.into_iter().map(least).min().unwrap_or(Ratio::ZERO)
}

struct DoorLinks {
    first: Vec<LinkId>,
    last: Vec<LinkId>,
}

fn door_links(paths: &CommodityPaths, commodity: usize) -> DoorLinks {
    let (to_exit, entry) = (paths.to_exit(commodity), paths.commodity(commodity).entry);
    let first = paths.onward(to_exit, entry, paths.detour).map(|step| step.link).collect();
    let links = paths.links(commodity);
    let last = links.into_iter().filter(|link| paths.problem.fabric.link(*link).to == to_exit.exit).collect();
    DoorLinks { first, last }
}

fn cuts(paths: &CommodityPaths, part: &Part) -> HashMap<Side, Cut> {
    let fabric = paths.problem.fabric;
    let levels = areas(fabric);
    let mut cuts: HashMap<Side, Cut> = HashMap::new();
    for index in &part.commodities {
        let commodity = paths.commodity(*index);
        let (entry, exit) = (commodity.entry, commodity.exit);
        let doors = door_links(paths, *index);
        let tenants = if commodity.tenant.is_some() { vec![None, commodity.tenant] } else { vec![None] };
        for tenant in tenants {
            for (side, links) in [(Side::Out(entry, tenant), &doors.first), (Side::Into(exit, tenant), &doors.last)] {
                let cut = cuts.entry(side).or_default();
                cut.volume += commodity.volume();
                cut.links.extend(links);
            }
        }
        for (level, areas) in levels.iter().enumerate() {
            if let (Some(from), Some(to)) = (areas[entry], areas[exit])
                && from != to
            {
                cuts.entry(Side::OutOf(level, from)).or_default().volume += commodity.volume();
                cuts.entry(Side::IntoOf(level, to)).or_default().volume += commodity.volume();
            }
        }
    }
    for link in &part.links {
        let ends = fabric.link(*link);
        for (level, areas) in levels.iter().enumerate() {
            let (from, to) = (areas[ends.from], areas[ends.to]);
            if from == to {
                continue;
            }
            for side in [from.map(|from| Side::OutOf(level, from)), to.map(|to| Side::IntoOf(level, to))] {
                if let Some(cut) = side.and_then(|side| cuts.get_mut(&side)) {
                    cut.links.insert(*link);
                }
            }
        }
    }
    cuts
}

/// Returns, for every tier from 2 upwards, the area of each node. An area is a connected part of the fabric below that
/// tier, such as a pod; areas are numbered.
fn areas(fabric: &Fabric) -> Vec<PerNode<Option<usize>>> {
    let tiers = fabric.tiers();
    let highest = tiers.iter().filter_map(|(_, tier)| *tier).max().unwrap_or(0);
    let below = |top: usize| {
        let inside =
            |node: NodeId| fabric.node(node).kind == NodeKind::Host || tiers[node].is_some_and(|tier| tier < top);
        let mut areas = PerNode::new(fabric.node_count(), None);
        for (number, (start, _)) in fabric.nodes().filter(|(node, _)| inside(*node)).enumerate() {
            let mut stack = vec![start];
            while let Some(node) = stack.pop() {
                if areas[node].is_none() {
                    areas[node] = Some(number);
                    let near = fabric.out(node).map(|link| fabric.link(link).to);
                    let back = fabric.into(node).map(|link| fabric.link(link).from);
                    stack.extend(near.chain(back).filter(|next| inside(*next) && areas[*next].is_none()));
                }
            }
        }
        areas
    };
    (2..=highest).map(below).collect()
}
