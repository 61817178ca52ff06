//! Compares two runs by the ratios within each of them.
//!
//! Rates of different runs are not compared, because the machine may have been in another state. That state affects
//! srv6d, the kernel and the floor alike, so that ratios within a run can be compared.
//!
//! Only runs of the same kind are compared: forwarding with forwarding, and a host's streams with a host's streams.

use std::fmt::Write as _;

use serde::Serialize;

use crate::bars::FLOOR;
use crate::host;
use crate::layout::SinkPlacement;
use crate::machine::Stamp;
use crate::report::BESIDE;
use crate::results::{Figure, Results, Row, TurnsRow};
use crate::search::{Found, Limit, NDR, PDR};
use crate::statistics::{Spread, number_of};
use srv6d_report::Table;

/// Comparison of two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Facts of the stamps that differ: name, value before, value after.
    pub stamps: Vec<(String, String, String)>,
    /// Ratios that both runs have.
    pub figures: Vec<Compared>,
    /// Number of ratios that only one of the runs has.
    pub in_one_only: usize,
}

/// A ratio that both runs have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// Identity of the ratio.
    #[serde(flatten)]
    pub ratio: Ratio,
    /// Values in the first run.
    pub before: Spread,
    /// Values in the second run.
    pub after: Spread,
    /// The second median divided by the first.
    pub change: f64,
    /// Significance of the change.
    pub verdict: Change,
}

/// Identity of a ratio.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ratio {
    /// Row in the numerator.
    pub dut: String,
    /// Row in the denominator.
    pub beside: String,
    /// Name of the figure.
    pub figure: &'static str,
    /// Traffic that was measured.
    #[serde(flatten)]
    pub load: Load,
}

/// Traffic that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Load {
    /// Frames of one size.
    Frames {
        /// Placement of the work.
        placement: SinkPlacement,
        /// Number of workers.
        workers: usize,
        /// Frame size as requested.
        size: String,
    },
    /// TCP or UDP streams of a host.
    Streams(host::Row),
}

/// Results that can be compared with others of the same kind.
pub trait Run {
    /// Returns the stamp: machine, kernel, versions, command.
    fn stamp(&self) -> &Stamp;
    /// Returns every ratio in the results.
    fn ratios(&self) -> Vec<(Ratio, Spread)>;
}

impl Run for Results {
    fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    fn ratios(&self) -> Vec<(Ratio, Spread)> {
        let rows = self.floods.iter().chain(&self.workers);
        let floods = rows.flat_map(|row| of_row(self, row));
        let turns = self.turns.iter().filter_map(in_turns);
        floods.chain(turns).chain(of_searches(self)).collect()
    }
}

impl Run for host::Results {
    fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    fn ratios(&self) -> Vec<(Ratio, Spread)> {
        let of = |streams: &host::Streams, dut: &str, rates: &[f64]| {
            let (dut, beside) = (dut.to_owned(), "kernel".to_owned());
            let ratio = Ratio { dut, beside, figure: "bits per second", load: Load::Streams(streams.row) };
            streams.ratio(rates).map(|spread| (ratio, spread))
        };
        let both = |row: &host::Streams| [of(row, "srv6d", &row.srv6d), of(row, "srv6d-tc", &row.tc)];
        self.streams.iter().flat_map(both).flatten().collect()
    }
}

/// Significance of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// All rounds of the second run are below all rounds of the first.
    Lower,
    /// All rounds of the second run are above all rounds of the first.
    Higher,
    /// The ranges of the two runs overlap.
    WithinSpread,
    /// A run has only a single value, so that its range is unknown.
    NoSpread,
}

impl Change {
    fn of(before: Spread, after: Spread) -> Self {
        if before.count < 2 || after.count < 2 {
            Self::NoSpread
        } else if after.high < before.low {
            Self::Lower
        } else if after.low > before.high {
            Self::Higher
        } else {
            Self::WithinSpread
        }
    }

    /// Returns the name for users.
    pub fn text(self) -> &'static str {
        match self {
            Self::Lower => "lower",
            Self::Higher => "higher",
            Self::WithinSpread => "within the spread",
            Self::NoSpread => "one value",
        }
    }
}

impl Comparison {
    /// Compares a run with a later one.
    pub fn of<R: Run>(before: &R, after: &R) -> Self {
        let (first, second) = (before.ratios(), after.ratios());
        let compared = |(ratio, before): &(Ratio, Spread)| {
            let (_, after) = second.iter().find(|(other, _)| other == ratio)?;
            let verdict = Change::of(*before, *after);
            let change = after.median / before.median;
            Some(Compared { ratio: ratio.clone(), before: *before, after: *after, change, verdict })
        };
        let figures: Vec<Compared> = first.iter().filter_map(compared).collect();
        let in_one_only = first.len() + second.len() - 2 * figures.len();
        Self { stamps: stamps(before.stamp(), after.stamp()), figures, in_one_only }
    }

