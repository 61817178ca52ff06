//! Paths, in the order (weight, hops, ids along the way): of equal ones always the same comes first.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::ops::RangeInclusive;

use serde_json::Value;

use crate::srv6;
use crate::store::{Adjacency, Direction, Document, Link, Store};
use crate::work::{MOST_PATHS, Work};

/// What a path is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Number of edges.
    Hops,
    /// An attribute; an edge without it counts 1, one with 0 counts 0.
    Attribute(&'static str),
}

/// One way through the graph.
#[derive(Clone, Debug)]
pub struct Walk<'s> {
    /// From source to destination.
    pub vertices: Vec<&'s Document>,
    /// Between them.
    pub edges: Vec<&'s Document>,
}

impl Walk<'_> {
    /// Number of edges.
    pub const fn hops(&self) -> usize {
        self.edges.len()
    }
}

/// Several ways, and whether there are more that were not looked for.
#[derive(Debug, Default)]
pub struct Walks<'s> {
    pub found: Vec<Walk<'s>>,
    /// The search gave up before its end.
    pub is_cut: bool,
}

/// Partial paths that a search for paths of one length looks at before it gives up.
const EXPANSIONS: usize = 200_000;

/// A graph, ready to be searched.
pub struct Graph<'s> {
    store: &'s Store,
    /// What the search may cost.
    work: &'s Work,
    adjacency: &'s Adjacency,
    /// In the order of the file.
    edges: &'s [Document],
    direction: Direction,
    /// Edges that cannot be used, by place; empty: there are none.
    closed: Vec<bool>,
    /// Vertices that are not visited, by number; empty: there are none.
    shunned: Vec<bool>,
    algo: Option<i64>,
}

/// Where a search starts and ends.
enum Ends<'s> {
    /// At the same vertex.
    Same(&'s Document),
    Apart(usize, usize),
}

impl<'s> Graph<'s> {
    /// With an algorithm other than 0, only IGP nodes that carry a SID of it are visited. `None`: no graph is called so.
    pub fn new(store: &'s Store, work: &'s Work, name: &str, direction: Direction, algo: Option<i64>) -> Option<Self> {
        let (edges, adjacency) = store.searchable(name)?;
        let mut graph =
            Self { store, work, adjacency, edges, direction, closed: Vec::new(), shunned: Vec::new(), algo };
        if store.down().next().is_some() {
            graph.closed = edges.iter().map(|edge| !store.is_up(edge)).collect();
        }
        if algo != Some(0) {
            graph.shunned = adjacency.ids().iter().map(|id| !graph.takes_part(id)).collect();
        }
        Some(graph)
    }

    /// Without some of its edges.
    #[must_use]
    pub fn without(mut self, closed: impl Fn(&Document) -> bool) -> Self {
        self.closed = (0..).zip(self.edges).map(|(place, edge)| self.is_closed(place) || closed(edge)).collect();
        self
    }

    /// Takes the links of a vertex off what the search may cost. False: it has to end.
    fn spend_on(&self, at: usize) -> bool {
        self.work.spend(1 + self.adjacency.links(at, self.direction).len())
    }

    fn is_closed(&self, edge: usize) -> bool {
        self.closed.get(edge).copied().unwrap_or(false)
    }

    fn takes_part(&self, id: &str) -> bool {
        if self.algo == Some(0) || !id.contains("igp_node") {
            return true;
        }
        let sids = self.store.vertex(id).and_then(|vertex| vertex.get("sids")).and_then(Value::as_array);
        sids.into_iter().flatten().any(|sid| self.algo.is_some() && srv6::algo_of(sid) == self.algo)
    }

    /// What can be followed from a vertex, in the order of ids and of the file.
    fn links(&self, at: usize, direction: Direction) -> impl Iterator<Item = Link> {
        let links = self.adjacency.links(at, direction).iter().copied();
        links.filter(|link| !self.is_closed(link.edge) && !self.shunned.get(link.to).copied().unwrap_or(false))
    }

    fn weigh(&self, edge: usize, weight: Weight) -> f64 {
        match weight {
            Weight::Hops => 1.0,
            Weight::Attribute(name) => self.edges.get(edge).and_then(|edge| edge.get(name)?.as_f64()).unwrap_or(1.0),
        }
    }

