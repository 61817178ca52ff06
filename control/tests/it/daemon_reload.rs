//! Tests of reloads under traffic: nothing is lost, and a bad configuration changes nothing.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;
use std::process::Child;
use std::thread;

use support::rig::{CONFIG, Rig, end, number, report, text, wait_for};

/// Returns a configuration with a SID, a route, and a steered prefix of that number, so that the tables differ between
/// reloads.
fn changed(number: usize) -> String {
    format!(
        "{CONFIG}
[[block]]
prefix = \"fcbb::/32\"
[[sid]]
sid = \"fcbb:0:{number:x}::/48\"
behavior = \"uN\"
[[route]]
prefix = \"2001:db8:{number:x}::/48\"
via = \"2001:db8:b::2\"
[[steer]]
prefix = \"3fff:{number:x}::/32\"
segments = [\"fcbb:0:ff:fe06::\"]
via = \"2001:db8:b::2\"
"
    )
}

/// Number of reloads of a test.
const RELOADS: usize = 30;

/// Reloads good and bad configurations by turns, then ends the sender.
fn reload_while_running(rig: &Rig, sender: &mut Child) {
    for good in 0..RELOADS {
        fs::write(rig.file("node.toml"), changed(0x1001 + good)).unwrap();
        let taken = rig.ask("node", "reload");
        assert!(taken.status.success(), "{}", text(&taken.stderr));
        fs::write(rig.file("node.toml"), changed(0x2001).replace("behavior", "behaviour")).unwrap();
        let refused = rig.ask("node", "reload");
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains("node.toml:20"), "{}", text(&refused.stderr));
    }
    let sids = rig.show("sids").to_string();
    assert!(sids.contains(&format!("fcbb:0:{:x}::/48", 0x1000 + RELOADS)), "the last good one is in force: {sids}");
    end(sender);
}

#[test]
#[ignore = "needs root"]
fn other_requests_are_answered_while_a_large_file_is_read() {
    let rig = Rig::forwarding(1, CONFIG);
    // The file has a mistake at its end, so it takes time to read but changes nothing.
    let route =
        |n: usize| format!("[[route]]\nprefix = \"3fff:{:x}:{:x}::/48\"\ntype = \"blackhole\"\n", n >> 16, n & 0xffff);
    let routes: String = (0..60_000).map(route).collect();
    fs::write(rig.file("node.toml"), format!("{CONFIG}\n{routes}[[sid]]\nbehaviour = 1\n")).unwrap();
    let answered = thread::scope(|scope| {
        let reload = scope.spawn(|| rig.ask("node", "reload"));
        let mut answered = 0;
        while !reload.is_finished() {
            rig.show("neighbors");
            answered += 1;
        }
        assert_eq!(reload.join().unwrap().status.code(), Some(2));
        answered
    });
    // One request may be answered before the reload begins, and one after it has ended.
    assert!(answered > 4, "{answered} answers while the file was read");
    assert!(rig.pings());
}

#[test]
#[ignore = "needs root"]
fn each_rollback_goes_one_further_back_and_says_so() {
    let mut rig = Rig::new(1);
    rig.ready(&changed(1));
    for number in [2, 3] {
        fs::write(rig.file("node.toml"), changed(number)).unwrap();
        let taken = rig.ask("node", "reload");
        assert!(taken.status.success(), "{}", text(&taken.stderr));
    }
    let in_force = || {
        let sids = rig.show("sids").to_string();
        (1..=3).filter(|number| sids.contains(&format!("fcbb:0:{number:x}::/48"))).collect::<Vec<usize>>()
    };
    assert_eq!(in_force(), [3]);
    for earlier in [2, 1] {
        let back = rig.ask("node", "rollback");
        assert!(back.status.success(), "{}", text(&back.stderr));
        let held = rig.show("generation").get("held").and_then(serde_json::Value::as_u64).unwrap();
        let said = text(&back.stdout);
        assert!(said.contains(&format!("back at generation {held}; `srv6d rollback` goes one further")), "{said}");
        assert_eq!(in_force(), [earlier]);
    }
    let refused = rig.ask("node", "rollback");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("no generation before"), "{}", text(&refused.stderr));
    assert_eq!(in_force(), [1], "nothing has changed");
    assert!(rig.ask("node", "reload").status.success());
    assert_eq!(in_force(), [3]);
}

#[test]
#[ignore = "needs root"]
fn no_datagram_is_lost_duplicated_or_reordered() {
    let rig = Rig::forwarding(1, CONFIG);
    let receiver = rig.receiver("b", "udp", "[2001:db8:b::2]:7010");
    let mut sender = rig.stream("a", "[2001:db8:b::2]:7010", 2000);
    reload_while_running(&rig, &mut sender);
    let report = report(&receiver.wait_with_output().unwrap().stdout);
    assert!(number(&report, "sent") > 100, "{report}");
    assert_eq!(
        (number(&report, "lost"), number(&report, "duplicated"), number(&report, "reordered")),
        (0, 0, 0),
        "{report}"
    );
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_tcp_connection_needs_no_retransmission() {
    let rig = Rig::forwarding(1, CONFIG);
    let receiver = rig.receiver("b", "tcp", "[2001:db8:b::2]:7011");
    // With a window of one or two packets the transfer takes long, and no queue overflows because of it.
    rig.inside("b", "sysctl -qw net.ipv4.tcp_rmem='4096 8192 8192'");
    // A busy machine must not look like a loss: nothing is sent again only because an answer is late.
    rig.inside("a", "sysctl -qw net.ipv4.tcp_early_retrans=0");
    rig.inside("a", "ip -6 route replace default via 2001:db8:a::1 rto_min 5s");
    let mut sender = rig.traffic("a", "tcp-send [2001:db8:b::2]:7011 100000000000 7");
    wait_for("connection", || {
        (!rig.output("b", "ss -Htn state established sport = :7011").stdout.is_empty()).then_some(())
    });
    // The handshake has a timeout of its own.
    let retransmitted = || rig.inside("a", "nstat -asz TcpRetransSegs");
    let before = retransmitted();
    reload_while_running(&rig, &mut sender);
    let sent = report(&sender.wait_with_output().unwrap().stdout);
    let arrived = report(&receiver.wait_with_output().unwrap().stdout);
    assert_eq!(sent.get("sha256").unwrap(), arrived.get("sha256").unwrap());
    assert_eq!(retransmitted(), before);
    rig.check_balance();
}
