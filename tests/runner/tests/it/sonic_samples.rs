//! Every sample switch is read and planned, and forwards through the real worker step over ports in memory.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;

use srv6d_pack::{build, decode};
use srv6d_plan::Plan;
use srv6d_runner::{Node, sonic};
use srv6d_sonic::{Reading, Switch, Usd, read};
use srv6d_srv6::desired::{Behavior, RouteAction, TableId};

fn sample(name: &str) -> Option<String> {
    let file: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../control/sonic/samples", name].iter().collect();
    fs::read_to_string(file).ok()
}

fn switch(name: &str) -> Switch {
    let (config_db, frr) = (sample(&format!("{name}.config_db.json")), sample(&format!("{name}.frr.conf")));
    assert!(config_db.is_some(), "{name}");
    let reading = read(config_db.as_deref(), frr.as_deref(), None, false);
    let Reading { switch, .. } = reading.unwrap_or_else(|findings| panic!("{name}: {findings:?}"));
    switch
}

fn plan(name: &str) -> Plan {
    sonic::plan(&switch(name), Usd::Always).unwrap_or_else(|why| panic!("{name}: {why}"))
}

/// A sample switch as a node that forwards frames.
struct Rig {
    plan: Plan,
    node: Node,
}

impl Rig {
    fn of(name: &str) -> Self {
        let plan = plan(name);
        assert_eq!(plan.pending, [], "{name}");
        let node = Node::new(&plan.desired).unwrap();
        Self { plan, node }
    }

    fn number(&self, port: &str) -> u16 {
        u16::try_from(self.plan.desired.ports.iter().position(|known| known.name == port).unwrap()).unwrap()
    }

    /// Sends a frame to the node. Returns the port through which it leaves and its layers, without the Ethernet header,
    /// which is checked here.
    fn pass(&mut self, port: &str, layers: &[&str]) -> (String, Vec<String>) {
        let number = self.number(port);
        let ethernet = format!("eth {} > {}", sonic::peer_mac(number), sonic::own_mac(number));
        let lines: Vec<String> = [ethernet.as_str()].iter().chain(layers).map(|line| (*line).to_owned()).collect();
        let built = build(&lines, None).unwrap();
        self.node.receive(port, &built.bytes).unwrap();
        let mut sent = self.node.run(0);
        assert_eq!(sent.len(), 1, "{:?}", self.node.counters());
        let (out, frame) = sent.remove(0);
        let number = self.number(&out);
        let layers = decode(&frame);
        assert_eq!(layers[0], format!("eth {} > {}", sonic::own_mac(number), sonic::peer_mac(number)));
        (out, layers[1..].to_vec())
    }

    /// Asserts that the frame leaves through `out` with this outermost header.
    fn expect(&mut self, port: &str, layers: &[&str], out: &str, header: &str) {
        let (left, found) = self.pass(port, layers);
        assert_eq!(left, out, "{found:?}");
        assert!(found[0].starts_with(header), "{header:?} is not the beginning of {:?}", found[0]);
    }

    fn drops(&mut self, port: &str, layers: &[&str], reason: &str) {
        let number = self.number(port);
        let ethernet = format!("eth {} > {}", sonic::peer_mac(number), sonic::own_mac(number));
        let lines: Vec<String> = [ethernet.as_str()].iter().chain(layers).map(|line| (*line).to_owned()).collect();
        self.node.receive(port, &build(&lines, None).unwrap().bytes).unwrap();
        assert_eq!(self.node.run(0), []);
        let counters = self.node.counters().unwrap();
        assert_eq!(counters.get(&format!("drop.{reason}")), Some(&1), "{counters:?}");
    }
}

const INNER: [&str; 2] = ["ip6 2000::1 > 3000::2 hl 64", "udp 50000 > 4791"];

fn carrier(destination: &str) -> Vec<String> {
    let outer = format!("ip6 1000::1 > {destination} hl 64");
    [outer.as_str()].iter().chain(&INNER).map(|line| (*line).to_owned()).collect()
}

fn around(destination: &str, inner: &str) -> Vec<String> {
    [format!("ip6 1000::1 > {destination} hl 64"), inner.to_owned(), "udp 50000 > 4791".to_owned()].to_vec()
}

fn lines(lines: &[String]) -> Vec<&str> {
    lines.iter().map(String::as_str).collect()
}

#[test]
fn every_sample_is_planned_without_an_error() {
    let names =
        ["fabric-leaf", "fabric-spine", "plane-leaf", "plane-spine", "ai-leaf", "ai-spine", "pe", "bgp-leaf", "alone"];
    for name in names {
        let plan = plan(name);
        assert_eq!(plan.pending, [], "{name}");
        assert!(plan.warnings.is_empty(), "{name}: {:?}", plan.warnings);
        Node::new(&plan.desired).unwrap();
    }
}

