//! The state that a controller publishes: one entry per peer, and the health of the requests.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};

use crate::allowed::Allowed;

/// The paths that a source wants to have programmed, published as a whole. A failure of one peer never affects another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Peers by id.
    pub peers: BTreeMap<String, Peer>,
    /// Results of the requests so far.
    pub health: RequestResults,
}

impl Snapshot {
    /// Creates the first snapshot of a task and publishes it. Peers that are still wanted keep the last good paths of
    /// the snapshot published before, as far as these are still allowed.
    pub(crate) fn begin(
        publish: &watch::Sender<Arc<Self>>,
        peers: impl IntoIterator<Item = String>,
        may_stay: impl Fn(&PrefixPaths) -> bool,
    ) -> Self {
        let known = publish.borrow().clone();
        let stale = |id: &String| {
            let mut peer = known.peers.get(id).cloned().unwrap_or_default();
            peer.prefixes.retain(&may_stay);
            if !peer.prefixes.is_empty() {
                fail(&mut peer, "another controller, or other settings: not asked yet");
            }
            peer
        };
        let peers = peers.into_iter().map(|id| (id.clone(), stale(&id))).collect();
        let snapshot = Self { peers, ..Self::default() };
        publish.send_replace(Arc::new(snapshot.clone()));
        snapshot
    }
}

/// Records a failure of a peer. Its good paths stay, and are stale from now on.
pub(crate) fn fail(peer: &mut Peer, why: &str) {
    peer.last_error = Some(why.to_owned());
    peer.state = match (&peer.state, peer.prefixes.is_empty()) {
        (_, true) => PeerState::Missing,
        (PeerState::Stale { since }, false) => PeerState::Stale { since: *since },
        (_, false) => PeerState::Stale { since: SystemTime::now() },
    };
}

/// A peer: one destination of a source, with its paths.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peer {
    /// Prefixes to steer, and their carriers.
    pub prefixes: Vec<PrefixPaths>,
    /// Whether the paths are what the controller currently answers.
    pub state: PeerState,
    /// The last error, until the peer is fresh again.
    pub last_error: Option<String>,
    /// Time at which its paths were last confirmed.
    pub synced: Option<SystemTime>,
    /// Observations for the user that are not errors.
    pub notes: Vec<String>,
}

/// Paths of one prefix of a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrefixPaths {
    /// Prefix of the inner destination addresses.
    pub prefix: IpNet,
    /// Paths over which flows are distributed by hash; never empty.
    pub paths: Vec<CarrierPath>,
}

impl PrefixPaths {
    /// Returns whether the settings let a controller steer this prefix over these carriers.
    pub(crate) fn is_allowed(&self, allowed: &Allowed) -> bool {
        let segments = |path: &CarrierPath| allowed.segments(&path.segments).is_ok();
        allowed.prefix(self.prefix, None).is_ok() && self.paths.iter().all(segments)
    }
}

/// One path, ready to be programmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarrierPath {
    /// Name of the path's counters, which stays the same when the path moves.
    pub name: String,
    /// Carriers, in the order in which they are visited.
    pub segments: Vec<Ipv6Addr>,
    /// Relative share of the flows.
    pub weight: u16,
    /// Names of the nodes that the path visits. State files call it `via`.
    #[serde(rename = "via")]
    pub visits: Vec<String>,
}

/// How reliable the paths of a peer are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PeerState {
    /// There was no answer yet.
    #[default]
    Waiting,
    /// The paths are what the controller answered when it was last asked.
    Fresh,
    /// The paths are the last good ones, and the controller has failed since.
    Stale {
        /// Time of the first failure.
        since: SystemTime,
    },
    /// There were never any paths.
    Missing,
}

/// Cause of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// No connection was made.
    Connect,
    /// There was no answer in time.
    Timeout,
    /// The HTTP status is not a success.
    Status,
    /// The answer is not JSON of the expected shape, or was cut off.
    Body,
    /// The answer has `found: false`: there is no path, or no such vertex.
    NotFound,
    /// The controller does not know an id of the request.
    UnknownId,
    /// The answer is about another pair of vertices.
    WrongDestination,
    /// The path runs through a vertex or link that is not in the topology.
    VanishedNode,
    /// No carrier can be composed for the path.
    InvalidCarrier,
    /// The controller is not allowed to decide on the prefix or the carrier.
    NotAllowed,
    /// The graph does not have the requested metric.
    NoMetric,
    /// The controller did not record the allocation.
    Bookkeeping,
    /// The controller refuses the request, or the request is not sent because it would be refused.
    Refused,
    /// The state file cannot be read or written.
    State,
}

impl Cause {
    /// List of all causes.
    pub const ALL: [Self; 14] = [
        Self::Connect,
        Self::Timeout,
        Self::Status,
        Self::Body,
        Self::NotFound,
        Self::UnknownId,
        Self::WrongDestination,
        Self::VanishedNode,
        Self::InvalidCarrier,
        Self::NotAllowed,
        Self::NoMetric,
        Self::Bookkeeping,
        Self::Refused,
        Self::State,
    ];

    /// Returns the name of the cause as a label of a metric.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Status => "status",
            Self::Body => "body",
            Self::NotFound => "not_found",
            Self::UnknownId => "unknown_id",
            Self::WrongDestination => "wrong_destination",
            Self::VanishedNode => "vanished_node",
            Self::InvalidCarrier => "invalid_carrier",
            Self::NotAllowed => "not_allowed",
            Self::NoMetric => "no_metric",
            Self::Bookkeeping => "bookkeeping",
            Self::Refused => "refused",
            Self::State => "state",
        }
    }
}

/// Results of the requests to a controller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestResults {
    /// Number of rounds that were begun.
    pub attempts: u64,
    /// Number of rounds after which every peer was fresh.
    pub successes: u64,
    /// Number of failed requests and refused answers, by cause.
    pub failures: BTreeMap<Cause, u64>,
    /// Time at which a round last ended with every peer fresh.
    pub last_success: Option<SystemTime>,
    /// The last error, until a round ends with every peer fresh.
    pub last_error: Option<String>,
    /// Why the state file cannot store allocations at present. Paths are not affected.
    pub state_error: Option<String>,
    /// Duration of the last round.
    pub last_duration: Duration,
    /// Latest time at which the next round begins.
    pub next: Option<SystemTime>,
    /// Number of answers whose own text contains another carrier than their path.
    pub mismatches: u64,
}

impl RequestResults {
    /// Counts one failure.
    pub fn failed(&mut self, cause: Cause) {
        *self.failures.entry(cause).or_default() += 1;
    }
}

/// A command for the task of a controller.
#[derive(Debug)]
pub enum Command {
    /// Ask the controller now, without waiting for the next round.
    Sync,
    /// Release what was allocated, and end.
    Stop {
        /// Is notified when that is done.
        done: oneshot::Sender<()>,
    },
}
