//! A report as data, and its output forms: JSON, Markdown, HTML with pictures.
//!
//! Other programs can write the JSON of a [`Document`] with figures of their own. `bench-net render FILE.json` then
//! makes the same pages from it.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::heat::{self, HeatMap};
use crate::schema::Schema;
use crate::{plot, svg};

/// A report as data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Format of the file.
    #[serde(default)]
    pub schema: Schema,
    /// Headline.
    pub title: String,
    /// Facts without which the figures mean nothing: machine, kernel, versions, command.
    pub stamp: Vec<(String, String)>,
    /// Sections of the report.
    pub sections: Vec<Section>,
}

/// A section of a report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Heading.
    pub heading: String,
    /// Paragraphs before the table and the pictures.
    #[serde(default)]
    pub text: Vec<String>,
    /// Table, if there is one.
    #[serde(default)]
    pub table: Option<Table>,
    /// Bar charts.
    #[serde(default)]
    pub charts: Vec<Chart>,
    /// Line plots, below the bar charts.
    #[serde(default)]
    pub plots: Vec<Plot>,
    /// Heat maps, below the line plots.
    #[serde(default)]
    pub heat_maps: Vec<HeatMap>,
}

/// A table. The first column contains text, the others contain figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Headings of the columns.
    pub columns: Vec<String>,
    /// Rows with one cell per column.
    pub rows: Vec<Vec<String>>,
}

/// A chart of bars in groups, with the spread of each value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Title of the chart.
    pub title: String,
    /// Unit of the values.
    pub unit: String,
    /// Groups, from left to right.
    pub groups: Vec<Group>,
}

/// A group of adjacent bars.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Label of the group.
    pub label: String,
    /// The bars, from left to right.
    pub bars: Vec<Bar>,
}

/// One bar of a chart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// Series of the bar; bars of one series have the same colour in the whole chart.
    pub series: String,
    /// Height of the bar.
    pub value: f64,
    /// Lower end of the spread.
    pub low: f64,
    /// Upper end of the spread.
    pub high: f64,
    /// Meaning of the value: measured, a lower bound (hollow), or no value.
    #[serde(default)]
    pub mark: Mark,
}

/// A plot of lines.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// Title of the plot.
    pub title: String,
    /// Unit of the values.
    pub unit: String,
    /// Label of the horizontal axis.
    pub along: String,
    /// Labels on the horizontal axis; the first and the last are its ends.
    pub ticks: Vec<Tick>,
    /// Whether the vertical axis is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// Lines of the plot.
    pub lines: Vec<Line>,
}

/// A label on the horizontal axis.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    /// Position, in the units of [`Point::x`].
    pub at: f64,
    /// Text of the label.
    pub label: String,
}

/// One line of a plot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Name of the line.
    pub name: String,
    /// Number of its colour. Lines with the same colour belong together.
    #[serde(default)]
    pub colour: usize,
    /// Style of the line.
    #[serde(default)]
    pub stroke: Stroke,
    /// Points of the line, from left to right.
    pub points: Vec<Point>,
    /// Additional points that the line does not connect.
    #[serde(default)]
    pub marks: Vec<Point>,
}

/// Style of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stroke {
    /// Continuous.
    #[default]
    Solid,
    /// Long dashes.
    Dashed,
    /// Dots.
    Dotted,
    /// Dashes and dots in turn.
    Mixed,
}

/// A point with its spread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Position on the horizontal axis.
    pub x: f64,
    /// Position on the vertical axis: the value.
    pub y: f64,
    /// Lower end of the spread.
    pub low: f64,
    /// Upper end of the spread.
    pub high: f64,
    /// Meaning of the value.
    #[serde(default)]
    pub mark: Mark,
}

/// Meaning of a value, and the sign that shows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// Measured: a dot.
    #[default]
    Measured,
    /// A lower bound: a hollow triangle.
    AtLeast,
    /// A rate without packet loss: a diamond.
    Lossless,
    /// A lower bound of a rate without packet loss: a hollow diamond.
    LosslessAtLeast,
    /// No sign: a point of a curve, or a bar without a value.
    None,
}

