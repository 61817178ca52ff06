//! One peer's question: which paths lead to it?

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use super::answer::{Paths, Walk};
use super::client::{Client, Looked};
use super::peer::{Programmed, program};
use super::{PathKind, Settings, is_id};
use crate::document::{Topology, Vertex};
use crate::failure::Failure;
use crate::http::Repeat;
use crate::snapshot::Cause;
use crate::text::{MAX_NAME, shown_up_to};

/// Peers for whom an allocation is being asked: an answer that never comes may have counted.
#[derive(Debug, Default)]
pub struct Begun(Mutex<BTreeSet<String>>);

impl Begun {
    fn begin(&self, peer: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(peer.to_owned());
    }

    /// Its answer was taken.
    pub fn end(&self, peer: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(peer);
    }

    /// Those whose answer was never taken.
    pub fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What one peer's question needs.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'t> {
    pub settings: &'t Settings,
    pub client: &'t Client,
    /// The topology, if it is known by now: bookings are made without one.
    pub looked: Option<&'t Looked>,
    pub begun: &'t Begun,
}

/// What is known of a peer before it is asked for.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Its id.
    pub peer: String,
    /// Ids along the path that it was allocated.
    pub allocated: Option<Vec<String>>,
    /// The controller may have allocated a path that nobody knows.
    pub unanswered: bool,
}

/// An answer that was taken apart.
#[derive(Clone, Debug)]
pub struct Answered {
    /// What its paths come to, or why nothing.
    pub programmed: Result<Programmed, Failure>,
    /// Ids of a new allocation, whatever came of its path.
    pub allocated: Option<Vec<String>>,
    /// The controller could not note the allocation in its books.
    pub unbooked: bool,
}

impl Asker<'_> {
    /// Asks, checks and composes.
    ///
    /// # Errors
    /// No answer, or one that cannot be used.
    pub async fn ask(&self, question: &Question) -> Result<Answered, Failure> {
        let peer = &question.peer;
        if !is_id(peer) {
            let what = format!("{peer:?} is not the id of a vertex; write collection/key, e.g. \"hosts/host00\"");
            return Err(Failure::new(Cause::Refused, what));
        }
        let is_load = self.settings.kind == PathKind::Load;
        if let Some(Looked { topology, .. }) = self.looked {
            if !topology.vertices.contains_key(peer) {
                return Err(self.why_unknown(peer).await);
            }
            if let Some(ids) = question.allocated.as_ref().filter(|_| is_load)
                && topology.missing_on(ids).is_none()
            {
                let programmed = self.program(peer, &[remembered(ids, topology)]);
                return Ok(Answered { programmed, allocated: None, unbooked: false });
            }
        }
        if is_load && (question.allocated.is_some() || question.unanswered) {
            // A way that is gone, or that nobody knows, goes on counting where the server cannot take it back.
            let _ = self.client.release(&pair(self.settings, peer)).await;
        }
        self.ask_server(peer, is_load).await
    }

    async fn ask_server(&self, peer: &str, is_load: bool) -> Result<Answered, Failure> {
        let (route, mut query) = self.settings.kind.route();
        query.extend(pair(self.settings, peer));
        if self.settings.kind == PathKind::Placed {
            query.insert("hosts", job(self.settings));
        }
        if is_load {
            self.begun.begin(peer);
        }
        let repeat = if is_load { Repeat::Never } else { Repeat::Safe };
        let said = self.client.paths(route, &query, repeat).await?;
        let paths = said.judge(&self.settings.kind, &self.settings.source, peer)?;
        let allocated = paths.walks.first().filter(|_| is_load).map(Walk::ids);
        let programmed = self.program(peer, &paths.walks).map(|programmed| self.annotate(programmed, &paths));
        Ok(Answered { programmed, allocated, unbooked: paths.unbooked.is_some() })
    }

    /// Notes what deserves a look about an answer.
    fn annotate(&self, mut programmed: Programmed, paths: &Paths) -> Programmed {
        if paths.cut {
            programmed.notes.push("as many paths as `limit` allows: there may be more".to_owned());
        }
        if paths.longer > 0 {
            let (kept, longer) = (paths.walks.len(), paths.longer);
            let count = kept + longer;
            programmed.notes.push(format!(
                "{longer} of {count} paths left out: they have more hops than the shortest; flows use the other {kept}"
            ));
        }
        if let (PathKind::Sovereignty { excluded }, Some(looked)) = (&self.settings.kind, self.looked) {
            for code in excluded.iter().filter(|code| !looked.topology.has_country(code)) {
                programmed.notes.push(format!(
                    "no link of {} is in the excluded country {code}; codes are those of the links' `country_codes`",
                    self.settings.graph
                ));
            }
        }
        if let Some(why) = &paths.unbooked {
            programmed.notes.push(format!("the controller could not note the load: {why}"));
        }
        programmed
    }

    /// Weights do not bound hops: with all of them zero a six-hop valley ties with the straight way.
    fn program(&self, peer: &str, walks: &[Walk]) -> Result<Programmed, Failure> {
        let address = self.client.address();
        let Some(Looked { topology, hops }) = self.looked else {
            let vertices: Vec<Vertex> = walks.iter().flat_map(|walk| walk.vertices.clone()).collect();
            return program(walks, &Topology::of_walk(&vertices), self.settings, address);
        };
        let mut programmed = program(walks, topology, self.settings, address)?;
        let longest = walks.iter().map(Walk::hops).max().unwrap_or(0);
        if let Some(fewest) = hops.get(peer).filter(|fewest| **fewest < longest) {
            programmed.notes.push(format!("the path has {longest} hops, the shortest one {fewest}"));
        }
        Ok(programmed)
    }

    /// A typing error looks like a partition: the collection knows which it is.
    async fn why_unknown(&self, peer: &str) -> Failure {
        let (collection, key) = peer.split_once('/').unwrap_or((peer, ""));
        let what = match self.client.keys(collection).await {
            Ok(keys) if keys.iter().any(|known| known == key) => {
                format!("{peer} has no link in graph {}", self.settings.graph)
            }
            Ok(keys) => {
                let some: Vec<String> = keys.iter().take(5).map(|key| shown_up_to(key, MAX_NAME)).collect();
                format!("there is no {peer}: {collection} has {}", some.join(", "))
            }
            Err(_) => format!("{peer} is not in graph {}", self.settings.graph),
        };
        Failure::new(Cause::UnknownId, what)
    }
}

fn remembered(ids: &[String], topology: &Topology) -> Walk {
    let vertices: Vec<Vertex> = ids.iter().filter_map(|id| topology.vertices.get(id)).cloned().collect();
    Walk { vertices, text: None }
}

/// Everybody, in an order that all of them agree on.
fn job(settings: &Settings) -> String {
    let hosts: BTreeSet<&str> = settings.peers.iter().chain([&settings.source]).map(String::as_str).collect();
    hosts.into_iter().collect::<Vec<_>>().join(",")
}

/// The parameters of every path route. `algo` is always sent: some routes take its absence for an algorithm of its own.
pub fn pair(settings: &Settings, peer: &str) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("source", settings.source.clone()),
        ("destination", peer.to_owned()),
        ("direction", "outbound".to_owned()),
        ("algo", settings.algo.to_string()),
    ])
}
