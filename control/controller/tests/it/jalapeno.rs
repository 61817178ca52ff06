//! Tests of a source with a path server: whatever fails at the server, each peer keeps its last good paths.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use srv6d_controller::jalapeno::{Criterion, Settings, run};
use srv6d_controller::{Allowed, Cause, PeerState, Snapshot};
use srv6d_path_server::{Edition, Running, Server, Store};
use support::lab::{
    FABRIC, FAR, NEAR, all_fresh, follow, is_missing, is_stale, load, patience, server, settings, start,
};
use support::{Source, carriers};

#[tokio::test]
async fn every_kind_of_path_ends_in_carriers() {
    let server = server(json!([])).await;
    let one = ["fcbb:0:1004:1000:1006:fe06::"];
    let all = [one[0], "fcbb:0:1004:1001:1006:fe06::", "fcbb:0:1004:1002:1006:fe06::"];
    let kinds: [(Criterion, &[&str]); 6] = [
        (Criterion::Shortest, &one),
        (Criterion::Latency, &one),
        (Criterion::Utilization, &one),
        (Criterion::Sovereignty { excluded: vec!["FRA".to_owned()] }, &one),
        (Criterion::BestPaths { limit: 9 }, &all),
        (Criterion::NextBestPath { limit: 9 }, &all),
    ];
    for (kind, expected) in kinds {
        let mut source = follow(Settings { kind: kind.clone(), ..settings(&server) });
        let snapshot = source.until("fresh", all_fresh).await;
        let far = &snapshot.peers[FAR];
        assert_eq!(carriers(far), expected, "{kind:?}");
        assert_eq!(far.prefixes[0].prefix, "fcbb:0:800:2::/64".parse().unwrap());
        assert_eq!(far.prefixes[0].paths[0].visits, ["leaf00", "spine00", "leaf02"]);
        assert_eq!(far.prefixes[0].paths[0].name, FAR);
        assert_eq!(snapshot.health.mismatches, 0, "{kind:?}");
        source.stop().await;
    }
}

#[tokio::test]
async fn placed_paths_of_all_hosts_share_no_link() {
    let server = server(json!([])).await;
    let hosts = ["hosts/srv6-pytorch-0", NEAR, FAR];
    let mut links = Vec::new();
    for source in hosts {
        let peers = hosts.into_iter().filter(|host| *host != source).map(str::to_owned);
        // A peer that the controller does not know does not affect the others.
        let peers = peers.chain(["hosts/nobody".to_owned()]).collect();
        let settings = Settings { kind: Criterion::Placed, source: source.to_owned(), peers, ..settings(&server) };
        let mut source = follow(settings);
        let known = |snapshot: &Snapshot| snapshot.peers.values().filter(|peer| peer.state == PeerState::Fresh).count();
        let snapshot = source.until("two of three are fresh", |snapshot| known(snapshot) == 2).await;
        assert!(is_missing(&snapshot, "hosts/nobody"));
        let fresh = snapshot.peers.values().filter(|peer| peer.state == PeerState::Fresh);
        for path in fresh.map(|peer| &peer.prefixes[0].paths[0]) {
            links.extend(path.visits.windows(2).map(<[String]>::to_vec));
        }
        source.stop().await;
    }
    // Six flows use two links each, of nine links up and nine down. By fewest hops, all of them would use the first
    // spine.
    assert_eq!(links.len(), 12);
    links.sort();
    links.dedup();
    assert_eq!(links.len(), 12, "{links:?}");
}

#[tokio::test]
async fn endpoint_may_end_in_the_version_and_the_older_edition_is_understood() {
    let server = start(Server { edition: Edition::November2025, ..Server::default() }).await;
    for end in ["", "/", "/api/v1", "/api/v1/"] {
        let endpoint = format!("{}{end}", server.url());
        let mut source = follow(Settings { endpoint, ..settings(&server) });
        let snapshot = source.until("fresh", all_fresh).await;
        assert_eq!(carriers(&snapshot.peers[FAR]), ["fcbb:0:1004:1000:1006:fe06::"]);
        assert_eq!(snapshot.health.mismatches, 0, "the sender's own SID first is no mismatch");
    }
}

