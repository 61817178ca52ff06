//! Latency from generator to sink, as percentiles.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::BenchError;

/// Upper limit of a sample; longer latencies are counted as this one.
const LONGEST: Duration = Duration::from_secs(10);

/// Percentiles of latency in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Median: half of the packets are faster.
    pub p50: f64,
    /// 99th percentile: one packet in a hundred is slower.
    pub p99: f64,
    /// 99.9th percentile: one packet in a thousand is slower.
    pub p999: f64,
    /// Latency of the slowest packet.
    pub max: f64,
    /// Number of samples.
    pub samples: u64,
    /// HDR histogram in steps that become ever finer towards the slowest packet.
    #[serde(default)]
    pub histogram: Vec<HistogramStep>,
}

impl Latency {
    /// Returns a percentile if at least one sample lies beyond it; with fewer samples it would only repeat the maximum.
    pub fn percentile(&self, quantile: f64) -> Option<f64> {
        let known = [(0.5, self.p50), (0.99, self.p99), (0.999, self.p999)];
        let (_, value) = known.into_iter().find(|(at, _)| (at - quantile).abs() < 1e-9)?;
        (self.samples as f64 * (1.0 - quantile) > 1.0 - 1e-6).then_some(value)
    }
}

/// A step of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HistogramStep {
    /// Share of packets that took at most `us`.
    pub quantile: f64,
    /// Latency in microseconds.
    pub us: f64,
    /// Number of packets that took at most `us`.
    pub count: u64,
}

/// Number of steps in each half of what remains up to the slowest packet.
const STEPS_PER_HALF: u32 = 5;

impl Latency {
    /// Computes the percentiles, or returns `None` if there are no samples.
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

fn steps(histogram: &Histogram<u64>) -> Vec<HistogramStep> {
    let mut count = 0;
    let step = |value: hdrhistogram::iterators::IterationValue<u64>| {
        count += value.count_since_last_iteration();
        HistogramStep { quantile: value.quantile(), us: value.value_iterated_to() as f64 / 1000.0, count }
    };
    let mut steps: Vec<HistogramStep> = histogram.iter_quantiles(STEPS_PER_HALF).map(step).collect();
    // Where samples are few, the iterator returns the same sample for several of its steps.
    steps.dedup_by_key(|step| step.count);
    steps
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failure is the test's failure")]

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

    #[test]
    fn a_percentile_takes_as_many_samples_as_one_of_them_is_beyond_it() {
        let of = |samples: u64| {
            let samples: Vec<Duration> = (1..=samples).map(Duration::from_micros).collect();
            let latency = Latency::of(&samples).unwrap().unwrap();
            [0.5, 0.99, 0.999].map(|quantile| latency.percentile(quantile).is_some())
        };
        assert_eq!(of(1), [false; 3]);
        assert_eq!((of(99), of(100)), ([true, false, false], [true, true, false]));
        assert_eq!((of(999), of(1000)), ([true, true, false], [true; 3]));
    }

    #[test]
    fn a_step_of_the_histogram_is_there_once() {
        let samples: Vec<Duration> = [1, 1, 1, 1, 5, 9000].into_iter().map(Duration::from_micros).collect();
        let steps = Latency::of(&samples).unwrap().unwrap().histogram;
        assert!(steps.windows(2).all(|pair| pair[0].count < pair[1].count), "{steps:?}");
        assert_eq!(steps.last().unwrap().count, 6);
    }
}
