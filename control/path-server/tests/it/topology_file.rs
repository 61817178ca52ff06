//! Tests of topology files: any invalid file is refused with the place of the error.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use proptest::prelude::*;
use serde_json::{Value, json};
use srv6d_path_server::{EXAMPLE, Store, StoreError};

#[test]
fn what_is_wrong_with_a_topology_is_named() {
    let why = |value: Value| Store::parse(&value.to_string()).unwrap_err();
    assert_eq!(why(json!([])).what, "not a topology");
    let nodes = json!([{ "_key": "a" }, { "_key": "b" }]);
    let with = |edges: Value| json!({ "nodes": nodes, "hosts": [], "edges": edges });
    let edge = |to: &str| json!({ "_key": "ab", "_from": "fabric_node/a", "_to": to });
    let no_vertex = why(with(json!([edge("fabric_node/c")])));
    assert_eq!(
        (no_vertex.entry.as_str(), no_vertex.what.as_str()),
        ("edges[0]._to", "fabric_node/c is no vertex of the file")
    );
    assert_eq!(why(with(json!([edge("b")]))).fix, "write \"fabric_node/b\"");
    let twice = why(with(json!([edge("fabric_node/b"), edge("fabric_node/b")])));
    assert_eq!((twice.entry.as_str(), twice.what.as_str()), ("edges[1]", "fabric_graph/ab is there twice"));
    let bad_sid = json!([{ "_key": "a", "sids": [{ "srv6_sid": "fcbb:0:1:::" }] }]);
    assert_eq!(why(json!({ "nodes": bad_sid, "hosts": [], "edges": [] })).entry, "nodes[0].sids[0]");
    assert_eq!(why(json!({ "nodes": [{}], "hosts": [], "edges": [] })).what, "has no `_key`");
    let negative = json!([{ "_key": "ab", "_from": "fabric_node/a", "_to": "fabric_node/b", "latency": -1 }]);
    assert_eq!(why(with(negative)).what, "-1 is no weight");
    let vertices = json!({ "vertices": { "hosts/a-b": { "prefix": "10.0.0.1", "prefix_len": 24 } }, "edges": [] });
    assert_eq!(why(vertices.clone()).entry, "vertices[\"hosts/a-b\"].prefix");
    assert_eq!(why(vertices).fix, "write \"10.0.0.0\": kernels refuse routes with host bits");
}

#[test]
fn edges_that_a_live_controller_has_lost_the_ends_of_are_left_out() {
    let mut topology: Value =
        serde_json::from_str(include_str!("../../../controller/tests/data/2026-01-topology.json")).unwrap();
    let edges = topology["edges"].as_array().unwrap().len();
    let lost = topology["vertices"].as_object_mut().unwrap().shift_remove("hosts/srv6-pytorch-1");
    assert!(lost.is_some());
    let store = Store::parse(&topology.to_string()).unwrap();
    assert_eq!(store.left_out(), 2);
    assert_eq!(store.edges("fabric_graph").unwrap().len(), edges - 2);
}

/// Returns whether the place of an error is in the file, or directly behind it.
fn is_in(text: &str, error: &StoreError) -> bool {
    let line = text.split('\n').nth(error.line - 1);
    line.is_some_and(|line| error.column <= line.chars().count() + 1)
}

/// Generates a value that replaces another one.
fn other() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        Just(json!(-1)),
        Just(json!(65.5)),
        Just(json!("fabric_node/leaf00")),
        Just(json!("a/b/c")),
        Just(json!("::")),
        Just(json!("")),
        Just(json!([])),
        Just(json!({})),
        Just(json!([[{ "_key": "x" }]])),
    ]
}

/// Collects pointers to all values of a document.
fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    let mut below = |key: &str, value: &Value| pointers(value, &format!("{at}/{key}"), all);
    match value {
        Value::Object(keys) => keys.iter().for_each(|(key, value)| below(key, value)),
        Value::Array(list) => list.iter().enumerate().for_each(|(index, value)| below(&index.to_string(), value)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn damaged_text_is_read_or_refused_with_a_place(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        let Ok(text) = String::from_utf8(bytes) else { return Ok(()) };
        if let Err(error) = Store::parse(&text) {
            prop_assert!(is_in(&text, &error), "{}", error);
            prop_assert!(!error.fix.is_empty());
        }
    }

    #[test]
    fn values_of_another_kind_are_read_or_refused_with_a_place(
        at in any::<prop::sample::Index>(), value in other(), pretty in any::<bool>(),
    ) {
        let mut file: Value = serde_json::from_str(EXAMPLE).unwrap();
        let mut all = Vec::new();
        pointers(&file, "", &mut all);
        *file.pointer_mut(&all[at.index(all.len())]).unwrap() = value;
        let text = if pretty { serde_json::to_string_pretty(&file).unwrap() } else { file.to_string() };
        if let Err(error) = Store::parse(&text) {
            prop_assert!(is_in(&text, &error), "{}", error);
        }
    }
}
