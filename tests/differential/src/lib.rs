//! Compares the packet path with the naive forwarder of `srv6d-model`: for the same state and the same frame, both must
//! come to the same verdict and the same bytes.
//!
//! ```text
//! generate: Desired, port, frame ─┬─► engines: worker, fast path, slow path, XDP program ─► Outcome
//!                                 └─► engines: model ───────────────────────────────────► [Outcome]
//!                                            compare.rs: is it one of them?
//! ```
#![forbid(unsafe_code)]

use proptest::test_runner::{Config, RngSeed};

pub mod compare;
pub mod describe;
pub mod engine;
pub mod engines;
pub mod fuzz;
pub mod generate;
pub mod inputs;
pub mod routes;
pub mod sonic;
pub mod structured;

/// Returns the settings of random tests. The inputs are the same in every run, so that the result depends on the code
/// alone. With `PROPTEST_CASES=100000`, that many new random inputs are tried in each run.
pub fn random_tests(cases: u32) -> Config {
    let explores = std::env::var_os("PROPTEST_CASES").is_some();
    Config {
        cases,
        rng_seed: if explores { RngSeed::Random } else { RngSeed::Fixed(0x5eed) },
        // A failure that was found becomes a case of the conformance pack instead of a stored seed.
        failure_persistence: None,
        ..Config::default()
    }
}
