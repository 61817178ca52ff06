//! Searches for the highest rate at which a DUT loses no more than a given share: NDR (no loss) and PDR (one in two
//! hundred).

use serde::{Deserialize, Serialize};

use crate::verdict::{Counted, TrialVerdict};

/// Share of packets that may be lost at the NDR.
pub const NDR: f64 = 0.0;
/// Share of packets that may be lost at the PDR.
pub const PDR: f64 = 0.005;

/// Maximum number of undisturbed trials at a rate, as long as they are inconclusive or lose little. A trial that passes
/// is the last one.
const QUIET_TRIALS: u32 = 3;
/// Maximum number of trials at a rate, including disturbed ones.
const TRIALS: u32 = 6;
/// Share of lost packets up to which the machine may be the cause: a core may be taken away for some milliseconds.
const HICCUP: f64 = 0.05;
/// Factor by which a rate that was not confirmed is lowered in a small step.
const STEP_BACK: f64 = 0.9;
/// Number of small steps. After them the rate is halved, because small steps down to the lowest rate would take
/// minutes.
const SMALL_STEPS: u32 = 3;

/// Range and precision of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// Lowest rate that is tried, in packets per second.
    pub low: f64,
    /// First rate that is tried. As long as the highest rate so far passes, it is doubled.
    pub first: f64,
    /// Highest rate that is tried.
    pub most: f64,
    /// The search ends when its two bounds differ by at most this share.
    pub gap: f64,
}

/// Why a search found no higher rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The DUT lost too much at higher rates.
    Loss,
    /// The generator could not send more, although it was not disturbed.
    Generator,
    /// Other processes used the cores in every trial at higher rates.
    Disturbed,
    /// No trial at higher rates was valid: the sink was the limit, or more frames arrived than were sent.
    Void,
    /// The rate is the highest of the range.
    Range,
}

impl Limit {
    /// Returns an explanation for users.
    pub fn text(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Generator => "the generator fell short",
            Self::Disturbed => "disturbed: others had the cores",
            Self::Void => "void trials",
            Self::Range => "end of the range",
        }
    }
}

/// Result of a search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Highest rate that passed, as it was offered. `None`: not even the lowest rate passed.
    pub rate: Option<f64>,
    /// Why no higher rate was found.
    pub limit: Limit,
    /// Number of trials.
    pub trials: u32,
    /// Number of void trials.
    pub void: u32,
}

impl Found {
    /// Returns whether the DUT may be capable of more, because something other than its loss ended the search.
    pub fn is_lower_bound(&self) -> bool {
        self.rate.is_some() && self.limit != Limit::Loss
    }

    /// Limits the result of an NDR search by that of the PDR search whose rate was its upper end: what limited the PDR
    /// limited the NDR, too.
    #[must_use]
    pub fn below(self, pdr: Self) -> Self {
        let rate = self.rate.zip(pdr.rate).map(|(ndr, pdr)| ndr.min(pdr)).or(self.rate);
        let limit = if self.limit == Limit::Range { pdr.limit } else { self.limit };
        Self { rate, limit, ..self }
    }
}

/// Result of a rate that was tried.
enum Tried {
    /// It passed; the value is the rate that was offered.
    Passed(f64),
    Failed(Limit),
}

/// State of a search.
struct Search<F> {
    accepted_loss: f64,
    trial: F,
    trials: u32,
    void: u32,
}

/// Searches by bisection. `trial` gets a rate, and whether this is the longer trial that confirms the result.
pub fn search<E>(
    accepted_loss: f64,
    range: Range,
    trial: impl FnMut(f64, bool) -> Result<Counted, E>,
) -> Result<Found, E> {
    let mut search = Search { accepted_loss, trial, trials: 0, void: 0 };
    // Both are requested rates: a generator may offer slightly less, but the search has to end nevertheless.
    let (mut passed, mut high, mut limit) = (None, range.first.min(range.most), Limit::Range);
    loop {
        match search.at(high, false)? {
            Tried::Passed(_) => passed = Some(high),
            Tried::Failed(why) => {
                limit = why;
                break;
            }
        }
        if high >= range.most {
            break;
        }
        high = (high * 2.0).min(range.most);
    }
    while limit != Limit::Range && high - passed.unwrap_or(range.low) > range.gap * high {
        let rate = f64::midpoint(passed.unwrap_or(range.low), high);
        match search.at(rate, false)? {
            Tried::Passed(_) => passed = Some(rate),
            Tried::Failed(why) => (high, limit) = (rate, why),
        }
    }
    let rate = search.confirmed(passed, range.low, &mut limit)?;
    Ok(Found { rate, limit, trials: search.trials, void: search.void })
}

