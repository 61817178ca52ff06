//! The work of the thread in each turn.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use srv6d_liveness::{LaneId, Message, Probe, Refused, Reject, Seal, Settings, State, Watch};
use srv6d_plan::Probes;
use tokio::sync::watch;
use tracing::warn;

use super::socket::{MOST_BYTES, Receiver, Sender};
use super::watched::{Loop, NextHop, Wanted, WatchedPrefix};
use super::{UnusedPaths, tell};

/// Largest number of datagrams that are read in a turn.
const MOST_IN_A_TURN: usize = 512;

/// Everything that the thread owns.
#[derive(Debug)]
pub(super) struct Prober {
    pub(super) now: u64,
    pub(super) settings: Option<Probes>,
    pub(super) prefixes: Arc<Vec<WatchedPrefix>>,
    pub(super) is_cut: bool,
    pub(super) lanes: BTreeMap<Loop, LaneId>,
    pub(super) watch: Watch,
    pub(super) refused: Refused,
    pub(super) unused: UnusedPaths,
    /// Why probes cannot come back.
    pub(super) trouble: Option<String>,
    /// Why the last probe of a loop was not sent.
    pub(super) unsent: BTreeMap<LaneId, String>,
    next_lane: LaneId,
    seal: Seal,
    /// States that `unused` follows from.
    states: Vec<State>,
    entrances: BTreeSet<u32>,
    senders: BTreeMap<String, Sender>,
    /// Why there is no socket for a device.
    shut: BTreeMap<String, String>,
    receiver: Option<Arc<Receiver>>,
    told: watch::Sender<UnusedPaths>,
    is_over: bool,
}

