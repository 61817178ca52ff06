//! Measures the time until the first packet reaches a neighbour, with srv6d and with the kernel in one run.
//!
//! ```text
//! client ─ veth ─► eth1, router: kernel | srv6d, eth2 ─ veth ─► 256 hosts of one /64, which answer each datagram
//! ```
//!
//! A probe sends a datagram each millisecond until the first answer comes. Its result is the time from the first datagram
//! to that answer.

use std::io::Write as _;
use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::dut::Daemon;
use crate::machine::Stamp;
use crate::netns::{Ended, Namespace};
use srv6d_report::Schema;
use srv6d_report::{Bar, Chart, Document, Group, Section, Table};

/// Number of hosts in the far subnet. If a situation needs unknown neighbours, each host is used once.
const HOSTS: u16 = 256;
/// UDP port at which hosts answer.
const ECHO: u16 = 7007;
/// Time without an answer after which a probe is given up. It counts with this value.
const PATIENCE: Duration = Duration::from_secs(5);
/// Datagrams per second to random addresses of the far subnet while it is scanned.
const SCAN_RATE: u64 = 1700;
/// Number of milliseconds by which srv6d may be slower than the kernel.
pub const ALLOWANCE: f64 = 20.0;

const CONFIGURATION: &str = r#"
[node]
source = "2001:db8:a::1"
[workers]
frames = 8192
ring = 2048
[api]
metrics = "off"
[kernel]
[[port]]
name = "eth1"
role = "fabric"
[[port]]
name = "eth2"
role = "fabric"
"#;

/// A situation in which the first packet is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Situation {
    /// The host was never resolved before.
    NewHost,
    /// The neighbour table of the far port was flushed.
    Flush,
    /// The link to the hosts was down for 0.3 s.
    LinkFlap,
    /// A scan is going on: packets are sent to random addresses of the subnet.
    Scan,
    /// 30,000 other routes are in force.
    Routes,
    /// 30,000 other routes are in force, and some of them change all the time.
    RestlessRoutes,
}

impl Situation {
    /// All situations, in the order of the report.
    pub const ALL: [Self; 6] =
        [Self::NewHost, Self::Flush, Self::LinkFlap, Self::Scan, Self::Routes, Self::RestlessRoutes];

    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewHost => "new host",
            Self::Flush => "after a flush of neighbours",
            Self::LinkFlap => "after a link flap of 0.3 s",
            Self::Scan => "new host of a subnet that is scanned",
            Self::Routes => "new host beside 30,000 routes",
            Self::RestlessRoutes => "new host beside 30,000 routes that change",
        }
    }

    const fn has_routes(self) -> bool {
        matches!(self, Self::Routes | Self::RestlessRoutes)
    }
}

/// Results of one situation: milliseconds until the first answer, for each probe through each router.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// The situation that was measured.
    pub situation: Situation,
    /// Times through the kernel.
    pub kernel: Vec<f64>,
    /// Times through srv6d.
    pub srv6d: Vec<f64>,
}

/// Results of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Format of the file.
    pub schema: Schema,
    /// Machine, kernel, versions, command.
    pub stamp: Stamp,
    /// Results of each situation.
    pub first_packets: Vec<Waits>,
    /// Why the run ended early; `None`: it did not.
    #[serde(default)]
    pub cut_off: Option<String>,
}

/// Settings of the measurement.
pub struct Plan<'p> {
    /// The srv6d to measure.
    pub srv6d: &'p Path,
    /// Number of turns of both routers in each situation.
    pub rounds: u16,
    /// Number of probes in each turn.
    pub probes: u16,
    /// Number of other routes, in situations that have some.
    pub routes: u32,
    /// Set by a signal: the run then ends after the current turn and reports what it has.
    pub interrupted: &'p AtomicBool,
}

