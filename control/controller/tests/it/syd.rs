//! Tests of a source with a syd controller: requests, flows, events, leases, and faults.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use srv6d_controller::syd::{Settings, run};
use srv6d_controller::{Cause, PeerState, Snapshot};
use support::lab::{all_fresh, is_missing, is_stale};
use support::syd::Syd;
use support::{Source, carriers};

const B: &str = "gpu-b";
const C: &str = "gpu-c";
const OVER_4: &str = "fc00:0:1:e004:4:e028:28:0";
const OVER_5: &str = "fc00:0:1:e005:5:e028:28:0";

/// Returns settings with an hour between two rounds: anything sooner is the effect of an event, a lease, or a command.
fn settings(syd: &Syd) -> Settings {
    let prefix = |text: &str| vec![text.parse().unwrap()];
    Settings {
        endpoint: syd.url.clone(),
        topology: "fabric".to_owned(),
        workload: "job-1".to_owned(),
        node: "gpu-a".to_owned(),
        peers: BTreeMap::from([(B.to_owned(), prefix("2001:db8:b::/64")), (C.to_owned(), prefix("2001:db8:c::/64"))]),
        disjointness: "link".to_owned(),
        sharing: "exclusive".to_owned(),
        tenant: None,
        policy: None,
        algo: None,
        lease: Duration::from_hours(24),
        ca: None,
        interval: Duration::from_hours(1),
        timeout: Duration::from_secs(20),
        max_answer: srv6d_controller::MAX_ANSWER,
        allowed: srv6d_controller::Allowed::default(),
        only_look: false,
    }
}

/// Returns settings with a short interval.
fn often(syd: &Syd) -> Settings {
    Settings { interval: Duration::from_millis(50), ..settings(syd) }
}

fn follow(settings: Settings) -> Source {
    Source::start(|publish, commands| run(settings, publish, commands))
}

fn goes_over(snapshot: &Snapshot, carrier: &str) -> bool {
    all_fresh(snapshot) && carriers(&snapshot.peers[C]) == [carrier]
}

#[tokio::test]
async fn a_workload_is_requested_and_its_flows_from_this_node_are_programmed() {
    let syd = Syd::start().await;
    let tenant = Some("green".to_owned());
    let mut source = follow(Settings { tenant, algo: Some(128), ..settings(&syd) });
    let snapshot = source.until("fresh", all_fresh).await;
    let request = json!({
        "topology_id": "fabric", "workload_id": "job-1",
        "endpoints": [{"id": "gpu-a"}, {"id": "gpu-b"}, {"id": "gpu-c"}],
        "pairing_mode": "all_directed", "disjointness": "link", "sharing": "exclusive",
        "lease_duration_seconds": 86400, "tenant_id": "green", "constraints": {"algo_id": "128"},
    });
    assert_eq!(syd.heard("POST", "/paths/request"), [request]);
    let to_c = &snapshot.peers[C].prefixes[0];
    assert_eq!(to_c.prefix, "2001:db8:c::/64".parse().unwrap());
    assert_eq!((to_c.paths[0].name.as_str(), to_c.paths[0].weight), (C, 1));
    assert_eq!(carriers(&snapshot.peers[C]), [OVER_4]);
    assert_eq!(carriers(&snapshot.peers[B]), ["fc00:0:1:e004:4:e002:2:0"]);
    assert_eq!((snapshot.health.attempts, snapshot.health.successes, snapshot.health.mismatches), (1, 1, 0));
    source.stop().await;
    assert_eq!(syd.heard("POST", "/paths/job-1/complete"), [json!({"immediate": true})]);
}

#[tokio::test]
async fn a_leaf_programs_what_stands_for_its_hosts_by_their_number() {
    let syd = Syd::start().await;
    let entry = |spine: u16, count: u16| {
        let carrier = format!("fc00:0:9:e00{spine}:a:e001:3:0");
        json!({"src_node_id": "gpu-a", "dst_node_id": C, "segment_list": [carrier], "encap_flavor": "H.Encaps.Red",
            "outer_da": carrier, "flow_count": count})
    };
    let elsewhere = json!({"src_node_id": C, "dst_node_id": "gpu-a", "segment_list": ["fc00:0:3::"], "flow_count": 1});
    syd.answer_leaf_pairs(json!([entry(1, 16), entry(2, 4), entry(1, 2), elsewhere]));
    let mut source = follow(settings(&syd));
    let snapshot = source.until("an answer", |snapshot| snapshot.health.next.is_some()).await;
    let paths = &snapshot.peers[C].prefixes[0].paths;
    let shares: Vec<_> = paths.iter().map(|path| (path.name.as_str(), path.weight)).collect();
    assert_eq!(shares, [(C, 18), ("gpu-c#2", 4)]);
    assert_eq!(carriers(&snapshot.peers[C]), ["fc00:0:9:e001:a:e001:3:0", "fc00:0:9:e002:a:e001:3:0"]);
    assert!(is_missing(&snapshot, B), "nothing leads there");
}

