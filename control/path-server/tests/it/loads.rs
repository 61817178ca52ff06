//! Tests of the load book. After any order of allocations, releases, resets and rereads, an edge has the load of its
//! document plus 10 for every current allocation, and released allocations leave no trace.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
#![allow(clippy::float_cmp, reason = "halves and quarters, whose sums are exact")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use srv6d_path_server::{Running, Server, Store};

const NODES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum Operation {
    Allocate(usize, usize),
    Release(usize, usize),
    /// The file is read again.
    Read,
    Reset,
}

fn step() -> impl Strategy<Value = Operation> {
    let pair = || (0..NODES.len(), 0..NODES.len());
    prop_oneof![
        8 => pair().prop_map(|(a, b)| Operation::Allocate(a, b)),
        6 => pair().prop_map(|(a, b)| Operation::Release(a, b)),
        1 => Just(Operation::Read),
        1 => Just(Operation::Reset),
    ]
}

/// Generates the `load` of an edge's document.
fn load() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        2 => Just(None),
        1 => Just(Some(Value::Null)),
        4 => (0u32..40).prop_map(|load| Some(json!(load))),
        2 => (0u32..40).prop_map(|load| Some(json!(f64::from(load) + 0.5))),
    ]
}

/// Builds a topology with edges between all pairs of nodes in both directions.
fn topology(loads: &[Option<Value>]) -> Value {
    let mut edges = Vec::new();
    for from in NODES {
        for to in NODES.into_iter().filter(|to| *to != from) {
            let id = |name| format!("fabric_node/{name}");
            let mut edge = json!({ "_key": format!("{from}{to}"), "_from": id(from), "_to": id(to) });
            if let Some(load) = loads.get(edges.len()).cloned().flatten() {
                edge["load"] = load;
            }
            edges.push(edge);
        }
    }
    let nodes: Vec<Value> = NODES.iter().map(|name| json!({ "_key": name, "name": name, "sids": [] })).collect();
    json!({ "nodes": nodes, "hosts": [], "edges": edges })
}

/// The expected loads, by key of the edge.
struct Model {
    before: BTreeMap<String, Option<Value>>,
    held: BTreeMap<(usize, usize), Vec<Vec<String>>>,
}

impl Model {
    fn new(topology: &Value) -> Self {
        let edges = topology["edges"].as_array().unwrap().iter();
        let before = edges.map(|edge| (edge["_key"].as_str().unwrap().to_owned(), edge.get("load").cloned()));
        Self { before: before.collect(), held: BTreeMap::new() }
    }

    fn loads(&self) -> BTreeMap<String, Option<Value>> {
        let crossing = |key: &String| self.held.values().flatten().flatten().filter(|edge| *edge == key).count();
        let load = |(key, before): (&String, &Option<Value>)| {
            let more = u32::try_from(crossing(key)).unwrap() * 10;
            let load = match before {
                _ if more == 0 => before.clone(),
                None => Some(json!(more)),
                Some(before) if before.is_f64() => Some(json!(before.as_f64().unwrap() + f64::from(more))),
                // The load is null only if the file was read again with current allocations.
                Some(before) => Some(json!(before.as_u64().unwrap_or(0) + u64::from(more))),
            };
            (key.clone(), load)
        };
        self.before.iter().map(load).collect()
    }
}

struct Api {
    server: Running,
    client: reqwest::Client,
    file: String,
}

impl Api {
    fn url(&self, route: &str) -> String {
        format!("{}/api/v1/graphs/fabric_graph/{route}", self.server.url())
    }

    fn load(&self, from: usize, to: usize) -> String {
        let (from, to) = (NODES[from], NODES[to]);
        self.url(&format!("shortest_path/load?source=fabric_node/{from}&destination=fabric_node/{to}"))
    }

    async fn loads(&self) -> BTreeMap<String, Option<Value>> {
        let topology: Value = reqwest::get(self.url("topology")).await.unwrap().json().await.unwrap();
        let edges = topology["edges"].as_array().unwrap().iter();
        edges.map(|edge| (edge["_key"].as_str().unwrap().to_owned(), edge.get("load").cloned())).collect()
    }

