//! The fuzz targets, without a fuzzer: every seed as it is, and a bounded number of seeds with random changes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test may panic")]

use std::sync::OnceLock;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use srv6d_differential::fuzz::{self, TARGETS, Target};
use srv6d_differential::random_tests;
use srv6d_differential::routes;

#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Set(Index, u8),
    Cut(Index),
    /// Some bytes from one place to another.
    Copy(Index, Index, usize),
    Remove(Index, usize),
    Insert(Index, Vec<u8>),
}

fn change() -> impl Strategy<Value = Change> {
    let edge = select(vec![0u8, 1, 2, 4, 6, 41, 43, 44, 58, 59, 60, 0x45, 0x60, 0x7f, 0x80, 0xfe, 0xff]);
    prop_oneof![
        4 => (any::<Index>(), 0..8u8).prop_map(|(at, bit)| Change::Flip(at, 1 << bit)),
        4 => (any::<Index>(), edge).prop_map(|(at, value)| Change::Set(at, value)),
        1 => any::<Index>().prop_map(Change::Cut),
        2 => (any::<Index>(), any::<Index>(), 1usize..60).prop_map(|(from, to, len)| Change::Copy(from, to, len)),
        2 => (any::<Index>(), 1usize..60).prop_map(|(at, len)| Change::Remove(at, len)),
        1 => (any::<Index>(), prop::collection::vec(any::<u8>(), 1..20)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        2 => (any::<Index>(), words()).prop_map(|(at, word)| Change::Insert(at, word.as_bytes().to_vec())),
    ]
}

/// What configurations are made of, and what they should not be made of.
fn words() -> impl Strategy<Value = &'static str> {
    select(vec![
        "\n[[port]]\nname = \"p9\"\n",
        "\n[[sid]]\nsid = \"fcbb:bbbb:5::/48\"\nbehavior = \"uN\"\n",
        "\n[node]\n",
        "\n[[route]]\n",
        "\n[[steer]]\n",
        "prefix = \"::/0\"\n",
        "via = \"fe80::1\"\n",
        "port = \"p1\"\n",
        "mtu = 1\n",
        "lblen = 120\n",
        "nflen = 0\n",
        "table = 100\n",
        "segments = []\n",
        "-1",
        "99999999999999999999",
        "\"",
        "\"\"\"",
        "[",
        "]",
        "{",
        "}",
        "=",
        "\n",
        "\t",
        "\0",
        "\u{feff}",
        "ä",
        "# ",
        "0.5",
        "true",
        "inf",
        "1979-05-27",
        "::/129",
    ])
}

fn apply(bytes: &mut Vec<u8>, changes: &[Change]) {
    for change in changes {
        let at = |index: &Index| index.index(bytes.len() + 1);
        match change {
            Change::Flip(index, bits) => {
                let at = at(index);
                bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= bits);
            }
            Change::Set(index, value) => {
                let at = at(index);
                bytes.get_mut(at).into_iter().for_each(|byte| *byte = *value);
            }
            Change::Cut(index) => {
                let at = at(index);
                bytes.truncate(at);
            }
            Change::Copy(from, to, len) => {
                let (from, to) = (at(from), at(to));
                let copied = bytes[from..(from + len).min(bytes.len())].to_vec();
                bytes.splice(to..to, copied);
            }
            Change::Remove(index, len) => {
                let at = at(index);
                bytes.drain(at..(at + len).min(bytes.len()));
            }
            Change::Insert(index, inserted) => {
                let at = at(index);
                bytes.splice(at..at, inserted.clone());
            }
        }
    }
}

#[test]
fn every_seed_is_right_as_it_is() {
    for Target { name, run, seeds } in TARGETS {
        let seeds = seeds();
        assert!(seeds.len() > 20, "{name}: {} seeds", seeds.len());
        for seed in &seeds {
            run(seed);
        }
    }
}

fn changed(target: &Target, seeds: &'static OnceLock<Vec<Vec<u8>>>, pick: Index, changes: &[Change]) -> Vec<u8> {
    let seeds = seeds.get_or_init(target.seeds);
    let mut bytes = seeds[pick.index(seeds.len())].clone();
    apply(&mut bytes, changes);
    bytes
}

proptest! {
    #![proptest_config(random_tests(3000))]

    #[test]
    fn parser(pick in any::<Index>(), changes in prop::collection::vec(change(), 1..6)) {
        static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
        fuzz::parser(&changed(&TARGETS[0], &SEEDS, pick, &changes));
    }

    #[test]
    fn forward(pick in any::<Index>(), changes in prop::collection::vec(change(), 1..6)) {
        static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
        fuzz::forward(&changed(&TARGETS[1], &SEEDS, pick, &changes));
    }

    #[test]
    fn configuration(pick in any::<Index>(), changes in prop::collection::vec(change(), 1..6)) {
        static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
        fuzz::configuration(&changed(&TARGETS[2], &SEEDS, pick, &changes));
    }

    #[test]
    fn sonic(pick in any::<Index>(), changes in prop::collection::vec(change(), 1..4)) {
        static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
        srv6d_differential::sonic::sonic(&changed(&TARGETS[3], &SEEDS, pick, &changes));
    }

    #[test]
    fn kernel_routes(pick in any::<Index>(), changes in prop::collection::vec(change(), 1..6)) {
        static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
        routes::kernel::kernel_routes(&changed(&TARGETS[4], &SEEDS, pick, &changes));
    }

    #[test]
    fn fpm(pick in any::<Index>(), changes in prop::collection::vec(change(), 1..6)) {
        static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
        routes::fpm::fpm(&changed(&TARGETS[5], &SEEDS, pick, &changes));
    }
}
