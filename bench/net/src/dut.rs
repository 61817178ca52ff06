//! Devices under test (DUT): the forwarder between the two ports, and its configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::maps::xdp::DevMap;
use aya::maps::{Array, MapData};

use crate::floor::{FRAMES, Floor, RING};
use crate::frames::{OUT_MAC, SINK_MAC, Work};
use crate::layout::Layout;
use crate::netns::Namespace;
use crate::objects::{self, failed};
use crate::testbed::{Testbed, ifindex, mac};
use crate::turns::Turns;
use crate::{BenchError, cpu};

/// Kind of forwarder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarder {
    /// The kernel's IPv6 and SRv6 forwarding.
    Linux,
    /// srv6d over AF_XDP.
    Srv6d,
    /// srv6d with the defaults of its ports and workers, and `domain_sources`: on a veth, an XDP program forwards.
    Srv6dOffload,
    /// AF_XDP sockets like those of srv6d, without any work between them.
    AfXdpFloor,
    /// srv6d's worker and the floor in turns, on the same sockets.
    InTurns,
    /// An XDP program that redirects frames in the kernel. It can lose frames on purpose.
    Xdp {
        /// Every frame whose number is a multiple of this is dropped; 0: none.
        drop_every: u32,
    },
}

/// One row of the bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dut {
    /// Name in reports and on the command line.
    pub name: &'static str,
    /// Kind of forwarder.
    pub forwarder: Forwarder,
    /// Work on each packet.
    pub work: Work,
}

const fn dut(name: &'static str, forwarder: Forwarder, work: Work) -> Dut {
    Dut { name, forwarder, work }
}

/// All rows, in the order of reports.
pub const ALL: [Dut; 14] = [
    dut("linux-forward", Forwarder::Linux, Work::Forward),
    dut("linux-encap.red", Forwarder::Linux, Work::Encapsulate),
    dut("linux-uN", Forwarder::Linux, Work::Shift),
    dut("linux-End.DT6", Forwarder::Linux, Work::Decapsulate),
    dut("srv6d-forward", Forwarder::Srv6d, Work::Forward),
    dut("srv6d-encap.red", Forwarder::Srv6d, Work::Encapsulate),
    dut("srv6d-uN", Forwarder::Srv6d, Work::Shift),
    dut("srv6d-uDT6", Forwarder::Srv6d, Work::Decapsulate),
    dut("srv6d-forward-offload", Forwarder::Srv6dOffload, Work::Forward),
    dut("srv6d-encap.red-offload", Forwarder::Srv6dOffload, Work::Encapsulate),
    dut("srv6d-uN-offload", Forwarder::Srv6dOffload, Work::Shift),
    dut("srv6d-uDT6-offload", Forwarder::Srv6dOffload, Work::Decapsulate),
    dut("af_xdp-floor", Forwarder::AfXdpFloor, Work::Cross),
    dut("xdp-redirect", Forwarder::Xdp { drop_every: 0 }, Work::Cross),
];

/// Returns the DUT in which srv6d with this work and the floor take turns.
pub const fn in_turns(work: Work) -> Dut {
    dut("in-turns", Forwarder::InTurns, work)
}

/// A DUT that loses one packet in a thousand, for tests of the bench itself.
pub const LOSSY: Dut = dut("lossy", Forwarder::Xdp { drop_every: 1000 }, Work::Cross);

/// Returns the row with this name, in any case of letters.
pub fn named(name: &str) -> Option<Dut> {
    ALL.into_iter().find(|dut| dut.name.eq_ignore_ascii_case(name))
}

/// A running DUT; it forwards until this value is dropped.
pub enum Running {
    /// The kernel itself, without a process.
    Kernel,
    /// A process of srv6d and its files.
    Daemon(Daemon),
    /// Threads of this process that forward between AF_XDP sockets.
    Threads(Box<Floor>),
    /// A thread of this process in which srv6d and the floor take turns.
    Turns(Box<Turns>),
    /// An XDP program on the port.
    Program(Box<Ebpf>),
}

