//! The highest rate at which a DUT loses no more than a share: NDR (nothing) and PDR (one in two hundred).

use serde::{Deserialize, Serialize};

use crate::verdict::{Counted, Verdict};

/// Share that the NDR may lose.
pub const NDR: f64 = 0.0;
/// Share that the PDR may lose.
pub const PDR: f64 = 0.005;

/// Undisturbed trials at a rate that may say nothing, or lose little: one that passes is enough.
const QUIET_TRIALS: u32 = 3;
/// All trials at a rate, with those that others disturbed.
const TRIALS: u32 = 6;
/// Up to this share it may be the machine that lost them: a core that is taken away for some milliseconds of a trial.
const HICCUP: f64 = 0.05;
/// A rate that was not confirmed goes down by this ...
const STEP_BACK: f64 = 0.9;
/// ... so often; then by half: where nothing holds all steps down to the lowest rate would take minutes.
const SMALL_STEPS: u32 = 3;

/// Where to search, and how closely.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// Lowest rate worth a trial, in packets per second.
    pub low: f64,
    /// The first one tried. As long as the highest tried passes, the next is twice that.
    pub first: f64,
    /// Highest that is ever tried.
    pub most: f64,
    /// The search ends when the two bounds differ by no more than this share.
    pub gap: f64,
}

/// Why the rate is not higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The DUT lost too much beyond.
    Loss,
    /// The generator could not send more, although nobody disturbed it.
    Generator,
    /// Others had the cores in every trial beyond.
    Disturbed,
    /// No trial beyond was worth anything: the sink was the limit, or more came than was sent.
    Void,
    /// It was the highest rate of the range.
    Range,
}

impl Limit {
    /// For people.
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

/// What a search ended with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The rate, as it was offered and passed. A lower bound. None: not even the lowest passed.
    pub rate: Option<f64>,
    /// Why it is not higher.
    pub limit: Limit,
    /// Trials made.
    pub trials: u32,
    /// Of these, void.
    pub void: u32,
}

impl Found {
    /// The DUT may do more: it was not its loss that ended the search.
    pub fn is_lower_bound(&self) -> bool {
        self.rate.is_some() && self.limit != Limit::Loss
    }

    /// An NDR, searched up to this PDR: what stood in the way of the PDR stood in its way, too.
    #[must_use]
    pub fn below(self, pdr: Self) -> Self {
        let rate = self.rate.zip(pdr.rate).map(|(ndr, pdr)| ndr.min(pdr)).or(self.rate);
        let limit = if self.limit == Limit::Range { pdr.limit } else { self.limit };
        Self { rate, limit, ..self }
    }
}

/// A rate tried.
enum Tried {
    /// With the rate that was really offered.
    Passed(f64),
    Failed(Limit),
}

/// State of one search.
struct Search<F> {
    accepted_loss: f64,
    trial: F,
    trials: u32,
    void: u32,
}

/// Bisects. `trial` is given a rate and whether it is the last, longer one that confirms what was found.
pub fn search<E>(
    accepted_loss: f64,
    range: Range,
    trial: impl FnMut(f64, bool) -> Result<Counted, E>,
) -> Result<Found, E> {
    let mut search = Search { accepted_loss, trial, trials: 0, void: 0 };
    // Both are rates asked for: a generator may offer a little less, and the search has to end all the same.
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
        // Who was disturbed says nothing, and is not counted as what the others say.
        let (mut why, mut quiet) = (Limit::Disturbed, 0);
        for _ in 0..TRIALS {
            let counted = (self.trial)(rate, is_last)?;
            self.trials += 1;
            let (verdict, loss) = (counted.verdict(), counted.loss());
            if matches!(verdict, Verdict::Measured { .. }) && loss <= self.accepted_loss {
                return Ok(Tried::Passed(counted.offered));
            }
            self.void += u32::from(matches!(verdict, Verdict::Void { .. }));
            if counted.is_disturbed() {
                continue;
            }
            quiet += 1;
            why = match verdict {
                Verdict::Void { .. } => Limit::Void,
                // What loses as much at less than the rate does so at the rate.
                _ if loss > HICCUP => return Ok(Tried::Failed(Limit::Loss)),
                Verdict::GeneratorLimited => Limit::Generator,
                Verdict::Measured { .. } => Limit::Loss,
            };
            if quiet == QUIET_TRIALS {
                break;
            }
        }
        Ok(Tried::Failed(why))
    }

    /// Tries a found rate once more, and goes down from it until one holds.
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
        /// Frames it loses at any rate, one in so many; 0: none.
        loses_one_in: u64,
        /// Above this rate the sink is the limit.
        sink: f64,
    }

    const FAKE: Fake = Fake { dut: 700e3, generator: 5e6, loses_one_in: 0, sink: 9e9 };
    const RANGE: Range = Range { low: 10e3, first: 2e6, most: 2e6, gap: 0.02 };
    /// As of a search that knows no more than what a flood did.
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
        // The last doubling asks for more than the generator has, and the DUT does not forward that either.
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
        // Only above 300,000 packets per second.
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
            // Every third trial somebody else is there.
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
