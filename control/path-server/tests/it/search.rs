//! Tests that compare searches in small random graphs with a list of all paths.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
#![allow(clippy::float_cmp, reason = "halves and quarters, whose sums are exact")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};
use srv6d_path_server::{Server, Store};

const NODES: usize = 6;
const LAST: usize = NODES - 1;

/// The attribute `latency` of an edge.
#[derive(Clone, Copy, Debug)]
enum Latency {
    Absent,
    Null,
    Quarters(u8),
}

impl Latency {
    /// Returns the latency as a weight in quarters, whose sums are exact. A missing latency counts 1.
    const fn quarters(self) -> u32 {
        match self {
            Self::Absent | Self::Null => 4,
            Self::Quarters(quarters) => quarters as u32,
        }
    }
}

/// An edge. Several edges may have the same ends.
#[derive(Clone, Debug)]
struct Edge {
    from: usize,
    to: usize,
    latency: Latency,
    country: Option<&'static str>,
}

fn edge() -> impl Strategy<Value = Edge> {
    let latency = prop_oneof![
        1 => Just(Latency::Absent),
        1 => Just(Latency::Null),
        // Many paths have the same weight, so that hops and names decide their order.
        5 => Just(Latency::Quarters(0)),
        4 => (1u8..6).prop_map(Latency::Quarters),
    ];
    let country = prop_oneof![Just(None), Just(Some("FRA")), Just(Some("DEU"))];
    (0..NODES, 1..NODES, latency, country).prop_map(|(from, step, latency, country)| Edge {
        from,
        to: (from + step) % NODES,
        latency,
        country,
    })
}

fn graph(edges: &[Edge]) -> Value {
    let vertex = |n: usize| json!({ "_key": format!("n{n}"), "router_id": "r", "name": format!("n{n}"), "sids": [] });
    let document = |(number, edge): (usize, &Edge)| {
        let mut document = json!({
            "_key": number.to_string(),
            "_from": format!("fabric_node/n{}", edge.from), "_to": format!("fabric_node/n{}", edge.to),
        });
        match edge.latency {
            Latency::Absent => {}
            Latency::Null => document["latency"] = Value::Null,
            Latency::Quarters(quarters) => document["latency"] = json!(f64::from(quarters) / 4.0),
        }
        if let Some(country) = edge.country {
            document["country_codes"] = json!([country]);
        }
        document
    };
    json!({
        "nodes": (0..NODES).map(vertex).collect::<Vec<_>>(), "hosts": [],
        "edges": edges.iter().enumerate().map(document).collect::<Vec<_>>(),
    })
}

/// Weight in quarters, hops and vertices. Paths are ordered by these three.
type Path = (u32, usize, Vec<usize>);

/// Returns all paths without a loop from 0 to the last node, in order. Steps are from, to and weight.
fn every_path(steps: &[(usize, usize, u32)]) -> Vec<Path> {
    let mut found = BTreeSet::new();
    let mut open = vec![(0u32, vec![0usize])];
    while let Some((weight, path)) = open.pop() {
        if path.last() == Some(&LAST) {
            found.insert((path.clone(), weight));
            continue;
        }
        for (_, to, more) in steps.iter().filter(|(from, to, _)| path.last() == Some(from) && !path.contains(to)) {
            open.push((weight + more, [path.as_slice(), &[*to]].concat()));
        }
    }
    // Of several paths over the same vertices only the lightest counts, which comes first.
    let mut paths: Vec<Path> = Vec::new();
    for (path, weight) in found {
        if paths.last().is_none_or(|(_, _, last)| *last != path) {
            paths.push((weight, path.len() - 1, path));
        }
    }
    paths.sort();
    paths
}

/// Returns only the vertices of the paths, ordered by hops.
fn by_hops(paths: &[Path]) -> Vec<Vec<usize>> {
    let mut paths: Vec<(usize, Vec<usize>)> = paths.iter().map(|(_, hops, path)| (*hops, path.clone())).collect();
    paths.sort();
    paths.into_iter().map(|(_, path)| path).collect()
}

fn steps(edges: &[Edge], direction: &str) -> Vec<(usize, usize, u32)> {
    let forth = edges.iter().map(|edge| (edge.from, edge.to, edge.latency.quarters()));
    let back = edges.iter().map(|edge| (edge.to, edge.from, edge.latency.quarters()));
    match direction {
        "outbound" => forth.collect(),
        "inbound" => back.collect(),
        _ => forth.chain(back).collect(),
    }
}

fn names(path: &Value) -> Vec<usize> {
    let steps = path.as_array().unwrap().iter();
    steps.map(|step| step["vertex"]["name"].as_str().unwrap()[1..].parse().unwrap()).collect()
}

