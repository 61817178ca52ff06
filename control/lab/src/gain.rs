//! `srv6d lab job`: measures what a job gains.
//!
//! The ring all-reduce of the demonstration runs again and again over links that have a rate, each time with paths that are
//! chosen in another way. What is measured is the time of a step: it ends when the slowest flow has arrived. Every round has new
//! connections, so that hashes spread them in another way.

use srv6d_netns as netns;
use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};
use srv6d_api::jobs::{JobRequest, JobView, PlacedJob};
use srv6d_api::{Request, Response};
use srv6d_placement::{ChosenPaths, Constraints, Demand, Fabric, Flow, Report, busiest, compare, load_order, sids};
use srv6d_report::{Bar, Chart, Group, Mark};
use srv6d_show::Table;

use super::error::LabError;
use super::fabric::Lab;
use super::interrupt::Interrupt;
use super::job::{self, ACKNOWLEDGEMENTS, CHUNK, DATA, Job, RATE, Ring, flows, limit, only_carrier};
use super::lateness::Lateness;
use super::screen::{BAD, DIM, Screen, styled};
use super::topology::{FABRIC, Role, Topology};
use super::{controller, node_config};

/// Longest wait for the paths of a job.
const PATIENCE: Duration = Duration::from_secs(30);
/// Prefix of the addresses of all ranks.
const ADDRESSES: &str = "fcbb:0:800::/40";
/// Names of the rows.
const ECMP: &str = "ECMP";
const SHORTEST: &str = "shortest path";
const LOAD: &str = "/load, pair by pair";
const PLACED: &str = "srv6d job";
const TWO_ECMP: &str = "two jobs, ECMP";
const TWO_PLACED: &str = "two jobs, srv6d job";
const LOST: &str = "srv6d job, a link lost";

/// The steps of one way of choosing paths.
#[derive(Clone, Debug, Serialize)]
struct Row {
    /// How paths were chosen.
    way: &'static str,
    /// Number of steps that were measured.
    steps: usize,
    /// Time of a step in milliseconds: half of all steps took so long at most, and 99 of 100.
    p50_ms: f64,
    p99_ms: f64,
    /// Seconds of all steps together.
    seconds: f64,
    /// Milliseconds from the loss of the link to the new paths in force everywhere, and how many paths moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    placed_again_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    moved: Option<usize>,
    /// True if the machine was fast enough for the links.
    is_valid: bool,
}

/// Measures all ways, and prints the table.
///
/// # Errors
/// The lab did not come up, a tool failed, or the user pressed Ctrl-C.
pub fn run(rounds: usize, json: bool, svg: Option<&Path>, screen: &mut Screen) -> Result<(), LabError> {
    let interrupt = Interrupt::watch()?;
    let mut topology = Topology::parse(FABRIC, "built-in topology")?;
    "job".clone_into(&mut topology.name);
    topology.controller = None;
    let lab = Lab::bring_up(topology, FABRIC, &interrupt, &mut Screen::silent())?;
    let rows = measure(&lab, rounds, &interrupt, (!json).then_some(&mut *screen));
    let down = lab.take_down();
    let rows = rows?;
    down?;
    if let Some(file) = svg {
        fs::write(file, chart(&rows).svg()).map_err(|error| LabError::io("write", file, &error))?;
    }
    if json {
        let text = serde_json::to_string_pretty(&rows).map_err(|error| LabError::Failed(error.to_string()))?;
        screen.line(&text);
        return Ok(());
    }
    screen.line("");
    screen.print(&table(&rows));
    for row in rows.iter().filter(|row| !row.is_valid) {
        screen.line(&styled(BAD, &format!("{}: invalid, because this machine was too busy for the links", row.way)));
    }
    let kibibytes = CHUNK / 1024;
    screen
        .line(&styled(DIM, &format!("each flow carries {kibibytes} KiB in a step; links between switches: {RATE}/s")));
    Ok(())
}