#[tokio::test]
async fn an_event_makes_a_change_arrive_at_once() {
    let syd = Syd::start().await;
    let mut source = follow(settings(&syd));
    source.until("over spine 4", |snapshot| goes_over(snapshot, OVER_4)).await;
    for (spine, carrier) in [(5, OVER_5), (4, OVER_4), (5, OVER_5)] {
        syd.move_to(spine);
        source.until("over the other spine", |snapshot| goes_over(snapshot, carrier)).await;
    }
    assert_eq!(syd.heard("GET", "/events").len(), 1, "one stream does for all");
    assert_eq!(syd.heard("POST", "/paths/request").len(), 1);
}

#[tokio::test]
async fn a_stream_that_ends_at_once_makes_nobody_ask_in_circles() {
    let syd = Syd::start().await;
    syd.end_every_stream();
    let mut source = follow(settings(&syd));
    source.until("fresh", all_fresh).await;
    // These requests give the source time for many rounds.
    for _ in 0..50 {
        reqwest::get(format!("{}/paths/job-2", syd.url)).await.unwrap();
    }
    assert_eq!(source.now().health.attempts, 1);
    source.sync().await;
    source.until("told to look", |snapshot| snapshot.health.attempts == 2).await;
    assert_eq!(syd.heard("GET", "/events").len(), 2, "every look tries again");
}

#[tokio::test]
async fn paths_that_drain_are_requested_anew_when_it_is_said() {
    let syd = Syd::start().await;
    let mut source = follow(settings(&syd));
    source.until("fresh", all_fresh).await;
    syd.move_to(5);
    source.until("over spine 5", |snapshot| goes_over(snapshot, OVER_5)).await;
    let (successes, requests) = (source.now().health.successes, syd.heard("POST", "/paths/request").len());
    syd.drain("job-1", "topology_change");
    source.until("another round", |snapshot| snapshot.health.successes > successes).await;
    assert_eq!(syd.heard("POST", "/paths/request").len(), requests + 1);
    // The new workload has its own event stream.
    syd.move_to(4);
    source.until("over spine 4", |snapshot| goes_over(snapshot, OVER_4)).await;
}

#[tokio::test]
async fn paths_that_drain_and_cannot_be_had_anew_are_kept_and_called_stale() {
    let refusals = [
        (409, "", "workload job-1 is draining (lease_expired), and cannot be requested anew"),
        (
            422,
            r#"{"error":"no disjoint paths","detail":["gpu-a to gpu-c: link is taken"]}"#,
            "no disjoint paths: gpu-a to gpu-c: link is taken",
        ),
    ];
    for (status, body, words) in refusals {
        let syd = Syd::start().await;
        let mut source = follow(settings(&syd));
        source.until("fresh", all_fresh).await;
        syd.fail("POST", "/paths/request", status, body);
        syd.drain("job-1", "lease_expired");
        let snapshot = source.until("stale", |snapshot| is_stale(snapshot, C)).await;
        assert_eq!(carriers(&snapshot.peers[C]), [OVER_4]);
        assert!(snapshot.health.last_error.as_ref().unwrap().ends_with(words), "{:?}", snapshot.health.last_error);
        assert_eq!(snapshot.health.failures.iter().collect::<Vec<_>>(), [(&Cause::Refused, &1)]);
        source.stop().await;
        assert_eq!(syd.heard("POST", "/complete").len(), 1, "it is ours all the same");
    }
}

fn all_fresh_again(snapshot: &Snapshot) -> bool {
    all_fresh(snapshot) && snapshot.health.last_error.is_none()
}

/// The allocation table is replaced by an empty one, which the open stream does not report.
#[tokio::test]
async fn a_workload_that_is_forgotten_is_requested_again() {
    let syd = Syd::start().await;
    let mut source = follow(often(&syd));
    source.until("fresh", all_fresh).await;
    syd.recompose();
    let again = |_: &Snapshot| syd.heard("POST", "/paths/request").len() == 2;
    let snapshot = source.until("requested again", again).await;
    assert_eq!(carriers(&snapshot.peers[C]), [OVER_4]);
    source.rounds(1).await;
    source.stop().await;
    assert_eq!(syd.heard("GET", "/events").len(), 2, "the stream of the old table was closed");
}

