//! Selects the prefixes that the XDP program in front of the workers has to know.
//!
//! The program decides by the longest prefix that it is given. It is given the main table, the tables of the ports and
//! those that SIDs lead to, each as a whole while the whole tables together have no more than [`MOST_WHOLE`] prefixes.
//! When a table does not fit any more, the program is given
//!
//! * of the main table, all prefixes inside the block of a SID that shifts, and all around the block: a carrier can lead
//!   to any of them, and a shift changes nothing in front of the uSIDs;
//! * of the main table and the tables of the ports, all prefixes inside a steered prefix. Packets for prefixes around it
//!   are forwarded by the workers;
//! * with the tc engine, all prefixes inside a SID that decapsulates, and this node's own addresses in the tables that
//!   such SIDs lead to.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use crate::build::{Entries, Rank, key, sid_tables};
use crate::desired::{Behavior, Desired, LocalSid, TableId};
use crate::lpm::{Key, Prefixes, Value};
use crate::tables::{MAIN, VrfIndex};

/// Largest number of prefixes that are selected. If there are more, those inside steered prefixes are left out, and
/// workers encapsulate. The reason for the limit is that every change selects all prefixes anew.
pub const MOST: usize = 1 << 15;

/// Largest number of prefixes of the tables that are selected as a whole. The reason for the limit is that every change
/// selects all of them anew.
pub const MOST_WHOLE: usize = 2048;

/// The value in force, by network and length.
pub(super) type Meanings = BTreeMap<(u128, u8), Value>;

/// The selected prefixes.
#[derive(Debug, Default)]
pub(crate) struct Selected {
    /// IPv6 and IPv4 prefixes, by table.
    pub(super) tables: BTreeMap<VrfIndex, [Meanings; 2]>,
    /// Tables of which all prefixes are selected.
    pub(super) whole: BTreeSet<VrfIndex>,
    /// Whether there are more than [`MOST`] prefixes, so that those inside steered prefixes are left out.
    pub(super) too_many: bool,
}

/// What is selected: prefixes with their surroundings, and whole tables. It is empty unless a port asks for offload.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// Upper 32 bits of the blocks of SIDs that shift.
    blocks: BTreeSet<u32>,
    /// Prefixes, by table, IPv6 and IPv4. All prefixes inside them are selected.
    inside: BTreeMap<VrfIndex, [Disjoint; 2]>,
    /// Tables that are selected as a whole if they are small.
    small: BTreeSet<VrfIndex>,
}

impl Scope {
    pub(crate) fn of(desired: &Desired, vrfs: &BTreeMap<TableId, VrfIndex>) -> Self {
        if desired.offload.is_empty() {
            return Self::default();
        }
        let tables = tables_of_ports(desired);
        let steers = desired.steers.iter().filter(|steer| tables.contains(&steer.table));
        let steered = steers.map(|steer| (steer.table, steer.prefix));
        let mut inside: BTreeMap<TableId, [Vec<(u128, u8)>; 2]> = BTreeMap::new();
        for (table, prefix) in steered.chain(delivered(desired)) {
            let [v6, v4] = inside.entry(table).or_default();
            let Key { bits, len } = key(prefix);
            if prefix.addr().is_ipv6() { v6 } else { v4 }.push((bits, len));
        }
        let of_table =
            |(table, families): (TableId, [Vec<_>; 2])| Some((*vrfs.get(&table)?, families.map(Disjoint::of)));
        Self {
            blocks: blocks_of_shifts(desired),
            inside: inside.into_iter().filter_map(of_table).collect(),
            small: small_tables(desired, vrfs),
        }
    }

    /// Selects among the prefixes of all tables. The first of several equal prefixes is in force.
    pub(crate) fn among(&self, tables: &[[Entries; 2]]) -> Selected {
        let some = |entries: &Entries, of: &dyn Fn(Key) -> bool| {
            let mut selected = Meanings::new();
            for (key, meaning) in entries.iter().filter(|(key, _)| of(*key)) {
                selected.entry((key.bits, key.len)).or_insert(meaning.value);
            }
            selected
        };
        let all = |entries: &Entries| some(entries, &|_| true);
        let inside = |entries: &Entries, whole: &Disjoint| some(entries, &|key| whole.contain(key));
        let is_around = |key: Key| self.blocks.iter().any(|&block| meets(key, block));
        self.select(tables, (Vec::len, all), inside, |v6| some(v6, &is_around))
    }

