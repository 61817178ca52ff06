//! The packet memory of one worker and the pool of its free chunks.
//!
//! ```text
//!            Umem::frame, rx                 Socket::tx
//!   free ─────────────────────► held ──────────────────────► tx ring ─► completion ring ─┐
//!    │ ▲                          │ ▲                                                    │
//!    │ └──────────────────────────┘ └── rx ring ◄─ fill ring ◄─┐                         │
//!    │          Umem::recycle                                  │ Socket::rx_burst        │
//!    ├─────────────────────────────────────────────────────────┘                         │
//!    └────────────────────────────────────────────────────────────────────────────◄──────┘
//! ```
//!
//! One UMEM serves all ports of a worker, so chunks travel: received on A, sent
//! on B, completed on B, and from the pool into the fill ring of whichever port
//! needs one. A table of one word per chunk says who has it, which is how the
//! chunks of a port that vanished are found again.

use std::num::NonZeroU32;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use xsk_rs::FrameDesc;
use xsk_rs::config::{FrameSize, QueueSize, UmemConfig};

use crate::XskError;
use crate::frame::{CHUNK, Frame, FurtherChunks, HEADROOM, MAX_TAIL, ROOM};
use crate::sys::prefetch_headers;

/// Sizes of the rings that every socket of a UMEM gets for itself. Powers of
/// two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UmemRings {
    /// Chunks a socket can hand to the kernel for receiving.
    pub fill: u32,
    /// Sent chunks the kernel can hold before they are reaped. Also the limit
    /// of chunks in flight, whatever the size of the tx ring.
    pub completion: u32,
}

impl Default for UmemRings {
    fn default() -> Self {
        Self { fill: 2048, completion: 2048 }
    }
}

/// Where the chunks of a UMEM are. The sum of all but `frames` is `frames`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accounting {
    /// Chunks of the UMEM.
    pub frames: u32,
    /// In the pool.
    pub free: u32,
    /// With the caller, in a [`Frame`].
    pub held: u32,
    /// With the kernel for receiving: in a fill ring, or received and in an rx
    /// ring.
    pub rx: u32,
    /// With the kernel for sending: in a tx ring, on the way, or in a
    /// completion ring.
    pub tx: u32,
    /// Of a closed socket whose driver may still write into them. They return
    /// when its queue can be bound again or its device is gone.
    pub quarantine: u32,
}

/// Who has a chunk: one of these, or `SOCKETS + 2 * slot` (for receiving) or
/// one more (for sending) for the socket with that slot.
const FREE: u32 = 0;
const HELD: u32 = 1;
const QUARANTINE: u32 = 2;
const SOCKETS: u32 = 4;

/// The word of a chunk that the socket with this slot has for receiving.
pub(crate) fn receiving(slot: u32) -> u32 {
    SOCKETS + 2 * slot
}

/// The word of a chunk that the socket with this slot has for sending.
pub(crate) fn sending(slot: u32) -> u32 {
    receiving(slot) + 1
}

/// A socket that was closed and whose chunks are to be taken back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closed {
    pub(crate) slot: u32,
    pub(crate) ifindex: u32,
    pub(crate) queue: u32,
    /// The kernel writes to none of the socket's chunks any more.
    pub(crate) kernel_let_go: bool,
}

/// What happened to the sockets of a UMEM since it last looked, in order.
enum Event {
    Closed(Closed),
    /// This (ifindex, queue) could be bound, so the kernel has let go of
    /// whatever socket was on it before.
    Bound(u32, u32),
}

/// What a UMEM and its sockets share.
pub(crate) struct Shared {
    pub(crate) region: xsk_rs::Umem,
    pub(crate) rings: UmemRings,
    pub(crate) id: u32,
    /// The region's first byte.
    memory: NonNull<u8>,
    /// What names each chunk in a fill ring; copied, never changed.
    descs: Box<[FrameDesc]>,
    owners: Box<[AtomicU32]>,
    next_slot: AtomicU32,
    /// Sockets that are open.
    pub(crate) sockets: AtomicU32,
    events: Mutex<Vec<Event>>,
    /// The first socket's file descriptor, which is the UMEM's own.
    pub(crate) anchor: Mutex<Option<RawFd>>,
    /// Whether the first socket took multi-buffer; the others inherit it.
    pub(crate) multi_buffer: AtomicBool,
}

