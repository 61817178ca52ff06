//! The routes of `/graphs/{g}` other than paths: topology, edges, vertices.

#![allow(clippy::unnecessary_wraps, reason = "every route answers alike")]

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::answers::project;
use crate::collections::{entries, properties};
use crate::parameters::{Answer, Refusal};
use crate::request::RouteRequest;
use crate::srv6::algo_of;
use crate::store::{Document, text};

/// Lists the graphs. The parameter `filter_graphs` is accepted but has no effect.
pub fn graphs(request: &RouteRequest<'_>) -> Answer {
    let entries = entries(request.store, |name| name.ends_with("_graph"));
    Ok(json!({ "collections": entries, "total_count": entries.len() }))
}

/// Describes one graph. Only this route and `info` have meaningful status codes for unknown graphs.
pub fn graph(request: &RouteRequest<'_>) -> Answer {
    let properties = graph_properties(request)?;
    let count = request.store.documents(request.name).map_or(0, |documents| documents.len());
    Ok(json!({
        "name": request.name, "type": properties.get("type"), "status": properties.get("status"), "count": count,
    }))
}

/// Describes one graph in detail. The statistics are empty, because the database would take them from its files.
pub fn info(request: &RouteRequest<'_>) -> Answer {
    Ok(json!({
        "name": request.name,
        "properties": graph_properties(request)?,
        "statistics": {},
        "vertex_collections": request.store.vertex_collections(request.name).unwrap_or_default(),
    }))
}

fn graph_properties(request: &RouteRequest<'_>) -> Answer {
    let name = request.name;
    let properties = properties(request.store, name);
    let properties = properties.ok_or_else(|| Refusal::not_found(format!("Graph collection {name} not found")))?;
    if !name.ends_with("_graph") {
        return Err(Refusal::bad_request(format!("Collection {name} is not a graph collection")));
    }
    Ok(properties)
}

pub fn topology(request: &RouteRequest<'_>) -> Answer {
    let edges = request.edges()?;
    Ok(Value::Object(topology_of(request, &edges, some_of_vertex)))
}

/// Returns the edges whose both ends contain "node" in their ids, as Jalapeno selects them.
fn node_edges<'r>(request: &RouteRequest<'r>) -> Result<Vec<&'r Document>, Refusal> {
    let is_node = |edge: &Document, end| text(edge, end).is_some_and(|id| id.contains("node"));
    let edges = request.edges()?.into_iter();
    Ok(edges.filter(|edge| is_node(edge, "_from") && is_node(edge, "_to")).collect())
}

pub fn topology_nodes(request: &RouteRequest<'_>) -> Answer {
    let edges = node_edges(request)?;
    Ok(Value::Object(topology_of(request, &edges, some_of_vertex)))
}

/// Returns the topology of those edges between nodes whose both ends have a SID of the algorithm.
pub fn topology_nodes_algo(request: &RouteRequest<'_>) -> Answer {
    let algo = request.values.integer("algo");
    let takes_part = |edge: &&Document, end| {
        let vertex = text(edge, end).and_then(|id| request.store.vertex(id));
        vertex.is_some_and(|vertex| sids(vertex).any(|sid| algo_of(sid) == algo))
    };
    let edges = node_edges(request)?.into_iter();
    let edges: Vec<_> = edges.filter(|edge| takes_part(edge, "_from") && takes_part(edge, "_to")).collect();
    let some = |vertex: &Document| {
        let of_algo = sids(vertex).filter(|sid| algo_of(sid) == algo);
        let flat = of_algo.map(|sid| flat_sid(sid, &["algo", "endpoint_behavior"])).collect::<Vec<_>>();
        let mut shown = without_nulls(&[
            ("collection", collection_of(vertex)),
            ("name", attribute(vertex, "name")),
            ("router_id", attribute(vertex, "router_id")),
            ("sids", json!(flat)),
        ]);
        shown.extend(without_nulls(&[("asn", attribute(vertex, "asn"))]));
        Value::Object(shown)
    };
    let mut answer = Map::new();
    answer.insert("graph_collection".to_owned(), json!(request.name));
    answer.insert("algo".to_owned(), json!(algo));
    answer.extend(topology_of(request, &edges, some));
    Ok(Value::Object(answer))
}

