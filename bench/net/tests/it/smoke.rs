//! Runs the whole bench in the shortest possible time: every DUT forwards, and the report says so. Figures are not
//! checked.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use srv6d_bench_net::layout::{Layout, SinkPlacement};
use srv6d_bench_net::results::{Results, Row, Trial};
use srv6d_bench_net::{affinity, dut, neighbors};

/// Returns the srv6d beside the test programs, which is there if the whole workspace was built. Otherwise prints that
/// it is missing.
fn srv6d() -> Option<PathBuf> {
    let file = PathBuf::from(env!("CARGO_BIN_EXE_bench-net")).parent()?.join("srv6d");
    if !file.is_file() {
        println!("SKIPPED: srv6d is not built: cargo build --package srv6d");
        return None;
    }
    Some(file)
}

/// Returns whether there are two cores. Otherwise prints that there are not.
fn has_two_cores() -> bool {
    let has = affinity::available().len() >= 2;
    if !has {
        println!("SKIPPED: generator and DUT need a core each, and there is one");
    }
    has
}

/// Runs `bench-net` to its end, which must be a success.
fn ran(arguments: &[&str], srv6d: &Path, out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench-net"));
    let run = command.args(arguments).arg("--srv6d").arg(srv6d).arg("--out").arg(out).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    run
}

#[test]
#[ignore = "needs root"]
fn every_row_is_measured_and_reported() {
    if !has_two_cores() {
        return;
    }
    let Some(srv6d) = srv6d() else { return };
    let out = std::env::temp_dir().join(format!("srv6d-bench-net-{}", std::process::id()));
    let run = ran(&["--smoke"], &srv6d, &out);
    let said = String::from_utf8_lossy(&run.stderr);
    let steps: Vec<&str> = said.lines().filter(|line| line.contains(" to go] ")).collect();
    let nothing_left = steps.iter().position(|line| line.contains("about    0 s to go"));
    assert_eq!(nothing_left, steps.len().checked_sub(1), "only the last step leaves nothing to do: {said}");
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let results: Results = serde_json::from_str(&read("results.json")).unwrap();
    let (markdown, html) = (read("report.md"), read("report.html"));
    std::fs::remove_dir_all(&out).unwrap();
    assert!(markdown.contains("* figures: mean nothing: --smoke"), "{markdown}");
    for dut in dut::ALL {
        let row = results.floods.iter().find(|row| row.dut == dut.name).unwrap_or_else(|| panic!("no {}", dut.name));
        // The DUT forwards: ten frames have passed before. In a trial as short as this, on a busy machine, the worker
        // or the generator may not get its core.
        assert!(!row.trials.is_empty() && row.trials.iter().all(|trial| !trial.cores.is_empty()), "{row:?}");
        let has_worker = |trial: &Trial| trial.cores.iter().any(|core| core.role.contains("worker"));
        assert!(row.trials.iter().all(|trial| has_worker(trial) == dut.has_worker()), "{row:?}");
        assert!(markdown.contains(dut.name) && html.contains(dut.name), "{}", dut.name);
    }
    let cores = affinity::available();
    floods_are_in_every_placement_at_every_size(&results, &cores);
    workers_are_as_many_as_there_are_cores_for(&results, &cores);
    rates_were_searched_and_latencies_taken_at_parts_of_them(&results, &cores);
    let known = |why: &String| {
        why.contains(" cores and there are ") || why.contains("no rate was found that it is measured at parts of")
    };
    assert!(results.left_out.iter().all(known), "{:?}", results.left_out);
    assert!(html.contains("<svg"));
    for name in ["srv6d-forward", "srv6d-encap.red", "srv6d-uN", "srv6d-uDT6"] {
        let row = results.turns.iter().find(|row| row.dut == name).unwrap_or_else(|| panic!("{name} took no turns"));
        assert_eq!(row.pairs.len(), 2, "{row:?}");
    }
    assert!(markdown.contains("No promise is judged") && !markdown.contains("| promise |"), "{markdown}");
    assert!(!String::from_utf8_lossy(&run.stdout).contains("promise"), "{:?}", run.stdout);
}

/// The rows that are measured completely.
const THOROUGH: [&str; 2] = ["linux-uN", "srv6d-uN"];

