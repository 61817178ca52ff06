//! Tests of the routes that Jalapeno does not have: switched links and nodes, events, loads that are reset.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::square;

use std::time::Duration;

use serde_json::{Value, json};
use square::{found, names, server, square, start};
use srv6d_path_server::{Running, Store};

const G: &str = "graphs/igpv6_graph";
const PAIR: &str = "source=hosts/host0&destination=hosts/host1";
/// Timeout for anything that these tests wait for; longer than any of it takes.
const DEADLINE: Duration = Duration::from_secs(30);

/// Sends a request as `curl -X PATCH -d` does, without declaring JSON.
async fn patch(server: &Running, route: &str, body: &str) -> (u16, Value) {
    let request = reqwest::Client::new().patch(format!("{}/api/v1/{route}", server.url()));
    let form = "application/x-www-form-urlencoded";
    let response = request.header("content-type", form).body(body.to_owned()).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

async fn path(server: &Running) -> String {
    names(&found(server, &format!("{G}/shortest_path?{PAIR}")).await["path"]).join(" ")
}

#[tokio::test]
async fn links_and_nodes_are_taken_out_and_back_in() {
    let server = server().await;
    for route in [format!("{G}/edges/a_b"), format!("{G}/vertices/igp_node/b")] {
        let (status, answer) = patch(&server, &route, "{\"up\": false}").await;
        assert_eq!((status, &answer["up"]), (200, &json!(false)), "{route}");
        assert_eq!(path(&server).await, "host0 a c d host1", "{route}");
        assert_eq!(patch(&server, &route, "{\"up\": true}").await.0, 200, "{route}");
        assert_eq!(path(&server).await, "host0 a b d host1", "{route}");
    }
}

#[tokio::test]
async fn switches_that_are_none_are_refused_in_words() {
    let server = server().await;
    let edge = format!("{G}/edges/a_b");
    for body in ["", "{\"up\": 1}", "{\"down\": true}", "up"] {
        let (status, answer) = patch(&server, &edge, body).await;
        assert_eq!(status, 400, "{body}");
        assert!(answer["detail"].as_str().unwrap().ends_with("write {\"up\": true} or {\"up\": false}"), "{answer}");
    }
    for (route, detail) in [
        ("graphs/nosuch/edges/a_b".to_owned(), "Graph nosuch not found"),
        (format!("{G}/edges/x_y"), "igpv6_graph/x_y is neither a vertex nor an edge"),
        (format!("{G}/vertices/igp_node/x"), "igp_node/x is neither a vertex nor an edge"),
    ] {
        assert_eq!(patch(&server, &route, "{\"up\": false}").await, (404, json!({ "detail": detail })));
    }
    assert_eq!(path(&server).await, "host0 a b d host1", "nothing was switched");
    let client = reqwest::Client::new();
    let got = client.get(format!("{}/api/v1/{edge}", server.url())).send().await.unwrap();
    assert_eq!((got.status().as_u16(), got.headers()["allow"].to_str().unwrap()), (405, "PATCH"));
}

#[tokio::test]
async fn edge_of_one_graph_is_not_that_of_another() {
    let mut topology = square();
    let edges = topology["edges"].as_array_mut().unwrap();
    let other = json!({ "_id": "other_graph/a_b", "_from": "igp_node/a", "_to": "igp_node/b" });
    edges.push(other);
    let server = start(&topology).await;
    assert_eq!(patch(&server, "graphs/other_graph/edges/a_b", "{\"up\": false}").await.0, 200);
    assert_eq!(path(&server).await, "host0 a b d host1");
    assert_eq!(found(&server, "graphs/other_graph/edges").await["edge_count"], 0);
}

/// Returns the revisions of the next `count` events.
async fn revisions(stream: &mut reqwest::Response, count: usize) -> Vec<u64> {
    let mut text = String::new();
    while text.matches("\n\n").count() < count {
        let chunk = tokio::time::timeout(DEADLINE, stream.chunk()).await.unwrap().unwrap().unwrap();
        text += std::str::from_utf8(&chunk).unwrap();
    }
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str::<Value>(data).unwrap()["revision"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn events_tell_of_the_topology_and_not_of_loads() {
    let server = server().await;
    let url = format!("{}/api/v1/{G}/events", server.url());
    let mut stream = reqwest::get(url).await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    assert_eq!(revisions(&mut stream, 1).await, [0]);
    patch(&server, &format!("{G}/edges/a_b"), "{\"up\": false}").await;
    assert_eq!(revisions(&mut stream, 1).await, [1]);
    found(&server, &format!("{G}/shortest_path/load?{PAIR}")).await;
    assert!(!server.set_up("igp_node/nosuch", false), "and nothing is told of it");
    server.replace(Store::parse(&square().to_string()).unwrap());
    assert_eq!(revisions(&mut stream, 1).await, [2], "only the file");
    assert_eq!(path(&server).await, "host0 a c d host1", "what is switched off stays so");
    // The server stops although a listener is connected.
    tokio::time::timeout(DEADLINE, server.stop()).await.unwrap();
}

#[tokio::test]
async fn reset_forgets_every_allocation() {
    let server = server().await;
    let load = format!("{G}/shortest_path/load?{PAIR}");
    found(&server, &load).await;
    let client = reqwest::Client::new();
    let reset = client.post(format!("{}/api/v1/{G}/shortest_path/load/reset", server.url()));
    assert_eq!(reset.send().await.unwrap().json::<Value>().await.unwrap(), json!({ "reset": true }));
    let detail = found(&server, &format!("{G}/edges/detail")).await;
    let loads: Vec<&Value> = detail["edges"].as_array().unwrap().iter().map(|edge| &edge["metrics"]["load"]).collect();
    assert_eq!(loads.iter().filter(|load| ***load == 0).count(), 8, "{loads:?}");
    assert_eq!(loads.iter().filter(|load| load.is_null()).count(), 4, "host edges have none again: {loads:?}");
    let nothing = client.delete(format!("{}/api/v1/{load}", server.url())).send().await.unwrap();
    assert_eq!(nothing.status(), 404);
}

#[tokio::test]
async fn topology_that_is_kept_is_never_an_old_one() {
    let server = server().await;
    let topology = async || found(&server, &format!("{G}/topology")).await;
    let load = async || topology().await["edges"][0]["load"].clone();
    assert_eq!((load().await, load().await), (json!(0), json!(0)));
    found(&server, &format!("{G}/shortest_path/load?{PAIR}")).await;
    assert_eq!((load().await, load().await), (json!(10), json!(10)));
    let url = format!("{}/api/v1/{G}/shortest_path/load?{PAIR}", server.url());
    reqwest::Client::new().delete(url).send().await.unwrap();
    assert_eq!(load().await, 0);
    patch(&server, &format!("{G}/vertices/igp_node/b"), "{\"up\": false}").await;
    assert_eq!(
        (topology().await["total_edges"].clone(), topology().await["total_vertices"].clone()),
        (json!(8), json!(5))
    );
    let some = found(&server, &format!("{G}/topology?include_all_fields=false")).await;
    assert_eq!(some["edges"][0].as_object().unwrap().len(), 2, "each request has its own");
    server.replace(Store::parse(&square().to_string()).unwrap());
    patch(&server, &format!("{G}/vertices/igp_node/b"), "{\"up\": true}").await;
    assert_eq!(topology().await["total_edges"], 12);
}
