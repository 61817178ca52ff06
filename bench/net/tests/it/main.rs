//! The tests of the network bench: one program, so that it is linked once.
#![allow(missing_docs, reason = "tests")]
mod harness;
mod smoke;
