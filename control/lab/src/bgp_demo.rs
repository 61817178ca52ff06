//! `srv6d lab demo --routing bgp`: a spine is lost while traffic crosses the fabric, BGP routes around it, and the
//! spine returns.

use srv6d_netns as netns;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use srv6d_api::{Request, Response, Topic};
use srv6d_show as show;
use srv6d_show::Table;

use super::demo::{Pair, hosts, pairs};
use super::error::LabError;
use super::fabric::Lab;
use super::interrupt::Interrupt;
use super::losses::Losses;
use super::outage::{self, Failure};
use super::restart;
use super::screen::{GOOD, Screen, styled};
use super::tool::{PATIENCE, Tool};
use super::topology::{Forwarder, Node, Role, Topology, Via};
use super::traffic::{UdpReport, UdpSent};

/// Datagrams per second of each stream, so few that a busy machine keeps up; their size in bytes; and the number of
/// source ports, so many that every spine gets some of the flows.
const RATE: u32 = 250;
const SIZE: usize = 200;
const FLOWS: u16 = 48;
/// Longest duration of a stream that is not stopped.
const SECONDS: u32 = 60;
/// How long a stream runs before and after the event.
const AROUND: Duration = Duration::from_millis(400);
/// The failures of the spine that are shown.
const FAILURES: [Failure; 3] = [Failure::Links, Failure::Kill, Failure::Freeze];

struct Demo<'a> {
    lab: Lab,
    interrupt: Interrupt,
    screen: &'a mut Screen,
}

/// Brings the lab up, shows the demonstration, and takes the lab down in every case.
///
/// # Errors
/// An expected event did not happen, or the user pressed Ctrl-C.
pub fn run(topology: Topology, text: &str, screen: &mut Screen) -> Result<(), LabError> {
    let interrupt = Interrupt::watch()?;
    let begin = Instant::now();
    let via = match topology.via {
        Via::Kernel => "srv6d follows their kernels",
        Via::Fpm => "which announces its routes to srv6d over FPM",
    };
    screen.heading(&format!("1. A fabric that finds its routes: FRR's BGP in every leaf and spine, {via}"));
    let lab = Lab::bring_up(topology, text, &interrupt, screen)?;
    let mut demo = Demo { lab, interrupt, screen };
    let shown = demo.show();
    let Demo { lab, screen, .. } = demo;
    let down = lab.take_down();
    shown?;
    down?;
    screen.line(&format!("\nAll of it is gone again, after {:.0} s.", begin.elapsed().as_secs_f32()));
    screen.line(
        "To lose routers yourself: `srv6d lab up --routing bgp`, `srv6d lab fail spine01`, `srv6d lab repair spine01`.",
    );
    Ok(())
}

/// A stream: its name and its two ends.
struct Stream {
    name: String,
    pair: Pair,
}

/// The observations of all streams during one event.
struct Measured {
    took: Duration,
    met: Vec<Met>,
    rings: u64,
}

/// A stream in progress.
struct Running {
    sender: Tool,
    receiver: Tool,
}

/// The observations of one stream.
struct Met {
    sent: u64,
    lost: u64,
    /// Time from the first lost datagram to the last one.
    within: Duration,
}

