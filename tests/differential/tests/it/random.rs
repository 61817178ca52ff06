//! Random frames on random states: the packet path must come to a result that the naive forwarder considers right, to
//! the byte and to the counter. A difference is reported with the whole state and the frame, after shrinking.
//!
//! `PROPTEST_CASES=100000 cargo test -p srv6d-differential --test it random::` tries that many new random inputs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test may panic")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use srv6d_differential::compare::compare;
use srv6d_differential::engine::{Engine as _, Node};
use srv6d_differential::engines::Worker;
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

/// Returns the name of a verdict in this test.
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

/// The generated frames must reach every verdict; if all of them were refused early, the comparison would find nothing.
#[test]
fn frames_of_the_generator_come_to_every_end() {
    /// Drop reasons that random frames cannot reach: they need full rings or buffers, time that passes, emulated ports, or
    /// more layers than are practical to generate.
    const NOT_HERE: [DropReason; 9] = [
        DropReason::TxFull,
        DropReason::NoRoom,
        DropReason::NoNeigh,
        DropReason::Rounds,
        DropReason::Nesting,
        DropReason::QueueFull,
        DropReason::Wred,
        DropReason::WireLoss,
        DropReason::PortDown,
    ];
    let answered =
        ["hop_limit", "no_route", "unknown_sid", "unreachable", "upper_layer", "srh_invalid", "packet_too_big"];
    let expected = ["tx", "tx.path", "tx.sid", "kernel", "held", "reply.echo"].map(String::from).into_iter();
    let expected = expected.chain(answered.map(|reason| format!("reply.{reason}")));
    let dropped = DropReason::ALL.into_iter().filter(|reason| !NOT_HERE.contains(reason));
    let mut missing: BTreeSet<String> =
        expected.chain(dropped.map(|reason| format!("drop.{}", reason.name()))).collect();

    let mut runner = TestRunner::deterministic();
    let strategy = (state::state(), prop::collection::vec(frames::arrival(), 8));
    let mut worker = Worker::default();
    for _ in 0..20_000 {
        let (state, arrivals) = strategy.new_tree(&mut runner).unwrap().current();
        if !worker.go_over(Node::from(&state.0)).unwrap() {
            continue;
        }
        for arrival in arrivals.iter().filter(|arrival| usize::from(arrival.port) < state.0.ports.len()) {
            let answer = worker.forward(arrival.port, &arrival.frame).unwrap();
            missing.remove(&name_of(answer.outcome().unwrap()));
        }
        if missing.is_empty() {
            return;
        }
    }
    panic!("no frame came to {missing:?}");
}
