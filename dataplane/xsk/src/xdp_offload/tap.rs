//! Copies of the frames that the program forwards, for captures.
//!
//! The program writes them into a ring while ports are [captured](super::ProgramWiring::captured) and a [`Tap`] is open. Without one it
//! reads nothing more than the flags of rows that it has anyway.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aya::Ebpf;
use aya::maps::{Map, MapData, MapError, PerCpuArray, RingBuf};
use srv6d_fib::PORTS;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{ALL_PORTS, XdpOffload};
use crate::XskError;

/// Size of the ring in bytes, a power of two: some thousand packets.
const RING: u32 = 4 << 20;

/// Mirrors `struct tap_head` of `bpf/offload_tap.h`.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    time: u64,
    length: u32,
    copied: u32,
    device: u32,
    is_sent: u32,
}

/// A copy of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tapped<'t> {
    /// When the program had it, since 1970-01-01 UTC.
    pub time: Duration,
    /// Number of the device that it came in or leaves through.
    pub device: u16,
    /// Whether it leaves; otherwise it came in.
    pub sent: bool,
    /// Length of the frame in bytes.
    pub length: usize,
    /// The first bytes of it, 3840 at most.
    pub bytes: &'t [u8],
}

/// The map that holds the ring while there is one, and the map of what found no room.
pub(super) struct Taps {
    rings: OwnedFd,
    losses: OwnedFd,
}

impl Taps {
    pub(super) fn take(ebpf: &mut Ebpf) -> Option<Self> {
        let fd = |map: &MapData| map.fd().as_fd().try_clone_to_owned().ok();
        let (Map::ArrayOfMaps(rings), Map::PerCpuArray(losses)) = (ebpf.map("taps")?, ebpf.map("tap_losses")?) else {
            return None;
        };
        Some(Self { rings: fd(rings)?, losses: fd(losses)? })
    }

    fn set(&self, ring: BorrowedFd<'_>) -> io::Result<()> {
        let (key, value) = (0_u32, ring.as_raw_fd());
        // SAFETY: the two pointers are to live integers of the sizes that the map was made with, and are only read.
        let code = unsafe {
            libxdp_sys::bpf_map_update_elem(
                self.rings.as_raw_fd(),
                (&raw const key).cast(),
                (&raw const value).cast(),
                0,
            )
        };
        if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) }
    }

    fn clear(&self) {
        let key = 0_u32;
        // SAFETY: the pointer is to a live integer of the size that the map was made with, and is only read. There may be no
        // ring, which is no error.
        unsafe { libxdp_sys::bpf_map_delete_elem(self.rings.as_raw_fd(), (&raw const key).cast()) };
    }
}

/// The reader's side of the ring.
pub struct Tap {
    ring: RingBuf<MapData>,
    losses: PerCpuArray<MapData, u64>,
    /// The time of day at which the clock of records began.
    epoch: Duration,
    /// Losses that have been reported.
    told: Vec<u64>,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tap")
    }
}

impl XdpOffload {
    /// Opens a ring for copies. A former one gets no more of them.
    ///
    /// # Errors
    /// The kernel refuses: there is no memory.
    pub fn open_tap(&mut self) -> Result<Tap, XskError> {
        let opened = make_ring().map_err(|why| chain(&why)).and_then(|ring| {
            self.maps.taps.set(ring.as_fd()).map_err(|why| chain(&why))?;
            let losses = self.maps.taps.losses.try_clone().map_err(|why| chain(&why))?;
            Tap::new(ring, losses).map_err(|why| chain(&why))
        });
        opened.map_err(|why| XskError::Map { ifname: ALL_PORTS.to_owned(), what: "copy frames".to_owned(), why })
    }

    /// Gives the memory of the ring back, once its reader is gone, too.
    pub fn close_tap(&mut self) {
        self.maps.taps.clear();
    }
}

