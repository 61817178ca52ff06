//! Frames and states that match each other: the generators of the random tests make them from a seed, and then some
//! bytes of each frame are changed.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::any_bytes;
use crate::compare::compare;
use crate::generate::{frames, state};

/// Length of a seed in bytes.
const SEED: usize = 16;
/// Number of frames for each state.
const FRAMES: usize = 4;
/// Maximum number of changed bytes of each frame.
const CHANGES: usize = 16;

/// Fuzz target: random frames on random states, with some bytes of each frame changed. Input:
///
/// ```text
/// | seed of the state, 16 bytes | seed of a frame, 16 bytes | changes, 1 byte | place, 2 bytes; bits to flip, 1 byte | ... | next frame ...
/// ```
///
/// # Panics
/// If the packet path (fast or slow path) and the naive forwarder disagree.
pub fn frames_on_states(data: &[u8]) {
    let Some((seed, mut rest)) = data.split_first_chunk::<SEED>() else { return };
    let state = made(&state::state(), seed);
    for _ in 0..FRAMES {
        let Some((seed, behind)) = rest.split_first_chunk::<SEED>() else { return };
        let arrival = made(&frames::arrival(), seed);
        let mut frame = arrival.frame;
        rest = flip(&mut frame, behind);
        if let Err(difference) = compare(&state.0, arrival.port, &frame) {
            panic!("{difference}");
        }
    }
}

/// Returns what a generator makes from a seed.
fn made<S: Strategy>(strategy: &S, seed: &[u8; SEED]) -> S::Value {
    // The random number generator cannot start from a seed of zeros.
    let seed = seed.map(|byte| byte ^ 0x5a);
    let seed = if seed == [0; SEED] { [1; SEED] } else { seed };
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::XorShift, &seed));
    strategy.new_tree(&mut runner).expect("the generators filter nothing").current()
}

/// Flips bits of the frame as the input says, and returns the rest of the input.
fn flip<'i>(frame: &mut [u8], input: &'i [u8]) -> &'i [u8] {
    let Some((&count, input)) = input.split_first() else { return &[] };
    let count = usize::from(count) % (CHANGES + 1);
    let (changes, rest) = input.split_at_checked(3 * count).unwrap_or((input, &[]));
    for change in changes.chunks_exact(3) {
        let &[high, low, bits] = change else { continue };
        let at = usize::from(u16::from_be_bytes([high, low])) % frame.len().max(1);
        frame.get_mut(at).into_iter().for_each(|byte| *byte ^= bits);
    }
    rest
}

/// Returns seeds of states and frames, with and without changes.
pub fn seeds() -> Vec<Vec<u8>> {
    [2 * SEED + 1, 100, 300].into_iter().flat_map(|length| any_bytes(24, length)).collect()
}