#[tokio::test]
async fn an_unchanged_topology_costs_one_request_a_round() {
    let server = server(json!([])).await;
    let mut source = follow(settings(&server));
    source.until("fresh", all_fresh).await;
    let (requests, rounds, synced) = (server.requests(), source.now().health.attempts, source.now().peers[FAR].synced);
    let snapshot = source.rounds(5).await;
    let more = snapshot.health.attempts - rounds;
    // One more round may have begun.
    assert!(server.requests() - requests <= more + 1, "{} requests in {more} rounds", server.requests() - requests);
    assert!(snapshot.peers[FAR].synced > synced, "it confirms every path");
    source.sync().await;
    source.rounds(1).await;
    assert!(server.requests() - requests > more + 2, "told to, it asks for every peer");
}

#[tokio::test]
async fn a_lost_spine_moves_the_path_and_its_name_stays() {
    let server = server(json!([])).await;
    let mut source = follow(settings(&server));
    source.until("fresh", all_fresh).await;
    assert!(server.set_up("fabric_node/10.0.0.0_spine00", false));
    let moved = |snapshot: &Snapshot| carriers(&snapshot.peers[FAR]) == ["fcbb:0:1004:1001:1006:fe06::"];
    let snapshot = source.until("over spine01", moved).await;
    assert_eq!(snapshot.peers[FAR].prefixes[0].paths[0].name, FAR);
}

/// The topology changes between the requests for topology and path, and changes back as soon as the path is known. So
/// the topology of the next round is the same as before.
#[tokio::test]
async fn a_path_of_a_topology_that_passed_does_not_stay() {
    let spine = "fabric_node/10.0.0.0_spine00";
    let server = server(json!([{ "route": "shortest_path", "count": 1, "fault": { "down": spine } }])).await;
    // With one peer nothing is published before the round is over. The interval leaves time for a change before the
    // next round.
    let settings = Settings { peers: vec![FAR.to_owned()], interval: Duration::from_millis(500), ..settings(&server) };
    let mut source = follow(settings);
    let over = |carrier: &'static str| {
        move |snapshot: &Snapshot| snapshot.peers.get(FAR).is_some_and(|peer| carriers(peer) == [carrier])
    };
    source.until("around spine00", over("fcbb:0:1004:1001:1006:fe06::")).await;
    assert!(server.set_up(spine, true));
    source.until("over spine00 again", over("fcbb:0:1004:1000:1006:fe06::")).await;
}

/// A fault in the answers about one peer: it keeps its carrier, the cause is counted, and the other peer is not
/// affected.
#[tokio::test]
async fn a_failure_of_one_peer_stays_its_own() {
    let faults = [
        (json!({ "status": 500 }), Cause::Status, "status 500: is the name of the graph right?"),
        (json!("not_found"), Cause::NotFound, "No path found between specified nodes"),
        (json!({ "cut": 40 }), Cause::Body, "cut off"),
        (json!("garble"), Cause::Body, "not JSON"),
        (json!({ "other_destination": "hosts/x" }), Cause::WrongDestination, "the answer is about hosts/x"),
        (json!("silence"), Cause::Timeout, "no answer in time"),
        (json!({ "delay": 10000 }), Cause::Timeout, "no answer in time"),
    ];
    join_all(faults.map(|(fault, cause, words)| stays_its_own(fault, cause, words))).await;
}

async fn stays_its_own(fault: Value, cause: Cause, words: &str) {
    let server = server(json!([{ "route": "pytorch-2", "after": 1, "fault": fault }])).await;
    let mut source = follow(Settings { timeout: patience(cause), ..settings(&server) });
    source.until("fresh", all_fresh).await;
    source.sync().await;
    let snapshot = source.until("stale", |snapshot| is_stale(snapshot, FAR)).await;
    let far = &snapshot.peers[FAR];
    assert_eq!(carriers(far), ["fcbb:0:1004:1000:1006:fe06::"], "the last good one stays: {fault}");
    assert!(far.last_error.as_ref().unwrap().contains(words), "{:?}", far.last_error);
    assert!(snapshot.health.failures[&cause] > 0, "{:?}", snapshot.health.failures);
    assert!(snapshot.health.last_error.is_some());
    assert_eq!(snapshot.health.failures.len(), 1, "{:?}", snapshot.health.failures);
    let near = &source.rounds(2).await.peers[NEAR];
    assert_eq!((&near.state, &near.last_error), (&PeerState::Fresh, &None), "{fault}");
}

