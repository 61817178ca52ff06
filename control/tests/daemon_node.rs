//! The daemon on real AF_XDP sockets between two kernel hosts, in network namespaces of its own.
//!
//! ```text
//! a  2001:db8:a::2 ── eth1  router (srv6d; the kernel does not forward)  eth2 ── 2001:db8:b::2  b
//! ```
#![allow(clippy::unwrap_used, clippy::panic)] // a failed test may panic

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const SRV6D: &str = env!("CARGO_BIN_EXE_srv6d");
const PATIENCE: Duration = Duration::from_secs(15);
const CONFIG: &str = r#"
[node]
source = "2001:db8:a::1"
[workers]
frames = 2048
ring = 512
[api]
metrics = "off"
[[port]]
name = "eth1"
[[port]]
name = "eth2"
"#;

fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < end, "no {what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn run(command: &str) -> Output {
    Command::new("sh").args(["-c", command]).output().unwrap()
}

fn must(command: &str) {
    let output = run(command);
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The SHA-256 in what a traffic tool printed last.
fn hash(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output).into_owned();
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap();
    last.get("sha256").and_then(serde_json::Value::as_str).map_or_else(|| panic!("{text}"), str::to_owned)
}

/// Three namespaces, two links, and a place for files; all gone at the end, whatever happens.
struct Rig {
    prefix: String,
    directory: PathBuf,
    daemons: Vec<Child>,
}

impl Rig {
    fn new(queues: u32) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("srv6d-n{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(&prefix);
        fs::create_dir_all(&directory).unwrap();
        let rig = Self { prefix, directory, daemons: Vec::new() };
        for node in ["a", "router", "b"] {
            must(&format!("ip netns add {}", rig.ns(node)));
            rig.inside(node, "ip link set lo up");
            rig.inside(node, "sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0");
        }
        rig.link("a", "eth1", queues);
        rig.link("b", "eth2", queues);
        rig
    }

    fn ns(&self, node: &str) -> String {
        format!("{}-{node}", self.prefix)
    }

    fn output(&self, node: &str, command: &str) -> Output {
        run(&format!("ip netns exec {} {command}", self.ns(node)))
    }

    fn inside(&self, node: &str, command: &str) {
        must(&format!("ip netns exec {} {command}", self.ns(node)));
    }

    /// `wire` on the host, `port` on the router.
    fn link(&self, host: &str, port: &str, queues: u32) {
        let shape = format!("numrxqueues {queues} numtxqueues {queues}");
        must(&format!(
            "ip link add wire netns {} {shape} type veth peer name {port} {shape} netns {}",
            self.ns(host),
            self.ns("router")
        ));
        for (node, device, number) in [(host, "wire", 2), ("router", port, 1)] {
            self.inside(node, &format!("ethtool -K {device} tx off"));
            self.inside(node, &format!("ip addr add 2001:db8:{host}::{number}/64 dev {device} nodad"));
            self.inside(node, &format!("ip link set {device} up"));
        }
        self.inside(host, &format!("ip -6 route replace default via 2001:db8:{host}::1"));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn start(&mut self, name: &str, config: &str) -> usize {
        let (file, log) = (self.file(&format!("{name}.toml")), self.file(&format!("{name}.log")));
        fs::write(&file, config).unwrap();
        let child = Command::new("ip")
            .args(["netns", "exec", &self.ns("router"), SRV6D, "run", "--config"])
            .arg(&file)
            .env("SRV6D_SOCKET", self.file(&format!("{name}.sock")))
            .stdout(Stdio::null())
            .stderr(fs::File::create(log).unwrap())
            .spawn()
            .unwrap();
        self.daemons.push(child);
        self.daemons.len() - 1
    }

    fn ask(&self, name: &str, question: &str) -> Output {
        let socket = self.file(&format!("{name}.sock"));
        run(&format!("{SRV6D} --socket {} {question}", socket.display()))
    }

    fn ready(&mut self, config: &str) -> usize {
        let daemon = self.start("node", config);
        wait_for("answer of the daemon", || self.ask("node", "show ports").status.success().then_some(()));
        daemon
    }

    fn pings(&self) -> bool {
        self.output("a", "ping -6 -c 2 -i 0.2 -W 1 2001:db8:b::2").status.success()
    }

    /// Sends bytes over TCP from one namespace to another; the hashes of both sides.
    fn tcp(&self, from: &str, to: &str, address: &str) -> (String, String) {
        let sink = Command::new("ip")
            .args(["netns", "exec", &self.ns(to), "timeout", "20", SRV6D, "lab", "traffic", "tcp-receive", address])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let port = address.rsplit(':').next().unwrap();
        wait_for("listening receiver", || {
            let sockets = self.output(to, &format!("ss -Htln sport = :{port}")).stdout;
            (!sockets.is_empty()).then_some(())
        });
        let sender = self.output(from, &format!("timeout 20 {SRV6D} lab traffic tcp-send {address} 4000000 7"));
        let received = sink.wait_with_output().unwrap();
        (hash(&sender.stdout), hash(&received.stdout))
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.file(&format!("{name}.log"))).unwrap_or_default()
    }

