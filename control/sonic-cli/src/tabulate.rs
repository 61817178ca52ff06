//! Formats tables as Python's `tabulate` does in its format `simple`, which SONiC prints.
//!
//! ```text
//! MySID                  Packets    Bytes        a heading is aligned like its column
//! -------------------  ---------  -------        two blanks between columns
//! fcbb:bbbb:1::/48            10     1520        a column that has only numbers is aligned to the right
//! ```
//!
//! No table crate is used: none of them reserves two characters more than a heading has, which makes the columns as
//! wide as SONiC's.

use std::fmt::Write;

/// Alignment of the cells of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Numbers are aligned to the right, text to the left.
    Auto,
    /// All cells are aligned to the right, as in `show interfaces`.
    Right,
    /// All cells are aligned to the left.
    Left,
}

/// A column is at least this many characters wider than its heading.
const MIN_PADDING: usize = 2;

/// A column is at most this many characters wide, so that one long text does not fill every row with blanks. A longer
/// cell goes beyond it.
const WIDEST: usize = 512;

/// A table to which rows are added.
#[derive(Clone, Debug)]
pub struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
    align: Align,
}

impl Table {
    /// Makes a table without rows.
    pub fn new(headings: &[&str], align: Align) -> Self {
        let headings = headings.iter().map(|&heading| heading.to_owned()).collect();
        Self { headings, rows: Vec::new(), align }
    }

    /// Adds a row with one cell per heading. Missing cells are empty.
    pub fn row<I: IntoIterator<Item = S>, S: Into<String>>(&mut self, cells: I) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Returns the text; each line ends with a newline. A table without rows has only its headings.
    pub fn render(&self) -> String {
        let columns: Vec<Column> = (0..self.headings.len()).map(|index| self.column(index)).collect();
        let mut text = String::new();
        let ruler: Vec<String> = columns.iter().map(|column| "-".repeat(column.width)).collect();
        line(&mut text, &columns, &self.headings);
        line(&mut text, &columns, &ruler);
        for row in &self.rows {
            line(&mut text, &columns, row);
        }
        text
    }

    fn column(&self, index: usize) -> Column {
        let cells = || self.rows.iter().map(move |row| row.get(index).map_or("", String::as_str));
        let heading = self.headings.get(index).map_or(0, |heading| heading.chars().count() + MIN_PADDING);
        let longest = cells().map(|cell| cell.chars().count()).max().unwrap_or(0);
        let numeric = !self.rows.is_empty() && cells().all(is_number_or_empty) && cells().any(|cell| !cell.is_empty());
        let right = match self.align {
            Align::Right => true,
            Align::Left => false,
            Align::Auto => numeric,
        };
        Column { width: heading.max(longest).min(WIDEST), right }
    }
}

struct Column {
    width: usize,
    right: bool,
}

/// Whether a cell is a number or empty. An empty cell does not change a column's alignment. A number with a comma
/// between thousands counts as text.
fn is_number_or_empty(cell: &str) -> bool {
    let number = cell.strip_prefix('-').unwrap_or(cell);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    cell.is_empty() || digits(whole) && digits(fraction)
}

fn line(text: &mut String, columns: &[Column], cells: &[String]) {
    let mut line = String::new();
    for (index, column) in columns.iter().enumerate() {
        let cell = cells.get(index).map_or("", String::as_str);
        let width = column.width;
        // Writing to a string cannot fail.
        let _ = if column.right { write!(line, "{cell:>width$}  ") } else { write!(line, "{cell:<width$}  ") };
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_cell_does_not_widen_all_rows() {
        let long = "x".repeat(100_000);
        for align in [Align::Auto, Align::Right] {
            let mut table = Table::new(&["A", "B"], align);
            table.row([long.as_str(), "1"]);
            table.row(["short", "2"]);
            let text = table.render();
            assert!(text.contains(&format!("{long}  ")), "the cell is whole");
            assert!(text.len() < long.len() + 4 * WIDEST, "{}", text.len());
        }
    }

    #[test]
    fn numbers_stand_right_with_their_heading_and_text_left() {
        let mut table = Table::new(&["MySID", "Packets", "Bytes"], Align::Auto);
        table.row(["fcbb:bbbb:1::/48", "10", "1520"]);
        table.row(["fcbb:bbbb:fe28::/48", "0", "0"]);
        let expected = "\
MySID                  Packets    Bytes
-------------------  ---------  -------
fcbb:bbbb:1::/48            10     1520
fcbb:bbbb:fe28::/48          0        0
";
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn one_cell_of_text_makes_a_column_text() {
        let mut table = Table::new(&["Type", "Interval (in ms)", "Status"], Align::Auto);
        table.row(["SRV6_STAT", "default (10000)", "enable"]);
        table.row(["PORT_STAT", "1000", "enable"]);
        let expected = "\
Type       Interval (in ms)    Status
---------  ------------------  --------
SRV6_STAT  default (10000)     enable
PORT_STAT  1000                enable
";
        assert_eq!(table.render(), expected);
        assert!(!is_number_or_empty("1,234") && is_number_or_empty("-1.5") && !is_number_or_empty("40G"));
    }

    #[test]
    fn without_rows_there_are_headings_to_the_left() {
        let table = Table::new(&["SID", "Locator"], Align::Auto);
        assert_eq!(table.render(), "SID    Locator\n-----  ---------\n");
    }

    #[test]
    fn no_line_ends_in_a_blank_and_missing_cells_are_empty() {
        let mut table = Table::new(&["A", "B"], Align::Left);
        table.row(["one"]);
        table.row(["", "2"]);
        assert_eq!(table.render(), "A    B\n---  ---\none\n     2\n");
    }
}