/// Measures every situation. If the run ends early, the reason is stored in [`Results::cut_off`].
pub fn measure(
    plan: &Plan<'_>,
    stamp: Stamp,
    say: &dyn Fn(&str),
    keep: &dyn Fn(&Results) -> Result<(), BenchError>,
) -> Results {
    let mut results = Results { stamp, cut_off: Some(crate::results::UNDER_WAY.to_owned()), ..Results::default() };
    results.stamp.add("probes", format!("{} rounds of {} per situation and router", plan.rounds, plan.probes));
    say("milliseconds to the first answer: median, 90th percentile, longest; kernel beside srv6d");
    let ended = Situation::ALL.into_iter().try_for_each(|situation| {
        let mut waits = Waits { situation, kernel: Vec::new(), srv6d: Vec::new() };
        for round in 0..plan.rounds {
            waits.kernel.extend(turn(plan, situation, None)?);
            waits.srv6d.extend(turn(plan, situation, Some(plan.srv6d))?);
            if round > 0 {
                results.first_packets.pop();
            }
            results.first_packets.push(waits.clone());
            keep(&results)?;
            if plan.interrupted.load(Ordering::Relaxed) {
                return Err(BenchError("interrupted".to_owned()));
            }
        }
        say(&waits.line().join("  "));
        Ok(())
    });
    results.cut_off = ended.err().map(|why| why.0);
    results
}

/// Runs one turn of one router in fresh namespaces.
fn turn(plan: &Plan<'_>, situation: Situation, srv6d: Option<&Path>) -> Result<Vec<f64>, BenchError> {
    let bed = Bed::new()?;
    if situation.has_routes() {
        bed.add_routes(plan.routes)?;
    }
    let daemon = srv6d.map(|srv6d| Daemon::start(&bed.router, srv6d, CONFIGURATION, 2)).transpose()?;
    let is_over = AtomicBool::new(false);
    let answered = std::thread::scope(|scope| {
        let end = EndsAtDrop(&is_over);
        let echo = bound(&bed.hosts, ECHO)?;
        let is_over = &is_over;
        scope.spawn(move || answer(&echo, is_over));
        let client = bound(&bed.client, 0)?;
        // After this probe of host 0 everything on the way is known, except the other hosts.
        probe(&client, host(0))?;
        if situation == Situation::Scan {
            let scanner = bound(&bed.client, 0)?;
            scope.spawn(move || scan(&scanner, is_over));
            std::thread::sleep(Duration::from_secs(1));
        }
        if situation == Situation::RestlessRoutes {
            let mut batch = bed.router.dependent("ip");
            let batch = batch.args(["-6", "-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn();
            let batch = Ended(batch.map_err(|why| BenchError::of("ip", why))?);
            scope.spawn(move || change_routes(batch, is_over));
        }
        let waits =
            (1..=plan.probes.min(HOSTS - 1)).map(|number| bed.probe_after(&client, situation, number)).collect();
        drop(end);
        waits
    });
    drop(daemon);
    answered
}

/// Tells the threads of a turn to end when it is dropped, so also if the turn fails.
struct EndsAtDrop<'a>(&'a AtomicBool);

impl Drop for EndsAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Opens a socket in a namespace. Port 0 selects a free one.
fn bound(space: &Namespace, port: u16) -> Result<UdpSocket, BenchError> {
    srv6d_netns::enter(space, || UdpSocket::bind(("::", port)).map_err(|why| BenchError::of("bind", why)))
}

fn host(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 0x1000 + number)
}

/// The namespaces of a turn: client, router and hosts.
struct Bed {
    client: Namespace,
    router: Namespace,
    hosts: Namespace,
}

impl Bed {
    fn new() -> Result<Self, BenchError> {
        let prefix = format!("srv6d-bn{}-first", std::process::id());
        let space = |name: &str| Namespace::create(&format!("{prefix}-{name}"));
        let bed = Self { client: space("client")?, router: space("router")?, hosts: space("hosts")? };
        bed.router.shell(&format!(
            "sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.conf.all.keep_addr_on_down=1
             ip link add eth1 type veth peer name eth1 netns {}
             ip link add eth2 type veth peer name eth1 netns {}
             ip addr add 2001:db8:a::1/64 dev eth1 nodad; ip link set eth1 up
             ip addr add 2001:db8:b::1/64 dev eth2 nodad; ip link set eth2 up",
            &*bed.client, &*bed.hosts
        ))?;
        // On a veth, a socket leaves checksums unfinished, and AF_XDP would forward them so.
        bed.client.shell(
            "ethtool -K eth1 tx off
             ip addr add 2001:db8:a::2/64 dev eth1 nodad; ip link set eth1 up
             ip -6 route add default via 2001:db8:a::1",
        )?;
        // The hosts already know the way back, so only the router has to resolve neighbours.
        bed.hosts.shell(&format!(
            "sysctl -qw net.ipv6.conf.all.keep_addr_on_down=1
             ethtool -K eth1 tx off
             ip link set eth1 up
             for n in $(seq {} {}); do printf 'addr add 2001:db8:b::%x/64 dev eth1 nodad\\n' $n; done | ip -batch -",
            0x1000,
            0x1000 + HOSTS - 1
        ))?;
        bed.remember_router()?;
        Ok(bed)
    }

