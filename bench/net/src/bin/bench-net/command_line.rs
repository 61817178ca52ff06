//! Command line of `bench-net`, and the plan that follows from it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, Parser};
use srv6d_bench_net::affinity;
use srv6d_bench_net::dut::{self, Dut};
use srv6d_bench_net::frames::Size;
use srv6d_bench_net::layout::{Layout, SinkPlacement};
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

/// Rows that `--smoke` measures completely: one of the kernel and one of srv6d, whose ratio can be formed.
const SMOKE: [&str; 2] = ["linux-uN", "srv6d-uN"];

/// What is measured if no command is given.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub struct Forwarding {
    /// Fewer sizes, rounds and searches, and shorter trials: about twenty minutes
    #[arg(long, conflicts_with = "smoke")]
    pub quick: bool,

    /// Check that everything works: one short flood of every row, and two rows in every placement, at three sizes, with
    /// several workers and with searches; the figures mean nothing
    #[arg(long)]
    pub smoke: bool,

    /// Rows to measure [default: all]
    #[arg(long = "dut", value_name = "NAME", value_parser = dut_named)]
    pub duts: Vec<Dut>,

    /// Placements for measurements and searches [default: those with promises of their own, and one of them for the
    /// searches]
    #[arg(long = "placement", value_enum, value_name = "NAME")]
    pub placements: Vec<SinkPlacement>,

    /// Frame sizes from 64 to 9000 bytes, or imix; also the sizes of the searches for rates without loss
    #[arg(long = "size", value_name = "BYTES")]
    pub sizes: Vec<Size>,

    /// Where and how frames end at the sink
    #[arg(long, value_enum, default_value = "xdp")]
    pub sink: SinkKind,

    /// Number of rounds in which everything is measured
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub rounds: Option<u16>,

    /// Number of rounds for sizes other than 64 and 1500, and for several workers [default: the same]
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub other_rounds: Option<u16>,

    /// Cores to use, in this order: generator, receiver, worker and sink, as far as a placement has them [default: all,
    /// in ascending order]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cores: Vec<usize>,

    /// Measured part of a trial, in milliseconds
    #[arg(long, value_parser = clap::value_parser!(u16).range(20..=60_000))]
    pub trial_ms: Option<u16>,

    /// Pairs of turns of srv6d and the floor, 5 ms for each turn; fewer than 20 give no figure, 0 for none [default:
    /// 200; 100 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=10_000))]
    pub pairs: Option<u16>,

    /// Do not measure NDR, PDR and latency
    #[arg(long)]
    pub no_search: bool,

    /// Do not measure rows with several workers
    #[arg(long)]
    pub no_workers: bool,

    /// Give the threads that carry packets real-time priority over everything else on this machine
    #[arg(long)]
    pub first: bool,

    #[command(flatten)]
    pub paths: Paths,
}

/// The srv6d that is measured, and the directory of the results.
#[derive(Debug, Args)]
pub struct Paths {
    /// The srv6d to measure [default: the one in the directory of this program]
    #[arg(long, value_name = "FILE")]
    pub srv6d: Option<PathBuf>,

    /// Directory for results.json, report.md, report.html and report.json; `host` and `neighbors` use subdirectories of
    /// these names
    #[arg(long, value_name = "DIRECTORY", default_value = "target/bench-net")]
    pub out: PathBuf,
}

#[derive(Debug, clap::Subcommand)]
pub enum Word {
    /// Lists the rows
    List,
    /// Measures a host's own TCP and UDP through srv6d, compared with the kernel's encapsulation; needs iperf3
    Host {
        /// Only the CPU time of single packets: about a minute, and the ratios that repeat best
        #[arg(long)]
        cpu_only: bool,
        /// Number of rounds in which each row is measured
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
        rounds: u16,
        /// Length of each stream in seconds
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=600))]
        seconds: u16,
        #[command(flatten)]
        paths: Paths,
    },
    /// Measures how soon the first packet to a neighbour arrives through srv6d, beside the kernel
    Neighbors {
        /// How often the kernel and srv6d take turns in each situation
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
        rounds: u16,
        /// First packets of each turn
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=255))]
        probes: u16,
        /// Number of other routes where a situation has them
        #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
        routes: u32,
        #[command(flatten)]
        paths: Paths,
    },
    /// Writes Markdown and HTML from a report in JSON, next to that file
    Render {
        /// The report (report.json), or the directory that contains it
        file: PathBuf,
    },
    /// Writes the report of existing results again, next to them
    Report {
        /// The results (results.json), or the directory that contains them
        file: PathBuf,
    },
    /// Compares the ratios of two runs, and shows which differ by more than the spread of their rounds
    Compare {
        /// The results of the first run (results.json), or the directory that contains them
        before: PathBuf,
        /// The results of the second run (results.json), or the directory that contains them
        after: PathBuf,
        /// Prints JSON
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
    /// Returns the plan of the measurement. Setting `interrupted` ends it.
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
                // The placement that needs only two cores comes first, and every row is measured there.
                [] if smoke => vec![SinkPlacement::OneCore, SinkPlacement::SinkOnDutCore, SinkPlacement::SinkOnOwnCore],
                [] => vec![SinkPlacement::SinkOnDutCore, SinkPlacement::SinkOnOwnCore, SinkPlacement::OneCore],
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

    /// Returns the sizes at which NDR and PDR are searched.
    fn searched(&self) -> Vec<Size> {
        match self.sizes.as_slice() {
            _ if self.no_search => Vec::new(),
            [] if self.quick || self.smoke => vec![Size::Bytes(64)],
            [] => vec![Size::Bytes(64), Size::Bytes(1500)],
            sizes => sizes.to_vec(),
        }
    }

    /// Returns the cores that were given, in that order, or all.
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
    /// Returns the srv6d that was given, or the one in the directory of this program.
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

/// Returns the placements of the searches. A search takes longer than everything else, so by default there is only one
/// placement: if there are enough cores, the one that treats the kernel and srv6d alike.
fn searched_in(placements: &[SinkPlacement], cores: &[usize]) -> Vec<SinkPlacement> {
    if !placements.is_empty() {
        return placements.to_vec();
    }
    let fits = Layout::of(SinkPlacement::SinkOnDutCore, cores).is_ok();
    vec![if fits { SinkPlacement::SinkOnDutCore } else { SinkPlacement::OneCore }]
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
        let (own, dut, one) = (SinkPlacement::SinkOnOwnCore, SinkPlacement::SinkOnDutCore, SinkPlacement::OneCore);
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
        assert!(said(&["neighbors", "--smoke"]).is_err());
        assert!(said(&["neighbors", "--probes", "2", "--out", "there", "--srv6d", "that"]).is_ok());
        assert!(said(&["host", "--rounds", "2", "--out", "there", "--srv6d", "that"]).is_ok());
        assert!(said(&["--quick", "--out", "there", "--srv6d", "that"]).is_ok());
    }
}
