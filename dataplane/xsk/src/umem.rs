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
//! One UMEM serves all ports of a worker, so chunks move between them: received on A, sent on B, completed on B, and
//! from the pool into the fill ring of whichever port needs one. A table with one word per chunk records its owner, so
//! that the chunks of a port that has vanished can be found again.

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

/// Sizes of the rings that every socket of a UMEM gets for itself, which must be powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UmemRings {
    /// Number of chunks that a socket can give to the kernel for receiving.
    pub fill: u32,
    /// Number of sent chunks that the kernel can hold before they are reaped. It also limits the chunks in flight,
    /// whatever the size of the tx ring.
    pub completion: u32,
}

impl Default for UmemRings {
    fn default() -> Self {
        Self { fill: 2048, completion: 2048 }
    }
}

/// Numbers of chunks of a UMEM by where they are. The sum of all but `frames` is `frames`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accounting {
    /// All chunks of the UMEM.
    pub frames: u32,
    /// Chunks in the pool.
    pub free: u32,
    /// Chunks that the caller holds in a [`Frame`].
    pub held: u32,
    /// Chunks that the kernel has for receiving: in a fill ring, or received and in an rx ring.
    pub rx: u32,
    /// Chunks that the kernel has for sending: in a tx ring, being sent, or in a completion ring.
    pub tx: u32,
    /// Chunks of a closed socket whose driver may still write into them. They return when the socket's queue can be
    /// bound again or its device is gone.
    pub quarantine: u32,
}

/// Values of a chunk's owner. The chunks of the socket with a slot have the owner `SOCKETS + 2 * slot` while they are
/// for receiving, and that number plus one while they are for sending.
const FREE: u32 = 0;
const HELD: u32 = 1;
const QUARANTINE: u32 = 2;
const SOCKETS: u32 = 4;

/// Returns the owner value of a chunk that the socket with this slot has for receiving.
pub(crate) fn receiving(slot: u32) -> u32 {
    SOCKETS + 2 * slot
}

/// Returns the owner value of a chunk that the socket with this slot has for sending.
pub(crate) fn sending(slot: u32) -> u32 {
    receiving(slot) + 1
}

/// A socket that was closed and whose chunks are to be taken back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closed {
    pub(crate) slot: u32,
    pub(crate) ifindex: u32,
    pub(crate) queue: u32,
    /// Whether the kernel no longer writes to any of the socket's chunks.
    pub(crate) kernel_let_go: bool,
}

/// Events of the sockets of a UMEM since the UMEM last handled them, in order.
enum Event {
    Closed(Closed),
    /// This (ifindex, queue) could be bound, so the kernel has released the chunks of the socket that was on it before.
    Bound(u32, u32),
}

/// State that a UMEM and its sockets share.
pub(crate) struct Shared {
    pub(crate) region: xsk_rs::Umem,
    pub(crate) rings: UmemRings,
    pub(crate) id: u32,
    /// Points to the region's first byte.
    memory: NonNull<u8>,
    /// The descriptors that stand for the chunks in a fill ring. They are copied and never changed.
    descs: Box<[FrameDesc]>,
    owners: Box<[AtomicU32]>,
    next_slot: AtomicU32,
    /// Number of sockets that are open.
    pub(crate) sockets: AtomicU32,
    events: Mutex<Vec<Event>>,
    /// File descriptor of the first socket, which is the UMEM's own.
    pub(crate) anchor: Mutex<Option<RawFd>>,
    /// Whether the first socket took multi-buffer; the others inherit it.
    pub(crate) multi_buffer: AtomicBool,
}

// SAFETY: only the owner of a chunk dereferences `memory`, through its Frame and within that chunk. All other members
// are Sync.
unsafe impl Sync for Shared {}
// SAFETY: as above; no member is tied to a thread.
unsafe impl Send for Shared {}

impl Shared {
    pub(crate) fn frames(&self) -> u32 {
        u32::try_from(self.descs.len()).unwrap_or(u32::MAX)
    }

