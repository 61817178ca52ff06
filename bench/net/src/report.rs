//! Makes a report from results: promises, rates and their ratios, searches, latencies.

use crate::bars::{self, Kept, NoFigure, Promise};
use crate::frames::mean_length;
use crate::layout::SinkPlacement;
use crate::results::{Figure, LatencyRow, PartOf, Results, Row, SearchRow};
use crate::search::{Found, NDR};
use crate::statistics::{Spread, number_of};
use crate::{dut, pictures};
use srv6d_report::{Document, Plot, Schema, Section, Table};

/// Rows with which each row of SRv6 work is compared. The ratio of the floor to the kernel shows what these sockets
/// leave for a forwarder that does no work at all.
pub const BESIDE: [(&str, &str); 16] = [
    ("srv6d-forward", "linux-forward"),
    ("srv6d-encap.red", "linux-encap.red"),
    ("srv6d-uN", "linux-uN"),
    ("srv6d-uDT6", "linux-End.DT6"),
    ("srv6d-forward", "af_xdp-floor"),
    ("srv6d-encap.red", "af_xdp-floor"),
    ("srv6d-uN", "af_xdp-floor"),
    ("srv6d-uDT6", "af_xdp-floor"),
    ("af_xdp-floor", "linux-encap.red"),
    ("af_xdp-floor", "linux-uN"),
    ("srv6d-forward-offload", "linux-forward"),
    ("srv6d-encap.red-offload", "linux-encap.red"),
    ("srv6d-encap.red-offload", "xdp-redirect"),
    ("srv6d-uN-offload", "linux-uN"),
    ("srv6d-uN-offload", "xdp-redirect"),
    ("srv6d-uDT6-offload", "linux-End.DT6"),
];

/// Makes the whole report.
pub fn document(results: &Results) -> Document {
    let (trials, without, disturbed) = results.trial_counts();
    let mut stamp = results.stamp.clone();
    stamp.add(
        "trials",
        format!("{trials}, of which {without} have no figure of the DUT's and {disturbed} were disturbed by others"),
    );
    stamp.add_cut_off(results.cut_off.as_deref());
    let mut sections = vec![promises(results)];
    sections.extend(how_to_read(results));
    for placement in placements(&results.floods) {
        sections.push(ratios(results, placement));
        sections.push(rates(results, placement, Figure::PerSecond));
        sections.push(rates(results, placement, Figure::PerCpuSecond));
        sections.extend(cores(results, placement));
    }
    sections.extend(workers(results));
    let mut searched: Vec<SinkPlacement> = results.searches.iter().map(|row| row.placement).collect();
    searched.sort_unstable();
    searched.dedup();
    sections.extend(searched.into_iter().map(|placement| searches(results, placement)));
    let others = [latencies(results), trials_lost(results), left_out(results)];
    sections.extend(others.into_iter().flatten());
    Document {
        schema: Schema::default(),
        title: "Forwarding, measured in network namespaces".to_owned(),
        stamp: stamp.0,
        sections,
    }
}

