//! Equitable edge colouring of bipartite multigraphs (König; de Werra): flows between leaves are assigned to spines so
//! that the numbers of flows that a leaf sends over any two spines differ by at most one, and likewise for what it
//! receives.
//!
//! Everything rests on one step, which divides a set of items between two colours. On the sending side items are
//! paired: first within their cell (same sender and receiver), then what is left over within their row (same sender),
//! then within their group of rows (same pod); on the receiving side likewise. Every item has at most one partner on
//! either side, so the pairs form paths and even cycles:
//!
//! ```text
//!   item ─ same sender ─ item ─ same receiver ─ item ─ same sender ─ item ─ ...      A B A B ...
//! ```
//!
//! Colours alternate along them. Partners differ, so every cell, row, column and group is split evenly, up to one.
//! An even number of colours is halved by one step, and so on within each half. With an odd number, the step is repeated
//! for every two colours that are uneven somewhere. A step never makes a row or column less even, and makes at least one
//! more even, so the repetition ends; then no two colours differ by more than one anywhere.

/// Items with the same sender and receiver, and how many of them each colour gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Sender and its group; all items of one sender belong to one group.
    pub sender: [usize; 2],
    /// Receiver and its group.
    pub receiver: [usize; 2],
    /// Number of items.
    pub count: u64,
    /// Number of items by colour; filled in by [`colour`].
    pub colours: Vec<u64>,
}

