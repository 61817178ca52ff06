//! Tests with another program's XDP program on a port: it is named, and never replaced.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;

use support::rig::{CONFIG, Rig, must, text, wait_for};

/// An XDP program that passes everything. A daemon without `CAP_SYS_ADMIN` cannot read its name, but says how to find
/// it.
const PROGRAM: &str = r#"
__attribute__((section("xdp"), used)) int their_filter(void *ctx) { return 2; }
char licence[] __attribute__((section("license"), used)) = "GPL";
"#;

/// Attaches the program by netlink, as `ip` and many tools do, so that no BPF link protects it.
fn attach(rig: &Rig, port: &str, kind: &str) {
    let (source, object) = (rig.file("filter.c"), rig.file("filter.o"));
    fs::write(&source, PROGRAM).unwrap();
    must(&format!("clang -O2 -target bpf -c {} -o {}", source.display(), object.display()));
    rig.inside("router", &format!("ip link set dev {port} {kind} obj {} sec xdp", object.display()));
}

fn is_there(rig: &Rig, port: &str) -> bool {
    rig.inside("router", &format!("ip -d link show {port}")).contains("name their_filter")
}

/// Waits until `show ports` reports that eth2 waits, and for which program.
fn wait_for_the_reason(rig: &Rig) {
    wait_for("the reason in show ports", || {
        let shown = text(&rig.ask("node", "show ports").stdout);
        let is_named = shown.contains("bpftool prog show id") && shown.contains("eth2      pending");
        (is_named && shown.contains("eth2: XDP program") && !shown.contains("eth2: eth2")).then_some(())
    });
}

#[test]
#[ignore = "needs root"]
fn a_daemon_that_starts_beside_it_forwards_on_the_other_ports_and_takes_this_one_later() {
    for kind in ["xdpdrv", "xdpgeneric"] {
        let mut rig = Rig::new(1);
        rig.inside("router", "sysctl -qw net.ipv6.conf.all.forwarding=1");
        attach(&rig, "eth2", kind);
        let daemon = rig.ready(CONFIG);
        let log = rig.log("node");
        assert!(log.contains("eth2: not attached: XDP program") && log.contains("bpftool prog show id"), "{log}");
        assert!(log.contains("ip link set dev eth2 xdp off") && log.contains("xdpgeneric off"), "{log}");
        wait_for_the_reason(&rig);
        assert!(is_there(&rig, "eth2") && !rig.is_kernels("eth1"), "{kind}");

        rig.inside("router", &format!("ip link set dev eth2 {kind} off"));
        wait_for("ping through srv6d", || (!rig.is_kernels("eth2") && rig.pings()).then_some(()));
        rig.check_balance();
        assert_eq!(rig.stop(daemon, "TERM"), Some(0), "{}", rig.log("node"));
    }
}

#[test]
#[ignore = "needs root"]
fn a_reload_takes_a_port_with_it_which_waits() {
    let mut rig = Rig::new(1);
    let (first, _) = CONFIG.rsplit_once("[[port]]").unwrap();
    rig.ready(first);
    attach(&rig, "eth2", "xdpdrv");
    fs::write(rig.file("node.toml"), CONFIG).unwrap();
    assert!(rig.ask("node", "reload").status.success());
    wait_for_the_reason(&rig);
    assert!(is_there(&rig, "eth2"));
    rig.inside("router", "ip link set dev eth2 xdp off");
    rig.wait_for_pings();
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_port_that_comes_back_with_it_waits_and_says_why() {
    let rig = Rig::forwarding(1, CONFIG);
    rig.inside("b", "ip link del wire");
    wait_for("pending port", || text(&rig.ask("node", "show ports").stdout).contains("pending").then_some(()));
    // The program is on the device before the device gets the name that srv6d waits for.
    rig.link("b", "other2", 1);
    attach(&rig, "other2", "xdpdrv");
    rig.inside("router", "ip link set other2 down");
    rig.inside("router", "ip link set other2 name eth2 up");
    rig.inside("router", "ip addr replace 2001:db8:b::1/64 dev eth2 nodad");
    wait_for_the_reason(&rig);
    assert!(is_there(&rig, "eth2"));
    rig.inside("router", "ip link set dev eth2 xdp off");
    wait_for("ping through srv6d again", || rig.pings().then_some(()));
    rig.check_balance();
}
