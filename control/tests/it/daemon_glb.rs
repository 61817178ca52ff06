//! Tests of heartbeats between daemons: a leaf that chooses by them, and two spines that send them.
//!
//! ```text
//! host ── eth0  leaf  eth1 ── eth0  spine0  eth1 ── eth0  far
//!               leaf  eth2 ── eth0  spine1  eth1 ── eth1  far
//! ```
//!
//! Both spines have the destination, and say how busy their links to `far` are.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};

use crate::support;

use serde_json::Value;
use srv6d_heartbeat::{Entry, Heartbeat, Key, Role};
use srv6d_netns::Netns;
use support::rig::{SRV6D, must, run, text, wait_for};

const LEAF: &str = "10.0.0.1";
const FAR: &str = "10.0.0.2";
const SPINES: [&str; 2] = ["10.0.0.11", "10.0.0.12"];
const PORT: u16 = 47149;
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x114);
const SECRET: &str = "a secret of this test";
const DESTINATION: &str = "2001:db8:99::1";

const COMMON: &str =
    "[workers]\nframes = 2048\nring = 512\n[api]\nmetrics = \"off\"\n[node]\nsource = \"2001:db8:a::1\"\n";

/// The namespaces, links, files and daemons, which are all removed at the end, even after a failure.
struct Fabric {
    nodes: Vec<(&'static str, Netns)>,
    directory: PathBuf,
    daemons: Vec<(&'static str, Child)>,
}

impl Fabric {
    fn new() -> Self {
        let nodes = ["host", "leaf", "spine0", "spine1", "far"].map(|name| (name, Netns::unique(name).unwrap()));
        let directory = std::env::temp_dir().join(&*nodes[0].1);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("key"), format!("{SECRET}\n")).unwrap();
        let fabric = Self { nodes: nodes.into(), directory, daemons: Vec::new() };
        for (node, _) in &fabric.nodes {
            fabric.inside(node, "ip link set lo up");
            fabric.inside(node, "sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0");
        }
        fabric.link("a", ("leaf", "eth0"), ("host", "eth0"));
        fabric.link("1", ("leaf", "eth1"), ("spine0", "eth0"));
        fabric.link("2", ("leaf", "eth2"), ("spine1", "eth0"));
        fabric.link("f0", ("spine0", "eth1"), ("far", "eth0"));
        fabric.link("f1", ("spine1", "eth1"), ("far", "eth1"));
        fabric.inside("host", "ip -6 route add default via 2001:db8:a::1");
        for (spine, net) in [("spine0", 1), ("spine1", 2)] {
            fabric.inside(spine, &format!("ip -6 route add default via 2001:db8:{net}::1"));
            fabric.inside(spine, &format!("ip addr add {DESTINATION}/128 dev lo"));
        }
        fabric
    }

    fn ns(&self, node: &str) -> &str {
        &self.nodes.iter().find(|(name, _)| *name == node).unwrap().1
    }

    fn inside(&self, node: &str, command: &str) -> String {
        must(&format!("ip netns exec {} {command}", self.ns(node)))
    }

    /// Makes a link: the first end has address 1 of the net, the second one address 2.
    fn link(&self, net: &str, first: (&str, &str), second: (&str, &str)) {
        // Linux needs up to a second to see that a veth is up, but none if the index of its other end differs.
        let index = 100 + u32::from(net.bytes().last().unwrap());
        let (one, other) = (self.ns(first.0), self.ns(second.0));
        must(&format!(
            "ip link add {} netns {other} index {index} type veth peer name {} netns {one}",
            second.1, first.1
        ));
        for ((node, device), number) in [(first, 1), (second, 2)] {
            self.inside(node, &format!("ethtool -K {device} tx off"));
            self.inside(node, &format!("ip addr add 2001:db8:{net}::{number}/64 dev {device} nodad"));
            self.inside(node, &format!("ip link set {device} up"));
        }
    }

    fn write(&self, node: &str, config: &str) {
        fs::write(self.directory.join(format!("{node}.toml")), config).unwrap();
    }

    fn start(&mut self, node: &'static str, config: &str) {
        self.write(node, config);
        let file = |end: &str| self.directory.join(format!("{node}.{end}"));
        let mut command = srv6d_netns::exec(self.ns(node), SRV6D);
        command.args(["run", "--config"]).arg(file("toml")).env("SRV6D_SOCKET", file("sock"));
        command.stdout(Stdio::null()).stderr(fs::File::create(file("log")).unwrap());
        self.daemons.push((node, command.spawn().unwrap()));
        wait_for("answer of the daemon", || {
            let ended = self.daemons.last_mut().and_then(|(_, child)| child.try_wait().unwrap());
            assert!(ended.is_none(), "{ended:?}: {}", self.log(node));
            self.ask(node, "show ports").status.success().then_some(())
        });
    }

    /// Kills a daemon without letting it say good-bye.
    fn kill(&mut self, node: &str) {
        let at = self.daemons.iter().position(|(name, _)| *name == node).unwrap();
        let (_, mut daemon) = self.daemons.swap_remove(at);
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    fn log(&self, node: &str) -> String {
        fs::read_to_string(self.directory.join(format!("{node}.log"))).unwrap_or_default()
    }

    fn ask(&self, node: &str, question: &str) -> Output {
        let socket = self.directory.join(format!("{node}.sock"));
        run(&format!("{SRV6D} --socket {} {question}", socket.display()))
    }

    fn show(&self, node: &str, topic: &str) -> Value {
        let output = self.ask(node, &format!("show {topic} --json"));
        assert!(output.status.success(), "{topic}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn reload(&self, node: &str, config: &str) {
        self.write(node, config);
        let reloaded = self.ask(node, "reload");
        assert!(reloaded.status.success(), "{}", text(&reloaded.stderr));
    }

    /// Returns a value of the leaf's row of a spine in `show glb`.
    fn peer(&self, spine: &str, key: &str) -> Value {
        let view = self.show("leaf", "glb");
        let rows = view["peers"].as_array().unwrap();
        rows.iter().find(|row| row["node"] == spine).unwrap()[key].clone()
    }

    fn wait_until(&self, spine: &str, state: &str) {
        wait_for(&format!("{spine} that is {state}"), || (self.peer(spine, "state") == state).then_some(()));
    }

    /// Returns own, far and used band of the two next hops at the leaf.
    fn bands(&self) -> Vec<[Option<u64>; 3]> {
        let rows = self.show("leaf", "balance");
        let bands = |row: &Value| ["band", "far_band", "used_band"].map(|key| row[key].as_u64());
        rows.as_array().unwrap().iter().map(bands).collect()
    }

    /// Sends echo requests of the host that are flowlets of their own. Returns how many of them began on each next hop.
    fn flowlets(&self, count: u64) -> Vec<u64> {
        let flowlets = || {
            let rows = self.show("leaf", "balance");
            rows.as_array().unwrap().iter().map(|row| row["flowlets"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        let before = flowlets();
        for source in 0..8 {
            // Each address is another flow.
            let ping = format!("ping -6 -q -c {} -i 0.01 -W 1 -I 2001:db8:a::1{source} {DESTINATION}", count / 8);
            assert!(self.inside("host", &ping).contains(" 0% packet loss"));
        }
        flowlets().iter().zip(before).map(|(after, before)| after - before).collect()
    }

    /// Runs all daemons, until the leaf has heard both spines and knows both next hops.
    fn run_all(&mut self) {
        for source in 0..8 {
            self.inside("host", &format!("ip addr add 2001:db8:a::1{source}/64 dev eth0 nodad"));
        }
        self.start("spine0", &self.spine(0, "100Mbit"));
        self.start("spine1", &self.spine(1, "100Mbit"));
        self.start("leaf", &self.leaf());
        for spine in SPINES {
            self.wait_until(spine, "fresh");
        }
        let host = self.ns("host").to_owned();
        wait_for("both next hops", || {
            for source in 0..8 {
                run(&format!("ip netns exec {host} ping -6 -q -c 1 -W 1 -I 2001:db8:a::1{source} {DESTINATION}"));
            }
            let neighbors = self.show("leaf", "neighbors");
            let is_up = |via: &str| {
                neighbors.as_array().unwrap().iter().any(|row| row["address"] == via && row["state"] == "up")
            };
            (is_up("2001:db8:1::2") && is_up("2001:db8:2::2")).then_some(())
        });
    }

    fn glb(&self, role: &str, node: &str) -> String {
        let key = self.directory.join("key");
        // A machine that is busy with other tests may stop a thread for a while.
        let period = "period = \"500ms\"";
        format!("[glb]\nrole = \"{role}\"\nnode_id = \"{node}\"\n{period}\nkey = \"{}\"\n", key.display())
    }

    fn leaf(&self) -> String {
        let glb = self.glb("load-balancer-only", LEAF);
        let ports = port("eth0", None, "100Mbit")
            + &port("eth1", Some(SPINES[0]), "100Mbit")
            + &port("eth2", Some(SPINES[1]), "100Mbit");
        format!(
            "{COMMON}{glb}{ports}[[balance]]\nname = \"far\"\nmode = \"global\"\n[[route]]\nprefix = \"2001:db8:99::/48\"\n\
             nexthops = [{{ via = \"2001:db8:1::2\", port = \"eth1\" }}, {{ via = \"2001:db8:2::2\", port = \"eth2\" }}]\n\
             balance = \"far\"\nvia_nodes = [\"{FAR}\"]\n"
        )
    }

    /// Returns the configuration of a spine whose link to `far` has this speed.
    fn spine(&self, number: usize, speed: &str) -> String {
        let glb = self.glb("helper-only", SPINES[number]);
        format!("{COMMON}{glb}{}{}", port("eth0", Some(LEAF), "100Mbit"), port("eth1", Some(FAR), speed))
    }

    /// Opens a UDP socket on a device of a node.
    fn socket(&self, node: &str, device: &str, port: u16) -> (UdpSocket, u32) {
        let device = device.to_owned();
        srv6d_netns::enter(self.ns(node), move || {
            let index = nix::net::if_::if_nametoindex(device.as_str()).unwrap();
            let socket = UdpSocket::bind(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0)).unwrap();
            socket.join_multicast_v6(&GROUP, index).unwrap();
            socket.set_nonblocking(true).unwrap();
            Ok::<_, srv6d_netns::Error>((socket, index))
        })
        .unwrap()
    }

    /// Sends a datagram from a device to the group.
    fn send(&self, node: &str, device: &str, hop_limit: i32, bytes: &[u8]) {
        let (socket, index) = self.socket(node, device, 0);
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::Ipv6MulticastHops, &hop_limit).unwrap();
        socket.send_to(bytes, SocketAddrV6::new(GROUP, PORT, 0, index)).unwrap();
    }

    fn rejected(&self, reason: &str) -> u64 {
        self.show("leaf", "glb")["rejected"][reason].as_u64().unwrap()
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        for (node, daemon) in &mut self.daemons {
            if std::thread::panicking() {
                let log = self.directory.join(format!("{node}.log"));
                eprintln!("{node}:\n{}", fs::read_to_string(log).unwrap_or_default());
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn port(name: &str, neighbor: Option<&str>, speed: &str) -> String {
    let neighbor = neighbor.map(|node| format!("neighbor_id = \"{node}\"\n")).unwrap_or_default();
    format!("[[port]]\nname = \"{name}\"\nrole = \"fabric\"\nspeed = \"{speed}\"\n{neighbor}")
}

#[test]
#[ignore = "needs root"]
fn new_flowlets_avoid_a_degraded_link_behind_a_spine() {
    let mut fabric = Fabric::new();
    fabric.run_all();
    assert_eq!(fabric.bands(), [[Some(7); 3]; 2]);
    assert!(fabric.flowlets(80).iter().all(|flowlets| *flowlets > 0), "both are equally good");

    fabric.reload("spine0", &fabric.spine(0, "25Mbit"));
    wait_for("a worse far band", || (fabric.bands()[0][1] == Some(2)).then_some(()));
    assert_eq!(fabric.bands(), [[Some(7), Some(2), Some(2)], [Some(7); 3]]);
    assert_eq!(fabric.flowlets(80), [0, 80], "every flowlet takes the other spine");
    let shown = text(&fabric.ask("leaf", "show balance").stdout);
    assert!(shown.contains("7/2/2") && shown.contains("7/7/7"), "{shown}");
    let shown = text(&fabric.ask("leaf", "show glb").stdout);
    assert!(shown.contains("25 Mbit") && shown.contains("fresh"), "{shown}");
    assert!(!shown.contains(SECRET) && !fabric.log("leaf").contains(SECRET));

    fabric.reload("spine0", &fabric.spine(0, "100Mbit"));
    wait_for("a good far band", || (fabric.bands()[0][1] == Some(7)).then_some(()));
    assert!(fabric.flowlets(80).iter().all(|flowlets| *flowlets > 0), "the link is good again");
}

#[test]
#[ignore = "needs root"]
fn silence_takes_no_path_away_and_a_restart_is_believed() {
    let mut fabric = Fabric::new();
    fabric.run_all();
    fabric.reload("spine0", &fabric.spine(0, "25Mbit"));
    wait_for("a worse far band", || (fabric.bands()[0][1] == Some(2)).then_some(()));
    fabric.kill("spine0");
    fabric.wait_until(SPINES[0], "suspect");
    assert_eq!(fabric.bands(), [[Some(7), None, Some(7)], [Some(7); 3]], "its own port decides");
    assert!(fabric.flowlets(80).iter().all(|flowlets| *flowlets > 0), "the path stays");
    let log = fabric.log("leaf");
    let lines = log.lines().filter(|line| line.contains("10.0.0.11 is silent"));
    assert_eq!(lines.count(), 1, "{log}");

    fabric.start("spine0", &fabric.spine(0, "25Mbit"));
    fabric.wait_until(SPINES[0], "fresh");
    assert_eq!(fabric.peer(SPINES[0], "restarts"), 1);
    wait_for("a worse far band", || (fabric.bands()[0][1] == Some(2)).then_some(()));

    // A port that is made anew has another index, and heartbeats arrive there, too.
    fabric.inside("spine1", "ip link del eth0");
    fabric.wait_until(SPINES[1], "suspect");
    fabric.link("2", ("leaf", "eth2"), ("spine1", "eth0"));
    fabric.wait_until(SPINES[1], "fresh");
    wait_for("the daemons", || fabric.ask("spine1", "show glb").status.success().then_some(()));
}

fn heartbeat(node: &str, sequence: u32, boot: u16, capacity: u32) -> Heartbeat {
    let number = |node: &str| node.parse::<std::net::Ipv4Addr>().unwrap().to_bits();
    let (neighbor, ifindex) = (number(FAR), 1);
    let entry = Entry { neighbor, band: 7, is_up: true, is_valid: true, load: 0, queue: 0, ifindex, capacity };
    Heartbeat {
        is_periodic: true,
        is_change: false,
        is_draining: false,
        role: Role::Helper,
        node: number(node),
        sequence,
        clock: 0,
        period: 10_000,
        boot,
        entries: vec![entry],
    }
}

#[test]
#[ignore = "needs root"]
fn hostile_heartbeats_are_counted_and_change_nothing() {
    let mut fabric = Fabric::new();
    fabric.run_all();
    // From here on, the test speaks for the first spine.
    fabric.kill("spine0");
    fabric.wait_until(SPINES[0], "suspect");
    let key = Key::new(1, SECRET);
    let own = |sequence, boot, capacity| heartbeat(SPINES[0], sequence, boot, capacity).encode(Some(&key));
    let restarts = fabric.peer(SPINES[0], "restarts").as_u64().unwrap();
    fabric.send("spine0", "eth0", 255, &own(7, 1, 50));
    fabric.wait_until(SPINES[0], "fresh");
    assert_eq!(fabric.peer(SPINES[0], "restarts"), restarts + 1, "a lower number of another start is believed");
    let rows = |fabric: &Fabric| {
        let view = fabric.show("leaf", "glb");
        let of_spine = |row: &&Value| row["node"] == SPINES[0];
        (
            view["links"].as_array().unwrap().iter().filter(of_spine).cloned().collect::<Vec<_>>(),
            fabric.peer(SPINES[0], "received"),
            fabric.bands(),
        )
    };
    let known = rows(&fabric);
    assert_eq!(known.2[0], [Some(7), Some(4), Some(4)]);

    let worst = |sequence| own(sequence, 1, 1);
    let unsigned = heartbeat(SPINES[0], 8, 1, 1).encode(None);
    let forged = heartbeat(SPINES[0], 8, 1, 1).encode(Some(&Key::new(1, "guessed")));
    let of_other = heartbeat(SPINES[1], u32::MAX / 2, 1, 1).encode(Some(&key));
    let garbage = [[0x53, 0x52, 0x51, 0x49].as_slice(), &[0; 60]].concat();
    let cases: [(&str, &str, &str, i32, Vec<u8>); 9] = [
        ("ttl", "spine0", "eth0", 64, worst(8)),
        ("port", "host", "eth0", 255, worst(8)),
        ("unsigned", "spine0", "eth0", 255, unsigned),
        ("signature", "spine0", "eth0", 255, forged),
        ("sequence", "spine0", "eth0", 255, worst(7)),
        ("neighbor", "spine0", "eth0", 255, of_other),
        ("magic", "spine0", "eth0", 255, garbage),
        ("length", "spine0", "eth0", 255, [worst(8), vec![0; 2000]].concat()),
        ("length", "spine0", "eth0", 255, Vec::new()),
    ];
    for (reason, node, device, hop_limit, bytes) in cases {
        let before = fabric.rejected(reason);
        fabric.send(node, device, hop_limit, &bytes);
        wait_for(&format!("a counter of {reason}"), || (fabric.rejected(reason) == before + 1).then_some(()));
    }
    assert_eq!(rows(&fabric), known);
    fabric.send("spine0", "eth0", 255, &worst(8));
    wait_for("a worse far band", || (fabric.bands()[0][1] == Some(0)).then_some(()));
}

#[test]
#[ignore = "needs root"]
fn who_must_not_send_does_not() {
    const ENOUGH: u64 = 5;
    let mut fabric = Fabric::new();
    fabric.run_all();
    let (from_leaf, _) = fabric.socket("spine0", "eth0", PORT);
    let (from_spine, _) = fabric.socket("far", "eth0", PORT);
    let received = || fabric.peer(SPINES[0], "received").as_u64().unwrap();
    let begin = received();
    wait_for("heartbeats at the leaf", || (received() >= begin + ENOUGH).then_some(()));
    let mut bytes = [0; 2000];
    assert!(from_leaf.recv(&mut bytes).is_err(), "the leaf only listens");
    let (length, source) = from_spine.recv_from(&mut bytes).unwrap();
    let heartbeat = Heartbeat::decode(&bytes[..length], Some(&Key::new(1, SECRET))).unwrap();
    assert_eq!((heartbeat.role, heartbeat.entries.len(), heartbeat.period), (Role::Helper, 2, 500), "{source}");
    assert_eq!(fabric.show("leaf", "glb")["sent"], 0);
    assert_eq!(fabric.show("spine0", "glb")["received"], 0);
    assert_eq!(fabric.show("spine0", "glb")["peers"].as_array().unwrap().len(), 0);
    assert_eq!(fabric.show("leaf", "process")["least_privilege"], true, "heartbeats need no privilege");
    // The host is no neighbour, and is told nothing.
    let (at_host, _) = fabric.socket("host", "eth0", PORT);
    let begin = received();
    wait_for("heartbeats at the leaf", || (received() >= begin + ENOUGH).then_some(()));
    assert!(at_host.recv(&mut bytes).is_err());
}

/// Echo requests of 1,400 bytes from the host, at least four hundred a second, until this is dropped.
struct Flood(Vec<Child>);

impl Flood {
    fn to(fabric: &Fabric, address: &str) -> Self {
        // A ping that sees no answers sends a hundred a second.
        let ping = format!("-6 -q -n -f -l 20 -s 1400 {address}");
        let start = || {
            let mut command = srv6d_netns::exec(fabric.ns("host"), "ping");
            command.args(ping.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        Self((0..4).map(|_| start()).collect())
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        for ping in &mut self.0 {
            let _ = ping.kill();
            let _ = ping.wait();
        }
    }
}

#[test]
#[ignore = "needs root"]
fn a_busy_link_behind_a_spine_is_seen_and_idle_again_afterwards() {
    let mut fabric = Fabric::new();
    // The link is so slow that two looks must be far apart: several packets have to fit between them.
    let spine = |fabric: &Fabric, number| {
        fabric.spine(number, "1Mbit").replace("period = \"500ms\"", "period = \"500ms\"\nmin_gap = \"100ms\"")
    };
    let emulated = spine(&fabric, 1).replace(
        "name = \"eth1\"\nrole = \"fabric\"\nspeed = \"1Mbit\"",
        "name = \"eth1\"\nrole = \"fabric\"\nemulate = { rate = \"1Mbit\", queue = 20000 }",
    );
    assert!(emulated.contains("emulate"), "{emulated}");
    fabric.start("spine0", &spine(&fabric, 0));
    fabric.start("spine1", &emulated);
    let route = |net: usize| {
        let hop = format!("via = \"2001:db8:{}::2\"\nport = \"eth{}\"", net + 1, net + 1);
        format!("[[route]]\nprefix = \"2001:db8:f{net}::/64\"\n{hop}\n")
    };
    fabric.start("leaf", &format!("{}{}{}", fabric.leaf(), route(0), route(1)));
    let link = |spine: &str, key: &str| {
        let view = fabric.show("leaf", "glb");
        let mut rows = view["links"].as_array().unwrap().iter();
        rows.find(|row| row["node"] == spine && row["neighbor"] == FAR).and_then(|row| row[key].as_u64())
    };
    for (net, spine) in SPINES.iter().enumerate() {
        wait_for("an idle link", || (link(spine, "load_permille") == Some(0)).then_some(()));
        let flood = Flood::to(&fabric, &format!("2001:db8:f{net}::2"));
        wait_for("a busy link", || (link(spine, "load_permille") >= Some(900)).then_some(()));
        wait_for("a full queue", || (link(spine, "queue_permille") >= Some(900)).then_some(()));
        wait_for("the worst band", || (fabric.bands()[net][1] == Some(0)).then_some(()));
        drop(flood);
        // No packet wakes the worker of the spine any more.
        wait_for("an idle link", || (link(spine, "load_permille") == Some(0)).then_some(()));
        wait_for("an empty queue", || (link(spine, "queue_permille") == Some(0)).then_some(()));
        wait_for("the best band", || (fabric.bands()[net][1] == Some(7)).then_some(()));
    }
}

#[test]
#[ignore = "needs root"]
fn weights_follow_from_the_capacities_that_spines_tell() {
    let mut fabric = Fabric::new();
    fabric.start("spine0", &fabric.spine(0, "100Mbit"));
    fabric.start("spine1", &fabric.spine(1, "100Mbit"));
    fabric.start("leaf", &fabric.leaf().replace("\"global\"", "\"weighted\""));
    let weights = |fabric: &Fabric| {
        let rows = fabric.show("leaf", "balance");
        rows.as_array().unwrap().iter().map(|row| row["weight"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    wait_for("equal weights", || (weights(&fabric) == [100, 100]).then_some(()));
    fabric.reload("spine0", &fabric.spine(0, "25Mbit"));
    wait_for("a smaller weight", || (weights(&fabric) == [25, 100]).then_some(()));
    let shown = text(&fabric.ask("leaf", "show balance").stdout);
    assert!(shown.contains("capacities") && shown.contains("25 Mbit"), "{shown}");
    let generations = text(&fabric.ask("leaf", "show generation").stdout);
    assert!(generations.contains("heartbeats"), "{generations}");
    fabric.kill("spine0");
    wait_for("the capacity of the own port", || (weights(&fabric) == [100, 100]).then_some(()));
}