    fn counters(&self) -> serde_json::Value {
        serde_json::from_slice(&self.ask("node", "show counters --json").stdout).unwrap()
    }

    /// Every received packet is accounted for.
    fn check_balance(&self) {
        let counters = self.counters();
        assert_eq!(counters.get("balanced"), Some(&serde_json::Value::Bool(true)), "{counters}");
    }

    fn stop(&mut self, daemon: usize, signal: &str) -> Option<i32> {
        must(&format!("kill -{signal} {}", self.daemons.get(daemon).unwrap().id()));
        self.ended(daemon)
    }

    /// Exit status of a daemon that ends; `None`: by a signal.
    fn ended(&mut self, daemon: usize) -> Option<i32> {
        let child = self.daemons.get_mut(daemon).unwrap();
        wait_for("end of the daemon", || child.try_wait().unwrap()).code()
    }

    /// Packets that the XDP program of a port has redirected, by queue.
    fn redirected(&self, port: &str) -> Vec<u64> {
        let output = self.output("router", &format!("ethtool -S {port}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().filter_map(|line| line.trim().split_once(": "));
        let counts = lines.filter(|(name, _)| name.starts_with("rx_queue_") && name.ends_with("_xdp_redirect"));
        counts.map(|(_, count)| count.parse().unwrap()).collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for node in ["a", "router", "b"] {
            run(&format!("ip netns del {}", self.ns(node)));
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
#[ignore = "needs root"]
fn forwards_and_leaves_the_rest_to_the_kernel() {
    let mut rig = Rig::new(1);
    assert!(!rig.pings(), "the kernel of the router does not forward");
    let daemon = rig.ready(CONFIG);
    wait_for("ping through srv6d", || rig.pings().then_some(()));
    let to_itself = rig.output("a", "ping -6 -c 2 -i 0.2 -W 1 2001:db8:a::1");
    assert!(to_itself.status.success(), "the router's own address is the kernel's");
    rig.check_balance();
    assert_eq!(rig.stop(daemon, "TERM"), Some(0), "{}", rig.log("node"));
    assert!(rig.log("node").contains("balanced"), "{}", rig.log("node"));
    assert!(!rig.output("router", "ip link show srv6d0").status.success(), "the own veth is gone");
    let port = rig.output("router", "ip link show eth1").stdout;
    assert!(!String::from_utf8_lossy(&port).contains("xdp"), "the port is the kernel's");
}

#[test]
#[ignore = "needs root"]
fn tcp_crosses_in_both_directions_and_reaches_the_router_itself() {
    let mut rig = Rig::new(1);
    rig.ready(CONFIG);
    wait_for("ping through srv6d", || rig.pings().then_some(()));
    for (from, to, address) in [
        ("a", "b", "[2001:db8:b::2]:7001"),
        ("b", "a", "[2001:db8:a::2]:7002"),
        ("a", "router", "[2001:db8:a::1]:7003"),
    ] {
        let (sent, received) = rig.tcp(from, to, address);
        assert_eq!(sent, received, "{from} to {address}");
    }
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_killed_daemon_leaves_nothing_in_the_way() {
    let mut rig = Rig::new(1);
    let daemon = rig.ready(CONFIG);
    wait_for("ping through srv6d", || rig.pings().then_some(()));
    rig.check_balance();
    rig.inside("router", "sysctl -qw net.ipv6.conf.all.forwarding=1");
    assert_eq!(rig.stop(daemon, "KILL"), None);
    wait_for("ping through the kernel", || rig.pings().then_some(()));
    let is_gone = || !rig.output("router", "ip link show srv6d0").status.success();
    wait_for("end of the own veth", || is_gone().then_some(()));
}

#[test]
#[ignore = "needs root"]
fn a_bad_configuration_changes_nothing() {
    let mut rig = Rig::new(1);
    rig.ready(CONFIG);
    wait_for("ping through srv6d", || rig.pings().then_some(()));
    fs::write(rig.file("node.toml"), format!("{CONFIG}\n[[sid]]\nsid = \"fcbb::/48\"\nbehaviour = \"uN\"\n")).unwrap();
    let refused = rig.ask("node", "reload");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("node.toml:16") && text.contains("behavior"), "line and fix: {text}");
    assert!(rig.pings(), "what was in force stays so");
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn another_xdp_program_is_named_and_left_alone() {
    let mut rig = Rig::new(1);
    rig.ready(CONFIG);
    wait_for("ping through srv6d", || rig.pings().then_some(()));
    let second = rig.start("second", &CONFIG.replace("[node]", "[host]\ninterface = \"other0\"\n[node]"));
    let code = rig.ended(second);
    let log = rig.log("second");
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("eth1: XDP program") && log.contains("already attached"), "{log}");
    assert!(rig.pings(), "the first one goes on");
    assert!(!rig.output("router", "ip link show other0").status.success(), "nothing of the second is left");
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_port_that_comes_back_is_taken_again() {
    let mut rig = Rig::new(1);
    rig.ready(CONFIG);
    wait_for("ping through srv6d", || rig.pings().then_some(()));
    rig.inside("b", "ip link del wire");
    wait_for("pending port", || {
        String::from_utf8_lossy(&rig.ask("node", "show ports").stdout).contains("pending").then_some(())
    });
    rig.link("b", "eth2", 1);
    wait_for("ping through the new port", || rig.pings().then_some(()));
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_neighbour_with_a_new_address_is_followed() {
    let mut rig = Rig::new(1);
    rig.ready(CONFIG);
    wait_for("ping through srv6d", || rig.pings().then_some(()));
    rig.inside("b", "ip link set wire address 02:00:00:00:0b:0b");
    // The kernel of the router learns it from a neighbour that speaks; srv6d from the kernel.
    rig.inside("b", "ping -6 -c 1 -W 5 2001:db8:b::1");
    wait_for("ping to the new address", || rig.pings().then_some(()));
    let neighbors = rig.ask("node", "show neighbors").stdout;
    assert!(String::from_utf8_lossy(&neighbors).contains("02:00:00:00:0b:0b"));
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn two_workers_share_two_queues() {
    let mut rig = Rig::new(2);
    let config = CONFIG.replace("frames = 2048", "frames = 2048\ncores = [0, 1]");
    rig.ready(&config);
    wait_for("ping through srv6d", || rig.pings().then_some(()));
    let ports = String::from_utf8_lossy(&rig.ask("node", "show ports --json").stdout).into_owned();
    assert!(ports.contains("\"queues\": 2"), "{ports}");
    let before = rig.counters().get("tx").and_then(serde_json::Value::as_u64).unwrap();
    for address in 10..26 {
        rig.inside("a", &format!("ip addr add 2001:db8:a::{address}/64 dev wire nodad"));
        rig.inside("a", &format!("ping -6 -c 1 -W 2 -I 2001:db8:a::{address} 2001:db8:b::2"));
    }
    let after = rig.counters().get("tx").and_then(serde_json::Value::as_u64).unwrap();
    assert!(after - before >= 32, "16 requests and 16 replies: {before} to {after}");
    let queues = rig.redirected("eth1");
    assert!(queues.len() == 2 && queues.iter().all(|&count| count > 0), "both queues carry flows: {queues:?}");
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn without_privileges_the_error_names_them() {
    let mut rig = Rig::new(1);
    fs::write(rig.file("bare.toml"), CONFIG).unwrap();
    must(&format!("chmod 777 {}", rig.directory.display()));
    let bare = rig.output(
        "router",
        &format!(
            "setpriv --reuid 65534 --clear-groups env SRV6D_SOCKET={} {SRV6D} run --config {}",
            rig.file("bare.sock").display(),
            rig.file("bare.toml").display()
        ),
    );
    let text = String::from_utf8_lossy(&bare.stderr).into_owned();
    assert_eq!(bare.status.code(), Some(1), "{text}");
    assert!(text.contains("CAP_NET_ADMIN"), "{text}");
    rig.daemons.clear();
}
