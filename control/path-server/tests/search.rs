//! Paths of small random graphs against every path there is.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use proptest::prelude::*;
use serde_json::{Value, json};
use srv6d_path_server::{Server, Store};

const NODES: usize = 6;

fn graph(edges: &[(usize, usize, u8)]) -> Value {
    let vertex = |n: usize| json!({ "_key": format!("n{n}"), "router_id": "r", "name": format!("n{n}"), "sids": [] });
    let edge = |(a, b, w): &(usize, usize, u8)| json!({ "_key": format!("{a}-{b}"), "_from": format!("fabric_node/n{a}"), "_to": format!("fabric_node/n{b}"), "latency": w });
    json!({
        "nodes": (0..NODES).map(vertex).collect::<Vec<_>>(), "hosts": [], "edges": edges.iter().map(edge).collect::<Vec<_>>(),
    })
}

/// Every path without a loop from 0 to the last node: its weight, hops and ids, in that order.
fn every_path(edges: &[(usize, usize, u8)]) -> Vec<(u32, usize, Vec<usize>)> {
    let mut found = Vec::new();
    let mut open = vec![(0u32, vec![0usize])];
    while let Some((weight, path)) = open.pop() {
        if path.last() == Some(&(NODES - 1)) {
            found.push((weight, path.len() - 1, path));
            continue;
        }
        for (a, b, w) in edges.iter().filter(|(a, b, _)| path.last() == Some(a) && !path.contains(b)) {
            assert_ne!(a, b);
            open.push((weight + u32::from(*w), [path.as_slice(), &[*b]].concat()));
        }
    }
    found.sort();
    found
}

fn names(path: &Value) -> Vec<usize> {
    let steps = path.as_array().unwrap().iter();
    steps.map(|step| step["vertex"]["name"].as_str().unwrap()[1..].parse().unwrap()).collect()
}

fn asked(edges: &[(usize, usize, u8)], routes: &[&str]) -> Vec<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::parse(&graph(edges).to_string()).unwrap();
        let server = Server { store, ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap();
        let mut answers = Vec::new();
        for route in routes {
            let pair = format!("source=fabric_node/n0&destination=fabric_node/n{}&limit=1000", NODES - 1);
            let url = format!("{}/api/v1/graphs/fabric_graph/shortest_path{route}?{pair}", server.url());
            answers.push(reqwest::get(url).await.unwrap().json().await.unwrap());
        }
        server.stop().await;
        answers
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn shortest_cheapest_and_all_paths_are_those_of_brute_force(
        pairs in prop::collection::btree_map((0..NODES, 0..NODES), 0u8..4, 0..20)
    ) {
        let edges: Vec<(usize, usize, u8)> =
            pairs.into_iter().filter(|((a, b), _)| a != b).map(|((a, b), w)| (a, b, w)).collect();
        let cheapest = every_path(&edges);
        let mut by_hops = cheapest.clone();
        by_hops.sort_by_key(|(_, hops, path)| (*hops, path.clone()));
        let answers = asked(&edges, &["", "/latency", "/best-paths"]);
        prop_assert_eq!(answers[0]["found"].as_bool().unwrap(), !cheapest.is_empty());
        if cheapest.is_empty() {
            return Ok(());
        }
        prop_assert_eq!(names(&answers[0]["path"]), by_hops[0].2.clone());
        prop_assert_eq!(names(&answers[1]["path"]), cheapest[0].2.clone());
        prop_assert_eq!(answers[1]["total_latency"].as_u64().unwrap(), u64::from(cheapest[0].0));
        let all: Vec<Vec<usize>> = answers[2]["paths"].as_array().unwrap().iter().map(|one| names(&one["path"])).collect();
        let expected: Vec<Vec<usize>> = by_hops.into_iter().map(|(_, _, path)| path).collect();
        prop_assert_eq!(all, expected);
    }
}
