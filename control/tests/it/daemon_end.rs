//! Tests of the end of the daemon, after which its ports belong to the kernel.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;
use std::process::{Command, Stdio};

use support::rig::{self, CONFIG, Rig, SRV6D, end, must, number, report, wait_for};

/// Starts a router whose kernel would also forward, with srv6d forwarding in its place.
fn before_the_kernel() -> (Rig, usize) {
    let mut rig = Rig::new(1);
    rig.inside("router", "sysctl -qw net.ipv6.conf.all.forwarding=1");
    wait_for("ping through the kernel", || rig.pings().then_some(()));
    let daemon = rig.ready(CONFIG);
    wait_for("packets through srv6d", || (rig.pings() && rig.counter("tx") > 0).then_some(()));
    (rig, daemon)
}

#[test]
#[ignore = "needs root"]
fn sigterm_drains_and_not_one_datagram_is_lost() {
    let (mut rig, daemon) = before_the_kernel();
    let receiver = rig.receiver("b", "udp", "[2001:db8:b::2]:7020");
    let mut sender = rig.stream("a", "[2001:db8:b::2]:7020", 2000);
    let before = rig.counter("tx");
    wait_for("a running stream", || (rig.counter("tx") > before + 1000).then_some(()));
    assert_eq!(rig.stop(daemon, "TERM"), Some(0), "{}", rig.log("node"));
    end(&mut sender);
    let log = rig.log("node");
    assert!(log.contains("+ drop 0 + held 0 + queued 0: balanced"), "{log}");
    let report = report(&receiver.wait_with_output().unwrap().stdout);
    assert_eq!((number(&report, "lost"), number(&report, "duplicated")), (0, 0), "{report}");
    assert!(rig.is_kernels("eth1") && rig.is_kernels("eth2") && !rig.exists("srv6d0"));
}

#[test]
#[ignore = "needs root"]
fn signals_without_a_meaning_change_nothing() {
    let (mut rig, daemon) = before_the_kernel();
    for signal in ["USR1", "USR2", "ALRM"] {
        must(&format!("kill -{signal} {}", rig.pid(daemon)));
        assert!(rig.pings(), "{signal}");
    }
    assert_eq!(rig.stop(daemon, "TERM"), Some(0), "{}", rig.log("node"));
}