impl Running {
    /// Returns the threads that forward packets, if there are any.
    pub fn threads(&self) -> Vec<i32> {
        match self {
            Self::Kernel | Self::Program(_) => Vec::new(),
            Self::Daemon(daemon) => cpu::threads_of(daemon.child.id(), "srv6d-worker"),
            Self::Turns(turns) => vec![turns.thread_number],
            Self::Threads(floor) => floor.thread_numbers.clone(),
        }
    }
}

impl Dut {
    /// Returns whether the DUT is a process of srv6d.
    pub fn is_srv6d(&self) -> bool {
        matches!(self.forwarder, Forwarder::Srv6d | Forwarder::Srv6dOffload)
    }

    /// Returns whether a worker on its own core forwards packets, or those that an XDP program leaves to it.
    pub fn has_worker(&self) -> bool {
        !matches!(self.forwarder, Forwarder::Linux | Forwarder::Xdp { .. })
    }

    /// Starts the DUT between the two ports of a testbed.
    pub fn start(&self, bed: &Testbed, srv6d: &Path, layout: &Layout) -> Result<Running, BenchError> {
        let workers = layout.workers.as_slice();
        let (ingress, egress) = (bed.devices.ingress.as_str(), bed.devices.egress.as_str());
        match self.forwarder {
            Forwarder::Linux => {
                bed.dut_space.shell(&self.kernel_settings(ingress, egress))?;
                Ok(Running::Kernel)
            }
            Forwarder::Srv6d | Forwarder::Srv6dOffload => {
                Daemon::start(&bed.dut_space, srv6d, &self.configuration(ingress, egress, layout), 2)
                    .map(Running::Daemon)
            }
            Forwarder::AfXdpFloor => {
                Floor::start(&bed.dut_space, ingress, egress, workers).map(|floor| Running::Threads(Box::new(floor)))
            }
            Forwarder::InTurns => {
                let core = workers.first().copied().unwrap_or_default();
                Turns::start(&bed.dut_space, (ingress, egress), core, self.work)
                    .map(|turns| Running::Turns(Box::new(turns)))
            }
            Forwarder::Xdp { drop_every } => {
                srv6d_netns::enter(&bed.dut_space, || redirect(ingress, egress, drop_every))
                    .map(|program| Running::Program(Box::new(program)))
            }
        }
    }

    /// Returns shell commands that make the kernel a router: forwarding, a static neighbour, and the route or SID.
    fn kernel_settings(&self, ingress: &str, egress: &str) -> String {
        let next = "via 2001:db8:2::2";
        let route = match self.work {
            Work::Cross | Work::Forward => String::new(),
            Work::Encapsulate => format!(
                "ip sr tunsrc set 2001:db8:1::1\n\
                 ip -6 route replace 2001:db8:b::/64 encap seg6 mode encap.red segs fcbb:0:2:fe06:: dev {egress}"
            ),
            Work::Shift => format!(
                "ip -6 route add fcbb:0:1::/48 encap seg6local action End flavors next-csid lblen 32 nflen 16 \
                 dev {egress}"
            ),
            Work::Decapsulate => {
                format!("ip -6 route add fcbb:0:1:fe06::/64 encap seg6local action End.DT6 table 254 dev {egress}")
            }
        };
        // Generic receive offload enables NAPI on a veth that has no program.
        format!(
            "sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.conf.all.seg6_enabled=1 \
             net.ipv6.conf.{ingress}.seg6_enabled=1\n\
             ethtool -K {ingress} gro on\n\
             ip addr add 2001:db8:1::1/64 dev {ingress} nodad\n\
             ip addr add 2001:db8:2::1/64 dev {egress} nodad\n\
             ip -6 neigh replace 2001:db8:2::2 lladdr {} dev {egress} nud permanent\n\
             ip -6 route add fcbb::/32 {next} dev {egress}\n\
             ip -6 route add 2001:db8:b::/64 {next} dev {egress}\n\
             {route}\n",
            mac(SINK_MAC)
        )
    }

