//! Draws a heat map as SVG: one row for each thing, one cell for each span of time.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::document::{Tick, escaped};
use crate::svg::opening;

const WIDTH: f64 = 960.0;
/// Space to the left of the cells, for the names of the rows.
const LEFT: f64 = 150.0;
const TOP: f64 = 34.0;
/// Height of a row if there are few of them.
const TALLEST: f64 = 12.0;
/// Height that the rows share if there are many.
const HIGHEST: f64 = 480.0;
/// Smallest height of a row that has a name beside it.
const NAMED: f64 = 9.0;
/// Space below the cells, for ticks, axis and key.
const BELOW: f64 = 76.0;
/// Number of steps of the key.
const STEPS: u32 = 5;

/// A heat map: values from 0 to 1 over rows and columns.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HeatMap {
    /// Title of the map.
    pub title: String,
    /// Meaning of the values.
    pub unit: String,
    /// Label of the horizontal axis.
    pub along: String,
    /// Labels on the horizontal axis. A position is a number of columns.
    pub ticks: Vec<Tick>,
    /// Rows, from top to bottom.
    pub rows: Vec<HeatRow>,
}

/// A row of a heat map.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HeatRow {
    /// Name of the row.
    pub name: String,
    /// Values from 0 to 1, from left to right.
    pub values: Vec<f64>,
}

/// Draws a heat map and returns the SVG text. Equal neighbours are drawn as one cell.
pub fn cells(map: &HeatMap) -> String {
    let columns = map.rows.iter().map(|row| row.values.len()).max().unwrap_or(0).max(1);
    let tall = (HIGHEST / map.rows.len().max(1) as f64).min(TALLEST);
    let wide = (WIDTH - LEFT - 20.0) / columns as f64;
    let bottom = TOP + tall * map.rows.len() as f64;
    let mut out = opening(&map.title, &map.unit, WIDTH, bottom + BELOW, LEFT);
    for (at, row) in map.rows.iter().enumerate() {
        let y = TOP + at as f64 * tall;
        if tall >= NAMED {
            let (x, y) = (LEFT - 6.0, y + tall - 2.0);
            let name = escaped(&row.name);
            let _ = writeln!(out, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\" font-size=\"10\">{name}</text>");
        }
        draw_row(&mut out, row, (y, wide, tall));
    }
    axis(&mut out, map, bottom, wide);
    key(&mut out, bottom + 50.0);
    out.push_str("</svg>");
    out
}

/// Draws a row: one path for each shade, so that the page stays small.
fn draw_row(out: &mut String, row: &HeatRow, (y, wide, tall): (f64, f64, f64)) {
    let shades: Vec<u32> = row.values.iter().map(|&value| percent(value)).collect();
    let mut paths: BTreeMap<u32, String> = BTreeMap::new();
    let mut x = LEFT;
    for run in shades.chunk_by(|one, other| one == other) {
        let width = wide * run.len() as f64;
        if let Some(shade) = run.first().filter(|shade| **shade > 0) {
            let path = paths.entry(*shade).or_default();
            let _ = write!(path, "M{x:.1} {y:.1}h{width:.1}v{tall:.1}h-{width:.1}z");
        }
        x += width;
    }
    let _ = writeln!(out, "<g><title>{}</title>", escaped(&row.name));
    for (shade, path) in paths {
        let _ = writeln!(out, "<path {} d=\"{path}\"/>", paint(shade));
    }
    out.push_str("</g>\n");
}

/// Returns a value in percent, in steps of ten.
fn percent(value: f64) -> u32 {
    (value.clamp(0.0, 1.0) * 10.0).round() as u32 * 10
}

/// Returns the attributes of a cell: the fuller, the less transparent; a full one has a colour of its own.
fn paint(percent: u32) -> String {
    let colour = if percent >= 95 { "var(--c3)" } else { "var(--c0)" };
    format!("fill=\"{colour}\" fill-opacity=\"{:.2}\"", f64::from(percent) / 100.0)
}

fn axis(out: &mut String, map: &HeatMap, bottom: f64, wide: f64) {
    for tick in &map.ticks {
        let (x, y) = (LEFT + tick.at * wide, bottom + 15.0);
        let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>", escaped(&tick.label));
    }
    let (middle, y) = (f64::midpoint(LEFT, WIDTH), bottom + 33.0);
    let _ = writeln!(out, "<text x=\"{middle}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>", escaped(&map.along));
}

fn key(out: &mut String, top: f64) {
    for step in 0..=STEPS {
        let shade = step * 100 / STEPS;
        let x = LEFT + f64::from(step) * 80.0;
        let _ = writeln!(
            out,
            "<rect class=\"rule\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"14\" height=\"12\" {}/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{shade} %</text>",
            paint(shade),
            x + 19.0,
            top + 10.5
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(values: Vec<f64>) -> HeatMap {
        let rows = vec![HeatRow { name: "leaf <0>".to_owned(), values }];
        let ticks = vec![Tick { at: 0.0, label: "0".to_owned() }];
        HeatMap { title: "t".to_owned(), unit: "load".to_owned(), along: "ms".to_owned(), ticks, rows }
    }

    #[test]
    fn equal_neighbours_are_one_cell_and_an_idle_one_is_none() {
        let svg = cells(&map(vec![0.0, 0.5, 0.5, 1.0, 0.5]));
        assert!(svg.contains("<title>leaf &lt;0&gt;</title>"), "{svg}");
        let wide = (WIDTH - LEFT - 20.0) / 5.0;
        let cell = |at: f64, count: f64| {
            let (x, width) = (LEFT + at * wide, count * wide);
            format!("M{x:.1} {TOP:.1}h{width:.1}v{TALLEST:.1}h-{width:.1}z")
        };
        let (half, full) = (cell(1.0, 2.0) + &cell(4.0, 1.0), cell(3.0, 1.0));
        assert!(svg.contains(&format!("fill-opacity=\"0.50\" d=\"{half}\"")), "{half} {svg}");
        assert!(svg.contains(&format!("fill-opacity=\"1.00\" d=\"{full}\"")), "{full} {svg}");
        assert_eq!(svg.matches("<path").count(), 2, "{svg}");
    }

    #[test]
    fn nothing_at_all_is_drawn_as_an_axis() {
        let svg = cells(&HeatMap::default());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
