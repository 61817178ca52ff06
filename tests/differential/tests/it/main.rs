//! The tests of the packet path against the naive forwarder: one program, so that it is linked once.
#![allow(missing_docs, reason = "tests")]
mod fuzz;
mod offload;
mod pack;
mod random;
mod sonic;
