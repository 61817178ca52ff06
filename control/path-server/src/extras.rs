//! Routes that Jalapeno does not have.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query as AxumQuery, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use crate::load::Pair;
use crate::parameters::{Parameter, Query, Refusal, Values, required};
use crate::router;
use crate::server::{Inner, Shared};

const PAIR: [Parameter; 2] = [required("source"), required("destination")];

/// Takes back the newest allocation of a pair.
pub async fn release(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Result<Json<Value>, Refusal> {
    let values = Values::read(&PAIR, &query)?;
    let pair =
        Pair { graph, source: values.text("source").to_owned(), destination: values.text("destination").to_owned() };
    router::beside(shared, move |shared, _| {
        let mut inner = shared.write();
        let Inner { store, book } = &mut *inner;
        let Some(edges) = book.release(store, &pair) else {
            let Pair { source, destination, .. } = &pair;
            return Err(Refusal::not_found(format!("no load is allocated from {source} to {destination}")));
        };
        Ok(Json(json!({ "released": true, "updated_edges": edges })))
    })
    .await
}

/// Every load of the graph to zero, every allocation forgotten.
pub async fn reset(State(shared): State<Shared>, Path(graph): Path<String>) -> Result<Json<Value>, Refusal> {
    router::beside(shared, move |shared, _| {
        let mut inner = shared.write();
        let Inner { store, book } = &mut *inner;
        if !store.is_graph(&graph) {
            return Err(Refusal::not_found(format!("Graph {graph} not found")));
        }
        book.reset(store, &graph);
        Ok(Json(json!({ "reset": true })))
    })
    .await
}

/// `{"up": false}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Switch {
    up: bool,
}

impl Switch {
    /// Of whatever content type: `curl -d` calls it a form.
    fn read(body: &[u8]) -> Result<Self, Refusal> {
        let fix = "write {\"up\": true} or {\"up\": false}";
        serde_json::from_slice(body).map_err(|why| Refusal::bad_request(format!("{why}; {fix}")))
    }
}

/// Switches an edge of a graph, by key.
pub async fn switch_edge(
    State(shared): State<Shared>,
    Path((graph, key)): Path<(String, String)>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let (id, up) = (format!("{graph}/{key}"), Switch::read(&body)?.up);
    router::beside(shared, move |shared, _| set_up(shared, &graph, &id, up)).await
}

/// Switches a vertex, by collection and key: in every graph.
pub async fn switch_vertex(
    State(shared): State<Shared>,
    Path((graph, collection, key)): Path<(String, String, String)>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let (id, up) = (format!("{collection}/{key}"), Switch::read(&body)?.up);
    router::beside(shared, move |shared, _| set_up(shared, &graph, &id, up)).await
}

fn set_up(shared: &Shared, graph: &str, id: &str, up: bool) -> Result<Json<Value>, Refusal> {
    {
        let mut inner = shared.write();
        if !inner.store.is_graph(graph) {
            return Err(Refusal::not_found(format!("Graph {graph} not found")));
        }
        if !inner.store.set_up(id, up) {
            return Err(Refusal::not_found(format!("{id} is neither a vertex nor an edge")));
        }
    }
    shared.announce();
    Ok(Json(json!({ "name": id, "up": up })))
}

/// One event at the beginning, and one per change of the topology.
pub async fn events(State(shared): State<Shared>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let changes = shared.changes.subscribe();
    let first = shared.read().store.revision();
    let event =
        |revision: u64| Ok(Event::default().event("topology").data(json!({ "revision": revision }).to_string()));
    let stream = stream::unfold((Some(first), changes, shared), move |(first, mut changes, shared)| async move {
        if let Some(revision) = first {
            return Some((event(revision), (None, changes, shared)));
        }
        let revision = match changes.recv().await {
            Ok(revision) => revision,
            Err(RecvError::Lagged(_)) => shared.read().store.revision(),
            Err(RecvError::Closed) => return None,
        };
        Some((event(revision), (None, changes, shared)))
    });
    Sse::new(stream).keep_alive(KeepAlive::new().interval(Duration::from_secs(15)))
}