/// Returns whether frames were sent, and none was received in any row. In a trial as short as this, on a busy machine, a
/// thread may not get its core.
fn carries_nothing(rows: &[&Row]) -> bool {
    let trials = || rows.iter().flat_map(|row| &row.trials);
    let is_quiet = |trial: &Trial| trial.counted.sent > 0 && !trial.counted.is_disturbed();
    trials().any(is_quiet) && trials().all(|trial| trial.counted.received == 0)
}

fn floods_are_in_every_placement_at_every_size(results: &Results, cores: &[usize]) {
    for placement in [SinkPlacement::OneCore, SinkPlacement::SinkOnDutCore, SinkPlacement::SinkOnOwnCore] {
        if let Err(why) = Layout::of(placement, cores) {
            assert!(results.left_out.contains(&why.0), "{:?}", results.left_out);
            continue;
        }
        for size in ["64", "IMIX", "9000"] {
            let rows: Vec<&Row> = THOROUGH.iter().filter_map(|name| results.flood(placement, name, size)).collect();
            assert_eq!(rows.len(), 2, "{placement:?} {size}: {:?}", results.left_out);
            assert!(!carries_nothing(&rows), "{rows:?}");
        }
    }
}

fn workers_are_as_many_as_there_are_cores_for(results: &Results, cores: &[usize]) {
    for workers in [1, 2] {
        let rows: Vec<&Row> = results.workers.iter().filter(|row| row.workers == workers).collect();
        if let Err(why) = Layout::queues(workers, cores) {
            assert!(rows.is_empty() && results.left_out.contains(&why.0), "{:?}", results.left_out);
            continue;
        }
        assert_eq!(rows.iter().map(|row| row.dut.as_str()).collect::<Vec<_>>(), THOROUGH);
        assert!(!carries_nothing(&rows), "{rows:?}");
    }
}

fn rates_were_searched_and_latencies_taken_at_parts_of_them(results: &Results, cores: &[usize]) {
    let is_wide = Layout::of(SinkPlacement::SinkOnDutCore, cores).is_ok();
    let placement = if is_wide { SinkPlacement::SinkOnDutCore } else { SinkPlacement::OneCore };
    for name in THOROUGH {
        let searches: Vec<_> = results.searches.iter().filter(|row| row.dut == name).collect();
        let [pdr, ndr] = searches.as_slice() else { panic!("{name}: {searches:?}") };
        assert_eq!(
            [pdr, ndr].map(|row| (row.placement, row.accepted_loss > 0.0)),
            [(placement, true), (placement, false)]
        );
        assert!(pdr.found.trials > 0 && [pdr, ndr].iter().all(|row| row.found.rate.is_none_or(|rate| rate > 0.0)));
        let places =
            if pdr.found.rate.or(ndr.found.rate).is_some() { vec![placement, SinkPlacement::Inline] } else { vec![] };
        let expected: Vec<_> = places.iter().flat_map(|&place| [10, 50, 90].map(|load| (place, load))).collect();
        let latencies: Vec<_> = results.latencies.iter().filter(|row| row.dut == name).collect();
        assert_eq!(latencies.iter().map(|row| (row.placement, row.load)).collect::<Vec<_>>(), expected);
        let timed: Vec<_> = latencies.iter().filter_map(|row| row.latency.as_ref()).collect();
        assert!(!timed.is_empty() || expected.is_empty(), "{latencies:?}");
        assert!(timed.iter().all(|latency| latency.p50 > 0.0 && latency.samples > 0), "{timed:?}");
        let said = format!("latency of {name} at {}, {}: no rate was found", pdr.size, placement.name());
        assert_eq!(
            results.left_out.iter().any(|why| why.starts_with(&said)),
            expected.is_empty(),
            "{:?}",
            results.left_out
        );
    }
}

