//! Paths, in the order (weight, hops, ids along the way): of equal ones always the same comes first.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::ops::RangeInclusive;

use serde_json::Value;

use crate::srv6;
use crate::store::{Document, Store, text};

/// Which way edges are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// As they point.
    Outbound,
    /// Against that.
    Inbound,
    /// Both.
    Any,
}

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

/// Edges from one vertex to the next: links side by side, or with `any` the two directions of one.
type Parallel<'s> = Vec<&'s Document>;

/// A graph, ready to be searched.
pub struct Graph<'s> {
    store: &'s Store,
    /// By the id they leave: the id they reach, and the edges.
    next: BTreeMap<&'s str, BTreeMap<&'s str, Parallel<'s>>>,
    algo: Option<i64>,
}

/// Partial paths looked at before a search for many paths gives up.
const EXPANSIONS: usize = 200_000;

impl<'s> Graph<'s> {
    /// Of these edges. With an algorithm other than 0, only IGP nodes that carry a SID of it are visited.
    pub fn new(
        store: &'s Store,
        edges: impl IntoIterator<Item = &'s Document>,
        direction: Direction,
        algo: Option<i64>,
    ) -> Self {
        let mut next: BTreeMap<&str, BTreeMap<&str, Parallel<'_>>> = BTreeMap::new();
        for edge in edges {
            let (Some(from), Some(to)) = (text(edge, "_from"), text(edge, "_to")) else { continue };
            if direction != Direction::Inbound {
                next.entry(from).or_default().entry(to).or_default().push(edge);
            }
            if direction != Direction::Outbound {
                next.entry(to).or_default().entry(from).or_default().push(edge);
            }
        }
        Self { store, next, algo }
    }

    fn visits(&self, id: &str) -> bool {
        if self.algo == Some(0) || !id.contains("igp_node") {
            return true;
        }
        let sids = self.store.vertex(id).and_then(|vertex| vertex.get("sids")).and_then(Value::as_array);
        sids.into_iter().flatten().any(|sid| self.algo.is_some() && srv6::algo_of(sid) == self.algo)
    }

