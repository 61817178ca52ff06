//! Tests of the routes for graphs, collections and endpoints: their parameters, and the keys of their answers.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::square;

use serde_json::{Value, json};
use square::{found, get, keys, server};

const G: &str = "graphs/igpv6_graph";

#[tokio::test]
async fn answers_about_graphs_have_their_keys() {
    let server = server().await;
    for (route, expected) in [
        ("graphs", "collections total_count"),
        ("graphs/igpv6_graph", "name type status count"),
        ("graphs/igpv6_graph/info", "name properties statistics vertex_collections"),
        ("graphs/igpv6_graph/topology", "edges vertices total_edges total_vertices include_all_fields"),
        ("graphs/igpv6_graph/topology/nodes", "edges vertices total_edges total_vertices include_all_fields"),
        (
            "graphs/igpv6_graph/topology/nodes/algo",
            "graph_collection algo edges vertices total_edges total_vertices include_all_fields",
        ),
        ("graphs/igpv6_graph/edges", "collection edge_count edges"),
        ("graphs/igpv6_graph/edges/detail", "collection edge_count returned_edges edges"),
        ("graphs/igpv6_graph/vertices", "collection vertex_collections total_vertices vertices_by_collection"),
        ("graphs/igpv6_graph/vertices/keys", "collection vertex_count vertex_keys"),
        ("graphs/igpv6_graph/vertices/ids", "collection vertex_count vertices"),
        (
            "graphs/igpv6_graph/vertices/algo",
            "graph_collection algo total_vertices vertex_collections vertices_by_collection",
        ),
        ("graphs/igpv6_graph/vertices/summary", "graph vertex_collections filtered_collection total_vertices vertices"),
        ("collections", "collections total_count filter_applied"),
        ("collections/hosts", "collection type count data"),
        ("collections/igpv6_graph", "collection type edge_count vertex_count edges vertices"),
        ("collections/hosts/keys", "collection key_count keys"),
        ("collections/hosts/info", "name count properties"),
        ("vpns", "collections total_count"),
        ("rpo", "supported_metrics description available_graph_collections note"),
        ("rpo/hosts", "collection type count data"),
    ] {
        let answer = found(&server, route).await;
        assert_eq!(keys(&answer), expected.split(' ').collect::<Vec<_>>(), "{route}");
    }
    assert_eq!(found(&server, "instances").await, json!(["igpv6_graph"]));
}

#[tokio::test]
async fn some_fields_of_a_topology_are_those_that_are_there() {
    let server = server().await;
    let some = found(&server, &format!("{G}/topology?include_all_fields=false")).await;
    assert_eq!(keys(&some["edges"][0]), ["_from", "_to"]);
    assert_eq!(keys(&some["vertices"]["igp_node/a"]), ["collection", "name", "protocol", "sids", "asn"]);
    assert_eq!(keys(&some["vertices"]["hosts/host0"]), ["collection", "name", "prefix", "sids"]);
    assert_eq!(some["vertices"]["igp_node/a"]["sids"], json!(["fc00:0:10::", "fc00:1:10::"]));
    let nodes = found(&server, &format!("{G}/topology/nodes")).await;
    assert_eq!((&nodes["total_edges"], &nodes["total_vertices"]), (&json!(8), &json!(4)));
    let flexible = found(&server, &format!("{G}/topology/nodes/algo?algo=128&include_all_fields=false")).await;
    assert_eq!((&flexible["total_edges"], &flexible["total_vertices"]), (&json!(4), &json!(3)));
    let sid = json!([{ "srv6_sid": "fc00:1:12::", "algo": 128, "endpoint_behavior": 48 }]);
    assert_eq!(flexible["vertices"]["igp_node/c"]["sids"], sid);
}

#[tokio::test]
async fn edges_and_vertices_are_counted_and_cut() {
    let server = server().await;
    let detail = found(&server, &format!("{G}/edges/detail?limit=1")).await;
    assert_eq!((&detail["edge_count"], &detail["returned_edges"]), (&json!(12), &json!(1)));
    let edge = &detail["edges"][0];
    assert_eq!(keys(edge), ["_key", "_from", "_to", "sids", "country_codes", "metrics", "timestamps"]);
    assert_eq!(edge["metrics"], json!({ "unidir_delay": 1, "percent_util_out": 0.25, "bandwidth": 100, "load": 0 }));
    assert_eq!(edge["timestamps"], json!({ "first_seen": 1 }));
    assert_eq!(found(&server, &format!("{G}/edges/detail?limit=0")).await["returned_edges"], 12, "0 is no limit");
    let keys = found(&server, &format!("{G}/vertices/keys")).await;
    assert_eq!(keys["vertex_keys"], json!(["a", "b", "c", "d", "host0", "host1"]));
    let ids = found(&server, &format!("{G}/vertices/ids")).await;
    assert_eq!(ids["vertices"][4], json!({ "_id": "hosts/host0", "_key": "host0" }));
    let summary = found(&server, &format!("{G}/vertices/summary?limit=1")).await;
    assert_eq!(summary["total_vertices"], 2, "one of each collection");
    let (status, _) = get(&server, &format!("{G}/vertices/summary?vertex_collection=nosuch")).await;
    assert_eq!(status, 500);
    let flexible = found(&server, &format!("{G}/vertices/algo?algo=128")).await;
    assert_eq!(flexible["total_vertices"], 3);
    let row = json!({
        "_id": "igp_node/c", "_key": "c", "collection": "igp_node", "name": "c", "router_id": "10.0.0.12",
        "sids": [{ "srv6_sid": "fc00:1:12::", "algo": 128, "endpoint_behavior": 48, "flag": 0 }],
    });
    assert!(flexible["vertices_by_collection"]["igp_node"].as_array().unwrap().contains(&row), "{flexible}");
}

