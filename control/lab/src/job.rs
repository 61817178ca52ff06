//! The demonstration's job: a ring all-reduce over links that have a rate, hashed and then placed.
//!
//! Every host has as many ranks as there are spines, and each rank sends to one on the next host. So every leaf has as many
//! flows as uplinks. Hashed means that the carriers name the two leaves, and each leaf hashes the flow onto a spine. Placed
//! means that the carriers name the spines, too, as the placement has distributed the flows.

use srv6d_netns as netns;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use serde_json::Value;
use srv6d_placement::{Constraints, Demand, Fabric, Flow, Hop, NodeId, Report, compare, sids};

use super::emulate::Emulate;
use super::error::LabError;
use super::fabric::Lab;
use super::interrupt::Interrupt;
use super::lateness::Lateness;
use super::reroute::usid;
use super::ring::{RingReport, StepDone};
use super::screen::{BAD, GOOD, Screen, styled};
use super::tool::Tool;
use super::topology::{Forwarder, Node, NodePort, Role, Steer, SteerPath, Topology};
use super::{controller, impair, node_config};

/// Rate of every link between leaf and spine: slow enough for two cores, with all nodes on them.
pub(super) const RATE: &str = "5Mbit";
const RATE_BITS: u64 = 5_000_000;
/// Bytes of the queue of such a link, which is the default of `emulate`.
const QUEUE: u64 = 256_000;
/// Bytes that a rank sends in a step.
pub(super) const CHUNK: usize = 64 * 1024;
/// TCP port of the ranks.
const PORT: u16 = 5201;
/// Last 16 bits of the address of a host's first rank.
const FIRST_ADDRESS: u16 = 0x100;
/// Demand of data, and of the acknowledgements that go back, for the placement.
pub(super) const DATA: u64 = 20;
pub(super) const ACKNOWLEDGEMENTS: u64 = 1;
/// More ranks are not started: every packet costs CPU time of all nodes on its way.
const MOST_RANKS: usize = 16;

/// Requirements of the job on a fabric.
pub const NEEDS: &str = "it takes three hosts or more, each at a leaf of its own, two spines or more, at most 16 hosts times spines, \
                         and a srv6d in every node";

/// The result of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Run {
    /// How long the job took, in seconds.
    Took(f64),
    /// The machine was too slow. The value is the lateness that 99 of 100 packets had at most when they left the links,
    /// if it is known.
    Invalid(Option<Duration>),
}

/// One rank of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rank {
    /// Name of its node.
    pub host: String,
    /// Its own address.
    pub address: Ipv6Addr,
}

/// The job on a fabric.
#[derive(Debug)]
pub struct Job {
    pub(super) ranks: Vec<Rank>,
    /// Carrier of each flow over the spine that the placement has chosen: of every rank to the next one, and then of every
    /// rank to the one before.
    placed: Vec<Ipv6Addr>,
    /// Carriers to the same hosts that name no spine.
    pub(super) hashed: Vec<Ipv6Addr>,
}

impl Job {
    /// Plans the job. `None`: this fabric is not what it [needs](NEEDS).
    ///
    /// # Errors
    /// The flows cannot be placed.
    pub fn plan(topology: &Topology) -> Result<Option<Self>, LabError> {
        let Some(ranks) = ranks(topology) else { return Ok(None) };
        let placed = place(topology, &ranks)?;
        let spines: Vec<u16> = topology.tier(Role::Spine).filter_map(usid).collect();
        let hashed = placed.iter().map(|carrier| without(*carrier, &spines)).collect();
        Ok(Some(Self { ranks, placed, hashed }))
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks.len()
    }

    /// Number of steps.
    pub fn steps(&self) -> usize {
        2 * (self.ranks() - 1)
    }

    /// Describes the job in three lines.
    pub fn says(&self) -> [String; 3] {
        let (ranks, steps, kibibytes) = (self.ranks(), self.steps(), CHUNK / 1024);
        [
            format!("{ranks} ranks, each sends {kibibytes} KiB to the next host in each of {steps} steps"),
            format!("links between leaves and spines have {RATE}/s, as with `srv6d lab impair`"),
            "hashed: the leaves hash the flows onto spines; placed: the carriers name the spines, as in `srv6d place`"
                .into(),
        ]
    }

