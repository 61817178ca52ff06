//! The packet path against the naive forwarder of `srv6d-model`: the same state, the same frame, the same verdict, and
//! the same bytes.
//!
//! ```text
//! generate: Desired, port, frame ─┬─► fast.rs: the worker step over ports in memory ─► Outcome
//!                                 └─► srv6d_model::outcomes ─────────────────────► [Outcome]
//!                                            compare.rs: is it one of them?
//! ```
#![forbid(unsafe_code)]

use proptest::test_runner::{Config, RngSeed};

pub mod compare;
pub mod describe;
pub mod fast;
pub mod fuzz;
pub mod generate;
pub mod inputs;
pub mod routes;
pub mod sonic;
pub mod structured;

/// How random tests run here: the same inputs every time, so that a build is red or green for what is in it.
/// `PROPTEST_CASES=100000` looks at that many others, different ones each time.
pub fn random_tests(cases: u32) -> Config {
    let explores = std::env::var_os("PROPTEST_CASES").is_some();
    Config {
        cases,
        rng_seed: if explores { RngSeed::Random } else { RngSeed::Fixed(0x5eed) },
        // What was found once becomes a case of the conformance pack, not a seed.
        failure_persistence: None,
        ..Config::default()
    }
}
