//! One round of a worker: receive, forward, send.

use std::net::IpAddr;
use std::sync::Arc;

use srv6d_balance::{FarPorts, Sample};
use srv6d_srv6::desired::PortId;
use srv6d_srv6::tally::Count;
use srv6d_srv6::{
    DropReason, Leaving, LookUpResult, LookUps, PathMtu, SlowState, Tally, Verdict, comes_from_domain, give_up,
    learned, slow_path, write_burst, write_one,
};

use srv6d_wire::{ecn, eth};

use crate::capture::{Fate, Looking, Taps};
use crate::counters::WorkerCounters;
use crate::drops::Place;
use crate::emulated::{Due, EmulatedPorts, Queued};
use crate::hand_over::HandOvers;
use crate::held::{Held, Waiting};
use crate::io::Io;
use crate::left_right::Snapshot;
use crate::sampling::Sampling;
use crate::workload::{Stage, Stopwatch};

/// Largest number of packets received from one port at a time.
pub const BURST: usize = 64;

/// Largest number of packets that may wait for their next hops, unless [`Step::holding`] sets another one.
const HELD: usize = 1024;

/// Returns the look-ups of a worker: for bursts, with a destination cache, in a huge page if the kernel has one.
pub fn look_ups() -> LookUps {
    let look_ups = LookUps::with_capacity(BURST).cached();
    srv6d_xsk::in_huge_pages(look_ups.cache());
    look_ups
}

/// The state that a worker keeps between rounds.
pub struct Step<I: Io> {
    worker: usize,
    counters: Arc<WorkerCounters>,
    slow: SlowState,
    sampling: Sampling,
    held: Held<I::Frame>,
    emulated: EmulatedPorts<I::Frame>,
    burst: Vec<I::Frame>,
    /// Packets of the own veth that have arrived on one port.
    arrived: Vec<I::Frame>,
    look_ups: LookUps,
    runs: Vec<Run>,
    revision: u64,
    wanted: Box<dyn FnMut(PortId, IpAddr) + Send>,
    smaller_path: Box<dyn FnMut(PathMtu) + Send>,
    taps: Arc<Taps>,
    hand_overs: Arc<HandOvers>,
    stopwatch: Stopwatch,
}

/// The values that all packets of a round share.
struct Round<'s> {
    snapshot: &'s Snapshot,
    tally: &'s Tally,
    now: u64,
    /// The open captures. There are almost never any.
    taps: Option<Looking>,
}

/// Socket and time of a packet's arrival.
#[derive(Clone, Copy)]
struct Arrival {
    socket: usize,
    since: u64,
}

/// A run: consecutive packets with one verdict, which are sent and counted together. A burst is usually one run.
struct Run {
    verdict: Verdict,
    /// Slot of the port that the packets leave through, if it is a tagged one.
    vlan: Option<usize>,
    packets: usize,
    bytes: usize,
}

impl<I: Io> Step<I> {
    /// Creates a worker's step. `wanted` is called for every next hop that a packet waits for.
    pub fn new(
        worker: usize,
        counters: Arc<WorkerCounters>,
        wanted: impl FnMut(PortId, IpAddr) + Send + 'static,
    ) -> Self {
        Self {
            worker,
            counters,
            slow: SlowState::default(),
            sampling: Sampling::default(),
            held: Held::with_room(HELD),
            emulated: EmulatedPorts::default(),
            burst: Vec::with_capacity(BURST),
            arrived: Vec::with_capacity(BURST),
            look_ups: look_ups(),
            runs: Vec::with_capacity(BURST),
            revision: 0,
            wanted: Box::new(wanted),
            smaller_path: Box::new(|_| {}),
            taps: Arc::default(),
            hand_overs: Arc::default(),
            stopwatch: Stopwatch::default(),
        }
    }

    /// Sets the place where the step finds open captures.
    #[must_use]
    pub fn tapped(mut self, taps: Arc<Taps>) -> Self {
        self.taps = taps;
        self
    }