/// Returns the section with the promises, one per line, which is also printed to the terminal.
pub fn promises(results: &Results) -> Section {
    let row = |kept: Kept| {
        let promise = kept.promise;
        let figure = match promise.figure {
            Figure::PerSecond if promise.in_turns => "packets per second, in turns",
            Figure::PerSecond => "packets per second",
            Figure::PerCpuSecond => "packets per CPU second",
        };
        vec![
            format!("{} / {}", promise.dut, promise.beside),
            promise.placement.name().to_owned(),
            kept.size.to_owned(),
            figure.to_owned(),
            format!("{:.1}", promise.at_least),
            kept.ratio.map_or_else(|_| "-".to_owned(), |ratio| ratio.shown(1.0, 2)),
            kept.word(),
        ]
    };
    // A row that the run was not asked to measure does not count as missing.
    let was_run = |kept: &Kept| {
        let Promise { dut, beside, placement, in_turns, .. } = kept.promise;
        if in_turns {
            return kept.ratio != Err(NoFigure::NotMeasured);
        }
        [dut, beside].into_iter().all(|name| results.flood(placement, name, kept.size).is_some())
    };
    let heading = "Promises".to_owned();
    if results.stamp.has_caution() {
        let text = vec!["No promise is judged: these figures mean nothing, as the stamp says.".to_owned()];
        return Section { heading, text, ..Section::default() };
    }
    let judged: Vec<Kept> = bars::judged(results).into_iter().filter(was_run).collect();
    let count = |is_met| judged.iter().filter(|kept| kept.is_met() == is_met).count();
    let counts = format!("{} met, {} missed, {} without a figure.", count(Some(true)), count(Some(false)), count(None));
    let rows: Vec<Vec<String>> = judged.into_iter().map(row).collect();
    if rows.is_empty() {
        let text = vec!["No promise is about what this run has measured.".to_owned()];
        return Section { heading, text, ..Section::default() };
    }
    let how = "Ratios are taken within a round and the median of the rounds decides; in brackets the smallest and the \
               largest. What is measured in turns changes hands every few milliseconds on the same sockets: the median \
               of some hundred pairs decides, and in brackets are their quartiles; fewer than 20 pairs decide nothing.";
    Section {
        heading,
        text: [counts, how.to_owned()].into_iter().chain(disturbance(results)).collect(),
        table: Some(Table {
            columns: words(&["rows", "placement", "size", "figure", "at least", "measured", "promise"]),
            rows,
        }),
        ..Section::default()
    }
}

