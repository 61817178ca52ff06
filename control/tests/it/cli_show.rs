//! Tests of `srv6d show` with a fake daemon that sends recorded answers: tables and JSON.
//!
//! `recorded/TOPIC.json` is one line of the management protocol, and `recorded/TOPIC.txt` the table for it. After an
//! intended change of a table, `SRV6D_RECORD=1 cargo test --test it cli_show` writes the tables again.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

const TOPICS: [&str; 10] =
    ["ports", "sids", "routes", "paths", "neighbors", "glb", "probes", "counters", "generation", "drops"];

/// A socket that sends its answers to requests one after the other, and returns the requests.
struct Daemon {
    socket: PathBuf,
    served: thread::JoinHandle<String>,
}

impl Daemon {
    fn that_says(name: &str, answer: String) -> Self {
        Self::that_says_in_turn(name, vec![answer])
    }

    fn that_says_in_turn(name: &str, answers: Vec<String>) -> Self {
        let socket = std::env::temp_dir().join(format!("srv6d-show-{}-{name}.sock", std::process::id()));
        drop(fs::remove_file(&socket));
        let listener = UnixListener::bind(&socket).unwrap();
        let served = thread::spawn(move || {
            let mut requests = String::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                BufReader::new(stream.try_clone().unwrap()).read_line(&mut requests).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
            requests
        });
        Self { socket, served }
    }

    /// Returns the requests after they were answered.
    fn request(self) -> String {
        let request = self.served.join().unwrap();
        fs::remove_file(self.socket).unwrap();
        request
    }
}

fn srv6d(socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_srv6d"));
    command.arg("--socket").arg(socket);
    command
}

fn recorded(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/recorded").join(file)
}

fn answer(topic: &str) -> String {
    fs::read_to_string(recorded(&format!("{topic}.json"))).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn tables_are_those_recorded() {
    for topic in TOPICS {
        let daemon = Daemon::that_says(topic, answer(topic));
        let output = srv6d(&daemon.socket).args(["show", topic]).output().unwrap();
        assert_eq!(daemon.request(), format!("{{\"version\":1,\"request\":\"show\",\"topic\":\"{topic}\"}}\n"));
        assert_eq!(output.status.code(), Some(0), "{topic}");
        let file = recorded(&format!("{topic}.txt"));
        if std::env::var_os("SRV6D_RECORD").is_some() {
            fs::write(&file, &output.stdout).unwrap();
        }
        assert_eq!(stdout(&output), fs::read_to_string(&file).unwrap(), "{topic}");
    }
}

/// Of workers is shown what they did between two answers.
#[test]
fn workers_are_shown_by_what_they_did_in_a_second() {
    let before = answer("workers");
    let later = [("1250000", "1256000"), ("132000", "133000"), ("\"full_rounds\":1320", "\"full_rounds\":1820")];
    let later =
        [("\"lived_ns\":1000000000", "\"lived_ns\":2000000000"), ("382000000", "882000000")].iter().chain(&later);
    let later = later.fold(before.clone(), |text, (from, to)| text.replacen(from, to, 1));
    let daemon = Daemon::that_says_in_turn("workers", vec![before, later]);
    let output = srv6d(&daemon.socket).args(["show", "workers"]).output().unwrap();
    assert_eq!(daemon.request().lines().count(), 2);
    let shown = stdout(&output);
    let row = shown.lines().nth(1).unwrap();
    let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells[..9], ["0", "2", "busy", "50.0 %", "0.0 %", "6.00 k", "6.0", "50.0 %", "0"], "{shown}");
    assert!(cells[9..] == ["4.2 ms", "-", "-", "-", "-", "-"], "no round was timed: {shown}");
}

#[test]
fn json_is_what_the_daemon_said() {
    for topic in TOPICS.into_iter().chain(["workers"]) {
        let daemon = Daemon::that_says(&format!("{topic}-json"), answer(topic));
        let output = srv6d(&daemon.socket).args(["show", topic, "--json"]).output().unwrap();
        daemon.request();
        let said: serde_json::Value = serde_json::from_str(&answer(topic)).unwrap();
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(Some(&shown), said.get("value"), "{topic}");
    }
}

