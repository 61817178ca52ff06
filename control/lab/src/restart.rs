//! `srv6d lab restart` and `lab repair`: bring a node back and wait until it is used again.

use srv6d_netns as netns;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::error::LabError;
use super::fabric::Lab;
use super::frr::{self, Frr};
use super::interrupt::Interrupt;
use super::outage;
use super::state::LabProgram;
use super::topology::{Forwarder, Link, Node};
use super::{controller, convergence, kernel, probes, processes, silent, status};
use srv6d_process::Process;

/// If none of a router's sessions comes up for this long, no further one will.
const SESSIONS_WITHIN: Duration = Duration::from_secs(30);

/// Ends the programs of a node that are still running, starts all of them again, and waits until the node is used
/// again. The node may be the path controller. A srv6d that somebody has started by hand is ended, too.
///
/// # Errors
/// There is no such node, or it has no programs; a program does not end or start; or the user pressed Ctrl-C.
pub fn restart(lab: &Lab, name: &str, interrupt: &Interrupt) -> Result<(), LabError> {
    let is_controller = lab.topology.controller.is_some() && name == controller::NODE;
    let node = if is_controller { None } else { Some(node_with_programs(lab, name)?) };
    end_programs(lab, name)?;
    match node {
        None => lab.start_controller(interrupt),
        Some(node) => {
            start_dead(lab, node, interrupt)?;
            wait_until_used(lab, node, interrupt)
        }
    }
}

/// Brings a node back, whatever has failed: frozen programs, links, kernel routes that vanished with the links, srv6d,
/// FRR, ports that lose every packet, in this order. Waits until the node is used again.
///
/// # Errors
/// There is no such node, a program does not start, or the user pressed Ctrl-C.
pub fn repair(lab: &Lab, name: &str, interrupt: &Interrupt) -> Result<(), LabError> {
    let node = node(lab, name)?;
    processes::send(&lab.run.state().of_node(name), Signal::SIGCONT);
    outage::links(lab, node, "up")?;
    netns::ip_batch(&lab.netns(name), &kernel::routes(&lab.topology, node)?)?;
    start_dead(lab, node, interrupt)?;
    let was_silent = silent::end(lab, node)?;
    wait_until_used(lab, node, interrupt)?;
    if was_silent { silent::wait(lab, node, true, interrupt) } else { Ok(()) }
}

fn node<'l>(lab: &'l Lab, name: &str) -> Result<&'l Node, LabError> {
    lab.topology.node(name).ok_or_else(|| {
        let names: Vec<&str> = lab.topology.nodes().map(|node| node.name.as_str()).collect();
        LabError::Invalid(format!("there is no node {name:?} in this lab\nfix: use one of {}", names.join(", ")))
    })
}

fn node_with_programs<'l>(lab: &'l Lab, name: &str) -> Result<&'l Node, LabError> {
    let node = node(lab, name)?;
    if node.kind == Forwarder::Srv6d || lab.topology.speaks_bgp(node) {
        return Ok(node);
    }
    Err(LabError::Invalid(format!(
        "{name} has no srv6d and no FRR to restart: its kernel forwards (kind = \"linux\")\n\
         fix: `srv6d lab repair {name}` brings back its links and routes"
    )))
}

fn end_programs(lab: &Lab, name: &str) -> Result<(), LabError> {
    let mut running = lab.run.state().of_node(name);
    let by_hand = status::answering(lab, name).and_then(|pid| Process::of(pid.cast_unsigned()));
    if let Some(process) = by_hand.filter(|process| !running.contains(process)) {
        running.push(process);
    }
    match processes::end(&running).first() {
        None => Ok(()),
        Some(left) => Err(LabError::Failed(format!("process {} of {name} cannot be ended", left.pid))),
    }
}

/// Starts those programs of a node that are not running.
fn start_dead(lab: &Lab, node: &Node, interrupt: &Interrupt) -> Result<(), LabError> {
    let state = lab.run.state();
    let dead = |program| !state.process(&node.name, program).is_some_and(Process::alive);
    if node.kind == Forwarder::Srv6d && dead(LabProgram::Srv6d) && !runs_by_hand(lab, &node.name) {
        lab.restart_daemon(node, interrupt)?;
    }
    if lab.topology.speaks_bgp(node) && (dead(LabProgram::Zebra) || dead(LabProgram::Bgpd)) {
        // If one of the two is dead, the other one has lost its connection to it and does not work alone. So both are
        // ended and started again.
        processes::end(&outage::routers(&state, node));
        let frr = Frr::find()?;
        if !frr::is_prepared(lab, node) {
            frr::prepare(lab, &frr, node)?;
        }
        frr::start(lab, &frr, &[node], interrupt)?;
    }
    Ok(())
}

/// Returns true if a srv6d that the lab did not start answers in the node. One that has just died may still seem to
/// answer.
fn runs_by_hand(lab: &Lab, name: &str) -> bool {
    let started = lab.run.state().process(name, LabProgram::Srv6d).map(|process| process.pid);
    status::answering(lab, name).is_some_and(|pid| started != Some(pid))
}

/// Waits until a node is used again. For a router that is when the routes of all others are as before; for any other
/// node, when its links answer a ping.
fn wait_until_used(lab: &Lab, node: &Node, interrupt: &Interrupt) -> Result<(), LabError> {
    if !lab.topology.speaks_bgp(node) {
        let is_own = |link: &Link| link.ends.iter().any(|end| end.node == node.name);
        let links: Vec<_> = lab.topology.links().enumerate().filter(|(_, link)| is_own(link)).collect();
        return probes::check(lab, &links, interrupt);
    }
    // The routes alone prove nothing, because those from before the failure may still be there.
    let missing = || match frr::sessions(lab, &node.name) {
        Ok(sessions) if !sessions.is_empty() => sessions.iter().filter(|session| !session.is_established()).count(),
        _ => usize::MAX,
    };
    if !interrupt.wait_until_nothing_is_left(SESSIONS_WITHIN, || Ok(missing()))? {
        return Err(LabError::Failed(format!("BGP sessions of {} are not up again: see `lab status`", node.name)));
    }
    convergence::wait(lab, &lab.topology, interrupt, |_| ())
}
