//! Tests in which the real FRR announces routes to a running srv6d over FPM, and is restarted under traffic.
//!
//! ```text
//! a ── eth1  router: srv6d, zebra, staticd  eth2 ── b, and 2001:db8:bb::2 behind it
//! ```
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};

use serde_json::Value;
use support::bgp::fpm_is_missing;
use support::rig::{self, Rig, end, must, report, text, wait_for};

const DAEMONS: &str = "/usr/lib/frr";
/// The configuration has a SID of its own, which FRR does not know.
const OWN_SID: &str = r#"
[fpm]
stale_time = "3s"
[[sid]]
sid = "fcbb:bbbb:1::/48"
behavior = "uN"
"#;
const STATICS: &str = "\
ipv6 route 2001:db8:bb::/64 2001:db8:b::2
ipv6 route 2001:db8:ec::/64 2001:db8:a::2 eth1
ipv6 route 2001:db8:ec::/64 2001:db8:b::2 eth2
ipv6 route 2001:db8:dead::/48 blackhole
ipv6 route 2001:db8:dd::/64 2001:db8:b::2
ip route 10.9.0.0/16 10.0.2.2
";

/// The daemons zebra and staticd in the router's namespace.
struct Frr {
    directory: PathBuf,
    namespace: String,
    daemons: Vec<Child>,
}

