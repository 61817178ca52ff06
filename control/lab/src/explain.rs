//! `srv6d lab explain`: the way of one packet over all nodes of a running lab, without sending it.
//!
//! Each srv6d on the way is asked what its tables do with the frame, and the next one gets the frame as it leaves. What a
//! kernel decides is asked of `ip route get` in its namespace.

use std::net::IpAddr;
use std::process::Command;

use clap::Args;
use etherparse::PacketBuilder;
use serde::{Deserialize, Serialize};
use srv6d_api::explain::{ExplainView, ExplainedStep};
use srv6d_api::state::PortStatus;
use srv6d_api::{Request, Response, Topic};
use srv6d_netns as netns;
use srv6d_show::packet::{addresses, bytes_of, hex, summary};

use super::error::LabError;
use super::fabric::Lab;
use super::picture;
use super::screen::{BAD, DIM, GOOD, Screen, styled};
use super::topology::{Forwarder, Node};

/// Largest number of nodes on a way; a longer one goes round in circles.
const MOST_NODES: usize = 64;
/// Hop limit of the packet.
const HOP_LIMIT: u8 = 64;
/// Length of an Ethernet address.
const MAC: usize = 6;
/// Offset of the type in an Ethernet header.
const ETHER_TYPE: usize = 12;
/// Role of the port that a node's own kernel is behind.
const KERNEL: &str = "kernel";

/// The packet that is explained.
#[derive(Clone, Copy, Debug, Args)]
pub struct Packet {
    /// Destination, IPv6 or IPv4
    destination: IpAddr,
    /// UDP source port; it decides about paths and next hops, as each field of the flow does
    #[arg(long, default_value_t = 49_152)]
    sport: u16,
    /// UDP destination port
    #[arg(long, default_value_t = 4791)]
    dport: u16,
    /// Length of its payload in bytes
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(..=9000))]
    payload: u16,
}

/// The way of a packet: the output of `lab explain --json`.
#[derive(Debug, Serialize)]
struct Way {
    nodes: Vec<Passed>,
    end: End,
}

/// A node on the way.
#[derive(Debug, Serialize)]
struct Passed {
    node: String,
    /// What the node's srv6d does. Absent: the node's kernel forwards the packet.
    srv6d: Option<ExplainView>,
    /// What the node's kernel does, as `ip route get` says. Absent: it was not asked.
    kernel: Option<String>,
    /// Port that the packet leaves by.
    out: Option<String>,
}

/// The end of the packet's way.
#[derive(Debug, Serialize)]
struct End {
    delivered: bool,
    node: String,
    why: String,
}

/// A frame in front of a node.
struct Arriving<'l> {
    node: &'l Node,
    port: String,
    frame: Vec<u8>,
}

/// The next step behind a node.
enum Next<'l> {
    Link(Arriving<'l>),
    End(End),
}

/// Explains a packet that an application of `source` sends. Returns whether it would be delivered.
///
/// # Errors
/// There is no such node, or one of the nodes does not answer.
pub fn run(lab: &Lab, source: &str, packet: Packet, json: bool, screen: &mut Screen) -> Result<bool, LabError> {
    let Some(node) = lab.topology.node(source) else {
        let names: Vec<&str> = lab.topology.nodes().map(|node| node.name.as_str()).collect();
        let fix = format!("name one of them: {}", names.join(", "));
        return Err(LabError::Invalid(format!("there is no node {source:?} in this lab\nfix: {fix}")));
    };
    let way = follow(lab, node, packet)?;
    if json {
        let text = serde_json::to_string_pretty(&way).map_err(|error| LabError::Failed(error.to_string()))?;
        screen.line(&text);
    } else {
        show(lab, &way, screen);
    }
    Ok(way.end.delivered)
}