    /// Gives every rank its address, and every link between leaf and spine its rate.
    ///
    /// # Errors
    /// The kernel refuses an address, or a srv6d the rate.
    pub fn prepare(&self, lab: &Lab) -> Result<(), LabError> {
        for rank in &self.ranks {
            let ports = lab.topology.ports(&rank.host);
            let Some(port) = ports.first() else { continue };
            let command = format!("addr replace {}/128 dev {} nodad", rank.address, port.own.port);
            netns::ip_batch(&lab.netns(&rank.host), &[command])?;
        }
        let mut emulate = Emulate::default();
        emulate.set("rate", RATE);
        let is_host = |name: &str| lab.topology.node(name).is_some_and(|node| node.role == Role::Host);
        let ports = lab.topology.links().flat_map(|link| lab.topology.port_pair(link));
        let fabric = ports.filter(|port| !is_host(&port.own.node) && !is_host(&port.peer.node));
        let changes: Vec<(NodePort<'_>, Option<Emulate>)> = fabric.map(|port| (port, Some(emulate.clone()))).collect();
        impair::apply(lab, &changes)
    }

    /// Runs the job with hashed flows, and shows a dot for each step.
    ///
    /// # Errors
    /// A srv6d does not take its carriers, a rank fails, or the user pressed Ctrl-C.
    pub fn hashed(&self, lab: &Lab, interrupt: &Interrupt, screen: &mut Screen) -> Result<Run, LabError> {
        self.run(lab, "hashed", &self.hashed, interrupt, screen)
    }

    /// Runs the job with placed flows.
    ///
    /// # Errors
    /// The errors are those of [`Self::hashed`].
    pub fn placed(&self, lab: &Lab, interrupt: &Interrupt, screen: &mut Screen) -> Result<Run, LabError> {
        self.run(lab, "placed", &self.placed, interrupt, screen)
    }

    fn run(
        &self,
        lab: &Lab,
        name: &str,
        carriers: &[Ipv6Addr],
        interrupt: &Interrupt,
        screen: &mut Screen,
    ) -> Result<Run, LabError> {
        self.steer(lab, carriers)?;
        screen.print(&format!("  {name} "));
        let before = Lateness::of(lab);
        let seconds = self.all_reduce(lab, interrupt, screen)?;
        let late = Lateness::of(lab).since(&before).p99();
        let run = if late.is_some_and(|late| late <= limit()) { Run::Took(seconds) } else { Run::Invalid(late) };
        screen.line(&match run {
            Run::Took(seconds) => format!(" {seconds:.1} s"),
            Run::Invalid(_) => " invalid".to_owned(),
        });
        Ok(run)
    }

    /// Lets every host steer its flows over these carriers.
    ///
    /// # Errors
    /// A srv6d does not take them.
    pub(super) fn steer(&self, lab: &Lab, carriers: &[Ipv6Addr]) -> Result<(), LabError> {
        for host in lab.topology.tier(Role::Host) {
            let steers = node_config::steer_tables(&self.steers(&host.name, carriers));
            let text = node_config::srv6d_toml(&lab.topology, host, &lab.run.socket(&host.name));
            lab.reload_with(&host.name, &format!("{text}\n{steers}"))?;
        }
        Ok(())
    }

    /// Runs all ranks once. Returns how long that took, in seconds.
    fn all_reduce(&self, lab: &Lab, interrupt: &Interrupt, screen: &mut Screen) -> Result<f64, LabError> {
        let mut ring = Ring::start(lab, &self.ranks, 1)?;
        for _ in 0..ring.steps() {
            ring.step()?;
            screen.print(".");
            interrupt.check()?;
        }
        ring.finish(interrupt)
    }

    /// Returns the steered prefixes of a host: from each of its ranks to the next one, and to the one before.
    fn steers(&self, host: &str, carriers: &[Ipv6Addr]) -> Vec<Steer> {
        let flows = flows(self.ranks()).zip(carriers);
        let own = flows.filter_map(|((from, to), carrier)| Some((self.ranks.get(from)?, self.ranks.get(to)?, carrier)));
        let own = own.filter(|(from, ..)| from.host == host).enumerate();
        own.map(|(number, (_, to, carrier))| Steer {
            prefix: IpNet::from(IpAddr::V6(to.address)),
            paths: vec![SteerPath { name: format!("job-{number}"), segments: vec![*carrier], weight: 1 }],
        })
        .collect()
    }
}

/// Ranks that run, each in its node.
pub(super) struct Ring {
    tools: Vec<Tool>,
    steps: usize,
}

impl Ring {
    /// Starts ranks. Each sends to the next one, and the last one to the first; `rounds` all-reduces follow each other.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn start(lab: &Lab, ranks: &[Rank], rounds: usize) -> Result<Self, LabError> {
        let mut tools = Vec::new();
        for (number, (rank, next)) in ranks.iter().zip(ranks.iter().cycle().skip(1)).enumerate() {
            let [own, next] = [rank, next].map(|rank| SocketAddr::new(rank.address.into(), PORT).to_string());
            let [number, count, chunk, rounds] = [number, ranks.len(), CHUNK, rounds].map(|number| number.to_string());
            let words = ["ring", &own, &next, &number, &count, &chunk, "--rounds", &rounds];
            tools.push(Tool::start(lab, &rank.host, &words)?);
        }
        Ok(Self { tools, steps: rounds * 2 * ranks.len().saturating_sub(1) })
    }

