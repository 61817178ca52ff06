//! Reloads while traffic crosses the node: nothing is lost, and a bad configuration changes nothing.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;
use std::process::Child;

use support::rig::{CONFIG, Rig, end, report, text, wait_for};

/// Tables that differ from one reload to the next: a SID, a route, and a steered prefix of that number.
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

/// Reloads of a test.
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
fn no_datagram_is_lost_duplicated_or_reordered() {
    let rig = Rig::forwarding(1, CONFIG);
    let receiver = rig.receiver("b", "udp", "[2001:db8:b::2]:7010");
    let mut sender = rig.stream("a", "[2001:db8:b::2]:7010", 2000);
    reload_while_running(&rig, &mut sender);
    let report = report(&receiver.wait_with_output().unwrap().stdout);
    let number = |name: &str| report.get(name).and_then(serde_json::Value::as_u64).unwrap();
    assert!(number("sent") > 100, "{report}");
    assert_eq!((number("lost"), number("duplicated"), number("reordered")), (0, 0, 0), "{report}");
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_tcp_connection_needs_no_retransmission() {
    let rig = Rig::forwarding(1, CONFIG);
    let receiver = rig.receiver("b", "tcp", "[2001:db8:b::2]:7011");
    // A window of one packet or two: the transfer lasts, and no queue overflows by itself.
    rig.inside("b", "sysctl -qw net.ipv4.tcp_rmem='4096 8192 8192'");
    // A busy machine is no loss: nothing is sent again only because an answer is late.
    rig.inside("a", "sysctl -qw net.ipv4.tcp_early_retrans=0");
    rig.inside("a", "ip -6 route replace default via 2001:db8:a::1 rto_min 5s");
    let mut sender = rig.traffic("a", "tcp-send [2001:db8:b::2]:7011 100000000000 7");
    wait_for("connection", || {
        (!rig.output("b", "ss -Htn state established sport = :7011").stdout.is_empty()).then_some(())
    });
    // A handshake has a timeout of its own.
    let retransmitted = || rig.inside("a", "nstat -asz TcpRetransSegs");
    let before = retransmitted();
    reload_while_running(&rig, &mut sender);
    let sent = report(&sender.wait_with_output().unwrap().stdout);
    let arrived = report(&receiver.wait_with_output().unwrap().stdout);
    assert_eq!(sent.get("sha256").unwrap(), arrived.get("sha256").unwrap());
    assert_eq!(retransmitted(), before);
    rig.check_balance();
}
