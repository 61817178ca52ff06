//! Tests of topology files without root: refusals, and the configurations for a valid file.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::time::Duration;

use srv6d_config as config;
use srv6d_lab::{Chosen, FABRIC, FABRIC_BGP, Forwarder, Role, Routing, Topology, Via, plain_routes, srv6d_toml};

/// A valid file with two nodes and a link.
const PAIR: &str = r#"
name = "pair"
block = "fcbb::/32"

[[node]]
name = "host00"
role = "host"
steer = [{ prefix = "fcbb:0:800:1::/64", paths = [{ name = "there", segments = ["fcbb:0:1004:fe06::"] }] }]

[[node]]
name = "leaf00"
role = "leaf"
sids = [{ sid = "fcbb:0:1004::/48", behavior = "uN" }]

[[link]]
ends = [
    { node = "host00", port = "eth1", addresses = ["fcbb:0:800::2/64"] },
    { node = "leaf00", port = "eth1", addresses = ["fcbb:0:800::1/64"] },
]
"#;

/// Returns the error for `PAIR` in which `old` is replaced by `new`.
fn refused(old: &str, new: &str) -> String {
    assert!(PAIR.contains(old), "{old:?} is not in the text");
    Topology::parse(&PAIR.replacen(old, new, 1), "pair.toml").unwrap_err().to_string()
}

#[test]
fn pair_is_right_as_it_stands() {
    let topology = Topology::parse(PAIR, "pair.toml").unwrap();
    assert_eq!(topology.nodes().map(|node| node.kind).collect::<Vec<_>>(), [Forwarder::Srv6d, Forwarder::Srv6d]);
    assert_eq!(topology.mtu, 1500);
}

#[test]
fn mistakes_name_line_and_fix() {
    let sid = "{ sid = \"fcbb:0:1004::/48\", behavior = \"uN\" }";
    let mistakes: &[(&str, &str, &[&str])] = &[
        (
            "role = \"leaf\"",
            "rule = \"leaf\"",
            &["error: pair.toml:12:1: unknown field `rule`", "`role`", "\nfix: see docs/lab.md"],
        ),
        ("role = \"leaf\"", "role = \"tor\"", &["pair.toml:12:8: unknown variant `tor`", "`leaf`"]),
        (
            "name = \"leaf00\"",
            "name = \"host00\"",
            &["pair.toml:10: [[node]] host00: there are two nodes of this name"],
        ),
        (
            "node = \"leaf00\"",
            "node = \"leaf01\"",
            &["pair.toml:15: [[link]]: there is no node \"leaf01\"", "leaf00, host00"],
        ),
        ("name = \"pair\"", "name = \"Pair/..\"", &["\"Pair/..\" cannot be a lab's name", "lower-case letters"]),
        ("port = \"eth1\"", "port = \"lo\"", &["\"lo\" cannot be the name of a port", "such as eth1"]),
        ("fcbb:0:800::1/64", "fcbb:0:801::1/64", &["host00 eth1 and leaf00 eth1 share no IPv6 prefix", "2001:db8"]),
        ("fcbb:0:800::1/64", "fcbb:0:800::2/64", &["address fcbb:0:800::2 of leaf00 belongs to host00 already"]),
        ("{ node = \"leaf00\"", "{ node = \"host00\"", &["host00 eth1 has two links", "both ends are in host00"]),
        ("fcbb:0:1004::/48", "fc00:0:1004::/48", &["SID fc00:0:1004::/48 (uN) is not inside of the block fcbb::/32"]),
        ("fcbb:0:1004::/48", "fcbb:0:1004::1/48", &["bits behind its prefix length", "write fcbb:0:1004::/48"]),
        ("\"uN\"", "\"uA\"", &["SID fcbb:0:1004::/48 (uA) has no next hop", "write via"]),
        ("\"uN\"", "\"uN\", via = \"fe80::1\"", &["has a next hop", "only a uA has one"]),
        (sid, &format!("{sid}, {sid}"), &["SID fcbb:0:1004::/48 belongs to leaf00 already"]),
        ("[\"fcbb:0:1004:fe06::\"]", "[]", &["path \"there\" has no segment"]),
        ("paths = [{ name = \"there\", segments = [\"fcbb:0:1004:fe06::\"] }]", "paths = []", &["has no path"]),
        ("block = \"fcbb::/32\"", "block = \"fcbb::/32\"\nmtu = 1279", &["1279 is not an MTU", "1280 to 9500"]),
        (
            "[[link]]",
            "[[link]]\nemulate = { delay = \"5ms\" }",
            &["pair.toml:15: [[link]] emulate: ", "`rate`", "\nfix: "],
        ),
        (
            "[[link]]",
            "[[link]]\nemulate = { rate = \"10\" }",
            &["[[link]] emulate rate: \"10\" does not fit", "\"1Mbit\""],
        ),
        ("[[link]]", "[[link]]\nemulate = { rate = \"1Gbit\", jitter = 1 }", &["[[link]] emulate", "jitter"]),
        (
            "[[link]]",
            "[[link]]\nemulate = { rate = \"1Gbit\", queue = 9 }",
            &["[[link]] emulate queue: 9 bytes do not hold two packets", "queue = 3076"],
        ),
    ];
    for (old, new, expected) in mistakes {
        let error = refused(old, new);
        for part in *expected {
            assert!(error.contains(part), "{new}: {part:?} is not in:\n{error}");
        }
    }
}