    /// Formats the comparison for a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (name, before, after) in &self.stamps {
            let _ = writeln!(out, "{name}: {before}\n{:>width$}  {after}", "->", width = name.len());
        }
        let columns =
            ["rows", "placement", "size", "figure", "before", "after", "change", ""].map(str::to_owned).to_vec();
        let rows = self.figures.iter().map(Compared::line).collect();
        let _ = write!(out, "\n{}", Table { columns, rows }.text());
        let count = |which| self.figures.iter().filter(|compared| compared.verdict == which).count();
        let _ = writeln!(
            out,
            "\n{}: {} lower, {} higher, {} within the spread, {} of a single value; {} in one of the runs only",
            number_of(self.figures.len(), "ratio"),
            count(Change::Lower),
            count(Change::Higher),
            count(Change::WithinSpread),
            count(Change::NoSpread),
            self.in_one_only
        );
        out
    }
}

impl Compared {
    fn line(&self) -> Vec<String> {
        let Ratio { dut, beside, figure, load } = &self.ratio;
        let (place, size) = match load {
            Load::Frames { workers, size, .. } if *workers > 1 => (number_of(*workers, "worker"), size.clone()),
            Load::Frames { placement, size, .. } => (placement.name().to_owned(), size.clone()),
            Load::Streams(row) => ("host".to_owned(), row.name()),
        };
        vec![
            format!("{dut} / {beside}"),
            place,
            size,
            (*figure).to_owned(),
            self.before.shown(1.0, 2),
            self.after.shown(1.0, 2),
            format!("{:+.1} %", 100.0 * (self.change - 1.0)),
            self.verdict.text().to_owned(),
        ]
    }
}

/// Returns the facts that differ. The duration is left out, because it does not describe what was measured.
fn stamps(before: &Stamp, after: &Stamp) -> Vec<(String, String, String)> {
    let of = |stamp: &Stamp, name: &str| {
        let fact = stamp.0.iter().find(|(other, _)| other == name);
        fact.map_or_else(|| "unknown".to_owned(), |(_, value)| value.clone())
    };
    let mut names: Vec<&str> =
        [before, after].iter().flat_map(|stamp| &stamp.0).map(|(name, _)| name.as_str()).collect();
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(*name) && *name != "took");
    let fact = |name: &str| (name.to_owned(), of(before, name), of(after, name));
    names.into_iter().map(fact).filter(|(_, before, after)| before != after).collect()
}

/// Returns the ratios of a row to the rows that reports show beside it.
fn of_row(results: &Results, row: &Row) -> Vec<(Ratio, Spread)> {
    let same_place =
        |other: &&Row| (other.placement, other.workers, &other.size) == (row.placement, row.workers, &row.size);
    let figures = [(Figure::PerSecond, "packets per second"), (Figure::PerCpuSecond, "packets per CPU second")];
    let mut found = Vec::new();
    for (_, beside) in BESIDE.iter().filter(|(dut, _)| *dut == row.dut) {
        let mut others = results.floods.iter().chain(&results.workers).filter(same_place);
        let Some(other) = others.find(|other| other.dut == *beside) else { continue };
        for (figure, name) in figures {
            let ratio = Ratio {
                dut: row.dut.clone(),
                beside: other.dut.clone(),
                figure: name,
                load: Load::Frames { placement: row.placement, workers: row.workers, size: row.size.clone() },
            };
            found.extend(row.ratio(other, figure).map(|spread| (ratio, spread)));
        }
    }
    found
}

fn in_turns(row: &TurnsRow) -> Option<(Ratio, Spread)> {
    let ratio = Ratio {
        dut: row.dut.clone(),
        beside: FLOOR.to_owned(),
        figure: "packets per second, in turns",
        load: Load::Frames { placement: row.placement, workers: 1, size: row.size.clone() },
    };
    row.ratio().map(|spread| (ratio, spread))
}

