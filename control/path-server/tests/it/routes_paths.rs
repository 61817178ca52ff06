//! Tests of the routes for paths: their parameters, the keys of their answers, and their refusals.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::square;

use serde_json::{Value, json};
use square::{found, get, keys, names, server, square, start};

const G: &str = "graphs/igpv6_graph";
const PAIR: &str = "source=hosts/host0&destination=hosts/host1";
/// Keys of every answer for one path.
const ONE: [&str; 6] = ["found", "path", "hopcount", "vertex_count", "source_info", "destination_info"];

#[tokio::test]
async fn answers_about_paths_have_their_keys() {
    let server = server().await;
    let with = |more: &[&'static str]| [ONE.as_slice(), more].concat();
    for (route, expected) in [
        ("", with(&["direction", "algo", "srv6_data"])),
        ("/latency", with(&["direction", "total_latency", "algo", "srv6_data"])),
        ("/utilization", with(&["direction", "average_utilization", "srv6_data", "algo"])),
        ("/load", with(&["direction", "average_load", "algo", "srv6_data", "load_data"])),
        ("/best-paths", vec!["found", "total_paths_found", "direction", "algo", "paths"]),
        (
            "/next-best-path",
            vec!["found", "algo", "shortest_path", "same_hopcount_paths", "plus_one_hopcount_paths", "summary"],
        ),
    ] {
        let answer = found(&server, &format!("{G}/shortest_path{route}?{PAIR}")).await;
        assert_eq!(keys(&answer), expected, "{route}");
    }
    let sovereignty = found(&server, &format!("{G}/shortest_path/sovereignty?{PAIR}&excluded_countries=fra")).await;
    let expected = with(&["direction", "countries_traversed", "excluded_countries", "algo", "srv6_data"]);
    assert_eq!(keys(&sovereignty), expected);
    let graph_paths = found(&server, &format!("{G}/traverse?source=hosts/host0")).await;
    let expected = "source destination min_depth max_depth direction traversal_results total_paths";
    assert_eq!(keys(&graph_paths), expected.split(' ').collect::<Vec<_>>());
    let walk = &graph_paths["traversal_results"][0];
    assert_eq!(keys(walk), ["path", "sids", "country_codes", "metrics", "vertices", "edges"]);
    let neighbors = found(&server, &format!("{G}/neighbors?source=igp_node/a")).await;
    assert_eq!(keys(&neighbors), ["source", "direction", "depth", "neighbor_count", "neighbors"]);
    assert_eq!(keys(&neighbors["neighbors"][0]), ["neighbor", "edge", "metrics"]);
}

#[tokio::test]
async fn paths_follow_what_they_are_asked_for() {
    let server = server().await;
    let path = async |query: &str| {
        let answer = found(&server, &format!("{G}/shortest_path{query}")).await;
        names(&answer["path"]).join(" ")
    };
    assert_eq!(path(&format!("?{PAIR}")).await, "host0 a b d host1", "of equal ones the first");
    assert_eq!(path(&format!("?{PAIR}&algo=128")).await, "host0 a c d host1", "b has no SID of 128");
    assert_eq!(path(&format!("/latency?{PAIR}")).await, "host0 a b d host1");
    assert_eq!(path(&format!("/sovereignty?{PAIR}&excluded_countries=ita,%20deu")).await, "host0 a c d host1");
    assert_eq!(path("?source=igp_node/b&destination=igp_node/b").await, "b");
    let latency = found(&server, &format!("{G}/shortest_path/latency?{PAIR}")).await;
    assert_eq!(latency["total_latency"], 2, "edges without one are passed over in the sum");
    let utilization = found(&server, &format!("{G}/shortest_path/utilization?{PAIR}")).await;
    assert_eq!(utilization["average_utilization"], 0.25);
    let avoided = found(&server, &format!("{G}/shortest_path/sovereignty?{PAIR}&excluded_countries=fra")).await;
    assert_eq!(avoided["excluded_countries"], json!(["FRA"]));
    assert_eq!(avoided["countries_traversed"], json!([[], ["DEU"], ["DEU"], []]));
    assert_eq!(names(&avoided["path"]), ["host0", "a", "b", "d", "host1"]);
    let nowhere = found(&server, &format!("{G}/shortest_path/sovereignty?{PAIR}&excluded_countries=fra,deu")).await;
    let message = "No path found between specified nodes avoiding countries: fra,deu";
    assert_eq!(nowhere, json!({ "found": false, "message": message }));
}

#[tokio::test]
async fn flexible_algorithms_have_their_own_sids_and_their_edges_lead_out() {
    let server = server().await;
    let answer = found(&server, &format!("{G}/shortest_path?{PAIR}&algo=128")).await;
    assert_eq!(answer["srv6_data"]["srv6_sid_list"], json!(["fc00:1:10::", "fc00:1:12::", "fc00:1:13::"]));
    assert_eq!(answer["srv6_data"]["srv6_usid"], "fc00:1:10:12:13::");
    assert_eq!(answer["srv6_data"]["usid_block"], "fc00:1:");
    assert_eq!(answer["path"][0]["edge"]["_from"], "hosts/host0");
    assert_eq!(answer["path"][4]["edge"], Value::Null);
    let plain = found(&server, &format!("{G}/shortest_path?{PAIR}")).await;
    assert_eq!(plain["path"][0]["edge"], Value::Null);
    assert_eq!(plain["path"][4]["edge"]["_to"], "hosts/host1");
}

#[tokio::test]
async fn source_that_is_its_own_destination_is_found_without_a_carrier() {
    let server = server().await;
    let itself = "source=hosts/host0&destination=hosts/host0";
    let answer = found(&server, &format!("{G}/shortest_path?{itself}")).await;
    assert_eq!((&answer["found"], &answer["hopcount"]), (&json!(true), &json!(0)));
    assert_eq!(answer["srv6_data"]["srv6_sid_list"], json!([]));
    assert_eq!(answer["srv6_data"]["srv6_usid"], "fc00:0:::");
    let nobody = found(&server, &format!("{G}/shortest_path?{PAIR}&algo=200")).await;
    assert_eq!(nobody["found"], false, "no IGP node takes part in 200");
}

#[tokio::test]
async fn unknown_vertices_are_no_error_but_where_a_depth_is_made_of_them() {
    let server = server().await;
    let nowhere = "source=hosts/host0&destination=hosts/nope";
    for route in ["", "/latency", "/utilization", "/load"] {
        let answer = found(&server, &format!("{G}/shortest_path{route}?{nowhere}")).await;
        assert_eq!(answer, json!({ "found": false, "message": "No path found between specified nodes" }), "{route}");
    }
    let answer = found(&server, &format!("{G}/shortest_path/best-paths?{nowhere}")).await;
    assert_eq!(answer, json!({ "found": false, "message": "No paths found between specified nodes" }));
    let (status, _) = get(&server, &format!("{G}/shortest_path/next-best-path?{nowhere}")).await;
    assert_eq!(status, 500);
}

/// Routes of one graph that answer every error without a text, with the parameters that they need.
const SWALLOWING: [&str; 19] = [
    "topology",
    "topology/nodes",
    "topology/nodes/algo",
    "edges",
    "edges/detail",
    "vertices",
    "vertices/keys",
    "vertices/ids",
    "vertices/algo",
    "shortest_path?source=a/b&destination=a/c",
    "shortest_path/latency?source=a/b&destination=a/c",
    "shortest_path/utilization?source=a/b&destination=a/c",
    "shortest_path/load?source=a/b&destination=a/c",
    "shortest_path/best-paths?source=a/b&destination=a/c",
    "shortest_path/next-best-path?source=a/b&destination=a/c",
    "shortest_path/sovereignty?source=a/b&destination=a/c&excluded_countries=x",
    "traverse?source=a/b",
    "traverse/simple?source=a/b",
    "neighbors?source=a/b",
];

#[tokio::test]
async fn unknown_graphs_are_500_without_a_word_but_for_those_with_real_codes() {
    let server = server().await;
    for route in SWALLOWING {
        let answer = get(&server, &format!("graphs/nosuch/{route}")).await;
        assert_eq!(answer, (500, json!({ "detail": "" })), "{route}");
    }
    for route in ["collections/nosuch", "collections/nosuch/keys", "collections/nosuch/info", "vpns/nosuch/summary"] {
        assert_eq!(get(&server, route).await, (500, json!({ "detail": "" })), "{route}");
    }
    assert_eq!(get(&server, "graphs/nosuch/vertices/summary").await.0, 500);
    for (route, status, detail) in [
        ("graphs/nosuch", 404, "Graph collection nosuch not found"),
        ("graphs/nosuch/info", 404, "Graph collection nosuch not found"),
        ("graphs/hosts", 400, "Collection hosts is not a graph collection"),
        ("rpo/nosuch", 404, "Collection nosuch not found"),
        ("vpns/nosuch", 404, "Collection nosuch not found"),
        ("vpns/hosts", 400, "Collection hosts is not a VPN collection"),
    ] {
        assert_eq!(get(&server, route).await, (status, json!({ "detail": detail })), "{route}");
    }
}

#[tokio::test]
async fn directions_are_checked_by_some_and_found_out_by_the_database_in_others() {
    let server = server().await;
    let sideways = async |route: &str| get(&server, &format!("{G}/{route}&direction=sideways")).await;
    for route in ["", "/latency", "/utilization", "/load"] {
        assert_eq!(sideways(&format!("shortest_path{route}?{PAIR}")).await, (500, json!({ "detail": "" })), "{route}");
    }
    for route in ["traverse?source=igp_node/a", "traverse/simple?source=igp_node/a", "neighbors?source=igp_node/a"] {
        assert_eq!(sideways(route).await, (500, json!({ "detail": "" })), "{route}");
    }
    for route in ["best-paths?", "next-best-path?", "sovereignty?excluded_countries=x&"] {
        let (status, answer) = sideways(&format!("shortest_path/{route}{PAIR}")).await;
        assert_eq!(status, 500);
        assert_ne!(answer["detail"], "", "{route} tells what the database said");
    }
    // A direction in upper case is accepted, too.
    let inbound = found(&server, &format!("{G}/shortest_path?{PAIR}&direction=INBOUND")).await;
    assert_eq!(inbound["direction"], "INBOUND");
    assert_eq!(names(&inbound["path"]), ["host0", "a", "b", "d", "host1"]);
    assert_eq!(inbound["path"][1]["edge"]["_to"], "hosts/host0", "against the edge");
}

#[tokio::test]
async fn wrong_parameters_are_listed_all_together() {
    let server = server().await;
    let (status, answer) = get(&server, &format!("{G}/shortest_path/best-paths?limit=four&algo=x")).await;
    assert_eq!(status, 422);
    let problems: Vec<_> =
        answer["detail"].as_array().unwrap().iter().map(|one| (&one["type"], &one["loc"][1])).collect();
    let problem = |kind: &'static str, name: &'static str| (json!(kind), json!(name));
    let expected = [
        problem("missing", "source"),
        problem("missing", "destination"),
        problem("int_parsing", "limit"),
        problem("int_parsing", "algo"),
    ];
    assert_eq!(problems, expected.iter().map(|(kind, name)| (kind, name)).collect::<Vec<_>>());
    let (status, answer) = get(&server, &format!("{G}/topology?include_all_fields=perhaps")).await;
    assert_eq!((status, &answer["detail"][0]["type"]), (422, &json!("bool_parsing")));
    assert_eq!(get(&server, &format!("{G}/topology?unheard=of")).await.0, 200, "the unknown is passed over");
    let twice = found(&server, &format!("{G}/shortest_path?{PAIR}&algo=1&algo=0")).await;
    assert_eq!(twice["algo"], 0, "the last counts");
}

#[tokio::test]
async fn null_load_makes_the_bookkeeping_fail_and_nothing_else() {
    let mut topology = square();
    topology["edges"][0]["load"] = Value::Null;
    topology["edges"][4]["load"] = json!(100);
    let server = start(&topology).await;
    let answer = found(&server, &format!("{G}/shortest_path/load?{PAIR}")).await;
    assert_eq!(answer["found"], true);
    let data = &answer["load_data"];
    assert_eq!(
        keys(data),
        ["error", "updated_edges", "edge_loads", "average_load", "total_load", "edge_count", "highest_load"]
    );
    assert_eq!(data["highest_load"], json!({ "edge_key": null, "load_value": 0 }));
    let again = found(&server, &format!("{G}/shortest_path?{PAIR}")).await;
    assert_eq!(again["path"][1]["edge"]["load"], Value::Null, "nothing was written");
}

#[tokio::test]
async fn load_says_what_was_before_and_what_is_after() {
    let server = server().await;
    let load = format!("{G}/shortest_path/load?source=igp_node/a&destination=igp_node/d");
    let first = found(&server, &load).await;
    assert_eq!((&first["average_load"], &first["path"][1]["edge"]["load"]), (&json!(0.0), &json!(0)));
    let data = &first["load_data"];
    assert_eq!(data["updated_edges"], json!(["a_b", "b_d"]));
    assert_eq!(data["edge_loads"], json!([{ "edge_key": "a_b", "load": 10 }, { "edge_key": "b_d", "load": 10 }]));
    assert_eq!(
        (&data["average_load"], &data["total_load"], &data["edge_count"]),
        (&json!(10.0), &json!(20), &json!(2))
    );
    assert_eq!(data["highest_load"], json!({ "edge_key": "a_b", "load_value": 10 }));
    assert_eq!(names(&found(&server, &load).await["path"]), ["a", "c", "d"]);
}

#[tokio::test]
async fn walks_are_as_long_as_asked_for() {
    let server = server().await;
    let graph_paths = found(&server, &format!("{G}/traverse?source=hosts/host0&min_depth=2&max_depth=2")).await;
    let paths: Vec<&Value> =
        graph_paths["traversal_results"].as_array().unwrap().iter().map(|one| &one["path"]).collect();
    assert_eq!(paths, [&json!(["host0", "a", "b"]), &json!(["host0", "a", "c"])]);
    let there = found(&server, &format!("{G}/traverse?{PAIR}")).await;
    assert_eq!(there["total_paths"], 2);
    let metrics = &there["traversal_results"][0]["metrics"];
    assert_eq!(metrics, &json!({ "total_latency": 2, "avg_util": 0.25, "load": 0.0, "hop_count": 4 }));
    let simple = found(&server, &format!("{G}/traverse/simple?{PAIR}")).await;
    assert_eq!((&simple["direction"], &simple["max_depth"]), (&json!("any"), &json!(5)));
    let neighbors = found(&server, &format!("{G}/neighbors?source=igp_node/b")).await;
    assert_eq!(neighbors["neighbor_count"], 2);
    assert_eq!(neighbors["neighbors"][0]["neighbor"]["sids"], "fc00:0:10::", "the first SID only");
    let further = found(&server, &format!("{G}/neighbors?source=igp_node/b&depth=2")).await;
    assert_eq!(further["neighbors"][3]["metrics"]["hop_count"], 2);
}

#[tokio::test]
async fn loads_beyond_whole_numbers_are_still_added() {
    let mut topology = square();
    for edge in topology["edges"].as_array_mut().unwrap() {
        edge["load"] = json!(i64::MAX - 5);
        edge["latency"] = json!(i64::MAX);
    }
    let server = start(&topology).await;
    let four_times = 4.0 * 2f64.powi(63);
    let is_sum = |sum: &Value| (sum.as_f64().unwrap() / four_times - 1.0).abs() < 1e-9;
    let answer = found(&server, &format!("{G}/shortest_path/load?{PAIR}")).await;
    assert!(is_sum(&answer["load_data"]["total_load"]), "{answer}");
    let latency = found(&server, &format!("{G}/shortest_path/latency?{PAIR}")).await;
    assert!(is_sum(&latency["total_latency"]), "{latency}");
}
