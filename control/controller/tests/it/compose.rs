//! Tests of the composition: carriers of recorded paths are compared byte by byte, and what is not a path is refused.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use serde_json::{Value, json};
use srv6d_controller::compose::{ComposeError, Composed, Item, Options, compose};
use srv6d_controller::document::{Topology, Vertex};
use srv6d_controller::sid::Family;

fn recorded(name: &str) -> Value {
    let file = format!("{}/tests/data/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn fabric() -> Topology {
    Topology::read(&recorded("2026-01-topology")).unwrap()
}

const V6: Options = Options { algo: 0, family: Family::V6, strict: false, function: None };

/// Returns the ids of one `path` of an answer.
fn ids(path: &Value) -> Vec<String> {
    path.as_array().unwrap().iter().map(|step| step["vertex"]["_id"].as_str().unwrap().to_owned()).collect()
}

fn composed(topology: &Topology, ids: &[String], options: &Options) -> Result<Composed, ComposeError> {
    let walk: Vec<&Vertex> = ids.iter().map(|id| &topology.vertices[id]).collect();
    compose(&walk, topology, options)
}

fn text(composed: &Composed) -> Vec<String> {
    composed.segments.iter().map(ToString::to_string).collect()
}

#[test]
fn carrier_of_a_recorded_path_is_the_servers_own_text() {
    for name in ["2026-01-shortest-path", "2026-01-shortest-path-load-call-1", "2026-01-shortest-path-load-call-2"] {
        let answer = recorded(name);
        let own = composed(&fabric(), &ids(&answer["path"]), &V6).unwrap();
        assert_eq!(text(&own), [answer["srv6_data"]["srv6_usid"].as_str().unwrap()], "{name}");
        assert_eq!(own.notes, Vec::<String>::new());
    }
}

#[test]
fn sender_is_never_part_of_the_carrier_whatever_the_edition_says() {
    let answer = recorded("2025-11-shortest-path");
    let own = composed(&fabric(), &ids(&answer["path"]), &V6).unwrap();
    let theirs = answer["srv6_data"]["srv6_usid"].as_str().unwrap();
    assert!(theirs.starts_with("fcbb:0:fe06:1004:"), "{theirs}");
    assert_eq!(text(&own), ["fcbb:0:1004:1000:1006:fe06::"]);
    assert!(own.agrees_with(theirs), "the sender's own uSID before ours is no disagreement");
    assert!(!own.agrees_with("fcbb:0:1004:1001:1006:fe06::"));
}

#[test]
fn six_usids_fill_a_carrier_that_needs_no_zero() {
    let answer = recorded("2026-01-best-paths");
    let valley = answer["paths"].as_array().unwrap().last().unwrap();
    let theirs = valley["srv6_data"]["srv6_usid"].as_str().unwrap();
    assert!(theirs.parse::<std::net::Ipv6Addr>().is_err(), "eight groups and `::`: {theirs}");
    let own = composed(&fabric(), &ids(&valley["path"]), &V6).unwrap();
    assert_eq!(own.segments.len(), 1);
    assert_eq!(format!("{}::", text(&own)[0]), theirs);
    assert!(own.agrees_with(theirs));
}

#[test]
fn overflow_becomes_a_second_segment_and_a_pair_is_not_torn() {
    let leaf = |n: u8| format!("fabric_node/10.0.0.20{n}_leaf0{n}");
    let spine = |n: u8| format!("fabric_node/10.0.0.{n}_spine0{n}");
    let walk = [
        "hosts/srv6-pytorch-0".to_owned(),
        leaf(0),
        spine(0),
        leaf(1),
        spine(1),
        leaf(2),
        spine(2),
        leaf(1),
        "hosts/srv6-pytorch-1".to_owned(),
    ];
    let own = composed(&fabric(), &walk, &V6).unwrap();
    assert_eq!(text(&own), ["fcbb:0:1004:1000:1005:1001:1006:1002", "fcbb:0:1005:fe06::"]);
    // With one node less, five slots are used, and the pair does not fit into the sixth.
    let shorter: Vec<String> = walk[..6].iter().chain(&walk[8..]).cloned().collect();
    let own = composed(&fabric(), &shorter, &V6).unwrap();
    assert_eq!(text(&own), ["fcbb:0:1004:1000:1005:1001:1006:fe06"]);
    let five = [&shorter[..5], &[leaf(1), spine(2)], &shorter[5..]].concat();
    let own = composed(&fabric(), &five, &V6).unwrap();
    assert_eq!(own.items.last(), Some(&Item::Pair(0x1006, 0xfe06)));
    assert_eq!(own.segments[1].to_string(), "fcbb:0:1006:fe06::");
}

/// Returns a topology of two nodes with adjacencies between them, and a host behind the second node.
fn pinned() -> Topology {
    let uns = |usid: &str| {
        json!([{"srv6_sid": format!("fc00:0:{usid}::"), "srv6_endpoint_behavior": {"endpoint_behavior": 48, "algo": 0}},
        {"srv6_sid": format!("fc00:1:{usid}::"), "srv6_endpoint_behavior": {"endpoint_behavior": 48, "algo": 128}}])
    };
    let ua = |sid: &str, backup: bool| json!({"algorithm": 0, "endpoint_behavior": 57, "sid": sid, "flags": {"b_flag": backup}});
    Topology::read(&json!({
        "vertices": {
            "igp_node/a": {"_id": "igp_node/a", "name": "a", "router_id": "a", "sids": uns("32")},
            "igp_node/b": {"_id": "igp_node/b", "name": "b", "router_id": "b", "sids": uns("16")},
            "igp_node/c": {"_id": "igp_node/c", "name": "c", "router_id": "c", "sids": uns("28")},
            "hosts/x": {"_id": "hosts/x", "prefix": "2001:db8:1::", "prefix_len": 64},
            "hosts/y": {"_id": "hosts/y", "prefix": "2001:db8:2::7", "prefix_len": 64, "ipv4_address": "192.0.2.7"},
        },
        "edges": [
            {"_key": "xa", "_from": "hosts/x", "_to": "igp_node/a"},
            {"_key": "ab", "_from": "igp_node/a", "_to": "igp_node/b",
                "srv6_endx_sid": [ua("fc00:0:32:e000::", true), ua("fc00:0:32:e001::", false)]},
            {"_key": "bc", "_from": "igp_node/b", "_to": "igp_node/c", "srv6_endx_sid": [ua("fc00:0:16:e000::", false)]},
            {"_key": "cy", "_from": "igp_node/c", "_to": "hosts/y"},
        ],
    }))
    .unwrap()
}

fn walk(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[test]
fn strict_paths_take_the_unprotected_adjacency_of_every_link() {
    let ids = walk(&["hosts/x", "igp_node/a", "igp_node/b", "igp_node/c", "hosts/y"]);
    let strict = Options { strict: true, function: Some(0xfe06), ..V6 };
    let own = composed(&pinned(), &ids, &strict).unwrap();
    assert_eq!(text(&own), ["fc00:0:32:e001:16:e000:28:fe06"]);
    let loose = composed(&pinned(), &ids, &Options { strict: false, ..strict }).unwrap();
    assert_eq!(text(&loose), ["fc00:0:32:16:28:fe06::"]);
    assert_eq!(loose.visits, ["a", "b", "c"]);
}

#[test]
fn a_flexible_algorithm_has_a_block_of_its_own() {
    let ids = walk(&["hosts/x", "igp_node/a", "igp_node/b", "igp_node/c", "hosts/y"]);
    let own = composed(&pinned(), &ids, &Options { algo: 128, function: Some(0xfe06), ..V6 }).unwrap();
    assert_eq!(text(&own), ["fc00:1:32:16:28:fe06::"]);
    let none = composed(&pinned(), &ids, &Options { algo: 129, function: Some(0xfe06), ..V6 }).unwrap_err();
    assert_eq!(none, ComposeError::NoNodeSid { node: "a".into(), algo: 129 });
}

#[test]
fn function_is_looked_for_by_the_family_inside() {
    let answer = recorded("2026-01-shortest-path");
    let v4 = Options { family: Family::V4, ..V6 };
    // The leaf has only a uDT6, and without a label the function in a host's document is for IPv6.
    let none = composed(&fabric(), &ids(&answer["path"]), &v4).unwrap_err();
    assert_eq!(none, ComposeError::NoFunction { node: "leaf02".into(), family: Family::V4 });
    let own = composed(&fabric(), &ids(&answer["path"]), &Options { function: Some(0xfe04), ..v4 }).unwrap();
    assert_eq!(text(&own), ["fcbb:0:1004:1000:1006:fe04::"]);
}

#[test]
fn nodes_own_function_wins_and_the_other_is_named() {
    let answer = recorded("2026-01-shortest-path");
    let own = composed(&fabric(), &ids(&answer["path"]), &Options { function: Some(0xd000), ..V6 }).unwrap();
    assert_eq!(text(&own), ["fcbb:0:1004:1000:1006:fe06::"], "exactly one function");
    assert!(own.notes.is_empty(), "the host's document agrees with its leaf: {:?}", own.notes);
    let mut other = fabric();
    other.vertices.get_mut("hosts/srv6-pytorch-2").unwrap().sids[0].address = "fcbb:0:d000::".parse().unwrap();
    let own = composed(&other, &ids(&answer["path"]), &V6).unwrap();
    assert_eq!(text(&own), ["fcbb:0:1004:1000:1006:fe06::"]);
    assert_eq!(own.notes, ["leaf02 decapsulates at fe06; d000, said elsewhere, is not used"]);
}

/// Multi-plane fabrics use functions directly behind the block, and no uN.
#[test]
fn functions_alone_make_a_carrier_where_no_node_has_a_un() {
    let node = |name: &str, sids: Value| json!({"_id": format!("fabric_node/{name}"), "name": name, "router_id": name, "sids": sids});
    let link = |from: &str, to: &str, sid: &str| {
        json!({"_key": format!("{from}-{to}"), "_from": from, "_to": to,
        "srv6_endx_sid": [{"algorithm": 0, "endpoint_behavior": 57, "sid": sid}]})
    };
    let plane = Topology::read(&json!({
        "vertices": {
            "hosts/x": {"_id": "hosts/x", "prefix": "2001:db8:1::", "prefix_len": 64},
            "hosts/y": {"_id": "hosts/y", "prefix": "2001:db8:2::", "prefix_len": 64},
            "fabric_node/leaf00": node("leaf00", json!([])),
            "fabric_node/spine02": node("spine02", json!([])),
            "fabric_node/leaf07": node("leaf07", json!([{"srv6_sid": "fc00:3:d000::", "srv6_endpoint_behavior": {"endpoint_behavior": 62}}])),
        },
        "edges": [
            link("hosts/x", "fabric_node/leaf00", "fc00:3:1::"),
            link("fabric_node/leaf00", "fabric_node/spine02", "fc00:3:f002::"),
            link("fabric_node/spine02", "fabric_node/leaf07", "fc00:3:e007::"),
            link("fabric_node/leaf07", "hosts/y", "fc00:3:e009::"),
        ],
    }))
    .unwrap();
    let ids = walk(&["hosts/x", "fabric_node/leaf00", "fabric_node/spine02", "fabric_node/leaf07", "hosts/y"]);
    let own = composed(&plane, &ids, &Options { strict: true, ..V6 }).unwrap();
    assert_eq!(text(&own), ["fc00:3:f002:e007:d000::"]);
}

#[test]
fn what_is_no_path_is_refused() {
    let fabric = fabric();
    let same = walk(&["hosts/srv6-pytorch-0"]);
    assert_eq!(composed(&fabric, &same, &V6), Err(ComposeError::NoNode));
    let through = walk(&[
        "hosts/srv6-pytorch-0",
        "hosts/srv6-pytorch-1",
        "fabric_node/10.0.0.202_leaf02",
        "hosts/srv6-pytorch-2",
    ]);
    assert_eq!(composed(&fabric, &through, &V6), Err(ComposeError::ThroughEndpoint("srv6-pytorch-1".into())));
    let mut mixed = pinned();
    let b = mixed.vertices.get_mut("igp_node/b").unwrap();
    b.sids[0].address = "fc00:9:16::".parse().unwrap();
    let ids = walk(&["hosts/x", "igp_node/a", "igp_node/b", "igp_node/c", "hosts/y"]);
    let options = Options { function: Some(0xfe06), ..V6 };
    let refused = composed(&mixed, &ids, &options).unwrap_err().to_string();
    assert_eq!(refused, "b has its SID in block fc00:9::/32, the path began in fc00::/32; use SIDs of one block");
    mixed.vertices.get_mut("igp_node/b").unwrap().sids[0].address = "fc00:0:16::1".parse().unwrap();
    assert!(matches!(composed(&mixed, &ids, &options), Err(ComposeError::Malformed { .. })));
}

#[test]
fn algorithm_that_no_node_has_is_refused_though_the_server_says_found() {
    let answer = recorded("2026-01-shortest-path-algo-128");
    assert_eq!(answer["found"], json!(true));
    let refused = composed(&fabric(), &ids(&answer["path"]), &Options { algo: 128, ..V6 }).unwrap_err();
    assert_eq!(refused, ComposeError::NoNodeSid { node: "leaf00".into(), algo: 128 });
}
