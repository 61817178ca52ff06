//! A container without a container engine. It has its own namespaces for network, processes, mounts and host name. Its
//! root directory is an overlay on this machine's, with the files of the image and the binds of the lab.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::topology::{File, Link, Node, folder, read};

const SRV6D: &str = env!("CARGO_BIN_EXE_srv6d");
const PATIENCE: Duration = Duration::from_mins(1);
/// MTU of links that containerlab creates.
const MTU: u32 = 9500;

/// Script that runs in the new namespaces: `$1` folder of the container, `$2` host name, `$3` binds, the rest the
/// command.
const INIT: &str = r#"
set -e
folder=$1 name=$2 binds=$3; shift 3
root=$folder/root
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
for bind in $binds; do
    mkdir -p "$root/$(dirname "${bind#*:}")"; touch "$root/${bind#*:}"
    mount --bind "${bind%%:*}" "$root/${bind#*:}"
done
hostname "$name"
exec chroot "$root" "$@"
"#;

/// The properties of the image, from its Dockerfile.
pub struct Image {
    /// `RUN` lines that concern srv6d.
    pub steps: Vec<String>,
    pub entrypoint: Vec<String>,
    pub healthcheck: Vec<String>,
}

impl Image {
    pub fn read() -> Self {
        let text = fs::read_to_string(folder().join("Dockerfile")).unwrap();
        let last = text.rsplit("\nFROM ").next().unwrap().to_owned();
        let words = |line: &str| serde_json::from_str(line.get(line.find('[').unwrap()..).unwrap()).unwrap();
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).map(words).unwrap();
        let steps = last.lines().filter_map(|line| line.strip_prefix("RUN ")).filter(|step| step.starts_with("srv6d"));
        Self {
            steps: steps.map(str::to_owned).collect(),
            entrypoint: line("ENTRYPOINT"),
            healthcheck: line("HEALTHCHECK"),
        }
    }
}

/// A deployed lab. Dropping it removes everything, even after a failure.
pub struct Lab {
    prefix: String,
    directory: PathBuf,
    file: File,
    image: Image,
    running: Vec<(String, Child)>,
}

impl Lab {
    /// Deploys a lab like `containerlab deploy`: every container starts, then its links appear one after another, then
    /// `exec` runs.
    pub fn deploy(name: &str) -> Self {
        let mut lab = Self::create(name);
        let nodes: Vec<String> = lab.file.topology.nodes.keys().cloned().collect();
        for node in &nodes {
            lab.namespace(node);
            lab.start(node);
        }
        for link in lab.file.topology.links.clone() {
            lab.connect(&link);
        }
        for node in &nodes {
            lab.run_exec(node);
        }
        lab
    }

    fn create(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("srv6d-c{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(&prefix);
        fs::create_dir_all(&directory).unwrap();
        let lab = Self { prefix, directory, file: read(name), image: Image::read(), running: Vec::new() };
        must(&format!("ip netns add {}", lab.ns("mgmt")));
        lab
    }

    pub fn ns(&self, node: &str) -> String {
        format!("{}-{node}", self.prefix)
    }

    /// Creates a network namespace as an engine does, with only `lo` and eth0 of the management network.
    fn namespace(&self, node: &str) {
        let ns = self.ns(node);
        must(&format!("ip netns add {ns} && ip -n {ns} link set lo up"));
        must(&format!("ip link add eth0 netns {ns} type veth peer name m-{node} netns {}", self.ns("mgmt")));
        must(&format!("ip -n {ns} address add 172.20.20.2/24 dev eth0 && ip -n {ns} link set eth0 up"));
        must(&format!("ip -n {} link set m-{node} up", self.ns("mgmt")));
        for (key, value) in &self.file.topology.nodes[node].sysctls {
            must(&format!("ip netns exec {ns} sysctl -qw {key}={value}"));
        }
    }

    /// Starts the container's process, with the image's entry point unless the node has its own.
    pub fn start(&mut self, node: &str) {
        let folder = self.directory.join(node);
        for part in ["root", "upper", "work"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        let spec = &self.file.topology.nodes[node];
        let log =
            fs::OpenOptions::new().create(true).append(true).open(self.directory.join(format!("{node}.log"))).unwrap();
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            &self.ns(node),
            "unshare",
            "--mount",
            "--uts",
            "--pid",
            "--fork",
            "--kill-child",
        ]);
        command.args(["sh", "-c", INIT, "container"]).arg(&folder).arg(node).arg(Self::binds(spec));
        command.args(["env", "-i", "PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin"]);
        command.arg(format!("CLAB_INTFS={}", self.interfaces(node)));
        command.args(["sh", "-c", &self.command(spec)]);
        let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        self.running.push((node.to_owned(), child));
    }

