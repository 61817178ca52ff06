//! `[jobs]`: jobs that may steer traffic of this node.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::{IpNet, Ipv6Net};
use serde::Serialize;
use toml::Spanned;

use super::schema::Optional;
use super::sources::optional_duration;
use super::table::{Record, Table};

/// `[jobs]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Jobs {
    /// Prefixes that contain everything that jobs may steer.
    pub allowed_prefixes: Vec<Spanned<IpNet>>,
    /// Prefixes that contain all carriers of jobs; empty means every carrier in a block of the node.
    pub allowed_carriers: Vec<Spanned<Ipv6Net>>,
    /// File with the topology on which jobs are placed; default: the graph of `[jalapeno]`.
    pub topology: Optional<PathBuf>,
    /// Time between two looks at the topology, whether jobs that were placed here should be placed again; default 1 min.
    #[serde(serialize_with = "optional_duration")]
    pub topology_interval: Optional<Duration>,
    /// Time for which the paths of a rank stay when its process is gone or its lease is over, default 30 s.
    #[serde(serialize_with = "optional_duration")]
    pub grace: Optional<Duration>,
    /// File that keeps the ranks over a restart; default: beside the management socket.
    pub state: Optional<PathBuf>,
}

impl Jobs {
    /// Returns the time between two looks at the topology.
    pub fn topology_interval(&self) -> Duration {
        self.topology_interval.as_ref().map_or(Duration::from_mins(1), |interval| *interval.get_ref())
    }

    /// Returns the time for which the paths of a rank stay when its process is gone or its lease is over.
    pub fn grace(&self) -> Duration {
        self.grace.as_ref().map_or(Duration::from_secs(30), |grace| *grace.get_ref())
    }
}

impl Record for Jobs {
    const HEADER: &'static str = "[jobs]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let allowed_prefixes = table.required_list("allowed_prefixes");
        let allowed_carriers = table.list("allowed_carriers");
        let topology = table.optional("topology");
        let topology_interval = table.optional("topology_interval");
        let grace = table.optional("grace");
        let state = table.optional("state");
        Some(Self { allowed_prefixes, allowed_carriers, topology, topology_interval, grace, state })
    }
}