#[test]
fn all_mistakes_are_named_at_once() {
    let error = refused("\"uN\"", "\"uA\"").matches("error:").count();
    assert_eq!(error, 1);
    let two = PAIR.replace("\"uN\"", "\"uA\"").replace("node = \"leaf00\"", "node = \"leaf01\"");
    let text = Topology::parse(&two, "pair.toml").unwrap_err().to_string();
    assert!(text.contains("has no next hop") && text.contains("there is no node"), "{text}");
}

#[test]
fn kernel_node_cannot_have_what_needs_a_vrf_device() {
    let text = PAIR.replace("role = \"leaf\"", "role = \"leaf\"\nkind = \"linux\"");
    Topology::parse(&text, "pair.toml").unwrap();
    for behavior in ["uDT4", "uDT46"] {
        let error = Topology::parse(&text.replace("uN", behavior), "pair.toml").unwrap_err().to_string();
        assert!(error.contains("VRF device") && error.contains("kind = \"srv6d\""), "{error}");
    }
}

#[test]
fn a_link_that_is_emulated_is_so_at_both_ends() {
    let text = PAIR.replace("[[link]]", "[[link]]\nemulate = { rate = \"10Mbit\", delay = \"5ms\", packets = 3000 }");
    let topology = Topology::parse(&text, "pair.toml").unwrap();
    for node in topology.nodes() {
        let text = srv6d_toml(&topology, node, Path::new("/run/x/srv6d.sock"));
        let config = config::parse(&text, &node.name).unwrap_or_else(|errors| panic!("{errors}"));
        let port = config.ports.first().unwrap().get_ref();
        let emulate = port.emulate.as_ref().unwrap();
        assert_eq!(emulate.rate.get_ref().0, 10_000_000, "{}", node.name);
        assert_eq!(emulate.delay.as_ref().unwrap().get_ref().0, Duration::from_millis(5));
        // Emulated ports may hold half of the packet memory, so there is more of it.
        assert_eq!(*config.workers.frames.as_ref().unwrap().get_ref(), 8192);
        srv6d_plan::plan(&config, &srv6d_plan::Environment::default()).unwrap_or_else(|errors| panic!("{errors}"));
    }
}

#[test]
fn a_link_of_a_kernel_is_not_emulated() {
    let text = PAIR.replace("[[link]]", "[[link]]\nemulate = { rate = \"10Mbit\" }");
    let kernel = text.replace("role = \"leaf\"", "role = \"leaf\"\nkind = \"linux\"");
    let error = Topology::parse(&kernel, "pair.toml").unwrap_err().to_string();
    assert!(error.contains("the kernel of leaf00 forwards") && error.contains("tc qdisc add dev eth1"), "{error}");
    assert_eq!(error.matches("error:").count(), 1, "{error}");
}

