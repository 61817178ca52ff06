//! Looks at tables that are to come, for nothing but the cache lines: a worker that goes over to tables which another core
//! has just compiled would need five times as long for dozens of rounds.
//!
//! Its caches keep what was read last, and the tables in force are read all the while: few looks over a long time do not
//! help. So in each round as many packets are looked up as there is time for, and how many these are says how it stands:
//!
//! ```text
//! time      ├────────────────┤         8 packets at a time; none is begun after TIME
//! cold      ├──────────────────┤
//! in between├──────────┤├──────────┤
//! known     ├────┤├────┤├────┤         a quick round
//! ```
//!
//! After many quick rounds the first one in the new tables takes hardly longer than others. Where the packets will go is
//! in the worker's destination cache by then.

use std::time::{Duration, Instant};

use srv6d_srv6::{Limiter, LookUps, Tally};
use srv6d_wire::Packet;

use crate::io::{Buffers, Io};
use crate::snapshot::Snapshot;

/// Packets that are looked up together: their cache lines are fetched at the same time.
const TOGETHER: usize = 8;
/// Of these, how many are forwarded to the end.
const FORWARDED: usize = 2;
/// How long looks go on in a round, which takes 1.5 to 2 us otherwise: the last one hardly makes it late.
const TIME: Duration = Duration::from_micros(1);
/// In so many pieces a round is quick; and if it had no more packets.
const QUICK: usize = 3;
/// So many packets looked up in quick rounds, and the tables are known.
const KNOWN: usize = 1 << 13;
/// How many packets another round counts against. Some are slow for reasons of their own: an interrupt.
const SLOW: usize = 256;
/// Of such a packet, and of the room it is written in.
const HEAD: usize = 256;

/// What it takes to look packets up for nothing, and what came of it.
pub(crate) struct Beside {
    /// Where nothing is counted.
    tally: Tally,
    limiter: Limiter,
    room: Box<[u8]>,
    /// So that it is not always the same packets of a burst.
    turns: u32,
    /// Which tables: the generation that was compiled.
    compiled: u64,
    /// Packets looked up in quick rounds, less what others count against them.
    quick: usize,
}

impl Beside {
    pub(crate) fn new() -> Self {
        Self {
            tally: Tally::default(),
            limiter: Limiter::default(),
            room: vec![0; 2 * HEAD].into(),
            turns: 0,
            compiled: 0,
            quick: 0,
        }
    }

    /// What packets need of the tables looked at is on this core.
    pub(crate) fn is_known(&self) -> bool {
        self.quick >= KNOWN
    }

    /// Looks packets up in `next`, forwards copies of some, and forgets them.
    #[cold]
    pub(crate) fn look<I: Io>(
        &mut self,
        look_ups: &mut LookUps,
        io: &I,
        next: &Snapshot,
        socket: usize,
        burst: &mut [I::Frame],
    ) {
        let Some(port) = next.port_of.get(socket).copied().flatten() else { return };
        if next.compiled != self.compiled {
            (self.compiled, self.quick) = (next.compiled, 0);
            // What all packets share is in no cache yet either.
            return self.look_at(look_ups, io, next, port, burst.get_mut(..1).unwrap_or_default());
        }
        let begin = Instant::now();
        self.turns = self.turns.wrapping_add(1);
        let pieces = burst.len().div_ceil(TOGETHER);
        let first = self.turns as usize % pieces.max(1);
        let mut done = 0;
        for piece in (first..pieces).chain(0..first) {
            self.look_at(look_ups, io, next, port, burst.get_mut(piece * TOGETHER..).unwrap_or_default());
            done += 1;
            if begin.elapsed() > TIME {
                break;
            }
        }
        let is_quick = done == pieces || done >= QUICK;
        self.note(if is_quick { burst.len().min(done * TOGETHER) } else { 0 });
    }

    /// So many packets were looked up in a quick round; 0: it was another one.
    fn note(&mut self, quick: usize) {
        self.quick = if quick > 0 { self.quick + quick } else { self.quick.saturating_sub(SLOW) };
    }

    fn look_at<I: Io>(&mut self, look_ups: &mut LookUps, io: &I, next: &Snapshot, port: u16, burst: &mut [I::Frame]) {
        let count = burst.len().min(TOGETHER);
        look_ups.look_ahead(&next.tables, port, &Buffers(io), burst.get_mut(..count).unwrap_or_default());
        let first = self.turns as usize * FORWARDED % count.max(1);
        for frame in burst.iter_mut().take(count).skip(first).take(FORWARDED) {
            self.forward(next, port, &io.packet(frame));
        }
    }

    fn forward(&mut self, next: &Snapshot, port: u16, packet: &Packet<'_>) {
        let head = packet.bytes().len().min(HEAD);
        if let (Some(to), Some(from)) = (self.room.get_mut(..head), packet.bytes().get(..head)) {
            to.copy_from_slice(from);
        }
        let mut copy = Packet::new(&mut self.room, head, packet.total_len() - head);
        // Not what `Step::forward` is made of: a second caller of that would keep it out of the packet path's loop.
        let _ = srv6d_srv6::forward(&next.tables, &self.tally, &mut self.limiter, 0, port, &mut copy);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use super::*;
    use crate::BURST;
    use crate::memory::{Frame, Memory};

    #[test]
    fn tables_are_known_after_quick_rounds_and_others_are_not() {
        let mut beside = Beside::new();
        beside.note(0);
        beside.note(KNOWN - 1);
        beside.note(0);
        for _ in 0..=SLOW {
            assert!(!beside.is_known(), "a slow round counts against quick ones");
            beside.note(1);
        }
        assert!(beside.is_known());
        let mut io = Memory::new(1);
        io.port(0).unwrap().rx.push_back(Frame::new(&[0; 60]));
        let mut burst = Vec::new();
        io.receive(0, BURST, &mut burst);
        let next = Snapshot { compiled: 7, port_of: vec![Some(0)], ..Snapshot::default() };
        beside.look(&mut LookUps::with_capacity(BURST), &io, &next, 0, &mut burst);
        assert!(!beside.is_known());
    }
}
