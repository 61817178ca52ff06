//! Tests the worker's step on ports in memory: exact bytes, exact counters.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::panic,
    clippy::wildcard_imports
)] // a failed test may panic

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use srv6d_dataplane::memory::{Memory, MemoryFrame};
use srv6d_dataplane::{DeviceCounters, Snapshot, Step, Totals, WorkerCounters};
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::desired::*;
use srv6d_srv6::{Slots, Tables, Tally};

pub(super) const MACS: [Mac; 3] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 1, 1]), Mac([2, 0, 0, 0, 2, 1])];
pub(super) const PEERS: [Mac; 3] = [Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 1, 2]), Mac([2, 0, 0, 0, 2, 2])];
const TUNNEL: &str = "2001:db8:cafe::1";

fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn port(index: u16) -> Port {
    Port {
        icmp_source_v6: Some(format!("2001:db8:{index}::1").parse().unwrap()),
        ..Port::fabric(format!("p{index}"), index, MACS[usize::from(index)], 1500)
    }
}

pub(super) fn hop(index: u16) -> Hop {
    Hop { port: PortId(index), via: Some(neighbor(index)), weight: 1 }
}

fn neighbor(index: u16) -> IpAddr {
    format!("2001:db8:{index}::2").parse().unwrap()
}

/// Returns node 1 of block `fcbb:bbbb::/32`: uN, uA (LIB and combined), uDT6, a route to node 2, and steered
/// prefixes.
pub(super) fn node() -> Desired {
    let csid = |nflen| Some(Csid { lblen: 32, nflen });
    let sid = |prefix: &str, behavior| LocalSid {
        prefix: prefix.parse().unwrap(),
        behavior,
        flavors: Flavors { usd: true, ..Flavors::default() },
    };
    let end_x = |nflen| Behavior::EndX { csid: csid(nflen), via: vec![hop(2)], backup: vec![] };
    let dt = |family| Behavior::EndDt { family, table: TableId::MAIN, dscp: DscpMode::Pipe(0) };
    let route = |prefix: &str, port| Route {
        table: TableId::MAIN,
        prefix: prefix.parse().unwrap(),
        action: RouteAction::Via(vec![hop(port)]),
    };
    let steer = |prefix: &str, segments: &[&str]| Steer {
        table: TableId::MAIN,
        prefix: prefix.parse().unwrap(),
        paths: vec![Path {
            name: prefix.to_owned(),
            segments: SegmentList::new(segments.iter().map(|text| ip(text)).collect(), &[]).unwrap(),
            full_srh: false,
            weight: 1,
            source: None,
            via: vec![],
        }],
    };
    Desired {
        ports: vec![port(0), port(1), port(2)],
        tunnel: Tunnel { source: Some(ip(TUNNEL)), ..Tunnel::default() },
        blocks: vec![Block { prefix: "fcbb:bbbb::/32".parse().unwrap(), unknown: Some(UnknownSid::Drop) }],
        sids: vec![
            sid("fcbb:bbbb:1::/48", Behavior::End { csid: csid(16), dscp: DscpMode::Pipe(0) }),
            sid("fcbb:bbbb:fe24::/48", end_x(16)),
            sid("fcbb:bbbb:1:fe24::/64", end_x(32)),
            sid("fcbb:bbbb:1:d6::/64", dt(DtFamily::V6)),
            sid("fcbb:bbbb:1:d4::/64", dt(DtFamily::V4)),
        ],
        steers: vec![
            steer("4000::/16", &["fcbb:bbbb:2:3::"]),
            steer("4002::/16", &["fcbb:bbbb:2:3::", "fcbb:bbbb:4:5::", "fcbb:bbbb:6::"]),
            steer("44.2.0.0/16", &["fcbb:bbbb:2:3::"]),
        ],
        routes: vec![
            route("fcbb:bbbb:2::/48", 1),
            route("3000::/16", 1),
            route("2000::/16", 0),
            route("10.0.0.0/8", 1),
        ],
        neighbors: (0..3).map(|index| ((PortId(index), neighbor(index)), PEERS[usize::from(index)])).collect(),
        ..Desired::default()
    }
}

