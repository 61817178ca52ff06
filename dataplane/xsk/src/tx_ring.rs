//! Writes the tx ring of a socket without xsk-rs.
//!
//! xsk-rs queues only its own descriptors, and those name one fixed address per chunk. A packet that had headers pushed
//! or pulled may start anywhere in its chunk, so its descriptors are written here, into the memory that libxdp has
//! mapped:
//!
//! ```text
//!  | producer | consumer | flags | descriptor 0 | descriptor 1 | ...          (offsets: XDP_MMAP_OFFSETS)
//!    ours       the        wake    addr u64, len u32, options u32
//!               kernel's   me up
//! ```
//!
//! Both positions count through all of u32 and wrap around; a position modulo the ring's size is a slot. The kernel may
//! read (acquire) the slots that were written before the producer's position was stored (release). In the same way we
//! may reuse the slots before the consumer's position.
//!
//! Mapping the ring a second time would be simpler, but before Linux 6.4 the kernel answers EBUSY once the socket is
//! bound. libxdp maps it before that and does not tell where, so the address is taken from the kernel's list of our
//! mappings.

use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use libc::{xdp_desc, xdp_ring_offset};
use xsk_rs::TxQueue;

use crate::sys::mmap_offsets;

/// The ring of descriptors on their way to the kernel.
pub(crate) struct TxRing<Mapping = TxQueue> {
    /// Keeps the ring mapped. It is not used to produce descriptors.
    _mapping: Mapping,
    producer: Word,
    consumer: Word,
    flags: Word,
    descs: NonNull<xdp_desc>,
    size: u32,
    /// Position of the next descriptor.
    next: u32,
    /// Number of free slots, without those that the kernel has freed since its position was last read.
    free: u32,
}

/// A number in the ring that the kernel also reads or changes.
struct Word(NonNull<AtomicU32>);

impl Deref for Word {
    type Target = AtomicU32;

    #[inline]
    fn deref(&self) -> &AtomicU32 {
        // SAFETY: a `Word` exists only in a `TxRing`, which keeps the memory mapped; the kernel changes it atomically.
        unsafe { self.0.as_ref() }
    }
}

// SAFETY: the pointers are into memory that `_mapping` keeps mapped for the whole process. Only the thread that owns
// the ring accesses it through them.
unsafe impl<Mapping: Send> Send for TxRing<Mapping> {}

impl TxRing {
    /// Returns the ring of this queue's socket, made for `size` descriptors.
    pub(crate) fn of(queue: TxQueue, size: u32) -> io::Result<Self> {
        let fd = queue.fd().as_raw_fd();
        let offsets = mmap_offsets(fd)?.tx;
        let mapped = mapped_at(fd)?;
        if mapped.len() < bytes_of(&offsets, size) {
            return Err(io::Error::other("it is mapped in part"));
        }
        let base = NonNull::new(std::ptr::with_exposed_provenance_mut(mapped.start));
        let base = base.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        // SAFETY: libxdp has mapped that many bytes there for this socket, readable and writable, and unmaps them with
        // the socket, which `queue` keeps open. Nobody produces through `queue`, because it cannot be reached from here
        // on.
        Ok(unsafe { Self::at(base, &offsets, size, queue) })
    }
}

impl<Mapping> TxRing<Mapping> {
    /// Creates a ring in memory that is mapped already.
    ///
    /// # Safety
    ///
    /// From `base` on there are [`bytes_of`] this ring, laid out as `offsets` says, for as long as `mapping` lives.
    /// Only the returned ring produces in them. `size` is a power of two.
    unsafe fn at(base: NonNull<u8>, offsets: &xdp_ring_offset, size: u32, mapping: Mapping) -> Self {
        // SAFETY: the caller promises that the offsets are those of fields within the ring.
        let field = |offset: u64| unsafe { base.add(usize::try_from(offset).unwrap_or_default()) };
        let mut ring = Self {
            _mapping: mapping,
            producer: Word(field(offsets.producer).cast()),
            consumer: Word(field(offsets.consumer).cast()),
            flags: Word(field(offsets.flags).cast()),
            descs: field(offsets.desc).cast(),
            size,
            next: 0,
            free: 0,
        };
        ring.next = ring.producer.load(Relaxed);
        ring
    }

    /// Whether there are `count` free slots.
    #[inline]
    pub(crate) fn has_room(&mut self, count: u32) -> bool {
        self.free >= count || self.free_now() >= count
    }

    /// Returns the number of free slots according to the kernel's present position.
    pub(crate) fn free_now(&mut self) -> u32 {
        let taken = self.next.wrapping_sub(self.consumer.load(Acquire));
        self.free = self.size.saturating_sub(taken);
        self.free
    }

    /// Writes the next descriptor, for these bytes of the UMEM. The kernel does not see it before
    /// [`submit`](Self::submit).
    ///
    /// # Safety
    ///
    /// [`has_room`](Self::has_room) has returned true. The chunk around `addr` is the caller's alone and belongs to the
    /// UMEM that the socket was bound on. Until it is in the completion ring, nobody writes to it or gives it to the
    /// kernel again.
    #[inline]
    pub(crate) unsafe fn write(&mut self, addr: u64, len: u32, options: u32) {
        let slot = self.next & (self.size - 1);
        // SAFETY: a slot is below `size`, and that many descriptors are mapped.
        let desc = unsafe { self.descs.add(slot as usize) };
        // SAFETY: the slot is mapped, and free: the kernel does not read it now.
        unsafe { desc.write(xdp_desc { addr, len, options }) };
        self.next = self.next.wrapping_add(1);
        self.free -= 1;
    }

