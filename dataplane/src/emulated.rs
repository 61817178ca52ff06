//! The emulated ports of a worker. Packets wait in them between the verdict and the socket.

use srv6d_emulate::{Counts, Draws, EmulatedLink, Emulation, Offered, Refusal, Time};
use srv6d_srv6::{DropReason, Verdict};

use crate::left_right::Snapshot;

const PS_PER_NS: Time = 1000;

/// One packet in an emulated port.
#[derive(Debug)]
pub(crate) struct Queued<F> {
    /// The packet, as it will leave.
    pub(crate) frame: F,
    /// The verdict about it.
    pub(crate) verdict: Verdict,
    /// Counter slot of the port that it leaves through, if it is a tagged one.
    pub(crate) vlan: Option<usize>,
}

/// A packet that is to be sent now.
pub(crate) struct Due<F> {
    /// The packet.
    pub(crate) queued: Queued<F>,
    /// Time between the packet's arrival at the other end and this release, in nanoseconds.
    pub(crate) late: u64,
}

/// State of one port at the moment, for its counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct State {
    /// What the port has counted since its state was read last.
    pub(crate) since: Counts,
    /// Packets in the port.
    pub(crate) packets: usize,
    /// Bytes that are not yet on the wire.
    pub(crate) bytes: u64,
    /// Share of the time for which the link was busy, in permille.
    pub(crate) load: u64,
}

struct Emulated<F> {
    port: EmulatedLink<Queued<F>>,
    draws: Draws,
    told: Counts,
}

/// The emulated ports, by socket. The list is empty if there are none: every burst checks that first.
pub(crate) struct EmulatedPorts<F>(Vec<Option<Box<Emulated<F>>>>);

