//! The conformance pack: how a forwarder must treat frames, as data.
//!
//! This crate does not use srv6d's forwarding code: the pack states independently what the RFCs require.
//!
//! ```text
//! tests/conformance/*.toml ─ load ─► Pack ─► Case ─► Step { inputs: bytes, outputs: Expect }
//!                                                         Expect::matches(port, bytes) ─► Diff, layer by layer
//! ```
//!
//! The file format and the notation of frames are described in `tests/conformance/README.md`.
#![forbid(unsafe_code)]

mod build;
mod case;
mod decode;
mod expect;
pub mod export;
mod file;
mod layer;
mod linux;
mod load;
mod notation;
mod property;
#[cfg(test)]
mod tests;

pub use build::{Built, Rule, build};
pub use case::{Case, Divergence, Event, Input, Linux, Neighbor, Pack, Port, Recorded, Setup, Step};
pub use decode::decode;
pub use expect::{Diff, Expect};
pub use load::{PackError, load};
pub use property::Property;
