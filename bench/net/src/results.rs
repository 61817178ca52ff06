//! Results of a run of the bench, trial by trial.

use serde::{Deserialize, Serialize};
use srv6d_report::Schema;

use crate::cpu::Busy;
use crate::frames::Size;
use crate::latency::Latency;
use crate::layout::SinkPlacement;
use crate::machine::Stamp;
use crate::search::Found;
use crate::statistics::Spread;
use crate::verdict::{Counted, TrialVerdict, Why};

/// All results of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Format of the file.
    pub schema: Schema,
    /// Machine, kernel, versions, command.
    pub stamp: Stamp,
    /// Floods: the generator sends more than the DUT can take.
    pub floods: Vec<Row>,
    /// Highest rates with no or little loss.
    pub searches: Vec<SearchRow>,
    /// Latencies at fractions of the NDR (of the PDR, if there is no NDR).
    pub latencies: Vec<LatencyRow>,
    /// Floods with several workers.
    pub workers: Vec<Row>,
    /// Results of srv6d and the floor in turns.
    #[serde(default)]
    pub turns: Vec<TurnsRow>,
    /// What could not be measured on this machine, with reasons.
    pub left_out: Vec<String>,
    /// Why the run ended early; `None`: it did not.
    #[serde(default)]
    pub cut_off: Option<String>,
}

/// Value of `cut_off` while the run is in progress, because a killed run cannot write a reason.
pub const UNDER_WAY: &str = "killed, or still under way";

/// Share of packets whose loss does not change the p99.9 of the packets that arrived.
const LITTLE_LOSS: f64 = 0.001;

/// Trials of one DUT at one size in one placement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Placement of the work.
    pub placement: SinkPlacement,
    /// Number of workers, which is also the number of queues and of generator cores.
    pub workers: usize,
    /// Name of the DUT.
    pub dut: String,
    /// Size as requested: in bytes, or IMIX.
    pub size: String,
    /// Mean length of the frames sent, in bytes.
    pub frame: f64,
    /// Trials, one per round.
    pub trials: Vec<Trial>,
}

/// One trial of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Number of the round, counted from 0.
    pub round: usize,
    /// Number of attempts, up to the one that is stored here.
    pub attempts: u32,
    /// Counters of the trial.
    pub counted: Counted,
    /// Judgement of the trial.
    pub verdict: TrialVerdict,
    /// Load of each core in the measured part.
    #[serde(default)]
    pub cores: Vec<CoreUse>,
}

/// Load of one core.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoreUse {
    /// Number of the core.
    pub core: usize,
    /// Role of the core.
    pub role: String,
    /// Work as shares of the time.
    pub busy: Busy,
}

/// Results of two rows that took turns on the same sockets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnsRow {
    /// Placement of the work.
    pub placement: SinkPlacement,
    /// Row that had the first turn of each pair.
    pub dut: String,
    /// Row that had the second turn.
    pub beside: String,
    /// Size as requested.
    pub size: String,
    /// Packets per second that reached the sink in the two turns of each pair.
    pub pairs: Vec<[f64; 2]>,
}

/// Fewest pairs of turns for a figure. From this number on, the interval between the quartiles contains the true median
/// in at least 95 of 100 runs.
pub const FEWEST_PAIRS: usize = 20;

impl TurnsRow {
    /// Returns median and quartiles of the ratio of first to second, pair by pair; `None` if too few pairs have both.
    pub fn ratio(&self) -> Option<Spread> {
        let both = self.pairs.iter().filter(|[_, theirs]| *theirs > 0.0);
        Spread::of_many(both.map(|[mine, theirs]| mine / theirs)).filter(|ratio| ratio.count >= FEWEST_PAIRS)
    }
}

/// Result of one search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchRow {
    /// Placement of the work.
    pub placement: SinkPlacement,
    /// Name of the DUT.
    pub dut: String,
    /// Size as requested.
    pub size: String,
    /// Accepted share of lost packets.
    pub accepted_loss: f64,
    /// Result.
    pub found: Found,
}

impl SearchRow {
    /// Makes the row for the result of a search.
    pub fn of(placement: SinkPlacement, dut: &str, size: Size, accepted_loss: f64, found: Found) -> Self {
        Self { placement, dut: dut.to_owned(), size: size.to_string(), accepted_loss, found }
    }
}

