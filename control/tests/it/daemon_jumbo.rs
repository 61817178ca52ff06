//! Tests that compare packets of several buffers byte by byte when their headers change. Only the first buffer is
//! written, and it is full, so additional headers are put in front.
//!
//! ```text
//! a ── 9000 bytes, unchanged ─────────► eth1  router: encapsulates to two segments  eth2 ──► b
//! a ── the same behind such headers ──► eth1  router: removes these headers         eth2 ──► b
//! ```
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use std::net::Ipv6Addr;

use support::rig::{CONFIG, Rig, wait_for};
use support::wire::{Wire, ethernet, ipv6, mac};

const IPV6: u16 = 0x86dd;
const SRH: u8 = 43;
const INNER_IPV6: u8 = 41;
const UDP: u8 = 17;

/// Packets per burst, and bursts of each kind. Each packet needs three of 256 buffers.
const BURST: u8 = 8;
const BURSTS: u8 = 20;

const SRV6: &str = r#"
[[block]]
prefix = "fcbb::/32"
[[sid]]
sid = "fcbb:0:1000:fe06::/64"
behavior = "uDT6"
[[route]]
prefix = "fcbb:0:1001::/48"
via = "2001:db8:b::2"
[[steer]]
prefix = "3fff::/20"
mode = "encap"
segments = ["fcbb:0:1001::", "fcbb:0:1002:fe06::"]
"#;

struct Jumbo {
    a: Wire,
    b: Wire,
    /// Ethernet addresses of frames to the router, and of frames from it.
    into: [[u8; 6]; 2],
    out: [[u8; 6]; 2],
    rig: Rig,
    daemon: usize,
}

impl Jumbo {
    /// Starts the router, with the ports in `apart` in a separate packet memory.
    fn begin(apart: &str) -> Self {
        let mut rig = Rig::new(1);
        for (node, device) in [("a", "wire"), ("router", "eth1"), ("router", "eth2"), ("b", "wire")] {
            rig.inside(node, &format!("ip link set {device} mtu 9500"));
        }
        let b_mac = mac(&rig, "b", "wire");
        let written = b_mac.map(|byte| format!("{byte:02x}")).join(":");
        let neighbor = format!("[[neighbor]]\naddress = \"2001:db8:b::2\"\nport = \"eth2\"\nmac = \"{written}\"\n");
        let config = CONFIG.replace("frames = 2048", "frames = 256").replace("ring = 512", "ring = 64");
        let mut command = rig.daemon("node", &format!("{config}{SRV6}{neighbor}"));
        command.env("SRV6D_TEST_APART", apart);
        let daemon = rig.spawn(command);
        rig.wait_until_ready();
        let into = [mac(&rig, "router", "eth1"), mac(&rig, "a", "wire")];
        let out = [b_mac, mac(&rig, "router", "eth2")];
        Self { a: Wire::open(&rig, "a", &[]), b: Wire::open(&rig, "b", &[]), into, out, rig, daemon }
    }

    /// Sends a burst of packets, and returns those that arrive. Packets of the router's kernel in between are short,
    /// and are skipped.
    fn cross(&mut self, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        for packet in packets {
            self.a.send(&ethernet(self.into[0], self.into[1], None, IPV6, packet));
        }
        while self.a.poll().is_some() {}
        // Each poll of the ring takes one buffer.
        let mut next = || wait_for("long packet", || (0..64).find_map(|_| self.b.poll()));
        let mut arrived = Vec::new();
        while arrived.len() < packets.len() {
            arrived.extend(Some(next()).filter(|frame| frame.len() > 9000));
        }
        arrived
    }
}

/// Returns a packet of 9000 bytes whose content differs at every offset and for every seed.
fn inner(destination: &str, seed: u8, hop_limit: u8) -> Vec<u8> {
    let mut datagram: Vec<u8> =
        (0..8960_u32).map(|at| u8::try_from(((at * 31) ^ (at >> 8)) & 0xff).unwrap() ^ seed).collect();
    datagram.splice(..8, [0, 9, 0, 9, 0x23, 0, 0xab, 0xcd]);
    ipv6("2001:db8:a::2", destination, UDP, hop_limit, &datagram)
}

/// Returns a packet behind an SRH (RFC 8754) with two segments, of which the last one comes first.
fn behind_srh(segments_left: u8, segments: [&str; 2], packet: &[u8]) -> Vec<u8> {
    let mut payload = vec![INNER_IPV6, 4, 4, segments_left, 1, 0, 0, 0];
    for segment in segments.iter().rev() {
        payload.extend(segment.parse::<Ipv6Addr>().unwrap().octets());
    }
    payload.extend(packet);
    payload
}

fn headers_come_and_go(apart: &str) {
    let mut jumbo = Jumbo::begin(apart);
    let [to, from] = jumbo.out;
    for burst in 0..BURSTS {
        let seeds = || (0..BURST).map(|packet| burst * BURST + packet);

        let plain: Vec<Vec<u8>> = seeds().map(|seed| inner("3fff::b", seed, 64)).collect();
        for (seed, frame) in seeds().zip(jumbo.cross(&plain)) {
            let path = ["fcbb:0:1001::", "fcbb:0:1002:fe06::"];
            let payload = behind_srh(1, path, &inner("3fff::b", seed, 63));
            let mut outer = ipv6("2001:db8:a::1", path[0], SRH, 64, &payload);
            // The flow label is the hash of the flow (RFC 6437).
            outer.splice(..4, frame.iter().skip(14).take(4).copied());
            assert!(frame == ethernet(to, from, None, IPV6, &outer), "encapsulated, {seed}: {:02x?}", frame.get(..134));
        }

        let carriers: Vec<Vec<u8>> = seeds()
            .map(|seed| {
                let path = ["fcbb:0:1003::", "fcbb:0:1000:fe06::"];
                ipv6("2001:db8:9::", path[1], SRH, 64, &behind_srh(0, path, &inner("2001:db8:b::2", seed, 64)))
            })
            .collect();
        for (seed, frame) in seeds().zip(jumbo.cross(&carriers)) {
            let packet = inner("2001:db8:b::2", seed, 63);
            assert!(frame == ethernet(to, from, None, IPV6, &packet), "decapsulated, {seed}: {:02x?}", frame.get(..54));
        }
    }
    jumbo.rig.check_balance();
    assert_eq!(jumbo.rig.stop(jumbo.daemon, "TERM"), Some(0), "{}", jumbo.rig.log("node"));
    assert!(jumbo.rig.log("node").contains(": balanced"), "{}", jumbo.rig.log("node"));
}

#[test]
#[ignore = "needs root"]
fn headers_come_and_go_in_front_of_long_packets() {
    headers_come_and_go("");
}

/// Packets that grew in one memory are copied to buffers of the other.
#[test]
#[ignore = "needs root"]
fn headers_come_and_go_between_two_memories() {
    headers_come_and_go("eth2");
}
