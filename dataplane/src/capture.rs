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

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use crossbeam::channel::{Receiver, Sender, bounded};
use srv6d_srv6::{DropReason, Verdict};
use srv6d_xsk::xdp_offload::Tapped;

/// Largest number of packets that wait for a capture.
const QUEUE: usize = 4096;

/// One packet, as it was received or is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Number of the socket that received or sends it.
    pub socket: usize,
    /// What became of it. `None`: it is sent, or it was taken up again after a wait.
    pub fate: Option<Fate>,
    /// Time since 1970-01-01 UTC.
    pub time: Duration,
    /// Whether the packet is sent; otherwise it was received.
    pub sent: bool,
    /// Length of the packet in bytes, further buffers included.
    pub length: usize,
    /// The bytes in its first buffer.
    pub bytes: Vec<u8>,
}

/// What became of a received packet. Sockets are those that it leaves by; one that is not known has no socket any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is sent.
    Sent(Option<usize>),
    /// It is handed to the kernel of this node.
    Kernel,
    /// It became an ICMP error for this reason.
    Error(DropReason),
    /// It became an echo reply.
    Echo,
    /// It is dropped for this reason.
    Dropped(DropReason),
    /// It waits for a neighbour.
    Held,
}

impl Fate {
    /// Returns what a verdict means. `socket_of` is the socket of a port.
    pub(crate) fn of(verdict: Verdict, socket_of: impl Fn(u16) -> Option<usize>) -> Self {
        match verdict {
            Verdict::Tx(port) => Self::Sent(socket_of(port)),
            Verdict::Kernel(_) => Self::Kernel,
            Verdict::Error(reason, _) => Self::Error(reason),
            Verdict::Echo(_) => Self::Echo,
            Verdict::Drop(reason) => Self::Dropped(reason),
            Verdict::Hold(..) => Self::Held,
        }
    }
}

/// The place where workers find the captures that are open.
#[derive(Debug, Default)]
pub struct Taps {
    open: AtomicUsize,
    sinks: ArcSwap<Vec<Sink>>,
    next: AtomicU64,
}

/// A capture of some socket numbers, as workers see it.
#[derive(Clone, Debug)]
struct Sink {
    number: u64,
    sockets: Arc<BTreeSet<usize>>,
    packets: Sender<Captured>,
    lost: Arc<AtomicU64>,
}

impl Taps {
    /// Returns the open captures, or `None` in the usual case that there is none.
    #[inline]
    pub(crate) fn looking(&self) -> Option<Looking> {
        self.is_open().then(|| Looking { sinks: self.sinks.load_full(), copies: RefCell::default() })
    }

    /// Returns true if there is a capture.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// Returns the socket numbers that somebody captures.
    pub(crate) fn captured(&self) -> BTreeSet<usize> {
        self.sinks.load().iter().flat_map(|sink| sink.sockets.iter().copied()).collect()
    }

    /// Copies one packet that the XDP program has forwarded.
    pub(crate) fn copy_of_program(&self, packet: &Tapped<'_>) {
        let (socket, time, sent) = (usize::from(packet.device), packet.time, packet.sent);
        for sink in self.sinks.load().iter().filter(|sink| sink.sockets.contains(&socket)) {
            let fate = (!sent).then_some(Fate::Sent(None));
            sink.put(Captured { socket, fate, time, sent, length: packet.length, bytes: packet.bytes.to_vec() });
        }
    }

    /// Counts packets that the XDP program had no room to copy.
    pub(crate) fn lost(&self, socket: usize, packets: u64) {
        for sink in self.sinks.load().iter().filter(|sink| sink.sockets.contains(&socket)) {
            sink.lost.fetch_add(packets, Ordering::Relaxed);
        }
    }

    /// Starts to copy what these socket numbers receive and send.
    pub fn open(self: &Arc<Self>, sockets: impl IntoIterator<Item = usize>) -> Capture {
        let (sender, packets) = bounded(QUEUE);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let lost = Arc::new(AtomicU64::new(0));
        let sockets = Arc::new(sockets.into_iter().collect());
        let sink = Sink { number, sockets, packets: sender, lost: Arc::clone(&lost) };
        self.sinks.rcu(|sinks| sinks.iter().cloned().chain([sink.clone()]).collect::<Vec<_>>());
        self.open.fetch_add(1, Ordering::Relaxed);
        Capture { taps: Arc::clone(self), number, packets, lost }
    }

