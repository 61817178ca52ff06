//! Documents: what the database would hold.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value, json};

/// One document, with `_id`, `_key` and `_rev`; keys stay in the order they were written in.
pub type Document = Map<String, Value>;

/// Every collection and every graph.
#[derive(Clone, Debug, Default)]
pub struct Store {
    /// Vertices, by collection, in the order of the file.
    collections: BTreeMap<String, Vec<Document>>,
    /// Edges, by graph, in the order of the file.
    graphs: BTreeMap<String, Vec<Document>>,
    /// Where a vertex is.
    places: HashMap<String, (String, usize)>,
    /// Ids of vertices and keys of edges that are switched off.
    down: BTreeSet<String>,
    /// Counts changes.
    revision: u64,
}

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

/// Graph of files that do not name one.
pub const DEFAULT_GRAPH: &str = "fabric_graph";
/// Collection of nodes in files that do not name one.
const NODES: &str = "fabric_node";
/// Collection of hosts in files that do not name one.
const HOSTS: &str = "hosts";

impl Store {
    /// Reads a file: the answer of `/topology`, or `nodes`, `hosts` and `edges`.
    ///
    /// # Errors
    /// [`StoreError`]: everything that would make an answer wrong later.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let value: Value = serde_json::from_str(text).map_err(|why| StoreError::Syntax(why.to_string()))?;
        let mut store = Self::default();
        let Value::Object(mut file) = value else { return Err(StoreError::Shape) };
        let edges = list(file.remove("edges"), "edges")?;
        match file.remove("vertices") {
            Some(Value::Object(vertices)) => {
                for (id, document) in vertices {
                    store.add_vertex(&format!("vertices {id:?}"), document, None)?;
                }
            }
            None if file.contains_key("nodes") => {
                for (key, collection) in [("nodes", NODES), ("hosts", HOSTS)] {
                    store.add_all(key, list(file.remove(key), key)?, collection)?;
                }
            }
            _ => return Err(StoreError::Shape),
        }
        store.add_edges(edges)?;
        Ok(store)
    }

    /// Reads three files, each an array.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_parts(nodes: &str, hosts: &str, edges: &str) -> Result<Self, StoreError> {
        let array = |text: &str, name: &str| {
            let value = serde_json::from_str(text).map_err(|why| StoreError::Syntax(format!("{name}: {why}")))?;
            list(Some(value), name)
        };
        let mut store = Self::default();
        store.add_all("nodes", array(nodes, "nodes")?, NODES)?;
        store.add_all("hosts", array(hosts, "hosts")?, HOSTS)?;
        store.add_edges(array(edges, "edges")?)?;
        Ok(store)
    }

    fn add_all(&mut self, name: &str, documents: Vec<Value>, collection: &str) -> Result<(), StoreError> {
        for (number, document) in documents.into_iter().enumerate() {
            self.add_vertex(&format!("{name}[{number}]"), document, Some(collection))?;
        }
        Ok(())
    }

    fn add_vertex(&mut self, place: &str, document: Value, collection: Option<&str>) -> Result<(), StoreError> {
        let (mut document, id) = identified(place, document, collection)?;
        let wrong = |what: String| StoreError::Entry { place: place.to_owned(), what };
        let Some((collection, _)) = id.split_once('/') else {
            return Err(wrong(format!("_id {id:?} is not collection/key")));
        };
        if self.places.contains_key(&id) {
            return Err(wrong(format!("{id} is there twice; keep one of the two")));
        }
        for sid in document.get("sids").and_then(Value::as_array).into_iter().flatten() {
            if srv6d_controller::sid::Sid::read(sid).is_none() {
                return Err(wrong(format!("{sid} is not a SID; write {{\"srv6_sid\": \"fcbb:0:1004::\", ...}}")));
            }
        }
        document.insert("_rev".to_owned(), self.next_revision());
        let documents = self.collections.entry(collection.to_owned()).or_default();
        self.places.insert(id.clone(), (collection.to_owned(), documents.len()));
        documents.push(document);
        Ok(())
    }

    fn add_edges(&mut self, edges: Vec<Value>) -> Result<(), StoreError> {
        let mut keys = BTreeSet::new();
        for (number, edge) in edges.into_iter().enumerate() {
            let place = format!("edges[{number}]");
            let (mut edge, id) = identified(&place, edge, Some(DEFAULT_GRAPH))?;
            let wrong = |what: String| StoreError::Entry { place: place.clone(), what };
            for end in ["_from", "_to"] {
                let Some(vertex) = edge.get(end).and_then(Value::as_str) else {
                    return Err(wrong(format!("`{end}` is missing; write the _id of a vertex")));
                };
                if !self.places.contains_key(vertex) {
                    return Err(wrong(format!("`{end}` is {vertex}, which is no vertex of the file")));
                }
            }
            for weight in ["latency", "percent_util_out", "load"] {
                if edge.get(weight).is_some_and(|value| value.as_f64().is_none_or(|number| number < 0.0)) {
                    return Err(wrong(format!("`{weight}` is not a number from 0 up")));
                }
            }
            if !keys.insert(id.clone()) {
                return Err(wrong(format!("{id} is there twice; give every edge a `_key` of its own")));
            }
            edge.insert("_rev".to_owned(), self.next_revision());
            let graph = id.split_once('/').map_or(DEFAULT_GRAPH, |(graph, _)| graph).to_owned();
            self.graphs.entry(graph).or_default().push(edge);
        }
        self.graphs.entry(DEFAULT_GRAPH.to_owned()).or_default();
        Ok(())
    }

    fn next_revision(&mut self) -> Value {
        self.revision += 1;
        json!(format!("_r{}", self.revision))
    }

    /// Counts changes of documents and of what is up.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Names of the graphs.
    pub fn graphs(&self) -> impl Iterator<Item = &String> {
        self.graphs.keys()
    }

    /// Names of the collections of vertices.
    pub fn collections(&self) -> impl Iterator<Item = &String> {
        self.collections.keys()
    }

    /// Edges of a graph that are up, between vertices that are up.
    pub fn edges(&self, graph: &str) -> Option<Vec<&Document>> {
        let edges = self.graphs.get(graph)?;
        Some(edges.iter().filter(|edge| self.is_up(edge)).collect())
    }

    fn is_up(&self, edge: &Document) -> bool {
        let names = ["_key", "_from", "_to"].into_iter().filter_map(|key| text(edge, key));
        names.into_iter().all(|name| !self.down.contains(name))
    }

    /// Documents of a collection, those of a graph included.
    pub fn documents(&self, collection: &str) -> Option<&Vec<Document>> {
        self.collections.get(collection).or_else(|| self.graphs.get(collection))
    }

    /// The vertex of that id, if it is up.
    pub fn vertex(&self, id: &str) -> Option<&Document> {
        let (collection, index) = self.places.get(id)?;
        self.collections.get(collection)?.get(*index).filter(|_| !self.down.contains(id))
    }

    /// Vertices that edges of a graph touch, in the order they first appear in.
    pub fn vertices(&self, graph: &str) -> Option<Vec<&Document>> {
        let mut seen = BTreeSet::new();
        let ends = self.edges(graph)?.into_iter().flat_map(|edge| [text(edge, "_from"), text(edge, "_to")]);
        Some(ends.flatten().filter(|id| seen.insert(*id)).filter_map(|id| self.vertex(id)).collect())
    }

    /// An edge, to write its load.
    pub fn edge_mut(&mut self, graph: &str, key: &str) -> Option<&mut Document> {
        self.graphs.get_mut(graph)?.iter_mut().find(|edge| text(edge, "_key") == Some(key))
    }

    /// Switches a vertex (by id) or an edge (by key) on or off. False: there is none of that name.
    pub fn set_up(&mut self, name: &str, up: bool) -> bool {
        let known = self.places.contains_key(name)
            || self.graphs.values().flatten().any(|edge| text(edge, "_key") == Some(name));
        if known {
            self.revision += 1;
            if up {
                self.down.remove(name)
            } else {
                self.down.insert(name.to_owned())
            };
        }
        known
    }

    /// Takes the documents of another file; what is switched off stays so.
    pub fn replace(&mut self, other: Self) {
        let (down, revision) = (std::mem::take(&mut self.down), self.revision);
        *self = Self { down, revision: revision + other.revision + 1, ..other };
    }
}