#[test]
#[ignore = "needs root"]
fn first_packets_to_neighbors_arrive_in_every_situation() {
    let Some(srv6d) = srv6d() else { return };
    let out = std::env::temp_dir().join(format!("srv6d-bench-net-neighbors-{}", std::process::id()));
    ran(&["neighbors", "--rounds", "1", "--probes", "2", "--routes", "100"], &srv6d, &out);
    let text = std::fs::read_to_string(out.join("neighbors/results.json")).unwrap();
    std::fs::remove_dir_all(&out).unwrap();
    let results: neighbors::Results = serde_json::from_str(&text).unwrap();
    let situations: Vec<_> = results.first_packets.iter().map(|waits| waits.situation).collect();
    assert_eq!(situations, neighbors::Situation::ALL);
    for waits in &results.first_packets {
        assert_eq!((waits.kernel.len(), waits.srv6d.len()), (2, 2), "{waits:?}");
        // In a subnet that is scanned, the kernel may give a new host no place in its table.
        let is_answered = |wait: &f64| *wait < 5000.0;
        assert!(waits.srv6d.iter().all(is_answered), "{waits:?}");
    }
}

/// Ctrl-C during a run: the results so far and a report that says so are there, and no namespace is left.
#[test]
#[ignore = "needs root"]
fn an_interrupted_run_keeps_what_it_has_and_cleans_up() {
    if !has_two_cores() {
        return;
    }
    let out = std::env::temp_dir().join(format!("srv6d-bench-net-cut-{}", std::process::id()));
    let mut run = bench(&out)
        .args(["--smoke", "--rounds", "100", "--dut", "xdp-redirect", "--placement", "one-core", "--no-workers"])
        // No srv6d is started for this row.
        .args(["--srv6d", env!("CARGO_BIN_EXE_bench-net")])
        .process_group(0)
        .spawn()
        .unwrap();
    let kept =
        || Some(serde_json::from_str::<Results>(&std::fs::read_to_string(out.join("results.json")).ok()?).unwrap());
    until("a row is kept while it runs", || kept().is_some_and(|results| !results.floods.is_empty()));
    // Like a terminal, sends the signal to the whole process group.
    let group = nix::unistd::Pid::from_raw(run.id().cast_signed());
    nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGINT).unwrap();
    let status = run.wait().unwrap();
    let results = kept().unwrap();
    let markdown = std::fs::read_to_string(out.join("report.md")).unwrap();
    std::fs::remove_dir_all(&out).unwrap();
    assert_eq!(status.code(), Some(1));
    assert_eq!(results.cut_off.as_deref(), Some("interrupted"));
    assert_eq!(results.left_out, Vec::<String>::new(), "this machine lacks nothing");
    assert!(results.floods.iter().flat_map(|row| &row.trials).count() < 100, "{results:?}");
    assert!(markdown.contains("* cut off: interrupted"), "{markdown}");
    assert_eq!(namespaces_of(run.id()), Vec::<String>::new());
}

/// A run is killed: the next run removes its namespaces, and srv6d does not outlive the bench.
#[test]
#[ignore = "needs root"]
fn what_a_killed_run_leaves_goes_with_the_next() {
    if !has_two_cores() {
        return;
    }
    let Some(srv6d) = srv6d() else { return };
    let out = std::env::temp_dir().join(format!("srv6d-bench-net-killed-{}", std::process::id()));
    let measure = |rounds| {
        let mut command = bench(&out);
        command
            .args(["--smoke", "--no-search", "--no-workers", "--dut", "srv6d-uN", "--rounds", rounds, "--srv6d"])
            .arg(&srv6d);
        command.spawn().unwrap()
    };
    let mut run = measure("100");
    let dut = || namespaces_of(run.id()).into_iter().find(|name| name.ends_with("-dut"));
    let processes = |name: &str| {
        let pids = Command::new("ip").args(["netns", "pids", name]).output().unwrap().stdout;
        String::from_utf8_lossy(&pids).split_whitespace().count()
    };
    until("srv6d runs", || dut().is_some_and(|name| processes(&name) > 0));
    kill(&run, nix::sys::signal::Signal::SIGKILL);
    run.wait().unwrap();
    let results =
        || serde_json::from_str::<Results>(&std::fs::read_to_string(out.join("results.json")).unwrap()).unwrap();
    assert!(results().cut_off.is_some_and(|why| why.contains("killed")));
    let left = namespaces_of(run.id());
    assert!(!left.is_empty());
    for name in &left {
        until("srv6d ends with the bench", || processes(name) == 0);
    }
    assert!(measure("1").wait().unwrap().success());
    assert_eq!(results().cut_off, None);
    assert_eq!(namespaces_of(run.id()), Vec::<String>::new());
    std::fs::remove_dir_all(&out).unwrap();
}

