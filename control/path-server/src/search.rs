//! Searches for paths. Paths are ordered by weight, hops and ids along the path, so that the result is always the same.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::ops::RangeInclusive;

use serde_json::Value;

use crate::srv6;
use crate::store::{Adjacency, Direction, Document, Link, Store};
use crate::work::{MOST_PATHS, Work};

/// The weight by which paths are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Number of edges.
    Hops,
    /// An attribute of edges. An edge without the attribute counts 1; a value of 0 counts 0.
    Attribute(&'static str),
}

/// One path through the graph.
#[derive(Clone, Debug)]
pub struct GraphPath<'s> {
    /// Vertices from source to destination.
    pub vertices: Vec<&'s Document>,
    /// Edges between the vertices.
    pub edges: Vec<&'s Document>,
}

impl GraphPath<'_> {
    /// Returns the number of edges.
    pub const fn hops(&self) -> usize {
        self.edges.len()
    }
}

/// Several paths, and whether the search was complete.
#[derive(Debug, Default)]
pub struct GraphPaths<'s> {
    pub found: Vec<GraphPath<'s>>,
    /// Whether the search was stopped before its end.
    pub is_cut: bool,
}

/// Maximum number of partial paths that a search for paths of one length visits.
const EXPANSIONS: usize = 200_000;

/// A graph prepared for searches.
pub struct Graph<'s> {
    store: &'s Store,
    /// Limit on the cost of searches.
    work: &'s Work,
    adjacency: &'s Adjacency,
    /// Edges in the order of the file.
    edges: &'s [Document],
    direction: Direction,
    /// Whether an edge is unusable, by its place; empty if all are usable.
    closed: Vec<bool>,
    /// Whether a vertex is excluded, by its number; empty if none is.
    shunned: Vec<bool>,
    algo: Option<i64>,
}

/// Start and end of a search.
enum Ends<'s> {
    /// Source and destination are the same vertex.
    Same(&'s Document),
    Apart(usize, usize),
}

impl<'s> Graph<'s> {
    /// Prepares a graph. With an algorithm other than 0, searches visit only those IGP nodes that have a SID of it.
    /// Returns `None` if there is no graph of that name.
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

    /// Excludes the edges for which `closed` is true, too.
    #[must_use]
    pub fn without(mut self, closed: impl Fn(&Document) -> bool) -> Self {
        self.closed = (0..).zip(self.edges).map(|(place, edge)| self.is_closed(place) || closed(edge)).collect();
        self
    }

    /// Takes the links of a vertex out of the work that is left. Returns `false` if the search has to end.
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

    /// Returns the usable links of a vertex, in the order of ids and of the file.
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

