//! `srv6d lab status`.

use srv6d_netns as netns;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

use serde::Serialize;
use srv6d_api::{Request, Response, Topic};
use srv6d_process::Process;

use super::controller;
use super::emulated;
use super::error::LabError;
use super::fabric::Lab;
use super::frr::{self, Session};
use super::picture;
use super::screen::{BAD, GOOD, HEADING, Screen, styled};
use super::state::LabProgram;
use super::topology::{Forwarder, Node};

/// Widths of the columns NODE, KIND, PID and STATE.
const WIDTHS: [usize; 4] = [12, 7, 8, 10];

/// Prints the table of nodes and the picture. Returns whether every node is up.
pub fn print(lab: &Lab, screen: &mut Screen) -> bool {
    let topology = &lab.topology;
    screen.line(&format!("lab {} in {}", topology.name, lab.run.path().display()));
    screen.line("");
    screen.print(&picture::draw(topology, &[]));
    screen.line("");
    let [node, kind, pid, state] = WIDTHS;
    let heading = format!("{:node$}{:kind$}{:>pid$}  {:state$}PORTS / SIDS", "NODE", "KIND", "PID", "STATE");
    screen.line(&styled(HEADING, &heading));
    let mut all_up = true;
    for node in topology.nodes() {
        all_up &= print_node(lab, node, screen);
    }
    if topology.controller.is_some() {
        all_up &= print_controller(lab, screen);
    }
    let emulated = emulated::table(&emulated::directions(lab));
    if !emulated.is_empty() {
        screen.line("");
        screen.print(&emulated);
    }
    screen.line("");
    screen.line(&format!("try: srv6d lab exec NODE -- COMMAND     e.g. {}", example(lab)));
    all_up
}

/// The output of `lab status --json`.
#[derive(Debug, Serialize)]
struct Report<'t> {
    lab: &'t str,
    directory: &'t Path,
    /// Whether every node is up.
    up: bool,
    nodes: Vec<NodeReport<'t>>,
    /// Ports that are emulated.
    emulated: Vec<emulated::Direction>,
}

#[derive(Debug, Serialize)]
struct NodeReport<'t> {
    name: &'t str,
    kind: &'static str,
    state: &'static str,
    up: bool,
    pid: Option<i32>,
    /// Routers only: whether all BGP sessions are up.
    #[serde(skip_serializing_if = "Option::is_none")]
    bgp_up: Option<bool>,
}

/// Prints the same as JSON. Returns whether every node is up.
///
/// # Errors
/// It cannot be written.
pub fn print_json(lab: &Lab, screen: &mut Screen) -> Result<bool, LabError> {
    let mut nodes: Vec<NodeReport<'_>> = lab.topology.nodes().map(|node| node_report(lab, node)).collect();
    if lab.topology.controller.is_some() {
        let (state, up) = controller_state(lab);
        let (name, kind) = (controller::NODE, "paths");
        nodes.push(NodeReport { name, kind, state, up, pid: pid(lab, name), bgp_up: None });
    }
    let up = nodes.iter().all(|node| node.up && node.bgp_up != Some(false));
    let (name, directory) = (lab.topology.name.as_str(), lab.run.path());
    let report = Report { lab: name, directory, up, nodes, emulated: emulated::directions(lab) };
    let text = serde_json::to_string_pretty(&report).map_err(|error| LabError::Failed(error.to_string()))?;
    screen.line(&text);
    Ok(up)
}

fn node_report<'t>(lab: &'t Lab, node: &'t Node) -> NodeReport<'t> {
    let (state, up) = state(lab, node);
    let sessions = || frr::sessions(lab, &node.name).is_ok_and(|all| all.iter().all(Session::is_established));
    let bgp_up = lab.topology.speaks_bgp(node).then(sessions);
    NodeReport { name: &node.name, kind: node.kind.name(), state, up, pid: pid(lab, &node.name), bgp_up }
}

fn print_node(lab: &Lab, node: &Node, screen: &mut Screen) -> bool {
    let (state, up) = state(lab, node);
    let ports: Vec<String> =
        lab.topology.ports(&node.name).iter().map(|port| format!("{}:{}", port.own.port, port.peer.node)).collect();
    print_row(lab, &node.name, node.kind.name(), (state, up), &ports.join(" "), screen);
    let indent = WIDTHS.iter().sum::<usize>() + 2;
    for sid in &node.sids {
        screen.line(&format!("{:indent$}{:6} {}", "", sid.behavior.keyword(), sid.prefix));
    }
    let routes = !lab.topology.speaks_bgp(node) || print_sessions(lab, node, screen);
    up && routes
}

