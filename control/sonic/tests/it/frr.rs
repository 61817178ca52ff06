//! Tests that frr.conf is read as FRR reads it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use srv6d_sonic::{Action, Finding, Origin, Reading, Severity, StaticRoute, Switch, Target, read};

fn frr(text: &str) -> Reading {
    read(None, Some(text), None, false).unwrap_or_else(|findings| panic!("{text}\n{findings:?}"))
}

fn switch(text: &str) -> Switch {
    let Reading { switch, findings } = frr(text);
    assert_eq!(findings, [], "{text}");
    switch
}

/// Returns prefix, next hops and VRF of every route as texts.
fn routes(switch: &Switch) -> Vec<String> {
    let hops = |route: &StaticRoute| match &route.target {
        Target::Blackhole => "blackhole".to_owned(),
        Target::Reject => "reject".to_owned(),
        Target::Hops(hops) => {
            let shown = hops.iter().map(|hop| {
                let via = hop.via.map(|via| via.to_string()).unwrap_or_default();
                format!("{via}%{}", hop.interface.as_deref().unwrap_or_default())
            });
            shown.collect::<Vec<_>>().join(" ")
        }
    };
    let vrf = |route: &StaticRoute| route.vrf.as_ref().map(|vrf| format!(" vrf {vrf}")).unwrap_or_default();
    switch.routes.iter().map(|route| format!("{} {}{}", route.prefix, hops(route), vrf(route))).collect()
}

fn sids(switch: &Switch) -> Vec<String> {
    let shown = switch.sids.iter().map(|sid| {
        let vrf = sid.vrf.as_ref().map(|vrf| format!(" vrf {vrf}")).unwrap_or_default();
        let port = sid.interface.as_ref().map(|port| format!(" {port}")).unwrap_or_default();
        let via = sid.adjacency.map(|via| format!(" {via}")).unwrap_or_default();
        format!("{} {}{vrf}{port}{via}", sid.prefix, sid.action.keyword())
    });
    shown.collect()
}

const TREE: &str = "segment-routing
 srv6
  locators
   locator MAIN
    prefix fd80:8:1::/48 block-len 32 node-len 16 func-bits 16
    behavior usid
  encapsulation
   source-address fd80:8:1::1
  static-sids
   sid fd80:8:1::/48 locator MAIN behavior uN
   sid fd80:8:fe04::/48 locator MAIN behavior uA interface Ethernet4 nexthop 2001:db8:b::2
   sid fd80:8:1:fe08::/64 locator MAIN behavior uA interface Ethernet8
   sid fd80:8:d000::/48 locator MAIN behavior uDT6 vrf default
   sid fd80:8:1:fe04::/64 locator MAIN behavior uDT4 vrf default
";

fn tree() -> Vec<String> {
    [
        "fd80:8:1::/48 uN",
        "fd80:8:fe04::/48 uA Ethernet4 2001:db8:b::2",
        "fd80:8:1:fe08::/64 uA Ethernet8",
        "fd80:8:d000::/48 uDT6 vrf default",
        "fd80:8:1:fe04::/64 uDT4 vrf default",
    ]
    .map(str::to_owned)
    .to_vec()
}

#[test]
fn the_whole_tree() {
    let switch = switch(TREE);
    assert_eq!(sids(&switch), tree());
    let locator = &switch.locators[0];
    assert_eq!((locator.name.as_str(), locator.block_len, locator.node_len), ("MAIN", 32, 16));
    assert_eq!((locator.prefix.to_string(), locator.origin), ("fd80:8:1::/48".to_owned(), Origin::Frr));
    assert_eq!(switch.encapsulation_source, Some("fd80:8:1::1".parse().unwrap()));
    let ports: Vec<&str> = switch.ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(ports, ["Ethernet4", "Ethernet8"], "nothing else says which ports there are");
}

#[test]
fn indentation_decides_nothing() {
    let flat: String = TREE.lines().flat_map(|line| [line.trim(), "\n"]).collect();
    let steep: String = TREE
        .lines()
        .enumerate()
        .flat_map(|(n, line)| [" ".repeat(20 - n), line.trim().to_owned(), "\r\n".to_owned()])
        .collect();
    assert_eq!(sids(&switch(&flat)), tree());
    assert_eq!(sids(&switch(&steep)), tree());
}

