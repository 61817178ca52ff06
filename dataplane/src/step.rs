//! One round of a worker: receive, forward, send.

use std::net::IpAddr;
use std::sync::Arc;

use srv6d_srv6::model::PortId;
use srv6d_srv6::{DropReason, Limiter, Tally, Verdict, forward};

use crate::counters::WorkerCounters;
use crate::held::Held;
use crate::io::Io;
use crate::snapshot::Snapshot;

/// Packets received from one port at a time.
pub const BURST: usize = 64;

/// What a worker keeps between rounds.
pub struct Step<I: Io> {
    worker: usize,
    counters: Arc<WorkerCounters>,
    limiter: Limiter,
    held: Held<I::Frame>,
    burst: Vec<I::Frame>,
    generation: u64,
    wanted: Box<dyn FnMut(PortId, IpAddr) + Send>,
}

impl<I: Io> Step<I> {
    /// A worker's step. `wanted` is called for every next hop that a packet waits for.
    pub fn new(
        worker: usize,
        counters: Arc<WorkerCounters>,
        wanted: impl FnMut(PortId, IpAddr) + Send + 'static,
    ) -> Self {
        Self {
            worker,
            counters,
            limiter: Limiter::default(),
            held: Held::new(),
            burst: Vec::with_capacity(BURST),
            generation: 0,
            wanted: Box::new(wanted),
        }
    }

    /// Packets that wait for a next hop.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// One round over all sockets at `now` (nanoseconds of a clock that never goes back). Returns the packets received.
    pub fn round(&mut self, io: &mut I, snapshot: &Snapshot, now: u64) -> usize {
        let Some(tally) = snapshot.tallies.get(self.worker) else { return 0 };
        if snapshot.generation != self.generation {
            self.generation = snapshot.generation;
            self.retry_held(io, snapshot, tally, now);
        }
        if self.held.len() > 0 {
            for frame in self.held.take_expired(now) {
                self.drop_frame(io, frame, DropReason::NoNeigh);
            }
            self.counters.set_held(self.held.len());
        }
        let mut received = 0;
        for socket in 0..io.sockets() {
            let mut burst = std::mem::take(&mut self.burst);
            io.receive(socket, BURST, &mut burst);
            received += burst.len();
            for frame in burst.drain(..) {
                self.counters.received(socket, io.packet_len(&frame));
                self.forward(io, snapshot, tally, socket, frame, now, now);
            }
            self.burst = burst;
        }
        if received > 0 {
            (0..io.sockets()).for_each(|socket| io.flush(socket));
        }
        received
    }

    /// Tables have changed: what waited gets another chance.
    fn retry_held(&mut self, io: &mut I, snapshot: &Snapshot, tally: &Tally, now: u64) {
        for (socket, since, frame) in self.held.take_all() {
            self.forward(io, snapshot, tally, socket, frame, now, since);
        }
        self.counters.set_held(self.held.len());
        (0..io.sockets()).for_each(|socket| io.flush(socket));
    }

    #[allow(clippy::too_many_arguments)] // one packet's whole way; a struct would only rename the list
    fn forward(
        &mut self,
        io: &mut I,
        snapshot: &Snapshot,
        tally: &Tally,
        socket: usize,
        mut frame: I::Frame,
        now: u64,
        since: u64,
    ) {
        let Some(port) = snapshot.port_of.get(socket).copied().flatten() else {
            return self.drop_frame(io, frame, DropReason::TxFull);
        };
        let mut packet = io.packet(&mut frame);
        let verdict = forward(&snapshot.tables, tally, &mut self.limiter, now, port, &mut packet);
        let (head, keep_tail) = (packet.settle(), packet.tail_len() > 0);
        io.resize(&mut frame, head, keep_tail);
        match verdict {
            Verdict::Drop(reason) => self.drop_frame(io, frame, reason),
            Verdict::Hold(port, neighbor) => {
                (self.wanted)(port, neighbor);
                match self.held.keep(frame, socket, (port, neighbor), since) {
                    Ok(()) => self.counters.set_held(self.held.len()),
                    Err(frame) => self.drop_frame(io, frame, DropReason::NoNeigh),
                }
            }
            Verdict::Tx(port) | Verdict::Kernel(port) | Verdict::Error(_, port) | Verdict::Echo(port) => {
                let way_out = snapshot.socket_of.get(usize::from(port)).copied().flatten();
                let bytes = io.packet_len(&frame);
                match send(io, way_out, frame) {
                    Ok(socket) => self.counters.sent(verdict, socket, bytes),
                    Err(frame) => self.drop_frame(io, frame, DropReason::TxFull),
                }
            }
        }
    }

    fn drop_frame(&self, io: &mut I, frame: I::Frame, reason: DropReason) {
        self.counters.dropped(reason);
        io.recycle(frame);
    }

    /// Gives the memory of everything that waits back.
    pub fn abandon_held(&mut self, io: &mut I) {
        for (_, _, frame) in self.held.take_all() {
            self.drop_frame(io, frame, DropReason::NoNeigh);
        }
        self.counters.set_held(0);
    }
}

/// A full ring is flushed once; what still does not fit comes back.
fn send<I: Io>(io: &mut I, socket: Option<usize>, frame: I::Frame) -> Result<usize, I::Frame> {
    let Some(socket) = socket else { return Err(frame) };
    match io.send(socket, frame) {
        Ok(()) => Ok(socket),
        Err(frame) => {
            io.flush(socket);
            io.send(socket, frame).map(|()| socket)
        }
    }
}
