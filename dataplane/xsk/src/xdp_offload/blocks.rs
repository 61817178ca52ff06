//! Marks the prefixes that lie in SID blocks, so that a port that guards SIDs can decide by the row alone.

use std::collections::{BTreeMap, BTreeSet};

use srv6d_fib::{PREFIX_IN_SID_SPACE, PrefixRow};

/// Rows by network and prefix length.
type Rows = BTreeMap<(u128, u8), PrefixRow>;

/// Marks every prefix that lies in a block. A block inside a prefix gets a row of its own, which leads to the same target, so
/// that packets to the block can be told from others.
pub(super) fn mark(rows: &mut Rows, blocks: &BTreeSet<(u128, u8)>) {
    for &(block, len) in blocks {
        if let Some(around) = around(rows, block, len) {
            rows.entry((block, len)).or_insert(around);
        }
        let last = block | u128::MAX.checked_shr(len.into()).unwrap_or(0);
        rows.range_mut((block, len)..=(last, 128)).for_each(|(_, row)| row.flags |= PREFIX_IN_SID_SPACE);
    }
}

/// Returns the row with the longest prefix that contains this one.
fn around(rows: &Rows, prefix: u128, len: u8) -> Option<PrefixRow> {
    let mask = |len: u8| u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
    (0..=len).rev().find_map(|len| rows.get(&(prefix & mask(len), len))).copied()
}

#[cfg(test)]
mod tests {
    use srv6d_fib::PREFIX_HAS_TARGET;

    use super::*;

    fn prefix(text: &str, len: u8) -> (u128, u8) {
        (text.parse::<std::net::Ipv6Addr>().map_or(0, std::net::Ipv6Addr::to_bits), len)
    }

    fn row(target: u32, in_sid_space: u32) -> PrefixRow {
        PrefixRow {
            target,
            flags: if in_sid_space == 1 { PREFIX_HAS_TARGET | PREFIX_IN_SID_SPACE } else { PREFIX_HAS_TARGET },
        }
    }

    #[test]
    fn a_block_splits_the_way_it_lies_in_and_marks_all_inside() {
        let mut rows = Rows::from([
            (prefix("2001:db8::", 32), row(1, 0)),
            (prefix("fc00::", 7), row(2, 0)),
            (prefix("fcbb:0:1::", 48), row(3, 0)),
            (prefix("fcbc::", 32), row(4, 0)),
            (prefix("fcbc:0:ffff:ffff:ffff:ffff:ffff:ffff", 128), row(5, 0)),
            (prefix("fcbd::", 32), row(6, 0)),
        ]);
        // The blocks: one with a row of its own, one without, one inside another block, and one that nothing leads to.
        let blocks = [("fcbc::", 32), ("fcbb::", 32), ("fcbb:0:8000::", 33), ("4000::", 3)];
        mark(&mut rows, &blocks.into_iter().map(|(text, len)| prefix(text, len)).collect());
        let expected = Rows::from([
            (prefix("2001:db8::", 32), row(1, 0)),
            (prefix("fc00::", 7), row(2, 0)),
            (prefix("fcbb::", 32), row(2, 1)),
            (prefix("fcbb:0:1::", 48), row(3, 1)),
            (prefix("fcbb:0:8000::", 33), row(2, 1)),
            (prefix("fcbc::", 32), row(4, 1)),
            (prefix("fcbc:0:ffff:ffff:ffff:ffff:ffff:ffff", 128), row(5, 1)),
            (prefix("fcbd::", 32), row(6, 0)),
        ]);
        assert_eq!(rows, expected);
    }

    #[test]
    fn everything_may_be_a_block() {
        let mut rows = Rows::from([(prefix("::", 0), row(1, 0)), (prefix("8000::", 1), row(2, 0))]);
        mark(&mut rows, &BTreeSet::from([(0, 0)]));
        assert!(rows.values().all(|row| row.flags & PREFIX_IN_SID_SPACE != 0) && rows.len() == 2);
    }
}
