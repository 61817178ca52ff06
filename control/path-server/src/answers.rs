//! Shapes of path answers.

use serde_json::{Map, Value, json};

use crate::Edition;
use crate::search::Walk;
use crate::srv6;
use crate::store::Document;

/// What a vertex shows in most path answers.
const VERTEX: [&str; 6] = ["_id", "_key", "router_id", "prefix", "name", "sids"];
/// What it shows in `/load`.
const LOAD_VERTEX: [&str; 9] =
    ["_id", "_key", "router_id", "ipv4_address", "ipv6_address", "prefix", "prefix_len", "name", "sids"];
/// What it shows in `best-paths`.
const BEST_VERTEX: [&str; 4] = ["_id", "_key", "name", "sids"];
/// What an edge shows in the shortest path of `next-best-path`.
const BASE_EDGE: [&str; 8] = ["_id", "_key", "_from", "_to", "latency", "percent_util_out", "country_codes", "load"];
const EDGE: [&str; 7] = ["_id", "_key", "_from", "_to", "latency", "percent_util_out", "load"];

/// Some attributes of a document, null where it has none.
pub fn project(document: &Document, keys: &[&str]) -> Value {
    let value = |key: &&str| ((*key).to_owned(), document.get(*key).cloned().unwrap_or(Value::Null));
    Value::Object(keys.iter().map(value).collect())
}

/// What the request asked for, as answers repeat it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// As it was written.
    pub direction: String,
    /// Flexible algorithm; `None`: none was asked for where the API passes that on.
    pub algo: Option<i64>,
    /// Whose habits.
    pub edition: Edition,
}

/// `path`: with each vertex the edge into it, or where `out` says so the edge out of it.
fn steps(walk: &Walk<'_>, keys: &[&str], edge_keys: &[&str], out: bool) -> Vec<Value> {
    let edge = |index: usize| {
        let place = if out { Some(index) } else { index.checked_sub(1) };
        place.and_then(|place| walk.edges.get(place)).map_or(Value::Null, |edge| project(edge, edge_keys))
    };
    let step = |(index, vertex): (usize, &&Document)| json!({ "vertex": project(vertex, keys), "edge": edge(index) });
    walk.vertices.iter().enumerate().map(step).collect()
}

/// The answer of a route for one path; `extra` goes behind `direction`. In `/load`, vertices show their addresses.
pub fn one(walk: &Walk<'_>, asked: &Asked, extra: Option<(&str, Value)>, is_load: bool) -> Map<String, Value> {
    let keys: &[&str] = if is_load { &LOAD_VERTEX } else { &VERTEX };
    let info = |vertex: Option<&&Document>| vertex.map_or(Value::Null, |vertex| project(vertex, keys));
    let mut answer = Map::new();
    answer.insert("found".into(), json!(true));
    answer.insert("path".into(), json!(steps(walk, keys, &EDGE, asked.algo != Some(0))));
    answer.insert("hopcount".into(), json!(walk.hops()));
    answer.insert("vertex_count".into(), json!(walk.vertices.len()));
    answer.insert("source_info".into(), info(walk.vertices.first()));
    answer.insert("destination_info".into(), info(walk.vertices.last()));
    answer.insert("direction".into(), json!(asked.direction));
    if let Some((key, value)) = extra {
        answer.insert(key.to_owned(), value);
    }
    answer.insert("algo".into(), json!(asked.algo));
    answer.insert("srv6_data".into(), srv6::data(&walk.vertices, asked.algo, asked.edition));
    answer
}

/// Codes of the countries of each edge.
pub fn countries(walk: &Walk<'_>) -> Value {
    let codes = |edge: &&Document| edge.get("country_codes").filter(|codes| codes.is_array()).cloned();
    walk.edges.iter().map(|edge| codes(edge).unwrap_or_else(|| json!([]))).collect()
}

/// `path` without edges, and whole documents at its ends.
pub fn without_edges(walk: &Walk<'_>) -> Map<String, Value> {
    let whole = |vertex: Option<&&Document>| vertex.map_or(Value::Null, |vertex| json!(vertex));
    let step = |vertex: &&Document| json!({ "vertex": project(vertex, &BEST_VERTEX) });
    let mut answer = Map::new();
    answer.insert("path".into(), walk.vertices.iter().map(step).collect());
    answer.insert("hopcount".into(), json!(walk.hops()));
    answer.insert("vertex_count".into(), json!(walk.vertices.len()));
    answer.insert("source_info".into(), whole(walk.vertices.first()));
    answer.insert("destination_info".into(), whole(walk.vertices.last()));
    answer
}

/// One of `best-paths`.
pub fn one_of_best(walk: &Walk<'_>, asked: &Asked) -> Map<String, Value> {
    let mut answer = without_edges(walk);
    answer.insert("countries_traversed".into(), countries(walk));
    answer.insert("srv6_data".into(), srv6::data(&walk.vertices, asked.algo, asked.edition));
    answer
}

/// The shortest of `next-best-path`: with the edges into its vertices, whatever the algorithm.
pub fn base(walk: &Walk<'_>, asked: &Asked) -> Value {
    json!({
        "path": steps(walk, &VERTEX, &BASE_EDGE, false),
        "hopcount": walk.hops(),
        "srv6_data": srv6::data(&walk.vertices, asked.algo, asked.edition),
    })
}

/// The others of `next-best-path`: whole documents.
pub fn alternative(walk: &Walk<'_>, asked: &Asked) -> Value {
    let step = |vertex: &&Document| json!({ "vertex": vertex });
    json!({
        "path": walk.vertices.iter().map(step).collect::<Vec<_>>(),
        "hopcount": walk.hops(),
        "srv6_data": srv6::data(&walk.vertices, asked.algo, asked.edition),
    })
}

/// What is said where there is no path.
pub const NO_PATH: &str = "No path found between specified nodes";

/// Success without a path.
pub fn not_found(message: &str) -> Value {
    json!({ "found": false, "message": message })
}