/// Returns the received packets in the last line of the log, such as `stopped: rx 10 tx 10 ...`.
fn received(log: &str) -> u64 {
    let (_, line) = log.rsplit_once("stopped: rx ").unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Packets that wait in a ring count neither as received nor as lost.
#[test]
#[ignore = "needs root"]
fn packets_that_wait_are_not_lost_and_the_number_of_lost_ones_never_runs_backwards() {
    let (mut rig, daemon) = before_the_kernel();
    let receiver = rig.receiver("b", "udp", "[2001:db8:b::2]:7023");
    let mut sender = rig.traffic("a", "udp-send [2001:db8:b::2]:7023 1000000 2 200");
    let mut lost = 0;
    while sender.try_wait().unwrap().is_none() {
        let now = rig.port_counter("eth1", "rx_lost");
        assert!(now >= lost, "{now} after {lost}");
        lost = now;
    }
    // The device's counter of redirects contains only packets for which a ring had room.
    let redirected = || rig.redirected("eth1").iter().sum::<u64>();
    wait_for("empty rings", || (rig.port_counter("eth1", "rx_packets") == redirected()).then_some(()));
    receiver.wait_with_output().unwrap();
    assert_eq!(rig.stop(daemon, "TERM"), Some(0), "{}", rig.log("node"));
}

#[test]
#[ignore = "needs root"]
fn what_the_kernel_had_handed_over_is_forwarded_before_the_end() {
    let (mut rig, daemon) = before_the_kernel();
    let receiver = rig.receiver("b", "udp", "[2001:db8:b::2]:7022");
    // The stream has full speed, so that the rings are never empty.
    let mut sender = rig.traffic("a", "udp-send [2001:db8:b::2]:7022 1000000 3 200");
    let before = rig.counter("tx");
    wait_for("a running stream", || (rig.counter("tx") > before + 1000).then_some(()));
    assert_eq!(rig.stop(daemon, "TERM"), Some(0), "{}", rig.log("node"));
    let redirected: u64 = ["eth1", "eth2"].iter().flat_map(|port| rig.redirected(port)).sum();
    assert_eq!(received(&rig.log("node")), redirected, "{}", rig.log("node"));
    assert!(rig.log("node").contains(": balanced"), "{}", rig.log("node"));
    assert_eq!(sender.wait().unwrap().code(), Some(0));
    receiver.wait_with_output().unwrap();
}

#[test]
#[ignore = "needs root"]
fn a_stream_goes_on_through_the_kernel_after_kill_9() {
    let (mut rig, daemon) = before_the_kernel();
    rig.check_balance();
    let receiver = rig.receiver("b", "udp", "[2001:db8:b::2]:7021");
    let mut sender = rig.stream("a", "[2001:db8:b::2]:7021", 1000);
    let before = rig.counter("tx");
    wait_for("a running stream", || (rig.counter("tx") > before + 500).then_some(()));
    assert_eq!(rig.stop(daemon, "KILL"), None);
    assert!(rig.is_kernels("eth1") && rig.is_kernels("eth2"), "at once");
    rig.inside("a", "ping -6 -c 3 -i 0.2 -w 20 2001:db8:b::2");
    end(&mut sender);
    let report = report(&receiver.wait_with_output().unwrap().stdout);
    // Lost are the packets in the rings at that moment, and those that arrive until the kernel has removed the process.
    assert!(number(&report, "lost") * 4 < number(&report, "sent"), "{report}");
    wait_for("end of the own veth", || (!rig.exists("srv6d0")).then_some(()));
}

/// A killed srv6d is a zombie until its parent has read its exit status.
#[test]
#[ignore = "needs root"]
fn what_a_zombie_has_left_behind_is_in_nobodys_way() {
    let mut rig = Rig::new(1);
    let mut zombie = Command::new(SRV6D).arg("--version").stdout(Stdio::null()).spawn().unwrap();
    let stat = format!("/proc/{}/stat", zombie.id());
    wait_for("zombie", || fs::read_to_string(&stat).unwrap().contains("(srv6d) Z").then_some(()));
    rig.inside("router", "ip link add srv6d0 type veth peer name srv6d0-x");
    rig.inside("router", &format!("ip link set srv6d0 alias 'srv6d pid {}'", zombie.id()));
    rig.ready(CONFIG);
    rig.wait_for_pings();
    zombie.wait().unwrap();
}

#[test]
#[ignore = "needs root"]
fn a_worker_that_panics_takes_the_process_down_and_the_kernel_takes_over() {
    let mut rig = Rig::new(2);
    rig.inside("router", "sysctl -qw net.ipv6.conf.all.forwarding=1");
    let config = rig::with_two_workers();
    let mut command = rig.daemon("node", &config);
    command.env("SRV6D_TEST_FAULTS", "1");
    let daemon = rig.spawn(command);
    rig.wait_until_ready();
    wait_for("packets through srv6d", || (rig.pings() && rig.counter("tx") > 0).then_some(()));
    rig.check_balance();
    must(&format!("kill -USR2 {}", rig.pid(daemon)));
    assert_eq!(rig.ended(daemon), Some(1), "{}", rig.log("node"));
    let log = rig.log("node");
    assert!(log.contains("panicked at") && log.contains("a worker has died"), "{log}");
    assert!(rig.is_kernels("eth1") && rig.is_kernels("eth2") && !rig.exists("srv6d0"));
    wait_for("ping through the kernel", || rig.pings().then_some(()));
}

#[test]
#[ignore = "needs root"]
fn ctrl_c_ends_it_as_sigterm_does() {
    let (mut rig, daemon) = before_the_kernel();
    rig.check_balance();
    assert_eq!(rig.stop(daemon, "INT"), Some(0), "{}", rig.log("node"));
    assert!(rig.is_kernels("eth1") && rig.is_kernels("eth2") && !rig.exists("srv6d0"));
    wait_for("ping through the kernel", || rig.pings().then_some(()));
}

#[test]
#[ignore = "needs root"]
fn without_its_own_interface_it_ends_and_says_so() {
    let (mut rig, daemon) = before_the_kernel();
    rig.check_balance();
    rig.inside("router", "ip link del srv6d0");
    assert_eq!(rig.ended(daemon), Some(1), "{}", rig.log("node"));
    assert!(rig.log("node").contains("srv6d's own interface srv6d0 was deleted"), "{}", rig.log("node"));
    assert!(rig.is_kernels("eth1") && rig.is_kernels("eth2"));
    wait_for("ping through the kernel", || rig.pings().then_some(()));
}

#[test]
#[ignore = "needs root"]
fn a_second_one_ends_at_once_and_disturbs_nothing() {
    let (mut rig, daemon) = before_the_kernel();
    let second = rig.start("node", CONFIG);
    assert_eq!(rig.ended(second), Some(1), "{}", rig.log("node"));
    assert!(rig.log("node").contains("srv6d is already running as pid"), "{}", rig.log("node"));
    rig.check_lives(daemon);
    assert!(rig.exists("srv6d0"));
    let before = rig.counter("tx");
    wait_for("ping through the first one", || (rig.pings() && rig.counter("tx") > before).then_some(()));
    rig.check_balance();
}
