//! The integration tests of the network bench, in one program so that it is linked once.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test may panic")]
mod harness;
mod smoke;
