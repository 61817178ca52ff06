//! SONiC's dialect, written by hand according to the sources of SONiC, because there is no recording of it here.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::made;

use made::{DEL_SID, NEW_SID, address, announce, attribute, decoded, message, number, sid, steer, withdraw};
use srv6d_fpm::{Action, Dialect, Encap, EncapMode, Event, Hop, Ignored, LocalSid, RouteKey, Target, Vrf, offloaded};

fn of(message: &[u8]) -> Event {
    let decoded = decoded(message);
    assert_eq!(decoded.dialect, Some(Dialect::Sonic));
    decoded.event
}

fn local(message: &[u8]) -> (String, LocalSid) {
    match of(message) {
        Event::Sid(prefix, sid) => (prefix.to_string(), sid),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_action_that_can_be_carried_out() {
    for (number_of, action) in [
        (1, Action::End(false)),
        (2, Action::EndX(false)),
        (5, Action::EndDx6),
        (6, Action::EndDx4),
        (7, Action::EndDt6),
        (8, Action::EndDt4),
        (9, Action::EndDt46),
        (14, Action::End(true)),
        (15, Action::EndX(true)),
        (17, Action::EndDx6),
        (18, Action::EndDx4),
        (19, Action::EndDt6),
        (20, Action::EndDt4),
        (21, Action::EndDt46),
        (3, Action::Other(3)),
        (10, Action::Other(10)),
        (99, Action::Other(99)),
    ] {
        let sid = sid(NEW_SID, "fcbb:bbbb:1::/48", [32, 16, 0, 0], &[number(3, number_of)]);
        assert_eq!(local(&sid).1.action, Some(action));
    }
}

#[test]
fn ua_with_its_neighbour_and_port() {
    let attributes = [number(3, 15), address(5, "2001:db8:b::2"), attribute(12, b"Ethernet4\0")];
    let (prefix, sid) = local(&sid(NEW_SID, "fcbb:bbbb:1:fe24::/64", [32, 16, 16, 0], &attributes));
    assert_eq!(prefix, "fcbb:bbbb:1:fe24::/64");
    let expected = LocalSid {
        action: Some(Action::EndX(true)),
        block: 32,
        node_function: 32,
        vrf: None,
        via: Some("2001:db8:b::2".parse().unwrap()),
        port: Some("Ethernet4".to_owned()),
    };
    assert_eq!(sid, expected);
}

#[test]
fn a_local_ua_consumes_its_function_alone() {
    let (_, sid) = local(&sid(NEW_SID, "fcbb:bbbb:fe24::/48", [32, 0, 16, 0], &[number(3, 15)]));
    assert_eq!((sid.block, sid.node_function), (32, 16));
}

#[test]
fn the_prefix_knows_better_than_the_lengths() {
    // FRR sends these lengths for a SID whose lengths it does not know.
    let (_, sid) = local(&sid(NEW_SID, "fcbb:bbbb:1::/48", [32, 16, 16, 0], &[number(3, 14)]));
    assert_eq!((sid.block, sid.node_function), (32, 16));
}

#[test]
fn a_host_address_matches_as_far_as_its_parts_go() {
    let attributes = [number(3, 21), attribute(4, b"Vrf1\0")];
    let (prefix, sid) = local(&sid(NEW_SID, "fcbb:bbbb:1:d046::/128", [32, 16, 16, 0], &attributes));
    assert_eq!(prefix, "fcbb:bbbb:1:d046::/64");
    assert_eq!(sid.vrf.as_deref(), Some("Vrf1"));
}

#[test]
fn a_sid_goes_without_its_action() {
    let gone = of(&sid(DEL_SID, "fcbb:bbbb:1::/48", [32, 16, 0, 0], &[]));
    assert_eq!(gone, Event::SidGone("fcbb:bbbb:1::/48".parse().unwrap()));
}

#[test]
fn steering_to_a_sid_without_a_next_hop_and_with_one() {
    let encap = Encap {
        mode: EncapMode::Sonic,
        segments: vec!["fcbb:bbbb:2:d046::".parse().unwrap()],
        source: Some("fcbb:bbbb:1::1".parse().unwrap()),
    };
    let key = RouteKey { vrf: Vrf::Number(17), prefix: "192.0.2.0/24".parse().unwrap() };
    let mut attributes = steer("fcbb:bbbb:2:d046::", "fcbb:bbbb:1::1");
    let hop = Hop { weight: 1, encap: Some(encap.clone()), ..Hop::default() };
    match of(&announce("192.0.2.0/24", 17, &attributes)) {
        Event::Route(found, route) => assert_eq!((found, route.target), (key, Target::Hops(vec![hop]))),
        other => panic!("{other:?}"),
    }
    attributes.extend([address(5, "2001:db8:b::2"), number(4, 3)]);
    let via = Some("2001:db8:b::2".parse().unwrap());
    let hop = Hop { device: Some(3), via, weight: 1, encap: Some(encap) };
    match of(&announce("192.0.2.0/24", 17, &attributes)) {
        Event::Route(_, route) => assert_eq!(route.target, Target::Hops(vec![hop])),
        other => panic!("{other:?}"),
    }
}

#[test]
fn steering_over_several_sids() {
    let leg = |sid: &str, weight: u8| {
        let attributes = steer(sid, "fcbb:bbbb:1::1").concat();
        let length = u16::try_from(8 + attributes.len()).unwrap().to_ne_bytes();
        [&length[..], &[0, weight - 1, 0, 0, 0, 0], &attributes].concat()
    };
    let legs = [leg("fcbb:bbbb:2:d046::", 1), leg("fcbb:bbbb:3:d046::", 3)].concat();
    let Event::Route(_, route) = of(&announce("2001:db8:9::/64", 0, &[attribute(9, &legs)])) else { panic!() };
    let Target::Hops(hops) = route.target else { panic!("{:?}", route.target) };
    let seen: Vec<(u16, Option<u32>, String)> = hops
        .iter()
        .map(|hop| (hop.weight, hop.device, hop.encap.as_ref().unwrap().segments.first().unwrap().to_string()))
        .collect();
    assert_eq!(seen, [(1, None, "fcbb:bbbb:2:d046::".to_owned()), (3, None, "fcbb:bbbb:3:d046::".to_owned())]);
}

#[test]
fn table_0_is_the_default_vrf_and_tells_the_dialect() {
    let key = RouteKey { vrf: Vrf::Default, prefix: "2001:db8:9::/64".parse().unwrap() };
    assert_eq!(of(&withdraw("2001:db8:9::/64", 0)), Event::RouteGone(key));
    // A kernel index above 255 does not fit into the header.
    let far = decoded(&announce("2001:db8:9::/64", 0, &[number(15, 1017)]));
    assert_eq!(far.dialect, None);
    assert!(matches!(far.event, Event::Route(RouteKey { vrf: Vrf::Number(1017), .. }, _)));
}

#[test]
fn what_is_of_no_use_is_named() {
    for (kind, ignored) in [
        (2000, Ignored::PicContext),
        (3001, Ignored::VpnRoute),
        (4000, Ignored::SidList),
        (28, Ignored::Neighbour),
        (144, Ignored::Evpn(144)),
        (77, Ignored::Type(77)),
    ] {
        assert_eq!(decoded(&message(kind, b"what", &[])).event, Event::Ignored(ignored));
    }
}

#[test]
fn an_answer_is_the_route_with_a_flag() {
    let key = RouteKey { vrf: Vrf::Number(1017), prefix: "198.51.100.0/24".parse().unwrap() };
    let frame = offloaded(&key, 186);
    let rest = frame.get(4..).unwrap();
    assert_eq!(frame.get(..2), Some(&[1, 1][..]));
    assert_eq!(usize::from(u16::from_be_bytes([frame[2], frame[3]])), frame.len());
    // nlmsg_type 24, flags NLM_F_REQUEST.
    assert_eq!(rest.get(4..8), Some(&[24, 0, 1, 0][..]));
    // struct rtmsg: IPv4, /24, protocol 186, unicast, RTM_F_OFFLOAD.
    assert_eq!(rest.get(16..28), Some(&[2, 24, 0, 0, 0, 186, 0, 1, 0, 0x40, 0, 0][..]));
    let Event::Route(said, route) = decoded(rest).event else { panic!() };
    assert_eq!((said, route.protocol), (key, 186));
}