/// Prints lines such as `BGP 4200000001 eth1 spine00: Established, 9 IPv6 and 6 IPv4 prefixes`. Returns whether all
/// sessions are up.
fn print_sessions(lab: &Lab, node: &Node, screen: &mut Screen) -> bool {
    let indent = WIDTHS.iter().sum::<usize>() + 2;
    let number = frr::as_number(&lab.topology, &node.name).unwrap_or_default();
    let Ok(sessions) = frr::sessions(lab, &node.name) else {
        screen.line(&format!("{:indent$}BGP {number}  {}", "", styled(BAD, "bgpd does not answer")));
        return false;
    };
    for session in &sessions {
        let state = styled(if session.is_established() { GOOD } else { BAD }, &session.state);
        let what = format!("{state}, {} IPv6 and {} IPv4 prefixes", session.ipv6_prefixes, session.ipv4_prefixes);
        let peer = session.peer.as_deref().unwrap_or("nobody yet");
        screen.line(&format!("{:indent$}BGP {number}  {} {peer}: {what}", "", session.port));
    }
    sessions.iter().all(Session::is_established)
}

fn print_controller(lab: &Lab, screen: &mut Screen) -> bool {
    let state = controller_state(lab);
    let hosts = controller::links(&lab.topology).into_iter();
    let endpoints: Vec<String> = hosts.filter_map(|link| controller::endpoint(&lab.topology, link.host)).collect();
    print_row(lab, controller::NODE, "paths", state, &endpoints.join(" "), screen);
    state.1
}

fn controller_state(lab: &Lab) -> (&'static str, bool) {
    let alive = lab.run.state().process(controller::NODE, LabProgram::Srv6d).is_some_and(Process::alive);
    if alive { ("up", true) } else { ("down", false) }
}

fn print_row(lab: &Lab, name: &str, kind: &str, (state, up): (&str, bool), what: &str, screen: &mut Screen) {
    let pid = pid(lab, name).map_or_else(|| "-".to_owned(), |pid| pid.to_string());
    let [name_width, kind_width, pid_width, state_width] = WIDTHS;
    let state = styled(if up { GOOD } else { BAD }, &format!("{state:state_width$}"));
    screen.line(&format!("{name:name_width$}{kind:kind_width$}{pid:>pid_width$}  {state}{what}"));
}

/// Returns the process that answers on the node's socket or, if none does, the srv6d that the lab has started.
fn pid(lab: &Lab, node: &str) -> Option<i32> {
    let started = lab.run.state().process(node, LabProgram::Srv6d).filter(|process| process.alive());
    answering(lab, node).or_else(|| started.map(|process| process.pid))
}

/// Returns the process id of the srv6d that answers on the node's socket. Somebody may have started it by hand.
pub fn answering(lab: &Lab, node: &str) -> Option<i32> {
    let stream = UnixStream::connect(lab.run.socket(node)).ok()?;
    getsockopt(&stream, PeerCredentials).ok().map(|peer| peer.pid())
}

fn state(lab: &Lab, node: &Node) -> (&'static str, bool) {
    if !netns::path(&lab.netns(&node.name)).exists() {
        return ("no netns", false);
    }
    if node.kind == Forwarder::Linux {
        return ("up", true);
    }
    let alive = lab.run.state().process(&node.name, LabProgram::Srv6d).is_some_and(Process::alive);
    match lab.ask(&node.name, &Request::Show { topic: Topic::Generation }) {
        Ok(Response::Generation(view)) if view.pending.is_empty() => ("up", true),
        Ok(Response::Generation(_)) => ("pending", false),
        _ if alive => ("silent", false),
        _ => ("down", false),
    }
}

/// Returns a command that works in this lab: a ping from the first host to an address of the last one.
fn example(lab: &Lab) -> String {
    let hosts: Vec<&Node> = lab.topology.tier(super::topology::Role::Host).collect();
    let target = hosts.last().and_then(|host| lab.topology.ports(&host.name).first()?.own.addresses.first().copied());
    match (hosts.first(), target) {
        (Some(host), Some(target)) => format!("srv6d lab exec {} -- ping -c 3 {}", host.name, target.addr()),
        _ => "srv6d lab exec NODE -- ip route".to_owned(),
    }
}
