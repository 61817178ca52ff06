//! A burst on the straight way: packets one behind the other that need the same done are taken in one loop.
//!
//! Each kind has a loop of its own, so the processor's registers hold what that kind needs and nothing else. What packets
//! in a row have in common, a SID or a next hop, counts them together.

use srv6d_wire::{Packet, eth, ipv6};

use super::look_ups::Found;
use super::write::{self, Ready};
use super::{Kind, PlainHop};
use crate::tables::Tables;
use crate::tally::Tally;

/// Whatever holds the packets of a burst.
pub trait Frames {
    /// One packet in its buffer.
    type Frame;

    /// Its bytes.
    fn packet<'f>(&self, frame: &'f mut Self::Frame) -> Packet<'f>;

    /// Takes over the length it has now: `head` bytes in the first buffer, and the further ones or not.
    fn resize(&self, frame: &mut Self::Frame, head: usize, keep_tail: bool);
}

/// Packets one behind the other that leave through one device, with their whole length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Device.
    pub device: u16,
    /// How many.
    pub packets: usize,
    /// Ethernet headers included.
    pub bytes: usize,
}

/// So many IP packets of so many bytes.
#[derive(Clone, Copy, Default)]
struct Sum {
    packets: usize,
    bytes: usize,
}

/// Takes these packets the straight way, up to the first that is not plain: nothing was written to that one. How many it
/// were; `leave` is told in their order where they go. `found` is what [`LookUps`](super::LookUps) found for them.
pub fn forward_all<F: Frames>(
    tables: &Tables,
    tally: &Tally,
    io: &F,
    frames: &mut [F::Frame],
    found: &[Found],
    mut leave: impl FnMut(Leaving),
) -> usize {
    let mut done = 0;
    while let (Some(frames), Some(found)) = (frames.get_mut(done..), found.get(done..)) {
        let mut burst = Burst { tables, tally, io, frames, found, leave: &mut leave };
        match burst.first_kind() {
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
    found: &'b [Found],
    leave: L,
}

impl<F: Frames, L: FnMut(Leaving)> Burst<'_, F, L> {
    /// All packets in front that need the same as the first one. How many it were.
    fn first_kind(&mut self) -> usize {
        let (tables, tally) = (self.tables, self.tally);
        let Some(&first) = self.found.first() else { return 0 };
        let Some(kind) = Kind::of(tables, first) else { return 0 };
        let same = move |found: Found| found.is_like(first).then(|| found.index());
        match kind {
            Kind::Shift(shift) => {
                let sum = self.run(|found, packet| (found == first).then(|| shift.forward(tables, packet))?);
                tally.sid(shift.slot, sum.packets, sum.bytes);
                sum.packets
            }
            Kind::Decapsulate(sid) => {
                let sum = self.run(|found, packet| (found == first).then(|| sid.forward(tables, packet))?);
                tally.sid(sid.slot, sum.packets, sum.bytes + sum.packets * ipv6::LEN);
                sum.packets
            }
            Kind::EncapsulateV6 => {
                self.run(|found, packet| write::encapsulate_v6(tables, tally, packet, same(found)?)).packets
            }
            Kind::EncapsulateV4 => {
                self.run(|found, packet| write::encapsulate_v4(tables, tally, packet, same(found)?)).packets
            }
            Kind::RouteV6 => self.run(|found, packet| write::route_v6(tables, packet, same(found)?)).packets,
            Kind::RouteV4 => self.run(|found, packet| write::route_v4(tables, packet, same(found)?)).packets,
        }
    }

    /// All packets in front that `write` takes. Not inlined: one loop is enough for the registers there are.
    #[inline(never)]
    fn run<'t>(&mut self, write: impl Fn(Found, &mut Packet<'_>) -> Option<Ready<'t>>) -> Sum {
        let (mut all, mut row) = (Sum::default(), Sum::default());
        let mut hop: Option<&PlainHop> = None;
        for (frame, &found) in self.frames.iter_mut().zip(self.found) {
            let mut packet = self.io.packet(frame);
            let Some(ready) = write(found, &mut packet) else { break };
            let (head, tail) = (packet.settle(), packet.tail_len());
            self.io.resize(frame, head, tail > 0);
            if !std::ptr::eq(hop.map_or(std::ptr::null(), std::ptr::from_ref), ready.hop) {
                if let Some(hop) = hop {
                    all.add(row);
                    leave(self.tally, hop, std::mem::take(&mut row), &mut self.leave);
                }
                hop = Some(ready.hop);
            }
            row.add(Sum { packets: 1, bytes: ready.len });
        }
        if let Some(hop) = hop {
            all.add(row);
            leave(self.tally, hop, row, &mut self.leave);
        }
        all
    }
}

/// Through one next hop. Plain frames carry an Ethernet header and a packet, and nothing else.
fn leave(tally: &Tally, hop: &PlainHop, row: Sum, leave: &mut impl FnMut(Leaving)) {
    tally.adjacency(hop.slot, row.packets, row.bytes);
    leave(Leaving { device: hop.device, packets: row.packets, bytes: row.bytes + row.packets * eth::LEN });
}

impl Sum {
    #[inline]
    fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}
