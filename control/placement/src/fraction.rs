//! The same demand in flows that may be split at will: how busy must the busiest link be then?
//!
//! Frank and Wolfe's method on a smooth stand-in for the maximum. In every round each link has a length that grows
//! exponentially with how busy it is, all demand is sent along the shortest ways, and mixed into what there is. The
//! lengths of any round prove a lower bound; the best one is kept.

use std::collections::BTreeMap;

use crate::bound;
use crate::part::Part;
use crate::ratio::Ratio;
use crate::table::{NodeId, PerLink};
use crate::ways::{Maze, Tree};

/// Rounds at most.
const ROUNDS: u32 = 240;
/// Links looked at, at most: a second or two.
const WORK: u64 = 400_000_000;

/// A lower bound in whole flows. Ends early when it proves that `reached` is the best there is.
pub(crate) fn lower_bound(maze: &Maze, part: &Part, reached: Ratio) -> Ratio {
    let mut mixture = Mixture::new(maze, part);
    let mut best = Ratio::ZERO;
    let mut sharpness = 8.0;
    for round in 0..ROUNDS {
        let value = mixture.round(sharpness, round == 0);
        best = best.max(bound::round_up(value, maze, part));
        if best >= reached || mixture.tree.work > WORK {
            break;
        }
        sharpness *= 1.03;
    }
    // Whatever rounding did: what has been reached can be reached.
    best.min(reached)
}

struct Mixture<'m, 'p> {
    maze: &'m Maze<'p>,
    part: &'m Part,
    /// Entries of each way, with what they send.
    entries: BTreeMap<usize, Vec<(NodeId, f64)>>,
    loads: PerLink<f64>,
    tree: Tree,
}

impl<'m, 'p> Mixture<'m, 'p> {
    #[allow(clippy::cast_precision_loss, reason = "volumes are far below 2^53")]
    fn new(maze: &'m Maze<'p>, part: &'m Part) -> Self {
        let mut entries: BTreeMap<usize, Vec<(NodeId, f64)>> = BTreeMap::new();
        for commodity in &part.commodities {
            let volume = maze.commodity(*commodity).volume() as f64;
            entries.entry(maze.way_of(*commodity)).or_default().push((maze.commodity(*commodity).entry, volume));
        }
        let loads = PerLink::new(maze.problem.fabric.link_count(), 0.0);
        Self { maze, part, entries, loads, tree: Tree::new(maze) }
    }

    #[allow(clippy::cast_precision_loss, reason = "capacities are far below 2^53")]
    fn capacity(&self, link: crate::table::LinkId) -> f64 {
        self.maze.problem.fabric.link(link).capacity as f64
    }

    /// Sends all demand the shortest ways, and says what the lengths prove.
    fn round(&mut self, sharpness: f64, first: bool) -> f64 {
        let ratios = || self.part.links.iter().map(|link| self.loads[*link] / self.capacity(*link));
        let busiest = ratios().fold(0.0, f64::max);
        let mut lengths = PerLink::new(self.loads.len(), 0.0);
        let mut budget = 0.0;
        for link in &self.part.links {
            let ratio = self.loads[*link] / self.capacity(*link);
            // At the start all are equally idle. Lengths stay above 0.
            let rise = if first { 0.0 } else { sharpness * (ratio / busiest - 1.0) };
            let length = rise.max(-600.0).exp();
            budget += length;
            lengths[*link] = length / self.capacity(*link);
        }
        let mut sent = PerLink::new(self.loads.len(), 0.0);
        let mut paid = 0.0;
        for (way, entries) in &self.entries {
            let ways = self.maze.way(*way);
            self.tree.grow(self.maze, ways, &lengths);
            self.tree.flow(ways, entries, &mut sent);
            paid += entries.iter().map(|(entry, volume)| volume * self.tree.cost(*entry)).sum::<f64>();
        }
        let share = if first { 1.0 } else { self.best_share(&sent, sharpness / busiest) };
        for link in &self.part.links {
            self.loads[*link] += share * (sent[*link] - self.loads[*link]);
        }
        paid / budget
    }

    /// How much of the new to mix in: the smooth maximum is convex in it, so thirds of an interval close in on its
    /// least.
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
