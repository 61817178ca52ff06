//! Path MTUs that routers have reported, as long as they are valid.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use srv6d_srv6::carrier::SegmentList;

/// Time after which a path is tried with larger packets again: ten minutes, as RFC 8201 section 4 recommends.
const LIFETIME: Duration = Duration::from_mins(10);

/// Learned MTUs by segments.
#[derive(Debug, Default)]
pub struct PathMtus(BTreeMap<SegmentList, Learned>);

#[derive(Clone, Copy, Debug)]
struct Learned {
    mtu: u32,
    until: Instant,
}

impl PathMtus {
    /// Records an MTU of these segments. If a smaller one is known, it stays.
    pub fn learn(&mut self, segments: SegmentList, mtu: u32, now: Instant) {
        let known = self.0.get(&segments).filter(|known| known.until > now);
        if known.is_none_or(|known| mtu <= known.mtu) {
            self.0.insert(segments, Learned { mtu, until: now + LIFETIME });
        }
    }

    /// Returns the MTUs that are still valid, and removes the others.
    pub fn believed(&mut self, now: Instant) -> BTreeMap<SegmentList, u32> {
        self.0.retain(|_, learned| learned.until > now);
        self.0.iter().map(|(segments, learned)| (segments.clone(), learned.mtu)).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test may panic")]
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn segments(text: &str) -> SegmentList {
        SegmentList::new(vec![text.parse().unwrap()], &[]).unwrap()
    }

    #[test]
    fn an_mtu_is_believed_for_ten_minutes_and_only_becomes_smaller() {
        let (mut mtus, start) = (PathMtus::default(), Instant::now());
        let (near, far) = (segments("fcbb:0:1::"), segments("fcbb:0:1:2::"));
        mtus.learn(near.clone(), 1400, start);
        mtus.learn(near.clone(), 1450, start + MINUTE);
        mtus.learn(far.clone(), 1300, start + 5 * MINUTE);
        let later = start + 10 * MINUTE;
        let both = [(near.clone(), 1400), (far.clone(), 1300)].into();
        assert_eq!(mtus.believed(later.checked_sub(Duration::from_millis(1)).unwrap()), both);
        assert_eq!(mtus.believed(later), [(far.clone(), 1300)].into());
        mtus.learn(near.clone(), 1450, later);
        assert_eq!(mtus.believed(later), [(near, 1450), (far, 1300)].into());
    }

    #[test]
    fn what_is_said_again_is_believed_longer() {
        let (mut mtus, start) = (PathMtus::default(), Instant::now());
        let near = segments("fcbb:0:1::");
        mtus.learn(near.clone(), 1400, start);
        mtus.learn(near.clone(), 1400, start + 5 * MINUTE);
        assert_eq!(mtus.believed(start + 12 * MINUTE), [(near, 1400)].into());
    }
}
