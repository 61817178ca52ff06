//! `bench-net`: measures forwarding in network namespaces, with srv6d, the kernel, the AF_XDP floor and the ceiling of
//! a veth side by side. Needs root.

mod command_line;
mod files;

use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use srv6d_bench_net::campaign::Campaign;
use srv6d_bench_net::dut::Dut;
use srv6d_bench_net::machine::Stamp;
use srv6d_bench_net::results::{Results, UNDER_WAY};
use srv6d_bench_net::statistics::number_of;
use srv6d_bench_net::{BenchError, dut, host, neighbors, netns, report};

use crate::command_line::{Arguments, Forwarding, Paths, Word};
use crate::files::{compare, keep, print, render, report_again, write_document};

/// Exit status for an invalid command line, the same as that of clap.
const USAGE: u8 = 2;
/// Exit status when a second signal prevents cleaning up, the same as that of a shell after SIGINT.
const KILLED: i32 = 130;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        None => measure(&arguments.forwarding),
        Some(Word::List) => print(&dut::ALL.map(|dut| format!("{}\n", dut.name)).concat()),
        Some(Word::Host { rounds, seconds, cpu_only, paths }) => measure_host(paths, *rounds, *seconds, *cpu_only),
        Some(Word::Neighbors { rounds, probes, routes, paths }) => measure_neighbors(paths, *rounds, *probes, *routes),
        Some(Word::Render { file }) => render(file),
        Some(Word::Report { file }) => report_again(file),
        Some(Word::Compare { before, after, json }) => compare(before, after, *json),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(why)) => {
            eprintln!("error: {why}");
            ExitCode::from(USAGE)
        }
        Err(Failure::Run(why)) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Why the program fails.
enum Failure {
    Usage(String),
    Run(BenchError),
}

impl From<BenchError> for Failure {
    fn from(why: BenchError) -> Self {
        Self::Run(why)
    }
}

/// Checks that everything needed is available, and removes what a killed run has left behind.
fn make_ready() -> Result<(), Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::Usage("bench-net makes network namespaces: run it as root (sudo)".to_owned()));
    }
    for (program, package) in [("ip", "iproute2"), ("ethtool", "ethtool"), ("setpriv", "util-linux")] {
        if !netns::has(program) {
            let why = format!("{program} is not there. Fix: sudo apt-get install {package}");
            return Err(Failure::Usage(why));
        }
    }
    for name in netns::sweep() {
        eprintln!("removed the namespace {name} of a bench that was killed");
    }
    Ok(())
}

fn measure(forwarding: &Forwarding) -> Result<(), Failure> {
    make_ready()?;
    let plan = forwarding.plan(interrupted()?)?;
    if plan.duts.iter().any(Dut::is_srv6d) {
        refuse_others(&plan.srv6d)?;
    }
    let mut stamp = Stamp::take(&plan.srv6d, &command(), "busy polling");
    stamp.add("generator", "live frames of a BPF program; 1024 flows (UDP source ports)".to_owned());
    stamp.add("frame sizes", "of what enters the DUT, without the Ethernet checksum".to_owned());
    stamp.add("sink", plan.sink.meaning().to_owned());
    stamp.add_caution(forwarding.smoke);
    let say = |line: &str| eprintln!("{line}");
    let minutes = plan.estimate().as_secs().div_ceil(60);
    say(&format!("{} to measure, about {minutes} min", number_of(plan.duts.len(), "row")));
    say("million packets per second at each frame size; ~: somebody else had the cores for more than 2 % of the time");
    let keep = |results: &Results| keep(&forwarding.paths.out, results);
    let empty = Results { stamp, cut_off: Some(UNDER_WAY.to_owned()), ..Results::default() };
    keep(&empty)?;
    let results = Campaign::run(&plan, empty, &say, &keep);
    keep(&results)?;
    write_document(&report::document(&results), &forwarding.paths.out)?;
    if let Some(table) = report::promises(&results).table {
        print!("{}", table.text());
    }
    whole(results.is_empty(), results.cut_off, &results.left_out)
}

/// Turns the end of a run into a result. An incomplete run has a report, but is a failure; a run without any figure has
/// no report.
fn whole(is_empty: bool, cut_off: Option<String>, left_out: &[String]) -> Result<(), Failure> {
    let why = match cut_off {
        why if is_empty => {
            let reasons: Vec<String> = left_out.iter().cloned().chain(why).collect();
            format!("nothing was measured: {}", reasons.join("; "))
        }
        Some(why) => format!("{why}; the report has what was measured until then"),
        None => return Ok(()),
    };
    Err(BenchError(why).into())
}