    /// Sets the place where the step finds whether an XDP program takes over.
    #[must_use]
    pub fn handing_over(mut self, hand_overs: Arc<HandOvers>) -> Self {
        self.hand_overs = hand_overs;
        self
    }

    /// Sets the largest number of packets that wait for their next hops.
    #[must_use]
    pub fn holding(mut self, packets: usize) -> Self {
        self.held = Held::with_room(packets);
        self
    }

    /// Sets the source of the states of ports behind neighbours.
    #[must_use]
    pub fn seeing_far(mut self, far: Arc<FarPorts>) -> Self {
        self.slow.balancer.set_far(far);
        self
    }

    /// Sets the function that is called for every path whose MTU a Packet Too Big reduces.
    #[must_use]
    pub fn on_smaller_path(mut self, smaller_path: impl FnMut(PathMtu) + Send + 'static) -> Self {
        self.smaller_path = Box::new(smaller_path);
        self
    }

    /// Number of packets that wait for a next hop.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Number of packets in emulated ports.
    pub fn queued(&self) -> usize {
        self.emulated.queued()
    }

    /// Returns the time at which a round is needed even if nothing is received, by the clock of [`round`](Self::round).
    pub fn next_event(&self) -> Option<u64> {
        self.emulated.next_event()
    }

    /// Makes one round over all sockets at `now` (nanoseconds of a clock that never goes back). Returns the number of
    /// packets received.
    pub fn round(&mut self, io: &mut I, snapshot: &Snapshot, now: u64) -> usize {
        let Some(tally) = snapshot.tallies.get(self.worker) else { return 0 };
        let round = Round { snapshot, tally, now, taps: self.taps.looking() };
        if snapshot.revision != self.revision {
            self.revision = snapshot.revision;
            if !self.emulated.is_empty() || !snapshot.wiring.emulated.is_empty() {
                self.follow_emulation(io, &round);
            }
            self.follow_balancing(&round);
            self.retry_held(io, &round);
        }
        if self.sampling.is_due(now) {
            self.sample(now);
        }
        if !self.emulated.is_empty() {
            self.release(io, &round);
        }
        if self.held.len() > 0 {
            self.give_up_expired(io, &round);
        }
        self.stopwatch.begin();
        let (mut received, mut is_full) = (0, false);
        for socket in 0..io.sockets() {
            let packets = self.burst(io, &round, socket);
            received += packets;
            is_full |= packets == BURST;
        }
        if received > 0 {
            (0..io.sockets()).for_each(|socket| io.flush(socket));
            self.stopwatch.mark(Stage::Send);
            self.counters.workload().round(is_full);
        }
        self.stopwatch.end(received, self.counters.workload());
        if let Some(taps) = round.taps {
            taps.deliver();
        }
        if let Some(number) = self.hand_overs.under_way(snapshot.revision) {
            io.finish(number);
        }
        received
    }

    /// Counters of the worker.
    pub(crate) fn counters(&self) -> &WorkerCounters {
        &self.counters
    }

    /// Forwards what one socket has received, [`BURST`] packets at most, in three passes: look up, write, send.
    /// Independent look-ups fetch their cache lines at the same time, and so do writes.
    fn burst(&mut self, io: &mut I, round: &Round<'_>, socket: usize) -> usize {
        let mut burst = std::mem::take(&mut self.burst);
        io.receive(socket, BURST, &mut burst);
        self.stopwatch.mark(Stage::Receive);
        let received = burst.len();
        if received > 0 {
            if round.snapshot.wiring.own_veth == Some(socket) {
                self.forward_by_origin(io, round, socket, &mut burst);
            } else {
                self.forward(io, round, socket, &mut burst);
            }
        }
        self.burst = burst;
        received
    }

