//! `srv6d show` against a daemon that says what a real one said: the tables, and the JSON.
//!
//! `recorded/TOPIC.json` is one line of the management protocol; `recorded/TOPIC.txt` is the table of it. After a
//! deliberate change of a table, `SRV6D_RECORD=1 cargo test --test cli_show` writes the tables anew.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

const TOPICS: [&str; 7] = ["ports", "sids", "routes", "paths", "neighbors", "counters", "generation"];

/// A socket that answers one request with `answer`, and hands out the request.
struct Daemon {
    socket: PathBuf,
    served: thread::JoinHandle<String>,
}

impl Daemon {
    fn that_says(name: &str, answer: String) -> Self {
        let socket = std::env::temp_dir().join(format!("srv6d-show-{}-{name}.sock", std::process::id()));
        drop(fs::remove_file(&socket));
        let listener = UnixListener::bind(&socket).unwrap();
        let served = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            request
        });
        Self { socket, served }
    }

    /// The request, once it was answered.
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
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded").join(file)
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

#[test]
fn json_is_what_the_daemon_said() {
    for topic in TOPICS {
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
    // Larger than a pipe, so that the writer meets a closed one for certain.
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
    child.stdout.take().unwrap().read_exact(&mut first).unwrap(); // and closed here
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