#[test]
fn a_line_that_a_node_does_not_know_belongs_to_one_around_it() {
    // `locators` comes while `encapsulation` is open, `sid` comes after `formats`, and a route stands in the middle of
    // the tree.
    let text = "segment-routing\n srv6\n  encapsulation\n   source-address fd80:8:1::1\n  locators\n   locator MAIN\n    \
                prefix fd80:8:1::/48 block-len 32 node-len 16\n  formats\n   format usid-f3216\n  static-sids\n   \
                sid fd80:8:1::/48 locator MAIN behavior uN\nipv6 route fd80:8:2::/48 2001:db8:b::2 Ethernet4\n\
                sid fd80:8:d000::/48 locator MAIN behavior uDT6 vrf default\n";
    let switch = switch(text);
    assert_eq!(switch.locators.len(), 1);
    // The route leads to the top node, which does not know `sid`.
    assert_eq!(sids(&switch), ["fd80:8:1::/48 uN"]);
    assert_eq!(routes(&switch), ["fd80:8:2::/48 2001:db8:b::2%Ethernet4"]);
}

#[test]
fn exits_are_welcome_and_one_too_many_does_no_harm() {
    let text = TREE.replace("    behavior usid\n", "    behavior usid\n   exit\n   !\n  exit\n  !\n");
    let text = text.replace("fd80:8:1::1\n", "fd80:8:1::1\n  exit\n") + "  exit\n exit\nexit\nexit\nquit\nend";
    assert_eq!(sids(&switch(&text)), tree());
}

#[test]
fn the_tree_may_come_in_pieces_and_later_lines_win() {
    let text = "hostname one\nsegment-routing\n srv6\n  static-sids\n   sid fd80:8:1::/48 locator MAIN behavior uDT4 vrf default\n   \
                sid fd80:8:1::/48 locator MAIN behavior uN\n  exit\n exit\n srv6\n  locators\n   locator MAIN\n    \
                prefix fd80:8:9::/48\n    prefix fd80:8:1::/48\nhostname two\n";
    let switch = switch(text);
    assert_eq!(sids(&switch), ["fd80:8:1::/48 uN"]);
    assert_eq!(switch.device.hostname.as_deref(), Some("two"));
    // If there are no lengths, the node is one uSID.
    assert_eq!((switch.locators[0].block_len, switch.locators[0].node_len), (32, 16));
}

#[test]
fn keywords_may_be_shortened() {
    let text = "segment\n srv6\n  loc\n   loc MAIN\n    pre fd80:8:1::/48\n  enc\n   source fd80:8:1::1\n  static\n   \
                si fd80:8:1::/48 loc MAIN beh uN\n   sid fd80:8:fe04::/48 locator MAIN behavior uA int Ethernet4 next fe80::1\n";
    let switch = switch(text);
    assert_eq!(sids(&switch), ["fd80:8:1::/48 uN", "fd80:8:fe04::/48 uA Ethernet4 fe80::1"]);
    assert!(switch.encapsulation_source.is_some());
}

#[test]
fn remarks_and_everything_of_frrs_own_is_passed_over() {
    let text = "frr version 10.0.1\n!\n! a remark\n!ipv6 route fd80:8:66::/48 blackhole\n# another\nlog syslog informational\n\
                agentx\npassword zebra\nzebra nexthop-group keep 1\nno fpm use-next-hop-groups\nip nht resolve-via-default\n\
                ipv6 prefix-list A seq 10 deny fd80:8:1::/48\nroute-map B permit 10\n match ipv6 address prefix-list A\n set src 10.0.0.4\nexit\n\
                interface Ethernet0\n ipv6 nd ra-interval 10\nexit\nrouter bgp 65200\n bgp router-id 10.0.0.4\n neighbor Ethernet0 interface remote-as 65000\n\
                address-family ipv6 unicast\n  network fd80:8:1::/48\n exit-address-family\n segment-routing srv6\n  locator MAIN\n  encap-behavior H_Encaps_Red\n exit\nexit\nline vty\n";
    let switch = switch(text);
    assert!(switch.locators.is_empty() && switch.routes.is_empty() && switch.sids.is_empty());
}

