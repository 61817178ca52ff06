//! Preferred busy polling: the driver's receive work runs in the worker's own system calls, and not in interrupts.
//!
//! What it takes: `SO_PREFER_BUSY_POLL` (Linux 5.11), a driver whose NAPI the kernel knows the socket by, and interrupts
//! that are put off (`napi_defer_hard_irqs`, `gro_flush_timeout` of the device). Without NAPI the options are taken and do
//! nothing. Linux up to 6.12 learns of the NAPI with the first packet, later ones when a zero-copy socket is bound.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::sys::{kick_rx, option, set_option};

/// How long one system call polls a driver that has nothing, in microseconds.
const MICROS: u32 = 20;

/// Values of the cell; all others are a NAPI's number, which the kernel gives from `nr_cpu_ids` + 1 on.
const REFUSED: u32 = u32::MAX;
const UNKNOWN: u32 = u32::MAX - 1;
const NONE: u32 = 0;

/// What the kernel has made of a socket's busy polling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusyPolling {
    /// The kernel has refused one of the options: it is older than 5.11, or `CAP_NET_ADMIN` is missing.
    Refused,
    /// The kernel has not said yet: no packet has come.
    Unknown,
    /// The socket has no NAPI to poll: it receives as without.
    NoNapi,
    /// The worker polls the NAPI with this number.
    Napi(u32),
}

/// For whoever shows it: the socket itself belongs to its worker.
#[derive(Debug, Clone)]
pub struct BusyPollWatch(Arc<AtomicU32>);

impl BusyPollWatch {
    /// As far as it is known.
    pub fn now(&self) -> BusyPolling {
        match self.0.load(Relaxed) {
            REFUSED => BusyPolling::Refused,
            UNKNOWN => BusyPolling::Unknown,
            NONE => BusyPolling::NoNapi,
            napi => BusyPolling::Napi(napi),
        }
    }
}

/// A socket's own part.
#[derive(Debug)]
pub(crate) struct BusyPoll {
    fd: RawFd,
    known: Arc<AtomicU32>,
    polls: bool,
}

impl BusyPoll {
    /// Asks for it: `budget` packets per poll.
    pub(crate) fn ask(fd: RawFd, budget: u32) -> Self {
        let taken = set_option(fd, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1)
            && set_option(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, MICROS)
            && set_option(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, budget);
        let known = Arc::new(AtomicU32::new(if taken { UNKNOWN } else { REFUSED }));
        let mut asked = Self { fd, known, polls: false };
        if taken {
            // Where the kernel knows the NAPI of a zero-copy socket, it says so from the first call on.
            kick_rx(fd);
            asked.look(false);
        }
        asked
    }

    pub(crate) fn watch(&self) -> BusyPollWatch {
        BusyPollWatch(Arc::clone(&self.known))
    }

    /// Runs the driver's receive work. False: there is no NAPI to poll.
    #[inline]
    pub(crate) fn poll(&self) -> bool {
        if self.polls {
            kick_rx(self.fd);
        }
        self.polls
    }

    /// Packets have come: if the kernel knows the NAPI at all, it does now.
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
