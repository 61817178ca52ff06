//! The hand-over of copies between the publishing thread and the workers.
//!
//! ```text
//! publishing thread                        worker, once per round
//! 1. waits until it alone has copy B       reads the number of changes
//! 2. changes B                             another number: takes the newest copy, lets go of the one it had
//! 3. puts B in force, A stands by
//! ```
//!
//! The reference count of a copy says who is left in it. Two facts make step 2 safe, and `tests/it/handover.rs` has `loom`
//! try every order of these operations:
//!
//! * A worker takes only the copy in force. Once another one is in force, the count of a copy can only fall.
//! * A worker lets go of a copy with a release decrement, and [`alone`] acquires it. What the worker read before
//!   happened before the change.

use super::sync::{Arc, AtomicU64, Ordering, Swap};

/// The copy in force, and the number of changes so far.
#[derive(Debug, Default)]
pub(crate) struct InForce<T> {
    newest: Swap<T>,
    changes: AtomicU64,
}

impl<T> InForce<T> {
    pub(crate) fn newest(&self) -> Arc<T> {
        self.newest.load_full()
    }

    pub(crate) fn put(&self, copy: Arc<T>) {
        self.newest.store(copy);
        self.changes.fetch_add(1, Ordering::Release);
    }
}

/// A worker's reference to the copy in force.
#[derive(Debug)]
pub struct Reader<T> {
    in_force: Arc<InForce<T>>,
    seen: u64,
    current: Arc<T>,
}

impl<T> Reader<T> {
    pub(crate) fn new(in_force: Arc<InForce<T>>) -> Self {
        Self { seen: in_force.changes.load(Ordering::Acquire), current: in_force.newest(), in_force }
    }

    /// Returns the copy in force. The worker holds it until the next call. The cost is one atomic load as long as
    /// nothing was published.
    #[inline]
    pub fn current(&mut self) -> &T {
        let changes = self.in_force.changes.load(Ordering::Acquire);
        if changes != self.seen {
            self.seen = changes;
            self.current = self.in_force.newest();
        }
        &self.current
    }
}

/// Returns true if nobody else holds the copy. This does not make the writes of others visible: see [`alone`].
pub(crate) fn is_left<T>(copy: &Arc<T>) -> bool {
    Arc::strong_count(copy) == 1
}

/// Returns the copy for writing if nobody else holds it.
pub(crate) fn alone<T>(copy: &mut Arc<T>) -> Option<&mut T> {
    Arc::get_mut(copy)
}