#[test]
fn routes_of_every_form() {
    let text = "ipv6 route fd80:8:2::/48 2001:db8:b::2 Ethernet4\nipv6 route FD80:8:0003::/48 2001:db8:b::2\n\
                ipv6 route fd80:8:3::/48 2001:db8:c::2\nipv6 route fd80:8::/32 blackhole\nipv6 route fd80:8:4::/48 Null0 200\n\
                ip route 192.0.2.0/24 reject\nip route 198.51.100.0 255.255.255.0 192.0.2.1 Ethernet0 5 tag 7\n\
                ipv6 route fd80:8:5::/48 Ethernet8\nipv6 route fd80:8:6::/48 fe80::1 Ethernet8 onlink\n";
    assert_eq!(
        routes(&switch(text)),
        [
            "fd80:8:2::/48 2001:db8:b::2%Ethernet4",
            "fd80:8:3::/48 2001:db8:b::2% 2001:db8:c::2%",
            "fd80:8::/32 blackhole",
            "fd80:8:4::/48 blackhole",
            "192.0.2.0/24 reject",
            "198.51.100.0/24 192.0.2.1%Ethernet0",
            "fd80:8:5::/48 %Ethernet8",
            "fd80:8:6::/48 fe80::1%Ethernet8",
        ]
    );
}

#[test]
fn routes_of_vrfs_by_block_and_by_word() {
    let text = "vrf Vrf9\n ipv6 nht resolve-via-default\n ipv6 route fd80:8:A001::/48 2001:db8:1:A001::A001\nexit-vrf\n\
                ipv6 route fd80:8:1::/48 fe80::1 Ethernet0 vrf Vrf9\nvrf vrfdefault\n ipv6 route fd80:8:2::/48 fe80::2 Ethernet0\nexit-vrf\n\
                ipv6 route fd80:8:3::/48 fe80::3 Ethernet0 vrf default nexthop-vrf Vrf9\n\
                vrf Vrf9\n ipv6 route fd80:8:4::/48 fe80::4 Ethernet0\nipv6 forwarding\nipv6 route fd80:8:5::/48 fe80::5 Ethernet0\n";
    let Reading { switch, .. } = frr(text);
    assert_eq!(
        routes(&switch),
        [
            "fd80:8:a001::/48 2001:db8:1:a001::a001% vrf Vrf9",
            "fd80:8:1::/48 fe80::1%Ethernet0 vrf Vrf9",
            "fd80:8:2::/48 fe80::2%Ethernet0",
            "fd80:8:3::/48 fe80::3%Ethernet0",
            "fd80:8:4::/48 fe80::4%Ethernet0 vrf Vrf9",
            // `ipv6 forwarding` belongs to the top node, so it leaves the VRF.
            "fd80:8:5::/48 fe80::5%Ethernet0",
        ]
    );
    assert_eq!(switch.vrfs.len(), 1);
}

#[test]
fn segments() {
    let text = "ipv6 route 2001:db8:9::/64 Ethernet4 segments fd80:8:2:3:fe06::/fd80:8:9:: encap-behavior H_Encaps_Red\n\
                ipv6 route 2001:db8:8::/64 Ethernet4 segments fd80:8:2:3:fe06::\n\
                ip route 203.0.113.0/24 Ethernet4 segments fd80:8:2:fe04:: encap-behavior H_Encaps encap-source fd80:8:1::7\n";
    let switch = switch(text);
    let encap = |n: usize| match &switch.routes[n].target {
        Target::Hops(hops) => hops[0].encap.clone().unwrap(),
        other => panic!("{other:?}"),
    };
    let segments: Vec<String> = encap(0).segments.iter().map(ToString::to_string).collect();
    assert_eq!(segments, ["fd80:8:2:3:fe06::", "fd80:8:9::"]);
    assert!(encap(0).reduced);
    // FRR's own default writes even a single segment into an SRH.
    assert!(!encap(1).reduced && !encap(2).reduced);
    assert_eq!(encap(2).source, Some("fd80:8:1::7".parse().unwrap()));
}

#[test]
fn no_takes_back() {
    let text = format!(
        "{TREE}ipv6 route fd80:8:3::/48 2001:db8:b::2\nipv6 route fd80:8:3::/48 2001:db8:c::2\nipv6 route fd80:8:4::/48 blackhole\n\
         no ipv6 route fd80:8:3::/48 2001:db8:b::2\nno ipv6 route fd80:8:4::/48\nno ipv6 route fd80:8:77::/48\n\
         segment-routing\nsrv6\nstatic-sids\nno sid fd80:8:d000::/48 locator MAIN behavior uDT6 vrf default\n"
    );
    let switch = switch(&text);
    assert_eq!(routes(&switch), ["fd80:8:3::/48 2001:db8:c::2%"]);
    assert_eq!(switch.sids.len(), 4);
    assert!(!switch.sids.iter().any(|sid| sid.action == Action::Udt6));
}