    /// Adds the route and the static neighbour of the hosts again. They are lost when the link goes down.
    fn remember_router(&self) -> Result<(), BenchError> {
        let mac = self.router.shell("cat /sys/class/net/eth2/address")?;
        let set = format!(
            "ip -6 neigh replace 2001:db8:b::1 lladdr {} dev eth1 nud permanent
             ip -6 route replace 2001:db8:a::/64 via 2001:db8:b::1",
            mac.trim()
        );
        self.hosts.shell(&set).map(drop)
    }

    fn add_routes(&self, number: u32) -> Result<(), BenchError> {
        let lines = format!(
            "for n in $(seq {number}); do
                printf 'route add 3fff:0:%x:%x::/64 via 2001:db8:a::2\\n' $((n >> 16)) $((n & 65535))
             done | ip -6 -batch -"
        );
        self.router.shell(&lines).map(drop)
    }

    /// Brings the situation about, and returns the milliseconds until the first answer of one host.
    fn probe_after(&self, client: &UdpSocket, situation: Situation, number: u16) -> Result<f64, BenchError> {
        match situation {
            Situation::Flush => {
                self.router.shell("ip -6 neigh flush dev eth2")?;
                probe(client, host(0))
            }
            Situation::LinkFlap => {
                self.hosts.shell("ip link set eth1 down; sleep 0.3; ip link set eth1 up")?;
                self.remember_router()?;
                probe(client, host(0))
            }
            _ => probe(client, host(number)),
        }
    }
}

/// Answers every datagram with the same content.
fn answer(socket: &UdpSocket, is_over: &AtomicBool) {
    let mut datagram = [0; 64];
    let _ = socket.set_read_timeout(Some(Duration::from_millis(50)));
    while !is_over.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut datagram) {
            let _ = socket.send_to(datagram.get(..length).unwrap_or_default(), from);
        }
    }
}

