//! Tests of emulated ports, in virtual time.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_precision_loss, missing_docs)] // a failed test may panic

mod poisson;
mod properties;
mod rules;
