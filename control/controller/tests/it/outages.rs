//! Tests of trouble of the whole controller: every peer keeps its last good paths, and requests become less frequent.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use srv6d_controller::jalapeno::Settings;
use srv6d_controller::{Cause, PeerState, Snapshot};
use support::lab::{FAR, NEAR, all_fresh, follow, is_stale, patience, server, settings, settings_at};
use tokio::time::Instant;

/// A fault of the topology: no path is requested and every peer is stale, until the fault ends.
#[tokio::test]
async fn every_failure_of_the_whole_leaves_all_paths_in_force() {
    let faults = [
        (json!({ "status": 500 }), Cause::Status, "status 500"),
        (json!({ "status": 503 }), Cause::Status, "status 503"),
        (json!({ "cut": 4000 }), Cause::Body, "cut off"),
        (json!("garble"), Cause::Body, "not JSON"),
        (json!("not_found"), Cause::Body, "missing field `edges`"),
        (json!("silence"), Cause::Timeout, "no answer in time"),
        (json!({ "delay": 10000 }), Cause::Timeout, "no answer in time"),
    ];
    join_all(faults.map(|(fault, cause, words)| survives(fault, cause, words))).await;
}

async fn survives(fault: Value, cause: Cause, words: &str) {
    let server = server(json!([{ "route": "topology", "after": 2, "count": 2, "fault": fault }])).await;
    let mut source = follow(Settings { timeout: patience(cause), ..settings(&server) });
    let before = source.until("fresh", all_fresh).await;
    let both = |snapshot: &Snapshot| is_stale(snapshot, NEAR) && is_stale(snapshot, FAR);
    let stale = source.until("stale", both).await;
    for (id, peer) in &stale.peers {
        assert_eq!(peer.prefixes, before.peers[id].prefixes, "{fault}");
        assert_eq!(peer.synced, before.peers[id].synced, "the age goes on counting: {fault}");
        assert!(peer.last_error.as_ref().unwrap().contains(words), "{:?}", peer.last_error);
    }
    assert_eq!(stale.health.last_success, before.health.last_success, "{fault}");
    let back = source.until("fresh again", |snapshot| snapshot.health.successes > 1).await;
    assert!(all_fresh(&back), "{fault}");
    assert_eq!(back.health.failures.iter().collect::<Vec<_>>(), [(&cause, &2)], "{fault}");
    assert_eq!((back.health.attempts - back.health.successes, &back.health.last_error), (2, &None), "{fault}");
}

#[tokio::test]
async fn stale_is_counted_from_the_first_failure() {
    let server = server(json!([{ "route": "topology", "after": 2, "fault": { "status": 500 } }])).await;
    let mut source = follow(settings(&server));
    source.until("fresh", all_fresh).await;
    let first = source.until("stale", |snapshot| is_stale(snapshot, FAR)).await;
    let later = source.rounds(2).await;
    assert_eq!(later.peers[FAR].state, first.peers[FAR].state);
    assert!(later.health.failures[&Cause::Status] > first.health.failures[&Cause::Status]);
}

/// The test controls the time, which jumps from one pause to the next.
#[tokio::test(start_paused = true)]
async fn pauses_grow_and_no_two_hosts_keep_step() {
    let settings = Settings { interval: Duration::from_secs(5), ..settings_at("http://[::1]:1".to_owned()) };
    let (one, other) = tokio::join!(pauses(settings.clone()), pauses(settings));
    assert_ne!(one, other, "jitter");
    for (pause, middle) in one.iter().zip([10, 20, 30, 30, 30]) {
        let middle = Duration::from_secs(middle);
        assert!(*pause >= middle.mul_f64(0.8) && *pause <= middle.mul_f64(1.2), "{pause:?} is not about {middle:?}");
    }
}

/// Returns the times from the end of each of the first rounds to the end of the next one.
async fn pauses(settings: Settings) -> Vec<Duration> {
    let mut source = follow(settings);
    let mut ends = Vec::new();
    for round in 1..=6 {
        source.until("another round", |snapshot| snapshot.health.failures.get(&Cause::Connect) == Some(&round)).await;
        ends.push(Instant::now());
    }
    assert!(source.now().peers.values().all(|peer| peer.state == PeerState::Missing));
    ends.windows(2).map(|pair| pair[1] - pair[0]).collect()
}
