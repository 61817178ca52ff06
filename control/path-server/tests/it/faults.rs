//! Tests that faults occur according to their rules.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::time::Duration;

use serde_json::{Value, json};
use srv6d_path_server::{FaultPlan, Running, Server, Store};

const FABRIC: &str = include_str!("../../../controller/tests/data/2026-01-topology.json");

async fn server(rules: Value) -> Running {
    let faults = FaultPlan::parse(&rules.to_string()).unwrap();
    let server = Server { store: Store::parse(FABRIC).unwrap(), faults, ..Server::default() };
    server.start("[::1]:0".parse().unwrap()).await.unwrap()
}

fn url(server: &Running) -> String {
    let pair = "source=hosts/srv6-pytorch-0&destination=hosts/srv6-pytorch-2";
    format!("{}/api/v1/graphs/fabric_graph/shortest_path?{pair}", server.url())
}

#[tokio::test]
async fn rules_count_their_requests() {
    let server =
        server(json!([{ "route": "shortest_path", "after": 1, "count": 2, "fault": { "status": 503 } }])).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let response = reqwest::get(url(&server)).await.unwrap();
        seen.push((response.status().as_u16(), response.text().await.unwrap().is_empty()));
    }
    assert_eq!(seen, [(200, false), (503, true), (503, true), (200, false)]);
    assert_eq!(server.requests(), 4);
}

#[tokio::test]
async fn every_fault_is_what_it_says() {
    let cut = server(json!([{ "fault": { "cut": 20 } }])).await;
    assert!(reqwest::get(url(&cut)).await.unwrap().text().await.is_err());
    let garbled = server(json!([{ "fault": "garble" }])).await;
    assert!(reqwest::get(url(&garbled)).await.unwrap().json::<Value>().await.is_err());
    let lost = server(json!([{ "fault": "not_found" }])).await;
    assert_eq!(reqwest::get(url(&lost)).await.unwrap().json::<Value>().await.unwrap()["found"], false);
    let other = server(json!([{ "fault": { "other_destination": "hosts/x" } }])).await;
    let answer: Value = reqwest::get(url(&other)).await.unwrap().json().await.unwrap();
    assert_eq!(answer["destination_info"]["_id"], "hosts/x");
    let silent = server(json!([{ "fault": "silence" }])).await;
    let client = reqwest::Client::builder().timeout(Duration::from_millis(200)).build().unwrap();
    assert!(client.get(url(&silent)).send().await.unwrap_err().is_timeout());
}

#[tokio::test]
async fn stale_answers_are_those_of_the_first_time() {
    let server = server(json!([{ "route": "shortest_path", "after": 1, "fault": "stale" }])).await;
    let first = reqwest::get(url(&server)).await.unwrap().text().await.unwrap();
    server.set_up("fabric_node/10.0.0.0_spine00", false);
    assert_eq!(reqwest::get(url(&server)).await.unwrap().text().await.unwrap(), first);
}

#[test]
fn fault_that_is_none_is_refused_where_it_stands() {
    let why = |text: &str| FaultPlan::parse(text).unwrap_err();
    let status = why("[{\"fault\": \"silence\"},\n {\"fault\": {\"status\": 42}}]");
    assert_eq!(status.line(), 2);
    assert!(status.to_string().starts_with("status 42: write one from 200 to 599"), "{status}");
    assert!(why("[{\"fault\": \"explode\"}]").to_string().contains("expected one of `delay`, `status`"));
}
