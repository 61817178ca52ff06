//! Relieves the busiest links: a flow is moved away from a link; if that makes another link too busy, a flow is moved
//! away from there, and so on, until there is room, or all moves of this chain are undone. On two tiers these are the
//! Kempe chains of edge colouring.

use crate::commodity::Route;
use crate::ratio::Ratio;
use crate::search::{Assignment, add};
use crate::table::{LinkId, PerLink};

/// Maximum number of links visited: one or two seconds of work.
const WORK: u64 = 150_000_000;
/// Maximum number of moves tried to relieve one link before its chain is abandoned.
const TRIES: usize = 400;
/// Longest chain: how many links one after the other may be relieved.
const DEPTH: usize = 48;
/// Maximum number of alternatives tried for each link of a chain.
const BREADTH: usize = 4;

/// A move of one flow from one route to another.
struct Move {
    position: usize,
    from: Route,
    to: Route,
}

/// Moves flows until the bound is reached or no further relief is found.
pub(crate) fn relieve(assignment: &mut Assignment, bound: Ratio) {
    let mut relief = Relief::new(assignment);
    while let Some(limit) = relief.limit(bound) {
        let links = relief.assignment.part.links.iter().copied();
        let busy: Vec<LinkId> = links.filter(|link| relief.is_busy(*link, limit)).collect();
        for link in busy {
            if relief.is_busy(link, limit) {
                relief.tries = TRIES;
                if !relief.make_room(link, limit, DEPTH) {
                    relief.undo(0, 0);
                    return;
                }
            }
            // The moves that relieved this link are kept.
            relief.moves.clear();
            relief.undo(0, 0);
        }
    }
}

struct Relief<'a, 'm, 'p> {
    assignment: &'a mut Assignment<'m, 'p>,
    /// For each link, the positions of the commodities that use it or have used it.
    users: PerLink<Vec<usize>>,
    /// Links that the present chain has relieved; they must not fill up again.
    locked: PerLink<bool>,
    locks: Vec<LinkId>,
    moves: Vec<Move>,
    tries: usize,
    /// Value of the scout's work counter at which to stop.
    work: u64,
}

impl<'a, 'm, 'p> Relief<'a, 'm, 'p> {
    fn new(assignment: &'a mut Assignment<'m, 'p>) -> Self {
        let links = assignment.loads.len();
        let mut users = PerLink::new(links, Vec::new());
        for (position, spread) in assignment.spreads.iter().enumerate() {
            for link in spread.iter().flat_map(|(route, _)| route) {
                if users[*link].last() != Some(&position) {
                    users[*link].push(position);
                }
            }
        }
        let work = assignment.scout.work + WORK;
        let locked = PerLink::new(links, false);
        Self { assignment, users, locked, locks: Vec::new(), moves: Vec::new(), tries: 0, work }
    }

    /// Returns the ratio of the busiest link, or `None` if the bound is reached or the work is used up.
    fn limit(&self, bound: Ratio) -> Option<Ratio> {
        let busiest = self.assignment.busiest();
        (busiest > bound && self.assignment.scout.work < self.work).then_some(busiest)
    }

    fn is_busy(&self, link: LinkId, limit: Ratio) -> bool {
        self.assignment.is_used(link) && self.assignment.ratio(link) >= limit
    }

    /// Moves flows away from a link until its ratio is below the limit, without raising another link to the limit.
    fn make_room(&mut self, link: LinkId, limit: Ratio, depth: usize) -> bool {
        if self.locked[link] {
            return false;
        }
        self.locked[link] = true;
        self.locks.push(link);
        while self.is_busy(link, limit) {
            if !self.move_one(link, limit, depth) {
                return false;
            }
        }
        true
    }

    fn move_one(&mut self, link: LinkId, limit: Ratio, depth: usize) -> bool {
        let mut candidates = self.candidates(link, limit);
        candidates.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        for (fills, moved) in candidates.into_iter().take(BREADTH) {
            if fills >= 1.0 && (depth == 0 || self.tries == 0) {
                return false;
            }
            self.tries = self.tries.saturating_sub(1);
            let (moves, locks) = (self.moves.len(), self.locks.len());
            let route = moved.to.clone();
            self.apply(&moved);
            self.moves.push(moved);
            let depth = depth.saturating_sub(1);
            if route.into_iter().all(|link| !self.is_busy(link, limit) || self.make_room(link, limit, depth)) {
                return true;
            }
            self.undo(moves, locks);
        }
        false
    }

    /// Returns, for each commodity that uses the link, its best route around it, with the number of links that the
    /// route would fill. A route that fills none ends the search.
    fn candidates(&mut self, link: LinkId, limit: Ratio) -> Vec<(f64, Move)> {
        let mut found = Vec::new();
        for position in self.users[link].clone() {
            let routes = self.assignment.spreads.get(position).into_iter().flatten();
            let using = routes.filter(|(route, _)| route.contains(&link)).map(|(route, _)| route.clone());
            for from in using.collect::<Vec<_>>() {
                let Some((fills, to)) = self.around(position, &from, link, limit) else { continue };
                found.push((fills, Move { position, from, to }));
                if fills < 1.0 {
                    return found;
                }
            }
        }
        found
    }

    /// Returns, for one flow that uses the link, the route around it that fills the fewest other links.
    fn around(&mut self, position: usize, from: &Route, link: LinkId, limit: Ratio) -> Option<(f64, Route)> {
        /// Cost of a link that has room: almost nothing, but above 0, so that the cheapest walk has no loop.
        const ROOM: f64 = 1e-6;
        let demand = self.assignment.commodity(position).demand;
        let commodity = *self.assignment.part.commodities.get(position)?;
        let Self { assignment, locked, .. } = self;
        for link in from {
            assignment.loads[*link] -= demand;
        }
        let Assignment { paths, scout, loads, .. } = &mut **assignment;
        let price = |other: LinkId| {
            let capacity = paths.problem.fabric.link(other).capacity;
            let fills = Ratio { load: loads[other] + demand, capacity } >= limit;
            match (other == link, fills, locked[other]) {
                (true, _, _) | (_, true, true) => f64::INFINITY,
                (_, true, false) => 1.0,
                (_, false, _) => ROOM,
            }
        };
        let best = scout.cheapest(commodity, &price);
        for link in from {
            assignment.loads[*link] += demand;
        }
        best
    }

    fn apply(&mut self, moved: &Move) {
        self.shift(moved.position, &moved.from, &moved.to);
        for link in &moved.to {
            if !self.users[*link].contains(&moved.position) {
                self.users[*link].push(moved.position);
            }
        }
    }

    /// Moves one flow from one route to another.
    fn shift(&mut self, position: usize, from: &Route, to: &Route) {
        let demand = self.assignment.commodity(position).demand;
        for link in from {
            self.assignment.loads[*link] -= demand;
        }
        for link in to {
            self.assignment.loads[*link] += demand;
        }
        if let Some(spread) = self.assignment.spreads.get_mut(position) {
            if let Some((_, count)) = spread.iter_mut().find(|(route, _)| route == from) {
                *count -= 1;
            }
            spread.retain(|(_, count)| *count > 0);
            add(spread, to.clone(), 1);
        }
    }

    fn undo(&mut self, moves: usize, locks: usize) {
        for moved in self.moves.split_off(moves).into_iter().rev() {
            self.shift(moved.position, &moved.to, &moved.from);
        }
        for link in self.locks.split_off(locks) {
            self.locked[link] = false;
        }
    }
}
