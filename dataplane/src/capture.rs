//! Copies of packets for whoever looks: what AF_XDP takes never passes the kernel's own taps.
//!
//! ```text
//! worker ── received, sent: a copy ──► bounded queue ──► Capture ──► a file, a pipe
//!        └─ queue full: not copied, and counted
//! ```
//!
//! While nobody looks, a worker reads one number per round. While somebody does, it allocates and asks for the time:
//! captures are for labs and for trouble, not for measuring.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use crossbeam::channel::{Receiver, Sender, bounded};

/// Packets that wait for whoever looks.
const QUEUE: usize = 4096;

/// One packet, as it was received or is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Since 1970-01-01 UTC.
    pub time: Duration,
    /// It leaves; otherwise it came in.
    pub sent: bool,
    /// Bytes of the packet, further buffers included.
    pub length: usize,
    /// Bytes of its first buffer.
    pub bytes: Vec<u8>,
}

/// Where workers leave their copies.
#[derive(Debug, Default)]
pub struct Taps {
    open: AtomicUsize,
    sinks: ArcSwap<Vec<Sink>>,
    next: AtomicU64,
}

/// One who looks at one socket number.
#[derive(Clone, Debug)]
pub struct Sink {
    number: u64,
    socket: usize,
    packets: Sender<Captured>,
    lost: Arc<AtomicU64>,
}

impl Taps {
    /// Those who look; `None`: nobody, which is almost always so.
    #[inline]
    pub(crate) fn looking(&self) -> Option<Arc<Vec<Sink>>> {
        self.is_open().then(|| self.sinks.load_full())
    }

    /// Somebody looks.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// From now on copies of what this socket number receives and sends are kept.
    pub fn open(self: &Arc<Self>, socket: usize) -> Capture {
        let (sender, packets) = bounded(QUEUE);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let lost = Arc::new(AtomicU64::new(0));
        let sink = Sink { number, socket, packets: sender, lost: Arc::clone(&lost) };
        self.sinks.rcu(|sinks| sinks.iter().cloned().chain([sink.clone()]).collect::<Vec<_>>());
        self.open.fetch_add(1, Ordering::Relaxed);
        Capture { taps: Arc::clone(self), number, packets, lost }
    }

    fn close(&self, number: u64) {
        self.sinks.rcu(|sinks| sinks.iter().filter(|sink| sink.number != number).cloned().collect::<Vec<_>>());
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Copies one packet for everyone who looks at its socket.
pub(crate) fn copy(sinks: &[Sink], socket: usize, sent: bool, head: &[u8], length: usize) {
    let mut time = None;
    for sink in sinks.iter().filter(|sink| sink.socket == socket) {
        let time = *time.get_or_insert_with(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let captured = Captured { time, sent, length, bytes: head.to_vec() };
        if sink.packets.try_send(captured).is_err() {
            sink.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Copies of one port's packets, for as long as it lives.
#[derive(Debug)]
pub struct Capture {
    taps: Arc<Taps>,
    number: u64,
    packets: Receiver<Captured>,
    lost: Arc<AtomicU64>,
}

impl Capture {
    /// The next packet; `None`: none within that time.
    pub fn next(&self, patience: Duration) -> Option<Captured> {
        // Its own sink keeps the queue open: there is no other error.
        self.packets.recv_timeout(patience).ok()
    }

    /// Packets that did not fit into the queue.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.taps.close(self.number);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn everyone_gets_the_packets_of_the_socket_looked_at() {
        let taps = Arc::new(Taps::default());
        assert!(taps.looking().is_none());
        let (one, other) = (taps.open(1), taps.open(1));
        let elsewhere = taps.open(2);
        copy(&taps.looking().unwrap(), 1, true, b"head", 9000);
        for capture in [&one, &other] {
            let packet = capture.next(Duration::ZERO).unwrap();
            assert_eq!((packet.sent, packet.length, packet.bytes.as_slice()), (true, 9000, &b"head"[..]));
        }
        assert_eq!(elsewhere.next(Duration::ZERO), None);
        drop((one, other));
        assert_eq!(taps.looking().unwrap().len(), 1);
        drop(elsewhere);
        assert!(taps.looking().is_none());
    }

    #[test]
    fn a_queue_that_is_full_loses_and_counts() {
        let taps = Arc::new(Taps::default());
        let capture = taps.open(0);
        let sinks = taps.looking().unwrap();
        (0..QUEUE + 3).for_each(|_| copy(&sinks, 0, false, b"x", 1));
        assert_eq!(capture.lost(), 3);
        assert_eq!(std::iter::from_fn(|| capture.next(Duration::ZERO)).count(), QUEUE);
    }
}
