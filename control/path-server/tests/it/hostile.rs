//! Tests with clients that request too much, do not wait for answers, or are web pages of another origin. Other clients
//! are served meanwhile.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::square;

use std::time::{Duration, Instant};

use reqwest::{Client, Method};
use serde_json::{Value, json};
use square::{found, get, start};
use srv6d_path_server::Running;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Timeout for anything that these tests wait for; longer than any of it takes.
const DEADLINE: Duration = Duration::from_mins(2);
const PAIR: &str = "source=hosts/host0&destination=hosts/host15";

/// Returns a fabric in which every leaf has a link to every spine, and a host.
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
    // Other requests do not wait for it.
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

/// Idle connections are closed after a time limit, so a client that waits behind too many of them is served.
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

/// Sends the head of a request byte by byte, again and again.
async fn sends_slowly(address: std::net::SocketAddr) {
    loop {
        let Ok(mut stream) = TcpStream::connect(address).await else { continue };
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nX: ").await;
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Clients that send a head byte by byte, and connect again when they are cut off, keep nobody out. A listener stays.
#[tokio::test]
async fn slow_heads_that_come_again_are_bounded() {
    let server = start(&clos(1, 2)).await;
    let events = format!("{}/api/v1/graphs/fabric_graph/events", server.url());
    let mut listening = Client::new().get(events).send().await.unwrap();
    assert_eq!(listening.status(), 200);
    let address = server.address();
    let clients: Vec<_> = (0..400).map(|_| tokio::spawn(sends_slowly(address))).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    for _ in 0..3 {
        let answered = tokio::time::timeout(Duration::from_secs(8), get(&server, "collections")).await;
        assert_eq!(answered.unwrap().0, 200, "before a head times out");
    }
    let cut_off = tokio::time::timeout(Duration::from_millis(100), listening.chunk()).await;
    assert!(!matches!(cut_off, Ok(Ok(None) | Err(_))), "the listener is cut off: {cut_off:?}");
    for client in clients {
        client.abort();
    }
}

/// There are more listeners than the server accepts: most get a refusal with text, and other clients are served.
#[tokio::test]
async fn listeners_to_events_are_bounded() {
    let server = start(&clos(1, 2)).await;
    let client = Client::new();
    let listen =
        async || client.get(format!("{}/api/v1/graphs/fabric_graph/events", server.url())).send().await.unwrap();
    let mut listening = Vec::new();
    for _ in 0..300 {
        let answer = in_time(listen()).await;
        if answer.status() == 200 {
            listening.push(answer);
        } else {
            assert_eq!(answer.status(), 503);
            let said: Value = answer.json().await.unwrap();
            assert!(said["detail"].as_str().unwrap().starts_with("64 clients listen to events already"), "{said}");
        }
    }
    assert_eq!(listening.len(), 64);
    assert_eq!(in_time(get(&server, "collections")).await.0, 200);
    listening.pop();
    in_time(async {
        while listen().await.status() != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Clients that announce a body and do not send it occupy their connections, but other clients are answered.
#[tokio::test]
async fn bodies_that_do_not_come_hold_up_nobody() {
    let server = start(&clos(1, 2)).await;
    let mut silent = Vec::new();
    for _ in 0..10 {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let head = "POST /api/v1/graphs/fabric_graph/placement HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{";
        stream.write_all(head.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    // This is half of the time that a body may take.
    let route = "edges/hosts.host0_fabric_node.leaf0";
    let asked = tokio::time::timeout(Duration::from_secs(15), ask(&server, &Method::PATCH, route, &[]));
    assert_eq!(asked.await.unwrap(), 200);
}

/// Long bodies share their memory. Those for which there is no memory are refused, and short ones are still read.
#[tokio::test]
async fn long_bodies_share_their_memory() {
    const LONG: usize = 63 << 20;
    let server = start(&clos(1, 2)).await;
    let filler = vec![b' '; LONG];
    let mut sent = Vec::new();
    for _ in 0..5 {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let head = format!(
            "POST /api/v1/graphs/fabric_graph/placement HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
            LONG + 1
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // The last byte is never sent. The server does not read a refused body to its end.
        let _ = in_time(stream.write_all(&filler)).await;
        sent.push(stream);
    }
    let mut said = String::new();
    let _ = in_time(sent.pop().unwrap().read_to_string(&mut said)).await;
    assert!(said.starts_with("HTTP/1.1 503 ") && said.contains("send yours again later"), "{said}");
    let route = "edges/hosts.host0_fabric_node.leaf0";
    assert_eq!(in_time(ask(&server, &Method::PATCH, route, &[])).await, 200);
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
    // A GET that allocates is such a change. A browser sends no origin with a request for an image.
    let load = "shortest_path/load?source=hosts/host0&destination=hosts/host1";
    for (name, value) in
        [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site"), ("referer", "http://evil.example/")]
    {
        assert_eq!(ask(&server, &Method::GET, load, &[(name, value)]).await, 403, "{name}: {value}");
        assert_eq!(ask(&server, &Method::GET, "edges", &[(name, value)]).await, 200, "{name}: {value}");
    }
    let released = &changes[2];
    assert_eq!(ask(&server, &released.0, released.1, &[]).await, 404, "nothing was allocated");
    assert_eq!(ask(&server, &Method::GET, load, &[]).await, 200);
    assert_eq!(ask(&server, &released.0, released.1, &[]).await, 200);
    // A browser asks for permission before a request that changes something.
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