    /// Returns a command that runs the steps of the image, and then replaces itself by the process.
    fn command(&self, spec: &Node) -> String {
        let process = match &spec.entrypoint {
            Some(entrypoint) => format!("{entrypoint} {}", spec.cmd.as_deref().unwrap_or_default()),
            None => self.image.entrypoint.join(" "),
        };
        let steps: Vec<String> = self.image.steps.iter().map(|step| format!("{step} && ")).collect();
        format!("{} exec {process}", steps.concat())
    }

    /// Returns the binds of the program that the image packs, and those of the lab.
    fn binds(spec: &Node) -> String {
        let mut binds = vec![format!("{SRV6D}:/usr/bin/srv6d")];
        for bind in &spec.binds {
            let mut parts = bind.split(':');
            let (from, to) = (parts.next().unwrap(), parts.next().unwrap());
            binds.push(format!("{}:{to}", folder().join(from).canonicalize().unwrap().display()));
        }
        binds.join(" ")
    }

    /// Returns the value of `CLAB_INTFS`: the number of data interfaces in the topology file, without eth0.
    fn interfaces(&self, node: &str) -> usize {
        self.links_of(node).len()
    }

    pub fn links_of(&self, node: &str) -> Vec<Link> {
        let links = self.file.topology.links.iter().filter(|link| link.ends().iter().any(|(end, _)| end == node));
        links.cloned().collect()
    }

    /// Connects two nodes by a veth: it is created under other names, moved to the nodes, renamed and set up. Then its
    /// transmit checksums are turned off.
    pub fn connect(&self, link: &Link) {
        let [(a, a_name), (b, b_name)] = link.ends();
        let (ns_a, ns_b) = (self.ns(&a), self.ns(&b));
        must(&format!("ip link add clab-x netns {ns_a} mtu {MTU} type veth peer name clab-y netns {ns_b} mtu {MTU}"));
        for (ns, random, name) in [(&ns_a, "clab-x", &a_name), (&ns_b, "clab-y", &b_name)] {
            must(&format!("ip -n {ns} link set {random} name {name} up"));
            must(&format!("ip netns exec {ns} ethtool -K {name} tx off"));
        }
    }

    pub fn run_exec(&self, node: &str) {
        for command in &self.file.topology.nodes[node].exec {
            let output = self.exec(node, command);
            assert!(output.status.success(), "{node}: {command}: {}", both(&output));
        }
    }

