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
mod limiter;
pub mod lpm;
pub mod model;
mod path_mtu;
mod prefix_set;
pub mod reason;
mod sid_space;
mod straight;
pub mod tables;
pub mod tally;

pub use build::{BuildError, Rank};
pub use forward::{FurtherSum, Verdict, forward, give_up, walk};
pub use index::{Edits, Index, NotAmended, Whole};
pub use limiter::{Bucket, Limiter};
pub use path_mtu::{PathMtu, comes_from_domain, learned};
pub use reason::DropReason;
pub use sid_space::LOCATOR_BITS;
pub use straight::{Found, Frames, Inside, Leaving, LookUps, forward as forward_straight, forward_all, offload};
pub use tables::{AdjacencyState, Tables};
pub use tally::{Released, Slots, Tally};
