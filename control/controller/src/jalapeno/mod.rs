//! Client of Cisco's Jalapeno path API, which `srv6d path-server` also serves. Every route is a GET, the server pushes
//! nothing, and `found` is the only sign of success.

mod allocations;
mod answer;
mod asker;
mod client;
mod discover;
pub mod environment;
mod job;
mod known;
mod pace;
mod peer;
mod retries;
mod task;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

pub use discover::{Blocks, Discovery};
pub use job::{JobError, read as read_job};
pub use task::run;

use crate::allowed::Allowed;
use crate::failure::Failure;

/// Asks a controller once for the topology of its graph, as JSON.
///
/// # Errors
/// If there is no answer within `patience`, or one that is not JSON.
pub async fn topology_document(settings: &Settings, patience: Duration) -> Result<serde_json::Value, Failure> {
    client::Client::new(settings)?.document(patience).await
}

/// Criterion by which the controller selects a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Criterion {
    /// Fewest hops.
    Shortest,
    /// Least latency.
    Latency,
    /// Lowest utilisation of links.
    Utilization,
    /// Lowest load by earlier allocations. A request allocates, so each pair is requested once.
    Load,
    /// Fewest hops without links in the excluded countries.
    Sovereignty {
        /// Country codes in ISO 3166-1 alpha-3, as the graph's edges contain them.
        excluded: Vec<String>,
    },
    /// Several short paths, of which those with the fewest hops are used.
    BestPaths {
        /// Number of paths to ask for.
        limit: u16,
    },
    /// All paths with the fewest hops.
    NextBestPath {
        /// Number of paths to ask for.
        limit: u16,
    },
    /// Paths for which the busiest link carries as little as possible when this node and all its peers send to each
    /// other. Only `srv6d path-server` has this route.
    Placed,
}

impl Criterion {
    /// Returns the route below `/graphs/{g}`, and its own parameters.
    fn route(&self) -> (&'static str, BTreeMap<&'static str, String>) {
        let (route, parameter) = match self {
            Self::Shortest => ("shortest_path", None),
            Self::Latency => ("shortest_path/latency", None),
            Self::Utilization => ("shortest_path/utilization", None),
            Self::Load => ("shortest_path/load", None),
            Self::Placed => ("shortest_path/placed", None),
            Self::Sovereignty { excluded } => {
                ("shortest_path/sovereignty", Some(("excluded_countries", excluded.join(","))))
            }
            Self::BestPaths { limit } => ("shortest_path/best-paths", Some(("limit", limit.to_string()))),
            Self::NextBestPath { limit } => {
                ("shortest_path/next-best-path", Some(("same_hop_limit", limit.to_string())))
            }
        };
        (route, parameter.into_iter().collect())
    }

    /// Returns the keys of edges whose change may move a path. Loads are not among them, because requests by load
    /// change them.
    const fn watched(&self) -> &'static [&'static str] {
        match self {
            Self::Latency => &["latency"],
            Self::Utilization => &["percent_util_out"],
            Self::Sovereignty { .. } => &["country_codes"],
            Self::Placed => &["capacity", "up"],
            _ => &[],
        }
    }

    /// Returns the attribute of edges that the controller needs for the selection; without it, the answer would
    /// silently be by hop count. Loads are not required, because requests by load add them.
    const fn weight(&self) -> Option<&'static str> {
        match self {
            Self::Latency => Some("latency"),
            Self::Utilization => Some("percent_util_out"),
            _ => None,
        }
    }
}

/// Settings of the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Base URL, with or without `/api/v1`.
    pub endpoint: String,
    /// Name of the graph.
    pub graph: String,
    /// Id of this node's vertex.
    pub source: String,
    /// Ids of the peers' vertices. An entry for this node itself is ignored.
    pub peers: Vec<String>,
    /// Criterion by which paths are selected.
    pub kind: Criterion,
    /// Flexible algorithm.
    pub algo: u8,
    /// True if every link is pinned by its uA.
    pub strict: bool,
    /// Function of the last node for IPv6 inside, if no SID provides one.
    pub function_v6: Option<u16>,
    /// Function of the last node for IPv4 inside, if no SID provides one.
    pub function_v4: Option<u16>,
    /// CA certificates (PEM) for an `https` endpoint; `None` means those of the system.
    pub ca: Option<String>,
    /// Time between two rounds.
    pub interval: Duration,
    /// Maximum time for one answer.
    pub timeout: Duration,
    /// Maximum number of bytes of answers that are held at a time.
    pub max_answer: usize,
    /// Limits on the prefixes that the controller may steer, and on the carriers.
    pub allowed: Allowed,
    /// Maximum number of simultaneous requests.
    pub concurrency: usize,
    /// File that keeps allocations of [`Criterion::Load`] across restarts.
    pub state: Option<PathBuf>,
}

impl Settings {
    /// Returns settings for shortest paths of one host, still without peers. All other settings are the defaults.
    pub fn new(endpoint: &str, graph: &str, source: &str) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            graph: graph.to_owned(),
            source: source.to_owned(),
            peers: Vec::new(),
            kind: Criterion::Shortest,
            algo: 0,
            strict: false,
            function_v6: None,
            function_v4: None,
            ca: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(3),
            max_answer: crate::MAX_ANSWER,
            allowed: Allowed::default(),
            concurrency: 8,
            state: None,
        }
    }
}

/// Largest number of bytes of an id. The database takes names of collections and keys of up to 256 bytes each.
const MAX_ID: usize = 512;

/// Returns whether a text is an id of the form `collection/key`. Ids become part of database queries at the server, so
/// no other characters than those of ids may be sent.
pub fn is_id(text: &str) -> bool {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "_.:/-".contains(c);
    let one_slash = text.split('/').filter(|part| !part.is_empty()).count() == 2 && text.matches('/').count() == 1;
    text.len() <= MAX_ID && one_slash && text.chars().all(harmless)
}
