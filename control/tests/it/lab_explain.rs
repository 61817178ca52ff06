//! `srv6d lab explain`: the way of a packet over all nodes is the way that packets take.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use serde_json::Value;

use crate::support::lab::{Lab, SRV6D, srv6d, text};

/// Two leaves, two spines. host02 is a plain Linux host, which has no srv6d.
pub const TOPOLOGY: &str = r#"
name = "explained"
block = "fcbb::/32"
host_prefixes = ["fcbb:0:800::/48"]

[[node]]
name = "host00"
role = "host"
steer = [
    { prefix = "fcbb:0:800:1::/64", paths = [{ name = "there", segments = ["fcbb:0:1004:1001:1005:fe06::"] }] },
    { prefix = "fcbb:0:800:9::/64", paths = [{ name = "nowhere", segments = ["fcbb:0:1004:1000:1005:fe06::"] }] },
]

[[node]]
name = "host01"
role = "host"
steer = [{ prefix = "fcbb:0:800::/64", paths = [{ name = "back", segments = ["fcbb:0:1005:1000:1004:fe06::"] }] }]

[[node]]
name = "host02"
role = "host"
kind = "linux"

[[node]]
name = "leaf00"
role = "leaf"
addresses = ["fcbb:0:1004::1/128"]
sids = [{ sid = "fcbb:0:1004::/48", behavior = "uN" }, { sid = "fcbb:0:1004:fe06::/64", behavior = "uDT6" }]

[[node]]
name = "leaf01"
role = "leaf"
addresses = ["fcbb:0:1005::1/128"]
sids = [{ sid = "fcbb:0:1005::/48", behavior = "uN" }, { sid = "fcbb:0:1005:fe06::/64", behavior = "uDT6" }]

[[node]]
name = "spine00"
role = "spine"
addresses = ["fcbb:0:1000::1/128"]
sids = [{ sid = "fcbb:0:1000::/48", behavior = "uN" }]

[[node]]
name = "spine01"
role = "spine"
addresses = ["fcbb:0:1001::1/128"]
sids = [{ sid = "fcbb:0:1001::/48", behavior = "uN" }]

[[link]]
ends = [
    { node = "host00", port = "eth1", addresses = ["fcbb:0:800::2/64"] },
    { node = "leaf00", port = "eth4", addresses = ["fcbb:0:800::1/64"], role = "host", allowed_carriers = ["fcbb:0:1004::/48"] },
]

[[link]]
ends = [
    { node = "host01", port = "eth1", addresses = ["fcbb:0:800:1::2/64"] },
    { node = "leaf01", port = "eth4", addresses = ["fcbb:0:800:1::1/64"], role = "host", allowed_carriers = ["fcbb:0:1005::/48"] },
]

[[link]]
ends = [
    { node = "host02", port = "eth1", addresses = ["fcbb:0:800:2::2/64"] },
    { node = "leaf01", port = "eth5", addresses = ["fcbb:0:800:2::1/64"], role = "host" },
]

[[link]]
ends = [
    { node = "leaf00", port = "eth1", addresses = ["2001:db8:0:0::1/64"] },
    { node = "spine00", port = "eth1", addresses = ["2001:db8:0:0::2/64"] },
]

[[link]]
ends = [
    { node = "leaf00", port = "eth2", addresses = ["2001:db8:0:1::1/64"] },
    { node = "spine01", port = "eth1", addresses = ["2001:db8:0:1::2/64"] },
]

[[link]]
ends = [
    { node = "leaf01", port = "eth1", addresses = ["2001:db8:1:0::1/64"] },
    { node = "spine00", port = "eth2", addresses = ["2001:db8:1:0::2/64"] },
]

[[link]]
ends = [
    { node = "leaf01", port = "eth2", addresses = ["2001:db8:1:1::1/64"] },
    { node = "spine01", port = "eth2", addresses = ["2001:db8:1:1::2/64"] },
]
"#;