/// Returns edges and the vertices at their ends. With `include_all_fields=false`, `some` selects attributes of the
/// vertices.
fn topology_of(
    request: &RouteRequest<'_>,
    edges: &[&Document],
    some: impl Fn(&Document) -> Value,
) -> Map<String, Value> {
    let whole = request.values.boolean("include_all_fields").unwrap_or(true);
    let mut seen = BTreeSet::new();
    let ends = edges.iter().flat_map(|edge| [text(edge, "_from"), text(edge, "_to")]).flatten();
    let ids = ends.filter(|id| seen.insert(*id));
    let touched = ids.filter_map(|id| Some((id.to_owned(), request.store.vertex(id)?)));
    let vertices: Map<String, Value> =
        touched.map(|(id, vertex)| (id, if whole { json!(vertex) } else { some(vertex) })).collect();
    let edge = |edge: &&Document| if whole { json!(edge) } else { project(edge, &["_from", "_to"]) };
    let mut answer = Map::new();
    answer.insert("edges".to_owned(), edges.iter().map(edge).collect());
    let total = vertices.len();
    answer.insert("vertices".to_owned(), Value::Object(vertices));
    answer.insert("total_edges".to_owned(), json!(edges.len()));
    answer.insert("total_vertices".to_owned(), json!(total));
    answer.insert("include_all_fields".to_owned(), json!(whole));
    answer
}

fn some_of_vertex(vertex: &Document) -> Value {
    let sids: Vec<&Value> = sids(vertex).filter_map(|sid| sid.get("srv6_sid")).collect();
    Value::Object(without_nulls(&[
        ("collection", collection_of(vertex)),
        ("name", attribute(vertex, "name")),
        ("prefix", attribute(vertex, "prefix")),
        ("protocol", attribute(vertex, "protocol")),
        ("sids", json!(sids)),
        ("asn", attribute(vertex, "asn")),
    ]))
}

fn attribute(document: &Document, key: &str) -> Value {
    document.get(key).cloned().unwrap_or(Value::Null)
}

fn without_nulls(values: &[(&str, Value)]) -> Map<String, Value> {
    let some = values.iter().filter(|(_, value)| !value.is_null());
    some.map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

fn collection_of(vertex: &Document) -> Value {
    json!(text(vertex, "_id").and_then(|id| id.split_once('/')).map(|(collection, _)| collection))
}

fn sids(vertex: &Document) -> impl Iterator<Item = &Value> {
    vertex.get("sids").and_then(Value::as_array).into_iter().flatten()
}

/// Returns a SID with some attributes of its behaviour at the same level.
fn flat_sid(sid: &Value, keys: &[&str]) -> Value {
    let behavior = sid.get("srv6_endpoint_behavior");
    let mut flat = Map::from_iter([("srv6_sid".to_owned(), sid.get("srv6_sid").cloned().unwrap_or(Value::Null))]);
    for key in keys {
        flat.insert((*key).to_owned(), behavior.and_then(|of| of.get(*key)).cloned().unwrap_or(Value::Null));
    }
    Value::Object(flat)
}

pub fn edges(request: &RouteRequest<'_>) -> Answer {
    let edges: Vec<Value> = request.edges()?.into_iter().map(|edge| project(edge, &["_from", "_to"])).collect();
    Ok(json!({ "collection": request.name, "edge_count": edges.len(), "edges": edges }))
}

/// Attributes of edges by their names in the answer. For delay and bandwidth, Jalapeno reads other attributes than
/// those of the lab's documents.
const METRICS: [(&str, &str); 6] = [
    ("unidir_delay", "unidir_link_delay"),
    ("percent_util_out", "percent_util_out"),
    ("percent_util_in", "percent_util_in"),
    ("bandwidth", "max_link_bandwidth"),
    ("reservable_bandwidth", "max_reservable_link_bandwidth"),
    ("load", "load"),
];
const TIMESTAMPS: [(&str, &str); 3] =
    [("first_seen", "first_seen_at"), ("last_seen", "last_seen_at"), ("updated", "updated_at")];

pub fn edges_detail(request: &RouteRequest<'_>) -> Answer {
    let edges = request.edges()?;
    let renamed = |edge: &Document, names: &[(&str, &str)]| {
        let values: Vec<(&str, Value)> = names.iter().map(|(name, key)| (*name, attribute(edge, key))).collect();
        json!(without_nulls(&values))
    };
    let detail = |edge: &Document| {
        without_nulls(&[
            ("_key", attribute(edge, "_key")),
            ("_from", attribute(edge, "_from")),
            ("_to", attribute(edge, "_to")),
            ("name", attribute(edge, "name")),
            ("prefix", attribute(edge, "prefix")),
            ("protocol", attribute(edge, "protocol")),
            ("sids", edge.get("sids").cloned().unwrap_or_else(|| json!([]))),
            ("country_codes", attribute(edge, "country_codes")),
            ("metrics", renamed(edge, &METRICS)),
            ("timestamps", renamed(edge, &TIMESTAMPS)),
        ])
    };
    let shown = match request.values.integer("limit").unwrap_or(0) {
        0 => edges.len(),
        // A negative limit omits that many edges at the end.
        limit if limit < 0 => edges.len().saturating_sub(usize::try_from(-limit).unwrap_or(usize::MAX)),
        limit => usize::try_from(limit).unwrap_or(usize::MAX),
    };
    let shown: Vec<_> = edges.iter().take(shown).map(|edge| detail(edge)).collect();
    Ok(json!({
        "collection": request.name, "edge_count": edges.len(), "returned_edges": shown.len(), "edges": shown,
    }))
}

/// Returns every document of the collections that the graph's edges refer to.
pub fn vertices(request: &RouteRequest<'_>) -> Answer {
    let collections = request.store.vertex_collections(request.name).ok_or_else(Refusal::swallowed)?;
    let mut by_collection = Map::new();
    let mut total = 0;
    for collection in &collections {
        let documents = request.store.documents(collection).unwrap_or_default();
        total += documents.len();
        let shown = documents.into_iter().map(
            |document| json!({ "_id": document.get("_id"), "_key": document.get("_key"), "collection": collection }),
        );
        by_collection.insert((*collection).to_owned(), shown.collect());
    }
    Ok(json!({
        "collection": request.name, "vertex_collections": collections, "total_vertices": total,
        "vertices_by_collection": by_collection,
    }))
}

fn touched<'r>(request: &RouteRequest<'r>) -> Result<Vec<&'r Document>, Refusal> {
    request.store.vertices(request.name).ok_or_else(Refusal::swallowed)
}