// SAFETY: `memory` is followed by the owner of a chunk alone, through its
// Frame, and to that chunk. All else is Sync itself.
unsafe impl Sync for Shared {}
// SAFETY: as above, nothing in it is tied to a thread.
unsafe impl Send for Shared {}

impl Shared {
    pub(crate) fn frames(&self) -> u32 {
        u32::try_from(self.descs.len()).unwrap_or(u32::MAX)
    }

    /// Chunks that a socket may have for receiving: as many as its fill ring holds, but no more than leave half of all
    /// to the pool when every open socket has as many. Ports may come long after the rings were sized.
    pub(crate) fn receive_share(&self) -> u32 {
        let sockets = self.sockets.load(Relaxed);
        self.rings.fill.min(self.frames() / (2 * (sockets + 1))).max(1)
    }

    /// What names this chunk in a fill ring.
    pub(crate) fn desc(&self, chunk: u32) -> FrameDesc {
        self.descs.get(chunk as usize).copied().unwrap_or_default()
    }

    /// The first byte of a chunk.
    #[inline]
    fn first(&self, chunk: u32) -> Option<NonNull<u8>> {
        let chunk = chunk as usize;
        // SAFETY: the region has so many chunks, one behind the other.
        (chunk < self.descs.len()).then(|| unsafe { self.memory.add(chunk * CHUNK) })
    }

    pub(crate) fn set_owner(&self, chunk: u32, owner: u32) {
        if let Some(word) = self.owners.get(chunk as usize) {
            word.store(owner, Relaxed);
        }
    }

    pub(crate) fn new_slot(&self) -> u32 {
        self.next_slot.fetch_add(1, Relaxed)
    }

    pub(crate) fn socket_closed(&self, closed: Closed) {
        self.sockets.fetch_sub(1, Relaxed);
        self.happened(Event::Closed(closed));
    }

    pub(crate) fn socket_bound(&self, ifindex: u32, queue: u32) {
        self.sockets.fetch_add(1, Relaxed);
        self.happened(Event::Bound(ifindex, queue));
    }

    fn happened(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// The frame around a chunk that has just become the caller's.
    ///
    /// # Safety
    ///
    /// The chunk is neither in a ring, nor with the kernel, nor in the pool,
    /// nor in another frame.
    pub(crate) unsafe fn hold(&self, chunk: u32, start: usize, head_len: usize) -> Option<Frame> {
        let first = self.first(chunk)?;
        self.set_owner(chunk, HELD);
        // SAFETY: every chunk of the region has CHUNK bytes, stays mapped while
        // frames exist, and the caller promises that nothing else has it.
        let mut frame = unsafe { Frame::new(first, self.id, chunk) };
        frame.place(start, head_len);
        // Whoever gets a frame looks at its headers, after those of all others of a burst have been asked for, too.
        prefetch_headers(frame.head());
        Some(frame)
    }
}

/// The packet memory of one worker. Never shared between workers: it is
/// changed through `&mut` only, and takes no lock on the packet path.
pub struct Umem {
    shared: Arc<Shared>,
    free: Vec<u32>,
    quarantine: Vec<(Closed, Vec<u32>)>,
}

/// What [`Socket::open_on`](crate::Socket::open_on) needs of a UMEM: lets a
/// control thread open (and wait for) a socket that a worker will run.
#[derive(Clone)]
pub struct UmemHandle(pub(crate) Arc<Shared>);

impl std::fmt::Debug for Umem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Umem {{ id: {}, frames: {}, free: {} }}", self.shared.id, self.frames(), self.free.len())
    }
}

impl std::fmt::Debug for UmemHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UmemHandle {{ id: {} }}", self.0.id)
    }
}

