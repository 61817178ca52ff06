//! The owner of one received or unsent packet.
//!
//! A packet lies in 1..=[`MAX_CHUNKS`] chunks of the UMEM. Only the first chunk is ever read or written; the others are
//! carried along untouched.
//!
//! ```text
//!  first      0                  start         start + head_len       4096
//!  chunk      | headers go here  | head: the packet begins   |             |
//!             |<----------------- chunk_mut() --------------------------->|
//!
//!  further    |                  | tail: it goes on          |             |
//!  chunks
//! ```
//!
//! To push a header, write it in front of the head; to pull a header, leave it behind. The payload stays where it was
//! received. [`Frame::place`] says where the packet begins now, and it is sent from there.
//!
//! **Every received frame has at least [`MAX_PUSH`] bytes in front of its head**: the kernel leaves that much for XDP
//! programs before it writes a packet. Behind the head there may be no room. The kernel fills a chunk completely before
//! it starts the next, so 9000 bytes arrive as a head of 3840, and 3840 and 1320 bytes behind it.

use std::ptr::NonNull;

/// Bytes in one chunk of the UMEM: the largest size that the kernel takes without huge pages.
pub const CHUNK: usize = 4096;
/// `XDP_PACKET_HEADROOM`: the kernel writes packets at this offset of a chunk.
pub(crate) const HEADROOM: usize = 256;
/// Bytes of a chunk from the headroom's end, where the kernel writes a packet, to the chunk's end.
pub const ROOM: usize = CHUNK - HEADROOM;
/// Room that every received frame has in front of its head, in bytes.
pub const MAX_PUSH: usize = HEADROOM;
/// Number of chunks behind the first that a frame can have. Packets of 9500 bytes take 2; 4 leave a margin for MTUs up
/// to 16 KiB.
pub(crate) const MAX_TAIL: usize = 4;
/// Number of chunks of the longest packet.
pub const MAX_CHUNKS: usize = MAX_TAIL + 1;

/// The part of a packet that lies in one chunk.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Piece {
    pub(crate) chunk: u32,
    pub(crate) start: u16,
    pub(crate) len: u16,
}

impl Piece {
    /// Returns the offset of the piece in the UMEM, as the rings expect it.
    #[inline]
    pub(crate) fn addr(self) -> u64 {
        u64::from(self.chunk) * CHUNK as u64 + u64::from(self.start)
    }
}

/// One packet and the chunks in which it lies.
///
/// It is move-only: the holder of a frame owns its bytes. A frame ends in [`Socket::tx`](crate::Socket::tx) or
/// [`Umem::recycle`](crate::Umem::recycle). If it is merely dropped, its chunks never return to the pool, which shows
/// as `held` in [`Umem::accounting`](crate::Umem::accounting).
#[must_use = "send it or recycle it, or its chunks are lost to the pool"]
#[derive(Debug)]
pub struct Frame {
    /// Points to the first byte of the first chunk.
    memory: NonNull<u8>,
    pub(crate) umem: u32,
    /// Always satisfies `start + len <= CHUNK`.
    head: Piece,
    tail_count: u8,
    tail_dropped: bool,
    tail: [Piece; MAX_TAIL],
}

/// The chunks of a packet behind the first one. It borrows the frame, so that nobody writes to them meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct FurtherChunks<'f> {
    pub(crate) umem: u32,
    pub(crate) pieces: &'f [Piece],
}

// SAFETY: `memory` points into a UMEM region that stays mapped as long as any frame exists (see `Umem::drop`). Only the
// frame's owner accesses the bytes behind it, so the owner may be on any thread.
unsafe impl Send for Frame {}

impl Frame {
    /// Creates an empty frame, to be [`place`](Self::place)d.
    ///
    /// # Safety
    ///
    /// `memory` is valid for reads and writes of [`CHUNK`] bytes as long as any
    /// frame of the region exists, and nothing else (no other frame, not the
    /// kernel) touches those bytes while this frame exists.
    pub(crate) unsafe fn new(memory: NonNull<u8>, umem: u32, chunk: u32) -> Self {
        Self {
            memory,
            umem,
            head: Piece { chunk, start: 0, len: 0 },
            tail_count: 0,
            tail_dropped: false,
            tail: [Piece::default(); MAX_TAIL],
        }
    }

    /// Returns the whole first chunk. The packet's bytes begin at [`start`](Self::start). The bytes in front of the
    /// packet and behind it are undefined (remains of old packets).
    #[inline]
    pub fn chunk_mut(&mut self) -> &mut [u8] {
        // SAFETY: `new` promises CHUNK bytes that are ours alone, and the borrow of self prevents every other access
        // through this frame.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), CHUNK) }
    }

