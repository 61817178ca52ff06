//! Whether this machine was fast enough for its emulated ports.
//!
//! A port has its rate in the worker's own clock. On a machine that is too busy, packets leave later than they should, and
//! senders and receivers run late as well: then times that were measured say something about the machine.

use std::time::Duration;

use srv6d_api::{Request, Response, Topic};

use super::fabric::Lab;
use super::topology::Forwarder;

/// Upper end of the first bucket of lateness. Each further one ends at twice the time; the last one has no end.
const FIRST: Duration = Duration::from_nanos(1024);

/// Packets that have left the emulated ports of a lab, by how much too late they were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lateness(Vec<u64>);

impl Lateness {
    /// Reads what all nodes have counted so far. A node that does not answer is left out.
    pub fn of(lab: &Lab) -> Self {
        let mut sum = Self::default();
        for node in lab.topology.nodes().filter(|node| node.kind == Forwarder::Srv6d) {
            let Ok(Response::Ports(ports)) = lab.ask(&node.name, &Request::Show { topic: Topic::Ports }) else {
                continue;
            };
            ports.iter().filter_map(|port| port.emulated.as_ref()).for_each(|port| sum.add(&port.late));
        }
        sum
    }

    fn add(&mut self, late: &[u64]) {
        self.0.resize(self.0.len().max(late.len()), 0);
        for (sum, packets) in self.0.iter_mut().zip(late) {
            *sum += packets;
        }
    }

    /// Returns what has been counted since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let earlier = before.0.iter().copied().chain(std::iter::repeat(0));
        Self(self.0.iter().zip(earlier).map(|(now, then)| now.saturating_sub(then)).collect())
    }

    /// Returns the time that 99 of 100 packets kept to, rounded up to the end of its bucket. `None`: they were later than
    /// the buckets tell, or there were no packets.
    pub fn p99(&self) -> Option<Duration> {
        let all: u64 = self.0.iter().sum();
        let mut seen = 0;
        let bucket = self.0.iter().position(|packets| {
            seen += packets;
            seen > 0 && seen * 100 >= all * 99
        })?;
        let end = FIRST.checked_mul(1 << u32::try_from(bucket).ok()?);
        end.filter(|_| bucket + 1 < self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p99_is_the_end_of_the_bucket_with_the_99th_of_100() {
        let nanoseconds = |late: &[u64]| Lateness(late.to_vec()).p99().map(|time| time.as_nanos());
        assert_eq!(nanoseconds(&[99, 0, 1, 0]), Some(1024));
        assert_eq!(nanoseconds(&[98, 0, 2, 0]), Some(4096));
        assert_eq!(nanoseconds(&[0, 7, 0, 0]), Some(2048));
        assert_eq!(nanoseconds(&[98, 0, 0, 2]), None, "the last bucket has no end");
        assert_eq!(nanoseconds(&[0, 0]), None);
        assert_eq!(nanoseconds(&[]), None);
    }

    #[test]
    fn only_what_came_since_counts() {
        let mut before = Lateness::default();
        before.add(&[1, 2]);
        let mut now = before.clone();
        now.add(&[4, 0, 3]);
        assert_eq!(now.since(&before), Lateness(vec![4, 0, 3]));
    }
}
