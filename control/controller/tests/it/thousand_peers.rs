//! Tests with many peers: several are requested at a time, never more than allowed, and each independently.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use srv6d_controller::jalapeno::{Criterion, Settings};
use srv6d_controller::{Cause, PeerState, Snapshot};
use srv6d_path_server::{FaultPlan, Running, Server, Store};
use support::lab::{all_fresh, follow, load, settings_at};
use support::{Source, carriers};
use tokio::net::TcpListener;

const SPINES: usize = 4;
/// Number of hosts per leaf. The first host of all is the source.
const HOSTS: usize = 32;
const AT_ONCE: usize = 16;

fn host(number: usize) -> String {
    format!("hosts/h{number:04}")
}

/// Builds a fabric of two tiers: every leaf has a link to every spine, and its hosts.
fn clos(leaves: usize) -> Store {
    let sid = |text: String, behavior: u16| json!({"srv6_sid": text, "srv6_endpoint_behavior": {"endpoint_behavior": behavior, "algo": 0}});
    let mut vertices = serde_json::Map::new();
    let mut edges = Vec::new();
    let mut link = |a: &str, b: &str| {
        for (from, to) in [(a, b), (b, a)] {
            edges.push(json!({"_key": format!("{from}-{to}").replace('/', "."), "_from": from, "_to": to, "load": 0}));
        }
    };
    for spine in 0..SPINES {
        let id = format!("fabric_node/spine{spine:02}");
        let sids = [sid(format!("fcbb:0:{:x}::", 0x1000 + spine), 48)];
        vertices
            .insert(id.clone(), json!({"_id": id, "router_id": id, "name": format!("spine{spine:02}"), "sids": sids}));
    }
    for leaf in 0..leaves {
        let id = format!("fabric_node/leaf{leaf:02}");
        let un = format!("fcbb:0:{:x}::", 0x2000 + leaf);
        let sids = [sid(un.clone(), 48), sid(un.replace("::", ":fe06::"), 62)];
        vertices
            .insert(id.clone(), json!({"_id": id, "router_id": id, "name": format!("leaf{leaf:02}"), "sids": sids}));
        for spine in 0..SPINES {
            link(&id, &format!("fabric_node/spine{spine:02}"));
        }
        for number in leaf * HOSTS..(leaf + 1) * HOSTS {
            let prefix = format!("2001:db8:0:{number:x}::");
            vertices.insert(host(number), json!({"_id": host(number), "prefix": prefix, "prefix_len": 64}));
            link(&id, &host(number));
        }
    }
    Store::parse(&json!({ "vertices": vertices, "edges": edges }).to_string()).unwrap()
}

