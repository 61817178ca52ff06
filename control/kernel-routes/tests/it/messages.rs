//! Messages of rtnetlink, byte by byte, and what is read from them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::netlink;

use netlink::{
    BLACKHOLE, DEL_NEXT_HOP, INTERRUPTED, LOCAL, MPLS, NEW_NEXT_HOP, Route, THROW, UNREACHABLE, attribute, group, leg,
    message, next_hop, number, octets, rule, seg6, seg6_local,
};
use srv6d_addresses::TableId;
use srv6d_kernel_routes::{
    KernelAction, KernelEncap, KernelHop, KernelSid, KernelSidAction, Message, Messages, NextHops, RouteKey,
    RouteMessage, Routes, RuleAction,
};

/// Attribute types of an encapsulation: `RTA_ENCAP_TYPE`, `RTA_ENCAP`; `NHA_ENCAP_TYPE`, `NHA_ENCAP`.
const IN_ROUTE: (u16, u16) = (21, 22);
const IN_NEXT_HOP: (u16, u16) = (7, 8);

fn only(bytes: &[u8]) -> RouteMessage {
    let mut messages = Messages::new(bytes);
    let Some(Message::Route(route)) = messages.next() else { unreachable!("no route in {bytes:02x?}") };
    assert_eq!(messages.next(), None);
    route
}

fn action(route: &Route) -> KernelAction {
    only(&route.added(0)).action.unwrap()
}

fn why(route: &Route) -> String {
    match action(route) {
        KernelAction::Other(why) => why,
        other => format!("followed: {other:?}"),
    }
}

fn hop(device: u32, via: Option<&str>, weight: u16) -> KernelHop {
    KernelHop { device, via: via.map(|via| via.parse().unwrap()), weight, encap: None }
}

#[test]
fn a_plain_route_is_read_whole() {
    let route = Route { metric: 20, protocol: 196, table: 1000, ..Route::to("2001:db8::/32") }.via("fe80::1", 7);
    let read = only(&route.added(0));
    assert_eq!(read.key, RouteKey { table: TableId(1000), prefix: "2001:db8::/32".parse().unwrap() });
    assert_eq!((read.metric, read.protocol, read.next_hop), (20, 196, None));
    assert_eq!(read.action, Some(KernelAction::Via(vec![hop(7, Some("fe80::1"), 1)])));
    let v4 = Route::to("10.0.0.0/8").with(&number(4, 3)).with(&attribute(18, &[10, 0].map(|_| 0)));
    assert_eq!(action(&v4), KernelAction::Via(vec![hop(3, None, 1)]), "an empty RTA_VIA is no next hop");
}

#[test]
fn an_ipv4_route_has_an_ipv6_next_hop() {
    let via = [&10u16.to_ne_bytes()[..], &octets("2001:db8::9".parse().unwrap())].concat();
    let route = Route::to("10.0.0.0/8").with(&number(4, 3)).with(&attribute(18, &via));
    assert_eq!(action(&route), KernelAction::Via(vec![hop(3, Some("2001:db8::9"), 1)]));
}

#[test]
fn kinds_of_routes() {
    let of = |kind| Route { kind, ..Route::to("10.0.0.0/8") };
    assert_eq!(action(&of(BLACKHOLE)), KernelAction::Blackhole);
    assert_eq!(action(&of(UNREACHABLE)), KernelAction::Unreachable);
    assert_eq!(why(&of(THROW)), "a throw route: the next rule decides");
    assert_eq!(why(&of(8)), "a prohibit route: the kernel answers");
    assert_eq!(only(&of(LOCAL).added(0)).action, None);
    assert_eq!(why(&Route::to("10.0.0.0/8")), "it names no device");
    assert_eq!(
        why(&Route { tos: 16, ..Route::to("10.0.0.0/8") }.via("10.9.9.9", 3)),
        "it depends on the traffic class"
    );
}

#[test]
fn nobody_follows_copies_link_local_and_multicast() {
    let mut copy = Route::to("2001:db8::1/128").via("fe80::1", 7).body();
    copy.splice(8..12, 0x200u32.to_ne_bytes());
    let bytes = [
        message(netlink::NEW_ROUTE, 0, &copy),
        Route::to("fe80::/64").with(&number(4, 7)).added(0),
        Route::to("ff00::/8").with(&number(4, 7)).added(0),
        Route::to("169.254.0.0/16").with(&number(4, 7)).added(0),
        // RTM_NEWLINK.
        message(16, 0, &[0; 16]),
    ];
    assert_eq!(Messages::new(&bytes.concat()).count(), 0);
}

