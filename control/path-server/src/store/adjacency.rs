//! Adjacent vertices by number. Vertices are numbered in the order of their ids, so that paths have the same order by
//! numbers as by ids.

use std::collections::{BTreeSet, HashMap};

use super::{Document, text};

/// The direction in which edges are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Edges lead from `_from` to `_to`.
    Outbound,
    /// Edges lead from `_to` to `_from`.
    Inbound,
    /// Both directions.
    Any,
}

impl Direction {
    /// Returns the opposite direction.
    pub const fn reversed(self) -> Self {
        match self {
            Self::Outbound => Self::Inbound,
            Self::Inbound => Self::Outbound,
            Self::Any => Self::Any,
        }
    }
}

/// One edge from the view of one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// Number of the vertex at the other end.
    pub to: usize,
    /// Place of the edge in the file.
    pub edge: usize,
}

/// Links of one vertex. Each list has the order of `to` and of the file.
#[derive(Clone, Debug, Default)]
struct Links {
    outbound: Vec<Link>,
    inbound: Vec<Link>,
    any: Vec<Link>,
}

/// The vertices at the ends of one graph's edges, and the edges between them.
#[derive(Clone, Debug, Default)]
pub struct Adjacency {
    ids: Vec<String>,
    numbers: HashMap<String, usize>,
    links: Vec<Links>,
}

impl Adjacency {
    pub fn new(edges: &[Document]) -> Self {
        let ends = edges.iter().flat_map(|edge| [text(edge, "_from"), text(edge, "_to")]).flatten();
        let ids: Vec<String> = ends.collect::<BTreeSet<_>>().into_iter().map(str::to_owned).collect();
        let numbers: HashMap<String, usize> = ids.iter().cloned().zip(0..).collect();
        let mut links = vec![Links::default(); ids.len()];
        for (edge, document) in edges.iter().enumerate() {
            let number = |end| text(document, end).and_then(|id| numbers.get(id)).copied();
            let (Some(from), Some(to)) = (number("_from"), number("_to")) else { continue };
            if let Some(links) = links.get_mut(from) {
                links.outbound.push(Link { to, edge });
                links.any.push(Link { to, edge });
            }
            if let Some(links) = links.get_mut(to) {
                links.inbound.push(Link { to: from, edge });
                links.any.push(Link { to: from, edge });
            }
        }
        for Links { outbound, inbound, any } in &mut links {
            outbound.sort_unstable();
            inbound.sort_unstable();
            any.sort_unstable();
        }
        Self { ids, numbers, links }
    }

    /// Returns the ids of all vertices in the order of their numbers.
    pub fn ids(&self) -> &[String] {
        &self.ids
    }

    /// Returns the number of a vertex, or `None` if it has no edge.
    pub fn number(&self, id: &str) -> Option<usize> {
        self.numbers.get(id).copied()
    }

    /// Returns the links of a vertex, in the order of `to` and of the file.
    pub fn links(&self, at: usize, direction: Direction) -> &[Link] {
        self.links.get(at).map_or(&[], |links| match direction {
            Direction::Outbound => &links.outbound,
            Direction::Inbound => &links.inbound,
            Direction::Any => &links.any,
        })
    }
}
