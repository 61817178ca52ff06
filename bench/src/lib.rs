//! Common parts of the benches: tables of a given size, packets for these tables, and the rig that sends the packets
//! around.
#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, clippy::indexing_slicing, reason = "numbers and frames of our own making")]

pub mod cases;
pub mod floor;
pub mod frames;
pub mod rig;
pub mod tables;

pub use cases::{CASES, Case};
pub use frames::{Class, FLOWS, frame};
pub use rig::Rig;
pub use tables::{Node, snapshot};
