//! The work of the heartbeat thread in each tick.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use srv6d_balance::{FarPorts, LinkId, Links, Publishers};
use srv6d_config::GlbRole;
use srv6d_dataplane::PortTraffic;
use srv6d_heartbeat::{Arrival, Freshness, Judge, Key, Peers, Role, Sender, Sending, Settings};
use tokio::sync::watch;
use tracing::{info, warn};

use super::port::{Port, link_of, said};
use super::socket::{MOST_BYTES, Socket};
use super::{Wanted, WantedPort, Weighing, tell};

/// Largest number of datagrams that are read from one port in a tick.
const MOST_IN_A_TICK: usize = 64;
/// Largest number of datagrams that are read in a tick from a port without a neighbour, whose datagrams are only counted.
const MOST_OF_STRANGERS: usize = 8;
/// Length of a tick before anything is configured.
const TICK: Duration = Duration::from_millis(20);
/// Shortest time between two log lines about the silence of one peer, in nanoseconds.
const LOG_GAP: u64 = 60_000_000_000;
/// Time between two looks at links from which weights follow, in nanoseconds.
const WEIGH: u64 = 10_000_000;

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
    /// Whether the key can be used, or none is wanted.
    is_usable: bool,
    sender: Option<Sender>,
    tick: Duration,
    weighing: Option<Weighing>,
    publishers: Publishers,
    /// Time at which links are looked at next.
    weigh_due: u64,
    links: watch::Sender<Arc<Links>>,
    silences: BTreeMap<u32, Silence>,
    is_over: bool,
}

/// The last known state of a peer's silence, and when it was logged.
#[derive(Clone, Copy, Debug)]
struct Silence {
    freshness: Freshness,
    logged: Option<u64>,
}

impl Beats {
    pub(super) fn new(far: Arc<FarPorts>, links: watch::Sender<Arc<Links>>) -> Self {
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
            weighing: None,
            publishers: Publishers::default(),
            weigh_due: 0,
            links,
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

    /// Returns whether a port waits for its socket.
    pub(super) fn lacks_sockets(&self) -> bool {
        self.ports.iter().any(|port| port.lacks_socket(self.role))
    }

    /// Takes over other settings. Ports that stay keep their averages, and peers that stay keep their last heartbeat.
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
        if self.weighing != wanted.weighing {
            (self.weighing, self.publishers) = (wanted.weighing.clone(), Publishers::default());
            tell(&self.links, Links::default());
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
        for node in known {
            self.judge_peer(node);
        }
    }

    fn take_ports(&mut self, wanted: &Wanted, traffic: impl Fn(&WantedPort) -> Option<PortTraffic>) {
        let mut before = std::mem::take(&mut self.ports);
        for port in &wanted.ports {
            let same = |known: &Port| (&known.wanted.name, known.wanted.ifindex) == (&port.name, port.ifindex);
            let known = before.iter().position(same).map(|at| before.swap_remove(at));
            let mut known = known.unwrap_or_else(|| Port::new(port.clone()));
            known.take_over(port, wanted, traffic(port), self.now);
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
        if now >= self.weigh_due {
            self.weigh_due = now.saturating_add(WEIGH);
            self.weigh(now);
        }
    }

    /// Tells the control loop about links that weights follow from.
    fn weigh(&mut self, now: u64) {
        let links = self.weighing.as_ref().map(|weighing| self.links_now(weighing, now)).unwrap_or_default();
        if let Some(links) = self.publishers.look(&links, now) {
            tell(&self.links, links);
        }
    }

    fn links_now(&self, weighing: &Weighing, now: u64) -> Links {
        let own = self.ports.iter().filter(|_| weighing.loads).filter_map(Port::link);
        let own = own.map(|(name, link)| (LinkId::Own(name), link));
        let behind = self.peers.all().values().flat_map(|peer| {
            let from = Ipv4Addr::from_bits(peer.last.node);
            let known = weighing.nodes.iter().filter_map(move |node| Some((node, peer.entry(node.to_bits(), now)?)));
            known.map(move |(node, entry)| (LinkId::Behind(from, *node), link_of(peer, entry, weighing.loads)))
        });
        own.chain(behind).collect()
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
            let most = if port.wanted.neighbor.is_some() { MOST_IN_A_TICK } else { MOST_OF_STRANGERS };
            for _ in 0..most {
                let Some((length, ttl)) = socket.receive(&mut bytes) else { break };
                let arrival = Arrival { port: port.wanted.ifindex.unwrap_or_default(), ttl, now };
                heard.extend(self.peers.receive(bytes.get(..length).unwrap_or_default(), arrival));
            }
        }
        for node in heard {
            self.judge_peer(node);
        }
    }

    /// Tells the workers what a peer says about its ports.
    fn judge_peer(&mut self, node: u32) {
        let Some(peer) = self.peers.all().get(&node) else { return };
        let judged = self.judge.judge(peer, self.now);
        for (_, number) in self.ports.iter().filter_map(|port| port.wanted.neighbor).filter(|(of, _)| *of == node) {
            for (profile, state) in (0..).zip(&judged) {
                self.far.set(number, profile, *state);
            }
        }
    }

    /// Records which peers have become silent, or are heard again.
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
        for node in changed {
            self.judge_peer(node);
        }
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

fn sending(wanted: &Wanted) -> Sending {
    Sending {
        node: wanted.glb.node.0.to_bits(),
        role: if wanted.glb.role == GlbRole::HelperOnly { Role::Helper } else { Role::Both },
        period: u16::try_from(wanted.glb.period.as_millis()).unwrap_or(u16::MAX),
        min_gap: u64::try_from(wanted.glb.min_gap.as_nanos()).unwrap_or(u64::MAX),
    }
}

/// Returns a number that differs after each start.
fn random() -> u16 {
    let [.., high, low] = RandomState::new().hash_one(milliseconds()).to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// Returns the lower bits of the time, so that sequence numbers go on where they were, if the boot id is the same by chance.
#[allow(clippy::cast_possible_truncation, reason = "sequence numbers wrap")]
fn milliseconds() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u32)
}