impl Umem {
    /// `frames` chunks of 4096 bytes with the default ring sizes. A port wants
    /// about `fill + completion` of them, and the worker a few hundred beside.
    pub fn new(frames: u32) -> Result<Self, XskError> {
        Self::with_rings(frames, UmemRings::default())
    }

    /// As [`new`](Self::new), with these fill and completion rings per socket.
    pub fn with_rings(frames: u32, rings: UmemRings) -> Result<Self, XskError> {
        static NEXT_ID: AtomicU32 = AtomicU32::new(1);

        let config = UmemConfig::builder()
            .frame_size(FrameSize::new(4096).map_err(|why| refused(frames, why))?)
            .fill_queue_size(ring("fill", rings.fill)?)
            .comp_queue_size(ring("completion", rings.completion)?)
            .build()
            .map_err(|why| refused(frames, why))?;
        let count = NonZeroU32::new(frames).ok_or_else(|| refused(frames, "no frames"))?;
        let (region, descs) = xsk_rs::Umem::new(config, count, false).map_err(|why| not_made(frames, &why))?;

        let memory = memory_of(&region, &descs).ok_or_else(|| refused(frames, "its chunks are not in a row"))?;
        let shared = Shared {
            region,
            rings,
            id: NEXT_ID.fetch_add(1, Relaxed),
            owners: (0..frames).map(|_| AtomicU32::new(FREE)).collect(),
            memory,
            descs: descs.into_boxed_slice(),
            next_slot: AtomicU32::new(0),
            sockets: AtomicU32::new(0),
            events: Mutex::default(),
            anchor: Mutex::new(None),
            multi_buffer: AtomicBool::new(false),
        };
        Ok(Self {
            shared: Arc::new(shared),
            // Low chunks first: they stay warm when there is little traffic.
            free: (0..frames).rev().collect(),
            quarantine: Vec::new(),
        })
    }

    /// For opening sockets on another thread.
    pub fn handle(&self) -> UmemHandle {
        UmemHandle(Arc::clone(&self.shared))
    }

    /// Chunks of the UMEM.
    pub fn frames(&self) -> u32 {
        self.shared.frames()
    }

    /// A fresh frame, empty, with [`MAX_PUSH`](crate::MAX_PUSH) bytes in front. None when the pool is empty.
    pub fn frame(&mut self) -> Option<Frame> {
        let chunk = self.take()?;
        // SAFETY: the chunk was in the pool, so it is nowhere else.
        unsafe { self.shared.hold(chunk, HEADROOM, 0) }
    }

    /// Takes a frame's chunks back. A frame of another UMEM is not ours to
    /// take: it is handed back.
    pub fn recycle(&mut self, frame: Frame) -> Option<Frame> {
        if !self.owns(&frame) {
            return Some(frame);
        }
        for piece in frame.attached() {
            self.put(piece.chunk);
        }
        self.put(frame.head_piece().chunk);
        None
    }

    /// Whether a frame is of this UMEM: only then can it be sent by a socket on it.
    #[inline]
    pub fn owns(&self, frame: &Frame) -> bool {
        frame.umem == self.shared.id
    }

    /// The packet of a frame copied into as few chunks of this UMEM as hold it: the way between ports that cannot share
    /// one. It is made to be sent: there may be no room in front of it. None when the pool has too few chunks.
    pub fn copy_of(&mut self, from: &Umem, frame: &Frame) -> Option<Frame> {
        if !from.owns(frame) {
            return None;
        }
        self.gather(frame.packet_len(), from.segments(frame))
    }

    /// A packet to be sent, in as few chunks as hold it. None when the pool has too few, or no frame has as many.
    pub fn frame_of(&mut self, packet: &[u8]) -> Option<Frame> {
        self.gather(packet.len(), std::iter::once(packet))
    }