    /// Number of steps of all rounds.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Waits until the first rank has done its next step.
    ///
    /// # Errors
    /// It has ended, or says something else.
    pub fn step(&mut self) -> Result<StepDone, LabError> {
        self.tools.first_mut().ok_or(LabError::Interrupted)?.next_line()
    }

    /// Waits until all ranks have ended. Returns how long they took, in seconds.
    ///
    /// # Errors
    /// A rank fails, or the user pressed Ctrl-C.
    pub fn finish(mut self, interrupt: &Interrupt) -> Result<f64, LabError> {
        let mut longest = 0.0_f64;
        for tool in &mut self.tools {
            let RingReport { seconds } = tool.finish(interrupt)?;
            longest = longest.max(seconds);
        }
        Ok(longest)
    }
}

/// Returns what is to be said about two runs, and what was seen if both are valid.
pub fn verdict(hashed: Run, placed: Run) -> (String, Option<String>) {
    match (hashed, placed) {
        (Run::Took(hashed), Run::Took(placed)) => {
            let line = format!("hashed {hashed:.1} s, placed {placed:.1} s");
            let seen = format!("the same all-reduce over links of {RATE}/s: {line}");
            (styled(GOOD, &line), Some(seen))
        }
        (Run::Invalid(late), _) | (_, Run::Invalid(late)) => {
            let late =
                late.map_or_else(|| "far too late".to_owned(), |late| format!("up to {} ms late", late.as_millis()));
            let limit = limit().as_millis();
            let why = "this machine was too busy, so this is no result: packets left the links";
            (styled(BAD, &format!("{why} {late}, where {limit} ms are allowed")), None)
        }
    }
}

/// Returns the lateness that 99 of 100 packets may have when they leave a link: a twentieth of the time in which its
/// queue empties.
pub fn limit() -> Duration {
    Duration::from_micros(QUEUE * 8 * 1_000_000 / RATE_BITS / 20)
}

/// Returns the flows of a ring, as numbers of ranks: from each to the next one, and then from each to the one before.
pub(super) fn flows(ranks: usize) -> impl Iterator<Item = (usize, usize)> {
    let next = move |rank| (rank + 1) % ranks;
    let data = (0..ranks).map(move |rank| (rank, next(rank)));
    data.chain((0..ranks).map(move |rank| (next(rank), rank)))
}

fn ranks(topology: &Topology) -> Option<Vec<Rank>> {
    let spines = topology.tier(Role::Spine).count();
    let hosts: Vec<&Node> = topology.tier(Role::Host).collect();
    let leaf = |host: &&Node| match topology.ports(&host.name).as_slice() {
        [port] => Some(port.peer.node.clone()),
        _ => None,
    };
    let mut leaves: Vec<String> = hosts.iter().map(leaf).collect::<Option<_>>()?;
    leaves.sort_unstable();
    leaves.dedup();
    let is_srv6d = topology.nodes().all(|node| node.kind == Forwarder::Srv6d);
    let has_room = hosts.len() >= 3 && leaves.len() == hosts.len() && spines >= 2 && hosts.len() * spines <= MOST_RANKS;
    if !is_srv6d || !has_room {
        return None;
    }
    let numbers = (0..u16::try_from(spines).ok()?).flat_map(|number| hosts.iter().map(move |host| (number, *host)));
    numbers.map(|(number, host)| rank(topology, host, number)).collect()
}

fn rank(topology: &Topology, host: &Node, number: u16) -> Option<Rank> {
    let ports = topology.ports(&host.name);
    let subnet = ports.iter().flat_map(|port| &port.own.addresses).find_map(|net| match net {
        IpNet::V6(net) if net.prefix_len() <= 112 => Some(net.trunc()),
        _ => None,
    })?;
    let address = u128::from(subnet.addr()) | u128::from(FIRST_ADDRESS + number);
    Some(Rank { host: host.name.clone(), address: address.into() })
}

