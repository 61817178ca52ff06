//! A fake syd controller with the API of a real one. Tests can request, drain and empty its allocation table, and make
//! it fail.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream::{self, Stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

/// Nodes of the controller, with the uSIDs of their leaves.
pub const NODES: [(&str, u16); 3] = [("gpu-a", 0x1), ("gpu-b", 0x2), ("gpu-c", 0x28)];

struct Workload {
    endpoints: Vec<String>,
    state: &'static str,
    drain_reason: Option<String>,
    has_lease: bool,
    changes: broadcast::Sender<()>,
}

/// An answer in place of the correct one.
#[derive(Clone)]
struct Fault {
    method: &'static str,
    end_of_path: String,
    status: u16,
    body: &'static str,
}

#[derive(Default)]
struct Book {
    workloads: BTreeMap<String, Workload>,
    /// Event streams of former allocation tables, which stay open but send nothing more.
    orphans: Vec<broadcast::Sender<()>>,
    /// The spine of every path.
    spine: u16,
    /// A pair that could not be placed, which the controller only logs.
    unplaced: Option<(String, String)>,
    /// Flows between leaves in place of flows between hosts.
    leaf_pair_flows: Value,
    faults: Vec<Fault>,
    without_events: bool,
    log: Vec<(String, Value)>,
}

/// A running server.
pub struct Syd {
    pub url: String,
    book: Arc<Mutex<Book>>,
    task: JoinHandle<()>,
}

impl Drop for Syd {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Syd {
    pub async fn start() -> Self {
        let book = Arc::new(Mutex::new(Book { spine: 4, ..Book::default() }));
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/paths/request", post(request))
            .route("/paths/{workload}", get(workload))
            .route("/paths/{workload}/flows", get(flows))
            .route("/paths/{workload}/events", get(events))
            .route("/paths/{workload}/heartbeat", post(heartbeat))
            .route("/paths/{workload}/complete", post(complete))
            .layer(middleware::from_fn_with_state(Arc::clone(&book), fault))
            .with_state(Arc::clone(&book));
        let task = tokio::spawn(async move { drop(axum::serve(listener, router).await) });
        Self { url, book, task }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    /// Allocates a workload as if another host had requested it first.
    pub fn grant(&self, workload: &str, endpoints: &[&str], has_lease: bool) {
        let endpoints = endpoints.iter().map(|id| (*id).to_owned()).collect();
        self.book().grant(workload, endpoints, has_lease);
    }

    /// Changes the topology, so that every path changes, and sends an event.
    pub fn move_to(&self, spine: u16) {
        self.book().spine = spine;
        self.tell();
    }

    /// Sends an event for every workload.
    pub fn tell(&self) {
        for workload in self.book().workloads.values() {
            let _ = workload.changes.send(());
        }
    }

    pub fn drain(&self, workload: &str, reason: &str) {
        let mut book = self.book();
        let workload = book.workloads.get_mut(workload).unwrap();
        (workload.state, workload.drain_reason) = ("draining", Some(reason.to_owned()));
        let _ = workload.changes.send(());
    }

    /// Replaces the allocation table by an empty one, as after a change of a watched source.
    pub fn recompose(&self) {
        let mut book = self.book();
        let gone = std::mem::take(&mut book.workloads);
        book.orphans.extend(gone.into_values().map(|workload| workload.changes));
    }

    pub fn leave_out(&self, pair: Option<(&str, &str)>) {
        self.book().unplaced = pair.map(|(from, to)| (from.to_owned(), to.to_owned()));
    }

    pub fn answer_leaf_pairs(&self, flows: Value) {
        self.book().leaf_pair_flows = flows;
    }

    pub fn end_every_stream(&self) {
        self.book().without_events = true;
    }

    /// Sets a fault: requests with this method and this end of the path are answered with the given status and body.
    pub fn fail(&self, method: &'static str, end_of_path: &str, status: u16, body: &'static str) {
        self.book().faults.push(Fault { method, end_of_path: end_of_path.to_owned(), status, body });
    }

    pub fn recover(&self) {
        self.book().faults.clear();
    }

    /// Returns the bodies of all requests so far with this method and this end of the path.
    pub fn heard(&self, method: &str, end_of_path: &str) -> Vec<Value> {
        let matches = |line: &&(String, Value)| line.0.starts_with(method) && line.0.ends_with(end_of_path);
        self.book().log.iter().filter(matches).map(|(_, body)| body.clone()).collect()
    }
}

impl Book {
    fn grant(&mut self, id: &str, endpoints: Vec<String>, has_lease: bool) {
        let changes = broadcast::channel(16).0;
        let workload = Workload { endpoints, state: "active", drain_reason: None, has_lease, changes };
        if let Some(before) = self.workloads.insert(id.to_owned(), workload) {
            self.orphans.push(before.changes);
        }
    }

    fn view(&self, id: &str) -> Option<Value> {
        let Workload { endpoints, state, drain_reason, .. } = self.workloads.get(id)?;
        let mut view = json!({
            "workload_id": id, "topology_id": "fabric", "state": state,
            "path_count": endpoints.len() * (endpoints.len() - 1), "created_at": "2026-06-26T10:00:00Z",
        });
        if let (Some(view), Some(reason)) = (view.as_object_mut(), drain_reason) {
            view.insert("drain_reason".to_owned(), json!(reason));
        }
        Some(view)
    }

