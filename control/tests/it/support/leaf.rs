//! A switch as in a container, as far as namespaces can do it: its files below a directory, and links that appear as
//! `ethN`.
//!
//! ```text
//! a  2001:db8:a::2 ── eth1/Ethernet0  leaf  Ethernet4/eth2 ── 2001:db8:b::2  b (next uSID node, 3fff:b::1 behind it)
//!                                      Ethernet8/eth3 ── 2001:db8:c::2  h (tenant, Vrf-green)
//! ```
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::lab::{SRV6D, text};
use super::rig::{must, run, wait_for};

pub const CONFIG_DB: &str = include_str!("../switch/config_db.json");
pub const FRR: &str = include_str!("../switch/frr.conf");

/// Neighbours of the leaf: node, interface of the leaf, subnet.
const NODES: [(&str, &str, &str); 3] = [("a", "eth1", "a"), ("b", "eth2", "b"), ("h", "eth3", "c")];

/// Namespaces and a root directory, which are all removed at the end, even after a failure.
pub struct Leaf {
    prefix: String,
    pub root: PathBuf,
    process: Option<Child>,
}

impl Leaf {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("srv6d-s{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(&prefix);
        fs::create_dir_all(&root).unwrap();
        let leaf = Self { prefix, root, process: None };
        for node in ["leaf", "a", "b", "h"] {
            must(&format!("ip netns add {}", leaf.ns(node)));
            leaf.inside(node, "ip link set lo up");
            leaf.inside(node, "sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0");
        }
        leaf
    }

    /// Starts a leaf with its files and links, and waits until it is ready.
    pub fn running() -> Self {
        let mut leaf = Self::new();
        leaf.bring_files();
        leaf.bring_links();
        leaf.start(3);
        leaf.wait_until_ready();
        leaf
    }

    pub fn ns(&self, node: &str) -> String {
        format!("{}-{node}", self.prefix)
    }

    pub fn output(&self, node: &str, command: &str) -> Output {
        run(&format!("ip netns exec {} {command}", self.ns(node)))
    }

    /// Runs a command that must succeed.
    pub fn inside(&self, node: &str, command: &str) -> String {
        must(&format!("ip netns exec {} {command}", self.ns(node)))
    }