fn measure(lab: &Lab, rounds: usize, interrupt: &Interrupt, screen: Option<&mut Screen>) -> Result<Vec<Row>, LabError> {
    let needs = || LabError::Failed(format!("the fabric is not made for the job: {}", job::NEEDS));
    let job = Job::plan(&lab.topology)?.ok_or_else(needs)?;
    job.prepare(lab)?;
    let graph = lab.run.path().join("ranks.json");
    let mut bench = Bench { lab, job, interrupt, rounds, graph, down: None, screen };
    bench.rows()
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new(&["PATHS", ">STEPS", ">P50 MS", ">P99 MS", ">ALL S", ">AGAIN MS", ">MOVED"]);
    for row in rows {
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        table.row([
            row.way.to_owned(),
            row.steps.to_string(),
            format!("{:.0}", row.p50_ms),
            format!("{:.0}", row.p99_ms),
            format!("{:.1}", row.seconds),
            or_none(row.placed_again_ms.map(|time| format!("{time:.0}"))),
            or_none(row.moved.map(|count| count.to_string())),
        ]);
    }
    table.finish("nothing was measured")
}

fn chart(rows: &[Row]) -> Chart {
    let bar = |series: &str, value: f64, is_valid: bool| Bar {
        series: series.to_owned(),
        value,
        low: value,
        high: value,
        mark: if is_valid { Mark::Measured } else { Mark::None },
    };
    let group = |row: &Row| Group {
        label: row.way.to_owned(),
        bars: vec![
            bar("half of all steps took so long at most", row.p50_ms, row.is_valid),
            bar("99 of 100 steps", row.p99_ms, row.is_valid),
        ],
    };
    Chart {
        title: format!("A step of a ring all-reduce over links of {RATE}/s"),
        unit: "ms".to_owned(),
        groups: rows.iter().map(group).collect(),
    }
}

struct Bench<'a> {
    lab: &'a Lab,
    job: Job,
    interrupt: &'a Interrupt,
    rounds: usize,
    /// File of the topology that jobs are placed on: every rank is a host.
    graph: PathBuf,
    /// Leaf and spine whose link is down.
    down: Option<[String; 2]>,
    screen: Option<&'a mut Screen>,
}

