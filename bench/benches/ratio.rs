//! Compares the packet path with its floor. Both are measured in turn in one run, so that a noisy machine affects both.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a bench may panic")]

use srv6d_bench::cases::SIZES;
use srv6d_bench::{CASES, Case, Node, Rig, snapshot};
use srv6d_dataplane::Snapshot;

/// Number of measurements, from which median and quartiles are taken.
const ROUNDS: usize = 101;
/// Number of bursts in one measurement.
const BURSTS: usize = 32;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    run(SIZES, ROUNDS, |name| wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted.as_str())));
}

/// Measures the cases and prints the table.
///
/// # Panics
/// If a packet is not sent.
pub fn run(sizes: [u32; 3], rounds: usize, is_wanted: impl Fn(&str) -> bool) {
    let snapshots = sizes.map(|prefixes| Node::ALL.map(|node| snapshot(prefixes, node).unwrap()));
    println!("ns per packet of 128 bytes; medians of {rounds} rounds, in brackets the middle half of the ratios");
    println!("{:<20} {:>8} | bare loop: {:26} | between ports", "", "", "");
    println!(
        "{0:<20} {1:>8} | {2:>6} {3:>8} {4:>6} {5:13} | {2:>6} {3:>8} {4:>6}",
        "", "prefixes", "floor", "srv6d", "ratio", ""
    );
    for case in CASES.iter().filter(|case| is_wanted(case.name)) {
        let mut srv6d = Vec::new();
        let node = Node::ALL.iter().position(|node| *node == case.node).unwrap();
        for (prefixes, snapshots) in sizes.into_iter().zip(&snapshots) {
            let row = Row::measure(case, prefixes, &snapshots[node], rounds);
            println!("{:<20} {prefixes:>8} | {} | {}", case.name, row.bare, row.ports);
            srv6d.push([row.bare.srv6d, row.ports.srv6d]);
        }
        let [bare, ports] = [0, 1].map(|column| srv6d[2][column] / srv6d[1][column]);
        println!("{:<20} {:>8} | {bare:>22.2} {:14} | {ports:>22.2}", "", "growth", "");
    }
}

struct Row {
    bare: Pair,
    ports: Pair,
}

/// Medians in ns per packet, and the quartiles of the ratio.
struct Pair {
    floor: f64,
    srv6d: f64,
    ratio: [f64; 3],
}

impl Row {
    fn measure(case: &Case, prefixes: u32, snapshot: &Snapshot, rounds: usize) -> Self {
        let mut rig = Rig::new(case.class, prefixes);
        let [mut bare, mut ports] = [const { Vec::new() }; 2];
        for _ in 0..rounds {
            let floor = rig.time_bare(BURSTS, case.bare);
            bare.push((floor, rig.time_bare(BURSTS, |rig| rig.forward(snapshot))));
            let floor = rig.time_ports(BURSTS, case.ports);
            ports.push((floor, rig.time_ports(BURSTS, |rig| rig.step(snapshot))));
        }
        Self { bare: Pair::of(&bare), ports: Pair::of(&ports) }
    }
}

impl Pair {
    fn of(measured: &[(f64, f64)]) -> Self {
        let [_, floor, _] = quarters(measured.iter().map(|&(floor, _)| floor));
        let [_, srv6d, _] = quarters(measured.iter().map(|&(_, srv6d)| srv6d));
        Self { floor, srv6d, ratio: quarters(measured.iter().map(|&(floor, srv6d)| srv6d / floor)) }
    }
}

impl std::fmt::Display for Pair {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [low, middle, high] = self.ratio;
        write!(out, "{:>6.1} {:>8.1} {middle:>6.2} [{low:>5.2}-{high:>5.2}]", self.floor, self.srv6d)
    }
}

/// Returns lower quartile, median and upper quartile.
fn quarters(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| sorted[(sorted.len() - 1) * quarter / 4])
}
