//! A path controller for a topology file, with Jalapeno's API but without its database.
//!
//! ```text
//! topology.json ──► Store ──► search (Dijkstra, k shortest) ──► routes: same paths, parameters, shapes, status codes
//! ```
//!
//! Answers are equal to those of Jalapeno's API of January 2026 on the same graph, field by field. They include the
//! defects of its texts, because clients depend on them. Improvements have keys and routes of their own.

#![forbid(unsafe_code)]

mod answers;
mod collections;
mod connections;
mod extras;
mod faults;
mod graphs;
mod load;
mod metrics;
mod openapi;
mod origin;
mod parameters;
mod paths;
mod placement;
mod request;
mod router;
mod routes;
mod rpo;
mod search;
mod server;
mod srv6;
pub mod store;
mod traversal;
mod work;

pub use faults::{Fault, FaultPlan, Rule};
pub use server::{Running, Server, StartError};
pub use store::{Store, StoreError};

/// An example topology: two leaves, two spines, two hosts.
pub const EXAMPLE: &str = include_str!("../example.json");

/// The edition of Jalapeno's API whose behaviour the answers have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Edition {
    /// The API as it was merged into the main project: the carrier does not contain the sender's own SID.
    #[default]
    January2026,
    /// The separate API before the merge: the carrier begins with the sender's own SID.
    November2025,
}
