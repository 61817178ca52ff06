//! What a run of the bench found, trial by trial.

use serde::{Deserialize, Serialize};

use crate::cpu::Busy;
use crate::frames::Size;
use crate::latency::Latency;
use crate::layout::Placement;
use crate::machine::Stamp;
use crate::search::Found;
use crate::statistics::Spread;
use crate::verdict::{Counted, Verdict, Why};

/// All of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Form of the file.
    pub schema: Schema,
    /// Machine, kernel, versions, command.
    pub stamp: Stamp,
    /// Floods: as much as the generator sends.
    pub floods: Vec<Row>,
    /// Highest rates with no or little loss.
    pub searches: Vec<SearchRow>,
    /// Latencies at parts of the NDR, or of the PDR where there is no NDR.
    pub latencies: Vec<LatencyRow>,
    /// Floods with several workers.
    pub workers: Vec<Row>,
    /// srv6d and the floor in turns.
    #[serde(default)]
    pub turns: Vec<TurnsRow>,
    /// What could not be done on this machine, and why.
    pub left_out: Vec<String>,
    /// Why the run ended before its end. None: it did not.
    #[serde(default)]
    pub cut_off: Option<String>,
}

/// Why results end where they do, until the run has ended: who is killed cannot say so any more.
pub const UNDER_WAY: &str = "killed, or still under way";

/// A share of packets that the p99.9 of those which arrived does not depend on.
const LITTLE_LOSS: f64 = 0.001;

/// Number of a form of results: another one as soon as a field changes its meaning or goes. Fields may join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Schema(u32);

/// The form that is written, and the only one that is read.
const SCHEMA: u32 = 1;

impl Default for Schema {
    fn default() -> Self {
        Self(SCHEMA)
    }
}

impl TryFrom<u32> for Schema {
    type Error = String;

    fn try_from(number: u32) -> Result<Self, String> {
        match number {
            SCHEMA => Ok(Self(number)),
            _ => Err(format!("this is schema {number}, and this bench-net reads {SCHEMA}")),
        }
    }
}

impl From<Schema> for u32 {
    fn from(schema: Schema) -> Self {
        schema.0
    }
}

/// One DUT at one size in one placement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Where the work runs.
    pub placement: Placement,
    /// Workers (and queues, and generator cores).
    pub workers: usize,
    /// Who forwards.
    pub dut: String,
    /// The size asked for, in bytes, or IMIX.
    pub size: String,
    /// Length of the frames sent, on average.
    pub frame: f64,
    /// One trial per round.
    pub trials: Vec<Trial>,
}

/// One trial of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Rounds are counted from 0.
    pub round: usize,
    /// How often it was tried until it was worth something.
    pub attempts: u32,
    /// What was counted.
    pub counted: Counted,
    /// What it is worth.
    pub verdict: Verdict,
    /// What each core did in the measured part.
    #[serde(default)]
    pub cores: Vec<CoreUse>,
}

/// What a core did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoreUse {
    /// Its number.
    pub core: usize,
    /// What it is there for.
    pub role: String,
    /// Shares of the time.
    pub busy: Busy,
}

/// A DUT and another one that took turns on the same sockets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnsRow {
    /// Where the work runs.
    pub placement: Placement,
    /// Whose turn was first in each pair.
    pub dut: String,
    /// Whose was second.
    pub beside: String,
    /// The size asked for.
    pub size: String,
    /// Packets per second that reached the sink in the two turns of a pair.
    pub pairs: Vec<[f64; 2]>,
}

/// Pairs of turns that it takes for a figure. From so many on the quartiles have the median of endlessly many pairs between
/// them in at least 95 of 100 runs.
pub const FEWEST_PAIRS: usize = 20;

impl TurnsRow {
    /// The first divided by the second, pair by pair: median and quartiles. None: too few pairs have both.
    pub fn ratio(&self) -> Option<Spread> {
        let both = self.pairs.iter().filter(|[_, theirs]| *theirs > 0.0);
        Spread::of_many(both.map(|[mine, theirs]| mine / theirs)).filter(|ratio| ratio.count >= FEWEST_PAIRS)
    }
}

