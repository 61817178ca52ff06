//! Places flows again after the fabric has changed, with as few moves as a search finds.
//!
//! A new placement says how busy the busiest link has to be. Then all flows whose paths still exist stay there. Those that
//! have lost their path take another one, and flows are moved away from links that are too busy: if a move makes another
//! link too busy, a flow is moved away from there, and so on. Short chains are tried first.

use std::collections::HashMap;

use crate::beside::{Carried, place_beside};
use crate::commodity::{Problem, Route, Spread};
use crate::commodity_paths::CommodityPaths;
use crate::constraints::{Constraints, PlaceError};
use crate::demand::Demand;
use crate::fabric::{Attachment, Fabric};
use crate::part::Part;
use crate::permits::Permits;
use crate::placement::{Paths, Placement};
use crate::ratio::Ratio;
use crate::relief;
use crate::search::{Assignment, add};
use crate::table::{LinkId, PerLink};

/// Longest chain of moves.
const DEPTH: usize = 12;
/// Number of alternatives tried for each link of a chain.
const BREADTH: usize = 4;
/// Number of moves that are tried for each link and length of a chain.
const TRIES: usize = 400;

/// A placement that differs from an earlier one in few flows.
#[derive(Clone, Debug)]
pub struct Again {
    /// The placement.
    pub placement: Placement,
    /// Positions of the flows that take another path than before, in ascending order.
    pub moved: Vec<usize>,
    /// Number of flows whose earlier paths may not be taken any more.
    pub lost: usize,
    /// Ratio of the busiest link if nothing were moved, without the flows that have lost their paths.
    pub before: Ratio,
}

/// Places a demand again. `before` has the links of each flow so far, from host to host ([`Paths::links`]), or `None` for one
/// without a path. The busiest link is as idle as in a placement anew ([`place_beside`]).
///
/// # Errors
/// [`PlaceError`]: the demand cannot be carried as asked.
pub fn place_again(
    fabric: &Fabric,
    demand: &Demand,
    constraints: &Constraints,
    carried: &Carried,
    before: &[Option<Vec<LinkId>>],
) -> Result<Again, PlaceError> {
    let fresh = place_beside(fabric, demand, constraints, carried)?;
    let problem = Problem::beside(fabric, demand, constraints, carried.respected.clone())?;
    let permits = Permits::new(&problem);
    let paths = CommodityPaths::new(&problem, &permits);
    let earlier = earlier(&paths, before);
    let part = Part {
        commodities: (0..problem.commodities.len()).collect(),
        links: fabric.links().map(|(link, _)| link).filter(|link| problem.judged[*link]).collect(),
    };
    let kept: Vec<Spread> = problem.commodities.iter().map(|commodity| gathered(&commodity.flows, &earlier)).collect();
    let lost = earlier.iter().filter(|route| route.is_none()).count();
    let begin = Assignment::new(&paths, &part, kept.clone());
    let stays = begin.busiest();
    let mut repair = Repair::new(begin, &kept, fresh.busiest, carried);
    repair.run();
    if repair.now.busiest() > fresh.busiest {
        relief::relieve(&mut repair.now, fresh.busiest);
    }
    let repaired = Candidate::of(repair.now.spreads.clone(), repair.now.busiest(), &kept);
    let best = Candidate::of(spreads_of(&problem, &fresh.paths), fresh.busiest, &kept).better(repaired);
    let (paths, moved) = deal(&problem, &best.spreads, &earlier);
    Ok(Again { placement: Placement { paths, bound: fresh.bound, busiest: best.busiest }, moved, lost, before: stays })
}

/// Returns the routes of the flows so far, without the only links of hosts. `None` for one that may not be taken any more.
fn earlier(paths: &CommodityPaths, before: &[Option<Vec<LinkId>>]) -> Vec<Option<Route>> {
    let problem = paths.problem;
    let mut earlier = vec![None; problem.demand.flows.len()];
    for (number, commodity) in problem.commodities.iter().enumerate() {
        for position in commodity.flows.iter().map(|flow| *flow as usize) {
            let Some(flow) = problem.demand.flows.get(position) else { continue };
            let Some(Some(links)) = before.get(position) else { continue };
            let mut links = links.as_slice();
            if let (Attachment::Leaf { up, .. }, Some((first, rest))) =
                (problem.doors[flow.source], links.split_first())
            {
                links = if *first == up { rest } else { links };
            }
            if let (Attachment::Leaf { down, .. }, Some((last, rest))) =
                (problem.doors[flow.destination], links.split_last())
            {
                links = if *last == down { rest } else { links };
            }
            if is_permitted(paths, number, links)
                && let Some(place) = earlier.get_mut(position)
            {
                *place = Some(links.to_vec());
            }
        }
    }
    earlier
}