pub fn vertex_keys(request: &RouteRequest<'_>) -> Answer {
    let keys: BTreeSet<&str> = touched(request)?.into_iter().filter_map(|vertex| text(vertex, "_key")).collect();
    Ok(json!({ "collection": request.name, "vertex_count": keys.len(), "vertex_keys": keys }))
}

pub fn vertex_ids(request: &RouteRequest<'_>) -> Answer {
    let mut vertices = touched(request)?;
    vertices.sort_by_key(|vertex| text(vertex, "_key"));
    let ids: Vec<Value> = vertices.into_iter().map(|vertex| project(vertex, &["_id", "_key"])).collect();
    Ok(json!({ "collection": request.name, "vertex_count": ids.len(), "vertices": ids }))
}

/// Returns the vertices that have a SID of the algorithm, with these SIDs in flat form.
pub fn vertices_algo(request: &RouteRequest<'_>) -> Answer {
    let algo = request.values.integer("algo");
    let (mut by_collection, mut total) = (Map::new(), 0);
    for vertex in touched(request)? {
        let of_algo = sids(vertex).filter(|sid| algo_of(sid) == algo);
        let flat: Vec<Value> = of_algo.map(|sid| flat_sid(sid, &["algo", "endpoint_behavior", "flag"])).collect();
        if flat.is_empty() {
            continue;
        }
        let collection = collection_of(vertex);
        let row = json!({
            "_id": vertex.get("_id"), "_key": vertex.get("_key"), "collection": collection,
            "name": vertex.get("name"), "router_id": vertex.get("router_id"), "sids": flat,
        });
        total += 1;
        let rows = by_collection.entry(collection.as_str().unwrap_or_default()).or_insert_with(|| json!([]));
        if let Some(rows) = rows.as_array_mut() {
            rows.push(row);
        }
    }
    let collections: Vec<&String> = by_collection.keys().collect();
    Ok(json!({
        "graph_collection": request.name, "algo": algo, "total_vertices": total, "vertex_collections": collections,
        "vertices_by_collection": by_collection,
    }))
}

/// Lists vertices in short form. In this route the database itself detects an unknown graph. `limit` applies to each
/// collection.
pub fn vertex_summary(request: &RouteRequest<'_>) -> Answer {
    let unknown = || Refusal::Internal(format!("the database has no collection or view {}", request.name));
    let collections = request.store.vertex_collections(request.name).ok_or_else(unknown)?;
    let wanted = request.values.written("vertex_collection").filter(|name| !name.is_empty());
    if wanted.is_some_and(|wanted| !collections.contains(&wanted)) {
        return Err(Refusal::swallowed());
    }
    let limit = request.values.count("limit")?;
    let mut rows = Vec::new();
    for collection in collections.iter().filter(|collection| wanted.is_none_or(|wanted| wanted == **collection)) {
        let documents = request.store.documents(collection).unwrap_or_default();
        rows.extend(documents.into_iter().take(limit).map(|vertex| summary(vertex, collection)));
    }
    Ok(json!({
        "graph": request.name, "vertex_collections": collections,
        "filtered_collection": request.values.written("vertex_collection"), "total_vertices": rows.len(), "vertices": rows,
    }))
}

fn summary(vertex: &Document, collection: &str) -> Map<String, Value> {
    let sids: Option<Vec<Value>> =
        vertex.get("sids").map(|_| sids(vertex).map(|sid| json!(sid.get("srv6_sid"))).collect());
    without_nulls(&[
        ("collection", json!(collection)),
        ("_key", attribute(vertex, "_key")),
        ("_id", attribute(vertex, "_id")),
        ("name", attribute(vertex, "name")),
        ("prefix", attribute(vertex, "prefix")),
        ("sids", json!(sids)),
        ("protocol", attribute(vertex, "protocol")),
        ("asn", attribute(vertex, "asn")),
    ])
}
