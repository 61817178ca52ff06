//! Random frames on random states: whatever the packet path does with one is a thing that the naive forwarder finds
//! right, to the byte and to the counter. A difference is printed with the whole state and the frame, shrunk.
//!
//! `PROPTEST_CASES=100000 cargo test -p srv6d-differential --test random` looks where nobody has looked yet.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test may panic")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use srv6d_differential::compare::compare;
use srv6d_differential::fast;
use srv6d_differential::generate::{frames, state};
use srv6d_differential::random_tests;
use srv6d_model::{Counted, Outcome};
use srv6d_srv6::{DropReason, Verdict};

proptest! {
    #![proptest_config(random_tests(4000))]

    #[test]
    fn the_packet_path_does_what_the_model_does(
        state in state::state(),
        arrivals in prop::collection::vec(frames::arrival(), 1..8),
    ) {
        for arrival in &arrivals {
            if let Err(difference) = compare(&state.0, arrival.port, &arrival.frame) {
                return Err(TestCaseError::fail(difference));
            }
        }
    }
}

/// What a verdict is called here.
fn name_of(outcome: &Outcome) -> String {
    match outcome.verdict {
        Verdict::Tx(_) if outcome.counts.keys().any(|counted| matches!(counted, Counted::Path(_))) => "tx.path".into(),
        Verdict::Tx(_) if outcome.counts.keys().any(|counted| matches!(counted, Counted::Sid(_))) => "tx.sid".into(),
        Verdict::Tx(_) => "tx".into(),
        Verdict::Kernel(_) => "kernel".into(),
        Verdict::Echo(_) => "reply.echo".into(),
        Verdict::Hold(..) => "held".into(),
        Verdict::Error(reason, _) => format!("reply.{}", reason.name()),
        Verdict::Drop(reason) => format!("drop.{}", reason.name()),
    }
}

/// A generator whose frames are all refused at the door would find nothing.
#[test]
fn frames_of_the_generator_come_to_every_end() {
    /// Rings and buffers that are full, time that passes; and what needs more layers than is worth waiting for.
    const NOT_HERE: [DropReason; 5] =
        [DropReason::TxFull, DropReason::NoRoom, DropReason::NoNeigh, DropReason::Rounds, DropReason::Nesting];
    let answered =
        ["hop_limit", "no_route", "unknown_sid", "unreachable", "upper_layer", "srh_invalid", "packet_too_big"];
    let expected = ["tx", "tx.path", "tx.sid", "kernel", "held", "reply.echo"].map(String::from).into_iter();
    let expected = expected.chain(answered.map(|reason| format!("reply.{reason}")));
    let dropped = DropReason::ALL.into_iter().filter(|reason| !NOT_HERE.contains(reason));
    let mut missing: BTreeSet<String> =
        expected.chain(dropped.map(|reason| format!("drop.{}", reason.name()))).collect();

    let mut runner = TestRunner::deterministic();
    let strategy = (state::state(), prop::collection::vec(frames::arrival(), 8));
    for _ in 0..20_000 {
        let (state, arrivals) = strategy.new_tree(&mut runner).unwrap().current();
        for arrival in arrivals.iter().filter(|arrival| usize::from(arrival.port) < state.0.ports.len()) {
            if let Ok(outcome) = fast::outcome(&state.0, arrival.port, &arrival.frame) {
                missing.remove(&name_of(&outcome));
            }
        }
        if missing.is_empty() {
            return;
        }
    }
    panic!("no frame came to {missing:?}");
}
