//! Tests that the description of the API is correct: every route in it exists, and requires the parameters that it
//! describes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::square;

use serde_json::{Value, json};
use square::server;

/// All routes that clients of Jalapeno may use.
const GET: [&str; 41] = [
    "/instances",
    "/graphs",
    "/graphs/{graph}",
    "/graphs/{graph}/info",
    "/graphs/{graph}/topology",
    "/graphs/{graph}/topology/nodes",
    "/graphs/{graph}/topology/nodes/algo",
    "/graphs/{graph}/edges",
    "/graphs/{graph}/edges/detail",
    "/graphs/{graph}/vertices",
    "/graphs/{graph}/vertices/keys",
    "/graphs/{graph}/vertices/ids",
    "/graphs/{graph}/vertices/algo",
    "/graphs/{graph}/vertices/summary",
    "/graphs/{graph}/shortest_path",
    "/graphs/{graph}/shortest_path/latency",
    "/graphs/{graph}/shortest_path/utilization",
    "/graphs/{graph}/shortest_path/load",
    "/graphs/{graph}/shortest_path/sovereignty",
    "/graphs/{graph}/shortest_path/best-paths",
    "/graphs/{graph}/shortest_path/next-best-path",
    "/graphs/{graph}/traverse",
    "/graphs/{graph}/traverse/simple",
    "/graphs/{graph}/neighbors",
    "/collections",
    "/collections/{collection}",
    "/collections/{collection}/keys",
    "/collections/{collection}/info",
    "/vpns",
    "/vpns/{collection}",
    "/vpns/{collection}/summary",
    "/vpns/{collection}/pe-routers",
    "/vpns/{collection}/route-targets",
    "/vpns/{collection}/prefixes/by-pe",
    "/vpns/{collection}/prefixes/by-rt",
    "/vpns/{collection}/prefixes/by-pe-rt",
    "/vpns/{collection}/prefixes/search",
    "/rpo",
    "/rpo/{collection}",
    "/rpo/{collection}/select-optimal",
    "/rpo/{collection}/select-from-list",
];

async fn json_at(url: &str) -> (u16, Value) {
    let response = reqwest::get(url).await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// Returns the parameters of the query: name, whether it is required, type.
fn query(operation: &Value) -> Vec<(&str, bool, &str)> {
    let parameters = operation["parameters"].as_array().unwrap().iter().filter(|one| one["in"] == "query");
    parameters
        .map(|one| {
            let name = one["name"].as_str().unwrap();
            (name, one["required"].as_bool().unwrap(), one["schema"]["type"].as_str().unwrap())
        })
        .collect()
}

#[tokio::test]
async fn every_route_is_described_and_answers() {
    let server = server().await;
    let (_, document) = json_at(&format!("{}/openapi.json", server.url())).await;
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    let paths = document["paths"].as_object().unwrap();
    for route in GET {
        let operation = &paths[&format!("/api/v1{route}")]["get"];
        assert!(!operation["summary"].as_str().unwrap().is_empty(), "{route}");
        let url = server.url() + "/api/v1" + &route.replace("{graph}", "igpv6_graph").replace("{collection}", "hosts");
        let required: Vec<&str> =
            query(operation).into_iter().filter(|(_, required, _)| *required).map(|(name, ..)| name).collect();
        let (status, answer) = json_at(&url).await;
        if required.is_empty() {
            assert_ne!(answer, json!({ "detail": "Not Found" }), "{route}: {status}");
        } else {
            assert_eq!(status, 422, "{route}");
            let missing: Vec<&str> =
                answer["detail"].as_array().unwrap().iter().map(|one| one["loc"][1].as_str().unwrap()).collect();
            assert_eq!(missing, required, "{route}");
        }
    }
    let described = paths.values().filter(|methods| methods.get("get").is_some()).count();
    assert_eq!(described, GET.len() + 2, "and events, and placed paths");
}

#[tokio::test]
async fn types_that_are_described_are_insisted_on() {
    let server = server().await;
    let (_, document) = json_at(&format!("{}/openapi.json", server.url())).await;
    let mut insisted = 0;
    for route in GET {
        let operation = &document["paths"][&format!("/api/v1{route}")]["get"];
        let url = server.url() + "/api/v1" + &route.replace("{graph}", "igpv6_graph").replace("{collection}", "hosts");
        for (name, _, kind) in query(operation).into_iter().filter(|(.., kind)| *kind != "string") {
            let (status, answer) = json_at(&format!("{url}?{name}=none")).await;
            assert_eq!(status, 422, "{route} takes none as {kind}");
            let named = answer["detail"].as_array().unwrap().iter().any(|one| one["loc"][1] == name);
            assert!(named, "{route}: {answer}");
            insisted += 1;
        }
    }
    assert!(insisted > 30, "{insisted}");
}

#[tokio::test]
async fn routes_beside_jalapenos_are_described_and_there() {
    let server = server().await;
    let (_, document) = json_at(&format!("{}/openapi.json", server.url())).await;
    let client = reqwest::Client::new();
    for (method, route, body) in [
        ("delete", "/graphs/{graph}/shortest_path/load", None),
        ("post", "/graphs/{graph}/shortest_path/load/reset", None),
        ("get", "/graphs/{graph}/shortest_path/placed", None),
        ("post", "/graphs/{graph}/placement", Some(json!({ "pattern": "ring" }))),
        ("patch", "/graphs/{graph}/edges/{key}", Some(json!({ "up": true }))),
        ("patch", "/graphs/{graph}/vertices/{collection}/{key}", Some(json!({ "up": true }))),
    ] {
        let operation = &document["paths"][&format!("/api/v1{route}")][method];
        assert_eq!(operation["requestBody"].is_object(), body.is_some(), "{route}");
        let path = route.replace("{graph}", "nosuch").replace("{collection}", "hosts").replace("{key}", "nosuch");
        let url = format!("{}/api/v1{path}?source=a/b&destination=a/c", server.url());
        let mut request = client.request(method.to_uppercase().parse().unwrap(), url);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 404, "{route}");
        let answer: Value = response.json().await.unwrap();
        assert_ne!(answer["detail"], "Not Found", "{route} says what there is none of");
    }
}

#[tokio::test]
async fn page_for_people_lists_them_all() {
    let server = server().await;
    let response = reqwest::get(format!("{}/docs", server.url())).await.unwrap();
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/html"));
    let page = response.text().await.unwrap();
    for route in GET {
        assert!(page.contains(&format!("<code>/api/v1{route}</code>")), "{route}");
    }
}
