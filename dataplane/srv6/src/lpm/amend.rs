//! Applies a changed prefix to the whole table: to the search by length, and to the indexes of the blocks in front of
//! it.

use super::prefixes::{Prefixes, TooMuch, View};
use super::{Key, LONGER_INSIDE, Lpm, MAX_FUNCTION_INDEXES, NONE, UsidIndex, at, direct, lay_over};

impl Lpm {
    /// Updates everything that depends on a prefix. `prefixes` must be those that the table was built from, with
    /// later changes. A table that missed some changes may be amended with their prefixes in any order.
    ///
    /// # Errors
    /// Returns [`TooMuch`] if the table can no longer be used and must be built anew.
    pub fn amend(&mut self, prefixes: &Prefixes, key: Key) -> Result<(), TooMuch> {
        self.len = prefixes.len();
        if prefixes.is_indexed(key) {
            return self.amend_in_block(prefixes, key);
        }
        self.general.amend(prefixes.outside(), key)?;
        for index in &mut self.blocks {
            let first = u128::from(index.block) << 96;
            let covering = self.general.look_up(first);
            if covering != index.covering {
                let mut inside = prefixes.indexed(0).few_inside(Key::new(first, 32))?;
                inside.sort_by_key(|&(key, _)| key);
                *index = UsidIndex::build(index.block, covering, &inside);
            }
        }
        Ok(())
    }

    fn amend_in_block(&mut self, prefixes: &Prefixes, key: Key) -> Result<(), TooMuch> {
        if key.len > 48 {
            self.inside.amend(prefixes.indexed(49), key)?;
        }
        let block = (key.bits >> 96) as u32;
        match self.blocks.iter_mut().find(|index| index.block == block) {
            Some(index) if key.len > 48 => index.amend_behind(prefixes.indexed(49), (key.bits >> 80) as u16),
            Some(index) => index.amend(prefixes.indexed(0), key),
            None => Ok(()),
        }
    }
}

impl UsidIndex {
    /// Updates the index after a change of a prefix of 33 to 48 bits.
    fn amend(&mut self, prefixes: View<'_>, key: Key) -> Result<(), TooMuch> {
        let inside = prefixes.few_inside(key)?;
        let covering = match prefixes.covering(key.bits, key.len) {
            NONE => self.covering,
            covering => covering,
        };
        let first = usize::from((key.bits >> 80) as u16);
        let usids = first..first + (1 << (48 - key.len));
        if let Some(covered) = self.entries.get_mut(usids.clone()) {
            covered.fill(covering);
        }
        lay_over(&mut self.entries, &inside, 48);
        let behind: Vec<u16> = self.functions.iter().map(|&(usid, _)| usid).collect();
        for usid in behind.into_iter().filter(|&usid| usids.contains(&usid.into())) {
            self.amend_behind(prefixes, usid)?;
        }
        Ok(())
    }

    /// Updates the index after a change of a longer prefix behind a uSID.
    fn amend_behind(&mut self, prefixes: View<'_>, usid: u16) -> Result<(), TooMuch> {
        let network = u128::from(self.block) << 96 | u128::from(usid) << 80;
        let mut behind = prefixes.few_inside(Key::new(network, 48))?;
        behind.retain(|(key, _)| key.len > 48);
        behind.sort_by_key(|&(key, _)| key);
        let covering = at(&self.entries, usid) & !LONGER_INSIDE;
        if let Some(entry) = self.entries.get_mut(usize::from(usid)) {
            *entry = covering | if behind.is_empty() { 0 } else { LONGER_INSIDE };
        }
        let known = self.functions.iter().position(|(known, _)| *known == usid);
        match known {
            Some(at) if behind.is_empty() => drop(self.functions.swap_remove(at)),
            Some(at) => {
                if let Some((_, functions)) = self.functions.get_mut(at) {
                    *functions = direct(covering, &behind, 64);
                }
            }
            None if !behind.is_empty() && self.functions.len() < MAX_FUNCTION_INDEXES => {
                self.functions.push((usid, direct(covering, &behind, 64)));
            }
            None => {}
        }
        Ok(())
    }
}
