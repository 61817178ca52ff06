//! Support for labs with the real FRR.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::lab::{Lab, SRV6D, socket_address, srv6d, text};

/// Returns whether FRR is missing, which is possible because `scripts/install-deps` continues without it.
pub fn frr_is_missing() -> bool {
    let missing = ["/usr/lib/frr/zebra", "/usr/lib/frr/bgpd"].iter().find(|file| !Path::new(file).exists());
    if let Some(file) = missing {
        println!("SKIPPED: there is no {file}: Debian's package `frr` is not installed");
    }
    missing.is_some()
}

/// Returns whether FRR or its module for FPM is missing. Debian has both in the same package.
pub fn fpm_is_missing() -> bool {
    let machines = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let missing = !machines.into_iter().any(|machine| machine.path().join("frr/modules/dplane_fpm_nl.so").exists());
    if missing {
        println!("SKIPPED: FRR has no module dplane_fpm_nl: Debian's package `frr` is not installed");
    }
    frr_is_missing() || missing
}

/// Standstill of the machine that can end a BGP session: a session ends after three seconds without a message, and one
/// of these may have passed before.
const SILENCE: Duration = Duration::from_secs(2);

/// Runs a test, and once more if it failed while the machine stood still. In that case BGP lost every neighbour, which
/// says nothing about the fabric.
pub fn undisturbed(test: fn()) {
    let (outcome, standstill) = watched(test);
    match outcome {
        Err(_) if standstill > SILENCE => {
            println!("nothing ran for {standstill:?}, and BGP gives a neighbour up that is silent for 3 s: once more");
            test();
        }
        Err(why) => resume_unwind(why),
        Ok(()) => {}
    }
}

/// Returns the outcome of a test, and the longest time in which a thread that only sleeps did not run.
fn watched(test: fn()) -> (thread::Result<()>, Duration) {
    const TICK: Duration = Duration::from_millis(50);
    let (over, ended) = channel::<()>();
    let watch = thread::spawn(move || {
        let (mut longest, mut last) = (Duration::ZERO, Instant::now());
        while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        longest
    });
    let outcome = catch_unwind(AssertUnwindSafe(test));
    drop(over);
    (outcome, watch.join().unwrap())
}

/// Sends a stream of datagrams over many flows while something happens. Returns the report of the receiver, with
/// `closing`: how many more datagrams announced the end of the stream.
pub fn stream(lab: &Lab, from: &str, to: &str, address: &str, meanwhile: impl FnOnce()) -> Value {
    let mut sink = lab.spawn(to, &["udp-receive", &socket_address(address)]);
    let mut lines = BufReader::new(sink.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let listening = next()["listening"].as_str().unwrap().to_owned();
    let sender = lab.spawn(from, &["udp-send", &listening, "400", "60", "300", "48"]);
    thread::sleep(Duration::from_millis(500));
    meanwhile();
    thread::sleep(Duration::from_millis(500));
    assert!(Command::new("kill").arg(sender.id().to_string()).status().unwrap().success());
    let sender = sender.wait_with_output().unwrap();
    assert!(sender.status.success(), "{from} -> {address}: {}", text(&sender.stderr));
    let mut report = next();
    report["closing"] = serde_json::from_slice::<Value>(&sender.stdout).unwrap()["closing"].clone();
    sink.wait().unwrap();
    assert!(report["received"].as_u64().unwrap() > 100, "{report}");
    report
}

/// Returns the number of packets that found a full ring anywhere in the lab. They are lost because a worker had to wait
/// for its core on a busy machine, and not because of a missing route.
pub fn lost_in_rings(lab: &Lab) -> u64 {
    let of_node = |node: &String| -> u64 {
        let ports = lab.exec(node, &[SRV6D, "show", "ports", "--json"]).stdout;
        let ports: Value = serde_json::from_slice(&ports).unwrap_or_default();
        let lost = |port: &Value| port["rx_lost"].as_u64().unwrap() + port["tx_lost"].as_u64().unwrap();
        ports.as_array().into_iter().flatten().map(lost).sum()
    };
    lab.nodes().iter().map(of_node).sum()
}

/// Checks that at most 1 % of the datagrams is lost, without those that found a full ring.
pub fn nearly_whole(lab: &Lab, what: &str, report: &Value) {
    let sent = report["sent"].as_u64().unwrap();
    is_lost_at_most(lab, what, report, sent / 100);
}

/// Checks that no datagram is lost, except those that found a full ring.
pub fn whole(lab: &Lab, what: &str, report: &Value) {
    is_lost_at_most(lab, what, report, 0);
}

fn is_lost_at_most(lab: &Lab, what: &str, report: &Value, most: u64) {
    let lost = report["lost"].as_u64().unwrap();
    if lost > most {
        let rings = lost_in_rings(lab);
        println!("{what}: {report}: full rings account for {rings}");
        assert!(lost <= most + rings, "{what}: {report}\n{}", lab.losses());
    }
}

pub fn lab_command(lab: &Lab, words: &[&str]) -> String {
    let arguments = [&["lab", words[0], "--name", &lab.name], &words[1..]].concat();
    let output = srv6d(&arguments);
    assert!(output.status.success(), "{words:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Returns how many packets left through each port of a node.
pub fn sent(lab: &Lab, node: &str) -> Vec<(String, u64)> {
    let ports: Value = serde_json::from_str(&lab.must(node, &[SRV6D, "show", "ports", "--json"])).unwrap();
    let port = |row: &Value| (row["name"].as_str().unwrap().to_owned(), row["tx_packets"].as_u64().unwrap());
    ports.as_array().unwrap().iter().map(port).collect()
}
