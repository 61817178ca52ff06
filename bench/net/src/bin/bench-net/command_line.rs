//! What can be asked of `bench-net`, and the plan that it makes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, Parser};
use srv6d_bench_net::affinity;
use srv6d_bench_net::dut::{self, Dut};
use srv6d_bench_net::frames::Size;
use srv6d_bench_net::layout::{Layout, Placement};
use srv6d_bench_net::plan::Plan;
use srv6d_bench_net::sink::SinkKind;
use srv6d_bench_net::trial::Timing;

use crate::Failure;

#[derive(Debug, Parser)]
#[command(version, about = "Forwarding measured in network namespaces: generator -> device under test -> sink")]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(flatten)]
    pub forwarding: Forwarding,

    #[command(subcommand)]
    pub command: Option<Word>,
}

/// Rows that `--smoke` leaves nothing out of: one of the kernel's and one of srv6d's, which can be divided.
const SMOKE: [&str; 2] = ["linux-uN", "srv6d-uN"];

/// What is to be measured where no command is given.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub struct Forwarding {
    /// Fewer sizes, rounds and searches, shorter trials: some twenty minutes
    #[arg(long, conflicts_with = "smoke")]
    pub quick: bool,

    /// Every row in one short flood, and two rows in every placement, at three sizes, with several workers and searched, to
    /// see that it works: the figures mean nothing
    #[arg(long)]
    pub smoke: bool,

    /// Rows to measure; all when left out
    #[arg(long = "dut", value_name = "NAME", value_parser = dut_named)]
    pub duts: Vec<Dut>,

    /// Placements to measure, and to search rates without loss in; when left out those with their own bars, and one of
    /// them for the searches
    #[arg(long = "placement", value_enum, value_name = "NAME")]
    pub placements: Vec<Placement>,

    /// Frame sizes: 64 to 9000, or imix; rates without loss are searched at these, too
    #[arg(long = "size", value_name = "BYTES")]
    pub sizes: Vec<Size>,

    /// How frames end
    #[arg(long, value_enum, default_value = "xdp")]
    pub sink: SinkKind,

    /// How often everything is measured
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub rounds: Option<u16>,

    /// How often sizes other than 64 and 1500, and several workers, are measured [default: as all else]
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub other_rounds: Option<u16>,

    /// Cores to use, as generator, receiver, worker and sink of the placements that have them [default: all, in order]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cores: Vec<usize>,

    /// Measured part of a trial, in milliseconds
    #[arg(long, value_parser = clap::value_parser!(u16).range(20..=60_000))]
    pub trial_ms: Option<u16>,

    /// Pairs of turns that srv6d and the floor take, 5 ms each; fewer than 20 are no figure, 0: none [default: 200; 100
    /// with --quick]
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=10_000))]
    pub pairs: Option<u16>,

    /// No NDR, PDR and latency
    #[arg(long)]
    pub no_search: bool,

    /// No rows with several workers
    #[arg(long)]
    pub no_workers: bool,

    /// The threads that carry packets go before everything else on this machine, at real-time priority
    #[arg(long)]
    pub first: bool,

    #[command(flatten)]
    pub paths: Paths,
}

/// What is measured, and where that goes.
#[derive(Debug, Args)]
pub struct Paths {
    /// The srv6d to measure [default: beside this program]
    #[arg(long, value_name = "FILE")]
    pub srv6d: Option<PathBuf>,

    /// Where results.json, report.md, report.html and report.json go; those of `host` into host/ there
    #[arg(long, value_name = "DIRECTORY", default_value = "target/bench-net")]
    pub out: PathBuf,
}