pub(super) struct Rig {
    pub(super) io: Memory,
    pub(super) step: Step<Memory>,
    pub(super) counters: Arc<WorkerCounters>,
    pub(super) snapshot: Snapshot,
    slots: Slots,
    wanted: Arc<Mutex<Vec<IpAddr>>>,
}

impl Rig {
    pub(super) fn new(desired: &Desired) -> Self {
        let counters = Arc::new(WorkerCounters::default());
        let wanted = Arc::new(Mutex::new(Vec::new()));
        let asked = Arc::clone(&wanted);
        let step = Step::new(0, Arc::clone(&counters), move |_, address| asked.lock().unwrap().push(address));
        let mut slots = Slots::default();
        let tables = Tables::build(desired, &mut slots).unwrap();
        let snapshot = Snapshot::direct(tables, Arc::new(Tally::new(&slots)), desired.ports.len());
        Self { io: Memory::new(desired.ports.len()), step, counters, snapshot, slots, wanted }
    }

    pub(super) fn publish(&mut self, desired: &Desired) {
        self.snapshot.tables = Tables::build(desired, &mut self.slots).unwrap();
        self.snapshot.revision += 1;
    }

    pub(super) fn run(&mut self, now: u64) -> Vec<(usize, Vec<u8>)> {
        while self.step.round(&mut self.io, &self.snapshot, now) > 0 {}
        self.io.take_sent().into_iter().map(|(port, frame)| (port, frame.bytes())).collect()
    }

    fn send(&mut self, frame: &[u8]) -> Vec<(usize, Vec<u8>)> {
        self.io.port(0).unwrap().rx.push_back(MemoryFrame::new(frame));
        self.run(0)
    }

    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.counters.add_to(&mut totals);
        assert!(totals.balanced(), "{totals:?}");
        totals
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

pub(super) fn ethernet(to: Mac, from: Mac, packet: &[u8]) -> Vec<u8> {
    let ether_type = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
    [&to.0[..], &from.0, &ether_type, packet].concat()
}

pub(super) fn in_frame(packet: &[u8]) -> Vec<u8> {
    ethernet(MACS[0], PEERS[0], packet)
}

fn out_frame(port: usize, packet: &[u8]) -> (usize, Vec<u8>) {
    (port, ethernet(PEERS[port], MACS[port], packet))
}

pub(super) fn v6(source: &str, destination: &str, next_header: u8, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u16).to_be_bytes();
    let head = [0x60, 0, 0, 0, len[0], len[1], next_header, hop_limit];
    [&head[..], &ip(source).octets(), &ip(destination).octets(), payload].concat()
}

/// Masks the flow label, after checking that it is not zero.
fn mask_label(packet: &mut [u8]) {
    assert_ne!([packet[1] & 0x0f, packet[2], packet[3]], [0; 3], "flow label");
    packet[1] &= 0xf0;
    packet[2..4].fill(0);
}

const UDP: &str = "c350 12b7 001c 3d18 4141414141414141 4141414141414141 41414141";

#[test]
fn g1_encapsulates_ipv6_with_one_carrier() {
    let inner = |hop_limit: &str| {
        format!("66200777001c11{hop_limit} 2000000000000000 0000000000000001 4000000000000000 0000000000000009 {UDP}")
    };
    let mut rig = Rig::new(&node());
    let mut sent = rig.send(&in_frame(&hex(&inner("40"))));
    mask_label(&mut sent[0].1[14..]);
    let outer = "66200000 0044 29 40 20010db8cafe0000 0000000000000001 fcbbbbbb00020003 0000000000000000";
    assert_eq!(sent, [out_frame(1, &hex(&format!("{outer}{}", inner("3f"))))]);
    assert_eq!(rig.totals(), Totals { rx: 1, tx: 1, ..Totals::default() });
}

