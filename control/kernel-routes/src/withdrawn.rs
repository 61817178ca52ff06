//! Delays the deletion of encapsulating routes for a moment.
//!
//! Path programmers move a prefix by deleting its route and adding another one. Between the two, the prefix has no
//! route with `encap seg6`, and its packets would be sent without their carrier. So the deletion is applied a little
//! later, unless another route takes the prefix before that.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::Message;
use crate::entry::{KernelAction, KernelRoute};
use crate::route::RouteKey;
use crate::routes::Routes;

/// Maximum number of prefixes whose deletions are delayed at one time; more than that at once is no move of a path.
const MOST: usize = 4096;

/// Deletions that are delayed.
#[derive(Debug, Default)]
pub struct Withdrawn {
    time: Duration,
    held: HashMap<RouteKey, Held>,
    /// Times and prefixes of the delayed deletions, the earliest first. Entries that are no longer in `held` are
    /// skipped.
    order: VecDeque<(Instant, RouteKey)>,
}

#[derive(Debug)]
struct Held {
    due: Instant,
    messages: Vec<Message>,
}

impl Withdrawn {
    /// Sets the delay of later deletions; zero: no delay.
    pub fn set_time(&mut self, time: Duration) {
        self.time = time;
    }

    /// Takes a received message and returns the messages to be applied to `known` now, in this order.
    pub fn pass(&mut self, message: Message, known: &Routes, now: Instant) -> Vec<Message> {
        let Message::Route(route) = &message else { return vec![message] };
        let (key, is_new) = (route.key, route.is_new);
        if let Some(held) = self.held.get_mut(&key) {
            held.messages.push(message);
            // Further deletions are those of other legs; any new route takes the prefix.
            return if is_new { self.release(&key) } else { Vec::new() };
        }
        let is_held = !is_new && !self.time.is_zero() && self.held.len() < MOST;
        if is_held && known.used_for(&key).is_some_and(encapsulates) {
            let due = now + self.time;
            self.order.push_back((due, key));
            self.held.insert(key, Held { due, messages: vec![message] });
            return Vec::new();
        }
        vec![message]
    }

    fn release(&mut self, key: &RouteKey) -> Vec<Message> {
        self.held.remove(key).map(|held| held.messages).unwrap_or_default()
    }

    /// Returns the deletions whose delay has passed, in their order.
    pub fn due(&mut self, now: Instant) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Some((due, key)) = self.order.front().copied().filter(|(due, _)| *due <= now) {
            self.order.pop_front();
            // The prefix was deleted, added and deleted again; the last deletion is due later.
            if self.held.get(&key).is_some_and(|held| held.due == due) {
                messages.extend(self.release(&key));
            }
        }
        messages
    }

    /// Returns the time at which [`due`](Self::due) should be called next.
    pub fn next(&self) -> Option<Instant> {
        self.order.front().map(|(due, _)| *due)
    }

    /// Forgets all delayed deletions, because a dump has given the present state.
    pub fn clear(&mut self) {
        self.held.clear();
        self.order.clear();
    }
}

fn encapsulates(route: &KernelRoute) -> bool {
    matches!(&route.action, KernelAction::Via(hops) if hops.iter().any(|hop| hop.encap.is_some()))
}
