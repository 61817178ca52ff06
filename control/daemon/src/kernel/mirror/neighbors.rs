//! Keeps neighbours up to date by events between two dumps. A dump for each event would take longer the more neighbours
//! there are.

use std::collections::BTreeMap;
use std::net::IpAddr;

use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use srv6d_addresses::Mac;

use super::links::mac;
use srv6d_plan::KernelNeighbor;

/// Largest number of settled neighbours that wait to be taken. Further ones are not reported.
const SETTLED: usize = 4096;

/// A neighbour: the index of its device, and its address.
type Key = (u32, IpAddr);

/// The kernel's entry of a neighbour to which packets can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    mac: Mac,
    /// Whether the entry was written by hand: then the kernel is never asked for it.
    is_fixed: bool,
}

/// The meaning of an event about a neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Whether the neighbour can be used from now on, can no longer be used, or has another MAC address.
    pub(super) is_change: bool,
    /// Whether the neighbour can be used from now on, or has another MAC address.
    pub(super) has_resolved: bool,
}

/// The neighbours to which packets can be sent.
#[derive(Debug, Default)]
pub(super) struct Neighbors {
    usable: BTreeMap<Key, Entry>,
    is_changed: bool,
    settled: Vec<(Key, bool)>,
}

impl Neighbors {
    /// Replaces the neighbours by those of a dump.
    pub(super) fn dumped(&mut self, messages: &[NeighbourMessage]) {
        self.usable = messages.iter().filter_map(|message| Some((key(message)?, usable(message)?))).collect();
        self.is_changed = false;
    }

    /// Processes an event. `None`: it is not about a neighbour.
    pub(super) fn note(&mut self, message: &NetlinkMessage<RouteNetlinkMessage>) -> Option<Change> {
        let (message, entry) = match &message.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(message)) => (message, usable(message)),
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelNeighbour(message)) => (message, None),
            _ => return None,
        };
        // Other entries are those of bridges.
        let Some(key) = key(message) else { return Some(Change::default()) };
        if message.header.state != NeighbourState::Incomplete && self.settled.len() < SETTLED {
            self.settled.push((key, entry.is_some()));
        }
        let was = match entry {
            Some(entry) => self.usable.insert(key, entry),
            None => self.usable.remove(&key),
        };
        let is_change = was.map(|was| was.mac) != entry.map(|entry| entry.mac);
        self.is_changed |= is_change;
        Some(Change { is_change, has_resolved: is_change && entry.is_some() })
    }

    /// Whether a neighbour has come, changed or gone since the last call or the last dump.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Returns the neighbours that the kernel no longer tries to resolve. True: they have resolved.
    pub(super) fn take_settled(&mut self) -> Vec<(Key, bool)> {
        std::mem::take(&mut self.settled)
    }

    /// Whether the entry was written by hand, or its device has no neighbour resolution.
    pub(super) fn is_fixed(&self, ifindex: u32, address: IpAddr) -> bool {
        self.usable.get(&(ifindex, address)).is_some_and(|entry| entry.is_fixed)
    }

    /// Whether packets can be sent to the neighbour.
    pub(super) fn is_known(&self, ifindex: u32, address: IpAddr) -> bool {
        self.usable.contains_key(&(ifindex, address))
    }

    /// Returns all neighbours on devices with a name.
    pub(super) fn usable(&self, names: &BTreeMap<u32, String>) -> Vec<KernelNeighbor> {
        let on_device = |(&(ifindex, address), entry): (&Key, &Entry)| {
            Some(KernelNeighbor { device: names.get(&ifindex)?.clone(), address, mac: entry.mac })
        };
        self.usable.iter().filter_map(on_device).collect()
    }
}

fn key(message: &NeighbourMessage) -> Option<Key> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => Some((message.header.ifindex, IpAddr::V4(*v4))),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => Some((message.header.ifindex, IpAddr::V6(*v6))),
        _ => None,
    })
}

fn usable(message: &NeighbourMessage) -> Option<Entry> {
    use NeighbourState::{Delay, Noarp, Permanent, Probe, Reachable, Stale};
    let state = message.header.state;
    let is_usable = matches!(state, Reachable | Stale | Delay | Probe | Permanent | Noarp);
    let (_, address) = key(message).filter(|_| is_usable)?;
    let mac = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => mac(bytes),
        _ => None,
    })?;
    let is_station = !mac.is_group() && !address.is_multicast();
    is_station.then_some(Entry { mac, is_fixed: matches!(state, Permanent | Noarp) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn event(state: NeighbourState, last: u8) -> NetlinkMessage<RouteNetlinkMessage> {
        let mut message = NeighbourMessage::default();
        (message.header.ifindex, message.header.state) = (3, state);
        message.attributes = vec![
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(Ipv6Addr::LOCALHOST)),
            NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, last]),
        ];
        RouteNetlinkMessage::NewNeighbour(message).into()
    }

    #[test]
    fn only_what_packets_can_be_sent_to_is_a_change() {
        let mut neighbors = Neighbors::default();
        let mut note = |state, last| {
            let change = neighbors.note(&event(state, last)).unwrap();
            (change.is_change, change.has_resolved, neighbors.take_changed(), neighbors.take_settled().len())
        };
        assert_eq!(note(NeighbourState::Incomplete, 1), (false, false, false, 0), "still looked for");
        assert_eq!(note(NeighbourState::Failed, 1), (false, false, false, 1), "given up");
        assert_eq!(note(NeighbourState::Reachable, 1), (true, true, true, 1));
        assert_eq!(note(NeighbourState::Stale, 1), (false, false, false, 1), "as usable as before");
        assert_eq!(note(NeighbourState::Reachable, 2), (true, true, true, 1), "another MAC address");
        assert_eq!(note(NeighbourState::Failed, 2), (true, false, true, 1));
    }

    #[test]
    fn what_was_written_by_hand_is_fixed() {
        let mut neighbors = Neighbors::default();
        neighbors.note(&event(NeighbourState::Permanent, 1)).unwrap();
        assert!(neighbors.is_fixed(3, Ipv6Addr::LOCALHOST.into()) && neighbors.is_known(3, Ipv6Addr::LOCALHOST.into()));
        neighbors.note(&event(NeighbourState::Reachable, 1)).unwrap();
        assert!(!neighbors.is_fixed(3, Ipv6Addr::LOCALHOST.into()));
        assert_eq!(neighbors.usable(&[(3, "eth1".to_owned())].into()).len(), 1);
        assert_eq!(neighbors.usable(&BTreeMap::new()), [], "its device is not known yet");
    }
}
