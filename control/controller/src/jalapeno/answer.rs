//! Answers of the path routes. Each shape of an answer is converted into a list of paths.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Criterion;
use crate::bounded::{self, Bounded};
use crate::document::Vertex;
use crate::failure::Failure;
use crate::snapshot::Cause;
use srv6d_text::shown;

/// One path of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct AnsweredPath {
    /// Vertices from the source to the destination.
    pub vertices: Vec<Vertex>,
    /// The carrier that the server itself proposes, for comparison.
    pub text: Option<String>,
}

impl AnsweredPath {
    /// Returns the ids of the vertices in order.
    pub fn ids(&self) -> Vec<String> {
        self.vertices.iter().map(|vertex| vertex.id.clone()).collect()
    }

    /// Returns the number of links.
    pub fn hops(&self) -> usize {
        self.vertices.len().saturating_sub(1)
    }
}

/// The accepted content of a path route's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The shortest paths of the answer; never empty.
    pub paths: Vec<AnsweredPath>,
    /// Whether there are as many paths as were asked for, so that more may exist.
    pub cut: bool,
    /// Number of paths that were left out because they have more hops than the shortest one.
    pub longer: usize,
    /// Why the allocation is missing in the controller's books, on all edges or on some. The path is valid
    /// nevertheless.
    pub unbooked: Option<String>,
}

/// Maximum numbers of paths of one answer, and of vertices of one path.
const MAX_PATHS: usize = 128;
const MAX_STEPS: usize = 256;

#[derive(Deserialize)]
struct PathsAnswer<'a> {
    found: bool,
    message: Option<String>,
    #[serde(borrow)]
    path: Option<PathVertices<'a>>,
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

type PathVertices<'a> = Bounded<PathVertex<'a>, MAX_STEPS>;

#[derive(Deserialize)]
struct OnePath<'a> {
    #[serde(borrow)]
    path: PathVertices<'a>,
    srv6_data: Option<Srv6Data>,
}

#[derive(Deserialize)]
struct PathVertex<'a> {
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

/// A parsed answer of a path route that has not been checked yet.
#[derive(Clone, Debug, PartialEq)]
pub struct RawAnswer {
    /// All paths of the answer, including those with more hops than needed. An error says why a path cannot be used.
    paths: Result<Vec<AnsweredPath>, &'static str>,
    found: bool,
    message: Option<String>,
    destination: Option<String>,
    unbooked: Option<String>,
}

impl RawAnswer {
    /// Parses an answer of a path route.
    ///
    /// # Errors
    /// If it has another shape, or more paths or vertices than an answer may have.
    pub fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        let answer: PathsAnswer<'_> = serde_json::from_slice(bytes)?;
        let found = match (answer.path, answer.paths, answer.shortest_path) {
            (Some(path), _, _) => vec![OnePath { path, srv6_data: answer.srv6_data }],
            (_, Some(paths), _) => paths.0,
            (_, _, Some(shortest)) => {
                answer.same_hopcount_paths.map(|same| same.0).filter(|same| !same.is_empty()).unwrap_or(vec![shortest])
            }
            _ => Vec::new(),
        };
        let mut paths = Ok(Vec::new());
        for one in found {
            match (path(one)?, &mut paths) {
                (Some(path), Ok(paths)) => paths.push(path),
                _ => paths = Err("a vertex has no _id"),
            }
        }
        Ok(Self {
            paths,
            found: answer.found,
            message: answer.message,
            destination: answer.destination_info.and_then(|info| info.id),
            unbooked: answer.load_data.and_then(|data| data.error).map(|why| shown(&why)),
        })
    }

    /// Checks the answer, and returns the paths from `source` to `destination`.
    ///
    /// # Errors
    /// If the answer has `found: false` or no path, or is about another pair of vertices.
    pub fn judge(self, kind: &Criterion, source: &str, destination: &str) -> Result<Judged, Failure> {
        let shape = |why: &str| Failure::new(Cause::Body, format!("path to {destination}: {why}"));
        if !self.found {
            let why = self.message.unwrap_or_else(|| "no path was found".to_owned());
            return Err(Failure::new(Cause::NotFound, format!("path to {destination}: {why}")));
        }
        if let Some(other) = self.destination.filter(|id| id != destination) {
            return Err(wrong(destination, &other));
        }
        let mut paths = self.paths.map_err(shape)?;
        let limit = match kind {
            Criterion::BestPaths { limit } | Criterion::NextBestPath { limit } => usize::from(*limit),
            _ => usize::MAX,
        };
        let cut = paths.len() >= limit;
        let fewest = paths.iter().map(|path| path.vertices.len()).min().unwrap_or(0);
        if fewest == 0 {
            return Err(shape("the answer holds no path"));
        }
        // Behind paths of equal length a list may contain detours through a leaf: leaf, spine, leaf, spine, leaf.
        let answered = paths.len();
        paths.retain(|path| path.vertices.len() == fewest);
        let longer = answered - paths.len();
        for path in &paths {
            let (first, last) = (path.vertices.first(), path.vertices.last());
            if let Some(other) = last.filter(|last| last.id != destination).or(first.filter(|first| first.id != source))
            {
                return Err(wrong(destination, &other.id));
            }
        }
        Ok(Judged { paths, cut, longer, unbooked: self.unbooked })
    }
}

/// Reads the vertices of a path. Returns `None` if a vertex has no id.
fn path(one: OnePath<'_>) -> serde_json::Result<Option<AnsweredPath>> {
    let mut vertices = Vec::new();
    for PathVertex { vertex } in one.path.0 {
        let Some(vertex) = Vertex::read(&bounded::document::<serde_json::Error>(vertex)?) else { return Ok(None) };
        vertices.push(vertex);
    }
    Ok(Some(AnsweredPath { vertices, text: one.srv6_data.and_then(|data| data.srv6_usid) }))
}

fn wrong(destination: &str, other: &str) -> Failure {
    let what = format!("path to {destination}: the answer is about {other}");
    Failure::new(Cause::WrongDestination, what)
}