    /// Selects among prefixes that are in order.
    pub(crate) fn among_ordered(&self, tables: &[[Prefixes; 2]]) -> Selected {
        let all = |prefixes: &Prefixes| -> Meanings {
            prefixes.iter().map(|(key, meaning)| place((key, meaning.value))).collect()
        };
        let inside = |prefixes: &Prefixes, whole: &Disjoint| -> Meanings {
            let all = whole.0.iter().flat_map(|&(bits, len)| prefixes.inside(Key::new(bits, len)));
            all.map(place).take(MOST + 1).collect()
        };
        let around = |v6: &Prefixes| -> Meanings {
            let blocks = self.blocks.iter().map(|&block| Key::new(u128::from(block) << 96, 32));
            blocks.flat_map(|block| v6.around(block)).map(place).collect()
        };
        self.select(tables, (Prefixes::len, all), inside, around)
    }

    /// Selects whole tables while there is room for them. Of other tables, only the most needed prefixes are selected.
    fn select<P>(
        &self,
        tables: &[[P; 2]],
        (len, all): (impl Fn(&P) -> usize, impl Fn(&P) -> Meanings),
        inside: impl Fn(&P, &Disjoint) -> Meanings,
        around: impl Fn(&P) -> Meanings,
    ) -> Selected {
        let mut selected = Selected::default();
        let mut room = MOST_WHOLE;
        for (&vrf, families) in self.small.iter().filter_map(|vrf| Some((vrf, tables.get(usize::from(*vrf))?))) {
            if let Some(rest) = room.checked_sub(families.iter().map(&len).sum()) {
                room = rest;
                selected.whole.insert(vrf);
                selected.tables.insert(vrf, families.each_ref().map(&all));
            }
        }
        let others = |vrf: &VrfIndex| Some(*vrf).filter(|vrf| !selected.whole.contains(vrf));
        let some: BTreeMap<VrfIndex, [Meanings; 2]> = (self.inside.iter())
            .filter_map(|(vrf, [of_v6, of_v4])| {
                let [v6, v4] = tables.get(usize::from(others(vrf)?))?;
                Some((*vrf, [inside(v6, of_v6), inside(v4, of_v4)]))
            })
            .collect();
        let around_blocks = others(&MAIN).and_then(|main| tables.get(usize::from(main))).map(|[v6, _]| around(v6));
        selected.extend(some, around_blocks.unwrap_or_default());
        selected
    }
}

impl Selected {
    /// Adds the prefixes that were selected from tables that are not selected as a whole.
    fn extend(&mut self, some: BTreeMap<VrfIndex, [Meanings; 2]>, around_blocks: Meanings) {
        let inside: usize = some.values().flatten().map(Meanings::len).sum();
        self.too_many = inside + around_blocks.len() > MOST;
        if !self.too_many {
            self.tables.extend(some);
        }
        if !around_blocks.is_empty() {
            let [v6, _] = self.tables.entry(MAIN).or_default();
            v6.extend(around_blocks);
        }
    }
}

/// Returns true if a changed prefix of a table can be among the selected ones, or can be now. `whole` are the tables of which
/// all prefixes were selected before the change.
pub(crate) fn is_selected(
    (desired, vrfs): (&Desired, &BTreeMap<TableId, VrfIndex>),
    whole: &BTreeSet<VrfIndex>,
    prefixes: &[Prefixes; 2],
    (vrf, is_v6, changed): (VrfIndex, bool, Key),
) -> bool {
    let [v6, v4] = prefixes;
    let is_small = || v6.len() + v4.len() <= MOST_WHOLE && small_tables(desired, vrfs).contains(&vrf);
    if whole.contains(&vrf) || is_small() {
        return true;
    }
    let prefixes = if is_v6 { v6 } else { v4 };
    let ranks = if desired.has_tc_engine() { [Rank::Steer, Rank::Sid].as_slice() } else { &[Rank::Steer] };
    let is_covered = |len| {
        let covering = Key::new(changed.bits, len);
        ranks.iter().any(|&rank| prefixes.of_rank(covering, rank as u8).is_some())
    };
    (0..=changed.len).any(is_covered)
        || vrf == MAIN && is_v6 && blocks_of_shifts(desired).iter().any(|&block| meets(changed, block))
}

