//! The fabric lab: a whole SRv6 fabric on one machine, each node a network namespace.
//!
//! ```text
//! topology file ──► topology ──► routing ──┬─► kernel       devices, addresses, kernel routes
//!                                          └─► node_config  srv6d.toml of each srv6d node
//! fabric: namespaces and links up ──► srv6d of every node ready ──► links checked        ... and all of it down again
//! ```

#![forbid(unsafe_code)]

mod arguments;
mod bgp_demo;
mod capture;
mod controller;
mod convergence;
mod counters;
mod demo;
mod emulate;
mod emulated;
mod error;
mod experiment;
mod explain;
mod fabric;
mod frr;
mod gain;
mod generated;
mod graph;
mod impair;
mod interrupt;
mod job;
mod kernel;
mod lateness;
mod losses;
mod moves;
mod namespaces;
mod node_config;
mod outage;
mod picture;
mod probes;
mod processes;
mod reroute;
mod restart;
mod ring;
mod routing;
mod scale;
mod screen;
mod silent;
mod state;
mod status;
mod tool;
mod top;
mod topology;
mod topology_check;
mod traffic;
mod window;

use srv6d_netns as netns;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

pub use arguments::LabArguments;
pub use emulate::Emulate;
pub use error::LabError;
pub use node_config::srv6d_toml;
pub use routing::{PlainRoute, routes as plain_routes};
pub use topology::{
    Chosen, End, FABRIC, FABRIC_BGP, Forwarder, Link, Node, NodePort, Role, Routing, Sid, Steer, SteerPath, Topology,
    Via,
};
pub use window::WINDOW;

use arguments::{LabCommand, Traffic};
use fabric::Lab;
use interrupt::Interrupt;
use outage::Failure;
use screen::{BAD, Screen, styled};
use state::RunDirectory;

/// Runs `srv6d lab ...` and returns the exit status.
pub fn run(arguments: LabArguments) -> ExitCode {
    match dispatch(arguments.command) {
        Ok(code) => code,
        Err(error) => {
            // Mistakes in a topology already begin with "error: ", each with its place.
            let said = error.to_string();
            let is_whole = said.starts_with("error: ") || matches!(error, LabError::Interrupted);
            let said = if is_whole { said } else { format!("error: {said}") };
            anstream::eprintln!("{}", styled(BAD, &said));
            ExitCode::from(error.exit_status())
        }
    }
}