impl Document {
    /// Returns the report as Markdown, without pictures.
    pub fn markdown(&self) -> String {
        let mut out = format!("# {}\n\n", self.title);
        for (name, value) in &self.stamp {
            let _ = writeln!(out, "* {name}: {value}");
        }
        for section in &self.sections {
            let _ = write!(out, "\n## {}\n", section.heading);
            for paragraph in &section.text {
                let _ = write!(out, "\n{paragraph}\n");
            }
            if let Some(table) = &section.table {
                out.push('\n');
                out.push_str(&table.markdown());
            }
        }
        out
    }

    /// Returns a table of contents, if the page is long enough to need one.
    fn contents(&self) -> String {
        if self.sections.len() < 5 {
            return String::new();
        }
        let link = |(at, section): (usize, &Section)| format!("<a href=\"#s{at}\">{}</a>", escaped(&section.heading));
        format!("<nav>{}</nav>\n", self.sections.iter().enumerate().map(link).collect::<Vec<_>>().join("\n"))
    }

    /// Returns the report as one HTML page that needs no other files.
    pub fn html(&self) -> String {
        let mut body = format!("<h1>{}</h1>\n<dl>\n", escaped(&self.title));
        for (name, value) in &self.stamp {
            let _ = writeln!(body, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(value));
        }
        body.push_str("</dl>\n");
        body.push_str(&self.contents());
        for (at, section) in self.sections.iter().enumerate() {
            let _ = writeln!(body, "<h2 id=\"s{at}\">{}</h2>", escaped(&section.heading));
            for paragraph in &section.text {
                let _ = writeln!(body, "<p>{}</p>", with_code(paragraph));
            }
            for chart in &section.charts {
                let _ = writeln!(body, "<figure>{}</figure>", svg::bars(chart));
            }
            for plot in &section.plots {
                let _ = writeln!(body, "<figure>{}</figure>", plot::lines(plot));
            }
            for map in &section.heat_maps {
                let _ = writeln!(body, "<figure>{}</figure>", heat::cells(map));
            }
            if let Some(table) = &section.table {
                body.push_str(&table.html());
            }
        }
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n<style>{PALETTE}\n{STYLE}</style>\n\
             <body>\n{body}</body>\n</html>\n",
            escaped(&self.title)
        )
    }
}

/// Colours of pages and pictures, for light and dark backgrounds.
const PALETTE: &str = "\
    :root{color-scheme:light dark;--ink:#1b1f24;--faint:#57606a;--rule:#d0d7de;--ground:#fff;\
    --c0:#0072b2;--c1:#c46a00;--c2:#007a5a;--c3:#cf3f00;--c4:#2a9fd6;--c5:#b8578f;--c6:#767676;--c7:#8f7a00;--c8:#1b1f24;\
    --c9:#8c564b}\n\
    @media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--faint:#9ba6b2;--rule:#3a424c;--ground:#0d1117;\
    --c0:#4aa3df;--c1:#e69f00;--c2:#2ec49b;--c3:#ff8a5c;--c4:#8fd0ff;--c5:#e7a3c8;--c6:#a8a8a8;--c7:#f0e442;--c8:#f0f3f6;\
    --c9:#c49a8f}}";

/// Style sheet of the page. Pictures and wide tables are never shrunk so far that they become unreadable; in a narrow
/// window they scroll separately. The colours can be distinguished by colour-blind people (after Okabe and Ito).
const STYLE: &str = "\
    body{font:16px/1.45 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:var(--ink);\
    background:var(--ground)}table{border-collapse:collapse;font-size:.9rem}\
    th,td{padding:.25rem .6rem;border-bottom:1px solid var(--rule);text-align:right}\
    th:first-child,td:first-child,.text{text-align:left}nav{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin-top:1.5rem}\
    a{color:var(--c0)}dl{display:grid;grid-template-columns:max-content minmax(0,1fr);\
    gap:.2rem 1rem;overflow-wrap:anywhere}dt{color:var(--faint)}dd{margin:0}.wide,figure{margin:1rem 0;overflow-x:auto}\
    svg{display:block;width:100%;min-width:44rem;height:auto;fill:currentColor;font-family:system-ui,sans-serif}\
    svg .rule{stroke:var(--rule)}svg .hollow{fill:var(--ground)}svg .edge{stroke:var(--ground)}h2{margin-top:2.5rem}\
    @media(max-width:40rem){th,td{white-space:nowrap}dl{display:block}dd{margin-bottom:.4rem}}";