    /// Number of chunks that a socket may have for receiving: at most as many as its fill ring holds, and few enough
    /// that half of all chunks stay in the pool when every open socket has its share. Ports may be added long after the
    /// rings were sized.
    pub(crate) fn receive_share(&self) -> u32 {
        let sockets = self.sockets.load(Relaxed);
        self.rings.fill.min(self.frames() / (2 * (sockets + 1))).max(1)
    }

    /// Returns the descriptor of this chunk for a fill ring.
    pub(crate) fn desc(&self, chunk: u32) -> FrameDesc {
        self.descs.get(chunk as usize).copied().unwrap_or_default()
    }

    /// Returns a pointer to the first byte of a chunk.
    #[inline]
    fn first(&self, chunk: u32) -> Option<NonNull<u8>> {
        let chunk = chunk as usize;
        // SAFETY: the region has that many chunks, one behind the other.
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

    /// Makes a frame of a chunk that has just become the caller's.
    ///
    /// # Safety
    ///
    /// The chunk is neither in a ring, nor with the kernel, nor in the pool,
    /// nor in another frame.
    pub(crate) unsafe fn hold(&self, chunk: u32, start: usize, head_len: usize) -> Option<Frame> {
        let first = self.first(chunk)?;
        self.set_owner(chunk, HELD);
        // SAFETY: every chunk of the region has CHUNK bytes and stays mapped while frames exist, and the caller
        // promises that nothing else has it.
        let mut frame = unsafe { Frame::new(first, self.id, chunk) };
        frame.place(start, head_len);
        // The receiver of a frame reads its headers only after those of all others of the burst have been prefetched,
        // too.
        prefetch_headers(frame.head());
        Some(frame)
    }
}

/// The packet memory of one worker. It is never shared between workers: it is changed through `&mut` only, and takes no
/// lock on the packet path.
pub struct Umem {
    shared: Arc<Shared>,
    free: Vec<u32>,
    quarantine: Vec<(Closed, Vec<u32>)>,
}

/// The part of a UMEM that [`Socket::open_on`](crate::Socket::open_on) needs. With it a control thread can open (and
/// wait for) a socket that a worker will run.
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
    /// Allocates `frames` chunks of 4096 bytes, with the default ring sizes. A port needs about `fill + completion` of
    /// them, and the worker a few hundred more.
    pub fn new(frames: u32) -> Result<Self, XskError> {
        Self::with_rings(frames, UmemRings::default())
    }

