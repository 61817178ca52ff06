//! A lab that is up: how it comes, and how it goes.

use std::fs::{self, File};
use std::net::{Ipv6Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::api::client;
use crate::api::state::SourceView;
use crate::api::{Request, Response, Topic};

use super::controller;
use super::error::LabError;
use super::interrupt::Interrupt;
use super::screen::{DIM, Screen, styled};
use super::state::{Daemon, Process, RunDirectory, State};
use super::topology::{Kind, Link, Node, Topology};
use super::{kernel, netns, node_config};

/// A srv6d that has not answered by then will not.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// SIGTERM drains; what is still there afterwards gets SIGKILL.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// One lab, between up and down.
#[derive(Debug)]
pub struct Lab {
    /// What it consists of.
    pub topology: Topology,
    /// Its run directory.
    pub run: RunDirectory,
    /// The lab outlives this value.
    keep: bool,
}

impl Lab {
    /// Makes namespaces, links and routes, starts every srv6d and waits for all of them.
    /// Whatever goes wrong on the way, and Ctrl-C, takes down what was there already.
    ///
    /// # Errors
    /// The lab is up already, the machine refused something, a srv6d did not start, or Ctrl-C.
    pub fn bring_up(
        topology: Topology,
        text: &str,
        interrupt: &Interrupt,
        screen: &mut Screen,
    ) -> Result<Self, LabError> {
        // What can be refused without touching the machine comes first.
        netns::run(netns::tool("ping").arg("-V"))?;
        for node in topology.nodes() {
            kernel::routes(&topology, node)?;
        }
        let run = RunDirectory::create(&topology.name)?;
        let taken =
            topology.nodes().try_for_each(|node| netns::refuse_existing(&netns::name(&topology.name, &node.name)));
        let taken = taken.and_then(|()| netns::refuse_existing(&netns::name(&topology.name, controller::NODE)));
        if let Err(error) = taken {
            run.remove()?;
            return Err(error);
        }
        let lab = Self { topology, run, keep: false };
        lab.run.write_topology(&lab.topology, text)?;
        lab.make_network(interrupt, screen)?;
        lab.start_controller(interrupt, screen)?;
        lab.start_daemons(interrupt, screen)?;
        lab.check_links(interrupt, screen)?;
        Ok(lab)
    }

    /// The lab of that name, which stays up when this value goes.
    ///
    /// # Errors
    /// It is not up, or its run directory is damaged.
    pub fn open(name: &str) -> Result<Self, LabError> {
        let run = RunDirectory::find(name).ok_or_else(|| {
            LabError::Failed(format!("the lab {name} is not up\nfix: bring it up with `srv6d lab up`"))
        })?;
        let mut topology = run.topology()?;
        name.clone_into(&mut topology.name);
        Ok(Self { topology, run, keep: true })
    }

    /// Leaves the lab up.
    pub fn leave_up(mut self) {
        self.keep = true;
    }

    /// Namespace of a node.
    pub fn netns(&self, node: &str) -> String {
        netns::name(&self.topology.name, node)
    }

    /// Asks the srv6d of a node.
    ///
    /// # Errors
    /// It does not answer, or not to the question.
    pub fn ask(&self, node: &str, request: &Request) -> Result<Response, LabError> {
        client::ask(&self.run.socket(node), request).map_err(|error| {
            LabError::Failed(format!("srv6d of {node} did not answer: {error}{}", self.log_tail(node)))
        })
    }

    fn make_network(&self, interrupt: &Interrupt, screen: &mut Screen) -> Result<(), LabError> {
        let begin = Instant::now();
        let lab = &self.topology.name;
        self.each_node(|node| {
            let netns = self.netns(&node.name);
            netns::create(&netns)?;
            netns::sysctl(&netns, &kernel::early_settings())
        })?;
        interrupt.check()?;
        let links: Vec<(usize, &Link)> = self.topology.links().enumerate().collect();
        self.each_node(|node| {
            let own = links.iter().filter(|(_, link)| link.ends.first().is_some_and(|end| end.node == node.name));
            let commands: Vec<String> =
                own.map(|(number, link)| kernel::link(lab, link, *number, self.topology.mtu)).collect();
            netns::ip_batch(&self.netns(&node.name), &commands)
        })?;
        interrupt.check()?;
        self.each_node(|node| self.configure_kernel(node))?;
        interrupt.check()?;
        // A route needs its neighbour's link, so every device is up before the first route.
        self.each_node(|node| netns::ip_batch(&self.netns(&node.name), &kernel::routes(&self.topology, node)?))?;
        self.connect_controller()?;
        let (nodes, links) = (self.topology.nodes.len(), links.len());
        screen.line(&format!(
            "  {nodes} namespaces, {links} links  {}",
            styled(DIM, &format!("{:.1} s", begin.elapsed().as_secs_f32()))
        ));
        Ok(())
    }

    /// Its namespace, and a link to every host that asks it.
    fn connect_controller(&self) -> Result<(), LabError> {
        if self.topology.controller.is_none() {
            return Ok(());
        }
        let netns = self.netns(controller::NODE);
        netns::create(&netns)?;
        netns::sysctl(&netns, &kernel::early_settings())?;
        let links = controller::links(&self.topology);
        let made = links.iter().map(|link| controller::link_command(&self.topology.name, link));
        let own = links.iter().flat_map(|link| controller::address_commands(link.port, link.own));
        let commands: Vec<String> = ["link set lo up".to_owned()].into_iter().chain(made).chain(own).collect();
        netns::ip_batch(&netns, &commands)?;
        links.iter().try_for_each(|link| {
            netns::ip_batch(&self.netns(link.host), &controller::address_commands(controller::PORT, link.peer))
        })
    }

    /// The path server, ready before any host asks.
    fn start_controller(&self, interrupt: &Interrupt, screen: &mut Screen) -> Result<(), LabError> {
        if self.topology.controller.is_none() {
            return Ok(());
        }
        let graph = format!("{:#}", controller::graph(&self.topology));
        self.run.write(&format!("{}/topology.json", controller::NODE), &graph)?;
        let listen = format!("[::]:{}", controller::API);
        let mut child = self.spawn(controller::NODE, |command| {
            command.args(["path-server", "--listen", &listen, "--topology"]);
            command.arg(self.run.path().join(controller::NODE).join("topology.json"));
        })?;
        let process = Process::of(child.id());
        let process = process.ok_or_else(|| LabError::Failed("the path server ended at once".to_owned()))?;
        let daemons = vec![Daemon { node: controller::NODE.to_owned(), process }];
        self.run.write_state(&State { daemons })?;
        let ready = interrupt.wait_for(READY_WITHIN, || {
            if let Ok(Some(status)) = child.try_wait() {
                let tail = self.log_tail(controller::NODE);
                return Err(LabError::Failed(format!("the path server did not start ({status}){tail}")));
            }
            let connects = || Ok(TcpStream::connect((Ipv6Addr::LOCALHOST, controller::API)).is_ok());
            Ok(netns::enter(&self.netns(controller::NODE), connects)?.then_some(()))
        })?;
        ready.ok_or_else(|| LabError::Failed(format!("no path server{}", self.log_tail(controller::NODE))))?;
        screen.line("  path controller ready: srv6d path-server, its topology is this lab");
        Ok(())
    }

    fn configure_kernel(&self, node: &Node) -> Result<(), LabError> {
        let netns = self.netns(&node.name);
        netns::ip_batch(&netns, &kernel::addresses(&self.topology, node))?;
        netns::sysctl(&netns, &kernel::settings(&self.topology, node))?;
        netns::enter(&netns, || {
            for port in self.topology.ports(&node.name) {
                // A veth hands over packets with unfinished TCP and UDP checksums: whoever receives them through
                // AF_XDP would forward garbage. With `tx off` the sender finishes them.
                netns::run(netns::tool("ethtool").args(["-K", &port.own.port, "tx", "off"]))?;
            }
            Ok(())
        })
    }

    /// Runs `action` for every node at the same time; the first error, in the order of the file, counts.
    fn each_node(&self, action: impl Fn(&Node) -> Result<(), LabError> + Sync) -> Result<(), LabError> {
        let action = &action;
        thread::scope(|scope| {
            let threads: Vec<_> = self.topology.nodes().map(|node| scope.spawn(move || action(node))).collect();
            let results: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
            results.into_iter().try_for_each(|result| {
                result.unwrap_or_else(|_| Err(LabError::Failed("a thread of the lab died".to_owned())))
            })
        })
    }

    fn start_daemons(&self, interrupt: &Interrupt, screen: &mut Screen) -> Result<(), LabError> {
        let begin = Instant::now();
        let mut state = self.run.state();
        let mut children = Vec::new();
        for node in self.topology.nodes().filter(|node| node.kind == Kind::Srv6d) {
            let child = self.start_daemon(node)?;
            let process = Process::of(child.id()).ok_or_else(|| {
                LabError::Failed(format!("srv6d of {} ended at once{}", node.name, self.log_tail(&node.name)))
            })?;
            state.daemons.push(Daemon { node: node.name.clone(), process });
            children.push((node, child));
            // Written after each start: whatever happens now, `lab down` finds what runs.
            self.run.write_state(&state)?;
        }
        if children.is_empty() {
            return Ok(());
        }
        screen.print("  srv6d ready:");
        let all_ready = interrupt.wait_for(READY_WITHIN, || {
            let mut waiting = Vec::new();
            for (node, mut child) in children.drain(..) {
                if self.ready(node, &mut child)? {
                    screen.print(&format!(" {}", node.name));
                } else {
                    waiting.push((node, child));
                }
            }
            children = waiting;
            Ok(children.is_empty().then_some(()))
        })?;
        if let (None, Some((node, _))) = (all_ready, children.first()) {
            return Err(self.never_ready(node));
        }
        screen.line(&styled(DIM, &format!("  {:.1} s", begin.elapsed().as_secs_f32())));
        Ok(())
    }

    fn start_daemon(&self, node: &Node) -> Result<Child, LabError> {
        let config = self.run.config(&node.name);
        let text = node_config::srv6d_toml(&self.topology, node, &self.run.socket(&node.name));
        fs::write(&config, text).map_err(|error| LabError::io("write", &config, &error))?;
        self.spawn(&node.name, |command| {
            command.args(["run", "--config"]).arg(&config);
        })
    }

    /// Starts this program in a node, with its log there.
    fn spawn(&self, node: &str, arguments: impl FnOnce(&mut Command)) -> Result<Child, LabError> {
        let log_path = self.run.log(node);
        let log = File::create(&log_path).map_err(|error| LabError::io("write", &log_path, &error))?;
        let log_too = log.try_clone().map_err(|error| LabError::io("write", &log_path, &error))?;
        let mut command = netns::exec(&self.netns(node), own_program()?);
        arguments(&mut command);
        command
            .stdout(Stdio::from(log))
            .stderr(Stdio::from(log_too))
            // Each has the socket of its configuration, whatever the caller's `srv6d show` is set to.
            .env_remove("SRV6D_SOCKET")
            // Ctrl-C goes to the whole process group of the terminal; these are taken down in order instead.
            .process_group(0)
            .spawn()
            .map_err(|error| LabError::Failed(format!("cannot start srv6d of {node}: {error}")))
    }

    /// True once srv6d answers and waits for nothing any more.
    fn ready(&self, node: &Node, child: &mut Child) -> Result<bool, LabError> {
        if let Ok(Some(status)) = child.try_wait() {
            let tail = self.log_tail(&node.name);
            return Err(LabError::Failed(format!("srv6d of {} did not start ({status}){tail}", node.name)));
        }
        let answer = client::ask(&self.run.socket(&node.name), &Request::Show { topic: Topic::Generation });
        let settled = matches!(answer, Ok(Response::Generation(view)) if view.pending.is_empty());
        if !settled || !controller::asks(&self.topology, node) {
            return Ok(settled);
        }
        let answer = client::ask(&self.run.socket(&node.name), &Request::Show { topic: Topic::Source });
        let in_force =
            |view: &SourceView| view.state == "fresh" && view.peers.iter().all(|row| row.programmed == "yes");
        Ok(matches!(answer, Ok(Response::Source(views)) if views.iter().all(in_force)))
    }

    fn never_ready(&self, node: &Node) -> LabError {
        let seconds = READY_WITHIN.as_secs();
        LabError::Failed(format!(
            "srv6d of {} was not ready within {seconds} s{}",
            node.name,
            self.log_tail(&node.name)
        ))
    }

    /// The last lines of a node's log, for an error message: the log itself goes with the lab.
    fn log_tail(&self, node: &str) -> String {
        let text = fs::read_to_string(self.run.log(node)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines.get(lines.len().saturating_sub(12)..).unwrap_or_default().join("\n  ");
        if tail.is_empty() { String::new() } else { format!("\nits last words:\n  {tail}") }
    }

    /// One echo over every link: shows that ND and the kernel still have their packets on the ports, and lets both
    /// ends know each other before the first packet that matters.
    fn check_links(&self, interrupt: &Interrupt, screen: &mut Screen) -> Result<(), LabError> {
        interrupt.check()?;
        let silent: Vec<String> = thread::scope(|scope| {
            let probes: Vec<_> = self.topology.links().map(|link| scope.spawn(|| self.probe(link))).collect();
            probes.into_iter().filter_map(|probe| probe.join().ok().flatten()).collect()
        });
        interrupt.check()?;
        if silent.is_empty() {
            screen.line(&format!("  {} links answer a ping", self.topology.links.len()));
            return Ok(());
        }
        Err(LabError::Failed(format!("no answer to a ping over these links: {}", silent.join(", "))))
    }

    /// `None` when the other end of the link answered.
    fn probe(&self, link: &Link) -> Option<String> {
        let [a, b] = &link.ends;
        let port = self.topology.ports(&a.node).into_iter().find(|port| port.own.port == a.port)?;
        let target = port.neighbor_v6()?.to_string();
        let answered = netns::enter(&self.netns(&a.node), || {
            netns::run(netns::tool("ping").args(["-n", "-q", "-c", "1", "-w", "5", "-I", &a.port, &target]))
        });
        answered.is_err().then(|| format!("{} {} - {} {}", a.node, a.port, b.node, b.port))
    }

    /// Stops every srv6d, deletes the namespaces, removes the run directory. Goes on after an error.
    ///
    /// # Errors
    /// What could not be cleaned up.
    pub fn take_down(mut self) -> Result<(), LabError> {
        self.keep = true;
        self.clear()
    }

    fn clear(&self) -> Result<(), LabError> {
        let mut errors = stop(&self.run.state());
        let deleted = self.each_node(|node| netns::delete(&self.netns(&node.name)));
        let controller = netns::delete(&self.netns(controller::NODE));
        errors.extend(controller.err().map(|error| error.to_string()));
        errors.extend(deleted.err().map(|error| error.to_string()));
        errors.extend(self.run.remove().err().map(|error| error.to_string()));
        if errors.is_empty() { Ok(()) } else { Err(LabError::Failed(errors.join("\n"))) }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !self.keep
            && let Err(error) = self.clear()
        {
            eprintln!("{error}");
        }
    }
}

/// This program, which is every node's srv6d too.
///
/// # Errors
/// The kernel does not say where it is.
pub fn own_program() -> Result<PathBuf, LabError> {
    std::env::current_exe().map_err(|error| LabError::io("find the program", Path::new("/proc/self/exe"), &error))
}

/// Ends every srv6d; what could not be ended.
fn stop(state: &State) -> Vec<String> {
    let signal = |signal: Signal| {
        for daemon in state.daemons.iter().filter(|daemon| daemon.process.alive()) {
            // It may end between the question and the signal.
            let _ = kill(Pid::from_raw(daemon.process.pid), signal);
        }
    };
    for (name, patience) in [(Signal::SIGTERM, GONE_WITHIN), (Signal::SIGKILL, GONE_WITHIN)] {
        signal(name);
        let deadline = Instant::now() + patience;
        while state.daemons.iter().any(|daemon| daemon.process.alive()) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
    }
    let left = state.daemons.iter().filter(|daemon| daemon.process.alive());
    left.map(|daemon| format!("srv6d of {} (pid {}) cannot be ended", daemon.node, daemon.process.pid)).collect()
}

/// A process that ends with this value.
#[derive(Debug)]
pub struct Attended(pub Child);

impl Attended {
    /// Starts it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &mut Command) -> Result<Self, LabError> {
        let program = command.get_program().to_owned();
        let child = command.spawn();
        child.map(Self).map_err(|error| LabError::Failed(format!("cannot run {}: {error}", program.display())))
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        // It may have ended by itself; both calls say so, and nothing is left to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
