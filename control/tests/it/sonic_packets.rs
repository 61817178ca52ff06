//! Tests with the packets of SONiC's own SRv6 suites, through real AF_XDP ports of a switch that has its
//! `config_db.json`.
//!
//! Those suites build their routing headers with Last Entry 0, whatever the number of segments; a shift does not check
//! it. Whole frames are compared.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use serde_json::{Value, json};
use support::counters::packets;
use support::testbed::{Testbed, far};

/// Number of locators of the large suite.
const SIDS: u16 = 128;
/// Number of packets to each locator.
const PACKETS: usize = 100;

const UDP: u8 = 17;
const TCP: u8 = 6;
const IPV6: u8 = 41;
const ROUTING: u8 = 43;

fn octets(address: &str) -> [u8; 16] {
    address.parse::<std::net::Ipv6Addr>().unwrap().octets()
}

/// Returns an IPv6 header with DSCP, followed by the payload.
fn ipv6(dscp: u8, source: &str, destination: &str, next_header: u8, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let class = dscp << 2;
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [0x60 | class >> 4, class << 4, 0, 0, length[0], length[1], next_header, hop_limit];
    [&head[..], &octets(source), &octets(destination), payload].concat()
}

/// Returns an SRH (RFC 8754 section 2), but with Last Entry 0.
fn srh(segments_left: u8, segments: &[&str]) -> Vec<u8> {
    let length = u8::try_from(segments.len() * 2).unwrap();
    let list: Vec<u8> = segments.iter().flat_map(|segment| octets(segment)).collect();
    [&[IPV6, length, 4, segments_left, 0, 0, 0, 0][..], &list].concat()
}

/// Returns 20 bytes of TCP from port 4321 to 1234.
fn tcp() -> Vec<u8> {
    [&[0x10, 0xe1, 0x04, 0xd2][..], &[0; 8], &[0x50, 0x02, 0x20, 0, 0, 0, 0, 0]].concat()
}

/// Returns a locator in which the decimal digits of the number are written as a hextet.
fn locator(number: u16) -> String {
    format!("2001:1001:{number}::")
}

fn ports(number: usize) -> Value {
    let lanes = |port: usize| (port * 4 + 1..=port * 4 + 4).map(|lane| lane.to_string()).collect::<Vec<_>>().join(",");
    let row = |port: usize| {
        let row = json!({"lanes": lanes(port), "speed": "40000", "admin_status": "up", "mtu": "9100"});
        (format!("Ethernet{}", port * 4), row)
    };
    Value::Object((0..number).map(row).collect())
}

fn mac(port: usize) -> String {
    far(port).map(|byte| format!("{byte:02x}")).join(":")
}

/// Returns a switch with two ports. Packets from the first port leave through the second, where `2001:db8:b::2` is.
fn switch(locators: &Value, sids: &Value, routes: &Value) -> Value {
    json!({
        "DEVICE_METADATA": {"localhost": {"hostname": "dut", "mac": "02:00:00:00:99:01", "hwsku": "Force10-S6000"}},
        "PORT": ports(2),
        "LOOPBACK_INTERFACE": {"Loopback0": {}, "Loopback0|2001:db8:ffff::1/128": {}},
        "INTERFACE": {
            "Ethernet0": {}, "Ethernet0|2001:db8:a::1/64": {}, "Ethernet4": {}, "Ethernet4|2001:db8:b::1/64": {}
        },
        "NEIGH": {
            "Ethernet0|2001:db8:a::2": {"neigh": mac(0), "family": "IPv6"},
            "Ethernet4|2001:db8:b::2": {"neigh": mac(1), "family": "IPv6"}
        },
        "SRV6_MY_LOCATORS": locators,
        "SRV6_MY_SIDS": sids,
        "STATIC_ROUTE": routes,
        "FLEX_COUNTER_TABLE": {"SRV6": {"FLEX_COUNTER_STATUS": "enable", "POLL_INTERVAL": "1000"}}
    })
}

