//! A path controller over a topology file: Jalapeno's API without its database.
//!
//! ```text
//! topology.json ──► Store ──► search (Dijkstra, k shortest) ──► routes: the same paths, parameters, shapes and codes
//! ```
//!
//! Answers are those of Jalapeno's API of January 2026 on the same graph, field by field, its text defects included:
//! clients depend on them. What is better stands in keys and routes of its own.

#![forbid(unsafe_code)]

mod answers;
mod asking;
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

/// A topology to begin with: two leaves, two spines, two hosts.
pub const EXAMPLE: &str = include_str!("../example.json");

/// Whose habits the answers have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Edition {
    /// The API as merged into the main project: the sender's own SID is left out of the carrier.
    #[default]
    January2026,
    /// The API on its own, until then: the sender's own SID comes first.
    November2025,
}