    fn forward(&mut self, io: &mut I, round: &Round<'_>, socket: usize, burst: &mut Vec<I::Frame>) {
        self.count_received(io, round, socket, burst);
        if let Some(taps) = &round.taps {
            self.write_watched(io, round, taps, socket, burst);
        } else {
            self.write(io, round, socket, burst);
        }
        self.send(io, round, Arrival { socket, since: round.now }, &mut burst.drain(..));
        self.stopwatch.mark(Stage::Send);
    }

    /// Forwards what the own veth has received: packets of applications, and those that a tc program has claimed on other
    /// ports. The latter are forwarded as received by their ports.
    fn forward_by_origin(&mut self, io: &mut I, round: &Round<'_>, own_veth: usize, burst: &mut Vec<I::Frame>) {
        let is_claimed = |frame: &mut I::Frame| round.snapshot.arrived_on(io.packet(frame).bytes()).is_some();
        if !burst.iter_mut().any(is_claimed) {
            return self.forward(io, round, own_veth, burst);
        }
        let (mut socket, mut of_socket) = (own_veth, std::mem::take(&mut self.arrived));
        for mut frame in burst.drain(..) {
            let origin = take_origin(io, round, &mut frame).unwrap_or(own_veth);
            if origin != socket && !of_socket.is_empty() {
                self.forward(io, round, socket, &mut of_socket);
            }
            socket = origin;
            of_socket.push(frame);
        }
        self.forward(io, round, socket, &mut of_socket);
        self.arrived = of_socket;
    }

    fn count_received(&self, io: &I, round: &Round<'_>, socket: usize, burst: &mut [I::Frame]) {
        self.counters.received(socket, burst.len(), burst.iter().map(|frame| io.packet_len(frame)).sum());
        if !round.snapshot.has_vlans(socket) {
            return;
        }
        for frame in burst {
            if let Some(slot) = round.snapshot.vlan_slot(socket, io.packet(frame).bytes()) {
                count(&round.tally.vlans_rx, slot, 1, io.packet_len(frame));
            }
        }
    }

    /// Forwards the waiting packets again, because the tables have changed.
    fn retry_held(&mut self, io: &mut I, round: &Round<'_>) {
        for Waiting { socket, since, mut frame, .. } in self.held.take_all() {
            self.write(io, round, socket, std::slice::from_mut(&mut frame));
            self.send(io, round, Arrival { socket, since }, &mut std::iter::once(frame));
        }
        self.held.forget_resolved();
        self.counters.set_held(self.held.len());
        (0..io.sockets()).for_each(|socket| io.flush(socket));
    }

    /// Handles the held packets whose time is over: drops them, or answers them if the policy says so.
    fn give_up_expired(&mut self, io: &mut I, round: &Round<'_>) {
        let expired = self.held.take_expired(round.now);
        if expired.is_empty() {
            return;
        }
        for Waiting { socket, since, mut frame, .. } in expired {
            let verdict = given_up(io, round, socket, &mut frame, &mut self.slow);
            note_refused(io, round, &self.counters, socket, verdict, &mut frame);
            let vlan = watch(io, round, verdict, &mut frame);
            self.runs.push(Run { verdict, vlan, packets: 1, bytes: io.packet_len(&frame) });
            self.send(io, round, Arrival { socket, since }, &mut std::iter::once(frame));
        }
        self.counters.set_held(self.held.len());
        (0..io.sockets()).for_each(|socket| io.flush(socket));
    }

    /// Like [`write`](Self::write), while a capture is open: copies the packets, and says what becomes of each.
    #[cold]
    fn write_watched(&mut self, io: &I, round: &Round<'_>, taps: &Looking, socket: usize, frames: &mut [I::Frame]) {
        let first = taps.copies();
        for frame in frames.iter_mut() {
            copy(io, taps, socket, false, frame);
        }
        self.write(io, round, socket, frames);
        let socket_of = |port: u16| round.snapshot.wiring.socket_of.get(usize::from(port)).copied().flatten();
        let fates = self.runs.iter().flat_map(|run| std::iter::repeat_n(Fate::of(run.verdict, socket_of), run.packets));
        taps.decided(first, fates);
    }

