//! The fast path against the slow path, on the same packets: same verdict, same bytes, same counters.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a failed test may panic"
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use srv6d_wire::{Extent, checksum};

use super::*;
use crate::carrier::SegmentList;
use crate::desired::{
    Behavior, Block, Desired, Flavors, Hop, LocalSid, Mac, Path, Port, PortId, Route, RouteAction, Steer, TableId,
    Tunnel, UnknownSid,
};
use crate::slow::slow_path;
use crate::{Slots, SlowState, Verdict};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const HEADROOM: usize = 256;
const ROOM: usize = HEADROOM + 2048;

/// Returns a port. 0 and 1 are fabric ports, 2 is a VLAN of 1, 3 is an edge port, 4 is a fabric port with a small
/// MTU.
fn port(index: u16, name: &str) -> Port {
    Port {
        vlan: (index == 2).then_some(100),
        role: if index == 3 { Role::Edge } else { Role::Fabric },
        source: (index == 4).then(|| address(0x2001_0db8, [4])),
        ..Port::fabric(name, if index == 2 { 1 } else { index }, MAC, if index == 4 { 300 } else { 1500 })
    }
}

/// Builds an address of the first 32 bits, groups of 16 bits, and zeros.
fn address<const N: usize>(head: u32, groups: [u16; N]) -> Ipv6Addr {
    let groups = groups.iter().fold(u128::from(head), |bits, &group| bits << 16 | u128::from(group));
    Ipv6Addr::from_bits(groups << (96 - 16 * N))
}

fn neighbor(port: u16) -> IpAddr {
    IpAddr::V6(address(0x2001_0db8, [1, port]))
}

fn hop(port: u16) -> Hop {
    Hop { port: PortId(port), via: Some(neighbor(port)), weight: 1 }
}

fn sids() -> Vec<LocalSid> {
    let sid = |groups: &[u16], behavior| {
        let bits = groups.iter().fold(0xfcbb_0000u128, |bits, &group| bits << 16 | u128::from(group));
        let len = 32 + 16 * groups.len() as u8;
        let prefix = ipnet::Ipv6Net::new_assert(Ipv6Addr::from_bits(bits << (128 - len)), len);
        LocalSid { prefix, behavior, flavors: Flavors { psp: true, usp: false, usd: true } }
    };
    let csid = |nflen| Some(Csid { lblen: 32, nflen });
    let dt = |family, table, dscp| Behavior::EndDt { family, table: TableId(table), dscp };
    let end_x = |nflen, port| Behavior::EndX { csid: csid(nflen), via: vec![hop(port)], backup: vec![] };
    vec![
        sid(&[1], Behavior::End { csid: csid(16), dscp: DscpMode::Pipe(0) }),
        sid(&[1, 0xe001], end_x(32, 1)),
        sid(&[1, 0xe002], end_x(32, 2)),
        sid(&[0xe004], end_x(16, 4)),
        sid(&[1, 0xfe06], dt(DtFamily::V6, 254, DscpMode::Pipe(0))),
        sid(&[1, 0xfe04], dt(DtFamily::V4, 254, DscpMode::Uniform)),
        sid(&[1, 0xfe46], dt(DtFamily::V46, 7, DscpMode::Uniform)),
    ]
}

/// First uSID of the carrier whose path has a learned MTU of 180 bytes.
const LEARNED: u16 = 0x180;

fn segments(usid: u16, len: u16) -> SegmentList {
    SegmentList::new((0..len).map(|n| address(0xfcbb_0000, [usid, n + 1])).collect(), &[]).unwrap()
}

