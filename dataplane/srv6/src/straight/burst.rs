//! A burst on the straight way: packets one behind the other that need the same done are taken in one loop.
//!
//! Each kind has a loop of its own, so the processor's registers hold what that kind needs and nothing else. What packets
//! in a row have in common, a SID or a next hop, counts them together.

use srv6d_wire::{Extent, Packet, eth, ipv6};

use super::inside::Inside;
use super::look_ups::Found;
use super::write::{self, Encapsulation, Ready};
use super::{Kind, PlainHop};
use crate::tables::Tables;
use crate::tally::Tally;

/// Fewer packets with one SID are looked up each by itself: to prepare for all of them takes longer.
const FEW: usize = 4;

/// Whatever holds the packets of a burst.
pub trait Frames {
    /// One packet in its buffer.
    type Frame;

    /// Its bytes.
    fn packet<'f>(&self, frame: &'f mut Self::Frame) -> Packet<'f>;

    /// Takes over where it is now in the first buffer, and the further ones or not.
    fn place(&self, frame: &mut Self::Frame, at: Extent, keep_tail: bool);
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
#[derive(Default)]
struct Sum {
    packets: usize,
    bytes: usize,
}

/// Takes these packets the straight way, up to the first that is not plain: nothing was written to that one. How many it
/// were; `leave` is told in their order where they go. `found` is what [`LookUps`](super::LookUps) found for them, and
/// `inside` finds where packets inside of those that are decapsulated go.
pub fn forward_all<F: Frames>(
    tables: &Tables,
    tally: &Tally,
    io: &F,
    frames: &mut [F::Frame],
    found: &[Found],
    inside: &mut Inside<'_>,
    mut leave: impl FnMut(Leaving),
) -> usize {
    let mut done = 0;
    while let (Some(frames), Some(found)) = (frames.get_mut(done..), found.get(done..)) {
        let mut burst = Burst { tables, tally, io, frames, found, leave: &mut leave };
        match burst.first_kind(inside) {
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
    fn first_kind(&mut self, inside: &mut Inside<'_>) -> usize {
        let (tables, tally, straight) = (self.tables, self.tally, &self.tables.straight);
        let Some(&first) = self.found.first() else { return 0 };
        let Some(kind) = Kind::of(tables, first) else { return 0 };
        let same = move |found: Found| found.is_like(first).then(|| found.index());
        match kind {
            Kind::Shift(shift) => {
                let sum = if straight.domain.is_empty() {
                    self.run(|found, packet| (found == first).then(|| shift.forward(tables, packet))?)
                } else {
                    let is_admitted = |packet: &Packet<'_>| straight.is_in_domain(packet);
                    self.run(|found, packet| {
                        (found == first && is_admitted(packet)).then(|| shift.forward(tables, packet))?
                    })
                };
                tally.sid(shift.slot, sum.packets, sum.bytes);
                sum.packets
            }
            Kind::Decapsulate(sid) => {
                let like_first = self.found.iter().take_while(|&&found| found == first).count();
                let sum = if like_first < FEW || inside.is_given_up {
                    self.run(|found, packet| {
                        (found == first && straight.accepts_source(packet))
                            .then(|| sid.forward_alone(tables, packet))?
                    })
                } else {
                    let frames = self.frames.get_mut(..like_first).unwrap_or_default();
                    let all = inside.find(tables, sid, self.io, frames);
                    let sum = if straight.domain.is_empty() {
                        self.run_with(all, |inside, packet| sid.forward(tables, packet, inside))
                    } else {
                        let is_admitted = |packet: &Packet<'_>| straight.is_in_domain(packet);
                        self.run_with(all, |inside, packet| {
                            is_admitted(packet).then(|| sid.forward(tables, packet, inside))?
                        })
                    };
                    inside.is_given_up = sum.packets < like_first;
                    sum
                };
                tally.sid(sid.slot, sum.packets, sum.bytes + sum.packets * ipv6::LEN);
                sum.packets
            }
            Kind::EncapsulateV6 => {
                let encapsulation = Encapsulation::new(tables, tally);
                self.run(move |found, packet| encapsulation.v6(packet, same(found)?)).packets
            }
            Kind::EncapsulateV4 => {
                let encapsulation = Encapsulation::new(tables, tally);
                self.run(move |found, packet| encapsulation.v4(packet, same(found)?)).packets
            }
            Kind::RouteV6 => self.run(|found, packet| write::route_v6(tables, packet, same(found)?)).packets,
            Kind::RouteV4 => self.run(|found, packet| write::route_v4(tables, packet, same(found)?)).packets,
        }
    }

    /// All packets in front that `write` takes.
    #[inline]
    fn run<'t>(&mut self, write: impl Fn(Found, &mut Packet<'_>) -> Option<Ready<'t>>) -> Sum {
        self.run_with(self.found, write)
    }

    /// The same by what was found otherwise. Not inlined: one loop is enough for the registers there are.
    #[inline(never)]
    fn run_with<'t>(&mut self, found: &[Found], write: impl Fn(Found, &mut Packet<'_>) -> Option<Ready<'t>>) -> Sum {
        let mut row = Row { hop: None, bytes: 0, before: Sum::default() };
        let mut done = 0;
        for (frame, &found) in self.frames.iter_mut().zip(found) {
            let mut packet = self.io.packet(frame);
            let Some(ready) = write(found, &mut packet) else { break };
            let at = packet.extent();
            // Plain packets are never cut: what lies in further buffers stays.
            self.io.place(frame, at, true);
            if !row.leads_to(ready.hop) {
                row.turn(Some(ready.hop), done, self.tally, &mut self.leave);
            }
            row.bytes += ready.len;
            done += 1;
        }
        row.turn(None, done, self.tally, &mut self.leave);
        row.before
    }
}

/// Packets one behind the other that leave through one next hop.
struct Row<'t> {
    hop: Option<&'t PlainHop>,
    bytes: usize,
    /// Of the rows before.
    before: Sum,
}

impl<'t> Row<'t> {
    #[inline]
    fn leads_to(&self, hop: &PlainHop) -> bool {
        std::ptr::eq(self.hop.map_or(std::ptr::null(), std::ptr::from_ref), hop)
    }

    /// Behind `done` packets come others that leave through another hop, or none. Not inlined: it takes registers, and is
    /// rare.
    #[inline(never)]
    fn turn(&mut self, next: Option<&'t PlainHop>, done: usize, tally: &Tally, leave: &mut impl FnMut(Leaving)) {
        let (packets, bytes) = (done - self.before.packets, std::mem::take(&mut self.bytes));
        if let Some(hop) = std::mem::replace(&mut self.hop, next) {
            tally.adjacency(hop.slot, packets, bytes);
            self.before.packets += packets;
            self.before.bytes += bytes;
            // Plain frames carry an Ethernet header and a packet, and nothing else.
            leave(Leaving { device: hop.device, packets, bytes: bytes + packets * eth::LEN });
        }
    }
}