    /// Returns the configuration of srv6d. What forwards in the kernel is measured with the defaults of a port and of the
    /// workers, and with the check of sources that labs have. A worker that forwards polls without a pause where it has its core to itself.
    fn configuration(&self, ingress: &str, egress: &str, layout: &Layout) -> String {
        let work = match self.work {
            Work::Cross | Work::Forward => String::new(),
            Work::Encapsulate => format!(
                "[[steer]]\nprefix = \"2001:db8:b::/64\"\nsegments = [\"fcbb:0:2:fe06::\"]\n\
                 via = \"2001:db8:2::2\"\nport = \"{egress}\"\n"
            ),
            Work::Shift => "[[sid]]\nsid = \"fcbb:0:1::/48\"\nbehavior = \"uN\"\n".to_owned(),
            Work::Decapsulate => "[[sid]]\nsid = \"fcbb:0:1:fe06::/64\"\nbehavior = \"uDT6\"\n".to_owned(),
        };
        // A prefix can be steered or routed, but not both.
        let inner = match self.work {
            Work::Encapsulate => String::new(),
            _ => route("2001:db8:b::/64", egress),
        };
        let with_defaults = self.forwarder == Forwarder::Srv6dOffload;
        let offload = if with_defaults { "" } else { "offload = \"off\"\n" };
        let polling = if with_defaults || !layout.worker_is_alone() { "" } else { "polling = \"busy\"\n" };
        let sources = if with_defaults { "domain_sources = [\"2001:db8::/32\"]\n" } else { "" };
        let workers = &layout.workers;
        format!(
            "[node]\nname = \"bench\"\nsource = \"2001:db8:1::1\"\n{sources}\
             [workers]\ncores = {workers:?}\n{polling}frames = {FRAMES}\nring = {RING}\n\
             [host]\nsteer_local = false\n\
             [api]\nmetrics = \"off\"\n\
             [[block]]\nprefix = \"fcbb::/32\"\n\
             [[port]]\nname = \"{ingress}\"\nrole = \"fabric\"\n{offload}[[port]]\nname = \"{egress}\"\nrole = \"fabric\"\n{offload}\
             [[neighbor]]\naddress = \"2001:db8:2::2\"\nport = \"{egress}\"\nmac = \"{}\"\n\
             {}{inner}{work}",
            mac(SINK_MAC),
            route("fcbb::/32", egress)
        )
    }
}

fn route(prefix: &str, port: &str) -> String {
    format!("[[route]]\nprefix = \"{prefix}\"\nvia = \"2001:db8:2::2\"\nport = \"{port}\"\n")
}

/// Loads and attaches the redirecting program: `cross`, or `lossy`, which also counts frames. The ceiling is measured
/// without that cost.
fn redirect(ingress: &str, egress: &str, drop_every: u32) -> Result<Ebpf, BenchError> {
    let mut ebpf = objects::load(1)?;
    let mut crossing = [0; 16];
    let parts = SINK_MAC.into_iter().chain(OUT_MAC).chain(drop_every.to_ne_bytes());
    crossing.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
    let mut crossings: Array<MapData, [u8; 16]> = objects::map(&mut ebpf, "crossings")?;
    crossings.set(0, crossing, 0).map_err(|why| failed("write the addresses", &why))?;
    let mut way_out: DevMap<MapData> = objects::map(&mut ebpf, "way_out")?;
    way_out.set(0, ifindex(egress)?, None, 0).map_err(|why| failed("write the way out", &why))?;
    objects::attach(&mut ebpf, if drop_every == 0 { "cross" } else { "lossy" }, ingress)?;
    Ok(ebpf)
}

/// A process of the real srv6d with a configuration file.
pub struct Daemon {
    child: Child,
    directory: PathBuf,
}