#[test]
fn a_leaf_of_the_fabric_decapsulates_for_its_host() {
    let mut rig = Rig::of("fabric-leaf");
    // The host's subnet lies inside the block, and so does the function behind the leaf's own locator.
    let packet = around("fd10:2:a1:fe06::", "ip6 2000::1 > fd10:2:f10::9 hl 64");
    let own = rig.number("Ethernet12");
    assert!(rig.plan.desired.routes.iter().any(|route| route.prefix.to_string() == "fd10:2:f10::/64"));
    // The neighbour is the host itself, which has to be added: so far only fe80::2 is behind the port.
    let host = "fd10:2:f10::9".parse().unwrap();
    let mut desired = rig.plan.desired.clone();
    desired.neighbors.insert((srv6d_srv6::desired::PortId(own), host), sonic::peer_mac(own));
    rig.node = Node::new(&desired).unwrap();
    rig.expect("Ethernet0", &lines(&packet), "Ethernet12", "ip6 2000::1 > fd10:2:f10::9 hl 63");
    let ended = around("fd10:2:a1::", "ip6 2000::1 > fd10:2:f10::9 hl 64");
    rig.expect("Ethernet4", &lines(&ended), "Ethernet12", "ip6 2000::1 > fd10:2:f10::9 hl 63");
}

#[test]
fn a_spine_of_the_fabric_has_one_sid_and_no_static_routes() {
    let plan = plan("fabric-spine");
    assert_eq!(plan.desired.sids.len(), 1);
    assert!(matches!(plan.desired.sids[0].behavior, Behavior::End { .. }));
    assert!(plan.desired.sids[0].flavors.usd);
    let forwards = plan.desired.routes.iter().filter(|route| matches!(route.action, RouteAction::Via(_)));
    assert_eq!(forwards.count(), 0, "they come from BGP");
}

#[test]
fn a_leaf_of_a_plane_shifts_pins_spreads_and_decapsulates_in_its_vrf() {
    let mut rig = Rig::of("plane-leaf");
    let desired = &rig.plan.desired;
    let adjacencies = desired.sids.iter().filter(|sid| matches!(sid.behavior, Behavior::EndX { .. }));
    assert_eq!((desired.sids.len(), adjacencies.count()), (11, 9));
    let legs: Vec<usize> = desired
        .routes
        .iter()
        .filter_map(|route| match &route.action {
            RouteAction::Via(hops) if route.prefix.prefix_len() == 48 => Some(hops.len()),
            _ => None,
        })
        .collect();
    assert_eq!(legs.iter().filter(|&&legs| legs == 8).count(), 15, "remote leaves, over every spine");
    assert_eq!(legs.iter().filter(|&&legs| legs == 1).count(), 8, "spines");
    let tenant = desired.ports.iter().find(|port| port.name == "Ethernet32").unwrap();
    assert_eq!(tenant.table, TableId(1001));

    // A shift, then the local uA of the third spine, which costs a second hop.
    let through = carrier("fd20:0:101:a002:102::");
    rig.expect("Ethernet36", &lines(&through), "Ethernet8", "ip6 1000::1 > fd20:0:102:: hl 62");
    let pinned = carrier("fd20:0:a005:201::");
    rig.expect("Ethernet36", &lines(&pinned), "Ethernet20", "ip6 1000::1 > fd20:0:201:: hl 63");
    let to_host = carrier("fd20:0:b009:7::");
    rig.expect("Ethernet0", &lines(&to_host), "Ethernet36", "ip6 1000::1 > fd20:0:7:: hl 63");
    // The tenant's port is in another VRF, but packets from it reach the SIDs.
    let from_tenant = carrier("fd20:0:a003:201:b00e:d100::");
    rig.expect("Ethernet32", &lines(&from_tenant), "Ethernet12", "ip6 1000::1 > fd20:0:201:b00e:d100:: hl 63");
    // The packet is decapsulated into the tenant's table, which contains the tenant's subnet only.
    let elsewhere = around("fd20:0:d100::", "ip6 2000::1 > 2001:db8:c1::9 hl 64");
    rig.drops("Ethernet0", &lines(&elsewhere), "no_route");
}

#[test]
fn flows_to_a_remote_leaf_take_every_spine() {
    let mut rig = Rig::of("plane-leaf");
    let mut taken = std::collections::BTreeSet::new();
    for source in 0..200 {
        let packet = [
            format!("ip6 1000::{source:x} > fd20:0:105:d100:: hl 64 fl {source}"),
            INNER[0].to_owned(),
            INNER[1].to_owned(),
        ];
        let (out, layers) = rig.pass("Ethernet36", &lines(&packet));
        assert!(layers[0].contains("hl 63"), "{layers:?}");
        taken.insert(out);
    }
    assert_eq!(taken.len(), 8, "{taken:?}");
}

#[test]
fn a_spine_of_a_plane_pins_every_leaf() {
    let mut rig = Rig::of("plane-spine");
    for leaf in 0..16 {
        let packet = carrier(&format!("fd20:0:201:b{leaf:03x}:d100::"));
        rig.expect("Ethernet0", &lines(&packet), &format!("Ethernet{}", leaf * 4), "ip6 1000::1 > fd20:0:d100:: hl 62");
    }
}

