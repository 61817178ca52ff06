//! Tests of reading documents in the form of databases, and of what counts as a change.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::sync::Arc;

use serde_json::{Value, json};
use srv6d_controller::document::{Edge, Topology, Vertex};
use srv6d_controller::sid::Behavior::{self, Other, Ua, Udt4, Udt6, Udt46, Un};
use srv6d_controller::sid::Family;

const FABRIC: &str = include_str!("../data/2026-01-topology.json");

fn fabric() -> Value {
    serde_json::from_str(FABRIC).unwrap()
}

fn digest(change: impl Fn(&mut Value)) -> u64 {
    watching(&[], change)
}

fn watching(keys: &[&str], change: impl Fn(&mut Value)) -> u64 {
    let mut fabric = fabric();
    change(&mut fabric);
    Topology::parse(fabric.to_string().as_bytes(), keys).unwrap().digest
}

#[test]
fn order_revisions_loads_and_times_are_no_change() {
    let before = digest(|_| {});
    assert_eq!(before, digest(|fabric| fabric["edges"].as_array_mut().unwrap().reverse()));
    assert_eq!(before, digest(|fabric| fabric["edges"][3]["load"] = json!(990)));
    // Links of hosts have no load until a path over them is allocated.
    assert_eq!(before, digest(|fabric| drop(fabric["edges"][3].as_object_mut().unwrap().remove("load"))));
    assert_eq!(before, digest(|fabric| fabric["edges"][3]["_rev"] = json!("_kQ")));
    assert_eq!(before, digest(|fabric| fabric["edges"][3]["percent_util_out"] = json!(0.9)));
    assert_eq!(before, digest(|fabric| fabric["vertices"]["hosts/srv6-pytorch-1"]["cpu_utilization"] = json!(0.9)));
    assert_eq!(before, digest(|fabric| fabric["total_edges"] = json!(1)));
}

#[test]
fn what_may_move_a_path_is_a_change() {
    let leaf = "fabric_node/10.0.0.202_leaf02";
    let changed = [
        digest(|_| {}),
        digest(|fabric| drop(fabric["edges"].as_array_mut().unwrap().remove(3))),
        digest(|fabric| fabric["vertices"][leaf]["sids"][1]["srv6_sid"] = json!("fcbb:0:1006:fe46::")),
        digest(|fabric| fabric["vertices"][leaf]["sids"][1]["srv6_endpoint_behavior"]["endpoint_behavior"] = json!(64)),
        digest(|fabric| fabric["vertices"]["hosts/srv6-pytorch-2"]["prefix_len"] = json!(60)),
        digest(|fabric| fabric["edges"][3]["srv6_endx_sid"] = json!([{"sid": "fcbb:0:1004:e000::", "algorithm": 0}])),
    ];
    for (number, one) in changed.iter().enumerate() {
        assert!(!changed[..number].contains(one), "change {number} is not seen");
    }
}

/// A change of latencies matters only for paths by latency.
#[test]
fn what_a_path_is_chosen_by_is_a_change_where_it_is() {
    let slower = |fabric: &mut Value| fabric["edges"][3]["latency"] = json!(7);
    assert_eq!(digest(|_| {}), digest(slower));
    assert_ne!(watching(&["latency"], |_| {}), watching(&["latency"], slower));
    assert_eq!(watching(&["percent_util_out"], |_| {}), watching(&["percent_util_out"], slower));
    let shuffled = |fabric: &mut Value| fabric["edges"].as_array_mut().unwrap().reverse();
    assert_eq!(watching(&["latency"], |_| {}), watching(&["latency"], shuffled));
}

#[test]
fn prefixes_are_read_in_every_form() {
    let forms = [
        (json!({"prefix": "fcbb:0:0800:2::", "prefix_len": 64}), vec!["fcbb:0:800:2::/64"], 0),
        (json!({"prefix": "2001:db8:2::/56"}), vec!["2001:db8:2::/56"], 0),
        (json!({"prefix": "2001:db8:2::"}), vec!["2001:db8:2::/64"], 0),
        (json!({"prefix": "2001:db8:2::7", "prefix_len": 64}), vec!["2001:db8:2::/64"], 1),
        (json!({"prefix": "192.0.2.0", "prefix_len": 25}), vec!["192.0.2.0/25"], 0),
        (json!({"prefix": "192.0.2.9"}), vec!["192.0.2.9/32"], 0),
        (json!({"prefix": "2001:db8:2::", "ipv4_address": "192.0.2.7"}), vec!["2001:db8:2::/64", "192.0.2.7/32"], 0),
        (
            json!({"prefix": "2001:db8:2::", "ipv4_prefix": "192.0.2.0", "ipv4_prefix_len": 24, "ipv4_address": "192.0.2.7"}),
            vec!["2001:db8:2::/64", "192.0.2.0/24"],
            0,
        ),
        (json!({"prefix": "2001:db8:2::", "prefix_len": 640}), vec![], 1),
        (json!({"prefix": "somewhere"}), vec![], 1),
        (json!({"prefix": ""}), vec![], 1),
        (json!({"prefix": null, "prefix_len": null}), vec![], 0),
    ];
    for (mut document, expected, notes) in forms {
        document["_id"] = json!("hosts/y");
        let vertex = Vertex::read(&document).unwrap();
        let prefixes: Vec<String> = vertex.prefixes.iter().map(ToString::to_string).collect();
        assert_eq!(prefixes, expected, "{document}");
        assert_eq!(vertex.notes.len(), notes, "{:?}", vertex.notes);
        let (six, four) = (vertex.prefixes_of(Family::V6).count(), vertex.prefixes_of(Family::V4).count());
        assert_eq!(six + four, expected.len(), "{document}");
    }
}