    /// Makes the written descriptors visible to the kernel.
    #[inline]
    pub(crate) fn submit(&self) {
        self.producer.store(self.next, Release);
    }

    /// Whether the kernel must be woken to send. It does not send by itself then.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.flags.load(Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// Returns how many bytes of memory such a ring takes.
fn bytes_of(offsets: &xdp_ring_offset, size: u32) -> usize {
    usize::try_from(offsets.desc).unwrap_or(usize::MAX).saturating_add(size as usize * size_of::<xdp_desc>())
}

/// Returns the address range in which the tx ring of this socket is mapped.
fn mapped_at(fd: RawFd) -> io::Result<Range<usize>> {
    let socket = std::fs::read_link(format!("/proc/self/fd/{fd}"))?;
    // The file also lists mapped files, whose names can be any bytes.
    let maps = std::fs::read("/proc/self/maps")?;
    mapping_of(&String::from_utf8_lossy(&maps), &socket.to_string_lossy())
        .ok_or_else(|| io::Error::other("/proc/self/maps does not say where it is mapped"))
}

/// Finds the line of a tx ring (proc_pid_maps(5)). The offset tells which ring of a socket is mapped.
///
/// ```text
/// 7f2c1a5f6000-7f2c1a5ff000 rw-s 80000000 00:08 41337          socket:[41337]
/// ```
fn mapping_of(maps: &str, socket: &str) -> Option<Range<usize>> {
    maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let offset = i64::from_str_radix(fields.nth(1)?, 16).ok()?;
        let is_it = offset == libc::XDP_PGOFF_TX_RING && fields.nth(2)? == socket;
        let address = |hex| usize::from_str_radix(hex, 16).ok();
        is_it.then_some(address(start)?..address(end)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFSETS: xdp_ring_offset = xdp_ring_offset { producer: 0, consumer: 64, desc: 256, flags: 128 };
    const SIZE: u32 = 4;

    /// Returns a ring in the test's own memory, at a position whose next but one is 0.
    fn ring() -> TxRing<Vec<u64>> {
        let mut memory = vec![0_u64; bytes_of(&OFFSETS, SIZE) / 8];
        let base = NonNull::from(memory.as_mut_slice()).cast();
        // SAFETY: that many bytes are there, aligned; they stay where they are when the vector moves.
        let ring = unsafe { TxRing::at(base, &OFFSETS, SIZE, memory) };
        ring.producer.store(u32::MAX, Relaxed);
        ring.consumer.store(u32::MAX, Relaxed);
        TxRing { next: u32::MAX, ..ring }
    }

    fn addr(ring: &TxRing<Vec<u64>>, slot: usize) -> (u64, u32, u32) {
        assert!(slot < SIZE as usize);
        // SAFETY: the slot is within the test's memory.
        let desc = unsafe { ring.descs.add(slot) };
        // SAFETY: the slot holds zeroes or what was written.
        let desc = unsafe { desc.read() };
        (desc.addr, desc.len, desc.options)
    }

    #[test]
    fn a_ring_fills_empties_and_runs_over_the_end_of_its_positions() {
        let mut ring = ring();
        assert!(ring.has_room(4) && !ring.has_room(5));
        for at in 0..4_u32 {
            // SAFETY: the ring has room, and no kernel reads it.
            unsafe { ring.write(u64::from(at) << 12 | 7, 60 + at, at % 2) };
        }
        assert_eq!(ring.producer.load(Relaxed), u32::MAX, "not yet");
        ring.submit();
        assert_eq!(ring.producer.load(Relaxed), 3);
        assert_eq!(addr(&ring, 3), (7, 60, 0));
        assert_eq!([0, 1, 2].map(|slot| addr(&ring, slot)), [(0x1007, 61, 1), (0x2007, 62, 0), (0x3007, 63, 1)]);
        assert!(!ring.has_room(1));
        ring.consumer.store(1, Relaxed); // the kernel has read two
        assert!(ring.has_room(2) && !ring.has_room(3));
        assert!(!ring.needs_wakeup());
        ring.flags.store(libc::XDP_RING_NEED_WAKEUP, Relaxed);
        assert!(ring.needs_wakeup());
    }

    #[test]
    fn the_ring_is_found_among_all_mappings() {
        let maps = "\
            55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0                          [heap]\n\
            7f2c1a5e0000-7f2c1a5e9000 rw-s 00000000 00:08 41337                      socket:[41337]\n\
            7f2c1a5ea000-7f2c1a5f3000 rw-s 80000000 00:08 41336                      socket:[41336]\n\
            7f2c1a5f6000-7f2c1a5ff000 rw-s 80000000 00:08 41337                      socket:[41337]\n\
            7f2c1a600000-7f2c1a605000 rw-s 100000000 00:08 41337                     socket:[41337]\n\
            7f2c1a700000-7f2c1a702000 rw-p 80000000 00:00 0\n";
        assert_eq!(mapping_of(maps, "socket:[41337]"), Some(0x7f2c_1a5f_6000..0x7f2c_1a5f_f000));
        assert_eq!(mapping_of(maps, "socket:[4133]"), None);
        assert_eq!(mapping_of("", "socket:[41337]"), None);
    }
}
