//! One port that heartbeats tell about.

use std::collections::BTreeMap;

use srv6d_balance::{BandScale, Link, Sampler};
use srv6d_config::GlbRole;
use srv6d_dataplane::PortTraffic;
use srv6d_heartbeat::{Entry, Peer, Said};

use super::socket::Socket;
use super::{Wanted, WantedPort, open};

/// The scale of the band in heartbeats, which is only shown to people.
const FOR_PEOPLE: BandScale = BandScale::Relative { low: 200, high: 900 };
/// The whole of a capacity, in permille.
const ALL: u16 = 1000;
const MEGABIT: u64 = 1_000_000;

/// One port.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) wanted: WantedPort,
    pub(super) sampler: Option<Sampler>,
    /// Why there is no socket, or why the last heartbeat was not sent.
    pub(super) trouble: Option<String>,
    socket: Option<Socket>,
    traffic: Option<PortTraffic>,
}

impl Port {
    pub(super) const fn new(wanted: WantedPort) -> Self {
        Self { wanted, sampler: None, trouble: None, socket: None, traffic: None }
    }

    /// Takes over other settings, and opens the socket if there is none.
    pub(super) fn take_over(&mut self, port: &WantedPort, wanted: &Wanted, traffic: Option<PortTraffic>, now: u64) {
        if self.wanted.is_emulated != port.is_emulated {
            self.sampler = None;
        }
        (self.wanted, self.traffic) = (port.clone(), traffic);
        let glb = &wanted.glb;
        let is_needed = needs_socket(glb.role, port);
        // Another group, UDP port or role takes another socket.
        let serves = |socket: &Socket| is_needed && socket.is_for((glb.group, glb.udp_port), glb.role.receives());
        self.socket = self.socket.take().filter(serves);
        if is_needed && self.socket.is_none() {
            match open(port, glb, self.trouble.as_deref()) {
                Ok(socket) => (self.socket, self.trouble) = (Some(socket), None),
                Err(why) => self.trouble = Some(why),
            }
        }
        self.follow_rate(wanted.rate_weight, now);
    }

    /// Returns whether a socket is needed, and can be opened.
    pub(super) const fn lacks_socket(&self, role: GlbRole) -> bool {
        self.socket.is_none() && self.wanted.ifindex.is_some() && needs_socket(role, &self.wanted)
    }

    pub(super) fn receiver(&self) -> Option<&Socket> {
        self.socket.as_ref().filter(|socket| socket.receives())
    }

    fn follow_rate(&mut self, rate_weight: u8, now: u64) {
        let WantedPort { rate, full_queue, .. } = self.wanted;
        let sent_bytes = self.traffic.as_ref().map(|traffic| traffic.read().sent_bytes);
        match (&mut self.sampler, rate.zip(sent_bytes)) {
            (Some(sampler), Some((rate, _))) => sampler.change(rate, full_queue, rate_weight),
            (sampler, known) => {
                *sampler = known.map(|(rate, sent)| Sampler::new(rate, full_queue, rate_weight, now, sent));
            }
        }
    }

    pub(super) fn sample(&mut self, now: u64, interval: u64) {
        if let (Some(sampler), Some(traffic)) = (&mut self.sampler, &self.traffic) {
            sampler.sample(now, interval, traffic.read());
        }
    }

    /// Sends a heartbeat. Returns false if the port cannot.
    pub(super) fn send(&mut self, bytes: &[u8]) -> bool {
        let Some(socket) = self.socket.as_ref().filter(|_| self.wanted.up) else { return false };
        let sent = socket.send(bytes);
        self.trouble = sent.as_ref().err().map(ToString::to_string);
        sent.is_ok()
    }

    /// Returns what heartbeats say about the port, for the neighbour at its other end.
    fn said(&self) -> Option<Said> {
        let (neighbor, _) = self.wanted.neighbor?;
        let score = self.sampler.as_ref().map_or(0, Sampler::score);
        let hundredths = |permille: u16| permille.min(ALL) * 10;
        let load = self.sampler.as_ref().map_or(0, |sampler| hundredths(sampler.load()));
        // Receivers weigh load and queue. Where no queue can be seen, the load alone counts.
        let queue = if self.wanted.full_queue == 0 { None } else { self.sampler.as_ref() };
        let entry = Entry {
            neighbor,
            band: FOR_PEOPLE.band(score, ALL),
            is_up: self.wanted.up,
            is_valid: self.sampler.is_some(),
            load,
            queue: queue.map_or(load, |sampler| hundredths(sampler.queue())),
            ifindex: self.wanted.ifindex.and_then(|index| u16::try_from(index).ok()).unwrap_or_default(),
            capacity: u32::try_from(self.wanted.rate.unwrap_or_default() / MEGABIT).unwrap_or(u32::MAX),
        };
        Some(Said { entry, available: BandScale::Available.band(score, ALL) })
    }

    /// Returns capacity and load of the port, with the name of its device.
    pub(super) fn link(&self) -> Option<(String, Link)> {
        let (sampler, capacity) = (self.sampler.as_ref()?, self.wanted.rate?);
        let load = capacity / u64::from(ALL) * u64::from(sampler.load().min(ALL));
        Some((self.wanted.name.clone(), Link { capacity, load }))
    }

    /// Returns whether the port is up, and its free capacity, to compare several links to one node.
    fn left(&self) -> (bool, u64) {
        let score = self.sampler.as_ref().map_or(0, Sampler::score);
        let left = u64::from(ALL.saturating_sub(score)) * (self.wanted.rate.unwrap_or_default() / MEGABIT);
        (self.wanted.up, left)
    }
}

/// Returns the link that an entry of a peer describes. A link that is down, or that others should avoid, has the capacity 0.
pub(super) fn link_of(peer: &Peer, entry: &Entry, loads: bool) -> Link {
    const WHOLE: u64 = 10_000;
    let is_usable = entry.is_up && !peer.last.is_draining;
    let capacity = if is_usable { u64::from(entry.capacity) * MEGABIT } else { 0 };
    Link { capacity, load: if loads { capacity / WHOLE * u64::from(entry.load) } else { 0 } }
}

/// Returns what heartbeats say about the ports. Of several ports to one node, the one with the most free capacity counts.
pub(super) fn said(ports: &[Port]) -> Vec<Said> {
    let mut best: BTreeMap<u32, &Port> = BTreeMap::new();
    for port in ports {
        let Some((neighbor, _)) = port.wanted.neighbor else { continue };
        best.entry(neighbor)
            .and_modify(|known| *known = if port.left() > known.left() { port } else { known })
            .or_insert(port);
    }
    best.into_values().filter_map(Port::said).collect()
}

/// Returns whether a port needs a socket, because somebody may send heartbeats there, which are counted, or because
/// this node sends them.
const fn needs_socket(role: GlbRole, port: &WantedPort) -> bool {
    role.receives() || port.neighbor.is_some()
}