/// One search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchRow {
    /// Where the work runs.
    pub placement: Placement,
    /// Who forwards.
    pub dut: String,
    /// The size asked for.
    pub size: String,
    /// Share of packets that may be lost.
    pub accepted_loss: f64,
    /// What was found.
    pub found: Found,
}

impl SearchRow {
    /// What was found for a row and a size.
    pub fn of(placement: Placement, dut: &str, size: Size, accepted_loss: f64, found: Found) -> Self {
        Self { placement, dut: dut.to_owned(), size: size.to_string(), accepted_loss, found }
    }
}

impl PartOf {
    /// Of what was found.
    pub fn of(row: &SearchRow) -> Self {
        let (placement, size, accepted_loss) = (row.placement, row.size.clone(), row.accepted_loss);
        Self { placement, size, accepted_loss, is_lower_bound: row.found.is_lower_bound() }
    }
}

/// Latency at one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencyRow {
    /// Where the work runs.
    pub placement: Placement,
    /// Who forwards.
    pub dut: String,
    /// The size asked for.
    pub size: String,
    /// Part of the NDR, or of the PDR where there is none, in percent.
    pub load: u32,
    /// That rate, in packets per second.
    pub rate: f64,
    /// What the generator made of it.
    #[serde(default)]
    pub offered: Option<f64>,
    /// None: nothing arrived that could be timed.
    pub latency: Option<Latency>,
    /// Share of packets lost meanwhile.
    pub loss: f64,
    /// The search that `load` is a part of. None: of a run that did not say so.
    #[serde(default)]
    pub part_of: Option<PartOf>,
}

impl LatencyRow {
    /// So many that the percentiles are not those of all packets: the slowest may be those that never arrived.
    pub fn lost_some(&self) -> bool {
        self.loss > LITTLE_LOSS
    }
}

/// Which NDR or PDR a load is a part of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartOf {
    /// Where it was searched.
    pub placement: Placement,
    /// With frames of this size.
    pub size: String,
    /// Share that was accepted: 0 of an NDR.
    pub accepted_loss: f64,
    /// Something else than the DUT's loss ended that search.
    pub is_lower_bound: bool,
}

/// Which figure of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Packets per second.
    PerSecond,
    /// Packets per CPU second of all cores that DUT and sink work on.
    PerCpuSecond,
}

impl Figure {
    /// Of one trial.
    pub fn of(self, counted: &Counted) -> f64 {
        match self {
            Self::PerSecond => counted.forwarded,
            Self::PerCpuSecond => counted.per_cpu_second,
        }
    }
}

impl Row {
    /// Over the trials that measured the DUT. None: none did.
    pub fn figure(&self, figure: Figure) -> Option<Spread> {
        Spread::of(self.measured().map(|trial| figure.of(&trial.counted)))
    }

    /// Over all trials: what was forwarded at least, whoever was the limit.
    pub fn at_least(&self) -> Option<Spread> {
        Spread::of(self.trials.iter().map(|trial| trial.counted.forwarded))
    }

    /// This row's figure divided by another's, round by round. None: no round has both.
    pub fn ratio(&self, other: &Self, figure: Figure) -> Option<Spread> {
        let pairs = self.measured().filter_map(|mine| {
            let theirs = other.measured().find(|trial| trial.round == mine.round)?;
            Some((figure.of(&mine.counted), figure.of(&theirs.counted)))
        });
        Spread::of(pairs.filter(|&(_, theirs)| theirs > 0.0).map(|(mine, theirs)| mine / theirs))
    }

    /// Of the rounds that [`Self::ratio`] is of: in how many others had the cores of either row.
    pub fn disturbed_beside(&self, other: &Self) -> usize {
        let is_disturbed = |mine: &&Trial| {
            let theirs = other.measured().find(|trial| trial.round == mine.round);
            theirs.is_some_and(|theirs| mine.counted.is_disturbed() || theirs.counted.is_disturbed())
        };
        self.measured().filter(is_disturbed).count()
    }