    /// Like [`new`](Self::new), but with these sizes of the fill and completion rings of each socket.
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
            // Low chunks are used first: they stay in the cache when there is little traffic.
            free: (0..frames).rev().collect(),
            quarantine: Vec::new(),
        })
    }

    /// Returns a handle for opening sockets on another thread.
    pub fn handle(&self) -> UmemHandle {
        UmemHandle(Arc::clone(&self.shared))
    }

    /// Number of chunks of the UMEM.
    pub fn frames(&self) -> u32 {
        self.shared.frames()
    }

    /// Takes a new, empty frame from the pool, with [`MAX_PUSH`](crate::MAX_PUSH) bytes in front. Returns `None` if the
    /// pool is empty.
    pub fn frame(&mut self) -> Option<Frame> {
        let chunk = self.take()?;
        // SAFETY: the chunk was in the pool, so it is nowhere else.
        unsafe { self.shared.hold(chunk, HEADROOM, 0) }
    }

    /// Puts a frame's chunks back into the pool. A frame of another UMEM is returned to the caller.
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

    /// Whether a frame belongs to this UMEM. Only then can a socket on it send the frame.
    #[inline]
    pub fn owns(&self, frame: &Frame) -> bool {
        frame.umem == self.shared.id
    }

    /// Copies the packet of a frame into as few chunks of this UMEM as hold it. Packets go this way between ports that
    /// cannot share a UMEM. The copy is made to be sent: there may be no room in front of it. Returns `None` if the
    /// pool has too few chunks.
    pub fn copy_of(&mut self, from: &Umem, frame: &Frame) -> Option<Frame> {
        if !from.owns(frame) {
            return None;
        }
        self.gather(frame.packet_len(), from.segments(frame))
    }

    /// Makes a frame of a packet that is to be sent, in as few chunks as hold it. Returns `None` if the pool has too
    /// few chunks or a frame cannot have that many.
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
            // A head that had headers put in front of it may be longer than the room behind the headroom.
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

    /// Iterates over the packet's bytes, chunk by chunk, head first. It yields nothing if the frame belongs to another
    /// UMEM.
    pub fn segments<'a>(&'a self, frame: &'a Frame) -> impl Iterator<Item = &'a [u8]> {
        let ours = self.owns(frame);
        let head = ours.then(|| frame.head());
        head.into_iter().chain(self.further_segments(frame.further()))
    }

    /// Iterates over the packet's bytes behind the first chunk, chunk by chunk. It yields nothing if the frame belongs
    /// to another UMEM.
    pub fn further_segments<'a>(&'a self, further: FurtherChunks<'a>) -> impl Iterator<Item = &'a [u8]> {
        let pieces = if further.umem == self.shared.id { further.pieces } else { &[] };
        pieces.iter().filter_map(|piece| {
            let first = self.shared.first(piece.chunk)?;
            let start = usize::from(piece.start).min(CHUNK);
            let len = usize::from(piece.len).min(CHUNK - start);
            // SAFETY: the piece begins within the chunk.
            let first = unsafe { first.add(start) };
            // SAFETY: the piece belongs to a frame that `further` borrows, so nobody writes to it; the chunk has `len`
            // bytes from there.
            Some(unsafe { std::slice::from_raw_parts(first.as_ptr(), len) })
        })
    }

    /// Counts where the chunks are now. It looks at each of them, so it is for status and tests and not for the packet
    /// path.
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

    /// Takes back the chunks of closed sockets. [`Socket::close`](crate::Socket::close) calls this; it is needed only
    /// after a socket was merely dropped.
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

    /// Ends the quarantine of the chunks of those sockets for which `let_go` returns true. A zero-copy driver releases
    /// a closed socket's memory from a work item some time after close(2). It has done so if the socket's queue could
    /// be bound again, or if the device is gone.
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

    /// Takes a chunk out of the pool. The caller must set its owner at once.
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
            // A Frame points into the region without counting references (that would be an atomic operation per
            // packet). So the region of a UMEM that is dropped before its frames stays mapped until the process ends.
            std::mem::forget(Arc::clone(&self.shared));
        }
    }
}

/// Appends bytes to a frame's head, as many as the chunk holds. Returns the rest.
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

/// Appends a frame of one chunk to a packet, or makes it the beginning of one.
fn join(packet: &mut Option<Frame>, part: Frame) {
    match packet {
        None => *packet = Some(part),
        Some(packet) => {
            packet.append(part.head_piece());
        }
    }
}

/// Returns the first byte of the region to which these chunks belong. Returns `None` unless they are [`CHUNK`] bytes
/// apart, each with a packet's place at [`HEADROOM`].
fn memory_of(region: &xsk_rs::Umem, descs: &[FrameDesc]) -> Option<NonNull<u8>> {
    let in_a_row = (0..).zip(descs).all(|(number, desc): (usize, _)| desc.addr() == number * CHUNK + HEADROOM);
    let mut first = *descs.first().filter(|_| in_a_row)?;
    // SAFETY: the descriptor was made for this region just now, and neither the kernel nor any other code knows of it
    // yet.
    let mut data = unsafe { region.data_mut(&mut first) };
    let packet = data.contents_mut().as_mut_ptr();
    // The provenance of the whole region was exposed when it was registered.
    NonNull::new(std::ptr::with_exposed_provenance_mut(packet.expose_provenance() - HEADROOM))
}

/// Converts a ring size to the type of xsk-rs.
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
        Some(libc::ENOBUFS | libc::ENOMEM) if crate::probe::in_user_namespace() => crate::error::USER_NAMESPACE,
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