/// Removes routes and adds them again, nine at a time. One process makes all changes, because many short processes
/// would use the cores of what is measured.
fn change_routes(mut batch: Ended, is_over: &AtomicBool) {
    let Some(mut commands) = batch.0.stdin.take() else { return };
    let of_route = |number: u32| {
        ["del", "add"].map(|verb| format!("route {verb} 3fff:0:0:{number:x}::/64 via 2001:db8:a::2\n")).concat()
    };
    let lines: String = (1..10).map(of_route).collect();
    while !is_over.load(Ordering::Relaxed) && commands.write_all(lines.as_bytes()).is_ok() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends datagrams to random addresses, and never waits for an answer.
fn scan(socket: &UdpSocket, is_over: &AtomicBool) {
    let mut random = fastrand::Rng::new();
    let (began, mut sent) = (Instant::now(), 0);
    while !is_over.load(Ordering::Relaxed) {
        let address = Ipv6Addr::from(u128::from(host(0)) & !u128::from(u64::MAX) | u128::from(random.u64(..)));
        // A datagram that the local stack refuses needs no further handling.
        let _ = socket.send_to(&[0; 8], SocketAddrV6::new(address, ECHO, 0, 0));
        sent += 1;
        let due = Duration::from_micros(sent * 1_000_000 / SCAN_RATE);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
}

/// Sends a datagram each millisecond until the first answer comes.
fn probe(client: &UdpSocket, to: Ipv6Addr) -> Result<f64, BenchError> {
    let failed = |why| BenchError::of("probe", why);
    client.set_read_timeout(Some(Duration::from_millis(1))).map_err(failed)?;
    let (mark, began) = (u128::from(to).to_be_bytes(), Instant::now());
    let mut answer = [0; 64];
    let mut sent = 0;
    while began.elapsed() < PATIENCE {
        if began.elapsed() >= Duration::from_millis(sent) {
            // An error here belongs to an earlier datagram, for example an unreachable host.
            let _ = client.send_to(&mark, SocketAddrV6::new(to, ECHO, 0, 0));
            sent += 1;
        }
        if client.recv_from(&mut answer).is_ok_and(|(length, _)| answer.get(..length) == Some(&mark)) {
            let took = began.elapsed();
            drain(client, &mut answer);
            return Ok(took.as_secs_f64() * 1e3);
        }
    }
    Ok(PATIENCE.as_secs_f64() * 1e3)
}

/// Discards late answers to earlier datagrams, so that the next probe does not count them.
fn drain(client: &UdpSocket, answer: &mut [u8]) {
    let _ = client.set_read_timeout(Some(Duration::from_millis(20)));
    while client.recv_from(answer).is_ok() {}
}

/// Returns a percentile of the values (nearest rank), or 0 without values.
fn percentile(values: &[f64], hundredths: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * hundredths).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

impl Waits {
    /// Returns how many milliseconds srv6d takes more than the kernel: in the median, at the 90th percentile and at
    /// most.
    pub fn more(&self) -> [f64; 3] {
        [50, 90, 100].map(|at| percentile(&self.srv6d, at) - percentile(&self.kernel, at))
    }

    fn line(&self) -> Vec<String> {
        let shown = |values: &[f64]| [50, 90, 100].map(|at| format!("{:.1}", percentile(values, at))).join(" / ");
        let more = self.more();
        let verdict = if more.iter().all(|&more| more <= ALLOWANCE) { "yes" } else { "no" };
        let [median, high, longest] = more.map(|more| format!("{more:+.1}"));
        let difference = format!("{median} / {high} / {longest}");
        let name = self.situation.name().to_owned();
        vec![name, shown(&self.kernel), shown(&self.srv6d), difference, verdict.to_owned()]
    }
}

/// Makes the report.
pub fn document(results: &Results) -> Document {
    let mut stamp = results.stamp.clone();
    stamp.add_cut_off(results.cut_off.as_deref());
    let columns = ["situation", "kernel, ms", "srv6d, ms", "srv6d - kernel, ms", "at most 20 ms more"];
    let bars = |waits: &Waits| {
        [("kernel", &waits.kernel), ("srv6d", &waits.srv6d)].map(|(series, values)| Bar {
            series: series.to_owned(),
            value: percentile(values, 50),
            low: percentile(values, 0),
            high: percentile(values, 90),
            ..Bar::default()
        })
    };
    let groups = results.first_packets.iter();
    let groups = groups.map(|waits| Group { label: waits.situation.name().to_owned(), bars: bars(waits).to_vec() });
    let chart = Chart {
        title: "Time to the first answer: median, and up to the 90th percentile".to_owned(),
        unit: "ms".to_owned(),
        groups: groups.collect(),
    };
    let text = "A client sends to a host behind the router, a datagram each millisecond, until the first answer comes. The \
                router is the kernel, then srv6d with the kernel's routes, in turn. Each cell has the median, the 90th \
                percentile and the longest time.";
    Document {
        schema: Schema::default(),
        title: "First packets to a neighbour: srv6d beside the kernel".to_owned(),
        stamp: stamp.0,
        sections: vec![Section {
            heading: "Time to the first answer".to_owned(),
            text: vec![text.to_owned()],
            table: Some(Table {
                columns: columns.map(str::to_owned).to_vec(),
                rows: results.first_packets.iter().map(Waits::line).collect(),
            }),
            charts: vec![chart],
            ..Section::default()
        }],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::float_cmp, reason = "a failure is the test's failure")]

    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!([0, 50, 90, 100].map(|at| percentile(&values, at)), [1.0, 3.0, 5.0, 5.0]);
        assert_eq!(percentile(&[], 50), 0.0);
    }

    #[test]
    fn a_situation_in_which_srv6d_takes_longer_than_allowed_says_no() {
        let waits = |srv6d: f64| Waits { situation: Situation::Flush, kernel: vec![1.0], srv6d: vec![srv6d] };
        assert_eq!(waits(20.9).line().last().unwrap(), "yes");
        assert_eq!(waits(21.1).line().last().unwrap(), "no");
        let results = Results { first_packets: vec![waits(3.0)], ..Results::default() };
        let text = serde_json::to_string(&results).unwrap();
        assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
        let line = "| after a flush of neighbours | 1.0 / 1.0 / 1.0 | 3.0 / 3.0 / 3.0 | +2.0 / +2.0 / +2.0 | yes |";
        assert!(document(&results).markdown().contains(line), "{}", document(&results).markdown());
    }
}
