//! Cisco's Jalapeno path API (and `srv6d path-server`, which speaks it): every route is a GET, nothing is pushed, and
//! `found` is the only sign of success.

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

pub use discover::Discovery;
pub use job::{JobError, read as read_job};
pub use task::run;

use crate::allowed::Allowed;

/// What a path is chosen by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// Fewest hops.
    Shortest,
    /// Least latency.
    Latency,
    /// Least utilised links.
    Utilization,
    /// Least loaded by earlier allocations. Asking allocates, so each pair is asked once.
    Load,
    /// Fewest hops outside of some countries.
    Sovereignty {
        /// ISO 3166-1 alpha-3, as the graph's edges carry them.
        excluded: Vec<String>,
    },
    /// The shortest few; of these, those with the fewest hops.
    BestPaths {
        /// How many to ask for.
        limit: u16,
    },
    /// All of the shortest.
    NextBestPath {
        /// How many to ask for.
        limit: u16,
    },
    /// So that the busiest link carries as little as possible when this node and all its peers send to each other. Only
    /// `srv6d path-server` knows it.
    Placed,
}

impl PathKind {
    /// The route below `/graphs/{g}`, and its own parameters.
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

    /// Keys of edges whose change may move a path. Loads are none: asking by load changes them.
    const fn watched(&self) -> &'static [&'static str] {
        match self {
            Self::Latency => &["latency"],
            Self::Utilization => &["percent_util_out"],
            Self::Sovereignty { .. } => &["country_codes"],
            Self::Placed => &["capacity", "up"],
            _ => &[],
        }
    }

    /// The attribute of edges it reads; without it the answer would silently be a hop count. Loads need not be there:
    /// asking by load adds them.
    const fn weight(&self) -> Option<&'static str> {
        match self {
            Self::Latency => Some("latency"),
            Self::Utilization => Some("percent_util_out"),
            _ => None,
        }
    }
}

/// Everything the task needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Base URL, with or without `/api/v1`.
    pub endpoint: String,
    /// Graph.
    pub graph: String,
    /// Id of this node's vertex.
    pub source: String,
    /// Ids of the peers' vertices; this node's own is left out.
    pub peers: Vec<String>,
    /// What paths are chosen by.
    pub kind: PathKind,
    /// Flexible algorithm.
    pub algo: u8,
    /// Pin every link by its uA.
    pub strict: bool,
    /// Function of the last node for IPv6 inside, where no SID says it.
    pub function_v6: Option<u16>,
    /// The same for IPv4 inside.
    pub function_v4: Option<u16>,
    /// Certificates (PEM) that the one of an `https` endpoint must be signed by; `None`: the system's.
    pub ca: Option<String>,
    /// Time between two looks.
    pub interval: Duration,
    /// Time for one answer.
    pub timeout: Duration,
    /// Bytes of answers that are held at a time.
    pub max_answer: usize,
    /// The prefixes that the controller may steer.
    pub allowed: Allowed,
    /// Requests at a time.
    pub concurrency: usize,
    /// File that remembers allocations of [`PathKind::Load`] across restarts.
    pub state: Option<PathBuf>,
}

impl Settings {
    /// Shortest paths of one host, to nobody yet, and all else as it is by default.
    pub fn new(endpoint: &str, graph: &str, source: &str) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            graph: graph.to_owned(),
            source: source.to_owned(),
            peers: Vec::new(),
            kind: PathKind::Shortest,
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

/// Ids go into the text of database queries at the other end: nothing but what ids are made of leaves here.
pub fn is_id(text: &str) -> bool {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "_.:/-".contains(c);
    let one_slash = text.split('/').filter(|part| !part.is_empty()).count() == 2 && text.matches('/').count() == 1;
    one_slash && text.chars().all(harmless)
}