fn dispatch(command: LabCommand) -> Result<ExitCode, LabError> {
    let mut screen = Screen::new();
    match command {
        LabCommand::Up { topology, name, chosen, keep } => up(topology.as_deref(), name, chosen, keep, &mut screen),
        LabCommand::Status { lab, json } => {
            need_root("lab status")?;
            let lab = Lab::open(&lab.running()?)?;
            let all_up = if json { status::print_json(&lab, &mut screen)? } else { status::print(&lab, &mut screen) };
            Ok(if all_up { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        LabCommand::Exec { lab, node, command } => {
            need_root("lab exec")?;
            Err(exec(&Lab::open(&lab.running()?)?, &node, &command))
        }
        LabCommand::Down { lab } => {
            need_root("lab down")?;
            let name = lab.running()?;
            Lab::open(&name)?.take_down()?;
            screen.line(&format!("the lab {name} is down: its processes, namespaces and files are gone"));
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Fail { lab, node, how } => {
            need_root("lab fail")?;
            fail(&Lab::open(&lab.running()?)?, &node, how, &mut screen)
        }
        LabCommand::Repair { lab, node } => {
            need_root("lab repair")?;
            repair(&Lab::open(&lab.running()?)?, &node, &mut screen)
        }
        LabCommand::Restart { lab, node } => {
            need_root("lab restart")?;
            restart(&Lab::open(&lab.running()?)?, &node, &mut screen)
        }
        LabCommand::Impair { lab, link, settings } => {
            need_root("lab impair")?;
            impair::run(&Lab::open(&lab.running()?)?, &link, &settings, &mut screen)?;
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Capture { lab, nodes, wanted } => {
            need_root("lab capture")?;
            capture::run(&Lab::open(&lab.running()?)?, &nodes, &wanted)?;
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Top { lab, pace } => {
            need_root("lab top")?;
            top::run(&Lab::open(&lab.running()?)?, pace)?;
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Explain { lab, node, packet, json } => {
            need_root("lab explain")?;
            let delivered = explain::run(&Lab::open(&lab.running()?)?, &node, packet, json, &mut screen)?;
            Ok(if delivered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        LabCommand::Demo { topology, name, chosen } => {
            need_root("lab demo")?;
            let (topology, text) = read(topology.as_deref(), Some(name), chosen)?;
            match topology.routing {
                Routing::Static => demo::run(topology, &text, &mut screen)?,
                Routing::Bgp => bgp_demo::run(topology, &text, &mut screen)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Job { rounds, json, svg } => {
            need_root("lab job")?;
            gain::run(rounds.into(), json, svg.as_deref(), &mut screen)?;
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Moves { times, json } => {
            need_root("lab moves")?;
            moves::run(times, json, &mut screen)?;
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Scale { switches, idle, json } => {
            need_root("lab scale")?;
            scale::run(scale::Size { switches, idle }, json, &mut screen)?;
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Experiment(arguments) => {
            experiment::run(&arguments)?;
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Topology { routing, size } => {
            let generated = size.topology()?;
            screen.print(generated.as_deref().unwrap_or_else(|| built_in(routing)));
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Graph { topology, name, chosen, format } => {
            let topology = match name {
                Some(name) => topology_of(&name)?,
                None => read(topology.as_deref(), None, chosen)?.0,
            };
            screen.print(&graph::graph(&topology, format));
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Traffic(traffic) => generate(&traffic),
    }
}

fn up(
    file: Option<&Path>,
    name: Option<String>,
    chosen: Chosen,
    keep: bool,
    screen: &mut Screen,
) -> Result<ExitCode, LabError> {
    need_root("lab up")?;
    let which = name.as_ref().map_or_else(String::new, |name| format!(" --name {name}"));
    let (topology, text) = read(file, name, chosen)?;
    let name = topology.name.clone();
    let interrupt = Interrupt::watch()?;
    let begin = Instant::now();
    screen.line(&format!("bringing up the lab {name}"));
    let lab = Lab::prepare(topology, &text)?;
    if let Err(error) = lab.come_up(&interrupt, screen) {
        if keep {
            lab.leave();
            screen.line(&format!(
                "\nthe lab {name} is left as it is; look at it with `srv6d lab status{which}`, end it with `srv6d lab down{which}`"
            ));
        }
        return Err(error);
    }
    lab.leave();
    screen.line(&format!(
        "the lab {name} is up after {:.1} s; look at it with `srv6d lab status{which}`, end it with `srv6d lab down{which}`",
        begin.elapsed().as_secs_f32()
    ));
    Ok(ExitCode::SUCCESS)
}

fn fail(lab: &Lab, name: &str, how: Failure, screen: &mut Screen) -> Result<ExitCode, LabError> {
    let node = outage::failing(lab, name, how)?;
    let (interrupt, begin) = (Interrupt::watch()?, Instant::now());
    outage::fail(lab, node, how)?;
    if how == Failure::Silent && !silent::is_probed(lab) {
        screen.line(&format!("{name}: {}; nobody in this lab probes paths, so nobody goes round it", how.says()));
        return Ok(ExitCode::SUCCESS);
    }
    if how == Failure::Frr {
        screen.line(&format!("{name}: {}", how.says()));
        return Ok(ExitCode::SUCCESS);
    }
    let took = outage::wait_without(lab, node, how, begin, &interrupt)?;
    screen.line(&format!("{name}: {}; the others go round it after {:.2} s", how.says(), took.as_secs_f32()));
    Ok(ExitCode::SUCCESS)
}

fn repair(lab: &Lab, name: &str, screen: &mut Screen) -> Result<ExitCode, LabError> {
    let (interrupt, begin) = (Interrupt::watch()?, Instant::now());
    restart::repair(lab, name, &interrupt)?;
    screen.line(&format!("{name} is back, and used again after {:.2} s", begin.elapsed().as_secs_f32()));
    Ok(ExitCode::SUCCESS)
}

fn restart(lab: &Lab, name: &str, screen: &mut Screen) -> Result<ExitCode, LabError> {
    let (interrupt, begin) = (Interrupt::watch()?, Instant::now());
    restart::restart(lab, name, &interrupt)?;
    screen.line(&format!("{name} was restarted, and is used again after {:.2} s", begin.elapsed().as_secs_f32()));
    Ok(ExitCode::SUCCESS)
}

const fn built_in(routing: Routing) -> &'static str {
    match routing {
        Routing::Static => FABRIC,
        Routing::Bgp => FABRIC_BGP,
    }
}

/// Reads the topology of a lab that is up.
///
/// # Errors
/// There is no such lab.
pub fn topology_of(name: &str) -> Result<Topology, LabError> {
    topology_check::lab_name(name)?;
    let found = RunDirectory::find(name);
    found.ok_or_else(|| LabError::Failed(format!("no lab {name} is up\nfix: `srv6d lab up`")))?.topology()
}

fn read(file: Option<&Path>, name: Option<String>, chosen: Chosen) -> Result<(Topology, String), LabError> {
    let (text, shown) = match file {
        None => (built_in(chosen.routing.unwrap_or_default()).to_owned(), "built-in topology".to_owned()),
        Some(path) => {
            let text = srv6d_text::read_text_or_pipe(path).map_err(|error| {
                LabError::Invalid(format!(
                    "cannot read the topology {}: {error}\nfix: name an existing file, or begin one with `srv6d lab topology`",
                    path.display()
                ))
            })?;
            (text, path.display().to_string())
        }
    };
    let mut topology = Topology::parse_with(&text, &shown, chosen)?;
    if let Some(name) = name {
        topology_check::lab_name(&name)?;
        topology.name = name;
    }
    Ok((topology, text))
}

/// Replaces this process by the command. It returns only if that fails.
fn exec(lab: &Lab, node: &str, command: &[OsString]) -> LabError {
    let is_controller = lab.topology.controller.is_some() && node == controller::NODE;
    if lab.topology.node(node).is_none() && !is_controller {
        let controller = lab.topology.controller.as_ref().map(|_| controller::NODE);
        let names: Vec<&str> = lab.topology.nodes().map(|node| node.name.as_str()).chain(controller).collect();
        return LabError::Invalid(format!(
            "there is no node {node:?} in this lab\nfix: use one of {}",
            names.join(", ")
        ));
    }
    let Some((program, arguments)) = command.split_first() else {
        return LabError::Invalid("no command\nfix: write it after `--`".to_owned());
    };
    let mut process = netns::exec(&lab.netns(node), program);
    process.env("PATH", search_path(lab, node, &std::env::var("PATH").unwrap_or_default()));
    process.args(arguments).stdin(std::process::Stdio::inherit());
    // This makes `srv6d show ...` in a node talk to the srv6d of the node.
    process.env("SRV6D_SOCKET", lab.run.socket(node));
    // With this `srv6d traceroute` names the nodes.
    process.env("SRV6D_LAB", &lab.topology.name);
    let error = process.exec();
    LabError::Failed(format!("cannot run ip netns exec: {error}"))
}

/// Returns a search path with which `lab exec NODE -- srv6d ...` runs this srv6d, installed or not, and `vtysh` talks
/// to the node's own FRR.
fn search_path(lab: &Lab, node: &str, path: &str) -> String {
    let own = fabric::own_program().ok().and_then(|program| Some(program.parent()?.display().to_string()));
    let programs = frr::programs(lab, node);
    format!("{}:{}:{path}:/usr/sbin:/sbin", programs.display(), own.unwrap_or_default())
}

fn need_root(what: &str) -> Result<(), LabError> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let arguments: Vec<String> = std::env::args().skip(1).map(|argument| quoted(&argument)).collect();
    Err(LabError::Failed(format!(
        "{what} needs root: its nodes are network namespaces\nfix: sudo {} {}",
        fabric::own_program()?.display(),
        arguments.join(" ")
    )))
}

/// Quotes an argument for a shell.
fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}

fn generate(traffic: &Traffic) -> Result<ExitCode, LabError> {
    let done = match traffic {
        Traffic::TcpReceive { listen } => traffic::tcp_receive(*listen),
        Traffic::TcpSend { to, bytes, seed } => traffic::tcp_send(*to, *bytes, *seed),
        Traffic::UdpReceive { listen } => traffic::udp_receive(*listen),
        Traffic::UdpSend(stream) => traffic::udp_send(stream),
        Traffic::Ring(rank) => ring::run(rank),
    };
    done.map(|()| ExitCode::SUCCESS).map_err(|error| {
        // The kernel's name for the timeout of a socket would not help the user.
        let reason = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "the other side kept silent".to_owned(),
            _ => error.to_string(),
        };
        LabError::Failed(format!("{traffic:?}: {reason}"))
    })
}