    /// In one word: of the last trial that has no figure of the DUT's.
    pub fn who_was_the_limit(&self) -> &'static str {
        let word = |trial: &Trial| match trial.verdict {
            Verdict::Measured { .. } => None,
            Verdict::GeneratorLimited => Some("generator"),
            Verdict::Void { why: Why::SinkLimited } => Some("sink"),
            Verdict::Void { why: Why::MoreThanSent } => Some("more than sent"),
        };
        self.trials.iter().rev().find_map(word).unwrap_or("not tried")
    }

    fn measured(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(|trial| matches!(trial.verdict, Verdict::Measured { .. }))
    }
}

impl Verdict {
    /// Why the trial has no figure of the DUT's.
    pub fn why_none(self) -> Option<&'static str> {
        match self {
            Self::Measured { .. } => None,
            Self::GeneratorLimited => Some("the generator was the limit"),
            Self::Void { why } => Some(why.text()),
        }
    }
}

impl Results {
    /// Nothing was measured.
    pub fn is_empty(&self) -> bool {
        let Self { floods, workers, turns, searches, latencies, .. } = self;
        floods.is_empty() && workers.is_empty() && turns.is_empty() && searches.is_empty() && latencies.is_empty()
    }

    /// A row of the floods.
    pub fn flood(&self, placement: Placement, dut: &str, size: &str) -> Option<&Row> {
        self.floods.iter().find(|row| row.placement == placement && row.dut == dut && row.size == size)
    }

    /// What a DUT and the floor did in turns.
    pub fn in_turns(&self, placement: Placement, dut: &str, size: &str) -> Option<&TurnsRow> {
        self.turns.iter().find(|row| row.placement == placement && row.dut == dut && row.size == size)
    }

    /// Trials, those without a figure, and those that others disturbed.
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

    /// A row whose trials forwarded so many packets per second, in rounds one after the other. Negative: the generator
    /// was the limit.
    pub(crate) fn row(placement: Placement, dut: &str, size: &str, rates: &[f64]) -> Row {
        let trial = |(round, &rate): (usize, &f64)| {
            let counted = Counted { forwarded: rate.abs(), per_cpu_second: rate.abs() / 2.0, ..Counted::default() };
            let verdict = if rate < 0.0 { Verdict::GeneratorLimited } else { Verdict::Measured { loss: 0.5 } };
            Trial { round, attempts: 1, counted, verdict, cores: Vec::new() }
        };
        let trials = rates.iter().enumerate().map(trial).collect();
        Row { placement, workers: 1, dut: dut.to_owned(), size: size.to_owned(), frame: 64.0, trials }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let place = Placement::OneCore;
        let fast = row(place, "a", "64", &[2.0, 8.0, -9.0, 6.0]);
        let slow = row(place, "b", "64", &[1.0, 2.0, 1.0, -1.0]);
        // Rounds 2 and 3 lack one of the two.
        let ratio = fast.ratio(&slow, Figure::PerSecond).unwrap();
        assert_eq!((ratio.low, ratio.high, ratio.count), (2.0, 4.0, 2));
    }

    #[test]
    fn a_few_pairs_of_turns_are_no_figure() {
        let of = |pairs: Vec<[f64; 2]>| {
            let [dut, beside, size] = ["a", "b", "64"].map(str::to_owned);
            TurnsRow { placement: Placement::OneCore, dut, beside, size, pairs }.ratio().map(|ratio| ratio.median)
        };
        assert_eq!(of(vec![[1.0, 2.0]; FEWEST_PAIRS]), Some(0.5));
        assert_eq!(of(vec![[1.0, 2.0]; FEWEST_PAIRS - 1]), None);
        // A pair without a figure of the second is none.
        assert_eq!(of([vec![[1.0, 2.0]; FEWEST_PAIRS - 1], vec![[1.0, 0.0]; 9]].concat()), None);
    }

    #[test]
    fn a_limited_trial_is_a_lower_bound_and_no_figure() {
        let limited = row(Placement::OneCore, "a", "64", &[-5.0]);
        assert_eq!(limited.figure(Figure::PerSecond), None);
        assert_eq!(limited.at_least().unwrap().median, 5.0);
        assert_eq!(limited.who_was_the_limit(), "generator");
    }
}
