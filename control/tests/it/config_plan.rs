//! Tests of the plan that a valid configuration results in.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use srv6d_config::{self as config, Config, HostEngine, Polling, PortMode};
use srv6d_plan::{self as plan, Device, Environment, HostVeth, KernelNeighbor, Plan, PortDevice};
use srv6d_srv6::desired::{
    Behavior, Chance, Csid, DscpMode, DtFamily, Ecn, Emulation, Hop, HostPort, Link, LinkId, Mac, NonEct, Path, PortId,
    Role, RouteAction, TableId, UnknownSid,
};

const FULL: &str = include_str!("config_full.toml");

fn device(ifindex: u8, name: &str, addresses: &[&str]) -> Device {
    Device {
        name: name.to_owned(),
        ifindex: u32::from(ifindex),
        mac: Mac([2, 0, 0, 0, 0, ifindex]),
        mtu: 9000,
        up: true,
        addresses: addresses.iter().map(|net| net.parse().unwrap()).collect(),
    }
}

fn environment() -> Environment {
    let neighbor = |device: &str, address: &str, last| KernelNeighbor {
        device: device.to_owned(),
        address: address.parse().unwrap(),
        mac: Mac([2, 0, 0, 0, 9, last]),
    };
    Environment {
        devices: vec![
            device(1, "lo", &["127.0.0.1/8", "::1/128", "fcbb:0:1004::1/128"]),
            device(2, "eth1", &["fe80::1/64", "2001:db8:1::1/64"]),
            device(3, "eth2", &["fe80::1/64", "2001:db8:2::1/64"]),
            device(4, "eth1.100", &["192.0.2.1/24"]),
            device(5, "mgmt", &["198.51.100.7/24"]),
        ],
        neighbors: vec![
            neighbor("eth1", "fe80::2", 1),
            neighbor("eth2", "fe80::3", 2),
            neighbor("eth1.100", "192.0.2.9", 3),
            neighbor("mgmt", "198.51.100.1", 4),
        ],
        host: Some(HostVeth {
            device: "srv6d0p".into(),
            packet_mac: Mac([2, 0, 0, 0, 8, 1]),
            kernel_mac: Mac([2, 0, 0, 0, 8, 2]),
            mtu: 9000,
            up: true,
        }),
        cores: vec![0, 1],
        ..Environment::default()
    }
}

fn read(text: &str) -> Config {
    config::parse(text, "srv6d.toml").map_err(|errors| errors.to_string()).unwrap()
}

fn plan_in(text: &str, environment: &Environment) -> Plan {
    plan::plan(&read(text), environment).map_err(|errors| errors.to_string()).unwrap()
}

fn full() -> Plan {
    plan_in(FULL, &environment())
}

fn hop(port: u16, via: &str, weight: u16) -> Hop {
    Hop { port: PortId(port), via: Some(via.parse().unwrap()), weight }
}

#[test]
fn node_workers_host_and_api() {
    let plan = full();
    let tunnel = plan.desired.tunnel;
    assert_eq!(tunnel.source, Some("fcbb:0:1004::1".parse().unwrap()));
    assert_eq!((tunnel.hop_limit, tunnel.dscp), (63, DscpMode::Pipe(46)));
    assert!(tunnel.ecn_compat && tunnel.hash_qp && tunnel.decrement_local);
    let policy = &plan.desired.policy;
    assert_eq!((policy.icmp_per_second, policy.domain_sources.len()), (50, 2));
    assert!(policy.icmp_unreachable && policy.srh_lenient && policy.ua_last_forward && policy.dt_argument_accept);
    assert!(policy.vrf_sids);
    assert_eq!((policy.hash_seed, policy.least_path_mtu), (7, 1400));
    assert_eq!(plan.workers.busy_budget, 32);
    assert_eq!(plan.workers.cores, [Some(1)]);
    assert_eq!((plan.workers.polling, plan.workers.frames, plan.workers.ring), (Polling::Busy, 16384, 1024));
    assert_eq!((plan.host.interface.as_str(), plan.host.steer_local), ("srv6d1", false));
    assert_eq!(plan.host.engine, HostEngine::Tc);
    assert_eq!((plan.api.socket.to_str(), plan.api.metrics), (Some("/run/srv6d/leaf00.sock"), None));
    assert_eq!(plan.desired.blocks[0].unknown, Some(UnknownSid::Icmp));
    assert_eq!(plan.desired.host_prefixes.len(), 1);
}

#[test]
fn the_seed_of_choices_is_the_nodes_own_and_stays_the_same() {
    let seed = |text: &str, host_name: &str| {
        let environment = Environment { host_name: host_name.to_owned(), ..Environment::default() };
        plan_in(text, &environment).desired.policy.hash_seed
    };
    let of_leaf00 = seed("[node]\nname = \"leaf00\"", "server");
    assert_eq!(of_leaf00, seed("[node]\nname = \"leaf00\"", "another"));
    assert_eq!(of_leaf00, seed("", "leaf00"), "the host name is the name of a node without one");
    assert_ne!(of_leaf00, seed("", "leaf01"));
    assert_eq!(
        of_leaf00, 0x9ebb_89ca_c598_838a,
        "a new version of srv6d must choose as this one does, or all flows move"
    );
}

#[test]
fn an_empty_file_is_a_configuration_with_defaults() {
    let mut plan = plan_in("", &Environment::default());
    // Even a node without a name has a seed.
    plan.desired.policy.hash_seed = 0;
    assert_eq!(plan.workers.cores, [None]);
    assert_eq!((plan.workers.polling, plan.workers.frames, plan.workers.ring), (Polling::Adaptive, 8192, 2048));
    assert_eq!((plan.host.interface.as_str(), plan.host.steer_local), ("srv6d0", true));
    assert_eq!(plan.host.engine, HostEngine::Auto);
    assert_eq!(plan.api.socket.to_str(), Some("/run/srv6d/srv6d.sock"));
    assert_eq!(plan.api.metrics.map(|address| address.to_string()), Some("[::1]:9469".to_owned()));
    assert_eq!(plan.desired, srv6d_srv6::desired::Desired::default());
    assert!(plan.warnings.is_empty() && plan.pending.is_empty());
}

