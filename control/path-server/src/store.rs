//! Documents that Jalapeno would have in its database.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value, json};

mod adjacency;
mod place;
mod read;

pub(crate) use adjacency::{Adjacency, Direction, Link};
pub use place::{Part, StoreError};

/// One document with `_id`, `_key` and `_rev`. Its keys keep the order of the file.
pub type Document = Map<String, Value>;

/// Numbers of changes of documents, and of the topology.
pub(crate) type Version = (u64, u64);

/// All collections and graphs.
#[derive(Clone, Debug, Default)]
pub struct Store {
    /// Vertices by collection, in the order of the file.
    collections: BTreeMap<String, Vec<Document>>,
    /// Edges by graph, in the order of the file.
    graphs: BTreeMap<String, Vec<Document>>,
    /// Adjacencies by graph.
    adjacencies: BTreeMap<String, Adjacency>,
    /// Place of each vertex and edge, by id.
    places: HashMap<String, (String, usize)>,
    /// Ids of vertices and edges that are switched off.
    down: BTreeSet<String>,
    /// Number of edges of the file that lead to vertices which it does not contain.
    left_out: usize,
    /// Number of changes of documents, which is the newest `_rev`.
    written: u64,
    /// Number of changes of the topology.
    revision: u64,
}

impl Store {
    fn next_rev(&mut self) -> Value {
        self.written += 1;
        json!(format!("_r{}", self.written))
    }

    /// Returns the number of changes of the topology: files read, vertices and edges switched. Loads do not count.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the number of edges that were omitted, because they lead to vertices that the file does not contain.
    /// This happens only for a saved answer of `/topology`; in a file written by a user such edges are an error.
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// Returns a version that differs whenever a document, or what is switched off, has changed.
    pub(crate) const fn version(&self) -> Version {
        (self.written, self.revision)
    }

    /// Returns the names of the graphs.
    pub fn graphs(&self) -> impl Iterator<Item = &String> {
        self.graphs.keys()
    }

    /// Returns the names of the collections of vertices.
    pub fn collections(&self) -> impl Iterator<Item = &String> {
        self.collections.keys()
    }

    /// Returns the edges of a graph that are up, between vertices that are up. A collection of vertices has no edges.
    pub fn edges(&self, graph: &str) -> Option<Vec<&Document>> {
        match self.graphs.get(graph) {
            Some(edges) => Some(edges.iter().filter(|edge| self.is_up(edge)).collect()),
            None => self.collections.contains_key(graph).then(Vec::new),
        }
    }

    /// Returns all edges of a graph, up or down, and their adjacency.
    pub(crate) fn searchable(&self, graph: &str) -> Option<(&[Document], &Adjacency)> {
        Some((self.graphs.get(graph)?.as_slice(), self.adjacencies.get(graph)?))
    }

    /// Returns whether the name is that of a graph, which contains edges.
    pub fn is_graph(&self, name: &str) -> bool {
        self.graphs.contains_key(name)
    }

    /// Returns whether neither the document nor one of its ends is switched off.
    pub fn is_up(&self, document: &Document) -> bool {
        let mut names = ["_id", "_from", "_to"].into_iter().filter_map(|key| text(document, key));
        names.all(|name| !self.down.contains(name))
    }

    /// Returns the documents of a collection or graph, without those that are switched off.
    pub fn documents(&self, collection: &str) -> Option<Vec<&Document>> {
        let documents = self.collections.get(collection).or_else(|| self.graphs.get(collection))?;
        Some(documents.iter().filter(|document| self.is_up(document)).collect())
    }

    /// Returns the vertex of that id, if it is up.
    pub fn vertex(&self, id: &str) -> Option<&Document> {
        let (collection, index) = self.places.get(id)?;
        self.collections.get(collection)?.get(*index).filter(|_| !self.down.contains(id))
    }

    /// Returns the vertices at the ends of a graph's edges, in the order of their first appearance.
    pub fn vertices(&self, graph: &str) -> Option<Vec<&Document>> {
        let mut seen = BTreeSet::new();
        let ends = self.edges(graph)?.into_iter().flat_map(|edge| [text(edge, "_from"), text(edge, "_to")]);
        Some(ends.flatten().filter(|id| seen.insert(*id)).filter_map(|id| self.vertex(id)).collect())
    }

    /// Returns the collections of the vertices at the ends of a graph's edges, in the order of their first appearance.
    pub fn vertex_collections(&self, graph: &str) -> Option<Vec<&str>> {
        let mut seen = BTreeSet::new();
        let ids = self.vertices(graph)?.into_iter().filter_map(|vertex| text(vertex, "_id"));
        let collections = ids.filter_map(|id| id.split_once('/')).map(|(collection, _)| collection);
        Some(collections.filter(|collection| seen.insert(*collection)).collect())
    }

    /// Returns the edge of that id, up or down.
    pub fn edge(&self, id: &str) -> Option<&Document> {
        let (graph, index) = self.places.get(id)?;
        self.graphs.get(graph)?.get(*index)
    }

    /// Returns the ids of all edges of a graph, up or down.
    pub fn edge_ids(&self, graph: &str) -> Vec<String> {
        let edges = self.graphs.get(graph).into_iter().flatten();
        edges.filter_map(|edge| text(edge, "_id").map(str::to_owned)).collect()
    }

    /// Sets or removes the load of an edge.
    pub fn set_load(&mut self, id: &str, load: Option<Value>) {
        let rev = self.next_rev();
        let edge = self.places.get(id).and_then(|(graph, index)| self.graphs.get_mut(graph)?.get_mut(*index));
        let Some(edge) = edge.filter(|edge| edge.get("load") != load.as_ref()) else { return };
        edge.insert("_rev".to_owned(), rev);
        match load {
            Some(load) => edge.insert("load".to_owned(), load),
            // This method of removal keeps the order of the other keys.
            None => edge.shift_remove("load"),
        };
    }

    /// Switches a vertex (by id) or an edge (by id, or by a key that is unique among the graphs) on or off. Returns
    /// `false` if no vertex or edge has that name.
    pub fn set_up(&mut self, name: &str, up: bool) -> bool {
        let Some(id) = self.id_of(name) else { return false };
        self.revision += 1;
        if up {
            self.down.remove(&id);
        } else {
            self.down.insert(id);
        }
        true
    }

    fn id_of(&self, name: &str) -> Option<String> {
        if self.places.contains_key(name) {
            return Some(name.to_owned());
        }
        let mut ids =
            self.graphs.keys().map(|graph| format!("{graph}/{name}")).filter(|id| self.places.contains_key(id));
        ids.next().filter(|_| ids.next().is_none())
    }

    /// Returns the ids of vertices and edges that are switched off.
    pub fn down(&self) -> impl Iterator<Item = &String> {
        self.down.iter()
    }

    /// Takes the documents of another file. Vertices and edges that are switched off stay off.
    pub fn replace(&mut self, other: Self) {
        let down = std::mem::take(&mut self.down);
        let (written, revision) = (self.written + other.written, self.revision + 1);
        *self = Self { down, written, revision, ..other };
    }
}

/// Returns an attribute that is a text.
pub fn text<'d>(document: &'d Document, key: &str) -> Option<&'d str> {
    document.get(key).and_then(Value::as_str)
}
