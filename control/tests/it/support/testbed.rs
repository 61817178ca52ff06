//! A switch with a `config_db.json`, and the far end of the wire of every port. Frames are sent and received byte by
//! byte.
//!
//! ```text
//! wire 0 ── eth1/Ethernet0  switch  Ethernet4/eth2 ── wire 1
//!                                   Ethernet8/eth3 ── wire 2 ...
//! ```
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::lab::{SRV6D, text};
use super::rig::{must, run, wait_for};
use super::wire::Wire;

/// Maximum number of frames in flight, which is less than the size of any ring.
const WINDOW: usize = 64;
const PATIENCE: Duration = Duration::from_mins(1);

pub struct Testbed {
    prefix: String,
    root: PathBuf,
    process: Option<Child>,
    wires: Vec<Wire>,
    /// MAC addresses of the switch's ports.
    ports: Vec<[u8; 6]>,
}

/// Returns the MAC address of the far end of a port.
pub fn far(port: usize) -> [u8; 6] {
    [2, 0, 0, 0, u8::try_from(port).unwrap() + 1, 2]
}

impl Testbed {
    /// Starts a switch with a number of ports, and waits until it is ready. `own` is the additional text of its
    /// `srv6d.toml`.
    pub fn new(ports: usize, config_db: &Value, own: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("srv6d-p{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(&prefix);
        fs::create_dir_all(root.join("etc/srv6d")).unwrap();
        fs::write(root.join("etc/srv6d/srv6d.toml"), own).unwrap();
        let mut bed = Self { prefix, root, process: None, wires: Vec::new(), ports: Vec::new() };
        bed.configure(config_db);
        bed.namespace("switch");
        for port in 0..ports {
            bed.link(port);
        }
        bed.start();
        let macs = (0..ports).map(|port| bed.mac(port)).collect();
        bed.ports = macs;
        // The far ends are opened last, because each moves this thread into its namespace.
        bed.wires = (0..ports).map(|port| Wire::open_in(&bed.ns(&format!("far{port}")), &[])).collect();
        bed
    }

    fn ns(&self, node: &str) -> String {
        format!("{}-{node}", self.prefix)
    }

    fn namespace(&self, node: &str) {
        must(&format!("ip netns add {}", self.ns(node)));
        must(&format!("ip netns exec {} ip link set lo up", self.ns(node)));
        let quiet = "net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0";
        must(&format!("ip netns exec {} sysctl -qw {quiet}", self.ns(node)));
    }

    fn link(&self, port: usize) {
        let host = format!("far{port}");
        self.namespace(&host);
        let mac = far(port).map(|byte| format!("{byte:02x}")).join(":");
        let (far, switch) = (self.ns(&host), self.ns("switch"));
        must(&format!(
            "ip link add wire netns {far} address {mac} mtu 9500 type veth peer name eth{} netns {switch} mtu 9500",
            port + 1
        ));
        for (namespace, device) in [(&far, "wire".to_owned()), (&switch, format!("eth{}", port + 1))] {
            must(&format!("ip netns exec {namespace} ethtool -K {device} tx off"));
        }
        // Only the test sends on the wire.
        must(&format!("ip netns exec {far} sysctl -qw net.ipv6.conf.wire.disable_ipv6=1"));
        must(&format!("ip netns exec {far} ip link set wire up"));
    }

    fn mac(&self, port: usize) -> [u8; 6] {
        let file = format!("/sys/class/net/Ethernet{}/address", port * 4);
        let shown = must(&format!("ip netns exec {} cat {file}", self.ns("switch")));
        let bytes: Vec<u8> = shown.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        bytes.try_into().unwrap()
    }

    pub fn configure(&self, config_db: &Value) {
        let file = self.root.join("etc/sonic/config_db.json");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, config_db.to_string()).unwrap();
    }

