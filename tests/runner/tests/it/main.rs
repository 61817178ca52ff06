//! The tests that do not make one test per case, in one program so that it is linked once.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test may panic")]
mod mutations;
mod sonic_samples;
mod trex_readme;
