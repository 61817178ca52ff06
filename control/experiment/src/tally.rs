//! Counters of a simulation while it runs.

use crate::agenda::Ps;
use crate::heat::Heat;

/// Counts of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunCounts {
    /// Packets that arrived.
    pub arrived: u64,
    /// Packets that arrived after a later packet of their queue pair. Packets that were sent again do not count.
    pub reordered: u64,
    /// Number of times that a queue pair got another spine than for its last packet.
    pub moves: u64,
    /// Number of jobs that are complete.
    pub complete: usize,
    /// Time at which the last packet was lost at the faulty link.
    pub last_loss: Option<Ps>,
    /// Packets that the ports of the faulty link have lost, by the node that they belong to.
    pub lost_at_fault: Vec<(u32, u64)>,
    /// Load of the links, if it is watched.
    pub heat: Option<Heat>,
}
