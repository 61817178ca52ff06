//! One AF_XDP socket: one queue of one port.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock, PoisonError};

use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue};

use crate::busy_poll::{BusyPoll, BusyPollWatch};
use crate::frame::{CHUNK, Frame};
use crate::hand_over::QueueHandOver;
use crate::losses::{LossWatch, Losses};
use crate::modes::Mode;
use crate::sys::{is_unbound, kick_rx, send_nothing, set_option};
use crate::tx_ring::TxRing;
use crate::umem::{self, Closed, Shared, Umem};

/// Sizes of a socket's own rings, which must be powers of two. The fill and completion rings are set per UMEM:
/// [`UmemRings`](crate::UmemRings).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rings {
    /// Capacity for received chunks that wait for us.
    pub rx: u32,
    /// Capacity for chunks that wait for the kernel to send them.
    pub tx: u32,
}

impl Default for Rings {
    fn default() -> Self {
        Self { rx: 2048, tx: 2048 }
    }
}

/// Counters of a socket since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketStats {
    /// Counted by the kernel: packets dropped before the rx ring, e.g. a packet longer than a chunk without
    /// multi-buffer.
    pub rx_dropped: u64,
    /// Counted by the kernel: packets dropped because the rx ring was full.
    pub rx_ring_full: u64,
    /// Counted by the kernel: invalid descriptors in the fill ring.
    pub rx_invalid_descs: u64,
    /// Counted by the kernel: packets that found the fill ring empty.
    pub rx_fill_ring_empty: u64,
    /// Counted by the kernel: descriptors that it refused to send.
    pub tx_invalid_descs: u64,
    /// Counted by the kernel: calls to send with an empty tx ring.
    pub tx_ring_empty: u64,
    /// Counted here: packets returned by [`Socket::rx_burst`].
    pub rx_packets: u64,
    /// Counted here: packets accepted by [`Socket::tx`].
    pub tx_packets: u64,
    /// Counted here: packets dropped because they take more than [`MAX_CHUNKS`](crate::MAX_CHUNKS) chunks, or because
    /// they have fewer than [`MAX_PUSH`](crate::MAX_PUSH) bytes in front and are too long to be moved.
    pub rx_too_long: u64,
    /// Counted here: frames that [`Socket::tx`] gave back.
    pub tx_refused: u64,
    /// Counted here: calls of [`Socket::flush`] that stopped waking the kernel and left the rest to the next flush.
    pub tx_wakeup_again: u64,
}

/// Number of descriptors moved per ring operation.
const BATCH: usize = 256;

/// Number of wake-ups without progress after which a flush gives up until the next. The kernel says EAGAIN both for "32
/// sent, there is more" (progress) and for "cannot now" (no progress). A peer that is slow to free what we sent must
/// never hold the worker.
const STALLED_KICKS: u32 = 4;

/// A socket on one queue of one port, with the four rings behind it.
#[allow(clippy::struct_excessive_bools)] // independent facts, not states
pub struct Socket {
    // The queues are dropped first and together: dropping the last of them closes the socket.
    rx: RxQueue,
    tx: TxRing,
    fill: FillQueue,
    completion: CompQueue,
    leave: ReturnChunks,

    ifname: String,
    chosen: (Mode, String),
    multi_buffer: bool,
    zero_copy: bool,
    was_filled: bool,
    slot: u32,
    rx_out: u32,
    tx_out: u32,
    descs: Box<[FrameDesc]>,
    assembling: Option<Frame>,
    too_long: bool,
    cut_off: Vec<u32>,
    kick_due: bool,
    gone: bool,
    busy_poll: Option<BusyPoll>,
    counts: SocketStats,
    losses: Arc<Losses>,
    /// What the kernel and this socket had lost when that was last asked for.
    lost: u64,
    hand_over: OnceLock<QueueHandOver>,
}

/// Tells the UMEM, after the rings are gone, that the chunks can be taken back.
struct ReturnChunks {
    shared: Arc<Shared>,
    closed: Closed,
}

impl Drop for ReturnChunks {
    fn drop(&mut self) {
        self.shared.socket_closed(self.closed);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.losses.close();
        // Copy mode: close(2) waits for receivers (synchronize_net), so nobody writes to our chunks after it.
        // Zero-copy: the driver releases the chunks later. The first socket's descriptor is the UMEM's and stays open
        // and bound.
        let closes = !self.zero_copy && !self.is_anchor();
        self.leave.closed.kernel_let_go = closes || self.device_is_gone();
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queue = self.leave.closed.queue;
        write!(f, "Socket {{ {} queue {queue}, {} }}", self.ifname, self.chosen.0)
    }
}