fn bench(out: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench-net"));
    command.arg("--out").arg(out).stderr(std::process::Stdio::null());
    command
}

fn kill(run: &std::process::Child, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(run.id().cast_signed()), signal).unwrap();
}

fn namespaces_of(process: u32) -> Vec<String> {
    namespaces("srv6d-bn", process)
}

fn namespaces(prefix: &str, process: u32) -> Vec<String> {
    let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&format!("{prefix}{process}-"))).collect()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < deadline, "in a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_row_that_does_not_exist_is_refused_with_the_ones_that_do() {
    let run = Command::new(env!("CARGO_BIN_EXE_bench-net")).args(["--dut", "vpp"]).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{said}");
    assert!(said.contains("no such row") && said.contains("srv6d-encap.red"), "{said}");
}

#[test]
#[ignore = "needs root"]
fn a_program_that_is_not_srv6d_is_refused_before_anything_is_measured() {
    for words in [&["--smoke"][..], &["host"]] {
        let run =
            Command::new(env!("CARGO_BIN_EXE_bench-net")).args(words).args(["--srv6d", "/bin/true"]).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{said}");
        assert!(said.contains("/bin/true is not srv6d"), "{said}");
    }
}

/// Ctrl-C twice: the run prints what it leaves behind, and the next start removes that.
#[test]
#[ignore = "needs root"]
fn who_ends_it_at_once_is_told_what_is_left() {
    if !has_two_cores() {
        return;
    }
    let out = std::env::temp_dir().join(format!("srv6d-bench-net-twice-{}", std::process::id()));
    let measure = |rounds: &str, trial: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bench-net"));
        command.args(["--smoke", "--dut", "xdp-redirect", "--rounds", rounds, "--trial-ms", trial, "--out"]).arg(&out);
        command.args(["--srv6d", env!("CARGO_BIN_EXE_bench-net")]).stderr(std::process::Stdio::piped());
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    // One trial of half a minute, which is still in progress when the second signal comes.
    let run = measure("1", "30000");
    let process = run.id();
    until("its namespaces are there", || namespaces_of(process).len() == 3);
    kill(&run, nix::sys::signal::Signal::SIGINT);
    // Two signals would count as one if both came before the first was handled.
    std::thread::sleep(Duration::from_millis(500));
    kill(&run, nix::sys::signal::Signal::SIGINT);
    let ended = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    let left = namespaces_of(process);
    assert_eq!((ended.status.code(), left.len()), (Some(130), 3), "{said}");
    let line = said.lines().find(|line| line.contains("ended at once")).unwrap();
    assert!(left.iter().all(|name| line.contains(name)) && line.contains("next start of bench-net removes"), "{line}");
    measure("1", "20").wait_with_output().unwrap();
    assert_eq!(namespaces_of(process), Vec::<String>::new());
    std::fs::remove_dir_all(&out).unwrap();
}

#[test]
#[ignore = "needs root"]
fn a_core_with_two_roles_is_refused_before_anything_is_measured() {
    let core = *affinity::available().first().unwrap();
    let twice = format!("{core},{core}");
    let run = Command::new(env!("CARGO_BIN_EXE_bench-net")).args(["--smoke", "--cores", &twice]).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("core {core} stands there twice")), "{said}");
}

#[test]
#[ignore = "needs root"]
fn a_run_that_could_measure_nothing_fails_and_says_why() {
    let out = std::env::temp_dir().join(format!("srv6d-bench-net-none-{}", std::process::id()));
    let mut run = Command::new(env!("CARGO_BIN_EXE_bench-net"));
    run.args(["--smoke", "--dut", "xdp-redirect", "--srv6d", env!("CARGO_BIN_EXE_bench-net"), "--out"]).arg(&out);
    let only = affinity::available().first().unwrap().to_string();
    let run = run.args(["--cores", &only]).output().unwrap();
    std::fs::remove_dir_all(&out).unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(1), "{said}");
    let why = "error: nothing was measured: placement `all on one core` needs 2 cores and there are 1";
    assert!(said.contains(why), "{said}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let bench = Command::new(env!("CARGO_BIN_EXE_bench-net")).arg("list").stdout(writer).output().unwrap();
    assert!(bench.status.success() && bench.stderr.is_empty(), "{bench:?}");
}

