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

pub mod allowed;
mod bounded;
pub mod compose;
pub mod document;
mod failure;
mod http;
pub mod jalapeno;
mod replace;
mod rounds;
pub mod sid;
pub mod snapshot;
pub mod syd;
pub mod text;

pub use allowed::Allowed;
pub use failure::Failure;
pub use http::MAX_ANSWER;
pub use replace::replace_file;
pub use snapshot::{CarrierPath, Cause, Command, Health, Peer, PeerState, PrefixPaths, Snapshot};
