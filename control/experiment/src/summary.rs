//! Summaries of the runs of each case and mode, as a table.
#![allow(clippy::cast_precision_loss, reason = "counts become means")]

use srv6d_report::Table;

use crate::result::Run;

/// The runs of one case in one mode.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Name of the case.
    pub case: String,
    /// Name of the mode.
    pub mode: String,
    /// Number of runs.
    pub runs: usize,
    /// Number of runs in which all transfers were complete.
    pub complete: usize,
    /// Mean of [`Run::goodput`].
    pub goodput: f64,
    /// Lowest and highest goodput.
    pub range: [f64; 2],
    /// Mean of the medians of the completion times, in milliseconds.
    pub p50_ms: f64,
    /// Mean of the 99th percentiles of the completion times, in milliseconds.
    pub p99_ms: f64,
    /// Mean share of reordered packets.
    pub reordered: f64,
    /// Mean number of packets that did not arrive.
    pub drops: f64,
    /// Mean share of marked packets.
    pub ce_marked: f64,
    /// Mean of [`Run::busiest_by_mean`].
    pub busiest_by_mean: f64,
    /// Mean number of moves.
    pub moves: f64,
    /// Number of moves, divided by the number of packets that arrived.
    pub moves_by_packet: f64,
    /// Mean of [`Run::victim`].
    pub victim: Option<f64>,
    /// Longest recovery, in milliseconds.
    pub recovery_ms: Option<f64>,
}

/// Returns the summaries of runs, in the order of their first runs.
pub fn summaries(runs: &[Run]) -> Vec<Summary> {
    let mut groups: Vec<Vec<&Run>> = Vec::new();
    for run in runs {
        let is_of =
            |group: &&mut Vec<&Run>| group.iter().any(|other| (&other.case, &other.mode) == (&run.case, &run.mode));
        match groups.iter_mut().find(is_of) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups.iter().filter_map(|group| summary(group)).collect()
}

fn summary(runs: &[&Run]) -> Option<Summary> {
    let first = runs.first()?;
    let mean = |of: &dyn Fn(&Run) -> f64| runs.iter().map(|run| of(run)).sum::<f64>() / runs.len() as f64;
    let goodputs = || runs.iter().map(|run| run.goodput);
    let victims: Vec<f64> = runs.iter().filter_map(|run| run.victim).collect();
    Some(Summary {
        case: first.case.clone(),
        mode: first.mode.clone(),
        runs: runs.len(),
        complete: runs.iter().filter(|run| run.complete == run.transfers).count(),
        goodput: mean(&|run| run.goodput),
        range: [goodputs().fold(f64::MAX, f64::min), goodputs().fold(0.0, f64::max)],
        p50_ms: mean(&|run| run.completion_ms.p50),
        p99_ms: mean(&|run| run.completion_ms.p99),
        reordered: mean(&|run| run.reordered),
        drops: mean(&|run| (run.drops.queue_full + run.drops.wire_loss + run.drops.port_down) as f64),
        ce_marked: mean(&|run| run.ce_marked),
        busiest_by_mean: mean(&|run| run.busiest_by_mean),
        moves: mean(&|run| run.moves as f64),
        moves_by_packet: mean(&|run| run.moves as f64 / run.packets.max(1) as f64),
        victim: (!victims.is_empty()).then(|| victims.iter().sum::<f64>() / victims.len() as f64),
        recovery_ms: runs.iter().filter_map(|run| run.recovery_ms).reduce(f64::max),
    })
}

/// Returns the summaries as a table.
pub fn table<'s>(summaries: impl IntoIterator<Item = &'s Summary>) -> Table {
    let columns = [
        "mode",
        "goodput",
        "low-high",
        "p50 ms",
        "p99 ms",
        "busiest/mean",
        "moves",
        "reordered",
        "marked",
        "drops",
        "victim",
        "recovery ms",
        "complete",
    ];
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let optional =
        |value: Option<f64>, digits| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"));
    let row = |summary: &Summary| {
        vec![
            summary.mode.clone(),
            format!("{:.2}", summary.goodput),
            format!("{:.2}-{:.2}", summary.range[0], summary.range[1]),
            format!("{:.1}", summary.p50_ms),
            format!("{:.1}", summary.p99_ms),
            format!("{:.2}", summary.busiest_by_mean),
            format!("{:.0}", summary.moves),
            percent(summary.reordered),
            percent(summary.ce_marked),
            format!("{:.0}", summary.drops),
            optional(summary.victim, 2),
            optional(summary.recovery_ms, 1),
            format!("{}/{}", summary.complete, summary.runs),
        ]
    };
    Table { columns: columns.map(str::to_owned).to_vec(), rows: summaries.into_iter().map(row).collect() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use crate::result::{Drops, Percentiles};

    fn run(mode: &str, seed: u64, goodput: f64) -> Run {
        Run {
            case: "c".to_owned(),
            mode: mode.to_owned(),
            seed,
            hosts: 32,
            transfers: 2,
            complete: usize::from(goodput > 0.0) * 2,
            goodput,
            seconds: 1.0,
            completion_ms: Percentiles { p50: 1.0, p99: 3.0, max: 4.0 },
            victim: None,
            packets: 10,
            reordered: 0.5,
            drops: Drops { queue_full: 1, wire_loss: 2, port_down: 3 },
            ce_marked: 0.25,
            busiest_by_mean: 2.0,
            moves: 7,
            recovery_ms: (seed == 2).then_some(12.0),
            events: 100,
        }
    }

    #[test]
    fn runs_of_one_mode_become_one_row() {
        let runs = [run("a", 1, 0.5), run("b", 1, 0.25), run("a", 2, 0.0)];
        let summaries = summaries(&runs);
        let modes: Vec<(&str, f64, usize, usize)> =
            summaries.iter().map(|one| (one.mode.as_str(), one.goodput, one.complete, one.runs)).collect();
        assert_eq!(modes, [("a", 0.25, 1, 2), ("b", 0.25, 1, 1)]);
        let table = table(&summaries);
        let expected =
            ["a", "0.25", "0.00-0.50", "1.0", "3.0", "2.00", "7", "50.0 %", "25.0 %", "6", "-", "12.0", "1/2"];
        assert_eq!(table.rows.first().unwrap(), &expected.map(str::to_owned));
        assert_eq!(table.columns.len(), expected.len());
    }
}
