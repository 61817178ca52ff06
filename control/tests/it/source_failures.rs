//! Tests of a failing controller: its offers stay in force, `show source` reports the failure, and a metric counts it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support::recorded;

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use srv6d_api::Response;
use srv6d_api::state::SourceView;
use srv6d_config as config;
use srv6d_config::Config;
use srv6d_daemon::metrics;
use srv6d_daemon::source::running::Controllers;
use srv6d_daemon::source::view::views;
use srv6d_path_server::{FaultPlan, Running, Server, Store};
use srv6d_show as show;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

const FABRIC: &str = include_str!("../../controller/tests/data/2026-01-topology.json");
const NEAR: &str = "hosts/srv6-pytorch-1";
const FAR: &str = "hosts/srv6-pytorch-2";
/// Maximum time for anything that a test waits for.
const PATIENCE: Duration = Duration::from_mins(3);

async fn server(rules: &Value) -> Running {
    let (store, faults) = (Store::parse(FABRIC).unwrap(), FaultPlan::parse(&rules.to_string()).unwrap());
    Server { store, faults, ..Server::default() }.start("[::1]:0".parse().unwrap()).await.unwrap()
}

/// Returns a configuration that names this server.
fn configuration(endpoint: &str, patience: &str, more: &str) -> Config {
    let text = format!(
        "[jalapeno]\nendpoint = \"{endpoint}\"\nsource = \"hosts/srv6-pytorch-0\"\npeers = [\"{NEAR}\", \"{FAR}\"]\n\
         interval = \"100ms\"\ntimeout = \"{patience}\"\n{more}"
    );
    config::parse(&text, "srv6d.toml").unwrap()
}

/// Controllers of a configuration that names this server.
fn sources(endpoint: &str, patience: &str) -> Controllers {
    let mut sources = Controllers::default();
    sources.configure(&configuration(endpoint, patience, ""), "host00");
    sources
}

/// Waits until the view of the only controller meets a condition, and returns it.
async fn until(sources: &mut Controllers, what: &str, so: impl Fn(&SourceView) -> bool) -> SourceView {
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
    // Each row has a part of the request's path or query, the number of requests that pass first, the fault of the
    // others, and the cause that is counted.
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

/// The first answers are correct. Then the topology changes, and the prepared fault occurs.
async fn fails(server: Running, whole: bool, cause: &str) {
    let mut sources = sources(&server.url(), if cause == "timeout" { "3s" } else { "20s" });
    let fresh = until(&mut sources, "fresh", |view| view.state == "fresh").await;
    let offers = sources.offers();
    assert_eq!((fresh.peers_fresh, offers.iter().map(|offer| offer.steers.len()).sum::<usize>()), (2, 2));
    server.set_up("fabric_node/10.0.0.0_spine00", false);
    let view = until(&mut sources, "stale", |view| view.state == "failing" && state_of(view, FAR) == "stale").await;
    let far = |offers: &[srv6d_offer::Offer]| {
        offers.iter().flat_map(|offer| &offer.steers).find(|steer| steer.peer == FAR).cloned().unwrap()
    };
    assert_eq!(far(&sources.offers()), far(&offers), "{cause}");
    if whole {
        assert_eq!(sources.offers(), offers, "{cause}");
    }
    look_at(&view, cause);
    sources.stop().await;
}

/// Checks the reports to the user and to monitoring.
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
    // All other causes have the value zero, so that an alert can refer to a cause that has not occurred yet.
    let others = view.failures.keys().filter(|name| name.as_str() != cause);
    for other in others {
        let line = format!("srv6d_source_failures_total{{source=\"jalapeno\",cause=\"{other}\"}} 0");
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
}

#[tokio::test]
async fn a_controller_that_is_gone_is_shown_with_its_last_good_paths() {
    let server = server(&json!([])).await;
    let mut sources = sources(&server.url(), "3s");
    until(&mut sources, "fresh", |view| view.state == "fresh").await;
    let offers = sources.offers();
    server.stop().await;
    let view = until(&mut sources, "failing", |view| view.failures["connect"] > 0).await;
    assert_eq!((view.state.as_str(), view.peers_fresh), ("failing", 0));
    assert_eq!(sources.offers(), offers);
    look_at(&view, "connect");
}

/// Accepts connections and never answers; each is told on the channel.
async fn mute() -> (String, mpsc::UnboundedReceiver<TcpStream>) {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, asked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = tell.send(stream);
        }
    });
    (url, asked)
}

