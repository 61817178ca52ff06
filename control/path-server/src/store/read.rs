//! Files into documents. Everything that would make an answer wrong later is refused here.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{Document, Store, text};

/// Graph of files that do not name one.
const GRAPH: &str = "fabric_graph";
/// Collection of nodes in files that do not name one.
const NODES: &str = "fabric_node";
/// Collection of hosts in files that do not name one.
const HOSTS: &str = "hosts";

/// Attributes of edges that are weights.
const WEIGHTS: [&str; 4] = ["latency", "percent_util_out", "percent_util_in", "load"];

/// A file that is no topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Not JSON.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// None of the known shapes.
    #[error(
        "not a topology: write {{\"edges\": [...], \"vertices\": {{...}}}} as /topology answers, or {{\"nodes\": [...], \"hosts\": [...], \"edges\": [...]}}"
    )]
    Shape,
    /// One entry is wrong.
    #[error("{place}: {what}")]
    Entry {
        /// `edges[3]`.
        place: String,
        /// What is wrong with it, and the fix.
        what: String,
    },
}

impl Store {
    /// Reads a file: the answer of `/topology`, or `nodes`, `hosts` and `edges`. An edge whose `_id` names another
    /// graph than `fabric_graph` is one of that graph.
    ///
    /// # Errors
    /// [`StoreError`]: everything that would make an answer wrong later.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let value: Value = serde_json::from_str(text).map_err(|why| StoreError::Syntax(why.to_string()))?;
        let mut store = Self::default();
        let Value::Object(mut file) = value else { return Err(StoreError::Shape) };
        let Some(edges) = file.remove("edges") else { return Err(StoreError::Shape) };
        match file.remove("vertices") {
            Some(Value::Object(vertices)) => {
                for (id, document) in vertices {
                    store.add_vertex(&format!("vertices {id:?}"), with_id(document, &id), None)?;
                }
            }
            None if file.contains_key("nodes") => {
                for (key, collection) in [("nodes", NODES), ("hosts", HOSTS)] {
                    let Some(documents) = file.remove(key) else { continue };
                    store.add_vertices(key, list(documents, key)?, collection)?;
                }
            }
            _ => return Err(StoreError::Shape),
        }
        store.add_edges(list(edges, "edges")?)?;
        Ok(store)
    }

    /// Reads three files, each an array.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_parts(nodes: &str, hosts: &str, edges: &str) -> Result<Self, StoreError> {
        let array = |text: &str, name: &str| {
            let value = serde_json::from_str(text).map_err(|why| StoreError::Syntax(format!("{name}: {why}")))?;
            list(value, name)
        };
        let mut store = Self::default();
        store.add_vertices("nodes", array(nodes, "nodes")?, NODES)?;
        store.add_vertices("hosts", array(hosts, "hosts")?, HOSTS)?;
        store.add_edges(array(edges, "edges")?)?;
        Ok(store)
    }

    fn add_vertices(&mut self, name: &str, documents: Vec<Value>, collection: &str) -> Result<(), StoreError> {
        for (number, document) in documents.into_iter().enumerate() {
            self.add_vertex(&format!("{name}[{number}]"), document, Some(collection))?;
        }
        Ok(())
    }

    fn add_vertex(&mut self, place: &str, document: Value, collection: Option<&str>) -> Result<(), StoreError> {
        let (mut document, collection, id) = identified(place, document, collection)?;
        let check = || {
            check_sids(&document)?;
            check_prefix(&document)?;
            if self.places.contains_key(&id) {
                Err(format!("{id} is there twice; keep one of the two"))
            } else {
                Ok(())
            }
        };
        check().map_err(|what| wrong(place, what))?;
        document.insert("_rev".to_owned(), self.next_rev());
        let documents = self.collections.entry(collection.clone()).or_default();
        self.places.insert(id, (collection, documents.len()));
        documents.push(document);
        Ok(())
    }

    fn add_edges(&mut self, edges: Vec<Value>) -> Result<(), StoreError> {
        for (number, edge) in edges.into_iter().enumerate() {
            let place = format!("edges[{number}]");
            let (mut edge, graph, id) = identified(&place, edge, Some(GRAPH))?;
            self.check_edge(&edge, &graph, &id).map_err(|what| wrong(&place, what))?;
            edge.insert("_rev".to_owned(), self.next_rev());
            let documents = self.graphs.entry(graph.clone()).or_default();
            self.places.insert(id, (graph, documents.len()));
            documents.push(edge);
        }
        if self.graphs.is_empty() {
            self.graphs.insert(GRAPH.to_owned(), Vec::new());
        }
        Ok(())
    }

    fn check_edge(&self, edge: &Document, graph: &str, id: &str) -> Result<(), String> {
        for end in ["_from", "_to"] {
            let vertex = text(edge, end).ok_or_else(|| format!("`{end}` is missing; write the _id of a vertex"))?;
            if self.vertex(vertex).is_none() {
                return Err(format!("`{end}` is {vertex}, which is no vertex of the file"));
            }
        }
        for weight in WEIGHTS {
            let value = edge.get(weight).filter(|value| !value.is_null());
            if value.is_some_and(|value| value.as_f64().is_none_or(|number| number < 0.0)) {
                return Err(format!("`{weight}` is not a number from 0 up"));
            }
        }
        if self.collections.contains_key(graph) {
            return Err(format!("{graph} is a collection of vertices; give the edge an `_id` in a graph"));
        }
        if self.places.contains_key(id) {
            return Err(format!("{id} is there twice; give every edge a `_key` of its own"));
        }
        Ok(())
    }
}