#[test]
fn g2_encapsulates_ipv4() {
    let inner = |ttl_and_sum: [&str; 2]| {
        let [ttl, sum] = ttl_and_sum;
        format!("45b90030 00010000 {ttl}11{sum} 01010101 2c020202 c35012b7001c0000 {}", "41".repeat(20))
    };
    let mut rig = Rig::new(&node());
    let mut sent = rig.send(&in_frame(&hex(&inner(["40", "49fe"]))));
    mask_label(&mut sent[0].1[14..]);
    let outer = "6b900000 0030 04 40 20010db8cafe0000 0000000000000001 fcbbbbbb00020003 0000000000000000";
    assert_eq!(sent, [out_frame(1, &hex(&format!("{outer}{}", inner(["3f", "4afe"]))))]);
}

#[test]
fn an_ipv4_header_with_a_wrong_checksum_is_malformed() {
    let mut packet = hex(&format!("45b90030 00010000 401149fe 01010101 2c020202 c35012b7001c0000 {}", "41".repeat(20)));
    packet[10] ^= 1;
    let mut rig = Rig::new(&node());
    assert_eq!(rig.send(&in_frame(&packet)), []);
    assert_eq!(rig.totals().drop, [("malformed", 1)].into());
}

#[test]
fn g3_three_segments_make_a_reduced_srh() {
    let inner = |hop_limit: &str| {
        format!("60000000001c11{hop_limit} 2000000000000000 0000000000000001 4002000000000000 0000000000000009 {UDP}")
    };
    let mut rig = Rig::new(&node());
    let mut sent = rig.send(&in_frame(&hex(&inner("40"))));
    mask_label(&mut sent[0].1[14..]);
    let outer = "60000000 006c 2b40 20010db8cafe0000 0000000000000001 fcbbbbbb00020003 0000000000000000
        2904040201000000 fcbbbbbb00060000 0000000000000000 fcbbbbbb00040005 0000000000000000";
    assert_eq!(sent, [out_frame(1, &hex(&format!("{outer}{}", inner("3f"))))]);
}

#[test]
fn g4_shifts_and_changes_nothing_else() {
    let packet = |hop_limit: &str, carrier: &str| {
        hex(&format!("6b912345 0044 29{hop_limit} 20010db8000000000000000000000009 {carrier} {}", "5a".repeat(68)))
    };
    let mut rig = Rig::new(&node());
    let sent = rig.send(&in_frame(&packet("40", "fcbbbbbb000100020003000000000000")));
    assert_eq!(sent, [out_frame(1, &packet("3f", "fcbbbbbb000200030000000000000000"))]);
}

#[test]
fn combined_ua_shifts_by_32_and_leaves_by_its_adjacency() {
    let mut rig = Rig::new(&node());
    let sent = rig.send(&in_frame(&v6("2000::9", "fcbb:bbbb:1:fe24:7777::", 59, 64, &[])));
    assert_eq!(sent, [out_frame(2, &[v6("2000::9", "fcbb:bbbb:7777::", 59, 63, &[]), vec![0; 6]].concat())]);
}

#[test]
fn un_and_udt6_in_one_pass() {
    let inner = |hop_limit| v6("2000::1", "3000::9", 17, hop_limit, &[7; 20]);
    let mut rig = Rig::new(&node());
    let sent = rig.send(&in_frame(&v6("2000::9", "fcbb:bbbb:1:1:d6::", 41, 64, &inner(64))));
    assert_eq!(sent, [out_frame(1, &inner(63))]);
}

#[test]
fn a_combination_of_ecn_that_nobody_uses_is_counted() {
    let mut outer = v6("2000::9", "fcbb:bbbb:1:d6::", 41, 64, &v6("2000::1", "3000::9", 59, 64, &[7; 20]));
    outer[1] = 0x20;
    let mut rig = Rig::new(&node());
    assert_eq!(rig.send(&in_frame(&outer)), [out_frame(1, &v6("2000::1", "3000::9", 59, 63, &[7; 20]))]);
    assert_eq!(rig.snapshot.tallies[0].ecn_unused.read().0, 1, "Not-ECT inside, ECT(0) outside");
}

