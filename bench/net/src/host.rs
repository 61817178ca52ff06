//! Measures a host's own applications: TCP and UDP through srv6d, compared with the kernel's encapsulation, which has
//! segmentation offload.
//!
//! ```text
//! host: iperf3 client ─► kernel encap.red | srv6d's worker | srv6d's tc program ─► veth ─► far: kernel End.DT6 ─► iperf3 server
//! ```

mod cost;
mod responses;

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use cost::{Cost, What};

use crate::BenchError;
use crate::cpu::Snapshot;
use crate::dut::Daemon;
use crate::machine::Stamp;
use crate::netns::{Ended, Namespace, run, tool};
use crate::statistics::Spread;
use srv6d_report::Schema;
use srv6d_report::{Bar, Chart, Document, Group, Section, Table};

/// Bytes of headers around the payload of a UDP datagram that fits into the MTU when encapsulated: 40 outer, 40 inner,
/// 8 UDP.
const HEADERS: u32 = 88;
/// Bytes of a small datagram.
const SMALL: u32 = 64;
const CONFIGURATION: &str = r#"
[node]
source = "2001:db8:a::1"
[workers]
frames = 8192
ring = 2048
[api]
metrics = "off"
[[block]]
prefix = "fcbb::/32"
[[port]]
name = "eth1"
role = "fabric"
[[steer]]
prefix = "2001:db8:f::/64"
segments = ["fcbb:0:9::"]
via = "2001:db8:a::2"
port = "eth1"
[[steer]]
prefix = "2001:db8:1f::/64"
segments = ["fcbb:0:7::", "fcbb:0:9::"]
via = "2001:db8:a::2"
port = "eth1"
[[steer]]
prefix = "10.9.0.0/16"
segments = ["fcbb:0:8::"]
via = "2001:db8:a::2"
port = "eth1"
"#;

/// One row of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// MTU of the link in bytes.
    pub mtu: u32,
    /// Whether UDP is used; otherwise TCP.
    pub udp: bool,
    /// Number of simultaneous connections.
    pub flows: u32,
    /// Kind of packets, and of path.
    #[serde(default)]
    pub kind: Kind,
}

/// Kind of packets that a stream has, and of path that it takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// IPv6 without an SRH, packets as large as the MTU.
    #[default]
    Plain,
    /// IPv6 by two segments, so with an SRH.
    Srh,
    /// IPv4 without an SRH.
    V4,
    /// IPv6 in datagrams of 64 bytes.
    Small,
}

impl Kind {
    fn far_end(self) -> &'static str {
        match self {
            Self::Plain | Self::Small => "2001:db8:f::1",
            Self::Srh => "2001:db8:1f::1",
            Self::V4 => "10.9.0.1",
        }
    }
}

/// Returns all rows: MTU 1500 and 9000, TCP and UDP, one flow and eight; TCP by an SRH and over IPv4, and small datagrams.
pub fn rows() -> Vec<Row> {
    let all = [1500, 9000].into_iter().flat_map(|mtu| [false, true].map(|udp| (mtu, udp)));
    let plain = all.flat_map(|(mtu, udp)| [1, 8].map(|flows| Row { mtu, udp, flows, kind: Kind::Plain }));
    let others = [(Kind::Srh, false), (Kind::V4, false), (Kind::Small, true)];
    let others = others.into_iter().flat_map(|(kind, udp)| [1500, 9000].map(|mtu| Row { mtu, udp, flows: 1, kind }));
    plain.chain(others.filter(|row| row.kind != Kind::Small || row.mtu == 1500)).collect()
}

impl Row {
    /// Returns the name in reports.
    pub fn name(self) -> String {
        let flows = if self.flows == 1 { "1 flow".to_owned() } else { format!("{} flows", self.flows) };
        let kind = match self.kind {
            Kind::Plain => "",
            Kind::Srh => ", with an SRH",
            Kind::V4 => ", IPv4",
            Kind::Small => ", 64 bytes",
        };
        format!("{} MTU {}, {flows}{kind}", if self.udp { "UDP" } else { "TCP" }, self.mtu)
    }
}

