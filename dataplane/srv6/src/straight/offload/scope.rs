//! Which prefixes a program in front of the workers has to know.
//!
//! It decides by the longest of those it is given. So it is given, in the main table,
//!
//! * all in the block of a SID that shifts, and all around it: a carrier can lead to any of them, and a shift changes
//!   nothing in front of the uSIDs;
//! * all in a steered prefix. What is around it leads elsewhere, and that is the worker's.

use std::collections::{BTreeMap, BTreeSet};

use crate::build::{Entries, Rank, key};
use crate::lpm::{Key, Prefixes, Value};
use crate::model::{Behavior, Desired, LocalSid, TableId};

/// Prefixes there may be. Beyond that those in steered ones are left out, and workers encapsulate: each change would cost
/// what all of them do.
pub const MOST: usize = 1 << 15;

/// By network and length: the meaning that counts.
type Meanings = BTreeMap<(u128, u8), Value>;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Met {
    pub(super) v6: Meanings,
    pub(super) v4: Meanings,
    /// There are more than [`MOST`]: those in steered prefixes are left out.
    pub(super) too_many: bool,
}

/// What is looked for. Nothing, where nobody asks for such a program.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// Upper 32 bits.
    blocks: BTreeSet<u32>,
    steered_v6: Disjoint,
    steered_v4: Disjoint,
}

impl Scope {
    pub(crate) fn of(desired: &Desired) -> Self {
        if desired.offload.is_empty() {
            return Self::default();
        }
        let steers = desired.steers.iter().filter(|steer| steer.table == TableId::MAIN);
        let (v6, v4): (Vec<_>, Vec<_>) = steers.map(|steer| steer.prefix).partition(|prefix| prefix.addr().is_ipv6());
        Self {
            blocks: blocks_of_shifts(desired),
            steered_v6: Disjoint::of(v6.into_iter().map(key)),
            steered_v4: Disjoint::of(v4.into_iter().map(key)),
        }
    }

    /// Of the prefixes of the main table, the first of equal ones in force.
    pub(crate) fn among(&self, [v6, v4]: &[Entries; 2]) -> Met {
        let is_met = |key: Key| self.blocks.iter().any(|&block| meets(key, block));
        let inside = |entries: &Entries, of: &dyn Fn(Key) -> bool| {
            let mut met = Meanings::new();
            for (key, meaning) in entries.iter().filter(|(key, _)| of(*key)) {
                met.entry((key.bits, key.len)).or_insert(meaning.value);
            }
            met
        };
        Met::of(
            inside(v6, &is_met),
            inside(v6, &|key| self.steered_v6.contain(key)),
            inside(v4, &|key| self.steered_v4.contain(key)),
        )
    }

    /// The same, where they are in order.
    pub(crate) fn among_ordered(&self, [v6, v4]: &[Prefixes; 2]) -> Met {
        let around = |&block: &u32| v6.around(Key::new(u128::from(block) << 96, 32));
        let met = self.blocks.iter().flat_map(around).map(place);
        let inside = |prefixes: &Prefixes, of: &Disjoint| -> Meanings {
            of.0.iter()
                .flat_map(|&(bits, len)| prefixes.inside(Key::new(bits, len)))
                .map(place)
                .take(MOST + 1)
                .collect()
        };
        Met::of(met.collect(), inside(v6, &self.steered_v6), inside(v4, &self.steered_v4))
    }
}

impl Met {
    fn of(around_blocks: Meanings, steered: Meanings, v4: Meanings) -> Self {
        let mut v6 = around_blocks.clone();
        v6.extend(steered);
        if v6.len() + v4.len() > MOST {
            return Self { v6: around_blocks, v4: Meanings::new(), too_many: true };
        }
        Self { v6, v4, too_many: false }
    }
}

/// Whether a changed prefix of the main table can be among those.
pub(crate) fn is_met(desired: &Desired, prefixes: &Prefixes, is_v6: bool, changed: Key) -> bool {
    let covering = |len| prefixes.of_rank(Key::new(changed.bits, len), Rank::Steer as u8);
    (0..=changed.len).any(|len| covering(len).is_some())
        || is_v6 && blocks_of_shifts(desired).iter().any(|&block| meets(changed, block))
}

fn place((key, value): (Key, Value)) -> ((u128, u8), Value) {
    ((key.bits, key.len), value)
}

/// Upper 32 bits of the SIDs that shift.
fn blocks_of_shifts(desired: &Desired) -> BTreeSet<u32> {
    let shifts = |sid: &&LocalSid| {
        matches!(sid.behavior, Behavior::End { csid: Some(_), .. } | Behavior::EndX { csid: Some(_), .. })
    };
    desired.sids.iter().filter(shifts).map(|sid| (sid.prefix.network().to_bits() >> 96) as u32).collect()
}

/// A prefix lies in a block, or around it.
fn meets(key: Key, block: u32) -> bool {
    let len = key.len.min(32);
    Key::new(u128::from(block) << 96, len) == Key::new(key.bits, len)
}

/// Prefixes without those that lie in another one, in order.
#[derive(Debug, Default)]
struct Disjoint(Vec<(u128, u8)>);

impl Disjoint {
    fn of(keys: impl Iterator<Item = Key>) -> Self {
        let mut all: Vec<(u128, u8)> = keys.map(|key| (key.bits, key.len)).collect();
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
        let disjoint = Disjoint::of(given.iter().map(|&(bits, len)| prefix(bits, len)));
        assert_eq!(disjoint.0, [(0b0100_0000 << 120, 2), (0b1100_0000 << 120, 3)]);
        for bits in 0..=255_u128 {
            let in_any = given.iter().any(|&(of, len)| bits >> (8 - len) == of >> (8 - len));
            assert_eq!(disjoint.contain(prefix(bits, 8)), in_any, "{bits:08b}");
        }
        assert!(!disjoint.contain(prefix(0b0100_0000, 1)), "that is around one");
    }
}
