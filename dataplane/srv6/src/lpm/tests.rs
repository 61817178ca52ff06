//! The compiled form against a search through all prefixes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failed test may panic")]

use super::*;
use proptest::prelude::*;

fn naive(entries: &[(Key, Value)], address: u128) -> Option<Value> {
    let mut best: Option<(u8, Value)> = None;
    for &(key, value) in entries {
        if address & mask(key.len) == key.bits && best.is_none_or(|(len, _)| len < key.len) {
            best = Some((key.len, value));
        }
    }
    best.map(|(_, value)| value)
}

#[test]
fn empty_and_default() {
    assert_eq!(Lpm::build(vec![], &[0xfcbb_0000]).look_up(5), None);
    let lpm = Lpm::build(vec![(Key::new(0, 0), 7)], &[0xfcbb_0000]);
    assert_eq!((lpm.look_up(0), lpm.look_up(0xfcbb << 112), lpm.look_up(u128::MAX)), (Some(7), Some(7), Some(7)));
}

/// Generates addresses with few distinct bits, so that prefixes nest and addresses hit.
fn address() -> impl Strategy<Value = u128> {
    let group = prop_oneof![Just(0u16), Just(1), Just(0xffff), Just(0x8000), 0u16..4];
    let head = prop_oneof![Just(0xfcbb_0000u32), Just(0xfcbb_0001), Just(0x2001_0db8)];
    (head, prop::collection::vec(group, 6)).prop_map(|(head, groups)| {
        groups.into_iter().fold(u128::from(head), |bits, group| bits << 16 | u128::from(group))
    })
}

fn length() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0u8), Just(31), Just(32), Just(33), Just(47), Just(48), Just(49), Just(64), Just(128), 0..=128u8]
}

proptest! {
    #[test]
    fn equals_the_naive_search(
        prefixes in prop::collection::vec((address(), length()), 0..60),
        probes in prop::collection::vec(address(), 1..60),
        indexed in prop::sample::subsequence(vec![0xfcbb_0000u32, 0xfcbb_0001], 0..=2),
    ) {
        let mut entries: Vec<(Key, Value)> = Vec::new();
        for (index, (bits, len)) in prefixes.iter().enumerate() {
            let key = Key::new(*bits, *len);
            if !entries.iter().any(|(known, _)| *known == key) {
                entries.push((key, Value::try_from(index).unwrap()));
            }
        }
        let lpm = Lpm::build(entries.clone(), &indexed);
        for address in probes.iter().copied().chain(entries.iter().map(|(key, _)| key.bits)) {
            prop_assert_eq!(lpm.look_up(address), naive(&entries, address), "address {:032x}", address);
        }
        let mut searches: Vec<_> =
            probes.iter().enumerate().map(|(id, &address)| Search::new(address, id)).collect();
        let mut found = vec![None; probes.len()];
        lpm.look_up_all(&mut searches, |search, value| found[search.id()] = value);
        prop_assert_eq!(found, probes.iter().map(|&address| naive(&entries, address)).collect::<Vec<_>>());
    }
}

/// A table in two copies, as the publisher keeps it. One copy is always one change behind the other.
struct Amended {
    prefixes: Prefixes,
    copies: [Lpm; 2],
    missed: Vec<Key>,
    blocks: Vec<u32>,
    /// Number of changes made in place, and of tables built anew.
    made: [usize; 2],
}

impl Amended {
    fn new(entries: &[(Key, Value)], blocks: Vec<u32>) -> Self {
        let lpm = Lpm::build(entries.to_vec(), &blocks);
        let entries = entries.iter().map(|&(key, value)| (key, meaning(value))).collect();
        Self {
            prefixes: Prefixes::new(entries, &blocks),
            copies: [lpm.clone(), lpm],
            missed: vec![],
            blocks,
            made: [0; 2],
        }
    }

    fn change(&mut self, key: Key, value: Option<Value>) {
        self.prefixes.set(key, 0, value.map(meaning));
        self.missed.push(key);
        let copy = &mut self.copies[0];
        let done = self.missed.iter().try_for_each(|&key| copy.amend(&self.prefixes, key));
        self.made[usize::from(done.is_err())] += 1;
        if done.is_ok() {
            self.missed = vec![key];
            self.copies.swap(0, 1);
        } else {
            let entries = self.prefixes.iter().map(|(key, meaning)| (key, meaning.value)).collect();
            let lpm = Lpm::build(entries, &self.blocks);
            (self.copies, self.missed) = ([lpm.clone(), lpm], vec![]);
        }
    }
}

fn meaning(value: Value) -> Meaning {
    Meaning { value, rank: 0, at: 0 }
}

