//! The tests that need no list of cases: one program, so that it is linked once.
#![allow(missing_docs, reason = "tests")]
mod mutations;
mod sonic_samples;
mod trex_readme;