    /// Returns a flow with slots of 32 bits: the leaf and its uplink, the spine and its downlink, the other leaf; three
    /// slots per container.
    fn flow(&self, from: &str, to: &str) -> Value {
        let usid = |id: &str| NODES.iter().find(|(name, _)| *name == id).unwrap().1;
        let (source, destination, spine) = (usid(from), usid(to), self.spine);
        let container = format!("fc00:0:{source:x}:e00{spine:x}:{spine:x}:e0{destination:02x}:{destination:x}:0");
        json!({
            "src_node_id": from, "dst_node_id": to, "path_id": format!("{from}-{to}"), "segment_list": [container],
            "encap_flavor": "H.Encaps.Red", "outer_da": container,
        })
    }
}

type Shared = State<Arc<Mutex<Book>>>;

fn error(status: u16, error: &str, detail: &[String]) -> Response {
    (StatusCode::from_u16(status).unwrap(), Json(json!({ "error": error, "detail": detail }))).into_response()
}

fn unknown(workload: &str) -> Response {
    error(404, &format!("workload {workload} not found"), &[])
}

/// Logs every request, and answers with a fault in place of the routes if one is set.
async fn fault(State(book): Shared, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let line = format!("{} {}", parts.method, parts.uri.path());
    let fault = {
        let mut book = book.lock().unwrap();
        book.log.push((line, serde_json::from_slice(&body).unwrap_or_default()));
        let applies =
            |fault: &&Fault| parts.method == fault.method && parts.uri.path().ends_with(fault.end_of_path.as_str());
        book.faults.iter().find(applies).cloned()
    };
    match fault {
        Some(fault) => (StatusCode::from_u16(fault.status).unwrap(), fault.body).into_response(),
        None => next.run(Request::from_parts(parts, body.into())).await,
    }
}

async fn request(State(book): Shared, body: Bytes) -> Response {
    let mut book = book.lock().unwrap();
    let Ok(body) = serde_json::from_slice::<Value>(&body) else { return error(400, "invalid request body", &[]) };
    if body["topology_id"] != "fabric" {
        return error(404, "topology not found", &[]);
    }
    let ids: Vec<String> =
        body["endpoints"].as_array().unwrap().iter().map(|end| end["id"].as_str().unwrap().to_owned()).collect();
    let unresolved = |id: &&String| !NODES.iter().any(|(name, _)| name == id);
    let unresolved: Vec<String> =
        ids.iter().filter(unresolved).map(|id| format!("endpoint {id:?} not found")).collect();
    if !unresolved.is_empty() {
        return error(422, "endpoints do not resolve", &unresolved);
    }
    let id = body["workload_id"].as_str().unwrap();
    if book.workloads.get(id).is_some_and(|workload| workload.state == "active") {
        return error(409, "workload exists", &[]);
    }
    book.grant(id, ids, body["lease_duration_seconds"].is_u64());
    let view = book.view(id);
    Json(view).into_response()
}

async fn workload(State(book): Shared, Path(id): Path<String>) -> Response {
    let view = book.lock().unwrap().view(&id);
    view.map_or_else(|| unknown(&id), |view| Json(view).into_response())
}

async fn flows(State(book): Shared, Path(id): Path<String>) -> Response {
    let book = book.lock().unwrap();
    let Some(workload) = book.workloads.get(&id) else { return unknown(&id) };
    let ends = &workload.endpoints;
    let pairs = ends.iter().flat_map(|from| ends.iter().map(move |to| (from, to))).filter(|(from, to)| from != to);
    let placed =
        |(from, to): &(&String, &String)| book.unplaced.as_ref().is_none_or(|pair| (&pair.0, &pair.1) != (from, to));
    let flows: Vec<Value> = pairs.filter(placed).map(|(from, to)| book.flow(from, to)).collect();
    let flows = if book.leaf_pair_flows.is_null() { json!(flows) } else { Value::Null };
    let leaf_pair_flows = book.leaf_pair_flows.clone();
    Json(json!({"workload_id": id, "topology_id": "fabric", "flows": flows, "leaf_pair_flows": leaf_pair_flows}))
        .into_response()
}

/// Streams one event at the connection, one per change, and ends with the workload.
async fn events(State(shared): Shared, Path(id): Path<String>) -> Response {
    let book = shared.lock().unwrap();
    let Some(workload) = book.workloads.get(&id) else { return unknown(&id) };
    if book.without_events {
        return Sse::new(stream::iter([Ok::<_, Infallible>(event(book.view(&id)))])).into_response();
    }
    let first = stream::iter([Ok(event(book.view(&id)))]);
    let changes = changes(Arc::clone(&shared), id, workload.changes.subscribe());
    Sse::new(stream::StreamExt::chain(first, changes)).into_response()
}

fn changes(
    book: Arc<Mutex<Book>>,
    id: String,
    changes: broadcast::Receiver<()>,
) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold((book, id, changes), |(book, id, mut changes)| async move {
        changes.recv().await.ok()?;
        let view = book.lock().unwrap().view(&id);
        Some((Ok(event(view)), (book, id, changes)))
    })
}

fn event(view: Option<Value>) -> Event {
    Event::default().event("workload_state").data(view.unwrap_or_default().to_string())
}

async fn heartbeat(State(book): Shared, Path(id): Path<String>) -> Response {
    match book.lock().unwrap().workloads.get(&id) {
        None => unknown(&id),
        Some(Workload { state: "active", has_lease: true, .. }) => StatusCode::NO_CONTENT.into_response(),
        Some(_) => error(409, "workload is not active or has no lease", &[]),
    }
}

async fn complete(State(book): Shared, Path(id): Path<String>) -> Response {
    match book.lock().unwrap().workloads.remove(&id) {
        None => unknown(&id),
        Some(_) => StatusCode::NO_CONTENT.into_response(),
    }
}
