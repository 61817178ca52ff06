//! Progress of a campaign, and the approximate time that the rest takes. The rest is estimated from the planned lengths
//! and from how much longer or shorter than planned the completed steps of the same kind were.
//!
//! ```text
//!            done         to come
//! floods     ██████████   ██       planned 1.6 s each, took 2.4 s: the rest takes 1.5 times its planned length
//! searches                ████████ none done yet: the ratio of all completed steps applies
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Kinds of steps. Steps of one kind deviate from their planned lengths for the same reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Flood of a row at the sizes of one MTU.
    Flood,
    /// Turns of a row of srv6d and the floor.
    Turns,
    /// Flood of a row with several workers.
    Workers,
    /// Search for NDR and PDR of a row.
    Search,
    /// Latency of a row at fractions of its NDR.
    Latency,
}

/// Completed and remaining steps of a campaign.
#[derive(Debug, Default)]
pub struct Progress(BTreeMap<Kind, Steps>);

/// Steps of one kind.
#[derive(Debug, Default)]
struct Steps {
    /// Planned lengths of the remaining steps.
    to_come: VecDeque<Duration>,
    all: usize,
    /// Total planned and actual length of the completed steps.
    planned: Duration,
    took: Duration,
}

impl Progress {
    /// Starts with these steps. Steps of one kind must be in the order in which they will be done.
    pub fn of(planned: impl IntoIterator<Item = (Kind, Duration)>) -> Self {
        let mut progress = Self::default();
        for (kind, length) in planned {
            let steps = progress.0.entry(kind).or_default();
            steps.to_come.push_back(length);
            steps.all += 1;
        }
        progress
    }

    /// Records that the next step of this kind was done, and how long it took.
    pub fn done(&mut self, kind: Kind, took: Duration) {
        let steps = self.0.entry(kind).or_default();
        if let Some(planned) = steps.to_come.pop_front() {
            steps.planned += planned;
            steps.took += took;
        }
    }

    /// Removes the next step of this kind because it cannot be done. That does not affect the estimate for others.
    pub fn skip(&mut self, kind: Kind) {
        self.0.entry(kind).or_default().to_come.pop_front();
    }

    /// Returns the approximate remaining time. It is not zero as long as a step remains.
    pub fn left(&self) -> Duration {
        let took: Duration = self.0.values().map(|steps| steps.took).sum();
        let planned: Duration = self.0.values().map(|steps| steps.planned).sum();
        let usual = pace(took, planned).unwrap_or(1.0);
        let of_kind = |steps: &Steps| {
            let to_come: Duration = steps.to_come.iter().sum();
            to_come.mul_f64(pace(steps.took, steps.planned).unwrap_or(usual))
        };
        self.0.values().map(of_kind).sum()
    }

    /// Returns the position of the next step of this kind, such as `3 of 8`.
    pub fn next(&self, kind: Kind) -> String {
        let (all, to_come) = self.0.get(&kind).map_or((0, 0), |steps| (steps.all, steps.to_come.len()));
        format!("{} of {all}", all - to_come + 1)
    }
}

/// Returns the ratio of actual to planned time, or `None` if nothing was done.
fn pace(took: Duration, planned: Duration) -> Option<f64> {
    (planned > Duration::ZERO).then(|| took.as_secs_f64() / planned.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn progress() -> Progress {
        let floods = [2, 2, 2, 4].map(|seconds| (Kind::Flood, SECOND * seconds));
        let searches = [10; 3].map(|seconds| (Kind::Search, SECOND * seconds));
        Progress::of(floods.into_iter().chain(searches))
    }

    #[test]
    fn what_is_to_come_takes_as_long_as_what_was_done_of_its_kind() {
        let mut progress = progress();
        assert_eq!(progress.left(), SECOND * 40);
        progress.done(Kind::Flood, SECOND * 6);
        // No search has been done, so searches are estimated like everything else: three times as long as planned.
        assert_eq!(progress.left(), SECOND * (3 * 8 + 3 * 30));
        progress.done(Kind::Search, SECOND * 5);
        assert_eq!(progress.left(), SECOND * (3 * 8) + 2 * SECOND * 5);
    }

    #[test]
    fn it_never_takes_no_time_as_long_as_there_is_a_step_to_come() {
        let mut progress = progress();
        for _ in 0..4 {
            progress.done(Kind::Flood, SECOND * 100);
        }
        progress.done(Kind::Search, SECOND * 100);
        progress.done(Kind::Search, SECOND * 60);
        assert_eq!(progress.left(), SECOND * 80);
        progress.done(Kind::Search, SECOND * 90);
        assert_eq!(progress.left(), Duration::ZERO);
    }

    #[test]
    fn what_cannot_be_done_takes_no_time_and_says_nothing_of_the_rest() {
        let mut progress = progress();
        progress.done(Kind::Flood, SECOND * 2);
        progress.skip(Kind::Flood);
        assert_eq!(progress.left(), SECOND * (6 + 30));
        progress.skip(Kind::Turns);
        assert_eq!(progress.left(), SECOND * (6 + 30));
    }

    #[test]
    fn steps_have_a_number_among_their_kind() {
        let mut progress = progress();
        assert_eq!(progress.next(Kind::Search), "1 of 3");
        progress.done(Kind::Search, SECOND);
        progress.skip(Kind::Search);
        assert_eq!(progress.next(Kind::Search), "3 of 3");
    }
}