fn steers() -> Vec<Steer> {
    let path = |name: &str, segments: u16, via: Vec<Hop>| Path {
        name: name.to_owned(),
        segments: self::segments(if name == "learned-4" { LEARNED } else { 9 }, segments),
        full_srh: false,
        weight: 1,
        source: (name == "own").then(|| address(0x2001_0db8, [77])),
        via,
    };
    let steer = |prefix: &str, paths| Steer { table: TableId::MAIN, prefix: prefix.parse().unwrap(), paths };
    vec![
        steer("2a00:1::/32", vec![path("one", 1, vec![hop(1)])]),
        steer("2a00:2::/32", vec![path("three", 3, vec![hop(1)])]),
        steer("2a00:3::/32", vec![path("left", 1, vec![hop(1)]), path("right", 1, vec![hop(3)])]),
        steer("2a00:4::/32", vec![path("small", 1, vec![hop(4)])]),
        steer("2a00:5::/32", vec![path("own", 1, vec![hop(4)])]),
        steer("2a00:6::/32", vec![path("spread", 1, vec![hop(1), hop(4)])]),
        steer("2a00:7::/32", vec![path("held", 1, vec![hop(0)])]),
        steer("44.1.0.0/16", vec![path("one-4", 1, vec![hop(1)])]),
        steer("44.2.0.0/16", vec![path("tagged-4", 1, vec![hop(2)])]),
        steer("44.3.0.0/16", vec![path("learned-4", 1, vec![hop(1)])]),
    ]
}

fn routes() -> Vec<Route> {
    let route = |table, prefix: &str, action| Route { table: TableId(table), prefix: prefix.parse().unwrap(), action };
    let via = |ports: &[u16]| RouteAction::Via(ports.iter().copied().map(hop).collect());
    vec![
        route(254, "3000::/16", via(&[1])),
        route(254, "3001::/16", via(&[1, 3])),
        route(254, "3002::/16", via(&[4])),
        route(254, "3003::/16", RouteAction::Blackhole),
        route(254, "fcbb:0:2::/48", via(&[1])),
        route(254, "fcbb:0:3::/48", via(&[0])),
        route(254, "fcbb:0:4::/48", via(&[4])),
        route(254, "10.0.0.0/8", via(&[1])),
        route(254, "11.0.0.0/8", RouteAction::Unreachable),
        route(254, "0.0.0.0/0", via(&[2])),
        route(7, "3000::/16", via(&[3])),
        route(7, "10.0.0.0/8", via(&[4])),
    ]
}

/// Builds the tables. All neighbours but that of port 0 are resolved.
fn tables(dscp: DscpMode, ecn_compat: bool, guards: Guards) -> (Tables, Slots) {
    tables_with(routes(), dscp, ecn_compat, guards)
}

/// The sources that its SIDs and port 0 accept: all, or those of [`PLAIN`] and 10.0.0.1 only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guards {
    Open,
    Few,
}

fn tables_with(routes: Vec<Route>, dscp: DscpMode, ecn_compat: bool, guards: Guards) -> (Tables, Slots) {
    let mut slots = Slots::default();
    let few: Vec<ipnet::IpNet> = match guards {
        Guards::Open => vec![],
        Guards::Few => ["2001:db8:99::/48", "10.0.0.1/32"].map(|prefix| prefix.parse().unwrap()).into(),
    };
    let domain =
        few.iter().filter_map(|prefix| if let ipnet::IpNet::V6(prefix) = prefix { Some(*prefix) } else { None });
    let port = |(name, index): (&&str, u16)| Port {
        allowed_sources: if index == 0 { few.clone() } else { vec![] },
        ..port(index, name)
    };
    let desired = Desired {
        ports: ["a", "b", "b.100", "c", "d"].iter().zip(0..).map(port).collect(),
        policy: crate::desired::NodePolicy {
            domain_sources: domain.collect(),
            ..crate::desired::NodePolicy::default()
        },
        tunnel: Tunnel { source: Some(address(0x2001_0db8, [1])), dscp, ecn_compat, ..Tunnel::default() },
        blocks: vec![Block { prefix: "fcbb::/32".parse().unwrap(), unknown: Some(UnknownSid::Drop) }],
        sids: sids(),
        steers: steers(),
        routes,
        neighbors: (1..5).map(|port| ((PortId(port), neighbor(port)), Mac([2, 0, 0, 0, 1, port as u8]))).collect(),
        path_mtus: [(segments(LEARNED, 1), 180)].into(),
        ..Desired::default()
    };
    (Tables::build(&desired, &mut slots).unwrap(), slots)
}

