//! `srv6d lab demo`: shows in less than a minute what a fabric does.

use srv6d_netns as netns;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::counters::{self, PathPackets};
use super::error::LabError;
use super::fabric::Lab;
use super::interrupt::Interrupt;
use super::job::{self, Job};
use super::losses::Losses;
use super::reroute::{Reroute, usid};
use super::screen::{BAD, DIM, GOOD, Screen, styled};
use super::tool::{PATIENCE, Tool};
use super::topology::{Forwarder, Node, Role, Topology};
use super::traffic::{TcpReport, UdpReport, UdpSent};
use super::window::WINDOW;
use super::{controller, picture};

/// Size of a TCP transfer in bytes, and in megabits.
const TCP_BYTES: u64 = 32 * 1024 * 1024;
const TCP_MEGABITS: f64 = 32.0 * 1024.0 * 1024.0 * 8.0 / 1e6;
/// The stream whose path is changed: datagrams per second, its shortest and longest duration, and when the path is
/// changed.
const UDP_RATE: u32 = 1000;
const UDP_AT_LEAST: Duration = Duration::from_secs(8);
const UDP_SECONDS: u32 = 60;
const MOVE_AFTER: Duration = Duration::from_secs(2);
/// Size of one datagram in bytes.
const UDP_SIZE: usize = 200;

/// The demonstration in progress.
struct Demo<'a> {
    lab: Lab,
    interrupt: Interrupt,
    screen: &'a mut Screen,
    /// Observations for the summary at the end.
    seen: Vec<String>,
}

/// Brings the lab up, shows the demonstration, and takes the lab down in every case.
///
/// # Errors
/// An expected event did not happen, or the user pressed Ctrl-C.
pub fn run(topology: Topology, text: &str, screen: &mut Screen) -> Result<(), LabError> {
    let interrupt = Interrupt::watch()?;
    let begin = Instant::now();
    screen.heading("1. A fabric: every node a network namespace with a srv6d of its own");
    let lab = Lab::bring_up(topology, text, &interrupt, screen)?;
    let mut demo = Demo { lab, interrupt, screen, seen: Vec::new() };
    let shown = demo.show();
    let Demo { lab, screen, seen, .. } = demo;
    if shown.is_err() {
        screen.line("");
    }
    let down = lab.take_down();
    shown?;
    down?;
    screen.heading("What was just seen");
    for line in seen {
        screen.line(&format!("  * {line}"));
    }
    screen.line(&format!("\nAll of it is gone again, after {:.0} s.", begin.elapsed().as_secs_f32()));
    screen.line("To look around yourself: `srv6d lab up`, `srv6d lab status`, `srv6d lab exec NODE -- COMMAND`.");
    Ok(())
}

/// Two hosts between which packets are sent.
pub struct Pair {
    /// Name of the sender.
    pub from: String,
    /// Name of the receiver.
    pub to: String,
    /// Address of the receiver.
    pub target: IpAddr,
}

/// Returns the two hosts of the demonstration.
///
/// # Errors
/// There are no two hosts that steer.
pub fn hosts(topology: &Topology) -> Result<(Node, Node), LabError> {
    let hosts: Vec<&Node> = topology.tier(Role::Host).filter(|host| !host.steer.is_empty()).collect();
    match hosts.as_slice() {
        [first, .., last] => Ok(((*first).clone(), (*last).clone())),
        _ => {
            Err(LabError::Invalid("the topology has no two hosts that steer\nfix: see `srv6d lab topology`".to_owned()))
        }
    }
}

/// Returns the addresses of `to` to which `from` steers.
pub fn pairs(topology: &Topology, from: &Node, to: &Node) -> Vec<Pair> {
    let ports = topology.ports(&to.name);
    let addresses = ports.iter().flat_map(|port| &port.own.addresses).map(IpNet::addr);
    let steered = addresses.filter(|address| from.steer.iter().any(|steer| steer.prefix.contains(address)));
    steered.map(|target| Pair { from: from.name.clone(), to: to.name.clone(), target }).collect()
}

