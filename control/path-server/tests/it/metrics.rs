//! Tests that `/metrics` counts requests and shows the current state.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::square;

use serde_json::json;
use square::square;
use srv6d_path_server::{FaultPlan, Running, Server, Store};

const PAIR: &str = "source=hosts/host0&destination=hosts/host1";

async fn server(rules: serde_json::Value) -> Running {
    let store = Store::parse(&square().to_string()).unwrap();
    let faults = FaultPlan::parse(&rules.to_string()).unwrap();
    Server { store, faults, ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap()
}

async fn ask(server: &Running, path: &str) {
    reqwest::get(format!("{}{path}", server.url())).await.unwrap();
}

async fn metrics(server: &Running) -> String {
    let response = reqwest::get(format!("{}/metrics", server.url())).await.unwrap();
    let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    response.text().await.unwrap()
}

/// Returns the value of the metric with this name and labels.
fn value(text: &str, name: &str) -> Option<f64> {
    let line =
        text.lines().find_map(|line| line.strip_prefix("srv6d_path_server_")?.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

#[tokio::test]
async fn requests_are_counted_by_route_and_status_never_by_what_they_say() {
    let server = server(json!([])).await;
    for name in ["igpv6_graph", "nosuch", "other"] {
        ask(&server, &format!("/api/v1/graphs/{name}/shortest_path?{PAIR}")).await;
    }
    ask(&server, "/nowhere").await;
    ask(&server, "/somewhere/else").await;
    let text = metrics(&server).await;
    let route = "/api/v1/graphs/{graph}/shortest_path";
    let requests =
        |status| value(&text, &format!("requests_total{{method=\"GET\",route=\"{route}\",status=\"{status}\"}}"));
    assert_eq!((requests(200), requests(500)), (Some(1.0), Some(2.0)), "{text}");
    assert_eq!(value(&text, "requests_total{method=\"GET\",route=\"none\",status=\"404\"}"), Some(2.0), "{text}");
    let durations = format!("request_duration_seconds_count{{route=\"{route}\"}}");
    assert_eq!(value(&text, &durations), Some(3.0), "{text}");
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn allocations_and_the_topology_are_shown_as_they_are() {
    let server = server(json!([])).await;
    let load = format!("/api/v1/graphs/igpv6_graph/shortest_path/load?{PAIR}");
    ask(&server, &load).await;
    ask(&server, &load).await;
    server.set_up("igp_node/b", false);
    server.replace(Store::parse(&square().to_string()).unwrap());
    let text = metrics(&server).await;
    let of_graph = |name: &str| value(&text, &format!("{name}{{graph=\"igpv6_graph\"}}"));
    assert_eq!(of_graph("allocations"), Some(2.0), "{text}");
    assert_eq!((of_graph("vertices"), of_graph("edges")), (Some(5.0), Some(8.0)), "{text}");
    assert_eq!((value(&text, "down"), value(&text, "topology_reads_total")), (Some(1.0), Some(1.0)), "{text}");
    assert_eq!(value(&text, "topology_revision"), Some(2.0), "{text}");
    reqwest::Client::new().delete(format!("{}{load}", server.url())).send().await.unwrap();
    server.set_up("igp_node/b", true);
    let text = metrics(&server).await;
    assert_eq!(value(&text, "allocations{graph=\"igpv6_graph\"}"), Some(1.0), "{text}");
    assert_eq!((value(&text, "down"), value(&text, "edges{graph=\"igpv6_graph\"}")), (Some(0.0), Some(12.0)), "{text}");
}

#[tokio::test]
async fn faults_are_counted_and_never_happen_to_metrics() {
    let server = server(json!([{ "fault": { "status": 503 } }])).await;
    for _ in 0..3 {
        ask(&server, "/api/v1/graphs").await;
    }
    let text = metrics(&server).await;
    assert_eq!(value(&text, "faults_total{fault=\"status\"}"), Some(3.0), "{text}");
    assert_eq!(server.requests(), 3, "reading metrics is no request of a client");
}