    fn ends(&self, source: &str, destination: &str) -> Option<Ends<'s>> {
        let there = |id: &str| self.store.vertex(id).filter(|_| self.takes_part(id));
        let (from, _) = (there(source)?, there(destination)?);
        if source == destination {
            return Some(Ends::Same(from));
        }
        Some(Ends::Apart(self.adjacency.number(source)?, self.adjacency.number(destination)?))
    }

    fn vertex(&self, number: usize) -> Option<&'s Document> {
        self.adjacency.ids().get(number).and_then(|id| self.store.vertex(id))
    }

    /// Along these links.
    fn walk(&self, start: usize, links: &[Link]) -> Option<Walk<'s>> {
        let numbers = std::iter::once(start).chain(links.iter().map(|link| link.to));
        let vertices = numbers.map(|number| self.vertex(number)).collect::<Option<_>>()?;
        let edges = links.iter().map(|link| self.edges.get(link.edge)).collect::<Option<_>>()?;
        Some(Walk { vertices, edges })
    }

    /// Over these vertices, by the first edge of each step.
    fn walk_over(&self, vertices: &[usize]) -> Option<Walk<'s>> {
        let link = |pair: &[usize]| match pair {
            [at, next] => self.links(*at, self.direction).find(|link| link.to == *next),
            _ => None,
        };
        let links: Vec<Link> = vertices.windows(2).map(link).collect::<Option<_>>()?;
        self.walk(*vertices.first()?, &links)
    }

    /// The best path.
    #[allow(clippy::float_cmp, reason = "the very sums that were made on the way back are made again")]
    pub fn shortest(&self, source: &str, destination: &str, weight: Weight) -> Option<Walk<'s>> {
        let (start, end) = match self.ends(source, destination)? {
            Ends::Same(vertex) => return Some(Walk { vertices: vec![vertex], edges: Vec::new() }),
            Ends::Apart(start, end) => (start, end),
        };
        let distances = self.distances(start, end, weight);
        let distance = |at: usize| distances.get(at).copied().flatten();
        let (mut at, mut links) = (start, Vec::new());
        while at != end {
            let (cost, hops) = distance(at)?;
            let is_on_the_way = |link: &Link| {
                let left = distance(link.to);
                left.is_some_and(|(rest, left)| self.weigh(link.edge, weight) + rest == cost && left + 1 == hops)
            };
            let link = self.links(at, self.direction).find(is_on_the_way)?;
            links.push(link);
            at = link.to;
        }
        self.walk(start, &links)
    }

    /// Cost and hops to `end`, by (cost, hops), of `start` and of every vertex that is nearer: Dijkstra's algorithm, from
    /// the end.
    fn distances(&self, start: usize, end: usize, weight: Weight) -> Vec<Option<(f64, usize)>> {
        let mut done = vec![None; self.adjacency.ids().len()];
        let mut queue = BinaryHeap::from([Reverse(Candidate { cost: 0.0, hops: 0, at: end })]);
        while let Some(Reverse(Candidate { cost, hops, at })) = queue.pop() {
            match done.get_mut(at) {
                Some(distance @ None) => *distance = Some((cost, hops)),
                _ => continue,
            }
            if at == start {
                break;
            }
            for link in self.links(at, self.direction.reversed()) {
                if done.get(link.to) == Some(&None) {
                    let cost = self.weigh(link.edge, weight) + cost;
                    queue.push(Reverse(Candidate { cost, hops: hops + 1, at: link.to }));
                }
            }
        }
        done
    }

    /// Hops to `end` from everywhere, without passing these vertices.
    fn hops(&self, end: usize, passed_by: &[usize]) -> Vec<Option<usize>> {
        let mut done = vec![None; self.adjacency.ids().len()];
        let mut queue = VecDeque::from([(end, 0)]);
        while let Some((at, hops)) = queue.pop_front() {
            match done.get_mut(at) {
                Some(distance @ None) => *distance = Some(hops),
                _ => continue,
            }
            if !self.spend_on(at) {
                break;
            }
            let further = self.links(at, self.direction.reversed()).map(|link| link.to);
            queue.extend(further.filter(|to| !passed_by.contains(to)).map(|to| (to, hops + 1)));
        }
        done
    }

    /// The first `limit` paths without a loop, by (hops, ids along the way): Yen's algorithm. Never more than
    /// [`MOST_PATHS`].
    pub fn by_hops(&self, source: &str, destination: &str, limit: usize) -> Walks<'s> {
        let (start, end) = match self.ends(source, destination) {
            None => return Walks::default(),
            Some(Ends::Same(vertex)) => {
                let alone = Walk { vertices: vec![vertex], edges: Vec::new() };
                return Walks { found: std::iter::repeat_n(alone, limit.min(1)).collect(), is_cut: false };
            }
            Some(Ends::Apart(start, end)) => (start, end),
        };
        let (wanted, limit) = (limit, limit.min(MOST_PATHS));
        let mut found: Vec<Vec<usize>> = Vec::new();
        // Length first.
        let mut candidates: BTreeSet<(usize, Vec<usize>)> = BTreeSet::new();
        candidates.extend(self.first_beyond(&[start], end, &BTreeSet::new()).map(|path| (path.len(), path)));
        let mut is_cut = false;
        while let Some((_, path)) = candidates.pop_first() {
            if found.len() >= limit {
                is_cut = limit < wanted;
                break;
            }
            for turn in 1..path.len() {
                let Some(root) = path.get(..turn) else { break };
                // Where the paths that are known go on from here.
                let known = found.iter().chain([&path]).filter(|known| known.starts_with(root));
                let taken: BTreeSet<usize> = known.filter_map(|known| known.get(turn).copied()).collect();
                candidates.extend(self.first_beyond(root, end, &taken).map(|path| (path.len(), path)));
            }
            // What a search that had to end has found may not be the next one.
            if self.work.is_spent() {
                is_cut = true;
                break;
            }
            found.push(path);
        }
        Walks { found: found.iter().filter_map(|path| self.walk_over(path)).collect(), is_cut }
    }

    /// The first path that begins with `root` and does not go on to one of `taken`.
    fn first_beyond(&self, root: &[usize], end: usize, taken: &BTreeSet<usize>) -> Option<Vec<usize>> {
        let hops = self.hops(end, root);
        let left = |at: usize| hops.get(at).copied().flatten();
        let mut path = root.to_vec();
        let mut at = *root.last()?;
        let next = |at: usize| self.links(at, self.direction).map(|link| link.to).filter(|to| !root.contains(to));
        while at != end {
            let open = next(at).filter(|to| path.len() > root.len() || !taken.contains(to));
            // The nearest, of equals the first.
            at = open.filter_map(|to| Some((left(to)?, to))).min()?.1;
            path.push(at);
        }
        Some(path)
    }

    /// The first `limit` paths without a loop of that many hops, by ids along the way.
    pub fn of_hops(&self, source: &str, destination: &str, limit: usize, hops: usize) -> Walks<'s> {
        let mut walks = Walks::default();
        let Some(Ends::Apart(start, end)) = self.ends(source, destination) else {
            let none = self.by_hops(source, destination, limit);
            return Walks { found: none.found.into_iter().filter(|walk| walk.hops() == hops).collect(), is_cut: false };
        };
        let (wanted, limit) = (limit, limit.min(MOST_PATHS));
        let distance = self.hops(end, &[]);
        let is_near =
            |at: usize, steps: usize| distance.get(at).copied().flatten().is_some_and(|left| left + steps <= hops);
        let mut open = vec![vec![start]];
        let mut expansions = 0;
        while let Some(path) = open.pop() {
            if walks.found.len() >= limit {
                walks.is_cut = limit < wanted;
                break;
            }
            expansions += 1;
            if expansions > EXPANSIONS || self.work.is_spent() {
                walks.is_cut = true;
                break;
            }
            let Some(at) = path.last().copied() else { break };
            if at == end {
                if path.len() == hops + 1 {
                    walks.found.extend(self.walk_over(&path));
                }
                continue;
            }
            let next: BTreeSet<usize> = self.links(at, self.direction).map(|link| link.to).collect();
            // The last one in is the first one out.
            for to in next.into_iter().rev().filter(|to| !path.contains(to) && is_near(*to, path.len())) {
                open.push(path.iter().copied().chain([to]).collect());
            }
        }
        walks
    }

    /// Every walk of these lengths that visits no vertex twice, by every edge, by (hops, ids).
    pub fn within(&self, source: &str, depths: RangeInclusive<usize>, limit: usize) -> Walks<'s> {
        let mut walks = Walks::default();
        let Some(start) = self.store.vertex(source) else { return walks };
        let Some(number) = self.adjacency.number(source) else {
            let alone = Walk { vertices: vec![start], edges: Vec::new() };
            walks.found.extend(depths.contains(&0).then_some(alone));
            return walks;
        };
        let mut level: Vec<Vec<Link>> = vec![Vec::new()];
        for depth in 0..=*depths.end() {
            if level.is_empty() {
                break;
            }
            if self.work.is_spent() {
                walks.is_cut = true;
                break;
            }
            walks.is_cut |= level.len() > limit;
            level.truncate(limit);
            if depths.contains(&depth) {
                walks.is_cut |= walks.found.len() + level.len() > limit;
                let room = limit - walks.found.len();
                walks.found.extend(level.iter().take(room).filter_map(|links| self.walk(number, links)));
            }
            if depth < *depths.end() {
                level = level.iter().flat_map(|links| self.further(number, links)).take(limit + 1).collect();
            }
        }
        walks
    }

    /// A walk and one more step, in every way there is.
    fn further(&self, start: usize, links: &[Link]) -> Vec<Vec<Link>> {
        let at = links.last().map_or(start, |link| link.to);
        // Each link is compared with all before it.
        if !self.work.spend((1 + self.adjacency.links(at, self.direction).len()) * (1 + links.len())) {
            return Vec::new();
        }
        let is_new = |link: &Link| link.to != start && links.iter().all(|before| before.to != link.to);
        let next = self.links(at, self.direction).filter(is_new);
        next.map(|link| links.iter().copied().chain([link]).collect()).collect()
    }
}

/// What Dijkstra's algorithm looks at next: the cheapest, then the nearest.
#[derive(PartialEq)]
struct Candidate {
    cost: f64,
    hops: usize,
    at: usize,
}

impl Eq for Candidate {}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_cost = self.cost.total_cmp(&other.cost);
        by_cost.then_with(|| self.hops.cmp(&other.hops)).then_with(|| self.at.cmp(&other.at))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