    fn close(&self, number: u64) {
        self.sinks.rcu(|sinks| sinks.iter().filter(|sink| sink.number != number).cloned().collect::<Vec<_>>());
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The open captures during one round, and the copies of the round, in the order in which packets were received and sent.
#[derive(Debug)]
pub(crate) struct Looking {
    sinks: Arc<Vec<Sink>>,
    copies: RefCell<Vec<Captured>>,
}

impl Looking {
    /// Copies a packet that was received or is sent, if somebody looks at its socket.
    pub(crate) fn copy(&self, socket: usize, sent: bool, head: &[u8], length: usize) {
        if self.sinks.iter().any(|sink| sink.sockets.contains(&socket)) {
            let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let captured = Captured { socket, fate: None, time, sent, length, bytes: head.to_vec() };
            self.copies.borrow_mut().push(captured);
        }
    }

    /// Number of copies so far.
    pub(crate) fn copies(&self) -> usize {
        self.copies.borrow().len()
    }

    /// Says what became of the received packets that were copied from the copy `first` on.
    pub(crate) fn decided(&self, first: usize, fates: impl Iterator<Item = Fate>) {
        let mut copies = self.copies.borrow_mut();
        let received = copies.iter_mut().skip(first).filter(|copy| !copy.sent);
        received.zip(fates).for_each(|(copy, fate)| copy.fate = Some(fate));
    }

    /// Hands the copies to the captures.
    pub(crate) fn deliver(self) {
        for copy in self.copies.into_inner() {
            for sink in self.sinks.iter().filter(|sink| sink.sockets.contains(&copy.socket)) {
                sink.put(copy.clone());
            }
        }
    }
}

impl Sink {
    fn put(&self, packet: Captured) {
        if self.packets.try_send(packet).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A capture of the packets of some ports. It ends when it is dropped.
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
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn everyone_gets_the_packets_of_the_sockets_looked_at() {
        let taps = Arc::new(Taps::default());
        assert!(taps.looking().is_none());
        let (one, other) = (taps.open([1]), taps.open([1, 3]));
        let elsewhere = taps.open([2]);
        let looking = taps.looking().unwrap();
        looking.copy(1, true, b"head", 9000);
        looking.copy(3, false, b"more", 4);
        looking.deliver();
        for capture in [&one, &other] {
            let packet = capture.next(Duration::ZERO).unwrap();
            assert_eq!((packet.sent, packet.length, packet.bytes.as_slice()), (true, 9000, &b"head"[..]));
        }
        assert_eq!(other.next(Duration::ZERO).unwrap().socket, 3);
        assert_eq!((one.next(Duration::ZERO), elsewhere.next(Duration::ZERO)), (None, None));
        drop((one, other));
        assert!(taps.is_open());
        drop(elsewhere);
        assert!(taps.looking().is_none());
    }

    #[test]
    fn what_became_of_packets_is_told_in_their_order() {
        let taps = Arc::new(Taps::default());
        let capture = taps.open([0]);
        let looking = taps.looking().unwrap();
        looking.copy(0, false, b"earlier", 7);
        let first = looking.copies();
        for (sent, byte) in [(false, b"1"), (false, b"2"), (true, b"1"), (false, b"3")] {
            looking.copy(0, sent, byte, 1);
        }
        let fates = [Fate::Sent(Some(0)), Fate::Dropped(DropReason::NoRoute), Fate::Held];
        looking.decided(first, fates.into_iter());
        looking.deliver();
        let found: Vec<Option<Fate>> =
            std::iter::from_fn(|| capture.next(Duration::ZERO)).map(|copy| copy.fate).collect();
        assert_eq!(found, [None, Some(fates[0]), Some(fates[1]), None, Some(fates[2])]);
    }

    #[test]
    fn a_queue_that_is_full_loses_and_counts() {
        let taps = Arc::new(Taps::default());
        let capture = taps.open([0]);
        let looking = taps.looking().unwrap();
        (0..QUEUE + 3).for_each(|_| looking.copy(0, false, b"x", 1));
        looking.deliver();
        assert_eq!(capture.lost(), 3);
        assert_eq!(std::iter::from_fn(|| capture.next(Duration::ZERO)).count(), QUEUE);
    }
}
