//! Conversion of files into documents. Everything that would result in wrong answers later is refused here.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::place::{Part, StoreError, Wrong};
use super::{Adjacency, Document, Store, text};

/// Graph of files that do not name one.
const GRAPH: &str = "fabric_graph";
/// Collection of nodes in files that do not name one.
const NODES: &str = "fabric_node";
/// Collection of hosts in files that do not name one.
const HOSTS: &str = "hosts";

/// Attributes of edges that are used as weights.
const WEIGHTS: [&str; 4] = ["latency", "percent_util_out", "percent_util_in", "load"];

impl Store {
    /// Reads a file: an answer of `/topology`, or lists `nodes`, `hosts` and `edges`. An edge whose `_id` names another
    /// graph than `fabric_graph` becomes an edge of that graph.
    ///
    /// # Errors
    /// [`StoreError`], if something in the file would result in wrong answers later.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let file = serde_json::from_str(text).map_err(|why| StoreError::syntax(Part::Whole, &why))?;
        Self::read(file).map_err(|wrong| StoreError::at(Part::Whole, text, wrong))
    }

    /// Reads three files that each contain a list.
    ///
    /// # Errors
    /// Like [`Self::parse`].
    pub fn parse_parts(nodes: &str, hosts: &str, edges: &str) -> Result<Self, StoreError> {
        let mut store = Self::default();
        for (part, name, text) in
            [(Part::Nodes, "nodes", nodes), (Part::Hosts, "hosts", hosts), (Part::Edges, "edges", edges)]
        {
            let list = serde_json::from_str(text).map_err(|why| StoreError::syntax(part, &why))?;
            let read = match part {
                Part::Nodes => store.add_vertices(name, list, NODES),
                Part::Hosts => store.add_vertices(name, list, HOSTS),
                Part::Whole | Part::Edges => store.add_edges(list, false),
            };
            read.map_err(|wrong| StoreError::at(part, text, wrong))?;
        }
        Ok(store)
    }

    fn read(file: Value) -> Result<Self, Wrong> {
        let shape = || {
            Wrong::new(
                "not a topology",
                "write {\"nodes\": [...], \"hosts\": [...], \"edges\": [...]}, or what Jalapeno's /topology answers: \
                 {\"edges\": [...], \"vertices\": {...}}; `srv6d path-server --example` prints one",
            )
        };
        let mut store = Self::default();
        let Value::Object(mut file) = file else { return Err(shape()) };
        let Some(edges) = file.remove("edges") else { return Err(shape()) };
        let is_answer = file.contains_key("vertices");
        match file.remove("vertices") {
            Some(Value::Object(vertices)) => {
                for (id, document) in vertices {
                    let added = store.add_vertex(with_id(document, &id), None);
                    added.map_err(|wrong| wrong.in_key(id).in_key("vertices"))?;
                }
            }
            None if file.contains_key("nodes") => {
                for (name, collection) in [("nodes", NODES), ("hosts", HOSTS)] {
                    let Some(documents) = file.remove(name) else { continue };
                    store.add_vertices(name, documents, collection)?;
                }
            }
            _ => return Err(shape()),
        }
        store.add_edges(edges, is_answer)?;
        Ok(store)
    }

    /// Returns whether an end of an edge is missing. A live Jalapeno has such edges and returns them, but no path uses
    /// them.
    fn is_lost(&self, edge: &Value) -> bool {
        let lost = |end| edge.get(end).and_then(Value::as_str).is_some_and(|id| self.vertex(id).is_none());
        lost("_from") || lost("_to")
    }

    fn add_vertices(&mut self, name: &str, documents: Value, collection: &str) -> Result<(), Wrong> {
        let documents = list(documents).map_err(|wrong| wrong.in_key(name))?;
        for (number, document) in documents.into_iter().enumerate() {
            let added = self.add_vertex(document, Some(collection));
            added.map_err(|wrong| wrong.in_index(number).in_key(name))?;
        }
        Ok(())
    }

    fn add_vertex(&mut self, document: Value, collection: Option<&str>) -> Result<(), Wrong> {
        let (mut document, collection, id) = identified(document, collection)?;
        check_sids(&document)?;
        check_prefix(&document)?;
        if self.places.contains_key(&id) {
            return Err(Wrong::new(format!("{id} is there twice"), "keep one of the two"));
        }
        document.insert("_rev".to_owned(), self.next_rev());
        let documents = self.collections.entry(collection.clone()).or_default();
        self.places.insert(id, (collection, documents.len()));
        documents.push(document);
        Ok(())
    }

    /// Adds edges. Edges of a `/topology` answer whose ends do not exist are omitted.
    fn add_edges(&mut self, edges: Value, is_answer: bool) -> Result<(), Wrong> {
        let edges = list(edges).map_err(|wrong| wrong.in_key("edges"))?;
        for (number, edge) in edges.into_iter().enumerate() {
            if is_answer && self.is_lost(&edge) {
                self.left_out += 1;
                continue;
            }
            self.add_edge(edge).map_err(|wrong| wrong.in_index(number).in_key("edges"))?;
        }
        if self.graphs.is_empty() {
            self.graphs.insert(GRAPH.to_owned(), Vec::new());
        }
        self.adjacencies = self.graphs.iter().map(|(graph, edges)| (graph.clone(), Adjacency::new(edges))).collect();
        Ok(())
    }

    fn add_edge(&mut self, edge: Value) -> Result<(), Wrong> {
        let (mut edge, graph, id) = identified(edge, Some(GRAPH))?;
        for end in ["_from", "_to"] {
            self.check_end(&edge, end).map_err(|wrong| wrong.in_key(end))?;
        }
        for weight in WEIGHTS {
            check_weight(&edge, weight).map_err(|wrong| wrong.in_key(weight))?;
        }
        if self.collections.contains_key(&graph) {
            let what = format!("{graph} is a collection of vertices");
            return Err(Wrong::new(what, format!("write an `_id` in a graph: \"{GRAPH}/...\"")));
        }
        if self.places.contains_key(&id) {
            return Err(Wrong::new(format!("{id} is there twice"), "give every edge a `_key` of its own"));
        }
        edge.insert("_rev".to_owned(), self.next_rev());
        let documents = self.graphs.entry(graph.clone()).or_default();
        self.places.insert(id, (graph, documents.len()));
        documents.push(edge);
        Ok(())
    }

    fn check_end(&self, edge: &Document, end: &str) -> Result<(), Wrong> {
        let Some(id) = text(edge, end) else {
            return Err(Wrong::new("is missing", format!("write the `_id` of a vertex: \"{NODES}/...\"")));
        };
        if self.vertex(id).is_some() {
            return Ok(());
        }
        // A key without its collection is the usual mistake.
        let mut ids = self.places.keys().filter(|known| known.split_once('/').is_some_and(|(_, key)| key == id));
        let fix = match (ids.next(), ids.next()) {
            (Some(meant), None) => format!("write \"{meant}\""),
            _ => "write the `_id` of a node or host of the file, which is collection/key".to_owned(),
        };
        Err(Wrong::new(format!("{id} is no vertex of the file"), fix))
    }
}