fn destination_v6() -> BoxedStrategy<u128> {
    let usid =
        || prop_oneof![Just(0u16), 1..6u16, Just(0xe001), Just(0xe002), Just(0xe004), Just(0xfe06), Just(0xfe46)];
    let carrier = prop::collection::vec(usid(), 6)
        .prop_map(|usids| usids.into_iter().fold(0xfcbb_0000u128, |bits, usid| bits << 16 | u128::from(usid)));
    let decap = prop_oneof![Just(0xfe06u16), Just(0xfe04), Just(0xfe46)]
        .prop_map(|function| address(0xfcbb_0000, [1, function]).to_bits());
    let steered = (1..9u16).prop_map(|n| address(0x2a00_0000 | u32::from(n), [5]).to_bits());
    let routed = (0..5u32).prop_map(|n| address((0x3000 + n) << 16, [5]).to_bits());
    let special = prop_oneof![Just(0u128), Just(1), Just(0xff02 << 112 | 1), Just(0xfe80 << 112 | 1)];
    prop_oneof![4 => carrier, 3 => decap, 4 => steered, 4 => routed, 1 => special].boxed()
}

fn inner_or_payload() -> BoxedStrategy<(u8, Vec<u8>)> {
    let upper = prop_oneof![Just(6u8), Just(17), Just(58), Just(0), Just(60), Just(43), Just(44), any::<u8>()];
    let payload = (upper, prop::collection::vec(any::<u8>(), 0..300));
    let v6 = payload.clone().prop_flat_map(|(next_header, payload)| {
        let fields = (header_v6(), destination_v6());
        fields.prop_map(move |(fields, destination)| (41, v6_packet(&fields, destination, next_header, &payload)))
    });
    let v4 = v4_packet().prop_map(|packet| (4, packet));
    prop_oneof![2 => payload, 3 => v6, 2 => v4].boxed()
}

/// Traffic class, hop limit and source of a header.
type Fields = (u8, u8, u128);

fn header_v6() -> BoxedStrategy<Fields> {
    let hop_limit = prop_oneof![4 => Just(64u8), 1 => Just(0), 1 => Just(1), 1 => Just(2), 1 => any::<u8>()];
    let plain = address(0x2001_0db8, [0x99]).to_bits();
    let own = address(0x2001_0db8, [1]).to_bits();
    let source = prop_oneof![6 => Just(plain), 1 => Just(own), 1 => Just(0), 1 => Just(1), 1 => Just(0xff02 << 112)];
    let class = prop_oneof![2 => Just(0u8), 1 => Just(0xb8), 2 => any::<u8>()];
    (class, hop_limit, source).boxed()
}

