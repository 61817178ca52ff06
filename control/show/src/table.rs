//! Tables without borders, so that the output can be read, cut and grepped.

use comfy_table::{CellAlignment, ContentArrangement, presets};
use srv6d_text::escaped;

/// A table to which rows are added.
pub struct Table(comfy_table::Table);

impl Table {
    /// Makes a table. A heading that begins with `>` makes its column right-aligned, for numbers.
    pub fn new(headings: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(headings.iter().map(|heading| heading.trim_start_matches('>')));
        for (column, heading) in table.column_iter_mut().zip(headings) {
            column.set_padding((0, 2));
            if heading.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Self(table)
    }

    /// Adds a row. A cell is always one line, whatever it contains.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.add_row(cells.into_iter().map(|cell| escaped(&cell)).collect::<Vec<_>>());
    }

    /// Returns the text of the table, or `nothing` if it has no rows.
    pub fn finish(&self, nothing: &str) -> String {
        if self.0.is_empty() {
            return format!("{nothing}\n");
        }
        let lines: Vec<String> = self.0.lines().map(|line| line.trim_end().to_owned()).collect();
        super::lines(&lines)
    }
}
