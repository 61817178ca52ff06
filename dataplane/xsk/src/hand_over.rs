//! Hand-over of a port's queue from its worker to the XDP program in front of it, in order.
//!
//! ```text
//!   claim.c ─ given + 1 ─► rx ring ─► worker ─► sent, dropped ─ finished ─► offload.c: given = finished? the queue is mine
//! ```
//!
//! A frame that the program keeps leaves at once, so it would overtake those of its flow that the worker still has. Both sides
//! count, in memory that they share. A queue has one NAPI instance, which runs on one processor at a time, so what the program
//! compares does not change under it. The worker writes its count only while control asks for it ([`crate::Socket::finish`]).

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::{io, ptr};

/// Mirrors `struct hand_over` of `bpf/hand_over.h`.
#[repr(C, align(64))]
struct Row {
    given: AtomicU64,
    finished: AtomicU64,
    taken: AtomicU32,
    seen: AtomicU32,
    zero: [u32; 10],
}

/// Size of a row in bytes.
pub(crate) const ROW: usize = size_of::<Row>();

/// The rows of all queues, which the XDP programs write to as well.
pub(crate) struct Rows {
    first: NonNull<Row>,
    count: usize,
}

// SAFETY: the mapping belongs to the value, and its rows are accessed through atomics only.
unsafe impl Send for Rows {}
// SAFETY: as above.
unsafe impl Sync for Rows {}

impl Rows {
    /// Maps an array of so many rows into memory.
    pub(crate) fn map(array: BorrowedFd<'_>, count: u32) -> io::Result<Arc<Self>> {
        let count = count as usize;
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, array.as_raw_fd());
        // SAFETY: the kernel chooses the place, so no memory in use is replaced.
        let memory = unsafe { libc::mmap(ptr::null_mut(), count * ROW, access, libc::MAP_SHARED, fd, 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = NonNull::new(memory.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Arc::new(Self { first, count }))
    }

    fn row(&self, at: usize) -> Option<&Row> {
        // SAFETY: the place lies in the mapping, which lives as long as `self`; it begins at a page, so rows are aligned, and
        // any bits are a row.
        (at < self.count).then(|| unsafe { self.first.add(at).as_ref() })
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this size, and nothing refers to it any more.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.count * ROW) };
    }
}

/// The row of one queue.
#[derive(Clone)]
pub struct QueueHandOver {
    rows: Arc<Rows>,
    at: usize,
}

impl std::fmt::Debug for QueueHandOver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QueueHandOver {{ at: {}, given: {} }}", self.at, self.given())
    }
}

impl QueueHandOver {
    pub(crate) fn new(rows: Arc<Rows>, at: u32) -> Self {
        Self { rows, at: at as usize }
    }

    fn row(&self) -> Option<&Row> {
        self.rows.row(self.at)
    }

    /// Number of frames that the queue's worker was given since its socket was opened, those that the socket lost included.
    pub fn given(&self) -> u64 {
        self.row().map_or(0, |row| row.given.load(Acquire))
    }

    /// Whether the worker has said, in the hand-over of this number, that it has finished all it was given.
    pub fn is_finished(&self, number: u32) -> bool {
        let is_seen = |row: &Row| row.seen.load(Acquire) == number;
        self.row().is_none_or(|row| is_seen(row) && row.given.load(Acquire) == row.finished.load(Acquire))
    }

    /// Says in the hand-over of this number how many frames are finished. Only the worker does.
    pub(crate) fn finish(&self, number: u32, frames: u64) {
        if let Some(row) = self.row() {
            row.finished.store(frames, Release);
            row.seen.store(number, Release);
        }
    }

    /// Counts frames as the program does.
    #[cfg(test)]
    pub(crate) fn give(&self, frames: u64) {
        if let Some(row) = self.row() {
            row.given.store(frames, Release);
        }
    }

    /// Number of the last hand-over that is done.
    pub fn taken(&self) -> u32 {
        self.row().map_or(0, |row| row.taken.load(Acquire))
    }

    /// Makes this hand-over done, whatever the worker still has.
    pub fn take(&self, number: u32) {
        if let Some(row) = self.row() {
            row.taken.store(number, Release);
        }
    }

    /// Begins to count anew, for another socket.
    pub(crate) fn reset(&self) {
        let Some(row) = self.row() else { return };
        row.given.store(0, Relaxed);
        row.finished.store(0, Relaxed);
        row.seen.store(0, Relaxed);
        row.taken.store(0, Release);
        debug_assert_eq!(row.zero, [0; 10]);
    }
}
