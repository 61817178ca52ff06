//! Tests of the image and the labs of `packaging/containerlab` in a real container engine.
//!
//! The test starts a `dockerd` of its own, which touches no network of this machine, and ends it. It is skipped where
//! there is no `dockerd`, or no base image; `scripts/make-container-base` makes one. Containers have what containerlab
//! gives to a node: capabilities, sysctls, binds, and links that appear after the start.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use crate::clab::topology::{self, File, Link, Node};
use crate::support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use support::lab::{SRV6D, text};

const IMAGE: &str = "srv6d-sonic:latest";
const BASE: &str = "srv6d-container-base";
/// MTU of links that containerlab creates.
const MTU: u32 = 9500;
/// Maximum time for anything that a test waits for. A health check may try for two minutes.
const PATIENCE: Duration = Duration::from_mins(4);

/// All that containerlab's `privileged` gives, but for a capability that the user of this test may not have himself.
const PRIVILEGES: &str = "--cap-add ALL --cap-drop SYS_RESOURCE --security-opt seccomp=unconfined \
                          --security-opt systempaths=unconfined --security-opt apparmor=unconfined";

/// A container engine that ends with this value, and the containers of one lab.
struct Engine {
    directory: PathBuf,
    daemon: Child,
    containers: Vec<String>,
    prefix: String,
}