    /// Looks the packets up and writes them as they will leave: on the fast path if they are plain, otherwise on the
    /// slow path.
    fn write(&mut self, io: &I, round: &Round<'_>, socket: usize, frames: &mut [I::Frame]) {
        let tables = &round.snapshot.tables;
        let Some(port) = round.snapshot.wiring.port_of.get(socket).copied().flatten() else {
            // The port has gone, and its socket is about to be closed. Whatever has no socket is counted like this.
            let verdict = Verdict::Drop(DropReason::TxFull);
            for frame in frames.iter_mut() {
                note_refused(io, round, &self.counters, socket, verdict, frame);
            }
            return self.runs.push(Run { verdict, vlan: None, packets: frames.len(), bytes: 0 });
        };
        let (found, mut inside) = self.look_ups.look_up(tables, port, io, frames);
        self.stopwatch.mark(Stage::LookUp);
        let is_tapped = round.taps.is_some();
        let mut done = 0;
        while let (Some(frames), Some(found)) = (frames.get_mut(done..), found.get(done..)) {
            let mut plain = 0;
            if !is_tapped {
                let leave = |leaving| join(&mut self.runs, leaving);
                plain = write_burst(tables, round.tally, io, frames, found, &mut inside, leave);
            }
            let (Some(frame), Some(&found)) = (frames.get_mut(plain), found.get(plain)) else { break };
            let written = if is_tapped { write_tapped(io, round, frame, found) } else { None };
            let verdict = written.map_or_else(
                || write_slow(io, round, port, frame, &mut self.slow, &mut self.smaller_path),
                Verdict::Tx,
            );
            note_refused(io, round, &self.counters, socket, verdict, frame);
            let vlan = watch(io, round, verdict, frame);
            self.runs.push(Run { verdict, vlan, packets: 1, bytes: io.packet_len(frame) });
            done += plain + 1;
        }
        self.stopwatch.mark(Stage::Write);
    }

    /// Sends, queues, holds or drops packets as decided, run by run.
    fn send(&mut self, io: &mut I, round: &Round<'_>, came: Arrival, frames: &mut impl Iterator<Item = I::Frame>) {
        let mut runs = std::mem::take(&mut self.runs);
        for mut run in runs.drain(..) {
            let mut frames = frames.take(run.packets);
            let way_out = match run.verdict {
                Verdict::Tx(port) | Verdict::Kernel(port) | Verdict::Error(_, port) | Verdict::Echo(port) => {
                    round.snapshot.wiring.socket_of.get(usize::from(port)).copied().flatten()
                }
                Verdict::Drop(reason) => {
                    for frame in frames {
                        self.counters.refused(came.socket);
                        self.discard(io, frame, reason);
                    }
                    continue;
                }
                Verdict::Hold(port, neighbor) => {
                    frames.for_each(|frame| self.hold(io, round.now, (port, neighbor), came, frame));
                    continue;
                }
            };
            let Some(way_out) = way_out else {
                let place = Place { now: round.now, socket: came.socket, is_leaving: true };
                frames.for_each(|frame| self.drop_frame(io, place, frame, DropReason::TxFull));
                continue;
            };
            if self.emulated.has(way_out) {
                self.enqueue(io, round, way_out, &run, &mut frames);
                continue;
            }
            while let Err(frame) = io.send(way_out, &mut frames) {
                self.send_again(io, round, way_out, &mut run, frame);
            }
            self.count_sent(round, way_out, &run);
        }
        self.runs = runs;
    }

    /// Sends a packet of a run that found a full ring: the ring is flushed once. If the packet still does not fit, it is
    /// dropped.
    #[cold]
    fn send_again(&self, io: &mut I, round: &Round<'_>, way_out: usize, run: &mut Run, frame: I::Frame) {
        io.flush(way_out);
        if let Err(frame) = io.send(way_out, &mut std::iter::once(frame)) {
            run.packets -= 1;
            run.bytes -= io.packet_len(&frame);
            self.counters.not_sent(way_out);
            let place = Place { now: round.now, socket: way_out, is_leaving: true };
            self.drop_frame(io, place, frame, DropReason::TxFull);
        }
    }