    /// Builds the path along these links.
    fn walk(&self, start: usize, links: &[Link]) -> Option<GraphPath<'s>> {
        let numbers = std::iter::once(start).chain(links.iter().map(|link| link.to));
        let vertices = numbers.map(|number| self.vertex(number)).collect::<Option<_>>()?;
        let edges = links.iter().map(|link| self.edges.get(link.edge)).collect::<Option<_>>()?;
        Some(GraphPath { vertices, edges })
    }

    /// Builds the path over these vertices, with the first edge of each step.
    fn walk_over(&self, vertices: &[usize]) -> Option<GraphPath<'s>> {
        let link = |pair: &[usize]| match pair {
            [at, next] => self.links(*at, self.direction).find(|link| link.to == *next),
            _ => None,
        };
        let links: Vec<Link> = vertices.windows(2).map(link).collect::<Option<_>>()?;
        self.walk(*vertices.first()?, &links)
    }

    /// Returns the best path.
    #[allow(clippy::float_cmp, reason = "the very sums that were made on the way back are made again")]
    pub fn shortest(&self, source: &str, destination: &str, weight: Weight) -> Option<GraphPath<'s>> {
        let (start, end) = match self.ends(source, destination)? {
            Ends::Same(vertex) => return Some(GraphPath { vertices: vec![vertex], edges: Vec::new() }),
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

    /// Returns cost and hops to `end` for `start` and for all vertices that are nearer to `end`, with lowest cost and
    /// then fewest hops. Dijkstra's algorithm runs from `end`.
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

    /// Returns the hops to `end` from all vertices, on paths that do not pass the vertices `passed_by`.
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

    /// Returns the first `limit` paths without a loop, by hops and ids along the path (Yen's algorithm), but at most
    /// [`MOST_PATHS`].
    pub fn by_hops(&self, source: &str, destination: &str, limit: usize) -> GraphPaths<'s> {
        let (start, end) = match self.ends(source, destination) {
            None => return GraphPaths::default(),
            Some(Ends::Same(vertex)) => {
                let alone = GraphPath { vertices: vec![vertex], edges: Vec::new() };
                return GraphPaths { found: std::iter::repeat_n(alone, limit.min(1)).collect(), is_cut: false };
            }
            Some(Ends::Apart(start, end)) => (start, end),
        };
        let (wanted, limit) = (limit, limit.min(MOST_PATHS));
        let mut found: Vec<Vec<usize>> = Vec::new();
        // The length comes first in the order.
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
                // Collects the next vertices of known paths with the same root.
                let known = found.iter().chain([&path]).filter(|known| known.starts_with(root));
                let taken: BTreeSet<usize> = known.filter_map(|known| known.get(turn).copied()).collect();
                candidates.extend(self.first_beyond(root, end, &taken).map(|path| (path.len(), path)));
            }
            // If the search had to end early, its candidate may not be the next path in the order.
            if self.work.is_spent() {
                is_cut = true;
                break;
            }
            found.push(path);
        }
        GraphPaths { found: found.iter().filter_map(|path| self.walk_over(path)).collect(), is_cut }
    }

    /// Returns the first path that begins with `root` and does not continue with a vertex in `taken`.
    fn first_beyond(&self, root: &[usize], end: usize, taken: &BTreeSet<usize>) -> Option<Vec<usize>> {
        let hops = self.hops(end, root);
        let left = |at: usize| hops.get(at).copied().flatten();
        let mut path = root.to_vec();
        let mut at = *root.last()?;
        let next = |at: usize| self.links(at, self.direction).map(|link| link.to).filter(|to| !root.contains(to));
        while at != end {
            let open = next(at).filter(|to| path.len() > root.len() || !taken.contains(to));
            // Takes the nearest vertex, and among equals the first.
            at = open.filter_map(|to| Some((left(to)?, to))).min()?.1;
            path.push(at);
        }
        Some(path)
    }

    /// Returns the first `limit` paths without a loop that have exactly `hops` hops, by ids along the path.
    pub fn of_hops(&self, source: &str, destination: &str, limit: usize, hops: usize) -> GraphPaths<'s> {
        let mut graph_paths = GraphPaths::default();
        let Some(Ends::Apart(start, end)) = self.ends(source, destination) else {
            let none = self.by_hops(source, destination, limit);
            return GraphPaths {
                found: none.found.into_iter().filter(|walk| walk.hops() == hops).collect(),
                is_cut: false,
            };
        };
        let (wanted, limit) = (limit, limit.min(MOST_PATHS));
        let distance = self.hops(end, &[]);
        let is_near =
            |at: usize, steps: usize| distance.get(at).copied().flatten().is_some_and(|left| left + steps <= hops);
        let mut open = vec![vec![start]];
        let mut expansions = 0;
        while let Some(path) = open.pop() {
            if graph_paths.found.len() >= limit {
                graph_paths.is_cut = limit < wanted;
                break;
            }
            expansions += 1;
            if expansions > EXPANSIONS || self.work.is_spent() {
                graph_paths.is_cut = true;
                break;
            }
            let Some(at) = path.last().copied() else { break };
            if at == end {
                if path.len() == hops + 1 {
                    graph_paths.found.extend(self.walk_over(&path));
                }
                continue;
            }
            let next: BTreeSet<usize> = self.links(at, self.direction).map(|link| link.to).collect();
            // The path that is pushed last is visited first.
            for to in next.into_iter().rev().filter(|to| !path.contains(to) && is_near(*to, path.len())) {
                open.push(path.iter().copied().chain([to]).collect());
            }
        }
        graph_paths
    }

    /// Returns all paths whose length is in `depths` and that visit no vertex twice, by hops and ids. Parallel edges
    /// result in paths of their own.
    pub fn within(&self, source: &str, depths: RangeInclusive<usize>, limit: usize) -> GraphPaths<'s> {
        let mut graph_paths = GraphPaths::default();
        let Some(start) = self.store.vertex(source) else { return graph_paths };
        let Some(number) = self.adjacency.number(source) else {
            let alone = GraphPath { vertices: vec![start], edges: Vec::new() };
            graph_paths.found.extend(depths.contains(&0).then_some(alone));
            return graph_paths;
        };
        let mut level: Vec<Vec<Link>> = vec![Vec::new()];
        for depth in 0..=*depths.end() {
            if level.is_empty() {
                break;
            }
            if self.work.is_spent() {
                graph_paths.is_cut = true;
                break;
            }
            graph_paths.is_cut |= level.len() > limit;
            level.truncate(limit);
            if depths.contains(&depth) {
                graph_paths.is_cut |= graph_paths.found.len() + level.len() > limit;
                let room = limit - graph_paths.found.len();
                graph_paths.found.extend(level.iter().take(room).filter_map(|links| self.walk(number, links)));
            }
            if depth < *depths.end() {
                level = level.iter().flat_map(|links| self.further(number, links)).take(limit + 1).collect();
            }
        }
        graph_paths
    }

    /// Extends a path by one step, in all possible ways.
    fn further(&self, start: usize, links: &[Link]) -> Vec<Vec<Link>> {
        let at = links.last().map_or(start, |link| link.to);
        // Each new link is compared with all links before it.
        if !self.work.spend((1 + self.adjacency.links(at, self.direction).len()) * (1 + links.len())) {
            return Vec::new();
        }
        let is_new = |link: &Link| link.to != start && links.iter().all(|before| before.to != link.to);
        let next = self.links(at, self.direction).filter(is_new);
        next.map(|link| links.iter().copied().chain([link]).collect()).collect()
    }
}

/// The next vertex of Dijkstra's algorithm, ordered by cost and then by hops.
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