/// Returns whether a commodity may take a route.
fn is_permitted(paths: &CommodityPaths, commodity: usize, route: &[LinkId]) -> bool {
    let to_exit = paths.to_exit(commodity);
    let (mut node, mut slack) = (paths.commodity(commodity).entry, paths.detour);
    for link in route {
        let Some(step) = paths.onward(to_exit, node, slack).find(|step| step.link == *link) else { return false };
        (node, slack) = (step.to, step.slack);
    }
    node == to_exit.exit
}

fn gathered(flows: &[u32], earlier: &[Option<Route>]) -> Spread {
    let mut spread = Spread::new();
    for route in flows.iter().filter_map(|flow| earlier.get(*flow as usize)).flatten() {
        add(&mut spread, route.clone(), 1);
    }
    spread
}

fn spreads_of(problem: &Problem, paths: &Paths) -> Vec<Spread> {
    let of = |flows: &[u32]| {
        let mut spread = Spread::new();
        for flow in flows {
            add(&mut spread, paths.route(*flow as usize).to_vec(), 1);
        }
        spread
    };
    problem.commodities.iter().map(|commodity| of(&commodity.flows)).collect()
}

fn count(spread: &Spread, route: &Route) -> u64 {
    spread.iter().find(|(other, _)| other == route).map_or(0, |(_, count)| *count)
}

/// Routes of all commodities, and how many flows take another one than before.
struct Candidate {
    spreads: Vec<Spread>,
    busiest: Ratio,
    moves: usize,
}

impl Candidate {
    fn of(spreads: Vec<Spread>, busiest: Ratio, kept: &[Spread]) -> Self {
        let moves = spreads
            .iter()
            .zip(kept)
            .flat_map(|(spread, kept)| spread.iter().map(|(route, flows)| flows.saturating_sub(count(kept, route))));
        let moves = usize::try_from(moves.sum::<u64>()).unwrap_or(usize::MAX);
        Self { spreads, busiest, moves }
    }

    fn better(self, other: Self) -> Self {
        if (other.busiest, other.moves) < (self.busiest, self.moves) { other } else { self }
    }
}

/// Gives every flow its earlier route where as many flows still take it, and to the others what is left.
fn deal(problem: &Problem, spreads: &[Spread], earlier: &[Option<Route>]) -> (Paths, Vec<usize>) {
    let mut paths = Paths::new(problem.demand.flows.len());
    let mut numbers: HashMap<Route, u32> = HashMap::new();
    let mut moved = Vec::new();
    for (commodity, spread) in problem.commodities.iter().zip(spreads) {
        let mut left = spread.clone();
        let mut others = Vec::new();
        let mut set = |flow: u32, route: &Route| {
            let number = match numbers.get(route) {
                Some(number) => *number,
                None => paths.add_route(route.clone()),
            };
            numbers.entry(route.clone()).or_insert(number);
            paths.set(flow as usize, number);
        };
        for flow in &commodity.flows {
            let route = earlier.get(*flow as usize).and_then(Option::as_ref);
            let place = route.and_then(|route| left.iter_mut().find(|(other, left)| other == route && *left > 0));
            match place {
                Some((route, left)) => {
                    *left -= 1;
                    set(*flow, route);
                }
                None => others.push(*flow),
            }
        }
        let rest = left.iter().flat_map(|(route, left)| (0..*left).map(move |_| route));
        for (flow, route) in others.into_iter().zip(rest) {
            set(flow, route);
            moved.push(flow as usize);
        }
    }
    moved.sort_unstable();
    (paths, moved)
}