/// Returns the ratios of NDR and PDR, where the loss of the DUT was the limit.
fn of_searches(results: &Results) -> Vec<(Ratio, Spread)> {
    let rate = |found: Found| found.rate.filter(|_| found.limit == Limit::Loss);
    let mut found = Vec::new();
    for row in &results.searches {
        let figure = if row.accepted_loss <= NDR { "NDR" } else { "PDR" };
        for (_, beside) in BESIDE.iter().filter(|(dut, _)| *dut == row.dut) {
            let is_it = |other: &&crate::results::SearchRow| {
                (other.placement, other.dut.as_str(), &other.size) == (row.placement, *beside, &row.size)
                    && (other.accepted_loss - row.accepted_loss).abs() < PDR / 2.0
            };
            let other = results.searches.iter().find(is_it).and_then(|other| rate(other.found));
            let Some((mine, theirs)) = rate(row.found).zip(other) else { continue };
            let (dut, beside, size) = (row.dut.clone(), (*beside).to_owned(), row.size.clone());
            let ratio =
                Ratio { dut, beside, figure, load: Load::Frames { placement: row.placement, workers: 1, size } };
            found.extend(Spread::of([mine / theirs]).map(|spread| (ratio, spread)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failure is the test's failure")]

    use super::*;
    use crate::results::SearchRow;
    use crate::results::tests::row;

    const PLACE: SinkPlacement = SinkPlacement::SinkOnDutCore;

    fn run(rates: [f64; 3], build: &str) -> Results {
        let stamp = [("kernel", "6.18"), ("srv6d", build), ("took", build)];
        Results {
            stamp: Stamp(stamp.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()),
            floods: vec![row(PLACE, "srv6d-uN", "64", &rates), row(PLACE, "linux-uN", "64", &[1.0, 1.0, 1.0])],
            ..Results::default()
        }
    }

    fn verdict(before: [f64; 3], after: [f64; 3]) -> Change {
        Comparison::of(&run(before, "a"), &run(after, "b")).figures[0].verdict
    }

    #[test]
    fn a_change_is_what_lies_outside_of_all_rounds() {
        assert_eq!(verdict([1.2, 1.3, 1.4], [0.9, 1.0, 1.1]), Change::Lower);
        assert_eq!(verdict([1.2, 1.3, 1.4], [1.5, 1.6, 1.7]), Change::Higher);
        assert_eq!(verdict([1.2, 1.3, 1.4], [0.9, 1.0, 1.25]), Change::WithinSpread);
        // A round in which the generator was the limit has no ratio.
        assert_eq!(verdict([1.2, 1.3, 1.4], [0.9, -1.0, -1.0]), Change::NoSpread);
    }

    #[test]
    fn a_terminal_has_both_and_what_differs_of_the_stamps() {
        let text = Comparison::of(&run([1.0, 1.0, 1.0], "a"), &run([0.5, 0.5, 0.5], "b")).text();
        assert!(text.starts_with("srv6d: a\n   ->  b\n\n"), "{text}");
        let line = text.lines().find(|line| line.starts_with("srv6d-uN / linux-uN")).unwrap();
        assert!(line.contains("1.00 [1.00-1.00]  0.50 [0.50-0.50]  -50.0 %  lower"), "{line}");
        assert!(
            text.ends_with(
                "2 ratios: 2 lower, 0 higher, 0 within the spread, 0 of a single value; 0 in one of the runs only\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_hosts_streams_are_compared_by_what_was_sent() {
        let of = |udp, srv6d: &[f64]| {
            let row = host::Row { mtu: 1500, udp, flows: 8, kind: host::Kind::Plain };
            let cpu = <[Vec<f64>; 3]>::default();
            host::Streams { row, kernel: vec![10.0; srv6d.len()], srv6d: srv6d.to_vec(), tc: Vec::new(), cpu }
        };
        let run = |streams| host::Results { streams, ..host::Results::default() };
        let before = run(vec![of(false, &[1.0, 2.0]), of(true, &[5.0, 5.0])]);
        // The second run was interrupted in its second row.
        let comparison = Comparison::of(&before, &run(vec![of(false, &[3.0, 4.0]), of(true, &[])]));
        assert_eq!((comparison.figures.len(), comparison.in_one_only), (1, 1));
        let text = comparison.text();
        let line = "srv6d / kernel  host       TCP MTU 1500, 8 flows  bits per second  0.15 [0.10-0.20]  \
                    0.35 [0.30-0.40]  +133.3 %  higher";
        assert!(text.contains(line), "{text}");
        let json = serde_json::to_value(&comparison).unwrap();
        assert_eq!(json["figures"][0]["flows"], 8, "{json}");
    }

    #[test]
    fn what_only_one_run_has_is_counted_and_not_compared() {
        let lone = Results { workers: vec![row(PLACE, "srv6d-uN", "64", &[1.0])], ..Results::default() };
        let comparison = Comparison::of(&run([1.0, 1.0, 1.0], "a"), &lone);
        assert_eq!((comparison.figures.len(), comparison.in_one_only), (0, 2));
    }

    #[test]
    fn rates_without_loss_are_compared_where_the_dut_was_the_limit() {
        let found = |rate, limit| Found { rate: Some(rate), limit, trials: 1, void: 0 };
        let of = |mine: Found| {
            let search = |dut: &str, accepted_loss, found| SearchRow {
                placement: PLACE,
                dut: dut.to_owned(),
                size: "64".to_owned(),
                accepted_loss,
                found,
            };
            let theirs = found(2.0, Limit::Loss);
            let searches = [("srv6d-uN", mine), ("linux-uN", theirs)];
            let searches = searches.iter().flat_map(|&(dut, found)| [NDR, PDR].map(|loss| search(dut, loss, found)));
            Results { searches: searches.collect(), ..Results::default() }
        };
        let limited = of(found(3.0, Limit::Generator));
        let before = of(found(1.0, Limit::Loss));
        assert!(Comparison::of(&before, &limited).figures.is_empty());
        let figures = Comparison::of(&before, &of(found(3.0, Limit::Loss))).figures;
        let said: Vec<_> = figures.iter().map(|compared| (compared.ratio.figure, compared.change)).collect();
        assert_eq!(said, [("NDR", 3.0), ("PDR", 3.0)]);
    }
}
