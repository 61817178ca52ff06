//! Tests with recorded answers and with faults in them: what is programmed, what is refused, and with which message.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use serde_json::{Value, json};
use srv6d_controller::jalapeno::{Criterion, Settings};
use srv6d_controller::{Allowed, Cause, PeerState, Snapshot};
use support::lab::{FABRIC, FAR, NEAR, all_fresh, follow, settings_at};
use support::{Source, carriers};
use tokio::net::TcpListener;

/// The answer to every request for a path.
#[derive(Clone, Debug)]
struct Canned {
    status: u16,
    retry_after: Option<&'static str>,
    body: String,
}

fn canned(body: &Value) -> Canned {
    status(200, &body.to_string())
}

fn status(status: u16, body: &str) -> Canned {
    Canned { status, retry_after: None, body: body.to_owned() }
}

fn recorded(name: &str) -> Value {
    let file = format!("{}/tests/data/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// Returns the recorded path from host 0 to host 2 after a change.
fn shortest(change: impl Fn(&mut Value)) -> Canned {
    let mut answer = recorded("2026-01-shortest-path");
    change(&mut answer);
    canned(&answer)
}

/// Starts a server that answers every request for a path with `canned`, and has the recorded topology.
async fn serve(canned: Canned) -> String {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = move || {
        let Canned { status, retry_after, body } = canned.clone();
        let headers: HeaderMap =
            retry_after.iter().map(|seconds| ("retry-after".parse().unwrap(), seconds.parse().unwrap())).collect();
        async move { (StatusCode::from_u16(status).unwrap(), headers, body) }
    };
    let graph = Router::new().route("/topology", get(|| async { FABRIC })).fallback(answer);
    let router = Router::new().nest("/api/v1/graphs/fabric_graph", graph);
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// Returns the snapshot after one round that requests the path to one peer.
async fn asked(answer: Canned, settings: impl Fn(Settings) -> Settings) -> Arc<Snapshot> {
    let only_far =
        Settings { peers: vec![FAR.to_owned()], interval: Duration::from_hours(1), ..settings_at(serve(answer).await) };
    let mut source = follow(settings(only_far));
    source.until("one round", |snapshot| snapshot.health.next.is_some()).await
}

#[tokio::test]
async fn recorded_answers_of_both_editions_become_carriers() {
    let one = ["fcbb:0:1004:1000:1006:fe06::"];
    let other = ["fcbb:0:1004:1001:1006:fe06::"];
    let all = [one[0], other[0], "fcbb:0:1004:1002:1006:fe06::"];
    let cut = "as many paths as `limit` allows: there may be more";
    let longer = "1 of 4 paths left out: they have more hops than the shortest; flows use the other 3";
    let recordings: [(&str, Criterion, &[&str], &[&str]); 6] = [
        ("2026-01-shortest-path", Criterion::Shortest, &one, &[]),
        ("2025-11-shortest-path", Criterion::Shortest, &one, &[]),
        ("2026-01-shortest-path-load-call-1", Criterion::Load, &one, &[]),
        ("2026-01-shortest-path-load-call-2", Criterion::Load, &other, &[]),
        // The fourth path is a detour of six hops.
        ("2026-01-best-paths", Criterion::BestPaths { limit: 4 }, &all, &[cut, longer]),
        ("2026-01-next-best-path", Criterion::NextBestPath { limit: 4 }, &all, &[]),
    ];
    for (name, kind, expected, notes) in recordings {
        let snapshot = asked(canned(&recorded(name)), |settings| Settings { kind: kind.clone(), ..settings }).await;
        let peer = &snapshot.peers[FAR];
        assert_eq!(carriers(peer), expected, "{name}");
        assert_eq!(peer.notes, notes, "{name}");
        assert_eq!((&peer.state, snapshot.health.mismatches), (&PeerState::Fresh, 0), "{name}");
    }
}

#[tokio::test]
async fn answers_that_are_none_are_refused_with_their_cause() {
    let spine = "fabric_node/10.0.0.0_spine00";
    let without_path = json!({"found": true, "hopcount": 4});
    let refusals = [
        (status(422, &recorded("2026-01-error-422").to_string()), Cause::Status, "\"loc\":[\"query\",\"destination\"]"),
        (status(500, r#"{"detail":""}"#), Cause::Status, "status 500: is the name of the graph right?"),
        (status(500, ""), Cause::Status, "status 500: is the name of the graph right?"),
        (status(500, r#"{"detail":"AQL: timeout"}"#), Cause::Status, "status 500: AQL: timeout"),
        (status(404, "<html>"), Cause::Status, "status 404"),
        (status(200, "<html>"), Cause::Body, "not JSON"),
        (status(200, ""), Cause::Body, "not JSON"),
        (status(200, "[]"), Cause::Body, "invalid"),
        (status(200, r#"{"path":[]}"#), Cause::Body, "missing field `found`"),
        (canned(&recorded("2026-01-not-found")), Cause::NotFound, "No path found between specified nodes"),
        (canned(&without_path), Cause::Body, "the answer holds no path"),
        (shortest(|answer| answer["path"] = json!([])), Cause::Body, "the answer holds no path"),
        (shortest(|answer| answer["path"][2]["vertex"]["_id"] = json!(null)), Cause::Body, "a vertex has no _id"),
        (shortest(|answer| answer["destination_info"]["_id"] = json!(NEAR)), Cause::WrongDestination, NEAR),
        (shortest(|answer| answer["path"][4]["vertex"]["_id"] = json!(NEAR)), Cause::WrongDestination, NEAR),
        (shortest(|answer| answer["path"][0]["vertex"]["_id"] = json!(NEAR)), Cause::WrongDestination, NEAR),
        (
            shortest(|answer| answer["path"][2]["vertex"]["_id"] = json!("fabric_node/spine9")),
            Cause::VanishedNode,
            "fabric_node/spine9 is not in the topology",
        ),
        (
            shortest(|answer| drop(answer["path"].as_array_mut().unwrap().remove(1))),
            Cause::VanishedNode,
            "hosts/srv6-pytorch-0 -> fabric_node/10.0.0.0_spine00 is not in the topology",
        ),
        (shortest(|answer| answer["path"][3] = answer["path"][2].clone()), Cause::VanishedNode, spine),
    ];
    for (answer, cause, words) in refusals {
        let snapshot = asked(answer.clone(), |settings| settings).await;
        let peer = &snapshot.peers[FAR];
        let why = peer.last_error.clone().unwrap();
        assert!(why.contains(words), "{why}: {answer:?}");
        assert_eq!(snapshot.health.failures.iter().collect::<Vec<_>>(), [(&cause, &1)], "{why}");
        assert_eq!((&peer.state, peer.prefixes.len()), (&PeerState::Missing, 0), "{why}");
        assert_eq!((snapshot.health.attempts, snapshot.health.successes), (1, 0), "{why}");
    }
}

#[tokio::test]
async fn an_algorithm_that_no_node_has_is_refused_though_the_answer_says_found() {
    let answer = canned(&recorded("2026-01-shortest-path-algo-128"));
    let snapshot = asked(answer, |settings| Settings { algo: 128, ..settings }).await;
    let why = snapshot.peers[FAR].last_error.clone().unwrap();
    assert_eq!(why, "leaf00 has no uN SID of algorithm 128; give it one, or ask for another algorithm");
    assert_eq!(snapshot.health.failures[&Cause::InvalidCarrier], 1);
}

/// The carrier text of an answer is never programmed, whatever it contains.
#[tokio::test]
async fn text_that_says_another_carrier_is_counted_and_not_used() {
    for text in ["fcbb:0:1004:1001:1006:fe06::", "fc00:0:::", "a banana", ""] {
        let answer = shortest(|answer| answer["srv6_data"]["srv6_usid"] = json!(text));
        let snapshot = asked(answer, |settings| settings).await;
        assert_eq!(carriers(&snapshot.peers[FAR]), ["fcbb:0:1004:1000:1006:fe06::"], "{text}");
        assert_eq!(snapshot.health.mismatches, 1, "{text}");
    }
    let snapshot = asked(shortest(|answer| answer["srv6_data"] = json!(null)), |settings| settings).await;
    assert_eq!((snapshot.health.successes, snapshot.health.mismatches), (1, 0), "no text is no mismatch");
}

#[tokio::test]
async fn an_allocation_that_is_not_in_the_books_is_counted_and_its_path_used() {
    let mut answer = recorded("2026-01-shortest-path-load-call-1");
    answer["load_data"] = json!({"error": "load is null", "updated_edges": [], "average_load": 0.0});
    let snapshot = asked(canned(&answer), |settings| Settings { kind: Criterion::Load, ..settings }).await;
    let peer = &snapshot.peers[FAR];
    assert_eq!((carriers(peer).len(), &peer.state), (1, &PeerState::Fresh));
    assert_eq!(peer.notes, ["the controller could not note the load: load is null"]);
    assert_eq!(snapshot.health.failures.iter().collect::<Vec<_>>(), [(&Cause::Bookkeeping, &1)]);
}

#[tokio::test]
async fn a_way_with_more_hops_than_needed_is_noted() {
    let mut answer = recorded("2026-01-best-paths");
    let valley = answer["paths"][3].take();
    answer["paths"] = json!([valley]);
    let snapshot =
        asked(canned(&answer), |settings| Settings { kind: Criterion::BestPaths { limit: 9 }, ..settings }).await;
    assert_eq!(snapshot.peers[FAR].notes, ["the path has 6 hops, the shortest one 4"]);
}

#[tokio::test]
async fn a_server_that_asks_to_be_left_alone_is() {
    let busy = Canned { retry_after: Some("40"), ..status(503, "") };
    let soon = |settings: Settings| Settings { interval: Duration::from_millis(50), ..settings };
    let snapshot = asked(busy.clone(), soon).await;
    let wait = |snapshot: &Snapshot| snapshot.health.next.unwrap().duration_since(SystemTime::now()).unwrap();
    assert!(wait(&snapshot) > Duration::from_secs(30), "{:?}", wait(&snapshot));
    let forever = Canned { retry_after: Some("31536000"), ..busy };
    let snapshot = asked(forever, soon).await;
    assert!(wait(&snapshot) <= Duration::from_mins(5), "but not for ever: {:?}", wait(&snapshot));
}

/// Serves the recorded fabric in which the far host's document can be changed. Returns a source that has its path, and
/// the flag that switches between both documents.
async fn fabric_of(
    far: impl Fn(&mut Value) + Clone + Send + Sync + 'static,
    allowed: Allowed,
) -> (Source, Arc<AtomicBool>) {
    let changed = Arc::new(AtomicBool::new(false));
    let is_changed = Arc::clone(&changed);
    let topology = move || {
        let mut fabric: Value = serde_json::from_str(FABRIC).unwrap();
        if is_changed.load(Ordering::SeqCst) {
            far(&mut fabric["vertices"]);
        }
        async move { fabric.to_string() }
    };
    let near = recorded("2026-01-shortest-path").to_string();
    let near = near.replace("srv6-pytorch-2", "srv6-pytorch-1").replace("10.0.0.202_leaf02", "10.0.0.201_leaf01");
    let path = move |request: Request| {
        let is_near = request.uri().to_string().contains("srv6-pytorch-1");
        let answer = if is_near { near.clone() } else { recorded("2026-01-shortest-path").to_string() };
        async move { answer }
    };
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let graph = Router::new().route("/topology", get(topology)).fallback(path);
    let router = Router::new().nest("/api/v1/graphs/fabric_graph", graph);
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mut source = follow(Settings { allowed, ..settings_at(url) });
    source.until("fresh", all_fresh).await;
    (source, changed)
}

#[tokio::test]
async fn a_prefix_that_no_controller_may_decide_on_is_refused_and_the_last_good_one_stays() {
    let narrow = Allowed { prefixes: vec!["fcbb:0:800::/48".parse().unwrap()], ..Allowed::default() };
    let cases = [
        (json!(["::", 0]), Allowed::default(), "::/0 is not steered: it is shorter than /32"),
        (json!(["2000::", 3]), Allowed::default(), "2000::/3 is not steered: it is shorter than /32"),
        (json!(["2001:db8::", 64]), narrow, "2001:db8::/64 is not steered: it lies in none of `allowed_prefixes`"),
        // The server of the test is the controller.
        (json!(["::1", 128]), Allowed::default(), "::1/128 is not steered: the controller itself, ::1, lies in it"),
    ];
    for (prefix, allowed, words) in cases {
        let far = move |vertices: &mut Value| {
            (vertices[FAR]["prefix"], vertices[FAR]["prefix_len"]) = (prefix[0].clone(), prefix[1].clone());
        };
        let (mut source, changed) = fabric_of(far, allowed).await;
        changed.store(true, Ordering::SeqCst);
        let refused = |snapshot: &Snapshot| snapshot.peers[FAR].last_error.is_some();
        let snapshot = source.until("refused", refused).await;
        let peer = &snapshot.peers[FAR];
        assert!(peer.last_error.as_ref().unwrap().contains(words), "{:?}", peer.last_error);
        assert!(matches!(peer.state, PeerState::Stale { .. }));
        assert_eq!(peer.prefixes[0].prefix, "fcbb:0:800:2::/64".parse().unwrap());
        assert_eq!(snapshot.peers[NEAR].state, PeerState::Fresh, "the rest goes in force");
        assert!(snapshot.health.failures[&Cause::NotAllowed] > 0);
        source.stop().await;
    }
}

#[tokio::test]
async fn one_refused_family_leaves_the_other_and_what_was_good() {
    let far = |vertices: &mut Value| {
        vertices[FAR]["ipv4_prefix"] = json!("192.0.2.0");
        vertices[FAR]["ipv4_prefix_len"] = json!(24);
        (vertices[FAR]["prefix"], vertices[FAR]["prefix_len"]) = (json!("::"), json!(0));
        let leaf = &mut vertices["fabric_node/10.0.0.202_leaf02"]["sids"];
        leaf.as_array_mut().unwrap().push(json!({"srv6_sid": "fcbb:0:1006:fe04::",
            "srv6_endpoint_behavior": {"endpoint_behavior": 63, "flag": 0, "algo": 0}}));
    };
    let (mut source, changed) = fabric_of(far, Allowed::default()).await;
    changed.store(true, Ordering::SeqCst);
    let snapshot = source.until("two prefixes", |snapshot| snapshot.peers[FAR].prefixes.len() == 2).await;
    let prefixes: Vec<String> = snapshot.peers[FAR].prefixes.iter().map(|known| known.prefix.to_string()).collect();
    assert_eq!(prefixes, ["192.0.2.0/24", "fcbb:0:800:2::/64"]);
    assert!(snapshot.peers[FAR].notes.iter().any(|note| note.contains("::/0 is not steered")));
}

#[tokio::test]
async fn carriers_outside_the_blocks_are_refused_and_the_last_good_ones_stay() {
    let far = |vertices: &mut Value| {
        for vertex in vertices.as_object_mut().unwrap().values_mut() {
            *vertex = serde_json::from_str(
                &vertex.to_string().replace("fcbb:0:10", "fd00:0:10").replace("fcbb:0:fe", "fd00:0:fe"),
            )
            .unwrap();
        }
    };
    let blocks = vec!["fcbb::/32".parse().unwrap()];
    let (mut source, changed) = fabric_of(far, Allowed { blocks, ..Allowed::default() }).await;
    changed.store(true, Ordering::SeqCst);
    let snapshot = source.until("refused", |snapshot| snapshot.peers[FAR].last_error.is_some()).await;
    let peer = &snapshot.peers[FAR];
    let why = peer.last_error.clone().unwrap();
    assert_eq!(why, "carrier fd00:0:1004:1000:1006:fe06:: lies in no [[block]] of this node");
    assert_eq!(carriers(peer), ["fcbb:0:1004:1000:1006:fe06::"]);
}