/// Results of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Format of the file.
    pub schema: Schema,
    /// Machine, kernel, versions, command.
    pub stamp: Stamp,
    /// Streams of each row.
    pub streams: Vec<Streams>,
    /// CPU time of single packets, turn by turn.
    #[serde(default)]
    pub costs: Vec<Cost>,
    /// Requests and responses, round by round.
    #[serde(default)]
    pub responses: Responses,
    /// Why the run ended early; `None`: it did not.
    #[serde(default)]
    pub cut_off: Option<String>,
}

/// Median and 99th percentile of the time from a request to its response, in seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Responses {
    /// Through the kernel.
    pub kernel: Vec<[f64; 2]>,
    /// Through srv6d's worker.
    pub srv6d: Vec<[f64; 2]>,
    /// Through srv6d's tc program.
    pub tc: Vec<[f64; 2]>,
}

/// Received bits per second of each kind of encapsulation, round by round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Streams {
    /// Row that was measured.
    pub row: Row,
    /// Rates through the kernel.
    pub kernel: Vec<f64>,
    /// Rates through srv6d's worker.
    pub srv6d: Vec<f64>,
    /// Rates through srv6d's tc program (`[host] engine = "tc"`).
    #[serde(default)]
    pub tc: Vec<f64>,
    /// Seconds in which cores were busy, of the whole machine, for each byte that arrived: through the kernel, the worker, the tc
    /// program.
    #[serde(default)]
    pub cpu: [Vec<f64>; 3],
}

/// What was measured of a stream.
struct Measured {
    bits_per_second: f64,
    cpu_per_byte: f64,
}

/// Settings of the measurement.
pub struct Plan<'p> {
    /// The srv6d to measure.
    pub srv6d: &'p Path,
    /// Number of rounds in which each row is measured.
    pub rounds: u16,
    /// Length of each stream in seconds.
    pub seconds: u16,
    /// Measures only the CPU time of single packets, which takes a minute.
    pub cpu_only: bool,
    /// Set by a signal: the run then ends after the current round and reports what it has.
    pub interrupted: &'p AtomicBool,
}

impl Plan<'_> {
    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// Measures every row, alternating between the kinds of encapsulation. If the run ends early, the reason is stored
/// in the results ([`Results::cut_off`]).
pub fn measure(
    plan: &Plan<'_>,
    stamp: Stamp,
    say: &dyn Fn(&str),
    keep: &dyn Fn(&Results) -> Result<(), BenchError>,
) -> Results {
    let cut_off = Some(crate::results::UNDER_WAY.to_owned());
    let mut results = Results { stamp, cut_off, ..Results::default() };
    if !plan.cpu_only {
        let version = run(tool("iperf3").arg("--version")).unwrap_or_default();
        results.stamp.add("generator", version.lines().next().unwrap_or("iperf3").trim().to_owned());
        let streams = rows().len() as u64 * 3 * u64::from(plan.rounds);
        // Starting a server, a client and srv6d takes about a second.
        let minutes = (streams * (u64::from(plan.seconds) + 1)).div_ceil(60);
        say(&format!(
            "{streams} streams, about {minutes} min; what arrives through srv6d, the kernel's own encapsulation is 1"
        ));
    }
    let mut all = || {
        if !plan.cpu_only {
            rows().into_iter().try_for_each(|row| measure_row(plan, row, &mut results, say, keep))?;
            measure_responses(plan, &mut results, say, keep)?;
        }
        [1500, 9000].into_iter().try_for_each(|mtu| measure_costs(plan, mtu, &mut results, say, keep))
    };
    let ended = all();
    results.cut_off = ended.err().map(|why| why.0);
    results
}

