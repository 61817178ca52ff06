//! Tests that compare answers with recorded ones of Jalapeno's own API on the same graph, field by field and with the
//! order of keys. Differences that are unavoidable are removed: revisions, the order of vertices in `/topology`, and
//! `carriers`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use serde_json::{Value, json};
use srv6d_path_server::{Edition, Running, Server, Store};

fn recorded(name: &str) -> Value {
    let file = format!("{}/../controller/tests/data/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// Returns the recorded topology, which was taken after four allocations, with the loads before them.
fn fabric() -> Store {
    let mut topology = recorded("2026-01-topology");
    for edge in topology["edges"].as_array_mut().unwrap() {
        let edge = edge.as_object_mut().unwrap();
        if edge.contains_key("latency") {
            edge["load"] = json!(0);
        } else {
            edge.remove("load");
        }
    }
    // The recorded answer has its vertices in no order, but collections have the order of the file.
    topology["vertices"].as_object_mut().unwrap().sort_keys();
    Store::parse(&topology.to_string()).unwrap()
}

async fn server(edition: Edition) -> Running {
    let server = Server { store: fabric(), edition, ..Server::default() };
    server.start("[::1]:0".parse().unwrap()).await.unwrap()
}

async fn get(server: &Running, path: &str) -> (u16, Value) {
    let response = reqwest::get(format!("{}/api/v1/{path}", server.url())).await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// Adds an attribute that no edge has: the store of the recorded API omitted it, but the database returns null.
fn with_country_codes(mut recorded: Value) -> Value {
    let steps = recorded["shortest_path"]["path"].as_array_mut().unwrap().iter_mut();
    for edge in steps.filter_map(|step| step["edge"].as_object_mut()) {
        let load = edge.shift_remove("load").unwrap();
        edge.insert("country_codes".to_owned(), Value::Null);
        edge.insert("load".to_owned(), load);
    }
    recorded
}

/// Removes revisions and `carriers`.
fn comparable(mut value: Value) -> Value {
    match &mut value {
        Value::Object(keys) => {
            keys.shift_remove("_rev");
            keys.shift_remove("carriers");
            for (_, value) in keys.iter_mut() {
                *value = comparable(value.take());
            }
        }
        Value::Array(items) => {
            for item in items {
                *item = comparable(item.take());
            }
        }
        _ => {}
    }
    value
}

/// Returns a value as text, in which keys have their order and `5.0` differs from `5`.
fn text(value: Value) -> String {
    serde_json::to_string_pretty(&comparable(value)).unwrap()
}

async fn same(server: &Running, path: &str, status: u16, name: &str) {
    let (code, answer) = get(server, path).await;
    assert_eq!(code, status, "{path}: {answer}");
    assert_eq!(text(answer), text(recorded(name)), "{path} against {name}");
}

const PAIR: &str = "source=hosts%2Fsrv6-pytorch-0&destination=hosts/srv6-pytorch-2";

#[tokio::test]
async fn answers_before_any_load_are_the_recorded_ones() {
    let server = server(Edition::January2026).await;
    same(&server, &format!("graphs/fabric_graph/shortest_path?{PAIR}"), 200, "2026-01-shortest-path").await;
    same(&server, &format!("graphs/fabric_graph/shortest_path/best-paths?{PAIR}&limit=4"), 200, "2026-01-best-paths")
        .await;
    let nobody = "source=hosts/srv6-pytorch-0&destination=hosts/nope";
    same(&server, &format!("graphs/fabric_graph/shortest_path?{nobody}"), 200, "2026-01-not-found").await;
    same(&server, "graphs/fabric_graph/shortest_path?source=hosts/x", 422, "2026-01-error-422").await;
    same(&server, &format!("graphs/nosuch/shortest_path?{PAIR}"), 500, "2026-01-error-500").await;
    let sideways = format!("graphs/fabric_graph/shortest_path?{PAIR}&direction=sideways");
    same(&server, &sideways, 500, "2026-01-error-500").await;
    same(&server, "collections/hosts", 200, "2026-01-collection-hosts").await;
    server.stop().await;
}

#[tokio::test]
async fn older_edition_puts_the_sender_first() {
    let server = server(Edition::November2025).await;
    same(&server, &format!("graphs/fabric_graph/shortest_path?{PAIR}"), 200, "2025-11-shortest-path").await;
    let pair = "source=hosts/srv6-pytorch-0&destination=hosts/srv6-pytorch-1";
    let path = format!("graphs/fabric_graph/shortest_path/best-paths?{pair}&limit=9");
    same(&server, &path, 200, "2025-11-best-paths-overflow").await;
    server.stop().await;
}

#[tokio::test]
async fn each_load_call_writes_and_the_recorded_loads_follow() {
    let server = server(Edition::January2026).await;
    let load = format!("graphs/fabric_graph/shortest_path/load?{PAIR}");
    same(&server, &load, 200, "2026-01-shortest-path-load-call-1").await;
    same(&server, &load, 200, "2026-01-shortest-path-load-call-2").await;
    for spine in ["spine02", "spine00"] {
        let (_, answer) = get(&server, &load).await;
        assert_eq!(answer["path"][2]["vertex"]["name"], spine);
    }
    let path = format!("graphs/fabric_graph/shortest_path/next-best-path?{PAIR}");
    let (code, answer) = get(&server, &path).await;
    assert_eq!((code, text(answer)), (200, text(with_country_codes(recorded("2026-01-next-best-path")))));
    let algo = format!("graphs/fabric_graph/shortest_path?{PAIR}&algo=128");
    same(&server, &algo, 200, "2026-01-shortest-path-algo-128").await;
    same(&server, "graphs/fabric_graph/edges/detail", 200, "2026-01-edges-detail").await;
    let (_, mut topology) = get(&server, "graphs/fabric_graph/topology").await;
    let mut expected = recorded("2026-01-topology");
    topology["vertices"].as_object_mut().unwrap().sort_keys();
    expected["vertices"].as_object_mut().unwrap().sort_keys();
    assert_eq!(text(topology), text(expected));
    server.stop().await;
}

#[tokio::test]
async fn released_load_is_what_it_was_before() {
    let server = server(Edition::January2026).await;
    let load = format!("graphs/fabric_graph/shortest_path/load?{PAIR}");
    let loads = async || get(&server, "graphs/fabric_graph/edges/detail").await.1;
    get(&server, &load).await;
    let before = loads().await;
    get(&server, &load).await;
    assert_ne!(loads().await, before);
    let url = format!("{}/api/v1/{load}", server.url());
    let release = || async { reqwest::Client::new().delete(&url).send().await.unwrap().status().as_u16() };
    assert_eq!(release().await, 200);
    assert_eq!(loads().await, before);
    assert_eq!(release().await, 200);
    assert_eq!(release().await, 404, "nothing is left to give back");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn loads_asked_for_at_once_are_all_counted() {
    let server = server(Edition::January2026).await;
    let url = format!("{}/api/v1/graphs/fabric_graph/shortest_path/load?{PAIR}", server.url());
    let asked: Vec<_> = (0..50).map(|_| tokio::spawn(reqwest::get(url.clone()))).collect();
    for one in asked {
        assert_eq!(one.await.unwrap().unwrap().status(), 200);
    }
    let (_, answer) = get(&server, &format!("graphs/fabric_graph/shortest_path?{PAIR}")).await;
    assert_eq!(answer["path"][1]["edge"]["load"], 500, "every one crossed the host's own link");
    server.stop().await;
}

#[tokio::test]
async fn proper_carriers_stand_beside_the_joined_text() {
    let server = server(Edition::January2026).await;
    let (_, answer) = get(&server, &format!("graphs/fabric_graph/shortest_path/best-paths?{PAIR}&limit=4")).await;
    let valley = &answer["paths"][3]["srv6_data"];
    assert_eq!(valley["srv6_usid"], "fcbb:0:1004:1000:1005:1001:1006:fe06::", "no address");
    assert_eq!(valley["carriers"], json!(["fcbb:0:1004:1000:1005:1001:1006:fe06"]));
    server.stop().await;
}

#[tokio::test]
async fn only_get_is_served_and_health_lies_outside() {
    let server = server(Edition::January2026).await;
    let client = reqwest::Client::new();
    let url = format!("{}/api/v1/graphs/fabric_graph/topology", server.url());
    assert_eq!(client.post(&url).send().await.unwrap().status(), 405);
    assert_eq!(client.head(&url).send().await.unwrap().status(), 405);
    assert_eq!(reqwest::get(format!("{}/health", server.url())).await.unwrap().status(), 200);
    assert_eq!(get(&server, "graphs/hosts").await.0, 400);
    let nosuch = get(&server, "graphs/nosuch").await;
    assert_eq!(nosuch, (404, json!({ "detail": "Graph collection nosuch not found" })));
    server.stop().await;
}

#[tokio::test]
async fn a_spine_that_is_switched_off_is_passed_by() {
    let server = server(Edition::January2026).await;
    assert!(server.set_up("fabric_node/10.0.0.0_spine00", false));
    let (_, answer) = get(&server, &format!("graphs/fabric_graph/shortest_path?{PAIR}")).await;
    assert_eq!(answer["path"][2]["vertex"]["name"], "spine01");
    let (_, topology) = get(&server, "graphs/fabric_graph/topology").await;
    assert_eq!((&topology["total_edges"], &topology["total_vertices"]), (&json!(18), &json!(8)));
    assert!(!server.set_up("fabric_node/nope", false));
    server.stop().await;
}