impl Prober {
    pub(super) fn new(told: watch::Sender<UnusedPaths>) -> Self {
        Self {
            now: 0,
            settings: None,
            prefixes: Arc::default(),
            is_cut: false,
            lanes: BTreeMap::new(),
            watch: Watch::new(Settings { interval: 1, timeout: 1, dead_after: 1, hold: 1 }),
            refused: Refused::default(),
            unused: UnusedPaths::default(),
            trouble: None,
            unsent: BTreeMap::new(),
            next_lane: 0,
            seal: Seal::new(secret()),
            states: Vec::new(),
            entrances: BTreeSet::new(),
            senders: BTreeMap::new(),
            shut: BTreeMap::new(),
            receiver: None,
            told,
            is_over: false,
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    pub(super) const fn end(&mut self) {
        self.is_over = true;
    }

    pub(super) fn receiver(&self) -> Option<Arc<Receiver>> {
        self.receiver.clone()
    }

    /// Returns whether a socket is missing that may be opened by now.
    pub(super) fn lacks_sockets(&self) -> bool {
        let lacks = |hop: &NextHop| self.senders.get(&hop.device).is_none_or(|open| open.ifindex() != hop.ifindex);
        self.receiver.is_none() || self.lanes.keys().flat_map(|along| &along.hops).any(lacks)
    }

    /// Takes over other settings and paths. Loops that stay keep what is known of them.
    pub(super) fn configure(&mut self, wanted: &Wanted) {
        self.settings = Some(wanted.settings.clone());
        self.prefixes = Arc::clone(&wanted.prefixes);
        self.entrances.clone_from(&wanted.entrances);
        self.is_cut = wanted.is_cut;
        self.number_loops();
        let settings = &wanted.settings;
        let settings = Settings {
            interval: nanoseconds(settings.interval),
            timeout: nanoseconds(settings.timeout),
            dead_after: settings.dead_after,
            hold: nanoseconds(settings.hold),
        };
        self.watch.change(settings, &self.lanes.values().copied().collect(), self.now);
        self.unsent.retain(|lane, _| self.watch.lanes().contains_key(lane));
        self.open_sockets(&wanted.settings);
        self.judge(true);
    }

    /// Gives every loop a number. Loops that stay keep theirs.
    fn number_loops(&mut self) {
        let paths = self.prefixes.iter().flat_map(|prefix| &prefix.paths);
        let loops: BTreeSet<&Loop> = paths.filter_map(|path| path.along.as_ref().ok()).collect();
        self.lanes.retain(|along, _| loops.contains(along));
        for along in loops {
            if self.lanes.contains_key(along) {
                continue;
            }
            while self.lanes.values().any(|lane| *lane == self.next_lane) {
                self.next_lane = self.next_lane.wrapping_add(1);
            }
            self.lanes.insert(along.clone(), self.next_lane);
            self.next_lane = self.next_lane.wrapping_add(1);
        }
    }

    fn open_sockets(&mut self, settings: &Probes) {
        let hops: BTreeMap<&str, u32> = self.lanes.keys().flat_map(|along| &along.hops).map(device_of).collect();
        self.senders.retain(|device, sender| hops.get(device.as_str()) == Some(&sender.ifindex()));
        self.shut.retain(|device, _| hops.contains_key(device.as_str()));
        for (device, ifindex) in hops {
            if self.senders.contains_key(device) {
                continue;
            }
            match Sender::open(device, ifindex) {
                Ok(sender) => {
                    self.shut.remove(device);
                    self.senders.insert(device.to_owned(), sender);
                }
                // It is tried every few seconds, and said once.
                Err(why) if is_news(&mut self.shut, device, &why.to_string()) => {
                    warn!("probes: none are sent through {device}: {why}");
                }
                Err(_) => {}
            }
        }
        let Some(address) = settings.address else {
            self.receiver = None;
            self.trouble = Some("there is no address to come back to: write `source` of [node]".to_owned());
            return;
        };
        self.receiver = self.receiver.take().filter(|receiver| receiver.is_at(address, settings.udp_port));
        if self.receiver.is_none() {
            self.open_receiver(address, settings.udp_port);
        }
    }

    fn open_receiver(&mut self, address: Ipv6Addr, port: u16) {
        match Receiver::open(address, port) {
            Ok(receiver) => (self.receiver, self.trouble) = (Some(Arc::new(receiver)), None),
            Err(why) => {
                let why = format!("probes cannot come back to [{address}]:{port}: {why}");
                if self.trouble.as_ref() != Some(&why) {
                    warn!("probes: {why}");
                }
                self.trouble = Some(why);
            }
        }
    }

    /// Does everything that is due at `now` (nanoseconds of a clock that is never set). Returns when the next thing is due.
    pub(super) fn turn(&mut self, now: u64) -> Option<u64> {
        self.now = now;
        self.receive(now);
        self.watch.tick(now);
        self.judge(false);
        // Without a way back, a probe would prove nothing.
        self.receiver.as_ref()?;
        while let Some(lane) = self.watch.due(now) {
            self.send(lane, now);
        }
        self.watch.next_due()
    }

    fn receive(&mut self, now: u64) {
        let Some(socket) = self.receiver.clone() else { return };
        let mut bytes = [0; MOST_BYTES];
        for _ in 0..MOST_IN_A_TURN {
            let Some(received) = socket.receive(&mut bytes) else { break };
            let wall = received.wall.unwrap_or_else(wall);
            let payload = bytes.get(..received.length).unwrap_or_default();
            let is_entrance = received.ifindex.is_some_and(|index| self.entrances.contains(&index));
            let opened = if is_entrance { self.seal.open(payload) } else { Err(Reject::Port) };
            let taken = opened
                .and_then(|Message { sequence, lane }| self.watch.answered(lane, sequence, received.ce, (now, wall)));
            if let Err(reject) = taken {
                self.refused.count(reject);
            }
        }
    }

    fn send(&mut self, lane: LaneId, now: u64) {
        let Some((along, settings)) = self.lanes.iter().find(|(_, id)| **id == lane).zip(self.settings.as_ref()) else {
            return;
        };
        let (Some(address), wall) = (settings.address, wall()) else { return };
        let Some(sequence) = self.watch.sent(lane, now, wall) else { return };
        let (Loop { carrier, hops }, _) = along;
        let turn = usize::try_from(sequence).unwrap_or_default().checked_rem(hops.len()).unwrap_or_default();
        let Some(hop) = hops.get(turn) else { return };
        let probe = Probe { source: hop.source, carrier: *carrier, address, port: settings.udp_port };
        let packet = probe.packet(sequence, &self.seal.close(Message { sequence, lane }, wall));
        let sent = match self.senders.get(&hop.device) {
            Some(sender) => sender.send(&packet, hop.to).map_err(|why| format!("{}: {why}", hop.device)),
            None => Err(format!("{}: {}", hop.device, self.shut.get(&hop.device).map_or("no socket", String::as_str))),
        };
        match sent {
            Ok(()) => drop(self.unsent.remove(&lane)),
            Err(why) => {
                self.watch.not_sent(lane);
                self.unsent.insert(lane, why);
            }
        }
    }

    /// Tells the control loop which paths are to be left out, if the state of a loop has changed.
    fn judge(&mut self, is_new: bool) {
        let states: Vec<State> = self.watch.lanes().values().map(|lane| lane.state).collect();
        if !is_new && states == self.states {
            return;
        }
        self.states = states;
        let mut all = BTreeSet::new();
        for prefix in &*self.prefixes {
            let lanes: Vec<Option<LaneId>> = prefix.paths.iter().map(|path| self.lane_of(&path.along)).collect();
            let usable = self.watch.usable(&lanes);
            let unused = prefix.paths.iter().zip(usable).filter(|(_, usable)| !usable);
            all.extend(unused.map(|(path, _)| path.name.clone()));
        }
        self.unused = Arc::new(all);
        tell(&self.told, Arc::clone(&self.unused));
    }

    /// Returns the number of a path's loop.
    pub(super) fn lane_of(&self, along: &Result<Loop, String>) -> Option<LaneId> {
        self.lanes.get(along.as_ref().ok()?).copied()
    }
}

/// Records why there is no socket for a device. Returns true if that was not known.
fn is_news(known: &mut BTreeMap<String, String>, device: &str, why: &str) -> bool {
    known.insert(device.to_owned(), why.to_owned()).as_deref() != Some(why)
}

fn device_of(hop: &NextHop) -> (&str, u32) {
    (&hop.device, hop.ifindex)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the time since 1970 in nanoseconds.
fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanoseconds)
}

/// Returns a secret that differs after each start: the kernel's random numbers are the key of this hash function.
fn secret() -> Vec<u8> {
    let random = RandomState::new();
    (0..4u8).flat_map(|part| random.hash_one(part).to_be_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_a_socket_is_news_once() {
        let known = &mut BTreeMap::new();
        let said = ["no permission", "no permission", "no such device", "no such device", "no permission"];
        assert_eq!(said.map(|why| is_news(known, "eth1", why)), [true, false, true, false, true]);
        assert!(is_news(known, "eth2", "no permission"));
    }
}
