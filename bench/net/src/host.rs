//! Measures a host's own applications: TCP and UDP through srv6d, compared with the kernel's encapsulation, which has
//! segmentation offload.
//!
//! ```text
//! host: iperf3 client ─► kernel encap.red | srv6d's worker | srv6d's tc program ─► veth ─► far: kernel End.DT6 ─► iperf3 server
//! ```

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::BenchError;
use crate::dut::Daemon;
use crate::machine::Stamp;
use crate::netns::{Ended, Namespace, run, tool};
use crate::statistics::Spread;
use srv6d_report::Schema;
use srv6d_report::{Bar, Chart, Document, Group, Section, Table};

/// Bytes of headers around the payload of a UDP datagram that fits into the MTU when encapsulated: 40 outer, 40 inner,
/// 8 UDP.
const HEADERS: u32 = 88;
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
}

/// Returns all rows: MTU 1500 and 9000, TCP and UDP, one flow and eight.
pub fn rows() -> Vec<Row> {
    let all = [1500, 9000].into_iter().flat_map(|mtu| [false, true].map(|udp| (mtu, udp)));
    all.flat_map(|(mtu, udp)| [1, 8].map(|flows| Row { mtu, udp, flows })).collect()
}

impl Row {
    /// Returns the name in reports.
    pub fn name(self) -> String {
        let flows = if self.flows == 1 { "1 flow".to_owned() } else { format!("{} flows", self.flows) };
        format!("{} MTU {}, {flows}", if self.udp { "UDP" } else { "TCP" }, self.mtu)
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
    /// Why the run ended early; `None`: it did not.
    #[serde(default)]
    pub cut_off: Option<String>,
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
}

/// Settings of the measurement.
pub struct Plan<'p> {
    /// The srv6d to measure.
    pub srv6d: &'p Path,
    /// Number of rounds in which each row is measured.
    pub rounds: u16,
    /// Length of each stream in seconds.
    pub seconds: u16,
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
    let version = run(tool("iperf3").arg("--version")).unwrap_or_default();
    results.stamp.add("generator", version.lines().next().unwrap_or("iperf3").trim().to_owned());
    let streams = rows().len() as u64 * 3 * u64::from(plan.rounds);
    // Starting a server, a client and srv6d takes about a second.
    let minutes = (streams * (u64::from(plan.seconds) + 1)).div_ceil(60);
    say(&format!(
        "{streams} streams, about {minutes} min; what arrives through srv6d, the kernel's own encapsulation is 1"
    ));
    let ended = rows().into_iter().try_for_each(|row| measure_row(plan, row, &mut results, say, keep));
    results.cut_off = ended.err().map(|why| why.0);
    results
}

