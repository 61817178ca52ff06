//! Tests of whole runs of the simulator.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failed test may panic")]

mod exact;
mod faults;
mod modes;
mod scale;

use srv6d_experiment::{Experiment, Packets, Run, RunOutcome, parse, simulate};

/// All ways of choosing.
const MODES: &str = r#"
[[mode]]
name = "hash"
choose = "hash"
[[mode]]
name = "hash, 4 QPs"
choose = "hash"
queue_pairs = 4
[[mode]]
name = "weighted, 4 QPs"
choose = "weighted"
queue_pairs = 4
[[mode]]
name = "flowlet"
choose = "flowlet"
gap = "500us"
[[mode]]
name = "adaptive"
choose = "adaptive"
gap = "500us"
[[mode]]
name = "reactive"
choose = "adaptive"
gap = "2ms"
reactive = { delta = 2, probability = 0.01 }
[[mode]]
name = "placed"
choose = "placed"
"#;

/// Returns an experiment with one case, in all modes.
fn experiment(seeds: u64, fabric: &str, case: &str) -> Experiment {
    let text = format!("seeds = {seeds}\n[fabric]\n{fabric}\n[[case]]\nname = \"case\"\n{case}\n{MODES}");
    parse(&text, "test.toml").unwrap_or_else(|errors| panic!("{errors}"))
}

/// Runs the case in one mode with one seed.
fn run(experiment: &Experiment, mode: &str, seed: u64) -> Run {
    outcome(experiment, mode, seed, Packets::Records).run
}

/// Runs the case in one mode with one seed, with records or with real frames.
fn outcome(experiment: &Experiment, mode: &str, seed: u64, packets: Packets) -> RunOutcome {
    let mode = experiment.modes.iter().find(|other| other.name == mode).unwrap();
    let run = simulate(experiment, (&experiment.cases[0], mode, seed), packets, false, &mut |_| {});
    run.unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the mean goodput of a mode over the seeds.
#[allow(clippy::cast_precision_loss, reason = "a few seeds")]
fn goodput(experiment: &Experiment, mode: &str) -> f64 {
    let goodputs = (1..=experiment.seeds).map(|seed| run(experiment, mode, seed).goodput);
    goodputs.sum::<f64>() / experiment.seeds as f64
}

fn json(run: &Run) -> String {
    serde_json::to_string(run).unwrap()
}
