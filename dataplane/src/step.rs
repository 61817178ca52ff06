//! One round of a worker: receive, forward, send.

use std::net::IpAddr;
use std::sync::Arc;

use srv6d_srv6::model::PortId;
use srv6d_srv6::tally::Count;
use srv6d_srv6::{DropReason, Limiter, PathMtu, Tally, Verdict, forward, learned};

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
    smaller_path: Box<dyn FnMut(PathMtu) + Send>,
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
            smaller_path: Box::new(|_| {}),
        }
    }

    /// `smaller_path` is called for every path that a Packet Too Big shows to carry less than the tables say.
    #[must_use]
    pub fn on_smaller_path(mut self, smaller_path: impl FnMut(PathMtu) + Send + 'static) -> Self {
        self.smaller_path = Box::new(smaller_path);
        self
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
            for mut frame in burst.drain(..) {
                let bytes = io.packet_len(&frame);
                self.counters.received(socket, bytes);
                if let Some(slot) = vlan_slot(io, snapshot, socket, &mut frame) {
                    count(&tally.vlans_rx, slot, bytes);
                }
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
        // Messages to this node go to its kernel, or have ended at a SID that is the outer source too.
        if matches!(verdict, Verdict::Kernel(_) | Verdict::Drop(DropReason::UpperLayer)) {
            learned(&snapshot.tables, &packet).for_each(&mut self.smaller_path);
        }
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
                let vlan = way_out.and_then(|socket| vlan_slot(io, snapshot, socket, &mut frame));
                match send(io, way_out, frame) {
                    Ok(socket) => {
                        self.counters.sent(verdict, socket, bytes);
                        if let Some(slot) = vlan {
                            count(&tally.vlans_tx, slot, bytes);
                        }
                    }
                    Err(frame) => {
                        self.counters.not_sent(way_out);
                        self.drop_frame(io, frame, DropReason::TxFull);
                    }
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

/// The counters of the tagged port whose frame this is, if it is one.
#[inline]
fn vlan_slot<I: Io>(io: &I, snapshot: &Snapshot, socket: usize, frame: &mut I::Frame) -> Option<usize> {
    if snapshot.vlans.is_empty() {
        return None;
    }
    snapshot.vlan_slot(socket, io.packet(frame).bytes())
}

fn count(counts: &[Count], slot: usize, bytes: usize) {
    if let Some(count) = counts.get(slot) {
        count.add(bytes);
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