fn check_weight(edge: &Document, weight: &str) -> Result<(), Wrong> {
    let value = edge.get(weight).filter(|value| !value.is_null());
    match value {
        Some(value) if value.as_f64().is_none_or(|number| number < 0.0) => {
            Err(Wrong::new(format!("{value} is no weight"), "write a number from 0 up, without quotes"))
        }
        _ => Ok(()),
    }
}

fn list(value: Value) -> Result<Vec<Value>, Wrong> {
    match value {
        Value::Array(entries) => Ok(entries),
        _ => Err(Wrong::new("is not a list", "write [...]")),
    }
}

/// Adds the id of a document, which in `vertices` is the key of the document.
fn with_id(mut document: Value, id: &str) -> Value {
    if let Some(document) = document.as_object_mut() {
        document.entry("_id").or_insert_with(|| json!(id));
    }
    document
}

/// Returns a document with its `_id`, which may be added, and its collection and id.
fn identified(value: Value, collection: Option<&str>) -> Result<(Document, String, String), Wrong> {
    let Value::Object(mut document) = value else { return Err(Wrong::new("is not an object", "write {...}")) };
    let id = match (text(&document, "_id"), text(&document, "_key"), collection) {
        (Some(id), _, _) => id.to_owned(),
        (None, Some(key), Some(collection)) => format!("{collection}/{key}"),
        _ => {
            let fix = "write \"_key\": \"a name of its own\" (Jalapeno's /topology leaves keys out unless it is \
                       asked with include_all_fields=true)";
            return Err(Wrong::new("has no `_key`", fix));
        }
    };
    let parts = id.split_once('/').filter(|(collection, key)| !collection.is_empty() && !key.is_empty());
    let Some((collection, key)) = parts else {
        return Err(Wrong::new(format!("{id:?} is no id"), "write collection/key").in_key("_id"));
    };
    if let Some(own) = text(&document, "_key").filter(|own| *own != key) {
        return Err(Wrong::new(format!("_id is {id}, but _key is {own}"), "leave one of them out").in_key("_key"));
    }
    document.entry("_key").or_insert_with(|| json!(key));
    document.insert("_id".to_owned(), json!(id));
    Ok((document, collection.to_owned(), id.clone()))
}