fn measure_costs(
    plan: &Plan<'_>,
    mtu: u32,
    results: &mut Results,
    say: &dyn Fn(&str),
    keep: &dyn Fn(&Results) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let (kernel, srv6d) = (Bed::named("k", mtu)?, Bed::named("s", mtu)?);
    let costs = kernel.by_kernel(|| srv6d.by_srv6d(plan, "tc", || cost::measure(plan, &kernel, &srv6d, mtu)))?;
    for cost in &costs {
        say(&cost.line().join("  "));
    }
    results.costs.extend(costs);
    keep(results)
}

fn measure_row(
    plan: &Plan<'_>,
    row: Row,
    results: &mut Results,
    say: &dyn Fn(&str),
    keep: &dyn Fn(&Results) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let bed = Bed::new(row.mtu)?;
    let mut streams =
        Streams { row, kernel: Vec::new(), srv6d: Vec::new(), tc: Vec::new(), cpu: <[Vec<f64>; 3]>::default() };
    for round in 0..plan.rounds {
        let stream = || bed.iperf3(row, plan.seconds);
        let all = [bed.by_kernel(stream)?, bed.by_srv6d(plan, "worker", stream)?, bed.by_srv6d(plan, "tc", stream)?];
        let [kernel, worker, tc] = all.each_ref().map(|measured| measured.bits_per_second);
        streams.kernel.push(kernel);
        streams.srv6d.push(worker);
        streams.tc.push(tc);
        for (cpu, measured) in streams.cpu.iter_mut().zip(&all) {
            cpu.push(measured.cpu_per_byte);
        }
        if round > 0 {
            results.streams.pop();
        }
        results.streams.push(streams.clone());
        keep(results)?;
        if plan.is_interrupted() {
            return Err(BenchError("interrupted".to_owned()));
        }
    }
    let [worker, tc] = [&streams.srv6d, &streams.tc].map(|rates| shown(streams.ratio(rates), 1.0));
    say(&format!("{:<22} worker {worker}, tc {tc}", row.name()));
    Ok(())
}

fn measure_responses(
    plan: &Plan<'_>,
    results: &mut Results,
    say: &dyn Fn(&str),
    keep: &dyn Fn(&Results) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let bed = Bed::new(1500)?;
    for _ in 0..plan.rounds {
        let times = || responses::measure(&bed.host, &bed.far, plan.seconds);
        results.responses.kernel.push(bed.by_kernel(times)?);
        results.responses.srv6d.push(bed.by_srv6d(plan, "worker", times)?);
        results.responses.tc.push(bed.by_srv6d(plan, "tc", times)?);
        keep(results)?;
        if plan.is_interrupted() {
            return Err(BenchError("interrupted".to_owned()));
        }
    }
    results.responses.lines().iter().for_each(|line| say(&line.join("  ")));
    Ok(())
}

impl Responses {
    /// Returns ratios to the kernel's times within each round: a line for the median, and one for the 99th percentile.
    fn lines(&self) -> Vec<Vec<String>> {
        let ratio = |times: &[[f64; 2]], at: usize| {
            let pairs = times.iter().zip(&self.kernel);
            Spread::of(pairs.filter_map(|(time, kernel)| Some(time.get(at)? / kernel.get(at)?)))
        };
        let line = |(at, name): (usize, &str)| {
            let [worker, tc] = [&self.srv6d, &self.tc].map(|times| shown(ratio(times, at), 1.0));
            vec![format!("TCP request and response, {name}"), worker, tc]
        };
        [(0, "median"), (1, "99th percentile")].into_iter().map(line).collect()
    }
}

impl Streams {
    /// Returns the ratio of these rates to the kernel's within each round, or `None` if no round has both.
    pub fn ratio(&self, rates: &[f64]) -> Option<Spread> {
        let pairs = rates.iter().zip(&self.kernel).filter(|&(_, &kernel)| kernel > 0.0);
        Spread::of(pairs.map(|(rate, kernel)| rate / kernel))
    }