    #[inline]
    fn count_sent(&self, round: &Round<'_>, way_out: usize, run: &Run) {
        self.counters.sent(run.verdict, way_out, run.packets, run.bytes);
        if let Some(slot) = run.vlan {
            count(&round.tally.vlans_tx, slot, run.packets, run.bytes);
        }
    }

    /// Puts the packets of a run into the emulated port that they leave through.
    #[inline(never)]
    fn enqueue(
        &mut self,
        io: &mut I,
        round: &Round<'_>,
        way_out: usize,
        &Run { verdict, vlan, .. }: &Run,
        frames: &mut impl Iterator<Item = I::Frame>,
    ) {
        for mut frame in frames {
            let seen = (io.packet_len(&frame), ecn::of(io.packet(&mut frame).bytes()));
            let mark = |frame: &mut I::Frame| ecn::set_ce(io.packet(frame).bytes_mut());
            let queued = Queued { frame, verdict, vlan };
            if let Err((frame, reason)) = self.emulated.offer(way_out, round.now, seen, queued, mark) {
                let place = Place { now: round.now, socket: way_out, is_leaving: true };
                self.drop_frame(io, place, frame, reason);
            }
        }
        self.count_queue(way_out, round.now);
    }

    /// Sends the packets that have arrived at the other end of their emulated ports.
    #[inline(never)]
    fn release(&mut self, io: &mut I, round: &Round<'_>) {
        for socket in self.emulated.sockets() {
            let mut is_any = false;
            while let Some(Due { queued, late }) = self.emulated.release(socket, round.now) {
                self.counters.released(socket, late);
                self.send_queued(io, round, socket, queued);
                is_any = true;
            }
            if is_any {
                io.flush(socket);
            }
            self.count_queue(socket, round.now);
        }
    }

    fn send_queued(&self, io: &mut I, round: &Round<'_>, socket: usize, mut queued: Queued<I::Frame>) {
        if let Some(taps) = &round.taps {
            copy(io, taps, socket, true, &mut queued.frame);
        }
        let Queued { frame, verdict, vlan } = queued;
        let mut run = Run { verdict, vlan, packets: 1, bytes: io.packet_len(&frame) };
        if let Err(frame) = io.send(socket, &mut std::iter::once(frame)) {
            self.send_again(io, round, socket, &mut run, frame);
        }
        self.count_sent(round, socket, &run);
    }

    /// Applies the emulated ports of new tables.
    #[cold]
    fn follow_emulation(&mut self, io: &mut I, round: &Round<'_>) {
        for socket in self.emulated.sockets() {
            self.count_queue(socket, round.now);
        }
        let changed = self.emulated.follow(round.snapshot, round.now);
        for (socket, frame) in changed.dropped {
            let place = Place { now: round.now, socket, is_leaving: true };
            self.drop_frame(io, place, frame, DropReason::PortDown);
        }
        for (socket, queued) in changed.to_send {
            for queued in queued {
                self.send_queued(io, round, socket, queued);
            }
            io.flush(socket);
            self.count_queue(socket, round.now);
        }
    }

    /// Applies the policies of new tables.
    fn follow_balancing(&mut self, round: &Round<'_>) {
        self.slow.balancer.follow(&round.snapshot.tables, self.worker as u64);
        self.sampling.follow(round.snapshot, round.now, |socket| match self.emulated.shown(socket, round.now) {
            Some((sent_bytes, _)) => sent_bytes,
            None => self.counters.sent_bytes(socket),
        });
    }

    /// Samples how busy the ports are.
    #[inline(never)]
    fn sample(&mut self, now: u64) {
        let (emulated, counters) = (&self.emulated, &self.counters);
        self.sampling.sample(now, &mut self.slow.balancer, counters, |socket| match emulated.shown(socket, now) {
            Some((sent_bytes, queue)) => Sample { sent_bytes, queue },
            None => Sample { sent_bytes: counters.sent_bytes(socket), queue: 0 },
        });
    }