    fn gather<'a>(&mut self, len: usize, segments: impl Iterator<Item = &'a [u8]>) -> Option<Frame> {
        if self.free.len() < len.div_ceil(ROOM).max(1) || len > CHUNK + MAX_TAIL * ROOM {
            return None;
        }
        let mut copy = None;
        let mut chunk = self.frame()?;
        if len > ROOM {
            // A head that had headers put in front of it takes more than there is behind the headroom.
            chunk.place(0, 0);
        }
        for mut bytes in segments {
            loop {
                bytes = fill(&mut chunk, bytes);
                if bytes.is_empty() {
                    break;
                }
                join(&mut copy, std::mem::replace(&mut chunk, self.frame()?));
            }
        }
        join(&mut copy, chunk);
        copy
    }

    /// The packet's bytes, chunk by chunk, head first. Empty when the frame is
    /// of another UMEM.
    pub fn segments<'a>(&'a self, frame: &'a Frame) -> impl Iterator<Item = &'a [u8]> {
        let ours = self.owns(frame);
        let head = ours.then(|| frame.head());
        head.into_iter().chain(self.further_segments(frame.further()))
    }

    /// The packet's bytes behind the first chunk, chunk by chunk. Empty when
    /// the frame is of another UMEM.
    pub fn further_segments<'a>(&'a self, further: FurtherChunks<'a>) -> impl Iterator<Item = &'a [u8]> {
        let pieces = if further.umem == self.shared.id { further.pieces } else { &[] };
        pieces.iter().filter_map(|piece| {
            let first = self.shared.first(piece.chunk)?;
            let start = usize::from(piece.start).min(CHUNK);
            let len = usize::from(piece.len).min(CHUNK - start);
            // SAFETY: it begins within the chunk.
            let first = unsafe { first.add(start) };
            // SAFETY: the piece belongs to a frame that `further` borrows,
            // so nobody writes to it; the chunk has `len` bytes from there.
            Some(unsafe { std::slice::from_raw_parts(first.as_ptr(), len) })
        })
    }

    /// Where the chunks are now. Walks all of them: for status and tests, not
    /// for the packet path.
    pub fn accounting(&mut self) -> Accounting {
        self.reclaim();
        let mut sum = Accounting {
            frames: self.frames(),
            free: u32::try_from(self.free.len()).unwrap_or(u32::MAX),
            ..Accounting::default()
        };
        for word in &self.shared.owners {
            match word.load(Relaxed) {
                FREE => {}
                HELD => sum.held += 1,
                QUARANTINE => sum.quarantine += 1,
                owner if (owner - SOCKETS).is_multiple_of(2) => sum.rx += 1,
                _ => sum.tx += 1,
            }
        }
        sum
    }

    /// Takes back what closed sockets had. [`Socket::close`](crate::Socket::close)
    /// does it; needed only after a socket was merely dropped.
    pub fn reclaim(&mut self) {
        let events = std::mem::take(&mut *self.shared.events.lock().unwrap_or_else(PoisonError::into_inner));
        for event in events {
            match event {
                Event::Closed(socket) => self.socket_closed(socket),
                Event::Bound(ifindex, queue) => {
                    self.release(|waiting| (waiting.ifindex, waiting.queue) == (ifindex, queue));
                }
            }
        }
        self.release(|waiting| !crate::ifindex_exists(waiting.ifindex));
    }

    fn socket_closed(&mut self, socket: Closed) {
        let chunks = self.chunks_of(socket.slot);
        if socket.kernel_let_go {
            self.put_all(chunks);
            return;
        }
        for &chunk in &chunks {
            self.shared.set_owner(chunk, QUARANTINE);
        }
        self.quarantine.push((socket, chunks));
    }

    /// Ends the quarantine of these sockets' chunks. A zero-copy driver lets go
    /// of a closed socket's memory from a work item some time after close(2);
    /// that its queue could be bound again, or that the device is gone, proves
    /// that it has.
    fn release(&mut self, let_go: impl Fn(&Closed) -> bool) {
        let waiting = std::mem::take(&mut self.quarantine);
        for (socket, chunks) in waiting {
            if let_go(&socket) {
                self.put_all(chunks);
            } else {
                self.quarantine.push((socket, chunks));
            }
        }
    }

    fn chunks_of(&self, slot: u32) -> Vec<u32> {
        let theirs = [receiving(slot), sending(slot)];
        (0..)
            .zip(&self.shared.owners)
            .filter(|(_, word)| theirs.contains(&word.load(Relaxed)))
            .map(|(chunk, _)| chunk)
            .collect()
    }

    pub(crate) fn belongs_with(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// A chunk out of the pool. The caller says at once who has it.
    pub(crate) fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    pub(crate) fn put(&mut self, chunk: u32) {
        self.shared.set_owner(chunk, FREE);
        self.free.push(chunk);
    }

    fn put_all(&mut self, chunks: Vec<u32>) {
        for chunk in chunks {
            self.put(chunk);
        }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        let held = self.shared.owners.iter().any(|word| word.load(Relaxed) == HELD);
        if held {
            // A Frame points into the region without counting references (that
            // would be an atomic operation per packet). So the region of a UMEM
            // that dies before its frames stays mapped for good.
            std::mem::forget(Arc::clone(&self.shared));
        }
    }
}