#[test]
fn several_messages_come_in_one_datagram() {
    let bytes = [
        Route::to("10.1.0.0/16").via("10.0.0.1", 2).added(INTERRUPTED),
        Route::to("10.2.0.0/16").via("10.0.0.1", 2).deleted(),
        message(2, 0, &(-95i32).to_ne_bytes()),
        message(3, 0, &[0; 4]),
    ];
    let bytes = bytes.concat();
    let mut messages = Messages::new(&bytes);
    let read: Vec<Message> = messages.by_ref().collect();
    assert!(matches!(read.as_slice(), [Message::Route(_), Message::Route(_), Message::Refused(95), Message::Done]));
    assert!(messages.interrupted);
}

#[test]
fn answers_to_another_request_are_passed_over() {
    let with_sequence = |mut bytes: Vec<u8>, sequence: u32| {
        bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        bytes
    };
    let bytes = [
        with_sequence(Route::to("10.1.0.0/16").via("10.0.0.1", 2).added(INTERRUPTED), 6),
        with_sequence(message(3, 0, &[0; 4]), 6),
        with_sequence(Route::to("10.2.0.0/16").via("10.0.0.1", 2).added(0), 7),
    ];
    let bytes = bytes.concat();
    let mut messages = Messages::answers(&bytes, 7);
    let read: Vec<Message> = messages.by_ref().collect();
    assert!(matches!(read.as_slice(), [Message::Route(route)] if route.key.prefix.to_string() == "10.2.0.0/16"));
    assert!(!messages.interrupted, "another dump was");
}

#[test]
fn events_that_may_take_an_entry_from_a_table() {
    let route = || Route::to("10.1.0.0/16").via("10.0.0.1", 2);
    let may_remove = |bytes: &[u8]| Messages::new(bytes).next().unwrap().may_remove();
    assert!(may_remove(&route().deleted()));
    assert!(may_remove(&route().added(0x100)), "NLM_F_REPLACE");
    assert!(!may_remove(&route().added(0)));
    assert!(!may_remove(&message(3, 0, &[0; 4])));
}

#[test]
fn encapsulation_is_read_in_the_order_of_travel() {
    let segments = ["fcbb:0:1::".parse().unwrap(), "fcbb:0:2::".parse().unwrap()];
    for (mode, reduced) in [(1, false), (3, true)] {
        let source: [u8; 16] = [0x20; 16];
        let route = Route::to("2001:db8:2::/64").with(&number(4, 7)).with(&seg6(IN_ROUTE, mode, &segments));
        let encap = KernelEncap { reduced, segments: segments.to_vec(), source: None };
        let expected = |encap| KernelAction::Via(vec![KernelHop { encap: Some(encap), ..hop(7, None, 1) }]);
        assert_eq!(action(&route), expected(encap.clone()));
        let mut srh = mode.to_ne_bytes().to_vec();
        srh.extend([0, 2, 4, 0, 0, 0, 0, 0]);
        srh.extend(segments[0].octets());
        let inner = [attribute(2, &source), attribute(1, &srh)].concat();
        let with_source = [attribute(21, &5u16.to_ne_bytes()), attribute(22, &inner)].concat();
        let route = Route::to("2001:db8:2::/64").with(&number(4, 7)).with(&with_source);
        assert_eq!(
            action(&route),
            expected(KernelEncap { reduced, segments: vec![segments[0]], source: Some(source.into()) })
        );
    }
}

#[test]
fn encapsulations_that_cannot_be_followed_say_why() {
    let with = |bytes: Vec<u8>| Route::to("2001:db8:2::/64").with(&number(4, 7)).with(&bytes);
    let segments = ["fcbb:0:1::".parse().unwrap()];
    assert_eq!(why(&with(seg6(IN_ROUTE, 0, &segments))), "seg6 mode inline");
    assert_eq!(why(&with(seg6(IN_ROUTE, 2, &segments))), "seg6 mode 2, a layer-2 or unknown one");
    let encap = |kind: u16, value: &[u8]| [attribute(21, &kind.to_ne_bytes()), attribute(22, value)].concat();
    assert_eq!(why(&with(encap(MPLS, &[]))), "its encapsulation is mpls");
    assert_eq!(why(&with(encap(200, &[]))), "its encapsulation is of type 200");
    assert_eq!(why(&with(encap(5, &[]))), "it has no segments");
    let mut srh = 1u32.to_ne_bytes().to_vec();
    srh.extend([0, 2, 4, 0, 0, 1 << 3, 0, 0]);
    srh.extend([0xfc; 16]);
    assert_eq!(why(&with(encap(5, &attribute(1, &srh)))), "its SRH has an HMAC");
    srh[9] = 0;
    assert_eq!(why(&with(encap(5, &attribute(1, &srh[..20])))), "its SRH cannot be read");
}

