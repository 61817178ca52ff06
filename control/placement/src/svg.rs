//! Draws link loads as a picture: one panel for each way of choosing paths, one bar per link in descending order of
//! load, and the bound as a line through all panels.

use std::fmt::{self, Write};

use crate::comparison::ChosenPaths;
use crate::ratio::Ratio;
use crate::report::Report;

/// Maximum number of bars of one panel. With more links, one bar stands for several neighbouring links and shows the
/// busiest of them.
const BARS: usize = 128;
/// Size of a panel in pixels.
const PANEL: (f64, f64) = (256.0, 200.0);
const GAP: f64 = 24.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 64.0;

/// Draws the link loads of a report and returns the SVG text.
pub fn svg(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    draw(report, &mut text).ok();
    text
}

fn draw(report: &Report, text: &mut String) -> fmt::Result {
    let comparison = report.comparison;
    let panels = [
        ("placed", &comparison.placed, "#2a7f62"),
        ("hash-based ECMP", &comparison.ecmp, "#c05746"),
        ("Jalapeno /load order", &comparison.load, "#4a6fa5"),
    ];
    let most = panels.iter().map(|(_, outcome, _)| outcome.busiest).max().unwrap_or(Ratio::ZERO).value();
    let most = if most > 0.0 { most } else { 1.0 };
    let width = LEFT + 3.0 * PANEL.0 + 2.0 * GAP + 16.0;
    let height = TOP + PANEL.1 + 44.0;
    writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">"
    )?;
    writeln!(text, "<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>")?;
    let title = format!(
        "Load of {} links, {} flows between {} hosts; lower bound {}",
        comparison.links.len(),
        report.demand.flows.len(),
        report.fabric.hosts().count(),
        short(comparison.bound.value())
    );
    writeln!(text, "<text x=\"{LEFT}\" y=\"22\" font-size=\"15\" fill=\"#222222\">{title}</text>")?;
    let level = |value: f64| TOP + PANEL.1 * (1.0 - value / most);
    for value in ticks(most) {
        let y = level(value);
        writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555555\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            short(value)
        )?;
        writeln!(text, "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"#e4e4e4\"/>", width - 16.0)?;
    }
    let mut x = LEFT;
    for (name, outcome, colour) in panels {
        let over = over_bound(outcome.busiest, comparison.bound);
        let busiest = short(outcome.busiest.value());
        writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{:.1}\" fill=\"{colour}\" font-weight=\"bold\">{name}</text>",
            TOP - 22.0
        )?;
        writeln!(text, "<text x=\"{x:.1}\" y=\"{:.1}\" fill=\"#555555\">busiest {busiest}{over}</text>", TOP - 7.0)?;
        bars(report, outcome, (x, most, colour), text)?;
        writeln!(text, "<path d=\"M{x:.1} {:.1}h{:.1}\" stroke=\"#555555\"/>", TOP + PANEL.1, PANEL.0)?;
        x += PANEL.0 + GAP;
    }
    let bound = level(comparison.bound.value());
    writeln!(text, "<path d=\"M{LEFT} {bound:.1}H{:.1}\" stroke=\"#222222\" stroke-dasharray=\"5 3\"/>", width - 16.0)?;
    let caption = "links, the busiest first; load per capacity; dashed: no placement has less on its busiest link";
    writeln!(text, "<text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#555555\">{caption}</text>", height - 16.0)?;
    writeln!(text, "</svg>")
}

#[allow(clippy::cast_precision_loss, reason = "there are at most 128 bars")]
fn bars(
    report: &Report,
    outcome: &ChosenPaths,
    (left, most, colour): (f64, f64, &str),
    text: &mut String,
) -> fmt::Result {
    let links = &report.comparison.links;
    let mut ratios: Vec<Ratio> = links.iter().map(|link| report.ratio(outcome, *link)).collect();
    ratios.sort_unstable_by(|one, other| other.cmp(one));
    let bars: Vec<Ratio> =
        ratios.chunks(ratios.len().div_ceil(BARS).max(1)).filter_map(|chunk| chunk.first().copied()).collect();
    let width = PANEL.0 / bars.len().max(1) as f64;
    write!(text, "<path fill=\"{colour}\" d=\"")?;
    for (number, ratio) in bars.iter().enumerate() {
        let height = PANEL.1 * ratio.value() / most;
        let x = left + number as f64 * width;
        write!(text, "M{x:.1} {:.1}v{height:.1}h{:.1}v-{height:.1}z", TOP + PANEL.1 - height, width * 0.86)?;
    }
    writeln!(text, "\"/>")
}

fn over_bound(busiest: Ratio, bound: Ratio) -> String {
    if busiest <= bound || bound == Ratio::ZERO {
        ", the bound".to_owned()
    } else {
        format!(", {:.2} times the bound", busiest.value() / bound.value())
    }
}

/// Returns the values of the axis ticks, from 0 upwards in steps of 1, 2 or 5 times a power of ten.
fn ticks(most: f64) -> Vec<f64> {
    let power = 10_f64.powf((most / 4.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|step| most / step <= 5.0);
    let step = step.unwrap_or(most);
    let mut ticks = vec![0.0];
    while ticks.last().is_some_and(|last| last + step <= most) {
        ticks.push(ticks.last().copied().unwrap_or_default() + step);
    }
    ticks
}

/// Formats a value with at most two decimal places.
pub fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(6.0), [0.0, 2.0, 4.0, 6.0]);
        assert_eq!(ticks(1107.0), [0.0, 500.0, 1000.0]);
        assert_eq!(short(992.0), "992");
        assert_eq!(short(0.5), "0.5");
    }
}