impl Socket {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        (rx, tx, fill, completion): (RxQueue, TxRing, FillQueue, CompQueue),
        ifname: &str,
        ifindex: u32,
        queue: u32,
        chosen: (Mode, String),
    ) -> Self {
        let slot = shared.new_slot();
        // The send buffer limits what is in flight; its default holds about 200 packets. A failure is ignored: the
        // option needs CAP_NET_ADMIN.
        set_option(rx.fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 4 << 20);
        Self {
            losses: Losses::new(rx.fd().as_raw_fd()),
            rx,
            tx,
            fill,
            completion,
            leave: ReturnChunks {
                shared: Arc::clone(shared),
                closed: Closed { slot, ifindex, queue, kernel_let_go: false },
            },
            ifname: ifname.to_owned(),
            zero_copy: chosen.0 == Mode::ZeroCopy,
            was_filled: false,
            chosen,
            multi_buffer: shared.multi_buffer.load(Relaxed),
            slot,
            rx_out: 0,
            tx_out: 0,
            descs: vec![FrameDesc::default(); BATCH].into_boxed_slice(),
            assembling: None,
            too_long: false,
            cut_off: Vec::with_capacity(BATCH),
            kick_due: false,
            gone: false,
            busy_poll: None,
            counts: SocketStats::default(),
            lost: 0,
            hand_over: OnceLock::new(),
        }
    }

    /// Receives up to `max` chunks' worth of packets (at most 256) into `out` and returns the number of packets. Also
    /// reaps sent chunks and refills the fill ring. Does nothing if `umem` is not the UMEM that the socket was opened
    /// on.
    pub fn rx_burst(&mut self, umem: &mut Umem, max: usize, out: &mut Vec<Frame>) -> usize {
        if !umem.belongs_with(&self.leave.shared) {
            return 0;
        }
        let before = out.len();
        self.reap(umem);
        let want = max.min(BATCH);
        let window = self.descs.get_mut(..want).unwrap_or_default();
        // SAFETY: the queue was bound on the region these chunks belong to, by
        // `bind`, and every received chunk was handed over by `refill`.
        let mut got = unsafe { self.rx.consume(window) };
        if let Some(busy_poll) = &mut self.busy_poll {
            if got == 0 && busy_poll.poll() {
                // SAFETY: as above.
                got = unsafe { self.rx.consume(window) };
            }
            if got > 0 {
                busy_poll.packets_came();
            }
        }
        for at in 0..got {
            if let Some(desc) = self.descs.get(at).copied() {
                self.rx_out -= 1;
                self.received(umem, &desc, out);
            }
        }
        self.refill(umem);
        out.len() - before
    }

    /// Handles one received chunk, which is a packet or a part of one.
    fn received(&mut self, umem: &mut Umem, desc: &FrameDesc, out: &mut Vec<Frame>) {
        let chunk = u32::try_from(desc.addr() / CHUNK).unwrap_or(u32::MAX);
        // SAFETY: the chunk was just consumed from the rx ring: the kernel has released it, and nobody else has it yet.
        let part = unsafe { self.leave.shared.hold(chunk, desc.addr() % CHUNK, desc.lengths().data()) };
        let Some(mut part) = part else { return };
        match self.assembling.as_mut() {
            None => {
                self.too_long = !part.make_room();
                self.assembling = Some(part);
            }
            Some(packet) => {
                if !packet.append(part.head_piece()) {
                    self.too_long = true;
                    umem.put(chunk);
                }
            }
        }
        if !desc.has_more_frames() {
            self.packet_complete(umem, out);
        }
    }

    /// Passes an assembled packet to the caller.
    fn packet_complete(&mut self, umem: &mut Umem, out: &mut Vec<Frame>) {
        let Some(packet) = self.assembling.take() else { return };
        if self.too_long {
            self.counts.rx_too_long += 1;
            self.losses.too_long();
            umem.recycle(packet);
            return;
        }
        self.counts.rx_packets += 1;
        out.push(packet);
    }

    /// Queues a packet for sending. Returns the frame if the rings have no room for all its chunks
    /// ([`flush`](Self::flush) makes some), or if it is empty, belongs to another UMEM, or has more chunks than the
    /// socket can send.
    #[inline]
    pub fn tx(&mut self, frame: Frame) -> Result<(), Frame> {
        let count = frame.chunks();
        let in_flight = self.tx_out + count;
        let shared = &self.leave.shared;
        // There must never be more chunks in flight than completion slots: the kernel would stop sending and say EAGAIN
        // until they are reaped.
        let no_room = in_flight > shared.rings.completion || !self.tx.has_room(count);
        // The kernel would skip the descriptors and never return the chunks.
        let too_many = count > 1 && !self.multi_buffer;
        if no_room || too_many || frame.umem != shared.id || frame.head_len() == 0 {
            self.counts.tx_refused += 1;
            return Err(frame);
        }
        let theirs = umem::sending(self.slot);
        let mut more = count;
        for piece in std::iter::once(&frame.head_piece()).chain(frame.tail()) {
            more -= 1;
            shared.set_owner(piece.chunk, theirs);
            let options = if more > 0 { libc::XDP_PKT_CONTD } else { 0 };
            // SAFETY: the ring has room for all of them. The chunks belong to the region that the socket was bound on,
            // the frame was their only owner, and the last access to them ends with `frame`.
            unsafe { self.tx.write(piece.addr(), piece.len.into(), options) };
        }
        self.tx.submit();
        self.cut_off.extend(frame.cut_off().iter().map(|piece| piece.chunk));
        self.tx_out = in_flight;
        self.kick_due = true;
        self.counts.tx_packets += 1;
        Ok(())
    }

    /// Wakes the kernel to send what was queued, and reaps what was sent. It is called once per burst. Its time is
    /// bounded: what cannot be sent now stays for the next flush.
    pub fn flush(&mut self, umem: &mut Umem) {
        if !umem.belongs_with(&self.leave.shared) {
            return;
        }
        self.reap(umem);
        let mut stalled = 0;
        let mut room = 0;
        while self.kick_due {
            if !self.tx.needs_wakeup() {
                self.kick_due = false; // a zero-copy driver that is polling needs no wake-up
                return;
            }
            match self.kick_tx() {
                Kick::Done => self.kick_due = false,
                Kick::Gone => {
                    self.gone = true;
                    return;
                }
                Kick::Again => {
                    let now = self.tx.free_now();
                    stalled = if now > room { 0 } else { stalled + 1 };
                    room = now;
                }
            }
            // This is inside the loop because a full completion ring is one reason for EAGAIN.
            self.reap(umem);
            if stalled > STALLED_KICKS {
                self.counts.tx_wakeup_again += 1;
                return;
            }
        }
    }

    /// Puts a frame back into the pool of its UMEM.
    pub fn recycle(&mut self, umem: &mut Umem, frame: Frame) {
        umem.recycle(frame);
    }

    /// Returns the mode in use (never [`Mode::Auto`]) and why it is not a better one. The text is empty if the mode is
    /// the one asked for.
    pub fn chosen(&self) -> (Mode, &str) {
        (self.chosen.0, &self.chosen.1)
    }

    /// Whether packets longer than one chunk can be received and sent.
    pub fn multi_buffer(&self) -> bool {
        self.multi_buffer
    }

    /// Returns the port's name at the time when the socket was opened.
    pub fn ifname(&self) -> &str {
        &self.ifname
    }

    /// Returns the queue of the port.
    pub fn queue(&self) -> u32 {
        self.leave.closed.queue
    }

    /// Number of chunks that the kernel holds: (for receiving, for sending).
    pub fn outstanding(&self) -> (u32, u32) {
        (self.rx_out, self.tx_out)
    }

    /// Whether queued packets still wait for a [`flush`](Self::flush).
    pub fn tx_pending(&self) -> bool {
        self.kick_due
    }

    /// Whether the device was deleted, as seen by a flush: close the socket then.
    /// [`device_is_gone`](Self::device_is_gone) asks the kernel.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Asks the kernel whether the device was deleted. (The call also sends what is queued.)
    pub fn device_is_gone(&self) -> bool {
        is_unbound(self.as_raw_fd())
    }

    /// Returns the counters of the kernel and of this socket.
    pub fn stats(&self) -> io::Result<SocketStats> {
        let kernel = self.rx.fd().xdp_statistics()?;
        Ok(SocketStats {
            rx_dropped: kernel.rx_dropped(),
            rx_ring_full: kernel.rx_ring_full(),
            rx_invalid_descs: kernel.rx_invalid_descs(),
            rx_fill_ring_empty: kernel.rx_fill_ring_empty_descs(),
            tx_invalid_descs: kernel.tx_invalid_descs(),
            tx_ring_empty: kernel.tx_ring_empty_descs(),
            ..self.counts
        })
    }

    /// Sets the row in which the program counts what it gives to this socket. The first one stays.
    pub(crate) fn count_in(&self, hand_over: QueueHandOver) {
        let _ = self.hand_over.set(hand_over);
    }

    /// Says in the hand-over of this number that every packet received so far has been sent, with the kernel woken, or dropped.
    /// Packets that the socket has lost are finished, too; the kernel is asked for them when the numbers differ.
    pub fn finish(&mut self, number: u32) {
        let Some(hand_over) = self.hand_over.get() else { return };
        if hand_over.given() != self.counts.rx_packets + self.lost {
            self.lost = self.losses.lost();
        }
        hand_over.finish(number, self.counts.rx_packets + self.lost);
    }

    /// Returns a counter of the packets that are lost on the way to this socket.
    pub fn losses(&self) -> LossWatch {
        self.losses.watch()
    }

    /// Asks for preferred busy polling: the driver receives in this socket's own system calls, up to `budget` packets
    /// in each. Whether that works depends on kernel and driver; the returned value shows it.
    pub fn prefer_busy_poll(&mut self, budget: u32) -> BusyPollWatch {
        let asked = BusyPoll::ask(self.as_raw_fd(), budget);
        let watch = asked.watch();
        self.busy_poll = Some(asked);
        watch
    }

    /// Closes the socket and takes its chunks back into the pool. (The kernel keeps the chunks of the UMEM's first
    /// socket while its device exists.)
    pub fn close(mut self, umem: &mut Umem) {
        if umem.belongs_with(&self.leave.shared) {
            self.reap(umem);
            if let Some(part) = self.assembling.take() {
                umem.recycle(part);
            }
        }
        drop(self);
        umem.reclaim();
    }

    fn is_anchor(&self) -> bool {
        let anchor = self.leave.shared.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        *anchor == Some(self.as_raw_fd())
    }

    /// Puts sent chunks, and tails that were cut off, back into the pool.
    fn reap(&mut self, umem: &mut Umem) {
        for chunk in self.cut_off.drain(..) {
            umem.put(chunk);
        }
        while self.tx_out > 0 {
            // SAFETY: the queue was bound on this region by `bind`.
            let got = unsafe { self.completion.consume(&mut self.descs) };
            for desc in self.descs.iter().take(got) {
                umem.put(u32::try_from(desc.addr() / CHUNK).unwrap_or(u32::MAX));
                self.tx_out -= 1;
            }
            if got < BATCH {
                return;
            }
        }
    }

    /// Gives the kernel chunks to receive into, up to the share of this socket.
    fn refill(&mut self, umem: &mut Umem) {
        let theirs = umem::receiving(self.slot);
        let share = self.leave.shared.receive_share();
        loop {
            let missing = share.saturating_sub(self.rx_out);
            let missing = missing.min(self.fill.nb_free(missing)) as usize;
            let mut count = 0;
            for desc in self.descs.iter_mut().take(missing) {
                let Some(chunk) = umem.take() else { break };
                *desc = self.leave.shared.desc(chunk);
                self.leave.shared.set_owner(chunk, theirs);
                count += 1;
            }
            if count == 0 {
                break;
            }
            let window = self.descs.get(..count).unwrap_or_default();
            // SAFETY: the chunks belong to the region that the queue was bound on, and came out of the pool just now,
            // so nobody else has them.
            let handed = unsafe { self.fill.produce(window) };
            debug_assert_eq!(handed, count, "the fill ring had said it has room");
            self.rx_out += u32::try_from(handed).unwrap_or(0);
        }
        // A zero-copy driver sleeps if the fill ring is empty, as it is when the socket is bound. It is reported that
        // ice and i40e then look for chunks only once and do not ask for a wake-up; virtio_net looks again by itself.
        let is_first = self.zero_copy && !self.was_filled && self.rx_out > 0;
        if is_first {
            self.was_filled = true;
            let _ = send_nothing(self.as_raw_fd()); // EAGAIN: the driver is awake
        }
        if is_first || self.fill.needs_wakeup() {
            kick_rx(self.as_raw_fd());
        }
    }

    fn kick_tx(&self) -> Kick {
        match send_nothing(self.as_raw_fd()) {
            Ok(()) => Kick::Done,
            Err(why) if why.raw_os_error() == Some(libc::ENXIO) => Kick::Gone,
            // EAGAIN: more to send or no room; EBUSY: the queue's lock is taken; ENOBUFS: no memory at present;
            // ENETDOWN: the link is down at present.
            Err(_) => Kick::Again,
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.rx.fd().as_raw_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor stays open while `self.rx` lives, which the borrow of self guarantees.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

enum Kick {
    Done,
    Again,
    Gone,
}
