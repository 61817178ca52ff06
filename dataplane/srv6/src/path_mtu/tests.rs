//! Packet Too Big messages about packets that the tables themselves have encapsulated, and about others.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test may panic")]

use std::collections::BTreeSet;

use etherparse::{Icmpv6Type, PacketBuilder, icmpv6};

use super::*;
use crate::desired::{
    Block, Hop, Mac, NodePolicy, Path, Port, PortId, Role, Route, RouteAction, Steer, TableId, Tunnel, UnknownSid,
};
use crate::{DropReason, SlowState, Tally, Verdict, forward_one};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);
const TUNNEL: &str = "2001:db8:cafe::1";

fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn segments(list: &[&str]) -> SegmentList {
    SegmentList::new(list.iter().map(|text| ip(text)).collect(), &[]).unwrap()
}

/// Returns a state with one port. The clients' addresses `2001:db8:a::/48` and `10.0.0.0/8` lead back to it.
fn desired() -> Desired {
    let hop = Hop { port: PortId(0), via: Some(ip("2001:db8::2").into()), weight: 1 };
    let route = |prefix: &str| Route {
        table: TableId::MAIN,
        prefix: prefix.parse().unwrap(),
        action: RouteAction::Via(vec![hop]),
    };
    let path = |name: &str, list: &[&str]| Path {
        name: name.to_owned(),
        segments: segments(list),
        full_srh: false,
        weight: 1,
        source: (name == "own source").then(|| ip("2001:db8:cafe::5")),
        via: vec![hop],
    };
    let steer = |prefix: &str, paths| Steer { table: TableId::MAIN, prefix: prefix.parse().unwrap(), paths };
    Desired {
        ports: vec![Port {
            icmp_source_v6: Some(ip("2001:db8::1")),
            icmp_source_v4: Some([192, 0, 2, 1].into()),
            ..Port::fabric("p0", 0, MAC, 1500)
        }],
        tunnel: Tunnel { source: Some(ip(TUNNEL)), ..Tunnel::default() },
        policy: NodePolicy::default(),
        blocks: vec![Block { prefix: "fcbb:bbbb::/32".parse().unwrap(), unknown: Some(UnknownSid::Drop) }],
        steers: vec![
            steer("4000::/16", vec![path("carrier", &["fcbb:bbbb:2:3::"])]),
            steer("4001::/16", vec![path("list", &["fcbb:bbbb:2:3::", "fcbb:bbbb:4:5::", "fcbb:bbbb:6::"])]),
            steer("4002::/16", vec![path("left", &["fcbb:bbbb:7::"]), path("right", &["fcbb:bbbb:8::"])]),
            steer("4003::/16", vec![path("own source", &["fcbb:bbbb:2:3::"])]),
            steer("44.0.0.0/8", vec![path("carrier-4", &["fcbb:bbbb:2:9::"])]),
        ],
        routes: vec![route("2001:db8:a::/48"), route("10.0.0.0/8")],
        neighbors: [((PortId(0), ip("2001:db8::2").into()), PEER)].into(),
        ..Desired::default()
    }
}

fn build(desired: &Desired) -> (Tables, Slots) {
    let mut slots = Slots::default();
    (Tables::build(desired, &mut slots).unwrap(), slots)
}

fn udp_v6(destination: &str, port: u16, len: usize) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(PEER.0, MAC.0);
    let builder = builder.ipv6(ip("2001:db8:a::1").octets(), ip(destination).octets(), 64).udp(port, 4791);
    let mut frame = Vec::new();
    builder.write(&mut frame, &vec![7; len - 48]).unwrap();
    frame
}

fn udp_v4(destination: [u8; 4], len: usize) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(PEER.0, MAC.0).ipv4([10, 0, 0, 1], destination, 64).udp(50_000, 4791);
    let mut frame = Vec::new();
    builder.write(&mut frame, &vec![7; len - 28]).unwrap();
    frame
}

/// Forwards a frame. Returns the verdict and the resulting bytes, Ethernet header included.
fn pass(tables: &Tables, slots: &Slots, frame: &[u8]) -> (Verdict, Vec<u8>) {
    let mut room = frame.to_vec();
    room.resize(4096, 0);
    let mut packet = Packet::new(&mut room, frame.len(), 0);
    let verdict = forward_one(tables, &Tally::new(slots), &mut SlowState::default(), 0, 0, &mut packet);
    let bytes = packet.bytes().to_vec();
    (verdict, bytes)
}

/// Returns the outer packet that a frame becomes.
fn encapsulated(tables: &Tables, slots: &Slots, frame: &[u8]) -> Vec<u8> {
    let (verdict, bytes) = pass(tables, slots, frame);
    assert_eq!(verdict, Verdict::Tx(0));
    bytes[14..].to_vec()
}

