//! Packets that wait for their next hop to resolve (RFC 4861 section 7.2.2). They are kept as received, and are
//! forwarded again when the tables change.
//!
//! A sender to random addresses of a subnet makes packets wait that nobody will ever answer (RFC 6583). If there is
//! no room left, a packet is removed: the oldest one of the fullest subnet on the port with the most waiting packets.
//! So packets for neighbours elsewhere stay, and so do the latest ones, because an existing neighbour answers in much
//! less time than it takes to fill the room.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use srv6d_srv6::Bucket;
use srv6d_srv6::desired::PortId;

/// Largest number of packets kept for one neighbour.
const PER_NEIGHBOR: usize = 64;
/// Time for which a packet is kept, in nanoseconds. The kernel gives up after three solicitations, a second apart.
const PATIENCE: u64 = 3_500_000_000;
/// Time after which control is told again that packets wait for a neighbour, in nanoseconds.
const TELL_AGAIN: u64 = 10_000_000;
/// Largest number of new neighbours per second and port that control is told about, so that one port does not hide the
/// neighbours of other ports.
const TOLD_PER_SECOND: u32 = 5_000;

/// A neighbour: its port and its address.
pub(crate) type Neighbor = (PortId, IpAddr);
/// Neighbours that share a subnet: an IPv6 /64 or an IPv4 /24 of a port.
type Subnet = (PortId, IpAddr);

/// One packet that waits.
#[derive(Debug)]
pub(crate) struct Waiting<F> {
    /// The packet, unchanged since it was received.
    pub(crate) frame: F,
    /// Number of the socket that received it.
    pub(crate) socket: usize,
    /// Time of arrival, in nanoseconds.
    pub(crate) since: u64,
    neighbor: Neighbor,
}

/// A neighbour that packets wait for.
#[derive(Clone, Copy, Debug, Default)]
struct Awaited {
    packets: usize,
    /// Time at which control was told, in nanoseconds.
    told: Option<u64>,
}

/// The waiting packets of one worker.
#[derive(Debug)]
pub(crate) struct Held<F> {
    /// Largest number of packets that are held.
    room: usize,
    /// The packets in the order of arrival.
    packets: VecDeque<Waiting<F>>,
    neighbors: HashMap<Neighbor, Awaited>,
    by_port: HashMap<PortId, usize>,
    by_subnet: HashMap<Subnet, usize>,
    told: HashMap<PortId, Bucket>,
}

