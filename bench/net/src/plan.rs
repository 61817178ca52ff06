//! What a campaign measures, and how long that takes approximately.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::bars;
use crate::dut::{Dut, Forwarder};
use crate::frames::Size;
use crate::layout::{Layout, SinkPlacement};
use crate::progress::Kind;
use crate::sink::SinkKind;
use crate::testbed::Mtu;
use crate::trial::Timing;

/// Time to create namespaces, start the DUT, send the first frames, and remove everything.
const VISIT: Duration = Duration::from_millis(1600);
/// Time to empty rings and read counters, in addition to the time of the traffic.
const AROUND_TRIAL: Duration = Duration::from_millis(250);
/// Length of a turn of srv6d or the floor; it is short compared with temporary disturbances of the machine.
pub(crate) const TURN: Duration = Duration::from_millis(5);
/// Time to read counters and wake up, for each pair of turns.
const AROUND_TURN: Duration = Duration::from_millis(1);
/// Fractions of the NDR (of the PDR, if there is no NDR) at which latency is measured, in percent.
pub(crate) const LOADS: [u32; 3] = [10, 50, 90];

/// Settings of a campaign.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The srv6d to measure.
    pub srv6d: PathBuf,
    /// Cores to use.
    pub cores: Vec<usize>,
    /// Placements, in the order in which they are measured.
    pub placements: Vec<SinkPlacement>,
    /// Rows to measure.
    pub duts: Vec<Dut>,
    /// Rows that are measured completely; the others are measured only in the first placement, at the first size.
    /// `None`: all rows are measured completely.
    pub thorough: Option<Vec<Dut>>,
    /// Frame sizes of the floods.
    pub sizes: Vec<Size>,
    /// Where and how frames end.
    pub sink: SinkKind,
    /// Number of rounds.
    pub rounds: usize,
    /// Number of rounds for sizes without a promise and for several workers.
    pub other_rounds: usize,
    /// Length of one trial.
    pub timing: Timing,
    /// Whether only one load is offered in placements that have several.
    pub one_load: bool,
    /// Number of pairs of turns of srv6d and the floor; 0: none.
    pub pairs: usize,
    /// Number of repetitions of a trial that is void or disturbed.
    pub repeats: u32,
    /// Frame sizes at which NDR and PDR are searched, with one worker. Empty: no search and no latency.
    pub searched: Vec<Size>,
    /// Placements in which they are searched.
    pub searched_in: Vec<SinkPlacement>,
    /// A search ends when its bounds differ by at most this share.
    pub gap: f64,
    /// Numbers of workers in floods over several queues; empty: none.
    pub workers: Vec<usize>,
    /// Whether threads that carry packets get priority over all others of the machine.
    pub first: bool,
    /// Set by a signal: the run then ends at the next step and cleans up.
    pub interrupted: Arc<AtomicBool>,
}

impl Plan {
    /// Returns the approximate duration of the whole run.
    pub fn estimate(&self) -> Duration {
        self.steps().into_iter().map(|(_, length)| length).sum()
    }

    /// Returns the approximate duration of each step for which this machine has enough cores, in order within each
    /// kind.
    pub fn steps(&self) -> Vec<(Kind, Duration)> {
        let times = |step, times: usize| std::iter::repeat_n(step, times);
        let (placements, searched_in) = (self.that_fit(&self.placements), self.that_fit(&self.searched_in));
        let (rows, trial) = (self.thorough().count(), self.trial_length());
        let mut steps = Vec::new();
        for round in 0..self.rounds {
            for &placement in &placements {
                let visits =
                    self.duts.iter().flat_map(|dut| self.visits(&self.sizes_of(round, placement, dut), placement));
                steps.extend(visits.map(|length| (Kind::Flood, length)));
            }
        }
        let in_turns = placements.iter().map(|&placement| self.in_turns(placement).count()).sum();
        steps.extend(times((Kind::Turns, self.turns_length()), in_turns));
        let workers = self.workers.iter().filter(|&&workers| Layout::queues(workers, &self.cores).is_ok()).count();
        steps.extend(times((Kind::Workers, VISIT + trial * 2), workers * rows * self.other_rounds));
        // A search has trials for the NDR and for the PDR, and the last one of each is twice as long.
        let trials = 2 * (5 + (1.0 / self.gap).log2().ceil() as u32);
        let searches = self.searched.len() * searched_in.len() * rows;
        steps.extend(times((Kind::Search, VISIT + trial * trials), searches));
        if searches > 0 {
            // Latencies are measured in one more placement, `Inline`.
            let latencies = self.searched.len() * (searched_in.len() + 1) * rows;
            steps.extend(times((Kind::Latency, VISIT + trial * LOADS.len() as u32), latencies));
        }
        steps
    }