impl Chart {
    /// Returns the chart as a picture of its own.
    pub fn svg(&self) -> String {
        let style = format!(
            "<style>{PALETTE}\nsvg{{fill:currentColor;color:var(--ink);background:var(--ground);\
             font-family:system-ui,sans-serif}}.rule{{stroke:var(--rule)}}.hollow{{fill:var(--ground)}}</style>\n<title>"
        );
        svg::bars(self).replacen("<title>", &style, 1) + "\n"
    }
}

impl Table {
    /// Formats the table for a terminal, with aligned columns.
    pub fn text(&self) -> String {
        let lines = || std::iter::once(&self.columns).chain(&self.rows);
        let width_of = |at: usize| lines().filter_map(|cells| cells.get(at)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..self.columns.len()).map(|at| width_of(at).unwrap_or(0)).collect();
        let line = |cells: &Vec<String>| {
            let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
        };
        lines().map(line).collect()
    }

    fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut out = line(&self.columns);
        let rules: Vec<&str> = (0..self.columns.len()).map(|at| if at == 0 { "---" } else { "---:" }).collect();
        let _ = writeln!(out, "|{}|", rules.join("|"));
        for row in &self.rows {
            out.push_str(&line(row));
        }
        out
    }

    /// Returns whether the column contains words, which are aligned on the left; numbers are aligned on the right.
    fn is_text(&self, column: usize) -> bool {
        let cells = || self.rows.iter().filter_map(|row| row.get(column));
        let words = cells().filter(|cell| cell.starts_with(char::is_alphabetic)).count();
        2 * words > cells().count()
    }

    fn html(&self) -> String {
        let classes: Vec<&str> =
            (0..self.columns.len()).map(|at| if self.is_text(at) { " class=\"text\"" } else { "" }).collect();
        let cells = |row: &[String], tag: &str| -> String {
            row.iter().enumerate().fold(String::new(), |cells, (at, cell)| {
                let class = classes.get(at).copied().unwrap_or_default();
                format!("{cells}<{tag}{class}>{}</{tag}>", escaped(cell))
            })
        };
        let mut out = format!("<div class=\"wide\"><table>\n<tr>{}</tr>\n", cells(&self.columns, "th"));
        for row in &self.rows {
            let _ = writeln!(out, "<tr>{}</tr>", cells(row, "td"));
        }
        out.push_str("</table></div>\n");
        out
    }
}

/// Returns a paragraph as HTML. Text between backticks is code, as in Markdown.
fn with_code(paragraph: &str) -> String {
    let parts: Vec<&str> = paragraph.split('`').collect();
    let is_paired = parts.len() % 2 == 1;
    let html = parts.into_iter().enumerate().map(|(at, part)| match at % 2 {
        1 if is_paired => format!("<code>{}</code>", escaped(part)),
        _ => escaped(part),
    });
    html.collect::<Vec<_>>().join(if is_paired { "" } else { "`" })
}

