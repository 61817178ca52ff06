//! Tests of the output and exit status of `srv6d sonic check` and `convert`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::process::{Command, Output};

fn sonic(arguments: &str) -> Output {
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/sonic/samples/");
    let arguments = arguments.replace("SAMPLE/", samples);
    Command::new(env!("CARGO_BIN_EXE_srv6d")).arg("sonic").args(arguments.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const LEAF: &str = "--config-db SAMPLE/fabric-leaf.config_db.json --frr SAMPLE/fabric-leaf.frr.conf";
const EDGE: &str = "--config-db SAMPLE/pe.config_db.json";

#[test]
fn findings_are_listed_once_and_are_no_failure() {
    let output = sonic(&format!("check {EDGE}"));
    assert_eq!(output.status.code(), Some(0));
    let shown = text(&output.stdout);
    let lines: Vec<&str> = shown.lines().collect();
    let mut unique = lines.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), lines.len(), "{shown}");
    assert!(lines.contains(&"edge1: 5 ports (4 routed), 2 VRFs, 1 locators, 2 SIDs, 2 static routes"), "{shown}");
    let tolerated = "/pe.config_db.json: SRV6_MY_LOCATORS|edge argu_len: is no field of SRV6_MY_LOCATORS: passed over";
    let named = |line: &&&str| line.starts_with("tolerated: /") && line.ends_with(tolerated);
    assert_eq!(lines.iter().filter(named).count(), 1, "the file as it was named: {shown}");
}

#[test]
fn strictly_read_the_same_findings_are_errors() {
    let output = sonic(&format!("check {EDGE} --strict"));
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
    let said = text(&output.stderr);
    assert!(said.contains("/pe.config_db.json: SRV6_MY_LOCATORS|edge prefix: has a length"), "{said}");
    assert!(said.ends_with("\nfix: correct the lines with an error; without --strict most of them are accepted\n"));
    // This sample has nothing that SONiC refuses.
    assert_eq!(sonic(&format!("check {LEAF} --strict")).status.code(), Some(0));
}

#[test]
fn json_has_the_findings_and_the_switch() {
    let output = sonic(&format!("check {LEAF} --json"));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["valid"], true);
    assert_eq!(report["switch"]["device"]["hostname"], "north-leaf1");
    assert_eq!(report["switch"]["sids"][0]["action"], "uN");
    let strict = sonic(&format!("check {EDGE} --strict --json"));
    let report: serde_json::Value = serde_json::from_slice(&strict.stdout).unwrap();
    assert_eq!((strict.status.code(), &report["valid"]), (Some(2), &serde_json::Value::Bool(false)));
    assert!(report["findings"].as_array().unwrap().iter().any(|finding| finding["severity"] == "error"));
}

#[test]
fn what_is_converted_can_be_checked() {
    let output = sonic(&format!("convert {LEAF}"));
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("Ethernet96 is no routed port"), "{}", text(&output.stderr));
    let file = std::env::temp_dir().join(format!("srv6d-convert-{}.toml", std::process::id()));
    std::fs::write(&file, &output.stdout).unwrap();
    let checked = Command::new(env!("CARGO_BIN_EXE_srv6d")).arg("check").arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(text(&checked.stdout).contains("4 ports, 3 SIDs"), "{} {}", text(&checked.stdout), text(&checked.stderr));
    let with = |usd: &str| text(&sonic(&format!("convert {LEAF} --usd {usd}")).stdout).contains("\"usd\"");
    assert!(with("always") && !with("configured"));
}

#[test]
fn files_that_are_not_there_and_no_files_at_all() {
    let missing = sonic("check --frr /nowhere/frr.conf");
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("cannot read /nowhere/frr.conf"));
    assert_eq!(sonic("check").status.code(), Some(2));
    let file = std::env::temp_dir().join(format!("srv6d-check-{}.json", std::process::id()));
    std::fs::write(&file, "{\"PORT\": ").unwrap();
    let broken = text(&sonic(&format!("check --config-db {}", file.display())).stderr);
    let (place, fix) = (format!("error: {}:1:9: no JSON: EOF while parsing a value\n", file.display()), "fix: correct");
    assert!(broken.starts_with(&place) && broken.contains(fix), "{broken}");
    std::fs::write(&file, b"\xff\xfe").unwrap();
    let binary = text(&sonic(&format!("check --config-db {}", file.display())).stderr);
    assert!(binary.contains("fix: name a file of text, in UTF-8"), "{binary}");
    std::fs::remove_file(&file).unwrap();
}
