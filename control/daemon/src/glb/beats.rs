//! What the thread of the heartbeats does in each tick.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use srv6d_balance::{BandScale, FarPorts, Sampler};
use srv6d_config::GlbRole;
use srv6d_dataplane::PortTraffic;
use srv6d_heartbeat::{Arrival, Entry, Freshness, Judge, Key, Peers, Role, Said, Sender, Sending, Settings};
use tracing::{info, warn};

use super::socket::{MOST_BYTES, Socket};
use super::{Wanted, WantedPort, open};

/// Datagrams that are read from one port in a tick.
const MOST_IN_A_TICK: usize = 64;
/// Tick before anything is configured.
const TICK: Duration = Duration::from_millis(20);
/// Shortest time between two log lines about the silence of one peer, in nanoseconds.
const LOG_GAP: u64 = 60_000_000_000;
/// The band that is sent, for people.
const FOR_PEOPLE: BandScale = BandScale::Relative { low: 200, high: 900 };
/// The whole of a capacity, in permille.
const ALL: u16 = 1000;
const MEGABIT: u64 = 1_000_000;

/// Everything that the thread owns.
#[derive(Debug)]
pub(super) struct Beats {
    pub(super) role: GlbRole,
    pub(super) node: u32,
    pub(super) now: u64,
    pub(super) ports: Vec<Port>,
    pub(super) peers: Peers,
    pub(super) sent: u64,
    pub(super) judge: Judge,
    pub(super) far: Arc<FarPorts>,
    key: Option<Key>,
    /// The key can be used, or none is wanted.
    is_usable: bool,
    sender: Option<Sender>,
    tick: Duration,
    silences: BTreeMap<u32, Silence>,
    is_over: bool,
}

/// What was last seen of a peer's silence.
#[derive(Clone, Copy, Debug)]
struct Silence {
    freshness: Freshness,
    logged: Option<u64>,
}

/// One port.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) wanted: WantedPort,
    pub(super) sampler: Option<Sampler>,
    /// Why there is no socket, or the last heartbeat was not sent.
    pub(super) trouble: Option<String>,
    socket: Option<Socket>,
    traffic: Option<PortTraffic>,
}

impl Beats {
    pub(super) fn new(far: Arc<FarPorts>) -> Self {
        Self {
            role: GlbRole::Both,
            node: 0,
            now: 0,
            ports: Vec::new(),
            peers: Peers::default(),
            sent: 0,
            judge: Judge::default(),
            far,
            key: None,
            is_usable: false,
            sender: None,
            tick: TICK,
            silences: BTreeMap::new(),
            is_over: false,
        }
    }