fn wrong(place: &str, what: String) -> StoreError {
    StoreError::Entry { place: place.to_owned(), what }
}

fn list(value: Value, name: &str) -> Result<Vec<Value>, StoreError> {
    match value {
        Value::Array(entries) => Ok(entries),
        _ => Err(wrong(name, "is not a list; write [...]".to_owned())),
    }
}

/// In `vertices` the id stands in front of the document.
fn with_id(mut document: Value, id: &str) -> Value {
    if let Some(document) = document.as_object_mut() {
        document.entry("_id").or_insert_with(|| json!(id));
    }
    document
}

/// A document with the `_id` that it has or gets, its collection, and its id.
fn identified(place: &str, value: Value, collection: Option<&str>) -> Result<(Document, String, String), StoreError> {
    let wrong = |what: String| wrong(place, what);
    let Value::Object(mut document) = value else { return Err(wrong("is not an object".to_owned())) };
    let id = match (text(&document, "_id"), text(&document, "_key"), collection) {
        (Some(id), _, _) => id.to_owned(),
        (None, Some(key), Some(collection)) => format!("{collection}/{key}"),
        _ => return Err(wrong("has no `_key`; give it one".to_owned())),
    };
    let Some((collection, key)) =
        id.split_once('/').filter(|(collection, key)| !collection.is_empty() && !key.is_empty())
    else {
        return Err(wrong(format!("_id {id:?} is not collection/key")));
    };
    if let Some(own) = text(&document, "_key").filter(|own| *own != key) {
        return Err(wrong(format!("_id is {id}, but _key is {own}; leave one of them out")));
    }
    document.entry("_key").or_insert_with(|| json!(key));
    document.insert("_id".to_owned(), json!(id));
    Ok((document, collection.to_owned(), id.clone()))
}

fn check_sids(document: &Document) -> Result<(), String> {
    for sid in document.get("sids").and_then(Value::as_array).into_iter().flatten() {
        if sid.is_string() {
            return Err(format!(
                "SID {sid} stands alone: the topology was asked for without all its fields; \
                 ask with include_all_fields=true"
            ));
        }
        if srv6d_controller::sid::Sid::read(sid).is_none() {
            return Err(format!("{sid} is not a SID; write {{\"srv6_sid\": \"fcbb:0:1004::\", ...}}"));
        }
    }
    Ok(())
}

/// Clients program `prefix`/`prefix_len` as it is, and kernels refuse host bits.
fn check_prefix(document: &Document) -> Result<(), String> {
    let Some(length) = document.get("prefix_len").filter(|length| !length.is_null()) else { return Ok(()) };
    let prefix = text(document, "prefix").ok_or("`prefix_len` without `prefix`; write both")?;
    let address: IpAddr = prefix.parse().map_err(|_| format!("`prefix` {prefix:?} is not an address"))?;
    let length = length.as_u64().and_then(|length| u8::try_from(length).ok());
    let net = length.and_then(|length| IpNet::new(address, length).ok());
    let net = net.ok_or_else(|| format!("`prefix_len` is no length for {prefix}"))?;
    if net.trunc() != net {
        return Err(format!("`prefix` {net} has host bits; write {}", net.trunc().addr()));
    }
    Ok(())
}
