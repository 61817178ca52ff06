//! Routes that Jalapeno does not have.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query as AxumQuery, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use crate::load::Pair;
use crate::parameters::{Parameter, Query, Refusal, Values, required};
use crate::router;
use crate::server::{Inner, LISTENERS, Shared};

const PAIR: [Parameter; 2] = [required("source"), required("destination")];

/// Releases the newest allocation of a pair.
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

/// Sets every load of the graph to zero, and removes all its allocations.
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

/// The body `{"up": false}` or `{"up": true}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Switch {
    up: bool,
}

impl Switch {
    /// Reads the body with any content type, because `curl -d` declares it as a form.
    fn read(body: &[u8]) -> Result<Self, Refusal> {
        let fix = "write {\"up\": true} or {\"up\": false}";
        serde_json::from_slice(body).map_err(|why| Refusal::bad_request(format!("{why}; {fix}")))
    }
}

/// Switches an edge of a graph on or off, by key.
pub async fn switch_edge(
    State(shared): State<Shared>,
    Path((graph, key)): Path<(String, String)>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let (id, up) = (format!("{graph}/{key}"), Switch::read(&body)?.up);
    router::beside(shared, move |shared, _| set_up(shared, &graph, &id, up)).await
}

/// Switches a vertex on or off in every graph, by collection and key.
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

/// Streams one event at the beginning, and one per change of the topology. Only [`LISTENERS`] clients listen at a time.
pub async fn events(
    State(shared): State<Shared>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let place = Arc::clone(&shared.listeners).try_acquire_owned().map_err(|_| {
        let what = format!("{LISTENERS} clients listen to events already; close one of them, or poll /topology");
        Refusal::Status(StatusCode::SERVICE_UNAVAILABLE, what)
    })?;
    let changes = shared.changes.subscribe();
    let first = shared.read().store.revision();
    let event =
        |revision: u64| Ok(Event::default().event("topology").data(json!({ "revision": revision }).to_string()));
    let begin = (Some(first), changes, shared, place);
    let stream = stream::unfold(begin, move |(first, mut changes, shared, place)| async move {
        if let Some(revision) = first {
            return Some((event(revision), (None, changes, shared, place)));
        }
        let revision = match changes.recv().await {
            Ok(revision) => revision,
            Err(RecvError::Lagged(_)) => shared.read().store.revision(),
            Err(RecvError::Closed) => return None,
        };
        Some((event(revision), (None, changes, shared, place)))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))))
}
