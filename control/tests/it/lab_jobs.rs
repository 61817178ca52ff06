//! A job in a lab that is placed again: a link that is drained and one that is lost, with every packet counted.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Output};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use srv6d_lab::Topology;

use crate::support::lab::{Lab, SRV6D, WINDOW, eventually, socket_address, srv6d, text};

const FABRIC: &str = include_str!("../../lab/src/fabric.toml");
const HOSTS: [&str; 3] = ["host00", "host01", "host02"];
const ADDRESSES: [&str; 3] = ["fcbb:0:800::2", "fcbb:0:800:1::2", "fcbb:0:800:2::2"];

/// A lab whose hosts are the ranks of a job, and all send to all.
struct Job {
    lab: Lab,
    directory: PathBuf,
}

impl Job {
    fn up() -> Self {
        let lab = Lab::up("jobs", FABRIC);
        let directory = std::env::temp_dir().join(format!("srv6d-job-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let job = Self { lab, directory };
        let known = job.run_file("controller/topology.json");
        fs::copy(known, job.file("fabric.json")).unwrap();
        let mut text = "id = \"llm\"\n".to_owned();
        for (rank, (host, address)) in HOSTS.iter().zip(ADDRESSES).enumerate() {
            let member = format!("rank = {rank}\nhost = \"{host}\"\naddresses = [\"{address}\"]\n");
            text += "[[members]]\n";
            text += &member;
            let jobs = format!(
                "\n[jobs]\nallowed_prefixes = [\"fcbb:0:800::/40\"]\ntopology = \"{}\"\ntopology_interval = \"1s\"\n",
                job.named("fabric.json")
            );
            let file = job.run_file(&format!("{host}/srv6d.toml"));
            fs::OpenOptions::new().append(true).open(file).unwrap().write_all(jobs.as_bytes()).unwrap();
            job.lab.must(host, &[SRV6D, "reload"]);
        }
        fs::write(job.file("job.toml"), text).unwrap();
        job
    }

    fn run_file(&self, name: &str) -> PathBuf {
        Path::new("/run/srv6d-lab").join(&self.lab.name).join(name)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn named(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    fn job(&self, host: &str, words: &str) -> Output {
        let words: Vec<&str> = words.split(' ').collect();
        self.lab.exec(host, &[&[SRV6D, "job"], words.as_slice()].concat())
    }

    /// Runs a command of `srv6d job` that must succeed, and returns what it prints.
    fn must(&self, host: &str, words: &str) -> String {
        let output = self.job(host, words);
        assert!(output.status.success(), "{host}: job {words}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn shown(&self, host: &str) -> Value {
        serde_json::from_str::<Value>(&self.must(host, "show llm --json")).unwrap()[0].clone()
    }

    /// Lets every host join what is placed, or prepare it.
    fn join(&self, host: &str, more: &str) -> Value {
        // A job that was placed again is in the file of its placement.
        let job = if more.is_empty() { format!("{} ", self.named("job.toml")) } else { String::new() };
        let files = format!("{job}--placed {}", self.named("placed.json"));
        let views: Value =
            serde_json::from_str(&self.must(host, &format!("join {files} --host {host} --json{more}"))).unwrap();
        views[0].clone()
    }

    /// Changes the topology that jobs are placed on: the links between a leaf and a spine are no longer up.
    fn take_out(&self, leaf: &str, spine: &str) {
        let mut fabric: Value = serde_json::from_str(&fs::read_to_string(self.file("fabric.json")).unwrap()).unwrap();
        let mut count = 0;
        for edge in fabric["edges"].as_array_mut().unwrap() {
            let ends = [&edge["_from"], &edge["_to"]].map(|end| end.as_str().unwrap().rsplit('/').next().unwrap());
            if ends == [leaf, spine] || ends == [spine, leaf] {
                edge["up"] = json!(false);
                count += 1;
            }
        }
        assert_eq!(count, 2, "{leaf} {spine}");
        fs::write(self.file("fabric.new"), fabric.to_string()).unwrap();
        fs::rename(self.file("fabric.new"), self.file("fabric.json")).unwrap();
    }

    /// Places the job again, and returns what has changed.
    fn replace(&self) -> Value {
        let again = self.must("host00", "replace llm");
        fs::write(self.file("placed.json"), &again).unwrap();
        serde_json::from_str::<Value>(&again).unwrap()["placement"]["replaces"].clone()
    }

    fn commit(&self, generation: u64) {
        for host in HOSTS {
            self.must(host, &format!("commit llm --generation {generation}"));
        }
        for host in HOSTS {
            self.must(host, "wait llm --timeout 30s");
            let view = self.shown(host);
            assert_eq!((&view["generation"], &view["prepared"]), (&json!(generation), &Value::Null), "{view:#}");
        }
    }

    /// Returns the spine that the path from host00 to host01 crosses.
    fn spine(&self) -> String {
        let view = self.shown("host00");
        let path = view["paths"].as_array().unwrap().iter().find(|path| path["to"] == 1).unwrap();
        path["via"][1].as_str().unwrap().to_owned()
    }

    /// Returns how many packets a spine has served.
    fn crossed(&self, spine: &str) -> u64 {
        let number = spine.strip_prefix("spine0").unwrap();
        self.lab.sid_packets(spine, &format!("fcbb:0:100{number}::/48"))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Datagrams from one host to another, until it is ended.
struct Stream {
    sender: Child,
    receiver: Child,
    said: BufReader<ChildStdout>,
}

impl Stream {
    fn start(job: &Job, from: usize, to: usize) -> Self {
        let mut receiver = job.lab.spawn(HOSTS[to], &["udp-receive", &socket_address(ADDRESSES[to])]);
        let mut said = BufReader::new(receiver.stdout.take().unwrap());
        let listening = line(&mut said)["listening"].as_str().unwrap().to_owned();
        let words = ["udp-send", &listening, "1000", "600", "1000", "--window", &WINDOW.to_string()];
        Self { sender: job.lab.spawn(HOSTS[from], &words), receiver, said }
    }

    /// Ends it, and checks that nothing was lost.
    fn end(mut self) -> u64 {
        kill(Pid::from_raw(self.sender.id().cast_signed()), Signal::SIGTERM).unwrap();
        self.sender.wait().unwrap();
        let report = line(&mut self.said);
        self.receiver.wait().unwrap();
        assert_eq!((&report["lost"], &report["duplicated"]), (&json!(0), &json!(0)), "{report}");
        report["received"].as_u64().unwrap()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        for process in [&mut self.sender, &mut self.receiver] {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn line(said: &mut BufReader<ChildStdout>) -> Value {
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

#[test]
#[ignore = "needs root"]
fn a_job_that_is_placed_again_changes_over_as_one_and_loses_nothing() {
    let job = Job::up();
    fs::write(job.file("placed.json"), job.must("host00", &format!("place {}", job.named("job.toml")))).unwrap();
    for host in HOSTS {
        assert_eq!(job.join(host, "")["generation"], 1);
        job.must(host, "wait llm --timeout 30s");
    }
    assert!(text(&job.job("host01", "replace llm").stderr).contains("ask the daemon that placed it"));
    let before = job.replace();
    assert_eq!((&before["moved"], &before["lost"]), (&json!(0), &json!(0)), "nothing has changed: {before}");

    // A link is drained: it still forwards, and the topology no longer has it.
    let old = job.spine();
    let drained = Stream::start(&job, 0, 1);
    job.take_out("leaf00", &old);
    eventually("the job is stale", || job.shown("host00")["stale"].is_string());
    let view = job.shown("host00");
    let why = view["stale"].as_str().unwrap();
    assert!(why.contains(&format!("leaf00 -> {old}")) && why.contains("srv6d job replace llm"), "{why}");
    let replaces = job.replace();
    assert!(replaces["lost"].as_u64() > Some(0) && replaces["moved"].as_u64() < Some(6), "{replaces}");
    assert_eq!(replaces["generation"], 1);
    // One host is missing, so nothing changes over.
    for host in ["host00", "host01"] {
        let view = job.join(host, " --prepare");
        assert_eq!(view["prepared"]["generation"], 2, "{view:#}");
        assert_eq!((&view["generation"], &view["prepared"]["missing"]), (&json!(1), &json!([])), "{view:#}");
    }
    let refused = text(&job.job("host02", "commit llm --generation 2").stderr);
    assert!(refused.contains("not prepared for rank 2"), "{refused}");
    assert_eq!((job.spine(), job.shown("host00")["state"].as_str()), (old.clone(), Some("installed")));
    job.join("host02", " --prepare");
    job.commit(2);
    let new = job.spine();
    assert_ne!(new, old);
    assert!(drained.end() > 0);
    eventually("the job fits", || job.shown("host00")["stale"].is_null());
    let counted = [job.crossed(&old), job.crossed(&new)];
    let received = Stream::start(&job, 0, 1);
    eventually("packets on the new path", || job.crossed(&new) > counted[1] + 100);
    received.end();
    assert!(job.crossed(&old) < counted[0] + 20, "packets still cross {old}");

    // A link is lost: the flows that do not take it lose nothing, neither then nor while the job changes over.
    let spared = Stream::start(&job, 1, 2);
    let port = port("leaf00", &new);
    job.lab.must("leaf00", &["ip", "link", "set", &port, "down"]);
    job.take_out("leaf00", &new);
    let replaces = job.replace();
    assert!(replaces["lost"].as_u64() > Some(0), "{replaces}");
    for host in HOSTS {
        job.join(host, " --prepare");
    }
    job.commit(3);
    let after = Stream::start(&job, 0, 1);
    let last = job.spine();
    let counted = job.crossed(&last);
    eventually("packets on the last path", || job.crossed(&last) > counted + 100);
    assert!(after.end() > 0);
    assert!(spared.end() > 0);

    // What is prepared and abandoned changes nothing.
    job.replace();
    assert_eq!(job.join("host00", " --prepare")["prepared"]["generation"], 4);
    job.must("host00", "abandon llm");
    assert!(text(&job.job("host00", "commit llm --generation 4").stderr).contains("not prepared"));
    for host in HOSTS {
        assert_eq!(job.must(host, "end llm --json").trim(), "[]");
    }
}

/// Returns the port of a node that leads to another one.
fn port(node: &str, to: &str) -> String {
    let topology = Topology::parse(FABRIC, "fabric").unwrap();
    let ports = topology.ports(node);
    ports.iter().find(|port| port.peer.node == to).unwrap().own.port.clone()
}

#[test]
#[ignore = "needs root"]
fn the_same_all_reduce_runs_with_paths_chosen_in_every_way() {
    let picture = std::env::temp_dir().join(format!("srv6d-job-{}.svg", std::process::id()));
    let words = ["lab", "job", "--rounds", "1", "--json", "--svg", picture.to_str().unwrap()];
    let output = srv6d(&words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let ways: Vec<&str> = rows.iter().map(|row| row["way"].as_str().unwrap()).collect();
    let expected = ["ECMP", "shortest path", "/load, pair by pair", "srv6d job", "srv6d job, a link lost"];
    assert_eq!(ways, [expected.as_slice(), &["two jobs, ECMP", "two jobs, srv6d job"]].concat());
    for row in &rows {
        let steps = if row["way"].as_str().unwrap().starts_with("two") { 32 } else { 16 };
        assert_eq!(row["steps"], steps, "{row}");
    }
    assert!(rows[4]["moved"].as_u64() > Some(0), "{}", rows[4]);
    let drawn = fs::read_to_string(&picture).unwrap();
    fs::remove_file(&picture).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.contains("two jobs, ECMP") && drawn.contains("--c0:"), "{drawn}");
}
