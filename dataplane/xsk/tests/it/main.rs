//! The tests of sockets, claims and ports: one program, so that it is linked once.
#![allow(missing_docs, reason = "tests")]
#[path = "../netns/mod.rs"]
mod netns;

mod claims;
mod forward;
mod ports;