/// Returns the message of a router in the fabric about an outer packet, with as much of the packet as fits.
fn message(kind: Icmpv6Type, destination: &str, quoted: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(PEER.0, MAC.0);
    let builder = builder.ipv6(ip("2001:db8:f::1").octets(), ip(destination).octets(), 60).icmpv6(kind);
    let mut frame = Vec::new();
    builder.write(&mut frame, &quoted[..quoted.len().min(1232)]).unwrap();
    frame
}

fn too_big(mtu: u32, quoted: &[u8]) -> Vec<u8> {
    message(Icmpv6Type::PacketTooBig { mtu }, TUNNEL, quoted)
}

fn learn(tables: &Tables, frame: &[u8]) -> Vec<PathMtu> {
    let mut room = frame.to_vec();
    let packet = Packet::new(&mut room, frame.len(), 0);
    learned(tables, &packet, comes_from_domain(tables, 0, packet.bytes())).collect()
}

#[test]
fn a_path_is_known_by_the_packet_it_would_have_sent() {
    let desired = desired();
    let (tables, slots) = build(&desired);
    for (frame, carrier) in [
        (udp_v6("4000::9", 50_000, 1400), ["fcbb:bbbb:2:3::"].as_slice()),
        (udp_v6("4001::9", 50_000, 1400), ["fcbb:bbbb:2:3::", "fcbb:bbbb:4:5::", "fcbb:bbbb:6::"].as_slice()),
        (udp_v4([44, 0, 0, 9], 1400), ["fcbb:bbbb:2:9::"].as_slice()),
    ] {
        let quoted = encapsulated(&tables, &slots, &frame);
        let heard = learn(&tables, &too_big(1400, &quoted));
        let by_segments = PathMtu::by_segments(heard, &slots, &desired);
        assert_eq!(by_segments, [(segments(carrier), 1400)].into());
    }
    let own = encapsulated(&tables, &slots, &udp_v6("4003::9", 50_000, 1400));
    let heard = message(Icmpv6Type::PacketTooBig { mtu: 1400 }, "2001:db8:cafe::5", &own);
    assert_eq!(learn(&tables, &heard).len(), 1);
}

#[test]
fn a_carrier_is_known_after_shifts_and_at_every_segment() {
    let (tables, slots) = build(&desired());
    let quoted = encapsulated(&tables, &slots, &udp_v6("4001::9", 50_000, 1400));
    for (active, known) in [
        ("fcbb:bbbb:3::", true),
        ("fcbb:bbbb:4:5::", true),
        ("fcbb:bbbb:5::", true),
        ("fcbb:bbbb:6::", true),
        ("fcbb:bbbb:2::", false),
        ("fcbb:bbbb::", false),
        ("2001:db8::9", false),
    ] {
        let mut quoted = quoted.clone();
        quoted[24..40].copy_from_slice(&ip(active).octets());
        assert_eq!(!learn(&tables, &too_big(1400, &quoted)).is_empty(), known, "{active}");
    }
}

#[test]
fn of_several_paths_the_one_of_the_flow_is_meant() {
    let desired = desired();
    let (tables, slots) = build(&desired);
    let quoted: Vec<_> =
        (0..64).map(|port| encapsulated(&tables, &slots, &udp_v6("4002::9", 50_000 + port, 1400))).collect();
    let carrier = |quoted: &[u8]| Ipv6Addr::from_bits(u128::from_be_bytes(quoted[24..40].try_into().unwrap()));
    let carriers: BTreeSet<Ipv6Addr> = quoted.iter().map(|quoted| carrier(quoted)).collect();
    assert_eq!(carriers.len(), 2, "flows are spread");
    for quoted in quoted {
        let heard = PathMtu::by_segments(learn(&tables, &too_big(1400, &quoted)), &slots, &desired);
        assert_eq!(heard, [(segments(&[&carrier(&quoted).to_string()]), 1400)].into());
    }
}

#[test]
fn others_packets_and_others_errors_change_nothing() {
    let (tables, slots) = build(&desired());
    let quoted = encapsulated(&tables, &slots, &udp_v6("4000::9", 50_000, 1400));
    let with = |at: usize, bytes: &[u8]| {
        let mut quoted = quoted.clone();
        quoted[at..at + bytes.len()].copy_from_slice(bytes);
        quoted
    };
    assert_eq!(learn(&tables, &too_big(1280, &quoted)).len(), 1);
    let mut wrong_checksum = too_big(1400, &quoted);
    wrong_checksum[14 + 40 + 2] ^= 1;
    let unreachable = Icmpv6Type::DestinationUnreachable(icmpv6::DestUnreachableCode::NoRoute);
    for (name, frame) in [
        ("smaller than IPv6 allows", too_big(1279, &quoted)),
        ("no smaller than the port", too_big(1500, &quoted)),
        ("another source", too_big(1400, &with(8, &ip("2001:db8:cafe::66").octets()))),
        ("to another than the source", message(Icmpv6Type::PacketTooBig { mtu: 1400 }, "2001:db8::1", &quoted)),
        ("another carrier", too_big(1400, &with(24, &ip("fcbb:bbbb:2:9::").octets()))),
        ("an inner packet that is not steered", too_big(1400, &with(64, &ip("4005::9").octets()))),
        ("nothing inside", too_big(1400, &with(6, &[59]))),
        ("too short", too_big(1400, &quoted[..79])),
        ("another error", message(unreachable, TUNNEL, &quoted)),
        ("damaged", wrong_checksum),
        ("no error at all", udp_v6("4000::9", 50_000, 1400)),
    ] {
        assert_eq!(learn(&tables, &frame), [], "{name}");
    }
}