/// Distributes the items of all cells over the colours.
pub(crate) fn colour(cells: &mut [Cell], colours: usize) {
    if colours == 0 {
        return;
    }
    let mut items = Vec::new();
    let mut classes = vec![Vec::new(); colours];
    for (number, cell) in cells.iter_mut().enumerate() {
        // The part of the count that the number of colours divides is spread directly.
        let (each, rest) = (cell.count / colours as u64, cell.count % colours as u64);
        cell.colours = vec![each; colours];
        for extra in 0..rest {
            // The remainder starts as a Latin square: where all cells are alike, this is already the solution.
            let first = (cell.sender[0] + cell.receiver[0] + offset(extra)) % colours;
            if let Some(class) = classes.get_mut(first) {
                class.push(items.len());
            }
            items.push(number);
        }
    }
    Colouring::new(&items, cells).even_out(&mut classes);
    for (colour, class) in classes.iter().enumerate() {
        for cell in class.iter().filter_map(|item| items.get(*item)) {
            if let Some(count) = cells.get_mut(*cell).and_then(|cell| cell.colours.get_mut(colour)) {
                *count += 1;
            }
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "less than the number of colours")]
const fn offset(extra: u64) -> usize {
    extra as usize
}

/// Keys of an item at every level, the finest first: cell, row, group of rows.
type Keys = [usize; 3];

struct Colouring {
    senders: Vec<Keys>,
    receivers: Vec<Keys>,
    /// Largest key of each level, plus one.
    sizes: Keys,
}

const NOBODY: usize = usize::MAX;

#[allow(clippy::indexing_slicing, reason = "every index is an item or a key counted in `new`")]
impl Colouring {
    fn new(items: &[usize], cells: &[Cell]) -> Self {
        let cell = |number: &usize| (*number, &cells[*number]);
        let sender = |(number, cell): (usize, &Cell)| [number, cell.sender[0], cell.sender[1]];
        let receiver = |(number, cell): (usize, &Cell)| [number, cell.receiver[0], cell.receiver[1]];
        let senders: Vec<Keys> = items.iter().map(cell).map(sender).collect();
        let receivers: Vec<Keys> = items.iter().map(cell).map(receiver).collect();
        let mut sizes = [0; 3];
        for keys in senders.iter().chain(&receivers) {
            for (size, key) in sizes.iter_mut().zip(keys) {
                *size = (*size).max(key + 1);
            }
        }
        Self { senders, receivers, sizes }
    }

    /// Makes the colours even, unless they are even already. An even number of colours is halved: what is divided
    /// between two sets of colours as evenly as can be, and within each of them, is even as a whole.
    fn even_out(&self, classes: &mut [Vec<usize>]) {
        if self.is_even(classes) {
            return;
        }
        let half = classes.len() / 2;
        if classes.len() % 2 == 1 {
            self.even_out_pairs(classes);
            return;
        }
        // Items of one cell stand side by side, so that dealing them out in turn gives them different colours.
        let mut items = classes.concat();
        items.sort_unstable();
        let (one, other) = self.deal(&items);
        for (items, half) in [one, other].into_iter().zip(classes.chunks_mut(half)) {
            let colours = half.len();
            half.iter_mut().for_each(Vec::clear);
            for (position, item) in items.into_iter().enumerate() {
                half[position % colours].push(item);
            }
            self.even_out(half);
        }
    }

    /// Returns whether no two colours differ by more than one anywhere.
    fn is_even(&self, classes: &[Vec<usize>]) -> bool {
        let mut range: Option<[Counts; 2]> = None;
        for class in classes {
            let counts = self.count(class);
            match &mut range {
                Some([least, most]) => {
                    least.combine(&counts, usize::min);
                    most.combine(&counts, usize::max);
                }
                None => range = Some([counts.clone(), counts]),
            }
        }
        range.is_none_or(|[least, most]| least.is_even_with(&most))
    }

    fn even_out_pairs(&self, classes: &mut [Vec<usize>]) {
        let mut counts: Vec<Counts> = classes.iter().map(|class| self.count(class)).collect();
        loop {
            let mut changed = false;
            for one in 0..classes.len() {
                for other in one + 1..classes.len() {
                    if counts[one].is_even_with(&counts[other]) {
                        continue;
                    }
                    let both = [classes[one].as_slice(), classes[other].as_slice()].concat();
                    (classes[one], classes[other]) = self.deal(&both);
                    counts[one] = self.count(&classes[one]);
                    counts[other] = self.count(&classes[other]);
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// Divides the items between two colours.
    fn deal(&self, items: &[usize]) -> (Vec<usize>, Vec<usize>) {
        let sides = [self.partners(items, &self.senders), self.partners(items, &self.receivers)];
        let mut dealt = vec![None; items.len()];
        // Paths come first, and each is begun at one of its ends. The items that remain form cycles.
        let ends = (0..items.len()).filter(|item| sides.iter().any(|side| side[*item] == NOBODY));
        for start in ends.chain(0..items.len()) {
            let mut side = usize::from(sides[0][start] == NOBODY);
            let (mut at, mut colour) = (start, true);
            while at != NOBODY && dealt[at].is_none() {
                dealt[at] = Some(colour);
                colour = !colour;
                at = sides[side][at];
                side = 1 - side;
            }
        }
        let of = |colour: bool| {
            let mine = dealt.iter().zip(items).filter(move |(dealt, _)| **dealt == Some(colour));
            mine.map(|(_, item)| *item).collect::<Vec<_>>()
        };
        (of(true), of(false))
    }

    /// Pairs items of the same key: at the finest level first, those left over at the next level.
    fn partners(&self, items: &[usize], side: &[Keys]) -> Vec<usize> {
        let mut partners = vec![NOBODY; items.len()];
        let mut waiting = Vec::new();
        let mut left: Vec<usize> = (0..items.len()).collect();
        for (level, size) in self.sizes.into_iter().enumerate() {
            waiting.clear();
            waiting.resize(size, NOBODY);
            for position in &left {
                let place = &mut waiting[side[items[*position]][level]];
                if *place == NOBODY {
                    *place = *position;
                } else {
                    partners[*position] = *place;
                    partners[*place] = *position;
                    *place = NOBODY;
                }
            }
            left.retain(|position| partners[*position] == NOBODY);
        }
        partners
    }

    fn count(&self, class: &[usize]) -> Counts {
        let [_, rows, groups] = self.sizes;
        let mut counts = Counts { of: [rows, groups, rows, groups].map(|size| vec![0; size]) };
        for item in class {
            let ([_, row, row_group], [_, column, column_group]) = (self.senders[*item], self.receivers[*item]);
            for (level, key) in [row, row_group, column, column_group].into_iter().enumerate() {
                counts.of[level][key] += 1;
            }
        }
        counts
    }
}

/// Items of one colour by row, group of rows, column, and group of columns.
#[derive(Clone)]
struct Counts {
    of: [Vec<usize>; 4],
}

impl Counts {
    fn combine(&mut self, other: &Self, choose: fn(usize, usize) -> usize) {
        for (one, other) in self.of.iter_mut().flatten().zip(other.of.iter().flatten()) {
            *one = choose(*one, *other);
        }
    }

    fn is_even_with(&self, other: &Self) -> bool {
        let pairs = self.of.iter().flatten().zip(other.of.iter().flatten());
        pairs.into_iter().all(|(one, other)| one.abs_diff(*other) <= 1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a test stops at the first surprise")]
    use proptest::prelude::*;

    use super::*;

    fn cells(demand: &[Vec<u64>], groups: &[usize]) -> Vec<Cell> {
        let rows = demand.iter().enumerate();
        rows.flat_map(|(row, counts)| {
            let cells = counts.iter().enumerate().filter(|(_, count)| **count > 0);
            cells.map(move |(column, count)| Cell {
                sender: [row, groups[row]],
                receiver: [column, groups[column]],
                count: *count,
                colours: Vec::new(),
            })
        })
        .collect()
    }

    fn spread(counts: impl Iterator<Item = u64> + Clone) -> u64 {
        counts.clone().max().unwrap_or(0) - counts.min().unwrap_or(0)
    }

    /// Returns whether the items of the cells that `select` picks are distributed evenly over the colours.
    fn even(cells: &[Cell], colours: usize, select: impl Fn(&Cell) -> bool) -> bool {
        let of = |colour: usize| cells.iter().filter(|cell| select(cell)).map(|cell| cell.colours[colour]).sum::<u64>();
        spread((0..colours).map(of)) <= 1
    }

    proptest! {
        #[test]
        fn cells_rows_columns_and_groups_are_even(
            demand in prop::collection::vec(prop::collection::vec(0_u64..9, 7), 7),
            colours in 1_usize..8,
            groups in prop::collection::vec(0_usize..3, 7),
        ) {
            let mut cells = cells(&demand, &groups);
            colour(&mut cells, colours);
            for cell in &cells {
                prop_assert_eq!(cell.colours.iter().sum::<u64>(), cell.count);
                prop_assert!(spread(cell.colours.iter().copied()) <= 1);
            }
            for leaf in 0..7 {
                prop_assert!(even(&cells, colours, |cell| cell.sender[0] == leaf));
                prop_assert!(even(&cells, colours, |cell| cell.receiver[0] == leaf));
                prop_assert!(even(&cells, colours, |cell| cell.sender[1] == leaf));
                prop_assert!(even(&cells, colours, |cell| cell.receiver[1] == leaf));
            }
        }
    }
}
