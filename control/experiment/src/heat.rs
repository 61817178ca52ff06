//! The load of each link over time.

use crate::agenda::{PS_PER_SECOND, Ps};
use crate::rows::Rows;

/// Number of spans of time at which two neighbouring spans are merged into one.
const SPANS: usize = 128;
/// Largest number of links that are watched.
pub(crate) const MOST_LINKS: u32 = 1024;

/// Bytes that each link carried in each span of time. Spans become longer as the run does.
#[derive(Clone, Debug)]
pub(crate) struct Heat {
    span: Ps,
    links: Rows<Vec<u64>>,
}

impl Heat {
    /// Begins to watch this number of links. `span` is the length of the spans at first.
    pub fn new(links: u32, span: Ps) -> Self {
        Self { span: span.max(1), links: Rows::of(links, |_| Vec::new()) }
    }

    /// Adds bytes that a link has carried at this time.
    pub fn add(&mut self, link: u32, at: Ps, bytes: u64) {
        while at / self.span >= SPANS as u64 {
            self.span *= 2;
            for spans in self.links.iter_mut() {
                *spans = spans.chunks(2).map(|pair| pair.iter().sum()).collect();
            }
        }
        let at = usize::try_from(at / self.span).unwrap_or(SPANS);
        let spans = &mut self.links[link];
        if spans.len() <= at {
            spans.resize(at + 1, 0);
        }
        spans.get_mut(at).into_iter().for_each(|sum| *sum += bytes);
    }

    /// Returns the length of a span in seconds.
    #[allow(clippy::cast_precision_loss, reason = "a time to be shown")]
    pub fn seconds(&self) -> f64 {
        self.span as f64 / PS_PER_SECOND as f64
    }

    /// Returns the load of each link in each span, from 0 to 1, if the links have this rate in bit/s.
    #[allow(clippy::cast_precision_loss, reason = "a load to be shown")]
    pub fn loads(&self, rate: u64) -> Vec<Vec<f64>> {
        let full = self.seconds() * rate as f64 / 8.0;
        let of_link = |spans: &Vec<u64>| spans.iter().map(|bytes| *bytes as f64 / full).collect();
        self.links.as_slice().iter().map(of_link).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_grow_and_lose_nothing() {
        let mut heat = Heat::new(2, PS_PER_SECOND / 1000);
        heat.add(1, 0, 50);
        heat.add(1, PS_PER_SECOND / 1000, 75);
        assert_eq!(heat.loads(1_000_000), [vec![], vec![0.4, 0.6]]);
        heat.add(0, PS_PER_SECOND / 5, 25);
        assert!((heat.seconds() - 0.002).abs() < 1e-12);
        assert_eq!(heat.loads(1_000_000).get(1), Some(&vec![0.5]));
        assert_eq!(heat.loads(1_000_000).first().map(Vec::len), Some(101));
    }
}
