//! The agenda: events in the order of their times. Events of one time come in the order in which they were added.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A point in time, or a span of time, in picoseconds. 64 bits are enough for 213 days, and no run is that long.
pub(crate) type Ps = u64;

pub(crate) const PS_PER_NS: Ps = 1000;
pub(crate) const PS_PER_SECOND: Ps = 1_000_000_000_000;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A job may send.
    Start { job: u32 },
    /// The first packet in a port arrives at the other end.
    Release { port: u32 },
    /// A node makes a round of its worker.
    Round { node: u32 },
    /// Ports are sampled.
    Sample,
    /// A link changes.
    Change { step: u32 },
    /// The routing has learnt of a changed link.
    Learnt { step: u32 },
    /// A sender learns whether a packet arrived or got lost.
    Feedback(Feedback),
}

/// The answer about a packet: whether it arrived or got lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Feedback {
    pub queue_pair: u32,
    pub sequence: u32,
    pub is_lost: bool,
}

type Numbered<T> = (Ps, u64, T);

/// The events to come. Answers always take the same time, so a queue is enough for them.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Reverse<Numbered<Event>>>,
    answers: VecDeque<Numbered<Feedback>>,
    made: u64,
}

impl Agenda {
    /// Adds an event.
    pub fn add(&mut self, at: Ps, event: Event) {
        self.made += 1;
        self.heap.push(Reverse((at, self.made, event)));
    }

    /// Adds an answer. Its time is not before the times of earlier answers.
    pub fn answer(&mut self, at: Ps, answer: Feedback) {
        self.made += 1;
        self.answers.push_back((at, self.made, answer));
    }

    /// Takes the next event.
    pub fn next(&mut self) -> Option<(Ps, Event)> {
        let of_heap = self.heap.peek().map(|Reverse((at, number, _))| (*at, *number));
        let of_answers = self.answers.front().map(|(at, number, _)| (*at, *number));
        let is_answer = of_answers.is_some_and(|answer| of_heap.is_none_or(|other| answer < other));
        if is_answer {
            return self.answers.pop_front().map(|(at, _, answer)| (at, Event::Feedback(answer)));
        }
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }

    /// Returns the number of events that were added.
    pub const fn made(&self) -> u64 {
        self.made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_in_which_they_were_made() {
        let mut agenda = Agenda::default();
        let answer = |sequence| Feedback { queue_pair: 0, sequence, is_lost: false };
        agenda.add(20, Event::Sample);
        agenda.answer(10, answer(1));
        agenda.add(10, Event::Release { port: 9 });
        agenda.add(10, Event::Release { port: 3 });
        agenda.answer(20, answer(2));
        let order: Vec<(Ps, Event)> = std::iter::from_fn(|| agenda.next()).collect();
        let expected = [
            (10, Event::Feedback(answer(1))),
            (10, Event::Release { port: 9 }),
            (10, Event::Release { port: 3 }),
            (20, Event::Sample),
            (20, Event::Feedback(answer(2))),
        ];
        assert_eq!((order.as_slice(), agenda.made()), (&expected[..], 5));
    }
}
