//! `/rpo`: the endpoint whose own metric is best, and the way to it.

use serde_json::{Value, json};

use crate::answers::{self, Asked};
use crate::parameters::{Parameters, Query, Refusal, direction};
use crate::search::{Graph, Weight};
use crate::server::Shared;
use crate::store::{Document, text};

/// How values of a metric are compared.
const METRICS: [(&str, &str); 10] = [
    ("cpu_utilization", "minimize"),
    ("gpu_utilization", "minimize"),
    ("memory_utilization", "minimize"),
    ("time_to_first_token", "minimize"),
    ("cost_per_million_tokens", "minimize"),
    ("cost_per_hour", "minimize"),
    ("response_time", "minimize"),
    ("gpu_model", "exact_match"),
    ("language_model", "exact_match"),
    ("available_capacity", "maximize"),
];

/// `select-optimal` over a whole collection, `select-from-list` over `destinations`.
pub fn select(shared: &Shared, collection: &str, query: &Query, from_list: bool) -> Result<Value, Refusal> {
    let mut parameters = Parameters::new(query);
    let (source, metric, graphs) =
        (parameters.required("source"), parameters.required("metric"), parameters.required("graphs"));
    let listed = if from_list { parameters.required("destinations") } else { "" };
    let algo = parameters.integer("algo", 0);
    let (value, way) = (parameters.text("value"), parameters.text("direction").unwrap_or("outbound"));
    parameters.finish()?;
    let inner = shared.read();
    let missing = || Refusal::Status(axum::http::StatusCode::NOT_FOUND, format!("Collection {collection} not found"));
    let documents = inner.store.documents(collection).ok_or_else(missing)?;
    let listed: Vec<&str> = listed.split(',').map(str::trim).collect();
    let candidates: Vec<&Document> = documents
        .iter()
        .filter(|document| !from_list || text(document, "_id").is_some_and(|id| listed.contains(&id)))
        .collect();
    let strategy =
        METRICS.iter().find(|(name, _)| *name == metric).map(|(_, strategy)| *strategy).ok_or_else(|| {
            let names: Vec<&str> = METRICS.iter().map(|(name, _)| *name).collect();
            let text = format!("Unsupported metric {metric}; supported: {}", names.join(", "));
            Refusal::Status(axum::http::StatusCode::BAD_REQUEST, text)
        })?;
    let best = best(&candidates, metric, value, strategy);
    let valid = candidates.iter().filter(|document| document.get(metric).is_some_and(|value| !value.is_null())).count();
    let Some(best) = best else {
        let text = format!("No valid endpoints found for metric {metric}");
        return Err(Refusal::Status(axum::http::StatusCode::NOT_FOUND, text));
    };
    let id = text(best, "_id").unwrap_or_default();
    let graph = Graph::new(&inner.store, graphs, direction(Some(way))?, algo).ok_or_else(Refusal::swallowed)?;
    let path = graph.shortest(source, id, Weight::Hops);
    let asked = Asked { direction: way.to_owned(), algo, edition: shared.edition };
    let path = path.map_or_else(
        || answers::not_found("No path found between specified nodes"),
        |walk| Value::Object(answers::one(&walk, &asked, None, false)),
    );
    Ok(json!({
        "collection": collection,
        "source": source,
        "selected_endpoint": best,
        "optimization_metric": metric,
        "metric_value": best.get(metric),
        "optimization_strategy": strategy,
        "algo": algo,
        "total_endpoints_evaluated": candidates.len(),
        "valid_endpoints_count": valid,
        "path_result": path,
        "summary": { "destination": id, "path_found": path.get("found"), "hop_count": path.get("hopcount") },
    }))
}

fn best<'d>(candidates: &[&'d Document], metric: &str, value: Option<&str>, strategy: &str) -> Option<&'d Document> {
    let number = |document: &&&Document| document.get(metric).and_then(Value::as_f64);
    let numbered = || candidates.iter().filter(|document| number(document).is_some());
    let ascending =
        |a: &&&'d Document, b: &&&'d Document| number(a).unwrap_or(0.0).total_cmp(&number(b).unwrap_or(0.0));
    match strategy {
        "minimize" => numbered().min_by(ascending).copied(),
        // The first of equals here too.
        "maximize" => numbered().rev().max_by(ascending).copied(),
        _ => candidates.iter().find(|document| text(document, metric) == value).copied(),
    }
}

/// `/rpo`: what can be asked.
pub fn metrics() -> Value {
    json!({ "supported_metrics": METRICS.iter().map(|(name, strategy)| (*name, *strategy)).collect::<std::collections::BTreeMap<_, _>>() })
}