    fn start(&mut self) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.root.join("log")).unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.ns("switch"), SRV6D, "sonic", "run", "--root"]);
        command.arg(&self.root).env_remove("SRV6D_SOCKET").env_remove("CLAB_INTFS");
        self.process = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        self.wait_until_ready();
    }

    pub fn wait_until_ready(&self) {
        wait_for("ready switch", || {
            let ready = self.try_word("ready");
            ready.is_some().then_some(())
        });
    }

    /// Kills the process, and starts it again.
    pub fn restart(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        self.start();
    }

    fn try_word(&self, line: &str) -> Option<String> {
        let environment = format!("SRV6D_SONIC_ROOT={}", self.root.display());
        let output = run(&format!("ip netns exec {} env {environment} {SRV6D} sonic {line}", self.ns("switch")));
        output.status.success().then(|| text(&output.stdout))
    }

    /// Runs an operator's command in the switch, which must succeed.
    pub fn word(&self, line: &str) -> String {
        let log = || fs::read_to_string(self.root.join("log")).unwrap_or_default();
        self.try_word(line).unwrap_or_else(|| panic!("{line} failed\n{}", log()))
    }

    /// Returns packets and bytes of each SID, as shown to the operator.
    pub fn stats(&self) -> Vec<(String, u64, u64)> {
        let shown = self.word("show srv6 stats");
        let number = |text: &str| text.replace(',', "").parse().unwrap();
        let rows = shown.lines().skip(2).map(|line| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            (cells[0].to_owned(), number(cells[1]), number(cells[2]))
        });
        rows.collect()
    }

    /// Returns the received packets of a port and the dropped ones of them, from `show interfaces counters`.
    pub fn received_and_dropped(&self, port: usize) -> (u64, u64) {
        let shown = self.word("show interfaces counters");
        let name = format!("Ethernet{}", port * 4);
        let row: Vec<&str> =
            shown.lines().find(|line| line.trim().starts_with(&name)).unwrap().split_whitespace().collect();
        let header = shown.lines().find(|line| line.contains("RX_OK")).unwrap();
        let names: Vec<&str> = header.split_whitespace().collect();
        // A rate has two words in its row but one in the header, so its unit is removed before columns are counted.
        let cells: Vec<&str> = row.iter().copied().filter(|cell| !cell.ends_with("B/s")).collect();
        let at = |name: &str| names.iter().position(|known| *known == name).unwrap();
        let number = |name: &str| cells[at(name)].replace(',', "").parse::<u64>().unwrap();
        (number("RX_OK"), number("RX_DRP"))
    }

    /// Returns a packet with the Ethernet header of a frame to the switch.
    pub fn entering(&self, port: usize, packet: &[u8]) -> Vec<u8> {
        framed(self.ports[port], far(port), packet)
    }

    /// Returns a packet with the Ethernet header of a frame from the switch.
    pub fn leaving(&self, port: usize, packet: &[u8]) -> Vec<u8> {
        framed(far(port), self.ports[port], packet)
    }

    pub fn send(&mut self, port: usize, frame: &[u8]) {
        self.wires[port].send(frame);
    }

    /// Returns the next frame that was not sent by a kernel itself.
    pub fn receive(&mut self, port: usize) -> Option<Vec<u8>> {
        std::iter::from_fn(|| self.wires[port].poll()).find(|frame| !is_talk(frame))
    }

    /// Adds an address to the kernel at the far end of a port, so that it answers neighbour solicitations.
    pub fn give_address(&self, port: usize, address: &str) {
        let host = self.ns(&format!("far{port}"));
        must(&format!("ip netns exec {host} sysctl -qw net.ipv6.conf.wire.disable_ipv6=0"));
        must(&format!("ip netns exec {host} ip -6 addr add {address}/64 dev wire nodad"));
    }

    /// Sends frames into one port, and compares the frames that leave through another, in order.
    pub fn pass(&mut self, (into, out): (usize, usize), frames: &[(Vec<u8>, Vec<u8>)]) {
        for window in frames.chunks(WINDOW) {
            for (sent, _) in window {
                self.send(into, sent);
            }
            for (number, (_, expected)) in window.iter().enumerate() {
                let found = self.next(out, &format!("frame {number} of a window"));
                assert_eq!(hex(&found), hex(expected));
            }
        }
    }

    /// Returns the next frame, which must arrive in time.
    pub fn next(&mut self, port: usize, what: &str) -> Vec<u8> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(frame) = self.receive(port) {
                return frame;
            }
            assert!(
                Instant::now() < end,
                "no {what} on port {port} within {PATIENCE:?}\n{}",
                self.word("show srv6 stats")
            );
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Checks that no port sends anything.
    pub fn check_silence(&mut self) {
        for port in 0..self.wires.len() {
            let frame = self.receive(port);
            assert_eq!(frame.as_deref().map(hex), None, "on port {port}");
        }
    }

    /// Waits until the daemon's counters meet a condition.
    pub fn wait_for_counters(&self, what: &str, mut is_so: impl FnMut(&Value) -> bool) {
        wait_for(what, || {
            let socket = self.root.join("run/srv6d/srv6d.sock");
            let output = run(&format!("{SRV6D} --socket {} show counters --json", socket.display()));
            let counters: Value = serde_json::from_slice(&output.stdout).ok()?;
            is_so(&counters).then_some(())
        });
    }

    /// Shuts a port of the switch down, as an operator does.
    pub fn shutdown(&self, port: usize) {
        self.word(&format!("config interface shutdown Ethernet{}", port * 4));
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
        let far = (0..8).map(|port| format!("far{port}"));
        for node in far.chain(["switch".to_owned()]) {
            run(&format!("ip netns del {} 2>/dev/null", self.ns(&node)));
        }
        let _ = fs::remove_dir_all(&self.root);
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

fn framed(to: [u8; 6], from: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let kind: &[u8] = if packet[0] >> 4 == 4 { &[0x08, 0x00] } else { &[0x86, 0xdd] };
    [&to, &from, kind, packet].concat()
}

/// Returns whether the switch's kernel has sent a frame itself: IPv6 from or to a link-local address, and any IPv4
/// other than the test's own TCP.
fn is_talk(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some(&[0x86, 0xdd]) => {
            matches!(frame.get(20), Some(0 | 58)) && (frame[22..24] == [0xfe, 0x80] || frame[38] == 0xff)
        }
        Some(&[0x08, 0x00]) => frame.get(23) != Some(&6),
        _ => true,
    }
}