#[test]
fn reader_that_has_seen_enough_is_no_failure() {
    // The table is larger than a pipe, so that the writer certainly meets a closed one.
    let row = r#"{"address":"2001:db8::1","port":"eth1","mac":null,"state":"unresolved","next_hop":true}"#;
    let rows = vec![row; 5000].join(",");
    let daemon = Daemon::that_says("pipe", format!("{{\"version\":1,\"result\":\"neighbors\",\"value\":[{rows}]}}\n"));
    let mut child = srv6d(&daemon.socket)
        .args(["show", "neighbors"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 16];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap(); // and is closed here
    let ended = child.wait_with_output().unwrap();
    daemon.request();
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
}

#[test]
fn refused_reload_says_why_and_that_nothing_changed() {
    let refusal = |invalid| {
        format!(
            "{{\"version\":1,\"result\":\"refused\",\"value\":{{\"invalid_configuration\":{invalid},\
             \"errors\":[\"no such thing\"]}}}}\n"
        )
    };
    for (invalid, status, expected) in [
        (true, 2, "no such thing\n\nnothing was changed: the old configuration stays in force\n"),
        (false, 1, "error: no such thing\n"),
    ] {
        let daemon = Daemon::that_says(&format!("refused-{status}"), refusal(invalid));
        let output = srv6d(&daemon.socket).arg("reload").output().unwrap();
        assert_eq!(daemon.request(), "{\"version\":1,\"request\":\"reload\",\"dry_run\":false}\n");
        assert_eq!(output.status.code(), Some(status));
        assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn reload_reports_what_changed() {
    let said = "{\"version\":1,\"result\":\"reloaded\",\"value\":{\"generation\":7,\
                \"changes\":[\"+ sids: fcbb:0:1000::/48\"],\"warnings\":[\"[api] changed\"],\"pending\":[\"eth9\"]}}\n";
    let daemon = Daemon::that_says("reloaded", said.to_owned());
    let output = srv6d(&daemon.socket).arg("reload").output().unwrap();
    daemon.request();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        stdout(&output),
        "generation 7 is in force\n+ sids: fcbb:0:1000::/48\npending: eth9\nwarning: [api] changed\n"
    );
}

#[test]
fn daemon_of_another_version_is_named() {
    let daemon = Daemon::that_says("version", "{\"version\":9,\"result\":\"ports\",\"value\":[]}\n".to_owned());
    let output = srv6d(&daemon.socket).args(["show", "ports"]).output().unwrap();
    daemon.request();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("speaks version 9"), "{output:?}");
}

#[test]
fn a_table_of_what_is_in_force_says_that_not_all_is() {
    let daemon = Daemon::that_says_in_turn("waits", vec![answer("routes"), answer("generation")]);
    let output = srv6d(&daemon.socket).args(["show", "routes"]).output().unwrap();
    daemon.request();
    let shown = stdout(&output);
    let expected = fs::read_to_string(recorded("routes.txt")).unwrap();
    assert!(shown.starts_with(&expected), "{shown}");
    assert!(
        shown.ends_with("pending: 1 not in force yet; `srv6d show generation` says what each waits for\n"),
        "{shown}"
    );
}

#[test]
fn a_watched_table_comes_again_with_rates_and_outlives_the_daemon() {
    let daemon = Daemon::that_says_in_turn("watch", vec![answer("sids"), answer("sids")]);
    let mut child = srv6d(&daemon.socket).args(["show", "sids", "-w=1"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let rates = |line: &String| line.split_whitespace().skip(3).map(str::to_owned).collect::<Vec<_>>();
    let mut rows = lines.by_ref().filter(|line| line.starts_with("fcbb:0:1004::/48"));
    let (first, second) = (rows.next().unwrap(), rows.next().unwrap());
    assert_eq!(rates(&first), ["-", "-"], "{first}");
    assert_eq!(rates(&second), ["0", "0"], "{second}");
    daemon.request();
    assert!(lines.any(|line| line == "srv6d is not running; waiting for it"));
    assert!(child.try_wait().unwrap().is_none(), "it goes on");
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(0), "until its reader is gone");
}

/// Runs a command against a daemon that gives the recorded answer, and compares what is printed with what was recorded.
fn is_as_recorded(name: &str, arguments: &[&str]) {
    let daemon = Daemon::that_says(name, answer(name));
    let output = srv6d(&daemon.socket).args(arguments).output().unwrap();
    daemon.request();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let file = recorded(&format!("{name}.txt"));
    if std::env::var_os("SRV6D_RECORD").is_some() {
        fs::write(&file, &output.stdout).unwrap();
    }
    assert_eq!(stdout(&output), fs::read_to_string(&file).unwrap());
}

#[test]
fn an_explanation_has_a_line_for_each_step() {
    is_as_recorded("explain", &["explain", "--port", "eth1", "--hex", "00"]);
}

#[test]
fn a_longest_match_is_one_line() {
    is_as_recorded("match", &["show", "routes", "2001:db8:1::1"]);
}

#[test]
fn drops_of_one_reason_are_shown_with_their_bytes() {
    let daemon = Daemon::that_says("drops-of", answer("drops"));
    let output = srv6d(&daemon.socket).args(["show", "drops", "tx_full", "--hex"]).output().unwrap();
    daemon.request();
    let shown = stdout(&output);
    assert!(!shown.contains("no_route") && shown.contains("to eth2"), "{shown}");
    assert!(shown.ends_with("  0000  02 00 00 00 00 01 02 00 00 00 00 02 88 cc\n"), "{shown}");
}

#[test]
fn what_does_not_fit_the_topic_is_said() {
    for (arguments, why) in [
        (&["show", "routes", "eth1"][..], "\"eth1\" is not an address"),
        (&["show", "drops", "no_rout"], "is no drop reason"),
        (&["show", "ports", "eth1"], "takes no address"),
        (&["show", "sids", "--table", "9"], "are of routes"),
        (&["show", "routes", "--table", "nine"], "a table is `main` or a number"),
        (&["show", "routes", "--hex"], "only drops have bytes"),
    ] {
        let output = srv6d(Path::new("/nonexistent/srv6d.sock")).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(why), "{arguments:?}: {said}");
    }
}

#[test]
fn json_is_not_for_watching() {
    let output = srv6d(Path::new("/nonexistent/srv6d.sock")).args(["show", "sids", "-w", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