    pub fn write(&self, path: &str, text: &str) {
        let file = self.root.join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    pub fn bring_files(&self) {
        self.write("/etc/sonic/config_db.json", CONFIG_DB);
        self.write("/etc/sonic/frr/frr.conf", FRR);
    }

    pub fn bring_links(&self) {
        for (node, _, _) in NODES {
            self.bring_link(node);
        }
    }

    /// Creates a link as containerlab does: MTU 9500, and the final name from the start. Behind it is a neighbour that
    /// supports SRv6.
    pub fn bring_link(&self, node: &str) {
        self.bring_link_as(node, wire_of(node));
    }

    /// Creates a link whose end in the leaf has this name.
    pub fn bring_link_as(&self, node: &str, wire: &str) {
        let (_, _, subnet) = *NODES.iter().find(|(name, ..)| *name == node).unwrap();
        let leaf = self.ns("leaf");
        must(&format!(
            "ip link add wire netns {} mtu 9500 type veth peer name {wire} netns {leaf} mtu 9500",
            self.ns(node)
        ));
        self.inside(node, "ethtool -K wire tx off");
        self.inside(node, "ip link set wire up");
        self.inside(node, "sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.conf.all.seg6_enabled=1 net.ipv6.conf.wire.seg6_enabled=1");
        let ip = |what: &str| self.inside(node, &format!("ip -6 {what}"));
        ip(&format!("addr add 2001:db8:{subnet}::2/64 dev wire nodad"));
        ip(&format!("route add default via 2001:db8:{subnet}::1"));
        match node {
            "a" => {
                ip("route add fcbb:bbbb:a:d6::/64 encap seg6local action End.DT6 table 255 dev wire");
                let steer = "mode encap segs fcbb:bbbb:1:d046:: dev wire src 2001:db8:a::2";
                ip(&format!("route add 2001:db8:c::/64 encap seg6 {steer}"));
                self.inside(node, "ip addr add 192.0.2.2/30 dev wire");
                self.inside(
                    node,
                    &format!("ip route add 198.51.100.0/24 encap seg6 {}", steer.replace(" src 2001:db8:a::2", "")),
                );
            }
            "b" => {
                ip("addr replace 3fff:b::1/128 dev lo");
                ip("route add fcbb:bbbb:2:d6::/64 encap seg6local action End.DT6 table 255 dev wire");
            }
            _ => drop(self.inside(node, "ip addr add 198.51.100.2/24 dev wire")),
        }
    }

    /// Starts the process of the container.
    pub fn start(&mut self, interfaces: usize) {
        self.start_and_wait(interfaces, 15);
    }

    /// Starts the process of the container, and gives the interfaces `seconds` to appear.
    pub fn start_and_wait(&mut self, interfaces: usize, seconds: u32) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.root.join("log")).unwrap();
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            &self.ns("leaf"),
            SRV6D,
            "sonic",
            "run",
            "--wait",
            &seconds.to_string(),
            "--root",
        ]);
        command.arg(&self.root).env("CLAB_INTFS", interfaces.to_string()).env_remove("SRV6D_SOCKET");
        self.process = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    pub fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    pub fn is_ready(&self) -> bool {
        self.srv6d("sonic ready --root ROOT").status.success()
    }

    pub fn wait_until_ready(&mut self) {
        wait_for("ready switch", || {
            let ended = self.process.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", self.log());
            self.is_ready().then_some(())
        });
    }

    /// Runs the program in the leaf's namespace with the socket of the leaf's daemon.
    pub fn srv6d(&self, arguments: &str) -> Output {
        let root = self.root.display().to_string();
        let socket = format!("{root}/run/srv6d/srv6d.sock");
        self.output("leaf", &format!("{SRV6D} --socket {socket} {}", arguments.replace("ROOT", &root)))
    }

    pub fn show(&self, topic: &str) -> serde_json::Value {
        let output = self.srv6d(&format!("show {topic} --json"));
        assert!(output.status.success(), "{topic}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the number of packets that one SID has processed.
    pub fn sid_packets(&self, sid: &str) -> u64 {
        let rows = self.show("sids");
        let row = rows.as_array().unwrap().iter().find(|row| row.get("sid").unwrap() == sid).unwrap();
        row.get("packets").and_then(serde_json::Value::as_u64).unwrap()
    }

    /// Returns the state of a port in `show ports`.
    pub fn port_state(&self, port: &str) -> Option<String> {
        let rows = self.show("ports");
        let row = rows.as_array().unwrap().iter().find(|row| row.get("name").unwrap() == port)?;
        Some(row.get("state")?.as_str()?.to_owned())
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.root.join("log")).unwrap_or_default()
    }

    /// Makes host a send to b's prefix through these segments.
    pub fn steer_a(&self, segments: &str) {
        let encap = format!("encap seg6 mode encap segs {segments} dev wire src 2001:db8:a::2");
        self.inside("a", &format!("ip -6 route replace 3fff:b::/64 {encap}"));
    }

    pub fn pings(&self, from: &str, to: &str) -> bool {
        self.output(from, &format!("ping -c 2 -i 0.2 -W 1 {to}")).status.success()
    }

    /// Waits until an echo request is answered.
    pub fn wait_for_ping(&self, from: &str, to: &str) {
        wait_for(&format!("answer from {to} to {from}\n{}", self.log()), || self.pings(from, to).then_some(()));
    }

    pub fn reload(&self) -> Output {
        self.srv6d("reload")
    }

    /// Ends the process with a signal. Returns its exit status, if it has one.
    pub fn end(&mut self, signal: &str) -> Option<i32> {
        must(&format!("kill -{signal} {}", self.pid()));
        let mut process = self.process.take().unwrap();
        wait_for("end of the process", || process.try_wait().unwrap()).code()
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
        for node in ["leaf", "a", "b", "h"] {
            run(&format!("ip netns del {}", self.ns(node)));
        }
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Returns the name that the leaf's end of a link has in `config_db.json`.
pub fn wire_of(node: &str) -> &'static str {
    NODES.iter().find(|(name, ..)| *name == node).unwrap().1
}