proptest! {
    #[test]
    fn amended_equals_built(
        first in prop::collection::vec((address(), length()), 0..60),
        changes in prop::collection::vec((address(), length(), prop::option::weighted(0.6, 0..1000u32)), 1..60),
        probes in prop::collection::vec(address(), 1..40),
        indexed in prop::sample::subsequence(vec![0xfcbb_0000u32, 0xfcbb_0001], 0..=2),
    ) {
        let mut entries: Vec<(Key, Value)> = Vec::new();
        for (index, (bits, len)) in first.iter().enumerate() {
            let key = Key::new(*bits, *len);
            if !entries.iter().any(|(known, _)| *known == key) {
                entries.push((key, 2000 + Value::try_from(index).unwrap()));
            }
        }
        let mut amended = Amended::new(&entries, indexed);
        for (number, &(bits, len, value)) in changes.iter().enumerate() {
            // Every other change concerns an existing prefix. It sets a new value, or more often removes the prefix.
            let key = match entries.get(number % entries.len().max(1)) {
                Some(&(known, _)) if number % 2 == 1 => known,
                _ => Key::new(bits, len),
            };
            entries.retain(|(known, _)| *known != key);
            entries.extend(value.map(|value| (key, value)));
            amended.change(key, value);
            let table = &amended.copies[1];
            prop_assert_eq!(table.len(), entries.len());
            for address in probes.iter().copied().chain(entries.iter().map(|(key, _)| key.bits)).chain([key.bits, key.bits | !mask(key.len)]) {
                prop_assert_eq!(table.look_up(address), naive(&entries, address), "address {:032x} after {:?}", address, key);
            }
        }
    }
}

/// Returns prefix number `n` of a typical operator's table: allocations with sites, and LANs and hosts in some of
/// these.
fn site(n: u128) -> Key {
    let allocation = (0x2a00_0000 + n / 16 * 7) << 96;
    match n % 16 {
        0 => Key::new(allocation, 32),
        site @ 1..=8 => Key::new(allocation | site << 80, 48),
        lan @ 9..=14 => Key::new(allocation | 3 << 80 | lan << 64, 64),
        _ => Key::new(allocation | 3 << 80 | 9 << 64 | 1, 128),
    }
}

#[test]
fn a_large_table_is_changed_in_place() {
    let all: Vec<_> = (0..20_000).map(|n| (site(n), Value::try_from(n).unwrap())).collect();
    let mut amended = Amended::new(&all[..16_000], vec![]);
    for &(key, value) in &all[16_000..] {
        amended.change(key, Some(value));
    }
    for (key, value) in all.iter().step_by(3) {
        amended.change(*key, Some(value + 50_000));
    }
    for &(key, _) in all.iter().skip(1).step_by(2) {
        amended.change(key, None);
    }
    assert_eq!(amended.made[1], 0, "none of these changes takes a new table");
    let left: Vec<_> = (0..20_000u32)
        .filter(|n| n % 2 == 0)
        .map(|n| (site(n.into()), if n % 3 == 0 { n + 50_000 } else { n }))
        .collect();
    let built = Lpm::build(left, &[]);
    assert_eq!(amended.copies[1].len(), built.len());
    for (key, _) in &all {
        for address in [key.bits, key.bits | !mask(key.len), key.bits | 1, key.bits | 1 << 70] {
            assert_eq!(amended.copies[1].look_up(address), built.look_up(address), "{address:032x}");
        }
    }
}

#[test]
fn what_does_not_fit_is_said() {
    let all: Vec<_> = (0..20_000).map(|n| (site(n), Value::try_from(n).unwrap())).collect();
    let table = Lpm::build(all.clone(), &[]);
    let mut prefixes = Prefixes::new(all.iter().map(|&(key, value)| (key, meaning(value))).collect(), &[]);
    let mut change = |key: Key| {
        prefixes.set(key, 0, Some(meaning(1)));
        let done = table.clone().amend(&prefixes, key);
        prefixes.set(key, 0, None);
        done
    };
    assert_eq!(change(Key::new(0, 0)), Err(TooMuch::Inside));
    assert_eq!(change(Key::new(0x2a00_0000 << 96, 56)), Err(TooMuch::NewLength));
    assert_eq!(change(Key::new(0x2a00_0001 << 96, 48)), Ok(()));
    let mut table = Lpm::build(vec![(Key::new(1 << 100, 32), 1)], &[]);
    let mut prefixes = Prefixes::new(vec![(Key::new(1 << 100, 32), meaning(1))], &[]);
    for n in 2..2000u128 {
        let key = Key::new(n << 100, 32);
        prefixes.set(key, 0, Some(meaning(u32::try_from(n).unwrap())));
        assert_eq!(table.amend(&prefixes, key), Ok(()), "{n}");
    }
    for n in 2..2000u128 {
        assert_eq!(table.look_up(n << 100 | 1), Value::try_from(n).ok(), "found in the table that has grown");
    }
}