fn follow(lab: &Lab, source: &Node, packet: Packet) -> Result<Way, LabError> {
    let route = route(lab, source, packet.destination)?;
    let from = route.prefsrc.unwrap_or(packet.destination);
    let mut nodes = Vec::new();
    let mut next = sent_by_kernel(lab, source, &route, &datagram(from, packet), &mut nodes)?;
    loop {
        let Arriving { node, port, frame } = match next {
            Next::Link(arriving) => arriving,
            Next::End(end) => return Ok(Way { nodes, end }),
        };
        if nodes.len() >= MOST_NODES {
            let why = format!("{MOST_NODES} nodes have forwarded it: it goes round in circles");
            return Ok(Way { nodes, end: End { delivered: false, node: node.name.clone(), why } });
        }
        next = match node.kind {
            Forwarder::Srv6d => through_srv6d(lab, node, &port, &frame, &mut nodes)?,
            Forwarder::Linux => through_kernel(lab, node, &frame, &mut nodes)?,
        };
    }
}

/// Asks a srv6d what it does with a frame.
fn through_srv6d<'l>(
    lab: &'l Lab,
    node: &'l Node,
    port: &str,
    frame: &[u8],
    nodes: &mut Vec<Passed>,
) -> Result<Next<'l>, LabError> {
    let view = explained(lab, node, port, frame)?;
    let (verdict, after) = (view.verdict.clone(), bytes_of(&view.after));
    nodes.push(Passed { node: node.name.clone(), srv6d: Some(view), kernel: None, out: verdict.port.clone() });
    match (verdict.verdict.as_str(), &verdict.port) {
        ("sent", Some(port)) => Ok(over_link(lab, node, port, after)),
        ("kernel", _) => through_kernel(lab, node, &after, nodes),
        ("held", Some(port)) => {
            let neighbor = verdict.neighbor.unwrap_or_default();
            let why =
                format!("it waits there until {neighbor} on {port} is resolved; a packet that is sent causes that");
            Ok(lost(node, why))
        }
        _ => {
            let parts = [verdict.reason, verdict.meaning, verdict.setting.map(|keys| format!("see {keys}"))];
            let why: Vec<String> = [verdict.verdict].into_iter().chain(parts.into_iter().flatten()).collect();
            Ok(lost(node, why.join(": ")))
        }
    }
}

/// Asks a kernel that has received a frame what it does with the packet.
fn through_kernel<'l>(
    lab: &'l Lab,
    node: &'l Node,
    frame: &[u8],
    nodes: &mut Vec<Passed>,
) -> Result<Next<'l>, LabError> {
    let Some((_, destination)) = addresses(frame) else {
        return Ok(lost(node, "its kernel gets a packet without IP addresses".to_owned()));
    };
    let route = route(lab, node, destination)?;
    if route.is_local() {
        if nodes.last().is_none_or(|passed| passed.node != node.name) {
            nodes.push(Passed { node: node.name.clone(), srv6d: None, kernel: Some(route.said()), out: None });
        }
        let why = format!("{destination} is an address of {}", node.name);
        return Ok(delivered(node, why));
    }
    sent_by_kernel(lab, node, &route, frame, nodes)
}

/// Takes a packet from a kernel to where its route leads: into the srv6d of the same node, or over a link.
fn sent_by_kernel<'l>(
    lab: &'l Lab,
    node: &'l Node,
    route: &Route,
    frame: &[u8],
    nodes: &mut Vec<Passed>,
) -> Result<Next<'l>, LabError> {
    let passed = |out| Passed { node: node.name.clone(), srv6d: None, kernel: Some(route.said()), out };
    let Some(device) = route.dev.as_deref() else {
        nodes.push(passed(None));
        return Ok(lost(node, format!("its kernel has no way there: {}", route.said())));
    };
    if route.is_local() {
        nodes.push(passed(None));
        return Ok(delivered(node, format!("{} is an address of {} itself", route.dst, node.name)));
    }
    if let Some(encapsulation) = &route.encap {
        nodes.push(passed(Some(device.to_owned())));
        let why = format!("its kernel encapsulates ({encapsulation}), which is not followed any further");
        return Ok(lost(node, why));
    }
    if lab.topology.ports(&node.name).iter().any(|port| port.own.port == device) {
        nodes.push(passed(Some(device.to_owned())));
        return Ok(over_link(lab, node, device, unaddressed(frame)));
    }
    if let Some(veth) = ports(lab, node)?.into_iter().find(|port| port.role == KERNEL) {
        return through_srv6d(lab, node, &veth.name, &unaddressed(frame), nodes);
    }
    nodes.push(passed(Some(device.to_owned())));
    Ok(lost(node, format!("its kernel sends it by {device}, which is no link of the lab")))
}

