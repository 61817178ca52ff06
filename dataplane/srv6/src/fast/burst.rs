//! A burst on the fast path. Consecutive packets that need the same treatment are handled in one loop.
//!
//! Each kind of treatment has a loop of its own, so the processor's registers hold only what that kind needs.
//! Consecutive packets that share a SID or a next hop are counted together.

use srv6d_fib::HopRow;
use srv6d_wire::{Extent, Packet, eth, ipv6};

use super::inner::InnerLookUps;
use super::look_ups::LookUpResult;
use super::write::{self, Encapsulation, Ready};
use super::{Decapsulate, Kind, Shift};
use crate::tables::Tables;
use crate::tally::Tally;

/// Smallest number of packets with one SID that are looked up together. For fewer, the preparation takes longer than
/// it saves.
const TOGETHER_FROM: usize = 4;

/// A container of the packets of a burst.
pub trait Frames {
    /// One packet in its buffer.
    type Frame;

    /// Returns the bytes of a packet.
    fn packet<'f>(&self, frame: &'f mut Self::Frame) -> Packet<'f>;

    /// Records where the packet is now in its first buffer, and whether the further buffers still belong to it.
    fn place(&self, frame: &mut Self::Frame, at: Extent, keep_tail: bool);
}

/// Consecutive packets that leave through one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The device, by its untagged port.
    pub device: u16,
    /// Number of packets.
    pub packets: usize,
    /// Number of bytes, Ethernet headers included.
    pub bytes: usize,
}

/// A number of IP packets, and their bytes.
#[derive(Default)]
struct Sum {
    packets: usize,
    bytes: usize,
}

/// Writes packets as they will leave, up to the first one that is not plain, to which nothing is written.
///
/// Returns the number of packets written, and calls `leave` in their order with the device that they leave through.
/// `found` is what [`LookUps`](super::LookUps) returned for them. `inner` looks up the inner packets of those that
/// are decapsulated.
pub fn write_burst<F: Frames>(
    tables: &Tables,
    tally: &Tally,
    io: &F,
    frames: &mut [F::Frame],
    found: &[LookUpResult],
    inner: &mut InnerLookUps<'_>,
    mut leave: impl FnMut(Leaving),
) -> usize {
    let mut done = 0;
    while let (Some(frames), Some(found)) = (frames.get_mut(done..), found.get(done..)) {
        let mut burst = Burst { tables, tally, io, frames, found, leave: &mut leave };
        match burst.write_kind(inner) {
            0 => break,
            packets => done += packets,
        }
    }
    done
}

struct Burst<'b, F: Frames, L> {
    tables: &'b Tables,
    tally: &'b Tally,
    io: &'b F,
    frames: &'b mut [F::Frame],
    found: &'b [LookUpResult],
    leave: L,
}

