//! SRQH heartbeats: a node tells its neighbours how busy its ports are, so that they can choose among paths by more than
//! their own links.
//!
//! ```text
//! Sender ──► Heartbeat ──► encode ──► UDP to ff02::114, hop limit 255 ──► Peers::receive ──► Peer: entries by neighbour
//!                                                                            │ └── refused: counted by reason
//!                               what the ports behind neighbours can take ◄── Judge
//! ```
//!
//! The format is srv6d's own. Nothing here has a clock or does I/O: time is handed in.
#![forbid(unsafe_code)]

mod auth;
mod judged;
mod message;
mod peers;
mod reject;
mod sender;
#[cfg(test)]
mod tests;

pub use auth::Key;
pub use judged::Judge;
pub use message::{Entry, Heartbeat, MOST_ENTRIES, Role};
pub use peers::{Arrival, Freshness, Peer, Peers, Settings};
pub use reject::{Counters, Reject};
pub use sender::{Said, Sender, Sending};

/// Hop limit with which heartbeats are sent and have to arrive: no router has forwarded them (RFC 5082).
pub const TTL: u8 = 255;
