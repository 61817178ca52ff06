//! The routes of `/rpo`: the endpoint with the best value of its own metric, and the path to it.

#![allow(clippy::unnecessary_wraps, reason = "every route answers alike")]

use std::cmp::Ordering;

use serde_json::{Map, Value, json};

use crate::answers::{self, NO_PATH};
use crate::parameters::{Answer, Refusal};
use crate::request::RouteRequest;
use crate::search::Weight;
use crate::store::{Document, text};

/// Metrics of endpoints, with their types and the way in which values are compared.
const METRICS: [(&str, &str, &str); 9] = [
    ("cpu_utilization", "numeric", "minimize"),
    ("gpu_utilization", "numeric", "minimize"),
    ("memory_utilization", "numeric", "minimize"),
    ("time_to_first_token", "numeric", "minimize"),
    ("cost_per_million_tokens", "numeric", "minimize"),
    ("cost_per_hour", "numeric", "minimize"),
    ("gpu_model", "string", EXACT),
    ("language_model", "string", EXACT),
    ("response_time", "numeric", "minimize"),
];
const EXACT: &str = "exact_match";

pub fn metrics(request: &RouteRequest<'_>) -> Answer {
    let metric = |(name, kind, strategy): &(&str, &str, &str)| {
        ((*name).to_owned(), json!({ "type": kind, "optimize": strategy }))
    };
    let looks_like_graph = |name: &&String| {
        let name = name.to_lowercase();
        ["graph", "topology", "network"].iter().any(|part| name.contains(part))
            && !["domain", "node", "vertex"].iter().any(|part| name.contains(part))
    };
    let mut graphs: Vec<&String> =
        request.store.graphs().chain(request.store.collections()).filter(looks_like_graph).collect();
    graphs.sort();
    Ok(json!({
        "supported_metrics": METRICS.iter().map(metric).collect::<Map<_, _>>(),
        "description": "The endpoint with the best value of a metric, and the shortest path to it",
        "available_graph_collections": graphs,
        "note": "graphs names the graph that the path is looked for in",
    }))
}

pub fn collection(request: &RouteRequest<'_>) -> Answer {
    let documents = documents(request)?;
    let limit = request.values.limit("limit")?;
    let data: Vec<&Document> = documents.into_iter().take(limit).collect();
    Ok(json!({ "collection": request.name, "type": "collection", "count": data.len(), "data": data }))
}

/// Returns the documents of a collection. These routes have meaningful status codes.
fn documents<'r>(request: &RouteRequest<'r>) -> Result<Vec<&'r Document>, Refusal> {
    let unknown = || Refusal::not_found(format!("Collection {} not found", request.name));
    request.store.documents(request.name).ok_or_else(unknown)
}

/// Selects an endpoint of the whole collection.
pub fn select_optimal(request: &RouteRequest<'_>) -> Answer {
    let candidates = documents(request)?;
    let strategy = strategy(request)?;
    if candidates.is_empty() {
        return Err(Refusal::not_found(format!("No endpoints found in collection {}", request.name)));
    }
    select(request, strategy, &candidates, "total_endpoints_evaluated")
}

/// Selects an endpoint of the list `destinations`, of any collection. Unknown ones are skipped.
pub fn select_from_list(request: &RouteRequest<'_>) -> Answer {
    documents(request)?;
    let strategy = strategy(request)?;
    let listed = request.values.text("destinations").split(',').map(str::trim);
    let id = |name: &str| if name.contains('/') { name.to_owned() } else { format!("{}/{name}", request.name) };
    let candidates: Vec<&Document> = listed.filter_map(|name| request.store.vertex(&id(name))).collect();
    if candidates.is_empty() {
        return Err(Refusal::not_found("No valid endpoints found in the provided list".to_owned()));
    }
    select(request, strategy, &candidates, "total_candidates")
}

