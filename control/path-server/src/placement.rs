//! `POST /graphs/{graph}/placement`: all flows of a job at once, where `/shortest_path/load` goes one by one.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use srv6d_placement::{Fabric, Job, Report, compare, sids};

use crate::parameters::Refusal;
use crate::server::Shared;
use crate::store::text;

/// A job, and how it is to be answered.
#[derive(Debug, Deserialize)]
struct Body {
    /// Of the hashes that placement is compared with.
    #[serde(default = "first_seed")]
    ecmp_seed: u64,
    /// Flows listed at most.
    #[serde(default = "every_flow")]
    flows: usize,
    /// The rest: unknown keys are its to refuse.
    #[serde(flatten)]
    job: Map<String, Value>,
}

const fn first_seed() -> u64 {
    1
}

const fn every_flow() -> usize {
    usize::MAX
}

/// Places the job on the graph as it is now: what is down carries nothing. Books no load.
pub async fn place(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let document = {
        let inner = shared.read();
        let unknown = || Refusal::not_found(format!("Graph {graph} not found"));
        let edges = inner.store.edges(&graph).filter(|_| inner.store.is_graph(&graph)).ok_or_else(unknown)?;
        let vertices = inner.store.vertices(&graph).ok_or_else(unknown)?;
        let vertices: Map<String, Value> =
            vertices.into_iter().filter_map(|vertex| Some((text(vertex, "_id")?.to_owned(), json!(vertex)))).collect();
        json!({ "edges": edges, "vertices": vertices })
    };
    // A million pairs take seconds: other requests are answered meanwhile.
    let placed = tokio::task::spawn_blocking(move || answer(&document, &body));
    let failed = |why| Refusal::Status(StatusCode::INTERNAL_SERVER_ERROR, format!("placement stopped: {why}"));
    placed.await.map_err(failed)?.map(Json)
}

fn answer(document: &Value, body: &[u8]) -> Result<Value, Refusal> {
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
    serde_json::to_value(&report).map_err(|why| bad(&why))
}
