//! Tests with an API that answers one request after the other, as the real one does, and sixteen hosts that start at
//! the same time. Every pair is booked once, and before that nothing else is requested.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use serde_json::json;
use srv6d_controller::Snapshot;
use srv6d_controller::jalapeno::{Criterion, Discovery, Settings};
use srv6d_path_server::{Running, Server, Store};
use support::lab::{all_fresh, follow, load, settings_at};
use tokio::net::TcpListener;

const HOSTS: usize = 16;
const LEAVES: usize = 4;
const SPINES: usize = 2;
/// Time that the API needs for a request, and time that a host waits for an ordinary answer. With eight requests of
/// each of the sixteen hosts, a request would wait longer than that, and so would one for the topology.
const BOOKING: Duration = Duration::from_millis(20);
const TOPOLOGY: Duration = Duration::from_millis(1500);
const TIMEOUT: Duration = Duration::from_secs(1);

fn host(number: usize) -> String {
    format!("hosts/host{number:02}")
}

fn fabric() -> Store {
    let sid = |text: String, behavior: u16| json!({"srv6_sid": text, "srv6_endpoint_behavior": {"endpoint_behavior": behavior, "algo": 0}});
    let mut vertices = serde_json::Map::new();
    let mut edges = Vec::new();
    let mut link = |a: &str, b: &str| {
        for (from, to) in [(a, b), (b, a)] {
            edges.push(json!({"_key": format!("{from}-{to}").replace('/', "."), "_from": from, "_to": to, "load": 0}));
        }
    };
    for spine in 0..SPINES {
        let id = format!("fabric_node/spine{spine}");
        let sids = [sid(format!("fc00:0:{:x}::", 0x1000 + spine), 48)];
        vertices.insert(id.clone(), json!({"_id": id, "router_id": id, "name": format!("spine{spine}"), "sids": sids}));
    }
    for leaf in 0..LEAVES {
        let id = format!("fabric_node/leaf{leaf}");
        let un = format!("fc00:0:{:x}::", 0x1200 + leaf);
        let sids = [sid(un.clone(), 48), sid(un.replace("::", ":fe06::"), 62)];
        vertices.insert(id.clone(), json!({"_id": id, "router_id": id, "name": format!("leaf{leaf}"), "sids": sids}));
        (0..SPINES).for_each(|spine| link(&id, &format!("fabric_node/spine{spine}")));
        for number in (0..HOSTS).filter(|number| number % LEAVES == leaf) {
            let (id_of_host, prefix) = (host(number), format!("2001:db8:{:x}::", 0x1000 + number));
            vertices.insert(id_of_host.clone(), json!({"_id": id_of_host, "prefix": prefix, "prefix_len": 64}));
            link(&id, &id_of_host);
        }
    }
    Store::parse(&json!({ "vertices": vertices, "edges": edges }).to_string()).unwrap()
}

/// A proxy in front of a path server that processes one request at a time, each to its end even if the client has given
/// up.
#[derive(Clone)]
struct Serial {
    server: String,
    http: reqwest::Client,
    turn: Arc<tokio::sync::Mutex<()>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Serial {
    async fn before(server: &Running) -> (Self, String) {
        let serial =
            Self { server: server.url(), http: reqwest::Client::new(), turn: Arc::default(), asked: Arc::default() };
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(pass).with_state(serial.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (serial, url)
    }

    async fn answer(self, target: String) -> (StatusCode, String) {
        let _turn = self.turn.lock().await;
        self.asked.lock().unwrap().push(target.clone());
        tokio::time::sleep(if target.ends_with("/topology") { TOPOLOGY } else { BOOKING }).await;
        let answer = self.http.get(format!("{}{target}", self.server)).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }
}

async fn pass(State(serial): State<Serial>, request: Request) -> Response {
    // Jalapeno's API cannot release allocations.
    if request.method() != "GET" {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let target = request.uri().to_string();
    tokio::spawn(serial.answer(target)).await.unwrap().into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_herd_of_hosts_books_every_pair_once_and_before_all_else() {
    let server = Server { store: fabric(), ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap();
    let (serial, url) = Serial::before(&server).await;
    let peers: Vec<String> = (0..HOSTS).map(host).collect();
    let settings = |number| Settings {
        kind: Criterion::Load,
        source: host(number),
        peers: peers.clone(),
        timeout: TIMEOUT,
        interval: Duration::from_secs(1),
        ..settings_at(url.clone())
    };
    let mut sources: Vec<_> = (0..HOSTS).map(|number| follow(settings(number))).collect();
    let has_paths = |snapshot: &Snapshot| {
        snapshot.peers.len() == HOSTS - 1 && snapshot.peers.values().all(|peer| !peer.prefixes.is_empty())
    };
    join_all(sources.iter_mut().map(|source| source.until("paths to all", has_paths))).await;

    let asked = serial.asked.lock().unwrap().clone();
    let last_booking = asked.iter().rposition(|target| target.contains("/load?")).unwrap();
    let topologies = asked.iter().take(last_booking).filter(|target| target.ends_with("/topology")).count();
    // A host that has all its paths reads the topology while others are still booking.
    assert!(topologies < HOSTS, "{topologies} topologies before the last booking");
    // All rounds end, although late, and none of them books again.
    join_all(sources.iter_mut().map(|source| source.until("fresh", all_fresh))).await;
    let mut bookings: BTreeMap<String, u32> = BTreeMap::new();
    for target in serial.asked.lock().unwrap().iter().filter(|target| target.contains("/load?")) {
        *bookings.entry(target.clone()).or_default() += 1;
    }
    assert_eq!(bookings.len(), HOSTS * (HOSTS - 1));
    assert!(bookings.values().all(|times| *times == 1), "{bookings:#?}");
    for source in sources {
        assert_eq!(source.now().health.failures.len(), 0, "{:?}", source.now().health);
    }
}

/// The last round finds the paths that were booked: no path has changed.
#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_was_booked_without_the_topology_is_the_one_that_the_topology_shows() {
    let server = Server { store: fabric(), ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap();
    let (_, url) = Serial::before(&server).await;
    let settings = Settings { kind: Criterion::Load, source: host(0), peers: vec![host(1)], ..settings_at(url) };
    let mut source = follow(Settings { interval: Duration::from_millis(500), ..settings });
    let booked = source.until("booked", |snapshot| snapshot.peers.values().any(|peer| !peer.prefixes.is_empty())).await;
    let looked = source.until("looked", |snapshot| snapshot.health.successes > 1).await;
    assert_eq!(looked.peers[&host(1)].prefixes, booked.peers[&host(1)].prefixes);
}

/// A host that knows only the API's address discovers the other hosts and the block, and does not book anything.
#[tokio::test(flavor = "multi_thread")]
async fn peers_and_block_are_those_of_the_api() {
    let server = Server { store: fabric(), ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap();
    let settings = Settings { peers: vec![host(0), host(5)], ..Settings::new(&server.url(), "fabric_graph", &host(0)) };
    let discovery = Discovery::new(&settings).unwrap();
    assert_eq!(discovery.keys("hosts").await.unwrap().len(), HOSTS);
    assert_eq!(discovery.blocks().await.unwrap().blocks, BTreeSet::from(["fc00::/32".parse().unwrap()]));
    assert_eq!(load(&server).await, 0);
    let nobody = Settings { peers: vec!["hosts/nobody".to_owned()], ..settings };
    let why = Discovery::new(&nobody).unwrap().blocks().await.unwrap_err().to_string();
    assert!(why.contains("No path found"), "{why}");
}
