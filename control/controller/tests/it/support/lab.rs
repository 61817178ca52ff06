//! The recorded fabric of three leaves and three spines on a path server, and a source that uses it.
#![allow(dead_code, clippy::unwrap_used, clippy::indexing_slicing, reason = "every test file uses its part of it")]

use std::time::Duration;

use serde_json::{Value, json};
use srv6d_controller::jalapeno::{Criterion, Settings, run};
use srv6d_controller::{Allowed, Cause, MAX_ANSWER, PeerState, Snapshot};
use srv6d_path_server::{FaultPlan, Running, Server, Store};

use super::Source;

pub const FABRIC: &str = include_str!("../../data/2026-01-topology.json");
pub const NEAR: &str = "hosts/srv6-pytorch-1";
pub const FAR: &str = "hosts/srv6-pytorch-2";

pub async fn server(rules: Value) -> Running {
    start(Server { faults: FaultPlan::parse(&rules.to_string()).unwrap(), ..Server::default() }).await
}

/// Starts a server with the recorded fabric, whose loads are set to zero.
pub async fn start(server: Server) -> Running {
    let mut fabric: Value = serde_json::from_str(FABRIC).unwrap();
    for edge in fabric["edges"].as_array_mut().unwrap() {
        if let Some(load) = edge.get_mut("load") {
            *load = json!(0);
        }
    }
    let store = Store::parse(&fabric.to_string()).unwrap();
    Server { store, ..server }.start("[::1]:0".parse().unwrap()).await.unwrap()
}

pub fn settings(server: &Running) -> Settings {
    settings_at(server.url())
}

pub fn settings_at(endpoint: String) -> Settings {
    Settings {
        endpoint,
        graph: "fabric_graph".to_owned(),
        source: "hosts/srv6-pytorch-0".to_owned(),
        peers: vec![NEAR.to_owned(), FAR.to_owned()],
        kind: Criterion::Shortest,
        algo: 0,
        strict: false,
        function_v6: None,
        function_v4: None,
        ca: None,
        interval: Duration::from_millis(50),
        timeout: Duration::from_secs(20),
        max_answer: MAX_ANSWER,
        allowed: Allowed::default(),
        concurrency: 8,
        state: None,
    }
}

pub fn follow(settings: Settings) -> Source {
    Source::start(|publish, commands| run(settings, publish, commands))
}

pub fn all_fresh(snapshot: &Snapshot) -> bool {
    snapshot.health.successes > 0 && snapshot.peers.values().all(|peer| peer.state == PeerState::Fresh)
}

pub fn is_stale(snapshot: &Snapshot, peer: &str) -> bool {
    snapshot.peers.get(peer).is_some_and(|peer| matches!(peer.state, PeerState::Stale { .. }))
}

pub fn is_missing(snapshot: &Snapshot, peer: &str) -> bool {
    snapshot.peers.get(peer).is_some_and(|peer| peer.state == PeerState::Missing)
}

pub async fn get(server: &Running, path: &str) -> Value {
    reqwest::get(format!("{}/api/v1/{path}", server.url())).await.unwrap().json().await.unwrap()
}

/// Returns the sum of all loads in the server's books.
pub async fn load(server: &Running) -> u64 {
    let topology = get(server, "graphs/fabric_graph/topology").await;
    topology["edges"].as_array().unwrap().iter().filter_map(|edge| edge["load"].as_u64()).sum()
}

/// Returns a timeout that is long enough for a busy machine, and short if a test waits until it expires.
pub fn patience(cause: Cause) -> Duration {
    if cause == Cause::Timeout { Duration::from_secs(3) } else { Duration::from_secs(20) }
}
