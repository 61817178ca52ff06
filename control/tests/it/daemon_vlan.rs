//! Tests of tagged ports by crafted frames, because a kernel without VLAN devices cannot create tagged frames.
//!
//! ```text
//! a ── eth1 (untagged) and eth1.7 (VLAN 7)   router   eth2.8 (VLAN 8, no untagged port) ── b
//! ```
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use support::rig::{Rig, must, wait_for};
use support::wire::{Wire, ethernet, ipv6, mac};

const IPV6: u16 = 0x86dd;
const UDP: u8 = 17;
/// UDP datagram from port 9 to port 9 with a dummy checksum and five bytes.
const DATAGRAM: [u8; 13] = [0, 9, 0, 9, 0, 13, 0xab, 0xcd, b'h', b'e', b'l', b'l', b'o'];

type Mac = [u8; 6];

struct Vlans {
    a: Wire,
    b: Wire,
    a_mac: Mac,
    b_mac: Mac,
    eth1: Mac,
    eth2: Mac,
    rig: Rig,
}

fn written(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

impl Vlans {
    fn up() -> Self {
        let mut rig = Rig::new(1);
        let [a_mac, b_mac] = ["a", "b"].map(|host| mac(&rig, host, "wire"));
        let [eth1, eth2] = ["eth1", "eth2"].map(|port| mac(&rig, "router", port));
        let config = format!(
            r#"
[node]
source = "2001:db8:a::1"
[workers]
frames = 2048
ring = 512
[api]
metrics = "off"
[[block]]
prefix = "fcbb::/32"
[[port]]
name = "eth1"
role = "fabric"
[[port]]
name = "eth1.7"
role = "fabric"
vlan = 7
[[port]]
name = "eth2.8"
role = "fabric"
vlan = 8
[[neighbor]]
address = "fe80::a"
port = "eth1"
mac = "{a}"
[[neighbor]]
address = "fe80::a"
port = "eth1.7"
mac = "{a}"
[[neighbor]]
address = "fe80::b"
port = "eth2.8"
mac = "{b}"
[[sid]]
sid = "fcbb:0:1000::/48"
behavior = "uN"
[[route]]
prefix = "fcbb:0:1001::/48"
via = "fe80::b"
port = "eth2.8"
[[route]]
prefix = "2001:db8:800::/48"
via = "fe80::b"
port = "eth2.8"
[[route]]
prefix = "2001:db8:700::/48"
via = "fe80::a"
port = "eth1.7"
[[route]]
prefix = "2001:db8:100::/48"
via = "fe80::a"
port = "eth1"
[[steer]]
prefix = "3fff::/20"
segments = ["fcbb:0:1001:fe06::"]
"#,
            a = written(a_mac),
            b = written(b_mac),
        );
        rig.ready(&config);
        let a = Wire::open(&rig, "a", &[7]);
        let b = Wire::open(&rig, "b", &[8]);
        Self { a, b, a_mac, b_mac, eth1, eth2, rig }
    }

    /// Sends a packet from a, tagged or not, and checks that it arrives at b in VLAN 8 as `expected`.
    fn a_to_b(&mut self, vid: Option<u16>, packet: &[u8], expected: &[u8]) {
        self.a.send(&ethernet(self.eth1, self.a_mac, vid, IPV6, packet));
        let frame = self.b.receive();
        assert_eq!(frame, ethernet(self.b_mac, self.eth2, Some(8), IPV6, expected), "{frame:02x?}");
    }

    /// Sends a packet from b in VLAN 8, and checks that it arrives at a, tagged or not, with its hop limit decremented.
    fn b_to_a(&mut self, destination: &str, vid: Option<u16>) {
        let packet = |hop_limit| ipv6("2001:db8:800::b", destination, UDP, hop_limit, &DATAGRAM);
        self.b.send(&ethernet(self.eth2, self.b_mac, Some(8), IPV6, &packet(64)));
        let frame = self.a.receive();
        assert_eq!(frame, ethernet(self.a_mac, self.eth1, vid, IPV6, &packet(63)), "{frame:02x?}");
    }

    /// Returns the number of frames of a device that were passed to the kernel.
    fn to_kernel(&self, port: &str) -> u64 {
        self.rig.port_counter(port, "to_kernel")
    }
}

#[test]
#[ignore = "needs root"]
fn a_packet_changes_its_tag_and_nothing_else_is_touched() {
    let mut vlans = Vlans::up();
    let packet = |hop_limit| ipv6("2001:db8:100::a", "2001:db8:800::b", UDP, hop_limit, &DATAGRAM);
    vlans.a_to_b(Some(7), &packet(64), &packet(63));
    vlans.a_to_b(None, &packet(64), &packet(63));
    // The priority and drop-eligible bits do not belong to the VLAN, and are not copied to the next one.
    vlans.a_to_b(Some(0xf007), &packet(64), &packet(63));
    // A tag that only has a priority does not name a VLAN.
    vlans.a_to_b(Some(0xe000), &packet(64), &packet(63));
    vlans.b_to_a("2001:db8:700::a", Some(7));
    vlans.b_to_a("2001:db8:100::a", None);
    vlans.rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn carriers_are_shifted_and_packets_encapsulated_into_a_vlan() {
    let mut vlans = Vlans::up();
    let carrier = |destination, hop_limit| ipv6("2001:db8:100::a", destination, UDP, hop_limit, &DATAGRAM);
    vlans.a_to_b(Some(7), &carrier("fcbb:0:1000:1001:fe06::", 64), &carrier("fcbb:0:1001:fe06::", 63));

    let inner = |hop_limit| ipv6("2001:db8:100::a", "3fff::b", UDP, hop_limit, &DATAGRAM);
    vlans.a.send(&ethernet(vlans.eth1, vlans.a_mac, Some(7), IPV6, &inner(64)));
    let frame = vlans.b.receive();
    let mut outer = ipv6("2001:db8:a::1", "fcbb:0:1001:fe06::", 41, 64, &inner(63));
    // The flow label is the hash of the flow (RFC 6437): any value other than zero.
    let label: Vec<u8> = frame.iter().skip(18).take(4).copied().collect();
    assert!(label.iter().skip(1).any(|&byte| byte != 0), "{frame:02x?}");
    outer.splice(..4, label);
    assert_eq!(frame, ethernet(vlans.b_mac, vlans.eth2, Some(8), IPV6, &outer), "{frame:02x?}");
    vlans.rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn tagged_packets_pass_the_workers_in_every_direction() {
    const ROUNDS: u64 = 5;
    let mut vlans = Vlans::up();
    let packet = |hop_limit| ipv6("2001:db8:100::a", "2001:db8:800::b", UDP, hop_limit, &DATAGRAM);
    let carrier = |destination, hop_limit| ipv6("2001:db8:100::a", destination, UDP, hop_limit, &DATAGRAM);
    // The program sends through a port once it has seen that the port takes such frames.
    let offloaded = |vlans: &Vlans| vlans.rig.counter("offloaded");
    wait_for("packets past the workers", || {
        let before = offloaded(&vlans);
        vlans.a_to_b(Some(7), &packet(64), &packet(63));
        vlans.b_to_a("2001:db8:100::a", None);
        (offloaded(&vlans) == before + 2).then_some(())
    });
    let before = offloaded(&vlans);
    for _ in 0..ROUNDS {
        vlans.a_to_b(Some(7), &packet(64), &packet(63));
        vlans.a_to_b(None, &packet(64), &packet(63));
        vlans.a_to_b(Some(0xf007), &packet(64), &packet(63));
        vlans.b_to_a("2001:db8:700::a", Some(7));
        vlans.b_to_a("2001:db8:100::a", None);
        vlans.a_to_b(Some(7), &carrier("fcbb:0:1000:1001:fe06::", 64), &carrier("fcbb:0:1001:fe06::", 63));
    }
    assert_eq!(offloaded(&vlans), before + 6 * ROUNDS);
    // A tag that only has a priority is the worker's.
    vlans.a_to_b(Some(0xe000), &packet(64), &packet(63));
    assert_eq!(offloaded(&vlans), before + 6 * ROUNDS);
    vlans.rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn an_error_goes_back_into_the_vlan_it_came_from() {
    let mut vlans = Vlans::up();
    let packet = ipv6("2001:db8:700::a", "2001:db8:800::b", UDP, 1, &DATAGRAM);
    vlans.a.send(&ethernet(vlans.eth1, vlans.a_mac, Some(7), IPV6, &packet));
    let frame = vlans.a.receive();
    assert!(frame.starts_with(&ethernet(vlans.a_mac, vlans.eth1, Some(7), IPV6, &[])), "{frame:02x?}");
    // ICMPv6 time exceeded, hop limit (RFC 4443 section 3.3), which quotes the whole packet as it arrived.
    assert_eq!(frame.get(58..60), Some(&[3, 0][..]), "{frame:02x?}");
    assert!(frame.ends_with(&packet), "{frame:02x?}");
    vlans.rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn every_vlan_has_counters_of_its_own() {
    let mut vlans = Vlans::up();
    let packet = |hop_limit| ipv6("2001:db8:100::a", "2001:db8:800::b", UDP, hop_limit, &DATAGRAM);
    for vid in [Some(7), None, Some(7), Some(7)] {
        vlans.a_to_b(vid, &packet(64), &packet(63));
    }
    vlans.b_to_a("2001:db8:700::a", Some(7));
    let counted =
        |port| ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes"].map(|name| vlans.rig.port_counter(port, name));
    // Each frame has 40 + 13 bytes of packet behind 14 bytes of Ethernet, and 4 bytes of the tag if tagged.
    assert_eq!(counted("eth1"), [1, 67, 0, 0]);
    assert_eq!(counted("eth1.7"), [3, 3 * 71, 1, 71]);
    assert_eq!(counted("eth2.8"), [1, 71, 4, 4 * 71]);
}

#[test]
#[ignore = "needs root"]
fn frames_of_unknown_vlans_are_the_kernels() {
    let mut vlans = Vlans::up();
    let packet = ipv6("2001:db8:100::a", "2001:db8:800::b", UDP, 64, &DATAGRAM);
    let (before, received) = (vlans.to_kernel("eth1"), vlans.rig.counter("rx"));
    // One frame has another VLAN, the other one two tags.
    let mut inner = 7_u16.to_be_bytes().to_vec();
    inner.extend(IPV6.to_be_bytes());
    inner.extend(&packet);
    for frame in [
        ethernet(vlans.eth1, vlans.a_mac, Some(9), IPV6, &packet),
        ethernet(vlans.eth1, vlans.a_mac, Some(7), 0x8100, &inner),
    ] {
        vlans.a.send(&frame);
    }
    wait_for("two frames for the kernel", || (vlans.to_kernel("eth1") >= before + 2).then_some(()));
    // A device that has only a VLAN port keeps its untagged frames.
    let before = vlans.to_kernel("eth2.8");
    vlans.b.send(&ethernet(vlans.eth2, vlans.b_mac, None, IPV6, &packet));
    wait_for("an untagged frame for the kernel", || (vlans.to_kernel("eth2.8") > before).then_some(()));
    assert_eq!(vlans.rig.counter("rx"), received, "none of them was srv6d's");
}

/// Makes the kernel of `a` put a tag beside every IPv6 frame that it sends, as a VLAN device on a veth does.
fn tag_beside_frames(vlans: &Vlans, vid: u16) {
    let (source, object) = (vlans.rig.file("push.c"), vlans.rig.file("push.o"));
    let program = format!(
        "#include <linux/bpf.h>\n\
         static long (*const push)(void *skb, __u16 type, __u16 tci) = (void *)BPF_FUNC_skb_vlan_push;\n\
         __attribute__((section(\"tc\"), used)) int tag(struct __sk_buff *skb) {{\n\
         if (skb->protocol == __builtin_bswap16(0x86dd)) push(skb, __builtin_bswap16(0x8100), {vid});\n\
         return 0; }}\n\
         char licence_text[] __attribute__((section(\"license\"), used)) = \"GPL\";\n"
    );
    std::fs::write(&source, program).unwrap();
    must(&format!(
        "clang -target bpf -O2 -g -I/usr/include/$(uname -m)-linux-gnu -c {} -o {}",
        source.display(),
        object.display()
    ));
    vlans.rig.inside("a", "tc qdisc replace dev wire clsact");
    vlans.rig.inside("a", "tc filter del dev wire egress 2>/dev/null || true");
    vlans.rig.inside("a", &format!("tc filter add dev wire egress bpf direct-action obj {} sec tc", object.display()));
}

/// Sends five datagrams from the kernel of `a`.
fn send_five(vlans: &Vlans) {
    let eth1 = written(vlans.eth1);
    vlans.rig.inside("a", &format!("ip -6 neigh replace 2001:db8:a::1 lladdr {eth1} dev wire nud permanent"));
    let five = "for i in 1 2 3 4 5; do echo $i > /dev/udp/2001:db8:800::b/4000; done";
    vlans.rig.inside("a", &format!("bash -c '{five}'"));
}

#[test]
#[ignore = "needs root"]
fn a_tag_beside_the_frame_counts_as_one_in_it() {
    let mut vlans = Vlans::up();
    let counted = |vlans: &Vlans, port: &str| vlans.rig.port_counter(port, "rx_packets");
    tag_beside_frames(&vlans, 7);
    let untagged = counted(&vlans, "eth1");
    send_five(&vlans);
    for _ in 0..5 {
        let frame = vlans.b.receive();
        assert!(frame.starts_with(&ethernet(vlans.b_mac, vlans.eth2, Some(8), IPV6, &[])), "{frame:02x?}");
    }
    assert_eq!((counted(&vlans, "eth1"), counted(&vlans, "eth1.7")), (untagged, 5));
    // Frames of a VLAN without a port belong to the kernel, and not to the untagged port.
    tag_beside_frames(&vlans, 9);
    let before = vlans.to_kernel("eth1");
    send_five(&vlans);
    wait_for("five frames for the kernel", || (vlans.to_kernel("eth1") >= before + 5).then_some(()));
    assert_eq!((counted(&vlans, "eth1"), counted(&vlans, "eth1.7")), (untagged, 5));
    assert!(vlans.b.poll().is_none(), "a tagged frame was forwarded as untagged");
    vlans.rig.check_balance();
}