/// Places the flows of the ring. Returns the carrier of each.
fn place(topology: &Topology, ranks: &[Rank]) -> Result<Vec<Ipv6Addr>, LabError> {
    let failed =
        |why: &dyn std::fmt::Display| LabError::Failed(format!("the flows of the job cannot be placed: {why}"));
    let graph: Value = controller::graph(topology);
    let fabric = Fabric::from_topology(&graph).map_err(|why| failed(&why))?;
    let node = |rank: usize| -> Option<NodeId> { fabric.find(&ranks.get(rank)?.host) };
    let count = ranks.len();
    let demand = |number: usize| if number < count { DATA } else { ACKNOWLEDGEMENTS };
    let flow = |(number, (from, to))| {
        Some(Flow { source: node(from)?, destination: node(to)?, demand: demand(number), tenant: None })
    };
    let demand = Demand { flows: flows(count).enumerate().filter_map(flow).collect() };
    let constraints = Constraints::default();
    let comparison = compare(&fabric, &demand, &constraints, 1).map_err(|why| failed(&why))?;
    let sids = sids(&graph);
    let report = Report {
        fabric: &fabric,
        demand: &demand,
        constraints: &constraints,
        comparison: &comparison,
        sids: sids.as_ref(),
        most_flows: count,
    };
    let hops = (0..demand.flows.len()).map(|flow| report.hop(&comparison.placed, flow, true));
    hops.map(|hop| only_carrier(hop).map_err(|why| failed(&why))).collect()
}

/// Returns the carrier of a path, which must have exactly one.
pub(crate) fn only_carrier(hop: Hop) -> Result<Ipv6Addr, String> {
    match hop.carriers.as_slice() {
        [carrier] => Ok(*carrier),
        _ => Err(hop.no_carrier.unwrap_or_else(|| "a path needs several carriers".to_owned())),
    }
}

/// Returns a carrier without the uSIDs of spines. What stands behind moves up.
fn without(carrier: Ipv6Addr, spines: &[u16]) -> Ipv6Addr {
    let mut groups = [0; 8];
    let block = carrier.segments().into_iter().take(2);
    let rest = carrier.segments().into_iter().skip(2).filter(|usid| !spines.contains(usid));
    for (place, group) in groups.iter_mut().zip(block.chain(rest)) {
        *place = group;
    }
    groups.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::FABRIC;
    use std::collections::BTreeMap;

    fn job() -> (Topology, Job) {
        let topology = Topology::parse(FABRIC, "fabric").unwrap();
        let job = Job::plan(&topology).unwrap().unwrap();
        (topology, job)
    }

    #[test]
    fn placed_data_has_every_link_for_itself() {
        let (topology, job) = job();
        assert_eq!((job.ranks(), job.steps()), (9, 16));
        let mut uses = BTreeMap::new();
        for carrier in job.placed.iter().take(9) {
            let [_, _, from, spine, to, ..] = carrier.segments();
            *uses.entry((from, spine)).or_insert(0) += 1;
            *uses.entry((spine, to)).or_insert(0) += 1;
        }
        assert_eq!((uses.len(), uses.values().max()), (18, Some(&1)), "{:?}", job.placed);
        assert_eq!(topology.links().count() - 3, 9, "18 directions between leaves and spines");
    }

    #[test]
    fn hashed_carriers_name_the_leaves_only() {
        let (_, job) = job();
        assert_eq!(job.hashed.first().unwrap().to_string(), "fcbb:0:1004:1005:fe06::");
        let steers = job.steers("host00", &job.hashed);
        let prefixes: Vec<String> = steers.iter().map(|steer| steer.prefix.to_string()).collect();
        let (next, before) = (["100", "101", "102"], ["102", "100", "101"]);
        let expected: Vec<String> = next
            .iter()
            .map(|last| format!("fcbb:0:800:1::{last}/128"))
            .chain(before.iter().map(|last| format!("fcbb:0:800:2::{last}/128")))
            .collect();
        let sorted = |mut list: Vec<String>| {
            list.sort();
            list
        };
        assert_eq!(sorted(prefixes), sorted(expected));
    }

    #[test]
    fn a_fabric_without_room_for_it_has_no_job() {
        let without_srv6d = FABRIC
            .replace("kind = \"srv6d\"\nsource = \"fcbb:0:1001::1\"", "kind = \"linux\"\nsource = \"fcbb:0:1001::1\"");
        assert_ne!(without_srv6d, FABRIC);
        let topology = Topology::parse(&without_srv6d, "fabric").unwrap();
        assert!(Job::plan(&topology).unwrap().is_none());
    }

    #[test]
    fn an_invalid_run_shows_no_times() {
        let (line, seen) = verdict(Run::Took(4.12), Run::Took(2.2));
        assert!(line.contains("hashed 4.1 s, placed 2.2 s") && seen.unwrap().ends_with("hashed 4.1 s, placed 2.2 s"));
        let late = Run::Invalid(Some(Duration::from_millis(33)));
        for runs in [(late, Run::Took(2.2)), (Run::Took(4.1), late)] {
            let (line, seen) = verdict(runs.0, runs.1);
            assert!(line.contains("33 ms late, where 20 ms") && !line.contains(" s,") && seen.is_none(), "{line}");
        }
    }

    #[test]
    fn lateness_is_judged_by_the_queue() {
        assert_eq!(limit(), Duration::from_micros(20_480));
    }
}
