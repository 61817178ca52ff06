//! Tests of the output and the refusals of `srv6d lab experiment`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test stops at the first surprise")]

use crate::support::file;

use std::fs;
use std::process::{Command, Output};

use file::File;
use serde_json::Value;

/// A small experiment, with a fault that ends.
const SMALL: &str = r#"
seeds = 2
[fabric]
leaves = 2
spines = 2
hosts = 2
[[case]]
name = "small"
traffic = "permutation"
bytes = 40000
fault = { kind = "lossy", share = 0.5, until = "2ms" }
[[mode]]
name = "hashed"
choose = "hash"
[[mode]]
name = "placed"
choose = "placed"
"#;

fn experiment(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_srv6d")).args(["lab", "experiment"]).args(arguments).output().unwrap()
}

fn stdout(arguments: &[&str]) -> String {
    let output = experiment(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let output = experiment(arguments);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_run_is_a_line_of_json_and_the_same_the_next_time() {
    let file = File::new("experiment-json", SMALL);
    let lines = stdout(&["--virtual", "--json", file.path()]);
    let runs: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let named: Vec<(&str, u64)> =
        runs.iter().map(|run| (run["mode"].as_str().unwrap(), run["seed"].as_u64().unwrap())).collect();
    assert_eq!(named, [("hashed", 1), ("hashed", 2), ("placed", 1), ("placed", 2)]);
    assert!(runs.iter().all(|run| run["complete"] == 4 && run["transfers"] == 4), "{lines}");
    assert_eq!(stdout(&["--virtual", "--json", file.path()]), lines);
    let one = stdout(&["--virtual", "--json", "--seeds", "1", file.path()]);
    assert_eq!(one.lines().count(), 2, "{one}");
}

#[test]
fn the_table_and_the_page_have_every_mode_and_the_command() {
    let file = File::new("experiment-page", SMALL);
    let page = std::env::temp_dir().join(format!("srv6d-experiment-{}.html", std::process::id()));
    let path = page.to_str().unwrap();
    let text = stdout(&["--virtual", "--seeds", "1", "--html", path, file.path()]);
    let html = fs::read_to_string(&page).unwrap();
    fs::remove_file(&page).unwrap();
    for word in ["small", "hashed", "placed", "goodput"] {
        assert!(text.contains(word) && html.contains(word), "{word}: {text}");
    }
    assert!(html.contains(&format!("srv6d lab experiment --virtual --seeds 1 {}", file.path())), "{html}");
    for title in ["Transfers that are complete", "Load of the links between switches: placed", "leaf1-spine0"] {
        assert!(html.contains(title), "{title}");
    }
}

#[test]
fn the_example_can_be_run() {
    let file = File::new("experiment-example", &stdout(&["--example"]).replace("4000000", "4000"));
    let text = fs::read_to_string(file.path()).unwrap();
    let first = text.split("[[case]]").take(2).collect::<Vec<_>>().join("[[case]]");
    let modes = &text[text.find("[[mode]]").unwrap()..];
    let small = File::new("experiment-first", &(first + modes));
    assert_eq!(stdout(&["--virtual", "--json", "--seeds", "1", small.path()]).lines().count(), 9);
}

#[test]
fn what_cannot_run_is_refused_with_its_fix() {
    let file = File::new("experiment-refused", SMALL);
    let said = refused(&[file.path()]);
    assert!(said.contains("an experiment runs in virtual time only") && said.contains("fix: add --virtual"), "{said}");
    let said = refused(&["--virtual", "--dilate", "1000", file.path()]);
    assert!(said.contains("choose a smaller --dilate"), "{said}");
    let wrong = File::new("experiment-wrong", &SMALL.replace("\"hash\"", "\"hush\""));
    let said = refused(&["--virtual", wrong.path()]);
    assert!(
        said.contains(":14:10: [[mode]] choose: \"hush\" is not known") && said.contains("fix: write \"hash\""),
        "{said}"
    );
    let said = refused(&["--virtual", "/nowhere.toml"]);
    assert!(said.contains("--example"), "{said}");
    refused(&[]);
}
