//! What `srv6d explain` says is what happens: the same verdict, bytes and drop reason as the worker's, for every frame of
//! the conformance pack and for random ones; and it says whether the fast path takes the frame.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test may panic")]

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use srv6d_dataplane::explain::{Explained, explain};
use srv6d_differential::describe;
use srv6d_differential::engine::{Engine, Node, Treatment};
use srv6d_differential::engines::{FastPath, Worker};
use srv6d_differential::generate::{frames, state};
use srv6d_model::Outcome;
use srv6d_runner::{apply, desired, environment};
use srv6d_srv6::desired::Desired;
use srv6d_srv6::trail::{MatchKind, TrailStep};
use srv6d_srv6::{DropReason, Slots, Tables, Verdict};

/// Frames whose explanation is compared with what the worker does.
const RANDOM_FRAMES: usize = 10_000;

#[derive(Default)]
struct Engines {
    worker: Worker,
    fast: FastPath,
}

impl Engines {
    /// Compares the explanation of a frame with what happens to it. Returns the explanation, or `None` if no tables can be
    /// built from the state.
    fn compare(&mut self, desired: &Desired, port: u16, frame: &[u8]) -> Option<Explained> {
        let mut slots = Slots::default();
        let tables = Tables::build(desired, &mut slots).ok()?;
        let explained = explain(&tables, &slots, port, frame);
        let node = Node::from(desired);
        assert!(self.worker.go_over(node).unwrap() && self.fast.go_over(node).unwrap());
        let answer = self.worker.forward(port, frame).unwrap();
        let Outcome { verdict, frame: bytes, .. } = answer.outcome().unwrap();
        let is_plain = self.fast.forward(port, frame).unwrap() != Treatment::Left;
        let input = || format!("{}{}", describe::state(desired), describe::input(desired, port, frame));
        assert_eq!((explained.verdict, explained.is_plain), (*verdict, is_plain), "{}", input());
        assert_eq!(&explained.bytes, bytes, "{verdict:?}{}", input());
        assert_eq!(self.worker.forward(port, frame).unwrap(), answer, "explaining changes nothing");
        steps_lead_to_the_verdict(&explained);
        Some(explained)
    }
}

/// A packet leaves by the next hop that was chosen at last, and the look-ups are those that its destination had.
fn steps_lead_to_the_verdict(Explained { steps, verdict, .. }: &Explained) {
    let chosen = steps.iter().rev().find_map(|step| match step {
        TrailStep::NextHop(choice) => choice.members.iter().find(|member| member.chosen).map(|member| &member.of),
        _ => None,
    });
    if let (Verdict::Hold(port, neighbor), Some(hop)) = (verdict, chosen) {
        assert_eq!((hop.port, hop.neighbor, hop.mac), (*port, *neighbor, None));
    }
    if let Verdict::Tx(_) = verdict {
        assert!(chosen.is_some_and(|hop| hop.mac.is_some()), "{steps:?}");
        assert!(steps.iter().any(|step| matches!(step, TrailStep::Size { length, mtu } if length <= mtu)), "{steps:?}");
    }
    if let Verdict::Drop(DropReason::Blackhole) = verdict {
        assert!(steps.iter().any(|step| matches!(step, TrailStep::LookedUp { found: Some(MatchKind::Blackhole), .. })));
    }
}

#[test]
fn every_frame_of_the_pack_is_explained_as_it_is_treated() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance");
    let mut engines = Engines::default();
    let mut explained = 0;
    for case in srv6d_pack::load(&directory).unwrap().cases.iter().filter(|case| case.refused.is_none()) {
        let mut surroundings = environment(&case.setup);
        for step in &case.steps {
            step.events.iter().for_each(|event| apply(&mut surroundings, event));
            let Ok(desired) = desired(&case.setup.config, &surroundings) else { continue };
            let names = Node::from(&desired).devices();
            for input in &step.inputs {
                let port = names.iter().position(|name| *name == input.port).unwrap();
                let port = u16::try_from(port).unwrap();
                explained += usize::from(engines.compare(&desired, port, &input.built.bytes).is_some());
            }
        }
    }
    assert!(explained > 300, "{explained} frames were explained");
}

#[test]
fn random_frames_are_explained_as_they_are_treated() {
    let mut runner = TestRunner::deterministic();
    let strategy = (state::state(), prop::collection::vec(frames::arrival(), 8));
    let mut engines = Engines::default();
    let mut explained = 0;
    let mut ends = BTreeSet::new();
    while explained < RANDOM_FRAMES {
        let (state, arrivals) = strategy.new_tree(&mut runner).unwrap().current();
        for arrival in arrivals.iter().filter(|arrival| usize::from(arrival.port) < state.0.ports.len()) {
            let Some(Explained { verdict, .. }) = engines.compare(&state.0, arrival.port, &arrival.frame) else {
                break;
            };
            explained += 1;
            ends.insert(match verdict {
                Verdict::Tx(_) => "tx",
                Verdict::Kernel(_) => "kernel",
                Verdict::Echo(_) => "echo",
                Verdict::Hold(..) => "held",
                Verdict::Error(reason, _) | Verdict::Drop(reason) => reason.name(),
            });
        }
    }
    assert!(ends.len() > 20, "{ends:?}");
}