    fn line(&self) -> Vec<String> {
        let gigabits = |rates: &[f64]| shown(Spread::of(rates.iter().copied()), 1e-9);
        let ratios = [&self.srv6d, &self.tc].map(|rates| shown(self.ratio(rates), 1.0));
        let rates = [&self.kernel, &self.srv6d, &self.tc].map(|rates| gigabits(rates));
        let [kernel, worker, tc] = &self.cpu;
        let cpu = [worker, tc].map(|cpu| {
            let pairs = cpu.iter().zip(kernel).filter(|&(_, &kernel)| kernel > 0.0);
            shown(Spread::of(pairs.map(|(cpu, kernel)| cpu / kernel)), 1.0)
        });
        [self.row.name()].into_iter().chain(ratios).chain(cpu).chain(rates).collect()
    }
}

fn shown(spread: Option<Spread>, factor: f64) -> String {
    spread.map_or_else(|| "-".to_owned(), |spread| spread.shown(factor, 2))
}

/// Host and far end, connected by a veth pair.
struct Bed {
    host: Namespace,
    far: Namespace,
}

impl Bed {
    fn new(mtu: u32) -> Result<Self, BenchError> {
        Self::named("", mtu)
    }

    /// Makes a bed beside others.
    fn named(name: &str, mtu: u32) -> Result<Self, BenchError> {
        let prefix = format!("srv6d-h{}-{name}", std::process::id());
        let host = Namespace::create(&format!("{prefix}host"))?;
        let far = Namespace::create(&format!("{prefix}far"))?;
        host.shell(&format!("ip link add eth1 mtu {mtu} type veth peer name eth1 mtu {mtu} netns {}", &*far))?;
        let address = |number| format!("ip addr add 2001:db8:a::{number}/64 dev eth1 nodad; ip link set eth1 up");
        host.shell(&address(1))?;
        far.shell(&address(2))?;
        host.shell("ip addr add 10.8.0.1/32 dev lo")?;
        far.shell(
            "sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv4.ip_forward=1
             sysctl -qw net.ipv6.conf.all.seg6_enabled=1 net.ipv6.conf.eth1.seg6_enabled=1
             ip addr add 2001:db8:f::1/64 dev lo nodad
             ip addr add 2001:db8:1f::1/64 dev lo nodad
             ip addr add 10.9.0.1/16 dev lo
             ip route add 10.8.0.1/32 via inet6 2001:db8:a::1 dev eth1
             ip -6 route add fcbb:0:7::/48 encap seg6local action End dev eth1
             ip -6 route add fcbb:0:8::/48 encap seg6local action End.DX4 nh4 10.9.0.1 dev eth1
             ip -6 route add fcbb:0:9::/48 encap seg6local action End.DT6 table 255 dev eth1",
        )?;
        Ok(Self { host, far })
    }

    /// Measures the kernel with its default settings, including segmentation offload.
    fn by_kernel<T>(&self, measure: impl FnOnce() -> Result<T, BenchError>) -> Result<T, BenchError> {
        self.host.shell(
            "ip -6 route add fcbb::/32 via 2001:db8:a::2 dev eth1
             ip -6 route add 2001:db8:f::/64 encap seg6 mode encap.red segs fcbb:0:9:: dev eth1
             ip -6 route add 2001:db8:1f::/64 encap seg6 mode encap.red segs fcbb:0:7::,fcbb:0:9:: dev eth1
             ip route add 10.9.0.0/16 encap seg6 mode encap.red segs fcbb:0:8:: dev eth1",
        )?;
        let measured = measure();
        self.host.shell(
            "for to in 2001:db8:f::/64 2001:db8:1f::/64 fcbb::/32; do ip -6 route del $to dev eth1; done
             ip route del 10.9.0.0/16 dev eth1",
        )?;
        measured
    }

    fn by_srv6d<T>(
        &self,
        plan: &Plan<'_>,
        engine: &str,
        measure: impl FnOnce() -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let configuration = format!("[host]\nengine = \"{engine}\"\n{CONFIGURATION}");
        let daemon = Daemon::start(&self.host, plan.srv6d, &configuration, 2)?;
        // The tc program leaves packets to the worker until the next hop is resolved.
        self.host.shell("ping -6 -q -c 1 -w 10 2001:db8:a::2")?;
        let measured = measure();
        drop(daemon);
        measured
    }