#[derive(Debug, clap::Subcommand)]
pub enum Word {
    /// Names the rows
    List,
    /// Measures a host's own TCP and UDP through srv6d, beside the kernel's encapsulation; needs iperf3
    Host {
        /// How often each row is measured
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
        rounds: u16,
        /// Seconds of each stream
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=600))]
        seconds: u16,
        #[command(flatten)]
        paths: Paths,
    },
    /// Writes the Markdown and HTML of a report that is JSON, beside it
    Render {
        /// The report, as report.json, or the directory it is in
        file: PathBuf,
    },
    /// Writes the report of results again, beside them
    Report {
        /// The results, as results.json, or the directory they are in
        file: PathBuf,
    },
    /// Compares the ratios of two runs: which have changed by more than their rounds differ
    Compare {
        /// The results of the first run, as results.json, or the directory they are in
        before: PathBuf,
        /// Those of the second
        after: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

fn dut_named(name: &str) -> Result<Dut, String> {
    dut::named(name).ok_or_else(|| {
        let known: Vec<&str> = dut::ALL.iter().map(|dut| dut.name).collect();
        format!("no such row; there are: {}", known.join(", "))
    })
}

impl Forwarding {
    /// What is to be done until `interrupted` is set.
    pub fn plan(&self, interrupted: Arc<AtomicBool>) -> Result<Plan, Failure> {
        let (quick, smoke) = (self.quick, self.smoke);
        let choose = |full: u16, short: u16, shortest: u16| {
            if smoke {
                shortest
            } else if quick {
                short
            } else {
                full
            }
        };
        let bytes = |sizes: &[usize]| sizes.iter().copied().map(Size::Bytes).collect::<Vec<_>>();
        let sizes = match (smoke, quick) {
            (true, _) => vec![Size::Bytes(64), Size::Imix, Size::Bytes(9000)],
            (_, true) => bytes(&[64, 1500]),
            _ => {
                let mut all = bytes(&[64, 128, 256, 512, 1024, 1280, 1500]);
                all.extend([Size::Imix, Size::Bytes(9000)]);
                all
            }
        };
        let given = |given: &[Size], sizes: Vec<Size>| if given.is_empty() { sizes } else { given.to_vec() };
        let measured = self.trial_ms.unwrap_or_else(|| choose(1000, 500, 60));
        let cores = self.cores()?;
        let rounds = usize::from(self.rounds.unwrap_or_else(|| choose(5, 3, 1)));
        let most_workers = if smoke { 2 } else { (cores.len() / 2).max(2) };
        Ok(Plan {
            srv6d: self.paths.srv6d()?,
            placements: match self.placements.as_slice() {
                // What two cores are enough for goes first: every row is there.
                [] if smoke => vec![Placement::OneCore, Placement::SinkOnDutCore, Placement::SinkOnOwnCore],
                [] => vec![Placement::SinkOnDutCore, Placement::SinkOnOwnCore, Placement::OneCore],
                placements => placements.to_vec(),
            },
            duts: if self.duts.is_empty() { dut::ALL.to_vec() } else { self.duts.clone() },
            thorough: (smoke && self.duts.is_empty()).then(|| SMOKE.into_iter().filter_map(dut::named).collect()),
            sizes: given(&self.sizes, sizes),
            sink: self.sink,
            rounds,
            other_rounds: self.other_rounds.map_or(rounds, usize::from).min(rounds),
            timing: Timing {
                before: Duration::from_millis(choose(250, 150, 20).min(measured).into()),
                measured: Duration::from_millis(measured.into()),
            },
            one_load: smoke,
            pairs: self.pairs.unwrap_or_else(|| choose(200, 100, 2)).into(),
            repeats: choose(2, 1, 0).into(),
            searched: self.searched(),
            searched_in: searched_in(&self.placements, &cores),
            gap: if smoke { 0.5 } else { 0.02 },
            workers: if self.no_workers { Vec::new() } else { (1..=most_workers).collect() },
            first: self.first,
            interrupted,
            cores,
        })
    }

    /// Sizes at which NDR and PDR are searched.
    fn searched(&self) -> Vec<Size> {
        match self.sizes.as_slice() {
            _ if self.no_search => Vec::new(),
            [] if self.quick || self.smoke => vec![Size::Bytes(64)],
            [] => vec![Size::Bytes(64), Size::Bytes(1500)],
            sizes => sizes.to_vec(),
        }
    }

    /// Those that were asked for, in that order, or all.
    fn cores(&self) -> Result<Vec<usize>, Failure> {
        let available = affinity::available();
        if self.cores.is_empty() {
            return Ok(available);
        }
        for (at, core) in self.cores.iter().enumerate() {
            if !available.contains(core) {
                return Err(Failure::Usage(format!("--cores: there is no core {core}; there are {available:?}")));
            }
            if self.cores.iter().take(at).any(|earlier| earlier == core) {
                return Err(Failure::Usage(format!("--cores: core {core} stands there twice; each has one role")));
            }
        }
        Ok(self.cores.clone())
    }
}

impl Paths {
    /// The srv6d beside this program, unless another was named.
    pub fn srv6d(&self) -> Result<PathBuf, Failure> {
        let beside = || Some(std::env::current_exe().ok()?.parent()?.join("srv6d"));
        let file = self.srv6d.clone().or_else(beside).unwrap_or_else(|| PathBuf::from("srv6d"));
        if file.is_file() {
            return Ok(file);
        }
        let shown = file.display();
        Err(Failure::Usage(format!(
            "{shown} is not there. Fix: cargo build --release --package srv6d, or name it: --srv6d"
        )))
    }
}

/// Where they are: a search takes longer than all else, so one placement has to do unless others are asked for. It is the
/// one whose rates the kernel and srv6d share fairly, if there are cores for it.
fn searched_in(placements: &[Placement], cores: &[usize]) -> Vec<Placement> {
    if !placements.is_empty() {
        return placements.to_vec();
    }
    let fits = Layout::of(Placement::SinkOnDutCore, cores).is_ok();
    vec![if fits { Placement::SinkOnDutCore } else { Placement::OneCore }]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failure is the test's failure")]

    use super::*;

    #[test]
    fn rates_without_loss_are_searched_at_the_sizes_asked_for() {
        let sizes = |words: &[&str]| {
            let given = Arguments::try_parse_from([&["bench-net"], words].concat());
            given.map(|arguments| arguments.forwarding.searched()).map_err(|wrong| wrong.to_string())
        };
        assert_eq!(sizes(&[]), Ok(vec![Size::Bytes(64), Size::Bytes(1500)]));
        assert_eq!(sizes(&["--quick"]), Ok(vec![Size::Bytes(64)]));
        assert_eq!(sizes(&["--quick", "--size", "256", "--size", "imix"]), Ok(vec![Size::Bytes(256), Size::Imix]));
        assert_eq!(sizes(&["--size", "256", "--no-search"]), Ok(vec![]));
    }

    #[test]
    fn rates_without_loss_are_searched_in_the_placements_asked_for_or_in_one() {
        let (own, dut, one) = (Placement::SinkOnOwnCore, Placement::SinkOnDutCore, Placement::OneCore);
        assert_eq!(searched_in(&[own, one], &[0, 1, 2, 3]), [own, one]);
        assert_eq!((searched_in(&[], &[0, 1, 2]), searched_in(&[], &[0, 1])), (vec![dut], vec![one]));
    }

    #[test]
    fn an_option_that_a_command_makes_no_use_of_is_refused() {
        let said = |words: &[&str]| {
            Arguments::try_parse_from([&["bench-net"], words].concat()).map_err(|wrong| wrong.to_string())
        };
        for words in [&["list"][..], &["report", "a"], &["render", "a"], &["compare", "a", "b"]] {
            for option in [&["--out", "there"][..], &["--srv6d", "that"], &["--rounds", "2"]] {
                for wrong in [[option, words].concat(), [words, option].concat()] {
                    let why = said(&wrong).unwrap_err();
                    assert!(why.contains(words[0]) && why.contains(option[0]), "{why}");
                }
            }
            assert!(said(words).is_ok());
        }
        assert!(said(&["--quick", "host"]).is_err());
        assert!(said(&["host", "--quick"]).is_err());
        assert!(said(&["host", "--rounds", "2", "--out", "there", "--srv6d", "that"]).is_ok());
        assert!(said(&["--quick", "--out", "there", "--srv6d", "that"]).is_ok());
    }
}
