//! What workers have to know of hand-overs of queues to the XDP program.
//!
//! The program takes a queue over once its worker has finished every packet of it: then none can be overtaken. A worker says
//! what it has finished at the end of a round, when the packets are in the hands of the kernel, and only while a hand-over is
//! under way and the worker has the tables that the program has. Two kinds of packets that it keeps do not count:
//!
//! * those that wait for a neighbour. With these tables their neighbour is unresolved, so the program has no such next hop, and
//!   their flow stays the worker's. The round that gets the tables has sent the others.
//! * those in an emulated port. The program sends nothing through one, and a port that no longer is one was emptied in the
//!   round that got the tables.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Tells workers which hand-over is under way.
#[derive(Debug, Default)]
pub struct HandOvers {
    /// Its number in the upper half, the revision of the snapshot whose tables the program has in the lower. 0: none is under way.
    now: AtomicU64,
}

impl HandOvers {
    /// Returns the number of the hand-over in which a worker with the snapshot of this revision is to say what it has finished.
    #[inline]
    pub(crate) fn under_way(&self, revision: u64) -> Option<u32> {
        let now = self.now.load(Relaxed);
        if now == 0 { None } else { with(now, revision) }
    }

    /// Begins the hand-over of this number, to a program with the snapshot of this revision.
    pub(crate) fn begin(&self, number: u32, revision: u64) {
        self.now.store(u64::from(number) << 32 | revision & u64::from(u32::MAX), Relaxed);
    }

    /// No hand-over is under way any more.
    pub(crate) fn end(&self) {
        self.now.store(0, Relaxed);
    }
}

#[cold]
fn with(now: u64, revision: u64) -> Option<u32> {
    let lower = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or_default();
    let [number, since] = [now >> 32, now].map(lower);
    // Revisions are numbered on and on, so the difference tells which is newer.
    let ahead = lower(revision).wrapping_sub(since);
    (ahead < 1 << 31).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_with_older_tables_says_nothing() {
        let hand_overs = HandOvers::default();
        assert_eq!(hand_overs.under_way(7), None);
        hand_overs.begin(3, 7);
        assert_eq!([6, 7, 8].map(|revision| hand_overs.under_way(revision)), [None, Some(3), Some(3)]);
        hand_overs.begin(4, (1 << 32) - 1);
        assert_eq!([1 << 32, (1 << 32) - 2].map(|revision| hand_overs.under_way(revision)), [Some(4), None]);
        hand_overs.end();
        assert_eq!(hand_overs.under_way(9), None);
    }
}
