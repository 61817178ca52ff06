//! The load book of `/shortest_path/load`: each answer adds to the load of its edges.
//!
//! The load of an edge is the original load of its document plus a step for every allocation on it. So released
//! allocations leave no trace, in whatever order they are released, and a topology that is read again keeps its
//! allocations.

use std::collections::BTreeMap;

use serde_json::{Number, Value, json};

use crate::store::Store;

/// Load that one allocation adds to each of its edges.
const STEP: i64 = 10;

/// Error of the API's own arithmetic for a load that exists but is null.
const NULL_LOAD: &str = "unsupported operand type(s) for +: 'NoneType' and 'int'";

/// The graph and the pair for which a path is allocated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    pub graph: String,
    /// Id of the sender.
    pub source: String,
    /// Id of the receiver.
    pub destination: String,
}

/// One edge with allocations.
#[derive(Clone, Debug)]
struct Carried {
    /// `load` before any allocation; `None` if there was none.
    before: Option<Value>,
    /// Number of allocations on the edge.
    allocations: i64,
}

/// All current allocations.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// Ids of the edges of each allocation of a pair; the newest is the last.
    held: BTreeMap<Pair, Vec<Vec<String>>>,
    /// Edges with allocations, by id.
    edges: BTreeMap<String, Carried>,
}

impl Book {
    /// Adds to the load of every edge, and returns the resulting loads. If one of the loads cannot be counted, nothing
    /// is written.
    pub fn allocate(&mut self, store: &mut Store, pair: Pair, edges: Vec<String>) -> Value {
        let is_null = |id: &String| store.edge(id).is_some_and(|edge| edge.get("load").is_some_and(Value::is_null));
        if edges.iter().any(is_null) {
            return failed();
        }
        for id in &edges {
            let before = || store.edge(id).and_then(|edge| edge.get("load").cloned());
            let carried = self.edges.entry(id.clone()).or_insert_with(|| Carried { before: before(), allocations: 0 });
            carried.allocations += 1;
        }
        self.write(store, &edges);
        let answer = loads(store, &edges);
        self.held.entry(pair).or_default().push(edges);
        answer
    }

    /// Releases the newest allocation of a pair. Returns the keys of its edges, or `None` if the pair has no
    /// allocation.
    pub fn release(&mut self, store: &mut Store, pair: &Pair) -> Option<Vec<String>> {
        let held = self.held.get_mut(pair)?;
        let edges = held.pop()?;
        if held.is_empty() {
            self.held.remove(pair);
        }
        for id in &edges {
            if let Some(carried) = self.edges.get_mut(id) {
                carried.allocations -= 1;
            }
        }
        self.write(store, &edges);
        self.edges.retain(|_, carried| carried.allocations > 0);
        Some(edges.iter().map(|id| key(id)).collect())
    }

    /// Removes every allocation of a graph, and sets all its loads to zero. Edges that had no load have none again.
    pub fn reset(&mut self, store: &mut Store, graph: &str) {
        self.held.retain(|pair, _| pair.graph != graph);
        let ids: Vec<String> = store.edge_ids(graph);
        for id in ids {
            let had = match self.edges.remove(&id) {
                Some(carried) => carried.before.is_some(),
                None => store.edge(&id).is_some_and(|edge| edge.contains_key("load")),
            };
            store.set_load(&id, had.then(|| json!(0)));
        }
        // Entries that remain belong to edges that the file no longer contains.
        self.edges.retain(|id, _| id.split_once('/').is_none_or(|(of, _)| of != graph));
    }

    /// Adds all allocations to the documents of a file that was read again.
    pub fn apply(&mut self, store: &mut Store) {
        let ids: Vec<String> = self.edges.keys().cloned().collect();
        for (id, carried) in &mut self.edges {
            carried.before = store.edge(id).and_then(|edge| edge.get("load").cloned());
        }
        self.write(store, &ids);
    }

    /// Returns the number of current allocations by graph.
    pub fn allocations(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for (pair, held) in &self.held {
            *counts.entry(pair.graph.as_str()).or_default() += held.len();
        }
        counts
    }

    /// Writes the loads of these edges from the book to their documents.
    fn write(&self, store: &mut Store, edges: &[String]) {
        for id in edges {
            let Some(carried) = self.edges.get(id) else { continue };
            let load = if carried.allocations == 0 {
                carried.before.clone()
            } else {
                Some(plus(carried.before.as_ref(), carried.allocations * STEP))
            };
            store.set_load(id, load);
        }
    }
}

/// Adds to a load. The sum of integers is an integer.
#[allow(clippy::cast_precision_loss, reason = "loads are small")]
fn plus(before: Option<&Value>, more: i64) -> Value {
    match before.and_then(Value::as_number) {
        None => json!(more),
        Some(number) => match number.as_i64().and_then(|whole| whole.checked_add(more)) {
            Some(whole) => json!(whole),
            None => Number::from_f64(number.as_f64().unwrap_or(0.0) + more as f64).map_or(Value::Null, Value::Number),
        },
    }
}

fn key(id: &str) -> String {
    id.split_once('/').map_or(id, |(_, key)| key).to_owned()
}

/// Returns `load_data` with the current loads.
#[allow(clippy::cast_precision_loss, reason = "a path has few edges")]
fn loads(store: &Store, edges: &[String]) -> Value {
    let load = |id: &String| store.edge(id).and_then(|edge| edge.get("load").cloned()).unwrap_or(json!(0));
    let loads: Vec<(String, Value)> = edges.iter().map(|id| (key(id), load(id))).collect();
    let sum: f64 = loads.iter().filter_map(|(_, load)| load.as_f64()).sum();
    let whole = loads.iter().try_fold(0i64, |sum, (_, load)| sum.checked_add(load.as_i64()?));
    let total = whole.map_or(json!(sum), Value::from);
    // For a path without edges, Jalapeno has the integer zero.
    let average = if loads.is_empty() { json!(0) } else { json!(sum / loads.len() as f64) };
    let mut highest: (Value, Value) = (Value::Null, json!(0));
    for (key, load) in &loads {
        // Among equal loads the first counts.
        if load.as_f64() > highest.1.as_f64() {
            highest = (json!(key), load.clone());
        }
    }
    json!({
        "updated_edges": loads.iter().map(|(key, _)| key).collect::<Vec<_>>(),
        "edge_loads": loads.iter().map(|(key, load)| json!({ "edge_key": key, "load": load })).collect::<Vec<_>>(),
        "average_load": average,
        "total_load": total,
        "edge_count": loads.len(),
        "highest_load": { "edge_key": highest.0, "load_value": highest.1 },
    })
}

fn failed() -> Value {
    json!({
        "error": NULL_LOAD, "updated_edges": [], "edge_loads": [], "average_load": 0, "total_load": 0, "edge_count": 0,
        "highest_load": { "edge_key": null, "load_value": 0 },
    })
}