    fn count_queue(&mut self, socket: usize, now: u64) {
        self.counters.set_queue(socket, &self.emulated.state(socket, now));
        self.counters.set_queued(self.emulated.queued());
    }

    /// Drops the packets that wait in the emulated port of a socket, because the socket is closed.
    pub fn close_queue(&mut self, io: &mut I, socket: usize, now: u64) {
        let place = Place { now, socket, is_leaving: true };
        for frame in self.emulated.close(socket, now) {
            self.drop_frame(io, place, frame, DropReason::PortDown);
        }
        self.count_queue(socket, now);
    }

    /// Drops all packets in emulated ports and gives their frames back to the packet memory.
    pub fn abandon_queued(&mut self, io: &mut I, now: u64) {
        for frame in self.emulated.drop_all(now) {
            self.discard(io, frame, DropReason::PortDown);
        }
        self.emulated.sockets().for_each(|socket| self.count_queue(socket, now));
    }

    #[cold]
    fn hold(&mut self, io: &mut I, now: u64, neighbor: (PortId, IpAddr), came: Arrival, frame: I::Frame) {
        if let Some(Waiting { frame, socket, .. }) = self.held.keep(frame, came.socket, neighbor, came.since) {
            self.counters.refused(socket);
            self.drop_frame(io, Place { now, socket, is_leaving: false }, frame, DropReason::NoNeigh);
        }
        if self.held.is_to_be_told(neighbor, now) {
            (self.wanted)(neighbor.0, neighbor.1);
        }
        self.counters.set_held(self.held.len());
    }

    /// Drops a frame and notes it for `show drops`.
    #[cold]
    fn drop_frame(&self, io: &mut I, place: Place, mut frame: I::Frame, reason: DropReason) {
        let length = io.packet_len(&frame);
        self.counters.note_dropped(reason, place, io.packet(&mut frame).bytes(), length);
        self.discard(io, frame, reason);
    }

    /// Drops a frame without a note, because it has been noted already or the reason says everything.
    fn discard(&self, io: &mut I, frame: I::Frame, reason: DropReason) {
        self.counters.dropped(reason);
        io.recycle(frame);
    }

    /// Drops all held packets and gives their frames back to the packet memory.
    pub fn abandon_held(&mut self, io: &mut I) {
        for Waiting { frame, socket, .. } in self.held.take_all() {
            self.counters.refused(socket);
            self.discard(io, frame, DropReason::NoNeigh);
        }
        self.held.forget_resolved();
        self.counters.set_held(0);
    }
}

/// Returns the socket of the port that a packet of the own veth has arrived on, and removes the tag that names it.
fn take_origin<I: Io>(io: &I, round: &Round<'_>, frame: &mut I::Frame) -> Option<usize> {
    let mut packet = io.packet(frame);
    let socket = round.snapshot.arrived_on(packet.bytes())?;
    packet.cut(eth::TYPE_AT, eth::TAG_LEN);
    let (at, keep_tail) = (packet.extent(), packet.tail_len() > 0);
    io.place(frame, at, keep_tail);
    Some(socket)
}

#[cold]
fn copy<I: Io>(io: &I, taps: &Looking, socket: usize, sent: bool, frame: &mut I::Frame) {
    let length = io.packet_len(frame);
    taps.copy(socket, sent, io.packet(frame).bytes(), length);
}

/// Notes a received packet for `show drops` if the verdict is to drop it.
#[inline]
fn note_refused<I: Io>(
    io: &I,
    round: &Round<'_>,
    counters: &WorkerCounters,
    socket: usize,
    verdict: Verdict,
    frame: &mut I::Frame,
) {
    if let Verdict::Drop(reason) = verdict {
        let length = io.packet_len(frame);
        let place = Place { now: round.now, socket, is_leaving: false };
        counters.note_dropped(reason, place, io.packet(frame).bytes(), length);
    }
}

