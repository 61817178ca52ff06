//! `srv6d lab top`: how busy the workers of all nodes are, again and again.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write as _};
use std::time::{Duration, SystemTime};

use clap::Args;
use srv6d_api::state::WorkerStatus;
use srv6d_api::{Request, Response, Topic, client};
use srv6d_show::{Table, page, workers};

use super::error::LabError;
use super::fabric::Lab;
use super::interrupt::Interrupt;
use super::topology::Forwarder;

/// How often it is shown.
#[derive(Clone, Copy, Debug, Args)]
pub struct Pace {
    /// Number of seconds between two pages, over which each measures
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Number of pages [default: until Ctrl-C]
    #[arg(short, long, value_name = "NUMBER")]
    count: Option<u64>,
}

/// Workers by node.
type Workers = BTreeMap<String, Vec<WorkerStatus>>;

/// Shows the workers of all nodes until Ctrl-C, the busiest first.
///
/// # Errors
/// Signals cannot be watched.
pub fn run(lab: &Lab, pace: Pace) -> Result<(), LabError> {
    let interrupt = Interrupt::watch()?;
    let mut before = ask(lab);
    for _ in 0..pace.count.unwrap_or(u64::MAX) {
        let nothing = || Ok(None::<()>);
        match interrupt.wait_for(Duration::from_secs(pace.interval), nothing) {
            Err(LabError::Interrupted) => return Ok(()),
            other => other?,
        };
        let now = ask(lab);
        if !print(&page(&table(&before, &now), SystemTime::now(), io::stdout().is_terminal())) {
            return Ok(());
        }
        before = now;
    }
    Ok(())
}

/// Asks each srv6d. One that does not answer has no workers.
fn ask(lab: &Lab) -> Workers {
    let nodes = lab.topology.nodes().filter(|node| node.kind == Forwarder::Srv6d);
    let asked = nodes.filter_map(|node| {
        match client::ask(&lab.run.socket(&node.name), &Request::Show { topic: Topic::Workers }) {
            Ok(Response::Workers(rows)) => Some((node.name.clone(), rows)),
            _ => None,
        }
    });
    asked.collect()
}

fn table(before: &Workers, now: &Workers) -> String {
    let headings: Vec<&str> = std::iter::once("NODE").chain(workers::HEADINGS).collect();
    let mut table = Table::new(&headings);
    let mut rows: Vec<(&str, WorkerStatus)> = Vec::new();
    for (node, workers) in now {
        let earlier = |row: &WorkerStatus| before.get(node)?.iter().find(|before| before.worker == row.worker);
        rows.extend(workers.iter().map(|row| (node.as_str(), row.since(earlier(row)))));
    }
    rows.sort_by_key(|(node, row)| (std::cmp::Reverse(row.busy_permille()), *node));
    for (node, row) in rows {
        table.row(std::iter::once(node.to_owned()).chain(workers::cells(&row)));
    }
    table.finish("no srv6d answers")
}

/// Prints a page. Returns false if the reader has gone.
fn print(page: &str) -> bool {
    let mut stdout = io::stdout().lock();
    stdout.write_all(page.as_bytes()).and_then(|()| stdout.flush()).is_ok()
}
