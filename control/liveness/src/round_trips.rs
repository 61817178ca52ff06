//! Round-trip times of the last probes of a loop.

use hdrhistogram::Histogram;

/// Longest time that is told apart, in microseconds.
const LONGEST: u64 = 20_000_000;
/// Significant digits of a time.
const DIGITS: u8 = 2;
/// Number of times in one of the two histograms.
const MANY: u64 = 1024;

/// Round-trip times of at least the last 1,024 answers, and at most twice as many.
#[derive(Clone, Debug, Default)]
pub struct RoundTrips {
    present: Option<Histogram<u32>>,
    before: Option<Histogram<u32>>,
}

impl RoundTrips {
    /// Adds a round-trip time in nanoseconds. Times beyond 20 s count as 20 s.
    pub(crate) fn add(&mut self, nanoseconds: u64) {
        if self.present.as_ref().is_some_and(|present| present.len() >= MANY) {
            self.before = self.present.take();
        }
        if self.present.is_none() {
            self.present = Histogram::new_with_bounds(1, LONGEST, DIGITS).ok();
        }
        if let Some(present) = &mut self.present {
            present.saturating_record((nanoseconds / 1000).max(1));
        }
    }

    /// Returns the time in microseconds that this share of the answers does not exceed. `None`: there is no answer yet.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let present = self.present.as_ref()?;
        let Some(before) = &self.before else { return Some(present.value_at_quantile(share)) };
        let mut both = before.clone();
        both.add(present).ok()?;
        Some(both.value_at_quantile(share))
    }
}