#[test]
fn ports_take_what_the_kernel_shows() {
    let plan = full();
    let ports = &plan.desired.ports;
    let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(names, ["eth1", "eth1.100", "eth2", "srv6d0p"]);
    assert_eq!(ports.iter().map(|port| port.device).collect::<Vec<_>>(), [0, 0, 2, 3]);
    let tenant = &ports[1];
    assert_eq!((tenant.vlan, tenant.table, tenant.role), (Some(100), TableId(100), Role::Host));
    assert_eq!((tenant.mac, tenant.mtu, tenant.up), (Mac([2, 0, 0, 0, 0, 4]), 9000, true));
    assert_eq!(tenant.icmp_source_v4, Some("192.0.2.1".parse().unwrap()));
    // The port has no IPv6 address, so that of the loopback is used.
    assert_eq!(tenant.icmp_source_v6, Some("fcbb:0:1004::1".parse().unwrap()));
    assert_eq!(ports[0].icmp_source_v6, Some("2001:db8:1::1".parse().unwrap()));
    assert!(ports[0].fill_checksum && !ports[1].fill_checksum);
    let device = |name: &str, mode| PortDevice { device: name.into(), mode, present: true };
    assert_eq!(plan.devices, [device("eth1", PortMode::Native), device("eth2", PortMode::Auto)]);
}

#[test]
fn the_own_veth_is_the_last_port() {
    let desired = full().desired;
    assert_eq!(desired.host, Some(HostPort { port: PortId(3), kernel_mac: Mac([2, 0, 0, 0, 8, 2]) }));
    assert_eq!((desired.ports[3].role, desired.ports[3].mac), (Role::Kernel, Mac([2, 0, 0, 0, 8, 1])));
    assert_eq!(plan_in(FULL, &Environment { host: None, ..environment() }).desired.host, None);
}

#[test]
fn a_port_becomes_a_link() {
    let chance = Chance::of;
    let ecn = Ecn { min: 20_000, max: 80_000, probability: chance(0.25), non_ect: NonEct::Pass };
    let expected = Emulation {
        rate: 97_000_003,
        queue: 300_000,
        packets: 1000,
        overhead: 20,
        delay: 50_000,
        loss: chance(0.001),
        ecn: Some(ecn),
    };
    // A gigabit for 448 µs is 56,000 bytes, and a seventh of it 8,000.
    let of_rtt = Ecn { min: 8000, max: 8000, probability: Chance::ALWAYS, non_ect: NonEct::Drop };
    let first = Emulation { ecn: Some(of_rtt), ..Emulation::of_rate(1_000_000_000) };
    assert_eq!(full().desired.emulated, [(PortId(0), first), (PortId(2), expected)].into());
    let of = |keys: &str| {
        let text = format!("[[port]]\nname = \"eth2\"\nemulate = {{ rate = \"1Gbit\"{keys} }}");
        plan_in(&text, &environment()).desired.emulated[&PortId(0)]
    };
    assert_eq!(of(""), Emulation::of_rate(1_000_000_000));
    let rule = |keys: &str| of(keys).ecn.map(|ecn| (ecn.min, ecn.max, ecn.probability, ecn.non_ect)).unwrap();
    assert_eq!(rule(", ecn = \"lab\""), (30_000, 120_000, chance(0.2), NonEct::Drop));
    assert_eq!(rule(", queue = 3000000, ecn = \"azure-lossless\"").1, 2 << 20);
    assert_eq!(rule(", queue = 3000000, ecn = \"hpcc-100g\"").0, 400_000);
}

#[test]
fn another_link_is_a_change_of_its_port() {
    let with = |rate: &str| {
        let text = format!("[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth2\"\nemulate = {{ rate = \"{rate}\" }}");
        plan_in(&text, &environment()).desired
    };
    assert_eq!(plan::diff(&with("1Mbit"), &with("2Mbit")).to_string(), "ports ~1");
}

#[test]
fn sids_become_behaviours() {
    let sids = full().desired.sids;
    let csid = |nflen| Some(Csid { lblen: 32, nflen });
    assert_eq!(sids[0].behavior, Behavior::End { csid: csid(16), dscp: DscpMode::Uniform });
    assert!(sids[0].flavors.psp && sids[0].flavors.usp && sids[0].flavors.usd);
    // The second next hop has no port; its subnet is that of eth2.
    let via = vec![hop(0, "fe80::2", 3), hop(2, "2001:db8:2::2", 1)];
    assert_eq!(sids[1].behavior, Behavior::EndX { csid: csid(32), via, backup: vec![hop(2, "fe80::3", 1)] });
    let (family, table, dscp) = (DtFamily::V46, TableId(100), DscpMode::Pipe(0));
    assert_eq!(sids[2].behavior, Behavior::EndDt { family, table, dscp });
    let via = vec![hop(1, "192.0.2.9", 1)];
    assert_eq!(sids[3].behavior, Behavior::EndDx { family: DtFamily::V4, via });
}

#[test]
fn steers_become_paths() {
    let steers = full().desired.steers;
    let first = &steers[0].paths[0];
    assert_eq!((steers[0].table, first.name.as_str(), first.full_srh), (TableId::MAIN, "fcbb:0:800:2::/64", true));
    assert_eq!((first.segments.addresses().len(), &first.via), (2, &vec![hop(0, "fe80::2", 1)]));
    let paths = &steers[1].paths;
    assert_eq!((steers[1].table, paths[0].name.as_str(), paths[0].weight), (TableId(100), "spine01", 2));
    assert!(paths[0].via.is_empty() && !paths[0].full_srh);
    assert_eq!((paths[1].name.as_str(), &paths[1].via), ("198.51.100.0/24@100#2", &vec![hop(2, "fe80::3", 1)]));
}

