//! `SRv6` forwarding: SIDs, carriers, tables, and the treatment of a packet.
//!
//! The crate has no sockets, no clock and no configuration text. It takes bytes and a snapshot of the tables, and
//! returns a verdict.
#![forbid(unsafe_code)]

mod balance;
pub mod build;
pub mod desired;
mod edit;
mod fast;
pub mod flow;
mod history;
mod icmp;
pub mod index;
mod limiter;
pub mod lpm;
pub mod offload;
mod own_sources;
mod path_mtu;
mod prefix_set;
pub mod reason;
mod sid_space;
mod slow;
pub mod tables;
pub mod tally;
pub mod trail;

pub use balance::{Balancer, Choosing, Member};
pub use build::{BuildError, Rank};
pub use fast::{Frames, InnerLookUps, Leaving, LookUpResult, LookUps, write_burst, write_one};
pub use history::Before;
pub use index::{Index, NeedsRebuild, OpLog, RebuildReason};
pub use limiter::{Bucket, Limiter};
pub use own_sources::own_sources;
pub use path_mtu::{PathMtu, comes_from_domain, learned};
pub use reason::DropReason;
pub use sid_space::LOCATOR_BITS;
pub use slow::{FurtherSum, SlowState, Verdict, forward_one, give_up, slow_path};
pub use srv6d_addresses::{carrier, prefix_map};
pub use srv6d_balance::{FarPorts, PortState};
pub use srv6d_fib::SLOTS;
pub use tables::{AdjacencyState, Tables};
pub use tally::{MOVES, Released, Slots, Tally};
pub use trail::{Explanation, explain, is_plain};
