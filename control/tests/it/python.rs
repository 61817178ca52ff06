//! Tests of the Python package: its own tests, its wheel in a clean environment, and ranks of a job in the hosts of a lab.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use serde_json::Value;
use support::lab::{Lab, PATIENCE, SRV6D, eventually, text};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python");
const FABRIC: &str = include_str!("../../lab/src/fabric.toml");
/// IPv6 addresses of the lab's hosts, by rank.
const ADDRESSES: [&str; 3] = ["fcbb:0:800::2", "fcbb:0:800:1::2", "fcbb:0:800:2::2"];
/// What every host's configuration gets in addition.
const JOBS: &str = "\n[jobs]\nallowed_prefixes = [\"fcbb:0:800::/40\", \"10.200.0.0/16\"]\ngrace = \"1s\"\n";
/// Oldest Python that the package supports.
const OLDEST: &str = "import sys; sys.exit(sys.version_info < (3, 9))";

/// Returns the Python of the tests: `SRV6D_TEST_PYTHON`, for one that has `PyTorch`, or else `python3`.
fn python() -> String {
    std::env::var("SRV6D_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// Returns whether the Python of the tests runs a program without an error.
fn runs(program: &str) -> bool {
    let run = Command::new(python()).args(["-c", program]).env("PYTHONPATH", sources()).output();
    run.is_ok_and(|output| output.status.success())
}

fn sources() -> String {
    format!("{PACKAGE}/src")
}

fn said(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(what: &str) -> Self {
        let path = std::env::temp_dir().join(format!("srv6d-{what}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_package_passes_its_own_tests() {
    if !runs(OLDEST) {
        return println!("SKIPPED: there is no python3 of version 3.9 or later");
    }
    let output = Command::new("timeout")
        .args(["300", &python(), "-B", "-m", "unittest", "discover", "--start-directory", "tests"])
        .current_dir(PACKAGE)
        .env("PYTHONPATH", sources())
        .output()
        .unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    let count = said.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse::<u32>().ok());
    assert!(count.is_some_and(|count| count >= 90), "tests are missing: {said}");
}

#[test]
fn the_wheel_goes_into_a_clean_environment_and_is_used() {
    if !runs(&format!("import venv, ensurepip; {OLDEST}")) {
        return println!("SKIPPED: there is no python3 of version 3.9 or later with venv");
    }
    let scratch = Scratch::new("wheel");
    let made = Command::new(format!("{REPOSITORY}/scripts/make-wheel")).arg(&scratch.0).output().unwrap();
    if said(&made).contains("No matching distribution found for setuptools") {
        return println!("SKIPPED: setuptools cannot be had from PyPI");
    }
    assert!(made.status.success(), "{}", said(&made));
    let wheel = text(&made.stdout).lines().last().unwrap().to_owned();
    assert!(wheel.ends_with(concat!("srv6d-", env!("CARGO_PKG_VERSION"), "-py3-none-any.whl")), "{wheel}");

    let clean = scratch.0.join("clean");
    let must = |program: &Path, arguments: &[&str]| {
        let output = Command::new(program)
            .args(arguments)
            .current_dir(&scratch.0)
            .env_remove("PYTHONPATH")
            .env("SRV6D_SOCKET", "/nowhere/srv6d.sock")
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        text(&output.stdout)
    };
    must(Path::new(&python()), &["-m", "venv", clean.to_str().unwrap()]);
    must(&clean.join("bin/pip"), &["install", "--quiet", "--no-index", &wheel]);
    let used = "import importlib.metadata as m, importlib.resources as r, srv6d, srv6d.client as c, srv6d.torch as t\n\
                print(srv6d.__version__, r.files('srv6d').joinpath('py.typed').is_file())\n\
                entry, = [e for d in m.distributions() if d.name == 'srv6d' for e in d.entry_points]\n\
                print(entry.group, entry.load() is t.autoload)\n\
                try: c.Client().ask('show', topic='ports')\n\
                except c.NotRunning as why: print(why)\n\
                try: t.init_process_group('gloo')\n\
                except ImportError as why: print(why)\n";
    let said = must(&clean.join("bin/python"), &["-c", used]);
    let expected = [
        concat!(env!("CARGO_PKG_VERSION"), " True"),
        "torch.backends True",
        "srv6d is not running: nothing answers on /nowhere/srv6d.sock",
        "srv6d.torch needs PyTorch",
    ];
    for (line, expected) in said.lines().zip(expected) {
        assert!(line.starts_with(expected), "{line:?} is not {expected:?}");
    }
    assert_eq!(said.lines().count(), expected.len(), "{said}");
}

/// A rank that runs in a host of a lab.
struct Rank {
    process: Child,
    /// It goes on when this is closed.
    input: Option<ChildStdin>,
    output: Receiver<String>,
}

impl Rank {
    fn start(lab: &Lab, rank: usize, how: &[&str], environ: &[(&str, &str)]) -> Self {
        let script = format!("{PACKAGE}/tests/rank.py");
        let mut process = Command::new(SRV6D)
            .args(["lab", "exec", "--name", &lab.name, &format!("host0{rank}"), "--", "env"])
            // What the lab itself sets, it sets before this.
            .args(environ.iter().map(|(name, value)| format!("{name}={value}")))
            .args([&python(), "-B", &script])
            .args(how)
            .env("PYTHONPATH", sources())
            .envs([
                ("WORLD_SIZE", "3"),
                ("MASTER_ADDR", ADDRESSES[0]),
                ("MASTER_PORT", "29500"),
                ("SRV6D_TIMEOUT", "30s"),
            ])
            .envs([("RANK", rank.to_string()), ("SRV6D_HOST", format!("host0{rank}")), ("RING", ADDRESSES.join(","))])
            // Interface and addresses follow from the way to MASTER_ADDR.
            .env("SRV6D_JOB", "job")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, output) = mpsc::channel();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { input: process.stdin.take(), process, output }
    }

    /// Returns what it prints once it has the sum of all ranks.
    fn report(&self) -> Value {
        let line = self.output.recv_timeout(2 * PATIENCE).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Lets it end, and waits for that.
    fn end(mut self) {
        drop(self.input.take());
        assert!(self.process.wait().unwrap().success());
    }

    /// Kills the rank whose report this is.
    fn kill(mut self, report: &Value) {
        assert!(Command::new("kill").args(["-9", &report["pid"].to_string()]).status().unwrap().success());
        self.process.wait().unwrap();
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Brings up the lab, whose hosts take part in jobs.
fn lab(test: &str) -> Lab {
    let lab = Lab::up(test, FABRIC);
    for rank in 0..ADDRESSES.len() {
        let host = format!("host0{rank}");
        let file = Path::new("/run/srv6d-lab").join(&lab.name).join(&host).join("srv6d.toml");
        fs::OpenOptions::new().append(true).open(file).unwrap().write_all(JOBS.as_bytes()).unwrap();
        lab.must(&host, &[SRV6D, "reload"]);
    }
    lab
}

/// Returns what a host shows of the job. Empty: it is not there.
fn shown(lab: &Lab, rank: usize) -> Vec<Value> {
    let output = lab.exec(&format!("host0{rank}"), &[SRV6D, "job", "show", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_str(&text(&output.stdout)).unwrap()
}

/// Returns how many packets a host has sent on those paths of the job whose prefixes begin with `family`.
fn carried(lab: &Lab, rank: usize, report: &Value, family: &str) -> u64 {
    let rows: Value =
        serde_json::from_str(&lab.must(&format!("host0{rank}"), &[SRV6D, "show", "paths", "--json"])).unwrap();
    let prefixes: Vec<&Value> = report["paths"].as_array().unwrap().iter().map(|path| &path["prefix"]).collect();
    let is_meant =
        |row: &&Value| prefixes.contains(&&row["prefix"]) && row["prefix"].as_str().unwrap().starts_with(family);
    let own = rows.as_array().unwrap().iter().filter(is_meant);
    own.map(|row| row["packets"].as_u64().unwrap()).sum()
}

/// Runs three ranks, and checks that their traffic takes the paths of the job as long as it lasts. `family` is what the addresses
/// that they send to begin with.
fn ranks_take_the_paths_of_their_job(lab: &Lab, family: &str, how: &[&str], environ: &[(&str, &str)]) {
    let ranks: Vec<Rank> = (0..3).map(|rank| Rank::start(lab, rank, how, environ)).collect();
    for (rank, running) in ranks.iter().enumerate() {
        let report = running.report();
        assert_eq!((&report["sum"], &report["complete"]), (&6.into(), &true.into()), "{report}");
        assert_eq!(report["paths"].as_array().unwrap().len(), 4, "two peers with two addresses each: {report}");
        assert!(carried(lab, rank, &report, family) > 0, "rank {rank} has sent past its paths: {report}");
        assert_eq!(shown(lab, rank)[0]["state"], "installed");
    }
    ranks.into_iter().for_each(Rank::end);
    for rank in 0..3 {
        assert_eq!(shown(lab, rank), Vec::<Value>::new(), "the job has ended at host0{rank}");
    }
}

#[test]
#[ignore = "needs root"]
fn ranks_of_a_job_take_its_paths_and_go_on_without_a_daemon() {
    if !runs(OLDEST) {
        return println!("SKIPPED: there is no python3 of version 3.9 or later");
    }
    let lab = lab("ranks");
    ranks_take_the_paths_of_their_job(&lab, "fcbb:", &[], &[]);

    // A rank that is killed: its daemon sees that, and its paths go after the time of grace. The others stay.
    let mut ranks: Vec<Rank> = (0..3).map(|rank| Rank::start(&lab, rank, &[], &[])).collect();
    let reports: Vec<Value> = ranks.iter().map(Rank::report).collect();
    assert!(reports.iter().all(|report| report["complete"] == true), "{reports:?}");
    ranks.remove(1).kill(&reports[1]);
    eventually("the paths of a killed rank go", || shown(&lab, 1).is_empty());
    assert_eq!(shown(&lab, 2)[0]["state"], "installed");
    ranks.into_iter().for_each(Rank::end);

    // No daemon at rank 0: the sum is right all the same, and every rank says why it has no paths.
    let environ = [("SRV6D_SOCKET", "/nowhere/srv6d.sock")];
    let ranks: Vec<Rank> =
        (0..3).map(|rank| Rank::start(&lab, rank, &[], if rank == 0 { &environ } else { &[] })).collect();
    for running in &ranks {
        let report = running.report();
        assert_eq!((&report["sum"], &report["paths"]), (&6.into(), &Value::Array(Vec::new())), "{report}");
        assert!(report["why"].as_str().unwrap().contains("nothing answers on /nowhere/srv6d.sock"), "{report}");
    }
    ranks.into_iter().for_each(Rank::end);
}

#[test]
#[ignore = "needs root"]
fn gloo_ranks_of_a_job_take_its_paths() {
    if !runs("import torch.distributed as d; raise SystemExit(not d.is_available() or not d.is_gloo_available())") {
        let python = python();
        return println!("SKIPPED: {python} has no PyTorch with gloo; SRV6D_TEST_PYTHON names another one");
    }
    let lab = lab("gloo");
    // Of an interface with both families gloo takes the IPv4 address.
    ranks_take_the_paths_of_their_job(&lab, "10.200.", &["torch"], &[]);
    let is_hooked =
        "import torch, re; raise SystemExit([int(n) for n in re.findall(r'\\d+', torch.__version__)[:2]] < [2, 5])";
    if !runs(is_hooked) {
        return println!("SKIPPED: the hook TORCH_SRV6D=1, because this PyTorch loads no entry points before 2.5");
    }
    // The entry point is found beside the package, as pip writes it.
    let scratch = Scratch::new("hook");
    let information = scratch.0.join("srv6d-0.dist-info");
    fs::create_dir(&information).unwrap();
    fs::write(information.join("METADATA"), "Metadata-Version: 2.1\nName: srv6d\nVersion: 0\n").unwrap();
    fs::write(information.join("entry_points.txt"), "[torch.backends]\nsrv6d = srv6d.torch:autoload\n").unwrap();
    let path = format!("{}:{}", sources(), scratch.0.display());
    ranks_take_the_paths_of_their_job(&lab, "10.200.", &["hook"], &[("PYTHONPATH", &path), ("TORCH_SRV6D", "1")]);
}
