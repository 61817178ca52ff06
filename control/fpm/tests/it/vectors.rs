//! Messages recorded from FRR 10.7.1 and 8.4.4 on a little-endian machine, without their frame headers.
#![cfg(target_endian = "little")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use crate::made;

use made::{bytes, decoded};
use srv6d_fpm::{Encap, EncapMode, Event, Hop, Route, RouteKey, Seg6Local, Target, Vrf};

const UN: &str = "700000001800010500000000985747b10a300000fec400010000000014000100fcbbbbbb000100000000000000000000080006001400\
    000006001500070000002800168008000100010000001c000b8008000100100000000500020020000000050003001000050008000400050\
    00000";
const UA: &str = "8c0000001800010500000000985747b10a400000fec400010000000014000100fcbbbbbb0001fe24000000000000000008000600140\
    0000006001500070000004400168008000100020000001400050020010db800010000000000000000000208000700030000001c000b80080\
    0010010000000050002002000040005000300200000000800040003000000";
const H_ENCAPS: &str = "7c0000001800010500000000985747b10a100000fec40001000000001400010040010000000000000000000000000000080006\
    00140000000600150005000000340016803000010001000000000404010100 0000fcbbbbbb000200090000000000000000fcbbbbbb0002\
    000300000000000000000800040003000000";
const H_ENCAPS_RED: &str = "780000001800010500000000c284ec9f02180000feba00010400000008000100c633660008000600140000000600150005\
    0000002400168020000100030000000002040000000000fcbbbbbb0002e0000000000000000000160012000a00fe80000000000000806e21ff\
    fe57dbeb00000800040002000000";
const PLAIN: &str = "540000001800010400000000b768c6e90a300000feba00010000000014000100fcbbbbbb00090000000000000000000008000600\
    1400000014000500fe80000000000000ac6d16fffe94089a0800040002000000";

fn key(prefix: &str) -> RouteKey {
    RouteKey { vrf: Vrf::Number(254), prefix: prefix.parse().unwrap() }
}

fn recorded(hex: &str, prefix: &str) -> Route {
    let decoded = decoded(&bytes(hex));
    assert_eq!((decoded.dialect, decoded.unknown_attributes), (None, 0));
    let Event::Route(found, route) = decoded.event else { panic!("{:?}", decoded.event) };
    assert_eq!(found, key(prefix));
    route
}

fn encap(mode: u32, segments: &[&str]) -> Encap {
    let segments = segments.iter().map(|segment| segment.parse().unwrap()).collect();
    Encap { mode: EncapMode::Kernel(mode), segments, source: None }
}

#[test]
fn un() {
    let sid = Seg6Local { action: 1, flavors: 0x10, block: Some(32), node_function: Some(16), ..Seg6Local::default() };
    assert_eq!(recorded(UN, "fcbb:bbbb:1::/48"), Route { protocol: 196, target: Target::Sid(sid) });
}

#[test]
fn ua_consumes_node_and_function() {
    let sid = Seg6Local {
        action: 2,
        via: Some("2001:db8:1::2".parse().unwrap()),
        device: Some(3),
        flavors: 0x10,
        block: Some(32),
        node_function: Some(32),
        ..Seg6Local::default()
    };
    assert_eq!(recorded(UA, "fcbb:bbbb:1:fe24::/64"), Route { protocol: 196, target: Target::Sid(sid) });
}

#[test]
fn segments_are_in_the_order_they_are_visited() {
    let hop =
        Hop { device: Some(3), via: None, weight: 1, encap: Some(encap(1, &["fcbb:bbbb:2:3::", "fcbb:bbbb:2:9::"])) };
    assert_eq!(recorded(H_ENCAPS, "4001::/16").target, Target::Hops(vec![hop]));
}

#[test]
fn ipv4_over_ipv6_has_its_neighbour_in_via() {
    let via = Some("fe80::806e:21ff:fe57:dbeb".parse().unwrap());
    let hop = Hop { device: Some(2), via, weight: 1, encap: Some(encap(3, &["fcbb:bbbb:2:e000::"])) };
    let route = recorded(H_ENCAPS_RED, "198.51.102.0/24");
    assert_eq!(route, Route { protocol: 186, target: Target::Hops(vec![hop]) });
}

#[test]
fn plain_route() {
    let via = Some("fe80::ac6d:16ff:fe94:89a".parse().unwrap());
    let hop = Hop { device: Some(2), via, weight: 1, encap: None };
    assert_eq!(recorded(PLAIN, "fcbb:bbbb:9::/48"), Route { protocol: 186, target: Target::Hops(vec![hop]) });
}
