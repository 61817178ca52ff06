//! One packet, owned.
//!
//! A packet lies in 1..=[`MAX_CHUNKS`] chunks of the UMEM. Only the first is
//! ever looked at or written; the others travel along untouched.
//!
//! ```text
//!  chunk      0        256                                             4096
//!             |headroom| packet: head_len | room to slide into (>= 256) |
//!             |  XDP's |<------------- room_mut(): 3840 --------------->|
//!
//!  further    |headroom| packet goes on   |
//!  chunks     |        |<- part of tail ->|
//! ```
//!
//! A header is pushed by sliding the head up and pulled by sliding it down,
//! with [`slice::copy_within`] on [`Frame::room_mut`]: the descriptors of the
//! rings cannot name another start, and the copy (at most 3.5 KiB, mostly far
//! less) is within the noise of copy mode's own copy.
//!
//! **Every received frame has at least [`MAX_PUSH`] bytes of room behind its
//! head.** The kernel fills a chunk to the brim before it starts the next, so
//! the first chunk of a jumbo packet has none left. Such a packet is split: the
//! first [`SPLIT_AT`] bytes stay where they are as the head, and the rest of
//! the first chunk is copied into a fresh chunk that becomes the first part of
//! the tail:
//!
//! ```text
//!  received   [ 3840          ][ 3840          ][ 1834 ]
//!  handed up  [ 2048 | 1792 free ][ 1792 ][ 3840 ][ 1834 ]
//!               head               tail
//! ```
//!
//! So parsing, quoting 1280 bytes in an ICMP error and pushing up to 256 bytes
//! are the same code for every packet size.

use std::ptr::NonNull;

/// Bytes in one chunk of the UMEM: the largest the kernel takes without
/// hugepage tricks.
pub const CHUNK: usize = 4096;
/// `XDP_PACKET_HEADROOM`: the kernel writes packets at this offset of a chunk.
pub(crate) const HEADROOM: usize = 256;
/// Bytes of a chunk from a packet's first byte to the chunk's end.
pub const ROOM: usize = CHUNK - HEADROOM;
/// Room that every received frame has behind its head, in bytes.
pub const MAX_PUSH: usize = 256;
/// Bytes that stay in the head of a split packet. Enough for every header
/// chain we parse and for the 1280 bytes an ICMP error quotes.
pub const SPLIT_AT: usize = 2048;
/// Chunks behind the first that a frame can have: 9500-byte packets take 3
/// after the split; 5 leaves a margin for MTUs up to 16 KiB.
pub(crate) const MAX_TAIL: usize = 5;
/// Chunks of the longest packet.
pub const MAX_CHUNKS: usize = MAX_TAIL + 1;

/// A chunk behind the first, and how many packet bytes are in it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Piece {
    pub(crate) chunk: u32,
    pub(crate) len: u32,
}

impl Piece {
    /// Where it is in the UMEM, as the rings want it.
    #[inline]
    pub(crate) fn addr(self) -> u64 {
        u64::from(self.chunk) * CHUNK as u64 + HEADROOM as u64
    }
}

/// One packet and the chunks it lies in.
///
/// Move-only: whoever holds a frame owns its bytes. It ends in
/// [`Socket::tx`](crate::Socket::tx) or [`Umem::recycle`](crate::Umem::recycle);
/// one that is merely dropped keeps its chunks out of the pool for good, which
/// shows as `held` in [`Umem::accounting`](crate::Umem::accounting).
#[must_use = "send it or recycle it, or its chunks are lost to the pool"]
#[derive(Debug)]
pub struct Frame {
    pub(crate) first: NonNull<u8>,
    pub(crate) umem: u32,
    pub(crate) chunk: u32,
    head_len: u32,
    tail_count: u8,
    tail_dropped: bool,
    tail: [Piece; MAX_TAIL],
}

// SAFETY: `first` points into a UMEM region that stays mapped as long as any
// frame exists (see `Umem::drop`), and only the frame's owner reaches the
// bytes behind it, so the owner may be on any thread.
unsafe impl Send for Frame {}

impl Frame {
    /// # Safety
    ///
    /// `first` is valid for reads and writes of [`ROOM`] bytes as long as any
    /// frame of the region exists, and nothing else (no other frame, not the
    /// kernel) touches those bytes while this frame exists.
    pub(crate) unsafe fn new(first: NonNull<u8>, umem: u32, chunk: u32, head_len: usize) -> Self {
        let mut frame = Self {
            first,
            umem,
            chunk,
            head_len: 0,
            tail_count: 0,
            tail_dropped: false,
            tail: [Piece::default(); MAX_TAIL],
        };
        frame.set_head_len(head_len);
        frame
    }

