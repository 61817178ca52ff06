//! The tx ring of a socket, written by ourselves.
//!
//! xsk-rs queues its own descriptors alone, and those name one address per chunk. A packet that had headers pushed or
//! pulled starts anywhere in its chunk, so its descriptors are written here, into the memory that libxdp has mapped:
//!
//! ```text
//!  | producer | consumer | flags | descriptor 0 | descriptor 1 | ...          (offsets: XDP_MMAP_OFFSETS)
//!    ours       the        wake    addr u64, len u32, options u32
//!               kernel's   me up
//! ```
//!
//! Both positions run on through all of u32; a position modulo the ring's size is a slot. What was written before the
//! producer's position is stored (release) is the kernel's to read (acquire), and the other way round for the slots
//! before the consumer's.
//!
//! Mapping the ring a second time would be simpler, but before Linux 6.4 the kernel says EBUSY to that once the socket
//! is bound. libxdp maps it before, and keeps to itself where: the kernel's list of our mappings has it.

use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use libc::{xdp_desc, xdp_ring_offset};
use xsk_rs::TxQueue;

use crate::sys::mmap_offsets;

/// Descriptors on their way to the kernel.
pub(crate) struct TxRing<Mapping = TxQueue> {
    /// Keeps the ring mapped. Nothing is produced through it.
    _mapping: Mapping,
    producer: Word,
    consumer: Word,
    flags: Word,
    descs: NonNull<xdp_desc>,
    size: u32,
    /// The position of the next descriptor.
    next: u32,
    /// Free slots, less those that the kernel has freed since its position was last read.
    free: u32,
}

/// A number in the ring that the kernel reads or changes, too.
struct Word(NonNull<AtomicU32>);

impl Deref for Word {
    type Target = AtomicU32;

    #[inline]
    fn deref(&self) -> &AtomicU32 {
        // SAFETY: words are in a `TxRing` alone, which keeps what they point to mapped; the kernel changes them as a whole.
        unsafe { self.0.as_ref() }
    }
}

// SAFETY: the pointers are into memory that `_mapping` keeps mapped for the whole process; of all threads only the owner
// of the ring reaches it through them.
unsafe impl<Mapping: Send> Send for TxRing<Mapping> {}

impl TxRing {
    /// The ring of this queue's socket, made for `size` descriptors.
    pub(crate) fn of(queue: TxQueue, size: u32) -> io::Result<Self> {
        let fd = queue.fd().as_raw_fd();
        let offsets = mmap_offsets(fd)?.tx;
        let mapped = mapped_at(fd)?;
        if mapped.len() < bytes_of(&offsets, size) {
            return Err(io::Error::other("it is mapped in part"));
        }
        let base = NonNull::new(std::ptr::with_exposed_provenance_mut(mapped.start));
        let base = base.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        // SAFETY: libxdp has mapped so many bytes there for this socket, readable and writable, and unmaps them with the
        // socket, which `queue` keeps. Nobody produces through `queue`: it is out of reach from here on.
        Ok(unsafe { Self::at(base, &offsets, size, queue) })
    }
}

impl<Mapping> TxRing<Mapping> {
    /// # Safety
    ///
    /// From `base` there are [`bytes_of`] this ring, laid out as `offsets` says, for as long as `mapping` lives. All that
    /// produces in them is what is returned. `size` is a power of two.
    unsafe fn at(base: NonNull<u8>, offsets: &xdp_ring_offset, size: u32, mapping: Mapping) -> Self {
        // SAFETY: the offsets are of fields within the ring, as the caller promises.
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

    /// Whether there are so many free slots.
    #[inline]
    pub(crate) fn has_room(&mut self, count: u32) -> bool {
        self.free >= count || self.free_now() >= count
    }

    /// Free slots, as the kernel has it at this moment.
    pub(crate) fn free_now(&mut self) -> u32 {
        let taken = self.next.wrapping_sub(self.consumer.load(Acquire));
        self.free = self.size.saturating_sub(taken);
        self.free
    }

    /// Writes the next descriptor: these bytes of the UMEM. The kernel does not see it before [`submit`](Self::submit).
    ///
    /// # Safety
    ///
    /// [`has_room`](Self::has_room) has said so. The chunk around `addr` is the caller's alone, of the UMEM that the
    /// socket was bound on, and until it is in the completion ring nobody writes to it or gives it to the kernel again.
    #[inline]
    pub(crate) unsafe fn write(&mut self, addr: u64, len: u32, options: u32) {
        let slot = self.next & (self.size - 1);
        // SAFETY: a slot is below `size`, and so many descriptors are mapped.
        let desc = unsafe { self.descs.add(slot as usize) };
        // SAFETY: it is mapped, and free: the kernel does not read it now.
        unsafe { desc.write(xdp_desc { addr, len, options }) };
        self.next = self.next.wrapping_add(1);
        self.free -= 1;
    }

    /// Lets the kernel have what was written.
    #[inline]
    pub(crate) fn submit(&self) {
        self.producer.store(self.next, Release);
    }

    /// The kernel sends when it is asked to, and not by itself.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.flags.load(Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// How much memory such a ring takes.
fn bytes_of(offsets: &xdp_ring_offset, size: u32) -> usize {
    usize::try_from(offsets.desc).unwrap_or(usize::MAX).saturating_add(size as usize * size_of::<xdp_desc>())
}

/// Where in our memory the tx ring of this socket is.
fn mapped_at(fd: RawFd) -> io::Result<Range<usize>> {
    let socket = std::fs::read_link(format!("/proc/self/fd/{fd}"))?;
    // It names files, too, whatever their names are.
    let maps = std::fs::read("/proc/self/maps")?;
    mapping_of(&String::from_utf8_lossy(&maps), &socket.to_string_lossy())
        .ok_or_else(|| io::Error::other("/proc/self/maps does not say where it is mapped"))
}

/// The line of a tx ring (proc_pid_maps(5)): what is mapped of a socket is told by the offset.
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

    /// A ring in memory of the test, at a position where the next but one is 0.
    fn ring() -> TxRing<Vec<u64>> {
        let mut memory = vec![0_u64; bytes_of(&OFFSETS, SIZE) / 8];
        let base = NonNull::from(memory.as_mut_slice()).cast();
        // SAFETY: so many bytes are there, aligned; they stay where they are when the vector moves.
        let ring = unsafe { TxRing::at(base, &OFFSETS, SIZE, memory) };
        ring.producer.store(u32::MAX, Relaxed);
        ring.consumer.store(u32::MAX, Relaxed);
        TxRing { next: u32::MAX, ..ring }
    }

    fn addr(ring: &TxRing<Vec<u64>>, slot: usize) -> (u64, u32, u32) {
        assert!(slot < SIZE as usize);
        // SAFETY: the slot is within the test's memory.
        let desc = unsafe { ring.descs.add(slot) };
        // SAFETY: it is zeroes or what was written.
        let desc = unsafe { desc.read() };
        (desc.addr, desc.len, desc.options)
    }

    #[test]
    fn a_ring_fills_empties_and_runs_over_the_end_of_its_positions() {
        let mut ring = ring();
        assert!(ring.has_room(4) && !ring.has_room(5));
        for at in 0..4_u32 {
            // SAFETY: there is room, and no kernel.
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
