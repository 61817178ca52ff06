//! The load book of `/shortest_path/load`: each answer adds to the load of the edges it names.

use serde_json::{Value, json};

use crate::store::{Document, Store, text};

/// What one allocation adds to each of its edges.
const STEP: i64 = 10;

/// One answered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Where it was made.
    pub graph: String,
    /// Id of the sender.
    pub source: String,
    /// Id of the receiver.
    pub destination: String,
    /// Keys of its edges.
    pub edges: Vec<String>,
}

/// Load of an edge; one that has none counts 0.
fn load_of(edge: &Document) -> i64 {
    edge.get("load").and_then(Value::as_i64).unwrap_or(0)
}

/// Mean load before the allocation.
#[allow(clippy::cast_precision_loss, reason = "loads are small")]
pub fn average(edges: &[&Document]) -> f64 {
    let sum: i64 = edges.iter().map(|edge| load_of(edge)).sum();
    if edges.is_empty() { 0.0 } else { sum as f64 / edges.len() as f64 }
}

/// Adds to every edge, and says what the loads are then. An edge whose load is null makes the whole fail, in words.
#[allow(clippy::cast_precision_loss, reason = "loads are small")]
pub fn allocate(store: &mut Store, graph: &str, keys: &[String]) -> Value {
    let mut loads = Vec::new();
    for key in keys {
        let Some(edge) = store.edge_mut(graph, key) else { continue };
        if edge.get("load").is_some_and(Value::is_null) {
            return failed(&format!("load of {key} is null"));
        }
        let load = load_of(edge) + STEP;
        edge.insert("load".to_owned(), json!(load));
        loads.push((key, load));
    }
    let total: i64 = loads.iter().map(|(_, load)| load).sum();
    let average = if loads.is_empty() { 0.0 } else { total as f64 / loads.len() as f64 };
    // The first of equals.
    let highest = loads.iter().rev().max_by_key(|(_, load)| *load);
    json!({
        "updated_edges": keys,
        "edge_loads": loads.iter().map(|(key, load)| json!({ "edge_key": key, "load": load })).collect::<Vec<_>>(),
        "average_load": average,
        "total_load": total,
        "edge_count": loads.len(),
        "highest_load": highest.map(|(key, load)| json!({ "edge_key": key, "load_value": load })),
    })
}

fn failed(why: &str) -> Value {
    json!({
        "error": why, "updated_edges": [], "edge_loads": [], "average_load": 0.0, "total_load": 0, "edge_count": 0,
        "highest_load": null,
    })
}

/// Takes an allocation back.
pub fn release(store: &mut Store, allocation: &Allocation) {
    for key in &allocation.edges {
        if let Some(edge) = store.edge_mut(&allocation.graph, key) {
            let load = (load_of(edge) - STEP).max(0);
            edge.insert("load".to_owned(), json!(load));
        }
    }
}

/// All loads of a graph to zero; edges that have none keep none.
pub fn reset(store: &mut Store, graph: &str) {
    let keys: Vec<String> = store
        .documents(graph)
        .into_iter()
        .flatten()
        .filter(|edge| edge.contains_key("load"))
        .filter_map(|edge| text(edge, "_key").map(str::to_owned))
        .collect();
    for key in keys {
        if let Some(edge) = store.edge_mut(graph, &key) {
            edge.insert("load".to_owned(), json!(0));
        }
    }
}
