//! One round of a worker: receive, forward, send.

use std::net::IpAddr;
use std::sync::Arc;

use srv6d_srv6::model::PortId;
use srv6d_srv6::tally::Count;
use srv6d_srv6::{DropReason, Limiter, LookUps, PathMtu, Tally, Verdict, forward_straight, learned, walk};

use crate::capture::{self, Sink, Taps};
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
    look_ups: LookUps,
    verdicts: Vec<Verdict>,
    generation: u64,
    wanted: Box<dyn FnMut(PortId, IpAddr) + Send>,
    smaller_path: Box<dyn FnMut(PathMtu) + Send>,
    taps: Arc<Taps>,
}

/// What all packets of a round share.
struct Round<'s> {
    snapshot: &'s Snapshot,
    tally: &'s Tally,
    now: u64,
    /// Those who look at packets; almost always nobody.
    taps: Option<Arc<Vec<Sink>>>,
}

/// Where a packet came in, and when.
#[derive(Clone, Copy)]
struct Arrival {
    socket: usize,
    since: u64,
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
            look_ups: LookUps::with_capacity(BURST),
            verdicts: Vec::with_capacity(BURST),
            generation: 0,
            wanted: Box::new(wanted),
            smaller_path: Box::new(|_| {}),
            taps: Arc::default(),
        }
    }

    /// Where copies of packets are left for whoever looks.
    #[must_use]
    pub fn tapped(mut self, taps: Arc<Taps>) -> Self {
        self.taps = taps;
        self
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
        let round = Round { snapshot, tally, now, taps: self.taps.looking() };
        if snapshot.generation != self.generation {
            self.generation = snapshot.generation;
            self.retry_held(io, &round);
        }
        if self.held.len() > 0 {
            for frame in self.held.take_expired(now) {
                self.drop_frame(io, frame, DropReason::NoNeigh);
            }
            self.counters.set_held(self.held.len());
        }
        let received = (0..io.sockets()).map(|socket| self.burst(io, &round, socket)).sum();
        if received > 0 {
            (0..io.sockets()).for_each(|socket| io.flush(socket));
        }
        received
    }

    /// Everything one socket has received, [`BURST`] packets at most, in three passes: look up, write, send. Look-ups that
    /// do not wait for anything else fetch their cache lines at the same time, and so do writes.
    fn burst(&mut self, io: &mut I, round: &Round<'_>, socket: usize) -> usize {
        let mut burst = std::mem::take(&mut self.burst);
        io.receive(socket, BURST, &mut burst);
        let received = burst.len();
        if received > 0 {
            self.count_received(io, round, socket, &mut burst);
            if let Some(taps) = &round.taps {
                for frame in &mut burst {
                    copy(io, taps, socket, false, frame);
                }
            }
            let mut verdicts = std::mem::take(&mut self.verdicts);
            self.forward(io, round, socket, &mut burst, &mut verdicts);
            let came = Arrival { socket, since: round.now };
            self.leave(io, round, came, burst.drain(..).zip(verdicts.drain(..)));
            self.verdicts = verdicts;
        }
        self.burst = burst;
        received
    }

    fn count_received(&self, io: &I, round: &Round<'_>, socket: usize, burst: &mut [I::Frame]) {
        self.counters.received(socket, burst.len(), burst.iter().map(|frame| io.packet_len(frame)).sum());
        if round.snapshot.vlans.is_empty() {
            return;
        }
        for frame in burst {
            if let Some(slot) = vlan_slot(io, round.snapshot, socket, frame) {
                count(&round.tally.vlans_rx, slot, io.packet_len(frame));
            }
        }
    }

    /// Tables have changed: what waited gets another chance.
    fn retry_held(&mut self, io: &mut I, round: &Round<'_>) {
        for (socket, since, mut frame) in self.held.take_all() {
            let mut verdicts = std::mem::take(&mut self.verdicts);
            self.forward(io, round, socket, std::slice::from_mut(&mut frame), &mut verdicts);
            let verdict = verdicts.pop().unwrap_or(Verdict::Drop(DropReason::NoNeigh));
            self.leave(io, round, Arrival { socket, since }, std::iter::once((frame, verdict)));
            self.verdicts = verdicts;
        }
        self.counters.set_held(self.held.len());
        (0..io.sockets()).for_each(|socket| io.flush(socket));
    }

    /// Decides, and writes the packets as they will leave.
    fn forward(
        &mut self,
        io: &I,
        round: &Round<'_>,
        socket: usize,
        frames: &mut [I::Frame],
        verdicts: &mut Vec<Verdict>,
    ) {
        let tables = &round.snapshot.tables;
        let Some(port) = round.snapshot.port_of.get(socket).copied().flatten() else {
            return verdicts.extend(frames.iter().map(|_| Verdict::Drop(DropReason::TxFull)));
        };
        for frame in &mut *frames {
            self.look_ups.read(tables, port, &io.packet(frame));
        }
        for (frame, found) in frames.iter_mut().zip(self.look_ups.find(tables, port)) {
            let mut packet = io.packet(frame);
            if let Some(port) = forward_straight(tables, round.tally, &mut packet, found) {
                let (head, keep_tail) = (packet.settle(), packet.tail_len() > 0);
                io.resize(frame, head, keep_tail);
                verdicts.push(Verdict::Tx(port));
            } else {
                verdicts.push(walked(io, round, port, frame, &mut self.limiter, &mut self.smaller_path));
            }
        }
    }

    /// Lets packets go where they were found to go.
    fn leave(
        &mut self,
        io: &mut I,
        round: &Round<'_>,
        came: Arrival,
        packets: impl Iterator<Item = (I::Frame, Verdict)>,
    ) {
        for (frame, verdict) in packets {
            match verdict {
                Verdict::Drop(reason) => {
                    self.counters.refused(came.socket);
                    self.drop_frame(io, frame, reason);
                }
                Verdict::Hold(port, neighbor) => self.hold(io, (port, neighbor), came, frame),
                Verdict::Tx(port) | Verdict::Kernel(port) | Verdict::Error(_, port) | Verdict::Echo(port) => {
                    self.send(io, round, port, frame, verdict);
                }
            }
        }
    }

    #[inline]
    fn send(&mut self, io: &mut I, round: &Round<'_>, port: u16, mut frame: I::Frame, verdict: Verdict) {
        let way_out = round.snapshot.socket_of.get(usize::from(port)).copied().flatten();
        let bytes = io.packet_len(&frame);
        let vlan = way_out.and_then(|socket| vlan_slot(io, round.snapshot, socket, &mut frame));
        if let (Some(taps), Some(socket)) = (&round.taps, way_out) {
            copy(io, taps, socket, true, &mut frame);
        }
        match send(io, way_out, frame) {
            Ok(socket) => {
                self.counters.sent(verdict, socket, bytes);
                if let Some(slot) = vlan {
                    count(&round.tally.vlans_tx, slot, bytes);
                }
            }
            Err(frame) => {
                self.counters.not_sent(way_out);
                self.drop_frame(io, frame, DropReason::TxFull);
            }
        }
    }

    #[cold]
    fn hold(&mut self, io: &mut I, neighbor: (PortId, IpAddr), came: Arrival, frame: I::Frame) {
        let (port, address) = neighbor;
        (self.wanted)(port, address);
        match self.held.keep(frame, came.socket, neighbor, came.since) {
            Ok(()) => self.counters.set_held(self.held.len()),
            Err(frame) => {
                self.counters.refused(came.socket);
                self.drop_frame(io, frame, DropReason::NoNeigh);
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

#[cold]
fn copy<I: Io>(io: &I, taps: &[Sink], socket: usize, sent: bool, frame: &mut I::Frame) {
    let length = io.packet_len(frame);
    capture::copy(taps, socket, sent, io.packet(frame).bytes(), length);
}

/// The long way, which every packet can take.
#[inline(never)]
fn walked<I: Io>(
    io: &I,
    round: &Round<'_>,
    port: u16,
    frame: &mut I::Frame,
    limiter: &mut Limiter,
    smaller_path: &mut dyn FnMut(PathMtu),
) -> Verdict {
    let tables = &round.snapshot.tables;
    let mut packet = io.packet(frame);
    let verdict = walk(tables, round.tally, limiter, round.now, port, &mut packet);
    // Messages to this node go to its kernel, or have ended at a SID that is the outer source too.
    if matches!(verdict, Verdict::Kernel(_) | Verdict::Drop(DropReason::UpperLayer)) {
        learned(tables, &packet).for_each(smaller_path);
    }
    let (head, keep_tail) = (packet.settle(), packet.tail_len() > 0);
    io.resize(frame, head, keep_tail);
    verdict
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
