//! Tests of a fabric whose spines tell their leaves by heartbeats how busy their links are.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use serde_json::Value;
use srv6d_lab::FABRIC;

use crate::support::lab::{Lab, SRV6D, eventually, srv6d, text};

/// Returns the fabric with a rate at each link between leaves and spines.
fn fabric() -> String {
    let (head, controller) = FABRIC.split_once("[controller]").unwrap();
    let rest = controller.split_once("\n[[node]]").unwrap().1;
    let rated = "[[link]]\nemulate = { rate = \"100Mbit\", packets = 64 }\nends = [\n    { node = \"leaf";
    let rest = rest.replace("[[link]]\nends = [\n    { node = \"leaf", rated);
    format!("{head}glb = true\n[[node]]{rest}")
}

fn show(lab: &Lab, node: &str, topic: &str) -> Value {
    serde_json::from_str(&lab.must(node, &[SRV6D, "show", topic, "--json"])).unwrap()
}

/// Returns the far bands of a leaf's members that leave by a port.
fn far_bands(lab: &Lab, leaf: &str, port: &str) -> Vec<Option<u64>> {
    let rows = show(lab, leaf, "balance");
    let of_port = |row: &&Value| row["member"].as_str().unwrap().starts_with(&format!("{port} "));
    let mut bands: Vec<Option<u64>> =
        rows.as_array().unwrap().iter().filter(of_port).map(|row| row["far_band"].as_u64()).collect();
    bands.sort_unstable();
    bands
}

#[test]
#[ignore = "needs root"]
fn leaves_see_an_impaired_link_behind_a_spine() {
    let lab = Lab::up("glb", &fabric());
    eventually("heartbeats of all spines", || {
        let view = show(&lab, "leaf00", "glb");
        let peers = view["peers"].as_array().unwrap();
        peers.len() == 3 && peers.iter().all(|peer| peer["state"] == "fresh")
    });
    let good = vec![Some(7); 2];
    for port in ["eth1", "eth2", "eth3"] {
        eventually("good links to both other leaves", || far_bands(&lab, "leaf00", port) == good);
    }
    let impaired = srv6d(&["lab", "impair", "--name", &lab.name, "leaf02-spine00", "--rate", "25Mbit"]);
    assert!(impaired.status.success(), "{}", text(&impaired.stderr));
    eventually("a worse link", || far_bands(&lab, "leaf00", "eth1") == [Some(2), Some(7)]);
    assert_eq!(far_bands(&lab, "leaf00", "eth2"), good, "only the links of spine00 to leaf02 are slow");
    assert_eq!(show(&lab, "spine00", "glb")["sent"].as_u64().map(|sent| sent > 0), Some(true));
    assert_eq!(show(&lab, "leaf00", "glb")["sent"], 0);
}
