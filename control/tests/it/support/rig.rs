//! A router between two hosts, each in its own network namespace.
//!
//! ```text
//! a  2001:db8:a::2 ── eth1  router (srv6d; the kernel does not forward)  eth2 ── 2001:db8:b::2  b
//! ```
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use super::counters;
pub use super::lab::{SRV6D, WINDOW, text};

const PATIENCE: Duration = Duration::from_mins(1);
const NODES: [&str; 3] = ["a", "router", "b"];
/// Interface index of a host's end of its link, which no port of the router has.
const WIRE: u32 = 100;

/// The router's configuration; addresses and connected routes come from its kernel.
pub const CONFIG: &str = r#"
[node]
source = "2001:db8:a::1"
[workers]
frames = 2048
ring = 512
[api]
metrics = "off"
[[port]]
name = "eth1"
role = "fabric"
[[port]]
name = "eth2"
role = "fabric"
"#;

/// Returns the configuration with a worker on each of two cores that the tests may use.
pub fn with_two_workers() -> String {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cores: Vec<usize> = (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap()).take(2).collect();
    CONFIG.replace("[workers]", &format!("[workers]\ncores = {cores:?}"))
}

pub fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < end, "no {what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub fn run(command: &str) -> Output {
    Command::new("sh").args(["-c", command]).output().unwrap()
}

pub fn must(command: &str) -> String {
    let output = run(command);
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    text(&output.stdout)
}

/// Returns the report that a traffic tool printed as its last line.
pub fn report(output: &[u8]) -> serde_json::Value {
    let said = text(output);
    serde_json::from_str(said.lines().last().unwrap_or_default()).unwrap_or_else(|_| panic!("no report: {said:?}"))
}

/// Returns a number of such a report, or of another object.
pub fn number(report: &serde_json::Value, name: &str) -> u64 {
    report.get(name).and_then(serde_json::Value::as_u64).unwrap()
}

/// Three namespaces, two links, and a directory for files, which are all removed at the end, even after a failure.
pub struct Rig {
    prefix: String,
    pub directory: PathBuf,
    daemons: Vec<Child>,
}