fn measure_row(
    plan: &Plan<'_>,
    row: Row,
    results: &mut Results,
    say: &dyn Fn(&str),
    keep: &dyn Fn(&Results) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let bed = Bed::new(row.mtu)?;
    let mut streams = Streams { row, kernel: Vec::new(), srv6d: Vec::new(), tc: Vec::new() };
    let with_tc = format!("[host]\nengine = \"tc\"\n{CONFIGURATION}");
    for round in 0..plan.rounds {
        streams.kernel.push(bed.by_kernel(row, plan.seconds)?);
        streams.srv6d.push(bed.by_srv6d(row, plan, CONFIGURATION)?);
        streams.tc.push(bed.by_srv6d(row, plan, &with_tc)?);
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
        [self.row.name()].into_iter().chain(ratios).chain(rates).collect()
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
        let prefix = format!("srv6d-h{}", std::process::id());
        let host = Namespace::create(&format!("{prefix}-host"))?;
        let far = Namespace::create(&format!("{prefix}-far"))?;
        host.shell(&format!("ip link add eth1 mtu {mtu} type veth peer name eth1 mtu {mtu} netns {}", &*far))?;
        let address = |number| format!("ip addr add 2001:db8:a::{number}/64 dev eth1 nodad; ip link set eth1 up");
        host.shell(&address(1))?;
        far.shell(&address(2))?;
        far.shell(
            "sysctl -qw net.ipv6.conf.all.forwarding=1
             ip addr add 2001:db8:f::1/64 dev lo nodad
             ip -6 route add fcbb:0:9::/48 encap seg6local action End.DT6 table 255 dev eth1",
        )?;
        Ok(Self { host, far })
    }

    /// Measures the kernel with its default settings, including segmentation offload.
    fn by_kernel(&self, row: Row, seconds: u16) -> Result<f64, BenchError> {
        self.host.shell(
            "ip -6 route add fcbb:0:9::/48 via 2001:db8:a::2 dev eth1
             ip -6 route add 2001:db8:f::/64 encap seg6 mode encap.red segs fcbb:0:9:: dev eth1",
        )?;
        let measured = self.iperf3(row, seconds);
        self.host.shell("ip -6 route del 2001:db8:f::/64 dev eth1; ip -6 route del fcbb:0:9::/48 dev eth1")?;
        measured
    }

    fn by_srv6d(&self, row: Row, plan: &Plan<'_>, configuration: &str) -> Result<f64, BenchError> {
        let daemon = Daemon::start(&self.host, plan.srv6d, configuration, 2)?;
        // The tc program leaves packets to the worker until the next hop is resolved.
        self.host.shell("ping -6 -q -c 1 -w 10 2001:db8:a::2")?;
        let measured = self.iperf3(row, plan.seconds);
        drop(daemon);
        measured
    }

    /// Returns the bits per second that the server has received.
    fn iperf3(&self, row: Row, seconds: u16) -> Result<f64, BenchError> {
        let mut server = self.far.dependent("iperf3");
        let server =
            server.args(["-6", "-s", "-1", "-B", "2001:db8:f::1"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let server = server.map_err(|why| BenchError::of("iperf3 (Fix: sudo apt-get install iperf3)", why))?;
        let _server = Ended(server);
        self.wait_for_server()?;
        let mut client = self.host.dependent("iperf3");
        client.args(["-6", "-c", "2001:db8:f::1", "-J", "-t", &seconds.to_string()]);
        client.args(["-P", &row.flows.to_string()]);
        if row.udp {
            client.args(["-u", "-b", "0", "-l", &(row.mtu - HEADERS).to_string()]);
        }
        let said = run(&mut client)?;
        let report: Value = serde_json::from_str(&said).map_err(|why| BenchError::of("iperf3", why))?;
        let number = |path: &str| report.pointer(path).and_then(Value::as_f64);
        // With UDP, only the numbers of the server count, because frames that were sent may have been lost.
        let bits = if row.udp { udp_received(&report) } else { number("/end/sum_received/bits_per_second") };
        bits.ok_or_else(|| BenchError(format!("iperf3 reports nothing that has arrived: {said}")))
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
    let columns = ["stream", "worker / kernel", "tc / kernel", "kernel, Gbit/s", "worker, Gbit/s", "tc, Gbit/s"]
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
                 its segmentation offload, by srv6d's worker, and by its tc program. Ratios of what arrived, within a \
                 round: median and range."
                    .to_owned(),
            ],
            table: Some(Table { columns, rows }),
            charts: vec![chart],
            ..Section::default()
        }, advice()],
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
        assert_eq!(names.len(), 8);
    }

    #[test]
    fn udp_counts_what_has_arrived() {
        let end = serde_json::json!({"end": {"sum": {"bits_per_second": 1000.0, "lost_percent": 25.0}}});
        assert_eq!(udp_received(&end), Some(750.0));
        assert_eq!(udp_received(&serde_json::json!({})), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let row = Row { mtu: 1500, udp: false, flows: 1 };
        let rates = |rates: [f64; 3]| rates.map(|rate| rate * 1e9).to_vec();
        let streams = Streams {
            row,
            kernel: rates([10.0, 20.0, 40.0]),
            srv6d: rates([5.0, 10.0, 10.0]),
            tc: rates([10.0, 30.0, 80.0]),
        };
        let results = Results { streams: vec![streams], ..Results::default() };
        let text = serde_json::to_string(&results).unwrap();
        assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
        let document = document(&results);
        let line = "| 0.50 [0.25-0.50] | 1.50 [1.00-2.00] | 20.00 [10.00-40.00] | 10.00 [5.00-10.00] |";
        assert!(document.markdown().contains(line), "{}", document.markdown());
    }
}
