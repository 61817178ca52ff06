//! A node that silently drops what it forwards: all of its ports are emulated links that lose every packet. What its kernel
//! sends, such as BGP and neighbour discovery, goes on.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv6Addr;
use std::path::PathBuf;
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

/// Makes a node drop every packet that it forwards, and remembers what its ports were before.
///
/// # Errors
/// Its srv6d does not take the settings, or its directory cannot be written to.
pub fn begin(lab: &Lab, node: &Node) -> Result<(), LabError> {
    let (mut before, mut changes) = (BTreeMap::new(), Vec::new());
    for port in lab.topology.ports(&node.name) {
        let known = impair::in_file(lab, &node.name, &port.own.port)?;
        changes.push((port, Some(silent(known.clone()))));
        before.extend(known.map(|known| (port.own.port.clone(), known)));
    }
    let file = file(lab, node);
    if file.exists() {
        // It drops everything already.
        return impair::apply(lab, &changes);
    }
    let text = toml::to_string(&before).map_err(|why| LabError::Failed(format!("{}: {why}", file.display())))?;
    fs::write(&file, text).map_err(|error| LabError::io("write", &file, &error))?;
    impair::apply(lab, &changes).inspect_err(|_| drop(fs::remove_file(&file)))
}

/// Ends the losses that [`begin`] has begun, and restores what the ports were before. Returns whether there were any.
///
/// # Errors
/// The srv6d of the node does not take the settings, or what was remembered cannot be read.
pub fn end(lab: &Lab, node: &Node) -> Result<bool, LabError> {
    let file = file(lab, node);
    if !file.exists() {
        return Ok(false);
    }
    let text = srv6d_text::read_text(&file).map_err(|error| LabError::io("read", &file, &error))?;
    let before: BTreeMap<String, Emulate> = toml::from_str(&text).map_err(|why| {
        LabError::Failed(format!(
            "{}: {}\nfix: remove it, and run `srv6d lab impair LINK --clear` for each link of {}",
            file.display(),
            why.message(),
            node.name
        ))
    })?;
    let mut changes: Vec<(NodePort<'_>, Option<Emulate>)> = Vec::new();
    for port in lab.topology.ports(&node.name) {
        let now = impair::in_file(lab, &node.name, &port.own.port)?;
        if let Some(now) = now.filter(loses_all) {
            changes.push((port, restored(now, before.get(&port.own.port))));
        }
    }
    if !changes.is_empty() {
        impair::apply(lab, &changes)?;
    }
    fs::remove_file(&file).map_err(|error| LabError::io("remove", &file, &error))?;
    Ok(!changes.is_empty())
}

/// Returns the file with `emulate` of the ports of a silent node, as it was before. Ports without one are left out.
fn file(lab: &Lab, node: &Node) -> PathBuf {
    lab.run.node(&node.name).join("before-silence.toml")
}

/// Returns what a port becomes that loses every packet.
fn silent(before: Option<Emulate>) -> Emulate {
    let mut emulate = before.unwrap_or_else(|| {
        let mut new = Emulate::default();
        new.set("rate", impair::NO_LIMIT);
        new.set("packets", PACKETS);
        new
    });
    emulate.set("loss", 1.0);
    emulate
}

fn loses_all(emulate: &Emulate) -> bool {
    emulate.shown("loss").is_some_and(|loss| loss.parse() == Ok(1.0))
}

/// Returns what a port becomes that loses nothing any more. What somebody has changed meanwhile stays.
fn restored(mut now: Emulate, before: Option<&Emulate>) -> Option<Emulate> {
    let begun = silent(before.cloned());
    if now == begun {
        return before.cloned();
    }
    let before = before.cloned().unwrap_or_default();
    for key in ["loss", "packets"].into_iter().filter(|key| now.shown(key) == begun.shown(key)).collect::<Vec<_>>() {
        now.take_over(key, &before);
    }
    Some(now)
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

/// Returns whether a path goes over the node with this uSID and is not yet as it should be.
fn is_open(view: &ProbesView, row: &ProbeRow, usid: u16, again: bool) -> bool {
    let of_prefix = || view.paths.iter().filter(|other| (&other.prefix, other.table) == (&row.prefix, row.table));
    visits(row, usid) && row.in_use != again && (again || !of_prefix().all(|other| visits(other, usid)))
}

/// Returns whether the probes of a path go over the node with this uSID.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    fn settings(text: &str) -> Emulate {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn what_was_before_comes_back() {
        let slow = settings("rate = \"10Mbit\"\ndelay = \"5ms\"");
        let lossy = settings("rate = \"10Mbit\"\nloss = 0.01");
        for before in [None, Some(&slow), Some(&lossy)] {
            let now = silent(before.cloned());
            now.check().unwrap();
            assert!(loses_all(&now));
            assert_eq!(restored(now, before).as_ref(), before);
        }
    }

    #[test]
    fn what_was_changed_meanwhile_stays() {
        let change = |before: Option<Emulate>| {
            let mut now = silent(before.clone());
            now.set("delay", "5ms");
            restored(now, before.as_ref()).unwrap().to_string()
        };
        assert_eq!(change(None), "{ rate = \"1.6Tbit\", delay = \"5ms\" }");
        let lossy = settings("rate = \"10Mbit\"\npackets = 64\nloss = 0.01");
        assert_eq!(change(Some(lossy)), "{ rate = \"10Mbit\", packets = 64, delay = \"5ms\", loss = 0.01 }");
    }
}
