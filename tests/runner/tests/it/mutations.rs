//! Frames of the pack with bytes changed, cut off and added: no input causes a panic, a dropped frame is unchanged, and
//! every frame is accounted for.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // a failed test may panic

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use srv6d_runner::Node;

#[derive(Clone, Debug)]
enum Mutation {
    Flip(Index, u8),
    Set(Index, u8),
    Cut(Index),
    Append(Vec<u8>),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let edge = select(vec![0u8, 1, 2, 4, 6, 41, 43, 44, 58, 59, 60, 0x45, 0x60, 0x7f, 0x80, 0xfe, 0xff]);
    // Headers are changed more often than payloads, because more depends on them.
    prop_oneof![
        4 => (any::<Index>(), 0..8u8).prop_map(|(at, bit)| Mutation::Flip(at, 1 << bit)),
        4 => (any::<Index>(), edge).prop_map(|(at, value)| Mutation::Set(at, value)),
        1 => any::<Index>().prop_map(Mutation::Cut),
        1 => prop::collection::vec(any::<u8>(), 1..80).prop_map(Mutation::Append),
    ]
}

fn mutate(frame: &mut Vec<u8>, mutations: &[Mutation]) {
    const HEADERS: usize = 120;
    for mutation in mutations {
        let reach = frame.len().clamp(1, HEADERS);
        match mutation {
            Mutation::Flip(at, bits) => frame.get_mut(at.index(reach)).into_iter().for_each(|byte| *byte ^= bits),
            Mutation::Set(at, value) => frame.get_mut(at.index(reach)).into_iter().for_each(|byte| *byte = *value),
            Mutation::Cut(at) => frame.truncate(at.index(frame.len() + 1)),
            Mutation::Append(bytes) => frame.extend(bytes),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn mutated_frames_are_counted_and_refused_ones_untouched(
        pick in any::<Index>(),
        input in any::<Index>(),
        mutations in prop::collection::vec(mutation(), 1..5),
    ) {
        thread_local!(static PACK: srv6d_pack::Pack =
            srv6d_pack::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance")).unwrap());
        let case = PACK.with(|pack| pack.cases[pick.index(pack.cases.len())].clone());
        let inputs: Vec<_> = case.steps.iter().flat_map(|step| &step.inputs).collect();
        prop_assume!(!inputs.is_empty());
        let Some(mut node) = Node::of(&case).unwrap() else { return Ok(()) };
        let input = inputs[input.index(inputs.len())];
        let mut frame = input.built.bytes.clone();
        mutate(&mut frame, &mutations);
        node.receive(&input.port, &frame).unwrap();
        let sent = node.run(0);
        let dropped = node.take_dropped();
        let counters = node.counters().unwrap();
        prop_assert_eq!(counters["rx"], 1);
        prop_assert_eq!(sent.len() as u64 + dropped.len() as u64 + counters["held"], 1);
        prop_assert!(dropped.iter().all(|left| *left == frame), "a refused frame was written to");
        prop_assert!(sent.iter().all(|(_, bytes)| bytes.len() >= 60), "shorter than Ethernet allows");
    }
}
