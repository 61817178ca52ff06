//! What the project promises, as ratios within one run, and whether the run kept it.

use crate::layout::Placement;
use crate::results::{Figure, Results};
use crate::statistics::Spread;

/// One promise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Promise {
    /// Where the work runs.
    pub placement: Placement,
    /// Whose figure.
    pub dut: &'static str,
    /// Beside whose.
    pub beside: &'static str,
    /// Which figure.
    pub figure: Figure,
    /// At least so many times as large.
    pub at_least: f64,
    /// The two take turns of milliseconds on the same sockets. Otherwise each is measured by whole trials.
    pub in_turns: bool,
}

/// Sizes at which promises are kept.
pub const SIZES: [&str; 2] = ["64", "1500"];

const fn promise(
    placement: Placement,
    dut: &'static str,
    beside: &'static str,
    figure: Figure,
    at_least: f64,
) -> Promise {
    Promise { placement, dut, beside, figure, at_least, in_turns: false }
}

/// srv6d is within 10 % of no work at all.
const fn near_floor(placement: Placement, dut: &'static str) -> Promise {
    Promise { in_turns: true, ..promise(placement, dut, FLOOR, Figure::PerSecond, 0.9) }
}

/// The row that srv6d takes turns with.
pub const FLOOR: &str = "af_xdp-floor";

/// All promises.
pub const ALL: [Promise; 17] = [
    promise(Placement::SinkOnOwnCore, "srv6d-encap.red", "linux-encap.red", Figure::PerSecond, 2.8),
    promise(Placement::SinkOnOwnCore, "srv6d-uN", "linux-uN", Figure::PerSecond, 2.3),
    promise(Placement::SinkOnDutCore, "srv6d-encap.red", "linux-encap.red", Figure::PerSecond, 1.6),
    promise(Placement::SinkOnDutCore, "srv6d-uN", "linux-uN", Figure::PerSecond, 1.1),
    promise(Placement::OneCore, "srv6d-encap.red", "linux-encap.red", Figure::PerCpuSecond, 1.4),
    promise(Placement::OneCore, "srv6d-uN", "linux-uN", Figure::PerCpuSecond, 1.1),
    near_floor(Placement::SinkOnOwnCore, "srv6d-encap.red"),
    near_floor(Placement::SinkOnOwnCore, "srv6d-uN"),
    near_floor(Placement::SinkOnDutCore, "srv6d-encap.red"),
    near_floor(Placement::SinkOnDutCore, "srv6d-uN"),
    near_floor(Placement::OneCore, "srv6d-encap.red"),
    near_floor(Placement::OneCore, "srv6d-uN"),
    promise(Placement::SinkOnDutCore, "srv6d-encap.red-offload", "linux-encap.red", Figure::PerSecond, 1.6),
    promise(Placement::SinkOnDutCore, "srv6d-uN-offload", "linux-uN", Figure::PerSecond, 1.1),
    promise(Placement::OneCore, "srv6d-encap.red-offload", "linux-encap.red", Figure::PerCpuSecond, 1.4),
    promise(Placement::OneCore, "srv6d-uN-offload", "linux-uN", Figure::PerCpuSecond, 1.1),
    promise(Placement::SinkOnDutCore, "srv6d-uN-offload", "xdp-redirect", Figure::PerSecond, 0.5),
];

/// A promise at one size, in one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kept {
    /// The promise.
    pub promise: Promise,
    /// The size.
    pub size: &'static str,
    /// What was measured.
    pub ratio: Result<Spread, NoFigure>,
}

/// Why there is no ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoFigure {
    /// Nothing was measured, or not both in one round.
    NotMeasured,
    /// They took turns, too few for a verdict ([`crate::results::FEWEST_PAIRS`]).
    TooFewPairs,
}

impl Kept {
    /// By the median. None: no figure.
    pub fn is_met(&self) -> Option<bool> {
        self.ratio.ok().map(|ratio| ratio.median >= self.promise.at_least)
    }

    /// `met`, `missed`, or why neither.
    pub fn word(&self) -> &'static str {
        match self.ratio {
            Ok(_) if self.is_met() == Some(true) => "met",
            Ok(_) => "missed",
            Err(NoFigure::NotMeasured) => "not measured",
            Err(NoFigure::TooFewPairs) => "too few pairs",
        }
    }
}

/// Every promise at every size.
pub fn judged(results: &Results) -> Vec<Kept> {
    let at = |promise: Promise, size: &'static str| {
        if promise.in_turns {
            let row = results.in_turns(promise.placement, promise.dut, size).ok_or(NoFigure::NotMeasured);
            let ratio = row.and_then(|row| row.ratio().ok_or(NoFigure::TooFewPairs));
            return Kept { promise, size, ratio };
        }
        let mine = results.flood(promise.placement, promise.dut, size);
        let theirs = results.flood(promise.placement, promise.beside, size);
        let ratio = mine.zip(theirs).and_then(|(mine, theirs)| mine.ratio(theirs, promise.figure));
        Kept { promise, size, ratio: ratio.ok_or(NoFigure::NotMeasured) }
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
        let place = Placement::SinkOnDutCore;
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
    fn beside_the_floor_turns_decide_and_not_trials() {
        let place = Placement::SinkOnOwnCore;
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
