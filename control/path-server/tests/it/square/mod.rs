//! A small graph of four IGP nodes, and functions that send requests about it.
#![allow(dead_code, reason = "not every test asks in every way")]

use serde_json::{Value, json};
use srv6d_path_server::{Running, Server, Store};

/// Returns a graph of four IGP nodes in a square, with `a` and `d` at opposite corners. `c` takes part in algorithm
/// 128, `b` does not. Each of `a` and `d` has a host, and there is a second graph without edges.
///
/// ```text
///            b (DEU)
/// host0 - a         d - host1
///            c (FRA)
/// ```
pub fn square() -> Value {
    let sid = |text: &str, algo: u8| json!({ "srv6_sid": text, "srv6_endpoint_behavior": { "endpoint_behavior": 48, "flag": 0, "algo": algo } });
    let node = |name: &str, number: u8, flexible: bool| {
        let mut sids = vec![sid(&format!("fc00:0:{number}::"), 0)];
        if flexible {
            sids.push(sid(&format!("fc00:1:{number}::"), 128));
        }
        json!({ "name": name, "router_id": format!("10.0.0.{number}"), "asn": 65000, "protocol": "IS-IS", "sids": sids })
    };
    let host = |number: u8, model: &str, busy: f64| {
        json!({
            "name": format!("host{number}"), "prefix": format!("2001:db8:{number}::"), "prefix_len": 64,
            "ipv6_address": format!("2001:db8:{number}::2"), "gpu_model": model, "gpu_utilization": busy,
        })
    };
    let mut edges = Vec::new();
    for (from, to, latency, codes) in [
        ("a", "b", 1, json!(["DEU"])),
        ("b", "d", 1, json!(["DEU"])),
        ("a", "c", 5, json!(["FRA"])),
        ("c", "d", 5, json!(["FRA"])),
    ] {
        for (from, to) in [(from, to), (to, from)] {
            edges.push(json!({
                "_id": format!("igpv6_graph/{from}_{to}"), "_from": format!("igp_node/{from}"), "_to": format!("igp_node/{to}"),
                "latency": latency, "unidir_link_delay": latency, "percent_util_out": 0.25, "load": 0, "country_codes": codes,
                "max_link_bandwidth": 100, "first_seen_at": 1,
            }));
        }
    }
    for (host, node) in [("hosts/host0", "igp_node/a"), ("hosts/host1", "igp_node/d")] {
        for (from, to) in [(host, node), (node, host)] {
            let key = format!("{from}_{to}").replace('/', ".");
            edges.push(json!({ "_id": format!("igpv6_graph/{key}"), "_from": from, "_to": to }));
        }
    }
    json!({
        "vertices": {
            "igp_node/a": node("a", 10, true), "igp_node/b": node("b", 11, false), "igp_node/c": node("c", 12, true),
            "igp_node/d": node("d", 13, true), "hosts/host0": host(0, "x", 0.5), "hosts/host1": host(1, "y", 0.25),
        },
        "edges": edges,
    })
}

pub async fn server() -> Running {
    start(&square()).await
}

pub async fn start(topology: &Value) -> Running {
    let store = Store::parse(&topology.to_string()).unwrap();
    Server { store, ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap()
}

pub async fn get(server: &Running, path: &str) -> (u16, Value) {
    let response = reqwest::get(format!("{}/api/v1/{path}", server.url())).await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

pub async fn found(server: &Running, path: &str) -> Value {
    let (status, answer) = get(server, path).await;
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

pub fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

pub fn names(path: &Value) -> Vec<&str> {
    path.as_array().unwrap().iter().map(|step| step["vertex"]["name"].as_str().unwrap()).collect()
}
