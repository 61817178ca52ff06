//! Path controllers with arbitrary answers: a real source asks a real HTTP server, whose answers are the input.
//!
//! ```text
//! input ─► server ─► Sources (Jalapeno, syd) ─► offers ─► plan ─► Tables
//! ```

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use srv6d_config::{self as config, Config};
use srv6d_controller::{PeerState, Snapshot};
use srv6d_daemon::source::running::{Controllers, Status};
use srv6d_offer::Offer;
use srv6d_plan::{self as plan, Environment};
use srv6d_srv6::carrier::Carrier;
use srv6d_srv6::{Slots, Tables};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::{most_text, one_part_each, parts};

/// Limit on the time of one round of requests. It is long because a loaded machine takes many times as long as an idle
/// one.
const PATIENCE: Duration = Duration::from_mins(1);
/// HTTP statuses that an answer may have; most are the one with which the answer is used.
const STATUSES: [u16; 8] = [200, 200, 200, 200, 404, 409, 422, 500];
const KINDS: [&str; 7] = ["shortest", "latency", "utilization", "load", "best-paths", "next-best-path", "placed"];

const TOPOLOGY: &str = include_str!("../../../../control/controller/tests/data/2026-01-topology.json");
const TO_FAR: &str = include_str!("../../../../control/controller/tests/data/2026-01-shortest-path.json");

/// Fuzz target: a source that asks a Jalapeno with faulty answers. Input: `| kind of path | status | answer of
/// /topology, a zero byte, answer about one of the two peers |`
///
/// # Panics
/// If a last good path is lost, if an offer contains something other than carriers or cannot be put in force, or if it
/// is larger than the answers can explain.
pub fn jalapeno(data: &[u8]) {
    let Some((&[kind, status], bodies)) = data.split_first_chunk::<2>() else { return };
    let kind = usize::from(kind) % KINDS.len();
    let [topology, far] = parts(bodies, [TOPOLOGY, TO_FAR]);
    let status = STATUSES.get(usize::from(status) % STATUSES.len()).copied().unwrap_or(200);
    RIGS.with_borrow_mut(|rigs| {
        let rig = rigs.get_mut(kind).expect("a rig for each kind");
        let rig = rig.get_or_insert_with(|| Rig::of_jalapeno(kind));
        rig.runtime.block_on(async {
            let before = snapshot(&rig.sources);
            rig.answers.say(Said { status, bodies: vec![topology, far] });
            look(&mut rig.sources).await;
            check(&rig.sources, &rig.config, data);
            let after = snapshot(&rig.sources);
            keeps_what_was_good(&before, &after);
            rig.answers.say(Said::right());
            look(&mut rig.sources).await;
        });
    });
}

/// Fuzz target: a source that asks a syd with faulty answers. Input: `| status | workload, a zero byte, flows, a zero
/// byte, stream of events |`
///
/// # Panics
/// As in [`jalapeno`], or if the source asks more often than the events tell it to.
pub fn syd(data: &[u8]) {
    let Some((&status, bodies)) = data.split_first() else { return };
    let status = STATUSES.get(usize::from(status) % STATUSES.len()).copied().unwrap_or(200);
    let bodies = parts(bodies, [WORKLOAD, FLOWS, EVENTS]);
    SYD.with_borrow_mut(|rig| {
        let rig = rig.get_or_insert_with(Rig::of_syd);
        rig.runtime.block_on(async {
            let told = bodies.get(2).map_or(0, |events| events.split(|byte| *byte == b'\n').count() - 1);
            rig.answers.say(Said { status, bodies: bodies.to_vec() });
            rig.sources = Controllers::default();
            rig.sources.configure(&rig.config, "fuzz");
            until_it_has_looked(&mut rig.sources, 0).await;
            // Events may arrive at any time; their number limits what they can cause.
            while timeout(Duration::from_millis(2), rig.sources.changed()).await.is_ok() {}
            check(&rig.sources, &rig.config, data);
            let asked = rig.answers.asked();
            assert!(asked <= 16 + 8 * told, "asked {asked} times after {told} lines of events");
            rig.sources.stop().await;
        });
    });
}

