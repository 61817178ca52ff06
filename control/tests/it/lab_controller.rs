//! Tests of hosts that get their paths from a controller while it moves paths, fails, and comes back. No packet may be
//! lost.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::lab::{Lab, SRV6D, WINDOW, balanced, eventually, gone, srv6d, text};

const FROM: &str = "host00";
const TO: &str = "host02";
const TARGET: &str = "fcbb:0:800:2::2";
const EVERYBODY: [&str; 9] =
    ["host00", "host01", "host02", "leaf00", "leaf01", "leaf02", "spine00", "spine01", "spine02"];

/// Maximum time in which a path moves on a busy machine.
const MOVE: Duration = Duration::from_mins(1);

/// Returns the shipped fabric, whose hosts read from their controller every `interval`.
fn fabric(interval: &str) -> String {
    let table = "[controller]\nprefix = \"2001:db8:ffff::/48\"\n";
    assert!(srv6d_lab::FABRIC.contains(table));
    srv6d_lab::FABRIC.replace(table, &format!("{table}interval = \"{interval}\"\n"))
}

fn json(lab: &Lab, node: &str, question: &[&str]) -> Value {
    let command = [&[SRV6D][..], question, &["--json"]].concat();
    serde_json::from_str(&lab.must(node, &command)).unwrap()
}

fn source(lab: &Lab) -> Value {
    json(lab, FROM, &["show", "source"])[0].clone()
}

/// Returns the carrier to `TO` that is in force.
fn carrier(lab: &Lab) -> String {
    let paths = json(lab, FROM, &["show", "paths"]);
    let row = paths.as_array().unwrap().iter().find(|row| row["path"] == "hosts/host02").unwrap().clone();
    row["segments"][0].as_str().unwrap().to_owned()
}

/// Returns the spine to which leaf00 sends. A path may cross another spine behind a second leaf.
fn spine(carrier: &str) -> u8 {
    let behind_the_leaf = carrier.split(':').nth(3).unwrap();
    let spines = ["1000", "1001", "1002"];
    u8::try_from(spines.iter().position(|usid| *usid == behind_the_leaf).unwrap()).unwrap()
}

/// Tells the controller that the link from leaf00 to a spine is up or down.
fn switch(lab: &Lab, spine: u8, up: bool) {
    let url = format!("http://[::1]:30800/api/v1/graphs/fabric_graph/edges/leaf00_spine0{spine}");
    let body = format!("{{\"up\": {up}}}");
    let header = "content-type: application/json";
    lab.must("controller", &["curl", "-sf", "-X", "PATCH", "-H", header, "-d", &body, &url]);
}

