//! Clients that want too much, wait for nothing, or are web pages of somebody else: the others are served meanwhile.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::square;

use std::time::{Duration, Instant};

use reqwest::{Client, Method};
use serde_json::{Value, json};
use square::{found, get, start};
use srv6d_path_server::Running;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_mins(2);
const PAIR: &str = "source=hosts/host0&destination=hosts/host15";

/// Every leaf has a link to every spine, and a host.
fn clos(spines: usize, leaves: usize) -> Value {
    let mut vertices = serde_json::Map::new();
    let mut edges = Vec::new();
    let mut link = |a: &str, b: &str| {
        for (from, to) in [(a, b), (b, a)] {
            let key = format!("{from}_{to}").replace('/', ".");
            edges.push(json!({ "_id": format!("fabric_graph/{key}"), "_from": from, "_to": to }));
        }
    };
    for leaf in 0..leaves {
        link(&format!("hosts/host{leaf}"), &format!("fabric_node/leaf{leaf}"));
        for spine in 0..spines {
            link(&format!("fabric_node/leaf{leaf}"), &format!("fabric_node/spine{spine}"));
        }
    }
    let names = (0..leaves).flat_map(|n| [format!("hosts/host{n}"), format!("fabric_node/leaf{n}")]);
    for id in names.chain((0..spines).map(|n| format!("fabric_node/spine{n}"))) {
        vertices.insert(id.clone(), json!({ "_id": id, "name": id, "sids": [] }));
    }
    json!({ "vertices": vertices, "edges": edges })
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.unwrap()
}

#[tokio::test]
async fn a_million_paths_are_not_looked_for() {
    let server = start(&clos(8, 16)).await;
    let best = "graphs/fabric_graph/shortest_path/best-paths";
    let asked = tokio::spawn(reqwest::get(format!("{}/api/v1/{best}?{PAIR}&limit=1000000", server.url())));
    // Others do not wait for it.
    let (status, _) = in_time(get(&server, "collections")).await;
    assert_eq!(status, 200);
    let answer: Value = in_time(asked).await.unwrap().unwrap().json().await.unwrap();
    let paths = answer["paths"].as_array().unwrap();
    assert!(paths.len() <= 1000 && paths.len() > 8, "{}", paths.len());
    assert_eq!(answer["truncated"], true);
    let hops: Vec<u64> = paths.iter().map(|path| path["hopcount"].as_u64().unwrap()).collect();
    assert!(hops.is_sorted() && hops[..8] == [4; 8], "the shortest come first: {hops:?}");
    let few = found(&server, &format!("{best}?{PAIR}&limit=9")).await;
    assert_eq!((few["paths"].as_array().unwrap().len(), few.get("truncated")), (9, None));
}

#[tokio::test]
async fn every_search_ends() {
    let server = start(&clos(8, 16)).await;
    for route in [
        format!("shortest_path/next-best-path?{PAIR}&same_hop_limit=1000000000&plus_one_limit=1000000000"),
        "traverse?source=hosts/host0&min_depth=1&max_depth=1000000000".to_owned(),
        "traverse/simple?source=hosts/host0&destination=hosts/host15&min_depth=30&max_depth=31".to_owned(),
        "neighbors?source=hosts/host0&depth=1000000000".to_owned(),
    ] {
        let (status, _) = in_time(get(&server, &format!("graphs/fabric_graph/{route}"))).await;
        assert_eq!(status, 200, "{route}");
    }
}

#[tokio::test]
async fn heads_that_do_not_come_end_their_connection() {
    let server = start(&clos(1, 2)).await;
    let mut slow = TcpStream::connect(server.address()).await.unwrap();
    slow.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n").await.unwrap();
    let mut said = Vec::new();
    in_time(slow.read_to_end(&mut said)).await.unwrap();
}

/// More than are served at one time: they end, and whoever comes after them has his turn.
#[tokio::test]
async fn connections_are_bounded() {
    let server = start(&clos(1, 2)).await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(TcpStream::connect(server.address()).await.unwrap());
    }
    let begun = Instant::now();
    let (status, _) = in_time(get(&server, "collections")).await;
    assert_eq!(status, 200, "after {:?}", begun.elapsed());
}

async fn ask(server: &Running, method: &Method, route: &str, headers: &[(&str, &str)]) -> u16 {
    let mut request =
        Client::new().request(method.clone(), format!("{}/api/v1/graphs/fabric_graph/{route}", server.url()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body("{\"up\": false}").send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn pages_of_other_origins_read_and_change_nothing() {
    let server = start(&clos(2, 2)).await;
    let changes = [
        (Method::PATCH, "edges/hosts.host0_fabric_node.leaf0"),
        (Method::PATCH, "vertices/fabric_node/spine0"),
        (Method::DELETE, "shortest_path/load?source=hosts/host0&destination=hosts/host1"),
        (Method::POST, "shortest_path/load/reset"),
        (Method::POST, "placement"),
    ];
    for (method, route) in &changes {
        assert_eq!(ask(&server, method, route, &[("origin", "http://evil.example")]).await, 403, "{method} {route}");
        assert_eq!(ask(&server, method, route, &[("sec-fetch-site", "cross-site")]).await, 403, "{method} {route}");
    }
    // Before it changes anything, a browser asks.
    let asked =
        Client::new().request(Method::OPTIONS, format!("{}/api/v1/graphs/fabric_graph/{}", server.url(), changes[0].1));
    let asked = asked.header("origin", "http://evil.example").header("access-control-request-method", "PATCH");
    let answer = asked.send().await.unwrap();
    assert_eq!(answer.headers()["access-control-allow-methods"], "GET");
    let page =
        Client::new().get(format!("{}/api/v1/collections", server.url())).header("origin", "http://evil.example");
    assert_eq!(page.send().await.unwrap().headers()["access-control-allow-origin"], "*");
    let own = server.url();
    assert_eq!(ask(&server, &changes[0].0, changes[0].1, &[("origin", own.as_str())]).await, 200);
    assert_eq!(ask(&server, &changes[0].0, changes[0].1, &[]).await, 200);
}

#[tokio::test]
async fn habits_of_the_real_one() {
    let server = start(&clos(1, 2)).await;
    let client = Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let ask = async |path: &str| client.get(format!("{}{path}", server.url())).send().await.unwrap();
    let slash = ask("/api/v1/graphs/fabric_graph/?x=1").await;
    let to = format!("{}/api/v1/graphs/fabric_graph?x=1", server.url());
    assert_eq!((slash.status().as_u16(), slash.headers()["location"].to_str().unwrap()), (307, to.as_str()));
    assert_eq!(ask("/api/v1/nosuch/").await.status(), 404);
    let spaced = ask("/api/v1/graphs/fabric_graph/vertices/algo?algo=%20128").await;
    assert_eq!(spaced.status(), 422);
}
