//! Paths, in the order (weight, hops, ids along the way): of equal ones always the same comes first.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use serde_json::Value;

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

/// A graph, ready to be searched.
pub struct Graph<'s> {
    store: &'s Store,
    /// By the id they leave: the id they reach, and the edge.
    next: BTreeMap<&'s str, BTreeMap<&'s str, &'s Document>>,
    algo: i64,
}

/// Partial paths looked at before a search for many paths gives up.
const EXPANSIONS: usize = 200_000;

impl<'s> Graph<'s> {
    /// `None`: no such graph. With an algorithm other than 0, only IGP nodes that carry a SID of it are visited.
    pub fn new(store: &'s Store, graph: &str, direction: Direction, algo: i64) -> Option<Self> {
        let mut next: BTreeMap<&str, BTreeMap<&str, &Document>> = BTreeMap::new();
        for edge in store.edges(graph)? {
            let (Some(from), Some(to)) = (text(edge, "_from"), text(edge, "_to")) else { continue };
            if direction != Direction::Inbound {
                next.entry(from).or_default().entry(to).or_insert(edge);
            }
            if direction != Direction::Outbound {
                next.entry(to).or_default().entry(from).or_insert(edge);
            }
        }
        Some(Self { store, next, algo })
    }

    fn visits(&self, id: &str) -> bool {
        if self.algo == 0 || !id.contains("igp_node") {
            return true;
        }
        let sids = self.store.vertex(id).and_then(|vertex| vertex.get("sids")).and_then(Value::as_array);
        sids.into_iter().flatten().any(|sid| crate::srv6::algo_of(sid) == Some(self.algo))
    }

    fn neighbors(&self, id: &str) -> impl Iterator<Item = (&'s str, &'s Document)> + '_ {
        let next = self.next.get(id).into_iter().flatten();
        next.map(|(to, edge)| (*to, *edge)).filter(|(to, _)| self.visits(to))
    }

    /// The best path.
    #[allow(clippy::float_cmp, reason = "the very sums that were made on the way back are made again")]
    pub fn shortest(&self, source: &str, destination: &str, weight: Weight) -> Option<Walk<'s>> {
        let here = self.store.vertex(source)?;
        self.store.vertex(destination)?;
        let distance = self.distances(destination, weight);
        let mut walk = Walk { vertices: vec![here], edges: Vec::new() };
        let mut at = source;
        while at != destination {
            let (cost, hops) = *distance.get(at)?;
            let on_the_way = |(to, edge): &(&'s str, &'s Document)| {
                distance.get(to).is_some_and(|(rest, left)| weigh(edge, weight) + rest == cost && left + 1 == hops)
            };
            // In the order of ids.
            let (to, edge) = self.neighbors(at).find(on_the_way)?;
            walk.vertices.push(self.store.vertex(to)?);
            walk.edges.push(edge);
            at = to;
        }
        Some(walk)
    }

    /// Cost and hops from every vertex to the destination, by (cost, hops).
    fn distances(&self, destination: &str, weight: Weight) -> HashMap<&'s str, (f64, usize)> {
        let mut back: HashMap<&str, Vec<(&'s str, &'s Document)>> = HashMap::new();
        for (from, ends) in &self.next {
            for (to, edge) in ends.iter().filter(|(to, _)| self.visits(to)) {
                back.entry(to).or_default().push((from, edge));
            }
        }
        let mut done: HashMap<&'s str, (f64, usize)> = HashMap::new();
        let Some(start) = self.store.vertex(destination).and_then(|vertex| text(vertex, "_id")) else { return done };
        let mut queue = BinaryHeap::from([Candidate { cost: 0.0, hops: 0, at: start }]);
        while let Some(Candidate { cost, hops, at }) = queue.pop() {
            if done.contains_key(at) {
                continue;
            }
            done.insert(at, (cost, hops));
            for (from, edge) in back.get(at).into_iter().flatten().filter(|(from, _)| !done.contains_key(from)) {
                queue.push(Candidate { cost: weigh(edge, weight) + cost, hops: hops + 1, at: from });
            }
        }
        done
    }

    /// The first `limit` paths without a loop, by (hops, ids along the way); `hops` keeps those of one length.
    pub fn by_hops(&self, source: &str, destination: &str, limit: usize, hops: Option<usize>) -> Vec<Walk<'s>> {
        let mut found = Vec::new();
        let (Some(start), Some(_)) = (self.store.vertex(source), self.store.vertex(destination)) else { return found };
        let Some(start) = text(start, "_id") else { return found };
        let distance = self.distances(destination, Weight::Hops);
        let Some(&(_, fewest)) = distance.get(start) else { return found };
        let mut queue = BinaryHeap::from([Partial { estimate: fewest, ids: vec![start] }]);
        for _ in 0..EXPANSIONS {
            let Some(Partial { estimate, ids }) = queue.pop() else { break };
            if found.len() >= limit || hops.is_some_and(|hops| estimate > hops) {
                break;
            }
            let Some(at) = ids.last().copied() else { break };
            if at == destination {
                if hops.is_none_or(|hops| hops == estimate) {
                    found.extend(self.walk(&ids));
                }
                continue;
            }
            for (to, _) in self.neighbors(at).filter(|(to, _)| !ids.contains(to)) {
                let Some((_, left)) = distance.get(to) else { continue };
                let ids: Vec<&str> = ids.iter().copied().chain([to]).collect();
                queue.push(Partial { estimate: ids.len() - 1 + left, ids });
            }
        }
        found
    }

    fn walk(&self, ids: &[&'s str]) -> Option<Walk<'s>> {
        let vertices = ids.iter().map(|id| self.store.vertex(id)).collect::<Option<_>>()?;
        let edges = ids.windows(2).map(|pair| match pair {
            [from, to] => self.next.get(from)?.get(to).copied(),
            _ => None,
        });
        Some(Walk { vertices, edges: edges.collect::<Option<_>>()? })
    }

    /// Every walk of these lengths that visits no vertex twice, by (hops, ids).
    pub fn within(&self, source: &str, depths: std::ops::RangeInclusive<usize>, limit: usize) -> Vec<Walk<'s>> {
        let mut found = Vec::new();
        let Some(start) = self.store.vertex(source).and_then(|vertex| text(vertex, "_id")) else { return found };
        let mut level = vec![vec![start]];
        for depth in 0..=*depths.end() {
            if depths.contains(&depth) {
                found.extend(level.iter().filter_map(|ids| self.walk(ids)).take(limit.saturating_sub(found.len())));
            }
            let step = |ids: &Vec<&'s str>| {
                let at = ids.last().copied().unwrap_or_default();
                let fresh: Vec<&str> = self.neighbors(at).map(|(to, _)| to).filter(|to| !ids.contains(to)).collect();
                fresh.into_iter().map(|to| [ids.as_slice(), &[to]].concat()).collect::<Vec<_>>()
            };
            level = level.iter().flat_map(step).take(EXPANSIONS).collect();
        }
        found
    }
}

fn weigh(edge: &Document, weight: Weight) -> f64 {
    match weight {
        Weight::Hops => 1.0,
        Weight::Attribute(name) => edge.get(name).and_then(Value::as_f64).unwrap_or(1.0),
    }
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
