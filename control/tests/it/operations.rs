//! Tests that the documents for operators are correct: metrics in the manual, in alerts and on the dashboard are those
//! that the daemon has.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops at the first surprise")]

use crate::support::recorded;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;
use srv6d_api::state::{FpmView, OffloadStatus, SourceView, State};
use srv6d_daemon::metrics;

/// Returns the state of a node that has all metrics.
fn state() -> State {
    let source = SourceView {
        source: "jalapeno".to_owned(),
        failures: [("timeout".to_owned(), 1)].into(),
        age_seconds: Some(1),
        ..SourceView::default()
    };
    let fpm = FpmView { ignored: [("neighbours".to_owned(), 4)].into(), ..FpmView::default() };
    let fpm = SourceView { source: "fpm".to_owned(), fpm: Some(fpm), ..SourceView::default() };
    let mut state = recorded::state(vec![source, fpm]);
    for port in &mut state.counters.ports {
        port.offload = Some(OffloadStatus { on: true, auto: false, reason: String::new() });
        port.emulated = Some(recorded::emulated());
    }
    state
}

/// Returns the labels of every metric, by its name.
fn metrics() -> BTreeMap<String, BTreeSet<String>> {
    let text = metrics::exposition(state()).unwrap();
    let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap().0);
    let mut metrics: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for sample in samples {
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        let labels = labels.split("\",").filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
        metrics.entry(name.to_owned()).or_default().extend(labels);
    }
    metrics
}

/// Returns the names of metrics in a text.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("srv6d_")).collect()
}

fn file(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

#[test]
fn the_manual_has_every_metric_and_no_other_with_its_labels() {
    let manual = file("docs/operations.md");
    let metrics = metrics();
    let rows = manual.lines().filter(|line| line.starts_with("| `srv6d_"));
    let mut documented = BTreeSet::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, names, labels, ..] = cells.as_slice() else { unreachable!("{row}") };
        let labels: BTreeSet<String> = labels.split(", ").map(|label| label.trim_matches('`').to_owned()).collect();
        let labels: BTreeSet<String> = labels.into_iter().filter(|label| !label.is_empty()).collect();
        for name in named(names) {
            assert_eq!(metrics.get(name), Some(&labels), "{name}");
            documented.insert(name.to_owned());
        }
    }
    assert_eq!(documented, metrics.keys().cloned().collect());
}

#[test]
fn alerts_ask_for_metrics_and_labels_that_exist_and_say_what_to_do() {
    let rules: Value = serde_saphyr::from_str(&file("packaging/prometheus/srv6d.rules.yml")).unwrap();
    let rules = rules.pointer("/groups/0/rules").unwrap().as_array().unwrap();
    assert!(rules.len() > 10, "{rules:?}");
    let metrics = metrics();
    for rule in rules {
        let text = |pointer: &str| rule.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (name, query) = (text("/alert"), text("/expr"));
        let mut labels = BTreeSet::from(["instance".to_owned()]);
        for metric in named(query) {
            let known = metrics.get(metric);
            labels.extend(known.unwrap_or_else(|| unreachable!("{name}: {metric} does not exist")).clone());
        }
        let summary = text("/annotations/summary");
        for label in summary.split("$labels.").skip(1).map(|rest| rest.split(' ').next().unwrap()) {
            assert!(labels.contains(label), "{name}: {label} is none of {labels:?}");
        }
        assert!(!summary.is_empty() && !text("/annotations/description").is_empty(), "{name}");
        assert!(["critical", "warning", "info"].contains(&text("/labels/severity")), "{name}");
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_exist_and_no_panel_lies_on_another() {
    let text = file("packaging/grafana/srv6d.json");
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard.get("panels").unwrap().as_array().unwrap();
    let metrics = metrics();
    let mut covered = BTreeSet::new();
    for panel in panels {
        let queries: Vec<&str> = panel
            .pointer("/targets")
            .unwrap()
            .as_array()
            .unwrap()
            .iter()
            .map(|target| target.get("expr").unwrap().as_str().unwrap())
            .collect();
        assert!(!queries.is_empty(), "{panel}");
        for metric in queries.iter().flat_map(|query| named(query)) {
            assert!(metrics.contains_key(metric), "{metric} does not exist");
        }
        let side = |name: &str| panel.pointer(&format!("/gridPos/{name}")).unwrap().as_u64().unwrap();
        for x in side("x")..side("x") + side("w") {
            assert!(x < 24, "{panel}");
            for y in side("y")..side("y") + side("h") {
                assert!(covered.insert((x, y)), "{panel}");
            }
        }
    }
}
