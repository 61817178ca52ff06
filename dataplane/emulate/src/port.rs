//! The emulated port: its queue, its link, and the time at which each packet arrives at the other end.

use std::collections::VecDeque;

use crate::emulation::{Ecn, Emulation, NonEct};

/// A point in time, or a span of time, in picoseconds. 64 bits would only be enough for 213 days.
pub type Time = u128;

const PS_PER_SECOND: u128 = 1_000_000_000_000;
const PS_PER_NS: u128 = 1000;
const BITS: u128 = 8;
/// Time over which the load is an average.
const WINDOW: Time = PS_PER_SECOND / 10;

/// ECN field of a packet that does not support ECN.
const NOT_ECT: u8 = 0;
/// ECN field of a packet that met congestion.
const CE: u8 = 3;

/// The properties of a packet that decide about it in the port.
#[derive(Clone, Copy, Debug)]
pub struct Offered {
    /// Length of the frame in bytes, without FCS.
    pub len: usize,
    /// ECN field of the outermost IP header.
    pub ecn: u8,
    /// Random numbers: one for the mark and one for the loss.
    pub draws: [u32; 2],
}

/// Reason why a packet is dropped in the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The port is down.
    PortDown,
    /// The queue has no room for it.
    QueueFull,
    /// It should have been marked and does not support ECN.
    Wred,
    /// It got lost on the wire, after it had used the link.
    WireLoss,
}

/// Numbers of packets since the port was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that used the link.
    pub sent: u64,
    /// Bytes of these packets on the wire, overhead included.
    pub sent_bytes: u64,
    /// Packets that were marked with CE here.
    pub ce_marked: u64,
    /// Packets dropped because they should have been marked and do not support ECN.
    pub wred_dropped: u64,
    /// Packets dropped because the queue had no room.
    pub queue_full: u64,
    /// Packets that got lost on the wire.
    pub wire_loss: u64,
    /// Packets dropped because the port was down.
    pub port_down: u64,
    /// Largest depth of the queue in bytes, including the packet that arrived.
    pub peak_queue: u64,
}

impl Counts {
    /// Returns what has been counted since `before`. The peak is the largest one since the port was made.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            sent_bytes: self.sent_bytes - before.sent_bytes,
            ce_marked: self.ce_marked - before.ce_marked,
            wred_dropped: self.wred_dropped - before.wred_dropped,
            queue_full: self.queue_full - before.queue_full,
            wire_loss: self.wire_loss - before.wire_loss,
            port_down: self.port_down - before.port_down,
            peak_queue: self.peak_queue,
        }
    }
}

/// One packet on its way through the port.
#[derive(Clone, Debug)]
struct Queued<F> {
    /// Time at which its last bit is on the wire.
    sent: Time,
    /// Time at which it arrives at the other end.
    due: Time,
    frame: F,
}

/// A packet that has arrived at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released<F> {
    /// The packet.
    pub frame: F,
    /// Time between the packet's arrival at the other end and this release.
    pub late: Time,
}

/// An emulated port with packets of type `F`. Times that are handed in never go back.
#[derive(Clone, Debug)]
pub struct EmulatedLink<F> {
    emulation: Emulation,
    is_up: bool,
    /// Time at which the last bit of all packets is on the wire.
    free_at: Time,
    /// Remainder of the last division by the rate, in bits times picoseconds per second.
    remainder: u128,
    queued: VecDeque<Queued<F>>,
    counts: Counts,
    /// Time that all packets together take on the wire.
    taken: Time,
    load: Load,
}

/// Load of the link in the last window.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    since: Time,
    /// Time for which the link had been busy until `since`.
    busy: Time,
    permille: u64,
}

impl<F> EmulatedLink<F> {
    /// Creates a port that is up and has sent nothing.
    pub fn new(emulation: Emulation, now: Time) -> Self {
        Self {
            emulation,
            is_up: true,
            free_at: now,
            remainder: 0,
            queued: VecDeque::new(),
            counts: Counts::default(),
            taken: 0,
            load: Load { since: now, ..Load::default() },
        }
    }

    /// Returns the settings in force.
    pub fn emulation(&self) -> &Emulation {
        &self.emulation
    }

    /// Number of packets in the port.
    pub fn len(&self) -> usize {
        self.queued.len()
    }

