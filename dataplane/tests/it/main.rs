//! The tests of the worker step and its tables, in one program, so that it is linked once.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test may panic")]
mod amend;
mod balance;
mod bursts;
mod emulated;
mod handover;
mod step;
mod stream;