#[test]
fn adjacencies_without_address_go_to_whoever_is_there() {
    let mut rig = Rig::of("ai-leaf");
    // The uA has two SIDs: a /48 of the local block (LIB), and a /64 behind the locator. A packet to the /64 matches
    // one entry, so it costs one hop.
    rig.expect("Ethernet0", &lines(&carrier("fd30:1111:fe21:2::")), "Ethernet4", "ip6 1000::1 > fd30:1111:2:: hl 63");
    rig.expect("Ethernet0", &lines(&carrier("fd30:1111:1:fe22:2::")), "Ethernet8", "ip6 1000::1 > fd30:1111:2:: hl 63");
    // PSP and USD: at the last SID, the packet is decapsulated and still sent over its adjacency.
    rig.expect("Ethernet0", &lines(&carrier("fd30:1111:fe22::")), "Ethernet8", "ip6 2000::1 > 3000::2 hl 63");

    let switch = switch("ai-leaf");
    let config = sonic::configuration(&switch, Usd::Always).unwrap();
    let mut alone = sonic::environment(&switch, &config);
    alone.neighbors.clear();
    let waiting = srv6d_plan::plan(&config, &alone).unwrap();
    assert_eq!(waiting.pending.len(), 4, "{:?}", waiting.pending);
    assert_eq!(waiting.desired.sids.len(), 1, "only the uN needs nobody");
}

#[test]
fn a_provider_edge_decapsulates_for_two_customers_who_have_the_same_addresses() {
    let plan = plan("pe");
    let tables: Vec<TableId> = plan
        .desired
        .sids
        .iter()
        .filter_map(|sid| match &sid.behavior {
            Behavior::EndDt { table, .. } => Some(*table),
            _ => None,
        })
        .collect();
    assert_eq!(tables, [TableId(1001), TableId(1002)]);
    assert_eq!(plan.desired.tunnel.source, Some("fd40:9:1::1".parse().unwrap()));
    let mut rig = Rig::of("pe");
    // The red customer has a route to the destination, the grey one has none.
    let packet = |sid: &str| {
        [
            format!("ip6 1000::1 > {sid} hl 64"),
            "ip4 198.51.1.1 > 198.51.100.7 ttl 64".to_owned(),
            "udp 50000 > 4791".to_owned(),
        ]
    };
    rig.expect("Ethernet0", &lines(&packet("fd40:9:101:1::")), "Ethernet24", "ip4 198.51.1.1 > 198.51.100.7 ttl 63");
    rig.drops("Ethernet0", &lines(&packet("fd40:9:101:2::")), "no_route");
}

#[test]
fn sids_of_bgp_are_not_here_yet_and_their_vrf_is() {
    let plan = plan("bgp-leaf");
    assert!(plan.desired.sids.is_empty());
    let route = plan.desired.routes.iter().find(|route| route.prefix.to_string() == "fd50:3333:a001::/48").unwrap();
    assert_eq!(route.table, TableId(1001));
}

#[test]
fn config_db_alone_is_enough() {
    let mut rig = Rig::of("alone");
    rig.expect("Ethernet0", &lines(&carrier("fd60:6:1:b::")), "Ethernet4", "ip6 1000::1 > fd60:6:b:: hl 63");
    rig.expect("Ethernet0", &lines(&carrier("fd60:6:1:fe04:7::")), "Ethernet4", "ip6 1000::1 > fd60:6:7:: hl 63");
    rig.expect("Ethernet0", &lines(&carrier("fd60:6:fe04:7::")), "Ethernet4", "ip6 1000::1 > fd60:6:7:: hl 63");
    // The switch's blackhole drops packets to unknown SIDs, but not to the whole block.
    rig.drops("Ethernet0", &lines(&carrier("fd60:6:7:2::")), "blackhole");
    // uniform: the DSCP of the outer header is copied to the inner packet.
    let marked = ["ip6 1000::1 > fd60:6:1:: hl 64 tc 0xb8", "ip6 2000::1 > fd60:6:b::1 hl 64", "udp 50000 > 4791"];
    rig.expect("Ethernet0", &marked, "Ethernet4", "ip6 2000::1 > fd60:6:b::1 hl 63 tc 0xb8");
}

#[test]
fn without_usd_a_carrier_that_ends_is_refused() {
    let switch = switch("alone");
    let usd = |usd: Usd| {
        let desired = sonic::plan(&switch, usd).unwrap().desired;
        desired
            .sids
            .iter()
            .map(|sid| (sid.prefix.to_string(), sid.flavors.usd))
            .collect::<std::collections::BTreeMap<_, _>>()
    };
    assert!(usd(Usd::Always)["fd60:6:2::/48"]);
    // As in SONiC: USD only if the row says how to treat the DSCP.
    assert!(!usd(Usd::Configured)["fd60:6:2::/48"]);
    assert!(usd(Usd::Configured)["fd60:6:1::/48"]);
}