#[test]
fn shipped_fabric_is_three_by_three_by_three() {
    let topology = Topology::parse(FABRIC, "fabric.toml").unwrap();
    for role in [Role::Host, Role::Leaf, Role::Spine] {
        assert_eq!(topology.tier(role).count(), 3);
    }
    assert_eq!(topology.links().count(), 3 * 3 + 3, "every leaf to every spine, one host each");
    for host in topology.tier(Role::Host) {
        let own_leaf = &topology.ports(&host.name).first().unwrap().peer.node;
        let locator = topology.node(own_leaf).unwrap().sids.first().unwrap().prefix;
        assert_eq!(host.steer.len(), 4, "two other hosts, IPv6 and IPv4");
        for path in host.steer.iter().flat_map(|steer| &steer.paths) {
            assert!(locator.contains(path.segments.first().unwrap()), "{} begins with its own leaf", path.name);
        }
    }
}

#[test]
fn leaves_reach_each_other_over_all_spines() {
    let topology = Topology::parse(FABRIC, "fabric.toml").unwrap();
    let routes = plain_routes(&topology, "leaf00");
    let route = |prefix: &str| {
        let prefix = prefix.parse().unwrap();
        routes.iter().find(|route| route.prefix == prefix).map(|route| {
            let hops: Vec<String> = route.hops.iter().map(|(via, port)| format!("{via} {port}")).collect();
            (route.distance, hops)
        })
    };
    let spines = ["2001:db8::2 eth1", "2001:db8:0:1::2 eth2", "2001:db8:0:2::2 eth3"].map(str::to_owned).to_vec();
    assert_eq!(route("fcbb:0:1006::/48"), Some((2, spines.clone())));
    // Leaf and host both have the host's subnet, so routes to it lead to the leaf.
    assert_eq!(route("fcbb:0:800:2::/64"), Some((2, spines)));
    assert_eq!(route("fcbb:0:1001::/48"), Some((1, vec!["2001:db8:0:1::2 eth2".to_owned()])));
    assert_eq!(route("fcbb:0:1004::/48"), None, "its own locator needs no route");
    assert_eq!(route("fcbb:0:800::/64"), None, "its own host's subnet is on-link");
}

#[test]
fn with_glb_spines_help_and_leaves_choose_by_the_links_to_the_other_leaf() {
    let topology =
        Topology::parse(&FABRIC.replacen("\nmtu = 1500", "\nmtu = 1500\nglb = true", 1), "fabric.toml").unwrap();
    let text = |node: &str| srv6d_toml(&topology, topology.node(node).unwrap(), Path::new("/run/x"));
    let leaf = text("leaf00");
    assert!(leaf.contains("role = \"load-balancer-only\"\nnode_id = \"10.0.0.4\""), "{leaf}");
    assert_eq!(leaf.matches("neighbor_id = ").count(), 3, "the host sends no heartbeats: {leaf}");
    let route = leaf.split("[[route]]").find(|route| route.contains("\"fcbb:0:1006::/48\"")).unwrap();
    assert!(route.contains("balance = \"glb\"\nvia_nodes = [\"10.0.0.6\"]"), "leaf02 is behind the spines: {route}");
    let spine = text("spine00");
    assert!(spine.contains("role = \"helper-only\"") && !spine.contains("[[balance]]"), "{spine}");
    assert!(!text("host00").contains("[glb]"));
    for node in topology.nodes() {
        let config = config::parse(&text(&node.name), &node.name).unwrap();
        srv6d_plan::plan(&config, &srv6d_plan::Environment::default()).unwrap();
    }
    let by_bgp = FABRIC_BGP.replacen("\nmtu = 1500", "\nmtu = 1500\nglb = true", 1);
    let refused = Topology::parse(&by_bgp, "fabric.toml").unwrap_err().to_string();
    assert!(
        refused.contains("glb: with BGP nobody says") && refused.contains("fix: write routing = \"static\""),
        "{refused}"
    );
}