#[test]
fn connected_prefixes_are_routes_unless_configured() {
    let routes = full().desired.routes;
    let on_link = |port| RouteAction::Via(vec![Hop { port: PortId(port), via: None, weight: 1 }]);
    let find = |prefix: &str| routes.iter().find(|route| route.prefix == prefix.parse().unwrap());
    assert_eq!(find("2001:db8:1::/64").map(|route| (&route.action, route.table)), Some((&on_link(0), TableId::MAIN)));
    assert_eq!(find("192.0.2.0/24").map(|route| (&route.action, route.table)), Some((&on_link(1), TableId(100))));
    // Neither link-local prefixes nor those of devices that are not ports are routes.
    assert!(find("fe80::/64").is_none() && find("198.51.100.0/24").is_none());
    let own = format!("{FULL}\n[[route]]\nprefix = \"2001:db8:1::/64\"\ntype = \"blackhole\"");
    let routes = plan_in(&own, &environment()).desired.routes;
    let of_prefix: Vec<_> = routes.iter().filter(|route| route.prefix.to_string() == "2001:db8:1::/64").collect();
    assert_eq!(of_prefix.iter().map(|route| &route.action).collect::<Vec<_>>(), [&RouteAction::Blackhole]);
}

#[test]
fn local_addresses_live_in_the_table_of_their_port() {
    let addresses = full().desired.local_addresses;
    let local = |table, ip: &str| (TableId(table), ip.parse::<IpAddr>().unwrap());
    let expected = [
        local(100, "192.0.2.1"),
        local(100, "192.0.2.255"),
        local(254, "198.51.100.7"),
        local(254, "198.51.100.255"),
        local(254, "2001:db8:1::1"),
        local(254, "2001:db8:2::1"),
        local(254, "fcbb:0:1004::1"),
    ];
    assert_eq!(addresses, expected);
}

/// Returns the roles, with their reasons, of two ports that have no role in the file.
fn roles_of(rest: &str, faced: &[&str]) -> Vec<(Role, String)> {
    let ports = "[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth2\"\n";
    let environment =
        Environment { faced_routers: faced.iter().map(|name| (*name).to_owned()).collect(), ..Environment::default() };
    let plan = plan_in(&format!("{ports}{rest}"), &environment);
    let roles = plan.desired.ports.iter().zip(&plan.roles);
    roles.map(|(port, reason)| (port.role, reason.to_string())).collect()
}

#[test]
fn a_port_without_a_role_is_closed_unless_it_faces_a_router() {
    let block = "[node]\nsource = \"2001:db8::1\"\n[[block]]\nprefix = \"fcbb::/32\"\nhosts = [\"fcbb:0:800::/48\"]\n";
    let route = |prefix: &str, via: &str| format!("{block}[[route]]\nprefix = \"{prefix}\"\n{via}port = \"eth2\"\n");
    let gateway = "via = \"fe80::1\"\n";
    for (rest, opens) in [
        (block.to_owned(), false),
        (route("fcbb:0:1000::/48", gateway), true),
        (route("fc00::/8", gateway), true),
        (route("::/0", gateway), true),
        (route("2001:db8:1::/48", gateway), false),
        (route("fcbb:0:800:1::/64", gateway), false),
        (route("fcbb:0:1000::/48", ""), false),
        (route("0.0.0.0/0", "via = \"192.0.2.1\"\n"), false),
        (
            format!(
                "{block}[[steer]]\nprefix = \"3fff::/20\"\nsegments = [\"fcbb:0:1000:fe06::\"]\nvia = \"fe80::1\"\n\
                 port = \"eth2\"\n"
            ),
            true,
        ),
        (
            format!(
                "{}[[steer]]\nprefix = \"3ffe::/20\"\nsegments = [\"3fff:0:1000::\"]\n",
                route("3fff:0:1000::/48", gateway)
            ),
            true,
        ),
        (
            format!(
                "{block}[[sid]]\nsid = \"fcbb:0:1004:fe24::/64\"\nbehavior = \"uA\"\nvia = \"fe80::1\"\nport = \"eth2\"\n"
            ),
            true,
        ),
    ] {
        let roles = roles_of(&rest, &[]);
        assert_eq!(roles[0].0, Role::Edge, "{rest}");
        assert_eq!(roles[1].0, if opens { Role::Fabric } else { Role::Edge }, "{rest}: {}", roles[1].1);
        assert_eq!(roles[1].1.contains("closed"), !opens, "{}", roles[1].1);
    }
    let kept = roles_of(block, &["eth1"]);
    assert_eq!((kept[0].0, kept[1].0), (Role::Fabric, Role::Edge), "what a learned route has opened stays open");
    let written = roles_of(&format!("{block}[[port]]\nname = \"eth3\"\nrole = \"edge\"\n"), &["eth3"]);
    assert_eq!(written[2], (Role::Edge, String::new()));
}

#[test]
fn static_neighbors_go_before_the_kernels() {
    let neighbors = full().desired.neighbors;
    let mac = |port, ip: &str| neighbors.get(&(PortId(port), ip.parse().unwrap())).copied();
    assert_eq!(mac(0, "fe80::2"), Some(Mac([2, 0, 0, 0, 1, 2])));
    assert_eq!(mac(2, "fe80::3"), Some(Mac([2, 0, 0, 0, 9, 2])));
    assert_eq!(mac(1, "192.0.2.9"), Some(Mac([2, 0, 0, 0, 9, 3])));
    assert_eq!(neighbors.len(), 3);
}

