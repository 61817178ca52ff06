//! Runs an experiment without the rest of srv6d: `cargo run --release --example experiment -- FILE [SEEDS] [PAGE.html]`.
//! It prints the summaries, and the events a second of this machine on standard error.
#![allow(clippy::cast_precision_loss, reason = "a rate to be shown")]

use std::time::Instant;

use srv6d_experiment::{Packets, RunOutcome, page, parse, simulate, summaries, table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("name a file")?;
    let mut experiment = parse(&std::fs::read_to_string(&file)?, &file)?;
    if let Some(seeds) = arguments.next() {
        experiment.seeds = seeds.parse()?;
    }
    let begin = Instant::now();
    let mut outcomes: Vec<RunOutcome> = Vec::new();
    for case in &experiment.cases {
        for mode in &experiment.modes {
            for seed in 1..=experiment.seeds {
                outcomes.push(simulate(&experiment, (case, mode, seed), Packets::Records, seed == 1, &mut |_| {})?);
            }
            let events: u64 = outcomes.iter().map(|outcome| outcome.run.events).sum();
            let rate = events as f64 / begin.elapsed().as_secs_f64() / 1e6;
            eprintln!("{}: {}: {events} events, {rate:.2} million a second", case.name, mode.name);
        }
        let runs: Vec<_> = outcomes.iter().map(|outcome| outcome.run.clone()).collect();
        let of_case: Vec<_> = summaries(&runs).into_iter().filter(|summary| summary.case == case.name).collect();
        println!("\n{}\n{}", case.name, table(&of_case).text());
    }
    if let Some(path) = arguments.next() {
        std::fs::write(path, page(&experiment, &outcomes, "the example `experiment`").html())?;
    }
    Ok(())
}