#[test]
fn a_smaller_path_tells_the_inner_sender() {
    let paths = [(segments(&["fcbb:bbbb:2:3::"]), 1300), (segments(&["fcbb:bbbb:2:9::"]), 1300)].into();
    let (tables, slots) = build(&Desired { path_mtus: paths, ..desired() });
    let said = |frame: &[u8], at: usize, len: usize| {
        let (verdict, bytes) = pass(&tables, &slots, frame);
        assert_eq!(verdict, Verdict::Error(DropReason::PacketTooBig, 0));
        bytes[at..at + len].iter().fold(0, |mtu, &byte| mtu << 8 | u32::from(byte))
    };
    // An IPv6 sender may always send 1280 bytes. The router that drops the outer packet reports it.
    assert_eq!(said(&udp_v6("4000::9", 50_000, 1281), 14 + 40 + 4, 4), 1280);
    assert_eq!(pass(&tables, &slots, &udp_v6("4000::9", 50_000, 1280)).0, Verdict::Tx(0));
    let mut dont_fragment = udp_v4([44, 0, 0, 9], 1261);
    assert_eq!(dont_fragment[14 + 6], 0x40, "etherparse sets it");
    assert_eq!(said(&dont_fragment, 14 + 20 + 6, 2), 1260);
    dont_fragment = udp_v4([44, 0, 0, 9], 1260);
    assert_eq!(pass(&tables, &slots, &dont_fragment).0, Verdict::Tx(0));
}

#[test]
fn what_is_known_already_is_not_reported() {
    let desired = desired();
    let (tables, slots) = build(&desired);
    let quoted = encapsulated(&tables, &slots, &udp_v6("4000::9", 50_000, 1400));
    let known = [(segments(&["fcbb:bbbb:2:3::"]), 1400)].into();
    let (tables, _) = build(&Desired { path_mtus: known, ..desired });
    assert_eq!(learn(&tables, &too_big(1400, &quoted)), []);
    assert_eq!(learn(&tables, &too_big(1399, &quoted)).len(), 1);
}

#[test]
fn a_carrier_is_known_after_every_shift() {
    let bits = |text: &str| ip(text).to_bits();
    let active: Vec<u128> = shifts(bits("fcbb:0:1:2:3::"), 32).collect();
    assert_eq!(active, ["fcbb:0:1:2:3::", "fcbb:0:2:3::", "fcbb:0:3::"].map(bits));
    assert_eq!(shifts(bits("fcbb:0:1:2:3:4:5:6"), 32).count(), 6);
    assert_eq!(shifts(bits("fcbb:0:1:2::"), 48).count(), 1);
    assert_eq!(shifts(bits("fcbb::"), 32).count(), 0);
    assert_eq!(shifts(bits("2001:db8::1"), 128).count(), 0);
}

#[test]
fn none_is_believed_from_outside_or_below_the_least() {
    let quoted = {
        let (tables, slots) = build(&desired());
        encapsulated(&tables, &slots, &udp_v6("4000::9", 50_000, 1400))
    };
    let heard = |change: &dyn Fn(&mut Desired)| {
        let mut desired = desired();
        change(&mut desired);
        learn(&build(&desired).0, &too_big(1400, &quoted)).len()
    };
    assert_eq!(heard(&|_| ()), 1);
    for role in [Role::Edge, Role::Host] {
        assert_eq!(heard(&|desired| desired.ports[0].role = role), 0, "{role:?}");
    }
    let domain = |prefix: &'static str| {
        move |desired: &mut Desired| desired.policy.domain_sources = vec![prefix.parse().unwrap()]
    };
    assert_eq!(heard(&domain("2001:db8:f::/48")), 1, "the router is of the domain");
    assert_eq!(heard(&domain("fcbb:bbbb::/32")), 0, "it is not");
    assert_eq!(heard(&|desired| desired.policy.least_path_mtu = 1400), 1);
    assert_eq!(heard(&|desired| desired.policy.least_path_mtu = 1401), 0);
}