impl Bench<'_> {
    fn rows(&mut self) -> Result<Vec<Row>, LabError> {
        let all: Vec<usize> = (0..self.job.ranks()).collect();
        let [shortest, load] = self.by_controller()?;
        let mut rows = Vec::new();
        for (way, carriers) in [(ECMP, self.job.hashed.clone()), (SHORTEST, shortest), (LOAD, load)] {
            self.job.steer(self.lab, &carriers)?;
            rows.push(self.steps(way, &[&all])?);
        }
        self.take_part()?;
        let placed = self.start("all", &all)?;
        rows.push(self.steps(PLACED, &[&all])?);
        rows.push(self.lose_a_link(&all, &placed)?);
        self.end("all")?;
        self.repair()?;

        // Two jobs have a rank on every host each. Their steps are measured together.
        let hosts = self.lab.topology.tier(Role::Host).count();
        let (one, rest) = all.split_at(hosts);
        let other = rest.get(..hosts).unwrap_or_default();
        self.job.steer(self.lab, &self.job.hashed)?;
        rows.push(self.steps(TWO_ECMP, &[one, other])?);
        self.take_part()?;
        self.start("one", one)?;
        self.start("other", other)?;
        rows.push(self.steps(TWO_PLACED, &[one, other])?);
        Ok(rows)
    }

    fn say(&mut self, text: &str) {
        if let Some(screen) = &mut self.screen {
            screen.line(text);
        }
    }

    /// Returns the carriers of all flows over the paths that Jalapeno's `/shortest_path` answers, which are the same for a pair
    /// whatever the others take, and over those of `/load`, asked for pair after pair.
    fn by_controller(&self) -> Result<[Vec<Ipv6Addr>; 2], LabError> {
        let failed = |why: String| LabError::Failed(format!("no paths of a controller: {why}"));
        let graph = controller::graph(&self.lab.topology);
        let fabric = Fabric::from_topology(&graph).map_err(|why| failed(why.to_string()))?;
        let node = |rank: usize| self.job.ranks.get(rank).and_then(|rank| fabric.find(&rank.host));
        let flow = |(from, to)| Some(Flow { source: node(from)?, destination: node(to)?, demand: 1, tenant: None });
        let flows: Vec<Flow> = flows(self.job.ranks()).filter_map(flow).collect();
        let sids = sids(&graph);
        let constraints = Constraints::default();
        let carriers = |flows: &[Flow]| -> Result<Vec<Ipv6Addr>, LabError> {
            let demand = Demand { flows: flows.to_vec() };
            let paths = load_order(&fabric, &demand).map_err(|why| failed(why.to_string()))?;
            let loads = paths.loads(&fabric, &demand);
            let chosen = ChosenPaths { busiest: busiest(&fabric, &loads), loads, paths };
            let comparison = compare(&fabric, &demand, &constraints, 1);
            let comparison = comparison.map_err(|why| failed(why.to_string()))?;
            let report = Report {
                fabric: &fabric,
                demand: &demand,
                constraints: &constraints,
                comparison: &comparison,
                sids: sids.as_ref(),
                most_flows: flows.len(),
            };
            let hops = (0..flows.len()).map(|flow| report.hop(&chosen, flow, true));
            hops.map(|hop| only_carrier(hop).map_err(failed)).collect()
        };
        // A book that knows of no other pair answers with the shortest path.
        let shortest = flows.iter().map(|flow| carriers(std::slice::from_ref(flow)));
        let shortest: Vec<Vec<Ipv6Addr>> = shortest.collect::<Result<_, _>>()?;
        Ok([shortest.into_iter().flatten().collect(), carriers(&flows)?])
    }

    /// Runs rings of ranks side by side, round after round with new connections, and measures the steps of all of them.
    fn steps(&mut self, way: &'static str, rings: &[&[usize]]) -> Result<Row, LabError> {
        let before = Lateness::of(self.lab);
        let (mut micros, mut seconds) = (Vec::new(), 0.0);
        for _ in 0..self.rounds {
            seconds += self.round(rings, 1, &mut micros, |_, _| Ok(()))?;
        }
        Ok(self.row(way, &before, micros, seconds))
    }

    /// Runs rings of ranks side by side. `act` is called after each step of the first one. Returns how long the ranks took, in
    /// seconds.
    fn round(
        &mut self,
        rings: &[&[usize]],
        rounds: usize,
        micros: &mut Vec<u64>,
        mut act: impl FnMut(&mut Self, usize) -> Result<(), LabError>,
    ) -> Result<f64, LabError> {
        let mut running = Vec::new();
        for ring in rings {
            let ranks: Vec<_> = ring.iter().filter_map(|rank| self.job.ranks.get(*rank).cloned()).collect();
            // A ring of fewer ranks has fewer steps, and more rounds.
            let rounds = rounds * (self.job.ranks() - 1) / ranks.len().saturating_sub(1).max(1);
            running.push(Ring::start(self.lab, &ranks, rounds)?);
        }
        for (number, ring) in running.iter_mut().enumerate() {
            for step in 1..=ring.steps() {
                micros.push(ring.step()?.micros);
                self.interrupt.check()?;
                if number == 0 {
                    act(self, step)?;
                }
            }
        }
        let mut seconds = 0.0_f64;
        for ring in running {
            seconds = seconds.max(ring.finish(self.interrupt)?);
        }
        Ok(seconds)
    }

    fn row(&mut self, way: &'static str, before: &Lateness, mut micros: Vec<u64>, seconds: f64) -> Row {
        let late = Lateness::of(self.lab).since(before).p99();
        micros.sort_unstable();
        let row = Row {
            way,
            steps: micros.len(),
            p50_ms: milliseconds(percentile(&micros, 50)),
            p99_ms: milliseconds(percentile(&micros, 99)),
            seconds,
            placed_again_ms: None,
            moved: None,
            is_valid: late.is_some_and(|late| late <= limit()),
        };
        let [p50, p99] = [row.p50_ms, row.p99_ms];
        let valid = if row.is_valid { "" } else { ", invalid" };
        self.say(&format!("  {way}: half of all steps within {p50:.0} ms, 99 of 100 within {p99:.0} ms{valid}"));
        row
    }

    /// Lets every host take part in jobs, and steer nothing else to ranks.
    fn take_part(&self) -> Result<(), LabError> {
        self.write_graph()?;
        for host in self.lab.topology.tier(Role::Host) {
            let text = node_config::srv6d_toml(&self.lab.topology, host, &self.lab.run.socket(&host.name));
            let jobs =
                format!("[jobs]\nallowed_prefixes = [\"{ADDRESSES}\"]\ntopology = \"{}\"\n", self.graph.display());
            self.lab.reload_with(&host.name, &format!("{text}\n{jobs}"))?;
        }
        Ok(())
    }

    /// Writes the topology for jobs: that of the lab, with a host for each rank at the leaf of its node.
    fn write_graph(&self) -> Result<(), LabError> {
        let mut graph = controller::graph(&self.lab.topology);
        let mut hosts = Vec::new();
        let mut edges = Vec::new();
        for (number, rank) in self.job.ranks.iter().enumerate() {
            let Some(leaf) = self.leaf(&rank.host) else { continue };
            let (name, leaf) = (self.vertex(number), format!("fabric_node/{leaf}"));
            let id = format!("hosts/{name}");
            hosts.push(json!({"_key": name, "name": name, "prefix": rank.address, "prefix_len": 128}));
            for (from, to, end) in [(&id, &leaf, "up"), (&leaf, &id, "down")] {
                edges.push(json!({"_key": format!("{name}_{end}"), "_from": from, "_to": to}));
            }
        }
        extend(&mut graph, "hosts", hosts);
        extend(&mut graph, "edges", edges);
        for edge in graph.get_mut("edges").and_then(Value::as_array_mut).into_iter().flatten() {
            let end = |key: &str| edge.get(key)?.as_str()?.split('/').nth(1).map(str::to_owned);
            let ends = [end("_from"), end("_to")];
            let is_down = self.down.iter().any(|link| ends.iter().flatten().all(|end| link.contains(end)));
            if let Some(edge) = edge.as_object_mut().filter(|_| is_down) {
                edge.insert("up".to_owned(), json!(false));
            }
        }
        self.lab.run.write("ranks.json", &graph.to_string())
    }

    fn vertex(&self, rank: usize) -> String {
        let host = self.job.ranks.get(rank).map_or("", |rank| rank.host.as_str());
        format!("{host}-rank{rank}")
    }

    fn leaf(&self, host: &str) -> Option<String> {
        self.lab.topology.ports(host).first().map(|port| port.peer.node.clone())
    }

    fn ask(&self, host: &str, request: Value) -> Result<Response, LabError> {
        let failed = |why: String| LabError::Failed(format!("srv6d of {host}: {why}"));
        let request: JobRequest = serde_json::from_value(request).map_err(|why| failed(why.to_string()))?;
        match self.lab.ask(host, &Request::Job(Box::new(request)))? {
            Response::Refused(refusal) => Err(failed(refusal.errors.join("; "))),
            response => Ok(response),
        }
    }

    fn placed(&self, host: &str, request: Value) -> Result<PlacedJob, LabError> {
        match self.ask(host, request)? {
            Response::Placed(placed) => Ok(*placed),
            other => Err(LabError::Failed(format!("srv6d of {host} answered something else: {other:?}"))),
        }
    }

    fn hosts(&self) -> Vec<String> {
        self.lab.topology.tier(Role::Host).map(|host| host.name.clone()).collect()
    }

    /// Returns a job of these ranks, numbered anew: data to the next one, acknowledgements back.
    fn job_of(&self, id: &str, ranks: &[usize], generation: u64) -> Value {
        let member = |(number, rank): (usize, &usize)| {
            let address = self.job.ranks.get(*rank).map(|rank| rank.address.to_string());
            json!({"rank": number, "host": self.vertex(*rank), "addresses": [address]})
        };
        let members: Vec<Value> = ranks.iter().enumerate().map(member).collect();
        let back = (0..ranks.len()).map(|rank| json!([(rank + 1) % ranks.len(), rank, ACKNOWLEDGEMENTS]));
        json!({"id": id, "generation": generation, "pattern": "ring", "demand": DATA, "pairs": back.collect::<Vec<_>>(),
            "members": members})
    }

    /// Places a job, lets all ranks join, and waits until its paths are in force.
    fn start(&self, id: &str, ranks: &[usize]) -> Result<PlacedJob, LabError> {
        let leader = ranks.first().and_then(|rank| self.job.ranks.get(*rank)).map_or("", |rank| rank.host.as_str());
        let placed = self.placed(leader, json!({"action": "place", "job": self.job_of(id, ranks, 1)}))?;
        self.join(id, ranks, &placed, false)?;
        self.wait(id)?;
        Ok(placed)
    }

    fn join(&self, id: &str, ranks: &[usize], placed: &PlacedJob, prepare: bool) -> Result<(), LabError> {
        let job = self.job_of(id, ranks, placed.placement.generation);
        for of_rank in &placed.assignments {
            let rank = ranks.get(of_rank.rank as usize).and_then(|rank| self.job.ranks.get(*rank));
            let Some(rank) = rank else { continue };
            let request = json!({"action": "join", "job": job, "placement": placed.placement, "rank": of_rank.rank,
                "paths": of_rank.paths, "hold": "end", "prepare": prepare});
            self.ask(&rank.host, request)?;
        }
        Ok(())
    }

    fn wait(&self, id: &str) -> Result<(), LabError> {
        for host in self.hosts() {
            let is_installed = || match self.ask(&host, json!({"action": "show", "job": id}))? {
                Response::Jobs(views) => {
                    let all = views.iter().all(|view: &JobView| view.state == "installed");
                    Ok(all.then_some(()))
                }
                _ => Ok(None),
            };
            let done = self.interrupt.wait_for(PATIENCE, is_installed)?;
            done.ok_or_else(|| LabError::Failed(format!("the paths of job {id} are not in force at {host}")))?;
        }
        Ok(())
    }

    fn end(&self, id: &str) -> Result<(), LabError> {
        self.hosts().iter().try_for_each(|host| self.ask(host, json!({"action": "end", "job": id})).map(drop))
    }

    /// Measures steps while a link of the first rank's path is lost, and the job is placed again.
    fn lose_a_link(&mut self, ranks: &[usize], placed: &PlacedJob) -> Result<Row, LabError> {
        let path = placed.assignments.first().and_then(|of_rank| of_rank.paths.first());
        let Some([leaf, spine, ..]) = path.map(|path| path.via.as_slice()) else {
            return Err(LabError::Failed("the first rank has no path".to_owned()));
        };
        let link = [leaf.clone(), spine.clone()];
        let lost_after = self.rounds * 2 * (self.job.ranks() - 1) / 3;
        let mut again = None;
        let before = Lateness::of(self.lab);
        let mut micros = Vec::new();
        let seconds = self.round(&[ranks], self.rounds, &mut micros, |bench, step| {
            if step != lost_after.max(1) {
                return Ok(());
            }
            let begin = Instant::now();
            bench.down = Some(link.clone());
            bench.set_link("down")?;
            bench.write_graph()?;
            let leader = bench.job.ranks.first().map_or("", |rank| rank.host.as_str());
            let placed = bench.placed(leader, json!({"action": "replace", "job": "all"}))?;
            bench.join("all", ranks, &placed, true)?;
            for host in bench.hosts() {
                let generation = placed.placement.generation;
                bench.ask(&host, json!({"action": "commit", "job": "all", "generation": generation}))?;
            }
            bench.wait("all")?;
            let moved = placed.placement.replaces.map(|replaces| replaces.moved);
            again = Some((begin.elapsed().as_secs_f64() * 1e3, moved));
            Ok(())
        })?;
        let mut row = self.row(LOST, &before, micros, seconds);
        if let Some((time, moved)) = again {
            (row.placed_again_ms, row.moved) = (Some(time), moved);
        }
        Ok(row)
    }

    /// Brings the lost link up again, and waits until the leaf can send over it.
    fn repair(&mut self) -> Result<(), LabError> {
        self.set_link("up")?;
        self.down = None;
        self.write_graph()
    }

    fn set_link(&self, state: &str) -> Result<(), LabError> {
        let Some([leaf, spine]) = &self.down else { return Ok(()) };
        let ports = self.lab.topology.ports(leaf);
        let Some(port) = ports.iter().find(|port| port.peer.node == *spine) else { return Ok(()) };
        let device = &port.own.port;
        let mut commands = vec![format!("link set {device} {state}")];
        if state == "up" {
            // The kernel forgets IPv6 addresses of a device that goes down.
            let addresses = port.own.addresses.iter();
            commands.extend(addresses.map(|address| format!("addr replace {address} dev {device} nodad")));
        }
        netns::ip_batch(&self.lab.netns(leaf), &commands).map_err(|error| LabError::Failed(format!("{leaf}: {error}")))
    }
}

fn extend(graph: &mut Value, key: &str, more: Vec<Value>) {
    if let Some(list) = graph.get_mut(key).and_then(Value::as_array_mut) {
        list.extend(more);
    }
}

/// Returns the time that so many of a hundred values do not exceed. The values are ordered.
fn percentile(micros: &[u64], percent: usize) -> u64 {
    let place = (micros.len() * percent).div_ceil(100).saturating_sub(1);
    micros.get(place).copied().unwrap_or_default()
}

#[allow(clippy::cast_precision_loss, reason = "times are far below 2^53 microseconds")]
fn milliseconds(micros: u64) -> f64 {
    micros as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let micros: Vec<u64> = (1..=200).collect();
        assert_eq!([50, 99].map(|percent| percentile(&micros, percent)), [100, 198]);
        assert_eq!([percentile(&[7], 50), percentile(&[7], 99), percentile(&[], 50)], [7, 7, 0]);
    }
}
