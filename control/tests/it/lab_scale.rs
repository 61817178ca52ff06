//! Tests of many switches on one machine: all of them forward, and idle ones use little CPU time.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::process::Command;

use serde_json::Value;

#[test]
#[ignore = "needs root"]
fn switches_that_have_nothing_to_do_do_nothing() {
    let arguments = ["lab", "scale", "--switches", "6", "--idle", "3", "--json"];
    let output = Command::new(env!("CARGO_BIN_EXE_srv6d")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let nodes = report["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 6, "{report:#}");
    for node in nodes {
        assert!(node["memory_mib"].as_f64().unwrap() > 1.0, "{node:#}");
        // A hash map sized for a million prefixes takes 16.8 MB of kernel memory per port.
        let kernel = node["kernel_mib"].as_f64().unwrap();
        assert!(kernel > 0.0 && kernel < 1.0, "{node:#}");
        // A polling worker would use a whole core, or its share of one.
        assert!(node["idle_cpu_percent"].as_f64().unwrap() < 20.0, "{node:#}");
    }
}
