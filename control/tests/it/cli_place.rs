//! Tests of the output and the refusals of `srv6d place`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test stops at the first surprise")]

use crate::support::file;

use std::fs;
use std::process::{Command, Output};

use file::File;
use serde_json::Value;

/// Three leaves, three spines, and a host at each leaf, recorded from a controller.
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/controller/tests/data/2026-01-topology.json");

fn place(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_srv6d")).arg("place").args(arguments).output().unwrap()
}

fn stdout(arguments: &[&str]) -> String {
    let output = place(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(&[arguments, &["--json"]].concat())).unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let output = place(arguments);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_table_has_the_bound_the_loads_and_the_flows() {
    let text = stdout(&["--clos", "4x4x4", "--pattern", "permutation"]);
    let first = "16 flows between 16 hosts over 32 links; the busiest link carries at least 1";
    assert_eq!(text.lines().next(), Some(first));
    let placed = text.lines().find(|line| line.starts_with("placed")).unwrap();
    assert_eq!(placed.split_whitespace().nth(1), Some("1"), "{text}");
    for heading in ["ECMP, seed 1", "Jalapeno /load", "links, 10 of 32:", "flows, 10 of 16:", "PLACED VIA"] {
        assert!(text.contains(heading), "{heading} is missing in\n{text}");
    }
    assert!(!stdout(&["--clos", "2x2x2", "--flows", "0", "--links", "0"]).contains("flows, "));
}

#[test]
fn carriers_are_composed_of_the_sids_of_the_path() {
    let report = json(&["--topology", RECORDED, "--pattern", "ring"]);
    assert_eq!(report["flow_count"], 3);
    assert_eq!(report["placed"]["busiest"], 1);
    let ring = ["hosts/srv6-pytorch-0", "hosts/srv6-pytorch-1", "hosts/srv6-pytorch-2"];
    let sources: Vec<&Value> = report["flows"].as_array().unwrap().iter().map(|flow| &flow["source"]).collect();
    assert_eq!(sources, ring);
    let uns = [
        ("leaf00", "1004"),
        ("leaf01", "1005"),
        ("leaf02", "1006"),
        ("spine00", "1000"),
        ("spine01", "1001"),
        ("spine02", "1002"),
    ];
    for flow in report["flows"].as_array().unwrap() {
        for way in ["placed", "load"] {
            let via: Vec<&str> =
                flow[way]["via"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
            let un = |name: &str| uns.iter().find(|(node, _)| *node == name).unwrap().1;
            let carrier = via.iter().map(|name| un(name)).collect::<Vec<_>>().join(":");
            assert_eq!(flow[way]["carriers"], serde_json::json!([format!("fcbb:0:{carrier}:fe06::")]));
        }
        assert_eq!(flow["ecmp"]["via"].as_array().unwrap().len(), 3);
    }
    assert!(stdout(&["--topology", RECORDED]).contains(":fe06::"));
}

#[test]
fn loads_add_up() {
    let report = json(&["--clos", "4x3x4", "--pattern", "all-to-all"]);
    assert_eq!(report["bound"], 16);
    for way in ["placed", "ecmp", "load"] {
        // Each of 16 hosts sends to 12 hosts behind other leaves, over two links each.
        let loads = report["links"].as_array().unwrap().iter().map(|link| link[way].as_u64().unwrap());
        assert_eq!(loads.clone().sum::<u64>(), 16 * 12 * 2, "{way}");
        assert_eq!(report[way]["busiest"].as_u64(), loads.max(), "{way}");
    }
    assert_eq!(report["flows"].as_array().unwrap().len(), 16 * 15);
    assert_eq!(json(&["--clos", "4x3x4", "--flows", "5"])["flows"].as_array().unwrap().len(), 5);
}

#[test]
fn hashes_have_a_seed_of_their_own() {
    let with = |seed| json(&["--clos", "8x8x8", "--pattern", "permutation", "--ecmp-seed", seed]);
    let (one, other) = (with("1"), with("2"));
    assert_eq!(one["flows"][0]["placed"], other["flows"][0]["placed"]);
    let ecmp = |report: &Value| {
        report["flows"].as_array().unwrap().iter().map(|flow| flow["ecmp"].clone()).collect::<Vec<_>>()
    };
    assert_ne!(ecmp(&one), ecmp(&other));
    assert_eq!(ecmp(&one), ecmp(&with("1")));
}

#[test]
fn what_is_down_carries_nothing() {
    let report = json(&["--clos", "4x4x4", "--down", "spine000", "--down", "leaf001,spine002"]);
    for link in report["links"].as_array().unwrap() {
        let ends = [link["from"].as_str().unwrap(), link["to"].as_str().unwrap()].join(" ");
        assert!(!ends.contains("spine000"), "{ends}");
        assert!(!(ends.contains("leaf001") && ends.contains("spine002")), "{ends}");
    }
    assert!(report["placed"]["busiest"].as_f64() >= report["bound"].as_f64());
}

const TENANTS: &str = r#"
pattern = "all-to-all"
disjoint = [["red", "blue"]]

[[tenants]]
name = "red"
hosts = ["host0000", "host0002", "host0004"]

[[tenants]]
name = "blue"
hosts = ["host0001", "host0003", "host0005"]
spines = ["spine001", "spine002"]
"#;

#[test]
fn tenants_of_a_job_file_stay_apart() {
    let job = File::new("tenants.toml", TENANTS);
    let report = json(&["--clos", "3x3x2", "--job", job.path()]);
    let spines = |tenant: &str| {
        let flows = report["flows"].as_array().unwrap().iter().filter(|flow| flow["tenant"] == tenant);
        flows
            .map(|flow| flow["placed"]["via"][1].as_str().unwrap().to_owned())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let (red, blue) = (spines("red"), spines("blue"));
    assert!(!red.is_empty() && !blue.is_empty() && red.is_disjoint(&blue), "{red:?} {blue:?}");
    assert!(!blue.contains("spine000"));
}

#[test]
fn the_documented_job_runs() {
    let document = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/placement.md")).unwrap();
    let text = document.split("```toml").nth(1).unwrap().split("```").next().unwrap();
    let job = File::new("documented.toml", text);
    let report = json(&["--clos", "4x4x4", "--job", job.path()]);
    assert_eq!((&report["flow_count"], &report["placed"]["busiest"]), (&5.into(), &4.into()));
}

#[test]
fn a_picture_has_a_bar_for_every_link() {
    let file = File::new("load.svg", "");
    stdout(&["--clos", "4x4x4", "--pattern", "permutation", "--svg", file.path()]);
    let text = fs::read_to_string(file.path()).unwrap();
    assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"));
    let bars: Vec<usize> = text
        .lines()
        .filter(|line| line.contains("fill=") && line.contains(" d=\"M"))
        .map(|line| line.matches('M').count())
        .collect();
    assert_eq!(bars, [32; 3]);
}

#[test]
fn errors_name_the_fix() {
    let unknown = File::new("unknown.json", r#"{"patern": "ring"}"#);
    let cases: [(&[&str], &str); 11] = [
        (&["--clos", "4x4"], "write LEAVESxSPINESxHOSTS"),
        (&["--clos", "2x2x2", "--hosts", "host0000,host77"], "names are like host0000"),
        (&["--clos", "2x2x2", "--pair", "host0000"], "write FROM,TO or FROM,TO,DEMAND"),
        (&["--clos", "2x2x2", "--down", "nobody"], "write a name as the topology has it"),
        (&["--clos", "2x1x2", "--down", "spine000"], "repair a link, or leave out the hosts behind one of the two"),
        (&["--clos", "2x1x1", "--hosts", "host0000"], "name at least two hosts, or list pairs"),
        (&["--topology", "/nonexistent"], "fix: name a file that exists"),
        (&["--clos", "2x2x2", "--job", unknown.path()], "unknown field `patern`, expected"),
        (&["--clos", "99999x1x1"], "9999700002 flows; name fewer `hosts`"),
        (&["--clos", "99999x99999x1"], "9999800001 links between its switches are more than"),
        (&[], "<--topology <FILE>|--clos <SIZES>>"),
    ];
    for (arguments, expected) in cases {
        let error = refused(arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn a_mistake_in_a_job_is_shown_with_its_place() {
    let lines = |name: &str, text: &str| {
        let job = File::new(name, text);
        let error = refused(&["--clos", "2x2x2", "--job", job.path()]);
        error.replace(job.path(), "JOB").lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let error = lines("pair.json", "{\n  \"pairs\": [[\"host0000\"]]\n}");
    assert_eq!(
        error[0],
        "error: JOB:2:25: no pair: write [FROM, TO], [FROM, TO, DEMAND], or `source`, `destination` \
        and `demand`"
    );
    assert_eq!(error[2], r#"2 |   "pairs": [["host0000"]]"#);
    assert!(error[4].starts_with("fix: write e.g. {\"pattern\": \"ring\""), "{error:?}");
    let error = lines("pattern.toml", "pattern = \"rng\"");
    assert!(error[0].starts_with("error: JOB:1:11: unknown variant `rng`, expected one of `ring`"), "{error:?}");
    assert!(error[4].starts_with("fix: write e.g. `pattern = \"ring\"`"), "{error:?}");
    let error = lines("short.json", "{");
    assert!(error[0].starts_with("error: JOB:1:") && error[0].ends_with("EOF while parsing an object"), "{error:?}");
}

/// The commands run in their own directory, in the order in which they are printed; no other files are there.
#[test]
fn what_the_readme_and_the_reference_print_works_as_printed() {
    for text in [include_str!("../../../README.md"), include_str!("../../../docs/placement.md")] {
        let directory = std::env::temp_dir().join(format!("srv6d-place-{}", std::process::id()));
        fs::create_dir_all(directory.join("docs")).unwrap();
        let bin = std::path::Path::new(env!("CARGO_BIN_EXE_srv6d")).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let is_ours = |line: &&str| {
            let is_quick = line.contains("fabric.json") && !line.contains("job.toml");
            is_quick && (line.starts_with("srv6d place") || line.starts_with("srv6d path-server --example"))
        };
        let commands: Vec<&str> = text.lines().filter(is_ours).collect();
        assert!(commands.len() >= 2, "{commands:?}");
        for command in commands {
            let ran = Command::new("sh").args(["-c", command]).current_dir(&directory).env("PATH", &path).output();
            let ran = ran.unwrap();
            assert!(ran.status.success(), "{command}: {}", String::from_utf8_lossy(&ran.stderr));
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