impl Engine {
    /// Starts an engine. `Err`: the reason why there is none.
    fn start() -> Result<Self, String> {
        let is_there = Command::new("sh").args(["-c", "command -v dockerd docker"]).output().unwrap().status.success();
        if !is_there {
            return Err("there is no dockerd and docker; Debian's docker.io has both".to_owned());
        }
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("target");
        let base = target.join("container-base.tar");
        if !base.is_file() {
            return Err(format!("{} is missing; scripts/make-container-base makes it", base.display()));
        }
        let prefix = format!("srv6d-e{}", std::process::id());
        let directory = std::env::temp_dir().join(&prefix);
        fs::create_dir_all(&directory).unwrap();
        let log = fs::File::create(directory.join("log")).unwrap();
        // Images stay, so that the packages of the Dockerfile are installed once only.
        let daemon = Command::new("dockerd")
            .args(["--iptables=false", "--ip-forward=false", "--bridge=none", "--data-root"])
            .arg(target.join("container-engine"))
            .arg("--exec-root")
            .arg(directory.join("exec"))
            .arg("--pidfile")
            .arg(directory.join("pid"))
            .args(["--host", &format!("unix://{}", directory.join("docker.sock").display())])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut engine = Self { directory, daemon, containers: Vec::new(), prefix };
        let end = Instant::now() + PATIENCE;
        while !engine.docker("info").status.success() {
            let has_ended = engine.daemon.try_wait().unwrap().is_some();
            if has_ended || Instant::now() > end {
                return Err(format!("dockerd does not start: {}", engine.last_words()));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        if !engine.docker(&format!("image inspect {BASE}")).status.success() {
            engine.must(&format!("import {} {BASE}", base.display()));
        }
        Ok(engine)
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        log.lines().rev().take(3).collect::<Vec<_>>().join("; ")
    }

    fn docker(&self, arguments: &str) -> Output {
        let socket = self.directory.join("docker.sock");
        let command = format!("exec docker --host unix://{} {arguments}", socket.display());
        Command::new("sh").args(["-c", &command]).output().unwrap()
    }

    fn must(&self, arguments: &str) -> String {
        let output = self.docker(arguments);
        assert!(output.status.success(), "docker {arguments}: {}", both(&output));
        text(&output.stdout)
    }

    /// Builds the image from the Dockerfile, with the binary of this test. `Err`: its packages cannot be had.
    fn build(&self) -> Result<(), String> {
        let context = self.directory.join("context");
        fs::create_dir_all(context.join("target/release")).unwrap();
        fs::copy(topology::folder().join("Dockerfile"), context.join("Dockerfile")).unwrap();
        let binary = context.join("target/release/srv6d");
        fs::copy(SRV6D, &binary).unwrap();
        let _ = Command::new("strip").arg(&binary).status(); // it is large, and works all the same
        let context = context.display();
        let build = |target: &str| {
            self.docker(&format!("build --network host --build-arg BASE={BASE} --target {target} -t {IMAGE} {context}"))
        };
        let base = build("base");
        if !base.status.success() {
            return Err(format!("the packages of the image cannot be installed: {}", both(&base)));
        }
        let packed = build("packed");
        assert!(packed.status.success(), "{}", both(&packed));
        Ok(())
    }

    fn name(&self, node: &str) -> String {
        format!("{}-{node}", self.prefix)
    }

    /// Starts the container of a node.
    fn run(&mut self, name: &str, node: &Node, interfaces: usize) {
        let mut arguments =
            vec![format!("run --detach --name {} --hostname {name} --network none {PRIVILEGES}", self.name(name))];
        let usual = ["net.ipv6.conf.all.disable_ipv6=0", "net.ipv6.conf.default.disable_ipv6=0"];
        let own = node.sysctls.iter().map(|(key, value)| format!("{key}={value}"));
        let sysctls = usual.iter().map(ToString::to_string).chain(own);
        arguments.extend(sysctls.map(|sysctl| format!("--sysctl {sysctl}")));
        arguments.push(format!("--env CLAB_INTFS={interfaces}"));
        for bind in &node.binds {
            let (from, to) = bind.split_once(':').unwrap();
            let from = topology::folder().join(from).canonicalize().unwrap();
            arguments.push(format!("--volume {}:{to}", from.display()));
        }
        if let Some(check) = &node.healthcheck {
            let command = check.test.get(1..).unwrap().join(" ");
            arguments.push(format!("--health-cmd '{command}' --health-interval 2s --health-retries 60"));
        }
        arguments.extend(node.entrypoint.as_ref().map(|entrypoint| format!("--entrypoint {entrypoint}")));
        self.containers.push(self.name(name));
        self.must(&format!("{} {IMAGE} {}", arguments.join(" "), node.cmd.as_deref().unwrap_or_default()));
    }

    fn inspect(&self, node: &str, format: &str) -> String {
        self.must(&format!("inspect --format '{format}' {}", self.name(node))).trim().to_owned()
    }

    /// Connects two nodes by a veth, which is created under other names, renamed in the node, and set up.
    fn connect(&self, link: &Link) {
        let ends = link.ends();
        let pids = ends.clone().map(|(node, _)| self.inspect(&node, "{{.State.Pid}}"));
        let [a, b] = &pids;
        shell(&format!("ip link add clab-x netns {a} mtu {MTU} type veth peer name clab-y netns {b} mtu {MTU}"));
        for ((pid, temporary), (_, name)) in pids.iter().zip(["clab-x", "clab-y"]).zip(&ends) {
            let inside = format!("nsenter --target {pid} --net");
            shell(&format!("{inside} ip link set {temporary} name {name} up"));
            shell(&format!("{inside} ethtool -K {name} tx off"));
        }
    }

    fn exec(&self, node: &str, command: &str) -> Output {
        self.docker(&format!("exec {} sh -c \"{command}\"", self.name(node)))
    }

    fn wait(&self, node: &str, what: &str, is_so: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so() {
            let log = || both(&self.docker(&format!("logs {}", self.name(node))));
            assert!(Instant::now() < end, "{node} is not {what} within {PATIENCE:?}:\n{}", log());
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    fn deploy(&mut self, file: &File) {
        let links = &file.topology.links;
        for (name, node) in &file.topology.nodes {
            let interfaces = links.iter().filter(|link| link.ends().iter().any(|(end, _)| end == name)).count();
            self.run(name, node, interfaces);
        }
        for link in links {
            self.connect(link);
        }
        for (name, node) in &file.topology.nodes {
            for command in &node.exec {
                let done = self.exec(name, command);
                assert!(done.status.success(), "{name}: {command}: {}", both(&done));
            }
        }
        for name in file.topology.nodes.keys() {
            self.wait(name, "healthy", || self.inspect(name, "{{.State.Health.Status}}") == "healthy");
        }
    }

    fn ping(&self, from: &str, to: &str) {
        let all = || both(&self.exec(from, &format!("ping -c 3 -i 0.2 -W 1 {to}"))).contains(" 0% packet loss");
        self.wait(from, &format!("answered by {to}"), all);
    }

    /// Stops a switch, which has to end by itself, and removes all containers.
    fn end_lab(&mut self, switch: &str) {
        self.must(&format!("stop --time 60 {}", self.name(switch)));
        assert_eq!(self.inspect(switch, "{{.State.ExitCode}}"), "0", "{switch}");
        let all = std::mem::take(&mut self.containers);
        self.must(&format!("rm --force {}", all.join(" ")));
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if !self.containers.is_empty() {
            self.docker(&format!("rm --force {}", self.containers.join(" ")));
        }
        let _ = Command::new("kill").arg(self.daemon.id().to_string()).status();
        let _ = self.daemon.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn both(output: &Output) -> String {
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

fn shell(command: &str) {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", both(&output));
}

#[test]
#[ignore = "needs root, and a container engine"]
fn the_image_is_built_and_both_labs_forward_in_it() {
    let mut engine = match Engine::start() {
        Ok(engine) => engine,
        Err(why) => return println!("SKIPPED: {why}"),
    };
    if let Err(why) = engine.build() {
        return println!("SKIPPED: {why}");
    }

    engine.deploy(&topology::read("fabric3x3.clab.yml"));
    for (from, to) in [("host00", "fcbb:0:800:1::2"), ("host01", "fcbb:0:800:2::2"), ("host02", "10.200.0.2")] {
        engine.ping(from, to);
    }
    let sids = both(&engine.exec("leaf00", "show srv6 static-sids"));
    assert!(sids.contains("fcbb:0:1004:fe06::/64") && sids.contains("uDT6"), "{sids}");
    let saved = engine.exec("leaf00", "config save -y");
    assert!(!saved.status.success() && both(&saved).contains("it is read-only"), "{}", both(&saved));
    engine.end_lab("leaf00");

    engine.deploy(&topology::read("ai-plane.clab.yml"));
    engine.ping("green0", "2001:db8:91::2");
    engine.ping("yellow0", "2001:db8:71::1");
    engine.end_lab("p0-spine00");
}