impl<E, F: FnMut(f64, bool) -> Result<Counted, E>> Search<F> {
    fn at(&mut self, rate: f64, is_last: bool) -> Result<Tried, E> {
        // A disturbed trial is inconclusive and does not count as one of the undisturbed ones.
        let (mut why, mut quiet) = (Limit::Disturbed, 0);
        for _ in 0..TRIALS {
            let counted = (self.trial)(rate, is_last)?;
            self.trials += 1;
            let (verdict, loss) = (counted.verdict(), counted.loss());
            if matches!(verdict, TrialVerdict::Measured { .. }) && loss <= self.accepted_loss {
                return Ok(Tried::Passed(counted.offered));
            }
            self.void += u32::from(matches!(verdict, TrialVerdict::Void { .. }));
            if counted.is_disturbed() {
                continue;
            }
            quiet += 1;
            why = match verdict {
                TrialVerdict::Void { .. } => Limit::Void,
                // A loss at less than the requested rate would also occur at that rate.
                _ if loss > HICCUP => return Ok(Tried::Failed(Limit::Loss)),
                TrialVerdict::GeneratorLimited => Limit::Generator,
                TrialVerdict::Measured { .. } => Limit::Loss,
            };
            if quiet == QUIET_TRIALS {
                break;
            }
        }
        Ok(Tried::Failed(why))
    }

