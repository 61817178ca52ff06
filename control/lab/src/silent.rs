//! A node that silently drops what it forwards: all of its ports are emulated links that lose every packet. What its kernel
//! sends, such as BGP and neighbour discovery, goes on.

use std::net::Ipv6Addr;
use std::time::Duration;

use srv6d_api::state::{ProbeRow, ProbesView};
use srv6d_api::{Request, Response, Topic};

use super::emulate::Emulate;
use super::error::LabError;
use super::fabric::Lab;
use super::interrupt::Interrupt;
use super::topology::{Forwarder, Node, NodePort, Role};
use super::{impair, reroute};

/// Time within which hosts go round a node, at the latest.
const PATIENCE: Duration = Duration::from_mins(1);
/// Number of packets in a port that loses all of them: the least.
const PACKETS: i64 = 8;

/// Returns the leaf or spine with this name, whose srv6d can lose packets.
///
/// # Errors
/// There is no such node, or its kernel forwards.
pub fn node<'l>(lab: &'l Lab, name: &str) -> Result<&'l Node, LabError> {
    let can = |node: &&Node| node.role != Role::Host && node.kind == Forwarder::Srv6d;
    lab.topology.nodes().filter(can).find(|node| node.name == name).ok_or_else(|| {
        let names: Vec<&str> = lab.topology.nodes().filter(can).map(|node| node.name.as_str()).collect();
        LabError::Invalid(format!("{name:?} is no leaf or spine with a srv6d\nfix: use one of {}", names.join(", ")))
    })
}

/// Makes a node drop every packet that it forwards.
///
/// # Errors
/// Its srv6d does not take the settings.
pub fn begin(lab: &Lab, node: &Node) -> Result<(), LabError> {
    let mut changes = Vec::new();
    for port in lab.topology.ports(&node.name) {
        let known = impair::in_file(lab, &node.name, &port.own.port)?;
        let mut emulate = known.unwrap_or_else(|| {
            let mut new = Emulate::default();
            new.set("rate", impair::NO_LIMIT);
            new.set("packets", PACKETS);
            new
        });
        emulate.set("loss", 1.0);
        changes.push((port, Some(emulate)));
    }
    impair::apply(lab, &changes)
}

/// Ends the losses of ports that lose every packet. Returns whether there were any.
///
/// # Errors
/// The srv6d of the node does not take the settings.
pub fn end(lab: &Lab, node: &Node) -> Result<bool, LabError> {
    if node.kind != Forwarder::Srv6d {
        return Ok(false);
    }
    let mut changes: Vec<(NodePort<'_>, Option<Emulate>)> = Vec::new();
    for port in lab.topology.ports(&node.name) {
        let now = impair::in_file(lab, &node.name, &port.own.port)?;
        if now.as_ref().and_then(|emulate| emulate.shown("loss")).is_some_and(|loss| loss.parse() == Ok(1.0)) {
            changes.push((port, port.emulate.cloned()));
        }
    }
    if changes.is_empty() {
        return Ok(false);
    }
    impair::apply(lab, &changes)?;
    Ok(true)
}

/// Returns whether a node of the lab probes its paths.
pub fn is_probed(lab: &Lab) -> bool {
    lab.topology.nodes().any(|node| views(lab, node).is_some())
}

/// Waits until no path over a node is in use any more, apart from prefixes that have no other one; or, with `again`, until all of
/// them are used again.
///
/// # Errors
/// That does not happen, or the user pressed Ctrl-C.
pub fn wait(lab: &Lab, node: &Node, again: bool, interrupt: &Interrupt) -> Result<(), LabError> {
    let Some(usid) = reroute::usid(node) else { return Ok(()) };
    let left = || {
        let all = lab.topology.nodes().filter_map(|prober| views(lab, prober));
        Ok(all.map(|view| view.paths.iter().filter(|row| is_open(&view, row, usid, again)).count()).sum())
    };
    if interrupt.wait_until_nothing_is_left(PATIENCE, left)? {
        return Ok(());
    }
    let what = if again { "are not used again" } else { "are still in use" };
    Err(LabError::Failed(format!(
        "paths over {} {what}\nfix: `srv6d lab exec HOST -- srv6d show probes` says why",
        node.name
    )))
}

/// Whether a path goes over the node with this uSID and is not yet as it should be.
fn is_open(view: &ProbesView, row: &ProbeRow, usid: u16, again: bool) -> bool {
    let of_prefix = || view.paths.iter().filter(|other| (&other.prefix, other.table) == (&row.prefix, row.table));
    visits(row, usid) && row.in_use != again && (again || !of_prefix().all(|other| visits(other, usid)))
}

/// Whether the probes of a path go over the node with this uSID.
fn visits(row: &ProbeRow, usid: u16) -> bool {
    let carrier = row.carrier.as_ref().and_then(|carrier| carrier.parse::<Ipv6Addr>().ok());
    carrier.is_some_and(|carrier| carrier.segments().contains(&usid))
}

/// Returns what a node's probes say, if it has any.
fn views(lab: &Lab, node: &Node) -> Option<Box<ProbesView>> {
    if node.kind != Forwarder::Srv6d || node.steer.is_empty() {
        return None;
    }
    match lab.ask(&node.name, &Request::Show { topic: Topic::Probes }) {
        Ok(Response::Probes(view)) => Some(view),
        _ => None,
    }
}
