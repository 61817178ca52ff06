//! What a campaign is to measure, and about how long that takes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::bars;
use crate::dut::{Dut, Forwarder};
use crate::frames::Size;
use crate::layout::Placement;
use crate::sink::SinkKind;
use crate::testbed::Mtu;
use crate::trial::Timing;

/// Making namespaces, starting the DUT, the frames before the first trial, and taking it all down.
const VISIT: Duration = Duration::from_millis(1600);
/// Emptying rings and reading counters, beside the time of the traffic.
const AROUND_TRIAL: Duration = Duration::from_millis(250);
/// A turn of srv6d or the floor: short beside whatever the machine does for a while.
pub(crate) const TURN: Duration = Duration::from_millis(5);
/// Reading counters and waking up, for a pair of turns.
const AROUND_TURN: Duration = Duration::from_millis(1);
/// Parts of the NDR, or of the PDR where there is no NDR, at which latency is measured, in percent.
pub(crate) const LOADS: [u32; 3] = [10, 50, 90];

/// What to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The srv6d to measure.
    pub srv6d: PathBuf,
    /// Cores to use.
    pub cores: Vec<usize>,
    /// Where the work runs, one after the other.
    pub placements: Vec<Placement>,
    /// Who forwards.
    pub duts: Vec<Dut>,
    /// Sizes of the floods.
    pub sizes: Vec<Size>,
    /// How frames end.
    pub sink: SinkKind,
    /// How often everything is measured.
    pub rounds: usize,
    /// How often what no promise is about is: other sizes, and several workers.
    pub other_rounds: usize,
    /// One trial.
    pub timing: Timing,
    /// Only one load where a placement has several.
    pub one_load: bool,
    /// Pairs of turns of srv6d and the floor; 0: none.
    pub pairs: usize,
    /// A trial that is worth nothing, or was disturbed, is repeated so often.
    pub repeats: u32,
    /// Sizes at which NDR and PDR are searched, with one worker; empty: no search, no latency.
    pub searched: Vec<Size>,
    /// Where they are.
    pub searched_in: Vec<Placement>,
    /// Numbers of workers of the floods over several queues; empty: none.
    pub workers: Vec<usize>,
    /// Threads that carry packets go before all others of the machine.
    pub first: bool,
    /// Set by a signal: end at the next step, and leave nothing behind.
    pub interrupted: Arc<AtomicBool>,
}

impl Plan {
    /// About how long it takes.
    pub fn estimate(&self) -> Duration {
        let (placements, duts) = (self.placements.len() as u32, self.duts.len() as u32);
        let trial = self.trial_length();
        let round = |sizes: Vec<Size>| {
            let frames = [Mtu::Standard, Mtu::Jumbo].map(|mtu| sizes.iter().any(|&size| Mtu::of(size) == mtu));
            VISIT * frames.into_iter().filter(|&is_there| is_there).count() as u32 + trial * sizes.len() as u32
        };
        let floods: Duration = (0..self.rounds).map(|number| round(self.sizes_of(number))).sum();
        let workers = (VISIT + trial * 2) * self.workers.len() as u32 * duts * self.other_rounds as u32;
        let loads = |placement: &Placement| if self.one_load { 1 } else { placement.loads().len() as u32 };
        let more: u32 = self.placements.iter().map(|placement| loads(placement) - 1).sum();
        let sizes: usize = (0..self.rounds).map(|number| self.sizes_of(number).len()).sum();
        let loads = trial * sizes as u32 * more * duts;
        floods * placements * duts
            + loads
            + workers
            + self.turns_length() * placements
            + self.search_length() * duts * self.searched_in.len() as u32
    }

    /// Sizes of the floods in one round.
    pub(crate) fn sizes_of(&self, round: usize) -> Vec<Size> {
        let is_due = |size: &&Size| round < self.other_rounds || bars::SIZES.contains(&size.to_string().as_str());
        self.sizes.iter().filter(is_due).copied().collect()
    }

    fn trial_length(&self) -> Duration {
        self.timing.before + self.timing.measured + AROUND_TRIAL
    }

    /// All turns in one placement: two sizes of each row of srv6d.
    fn turns_length(&self) -> Duration {
        let rows = self.duts.iter().filter(|dut| dut.forwarder == Forwarder::Srv6d).count() as u32;
        let pairs = (TURN * 22 / 10 + AROUND_TURN) * self.pairs as u32;
        if self.pairs == 0 { Duration::ZERO } else { (VISIT + pairs * 2) * rows }
    }

    /// Searches and latencies of one DUT: some ten trials each for NDR and PDR, the last twice as long.
    fn search_length(&self) -> Duration {
        if self.searched.is_empty() {
            return Duration::ZERO;
        }
        let latencies = VISIT + self.trial_length() * LOADS.len() as u32;
        (VISIT + self.trial_length() * 22) * self.searched.len() as u32 + latencies * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dut;

    fn plan(other_rounds: usize) -> Plan {
        Plan {
            srv6d: PathBuf::new(),
            cores: vec![0, 1],
            placements: vec![Placement::OneCore],
            duts: vec![crate::dut::LOSSY],
            sizes: [64, 512, 1500, 9000].map(Size::Bytes).to_vec(),
            sink: SinkKind::Xdp,
            rounds: 3,
            other_rounds,
            timing: Timing { before: Duration::ZERO, measured: Duration::from_millis(750) },
            one_load: true,
            pairs: 0,
            repeats: 0,
            searched: Vec::new(),
            searched_in: vec![Placement::OneCore],
            workers: Vec::new(),
            first: false,
            interrupted: Arc::default(),
        }
    }

    #[test]
    fn sizes_with_a_promise_are_measured_in_every_round_and_others_as_often_as_asked() {
        let sizes = |round| plan(1).sizes_of(round).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(sizes(0), ["64", "512", "1500", "9000"]);
        assert_eq!((sizes(1), sizes(2)), (vec!["64".to_owned(), "1500".to_owned()], sizes(1)));
        // Two visits for both MTUs and four trials of a second; then twice one visit and two trials.
        assert_eq!(plan(3).estimate(), Duration::from_millis(3 * (2 * 1600 + 4000)));
        assert_eq!(plan(1).estimate(), Duration::from_millis(2 * 1600 + 4000 + 2 * (1600 + 2000)));
    }

    #[test]
    fn turns_take_a_visit_of_each_row_of_srv6d_and_two_turns_a_pair_at_both_sizes() {
        let duts = ["srv6d-uN", "srv6d-uN-offload", "af_xdp-floor"].into_iter().filter_map(dut::named).collect();
        let plan = Plan { duts, pairs: 10, ..plan(1) };
        assert_eq!(plan.turns_length(), Duration::from_millis(1600 + 2 * 10 * (2 * 5 + 1 + 1)));
        assert_eq!(Plan { pairs: 0, ..plan }.turns_length(), Duration::ZERO);
    }
}