#[test]
fn nodes_are_told_from_hosts() {
    let read = |document: Value| Vertex::read(&document);
    assert!(
        read(json!({"_id": "igp_node/a", "router_id": "0.0.0.1", "prefix": "fc00:0:1::", "prefix_len": 48}))
            .unwrap()
            .is_node
    );
    assert!(read(json!({"_id": "fabric_node/a", "sids": []})).unwrap().is_node);
    let host = read(json!({"_id": "gpus/host08-gpu02", "prefix": "2001:db8::", "sids": null})).unwrap();
    assert_eq!((host.is_node, host.name.as_str(), host.sids.len()), (false, "host08-gpu02", 0));
    assert_eq!(read(json!({"_id": "hosts/a", "name": ""})).unwrap().name, "a");
    assert_eq!(read(json!({"name": "nobody"})), None);
    assert_eq!(read(json!({"_id": 7})), None);
    let id = |length: usize| format!("hosts/{}", "x".repeat(length - "hosts/".len()));
    assert!(read(json!({"_id": id(256)})).is_some());
    assert_eq!(read(json!({"_id": id(257)})), None, "ids are remembered, and therefore bounded");
}

/// Tests answers that are not topologies, and answers with missing parts.
#[test]
fn answers_without_vertices_or_edges_are_refused() {
    for answer in [
        json!(null),
        json!([]),
        json!({}),
        json!({"edges": []}),
        json!({"vertices": {}}),
        json!({"edges": {}, "vertices": {}}),
    ] {
        assert!(Topology::read(&answer).is_err(), "{answer}");
    }
    let odd = json!({"edges": [7, {"_from": "a/b"}, null], "vertices": {"a/b": null, "a/c": {"_id": "a/c", "sids": [null, 7, {"srv6_sid": "x"}]}}});
    let topology = Topology::read(&odd).unwrap();
    assert_eq!((topology.edges.len(), topology.vertices.len()), (0, 1));
}

#[test]
fn walks_and_distances_follow_the_direction_of_edges() {
    let topology = Topology::read(&json!({
        "vertices": {"n/a": {"_id": "n/a"}, "n/b": {"_id": "n/b"}, "n/c": {"_id": "n/c"}},
        "edges": [{"_from": "n/a", "_to": "n/b", "_key": "1"}, {"_from": "n/a", "_to": "n/b", "_key": "2"}, {"_from": "n/b", "_to": "n/c"}],
    }))
    .unwrap();
    let walk = |ids: &[&str]| topology.missing_on(&ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>());
    assert_eq!(walk(&["n/a", "n/b", "n/c"]), None);
    assert_eq!(walk(&["n/a", "n/c"]).as_deref(), Some("n/a -> n/c"));
    assert_eq!(walk(&["n/c", "n/b"]).as_deref(), Some("n/c -> n/b"));
    assert_eq!(walk(&["n/a", "n/x"]).as_deref(), Some("n/x"));
    let hops = |from: &str| topology.hops_from(from).into_values().collect::<Vec<_>>();
    assert_eq!((hops("n/a"), hops("n/c")), (vec![0, 1, 2], vec![0]));
    assert_eq!(topology.edges_between("n/a", "n/b").len(), 2, "parallel links");
}

/// Small edges are what makes a topology of a given size expensive: a document of 32 bytes becomes a struct.
#[test]
fn an_edge_costs_little_memory_and_shares_its_ids() {
    let edges = (0..1000).map(|i| json!({"_from": format!("n/{}", i % 10), "_to": "n/x"})).collect::<Vec<_>>();
    let topology = Topology::read(&json!({"vertices": {}, "edges": edges})).unwrap();
    assert_eq!((topology.edges.len(), topology.edges.capacity()), (1000, 1000));
    assert!(size_of::<Edge>() <= 128, "{} bytes", size_of::<Edge>());
    assert!(topology.edges.windows(2).all(|pair| Arc::ptr_eq(&pair[0].to, &pair[1].to)));
    let from = topology.edges_between("n/3", "n/x");
    assert!(from.len() == 100 && from.windows(2).all(|pair| Arc::ptr_eq(&pair[0].from, &pair[1].from)));
}

#[test]
fn codes_of_the_registry_are_known_by_family() {
    let behaviors: Vec<Behavior> = [43, 48, 50, 52, 57, 59, 62, 63, 64, 61].map(Behavior::from_code).to_vec();
    assert_eq!(behaviors, [Un, Un, Un, Ua, Ua, Ua, Udt6, Udt4, Udt46, Other(61)]);
}
