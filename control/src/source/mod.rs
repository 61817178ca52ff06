//! What is wanted in force beside the file: sources make offers, and the planner judges each entry by itself.
//!
//! ```text
//! controller (Jalapeno, syd) ──► Snapshot ──► Offer ─┐
//! srv6d.toml ────────────────────────────────────────┼─► plan ─► generation
//! kernel (links, addresses, neighbours) ─────────────┘
//! ```
//!
//! An offer can be absent, late or wrong without harm to the file or to other offers: an entry that does not fit is
//! left out and named, everything else stands.

pub mod last_good;
pub mod running;
mod settings;
pub mod view;

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use srv6d_srv6::model::TableId;

/// Everything one source wants at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Name of the source: `jalapeno`, `syd`.
    pub source: String,
    /// Prefixes to steer.
    pub steers: Vec<OfferedSteer>,
}

/// One prefix that a source wants encapsulated. Two are equal when they offer the same, whatever was in force before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfferedSteer {
    /// What it is called in the source: the id of the peer.
    pub peer: String,
    /// Inner destinations.
    pub prefix: IpNet,
    /// Table of the prefix.
    pub table: u32,
    /// H.Encaps instead of H.Encaps.Red.
    pub full_srh: bool,
    /// Outer source address; default: the node's.
    pub source: Option<Ipv6Addr>,
    /// Explicit next hop; default: the route to the first segment.
    pub via: Option<IpAddr>,
    /// Port of the explicit next hop.
    pub port: Option<String>,
    /// Flows are hashed over these.
    pub paths: Vec<OfferedPath>,
    /// Paths that were in force before: they stay until one of `paths` can be. Empty: there were none.
    #[serde(default)]
    pub last_good: Vec<OfferedPath>,
}

impl PartialEq for OfferedSteer {
    fn eq(&self, other: &Self) -> bool {
        let Self { peer, prefix, table, full_srh, source, via, port, paths, last_good: _ } = self;
        (peer, prefix, table, full_srh) == (&other.peer, &other.prefix, &other.table, &other.full_srh)
            && (source, via, port, paths) == (&other.source, &other.via, &other.port, &other.paths)
    }
}

impl Eq for OfferedSteer {}

/// One path of an offered prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedPath {
    /// Name of its counters.
    pub name: String,
    /// Carriers, in the order they are visited.
    pub segments: Vec<Ipv6Addr>,
    /// Share of the flows.
    pub weight: u16,
}

/// What became of one offered prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Name of the source.
    pub source: String,
    /// Id of the peer.
    pub peer: String,
    /// Inner destinations.
    pub prefix: IpNet,
    /// Table of the prefix.
    pub table: TableId,
    /// Accepted, or why not.
    pub state: OutcomeState,
}

/// Whether an offered prefix is in the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutcomeState {
    /// It is.
    Programmed,
    /// With the paths that were in force before: why those that are offered now are not.
    Kept(String),
    /// Right, and waiting for something that does not exist yet.
    Pending(String),
    /// Left out.
    Refused(String),
}
