//! Draws bars with their spread, as SVG.

use std::fmt::Write as _;

use crate::document::{Bar, Chart, Mark, escaped};

const WIDTH: f64 = 960.0;
const PLOT: f64 = 260.0;
/// Space to the left of the plot, for the labels of the axis.
const LEFT: f64 = 64.0;
/// Space above the plot, for the title.
const TOP: f64 = 34.0;
/// Height of one line of group labels below the plot.
const LABEL_LINE: f64 = 16.0;
/// Width of a letter in these labels, if many are capitals.
const LETTER: f64 = 8.0;
const LEGEND_LINE: f64 = 20.0;
const LEGEND_COLUMNS: usize = 4;
/// Width of the sign in front of the text of a legend entry.
const LEGEND_SIGN: f64 = 18.0;
/// Number of colours. The style sheet of the page defines them for light and dark backgrounds.
const COLOURS: usize = 10;

/// Returns the CSS value of a colour.
pub fn colour(number: usize) -> String {
    format!("var(--c{})", number % COLOURS)
}

/// Returns the start of a picture: its size, and a title with the unit.
pub fn opening(title: &str, unit: &str, width: f64, height: f64, left: f64) -> String {
    let title = escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-size=\"13\" role=\"img\">\n\
         <title>{title}</title>\n<text x=\"{left}\" y=\"18\" font-size=\"15\">{title} ({})</text>\n",
        escaped(unit)
    )
}

/// Returns number and width of the columns of a legend, so that the longest text fits.
pub fn legend_columns<'a>(texts: impl IntoIterator<Item = &'a str>, sign: f64, most: usize) -> (usize, f64) {
    let letters = texts.into_iter().map(|text| text.chars().count()).max().unwrap_or(0) as f64;
    let columns = ((WIDTH - LEFT) / (sign + letters * LETTER)) as usize;
    let columns = columns.clamp(1, most);
    (columns, (WIDTH - LEFT) / columns as f64)
}

/// Returns the number of decimal places in the labels of an axis with this upper end; its fifths need as many.
pub fn digits(top: f64) -> usize {
    (1.0 - top.log10().floor()).max(0.0) as usize
}

/// Draws a chart and returns the SVG text.
pub fn bars(chart: &Chart) -> String {
    let series = series(chart);
    let highest = chart.groups.iter().flat_map(|group| &group.bars).map(|bar| bar.high.max(bar.value));
    let top = end_of_axis(highest.fold(0.0, f64::max));
    let group_width = (WIDTH - LEFT) / chart.groups.len().max(1) as f64;
    let letters = (group_width / LETTER) as usize;
    let labels: Vec<Vec<String>> = chart.groups.iter().map(|group| wrapped(&group.label, letters)).collect();
    let label_lines = labels.iter().map(Vec::len).max().unwrap_or(0) as f64;
    let below = TOP + PLOT + 10.0 + label_lines * LABEL_LINE;
    let (columns, column) = legend_columns(series.iter().copied(), LEGEND_SIGN, LEGEND_COLUMNS);
    let legend = series.len().div_ceil(columns) as f64 * LEGEND_LINE;
    let mut out = opening(&chart.title, &chart.unit, WIDTH, below + legend + 8.0, LEFT);
    axis(&mut out, top);
    for (at, (group, label)) in chart.groups.iter().zip(&labels).enumerate() {
        let left = LEFT + at as f64 * group_width;
        let width = group_width * 0.86 / group.bars.len().max(1) as f64;
        for (bar_at, bar) in group.bars.iter().enumerate() {
            let x = left + group_width * 0.07 + bar_at as f64 * width;
            let number = series.iter().position(|&name| name == bar.series).unwrap_or(0);
            draw(&mut out, bar, x, width, top, &colour(number));
        }
        let middle = left + group_width / 2.0;
        for (line, text) in label.iter().enumerate() {
            let y = TOP + PLOT + 17.0 + line as f64 * LABEL_LINE;
            let _ = writeln!(out, "<text x=\"{middle:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", escaped(text));
        }
    }
    key(&mut out, &series, below, (columns, column));
    out.push_str("</svg>");
    out
}

/// Breaks a label into lines of at most this number of letters, at spaces and hyphens.
fn wrapped(label: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in label.split_inclusive([' ', '-']) {
        match lines.last_mut() {
            Some(line) if line.len() + part.trim_end().len() <= letters => line.push_str(part),
            _ => lines.push(part.to_owned()),
        }
    }
    lines
}

/// Returns the names of the series in the order of their first bars.
fn series(chart: &Chart) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for bar in chart.groups.iter().flat_map(|group| &group.bars) {
        if !names.contains(&bar.series.as_str()) {
            names.push(&bar.series);
        }
    }
    names
}

/// Returns the smallest round number that is not below `value`. Round numbers are 1, 2 and 5 times a power of ten.
pub fn ceiling(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|&step| step >= value).unwrap_or(value)
}

/// Returns the upper end of an axis that begins at zero. It is above the value, and its fifths have short labels.
pub(crate) fn end_of_axis(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|&step| step >= value).unwrap_or(value)
}

fn height_of(value: f64, top: f64) -> f64 {
    TOP + PLOT * (1.0 - (value / top).clamp(0.0, 1.0))
}

