//! The index of locator blocks, which finds the row of a uSID without a walk down the trie.

use std::collections::{BTreeMap, BTreeSet};

use srv6d_fib::{BLOCKS, BlockRow, PREFIX_IN_TRIE, PrefixRow, USID_PAGES, USIDS_PER_PAGE};

use super::TO_WORKER;

/// Prefix length of a block that can have an index.
const BLOCK: u8 = 32;
/// Prefix length of such a block with one uSID.
const USID: u8 = 48;

/// The rows of one set, by their index in the set.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) blocks: BTreeMap<u32, BlockRow>,
    /// Numbers of pages, by index of the block and the upper half of the uSID.
    pub(super) pages: BTreeMap<u32, u32>,
    /// Rows of uSIDs, by page and the lower half of the uSID.
    pub(super) usids: BTreeMap<u32, PrefixRow>,
}

impl Index {
    /// Makes an index for the first blocks with SIDs that shift. A block with a prefix length between block and uSID
    /// gets none: that prefix would fill thousands of entries.
    pub(super) fn of(rows: &BTreeMap<(u128, u8), PrefixRow>, is_shift: impl Fn(&PrefixRow) -> bool) -> Self {
        let mut index = Self::default();
        let between = rows.keys().filter(|(_, len)| (BLOCK + 1..USID).contains(len));
        let uneven: BTreeSet<u128> = between.map(|&(bits, _)| block(bits)).collect();
        let shifts = rows.iter().filter(|((_, len), row)| *len > BLOCK && is_shift(row));
        let blocks: BTreeSet<u128> =
            shifts.map(|(&(bits, _), _)| block(bits)).filter(|block| !uneven.contains(block)).collect();
        for (number, block) in (0..BLOCKS).zip(blocks) {
            index.add(rows, number, block);
        }
        index
    }

    fn add(&mut self, rows: &BTreeMap<(u128, u8), PrefixRow>, number: u32, block: u128) {
        let first = block << (128 - BLOCK);
        let covering = |len: u8| rows.get(&(first & mask(len), len));
        let row = (0..=BLOCK).rev().find_map(covering).copied().unwrap_or(TO_WORKER);
        let prefix = u32::try_from(block).unwrap_or(0);
        self.blocks.insert(number, BlockRow { prefix, is_used: 1, covering: row });
        let last = first | u128::MAX >> BLOCK;
        for (&(bits, len), row) in rows.range((first, BLOCK + 1)..=(last, 128)).filter(|((_, len), _)| *len > BLOCK) {
            let usid = u32::try_from(bits >> (128 - USID) & 0xffff).unwrap_or(0);
            let at = self.page(number * USID_PAGES + usid / USIDS_PER_PAGE) * USIDS_PER_PAGE + usid % USIDS_PER_PAGE;
            if len > USID {
                self.usids.insert(at, PrefixRow { flags: PREFIX_IN_TRIE, ..PrefixRow::default() });
            } else {
                self.usids.entry(at).or_insert(*row);
            }
        }
    }

    /// Returns the number of the page at this place, which gets the next free one if it has none. Page 0 stays empty.
    fn page(&mut self, at: u32) -> u32 {
        let next = u32::try_from(self.pages.len()).unwrap_or(0) + 1;
        *self.pages.entry(at).or_insert(next)
    }
}

/// Returns the number of pages that these prefixes need at most, the empty one included.
pub(super) fn pages<'p>(prefixes: impl Iterator<Item = &'p (u128, u8)>) -> u32 {
    let of_usids = prefixes.filter(|(_, len)| *len > BLOCK);
    let pages: BTreeSet<u128> = of_usids.map(|(bits, _)| bits >> (128 - BLOCK - 8)).collect();
    u32::try_from(pages.len()).unwrap_or(u32::MAX - 1) + 1
}

fn block(bits: u128) -> u128 {
    bits >> (128 - BLOCK)
}

fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use srv6d_fib::{PREFIX_HAS_TARGET, TARGET_INDEX_BITS, TARGET_SID, TARGET_STEER};

    use super::*;

    fn row(target: u32) -> PrefixRow {
        PrefixRow { target, flags: PREFIX_HAS_TARGET }
    }

    fn prefix(text: &str, len: u8) -> (u128, u8) {
        (text.parse::<std::net::Ipv6Addr>().unwrap().to_bits(), len)
    }

    #[test]
    fn a_usid_leads_where_its_longest_prefix_does() {
        let steered = row((TARGET_STEER << TARGET_INDEX_BITS) + 11);
        let rows = BTreeMap::from([
            // No SID shifts in this block.
            (prefix("2001:db8:1::", 48), steered),
            (prefix("::", 0), row(1)),
            (prefix("fcbb::", 32), row(2)),
            (prefix("fcbb:0:1::", 48), row(3)),
            (prefix("fcbb:0:2::", 48), row(4)),
            (prefix("fcbb:0:2:e001::", 64), row(5)),
            (prefix("fcbb:0:3::", 128), row(6)),
            (prefix("fcbb:0:0::", 48), row(7)),
            (prefix("fcbb:0:4::", 48), steered),
            (prefix("fcbb:0:e001::", 48), row(12)),
            // This block has a prefix between block and uSID, so it is left to the trie.
            (prefix("fcbb:1:100::", 40), row(8)),
            (prefix("fcbb:2:1::", 48), row(9)),
            // This block is one too many.
            (prefix("fcbb:3:1::", 48), row(10)),
        ]);
        let index = Index::of(&rows, |row| row.target >> TARGET_INDEX_BITS == TARGET_SID);
        let blocks: Vec<_> =
            index.blocks.iter().map(|(number, block)| (*number, block.prefix, block.covering.target)).collect();
        assert_eq!(blocks, [(0, 0xfcbb_0000, 2), (1, 0xfcbb_0002, 1)]);
        assert_eq!(index.pages, BTreeMap::from([(0, 1), (0xe0, 2), (USID_PAGES, 3)]));
        let usids: Vec<_> =
            index.usids.iter().map(|(at, row)| (*at, row.flags == PREFIX_IN_TRIE, row.target)).collect();
        let page = USIDS_PER_PAGE;
        let expected = [
            (page, false, 7),
            (page + 1, false, 3),
            (page + 2, true, 0),
            (page + 3, true, 0),
            (page + 4, false, steered.target),
            (2 * page + 1, false, 12),
            (3 * page + 1, false, 9),
        ];
        assert_eq!(usids, expected);
        assert!(pages(rows.keys()) >= 4, "as many as are in use, and the empty one");
    }
}