#[test]
fn hosts_carry_no_transit() {
    // leaf00 - host00 - leaf01: the only path between the leaves runs through a host, so they have no route to each
    // other.
    let more = PAIR.to_owned()
        + r#"
[[node]]
name = "leaf01"
role = "leaf"
sids = [{ sid = "fcbb:0:1005::/48", behavior = "uN" }]

[[link]]
ends = [
    { node = "host00", port = "eth2", addresses = ["2001:db8::2/64"] },
    { node = "leaf01", port = "eth1", addresses = ["2001:db8::1/64"] },
]
"#;
    let topology = Topology::parse(&more, "more.toml").unwrap();
    let reaches = |node: &str, prefix: &str| {
        plain_routes(&topology, node).iter().any(|route| route.prefix == prefix.parse().unwrap())
    };
    assert!(reaches("host00", "fcbb:0:1005::/48"));
    assert!(!reaches("leaf00", "fcbb:0:1005::/48"));
}

#[test]
fn generated_configurations_are_valid() {
    let topology = Topology::parse(FABRIC, "fabric.toml").unwrap();
    for node in topology.nodes() {
        let text = srv6d_toml(&topology, node, Path::new("/run/x/srv6d.sock"));
        let config = config::parse(&text, &node.name).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(config.ports.len(), topology.ports(&node.name).len());
        assert_eq!(config.sids.len(), node.sids.len());
        // Hosts get their paths from the controller.
        assert!(config.steers.is_empty());
        assert_eq!(config.jalapeno.is_some(), node.role == Role::Host);
        assert!(!config.routes.is_empty(), "{} reaches the others", node.name);
        assert_eq!(config.node.source.map(toml::Spanned::into_inner), node.source);
    }
}

#[test]
fn with_bgp_routers_follow_their_kernel_and_hosts_have_a_default_route() {
    let topology = Topology::parse(FABRIC_BGP, "fabric_bgp.toml").unwrap();
    assert_eq!(topology.routing, Routing::Bgp);
    for node in topology.nodes() {
        let text = srv6d_toml(&topology, node, Path::new("/run/x/srv6d.sock"));
        let config = config::parse(&text, &node.name).unwrap_or_else(|errors| panic!("{errors}"));
        let is_host = node.role == Role::Host;
        assert_eq!(config.kernel.is_some(), !is_host, "{}", node.name);
        let to: Vec<String> =
            plain_routes(&topology, &node.name).iter().map(|route| route.prefix.to_string()).collect();
        assert_eq!(to, if is_host { vec!["fcbb::/32", "::/0", "0.0.0.0/0"] } else { vec![] });
        assert_eq!(config.routes.len(), to.len());
        assert_eq!(config.steers.len(), node.steer.len());
    }
    // Any topology can be switched to BGP. This one cannot be switched to static routes, because its links have no
    // addresses.
    Topology::parse_with(FABRIC, "fabric.toml", Chosen { routing: Some(Routing::Bgp), via: None }).unwrap();
    let by_hand = Chosen { routing: Some(Routing::Static), via: None };
    let error = Topology::parse_with(FABRIC_BGP, "fabric_bgp.toml", by_hand).unwrap_err().to_string();
    assert!(error.contains("leaf00 eth1 and spine00 eth1 share no IPv6 prefix"), "{error}");
}

#[test]
fn with_fpm_routers_listen_to_zebra_and_not_to_their_kernel() {
    let by_fpm = Chosen { routing: None, via: Some(Via::Fpm) };
    let topology = Topology::parse_with(FABRIC_BGP, "fabric_bgp.toml", by_fpm).unwrap();
    for node in topology.nodes() {
        let text = srv6d_toml(&topology, node, Path::new("/run/x/srv6d.sock"));
        let config = config::parse(&text, &node.name).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(config.fpm.is_some(), node.role != Role::Host, "{}", node.name);
        assert!(config.kernel.is_none(), "{}", node.name);
    }
    let error = Topology::parse_with(FABRIC, "fabric.toml", by_fpm).unwrap_err().to_string();
    assert!(error.contains("via: without BGP there is no zebra") && error.contains("--routing bgp"), "{error}");
}