    /// The whole writable room of the first chunk. The packet's first
    /// [`head_len`](Self::head_len) bytes are at its start, what follows is
    /// room to slide into (its content is undefined: remains of old packets).
    #[inline]
    pub fn room_mut(&mut self) -> &mut [u8] {
        // SAFETY: `new` promises ROOM bytes that are ours alone; the borrow of
        // self keeps every other access through this frame away.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), ROOM) }
    }

    /// The packet's bytes in the first chunk.
    #[inline]
    pub fn head(&self) -> &[u8] {
        // SAFETY: `new` promises ROOM bytes that are ours alone, head_len is
        // at most ROOM, and the borrow of self keeps writers away.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.head_len as usize) }
    }

    /// Bytes of the packet in the first chunk.
    #[inline]
    pub fn head_len(&self) -> usize {
        self.head_len as usize
    }

    /// Says how many bytes of the room are packet now, after a push, a pull or
    /// a rewrite. More than [`ROOM`] is taken as [`ROOM`].
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // ROOM is 3840
    pub fn set_head_len(&mut self, len: usize) {
        self.head_len = len.min(ROOM) as u32;
    }

    /// Bytes of the packet behind the first chunk.
    #[inline]
    pub fn tail_len(&self) -> usize {
        self.tail().iter().map(|piece| piece.len as usize).sum()
    }

    /// Bytes of the whole packet.
    #[inline]
    pub fn packet_len(&self) -> usize {
        self.head_len() + self.tail_len()
    }

    /// Cuts the packet off behind the head, as an ICMP error that quotes it
    /// needs. The chunks go back to the pool with the frame.
    #[inline]
    pub fn drop_tail(&mut self) {
        self.tail_dropped = true;
    }

    /// The part of the packet in the first chunk.
    #[inline]
    pub(crate) fn head_piece(&self) -> Piece {
        Piece { chunk: self.chunk, len: self.head_len }
    }

    /// Chunks that are sent.
    #[inline]
    pub(crate) fn chunks(&self) -> u32 {
        if self.tail_dropped { 1 } else { 1 + u32::from(self.tail_count) }
    }

    /// What is sent behind the head.
    #[inline]
    pub(crate) fn tail(&self) -> &[Piece] {
        if self.tail_dropped { &[] } else { self.attached() }
    }

    /// Every further chunk this frame owns, sent or not.
    #[inline]
    pub(crate) fn attached(&self) -> &[Piece] {
        self.tail.get(..usize::from(self.tail_count)).unwrap_or_default()
    }

    /// The further chunks that go back to the pool when the frame is sent.
    #[inline]
    pub(crate) fn cut_off(&self) -> &[Piece] {
        if self.tail_dropped { self.attached() } else { &[] }
    }

    /// Adds a chunk at the end. False: the frame is full and the chunk is
    /// still the caller's.
    pub(crate) fn append(&mut self, piece: Piece) -> bool {
        match self.tail.get_mut(usize::from(self.tail_count)) {
            Some(slot) => {
                *slot = piece;
                self.tail_count += 1;
                true
            }
            None => false,
        }
    }

    /// Moves what lies beyond [`SPLIT_AT`] of the head into `fresh`, which
    /// becomes the first piece of the tail. The caller has seen that the tail
    /// has a free slot.
    pub(crate) fn split_head(&mut self, fresh: &mut Frame) {
        let Some(beyond) = self.head().get(SPLIT_AT..) else {
            return;
        };
        let len = beyond.len();
        if let Some(room) = fresh.room_mut().get_mut(..len) {
            room.copy_from_slice(beyond);
        }
        self.tail.rotate_right(1);
        self.tail[0] = Piece { chunk: fresh.chunk, len: u32::try_from(len).unwrap_or_default() };
        self.tail_count += 1;
        self.set_head_len(SPLIT_AT);
    }

    /// True when the head has to be split before the frame is handed up.
    #[inline]
    pub(crate) fn is_too_full(&self) -> bool {
        self.head_len() > ROOM - MAX_PUSH
    }

    /// True when no further chunk can be appended.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        usize::from(self.tail_count) == MAX_TAIL
    }
}