fn sid(attributes: &[Vec<u8>]) -> KernelAction {
    action(&Route::to("fcbb:0:1::/48").with(&number(4, 1)).with(&seg6_local(attributes)))
}

fn flavors(operation: u32, lengths: &[(u16, u8)]) -> Vec<u8> {
    let lengths = lengths.iter().flat_map(|&(kind, bits)| attribute(kind, &[bits]));
    attribute(11, &number(1, operation).into_iter().chain(lengths).collect::<Vec<u8>>())
}

#[test]
fn behaviours_of_seg6local() {
    let plain = KernelSid {
        action: KernelSidAction::End,
        via: None,
        device: None,
        csid: None,
        psp: false,
        usp: false,
        usd: false,
    };
    let v6 = "2001:db8::9".parse().unwrap();
    let v4 = "10.0.0.9".parse().unwrap();
    let cases = [
        (vec![number(1, 1)], plain.clone()),
        (
            vec![number(1, 1), flavors(1 << 1 | 1 << 2 | 1 << 3, &[])],
            KernelSid { psp: true, usp: true, usd: true, ..plain.clone() },
        ),
        (vec![number(1, 1), flavors(1 << 4, &[])], KernelSid { csid: Some((32, 16)), ..plain.clone() }),
        (vec![number(1, 1), flavors(1 << 4, &[(2, 48), (3, 32)])], KernelSid { csid: Some((48, 32)), ..plain.clone() }),
        (
            vec![number(1, 2), attribute(5, &octets(v6)), number(7, 3)],
            KernelSid { action: KernelSidAction::EndX, via: Some(v6), device: Some(3), ..plain.clone() },
        ),
        (
            vec![number(1, 5), attribute(5, &octets(v6))],
            KernelSid { action: KernelSidAction::EndDx6, via: Some(v6), ..plain.clone() },
        ),
        (
            vec![number(1, 6), attribute(4, &octets(v4))],
            KernelSid { action: KernelSidAction::EndDx4, via: Some(v4), ..plain.clone() },
        ),
        (
            vec![number(1, 7), number(3, 254)],
            KernelSid { action: KernelSidAction::EndDt6(TableId(254)), ..plain.clone() },
        ),
        (
            vec![number(1, 8), number(9, 1001)],
            KernelSid { action: KernelSidAction::EndDt4(TableId(1001)), ..plain.clone() },
        ),
        (
            vec![number(1, 16), number(9, 1001), attribute(10, &[])],
            KernelSid { action: KernelSidAction::EndDt46(TableId(1001)), ..plain },
        ),
    ];
    for (attributes, expected) in cases {
        assert_eq!(sid(&attributes), KernelAction::Sid(expected));
    }
}

#[test]
fn seg6local_that_cannot_be_followed_says_why() {
    let other = |why: &str| KernelAction::Other(why.to_owned());
    assert_eq!(sid(&[]), other("seg6local without an action"));
    assert_eq!(sid(&[number(1, 10)]), other("seg6local action End.B6.Encaps"));
    assert_eq!(sid(&[number(1, 99)]), other("seg6local action 99"));
    assert_eq!(sid(&[number(1, 1), number(6, 1)]), other("seg6local with iif"));
    assert_eq!(sid(&[number(1, 1), number(77, 1)]), other("seg6local with attribute 77"));
    assert_eq!(sid(&[number(1, 1), flavors(1 << 4 | 1 << 6, &[])]), other("flavors 0x40"));
    assert_eq!(sid(&[number(1, 1), flavors(1 << 4, &[(9, 1)])]), other("an unknown flavor attribute 9"));
}

#[test]
fn legs_have_weights_and_dead_ones_none() {
    let via = |address: &str| attribute(5, &octets(address.parse().unwrap()));
    let legs = [leg(1, 3, 8, &via("fe80::2")), leg(0, 200, 7, &via("fe80::1")), leg(16, 1, 9, &via("fe80::3"))];
    assert_eq!(
        action(&Route::to("2001:db8::/32").legs(&legs)),
        KernelAction::Via(vec![hop(7, Some("fe80::1"), 200), hop(8, Some("fe80::2"), 0), hop(9, Some("fe80::3"), 0)]),
        "sorted: events and dumps have them in different orders"
    );
    let encap = seg6(IN_ROUTE, 1, &["fcbb:0:1::".parse().unwrap()]);
    let legs = [leg(0, 1, 7, &encap), leg(0, 1, 8, &seg6_local(&[number(1, 1)]))];
    assert_eq!(why(&Route::to("2001:db8::/32").legs(&legs)), "one of its legs is a SID");
}