    pub(super) const fn tick_time(&self) -> Duration {
        self.tick
    }

    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.far.clear();
    }

    pub(super) fn set_key(&mut self, key: Option<Key>) {
        self.key = key;
    }

    /// Whether a port waits for its socket.
    pub(super) fn lacks_sockets(&self) -> bool {
        self.ports.iter().any(|port| port.socket.is_none() && port.can_have_socket(self.role))
    }

    /// Takes over other settings. Ports that stay keep their averages, and peers that stay what they have said.
    pub(super) fn configure(
        &mut self,
        wanted: &Wanted,
        is_usable: bool,
        traffic: impl Fn(&WantedPort) -> Option<PortTraffic>,
    ) {
        (self.role, self.node) = (wanted.glb.role, wanted.glb.node.0.to_bits());
        self.tick = wanted.glb.min_gap;
        self.take_ports(wanted, traffic);
        let sending = sending(wanted);
        match &mut self.sender {
            _ if !wanted.glb.role.sends() => self.sender = None,
            Some(sender) => sender.change(sending),
            None => self.sender = Some(Sender::new(sending, random(), milliseconds())),
        }
        let judge = Judge::new(wanted.rate_weight, wanted.profiles.clone());
        if (judge.rate_weight, &judge.profiles) != (self.judge.rate_weight, &self.judge.profiles) {
            self.judge = judge;
        }
        self.rekey(wanted, is_usable);
    }

    /// Takes over the key, and which nodes are expected on which ports.
    pub(super) fn rekey(&mut self, wanted: &Wanted, is_usable: bool) {
        self.is_usable = is_usable;
        let receives = is_usable && wanted.glb.role.receives();
        let expected = wanted.ports.iter().filter(|_| receives);
        let named = || expected.clone().filter_map(|port| Some((port.ifindex, port.neighbor?.0)));
        self.peers.change(Settings {
            node: self.node,
            key: self.key.clone(),
            ports: named().filter_map(|(ifindex, node)| Some((ifindex?, node))).collect(),
            absent: named().filter(|(ifindex, _)| ifindex.is_none()).map(|(_, node)| node).collect(),
        });
        self.silences.retain(|node, _| self.peers.all().contains_key(node));
        self.far.clear();
        let known: Vec<u32> = self.peers.all().keys().copied().collect();
        known.into_iter().for_each(|node| self.judge_peer(node));
    }

    fn take_ports(&mut self, wanted: &Wanted, traffic: impl Fn(&WantedPort) -> Option<PortTraffic>) {
        let mut before = std::mem::take(&mut self.ports);
        for port in &wanted.ports {
            let same = |known: &Port| (&known.wanted.name, known.wanted.ifindex) == (&port.name, port.ifindex);
            let known = before.iter().position(same).map(|at| before.swap_remove(at));
            let mut known = known.unwrap_or_else(|| Port::new(port.clone()));
            if known.wanted.is_emulated != port.is_emulated {
                known.sampler = None;
            }
            known.wanted = port.clone();
            known.traffic = traffic(port);
            // Another group, UDP port or role takes another socket.
            known.socket = known.socket.take().filter(|socket| {
                needs_socket(wanted.glb.role, port)
                    && socket.is_for((wanted.glb.group, wanted.glb.udp_port), wanted.glb.role.receives())
            });
            if known.socket.is_none() && needs_socket(wanted.glb.role, port) {
                match open(port, &wanted.glb, known.trouble.as_deref()) {
                    Ok(socket) => (known.socket, known.trouble) = (Some(socket), None),
                    Err(why) => known.trouble = Some(why),
                }
            }
            known.follow_rate(wanted.rate_weight, self.now);
            self.ports.push(known);
        }
    }

    /// Does everything that is due at `now` (nanoseconds of a clock that is never set).
    pub(super) fn tick(&mut self, now: u64) {
        self.now = now;
        let interval = u64::try_from(self.tick.as_nanos()).unwrap_or(u64::MAX);
        self.ports.iter_mut().for_each(|port| port.sample(now, interval));
        self.receive(now);
        self.watch_silence(now);
        self.send(now);
    }

    fn send(&mut self, now: u64) {
        let said = said(&self.ports);
        let Some(heartbeat) =
            self.sender.as_mut().filter(|_| self.is_usable).and_then(|sender| sender.look(now, &said))
        else {
            return;
        };
        let bytes = heartbeat.encode(self.key.as_ref());
        let mut reached = Vec::new();
        for port in &mut self.ports {
            // A node with several links gets each heartbeat once.
            let Some((neighbor, _)) = port.wanted.neighbor.filter(|(node, _)| !reached.contains(node)) else {
                continue;
            };
            if port.send(&bytes) {
                reached.push(neighbor);
                self.sent += 1;
            }
        }
    }

    fn receive(&mut self, now: u64) {
        let sockets: Vec<&Socket> = self.ports.iter().filter_map(Port::receiver).collect();
        let mut waiting: Vec<PollFd<'_>> =
            sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
        if waiting.is_empty() || poll(&mut waiting, PollTimeout::ZERO).is_ok_and(|ready| ready == 0) {
            return;
        }
        let mut heard = BTreeSet::new();
        let mut bytes = [0; MOST_BYTES];
        for port in &self.ports {
            let Some(socket) = port.receiver() else { continue };
            for _ in 0..MOST_IN_A_TICK {
                let Some((length, ttl)) = socket.receive(&mut bytes) else { break };
                let arrival = Arrival { port: port.wanted.ifindex.unwrap_or_default(), ttl, now };
                heard.extend(self.peers.receive(bytes.get(..length).unwrap_or_default(), arrival));
            }
        }
        heard.into_iter().for_each(|node| self.judge_peer(node));
    }

    /// Tells the workers what a peer says of its ports.
    fn judge_peer(&mut self, node: u32) {
        let Some(peer) = self.peers.all().get(&node) else { return };
        let judged = self.judge.judge(peer, self.now);
        for (_, number) in self.ports.iter().filter_map(|port| port.wanted.neighbor).filter(|(of, _)| *of == node) {
            for (profile, state) in (0..).zip(&judged) {
                self.far.set(number, profile, *state);
            }
        }
    }

    /// Notes which peers have become silent, or are heard again.
    fn watch_silence(&mut self, now: u64) {
        let fresh = |silence: Option<&Silence>| silence.is_some_and(|known| known.freshness == Freshness::Fresh);
        let mut changed = Vec::new();
        for (&node, peer) in self.peers.all() {
            let (freshness, before) = (peer.freshness(now), self.silences.get(&node));
            if before.is_some_and(|before| before.freshness == freshness) {
                continue;
            }
            let mut silence = Silence { freshness, logged: before.and_then(|before| before.logged) };
            log(node, fresh(before), before.is_some(), &mut silence, now);
            self.silences.insert(node, silence);
            changed.push(node);
        }
        changed.into_iter().for_each(|node| self.judge_peer(node));
    }
}

