//! Draws lines with the spread of each point, as SVG.

use std::fmt::Write as _;

use crate::document::{Line, Mark, Plot, Point, Stroke, escaped};
use crate::svg::{ceiling, colour, digits, end_of_axis, legend_columns, opening};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 320.0;
/// Space to the left of the plot, for the labels of the axis.
const LEFT: f64 = 64.0;
const TOP: f64 = 34.0;
/// Space to the right of the last tick.
const RIGHT: f64 = 36.0;
/// Space below the plot, for the labels of the ticks and of the axis.
const BELOW: f64 = 48.0;
const LEGEND_LINE: f64 = 20.0;
const LEGEND_COLUMNS: usize = 3;
/// Width of the sign in front of the text of a legend entry.
const LEGEND_SIGN: f64 = 40.0;
/// Horizontal distance between the points of one tick, so that their spreads can be distinguished.
const APART: f64 = 4.0;
/// Maximum number of decades on a logarithmic axis.
const DECADES: f64 = 4.0;

/// Mapping of values to positions.
struct Scales {
    left: f64,
    width: f64,
    low: f64,
    high: f64,
    log: bool,
}

impl Scales {
    fn of(plot: &Plot) -> Self {
        let ticks = || plot.ticks.iter().map(|tick| tick.at);
        let (left, right) = (ticks().fold(f64::MAX, f64::min), ticks().fold(f64::MIN, f64::max));
        let points = || plot.lines.iter().flat_map(|line| line.points.iter().chain(&line.marks));
        let highest = points().map(|point| point.high.max(point.y)).fold(0.0, f64::max);
        let lowest = points().map(|point| point.low.min(point.y)).filter(|&low| low > 0.0).fold(f64::MAX, f64::min);
        let (low, high) = if plot.log {
            let high = ceiling(highest);
            let low = floor(lowest.min(high / 2.0)).max(high / 10_f64.powf(DECADES));
            (low.log10(), high.log10())
        } else {
            (0.0, end_of_axis(highest))
        };
        Self { left, width: (right - left).max(1e-9), low, high, log: plot.log }
    }

    fn x(&self, at: f64) -> f64 {
        let room = WIDTH - LEFT - 2.0 * RIGHT;
        LEFT + RIGHT + room * ((at - self.left) / self.width).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        let value = if self.log { value.max(1e-12).log10() } else { value };
        TOP + HEIGHT * (1.0 - ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0))
    }

    /// Returns the values that have a horizontal rule.
    fn rules(&self) -> Vec<f64> {
        if self.log {
            let (low, high) = (self.low.floor() as i32, self.high.ceil() as i32);
            let decades = (low..=high).map(|power| 10_f64.powi(power));
            let steps = decades.flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * power));
            let is_inside = |value: &f64| (self.low - 1e-9..=self.high + 1e-9).contains(&value.log10());
            return steps.filter(is_inside).collect();
        }
        (0..=5).map(|part| self.high * f64::from(part) / 5.0).collect()
    }
}

/// Returns the next round number below: 1, 2 or 5 times a power of ten.
fn floor(value: f64) -> f64 {
    let above = ceiling(value);
    let steps = [1.0, 2.0, 2.5, 4.0, 5.0, 10.0].map(|part| above / part);
    steps.into_iter().find(|&step| step <= value && is_round(step)).unwrap_or(value)
}

fn is_round(value: f64) -> bool {
    (ceiling(value * 0.999) / value - 1.0).abs() < 1e-6
}

