//! `srv6d lab moves`: measures what changing a path costs a stream of datagrams, for srv6d and for the kernel's routes.
//!
//! The lab's first host sends to its last one, and the spine between them is changed again and again while the stream
//! runs. For the comparison, the kernel of the first host encapsulates. Then the host also has a less specific route
//! for all hosts of the fabric, as hosts of such fabrics do: an IPv6 packet that finds no steered prefix is sent
//! without a carrier.

use srv6d_netns as netns;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use toml::Spanned;

use srv6d_show::Table;

use super::counters;
use super::error::LabError;
use super::fabric::Lab;
use super::interrupt::Interrupt;
use super::reroute::Reroute;
use super::screen::{DIM, Screen, styled};
use super::tool::Tool;
use super::topology::{Behavior, FABRIC, Forwarder, Node, PortRole, Role, Topology};
use super::traffic::{UdpReport, UdpSent};
use super::window::WINDOW;

/// Datagrams per second, and their size in bytes.
const RATE: u32 = 4_000;
const SIZE: usize = 200;
/// Time between two changes.
const PAUSE: Duration = Duration::from_millis(10);
/// Prefix of all hosts of the built-in fabric.
const ALL_HOSTS: &str = "fcbb:0:800::/48";

/// A method to change a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Srv6dReload,
    KernelReplace,
    KernelDeleteAndAdd,
}

impl Method {
    const ALL: [Self; 3] = [Self::Srv6dReload, Self::KernelReplace, Self::KernelDeleteAndAdd];

    const fn name(self) -> &'static str {
        match self {
            Self::Srv6dReload => "srv6d: reload",
            Self::KernelReplace => "kernel: ip route replace",
            Self::KernelDeleteAndAdd => "kernel: ip route del, then add",
        }
    }

    const fn sender(self) -> Forwarder {
        match self {
            Self::Srv6dReload => Forwarder::Srv6d,
            Self::KernelReplace | Self::KernelDeleteAndAdd => Forwarder::Linux,
        }
    }
}

/// The observations of one stream.
#[derive(Clone, Debug, Serialize)]
struct StreamResult {
    /// Method by which the path was changed.
    #[serde(rename = "way")]
    method: &'static str,
    /// Family of the stream, `IPv6` or `IPv4`.
    family: &'static str,
    /// Number of changes while the stream ran.
    moves: u32,
    /// Number of datagrams sent.
    sent: u64,
    /// Number of datagrams that never arrived.
    lost: u64,
    /// The part of the lost datagrams that the sender's own kernel refused because it had no route.
    refused: u64,
    /// Number of datagrams that arrived without a carrier, by whatever link plain routing selected.
    unsteered: u64,
    /// Number of datagrams that arrived twice.
    duplicated: u64,
}

/// Measures every way in both families, and prints the table.
///
/// # Errors
/// A lab did not come up, a tool failed, or the user pressed Ctrl-C.
pub fn run(times: u32, json: bool, screen: &mut Screen) -> Result<(), LabError> {
    let interrupt = Interrupt::watch()?;
    let mut rows = Vec::new();
    for sender in [Forwarder::Srv6d, Forwarder::Linux] {
        rows.extend(measure(sender, times, &interrupt)?);
    }
    if json {
        let text = serde_json::to_string_pretty(&rows).map_err(|error| LabError::Failed(error.to_string()))?;
        screen.line(&text);
        return Ok(());
    }
    screen.print(&table(&rows));
    screen.line(&styled(
        DIM,
        &format!("{RATE} datagrams a second, the path changed every {} ms or slower", PAUSE.as_millis()),
    ));
    Ok(())
}

fn table(rows: &[StreamResult]) -> String {
    let headings =
        ["HOW THE PATH IS CHANGED", "INNER", ">MOVES", ">SENT", ">LOST", ">REFUSED", ">UNSTEERED", ">DUPLICATED"];
    let mut table = Table::new(&headings);
    for row in rows {
        let [sent, lost, refused, unsteered, duplicated] =
            [row.sent, row.lost, row.refused, row.unsteered, row.duplicated].map(|number| number.to_string());
        let (method, family) = (row.method.to_owned(), row.family.to_owned());
        table.row([method, family, row.moves.to_string(), sent, lost, refused, unsteered, duplicated]);
    }
    table.finish("nothing was measured")
}

/// Measures all methods that one kind of sender has, in a lab of their own.
fn measure(sender: Forwarder, times: u32, interrupt: &Interrupt) -> Result<Vec<StreamResult>, LabError> {
    let mut topology = Topology::parse(FABRIC, "built-in topology")?;
    "moves".clone_into(&mut topology.name);
    topology.controller = None;
    // In the fabrics that this measurement is about, leaves admit everything that their hosts send.
    for end in topology.links.iter_mut().flat_map(|link| &mut link.get_mut().ends) {
        (end.role, end.allowed_carriers) = (PortRole::Fabric, Vec::new());
    }
    let mut hosts = topology.nodes.iter_mut().map(Spanned::get_mut).filter(|node| node.role == Role::Host);
    let (Some(from), Some(to)) = (hosts.next(), hosts.next_back()) else { return Ok(Vec::new()) };
    from.kind = sender;
    let (from, to) = (from.clone(), to.clone());

    let lab = Lab::bring_up(topology, FABRIC, interrupt, &mut Screen::silent())?;
    if sender == Forwarder::Linux {
        netns::ip_batch(&lab.netns(&from.name), &[less_specific_route(&lab.topology, &from)?])?;
    }
    let bench = Bench { lab, interrupt, from, to };
    bench.meet_neighbours()?;
    let rows = bench.rows(sender, times);
    let down = bench.lab.take_down();
    let rows = rows?;
    down?;
    Ok(rows)
}