    /// Tries a found rate once more, and lowers it until a trial passes.
    fn confirmed(&mut self, found: Option<f64>, lowest: f64, limit: &mut Limit) -> Result<Option<f64>, E> {
        let Some(mut rate) = found else { return Ok(None) };
        let mut steps = 0;
        loop {
            match self.at(rate, true)? {
                Tried::Passed(offered) => return Ok(Some(offered)),
                Tried::Failed(why) => *limit = why,
            }
            rate *= if steps < SMALL_STEPS { STEP_BACK } else { 0.5 };
            steps += 1;
            if rate < lowest {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure is the test's failure")]

    use super::*;

    /// A DUT and a generator with known capacities.
    #[derive(Clone, Copy)]
    struct Fake {
        dut: f64,
        generator: f64,
        /// If not 0, one frame out of this number is lost at any rate.
        loses_one_in: u64,
        /// Rate above which the sink is the limit.
        sink: f64,
    }

    const FAKE: Fake = Fake { dut: 700e3, generator: 5e6, loses_one_in: 0, sink: 9e9 };
    const RANGE: Range = Range { low: 10e3, first: 2e6, most: 2e6, gap: 0.02 };
    /// Range of a search that knows only the result of a flood.
    const OPEN: Range = Range { first: 100e3, most: 1e9, ..RANGE };

    impl Fake {
        fn trial(self, rate: f64) -> Counted {
            let offered = rate.min(self.generator);
            let sent = offered as u64;
            let mut received = (offered.min(self.dut)) as u64;
            received -= sent.checked_div(self.loses_one_in).unwrap_or(0);
            let lost_at_sink = if rate > self.sink { received / 2 } else { 0 };
            Counted { requested: Some(rate), offered, sent, received, lost_at_sink, ..Counted::default() }
        }

        fn found(self, accepted_loss: f64, range: Range) -> Found {
            search(accepted_loss, range, |rate, _| Ok::<_, ()>(self.trial(rate))).unwrap()
        }
    }

    #[test]
    fn the_capacity_is_found_from_below_and_within_the_gap() {
        let found = FAKE.found(NDR, RANGE);
        let rate = found.rate.unwrap();
        assert!(rate <= 700e3 && rate > 700e3 * 0.97, "{found:?}");
        assert_eq!((found.limit, found.void), (Limit::Loss, 0));
    }

    #[test]
    fn pdr_is_above_ndr_by_what_may_be_lost() {
        let range = Range { gap: 0.001, ..RANGE };
        let (ndr, pdr) = (FAKE.found(NDR, range).rate.unwrap(), FAKE.found(PDR, range).rate.unwrap());
        assert!(pdr > ndr * 1.003 && pdr < ndr * 1.007, "{ndr} {pdr}");
    }

    #[test]
    fn one_in_a_thousand_has_no_ndr_but_a_pdr() {
        let lossy = Fake { loses_one_in: 1000, ..FAKE };
        assert_eq!(lossy.found(NDR, RANGE).rate, None);
        assert!(lossy.found(PDR, RANGE).rate.unwrap() > 650e3);
    }

    #[test]
    fn a_generator_at_its_end_is_named_and_not_the_dut() {
        let found = Fake { dut: 9e6, generator: 1e6, ..FAKE }.found(NDR, RANGE);
        assert_eq!(found.limit, Limit::Generator);
        assert!(found.rate.unwrap() > 0.95e6 && found.rate.unwrap() <= 1e6, "{found:?}");
    }

    #[test]
    fn a_dut_faster_than_the_range_ends_at_once() {
        let found = Fake { dut: 9e6, ..FAKE }.found(NDR, RANGE);
        assert_eq!((found.rate, found.limit, found.trials), (Some(2e6), Limit::Range, 2));
    }

    #[test]
    fn a_range_is_widened_until_the_dut_loses_or_the_generator_falls_short() {
        let found = FAKE.found(NDR, OPEN);
        assert!(found.rate.unwrap() > 700e3 * 0.97 && found.limit == Limit::Loss, "{found:?}");
        let found = Fake { dut: 9e6, ..FAKE }.found(NDR, OPEN);
        assert!(found.rate.unwrap() > 5e6 * 0.97 && found.limit == Limit::Generator, "{found:?}");
    }

    #[test]
    fn what_is_lost_at_less_than_the_rate_is_the_duts_limit_and_not_the_generators() {
        // The last doubling requests more than the generator can send, and the DUT does not forward that either.
        let mut above = 0;
        let trial = |rate: f64, _| {
            above += u32::from(rate > 5e6);
            Ok::<_, ()>(Fake { dut: 4.5e6, ..FAKE }.trial(rate))
        };
        let found = search(NDR, OPEN, trial).unwrap();
        assert!(found.rate.unwrap() > 4.3e6 && found.limit == Limit::Loss, "{found:?}");
        assert_eq!(above, 1, "known from one trial");
    }

    #[test]
    fn a_generator_that_fell_short_once_gets_another_chance_undisturbed_or_not() {
        for waited in [0.0, 0.5] {
            let (mut last, mut calls) = ((0.0, false), 0);
            let trial = |rate: f64, is_last| {
                calls = if last == (rate, is_last) { calls + 1 } else { 1 };
                last = (rate, is_last);
                let short = Counted { offered: rate / 2.0, waited, ..FAKE.trial(rate) };
                Ok::<_, ()>(if calls == 3 { FAKE.trial(rate) } else { short })
            };
            let found = search(NDR, OPEN, trial).unwrap();
            assert!(found.rate.unwrap() > 700e3 * 0.97 && found.limit == Limit::Loss, "{found:?}");
        }
    }

    #[test]
    fn a_search_that_others_disturbed_blames_neither_the_generator_nor_the_dut() {
        let short = |rate: f64, _| Ok::<_, ()>(Counted { offered: rate / 2.0, waited: 0.5, ..FAKE.trial(rate) });
        let found = search(NDR, OPEN, short).unwrap();
        assert_eq!((found.rate, found.limit, found.is_lower_bound()), (None, Limit::Disturbed, false));
        // Trials above 300,000 packets per second are disturbed.
        let lost = |rate: f64, _| {
            let counted = FAKE.trial(rate);
            let disturbed = Counted { received: counted.received / 2, stolen: 0.3, ..counted };
            Ok::<_, ()>(if rate > 300e3 { disturbed } else { counted })
        };
        let found = search(NDR, OPEN, lost).unwrap();
        assert!(found.rate.unwrap() > 290e3 && found.limit == Limit::Disturbed, "{found:?}");
        assert!(found.is_lower_bound());
    }

    #[test]
    fn void_trials_are_repeated_counted_and_no_loss() {
        let found = Fake { dut: 9e6, sink: 600e3, ..FAKE }.found(NDR, RANGE);
        assert_eq!(found.limit, Limit::Void);
        assert!(found.void >= 3 && found.rate.unwrap() <= 600e3, "{found:?}");
    }

    #[test]
    fn a_rate_that_does_not_hold_goes_down() {
        let trial = |rate: f64, is_last: bool| {
            let dut = if is_last { 500e3 } else { 700e3 };
            Ok::<_, ()>(Fake { dut, ..FAKE }.trial(rate))
        };
        let found = search(NDR, RANGE, trial).unwrap();
        assert!(found.rate.unwrap() <= 500e3, "{found:?}");
    }

    #[test]
    fn where_nothing_is_confirmed_the_search_ends_soon() {
        let trial = |rate: f64, is_last: bool| {
            let counted = FAKE.trial(rate);
            Ok::<_, ()>(if is_last { Counted { waited: 0.5, received: 0, ..counted } } else { counted })
        };
        let found = search(NDR, OPEN, trial).unwrap();
        assert!(found.rate.is_none() && found.trials < 80, "{found:?}");
    }

    #[test]
    fn a_hiccup_is_no_limit_and_an_overload_is_found_in_one_trial() {
        let mut losses = [0.02, 0.0].into_iter();
        let once = |rate: f64, _| {
            let lost = (rate * losses.next().unwrap_or(0.0)) as u64;
            Ok::<_, ()>(Counted { received: rate as u64 - lost, ..FAKE.trial(rate) })
        };
        let found = search(NDR, Range { first: 500e3, most: 500e3, ..RANGE }, once).unwrap();
        assert_eq!((found.rate, found.limit, found.trials), (Some(500e3), Limit::Range, 3));
        let mut tried = Vec::new();
        let trial = |rate: f64, _| {
            tried.push(rate);
            Ok::<_, ()>(FAKE.trial(rate))
        };
        search(NDR, RANGE, trial).unwrap();
        assert_eq!(tried.iter().filter(|&&rate| rate > 1.9e6).count(), 1, "{tried:?}");
    }

    #[test]
    fn an_ndr_as_high_as_the_pdr_ends_where_that_did() {
        let range = Range { gap: 0.001, ..RANGE };
        let pdr = FAKE.found(PDR, range);
        let at_most = |found: Found, limit| Found { limit, ..found }.below(pdr);
        let ndr = Found { rate: pdr.rate.map(|rate| rate * 1.001), ..FAKE.found(NDR, range) };
        assert_eq!((at_most(ndr, Limit::Range).rate, at_most(ndr, Limit::Range).limit), (pdr.rate, Limit::Loss));
        assert_eq!(at_most(ndr, Limit::Generator).limit, Limit::Generator);
        let none = Found { rate: None, ..ndr };
        assert_eq!(none.below(pdr).rate, None);
    }

    #[test]
    fn a_disturbed_loss_gets_another_chance() {
        let mut calls = 0;
        let trial = |rate: f64, _| {
            calls += 1;
            let mut counted = FAKE.trial(rate.min(500e3));
            counted.requested = None;
            counted.offered = rate;
            // In every third trial, another process uses the core.
            if calls % 3 == 1 {
                counted.received -= 1000;
                counted.waited = 0.5;
            }
            Ok::<_, ()>(counted)
        };
        let found = search(NDR, Range { first: 500e3, most: 500e3, ..RANGE }, trial).unwrap();
        assert_eq!(found.rate, Some(500e3));
    }
}
