//! Topology files of the path server, of `srv6d place`, and of labs.

use std::path::Path;

use srv6d_config as config;
use srv6d_lab::{FABRIC, FABRIC_BGP, Topology, srv6d_toml};
use srv6d_path_server::{EXAMPLE, Store};
use srv6d_placement::Fabric;

use super::most_text;

/// Fuzz target: topology files of the path server and of labs. Input: `| 0: a graph in one file, 1: in three, 2: a lab
/// | text |`; zero bytes separate the three files.
///
/// # Panics
/// If a file is refused without a reason or with a message larger than the file can explain, or if a lab is accepted
/// but the configuration of one of its nodes is refused.
pub fn topology(data: &[u8]) {
    let Some((&kind, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let refusal = match kind % 3 {
        0 => graph(text),
        1 => {
            let mut parts = text.splitn(3, '\0');
            let mut part = || parts.next().unwrap_or("[]");
            Store::parse_parts(part(), part(), part()).err().map(|why| why.to_string())
        }
        _ => lab(text),
    };
    if let Some(why) = refusal {
        assert!(!why.is_empty(), "refused without a reason");
        assert!(why.len() <= most_text(data, 16), "{} bytes of reasons for {}", why.len(), data.len());
    }
}

fn graph(text: &str) -> Option<String> {
    if let Ok(document) = serde_json::from_str(text)
        && let Ok(fabric) = Fabric::from_topology(&document)
    {
        assert!(fabric.node_count() + fabric.link_count() <= text.len(), "more nodes and links than text");
    }
    Store::parse(text).err().map(|why| why.to_string())
}

fn lab(text: &str) -> Option<String> {
    let topology = match Topology::parse(text, "lab.toml") {
        Ok(topology) => topology,
        Err(why) => return Some(why.to_string()),
    };
    for node in topology.nodes() {
        let written = srv6d_toml(&topology, node, Path::new("/run/srv6d.sock"));
        let read = config::parse(&written, &node.name);
        assert!(read.is_ok(), "{}\n{written}", read.err().map(|why| why.to_string()).unwrap_or_default());
    }
    None
}

/// Returns the shipped topologies, complete and with parts left out.
///
/// # Panics
/// If a seed cannot be made.
pub fn seeds() -> Vec<Vec<u8>> {
    let example: serde_json::Value = serde_json::from_str(EXAMPLE).expect("the example is JSON");
    let list = |name: &str| example.get(name).cloned().unwrap_or_default().to_string();
    let three = [list("nodes"), list("hosts"), list("edges")].join("\0");
    let minimal = r#"{"nodes": [{"_key": "a"}, {"_key": "b"}],
        "hosts": [{"_key": "h", "prefix": "2001:db8::", "prefix_len": 64}],
        "edges": [{"_key": "e", "_from": "fabric_node/a", "_to": "hosts/h", "latency": 1, "up": false}]}"#;
    let answer = r#"{"edges": [{"_key": "e", "_from": "n/a", "_to": "n/b", "capacity": 4}],
        "vertices": {"n/a": {"sids": [{"srv6_sid": "fcbb:0:1::"}]}, "n/b": {"plane": "x"}}}"#;
    let mut seeds: Vec<Vec<u8>> = [(0, EXAMPLE), (0, minimal), (0, answer), (1, &three), (2, FABRIC), (2, FABRIC_BGP)]
        .into_iter()
        .map(|(kind, text)| [&[kind][..], text.as_bytes()].concat())
        .collect();
    // Each of these seeds lacks one table of the lab.
    let tables: Vec<&str> = FABRIC.split("\n[[").collect();
    for left_out in 1..tables.len().min(24) {
        let kept = tables.iter().enumerate().filter(|&(number, _)| number != left_out).map(|(_, table)| *table);
        seeds.push([b"\x02".to_vec(), kept.collect::<Vec<_>>().join("\n[[").into_bytes()].concat());
    }
    seeds
}