/// Returns the switch of the large suite: 128 locators, each with a uN.
fn full(dscp_mode: &str) -> Value {
    let numbers = 1..=SIDS;
    let locators = numbers.clone().map(|n| (format!("loc{n}"), json!({"prefix": locator(n), "func_len": "0"})));
    let sid = |n: u16| (format!("loc{n}|{}/48", locator(n)), json!({"action": "uN", "decap_dscp_mode": dscp_mode}));
    let uplink = json!({"nexthop": "2001:db8:b::2", "ifname": "Ethernet4"});
    let routes = json!({"default|2001::/16": uplink, "default|3000::/16": uplink});
    switch(&Value::Object(locators.collect()), &Value::Object(numbers.map(sid).collect()), &routes)
}

/// A kind of packet: returns the packet that is sent to a SID, and the packet that leaves.
type Kind = fn(n: u16) -> (Vec<u8>, Vec<u8>);

fn dscp(n: u16) -> u8 {
    u8::try_from(n % 64).unwrap()
}

/// Returns the inner packet, with its own DSCP.
fn inner(dscp: u8, hop_limit: u8) -> Vec<u8> {
    ipv6(dscp % 64, "2000::1", "3000::2", TCP, hop_limit, &tcp())
}

/// Returns a packet that is shifted: only destination and hop limit change.
fn shifted(n: u16, routing: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let next = 1000 + n + 1;
    let next_header = if routing.is_empty() { IPV6 } else { ROUTING };
    let packet = |destination: &str, hop_limit| {
        let payload = [routing, &inner(dscp(n), 64)].concat();
        ipv6(dscp(n), "1000:1000::1", destination, next_header, hop_limit, &payload)
    };
    (packet(&format!("2001:1001:{n}:{next}::"), 64), packet(&locator(next), 63))
}

/// Returns a packet to the SID itself with segments left: it gets the next destination, and keeps its routing header.
fn next_segment(n: u16, left: u8, segments: &[&str]) -> (Vec<u8>, Vec<u8>) {
    let packet = |destination: &str, hop_limit, left| {
        let payload = [srh(left, segments), inner(dscp(n), 64)].concat();
        ipv6(dscp(n), "1000:1000::1", destination, ROUTING, hop_limit, &payload)
    };
    (packet(&locator(n), 64, left), packet(segments[usize::from(left) - 1], 63, left - 1))
}

/// Returns a packet to the SID itself without segments left: the inner packet leaves with DSCP `becomes`.
fn decapsulated(n: u16, routing: &[u8], becomes: u8) -> (Vec<u8>, Vec<u8>) {
    let next_header = if routing.is_empty() { IPV6 } else { ROUTING };
    let payload = [routing, &inner(dscp(n) + 8, 64)].concat();
    (ipv6(dscp(n), "1000:1000::1", &locator(n), next_header, 64, &payload), inner(becomes, 63))
}

/// Sends 100 packets to each SID, interleaved, and checks the frames that leave and the counters.
fn check(bed: &mut Testbed, kind: Kind) {
    let before = bed.stats();
    assert_eq!(before.len(), usize::from(SIDS));
    let mut frames = Vec::new();
    for _ in 0..PACKETS {
        for n in 1..=SIDS {
            let (sent, expected) = kind(n);
            frames.push((bed.entering(0, &sent), bed.leaving(1, &expected)));
        }
    }
    bed.pass((0, 1), &frames);
    let after = bed.stats();
    let frame = u64::try_from(frames[0].0.len()).unwrap();
    let packets = u64::try_from(PACKETS).unwrap();
    for ((sid, packets_before, bytes_before), (same, packets_after, bytes_after)) in before.iter().zip(&after) {
        assert_eq!(sid, same);
        assert_eq!(packets_after - packets_before, packets, "{sid}");
        assert_eq!(bytes_after - bytes_before, packets * (frame + 4), "{sid}");
    }
}

fn full_func(kind: Kind) {
    check(&mut Testbed::new(2, &full("pipe"), ""), kind);
}

fn no_srh(n: u16) -> (Vec<u8>, Vec<u8>) {
    shifted(n, &[])
}

#[test]
#[ignore = "needs root"]
fn full_func_1_shift_without_srh() {
    full_func(no_srh);
}