/// A move of one flow from one route to another. A flow without a path comes from no route.
struct Move {
    position: usize,
    from: Option<Route>,
    to: Route,
}

struct Repair<'a, 'm, 'p> {
    now: Assignment<'m, 'p>,
    kept: &'a [Spread],
    limit: Ratio,
    carried: &'a Carried,
    /// For each link, the positions of the commodities that use it or have used it.
    users: PerLink<Vec<usize>>,
    /// Links that the present chain has relieved.
    locked: PerLink<bool>,
    locks: Vec<LinkId>,
    moves: Vec<Move>,
    tries: usize,
}

impl<'a, 'm, 'p> Repair<'a, 'm, 'p> {
    fn new(now: Assignment<'m, 'p>, kept: &'a [Spread], limit: Ratio, carried: &'a Carried) -> Self {
        let links = now.loads.len();
        let mut users = PerLink::new(links, Vec::new());
        for (position, spread) in now.spreads.iter().enumerate() {
            for link in spread.iter().flat_map(|(route, _)| route) {
                if users[*link].last() != Some(&position) {
                    users[*link].push(position);
                }
            }
        }
        Self {
            now,
            kept,
            limit,
            carried,
            users,
            locked: PerLink::new(links, false),
            locks: Vec::new(),
            moves: Vec::new(),
            tries: 0,
        }
    }

    fn run(&mut self) {
        self.place_lost();
        while let Some(link) = self.busiest_above() {
            let is_relieved = (0..DEPTH).any(|depth| {
                self.tries = TRIES;
                let is_relieved = self.make_room(link, depth);
                if !is_relieved {
                    self.undo(0, 0);
                }
                is_relieved
            });
            if !is_relieved {
                return;
            }
            // The moves that relieved this link are kept.
            self.moves.clear();
            self.undo(0, 0);
        }
    }

    /// Gives every flow without a path one, the largest flows first.
    fn place_lost(&mut self) {
        let missing = |position: usize| {
            let placed: u64 = self.now.spreads.get(position).into_iter().flatten().map(|(_, count)| count).sum();
            self.now.commodity(position).count() - placed
        };
        let mut lost: Vec<(usize, u64)> = (0..self.now.spreads.len())
            .map(|position| (position, missing(position)))
            .filter(|lost| lost.1 > 0)
            .collect();
        lost.sort_by_key(|(position, _)| std::cmp::Reverse(self.now.commodity(*position).demand));
        for (position, count) in lost {
            for _ in 0..count {
                let Some((_, to)) = self.around(position, None, None) else { break };
                self.apply(Move { position, from: None, to });
                self.moves.clear();
            }
        }
    }

    /// Returns whether a link is too busy.
    fn is_above(&self, link: LinkId) -> bool {
        self.now.is_used(link) && self.now.ratio(link) > self.limit
    }

    fn busiest_above(&self) -> Option<LinkId> {
        let above = self.now.part.links.iter().copied().filter(|link| self.is_above(*link));
        above.max_by_key(|link| self.now.ratio(*link))
    }

    /// Moves flows away from a link until it is no longer too busy, without making another one so.
    fn make_room(&mut self, link: LinkId, depth: usize) -> bool {
        if self.locked[link] {
            return false;
        }
        self.locked[link] = true;
        self.locks.push(link);
        while self.is_above(link) {
            if !self.move_one(link, depth) {
                return false;
            }
        }
        true
    }

    fn move_one(&mut self, link: LinkId, depth: usize) -> bool {
        for (fills, moved) in self.candidates(link) {
            if fills && (depth == 0 || self.tries == 0) {
                continue;
            }
            self.tries = self.tries.saturating_sub(1);
            let (moves, locks) = (self.moves.len(), self.locks.len());
            let route = moved.to.clone();
            self.apply(moved);
            let is_done =
                route.iter().all(|other| !self.is_above(*other) || self.make_room(*other, depth.saturating_sub(1)));
            if is_done {
                return true;
            }
            self.undo(moves, locks);
        }
        false
    }