    /// Runs a command like `docker exec NODE sh -c COMMAND`.
    pub fn exec(&self, node: &str, command: &str) -> Output {
        let end = Instant::now() + PATIENCE;
        let process = loop {
            match self.process(node) {
                Some(process) => break process,
                None => assert!(Instant::now() < end, "{node} does not start: {}", self.log(node)),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut enter = Command::new("nsenter");
        enter.args(["--target", &process.to_string(), "--net", "--mount", "--uts", "--pid", "--root", "--wd=/"]);
        enter
            .args(["env", "-i", "PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin", "sh", "-c", command])
            .output()
            .unwrap()
    }

    /// Returns the process of the container, once it is in its own root directory.
    pub fn process(&self, node: &str) -> Option<u32> {
        let (_, child) = self.running.iter().rev().find(|(name, _)| name == node)?;
        let parent = child.id();
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
        let process: u32 = children.split_whitespace().next()?.parse().ok()?;
        let root = fs::read_link(format!("/proc/{process}/root")).ok()?;
        root.starts_with(&self.directory).then_some(process)
    }

    /// Returns whether the HEALTHCHECK of the image succeeds, or that of the node if it has one.
    pub fn is_healthy(&self, node: &str) -> bool {
        let own = self.file.topology.nodes[node].healthcheck.as_ref().map(|check| check.test[1..].join(" "));
        let check = own.unwrap_or_else(|| self.image.healthcheck.join(" "));
        self.process(node).is_some() && self.exec(node, &check).status.success()
    }

    pub fn wait_healthy(&self, node: &str) {
        self.wait(node, "healthy", || self.is_healthy(node));
    }

    pub fn wait(&self, node: &str, what: &str, reached: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !reached() {
            assert!(Instant::now() < end, "{node} is not {what} within {PATIENCE:?}:\n{}", self.log(node));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub fn log(&self, node: &str) -> String {
        fs::read_to_string(self.directory.join(format!("{node}.log"))).unwrap_or_default()
    }

    /// Kills a node like `docker kill NODE`. Its interfaces disappear; the next start creates eth0 again.
    pub fn kill(&mut self, node: &str) {
        let at = self.running.iter().position(|(name, _)| name == node).unwrap();
        let (_, child) = self.running.remove(at);
        end(child);
        must(&format!("ip netns delete {}", self.ns(node)));
        // The kernel removes the namespace, and with it the far ends, some time after its last process has ended.
        let mut far: Vec<(String, String)> = self.links_of(node).iter().flat_map(Link::ends).collect();
        far.push(("mgmt".to_owned(), format!("m-{node}")));
        for (peer, interface) in far.into_iter().filter(|(peer, _)| peer != node) {
            let gone = || !shell(&format!("ip -n {} link show {interface}", self.ns(&peer))).status.success();
            self.wait(&peer, &format!("without {interface}"), gone);
        }
    }

    /// Starts a node again like `docker start NODE`, with the environment of its creation.
    pub fn start_again(&mut self, node: &str) {
        self.namespace(node);
        self.start(node);
    }

    pub fn nodes(&self) -> Vec<String> {
        self.file.topology.nodes.keys().cloned().collect()
    }

    pub fn switches(&self) -> Vec<String> {
        let nodes = self.file.topology.nodes.iter();
        nodes.filter(|(_, node)| node.entrypoint.is_none()).map(|(name, _)| name.clone()).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (node, _) in &self.running {
                eprintln!("--- {node}\n{}", self.log(node));
            }
        }
        for (_, child) in self.running.drain(..) {
            end(child);
        }
        let nodes: Vec<String> = self.file.topology.nodes.keys().cloned().chain(["mgmt".to_owned()]).collect();
        for node in nodes {
            let _ = shell(&format!("ip netns delete {} 2>/dev/null", self.ns(&node)));
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Kills `unshare`, and with it the container's first process and all others.
fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

pub fn both(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn shell(command: &str) -> Output {
    Command::new("sh").args(["-c", command]).output().unwrap()
}

fn must(command: &str) {
    let output = shell(command);
    assert!(output.status.success(), "{command}: {}", both(&output));
}

/// Checks whether this kernel supports an overlay on its own root directory.
pub fn is_possible() -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("srv6d-overlay-{}", std::process::id()));
    let path = |part: &str| -> String { Path::new(&folder).join(part).display().to_string() };
    for part in ["root", "upper", "work"] {
        fs::create_dir_all(path(part)).unwrap();
    }
    let options = format!("lowerdir=/,upperdir={},workdir={}", path("upper"), path("work"));
    let tried = shell(&format!("unshare --mount mount -t overlay overlay -o {options} {}", path("root")));
    let _ = fs::remove_dir_all(&folder);
    if tried.status.success() { Ok(()) } else { Err(both(&tried)) }
}
