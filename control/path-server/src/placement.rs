//! Placement of jobs. `POST /graphs/{graph}/placement` places all flows of a job at once, unlike `/shortest_path/load`,
//! which handles them one by one. `GET /graphs/{graph}/shortest_path/placed` returns one of the paths in the shape of
//! the other path routes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query as AxumQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use srv6d_placement::{Demand, Fabric, Job, NodeKind, Paths, Pattern, Report, compare, sids};

use crate::answers::{self, Asked, NO_PATH};
use crate::parameters::{Parameter, Query, Refusal, Values, integer, required, text as text_parameter};
use crate::search::GraphPath;
use crate::server::Shared;
use crate::store::{Store, text};

/// Maximum size of a body in bytes, sufficient for a job that lists a million pairs.
pub const MOST_BYTES: usize = 64 << 20;

/// A job, and options of the answer.
#[derive(Debug, Deserialize)]
struct Body {
    /// Seed of the ECMP hashes with which the placement is compared.
    #[serde(default = "first_seed")]
    ecmp_seed: u64,
    /// Maximum number of flows that the answer lists.
    #[serde(default = "every_flow")]
    flows: usize,
    /// The job itself, which refuses unknown keys.
    #[serde(flatten)]
    job: Map<String, Value>,
}

const fn first_seed() -> u64 {
    1
}

const fn every_flow() -> usize {
    usize::MAX
}

/// Places the job on the current graph, without vertices and edges that are down. Does not book any load.
pub async fn place(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    body: Bytes,
) -> Result<impl IntoResponse, Refusal> {
    let (document, _) = document(&shared, &graph)?;
    // A million pairs take seconds, and other requests are answered meanwhile.
    let placed = tokio::task::spawn_blocking(move || answer(&document, &body));
    let failed = |why| Refusal::Status(StatusCode::INTERNAL_SERVER_ERROR, format!("placement stopped: {why}"));
    Ok(([(CONTENT_TYPE, "application/json")], placed.await.map_err(failed)??))
}

/// Returns the graph as it is now, and its revision.
fn document(shared: &Shared, graph: &str) -> Result<(Value, u64), Refusal> {
    let inner = shared.read();
    let unknown = || Refusal::not_found(format!("Graph {graph} not found"));
    let edges = inner.store.edges(graph).filter(|_| inner.store.is_graph(graph)).ok_or_else(unknown)?;
    let vertices = inner.store.vertices(graph).ok_or_else(unknown)?;
    let vertices: Map<String, Value> =
        vertices.into_iter().filter_map(|vertex| Some((text(vertex, "_id")?.to_owned(), json!(vertex)))).collect();
    Ok((json!({ "edges": edges, "vertices": vertices }), inner.store.revision()))
}

/// Returns the answer as text. With a million flows, JSON values would take several times the memory of the text.
fn answer(document: &Value, body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let bad = |why: &dyn std::fmt::Display| Refusal::bad_request(why.to_string());
    let fix = "write a job, e.g. {\"pattern\": \"ring\"}";
    let body: Body = serde_json::from_slice(body).map_err(|why| bad(&format!("{why}; {fix}")))?;
    let job: Job = serde_json::from_value(Value::Object(body.job)).map_err(|why| bad(&format!("{why}; {fix}")))?;
    let fabric = Fabric::from_topology(document).map_err(|why| bad(&why))?;
    let (demand, constraints) = job.resolve(&fabric).map_err(|why| bad(&why))?;
    let comparison = compare(&fabric, &demand, &constraints, body.ecmp_seed).map_err(|why| bad(&why))?;
    let sids = sids(document);
    let report = Report {
        fabric: &fabric,
        demand: &demand,
        constraints: &constraints,
        comparison: &comparison,
        sids: sids.as_ref(),
        most_flows: body.flows,
    };
    serde_json::to_vec(&report).map_err(|why| bad(&why))
}

const PLACED: [Parameter; 5] = [
    required("source"),
    required("destination"),
    text_parameter("hosts", None),
    text_parameter("direction", Some("outbound")),
    integer("algo", Some(0)),
];

/// Maximum number of jobs whose placement is kept, because every host requests its own pairs of the same job.
const KEPT: usize = 8;

/// Identifies an all-to-all job: graph, revision of the topology, hosts.
type Key = (String, u64, String);

/// A job with its placed paths.
#[derive(Debug, Default)]
struct Placed {
    fabric: Fabric,
    demand: Demand,
    paths: Paths,
    flow_of: HashMap<(String, String), usize>,
}

