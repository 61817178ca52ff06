//! Answers of the path routes: whichever shape, a list of walks.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::PathKind;
use crate::bounded::{self, Bounded};
use crate::document::Vertex;
use crate::failure::Failure;
use crate::snapshot::Cause;
use crate::text::shown;

/// One path of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Walk {
    /// From the source to the destination.
    pub vertices: Vec<Vertex>,
    /// The server's own carrier, for comparison.
    pub text: Option<String>,
}

impl Walk {
    /// Ids in order.
    pub fn ids(&self) -> Vec<String> {
        self.vertices.iter().map(|vertex| vertex.id.clone()).collect()
    }

    /// Number of links.
    pub fn hops(&self) -> usize {
        self.vertices.len().saturating_sub(1)
    }
}

/// What a path route said.
#[derive(Clone, Debug, PartialEq)]
pub struct Paths {
    /// Never empty.
    pub walks: Vec<Walk>,
    /// As many as were asked for: there may be more.
    pub cut: bool,
    /// Number of paths that were left out because they have more hops than the shortest one.
    pub longer: usize,
    /// Why the allocation is not in the controller's books, or not on every edge. The path is good all the same.
    pub unbooked: Option<String>,
}

/// Paths of one answer, and vertices of one path.
const MAX_PATHS: usize = 128;
const MAX_STEPS: usize = 256;

#[derive(Deserialize)]
struct Answer<'a> {
    found: bool,
    message: Option<String>,
    #[serde(borrow)]
    path: Option<Steps<'a>>,
    #[serde(borrow)]
    paths: Option<Bounded<OnePath<'a>, MAX_PATHS>>,
    #[serde(borrow)]
    shortest_path: Option<OnePath<'a>>,
    #[serde(borrow)]
    same_hopcount_paths: Option<Bounded<OnePath<'a>, MAX_PATHS>>,
    destination_info: Option<Info>,
    srv6_data: Option<Srv6Data>,
    load_data: Option<LoadData>,
}

type Steps<'a> = Bounded<Step<'a>, MAX_STEPS>;

#[derive(Deserialize)]
struct OnePath<'a> {
    #[serde(borrow)]
    path: Steps<'a>,
    srv6_data: Option<Srv6Data>,
}

#[derive(Deserialize)]
struct Step<'a> {
    #[serde(borrow)]
    vertex: &'a RawValue,
}

#[derive(Deserialize)]
struct Info {
    #[serde(rename = "_id")]
    id: Option<String>,
}

#[derive(Deserialize)]
struct Srv6Data {
    srv6_usid: Option<String>,
}

#[derive(Deserialize)]
struct LoadData {
    error: Option<String>,
}

/// An answer of a path route, taken apart and not yet judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// As it came: also those with more hops than needed. The error: why a walk is none.
    walks: Result<Vec<Walk>, &'static str>,
    found: bool,
    message: Option<String>,
    destination: Option<String>,
    unbooked: Option<String>,
}

impl Said {
    /// Parses an answer.
    ///
    /// # Errors
    /// It has another shape, or more paths or vertices than an answer may have.
    pub fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        let answer: Answer<'_> = serde_json::from_slice(bytes)?;
        let found = match (answer.path, answer.paths, answer.shortest_path) {
            (Some(path), _, _) => vec![OnePath { path, srv6_data: answer.srv6_data }],
            (_, Some(paths), _) => paths.0,
            (_, _, Some(shortest)) => {
                answer.same_hopcount_paths.map(|same| same.0).filter(|same| !same.is_empty()).unwrap_or(vec![shortest])
            }
            _ => Vec::new(),
        };
        let mut walks = Ok(Vec::new());
        for one in found {
            match (walk(one)?, &mut walks) {
                (Some(walk), Ok(walks)) => walks.push(walk),
                _ => walks = Err("a vertex has no _id"),
            }
        }
        Ok(Self {
            walks,
            found: answer.found,
            message: answer.message,
            destination: answer.destination_info.and_then(|info| info.id),
            unbooked: answer.load_data.and_then(|data| data.error).map(|why| shown(&why)),
        })
    }

    /// The paths that answer the question.
    ///
    /// # Errors
    /// `found: false`, no path, another pair than was asked for.
    pub fn judge(self, kind: &PathKind, source: &str, destination: &str) -> Result<Paths, Failure> {
        let shape = |why: &str| Failure::new(Cause::Body, format!("path to {destination}: {why}"));
        if !self.found {
            let why = self.message.unwrap_or_else(|| "no path was found".to_owned());
            return Err(Failure::new(Cause::NotFound, format!("path to {destination}: {why}")));
        }
        if let Some(other) = self.destination.filter(|id| id != destination) {
            return Err(wrong(destination, &other));
        }
        let mut walks = self.walks.map_err(shape)?;
        let limit = match kind {
            PathKind::BestPaths { limit } | PathKind::NextBestPath { limit } => usize::from(*limit),
            _ => usize::MAX,
        };
        let cut = walks.len() >= limit;
        let fewest = walks.iter().map(|walk| walk.vertices.len()).min().unwrap_or(0);
        if fewest == 0 {
            return Err(shape("the answer holds no path"));
        }
        // Beyond the equal ones a list goes on with valleys: leaf, spine, leaf, spine, leaf.
        let answered = walks.len();
        walks.retain(|walk| walk.vertices.len() == fewest);
        let longer = answered - walks.len();
        for walk in &walks {
            let (first, last) = (walk.vertices.first(), walk.vertices.last());
            if let Some(other) = last.filter(|last| last.id != destination).or(first.filter(|first| first.id != source))
            {
                return Err(wrong(destination, &other.id));
            }
        }
        Ok(Paths { walks, cut, longer, unbooked: self.unbooked })
    }
}

/// `None`: a vertex has no id.
fn walk(one: OnePath<'_>) -> serde_json::Result<Option<Walk>> {
    let mut vertices = Vec::new();
    for Step { vertex } in one.path.0 {
        let Some(vertex) = Vertex::read(&bounded::document::<serde_json::Error>(vertex)?) else { return Ok(None) };
        vertices.push(vertex);
    }
    Ok(Some(Walk { vertices, text: one.srv6_data.and_then(|data| data.srv6_usid) }))
}

fn wrong(destination: &str, other: &str) -> Failure {
    let what = format!("path to {destination}: the answer is about {other}");
    Failure::new(Cause::WrongDestination, what)
}
