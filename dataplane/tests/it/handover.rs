//! The hand-over of copies under every order of its operations.
//!
//! `loom` runs a model again and again until it has tried all orders that the memory model allows, and fails when
//! two threads are in one cell at the same time or without a happens-before edge between them.

mod sync {
    pub(super) use loom::sync::Arc;
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};

    /// A replacement for `ArcSwap`. Its operations are atomic too: taking a copy and counting it are one step.
    #[derive(Debug)]
    pub(super) struct Swap<T>(loom::sync::Mutex<Arc<T>>);

    impl<T> Swap<T> {
        pub(super) fn of(copy: Arc<T>) -> Self {
            Self(loom::sync::Mutex::new(copy))
        }

        pub(super) fn load_full(&self) -> Arc<T> {
            Arc::clone(&self.0.lock().unwrap())
        }

        pub(super) fn store(&self, copy: Arc<T>) {
            let before = std::mem::replace(&mut *self.0.lock().unwrap(), copy);
            drop(before);
        }
    }

    impl<T: Default> Default for Swap<T> {
        fn default() -> Self {
            Self::of(Arc::new(T::default()))
        }
    }
}

#[path = "../../src/left_right/handover.rs"]
#[allow(dead_code, reason = "the publisher's other uses are not in the model")]
mod checked;

use checked::{InForce, Reader, alone, is_left};
use loom::thread;
use sync::{Arc, AtomicU64, Ordering};

/// A replacement for the tables. `loom` counts `with_mut` as a change in place, and fails if a load of another thread
/// did not happen before it.
type Copy = AtomicU64;

/// Publishes the numbers from 1 to `last`. Each is written into the standby copy, or into a fresh one if a worker still
/// holds the standby copy.
fn publish(in_force: &InForce<Copy>, last: u64) {
    let mut standby = Arc::new(Copy::new(0));
    for number in 1..=last {
        let current = in_force.newest();
        let is_changed =
            is_left(&standby) && alone(&mut standby).map(|copy| copy.with_mut(|it| *it = number)).is_some();
        if !is_changed {
            standby = Arc::new(Copy::new(number));
        }
        in_force.put(Arc::clone(&standby));
        standby = current;
    }
}

/// Runs rounds in which the copy must not change. Returns the worker's reference.
fn work(mut held: Reader<Copy>, rounds: usize) -> Reader<Copy> {
    let mut before = 0;
    for _ in 0..rounds {
        let copy = held.current();
        let number = copy.load(Ordering::Relaxed);
        assert!(number >= before, "{number} after {before}");
        thread::yield_now();
        assert_eq!(copy.load(Ordering::Relaxed), number, "a copy changed during a round");
        before = number;
    }
    held
}

fn check(workers: usize, rounds: usize, last: u64) {
    // Without this bound, two workers have too many orders to try.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = (workers > 1).then_some(3);
    model.check(move || {
        let in_force = Arc::new(InForce::<Copy>::default());
        let holds: Vec<_> = (0..workers).map(|_| Reader::new(Arc::clone(&in_force))).collect();
        let threads: Vec<_> = holds.into_iter().map(|held| thread::spawn(move || work(held, rounds))).collect();
        publish(&in_force, last);
        for thread in threads {
            let mut held = thread.join().unwrap();
            assert_eq!(held.current().load(Ordering::Relaxed), last, "a worker missed the last change");
        }
    });
}

#[test]
fn no_copy_changes_while_a_worker_is_in_it() {
    check(1, 2, 3);
}

#[test]
fn no_copy_changes_while_one_of_two_workers_is_in_it() {
    check(2, 1, 2);
}