#[test]
#[ignore = "needs root"]
fn full_func_2_shift_with_one_segment() {
    full_func(|n| shifted(n, &srh(0, &["2001:1001:4000::"])));
}

#[test]
#[ignore = "needs root"]
fn full_func_3_shift_with_two_segments() {
    full_func(|n| shifted(n, &srh(0, &["2001:1001:4000::", "2001:1001:4001::"])));
}

#[test]
#[ignore = "needs root"]
fn full_func_4_next_segment_and_the_srh_stays() {
    full_func(|n| next_segment(n, 1, &["2001:1001:4000::"]));
}

fn vector_5(n: u16) -> (Vec<u8>, Vec<u8>) {
    next_segment(n, 2, &["2001:1001:4000::", "2001:1001:4001::"])
}

#[test]
#[ignore = "needs root"]
fn full_func_5_with_a_lenient_srh_check() {
    check(&mut Testbed::new(2, &full("pipe"), "[node]\nsrh_check = \"lenient\"\n"), vector_5);
}

/// By RFC 8754 section 4.3.1.1, a packet with more segments left than entries is answered and not forwarded.
#[test]
#[ignore = "needs root"]
fn full_func_5_is_refused_with_a_strict_one() {
    let mut bed = Testbed::new(2, &full("pipe"), "[node]\nicmp_rate = 0\nsrh_check = \"strict\"\n");
    for n in 1..=SIDS {
        let frame = bed.entering(0, &vector_5(n).0);
        bed.send(0, &frame);
    }
    bed.wait_for_counters("128 refused packets", |counters| packets(counters, "drop", None) >= u64::from(SIDS));
    bed.check_silence();
    // A refused packet is not counted for the SID.
    assert!(bed.stats().iter().all(|(_, packets, bytes)| (*packets, *bytes) == (0, 0)));
}

#[test]
#[ignore = "needs root"]
fn full_func_6_decapsulation_without_srh() {
    full_func(|n| decapsulated(n, &[], dscp(n) + 8));
}

#[test]
#[ignore = "needs root"]
fn full_func_7_decapsulation_behind_one_segment() {
    full_func(|n| decapsulated(n, &srh(0, &["2001:1001:4000::"]), dscp(n) + 8));
}

#[test]
#[ignore = "needs root"]
fn full_func_8_decapsulation_behind_two_segments() {
    full_func(|n| decapsulated(n, &srh(0, &["2001:1001:4000::", "2001:1001:4001::"]), dscp(n) + 8));
}

#[test]
#[ignore = "needs root"]
fn full_func_6_to_8_with_a_uniform_dscp() {
    let mut bed = Testbed::new(2, &full("uniform"), "");
    check(&mut bed, |n| decapsulated(n, &[], dscp(n)));
    check(&mut bed, |n| decapsulated(n, &srh(0, &["2001:1001:4000::"]), dscp(n)));
    check(&mut bed, |n| decapsulated(n, &srh(0, &["2001:1001:4000::", "2001:1001:4001::"]), dscp(n)));
}

#[test]
#[ignore = "needs root"]
fn full_func_after_config_reload_and_after_a_restart() {
    let mut bed = Testbed::new(2, &full("pipe"), "");
    check(&mut bed, no_srh);
    bed.word("config reload -y -f");
    bed.wait_until_ready();
    check(&mut bed, |n| decapsulated(n, &[], dscp(n) + 8));
    bed.restart();
    check(&mut bed, no_srh);
}

#[test]
#[ignore = "needs root"]
fn crm_counts_128_sids_and_none_after_they_are_gone() {
    let bed = Testbed::new(2, &full("pipe"), "");
    let used = |bed: &Testbed| {
        let shown = bed.word("crm show resources srv6-my-sid-entry");
        let row = shown.lines().find(|line| line.starts_with("srv6_my_sid_entry")).unwrap().to_owned();
        row.split_whitespace().nth(1).unwrap().parse::<u16>().unwrap()
    };
    assert_eq!(used(&bed), SIDS);
    bed.configure(&switch(&json!({}), &json!({}), &json!({})));
    bed.word("config reload -y -f");
    support::rig::wait_for("end of the SIDs", || (used(&bed) == 0).then_some(()));
}