#[test]
fn x04_a_port_that_does_not_exist_yet_is_down_and_pending() {
    let mut environment = environment();
    environment.devices.retain(|device| device.name != "eth2");
    let plan = plan_in(FULL, &environment);
    assert_eq!((plan.desired.ports[2].name.as_str(), plan.desired.ports[2].up), ("eth2", false));
    assert_eq!(plan.devices[1], PortDevice { device: "eth2".into(), mode: PortMode::Auto, present: false });
    let headlines: Vec<String> = plan.pending.iter().map(config::Diagnostic::headline).collect();
    assert!(headlines.iter().any(|line| line.contains("waits for network device eth2")), "{headlines:?}");
    // A next hop whose subnet disappeared with the port waits, too. The other member stays.
    assert!(headlines.iter().any(|line| line.contains("[[sid]] via: waits")), "{headlines:?}");
    let Behavior::EndX { via, .. } = &plan.desired.sids[1].behavior else { panic!("not a uA") };
    assert_eq!(via, &[hop(0, "fe80::2", 3)]);
    // The path over the waiting route is omitted; the other paths remain.
    assert_eq!(plan.desired.steers[1].paths.len(), 2);
    assert!(headlines.iter().any(|line| line.contains("waits for a route to the first segment")), "{headlines:?}");
}

#[test]
fn x04_everything_waits_where_nothing_is_known() {
    let plan = plan_in(FULL, &Environment::default());
    assert!(plan.desired.ports.iter().all(|port| !port.up));
    assert!(plan.warnings.is_empty());
}

#[test]
fn d25_the_default_table_has_four_names() {
    let table = |written: &str| {
        let text = format!("[[sid]]\nsid = \"fcbb:0:1::/48\"\nbehavior = \"uDT6\"\ntable = {written}");
        plan_in(&text, &Environment::default()).desired.sids[0].behavior.clone()
    };
    for written in ["\"main\"", "\"default\"", "\"lo\"", "254", "\"254\""] {
        assert!(matches!(table(written), Behavior::EndDt { table: TableId::MAIN, .. }), "{written}");
    }
    assert!(matches!(table("7"), Behavior::EndDt { table: TableId(7), .. }));
}

#[test]
fn e23_an_explicit_or_longer_first_hop_is_no_loop() {
    let base = "[node]\nsource = \"fcbb:0:1004::1\"\n[[port]]\nname = \"eth1\"\n[[block]]\nprefix = \"fcbb::/32\"\n";
    let all = "[[steer]]\nprefix = \"::/0\"\nsegments = [\"fcbb:0:2:3::\"]\n";
    let explicit = format!("{base}{all}via = \"2001:db8:1::2\"\nport = \"eth1\"");
    assert_eq!(plan_in(&explicit, &environment()).desired.steers.len(), 1);
    // The connected /64 is longer than ::/0, and so is the route to the segment.
    let routed = format!("{base}{all}[[route]]\nprefix = \"fcbb:0:2::/48\"\nvia = \"2001:db8:1::2\"");
    assert_eq!(plan_in(&routed, &environment()).desired.steers[0].paths[0].via, []);
}

/// The kernel removes the addresses of a device that goes down. The result must be a plan and not a refusal, because
/// otherwise the tables could not be updated.
#[test]
fn e23_a_port_that_flaps_is_no_loop() {
    let text = "[node]\nsource = \"fcbb:0:1004::1\"\n[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth2\"\n\
        [[steer]]\nprefix = \"::/0\"\nsegments = [\"fcbb:0:2:3::\"]\n\
        [[route]]\nprefix = \"fcbb:0:2::/48\"\nvia = \"2001:db8:1::2\"";
    assert_eq!(plan_in(text, &environment()).desired.steers.len(), 1);
    let mut down = environment();
    (down.devices[1].up, down.devices[1].addresses) = (false, Vec::new());
    for text in [text.to_owned(), format!("{text}\nport = \"eth1\"")] {
        let plan = plan_in(&text, &down);
        assert!(plan.desired.steers.is_empty() && !plan.desired.ports[0].up);
        assert!(plan.pending.iter().any(|note| note.what.starts_with("waits for a route to the path's own")));
    }
}

#[test]
fn e30_carriers_of_lib_usids_alone_are_legal() {
    let text = "[node]\nsource = \"2001:db8::1\"\n[[block]]\nprefix = \"fcbb::/32\"\n[[port]]\nname = \"eth1\"\n\
        [[steer]]\nprefix = \"2001:db8:9::/64\"\nsegments = [\"fcbb:0:f001:e002:d000::\"]\nvia = \"fe80::2\"\nport = \"eth1\"";
    assert_eq!(plan_in(text, &environment()).desired.steers.len(), 1);
}

#[test]
fn x06_lengths_that_iproute2_takes() {
    for (lblen, nflen) in [(32, 16), (16, 16), (16, 32), (48, 8), (8, 48), (32, 32), (120, 8)] {
        let text =
            format!("[[sid]]\nsid = \"fcbb::/{}\"\nbehavior = \"uN\"\nlblen = {lblen}\nnflen = {nflen}", lblen + nflen);
        let sids = plan_in(&text, &Environment::default()).desired.sids;
        assert!(matches!(sids[0].behavior, Behavior::End { csid: Some(c), .. } if c == Csid { lblen, nflen }));
    }
}

