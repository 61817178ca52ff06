//! SRQH heartbeats: a node tells its neighbours how busy its ports are, so that they can choose among paths by more than
//! their own links.
//!
//! ```text
//! Heartbeat ──► encode ──► UDP to 224.0.0.149 or ff02::114, TTL 255 ──► Peers::receive ──► Peer: entries by neighbour
//!                                                                         └── refused: counted by reason
//! ```
//!
//! The format is srv6d's own. Nothing here has a clock or does I/O: time is handed in. The daemon does not send or receive
//! heartbeats yet.
#![forbid(unsafe_code)]

mod auth;
mod message;
mod peers;
mod reject;
#[cfg(test)]
mod tests;

pub use auth::Key;
pub use message::{Entry, Heartbeat, MOST_ENTRIES, Role};
pub use peers::{Arrival, Freshness, MOST_PEERS, Peer, Peers, Settings};
pub use reject::{Counters, Reject};

/// UDP port of heartbeats.
pub const UDP_PORT: u16 = 47149;
/// TTL or hop limit with which heartbeats are sent and have to arrive: no router has forwarded them (RFC 5082).
pub const TTL: u8 = 255;
