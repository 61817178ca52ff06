//! Search for a placement where symmetry does not give one: failed or unequal links, mixed demands, irregular fabrics.
//!
//! First, flows are placed in portions, each on the cheapest path, where the price of a link grows exponentially with
//! how busy it is. Then every commodity is removed and placed again, several times, in smaller portions and with
//! steeper prices. Finally the busiest links are relieved flow by flow ([`crate::relief`]).

use crate::commodity::{Commodity, Route, Spread};
use crate::commodity_paths::{CommodityPaths, PathSearch};
use crate::part::Part;
use crate::ratio::Ratio;
use crate::table::{LinkId, PerLink};

/// Maximum number of links visited in one rerouting: one or two seconds of work.
const WORK: u64 = 200_000_000;

/// Rounds of rerouting: how steeply prices grow, and into how many portions a commodity is divided.
const ROUNDS: [(f64, u64); 8] =
    [(6.0, 4), (12.0, 8), (24.0, 16), (48.0, 32), (96.0, 64), (192.0, 64), (384.0, 128), (384.0, 128)];

/// Current routes of the flows of a part, with the loads they cause.
pub(crate) struct Assignment<'m, 'p> {
    pub paths: &'m CommodityPaths<'p>,
    pub part: &'m Part,
    /// Routes of each commodity, by position in the part.
    pub spreads: Vec<Spread>,
    pub loads: PerLink<u64>,
    pub scout: PathSearch<'m, 'p>,
}

impl<'m, 'p> Assignment<'m, 'p> {
    pub(crate) fn new(paths: &'m CommodityPaths<'p>, part: &'m Part, spreads: Vec<Spread>) -> Self {
        let loads = PerLink::new(paths.problem.fabric.link_count(), 0);
        let mut assignment = Self { paths, part, spreads: Vec::new(), loads, scout: PathSearch::new(paths) };
        assignment.restore(spreads);
        assignment
    }

    fn restore(&mut self, spreads: Vec<Spread>) {
        for link in &self.part.links {
            self.loads[*link] = self.paths.problem.carried[*link];
        }
        for (commodity, spread) in self.part.commodities.iter().zip(&spreads) {
            let demand = self.paths.commodity(*commodity).demand;
            for (route, count) in spread {
                for link in route {
                    self.loads[*link] += demand * count;
                }
            }
        }
        self.spreads = spreads;
    }

    pub(crate) fn ratio(&self, link: LinkId) -> Ratio {
        Ratio { load: self.loads[link], capacity: self.paths.problem.fabric.link(link).capacity }
    }

    /// Returns whether a flow of the part takes the link.
    pub(crate) fn is_used(&self, link: LinkId) -> bool {
        self.loads[link] > self.paths.problem.carried[link]
    }

    /// Returns the ratio of the busiest link that a flow of the part takes, with what the link carries besides.
    pub(crate) fn busiest(&self) -> Ratio {
        let used = self.part.links.iter().filter(|link| self.is_used(**link));
        used.map(|link| self.ratio(*link)).max().unwrap_or(Ratio::ZERO)
    }

    #[allow(clippy::indexing_slicing, reason = "positions are of the part")]
    pub(crate) fn commodity(&self, position: usize) -> &'m Commodity {
        self.paths.commodity(self.part.commodities[position])
    }

    #[allow(clippy::indexing_slicing, reason = "positions are of the part")]
    pub(crate) fn cheapest(&mut self, position: usize, cost: &impl Fn(LinkId) -> f64) -> Option<(f64, Route)> {
        self.scout.cheapest(self.part.commodities[position], cost)
    }

    /// Reroutes all commodities in several rounds and keeps the best result.
    pub(crate) fn reroute(&mut self, bound: Ratio) {
        let mut best: Option<(Ratio, Vec<Spread>)> = None;
        for (sharpness, portions) in ROUNDS {
            let mut prices = Prices::new(self, bound.max(Ratio { load: 1, capacity: u64::MAX }).value(), sharpness);
            for position in 0..self.spreads.len() {
                self.place_again(position, portions, &mut prices);
            }
            let reached = self.busiest();
            if best.as_ref().is_none_or(|(other, _)| reached < *other) {
                best = Some((reached, self.spreads.clone()));
            }
            if reached <= bound || self.scout.work > WORK {
                break;
            }
        }
        if let Some((_, spreads)) = best {
            self.restore(spreads);
        }
    }

    fn place_again(&mut self, position: usize, portions: u64, prices: &mut Prices) {
        let Commodity { demand, .. } = *self.commodity(position);
        let count = self.commodity(position).count();
        let before = self.spreads.get_mut(position).map(std::mem::take).unwrap_or_default();
        for (route, count) in &before {
            for link in route {
                self.loads[*link] -= demand * count;
                prices.update(*link, self.loads[*link]);
            }
        }
        let portion = count.div_ceil(portions);
        let mut left = count;
        let mut spread = Spread::new();
        while left > 0 {
            let some = left.min(portion);
            let Some((_, route)) = self.cheapest(position, &|link| prices.of[link]) else { break };
            for link in &route {
                self.loads[*link] += demand * some;
                prices.update(*link, self.loads[*link]);
            }
            add(&mut spread, route, some);
            left -= some;
        }
        if let Some(place) = self.spreads.get_mut(position) {
            *place = spread;
        }
    }
}

/// Adds flows that take a route to a spread.
pub(crate) fn add(spread: &mut Spread, route: Route, count: u64) {
    match spread.iter_mut().find(|(other, _)| *other == route) {
        Some((_, flows)) => *flows += count,
        None => spread.push((route, count)),
    }
}

/// Price of one more flow on each link.
struct Prices {
    of: PerLink<f64>,
    capacities: PerLink<f64>,
    /// Ratio at which a link counts as full.
    full: f64,
    sharpness: f64,
}

impl Prices {
    #[allow(clippy::cast_precision_loss, reason = "capacities are far below 2^53")]
    fn new(assignment: &Assignment, full: f64, sharpness: f64) -> Self {
        let fabric = assignment.paths.problem.fabric;
        let mut capacities = PerLink::new(fabric.link_count(), 1.0);
        for link in &assignment.part.links {
            capacities[*link] = fabric.link(*link).capacity as f64;
        }
        let mut prices = Self { of: PerLink::new(fabric.link_count(), 1.0), capacities, full, sharpness };
        for link in &assignment.part.links {
            prices.update(*link, assignment.loads[*link]);
        }
        prices
    }

    #[allow(clippy::cast_precision_loss, reason = "loads are far below 2^53")]
    fn update(&mut self, link: LinkId, load: u64) {
        let ratio = load as f64 / self.capacities[link] / self.full;
        // The limits keep the price within the range of a double and above 0.
        let exponent = (self.sharpness * (ratio - 1.0)).clamp(-600.0, 600.0);
        self.of[link] = exponent.exp() / self.capacities[link];
    }
}