fn v6_packet(&(class, hop_limit, source): &Fields, destination: u128, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (0x6000_0000 | u32::from(class) << 20 | 0x12345).to_be_bytes().to_vec();
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend([next_header, hop_limit]);
    bytes.extend(source.to_be_bytes());
    bytes.extend(destination.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn v4_packet() -> BoxedStrategy<Vec<u8>> {
    let ttl = prop_oneof![4 => Just(64u8), 1 => Just(1), 1 => Just(2), 1 => any::<u8>()];
    let from = |list: &[[u8; 4]]| prop::sample::select(list.to_vec());
    let source = from(&[[10, 0, 0, 1], [10, 0, 0, 2], [0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]]);
    let destination = from(&[
        [44, 1, 0, 1],
        [44, 2, 0, 1],
        [44, 3, 0, 1],
        [10, 1, 1, 1],
        [11, 1, 1, 1],
        [169, 254, 0, 1],
        [224, 0, 0, 1],
        [255; 4],
    ]);
    let start = prop_oneof![8 => Just(0x45u8), 1 => Just(0x46)];
    let flags = prop_oneof![4 => Just(0x4000u16), 1 => Just(0), 1 => any::<u16>()];
    let protocol = prop_oneof![Just(6u8), Just(17), any::<u8>()];
    let payload = prop::collection::vec(any::<u8>(), 0..300);
    let fields = (start, any::<u8>(), flags, ttl, protocol);
    (fields, source, destination, payload, prop::bool::weighted(0.1))
        .prop_map(|((start, tos, flags, ttl, protocol), source, destination, payload, bad)| {
            let mut bytes = vec![start, tos];
            bytes.extend((20 + payload.len() as u16).to_be_bytes());
            bytes.extend([0, 7]);
            bytes.extend(flags.to_be_bytes());
            bytes.extend([ttl, protocol, 0, 0]);
            bytes.extend(Ipv4Addr::from(source).octets());
            bytes.extend(Ipv4Addr::from(destination).octets());
            bytes.extend(payload);
            let covered = bytes.len().min(usize::from(start & 15) * 4);
            let sum = checksum::of(&bytes[..covered]) ^ u16::from(bad);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            bytes
        })
        .boxed()
}

/// Generates a frame, and how many bytes of it lie in further buffers.
fn frame() -> impl Strategy<Value = (Vec<u8>, usize)> {
    let v6 = (header_v6(), destination_v6(), inner_or_payload())
        .prop_map(|(fields, destination, (protocol, payload))| v6_packet(&fields, destination, protocol, &payload));
    let packet = prop_oneof![3 => v6.prop_map(|packet| (0x86dd_u16, packet)), 1 => v4_packet().prop_map(|packet| (0x0800, packet))];
    let mac = prop_oneof![12 => Just(MAC.0), 1 => Just([0xff; 6]), 1 => Just([2, 0, 0, 0, 0, 9])];
    let trailer = prop_oneof![6 => Just(0usize), 1 => 1..40usize];
    let tail = prop_oneof![6 => Just(0usize), 1 => 1..100usize];
    let damage = prop::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>()));
    (packet, mac, trailer, tail, damage).prop_map(|((ether_type, packet), mac, trailer, tail, damage)| {
        let mut bytes = mac.to_vec();
        bytes.extend([2, 0, 0, 0, 0, 8]);
        bytes.extend(ether_type.to_be_bytes());
        bytes.extend(packet);
        bytes.resize(bytes.len() + trailer, 0);
        if let Some((at, value)) = damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let tail = tail.min(bytes.len() / 2);
        (bytes, tail)
    })
}

/// Verdict, bytes and counters after a packet was handled.
#[derive(Debug, PartialEq)]
struct Outcome<V> {
    verdict: V,
    bytes: Vec<u8>,
    total: usize,
    counters: Vec<(u64, u64)>,
}

/// Returns a buffer that holds these bytes, and their place in it.
fn received(bytes: &[u8]) -> (Vec<u8>, Extent) {
    let at = Extent { start: HEADROOM, len: bytes.len() };
    let mut room = vec![0xa5; ROOM];
    room[at.start..at.start + at.len].copy_from_slice(bytes);
    (room, at)
}

