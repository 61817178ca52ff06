//! What a controller publishes: one entry per peer, and how the asking goes.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use tokio::sync::{oneshot, watch};

use crate::allowed::Allowed;

/// What a source wants programmed, published as a whole. A peer that fails never touches another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// By id.
    pub peers: BTreeMap<String, Peer>,
    /// How the asking goes.
    pub health: Health,
}

impl Snapshot {
    /// Begins with what is published already: of peers that are still wanted, the last good paths stay, as far as they
    /// are still allowed.
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

/// Notes a failure; what was good stays, and is stale from now on.
pub(crate) fn fail(peer: &mut Peer, why: &str) {
    peer.last_error = Some(why.to_owned());
    peer.state = match (&peer.state, peer.prefixes.is_empty()) {
        (_, true) => PeerState::Missing,
        (PeerState::Stale { since }, false) => PeerState::Stale { since: *since },
        (_, false) => PeerState::Stale { since: SystemTime::now() },
    };
}

/// One destination.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peer {
    /// What to steer, and over which carriers.
    pub prefixes: Vec<PrefixPaths>,
    /// Whether that is what the controller says now.
    pub state: PeerState,
    /// What went wrong last, while something does.
    pub last_error: Option<String>,
    /// When its paths were last confirmed.
    pub synced: Option<SystemTime>,
    /// What deserves a look without being an error.
    pub notes: Vec<String>,
}

/// Paths of one prefix of a peer.
#[derive(Clone, Debug, PartialEq)]
pub struct PrefixPaths {
    /// Inner destinations.
    pub prefix: IpNet,
    /// Flows are hashed over these; never empty.
    pub paths: Vec<CarrierPath>,
}

impl PrefixPaths {
    /// The settings let a controller steer this prefix over these carriers.
    pub(crate) fn is_allowed(&self, allowed: &Allowed) -> bool {
        let segments = |path: &CarrierPath| allowed.segments(&path.segments).is_ok();
        allowed.prefix(self.prefix, None).is_ok() && self.paths.iter().all(segments)
    }
}

/// One path, ready to be programmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarrierPath {
    /// Name of its counters: stays while the path moves.
    pub name: String,
    /// Carriers, in the order they are visited.
    pub segments: Vec<Ipv6Addr>,
    /// Share of the flows.
    pub weight: u16,
    /// Names of the nodes it visits.
    pub via: Vec<String>,
}

/// How much a peer's paths can be relied on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PeerState {
    /// No answer yet.
    #[default]
    Waiting,
    /// As the controller said when it was last asked.
    Fresh,
    /// The last good ones: the controller has failed since.
    Stale {
        /// Since when.
        since: SystemTime,
    },
    /// There never were any.
    Missing,
}

/// Why asking failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// No connection.
    Connect,
    /// No answer in time.
    Timeout,
    /// An HTTP status that is not a success.
    Status,
    /// An answer that is no JSON of the expected shape, or was cut off.
    Body,
    /// `found: false`: no path, or no such vertex.
    NotFound,
    /// An id that the controller does not have.
    UnknownId,
    /// The answer is about another pair.
    WrongDestination,
    /// The path runs through something that is not in the topology.
    VanishedNode,
    /// No carrier can be made of the path.
    InvalidCarrier,
    /// The prefix or the carrier is none that a controller may decide on.
    NotAllowed,
    /// The graph has no such metric.
    NoMetric,
    /// The allocation was not kept in the controller's books.
    Bookkeeping,
    /// The controller refuses the request, or it would.
    Refused,
    /// The state file cannot be written.
    State,
}

impl Cause {
    /// Every cause.
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

    /// As a metric's label.
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

/// How the asking goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    /// Rounds begun.
    pub attempts: u64,
    /// Rounds that ended with every peer fresh.
    pub successes: u64,
    /// Failed requests and refused answers, by cause.
    pub failures: BTreeMap<Cause, u64>,
    /// When a round last ended with every peer fresh.
    pub last_success: Option<SystemTime>,
    /// What went wrong last, while something does.
    pub last_error: Option<String>,
    /// How long the last round took.
    pub last_duration: Duration,
    /// When the next round begins at the latest.
    pub next: Option<SystemTime>,
    /// Answers whose own text says another carrier than their path.
    pub mismatches: u64,
}

impl Health {
    /// Counts one failure.
    pub fn failed(&mut self, cause: Cause) {
        *self.failures.entry(cause).or_default() += 1;
    }
}

/// What a controller's task can be told.
#[derive(Debug)]
pub enum Command {
    /// Ask now, whatever the time.
    Sync,
    /// Give back what was allocated, and end.
    Stop {
        /// Told when that is done.
        done: oneshot::Sender<()>,
    },
}