fn chain(why: &(dyn std::error::Error + 'static)) -> String {
    crate::program::chain(why)
}

fn make_ring() -> io::Result<OwnedFd> {
    let kind = libxdp_sys::bpf_map_type_BPF_MAP_TYPE_RINGBUF;
    // SAFETY: null pointers for a name and for options are allowed.
    let fd = unsafe { libxdp_sys::bpf_map_create(kind, std::ptr::null(), 0, 0, RING, std::ptr::null()) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel made the descriptor just now, for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Tap {
    fn new(ring: OwnedFd, losses: OwnedFd) -> Result<Self, MapError> {
        let ring = Map::from_map_data(MapData::from_fd(ring)?)?.try_into()?;
        let losses = Map::from_map_data(MapData::from_fd(losses)?)?.try_into()?;
        let mut tap = Self { ring, losses, epoch: begin_of_clock(), told: vec![0; PORTS as usize] };
        tap.lost(|_, _| {}); // those of former captures
        Ok(tap)
    }

    /// Calls `each` for the copies that are in the ring, at most `most` of them, in the order in which they were made. Returns
    /// their number.
    pub fn drain(&mut self, most: usize, mut each: impl FnMut(Tapped<'_>)) -> usize {
        let mut count = 0;
        while count < most {
            let Some(record) = self.ring.next() else { break };
            count += 1;
            if let Some(tapped) = read(&record, self.epoch) {
                each(tapped);
            }
        }
        count
    }

    /// Calls `each` for devices whose frames found no room in the ring since the last call, with their number.
    pub fn lost(&mut self, mut each: impl FnMut(u16, u64)) {
        for (device, told) in (0..).zip(&mut self.told) {
            let Ok(cells) = self.losses.get(&u32::from(device), 0) else { continue };
            let lost: u64 = cells.iter().sum();
            if lost > *told {
                each(device, lost - *told);
                *told = lost;
            }
        }
    }
}

/// Returns the time of day at which `CLOCK_MONOTONIC` began.
fn begin_of_clock() -> Duration {
    let mut monotonic = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live struct, which the call fills.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut monotonic) };
    let seconds = u64::try_from(monotonic.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(monotonic.tv_nsec).unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::new(seconds, nanoseconds))
}

fn read(record: &[u8], epoch: Duration) -> Option<Tapped<'_>> {
    let (head, bytes) = Head::ref_from_prefix(record).ok()?;
    Some(Tapped {
        time: epoch + Duration::from_nanos(head.time),
        device: u16::try_from(head.device).ok()?,
        sent: head.is_sent != 0,
        length: head.length as usize,
        bytes: bytes.get(..head.copied as usize)?,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use std::collections::BTreeSet;

    use srv6d_fib::Forwarding;

    use super::super::tests::{REDIRECT, forwarding, frame, on_loopback, steering, wiring};
    use super::*;
    use crate::test_run::once;
    use crate::xdp_offload::ProgramWiring;

    type Copied = (bool, usize, Vec<u8>);

    fn drained(tap: &mut Tap) -> Vec<Copied> {
        let mut all = Vec::new();
        tap.drain(usize::MAX, |tapped| {
            assert_eq!(tapped.device, 3);
            all.push((tapped.sent, tapped.length, tapped.bytes.to_vec()));
        });
        all
    }

    #[test]
    #[ignore = "needs root"]
    fn what_is_forwarded_is_copied_as_it_came_and_as_it_leaves_and_nothing_else_is() {
        let (mut offload, arrival) = on_loopback();
        let mut tap = offload.open_tap().unwrap();
        let captured = |captured: &[u16]| ProgramWiring {
            captured: captured.iter().copied().collect::<BTreeSet<u16>>(),
            vlan_slots: [(1, 0)].into(),
            ..wiring()
        };
        let long = [frame(), vec![7; 1400]].concat();
        let untagged = [frame(), with_length(long)];
        let tagged = untagged.clone().map(|mut frame| {
            frame.splice(12..12, [0x81, 0, 0xe0, 7]);
            frame
        });
        let on_vlan = |rows: Forwarding| Forwarding { vlans: [(1, 7)].into(), ..rows };
        for (rows, frames, changed) in [
            (forwarding(9), &untagged, false),
            (steering(), &untagged, true),
            (on_vlan(forwarding(9)), &tagged, false),
            (on_vlan(steering()), &tagged, true),
        ] {
            for frame in frames {
                for ports in [[].as_slice(), &[3], &[4]] {
                    offload.publish(&rows, &captured(ports)).unwrap();
                    let (verdict, out) = once(offload.program().unwrap(), frame, arrival).unwrap();
                    assert_eq!((verdict, out.len() > frame.len()), (REDIRECT, changed));
                    let of = |sent, bytes: &Vec<u8>| (sent, bytes.len(), bytes.clone());
                    let expected = if ports == [3] { vec![of(false, frame), of(true, &out)] } else { Vec::new() };
                    assert_eq!(drained(&mut tap), expected, "{ports:?}");
                }
            }
        }
        // The worker has this one, and copies it.
        offload.publish(&forwarding(9), &captured(&[3])).unwrap();
        let mut last_hop = frame();
        *last_hop.get_mut(21).unwrap() = 1;
        assert_ne!(once(offload.program().unwrap(), &last_hop, arrival).unwrap().0, REDIRECT);
        assert_eq!(drained(&mut tap), []);
        offload.close_tap();
        assert_eq!(
            once(offload.program().unwrap(), &frame(), arrival).unwrap().0,
            REDIRECT,
            "who forwards does not change"
        );
    }

    /// Returns the frame with the payload length that belongs to it.
    fn with_length(mut frame: Vec<u8>) -> Vec<u8> {
        let length = u16::try_from(frame.len() - 54).unwrap().to_be_bytes();
        frame.get_mut(18..20).unwrap().copy_from_slice(&length);
        frame
    }

    #[test]
    #[ignore = "needs root"]
    fn what_finds_no_room_is_forwarded_and_counted() {
        const FRAMES: usize = 20_000;
        let (mut offload, arrival) = on_loopback();
        let mut tap = offload.open_tap().unwrap();
        offload.publish(&forwarding(9), &ProgramWiring { captured: [3].into(), ..wiring() }).unwrap();
        for _ in 0..FRAMES {
            assert_eq!(once(offload.program().unwrap(), &frame(), arrival).unwrap().0, REDIRECT);
        }
        let mut lost = Vec::new();
        tap.lost(|device, frames| lost.push((device, frames)));
        let copied = drained(&mut tap).len() as u64;
        assert!(copied > 10_000, "{copied}");
        assert_eq!(lost, [(3, 2 * FRAMES as u64 - copied)]);
        tap.lost(|device, frames| assert_eq!((device, frames), (u16::MAX, 0), "each is told once"));
    }
}
