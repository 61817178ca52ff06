//! Path controllers: what they answer, and the carriers made of it.
//!
//! ```text
//! Jalapeno ── /topology, /shortest_path ──► documents ──► compose ──► Snapshot (per peer: prefixes, carriers, state)
//! syd ─────── /paths, events ─────────────►                              │ watch
//!                                                                        ▼
//!                                                                     daemon
//! ```
//!
//! A controller is a task that publishes [`Snapshot`]s. It knows nothing of ports, routes or tables, and whatever the
//! other end does, a peer keeps its last good carriers until better ones have been checked.

#![forbid(unsafe_code)]

pub mod compose;
pub mod document;
mod http;
pub mod jalapeno;
mod rounds;
pub mod sid;
pub mod snapshot;
pub mod syd;

pub use snapshot::{CarrierPath, Cause, Command, Health, Peer, PeerState, PrefixPaths, Snapshot};
