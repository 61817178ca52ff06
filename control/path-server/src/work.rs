//! Limits on the cost of one request. Searches stop when they have visited too many links, or when the client is gone.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of links that the searches of one request visit, which takes some tenths of a second.
const LINKS: usize = 20_000_000;

/// Maximum number of paths in one list of an answer. A longer list is cut, and the answer has `"truncated": true`.
pub const MOST_PATHS: usize = 1000;

/// The number of links that the searches of one request may still visit.
#[derive(Debug)]
pub struct Work {
    left: Cell<usize>,
    abandoned: Arc<AtomicBool>,
}

impl Work {
    /// Creates the full amount of work. Searches also end when the client is gone.
    pub fn new(client: &Watch) -> Self {
        Self { left: Cell::new(LINKS), abandoned: Arc::clone(&client.0) }
    }

    /// Takes `links` visited links out of the work that is left. Returns `false` if the search has to end.
    pub fn spend(&self, links: usize) -> bool {
        self.left.set(self.left.get().saturating_sub(links));
        !self.is_spent()
    }

    /// Returns whether searches have to end early.
    pub fn is_spent(&self) -> bool {
        self.left.get() == 0 || self.abandoned.load(Ordering::Relaxed)
    }
}

/// A waiting client. It is a part of the request's future, so it is dropped when the connection ends.
#[derive(Debug, Default)]
pub struct Client(Arc<AtomicBool>);

impl Client {
    /// Returns a handle with which a thread can see whether the client still waits. Dropping the handle has no effect
    /// on the client.
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.0))
    }
}

/// Whether the client still waits for the answer.
#[derive(Debug, Default)]
pub struct Watch(Arc<AtomicBool>);

impl Drop for Client {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