/// Returns the switch of the small suites: one uN, a route to the next one, and a blackhole for the block.
fn dataplane() -> Value {
    switch(
        &json!({"loc1": {"prefix": "fcbb:bbbb:1::", "func_len": "0"}}),
        &json!({"loc1|fcbb:bbbb:1::/48": {"action": "uN", "decap_dscp_mode": "pipe"}}),
        &json!({
            "default|fcbb:bbbb::/32": {"blackhole": "true"},
            "default|fcbb:bbbb:2::/48": {"nexthop": "2001:db8:b::2", "ifname": "Ethernet4"}
        }),
    )
}

/// Returns 20 bytes of RoCE in UDP in IPv6, in a carrier, optionally with a routing header of eight bytes without any
/// segment.
fn roce(destination: &str, hop_limit: u8, with_srh: bool) -> Vec<u8> {
    let udp = [&[0x12, 0x34, 0x12, 0xb7, 0, 28, 0, 0][..], &[0x5a; 20]].concat();
    let inner = ipv6(0, "2000::1", "3000::2", UDP, 64, &udp);
    let routing: &[u8] = if with_srh { &[IPV6, 0, 4, 1, 0, 0, 0, 0] } else { &[] };
    let next_header = if with_srh { ROUTING } else { IPV6 };
    ipv6(0, "1000:1000::1", destination, next_header, hop_limit, &[routing, &inner].concat())
}

fn ten_packets(bed: &mut Testbed, with_srh: bool) {
    let (sent, expected) = (roce("fcbb:bbbb:1:2::", 64, with_srh), roce("fcbb:bbbb:2::", 63, with_srh));
    let frames = vec![(bed.entering(0, &sent), bed.leaving(1, &expected)); 10];
    bed.pass((0, 1), &frames);
}

fn dataplane_after(what: impl Fn(&mut Testbed)) {
    let mut bed = Testbed::new(2, &dataplane(), "");
    for with_srh in [false, true] {
        ten_packets(&mut bed, with_srh);
        what(&mut bed);
        ten_packets(&mut bed, with_srh);
    }
}

fn config_reload(bed: &mut Testbed) {
    bed.word("config reload -y -f");
    bed.wait_until_ready();
}

#[test]
#[ignore = "needs root"]
fn dataplane_after_config_reload_without_and_with_srh() {
    dataplane_after(config_reload);
}

#[test]
#[ignore = "needs root"]
fn dataplane_after_bgp_restart_without_and_with_srh() {
    dataplane_after(|bed| drop(bed.word("supervisorctl restart bgpd")));
}

#[test]
#[ignore = "needs root"]
fn dataplane_after_reboot_without_and_with_srh() {
    dataplane_after(Testbed::restart);
}

#[test]
#[ignore = "needs root"]
fn no_sid_blackhole() {
    let mut bed = Testbed::new(2, &dataplane(), "");
    for with_srh in [false, true] {
        let (_, dropped) = bed.received_and_dropped(0);
        let frame = bed.entering(0, &roce("fcbb:bbbb:3:2::", 64, with_srh));
        for _ in 0..100 {
            bed.send(0, &frame);
        }
        support::rig::wait_for("100 discards", || (bed.received_and_dropped(0).1 >= dropped + 100).then_some(()));
        bed.check_silence();
    }
}

/// There are no queues, but every DSCP is forwarded unchanged and counted.
#[test]
#[ignore = "needs root"]
fn dscp_to_queue_mapping_but_for_the_queues() {
    let mut bed = Testbed::new(2, &dataplane(), "");
    for dscp in 0..64 {
        let marked =
            |destination: &str, hop_limit| ipv6(dscp, "1000:1000::1", destination, IPV6, hop_limit, &inner(dscp, 64));
        let (sent, expected) = (marked("fcbb:bbbb:1:2::", 64), marked("fcbb:bbbb:2::", 63));
        bed.pass((0, 1), &vec![(bed.entering(0, &sent), bed.leaving(1, &expected)); 10]);
        let (packets, frame) = (10 * (u64::from(dscp) + 1), u64::try_from(sent.len()).unwrap() + 14);
        assert_eq!(bed.stats(), [("fcbb:bbbb:1::/48".to_owned(), packets, packets * (frame + 4))], "DSCP {dscp}");
    }
}