#[tokio::test]
async fn a_peer_without_a_path_is_missing_and_gets_one_when_there_is_one() {
    let server = server(json!([{ "route": "pytorch-2", "count": 3, "fault": "not_found" }])).await;
    let mut source = follow(settings(&server));
    let snapshot = source.until("missing", |snapshot| is_missing(snapshot, FAR)).await;
    assert_eq!(snapshot.peers[NEAR].state, PeerState::Fresh);
    let snapshot = source.until("fresh", all_fresh).await;
    assert_eq!((&snapshot.health.last_error, snapshot.health.failures[&Cause::NotFound]), (&None, 3));
}

#[tokio::test]
async fn a_path_through_a_vanished_node_is_not_used() {
    let server = server(json!([{ "route": "shortest_path", "after": 2, "fault": "stale" }])).await;
    let mut source = follow(settings(&server));
    source.until("fresh", all_fresh).await;
    server.set_up("fabric_node/10.0.0.0_spine00", false);
    let snapshot = source.until("stale", |snapshot| is_stale(snapshot, FAR)).await;
    let why = snapshot.peers[FAR].last_error.clone().unwrap();
    assert!(why.contains("10.0.0.0_spine00 is not in the topology"), "{why}");
    assert!(snapshot.health.failures[&Cause::VanishedNode] > 0);
}

#[tokio::test]
async fn a_path_without_a_carrier_is_not_used() {
    let server = server(json!([])).await;
    let mut source = follow(Settings { algo: 128, ..settings(&server) });
    let snapshot = source.until("missing", |snapshot| is_missing(snapshot, FAR)).await;
    let why = snapshot.peers[FAR].last_error.clone().unwrap();
    assert_eq!(why, "leaf00 has no uN SID of algorithm 128; give it one, or ask for another algorithm");
    assert!(snapshot.health.failures[&Cause::InvalidCarrier] > 0);
}

/// The topology itself becomes wrong: one peer's leaf has moved to another block, or the peer has disappeared.
#[tokio::test]
async fn a_change_that_leaves_a_peer_without_a_carrier_leaves_its_last_good_one() {
    let other_block = FABRIC.replace("fcbb:0:1006:", "fcbb:9:1006:");
    let without_far = FABRIC.replace("srv6-pytorch-2", "srv6-pytorch-9");
    let changes = [
        (other_block, Cause::InvalidCarrier, "leaf02 has its SID in block fcbb:9::/32, the path began in fcbb::/32"),
        (without_far, Cause::UnknownId, "there is no hosts/srv6-pytorch-2: hosts has "),
    ];
    for (changed, cause, words) in changes {
        let server = server(json!([])).await;
        let mut source = follow(settings(&server));
        source.until("fresh", all_fresh).await;
        server.replace(Store::parse(&changed).unwrap());
        let snapshot = source.until("stale", |snapshot| is_stale(snapshot, FAR)).await;
        let far = &snapshot.peers[FAR];
        assert_eq!(carriers(far), ["fcbb:0:1004:1000:1006:fe06::"]);
        assert!(far.last_error.as_ref().unwrap().starts_with(words), "{:?}", far.last_error);
        assert_eq!(snapshot.health.failures.keys().collect::<Vec<_>>(), [&cause]);
        assert_eq!(snapshot.peers[NEAR].state, PeerState::Fresh);
        server.replace(Store::parse(FABRIC).unwrap());
        source.until("fresh again", |snapshot| all_fresh(snapshot) && snapshot.health.last_error.is_none()).await;
    }
}

