//! Requests the paths to one peer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use super::answer::{AnsweredPath, Judged};
use super::client::{Client, Looked};
use super::peer::{ComposedPrefixes, compose_prefixes};
use super::{Criterion, Settings, is_id};
use crate::document::{Topology, Vertex};
use crate::failure::Failure;
use crate::http::Repeat;
use crate::snapshot::Cause;
use srv6d_text::{MAX_NAME, shown_up_to};

/// Peers for which an allocation is being requested. If the answer does not arrive, the allocation may count
/// nevertheless.
#[derive(Debug, Default)]
pub struct Begun(Mutex<BTreeSet<String>>);

impl Begun {
    fn begin(&self, peer: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(peer.to_owned());
    }

    /// Removes a peer whose answer was processed.
    pub fn end(&self, peer: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(peer);
    }

    /// Removes and returns the peers whose answers were never processed.
    pub fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What is needed to request the paths to a peer.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'t> {
    pub settings: &'t Settings,
    pub client: &'t Client,
    /// The topology, if it is known already; first bookings are made without one.
    pub looked: Option<&'t Looked>,
    pub begun: &'t Begun,
}

/// A peer to ask for, and what is known of it.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Id of the peer.
    pub peer: String,
    /// Ids along the path that was allocated to the peer.
    pub allocated: Option<Vec<String>>,
    /// True if the controller may have allocated a path that this task does not know.
    pub unanswered: bool,
}

/// An answer that was processed.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The paths to program, or why there are none.
    pub composed: Result<ComposedPrefixes, Failure>,
    /// Ids along a new allocation, even if its path cannot be composed.
    pub allocated: Option<Vec<String>>,
    /// Whether the controller could not record the allocation in its books.
    pub unbooked: bool,
}

impl Asker<'_> {
    /// Requests the paths to a peer, checks them, and composes their carriers.
    ///
    /// # Errors
    /// If there is no answer, or one that cannot be used.
    pub async fn ask(&self, question: &Question) -> Result<Answered, Failure> {
        let peer = &question.peer;
        if !is_id(peer) {
            let what = format!("{peer:?} is not the id of a vertex; write collection/key, e.g. \"hosts/host00\"");
            return Err(Failure::new(Cause::Refused, what));
        }
        let is_load = self.settings.kind == Criterion::Load;
        if let Some(Looked { topology, .. }) = self.looked {
            if !topology.vertices.contains_key(peer) {
                return Err(self.why_unknown(peer).await);
            }
            if let Some(ids) = question.allocated.as_ref().filter(|_| is_load)
                && topology.missing_on(ids).is_none()
            {
                let composed = self.compose(peer, &[remembered(ids, topology)]);
                return Ok(Answered { composed, allocated: None, unbooked: false });
            }
        }
        if is_load && (question.allocated.is_some() || question.unanswered) {
            // An allocation on a path that is gone or unknown keeps counting if the server cannot release it.
            let _ = self.client.release(&pair(self.settings, peer)).await;
        }
        self.ask_server(peer, is_load).await
    }

    async fn ask_server(&self, peer: &str, is_load: bool) -> Result<Answered, Failure> {
        let (route, mut query) = self.settings.kind.route();
        query.extend(pair(self.settings, peer));
        if self.settings.kind == Criterion::Placed {
            query.insert("hosts", job(self.settings));
        }
        if is_load {
            self.begun.begin(peer);
        }
        let repeat = if is_load { Repeat::Never } else { Repeat::Safe };
        let raw = self.client.paths(route, &query, repeat).await?;
        let answered = raw.judge(&self.settings.kind, &self.settings.source, peer)?;
        let allocated = answered.paths.first().filter(|_| is_load).map(AnsweredPath::ids);
        let composed = self.compose(peer, &answered.paths).map(|composed| self.annotate(composed, &answered));
        Ok(Answered { composed, allocated, unbooked: answered.unbooked.is_some() })
    }

    /// Adds observations about an answer as notes for the user.
    fn annotate(&self, mut composed: ComposedPrefixes, answered: &Judged) -> ComposedPrefixes {
        if answered.cut {
            composed.notes.push("as many paths as `limit` allows: there may be more".to_owned());
        }
        if answered.longer > 0 {
            let (kept, longer) = (answered.paths.len(), answered.longer);
            let count = kept + longer;
            composed.notes.push(format!(
                "{longer} of {count} paths left out: they have more hops than the shortest; flows use the other {kept}"
            ));
        }
        if let (Criterion::Sovereignty { excluded }, Some(looked)) = (&self.settings.kind, self.looked) {
            for code in excluded.iter().filter(|code| !looked.topology.has_country(code)) {
                composed.notes.push(format!(
                    "no link of {} is in the excluded country {code}; codes are those of the links' `country_codes`",
                    self.settings.graph
                ));
            }
        }
        if let Some(why) = &answered.unbooked {
            composed.notes.push(format!("the controller could not note the load: {why}"));
        }
        composed
    }

    /// Composes the carriers of paths, and adds a note if a path has more hops than needed. Weights do not limit hops:
    /// if all of them are zero, a detour of six hops has the same weight as the shortest path.
    fn compose(&self, peer: &str, found: &[AnsweredPath]) -> Result<ComposedPrefixes, Failure> {
        let address = self.client.address();
        let Some(Looked { topology, hops }) = self.looked else {
            let vertices: Vec<Vertex> = found.iter().flat_map(|path| path.vertices.clone()).collect();
            return compose_prefixes(found, &Topology::of_path(&vertices), self.settings, address);
        };
        let mut composed = compose_prefixes(found, topology, self.settings, address)?;
        let longest = found.iter().map(AnsweredPath::hops).max().unwrap_or(0);
        if let Some(fewest) = hops.get(peer).filter(|fewest| **fewest < longest) {
            composed.notes.push(format!("the path has {longest} hops, the shortest one {fewest}"));
        }
        Ok(composed)
    }

    /// Returns why the topology does not have a peer. A typing error looks like a partition; the keys of the collection
    /// show which of the two it is.
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

fn remembered(ids: &[String], topology: &Topology) -> AnsweredPath {
    let vertices: Vec<Vertex> = ids.iter().filter_map(|id| topology.vertices.get(id)).cloned().collect();
    AnsweredPath { vertices, text: None }
}

/// Returns the ids of this node and all peers, sorted, so that all of them send the same list.
fn job(settings: &Settings) -> String {
    let hosts: BTreeSet<&str> = settings.peers.iter().chain([&settings.source]).map(String::as_str).collect();
    hosts.into_iter().collect::<Vec<_>>().join(",")
}

/// Returns the parameters of every path route. `algo` is always sent, because some routes have a default of their own.
pub fn pair(settings: &Settings, peer: &str) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("source", settings.source.clone()),
        ("destination", peer.to_owned()),
        ("direction", "outbound".to_owned()),
        ("algo", settings.algo.to_string()),
    ])
}