impl<F> Held<F> {
    /// Creates an empty store for `room` packets.
    pub(crate) fn with_room(room: usize) -> Self {
        Self {
            room,
            packets: VecDeque::with_capacity(room),
            neighbors: HashMap::new(),
            by_port: HashMap::new(),
            by_subnet: HashMap::new(),
            told: HashMap::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Keeps a packet. If there is no room, returns the packet that is removed instead, which is the new one if enough
    /// packets wait for its neighbour already.
    pub(crate) fn keep(&mut self, frame: F, socket: usize, neighbor: Neighbor, since: u64) -> Option<Waiting<F>> {
        let waiting = Waiting { frame, socket, since, neighbor };
        if self.room == 0 || self.neighbors.get(&neighbor).is_some_and(|known| known.packets >= PER_NEIGHBOR) {
            return Some(waiting);
        }
        self.count(neighbor, true);
        self.packets.push_back(waiting);
        if self.packets.len() > self.room { self.make_room() } else { None }
    }

    /// Returns true if control has to be told at `now` (nanoseconds) that packets wait for a neighbour.
    pub(crate) fn is_to_be_told(&mut self, neighbor: Neighbor, now: u64) -> bool {
        let Some(awaited) = self.neighbors.get_mut(&neighbor) else { return false };
        let is_due = match awaited.told {
            Some(told) => now.saturating_sub(told) >= TELL_AGAIN,
            None => self.told.entry(neighbor.0).or_default().take(now, TOLD_PER_SECOND),
        };
        if is_due {
            awaited.told = Some(now);
        }
        is_due
    }

    /// Takes all packets, in the order of arrival. The neighbours that control was told of stay recorded until
    /// [`forget_resolved`](Self::forget_resolved).
    pub(crate) fn take_all(&mut self) -> VecDeque<Waiting<F>> {
        self.by_port.clear();
        self.by_subnet.clear();
        self.neighbors.values_mut().for_each(|awaited| awaited.packets = 0);
        std::mem::replace(&mut self.packets, VecDeque::with_capacity(self.room))
    }

    /// Forgets the neighbours that no packet waits for.
    pub(crate) fn forget_resolved(&mut self) {
        self.neighbors.retain(|_, awaited| awaited.packets > 0);
    }

    /// Takes the packets that have waited too long.
    pub(crate) fn take_expired(&mut self, now: u64) -> Vec<Waiting<F>> {
        let expired = self.packets.iter().take_while(|waiting| now.saturating_sub(waiting.since) > PATIENCE).count();
        let expired: Vec<_> = self.packets.drain(..expired).collect();
        for waiting in &expired {
            self.count(waiting.neighbor, false);
        }
        expired
    }

    /// Removes the oldest packet of the subnet with the most packets, on the port with the most packets.
    fn make_room(&mut self) -> Option<Waiting<F>> {
        let port = fullest(self.by_port.iter())?;
        let subnet = fullest(self.by_subnet.iter().filter(|((of, _), _)| *of == port))?;
        let oldest = self.packets.iter().position(|waiting| subnet_of(waiting.neighbor) == subnet)?;
        let oldest = self.packets.remove(oldest)?;
        self.count(oldest.neighbor, false);
        Some(oldest)
    }

    /// Counts a packet that has come or gone.
    fn count(&mut self, neighbor: Neighbor, has_come: bool) {
        let awaited = self.neighbors.entry(neighbor).or_default();
        awaited.packets = if has_come { awaited.packets + 1 } else { awaited.packets.saturating_sub(1) };
        if awaited.packets == 0 {
            self.neighbors.remove(&neighbor);
        }
        add_one(&mut self.by_port, neighbor.0, has_come);
        add_one(&mut self.by_subnet, subnet_of(neighbor), has_come);
    }
}

/// Adds one to a count, or subtracts one. A count of zero is removed.
fn add_one<K: Copy + Eq + Hash>(counts: &mut HashMap<K, usize>, key: K, has_come: bool) {
    let count = counts.entry(key).or_default();
    *count = if has_come { *count + 1 } else { count.saturating_sub(1) };
    if *count == 0 {
        counts.remove(&key);
    }
}

fn fullest<'k, K: Copy + 'k>(counts: impl Iterator<Item = (&'k K, &'k usize)>) -> Option<K> {
    counts.max_by_key(|(_, count)| **count).map(|(key, _)| *key)
}

fn subnet_of((port, address): Neighbor) -> Subnet {
    let network = match address {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() >> 8 << 8)),
    };
    (port, network)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbor(port: u16, subnet: u16, host: u16) -> Neighbor {
        (PortId(port), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, subnet, 0, 0, 0, 0, host)))
    }

    #[test]
    fn a_scanned_subnet_takes_room_from_itself_alone() {
        let mut held = Held::with_room(8);
        let elsewhere = [neighbor(2, 2, 1), neighbor(1, 3, 1)];
        for (number, at) in (0..).zip(elsewhere) {
            assert!(held.keep(number, 0, at, 0).is_none());
        }
        for host in 0..100 {
            let evicted = held.keep(1000 + host, 0, neighbor(1, 1, host), 0);
            let expected = (host >= 6).then(|| 1000 + host - 6);
            assert_eq!(evicted.map(|waiting| waiting.frame), expected, "the oldest of the scanned subnet");
        }
        assert_eq!(held.len(), 8);
        assert!(elsewhere.iter().all(|at| held.neighbors.contains_key(at)));
        let kept: Vec<u16> = held.take_all().into_iter().map(|waiting| waiting.frame).collect();
        assert_eq!(kept, [0, 1, 1094, 1095, 1096, 1097, 1098, 1099]);
    }

    #[test]
    fn one_neighbour_keeps_a_limited_number_of_packets() {
        let mut held = Held::with_room(1000);
        let refused = (0..100).filter(|&number| held.keep(number, 0, neighbor(1, 1, 1), 0).is_some()).count();
        assert_eq!((held.len(), refused), (PER_NEIGHBOR, 100 - PER_NEIGHBOR));
    }

    #[test]
    fn control_is_told_of_a_neighbour_at_once_and_then_now_and_then() {
        let mut held = Held::with_room(10);
        let at = neighbor(1, 1, 1);
        assert!(!held.is_to_be_told(at, 0), "nothing waits for it");
        assert!(held.keep('a', 0, at, 0).is_none());
        assert!(held.is_to_be_told(at, 0));
        assert!(!held.is_to_be_told(at, TELL_AGAIN - 1));
        assert!(held.is_to_be_told(at, TELL_AGAIN));
        for waiting in held.take_all() {
            assert!(held.keep(waiting.frame, 0, at, 0).is_none());
        }
        held.forget_resolved();
        assert!(!held.is_to_be_told(at, TELL_AGAIN + 1), "still known after other tables");
    }

    #[test]
    fn control_hears_of_so_many_new_neighbours_of_a_port() {
        let mut held = Held::with_room(10_000);
        let mut told = |port: u16| {
            let all = (0..2000).map(|host| neighbor(port, 1, host));
            all.filter(|&at| held.keep((), 0, at, 0).is_none() && held.is_to_be_told(at, 0)).count()
        };
        assert_eq!((told(1), told(2)), (500, 500), "the burst of each port");
    }

    #[test]
    fn packets_expire_in_their_order() {
        let mut held = Held::with_room(10);
        for number in 0..4 {
            assert!(held.keep(number, 0, neighbor(1, 1, 1), number * 1_000_000_000).is_none());
        }
        let expired: Vec<u64> = held.take_expired(5_000_000_000).into_iter().map(|waiting| waiting.frame).collect();
        assert_eq!((expired, held.len()), (vec![0, 1], 2));
    }
}
