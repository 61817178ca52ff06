//! A running lab: how it is brought up and taken down.

use crate::namespaces;
use srv6d_netns as netns;
use std::fs::{self, File};
use std::net::{Ipv6Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use srv6d_api::client;
use srv6d_api::state::SourceView;
use srv6d_api::{Request, Response, Topic};
use srv6d_process::Process;

use super::controller;
use super::error::LabError;
use super::frr::{self, Frr};
use super::interrupt::Interrupt;
use super::screen::{DIM, Screen, styled};
use super::state::{LabProgram, RunDirectory, State};
use super::topology::{Chosen, Forwarder, Link, Node, Topology};
use super::{convergence, kernel, node_config, probes, processes};

/// A program that makes no progress towards being ready for this long never becomes ready.
const READY_WITHIN: Duration = Duration::from_mins(2);
/// Number of remaining steps of a srv6d that does not answer yet. It is larger than the number of parts for which it
/// can wait.
const SILENT: usize = 10_000;

/// A lab, from its preparation until it is taken down.
#[derive(Debug)]
pub struct Lab {
    /// Topology of the lab.
    pub topology: Topology,
    /// Run directory of the lab.
    pub run: RunDirectory,
    /// Whether the lab stays up when this value is dropped.
    keep: bool,
}

impl Lab {
    /// Makes namespaces, links and routes, starts every srv6d and waits for all of them. If something fails or the user
    /// presses Ctrl-C, takes down what exists already.
    ///
    /// # Errors
    /// The lab is up already, an operation was refused, a srv6d did not start, or the user pressed Ctrl-C.
    pub fn bring_up(
        topology: Topology,
        text: &str,
        interrupt: &Interrupt,
        screen: &mut Screen,
    ) -> Result<Self, LabError> {
        let lab = Self::prepare(topology, text)?;
        lab.come_up(interrupt, screen)?;
        Ok(lab)
    }

    /// Checks everything that can be checked without changing the machine, and makes the run directory. Nothing is
    /// running yet. When this value is dropped, the lab is taken down.
    ///
    /// # Errors
    /// The lab is up already, a program is missing, or a namespace of that name exists.
    pub fn prepare(topology: Topology, text: &str) -> Result<Self, LabError> {
        netns::run(netns::tool("ping").arg("-V"))?;
        for node in topology.nodes() {
            kernel::routes(&topology, node)?;
        }
        topology.routers().next().map(|_| Frr::find()).transpose()?;
        let run = RunDirectory::create(&topology.name)?;
        let taken = topology
            .nodes()
            .try_for_each(|node| namespaces::refuse_existing(&namespaces::name(&topology.name, &node.name)));
        let taken =
            taken.and_then(|()| namespaces::refuse_existing(&namespaces::name(&topology.name, controller::NODE)));
        if let Err(error) = taken {
            run.remove()?;
            return Err(error);
        }
        let lab = Self { topology, run, keep: false };
        lab.run.write_topology(&lab.topology, text)?;
        let chosen = Chosen { routing: Some(lab.topology.routing), via: Some(lab.topology.via) };
        lab.run.write_state(&State { chosen, daemons: Vec::new() })?;
        Ok(lab)
    }

    /// Brings up a prepared lab: network, path controller, every srv6d, FRR, and one ping over each link. Waits as long
    /// as there is progress.
    ///
    /// # Errors
    /// An operation was refused, a program did not start or makes no progress, or the user pressed Ctrl-C. What exists
    /// by then stays until this value is dropped.
    pub fn come_up(&self, interrupt: &Interrupt, screen: &mut Screen) -> Result<(), LabError> {
        self.make_network(interrupt, screen)?;
        if self.topology.controller.is_some() {
            self.start_controller(interrupt)?;
            screen.line("  path controller ready: srv6d path-server, its topology is this lab");
        }
        self.start_daemons(interrupt, screen)?;
        if self.topology.routers().next().is_some() {
            self.start_routing(&Frr::find()?, interrupt, screen)?;
        }
        let links: Vec<_> = self.topology.links().enumerate().collect();
        probes::check(self, &links, interrupt)?;
        screen.line(&format!("  {} links answer a ping", links.len()));
        Ok(())
    }

    /// Opens the lab of this name. It stays up when this value is dropped.
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

    /// Keeps the lab in its present state, fully or partly up.
    pub fn leave(mut self) {
        self.keep = true;
    }

    /// Returns the namespace of a node.
    pub fn netns(&self, node: &str) -> String {
        namespaces::name(&self.topology.name, node)
    }

    /// Sends a request to the srv6d of a node.
    ///
    /// # Errors
    /// It does not answer, or its answer does not fit the request.
    pub fn ask(&self, node: &str, request: &Request) -> Result<Response, LabError> {
        client::ask(&self.run.socket(node), request).map_err(|error| {
            LabError::Failed(format!("srv6d of {node} did not answer: {error}{}", self.log_tail(node)))
        })
    }

    /// Replaces a node's `srv6d.toml` and reloads it. Returns the generation that is then in force.
    ///
    /// # Errors
    /// The file cannot be written, or srv6d does not take it.
    pub fn reload_with(&self, node: &str, text: &str) -> Result<u64, LabError> {
        self.run.write(&format!("{node}/srv6d.toml"), text)?;
        match self.ask(node, &Request::Reload { dry_run: false })? {
            Response::Reloaded(reloaded) => Ok(reloaded.generation),
            Response::Refused(refusal) => Err(LabError::Failed(format!(
                "srv6d of {node} refuses its srv6d.toml\n{}",
                refusal.errors.join("\n\n")
            ))),
            other => Err(LabError::Failed(format!("srv6d of {node} answered something else: {other:?}"))),
        }
    }

    fn make_network(&self, interrupt: &Interrupt, screen: &mut Screen) -> Result<(), LabError> {
        let begin = Instant::now();
        let lab = &self.topology.name;
        self.each_node(|node| {
            let netns = self.netns(&node.name);
            netns::create(&netns)?;
            Ok(netns::sysctl(&netns, &kernel::early_settings())?)
        })?;
        interrupt.check()?;
        let links: Vec<(usize, &Link)> = self.topology.links().enumerate().collect();
        self.each_node(|node| {
            let own = links.iter().filter(|(_, link)| link.ends.first().is_some_and(|end| end.node == node.name));
            let commands: Vec<String> =
                own.map(|(number, link)| kernel::link(lab, link, *number, self.topology.mtu)).collect();
            Ok(netns::ip_batch(&self.netns(&node.name), &commands)?)
        })?;
        interrupt.check()?;
        self.each_node(|node| self.configure_kernel(node))?;
        interrupt.check()?;
        // A route needs its neighbour's link, so every device is brought up before the first route is added.
        self.each_node(|node| Ok(netns::ip_batch(&self.netns(&node.name), &kernel::routes(&self.topology, node)?)?))?;
        self.connect_controller()?;
        let (nodes, links) = (self.topology.nodes.len(), links.len());
        screen.line(&format!(
            "  {nodes} namespaces, {links} links  {}",
            styled(DIM, &format!("{:.1} s", begin.elapsed().as_secs_f32()))
        ));
        Ok(())
    }

    /// Makes the controller's namespace and a link to every host that asks it.
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
        for link in &links {
            netns::ip_batch(&self.netns(link.host), &controller::address_commands(controller::PORT, link.peer))?;
        }
        Ok(())
    }

    /// Starts the path server and waits until it listens. No host asks before that.
    ///
    /// # Errors
    /// It does not start, or the user pressed Ctrl-C.
    pub fn start_controller(&self, interrupt: &Interrupt) -> Result<(), LabError> {
        let graph = format!("{:#}", controller::graph(&self.topology));
        self.run.write(&format!("{}/topology.json", controller::NODE), &graph)?;
        let listen = format!("[::]:{}", controller::API);
        let mut child = self.spawn(controller::NODE, &own_program()?, &self.run.log(controller::NODE), |command| {
            command.args(["path-server", "--listen", &listen, "--topology"]);
            command.arg(self.run.path().join(controller::NODE).join("topology.json"));
        })?;
        self.record(controller::NODE, LabProgram::Srv6d, &child)?;
        let ready = interrupt.wait_for(READY_WITHIN, || {
            if let Ok(Some(status)) = child.try_wait() {
                let tail = self.log_tail(controller::NODE);
                return Err(LabError::Failed(format!("the path server did not start ({status}){tail}")));
            }
            let connects = || Ok::<_, LabError>(TcpStream::connect((Ipv6Addr::LOCALHOST, controller::API)).is_ok());
            Ok(netns::enter(&self.netns(controller::NODE), connects)?.then_some(()))
        })?;
        ready.ok_or_else(|| LabError::Failed(format!("no path server{}", self.log_tail(controller::NODE))))
    }

    fn configure_kernel(&self, node: &Node) -> Result<(), LabError> {
        let netns = self.netns(&node.name);
        netns::ip_batch(&netns, &kernel::addresses(&self.topology, node))?;
        netns::sysctl(&netns, &kernel::settings(&self.topology, node))?;
        netns::enter(&netns, || {
            for port in self.topology.ports(&node.name) {
                // A veth passes packets on with unfinished TCP and UDP checksums, and a receiver on AF_XDP would
                // forward them in this state. With `tx off` the sender finishes them. With `gro on` an end without an
                // XDP program takes what that of its neighbour sends.
                let settings = ["tx", "off", "txvlan", "off", "gro", "on"];
                netns::run(netns::tool("ethtool").args(["-K", &port.own.port]).args(settings))?;
            }
            Ok(())
        })
    }

    /// Runs `action` for every node at the same time. Returns the first error, in the order of the file.
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
        let mut children = Vec::new();
        for node in self.topology.nodes().filter(|node| node.kind == Forwarder::Srv6d) {
            children.push((node, self.start_daemon(node)?));
        }
        if children.is_empty() {
            return Ok(());
        }
        screen.print("  srv6d ready:");
        let all_ready = interrupt.wait_until_nothing_is_left(READY_WITHIN, || {
            let (mut waiting, mut left) = (Vec::new(), 0);
            for (node, mut child) in children.drain(..) {
                let steps = self.steps_left(node, &mut child)?;
                if steps == 0 {
                    screen.print(&format!(" {}", node.name));
                } else {
                    waiting.push((node, child));
                }
                left += steps;
            }
            children = waiting;
            Ok(left)
        })?;
        if let (false, Some((node, _))) = (all_ready, children.first()) {
            return Err(self.never_ready(node));
        }
        screen.line(&styled(DIM, &format!("  {:.1} s", begin.elapsed().as_secs_f32())));
        Ok(())
    }

    fn start_daemon(&self, node: &Node) -> Result<Child, LabError> {
        let config = self.run.config(&node.name);
        // If a node is started again, the user may have changed its configuration, so that is kept.
        if !config.exists() {
            let text = node_config::srv6d_toml(&self.topology, node, &self.run.socket(&node.name));
            fs::write(&config, text).map_err(|error| LabError::io("write", &config, &error))?;
        }
        let child = self.spawn(&node.name, &own_program()?, &self.run.log(&node.name), |command| {
            command.args(["run", "--config"]).arg(&config);
        })?;
        self.record(&node.name, LabProgram::Srv6d, &child)?;
        Ok(child)
    }

    /// Starts a node's srv6d again, and waits until it forwards.
    ///
    /// # Errors
    /// It does not start, or the user pressed Ctrl-C.
    pub fn restart_daemon(&self, node: &Node, interrupt: &Interrupt) -> Result<(), LabError> {
        // A srv6d that was killed releases its sockets a little later.
        let socket = self.run.socket(&node.name);
        interrupt.wait_for(READY_WITHIN, || Ok(UnixStream::connect(&socket).is_err().then_some(())))?;
        let mut child = self.start_daemon(node)?;
        let ready = interrupt.wait_until_nothing_is_left(READY_WITHIN, || self.steps_left(node, &mut child))?;
        if ready { Ok(()) } else { Err(self.never_ready(node)) }
    }

    /// Starts a program in a node. Its output is appended to `log`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(
        &self,
        node: &str,
        program: &Path,
        log: &Path,
        arguments: impl FnOnce(&mut Command),
    ) -> Result<Child, LabError> {
        let file =
            File::options().create(true).append(true).open(log).map_err(|error| LabError::io("write", log, &error))?;
        let file_too = file.try_clone().map_err(|error| LabError::io("write", log, &error))?;
        let mut command = netns::exec(&self.netns(node), program);
        arguments(&mut command);
        command
            .stdout(Stdio::from(file))
            .stderr(Stdio::from(file_too))
            // Each program uses the socket of its own configuration, whatever socket the user's environment names.
            .env_remove("SRV6D_SOCKET")
            // Ctrl-C goes to the whole process group of the terminal. These programs are not part of it, because they
            // are taken down in order.
            .process_group(0)
            .spawn()
            .map_err(|error| LabError::Failed(format!("cannot start {} of {node}: {error}", program.display())))
    }

    /// Records a process after its start, so that `lab down` finds it whatever happens.
    ///
    /// # Errors
    /// It has ended already, or the state cannot be written.
    pub fn record(&self, node: &str, program: LabProgram, child: &Child) -> Result<(), LabError> {
        let process = Process::of(child.id()).ok_or_else(|| {
            LabError::Failed(format!("{} of {node} ended at once{}", program.name(), self.log_tail(node)))
        })?;
        let mut state = self.run.state();
        state.put(node, program, process);
        self.run.write_state(&state)
    }

    /// Returns how many steps a srv6d still has to take before it forwards everything: to answer, to get each part for
    /// which it waits, and to put the controller's paths in force. 0 if it is ready.
    fn steps_left(&self, node: &Node, child: &mut Child) -> Result<usize, LabError> {
        if let Ok(Some(status)) = child.try_wait() {
            let tail = self.log_tail(&node.name);
            return Err(LabError::Failed(format!("srv6d of {} did not start ({status}){tail}", node.name)));
        }
        let answer = client::ask(&self.run.socket(&node.name), &Request::Show { topic: Topic::Generation });
        let Ok(Response::Generation(view)) = answer else { return Ok(SILENT) };
        if !view.pending.is_empty() {
            return Ok((1 + view.pending.len()).min(SILENT));
        }
        if !controller::asks(&self.topology, node) {
            return Ok(0);
        }
        let answer = client::ask(&self.run.socket(&node.name), &Request::Show { topic: Topic::Source });
        let in_force =
            |view: &SourceView| view.state == "fresh" && view.peers.iter().all(|row| row.programmed == "yes");
        Ok(usize::from(!matches!(answer, Ok(Response::Source(views)) if views.iter().all(in_force))))
    }

    fn never_ready(&self, node: &Node) -> LabError {
        let seconds = READY_WITHIN.as_secs();
        LabError::Failed(format!(
            "srv6d of {} is not ready, and came no nearer to it for {seconds} s{}",
            node.name,
            self.log_tail(&node.name)
        ))
    }

    /// Returns the last lines of a node's log for an error message, because the log itself is removed with the lab.
    fn log_tail(&self, node: &str) -> String {
        let text = fs::read_to_string(self.run.log(node)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines.get(lines.len().saturating_sub(12)..).unwrap_or_default().join("\n  ");
        if tail.is_empty() { String::new() } else { format!("\nits last words:\n  {tail}") }
    }

    /// Starts FRR in every router, and waits until its routes are in every node's tables.
    fn start_routing(&self, frr: &Frr, interrupt: &Interrupt, screen: &mut Screen) -> Result<(), LabError> {
        let begin = Instant::now();
        let routers: Vec<&Node> = self.topology.routers().collect();
        routers.iter().try_for_each(|node| frr::prepare(self, frr, node))?;
        frr::start(self, frr, &routers, interrupt)?;
        screen.print("  BGP has converged on:");
        convergence::wait(self, &self.topology, interrupt, |node| screen.print(&format!(" {node}")))?;
        screen.line(&styled(DIM, &format!("  {:.1} s", begin.elapsed().as_secs_f32())));
        Ok(())
    }

    /// Ends every process of the nodes, deletes the namespaces, and removes the run directory. It goes on after an
    /// error.
    ///
    /// # Errors
    /// The parts that could not be cleaned up.
    pub fn take_down(mut self) -> Result<(), LabError> {
        self.keep = true;
        self.clear()
    }

    fn clear(&self) -> Result<(), LabError> {
        let mut errors: Vec<String> = self.end_processes();
        let deleted = self.each_node(|node| Ok(netns::delete(&self.netns(&node.name))?));
        let controller = netns::delete(&self.netns(controller::NODE));
        errors.extend(controller.err().map(|error| error.to_string()));
        errors.extend(deleted.err().map(|error| error.to_string()));
        errors.extend(self.run.remove().err().map(|error| error.to_string()));
        if errors.is_empty() { Ok(()) } else { Err(LabError::Failed(errors.join("\n"))) }
    }

    /// Ends first the processes that the lab has started, so that each can clean up, and then those that somebody else
    /// has started in a node.
    fn end_processes(&self) -> Vec<String> {
        let started: Vec<Process> = self.run.state().daemons.iter().map(|daemon| daemon.process).collect();
        let mut left = processes::end(&started);
        let nodes = self.topology.nodes().map(|node| node.name.as_str()).chain([controller::NODE]);
        let namespaces: Vec<String> = nodes.map(|node| self.netns(node)).collect();
        left.extend(processes::end(&processes::inside(&namespaces)));
        left.iter().map(|process| format!("process {} cannot be ended", process.pid)).collect()
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

/// Returns the path of this program, which is also every node's srv6d.
///
/// # Errors
/// The kernel does not tell the path.
pub fn own_program() -> Result<PathBuf, LabError> {
    std::env::current_exe().map_err(|error| LabError::io("find the program", Path::new("/proc/self/exe"), &error))
}

/// A child process that is ended when this value is dropped.
#[derive(Debug)]
pub struct Attended(pub Child);

impl Attended {
    /// Starts the process.
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
        // The process may have ended by itself. Then both calls fail, and nothing has to be done.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