#[test]
fn hop_limit_one_is_answered_with_the_packet_as_received() {
    let packet = v6("2000::9", "fcbb:bbbb:1:2::", 17, 1, &[7; 20]);
    let mut rig = Rig::new(&node());
    let sent = rig.send(&in_frame(&packet));
    let [(0, frame)] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(frame[..54], ethernet(PEERS[0], MACS[0], &v6("2001:db8:0::1", "2000::9", 58, 64, &[0; 68]))[..54]);
    assert_eq!(frame[54..56], [3, 0], "Time Exceeded, hop limit");
    assert_eq!(frame[62..], packet, "quoted as received");
    assert_eq!(rig.totals().reply, [("hop_limit", 1)].into());
}

#[test]
fn too_big_for_the_tunnel_is_told_to_the_inner_source() {
    let packet = v6("2000::9", "4000::9", 17, 64, &[7; 1421]);
    let mut rig = Rig::new(&node());
    let sent = rig.send(&in_frame(&packet));
    let [(0, frame)] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((frame.len(), &frame[54..56]), (14 + 1280, &[2, 0][..]), "Packet Too Big");
    assert_eq!(frame[58..62], 1460u32.to_be_bytes());
    assert!(rig.send(&in_frame(&v6("2000::9", "4000::9", 17, 64, &[7; 1420]))).iter().all(|(port, _)| *port == 1));
}

#[test]
fn unknown_sid_is_dropped_untouched() {
    let frame = in_frame(&v6("2000::9", "fcbb:bbbb:7:2::", 41, 64, &[7; 40]));
    let mut rig = Rig::new(&node());
    assert_eq!(rig.send(&frame), []);
    assert_eq!(rig.totals().drop, [("unknown_sid", 1)].into());
    assert_eq!(rig.io.recycled.iter().map(MemoryFrame::bytes).collect::<Vec<_>>(), [frame]);
    let mut came_by = DeviceCounters::default();
    rig.counters.add_socket_to(0, &mut came_by);
    assert_eq!((came_by.rx_packets, came_by.rx_refused), (1, 1));
}

#[test]
fn packets_wait_for_a_neighbour_and_leave_in_order() {
    let mut unresolved = node();
    unresolved.neighbors.remove(&(PortId(1), neighbor(1)));
    let mut rig = Rig::new(&unresolved);
    let packet = |n: u8, hop_limit| v6("2000::9", "fcbb:bbbb:2::", 17, hop_limit, &[n; 20]);
    for n in 1..=65 {
        assert_eq!(rig.send(&in_frame(&packet(n, 64))), []);
    }
    let totals = rig.totals();
    assert_eq!((totals.held, totals.drop.get("no_neigh")), (64, Some(&1)), "64 are kept, one more is not");
    assert_eq!(rig.wanted.lock().unwrap().as_slice(), [neighbor(1)], "asked for once");
    rig.publish(&node());
    assert_eq!(rig.run(1), (1..=64).map(|n| out_frame(1, &packet(n, 63))).collect::<Vec<_>>());
    assert_eq!(rig.totals(), Totals { rx: 65, tx: 64, drop: [("no_neigh", 1)].into(), ..Totals::default() });
}

#[test]
fn packets_do_not_wait_for_ever() {
    let mut unresolved = node();
    unresolved.neighbors.clear();
    let mut rig = Rig::new(&unresolved);
    rig.send(&in_frame(&v6("2000::9", "fcbb:bbbb:2::", 17, 64, &[7; 20])));
    assert_eq!(rig.totals().held, 1);
    assert_eq!(rig.run(4_000_000_000), []);
    assert_eq!(rig.totals(), Totals { rx: 1, drop: [("no_neigh", 1)].into(), ..Totals::default() });
    let mut came_by = DeviceCounters::default();
    rig.counters.add_socket_to(0, &mut came_by);
    assert_eq!((came_by.rx_packets, came_by.rx_refused), (1, 1));
}

