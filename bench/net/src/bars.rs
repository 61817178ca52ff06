//! Promises of the project, as ratios within one run, and whether a run met them.

use crate::layout::SinkPlacement;
use crate::results::{Figure, Results};
use crate::statistics::Spread;

/// A promise: a lower limit on the ratio between the figures of two rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Promise {
    /// Placement in which both are measured.
    pub placement: SinkPlacement,
    /// Row whose figure is the numerator.
    pub dut: &'static str,
    /// Row whose figure is the denominator.
    pub beside: &'static str,
    /// Kind of figure that is compared.
    pub figure: Figure,
    /// Smallest ratio with which the promise is kept.
    pub at_least: f64,
    /// Whether the two rows alternate in turns of some milliseconds on the same sockets. Otherwise each is measured in
    /// whole trials.
    pub in_turns: bool,
}

/// Frame sizes for which the promises hold.
pub const SIZES: [&str; 2] = ["64", "1500"];

const fn promise(
    placement: SinkPlacement,
    dut: &'static str,
    beside: &'static str,
    figure: Figure,
    at_least: f64,
) -> Promise {
    Promise { placement, dut, beside, figure, at_least, in_turns: false }
}

/// Makes the promise that srv6d is within 10 % of a forwarder that does no work.
const fn near_floor(placement: SinkPlacement, dut: &'static str) -> Promise {
    Promise { in_turns: true, ..promise(placement, dut, FLOOR, Figure::PerSecond, 0.9) }
}

/// Row that takes turns with srv6d.
pub const FLOOR: &str = "af_xdp-floor";

/// All promises.
pub const ALL: [Promise; 21] = [
    promise(SinkPlacement::SinkOnOwnCore, "srv6d-encap.red", "linux-encap.red", Figure::PerSecond, 2.8),
    promise(SinkPlacement::SinkOnOwnCore, "srv6d-uN", "linux-uN", Figure::PerSecond, 2.3),
    promise(SinkPlacement::SinkOnDutCore, "srv6d-encap.red", "linux-encap.red", Figure::PerSecond, 1.6),
    promise(SinkPlacement::SinkOnDutCore, "srv6d-uN", "linux-uN", Figure::PerSecond, 1.1),
    promise(SinkPlacement::OneCore, "srv6d-encap.red", "linux-encap.red", Figure::PerCpuSecond, 1.4),
    promise(SinkPlacement::OneCore, "srv6d-uN", "linux-uN", Figure::PerCpuSecond, 1.1),
    near_floor(SinkPlacement::SinkOnOwnCore, "srv6d-encap.red"),
    near_floor(SinkPlacement::SinkOnOwnCore, "srv6d-uN"),
    near_floor(SinkPlacement::SinkOnDutCore, "srv6d-encap.red"),
    near_floor(SinkPlacement::SinkOnDutCore, "srv6d-uN"),
    near_floor(SinkPlacement::OneCore, "srv6d-encap.red"),
    near_floor(SinkPlacement::OneCore, "srv6d-uN"),
    promise(SinkPlacement::SinkOnDutCore, "srv6d-forward-offload", "linux-forward", Figure::PerSecond, 2.0),
    promise(SinkPlacement::SinkOnDutCore, "srv6d-encap.red-offload", "linux-encap.red", Figure::PerSecond, 2.0),
    promise(SinkPlacement::SinkOnDutCore, "srv6d-uN-offload", "linux-uN", Figure::PerSecond, 2.0),
    promise(SinkPlacement::SinkOnDutCore, "srv6d-uDT6-offload", "linux-End.DT6", Figure::PerSecond, 2.0),
    promise(SinkPlacement::OneCore, "srv6d-forward-offload", "linux-forward", Figure::PerCpuSecond, 1.2),
    promise(SinkPlacement::OneCore, "srv6d-encap.red-offload", "linux-encap.red", Figure::PerCpuSecond, 1.2),
    promise(SinkPlacement::OneCore, "srv6d-uN-offload", "linux-uN", Figure::PerCpuSecond, 1.2),
    promise(SinkPlacement::OneCore, "srv6d-uDT6-offload", "linux-End.DT6", Figure::PerCpuSecond, 1.2),
    promise(SinkPlacement::SinkOnDutCore, "srv6d-uN-offload", "xdp-redirect", Figure::PerSecond, 0.5),
];

/// Result of a promise at one size in one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kept {
    /// Promise that was judged.
    pub promise: Promise,
    /// Frame size.
    pub size: &'static str,
    /// Measured ratio.
    pub ratio: Result<Spread, NoFigure>,
    /// Number of rounds of the ratio during which other processes used the cores.
    pub disturbed: usize,
}

/// Why there is no ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoFigure {
    /// A row was not measured, or no round has figures of both.
    NotMeasured,
    /// The rows took turns, but too few for a result ([`crate::results::FEWEST_PAIRS`]).
    TooFewPairs,
}

impl Kept {
    /// Returns whether the median meets the promise, or `None` if there is no ratio.
    pub fn is_met(&self) -> Option<bool> {
        self.ratio.ok().map(|ratio| ratio.median >= self.promise.at_least)
    }

    /// Returns `met` or `missed`, or why there is neither, and what makes the result less reliable.
    pub fn word(&self) -> String {
        let ratio = match self.ratio {
            Ok(ratio) => ratio,
            Err(NoFigure::NotMeasured) => return "not measured".to_owned(),
            Err(NoFigure::TooFewPairs) => return "too few pairs".to_owned(),
        };
        let verdict = if self.is_met() == Some(true) { "met" } else { "missed" };
        let lone = (!self.promise.in_turns && ratio.count == 1).then(|| "1 trial".to_owned());
        let disturbed = match self.disturbed {
            0 => None,
            all if all == ratio.count => Some("disturbed".to_owned()),
            some => Some(format!("{some} of {} disturbed", ratio.count)),
        };
        let notes: Vec<String> = lone.into_iter().chain(disturbed).collect();
        if notes.is_empty() { verdict.to_owned() } else { format!("{verdict} ({})", notes.join(", ")) }
    }
}