const WORKLOAD: &str = r#"{"state": "active", "drain_reason": null}"#;
const FLOWS: &str = r#"{"flows": [
{"src_node_id": "gpu-a", "dst_node_id": "gpu-b", "segment_list": ["fcbb:0:1:e002:4:e004:16:0"], "outer_da": "fcbb:0:1:e002:4:e004:16:0"},
{"src_node_id": "gpu-a", "dst_node_id": "gpu-b", "segment_list": ["fcbb:0:7:8::"], "flow_count": 3}],
"leaf_pair_flows": null}"#;
const EVENTS: &str = "data: {\"now\": 1}\n\nevent: change\nid: 7\ndata: {}\n\n";

thread_local! {
    static RIGS: RefCell<[Option<Rig>; KINDS.len()]> = const { RefCell::new([const { None }; KINDS.len()]) };
    static SYD: RefCell<Option<Rig>> = const { RefCell::new(None) };
}

/// A source with its configuration, the server that it asks, and the answers of the server.
struct Rig {
    // Declared before the runtime, because the sources have to be dropped first.
    sources: Controllers,
    config: Config,
    answers: Answers,
    runtime: Runtime,
}

impl Rig {
    fn new(source: impl FnOnce(u16) -> String) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let answers = Answers::default();
        let port = runtime.block_on(answers.serve());
        let text = format!("{NODE}{}", source(port));
        let config = config::parse(&text, "srv6d.toml").unwrap_or_else(|errors| panic!("{errors}"));
        Self { sources: Controllers::default(), config, answers, runtime }
    }

    fn of_jalapeno(kind: usize) -> Self {
        let kind = KINDS.get(kind).copied().unwrap_or("shortest");
        let mut rig = Self::new(|port| {
            format!(
                "[jalapeno]\nendpoint = \"http://127.0.0.1:{port}\"\nsource = \"hosts/srv6-pytorch-0\"\n\
                 peers = [\"hosts/srv6-pytorch-1\", \"hosts/srv6-pytorch-2\"]\npath = \"{kind}\"\ninterval = \"24h\"\n"
            )
        });
        rig.runtime.block_on(async {
            rig.sources.configure(&rig.config, "fuzz");
            until_it_has_looked(&mut rig.sources, 0).await;
        });
        rig
    }

    fn of_syd() -> Self {
        Self::new(|port| {
            format!(
                "[syd]\nendpoint = \"http://127.0.0.1:{port}\"\ntopology = \"t\"\nworkload = \"w\"\nnode = \"gpu-a\"\n\
                 peers = [{{ node = \"gpu-b\", prefixes = [\"2001:db8:b::/48\", \"10.2.0.0/16\"] }}]\n\
                 interval = \"24h\"\nlease = \"24h\"\n"
            )
        })
    }
}

const NODE: &str = "[node]\nsource = \"2001:db8:1::1\"\n[[port]]\nname = \"eth1\"\n\
                    [[block]]\nprefix = \"fcbb::/32\"\n";

/// Next answers of the server.
#[derive(Clone)]
struct Said {
    status: u16,
    bodies: Vec<Vec<u8>>,
}

impl Said {
    fn right() -> Self {
        Self { status: 200, bodies: vec![TOPOLOGY.into(), TO_FAR.into()] }
    }
}

/// Next answers of the server, shared with it, and the number of requests so far.
#[derive(Clone)]
struct Answers(Arc<Mutex<(Said, usize)>>);

impl Default for Answers {
    fn default() -> Self {
        Self(Arc::new(Mutex::new((Said::right(), 0))))
    }
}