#[test]
fn doubtful_but_right_is_a_warning() {
    let warnings = |text: &str| {
        let plan = plan_in(text, &environment());
        plan.warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let outside = warnings("[[block]]\nprefix = \"fcbb::/32\"\n[[sid]]\nsid = \"fccc:0:1::/48\"\nbehavior = \"uN\"");
    assert!(outside.contains("warning: srv6d.toml:4:7: [[sid]] sid: fccc:0:1::/48 lies outside"), "{outside}");
    let foreign = warnings("[node]\nsource = \"2001:db8::99\"");
    assert!(foreign.contains("not an address of this node") && foreign.contains("ip -6 address add 2001:db8::99/128"));
    let nflen = warnings(
        "[[block]]\nprefix = \"fcbb::/32\"\n[[sid]]\nsid = \"fcbb:0:1:2::/64\"\nbehavior = \"uN\"\nnflen = 16",
    );
    assert!(nflen.contains("srv6d.toml:6:") && nflen.contains("write nflen = 32"), "{nflen}");
}

#[test]
fn written_out_and_read_again_it_plans_the_same() {
    let written = toml::to_string(&read(FULL)).unwrap();
    assert_eq!(plan_in(&written, &environment()).desired, full().desired);
    assert_eq!(toml::to_string(&read(&written)).unwrap(), written);
}

#[test]
fn a_diff_counts_by_kind() {
    let before = full().desired;
    assert_eq!(plan::diff(&before, &before).to_string(), "no change");
    let changed = FULL
        .replace("hop_limit = 63", "hop_limit = 64")
        .replace("weight = 3", "weight = 4")
        .replace("[[sid]]\nsid = \"fcbb:0:1004:fe07::/64\"", "[[sid]]\nsid = \"fcbb:0:1004:fe08::/64\"")
        .replace("[[route]]\nprefix = \"203.0.113.0/24\"", "[[route]]\nprefix = \"203.0.113.0/25\"");
    let diff = plan::diff(&before, &plan_in(&changed, &environment()).desired);
    assert_eq!(diff.to_string(), "node ~1, sids +1 -1 ~1, routes +1 -1");
    assert!(diff.lines().contains(&"~ sids: fcbb:0:1004:fe24::/64".to_owned()), "{:?}", diff.lines());
    assert!(diff.lines().contains(&"- routes: 203.0.113.0/24 table 100".to_owned()), "{:?}", diff.lines());
}

/// A publisher that sends only differences must not miss one.
#[test]
fn a_new_own_veth_is_a_change() {
    let mut moved = environment();
    moved.host.as_mut().unwrap().kernel_mac = Mac([2, 0, 0, 0, 8, 9]);
    assert_eq!(plan::diff(&full().desired, &plan_in(FULL, &moved).desired).to_string(), "node ~1");
    moved.host = None;
    assert_eq!(plan::diff(&full().desired, &plan_in(FULL, &moved).desired).to_string(), "node ~1, ports -1");
}

#[test]
fn a_port_that_only_moves_to_another_number_changes_nothing_else() {
    let text = |ports: [&str; 2]| {
        format!(
            "[[port]]\nname = \"{}\"\n[[port]]\nname = \"{}\"\n[[route]]\nprefix = \"2001:db8:9::/64\"\n\
             via = \"fe80::2\"\nport = \"eth1\"",
            ports[0], ports[1]
        )
    };
    let bare = Environment { host: None, ..environment() };
    let before = plan_in(&text(["eth1", "eth2"]), &bare).desired;
    let diff = plan::diff(&before, &plan_in(&text(["eth2", "eth1"]), &bare).desired);
    assert_eq!(diff.to_string(), "ports ~2");
    let vlans =
        "[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth1.1\"\nvlan = 1\n[[port]]\nname = \"eth1.2\"\nvlan = 2";
    let swapped = vlans.replace("= 1", "= 3").replace(".1", ".3").replace("= 2", "= 1").replace(".2", ".1");
    let swapped = swapped.replace("= 3", "= 2").replace(".3", ".2");
    let (before, after) = (plan_in(vlans, &bare).desired, plan_in(&swapped, &bare).desired);
    assert_eq!(plan::diff(&before, &after).to_string(), "ports ~2");
}

#[test]
fn an_adjacency_without_address_is_the_only_neighbour_on_its_port() {
    let text = "[[block]]\nprefix = \"fcbb::/32\"\n[[port]]\nname = \"eth1\"\n\
                [[sid]]\nsid = \"fcbb:0:e001::/48\"\nbehavior = \"uA\"\nport = \"eth1\"\n";
    let mut here = environment();
    let via = |plan: &Plan| match &plan.desired.sids[0].behavior {
        Behavior::EndX { via, .. } => via.clone(),
        other => panic!("{other:?}"),
    };
    here.neighbors.clear();
    let waiting = plan_in(text, &here);
    assert!(waiting.desired.sids.is_empty());
    assert!(waiting.pending[0].to_string().contains("waits for a neighbour on eth1"), "{}", waiting.pending[0]);

    let neighbor = |address: &str, last| KernelNeighbor {
        device: "eth1".to_owned(),
        address: address.parse().unwrap(),
        mac: Mac([2, 0, 0, 0, 9, last]),
    };
    // IPv4 cannot be the next hop of a uA.
    here.neighbors.push(neighbor("192.0.2.7", 7));
    assert!(plan_in(text, &here).desired.sids.is_empty());
    here.neighbors.push(neighbor("2001:db8:1::2", 1));
    assert_eq!(via(&plan_in(text, &here)), [hop(0, "2001:db8:1::2", 1)]);
    // The same neighbour has two addresses; the link-local one is taken, because it stays when addresses are
    // renumbered.
    here.neighbors.push(neighbor("fe80::2", 1));
    assert_eq!(via(&plan_in(text, &here)), [hop(0, "fe80::2", 1)]);
    here.neighbors.push(neighbor("fe80::9", 9));
    let several = plan_in(text, &here);
    assert!(several.desired.sids.is_empty());
    assert!(several.pending[0].to_string().contains("2 neighbours are on eth1"), "{}", several.pending[0]);
}

#[test]
fn unknown_sids_of_a_block_may_follow_shorter_routes() {
    let text = "[[block]]\nprefix = \"fcbb::/32\"\nunknown = \"route\"\n";
    assert_eq!(plan_in(text, &environment()).desired.blocks[0].unknown, None);
}

/// Each port is compared with few others, if any: with all of them, this would take minutes.
#[test]
fn a_configuration_of_many_ports_is_planned_within_a_minute() {
    const PORTS: usize = 12_000;
    let mut text = "[node]\nsource = \"2001:db8::1\"\n[[block]]\nprefix = \"fcbb::/32\"\n".to_owned();
    for n in 0..PORTS {
        let _ = write!(text, "[[port]]\nname = \"eth{n}\"\nrole = \"fabric\"\n");
        let (device, vlan) = (n / 4000, n % 4000 + 1);
        let _ = write!(text, "[[port]]\nname = \"eth{device}.{vlan}\"\nvlan = {vlan}\nrole = \"edge\"\n");
        let _ = write!(text, "[[sid]]\nsid = \"fcbb:0:{:x}::/48\"\nbehavior = \"uN\"\n", n + 1);
        let _ = write!(text, "[[route]]\nprefix = \"3ffe:{:x}::/32\"\nvia = \"fe80::2\"\nport = \"eth{n}\"\n", n + 1);
        let _ = write!(text, "[[neighbor]]\naddress = \"fe80::2\"\nport = \"eth{n}\"\nmac = \"02:00:00:00:00:01\"\n");
    }
    let peers: Vec<String> = (0..PORTS).map(|n| format!("\"hosts/h{n}\"")).collect();
    let _ = write!(
        text,
        "[jalapeno]\nendpoint = \"http://[::1]:30800\"\nsource = \"hosts/a\"\npeers = [{}]\n",
        peers.join(", ")
    );
    let device = |n: usize, name: String| Device {
        name,
        ifindex: u32::try_from(n + 2).unwrap(),
        mac: Mac::default(),
        mtu: 1500,
        up: true,
        addresses: vec![format!("2001:db8:{:x}:{:x}::1/64", n / 60_000 + 1, n % 60_000).parse().unwrap()],
    };
    let vlans = (0..PORTS).map(|n| format!("eth{}.{}", n / 4000, n % 4000 + 1));
    let names = (0..PORTS).map(|n| format!("eth{n}")).chain(vlans);
    let devices = names.enumerate().map(|(n, name)| device(n, name)).collect();
    let environment = Environment { devices, ..Environment::default() };
    let begun = Instant::now();
    let planned = plan::plan(&config::parse(&text, "srv6d.toml").unwrap(), &environment).unwrap();
    assert_eq!(planned.desired.ports.len(), 2 * PORTS);
    assert_eq!(planned.devices.len(), PORTS, "VLANs share their device");
    assert!(begun.elapsed() < Duration::from_mins(1), "it took {:?}", begun.elapsed());
}

/// A node with two links: the speed of the first one is known.
const WEIGHTED: &str = r#"
[[block]]
prefix = "fcbb::/32"
[[port]]
name = "eth1"
speed = "100Gbit"
[[port]]
name = "eth2"
role = "fabric"
[[balance]]
name = "fare"
mode = "weighted"
[[route]]
prefix = "fcbb:0:1006::/48"
balance = "fare"
"#;

fn weights_of(plan: &Plan, prefix: &str) -> Vec<u16> {
    let route = plan.desired.routes.iter().find(|route| route.prefix.to_string() == prefix).unwrap();
    let RouteAction::Via(hops) = &route.action else { panic!("{route:?}") };
    hops.iter().map(|hop| hop.weight).collect()
}

/// Returns the weights of the route with these next hops, and the warnings.
fn weighted(hops: &str) -> (Vec<u16>, Vec<String>) {
    let plan = plan_in(&format!("{WEIGHTED}nexthops = [{hops}]\n"), &environment());
    let prefix = "fcbb:0:1006::/48";
    assert_eq!(plan.desired.balance.policy_of(TableId::MAIN, prefix.parse().unwrap()), 0, "the hash chooses");
    (weights_of(&plan, prefix), plan.warnings.iter().map(ToString::to_string).collect())
}

#[test]
fn weights_are_those_of_the_narrowest_links() {
    let three = r#"{ via = "fe80::2", port = "eth1" }, { via = "fe80::3", port = "eth1", capacity = "400Gbit" },
        { via = "fe80::4", port = "eth2", capacity = "100Gbit" }"#;
    let hops = format!(r#"{{ via = "fe80::1", port = "eth1", capacity = "25Gbit" }}, {three}"#);
    assert_eq!(weighted(&hops), (vec![2500, 10_000, 10_000, 10_000], Vec::new()));
}

#[test]
fn weights_are_equal_if_one_capacity_is_not_known() {
    let (weights, warnings) =
        weighted(r#"{ via = "fe80::1", port = "eth1", capacity = "25Gbit" }, { via = "fe80::2", port = "eth2" }"#);
    assert_eq!(weights, [1, 1]);
    assert!(
        matches!(&warnings[..], [only] if only.contains("what next hop fe80::2 on eth2 can carry")),
        "{warnings:?}"
    );
}

#[test]
fn weights_of_a_route_are_its_own() {
    let (weights, warnings) =
        weighted(r#"{ via = "fe80::1", port = "eth1", weight = 3 }, { via = "fe80::2", port = "eth1" }"#);
    assert_eq!((weights, warnings), (vec![3, 1], Vec::new()));
}

#[test]
fn a_path_carries_what_its_next_hops_carry_together() {
    let steer = r#"nexthops = [{ via = "fe80::1", port = "eth1" }, { via = "fe80::2", port = "eth1" }]
[[steer]]
prefix = "2001:db8:9::/48"
source = "fcbb:0:1004::1"
balance = "fare"
paths = [
  { segments = ["fcbb:0:1001:fe04::"], nexthops = [
    { via = "fe80::1", port = "eth1" }, { via = "fe80::2", port = "eth1", capacity = "50Gbit" }] },
  { segments = ["fcbb:0:1002:fe04::"], nexthops = [{ via = "fe80::2", port = "eth1" }], capacity = "400Gbit" },
  { name = "slow", segments = ["fcbb:0:1003:fe04::"], via = "fe80::3", port = "eth2", capacity = "2.5Gbit" },
]
"#;
    let plan = plan_in(&format!("{WEIGHTED}{steer}"), &environment());
    let weights: Vec<u16> = plan.desired.steers[0].paths.iter().map(|path| path.weight).collect();
    assert_eq!(weights, [15_000, 10_000, 250]);
    assert_eq!(plan.desired.steers[0].paths[0].via[1].weight, 1, "hops of paths choose as [node] says");
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
}

#[test]
fn the_rate_of_an_emulated_port_is_its_capacity() {
    let ports = "[node]\nbalance = \"fare\"\n[[port]]\nname = \"eth1\"\nemulate = { rate = \"25Mbit\" }\n\
         [[port]]\nname = \"eth2\"\nspeed = \"100Mbit\"\n[[balance]]\nname = \"fare\"\nmode = \"weighted\"\n";
    let hops = r#"nexthops = [{ via = "fe80::2", port = "eth1" }, { via = "fe80::3", port = "eth2" }]"#;
    let routes = format!(
        "[[route]]\nprefix = \"2001:db8:a::/48\"\n{hops}\n[[route]]\nprefix = \"2001:db8:b::/48\"\n{hops}\n\
         balance = \"hash\"\n"
    );
    let plan = plan_in(&format!("{ports}{routes}"), &environment());
    assert_eq!(weights_of(&plan, "2001:db8:a::/48"), [25, 100]);
    assert_eq!(weights_of(&plan, "2001:db8:b::/48"), [1, 1], "it chooses by the plain hash");
}

#[test]
fn a_capacity_that_nobody_uses_is_pointed_out() {
    let text = "[[port]]\nname = \"eth1\"\n[[route]]\nprefix = \"2001:db8:a::/48\"\n\
         nexthops = [{ via = \"fe80::2\", port = \"eth1\", capacity = \"1Gbit\" }]\n";
    let plan = plan_in(text, &environment());
    assert!(plan.warnings[0].to_string().contains("`capacity` is not used"), "{:?}", plan.warnings);
}

#[test]
fn groups_look_at_the_links_to_the_nodes_that_they_name() {
    let text = r#"
[node]
source = "2001:db8::1"
balance = "far"
[glb]
role = "load-balancer-only"
node_id = "10.0.0.1"
key = "/etc/srv6d/glb.key"
[[port]]
name = "eth1"
speed = "100Gbit"
neighbor_id = "10.0.0.11"
[[port]]
name = "eth2"
speed = "100Gbit"
neighbor_id = "10.0.0.11"
[[balance]]
name = "far"
mode = "global"
[[balance]]
name = "own"
mode = "adaptive"
[[route]]
prefix = "2001:db8:a::/48"
nexthops = [{ via = "fe80::2", port = "eth1" }, { via = "fe80::3", port = "eth2" }]
via_nodes = ["10.0.0.2"]
[[route]]
prefix = "2001:db8:b::/48"
via = "fe80::2"
port = "eth1"
via_nodes = ["10.0.0.3", "10.0.0.2", "10.0.0.3"]
[[route]]
prefix = "2001:db8:c::/48"
via = "fe80::2"
port = "eth1"
[[route]]
prefix = "2001:db8:d::/48"
via = "fe80::2"
port = "eth1"
balance = "own"
via_nodes = ["10.0.0.2"]
[[steer]]
prefix = "2001:db8:e::/48"
segments = ["fcbb:0:1001:fe04::"]
nexthops = [{ via = "fe80::2", port = "eth1" }, { via = "fe80::3", port = "eth2" }]
via_nodes = ["10.0.0.2"]
"#;
    let plan = plan_in(text, &environment());
    let balance = &plan.desired.balance;
    let profile = |number: u16| balance.settings.policies[usize::from(number) - 1].mode.profile();
    let of = |prefix: &str| profile(balance.policy_of(TableId::MAIN, prefix.parse().unwrap()));
    let prefixes = ["a", "b", "c", "d", "e"].map(|letter| of(&format!("2001:db8:{letter}::/48")));
    assert_eq!(prefixes, [Some(0), Some(1), None, None, Some(0)]);
    assert_eq!(
        profile(balance.policy_of_path("2001:db8:e::/48")),
        Some(0),
        "next hops of a path lead to the same node"
    );
    let profiles: Vec<Vec<String>> =
        balance.settings.profiles.iter().map(|nodes| nodes.iter().map(ToString::to_string).collect()).collect();
    assert_eq!(profiles, [vec!["10.0.0.2"], vec!["10.0.0.2", "10.0.0.3"]]);
    let warnings: Vec<String> = plan.warnings.iter().map(ToString::to_string).collect();
    assert!(
        matches!(&warnings[..], [_, twice, unused] if unused.contains("[[route]] via_nodes") && twice.contains("10.0.0.11 is behind eth1, too")),
        "{warnings:?}"
    );
    let glb = plan.glb.unwrap();
    assert_eq!((glb.group.to_string().as_str(), glb.udp_port), ("ff02::114", 47149));
    assert_eq!((glb.period.as_millis(), glb.min_gap.as_millis(), glb.ports.len()), (20, 1, 2));
    assert_eq!(glb.key.unwrap().0, 1);
}

#[test]
fn dead_paths_are_left_out_and_used_again() {
    let path = |n: u32| {
        format!("{{ name = \"p{n}\", segments = [\"fcbb:0:100{n}:fe06::\"], via = \"fe80::2\", port = \"eth1\" }}")
    };
    let text = |probes: &str| {
        let paths = [1, 2, 3].map(path).join(", ");
        let one = "segments = [\"fcbb:0:1001:fe06::\"]\nvia = \"fe80::2\"\nport = \"eth1\"";
        format!(
            "[node]\nsource = \"2001:db8::1\"\n{probes}\n[[port]]\nname = \"eth1\"\n\
             [[steer]]\nprefix = \"2001:db8:a::/48\"\npaths = [{paths}]\n[[steer]]\nprefix = \"2001:db8:b::/48\"\n{one}\n"
        )
    };
    let names = |plan: &Plan| -> Vec<Vec<String>> {
        let of = |paths: &[Path]| paths.iter().map(|path| path.name.clone()).collect();
        plan.desired.steers.iter().map(|steer| of(&steer.paths)).collect()
    };
    let dead = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<String>>();
    let all = |names: &[&[&str]]| -> Vec<Vec<String>> {
        names.iter().map(|of| of.iter().map(|&name| name.to_owned()).collect()).collect()
    };
    let whole = all(&[&["p1", "p2", "p3"], &["2001:db8:b::/48"]]);
    let but_p2 = all(&[&["p1", "p3"], &["2001:db8:b::/48"]]);
    let environment = |unused: &[&str]| Environment { unused_paths: Arc::new(dead(unused)), ..environment() };

    let watched = text("[probes]\n");
    let mut plan = plan_in(&watched, &environment(&[]));
    let probes = plan.probes.clone().unwrap();
    assert_eq!((probes.interval.as_millis(), probes.timeout.as_millis(), probes.hold.as_millis()), (100, 100, 1000));
    assert_eq!((probes.dead_after, probes.udp_port, probes.decap), (3, 47151, None));
    assert_eq!(probes.address.unwrap().to_string(), "2001:db8::1");
    assert!(plan.left_out.is_empty());
    let (diff, changes) = plan.use_paths(&dead(&["p2", "2001:db8:b::/48", "unknown"]));
    assert_eq!((diff.to_string().as_str(), changes.steers.len()), ("steers ~1", 1));
    assert_eq!(names(&plan), but_p2, "the last path of a prefix stays");
    assert_eq!(plan.left_out.values().map(Vec::len).collect::<Vec<_>>(), [3]);
    let planned = plan_in(&watched, &environment(&["p2", "2001:db8:b::/48"]));
    assert_eq!((names(&planned), &planned.left_out), (but_p2, &plan.left_out), "as a whole plan has it");
    assert!(plan.use_paths(&dead(&["p2"])).0.is_empty());
    plan.use_paths(&dead(&["p1", "p2", "p3"]));
    assert_eq!(names(&plan), whole, "not all paths");
    plan.use_paths(&dead(&["p1", "p3"]));
    assert_eq!(names(&plan)[0], ["p2"]);
    plan.use_paths(&dead(&[]));
    assert_eq!((names(&plan), plan.left_out.len()), (whole.clone(), 0));
    let unprobed = plan_in(&text(""), &environment(&["p2"]));
    assert_eq!((names(&unprobed), unprobed.probes), (whole, None));
}

/// Returns the weights of a route over two spines with this `metric` and these next hops, while links are as told.
fn weighted_by(metric: &str, hops: &str, links: &[(LinkId, u64, u64)]) -> Vec<u16> {
    const GIGABIT: u64 = 1_000_000_000;
    let port = |n: u32| {
        format!("[[port]]\nname = \"eth{n}\"\nspeed = \"100Gbit\"\nrole = \"fabric\"\nneighbor_id = \"10.0.0.1{n}\"\n")
    };
    let text = format!(
        "[glb]\nrole = \"load-balancer-only\"\nnode_id = \"10.0.0.1\"\n{}{}[[balance]]\nname = \"fare\"\n\
         mode = \"weighted\"\nmetric = \"{metric}\"\n[[route]]\nprefix = \"2001:db8:a::/48\"\nbalance = \"fare\"\n\
         via_nodes = [\"10.0.0.2\", \"10.0.0.3\"]\nnexthops = [{hops}]\n",
        port(1),
        port(2)
    );
    let link = |(id, capacity, load): &(LinkId, u64, u64)| {
        (id.clone(), Link { capacity: capacity * GIGABIT, load: load * GIGABIT })
    };
    let links = Arc::new(links.iter().map(link).collect());
    weights_of(&plan_in(&text, &Environment { links, ..environment() }), "2001:db8:a::/48")
}

#[test]
fn weights_follow_from_what_heartbeats_tell() {
    const HOPS: &str = r#"{ via = "fe80::2", port = "eth1" }, { via = "fe80::3", port = "eth2" }"#;
    let behind = |from: u8, to: u8| LinkId::Behind([10, 0, 0, from].into(), [10, 0, 0, to].into());
    let own = |name: &str| LinkId::Own(name.to_owned());
    let slow = [(behind(11, 2), 25, 20), (behind(12, 2), 100, 90), (behind(12, 9), 1, 0)];
    assert_eq!(weighted_by("capacity", HOPS, &[]), [10_000, 10_000], "the own ports are known");
    assert_eq!(weighted_by("capacity", HOPS, &slow), [2500, 10_000], "the narrower link counts");
    assert_eq!(weighted_by("available", HOPS, &slow), [5000, 10_000], "5 and 10 Gbit are left");
    let both = [(behind(11, 2), 25, 0), (behind(11, 3), 75, 0), (behind(12, 2), 100, 0)];
    assert_eq!(weighted_by("capacity", HOPS, &both), [5000, 10_000], "the mean of several nodes");
    let busy = [(own("eth1"), 100, 90), (own("eth2"), 100, 200)];
    assert_eq!(weighted_by("available", HOPS, &busy), [10_000, 1000], "at least a hundredth is available");
    assert_eq!(weighted_by("capacity", HOPS, &busy), [10_000, 10_000]);
    let written = HOPS.replace("\"eth1\" }", "\"eth1\", capacity = \"50Gbit\" }");
    assert_eq!(weighted_by("capacity", &written, &slow), [5000, 10_000], "the file is believed first");
    assert_eq!(weighted_by("available", &written, &slow), [30_000, 10_000], "the load is that of the heartbeats");
}
