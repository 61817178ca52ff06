//! Round-trip times of the last probes of a loop.

use std::sync::Arc;

use hdrhistogram::Histogram;

/// Longest time that is told apart, in microseconds.
const LONGEST: u64 = 20_000_000;
/// Significant digits of a time.
const DIGITS: u8 = 2;
/// Number of times in one of the two histograms.
const MANY: u64 = 1024;

/// Round-trip times of at least the last 1,024 answers, and at most twice as many. A copy shares them until the next answer.
#[derive(Clone, Debug, Default)]
pub struct RoundTrips {
    present: Option<Arc<Histogram<u32>>>,
    before: Option<Arc<Histogram<u32>>>,
}

impl RoundTrips {
    /// Adds a round-trip time in nanoseconds. Times beyond 20 s count as 20 s.
    pub(crate) fn add(&mut self, nanoseconds: u64) {
        if self.present.as_ref().is_some_and(|present| present.len() >= MANY) {
            self.before = self.present.take();
        }
        if self.present.is_none() {
            self.present = Histogram::new_with_bounds(1, LONGEST, DIGITS).ok().map(Arc::new);
        }
        if let Some(present) = &mut self.present {
            Arc::make_mut(present).saturating_record((nanoseconds / 1000).max(1));
        }
    }

    /// Returns for each share of the answers the time in microseconds that it does not exceed. `None`: there is no answer yet.
    pub fn quantiles<const N: usize>(&self, shares: [f64; N]) -> Option<[u64; N]> {
        let present = self.present.as_deref()?;
        let of = |times: &Histogram<u32>| shares.map(|share| times.value_at_quantile(share));
        let Some(before) = self.before.as_deref() else { return Some(of(present)) };
        let mut both = before.clone();
        both.add(present).ok()?;
        Some(of(&both))
    }
}
