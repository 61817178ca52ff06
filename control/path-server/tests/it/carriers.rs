//! Tests of `srv6_data`: text that is joined as Jalapeno does it, and in addition carriers that can be used.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use serde_json::{Value, json};
use srv6d_path_server::{Edition, Server, Store};

fn un(sid: &str) -> Value {
    json!({ "srv6_sid": sid, "srv6_endpoint_behavior": { "endpoint_behavior": 48, "flag": 0, "algo": 0 } })
}

fn udt6(sid: &str) -> Value {
    json!({ "srv6_sid": sid, "srv6_endpoint_behavior": { "endpoint_behavior": 62, "flag": 0, "algo": 0 } })
}

/// Returns `srv6_data` of a path over a chain of nodes with these SIDs.
async fn along(sids: &[Value], edition: Edition) -> Value {
    let nodes: Vec<Value> = (0..)
        .zip(sids)
        .map(|(n, sids): (usize, _)| json!({ "_key": format!("n{n}"), "name": "n", "sids": sids }))
        .collect();
    let edge = |n: usize| {
        let id = |n: usize| format!("fabric_node/n{n}");
        json!({ "_key": n.to_string(), "_from": id(n), "_to": id(n + 1) })
    };
    let edges: Vec<Value> = (0..sids.len() - 1).map(edge).collect();
    let store = Store::parse(&json!({ "nodes": nodes, "hosts": [], "edges": edges }).to_string()).unwrap();
    let server = Server { store, edition, ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap();
    let pair = format!("source=fabric_node/n0&destination=fabric_node/n{}", sids.len() - 1);
    let url = format!("{}/api/v1/graphs/fabric_graph/shortest_path?{pair}", server.url());
    let answer: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
    answer["srv6_data"].clone()
}

#[tokio::test]
async fn block_spelled_otherwise_drops_out_of_the_text_only() {
    let sids = [
        json!([]),
        json!([un("fc00:0:1::")]),
        json!([un("fc00:0000:2::")]),
        json!([un("fc00:0:3::"), udt6("fc00:0:3:fe06::")]),
    ];
    let data = along(&sids, Edition::January2026).await;
    assert_eq!(data["srv6_sid_list"], json!(["fc00:0:1::", "fc00:0000:2::", "fc00:0:3::"]));
    assert_eq!(data["srv6_usid"], "fc00:0:1:3::");
    assert_eq!(data["carriers"], json!(["fc00:0:1:2:3:fe06::"]), "by bytes, nothing is lost");
}

#[tokio::test]
async fn sids_without_a_behaviour_count_in_the_newer_edition_only() {
    let bare = json!([{ "srv6_sid": "fc00:0:2::" }]);
    let sids = [json!([]), json!([un("fc00:0:1::")]), bare, json!([un("fc00:0:3::")])];
    let newer = along(&sids, Edition::January2026).await;
    assert_eq!(newer["srv6_usid"], "fc00:0:1:2:3::");
    let older = along(&sids, Edition::November2025).await;
    assert_eq!(older["srv6_usid"], "fc00:0:1:3::");
    // A SID of the algorithm has precedence over one without a behaviour.
    let both = json!([{ "srv6_sid": "fc00:0:a::" }, un("fc00:0:b::")]);
    let data = along(&[json!([]), both], Edition::January2026).await;
    assert_eq!(data["srv6_sid_list"], json!(["fc00:0:b::"]));
}

#[tokio::test]
async fn six_usids_are_one_carrier_and_eight_are_two() {
    let chain = |hops: usize| {
        let mut sids = vec![json!([])];
        sids.extend((1..hops).map(|n| json!([un(&format!("fc00:0:{n}::"))])));
        sids.push(json!([un(&format!("fc00:0:{hops}::")), udt6(&format!("fc00:0:{hops}:fe06::"))]));
        sids
    };
    let six = along(&chain(5), Edition::January2026).await;
    assert_eq!(six["carriers"], json!(["fc00:0:1:2:3:4:5:fe06"]));
    let eight = along(&chain(7), Edition::January2026).await;
    assert_eq!(eight["srv6_usid"], "fc00:0:1:2:3:4:5:6:7::", "no address");
    assert_eq!(eight["carriers"], json!(["fc00:0:1:2:3:4:5:6", "fc00:0:7:fe06::"]));
}

#[tokio::test]
async fn where_no_carrier_can_be_made_none_is_named() {
    let two_blocks = [json!([]), json!([un("fc00:0:1::")]), json!([un("fc01:0:2::"), udt6("fc01:0:2:fe06::")])];
    let data = along(&two_blocks, Edition::January2026).await;
    assert_eq!(data.get("carriers"), None, "{data}");
    let short = [json!([]), json!([un("::")]), json!([un("fc00:0:2::")])];
    let data = along(&short, Edition::January2026).await;
    assert_eq!(data.get("carriers"), None, "{data}");
}
