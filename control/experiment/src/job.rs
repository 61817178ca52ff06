//! A job: the transfer of one host to another host, in one or several steps.

use std::collections::VecDeque;

use crate::agenda::Ps;

/// A transfer of one host to another host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Job {
    pub source: u32,
    pub destination: u32,
    /// Number of steps. The next one begins when the job before it in the ring has received one.
    pub steps: u32,
    pub start: Ps,
    pub has_begun: bool,
    /// Job whose next step begins when this one has received a step.
    pub next: Option<u32>,
    /// Whether it competes with an incast.
    pub is_victim: bool,
    /// Number of its first queue pair. The numbers of the others follow it.
    pub first_pair: u32,
    /// Number of steps that may be sent by now.
    pub granted: u32,
    /// Number of steps that have been received completely, in their order.
    pub received: u32,
    /// Numbers of packets received of the steps behind `received`, by step.
    pub partial: VecDeque<u32>,
    /// Time at which everything had been received.
    pub done: Option<Ps>,
}

impl Job {
    /// Creates a job of one step.
    pub fn new(source: u32, destination: u32) -> Self {
        Self { source, destination, steps: 1, granted: 1, ..Self::default() }
    }

    /// Counts a received packet of a step. `packets` is the number of packets of a step. Returns true if this completes a step.
    pub fn receive(&mut self, step: u32, packets: u32) -> bool {
        let Some(at) = step.checked_sub(self.received).map(|at| at as usize) else { return false };
        if self.partial.len() <= at {
            self.partial.resize(at + 1, 0);
        }
        self.partial.get_mut(at).into_iter().for_each(|count| *count += 1);
        let before = self.received;
        while self.partial.front().is_some_and(|count| *count >= packets) {
            self.partial.pop_front();
            self.received += 1;
        }
        self.received > before
    }

    /// Returns true if all steps have been received.
    pub const fn is_complete(&self) -> bool {
        self.received >= self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_received_in_their_order() {
        let mut job = Job { steps: 2, ..Job::new(0, 1) };
        assert!(!job.receive(0, 2) && !job.receive(1, 2) && !job.receive(1, 2));
        assert_eq!((job.received, job.is_complete()), (0, false));
        assert!(job.receive(0, 2));
        assert_eq!((job.received, job.is_complete()), (2, true));
    }
}
