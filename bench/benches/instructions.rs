//! Counts instructions per packet with callgrind. The result for one binary is always the same, whatever else the
//! machine does.
//!
//! ```text
//! cargo bench --package srv6d-bench --bench instructions                # compares with bench/instructions.txt
//! cargo bench --package srv6d-bench --bench instructions -- --record   # writes that file
//! ```
#![allow(clippy::unwrap_used, clippy::panic, reason = "a bench may panic")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use srv6d_bench::{CASES, Case, Rig, snapshot};
use srv6d_dataplane::BURST;

const PREFIXES: u32 = 10_000;
const BURSTS: usize = 64;
/// Number of bursts that go through the tables before counting, so that the worker's caches are filled.
const WARM_UP: usize = 320;
/// Kinds of work that are counted, each with the function of `Rig` that does it.
const WORKS: [(&str, &str); 4] = [
    ("bare floor", "bare"),
    ("bare srv6d", "forward"),
    ("floor between ports", "ports"),
    ("step between ports", "step"),
];

const USAGE: &str = "Without arguments: counts, beside bench/instructions.txt. --record: writes that file";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--work", case, work] => do_work(case, work),
        [] => count_all(false),
        ["--record"] => count_all(true),
        ["--help" | "-h"] => println!("{USAGE}"),
        // The argument may be a filter for other benches, because `cargo bench NAME` passes it to all of them.
        _ => eprintln!("instructions: nothing to do for {}. {USAGE}", arguments.join(" ")),
    }
}

/// Runs every row through every kind of work once, without callgrind, and checks that the file has every row.
///
/// # Panics
/// If the file lacks a row, or if a packet is not sent.
#[allow(dead_code, reason = "for the tests")]
pub fn run_once() {
    let recorded = read(&file());
    for case in &CASES {
        assert!(recorded.contains_key(case.name), "bench/instructions.txt has no {}: run it with --record", case.name);
        for (_, work) in WORKS {
            do_work(case.name, work);
        }
    }
}

/// Does one kind of work on the packets of one row; this is what runs under callgrind.
fn do_work(case: &str, work: &str) {
    let case = CASES.iter().find(|known| known.name == case).unwrap();
    let snapshot = snapshot(PREFIXES, case.node).unwrap();
    let mut rig = Rig::new(case.class, PREFIXES);
    rig.warm_up(WARM_UP, &snapshot);
    match work {
        "bare" => rig.time_bare(BURSTS, case.bare),
        "forward" => rig.time_bare(BURSTS, |rig| rig.forward(&snapshot)),
        "ports" => rig.time_ports(BURSTS, case.ports),
        _ => rig.time_ports(BURSTS, |rig| rig.step(&snapshot)),
    };
}

fn count_all(record: bool) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("SKIPPED: valgrind is missing (Debian: valgrind)");
        return;
    }
    let recorded = read(&file());
    let mut text = format!("instructions per packet of 128 bytes at {PREFIXES} prefixes, by callgrind\n\n");
    let _ = writeln!(text, "{:<20}{}", "", WORKS.map(|(what, _)| format!("{what:>22}")).concat());
    println!("{text}");
    for case in &CASES {
        let counts = WORKS.map(|(_, function)| instructions(case, function));
        let _ = writeln!(text, "{:<20}{}", case.name, counts.map(|count| format!("{count:>22.1}")).concat());
        let beside = recorded.get(case.name).cloned().unwrap_or_default();
        println!("{:<20}{}", case.name, beside_recorded(&counts, &beside));
    }
    if record {
        std::fs::write(file(), text).unwrap();
    } else {
        println!("\nin brackets: against bench/instructions.txt");
    }
}

fn beside_recorded(counts: &[f64], recorded: &[f64]) -> String {
    let mut text = String::new();
    for (number, count) in counts.iter().enumerate() {
        let change = recorded.get(number).map(|old| format!("({:+.1} %)", (count / old - 1.0) * 100.0));
        let _ = write!(text, "{:>22}", format!("{count:.1} {}", change.unwrap_or_default()));
    }
    text
}

/// Returns the number of instructions for one packet.
fn instructions(case: &Case, function: &str) -> f64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect=*rig::Rig::{function}*"))
        .arg(std::env::current_exe().unwrap())
        .args(["--work", case.name, function])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let collected = said.lines().find_map(|line| line.split("Collected :").nth(1)?.trim().parse::<u32>().ok());
    let collected = collected.filter(|count| *count > 0).unwrap_or_else(|| panic!("nothing was counted:\n{said}"));
    f64::from(collected) / f64::from(u32::try_from(BURSTS * BURST).unwrap())
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.txt")
}

/// Reads the rows of a recorded table.
fn read(path: &Path) -> BTreeMap<String, Vec<f64>> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let numbers: Option<Vec<f64>> = words.map(|word| word.parse().ok()).collect();
        Some((name, numbers.filter(|numbers| numbers.len() == WORKS.len())?))
    };
    text.lines().filter_map(row).collect()
}