impl<F: Frames, L: FnMut(Leaving)> Burst<'_, F, L> {
    /// Writes the packets at the front that need the same treatment as the first one. Returns their number.
    fn write_kind(&mut self, inner: &mut InnerLookUps<'_>) -> usize {
        let (tables, tally) = (self.tables, self.tally);
        let found = self.found;
        let Some(&first) = found.first() else { return 0 };
        let Some(kind) = Kind::of(tables, first) else { return 0 };
        let same = move |found: LookUpResult| found.is_like(first).then(|| found.index());
        match kind {
            Kind::Shift(shift) => {
                let sum = self.write_shifted(shift, first);
                tally.sid(shift.0.slot, sum.packets, sum.bytes);
                sum.packets
            }
            Kind::Decapsulate(sid) => {
                let sum = self.write_decapsulated(sid, first, inner);
                tally.sid(sid.0.slot, sum.packets, sum.bytes + sum.packets * ipv6::LEN);
                sum.packets
            }
            Kind::EncapsulateV6 => {
                let encapsulation = Encapsulation::new(tables, tally);
                self.write_while(found, move |found, packet| encapsulation.v6(packet, same(found)?)).packets
            }
            Kind::EncapsulateV4 => {
                let encapsulation = Encapsulation::new(tables, tally);
                self.write_while(found, move |found, packet| encapsulation.v4(packet, same(found)?)).packets
            }
            Kind::RouteV6 => {
                self.write_while(found, |found, packet| write::route_v6(tables, packet, same(found)?)).packets
            }
            Kind::RouteV4 => {
                self.write_while(found, |found, packet| write::route_v4(tables, packet, same(found)?)).packets
            }
        }
    }

    /// Writes the packets at the front that are addressed to the SID that `first` leads to.
    #[inline(always)]
    fn write_shifted(&mut self, shift: Shift<'_>, first: LookUpResult) -> Sum {
        let (tables, found) = (self.tables, self.found);
        if let Some(domain) = tables.fast.domain() {
            return self.write_while(found, |found, packet| {
                if found != first || !domain.contains_source(packet) {
                    return None;
                }
                shift.write(tables, packet)
            });
        }
        self.write_while(found, |found, packet| if found == first { shift.write(tables, packet) } else { None })
    }

    /// Decapsulates the packets at the front that are addressed to the SID that `first` leads to. Few of them are looked up
    /// one by one, several together.
    #[inline(always)]
    fn write_decapsulated(&mut self, sid: Decapsulate<'_>, first: LookUpResult, inner: &mut InnerLookUps<'_>) -> Sum {
        let (tables, fast, found) = (self.tables, &self.tables.fast, self.found);
        let like_first = found.iter().take_while(|&&found| found == first).count();
        if like_first < TOGETHER_FROM || inner.is_given_up {
            return self.write_while(found, |found, packet| {
                if found != first || !fast.accepts_source(packet) {
                    return None;
                }
                sid.write_alone(tables, packet)
            });
        }
        let frames = self.frames.get_mut(..like_first).unwrap_or_default();
        let results = inner.look_up(tables, sid, self.io, frames);
        let sum = if let Some(domain) = fast.domain() {
            self.write_while(results, |result, packet| {
                if !domain.contains_source(packet) {
                    return None;
                }
                sid.write(tables, packet, result)
            })
        } else {
            self.write_while(results, |result, packet| sid.write(tables, packet, result))
        };
        inner.is_given_up = sum.packets < like_first;
        sum
    }

    /// Writes the packets at the front that `write` takes, each with its result in `found`. It is not inlined,
    /// because the registers suffice for one loop only.
    #[inline(never)]
    fn write_while<'t>(
        &mut self,
        found: &[LookUpResult],
        write: impl Fn(LookUpResult, &mut Packet<'_>) -> Option<Ready<'t>>,
    ) -> Sum {
        let mut run = HopRun { hop: None, bytes: 0, before: Sum::default() };
        let mut done = 0;
        for (frame, &found) in self.frames.iter_mut().zip(found) {
            let mut packet = self.io.packet(frame);
            let Some(ready) = write(found, &mut packet) else { break };
            let at = packet.extent();
            // Plain packets are never cut: the bytes in further buffers stay.
            self.io.place(frame, at, true);
            if !run.leads_to(ready.hop) {
                run.turn(Some(ready.hop), done, self.tally, &mut self.leave);
            }
            run.bytes += ready.len;
            done += 1;
        }
        run.turn(None, done, self.tally, &mut self.leave);
        run.before
    }
}

/// Consecutive packets that leave through one next hop.
struct HopRun<'t> {
    hop: Option<&'t HopRow>,
    bytes: usize,
    /// Sum of the earlier runs.
    before: Sum,
}

impl<'t> HopRun<'t> {
    #[inline]
    fn leads_to(&self, hop: &HopRow) -> bool {
        std::ptr::eq(self.hop.map_or(std::ptr::null(), std::ptr::from_ref), hop)
    }

    /// Ends the run after `done` packets of the burst and begins the next one, if there is one. It is not inlined,
    /// because it needs registers and is called rarely.
    #[inline(never)]
    fn turn(&mut self, next: Option<&'t HopRow>, done: usize, tally: &Tally, leave: &mut impl FnMut(Leaving)) {
        let (packets, bytes) = (done - self.before.packets, std::mem::take(&mut self.bytes));
        if let Some(hop) = std::mem::replace(&mut self.hop, next) {
            tally.adjacency(hop.slot, packets, bytes);
            self.before.packets += packets;
            self.before.bytes += bytes;
            // A plain frame consists of an Ethernet header and a packet.
            leave(Leaving { device: hop.port, packets, bytes: bytes + packets * eth::LEN });
        }
    }
}