    /// Makes the step in server and model, and checks that they agree.
    async fn step(&self, model: &mut Model, step: &Operation) -> Result<(), TestCaseError> {
        match *step {
            Operation::Allocate(from, to) => self.allocate(model, (from, to)).await,
            Operation::Release(from, to) => self.release(model, (from, to)).await,
            Operation::Read => {
                self.server.replace(Store::parse(&self.file).unwrap());
                let fresh = Model::new(&serde_json::from_str(&self.file).unwrap());
                model.before = fresh.before;
                Ok(())
            }
            Operation::Reset => {
                self.client.post(self.url("shortest_path/load/reset")).send().await.unwrap();
                model.held.clear();
                for load in model.before.values_mut().flatten() {
                    *load = json!(0);
                }
                Ok(())
            }
        }
    }

    async fn allocate(&self, model: &mut Model, pair: (usize, usize)) -> Result<(), TestCaseError> {
        let answer: Value = reqwest::get(self.load(pair.0, pair.1)).await.unwrap().json().await.unwrap();
        let data = &answer["load_data"];
        let edges = |list: &Value| -> Vec<String> { serde_json::from_value(list.clone()).unwrap() };
        let path: Vec<&Value> = answer["path"].as_array().unwrap().iter().skip(1).map(|step| &step["edge"]).collect();
        let before = model.loads();
        let null = path.iter().any(|edge| before[edge["_key"].as_str().unwrap()] == Some(Value::Null));
        prop_assert_eq!(data.get("error").is_some(), null, "{}", data);
        for edge in &path {
            let load = before[edge["_key"].as_str().unwrap()].clone().unwrap_or_default();
            prop_assert_eq!(&edge["load"], &load, "as it was before");
        }
        if null {
            return Ok(());
        }
        let updated = edges(&data["updated_edges"]);
        prop_assert_eq!(&updated, &path.iter().map(|edge| edge["_key"].as_str().unwrap()).collect::<Vec<_>>());
        model.held.entry(pair).or_default().push(updated.clone());
        let after = model.loads();
        let sum: f64 = updated.iter().map(|key| after[key].as_ref().unwrap().as_f64().unwrap()).sum();
        prop_assert_eq!(data["total_load"].as_f64().unwrap(), sum);
        Ok(())
    }

    async fn release(&self, model: &mut Model, pair: (usize, usize)) -> Result<(), TestCaseError> {
        let response = self.client.delete(self.load(pair.0, pair.1)).send().await.unwrap();
        let status = response.status().as_u16();
        let answer: Value = response.json().await.unwrap();
        match model.held.get_mut(&pair).and_then(Vec::pop) {
            None => prop_assert_eq!(status, 404, "nothing is left to give back: {}", answer),
            Some(taken) => prop_assert_eq!(&answer["updated_edges"], &json!(taken), "what was taken last"),
        }
        Ok(())
    }
}

async fn play(loads: Vec<Option<Value>>, steps: Vec<Operation>) -> Result<(), TestCaseError> {
    let topology = topology(&loads);
    let file = topology.to_string();
    let store = Store::parse(&file).unwrap();
    let server = Server { store, ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap();
    let api = Api { server, client: reqwest::Client::new(), file };
    let mut model = Model::new(&topology);
    for step in &steps {
        api.step(&mut model, step).await?;
        prop_assert_eq!(api.loads().await, model.loads(), "after {:?}", step);
    }
    // All allocations are released in another order than they were made.
    let held: Vec<(usize, usize)> =
        model.held.iter().flat_map(|(pair, held)| std::iter::repeat_n(*pair, held.len())).collect();
    for pair in held {
        api.release(&mut model, pair).await?;
    }
    prop_assert_eq!(api.loads().await, model.before);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn edges_carry_what_is_allocated_and_nothing_else(
        loads in prop::collection::vec(load(), 12),
        steps in prop::collection::vec(step(), 0..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(loads, steps))?;
    }
}
