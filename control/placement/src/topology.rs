//! Reads a fabric from a topology document: an answer of Jalapeno's `/topology`, or `nodes`, `hosts` and `edges`.

use serde_json::{Map, Value};

use crate::fabric::{Fabric, Link, Node, NodeKind};
use crate::table::NodeId;

/// Error: a document that is not a fabric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// The document has none of the known shapes.
    #[error(
        "not a topology; write {{\"edges\": [...], \"vertices\": {{...}}}} as Jalapeno's /topology answers, or {{\"nodes\": [...], \"hosts\": [...], \"edges\": [...]}}"
    )]
    Shape,
    /// An entry of the document is wrong.
    #[error("{place}: {what}")]
    Entry {
        /// Where the entry is, such as `edges[3]`.
        place: String,
        /// What is wrong with it, and the fix.
        what: String,
    },
    /// The document has no hosts, so there is nothing to place a flow between.
    #[error("no hosts in the topology; a host is a vertex with a prefix and without a router_id")]
    NoHosts,
}

impl Fabric {
    /// Reads a topology. In addition to Jalapeno's keys, edges may have `capacity` (a whole number, by default 1), and
    /// nodes and edges may have `up` (by default true); nodes may name their `plane`, and hosts their `group` or
    /// `rail`.
    ///
    /// # Errors
    /// [`TopologyError`]: the document is not a fabric.
    pub fn from_topology(document: &Value) -> Result<Self, TopologyError> {
        let mut fabric = Self::default();
        let file = document.as_object().ok_or(TopologyError::Shape)?;
        let edges = file.get("edges").and_then(Value::as_array).ok_or(TopologyError::Shape)?;
        match (file.get("vertices"), file.get("nodes")) {
            (Some(Value::Object(vertices)), _) => {
                for (id, vertex) in vertices {
                    fabric.read_node(&format!("vertices {id:?}"), vertex, "")?;
                }
            }
            (None, Some(Value::Array(nodes))) => {
                for (number, node) in nodes.iter().enumerate() {
                    fabric.read_node(&format!("nodes[{number}]"), node, "fabric_node/")?;
                }
                let hosts = file.get("hosts").and_then(Value::as_array).into_iter().flatten();
                for (number, host) in hosts.enumerate() {
                    fabric.read_node(&format!("hosts[{number}]"), host, "hosts/")?;
                }
            }
            _ => return Err(TopologyError::Shape),
        }
        for (number, edge) in edges.iter().enumerate() {
            fabric.read_edge(&format!("edges[{number}]"), edge)?;
        }
        if fabric.hosts().next().is_none() {
            return Err(TopologyError::NoHosts);
        }
        Ok(fabric)
    }

    fn read_node(&mut self, place: &str, value: &Value, collection: &str) -> Result<(), TopologyError> {
        let wrong = |what: &str| entry(place, what);
        let document = value.as_object().ok_or_else(|| wrong("is not an object"))?;
        let id = match (text(document, "_id"), text(document, "_key")) {
            (Some(id), _) => id.to_owned(),
            (None, Some(key)) if !collection.is_empty() => format!("{collection}{key}"),
            _ => return Err(wrong("has no `_key`; give it one")),
        };
        let mut node = Node::new(id, kind(document, collection));
        if let Some(name) = text(document, "name") {
            name.clone_into(&mut node.name);
        }
        node.plane = label(document, &["plane"]);
        node.group = label(document, &["group", "rail"]);
        node.up = is_up(place, document)?;
        self.add_node(node).map(|_| ()).ok_or_else(|| wrong("is there twice; give every vertex an `_id` of its own"))
    }

    fn read_edge(&mut self, place: &str, value: &Value) -> Result<(), TopologyError> {
        let wrong = |what: String| entry(place, what);
        let document = value.as_object().ok_or_else(|| wrong("is not an object".to_owned()))?;
        let end = |key: &str| -> Result<NodeId, TopologyError> {
            let id =
                text(document, key).ok_or_else(|| wrong(format!("`{key}` is missing; write the _id of a vertex")))?;
            self.find_id(id).ok_or_else(|| wrong(format!("`{key}` is {id}, which is no vertex of the topology")))
        };
        let (from, to) = (end("_from")?, end("_to")?);
        let capacity = match document.get("capacity") {
            None => 1,
            Some(value) => value
                .as_u64()
                .ok_or_else(|| wrong(format!("`capacity` is {value}; write a whole number, in the unit of demands")))?,
        };
        let load = document.get("load").and_then(Value::as_i64);
        let key = text(document, "_key").map_or_else(|| place.to_owned(), str::to_owned);
        let up = is_up(place, document)?;
        self.add_link(Link { key, from, to, capacity, up, load });
        Ok(())
    }
}

/// Returns whether the document describes a host or a switch: a router id marks a switch, a prefix or address a host.
fn kind(document: &Map<String, Value>, collection: &str) -> NodeKind {
    let has = |key: &str| document.get(key).is_some_and(|value| !value.is_null());
    let collection = text(document, "_id").unwrap_or(collection).split('/').next().unwrap_or_default();
    let host =
        ["prefix", "ipv6_address", "ipv4_address"].into_iter().any(has) || matches!(collection, "hosts" | "gpus");
    if host && !has("router_id") { NodeKind::Host } else { NodeKind::Switch }
}

fn is_up(place: &str, document: &Map<String, Value>) -> Result<bool, TopologyError> {
    match document.get("up") {
        None => Ok(true),
        Some(Value::Bool(up)) => Ok(*up),
        Some(other) => Err(entry(place, format!("`up` is {other}; write true or false"))),
    }
}

fn entry(place: &str, what: impl Into<String>) -> TopologyError {
    TopologyError::Entry { place: place.to_owned(), what: what.into() }
}

fn text<'d>(document: &'d Map<String, Value>, key: &str) -> Option<&'d str> {
    document.get(key).and_then(Value::as_str)
}

/// Returns the first of these keys that has a value, as text. Planes and rails are often numbers.
fn label(document: &Map<String, Value>, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|key| match document.get(*key) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    })
}
