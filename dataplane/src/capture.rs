//! Copies of packets for captures. Packets that AF_XDP receives are not seen by the kernel's own taps, such as
//! tcpdump's.
//!
//! ```text
//! worker ───────── received, sent: a copy ──► bounded queue ──► Capture ──► a file, a pipe
//!   └─ queue full: not copied, and counted         ▲
//! XDP program ─ forwarded: a copy ──► ring ──► a thread
//!   └─ ring full: not copied, and counted
//! ```
//!
//! Without a capture, a worker reads one number per round. With one, it allocates memory and asks for the time.
//! Captures are for labs and for troubleshooting, not for measurements.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use crossbeam::channel::{Receiver, Sender, bounded};
use srv6d_xsk::xdp_offload::Tapped;

/// Largest number of packets that wait for a capture.
const QUEUE: usize = 4096;

/// One packet, as it was received or is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Time since 1970-01-01 UTC.
    pub time: Duration,
    /// Whether the packet is sent; otherwise it was received.
    pub sent: bool,
    /// Length of the packet in bytes, further buffers included.
    pub length: usize,
    /// The bytes in its first buffer.
    pub bytes: Vec<u8>,
}

/// The place where workers find the captures that are open.
#[derive(Debug, Default)]
pub struct Taps {
    open: AtomicUsize,
    sinks: ArcSwap<Vec<Sink>>,
    next: AtomicU64,
}

/// A capture of one socket number, as workers see it.
#[derive(Clone, Debug)]
pub struct Sink {
    number: u64,
    socket: usize,
    packets: Sender<Captured>,
    lost: Arc<AtomicU64>,
}

impl Taps {
    /// Returns the open captures, or `None` in the usual case that there is none.
    #[inline]
    pub(crate) fn looking(&self) -> Option<Arc<Vec<Sink>>> {
        self.is_open().then(|| self.sinks.load_full())
    }

    /// Returns true if there is a capture.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// Returns the socket numbers that somebody captures.
    pub(crate) fn captured(&self) -> BTreeSet<usize> {
        self.sinks.load().iter().map(|sink| sink.socket).collect()
    }

    /// Copies one packet that the XDP program has forwarded.
    pub(crate) fn copy_of_program(&self, packet: &Tapped<'_>) {
        let sinks = self.sinks.load();
        for sink in sinks.iter().filter(|sink| sink.socket == usize::from(packet.device)) {
            let time = packet.time;
            sink.put(Captured { time, sent: packet.sent, length: packet.length, bytes: packet.bytes.to_vec() });
        }
    }

    /// Counts packets that the XDP program had no room to copy.
    pub(crate) fn lost(&self, socket: usize, packets: u64) {
        let sinks = self.sinks.load();
        for sink in sinks.iter().filter(|sink| sink.socket == socket) {
            sink.lost.fetch_add(packets, Ordering::Relaxed);
        }
    }

    /// Starts to copy what this socket number receives and sends.
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

/// Copies one packet for every capture of its socket.
pub(crate) fn copy(sinks: &[Sink], socket: usize, sent: bool, head: &[u8], length: usize) {
    let mut time = None;
    for sink in sinks.iter().filter(|sink| sink.socket == socket) {
        let time = *time.get_or_insert_with(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        sink.put(Captured { time, sent, length, bytes: head.to_vec() });
    }
}

impl Sink {
    fn put(&self, packet: Captured) {
        if self.packets.try_send(packet).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A capture of one port's packets. It ends when it is dropped.
#[derive(Debug)]
pub struct Capture {
    taps: Arc<Taps>,
    number: u64,
    packets: Receiver<Captured>,
    lost: Arc<AtomicU64>,
}

impl Capture {
    /// Returns the next packet, or `None` if none comes within the time `patience`.
    pub fn next(&self, patience: Duration) -> Option<Captured> {
        // The capture's own sink keeps the queue open, so there is no other error.
        self.packets.recv_timeout(patience).ok()
    }

    /// Number of packets that did not fit into the queue, or into the ring of the XDP program.
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