impl PartOf {
    /// Makes a reference to the result of a search.
    pub fn of(row: &SearchRow) -> Self {
        let (placement, size, accepted_loss) = (row.placement, row.size.clone(), row.accepted_loss);
        Self { placement, size, accepted_loss, is_lower_bound: row.found.is_lower_bound() }
    }
}

/// Latency of a DUT at one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencyRow {
    /// Placement of the work.
    pub placement: SinkPlacement,
    /// Name of the DUT.
    pub dut: String,
    /// Size as requested.
    pub size: String,
    /// Load as a fraction of the NDR (of the PDR, if there is no NDR), in percent.
    pub load: u32,
    /// Load in packets per second.
    pub rate: f64,
    /// Load that the generator offered.
    #[serde(default)]
    pub offered: Option<f64>,
    /// Percentiles; `None`: no packet with a time stamp arrived.
    pub latency: Option<Latency>,
    /// Share of packets that were lost during the measurement.
    pub loss: f64,
    /// Search that `load` refers to; `None`: the run did not store it.
    #[serde(default)]
    pub part_of: Option<PartOf>,
}

impl LatencyRow {
    /// Returns whether so many packets were lost that the percentiles do not hold for all packets: the slowest ones may
    /// be those that never arrived.
    pub fn lost_some(&self) -> bool {
        self.loss > LITTLE_LOSS
    }
}

/// The NDR or PDR that a load is a fraction of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartOf {
    /// Placement of the search.
    pub placement: SinkPlacement,
    /// Frame size of the search.
    pub size: String,
    /// Accepted share of lost packets: 0 for an NDR.
    pub accepted_loss: f64,
    /// Whether the search ended for another reason than loss of the DUT, so that its result is a lower bound.
    pub is_lower_bound: bool,
}

/// Kind of figure of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Packets per second.
    PerSecond,
    /// Packets per CPU second of all cores on which DUT and sink work.
    PerCpuSecond,
}

impl Figure {
    /// Returns this figure of a trial.
    pub fn of(self, counted: &Counted) -> f64 {
        match self {
            Self::PerSecond => counted.forwarded,
            Self::PerCpuSecond => counted.per_cpu_second,
        }
    }
}

impl Row {
    /// Returns the figure over all trials that measured the DUT, or `None` if there are none.
    pub fn figure(&self, figure: Figure) -> Option<Spread> {
        Spread::of(self.measured().map(|trial| figure.of(&trial.counted)))
    }

    /// Returns the rate over all trials, which is a lower bound in trials where something other than the DUT was the
    /// limit.
    pub fn at_least(&self) -> Option<Spread> {
        Spread::of(self.trials.iter().map(|trial| trial.counted.forwarded))
    }

    /// Returns the ratio of this row's figure to another's, round by round, or `None` if no round has both.
    pub fn ratio(&self, other: &Self, figure: Figure) -> Option<Spread> {
        let pairs = self.measured().filter_map(|mine| {
            let theirs = other.measured().find(|trial| trial.round == mine.round)?;
            Some((figure.of(&mine.counted), figure.of(&theirs.counted)))
        });
        Spread::of(pairs.filter(|&(_, theirs)| theirs > 0.0).map(|(mine, theirs)| mine / theirs))
    }

    /// Returns the number of rounds in [`Self::ratio`] in which other processes used the cores of either row.
    pub fn disturbed_beside(&self, other: &Self) -> usize {
        let is_disturbed = |mine: &&Trial| {
            let theirs = other.measured().find(|trial| trial.round == mine.round);
            theirs.is_some_and(|theirs| mine.counted.is_disturbed() || theirs.counted.is_disturbed())
        };
        self.measured().filter(is_disturbed).count()
    }

    /// Returns what was the limit in the last trial without a figure of the DUT, in one word.
    pub fn who_was_the_limit(&self) -> &'static str {
        let word = |trial: &Trial| match trial.verdict {
            TrialVerdict::Measured { .. } => None,
            TrialVerdict::GeneratorLimited => Some("generator"),
            TrialVerdict::Void { why: Why::SinkLimited } => Some("sink"),
            TrialVerdict::Void { why: Why::MoreThanSent } => Some("more than sent"),
            TrialVerdict::Void { why: Why::NothingSent } => Some("nothing sent"),
        };
        self.trials.iter().rev().find_map(word).unwrap_or("not tried")
    }

    fn measured(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(|trial| matches!(trial.verdict, TrialVerdict::Measured { .. }))
    }
}

