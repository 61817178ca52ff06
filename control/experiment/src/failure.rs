//! Failures: the reasons why a run has no outcome.

use srv6d_placement::PlaceError;

use crate::exact::MOST_NODES;

/// The reason why a run has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The planner finds no placement.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The fabric is too large for real frames.
    #[error(
        "{count} nodes are too many for real frames: at most {MOST_NODES} are possible, hosts included\nfix: run it without \
         --exact, or write fewer leaves, spines or hosts"
    )]
    TooManyNodes {
        /// Number of nodes.
        count: u32,
    },
    /// A node refuses its configuration, or cannot compile it.
    #[error("{node} cannot be configured: {why}")]
    Refused {
        /// Name of the node.
        node: String,
        /// What is wrong.
        why: String,
    },
    /// A node has dropped or answered packets although no link has lost them.
    #[error("{node} has dropped or answered {count} packets ({reason}), which no link has lost: the run is not valid")]
    Dropped {
        /// Name of the node.
        node: String,
        /// Drop reason, or kind of the answer.
        reason: String,
        /// Number of packets.
        count: u64,
    },
}