impl Demo<'_> {
    fn show(&mut self) -> Result<(), LabError> {
        let streams = self.streams()?;
        self.one_route(&streams)?;
        self.screen.heading("2. Ping: inside SRv6, and plainly");
        for Stream { name, pair } in &streams {
            self.ping(name, pair)?;
        }
        let spine = self.spine()?;
        self.screen.heading(&format!("3. {} is lost, and returns, {RATE} datagrams a second on each way", spine.name));
        self.losses(&spine, &streams)
    }

    /// Returns the streams: between hosts by carriers that name both leaves, and without SRv6 to the far leaf.
    fn streams(&self) -> Result<Vec<Stream>, LabError> {
        let topology = &self.lab.topology;
        let (first, last) = hosts(topology)?;
        let family = |target: IpAddr| if target.is_ipv6() { "IPv6" } else { "IPv4" };
        let inside = pairs(topology, &first, &last).into_iter();
        let mut streams: Vec<Stream> =
            inside.map(|pair| Stream { name: format!("{} IN SRV6", family(pair.target)), pair }).collect();
        let ports = topology.ports(&last.name);
        let leaf = ports.first().and_then(|port| topology.node(&port.peer.node));
        let loopbacks = leaf.into_iter().flat_map(|leaf| leaf.addresses.iter().map(move |net| (leaf, net.addr())));
        // An address in the block needs a carrier that the leaf admits.
        let plain = loopbacks.filter(|(_, address)| !is_in_block(topology, *address));
        streams.extend(plain.map(|(leaf, target)| Stream {
            name: format!("{} PLAIN", family(target)),
            pair: Pair { from: first.name.clone(), to: leaf.name.clone(), target },
        }));
        Ok(streams)
    }

    /// Shows one route as FRR gave it to the kernel and as srv6d has it.
    fn one_route(&mut self, streams: &[Stream]) -> Result<(), LabError> {
        let plain = streams.iter().rfind(|stream| stream.pair.target.is_ipv4());
        let Some(Stream { pair, .. }) = plain else { return Ok(()) };
        let ports = self.lab.topology.ports(&pair.from);
        let Some(leaf) = ports.first().map(|port| port.peer.node.as_str()) else { return Ok(()) };
        let target = pair.target.to_string();
        let netns = self.lab.netns(leaf);
        let route = netns::run(netns::tool("ip").args(["-n", &netns, "route", "show", &target]))?;
        self.screen.line(&format!("  {leaf}'s kernel, IPv4 over IPv6 next hops (RFC 8950):"));
        for line in route.lines() {
            self.screen.line(&format!("    {}", line.trim_end()));
        }
        if self.lab.topology.via == Via::Fpm {
            let source = self.lab.ask(leaf, &Request::Show { topic: Topic::Source })?;
            self.screen.line(&format!("  {leaf}'s srv6d, which has it from zebra itself (srv6d show source):"));
            for line in show::render(&source).lines() {
                self.screen.line(&format!("    {line}"));
            }
        }
        Ok(())
    }

    fn ping(&mut self, name: &str, pair: &Pair) -> Result<(), LabError> {
        let target = pair.target.to_string();
        let text = netns::enter(&self.lab.netns(&pair.from), || {
            netns::run(netns::tool("ping").args(["-n", "-c", "3", "-i", "0.2", "-w", "10", &target]))
        });
        self.interrupt.check()?;
        let text = text?;
        let summary = text.lines().find(|line| line.contains("packets transmitted")).unwrap_or_default();
        let answered = summary.split(", ").nth(1).unwrap_or_default();
        self.screen.line(&format!("  {name:14} {} -> {} {target:18} {answered}", pair.from, pair.to));
        if text.contains("3 received") { Ok(()) } else { Err(LabError::Failed(format!("pings to {target} were lost"))) }
    }

    /// Returns a spine. It must be one of several, so that there is a way around it.
    fn spine(&self) -> Result<Node, LabError> {
        let spines: Vec<&Node> = self.lab.topology.tier(Role::Spine).collect();
        match spines.as_slice() {
            [_, second, ..] => Ok((*second).clone()),
            _ => Err(LabError::Invalid(
                "one spine cannot be gone round\nfix: see `srv6d lab topology --routing bgp`".to_owned(),
            )),
        }
    }

    fn losses(&mut self, spine: &Node, streams: &[Stream]) -> Result<(), LabError> {
        let names = streams.iter().map(|stream| format!(">{}", stream.name));
        let headings: Vec<String> = ["WHAT HAPPENS", ">SETTLED", ">SENT"]
            .map(str::to_owned)
            .into_iter()
            .chain(names)
            .chain([">OUT", ">RINGS"].map(str::to_owned))
            .collect();
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        let mut table = Table::new(&headings);
        let before = Losses::of(&self.lab);
        for how in FAILURES {
            let lost = self.measured(spine, streams, |demo, begin| {
                outage::fail(&demo.lab, spine, how)?;
                outage::wait_without(&demo.lab, spine, how, begin, &demo.interrupt)
            })?;
            self.screen.line(&format!(
                "  {}: {}; the others go round it after {:.2} s",
                spine.name,
                how.says(),
                lost.took.as_secs_f32()
            ));
            table.row(row(how.says(), &lost));
            let back = self.measured(spine, streams, |demo, begin| {
                restart::repair(&demo.lab, &spine.name, &demo.interrupt)?;
                Ok(begin.elapsed())
            })?;
            self.screen.line(&format!(
                "  {} returns; it is used again after {:.2} s",
                spine.name,
                back.took.as_secs_f32()
            ));
            table.row(row("  returns", &back));
        }
        self.screen.line("");
        self.screen.print(&table.finish("nothing was measured"));
        self.screen.line(&styled(
            GOOD,
            "\n  Every stream goes on over the spines that are left, and over all of them afterwards.",
        ));
        self.screen.line("  SETTLED: every router's tables are as BGP wants them. Below each stream: datagrams lost.");
        self.screen.line("  OUT: from the first lost datagram to the last one, of the stream that suffered longest.");
        self.screen.line(
            "  RINGS: packets that found a full ring at another node, because a worker had to wait for its core.",
        );
        Losses::of(&self.lab).show(&before, self.screen);
        Ok(())
    }

    /// Returns what every stream observed during an event, and how long the event took.
    fn measured(
        &self,
        spine: &Node,
        streams: &[Stream],
        event: impl FnOnce(&Self, Instant) -> Result<Duration, LabError>,
    ) -> Result<Measured, LabError> {
        let rings = self.full_rings(spine)?;
        let mut running: Vec<Running> =
            streams.iter().map(|stream| self.start(&stream.pair)).collect::<Result<_, _>>()?;
        self.rest()?;
        let took = event(self, Instant::now())?;
        self.rest()?;
        for stream in &running {
            stream.sender.stop();
        }
        let met = running.iter_mut().map(|stream| self.finish(stream)).collect::<Result<_, _>>()?;
        Ok(Measured { took, met, rings: self.full_rings(spine)?.saturating_sub(rings) })
    }

    /// Number of packets that all nodes except this one have lost to full rings until now.
    fn full_rings(&self, spine: &Node) -> Result<u64, LabError> {
        let mut lost = 0;
        for node in self.lab.topology.nodes().filter(|node| node.kind == Forwarder::Srv6d && node.name != spine.name) {
            if let Response::Ports(ports) = self.lab.ask(&node.name, &Request::Show { topic: Topic::Ports })? {
                lost += ports.iter().map(|port| port.rx_lost + port.tx_lost).sum::<u64>();
            }
        }
        Ok(lost)
    }

    fn start(&self, pair: &Pair) -> Result<Running, LabError> {
        let any_port = SocketAddr::new(pair.target, 0);
        let (receiver, listening) = Tool::receiver(&self.lab, &pair.to, "udp-receive", any_port)?;
        let numbers = [RATE.to_string(), SECONDS.to_string(), SIZE.to_string(), FLOWS.to_string()];
        let to = listening.to_string();
        let arguments: Vec<&str> = ["udp-send", &to].into_iter().chain(numbers.iter().map(String::as_str)).collect();
        Ok(Running { sender: Tool::start(&self.lab, &pair.from, &arguments)?, receiver })
    }

    fn rest(&self) -> Result<(), LabError> {
        let begin = Instant::now();
        self.interrupt.wait_for(PATIENCE, || Ok((begin.elapsed() >= AROUND).then_some(()))).map(drop)
    }

    fn finish(&self, stream: &mut Running) -> Result<Met, LabError> {
        let UdpSent { sent, .. } = stream.sender.finish(&self.interrupt)?;
        let UdpReport { lost, lost_within, .. } = stream.receiver.finish(&self.interrupt)?;
        let within = Duration::from_secs(1) / RATE * u32::try_from(lost_within).unwrap_or(u32::MAX);
        Ok(Met { sent, lost, within })
    }
}

fn row(what: &str, Measured { took, met, rings }: &Measured) -> Vec<String> {
    let sent: u64 = met.iter().map(|met| met.sent).sum();
    let out = met.iter().map(|met| met.within).max().unwrap_or_default();
    let ends = [what.to_owned(), format!("{:.2} s", took.as_secs_f32()), sent.to_string()];
    let lost = met.iter().map(|met| met.lost.to_string());
    let out = format!("{:.0} ms", out.as_secs_f32() * 1000.0);
    ends.into_iter().chain(lost).chain([out, rings.to_string()]).collect()
}

fn is_in_block(topology: &Topology, address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if topology.block.contains(&v6))
}
