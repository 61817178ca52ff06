//! Preferred busy polling: the driver's receive work runs in the worker's own system calls, and not in interrupts.
//!
//! It needs `SO_PREFER_BUSY_POLL` (Linux 5.11), a driver with a NAPI context that the kernel has associated with the
//! socket, and interrupts that are deferred (`napi_defer_hard_irqs`, `gro_flush_timeout` of the device). Without NAPI
//! the kernel accepts the options, but they have no effect. Linux up to 6.12 associates the NAPI with the socket when
//! the first packet comes, later versions when a zero-copy socket is bound.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::sys::{kick_rx, option, set_option};

/// How long one system call polls a driver that has no packets, in microseconds.
const MICROS: u32 = 20;

/// Special values of the shared cell. All other values are NAPI ids, which the kernel assigns from `nr_cpu_ids` + 1 on.
const REFUSED: u32 = u32::MAX;
const UNKNOWN: u32 = u32::MAX - 1;
const NONE: u32 = 0;

/// The state of a socket's busy polling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusyPolling {
    /// The kernel has refused one of the options: it is older than 5.11, or `CAP_NET_ADMIN` is missing.
    Refused,
    /// It is not known yet, because no packet has come.
    Unknown,
    /// The socket has no NAPI to poll. It receives as it does without busy polling.
    NoNapi,
    /// The worker polls the NAPI with this id.
    Napi(u32),
}

/// Shows the state of a socket's busy polling to other threads. The socket itself belongs to its worker.
#[derive(Debug, Clone)]
pub struct BusyPollWatch(Arc<AtomicU32>);

impl BusyPollWatch {
    /// Returns the state as far as it is known.
    pub fn now(&self) -> BusyPolling {
        match self.0.load(Relaxed) {
            REFUSED => BusyPolling::Refused,
            UNKNOWN => BusyPolling::Unknown,
            NONE => BusyPolling::NoNapi,
            napi => BusyPolling::Napi(napi),
        }
    }
}

/// The socket's side of busy polling.
#[derive(Debug)]
pub(crate) struct BusyPoll {
    fd: RawFd,
    known: Arc<AtomicU32>,
    polls: bool,
}

impl BusyPoll {
    /// Asks the kernel for busy polling with `budget` packets per poll.
    pub(crate) fn ask(fd: RawFd, budget: u32) -> Self {
        let taken = set_option(fd, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1)
            && set_option(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, MICROS)
            && set_option(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, budget);
        let known = Arc::new(AtomicU32::new(if taken { UNKNOWN } else { REFUSED }));
        let mut asked = Self { fd, known, polls: false };
        if taken {
            // If the kernel knows the NAPI of a zero-copy socket, it says so from the first call on.
            kick_rx(fd);
            asked.look(false);
        }
        asked
    }

    pub(crate) fn watch(&self) -> BusyPollWatch {
        BusyPollWatch(Arc::clone(&self.known))
    }

    /// Runs the driver's receive work. Returns false if there is no NAPI to poll.
    #[inline]
    pub(crate) fn poll(&self) -> bool {
        if self.polls {
            kick_rx(self.fd);
        }
        self.polls
    }

    /// Notes that packets have come. If the kernel ever learns the NAPI, it knows it now.
    #[inline]
    pub(crate) fn packets_came(&mut self) {
        if self.known.load(Relaxed) == UNKNOWN {
            self.look(true);
        }
    }

    #[cold]
    fn look(&mut self, is_final: bool) {
        let napi = option(self.fd, libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID).unwrap_or(NONE);
        if napi != NONE || is_final {
            self.polls = napi != NONE;
            self.known.store(napi, Relaxed);
        }
    }
}
