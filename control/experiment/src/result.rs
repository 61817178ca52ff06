//! The result of a run, as it is printed.

use serde::{Deserialize, Serialize};

/// The result of a run. It does not depend on the machine, so two runs of one seed are equal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Name of the case.
    pub case: String,
    /// Name of the mode.
    pub mode: String,
    /// The seed.
    pub seed: u64,
    /// Number of hosts of the fabric.
    pub hosts: u32,
    /// Number of transfers.
    pub transfers: usize,
    /// Number of transfers that were complete at the end of the run.
    pub complete: usize,
    /// Ideal time divided by the time that the transfers took; 0 if not all transfers were complete.
    pub goodput: f64,
    /// Virtual time of the run in seconds.
    pub seconds: f64,
    /// Completion times of transfers, in milliseconds since their start.
    pub completion_ms: Percentiles,
    /// Time of the transfer beside an incast, divided by its ideal time.
    pub victim: Option<f64>,
    /// Packets that arrived.
    pub packets: u64,
    /// Share of these packets that arrived after a later packet of their queue pair.
    pub reordered: f64,
    /// Packets that did not arrive.
    pub drops: Drops,
    /// Share of the packets that were marked.
    pub ce_marked: f64,
    /// Load of the busiest link between switches, divided by the mean load of all of them.
    pub busiest_by_mean: f64,
    /// Number of times that a queue pair got another path.
    pub moves: u64,
    /// Milliseconds from the beginning of the fault to the last packet that was lost at its link. `None`: no packet was
    /// lost there.
    pub recovery_ms: Option<f64>,
    /// Number of events that were simulated.
    pub events: u64,
}

/// Percentiles of a distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Median: half of the values are not above it.
    pub p50: f64,
    /// 99th percentile: 99 % of the values are not above it.
    pub p99: f64,
    /// Highest value.
    pub max: f64,
}

/// Packets that did not arrive, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// Packets that found the queue full.
    pub queue_full: u64,
    /// Packets that got lost on the wire.
    pub wire_loss: u64,
    /// Packets that found the port down.
    pub port_down: u64,
}

impl Percentiles {
    /// Returns the percentiles of values in ascending order.
    pub(crate) fn of(sorted: &[f64]) -> Self {
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).copied().unwrap_or_default()
        };
        Self { p50: at(50), p99: at(99), max: at(100) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occur() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(Percentiles::of(&values), Percentiles { p50: 100.0, p99: 198.0, max: 200.0 });
        assert_eq!(Percentiles::of(&[7.0]), Percentiles { p50: 7.0, p99: 7.0, max: 7.0 });
        assert_eq!(Percentiles::of(&[]), Percentiles::default());
    }
}
