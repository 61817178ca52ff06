//! Packets of several streams, in the order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::Packet;

/// Largest number of packets that wait.
const MOST: usize = 16_384;

/// Packets that wait for others with an earlier time.
#[derive(Debug)]
pub struct Sorter {
    wait: Duration,
    waiting: BinaryHeap<Reverse<Waiting>>,
    pushed: u64,
}

/// A packet with its place among those of the same time.
#[derive(Debug)]
struct Waiting(Duration, u64, Packet);

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

impl Sorter {
    /// Makes one in which a packet waits for this long for others with an earlier time.
    pub fn new(wait: Duration) -> Self {
        Self { wait, waiting: BinaryHeap::new(), pushed: 0 }
    }

    /// Returns whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns whether so many packets wait that the earliest may leave at once.
    pub fn is_full(&self) -> bool {
        self.waiting.len() > MOST
    }

    /// Adds a packet.
    pub fn push(&mut self, packet: Packet) {
        self.pushed += 1;
        self.waiting.push(Reverse(Waiting(packet.time, self.pushed, packet)));
    }

    /// Returns the earliest packet if it has waited long enough at the time `now`, or if too many wait.
    pub fn pop(&mut self, now: Duration) -> Option<Packet> {
        let Reverse(Waiting(time, ..)) = self.waiting.peek()?;
        if *time + self.wait > now && !self.is_full() {
            return None;
        }
        self.take()
    }

    /// Returns the earliest packet.
    pub fn take(&mut self) -> Option<Packet> {
        self.waiting.pop().map(|Reverse(Waiting(_, _, packet))| packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(milliseconds: u64, name: &str) -> Packet {
        Packet { time: Duration::from_millis(milliseconds), interface: name.to_owned(), ..Packet::default() }
    }

    #[test]
    fn packets_leave_in_the_order_of_time_after_a_while() {
        let mut sorter = Sorter::new(Duration::from_millis(100));
        for (time, name) in [(7, "b"), (5, "a"), (7, "c"), (900, "d")] {
            sorter.push(packet(time, name));
        }
        assert_eq!(sorter.pop(Duration::from_millis(100)), None);
        let now = Duration::from_millis(107);
        let names: Vec<String> = std::iter::from_fn(|| sorter.pop(now)).map(|packet| packet.interface).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(sorter.take().map(|packet| packet.interface).as_deref(), Some("d"));
    }

    #[test]
    fn whoever_comes_with_a_time_of_the_future_does_not_fill_the_memory() {
        let mut sorter = Sorter::new(Duration::from_millis(100));
        (0..2 * MOST as u64).for_each(|time| sorter.push(packet(1_000_000 + time, "")));
        let left = std::iter::from_fn(|| sorter.pop(Duration::ZERO)).count();
        assert_eq!(left, MOST);
    }
}