    /// Returns the placements for which this machine has enough cores.
    fn that_fit(&self, placements: &[SinkPlacement]) -> Vec<SinkPlacement> {
        let fits = |placement: &SinkPlacement| Layout::of(*placement, &self.cores).is_ok();
        placements.iter().copied().filter(fits).collect()
    }

    /// Returns the duration of the visits of one row in one round, one for each MTU.
    fn visits(&self, sizes: &[Size], placement: SinkPlacement) -> Vec<Duration> {
        let loads = if self.one_load { 1 } else { placement.loads().len() as u32 };
        let trials = |mtu| sizes.iter().filter(|&&size| Mtu::of(size) == mtu).count() as u32 * loads;
        let visit = |trials| VISIT + self.trial_length() * trials;
        [Mtu::Standard, Mtu::Jumbo].map(trials).into_iter().filter(|&trials| trials > 0).map(visit).collect()
    }

    /// Returns the rows that are measured completely.
    pub(crate) fn thorough(&self) -> impl Iterator<Item = &Dut> {
        self.duts.iter().filter(|dut| self.is_thorough(dut))
    }

    fn is_thorough(&self, dut: &Dut) -> bool {
        self.thorough.as_ref().is_none_or(|thorough| thorough.contains(dut))
    }

    /// Returns whether this is the placement in which every row is measured.
    fn is_first(&self, placement: SinkPlacement) -> bool {
        self.that_fit(&self.placements).first() == Some(&placement)
    }

    /// Returns the rows that take turns with the floor.
    pub(crate) fn in_turns(&self, placement: SinkPlacement) -> impl Iterator<Item = &Dut> {
        let has_floor = self.duts.iter().any(|dut| dut.forwarder == Forwarder::AfXdpFloor);
        let is_first = self.is_first(placement);
        let takes_turns = move |dut: &&Dut| self.pairs > 0 && has_floor && dut.forwarder == Forwarder::Srv6d;
        self.duts.iter().filter(takes_turns).filter(move |dut| is_first || self.is_thorough(dut))
    }

    /// Returns the frame sizes of the turns: those of the promises.
    pub(crate) fn sizes_in_turns(&self) -> impl Iterator<Item = Size> {
        self.sizes.iter().copied().filter(is_promised)
    }

    /// Returns the frame sizes of the floods of a row in one round.
    pub(crate) fn sizes_of(&self, round: usize, placement: SinkPlacement, dut: &Dut) -> Vec<Size> {
        let is_due = |size: &Size| round < self.other_rounds || is_promised(size);
        let due = self.sizes.iter().copied().filter(is_due);
        match (self.is_thorough(dut), self.is_first(placement)) {
            (true, _) => due.collect(),
            (false, true) => due.take(1).collect(),
            (false, false) => Vec::new(),
        }
    }

    fn trial_length(&self) -> Duration {
        self.timing.before + self.timing.measured + AROUND_TRIAL
    }

    /// Returns the duration of the turns of one row in one placement.
    fn turns_length(&self) -> Duration {
        let pairs = (TURN * 22 / 10 + AROUND_TURN) * self.pairs as u32;
        VISIT + pairs * self.sizes_in_turns().count() as u32
    }
}