/// Writes one packet on the fast path while a capture is open: then packets are written one by one.
#[inline(never)]
fn write_tapped<I: Io>(io: &I, round: &Round<'_>, frame: &mut I::Frame, found: LookUpResult) -> Option<u16> {
    let mut packet = io.packet(frame);
    let device = write_one(&round.snapshot.tables, round.tally, &mut packet, found)?;
    let (at, tail) = (packet.extent(), packet.tail_len());
    io.place(frame, at, tail > 0);
    Some(device)
}

/// Writes one packet on the slow path, which handles packets of every kind.
#[inline(never)]
fn write_slow<I: Io>(
    io: &I,
    round: &Round<'_>,
    port: u16,
    frame: &mut I::Frame,
    state: &mut SlowState,
    smaller_path: &mut dyn FnMut(PathMtu),
) -> Verdict {
    let tables = &round.snapshot.tables;
    let (mut packet, further) = io.packet_and_further(frame);
    let is_of_domain = comes_from_domain(tables, port, packet.bytes());
    let verdict = slow_path(tables, round.tally, state, round.now, port, &mut packet, &further);
    // A Packet Too Big about an outer packet is addressed to this node. It goes to the kernel, or ends at a SID whose
    // address is the outer source.
    if matches!(verdict, Verdict::Kernel(_) | Verdict::Drop(DropReason::UpperLayer)) {
        learned(tables, &packet, is_of_domain).for_each(smaller_path);
    }
    let (at, keep_tail) = (packet.extent(), packet.tail_len() > 0);
    drop(further);
    io.place(frame, at, keep_tail);
    verdict
}

/// Returns the verdict on a packet whose neighbour did not resolve in time.
fn given_up<I: Io>(io: &I, round: &Round<'_>, socket: usize, frame: &mut I::Frame, state: &mut SlowState) -> Verdict {
    let Some(port) = round.snapshot.wiring.port_of.get(socket).copied().flatten() else {
        return Verdict::Drop(DropReason::NoNeigh);
    };
    let (mut packet, further) = io.packet_and_further(frame);
    let verdict = give_up(&round.snapshot.tables, round.tally, state, round.now, port, &mut packet, &further);
    let (at, keep_tail) = (packet.extent(), packet.tail_len() > 0);
    drop(further);
    io.place(frame, at, keep_tail);
    verdict
}

/// Copies a packet that leaves to open captures, unless it has to wait in an emulated port first. Returns the counter
/// slot of the tagged port that it leaves through. Packets that leave in a burst do not come here: no capture is open
/// then, and the fast path writes no tags.
fn watch<I: Io>(io: &I, round: &Round<'_>, verdict: Verdict, frame: &mut I::Frame) -> Option<usize> {
    let (Verdict::Tx(port) | Verdict::Kernel(port) | Verdict::Error(_, port) | Verdict::Echo(port)) = verdict else {
        return None;
    };
    let way_out = round.snapshot.wiring.socket_of.get(usize::from(port)).copied().flatten()?;
    if let Some(taps) = round.taps.as_ref().filter(|_| !round.snapshot.is_emulated(way_out)) {
        copy(io, taps, way_out, true, frame);
    }
    round.snapshot.vlan_slot(way_out, io.packet(frame).bytes())
}

/// Adds packets to the last run if they leave through the same device. Otherwise begins a new run.
fn join(runs: &mut Vec<Run>, Leaving { device, packets, bytes }: Leaving) {
    match runs.last_mut() {
        Some(run) if matches!(run.verdict, Verdict::Tx(known) if known == device) => {
            run.packets += packets;
            run.bytes += bytes;
        }
        _ => runs.push(Run { verdict: Verdict::Tx(device), vlan: None, packets, bytes }),
    }
}

fn count(counts: &[Count], slot: usize, packets: usize, bytes: usize) {
    if let Some(count) = counts.get(slot) {
        count.add(packets, bytes);
    }
}