fn outcome<V>(frame: &[u8], tail: usize, slots: &Slots, way: impl FnOnce(&Tally, &mut Packet<'_>) -> V) -> Outcome<V> {
    let (mut room, at) = received(&frame[..frame.len() - tail]);
    let mut packet = Packet::at(&mut room, at, tail);
    let tally = Tally::new(slots);
    let verdict = way(&tally, &mut packet);
    let counts = tally.sids.iter().chain(&tally.paths).chain(&tally.adjacencies).chain([&tally.ecn_unused]);
    Outcome {
        verdict,
        bytes: packet.bytes().to_vec(),
        total: packet.total_len(),
        counters: counts.map(crate::tally::Count::read).collect(),
    }
}

fn fast(tables: &Tables, tally: &Tally, device: u16, packet: &mut Packet<'_>) -> Option<u16> {
    let found = LookUpResult::of(tables, device, packet);
    write_one(tables, tally, packet, found)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]
    #[test]
    fn equals_the_slow_path(
        (frame, tail) in frame(),
        device in 0..5u16,
        dscp in prop_oneof![Just(DscpMode::Uniform), Just(DscpMode::Pipe(46))],
        ecn_compat: bool,
        guards in prop_oneof![Just(Guards::Open), Just(Guards::Few)],
    ) {
        let (tables, slots) = tables(dscp, ecn_compat, guards);
        let fast = outcome(&frame, tail, &slots, |tally, packet| fast(&tables, tally, device, packet));
        if fast.verdict.is_none() {
            let untouched = outcome(&frame, tail, &slots, |_, _| None);
            prop_assert_eq!(fast, untouched);
            return Ok(());
        }
        let slow = outcome(&frame, tail, &slots, |tally, packet| {
            match slow_path(&tables, tally, &mut SlowState::default(), 0, device, packet, &|_| 0) {
                Verdict::Tx(device) => Some(device),
                _ => None,
            }
        });
        prop_assert_eq!(fast, slow);
    }
}

/// A packet's buffer, its place in the buffer, and the number of bytes in further buffers.
type Held = (Vec<u8>, Extent, usize);

/// Frames that own their packets.
struct Alone;

impl Frames for Alone {
    type Frame = Held;

    fn packet<'f>(&self, (room, at, tail): &'f mut Held) -> Packet<'f> {
        Packet::at(room, *at, *tail)
    }

    fn place(&self, (_, at, tail): &mut Held, now: Extent, keep_tail: bool) {
        *at = now;
        *tail = if keep_tail { *tail } else { 0 };
    }
}

fn counts(tally: &Tally) -> Vec<(u64, u64)> {
    tally.sids.iter().chain(&tally.paths).chain(&tally.adjacencies).map(crate::tally::Count::read).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]
    /// A packet in a mixed burst is treated as it is treated alone, and the counters agree.
    #[test]
    fn a_burst_equals_its_packets(
        frames in prop::collection::vec((frame(), 1..8usize), 0..24),
        device in 0..5u16,
        guards in prop_oneof![Just(Guards::Open), Just(Guards::Few)],
    ) {
        let (tables, slots) = tables(DscpMode::Uniform, false, guards);
        let mut burst: Vec<Held> = Vec::new();
        for ((bytes, tail), times) in frames {
            let (room, at) = received(&bytes[..bytes.len() - tail]);
            burst.extend(std::iter::repeat_n((room, at, tail), times));
        }
        let (mut alone, mut left, one_by_one) = (burst.clone(), Vec::new(), Tally::new(&slots));
        for held in &mut alone {
            let mut packet = Alone.packet(held);
            let way = fast(&tables, &one_by_one, device, &mut packet);
            let (at, tail) = (packet.extent(), packet.tail_len());
            Alone.place(held, at, tail > 0);
            left.push(way.map(|device| (device, held.1.len + held.2)));
        }
        let together = Tally::new(&slots);
        let mut fresh = LookUps::with_capacity(burst.len());
        let mut cached = LookUps::with_capacity(burst.len()).cached();
        for port in [device, device, 0, 1, 2, 3, 4] {
            let (found, _) = fresh.look_up(&tables, port, &Alone, &mut burst);
            prop_assert_eq!(cached.look_up(&tables, port, &Alone, &mut burst).0, found, "port {}", port);
        }
        // Results of inner packets are cached, too.
        let mut once = burst.clone();
        let (found, mut inside) = cached.look_up(&tables, device, &Alone, &mut once);
        write_burst(&tables, &Tally::new(&slots), &Alone, &mut once, found, &mut inside, |_| {});
        let (found, mut inside) = cached.look_up(&tables, device, &Alone, &mut burst);
        let (mut done, mut expected) = (0, left.iter());
        while done < burst.len() {
            let (frames, found) = (&mut burst[done..], &found[done..]);
            done += write_burst(&tables, &together, &Alone, frames, found, &mut inside, |leaving| {
                let row: Vec<_> = expected.by_ref().take(leaving.packets).map(|way| way.unwrap()).collect();
                assert!(row.iter().all(|&(device, _)| device == leaving.device));
                assert_eq!(row.iter().map(|&(_, bytes)| bytes).sum::<usize>(), leaving.bytes);
            });
            prop_assert_eq!(expected.next().copied().flatten(), None);
            done += 1;
        }
        prop_assert_eq!(burst, alone);
        prop_assert_eq!(counts(&together), counts(&one_by_one));
    }
}