async fn server(leaves: usize, rules: Value) -> Running {
    let faults = FaultPlan::parse(&rules.to_string()).unwrap();
    Server { store: clos(leaves), faults, ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap()
}

fn everyone(leaves: usize, endpoint: String) -> Settings {
    Settings {
        source: host(0),
        peers: (0..leaves * HOSTS).map(host).collect(),
        concurrency: AT_ONCE,
        interval: Duration::from_secs(1),
        timeout: Duration::from_secs(30),
        ..settings_at(endpoint)
    }
}

/// A proxy that records the largest number of simultaneous requests.
#[derive(Clone)]
struct Gate {
    server: String,
    http: reqwest::Client,
    under_way: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Gate {
    async fn before(server: &Running) -> (Self, String) {
        let gate = Self {
            server: server.url(),
            http: reqwest::Client::new(),
            under_way: Arc::default(),
            most: Arc::default(),
        };
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(pass).with_state(gate.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (gate, url)
    }
}

async fn pass(State(gate): State<Gate>, request: Request) -> Response {
    let under_way = gate.under_way.fetch_add(1, Ordering::SeqCst) + 1;
    gate.most.fetch_max(under_way, Ordering::SeqCst);
    let url = format!("{}{}", gate.server, request.uri());
    let answer = gate.http.request(request.method().clone(), url).send().await.unwrap();
    let status = answer.status();
    let body = answer.bytes().await.unwrap();
    gate.under_way.fetch_sub(1, Ordering::SeqCst);
    Response::builder().status(status).body(body.into()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_are_asked_several_at_a_time_and_never_more() {
    // The delay makes requests overlap.
    let server = server(32, json!([{ "route": "shortest_path", "fault": { "delay": 5 } }])).await;
    let (gate, url) = Gate::before(&server).await;
    // The interval prevents a second round before the requests are counted.
    let mut source = follow(Settings { interval: Duration::from_mins(1), ..everyone(32, url) });
    let snapshot = source.until("fresh", |snapshot| all_fresh(snapshot) && snapshot.health.next.is_some()).await;
    assert_eq!(snapshot.peers.len(), 1023, "the sender itself is no peer");
    let distinct: BTreeSet<String> = snapshot.peers.values().flat_map(carriers).collect();
    assert_eq!(distinct.len(), 32, "one carrier to every leaf, its own among them");
    let most = gate.most.load(Ordering::SeqCst);
    assert!((2..=AT_ONCE).contains(&most), "{most} at a time");
    assert_eq!(server.requests(), 1025, "one question each, and the topology before and after");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_is_published_while_one_peer_keeps_the_round_waiting() {
    let server = server(4, json!([{ "route": "h0090", "fault": "silence" }])).await;
    let mut source = follow(everyone(4, server.url()));
    let waiting = |snapshot: &Snapshot| snapshot.peers.values().filter(|peer| peer.state != PeerState::Fresh).count();
    let snapshot = source.until("all others", |snapshot| !snapshot.peers.is_empty() && waiting(snapshot) == 1).await;
    assert_eq!(snapshot.peers[&host(90)].state, PeerState::Waiting);
    assert_eq!(snapshot.health.next, None, "the round is not over");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_silent_peer_keeps_nobody_waiting() {
    let server = server(4, json!([{ "route": "h0090", "fault": "silence" }])).await;
    let mut source = follow(Settings {
        timeout: Duration::from_secs(5),
        interval: Duration::from_secs(10),
        ..everyone(4, server.url())
    });
    let snapshot = one_round(&mut source).await;
    let others = snapshot.peers.iter().filter(|(_, peer)| peer.state != PeerState::Fresh);
    assert_eq!(others.map(|(id, _)| id.clone()).collect::<Vec<_>>(), [host(90)]);
    assert_eq!(snapshot.health.failures.iter().collect::<Vec<_>>(), [(&Cause::Timeout, &1)]);
    let wait = snapshot.health.next.unwrap().duration_since(SystemTime::now()).unwrap();
    assert!(wait <= Duration::from_secs(12), "the others are looked after at the usual pace: {wait:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_controller_is_not_asked_about_every_peer() {
    let server = server(4, json!([{ "route": "destination", "fault": "silence" }])).await;
    let mut source = follow(Settings { timeout: Duration::from_secs(5), ..everyone(4, server.url()) });
    let snapshot = one_round(&mut source).await;
    assert!(snapshot.health.failures[&Cause::Timeout] <= AT_ONCE as u64, "{:?}", snapshot.health.failures);
    assert!(snapshot.peers.values().all(|peer| peer.state == PeerState::Missing && peer.last_error.is_some()));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_allocation_is_made_once_and_given_back() {
    let server = server(4, json!([])).await;
    let mut source = follow(Settings { kind: Criterion::Load, ..everyone(4, server.url()) });
    source.until("fresh", all_fresh).await;
    // Each link of a path has a load of ten: two links to hosts of the same leaf, four to all others.
    let booked = 10 * (2 * (HOSTS - 1) + 4 * 3 * HOSTS) as u64;
    assert_eq!(load(&server).await, booked);
    source.sync().await;
    source.rounds(1).await;
    assert_eq!(load(&server).await, booked, "asked again, nothing is allocated");
    source.stop().await;
    assert_eq!(load(&server).await, 0);
}

/// Returns the snapshot at the end of the first round.
async fn one_round(source: &mut Source) -> Arc<Snapshot> {
    source.until("one round", |snapshot| snapshot.health.next.is_some()).await
}
