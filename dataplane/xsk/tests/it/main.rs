//! Tests of sockets, claims and ports, in one program so that it is linked only once.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test may panic")]
#[path = "../netns/mod.rs"]
mod netns;

mod claims;
mod features;
mod forward;
mod ports;