/// The workload is forgotten between two requests of one round.
#[tokio::test]
async fn a_workload_that_is_forgotten_meanwhile_is_requested_in_the_same_look() {
    for method in ["heartbeat", "flows"] {
        let syd = Syd::start().await;
        syd.grant("job-1", &["gpu-a", B, C], true);
        let (verb, end) = if method == "flows" { ("GET", "/flows") } else { ("POST", "/heartbeat") };
        syd.fail(verb, end, 404, r#"{"error":"workload job-1 not found","detail":[]}"#);
        let mut source = follow(settings(&syd));
        let snapshot = source.until("one look", |snapshot| snapshot.health.next.is_some()).await;
        assert_eq!(syd.heard("POST", "/paths/request").len(), 1, "{method}");
        assert_eq!(snapshot.health.successes, u64::from(method == "heartbeat"), "{:?}", snapshot.health.last_error);
    }
}

#[tokio::test]
async fn a_lease_is_renewed_in_its_third_part() {
    let syd = Syd::start().await;
    let mut source = follow(Settings { lease: Duration::from_millis(600), ..settings(&syd) });
    source.until("three heartbeats", |_| syd.heard("POST", "/heartbeat").len() >= 3).await;
    assert_eq!(syd.heard("POST", "/paths/request").len(), 1);
    assert_eq!(source.now().health.failures.len(), 0);
}

/// The workload has no lease, which is not an error.
#[tokio::test]
async fn a_workload_of_another_host_is_followed_and_not_given_back() {
    let syd = Syd::start().await;
    syd.grant("job-1", &["gpu-a", B, C], false);
    let mut source = follow(settings(&syd));
    let snapshot = source.until("fresh", all_fresh).await;
    assert_eq!(carriers(&snapshot.peers[C]), [OVER_4]);
    source.stop().await;
    assert_eq!(syd.heard("POST", "/heartbeat").len(), 1);
    assert_eq!(syd.heard("POST", "/paths/request").len() + syd.heard("POST", "/complete").len(), 0);
}

#[tokio::test]
async fn a_pair_that_was_not_placed_leaves_the_other_alone() {
    let syd = Syd::start().await;
    let mut source = follow(often(&syd));
    source.until("fresh", all_fresh).await;
    syd.leave_out(Some(("gpu-a", C)));
    let snapshot = source.until("stale", |snapshot| is_stale(snapshot, C)).await;
    let to_c = &snapshot.peers[C];
    assert_eq!(
        (carriers(to_c), to_c.last_error.as_deref()),
        (vec![OVER_4.to_owned()], Some("the workload has no flow to gpu-c"))
    );
    let to_b = &snapshot.peers[B];
    assert_eq!((&to_b.state, &to_b.last_error), (&PeerState::Fresh, &None));
    assert_eq!(snapshot.health.failures.keys().collect::<Vec<_>>(), [&Cause::NotFound]);
    assert_eq!(snapshot.health.last_error.as_deref(), Some("the workload has no flow to gpu-c"));
    syd.leave_out(None);
    source.until("fresh again", all_fresh_again).await;
}

#[tokio::test]
async fn every_failure_leaves_all_paths_in_force_and_is_named() {
    let flows = "/paths/job-1/flows";
    let failures = [
        (
            "GET",
            "/paths/job-1",
            500,
            r#"{"error":"store is down","detail":[]}"#,
            Cause::Status,
            "status 500: store is down",
        ),
        ("GET", "/paths/job-1", 502, "<html>", Cause::Status, "status 502: no reason was given"),
        ("GET", "/paths/job-1", 500, "", Cause::Status, "status 500: no reason was given"),
        ("GET", "/paths/job-1", 200, "", Cause::Body, "EOF"),
        ("GET", "/paths/job-1", 200, "{}", Cause::Body, "missing field `state`"),
        ("GET", flows, 400, r#"{"error":"bad id"}"#, Cause::Refused, "status 400: bad id"),
        ("GET", flows, 200, r#"{"flows":[{"src_node_id":"gpu-a""#, Cause::Body, "EOF"),
        ("GET", flows, 200, r#"{"flows":"none"}"#, Cause::Body, "invalid type"),
        ("GET", flows, 200, r#"{"flows":[]}"#, Cause::NotFound, "no flow to"),
        ("GET", flows, 200, r#"{"flows":null}"#, Cause::NotFound, "no flow to"),
        ("POST", "/heartbeat", 500, "", Cause::Status, "status 500"),
    ];
    for (method, path, status, body, cause, words) in failures {
        let syd = Syd::start().await;
        let mut source = follow(settings(&syd));
        let before = source.until("fresh", all_fresh).await;
        syd.fail(method, path, status, body);
        source.sync().await;
        let snapshot = source.until("stale", |snapshot| is_stale(snapshot, B) && is_stale(snapshot, C)).await;
        for (id, peer) in &snapshot.peers {
            assert_eq!(peer.prefixes, before.peers[id].prefixes, "{words}");
            assert_eq!(peer.synced, before.peers[id].synced, "{words}");
        }
        let why = snapshot.health.last_error.clone().unwrap();
        assert!(why.contains(words), "{why}");
        assert_eq!(snapshot.health.failures.keys().collect::<Vec<_>>(), [&cause], "{why}");
        assert_eq!((snapshot.health.successes, snapshot.health.last_success), (1, before.health.last_success));
        syd.recover();
        source.sync().await;
        source.until("fresh again", all_fresh_again).await;
    }
}

#[tokio::test]
async fn flows_that_are_no_carriers_are_refused_one_by_one() {
    let lists = [
        (r#"["fc00:0:1::1::"]"#, "\"fc00:0:1::1::\" is not an address"),
        (r#"["fc00::"]"#, "fc00:: has no uSID behind its block"),
        ("[]", "its path has no SIDs"),
        ("null", "its path has no SIDs"),
    ];
    for (list, words) in lists {
        let syd = Syd::start().await;
        let good =
            r#"{"src_node_id":"gpu-a","dst_node_id":"gpu-b","segment_list":["fc00:0:2::"],"outer_da":"fc00:0:3::"}"#;
        let bad = format!(r#"{{"src_node_id":"gpu-a","dst_node_id":"gpu-c","segment_list":{list}}}"#);
        syd.fail("GET", "/flows", 200, format!(r#"{{"flows":[{good},{bad}]}}"#).leak());
        let mut source = follow(settings(&syd));
        let snapshot = source.until("one look", |snapshot| snapshot.health.next.is_some()).await;
        assert!(is_missing(&snapshot, C));
        assert_eq!(snapshot.peers[C].last_error.as_deref(), Some(format!("flow to gpu-c: {words}").as_str()));
        assert_eq!(snapshot.health.failures.iter().collect::<Vec<_>>(), [(&Cause::InvalidCarrier, &1)]);
        assert_eq!(carriers(&snapshot.peers[B]), ["fc00:0:2::"], "{words}");
        assert_eq!(snapshot.health.mismatches, 1, "its outer destination is another one");
    }
}

#[tokio::test]
async fn refused_requests_are_named() {
    let syd = Syd::start().await;
    let typo = Settings { node: "gpu-x".to_owned(), ..settings(&syd) };
    let nowhere = Settings { topology: "fabrik".to_owned(), ..settings(&syd) };
    let refusals = [
        (typo, Cause::Refused, "/paths/request: status 422: endpoints do not resolve: endpoint \"gpu-x\" not found"),
        (nowhere, Cause::UnknownId, "/paths/request: status 404: topology not found"),
    ];
    for (settings, cause, words) in refusals {
        let mut source = follow(settings);
        let snapshot = source.until("one look", |snapshot| snapshot.health.next.is_some()).await;
        assert!(snapshot.health.last_error.as_ref().unwrap().ends_with(words), "{:?}", snapshot.health.last_error);
        assert_eq!(snapshot.health.failures.iter().collect::<Vec<_>>(), [(&cause, &1)]);
        assert!(is_missing(&snapshot, B) && is_missing(&snapshot, C));
        source.stop().await;
    }
    assert_eq!(syd.heard("POST", "/complete").len(), 0, "there is nothing to give back");
}

#[tokio::test]
async fn a_controller_that_goes_away_and_never_comes_back_loses_nothing() {
    let syd = Syd::start().await;
    let mut source = follow(often(&syd));
    let before = source.until("fresh", all_fresh).await;
    drop(syd);
    let snapshot = source.until("stale", |snapshot| is_stale(snapshot, B) && is_stale(snapshot, C)).await;
    assert!(snapshot.health.failures.contains_key(&Cause::Connect), "{:?}", snapshot.health.failures);
    assert_eq!(snapshot.peers[C].prefixes, before.peers[C].prefixes);
    source.stop().await;
}

#[tokio::test]
async fn whoever_only_looks_requests_nothing_and_ends_nothing() {
    let syd = Syd::start().await;
    let looking = || Settings { only_look: true, ..settings(&syd) };
    let mut source = follow(looking());
    let snapshot = source.until("an answer", |snapshot| snapshot.health.next.is_some()).await;
    let why = snapshot.health.last_error.clone().unwrap();
    assert_eq!(why, "workload job-1 does not exist: a request would allocate it");
    source.stop().await;
    syd.grant("job-1", &["gpu-a", B, C], true);
    let mut source = follow(looking());
    let snapshot = source.until("fresh", all_fresh).await;
    assert_eq!(carriers(&snapshot.peers[C]), [OVER_4]);
    source.stop().await;
    for end in ["/request", "/heartbeat", "/complete"] {
        assert!(syd.heard("POST", end).is_empty(), "{end}");
    }
}