/// Takes a frame to the other end of a link.
fn over_link<'l>(lab: &'l Lab, node: &Node, port: &str, frame: Vec<u8>) -> Next<'l> {
    let ports = lab.topology.ports(&node.name).into_iter();
    let peer = ports.map(|link| (link.own, link.peer)).find(|(own, _)| own.port == port).map(|(_, peer)| peer);
    if let Some((node, port)) = peer.and_then(|peer| Some((lab.topology.node(&peer.node)?, peer.port.clone()))) {
        return Next::Link(Arriving { node, port, frame });
    }
    lost(node, format!("it leaves by {port}, which is no link of the lab"))
}

fn lost<'l>(node: &Node, why: String) -> Next<'l> {
    Next::End(End { delivered: false, node: node.name.clone(), why })
}

fn delivered<'l>(node: &Node, why: String) -> Next<'l> {
    Next::End(End { delivered: true, node: node.name.clone(), why })
}

fn explained(lab: &Lab, node: &Node, port: &str, frame: &[u8]) -> Result<ExplainView, LabError> {
    let row = ports(lab, node)?.into_iter().find(|row| row.name == port || row.device == port);
    let row = row.ok_or_else(|| LabError::Failed(format!("srv6d of {} has no port {port}", node.name)))?;
    let frame = if is_unaddressed(frame) { to(&row, frame) } else { frame.to_vec() };
    match lab.ask(&node.name, &Request::Explain { port: row.name, frame: hex(&frame) })? {
        Response::Explained(view) => Ok(*view),
        other => Err(LabError::Failed(format!("srv6d of {} answered something else: {other:?}", node.name))),
    }
}

fn ports(lab: &Lab, node: &Node) -> Result<Vec<PortStatus>, LabError> {
    if node.kind != Forwarder::Srv6d {
        return Ok(Vec::new());
    }
    match lab.ask(&node.name, &Request::Show { topic: Topic::Ports })? {
        Response::Ports(rows) => Ok(rows),
        other => Err(LabError::Failed(format!("srv6d of {} answered something else: {other:?}", node.name))),
    }
}

/// Returns a frame whose destination is still to be written: a kernel sends it to whatever port is at the other end.
fn unaddressed(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame.iter_mut().take(MAC).for_each(|byte| *byte = 0);
    frame
}

/// Returns true if the destination of a frame is still to be written.
fn is_unaddressed(frame: &[u8]) -> bool {
    frame.iter().take(MAC).all(|byte| *byte == 0)
}

/// Returns a frame that is addressed to a port.
fn to(port: &PortStatus, frame: &[u8]) -> Vec<u8> {
    let mac = port.mac.as_deref().unwrap_or_default();
    let bytes: Vec<u8> = mac.split(':').filter_map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    let mut frame = frame.to_vec();
    frame.iter_mut().zip(bytes).for_each(|(byte, value)| *byte = value);
    frame
}

/// Makes a UDP datagram in a frame without MAC addresses.
fn datagram(source: IpAddr, packet: Packet) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([0; 6], [0; 6]);
    let builder = match (source, packet.destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => builder.ipv6(source.octets(), destination.octets(), HOP_LIMIT),
        (IpAddr::V4(source), IpAddr::V4(destination)) => builder.ipv4(source.octets(), destination.octets(), HOP_LIMIT),
        // A route of one family has no source of the other one.
        _ => return vec![0; ETHER_TYPE],
    };
    let builder = builder.udp(packet.sport, packet.dport);
    let payload = vec![0; packet.payload.into()];
    let mut frame = Vec::with_capacity(builder.size(payload.len()));
    // Writing into a vector fails only for a payload that is too long for UDP.
    let _ = builder.write(&mut frame, &payload);
    frame
}

/// What `ip -json route get` says, as far as it matters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Route {
    #[serde(rename = "type")]
    kind: Option<String>,
    dst: String,
    dev: Option<String>,
    gateway: Option<IpAddr>,
    prefsrc: Option<IpAddr>,
    encap: Option<String>,
    /// The reason why there is no route.
    #[serde(skip)]
    refusal: Option<String>,
}

impl Route {
    fn is_local(&self) -> bool {
        self.kind.as_deref() == Some("local")
    }