/// A stream of numbered datagrams with its receiver, which counts them.
struct Stream {
    sender: Child,
    sink: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Stream {
    fn start(lab: &Lab, rate: &str, seconds: &str) -> Self {
        let mut sink = lab.spawn(TO, &["udp-receive", &format!("[{TARGET}]:0")]);
        let mut lines = BufReader::new(sink.stdout.take().unwrap()).lines();
        let listening: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let to = listening["listening"].as_str().unwrap();
        let sender = lab.spawn(FROM, &["udp-send", to, rate, seconds, "200", "--window", &WINDOW.to_string()]);
        Self { sender, sink, lines }
    }

    fn running(&mut self) -> bool {
        self.sender.try_wait().unwrap().is_none()
    }

    /// Ends the stream, and checks that every datagram has arrived once.
    fn whole(mut self, lab: &Lab) -> u64 {
        if self.running() {
            let sender = self.sender.id().to_string();
            assert!(Command::new("kill").arg(sender).status().unwrap().success());
        }
        let sent = self.sender.wait_with_output().unwrap();
        let sent: Value = serde_json::from_slice(&sent.stdout).unwrap();
        let report: Value = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
        self.sink.wait().unwrap();
        let whole = report["received"] == sent["sent"] && report["lost"] == 0 && report["duplicated"] == 0;
        assert!(whole, "{report}\n{}", lab.losses());
        sent["sent"].as_u64().unwrap()
    }
}

/// Waits until `packets` more packets have left the carrier at `TO`'s leaf.
fn arrives(lab: &Lab, packets: u64) {
    let arrived = || lab.sid_packets("leaf02", "fcbb:0:1006:fe06::/64");
    let before = arrived();
    eventually("more of the stream", || arrived() > before + packets);
}

/// Returns the latest generation that moved a path. A generation after it may have changed only a neighbour.
fn last_move(view: &Value) -> &Value {
    view["generations"].as_array().unwrap().iter().find(|row| !row["changes"]["steers"].is_null()).unwrap()
}

#[test]
#[ignore = "needs root"]
fn paths_come_from_the_controller_and_move_without_loss() {
    let lab = Lab::up("ctl", &fabric("200ms"));
    let view = source(&lab);
    assert_eq!((&view["state"], &view["peers_fresh"]), (&"fresh".into(), &2.into()), "{view}");
    assert!(view["peers"].as_array().unwrap().iter().all(|row| row["programmed"] == "yes"), "{view}");
    let before = carrier(&lab);

    // TCP fills rings, so it must not run at the same time as datagrams of which none may be lost.
    let (sent, received) = lab.tcp(FROM, TO, TARGET);
    assert_eq!(sent["sha256"], received["sha256"]);
    let mut stream = Stream::start(&lab, "2000", "60");
    arrives(&lab, 1000);
    switch(&lab, spine(&before), false);
    eventually("the path moves", || carrier(&lab) != before);
    arrives(&lab, 1000);
    assert!(stream.running(), "it moved while the stream ran");
    assert!(stream.whole(&lab) > 2000);
    let (sent, received) = lab.tcp(FROM, TO, TARGET);
    assert_eq!(sent["sha256"], received["sha256"]);

    let generations = json(&lab, FROM, &["show", "generation"]);
    assert_eq!(last_move(&generations)["source"], "jalapeno", "{generations}");
    balanced(&lab, &EVERYBODY);
}

#[test]
#[ignore = "needs root"]
fn a_dead_controller_costs_no_packet_and_is_seen() {
    let lab = Lab::up("dead", &fabric("200ms"));
    let before = carrier(&lab);
    let mut stream = Stream::start(&lab, "1000", "60");
    let controller = lab.processes()[0];
    assert!(Command::new("kill").args(["-9", &controller.to_string()]).status().unwrap().success());
    eventually("the failure is shown", || source(&lab)["state"] == "failing");
    assert!(stream.running());
    let view = source(&lab);
    assert!(view["failures"]["connect"].as_u64().unwrap() > 0, "{view}");
    assert!(view["last_error"].as_str().unwrap().contains("topology"), "{view}");
    let states: Vec<&Value> = view["peers"].as_array().unwrap().iter().map(|row| &row["state"]).collect();
    assert!(states.iter().all(|state| **state == "stale"), "{view}");
    assert_eq!(carrier(&lab), before, "the last good path stays");
    arrives(&lab, 500);
    assert!(stream.running());
    assert!(stream.whole(&lab) > 500);

    // The age is in whole seconds.
    eventually("the answers have aged", || source(&lab)["age_seconds"].as_u64().is_some_and(|age| age > 0));
    let metrics = lab.must(FROM, &["curl", "-sf", "http://[::1]:9469/metrics"]);
    for line in ["srv6d_source_peers{source=\"jalapeno\"} 2", "srv6d_source_fresh_peers{source=\"jalapeno\"} 0"] {
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }
    let counted = |name: &str| metrics.lines().any(|line| line.starts_with(name) && !line.ends_with(" 0"));
    for name in [
        "srv6d_source_attempts_total{source=\"jalapeno\"}",
        "srv6d_source_successes_total{source=\"jalapeno\"}",
        "srv6d_source_failures_total{source=\"jalapeno\",cause=\"connect\"}",
        "srv6d_source_age_seconds{source=\"jalapeno\"}",
    ] {
        assert!(counted(name), "{name} in\n{metrics}");
    }
    let restarted = srv6d(&["lab", "restart", "--name", &lab.name, "controller"]);
    assert!(restarted.status.success(), "{}", text(&restarted.stderr));
    eventually("the controller is asked again", || source(&lab)["state"] == "fresh");
    balanced(&lab, &EVERYBODY);
}

#[test]
#[ignore = "needs root"]
fn a_rollback_holds_until_the_next_reload() {
    let lab = Lab::up("back", &fabric("100ms"));
    let first = carrier(&lab);
    let generation = json(&lab, FROM, &["show", "generation"])["generations"][0]["generation"].as_u64().unwrap();
    switch(&lab, spine(&first), false);
    eventually("the path moves", || carrier(&lab) != first);
    let second = carrier(&lab);

    let dry = lab.must(FROM, &[SRV6D, "rollback", "--dry-run"]);
    assert!(
        dry.contains("~ steers: fcbb:0:800:2::/64") && dry.lines().any(|line| line.starts_with("steers ~")),
        "{dry}"
    );
    assert_eq!(carrier(&lab), second, "a dry run changes nothing");
    lab.must(FROM, &[SRV6D, "rollback", &generation.to_string()]);
    assert_eq!(carrier(&lab), first);
    let view = json(&lab, FROM, &["show", "generation"]);
    assert_eq!(
        (&view["held"], &last_move(&view)["source"]),
        (&generation.into(), &format!("rollback to {generation}").into())
    );

    // The controller still answers another path, which is used after a reload.
    let rounds = source(&lab)["attempts"].as_u64().unwrap();
    eventually("more rounds", || source(&lab)["attempts"].as_u64().unwrap() > rounds + 3);
    assert_eq!(carrier(&lab), first);
    let dry = lab.must(FROM, &[SRV6D, "reload", "--dry-run"]);
    assert!(dry.contains("~ steers: fcbb:0:800:2::/64"), "{dry}");
    lab.must(FROM, &[SRV6D, "reload"]);
    assert_eq!(carrier(&lab), second);
    assert_eq!(json(&lab, FROM, &["show", "generation"])["held"], Value::Null);

    let forgotten = lab.exec(FROM, &[SRV6D, "rollback", "999999"]);
    assert_eq!(forgotten.status.code(), Some(1));
    assert!(text(&forgotten.stderr).contains("generation 999999 is no longer kept"), "{}", text(&forgotten.stderr));
    balanced(&lab, &EVERYBODY);
}

#[test]
#[ignore = "needs root"]
fn the_plugins_environment_is_all_it_takes() {
    let lab = Lab::up("env", &fabric("1s"));
    // The daemon of host00 is replaced by one that is started like the plugin.
    let pid = lab.process_of(FROM);
    assert!(Command::new("kill").arg(pid.to_string()).status().unwrap().success());
    eventually("the daemon of the lab has ended", || gone(pid));
    let socket = format!("/run/srv6d-lab/{}/{FROM}/srv6d.sock", lab.name);
    let mut daemon = Command::new(SRV6D)
        .args([
            "lab",
            "exec",
            "--name",
            &lab.name,
            FROM,
            "--",
            SRV6D,
            "run",
            "--plugin-environment",
            "--socket",
            &socket,
        ])
        .env("JALAPENO_API_ENDPOINT", "http://[2001:db8:ffff::1]:30800/api/v1")
        .env("TOPOLOGY_COLLECTION", "fabric_graph")
        .env("BACKEND_INTERFACE", "eth1")
        .env_remove("HOSTS")
        .env("HOSTNAME", "host00")
        .env("DEST_FUNCTION", "fe06")
        .env("BACKEND_GATEWAY", "fcbb:0:800::1")
        .spawn()
        .unwrap();
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let waited = lab.must(FROM, &[SRV6D, "wait", "--peers", "--timeout", "2m"]);
        assert_eq!(waited, "every peer has a path in force\n");
        assert_eq!(source(&lab)["peers_total"], 2);
        let bookings = format!("/run/srv6d-lab/{}/{FROM}/plugin-bookings.json", lab.name);
        assert!(std::fs::read_to_string(&bookings).unwrap().contains("hosts/host02"), "a restart books nothing");
        let (sent, received) = lab.tcp(FROM, TO, TARGET);
        assert_eq!(sent["sha256"], received["sha256"]);
        let paths = json(&lab, FROM, &["show", "paths"]);
        let packets: u64 = paths.as_array().unwrap().iter().map(|path| path["packets"].as_u64().unwrap()).sum();
        assert!(packets > 0, "it went by srv6d: {paths:#}");
    }));
    let _ = Command::new("kill").arg(daemon.id().to_string()).status();
    let _ = daemon.wait();
    done.unwrap();
}

