//! Fuzz targets whose inputs are decisions instead of bytes. What is generated from them is mostly well-formed, so that
//! a fuzzer gets past the syntax checks at which random bytes fail.
#![allow(clippy::panic, clippy::expect_used, reason = "a panic is what a fuzz target reports with")]

pub mod frames;
pub mod netlink;

/// Returns inputs without any structure, because decisions may be any bytes. They are the same in every run.
fn any_bytes(count: u64, length: usize) -> Vec<Vec<u8>> {
    let bytes = |seed: u64| {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        (0..length).map(|_| next()).collect()
    };
    (1..=count).map(bytes).collect()
}
