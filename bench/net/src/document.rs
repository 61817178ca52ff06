//! A report as data, and the forms it takes: JSON, Markdown, HTML with pictures.
//!
//! Whoever has figures of another kind writes the JSON of a [`Document`] and gets the same pages
//! (`bench-net render FILE.json`).

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::svg;

/// A report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Its headline.
    pub title: String,
    /// What a figure is worth nothing without: machine, kernel, versions, command.
    pub stamp: Vec<(String, String)>,
    /// Its parts.
    pub sections: Vec<Section>,
}

/// A part with a heading of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Heading.
    pub heading: String,
    /// Paragraphs before table and pictures.
    #[serde(default)]
    pub text: Vec<String>,
    /// A table, or none.
    #[serde(default)]
    pub table: Option<Table>,
    /// Pictures.
    #[serde(default)]
    pub charts: Vec<Chart>,
}

/// A table. The first column is text, the others are figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Heads of the columns.
    pub columns: Vec<String>,
    /// Rows with a cell per column.
    pub rows: Vec<Vec<String>>,
}

/// Bars in groups, with their spread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Unit of the values.
    pub unit: String,
    /// Groups from left to right.
    pub groups: Vec<Group>,
}

/// Bars side by side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// What they have in common.
    pub label: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// Whose it is; the same name has the same colour in the whole chart.
    pub series: String,
    /// Its height.
    pub value: f64,
    /// Lower end of the spread.
    pub low: f64,
    /// Upper end of the spread.
    pub high: f64,
}

impl Document {
    /// As Markdown. Pictures are left out.
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

    /// As one HTML page that needs nothing else.
    pub fn html(&self) -> String {
        let mut body = format!("<h1>{}</h1>\n<dl>\n", escaped(&self.title));
        for (name, value) in &self.stamp {
            let _ = writeln!(body, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(value));
        }
        body.push_str("</dl>\n");
        for section in &self.sections {
            let _ = writeln!(body, "<h2>{}</h2>", escaped(&section.heading));
            for paragraph in &section.text {
                let _ = writeln!(body, "<p>{}</p>", escaped(paragraph));
            }
            for chart in &section.charts {
                let _ = writeln!(body, "<figure>{}</figure>", svg::bars(chart));
            }
            if let Some(table) = &section.table {
                body.push_str(&table.html());
            }
        }
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n<style>{STYLE}</style>\n\
             <body>\n{body}</body>\n</html>\n",
            escaped(&self.title)
        )
    }
}

const STYLE: &str = "body{font:16px/1.45 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;\
    color:#1b1f24;background:#fff}table{border-collapse:collapse;margin:1rem 0;font-size:.9rem}\
    th,td{padding:.25rem .6rem;border-bottom:1px solid #d0d7de;text-align:right}\
    th:first-child,td:first-child{text-align:left}dl{display:grid;grid-template-columns:max-content 1fr;\
    gap:.2rem 1rem}dt{color:#57606a}dd{margin:0}figure{margin:1rem 0}svg{max-width:100%;height:auto}\
    h2{margin-top:2.5rem}";

impl Table {
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

    fn html(&self) -> String {
        let cells = |row: &[String], tag: &str| -> String {
            row.iter().fold(String::new(), |cells, cell| format!("{cells}<{tag}>{}</{tag}>", escaped(cell)))
        };
        let mut out = format!("<table>\n<tr>{}</tr>\n", cells(&self.columns, "th"));
        for row in &self.rows {
            let _ = writeln!(out, "<tr>{}</tr>", cells(row, "td"));
        }
        out.push_str("</table>\n");
        out
    }
}

/// Text as HTML and SVG want it.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure is the test's failure")]

    use super::*;

    fn document() -> Document {
        let bar = Bar { series: "srv6d <uN>".to_owned(), value: 1.5, low: 1.0, high: 2.0 };
        Document {
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
    fn html_is_escaped_and_has_the_picture() {
        let html = document().html();
        assert!(html.contains("<h1>A &amp; B</h1>") && html.contains("<td>srv6d &lt;uN&gt;</td>"), "{html}");
        assert!(html.contains("<svg") && !html.contains("<uN>"), "{html}");
    }

    #[test]
    fn json_goes_both_ways_and_what_is_left_out_is_empty() {
        let text = serde_json::to_string(&document()).unwrap();
        assert_eq!(serde_json::from_str::<Document>(&text).unwrap(), document());
        let short = r#"{"title": "t", "stamp": [], "sections": [{"heading": "h"}]}"#;
        assert_eq!(serde_json::from_str::<Document>(short).unwrap().sections.first().unwrap().table, None);
    }
}
