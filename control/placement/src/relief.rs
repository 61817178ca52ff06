//! Relieving the busiest links: a flow moves away; if that makes another link too busy, a flow moves away from there, and
//! so on, until there is room, or everything is put back. On two tiers these are Kempe's chains of edge colouring.

use crate::commodity::Route;
use crate::ratio::Ratio;
use crate::search::{Assignment, add};
use crate::table::{LinkId, PerLink};

/// Links looked at, at most: a second or two.
const WORK: u64 = 150_000_000;
/// Ways tried to relieve one link, before the chain is given up.
const TRIES: usize = 400;
/// Flows that move in one chain.
const DEPTH: usize = 48;
/// Alternatives looked at for each link of a chain.
const BREADTH: usize = 4;

/// A flow that moved.
struct Move {
    position: usize,
    from: Route,
    to: Route,
}

/// Moves flows until the bound is reached or no more relief is found.
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
            // What has been reached for one link stays.
            relief.moves.clear();
            relief.undo(0, 0);
        }
    }
}

struct Relief<'a, 'm, 'p> {
    assignment: &'a mut Assignment<'m, 'p>,
    /// Positions whose flows use a link, or used it once.
    users: PerLink<Vec<usize>>,
    /// Links that the present chain has relieved: they must not fill up again.
    locked: PerLink<bool>,
    locks: Vec<LinkId>,
    moves: Vec<Move>,
    tries: usize,
    /// Where the scout's work ends.
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

    /// What the busiest link has, as long as it should have less.
    fn limit(&self, bound: Ratio) -> Option<Ratio> {
        let busiest = self.assignment.busiest();
        (busiest > bound && self.assignment.scout.work < self.work).then_some(busiest)
    }

    fn is_busy(&self, link: LinkId, limit: Ratio) -> bool {
        self.assignment.ratio(link) >= limit
    }

    /// Moves flows away from a link until it is less busy than the limit, and nothing else is as busy because of them.
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

    /// Each commodity's best way around the link, with the number of links that it would fill. One that fills none is
    /// enough.
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

    /// The way around a link, for one flow that uses it, that fills the fewest others.
    fn around(&mut self, position: usize, from: &Route, link: LinkId, limit: Ratio) -> Option<(f64, Route)> {
        /// Links with room cost next to nothing, but something: the cheapest walk must not turn around.
        const ROOM: f64 = 1e-6;
        let demand = self.assignment.commodity(position).demand;
        let commodity = *self.assignment.part.commodities.get(position)?;
        let Self { assignment, locked, .. } = self;
        for link in from {
            assignment.loads[*link] -= demand;
        }
        let Assignment { maze, scout, loads, .. } = &mut **assignment;
        let price = |other: LinkId| {
            let capacity = maze.problem.fabric.link(other).capacity;
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

    /// One flow from a route to another.
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
