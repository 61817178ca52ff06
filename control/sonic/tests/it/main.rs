//! Tests of the SONiC files, in one program so that it is linked only once.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test may panic")]
mod frr;
mod merge;
mod scale;
mod strict;
mod tolerance;