impl Rig {
    pub fn new(queues: u32) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("srv6d-n{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(&prefix);
        fs::create_dir_all(directory.join("run")).unwrap();
        let rig = Self { prefix, directory, daemons: Vec::new() };
        for node in NODES {
            must(&format!("ip netns add {}", rig.ns(node)));
            rig.inside(node, "ip link set lo up");
            rig.inside(node, "sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0");
        }
        rig.link("a", "eth1", queues);
        rig.link("b", "eth2", queues);
        rig
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

    /// Creates a link: `wire` on the host, `port` on the router.
    pub fn link(&self, host: &str, port: &str, queues: u32) {
        let shape = format!("numrxqueues {queues} numtxqueues {queues}");
        // Linux needs up to a second to see that a veth is up, but none if the index of its other end differs.
        must(&format!(
            "ip link add wire netns {} index {WIRE} {shape} type veth peer name {port} {shape} netns {}",
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

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn socket_of(&self, name: &str) -> PathBuf {
        self.directory.join("run").join(format!("{name}.sock"))
    }

    /// Writes the files of a daemon of that name, and returns the command that runs it.
    pub fn daemon(&self, name: &str, config: &str) -> Command {
        self.daemon_of(Path::new(SRV6D), name, config, &[])
    }

    /// Like [`Self::daemon`], with another copy of the program, and with a command in front of it.
    pub fn daemon_of(&self, program: &Path, name: &str, config: &str, wrapper: &[String]) -> Command {
        let (file, log) = (self.file(&format!("{name}.toml")), self.file(&format!("{name}.log")));
        fs::write(&file, config).unwrap();
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.ns("router")])
            .args(wrapper)
            .arg(program)
            .args(["run", "--config"])
            .arg(&file)
            .env("SRV6D_SOCKET", self.socket_of(name))
            .stdout(Stdio::null())
            .stderr(fs::File::create(log).unwrap());
        command
    }

    /// Starts a daemon, and returns its number.
    pub fn spawn(&mut self, mut command: Command) -> usize {
        self.daemons.push(command.spawn().unwrap());
        self.daemons.len() - 1
    }

    pub fn start(&mut self, name: &str, config: &str) -> usize {
        let command = self.daemon(name, config);
        self.spawn(command)
    }

    pub fn ask(&self, name: &str, question: &str) -> Output {
        run(&format!("{SRV6D} --socket {} {question}", self.socket_of(name).display()))
    }

    /// Puts another configuration of the daemon "node" in force. Returns what `srv6d reload` prints.
    pub fn reload(&self, config: &str) -> String {
        fs::write(self.file("node.toml"), config).unwrap();
        let taken = self.ask("node", "reload");
        assert!(taken.status.success(), "{}", text(&taken.stderr));
        text(&taken.stdout)
    }

    pub fn wait_until_ready(&mut self) {
        wait_for("answer of the daemon", || {
            let ended = self.daemons.last_mut().and_then(|child| child.try_wait().unwrap());
            assert!(ended.is_none(), "{ended:?}: {}", self.log("node"));
            self.ask("node", "show ports").status.success().then_some(())
        });
    }

    pub fn ready(&mut self, config: &str) -> usize {
        let daemon = self.start("node", config);
        self.wait_until_ready();
        daemon
    }

    /// Starts a rig whose router already forwards.
    pub fn forwarding(queues: u32, config: &str) -> Self {
        let mut rig = Self::new(queues);
        rig.ready(config);
        rig.wait_for_pings();
        rig
    }

    pub fn pid(&self, daemon: usize) -> u32 {
        self.daemons.get(daemon).unwrap().id()
    }

    pub fn pings(&self) -> bool {
        self.output("a", "ping -6 -c 2 -i 0.2 -W 1 2001:db8:b::2").status.success()
    }

    pub fn wait_for_pings(&self) {
        wait_for("ping through srv6d", || self.pings().then_some(()));
    }

    /// Starts a traffic tool of the program in a namespace.
    pub fn traffic(&self, node: &str, arguments: &str) -> Child {
        Command::new("ip")
            .args(["netns", "exec", &self.ns(node), "timeout", "120", SRV6D, "lab", "traffic"])
            .args(arguments.split_whitespace())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Starts a stream of numbered datagrams to `to` until [`end`], at most `rate` per second. None of them may get
    /// lost.
    pub fn stream(&self, node: &str, to: &str, rate: u32) -> Child {
        self.traffic(node, &format!("udp-send {to} {rate} 100 200 --window {WINDOW}"))
    }

    /// Starts a receiver for `tcp` or `udp`, and waits until it listens on the address.
    pub fn receiver(&self, node: &str, transport: &str, address: &str) -> Child {
        let receiver = self.traffic(node, &format!("{transport}-receive {address}"));
        let (kind, port) = (if transport == "tcp" { 't' } else { 'u' }, address.rsplit(':').next().unwrap());
        wait_for("listening receiver", || {
            let sockets = self.output(node, &format!("ss -Hln{kind} sport = :{port}")).stdout;
            (!sockets.is_empty()).then_some(())
        });
        receiver
    }

    /// Sends bytes over TCP from one namespace to another. Returns the hashes of both sides.
    pub fn tcp(&self, from: &str, to: &str, address: &str) -> (String, String) {
        let receiver = self.receiver(to, "tcp", address);
        let sender = self.traffic(from, &format!("tcp-send {address} 4000000 7"));
        let hash = |child: Child| {
            let report = report(&child.wait_with_output().unwrap().stdout);
            report.get("sha256").and_then(serde_json::Value::as_str).unwrap().to_owned()
        };
        (hash(sender), hash(receiver))
    }

    /// Starts a thousand echo requests per second from one host to the other.
    pub fn flow(&self, from: &str) -> Flow {
        let to = if from == "a" { "b" } else { "a" };
        let command = format!("ping -6 -q -n -i 0.001 2001:db8:{to}::2");
        let child = Command::new("ip")
            .args(["netns", "exec", &self.ns(from)])
            .args(command.split_whitespace())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Flow(child)
    }

    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.file(&format!("{name}.log"))).unwrap_or_default()
    }

    pub fn show(&self, topic: &str) -> serde_json::Value {
        let output = self.ask("node", &format!("show {topic} --json"));
        assert!(output.status.success(), "{topic}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns a number of `show counters`.
    pub fn counter(&self, name: &str) -> u64 {
        self.show("counters").get(name).and_then(serde_json::Value::as_u64).unwrap()
    }

    /// Returns a number of one port in `show ports`.
    pub fn port_counter(&self, port: &str, name: &str) -> u64 {
        let ports = self.show("ports");
        let row = ports.as_array().unwrap().iter().find(|row| row.get("name").unwrap() == port).unwrap();
        row.get(name).and_then(serde_json::Value::as_u64).unwrap()
    }

    /// Returns the number of packets dropped for a reason.
    pub fn drops(&self, reason: &str) -> u64 {
        counters::packets(&self.show("counters"), "drop", Some(reason))
    }

    /// Returns the number of packets answered for a reason.
    pub fn replies(&self, reason: &str) -> u64 {
        counters::packets(&self.show("counters"), "reply", Some(reason))
    }

    /// Checks that every received packet is accounted for.
    pub fn check_balance(&self) {
        wait_for("balance of the packet counters", || counters::add_up(&self.show("counters")).then_some(()));
    }

    /// Checks that the daemon has not ended.
    pub fn check_lives(&mut self, daemon: usize) {
        let ended = self.daemons.get_mut(daemon).unwrap().try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?}: {}", self.log("node"));
    }

    pub fn stop(&mut self, daemon: usize, signal: &str) -> Option<i32> {
        must(&format!("kill -{signal} {}", self.pid(daemon)));
        self.ended(daemon)
    }

    /// Waits for the end of a daemon. Returns its exit status, or `None` if a signal has ended it.
    pub fn ended(&mut self, daemon: usize) -> Option<i32> {
        let child = self.daemons.get_mut(daemon).unwrap();
        wait_for("end of the daemon", || child.try_wait().unwrap()).code()
    }

    /// Returns the packets that the XDP program of a port has redirected, by queue.
    pub fn redirected(&self, port: &str) -> Vec<u64> {
        let output = self.inside("router", &format!("ethtool -S {port}"));
        let lines = output.lines().filter_map(|line| line.trim().split_once(": "));
        let counts = lines.filter(|(name, _)| name.starts_with("rx_queue_") && name.ends_with("_xdp_redirect"));
        counts.map(|(_, count)| count.parse().unwrap()).collect()
    }

    /// Returns whether a port has no XDP program, so that it belongs to the kernel.
    pub fn is_kernels(&self, port: &str) -> bool {
        !self.inside("router", &format!("ip link show {port}")).contains("xdp")
    }

    pub fn exists(&self, device: &str) -> bool {
        self.output("router", &format!("ip link show {device}")).status.success()
    }
}

/// Ends a stream, which must not have ended by itself.
pub fn end(sender: &mut Child) {
    assert!(sender.try_wait().unwrap().is_none(), "the stream goes on");
    must(&format!("kill {}", sender.id()));
    assert_eq!(sender.wait().unwrap().code(), Some(0));
}

/// Packets that are sent until this value is dropped.
pub struct Flow(Child);

impl Drop for Flow {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for node in NODES {
            run(&format!("ip netns del {}", self.ns(node)));
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}
