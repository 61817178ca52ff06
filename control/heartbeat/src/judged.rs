//! Judges the ports behind neighbours by what the neighbours say of them.

use std::collections::{BTreeMap, BTreeSet};

use srv6d_balance::{PortState, mean, settled};

use crate::message::Entry;
use crate::peers::Peer;

/// Score of a port that is full, or down.
const WORST: u16 = 1000;
const MEGABIT: u64 = 1_000_000;
/// Hundredths of a percent in a permille.
const HUNDREDTHS: u32 = 10;

/// Judges the ports of peers by this node's own weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judge {
    /// Share of the load in a score, in percent. The rest is the share of the queue.
    pub rate_weight: u8,
    /// Sets of nodes behind neighbours.
    pub profiles: Vec<BTreeSet<u32>>,
    /// Last states, by peer and node behind it. They are kept because a score stays until it changes enough.
    known: BTreeMap<u32, BTreeMap<u32, PortState>>,
}

impl Judge {
    /// Creates a judge.
    pub const fn new(rate_weight: u8, profiles: Vec<BTreeSet<u32>>) -> Self {
        Self { rate_weight, profiles, known: BTreeMap::new() }
    }

    /// Returns for each profile the mean state of the ports from a peer to the nodes of the profile. It is `None` if
    /// the peer says nothing of any of these ports, or has been silent for too long.
    pub fn judge(&mut self, peer: &Peer, now: u64) -> Vec<Option<PortState>> {
        let before = self.known.remove(&peer.last.node).unwrap_or_default();
        let nodes: BTreeSet<u32> = self.profiles.iter().flatten().copied().collect();
        let entry = |node: u32| Some((node, peer.entry(node, now)?));
        let known: BTreeMap<u32, PortState> = (nodes.into_iter().filter_map(entry))
            .map(|(node, entry)| (node, self.state(peer, entry, before.get(&node))))
            .collect();
        let of = |profile: &BTreeSet<u32>| {
            mean(&profile.iter().filter_map(|node| known.get(node)).copied().collect::<Vec<_>>())
        };
        let judged = self.profiles.iter().map(of).collect();
        self.known.insert(peer.last.node, known);
        judged
    }

    /// Returns the present state of a port of a peer.
    pub fn state_of(&self, peer: &Peer, entry: &Entry) -> PortState {
        let before = self.known.get(&peer.last.node).and_then(|known| known.get(&entry.neighbor));
        self.state(peer, entry, before)
    }

    fn state(&self, peer: &Peer, entry: &Entry, before: Option<&PortState>) -> PortState {
        let weight = u32::from(self.rate_weight.min(100));
        let weighted = weight * u32::from(entry.load) + (100 - weight) * u32::from(entry.queue);
        let score = u16::try_from(weighted / 100 / HUNDREDTHS).unwrap_or(WORST).min(WORST);
        let score = match before {
            _ if !entry.is_up || peer.last.is_draining => WORST,
            Some(before) => settled(score, before.score),
            None => score,
        };
        PortState { score, rate: u64::from(entry.capacity) * MEGABIT }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use super::*;
    use crate::{Arrival, Heartbeat, Peers, Role, Settings};

    const GIGABIT: u64 = 1000 * MEGABIT;
    const MS: u64 = 1_000_000;

    fn entry(neighbor: u32, load: u16, capacity: u32) -> Entry {
        Entry { neighbor, band: 7, is_up: true, is_valid: true, load, queue: 0, ifindex: 3, capacity }
    }

    /// Returns the states of profiles after a node has sent these heartbeats, one per millisecond.
    fn judged(profiles: &[&[u32]], weight: u8, heartbeats: &[&[Entry]], silent: u64) -> Vec<Option<PortState>> {
        let mut peers = Peers::new(Settings { node: 9, ports: [(1, 1)].into(), ..Settings::default() });
        let mut judge = Judge::new(weight, profiles.iter().map(|nodes| nodes.iter().copied().collect()).collect());
        let mut judged = Vec::new();
        for (sequence, entries) in (1..).zip(heartbeats) {
            let heartbeat = Heartbeat {
                is_periodic: true,
                is_change: false,
                is_draining: false,
                role: Role::Helper,
                node: 1,
                sequence,
                clock: 0,
                period: 20,
                boot: 1,
                entries: entries.to_vec(),
            };
            let now = u64::from(sequence) * MS;
            peers.receive(&heartbeat.encode(None), Arrival { port: 1, ttl: 255, now }).unwrap();
            judged = judge.judge(peers.all().get(&1).unwrap(), now + silent);
        }
        judged
    }

    fn port(score: u16, gigabits: u64) -> PortState {
        PortState { score, rate: gigabits * GIGABIT }
    }

    #[test]
    fn the_receiver_weighs_load_and_queue_itself() {
        let busy = Entry { queue: 8000, ..entry(2, 4000, 100_000) };
        for (weight, score) in [(0, 800), (50, 600), (100, 400)] {
            assert_eq!(judged(&[&[2]], weight, &[&[busy]], 0), [Some(port(score, 100))]);
        }
    }

    #[test]
    fn a_profile_of_several_nodes_is_the_mean_of_what_is_known() {
        let entries = [entry(2, 0, 100_000), entry(3, 5000, 40_000), Entry { is_valid: false, ..entry(4, 0, 1) }];
        let judged = judged(&[&[2], &[2, 3], &[3, 4, 5], &[4, 5]], 100, &[&entries], 0);
        assert_eq!(judged, [Some(port(0, 100)), Some(port(142, 70)), Some(port(500, 40)), None]);
    }

    #[test]
    fn a_link_that_is_down_is_the_worst_and_a_silent_peer_unknown() {
        let down = Entry { is_up: false, ..entry(2, 0, 100_000) };
        assert_eq!(judged(&[&[2]], 50, &[&[down]], 0), [Some(port(1000, 100))]);
        let idle = entry(2, 0, 100_000);
        assert_eq!(judged(&[&[2]], 50, &[&[idle]], 60 * MS), [Some(port(0, 100))]);
        assert_eq!(judged(&[&[2]], 50, &[&[idle]], 60 * MS + 1), [None]);
    }

    #[test]
    fn a_load_that_wavers_does_not_change_the_score() {
        let [first, second, third] = [5000, 5060, 5070].map(|load| [entry(2, load, 100_000)]);
        assert_eq!(judged(&[&[2]], 100, &[&first, &second], 0), [Some(port(500, 100))]);
        assert_eq!(judged(&[&[2]], 100, &[&first, &second, &third], 0), [Some(port(507, 100))]);
    }
}