fn check_sids(document: &Document) -> Result<(), Wrong> {
    let Some(sids) = document.get("sids").filter(|sids| !sids.is_null()) else { return Ok(()) };
    let Some(sids) = sids.as_array() else {
        return Err(Wrong::new("is not a list", "write [{\"srv6_sid\": ...}]").in_key("sids"));
    };
    for (number, sid) in sids.iter().enumerate() {
        check_sid(sid).map_err(|wrong| wrong.in_index(number).in_key("sids"))?;
    }
    Ok(())
}

fn check_sid(sid: &Value) -> Result<(), Wrong> {
    if sid.is_string() {
        let fix = "ask for the topology with include_all_fields=true: a SID needs its behaviour and its algorithm";
        return Err(Wrong::new(format!("{sid} stands alone"), fix));
    }
    if srv6d_controller::sid::Sid::read(sid).is_none() {
        return Err(Wrong::new(format!("{sid} is not a SID"), "write {\"srv6_sid\": \"fcbb:0:1004::\", ...}"));
    }
    Ok(())
}

/// Refuses prefixes with host bits, because clients use `prefix`/`prefix_len` unchanged and kernels refuse such routes.
fn check_prefix(document: &Document) -> Result<(), Wrong> {
    let Some(length) = document.get("prefix_len").filter(|length| !length.is_null()) else { return Ok(()) };
    let Some(prefix) = text(document, "prefix") else {
        return Err(Wrong::new("stands without `prefix`", "write both").in_key("prefix_len"));
    };
    let address: IpAddr = prefix.parse().map_err(|_| {
        Wrong::new(format!("{prefix:?} is no address"), "write an address without its length").in_key("prefix")
    })?;
    let bits = length.as_u64().and_then(|length| u8::try_from(length).ok());
    let Some(net) = bits.and_then(|length| IpNet::new(address, length).ok()) else {
        let most = if address.is_ipv6() { 128 } else { 32 };
        return Err(Wrong::new(format!("{length} is no length"), format!("write 0 to {most}")).in_key("prefix_len"));
    };
    if net.trunc() != net {
        let fix = format!("write \"{}\": kernels refuse routes with host bits", net.trunc().addr());
        return Err(Wrong::new(format!("{net} has host bits"), fix).in_key("prefix"));
    }
    Ok(())
}
