//! `srv6d-pack`: shows the conformance pack and exports it for other forwarders.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use srv6d_pack::{Case, Pack, export, load};

/// Lists, shows and exports the cases of the conformance pack.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Directory of the pack.
    #[arg(long, global = true, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance"))]
    dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// One line for each case.
    List,
    /// Configuration, frames and counters of one case.
    Show {
        /// Case, e.g. U01, or a row with several cases.
        id: String,
    },
    /// Writes config.toml, pcap files and expect.json of every case into a directory.
    Export {
        /// Directory; made if it is not there.
        to: PathBuf,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let pack = match load(&cli.dir) {
        Ok(pack) => pack,
        Err(why) => {
            eprintln!("srv6d-pack: {why}");
            return ExitCode::from(2);
        }
    };
    match cli.command {
        Command::List => list(&pack),
        Command::Show { id } => return show(&pack, &id),
        Command::Export { to } => {
            for case in &pack.cases {
                if let Err(why) = export::export(case, &to) {
                    eprintln!("srv6d-pack: {}: {why}", to.join(&case.id).display());
                    return ExitCode::FAILURE;
                }
            }
            println!("{} cases in {}", pack.cases.len(), to.display());
        }
    }
    ExitCode::SUCCESS
}

fn list(pack: &Pack) {
    for case in &pack.cases {
        println!("{:8} {} {:14} {:20} {}", case.id, case.priority, case.area, case.linux.to_string(), case.title);
    }
}

fn show(pack: &Pack, id: &str) -> ExitCode {
    let shown: Vec<&Case> = pack.cases.iter().filter(|case| case.id == id || case.row == id).collect();
    if shown.is_empty() {
        eprintln!("srv6d-pack: there is no case or row {id}; see `srv6d-pack list`");
        return ExitCode::from(2);
    }
    for case in shown {
        print(case);
    }
    ExitCode::SUCCESS
}

fn print(case: &Case) {
    println!("{} (row {}, priority {}): {}\n{}", case.id, case.row, case.priority, case.title, case.clause);
    if !case.note.is_empty() {
        println!("{}", case.note);
    }
    println!("\n{}", case.setup.config.trim());
    for step in &case.steps {
        println!("\nat {} ms", step.at_ms);
        for event in &step.events {
            println!("  event  {event:?}");
        }
        for input in &step.inputs {
            println!("  in {}\n    {}", input.port, input.text.join("\n    "));
        }
        for out in &step.outputs {
            println!("  out {}\n    {}", out.ports().join(" or "), out.text.join("\n    "));
        }
    }
    if let Some(refused) = &case.refused {
        println!("\nrefused: {refused:?}");
    }
    for (name, count) in case.counters.iter().flatten() {
        println!("  {name} = {count}");
    }
    println!("linux: {}\n", case.linux);
}
