//! How much one request may cost: searches are stopped when they have looked at too much, or when nobody waits for them.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Links that the searches of one request may look at: some tenths of a second.
const LINKS: usize = 20_000_000;

/// Paths that one list of an answer has at most. Beyond it the answer says `"truncated": true`.
pub const MOST_PATHS: usize = 1000;

/// What is left to the searches of one request.
#[derive(Debug)]
pub struct Work {
    left: Cell<usize>,
    abandoned: Arc<AtomicBool>,
}

impl Work {
    /// All of it, until the client goes.
    pub fn new(client: &Watch) -> Self {
        Self { left: Cell::new(LINKS), abandoned: Arc::clone(&client.0) }
    }

    /// Takes so many links. False: the search has to end.
    pub fn spend(&self, links: usize) -> bool {
        self.left.set(self.left.get().saturating_sub(links));
        !self.is_spent()
    }

    /// A search had to end before its time.
    pub fn is_spent(&self) -> bool {
        self.left.get() == 0 || self.abandoned.load(Ordering::Relaxed)
    }
}

/// Somebody waits for the answer, until this is dropped: with the connection the request's future is, and this with it.
#[derive(Debug, Default)]
pub struct Client(Arc<AtomicBool>);

impl Client {
    /// For the thread that works for it: it does not end the wait.
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.0))
    }
}

/// Whether somebody still waits.
#[derive(Debug, Default)]
pub struct Watch(Arc<AtomicBool>);

impl Drop for Client {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