/// The controller that does not answer has begun to allocate, so the end of its task releases that.
#[tokio::test]
async fn a_mute_controller_holds_up_nobody_when_its_table_changes_or_goes() {
    let server = server(&json!([])).await;
    let none = config::parse("", "srv6d.toml").unwrap();
    let mut sources = Controllers::default();
    for (next, wanted) in [(configuration(&server.url(), "20s", ""), 1), (none, 0)] {
        let (url, mut asked) = mute().await;
        sources.configure(&configuration(&url, "20s", "path = \"load\"\n"), "host00");
        until(&mut sources, "started", |view| view.endpoint == url).await;
        let change = async {
            loop {
                sources.changed().await;
            }
        };
        let _open = tokio::select! { stream = asked.recv() => stream.unwrap(), () = change => unreachable!() };
        let begun = Instant::now();
        sources.configure(&next, "host00");
        // This is a third of the time that a task may take to end.
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        if wanted == 1 {
            until(&mut sources, "fresh", |view| view.state == "fresh" && view.endpoint == server.url()).await;
        }
        assert_eq!(sources.status().len(), wanted);
    }
    sources.stop().await;
}

/// Files in a directory of a test's own; it goes with this.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("srv6d-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn pipe(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn files_that_are_none_are_refused_in_words_and_hold_up_nobody() {
    let files = Scratch::new("source-files");
    let huge = files.0.join("huge");
    File::create(&huge).unwrap().set_len(600 << 20).unwrap();
    let garbage = files.0.join("garbage");
    fs::write(&garbage, "\u{1b}]garbage".repeat(40_000)).unwrap();
    let pipe = files.pipe("pipe");
    for (endpoint, key, file, why) in [
        ("http://[::1]:1", "job", &pipe, "no regular file"),
        ("http://[::1]:1", "job", &huge, "longer than 16 MiB"),
        ("http://[::1]:1", "job", &garbage, "cannot be the id of a host"),
        ("https://[::1]:1", "ca_file", &pipe, "no regular file"),
        ("https://[::1]:1", "ca_file", &PathBuf::from("/dev/zero"), "no regular file"),
    ] {
        let mut sources = Controllers::default();
        let more = format!("{key} = {:?}\n", file.display().to_string());
        sources.configure(&configuration(endpoint, "3s", &more), "host00");
        let view = until(&mut sources, "refused", |view| view.state == "refused").await;
        let said = view.last_error.clone().unwrap();
        assert!(said.contains(why) && said.len() < 1000, "{said:.2000}");
        let shown = show::render(&Response::Source(vec![view]));
        assert!(shown.contains(why) && !shown.contains('\u{1b}'), "{shown:.2000}");
    }
}

#[tokio::test]
async fn a_state_that_is_no_file_is_left_alone_and_said() {
    let files = Scratch::new("source-state");
    let (pipe, server) = (files.pipe("pipe"), server(&json!([])).await);
    let mut sources = Controllers::default();
    let more = format!("path = \"load\"\nstate = {:?}\n", pipe.display().to_string());
    sources.configure(&configuration(&server.url(), "20s", &more), "host00");
    let view = until(&mut sources, "fresh", |view| view.state == "fresh").await;
    let said = view.last_error.unwrap();
    assert!(said.contains("is no regular file") && said.contains("name another `state`"), "{said}");
    assert_eq!(view.failures["state"], 1);
    sources.stop().await;
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo(), "nothing has taken its place");
}