fn paths(list: &Value) -> Vec<Vec<usize>> {
    list.as_array().unwrap().iter().map(|one| names(&one["path"])).collect()
}

/// Returns the answers to these routes below `shortest_path`.
fn asked<const N: usize>(edges: &[Edge], routes: [&str; N]) -> [Value; N] {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::parse(&graph(edges).to_string()).unwrap();
        let server = Server { store, ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap();
        let mut answers = Vec::new();
        for route in routes {
            let pair = format!("source=fabric_node/n0&destination=fabric_node/n{LAST}");
            let url = format!("{}/api/v1/graphs/fabric_graph/shortest_path{route}&{pair}", server.url());
            answers.push(reqwest::get(url).await.unwrap().json().await.unwrap());
        }
        server.stop().await;
        answers.try_into().unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn shortest_and_cheapest_are_those_of_brute_force(
        edges in prop::collection::vec(edge(), 0..24),
        direction in prop_oneof![Just("outbound"), Just("inbound"), Just("any")],
    ) {
        let cheapest = every_path(&steps(&edges, direction));
        let [shortest, cheap] =
            asked(&edges, [&format!("?direction={direction}"), &format!("/latency?direction={direction}")]);
        prop_assert_eq!(shortest["found"].as_bool().unwrap(), !cheapest.is_empty());
        prop_assert_eq!(cheap["found"].as_bool().unwrap(), !cheapest.is_empty());
        if let Some((_, _, first)) = cheapest.first() {
            prop_assert_eq!(&names(&shortest["path"]), &by_hops(&cheapest)[0]);
            prop_assert_eq!(&names(&cheap["path"]), first);
        }
    }

    #[test]
    fn total_latency_is_that_of_the_edges_shown(edges in prop::collection::vec(edge(), 0..24)) {
        let [cheap] = asked(&edges, ["/latency?"]);
        if let Some((weight, ..)) = every_path(&steps(&edges, "outbound")).first() {
            let shown: Vec<&Value> = cheap["path"].as_array().unwrap().iter().skip(1).map(|step| &step["edge"]["latency"]).collect();
            let sum: f64 = shown.iter().filter_map(|latency| latency.as_f64()).sum();
            let unknown = shown.iter().filter(|latency| latency.is_null()).count();
            prop_assert_eq!(cheap["total_latency"].as_f64(), Some(sum));
            // A missing latency counted 1 in the search, but nothing in the sum.
            prop_assert_eq!(sum * 4.0, f64::from(*weight) - 4.0 * f64::from(u32::try_from(unknown).unwrap()));
        }
    }

    #[test]
    fn many_paths_come_in_the_order_of_brute_force(
        edges in prop::collection::vec(edge(), 0..24),
        limit in 0usize..12,
    ) {
        let expected = by_hops(&every_path(&steps(&edges, "outbound")));
        let [all, some, next] = asked(&edges, [
            "/best-paths?limit=1000",
            &format!("/best-paths?limit={limit}"),
            &format!("/next-best-path?same_hop_limit={limit}&plus_one_limit={limit}"),
        ]);
        if expected.is_empty() {
            prop_assert_eq!(&all["found"], false);
            prop_assert_eq!(&next["detail"].is_string(), &true);
            return Ok(());
        }
        prop_assert_eq!(&paths(&all["paths"]), &expected);
        let first = &expected[..limit.min(expected.len())];
        if first.is_empty() {
            prop_assert_eq!(&some["found"], false);
        } else {
            prop_assert_eq!(paths(&some["paths"]), first);
        }
        let base = expected[0].len();
        let of_length = |length: usize| -> Vec<Vec<usize>> {
            expected.iter().filter(|path| path.len() == length).take(limit).cloned().collect()
        };
        prop_assert_eq!(names(&next["shortest_path"]["path"]), expected[0].clone());
        prop_assert_eq!(paths(&next["same_hopcount_paths"]), of_length(base));
        prop_assert_eq!(paths(&next["plus_one_hopcount_paths"]), of_length(base + 1));
    }

    #[test]
    fn avoided_countries_are_those_of_brute_force(edges in prop::collection::vec(edge(), 0..24)) {
        let [answer] = asked(&edges, ["/sovereignty?excluded_countries=fra"]);
        let left: Vec<Edge> = edges.into_iter().filter(|edge| edge.country != Some("FRA")).collect();
        let expected = by_hops(&every_path(&steps(&left, "outbound")));
        prop_assert_eq!(answer["found"].as_bool().unwrap(), !expected.is_empty());
        if let Some(first) = expected.first() {
            prop_assert_eq!(&names(&answer["path"]), first);
            prop_assert!(!answer["countries_traversed"].to_string().contains("FRA"));
        }
    }
}