/// A text attribute.
pub fn text<'d>(document: &'d Document, key: &str) -> Option<&'d str> {
    document.get(key).and_then(Value::as_str)
}

fn list(value: Option<Value>, name: &str) -> Result<Vec<Value>, StoreError> {
    match value {
        Some(Value::Array(entries)) => Ok(entries),
        _ => Err(StoreError::Entry { place: name.to_owned(), what: "is not a list; write [...]".to_owned() }),
    }
}

/// A document with the `_id` that it has or gets.
fn identified(place: &str, value: Value, collection: Option<&str>) -> Result<(Document, String), StoreError> {
    let wrong = |what: &str| StoreError::Entry { place: place.to_owned(), what: what.to_owned() };
    let Value::Object(mut document) = value else { return Err(wrong("is not an object")) };
    let id = match (text(&document, "_id"), text(&document, "_key"), collection) {
        (Some(id), _, _) => id.to_owned(),
        (None, Some(key), Some(collection)) => format!("{collection}/{key}"),
        _ => return Err(wrong("has no `_key`; give it one")),
    };
    let key = id.split_once('/').map_or(id.as_str(), |(_, key)| key).to_owned();
    document.entry("_key").or_insert_with(|| json!(key));
    document.insert("_id".to_owned(), json!(id));
    Ok((document, id))
}