#[test]
fn a_farther_route_waits_behind_a_nearer_one() {
    let Reading { switch, findings } =
        frr("ipv6 route fd80:8:3::/48 fe80::1 Ethernet0 200\nipv6 route fd80:8:3::/48 fe80::2 Ethernet4\n");
    assert_eq!(routes(&switch), ["fd80:8:3::/48 fe80::2%Ethernet4"]);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].place, "frr.conf:1");
}

#[test]
fn what_frr_refuses_is_left_out_with_its_line() {
    let lines = [
        ("ipv6 route fd80:8:3::/48", "needs a next hop"),
        ("ipv6 route fd80:8:3:: fe80::1 Ethernet0", "is no prefix"),
        ("ip route fd80:8:3::/48 fe80::1 Ethernet0", "other address family"),
        ("ipv6 route fd80:8:3::/48 fe80::1", "needs an interface"),
        ("ipv6 route fd80:8:3::/48 Ethernet0 segments x", "no IPv6 address"),
        ("ipv6 route fd80:8:3::/48 Ethernet0 segments", "nothing is behind segments"),
        ("ipv6 route fd80:8:3::/48 Ethernet0 encap-behavior X", "not known"),
        ("ipv6 route fd80:8:3::/48 Ethernet0 table 7", "table 7"),
        ("segment-routing\nsrv6\nlocators\nlocator A\nprefix fd80:8::1", "with a length"),
        (
            "segment-routing\nsrv6\nlocators\nlocator A\nprefix fd80:8:1::/48 block-len 40 node-len 16",
            "do not make the 48 bits",
        ),
        ("segment-routing\nsrv6\nstatic-sids\nsid fd80:8:1::/48 locator A behavior uX", "behavior \"uX\" is not known"),
        ("segment-routing\nsrv6\nstatic-sids\nsid fd80:8:1::/48 locator A behavior uA", "needs `interface`"),
        ("segment-routing\nsrv6\nstatic-sids\nsid fd80:8:1::/48 locator A behavior uN", "waits for the locator A"),
        ("segment-routing\nsrv6\nstatic-sids\nsid fd80:8:1:: locator A behavior uN", "with a length"),
        ("segment-routing\nsrv6\nstatic-sids\nsid fd80:8:1::/48 locator", "nothing is behind it"),
        ("segment-routing\nsrv6\nencapsulation\nsource-address x", "no IPv6 address"),
    ];
    for (text, words) in lines {
        let Reading { switch, findings } = frr(text);
        let [Finding { place, what, severity: Severity::Ignored }] = findings.as_slice() else {
            panic!("{text}: {findings:?}")
        };
        assert_eq!(place, &format!("frr.conf:{}", text.lines().count()));
        assert!(what.contains(words), "{text}: {what}");
        assert!(switch.routes.is_empty() && switch.sids.is_empty() && switch.encapsulation_source.is_none());
        assert!(read(None, Some(text), None, true).is_err(), "{text}");
    }
}

#[test]
fn sids_that_bgp_makes_are_noted() {
    let text = "router bgp 65001 vrf Vrf9\n sid vpn per-vrf export auto\n address-family ipv6 unicast\n  \
                sid export auto behavior dt46 route-map A\n exit-address-family\nexit\n";
    let Reading { switch, findings } = frr(text);
    assert!(switch.sids.is_empty());
    let places: Vec<&str> = findings.iter().map(|finding| finding.place.as_str()).collect();
    assert_eq!(places, ["frr.conf:2", "frr.conf:4"]);
    assert!(read(None, Some(text), None, true).is_ok());
}

#[test]
fn an_uncompressed_format_has_a_longer_block() {
    let text = "segment-routing\nsrv6\nlocators\nlocator A\nprefix fd80:8:1:1::/64\nformat uncompressed-f4024\n";
    let switch = switch(text);
    assert_eq!((switch.locators[0].block_len, switch.locators[0].node_len), (40, 24));
}
