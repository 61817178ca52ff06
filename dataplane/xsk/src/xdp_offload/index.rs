//! The index of locator blocks, which finds the row of a uSID without a walk down the trie.

use std::collections::{BTreeMap, BTreeSet};

use srv6d_fib::{BLOCKS, BlockRow, PREFIX_IN_TRIE, PrefixRow, USIDS};

use super::TO_WORKER;

/// Prefix length of a block that can have an index.
const BLOCK: u8 = 32;
/// Prefix length of such a block with one uSID.
const USID: u8 = 48;

/// The rows of one set, by their index in the set.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) blocks: BTreeMap<u32, BlockRow>,
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
            let usid = u32::try_from(bits >> (128 - USID) & u128::from(USIDS - 1)).unwrap_or(0);
            let at = number * USIDS + usid;
            if len > USID {
                self.usids.insert(at, PrefixRow { flags: PREFIX_IN_TRIE, ..PrefixRow::default() });
            } else {
                self.usids.entry(at).or_insert(*row);
            }
        }
    }
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
        let usids: Vec<_> =
            index.usids.iter().map(|(at, row)| (*at, row.flags == PREFIX_IN_TRIE, row.target)).collect();
        let expected = [
            (0, false, 7),
            (1, false, 3),
            (2, true, 0),
            (3, true, 0),
            (4, false, steered.target),
            (USIDS + 1, false, 9),
        ];
        assert_eq!(usids, expected);
    }
}
