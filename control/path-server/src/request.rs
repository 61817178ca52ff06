//! A request for one of Jalapeno's routes, in the form that its handler receives.

use crate::Edition;
use crate::answers::Asked;
use crate::parameters::{Refusal, Values, direction};
use crate::search::Graph;
use crate::store::{Document, Store};
use crate::work::Work;

/// The request, and what its handler needs for the answer.
pub struct RouteRequest<'r> {
    pub store: &'r Store,
    /// Name of the graph or collection in the URL's path; empty if there is none.
    pub name: &'r str,
    pub values: Values,
    pub edition: Edition,
    /// Limit on the cost of its searches.
    pub work: Work,
}

impl<'r> RouteRequest<'r> {
    /// Returns the values of the request that path answers repeat.
    pub fn asked(&self) -> Asked {
        let direction = self.values.text("direction").to_owned();
        Asked { direction, algo: self.values.integer("algo"), edition: self.edition }
    }

    /// Returns the edges of the graph that the URL names. Jalapeno detects an unknown graph late and loses the error's
    /// text, so the refusal has no text.
    pub fn edges(&self) -> Result<Vec<&'r Document>, Refusal> {
        self.store.edges(self.name).ok_or_else(Refusal::swallowed)
    }

    /// Returns the graph that the URL names, for routes that check the direction themselves.
    pub fn graph(&self, algo: Option<i64>) -> Result<Graph<'_>, Refusal> {
        self.graph_of(self.name, algo)
    }

    /// Returns another graph, for routes that check the direction themselves.
    pub fn graph_of(&self, name: &str, algo: Option<i64>) -> Result<Graph<'_>, Refusal> {
        self.is_searchable(name)?;
        let direction = direction(self.values.text("direction")).ok_or_else(Refusal::swallowed)?;
        Graph::new(self.store, &self.work, name, direction, algo).ok_or_else(Refusal::swallowed)
    }

    /// Returns the graph that the URL names, for routes that put the direction into the query text. There the database
    /// detects a wrong direction, with its own message.
    pub fn unchecked_graph(&self, algo: Option<i64>) -> Result<Graph<'_>, Refusal> {
        self.is_searchable(self.name)?;
        let text = self.values.text("direction");
        let refused = || Refusal::Internal(format!("the database refuses the query near '{text}'"));
        let direction = direction(text).ok_or_else(refused)?;
        Graph::new(self.store, &self.work, self.name, direction, algo).ok_or_else(Refusal::swallowed)
    }

    /// Checks that a name is a graph. The database detects a collection of vertices, so that refusal has a text.
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