/// Explains a packet. Returns the exit status, the nodes on the way, and how it ends.
fn way(lab: &Lab, from: &str, to: &str, more: &[&str]) -> (Option<i32>, Vec<String>, Value) {
    let said = srv6d(&[&["lab", "explain", "--name", &lab.name, from, to, "--json"], more].concat());
    let way: Value = serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{}", text(&said.stderr)));
    let nodes = way["nodes"].as_array().unwrap().iter().map(|node| node["node"].as_str().unwrap().to_owned());
    (said.status.code(), nodes.collect(), way["end"].clone())
}

/// Returns the number of packets that a node has received from other nodes.
fn received(lab: &Lab, node: &str) -> u64 {
    let rows: Value = serde_json::from_str(&lab.must(node, &[SRV6D, "show", "ports", "--json"])).unwrap();
    let fabric = rows.as_array().unwrap().iter().filter(|row| row["role"] == "fabric");
    fabric.map(|row| row["rx_packets"].as_u64().unwrap()).sum()
}

#[test]
#[ignore = "needs root"]
fn the_way_of_a_packet_is_explained_over_all_nodes() {
    let lab = Lab::up("explain", TOPOLOGY);
    let steered = ["host00", "leaf00", "spine01", "leaf01", "host01"];
    let (status, nodes, end) = way(&lab, "host00", "fcbb:0:800:1::2", &[]);
    assert_eq!((status, nodes), (Some(0), steered.map(str::to_owned).to_vec()), "{end}");
    assert_eq!((&end["delivered"], &end["node"]), (&true.into(), &"host01".into()));

    // Packets take this way, and nothing was sent to find it out.
    let before = ["spine00", "spine01"].map(|spine| received(&lab, spine));
    lab.must("host00", &["ping", "-n", "-c", "20", "-i", "0.02", "fcbb:0:800:1::2"]);
    let after = ["spine00", "spine01"].map(|spine| received(&lab, spine));
    assert!(after[1] - before[1] >= 20, "{before:?} {after:?}");
    for _ in 0..20 {
        way(&lab, "host00", "fcbb:0:800:1::2", &["--sport", "7"]);
    }
    let sent = ["spine00", "spine01"].map(|spine| received(&lab, spine));
    assert!(sent[1] - after[1] < 20, "{after:?} {sent:?}");

    // Packets to a host that has no steered prefix are not encapsulated, and the host's own kernel receives them.
    let (status, nodes, end) = way(&lab, "host00", "fcbb:0:800:2::2", &[]);
    assert_eq!(
        (status, nodes.first().unwrap().as_str(), nodes.last().unwrap().as_str()),
        (Some(0), "host00", "host02")
    );
    assert_eq!((nodes.len(), &end["delivered"]), (5, &true.into()), "{nodes:?}");
    let (status, nodes, _) = way(&lab, "host02", "fcbb:0:800:1::2", &[]);
    assert_eq!((status, nodes), (Some(0), ["host02", "leaf01", "host01"].map(str::to_owned).to_vec()));

    // This prefix is steered, but exists nowhere.
    let (status, nodes, end) = way(&lab, "host00", "fcbb:0:800:9::2", &[]);
    assert_eq!(
        (status, nodes.last().unwrap().as_str(), &end["delivered"]),
        (Some(1), "leaf01", &false.into()),
        "{end}"
    );
    assert!(end["why"].as_str().unwrap().contains("dropped"), "{end}");
    // No route leads to this destination.
    let (status, nodes, end) = way(&lab, "host00", "2001:db8:dead::1", &[]);
    assert_eq!((status, nodes.len()), (Some(1), 1), "{end}");
    assert!(end["why"].as_str().unwrap().contains("no way there"), "{end}");

    let said = text(&srv6d(&["lab", "explain", "--name", &lab.name, "host00", "fcbb:0:800:1::2"]).stdout);
    let words = ["[spine01]", "path there", "uN fcbb:0:1001::/48, shifted", "decapsulated", "delivered at host01"];
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    let unknown = srv6d(&["lab", "explain", "--name", &lab.name, "host07", "::1"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("fix: name one of them: host00"), "{}", text(&unknown.stderr));
}