    fn said(&self) -> String {
        if let Some(refusal) = &self.refusal {
            return refusal.clone();
        }
        let kind = self.kind.as_ref().map(|kind| format!("{kind} ")).unwrap_or_default();
        let via = self.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
        let dev = self.dev.as_ref().map(|dev| format!(" dev {dev}")).unwrap_or_default();
        format!("{kind}{}{via}{dev}", self.dst)
    }
}

/// Asks the kernel of a node for its route to an address.
fn route(lab: &Lab, node: &Node, destination: IpAddr) -> Result<Route, LabError> {
    netns::enter(&lab.netns(&node.name), || {
        let family = if destination.is_ipv6() { "-6" } else { "-4" };
        let said = Command::new("ip").args([family, "-json", "route", "get", &destination.to_string()]).output();
        let said = said.map_err(|error| LabError::Failed(format!("cannot run ip: {error}\nfix: install iproute2")))?;
        let routes: Vec<Route> = serde_json::from_slice(&said.stdout).unwrap_or_default();
        let refusal = String::from_utf8_lossy(&said.stderr).trim().to_owned();
        let refused = || Route { dst: destination.to_string(), refusal: Some(refusal), ..Route::default() };
        Ok(routes.into_iter().next().unwrap_or_else(refused))
    })
}

fn show(lab: &Lab, way: &Way, screen: &mut Screen) {
    let path: Vec<&str> = way.nodes.iter().map(|passed| passed.node.as_str()).collect();
    screen.print(&picture::draw(&lab.topology, &path));
    screen.line("");
    let width = path.iter().map(|name| name.len()).max().unwrap_or_default();
    for passed in &way.nodes {
        let out = passed.out.as_ref().map_or_else(String::new, |port| format!(" -> {port}"));
        match (&passed.srv6d, &passed.kernel) {
            (Some(view), _) => {
                screen.line(&format!("{:width$}  {}{out}: {}", passed.node, view.port, words(view).join(", ")));
                let after = bytes_of(&view.after);
                screen.line(&styled(DIM, &format!("{:width$}  {}", "", summary(&after))));
            }
            (None, kernel) => {
                let kernel = kernel.as_deref().unwrap_or_default();
                screen.line(&format!("{:width$}  kernel{out}: {kernel}", passed.node));
            }
        }
    }
    let End { delivered, node, why } = &way.end;
    screen.line("");
    let (style, word) = if *delivered { (GOOD, "delivered") } else { (BAD, "not delivered") };
    screen.line(&format!("{} at {node}: {why}", styled(style, word)));
    screen.line(&styled(DIM, "`srv6d lab exec NODE -- srv6d explain ...` shows each step of one node"));
}

/// Returns the steps that decide about the way, in a few words each.
fn words(view: &ExplainView) -> Vec<String> {
    let word = |step: &ExplainedStep| match step {
        ExplainedStep::LookUp(row) => {
            let prefix = row.prefix.as_deref().unwrap_or("nothing");
            Some(if row.kind == "sid" { format!("{} {prefix}", row.detail) } else { format!("{} {prefix}", row.kind) })
        }
        ExplainedStep::Shift => Some("shifted".to_owned()),
        ExplainedStep::NextSegment => Some("next segment".to_owned()),
        ExplainedStep::Decapsulate { .. } => Some("decapsulated".to_owned()),
        ExplainedStep::Path(choice) => {
            chosen("path", choice.members.iter().map(|path| (path.chosen, path.path.clone())))
        }
        ExplainedStep::NextHop(choice) => chosen("via", choice.members.iter().map(|hop| (hop.chosen, hop.via.clone()))),
        ExplainedStep::Port { .. } | ExplainedStep::Size { .. } => None,
    };
    view.steps.iter().filter_map(word).collect()
}

/// Returns the member that was chosen, and of how many.
fn chosen(what: &str, members: impl Iterator<Item = (bool, String)>) -> Option<String> {
    let members: Vec<(bool, String)> = members.collect();
    let (_, name) = members.iter().find(|(is_chosen, _)| *is_chosen)?;
    let of = if members.len() > 1 { format!(" (of {})", members.len()) } else { String::new() };
    Some(format!("{what} {name}{of}"))
}
