//! Clients of path controllers: they read a controller's answers and compose carriers from them.
//!
//! ```text
//! Jalapeno ── /topology, /shortest_path ──► documents ──► compose ──► Snapshot (per peer: prefixes, carriers, state)
//! syd ─────── /paths, events ─────────────►                              │ watch
//!                                                                        ▼
//!                                                                     daemon
//! ```
//!
//! A controller is a task that publishes [`Snapshot`]s. It knows nothing of ports, routes or tables. Whatever the
//! server does, a peer keeps its last good carriers until better ones have been checked.

#![forbid(unsafe_code)]

pub mod allowed;
mod bounded;
pub mod compose;
pub mod document;
mod failure;
mod http;
pub mod jalapeno;
mod rounds;
pub mod sid;
pub mod snapshot;
pub mod syd;

pub use allowed::Allowed;
pub use failure::Failure;
pub use http::MAX_ANSWER;
pub use snapshot::{CarrierPath, Cause, Command, Peer, PeerState, PrefixPaths, RequestResults, Snapshot};
