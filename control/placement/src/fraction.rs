//! Lower bound from divisible flows: how busy the busiest link must be even if every flow could be split at will.
//!
//! Uses the method of Frank and Wolfe on a smooth approximation of the maximum. In every round each link has a length
//! that grows exponentially with how busy it is; all demand is sent along the shortest paths, and a share of that is
//! mixed into the loads so far. The lengths of any round prove a lower bound, and the best one is kept. The method
//! begins with the loads of a placement: if the placement is good, the lengths of its loads prove that at once,
//! provided that lengths grow neither too slowly nor so fast that single flows matter.

use std::collections::BTreeMap;

use crate::bound;
use crate::commodity_paths::{CommodityPaths, Tree};
use crate::part::Part;
use crate::ratio::Ratio;
use crate::table::{LinkId, NodeId, PerLink};

/// Sharpness (how fast lengths grow) of the first rounds, which use the loads of the placement unchanged.
const LOOKS: [f64; 12] = [4.0, 8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 256.0, 512.0, 2048.0];
/// Maximum number of rounds after those of [`LOOKS`].
const ROUNDS: u32 = 240;
/// Maximum number of links visited in all rounds: one or two seconds of work.
const WORK: u64 = 400_000_000;

/// Returns a lower bound in whole flows, starting from the loads of a placement. Ends early when the bound proves that
/// placement to be the best possible.
pub(crate) fn lower_bound(paths: &CommodityPaths, part: &Part, loads: &PerLink<u64>) -> Ratio {
    let ratio = |link: &LinkId| Ratio { load: loads[*link], capacity: paths.problem.fabric.link(*link).capacity };
    let reached = part.links.iter().map(ratio).max().unwrap_or(Ratio::ZERO);
    let mut mixture = Mixture::new(paths, part, loads);
    let mut best = Ratio::ZERO;
    let mixing = (0..ROUNDS).map(|round| (8.0 * 1.03_f64.powi(round.cast_signed()), true));
    for (sharpness, mix) in LOOKS.into_iter().map(|sharpness| (sharpness, false)).chain(mixing) {
        let value = mixture.round(sharpness, mix);
        best = best.max(bound::round_up(value, paths, part));
        if best >= reached || mixture.tree.work > WORK {
            break;
        }
    }
    // The bound cannot exceed what has been reached, so this removes rounding errors.
    best.min(reached)
}

struct Mixture<'m, 'p> {
    paths: &'m CommodityPaths<'p>,
    part: &'m Part,
    /// Entry nodes with their traffic volumes, by the index of the [`crate::commodity_paths::PathsToExit`] of the commodity.
    entries: BTreeMap<usize, Vec<(NodeId, f64)>>,
    loads: PerLink<f64>,
    tree: Tree,
}

impl<'m, 'p> Mixture<'m, 'p> {
    #[allow(clippy::cast_precision_loss, reason = "volumes are far below 2^53")]
    fn new(paths: &'m CommodityPaths<'p>, part: &'m Part, reached: &PerLink<u64>) -> Self {
        let mut entries: BTreeMap<usize, Vec<(NodeId, f64)>> = BTreeMap::new();
        for commodity in &part.commodities {
            let volume = paths.commodity(*commodity).volume() as f64;
            entries.entry(paths.exit_of(*commodity)).or_default().push((paths.commodity(*commodity).entry, volume));
        }
        let mut loads = PerLink::new(paths.problem.fabric.link_count(), 0.0);
        for link in &part.links {
            loads[*link] = reached[*link] as f64;
        }
        Self { paths, part, entries, loads, tree: Tree::new(paths) }
    }

    #[allow(clippy::cast_precision_loss, reason = "capacities are far below 2^53")]
    fn capacity(&self, link: LinkId) -> f64 {
        self.paths.problem.fabric.link(link).capacity as f64
    }

    /// Sends all demand along the shortest paths, mixes it into the loads if `mix` is set, and returns the ratio that
    /// the lengths prove.
    fn round(&mut self, sharpness: f64, mix: bool) -> f64 {
        let ratios = || self.part.links.iter().map(|link| self.loads[*link] / self.capacity(*link));
        let busiest = ratios().fold(0.0, f64::max);
        let mut lengths = PerLink::new(self.loads.len(), 0.0);
        let mut budget = 0.0;
        for link in &self.part.links {
            let ratio = self.loads[*link] / self.capacity(*link);
            // The limit keeps lengths above 0.
            let length = (sharpness * (ratio / busiest - 1.0)).max(-600.0).exp();
            budget += length;
            lengths[*link] = length / self.capacity(*link);
        }
        let mut sent = PerLink::new(self.loads.len(), 0.0);
        let mut paid = 0.0;
        for (exit, entries) in &self.entries {
            let to_exit = self.paths.exit(*exit);
            self.tree.grow(self.paths, to_exit, &lengths);
            self.tree.flow(to_exit, entries, &mut sent);
            paid += entries.iter().map(|(entry, volume)| volume * self.tree.cost(*entry)).sum::<f64>();
        }
        if mix {
            let share = self.best_share(&sent, sharpness / busiest);
            for link in &self.part.links {
                self.loads[*link] += share * (sent[*link] - self.loads[*link]);
            }
        }
        paid / budget
    }

    /// Returns the share of the new loads to mix in that gives the lowest smooth maximum. The maximum is convex in the
    /// share, so a ternary search finds it.
    fn best_share(&self, sent: &PerLink<f64>, steepness: f64) -> f64 {
        let lines: Vec<(f64, f64)> = self
            .part
            .links
            .iter()
            .map(|link| {
                let capacity = self.capacity(*link);
                (self.loads[*link] / capacity, (sent[*link] - self.loads[*link]) / capacity)
            })
            .collect();
        let smooth = |share: f64| {
            let at = || lines.iter().map(|(start, slope)| start + share * slope);
            let top = at().fold(0.0, f64::max);
            top + at().map(|ratio| (steepness * (ratio - top)).exp()).sum::<f64>().ln() / steepness
        };
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..16 {
            let (left, right) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
            if smooth(left) <= smooth(right) { high = right } else { low = left }
        }
        f64::midpoint(low, high)
    }
}