/// Returns the command for a route to all hosts through the sender's leaf, without a carrier.
fn less_specific_route(topology: &Topology, sender: &Node) -> Result<String, LabError> {
    let ports = topology.ports(&sender.name);
    let leaf = ports.iter().find_map(|port| port.peer.addresses.iter().find(|net| net.addr().is_ipv6()));
    let leaf = leaf.ok_or_else(|| LabError::Failed(format!("{} has no IPv6 neighbour", sender.name)))?;
    Ok(format!("route add {ALL_HOSTS} via {}", leaf.addr()))
}

struct Bench<'a> {
    lab: Lab,
    interrupt: &'a Interrupt,
    from: Node,
    to: Node,
}

impl Bench<'_> {
    fn rows(&self, sender: Forwarder, times: u32) -> Result<Vec<StreamResult>, LabError> {
        let mut rows = Vec::new();
        for method in Method::ALL.into_iter().filter(|method| method.sender() == sender) {
            for target in self.targets() {
                rows.push(self.stream(method, target, times)?);
            }
        }
        Ok(rows)
    }

    /// Sends pings first: the first packets between two hosts may wait for neighbour discovery, which has nothing to do
    /// with the changes.
    fn meet_neighbours(&self) -> Result<(), LabError> {
        for target in self.targets() {
            let ping = ["-n", "-c", "3", "-i", "0.2", "-w", "10", &target.to_string()].map(str::to_owned);
            netns::enter(&self.lab.netns(&self.from.name), || netns::run(netns::tool("ping").args(&ping)))?;
        }
        Ok(())
    }

    fn targets(&self) -> Vec<IpAddr> {
        let ports = self.lab.topology.ports(&self.to.name);
        ports.iter().flat_map(|port| &port.own.addresses).map(ipnet::IpNet::addr).collect()
    }

    /// Runs one stream, and changes the path meanwhile.
    fn stream(&self, method: Method, target: IpAddr, times: u32) -> Result<StreamResult, LabError> {
        let before = self.decapsulated(target)?;
        let (mut receiver, listening) =
            Tool::receiver(&self.lab, &self.to.name, "udp-receive", SocketAddr::new(target, 0))?;
        let seconds = PAUSE.as_secs_f64() * f64::from(times) + 1.0;
        let arguments = format!("udp-send {listening} {RATE} {seconds} {SIZE} --window {WINDOW}");
        let mut sender = Tool::start(&self.lab, &self.from.name, &arguments.split(' ').collect::<Vec<_>>())?;
        let moves = self.change(method, target, times, &mut sender)?;
        let UdpSent { sent, refused, closing } = sender.finish(self.interrupt)?;
        let UdpReport { received, lost, duplicated, .. } = receiver.finish(self.interrupt)?;
        let steered = self.decapsulated(target)?.saturating_sub(before);
        let arrived = received + duplicated + closing;
        let family = if target.is_ipv6() { "IPv6" } else { "IPv4" };
        Ok(StreamResult {
            method: method.name(),
            family,
            moves,
            sent,
            lost,
            refused,
            unsteered: arrived.saturating_sub(steered),
            duplicated,
        })
    }

    /// Moves the path to the next spine, `times` times or until the stream ends.
    fn change(&self, method: Method, target: IpAddr, times: u32, sender: &mut Tool) -> Result<u32, LabError> {
        let mut node = self.from.clone();
        for moves in 0..times {
            let begin = Instant::now();
            self.interrupt.check()?;
            if sender.has_ended()? {
                return Ok(moves);
            }
            let reroute = Reroute::plan(&self.lab.topology, &node, target)
                .ok_or_else(|| LabError::Failed(format!("{target} is not steered over one of several spines")))?;
            match method {
                Method::Srv6dReload => reroute.reload(&self.lab, &node).map(|_| ())?,
                Method::KernelReplace => reroute.replace_route(&self.lab, &node).map(|_| ())?,
                Method::KernelDeleteAndAdd => reroute.delete_and_add_route(&self.lab, &node)?,
            }
            node = reroute.applied(&node);
            thread::sleep(PAUSE.saturating_sub(begin.elapsed()));
        }
        Ok(times)
    }

    /// Number of packets to `target`'s host that arrived inside SRv6, as its leaf has counted them.
    fn decapsulated(&self, target: IpAddr) -> Result<u64, LabError> {
        let behavior = if target.is_ipv6() { Behavior::Udt6 } else { Behavior::Udt4 };
        let ports = self.lab.topology.ports(&self.to.name);
        let leaf = ports.first().and_then(|port| self.lab.topology.node(&port.peer.node));
        let Some(leaf) = leaf else { return Ok(0) };
        let sids = counters::sids(&self.lab, leaf)?;
        let own = leaf.sids.iter().filter(|sid| sid.behavior == behavior).map(|sid| sid.prefix.to_string());
        Ok(own.filter_map(|sid| sids.get(&sid)).sum())
    }
}