/// Returns a packet from 10.1.0.1 to 10.NET.0.1 (RFC 791).
fn ipv4_tcp(net: u8, ttl: u8) -> Vec<u8> {
    let mut header = [0x45, 0, 0, 60, 0, 1, 0x40, 0, ttl, TCP, 0, 0, 10, 1, 0, 1, 10, net, 0, 1];
    let sum: u32 = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&header[..], &tcp(), &[0x5a; 20]].concat()
}

/// IPv4 of a tenant enters a carrier at one edge and leaves it at the other. Each edge decrements the TTL once, and
/// switches between them do not.
#[test]
#[ignore = "needs root"]
fn traffic_check_normal_at_both_edges() {
    let mut edge = dataplane();
    edge["SRV6_MY_SIDS"]["loc1|fcbb:bbbb:1:d046::/64"] = json!({"action": "uDT46", "decap_vrf": "default"});
    edge["STATIC_ROUTE"]["default|10.3.0.0/16"] = json!({"nexthop": "10.0.1.2", "ifname": "Ethernet0"});
    edge["INTERFACE"]["Ethernet0|10.0.1.1/24"] = json!({});
    edge["NEIGH"]["Ethernet0|10.0.1.2"] = json!({"neigh": mac(0), "family": "IPv4"});
    let mut bed = Testbed::new(2, &edge, "");
    // A packet from the far edge leaves the fabric to the tenant.
    let arriving = ipv6(0, "1000:1000::1", "fcbb:bbbb:1:d046::", 4, 60, &ipv4_tcp(3, 63));
    bed.pass((1, 0), &[(bed.entering(1, &arriving), bed.leaving(0, &ipv4_tcp(3, 62)))]);
    // A packet from the tenant enters the fabric.
    let into = "ip route 10.2.0.0/16 Ethernet4 segments fcbb:bbbb:2:d046:: encap-behavior H_Encaps_Red";
    bed.word(&format!("vtysh -c 'configure terminal' -c '{into}'"));
    let frame = bed.entering(0, &ipv4_tcp(2, 64));
    bed.send(0, &frame);
    let carrier = bed.next(1, "carrier");
    assert_eq!(carrier[12..14], [0x86, 0xdd]);
    assert_eq!((carrier[20], &carrier[38..54]), (4, &octets("fcbb:bbbb:2:d046::")[..]), "IPv4, to the other edge");
    assert_eq!(carrier[54..], ipv4_tcp(2, 63));
}

/// Returns a switch whose next hop is in a VLAN of two ports: it is at wire 1, and not at wire 2.
fn vlan() -> Value {
    let mut switch = dataplane();
    switch["PORT"] = ports(3);
    let interfaces = switch["INTERFACE"].as_object_mut().unwrap();
    interfaces.retain(|key, _| key.starts_with("Ethernet0"));
    switch["NEIGH"].as_object_mut().unwrap().remove("Ethernet4|2001:db8:b::2");
    switch["VLAN"] = json!({"Vlan1000": {"vlanid": "1000"}});
    let untagged = json!({"tagging_mode": "untagged"});
    switch["VLAN_MEMBER"] = json!({"Vlan1000|Ethernet4": untagged, "Vlan1000|Ethernet8": untagged});
    switch["VLAN_INTERFACE"] = json!({"Vlan1000": {}, "Vlan1000|2001:db8:b::1/64": {}});
    switch["STATIC_ROUTE"]["default|fcbb:bbbb:2::/48"] = json!({"nexthop": "2001:db8:b::2", "ifname": "Vlan1000"});
    switch
}