/// Draws a plot and returns the SVG text.
pub fn lines(plot: &Plot) -> String {
    let names = plot.lines.iter().map(|line| line.name.as_str());
    let (columns, column) = legend_columns(names, LEGEND_SIGN, LEGEND_COLUMNS);
    let legend = plot.lines.len().div_ceil(columns) as f64 * LEGEND_LINE;
    let height = TOP + HEIGHT + BELOW + legend + 8.0;
    let scales = Scales::of(plot);
    let mut out = opening(&plot.title, &plot.unit, WIDTH, height, LEFT);
    rules(&mut out, plot, &scales);
    for (at, line) in plot.lines.iter().enumerate() {
        let aside = (at as f64 - (plot.lines.len() as f64 - 1.0) / 2.0) * APART;
        draw(&mut out, line, &scales, aside);
    }
    key(&mut out, &plot.lines, (columns, column));
    out.push_str("</svg>");
    out
}

fn rules(out: &mut String, plot: &Plot, scales: &Scales) {
    let bottom = TOP + HEIGHT;
    for value in scales.rules() {
        let y = scales.y(value);
        let digits = if scales.log { (-value.log10().floor()).max(0.0) as usize } else { digits(scales.high) };
        let _ = writeln!(
            out,
            "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.digits$}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    for tick in &plot.ticks {
        let x = scales.x(tick.at);
        let _ = writeln!(
            out,
            "<line class=\"rule\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 17.0,
            escaped(&tick.label)
        );
    }
    let (middle, y) = (f64::midpoint(LEFT, WIDTH), bottom + 35.0);
    let _ = writeln!(out, "<text x=\"{middle}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", escaped(&plot.along));
}

fn draw(out: &mut String, line: &Line, scales: &Scales, aside: f64) {
    let stroke = colour(line.colour);
    // The points of a curve are not moved apart, because they have no signs.
    let beside = |point: &Point| scales.x(point.x) + if point.mark == Mark::None { 0.0 } else { aside };
    let path: Vec<String> =
        line.points.iter().map(|point| format!("{:.1},{:.1}", beside(point), scales.y(point.y))).collect();
    let dash = dashes(line.stroke);
    let path = path.join(" ");
    let _ = writeln!(out, "<polyline points=\"{path}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"1.8\"{dash}/>");
    for point in line.points.iter().chain(&line.marks).filter(|point| point.mark != Mark::None) {
        let (x, y) = (beside(point), scales.y(point.y));
        if point.high > point.low {
            let (low, high) = (scales.y(point.low), scales.y(point.high));
            let _ = writeln!(
                out,
                "<path d=\"M{x:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h6M{:.1} {high:.1}h6\" stroke=\"{stroke}\"/>",
                x - 3.0,
                x - 3.0
            );
        }
        let at_least = if matches!(point.mark, Mark::AtLeast | Mark::LosslessAtLeast) { ">= " } else { "" };
        let said = format!("{}: {at_least}{:.3} [{:.3}-{:.3}]", line.name, point.y, point.low, point.high);
        let _ = writeln!(out, "<g><title>{}</title>{}</g>", escaped(&said), marker(point.mark, x, y, &stroke));
    }
}

fn dashes(stroke: Stroke) -> &'static str {
    match stroke {
        Stroke::Solid => "",
        Stroke::Dashed => " stroke-dasharray=\"7 4\"",
        Stroke::Dotted => " stroke-dasharray=\"2 3\"",
        Stroke::Mixed => " stroke-dasharray=\"9 3 2 3\"",
    }
}

fn marker(mark: Mark, x: f64, y: f64, stroke: &str) -> String {
    match mark {
        Mark::None => String::new(),
        Mark::Measured => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{stroke}\"/>"),
        Mark::AtLeast => format!(
            "<path class=\"hollow\" d=\"M{x:.1} {:.1}l5 9h-10z\" stroke=\"{stroke}\" stroke-width=\"1.5\"/>",
            y - 6.0
        ),
        Mark::Lossless => {
            format!("<path d=\"M{x:.1} {:.1}l5 6l-5 6l-5 -6z\" fill=\"{stroke}\" class=\"edge\"/>", y - 6.0)
        }
        Mark::LosslessAtLeast => format!(
            "<path class=\"hollow\" d=\"M{x:.1} {:.1}l5 6l-5 6l-5 -6z\" stroke=\"{stroke}\" stroke-width=\"1.5\"/>",
            y - 6.0
        ),
    }
}