/// Judges every promise at every size.
pub fn judged(results: &Results) -> Vec<Kept> {
    let at = |promise: Promise, size: &'static str| {
        if promise.in_turns {
            let row = results.in_turns(promise.placement, promise.dut, size).ok_or(NoFigure::NotMeasured);
            let ratio = row.and_then(|row| row.ratio().ok_or(NoFigure::TooFewPairs));
            return Kept { promise, size, ratio, disturbed: 0 };
        }
        let mine = results.flood(promise.placement, promise.dut, size);
        let theirs = results.flood(promise.placement, promise.beside, size);
        let ratio = mine.zip(theirs).and_then(|(mine, theirs)| mine.ratio(theirs, promise.figure));
        let disturbed = mine.zip(theirs).map_or(0, |(mine, theirs)| mine.disturbed_beside(theirs));
        Kept { promise, size, ratio: ratio.ok_or(NoFigure::NotMeasured), disturbed }
    };
    ALL.into_iter().flat_map(|promise| SIZES.map(|size| at(promise, size))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure is the test's failure")]

    use super::*;
    use crate::dut;
    use crate::results::tests::row;
    use crate::results::{FEWEST_PAIRS, TurnsRow};

    #[test]
    fn the_median_decides_and_what_was_not_measured_is_not_met() {
        let place = SinkPlacement::SinkOnDutCore;
        let floods = vec![
            row(place, "srv6d-encap.red", "64", &[1.5, 1.7, 1.9]),
            row(place, "linux-encap.red", "64", &[1.0, 1.0, 1.0]),
            row(place, "srv6d-uN", "64", &[1.0, 1.0, 1.2]),
            row(place, "linux-uN", "64", &[1.0, 1.0, 1.0]),
        ];
        let judged = judged(&Results { floods, ..Results::default() });
        let word = |dut: &str, beside: &str, size: &str| {
            let is_it = |kept: &&Kept| {
                let promise = kept.promise;
                (promise.placement, promise.dut, promise.beside, kept.size) == (place, dut, beside, size)
            };
            judged.iter().find(is_it).unwrap().word()
        };
        assert_eq!(word("srv6d-encap.red", "linux-encap.red", "64"), "met");
        assert_eq!(word("srv6d-uN", "linux-uN", "64"), "missed");
        assert_eq!(word("srv6d-uN", "linux-uN", "1500"), "not measured");
        assert_eq!(word("srv6d-uN", "af_xdp-floor", "64"), "not measured");
    }

    #[test]
    fn a_verdict_of_one_trial_or_of_disturbed_ones_says_so() {
        let word = |rates: &[f64], disturbed: usize| {
            let mut mine = row(SinkPlacement::SinkOnDutCore, "srv6d-uN", "64", rates);
            mine.trials.iter_mut().take(disturbed).for_each(|trial| trial.counted.waited = 0.5);
            let theirs = row(SinkPlacement::SinkOnDutCore, "linux-uN", "64", &[1.0, 1.0, 1.0]);
            let results = Results { floods: vec![mine, theirs], ..Results::default() };
            let is_it = |kept: &Kept| kept.ratio.is_ok();
            judged(&results).into_iter().find(is_it).unwrap().word()
        };
        assert_eq!(word(&[2.0, 2.0, 2.0], 0), "met");
        assert_eq!(word(&[2.0], 0), "met (1 trial)");
        assert_eq!(word(&[1.0, -1.0, -1.0], 1), "missed (1 trial, disturbed)");
        assert_eq!(word(&[1.0, 1.0, 1.0], 2), "missed (2 of 3 disturbed)");
        assert_eq!(word(&[1.0, 1.0, 1.0], 3), "missed (disturbed)");
        // A disturbed round that is not part of the ratio does not count.
        assert_eq!(word(&[-2.0, 2.0, 2.0], 1), "met");
    }

    #[test]
    fn beside_the_floor_turns_decide_and_not_trials() {
        let place = SinkPlacement::SinkOnOwnCore;
        let floods = vec![row(place, "srv6d-uN", "64", &[0.5]), row(place, FLOOR, "64", &[1.0])];
        let word = |turns| {
            let results = Results { floods: floods.clone(), turns, ..Results::default() };
            let of = |kept: &Kept| (kept.promise.placement, kept.promise.dut, kept.promise.beside, kept.size);
            judged(&results).into_iter().find(|kept| of(kept) == (place, "srv6d-uN", FLOOR, "64")).unwrap().word()
        };
        let turns = |pairs| {
            let [dut, beside, size] = ["srv6d-uN", FLOOR, "64"].map(str::to_owned);
            vec![TurnsRow { placement: place, dut, beside, size, pairs }]
        };
        assert_eq!(word(Vec::new()), "not measured");
        assert_eq!(word(turns(vec![[0.95, 1.0]; FEWEST_PAIRS])), "met");
        assert_eq!(word(turns(vec![[0.85, 1.0]; FEWEST_PAIRS])), "missed");
        assert_eq!(word(turns(vec![[0.95, 1.0]; FEWEST_PAIRS - 1])), "too few pairs");
    }

    #[test]
    fn promises_are_about_duts_that_exist() {
        for promise in ALL {
            assert!(dut::named(promise.dut).is_some() && dut::named(promise.beside).is_some(), "{promise:?}");
        }
    }
}