fn axis(out: &mut String, top: f64) {
    for part in 0..=5 {
        let value = top * f64::from(part) / 5.0;
        let y = height_of(value, top);
        let digits = digits(top);
        let _ = writeln!(
            out,
            "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.digits$}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
}

fn draw(out: &mut String, bar: &Bar, x: f64, width: f64, top: f64, colour: &str) {
    let y = height_of(bar.value, top);
    let middle = x + width / 2.0;
    if bar.mark == Mark::None {
        let (x, y) = (middle + 4.0, TOP + PLOT - 6.0);
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" transform=\"rotate(-90 {x:.1} {y:.1})\" font-size=\"11\">none\
             <title>{}: none</title></text>",
            escaped(&bar.series)
        );
        return;
    }
    let is_bound = matches!(bar.mark, Mark::AtLeast | Mark::LosslessAtLeast);
    let (at_least, paint) = if is_bound {
        ("&gt;= ", format!("class=\"hollow\" stroke=\"{colour}\" stroke-width=\"1.5\" stroke-dasharray=\"4 2\""))
    } else {
        ("", format!("fill=\"{colour}\""))
    };
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" {paint}>\
         <title>{}: {at_least}{:.3} [{:.3}-{:.3}]</title></rect>",
        width * 0.9,
        TOP + PLOT - y,
        escaped(&bar.series),
        bar.value,
        bar.low,
        bar.high
    );
    if bar.high > bar.low {
        let (low, high) = (height_of(bar.low, top), height_of(bar.high, top));
        let _ = writeln!(
            out,
            "<line x1=\"{middle:.1}\" x2=\"{middle:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\" stroke=\"currentColor\"/>"
        );
    }
}

fn key(out: &mut String, series: &[&str], top: f64, (columns, column): (usize, f64)) {
    for (at, name) in series.iter().enumerate() {
        let x = LEFT + (at % columns) as f64 * column;
        let y = top + (at / columns) as f64 * LEGEND_LINE;
        let colour = colour(at);
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x + LEGEND_SIGN,
            y + 10.5,
            escaped(name)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Group;

    #[test]
    fn an_axis_ends_at_a_round_number() {
        for (value, expected) in [(0.83, 1.0), (1.2, 2.0), (4.6, 5.0), (7.0, 10.0), (0.0, 1.0)] {
            assert!((ceiling(value) - expected).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn no_label_of_an_axis_is_rounded() {
        for value in [0.0013, 0.07, 0.3, 0.9, 1.2, 7.0, 13.0, 70.0, 2300.0] {
            let end = end_of_axis(value);
            for part in [1.0, 2.0, 3.0, 4.0, 5.0].map(|part| end * part / 5.0) {
                let label: f64 = format!("{part:.*}", digits(end)).parse().unwrap_or_default();
                assert!((label / part - 1.0).abs() < 1e-9, "{label} at {part}");
            }
        }
        assert_eq!((digits(1.0), digits(50.0)), (1, 0));
    }

    #[test]
    fn bars_leave_little_of_their_picture_empty() {
        for (value, expected) in [(1.06, 1.5), (0.43, 0.5), (1.9, 2.0), (2.4, 2.5), (6.5, 8.0), (0.0, 1.0)] {
            assert!((end_of_axis(value) - expected).abs() < 1e-9, "{value}: {}", end_of_axis(value));
        }
    }

    #[test]
    fn a_label_is_parted_where_that_can_be_done() {
        assert_eq!(wrapped("srv6d-encap.red-offload", 10), ["srv6d-", "encap.red-", "offload"]);
        assert_eq!(wrapped("TCP MTU 1500, 1 flow", 13), ["TCP MTU 1500, ", "1 flow"]);
        assert_eq!(wrapped("linux-uN", 20), ["linux-uN"]);
    }

    #[test]
    fn a_lower_bound_is_hollow_and_what_there_is_not_is_no_bar() {
        let bar = |value, mark| Bar { series: "NDR".to_owned(), value, low: value, high: value, mark };
        let bars = vec![bar(2.0, Mark::AtLeast), bar(0.0, Mark::None), bar(1.0, Mark::Measured)];
        let groups = vec![Group { label: "g".to_owned(), bars }];
        let svg = super::bars(&Chart { title: "t".to_owned(), unit: "u".to_owned(), groups });
        assert!(svg.contains("class=\"hollow\"") && svg.contains("NDR: &gt;= 2.000"), "{svg}");
        assert!(svg.contains(">none<title>NDR: none</title>"), "{svg}");
        // The figure has two bars, and its legend has one sign.
        assert_eq!(svg.matches("<rect").count(), 3, "{svg}");
    }

    #[test]
    fn a_legend_has_as_many_columns_as_its_longest_text_leaves_room_for() {
        let columns = |text: &str| legend_columns(["a", text], 40.0, 3).0;
        assert_eq!(columns("short"), 3);
        let long = "srv6d-encap.red-offload / linux-encap.red";
        assert_eq!(columns(long), 2);
        assert!(legend_columns([long], 40.0, 3).1 > 40.0 + long.len() as f64 * LETTER);
        assert_eq!(columns(&long.repeat(9)), 1);
    }

    #[test]
    fn a_bar_is_as_high_as_its_value_and_the_same_series_has_the_same_colour() {
        let bar = |series: &str, value| Bar {
            series: series.to_owned(),
            value,
            low: value,
            high: value,
            mark: Mark::Measured,
        };
        let group = |bars| Group { label: "g".to_owned(), bars };
        let chart = Chart {
            title: "t".to_owned(),
            unit: "u".to_owned(),
            groups: vec![group(vec![bar("a", 5.0), bar("b", 2.5)]), group(vec![bar("b", 1.0)])],
        };
        let svg = bars(&chart);
        assert!(svg.contains(&format!("height=\"{PLOT:.1}\" fill=\"{}\"", colour(0))), "{svg}");
        assert!(svg.contains(&format!("height=\"{:.1}\" fill=\"{}\"", PLOT / 2.0, colour(1))), "{svg}");
        assert!(svg.contains(&format!("height=\"{:.1}\" fill=\"{}\"", PLOT / 5.0, colour(1))), "{svg}");
    }
}