    fn neighbors(&self, id: &str) -> impl Iterator<Item = (&'s str, &[&'s Document])> + '_ {
        let next = self.next.get(id).into_iter().flatten();
        next.map(|(to, edges)| (*to, edges.as_slice())).filter(|(to, _)| self.visits(to))
    }

    /// A vertex to start or to end at.
    fn end(&self, id: &str) -> Option<&'s str> {
        self.store.vertex(id).and_then(|vertex| text(vertex, "_id")).filter(|id| self.visits(id))
    }

    /// The best path.
    #[allow(clippy::float_cmp, reason = "the very sums that were made on the way back are made again")]
    pub fn shortest(&self, source: &str, destination: &str, weight: Weight) -> Option<Walk<'s>> {
        let (mut at, destination) = (self.end(source)?, self.end(destination)?);
        let distance = self.distances(destination, weight);
        let mut walk = Walk { vertices: vec![self.store.vertex(at)?], edges: Vec::new() };
        while at != destination {
            let (cost, hops) = *distance.get(at)?;
            let on_the_way = |(to, edges): (&'s str, &[&'s Document])| {
                let edge = lightest(edges, weight)?;
                let (rest, left) = distance.get(to)?;
                (weigh(edge, weight) + rest == cost && left + 1 == hops).then_some((to, edge))
            };
            // In the order of ids.
            let (to, edge) = self.neighbors(at).find_map(on_the_way)?;
            walk.vertices.push(self.store.vertex(to)?);
            walk.edges.push(edge);
            at = to;
        }
        Some(walk)
    }

    /// Cost and hops from every vertex to the destination, by (cost, hops).
    fn distances(&self, destination: &'s str, weight: Weight) -> HashMap<&'s str, (f64, usize)> {
        let mut back: HashMap<&str, Vec<(&'s str, f64)>> = HashMap::new();
        for (from, ends) in &self.next {
            for (to, edges) in ends.iter().filter(|(to, _)| self.visits(to)) {
                let Some(edge) = lightest(edges, weight) else { continue };
                back.entry(to).or_default().push((from, weigh(edge, weight)));
            }
        }
        let mut done: HashMap<&'s str, (f64, usize)> = HashMap::new();
        let mut queue = BinaryHeap::from([Candidate { cost: 0.0, hops: 0, at: destination }]);
        while let Some(Candidate { cost, hops, at }) = queue.pop() {
            if done.contains_key(at) {
                continue;
            }
            done.insert(at, (cost, hops));
            for (from, weight) in back.get(at).into_iter().flatten().filter(|(from, _)| !done.contains_key(from)) {
                queue.push(Candidate { cost: weight + cost, hops: hops + 1, at: from });
            }
        }
        done
    }

    /// The first `limit` paths without a loop, by (hops, ids along the way); `hops` keeps those of one length.
    pub fn by_hops(&self, source: &str, destination: &str, limit: usize, hops: Option<usize>) -> Walks<'s> {
        let mut walks = Walks::default();
        let (Some(start), Some(destination)) = (self.end(source), self.end(destination)) else { return walks };
        let distance = self.distances(destination, Weight::Hops);
        let Some(&(_, fewest)) = distance.get(start) else { return walks };
        let mut queue = BinaryHeap::from([Partial { estimate: fewest, ids: vec![start] }]);
        let mut expansions = 0;
        while let Some(Partial { estimate, ids }) = queue.pop() {
            if walks.found.len() >= limit || hops.is_some_and(|hops| estimate > hops) {
                break;
            }
            expansions += 1;
            if expansions > EXPANSIONS {
                walks.is_cut = true;
                break;
            }
            let Some(at) = ids.last().copied() else { break };
            if at == destination {
                if hops.is_none_or(|hops| hops == estimate) {
                    walks.found.extend(self.walk(&ids));
                }
                continue;
            }
            for (to, _) in self.neighbors(at).filter(|(to, _)| !ids.contains(to)) {
                let Some((_, left)) = distance.get(to) else { continue };
                let ids: Vec<&str> = ids.iter().copied().chain([to]).collect();
                queue.push(Partial { estimate: ids.len() - 1 + left, ids });
            }
        }
        walks
    }

    /// Along these ids, by the first edge of each step.
    fn walk(&self, ids: &[&'s str]) -> Option<Walk<'s>> {
        let vertices = ids.iter().map(|id| self.store.vertex(id)).collect::<Option<_>>()?;
        let edges = ids.windows(2).map(|pair| match pair {
            [from, to] => self.next.get(from)?.get(to)?.first().copied(),
            _ => None,
        });
        Some(Walk { vertices, edges: edges.collect::<Option<_>>()? })
    }

    /// Every walk of these lengths that visits no vertex twice, by every edge, by (hops, ids).
    pub fn within(&self, source: &str, depths: RangeInclusive<usize>, limit: usize) -> Walks<'s> {
        let mut walks = Walks::default();
        let Some(start) = self.store.vertex(source) else { return walks };
        let mut level = vec![Walk { vertices: vec![start], edges: Vec::new() }];
        for depth in 0..=*depths.end() {
            if level.is_empty() {
                break;
            }
            walks.is_cut |= level.len() > limit;
            level.truncate(limit);
            if depths.contains(&depth) {
                walks.is_cut |= walks.found.len() + level.len() > limit;
                walks.found.extend(level.iter().take(limit - walks.found.len()).cloned());
            }
            if depth < *depths.end() {
                level = level.iter().flat_map(|walk| self.further(walk)).take(limit + 1).collect();
            }
        }
        walks
    }

    /// A walk and one more step, in every way there is.
    fn further(&self, walk: &Walk<'s>) -> Vec<Walk<'s>> {
        let at = walk.vertices.last().and_then(|vertex| text(vertex, "_id")).unwrap_or_default();
        let is_new = |id: &str| walk.vertices.iter().all(|vertex| text(vertex, "_id") != Some(id));
        let mut longer = Vec::new();
        for (to, edges) in self.neighbors(at).filter(|(to, _)| is_new(to)) {
            let Some(vertex) = self.store.vertex(to) else { continue };
            for edge in edges {
                let mut walk = walk.clone();
                walk.vertices.push(vertex);
                walk.edges.push(edge);
                longer.push(walk);
            }
        }
        longer
    }
}

fn weigh(edge: &Document, weight: Weight) -> f64 {
    match weight {
        Weight::Hops => 1.0,
        Weight::Attribute(name) => edge.get(name).and_then(Value::as_f64).unwrap_or(1.0),
    }
}

/// The first of equals.
fn lightest<'s>(edges: &[&'s Document], weight: Weight) -> Option<&'s Document> {
    edges.iter().copied().min_by(|a, b| weigh(a, weight).total_cmp(&weigh(b, weight)))
}

/// What Dijkstra's algorithm looks at next: the cheapest, then the nearest.
#[derive(PartialEq)]
struct Candidate<'s> {
    cost: f64,
    hops: usize,
    at: &'s str,
}

impl Eq for Candidate<'_> {}

impl Ord for Candidate<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.cost.total_cmp(&self.cost).then_with(|| other.hops.cmp(&self.hops)).then_with(|| other.at.cmp(self.at))
    }
}

impl PartialOrd for Candidate<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The beginning of a path, and how long it will be at least.
#[derive(PartialEq, Eq)]
struct Partial<'s> {
    estimate: usize,
    ids: Vec<&'s str>,
}

impl Ord for Partial<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.estimate.cmp(&self.estimate).then_with(|| other.ids.cmp(&self.ids))
    }
}

impl PartialOrd for Partial<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