fn measure_host(paths: &Paths, rounds: u16, seconds: u16, cpu_only: bool) -> Result<(), Failure> {
    make_ready()?;
    let srv6d = paths.srv6d()?;
    refuse_others(&srv6d)?;
    if !cpu_only && !netns::has("iperf3") {
        return Err(Failure::Usage("iperf3 is not there. Fix: sudo apt-get install iperf3".to_owned()));
    }
    let mut stamp = Stamp::take(&srv6d, &command(), "adaptive polling");
    stamp.add_caution(false);
    let interrupted = interrupted()?;
    let plan = host::Plan { srv6d: &srv6d, rounds, seconds, cpu_only, interrupted: &interrupted };
    let out = paths.out.join("host");
    let keep = |results: &host::Results| keep(&out, results);
    let results = host::measure(&plan, stamp, &|line| eprintln!("{line}"), &keep);
    keep(&results)?;
    write_document(&host::document(&results), &out)?;
    whole(results.streams.is_empty() && results.costs.is_empty(), results.cut_off, &[])
}

fn measure_neighbors(paths: &Paths, rounds: u16, probes: u16, routes: u32) -> Result<(), Failure> {
    make_ready()?;
    let srv6d = paths.srv6d()?;
    refuse_others(&srv6d)?;
    let mut stamp = Stamp::take(&srv6d, &command(), "adaptive polling");
    stamp.add_caution(false);
    let interrupted = interrupted()?;
    let plan = neighbors::Plan { srv6d: &srv6d, rounds, probes, routes, interrupted: &interrupted };
    let out = paths.out.join("neighbors");
    let keep = |results: &neighbors::Results| keep(&out, results);
    let results = neighbors::measure(&plan, stamp, &|line| eprintln!("{line}"), &keep);
    keep(&results)?;
    write_document(&neighbors::document(&results), &out)?;
    whole(results.first_packets.is_empty(), results.cut_off, &[])
}

/// Returns a flag that signals set: the run then ends after the current trial, and after a second signal immediately.
fn interrupted() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|why| BenchError::of("catch signals", why))?;
    let asked = Arc::clone(&flag);
    std::thread::spawn(move || {
        for _ in signals.forever() {
            if asked.swap(true, Ordering::Relaxed) {
                eprintln!("{}", what_is_left(&netns::left_by(|owner| owner == std::process::id())));
                std::process::exit(KILLED);
            }
            eprintln!("ends after the trial under way, with a report of what there is; once more: at once");
        }
    });
    Ok(flag)
}

fn what_is_left(names: &[String]) -> String {
    if names.is_empty() {
        return "ended at once; nothing is left".to_owned();
    }
    format!(
        "ended at once; left: namespaces, and directories in {}, {}; the next start of bench-net removes them",
        std::env::temp_dir().display(),
        names.join(", ")
    )
}

/// Returns the whole command line as it was given.
fn command() -> String {
    let words = std::env::args().skip(1);
    ["bench-net".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

/// Checks that the file is srv6d before the first row is measured. Otherwise every row would fail with a reason of its
/// own.
fn refuse_others(srv6d: &Path) -> Result<(), Failure> {
    let said = std::process::Command::new(srv6d).arg("--version").stdin(Stdio::null()).output();
    let version = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    if version.starts_with("srv6d ") {
        return Ok(());
    }
    let shown = srv6d.display();
    Err(Failure::Usage(format!("--srv6d: {shown} is not srv6d: `{shown} --version` does not say so")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_measured_nothing_does_not_speak_of_its_report() {
        let said = |is_empty, cut_off: Option<&str>, left_out: &[&str]| {
            let left_out: Vec<String> = left_out.iter().map(|&why| why.to_owned()).collect();
            match whole(is_empty, cut_off.map(str::to_owned), &left_out) {
                Ok(()) => String::new(),
                Err(Failure::Usage(why) | Failure::Run(BenchError(why))) => why,
            }
        };
        assert_eq!(said(false, None, &["one core"]), "");
        assert_eq!(said(false, Some("interrupted"), &[]), "interrupted; the report has what was measured until then");
        assert_eq!(said(true, Some("interrupted"), &["one core"]), "nothing was measured: one core; interrupted");
        assert_eq!(said(true, None, &["one core"]), "nothing was measured: one core");
    }
}
