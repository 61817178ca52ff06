//! The tests of the SONiC files: one program, so that it is linked once.
#![allow(missing_docs, reason = "tests")]
mod frr;
mod merge;
mod strict;
mod tolerance;
