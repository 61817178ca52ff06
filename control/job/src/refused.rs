//! Why a request about a job is refused.

use serde::{Deserialize, Serialize};

/// Reason of a refusal, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The configuration lets no job steer.
    NoJobsTable,
    /// The job itself is wrong.
    InvalidJob,
    /// More members, paths or links than the bounds.
    TooLarge,
    /// No topology is configured.
    NoTopology,
    /// The topology cannot be read.
    TopologyFailed,
    /// The job cannot be placed on the topology.
    CannotPlace,
    /// Too many jobs are being placed.
    Busy,
    /// The placement is not known here, or no longer.
    UnknownPlacement,
    /// Ranks were told of different jobs.
    MembersDisagree,
    /// The job is another user's, or the placement is another job's.
    ForeignJob,
    /// A newer generation of the job is here.
    StaleGeneration,
    /// The generation is not prepared here, or not by all ranks.
    NotPrepared,
    /// A path leads to a prefix that is not that member's.
    ForeignPrefix,
    /// No job may steer the prefix.
    PrefixNotAllowed,
    /// No job may use the carrier.
    CarrierNotAllowed,
    /// The daemon does not see the process that is to hold the member.
    UnseenProcess,
    /// The job is not here.
    UnknownJob,
    /// The rank is not here.
    UnknownRank,
}

impl Code {
    /// Returns the name of the code on the management socket.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoJobsTable => "no_jobs_table",
            Self::InvalidJob => "invalid_job",
            Self::TooLarge => "too_large",
            Self::NoTopology => "no_topology",
            Self::TopologyFailed => "topology_failed",
            Self::CannotPlace => "cannot_place",
            Self::Busy => "busy",
            Self::UnknownPlacement => "unknown_placement",
            Self::MembersDisagree => "members_disagree",
            Self::ForeignJob => "foreign_job",
            Self::StaleGeneration => "stale_generation",
            Self::NotPrepared => "not_prepared",
            Self::ForeignPrefix => "foreign_prefix",
            Self::PrefixNotAllowed => "prefix_not_allowed",
            Self::CarrierNotAllowed => "carrier_not_allowed",
            Self::UnseenProcess => "unseen_process",
            Self::UnknownJob => "unknown_job",
            Self::UnknownRank => "unknown_rank",
        }
    }
}

/// A refusal: what is wrong, and the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refused {
    /// The reason, for programs.
    pub code: Code,
    /// The reason with its fix, for people.
    pub why: String,
}

impl Refused {
    /// Makes a refusal.
    pub fn new(code: Code, why: impl Into<String>) -> Self {
        Self { code, why: why.into() }
    }
}
