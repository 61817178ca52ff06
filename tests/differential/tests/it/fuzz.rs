//! Runs the fuzz targets without a fuzzer: every seed and every input of the corpora unchanged, and a limited number of
//! them with random changes.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test may panic")]

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestRunner;
use srv6d_differential::fuzz::TARGETS;
use srv6d_differential::random_tests;

#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Set(Index, u8),
    Cut(Index),
    /// Copies some bytes from one place to another.
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

/// Makes a text to be inserted into a configuration: some fit, some do not.
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
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(seeds.len() > 20, "{}: {} seeds", target.name, seeds.len());
        for seed in &seeds {
            target.check(seed);
        }
    }
}

/// Runs the inputs that a coverage-guided fuzzer has found interesting: `tests/fuzz/corpus`.
#[test]
fn every_input_of_the_corpora_is_right() {
    for target in TARGETS {
        let inputs = target.corpus();
        assert!(!inputs.is_empty(), "{}: tests/fuzz/corpus has none", target.name);
        for input in &inputs {
            target.check(input);
        }
    }
}

/// Runs seeds and inputs of the corpus with some random changes each.
fn with_changes(name: &str, cases: u32, most: usize) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let inputs = [(target.seeds)(), target.corpus()].concat();
    let changes = (any::<Index>(), prop::collection::vec(change(), 1..most));
    let result = TestRunner::new(random_tests(cases)).run(&changes, |(pick, changes)| {
        let mut bytes = inputs[pick.index(inputs.len())].clone();
        apply(&mut bytes, &changes);
        target.check(&bytes);
        Ok(())
    });
    result.unwrap_or_else(|why| panic!("{name}: {why}"));
}

/// Defines a test for each target, so that the targets run in parallel.
macro_rules! with_changes {
    ($($test:ident: $target:literal, $cases:literal inputs with up to $most:literal changes;)*) => {
        $(#[test] fn $test() { with_changes($target, $cases, $most + 1); })*

        #[test]
        fn no_target_is_left_out() {
            let tested = [$($target),*];
            assert!(TARGETS.iter().all(|target| tested.contains(&target.name)));
        }
    };
}

with_changes! {
    parser: "parser", 3000 inputs with up to 5 changes;
    forward: "forward", 3000 inputs with up to 5 changes;
    configuration: "configuration", 3000 inputs with up to 5 changes;
    sonic: "sonic", 3000 inputs with up to 3 changes;
    kernel_routes: "kernel-routes", 3000 inputs with up to 5 changes;
    fpm: "fpm", 3000 inputs with up to 5 changes;
    frames: "frames", 1000 inputs with up to 20 changes;
    fpm_stream: "fpm-stream", 1000 inputs with up to 20 changes;
    kernel_messages: "kernel-messages", 1000 inputs with up to 20 changes;
    jalapeno: "jalapeno", 300 inputs with up to 4 changes;
    syd: "syd", 200 inputs with up to 4 changes;
    path_server: "path-server", 500 inputs with up to 4 changes;
    management: "management", 2000 inputs with up to 4 changes;
    job: "job", 1000 inputs with up to 4 changes;
    topology: "topology", 1000 inputs with up to 3 changes;
    pcap: "pcap", 2000 inputs with up to 5 changes;
    heartbeats: "heartbeats", 3000 inputs with up to 5 changes;
    sonic_words: "sonic-words", 1000 inputs with up to 4 changes;
}
