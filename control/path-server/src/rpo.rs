//! The routes of `/rpo`: the endpoint with the best value of its own metric, and the path to it.

#![allow(clippy::unnecessary_wraps, reason = "every route answers alike")]

use std::cmp::Ordering;

use serde_json::{Map, Value, json};

use crate::answers::{self, NO_PATH};
use crate::asking::Asking;
use crate::parameters::Refusal;
use crate::search::Weight;
use crate::store::{Document, text};

type Answer = Result<Value, Refusal>;

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

pub fn metrics(asking: &Asking<'_>) -> Answer {
    let metric = |(name, kind, strategy): &(&str, &str, &str)| {
        ((*name).to_owned(), json!({ "type": kind, "optimize": strategy }))
    };
    let looks_like_graph = |name: &&String| {
        let name = name.to_lowercase();
        ["graph", "topology", "network"].iter().any(|part| name.contains(part))
            && !["domain", "node", "vertex"].iter().any(|part| name.contains(part))
    };
    let mut graphs: Vec<&String> =
        asking.store.graphs().chain(asking.store.collections()).filter(looks_like_graph).collect();
    graphs.sort();
    Ok(json!({
        "supported_metrics": METRICS.iter().map(metric).collect::<Map<_, _>>(),
        "description": "The endpoint with the best value of a metric, and the shortest path to it",
        "available_graph_collections": graphs,
        "note": "graphs names the graph that the path is looked for in",
    }))
}

pub fn collection(asking: &Asking<'_>) -> Answer {
    let documents = documents(asking)?;
    let limit = asking.values.limit("limit")?;
    let data: Vec<&Document> = documents.into_iter().take(limit).collect();
    Ok(json!({ "collection": asking.name, "type": "collection", "count": data.len(), "data": data }))
}

/// Returns the documents of a collection. These routes have meaningful status codes.
fn documents<'r>(asking: &Asking<'r>) -> Result<Vec<&'r Document>, Refusal> {
    let unknown = || Refusal::not_found(format!("Collection {} not found", asking.name));
    asking.store.documents(asking.name).ok_or_else(unknown)
}

/// Selects an endpoint of the whole collection.
pub fn select_optimal(asking: &Asking<'_>) -> Answer {
    let candidates = documents(asking)?;
    let strategy = strategy(asking)?;
    if candidates.is_empty() {
        return Err(Refusal::not_found(format!("No endpoints found in collection {}", asking.name)));
    }
    select(asking, strategy, &candidates, "total_endpoints_evaluated")
}

/// Selects an endpoint of the list `destinations`, of any collection. Unknown ones are skipped.
pub fn select_from_list(asking: &Asking<'_>) -> Answer {
    documents(asking)?;
    let strategy = strategy(asking)?;
    let listed = asking.values.text("destinations").split(',').map(str::trim);
    let id = |name: &str| if name.contains('/') { name.to_owned() } else { format!("{}/{name}", asking.name) };
    let candidates: Vec<&Document> = listed.filter_map(|name| asking.store.vertex(&id(name))).collect();
    if candidates.is_empty() {
        return Err(Refusal::not_found("No valid endpoints found in the provided list".to_owned()));
    }
    select(asking, strategy, &candidates, "total_candidates")
}

fn strategy(asking: &Asking<'_>) -> Result<&'static str, Refusal> {
    let metric = asking.values.text("metric");
    let known = METRICS.iter().find(|(name, ..)| *name == metric).map(|(.., strategy)| *strategy);
    known.ok_or_else(|| {
        let names: Vec<String> = METRICS.iter().map(|(name, ..)| format!("'{name}'")).collect();
        Refusal::bad_request(format!("Unsupported metric: {metric}. Supported metrics: [{}]", names.join(", ")))
    })
}

fn select(asking: &Asking<'_>, strategy: &str, candidates: &[&Document], total: &str) -> Answer {
    let metric = asking.values.text("metric");
    let (best, valid) = best(asking, candidates, metric, strategy)?;
    let destination = text(best, "_id").unwrap_or_default();
    let path = path(asking, destination);
    let mut answer = Map::new();
    answer.insert("collection".to_owned(), json!(asking.name));
    answer.insert("source".to_owned(), json!(asking.values.text("source")));
    answer.insert("selected_endpoint".to_owned(), json!(best));
    answer.insert("optimization_metric".to_owned(), json!(metric));
    answer.insert("metric_value".to_owned(), json!(best.get(metric)));
    answer.insert("optimization_strategy".to_owned(), json!(strategy));
    answer.insert("algo".to_owned(), json!(asking.values.integer("algo").unwrap_or(0)));
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
    asking: &Asking<'_>,
    candidates: &[&'d Document],
    metric: &str,
    strategy: &str,
) -> Result<(&'d Document, usize), Refusal> {
    if strategy == EXACT {
        let value = asking.values.written("value").filter(|value| !value.is_empty());
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
fn path(asking: &Asking<'_>, destination: &str) -> Value {
    let values = &asking.values;
    let Ok(graph) = asking.graph_of(values.text("graphs"), values.integer("algo")) else {
        return json!({ "found": false, "error": "", "message": NO_PATH });
    };
    match graph.shortest(values.text("source"), destination, Weight::Hops) {
        None => answers::not_found(NO_PATH),
        Some(walk) => Value::Object(answers::one(&walk, &asking.asked(), None, false)),
    }
}