/// Spine 0 lies in an excluded country.
#[tokio::test]
async fn countries_are_left_out() {
    let mut fabric: Value = serde_json::from_str(FABRIC).unwrap();
    for edge in fabric["edges"].as_array_mut().unwrap() {
        let country = if edge["_key"].as_str().unwrap().contains("spine00") { "FRA" } else { "DEU" };
        edge["country_codes"] = json!([country]);
    }
    let store = Store::parse(&fabric.to_string()).unwrap();
    let server = Server { store, ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap();
    for (excluded, carrier) in [("USA", "fcbb:0:1004:1000:1006:fe06::"), ("FRA,ITA", "fcbb:0:1004:1001:1006:fe06::")] {
        let excluded = excluded.split(',').map(str::to_owned).collect();
        let mut source = follow(Settings { kind: Criterion::Sovereignty { excluded }, ..settings(&server) });
        let snapshot = source.until("fresh", all_fresh).await;
        assert_eq!(carriers(&snapshot.peers[FAR]), [carrier]);
        let unknown = if carrier.contains(":1000:") { "USA" } else { "ITA" };
        let notes: Vec<&String> =
            snapshot.peers[FAR].notes.iter().filter(|note| note.contains("excluded country")).collect();
        assert!(notes.len() == 1 && notes[0].contains(&format!("in the excluded country {unknown}")), "{notes:?}");
    }
    let excluded = vec!["FRA".to_owned(), "DEU".to_owned()];
    let mut source = follow(Settings { kind: Criterion::Sovereignty { excluded }, ..settings(&server) });
    let snapshot = source.until("missing", |snapshot| is_missing(snapshot, FAR)).await;
    assert!(snapshot.peers[FAR].last_error.as_ref().unwrap().contains("FRA"), "{:?}", snapshot.peers[FAR].last_error);
}

/// Algorithm 128 has its own block, and only some nodes take part.
#[tokio::test]
async fn a_flexible_algorithm_goes_its_own_way_in_its_own_block() {
    let mut fabric: Value = serde_json::from_str(&FABRIC.replace("fabric_node/", "igp_node/")).unwrap();
    for (id, vertex) in fabric["vertices"].as_object_mut().unwrap() {
        if id.contains("spine00") || id.starts_with("hosts/") {
            continue;
        }
        let mut flexible = vertex["sids"].clone();
        for sid in flexible.as_array_mut().unwrap() {
            sid["srv6_sid"] = json!(sid["srv6_sid"].as_str().unwrap().replace("fcbb:0:", "fcbb:1:"));
            sid["srv6_endpoint_behavior"]["algo"] = json!(128);
        }
        vertex["sids"].as_array_mut().unwrap().extend(flexible.as_array().unwrap().clone());
    }
    let store = Store::parse(&fabric.to_string()).unwrap();
    let server = Server { store, ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap();
    for (algo, carrier) in [(0, "fcbb:0:1004:1000:1006:fe06::"), (128, "fcbb:1:1004:1001:1006:fe06::")] {
        let mut source = follow(Settings { algo, ..settings(&server) });
        let snapshot = source.until("fresh", all_fresh).await;
        assert_eq!(carriers(&snapshot.peers[FAR]), [carrier]);
    }
}

#[tokio::test]
async fn a_controller_that_goes_away_and_comes_back_loses_nothing() {
    let server = server(json!([])).await;
    let address = server.address();
    let mut source = follow(settings(&server));
    let before = source.until("fresh", all_fresh).await;
    server.stop().await;
    let down = source.until("stale", |snapshot| is_stale(snapshot, FAR) && is_stale(snapshot, NEAR)).await;
    for (id, peer) in &down.peers {
        assert_eq!(peer.prefixes, before.peers[id].prefixes);
    }
    assert!(down.health.failures[&Cause::Connect] > 0);
    let store = Store::parse(FABRIC).unwrap();
    let again = Server { store, ..Server::default() }.start(address).await.unwrap();
    let successes = down.health.successes;
    let back = source.until("back", |snapshot| snapshot.health.successes > successes && all_fresh(snapshot)).await;
    assert_eq!(back.health.last_error, None);
    again.stop().await;
}

#[tokio::test]
async fn a_graph_or_a_host_that_does_not_exist_is_named() {
    let server = server(json!([])).await;
    let failing = |snapshot: &Snapshot| snapshot.health.last_error.is_some();
    let mut source = follow(Settings { graph: "nosuch".to_owned(), ..settings(&server) });
    let why = source.until("failing", failing).await.health.last_error.clone().unwrap();
    assert!(why.ends_with("/graphs/nosuch/topology: status 500: is the name of the graph right?"), "{why}");
    let mut source = follow(Settings { source: "hosts/me".to_owned(), ..settings(&server) });
    let why = source.until("failing", failing).await.health.last_error.clone().unwrap();
    assert_eq!(why, "hosts/me is not in graph fabric_graph: is `source` the id of this host?");
    let peers = vec!["hosts/typo".to_owned(), "hosts/a' OR 1".to_owned(), FAR.to_owned()];
    let mut source = follow(Settings { peers, ..settings(&server) });
    let snapshot = source.until("failing", failing).await;
    let why = |peer: &str| snapshot.peers[peer].last_error.clone().unwrap();
    assert!(why("hosts/typo").starts_with("there is no hosts/typo: hosts has "), "{}", why("hosts/typo"));
    assert!(why("hosts/a' OR 1").contains("is not the id of a vertex"), "{}", why("hosts/a' OR 1"));
    assert_eq!(snapshot.peers[FAR].state, PeerState::Fresh);
}

#[tokio::test]
async fn a_graph_without_the_metric_is_refused() {
    let bare = FABRIC.replace("\"latency\"", "\"unidir_link_delay\"");
    let store = Store::parse(&bare).unwrap();
    let server = Server { store, ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap();
    let mut source = follow(Settings { kind: Criterion::Latency, ..settings(&server) });
    let snapshot = source.until("refused", |snapshot| snapshot.health.failures.contains_key(&Cause::NoMetric)).await;
    let why = snapshot.health.last_error.clone().unwrap();
    assert_eq!(why, "no edge of fabric_graph has `latency`: paths would be chosen by hop count");
}

#[tokio::test]
async fn other_settings_begin_with_the_last_good_paths() {
    let server = server(json!([])).await;
    let mut source = follow(settings(&server));
    let known = source.until("fresh", all_fresh).await;
    source.stop().await;
    let nobody = Settings { endpoint: "http://[::1]:1".to_owned(), peers: vec![FAR.to_owned()], ..settings(&server) };
    let mut source = Source::after((*known).clone(), |publish, commands| run(nobody, publish, commands));
    let snapshot = source.until("failing", |snapshot| snapshot.health.failures.contains_key(&Cause::Connect)).await;
    assert_eq!(snapshot.peers.keys().collect::<Vec<_>>(), [FAR]);
    assert_eq!(snapshot.peers[FAR].prefixes, known.peers[FAR].prefixes);
    assert!(is_stale(&snapshot, FAR));
}

mod allocation {
    use super::*;

    fn by_load(server: &Running) -> Settings {
        Settings { kind: Criterion::Load, ..settings(server) }
    }

    #[tokio::test]
    async fn is_asked_for_once_however_often_it_is_looked_at() {
        let server = server(json!([])).await;
        let mut source = follow(by_load(&server));
        source.until("fresh", all_fresh).await;
        // Each of the four links of both paths has a load of ten.
        assert_eq!(load(&server).await, 80);
        let (requests, rounds) = (server.requests(), source.now().health.attempts);
        source.sync().await;
        let later = source.rounds(4).await;
        let more = later.health.attempts - rounds;
        // One more round may have begun.
        assert!(server.requests() - requests <= more + 1, "nothing but the topology is asked for");
        assert_eq!(load(&server).await, 80);
        source.stop().await;
        assert_eq!(load(&server).await, 0, "given back at the end");
    }

    /// Graphs that are collected from routers have no loads before the first booking.
    #[tokio::test]
    async fn begins_where_no_link_has_a_load() {
        let mut fabric: Value = serde_json::from_str(FABRIC).unwrap();
        for edge in fabric["edges"].as_array_mut().unwrap() {
            edge.as_object_mut().unwrap().remove("load");
        }
        let store = Store::parse(&fabric.to_string()).unwrap();
        let server = Server { store, ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap();
        let mut source = follow(by_load(&server));
        let snapshot = source.until("fresh", all_fresh).await;
        assert_eq!((load(&server).await, snapshot.health.failures.len()), (80, 0));
        source.rounds(2).await;
        assert_eq!(load(&server).await, 80, "the first loads are no change of the topology");
    }

    #[tokio::test]
    async fn is_moved_when_its_way_is_gone_and_the_old_one_given_back() {
        let server = server(json!([])).await;
        let mut source = follow(by_load(&server));
        let before = source.until("fresh", all_fresh).await;
        let via = before.peers[FAR].prefixes[0].paths[0].visits.clone();
        let spine = format!("fabric_node/10.0.0.{}_{}", &via[1][6..], via[1]);
        assert!(server.set_up(&spine, false), "{spine}");
        let elsewhere = |snapshot: &Snapshot| {
            all_fresh(snapshot) && !snapshot.peers[FAR].prefixes[0].paths[0].visits.contains(&via[1])
        };
        source.until("elsewhere", elsewhere).await;
        server.set_up(&spine, true);
        source.rounds(2).await;
        assert_eq!(load(&server).await, 80);
    }

    #[tokio::test]
    async fn outlives_a_restart_in_its_file_and_goes_with_its_peer() {
        let server = server(json!([])).await;
        let file = std::env::temp_dir().join(format!("srv6d-allocations-{}.json", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let remembering = || Settings { state: Some(file.clone()), ..by_load(&server) };
        let mut source = follow(remembering());
        let before = source.until("fresh", all_fresh).await;
        source.stop().await;
        assert_eq!(load(&server).await, 80, "meant to outlive the process");
        let mut source = follow(remembering());
        let after = source.until("fresh", all_fresh).await;
        assert_eq!(after.peers[FAR].prefixes, before.peers[FAR].prefixes);
        assert_eq!(load(&server).await, 80);
        source.stop().await;
        let mut source = follow(Settings { peers: vec![FAR.to_owned()], ..remembering() });
        source.until("fresh", all_fresh).await;
        assert_eq!(load(&server).await, 40, "that of the other peer was given back");
        source.stop().await;
        for damaged in ["{\"graph\": ", r#"{"graph": "another", "source": "hosts/host00", "paths": {}}"#] {
            std::fs::write(&file, damaged).unwrap();
            let mut source = follow(remembering());
            let snapshot = source.until("fresh", all_fresh).await;
            assert_eq!(snapshot.health.failures[&Cause::State], 1, "said: {damaged}");
            source.stop().await;
            assert!(std::fs::read_to_string(&file).unwrap().contains(FAR), "written anew");
        }
        std::fs::remove_file(&file).unwrap();
    }

    #[tokio::test]
    async fn is_known_after_a_restart_before_anybody_answers() {
        let server = server(json!([])).await;
        let file = std::env::temp_dir().join(format!("srv6d-carriers-{}.json", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let remembering = || Settings { state: Some(file.clone()), ..by_load(&server) };
        let mut source = follow(remembering());
        let before = source.until("fresh", all_fresh).await;
        source.stop().await;
        let silent = || Settings { endpoint: "http://[::1]:1".to_owned(), ..remembering() };
        let mut source = follow(silent());
        let after = source.until("failed", |snapshot| snapshot.health.last_error.is_some()).await;
        for (id, peer) in &after.peers {
            assert_eq!(peer.prefixes, before.peers[id].prefixes, "{id}");
            assert!(matches!(peer.state, PeerState::Stale { .. }), "{id}: {:?}", peer.state);
        }
        source.stop().await;
        // What the settings no longer allow does not come back.
        let prefixes = vec!["2001:db8:ffff::/48".parse().unwrap()];
        let mut source = follow(Settings { allowed: Allowed { prefixes, ..Allowed::default() }, ..silent() });
        let narrow = source.until("failed", |snapshot| snapshot.health.last_error.is_some()).await;
        assert!(narrow.peers.values().all(|peer| peer.prefixes.is_empty()), "{:?}", narrow.peers);
        source.stop().await;
        std::fs::remove_file(&file).unwrap();
    }

    #[tokio::test]
    async fn that_went_unanswered_is_not_asked_for_again_at_once() {
        let server = server(json!([{ "route": "shortest_path/load", "count": 2, "fault": { "cut": 30 } }])).await;
        let mut source = follow(by_load(&server));
        source.until("missing", |snapshot| is_missing(snapshot, NEAR) && is_missing(snapshot, FAR)).await;
        assert_eq!(load(&server).await, 80, "they counted all the same");
        let snapshot = source.rounds(5).await;
        assert_eq!(snapshot.health.failures[&Cause::Body], 2, "nothing was asked again");
        assert_eq!(load(&server).await, 80);
        source.stop().await;
        assert_eq!(load(&server).await, 0, "what nobody knows is given back, too");
    }
}