/// Escapes text for HTML and SVG.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure is the test's failure")]

    use super::*;

    fn document() -> Document {
        let bar = Bar { series: "srv6d <uN>".to_owned(), value: 1.5, low: 1.0, high: 2.0, mark: Mark::Measured };
        Document {
            schema: Schema::default(),
            title: "A & B".to_owned(),
            stamp: vec![("kernel".to_owned(), "6.18".to_owned())],
            sections: vec![Section {
                heading: "Rates".to_owned(),
                text: vec!["Mpps.".to_owned()],
                table: Some(Table {
                    columns: vec!["row".to_owned(), "64".to_owned()],
                    rows: vec![vec!["srv6d <uN>".to_owned(), "1.50".to_owned()]],
                }),
                charts: vec![Chart {
                    title: "64 bytes".to_owned(),
                    unit: "Mpps".to_owned(),
                    groups: vec![Group { label: "one".to_owned(), bars: vec![bar] }],
                }],
                plots: Vec::new(),
                heat_maps: Vec::new(),
            }],
        }
    }

    #[test]
    fn markdown_is_a_heading_a_stamp_and_a_table() {
        let expected = "# A & B\n\n* kernel: 6.18\n\n## Rates\n\nMpps.\n\n| row | 64 |\n|---|---:|\n\
                        | srv6d <uN> | 1.50 |\n";
        assert_eq!(document().markdown(), expected);
    }

    #[test]
    fn a_terminal_has_columns_below_each_other() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let columns = row(["rows", "64", "promise"]);
        let table = Table { columns, rows: vec![row(["a / b", "1.00 [0.90-1.10]", "met"])] };
        assert_eq!(table.text(), "rows   64                promise\na / b  1.00 [0.90-1.10]  met\n");
    }

    #[test]
    fn html_is_escaped_and_has_the_picture() {
        let html = document().html();
        assert!(
            html.contains("<h1>A &amp; B</h1>")
                && html.contains("<td class=\"text\">srv6d &lt;uN&gt;</td><td>1.50</td>"),
            "{html}"
        );
        assert!(html.contains("<svg") && !html.contains("<uN>"), "{html}");
    }

    #[test]
    fn words_begin_below_each_other_and_numbers_end_there() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = vec![row(["64", "met", "1.00"]), row(["IMIX", "missed", "-"]), row(["1500", "-", "none"])];
        let table = Table { columns: row(["size", "promise", "measured"]), rows };
        assert_eq!([0, 1, 2].map(|column| table.is_text(column)), [false, true, false]);
        assert!(table.html().contains("<th class=\"text\">promise</th><th>measured</th>"), "{}", table.html());
    }

    #[test]
    fn a_long_page_begins_with_what_it_has() {
        assert!(!document().html().contains("<nav>"));
        let section = |number| Section { heading: format!("<{number}>"), ..Section::default() };
        let html = Document { sections: (0..5).map(section).collect(), ..document() }.html();
        assert!(html.contains("<a href=\"#s4\">&lt;4&gt;</a></nav>") && html.contains("<h2 id=\"s4\">"), "{html}");
    }

    #[test]
    fn what_markdown_calls_code_is_code_in_html_too() {
        assert_eq!(with_code("`>=`: a & b (`sendto`)."), "<code>&gt;=</code>: a &amp; b (<code>sendto</code>).");
        assert_eq!(with_code("a lonely ` stays <b>"), "a lonely ` stays &lt;b&gt;");
    }

    /// Each colour has one value for a light background and another for a dark one.
    #[test]
    fn all_colours_are_in_the_style_sheet_twice() {
        let html = document().html();
        for number in 0..10 {
            assert_eq!(html.matches(&format!("--c{number}:")).count(), 2, "{number}");
        }
        assert_eq!(svg::colour(10), svg::colour(0));
    }

    #[test]
    fn a_form_of_another_time_is_refused() {
        let refused = serde_json::from_str::<Document>(r#"{"schema": 7, "title": "t", "stamp": [], "sections": []}"#);
        let why = refused.unwrap_err().to_string();
        assert!(why.starts_with("this is schema 7, and this program reads 1"), "{why}");
    }

    #[test]
    fn json_goes_both_ways_and_what_is_left_out_is_empty() {
        let text = serde_json::to_string(&document()).unwrap();
        assert_eq!(serde_json::from_str::<Document>(&text).unwrap(), document());
        let short = r#"{"title": "t", "stamp": [], "sections": [{"heading": "h"}]}"#;
        assert_eq!(serde_json::from_str::<Document>(short).unwrap().sections.first().unwrap().table, None);
    }
}