fn strategy(request: &RouteRequest<'_>) -> Result<&'static str, Refusal> {
    let metric = request.values.text("metric");
    let known = METRICS.iter().find(|(name, ..)| *name == metric).map(|(.., strategy)| *strategy);
    known.ok_or_else(|| {
        let names: Vec<String> = METRICS.iter().map(|(name, ..)| format!("'{name}'")).collect();
        Refusal::bad_request(format!("Unsupported metric: {metric}. Supported metrics: [{}]", names.join(", ")))
    })
}

fn select(request: &RouteRequest<'_>, strategy: &str, candidates: &[&Document], total: &str) -> Answer {
    let metric = request.values.text("metric");
    let (best, valid) = best(request, candidates, metric, strategy)?;
    let destination = text(best, "_id").unwrap_or_default();
    let path = path(request, destination);
    let mut answer = Map::new();
    answer.insert("collection".to_owned(), json!(request.name));
    answer.insert("source".to_owned(), json!(request.values.text("source")));
    answer.insert("selected_endpoint".to_owned(), json!(best));
    answer.insert("optimization_metric".to_owned(), json!(metric));
    answer.insert("metric_value".to_owned(), json!(best.get(metric)));
    answer.insert("optimization_strategy".to_owned(), json!(strategy));
    answer.insert("algo".to_owned(), json!(request.values.integer("algo").unwrap_or(0)));
    answer.insert(total.to_owned(), json!(candidates.len()));
    answer.insert("valid_endpoints_count".to_owned(), json!(valid));
    let summary = json!({
        "destination": destination,
        "destination_name": best.get("name").unwrap_or(&json!("Unknown")),
        "path_found": path.get("found"),
        "hop_count": path.get("hopcount").unwrap_or(&json!(0)),
    });
    answer.insert("path_result".to_owned(), path);
    answer.insert("summary".to_owned(), summary);
    Ok(Value::Object(answer))
}

/// Returns the best candidate, and the number of candidates with a usable value.
fn best<'d>(
    request: &RouteRequest<'_>,
    candidates: &[&'d Document],
    metric: &str,
    strategy: &str,
) -> Result<(&'d Document, usize), Refusal> {
    if strategy == EXACT {
        let value = request.values.written("value").filter(|value| !value.is_empty());
        let value =
            value.ok_or_else(|| Refusal::bad_request(format!("Value required for exact match metric: {metric}")))?;
        let mut equal = candidates.iter().filter(|document| text(document, metric) == Some(value));
        let best = equal.next();
        let best = best.ok_or_else(|| Refusal::not_found(format!("No endpoints found with {metric} = {value}")))?;
        return Ok((best, 1 + equal.count()));
    }
    let mut valid = Vec::new();
    for document in candidates {
        match document.get(metric).filter(|value| !value.is_null()) {
            None => {}
            Some(value) => {
                let number = value.as_f64();
                let number = number.ok_or_else(|| Refusal::Internal(format!("{metric} {value} is not a number")))?;
                valid.push((number, *document));
            }
        }
    }
    // Returns the first of equal values.
    let order = |a: &&(f64, &Document), b: &&(f64, &Document)| a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal);
    let best = valid.iter().min_by(order).map(|(_, document)| *document);
    let best = best.ok_or_else(|| Refusal::not_found(format!("No endpoints found with valid {metric} values")))?;
    Ok((best, valid.len()))
}

/// Returns an answer like that of `/shortest_path`. Without a parameter `algo` the algorithm is null, in which no IGP
/// node takes part.
fn path(request: &RouteRequest<'_>, destination: &str) -> Value {
    let values = &request.values;
    let Ok(graph) = request.graph_of(values.text("graphs"), values.integer("algo")) else {
        return json!({ "found": false, "error": "", "message": NO_PATH });
    };
    match graph.shortest(values.text("source"), destination, Weight::Hops) {
        None => answers::not_found(NO_PATH),
        Some(walk) => Value::Object(answers::one(&walk, &request.asked(), None, false)),
    }
}