    /// Returns the whole first chunk together with the further ones, which
    /// [`Umem::further_segments`](crate::Umem::further_segments) reads.
    #[inline]
    pub fn split(&mut self) -> (&mut [u8], FurtherChunks<'_>) {
        let memory = self.memory;
        // SAFETY: `new` promises CHUNK bytes that are ours alone, the borrow of self prevents every other access
        // through this frame, and the further chunks are different ones.
        let chunk = unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), CHUNK) };
        (chunk, self.further())
    }

    /// Returns the packet's bytes in the first chunk.
    #[inline]
    pub fn head(&self) -> &[u8] {
        // SAFETY: the packet begins within the chunk.
        let first = unsafe { self.memory.add(self.start()) };
        // SAFETY: `new` promises CHUNK bytes that are ours alone. `place` makes sure that `head_len` of them follow
        // from the start on. The borrow of self prevents writes.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), self.head_len()) }
    }

    /// Returns the packet's bytes in the first chunk for writing.
    #[inline]
    pub fn head_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.start(), self.head_len());
        self.chunk_mut().get_mut(start..start + len).unwrap_or_default()
    }

    /// Returns the offset in the first chunk at which the packet begins.
    #[inline]
    pub fn start(&self) -> usize {
        self.head.start.into()
    }

    /// Number of bytes of the packet in the first chunk.
    #[inline]
    pub fn head_len(&self) -> usize {
        self.head.len.into()
    }

    /// Sets where the packet's bytes of the first chunk are now, after a push, a pull or a rewrite. Both values are
    /// limited to the chunk.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // CHUNK is 4096
    pub fn place(&mut self, start: usize, head_len: usize) {
        let start = start.min(CHUNK);
        self.head.start = start as u16;
        self.head.len = head_len.min(CHUNK - start) as u16;
    }

    /// Moves the head so that [`MAX_PUSH`] bytes are in front of it, if a driver has left less. Returns false if the
    /// head is too long for that.
    #[inline]
    pub(crate) fn make_room(&mut self) -> bool {
        let (start, len) = (self.start(), self.head_len());
        if start >= MAX_PUSH {
            return true;
        }
        if len > ROOM {
            return false;
        }
        self.chunk_mut().copy_within(start..start + len, HEADROOM);
        self.place(HEADROOM, len);
        true
    }

    /// Number of bytes of the packet behind the first chunk.
    #[inline]
    pub fn tail_len(&self) -> usize {
        self.tail().iter().map(|piece| usize::from(piece.len)).sum()
    }

    /// Length of the whole packet in bytes.
    #[inline]
    pub fn packet_len(&self) -> usize {
        self.head_len() + self.tail_len()
    }

    /// Cuts the packet off behind the head, as an ICMP error that quotes it needs. The further chunks go back to the
    /// pool together with the frame.
    #[inline]
    pub fn drop_tail(&mut self) {
        self.tail_dropped = true;
    }

    /// Returns the part of the packet in the first chunk.
    #[inline]
    pub(crate) fn head_piece(&self) -> Piece {
        self.head
    }

    /// Number of chunks that are sent.
    #[inline]
    pub(crate) fn chunks(&self) -> u32 {
        if self.tail_dropped { 1 } else { 1 + u32::from(self.tail_count) }
    }

    /// Returns the chunks that are sent behind the head, for reading.
    #[inline]
    pub(crate) fn further(&self) -> FurtherChunks<'_> {
        FurtherChunks { umem: self.umem, pieces: self.tail() }
    }

    /// Returns the pieces that are sent behind the head.
    #[inline]
    pub(crate) fn tail(&self) -> &[Piece] {
        if self.tail_dropped { &[] } else { self.attached() }
    }

    /// Returns every further chunk that this frame owns, sent or not.
    #[inline]
    pub(crate) fn attached(&self) -> &[Piece] {
        self.tail.get(..usize::from(self.tail_count)).unwrap_or_default()
    }

    /// Returns the further chunks that go back to the pool when the frame is sent.
    #[inline]
    pub(crate) fn cut_off(&self) -> &[Piece] {
        if self.tail_dropped { self.attached() } else { &[] }
    }

    /// Adds a chunk at the end. Returns false if the frame is full; the chunk is still the caller's then.
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
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed test may panic
mod tests {
    use super::*;

    fn frame(memory: &mut [u8; CHUNK], start: usize, packet: &[u8]) -> Frame {
        // SAFETY: the memory has CHUNK bytes, and the test does not access them while the frame exists.
        let mut frame = unsafe { Frame::new(NonNull::from(memory).cast(), 1, 7) };
        frame.place(start, packet.len());
        frame.head_mut().copy_from_slice(packet);
        frame
    }

    #[test]
    fn a_packet_is_placed_within_its_chunk() {
        let mut memory = [0; CHUNK];
        let mut frame = frame(&mut memory, 300, b"packet");
        assert_eq!((frame.start(), frame.head(), frame.head_piece().addr()), (300, &b"packet"[..], 7 * 4096 + 300));
        frame.place(302, 4);
        assert_eq!(frame.head(), b"cket");
        frame.place(4000, 100);
        assert_eq!((frame.start(), frame.head_len()), (4000, 96));
        frame.place(5000, 1);
        assert_eq!((frame.start(), frame.head_len()), (4096, 0));
        assert!(frame.head().is_empty() && frame.head_mut().is_empty());
    }

    #[test]
    fn room_in_front_is_made_where_a_driver_left_less() {
        let mut memory = [0; CHUNK];
        let packet: Vec<u8> = (0..ROOM).map(|at| u8::try_from(at % 251).unwrap()).collect();
        for start in [0, 2, 255] {
            let mut frame = frame(&mut memory, start, &packet);
            assert!(frame.make_room());
            assert_eq!((frame.start(), frame.head()), (HEADROOM, &packet[..]));
        }
        let mut there = frame(&mut memory, 258, b"packet");
        assert!(there.make_room());
        assert_eq!((there.start(), there.head()), (258, &b"packet"[..]));
        there.place(255, ROOM + 1);
        assert!(!there.make_room());
    }
}
