//! The nodes that send heartbeats, and how old the last one of each is.

use std::collections::{BTreeMap, BTreeSet};

use crate::TTL;
use crate::auth::Key;
use crate::message::{Entry, Heartbeat};
use crate::reject::{Counters, Reject};

/// Number of silent periods after which the quality of a node's ports is unknown.
const UNKNOWN_PERIODS: u64 = 3;
/// Number of silent periods after which the node itself is suspect.
const SUSPECT_PERIODS: u64 = 5;
const MILLISECOND: u64 = 1_000_000;

/// Settings by which heartbeats are accepted or refused.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// BGP identifier of this node.
    pub node: u32,
    /// Key by which heartbeats have to be signed.
    pub key: Option<Key>,
    /// Nodes whose heartbeats are expected, by the interface index of the port.
    pub ports: BTreeMap<u32, u32>,
    /// Nodes whose ports do not exist at present. What is known of them stays, so that nobody can replay an old
    /// heartbeat later.
    pub absent: BTreeSet<u32>,
}

/// The way in which a heartbeat has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Interface index of the port.
    pub port: u32,
    /// Hop limit.
    pub ttl: u8,
    /// Time of arrival in nanoseconds, of a clock that is never set.
    pub now: u64,
}

/// A node that sends heartbeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its last heartbeat.
    pub last: Heartbeat,
    /// Port on which the last one arrived.
    pub port: u32,
    /// Time at which the last one arrived.
    pub heard: u64,
    /// Number of heartbeats that were accepted.
    pub received: u64,
    /// Number of heartbeats that are missing between the accepted ones, by their sequence numbers.
    pub missed: u64,
    /// Number of restarts.
    pub restarts: u64,
}

/// Freshness of the last heartbeat of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The heartbeat is recent, and what it says counts.
    Fresh,
    /// The heartbeat is too old to count. The peer's links are used nevertheless: silence alone takes no path away.
    Unknown,
    /// The heartbeat is so old that the peer is shown as one that may be gone.
    Suspect,
}

impl Peer {
    fn new(last: Heartbeat, Arrival { port, now, .. }: Arrival) -> Self {
        Self { last, port, heard: now, received: 1, missed: 0, restarts: 0 }
    }

    /// Takes over a newer heartbeat.
    fn renew(&mut self, last: Heartbeat, Arrival { port, now, .. }: Arrival) {
        if last.boot == self.last.boot {
            self.missed += u64::from(last.sequence.wrapping_sub(self.last.sequence).saturating_sub(1));
        } else {
            self.restarts += 1;
        }
        self.received += 1;
        (self.last, self.port, self.heard) = (last, port, now);
    }

    /// Returns true if a heartbeat is newer than the last one: by its number (RFC 1982), or because the node has
    /// started again. A replayed heartbeat of an earlier start looks like that, too. It counts until the next heartbeat
    /// of the node.
    fn is_renewed_by(&self, heartbeat: &Heartbeat) -> bool {
        heartbeat.boot != self.last.boot || is_newer(heartbeat.sequence, self.last.sequence)
    }

    /// Returns the nanoseconds since the last heartbeat.
    pub fn age(&self, now: u64) -> u64 {
        now.saturating_sub(self.heard)
    }

    /// Returns the freshness of the last heartbeat.
    pub fn freshness(&self, now: u64) -> Freshness {
        let period = u64::from(self.last.period.max(1)) * MILLISECOND;
        match self.age(now) {
            age if age > SUSPECT_PERIODS * period => Freshness::Suspect,
            age if age > UNKNOWN_PERIODS * period => Freshness::Unknown,
            _ => Freshness::Fresh,
        }
    }

    /// Returns what the peer says of its port to a neighbour. Returns `None` if the peer does not know, or has been
    /// silent for too long: then only what this node itself sees counts.
    pub fn entry(&self, neighbor: u32, now: u64) -> Option<&Entry> {
        let entry = self.last.entries.iter().find(|entry| entry.neighbor == neighbor)?;
        (entry.is_valid && self.freshness(now) == Freshness::Fresh).then_some(entry)
    }
}

/// Returns true if a sequence number is newer than another one (RFC 1982 section 3.2). Two numbers that are 2³¹ apart
/// cannot be compared.
const fn is_newer(number: u32, than: u32) -> bool {
    let ahead = number.wrapping_sub(than);
    ahead != 0 && ahead < 1 << 31
}

/// All peers: at most one for each port, whatever node ids somebody invents. A peer stays as long as it is expected,
/// however long it is silent.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    settings: Settings,
    by_node: BTreeMap<u32, Peer>,
    received: u64,
    rejected: Counters,
}

impl Peers {
    /// Creates a table without peers.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Takes over a heartbeat that has arrived. Returns the node that has sent it.
    ///
    /// # Errors
    /// Returns why it is refused. The refusal is counted and changes nothing else.
    pub fn receive(&mut self, bytes: &[u8], arrival: Arrival) -> Result<u32, Reject> {
        let judged = self.judge(bytes, arrival);
        match judged {
            Ok(heartbeat) => {
                let node = heartbeat.node;
                self.received += 1;
                match self.by_node.get_mut(&node) {
                    Some(peer) => peer.renew(heartbeat, arrival),
                    None => drop(self.by_node.insert(node, Peer::new(heartbeat, arrival))),
                }
                Ok(node)
            }
            Err(reject) => {
                self.rejected.count(reject);
                Err(reject)
            }
        }
    }

    fn judge(&self, bytes: &[u8], arrival: Arrival) -> Result<Heartbeat, Reject> {
        if arrival.ttl != TTL {
            return Err(Reject::Ttl);
        }
        let expected = *self.settings.ports.get(&arrival.port).ok_or(Reject::Port)?;
        let heartbeat = Heartbeat::decode(bytes, self.settings.key.as_ref())?;
        if heartbeat.node == self.settings.node {
            return Err(Reject::OwnNode);
        }
        if heartbeat.node != expected {
            return Err(Reject::Neighbor);
        }
        match self.by_node.get(&heartbeat.node) {
            Some(peer) if !peer.is_renewed_by(&heartbeat) => Err(Reject::Sequence),
            _ => Ok(heartbeat),
        }
    }

    /// Returns the peers by their node ids.
    pub const fn all(&self) -> &BTreeMap<u32, Peer> {
        &self.by_node
    }

    /// Returns the number of heartbeats that were taken over.
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Returns the numbers of heartbeats that were refused, by reason.
    pub const fn rejected(&self) -> &Counters {
        &self.rejected
    }

    /// Changes the settings. Peers that are not expected any more are forgotten.
    pub fn change(&mut self, settings: Settings) {
        let expected: BTreeSet<u32> = settings.ports.values().chain(&settings.absent).copied().collect();
        self.by_node.retain(|node, _| expected.contains(node));
        self.settings = settings;
    }
}

#[cfg(test)]
mod tests {
    use super::is_newer;

    #[test]
    fn sequence_numbers_wrap() {
        assert!(is_newer(1, 0) && is_newer(0, u32::MAX) && is_newer((1 << 31) - 1, 0));
        assert!(!is_newer(0, 0) && !is_newer(0, 1) && !is_newer(u32::MAX, 0));
        assert!(!is_newer(1 << 31, 0) && !is_newer(0, 1 << 31), "the two are not comparable");
    }
}
