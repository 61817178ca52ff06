//! The rig sends packets around: it writes them as received, passes them through a step with ports in memory, and
//! collects them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use srv6d_dataplane::io::Io;
use srv6d_dataplane::memory::{Memory, MemoryFrame};
use srv6d_dataplane::{BURST, Snapshot, Step, WorkerCounters};
use srv6d_srv6::{Frames, LookUps, write_burst};

use crate::floor::Floor;
use crate::frames::{Class, FLOWS, estrange, frame};

/// A rig for one class of packets. The measured work finds a burst either in `burst` or waiting at port 0, and leaves
/// it in `burst` or sent through port 1.
pub struct Rig {
    io: Memory,
    step: Step<Memory>,
    look_ups: LookUps,
    class: Class,
    originals: Vec<Vec<u8>>,
    /// Unused frames. The oldest one is used first, so that each burst is written into other memory than the one
    /// before.
    idle: VecDeque<MemoryFrame>,
    burst: Vec<MemoryFrame>,
    random: u32,
}

impl Rig {
    /// Creates a rig with [`FLOWS`] flows of a class towards `prefixes` prefixes.
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
            idle: originals.iter().map(|bytes| MemoryFrame::new(bytes)).collect(),
            burst: Vec::with_capacity(BURST),
            originals,
            random: 0x9e37_79b9,
        }
    }

    /// Returns the nanoseconds per packet of `work` over this number of bursts, in a loop without ports. Preparation
    /// and collection of a burst are not measured.
    pub fn time_bare(&mut self, bursts: usize, mut work: impl FnMut(&mut Self)) -> f64 {
        self.time(bursts, |rig| {
            let begin = Instant::now();
            work(rig);
            begin.elapsed()
        })
    }

    /// Like [`time_bare`](Self::time_bare), but the burst waits at port 0 and has to leave through port 1.
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

    /// Makes a burst, with each packet as received. Flows come in random order, because the branch predictor would
    /// learn a sequence that is repeated.
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

    /// Returns a random flow number, from xorshift32 (Marsaglia, 2003).
    fn any_flow(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random as usize % FLOWS
    }

    /// Puts the burst into the receive queue of port 0.
    fn deliver(&mut self) {
        let Some(port) = self.io.port(0) else { return };
        port.rx.extend(self.burst.drain(..));
    }

    /// Takes the burst back, and checks that every packet has left through port 1.
    fn collect(&mut self) {
        let Some(port) = self.io.port(1) else { return };
        assert_eq!(port.tx.len(), BURST, "every packet is sent");
        self.burst.append(&mut port.tx);
    }

    /// Runs the step on one burst, between ports.
    #[inline(never)]
    pub fn step(&mut self, snapshot: &Snapshot) {
        self.step.round(&mut self.io, snapshot, 1);
    }

    /// Runs the floor between ports.
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

    /// Runs the floor in a bare loop; the frames stay in `burst`.
    #[inline(never)]
    pub fn bare<F: Floor>(&mut self) {
        for frame in &mut self.burst {
            rewrite::<F>(&self.io, frame);
        }
    }

    /// Runs what the step does with each packet, without ports.
    ///
    /// # Panics
    /// If a packet would not be sent.
    #[inline(never)]
    pub fn forward(&mut self, snapshot: &Snapshot) {
        self.all_through(snapshot);
    }

    /// Forwards and steps this number of bursts, so that caches are filled.
    pub fn warm_up(&mut self, bursts: usize, snapshot: &Snapshot) {
        self.time_bare(bursts, |rig| rig.all_through(snapshot));
        self.time_ports(bursts, |rig| {
            rig.step.round(&mut rig.io, snapshot, 1);
        });
    }

    fn all_through(&mut self, snapshot: &Snapshot) {
        let Some(tally) = snapshot.tallies.first() else { return };
        let (io, tables) = (&self.io, &snapshot.tables);
        let (found, mut inside) = self.look_ups.look_up(tables, 0, io, &mut self.burst);
        let done = write_burst(tables, tally, io, &mut self.burst, found, &mut inside, |leaving| {
            assert_eq!(leaving.device, 1, "every packet leaves by port 1");
        });
        assert_eq!(done, self.burst.len(), "every packet takes the fast path");
    }
}

#[inline]
fn rewrite<F: Floor>(io: &Memory, frame: &mut MemoryFrame) {
    let mut packet = if F::MOVES { frame.without_headroom() } else { io.packet(frame) };
    let done = F::rewrite(&mut packet);
    assert!(done.is_some(), "the frame is long enough");
    let at = packet.extent();
    io.place(frame, at, false);
}
