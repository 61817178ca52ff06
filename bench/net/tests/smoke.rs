//! The whole bench, as short as it can be: every DUT forwards, and the report says so. No figure is looked at.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::path::PathBuf;
use std::process::Command;

use srv6d_bench_net::dut;
use srv6d_bench_net::results::Results;

/// Beside the test programs, when the whole workspace was built.
fn srv6d() -> Option<PathBuf> {
    let file = PathBuf::from(env!("CARGO_BIN_EXE_bench-net")).parent()?.join("srv6d");
    file.is_file().then_some(file)
}

#[test]
#[ignore = "needs root"]
fn every_row_is_measured_and_reported() {
    if srv6d_bench_net::affinity::available().len() < 2 {
        println!("SKIPPED: generator and DUT need a core each, and there is one");
        return;
    }
    let Some(srv6d) = srv6d() else {
        println!("SKIPPED: srv6d is not built: cargo build --package srv6d");
        return;
    };
    let out = std::env::temp_dir().join(format!("srv6d-bench-net-{}", std::process::id()));
    let run = Command::new(env!("CARGO_BIN_EXE_bench-net"))
        .args(["--smoke", "--srv6d"])
        .arg(srv6d)
        .arg("--out")
        .arg(&out)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let results: Results = serde_json::from_str(&read("results.json")).unwrap();
    let (markdown, html) = (read("report.md"), read("report.html"));
    std::fs::remove_dir_all(&out).unwrap();
    for dut in dut::ALL {
        let row = results.floods.iter().find(|row| row.dut == dut.name).unwrap_or_else(|| panic!("no {}", dut.name));
        assert!(row.trials.iter().all(|trial| trial.counted.received > 0), "{row:?}");
        assert!(markdown.contains(dut.name) && html.contains(dut.name), "{}", dut.name);
    }
    assert!(html.contains("<svg"));
}

#[test]
fn a_row_that_does_not_exist_is_refused_with_the_ones_that_do() {
    let run = Command::new(env!("CARGO_BIN_EXE_bench-net")).args(["--dut", "vpp"]).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{said}");
    assert!(said.contains("no such row") && said.contains("srv6d-encap.red"), "{said}");
}
