//! Tests of the packet loss of a path change: none through srv6d, some through a route that is deleted first.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::process::Command;

use serde_json::Value;

#[test]
#[ignore = "needs root"]
fn srv6d_moves_a_stream_without_loss_and_a_deleted_route_does_not() {
    let output = Command::new(env!("CARGO_BIN_EXE_srv6d")).args(["lab", "moves", "--times", "100", "--json"]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let of =
        |way: &str| -> Vec<&Value> { rows.iter().filter(|row| row["way"].as_str().unwrap().contains(way)).collect() };
    let number = |row: &Value, key: &str| row[key].as_u64().unwrap();

    let (srv6d, deleted) = (of("srv6d"), of("del"));
    assert_eq!((srv6d.len(), deleted.len()), (2, 2), "{rows:#?}");
    for row in srv6d {
        assert!(number(row, "moves") > 0 && number(row, "sent") > 0, "{row:#}");
        let harm = ["lost", "refused", "unsteered", "duplicated"].map(|key| number(row, key));
        assert_eq!(harm, [0; 4], "{row:#}");
    }
    for row in deleted {
        assert!(number(row, "lost") + number(row, "unsteered") > 0, "{row:#}");
    }
}
