//! Tests with recorded answers in which any part is replaced. Whatever the server sends, the source continues, what it
//! publishes consists of carriers, and an answer that it cannot use leaves the last good carriers in force.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test stops at the first surprise")]

use crate::support;

use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use proptest::prelude::*;
use serde_json::{Value, json};
use srv6d_controller::jalapeno::Settings;
use srv6d_controller::{Peer, PeerState, Snapshot};
use srv6d_srv6::carrier::Carrier;
use support::Source;
use support::lab::{FABRIC, FAR, NEAR, all_fresh, follow, settings_at};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const TO_FAR: &str = include_str!("../data/2026-01-shortest-path.json");

/// A change of a document: a value that is replaced, or a place at which the text is broken.
#[derive(Clone, Debug)]
enum Damage {
    /// The n-th value of the document becomes another value.
    Value(usize, Value),
    /// The n-th value of the document becomes a copy of the m-th.
    Copy(usize, usize),
    /// The n-th entry of a list or an object is removed.
    Remove(usize),
    /// The byte at a position of the text is replaced.
    Byte(usize, u8),
    /// The text ends at a position.
    End(usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let odd = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        "[a-f0-9:/]{0,20}".prop_map(Value::from),
        Just(json!("fcbb:0:1004:1000:1006:1001:1005:fe06")),
        Just(json!("fc00:0:::")),
        Just(json!(NEAR)),
    ];
    let at = 0usize..100_000;
    prop_oneof![
        4 => (at.clone(), odd).prop_map(|(at, value)| Damage::Value(at, value)),
        2 => (at.clone(), at.clone()).prop_map(|(to, from)| Damage::Copy(to, from)),
        2 => at.clone().prop_map(Damage::Remove),
        1 => (at.clone(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        1 => at.prop_map(Damage::End),
    ]
}

/// Collects the places of all values of a document, as JSON pointers (RFC 6901).
fn places(value: &Value, here: &str, all: &mut Vec<String>) {
    all.push(here.to_owned());
    match value {
        Value::Array(list) => list.iter().enumerate().for_each(|(n, value)| places(value, &format!("{here}/{n}"), all)),
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            places(value, &format!("{here}/{}", key.replace('~', "~0").replace('/', "~1")), all);
        }),
        _ => {}
    }
}

fn damaged(text: &str, damages: &[Damage]) -> Vec<u8> {
    let mut document: Value = serde_json::from_str(text).unwrap();
    for damage in damages {
        let mut all = Vec::new();
        places(&document, "", &mut all);
        let place = |n: usize| all[n % all.len()].as_str();
        match damage {
            Damage::Value(at, value) => *document.pointer_mut(place(*at)).unwrap() = value.clone(),
            Damage::Copy(to, from) => {
                let copy = document.pointer(place(*from)).unwrap().clone();
                *document.pointer_mut(place(*to)).unwrap() = copy;
            }
            Damage::Remove(at) => match document.pointer_mut(place(*at)).unwrap() {
                Value::Array(list) if !list.is_empty() => drop(list.remove(at % list.len())),
                Value::Object(map) if !map.is_empty() => {
                    let key = map.keys().nth(at % map.len()).unwrap().clone();
                    map.remove(&key);
                }
                _ => {}
            },
            Damage::Byte(..) | Damage::End(_) => {}
        }
    }
    let mut bytes = document.to_string().into_bytes();
    for damage in damages {
        match damage {
            Damage::Byte(at, byte) if !bytes.is_empty() => {
                let at = at % bytes.len();
                bytes[at] = *byte;
            }
            Damage::End(at) if !bytes.is_empty() => bytes.truncate(at % bytes.len()),
            _ => {}
        }
    }
    bytes
}

/// The server's answers for the topology and for the path to the far host.
#[derive(Clone)]
struct Said {
    topology: Vec<u8>,
    far: Vec<u8>,
}

impl Said {
    fn right() -> Self {
        Self { topology: FABRIC.into(), far: TO_FAR.into() }
    }
}