impl Answers {
    fn say(&self, said: Said) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (said, 0);
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    async fn serve(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let answers = self.clone();
        let answer = move |request: Request| {
            let answers = answers.clone();
            async move { answers.answer(&request) }
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        port
    }

    fn answer(&self, request: &Request) -> Response {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.1 += 1;
        let said = &answers.0;
        let body = |number: usize| said.bodies.get(number).cloned().unwrap_or_default();
        let target = request.uri().to_string();
        let near =
            || TO_FAR.replace("srv6-pytorch-2", "srv6-pytorch-1").replace("10.0.0.202_leaf02", "10.0.0.201_leaf01");
        let usual = |body: Vec<u8>| body.into_response();
        let damaged = |body: Vec<u8>| (StatusCode::from_u16(said.status).unwrap_or_default(), body).into_response();
        match target.as_str() {
            target if target.ends_with("/topology") => damaged(body(0)),
            target if target.contains("srv6-pytorch-2") => damaged(body(1)),
            target if target.contains("/graphs/") => usual(near().into_bytes()),
            "/paths/w" => damaged(body(0)),
            "/paths/w/flows" => damaged(body(1)),
            "/paths/w/events" => ([(header::CONTENT_TYPE, "text/event-stream")], body(2)).into_response(),
            _ => usual(b"{}".to_vec()),
        }
    }
}

/// Lets the source ask the controller once more, and waits until that round has ended.
async fn look(sources: &mut Controllers) {
    let before = snapshot(sources).health.attempts;
    sources.sync();
    until_it_has_looked(sources, before).await;
}

async fn until_it_has_looked(sources: &mut Controllers, attempts: u64) {
    let looked = async {
        loop {
            let health = snapshot(sources).health.clone();
            // A round has ended when the time of the next one is known.
            if health.attempts > attempts && health.next.is_some() && !is_on_its_way(sources, attempts) {
                return;
            }
            sources.changed().await;
        }
    };
    timeout(PATIENCE, looked).await.expect("a look at the controller ends");
}

/// Returns whether a round is in progress. During a round, partial results are published without the time of the next
/// round.
fn is_on_its_way(sources: &Controllers, attempts: u64) -> bool {
    let health = &snapshot(sources).health;
    health.attempts > attempts && health.next.is_none()
}

fn snapshot(sources: &Controllers) -> Arc<Snapshot> {
    sources.status().first().map(|status: &Status| Arc::clone(&status.snapshot)).unwrap_or_default()
}

/// Checks that the offers consist of carriers, can be put in force, and are no larger than the answers can explain.
fn check(sources: &Controllers, config: &Config, data: &[u8]) {
    let offers: Vec<Offer> = sources.offers();
    let steers = offers.iter().flat_map(|offer| &offer.steers);
    for path in steers.flat_map(|steer| &steer.paths) {
        assert!(!path.segments.is_empty() && path.weight > 0, "a path without segments, or without a share");
    }
    let text = serde_json::to_string(&offers).expect("offers can be written");
    assert!(text.len() <= most_text(data, 64), "{} bytes of offers for {}", text.len(), data.len());
    let planned = plan::plan_with(config, &Environment::default(), &offers);
    let plan = planned.unwrap_or_else(|errors| panic!("an offer is an error: {errors}"));
    Tables::build(&plan.desired, &mut Slots::default()).unwrap_or_else(|why| panic!("not compiled: {why}"));
    let status = sources.status();
    let words = status.iter().flat_map(|status| {
        let errors = status.snapshot.peers.values().filter_map(|peer| peer.last_error.as_ref());
        let notes = status.snapshot.peers.values().flat_map(|peer| &peer.notes);
        errors.chain(notes).chain(&status.snapshot.health.last_error)
    });
    let words: usize = words.map(String::len).sum();
    assert!(words <= most_text(data, 64), "{words} bytes of errors and notes for {}", data.len());
}

/// Checks that a peer that had paths still has some; a peer whose request failed keeps its old ones.
fn keeps_what_was_good(before: &Snapshot, after: &Snapshot) {
    for (id, peer) in &after.peers {
        let Some(known) = before.peers.get(id).filter(|known| !known.prefixes.is_empty()) else { continue };
        match peer.state {
            PeerState::Fresh => assert!(peer.last_error.is_none(), "{id}: {peer:?}"),
            PeerState::Stale { .. } => assert_eq!(peer.prefixes, known.prefixes, "{id}"),
            PeerState::Waiting | PeerState::Missing => panic!("{id}: its paths are gone: {peer:?}"),
        }
        for path in peer.prefixes.iter().flat_map(|prefix| &prefix.paths) {
            for segment in &path.segments {
                assert!(Carrier::new(*segment).is_ok(), "{id}: {segment} is no carrier");
            }
        }
    }
}

/// Returns recorded answers, each for every kind of path and with every status.
pub fn jalapeno_seeds() -> Vec<Vec<u8>> {
    let answers = [
        include_str!("../../../../control/controller/tests/data/2025-11-shortest-path.json"),
        include_str!("../../../../control/controller/tests/data/2025-11-best-paths-overflow.json"),
        include_str!("../../../../control/controller/tests/data/2026-01-best-paths.json"),
        include_str!("../../../../control/controller/tests/data/2026-01-next-best-path.json"),
        include_str!("../../../../control/controller/tests/data/2026-01-shortest-path-load-call-1.json"),
        include_str!("../../../../control/controller/tests/data/2026-01-shortest-path-algo-128.json"),
        include_str!("../../../../control/controller/tests/data/2026-01-not-found.json"),
        include_str!("../../../../control/controller/tests/data/2026-01-error-422.json"),
        include_str!("../../../../control/controller/tests/data/2026-01-collection-hosts.json"),
        TO_FAR,
    ];
    let mut bodies = one_part_each(&[TOPOLOGY, TO_FAR]);
    bodies.extend(answers.iter().map(|answer| [b"\0", answer.as_bytes()].concat()));
    bodies.extend([b"{}\0{}".to_vec(), b"[]\0[]".to_vec(), Vec::new(), b"\0{\"found\": false}".to_vec()]);
    let mut seeds = Vec::new();
    for (number, body) in bodies.iter().enumerate() {
        for kind in [0, number % KINDS.len()] {
            let status = if number % 5 == 4 { number % STATUSES.len() } else { 0 };
            let head = [u8::try_from(kind).unwrap_or(0), u8::try_from(status).unwrap_or(0)];
            seeds.push([&head[..], body].concat());
        }
    }
    seeds
}

/// Returns workloads in every state, flows of every form, and streams of events.
pub fn syd_seeds() -> Vec<Vec<u8>> {
    let workloads = [r#"{"state": "draining", "drain_reason": "policy"}"#, r#"{"state": "complete"}"#, "null", "{}"];
    let flows = [
        r#"{"flows": null, "leaf_pair_flows": [{"src_node_id": "gpu-a", "dst_node_id": "gpu-b", "segment_list": ["fcbb:0:1::"]}]}"#,
        r#"{"flows": [{"src_node_id": "gpu-a", "dst_node_id": "gpu-b", "segment_list": ["fcbb:0:1::", "2001:db8::1"]}]}"#,
        r#"{"flows": [{"src_node_id": "gpu-a", "dst_node_id": "gpu-b", "segment_list": []}]}"#,
        r#"{"flows": [{"src_node_id": "gpu-a", "dst_node_id": "gpu-b", "segment_list": ["fcbb::"], "flow_count": 65535}]}"#,
        r#"{"error": "no", "detail": ["a", "b"]}"#,
        "[]",
    ];
    let events =
        ["data: a\n\ndata: b\n\ndata: c\n\n", ":\n\nretry: 1\r\n\r\ndata\n\n", "\u{feff}data: x\n\n", "id: \u{0}\n"];
    let mut bodies = one_part_each(&[WORKLOAD, FLOWS, EVENTS]);
    bodies.extend(workloads.iter().map(|text| text.as_bytes().to_vec()));
    bodies.extend(flows.iter().map(|text| [b"\0", text.as_bytes()].concat()));
    bodies.extend(events.iter().map(|text| [b"\0\0", text.as_bytes()].concat()));
    let statuses = [0u8, 4, 5];
    statuses.iter().flat_map(|status| bodies.iter().map(move |body| [&[*status][..], body].concat())).collect()
}
