//! The tests that compare the packet path with the naive forwarder, in one program so that it is linked once.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test may panic")]
mod explain;
mod fuzz;
mod kernel;
mod offload;
mod pack;
mod random;
mod sonic;