async fn serve(said: Arc<Mutex<Said>>) -> String {
    let near = TO_FAR.replace("srv6-pytorch-2", "srv6-pytorch-1").replace("10.0.0.202_leaf02", "10.0.0.201_leaf01");
    let answer = move |request: Request| {
        let said = said.lock().unwrap().clone();
        let target = request.uri().to_string();
        let body = match () {
            () if target.ends_with("/topology") => said.topology,
            () if target.contains("srv6-pytorch-2") => said.far,
            () => near.clone().into_bytes(),
        };
        async move { body }
    };
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    url
}

/// Returns the snapshot after one more round.
async fn look(source: &mut Source) -> Arc<Snapshot> {
    let next = source.now().health.next;
    source.sync().await;
    source.until("one more look", |snapshot| snapshot.health.next != next).await
}

fn check(before: &Peer, after: &Peer) {
    for path in after.prefixes.iter().flat_map(|prefix| &prefix.paths) {
        assert!(!path.segments.is_empty() && path.weight > 0);
        for segment in &path.segments {
            Carrier::new(*segment).unwrap();
        }
    }
    assert!(after.prefixes.iter().all(|prefix| !prefix.paths.is_empty()));
    match after.state {
        PeerState::Fresh => assert!(after.last_error.is_none() && !after.prefixes.is_empty()),
        PeerState::Stale { .. } => assert_eq!((&after.prefixes, after.last_error.is_some()), (&before.prefixes, true)),
        PeerState::Waiting | PeerState::Missing => panic!("its paths are gone: {after:?}"),
    }
}

/// Returns a source that has paths to both peers, and its server's answers.
fn rig(runtime: &Runtime) -> (Source, Arc<Mutex<Said>>) {
    let said = Arc::new(Mutex::new(Said::right()));
    let source = runtime.block_on(async {
        let url = serve(Arc::clone(&said)).await;
        let mut source = follow(Settings { interval: Duration::from_hours(1), ..settings_at(url) });
        source.until("fresh", all_fresh).await;
        source
    });
    (source, said)
}

#[test]
fn a_damaged_answer_about_one_peer_is_its_own_affair() {
    let runtime = Runtime::new().unwrap();
    let (source, said) = rig(&runtime);
    let source = RefCell::new(source);
    let config = ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(damages in prop::collection::vec(damage(), 1..4))| {
        said.lock().unwrap().far = damaged(TO_FAR, &damages);
        let before = source.borrow().now();
        let after = runtime.block_on(look(&mut source.borrow_mut()));
        check(&before.peers[FAR], &after.peers[FAR]);
        prop_assert_eq!(&after.peers[NEAR].state, &PeerState::Fresh);
        prop_assert_eq!(&after.peers[NEAR].prefixes, &before.peers[NEAR].prefixes);
    });
    let causes = source.borrow().now().health.failures.clone();
    assert!(causes.len() > 2, "hardly anything went wrong: {causes:?}");
    said.lock().unwrap().far = TO_FAR.into();
    let after = runtime.block_on(look(&mut source.borrow_mut()));
    assert_eq!((&after.peers[FAR].state, &after.health.last_error), (&PeerState::Fresh, &None));
}

#[test]
fn a_damaged_topology_leaves_something_in_force() {
    let runtime = Runtime::new().unwrap();
    let (source, said) = rig(&runtime);
    let source = RefCell::new(source);
    let config = ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(damages in prop::collection::vec(damage(), 1..6))| {
        said.lock().unwrap().topology = damaged(FABRIC, &damages);
        let before = source.borrow().now();
        let after = runtime.block_on(look(&mut source.borrow_mut()));
        for id in [NEAR, FAR] {
            check(&before.peers[id], &after.peers[id]);
        }
    });
    let causes = source.borrow().now().health.failures.clone();
    assert!(causes.len() > 2, "hardly anything went wrong: {causes:?}");
    said.lock().unwrap().topology = FABRIC.into();
    let after = runtime.block_on(look(&mut source.borrow_mut()));
    assert!(after.peers.values().all(|peer| peer.state == PeerState::Fresh));
}
