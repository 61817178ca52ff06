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
const EDGE: [&str; 7] = ["_id", "_key", "_from", "_to", "latency", "percent_util_out", "load"];

/// Some attributes of a document, null where it has none.
fn project(document: &Document, keys: &[&str]) -> Value {
    let value = |key: &&str| ((*key).to_owned(), document.get(*key).cloned().unwrap_or(Value::Null));
    Value::Object(keys.iter().map(value).collect())
}

/// What the request asked for, as answers repeat it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// As it was written.
    pub direction: String,
    /// Flexible algorithm.
    pub algo: i64,
    /// Whose habits.
    pub edition: Edition,
}

/// `path`: with each vertex the edge into it; for an algorithm other than 0 the edge out of it.
fn steps(walk: &Walk<'_>, keys: &[&str], algo: i64) -> Vec<Value> {
    let edge = |index: usize| {
        let place = if algo == 0 { index.checked_sub(1) } else { Some(index) };
        place.and_then(|place| walk.edges.get(place)).map_or(Value::Null, |edge| project(edge, &EDGE))
    };
    let step = |(index, vertex): (usize, &&Document)| json!({ "vertex": project(vertex, keys), "edge": edge(index) });
    walk.vertices.iter().enumerate().map(step).collect()
}

/// The answer of a route for one path; `extra` goes behind `direction`.
pub fn one(walk: &Walk<'_>, asked: &Asked, extra: Option<(&str, Value)>, is_load: bool) -> Map<String, Value> {
    let keys: &[&str] = if is_load { &LOAD_VERTEX } else { &VERTEX };
    let info = |vertex: Option<&&Document>| vertex.map_or(Value::Null, |vertex| project(vertex, keys));
    let mut answer = Map::new();
    answer.insert("found".into(), json!(true));
    answer.insert("path".into(), json!(steps(walk, keys, asked.algo)));
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

/// One of several: without edges, with whole documents at its ends.
pub fn one_of_best(walk: &Walk<'_>, asked: &Asked) -> Map<String, Value> {
    let whole = |vertex: Option<&&Document>| vertex.map_or(Value::Null, |vertex| json!(vertex));
    let step = |vertex: &&Document| json!({ "vertex": project(vertex, &BEST_VERTEX) });
    let countries = |edge: &&Document| edge.get("country_codes").cloned().unwrap_or_else(|| json!([]));
    let mut answer = Map::new();
    answer.insert("path".into(), walk.vertices.iter().map(step).collect());
    answer.insert("hopcount".into(), json!(walk.hops()));
    answer.insert("vertex_count".into(), json!(walk.vertices.len()));
    answer.insert("source_info".into(), whole(walk.vertices.first()));
    answer.insert("destination_info".into(), whole(walk.vertices.last()));
    answer.insert("countries_traversed".into(), walk.edges.iter().map(countries).collect());
    answer.insert("srv6_data".into(), srv6::data(&walk.vertices, asked.algo, asked.edition));
    answer
}

/// The shortest of `next-best-path`: with edges.
pub fn base(walk: &Walk<'_>, asked: &Asked) -> Value {
    json!({
        "path": steps(walk, &VERTEX, asked.algo),
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

/// Success without a path.
pub fn not_found(message: &str) -> Value {
    json!({ "found": false, "message": message })
}
