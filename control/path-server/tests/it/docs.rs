//! Tests that docs/path-server.md is correct: its files can be read, and its routes and metrics are those that exist.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::square;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use square::{found, names};
use srv6d_path_server::{EXAMPLE, FaultPlan, Server, Store};

const PAGE: &str = include_str!("../../../../docs/path-server.md");

/// Returns the code blocks of that language.
fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    PAGE.split(begin.as_str()).skip(1).map(|behind| behind.split("```").next().unwrap()).collect()
}

/// Returns the cells of each row of the table below a heading.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let section = PAGE.split(&format!("\n## {heading}\n")).nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---"));
    rows.skip(1).map(|row| row.split('|').skip(1).map(str::trim).collect()).collect()
}

/// Returns the texts in backticks of a cell.
fn code(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn files_that_are_shown_can_be_read() {
    let [topology, faults] = blocks("json").try_into().unwrap();
    let store = Store::parse(topology).unwrap();
    assert_eq!(store.edges("fabric_graph").unwrap().len(), 2);
    FaultPlan::parse(faults).unwrap();
}

#[test]
fn every_fault_is_in_the_table_and_none_else() {
    let shown: Vec<&str> = table("Faults").into_iter().flat_map(|row| code(row[0])).collect();
    for fault in &shown {
        FaultPlan::parse(&format!("[{{\"fault\": {fault}}}]")).unwrap();
    }
    let unknown = FaultPlan::parse("[{\"fault\": \"no such fault\"}]").unwrap_err().to_string();
    let known = unknown.split("expected one of ").nth(1).unwrap();
    assert_eq!(code(known).len(), shown.len(), "{known}");
}

#[tokio::test]
async fn example_answers_with_the_carrier_of_its_lighter_spine() {
    let store = Store::parse(EXAMPLE).unwrap();
    let server = Server { store, ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap();
    let pair = "source=hosts/host00&destination=hosts/host01";
    let path = async |route: &str| found(&server, &format!("graphs/fabric_graph/shortest_path{route}?{pair}")).await;
    assert_eq!(names(&path("/latency").await["path"]), ["host00", "leaf00", "spine00", "leaf01", "host01"]);
    let idle = path("/utilization").await;
    assert_eq!(names(&idle["path"]), ["host00", "leaf00", "spine01", "leaf01", "host01"]);
    assert_eq!(idle["srv6_data"]["carriers"], json!(["fcbb:0:1004:1001:1005:fe06::"]));
}

#[tokio::test]
async fn routes_beside_jalapenos_are_those_of_the_description() {
    let server = square::server().await;
    let document: Value = reqwest::get(format!("{}/openapi.json", server.url())).await.unwrap().json().await.unwrap();
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let route = path.strip_prefix("/api/v1").unwrap();
        let is_ours = route.ends_with("/events") || route.ends_with("/placed");
        let more = methods.as_object().unwrap().keys().filter(|method| *method != "get" || is_ours);
        described.extend(more.map(|method| format!("{} {route}", method.to_uppercase())));
    }
    let rows = table("What is more").into_iter().filter_map(|row| code(row[0]).first().copied());
    let shown = rows.filter(|shown| shown.contains("{graph}")).map(|shown| shown.split('?').next().unwrap().to_owned());
    assert_eq!(shown.collect::<BTreeSet<_>>(), described);
}

#[tokio::test]
async fn metrics_are_those_of_the_table() {
    let faults = FaultPlan::parse("[{\"count\": 1, \"fault\": {\"status\": 503}}]").unwrap();
    let store = Store::parse(EXAMPLE).unwrap();
    let server = Server { store, faults, ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap();
    reqwest::get(format!("{}/health", server.url())).await.unwrap();
    let text = reqwest::get(format!("{}/metrics", server.url())).await.unwrap().text().await.unwrap();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let shown: BTreeSet<String> = samples
        .map(|line| {
            let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
            let labels = rest.split_once('{').map_or("", |(_, labels)| labels.split('}').next().unwrap());
            let labels: BTreeSet<&str> = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0)).collect();
            let labels: Vec<&str> = labels.into_iter().filter(|label| *label != "le").collect();
            let name = name.strip_prefix("srv6d_path_server_").unwrap();
            let name =
                ["_bucket", "_count", "_sum"].iter().fold(name, |name, end| name.strip_suffix(end).unwrap_or(name));
            format!("{name} {}", labels.join(","))
        })
        .collect();
    let documented: BTreeSet<String> = table("Metrics")
        .iter()
        .flat_map(|row| {
            let labels: BTreeSet<&str> = code(row[1]).into_iter().collect();
            let labels = labels.into_iter().collect::<Vec<_>>().join(",");
            code(row[0]).into_iter().map(move |name| format!("{name} {labels}")).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(shown, documented);
}