/// For a minute, paths change all the time under traffic. Nothing is lost, and every packet is accounted for.
#[test]
#[ignore = "needs root"]
fn a_minute_of_restless_paths() {
    let lab = Lab::up("soak", &fabric("50ms"));
    let mut stream = Stream::start(&lab, "500", "60");
    let mut moves = 0u32;
    let mut last = carrier(&lab);
    while stream.running() {
        let here = spine(&last);
        switch(&lab, here, false);
        let deadline = Instant::now() + MOVE;
        while carrier(&lab) == last {
            assert!(Instant::now() < deadline, "{last} stays: {:#}", source(&lab));
            thread::sleep(Duration::from_millis(20));
        }
        switch(&lab, here, true);
        moves += 1;
        last = carrier(&lab);
    }
    assert!(moves >= 10, "{moves} moves were seen");
    assert!(stream.whole(&lab) > 5000);
    balanced(&lab, &EVERYBODY);
    let generations = json(&lab, FROM, &["show", "generation"])["generations"][0]["generation"].as_u64().unwrap();
    assert!(generations > u64::from(moves), "{generations} generations");
}

#[test]
#[ignore = "needs root"]
fn dry_run_of_a_start_asks_and_touches_nothing() {
    let lab = Lab::up("dry", &fabric("1s"));
    let config = format!("/run/srv6d-lab/{}/{FROM}/srv6d.toml", lab.name);
    let text_of = std::fs::read_to_string(&config).unwrap();
    let file = std::env::temp_dir().join(format!("srv6d-{}-dry.toml", lab.name));
    std::fs::write(&file, text_of.replace("path = \"load\"", "path = \"shortest\"")).unwrap();
    let generations = || json(&lab, FROM, &["show", "generation"])["generations"].clone();
    // The daemon asks once a second itself, and may get other paths meanwhile.
    let changes_nothing = (0..10).any(|_| {
        let before = generations();
        let output = lab.exec(FROM, &[SRV6D, "run", "--dry-run", "--config", file.to_str().unwrap()]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let said = text(&output.stdout);
        assert!(said.contains("jalapeno: paths to 2 of 2 peers"), "{said}");
        generations() == before
    });
    let _ = std::fs::remove_file(&file);
    assert!(changes_nothing, "{}", generations());
    let load = lab.must(FROM, &[SRV6D, "run", "--dry-run", "--config", &config]);
    assert!(load.contains("path = \"load\" books with every question and is not asked"), "{load}");
    assert!(load.contains("hosts/host02 fcbb:0:800:2::/64: fcbb:0:1004:"), "{load}");
    // Paths of a controller that was not asked do not appear as removed.
    assert!(!load.contains("- steers"), "{load}");
    assert_eq!(srv6d(&["run", "--dry-run", "--config", "/nonexistent"]).status.code(), Some(2));
}