    /// Returns the moves away from a link, the best first, each with whether it makes another link too busy.
    fn candidates(&mut self, link: LinkId) -> Vec<(bool, Move)> {
        let mut found = Vec::new();
        for position in self.users[link].clone() {
            let routes = self.now.spreads.get(position).into_iter().flatten();
            let using: Vec<(Route, u64)> = routes.filter(|(route, _)| route.contains(&link)).cloned().collect();
            for (from, flows) in using {
                let Some((fills, to)) = self.around(position, Some(&from), Some(link)) else { continue };
                let demand = self.now.commodity(position).demand;
                let kept = self.kept.get(position).map_or(0, |kept| count(kept, &from));
                let is_first_move = flows <= kept;
                // What stays above the limit once this flow is gone.
                let rest = self.excess(link).saturating_sub(demand);
                let relieved = from.iter().filter(|other| self.is_above(**other)).count();
                let key = (fills >= 1.0, is_first_move, rest, std::cmp::Reverse(relieved), demand);
                found.push((key, Move { position, from: Some(from), to }));
            }
        }
        found.sort_by_key(|(key, _)| *key);
        found.into_iter().take(BREADTH).map(|(key, moved)| (key.0, moved)).collect()
    }

    /// Returns by how much the load of a link is above the limit.
    fn excess(&self, link: LinkId) -> u64 {
        let Ratio { load, capacity } = self.now.ratio(link);
        let most = u128::from(self.limit.load) * u128::from(capacity) / u128::from(self.limit.capacity.max(1));
        load.saturating_sub(u64::try_from(most).unwrap_or(u64::MAX))
    }

    /// Returns, for one flow of a commodity, the route around a link that fills the fewest other links, and how many.
    fn around(&mut self, position: usize, from: Option<&Route>, link: Option<LinkId>) -> Option<(f64, Route)> {
        /// Costs of a link that has room: almost nothing, but above 0, so that the cheapest walk has no loop.
        const ROOM: f64 = 1e-7;
        /// What a link of another job costs more.
        const SHARED: f64 = 1e-4;
        let demand = self.now.commodity(position).demand;
        let from = from.map_or(&[][..], Vec::as_slice);
        for link in from {
            self.now.loads[*link] -= demand;
        }
        let Self { now, locked, carried, limit, .. } = self;
        let Assignment { paths, scout, loads, part, .. } = now;
        let price = |other: LinkId| {
            let capacity = paths.problem.fabric.link(other).capacity;
            let after = Ratio { load: loads[other] + demand, capacity };
            let shared = if carried.all[other] > 0 { SHARED } else { 0.0 };
            match (Some(other) == link, after > *limit, locked[other]) {
                (true, _, _) | (_, true, true) => f64::INFINITY,
                (_, true, false) => 1.0,
                (_, false, _) => ROOM * (1.0 + after.value() / limit.value().max(f64::MIN_POSITIVE)) + shared,
            }
        };
        let commodity = part.commodities.get(position).copied();
        let best = commodity.and_then(|commodity| scout.cheapest(commodity, &price));
        for link in from {
            now.loads[*link] += demand;
        }
        best
    }

    fn apply(&mut self, moved: Move) {
        self.shift(moved.position, moved.from.as_ref(), Some(&moved.to));
        for link in &moved.to {
            if !self.users[*link].contains(&moved.position) {
                self.users[*link].push(moved.position);
            }
        }
        self.moves.push(moved);
    }

    fn shift(&mut self, position: usize, from: Option<&Route>, to: Option<&Route>) {
        let demand = self.now.commodity(position).demand;
        for link in from.into_iter().flatten() {
            self.now.loads[*link] -= demand;
        }
        for link in to.into_iter().flatten() {
            self.now.loads[*link] += demand;
        }
        let Some(spread) = self.now.spreads.get_mut(position) else { return };
        if let Some((_, count)) = from.and_then(|from| spread.iter_mut().find(|(route, _)| route == from)) {
            *count -= 1;
        }
        spread.retain(|(_, count)| *count > 0);
        if let Some(to) = to {
            add(spread, to.clone(), 1);
        }
    }

    fn undo(&mut self, moves: usize, locks: usize) {
        for moved in self.moves.split_off(moves).into_iter().rev() {
            self.shift(moved.position, Some(&moved.to), moved.from.as_ref());
        }
        for link in self.locks.split_off(locks) {
            self.locked[link] = false;
        }
    }
}
