//! Latency from generator to sink, as percentiles.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::BenchError;

/// Longer is counted as this.
const LONGEST: Duration = Duration::from_secs(10);

/// Percentiles in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the packets are faster.
    pub p50: f64,
    /// One in a hundred is slower.
    pub p99: f64,
    /// One in a thousand is slower.
    pub p999: f64,
    /// The slowest.
    pub max: f64,
    /// Packets measured.
    pub samples: u64,
    /// The HDR histogram, in the steps in which its percentiles are printed: ever finer towards the slowest.
    #[serde(default)]
    pub histogram: Vec<Step>,
}

/// A step of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// This share of the packets ...
    pub quantile: f64,
    /// ... took no longer than this, in microseconds ...
    pub us: f64,
    /// ... and they are so many.
    pub count: u64,
}

/// Steps in each half of what is left up to the slowest packet.
const STEPS_PER_HALF: u32 = 5;

impl Latency {
    /// None: there are no samples.
    pub fn of(samples: &[Duration]) -> Result<Option<Self>, BenchError> {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, LONGEST.as_nanos() as u64, 3)
            .map_err(|why| BenchError::of("make a histogram", why))?;
        for sample in samples {
            histogram.saturating_record(sample.as_nanos().max(1) as u64);
        }
        if histogram.is_empty() {
            return Ok(None);
        }
        let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Ok(Some(Self {
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1000.0,
            samples: histogram.len(),
            histogram: steps(&histogram),
        }))
    }
}

fn steps(histogram: &Histogram<u64>) -> Vec<Step> {
    let mut count = 0;
    let step = |value: hdrhistogram::iterators::IterationValue<u64>| {
        count += value.count_since_last_iteration();
        Step { quantile: value.quantile(), us: value.value_iterated_to() as f64 / 1000.0, count }
    };
    histogram.iter_quantiles(STEPS_PER_HALF).map(step).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure is the test's failure")]

    use super::*;

    #[test]
    fn percentiles_are_within_a_thousandth() {
        let samples: Vec<Duration> = (1..=10_000).map(Duration::from_micros).collect();
        let latency = Latency::of(&samples).unwrap().unwrap();
        for (measured, expected) in [(latency.p50, 5000.0), (latency.p99, 9900.0), (latency.p999, 9990.0)] {
            assert!((measured / expected - 1.0).abs() < 0.002, "{measured} {expected}");
        }
        assert_eq!(latency.samples, 10_000);
        let middle = latency.histogram.iter().find(|step| step.quantile >= 0.5).unwrap();
        assert!((middle.us / 5000.0 - 1.0).abs() < 0.002 && middle.count.abs_diff(5000) < 10, "{middle:?}");
        let last = latency.histogram.last().unwrap();
        assert!((last.us / 10_000.0 - 1.0).abs() < 0.002 && last.count == 10_000, "{last:?}");
        assert_eq!(Latency::of(&[]).unwrap(), None);
    }
}
