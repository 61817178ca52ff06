//! One request for one of Jalapeno's routes, as its handler sees it.

use crate::Edition;
use crate::answers::Asked;
use crate::parameters::{Refusal, Values, direction};
use crate::search::Graph;
use crate::store::{Document, Store};
use crate::work::Work;

/// What a route answers from.
pub struct Asking<'r> {
    pub store: &'r Store,
    /// The graph or collection in the path; empty where there is none.
    pub name: &'r str,
    pub values: Values,
    pub edition: Edition,
    /// What its searches may cost.
    pub work: Work,
}

impl<'r> Asking<'r> {
    /// What path answers repeat.
    pub fn asked(&self) -> Asked {
        let direction = self.values.text("direction").to_owned();
        Asked { direction, algo: self.values.integer("algo"), edition: self.edition }
    }

    /// Edges of the graph in the path. An unknown one is found out deep inside, and its error is swallowed on the way.
    pub fn edges(&self) -> Result<Vec<&'r Document>, Refusal> {
        self.store.edges(self.name).ok_or_else(Refusal::swallowed)
    }

    /// The graph in the path, for routes that check the direction themselves.
    pub fn graph(&self, algo: Option<i64>) -> Result<Graph<'_>, Refusal> {
        self.graph_of(self.name, algo)
    }

    /// The same of another one.
    pub fn graph_of(&self, name: &str, algo: Option<i64>) -> Result<Graph<'_>, Refusal> {
        self.is_searchable(name)?;
        let direction = direction(self.values.text("direction")).ok_or_else(Refusal::swallowed)?;
        Graph::new(self.store, &self.work, name, direction, algo).ok_or_else(Refusal::swallowed)
    }

    /// The graph in the path, for routes that put the direction into the query text: the database finds out, in its own
    /// words.
    pub fn unchecked_graph(&self, algo: Option<i64>) -> Result<Graph<'_>, Refusal> {
        self.is_searchable(self.name)?;
        let text = self.values.text("direction");
        let refused = || Refusal::Internal(format!("the database refuses the query near '{text}'"));
        let direction = direction(text).ok_or_else(refused)?;
        Graph::new(self.store, &self.work, self.name, direction, algo).ok_or_else(Refusal::swallowed)
    }

    /// A collection of vertices is one more thing that the database finds out.
    fn is_searchable(&self, name: &str) -> Result<(), Refusal> {
        if self.store.is_graph(name) {
            Ok(())
        } else if self.store.documents(name).is_some() {
            Err(Refusal::Internal(format!("the database refuses {name}: it is no collection of edges")))
        } else {
            Err(Refusal::swallowed())
        }
    }
}
