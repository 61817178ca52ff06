//! The routes `/traverse` and `/neighbors`.

use serde_json::{Map, Value, json};

use crate::answers::project;
use crate::parameters::{Answer, Refusal};
use crate::paths::{average, say_if_cut, sum};
use crate::request::RouteRequest;
use crate::search::GraphPath;
use crate::store::{Document, text};

/// Maximum number of paths in an answer. With more, the answer has `"truncated": true`, where Jalapeno has no limit.
const SHOWN: usize = 10_000;

const EDGE: [(&str, &str); 5] = [
    ("_key", "_key"),
    ("latency", "unidir_link_delay"),
    ("percent_util", "percent_util_out"),
    ("load", "load"),
    ("country_codes", "country_codes"),
];

/// Returns some attributes of an edge under the names of these routes.
fn edge(document: &Document) -> Value {
    let value = |(name, key): &(&str, &str)| ((*name).to_owned(), document.get(*key).cloned().unwrap_or(Value::Null));
    Value::Object(EDGE.iter().map(value).collect())
}

fn first_sid(vertex: &Document) -> Value {
    let sids = vertex.get("sids").and_then(Value::as_array);
    sids.and_then(|sids| sids.first()?.get("srv6_sid").cloned()).unwrap_or(Value::Null)
}

fn vertex(document: &Document) -> Value {
    let mut shown = project(document, &["_id", "_key", "router_id", "prefix", "name"]);
    if let Some(shown) = shown.as_object_mut() {
        shown.insert("sids".to_owned(), first_sid(document));
    }
    shown
}

pub fn traverse(request: &RouteRequest<'_>) -> Answer {
    traversal(request, |walk| {
        let mut one = simple(walk);
        one.insert("vertices".to_owned(), walk.vertices.iter().map(|document| vertex(document)).collect());
        one.insert("edges".to_owned(), walk.edges.iter().map(|document| edge(document)).collect());
        one
    })
}

pub fn traverse_simple(request: &RouteRequest<'_>) -> Answer {
    traversal(request, simple)
}

fn simple(walk: &GraphPath<'_>) -> Map<String, Value> {
    let keys = walk.vertices.iter().map(|vertex| vertex.get("_key").cloned().unwrap_or(Value::Null));
    let codes = walk.edges.iter().map(|edge| edge.get("country_codes").cloned().unwrap_or(Value::Null));
    let mut one = Map::new();
    one.insert("path".to_owned(), keys.collect());
    one.insert("sids".to_owned(), walk.vertices.iter().map(|vertex| first_sid(vertex)).collect());
    one.insert("country_codes".to_owned(), codes.collect());
    let metrics = json!({
        "total_latency": sum(&walk.edges, "unidir_link_delay"),
        "avg_util": average(&walk.edges, "percent_util_out"),
        "load": average(&walk.edges, "load"),
        "hop_count": walk.hops(),
    });
    one.insert("metrics".to_owned(), metrics);
    one
}

fn traversal(request: &RouteRequest<'_>, shown: impl Fn(&GraphPath<'_>) -> Map<String, Value>) -> Answer {
    let values = &request.values;
    let graph = request.graph(Some(0))?;
    let (least, most) = (values.integer("min_depth").unwrap_or(1), values.integer("max_depth").unwrap_or(1));
    let graph_paths = graph.within(values.text("source"), depths(least, most)?, SHOWN);
    let destination = values.written("destination").filter(|id| !id.is_empty());
    let ends_there = |walk: &&GraphPath<'_>| {
        let reached = walk.vertices.last().and_then(|vertex| text(vertex, "_id"));
        destination.is_none_or(|id| reached == Some(id))
    };
    let found = graph_paths.found.iter().filter(ends_there).map(|walk| Value::Object(shown(walk)));
    let found = distinct(found);
    let total = found.len();
    let answer = json!({
        "source": values.text("source"), "destination": values.written("destination"),
        "min_depth": least, "max_depth": most, "direction": values.text("direction"),
        "traversal_results": found, "total_paths": total,
    });
    Ok(say_if_cut(answer, graph_paths.is_cut))
}

pub fn neighbors(request: &RouteRequest<'_>) -> Answer {
    let values = &request.values;
    let graph = request.graph(Some(0))?;
    let depth = values.integer("depth").unwrap_or(1);
    let graph_paths = graph.within(values.text("source"), depths(1, depth)?, SHOWN);
    let end = |walk: &GraphPath<'_>| {
        let (last, by) = (walk.vertices.last()?, walk.edges.last()?);
        Some(json!({ "neighbor": vertex(last), "edge": edge(by), "metrics": { "hop_count": walk.hops() } }))
    };
    let ends = distinct(graph_paths.found.iter().filter_map(end));
    let answer = json!({
        "source": values.text("source"), "direction": values.text("direction"), "depth": depth,
        "neighbor_count": ends.len(), "neighbors": ends,
    });
    Ok(say_if_cut(answer, graph_paths.is_cut))
}

fn depths(least: i64, most: i64) -> Result<std::ops::RangeInclusive<usize>, Refusal> {
    let refused = || Refusal::Internal(format!("the database refuses the depth range {least}..{most}"));
    let (least, most) = (usize::try_from(least).ok(), usize::try_from(most).ok());
    match (least, most) {
        (Some(least), Some(most)) if least <= most => Ok(least..=most),
        _ => Err(refused()),
    }
}

/// Returns the values in their order without repetitions.
fn distinct(values: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut seen = std::collections::HashSet::new();
    values.filter(|value| seen.insert(value.to_string())).collect()
}
