//! The routes `/instances`, `/collections` and `/vpns`.

#![allow(clippy::unnecessary_wraps, reason = "every route answers alike")]

use serde_json::{Map, Value, json};

use crate::parameters::{Answer, Refusal};
use crate::request::RouteRequest;
use crate::store::{Document, Store, text};

/// Numbers with which the database marks collections of documents and of edges.
const DOCUMENTS: i64 = 2;
const EDGES: i64 = 3;
/// Number with which the database marks a usable collection.
const LOADED: i64 = 3;

/// Returns the entries of lists of collections, sorted by name.
pub fn entries(store: &Store, wanted: impl Fn(&str) -> bool) -> Vec<Value> {
    let mut names: Vec<&String> = store.graphs().chain(store.collections()).filter(|name| wanted(name)).collect();
    names.sort();
    let entry = |name: &String| {
        let kind = if store.is_graph(name) { "edge" } else { "document" };
        let count = store.documents(name).map_or(0, |documents| documents.len());
        json!({ "name": name, "type": kind, "status": "loaded", "count": count })
    };
    names.into_iter().map(entry).collect()
}

/// Returns the properties that the database would have for a collection, as far as they exist without a database.
/// Returns `None` for an unknown name.
pub fn properties(store: &Store, name: &str) -> Option<Value> {
    store.documents(name)?;
    let is_graph = store.is_graph(name);
    Some(json!({
        "name": name, "system": false, "type": if is_graph { EDGES } else { DOCUMENTS }, "edge": is_graph,
        "status": LOADED, "status_string": "loaded",
    }))
}

pub fn instances(request: &RouteRequest<'_>) -> Answer {
    Ok(request.store.graphs().map(|name| json!(name)).collect())
}

pub fn collections(request: &RouteRequest<'_>) -> Answer {
    let filter = request.values.boolean("filter_graphs");
    let entries = entries(request.store, |name| filter.is_none_or(|only| name.ends_with("_graph") == only));
    let applied = match filter {
        None => "all",
        Some(true) => "graphs",
        Some(false) => "non_graphs",
    };
    Ok(json!({ "collections": entries, "total_count": entries.len(), "filter_applied": applied }))
}

/// Names that `/collections/{c}` shows as graphs. Any other graph is a plain collection there.
const KNOWN_GRAPHS: [&str; 4] = ["ipv4_graph", "ipv6_graph", "igpv4_graph", "igpv6_graph"];

fn documents<'r>(request: &RouteRequest<'r>) -> Result<Vec<&'r Document>, Refusal> {
    request.store.documents(request.name).ok_or_else(Refusal::swallowed)
}

pub fn collection(request: &RouteRequest<'_>) -> Answer {
    let documents = documents(request)?;
    if request.values.integer("skip").is_some_and(|skip| skip != 0) {
        return Err(Refusal::Internal("the database refuses the query near 'SKIP'".to_owned()));
    }
    let limit = request.values.limit("limit")?;
    let key = request.values.written("filter_key").filter(|key| !key.is_empty());
    let wanted = |document: &&Document| key.is_none() || text(document, "_key") == key;
    let data: Vec<&Document> = documents.into_iter().filter(wanted).take(limit).collect();
    if KNOWN_GRAPHS.contains(&request.name) {
        return Ok(Value::Object(graph(request, &data)));
    }
    Ok(json!({ "collection": request.name, "type": "collection", "count": data.len(), "data": data }))
}

fn graph(request: &RouteRequest<'_>, edges: &[&Document]) -> Map<String, Value> {
    let collections = request.store.vertex_collections(request.name).unwrap_or_default();
    let documents = collections.into_iter().filter_map(|name| request.store.documents(name));
    let vertices: Vec<&Document> = documents.flatten().collect();
    let mut answer = Map::new();
    answer.insert("collection".to_owned(), json!(request.name));
    answer.insert("type".to_owned(), json!("graph"));
    answer.insert("edge_count".to_owned(), json!(edges.len()));
    answer.insert("vertex_count".to_owned(), json!(vertices.len()));
    answer.insert("edges".to_owned(), json!(edges));
    answer.insert("vertices".to_owned(), json!(vertices));
    answer
}

pub fn collection_keys(request: &RouteRequest<'_>) -> Answer {
    let keys: Vec<&str> = documents(request)?.into_iter().filter_map(|document| text(document, "_key")).collect();
    Ok(json!({ "collection": request.name, "key_count": keys.len(), "keys": keys }))
}

pub fn collection_info(request: &RouteRequest<'_>) -> Answer {
    let properties = properties(request.store, request.name).ok_or_else(Refusal::swallowed)?;
    Ok(json!({ "name": request.name, "count": documents(request)?.len(), "properties": properties }))
}

/// Returns no VPN collections, because there is no BGP behind this server.
pub fn vpns(_: &RouteRequest<'_>) -> Answer {
    Ok(json!({ "collections": [], "total_count": 0 }))
}

/// Refuses every collection. Unlike the other VPN routes, this one has meaningful status codes.
pub fn vpn(request: &RouteRequest<'_>) -> Answer {
    let name = request.name;
    Err(match request.store.documents(name) {
        None => Refusal::not_found(format!("Collection {name} not found")),
        Some(_) => Refusal::bad_request(format!("Collection {name} is not a VPN collection")),
    })
}

/// Refuses every collection. In Jalapeno, errors of these routes lose their text.
pub const fn vpn_detail(_: &RouteRequest<'_>) -> Answer {
    Err(Refusal::swallowed())
}
