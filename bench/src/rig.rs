//! Packets that go round: written as received, through a step and its ports in memory, collected again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use srv6d_dataplane::io::{Buffers, Io};
use srv6d_dataplane::memory::{Frame, Memory};
use srv6d_dataplane::reader::View;
use srv6d_dataplane::{BURST, Snapshot, Step, WorkerCounters};
use srv6d_srv6::{LookUps, forward_all};

use crate::floor::Floor;
use crate::frames::{Class, FLOWS, estrange, frame};

/// One class of packets. Work finds a burst of them in `burst`, or waiting at port 0; it leaves them in `burst`, or
/// sent by port 1.
pub struct Rig {
    io: Memory,
    step: Step<Memory>,
    look_ups: LookUps,
    class: Class,
    originals: Vec<Vec<u8>>,
    /// First in, first out: each burst is written into other memory than the one before.
    idle: VecDeque<Frame>,
    burst: Vec<Frame>,
    random: u32,
}

impl Rig {
    /// [`FLOWS`] flows of a class towards `prefixes` prefixes.
    pub fn new(class: Class, prefixes: u32) -> Self {
        let originals: Vec<_> = (0..FLOWS).map(|flow| frame(class, prefixes, flow)).collect();
        let mut io = Memory::new(2);
        for socket in 0..io.sockets() {
            if let Some(port) = io.port(socket) {
                port.rx.reserve(BURST);
                port.tx.reserve(BURST);
            }
        }
        Self {
            io,
            look_ups: srv6d_dataplane::look_ups(),
            class,
            step: Step::new(0, Arc::new(WorkerCounters::default()), |_, _| {}),
            idle: originals.iter().map(|bytes| Frame::new(bytes)).collect(),
            burst: Vec::with_capacity(BURST),
            originals,
            random: 0x9e37_79b9,
        }
    }

    /// Nanoseconds per packet of `work` over so many bursts of a loop without ports. What goes before and after a burst
    /// is not part of it.
    pub fn time_bare(&mut self, bursts: usize, mut work: impl FnMut(&mut Self)) -> f64 {
        self.time(bursts, |rig| {
            let begin = Instant::now();
            work(rig);
            begin.elapsed()
        })
    }

    /// The same between ports.
    pub fn time_ports(&mut self, bursts: usize, mut work: impl FnMut(&mut Self)) -> f64 {
        self.time(bursts, |rig| {
            rig.deliver();
            let begin = Instant::now();
            work(rig);
            let spent = begin.elapsed();
            rig.collect();
            spent
        })
    }

    fn time(&mut self, bursts: usize, mut timed: impl FnMut(&mut Self) -> Duration) -> f64 {
        let mut spent = Duration::ZERO;
        for _ in 0..bursts {
            self.refill();
            spent += timed(self);
            self.idle.extend(self.burst.drain(..));
        }
        let packets = u32::try_from(bursts * BURST).unwrap_or(u32::MAX);
        spent.as_secs_f64() * 1e9 / f64::from(packets)
    }

    /// A burst, each packet as it was at first. The flows come in no order: one that came round again and again would be
    /// learnt by the branch predictor.
    fn refill(&mut self) {
        for _ in 0..BURST {
            let flow = self.any_flow();
            let (Some(mut frame), Some(original)) = (self.idle.pop_front(), self.originals.get_mut(flow)) else {
                return;
            };
            if self.class == Class::EncapV6Strangers {
                estrange(original, self.random);
            }
            frame.refill(original);
            self.burst.push(frame);
        }
    }

    /// xorshift32 (Marsaglia, 2003).
    fn any_flow(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random as usize % FLOWS
    }

    /// The burst has arrived at port 0.
    fn deliver(&mut self) {
        let Some(port) = self.io.port(0) else { return };
        port.rx.extend(self.burst.drain(..));
    }

    /// Takes the burst back. Every packet must have left through port 1.
    fn collect(&mut self) {
        let Some(port) = self.io.port(1) else { return };
        assert_eq!(port.tx.len(), BURST, "every packet is sent");
        self.burst.append(&mut port.tx);
    }

    /// The step itself over one burst, between ports.
    #[inline(never)]
    pub fn step(&mut self, snapshot: &Snapshot) {
        self.step.round(&mut self.io, snapshot, 1);
    }

    /// The same as a worker takes it whose tables may change.
    #[inline(never)]
    pub fn step_beside(&mut self, view: View<'_>, now: u64) {
        self.step.round_beside(&mut self.io, view, now);
    }

    /// The step knows the tables to come.
    pub fn knows_next(&self) -> bool {
        self.step.knows_next()
    }

    /// The floor between ports.
    #[inline(never)]
    pub fn ports<F: Floor>(&mut self) {
        self.io.receive(0, BURST, &mut self.burst);
        for mut frame in self.burst.drain(..) {
            rewrite::<F>(&self.io, &mut frame);
            if self.io.send(1, &mut std::iter::once(frame)).is_err() {
                return;
            }
        }
    }

    /// The floor in a bare loop: the frames stay where they are.
    #[inline(never)]
    pub fn bare<F: Floor>(&mut self) {
        for frame in &mut self.burst {
            rewrite::<F>(&self.io, frame);
        }
    }

    /// What the step does with each packet, without ports.
    ///
    /// # Panics
    /// A packet would not be sent.
    #[inline(never)]
    pub fn forward(&mut self, snapshot: &Snapshot) {
        self.all_through(snapshot);
    }

    /// So many bursts forwarded and stepped: what is remembered of packets that went before is there.
    pub fn warm_up(&mut self, bursts: usize, snapshot: &Snapshot) {
        self.time_bare(bursts, |rig| rig.all_through(snapshot));
        self.time_ports(bursts, |rig| {
            rig.step.round(&mut rig.io, snapshot, 1);
        });
    }

    fn all_through(&mut self, snapshot: &Snapshot) {
        let Some(tally) = snapshot.tallies.first() else { return };
        let (io, tables) = (Buffers(&self.io), &snapshot.tables);
        let (found, mut inside) = self.look_ups.find(tables, 0, &io, &mut self.burst);
        let done = forward_all(tables, tally, &io, &mut self.burst, found, &mut inside, |leaving| {
            assert_eq!(leaving.device, 1, "every packet leaves by port 1");
        });
        assert_eq!(done, self.burst.len(), "every packet goes straight");
    }
}

#[inline]
fn rewrite<F: Floor>(io: &Memory, frame: &mut Frame) {
    let mut packet = if F::MOVES { frame.without_headroom() } else { io.packet(frame) };
    let done = F::rewrite(&mut packet);
    assert!(done.is_some(), "the frame is long enough");
    let at = packet.extent();
    io.place(frame, at, false);
}
