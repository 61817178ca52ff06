//! Whatever a controller does wrong: what it offered stays offered, `show source` says what happened, and a metric
//! counts it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support::recorded;

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use srv6d::api::Response;
use srv6d::api::state::SourceView;
use srv6d::source::running::Sources;
use srv6d::source::view::views;
use srv6d::{config, metrics, show};
use srv6d_path_server::{FaultPlan, Running, Server, Store};
use tokio::time::timeout;

const FABRIC: &str = include_str!("../../controller/tests/data/2026-01-topology.json");
const NEAR: &str = "hosts/srv6-pytorch-1";
const FAR: &str = "hosts/srv6-pytorch-2";
/// Whatever does not happen in this time never does.
const PATIENCE: Duration = Duration::from_mins(3);

async fn server(rules: &Value) -> Running {
    let (store, faults) = (Store::parse(FABRIC).unwrap(), FaultPlan::parse(&rules.to_string()).unwrap());
    Server { store, faults, ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap()
}

/// Controllers of a configuration that names this server.
async fn sources(endpoint: &str, patience: &str) -> Sources {
    let text = format!(
        "[jalapeno]\nendpoint = \"{endpoint}\"\nsource = \"hosts/srv6-pytorch-0\"\npeers = [\"{NEAR}\", \"{FAR}\"]\n\
         interval = \"100ms\"\ntimeout = \"{patience}\"\n"
    );
    let mut sources = Sources::default();
    sources.configure(&config::parse(&text, "srv6d.toml").unwrap(), "host00").await;
    sources
}

/// The view of the only controller, as soon as it is so.
async fn until(sources: &mut Sources, what: &str, so: impl Fn(&SourceView) -> bool) -> SourceView {
    let found = timeout(PATIENCE, async {
        loop {
            let view = views(&sources.status(), &[], None).remove(0);
            if so(&view) {
                return view;
            }
            sources.changed().await;
        }
    });
    found.await.unwrap_or_else(|_| unreachable!("never {what}"))
}

fn state_of<'v>(view: &'v SourceView, peer: &str) -> &'v str {
    view.peers.iter().find(|row| row.peer == peer).map_or("", |row| row.state.as_str())
}

fn exposition(view: SourceView) -> String {
    metrics::exposition(recorded::state(vec![view])).unwrap()
}

#[tokio::test]
async fn every_failure_is_shown_and_counted_and_nothing_is_withdrawn() {
    // Part of the request's path or query, requests that pass first, and what becomes of the others.
    let failures = [
        ("pytorch-2", 1, json!({ "status": 500 }), "status"),
        ("pytorch-2", 1, json!("not_found"), "not_found"),
        ("pytorch-2", 1, json!({ "cut": 40 }), "body"),
        ("pytorch-2", 1, json!("garble"), "body"),
        ("pytorch-2", 1, json!({ "other_destination": "hosts/x" }), "wrong_destination"),
        ("pytorch-2", 1, json!("silence"), "timeout"),
        ("shortest_path", 2, json!("stale"), "vanished_node"),
        ("topology", 1, json!({ "status": 500 }), "status"),
        ("topology", 1, json!({ "cut": 4000 }), "body"),
        ("topology", 1, json!("silence"), "timeout"),
    ];
    join_all(failures.map(|(route, after, fault, cause)| async move {
        let server = server(&json!([{ "route": route, "after": after, "fault": fault }])).await;
        fails(server, route == "topology", cause).await;
    }))
    .await;
}

/// The first answers are right; then the topology is another one, and what was prepared happens.
async fn fails(server: Running, whole: bool, cause: &str) {
    let mut sources = sources(&server.url(), if cause == "timeout" { "3s" } else { "20s" }).await;
    let fresh = until(&mut sources, "fresh", |view| view.state == "fresh").await;
    let offers = sources.offers();
    assert_eq!((fresh.peers_fresh, offers.iter().map(|offer| offer.steers.len()).sum::<usize>()), (2, 2));
    server.set_up("fabric_node/10.0.0.0_spine00", false);
    let view = until(&mut sources, "stale", |view| view.state == "failing" && state_of(view, FAR) == "stale").await;
    let far = |offers: &[srv6d::source::Offer]| {
        offers.iter().flat_map(|offer| &offer.steers).find(|steer| steer.peer == FAR).cloned().unwrap()
    };
    assert_eq!(far(&sources.offers()), far(&offers), "{cause}");
    if whole {
        assert_eq!(sources.offers(), offers, "{cause}");
    }
    look_at(&view, cause);
    sources.stop().await;
}

/// What people and their monitoring see of it.
fn look_at(view: &SourceView, cause: &str) {
    let count = view.failures[cause];
    assert!(count > 0, "{:?}", view.failures);
    let error = view.last_error.clone().unwrap();
    let shown = show::render(&Response::Source(vec![view.clone()]));
    assert!(shown.contains(&format!("failures: {cause} {count}\nerror: {error}\n")), "{shown}");
    assert!(shown.contains(&format!("{} of 2 peers fresh", view.peers_fresh)), "{shown}");
    let row = shown.lines().find(|line| line.starts_with(FAR)).unwrap();
    assert!(row.contains("stale") && row.contains("fcbb:0:1004:1000:1006:fe06::"), "{shown}");
    assert!(shown.contains(&format!("{FAR}: error: ")), "{shown}");
    let text = exposition(view.clone());
    for line in [
        format!("srv6d_source_attempts_total{{source=\"jalapeno\"}} {}", view.attempts),
        format!("srv6d_source_successes_total{{source=\"jalapeno\"}} {}", view.successes),
        format!("srv6d_source_failures_total{{source=\"jalapeno\",cause=\"{cause}\"}} {count}"),
        "srv6d_source_peers{source=\"jalapeno\"} 2".to_owned(),
        format!("srv6d_source_fresh_peers{{source=\"jalapeno\"}} {}", view.peers_fresh),
        format!("srv6d_source_round_milliseconds{{source=\"jalapeno\"}} {}", view.last_duration_ms),
        format!("srv6d_source_age_seconds{{source=\"jalapeno\"}} {}", view.age_seconds.unwrap()),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    // All other causes are there, at zero: an alarm on one of them needs no event to exist.
    let others = view.failures.keys().filter(|name| name.as_str() != cause);
    for other in others {
        let line = format!("srv6d_source_failures_total{{source=\"jalapeno\",cause=\"{other}\"}} 0");
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
}

#[tokio::test]
async fn a_controller_that_is_gone_is_shown_with_its_last_good_paths() {
    let server = server(&json!([])).await;
    let mut sources = sources(&server.url(), "3s").await;
    until(&mut sources, "fresh", |view| view.state == "fresh").await;
    let offers = sources.offers();
    server.stop().await;
    let view = until(&mut sources, "failing", |view| view.failures["connect"] > 0).await;
    assert_eq!((view.state.as_str(), view.peers_fresh), ("failing", 0));
    assert_eq!(sources.offers(), offers);
    look_at(&view, "connect");
}