impl Frr {
    fn new(rig: &Rig) -> Self {
        let directory = rig.directory.join("frr");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("zebra.conf"), "fpm address 127.0.0.1\n").unwrap();
        Self { directory, namespace: rig.ns("router"), daemons: Vec::new() }
    }

    fn start(&mut self, statics: &str) {
        fs::write(self.directory.join("staticd.conf"), statics).unwrap();
        let _ = fs::remove_file(self.directory.join("zserv.api"));
        // The daemons drop root privileges before they open files.
        must(&format!("chown -R frr:frr {}", self.directory.display()));
        self.daemon("zebra", &["-M", "dplane_fpm_nl"]);
        wait_for("zebra", || self.directory.join("zserv.api").exists().then_some(()));
        self.daemon("staticd", &[]);
    }

    fn daemon(&mut self, name: &str, more: &[&str]) {
        let file = |name: &str| self.directory.join(name);
        let log = fs::File::create(file(&format!("{name}.out"))).unwrap();
        let child = Command::new("ip")
            .args(["netns", "exec", &self.namespace, &format!("{DAEMONS}/{name}"), "-P", "0"])
            .arg("-f")
            .arg(file(&format!("{name}.conf")))
            .arg("-i")
            .arg(file(&format!("{name}.pid")))
            .arg("-z")
            .arg(file("zserv.api"))
            .arg("--vty_socket")
            .arg(&self.directory)
            .args(more)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.daemons.push(child);
    }

    /// Ends the daemons, zebra first: routes that a routing daemon withdraws while zebra runs are also withdrawn by
    /// zebra.
    fn stop(&mut self, signal: &str) {
        for mut child in self.daemons.drain(..) {
            must(&format!("kill -{signal} {}", child.id()));
            child.wait().unwrap();
        }
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn rows(rig: &Rig, topic: &str) -> Vec<Value> {
    rig.show(topic).as_array().unwrap().clone()
}

fn fpm(rig: &Rig) -> Value {
    rows(rig, "source").into_iter().find(|row| row["source"] == "fpm").unwrap()
}

/// Returns `type via port, via port` of a prefix.
fn route(rig: &Rig, prefix: &str) -> Option<String> {
    let row = rows(rig, "routes").into_iter().find(|row| row["prefix"] == prefix)?;
    let hop = |hop: &Value| format!("{} {}", hop["via"].as_str().unwrap_or("-"), hop["port"].as_str().unwrap());
    let mut hops: Vec<String> = row["next_hops"].as_array().unwrap().iter().map(hop).collect();
    hops.sort();
    Some(format!("{} {}", row["type"].as_str().or(row["kind"].as_str()).unwrap(), hops.join(", ")).trim().to_owned())
}

fn all_fresh(rig: &Rig, connection: u64) {
    wait_for("FRR to have said everything", || {
        let fpm = fpm(rig);
        let fresh = fpm["fpm"]["connections"] == connection && fpm["fpm"]["stale"] == 0 && fpm["state"] == "connected";
        (fresh && route(rig, "2001:db8:bb::/64").is_some()).then_some(())
    });
}

fn with_ipv4(rig: &Rig) {
    for (host, port, net) in [("a", "eth1", 1), ("b", "eth2", 2)] {
        rig.inside(host, &format!("ip addr add 10.0.{net}.2/24 dev wire"));
        rig.inside("router", &format!("ip addr add 10.0.{net}.1/24 dev {port}"));
    }
    rig.inside("b", "ip addr add 2001:db8:bb::2/64 dev lo nodad");
}

fn arrived(rig: &Rig) {
    for (prefix, expected) in [
        ("2001:db8:bb::/64", "unicast 2001:db8:b::2 eth2"),
        ("2001:db8:ec::/64", "unicast 2001:db8:a::2 eth1, 2001:db8:b::2 eth2"),
        ("2001:db8:dead::/48", "blackhole"),
        ("10.9.0.0/16", "unicast 10.0.2.2 eth2"),
    ] {
        wait_for(&format!("{prefix} to be {expected}"), || {
            (route(rig, prefix).as_deref() == Some(expected)).then_some(())
        });
    }
}

#[test]
#[ignore = "needs root: network namespaces, and FRR"]
fn the_real_frr_announces_and_is_restarted_under_traffic() {
    if fpm_is_missing() {
        return;
    }
    let mut rig = Rig::new(1);
    with_ipv4(&rig);
    let mut frr = Frr::new(&rig);
    rig.ready(&format!("{}{OWN_SID}", rig::CONFIG));
    assert_eq!(fpm(&rig)["state"], "waiting");
    frr.start(STATICS);
    all_fresh(&rig, 1);
    arrived(&rig);
    assert_eq!(fpm(&rig)["fpm"]["dialect"], "frr");
    assert_eq!(fpm(&rig)["fpm"]["malformed"], 0);
    wait_for("an answer for every route", || {
        let fpm = fpm(&rig)["fpm"].clone();
        (fpm["answers"].as_u64() >= fpm["routes"].as_u64() && fpm["waiting"] == 0).then_some(())
    });
    wait_for("a way to b", || rig.output("a", "ping -6 -c 1 -W 1 2001:db8:bb::2").status.success().then_some(()));

    // For a SID that zebra finds in the kernel it announces no flavors, so the SID stays with the kernel.
    rig.inside("router", "ip -6 route add fcbb:bbbb:e::/48 encap seg6local action End dev eth1");
    wait_for("a reason", || {
        let rows = rig.ask("node", "show routes --unfollowed --json").stdout;
        text(&rows).contains("follow the kernel with [kernel]").then_some(())
    });

    let receiver = rig.receiver("b", "udp", "[2001:db8:bb::2]:7031");
    let mut sender = rig.stream("a", "[2001:db8:bb::2]:7031", 250);
    frr.stop("KILL");
    wait_for("stale routes", || (fpm(&rig)["fpm"]["stale"].as_u64() > Some(4)).then_some(()));
    arrived(&rig);
    frr.start(STATICS);
    all_fresh(&rig, 2);
    // FRR is ended as a service manager does it, and one route is no longer configured.
    frr.stop("TERM");
    wait_for("the end of the connection", || (fpm(&rig)["state"] == "disconnected").then_some(()));
    frr.start(&STATICS.replace("ipv6 route 2001:db8:dd::/64 2001:db8:b::2\n", ""));
    wait_for("the sweep", || route(&rig, "2001:db8:dd::/64").is_none().then_some(()));
    all_fresh(&rig, 3);
    arrived(&rig);
    end(&mut sender);
    let report = report(&receiver.wait_with_output().unwrap().stdout);
    assert!(report["sent"].as_u64() > Some(100), "while FRR was restarted twice: {report}");
    assert_eq!(report["lost"], 0, "packets were lost while FRR was restarted: {report}");
    assert!(fpm(&rig)["fpm"]["swept"].as_u64() > Some(0));
    let sids: Vec<Value> = rows(&rig, "sids").iter().map(|row| row["sid"].clone()).collect();
    assert_eq!(sids, ["fcbb:bbbb:1::/48"], "the file's SID stays, and no other came");
    rig.check_balance();
}