/// Returns a warning if disturbance explains the figures as well as the forwarders do.
fn disturbance(results: &Results) -> Option<String> {
    let (trials, _, disturbed) = results.trial_counts();
    (4 * disturbed > trials).then(|| {
        format!(
            "Others had the cores in {disturbed} of {trials} trials, for more than 2 % of the time: these figures are \
             theirs, too. Measure again with nothing else running, or with longer trials."
        )
    })
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn placements(rows: &[Row]) -> Vec<SinkPlacement> {
    let mut found: Vec<SinkPlacement> = rows.iter().map(|row| row.placement).collect();
    found.dedup();
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns the sizes of the rows, each once, in ascending order.
pub fn sizes(rows: &[&Row]) -> Vec<String> {
    let mut found: Vec<String> = rows.iter().map(|row| row.size.clone()).collect();
    in_order(&mut found);
    found
}

/// Sorts sizes in the same order for all tables and pictures; a mix is sorted by its mean length.
pub fn in_order(sizes: &mut Vec<impl AsRef<str> + PartialEq>) {
    sizes.sort_by(|one, other| mean_length(one.as_ref()).total_cmp(&mean_length(other.as_ref())));
    sizes.dedup();
}

fn in_placement(results: &Results, placement: SinkPlacement) -> Vec<&Row> {
    results.floods.iter().filter(|row| row.placement == placement).collect()
}

fn ratios(results: &Results, placement: SinkPlacement) -> Section {
    let rows = in_placement(results, placement);
    let sizes = sizes(&rows);
    let mut table = Table { columns: words(&["packets per second"]), rows: Vec::new() };
    table.columns.extend(sizes.iter().cloned());
    for (dut, beside) in BESIDE {
        let at = |size: &String| -> Option<Spread> {
            let (mine, theirs) = (results.flood(placement, dut, size)?, results.flood(placement, beside, size)?);
            mine.ratio(theirs, Figure::PerSecond)
        };
        let found: Vec<Option<Spread>> = sizes.iter().map(at).collect();
        if found.iter().all(Option::is_none) {
            continue;
        }
        let name = format!("{dut} / {beside}");
        let cells = found.iter().map(|ratio| ratio.map_or_else(|| "-".to_owned(), |ratio| ratio.shown(1.0, 2)));
        table.rows.push(std::iter::once(name.clone()).chain(cells).collect());
    }
    let heading = format!("Ratios, {}", placement.name());
    let text = vec![format!("Placement: {}.", placement.meaning())];
    with_figures(Section { heading, text, ..Section::default() }, table, pictures::ratios(results, placement))
}

/// Returns the explanation that applies to all placements.
fn how_to_read(results: &Results) -> Option<Section> {
    let of_ratios = "Pictures of ratios: above 1 the first of the two is faster. A colour is a kind of work: a full line is \
                     srv6d beside the kernel, dots are beside the bare floor; dashes and dots are the offload beside the \
                     kernel, dashes beside the bare ceiling. Grey is the floor beside the kernel. A row that generator or \
                     sink limited has no ratio.";
    let [rates, per_cpu] = [
        "Packets per second: a flood; counted at the sink. Millions, median [lowest-highest] of the rounds. `>=`: who is \
         named was the limit, and not the DUT.",
        "Packets per CPU second: the same packets divided by the busy time of every core that carried them behind the \
         generator's: receive work, worker, sink. A worker that polls is always busy.",
    ];
    (!results.floods.is_empty()).then(|| Section {
        heading: "How to read what follows".to_owned(),
        text: [rates, per_cpu, of_ratios].map(str::to_owned).into_iter().chain([pictures::legend(results)]).collect(),
        ..Section::default()
    })
}

/// Adds table and picture to a section, or a note if no row has a figure.
fn with_figures(section: Section, table: Table, plot: Option<Plot>) -> Section {
    let Some(plot) = plot else {
        let none =
            "No figure: generator or sink was the limit of every row, or there is no second row to compare with.";
        return Section { text: section.text.into_iter().chain([none.to_owned()]).collect(), ..section };
    };
    Section { table: Some(table), plots: vec![plot], ..section }
}

fn rates(results: &Results, placement: SinkPlacement, figure: Figure) -> Section {
    let rows = in_placement(results, placement);
    let sizes = sizes(&rows);
    let (heading, unit) = match figure {
        Figure::PerSecond => ("Packets per second", "Mpps"),
        Figure::PerCpuSecond => ("Packets per CPU second", "million per CPU second"),
    };
    let mut table = Table { columns: words(&[unit]), rows: Vec::new() };
    table.columns.extend(sizes.iter().cloned());
    for dut in dut::ALL {
        let of_dut = |size: &String| rows.iter().copied().find(|row| row.dut == dut.name && &row.size == size);
        let found: Vec<Option<&Row>> = sizes.iter().map(of_dut).collect();
        if found.iter().all(Option::is_none) {
            continue;
        }
        let cells = found.iter().map(|row| row.map_or_else(|| "-".to_owned(), |row| cell(row, figure)));
        table.rows.push(std::iter::once(dut.name.to_owned()).chain(cells).collect());
    }
    let heading = format!("{heading}, {}", placement.name());
    let plot = pictures::rates(results, placement, figure, &heading, unit);
    let text = if figure == Figure::PerSecond { longer(&rows) } else { None };
    with_figures(Section { text: text.into_iter().collect(), heading, ..Section::default() }, table, plot)
}

/// Returns a note on rows whose headers alone are longer than the requested size.
fn longer(rows: &[&Row]) -> Option<String> {
    let longer = rows.iter().filter(|row| row.size.parse::<f64>().is_ok_and(|size| size < row.frame));
    let mut longer: Vec<String> =
        longer.map(|row| format!("{} at {} sends {:.0} bytes", row.dut, row.size, row.frame)).collect();
    longer.dedup();
    (!longer.is_empty()).then(|| format!("Headers longer than the size: {}.", longer.join(", ")))
}

fn cell(row: &Row, figure: Figure) -> String {
    if let Some(spread) = row.figure(figure) {
        return spread.shown(1e-6, 2);
    }
    match (figure, row.at_least()) {
        (Figure::PerSecond, Some(spread)) => format!(">= {:.2} ({})", spread.median / 1e6, row.who_was_the_limit()),
        _ => "-".to_owned(),
    }
}

fn workers(results: &Results) -> Option<Section> {
    if results.workers.is_empty() {
        return None;
    }
    let mut counts: Vec<usize> = results.workers.iter().map(|row| row.workers).collect();
    counts.sort_unstable();
    counts.dedup();
    let mut table = Table { columns: words(&["Mpps, 64 bytes"]), rows: Vec::new() };
    table.columns.extend(counts.iter().map(|&count| number_of(count, "queue")));
    for dut in dut::ALL {
        let of = |count: &usize| results.workers.iter().find(|row| row.dut == dut.name && row.workers == *count);
        let found: Vec<Option<&Row>> = counts.iter().map(of).collect();
        if found.iter().any(Option::is_some) {
            let cells = found.iter().map(|row| row.map_or_else(|| "-".to_owned(), |row| cell(row, Figure::PerSecond)));
            table.rows.push(std::iter::once(dut.name.to_owned()).chain(cells).collect());
        }
    }
    Some(Section {
        heading: "Several workers".to_owned(),
        text: vec![
            "As many generator cores as queues, and a worker per queue. Here the generator's cores also receive for \
             the DUT. Rows of the kernel (`linux-...`, `xdp-redirect`) have no figure here: all their work is done on the \
             generator's cores, in the very call that sends a frame, so that no more is sent than is forwarded and no flood \
             can come about. What they show is `>=`, what the two do together."
                .to_owned(),
        ],
        table: Some(table),
        ..Section::default()
    })
}

fn searches(results: &Results, placement: SinkPlacement) -> Section {
    let row = |row: &SearchRow| {
        let at_least = if row.found.is_lower_bound() { ">= " } else { "" };
        let rate = row.found.rate.map_or_else(|| "none".to_owned(), |rate| format!("{at_least}{:.3}", rate / 1e6));
        vec![
            row.dut.clone(),
            row.size.clone(),
            if row.accepted_loss <= NDR {
                "NDR, none lost".to_owned()
            } else {
                format!("PDR, {:.1} % lost", 100.0 * row.accepted_loss)
            },
            rate,
            beyond(&row.found),
            format!("{} ({} void)", row.found.trials, row.found.void),
        ]
    };
    Section {
        heading: format!("Rates without loss, {}", placement.name()),
        text: vec![
            "Upwards until a rate does not hold, then bisected to within 2 % and confirmed by a trial twice as long; the rate \
             is what the generator really offered. `>=`, and a hollow bar: it was not loss of the DUT that ended the search. The NDR is \
             searched up to the PDR. A ring of a veth holds 256 frames: a core that is taken away for half a millisecond \
             costs the NDR."
                .to_owned(),
        ],
        table: Some(Table {
            columns: words(&["DUT", "size", "accepted", "Mpps", "beyond it", "trials"]),
            rows: results.searches.iter().filter(|row| row.placement == placement).map(row).collect(),
        }),
        charts: pictures::searches(results, placement),
        ..Section::default()
    }
}

/// Returns what prevented a higher rate or, if none was found, any rate.
fn beyond(found: &Found) -> String {
    let bound = if found.is_lower_bound() { ": a lower bound" } else { "" };
    format!("{}{bound}", found.limit.text())
}

/// Returns the requested load, and the one that the generator offered if that is lower.
fn load(row: &LatencyRow) -> String {
    let what = row.part_of.as_ref().map_or_else(
        || "NDR or PDR".to_owned(),
        |PartOf { placement, size, accepted_loss, is_lower_bound }| {
            let which = if *accepted_loss <= NDR { "NDR" } else { "PDR" };
            let bound = if *is_lower_bound { " (a lower bound)" } else { "" };
            format!("{which} {size}, {}{bound}", placement.name())
        },
    );
    let asked = format!("{} % of {what}: {:.0} kpps", row.load, row.rate / 1e3);
    match row.offered {
        Some(offered) if offered < 0.97 * row.rate => format!("{asked} (offered {:.0})", offered / 1e3),
        _ => asked,
    }
}

/// Formats a share as a percentage with enough digits to be meaningful.
pub fn percent(share: f64) -> String {
    format!("{:.1$} %", 100.0 * share, if share > 0.0 && share < 0.001 { 3 } else { 1 })
}

fn latencies(results: &Results) -> Option<Section> {
    let first = results.latencies.first()?;
    let row = |row: &LatencyRow| {
        let mark = if row.lost_some() { " *" } else { "" };
        let time = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.1}{mark}"));
        let latency = row.latency.as_ref();
        let percentile = |quantile| time(latency.and_then(|latency| latency.percentile(quantile)));
        vec![
            row.dut.clone(),
            row.placement.name().to_owned(),
            row.size.clone(),
            load(row),
            format!("{}{mark}", percent(row.loss)),
            percentile(0.5),
            percentile(0.99),
            percentile(0.999),
            time(latency.map(|latency| latency.max)),
            latency.map_or_else(|| "-".to_owned(), |latency| latency.samples.to_string()),
        ]
    };
    let of_what = if first.part_of.is_some() {
        "Each row is loaded with 10, 50 and 90 % of its own NDR (of its PDR where it has no NDR), searched with frames of the \
         size and in the placement that `load` names; frames here are as long, and 128 bytes at least, since they carry the \
         time. Inline nothing is searched: the rates are the same."
    } else {
        "The NDR (or PDR) is that of the row at the first size and in the placement that rates without loss were searched \
         at."
    };
    let how = "From generator to sink, microseconds, of the packets that arrived. `*`: more than 0.1 % of the packets were \
               lost at that rate, so that the percentiles are not those of all. `-`: a percentile with fewer samples than \
               put one beyond it (p99.9: 1000). Inline, every step runs on the sender's core at once; with receive threads \
               a halted core has to be woken first. On a virtual machine what is beyond p99.9 is the machine. `offered` \
               stands where the generator sent less than it was asked for.";
    Some(Section {
        heading: "Latency".to_owned(),
        text: [of_what, how].map(str::to_owned).to_vec(),
        table: Some(Table {
            columns: words(&["DUT", "placement", "size", "load", "lost", "p50", "p99", "p99.9", "max", "samples"]),
            rows: results.latencies.iter().map(row).collect(),
        }),
        plots: pictures::latencies(results),
        ..Section::default()
    })
}

/// Returns the section that shows how the time of each core was used.
fn cores(results: &Results, placement: SinkPlacement) -> Option<Section> {
    let chart = pictures::cores(results, placement)?;
    let rows = in_placement(results, placement);
    let size = sizes(&rows).into_iter().next()?;
    let mut table =
        Table { columns: words(&["DUT", "core", "busy", "programs", "kernel", "interrupts"]), rows: Vec::new() };
    for row in rows.iter().filter(|row| row.size == size) {
        let total = pictures::busy(row, |busy| busy.total());
        let parts = [
            pictures::busy(row, |busy| busy.user),
            pictures::busy(row, |busy| busy.system),
            pictures::busy(row, |busy| busy.interrupts),
        ];
        for (at, (role, busy)) in total.into_iter().enumerate() {
            let part = |part: &Vec<(String, Spread)>| part.get(at).map(|(_, spread)| format!("{:.2}", spread.median));
            let parts = parts.iter().filter_map(part);
            table.rows.push([row.dut.clone(), role, busy.shown(1.0, 2)].into_iter().chain(parts).collect());
        }
    }
    Some(Section {
        heading: format!("Cores, {}", placement.name()),
        text: vec![format!(
            "Shares of the time while frames of {size} bytes went through: in programs (a worker's own code), in the \
             kernel for them and for its own threads (`sendto`, threaded NAPI), in interrupts and softirqs. A worker \
             that polls is always busy. The kernel tells this in hundredths of a second, so that a short trial may have a \
             share above 1."
        )],
        table: Some(table),
        charts: vec![chart],
        ..Section::default()
    })
}

/// Returns the section on trials without a figure of the DUT and on disturbed trials: where, how many, and why.
fn trials_lost(results: &Results) -> Option<Section> {
    let mut table = Table {
        columns: words(&["DUT", "placement", "workers", "size", "trials", "without a figure", "disturbed", "why"]),
        rows: Vec::new(),
    };
    for row in results.floods.iter().chain(&results.workers) {
        let reasons = || row.trials.iter().filter_map(|trial| trial.verdict.why_none());
        let disturbed = row.trials.iter().filter(|trial| trial.counted.is_disturbed()).count();
        if reasons().next().is_none() && disturbed == 0 {
            continue;
        }
        let mut why: Vec<&str> = reasons().collect();
        why.sort_unstable();
        why.dedup();
        table.rows.push(vec![
            row.dut.clone(),
            row.placement.name().to_owned(),
            row.workers.to_string(),
            row.size.clone(),
            row.trials.len().to_string(),
            reasons().count().to_string(),
            disturbed.to_string(),
            why.join("; "),
        ]);
    }
    (!table.rows.is_empty()).then(|| Section {
        heading: "Trials that say nothing, or less".to_owned(),
        text: vec![
            "Without a figure: generator or sink was the limit, or more arrived than was sent. Disturbed: somebody else \
             had the cores for more than 2 % of the time, after all repetitions."
                .to_owned(),
        ],
        table: Some(table),
        ..Section::default()
    })
}

fn left_out(results: &Results) -> Option<Section> {
    if results.left_out.is_empty() {
        return None;
    }
    let heading = "Left out on this machine".to_owned();
    Some(Section { heading, text: results.left_out.clone(), ..Section::default() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure is the test's failure")]

    use super::*;
    use crate::results::tests::row;
    use crate::results::{FEWEST_PAIRS, TurnsRow};
    use crate::search::Limit;

    fn results() -> Results {
        let place = SinkPlacement::SinkOnDutCore;
        Results {
            floods: vec![
                row(place, "srv6d-uN", "64", &[0.8e6, 0.9e6, 1.0e6]),
                row(place, "linux-uN", "64", &[0.6e6, 0.6e6, 0.5e6]),
                row(place, "xdp-redirect", "64", &[-5e6, -5e6, -5e6]),
            ],
            left_out: vec!["placement `sink on own core` needs 4 cores and there are 3".to_owned()],
            ..Results::default()
        }
    }

    #[test]
    fn ratios_come_before_rates_and_limits_are_named() {
        let markdown = document(&results()).markdown();
        assert!(markdown.contains("| srv6d-uN / linux-uN | 1.50 [1.33-2.00] |"), "{markdown}");
        assert!(markdown.contains("| srv6d-uN | 0.90 [0.80-1.00] |"), "{markdown}");
        assert!(markdown.contains("| xdp-redirect | >= 5.00 (generator) |"), "{markdown}");
        assert!(markdown.contains("needs 4 cores and there are 3"), "{markdown}");
        let lost = "| xdp-redirect | sink on DUT's core | 1 | 64 | 3 | 3 | 0 | the generator was the limit |";
        assert!(markdown.contains(lost), "{markdown}");
        assert!(!markdown.contains("cut off"), "{markdown}");
    }

    #[test]
    fn where_every_row_was_limited_no_figure_stands_in_place_of_table_and_picture() {
        let results = Results { floods: vec![row(SinkPlacement::OneCore, "linux-uN", "64", &[-1e6])], ..results() };
        let has_figure = |section: Section| {
            assert_eq!(section.table.is_none(), section.text.iter().any(|text| text.starts_with("No figure")));
            assert_eq!(section.table.is_some(), !section.plots.is_empty());
            section.table.is_some()
        };
        assert!(!has_figure(ratios(&results, SinkPlacement::OneCore)));
        assert!(!has_figure(rates(&results, SinkPlacement::OneCore, Figure::PerCpuSecond)));
        // A lower bound counts as a figure.
        assert!(has_figure(rates(&results, SinkPlacement::OneCore, Figure::PerSecond)));
    }

    #[test]
    fn what_explains_the_pictures_stands_there_once() {
        let mut results = results();
        results.floods.push(row(SinkPlacement::OneCore, "linux-uN", "64", &[1e6]));
        let markdown = document(&results).markdown();
        for once in ["Pictures of rates:", "Pictures of ratios:", "Packets per CPU second: the same"] {
            assert_eq!(markdown.matches(once).count(), 1, "{once}");
        }
        assert!(!markdown.contains("diamonds"), "{markdown}");
    }

    #[test]
    fn a_part_of_a_run_is_called_that() {
        let results = Results { cut_off: Some("interrupted".to_owned()), ..results() };
        assert!(document(&results).markdown().contains("* cut off: interrupted: what follows is a part of a run"));
    }

    #[test]
    fn promises_are_printed_with_met_and_missed() {
        let table = promises(&results()).table.unwrap();
        let lines: Vec<String> = table.rows.iter().map(|row| row.join(" ")).collect();
        let uns = "srv6d-uN / linux-uN sink on DUT's core 64 packets per second 1.1 1.50 [1.33-2.00] met";
        assert_eq!(lines, [uns], "what was not asked for is left out");
    }

    #[test]
    fn figures_that_mean_nothing_judge_no_promise() {
        let mut results = results();
        results.stamp.add_caution(true);
        let section = promises(&results);
        assert!(section.table.is_none() && section.text.concat().starts_with("No promise is judged"), "{section:?}");
    }

    #[test]
    fn a_promise_with_too_few_pairs_of_turns_has_no_figure() {
        let [dut, beside, size] = ["srv6d-uN", "af_xdp-floor", "64"].map(str::to_owned);
        let pairs = vec![[1.0, 1.0]; FEWEST_PAIRS - 1];
        let turns = vec![TurnsRow { placement: SinkPlacement::OneCore, dut, beside, size, pairs }];
        let section = promises(&Results { turns, ..Results::default() });
        let lines: Vec<String> = section.table.unwrap().rows.iter().map(|row| row.join(" ")).collect();
        let unjudged = "srv6d-uN / af_xdp-floor all on one core 64 packets per second, in turns 0.9 - too few pairs";
        assert_eq!(lines, [unjudged]);
        assert_eq!(section.text.first().unwrap(), "0 met, 0 missed, 1 without a figure.");
        assert!(section.text.last().unwrap().ends_with(&format!("fewer than {FEWEST_PAIRS} pairs decide nothing.")));
    }

    #[test]
    fn a_run_that_others_disturbed_says_so_beside_its_promises() {
        let quiet = results();
        assert_eq!(promises(&quiet).text.first().unwrap(), "1 met, 0 missed, 0 without a figure.");
        assert_eq!(disturbance(&quiet), None);
        let mut disturbed = results();
        for trial in disturbed.floods.iter_mut().flat_map(|row| row.trials.iter_mut().take(1)) {
            trial.counted.stolen = 0.1;
        }
        let text = promises(&disturbed).text;
        assert!(text.last().unwrap().starts_with("Others had the cores in 3 of 9 trials"), "{text:?}");
    }

    #[test]
    fn a_run_that_no_promise_is_about_says_so() {
        let section = promises(&Results { floods: Vec::new(), ..results() });
        assert_eq!((section.table, section.text.len()), (None, 1));
    }

    #[test]
    fn a_load_that_the_generator_did_not_reach_is_shown() {
        let (dut, size) = ("linux-uN".to_owned(), "128".to_owned());
        let place = SinkPlacement::SinkOnDutCore;
        let (placement, offered, latency, loss, part_of) = (place, None, None, 0.0, None);
        let row = LatencyRow { placement, dut, size, load: 90, rate: 5e5, offered, latency, loss, part_of };
        assert_eq!(load(&row), "90 % of NDR or PDR: 500 kpps");
        assert_eq!(load(&LatencyRow { offered: Some(4.9e5), ..row.clone() }), "90 % of NDR or PDR: 500 kpps");
        let short = LatencyRow { offered: Some(3e5), ..row.clone() };
        assert_eq!(load(&short), "90 % of NDR or PDR: 500 kpps (offered 300)");
        // If the run says which search it refers to, that is shown.
        let searched = |accepted_loss, limit| {
            let found = Found { rate: Some(5.6e5), limit, trials: 9, void: 0 };
            let (dut, size) = ("linux-uN".to_owned(), "64".to_owned());
            let part_of = Some(PartOf::of(&SearchRow { placement, dut, size, accepted_loss, found }));
            load(&LatencyRow { part_of, ..row.clone() })
        };
        assert_eq!(searched(NDR, Limit::Loss), "90 % of NDR 64, sink on DUT's core: 500 kpps");
        let bound = "90 % of PDR 64, sink on DUT's core (a lower bound): 500 kpps";
        assert_eq!(searched(0.005, Limit::Generator), bound);
    }

    #[test]
    fn percentiles_stand_beside_the_number_of_their_samples() {
        let (dut, size) = ("linux-uN".to_owned(), "128".to_owned());
        let latency =
            crate::latency::Latency { p50: 1.0, p99: 2.0, p999: 3.0, max: 4.0, samples: 250, histogram: vec![] };
        let placement = SinkPlacement::SinkOnDutCore;
        let (offered, latency, loss, part_of) = (None, Some(latency), 0.0, None);
        let row = LatencyRow { placement, dut, size, load: 10, rate: 5e3, offered, latency, loss, part_of };
        let line = |row: LatencyRow| {
            let section = latencies(&Results { latencies: vec![row], ..Results::default() }).unwrap();
            section.table.unwrap().rows.remove(0).join(" ")
        };
        // With 250 samples there is no p99.9.
        let quiet = line(row.clone());
        assert!(quiet.ends_with("5 kpps 0.0 % 1.0 2.0 - 4.0 250"), "{quiet}");
        let lossy = line(LatencyRow { loss: 0.06, ..row });
        assert!(lossy.ends_with("5 kpps 6.0 % * 1.0 * 2.0 * - 4.0 * 250"), "{lossy}");
    }

    #[test]
    fn a_search_that_ended_at_the_generator_says_so() {
        let found = Found { rate: Some(5e6), limit: Limit::Generator, trials: 9, void: 1 };
        let (dut, size) = ("xdp-redirect".to_owned(), "64".to_owned());
        let row = SearchRow { placement: SinkPlacement::OneCore, dut, size, accepted_loss: NDR, found };
        let section = searches(&Results { searches: vec![row], ..Results::default() }, SinkPlacement::OneCore);
        let line = section.table.unwrap().rows.remove(0).join(" ");
        assert_eq!(line, "xdp-redirect 64 NDR, none lost >= 5.000 the generator fell short: a lower bound 9 (1 void)");
        // A search without a result is not a bound.
        assert_eq!(beyond(&Found { rate: None, ..found }), "the generator fell short");
        // Every trial was disturbed.
        let disturbed = Found { rate: None, limit: Limit::Disturbed, ..found };
        assert_eq!(beyond(&disturbed), "disturbed: others had the cores");
    }
}
