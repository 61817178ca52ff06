//! Rate of requests to a controller: it is sent as many requests at a time as it answers quickly, and is given as much
//! time as its answers need.

use std::time::Duration;

/// Divisor of the timeout: an answer that takes at most this part of it is quick.
const GOOD_TIME: u32 = 4;
/// Factor by which the timeout of a booking is longer than that of other requests. A booking that is given up counts
/// nevertheless.
const BOOKING: u32 = 40;
/// Maximum time to wait for an answer after earlier ones came too late.
const MAX_PATIENCE: Duration = Duration::from_mins(2);
/// Divisor of the controller's time: requests for the topology take at most this part of it.
const TOPOLOGY_SHARE: u32 = 20;

/// Number of simultaneous requests, by additive increase and multiplicative decrease (AIMD): it grows with each quick
/// answer, and is halved after a late one. A controller that answers one request after the other also receives them one
/// after the other from each host, however many hosts there are.
#[derive(Clone, Debug)]
pub struct Pace {
    window: f64,
    most: usize,
    good_time: Duration,
    /// True until the first late answer. Until then the window doubles with every round trip.
    starts: bool,
    /// Number of outstanding answers to requests that were sent before the window was halved.
    outdated: usize,
}

impl Pace {
    /// Begins with one request at a time, and never allows more than `most`. `timeout` is the maximum time for an
    /// answer.
    pub fn new(most: usize, timeout: Duration) -> Self {
        Self { window: 1.0, most: most.max(1), good_time: timeout / GOOD_TIME, starts: true, outdated: 0 }
    }

    /// Returns the number of requests that may wait for their answers at the same time.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is at least 1, and at most `most`")]
    pub fn at_once(&self) -> usize {
        self.window as usize
    }

    /// Records the time after which an answer came, or after which the request was given up.
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

/// Maximum times to wait for answers, and the minimum time between two requests for the topology.
#[derive(Clone, Debug)]
pub struct Patience {
    least: Duration,
    topology: Duration,
    /// Time that the last topology took.
    took: Duration,
}

impl Patience {
    /// Creates the limits. `least` is the minimum for the time to wait for a topology.
    pub const fn new(least: Duration) -> Self {
        Self { least, topology: least, took: Duration::ZERO }
    }

    /// Returns the time to wait for a booking, which is long because a booking that is given up may have counted.
    pub fn booking(timeout: Duration) -> Duration {
        (timeout * BOOKING).min(MAX_PATIENCE).max(timeout)
    }

    /// Returns the time to wait for a topology. A large one, or one that is queued behind the requests of many hosts,
    /// takes longer than other answers.
    pub const fn topology(&self) -> Duration {
        self.topology
    }

    /// Records the time after which a topology came.
    pub fn answered(&mut self, took: Duration) {
        self.took = took;
        self.topology = (took * GOOD_TIME).clamp(self.least, MAX_PATIENCE.max(self.least));
    }

    /// Records that no topology came in time. The time to wait for the next one doubles.
    pub fn missed(&mut self) {
        self.topology = (self.topology * 2).min(MAX_PATIENCE.max(self.least));
    }

    /// Returns the minimum time between two requests for the topology.
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
