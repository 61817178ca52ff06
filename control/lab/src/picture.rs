//! Draws the fabric with letters: a row for each tier, a line for each link.
//!
//! ```text
//!   spine00      [spine01]      spine02
//!      |  . .    /  |  \    . .   |
//!      |    ./      |     \.      |
//!   [leaf00]     leaf01      [leaf02]
//! ```

use std::fmt::Write as _;

use super::screen::{DIM, GOOD};
use super::topology::{Role, Topology};

/// Number of columns of one node.
const CELL: usize = 14;
/// Number of rows between two tiers.
const GAP: usize = 3;

/// One character of the picture.
#[derive(Clone, Copy)]
struct Ink {
    letter: char,
    /// Whether it is on the highlighted path.
    taken: bool,
    /// Whether it belongs to a node and not to a link.
    node: bool,
}

const BLANK: Ink = Ink { letter: ' ', taken: false, node: false };

struct Canvas {
    rows: Vec<Vec<Ink>>,
}

impl Canvas {
    fn put(&mut self, row: usize, column: usize, ink: Ink) {
        // A link that is not highlighted never covers existing characters.
        if let Some(place) = self.rows.get_mut(row).and_then(|cells| cells.get_mut(column))
            && (ink.taken || ink.node || place.letter == ' ')
        {
            *place = ink;
        }
    }

    /// Draws a link from below one node to above another: one letter in each row between them.
    fn link(&mut self, from: (usize, usize), to: (usize, usize), taken: bool) {
        let (rows, left) = (to.0.saturating_sub(from.0), from.1.min(to.1));
        let width = from.1.abs_diff(to.1);
        for step in 1..rows {
            // Distance from the left end, rounded.
            let moved = (width * step * 2 + rows) / (rows * 2);
            let column = if from.1 <= to.1 { left + moved } else { left + width - moved };
            let letter = match (taken, from.1.cmp(&to.1)) {
                (false, std::cmp::Ordering::Equal) => ':',
                (false, _) => '.',
                (true, std::cmp::Ordering::Equal) => '|',
                (true, std::cmp::Ordering::Less) => '\\',
                (true, std::cmp::Ordering::Greater) => '/',
            };
            self.put(from.0 + step, column, Ink { letter, taken, node: false });
        }
    }
}

/// Draws the fabric. The nodes of `path` and the links between them are highlighted.
pub fn draw(topology: &Topology, path: &[&str]) -> String {
    let tiers: Vec<Vec<&str>> = [Role::Spine, Role::Leaf, Role::Host]
        .into_iter()
        .map(|role| topology.tier(role).map(|node| node.name.as_str()).collect())
        .filter(|tier: &Vec<&str>| !tier.is_empty())
        .collect();
    let columns = CELL * tiers.iter().map(Vec::len).max().unwrap_or_default();
    // The tiers have the same distance from each other; nothing is drawn below the last one.
    let tops: Vec<usize> = (0..tiers.len()).map(|tier| tier * (GAP + 1)).collect();
    let height = tops.last().map_or(0, |top| top + 1);
    let mut canvas = Canvas { rows: vec![vec![BLANK; columns]; height] };

    let place = |name: &str| -> Option<(usize, usize)> {
        tiers.iter().zip(&tops).find_map(|(tier, top)| {
            let index = tier.iter().position(|node| *node == name)?;
            Some((*top, index * CELL + CELL / 2))
        })
    };
    for link in topology.links() {
        let [a, b] = &link.ends;
        let (Some(a_place), Some(b_place)) = (place(&a.node), place(&b.node)) else { continue };
        let taken =
            path.windows(2).any(|pair| pair == [a.node.as_str(), &b.node] || pair == [b.node.as_str(), &a.node]);
        canvas.link(a_place.min(b_place), a_place.max(b_place), taken);
    }
    for name in tiers.iter().flatten() {
        let taken = path.contains(name);
        let text = if taken { format!("[{name}]") } else { (*name).to_owned() };
        let Some((row, middle)) = place(name) else { continue };
        for (column, letter) in (middle.saturating_sub(text.len() / 2)..).zip(text.chars()) {
            canvas.put(row, column, Ink { letter, taken, node: true });
        }
    }
    render(&canvas)
}

fn render(canvas: &Canvas) -> String {
    let mut text = String::new();
    for row in &canvas.rows {
        let length = row.iter().rposition(|ink| ink.letter != ' ').map_or(0, |last| last + 1);
        for ink in row.iter().take(length) {
            let _ = match ink {
                Ink { taken: true, letter, .. } => write!(text, "{GOOD}{letter}{GOOD:#}"),
                Ink { node: false, letter, .. } if *letter != ' ' => write!(text, "{DIM}{letter}{DIM:#}"),
                Ink { letter, .. } => write!(text, "{letter}"),
            };
        }
        text.push('\n');
    }
    text
}
