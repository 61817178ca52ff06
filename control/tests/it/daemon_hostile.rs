//! Tests that send invalid frames through real sockets: each one is counted, and the node continues.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use support::rig::{CONFIG, Rig, wait_for};
use support::wire::{Wire, ethernet, ipv6, mac};

const IPV6: u16 = 0x86dd;
const IPV4: u16 = 0x0800;
const SRH: u8 = 43;
const INNER_IPV6: u8 = 41;
const HOPS: u8 = 0;

const SIDS: &str = r#"
[[block]]
prefix = "fcbb::/32"
[[sid]]
sid = "fcbb:0:1000::/48"
behavior = "uN"
[[sid]]
sid = "fcbb:0:1000:fe06::/64"
behavior = "uDT46"
[[route]]
prefix = "fcbb:0:1001::/48"
via = "2001:db8:b::2"
[[route]]
prefix = "192.0.2.0/24"
via = "2001:db8:b::2"
"#;

/// Payload of a marked packet. When it arrives at the other end, srv6d has processed all packets before it.
const MARK: [u8; 8] = [0, 9, 0, 9, 0, 8, 0x5a, 0xa5];

fn packet(destination: &str, next_header: u8, payload: &[u8]) -> Vec<u8> {
    ipv6("2001:db8:a::2", destination, next_header, 64, payload)
}

/// Returns valid packets, so that changed ones pass many checks before they are dropped.
fn good() -> Vec<Vec<u8>> {
    let inner = packet("2001:db8:b::2", 17, &[0; 8]);
    // The SRH begins with: next header, length in units of 8 bytes behind the first 8, routing type 4, segments left,
    // last entry, flags, tag.
    let mut srh = vec![INNER_IPV6, 4, 4, 1, 1, 0, 0, 0];
    srh.extend([0xfc, 0xbb, 0, 0, 0x10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    srh.extend([0xfc, 0xbb, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    srh.extend(&inner);
    let mut v4 = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 198, 51, 100, 1, 192, 0, 2, 1, 0, 9, 0, 9, 0, 8, 0, 0];
    let sum: u32 = v4.chunks(2).take(10).map(|pair| pair.iter().fold(0, |sum, &byte| sum << 8 | u32::from(byte))).sum();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    v4.splice(10..12, sum.to_be_bytes());
    vec![
        packet("2001:db8:b::2", 17, &[0; 8]),
        packet("fcbb:0:1000:1001::", INNER_IPV6, &inner),
        packet("fcbb:0:1000:fe06::", INNER_IPV6, &inner),
        packet("fcbb:0:1000:fe06::", 4, &v4),
        packet("fcbb:0:1000::", SRH, &srh),
        packet("fcbb:0:1000:1001::", HOPS, &[17, 0, 1, 4, 0, 0, 0, 0, 0, 9, 0, 9, 0, 8, 0, 0]),
    ]
}

/// Generator of numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    /// Changes up to three bytes of a packet, and sometimes makes it shorter or longer.
    fn spoil(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut spoilt = packet.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(spoilt.len());
            let value = [0, 0xff, 0x7f, 1, u8::try_from(self.below(256)).unwrap()];
            *spoilt.get_mut(at).unwrap() = *value.get(self.below(value.len())).unwrap();
        }
        match self.below(4) {
            0 => spoilt.truncate(self.below(packet.len())),
            1 => spoilt.resize(packet.len() + self.below(200), 0xee),
            _ => {}
        }
        spoilt
    }
}

struct Attack {
    a: Wire,
    b: Wire,
    eth1: [u8; 6],
    a_mac: [u8; 6],
    rig: Rig,
    daemon: usize,
}

impl Attack {
    fn begin() -> Self {
        let mut rig = Rig::new(1);
        let [a_mac, b_mac] = ["a", "b"].map(|host| mac(&rig, host, "wire"));
        let eth1 = mac(&rig, "router", "eth1");
        let neighbor = |address: &str, port: &str, mac: [u8; 6]| {
            let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
            format!("[[neighbor]]\naddress = \"{address}\"\nport = \"{port}\"\nmac = \"{mac}\"\n")
        };
        let neighbors = neighbor("2001:db8:a::2", "eth1", a_mac) + &neighbor("2001:db8:b::2", "eth2", b_mac);
        let daemon = rig.ready(&format!("{CONFIG}{SIDS}{neighbors}"));
        let (a, b) = (Wire::open(&rig, "a", &[]), Wire::open(&rig, "b", &[]));
        Self { a, b, eth1, a_mac, rig, daemon }
    }

    fn send(&mut self, ethertype: u16, packet: &[u8]) {
        self.a.send(&ethernet(self.eth1, self.a_mac, None, ethertype, packet));
        while self.a.poll().is_some() {} // answers
    }

    /// Waits until all earlier frames were processed, and checks that an ordinary packet still arrives.
    fn settle(&mut self) {
        self.send(IPV6, &packet("2001:db8:b::2", 17, &MARK));
        let b = &mut self.b;
        wait_for("marked packet", || std::iter::from_fn(|| b.poll()).any(|frame| frame.ends_with(&MARK)).then_some(()));
        while self.a.poll().is_some() {}
    }
}

#[test]
#[ignore = "needs root"]
fn each_malformation_is_a_drop_of_its_own_kind() {
    let mut attack = Attack::begin();
    let changed = |packet: Vec<u8>, at: usize, value: u8| {
        let mut changed = packet;
        *changed.get_mut(at).unwrap() = value;
        changed
    };
    let [plain, shift, _, v4, routed, _] = good().try_into().unwrap();
    for (reason, frame) in [
        // The payload length is larger than the packet.
        ("malformed", changed(plain, 5, 200)),
        // The version is 5.
        ("malformed", changed(shift, 0, 0x50)),
        // The checksum of the inner IPv4 header is wrong.
        ("malformed", changed(v4, 40 + 10, 0xaa)),
        // The SRH has more segments left than entries.
        ("srh_invalid", changed(routed, 40 + 3, 9)),
        ("unknown_sid", packet("fcbb:0:9999::", INNER_IPV6, &[0; 40])),
        ("bad_source", changed(packet("fcbb:0:1000:1001::", 17, &[0; 8]), 8, 0xff)),
    ] {
        let before = (attack.rig.drops(reason), attack.rig.replies(reason));
        attack.send(IPV6, &frame);
        attack.settle();
        let after = (attack.rig.drops(reason), attack.rig.replies(reason));
        assert_eq!(after.0 + after.1, before.0 + before.1 + 1, "{reason}: {:#}", attack.rig.show("counters"));
    }
    attack.rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn thousands_of_spoilt_frames_cost_nothing_but_themselves() {
    let mut attack = Attack::begin();
    let (good, mut numbers) = (good(), Numbers(7));
    for round in 0..40 {
        for _ in 0..100 {
            let chosen = numbers.below(good.len());
            let spoilt = numbers.spoil(good.get(chosen).unwrap());
            let ethertype = if numbers.below(20) == 0 { IPV4 } else { IPV6 };
            attack.send(ethertype, &spoilt);
        }
        attack.settle();
        attack.rig.check_lives(attack.daemon);
        assert!(round > 0 || attack.rig.drops("malformed") > 0, "{:#}", attack.rig.show("counters"));
    }
    attack.rig.check_balance();
    assert!(attack.rig.counter("rx") > 2000, "{:#}", attack.rig.show("counters"));
    assert_eq!(attack.rig.stop(attack.daemon, "TERM"), Some(0), "{}", attack.rig.log("node"));
}