const PLAIN: Fields = (0x22, 64, 0x2001_0db8_0099 << 80);

fn plain_v6<const N: usize>(head: u32, groups: [u16; N], protocol: u8, payload: &[u8]) -> Vec<u8> {
    v6_packet(&PLAIN, address(head, groups).to_bits(), protocol, payload)
}

fn plain_v4(destination: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0x45, 0x22, 0, 80, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1];
    packet.extend(destination);
    let sum = checksum::of(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.resize(80, 7);
    packet
}

fn framed(packet: &[u8]) -> Vec<u8> {
    let ether_type = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
    [&MAC.0, &[2, 0, 0, 0, 0, 8], &ether_type[..], packet].concat()
}

/// A cached result belongs to one VRF in one epoch: here the same address leads elsewhere in each.
#[test]
fn what_is_inside_goes_by_the_vrf_of_its_sid_in_the_tables_in_force() {
    let inside = [plain_v6(0x3000_0000, [5], 17, &[7; 60]), plain_v4([10, 1, 1, 1])];
    let [v6, v4] = [(41, &inside[0]), (4, &inside[1])];
    let to = |function, (protocol, inside): (u8, &Vec<u8>)| plain_v6(0xfcbb_0000, [1, function], protocol, inside);
    let rows = [inside[0].clone(), to(0xfe06, v6), to(0xfe46, v6), to(0xfe04, v4), to(0xfe46, v4), inside[1].clone()];
    let mut look_ups = LookUps::with_capacity(4 * rows.len()).cached();
    for [main, other] in [[1, 3], [3, 4], [4, 1]] {
        let route = |(table, port, prefix): (u32, u16, &str)| Route {
            table: TableId(table),
            prefix: prefix.parse().unwrap(),
            action: RouteAction::Via(vec![hop(port)]),
        };
        let prefixes = ["3000::/16", "10.0.0.0/8"].into_iter();
        let routes = prefixes.flat_map(|prefix| [(254, main, prefix), (7, other, prefix)]).map(route).collect();
        let (tables, slots) = tables_with(routes, DscpMode::Uniform, false, Guards::Open);
        for time in ["searched", "remembered", "and again"] {
            let held = rows.iter().map(|packet| received(&framed(packet))).map(|(room, at)| (room, at, 0));
            let mut burst: Vec<Held> = held.flat_map(|held| std::iter::repeat_n(held, 4)).collect();
            let (found, mut inside) = look_ups.look_up(&tables, 0, &Alone, &mut burst);
            let mut ports = Vec::new();
            write_burst(&tables, &Tally::new(&slots), &Alone, &mut burst, found, &mut inside, |leaving| {
                assert_eq!(leaving.packets, 4);
                ports.push(leaving.device);
            });
            assert_eq!(ports, [main, main, other, main, other, main], "{time}");
        }
    }
}

/// Frames that own their packets and count how often a packet was read.
#[derive(Default)]
struct Reads(std::cell::Cell<usize>);

impl Frames for Reads {
    type Frame = Held;

    fn packet<'f>(&self, held: &'f mut Held) -> Packet<'f> {
        self.0.set(self.0.get() + 1);
        Alone.packet(held)
    }

    fn place(&self, held: &mut Held, now: Extent, keep_tail: bool) {
        Alone.place(held, now, keep_tail);
    }
}

