//! Draws results: rates and ratios over the frame size, latencies over their percentiles, and the load of cores.

use crate::cpu::Busy;
use crate::dut::{self, Dut, Forwarder};
use crate::frames::Work;
use crate::layout::SinkPlacement;
use crate::report::{BESIDE, in_order, percent, sizes};
use crate::results::{CoreUse, Figure, LatencyRow, Results, Row, SearchRow};
use crate::search::NDR;
use crate::statistics::Spread;
use srv6d_report::{Bar, Chart, Group, Line, Mark, Plot, Point, Stroke, Tick};

/// Percentiles that are labelled on the horizontal axis of a latency curve.
const PERCENTILES: [(f64, &str); 6] =
    [(0.0, "min"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")];

/// Returns the legend that all pictures of rates have in common.
pub fn legend(results: &Results) -> String {
    let has_ndr = results.searches.iter().any(|row| row.accepted_loss <= NDR && row.found.rate.is_some());
    let diamonds = if has_ndr { ", diamonds the NDR where it was searched (hollow: a lower bound)" } else { "" };
    format!(
        "Pictures of rates: dots are medians, bars go from the lowest to the highest round, hollow triangles are lower bounds \
         (generator or sink was the limit){diamonds}. A colour is a kind of work; a full line is srv6d, dashes and dots its \
         offload, dashes the kernel, dots the bare floor and ceiling. IMIX stands where its mean length does. The axis is \
         logarithmic."
    )
}

/// Returns colour and stroke of a row: the colour shows its work, the stroke its forwarder.
fn looks(name: &str) -> (usize, Stroke) {
    let Some(Dut { forwarder, work, .. }) = dut::named(name) else { return (9, Stroke::Solid) };
    let stroke = match forwarder {
        Forwarder::Linux => Stroke::Dashed,
        Forwarder::Srv6d => Stroke::Solid,
        Forwarder::Srv6dOffload => Stroke::Mixed,
        Forwarder::AfXdpFloor | Forwarder::InTurns | Forwarder::Xdp { .. } => Stroke::Dotted,
    };
    let colour = match (work, forwarder) {
        (Work::Forward, _) => 0,
        (Work::Encapsulate, _) => 1,
        (Work::Shift, _) => 2,
        (Work::Decapsulate, _) => 5,
        (Work::Cross, Forwarder::AfXdpFloor) => 6,
        (Work::Cross, _) => 8,
    };
    (colour, stroke)
}

/// Returns colour and stroke of a ratio: the colour shows the work, the stroke the pair of forwarders. The ratio of the
/// floor to the kernel is no work of srv6d, so it is grey, and its stroke shows the work of the kernel.
fn looks_beside(dut: &str, beside: &str) -> (usize, Stroke) {
    let (of, other) = (dut::named(dut), dut::named(beside));
    let forwarders = of.as_ref().zip(other.as_ref()).map(|(of, other)| (of.forwarder, other.forwarder));
    let is_shift = other.is_some_and(|other| other.work == Work::Shift);
    let stroke = match forwarders {
        Some((Forwarder::Srv6dOffload, Forwarder::Linux)) => Stroke::Mixed,
        Some((Forwarder::AfXdpFloor, _)) if is_shift => Stroke::Dotted,
        Some((Forwarder::Srv6dOffload | Forwarder::AfXdpFloor, _)) => Stroke::Dashed,
        Some((_, Forwarder::AfXdpFloor)) => Stroke::Dotted,
        _ => Stroke::Solid,
    };
    (looks(dut).0, stroke)
}

fn point(x: usize, spread: Spread, factor: f64, mark: Mark) -> Point {
    let Spread { median, low, high, .. } = spread;
    Point { x: x as f64, y: median * factor, low: low * factor, high: high * factor, mark }
}

fn ticks(sizes: &[String]) -> Vec<Tick> {
    sizes.iter().enumerate().map(|(at, size)| Tick { at: at as f64, label: size.clone() }).collect()
}

/// Plots rates over the frame size, with the NDR where it was searched. Returns `None` if no row has a figure.
pub fn rates(results: &Results, placement: SinkPlacement, figure: Figure, title: &str, unit: &str) -> Option<Plot> {
    let rows: Vec<&Row> = results.floods.iter().filter(|row| row.placement == placement).collect();
    let sizes = sizes(&rows);
    let line = |dut: &Dut| {
        let at = |(x, size): (usize, &String)| {
            let row = rows.iter().find(|row| row.dut == dut.name && &row.size == size)?;
            match (row.figure(figure), figure) {
                (Some(spread), _) => Some(point(x, spread, 1e-6, Mark::Measured)),
                (None, Figure::PerSecond) => row.at_least().map(|spread| point(x, spread, 1e-6, Mark::AtLeast)),
                (None, Figure::PerCpuSecond) => None,
            }
        };
        let points: Vec<Point> = sizes.iter().enumerate().filter_map(at).collect();
        let marks = if figure == Figure::PerSecond { lossless(results, placement, dut, &sizes) } else { Vec::new() };
        let (colour, stroke) = looks(dut.name);
        (!points.is_empty()).then(|| Line { name: dut.name.to_owned(), colour, stroke, points, marks })
    };
    let lines: Vec<Line> = dut::ALL.iter().filter_map(line).collect();
    (!lines.is_empty()).then(|| Plot {
        title: title.to_owned(),
        unit: unit.to_owned(),
        along: "frame size in bytes".to_owned(),
        ticks: ticks(&sizes),
        log: true,
        lines,
    })
}

fn lossless(results: &Results, placement: SinkPlacement, dut: &Dut, sizes: &[String]) -> Vec<Point> {
    let of_dut = |row: &&SearchRow| row.placement == placement && row.dut == dut.name && row.accepted_loss <= NDR;
    let mark = |row: &SearchRow| {
        let (x, y) = (sizes.iter().position(|size| size == &row.size)? as f64, row.found.rate? / 1e6);
        let mark = if row.found.is_lower_bound() { Mark::LosslessAtLeast } else { Mark::Lossless };
        Some(Point { x, y, low: y, high: y, mark })
    };
    results.searches.iter().filter(of_dut).filter_map(mark).collect()
}

/// Plots ratios over the frame size, with a line at 1. Returns `None` if no pair of rows has a ratio.
pub fn ratios(results: &Results, placement: SinkPlacement) -> Option<Plot> {
    let rows: Vec<&Row> = results.floods.iter().filter(|row| row.placement == placement).collect();
    let sizes = sizes(&rows);
    let line = |(dut, beside): (&str, &str)| {
        let at = |(x, size): (usize, &String)| {
            let (mine, theirs) = (results.flood(placement, dut, size)?, results.flood(placement, beside, size)?);
            Some(point(x, mine.ratio(theirs, Figure::PerSecond)?, 1.0, Mark::Measured))
        };
        let points: Vec<Point> = sizes.iter().enumerate().filter_map(at).collect();
        let (colour, stroke) = looks_beside(dut, beside);
        let name = format!("{dut} / {beside}");
        (!points.is_empty()).then(|| Line { name, colour, stroke, points, marks: Vec::new() })
    };
    let ends = [0, sizes.len().saturating_sub(1)];
    let one = Spread { median: 1.0, low: 1.0, high: 1.0, count: 1 };
    let equal = Line {
        name: "as fast as the other".to_owned(),
        colour: 8,
        stroke: Stroke::Dashed,
        points: ends.map(|at| point(at, one, 1.0, Mark::None)).to_vec(),
        marks: Vec::new(),
    };
    let lines: Vec<Line> = BESIDE.into_iter().filter_map(line).collect();
    (!lines.is_empty()).then(|| Plot {
        title: format!("Ratios of packets per second, {}", placement.name()),
        unit: "times".to_owned(),
        along: "frame size in bytes".to_owned(),
        ticks: ticks(&sizes),
        log: true,
        lines: lines.into_iter().chain([equal]).collect(),
    })
}

/// Plots for each placement, size and load which share of the packets took at most how long.
pub fn latencies(results: &Results) -> Vec<Plot> {
    let of = |row: &LatencyRow| (row.placement, row.size.clone(), row.load);
    let mut loads: Vec<(SinkPlacement, String, u32)> = Vec::new();
    for row in &results.latencies {
        if !loads.contains(&of(row)) {
            loads.push(of(row));
        }
    }
    let plot = |(placement, size, load): (SinkPlacement, String, u32)| {
        let rows = results.latencies.iter().filter(|row| of(row) == (placement, size.clone(), load));
        let lines: Vec<Line> = rows.filter_map(curve).collect();
        (!lines.is_empty()).then(|| Plot {
            title: format!("Latency of {size} bytes at {load} % of the row's NDR (or PDR), {}", placement.name()),
            unit: "us".to_owned(),
            along: "share of the packets that took no longer".to_owned(),
            ticks: PERCENTILES.map(|(at, label)| Tick { at: nines(at), label: label.to_owned() }).to_vec(),
            log: true,
            lines,
        })
    };
    loads.into_iter().filter_map(plot).collect()
}

/// Returns the number of nines: 1 for 0.9, 2 for 0.99, 3 for 0.999.
fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

fn curve(row: &LatencyRow) -> Option<Line> {
    let furthest = PERCENTILES.iter().map(|&(at, _)| at).fold(0.0, f64::max);
    let latency = row.latency.as_ref()?;
    // Beyond this quantile there is only the slowest packet.
    let furthest = furthest.min(1.0 - 1.0 / latency.samples.max(1) as f64);
    let steps = latency.histogram.iter().filter(|step| step.quantile <= furthest + 1e-9);
    let point = |step: &crate::latency::HistogramStep| Point {
        x: nines(step.quantile),
        y: step.us,
        low: step.us,
        high: step.us,
        mark: Mark::None,
    };
    let points: Vec<Point> = steps.map(point).collect();
    let (colour, stroke) = looks(&row.dut);
    let lost = if row.lost_some() { format!(" ({} lost)", percent(row.loss)) } else { String::new() };
    let name = format!("{}{lost}", row.dut);
    (!points.is_empty()).then(|| Line { name, colour, stroke, points, marks: Vec::new() })
}

/// Draws NDR and PDR of each row side by side.
pub fn searches(results: &Results, placement: SinkPlacement) -> Vec<Chart> {
    let found: Vec<&SearchRow> = results.searches.iter().filter(|row| row.placement == placement).collect();
    let mut sizes: Vec<&str> = found.iter().map(|row| row.size.as_str()).collect();
    in_order(&mut sizes);
    let bar = |row: &SearchRow| {
        let (rate, is_ndr) = (row.found.rate.unwrap_or(0.0) / 1e6, row.accepted_loss <= NDR);
        let series =
            if is_ndr { "NDR, none lost".to_owned() } else { format!("PDR, {:.1} % lost", 100.0 * row.accepted_loss) };
        let mark = match row.found.rate {
            None => Mark::None,
            Some(_) if row.found.is_lower_bound() => Mark::AtLeast,
            Some(_) => Mark::Measured,
        };
        Bar { series, value: rate, low: rate, high: rate, mark }
    };
    let group = |size: &str, dut: &Dut| {
        let rows = found.iter().filter(|row| row.dut == dut.name && row.size == size);
        let bars: Vec<Bar> = rows.map(|row| bar(row)).collect();
        (!bars.is_empty()).then(|| Group { label: dut.name.to_owned(), bars })
    };
    let chart = |size: &str| Chart {
        title: format!("Rates without loss, {size}{}", if size.parse::<u32>().is_ok() { " bytes" } else { "" }),
        unit: "Mpps".to_owned(),
        groups: dut::ALL.iter().filter_map(|dut| group(size, dut)).collect(),
    };
    sizes.into_iter().map(chart).collect()
}

/// Draws how busy each core was at the smallest frame size, with the role of the core.
pub fn cores(results: &Results, placement: SinkPlacement) -> Option<Chart> {
    let rows: Vec<&Row> = results.floods.iter().filter(|row| row.placement == placement).collect();
    let size = sizes(&rows).into_iter().next()?;
    let group = |row: &&Row| {
        let bars = busy(row, |busy| busy.total());
        let bar = |(series, spread): (String, Spread)| {
            let Spread { median: value, low, high, .. } = spread;
            Bar { series, value, low, high, ..Bar::default() }
        };
        Group { label: row.dut.clone(), bars: bars.into_iter().map(bar).collect() }
    };
    let groups: Vec<Group> = rows.iter().filter(|row| row.size == size).map(group).collect();
    groups.iter().any(|group| !group.bars.is_empty()).then(|| Chart {
        title: format!("How busy each core is, {size} bytes, {}", placement.name()),
        unit: "share of the time".to_owned(),
        groups,
    })
}

/// Returns, for each core, a share of the time over all trials of a row.
pub fn busy(row: &Row, which: impl Fn(&Busy) -> f64) -> Vec<(String, Spread)> {
    let Some(first) = row.trials.first() else { return Vec::new() };
    let of = |core: &CoreUse| {
        let same = row.trials.iter().flat_map(|trial| &trial.cores).filter(|other| other.core == core.core);
        Some((core.role.clone(), Spread::of(same.map(|core| which(&core.busy)))?))
    };
    first.cores.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::float_cmp, reason = "a failure is the test's failure")]

    use super::*;
    use crate::latency::{HistogramStep, Latency};
    use crate::results::tests::row;
    use crate::search::{Found, Limit};

    const PLACE: SinkPlacement = SinkPlacement::SinkOnDutCore;

    #[test]
    fn rates_lie_at_their_sizes_and_bounds_and_the_ndr_are_marked() {
        let found = Found { rate: Some(0.7e6), limit: Limit::Loss, trials: 9, void: 0 };
        let (dut, size) = ("srv6d-uN".to_owned(), "1500".to_owned());
        let results = Results {
            floods: vec![
                row(PLACE, "srv6d-uN", "64", &[1e6, 2e6, 4e6]),
                row(PLACE, "srv6d-uN", "1500", &[1e6]),
                row(PLACE, "xdp-redirect", "1500", &[-5e6]),
            ],
            searches: vec![SearchRow { placement: PLACE, dut, size, accepted_loss: NDR, found }],
            ..Results::default()
        };
        let plot = rates(&results, PLACE, Figure::PerSecond, "t", "Mpps").unwrap();
        let [srv6d, redirect] = plot.lines.as_slice() else { unreachable!("{plot:?}") };
        let expected = Point { x: 0.0, y: 2.0, low: 1.0, high: 4.0, mark: Mark::Measured };
        assert_eq!((srv6d.points.len(), srv6d.points.first()), (2, Some(&expected)));
        assert_eq!(srv6d.marks.first().map(|mark| (mark.x, mark.y, mark.mark)), Some((1.0, 0.7, Mark::Lossless)));
        assert_eq!(redirect.points.first().map(|point| (point.y, point.mark)), Some((5.0, Mark::AtLeast)));
    }

    #[test]
    fn a_mix_of_sizes_stands_where_its_mean_length_does() {
        let at = |size, frame| Row { frame, ..row(PLACE, "srv6d-uN", size, &[1e6]) };
        let floods = vec![at("256", 256.0), at("1500", 1500.0), at("IMIX", 380.0), at("9000", 9000.0)];
        let plot = rates(&Results { floods, ..Results::default() }, PLACE, Figure::PerSecond, "t", "Mpps").unwrap();
        let labels: Vec<&str> = plot.ticks.iter().map(|tick| tick.label.as_str()).collect();
        assert_eq!(labels, ["256", "IMIX", "1500", "9000"]);
    }

    #[test]
    fn no_two_ratios_look_the_same() {
        for (at, (dut, beside)) in BESIDE.into_iter().enumerate() {
            for (other, theirs) in BESIDE.into_iter().skip(at + 1) {
                assert_ne!(
                    looks_beside(dut, beside),
                    looks_beside(other, theirs),
                    "{dut} / {beside}, {other} / {theirs}"
                );
            }
        }
    }

    #[test]
    fn a_lower_bound_of_a_search_is_drawn_as_one_and_none_as_none() {
        let search = |accepted_loss, rate, limit| {
            let (dut, size) = ("srv6d-uN".to_owned(), "64".to_owned());
            let found = Found { rate, limit, trials: 9, void: 0 };
            SearchRow { placement: PLACE, dut, size, accepted_loss, found }
        };
        let floods = vec![row(PLACE, "srv6d-uN", "64", &[1e6])];
        let drawn = |ndr| {
            let searches = vec![search(0.005, Some(2e6), Limit::Generator), ndr];
            let results = Results { floods: floods.clone(), searches, ..Results::default() };
            let bars = super::searches(&results, PLACE).remove(0).groups.remove(0).bars;
            let line = rates(&results, PLACE, Figure::PerSecond, "t", "Mpps").unwrap().lines.remove(0);
            let legend = legend(&results).contains("diamonds");
            let marks: Vec<Mark> = line.marks.iter().map(|point| point.mark).collect();
            (bars.iter().map(|bar| bar.mark).collect::<Vec<_>>(), marks, legend)
        };
        let (measured, none, bound) = (Mark::Measured, Mark::None, Mark::AtLeast);
        let lossless = drawn(search(NDR, Some(1e6), Limit::Loss));
        assert_eq!(lossless, (vec![bound, measured], vec![Mark::Lossless], true));
        let limited = drawn(search(NDR, Some(1e6), Limit::Disturbed));
        assert_eq!(limited, (vec![bound, bound], vec![Mark::LosslessAtLeast], true));
        assert_eq!(drawn(search(NDR, None, Limit::Generator)), (vec![bound, none], vec![], false));
    }

    #[test]
    fn each_size_that_was_searched_has_one_picture() {
        let search = |dut: &str, size: &str, accepted_loss, rate| {
            let found = Found { rate: Some(rate), limit: Limit::Loss, trials: 9, void: 0 };
            SearchRow { placement: PLACE, dut: dut.to_owned(), size: size.to_owned(), accepted_loss, found }
        };
        let searches = vec![
            search("srv6d-uN", "64", 0.005, 2e6),
            search("srv6d-uN", "64", NDR, 1e6),
            search("srv6d-uN", "1500", NDR, 1e6),
            search("linux-uN", "64", NDR, 1e6),
            search("linux-uN", "IMIX", NDR, 1e6),
            SearchRow { placement: SinkPlacement::OneCore, ..search("srv6d-uN", "64", NDR, 7e6) },
        ];
        let charts = super::searches(&Results { searches, ..Results::default() }, PLACE);
        let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert_eq!(
            titles,
            ["Rates without loss, 64 bytes", "Rates without loss, IMIX", "Rates without loss, 1500 bytes"]
        );
        let bars = |group: &Group| (group.label.clone(), group.bars.iter().map(|bar| bar.value).collect::<Vec<_>>());
        let groups: Vec<_> = charts.first().unwrap().groups.iter().map(bars).collect();
        assert_eq!(groups, [("linux-uN".to_owned(), vec![1.0]), ("srv6d-uN".to_owned(), vec![2.0, 1.0])]);
    }

    #[test]
    fn a_latency_curve_goes_by_nines() {
        let step = |quantile, us| HistogramStep { quantile, us, count: 1 };
        let histogram = vec![step(0.0, 5.0), step(0.9, 7.0), step(0.999, 9.0), step(1.0, 90.0)];
        let latency = Some(Latency { p50: 6.0, p99: 8.0, p999: 9.0, max: 90.0, samples: 1000, histogram });
        let (dut, size) = ("linux-uN".to_owned(), "128".to_owned());
        let row = LatencyRow {
            placement: PLACE,
            dut,
            size,
            load: 50,
            rate: 1e5,
            offered: None,
            latency,
            loss: 0.06,
            part_of: None,
        };
        let plots = latencies(&Results { latencies: vec![row], ..Results::default() });
        let points = &plots.first().unwrap().lines.first().unwrap().points;
        let rounded: Vec<(f64, f64)> = points.iter().map(|point| (point.x.round(), point.y)).collect();
        assert_eq!(rounded, [(0.0, 5.0), (1.0, 7.0), (3.0, 9.0)]);
        assert_eq!(plots.first().unwrap().lines.first().unwrap().name, "linux-uN (6.0 % lost)");
    }

    #[test]
    fn the_busy_time_of_a_core_is_the_median_of_its_trials() {
        let mut row = row(PLACE, "linux-uN", "64", &[1e6, 2e6, 3e6]);
        for (trial, user) in row.trials.iter_mut().zip([0.1, 0.5, 0.3]) {
            let busy = Busy { user, system: 0.25, interrupts: 0.0 };
            trial.cores = vec![CoreUse { core: 3, role: "worker".to_owned(), busy }];
        }
        let results = Results { floods: vec![row], ..Results::default() };
        let chart = cores(&results, PLACE).unwrap();
        let bar = chart.groups.first().unwrap().bars.first().unwrap();
        assert_eq!((bar.series.as_str(), bar.value, bar.low, bar.high), ("worker", 0.55, 0.35, 0.75));
        assert_eq!(cores(&Results::default(), PLACE), None);
    }
}
