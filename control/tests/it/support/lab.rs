//! A lab for a single test.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub use srv6d_lab::WINDOW;
use srv6d_process::Process;

use super::counters;

pub const SRV6D: &str = env!("CARGO_BIN_EXE_srv6d");

/// Maximum time for anything that a test waits for.
pub const PATIENCE: Duration = Duration::from_mins(1);

pub fn srv6d(arguments: &[&str]) -> Output {
    Command::new(SRV6D).args(arguments).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A lab for a single test, which is removed when the test is over, however it ends.
pub struct Lab {
    pub name: String,
}

impl Lab {
    pub fn up(test: &str, topology: &str) -> Self {
        let lab = Self { name: format!("t{}-{test}", std::process::id()) };
        let file = lab.file();
        fs::write(&file, topology).unwrap();
        let output = srv6d(&["lab", "up", "--topology", file.to_str().unwrap(), "--name", &lab.name]);
        fs::remove_file(&file).unwrap();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        lab
    }

    pub fn file(&self) -> PathBuf {
        std::env::temp_dir().join(format!("srv6d-{}.toml", self.name))
    }

    pub fn exec(&self, node: &str, command: &[&str]) -> Output {
        let arguments = [&["lab", "exec", "--name", &self.name, node, "--"], command].concat();
        srv6d(&arguments)
    }

    /// Runs a command that must succeed.
    pub fn must(&self, node: &str, command: &[&str]) -> String {
        let output = self.exec(node, command);
        assert!(output.status.success(), "{node} {command:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    pub fn spawn(&self, node: &str, traffic: &[&str]) -> Child {
        Command::new(SRV6D)
            .args(["lab", "exec", "--name", &self.name, node, "--", SRV6D, "lab", "traffic"])
            .args(traffic)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Returns bytes and hash of a TCP transfer, as seen by receiver and sender.
    pub fn tcp(&self, from: &str, to: &str, address: &str) -> (serde_json::Value, serde_json::Value) {
        let mut sink = self.spawn(to, &["tcp-receive", &socket_address(address)]);
        let mut lines = BufReader::new(sink.stdout.take().unwrap()).lines();
        let mut next = || -> serde_json::Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
        let listening = next();
        let listening = listening.get("listening").unwrap().as_str().unwrap().to_owned();
        let sender = self.spawn(from, &["tcp-send", &listening, "2000000", "7"]).wait_with_output().unwrap();
        assert!(sender.status.success(), "{from} -> {address}: {}", text(&sender.stderr));
        let received = next();
        sink.wait().unwrap();
        (serde_json::from_slice(&sender.stdout).unwrap(), received)
    }

    /// Returns the report of a receiver of numbered datagrams.
    pub fn udp(&self, from: &str, to: &str, address: &str) -> serde_json::Value {
        self.udp_of("1400", from, to, address)
    }

    /// Like [`Self::udp`], with datagrams of `size` bytes.
    pub fn udp_of(&self, size: &str, from: &str, to: &str, address: &str) -> serde_json::Value {
        let mut sink = self.spawn(to, &["udp-receive", &socket_address(address)]);
        let mut lines = BufReader::new(sink.stdout.take().unwrap()).lines();
        let mut next = || -> serde_json::Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
        let listening = next().get("listening").unwrap().as_str().unwrap().to_owned();
        let sender = self
            .spawn(from, &["udp-send", &listening, "500", "0.5", size, "--window", &WINDOW.to_string()])
            .wait_with_output()
            .unwrap();
        assert!(sender.status.success(), "{from} -> {address}: {}", text(&sender.stderr));
        let report = next();
        sink.wait().unwrap();
        report
    }

    pub fn sid_packets(&self, node: &str, sid: &str) -> u64 {
        let rows: serde_json::Value =
            serde_json::from_str(&self.must(node, &[SRV6D, "show", "sids", "--json"])).unwrap();
        let row = rows.as_array().unwrap().iter().find(|row| row.get("sid").unwrap() == sid).unwrap().clone();
        row.get("packets").unwrap().as_u64().unwrap()
    }

    /// Returns where packets may have been lost: the counters of every node, and the drops of the kernel's devices.
    pub fn losses(&self) -> String {
        let mut said = String::new();
        for node in &self.nodes() {
            writeln!(said, "\n{node}:").unwrap();
            said.push_str(&text(&self.exec(node, &[SRV6D, "show", "counters"]).stdout));
            let sockets = text(&self.exec(node, &["nstat", "-asz", "UdpRcvbufErrors", "Udp6RcvbufErrors"]).stdout);
            sockets.lines().filter(|line| line.starts_with("Udp")).for_each(|line| writeln!(said, "  {line}").unwrap());
            self.devices(node).iter().for_each(|line| writeln!(said, "  {line}").unwrap());
        }
        said
    }

    /// Returns the devices of a node that have dropped packets.
    fn devices(&self, node: &str) -> Vec<String> {
        let shown = self.exec(node, &["ip", "-s", "-j", "link", "show"]).stdout;
        let links: serde_json::Value = serde_json::from_slice(&shown).unwrap_or_default();
        let count = |link: &serde_json::Value, way, what| link["stats64"][way][what].as_u64().unwrap_or_default();
        let mut devices = Vec::new();
        for link in links.as_array().into_iter().flatten() {
            let [rx, tx] = ["rx", "tx"].map(|way| count(link, way, "dropped") + count(link, way, "errors"));
            if rx + tx > 0 {
                devices.push(format!("{}: the kernel dropped {rx} received, {tx} to be sent", link["ifname"]));
            }
        }
        devices
    }

    pub fn namespaces(&self) -> Vec<String> {
        let output = Command::new("ip").args(["netns", "list"]).output().unwrap();
        let mine = format!("srv6d-{}-", self.name);
        text(&output.stdout).lines().filter(|line| line.starts_with(&mine)).map(str::to_owned).collect()
    }

    /// Returns the names of the nodes that have a namespace.
    pub fn nodes(&self) -> Vec<String> {
        let name = |line: &String| line.split(' ').next()?.rsplit('-').next().map(str::to_owned);
        self.namespaces().iter().filter_map(name).collect()
    }

    /// Returns the process of a node's srv6d.
    pub fn process_of(&self, node: &str) -> i32 {
        let state = fs::read_to_string(Path::new("/run/srv6d-lab").join(&self.name).join("state.json")).unwrap();
        let state: serde_json::Value = serde_json::from_str(&state).unwrap();
        let daemons = state.get("daemons").unwrap().as_array().unwrap();
        let daemon = daemons.iter().find(|daemon| daemon.get("node").unwrap() == node).unwrap();
        i32::try_from(daemon.get("pid").unwrap().as_i64().unwrap()).unwrap()
    }

    pub fn processes(&self) -> Vec<i32> {
        let state = fs::read_to_string(Path::new("/run/srv6d-lab").join(&self.name).join("state.json")).unwrap();
        let state: serde_json::Value = serde_json::from_str(&state).unwrap();
        let daemons = state.get("daemons").unwrap().as_array().unwrap();
        daemons.iter().map(|daemon| i32::try_from(daemon.get("pid").unwrap().as_i64().unwrap()).unwrap()).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = srv6d(&["lab", "down", "--name", &self.name]);
    }
}

pub fn socket_address(address: &str) -> String {
    if address.contains(':') { format!("[{address}]:0") } else { format!("{address}:0") }
}

/// Waits for a state, with a deadline.
pub fn eventually(what: &str, mut state: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !state() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns whether a process has ended with all its threads, any of which would keep its files and ports. A zombie has
/// ended.
pub fn gone(pid: i32) -> bool {
    Process::of(pid.cast_unsigned()).is_none_or(|process| !process.alive())
}

/// Checks on every srv6d node that each packet was counted exactly once.
pub fn balanced(lab: &Lab, nodes: &[&str]) {
    for node in nodes {
        let counters = || serde_json::from_str(&lab.must(node, &[SRV6D, "show", "counters", "--json"])).unwrap();
        eventually(&format!("{node} is balanced"), || counters::add_up(&counters()));
    }
}
