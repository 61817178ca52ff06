//! Counts the packets that a socket has lost, for readers on other threads. The socket itself belongs to its worker.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sys::xdp_statistics;

/// Reads the number of packets that were meant for a socket and never came out of it. Packets that wait in its rings
/// are not lost.
#[derive(Debug, Clone)]
pub struct LossWatch(Arc<Losses>);

/// The socket's side of the count.
#[derive(Debug)]
pub(crate) struct Losses {
    kernel: Mutex<Kernel>,
    /// Packets that were received and then dropped because they were too long.
    too_long: AtomicU64,
}

/// Packets that the kernel has dropped on the way into the rx ring.
#[derive(Debug)]
struct Kernel {
    /// The socket's descriptor. `None` if the socket is closed; the number may then belong to another file.
    fd: Option<RawFd>,
    /// The kernel's count at the last reading.
    dropped: u64,
}

impl LossWatch {
    /// Returns the number of packets lost since the socket was opened. It never decreases.
    pub fn lost(&self) -> u64 {
        self.0.lost()
    }

    /// Whether the socket is closed. The number no longer changes then.
    pub fn is_closed(&self) -> bool {
        self.0.kernel().fd.is_none()
    }
}

impl Losses {
    /// Starts counting for an open socket. [`close`](Self::close) must be called before its descriptor is closed.
    pub(crate) fn new(fd: RawFd) -> Arc<Self> {
        Arc::new(Self { kernel: Mutex::new(Kernel { fd: Some(fd), dropped: 0 }), too_long: AtomicU64::new(0) })
    }

    pub(crate) fn watch(self: &Arc<Self>) -> LossWatch {
        LossWatch(Arc::clone(self))
    }

    pub(crate) fn lost(&self) -> u64 {
        let mut kernel = self.kernel();
        kernel.read();
        kernel.dropped + self.too_long.load(Relaxed)
    }

    /// Counts one packet that was too long. Only the socket's worker calls this.
    pub(crate) fn too_long(&self) {
        self.too_long.fetch_add(1, Relaxed);
    }

    /// Reads the kernel's count for the last time, because the descriptor is about to be closed.
    pub(crate) fn close(&self) {
        let mut kernel = self.kernel();
        kernel.read();
        kernel.fd = None;
    }

    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kernel {
    fn read(&mut self) {
        // `rx_ring_full`: the rx ring was full. `rx_dropped`: the fill ring had no chunk, or one that is too short.
        let dropped = self.fd.and_then(xdp_statistics).map(|counts| counts.rx_ring_full + counts.rx_dropped);
        self.dropped = self.dropped.max(dropped.unwrap_or(0));
    }
}
