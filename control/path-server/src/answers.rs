//! Shapes of the answers with paths.

use serde_json::{Map, Value, json};

use crate::Edition;
use crate::search::GraphPath;
use crate::srv6;
use crate::store::Document;

/// Attributes of a vertex in most path answers.
const VERTEX: [&str; 6] = ["_id", "_key", "router_id", "prefix", "name", "sids"];
/// Attributes of a vertex in answers of `/load`.
const LOAD_VERTEX: [&str; 9] =
    ["_id", "_key", "router_id", "ipv4_address", "ipv6_address", "prefix", "prefix_len", "name", "sids"];
/// Attributes of a vertex in answers of `best-paths`.
const BEST_VERTEX: [&str; 4] = ["_id", "_key", "name", "sids"];
/// Attributes of an edge in the shortest path of `next-best-path`.
const BASE_EDGE: [&str; 8] = ["_id", "_key", "_from", "_to", "latency", "percent_util_out", "country_codes", "load"];
const EDGE: [&str; 7] = ["_id", "_key", "_from", "_to", "latency", "percent_util_out", "load"];

/// Returns some attributes of a document, null for those that it does not have.
pub fn project(document: &Document, keys: &[&str]) -> Value {
    let value = |key: &&str| ((*key).to_owned(), document.get(*key).cloned().unwrap_or(Value::Null));
    Value::Object(keys.iter().map(value).collect())
}

/// Values of the request that are repeated in the answer.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Direction as the request wrote it.
    pub direction: String,
    /// Flexible algorithm; `None` if the request names none and the answer has null there.
    pub algo: Option<i64>,
    /// Edition of the API whose behaviour the answer has.
    pub edition: Edition,
}

/// Returns the list `path`: each vertex with the edge into it or, if `out` is set, with the edge out of it.
fn steps(walk: &GraphPath<'_>, keys: &[&str], edge_keys: &[&str], out: bool) -> Vec<Value> {
    let edge = |index: usize| {
        let place = if out { Some(index) } else { index.checked_sub(1) };
        place.and_then(|place| walk.edges.get(place)).map_or(Value::Null, |edge| project(edge, edge_keys))
    };
    let step = |(index, vertex): (usize, &&Document)| json!({ "vertex": project(vertex, keys), "edge": edge(index) });
    walk.vertices.iter().enumerate().map(step).collect()
}

/// Returns the answer about one path. The key and value of `extra` follow the key `direction`. In `/load`, vertices
/// also have their addresses.
pub fn one(walk: &GraphPath<'_>, asked: &Asked, extra: Option<(&str, Value)>, is_load: bool) -> Map<String, Value> {
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

/// Returns the country codes of each edge.
pub fn countries(walk: &GraphPath<'_>) -> Value {
    let codes = |edge: &&Document| edge.get("country_codes").filter(|codes| codes.is_array()).cloned();
    walk.edges.iter().map(|edge| codes(edge).unwrap_or_else(|| json!([]))).collect()
}

/// Returns `path` without edges, with complete documents for its ends.
pub fn without_edges(walk: &GraphPath<'_>) -> Map<String, Value> {
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

/// Returns the entry of one path in the answer of `best-paths`.
pub fn one_of_best(walk: &GraphPath<'_>, asked: &Asked) -> Map<String, Value> {
    let mut answer = without_edges(walk);
    answer.insert("countries_traversed".into(), countries(walk));
    answer.insert("srv6_data".into(), srv6::data(&walk.vertices, asked.algo, asked.edition));
    answer
}

/// Returns the entry of the shortest path in the answer of `next-best-path`. Each step has the edge into its vertex,
/// whatever the algorithm is.
pub fn base(walk: &GraphPath<'_>, asked: &Asked) -> Value {
    json!({
        "path": steps(walk, &VERTEX, &BASE_EDGE, false),
        "hopcount": walk.hops(),
        "srv6_data": srv6::data(&walk.vertices, asked.algo, asked.edition),
    })
}

/// Returns the entry of any other path in the answer of `next-best-path`, with complete documents.
pub fn alternative(walk: &GraphPath<'_>, asked: &Asked) -> Value {
    let step = |vertex: &&Document| json!({ "vertex": vertex });
    json!({
        "path": walk.vertices.iter().map(step).collect::<Vec<_>>(),
        "hopcount": walk.hops(),
        "srv6_data": srv6::data(&walk.vertices, asked.algo, asked.edition),
    })
}

/// Message of an answer without a path.
pub const NO_PATH: &str = "No path found between specified nodes";

/// Returns a successful answer without a path.
pub fn not_found(message: &str) -> Value {
    json!({ "found": false, "message": message })
}
