//! Steered prefixes that a source offers, and what becomes of them.
//!
//! A source is a path controller, a job, FRR or the kernel. An offer may be absent, late or wrong without harm to the file or
//! to other offers: an entry that does not fit is left out and listed, and all others stay.

#![forbid(unsafe_code)]

mod last_good;

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use srv6d_addresses::TableId;

pub use last_good::with_last_good;

/// Beginning of the names of the sources that jobs are.
const JOB: &str = "job:";

/// Returns the name of a job among the sources.
pub fn job_source(id: &str) -> String {
    format!("{JOB}{id}")
}

/// Returns whether the source of that name is a job.
pub fn is_job(source: &str) -> bool {
    source.starts_with(JOB)
}

/// Everything that one source offers at one moment. Two offers are equal if they offer the same, whatever was in
/// force before.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Offer {
    /// Name of the source: `jalapeno`, `syd`, `fpm`, `kernel`, or that of a job ([`job_source`]).
    pub source: String,
    /// Prefixes to steer.
    pub steers: Vec<OfferedSteer>,
    /// Prefixes in force whose peers offer other prefixes instead now. They stay if the new prefix is refused.
    #[serde(default)]
    pub gone: Vec<OfferedSteer>,
}

impl PartialEq for Offer {
    fn eq(&self, other: &Self) -> bool {
        let Self { source, steers, gone: _ } = self;
        (source, steers) == (&other.source, &other.steers)
    }
}

impl Eq for Offer {}

/// One prefix that a source wants to be encapsulated. Two are equal if they offer the same, whatever was in force
/// before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfferedSteer {
    /// Name of the entry in the source: the id of the peer.
    pub peer: String,
    /// Prefix of inner destinations.
    pub prefix: IpNet,
    /// Table of the prefix.
    pub table: u32,
    /// Whether H.Encaps is used instead of H.Encaps.Red.
    pub full_srh: bool,
    /// Outer source address. The default is that of the node.
    pub source: Option<Ipv6Addr>,
    /// Explicit next hop. The default is the route to the first segment.
    pub via: Option<IpAddr>,
    /// Port of the explicit next hop.
    pub port: Option<String>,
    /// Paths, over which flows are hashed.
    pub paths: Vec<OfferedPath>,
    /// Paths that were in force before. They stay until one of `paths` can be in force. It is empty if there were
    /// none.
    #[serde(default)]
    pub last_good: Vec<OfferedPath>,
    /// Whether paths of the prefix are in force: those of `paths`, or those of `last_good`.
    #[serde(default)]
    pub is_in_force: bool,
}

impl PartialEq for OfferedSteer {
    fn eq(&self, other: &Self) -> bool {
        let Self { peer, prefix, table, full_srh, source, via, port, paths, last_good: _, is_in_force: _ } = self;
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

/// The outcome of one offered prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferOutcome {
    /// Name of the source.
    pub source: String,
    /// Id of the peer.
    pub peer: String,
    /// Prefix of inner destinations.
    pub prefix: IpNet,
    /// Table of the prefix.
    pub table: TableId,
    /// Whether it is in the plan, or the reason why not.
    pub state: OutcomeState,
}

/// Whether an offered prefix is in the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutcomeState {
    /// It is in the plan.
    Programmed,
    /// It is in the plan with the paths that were in force before. The text is the reason why those offered now are
    /// not.
    Kept(String),
    /// It is right, and waits for something that does not exist yet.
    Pending(String),
    /// It is left out.
    Refused(String),
}
