//! Jobs: hosts that send to each other, placed on the fabric all at once.
//!
//! ```text
//! Job ── placed by one daemon ──► Placement + RankPaths ── each rank hands its own to its daemon ──► Table ──► Offers
//!  └── digest: ranks that were told of another job are refused                                        └── leases, grace
//! ```
//!
//! A [`Job`] says who takes part and who sends to whom. A [`Placement`] says what the whole job takes of the fabric, and
//! [`RankPaths`] the paths of one rank. The [`Table`] of a daemon has the ranks that joined there, and says which of their
//! paths are offered to the plan. Nothing here reads a clock, a file or a socket.

#![forbid(unsafe_code)]

mod checked;
mod flows;
mod job;
mod placed;
mod refused;
mod table;

pub use checked::CheckedJob;
pub use flows::{HostFlow, flows};
pub use job::{Address, Job, Member, Pair, Pattern, Phase};
pub use placed::{Limits, Occupancy, PhaseLoad, Placement, RankPath, RankPaths, Replaces, Share, fingerprint};
pub use refused::{Code, Refused};
pub use table::{Join, Known, Lease, Membership, Prepared, Swept, Table};

/// Most members of a job.
pub const MOST_MEMBERS: usize = 65_536;
/// Most phases of a job.
pub const MOST_PHASES: usize = 16;
/// Most flows between hosts of a job, of all of its phases together: an all-to-all of 1,024 hosts.
pub const MOST_FLOWS: usize = 1 << 20;
/// Most paths of one rank.
pub const MOST_PATHS: usize = 65_536;
/// Most links of a fabric that one job occupies.
pub const MOST_LINKS: usize = 1 << 20;