#[test]
fn a_sender_is_told_of_a_neighbour_that_does_not_answer() {
    let mut unresolved = node();
    unresolved.neighbors.remove(&(PortId(1), neighbor(1)));
    unresolved.policy.icmp_unreachable = true;
    let mut rig = Rig::new(&unresolved);
    let mut v4 = hex(&format!("45000030 00010000 40110000 01010101 0a020202 c35012b7001c0000 {}", "41".repeat(20)));
    let sum = srv6d_wire::checksum::of(&v4[..20]);
    v4[10..12].copy_from_slice(&sum.to_be_bytes());
    let v6 = v6("2000::9", "fcbb:bbbb:2::", 17, 64, &[7; 20]);
    for packet in [&v6, &v4] {
        assert_eq!(rig.send(&in_frame(packet)), []);
    }
    assert_eq!(rig.totals().held, 2);
    let sent = rig.run(4_000_000_000);
    let [(0, told_v6), (0, told_v4)] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((&told_v6[54..56], &told_v6[62..]), (&[1, 3][..], &v6[..]), "address unreachable, quoted as received");
    assert_eq!((&told_v4[34..36], &told_v4[42..]), (&[3, 1][..], &v4[..]), "host unreachable");
    assert_eq!(rig.totals(), Totals { rx: 2, reply: [("no_neigh", 2)].into(), ..Totals::default() });
}

#[test]
fn a_jumbo_frame_keeps_its_further_buffers() {
    let mut jumbo = node();
    jumbo.ports.iter_mut().for_each(|port| port.mtu = 9500);
    let payload: Vec<u8> = (0..9000u32).map(|n| (n % 251) as u8).collect();
    let mut rig = Rig::new(&jumbo);
    let mut sent = rig.send(&in_frame(&v6("2000::9", "4000::9", 59, 64, &payload)));
    mask_label(&mut sent[0].1[14..]);
    let inner = v6("2000::9", "4000::9", 59, 63, &payload);
    assert_eq!(sent, [out_frame(1, &v6(TUNNEL, "fcbb:bbbb:2:3::", 41, 64, &inner))]);
    let outer = v6("2000::9", "fcbb:bbbb:1:d6::", 41, 64, &v6("2000::1", "3000::9", 59, 64, &payload));
    assert_eq!(rig.send(&in_frame(&outer)), [out_frame(1, &v6("2000::1", "3000::9", 59, 63, &payload))]);
}

#[test]
fn a_full_ring_is_a_counted_drop() {
    let mut rig = Rig::new(&node());
    rig.io.port(1).unwrap().room = Some(0);
    assert_eq!(rig.send(&in_frame(&v6("2000::9", "fcbb:bbbb:2::", 17, 64, &[7; 20]))), []);
    assert_eq!(rig.totals(), Totals { rx: 1, drop: [("tx_full", 1)].into(), ..Totals::default() });
    let mut device = DeviceCounters::default();
    rig.counters.add_socket_to(1, &mut device);
    assert_eq!((device.tx_packets, device.tx_dropped), (0, 1));
}

#[test]
fn what_a_ring_has_room_for_is_sent_and_counted() {
    let mut rig = Rig::new(&node());
    let frame = |hop_limit| in_frame(&v6("2000::9", "fcbb:bbbb:2::", 17, hop_limit, &[7; 20]));
    rig.io.port(1).unwrap().room = Some(2);
    rig.io.port(0).unwrap().rx.extend([64, 1, 63, 62, 61].map(|hop_limit| MemoryFrame::new(&frame(hop_limit))));
    rig.step.round(&mut rig.io, &rig.snapshot, 0);
    let sent = rig.io.take_sent().into_iter().filter(|(socket, _)| *socket == 1);
    let hop_limits: Vec<u8> = sent.map(|(_, frame)| frame.bytes()[14 + 7]).collect();
    assert_eq!(hop_limits, [63, 62]);
    let totals =
        Totals { rx: 5, tx: 2, reply: [("hop_limit", 1)].into(), drop: [("tx_full", 2)].into(), ..Totals::default() };
    assert_eq!(rig.totals(), totals);
    let mut device = DeviceCounters::default();
    rig.counters.add_socket_to(1, &mut device);
    assert_eq!((device.tx_packets, device.tx_bytes, device.tx_dropped), (2, 2 * 74, 2));
}
