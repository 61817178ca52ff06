//! Encapsulating routes that vanish, for a moment.
//!
//! Path programmers move a prefix by deleting its route and adding another one. Between the two the prefix has no route with
//! `encap seg6`, and its packets would go without their carrier. So the deletion is taken into account a little later, unless
//! something else takes the prefix before.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::Message;
use crate::model::{KernelAction, KernelRoute};
use crate::route::RouteKey;
use crate::routes::Routes;

/// Prefixes that are held at one time: with more, it is no move of a path.
const MOST: usize = 4096;

/// Deletions that wait.
#[derive(Debug, Default)]
pub struct Withdrawn {
    time: Duration,
    held: HashMap<RouteKey, Held>,
    /// The first one is due first. What is no longer held is passed over.
    order: VecDeque<(Instant, RouteKey)>,
}

#[derive(Debug)]
struct Held {
    due: Instant,
    messages: Vec<Message>,
}

impl Withdrawn {
    /// How long deletions wait from now on; zero: not at all.
    pub fn set_time(&mut self, time: Duration) {
        self.time = time;
    }

    /// A message that came: what is to be applied to `known` now, in this order.
    pub fn pass(&mut self, message: Message, known: &Routes, now: Instant) -> Vec<Message> {
        let Message::Route(route) = &message else { return vec![message] };
        let (key, is_new) = (route.key, route.is_new);
        if let Some(held) = self.held.get_mut(&key) {
            held.messages.push(message);
            // Further deletions are of its other legs; anything new takes the prefix.
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

    /// Deletions whose time has come, in their order.
    pub fn due(&mut self, now: Instant) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Some((due, key)) = self.order.front().copied().filter(|(due, _)| *due <= now) {
            self.order.pop_front();
            // Deleted, added and deleted again: that one is due later.
            if self.held.get(&key).is_some_and(|held| held.due == due) {
                messages.extend(self.release(&key));
            }
        }
        messages
    }

    /// When [`due`](Self::due) has something to say.
    pub fn next(&self) -> Option<Instant> {
        self.order.front().map(|(due, _)| *due)
    }

    /// A dump says what is there now.
    pub fn clear(&mut self) {
        self.held.clear();
        self.order.clear();
    }
}

fn encapsulates(route: &KernelRoute) -> bool {
    matches!(&route.action, KernelAction::Via(hops) if hops.iter().any(|hop| hop.encap.is_some()))
}
