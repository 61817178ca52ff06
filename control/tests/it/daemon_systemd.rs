//! Tests of the daemon's messages to systemd, and of the cleanup after an unclean end.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use support::rig::{CONFIG, Rig, must, run, wait_for};

/// The socket of `$NOTIFY_SOCKET`.
struct Manager(UnixDatagram);

impl Manager {
    fn listen(rig: &Rig) -> Self {
        let socket = UnixDatagram::bind(rig.file("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        Self(socket)
    }

    /// Returns the next message, if it is there or comes at once.
    fn said(&self) -> Option<String> {
        let mut buffer = [0; 4096];
        let length = self.0.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(buffer.get(..length)?).into_owned())
    }

    /// Skips all messages so far.
    fn forget(&self) {
        while self.said().is_some() {}
    }

    /// Waits for the next message that contains these words.
    fn hears(&self, words: &str) -> String {
        wait_for(words, || self.said().filter(|message| message.contains(words)))
    }
}

#[test]
#[ignore = "needs root"]
fn it_says_when_it_is_ready_what_it_does_and_when_it_stops() {
    let mut rig = Rig::new(1);
    let manager = Manager::listen(&rig);
    let mut command = rig.daemon("node", CONFIG);
    command.env("NOTIFY_SOCKET", rig.file("notify"));
    let daemon = rig.spawn(command);
    let ready = manager.hears("READY=1");
    assert!(ready.contains("STATUS=generation 1, 2 ports attached (0 pending)"), "{ready}");
    rig.wait_for_pings();
    rig.inside("b", "ip link del wire");
    let status = manager.hears("1 ports attached (1 pending)");
    assert!(status.starts_with("STATUS=generation "), "{status}");
    rig.check_balance();
    must(&format!("kill -TERM {}", rig.pid(daemon)));
    manager.hears("STOPPING=1");
    assert_eq!(rig.ended(daemon), Some(0), "{}", rig.log("node"));
}

#[test]
#[ignore = "needs root"]
fn the_control_loop_itself_says_that_it_is_well_and_a_log_line_says_when_it_hangs() {
    let mut rig = Rig::new(1);
    let manager = Manager::listen(&rig);
    let mut command = rig.daemon("node", CONFIG);
    command
        .env("NOTIFY_SOCKET", rig.file("notify"))
        .env("WATCHDOG_USEC", "2000000")
        .env("SRV6D_TEST_FAULTS", "hang=12");
    let daemon = rig.spawn(command);
    manager.hears("READY=1");
    manager.hears("WATCHDOG=1");
    rig.wait_for_pings();

    must(&format!("kill -USR2 {}", rig.pid(daemon)));
    wait_for("a line about it", || rig.log("node").contains("the control loop hangs for").then_some(()));
    manager.forget();
    assert!(rig.pings(), "packets go on");
    assert!(!rig.log("node").contains("is back"), "it hangs still");
    assert_eq!(manager.said(), None, "a loop that hangs says nothing to systemd");
    wait_for("the end of it", || rig.log("node").contains("the control loop is back after").then_some(()));
    manager.hears("WATCHDOG=1");
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn sighup_reads_the_configuration_again_and_a_bad_one_is_logged() {
    let mut rig = Rig::new(1);
    let daemon = rig.ready(CONFIG);
    let block = "\n[[block]]\nprefix = \"fcbb::/32\"\n[[sid]]\nsid = \"fcbb:0:1000::/48\"\nbehavior = \"uN\"\n";
    fs::write(rig.file("node.toml"), format!("{CONFIG}{block}")).unwrap();
    must(&format!("kill -HUP {}", rig.pid(daemon)));
    let has_sid = || rig.show("sids").to_string().contains("fcbb:0:1000::/48");
    wait_for("the new SID", || has_sid().then_some(()));

    fs::write(rig.file("node.toml"), format!("{CONFIG}{block}").replace("\"uN\"", "\"uX\"")).unwrap();
    must(&format!("kill -HUP {}", rig.pid(daemon)));
    wait_for("refusal in the log", || rig.log("node").contains("reload refused, the old").then_some(()));
    assert!(rig.log("node").contains("node.toml:20"), "{}", rig.log("node"));
    assert!(has_sid(), "the old one stays");
    rig.check_balance();
}

/// Tests the command of `ExecStopPost=` after the daemon and its guard were killed.
#[test]
#[ignore = "needs root"]
fn cleanup_removes_what_a_killed_daemon_and_its_guard_left() {
    let mut rig = Rig::new(1);
    let daemon = rig.ready(CONFIG);
    let cleanup = format!("{} cleanup --config {}", support::rig::SRV6D, rig.file("node.toml").display());
    assert!(!rig.output("router", &cleanup).status.success(), "a daemon that runs keeps its interface");
    assert!(rig.exists("srv6d0"));

    let guards = run(&format!("pgrep -P {} -x srv6-guard", rig.pid(daemon))).stdout;
    let guards = String::from_utf8_lossy(&guards);
    let guard = guards.split_whitespace().collect::<Vec<_>>().join(" ");
    // The guard is stopped first; otherwise it would clean up between the end of its daemon and its own.
    must(&format!("kill -STOP {guard} && kill -9 {} {guard}", rig.pid(daemon)));
    assert_eq!(rig.ended(daemon), None);
    assert!(rig.exists("srv6d0"), "nobody was left to remove it");
    for _ in 0..2 {
        rig.inside("router", &cleanup);
        assert!(!rig.exists("srv6d0"));
    }

    rig.ready(CONFIG);
    wait_for("ping through the next daemon", || rig.pings().then_some(()));
    rig.check_balance();
}