impl<F> Default for EmulatedPorts<F> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<F> EmulatedPorts<F> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(crate) fn has(&self, socket: usize) -> bool {
        self.0.get(socket).is_some_and(Option::is_some)
    }

    /// Numbers of the sockets with an emulated port.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = usize> + use<F> {
        let present: Vec<usize> = (0..self.0.len()).filter(|&socket| self.has(socket)).collect();
        present.into_iter()
    }

    /// Number of packets in all ports.
    pub(crate) fn queued(&self) -> usize {
        self.0.iter().flatten().map(|emulated| emulated.port.len()).sum()
    }

    /// Returns the time of the next event in nanoseconds: a packet leaves, or a load is to be counted.
    pub(crate) fn next_event(&self) -> Option<u64> {
        let ports = self.0.iter().flatten().map(|emulated| &emulated.port);
        let events = ports.flat_map(|port| [port.next_release(), port.next_sample()]);
        events.flatten().min().map(|time| u64::try_from(time.div_ceil(PS_PER_NS)).unwrap_or(u64::MAX))
    }

    /// Takes over the ports of a snapshot. Returns the packets of ports that are no longer emulated, and the packets of
    /// ports that went down, each with its socket.
    pub(crate) fn follow(&mut self, snapshot: &Snapshot, now: u64) -> Changed<F> {
        let now = picoseconds(now);
        let mut changed = Changed { to_send: Vec::new(), dropped: Vec::new() };
        self.0.resize_with(self.0.len().max(snapshot.wiring.emulated.len()), || None);
        for (socket, place) in self.0.iter_mut().enumerate() {
            let Some(wanted) = snapshot.wiring.emulated.get(socket).and_then(Option::as_ref) else {
                let gone = place.take();
                changed.to_send.extend(gone.map(|mut gone| (socket, gone.port.take_all(now).collect())));
                continue;
            };
            let emulated = place.get_or_insert_with(|| Box::new(Emulated::new(&wanted.device, wanted.emulation, now)));
            if *emulated.port.emulation() != wanted.emulation {
                emulated.port.change(wanted.emulation, now);
            }
            emulated.port.set_up(wanted.is_up);
            if !wanted.is_up {
                changed.dropped.extend(emulated.port.drop_all(now).map(|queued| (socket, queued.frame)));
            }
        }
        if self.0.iter().all(Option::is_none) {
            self.0.clear();
        }
        changed
    }

    /// Takes a packet. `mark` writes CE into it.
    pub(crate) fn offer(
        &mut self,
        socket: usize,
        now: u64,
        (len, ecn): (usize, u8),
        queued: Queued<F>,
        mark: impl FnOnce(&mut F),
    ) -> Result<(), (F, DropReason)> {
        let Some(Emulated { port, draws, .. }) = self.at(socket) else {
            return Err((queued.frame, DropReason::TxFull));
        };
        let offered = Offered { len, ecn, draws: draws.pair() };
        let taken = port.offer(picoseconds(now), offered, queued, |queued| mark(&mut queued.frame));
        taken.map_err(|(queued, refusal)| (queued.frame, reason(refusal)))
    }

    /// Takes the next packet of a port that is to be sent.
    pub(crate) fn release(&mut self, socket: usize, now: u64) -> Option<Due<F>> {
        let released = self.at(socket)?.port.release(picoseconds(now))?;
        let late = u64::try_from(released.late / PS_PER_NS).unwrap_or(u64::MAX);
        Some(Due { queued: released.frame, late })
    }

    /// Takes all packets out of a port that has been closed. The port takes no new packets until the next tables say
    /// that it is up.
    pub(crate) fn close(&mut self, socket: usize, now: u64) -> Vec<F> {
        let Some(Emulated { port, .. }) = self.at(socket) else { return Vec::new() };
        port.set_up(false);
        port.drop_all(picoseconds(now)).map(|queued| queued.frame).collect()
    }

    /// Takes all packets out of all ports, which stay as they are.
    pub(crate) fn drop_all(&mut self, now: u64) -> Vec<F> {
        let ports = self.0.iter_mut().flatten();
        ports.flat_map(|emulated| emulated.port.drop_all(picoseconds(now))).map(|queued| queued.frame).collect()
    }

    /// Returns the state of a port, and what it has counted since the last call.
    pub(crate) fn state(&mut self, socket: usize, now: u64) -> State {
        let now = picoseconds(now);
        let Some(Emulated { port, told, .. }) = self.at(socket) else { return State::default() };
        let counts = port.counts();
        let before = std::mem::replace(told, counts);
        State { since: counts.since(&before), packets: port.len(), bytes: port.depth(now), load: port.load(now) }
    }

    /// Returns the bytes that a port has sent so far, overhead included, and the bytes in its queue. `None`: it is not
    /// emulated.
    pub(crate) fn shown(&self, socket: usize, now: u64) -> Option<(u64, u64)> {
        let port = &self.0.get(socket)?.as_ref()?.port;
        Some((port.counts().sent_bytes, port.depth(picoseconds(now))))
    }

    fn at(&mut self, socket: usize) -> Option<&mut Emulated<F>> {
        self.0.get_mut(socket)?.as_deref_mut()
    }
}

/// The packets that leave emulated ports when other tables come into force.
pub(crate) struct Changed<F> {
    /// Packets to be sent at once, by socket.
    pub(crate) to_send: Vec<(usize, Vec<Queued<F>>)>,
    /// Packets of ports that went down, with their sockets.
    pub(crate) dropped: Vec<(usize, F)>,
}

impl<F> Emulated<F> {
    fn new(device: &str, emulation: Emulation, now: Time) -> Self {
        Self { port: EmulatedLink::new(emulation, now), draws: Draws::named(device), told: Counts::default() }
    }
}

fn picoseconds(nanoseconds: u64) -> Time {
    Time::from(nanoseconds) * PS_PER_NS
}

fn reason(refusal: Refusal) -> DropReason {
    match refusal {
        Refusal::PortDown => DropReason::PortDown,
        Refusal::QueueFull => DropReason::QueueFull,
        Refusal::Wred => DropReason::Wred,
        Refusal::WireLoss => DropReason::WireLoss,
    }
}
