//! `srv6d lab fail`: makes a node fail. BGP finds the ways around a router, and probes those around a node that drops packets
//! silently.

use srv6d_netns as netns;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use nix::sys::signal::Signal;

use super::error::LabError;
use super::fabric::Lab;
use super::interrupt::Interrupt;
use super::state::{LabProgram, State};
use super::topology::{Node, Topology};
use super::{convergence, processes, silent};
use srv6d_process::Process;

/// The way in which a router fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Failure {
    /// Its links go down: the neighbours see it at once
    Links,
    /// srv6d, zebra and bgpd are killed: the kernel closes their sessions
    Kill,
    /// srv6d, zebra and bgpd are stopped (SIGSTOP): the neighbours wait for the hold time
    Freeze,
    /// Only zebra and bgpd are killed; srv6d forwards by the routes that are left in the kernel
    Frr,
    /// It drops every packet that it forwards; its links stay up, and BGP goes on. Only hosts that probe their paths notice
    Silent,
}

impl Failure {
    /// Returns a short description.
    pub const fn says(self) -> &'static str {
        match self {
            Self::Links => "links down",
            Self::Kill => "srv6d and FRR killed",
            Self::Freeze => "srv6d and FRR frozen",
            Self::Frr => "FRR killed, srv6d goes on",
            Self::Silent => "drops everything it forwards",
        }
    }
}

/// Returns the node that can fail in this way.
///
/// # Errors
/// There is no such node, or it cannot.
pub fn failing<'l>(lab: &'l Lab, name: &str, how: Failure) -> Result<&'l Node, LabError> {
    if how == Failure::Silent { silent::node(lab, name) } else { router(lab, name) }
}

/// Returns the router with this name.
///
/// # Errors
/// There is no such router.
fn router<'l>(lab: &'l Lab, name: &str) -> Result<&'l Node, LabError> {
    lab.topology.routers().find(|node| node.name == name).ok_or_else(|| {
        let names: Vec<&str> = lab.topology.routers().map(|node| node.name.as_str()).collect();
        LabError::Invalid(if names.is_empty() {
            "no node of this lab runs a router\nfix: bring it up with `srv6d lab up --routing bgp`".to_owned()
        } else {
            format!("{name:?} runs no router\nfix: use one of {}", names.join(", "))
        })
    })
}

/// Makes a router fail. Returns as soon as it has failed.
///
/// # Errors
/// The kernel refused an operation.
pub fn fail(lab: &Lab, node: &Node, how: Failure) -> Result<(), LabError> {
    let state = lab.run.state();
    let killed = match how {
        Failure::Links => return links(lab, node, "down"),
        Failure::Freeze => {
            processes::send(&state.of_node(&node.name), Signal::SIGSTOP);
            return Ok(());
        }
        Failure::Silent => return silent::begin(lab, node),
        Failure::Kill => state.of_node(&node.name),
        Failure::Frr => routers(&state, node),
    };
    match processes::kill(&killed).first() {
        None => Ok(()),
        Some(left) => Err(LabError::Failed(format!("process {} of {} cannot be killed", left.pid, node.name))),
    }
}

/// Returns the processes of zebra and bgpd of a node.
pub fn routers(state: &State, node: &Node) -> Vec<Process> {
    let programs = [LabProgram::Zebra, LabProgram::Bgpd].into_iter();
    programs.filter_map(|program| state.process(&node.name, program)).collect()
}

/// Waits until the others go round a failed node. Returns the time since `begin`.
///
/// # Errors
/// They do not, or the user pressed Ctrl-C.
pub fn wait_without(
    lab: &Lab,
    node: &Node,
    how: Failure,
    begin: Instant,
    interrupt: &Interrupt,
) -> Result<Duration, LabError> {
    if how == Failure::Silent {
        silent::wait(lab, node, false, interrupt)?;
        return Ok(begin.elapsed());
    }
    convergence::wait(lab, &without(&lab.topology, &node.name), interrupt, |_| ())?;
    Ok(begin.elapsed())
}

/// Sets all links of a node `up` or `down`.
///
/// # Errors
/// The kernel refused the change.
pub fn links(lab: &Lab, node: &Node, state: &str) -> Result<(), LabError> {
    let ports = lab.topology.ports(&node.name);
    let commands: Vec<String> = ports.iter().map(|port| format!("link set {} {state}", port.own.port)).collect();
    Ok(netns::ip_batch(&lab.netns(&node.name), &commands)?)
}

/// Returns the topology without a node and its links.
fn without(topology: &Topology, lost: &str) -> Topology {
    let mut left = topology.clone();
    left.nodes.retain(|node| node.get_ref().name != lost);
    left.links.retain(|link| link.get_ref().ends.iter().all(|end| end.node != lost));
    left
}