fn key(out: &mut String, lines: &[Line], (columns, column): (usize, f64)) {
    for (at, line) in lines.iter().enumerate() {
        let x = LEFT + (at % columns) as f64 * column;
        let y = TOP + HEIGHT + BELOW + (at / columns) as f64 * LEGEND_LINE + 6.0;
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{}\" stroke-width=\"2.2\"{}/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x + 34.0,
            colour(line.colour),
            dashes(line.stroke),
            x + LEGEND_SIGN,
            y + 4.0,
            escaped(&line.name)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Tick;

    fn plot(log: bool, points: Vec<Point>) -> Plot {
        let tick = |at, label: &str| Tick { at, label: label.to_owned() };
        Plot {
            title: "t".to_owned(),
            unit: "Mpps".to_owned(),
            along: "bytes".to_owned(),
            ticks: vec![tick(0.0, "64"), tick(1.0, "9000")],
            log,
            lines: vec![Line { name: "a <b>".to_owned(), points, ..Line::default() }],
        }
    }

    fn point(x: f64, y: f64, mark: Mark) -> Point {
        Point { x, y, low: y / 2.0, high: y, mark }
    }

    #[test]
    fn a_point_lies_at_its_tick_and_its_value_with_its_spread() {
        let svg = lines(&plot(false, vec![point(0.0, 5.0, Mark::Measured), point(1.0, 2.5, Mark::AtLeast)]));
        let (left, right, middle) = (LEFT + RIGHT, WIDTH - RIGHT, TOP + HEIGHT / 2.0);
        assert!(svg.contains(&format!("points=\"{left:.1},{TOP:.1} {right:.1},{middle:.1}\"")), "{svg}");
        assert!(svg.contains(&format!("M{left:.1} {middle:.1}V{TOP:.1}")), "{svg}");
        assert!(svg.contains("class=\"hollow\"") && svg.contains("a &lt;b&gt;: 5.000 [2.500-5.000]"), "{svg}");
        assert!(svg.contains("a &lt;b&gt;: &gt;= 2.500 [1.250-2.500]"), "{svg}");
    }

    #[test]
    fn an_axis_from_zero_ends_not_far_above_its_highest_value() {
        for (value, end) in [(217.0, 250.0), (154.0, 200.0), (5.0, 5.0), (10.1, 15.0), (0.0, 1.0), (0.41, 0.5)] {
            assert!((end_of_axis(value) - end).abs() < 1e-9, "{value}: {}", end_of_axis(value));
        }
    }

    #[test]
    fn a_logarithmic_axis_has_its_ends_at_round_numbers() {
        let svg = lines(&plot(true, vec![point(0.0, 0.7, Mark::None), point(1.0, 40.0, Mark::None)]));
        for label in [">0.2<", ">0.5<", ">1<", ">2<", ">5<", ">10<", ">20<", ">50<"] {
            assert!(svg.contains(label), "{label} {svg}");
        }
        assert!(!svg.contains(">0.1<") && !svg.contains(">100<"), "{svg}");
        let small = lines(&plot(true, vec![point(0.0, 0.0006, Mark::None), point(1.0, 1.0, Mark::None)]));
        assert!(small.contains(">0.0002<") && !small.contains(">0.000<"), "{small}");
        for (value, expected) in [(0.35, 0.2), (0.2, 0.2), (4.9, 2.0), (70.0, 50.0), (1.0, 1.0)] {
            assert!((floor(value) / expected - 1.0).abs() < 1e-6, "{value} {}", floor(value));
        }
    }

    #[test]
    fn nothing_at_all_is_drawn_as_axes() {
        for log in [false, true] {
            let svg = lines(&plot(log, Vec::new()));
            assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.contains(">9000<"), "{svg}");
        }
    }
}