/// Returns whether there is a promise for this size.
fn is_promised(size: &Size) -> bool {
    bars::SIZES.contains(&size.to_string().as_str())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a failure is the test's failure")]

    use super::*;
    use crate::dut;

    fn plan(other_rounds: usize) -> Plan {
        Plan {
            srv6d: PathBuf::new(),
            cores: vec![0, 1],
            placements: vec![SinkPlacement::OneCore],
            duts: vec![crate::dut::LOSSY],
            thorough: None,
            sizes: [64, 512, 1500, 9000].map(Size::Bytes).to_vec(),
            sink: SinkKind::Xdp,
            rounds: 3,
            other_rounds,
            timing: Timing { before: Duration::ZERO, measured: Duration::from_millis(750) },
            one_load: true,
            pairs: 0,
            repeats: 0,
            searched: Vec::new(),
            searched_in: vec![SinkPlacement::OneCore],
            gap: 0.02,
            workers: Vec::new(),
            first: false,
            interrupted: Arc::default(),
        }
    }

    #[test]
    fn sizes_with_a_promise_are_measured_in_every_round_and_others_as_often_as_asked() {
        let due = |round| plan(1).sizes_of(round, SinkPlacement::OneCore, &dut::LOSSY);
        let sizes = |round| due(round).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(sizes(0), ["64", "512", "1500", "9000"]);
        assert_eq!((sizes(1), sizes(2)), (vec!["64".to_owned(), "1500".to_owned()], sizes(1)));
        // A round with all sizes has two visits, one for each MTU, and four trials of a second. The two other rounds
        // have one visit and two trials each.
        assert_eq!(plan(3).estimate(), Duration::from_millis(3 * (2 * 1600 + 4000)));
        assert_eq!(plan(1).estimate(), Duration::from_millis(2 * 1600 + 4000 + 2 * (1600 + 2000)));
    }

    /// Returns the number of steps of a kind, and the length of one in milliseconds.
    fn steps(plan: &Plan, kind: Kind) -> (usize, Option<u128>) {
        let lengths: Vec<Duration> =
            plan.steps().into_iter().filter(|step| step.0 == kind).map(|step| step.1).collect();
        (lengths.len(), lengths.first().map(Duration::as_millis))
    }

    #[test]
    fn turns_take_a_visit_of_each_row_of_srv6d_and_two_turns_a_pair_at_both_sizes() {
        let named = |names: &[&str]| names.iter().copied().filter_map(dut::named).collect();
        let duts = named(&["srv6d-uN", "srv6d-uN-offload", "af_xdp-floor"]);
        let plan = Plan { duts, pairs: 10, ..plan(1) };
        assert_eq!(steps(&plan, Kind::Turns), (1, Some(1600 + 2 * 10 * (2 * 5 + 1 + 1))));
        assert_eq!(steps(&Plan { duts: named(&["srv6d-uN"]), ..plan.clone() }, Kind::Turns), (0, None));
        assert_eq!(steps(&Plan { pairs: 0, ..plan }, Kind::Turns), (0, None));
    }

    #[test]
    fn searches_and_latencies_are_of_every_row_at_every_size_and_latencies_once_inline_too() {
        let duts = vec![dut::LOSSY; 3];
        let plan = Plan { duts, searched: vec![Size::Bytes(64), Size::Imix], ..plan(1) };
        assert_eq!(steps(&plan, Kind::Search), (6, Some(1600 + 22 * 1000)));
        assert_eq!(steps(&plan, Kind::Latency), (12, Some(1600 + 3 * 1000)));
        assert_eq!(steps(&Plan { searched: Vec::new(), ..plan }, Kind::Latency), (0, None));
    }

    #[test]
    fn rows_that_are_not_thorough_are_flooded_once_where_there_are_cores() {
        let (own, one) = (SinkPlacement::SinkOnOwnCore, SinkPlacement::OneCore);
        let named = |name| dut::named(name).into_iter();
        let duts: Vec<Dut> = named("linux-uN").chain(named("srv6d-uN")).chain(named("srv6d-forward")).collect();
        let rest = Plan {
            placements: vec![own, one],
            duts: duts.clone(),
            thorough: Some(named("srv6d-uN").collect()),
            searched: vec![Size::Bytes(64)],
            workers: vec![1],
            rounds: 1,
            ..plan(1)
        };
        let lengths = |placement| duts.iter().map(|dut| rest.sizes_of(0, placement, dut).len()).collect::<Vec<_>>();
        assert_eq!((lengths(one), lengths(own)), (vec![1, 4, 1], vec![0, 4, 0]));
        let many = Plan { cores: vec![0, 1, 2, 3], ..rest.clone() };
        assert_eq!(many.sizes_of(0, own, &duts[0]), [Size::Bytes(64)]);
        for kind in [Kind::Search, Kind::Workers] {
            assert_eq!(steps(&rest, kind).0, 1);
        }
        // The row that is measured completely takes two visits, because it also has long frames.
        assert_eq!((steps(&rest, Kind::Flood).0, steps(&many, Kind::Flood).0), (3 + 2 - 1, 3 + 2 - 1 + 2));
        let floor = named("af_xdp-floor");
        let in_turns = Plan { duts: duts.into_iter().chain(floor).collect(), pairs: 1, ..many };
        assert_eq!(steps(&in_turns, Kind::Turns).0, 2 + 1);
    }

    #[test]
    fn what_the_machine_has_too_few_cores_for_takes_no_time() {
        let fits = Plan { workers: vec![1], searched: vec![Size::Bytes(64)], ..plan(1) };
        let placements = vec![SinkPlacement::OneCore, SinkPlacement::SinkOnOwnCore];
        let plan = Plan { workers: vec![1, 2], searched_in: placements.clone(), placements, ..fits.clone() };
        assert_eq!(plan.steps(), fits.steps());
        assert_ne!(Plan { cores: vec![0, 1, 2, 3], ..plan }.steps(), fits.steps());
    }
}