/// Logs that a peer is heard for the first time or again, or is silent. A peer that is silent again and again is logged
/// seldom.
fn log(node: u32, was_fresh: bool, was_known: bool, silence: &mut Silence, now: u64) {
    let node = Ipv4Addr::from_bits(node);
    if silence.freshness == Freshness::Fresh {
        match silence.logged {
            None if !was_known => info!("glb: {node} is heard"),
            Some(at) if now.saturating_sub(at) < LOG_GAP => {}
            _ => info!("glb: {node} is heard again"),
        }
    } else if was_fresh && silence.logged.is_none_or(|at| now.saturating_sub(at) >= LOG_GAP) {
        warn!("glb: {node} is silent: the quality of its ports is unknown, and this node's own ports decide");
        silence.logged = Some(now);
    }
}

impl Port {
    const fn new(wanted: WantedPort) -> Self {
        Self { wanted, sampler: None, trouble: None, socket: None, traffic: None }
    }

    /// Whether a socket can be opened, and is needed.
    const fn can_have_socket(&self, role: GlbRole) -> bool {
        self.wanted.ifindex.is_some() && needs_socket(role, &self.wanted)
    }

    fn receiver(&self) -> Option<&Socket> {
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

    fn sample(&mut self, now: u64, interval: u64) {
        if let (Some(sampler), Some(traffic)) = (&mut self.sampler, &self.traffic) {
            sampler.sample(now, interval, traffic.read());
        }
    }

    /// Sends a heartbeat. Returns false if the port cannot.
    fn send(&mut self, bytes: &[u8]) -> bool {
        let Some(socket) = self.socket.as_ref().filter(|_| self.wanted.up) else { return false };
        let sent = socket.send(bytes);
        self.trouble = sent.as_ref().err().map(ToString::to_string);
        sent.is_ok()
    }

    /// Returns what is said of the port to the neighbour at its other end.
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

    /// How much the port can take, to compare several links to one node.
    fn left(&self) -> (bool, u64) {
        let score = self.sampler.as_ref().map_or(0, Sampler::score);
        let left = u64::from(ALL.saturating_sub(score)) * (self.wanted.rate.unwrap_or_default() / MEGABIT);
        (self.wanted.up, left)
    }
}

/// Returns what is said of the ports: of several to one node, of the one that can take the most.
fn said(ports: &[Port]) -> Vec<Said> {
    let mut best: BTreeMap<u32, &Port> = BTreeMap::new();
    for port in ports {
        let Some((neighbor, _)) = port.wanted.neighbor else { continue };
        best.entry(neighbor)
            .and_modify(|known| *known = if port.left() > known.left() { port } else { known })
            .or_insert(port);
    }
    best.into_values().filter_map(Port::said).collect()
}

/// Whether a port needs a socket: where somebody may send heartbeats, so that they are counted, or where this node sends
/// them.
const fn needs_socket(role: GlbRole, port: &WantedPort) -> bool {
    role.receives() || port.neighbor.is_some()
}

fn sending(wanted: &Wanted) -> Sending {
    Sending {
        node: wanted.glb.node.0.to_bits(),
        role: if wanted.glb.role == GlbRole::HelperOnly { Role::Helper } else { Role::Both },
        period: u16::try_from(wanted.glb.period.as_millis()).unwrap_or(u16::MAX),
        min_gap: u64::try_from(wanted.glb.min_gap.as_nanos()).unwrap_or(u64::MAX),
    }
}

/// Returns a number that is another one after each start.
fn random() -> u16 {
    let [.., high, low] = RandomState::new().hash_one(milliseconds()).to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// Returns the lower bits of the time, so that sequence numbers go on where they were, if the boot id is the same by chance.
#[allow(clippy::cast_possible_truncation, reason = "sequence numbers wrap")]
fn milliseconds() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u32)
}