#[test]
fn objects_stand_for_what_they_are_made_of() {
    let via = attribute(6, &octets("fe80::1".parse().unwrap()));
    let encap = seg6(IN_NEXT_HOP, 3, &["fcbb:0:1::".parse().unwrap()]);
    let bytes = [
        next_hop(NEW_NEXT_HOP, 1, &[number(5, 7), via].concat()),
        next_hop(NEW_NEXT_HOP, 2, &[number(5, 8), encap].concat()),
        next_hop(NEW_NEXT_HOP, 3, &attribute(4, &[])),
        next_hop(NEW_NEXT_HOP, 10, &group(&[(1, 300), (2, 1)])),
        next_hop(NEW_NEXT_HOP, 11, &group(&[(3, 1)])),
        next_hop(NEW_NEXT_HOP, 12, &group(&[(1, 1), (3, 1)])),
        next_hop(NEW_NEXT_HOP, 13, &[number(5, 7), attribute(11, &[])].concat()),
        next_hop(DEL_NEXT_HOP, 14, &[]),
    ];
    let mut routes = Routes::default();
    for message in Messages::new(&bytes.concat()) {
        routes.load(message);
    }
    let prefixes = ["2001:1::/32", "2001:2::/32", "2001:3::/32", "2001:10::/32", "2001:11::/32"];
    for (prefix, id) in prefixes.iter().zip([1, 2, 3, 10, 11]) {
        // The next hops in the route itself are outdated: those of the object take precedence.
        let route = Route::to(prefix).via("fe80::77", 77).object(id);
        Messages::new(&route.added(0)).for_each(|message| routes.load(message));
    }
    let encap = Some(KernelEncap { reduced: true, segments: vec!["fcbb:0:1::".parse().unwrap()], source: None });
    let actions: Vec<&KernelAction> = routes.used().map(|route| &route.action).collect();
    assert_eq!(
        actions,
        [
            &KernelAction::Via(vec![hop(7, Some("fe80::1"), 1)]),
            &KernelAction::Via(vec![KernelHop { encap: encap.clone(), ..hop(8, None, 1) }]),
            &KernelAction::Blackhole,
            &KernelAction::Via(vec![hop(7, Some("fe80::1"), 300), KernelHop { encap, ..hop(8, None, 1) }]),
            &KernelAction::Blackhole,
        ]
    );
    assert_eq!(NextHops::default().action(1), None);
}

#[test]
fn rules_are_read_and_written_as_ip_rule_does() {
    let to = |prefix: &str| attribute(1, &octets(prefix.parse().unwrap()));
    let mut inside =
        rule(2, 0, 1, &[number(6, 100), number(15, 5000), to("10.1.0.0"), attribute(3, b"eth1\0")].concat());
    inside[17] = 16; // length of the destination prefix in bits
    let mut marked = rule(10, 254, 1, &[number(6, 200), number(10, 7), number(16, 0xff)].concat());
    marked[24..28].copy_from_slice(&2u32.to_ne_bytes()); // FIB_RULE_INVERT
    let cases = [
        (inside, "100: from all to 10.1.0.0/16 iif eth1 lookup 5000"),
        (marked, "200: from all not fwmark 0x7/0xff lookup main"),
        (rule(10, 0, 1, &[number(6, 1000), attribute(19, &[1])].concat()), "1000: from all lookup [l3mdev-table]"),
        (rule(2, 0, 6, &[]), "0: from all blackhole"),
        (rule(2, 0, 2, &number(4, 300)), "0: from all goto 300"),
        (rule(2, 254, 1, &number(14, u32::MAX)), "0: from all lookup main"),
        (rule(2, 254, 1, &number(14, 0)), "0: from all suppress_prefixlength 0 lookup main"),
        (rule(2, 254, 1, &number(99, 0)), "0: from all selector 99 lookup main"),
    ];
    for (bytes, words) in cases {
        let Some(Message::Rule(rule)) = Messages::new(&bytes).next() else { unreachable!("{words}") };
        assert_eq!(rule.to_string(), words);
    }
    let own = rule(2, 254, 1, &attribute(3, b"lo\0"));
    let Some(Message::Rule(own)) = Messages::new(&own).next() else { unreachable!("a rule") };
    assert!(own.local_only && own.iif.is_none());
    assert_eq!(own.action, RuleAction::Lookup(TableId::MAIN));
}