impl Demo<'_> {
    fn show(&mut self) -> Result<(), LabError> {
        let (first, last) = hosts(&self.lab.topology)?;
        let topology = picture::draw(&self.lab.topology, &[]);
        self.screen.line("");
        self.screen.print(&topology);
        self.pings(&first, &last)?;
        self.transfers(&first, &last)?;
        self.counters()?;
        self.moved_flow(&first, &last)?;
        self.job()
    }

    /// Runs the same job twice, hashed and placed.
    fn job(&mut self) -> Result<(), LabError> {
        self.screen.heading("6. A job: the same ring all-reduce, hashed and then placed");
        let Some(job) = Job::plan(&self.lab.topology)? else {
            self.screen.line(&format!("  left out: {}", job::NEEDS));
            return Ok(());
        };
        for line in job.says() {
            self.screen.line(&format!("  {line}"));
        }
        job.prepare(&self.lab)?;
        let hashed = job.hashed(&self.lab, &self.interrupt, self.screen)?;
        let placed = job.placed(&self.lab, &self.interrupt, self.screen)?;
        let (line, seen) = job::verdict(hashed, placed);
        self.screen.line(&format!("  {line}"));
        self.seen.extend(seen);
        Ok(())
    }

    fn pings(&mut self, first: &Node, last: &Node) -> Result<(), LabError> {
        self.screen.heading(&format!("2. Ping: {} to {}", first.name, last.name));
        for pair in pairs(&self.lab.topology, first, last) {
            let before = self.spines()?;
            let target = pair.target.to_string();
            let text = netns::enter(&self.lab.netns(&pair.from), || {
                netns::run(netns::tool("ping").args(["-n", "-c", "5", "-i", "0.2", "-w", "10", &target]))
            });
            self.interrupt.check()?;
            let text = text?;
            let summary = text.lines().find(|line| line.contains("packets transmitted")).unwrap_or_default();
            let answered = summary.split(", ").nth(1).unwrap_or_default();
            let family = if pair.target.is_ipv6() { "IPv6" } else { "IPv4" };
            self.screen
                .line(&format!("  {family}  {target:18} 5 sent, {answered}; carried by {}", self.carriers(&before)?));
            if text.contains("5 received") {
                self.seen
                    .push(format!("{family} pings from {} to {} crossed the fabric inside SRv6", pair.from, pair.to));
            } else {
                return Err(LabError::Failed(format!("pings to {target} were lost: {summary}")));
            }
        }
        Ok(())
    }

    fn transfers(&mut self, first: &Node, last: &Node) -> Result<(), LabError> {
        let mebibytes = TCP_BYTES / 1024 / 1024;
        self.screen.heading(&format!("3. TCP: {mebibytes} MiB each way, SHA-256 on both sides"));
        let pairs = pairs(&self.lab.topology, first, last).into_iter().chain(pairs(&self.lab.topology, last, first));
        let mut spines = BTreeMap::new();
        for (seed, pair) in (1..).zip(pairs.collect::<Vec<_>>()) {
            let before = self.spines()?;
            let (sent, received) = self.transfer(&pair, seed)?;
            if sent.sha256 != received.sha256 || sent.bytes != received.bytes {
                return Err(LabError::Failed(format!("{} received other bytes than {} sent", pair.to, pair.from)));
            }
            let (spine, packets) = self.data_spine(&pair, &before)?;
            let hash = received.sha256.get(..16).unwrap_or_default();
            let family = if pair.target.is_ipv6() { "IPv6" } else { "IPv4" };
            let megabits = TCP_MEGABITS / received.seconds.max(1e-9);
            let line = format!(
                "  {family}  {} -> {}  over {spine} ({packets} packets)  sha256 {hash}... on both sides",
                pair.from, pair.to
            );
            self.screen.line(&format!("{line}  {}", styled(DIM, &format!("{megabits:.0} Mbit/s"))));
            spines.insert(format!("{family} {} -> {}", pair.from, pair.to), spine);
        }
        let ways: Vec<String> = spines.iter().map(|(flow, spine)| format!("{flow} {spine}")).collect();
        self.seen.push(format!(
            "TCP in both directions, every byte right; each flow on the spine its carrier names: {}",
            ways.join(", ")
        ));
        Ok(())
    }

    fn transfer(&self, pair: &Pair, seed: u64) -> Result<(TcpReport, TcpReport), LabError> {
        let (bytes, seed) = (TCP_BYTES.to_string(), seed.to_string());
        let (mut sink, listening) =
            Tool::receiver(&self.lab, &pair.to, "tcp-receive", SocketAddr::new(pair.target, 0))?;
        let mut sender = Tool::start(&self.lab, &pair.from, &["tcp-send", &listening.to_string(), &bytes, &seed])?;
        let sent = sender.finish(&self.interrupt)?;
        let received = sink.finish(&self.interrupt)?;
        Ok((sent, received))
    }

    fn counters(&mut self) -> Result<(), LabError> {
        self.screen.heading("4. Counters: per SID on the fabric, per path on the hosts");
        let mut lines = Vec::new();
        for node in self.lab.topology.nodes() {
            for (sid, packets) in counters::sids(&self.lab, node)?.into_iter().filter(|(_, packets)| *packets > 0) {
                let behavior =
                    node.sids.iter().find(|own| own.prefix.to_string() == sid).map_or("", |own| own.behavior.keyword());
                lines.push(format!("  {:8} {behavior:6} {sid:26} {packets:>8} packets", node.name));
            }
            for PathPackets { name, segments, packets, .. } in counters::paths(&self.lab, node)? {
                if packets > 0 {
                    let segments = segments.join(" ");
                    lines.push(format!("  {:8} path   {name:16} {segments:36} {packets:>8} packets", node.name));
                }
            }
        }
        for line in lines {
            self.screen.line(&line);
        }
        Ok(())
    }

    /// Returns the number of packets that the uNs of each spine have processed.
    fn spines(&self) -> Result<BTreeMap<String, u64>, LabError> {
        let mut packets = BTreeMap::new();
        for node in self.lab.topology.tier(Role::Spine) {
            packets.insert(node.name.clone(), counters::sids(&self.lab, node)?.values().sum());
        }
        Ok(packets)
    }

    /// Returns the number of packets that each spine has processed since `before`. Spines without any are left out.
    fn since(&self, before: &BTreeMap<String, u64>) -> Result<BTreeMap<String, u64>, LabError> {
        let mut now = self.spines()?;
        for (spine, packets) in &mut now {
            *packets = packets.saturating_sub(before.get(spine).copied().unwrap_or_default());
        }
        now.retain(|_, packets| *packets > 0);
        Ok(now)
    }

    fn carriers(&self, before: &BTreeMap<String, u64>) -> Result<String, LabError> {
        let spines = self.since(before)?;
        let text: Vec<String> = spines.iter().map(|(spine, packets)| format!("{spine} ({packets} packets)")).collect();
        Ok(if text.is_empty() {
            styled(BAD, "no spine: they did not cross the fabric inside SRv6")
        } else {
            text.join(", ")
        })
    }

    /// Returns the spine that processed most packets of a flow, of those that the sender's carriers name. The way back
    /// is a different flow and may use any other spine.
    fn data_spine(&self, pair: &Pair, before: &BTreeMap<String, u64>) -> Result<(String, u64), LabError> {
        let topology = &self.lab.topology;
        let usids: Vec<u16> = self.segments(pair)?.iter().flat_map(Ipv6Addr::segments).collect();
        let named = |spine: &str| topology.node(spine).and_then(usid).is_some_and(|usid| usids.contains(&usid));
        let spines = self.since(before)?;
        let busiest = spines.into_iter().filter(|(spine, _)| named(spine)).max_by_key(|(_, packets)| *packets);
        busiest
            .ok_or_else(|| LabError::Failed(format!("no spine served a packet from {} to {}", pair.from, pair.target)))
    }

    /// Returns the segments of all paths in force that a flow may take.
    fn segments(&self, pair: &Pair) -> Result<Vec<Ipv6Addr>, LabError> {
        let Some(node) = self.lab.topology.node(&pair.from) else { return Ok(Vec::new()) };
        if node.kind == Forwarder::Linux {
            let paths = node.steer.iter().filter(|steer| steer.prefix.contains(&pair.target));
            return Ok(paths.flat_map(|steer| &steer.paths).flat_map(|path| path.segments.clone()).collect());
        }
        let covers = |path: &PathPackets| path.prefix.parse::<IpNet>().is_ok_and(|net| net.contains(&pair.target));
        let paths = counters::paths(&self.lab, node)?;
        Ok(paths
            .iter()
            .filter(|path| covers(path))
            .flat_map(|path| &path.segments)
            .flat_map(|text| text.parse())
            .collect())
    }

    /// Returns the first spine that a flow's carrier names.
    fn spine_of(&self, pair: &Pair) -> Result<String, LabError> {
        let usids: Vec<u16> = self.segments(pair)?.iter().flat_map(Ipv6Addr::segments).collect();
        let spine =
            self.lab.topology.tier(Role::Spine).find(|spine| usid(spine).is_some_and(|own| usids.contains(&own)));
        spine
            .map(|spine| spine.name.clone())
            .ok_or_else(|| LabError::Failed(format!("no path from {} to {} goes over a spine", pair.from, pair.target)))
    }

    fn moved_flow(&mut self, first: &Node, last: &Node) -> Result<(), LabError> {
        self.screen.heading("5. A flow changes its spine while it runs");
        let pairs = pairs(&self.lab.topology, first, last);
        let pair = pairs
            .iter()
            .find(|pair| pair.target.is_ipv6())
            .ok_or_else(|| LabError::Invalid("no IPv6 prefix is steered\nfix: see `srv6d lab topology`".to_owned()))?;
        let from_spine = self.spine_of(pair)?;
        let (before, lost_before) = (self.spines()?, Losses::of(&self.lab));
        self.draw_path(pair, &from_spine);

        let (mut receiver, listening) =
            Tool::receiver(&self.lab, &pair.to, "udp-receive", SocketAddr::new(pair.target, 0))?;
        let stream = format!("udp-send {listening} {UDP_RATE} {UDP_SECONDS} {UDP_SIZE} --window {WINDOW}");
        let mut sender = Tool::start(&self.lab, &pair.from, &stream.split(' ').collect::<Vec<_>>())?;
        let start = Instant::now();
        self.interrupt.wait_for(PATIENCE, || Ok((start.elapsed() >= MOVE_AFTER).then_some(())))?;
        let (how, said) = if controller::asks(&self.lab.topology, first) {
            self.tell_controller(first, &from_spine)?
        } else {
            self.change_configuration(first, pair)?
        };
        let moved = || Ok((self.spine_of(pair)? != from_spine && start.elapsed() >= UDP_AT_LEAST).then_some(()));
        self.interrupt.wait_for(PATIENCE, moved)?;
        sender.stop();
        let UdpSent { sent, .. } = sender.finish(&self.interrupt)?;
        let report: UdpReport = receiver.finish(&self.interrupt)?;

        for line in said {
            self.screen.line(&line);
        }
        let to_spine = self.spine_of(pair)?;
        self.draw_path(pair, &to_spine);
        if report.lost > 0 {
            Losses::of(&self.lab).show(&lost_before, self.screen);
        }
        self.verdict(&how, [&from_spine, &to_spine], sent, &report, &self.since(&before)?)
    }

    /// Tells the controller that a link is down. The hosts learn it from the controller.
    fn tell_controller(&self, first: &Node, spine: &str) -> Result<(String, Vec<String>), LabError> {
        let leaf = self.lab.topology.ports(&first.name).first().map(|port| port.peer.node.clone()).unwrap_or_default();
        controller::switch_off(&self.lab.netns(controller::NODE), &leaf, spine)?;
        let said = vec![
            format!("  {UDP_RATE} datagrams a second are on their way when the controller is told:"),
            format!("    PATCH .../edges/{} {{\"up\": false}}, and back", controller::edge_key(&leaf, spine)),
            format!("  {} sees another topology, asks anew, and puts the next generation in force\n", first.name),
        ];
        Ok((format!("by the controller, which was told that {leaf} - {spine} is down"), said))
    }

    /// Changes one line of the sender's file and reloads it.
    fn change_configuration(&self, first: &Node, pair: &Pair) -> Result<(String, Vec<String>), LabError> {
        let moved = Reroute::plan(&self.lab.topology, first, pair.target).ok_or_else(|| {
            LabError::Invalid("no path goes over one of several spines\nfix: see `srv6d lab topology`".to_owned())
        })?;
        let done = if first.kind == Forwarder::Linux {
            moved.replace_route(&self.lab, first)?
        } else {
            format!("srv6d reload: generation {} is in force", moved.reload(&self.lab, first)?)
        };
        let said = vec![
            format!("  in {}'s srv6d.toml, {UDP_RATE} datagrams a second on their way:", first.name),
            format!("    - segments = [\"{}\"]", moved.old),
            format!("    + segments = [\"{}\"]", moved.new),
            format!("  {done}\n"),
        ];
        Ok(("by one changed line and a reload".to_owned(), said))
    }

    fn verdict(
        &mut self,
        how: &str,
        [from_spine, to_spine]: [&str; 2],
        sent: u64,
        report: &UdpReport,
        spines: &BTreeMap<String, u64>,
    ) -> Result<(), LabError> {
        let UdpReport { received, lost, duplicated, reordered, .. } = *report;
        let style = if lost + duplicated == 0 { GOOD } else { BAD };
        let count =
            format!("sent {sent}, received {received}, lost {lost}, duplicated {duplicated}, reordered {reordered}");
        self.screen.line(&format!("  {}", styled(style, &count)));
        let on = |spine: &str| spines.get(spine).copied().unwrap_or_default();
        let (old, new) = (on(from_spine), on(to_spine));
        self.screen.line(&format!("  {from_spine} carried {old} packets, then {to_spine} carried {new}"));
        if lost + duplicated > 0 || sent != received {
            return Err(LabError::Failed(format!("the moved flow did not arrive whole: {count}")));
        }
        if from_spine == to_spine || old == 0 || new == 0 {
            return Err(LabError::Failed(format!("the flow did not change its spine: {spines:?}")));
        }
        self.seen.push(format!(
            "a flow moved from {from_spine} to {to_spine} {how}: {sent} sent, {received} received, none lost"
        ));
        Ok(())
    }

    /// Draws the path of a flow: the hosts, their leaves, and the spine between them.
    fn draw_path(&mut self, pair: &Pair, spine: &str) {
        let topology = &self.lab.topology;
        let leaf = |host: &str| topology.ports(host).first().map(|port| port.peer.node.clone()).unwrap_or_default();
        let (near, far) = (leaf(&pair.from), leaf(&pair.to));
        let path = [pair.from.as_str(), &near, spine, &far, &pair.to];
        let picture = picture::draw(topology, &path);
        self.screen.print(&format!("{picture}\n"));
    }
}
