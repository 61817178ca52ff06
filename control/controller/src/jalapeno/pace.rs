//! How fast a controller is asked: as many questions at a time as it answers in good time, and as patiently as its
//! answers need.

use std::time::Duration;

/// An answer is in good time if it takes no more than this part of the time that one may take.
const GOOD_TIME: u32 = 4;
/// A booking is waited for so many times as long as another answer: given up, it counts all the same.
const BOOKING: u32 = 40;
/// The longest that an answer is waited for after earlier ones came too late.
const MAX_PATIENCE: Duration = Duration::from_mins(2);
/// Looks at the topology take at most one part in so many of the controller's time.
const TOPOLOGY_SHARE: u32 = 20;

/// Questions at a time: one more for each answer in good time, half as many after a late one (AIMD). A controller that
/// answers one question after the other is asked one question after the other, by every host, however many hosts ask.
#[derive(Clone, Debug)]
pub struct Pace {
    window: f64,
    most: usize,
    good_time: Duration,
    /// Until the first late answer the window doubles with every round trip.
    starts: bool,
    /// Answers to questions that were asked before the window was halved.
    outdated: usize,
}

impl Pace {
    /// Begins with one question at a time; never more than `most`. `timeout`: how long an answer may take.
    pub fn new(most: usize, timeout: Duration) -> Self {
        Self { window: 1.0, most: most.max(1), good_time: timeout / GOOD_TIME, starts: true, outdated: 0 }
    }

    /// Questions that may wait for their answers together.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is at least 1, and at most `most`")]
    pub fn at_once(&self) -> usize {
        self.window as usize
    }

    /// An answer came, or none in time.
    pub fn took(&mut self, time: Duration) {
        if time > self.good_time {
            self.halve();
            return;
        }
        self.outdated = self.outdated.saturating_sub(1);
        let more = if self.starts { 1.0 } else { 1.0 / self.window };
        self.window = (self.window + more).min(self.limit());
    }

    fn halve(&mut self) {
        self.starts = false;
        if self.outdated > 0 {
            self.outdated -= 1;
            return;
        }
        self.window = (self.window / 2.0).max(1.0);
        self.outdated = self.at_once();
    }

    #[expect(clippy::cast_precision_loss, reason = "questions at a time are few")]
    const fn limit(&self) -> f64 {
        self.most as f64
    }
}

/// How long answers are waited for, and how often the topology is asked for.
#[derive(Clone, Debug)]
pub struct Patience {
    least: Duration,
    topology: Duration,
    /// How long the last topology took.
    took: Duration,
}

impl Patience {
    /// `least`: how long a topology is waited for in any case.
    pub const fn new(least: Duration) -> Self {
        Self { least, topology: least, took: Duration::ZERO }
    }

    /// For a booking: one that is given up may have counted.
    pub fn booking(timeout: Duration) -> Duration {
        (timeout * BOOKING).min(MAX_PATIENCE).max(timeout)
    }

    /// For a topology: a large one, or one behind the questions of many hosts, takes longer than other answers.
    pub const fn topology(&self) -> Duration {
        self.topology
    }

    /// A topology came after that time.
    pub fn answered(&mut self, took: Duration) {
        self.took = took;
        self.topology = (took * GOOD_TIME).clamp(self.least, MAX_PATIENCE.max(self.least));
    }

    /// None came in time: the next one is waited for twice as long.
    pub fn missed(&mut self) {
        self.topology = (self.topology * 2).min(MAX_PATIENCE.max(self.least));
    }

    /// The least time between two looks.
    pub fn pause(&self) -> Duration {
        (self.took * TOPOLOGY_SHARE).min(MAX_PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(3);
    const QUICK: Duration = Duration::from_millis(5);
    const LATE: Duration = Duration::from_secs(1);

    #[test]
    fn a_quick_controller_is_asked_as_much_as_the_settings_allow() {
        let mut pace = Pace::new(8, TIMEOUT);
        assert_eq!(pace.at_once(), 1);
        (0..20).for_each(|_| pace.took(QUICK));
        assert_eq!(pace.at_once(), 8);
    }

    #[test]
    fn late_answers_halve_the_questions_once_for_all_that_were_under_way() {
        let mut pace = Pace::new(8, TIMEOUT);
        (0..20).for_each(|_| pace.took(QUICK));
        (0..5).for_each(|_| pace.took(LATE));
        assert_eq!(pace.at_once(), 4);
        (0..40).for_each(|_| pace.took(LATE));
        assert_eq!(pace.at_once(), 1, "one after the other, and never none");
        (0..3).for_each(|_| pace.took(QUICK));
        assert_eq!(pace.at_once(), 2, "slowly up again");
    }

    #[test]
    fn a_topology_is_waited_for_as_long_as_it_takes() {
        let mut patience = Patience::new(TIMEOUT);
        patience.missed();
        patience.missed();
        assert_eq!(patience.topology(), TIMEOUT * 4);
        (0..20).for_each(|_| patience.missed());
        assert_eq!(patience.topology(), MAX_PATIENCE);
        patience.answered(Duration::from_secs(4));
        assert_eq!((patience.topology(), patience.pause()), (Duration::from_secs(16), Duration::from_secs(80)));
        patience.answered(QUICK);
        assert_eq!((patience.topology(), patience.pause()), (TIMEOUT, Duration::from_millis(100)));
        assert_eq!(Patience::booking(TIMEOUT), Duration::from_mins(2));
    }
}
