//! Tests of a fabric in which one link has a smaller MTU than the others, behind a router of the kernel.
//!
//! ```text
//! a ── eth1  router (srv6d)  eth2 ── b (kernel, forwards) ══ 1400 bytes ══ far (kernel: End.DT6, 2001:db8:c::1)
//! ```
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use crate::support;

use support::rig::{CONFIG, Rig, must, run, wait_for};

/// The namespace behind `b`, which is removed at the end.
pub struct Far(String);

impl Far {
    pub fn behind_b(rig: &Rig) -> Self {
        let far = Self(rig.ns("far"));
        let (ns, b) = (&far.0, rig.ns("b"));
        must(&format!("ip netns add {ns}"));
        for command in [
            format!("ip link add small netns {b} mtu 1400 type veth peer name wire mtu 1400 netns {ns}"),
            format!("ip netns exec {ns} ethtool -K wire tx off"),
            format!("ip -n {ns} link set lo up"),
            format!("ip -n {ns} link set wire up"),
            format!("ip -n {b} link set small up"),
            format!("ip -n {ns} addr add 2001:db8:f::2/64 dev wire nodad"),
            format!("ip -n {b} addr add 2001:db8:f::1/64 dev small nodad"),
            format!("ip -n {ns} addr add 2001:db8:c::1/128 dev lo"),
            format!("ip -n {ns} -6 route add default via 2001:db8:f::1"),
            format!("ip -n {ns} -6 route add fcbb:0:9::/48 encap seg6local action End.DT6 table 255 dev wire"),
            format!("ip netns exec {b} sysctl -qw net.ipv6.conf.all.forwarding=1"),
            format!("ip -n {b} -6 route add fcbb:0:9::/48 via 2001:db8:f::2"),
            // Because forwarding is on, this replaces the default route that a host has by itself.
            format!("ip -n {b} -6 route replace default via 2001:db8:b::1"),
        ] {
            must(&command);
        }
        far
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        run(&format!("ip netns del {}", self.0));
    }
}

pub const STEERED: &str = r#"
[[block]]
prefix = "fcbb::/32"
[[route]]
prefix = "fcbb:0:9::/48"
via = "2001:db8:b::2"
port = "eth2"
[[steer]]
prefix = "2001:db8:c::/48"
segments = ["fcbb:0:9::"]
"#;

/// Returns the MTU that a router has reported for the only path.
pub fn learned(rig: &Rig) -> Option<u64> {
    let paths = rig.show("paths");
    let [path] = paths.as_array().unwrap().as_slice() else { panic!("one path: {paths}") };
    path.get("learned_mtu").unwrap().as_u64()
}

#[test]
#[ignore = "needs root"]
fn tcp_crosses_a_link_that_is_smaller_than_the_others() {
    let mut rig = Rig::new(1);
    let _far = Far::behind_b(&rig);
    rig.ready(&format!("{CONFIG}{STEERED}"));
    let ping = |size: u32| rig.output("a", &format!("ping -6 -c 1 -W 1 -M do -s {size} 2001:db8:c::1"));
    wait_for("ping to the far end", || ping(100).status.success().then_some(()));
    assert_eq!(learned(&rig), None, "no router has said anything yet");
    let (sent, received) = rig.tcp("a", "far", "[2001:db8:c::1]:7001");
    assert_eq!(sent, received);
    assert_eq!(learned(&rig), Some(1400));
    let table = String::from_utf8_lossy(&rig.ask("node", "show paths").stdout).into_owned();
    assert!(table.contains("1400"), "{table}");
    // The inner sender was told 1400 bytes minus the outer header.
    let route = rig.inside("a", "ip -6 route get 2001:db8:c::1");
    assert!(route.contains("mtu 1360"), "{route}");
    // The packet also has 40 bytes of IPv6 and 8 of ICMPv6.
    rig.inside("a", "ip -6 route flush cache");
    wait_for("ping that fits", || ping(1360 - 48).status.success().then_some(()));
    let refused = || String::from_utf8_lossy(&ping(1361 - 48).stdout).contains("Packet too big: mtu=1360");
    wait_for("message to the inner sender", || refused().then_some(()));
    rig.check_balance();
}

/// Packets of the kernel have the same source, so only the kernel can judge messages about them.
#[test]
#[ignore = "needs root"]
fn what_is_said_about_the_kernels_own_packets_reaches_the_kernel() {
    let mut rig = Rig::new(1);
    let _far = Far::behind_b(&rig);
    rig.inside("router", "ip -6 route add 2001:db8:f::/64 via 2001:db8:b::2 src 2001:db8:a::1");
    rig.ready(&format!("{CONFIG}{STEERED}"));
    wait_for("message", || {
        rig.output("router", "ping -6 -c 1 -W 1 -M do -s 1440 -I 2001:db8:a::1 2001:db8:f::2");
        rig.inside("router", "ip -6 route get 2001:db8:f::2").contains("mtu 1400").then_some(())
    });
    assert_eq!(learned(&rig), None, "no path is meant");
    rig.check_balance();
}