    /// Returns true if there is no packet in the port.
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// Returns what has been counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the time at which the last bit of the packets so far is on the wire.
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// Number of bytes that are not yet on the wire, overhead included.
    pub fn depth(&self, now: Time) -> u64 {
        let bytes = self.backlog(now) * u128::from(self.emulation.rate) / (BITS * PS_PER_SECOND);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    fn backlog(&self, now: Time) -> Time {
        self.free_at.saturating_sub(now)
    }

    /// Takes a packet. `mark` writes CE into it. A refused packet is returned. It is unchanged unless it got lost on
    /// the wire.
    ///
    /// # Errors
    /// Returns the packet, and the reason why it was refused.
    pub fn offer(
        &mut self,
        now: Time,
        offered: Offered,
        mut frame: F,
        mark: impl FnOnce(&mut F),
    ) -> Result<(), (F, Refusal)> {
        let Offered { len, ecn, draws: [of_mark, of_loss] } = offered;
        let cost = len as u64 + u64::from(self.emulation.overhead);
        let depth = self.depth(now);
        if let Err(refusal) = self.admit(depth.saturating_add(cost)) {
            return Err((frame, refusal));
        }
        let is_congested = |rule: &Ecn| rule.chance(depth).happens(of_mark);
        match self.emulation.ecn.as_ref().filter(|rule| is_congested(rule)) {
            Some(Ecn { non_ect: NonEct::Drop, .. }) if ecn == NOT_ECT => {
                self.counts.wred_dropped += 1;
                return Err((frame, Refusal::Wred));
            }
            Some(_) if ecn != NOT_ECT && ecn != CE => {
                self.counts.ce_marked += 1;
                mark(&mut frame);
            }
            _ => {}
        }
        self.counts.peak_queue = self.counts.peak_queue.max(depth + cost);
        let sent = self.transmit(now, cost);
        if self.emulation.loss.happens(of_loss) {
            self.counts.wire_loss += 1;
            return Err((frame, Refusal::WireLoss));
        }
        let due = self.in_order(sent + u128::from(self.emulation.delay) * PS_PER_NS);
        self.queued.push_back(Queued { sent, due, frame });
        Ok(())
    }

    /// Refuses a packet if the queue has no room for it. `depth` is the depth of the queue with the packet.
    fn admit(&mut self, depth: u64) -> Result<(), Refusal> {
        if !self.is_up {
            self.counts.port_down += 1;
            return Err(Refusal::PortDown);
        }
        if depth > self.emulation.queue || self.queued.len() >= self.emulation.packets {
            self.counts.queue_full += 1;
            return Err(Refusal::QueueFull);
        }
        Ok(())
    }

    /// Uses the link for a packet. Returns the time at which its last bit is on the wire.
    fn transmit(&mut self, now: Time, cost: u64) -> Time {
        let rate = u128::from(self.emulation.rate);
        let bits = u128::from(cost) * BITS * PS_PER_SECOND + self.remainder;
        let time = bits / rate;
        self.remainder = bits % rate;
        self.free_at = self.free_at.max(now) + time;
        self.taken += time;
        self.counts.sent += 1;
        self.counts.sent_bytes += cost;
        self.free_at
    }

    /// Returns `due`, or the time of the last packet if that is later: a packet does not overtake another one, even if
    /// the delay has become shorter.
    fn in_order(&self, due: Time) -> Time {
        self.queued.back().map_or(due, |last| last.due.max(due))
    }

    /// Takes the next packet that has arrived at the other end.
    pub fn release(&mut self, now: Time) -> Option<Released<F>> {
        let due = self.next_release().filter(|due| *due <= now)?;
        let front = self.queued.pop_front()?;
        Some(Released { frame: front.frame, late: now - due })
    }

    /// Returns the time at which the next packet arrives at the other end.
    pub fn next_release(&self) -> Option<Time> {
        self.queued.front().map(|front| front.due)
    }

    /// Puts other settings in force. Packets stay; those that are not yet on the wire leave at the new rate.
    pub fn change(&mut self, emulation: Emulation, now: Time) {
        let old = std::mem::replace(&mut self.emulation, emulation);
        let scaled = |moment: Time| match moment.checked_sub(now) {
            Some(rest) => now + rest * u128::from(old.rate) / u128::from(emulation.rate),
            None => moment,
        };
        let backlog = self.backlog(now);
        self.free_at = scaled(self.free_at);
        self.taken = self.taken + self.backlog(now) - backlog;
        if old.rate != emulation.rate {
            self.remainder = 0;
        }
        let delay = u128::from(emulation.delay) * PS_PER_NS;
        let mut last = 0;
        for packet in &mut self.queued {
            if packet.sent > now {
                packet.sent = scaled(packet.sent);
                packet.due = packet.sent + delay;
            }
            packet.due = packet.due.max(last);
            last = packet.due;
        }
    }

    /// Returns true if the port takes packets.
    pub const fn is_up(&self) -> bool {
        self.is_up
    }

    /// Sets whether the port is up.
    pub fn set_up(&mut self, is_up: bool) {
        self.is_up = is_up;
    }

    /// Takes all packets out of the port, in their order, and forgets how long they would have taken. They stay counted as
    /// sent.
    pub fn take_all(&mut self, now: Time) -> impl Iterator<Item = F> + use<F> {
        self.taken -= self.backlog(now).min(self.taken);
        self.free_at = self.free_at.min(now);
        self.remainder = 0;
        std::mem::take(&mut self.queued).into_iter().map(|packet| packet.frame)
    }

    /// Like [`take_all`](Self::take_all), for a port that has gone: the packets are counted as dropped.
    pub fn drop_all(&mut self, now: Time) -> impl Iterator<Item = F> + use<F> {
        self.counts.port_down += self.queued.len() as u64;
        self.take_all(now)
    }

    /// Returns the share of the last complete tenth of a second for which the link was busy, in permille.
    pub fn load(&mut self, now: Time) -> u64 {
        let span = now.saturating_sub(self.load.since);
        if span >= WINDOW {
            let busy = self.taken - self.backlog(now).min(self.taken);
            let permille = busy.saturating_sub(self.load.busy) * 1000 / span;
            self.load = Load { since: now, busy, permille: u64::try_from(permille).unwrap_or(1000).min(1000) };
        }
        self.load.permille
    }

    /// Returns the time at which [`load`](Self::load) has to be called again. `None`: the load is 0 until a packet arrives.
    pub fn next_sample(&self) -> Option<Time> {
        let is_idle = self.load.permille == 0 && self.taken == self.load.busy;
        (!is_idle).then_some(self.load.since + WINDOW)
    }
}
