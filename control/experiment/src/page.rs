//! The page of an experiment: tables and pictures.
#![allow(clippy::cast_precision_loss, reason = "counts become positions in pictures")]

use srv6d_report::{Bar, Chart, Document, Group, HeatMap, HeatRow, Line, Mark, Plot, Point, Schema, Section, Tick};

use crate::result::Run;
use crate::settings::{Experiment, Fabric};
use crate::simulation::{Load, RunOutcome};
use crate::summary::{Summary, summaries, table};

/// Points of a line of completion times.
const POINTS: usize = 100;
/// Labels of an axis of times.
const TICKS: u32 = 5;

/// Returns the page of an experiment. `command` repeats it.
pub fn page(experiment: &Experiment, outcomes: &[RunOutcome], command: &str) -> Document {
    let runs: Vec<Run> = outcomes.iter().map(|outcome| outcome.run.clone()).collect();
    let summaries = summaries(&runs);
    let section = |case: &crate::Case| section(&case.name, &summaries, outcomes);
    Document {
        schema: Schema::default(),
        title: "Which way of choosing paths serves which traffic".to_owned(),
        stamp: vec![
            ("command".to_owned(), command.to_owned()),
            ("version".to_owned(), format!("srv6d {}", env!("CARGO_PKG_VERSION"))),
            ("fabric".to_owned(), described(&experiment.fabric)),
            ("seeds".to_owned(), experiment.seeds.to_string()),
            ("clock".to_owned(), "virtual: nothing here depends on the machine".to_owned()),
        ],
        sections: experiment.cases.iter().map(section).collect(),
    }
}

fn described(fabric: &Fabric) -> String {
    let Fabric { leaves, spines, hosts, host_rate, link_rate, delay, frame, queue, window, .. } = fabric;
    format!(
        "{leaves} leaves, {spines} spines, {hosts} hosts at each leaf; hosts {} Mbit/s, links {} Mbit/s, {delay:?} each; \
         frames of {frame} bytes, queues of {queue} bytes, windows of {window} bytes",
        host_rate / 1_000_000,
        link_rate / 1_000_000
    )
}

fn section(case: &str, summaries: &[Summary], outcomes: &[RunOutcome]) -> Section {
    let of_case: Vec<&Summary> = summaries.iter().filter(|summary| summary.case == case).collect();
    let outcomes: Vec<&RunOutcome> = outcomes.iter().filter(|outcome| outcome.run.case == case).collect();
    let modes = of_case.iter().map(|summary| summary.mode.as_str());
    let loads = modes.clone().filter_map(|mode| {
        let watched =
            outcomes.iter().filter(|outcome| outcome.run.mode == mode).find_map(|outcome| outcome.load.as_ref());
        watched.map(|load| heat_map(mode, load))
    });
    Section {
        heading: case.to_owned(),
        text: vec![
            "Goodput is the ideal time by the time that was taken: 1 means that nothing but the links of the hosts was in the \
             way. Bars are means, and lines in them go from the worst seed to the best. Heat maps are those of the first seed."
                .to_owned(),
        ],
        table: Some(table(of_case.iter().copied())),
        charts: vec![goodputs(&of_case), sides(&of_case)],
        plots: vec![completions(modes, &outcomes)],
        heat_maps: loads.collect(),
    }
}

fn bar(series: &str, value: f64, [low, high]: [f64; 2]) -> Bar {
    Bar { series: series.to_owned(), value, low, high, mark: Mark::Measured }
}

fn goodputs(summaries: &[&Summary]) -> Chart {
    let group = |summary: &&Summary| Group {
        label: summary.mode.clone(),
        bars: vec![bar("goodput / ideal", summary.goodput, summary.range)],
    };
    let groups = summaries.iter().map(group).collect();
    Chart { title: "Goodput".to_owned(), unit: "ideal time / time".to_owned(), groups }
}

/// Shares of packets that were reordered or marked, and moves for each hundred packets.
fn sides(summaries: &[&Summary]) -> Chart {
    let group = |summary: &&Summary| {
        let bar = |series: &str, value: f64| bar(series, value, [value; 2]);
        let bars = vec![
            bar("reordered", 100.0 * summary.reordered),
            bar("marked with CE", 100.0 * summary.ce_marked),
            bar("moved to another path", 100.0 * summary.moves_by_packet),
        ];
        Group { label: summary.mode.clone(), bars }
    };
    let groups = summaries.iter().map(group).collect();
    Chart { title: "What happened to packets".to_owned(), unit: "% of the packets".to_owned(), groups }
}

/// Returns a plot of the share of transfers that were complete after a time.
fn completions<'m>(modes: impl Iterator<Item = &'m str>, outcomes: &[&RunOutcome]) -> Plot {
    let mut highest: f64 = 0.0;
    let mut line = |(number, mode): (usize, &str)| {
        let runs: Vec<&&RunOutcome> = outcomes.iter().filter(|outcome| outcome.run.mode == mode).collect();
        let mut times: Vec<f64> = runs.iter().flat_map(|outcome| outcome.completions_ms.iter().copied()).collect();
        times.sort_unstable_by(f64::total_cmp);
        highest = times.last().copied().unwrap_or(0.0).max(highest);
        let transfers: usize = runs.iter().map(|outcome| outcome.run.transfers).sum();
        let stride = times.len().div_ceil(POINTS).max(1);
        let ranks = (0..times.len()).filter(|rank| rank % stride == 0 || rank + 1 == times.len());
        let point = |rank: usize| {
            let share = 100.0 * (rank + 1) as f64 / transfers.max(1) as f64;
            let x = times.get(rank).copied().unwrap_or_default();
            Point { x, y: share, low: share, high: share, mark: Mark::None }
        };
        Line { name: mode.to_owned(), colour: number, points: ranks.map(point).collect(), ..Line::default() }
    };
    let lines: Vec<Line> = modes.enumerate().map(&mut line).collect();
    Plot {
        title: "Transfers that are complete".to_owned(),
        unit: "% of all".to_owned(),
        along: "milliseconds since their start, all seeds together".to_owned(),
        ticks: ticks(highest, highest),
        log: false,
        lines,
    }
}

/// Returns the labels of an axis of milliseconds that has this length in pixels, columns, or whatever positions count.
fn ticks(highest_ms: f64, length: f64) -> Vec<Tick> {
    let tick = |part: u32| {
        let part = f64::from(part) / f64::from(TICKS);
        Tick { at: part * length, label: format!("{:.0}", part * highest_ms) }
    };
    (0..=TICKS).map(tick).collect()
}

fn heat_map(mode: &str, load: &Load) -> HeatMap {
    let columns = load.links.iter().map(|(_, loads)| loads.len()).max().unwrap_or(0) as f64;
    let row = |(name, values): &(String, Vec<f64>)| HeatRow { name: name.clone(), values: values.clone() };
    HeatMap {
        title: format!("Load of the links between switches: {mode}"),
        unit: "share of the rate of a healthy link".to_owned(),
        along: "milliseconds".to_owned(),
        ticks: ticks(columns * load.span * 1000.0, columns),
        rows: load.links.iter().map(row).collect(),
    }
}