/// Starts the switch, and waits until the neighbour behind the VLAN has answered and the first packet has arrived.
fn resolved() -> Testbed {
    let mut bed = Testbed::new(3, &vlan(), "");
    bed.give_address(1, "2001:db8:b::2");
    let frame = bed.entering(0, &roce("fcbb:bbbb:1:2::", 64, false));
    support::rig::wait_for("packet behind the VLAN", || {
        bed.send(0, &frame);
        assert_eq!(bed.receive(2), None, "the other member");
        bed.receive(1)
    });
    // Packets that waited for the neighbour arrive, too.
    let mut quiet = 0;
    support::rig::wait_for("quiet wire", || {
        quiet = if bed.receive(1).is_some() { 0 } else { quiet + 1 };
        (quiet > 5).then_some(())
    });
    bed
}

#[test]
#[ignore = "needs root"]
fn un_forwarding_towards_vlan() {
    let mut bed = resolved();
    ten_packets(&mut bed, false);
    ten_packets(&mut bed, true);
    assert_eq!(bed.receive(2), None, "nothing on the other member");
}

#[test]
#[ignore = "needs root"]
fn un_no_vlan_flooding() {
    let mut bed = resolved();
    bed.shutdown(1);
    bed.wait_until_ready();
    let mut received = bed.received_and_dropped(0).0;
    for with_srh in [false, true] {
        let frame = bed.entering(0, &roce("fcbb:bbbb:1:2::", 64, with_srh));
        for _ in 0..100 {
            bed.send(0, &frame);
        }
        received += 100;
        support::rig::wait_for("100 received packets", || (bed.received_and_dropped(0).0 >= received).then_some(()));
        bed.check_silence();
    }
}

fn sids_shown(bed: &Testbed) -> Vec<String> {
    let shown = bed.word("show srv6 static-sids");
    shown.lines().skip(2).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
#[ignore = "needs root"]
fn un_and_udt46_are_configured_and_removed() {
    let with = |sids: Value| {
        let mut switch = switch(&json!({"loc1": {"prefix": "fcbb:bbbb:1::"}}), &sids, &json!({}));
        switch["VRF"] = json!({"Vrf1": {}});
        switch
    };
    let bed = Testbed::new(2, &with(json!({"loc1|fcbb:bbbb:1::/48": {"action": "uN", "decap_dscp_mode": "pipe"}})), "");
    assert_eq!(sids_shown(&bed), ["fcbb:bbbb:1::/48 loc1 uN pipe N/A True"]);
    bed.configure(&with(json!({"loc1|fcbb:bbbb:1:d46::/64": {"action": "uDT46", "decap_vrf": "Vrf1"}})));
    bed.word("config reload -y -f");
    support::rig::wait_for("the other SID", || {
        (sids_shown(&bed) == ["fcbb:bbbb:1:d46::/64 loc1 uDT46 N/A Vrf1 True"]).then_some(())
    });
    bed.configure(&with(json!({})));
    bed.word("config reload -y -f");
    support::rig::wait_for("no SID", || sids_shown(&bed).is_empty().then_some(()));
}

/// A uA sends packets through its port whatever the routes are. It has two SIDs: a /48 of the local block, and a /64
/// behind the locator.
#[test]
#[ignore = "needs root"]
fn ua_shifts_and_pins_and_does_so_after_a_reload() {
    let adjacency = json!({"action": "uA", "interface": "Ethernet4", "adj": "2001:db8:b::2"});
    let back = json!({"nexthop": "2001:db8:a::2", "ifname": "Ethernet0"});
    let config_db = switch(
        &json!({"loc1": {"prefix": "fcbb:bbbb:1::"}}),
        &json!({
            "loc1|fcbb:bbbb:1::/48": {"action": "uN", "decap_dscp_mode": "pipe"},
            "loc1|fcbb:bbbb:fe04::/48": adjacency, "loc1|fcbb:bbbb:1:fe04::/64": adjacency
        }),
        &json!({"default|fcbb:bbbb:2::/48": back}),
    );
    let mut bed = Testbed::new(2, &config_db, "");
    for _ in 0..2 {
        for sid in ["fcbb:bbbb:fe04:2::", "fcbb:bbbb:1:fe04:2::"] {
            let frames = (bed.entering(0, &roce(sid, 64, false)), bed.leaving(1, &roce("fcbb:bbbb:2::", 63, false)));
            bed.pass((0, 1), &vec![frames; 10]);
        }
        config_reload(&mut bed);
    }
}
