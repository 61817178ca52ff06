//! `srv6d lab experiment`: ways of choosing paths, side by side, on a fabric in virtual time.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use srv6d_experiment::{self as experiment, EXAMPLE, Experiment, Packets, Run, RunOutcome};

use super::error::LabError;

/// Arguments of `srv6d lab experiment`.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "options of a command line")]
pub struct ExperimentArguments {
    /// File of the experiment, or `-` for standard input
    #[arg(value_name = "FILE", required_unless_present = "example")]
    file: Option<PathBuf>,
    /// Print a file to begin with, and run nothing
    #[arg(long, exclusive = true)]
    example: bool,
    /// Simulate the fabric in virtual time; required, because there is no other clock yet
    #[arg(long = "virtual")]
    is_virtual: bool,
    /// Forward real frames: a worker of srv6d in every node, with a configuration of its own; for fabrics of up to 128 nodes,
    /// hosts included
    #[arg(long, requires = "is_virtual")]
    exact: bool,
    /// Number of seeds, instead of the file's; the seed of a run decides who sends to whom, and all random choices
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// Divide all rates by this number, and multiply all times by it
    #[arg(long, value_name = "D", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    dilate: u32,
    /// Print one line of JSON for each run, and no table
    #[arg(long)]
    json: bool,
    /// Write a page with all pictures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Time between two messages about a long run.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs an experiment, and prints its results.
pub fn run(arguments: &ExperimentArguments) -> Result<(), LabError> {
    let Some(file) = arguments.file.as_deref().filter(|_| !arguments.example) else { return print(EXAMPLE) };
    if !arguments.is_virtual {
        return Err(LabError::Invalid(
            "an experiment runs in virtual time only; running it in network namespaces, with real packets, is not \
             possible yet\nfix: add --virtual"
                .to_owned(),
        ));
    }
    let experiment = read(file, arguments)?;
    let packets = if arguments.exact { Packets::Frames } else { Packets::Records };
    let outcomes = all(&experiment, packets, arguments.json)?;
    if !arguments.json {
        print(&text(&experiment, &outcomes))?;
    }
    let Some(html) = &arguments.html else { return Ok(()) };
    let page = experiment::page(&experiment, &outcomes, &command(file, arguments)).html();
    fs::write(html, page).map_err(|error| LabError::io("write", html, &error))
}

fn read(file: &Path, arguments: &ExperimentArguments) -> Result<Experiment, LabError> {
    let text = srv6d_text::read_text_or_pipe(file).map_err(|error| {
        LabError::Invalid(format!(
            "cannot read the experiment {}: {error}\nfix: name an existing file, or begin one with `srv6d lab experiment \
             --example`",
            file.display()
        ))
    })?;
    let read = experiment::parse(&text, &file.display().to_string());
    let mut experiment = read.map_err(|errors| LabError::Invalid(errors.to_string()))?;
    experiment.seeds = arguments.seeds.unwrap_or(experiment.seeds);
    experiment.dilated(arguments.dilate).map_err(|error| LabError::Invalid(error.to_string()))
}

/// Returns the command that repeats the experiment.
fn command(file: &Path, arguments: &ExperimentArguments) -> String {
    let mut command = "srv6d lab experiment --virtual".to_owned();
    if arguments.exact {
        command += " --exact";
    }
    // Writing to a string does not fail.
    let _ = arguments.seeds.map(|seeds| write!(command, " --seeds {seeds}"));
    if arguments.dilate > 1 {
        let _ = write!(command, " --dilate {}", arguments.dilate);
    }
    format!("{command} {}", file.display())
}

/// Runs every case in every mode with every seed. With `json`, a line is printed for each run when it has ended.
fn all(experiment: &Experiment, packets: Packets, json: bool) -> Result<Vec<RunOutcome>, LabError> {
    let total = experiment.cases.len() as u64 * experiment.modes.len() as u64 * experiment.seeds;
    let mut outcomes = Vec::new();
    let mut shown = Instant::now();
    for case in &experiment.cases {
        for mode in &experiment.modes {
            for seed in 1..=experiment.seeds {
                let number = outcomes.len() + 1;
                let mut observe = |share: f64| {
                    if shown.elapsed() >= PATIENCE {
                        shown = Instant::now();
                        let percent = 100.0 * share;
                        let run = format!("{}, {}, seed {seed}: {percent:.0} %", case.name, mode.name);
                        anstream::eprintln!("run {number} of {total}: {run}");
                    }
                };
                let outcome = experiment::simulate(experiment, (case, mode, seed), packets, seed == 1, &mut observe)
                    .map_err(|error| LabError::Failed(format!("{}, {}: {error}", case.name, mode.name)))?;
                observe(1.0);
                if json {
                    print(&line(&outcome.run)?)?;
                }
                outcomes.push(outcome);
            }
        }
    }
    Ok(outcomes)
}

fn line(run: &Run) -> Result<String, LabError> {
    let json = serde_json::to_string(run).map_err(|error| LabError::Failed(format!("cannot write JSON: {error}")))?;
    Ok(json + "\n")
}

fn text(experiment: &Experiment, outcomes: &[RunOutcome]) -> String {
    let runs: Vec<Run> = outcomes.iter().map(|outcome| outcome.run.clone()).collect();
    let summaries = experiment::summaries(&runs);
    let of_case = |case: &experiment::Case| {
        let table = experiment::table(summaries.iter().filter(|summary| summary.case == case.name));
        format!("{}\n{}", case.name, table.text())
    };
    let cases: Vec<String> = experiment.cases.iter().map(of_case).collect();
    cases.join("\n")
}

fn print(text: &str) -> Result<(), LabError> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| LabError::Failed(format!("cannot write to standard output: {error}")))
}
