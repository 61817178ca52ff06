//! Tests of `srv6d path-server` from the view of a new user: help, example, errors with place and fix, and its end.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// Timeout for anything that these tests wait for; longer than any of it takes.
const DEADLINE: Duration = Duration::from_secs(30);

fn path_server(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_srv6d")).arg("path-server").args(arguments).output().unwrap()
}

fn refused(arguments: &[&str], status: i32) -> String {
    let output = path_server(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    assert_eq!(output.stdout, b"", "{arguments:?}");
    said
}

fn example() -> String {
    let output = path_server(&["--example"]);
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).unwrap()
}

/// A file that is removed at the end of the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("srv6d-paths-{}-{name}.json", std::process::id()));
        fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Replaces the file in one step, so that a reader never sees a part of it.
    fn replace(&self, text: &str) {
        let new = self.0.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, &self.0).unwrap();
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// A server that ends with the test.
struct Server {
    child: Child,
    log: Receiver<String>,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_srv6d"));
        let mut child = command.arg("path-server").args(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let (lines, log) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        // The thread ends with the server, or when the test stops reading.
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| lines.send(line)));
        Self { child, log }
    }

    /// Reads the log up to a line that contains `wanted`.
    fn line(&self, wanted: &str) -> String {
        loop {
            let line = self.log.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("no line with {wanted}"));
            if line.contains(wanted) {
                return line;
            }
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    fn exit_status(&mut self) -> Option<i32> {
        let begun = Instant::now();
        while begun.elapsed() < DEADLINE {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns `line:column` of the first occurrence of `marked` after that offset.
fn place(text: &str, from: usize, marked: &str) -> String {
    let offset = from + text.get(from..).unwrap().find(marked).unwrap();
    let before = text.get(..offset).unwrap();
    format!("{}:{}", before.matches('\n').count() + 1, before.rsplit('\n').next().unwrap().chars().count() + 1)
}

#[test]
fn help_leads_from_an_example_to_an_answer() {
    let output = path_server(&["--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    for word in ["--example > fabric.json", "--check", "curl", "/docs", "[jalapeno]", "Ctrl-C", "Exit status"] {
        assert!(help.contains(word), "{word} is missing in\n{help}");
    }
    assert!(refused(&[], 2).contains("--topology"));
    assert!(refused(&["--nodes", "n.json"], 2).contains("--hosts"));
    assert!(refused(&["--nodes", "n.json", "--topology", "t.json"], 2).contains("cannot be used with"));
}

#[test]
fn example_is_a_topology() {
    let file = File::new("example", &example());
    let output = path_server(&["--topology", file.path(), "--check"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "fabric_graph: 6 vertices, 12 edges\n");
}

#[test]
fn wrong_topology_is_status_2_and_names_line_key_and_fix() {
    let whole = example();
    // Returns the text behind `error: file:`, which begins with the place of `marked` in the changed file.
    let wrong = |name: &str, from: &str, to: &str, marked: &str| {
        let (before, behind) = whole.split_once(from).unwrap();
        let text = format!("{before}{to}{behind}");
        let file = File::new(name, &text);
        let said = refused(&["--topology", file.path()], 2);
        let place = place(&text, before.rfind('\n').unwrap(), marked);
        let begin = format!("error: {}:{place}: ", file.path());
        said.strip_prefix(&begin).unwrap_or_else(|| panic!("{begin}\n{said}")).to_owned()
    };
    assert_eq!(
        wrong("end", "\"_to\": \"fabric_node/leaf00\"", "\"_to\": \"leaf00\"", "\"leaf00\""),
        "edges[0]._to: leaf00 is no vertex of the file\nfix: write \"fabric_node/leaf00\"\n"
    );
    assert_eq!(
        wrong("weight", "\"latency\": 1", "\"latency\": \"1\"", "\"1\""),
        "edges[4].latency: \"1\" is no weight\nfix: write a number from 0 up, without quotes\n"
    );
    assert_eq!(
        wrong("sid", "fcbb:0:1005::", "fcbb:0:1005:::", "{\"srv6_sid\""),
        "nodes[1].sids[0]: {\"srv6_sid\":\"fcbb:0:1005:::\",\"srv6_endpoint_behavior\":{\"endpoint_behavior\":48,\
         \"flag\":0,\"algo\":0}} is not a SID\nfix: write {\"srv6_sid\": \"fcbb:0:1004::\", ...}\n"
    );
    assert_eq!(
        wrong("prefix", "\"2001:db8:0::\"", "\"2001:db8:0::1\"", "\"2001:db8:0::1\""),
        "hosts[0].prefix: 2001:db8::1/64 has host bits\nfix: write \"2001:db8::\": kernels refuse routes with host \
         bits\n"
    );
    assert_eq!(
        wrong("twice", "leaf00_host00", "host00_leaf00", "{\"_key\""),
        "edges[1]: fabric_graph/host00_leaf00 is there twice\nfix: give every edge a `_key` of its own\n"
    );
    let comma = wrong("comma", "],\n  \"hosts\"", "]\n  \"hosts\"", "\"hosts\"");
    assert!(comma.starts_with("not JSON: expected `,` or `}`\nfix: "), "{comma}");
    let shape = refused(&["--topology", File::new("shape", "{\"links\": []}").path()], 2);
    assert!(shape.contains(":1:1: not a topology\nfix: write {\"nodes\": [...]"), "{shape}");
}

#[test]
fn one_of_three_files_is_the_one_that_is_named() {
    let whole: serde_json::Value = serde_json::from_str(&example()).unwrap();
    let part = |name: &str| File::new(name, &serde_json::to_string_pretty(whole.get(name).unwrap()).unwrap());
    let (nodes, hosts, edges) = (part("nodes"), part("hosts"), part("edges"));
    let of = ["--nodes", nodes.path(), "--hosts", hosts.path(), "--edges", edges.path(), "--check"];
    assert_eq!(path_server(&of).status.code(), Some(0));
    fs::write(hosts.path(), "[\n  {\"name\": \"host00\"}\n]\n").unwrap();
    let said = refused(&of, 2);
    assert!(said.starts_with(&format!("error: {}:2:3: hosts[0]: has no `_key`\nfix: ", hosts.path())), "{said}");
    fs::write(hosts.path(), "[]").unwrap();
    let said = refused(&of, 2);
    assert!(said.starts_with(&format!("error: {}:4:14: edges[0]._from: hosts/host00 is no", edges.path())), "{said}");
    let said = refused(&["--topology", "/nonexistent/fabric.json"], 2);
    assert!(said.starts_with("error: cannot read /nonexistent/fabric.json: ") && said.contains("\nfix: "), "{said}");
}

#[test]
fn wrong_faults_are_status_2_and_named() {
    let topology = File::new("faulty", &example());
    let faults = File::new("faults", "[\n  {\"fault\": {\"status\": 42}}\n]");
    let said = refused(&["--topology", topology.path(), "--faults", faults.path()], 2);
    let place = format!("error: {}:2:", faults.path());
    assert!(said.starts_with(&place) && said.contains("status 42: write one from 200 to 599\nfix: "), "{said}");
}

#[test]
fn port_in_use_is_status_1_and_says_how_to_find_its_owner() {
    let topology = File::new("taken", &example());
    let owner = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = owner.local_addr().unwrap();
    let said = refused(&["--topology", topology.path(), "--listen", &address.to_string()], 1);
    assert!(said.contains(&format!("error: cannot listen on {address}: Address already in use")), "{said}");
    assert!(said.contains(&format!("fix: choose another port, --listen 127.0.0.1:{}", address.port() + 1)), "{said}");
    assert!(said.contains(&format!("ss -ltnp 'sport = :{}'", address.port())), "{said}");
}

#[test]
fn signals_end_it_with_status_0() {
    let topology = File::new("signals", &example());
    for name in ["INT", "TERM"] {
        let mut server = Server::start(&["--topology", topology.path(), "--listen", "127.0.0.1:0"]);
        server.line("listening on http://127.0.0.1:");
        server.signal(name);
        assert_eq!(server.exit_status(), Some(0), "SIG{name}");
    }
}

#[test]
fn changed_file_is_read_and_a_wrong_one_changes_nothing() {
    let topology = File::new("changed", &example());
    let server = Server::start(&["--topology", topology.path(), "--listen", "127.0.0.1:0"]);
    server.line("listening on");
    topology.replace("{");
    let line = server.line("the topology stays as it was");
    assert!(line.contains(&format!("{}:1:1: not JSON", topology.path())), "{line}");
    let mut fewer: serde_json::Value = serde_json::from_str(&example()).unwrap();
    fewer.get_mut("edges").unwrap().as_array_mut().unwrap().pop();
    topology.replace(&fewer.to_string());
    server.line("fabric_graph: 6 vertices, 11 edges");
    server.signal("HUP");
    server.line("the topology was read again");
}
