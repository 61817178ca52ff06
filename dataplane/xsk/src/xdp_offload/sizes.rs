//! The sizes of the maps: as large as the tables need, so that a small node takes little of the kernel's memory.

use std::collections::{BTreeMap, BTreeSet};

use srv6d_fib::{
    COUNTED_HOPS, COUNTED_PATHS, DEVICES, Forwarding, GROUPS, HOPS, MAIN_TABLE, MEMBERS, PATHS, PATTERNS, PORTS, SIDS,
    STEERS, USIDS, USIDS_PER_PAGE,
};

use super::index;

/// Maps that grow, each with the fewest and the most rows that it has. The fewest suffice for a node of a lab.
const MAPS: [(&str, u32, u32); 21] = [
    ("ports", 16, PORTS),
    ("usids", 8 * USIDS_PER_PAGE, USIDS),
    ("sids", 64, SIDS),
    ("steers", 256, STEERS),
    ("steer_members", 256, MEMBERS),
    ("steer_patterns", 4, PATTERNS),
    ("paths", 256, PATHS),
    ("srhs", 16, PATHS),
    ("groups", 256, GROUPS),
    ("group_members", 256, MEMBERS),
    ("group_patterns", 4, PATTERNS),
    ("hops", 64, HOPS),
    ("devices", 32, DEVICES),
    ("sid_counts", 64, SIDS),
    ("path_counts", 256, COUNTED_PATHS),
    ("hop_counts", 64, COUNTED_HOPS),
    ("rx_counts", 16, PORTS),
    ("tx_counts", 16, PORTS),
    ("vlans", 16, DEVICES),
    ("vlan_rx_counts", 16, DEVICES),
    ("vlan_tx_counts", 16, DEVICES),
];

/// Number of rows of each map, of one generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(BTreeMap<&'static str, u32>);

impl Sizes {
    /// Returns the largest sizes that maps may have.
    pub fn largest() -> Self {
        Self(MAPS.into_iter().map(|(name, _, most)| (name, most)).collect())
    }

    /// Returns sizes with room for these tables, and for some more rows: each size is a power of two. `devices` is the
    /// number of devices that have a number in the program, `vlans` that of counters of VLANs. Rows above the limits have no
    /// room.
    pub fn of(forwarding: &Forwarding, devices: usize, vlans: usize) -> Self {
        let needed = needed(forwarding, devices, vlans);
        let rows = |(name, fewest, most): (&'static str, u32, u32)| {
            let needs = needed.get(name).copied().unwrap_or(0).min(most);
            (name, needs.next_power_of_two().clamp(fewest, most))
        };
        Self(MAPS.into_iter().map(rows).collect())
    }

    /// Returns whether every map is at least as large as with the other sizes.
    pub fn contain(&self, other: &Self) -> bool {
        other.0.iter().all(|(name, rows)| self.0.get(name).is_some_and(|own| own >= rows))
    }

    /// Returns the larger size of each map.
    #[must_use]
    pub fn joined(&self, other: &Self) -> Self {
        let larger = |(name, rows): (&&'static str, &u32)| (*name, other.0.get(name).map_or(*rows, |of| *of.max(rows)));
        Self(self.0.iter().map(larger).collect())
    }

    /// Returns each map with the number of its entries.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let generations = |name: &str| if name.ends_with("_counts") { 1 } else { 2 };
        self.0.iter().map(move |(name, rows)| (*name, generations(name) * rows))
    }
}