    /// Returns what the server has received.
    fn iperf3(&self, row: Row, seconds: u16) -> Result<Measured, BenchError> {
        let far_end = row.kind.far_end();
        let mut server = self.far.dependent("iperf3");
        let server = server.args(["-s", "-1", "-B", far_end]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let server = server.map_err(|why| BenchError::of("iperf3 (Fix: sudo apt-get install iperf3)", why))?;
        let _server = Ended(server);
        self.wait_for_server()?;
        let mut client = self.host.dependent("iperf3");
        client.args(["-c", far_end, "-J", "-t", &seconds.to_string()]);
        client.args(["-P", &row.flows.to_string()]);
        if row.udp {
            let payload = if row.kind == Kind::Small { SMALL } else { row.mtu - HEADERS };
            client.args(["-u", "-b", "0", "-l", &payload.to_string()]);
        }
        let (before, began) = (Snapshot::take(&[])?, Instant::now());
        let said = run(&mut client)?;
        let took = began.elapsed().as_secs_f64();
        let busy: f64 = Snapshot::take(&[])?.since(&before, took).busy.values().map(|core| core.total()).sum();
        let report: Value = serde_json::from_str(&said).map_err(|why| BenchError::of("iperf3", why))?;
        let number = |path: &str| report.pointer(path).and_then(Value::as_f64);
        // With UDP, only the numbers of the server count, because frames that were sent may have been lost.
        let bits = if row.udp { udp_received(&report) } else { number("/end/sum_received/bits_per_second") };
        let bits = bits.filter(|bits| *bits > 0.0);
        let bits_per_second =
            bits.ok_or_else(|| BenchError(format!("iperf3 reports nothing that has arrived: {said}")))?;
        Ok(Measured { bits_per_second, cpu_per_byte: busy * 8.0 / (bits_per_second * f64::from(seconds)) })
    }

    fn wait_for_server(&self) -> Result<(), BenchError> {
        let listens = "for i in $(seq 100); do ss -Htln 'sport = 5201' | grep -q . && exit 0; sleep 0.05; done; exit 1";
        self.far.shell(listens).map(drop)
    }
}

/// Returns the bits per second that were sent, minus those that the other end did not receive.
fn udp_received(report: &Value) -> Option<f64> {
    let number = |path: &str| report.pointer(path).and_then(Value::as_f64);
    Some(number("/end/sum/bits_per_second")? * (1.0 - number("/end/sum/lost_percent")? / 100.0))
}

/// Makes the report.
pub fn document(results: &Results) -> Document {
    let mut stamp = results.stamp.clone();
    stamp.add_cut_off(results.cut_off.as_deref());
    let rows = results.streams.iter().map(Streams::line).collect();
    let columns = [
        "stream",
        "worker / kernel",
        "tc / kernel",
        "worker / kernel, CPU per byte",
        "tc / kernel, CPU per byte",
        "kernel, Gbit/s",
        "worker, Gbit/s",
        "tc, Gbit/s",
    ]
    .map(str::to_owned)
    .to_vec();
    let groups = results.streams.iter().map(|streams| {
        let bar = |(series, rates): (&str, &[f64])| {
            let Spread { median: value, low, high, .. } = streams.ratio(rates)?;
            Some(Bar { series: series.to_owned(), value, low, high, ..Bar::default() })
        };
        let bars = [("srv6d, worker", streams.srv6d.as_slice()), ("srv6d, tc", &streams.tc)];
        Group { label: streams.row.name(), bars: bars.into_iter().filter_map(bar).collect() }
    });
    let chart = Chart {
        title: "What arrives through srv6d; the kernel's own encapsulation is 1".to_owned(),
        unit: "times the kernel".to_owned(),
        groups: groups.collect(),
    };
    Document {
        schema: Schema::default(),
        title: "Applications of a host: srv6d beside the kernel".to_owned(),
        stamp: stamp.0,
        sections: vec![Section {
            heading: "srv6d / kernel".to_owned(),
            text: vec![
                "iperf3 from a host to a far end over one veth, H.Encaps.Red with one carrier, in turn by the kernel with \
                 its segmentation offload, by srv6d's worker, and by its tc program. Ratios of what arrived, and of the \
                 time that all cores of the machine were busy for each byte, within a round: median and range."
                    .to_owned(),
            ],
            table: Some(Table { columns, rows }),
            charts: vec![chart],
            ..Section::default()
        }, of_costs(results), of_responses(results), advice()],
    }
}

fn of_costs(results: &Results) -> Section {
    let columns = ["CPU time of", "srv6d / kernel"].map(str::to_owned).to_vec();
    let text = "Everything from the call that sends to the call that receives, both ends on one core. Kernel and srv6d (its tc \
                programs) take turns of a few milliseconds. Median and quartiles of the ratios within a turn. Less is better.";
    Section {
        heading: "CPU time".to_owned(),
        text: vec![text.to_owned()],
        table: Some(Table { columns, rows: results.costs.iter().map(Cost::line).collect() }),
        ..Section::default()
    }
}

fn of_responses(results: &Results) -> Section {
    let columns = ["time", "worker / kernel", "tc / kernel"].map(str::to_owned).to_vec();
    let text = "One byte to the far end and one back, one after the other, MTU 1500. Less is better.";
    Section {
        heading: "Requests and responses".to_owned(),
        text: vec![text.to_owned()],
        table: Some(Table { columns, rows: results.responses.lines() }),
        ..Section::default()
    }
}

fn advice() -> Section {
    let text = "A host's own bulk TCP belongs to the kernel or to the tc program: packets of up to 64 kB go through the \
                encapsulation and are cut at the very end, and AF_XDP gets them cut. The worker belongs where packets are \
                small and many, where paths follow a controller or are spread over several carriers, and where others' \
                packets are forwarded (guests, containers, transit): there is no large packet to lose.";
    Section { heading: "Which to use when".to_owned(), text: vec![text.to_owned()], ..Section::default() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure is the test's failure")]

    use super::*;

    #[test]
    fn every_combination_is_a_row_of_its_own() {
        let names: std::collections::BTreeSet<String> = rows().into_iter().map(Row::name).collect();
        assert_eq!(names.len(), rows().len());
    }

    #[test]
    fn udp_counts_what_has_arrived() {
        let end = serde_json::json!({"end": {"sum": {"bits_per_second": 1000.0, "lost_percent": 25.0}}});
        assert_eq!(udp_received(&end), Some(750.0));
        assert_eq!(udp_received(&serde_json::json!({})), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let row = Row { mtu: 1500, udp: false, flows: 1, kind: Kind::Plain };
        let rates = |rates: [f64; 3]| rates.map(|rate| rate * 1e9).to_vec();
        let streams = Streams {
            row,
            kernel: rates([10.0, 20.0, 40.0]),
            srv6d: rates([5.0, 10.0, 10.0]),
            tc: rates([10.0, 30.0, 80.0]),
            cpu: [vec![2.0, 2.0], vec![4.0, 6.0], vec![1.0, 2.0]],
        };
        let responses = Responses { kernel: vec![[2.0, 8.0]], srv6d: vec![[4.0, 8.0]], tc: vec![[1.0, 6.0]] };
        let results = Results { streams: vec![streams], responses, ..Results::default() };
        let text = serde_json::to_string(&results).unwrap();
        assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
        let document = document(&results);
        let line =
            "| 0.50 [0.25-0.50] | 1.50 [1.00-2.00] | 2.50 [2.00-3.00] | 0.75 [0.50-1.00] | 20.00 [10.00-40.00] |";
        assert!(document.markdown().contains(line), "{}", document.markdown());
        let line = "| TCP request and response, 99th percentile | 1.00 | 0.75 |";
        assert!(document.markdown().contains(line), "{}", document.markdown());
    }
}