/// Cache of recent placements.
#[derive(Debug, Default)]
pub struct Placements(Mutex<VecDeque<(Key, Arc<Placed>)>>);

impl Placements {
    /// Returns the placement of a job, and computes it if it is not in the cache. Concurrent requests for it wait.
    fn get(&self, key: Key, make: impl FnOnce() -> Result<Placed, Refusal>) -> Result<Arc<Placed>, Refusal> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, placed)) = kept.iter().find(|(known, _)| *known == key) {
            return Ok(Arc::clone(placed));
        }
        let placed = Arc::new(make()?);
        kept.truncate(KEPT - 1);
        kept.push_front((key, Arc::clone(&placed)));
        Ok(placed)
    }
}

/// Returns the path of one pair when `hosts` (by default, all hosts of the graph) send to each other. Unknown or
/// disconnected hosts have no path, but the others keep theirs.
pub async fn placed(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Result<Json<Value>, Refusal> {
    let values = Values::read(&PLACED, &query)?;
    if values.integer("algo") != Some(0) {
        return Err(Refusal::bad_request("placement knows no flexible algorithms; leave algo out".to_owned()));
    }
    let (document, revision) = document(&shared, &graph)?;
    let hosts = values.text("hosts").to_owned();
    let (key, placements) = ((graph.clone(), revision, hosts.clone()), Arc::clone(&shared.placements));
    let placed = tokio::task::spawn_blocking(move || placements.get(key, || all_to_all(&document, &hosts)));
    let failed = |why| Refusal::Status(StatusCode::INTERNAL_SERVER_ERROR, format!("placement stopped: {why}"));
    let placed = placed.await.map_err(failed)??;
    let pair = (values.text("source").to_owned(), values.text("destination").to_owned());
    let inner = shared.read();
    let walk = placed.flow_of.get(&pair).and_then(|flow| walk(&placed, *flow, &inner.store, &graph));
    let Some(walk) = walk else { return Ok(Json(answers::not_found(NO_PATH))) };
    let asked = Asked { direction: values.text("direction").to_owned(), algo: Some(0), edition: shared.edition };
    Ok(Json(Value::Object(answers::one(&walk, &asked, None, false))))
}

fn all_to_all(document: &Value, hosts: &str) -> Result<Placed, Refusal> {
    let bad = |why: &dyn std::fmt::Display| Refusal::bad_request(why.to_string());
    let fabric = Fabric::from_topology(document).map_err(|why| bad(&why))?;
    let listed = hosts.split(',').map(str::trim).filter(|host| !host.is_empty());
    let known = listed.filter(|host| fabric.find(host).is_some_and(|id| fabric.node(id).kind == NodeKind::Host));
    let mut known: Vec<String> = known.map(str::to_owned).collect();
    known.sort_unstable();
    known.dedup();
    if !hosts.is_empty() && known.len() < 2 {
        return Ok(Placed::default());
    }
    let job = Job { hosts: known, pattern: Some(Pattern::AllToAll), ..Job::default() };
    let (demand, constraints) = job.resolve(&fabric).map_err(|why| bad(&why))?;
    let demand = demand.connected(&fabric);
    if demand.flows.is_empty() {
        return Ok(Placed::default());
    }
    let paths = srv6d_placement::place(&fabric, &demand, &constraints).map_err(|why| bad(&why))?.paths;
    let id = |node| fabric.node(node).id.clone();
    let pairs = demand.flows.iter().map(|flow| (id(flow.source), id(flow.destination)));
    let flow_of = pairs.zip(0..).collect();
    Ok(Placed { fabric, demand, paths, flow_of })
}

/// Builds the path of a flow. Returns `None` if the topology has changed and no longer has the whole path.
fn walk<'s>(placed: &Placed, flow: usize, store: &'s Store, graph: &str) -> Option<GraphPath<'s>> {
    let links = placed.paths.links(&placed.fabric, &placed.demand, flow);
    let links: Vec<_> = links.into_iter().map(|link| placed.fabric.link(link)).collect();
    let source = links.first().map(|link| link.from);
    let nodes = source.into_iter().chain(links.iter().map(|link| link.to));
    let vertices = nodes.map(|node| store.vertex(&placed.fabric.node(node).id)).collect::<Option<_>>()?;
    let edges = links.iter().map(|link| store.edge(&format!("{graph}/{}", link.key))).collect::<Option<_>>()?;
    Some(GraphPath { vertices, edges })
}
