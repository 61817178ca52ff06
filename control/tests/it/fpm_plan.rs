//! Tests of plans with routes that FRR announces over FPM. The file has precedence over FPM, and FPM over the kernel.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use ipnet::IpNet;
use srv6d_config as config;
use srv6d_kernel_routes::{KernelRule, Message, Routes, RuleAction};
use srv6d_plan::{
    self as plan, Device, Environment, KernelAction, KernelEncap, KernelHop, KernelRoute, KernelSid, KernelSidAction,
    Plan,
};
use srv6d_srv6::desired::{Behavior, Csid, Hop, Mac, PortId, RouteAction, TableId};

const FILE: &str = r#"
[node]
source = "2001:db8:1::1"
[[port]]
name = "eth1"
role = "fabric"
[[route]]
prefix = "2001:db8:f::/48"
type = "blackhole"
[[sid]]
sid = "fcbb:bbbb:1::/48"
behavior = "uN"
flavors = ["usd"]
[fpm]
[kernel]
"#;

fn environment(announced: Vec<KernelRoute>, kernel: Vec<KernelRoute>) -> Environment {
    let device = |ifindex, name: &str, addresses: &[&str]| Device {
        name: name.to_owned(),
        ifindex,
        mac: Mac([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        up: true,
        addresses: addresses.iter().map(|net| net.parse().unwrap()).collect(),
    };
    Environment {
        devices: vec![device(1, "lo", &["fcbb:bbbb:1::1/128"]), device(2, "eth1", &["2001:db8:1::1/64"])],
        announced: Arc::new(announced),
        routes: Arc::new(kernel.into_iter().collect()),
        ..Environment::default()
    }
}

fn route(prefix: &str, action: KernelAction) -> KernelRoute {
    let prefix = prefix.parse().unwrap();
    KernelRoute { table: TableId::MAIN, prefix, metric: 20, protocol: 196, action }
}

fn via(prefix: &str, via: Option<&str>, device: u32) -> KernelRoute {
    let via = via.map(|via| via.parse().unwrap());
    route(prefix, KernelAction::Via(vec![KernelHop { device, via, weight: 1, encap: None }]))
}

fn un(prefix: &str) -> KernelRoute {
    let sid = KernelSid {
        action: KernelSidAction::End,
        via: None,
        device: None,
        csid: Some((32, 16)),
        psp: false,
        usp: false,
        usd: false,
    };
    route(prefix, KernelAction::Sid(sid))
}

fn planned(announced: Vec<KernelRoute>, kernel: Vec<KernelRoute>) -> Plan {
    let config = config::parse(FILE, "srv6d.toml").unwrap_or_else(|errors| panic!("{errors}"));
    plan::plan(&config, &environment(announced, kernel)).unwrap_or_else(|errors| panic!("{errors}"))
}

fn action(plan: &Plan, prefix: &str) -> Option<RouteAction> {
    let prefix: IpNet = prefix.parse().unwrap();
    let mut found = plan.desired.routes.iter().filter(|route| route.prefix == prefix);
    let action = found.next().map(|route| route.action.clone());
    assert!(found.next().is_none(), "{prefix} has two routes");
    action
}

fn hop(via: &str) -> RouteAction {
    RouteAction::Via(vec![Hop { port: PortId(0), via: Some(via.parse().unwrap()), weight: 1 }])
}

#[test]
fn the_file_goes_before_fpm_and_fpm_before_the_kernel() {
    let (fpm, kernel) = (Some("2001:db8:1::2"), Some("2001:db8:1::3"));
    let plan = planned(
        vec![via("2001:db8:f::/48", fpm, 2), via("2001:db8:b::/48", fpm, 2), un("fcbb:bbbb:1::/48")],
        vec![via("2001:db8:f::/48", kernel, 2), via("2001:db8:b::/48", kernel, 2), via("2001:db8:c::/48", kernel, 2)],
    );
    assert_eq!(action(&plan, "2001:db8:f::/48"), Some(RouteAction::Blackhole));
    assert_eq!(action(&plan, "2001:db8:b::/48"), Some(hop("2001:db8:1::2")));
    assert_eq!(action(&plan, "2001:db8:c::/48"), Some(hop("2001:db8:1::3")));
    let [known] = plan.desired.sids.as_slice() else { panic!("{:?}", plan.desired.sids) };
    assert!(known.flavors.usd, "the file's SID, not FRR's");
    let said: Vec<(&str, String)> =
        plan.unfollowed.iter().map(|route| (route.source, route.prefix.to_string())).collect();
    let expected = [("fpm", "2001:db8:f::/48"), ("fpm", "fcbb:bbbb:1::/48")];
    assert_eq!(said, expected.map(|(source, prefix)| (source, prefix.to_owned())));
}

#[test]
fn sids_and_encapsulations_of_fpm_are_taken() {
    let encap = KernelEncap { reduced: true, segments: vec!["fcbb:bbbb:2:3::".parse().unwrap()], source: None };
    let hop = KernelHop { device: 2, via: None, weight: 1, encap: Some(encap) };
    let announced = vec![
        un("fcbb:bbbb:e004::/48"),
        via("fcbb:bbbb:2::/48", Some("2001:db8:1::2"), 2),
        route("2001:db8:9::/64", KernelAction::Via(vec![hop])),
    ];
    let plan = planned(announced, Vec::new());
    let learned = plan.desired.sids.iter().find(|sid| sid.prefix.to_string() == "fcbb:bbbb:e004::/48").unwrap();
    assert!(matches!(learned.behavior, Behavior::End { csid: Some(Csid { lblen: 32, nflen: 16 }), .. }));
    let [steer] = plan.desired.steers.as_slice() else { panic!("{:?}", plan.offered) };
    assert_eq!(steer.prefix.to_string(), "2001:db8:9::/64");
}

#[test]
fn own_addresses_and_connected_prefixes_of_fpm_are_no_news() {
    let announced = vec![
        via("fcbb:bbbb:1::1/128", None, 1),
        via("2001:db8:1::/64", None, 2),
        via("fe80::/64", None, 2),
        via("2001:db8:1::1/128", None, 2),
    ];
    let plan = planned(announced, vec![via("2001:db8:1::/64", None, 2)]);
    assert_eq!(*plan.unfollowed, []);
    assert!(action(&plan, "2001:db8:1::/64").is_some(), "the kernel's own copy is followed");
    assert_eq!(action(&plan, "fcbb:bbbb:1::1/128"), None);
}

#[test]
fn what_fpm_announces_and_nobody_can_do_is_left_to_the_kernel() {
    let plan = planned(vec![via("2001:db8:b::/48", Some("2001:db8:77::2"), 7)], Vec::new());
    assert_eq!(action(&plan, "2001:db8:b::/48"), Some(RouteAction::Kernel));
    assert!(plan.unfollowed.first().unwrap().why.contains("which is no [[port]]"), "{:?}", plan.unfollowed);
}

/// Plans the same node, which also follows the table of a VRF.
fn planned_with_vrf(announced: Vec<KernelRoute>, routes: Routes) -> Plan {
    let file = FILE.replace("[kernel]", "[kernel]\ntables = [\"main\", 77]");
    let config = config::parse(&file, "srv6d.toml").unwrap_or_else(|errors| panic!("{errors}"));
    let environment = Environment { routes: Arc::new(routes), ..environment(announced, Vec::new()) };
    plan::plan(&config, &environment).unwrap_or_else(|errors| panic!("{errors}"))
}

fn in_vrf(route: KernelRoute) -> KernelRoute {
    KernelRoute { table: TableId(77), ..route }
}

fn encap(prefix: &str, segment: &str) -> KernelRoute {
    let encap = KernelEncap { reduced: true, segments: vec![segment.parse().unwrap()], source: None };
    route(prefix, KernelAction::Via(vec![KernelHop { device: 2, via: None, weight: 1, encap: Some(encap) }]))
}

#[test]
fn a_first_segment_is_looked_up_in_the_routes_own_table_first() {
    let own = || {
        vec![
            in_vrf(encap("2001:db8:9::/64", "fcbb:bbbb:2:d046::")),
            in_vrf(via("fcbb:bbbb:2::/48", Some("2001:db8:1::2"), 2)),
        ]
    };
    let elsewhere = via("fcbb:bbbb:2::/48", Some("2001:db8:1::9"), 2);
    let kernel = |more: &[KernelRoute]| planned_with_vrf(Vec::new(), own().into_iter().chain(more.to_vec()).collect());
    for plan in [kernel(&[]), kernel(std::slice::from_ref(&elsewhere)), planned_with_vrf(own(), Routes::default())] {
        let [steer] = plan.desired.steers.as_slice() else { panic!("{:?}", plan.unfollowed) };
        let [path] = steer.paths.as_slice() else { panic!("{steer:?}") };
        assert_eq!(RouteAction::Via(path.via.clone()), hop("2001:db8:1::2"));
        assert_eq!(*plan.unfollowed, []);
    }
    // If only the main table has a route to the segment, that route is used.
    let alone: Routes = own().into_iter().take(1).chain([elsewhere]).collect();
    let plan = planned_with_vrf(Vec::new(), alone);
    assert_eq!(plan.desired.steers.first().map(|steer| steer.paths.first().unwrap().via.len()), Some(0));
}

#[test]
fn a_sid_that_two_ways_lead_to_is_one() {
    let rule = KernelRule {
        priority: 999,
        is_v6: true,
        to: "fcbb:bbbb::/32".parse().unwrap(),
        iif: None,
        local_only: false,
        only_for: Vec::new(),
        action: RuleAction::Lookup(TableId(77)),
    };
    let mut routes: Routes = [in_vrf(un("fcbb:bbbb:e004::/48"))].into_iter().collect();
    routes.load(Message::Rule(rule.clone()));
    routes.load(Message::Rule(KernelRule {
        to: "::/0".parse().unwrap(),
        action: RuleAction::Lookup(TableId::MAIN),
        ..rule
    }));
    let plan = planned_with_vrf(Vec::new(), routes);
    let learned = plan.desired.sids.iter().filter(|sid| sid.prefix.to_string() == "fcbb:bbbb:e004::/48").count();
    assert_eq!((learned, plan.unfollowed.len()), (1, 0));
}

#[test]
fn a_ua_of_frrs_consumes_node_and_function_from_the_kernel_too() {
    let ua = |prefix: &str, protocol| {
        let sid = KernelSid {
            action: KernelSidAction::EndX,
            via: Some("2001:db8:1::2".parse().unwrap()),
            device: Some(2),
            csid: Some((32, 16)),
            psp: false,
            usp: false,
            usd: false,
        };
        let plan = planned(Vec::new(), vec![KernelRoute { protocol, ..route(prefix, KernelAction::Sid(sid)) }]);
        let learned =
            plan.desired.sids.iter().find(|sid| sid.prefix.to_string() == prefix).map(|sid| sid.behavior.clone());
        let Some(Behavior::EndX { csid: Some(csid), .. }) = learned else { panic!("{:?}", plan.unfollowed) };
        (csid.lblen, csid.nflen)
    };
    let isis = 187;
    assert_eq!(ua("fcbb:bbbb:1:e001::/64", isis), (32, 32));
    assert_eq!(ua("fcbb:bbbb:e001::/48", isis), (32, 16));
    let by_hand = 4;
    assert_eq!(ua("fcbb:bbbb:1:e001::/64", by_hand), (32, 16), "as it is written, and as the kernel does it");
}
