//! What a socket has lost, for whoever counts it: the socket itself belongs to its worker.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sys::xdp_statistics;

/// Packets that were meant for a socket and never came out of it. Packets that wait in its rings are not lost.
#[derive(Debug, Clone)]
pub struct LossWatch(Arc<Losses>);

/// A socket's own part.
#[derive(Debug)]
pub(crate) struct Losses {
    kernel: Mutex<Kernel>,
    /// Received, and given up because they were too long.
    too_long: AtomicU64,
}

/// What the kernel has dropped on the way into the rx ring.
#[derive(Debug)]
struct Kernel {
    /// `None`: the socket is closed, and its descriptor may be something else by now.
    fd: Option<RawFd>,
    /// When it was read last.
    dropped: u64,
}

impl LossWatch {
    /// Packets lost since the socket was opened. This number never goes back.
    pub fn lost(&self) -> u64 {
        let mut kernel = self.0.kernel();
        kernel.read();
        kernel.dropped + self.0.too_long.load(Relaxed)
    }

    /// The socket is closed: the number stays as it is.
    pub fn is_closed(&self) -> bool {
        self.0.kernel().fd.is_none()
    }
}

impl Losses {
    /// Of a socket that is open. [`close`](Self::close) must be called before its descriptor is closed.
    pub(crate) fn new(fd: RawFd) -> Arc<Self> {
        Arc::new(Self { kernel: Mutex::new(Kernel { fd: Some(fd), dropped: 0 }), too_long: AtomicU64::new(0) })
    }

    pub(crate) fn watch(self: &Arc<Self>) -> LossWatch {
        LossWatch(Arc::clone(self))
    }

    /// Only the socket's worker calls this.
    pub(crate) fn too_long(&self) {
        self.too_long.fetch_add(1, Relaxed);
    }

    /// The last look: the descriptor is about to be closed.
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
        // A full rx ring, and no chunk in the fill ring or one that is too short.
        let dropped = self.fd.and_then(xdp_statistics).map(|counts| counts.rx_ring_full + counts.rx_dropped);
        self.dropped = self.dropped.max(dropped.unwrap_or(0));
    }
}