/// Returns the number of rows that these tables need in each map. It may be above the limits.
fn needed(forwarding: &Forwarding, devices: usize, vlans: usize) -> BTreeMap<&'static str, u32> {
    let behind = |last: Option<u32>| last.map_or(0, |last| last.saturating_add(1));
    let Forwarding { sids, steers, steer_members, steer_patterns, paths, srhs, .. } = forwarding;
    let Forwarding { groups, group_members, group_patterns, hops, tables, .. } = forwarding;
    let in_main = tables.get(&MAIN_TABLE).map(|[v6, _]| v6).into_iter().flatten();
    let shifts = in_main.clone().filter(|(_, target)| super::is_shift(forwarding, **target));
    let blocks: BTreeSet<u128> = shifts.map(|((bits, _), _)| bits >> 96).collect();
    let of_blocks = in_main.map(|(prefix, _)| prefix).filter(|(bits, _)| blocks.contains(&(bits >> 96)));
    let [numbers, vlans] = [devices, vlans].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    BTreeMap::from([
        ("ports", numbers),
        ("usids", index::pages(of_blocks).saturating_mul(USIDS_PER_PAGE)),
        ("sids", behind(last(sids))),
        ("steers", behind(last(steers))),
        ("steer_members", behind(last(steer_members))),
        ("steer_patterns", behind(last(steer_patterns))),
        ("paths", behind(last(paths))),
        ("srhs", behind(last(srhs))),
        ("groups", behind(last(groups))),
        ("group_members", behind(last(group_members))),
        ("group_patterns", behind(last(group_patterns))),
        ("hops", behind(last(hops))),
        ("devices", behind(hops.values().map(|hop| hop.port.into()).max())),
        ("sid_counts", behind(sids.values().map(|sid| sid.slot).filter(|&slot| slot < SIDS).max())),
        ("path_counts", behind(paths.values().map(|path| path.slot).filter(|&slot| slot < COUNTED_PATHS).max())),
        ("hop_counts", behind(hops.values().map(|hop| hop.slot).filter(|&slot| slot < COUNTED_HOPS).max())),
        ("rx_counts", numbers),
        ("tx_counts", numbers),
        ("vlans", vlans),
        ("vlan_rx_counts", vlans),
        ("vlan_tx_counts", vlans),
    ])
}

fn last<R>(rows: &BTreeMap<u32, R>) -> Option<u32> {
    rows.last_key_value().map(|(number, _)| *number)
}

#[cfg(test)]
mod tests {
    use srv6d_fib::{BLOCKS, HopRow, SidKind, SidRow, TARGET_INDEX_BITS, TARGET_ROUTE, TARGET_SID};

    use super::*;

    #[test]
    fn maps_are_as_large_as_the_tables_need_and_never_larger_than_they_may_be() {
        let small = Sizes::of(&Forwarding::default(), 3, 0);
        assert!(MAPS.into_iter().all(|(name, fewest, _)| small.0.get(name) == Some(&fewest)));
        let some = Forwarding {
            sids: [(200, SidRow { slot: 70, ..SidRow::default() })].into(),
            hops: [(63, HopRow { slot: 3, port: 32, ..HopRow::default() })].into(),
            ..Forwarding::default()
        };
        let grown = Sizes::of(&some, 17, 33);
        let rows = |name| grown.0.get(name).copied().unwrap_or_default();
        assert_eq!(["sids", "sid_counts", "hops", "devices", "ports", "vlans"].map(rows), [256, 128, 64, 64, 32, 64]);
        assert!(grown.contain(&small) && !small.contain(&grown) && Sizes::largest().contain(&grown));
        assert_eq!(small.joined(&grown), grown);
        let too_many = Forwarding { sids: [(u32::MAX, SidRow::default())].into(), ..Forwarding::default() };
        assert_eq!(Sizes::of(&too_many, 1 << 20, 1 << 20).0.get("sids"), Some(&SIDS));
    }

    #[test]
    fn the_pages_of_a_block_are_among_the_usids() {
        let usid = |usid: u128| (0xfcbb << 112 | usid << 80, 48);
        let sids = [(0, SidRow { kind: SidKind::Shift, ..SidRow::default() })].into();
        let other = ((0x2001_0db8 << 96, 48), TARGET_ROUTE << TARGET_INDEX_BITS);
        let v6 = (0..9).map(|page| (usid(page << 8), TARGET_SID << TARGET_INDEX_BITS)).chain([other]).collect();
        let tables = [(MAIN_TABLE, [v6, BTreeMap::new()])].into();
        let forwarding = Forwarding { tables, sids, ..Forwarding::default() };
        assert_eq!(Sizes::of(&forwarding, 1, 0).0.get("usids"), Some(&(16 * USIDS_PER_PAGE)));
        assert_eq!(USIDS, (BLOCKS * 256 + 1) * USIDS_PER_PAGE);
    }
}