#[test]
fn what_is_inside_is_not_looked_up_anew_behind_each_packet_that_is_not_plain() {
    const PACKETS: usize = 64;
    let (tables, slots) = tables(DscpMode::Uniform, false, Guards::Open);
    let lost = plain_v6(0x3f00_0000, [5], 17, &[7; 60]);
    let held = received(&framed(&plain_v6(0xfcbb_0000, [1, 0xfe06], 41, &lost)));
    let mut burst: Vec<Held> = vec![(held.0, held.1, 0); PACKETS];
    let (io, mut look_ups) = (Reads::default(), LookUps::with_capacity(PACKETS).cached());
    let (found, mut inside) = look_ups.look_up(&tables, 0, &io, &mut burst);
    for done in 0..PACKETS {
        let (frames, found) = (&mut burst[done..], &found[done..]);
        let plain = write_burst(&tables, &Tally::new(&slots), &io, frames, found, &mut inside, |_| {});
        assert_eq!(plain, 0, "there is no route to what is inside");
    }
    assert!(io.0.get() <= 4 * PACKETS, "{} reads", io.0.get());
}

/// Without this test, the comparison above might cover only packets that are not plain.
#[test]
fn plain_packets_take_the_fast_path() {
    let inner = plain_v6(0x3000_0000, [5], 17, &[7; 60]);
    let cases = [
        ("uN", plain_v6(0xfcbb_0000, [1, 2, 3], 41, &inner)),
        ("uA", plain_v6(0xfcbb_0000, [1, 0xe001, 3], 41, &inner)),
        ("uDT6", plain_v6(0xfcbb_0000, [1, 0xfe06, 0], 41, &inner)),
        ("uDT4", plain_v6(0xfcbb_0000, [1, 0xfe04, 0], 4, &plain_v4([10, 1, 1, 1]))),
        ("uDT46", plain_v6(0xfcbb_0000, [1, 0xfe46, 0], 4, &plain_v4([10, 1, 1, 1]))),
        ("steered", plain_v6(0x2a00_0001, [5, 0, 0], 17, &[7; 60])),
        ("source of the port", plain_v6(0x2a00_0004, [5, 0, 0], 17, &[7; 60])),
        ("routed", plain_v6(0x3000_0000, [5, 0, 0], 17, &[7; 60])),
        ("steered, three segments", plain_v6(0x2a00_0002, [5, 0, 0], 17, &[7; 60])),
        ("steered, two paths", plain_v6(0x2a00_0003, [5, 0, 0], 17, &[7; 60])),
        ("routed, two next hops", plain_v6(0x3001_0000, [5, 0, 0], 17, &[7; 60])),
        ("steered, IPv4", plain_v4([44, 1, 2, 3])),
        ("routed, IPv4", plain_v4([10, 1, 2, 3])),
    ];
    for guards in [Guards::Open, Guards::Few] {
        let (tables, slots) = tables(DscpMode::Uniform, false, guards);
        let goes = |packet: &[u8], port| {
            outcome(&framed(packet), 0, &slots, |tally, packet| fast(&tables, tally, port, packet)).verdict.is_some()
        };
        for (name, packet) in &cases {
            assert!(goes(packet, 0), "{name}, {guards:?}");
            // Now the packet comes from a source that is not accepted.
            let mut other = packet.clone();
            let is_v6 = other[0] >> 4 == 6;
            let (last, at) = if is_v6 { (&[0x98][..], 13) } else { (&[2][..], 15) };
            other[at] = last[0];
            if !is_v6 {
                other[10..12].fill(0);
                let sum = checksum::of(&other[..20]);
                other[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            assert_eq!(goes(&other, 0), guards == Guards::Open, "{name} of somebody else, {guards:?}");
            let is_guarded = name.starts_with('u') && guards == Guards::Few;
            assert_eq!(
                goes(&other, 1),
                !is_guarded,
                "{name} of somebody else through a port that asks nothing, {guards:?}"
            );
        }
    }
}
