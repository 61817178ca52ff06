//! `SRv6` forwarding: SIDs, carriers, tables, and what becomes of a packet.
//!
//! No sockets, no clock, no configuration text: bytes and a table snapshot in, a verdict out.
#![forbid(unsafe_code)]

pub mod build;
pub mod carrier;
mod changes;
mod edit;
pub mod flow;
mod forward;
mod icmp;
pub mod index;
pub mod lpm;
pub mod model;
mod path_mtu;
pub mod reason;
mod straight;
pub mod tables;
pub mod tally;

pub use build::{BuildError, Rank};
pub use forward::{Verdict, forward, walk};
pub use icmp::Limiter;
pub use index::{Edits, Index, NotAmended, Whole};
pub use path_mtu::{PathMtu, learned};
pub use reason::DropReason;
pub use straight::{Found, Frames, Inside, Leaving, LookUps, forward as forward_straight, forward_all, offload};
pub use tables::{AdjacencyState, Tables};
pub use tally::{Slots, Tally};
