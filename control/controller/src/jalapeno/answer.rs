//! Answers of the path routes: whichever shape, a list of walks.

use serde::Deserialize;
use serde_json::Value;

use super::PathKind;
use super::client::Failure;
use crate::document::Vertex;
use crate::snapshot::Cause;

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
    /// Why the allocation is not in the controller's books, or not on every edge. The path is good all the same.
    pub unbooked: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    found: bool,
    message: Option<String>,
    path: Option<Vec<Step>>,
    paths: Option<Vec<OnePath>>,
    shortest_path: Option<OnePath>,
    same_hopcount_paths: Option<Vec<OnePath>>,
    destination_info: Option<Info>,
    srv6_data: Option<Srv6Data>,
    load_data: Option<LoadData>,
}

#[derive(Deserialize)]
struct OnePath {
    path: Vec<Step>,
    srv6_data: Option<Srv6Data>,
}

#[derive(Deserialize)]
struct Step {
    vertex: Value,
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

/// Reads the answer of a path route.
///
/// # Errors
/// `found: false`, another shape, another pair than was asked for.
pub fn read(value: Value, kind: &PathKind, source: &str, destination: &str) -> Result<Paths, Failure> {
    let shape = |why: String| Failure::new(Cause::Body, format!("path to {destination}: {why}"));
    let answer = Answer::deserialize(value).map_err(|why| shape(why.to_string()))?;
    if !answer.found {
        let why = answer.message.unwrap_or_else(|| "no path was found".to_owned());
        return Err(Failure::new(Cause::NotFound, format!("path to {destination}: {why}")));
    }
    let unbooked = answer.load_data.and_then(|data| data.error);
    if let Some(other) = answer.destination_info.and_then(|info| info.id).filter(|id| id != destination) {
        return Err(wrong(destination, &other));
    }
    let mut found: Vec<OnePath> = match (answer.path, answer.paths, answer.shortest_path) {
        (Some(path), _, _) => vec![OnePath { path, srv6_data: answer.srv6_data }],
        (_, Some(paths), _) => paths,
        (_, _, Some(shortest)) => answer.same_hopcount_paths.filter(|same| !same.is_empty()).unwrap_or(vec![shortest]),
        _ => return Err(shape("the answer holds no path".to_owned())),
    };
    let limit = match kind {
        PathKind::BestPaths { limit } | PathKind::NextBestPath { limit } => usize::from(*limit),
        _ => usize::MAX,
    };
    let cut = found.len() >= limit;
    let fewest = found.iter().map(|one| one.path.len()).min().unwrap_or(0);
    // Beyond the equal ones a list goes on with valleys: leaf, spine, leaf, spine, leaf.
    found.retain(|one| one.path.len() == fewest);
    let walks: Vec<Walk> =
        found.into_iter().map(walk).collect::<Option<_>>().ok_or_else(|| shape("a vertex has no _id".to_owned()))?;
    if fewest == 0 {
        return Err(shape("the answer holds no path".to_owned()));
    }
    for walk in &walks {
        let (first, last) = (walk.vertices.first(), walk.vertices.last());
        if let Some(other) = last.filter(|last| last.id != destination).or(first.filter(|first| first.id != source)) {
            return Err(wrong(destination, &other.id));
        }
    }
    Ok(Paths { walks, cut, unbooked })
}

fn walk(one: OnePath) -> Option<Walk> {
    let vertices = one.path.iter().map(|step| Vertex::read(&step.vertex)).collect::<Option<_>>()?;
    Some(Walk { vertices, text: one.srv6_data.and_then(|data| data.srv6_usid) })
}

fn wrong(destination: &str, other: &str) -> Failure {
    let what = format!("path to {destination}: the answer is about {other}");
    Failure::new(Cause::WrongDestination, what)
}