/// Copies behind what is in a frame's head already, as much as the chunk holds. What is left over.
fn fill<'b>(frame: &mut Frame, bytes: &'b [u8]) -> &'b [u8] {
    let (start, len) = (frame.start(), frame.head_len());
    let Some(room) = frame.chunk_mut().get_mut(start + len..) else { return bytes };
    let (now, later) = bytes.split_at(room.len().min(bytes.len()));
    if let Some(room) = room.get_mut(..now.len()) {
        room.copy_from_slice(now);
    }
    frame.place(start, len + now.len());
    later
}

/// Makes a frame of one chunk the end of a packet, or its beginning.
fn join(packet: &mut Option<Frame>, part: Frame) {
    match packet {
        None => *packet = Some(part),
        Some(packet) => {
            packet.append(part.head_piece());
        }
    }
}

/// The first byte of a region whose chunks these are. None: they are not [`CHUNK`] bytes apart, each with a packet's
/// place at [`HEADROOM`].
fn memory_of(region: &xsk_rs::Umem, descs: &[FrameDesc]) -> Option<NonNull<u8>> {
    let in_a_row = (0..).zip(descs).all(|(number, desc): (usize, _)| desc.addr() == number * CHUNK + HEADROOM);
    let mut first = *descs.first().filter(|_| in_a_row)?;
    // SAFETY: the descriptor was made for this region just now, and neither
    // the kernel nor anybody else knows of it yet.
    let mut data = unsafe { region.data_mut(&mut first) };
    let packet = data.contents_mut().as_mut_ptr();
    // The address of the whole region was given away when it was registered.
    NonNull::new(std::ptr::with_exposed_provenance_mut(packet.expose_provenance() - HEADROOM))
}

/// A ring size as xsk-rs wants it.
pub(crate) fn ring(ring: &'static str, size: u32) -> Result<QueueSize, XskError> {
    QueueSize::new(size).map_err(|_| XskError::RingSize { ring, size })
}

fn refused(frames: u32, why: impl std::fmt::Display) -> XskError {
    XskError::Umem { frames, mib: frames / 256, why: why.to_string(), fix: "ask for at least one frame" }
}

fn not_made(frames: u32, why: &(dyn std::error::Error + 'static)) -> XskError {
    let os = crate::os_error(why);
    let fix = match os.as_ref().and_then(std::io::Error::raw_os_error) {
        Some(libc::EPERM) => "give the process CAP_NET_RAW (systemd: AmbientCapabilities=)",
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            "raise the limit of locked memory (systemd: LimitMEMLOCK=infinity), give the process \
             CAP_IPC_LOCK, or configure fewer frames"
        }
        Some(libc::EMFILE | libc::ENFILE) => crate::error::TOO_FEW_DESCRIPTORS,
        Some(libc::EAFNOSUPPORT) => "use a kernel built with CONFIG_XDP_SOCKETS",
        _ => "see `srv6d doctor`",
    };
    let why = os.map_or_else(|| why.to_string(), |os| os.to_string());
    XskError::Umem { frames, mib: frames / 256, why, fix }
}
