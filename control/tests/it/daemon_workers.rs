//! `srv6d show workers` and `srv6d lab top`: what tells a worker that has nothing to do from one that has.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use serde_json::Value;

use crate::lab_explain::TOPOLOGY;
use crate::support::lab::{Lab, srv6d, text};
use crate::support::rig::{CONFIG, Rig};

/// Returns the configuration with a way of waiting, in which the workers forward everything.
fn config(polling: &str) -> String {
    let config = CONFIG.replace("[workers]", &format!("[workers]\npolling = {polling:?}"));
    config.replace("role = \"fabric\"", "role = \"fabric\"\noffload = \"off\"")
}

fn worker(rig: &Rig) -> Value {
    rig.show("workers")[0].clone()
}

fn grown(before: &Value, after: &Value, key: &str) -> u64 {
    after[key].as_u64().unwrap() - before[key].as_u64().unwrap()
}

#[test]
#[ignore = "needs root"]
fn a_worker_that_polls_is_idle_without_packets_and_busy_with_them() {
    let mut rig = Rig::new(1);
    rig.ready(&config("busy"));
    rig.wait_for_pings();
    let before = worker(&rig);
    rig.inside("a", "ping -6 -q -c 3000 -i 0.0005 2001:db8:b::2");
    let after = worker(&rig);
    let [packets, busy_rounds] = ["packets", "busy_rounds"].map(|key| grown(&before, &after, key));
    assert!(packets >= 6000 && busy_rounds <= packets && busy_rounds > 1000, "{before} {after}");
    assert_eq!((&after["asleep_ns"], &after["polling"]), (&0.into(), &"busy".into()), "{after}");
    let [lived, busy] = ["lived_ns", "busy_ns"].map(|key| grown(&before, &after, key));
    assert!(busy > 0 && busy < lived, "{before} {after}");
    assert!(grown(&before, &after, "rounds") > busy_rounds, "it looked at empty rings: {after}");
    assert!(grown(&before, &after, "timed_packets") > 0, "one round in 1024 is timed: {after}");
    let stages = after["stages_ns"].as_array().unwrap();
    assert!(stages.len() == 4 && stages.iter().all(|stage| stage["nanoseconds"].as_u64().unwrap() > 0), "{after}");
    assert_eq!(after["packets"].as_u64(), Some(rig.counter("rx")), "nobody else sends any more");

    let shown = text(&rig.ask("node", "show workers").stdout);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("WORKER  CORE  POLLING") && lines[1].contains("busy"), "{shown}");
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_worker_that_sleeps_says_so() {
    let mut rig = Rig::new(1);
    rig.ready(&config("adaptive"));
    rig.wait_for_pings();
    let before = worker(&rig);
    rig.inside("a", "ping -6 -q -c 3 -i 0.2 2001:db8:b::2");
    let after = worker(&rig);
    let [lived, busy, asleep] = ["lived_ns", "busy_ns", "asleep_ns"].map(|key| grown(&before, &after, key));
    assert!(asleep > lived / 2 && busy + asleep <= lived, "{before} {after}");
}

#[test]
#[ignore = "needs root"]
fn the_workers_of_a_whole_lab_are_shown() {
    let lab = Lab::up("top", TOPOLOGY);
    let output = srv6d(&["lab", "top", "--name", &lab.name, "--count", "2"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    for node in ["host00", "host01", "leaf00", "leaf01", "spine00", "spine01"] {
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with(node)).collect();
        assert!(lines.len() == 2 && lines.iter().all(|line| line.contains("adaptive")), "{node}: {said}");
    }
    assert!(!said.contains("host02"), "it has no srv6d: {said}");
}