impl Daemon {
    /// Starts srv6d in a namespace and waits until this number of ports forward.
    ///
    /// # Errors
    /// If it does not start; the error contains its output.
    pub fn start(space: &Namespace, srv6d: &Path, configuration: &str, ports: usize) -> Result<Self, BenchError> {
        let directory = std::env::temp_dir().join(&**space);
        fs::create_dir_all(&directory).map_err(|why| BenchError::of(directory.display(), why))?;
        let (file, socket) = (directory.join("srv6d.toml"), directory.join("srv6d.sock"));
        let log = directory.join("log");
        fs::write(&file, configuration).map_err(|why| BenchError::of(file.display(), why))?;
        let output = fs::File::create(&log).map_err(|why| BenchError::of(log.display(), why))?;
        let mut command = space.dependent(srv6d);
        command.args(["run", "--config"]).arg(&file).env("SRV6D_SOCKET", &socket);
        command.stdout(Stdio::null()).stderr(output);
        let child = command.spawn().map_err(|why| BenchError::of(srv6d.display(), why))?;
        let mut daemon = Self { child, directory };
        daemon.wait_until_ready(srv6d, &socket, &log, ports)?;
        Ok(daemon)
    }

    /// Waits until all ports forward.
    fn wait_until_ready(&mut self, srv6d: &Path, socket: &Path, log: &Path, wanted: usize) -> Result<(), BenchError> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let asked = Command::new(srv6d).arg("--socket").arg(socket).args(["show", "ports", "--json"]).output();
            let ports = asked.map_err(|why| BenchError::of(srv6d.display(), why))?;
            let ports: Vec<serde_json::Value> = serde_json::from_slice(&ports.stdout).unwrap_or_default();
            if ports.len() >= wanted && ports.iter().all(forwards_as_asked) {
                return ports.iter().find_map(wrong_mode).map_or(Ok(()), Err);
            }
            let ended = self.child.try_wait().map_err(|why| BenchError::of(srv6d.display(), why))?;
            if ended.is_some() || Instant::now() > deadline {
                let how = ended.map_or_else(|| "its ports do not forward".to_owned(), |ended| ended.to_string());
                let said = fs::read_to_string(log).unwrap_or_default();
                let why = format!("{} did not start ({how}) {said}", srv6d.display());
                return Err(BenchError(why.trim_end().to_owned()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns whether offload is in force, if it was requested. Otherwise the row would measure the worker under a wrong
/// name.
fn forwards_as_asked(port: &serde_json::Value) -> bool {
    is_a_hosts(port) || port.pointer("/offload/on").is_none_or(|on| on == true)
}

/// Returns whether packets come in by tc programs, as on the only port of a host.
fn is_a_hosts(port: &serde_json::Value) -> bool {
    port.get("mode").is_some_and(|mode| mode == "tc")
}

/// Returns an error unless the port is in native mode, because the stamp says that it is, or it is a host's.
fn wrong_mode(port: &serde_json::Value) -> Option<BenchError> {
    let text = |name: &str| port.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
    let is_wrong = text("role") != "kernel" && text("mode") != "native" && !is_a_hosts(port);
    is_wrong.then(|| {
        BenchError(format!("{} is in {} mode, and not in native: {}", text("name"), text("mode"), text("reason")))
    })
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // On SIGTERM, srv6d removes the devices that it has created.
        let process = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        let _ = nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGTERM);
        let deadline = Instant::now() + Duration::from_secs(5);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_another_mode_or_without_its_offload_is_not_measured() {
        let port = |mode: &str, offload: serde_json::Value| serde_json::json!({"name": "i0", "role": "fabric", "mode": mode, "reason": "why", "offload": offload});
        let on = |on: bool| serde_json::json!({"on": on, "reason": ""});
        assert!(forwards_as_asked(&port("native", on(true))) && !forwards_as_asked(&port("native", on(false))));
        assert!(forwards_as_asked(&port("native", serde_json::Value::Null)));
        assert_eq!(wrong_mode(&port("native", serde_json::Value::Null)), None);
        let why = wrong_mode(&port("generic", serde_json::Value::Null)).map(|why| why.0);
        assert_eq!(why.as_deref(), Some("i0 is in generic mode, and not in native: why"));
    }

    #[test]
    fn names_are_unique_and_found_without_case() {
        for dut in ALL {
            assert_eq!(named(&dut.name.to_uppercase()), Some(dut));
        }
        assert_eq!(named("lossy"), None, "for tests alone");
    }
}