fn place((key, value): (Key, Value)) -> ((u128, u8), Value) {
    ((key.bits, key.len), value)
}

/// Returns the tables of the ports that ask for the program, and the main table.
fn tables_of_ports(desired: &Desired) -> BTreeSet<TableId> {
    let ports = desired.offload.iter().filter_map(|port| desired.ports.get(usize::from(port.0)));
    ports.map(|port| port.table).chain([TableId::MAIN]).collect()
}

/// Returns the tables that packets are looked up in: those of ports, the main one, and those that SIDs lead to.
fn small_tables(desired: &Desired, vrfs: &BTreeMap<TableId, VrfIndex>) -> BTreeSet<VrfIndex> {
    let tables = tables_of_ports(desired).into_iter().chain(desired.sids.iter().filter_map(table_inside));
    tables.filter_map(|table| vrfs.get(&table).copied()).collect()
}

/// Returns the table that a SID which decapsulates leads to.
fn table_inside(sid: &LocalSid) -> Option<TableId> {
    match sid.behavior {
        Behavior::EndDt { table, .. } => Some(table),
        _ => None,
    }
}

/// Returns the SIDs that decapsulate, by the tables that they are looked up in, and the addresses of this node in the
/// tables that they lead to; nothing without the tc engine.
fn delivered(desired: &Desired) -> impl Iterator<Item = (TableId, IpNet)> {
    let sids = desired.sids.iter().filter(|_| desired.has_tc_engine());
    let (outer, inner): (Vec<_>, BTreeSet<TableId>) =
        sids.filter_map(|sid| Some((IpNet::V6(sid.prefix), table_inside(sid)?))).unzip();
    let own = desired.local_addresses.iter().filter(move |(table, _)| inner.contains(table));
    let looked_up_in = sid_tables(desired);
    let sids = outer.into_iter().flat_map(move |sid| looked_up_in.clone().into_iter().map(move |table| (table, sid)));
    sids.chain(own.map(|&(table, address)| (table, IpNet::from(address))))
}

/// Returns the upper 32 bits of the SIDs that shift.
fn blocks_of_shifts(desired: &Desired) -> BTreeSet<u32> {
    let shifts = |sid: &&LocalSid| {
        matches!(sid.behavior, Behavior::End { csid: Some(_), .. } | Behavior::EndX { csid: Some(_), .. })
    };
    desired.sids.iter().filter(shifts).map(|sid| (sid.prefix.network().to_bits() >> 96) as u32).collect()
}

/// Returns true if a prefix lies inside a block or around it.
fn meets(key: Key, block: u32) -> bool {
    let len = key.len.min(32);
    Key::new(u128::from(block) << 96, len) == Key::new(key.bits, len)
}

/// Prefixes in order, without those that lie inside another one.
#[derive(Debug, Default)]
struct Disjoint(Vec<(u128, u8)>);

impl Disjoint {
    fn of(mut all: Vec<(u128, u8)>) -> Self {
        all.sort_unstable();
        all.dedup_by(|&mut (bits, _), &mut (outer, len)| Key::new(bits, len).bits == outer);
        Self(all)
    }

    fn contain(&self, key: Key) -> bool {
        let behind = self.0.partition_point(|&place| place <= (key.bits, key.len));
        let before = behind.checked_sub(1).and_then(|at| self.0.get(at));
        before.is_some_and(|&(bits, len)| Key::new(key.bits, len).bits == bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outermost_prefixes_contain_what_any_of_them_does() {
        let prefix = |bits: u128, len| Key::new(bits << 120, len);
        let given = [(0b0100_0000, 2), (0b0100_0000, 4), (0b0111_0000, 4), (0b1100_0000, 4), (0b1100_0000, 3)];
        let disjoint = Disjoint::of(given.iter().map(|&(bits, len)| (prefix(bits, len).bits, len)).collect());
        assert_eq!(disjoint.0, [(0b0100_0000 << 120, 2), (0b1100_0000 << 120, 3)]);
        for bits in 0..=255_u128 {
            let in_any = given.iter().any(|&(of, len)| bits >> (8 - len) == of >> (8 - len));
            assert_eq!(disjoint.contain(prefix(bits, 8)), in_any, "{bits:08b}");
        }
        assert!(!disjoint.contain(prefix(0b0100_0000, 1)), "that is around one");
    }
}