#[tokio::test]
async fn collections_are_filtered_limited_and_never_skipped() {
    let server = server().await;
    let all = found(&server, "collections").await;
    assert_eq!((&all["total_count"], &all["filter_applied"]), (&json!(3), &json!("all")));
    assert_eq!(found(&server, "collections?filter_graphs=true").await["filter_applied"], "graphs");
    assert_eq!(found(&server, "collections?filter_graphs=false").await["total_count"], 2);
    assert_eq!(found(&server, "graphs?filter_graphs=false").await["total_count"], 1, "read and passed over");
    let entry = json!({ "name": "igpv6_graph", "type": "edge", "status": "loaded", "count": 12 });
    assert_eq!(found(&server, "graphs").await["collections"], json!([entry]));
    assert_eq!(found(&server, "collections/hosts?limit=1").await["count"], 1);
    assert_eq!(found(&server, "collections/hosts?limit=0").await["count"], 2);
    assert_eq!(found(&server, "collections/hosts?filter_key=host1").await["data"][0]["_id"], "hosts/host1");
    assert_eq!(get(&server, "collections/hosts?skip=1").await.0, 500);
    assert_eq!(found(&server, "collections/hosts?skip=0").await["count"], 2);
    assert_eq!(found(&server, "collections/igpv6_graph").await["vertex_count"], 6);
    assert_eq!(found(&server, "collections/hosts/keys").await["keys"], json!(["host0", "host1"]));
}

#[tokio::test]
async fn endpoints_are_chosen_by_their_metric() {
    let server = server().await;
    let select = |more: &str| format!("rpo/hosts/select-optimal?source=hosts/host0&graphs=igpv6_graph&{more}");
    let idle = found(&server, &select("metric=gpu_utilization&algo=0")).await;
    let expected = "collection source selected_endpoint optimization_metric metric_value optimization_strategy algo \
                    total_endpoints_evaluated valid_endpoints_count path_result summary";
    assert_eq!(keys(&idle), expected.split_whitespace().collect::<Vec<_>>());
    assert_eq!((&idle["selected_endpoint"]["_id"], &idle["metric_value"]), (&json!("hosts/host1"), &json!(0.25)));
    assert_eq!(idle["path_result"]["hopcount"], 4);
    let summary =
        json!({ "destination": "hosts/host1", "destination_name": "host1", "path_found": true, "hop_count": 4 });
    assert_eq!(idle["summary"], summary);
    let without = found(&server, &select("metric=gpu_utilization")).await;
    assert_eq!((&without["algo"], &without["path_result"]["found"]), (&json!(0), &json!(false)), "no algo is no 0");
    let model = found(&server, &select("metric=gpu_model&value=x&algo=0")).await;
    assert_eq!(model["selected_endpoint"]["_id"], "hosts/host0");
    for (query, status) in [
        ("metric=speed", 400),
        ("metric=gpu_model", 400),
        ("metric=gpu_model&value=z", 404),
        ("metric=response_time", 404),
    ] {
        assert_eq!(get(&server, &select(query)).await.0, status, "{query}");
    }
    let list = "rpo/hosts/select-from-list?source=hosts/host0&graphs=igpv6_graph&metric=gpu_utilization&algo=0";
    let listed = found(&server, &format!("{list}&destinations=host0,%20hosts/nope")).await;
    assert_eq!((&listed["selected_endpoint"]["_id"], &listed["total_candidates"]), (&json!("hosts/host0"), &json!(1)));
    assert_eq!(get(&server, &format!("{list}&destinations=nope")).await.0, 404);
}

#[tokio::test]
async fn other_methods_and_other_origins_are_answered() {
    let server = server().await;
    let client = reqwest::Client::new();
    let url = format!("{}/api/v1/{G}/topology", server.url());
    let refused = client.post(&url).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers()["allow"].to_str().unwrap()), (405, "GET"));
    assert_eq!(refused.json::<Value>().await.unwrap(), json!({ "detail": "Method Not Allowed" }));
    assert_eq!(client.head(&url).send().await.unwrap().status(), 405);
    let page = client.get(&url).header("origin", "http://elsewhere").send().await.unwrap();
    assert_eq!(page.headers()["access-control-allow-origin"], "*");
    let nowhere = client.get(format!("{}/nowhere", server.url())).send().await.unwrap();
    assert_eq!(nowhere.status(), 404);
    assert_eq!(nowhere.json::<Value>().await.unwrap(), json!({ "detail": "Not Found" }));
    let health: Value = reqwest::get(format!("{}/health", server.url())).await.unwrap().json().await.unwrap();
    assert_eq!(health["status"], "healthy");
    assert_eq!(keys(&health), ["status", "database_server", "database_name"]);
}