#[test]
fn a_file_of_another_kind_is_refused_and_the_right_command_named() {
    let directory = std::env::temp_dir().join(format!("srv6d-bench-net-kinds-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let report = directory.join("report.json");
    std::fs::write(&report, r#"{"schema": 1, "title": "t", "stamp": [], "sections": []}"#).unwrap();
    let run = |word: &str| Command::new(env!("CARGO_BIN_EXE_bench-net")).args([word]).arg(&report).output().unwrap();
    let compared =
        Command::new(env!("CARGO_BIN_EXE_bench-net")).arg("compare").args([&report, &report]).output().unwrap();
    let (reported, rendered) = (run("report"), run("render"));
    let results = directory.join("results.json");
    let host = directory.join("host.json");
    std::fs::write(&results, serde_json::to_string(&Results::default()).unwrap()).unwrap();
    std::fs::write(&host, serde_json::to_string(&srv6d_bench_net::host::Results::default()).unwrap()).unwrap();
    let mixed = Command::new(env!("CARGO_BIN_EXE_bench-net")).arg("compare").args([&results, &host]).output().unwrap();
    let page = std::fs::read_to_string(directory.join("report.html"));
    std::fs::remove_dir_all(&directory).unwrap();
    for refused in [reported, compared] {
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("a report.json is for `bench-net render`"), "{said}");
    }
    let said = String::from_utf8_lossy(&mixed.stderr);
    assert!(mixed.status.code() == Some(2) && said.contains("compare runs of one kind"), "{said}");
    assert!(rendered.status.success() && page.unwrap().contains("<h1>t</h1>"));
}

#[test]
#[ignore = "needs root"]
fn the_cpu_time_of_a_hosts_packets_is_measured_without_iperf3() {
    let Some(srv6d) = srv6d() else { return };
    let out = std::env::temp_dir().join(format!("srv6d-bench-net-cpu-{}", std::process::id()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench-net"));
    command.args(["host", "--cpu-only", "--rounds", "1", "--out"]).arg(&out).arg("--srv6d").arg(srv6d);
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let markdown = std::fs::read_to_string(out.join("host/report.md")).unwrap();
    std::fs::remove_dir_all(&out).unwrap();
    for row in ["a small datagram, IPv6, MTU 1500", "a byte of a TCP stream, IPv6 with an SRH, MTU 9000"] {
        assert!(markdown.contains(&format!("| {row} | ")), "{markdown}");
    }
}

/// Ctrl-C after the first stream: that stream is in the report, and no namespace is left.
#[test]
#[ignore = "needs root"]
fn an_interrupted_run_of_a_hosts_streams_reports_those_it_has() {
    let Some(srv6d) = srv6d() else { return };
    if !srv6d_bench_net::netns::has("iperf3") {
        println!("SKIPPED: iperf3 is not there: sudo apt-get install iperf3");
        return;
    }
    let out = std::env::temp_dir().join(format!("srv6d-bench-net-host-{}", std::process::id()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench-net"));
    command.args(["host", "--rounds", "100", "--seconds", "1", "--out"]).arg(&out).arg("--srv6d").arg(srv6d);
    command.stderr(std::process::Stdio::null());
    let mut run = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    until("its namespaces are there", || namespaces("srv6d-h", run.id()).len() == 2);
    kill(&run, nix::sys::signal::Signal::SIGINT);
    let status = run.wait().unwrap();
    let markdown = || std::fs::read_to_string(out.join("host/report.md")).unwrap();
    let first = markdown();
    assert!(
        Command::new(env!("CARGO_BIN_EXE_bench-net")).arg("report").arg(out.join("host")).status().unwrap().success()
    );
    let markdown = markdown();
    std::fs::remove_dir_all(&out).unwrap();
    assert_eq!((status.code(), &first), (Some(1), &markdown), "results.json has it all");
    assert!(markdown.contains("* cut off: interrupted") && markdown.contains("| TCP MTU 1500, 1 flow |"), "{markdown}");
    let given = format!("* command: bench-net host --rounds 100 --seconds 1 --out {}", out.display());
    assert!(markdown.contains(&given), "{markdown}");
    assert!(!markdown.contains("| TCP MTU 1500, 8 flows |") && markdown.contains("Which to use when"), "{markdown}");
    assert_eq!(namespaces("srv6d-h", run.id()), Vec::<String>::new());
}
