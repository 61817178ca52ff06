//! Tests of `POST /graphs/{graph}/placement`. What its answer says about Jalapeno's load book must be what the load
//! book does.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test stops at the first surprise")]

use fastrand::Rng;
use serde_json::{Value, json};
use srv6d_path_server::{Running, Server, Store};

async fn start(topology: &Value) -> Running {
    let store = Store::parse(&topology.to_string()).unwrap();
    Server { store, ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap()
}

fn url(server: &Running, route: &str) -> String {
    format!("{}/api/v1/graphs/fabric_graph/{route}", server.url())
}

async fn post(server: &Running, job: &Value) -> (u16, Value) {
    let request = reqwest::Client::new().post(url(server, "placement")).json(job);
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

fn uns(name: &str, number: usize) -> Value {
    let sid = |text: String, code: u16| json!({ "srv6_sid": text, "srv6_endpoint_behavior": { "endpoint_behavior": code, "algo": 0 } });
    let un = 0x1000 + number;
    json!({ "_key": name, "name": name, "router_id": name, "sids": [sid(format!("fcbb:0:{un:x}::"), 48), sid(format!("fcbb:0:{un:x}:fe06::"), 62)] })
}

/// Builds a fabric of leaves and spines with two hosts at each leaf. Keys of leaves and spines are random, so that ids
/// do not depend on the tier. Some edges already have a load, others have none.
fn fabric(leaves: usize, spines: usize, random: &mut Rng) -> Value {
    let mut numbers: Vec<usize> = (0..leaves + spines).collect();
    random.shuffle(&mut numbers);
    let name = |index: usize| format!("node{:02}", numbers[index]);
    let nodes: Vec<Value> = (0..leaves + spines).map(|index| uns(&name(index), index)).collect();
    let host = |number: usize| format!("host{number:02}");
    let hosts = (0..leaves * 2).map(|number| json!({ "_key": host(number), "name": host(number), "prefix": format!("fcbb:0:800:{number}::"), "prefix_len": 64 }));
    let hosts: Vec<Value> = hosts.collect();
    let mut edges = Vec::new();
    let mut connect = |from: String, to: String, load: Option<u32>| {
        let key = format!("{}_{}", from.replace('/', "-"), to.replace('/', "-"));
        let mut edge = json!({ "_key": key, "_from": from, "_to": to });
        if let Some(load) = load {
            edge["load"] = json!(load);
        }
        edges.push(edge);
    };
    let node = |index: usize| format!("fabric_node/{}", name(index));
    for leaf in 0..leaves {
        for spine in leaves..leaves + spines {
            for (from, to) in [(leaf, spine), (spine, leaf)] {
                let load = (random.usize(0..5) > 0).then(|| if random.bool() { 0 } else { random.u32(0..4) * 5 });
                connect(node(from), node(to), load);
            }
        }
        for number in [leaf * 2, leaf * 2 + 1] {
            connect(node(leaf), format!("hosts/{}", host(number)), None);
            connect(format!("hosts/{}", host(number)), node(leaf), None);
        }
    }
    json!({ "nodes": nodes, "hosts": hosts, "edges": edges })
}

#[tokio::test]
async fn the_load_order_is_what_asking_one_by_one_gives() {
    let mut random = Rng::with_seed(3);
    for (leaves, spines) in [(2, 2), (3, 2), (3, 3), (4, 3), (5, 4), (6, 5)] {
        let server = start(&fabric(leaves, spines, &mut random)).await;
        let (status, report) = post(&server, &json!({ "pattern": "all-to-all" })).await;
        assert_eq!(status, 200, "{report}");
        for flow in report["flows"].as_array().unwrap() {
            let [source, destination] = ["source", "destination"].map(|end| flow[end].as_str().unwrap());
            let asked = url(&server, &format!("shortest_path/load?source={source}&destination={destination}"));
            let answer: Value = reqwest::get(asked).await.unwrap().json().await.unwrap();
            let steps = answer["path"].as_array().unwrap();
            let via: Vec<&str> =
                steps[1..steps.len() - 1].iter().map(|step| step["vertex"]["name"].as_str().unwrap()).collect();
            assert_eq!(flow["load"]["via"], json!(via), "{source} to {destination}");
            assert_eq!(flow["load"]["carriers"], answer["srv6_data"]["carriers"], "{source} to {destination}");
        }
    }
}

#[tokio::test]
async fn placing_books_no_load_and_avoids_what_is_down() {
    let topology = fabric(3, 3, &mut Rng::with_seed(5));
    let server = start(&topology).await;
    let before: Value = reqwest::get(url(&server, "topology")).await.unwrap().json().await.unwrap();
    let job = json!({ "pattern": "permutation", "ecmp_seed": 3, "flows": 2 });
    let (status, report) = post(&server, &job).await;
    assert_eq!((status, &report["placed"]["busiest"]), (200, &report["bound"]));
    assert_eq!((&report["ecmp_seed"], report["flows"].as_array().unwrap().len()), (&json!(3), 2));
    let after: Value = reqwest::get(url(&server, "topology")).await.unwrap().json().await.unwrap();
    assert_eq!(before["edges"], after["edges"]);

    let spine = topology["nodes"][4]["_key"].as_str().unwrap();
    let patch = reqwest::Client::new().patch(url(&server, &format!("vertices/fabric_node/{spine}")));
    assert!(patch.json(&json!({ "up": false })).send().await.unwrap().status().is_success());
    let (_, report) = post(&server, &json!({})).await;
    let via = |flow: &Value| {
        ["placed", "ecmp", "load"].iter().any(|way| flow[way]["via"].as_array().unwrap().contains(&json!(spine)))
    };
    let flows = report["flows"].as_array().unwrap();
    assert!(flows.len() == 30 && !flows.iter().any(via), "{spine} is crossed");
}

#[tokio::test]
async fn long_lists_of_pairs_are_taken() {
    let server = start(&fabric(2, 2, &mut Rng::with_seed(5))).await;
    let pairs = vec![json!(["hosts/host00", "hosts/host03"]); 100_000];
    let (status, report) = post(&server, &json!({ "pairs": pairs, "flows": 1 })).await;
    assert_eq!((status, &report["flow_count"], &report["bound"]), (200, &json!(100_000), &json!(50_000)));
}

#[tokio::test]
async fn refusals_name_the_fix() {
    let server = start(&fabric(2, 1, &mut Rng::with_seed(5))).await;
    for (job, expected) in [
        (json!({ "patern": "ring" }), "unknown field `patern`, expected one of"),
        (json!({ "hosts": ["nobody"] }), "names are like host00"),
        (json!({ "hosts": ["host00"] }), "name at least two hosts, or list pairs"),
        (json!([]), "write a job"),
    ] {
        let (status, answer) = post(&server, &job).await;
        assert_eq!(status, 400);
        assert!(answer["detail"].as_str().unwrap().contains(expected), "{answer}");
    }
}

#[tokio::test]
async fn one_pair_of_a_placed_job_is_a_path_like_others() {
    let server = start(&fabric(3, 3, &mut Rng::with_seed(7))).await;
    let hosts: Vec<String> = (0..6).map(|number| format!("hosts/host{number:02}")).collect();
    let (_, report) = post(&server, &json!({ "hosts": hosts })).await;
    for flow in report["flows"].as_array().unwrap() {
        let [source, destination] = ["source", "destination"].map(|end| flow[end].as_str().unwrap());
        let ask = |hosts: String| {
            url(&server, &format!("shortest_path/placed?source={source}&destination={destination}{hosts}"))
        };
        // An unknown host does not affect the others, and an empty list stands for all hosts.
        for list in [String::new(), format!("&hosts={},hosts/nobody", hosts.join(","))] {
            let answer: Value = reqwest::get(ask(list)).await.unwrap().json().await.unwrap();
            let steps = answer["path"].as_array().unwrap();
            let via = steps[1..steps.len() - 1].iter().map(|step| step["vertex"]["name"].clone()).collect::<Vec<_>>();
            assert_eq!(json!(via), flow["placed"]["via"]);
            assert_eq!(answer["srv6_data"]["carriers"], flow["placed"]["carriers"]);
        }
    }
    for (query, status) in [("", 422), ("?source=hosts/host00&destination=hosts/host01&algo=128", 400)] {
        let response = reqwest::get(url(&server, &format!("shortest_path/placed{query}"))).await.unwrap();
        assert_eq!(response.status(), status);
    }
}

#[tokio::test]
async fn a_host_that_is_cut_off_costs_the_others_nothing() {
    let topology = fabric(3, 2, &mut Rng::with_seed(9));
    let server = start(&topology).await;
    let leaf = topology["nodes"][0]["_key"].as_str().unwrap();
    for spine in [3, 4] {
        let spine = topology["nodes"][spine]["_key"].as_str().unwrap();
        let patch =
            reqwest::Client::new().patch(url(&server, &format!("edges/fabric_node-{leaf}_fabric_node-{spine}")));
        assert!(patch.json(&json!({ "up": false })).send().await.unwrap().status().is_success());
    }
    let found = async |source: &str, destination: &str| {
        let route = format!("shortest_path/placed?source=hosts/{source}&destination=hosts/{destination}");
        reqwest::get(url(&server, &route)).await.unwrap().json::<Value>().await.unwrap()["found"].clone()
    };
    assert_eq!(found("host00", "host02").await, json!(false), "its leaf has no way up");
    assert_eq!(found("host00", "host01").await, json!(true), "behind the same leaf");
    assert_eq!(found("host02", "host00").await, json!(true), "down it still goes");
    assert_eq!(found("host02", "host04").await, json!(true));
}
