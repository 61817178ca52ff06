//! The packet path against the naive forwarder of `srv6d-model`: the same state, the same frame, the same verdict, and
//! the same bytes.
//!
//! ```text
//! generate: Desired, port, frame ─┬─► fast.rs: the worker step over ports in memory ─► Outcome
//!                                 └─► srv6d_model::outcomes ─────────────────────► [Outcome]
//!                                            compare.rs: is it one of them?
//! ```
#![forbid(unsafe_code)]

pub mod compare;
pub mod describe;
pub mod fast;
pub mod fuzz;
pub mod generate;
