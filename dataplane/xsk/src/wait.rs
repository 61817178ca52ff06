//! Lets workers that do not spin sleep until there is something to do.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

/// Wakes a worker out of [`wait`] from another thread. Clones wake the same worker.
#[derive(Debug, Clone)]
pub struct Waker(Arc<EventFd>);

impl Waker {
    /// Creates a waker for one worker.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(EventFd::from_value_and_flags(0, flags)?)))
    }

    /// Ends the current wait, or the next one.
    pub fn wake(&self) {
        // The only possible failure is EAGAIN, if the counter is at its maximum; the worker is woken then, too.
        let _ = self.0.write(1);
    }

    /// Resets the waker. Returns true if it was called since the last reset.
    fn drain(&self) -> bool {
        self.0.read().is_ok()
    }
}

/// The reasons why [`wait`] returned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Woken {
    /// At least one socket has something to receive.
    pub readable: bool,
    /// [`Waker::wake`] was called.
    pub by_waker: bool,
    /// At least one socket reported an error: look for deleted devices
    /// ([`Socket::device_is_gone`](crate::Socket::device_is_gone)).
    pub error: bool,
}

/// Sleeps in ppoll(2) until a socket has something to receive, the waker is called, or `timeout` (`None`: no limit) is
/// over. A signal ends the sleep, too. ppoll(2) also sends what still waits in the tx rings.
pub fn wait(sockets: &[BorrowedFd<'_>], waker: &Waker, timeout: Option<Duration>) -> io::Result<Woken> {
    let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(sockets.len() + 1);
    fds.push(PollFd::new(waker.0.as_fd(), PollFlags::POLLIN));
    fds.extend(sockets.iter().map(|&fd| PollFd::new(fd, PollFlags::POLLIN)));
    match ppoll(&mut fds, timeout.map(TimeSpec::from), None) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok(Woken::default()),
        Err(why) => return Err(why.into()),
    }
    let bad = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
    let mut woken = Woken { by_waker: waker.drain(), ..Woken::default() };
    for events in fds.iter().skip(1).filter_map(PollFd::revents) {
        woken.readable |= events.contains(PollFlags::POLLIN);
        woken.error |= events.intersects(bad);
    }
    Ok(woken)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed test may panic

    use super::*;

    #[test]
    fn a_wake_before_the_wait_is_not_lost_and_counts_once() {
        let waker = Waker::new().unwrap();
        waker.clone().wake();
        assert!(wait(&[], &waker, None).unwrap().by_waker);
        let nothing = wait(&[], &waker, Some(Duration::ZERO)).unwrap();
        assert_eq!(nothing, Woken::default());
    }

    #[test]
    fn a_wake_from_another_thread_ends_an_endless_wait() {
        let waker = Waker::new().unwrap();
        let other = waker.clone();
        let thread = std::thread::spawn(move || other.wake());
        assert!(wait(&[], &waker, None).unwrap().by_waker);
        thread.join().unwrap();
    }
}