impl TrialVerdict {
    /// Returns why the trial has no figure of the DUT, if it has none.
    pub fn why_none(self) -> Option<&'static str> {
        match self {
            Self::Measured { .. } => None,
            Self::GeneratorLimited => Some("the generator was the limit"),
            Self::Void { why } => Some(why.text()),
        }
    }
}

impl Results {
    /// Returns whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        let Self { floods, workers, turns, searches, latencies, .. } = self;
        floods.is_empty() && workers.is_empty() && turns.is_empty() && searches.is_empty() && latencies.is_empty()
    }

    /// Returns a row of the floods.
    pub fn flood(&self, placement: SinkPlacement, dut: &str, size: &str) -> Option<&Row> {
        self.floods.iter().find(|row| row.placement == placement && row.dut == dut && row.size == size)
    }

    /// Returns the results of a DUT and the floor in turns.
    pub fn in_turns(&self, placement: SinkPlacement, dut: &str, size: &str) -> Option<&TurnsRow> {
        self.turns.iter().find(|row| row.placement == placement && row.dut == dut && row.size == size)
    }

    /// Returns the number of trials, of those without a figure, and of disturbed ones.
    pub fn trial_counts(&self) -> (usize, usize, usize) {
        let trials = || self.floods.iter().chain(&self.workers).flat_map(|row| &row.trials);
        let without = trials().filter(|trial| trial.verdict.why_none().is_some()).count();
        (trials().count(), without, trials().filter(|trial| trial.counted.is_disturbed()).count())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::float_cmp, reason = "a failure is the test's failure")]

    use super::*;

    /// Returns a row whose trials forwarded these packets per second in consecutive rounds. A negative rate stands for
    /// a trial in which the generator was the limit.
    pub(crate) fn row(placement: SinkPlacement, dut: &str, size: &str, rates: &[f64]) -> Row {
        let trial = |(round, &rate): (usize, &f64)| {
            let counted = Counted { forwarded: rate.abs(), per_cpu_second: rate.abs() / 2.0, ..Counted::default() };
            let verdict =
                if rate < 0.0 { TrialVerdict::GeneratorLimited } else { TrialVerdict::Measured { loss: 0.5 } };
            Trial { round, attempts: 1, counted, verdict, cores: Vec::new() }
        };
        let trials = rates.iter().enumerate().map(trial).collect();
        Row { placement, workers: 1, dut: dut.to_owned(), size: size.to_owned(), frame: 64.0, trials }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let place = SinkPlacement::OneCore;
        let fast = row(place, "a", "64", &[2.0, 8.0, -9.0, 6.0]);
        let slow = row(place, "b", "64", &[1.0, 2.0, 1.0, -1.0]);
        // Rounds 2 and 3 lack a figure of one of the two.
        let ratio = fast.ratio(&slow, Figure::PerSecond).unwrap();
        assert_eq!((ratio.low, ratio.high, ratio.count), (2.0, 4.0, 2));
    }

    #[test]
    fn a_few_pairs_of_turns_are_no_figure() {
        let of = |pairs: Vec<[f64; 2]>| {
            let [dut, beside, size] = ["a", "b", "64"].map(str::to_owned);
            TurnsRow { placement: SinkPlacement::OneCore, dut, beside, size, pairs }.ratio().map(|ratio| ratio.median)
        };
        assert_eq!(of(vec![[1.0, 2.0]; FEWEST_PAIRS]), Some(0.5));
        assert_eq!(of(vec![[1.0, 2.0]; FEWEST_PAIRS - 1]), None);
        // A pair does not count if its second turn has no figure.
        assert_eq!(of([vec![[1.0, 2.0]; FEWEST_PAIRS - 1], vec![[1.0, 0.0]; 9]].concat()), None);
    }

    #[test]
    fn a_limited_trial_is_a_lower_bound_and_no_figure() {
        let limited = row(SinkPlacement::OneCore, "a", "64", &[-5.0]);
        assert_eq!(limited.figure(Figure::PerSecond), None);
        assert_eq!(limited.at_least().unwrap().median, 5.0);
        assert_eq!(limited.who_was_the_limit(), "generator");
    }
}
